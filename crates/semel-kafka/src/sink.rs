//! The sink: publishes to one topic and returns when every message is confirmed by all in-sync replicas.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, ProducerContext, ThreadedProducer};
use semel_core::sink::IDEMPOTENCY_KEY;
use semel_core::source::BoxFuture;
use semel_core::{Class, Fault, Outgoing, Sink};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::fault::classify;
use crate::options::{self, KafkaSinkOptions};
use crate::probe::Probe;
use crate::quiet::{self, Quiet};
use crate::vetting::blocking;

/// A topic to publish to. The producer is idempotent, so its own retries keep order and make no copies; a
/// publish that was repeated by its caller does make copies, with the same `idempotency-key`.
pub struct KafkaSink {
    producer: ThreadedProducer<Reports>,
    topic: String,
    message_bytes_max: usize,
    /// The topic's limit, where it is known.
    batch_bytes_max: Option<usize>,
}

/// The client's queue is full of others' messages: looked at again after this.
const FULL: Duration = Duration::from_millis(10);

/// What became of one message: its index, and why it did not arrive.
type Report = (usize, Option<KafkaError>);

/// Travels with a message through the client.
struct Ticket {
    index: usize,
    reports: UnboundedSender<Report>,
}

/// Sends each message's report to the publish that waits for it.
struct Reports;

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        quiet::trace(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka producer");
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let error = result.as_ref().err().map(|(error, _)| error.clone());
        // Nobody waits any more: its publish was dropped, and nothing is known of it there.
        let _ = ticket.reports.send((ticket.index, error));
    }
}

impl KafkaSink {
    /// Checks the options and that the topic is there, and asks how large its messages may be.
    ///
    /// # Errors
    /// `Stop` when the options are wrong, there is no such topic, or no broker lets us in; `Down` when none answers.
    pub async fn open(options: KafkaSinkOptions) -> Result<Self, Fault> {
        let mut config = options.producer()?;
        let mut look = options
            .settings()
            .config_to_look(&options.brokers, options.timeout_ms);
        look.set("allow.auto.create.topics", "false");
        let (topic, timeout) = (
            options.topic.clone(),
            Duration::from_millis(options.timeout_ms.into()),
        );
        let asked = look.clone();
        blocking(move || Probe::open(&asked, timeout)?.partitions(&topic).map(drop)).await?;
        let batch_bytes_max = topic_bytes_max(&look, &options.topic, timeout).await?;
        if let Some(bytes) = batch_bytes_max {
            // The broker's limit is one on batches: a fuller one would be refused with all that is in it.
            config.set("batch.size", bytes.clamp(1, BATCH_BYTES).to_string());
        }
        let producer = options::create(config.create_with_context(Reports))?;
        Ok(Self {
            producer,
            topic: options.topic,
            message_bytes_max: options.message_bytes_max,
            batch_bytes_max,
        })
    }

    async fn publish_all(&self, messages: &[Outgoing]) -> Result<(), Fault> {
        // Before anything is sent: a batch with a message that can never go is refused whole.
        for (index, message) in messages.iter().enumerate() {
            if let Some(why) = self.refusal(message) {
                return Err(too_large(index, &why));
            }
            // The client library panics at such a name.
            if message.headers.iter().any(|(name, _)| name.contains('\0')) {
                return Err(Fault::poison(format!(
                    "kafka: the message at index {index} has a header name with a NUL byte, which Kafka's client cannot send"
                )));
            }
        }
        let tally = self.send_all(messages, 0).await;
        if tally.too_large.len() < 2 {
            return tally.result(messages.len());
        }
        // The broker refused a batch, with all that was in it: find out which message it was.
        let mut rest = Tally {
            arrived: tally.arrived,
            too_large: Vec::new(),
            worst: tally.worst,
        };
        for index in tally.too_large {
            let alone = self.send_all(&messages[index..=index], index).await;
            rest.arrived += alone.arrived;
            rest.worst = rest.worst.or(alone.worst);
            rest.too_large.extend(alone.too_large);
        }
        rest.result(messages.len())
    }

    /// Sends all and waits for every report, so that a repeated publish never overtakes this one.
    async fn send_all(&self, messages: &[Outgoing], first: usize) -> Tally {
        let (sender, mut reports) = unbounded_channel();
        let mut tally = Tally::default();
        for (index, message) in (first..).zip(messages) {
            if let Err(error) = self
                .send(index, message, &sender, &mut reports, &mut tally)
                .await
            {
                tally.count((index, Some(error)));
                break;
            }
        }
        drop(sender);
        while let Some(report) = reports.recv().await {
            tally.count(report);
        }
        tally
    }

