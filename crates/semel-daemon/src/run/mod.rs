//! `semel run`: every consumer of the config at once, until it is told to stop or nothing is left to do.

use std::sync::{Arc, Mutex, PoisonError};

use semel::staged::StagedHandler;
use semel::{Consumer, LaneRule, Ledger, Settings, Summary};
use semel_core::ledger::{ConsumerId, SourceId};
use semel_core::rows::{Query, Register, Rows};
use semel_core::source::Positions;
use semel_core::{Class, Fault, Pointer};
use semel_wallet::Wallet;
use tokio::task::JoinSet;

use crate::cli;
use crate::config::{self, Loaded, Source};
use crate::dialect::Dialect;
use crate::exit::{Exit, Failure};
use crate::http::Port;
use crate::inspect::Statements;
use crate::ledger::{self, Forget, Tables, on_ledger};
use crate::out::Style;
use crate::sources::{self, Begin, Close};
use crate::wallet;

mod outcomes;
mod signals;
mod store;
mod summary;
mod watch;

use outcomes::{Orderly, Outcomes};
use signals::Shutdown;
use store::Asked;
use summary::Report;
use watch::{Metered, Progress, Told, Watch};

/// Runs until shutdown, or until everything is drained.
///
/// # Errors
///
/// The config has errors, the ledger or a source cannot be reached, or going on could damage data.
pub(crate) async fn run(loaded: Loaded, args: &cli::Run, style: Style) -> Result<Exit, Failure> {
    let shutdown = Shutdown::listen()
        .map_err(|error| Failure::new(Exit::Away, format!("signals: {error}")))?;
    let outcomes = args.outcomes.as_deref();
    let outcomes = outcomes.map(|path| Outcomes::open(path, shutdown.clone()));
    let outcomes = outcomes.transpose();
    let outcomes = outcomes.map_err(|error| Failure::usage(format!("--outcomes: {error}")))?;
    let port = match &loaded.config.http {
        Some(http) => Some(Port::open(http).await?),
        None => None,
    };
    let progress = Progress::new(bytes_of_files(&loaded));
    let dialect = ledger::place(&loaded)?.dialect;
    let ledger = ledger::open(&loaded, Tables::Ready).await?;
    let life = Life {
        port: Mutex::new(port),
        loaded,
        begin: Begin::of(args),
        until_idle: args.until_idle,
        outcomes,
        progress,
        shutdown,
    };
    let ended = on_ledger!(ledger, ledger => life.consumers(Arc::new(ledger), dialect).await);
    life.progress.clear();
    let (report, failure) = ended?;
    let printed = report.print(style);
    if let Some(failure) = failure.or_else(|| life.lines_missing()) {
        return Err(failure);
    }
    printed?;
    let exit = if report.fails(&args.fail_on) {
        Exit::No
    } else {
        Exit::Done
    };
    Ok(life.shutdown.exit().unwrap_or(exit))
}

impl Begin {
    fn of(args: &cli::Run) -> Self {
        if args.from_start {
            Self::First
        } else {
            Self::Resume
        }
    }
}

/// The size of all files that are read, where files are all that is read.
fn bytes_of_files(loaded: &Loaded) -> Option<u64> {
    let consumers = loaded.config.consumers.values();
    let names = consumers.flat_map(|consumer| &consumer.sources);
    let mut bytes = 0;
    for name in names {
        let Source::File(file) = loaded.config.sources.get(name)? else {
            return None;
        };
        for path in &file.paths {
            bytes += std::fs::metadata(loaded.path(path)).ok()?.len();
        }
    }
    Some(bytes)
}

/// Why a consumer ended by itself. Once it runs, every stop is one to protect data.
fn stopped(name: &str, fault: &Fault) -> Failure {
    let failure = Failure::fault(&format!("consumer `{name}`"), fault);
    if fault.class == Class::Stop {
        return Failure {
            exit: Exit::Stopped,
            ..failure
        };
    }
    failure
}

