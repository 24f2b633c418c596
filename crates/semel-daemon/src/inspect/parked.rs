//! `semel parked`: messages that wait in the ledger for something that has not come yet.

use std::collections::BTreeMap;

use jiff::Timestamp;
use semel_core::json::Json;
use semel_core::rows::Query;
use semel_core::{Key, Pointer};
use serde::Serialize;

use super::cells::encoded;
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
    /// The lane that it came by: its key, where the config's rule makes one of what the ledger keeps.
    lane: Option<String>,
}

fn hyphenated<S: serde::Serializer>(key: &Key, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(key)
}

impl Parked {
    /// From the columns of `parked_*.sql`.
    pub(crate) fn read(mut cells: Cells<'_>, consumer: &str, lane: Option<&str>) -> Option<Self> {
        Some(Self {
            consumer: consumer.to_owned(),
            key: cells.key()?,
            id: cells.text(),
            awaiting: cells.text(),
            attempts: cells.int(),
            due_at: cells.time(),
            deadline: cells.time(),
            lane: lane.and_then(|lane| lane_key(lane, cells)),
        })
    }

    /// In half a line.
    pub(crate) fn summary(&self) -> String {
        let time = |at: Option<Timestamp>| at.map_or("?".to_owned(), |at| at.to_string());
        let lane = self.lane.as_ref();
        format!(
            "for {}, tried {} times, next at {}, until {}{}",
            self.awaiting.as_deref().unwrap_or("?"),
            self.attempts.unwrap_or_default(),
            time(self.due_at),
            time(self.deadline),
            lane.map_or(String::new(), |lane| format!(", from lane {lane}"))
        )
    }

    fn cells(&self) -> Vec<String> {
        let time = |at: Option<Timestamp>| at.map_or(String::new(), |at| at.to_string());
        let attempts = self.attempts.unwrap_or_default().to_string();
        let (id, awaiting) = (
            self.id.clone().unwrap_or_default(),
            self.awaiting.clone().unwrap_or_default(),
        );
        vec![
            self.consumer.clone(),
            self.key.to_string(),
            id,
            awaiting,
            attempts,
            time(self.due_at),
            time(self.deadline),
            self.lane.clone().unwrap_or_default(),
        ]
    }
}

/// The lane key of a message by a consumer's `lane`, from its columns partition, message key and payload. The
/// handler's own lanes have no text.
fn lane_key(rule: &str, mut cells: Cells<'_>) -> Option<String> {
    let (partition, message_key, payload) = (cells.text(), cells.bytes(), cells.bytes());
    match rule {
        "handler" => None,
        "partition" => partition,
        "auto" => match message_key {
            Some(key) => Some(encoded(key).0),
            None => partition,
        },
        pointer => {
            let (json, pointer) = (Json::parse(payload?).ok()?, Pointer::parse(pointer).ok()?);
            let text = json.at(&pointer)?.text_or_number()?;
            Some(text.to_owned())
        }
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
    lanes: &BTreeMap<String, String>,
    style: Style,
) -> Result<Exit, Failure> {
    let mut table = Table::new(&[
        "consumer", "key", "id", "awaiting", "attempts", "due at", "deadline", "lane",
    ]);
    for consumer in consumers(ledger, sql, consumer).await? {
        let lane = lanes.get(&consumer.name).map(String::as_str);
        each_row(ledger, sql.parked_list, &[consumer.arg()], |cells| {
            let Some(parked) = Parked::read(cells, &consumer.name, lane) else {
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
