//! Looks at the ledger's database and at the sources, so that an outage is seen while nothing is being done, too.

use std::sync::Arc;
use std::time::Duration;

use semel_core::source::BoxFuture;

use super::{Part, Told};

/// Between two looks. With [`PATIENCE`], and the seven seconds that RabbitMQ's client gives a silent broker, an outage
/// is told within ten seconds.
const INTERVAL: Duration = Duration::from_secs(1);

/// A look that takes longer has found its part away.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);

/// What waits is counted with every so many-th look at the store.
const COUNT_EVERY: u32 = 5;

/// How far a partition is behind its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lag {
    /// By messages.
    Messages(String, u64),
    /// By bytes, where messages are not counted without being read.
    Bytes(String, u64),
}

/// A source that can be asked whether it is there.
pub(crate) trait Pulse: Send + Sync {
    /// Is it, and how far is it read? The error says why not.
    fn beat(&self) -> BoxFuture<'_, Result<Vec<Lag>, String>>;
}

/// What waits in a ledger for one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Backlog {
    pub(crate) consumer: String,
    pub(crate) parked: u64,
    pub(crate) letters: u64,
}

/// A ledger that can be asked whether it is there.
pub(crate) trait Store: Send + Sync + 'static {
    /// Is it? The error says why not.
    fn beat(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// What waits in it.
    fn backlog(&self) -> impl Future<Output = Result<Vec<Backlog>, String>> + Send;
}

pub(super) async fn of_source(told: Told, consumer: String, source: String, pulse: Arc<dyn Pulse>) {
    let part = Part::Source(consumer.clone(), source.clone());
    loop {
        let away = match in_time(pulse.beat()).await {
            Ok(lags) => {
                told.gauges.lag(&consumer, &source, &lags);
                None
            }
            Err(why) => Some(why),
        };
        told.board.looked(&part, away);
        tokio::time::sleep(INTERVAL).await;
    }
}

pub(super) async fn of_store(told: Told, store: impl Store) {
    let mut looks: u32 = 0;
    loop {
        let away = in_time(store.beat()).await.err();
        if away.is_none() && looks.is_multiple_of(COUNT_EVERY) {
            match in_time(store.backlog()).await {
                Ok(backlog) => told.gauges.backlog(&backlog),
                Err(why) => tracing::debug!(why, "what waits could not be counted"),
            }
        }
        looks = looks.wrapping_add(1);
        told.board.looked(&Part::Store, away);
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn in_time<T>(beat: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(PATIENCE, beat)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_within_ten_seconds() {
        let ten = Duration::from_secs(10);
        assert!(INTERVAL + PATIENCE < ten);
        let rabbitmq: crate::config::Rabbitmq =
            serde_json::from_str(r#"{"url":"amqp://h","queue":"q"}"#).unwrap();
        assert!(INTERVAL + Duration::from_millis(rabbitmq.liveness_ms) < ten);
    }
}