/// A consumer by its name, with what closes its sources.
type Ready<L> = (String, (Consumer<L, StagedHandler<Wallet>>, Vec<Close>));

/// One run, as its consumers share it.
struct Life {
    /// For health checks and metrics, if the config has one.
    port: Mutex<Option<Port>>,
    loaded: Loaded,
    begin: Begin,
    until_idle: bool,
    outcomes: Option<Arc<Outcomes>>,
    progress: Progress,
    shutdown: Shutdown,
}

impl Life {
    /// Prepares all consumers before the first of them consumes anything, then runs them. The first that stops to
    /// protect data drains the others.
    async fn consumers<L>(
        &self,
        ledger: Arc<L>,
        dialect: Dialect,
    ) -> Result<(Report, Option<Failure>), Failure>
    where
        L: Ledger + Register + Forget + Query,
        L::Unit: Rows,
    {
        // A FIFO opens when somebody writes to it: told to stop, nobody waits for that.
        let ready = tokio::select! {
            biased;
            () = self.shutdown.told() => return Ok((Report::new([]), None)),
            ready = self.ready(&ledger, dialect) => ready?,
        };
        let board = self.with_port(|port| port.board().clone());
        if let Some(board) = &board {
            board.running(true);
        }
        let mut running = JoinSet::new();
        for (name, (consumer, closes)) in ready {
            let shutdown = self.shutdown.clone();
            running.spawn(async move {
                let (summary, mut fault) = consumer
                    .summed_up(async move { shutdown.told().await })
                    .await;
                for close in closes {
                    let late = close.close().await;
                    fault = fault.or(late);
                }
                (name, (summary, fault))
            });
        }
        if let Some(board) = board {
            let shutdown = self.shutdown.clone();
            tokio::spawn(async move {
                shutdown.told().await;
                board.running(false);
            });
        }
        Ok(self.ended(running).await)
    }

    /// Does something with the port, if there is one.
    fn with_port<T>(&self, act: impl FnOnce(&mut Port) -> T) -> Option<T> {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        port.as_mut().map(act)
    }

    async fn ready<L>(&self, ledger: &Arc<L>, dialect: Dialect) -> Result<Vec<Ready<L>>, Failure>
    where
        L: Ledger + Register + Forget + Query,
        L::Unit: Rows,
    {
        let mut ready = Vec::new();
        for (name, settings) in &self.loaded.config.consumers {
            let prepared = self
                .prepare(name, settings, ledger.clone(), dialect)
                .await?;
            ready.push((name.clone(), prepared));
        }
        if let Some((_, (consumer, _))) = ready.first()
            && let Some(source) = consumer.enrolled().sources.first()
        {
            let asked = Asked {
                ledger: ledger.clone(),
                of: (consumer.enrolled().consumer, *source),
                sql: Statements::of(dialect),
            };
            self.with_port(|port| port.watch_store(asked));
        }
        Ok(ready)
    }

    async fn ended(
        &self,
        mut running: JoinSet<(String, (Summary, Option<Fault>))>,
    ) -> (Report, Option<Failure>) {
        let mut summaries = Vec::new();
        let mut failure = None;
        while let Some(joined) = running.join_next().await {
            match joined {
                Ok((name, (summary, fault))) => {
                    if let Some(fault) = fault {
                        self.shutdown.now();
                        failure = failure.or(Some(stopped(&name, &fault)));
                    }
                    summaries.push((name, summary));
                }
                // A bug: it must not look like a clean end.
                Err(lost) => std::panic::resume_unwind(lost.into_panic()),
            }
        }
        summaries.sort_by(|(one, _), (two, _)| one.cmp(two));
        (Report::new(summaries), failure)
    }

    /// The file of `--outcomes` took no more. What was committed is in the ledger all the same.
    fn lines_missing(&self) -> Option<Failure> {
        let error = self.outcomes.as_ref()?.failed()?;
        Some(Failure::new(
            Exit::Stopped,
            format!(
                "--outcomes: {error}; the run was drained, and lines of what it did last are missing. Nothing else is: \
                 make room and run again; `semel show` tells of each operation, and `--from-start` writes a line for \
                 each line of a file"
            ),
        ))
    }

