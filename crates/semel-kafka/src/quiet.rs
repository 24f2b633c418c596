//! A client's own messages, as ours: to the trace, never to a logger of its own.

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

use crate::complaint::Complaints;

/// Keeps its complaints, to put them into the error of whoever waits.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    pub(crate) complaints: Complaints,
}

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        // Why a connection was closed by the other side is told here alone.
        if facility == "FAIL" {
            self.complaints.hear(None, text);
        }
        trace(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka client");
        self.complaints.hear(error.rdkafka_error_code(), reason);
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
