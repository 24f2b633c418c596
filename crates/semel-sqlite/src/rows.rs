//! Rows of the user's tables, for staged handlers. The statements are made once a lane from the table's
//! description. SQLite's unit is the only writer, so nothing is locked and a read stays true until the commit.

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

use semel_core::Fault;
use semel_core::rows::{Change, Delta, Lock, Rows, Table, Value};
use sqlx::sqlite::SqliteRow;

use crate::bulk::Bulk;
use crate::fault::of_generated;
use crate::ledger::SqliteLane;
use crate::link::{Args, no_tail};
use crate::unit::SqliteUnit;
use crate::value;

/// The statements of the tables that a lane has met, by the table's address: descriptions are static.
#[derive(Debug, Default)]
pub(crate) struct Tables(HashMap<usize, Arc<Statements>>);

#[derive(Debug)]
struct Statements {
    read: Bulk,
    insert: Bulk,
    append: Bulk,
    update: Option<Bulk>,
    /// Places of the columns that an update sets.
    bound: Vec<usize>,
}

impl Tables {
    fn of(&mut self, table: &'static Table) -> Arc<Statements> {
        self.0
            .entry(ptr::from_ref(table).addr())
            .or_insert_with(|| Arc::new(Statements::of(table)))
            .clone()
    }
}

impl Statements {
    fn of(table: &Table) -> Self {
        let names: Vec<String> = table
            .columns
            .iter()
            .map(|column| quoted(column.name))
            .collect();
        let (name, id) = (quoted(table.name), &names[0]);
        let changing = table
            .columns
            .iter()
            .enumerate()
            .skip(1)
            .filter(|(_, column)| column.change != Change::Fixed);
        let bound: Vec<usize> = changing.map(|(at, _)| at).collect();
        let sets: Vec<String> = bound
            .iter()
            .map(|at| format!("{} = ?", names[*at]))
            .collect();
        let update = format!("UPDATE {name} SET {} WHERE {id} = ?", sets.join(", "));
        let read_columns: Vec<String> = names
            .iter()
            .map(|column| format!("known.{column}"))
            .collect();
        Self {
            read: Bulk::new(&format!(
                "SELECT {} FROM (VALUES (?)) AS wanted CROSS JOIN {name} AS known WHERE known.{id} = wanted.column1",
                read_columns.join(", ")
            )),
            // Only the identity makes a collision: to decide again would not help against another constraint.
            insert: Bulk::new(&format!(
                "INSERT INTO {name} ({}) VALUES {} ON CONFLICT ({id}) DO NOTHING",
                names.join(", "),
                parameters(names.len())
            )),
            // Without a target: an append-only table has another primary key than its first column.
            append: Bulk::new(&format!(
                "INSERT INTO {name} ({}) VALUES {} ON CONFLICT DO NOTHING",
                names.join(", "),
                parameters(names.len())
            )),
            update: (!bound.is_empty()).then(|| Bulk::repeated(&update)),
            bound,
        }
    }
}

/// An SQL identifier, quoted.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn parameters(count: usize) -> String {
    format!("({})", vec!["?"; count].join(", "))
}

impl SqliteUnit {
    fn table(&mut self, table: &'static Table) -> Result<Arc<Statements>, Fault> {
        self.link().sound()?;
        Ok(self.lane.tables.of(table))
    }

    async fn put(
        &mut self,
        act: &Bulk,
        table: &'static Table,
        values: &[Value],
    ) -> Result<usize, Fault> {
        let rows: Vec<&[Value]> = values.chunks_exact(table.width()).collect();
        let row =
            |args: &mut Args, row: &&[Value]| row.iter().for_each(|value| value::push(args, value));
        let inserted = self
            .link()
            .change_all(act, &rows, row, no_tail)
            .await
            .map_err(of_generated)?;
        Ok(count(inserted))
    }
}

impl Rows for SqliteUnit {
    fn only_writer(&self) -> bool {
        true
    }

    async fn read(
        &mut self,
        table: &'static Table,
        ids: &[Value],
        _lock: Lock,
    ) -> Result<Vec<Value>, Fault> {
        let statements = self.table(table)?;
        let SqliteLane { link, .. } = &mut self.lane;
        let rows = link
            .fetch_all(&statements.read, ids, value::push, no_tail)
            .await
            .map_err(of_generated)?;
        let mut values = Vec::with_capacity(rows.len() * table.width());
        for row in &rows {
            decode(row, table, &mut values)?;
        }
        Ok(values)
    }

