//! Sources and sinks as the config names them. One room a type: a new broker is a new room and an arm in each match.

use std::sync::Arc;

use semel_core::source::{BoxFuture, Positions};
use semel_core::{Fault, Sink, Source};
use semel_file::{FileSource, StdinSource};

use crate::check::{Code, Finding};
use crate::cli;
use crate::config::{self, Consumer, Format, Loaded};
use crate::doctor::{Reading, Standing};
use crate::exit::Failure;
use crate::http::{Lag, Pulse};
use crate::rewind::Step;

mod absent;
mod file;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(not(feature = "kafka"))]
use absent as kafka;
mod queue;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(not(feature = "rabbitmq"))]
use absent as rabbitmq;

/// Where file sources begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Behind the ledger's position.
    Resume,
    /// At their first line.
    First,
}

/// A source that was opened, and what says goodbye to its broker.
pub(crate) struct Opened {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) close: Close,
    /// Bytes of files that are behind the position it was opened at.
    pub(crate) skipped: u64,
}

/// How a source is closed when its consumer has ended.
pub(crate) enum Close {
    /// Nobody waits for a goodbye.
    Drop,
    #[cfg(feature = "kafka")]
    Kafka(Arc<semel_kafka::KafkaSource>),
    #[cfg(feature = "rabbitmq")]
    Rabbitmq(Arc<semel_rabbitmq::RabbitSource>),
}

impl Close {
    /// Tells the broker what is reached, so that less comes again. What it does not hear comes again as duplicates. A fault
    /// means that the source was not what it seemed.
    pub(crate) async fn close(self) -> Option<Fault> {
        match self {
            Self::Drop => None,
            #[cfg(feature = "kafka")]
            Self::Kafka(source) => kafka::close(&source).await,
            #[cfg(feature = "rabbitmq")]
            Self::Rabbitmq(source) => {
                source.close().await;
                None
            }
        }
    }
}

/// What tells whether an opened source is there.
///
/// # Errors
///
/// It cannot be made of these settings.
pub(crate) async fn pulse(
    loaded: &Loaded,
    name: &str,
    close: &Close,
    positions: Arc<dyn Positions>,
) -> Result<Arc<dyn Pulse>, Failure> {
    let Some(source) = loaded.config.sources.get(name) else {
        return Err(Failure::usage(format!("there is no source `{name}`")));
    };
    Ok(match (source, close) {
        (config::Source::File(file), _) => Arc::new(file::Paths::new(loaded, file, positions)),
        (config::Source::Queue(queue), _) => queue::pulse(loaded, queue).await?,
        #[cfg(feature = "kafka")]
        (config::Source::Kafka(settings), Close::Kafka(source)) => {
            kafka::pulse(loaded, settings, source.clone())?
        }
        #[cfg(feature = "rabbitmq")]
        (_, Close::Rabbitmq(source)) => Arc::new(rabbitmq::Channel::new(source.clone())),
        (_, _) => Arc::new(Always),
    })
}

/// A source that is always there.
struct Always;

