//! The text of each act on a user's table. Made from the description alone, never from values.
//!
//! Arrays that are joined with the table come through a sub-select, which hides their length from the planner:
//! it then expects ten elements and descends the index once for each, where a guess of thousands would have
//! it read the whole table (TRAPS T30).

use std::fmt::Write;

use semel_core::rows::{Change, Column, Table};

use super::{Acts, Deltas};
use crate::options::quoted;
use crate::value::type_name;

impl Acts {
    pub(super) fn of(table: &Table) -> Self {
        let name = table
            .name
            .split('.')
            .map(quoted)
            .collect::<Vec<_>>()
            .join(".");
        let writes = table
            .columns
            .iter()
            .skip(1)
            .any(|c| c.change != Change::Fixed);
        let adds = table.counters().next().is_some();
        Self {
            read: read(&name, table, "LIMIT 1").into(),
            // Foreign keys that point to the row may still be checked by others.
            read_locked: read(&name, table, "FOR NO KEY UPDATE").into(),
            insert: insert(&name, table).into(),
            append: append(&name, table).into(),
            update: writes.then(|| update(&name, table).into()),
            add: adds.then(|| Deltas::of(|rows| returning(add(&name, table, rows), table))),
            raise: adds.then(|| Deltas::of(|rows| add(&name, table, rows).whole())),
        }
    }
}

