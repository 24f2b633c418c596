//! `semel parked`: messages that wait in the ledger for something that has not come yet.

use jiff::Timestamp;
use semel_core::Key;
use semel_core::rows::Query;
use serde::Serialize;

use super::{Cells, Statements, consumers, each_row};
use crate::exit::{Exit, Failure};
use crate::out::{self, Style, Table};

/// A parked message as it is printed.
#[derive(Debug, Serialize)]
pub(crate) struct Parked {
    consumer: String,
    #[serde(serialize_with = "hyphenated")]
    pub(crate) key: Key,
    pub(crate) id: Option<String>,
    awaiting: Option<String>,
    attempts: Option<i64>,
    due_at: Option<Timestamp>,
    deadline: Option<Timestamp>,
    /// The lane key that it holds. A message that waits for another holds none: that other one may be in its lane.
    lane: Option<String>,
}

fn hyphenated<S: serde::Serializer>(key: &Key, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(key)
}

impl Parked {
    /// From the columns of `parked_*.sql`.
    pub(crate) fn read(mut cells: Cells<'_>, consumer: &str) -> Option<Self> {
        Some(Self {
            consumer: consumer.to_owned(),
            key: cells.key()?,
            id: cells.text(),
            awaiting: cells.text(),
            attempts: cells.int(),
            due_at: cells.time(),
            deadline: cells.time(),
            lane: None,
        })
    }

    fn cells(&self) -> Vec<String> {
        let time = |at: Option<Timestamp>| at.map_or(String::new(), |at| at.to_string());
        let attempts = self.attempts.unwrap_or_default().to_string();
        let (id, awaiting) = (
            self.id.clone().unwrap_or_default(),
            self.awaiting.clone().unwrap_or_default(),
        );
        vec![
            self.key.to_string(),
            id,
            awaiting,
            attempts,
            time(self.due_at),
            time(self.deadline),
        ]
    }
}

/// Lists parked messages, the next due first.
///
/// # Errors
///
/// The ledger cannot be read, or the consumer is not known.
pub(crate) async fn list(
    ledger: &impl Query,
    sql: &Statements,
    consumer: Option<&str>,
    style: Style,
) -> Result<Exit, Failure> {
    let mut table = Table::new(&["key", "id", "awaiting", "attempts", "due at", "deadline"]);
    for consumer in consumers(ledger, sql, consumer).await? {
        each_row(ledger, sql.parked_list, &[consumer.arg()], |cells| {
            let Some(parked) = Parked::read(cells, &consumer.name) else {
                return Ok(());
            };
            match style {
                Style::Json => out::json(&parked),
                Style::Words => table.add(parked.cells()),
            }
        })
        .await?;
    }
    table.print()?;
    Ok(Exit::Done)
}