    /// Enrols a consumer and opens its sources behind the ledger's positions.
    async fn prepare<L>(
        &self,
        name: &str,
        settings: &config::Consumer,
        ledger: Arc<L>,
        dialect: Dialect,
    ) -> Result<(Consumer<L, StagedHandler<Wallet>>, Vec<Close>), Failure>
    where
        L: Ledger + Register + Forget + Query,
        L::Unit: Rows,
    {
        let handler = Arc::new(wallet::registered(name, settings, &*ledger, dialect).await?);
        let sweep = wallet::sweep(name, settings, ledger.clone(), dialect)?;
        let orderly = self
            .outcomes
            .clone()
            .map(|outcomes| Orderly::new(name, &settings.sources, outcomes));
        let told = self.with_port(|port| Told {
            meters: port.meters(name, &settings.sources),
            board: port.board().clone(),
        });
        let watch = Watch::new(name, orderly, self.progress.clone(), told);
        let consumer_name = name;
        let mut consumer = Consumer::builder(name, ledger.clone(), handler)
            .settings(self.settings(settings)?)
            .sources(&settings.sources)
            .observer(Arc::new(watch))
            .sweeper(Arc::new(sweep))
            .enroll()
            .await
            .map_err(|fault| Failure::fault(&format!("consumer `{name}`"), &fault))?;
        let mut closes = Vec::new();
        for (index, name) in settings.sources.iter().enumerate() {
            let positions = consumer.positions(name);
            if self.begin == Begin::First {
                let id = consumer.enrolled().sources[index];
                let of = (consumer.enrolled().consumer, id);
                self.forget_replaced(of, name, &*positions, &*ledger)
                    .await?;
            }
            let opened =
                sources::open(&self.loaded, name, settings, self.begin, positions.clone()).await?;
            if self.with_port(|_| ()).is_some() {
                let pulse = sources::pulse(&self.loaded, name, &opened.close, positions).await?;
                self.with_port(|port| port.watch_source(consumer_name, name, pulse));
            }
            consumer = consumer.attach(
                name,
                Arc::new(Metered::new(opened.source, self.progress.clone())),
            );
            self.progress.skip(opened.skipped);
            closes.push(opened.close);
        }
        Ok((consumer, closes))
    }

    /// Forgets the positions in files that were replaced, now that they are read from their first line.
    async fn forget_replaced(
        &self,
        (consumer, id): (ConsumerId, SourceId),
        source: &str,
        positions: &dyn Positions,
        ledger: &impl Forget,
    ) -> Result<(), Failure> {
        for path in sources::replaced(&self.loaded, source, positions).await? {
            ledger
                .forget(consumer, id, &path)
                .await
                .map_err(|fault| Failure::fault(&format!("source `{source}`"), &fault))?;
        }
        Ok(())
    }

    fn settings(&self, consumer: &config::Consumer) -> Result<Settings, Failure> {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let lane = match consumer.lane.as_str() {
            "auto" => LaneRule::Auto,
            "partition" => LaneRule::Partition,
            "handler" => LaneRule::Handler,
            pointer => LaneRule::Pointer(
                Pointer::parse(pointer).map_err(|error| Failure::usage(error.to_string()))?,
            ),
        };
        Ok(Settings {
            lanes: consumer.lanes,
            lane,
            batch_count_max: usize::try_from(consumer.batch_count_max).unwrap_or(usize::MAX),
            batch_bytes_max: size(consumer.batch_bytes_max),
            memory_bytes_max: size(consumer.memory_bytes_max),
            message_bytes_max: size(consumer.message_bytes_max),
            attempts_max: consumer.attempts_max,
            unit_deadline_ms: consumer.unit_deadline_ms,
            until_idle: self.until_idle,
            ..Settings::default()
        })
    }
}
