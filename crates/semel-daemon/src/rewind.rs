//! `semel rewind`: a source is read again, from the ledger's position or from a place that the operator names. What the
//! ledger knows comes out as duplicates, so to go back too far is safe; to skip is not, and is refused.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;

use semel_core::ledger::{ConsumerId, SourceId};
use semel_core::rows::{Query, Register, Value};
use serde::Serialize;

use crate::acts::{self, By};
use crate::cli;
use crate::config::{self, Loaded, Source};
use crate::dialect::Dialect;
use crate::doctor::{Reading, lives, readings};
use crate::exit::{Exit, Failure};
use crate::inspect::Statements;
use crate::ledger::{self, Forget, Tables, on_ledger};
use crate::out::{self, Style};
use crate::sources;

/// What `rewind --json` prints.
#[derive(Debug, Serialize)]
struct Report<'p> {
    consumer: &'p str,
    source: &'p str,
    done: bool,
    steps: &'p [Step],
}

/// What is set back for one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Step {
    pub(crate) partition: String,
    /// The ledger's position.
    pub(crate) ledger: Option<Move>,
    /// The broker's.
    pub(crate) broker: Option<Move>,
}

/// From one place to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Move {
    pub(crate) from: Option<u64>,
    pub(crate) to: u64,
}

impl Step {
    fn words(&self) -> String {
        let place = |place: Option<u64>| place.map_or_else(|| "none".to_owned(), |n| n.to_string());
        let moved = |whose, step: &Option<Move>| {
            step.map(|step| format!("{whose} position from {} to {}", place(step.from), step.to))
        };
        let moves = [
            moved("the ledger's", &self.ledger),
            moved("the broker's", &self.broker),
        ];
        let moves: Vec<String> = moves.into_iter().flatten().collect();
        format!("{}: {}", self.partition, moves.join(", "))
    }
}

/// Rewinds, or says what that would do.
///
/// # Errors
///
/// The source cannot be read again, an instance is running, or the ledger or the broker is away.
pub(crate) async fn rewind(
    loaded: &Loaded,
    args: &cli::Rewind,
    style: Style,
) -> Result<Exit, Failure> {
    let consumer = reader(loaded, args)?;
    let dialect = ledger::place(loaded)?.dialect;
    let ledger = ledger::open(loaded, Tables::AsTheyAre).await?;
    on_ledger!(ledger, ledger => {
        let ledger = Arc::new(ledger);
        let readings = readings(loaded, &ledger, dialect).await?;
        let reading = readings
            .into_iter()
            .find(|reading| reading.consumer == consumer && reading.source == args.source);
        let Some(reading) = reading else {
            return Err(Failure::usage(format!("`{consumer}` does not read `{}`", args.source)));
        };
        still(&*ledger, consumer, dialect).await?;
        one(loaded, &*ledger, dialect, &reading, args, style).await
    })
}

/// The consumer that reads the source, if it is one.
fn reader<'l>(loaded: &'l Loaded, args: &'l cli::Rewind) -> Result<&'l str, Failure> {
    let source = &args.source;
    let known = &loaded.config.sources;
    let Some(settings) = known.get(source) else {
        let hint = config::nearest(source, known.keys().map(String::as_str));
        let hint = hint.map_or(String::new(), |near| format!(", did you mean `{near}`?"));
        return Err(Failure::usage(format!(
            "the config has no source `{source}`{hint}"
        )));
    };
    if matches!(
        settings,
        Source::Queue(_) | Source::Rabbitmq(_) | Source::Stdin(_)
    ) {
        return Err(Failure::usage(format!(
            "`sources.{source}` is of type `{}`, which cannot be read again: what was acked is gone there. Publish it again from its sender; \
             what the ledger knows comes out as duplicates",
            settings.kind()
        )));
    }
    let reads = |settings: &config::Consumer| settings.sources.contains(source);
    let readers: Vec<&str> = loaded
        .config
        .consumers
        .iter()
        .filter(|(_, settings)| reads(settings))
        .map(|(name, _)| name.as_str())
        .collect();
    match (&args.consumer, &readers[..]) {
        (Some(name), _) => Ok(name),
        (None, [one]) => Ok(one),
        (None, []) => Err(Failure::usage(format!("no consumer reads `{source}`"))),
        (None, several) => Err(Failure::usage(format!(
            "`{source}` is read by {}; name one with --consumer",
            several.join(", ")
        ))),
    }
}

