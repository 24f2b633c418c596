//! `semel doctor`: what the ledger, the brokers and the database's server say of each other. It changes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use semel::{Ledger, LedgerPositions};
use semel_core::ledger::{ConsumerId, SourceId};
use semel_core::rows::Query;
use semel_core::source::{NoPositions, Positions};
use serde::Serialize;

use crate::acts::{self, Act};
use crate::check::{self, Code, Finding, Level};
use crate::config::{self, Loaded};
use crate::dialect::Dialect;
use crate::exit::{Exit, Failure};
use crate::inspect::{Statements, rows};
use crate::ledger::{self, Tables, on_ledger};
use crate::out::{self, Style, Table};
use crate::sources;

mod server;

/// What `doctor --json` prints.
#[derive(Debug, Default, Serialize)]
struct Report {
    ok: bool,
    findings: Vec<Finding>,
    positions: Vec<Standing>,
    lives: Vec<Life>,
    acts: Vec<Act>,
}

/// A partition, as the ledger and the source see it. What a source does not have is null.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Standing {
    pub(crate) consumer: String,
    pub(crate) source: String,
    pub(crate) partition: String,
    /// The ledger's position: everything before it is done.
    pub(crate) ledger: Option<u64>,
    /// The broker's: what the group has committed.
    pub(crate) broker: Option<u64>,
    /// The first place that the source still has, and the one behind its last.
    pub(crate) first: Option<u64>,
    pub(crate) end: Option<u64>,
    /// Messages that wait at the broker.
    pub(crate) ready: Option<u64>,
    /// How long the broker keeps messages; null for ever, or where it does not say.
    pub(crate) retention_ms: Option<u64>,
}

/// A process start, as its fence rows show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Life {
    pub(crate) consumer: String,
    pub(crate) lanes: i64,
    pub(crate) seen_at: Option<Timestamp>,
    /// Seen within the last 30 seconds.
    pub(crate) live: bool,
}

/// Where a consumer reads a source, by the ledger's numbers, and who keeps the positions.
pub(crate) struct Reading<'l> {
    pub(crate) consumer: &'l str,
    pub(crate) source: &'l str,
    pub(crate) settings: &'l config::Source,
    pub(crate) numbers: Option<(ConsumerId, SourceId)>,
    pub(crate) positions: Arc<dyn Positions>,
}

/// Looks at everything that the config names.
///
/// # Errors
///
/// The config cannot be read, or the ledger breaks off while it is read.
pub(crate) async fn doctor(path: &Path, style: Style) -> Result<Exit, Failure> {
    let loaded = config::load(path).map_err(|findings| Failure::findings(&findings))?;
    let mut report = Report {
        findings: check::findings(&loaded),
        ..Report::default()
    };
    report.findings.extend(check::connected(&loaded).await);
    let away = |finding: &Finding| {
        matches!(
            finding.code,
            Code::LedgerAway | Code::LedgerSchema | Code::UnknownPooler
        )
    };
    // A ledger that is away, behind a pooler that nobody told of, or not made yet, was told of just now.
    if !report.findings.iter().any(away) && !report.findings.iter().any(bad_url) {
        let dialect = ledger::place(&loaded)?.dialect;
        let ledger = ledger::open(&loaded, Tables::AsTheyAre).await?;
        on_ledger!(ledger, ledger => report.examine(&loaded, Arc::new(ledger), dialect).await?);
    }
    report.ok = !report.findings.iter().any(Finding::is_error);
    let exit = report.exit();
    report.print(style)?;
    Ok(exit)
}

fn bad_url(finding: &Finding) -> bool {
    matches!(finding.code, Code::LedgerUrl | Code::NoFolder)
}

impl Report {
    async fn examine<L: Ledger + Query>(
        &mut self,
        loaded: &Loaded,
        ledger: Arc<L>,
        dialect: Dialect,
    ) -> Result<(), Failure> {
        self.lives = lives(&*ledger, dialect).await?;
        self.acts = acts::newest(&*ledger, dialect).await?;
        for reading in readings(loaded, &ledger, dialect).await? {
            let (places, found) = sources::examine(loaded, &reading).await;
            // What is away was told by the look before.
            let known = |finding: &Finding| {
                let same = |other: &Finding| {
                    other.code == Code::SourceAway && other.place == finding.place
                };
                finding.code == Code::SourceAway && self.findings.iter().any(same)
            };
            let new: Vec<Finding> = found
                .into_iter()
                .filter(|finding| !known(finding))
                .collect();
            self.findings.extend(new);
            self.positions.extend(places);
        }
        self.crashed(loaded);
        if dialect == Dialect::Postgres {
            let running = self.lives.iter().any(|life| life.live);
            let found = server::findings(loaded, &*ledger, running).await?;
            self.findings.extend(found);
        }
        Ok(())
    }

