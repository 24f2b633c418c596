//! What a client says of its connections. The library gives each a code and a text; which of its settings to look at is
//! said here, in the words of the config.

use std::sync::Mutex;

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use semel_core::Fault;

use crate::shared::lock;

/// The last complaint that tells something: that all brokers are down says less than why the last of them went.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<Option<Complaint>>);

/// See [`Complaints`].
#[derive(Debug, Clone)]
struct Complaint {
    reason: String,
    cause: Option<Cause>,
}

/// What is wrong with a connection, where it is more than that nobody answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// User, password or mechanism.
    Login,
    /// We do not trust the broker.
    Authority,
    /// The broker does not trust us.
    Certificate,
    /// One side speaks TLS or SASL, and the other does not. A broker that goes away at the wrong moment looks like it.
    Protocol,
}

impl Complaints {
    pub(crate) fn hear(&self, code: Option<Code>, reason: &str) {
        // A log line begins with its thread.
        let reason = match reason.strip_prefix("[thrd:") {
            Some(line) => line.split_once("]: ").map_or(line, |(_, text)| text),
            None => reason,
        };
        let cause = Cause::of(code, reason);
        let mut kept = lock(&self.0);
        let all_down = code == Some(Code::AllBrokersDown);
        let tells_more = kept
            .as_ref()
            .is_some_and(|kept| all_down || kept.cause.is_some());
        if cause.is_some() || !tells_more {
            *kept = Some(Complaint {
                reason: reason.to_owned(),
                cause,
            });
        }
    }

    /// The connection works: what was said before is over.
    pub(crate) fn forget(&self) {
        *lock(&self.0) = None;
    }

    /// What was said, with what to do about it.
    pub(crate) fn told(&self) -> Option<String> {
        let kept = lock(&self.0).clone()?;
        Some(match kept.cause {
            None => kept.reason,
            Some(cause) => format!("{}: {}", cause.advice(), kept.reason),
        })
    }

    /// No broker answers: what that means. `error` is what the library says of the request.
    pub(crate) fn unreachable(&self, error: &KafkaError) -> Fault {
        let told = self.told().unwrap_or_else(|| error.to_string());
        let cause = lock(&self.0).as_ref().and_then(|kept| kept.cause);
        match cause {
            Some(Cause::Login | Cause::Authority | Cause::Certificate) => {
                Fault::refused(format!("kafka: {told}"))
            }
            Some(Cause::Protocol) => Fault::down(format!("kafka: no broker answers: {told}")),
            None => Fault::down(format!(
                "kafka: no broker answers; check `brokers` and the client settings: {told}"
            )),
        }
    }
}

impl Cause {
    /// By the library's texts: its codes tell a refused certificate from a lost connection no better.
    fn of(code: Option<Code>, reason: &str) -> Option<Self> {
        let says = |part| reason.contains(part);
        if code == Some(Code::Authentication) {
            Some(Self::Login)
        } else if says("certificate verify failed") {
            Some(Self::Authority)
        } else if says(" alert ") && (says("certificate") || says("unknown ca")) {
            Some(Self::Certificate)
        } else if code == Some(Code::SSL)
            || ["SSL_HANDSHAKE", "APIVERSION_QUERY", "security.protocol"]
                .into_iter()
                .any(says)
        {
            Some(Self::Protocol)
        } else {
            None
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Login => {
                "the broker refuses the login; check `sasl.username`, `sasl.password` and `sasl.mechanism`"
            }
            Self::Authority => {
                "the broker's certificate is not trusted; check `ssl.ca.location`, and that `brokers` names the hosts as the certificate does"
            }
            Self::Certificate => {
                "the broker refuses this client's certificate; check `ssl.certificate.location` and `ssl.key.location`"
            }
            Self::Protocol => {
                "one side speaks TLS or SASL and the other does not; check `security.protocol` and the ports in `brokers`"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_tells_most_is_kept_until_the_connection_works() {
        let complaints = Complaints::default();
        complaints.hear(Some(Code::AllBrokersDown), "1/1 brokers are down");
        assert_eq!(complaints.told().unwrap(), "1/1 brokers are down");
        complaints.hear(Some(Code::Resolve), "n:9092: name or service not known");
        complaints.hear(Some(Code::AllBrokersDown), "1/1 brokers are down");
        let told = complaints.told().unwrap();
        assert_eq!(told, "n:9092: name or service not known");
        complaints.hear(
            None,
            "[thrd:b:1/bootstrap]: b:1: SSL handshake failed: x (after 1ms in state SSL_HANDSHAKE)",
        );
        complaints.hear(Some(Code::AllBrokersDown), "1/1 brokers are down");
        let told = complaints.told().unwrap();
        assert!(
            told.contains("`security.protocol`")
                && told
                    .ends_with(": b:1: SSL handshake failed: x (after 1ms in state SSL_HANDSHAKE)"),
            "{told}"
        );
        complaints.forget();
        assert_eq!(complaints.told(), None);
    }
}
