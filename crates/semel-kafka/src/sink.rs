//! The sink: publishes to one topic and returns when every message is confirmed by all in-sync replicas.

use std::fmt;
use std::time::Duration;

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
use crate::quiet;
use crate::vetting::blocking;

/// A topic to publish to. The producer is idempotent, so its own retries keep order and make no copies; a
/// publish that was repeated by its caller does make copies, with the same `idempotency-key`.
pub struct KafkaSink {
    producer: ThreadedProducer<Reports>,
    topic: String,
    message_bytes_max: usize,
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
    /// Checks the options and that the topic is there.
    ///
    /// # Errors
    /// `Stop` when the options are wrong or there is no such topic; `Down` when no broker answers.
    pub async fn open(options: KafkaSinkOptions) -> Result<Self, Fault> {
        let config = options.producer()?;
        let mut look = options.client.config_to_look(&options.brokers, options.timeout_ms);
        look.set("allow.auto.create.topics", "false");
        let (topic, timeout) = (options.topic.clone(), Duration::from_millis(options.timeout_ms.into()));
        blocking(move || Probe::open(&look, timeout)?.partitions(&topic).map(drop)).await?;
        let producer = options::create(config.create_with_context(Reports))?;
        Ok(Self { producer, topic: options.topic, message_bytes_max: options.message_bytes_max })
    }

    async fn publish_all(&self, messages: &[Outgoing]) -> Result<(), Fault> {
        // Before anything is sent: a batch with a message that can never go is refused whole.
        if let Some(index) = messages.iter().position(|message| self.is_too_large(message)) {
            return Err(too_large(index, &format!("more than `message_bytes_max` = {} bytes", self.message_bytes_max)));
        }
        let (sender, mut reports) = unbounded_channel();
        let mut tally = Tally::default();
        for (index, message) in messages.iter().enumerate() {
            match self.send(index, message, &sender, &mut reports, &mut tally).await {
                Ok(()) => tally.sent += 1,
                Err(error) => {
                    tally.count((index, Some(error)));
                    break;
                }
            }
        }
        drop(sender);
        // Every report is waited for, so that a repeated publish never overtakes this one.
        while let Some(report) = reports.recv().await {
            tally.count(report);
        }
        tally.result(messages.len())
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
            let ticket = Box::new(Ticket { index, reports: sender.clone() });
            let mut record = BaseRecord::with_opaque_to(&self.topic, ticket).headers(headers(message));
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

    fn is_too_large(&self, message: &Outgoing) -> bool {
        message.payload.as_ref().is_some_and(|payload| payload.len() > self.message_bytes_max)
    }
}

fn headers(message: &Outgoing) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new_with_capacity(message.headers.len() + 1);
    if let Some(key) = message.key {
        let text = key.to_string();
        headers = headers.insert(Header { key: IDEMPOTENCY_KEY, value: Some(text.as_bytes()) });
    }
    for (name, value) in &message.headers {
        headers = headers.insert(Header { key: name, value: Some(&value[..]) });
    }
    headers
}

/// What the reports of one publish say.
#[derive(Default)]
struct Tally {
    sent: usize,
    arrived: usize,
    worst: Option<Fault>,
}

impl Tally {
    fn count(&mut self, (index, error): Report) {
        let Some(error) = error else {
            self.arrived += 1;
            return;
        };
        let fault = match error.rdkafka_error_code() {
            Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize) => too_large(index, "more than the broker takes"),
            Some(Code::InvalidRecord) => Fault::poison(format!(
                "kafka: the broker refuses the message at index {index} (a compacted topic needs a message key): {error}"
            )),
            _ => classify(&format!("the message at index {index} is not confirmed"), &error),
        };
        let is_worse = self.worst.as_ref().is_none_or(|worst| worst.class != Class::Poison && fault.class == Class::Poison);
        if is_worse {
            self.worst = Some(fault);
        }
    }

    fn result(self, wanted: usize) -> Result<(), Fault> {
        match self.worst {
            Some(fault) => Err(fault),
            None if self.arrived == wanted => Ok(()),
            None => Err(Fault::down(format!("kafka: {} of {wanted} messages are confirmed, {} sent", self.arrived, self.sent))),
        }
    }
}

fn too_large(index: usize, why: &str) -> Fault {
    Fault::poison(format!("kafka: the message at index {index} is too large: {why}"))
}

impl Sink for KafkaSink {
    fn publish<'a>(&'a self, messages: &'a [Outgoing]) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(self.publish_all(messages))
    }
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink").field("topic", &self.topic).finish_non_exhaustive()
    }
}
