//! The ledger and the queue under the suite's laws.

#![expect(
    clippy::unwrap_used,
    reason = "a rig says what it expects by unwrapping"
)]

mod world;

use std::sync::Arc;

use semel_core::ledger::ConsumerId;
use semel_core::rows::{Query, Value};
use semel_core::{Key, Outgoing, Sink, Source};
use semel_sqlite::{Options, QueueOptions, SqliteLedger, SqliteQueue};
use semel_storm::suite::{Features, Kept, LedgerRig, SinkRig, SourceRig};
use tempfile::TempDir;

use world::url;

struct Ledger(TempDir);

impl Ledger {
    /// Rows of a query, as a word and a count.
    async fn rows(&self, sql: &'static str, args: &[Value]) -> Vec<(String, i64)> {
        let mut rows = Vec::new();
        let mut each = |row: &[Value]| {
            match row {
                [Value::Text(word), Value::Int(count)] => rows.push((word.to_string(), *count)),
                other => panic!("not a word and a count: {other:?}"),
            }
            true
        };
        self.open().await.query(sql, args, &mut each).await.unwrap();
        rows
    }
}

impl LedgerRig for Ledger {
    type Ledger = SqliteLedger;

    async fn fresh() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    async fn open(&self) -> SqliteLedger {
        SqliteLedger::open(Options::new(url(&self.0.path().join("semel.db"))))
            .await
            .unwrap()
    }

    async fn sightings(&self, consumer: ConsumerId, key: Key) -> Vec<(i16, i64)> {
        let sql = "SELECT CAST(kind AS TEXT), sum(count) FROM semel_sighting WHERE consumer = ?1 AND key = ?2 \
                   GROUP BY kind ORDER BY kind";
        let rows = self
            .rows(sql, &[Value::Int(consumer.0.into()), Value::Key(key)])
            .await;
        rows.into_iter()
            .map(|(kind, count)| (kind.parse().unwrap(), count))
            .collect()
    }

    async fn letters(&self, consumer: ConsumerId) -> Vec<(String, i64)> {
        let sql = "SELECT code, count FROM semel_dead WHERE consumer = ?1 ORDER BY code, letter";
        self.rows(sql, &[Value::Int(consumer.0.into())]).await
    }
}

struct Queue(TempDir);

impl Queue {
    async fn queue(&self) -> SqliteQueue {
        let options = QueueOptions::new(url(&self.0.path().join("queue.db")), "bets");
        // What a dropped opening held comes again soon.
        SqliteQueue::open(QueueOptions {
            visibility_ms: 500,
            ..options
        })
        .await
        .unwrap()
    }
}

impl SourceRig for Queue {
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
        Self(tempfile::tempdir().unwrap())
    }

    async fn put(&self, messages: &[Outgoing]) {
        self.queue().await.publish(messages).await.unwrap();
    }

    async fn open(&self, _positions: Arc<Kept>) -> Arc<dyn Source> {
        Arc::new(self.queue().await)
    }
}

impl SinkRig for Queue {
    const FEATURES: Features = <Self as SourceRig>::FEATURES;

    async fn fresh() -> Self {
        <Self as SourceRig>::fresh().await
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.queue().await)
    }

    async fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.queue().await)
    }
}

mod ledger {
    semel_storm::ledger_laws!(super::Ledger);
}

mod source {
    semel_storm::source_laws!(super::Queue);
}

mod sink {
    semel_storm::sink_laws!(super::Queue);
}