    async fn insert(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        let statements = self.table(table)?;
        self.put(&statements.insert, table, values).await
    }

    async fn append(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        let statements = self.table(table)?;
        self.put(&statements.append, table, values).await
    }

    async fn update(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        let statements = self.table(table)?;
        let Some(update) = &statements.update else {
            return Ok(0);
        };
        let rows: Vec<&[Value]> = values.chunks_exact(table.width()).collect();
        let bound = &statements.bound;
        let row = |args: &mut Args, row: &&[Value]| {
            bound
                .iter()
                .chain([&0])
                .for_each(|at| value::push(args, &row[*at]));
        };
        let found = self
            .link()
            .change_all(update, &rows, row, no_tail)
            .await
            .map_err(of_generated)?;
        Ok(count(found))
    }

    async fn add(&mut self, table: &'static Table, deltas: &[Delta]) -> Result<Vec<Value>, Fault> {
        let ids: Vec<Value> = deltas.iter().map(|delta| delta.seen[0].clone()).collect();
        let mut known = self.read(table, &ids, Lock::Update).await?;
        let mut rows: HashMap<Value, &mut [Value]> = known
            .chunks_exact_mut(table.width())
            .map(|row| (row[0].clone(), row))
            .collect();
        let mut raised = Vec::with_capacity(deltas.len() * table.width());
        let mut now = Vec::with_capacity(deltas.len() * table.counted());
        for delta in deltas {
            let Some(row) = rows
                .get_mut(&delta.seen[0])
                .filter(|row| unchanged(table, row, &delta.seen))
            else {
                continue;
            };
            for (at, add) in table.counters().zip(&delta.add) {
                raise(&mut row[at], *add, table.columns[at].name)?;
            }
            now.push(row[0].clone());
            now.extend(table.counters().map(|at| row[at].clone()));
            raised.extend_from_slice(row);
        }
        self.update(table, &raised).await?;
        Ok(now)
    }
}

/// Whether the `Set` columns still are what was read: `seen` is the identity and those, in column order.
fn unchanged(table: &Table, row: &[Value], seen: &[Value]) -> bool {
    let set = row
        .iter()
        .zip(table.columns)
        .skip(1)
        .filter(|(_, column)| column.change == Change::Set);
    set.map(|(value, _)| value).eq(&seen[1..])
}

fn raise(counter: &mut Value, add: i128, name: &str) -> Result<(), Fault> {
    let beyond = || Fault::poison(format!("counter `{name}` would leave its range"));
    match counter {
        Value::Amount(amount) => *amount = amount.checked_add(add).ok_or_else(beyond)?,
        Value::Int(int) => {
            let sum = i128::from(*int).checked_add(add).ok_or_else(beyond)?;
            *int = i64::try_from(sum).map_err(|_| beyond())?;
        }
        Value::Null | Value::Text(_) | Value::Bytes(_) | Value::Key(_) | Value::Time(_) => {
            return Err(Fault::poison(format!(
                "counter `{name}` is neither an integer nor an amount"
            )));
        }
    }
    Ok(())
}

fn decode(row: &SqliteRow, table: &Table, values: &mut Vec<Value>) -> Result<(), Fault> {
    for (at, column) in table.columns.iter().enumerate() {
        values.push(value::read(row, at, column.kind)?);
    }
    Ok(())
}

fn count(rows: u64) -> usize {
    usize::try_from(rows).expect("a statement changes no more rows than were given")
}

#[cfg(test)]
mod tests {
    use semel_core::rows::{Column, Type};

    use super::*;

    static WALLET: Table = Table {
        name: "wallet",
        columns: &[
            Column {
                name: "id",
                kind: Type::Text,
                change: Change::Fixed,
            },
            Column {
                name: "opened",
                kind: Type::Time,
                change: Change::Fixed,
            },
            Column {
                name: "status",
                kind: Type::Int,
                change: Change::Set,
            },
            Column {
                name: "bal\"ance",
                kind: Type::Amount,
                change: Change::Counter,
            },
        ],
    };

    #[test]
    fn the_statements_of_a_table_are_made_of_its_description() {
        let statements = Statements::of(&WALLET);
        assert_eq!(
            statements.update.unwrap().texts().last().unwrap(),
            "UPDATE \"wallet\" SET \"status\" = ?, \"bal\"\"ance\" = ? WHERE \"id\" = ?"
        );
        assert_eq!(statements.bound, [2, 3]);
    }
}
