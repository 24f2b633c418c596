//! A ledger on a file of its own, and small things that tests say often.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by unwrapping"
)]

use std::ops::Range;
use std::path::PathBuf;

use semel_core::ledger::{
    Claim, ClaimKind, Commit, ConsumerId, Enrolment, Instance, LaneId, Parked, SourceId, Which,
};
use semel_core::rows::{Query, Value};
use semel_core::{FieldSums, Fingerprint, Key, Ledger, Limit, Scheme, Unit};
use semel_sqlite::{Options, SqliteLane, SqliteLedger, SqliteUnit};
use sqlx::{Connection, Executor, SqliteConnection};
use tempfile::TempDir;

pub(crate) struct World {
    pub(crate) ledger: SqliteLedger,
    pub(crate) consumer: ConsumerId,
    pub(crate) lane: LaneId,
    pub(crate) path: PathBuf,
    _dir: TempDir,
}

impl World {
    pub(crate) async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("semel.db");
        let ledger = SqliteLedger::open(Options::new(url(&path))).await.unwrap();
        let consumer = ledger.enroll(&enrolment()).await.unwrap().consumer;
        let lane = LaneId {
            consumer,
            instance: Instance([7; 16]),
            lane: 0,
        };
        Self {
            ledger,
            consumer,
            lane,
            path,
            _dir: dir,
        }
    }

    /// A unit on a new connection.
    pub(crate) async fn unit(&self) -> SqliteUnit {
        let lane = self.ledger.connect(self.lane).await.unwrap();
        self.ledger.begin(lane).await.unwrap()
    }

    pub(crate) async fn parked(&self, which: Which<'_>) -> Vec<Parked> {
        self.ledger
            .parked(self.consumer, which, Limit::messages(100))
            .await
            .unwrap()
    }

    /// Runs SQL behind the ledger's back.
    pub(crate) async fn sql(&self, sql: &str) {
        self.try_sql(sql).await.unwrap();
    }

    pub(crate) async fn try_sql(&self, sql: &str) -> Result<(), sqlx::Error> {
        let mut connection = SqliteConnection::connect(&url(&self.path)).await?;
        connection.execute(sqlx::AssertSqlSafe(sql)).await?;
        connection.close().await
    }

    /// The integer that a query answers.
    pub(crate) async fn count(&self, sql: &'static str, args: &[Value]) -> i64 {
        let mut found = None;
        self.ledger
            .query(sql, args, &mut |row| {
                found = Some(row[0].clone());
                true
            })
            .await
            .unwrap();
        match found {
            Some(Value::Int(count)) => count,
            other => panic!("no integer: {other:?}"),
        }
    }
}

pub(crate) fn url(path: &std::path::Path) -> String {
    format!("sqlite:{}", path.display())
}

pub(crate) fn enrolment() -> Enrolment {
    Enrolment {
        consumer: "wallet".to_owned(),
        handler: "wallet".to_owned(),
        rules: Fingerprint::of_bytes(b"rules"),
        sources: vec!["a".to_owned()],
        accept_key_change: false,
    }
}

/// The nth key, in order.
pub(crate) fn key(n: u32) -> Key {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    Key::from_bytes(bytes)
}

pub(crate) fn keys(range: Range<u32>) -> Vec<Key> {
    range.map(key).collect()
}

pub(crate) fn claim(key: Key) -> Claim {
    Claim {
        key,
        fingerprint: Fingerprint::of_bytes(b"x"),
        scheme: Scheme::ALL,
        sums: FieldSums::from_bytes(&[1, 2, 3, 4]),
        source: SourceId(1),
        kind: ClaimKind::New,
    }
}

pub(crate) async fn committed(unit: SqliteUnit) -> SqliteLane {
    match unit.commit().await {
        Commit::Committed(_, lane) => lane,
        other => panic!("not committed: {other:?}"),
    }
}