impl Pulse for Always {
    fn beat(&self) -> BoxFuture<'_, Result<Vec<Lag>, String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

impl Opened {
    fn plain(source: impl Source + 'static) -> Self {
        Self {
            source: Arc::new(source),
            close: Close::Drop,
            skipped: 0,
        }
    }
}

/// Opens a source for a consumer, behind the positions that the ledger has for it.
///
/// # Errors
///
/// It cannot be reached, or going on could skip messages.
pub(crate) async fn open(
    loaded: &Loaded,
    name: &str,
    consumer: &Consumer,
    begin: Begin,
    positions: Arc<dyn Positions>,
) -> Result<Opened, Failure> {
    let Some(source) = loaded.config.sources.get(name) else {
        return Err(Failure::usage(format!("there is no source `{name}`")));
    };
    let message_bytes_max = usize::try_from(consumer.message_bytes_max).unwrap_or(usize::MAX);
    let opened = match source {
        config::Source::File(file) => {
            let mut settings = semel_file::Settings::new(&loaded.base, &file.paths);
            settings.format = file.format.map(format);
            settings.start = match begin {
                Begin::Resume => semel_file::Start::Resume,
                Begin::First => semel_file::Start::First,
            };
            settings.message_bytes_max = message_bytes_max;
            FileSource::open(settings, positions)
                .await
                .map(|source| Opened {
                    skipped: source.skipped_bytes(),
                    ..Opened::plain(source)
                })
        }
        config::Source::Stdin(_) => StdinSource::open(message_bytes_max).map(Opened::plain),
        config::Source::Queue(queue) => queue::open(loaded, queue).await?,
        config::Source::Kafka(kafka) => {
            kafka::open(loaded, kafka, message_bytes_max, positions).await?
        }
        config::Source::Rabbitmq(rabbitmq) => {
            rabbitmq::open(loaded, rabbitmq, message_bytes_max, positions).await?
        }
    };
    opened.map_err(|fault| Failure::fault(&format!("source `{name}`"), &fault))
}

/// The files of a source that are not those that the positions were stored for.
///
/// # Errors
///
/// A file cannot be read.
pub(crate) async fn replaced(
    loaded: &Loaded,
    name: &str,
    positions: &dyn Positions,
) -> Result<Vec<String>, Failure> {
    let Some(config::Source::File(file)) = loaded.config.sources.get(name) else {
        return Ok(Vec::new());
    };
    let settings = semel_file::Settings::new(&loaded.base, &file.paths);
    FileSource::replaced(&settings, positions)
        .await
        .map_err(|fault| Failure::fault(&format!("source `{name}`"), &fault))
}

fn format(format: Format) -> semel_file::Format {
    match format {
        Format::Jsonl => semel_file::Format::JsonLines,
        Format::Csv => semel_file::Format::Csv,
    }
}

/// What the ledger and a source say of each of its partitions, for `doctor`.
pub(crate) async fn examine(
    loaded: &Loaded,
    reading: &Reading<'_>,
) -> (Vec<Standing>, Vec<Finding>) {
    match reading.settings {
        config::Source::File(settings) => file::examine(loaded, reading, settings).await,
        config::Source::Kafka(settings) => kafka::examine(loaded, reading, settings).await,
        config::Source::Rabbitmq(settings) => rabbitmq::examine(loaded, reading, settings).await,
        config::Source::Queue(settings) => queue::examine(loaded, reading, settings).await,
        config::Source::Stdin(_) => (Vec::new(), Vec::new()),
    }
}

/// What a rewind would set back, partition by partition.
///
/// # Errors
///
/// The place is none to go back to, or the source is away.
pub(crate) async fn steps(
    loaded: &Loaded,
    reading: &Reading<'_>,
    args: &cli::Rewind,
) -> Result<Vec<Step>, Failure> {
    match reading.settings {
        config::Source::File(settings) => file::steps(reading, settings, args).await,
        config::Source::Kafka(settings) => kafka::steps(loaded, reading, settings, args).await,
        config::Source::Rabbitmq(_) | config::Source::Queue(_) | config::Source::Stdin(_) => {
            Ok(Vec::new())
        }
    }
}

/// Sets the broker's own positions back.
///
/// # Errors
///
/// The broker is away, or the group has running members.
pub(crate) async fn set_back(
    loaded: &Loaded,
    reading: &Reading<'_>,
    steps: &[Step],
) -> Result<(), Failure> {
    match reading.settings {
        config::Source::Kafka(settings) => kafka::set_back(loaded, settings, steps).await,
        config::Source::File(_)
        | config::Source::Rabbitmq(_)
        | config::Source::Queue(_)
        | config::Source::Stdin(_) => Ok(()),
    }
}

/// Those of a source's partitions that a rewind is about.
fn wanted<'p>(
    partitions: impl Iterator<Item = &'p str>,
    args: &cli::Rewind,
) -> Result<Vec<&'p str>, Failure> {
    let mut all: Vec<&str> = partitions.collect();
    let Some(wanted) = &args.partition else {
        return Ok(all);
    };
    let hint = config::nearest(wanted, all.iter().copied());
    let hint = hint.map_or(String::new(), |near| format!(", did you mean `{near}`?"));
    all.retain(|partition| partition == wanted);
    if all.is_empty() {
        return Err(Failure::usage(format!(
            "`{}` has no partition `{wanted}`{hint}",
            args.source
        )));
    }
    Ok(all)
}

/// A source that did not answer.
fn away(loaded: &Loaded, reading: &Reading<'_>, why: String) -> Finding {
    loaded.finding(Code::SourceAway, &["sources", reading.source], why)
}

/// Opens a source as a sink.
///
/// # Errors
///
/// It is no sink, or cannot be reached.
pub(crate) async fn sink(loaded: &Loaded, name: &str) -> Result<Arc<dyn Sink>, Failure> {
    let known = &loaded.config.sources;
    let Some(source) = known.get(name) else {
        let hint = config::nearest(name, known.keys().map(String::as_str));
        let hint = hint.map_or(String::new(), |near| format!(", did you mean `{near}`?"));
        return Err(Failure::usage(format!(
            "the config has no source or sink `{name}`{hint}"
        )));
    };
    let opened: Result<Arc<dyn Sink>, Fault> = match source {
        config::Source::Queue(queue) => queue::sink(loaded, queue).await?,
        config::Source::Kafka(kafka) => kafka::sink(loaded, kafka).await?,
        config::Source::Rabbitmq(rabbitmq) => rabbitmq::sink(loaded, rabbitmq).await?,
        config::Source::File(_) | config::Source::Stdin(_) => {
            let message = format!(
                "`sources.{name}` is of type `{}`, which cannot be published to; a queue can",
                source.kind()
            );
            return Err(Failure::usage(message));
        }
    };
    opened.map_err(|fault| Failure::fault(&format!("sink `{name}`"), &fault))
}

/// What is wrong with a source's settings, without a look at its broker.
pub(crate) fn findings(
    loaded: &Loaded,
    name: &str,
    source: &config::Source,
    unit_deadline_ms: u64,
) -> Vec<Finding> {
    match source {
        config::Source::Kafka(kafka) => kafka::findings(loaded, name, kafka, unit_deadline_ms),
        config::Source::Rabbitmq(rabbitmq) => {
            rabbitmq::findings(loaded, name, rabbitmq, unit_deadline_ms)
        }
        config::Source::File(_) | config::Source::Stdin(_) | config::Source::Queue(_) => Vec::new(),
    }
}

/// Tries to reach a broker, and changes nothing there.
///
/// # Errors
///
/// What a start would fail with.
pub(crate) async fn try_to_reach(loaded: &Loaded, source: &config::Source) -> Result<(), String> {
    match source {
        config::Source::Kafka(kafka) => kafka::try_to_reach(loaded, kafka).await,
        config::Source::Rabbitmq(rabbitmq) => rabbitmq::try_to_reach(loaded, rabbitmq).await,
        config::Source::File(_) | config::Source::Stdin(_) | config::Source::Queue(_) => Ok(()),
    }
}
