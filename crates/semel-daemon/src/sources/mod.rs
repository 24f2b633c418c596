//! Sources and sinks as the config names them. One room a type: a new broker is a new room and an arm in each match.

use std::sync::Arc;

use semel_core::source::Positions;
use semel_core::{Fault, Sink, Source};
use semel_file::{FileSource, StdinSource};

use crate::check::Finding;
use crate::config::{self, Consumer, Format, Loaded};
use crate::exit::Failure;

mod absent;
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
    /// Tells the broker what is reached, so that less comes again. What it does not hear comes again as duplicates.
    pub(crate) async fn close(self) {
        match self {
            Self::Drop => {}
            #[cfg(feature = "kafka")]
            Self::Kafka(source) => kafka::close(&source).await,
            #[cfg(feature = "rabbitmq")]
            Self::Rabbitmq(source) => source.close().await,
        }
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
