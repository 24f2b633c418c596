//! RabbitMQ as a source and a sink of Semel: at-least-once in, confirmed out.
//!
//! What this crate promises never to do: use a delivery tag on another channel than its own, ack past
//! an unsettled delivery, count a returned message as sent, or wait for ever on a silent peer. The
//! guide `docs/guides/rabbitmq.md` tells the rest, the bad news first.
//!
//! ```no_run
//! # async fn run() -> Result<(), semel_core::Fault> {
//! use semel_core::{Limit, Source};
//! use semel_rabbitmq::{RabbitOptions, RabbitSource};
//!
//! let source = RabbitSource::open(RabbitOptions::new("amqp://localhost/%2f", "bets")).await?;
//! let received = source.receive(Limit { count: 100, bytes: 1 << 20 }).await?;
//! # drop(received);
//! # Ok(())
//! # }
//! ```

mod check;
mod content;
mod fault;
mod headers;
mod link;
mod options;
mod pace;
mod session;
mod sink;
mod source;
mod window;

pub use check::{Finding, Level, inspect};
pub use fault::Refusal;
pub use headers::{LEFT_OUT, NULL_PAYLOAD};
pub use options::{Broker, Declare, RabbitOptions, RabbitSinkOptions, Tls};
pub use sink::RabbitSink;
pub use source::{Depth, RabbitSource, Status};