/// Nobody may read on while positions are set back.
async fn still(ledger: &impl Query, consumer: &str, dialect: Dialect) -> Result<(), Failure> {
    let lives = lives(ledger, dialect).await?;
    if lives
        .iter()
        .any(|life| life.live && life.consumer == consumer)
    {
        return Err(Failure::new(
            Exit::Stopped,
            format!(
                "`{consumer}` is running, or ended without a goodbye less than 30 seconds ago: stop every instance, wait, then rewind"
            ),
        ));
    }
    Ok(())
}

async fn one<L: Register + Forget>(
    loaded: &Loaded,
    ledger: &L,
    dialect: Dialect,
    reading: &Reading<'_>,
    args: &cli::Rewind,
    style: Style,
) -> Result<Exit, Failure> {
    let steps = sources::steps(loaded, reading, args).await?;
    let done = !steps.is_empty() && !args.dry_run;
    if done {
        confirmed(&steps, args)?;
        for step in &steps {
            note(ledger, dialect, reading, step, args).await?;
            set_back(ledger, dialect, reading, step).await?;
        }
        // The ledger first: broken off in between, the broker is ahead, and the next try goes on.
        sources::set_back(loaded, reading, &steps).await?;
    }
    let report = Report {
        consumer: reading.consumer,
        source: reading.source,
        done,
        steps: &steps,
    };
    match style {
        Style::Json => out::json(&report)?,
        Style::Words if steps.is_empty() => {
            out::line("nothing to set back: the next run reads on from the ledger's position")?
        }
        Style::Words => {
            let verb = if done { "set back" } else { "would set back" };
            for step in &steps {
                out::line(&format!("{verb} {}", step.words()))?;
            }
        }
    }
    Ok(Exit::Done)
}

/// An operator at a terminal is asked; a script says `--yes`.
fn confirmed(steps: &[Step], args: &cli::Rewind) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "nothing was changed: look with --dry-run, then say --yes",
        ));
    }
    for step in steps {
        out::say(&format!("would set back {}", step.words()));
    }
    let _ = write!(std::io::stderr(), "go on? [y/N] ");
    let mut answer = String::new();
    // No answer is a no.
    let _ = std::io::stdin().lock().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::no("nothing was changed"))
    }
}

/// What the record says of a step.
#[derive(Debug, Serialize)]
struct Noted<'s> {
    source: &'s str,
    #[serde(flatten)]
    step: &'s Step,
}

async fn note(
    ledger: &impl Register,
    dialect: Dialect,
    reading: &Reading<'_>,
    step: &Step,
    args: &cli::Rewind,
) -> Result<(), Failure> {
    let Some((consumer, _)) = reading.numbers else {
        return Err(Failure::usage(format!(
            "the ledger does not know `{}` yet, so a rewind could not be noted: start `semel run` once (it may stop, and nothing is handed out then), and \
             rewind after it",
            reading.consumer
        )));
    };
    let by = By::new(args.who.as_deref(), args.why.as_deref());
    let noted = Noted {
        source: reading.source,
        step,
    };
    acts::note(ledger, dialect, consumer, "rewind", &by, &noted).await
}

async fn set_back<L: Register + Forget>(
    ledger: &L,
    dialect: Dialect,
    reading: &Reading<'_>,
    step: &Step,
) -> Result<(), Failure> {
    let (Some(moved), Some((consumer, source))) = (step.ledger, reading.numbers) else {
        return Ok(());
    };
    let (ConsumerId(consumer_number), SourceId(source_number)) = (consumer, source);
    let failed = |fault| Failure::fault("the ledger's position was not set back", &fault);
    if matches!(reading.settings, Source::File(_)) {
        let forgotten = ledger.forget(consumer, source, &step.partition).await;
        return forgotten.map_err(failed);
    }
    let args = [
        Value::Int(consumer_number.into()),
        Value::Int(source_number.into()),
        Value::Text(step.partition.as_str().into()),
        Value::Int(i64::try_from(moved.to).unwrap_or(i64::MAX)),
    ];
    let sql = Statements::of(dialect).position_set;
    ledger.register(sql, &args).await.map_err(failed)
}