    /// Hands one message to the client, and waits for room when its queue is full.
    async fn send(
        &self,
        index: usize,
        message: &Outgoing,
        sender: &UnboundedSender<Report>,
        reports: &mut UnboundedReceiver<Report>,
        tally: &mut Tally,
    ) -> Result<(), KafkaError> {
        loop {
            let ticket = Box::new(Ticket {
                index,
                reports: sender.clone(),
            });
            let mut record =
                BaseRecord::with_opaque_to(&self.topic, ticket).headers(headers(message));
            if let Some(payload) = &message.payload {
                record = record.payload(&payload[..]);
            }
            if let Some(key) = &message.message_key {
                record = record.key(&key[..]);
            }
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((error, _)) if error.rdkafka_error_code() == Some(Code::QueueFull) => {}
                Err((error, _)) => return Err(error),
            }
            if let Ok(Some(report)) = tokio::time::timeout(FULL, reports.recv()).await {
                tally.count(report);
            }
        }
    }

    /// Why it can never go.
    fn refusal(&self, message: &Outgoing) -> Option<String> {
        let value = message.payload.as_ref().map_or(0, Bytes::len);
        if value > self.message_bytes_max {
            return Some(format!(
                "{value} bytes, more than `message_bytes_max` = {}",
                self.message_bytes_max
            ));
        }
        let headers: usize = message
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        let size = value + headers + message.message_key.as_ref().map_or(0, Bytes::len);
        let max = self.batch_bytes_max.filter(|max| size > *max)?;
        Some(format!(
            "{size} bytes, more than the topic's max.message.bytes = {max}"
        ))
    }
}

/// The library's own default for `batch.size`.
const BATCH_BYTES: usize = 1_000_000;

/// The topic's `max.message.bytes`; `None` when we may not ask, then the broker's refusal has to tell.
async fn topic_bytes_max(
    look: &ClientConfig,
    topic: &str,
    timeout: Duration,
) -> Result<Option<usize>, Fault> {
    let client: AdminClient<Quiet> = options::create(look.create_with_context(Quiet::default()))?;
    let asked = AdminOptions::new().request_timeout(Some(timeout));
    let answered = client
        .describe_configs([&ResourceSpecifier::Topic(topic)], &asked)
        .await;
    let found = answered
        .ok()
        .and_then(|mut configs| configs.pop())
        .and_then(Result::ok);
    Ok(found.and_then(|config| {
        config
            .entry_map()
            .get("max.message.bytes")?
            .value
            .as_ref()?
            .parse()
            .ok()
    }))
}

fn headers(message: &Outgoing) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new_with_capacity(message.headers.len() + 1);
    if let Some(key) = message.key {
        let text = key.to_string();
        headers = headers.insert(Header {
            key: IDEMPOTENCY_KEY,
            value: Some(text.as_bytes()),
        });
    }
    for (name, value) in &message.headers {
        headers = headers.insert(Header {
            key: name,
            value: Some(&value[..]),
        });
    }
    headers
}

/// What the reports of one publish say.
#[derive(Default)]
struct Tally {
    arrived: usize,
    /// Refused by the broker for their size, or for their neighbours'.
    too_large: Vec<usize>,
    worst: Option<Fault>,
}

impl Tally {
    fn count(&mut self, (index, error): Report) {
        let Some(error) = error else {
            self.arrived += 1;
            return;
        };
        let fault = match error.rdkafka_error_code() {
            Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize) => {
                return self.too_large.push(index);
            }
            Some(Code::InvalidRecord) => Fault::poison(format!(
                "kafka: the broker refuses the message at index {index} (a compacted topic needs a message key): {error}"
            )),
            _ => classify(
                &format!("the message at index {index} is not confirmed"),
                &error,
            ),
        };
        let is_worse = self
            .worst
            .as_ref()
            .is_none_or(|worst| worst.class != Class::Poison && fault.class == Class::Poison);
        if is_worse {
            self.worst = Some(fault);
        }
    }

    fn result(self, wanted: usize) -> Result<(), Fault> {
        match (self.too_large.iter().min(), self.worst) {
            (Some(index), _) => Err(too_large(*index, "more than the broker takes")),
            (None, Some(fault)) => Err(fault),
            (None, None) if self.arrived == wanted => Ok(()),
            (None, None) => Err(Fault::down(format!(
                "kafka: {} of {wanted} messages are confirmed",
                self.arrived
            ))),
        }
    }
}

fn too_large(index: usize, why: &str) -> Fault {
    Fault::poison(format!(
        "kafka: the message at index {index} is too large: {why}"
    ))
}

impl Sink for KafkaSink {
    fn publish<'a>(&'a self, messages: &'a [Outgoing]) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(self.publish_all(messages))
    }
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}
