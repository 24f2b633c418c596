//! A full disk and a transaction that ends by itself: made on the unit's own connection, which no user can
//! reach, and so tested in here.

use semel_core::ledger::{
    Claim, ClaimKind, Commit, Enrolment, Instance, LaneId, Resolved, Save, SourceId,
};
use semel_core::rows::{Query, Value};
use semel_core::{Class, FieldSums, Fingerprint, Key, Ledger, Scheme, Unit};
use semel_sql::Lend;

use crate::{Options, SqliteLedger, SqliteUnit};

fn claim(n: u8) -> Claim {
    Claim {
        key: Key::from_bytes([n; 16]),
        fingerprint: Fingerprint::of_bytes(b"x"),
        scheme: Scheme::ALL,
        sums: FieldSums::default(),
        source: SourceId(1),
        kind: ClaimKind::New,
    }
}

async fn open(dir: &tempfile::TempDir) -> (SqliteLedger, SqliteUnit) {
    let url = format!("sqlite:{}", dir.path().join("semel.db").display());
    let ledger = SqliteLedger::open(Options::new(url)).await.unwrap();
    let enrolment = Enrolment {
        consumer: "wallet".to_owned(),
        handler: "wallet".to_owned(),
        rules: Fingerprint::NONE,
        sources: vec!["a".to_owned()],
        accept_key_change: false,
    };
    let consumer = ledger.enroll(&enrolment).await.unwrap().consumer;
    let lane = ledger
        .connect(LaneId {
            consumer,
            instance: Instance([1; 16]),
            lane: 0,
        })
        .await
        .unwrap();
    let unit = ledger.begin(lane).await.unwrap();
    (ledger, unit)
}

async fn count(ledger: &SqliteLedger, sql: &'static str) -> i64 {
    let mut found = -1;
    let mut each = |row: &[Value]| {
        if let Value::Int(count) = row[0] {
            found = count;
        }
        true
    };
    ledger.query(sql, &[], &mut each).await.unwrap();
    found
}

#[tokio::test]
async fn t17_a_full_disk_is_down_and_nothing_runs_on_outside_of_the_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let (ledger, mut unit) = open(&dir).await;
    unit.claim(&[claim(1)]).await.unwrap();
    sqlx::query("CREATE TABLE wallet (id INTEGER PRIMARY KEY, junk BLOB) STRICT")
        .execute(&mut unit.lend())
        .await
        .unwrap();
    unit.save(Save::Claims).await.unwrap();
    // The limit holds for this connection alone, as a full disk would for all.
    unit.link().run("PRAGMA max_page_count = 60").await.unwrap();
    let fill = "INSERT INTO wallet (junk) VALUES (zeroblob(4000000))";
    let error = sqlx::query(fill)
        .execute(&mut unit.lend())
        .await
        .unwrap_err();
    assert_eq!(crate::classify(&error), Class::Down, "{error}");
    // A handler that swallows the error and goes on: nothing of it may stay.
    assert!(
        sqlx::query("INSERT INTO wallet (junk) VALUES (x'00')")
            .execute(&mut unit.lend())
            .await
            .is_err()
    );
    assert_eq!(
        unit.claim(&[claim(2)]).await.unwrap_err().class,
        Class::Down
    );
    let fence = unit.fence();
    let Commit::RolledBack(fault) = unit.commit().await else {
        panic!("it must not commit")
    };
    assert_eq!(fault.class, Class::Down);
    assert_eq!(ledger.resolve(fence).await.unwrap(), Resolved::RolledBack);
    assert_eq!(
        count(
            &ledger,
            "SELECT count(*) FROM sqlite_master WHERE name = 'wallet'"
        )
        .await,
        0
    );
    assert_eq!(count(&ledger, "SELECT count(*) FROM semel_ledger").await, 0);
}

#[tokio::test]
async fn t17_a_unit_that_sqlite_rolled_back_by_itself_neither_commits_nor_goes_back() {
    for goes_back in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (ledger, mut unit) = open(&dir).await;
        unit.claim(&[claim(1)]).await.unwrap();
        unit.save(Save::Claims).await.unwrap();
        // As SQLite does on some errors, but with no error that the unit could see.
        unit.link().run("ROLLBACK").await.unwrap();
        if goes_back {
            assert!(
                unit.back(Save::Claims).await.is_err(),
                "the savepoint went with the transaction"
            );
        }
        let Commit::RolledBack(fault) = unit.commit().await else {
            panic!("it must not commit")
        };
        if !goes_back {
            assert_eq!(fault.class, Class::Down);
            assert!(fault.detail().contains("rolled back underneath"), "{fault}");
        }
        assert_eq!(count(&ledger, "SELECT count(*) FROM semel_ledger").await, 0);
    }
}

#[tokio::test]
async fn a_deferred_foreign_key_that_fails_at_commit_rolls_back_for_certain() {
    let dir = tempfile::tempdir().unwrap();
    let (ledger, mut unit) = open(&dir).await;
    unit.claim(&[claim(1)]).await.unwrap();
    for sql in [
        "CREATE TABLE one (id INTEGER PRIMARY KEY) STRICT",
        "CREATE TABLE two (one INTEGER REFERENCES one DEFERRABLE INITIALLY DEFERRED) STRICT",
        "INSERT INTO two VALUES (1)",
    ] {
        sqlx::query(sql).execute(&mut unit.lend()).await.unwrap();
    }
    let fence = unit.fence();
    let Commit::RolledBack(fault) = unit.commit().await else {
        panic!("it must not commit")
    };
    assert_eq!(fault.class, Class::Poison);
    assert_eq!(ledger.resolve(fence).await.unwrap(), Resolved::RolledBack);
}
