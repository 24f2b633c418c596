//! A client's own messages, as ours: to the trace, never to a logger of its own.

use std::sync::Mutex;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

use crate::shared::lock;

/// Keeps the last complaint, to put it into the error of whoever waits.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    last: Mutex<Option<String>>,
}

impl Quiet {
    pub(crate) fn last(&self) -> Option<String> {
        lock(&self.last).clone()
    }
}

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        trace(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka client");
        *lock(&self.last) = Some(reason.to_owned());
    }
}

impl ConsumerContext for Quiet {}

/// The library complains at warning level about every lost connection; what matters of that is said once,
/// by the source.
pub(crate) fn trace(level: RDKafkaLogLevel, facility: &str, text: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(target: "librdkafka", facility, "{text}");
        }
        RDKafkaLogLevel::Error
        | RDKafkaLogLevel::Warning
        | RDKafkaLogLevel::Notice
        | RDKafkaLogLevel::Info => {
            tracing::info!(target: "librdkafka", facility, "{text}");
        }
        RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", facility, "{text}"),
    }
}
