//! What can be said of a queue before it is consumed, for `semel check` and `semel doctor`. AMQP shows
//! little of a queue: what only the management plugin or `rabbitmqctl` can see is told as a question.

use semel_core::Fault;

use crate::fault::{Refusal, down};
use crate::options::{Declare, RabbitOptions};
use crate::session::Session;
use crate::source::Depth;

/// Something to put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// The option it is about.
    pub option: &'static str,
    /// What it is, and what to do.
    pub message: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// It will lose messages or never work.
    Error,
    /// It may.
    Warning,
}

impl RabbitOptions {
    /// Opens nothing: what the options alone say, beside the time a unit of work may take.
    #[must_use]
    pub fn findings(&self, unit_deadline_ms: u64) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |level, option, message: String| {
            findings.push(Finding {
                level,
                option,
                message,
            })
        };
        if let Err(refusal) = self.validate() {
            let option = match &refusal {
                Refusal::Options { option, .. } => option,
                _ => "url",
            };
            find(Level::Error, option, refusal.to_string());
        }
        if unit_deadline_ms >= self.consumer_timeout_ms {
            find(
                Level::Error,
                "consumer_timeout_ms",
                format!(
                    "a unit may take {unit_deadline_ms} ms, but the broker closes the channel when a delivery is unsettled for {} ms (consumer_timeout): every message of a slow unit would be delivered again. Lower unit_deadline_ms, or raise the broker's limit and say so here",
                    self.consumer_timeout_ms
                ),
            );
        }
        let no_exchange = self.dead_letter_exchange.is_none();
        match (self.declare, self.delivery_limit) {
            (Declare::Quorum, Some(limit)) if limit >= 0 && no_exchange => find(Level::Error, "dead_letter_exchange", format!(
                "delivery_limit = {limit} without dead_letter_exchange: after {limit} redeliveries, which crashes cause too, the broker drops the message, and nobody sees it. Give dead_letter_exchange"
            )),
            (Declare::Quorum, None) if no_exchange => find(Level::Warning, "dead_letter_exchange", "since RabbitMQ 4.0 a quorum queue gives a message up after 20 redeliveries, which crashes cause too, and drops it without a dead-letter exchange. Give dead_letter_exchange, or delivery_limit = -1 (RabbitMQ 4)".to_owned()),
            (Declare::Passive, _) => find(Level::Warning, "declare", format!(
                "AMQP does not show the queue's dead-letter exchange and delivery limit: look with `rabbitmqctl list_queues name type arguments effective_policy_definition` at `{}`; a limit without an exchange loses messages",
                self.queue
            )),
            (Declare::Quorum | Declare::Classic, _) => {}
        }
        let held = usize::from(self.prefetch).saturating_mul(self.message_bytes_max);
        if held / 16 > self.prefetch_bytes_max {
            find(
                Level::Warning,
                "prefetch",
                format!(
                    "in the worst case, {} messages of the largest size, {} MiB are held before prefetch_bytes_max takes hold. Lower prefetch or message_bytes_max if such messages are usual",
                    self.prefetch,
                    held >> 20
                ),
            );
        }
        findings
    }
}

/// Connects as a source would, consumes nothing for long, and tells how the queue is. One that is not there yet and that
/// a start would declare holds nothing.
///
/// # Errors
/// `Down` with a [`Refusal`] inside: what a start would fail with.
pub async fn inspect(options: &RabbitOptions) -> Result<Depth, Fault> {
    options.validate().map_err(down)?;
    match Session::look(options).await {
        Err(Refusal::NoQueue { .. }) if options.declare != Declare::Passive => Ok(Depth {
            ready: 0,
            consumers: 0,
        }),
        looked => looked.map_err(down),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(options: &RabbitOptions, unit_deadline_ms: u64) -> Vec<(Level, &'static str)> {
        options
            .findings(unit_deadline_ms)
            .into_iter()
            .map(|finding| (finding.level, finding.option))
            .collect()
    }

    #[test]
    fn t46_a_unit_that_may_take_longer_than_the_brokers_patience_is_an_error() {
        let options = RabbitOptions {
            declare: Declare::Classic,
            ..RabbitOptions::new("amqp://h", "q")
        };
        let options = RabbitOptions {
            prefetch: 100,
            ..options
        };
        assert_eq!(levels(&options, 90_000), []);
        assert_eq!(
            levels(&options, 1_800_000),
            [(Level::Error, "consumer_timeout_ms")]
        );
    }

    #[test]
    fn t45_a_delivery_limit_without_a_dead_letter_exchange_is_an_error() {
        let quorum = RabbitOptions {
            declare: Declare::Quorum,
            prefetch: 100,
            ..RabbitOptions::new("amqp://h", "q")
        };
        assert_eq!(
            levels(&quorum, 1),
            [(Level::Warning, "dead_letter_exchange")]
        );
        let limited = RabbitOptions {
            delivery_limit: Some(20),
            ..quorum.clone()
        };
        assert_eq!(
            levels(&limited, 1),
            [(Level::Error, "dead_letter_exchange")]
        );
        assert_eq!(
            levels(
                &RabbitOptions {
                    dead_letter_exchange: Some("dlx".to_owned()),
                    ..limited.clone()
                },
                1
            ),
            []
        );
        assert_eq!(
            levels(
                &RabbitOptions {
                    delivery_limit: Some(-1),
                    ..quorum
                },
                1
            ),
            []
        );
        let passive = RabbitOptions {
            prefetch: 100,
            ..RabbitOptions::new("amqp://h", "q")
        };
        assert_eq!(levels(&passive, 1), [(Level::Warning, "declare")]);
    }

    #[test]
    fn options_that_can_never_work_are_found_too() {
        let wrong = RabbitOptions {
            prefetch: 0,
            ..RabbitOptions::new("amqp://h", "q")
        };
        assert!(levels(&wrong, 1).contains(&(Level::Error, "prefetch")));
    }
}
