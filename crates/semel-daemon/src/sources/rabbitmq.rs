//! RabbitMQ as the config has it.

use std::sync::Arc;

use semel_core::source::{BoxFuture, Positions};
use semel_core::{Fault, Sink};
use semel_rabbitmq::{RabbitOptions, RabbitSink, RabbitSinkOptions, RabbitSource};

use super::{Close, Opened};
use crate::check::{Code, Finding, Level};
use crate::config::{Declare, Loaded, Rabbitmq};
use crate::doctor::{Reading, Standing};
use crate::exit::Failure;
use crate::http::{Lag, Pulse};

fn options(
    loaded: &Loaded,
    settings: &Rabbitmq,
    url: String,
    message_bytes_max: usize,
) -> RabbitOptions {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    RabbitOptions {
        prefetch: settings.prefetch,
        prefetch_bytes_max: size(settings.prefetch_bytes_max),
        message_bytes_max,
        header_bytes_max: size(settings.header_bytes_max),
        declare: match settings.declare {
            Declare::Passive => semel_rabbitmq::Declare::Passive,
            Declare::Quorum => semel_rabbitmq::Declare::Quorum,
            Declare::Classic => semel_rabbitmq::Declare::Classic,
        },
        dead_letter_exchange: settings.dead_letter_exchange.clone(),
        delivery_limit: settings.delivery_limit,
        idle_ms: settings.idle_ms,
        liveness_ms: settings.liveness_ms,
        consumer_timeout_ms: settings.consumer_timeout_ms,
        connect_timeout_ms: settings.connect_timeout_ms,
        heartbeat_s: settings.heartbeat_s,
        tls: tls(loaded, settings),
        connection_name: settings.connection_name.clone(),
        ..RabbitOptions::new(url, &settings.queue)
    }
}

fn tls(loaded: &Loaded, settings: &Rabbitmq) -> semel_rabbitmq::Tls {
    let path = |file: &Option<String>| file.as_ref().map(|file| loaded.path(file));
    settings
        .tls
        .as_ref()
        .map_or_else(Default::default, |tls| semel_rabbitmq::Tls {
            ca_file: path(&tls.ca_file),
            cert_file: path(&tls.cert_file),
            key_file: path(&tls.key_file),
        })
}

fn url(loaded: &Loaded, settings: &Rabbitmq) -> Result<String, Failure> {
    settings.url.reveal(&loaded.base).map_err(Failure::usage)
}

pub(super) async fn open(
    loaded: &Loaded,
    settings: &Rabbitmq,
    message_bytes_max: usize,
    _: Arc<dyn Positions>,
) -> Result<Result<Opened, Fault>, Failure> {
    let options = options(loaded, settings, url(loaded, settings)?, message_bytes_max);
    Ok(RabbitSource::open(options).await.map(|source| {
        let source = Arc::new(source);
        Opened {
            source: source.clone(),
            close: Close::Rabbitmq(source),
            skipped: 0,
        }
    }))
}

/// The channel, as its client knows it: a silent broker is lost after `liveness_ms`.
pub(super) struct Channel(Arc<RabbitSource>);

impl Channel {
    pub(super) fn new(source: Arc<RabbitSource>) -> Self {
        Self(source)
    }
}

impl Pulse for Channel {
    fn beat(&self) -> BoxFuture<'_, Result<Vec<Lag>, String>> {
        let status = self.0.status();
        let beat = match (status.away, status.depth) {
            (Some(away), _) => Err(away.to_string()),
            (None, None) => Ok(Vec::new()),
            (None, Some(depth)) => {
                let unsettled = u64::try_from(status.unsettled).unwrap_or(u64::MAX);
                let count = u64::from(depth.ready).saturating_add(unsettled);
                Ok(vec![Lag::Messages("queue".to_owned(), count)])
            }
        };
        Box::pin(std::future::ready(beat))
    }
}

pub(super) async fn sink(
    loaded: &Loaded,
    settings: &Rabbitmq,
) -> Result<Result<Arc<dyn Sink>, Fault>, Failure> {
    let options = RabbitSinkOptions {
        connect_timeout_ms: settings.connect_timeout_ms,
        heartbeat_s: settings.heartbeat_s,
        tls: tls(loaded, settings),
        connection_name: settings.connection_name.clone(),
        ..RabbitSinkOptions::to_queue(url(loaded, settings)?, &settings.queue)
    };
    Ok(RabbitSink::open(options)
        .await
        .map(|sink| Arc::new(sink) as Arc<dyn Sink>))
}

/// What `check` says. A URL that comes from a file or a command is not looked at.
pub(super) fn findings(
    loaded: &Loaded,
    name: &str,
    settings: &Rabbitmq,
    unit_deadline_ms: u64,
) -> Vec<Finding> {
    let url = settings.url.text().unwrap_or("amqp://localhost").to_owned();
    let found = options(loaded, settings, url, 1).findings(unit_deadline_ms);
    let finding = |found: semel_rabbitmq::Finding| {
        let level = match found.level {
            semel_rabbitmq::Level::Error => Level::Error,
            semel_rabbitmq::Level::Warning => Level::Warning,
        };
        Finding {
            level,
            ..loaded.finding(
                Code::ValueNotAllowed,
                &["sources", name, found.option],
                found.message,
            )
        }
    };
    found.into_iter().map(finding).collect()
}

/// What waits in the queue. It has no positions: what is acked is gone there.
pub(super) async fn examine(
    loaded: &Loaded,
    reading: &Reading<'_>,
    settings: &Rabbitmq,
) -> (Vec<Standing>, Vec<Finding>) {
    let looked = match url(loaded, settings) {
        Ok(url) => semel_rabbitmq::inspect(&options(loaded, settings, url, 1))
            .await
            .map_err(|fault| fault.detail()),
        Err(failure) => Err(failure.lines.join("; ")),
    };
    match looked {
        Err(why) => (Vec::new(), vec![super::away(loaded, reading, why)]),
        Ok(depth) => {
            let place = Standing {
                consumer: reading.consumer.to_owned(),
                source: reading.source.to_owned(),
                partition: settings.queue.clone(),
                ready: Some(depth.ready.into()),
                ..Standing::default()
            };
            (vec![place], Vec::new())
        }
    }
}

pub(super) async fn try_to_reach(loaded: &Loaded, settings: &Rabbitmq) -> Result<(), String> {
    let url = url(loaded, settings).map_err(|failure| failure.lines.join("; "))?;
    semel_rabbitmq::inspect(&options(loaded, settings, url, 1))
        .await
        .map(drop)
        .map_err(|fault| fault.detail())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_brokers_crate() {
        let settings: Rabbitmq = serde_json::from_str(r#"{"url":"amqp://h","queue":"q"}"#).unwrap();
        let loaded = Loaded::of_default();
        let options = options(&loaded, &settings, "amqp://h".to_owned(), 1 << 20);
        assert_eq!(options, RabbitOptions::new("amqp://h", "q"));
    }
}
