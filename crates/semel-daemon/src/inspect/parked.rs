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
    /// The name of the awaited thing, where the message tells it.
    awaited: Option<String>,
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
        let mut parked = Self {
            consumer: consumer.to_owned(),
            key: cells.key()?,
            id: cells.text(),
            awaiting: cells.text(),
            awaited: None,
            attempts: cells.int(),
            due_at: cells.time(),
            deadline: cells.time(),
            lane: None,
        };
        let awaited = cells.key();
        let content = Content {
            partition: cells.text(),
            message_key: cells.bytes(),
            payload: cells.bytes(),
        };
        parked.awaited = parked
            .awaiting
            .as_deref()
            .and_then(|kind| content.awaited(kind, awaited?));
        parked.lane = lane.and_then(|lane| content.lane_key(lane));
        Some(parked)
    }

    /// What it waits for, by kind and name.
    fn wait(&self) -> String {
        let kind = self.awaiting.as_deref().unwrap_or("?");
        let name = self.awaited.as_ref();
        name.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name}"))
    }

    /// In half a line.
    pub(crate) fn summary(&self) -> String {
        let time = |at: Option<Timestamp>| at.map_or("?".to_owned(), |at| at.to_string());
        let lane = self.lane.as_ref();
        format!(
            "for {}, tried {} times, next at {}, until {}{}",
            self.wait(),
            self.attempts.unwrap_or_default(),
            time(self.due_at),
            time(self.deadline),
            lane.map_or(String::new(), |lane| format!(", from lane {lane}"))
        )
    }

    fn cells(&self) -> Vec<String> {
        let time = |at: Option<Timestamp>| at.map_or(String::new(), |at| at.to_string());
        let attempts = self.attempts.unwrap_or_default().to_string();
        vec![
            self.consumer.clone(),
            self.key.to_string(),
            self.id.clone().unwrap_or_default(),
            self.wait(),
            attempts,
            time(self.due_at),
            time(self.deadline),
            self.lane.clone().unwrap_or_default(),
        ]
    }
}

/// What the ledger keeps of a message, as far as it is looked at here.
struct Content<'c> {
    partition: Option<String>,
    message_key: Option<&'c [u8]>,
    payload: Option<&'c [u8]>,
}

impl Content<'_> {
    /// The lane key of a message by a consumer's `lane`. The handler's own lanes have no text.
    fn lane_key(&self, rule: &str) -> Option<String> {
        match rule {
            "handler" => None,
            "partition" => self.partition.clone(),
            "auto" => match self.message_key {
                Some(key) => Some(encoded(key).0),
                None => self.partition.clone(),
            },
            pointer => {
                let (json, pointer) = (
                    Json::parse(self.payload?).ok()?,
                    Pointer::parse(pointer).ok()?,
                );
                let text = json.at(&pointer)?.text_or_number()?;
                Some(text.to_owned())
            }
        }
    }

    /// The name that the payload has for the awaited thing: the reference with its key, or else the field that is
    /// called as its kind (a player's round has a key of its own).
    fn awaited(&self, kind: &str, key: Key) -> Option<String> {
        let json = Json::parse(self.payload?).ok()?;
        let object = json.object()?;
        let referred = object
            .iter()
            .map(|(_, value)| value)
            .find(|value| Key::of_json(value).is_ok_and(|of| of == key));
        let name = referred.or_else(|| object.get(kind))?;
        name.text_or_number().map(str::to_owned)
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
