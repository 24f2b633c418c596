//! A schema of its own for each test, with one consumer enrolled, and the short words that tests speak in.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::ledger::{
    Claim, ClaimKind, Claimed, Commit, Committed, ConsumerId, Enrolment, Instance, LaneId, Record,
    Sighting, SightingKind, SourceId,
};
use semel_core::{Fault, FieldSums, Fingerprint, Key, Ledger, Message, Scheme, Unit};
use semel_postgres::{Options, Pooler, PostgresLane, PostgresLedger, PostgresUnit};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

pub(crate) struct World {
    pub(crate) ledger: PostgresLedger,
    pub(crate) options: Options,
    pub(crate) consumer: ConsumerId,
    pub(crate) source: SourceId,
    pub(crate) instance: Instance,
}

pub(crate) fn url() -> String {
    std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: run `scripts/test`, which starts PostgreSQL and sets it")
}

/// A pooler that lends few sessions for a transaction at a time, and a name for a pool of one's own.
pub(crate) fn pooler_url() -> String {
    let url = std::env::var("SEMEL_TEST_PGBOUNCER_URL")
        .expect("SEMEL_TEST_PGBOUNCER_URL is not set: run `scripts/test`, which starts a pooler and sets it");
    let (server, _) = url.rsplit_once('/').expect("a URL with a database");
    format!("{server}/test_{:016x}", rand::random::<u64>())
}

pub(crate) fn enrolment() -> Enrolment {
    Enrolment {
        consumer: "wallet".to_owned(),
        handler: "test".to_owned(),
        rules: Fingerprint::of_bytes(b"rules"),
        sources: vec!["main".to_owned(), "other".to_owned()],
        accept_key_change: false,
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// Behind a pooler that lends its sessions.
    pub(crate) async fn pooled(change: impl FnOnce(&mut Options)) -> Self {
        Self::with(|options| {
            options.url = pooler_url();
            options.pooler = Pooler::Transaction;
            change(options);
        })
        .await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::new(url());
        options.schema = format!("test {:016x}", rand::random::<u64>());
        change(&mut options);
        let ledger = PostgresLedger::open(options.clone())
            .await
            .expect("PostgreSQL answers");
        let enrolled = ledger.enroll(&enrolment()).await.expect("a fresh schema");
        let instance = Instance(rand::random());
        Self {
            ledger,
            options,
            consumer: enrolled.consumer,
            source: enrolled.sources[0],
            instance,
        }
    }

    /// The same tables by another ledger, as another process would see them.
    pub(crate) async fn again(&self, change: impl FnOnce(&mut Options)) -> PostgresLedger {
        let mut options = self.options.clone();
        change(&mut options);
        PostgresLedger::open(options)
            .await
            .expect("PostgreSQL answers")
    }

    /// A plain session on the world's schema, at the server itself.
    pub(crate) async fn psql(&self) -> PgConnection {
        let mut connection = PgConnection::connect(&url())
            .await
            .expect("PostgreSQL answers");
        run(
            &mut connection,
            &format!("SET search_path = \"{}\"", self.options.schema),
        )
        .await;
        connection
    }

    pub(crate) const fn lane_id(&self, lane: i16) -> LaneId {
        LaneId {
            consumer: self.consumer,
            instance: self.instance,
            lane,
        }
    }

    pub(crate) async fn lane(&self, lane: i16) -> PostgresLane {
        self.ledger
            .connect(self.lane_id(lane))
            .await
            .expect("PostgreSQL answers")
    }

    pub(crate) async fn unit(&self, lane: i16) -> PostgresUnit {
        let lane = self.lane(lane).await;
        self.ledger.begin(lane).await.expect("a fence")
    }

    pub(crate) fn claim(&self, key: Key) -> Claim {
        self.claim_of(key, b"content", ClaimKind::New)
    }

    pub(crate) fn claim_of(&self, key: Key, content: &[u8], kind: ClaimKind) -> Claim {
        Claim {
            key,
            fingerprint: Fingerprint::of_bytes(content),
            scheme: Scheme::ALL,
            sums: FieldSums::from_bytes(&[1, 2, 3, 4]),
            source: self.source,
            kind,
        }
    }

    pub(crate) fn claims(&self, keys: &[Key]) -> Vec<Claim> {
        keys.iter().map(|key| self.claim(*key)).collect()
    }

    pub(crate) fn sighting(&self, key: Key) -> Sighting {
        Sighting {
            key,
            source: self.source,
            kind: SightingKind::Duplicate,
            count: 1,
            partition: "p".into(),
            offset: Some(7),
        }
    }

    /// Whether a key is in the ledger, for somebody else.
    pub(crate) async fn holds(&self, key: Key) -> bool {
        let sql = format!("SELECT count(*) FROM semel_ledger WHERE key = '{key}'");
        number(&mut self.psql().await, &sql).await == 1
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let (url, schema) = (url(), self.options.schema.clone());
        // A test's runtime may be gone, so the schema is dropped on one of its own. A session that the test left
        // behind may still hold a lock: then the schema stays, and the service's data folder is thrown away.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                if let Ok(mut connection) = PgConnection::connect(&url).await {
                    let sql = format!("SET lock_timeout = 2000; DROP SCHEMA \"{schema}\" CASCADE");
                    let _ = sqlx::raw_sql(AssertSqlSafe(sql))
                        .execute(&mut connection)
                        .await;
                }
            });
        });
        let _ = dropping.join();
    }
}

