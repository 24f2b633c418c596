//! The laws of a source and of a sink, on a real broker.

mod support;

use std::sync::Arc;

use semel_core::sink::{Outgoing, Sink};
use semel_core::source::Source;
use semel_rabbitmq::{RabbitSink, RabbitSinkOptions, RabbitSource};
use semel_storm::suite::{Features, Kept, SinkRig, SourceRig};
use support::{Admin, brisk, url};

const CLASSIC: Features = Features {
    headers: true,
    // AMQP has none; a sink may use it as the routing key.
    message_key: false,
    null_payload: true,
    empty_payload: true,
    redelivers: true,
    // Only quorum queues count.
    counts_deliveries: false,
    drains: true,
    ends: false,
};

const QUORUM: Features = Features {
    counts_deliveries: true,
    ..CLASSIC
};

/// A queue of its own. Nobody deletes it, as nobody is told when a law has ended: it expires.
struct Rig {
    queue: String,
}

impl Rig {
    async fn with(kind: &str) -> Self {
        let admin = Admin::connect().await;
        Self {
            queue: admin.queue("law", kind).await,
        }
    }

    async fn sink(&self) -> RabbitSink {
        RabbitSink::open(RabbitSinkOptions::to_queue(url(), &self.queue))
            .await
            .expect("RabbitMQ answers")
    }

    async fn source(&self) -> Arc<dyn Source> {
        Arc::new(
            RabbitSource::open(brisk(&url(), &self.queue))
                .await
                .expect("RabbitMQ answers"),
        )
    }
}

macro_rules! rigs {
    ($name:ident, $kind:literal, $features:expr) => {
        mod $name {
            use super::*;

            struct Queue(Rig);

            impl SourceRig for Queue {
                const FEATURES: Features = $features;

                async fn fresh() -> Self {
                    Self(Rig::with($kind).await)
                }

                async fn put(&self, messages: &[Outgoing]) {
                    self.0
                        .sink()
                        .await
                        .publish(messages)
                        .await
                        .expect("published");
                }

                async fn open(&self, _positions: Arc<Kept>) -> Arc<dyn Source> {
                    self.0.source().await
                }
            }

            impl SinkRig for Queue {
                const FEATURES: Features = $features;

                async fn fresh() -> Self {
                    Self(Rig::with($kind).await)
                }

                async fn sink(&self) -> Arc<dyn Sink> {
                    Arc::new(self.0.sink().await)
                }

                async fn source(&self) -> Arc<dyn Source> {
                    self.0.source().await
                }
            }

            mod source {
                semel_storm::source_laws!(super::Queue);
            }

            mod sink {
                semel_storm::sink_laws!(super::Queue);
            }
        }
    };
}

rigs!(quorum, "quorum", QUORUM);
rigs!(classic, "classic", CLASSIC);