fn list<'a>(columns: impl Iterator<Item = &'a Column>, prefix: &str) -> String {
    columns
        .map(|c| format!("{prefix}{}", quoted(c.name)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// One row of arrays, a column each: cheaper on both sides than a row for each row. Locked: rows in the order of
/// the array, which a lateral join keeps.
fn read(name: &str, table: &Table, end: &str) -> String {
    let id = &table.columns[0];
    format!(
        "SELECT {arrays}\n\
         FROM unnest((SELECT $1::{kind}[])) AS wanted (id)\n\
         CROSS JOIN LATERAL (\n    \
             SELECT {columns}\n    \
             FROM {name} AS known\n    \
             WHERE known.{identity} = wanted.id\n    \
             {end}\n\
         ) AS found",
        kind = type_name(id.kind),
        arrays = arrays(table.columns.iter(), "found."),
        columns = list(table.columns.iter(), "known."),
        identity = quoted(id.name),
    )
}

fn arrays<'a>(columns: impl Iterator<Item = &'a Column>, prefix: &str) -> String {
    columns
        .map(|c| format!("array_agg({prefix}{})", quoted(c.name)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Only the identity makes a collision: a row that another constraint refuses is an error, since to decide again
/// would not help it.
fn insert(name: &str, table: &Table) -> String {
    let arrays: Vec<String> = table
        .columns
        .iter()
        .zip(1..)
        .map(|(c, n)| format!("${n}::{}[]", type_name(c.kind)))
        .collect();
    format!(
        "INSERT INTO {name} ({columns})\n\
         SELECT *\n\
         FROM unnest({arrays})\n\
         ON CONFLICT ({identity}) DO NOTHING",
        columns = list(table.columns.iter(), ""),
        arrays = arrays.join(", "),
        identity = quoted(table.columns[0].name),
    )
}

/// Without a look for collisions, and without a table of the arrays first: side by side in the list of columns
/// they are read as they go.
fn append(name: &str, table: &Table) -> String {
    let arrays: Vec<String> = table
        .columns
        .iter()
        .zip(1..)
        .map(|(c, n)| format!("unnest(${n}::{}[])", type_name(c.kind)))
        .collect();
    format!(
        "INSERT INTO {name} ({columns})\nSELECT {arrays}",
        columns = list(table.columns.iter(), ""),
        arrays = arrays.join(", "),
    )
}

/// The arrays of a join, each hidden in a sub-select, and the names of their columns.
struct Joined {
    arrays: Vec<String>,
    names: Vec<String>,
}

impl Joined {
    const fn new() -> Self {
        Self {
            arrays: Vec::new(),
            names: Vec::new(),
        }
    }

    fn push(&mut self, column: &Column, name: String) {
        self.arrays.push(format!(
            "(SELECT ${}::{}[])",
            self.arrays.len() + 1,
            type_name(column.kind)
        ));
        self.names.push(name);
    }

    fn unnest(&self, alias: &str) -> String {
        format!(
            "unnest({}) AS {alias} ({})",
            self.arrays.join(", "),
            self.names.join(", ")
        )
    }
}

fn update(name: &str, table: &Table) -> String {
    let mut joined = Joined::new();
    let mut sets = Vec::new();
    for (place, column) in table.columns.iter().enumerate() {
        if place == 0 || column.change != Change::Fixed {
            joined.push(column, quoted(column.name));
        }
        if place > 0 && column.change != Change::Fixed {
            sets.push(format!("{0} = given.{0}", quoted(column.name)));
        }
    }
    let identity = quoted(table.columns[0].name);
    format!(
        "UPDATE {name} AS known\n\
         SET {sets}\n\
         FROM {given}\n\
         WHERE known.{identity} = given.{identity}",
        sets = sets.join(", "),
        given = joined.unnest("given"),
    )
}

/// How many rows a statement adds to.
#[derive(Clone, Copy)]
enum Crowd {
    One,
    Few,
    Many,
}

impl Deltas {
    fn of(text: impl Fn(Crowd) -> String) -> Self {
        Self {
            one: text(Crowd::One).into(),
            few: text(Crowd::Few).into(),
            many: text(Crowd::Many).into(),
        }
    }
}

/// An update's order is the planner's. Few rows, which may be all of a small table, are therefore locked in the
/// order of the arrays first. That more than doubles the price of a row (11 to 4.5 µs), so many rows go without:
/// their condition is one that can neither be hashed nor merged, which leaves a nested loop down the index, in
/// the order of the arrays.
fn add(name: &str, table: &Table, many: Crowd) -> Update {
    let mut joined = Joined::new();
    let mut conditions = String::new();
    for (place, column) in table.columns.iter().enumerate() {
        if place == 0 || column.change == Change::Set {
            joined.push(column, format!("seen_{place}"));
        }
        if place > 0 && column.change == Change::Set {
            let column = quoted(column.name);
            let _ = write!(
                conditions,
                "\n  AND known.{column} IS NOT DISTINCT FROM given.seen_{place}"
            );
        }
    }
    let mut sets = Vec::new();
    for place in table.counters() {
        let column = &table.columns[place];
        joined.push(column, format!("add_{place}"));
        sets.push(format!(
            "{0} = known.{0} + given.add_{place}",
            quoted(column.name)
        ));
    }
    let identity = quoted(table.columns[0].name);
    let given = joined.unnest("given");
    let (with, from, seen) = match many {
        Crowd::One => (None, given, "given.seen_0"),
        Crowd::Few => (
            Some(locked(name, &identity, &given)),
            "given".to_owned(),
            "given.seen_0",
        ),
        Crowd::Many => (None, given, "ANY (ARRAY[given.seen_0])"),
    };
    let update = format!(
        "UPDATE {name} AS known\n\
         SET {sets}\n\
         FROM {from}\n\
         WHERE known.{identity} = {seen}{conditions}",
        sets = sets.join(", "),
    );
    Update { with, update }
}

/// An update, and what is in front of it.
struct Update {
    with: Option<String>,
    update: String,
}

impl Update {
    fn whole(self) -> String {
        let Self { with, update } = self;
        with.map_or_else(String::new, |with| format!("WITH {with}\n")) + &update
    }
}

/// The given rows, once the rows they mean are locked in their order.
fn locked(name: &str, identity: &str, given: &str) -> String {
    format!(
        "given AS MATERIALIZED (\n    \
             SELECT given.*\n    \
             FROM {given}\n    \
             CROSS JOIN LATERAL (\n        \
                 SELECT 1\n        \
                 FROM {name} AS known\n        \
                 WHERE known.{identity} = given.seen_0\n        \
                 FOR NO KEY UPDATE\n    \
             ) AS locked\n\
         )",
    )
}

/// The identities and the counters after an update, one row of arrays.
fn returning(add: Update, table: &Table) -> String {
    let counted = || table.counted_columns();
    let Update { with, update } = add;
    format!(
        "WITH {with}raised AS (\n\
         {update}\n\
         RETURNING {columns}\n\
         )\n\
         SELECT {arrays} FROM raised",
        with = with.map_or_else(String::new, |with| with + ",\n"),
        columns = list(counted(), "known."),
        arrays = arrays(counted(), ""),
    )
}

#[cfg(test)]
mod tests {
    use semel_core::rows::Type;

    use super::*;

    static TABLE: Table = Table {
        name: "account",
        columns: &[
            Column {
                name: "id",
                kind: Type::Key,
                change: Change::Fixed,
            },
            Column {
                name: "asset",
                kind: Type::Text,
                change: Change::Fixed,
            },
            Column {
                name: "status",
                kind: Type::Int,
                change: Change::Set,
            },
            Column {
                name: "balance",
                kind: Type::Amount,
                change: Change::Counter,
            },
        ],
    };

    #[test]
    fn an_update_leaves_fixed_columns_alone() {
        let acts = Acts::of(&TABLE);
        assert_eq!(
            acts.update.as_deref(),
            Some(
                "UPDATE \"account\" AS known\n\
                 SET \"status\" = given.\"status\", \"balance\" = given.\"balance\"\n\
                 FROM unnest((SELECT $1::uuid[]), (SELECT $2::bigint[]), (SELECT $3::numeric[])) AS given (\"id\", \"status\", \"balance\")\n\
                 WHERE known.\"id\" = given.\"id\""
            )
        );
    }

    #[test]
    fn a_delta_applies_only_to_an_unchanged_row() {
        let acts = Acts::of(&TABLE);
        assert_eq!(
            acts.add.as_ref().map(|add| &*add.one),
            Some(
                "WITH raised AS (\n\
                 UPDATE \"account\" AS known\n\
                 SET \"balance\" = known.\"balance\" + given.add_3\n\
                 FROM unnest((SELECT $1::uuid[]), (SELECT $2::bigint[]), (SELECT $3::numeric[])) AS given (seen_0, seen_2, add_3)\n\
                 WHERE known.\"id\" = given.seen_0\n  \
                 AND known.\"status\" IS NOT DISTINCT FROM given.seen_2\n\
                 RETURNING known.\"id\", known.\"balance\"\n\
                 )\n\
                 SELECT array_agg(\"id\"), array_agg(\"balance\") FROM raised"
            )
        );
    }

    #[test]
    fn a_table_that_only_grows_has_no_update() {
        static JOURNAL: Table = Table {
            name: "books.journal",
            columns: &[Column {
                name: "id",
                kind: Type::Int,
                change: Change::Fixed,
            }],
        };
        let acts = Acts::of(&JOURNAL);
        assert!(acts.update.is_none() && acts.add.is_none());
        assert_eq!(
            &*acts.insert,
            "INSERT INTO \"books\".\"journal\" (\"id\")\nSELECT *\nFROM unnest($1::bigint[])\nON CONFLICT (\"id\") DO NOTHING"
        );
    }
}
