//! Why the broker said no, in words that tell what to do next. The client's errors end here.

use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::uri::{AMQPScheme, AMQPUri};
use semel_core::Fault;
use thiserror::Error;

use crate::options::place;

/// Why there is no connection, no channel or no queue.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// An option that can never work.
    #[error("option `{option}` {must}")]
    Options {
        /// The option.
        option: &'static str,
        /// What it may be.
        must: String,
    },
    /// Nothing answers there, or not in time.
    #[error(
        "RabbitMQ cannot be reached at {place}: {why}. Check that it runs, the host, the port and firewalls"
    )]
    Unreachable {
        /// Where.
        place: String,
        /// What happened.
        why: String,
    },
    /// TLS cannot be had.
    #[error(
        "no TLS with RabbitMQ at {place}: {why}. Check tls.ca_file, the name in the broker's certificate, and tls.cert_file"
    )]
    Tls {
        /// Where.
        place: String,
        /// What happened.
        why: String,
    },
    /// User or password are wrong.
    #[error(
        "RabbitMQ at {place} refuses the login of user `{user}`: check user and password in `url`, and that this user may log in from here"
    )]
    Credentials {
        /// Where.
        place: String,
        /// Who.
        user: String,
    },
    /// The vhost is unknown, or this user may not use it.
    #[error(
        "RabbitMQ at {place} does not open vhost `{vhost}` for user `{user}`: {why}. Check the end of `url` (`%2f` is `/`), or `rabbitmqctl add_vhost` and `set_permissions`"
    )]
    Vhost {
        /// Where.
        place: String,
        /// Who.
        user: String,
        /// The vhost.
        vhost: String,
        /// The broker's words.
        why: String,
    },
    /// No such queue.
    #[error(
        "queue `{queue}` is not there (vhost `{vhost}`): declare it, or set declare = \"quorum\""
    )]
    NoQueue {
        /// The queue.
        queue: String,
        /// The vhost.
        vhost: String,
    },
    /// The queue is there, and is another one.
    #[error(
        "queue `{queue}` is there, but not as declared here: {why}. Set declare = \"passive\" to take it as it is, or make the options equal"
    )]
    OtherQueue {
        /// The queue.
        queue: String,
        /// The broker's words.
        why: String,
    },
    /// The queue is there, and the broker leaves the question to consume it without an answer.
    #[error(
        "queue `{queue}` is there, but RabbitMQ lets nobody consume it: no answer within {limit_ms} ms. A quorum queue without a leader is so: look with `rabbitmq-queues quorum_status {queue}`"
    )]
    StuckQueue {
        /// The queue.
        queue: String,
        /// How long it was asked, in milliseconds.
        limit_ms: u64,
    },
    /// This user may not do it.
    #[error(
        "RabbitMQ refuses rights on `{what}`: {why}. `rabbitmqctl set_permissions` needs read for a source, write for a sink, configure for declare; a queue that another consumer holds exclusively is refused like this, too"
    )]
    Rights {
        /// The queue or exchange.
        what: String,
        /// The broker's words.
        why: String,
    },
    /// Somebody else holds the queue alone.
    #[error("queue `{queue}` belongs to another consumer alone: {why}")]
    Locked {
        /// The queue.
        queue: String,
        /// The broker's words.
        why: String,
    },
    /// No such exchange.
    #[error("exchange `{exchange}` is not there: declare it, or correct `exchange`")]
    NoExchange {
        /// The exchange.
        exchange: String,
    },
    /// The connection or channel ended.
    #[error("the connection to RabbitMQ ended: {why}")]
    Ended {
        /// The client's or broker's words.
        why: String,
    },
}

impl Refusal {
    pub(crate) fn options(option: &'static str, must: &str) -> Self {
        Self::Options {
            option,
            must: must.to_owned(),
        }
    }

    pub(crate) fn ended(why: impl ToString) -> Self {
        Self::Ended {
            why: why.to_string(),
        }
    }

    /// Of an error of the handshake.
    pub(crate) fn of_handshake(uri: &AMQPUri, error: &lapin::Error) -> Self {
        let (place, user) = (place(uri), uri.authority.userinfo.username.clone());
        match protocol(error) {
            Some((Code::AccessRefused, _)) => Self::Credentials { place, user },
            Some((Code::NotAllowed | Code::InvalidPath | Code::NotFound, why)) => Self::Vhost {
                place,
                user,
                vhost: uri.vhost.clone(),
                why,
            },
            Some((_, why)) => Self::Unreachable { place, why },
            // With TLS 1.3 a server refuses the client's certificate only after the handshake, and its
            // words for it may be lost when it hangs up.
            None if uri.scheme == AMQPScheme::AMQPS && error.is_io_error() => Self::Tls {
                place,
                why: error.to_string(),
            },
            None => Self::Unreachable {
                place,
                why: format!("{error} (where the port speaks TLS, `url` begins with amqps://)"),
            },
        }
    }

    /// Of an error about a queue.
    pub(crate) fn of_queue(queue: &str, vhost: &str, error: &lapin::Error) -> Self {
        let queue = queue.to_owned();
        match protocol(error) {
            Some((Code::NotFound, _)) => Self::NoQueue {
                queue,
                vhost: vhost.to_owned(),
            },
            Some((Code::AccessRefused, why)) => Self::Rights { what: queue, why },
            Some((Code::PreconditionFailed, why)) => Self::OtherQueue { queue, why },
            Some((Code::ResourceLocked, why)) => Self::Locked { queue, why },
            Some((_, why)) => Self::Ended { why },
            None => Self::ended(error),
        }
    }

    /// Of an error while publishing.
    pub(crate) fn of_exchange(exchange: &str, error: &lapin::Error) -> Self {
        let exchange = exchange.to_owned();
        match protocol(error) {
            Some((Code::NotFound, _)) => Self::NoExchange { exchange },
            Some((Code::AccessRefused, why)) => Self::Rights {
                what: exchange,
                why,
            },
            Some((_, why)) => Self::Ended { why },
            None => Self::ended(error),
        }
    }
}

/// A refusal while running: the operator may put it right, so the source goes on asking.
pub(crate) fn down(refusal: Refusal) -> Fault {
    Fault::down(refusal)
}

/// The broker's codes that mean something of their own here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    AccessRefused,
    NotFound,
    NotAllowed,
    InvalidPath,
    PreconditionFailed,
    ResourceLocked,
    Other,
}

/// Rights are missing.
pub(crate) fn is_refused(error: &lapin::Error) -> bool {
    matches!(protocol(error), Some((Code::AccessRefused, _)))
}

fn protocol(error: &lapin::Error) -> Option<(Code, String)> {
    let lapin::ErrorKind::ProtocolError(error) = error.kind() else {
        return None;
    };
    let code = match error.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => Code::AccessRefused,
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Code::NotFound,
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => Code::PreconditionFailed,
        AMQPErrorKind::Soft(AMQPSoftError::RESOURCELOCKED) => Code::ResourceLocked,
        AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => Code::NotAllowed,
        AMQPErrorKind::Hard(AMQPHardError::INVALIDPATH) => Code::InvalidPath,
        AMQPErrorKind::Soft(_) | AMQPErrorKind::Hard(_) => Code::Other,
    };
    Some((code, error.get_message().to_string()))
}

/// Did the broker close the channel because a message was too large for it?
pub(crate) fn is_too_large(error: &lapin::Error) -> bool {
    matches!(protocol(error), Some((Code::PreconditionFailed, why)) if why.contains("larger than"))
}
