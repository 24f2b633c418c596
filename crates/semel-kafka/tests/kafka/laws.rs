//! The suite's laws over the real broker.

use std::sync::Arc;

use semel_core::source::{NoPositions, Positions};
use semel_core::{Outgoing, Sink, Source};
use semel_kafka::{KafkaSink, KafkaSinkOptions, KafkaSource};
use semel_storm::suite::{Features, Kept, SinkRig, SourceRig};

use crate::bed::{brokers, fresh, options, topic};

/// A topic of one partition, and a group.
struct Topic {
    topic: String,
    group: String,
}

impl Topic {
    async fn make() -> Self {
        Self {
            topic: topic("law", 1).await,
            group: fresh("g"),
        }
    }

    async fn publish(&self) -> KafkaSink {
        KafkaSink::open(KafkaSinkOptions::new([brokers()], &self.topic))
            .await
            .unwrap()
    }

    async fn read(&self, positions: Arc<dyn Positions>) -> Arc<dyn Source> {
        Arc::new(
            KafkaSource::open(options(&self.topic, &self.group), positions)
                .await
                .unwrap(),
        )
    }
}

impl SourceRig for Topic {
    const FEATURES: Features = Features {
        headers: true,
        message_key: true,
        null_payload: true,
        empty_payload: true,
        redelivers: true,
        counts_deliveries: true,
        drains: true,
        ends: false,
    };

    async fn fresh() -> Self {
        Self::make().await
    }

    async fn put(&self, messages: &[Outgoing]) {
        self.publish().await.publish(messages).await.unwrap();
    }

    async fn open(&self, positions: Arc<Kept>) -> Arc<dyn Source> {
        self.read(positions).await
    }
}

impl SinkRig for Topic {
    const FEATURES: Features = <Self as SourceRig>::FEATURES;

    async fn fresh() -> Self {
        Self::make().await
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.publish().await)
    }

    async fn source(&self) -> Arc<dyn Source> {
        self.read(Arc::new(NoPositions)).await
    }
}

mod source {
    semel_storm::source_laws!(super::Topic);
}

mod sink {
    semel_storm::sink_laws!(super::Topic);
}