    /// Lives that ended without a goodbye.
    fn crashed(&mut self, loaded: &Loaded) {
        let mut crashed: BTreeMap<&str, (usize, Option<Timestamp>)> = BTreeMap::new();
        for life in self.lives.iter().filter(|life| !life.live) {
            let (count, last) = crashed.entry(&life.consumer).or_default();
            *count += 1;
            *last = life.seen_at.max(*last);
        }
        let found = crashed.into_iter().map(|(consumer, (count, last))| {
            let last = last.map_or_else(|| "?".to_owned(), |last| last.to_string());
            let message = format!(
                "{count} runs of `{consumer}` ended without a goodbye, the last at {last}: a crash, a kill or a power cut. \
                 Nothing is lost or doubled by it; look into the system's log if you do not know why"
            );
            warning(loaded.finding(Code::CrashedLives, &["consumers", consumer], message))
        });
        let found: Vec<Finding> = found.collect();
        self.findings.extend(found);
    }

    /// A part that cannot be reached leaves the answer open; else an error is a no.
    fn exit(&self) -> Exit {
        let errors = || self.findings.iter().filter(|finding| finding.is_error());
        if errors().any(|finding| {
            matches!(
                finding.code,
                Code::LedgerAway | Code::SourceAway | Code::UnknownPooler
            )
        }) {
            Exit::Away
        } else if errors().next().is_some() {
            Exit::No
        } else {
            Exit::Done
        }
    }

    fn print(mut self, style: Style) -> Result<(), Failure> {
        self.findings
            .sort_by_key(|finding| finding.level == Level::Warning);
        if style == Style::Json {
            return Ok(out::json(&self)?);
        }
        if self.findings.is_empty() {
            out::line("all is well")?;
        }
        for finding in &self.findings {
            out::line(&finding.to_string())?;
        }
        let number = |number: Option<u64>| number.map_or_else(String::new, |n| n.to_string());
        let mut table = Table::new(&[
            "consumer",
            "source",
            "partition",
            "ledger",
            "broker",
            "first",
            "end",
            "ready",
        ]);
        for place in self.positions {
            table.add(vec![
                place.consumer,
                place.source,
                place.partition,
                number(place.ledger),
                number(place.broker),
                number(place.first),
                number(place.end),
                number(place.ready),
            ])?;
        }
        table.print()?;
        let running = self.lives.iter().filter(|life| life.live);
        for Life {
            consumer, lanes, ..
        } in running
        {
            out::line(&format!(
                "`{consumer}` was seen running within the last 30 s, with {lanes} lanes"
            ))?;
        }
        for act in &self.acts {
            let at = act.at.map_or_else(|| "?".to_owned(), |at| at.to_string());
            let why = act
                .why
                .as_ref()
                .map_or_else(String::new, |why| format!(" ({why})"));
            out::line(&format!(
                "{at}: {} of `{}` by {}{why}: {}",
                act.act, act.consumer, act.who, act.detail
            ))?;
        }
        Ok(())
    }
}

/// A finding that stops nobody.
pub(crate) fn warning(finding: Finding) -> Finding {
    Finding {
        level: Level::Warning,
        ..finding
    }
}

/// The lives that the ledger's fence rows tell of.
///
/// # Errors
///
/// The ledger cannot be read.
pub(crate) async fn lives(ledger: &impl Query, dialect: Dialect) -> Result<Vec<Life>, Failure> {
    let sql = Statements::of(dialect).lives;
    rows(ledger, sql, &[], |mut cells| {
        Some(Life {
            consumer: cells.text()?,
            lanes: cells.int()?,
            seen_at: cells.time(),
            live: cells.int()? != 0,
        })
    })
    .await
}

/// Every consumer with each of its sources.
///
/// # Errors
///
/// The ledger cannot be read.
pub(crate) async fn readings<'l, L: Ledger + Query>(
    loaded: &'l Loaded,
    ledger: &Arc<L>,
    dialect: Dialect,
) -> Result<Vec<Reading<'l>>, Failure> {
    let sql = Statements::of(dialect).sources;
    let known = rows(&**ledger, sql, &[], |mut cells| {
        let (consumer, source) = (cells.text()?, cells.text()?);
        let consumer_id = ConsumerId(i32::try_from(cells.int()?).ok()?);
        let source_id = SourceId(i16::try_from(cells.int()?).ok()?);
        Some(((consumer, source), (consumer_id, source_id)))
    })
    .await?;
    let known: BTreeMap<(String, String), (ConsumerId, SourceId)> = known.into_iter().collect();
    let mut readings = Vec::new();
    for (consumer, settings) in &loaded.config.consumers {
        for source in &settings.sources {
            let Some(of_source) = loaded.config.sources.get(source) else {
                continue;
            };
            let numbers = known.get(&(consumer.clone(), source.clone())).copied();
            let positions: Arc<dyn Positions> = match numbers {
                Some((consumer, source)) => {
                    Arc::new(LedgerPositions::new(ledger.clone(), consumer, source))
                }
                None => Arc::new(NoPositions),
            };
            readings.push(Reading {
                consumer,
                source,
                settings: of_source,
                numbers,
                positions,
            });
        }
    }
    Ok(readings)
}
