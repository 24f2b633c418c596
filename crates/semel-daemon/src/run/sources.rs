//! Opens the sources that the config names. One arm a type: a new broker is a new arm.

use std::sync::Arc;

use semel_core::source::Positions;
use semel_core::{Fault, Sink, Source};
use semel_file::{FileSource, StdinSource};
use semel_postgres::PostgresQueue;
use semel_sqlite::SqliteQueue;

use crate::config::{self, Consumer, Format, Loaded, Queue};
use crate::dialect::Dialect;
use crate::exit::Failure;
use crate::ledger::{Place, Tables};

/// Where file sources begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Behind the ledger's position.
    Resume,
    /// At their first line.
    First,
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
) -> Result<Arc<dyn Source>, Failure> {
    let Some(source) = loaded.config.sources.get(name) else {
        return Err(Failure::usage(format!("there is no source `{name}`")));
    };
    let message_bytes_max = usize::try_from(consumer.message_bytes_max).unwrap_or(usize::MAX);
    let opened = match source {
        config::Source::File(file) => {
            let mut settings = semel_file::Settings::new(&loaded.base, &file.paths);
            settings.format = file.format.map(|format| match format {
                Format::Jsonl => semel_file::Format::JsonLines,
                Format::Csv => semel_file::Format::Csv,
            });
            settings.start = match begin {
                Begin::Resume => semel_file::Start::Resume,
                Begin::First => semel_file::Start::First,
            };
            settings.message_bytes_max = message_bytes_max;
            FileSource::open(settings, positions).await.map(|source| Arc::new(source) as Arc<dyn Source>)
        }
        config::Source::Stdin(_) => StdinSource::open(message_bytes_max).map(|source| Arc::new(source) as Arc<dyn Source>),
        config::Source::Queue(queue) => self::queue(loaded, queue).await?.map(|queue| match queue {
            AnyQueue::Sqlite(queue) => Arc::new(queue) as Arc<dyn Source>,
            AnyQueue::Postgres(queue) => Arc::new(queue),
        }),
        config::Source::Kafka(_) | config::Source::Rabbitmq(_) => return Err(not_in_this_build(name, source)),
    };
    opened.map_err(|fault| Failure::fault(&format!("source `{name}`"), &fault))
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
        return Err(Failure::usage(format!("the config has no source or sink `{name}`{hint}")));
    };
    let opened = match source {
        config::Source::Queue(queue) => self::queue(loaded, queue).await?.map(|queue| match queue {
            AnyQueue::Sqlite(queue) => Arc::new(queue) as Arc<dyn Sink>,
            AnyQueue::Postgres(queue) => Arc::new(queue),
        }),
        config::Source::File(_) | config::Source::Stdin(_) => {
            let message = format!("`sources.{name}` is of type `{}`, which cannot be published to; a queue can", source.kind());
            return Err(Failure::usage(message));
        }
        config::Source::Kafka(_) | config::Source::Rabbitmq(_) => return Err(not_in_this_build(name, source)),
    };
    opened.map_err(|fault| Failure::fault(&format!("sink `{name}`"), &fault))
}

fn not_in_this_build(name: &str, source: &config::Source) -> Failure {
    Failure::usage(format!("`sources.{name}`: sources of type `{}` are not in this build", source.kind()))
}

enum AnyQueue {
    Sqlite(SqliteQueue),
    Postgres(PostgresQueue),
}

async fn queue(loaded: &Loaded, queue: &Queue) -> Result<Result<AnyQueue, Fault>, Failure> {
    let settings = &loaded.config.ledger;
    let place = Place::of(queue.url.as_ref().unwrap_or(&settings.url), &loaded.base)?;
    let visibility_ms = queue.lease_ms;
    Ok(match place.dialect {
        Dialect::Sqlite => {
            let file = place.sqlite(settings, Tables::Ready);
            let options = semel_sqlite::QueueOptions {
                visibility_ms,
                busy_timeout_ms: file.busy_timeout_ms,
                ..semel_sqlite::QueueOptions::new(file.url, &queue.name)
            };
            SqliteQueue::open(options).await.map(AnyQueue::Sqlite)
        }
        Dialect::Postgres => {
            let lease = semel_postgres::QueueOptions { visibility_ms };
            PostgresQueue::open(place.postgres(settings, Tables::Ready), &queue.name, lease).await.map(AnyQueue::Postgres)
        }
    })
}
