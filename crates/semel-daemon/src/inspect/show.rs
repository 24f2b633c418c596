//! `semel show`: all that the ledger knows of one operation.

use std::collections::BTreeMap;

use jiff::Timestamp;
use semel_core::key::KeyRule;
use semel_core::ledger::SightingKind;
use semel_core::rows::{Query, Value};
use semel_core::{Fingerprint, Key, Outcome};
use semel_wallet::OperationView;
use serde::Serialize;
use serde_json::value::RawValue;

use super::consumers::Consumer;
use super::dead::Letter;
use super::parked::Parked;
use super::{Cells, Statements, cells, consumers, rows};
use crate::config::DuplicateReply;
use crate::dialect::Dialect;
use crate::exit::{Exit, Failure};
use crate::key::of_id;
use crate::out::{self, Style};
use crate::{cli, wallet};

/// An operation as it is printed.
#[derive(Debug, Serialize)]
struct Operation {
    consumer: String,
    key: String,
    id: Option<String>,
    outcome: &'static str,
    code: Option<String>,
    awaiting: Option<String>,
    reply: Option<Box<RawValue>>,
    fingerprint: Option<String>,
    source: Option<String>,
    at: Option<Timestamp>,
    parked: Option<Parked>,
    dead: Vec<Letter>,
    sightings: Vec<Sighting>,
    /// What a wallet's applied operation did.
    operation: Option<OperationView>,
}

/// Deliveries after the first.
#[derive(Debug, Serialize)]
struct Sighting {
    source: Option<String>,
    partition: Option<String>,
    position: Option<i64>,
    kind: &'static str,
    count: Option<i64>,
    first_at: Option<Timestamp>,
    at: Option<Timestamp>,
}

/// What the ledger's row says.
struct Row {
    outcome: Outcome,
    code: Option<String>,
    reply: Option<Box<RawValue>>,
    fingerprint: Option<String>,
    source: Option<String>,
    at: Option<Timestamp>,
}

impl Row {
    fn read(mut cells: Cells<'_>) -> Option<Self> {
        let number = i16::try_from(cells.int()?).ok()?;
        Some(Self {
            outcome: Outcome::from_number(number)?,
            code: cells.text(),
            reply: cells.bytes().and_then(cells::reply),
            fingerprint: cells
                .key()
                .map(|bytes| Fingerprint::from_bytes(bytes.into_bytes()).to_string()),
            source: cells.text(),
            at: cells.time(),
        })
    }
}

impl Sighting {
    fn read(mut cells: Cells<'_>) -> Option<Self> {
        const KINDS: [SightingKind; 4] = [
            SightingKind::Duplicate,
            SightingKind::Parked,
            SightingKind::Clash,
            SightingKind::Replay,
        ];
        let (source, partition, position) = (cells.text(), cells.text(), cells.int());
        let number = cells.int()?;
        let kind = KINDS
            .into_iter()
            .find(|kind| i64::from(kind.number()) == number)?;
        let (count, first_at, at) = (cells.int(), cells.time(), cells.time());
        Some(Self {
            source,
            partition,
            position,
            kind: kind.as_str(),
            count,
            first_at,
            at,
        })
    }
}

impl Sighting {
    /// In half a line.
    fn summary(&self) -> String {
        let (kind, count) = (self.kind, self.count.unwrap_or(1));
        let source = self.source.as_deref().unwrap_or("?");
        let mut words = format!("{count} × as {kind}, by source {source}");
        if let Some(partition) = &self.partition {
            words.push_str(&format!(", {partition}"));
        }
        if let Some(position) = self.position {
            words.push_str(&format!(":{position}"));
        }
        match (self.first_at, self.at) {
            (Some(first), Some(last)) if first != last => {
                words.push_str(&format!(", from {first} to {last}"));
            }
            (_, last) => words.push_str(&last.map_or(String::new(), |last| format!(", {last}"))),
        }
        words
    }
}

/// What the config knows of consumers.
#[derive(Debug)]
pub(crate) struct Known {
    /// Their key rules: an id is looked up as the consumer would.
    pub(crate) rules: BTreeMap<String, KeyRule>,
    /// Wallets, which derive the replies of applied operations from their rows.
    pub(crate) replies: BTreeMap<String, DuplicateReply>,
    /// Their lane rules: a parked message tells its lane.
    pub(crate) lanes: BTreeMap<String, String>,
    /// The ledger's dialect.
    pub(crate) dialect: Dialect,
}

/// Shows what every consumer, or the named one, knows of a key or id.
///
/// # Errors
///
/// Nothing is known, or the ledger cannot be read.
pub(crate) async fn show(
    ledger: &impl Query,
    known: &Known,
    args: &cli::Show,
    style: Style,
) -> Result<Exit, Failure> {
    let sql = Statements::of(known.dialect);
    let mut found = false;
    for consumer in consumers(ledger, sql, args.consumer.as_deref()).await? {
        for key in keys(
            ledger,
            sql,
            &consumer,
            known.rules.get(&consumer.name),
            &args.key_or_id,
        )
        .await?
        {
            let Some(mut operation) =
                operation(ledger, known, &consumer, key, &args.key_or_id).await?
            else {
                continue;
            };
            found = true;
            let applied = operation.outcome == Outcome::Applied.as_str();
            if let Some(policy) = known.replies.get(&consumer.name).filter(|_| applied) {
                if operation.reply.is_none() {
                    let derived = wallet::reply(ledger, known.dialect, *policy, key).await?;
                    operation.reply = derived.as_deref().and_then(cells::reply);
                }
                operation.operation = wallet::told(ledger, known.dialect, key).await?;
                let id = operation.operation.as_ref().map(|told| told.id.clone());
                operation.id = operation.id.or(id);
            }
            match style {
                Style::Json => out::json(&operation)?,
                Style::Words => out::text(&operation.words())?,
            }
        }
    }
    if found {
        Ok(Exit::Done)
    } else {
        Err(Failure::no(known.nothing_of(&args.key_or_id)))
    }
}

