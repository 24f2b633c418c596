//! Set-based acts on the user's tables. The statements of a table are made once, from its description; values
//! travel as one array a column.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use semel_core::Fault;
use semel_core::rows::{Change, Column, Delta, Table, Type, Value};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres};

use crate::fault::fault;
use crate::session::Session;
use crate::value::{Cells, read_columns};

mod statement;

/// The statements of each table that was met, by the table's address: descriptions live as long as the program.
#[derive(Default)]
pub(crate) struct Statements(Mutex<HashMap<usize, Arc<Acts>>>);

impl Statements {
    pub(crate) fn of(&self, table: &'static Table) -> Arc<Acts> {
        let address = std::ptr::from_ref(table).addr();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(
            known
                .entry(address)
                .or_insert_with(|| Arc::new(Acts::of(table))),
        )
    }
}

/// The statements of one table.
#[derive(Debug)]
pub(crate) struct Acts {
    pub(crate) read: Arc<str>,
    pub(crate) read_locked: Arc<str>,
    insert: Arc<str>,
    append: Arc<str>,
    /// `None` when nothing in the table ever changes.
    update: Option<Arc<str>>,
    add: Option<Deltas>,
    raise: Option<Deltas>,
}

/// One act on counters, by how many rows it is for.
#[derive(Debug)]
struct Deltas {
    one: Arc<str>,
    few: Arc<str>,
    many: Arc<str>,
}

/// From here on deltas are many.
const MANY: usize = 128;

impl Deltas {
    fn for_rows(&self, rows: usize) -> &Arc<str> {
        match rows {
            0..=1 => &self.one,
            2..MANY => &self.few,
            MANY.. => &self.many,
        }
    }
}

fn query<'q>(sql: &Arc<str>) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(Arc::clone(sql)))
}

/// The rows of `ids`, flat.
pub(crate) async fn read(
    connection: &mut Session,
    sql: Arc<str>,
    table: &'static Table,
    ids: &[Value],
) -> Result<Vec<Value>, Fault> {
    let ids = Cells {
        kind: table.columns[0].kind,
        values: ids,
        width: 1,
        place: 0,
    };
    fetch(connection, query(&sql).bind(ids), table.columns.iter()).await
}

/// The rows of a statement that answers with an array a column, flat.
async fn fetch(
    connection: &mut Session,
    query: Query<'_, Postgres, PgArguments>,
    columns: impl Iterator<Item = &'static Column>,
) -> Result<Vec<Value>, Fault> {
    let row = query.fetch_one(connection).await.map_err(fault)?;
    read_columns(&row, columns)
}

/// Inserts rows; how many went in.
pub(crate) async fn insert(
    connection: &mut Session,
    acts: &Acts,
    table: &'static Table,
    values: &[Value],
) -> Result<usize, Fault> {
    count(
        whole_rows(&acts.insert, table, values)
            .execute(connection)
            .await,
    )
}

/// Inserts rows that are new by construction; none where one of them is there after all, and the transaction
/// waits for its way back then.
pub(crate) async fn append(
    connection: &mut Session,
    acts: &Acts,
    table: &'static Table,
    values: &[Value],
) -> Result<usize, Fault> {
    match whole_rows(&acts.append, table, values)
        .execute(connection)
        .await
    {
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(0),
        done => count(done),
    }
}

fn whole_rows<'q>(
    sql: &Arc<str>,
    table: &'static Table,
    values: &[Value],
) -> Query<'q, Postgres, PgArguments> {
    let mut query = query(sql);
    for (place, column) in table.columns.iter().enumerate() {
        query = query.bind(Cells {
            kind: column.kind,
            values,
            width: table.width(),
            place,
        });
    }
    query
}

/// Sets the changing columns of rows; how many were found.
pub(crate) async fn update(
    connection: &mut Session,
    acts: &Acts,
    table: &'static Table,
    values: &[Value],
) -> Result<usize, Fault> {
    let mut query = query(acts.update.as_ref().ok_or_else(|| fixed(table))?);
    for (place, column) in table.columns.iter().enumerate() {
        if place == 0 || column.change != Change::Fixed {
            query = query.bind(Cells {
                kind: column.kind,
                values,
                width: table.width(),
                place,
            });
        }
    }
    count(query.execute(connection).await)
}

fn count(done: Result<sqlx::postgres::PgQueryResult, sqlx::Error>) -> Result<usize, Fault> {
    done.map(|done| usize::try_from(done.rows_affected()).unwrap_or(usize::MAX))
        .map_err(fault)
}

/// Adds to counters; identities and counters as they are now, flat.
pub(crate) async fn add(
    connection: &mut Session,
    acts: &Acts,
    table: &'static Table,
    deltas: &[Delta],
) -> Result<Vec<Value>, Fault> {
    let query = changes(acts.add.as_ref(), table, deltas)?;
    fetch(connection, query, table.counted_columns()).await
}

/// Adds to counters; how many rows took their delta.
pub(crate) async fn raise(
    connection: &mut Session,
    acts: &Acts,
    table: &'static Table,
    deltas: &[Delta],
) -> Result<usize, Fault> {
    let query = changes(acts.raise.as_ref(), table, deltas)?;
    count(query.execute(connection).await)
}

fn changes<'q>(
    act: Option<&Deltas>,
    table: &'static Table,
    deltas: &[Delta],
) -> Result<Query<'q, Postgres, PgArguments>, Fault> {
    let mut query = query(act.ok_or_else(|| fixed(table))?.for_rows(deltas.len()));
    let seen: Vec<Value> = deltas
        .iter()
        .flat_map(|delta| delta.seen.iter().cloned())
        .collect();
    // What was seen is the identity and the `Set` columns alone, so it is narrower than the table.
    let checked = table
        .columns
        .iter()
        .enumerate()
        .filter(|(place, c)| *place == 0 || c.change == Change::Set);
    let checked: Vec<_> = checked.map(|(_, column)| column.kind).collect();
    for (place, kind) in checked.iter().enumerate() {
        query = query.bind(Cells {
            kind: *kind,
            values: &seen,
            width: checked.len(),
            place,
        });
    }
    for (place, column) in table.counters().enumerate() {
        let kind = table.columns[column].kind;
        let values: Vec<Value> = deltas
            .iter()
            .map(|delta| raised(kind, delta.add[place]))
            .collect::<Result<_, _>>()?;
        query = query.bind(Cells {
            kind,
            values: &values,
            width: 1,
            place: 0,
        });
    }
    Ok(query)
}

fn raised(kind: Type, by: i128) -> Result<Value, Fault> {
    match kind {
        Type::Int => {
            let by = i64::try_from(by)
                .map_err(|_| Fault::poison(format!("{by} does not fit a counter of 64 bits")))?;
            Ok(Value::Int(by))
        }
        Type::Amount | Type::Text | Type::Bytes | Type::Key | Type::Time => Ok(Value::Amount(by)),
    }
}

fn fixed(table: &Table) -> Fault {
    Fault::poison(format!(
        "table `{}` declares no column that changes in this way",
        table.name
    ))
}
