//! Which consumers a command is about: those that the ledger knows, by name.

use semel_core::Fault;
use semel_core::rows::{Query, Value};

use super::{Cells, Statements};
use crate::config::nearest;
use crate::exit::Failure;

/// A consumer of the ledger.
#[derive(Debug, Clone)]
pub(crate) struct Consumer {
    pub(crate) id: i64,
    pub(crate) name: String,
}

impl Consumer {
    /// Its number, as an argument of a statement.
    pub(crate) fn arg(&self) -> Value {
        Value::Int(self.id)
    }
}

/// All consumers, or the one that is named.
///
/// # Errors
///
/// The name is not known, or the ledger cannot be read.
pub(crate) async fn consumers(
    ledger: &impl Query,
    sql: &Statements,
    name: Option<&str>,
) -> Result<Vec<Consumer>, Failure> {
    let all = rows(ledger, sql.consumers, &[], |mut cells| {
        Some(Consumer {
            id: cells.int()?,
            name: cells.text()?,
        })
    })
    .await?;
    let Some(name) = name else { return Ok(all) };
    match all.iter().find(|consumer| consumer.name == name) {
        Some(consumer) => Ok(vec![consumer.clone()]),
        None => {
            let hint = match nearest(name, all.iter().map(|consumer| consumer.name.as_str())) {
                Some(near) => format!(", did you mean `{near}`?"),
                None if all.is_empty() => "; it knows none yet".to_owned(),
                None => format!(
                    "; it knows {}",
                    all.iter()
                        .map(|c| format!("`{}`", c.name))
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            };
            Err(Failure::usage(format!(
                "the ledger knows no consumer `{name}`{hint}"
            )))
        }
    }
}

/// All rows of a statement that has few. A row that cannot be read is left out.
///
/// # Errors
///
/// The ledger cannot be read.
pub(crate) async fn rows<T: Send>(
    ledger: &impl Query,
    sql: &'static str,
    args: &[Value],
    read: impl Fn(Cells<'_>) -> Option<T> + Send + Sync,
) -> Result<Vec<T>, Failure> {
    let mut found = Vec::new();
    let mut each = |row: &[Value]| {
        found.extend(read(Cells::new(row)));
        true
    };
    ledger
        .query(sql, args, &mut each)
        .await
        .map_err(|fault| unreadable(&fault))?;
    Ok(found)
}

/// Gives every row to `print`, without holding more than one.
///
/// # Errors
///
/// The ledger cannot be read, or nobody reads what is printed.
pub(crate) async fn each_row(
    ledger: &impl Query,
    sql: &'static str,
    args: &[Value],
    mut print: impl FnMut(Cells<'_>) -> std::io::Result<()> + Send,
) -> Result<(), Failure> {
    let mut printed = Ok(());
    let mut each = |row: &[Value]| {
        printed = print(Cells::new(row));
        printed.is_ok()
    };
    ledger
        .query(sql, args, &mut each)
        .await
        .map_err(|fault| unreadable(&fault))?;
    Ok(printed?)
}

fn unreadable(fault: &Fault) -> Failure {
    Failure::fault("the ledger cannot be read", fault)
}
