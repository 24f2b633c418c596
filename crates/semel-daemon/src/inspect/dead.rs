//! `semel dead`: messages that could never be handled, with why.

use jiff::Timestamp;
use semel_core::Key;
use semel_core::rows::{Query, Value};
use serde::Serialize;

use super::cells::{Encoding, Header, encoded, headers};
use super::{Cells, Statements, consumers, each_row, rows};
use crate::exit::{Exit, Failure};
use crate::out::{self, Style, Table};

/// A dead letter as it is printed.
#[derive(Debug, Serialize)]
pub(crate) struct Letter {
    letter: String,
    consumer: String,
    key: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) code: Option<String>,
    detail: Option<String>,
    field: Option<String>,
    attempts: Option<i64>,
    count: Option<i64>,
    pub(crate) source: Option<String>,
    partition: Option<String>,
    position: Option<i64>,
    headers: Vec<Header>,
    payload: Option<String>,
    payload_encoding: Option<Encoding>,
    size: Option<i64>,
    first_at: Option<Timestamp>,
    pub(crate) at: Option<Timestamp>,
}

impl Letter {
    /// From the columns of `dead_*.sql`.
    pub(crate) fn read(mut cells: Cells<'_>, consumer: &str) -> Option<Self> {
        let letter = cells.key()?.to_string();
        let (key, id, code, detail) = (cells.key(), cells.text(), cells.text(), cells.text());
        let (field, attempts, count, source) =
            (cells.text(), cells.int(), cells.int(), cells.text());
        let (partition, position) = (cells.text(), cells.int());
        let headers = cells.bytes().map(headers).unwrap_or_default();
        let (payload, payload_encoding) = cells.bytes().map(encoded).unzip();
        Some(Self {
            letter,
            consumer: consumer.to_owned(),
            key: key.map(|key| key.to_string()),
            id,
            code,
            detail,
            field,
            attempts,
            count,
            source,
            partition,
            position,
            headers,
            payload,
            payload_encoding,
            size: cells.int(),
            first_at: cells.time(),
            at: cells.time(),
        })
    }

    /// In half a line.
    pub(crate) fn summary(&self) -> String {
        let (code, detail) = (
            self.code.as_deref().unwrap_or("?"),
            self.detail.as_deref().unwrap_or_default(),
        );
        format!(
            "{}: {code} × {}, {detail}",
            self.letter,
            self.count.unwrap_or(1)
        )
    }

    fn cells(&self) -> Vec<String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let place = match (&self.partition, self.position) {
            (Some(partition), Some(position)) => format!("{partition}:{position}"),
            (partition, _) => partition.clone().unwrap_or_default(),
        };
        let number =
            |number: Option<i64>| number.map_or(String::new(), |number| number.to_string());
        vec![
            self.letter.clone(),
            self.consumer.clone(),
            text(&self.code),
            text(&self.id),
            text(&self.key),
            text(&self.source),
            place,
            number(self.attempts),
            number(self.count),
            self.at.map_or(String::new(), |at| at.to_string()),
            text(&self.field),
            text(&self.detail),
        ]
    }

    /// All of it, a line a fact.
    fn words(&self) -> String {
        let mut words = String::new();
        let mut fact = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                words.push_str(&format!("{name:<10}{}\n", out::value(&value)));
            }
        };
        fact("letter", Some(self.letter.clone()));
        fact("consumer", Some(self.consumer.clone()));
        fact("code", self.code.clone());
        fact("detail", self.detail.clone());
        fact("field", self.field.clone());
        fact("key", self.key.clone());
        fact("id", self.id.clone());
        let position = self
            .position
            .map_or(String::new(), |position| format!(", position {position}"));
        fact(
            "from",
            Some(format!(
                "{}, {}{position}",
                self.source.as_deref().unwrap_or("?"),
                self.partition.as_deref().unwrap_or("?")
            )),
        );
        fact(
            "attempts",
            self.attempts.map(|attempts| attempts.to_string()),
        );
        fact("count", self.count.map(|count| count.to_string()));
        fact("first at", self.first_at.map(|at| at.to_string()));
        fact("last at", self.at.map(|at| at.to_string()));
        self.headers
            .iter()
            .for_each(|header| fact("header", Some(header.words())));
        fact("size", self.size.map(|size| format!("{size} bytes")));
        if self.payload_encoding == Some(Encoding::Base64) {
            fact("encoding", Some("base64".to_owned()));
        }
        fact(
            "payload",
            Some(self.payload.clone().unwrap_or_else(|| "null".to_owned())),
        );
        words
    }
}

/// Lists dead letters, oldest first.
///
/// # Errors
///
/// The ledger cannot be read, or the consumer is not known.
pub(crate) async fn list(
    ledger: &impl Query,
    sql: &Statements,
    consumer: Option<&str>,
    code: Option<&str>,
    style: Style,
) -> Result<Exit, Failure> {
    let code = Value::Text(code.unwrap_or_default().into());
    let mut table = Table::new(&[
        "letter", "consumer", "code", "id", "key", "source", "place", "attempts", "count", "at",
        "field", "detail",
    ]);
    for consumer in consumers(ledger, sql, consumer).await? {
        each_row(
            ledger,
            sql.dead_list,
            &[consumer.arg(), code.clone()],
            |cells| {
                let Some(letter) = Letter::read(cells, &consumer.name) else {
                    return Ok(());
                };
                match style {
                    Style::Json => out::json(&letter),
                    Style::Words => table.add(letter.cells()),
                }
            },
        )
        .await?;
    }
    table.print()?;
    Ok(Exit::Done)
}

/// Shows one dead letter.
///
/// # Errors
///
/// There is none with this id, or the ledger cannot be read.
pub(crate) async fn show(
    ledger: &impl Query,
    sql: &Statements,
    letter: &str,
    style: Style,
) -> Result<Exit, Failure> {
    let id: Key = letter.parse().map_err(|_| {
        Failure::no(format!(
            "`{letter}` is no letter's id; `semel dead list` prints them"
        ))
    })?;
    for consumer in consumers(ledger, sql, None).await? {
        let args = [consumer.arg(), Value::Key(id)];
        let found = rows(ledger, sql.dead_letter, &args, |cells| {
            Letter::read(cells, &consumer.name)
        })
        .await?;
        if let Some(letter) = found.first() {
            match style {
                Style::Json => out::json(letter)?,
                Style::Words => out::text(&letter.words())?,
            }
            return Ok(Exit::Done);
        }
    }
    Err(Failure::no(format!("there is no dead letter {id}")))
}