impl Known {
    /// An id that alone makes no key may be known all the same.
    fn nothing_of(&self, key_or_id: &str) -> String {
        let needs_more = self
            .rules
            .iter()
            .find(|(_, rule)| of_id(Some(rule), key_or_id).is_err());
        let hint = match needs_more {
            Some((consumer, _)) if key_or_id.parse::<Key>().is_err() => {
                format!(
                    "; keys of `{consumer}` are made of more than an id: ask by the key, which `semel key --consumer {consumer} …` computes"
                )
            }
            _ => String::new(),
        };
        format!("nothing is known of `{key_or_id}`{hint}")
    }
}

/// The key that the rule makes of the id; for rules that need more than the id, the keys it was met under.
async fn keys(
    ledger: &impl Query,
    sql: &Statements,
    consumer: &Consumer,
    rule: Option<&KeyRule>,
    key_or_id: &str,
) -> Result<Vec<Key>, Failure> {
    let key = key_or_id.parse::<Key>().ok();
    if let Some(key) = key.filter(|key| !key.is_inner()) {
        return Ok(vec![key]);
    }
    // An id that is spelled as an inner key has another key.
    if let Ok(of_id) = of_id(rule, key_or_id) {
        return Ok(key.into_iter().chain([of_id]).collect());
    }
    let args = [consumer.arg(), Value::Text(key_or_id.into())];
    rows(ledger, sql.keys_of_id, &args, |mut cells| cells.key()).await
}

async fn operation(
    ledger: &impl Query,
    known: &Known,
    consumer: &Consumer,
    key: Key,
    asked: &str,
) -> Result<Option<Operation>, Failure> {
    let sql = Statements::of(known.dialect);
    let args = [consumer.arg(), Value::Key(key)];
    let row = rows(ledger, sql.ledger_row, &args, Row::read).await?.pop();
    let dead = rows(ledger, sql.dead_of_key, &args, |cells| {
        Letter::read(cells, &consumer.name)
    })
    .await?;
    if row.is_none() && dead.is_empty() {
        return Ok(None);
    }
    let parked = rows(ledger, sql.parked_row, &args, |cells| {
        let lane = known.lanes.get(&consumer.name);
        Parked::read(cells, &consumer.name, lane.map(String::as_str))
    })
    .await?
    .pop();
    let sightings = rows(ledger, sql.sightings, &args, Sighting::read).await?;
    let id_asked = asked.parse::<Key>().is_err().then(|| asked.to_owned());
    let id = parked
        .as_ref()
        .and_then(|parked| parked.id.clone())
        .or_else(|| dead.iter().find_map(|letter| letter.id.clone()))
        .or(id_asked);
    // Without a row only dead letters are known: the last one speaks.
    let row = row.unwrap_or_else(|| Row {
        outcome: Outcome::Dead,
        code: dead.last().and_then(|letter| letter.code.clone()),
        reply: None,
        fingerprint: None,
        source: dead.last().and_then(|letter| letter.source.clone()),
        at: dead.last().and_then(|letter| letter.at),
    });
    let (code, awaiting) = if row.outcome == Outcome::Parked {
        (None, row.code)
    } else {
        (row.code, None)
    };
    Ok(Some(Operation {
        consumer: consumer.name.clone(),
        key: key.to_string(),
        id,
        outcome: row.outcome.as_str(),
        code,
        awaiting,
        reply: row.reply,
        fingerprint: row.fingerprint,
        source: row.source,
        at: row.at,
        parked,
        dead,
        sightings,
        operation: None,
    }))
}

impl Operation {
    fn words(&self) -> String {
        let mut words = format!("{} {}", self.consumer, self.key);
        if let Some(id) = &self.id {
            words.push_str(&format!(" ({})", out::value(id)));
        }
        let why = self.code.as_ref().or(self.awaiting.as_ref());
        words.push_str(&format!(
            "\n  {}{}",
            self.outcome,
            why.map_or(String::new(), |why| format!(": {}", out::value(why)))
        ));
        if let Some(at) = self.at {
            words.push_str(&format!(", {at}"));
        }
        if let Some(source) = &self.source {
            words.push_str(&format!(", by source {source}"));
        }
        for line in self.operation.iter().flat_map(wallet::told_words) {
            words.push_str(&format!("\n  {}", out::value(&line)));
        }
        if let Some(reply) = &self.reply {
            words.push_str(&format!("\n  reply {}", out::value(reply.get())));
        }
        if let Some(fingerprint) = &self.fingerprint {
            words.push_str(&format!("\n  fingerprint {fingerprint}"));
        }
        if let Some(parked) = &self.parked {
            words.push_str(&format!("\n  waits {}", out::value(&parked.summary())));
        }
        for letter in &self.dead {
            words.push_str(&format!(
                "\n  dead letter {}",
                out::value(&letter.summary())
            ));
        }
        for sighting in &self.sightings {
            words.push_str(&format!(
                "\n  seen again {}",
                out::value(&sighting.summary())
            ));
        }
        words.push('\n');
        words
    }
}
