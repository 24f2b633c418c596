//! Errors of the client library as faults: which wait, which stop, and what to do about them.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use semel_core::Fault;

/// A fault of a broker's answer. Most things heal when the broker is back; what an operator must change
/// stops.
pub(crate) fn classify(what: &str, error: &KafkaError) -> Fault {
    let text = format!("kafka: {what}: {}", without_values(error));
    match error {
        KafkaError::MessageConsumptionFatal(_) => Fault::stop(text),
        _ => match error.rdkafka_error_code() {
            Some(Code::Fatal | Code::FencedInstanceId | Code::InconsistentGroupProtocol) => {
                Fault::stop(text)
            }
            Some(Code::UnsupportedSASLMechanism) => Fault::refused(text),
            _ => Fault::down(text),
        },
    }
}

/// The error's text. The library's own shows the value of a setting it refuses, which may be a secret.
pub(crate) fn without_values(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, _, name, _) => format!("kafka: the client library refuses the value of setting `{name}`"),
        // Its text may quote the setting it stumbled over.
        KafkaError::ClientCreation(_) => "kafka: the client library refuses these settings; check the TLS and SASL files and names".to_owned(),
        other => other.to_string(),
    }
}

/// No broker can be reached, or none lets us in. One of several that is away is no such thing.
pub(crate) fn is_away(code: Code) -> bool {
    matches!(
        code,
        Code::AllBrokersDown | Code::Authentication | Code::SSL
    )
}
