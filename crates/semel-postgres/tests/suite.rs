//! The ledger and the queue under the suite's laws, each law in a schema of its own: at the server itself, and behind a
//! pooler that lends its sessions for a transaction at a time.

use std::marker::PhantomData;
use std::sync::Arc;

use semel_core::ledger::ConsumerId;
use semel_core::rows::{Query, Value};
use semel_core::{Fault, Key, Outgoing, Sink, Source};
use semel_postgres::{Options, Pooler, PostgresLedger, PostgresQueue, QueueOptions};
use semel_storm::suite::{Features, Kept, LedgerRig, SinkRig, SourceRig};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// How the server is reached.
trait Way: Send + Sync + 'static {
    fn options() -> Options;
}

/// At its own port.
struct Direct;

impl Way for Direct {
    fn options() -> Options {
        Options::new(url("SEMEL_TEST_POSTGRES_URL"))
    }
}

/// Behind a pooler with few sessions, which no other law shares.
struct Pooled;

impl Way for Pooled {
    fn options() -> Options {
        let url = url("SEMEL_TEST_PGBOUNCER_URL");
        let (server, _) = url.rsplit_once('/').expect("a URL with a database");
        let mut options = Options::new(format!("{server}/suite_{:016x}", rand::random::<u64>()));
        options.pooler = Pooler::Transaction;
        options
    }
}

fn url(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run `scripts/test`, which starts PostgreSQL and a pooler and sets it")
    })
}

/// A schema that is dropped with it.
struct Schema(Options);

fn ok<T>(result: Result<T, Fault>) -> T {
    result.unwrap_or_else(|fault| panic!("PostgreSQL must answer: {fault}"))
}

impl Schema {
    fn new<W: Way>() -> Self {
        let mut options = W::options();
        options.schema = format!("suite {:016x}", rand::random::<u64>());
        Self(options)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let (url, schema) = (Direct::options().url, self.0.schema.clone());
        // The test's runtime is busy dropping this. A session left behind may hold a lock: then the schema
        // stays, and goes with the service's data folder.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&url)
                    .await
                    .map_err(std::io::Error::other)?;
                let sql =
                    format!("SET lock_timeout = '2s'; DROP SCHEMA IF EXISTS \"{schema}\" CASCADE");
                connection
                    .execute(AssertSqlSafe(sql))
                    .await
                    .map_err(std::io::Error::other)
            })
        });
        let _ = dropping.join();
    }
}

struct Ledger<W>(Schema, PhantomData<W>);

impl<W: Way> Ledger<W> {
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
        ok(self.open().await.query(sql, args, &mut each).await);
        rows
    }
}

impl<W: Way> LedgerRig for Ledger<W> {
    type Ledger = PostgresLedger;

    async fn fresh() -> Self {
        Self(Schema::new::<W>(), PhantomData)
    }

    async fn open(&self) -> PostgresLedger {
        ok(PostgresLedger::open(self.0.0.clone()).await)
    }

    async fn sightings(&self, consumer: ConsumerId, key: Key) -> Vec<(i16, i64)> {
        let sql = "SELECT kind::text, sum(count)::bigint FROM semel_sighting WHERE consumer = $1 AND key = $2 \
                   GROUP BY kind ORDER BY kind";
        let rows = self
            .rows(sql, &[Value::Int(consumer.0.into()), Value::Key(key)])
            .await;
        rows.into_iter()
            .map(|(kind, count)| (kind.parse().expect("a kind is a number"), count))
            .collect()
    }

    async fn letters(&self, consumer: ConsumerId) -> Vec<(String, i64)> {
        let sql = "SELECT code, count FROM semel_dead WHERE consumer = $1 ORDER BY code, letter";
        self.rows(sql, &[Value::Int(consumer.0.into())]).await
    }
}

struct Queue<W>(Schema, PhantomData<W>);

impl<W: Way> Queue<W> {
    async fn queue(&self) -> PostgresQueue {
        // What a dropped opening held comes again soon.
        let options = QueueOptions { visibility_ms: 500 };
        ok(PostgresQueue::open(self.0.0.clone(), "bets", options).await)
    }
}

impl<W: Way> SourceRig for Queue<W> {
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
        let schema = Schema::new::<W>();
        // The queue's table comes with the ledger's.
        drop(ok(PostgresLedger::open(schema.0.clone()).await));
        Self(schema, PhantomData)
    }

    async fn put(&self, messages: &[Outgoing]) {
        ok(self.queue().await.publish(messages).await);
    }

    async fn open(&self, _positions: Arc<Kept>) -> Arc<dyn Source> {
        Arc::new(self.queue().await)
    }
}

impl<W: Way> SinkRig for Queue<W> {
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
    semel_storm::ledger_laws!(super::Ledger<super::Direct>);
}

mod source {
    semel_storm::source_laws!(super::Queue<super::Direct>);
}

mod sink {
    semel_storm::sink_laws!(super::Queue<super::Direct>);
}

mod t22_behind_a_pooler {
    mod ledger {
        semel_storm::ledger_laws!(crate::Ledger<crate::Pooled>);
    }

    mod source {
        semel_storm::source_laws!(crate::Queue<crate::Pooled>);
    }

    mod sink {
        semel_storm::sink_laws!(crate::Queue<crate::Pooled>);
    }
}