/// Runs statements.
pub(crate) async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// One number.
pub(crate) async fn number(connection: &mut PgConnection, sql: &str) -> i64 {
    let row = sqlx::query(AssertSqlSafe(sql.to_owned()))
        .persistent(false)
        .fetch_one(connection)
        .await;
    row.unwrap_or_else(|e| panic!("{sql}: {e}")).get(0)
}

/// All rows of one text column.
pub(crate) async fn texts(connection: &mut PgConnection, sql: &str) -> Vec<String> {
    let rows = sqlx::query(AssertSqlSafe(sql.to_owned()))
        .persistent(false)
        .fetch_all(connection)
        .await;
    rows.unwrap_or_else(|e| panic!("{sql}: {e}"))
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// The n-th key, in order.
pub(crate) fn key(n: u64) -> Key {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    Key::from_bytes(bytes)
}

pub(crate) fn keys(range: std::ops::Range<u64>) -> Vec<Key> {
    range.map(key).collect()
}

pub(crate) fn message(payload: &'static [u8], offset: u64) -> Message {
    let mut message = Message::new(payload, "topic/0", Some(offset));
    message.headers = Arc::new([("h".to_owned(), Bytes::from_static(b"\x00v"))]);
    message.message_key = Some(Bytes::from_static(b"lane"));
    message.timestamp_ms = Some(-5);
    message
}

pub(crate) fn committed(commit: Commit<PostgresLane>) -> (Committed, PostgresLane) {
    match commit {
        Commit::Committed(proof, lane) => (proof, lane),
        Commit::RolledBack(fault) => panic!("rolled back: {fault}"),
        Commit::Unknown(fault) => panic!("unknown: {fault}"),
    }
}

/// The fault of a unit that is rolled back for certain.
pub(crate) fn rolled_back(commit: Commit<PostgresLane>) -> Fault {
    match commit {
        Commit::RolledBack(fault) => fault,
        Commit::Committed(..) => panic!("committed"),
        Commit::Unknown(fault) => panic!("unknown: {fault}"),
    }
}

/// A unit that claims keys, writes a record and commits.
pub(crate) async fn settle(
    world: &World,
    lane: i16,
    claims: &[Claim],
    record: &Record,
) -> Vec<Claimed> {
    let mut unit = world.unit(lane).await;
    let claimed = unit.claim(claims).await.expect("claims");
    unit.write(record).await.expect("a record");
    committed(unit.commit().await);
    claimed
}
