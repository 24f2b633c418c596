//! Somebody sends operations whose ids are the keys that the wallet derives itself. On both ledgers: an expiry is
//! not stopped, a group is not stopped, and nothing is out of balance.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use semel::ledger::Ledger;
use semel::postgres::{Options as PostgresOptions, PostgresLedger};
use semel::rows::{Query, Rows};
use semel::sqlite::{Options as SqliteOptions, SqliteLedger};
use semel::{Consumer, Extension, Key, Outcome, Part, Settings, Summary};
use semel_storm::SimSource;
use semel_wallet::{Config, Dialect, Expired, Reader, Sweep, Wallet, migrations};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

const OPENED: [&str; 4] = [
    r#"{"op":"open_account","id":"o1","account":"bank","asset":"EUR","kind":"external"}"#,
    r#"{"op":"open_account","id":"o2","account":"p1","asset":"EUR"}"#,
    r#"{"op":"open_account","id":"o3","account":"p2","asset":"EUR"}"#,
    r#"{"op":"transfer","id":"o4","debit":"bank","credit":"p1","asset":"EUR","amount":1000}"#,
];

fn key(id: &str) -> Key {
    Key::derive(&[Part::Text(id)]).unwrap()
}

async fn run<L>(ledger: &Arc<L>, dialect: Dialect, ops: &[String]) -> Summary
where
    L: Ledger + Query,
    L::Unit: Rows,
{
    let source = SimSource::new(1);
    ops.iter()
        .for_each(|op| source.push_payload("ops", op.clone().into_bytes()));
    source.close();
    let config = Config::new([("EUR", 2)]).unwrap();
    let sweep = Sweep::new(
        Arc::new(Wallet::new(config.clone())),
        ledger.clone(),
        dialect,
    );
    let wallet = Arc::new(semel::staged::handler(Wallet::new(config)));
    let consumer = Consumer::builder("wallet", ledger.clone(), wallet)
        .settings(Settings {
            until_idle: true,
            ..Settings::default()
        })
        .sources(["ops"])
        .sweeper(Arc::new(sweep))
        .enroll()
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
    let run = consumer
        .attach("ops", Arc::new(source))
        .run(std::future::pending())
        .await;
    run.unwrap_or_else(|fault| panic!("{fault}"))
}

/// The keys of two holds' expiries are taken: by an operation that is applied, and by one that is refused.
async fn expiries_whose_keys_are_taken<L>(ledger: Arc<L>, dialect: Dialect)
where
    L: Ledger + Query,
    L::Unit: Rows,
{
    let takes = |hold: &str, amount| {
        let taken = key(hold).child("expire").unwrap();
        format!(
            r#"{{"op":"transfer","id":"{taken}","debit":"p1","credit":"p2","asset":"EUR","amount":{amount}}}"#
        )
    };
    let authorize = |id, hold| {
        format!(
            r#"{{"op":"authorize","id":"{id}","hold":"{hold}","debit":"p1","credit":"p2","asset":"EUR","amount":100,"expires_at":"2020-01-01T00:00:00Z"}}"#
        )
    };
    let mut ops: Vec<String> = OPENED.map(str::to_owned).into();
    ops.extend([takes("h1", 10), takes("h2", 9_999)]);
    ops.extend([
        authorize("a1", "h1"),
        authorize("a2", "h2"),
        authorize("a3", "h3"),
    ]);
    run(&ledger, dialect, &ops).await;
    // A second pass finds nothing to do.
    let again = run(&ledger, dialect, &[]).await;
    assert_eq!(again.released.values().sum::<u64>(), 0);
    let reader = Reader::new(&*ledger, dialect);
    let player = reader.balance("p1").await.unwrap().unwrap();
    assert_eq!((player.posted, player.pending), (990, 0));
    for (hold, inner) in [("h1", true), ("h2", true), ("h3", false)] {
        let expired = Expired::new(key(hold), hold);
        let expired = if inner {
            expired.with_inner_key()
        } else {
            expired
        };
        let (row, _) = reader.operation(expired.key).await.unwrap().unwrap();
        assert_eq!(row.verb.as_str(), "expire", "{hold}");
    }
    sound(&reader).await;
}

/// An operation has the id that a leg of a group would be stored under.
async fn groups_whose_legs_keys_are_sent<L>(ledger: Arc<L>, dialect: Dialect)
where
    L: Ledger + Query,
    L::Unit: Rows,
{
    let mut ops: Vec<String> = OPENED.map(str::to_owned).into();
    let keys = [
        key("g1").inner("leg", 1).unwrap(),
        key("g1").numbered_child("leg", 1).unwrap(),
    ];
    for taken in keys {
        ops.push(format!(
            r#"{{"op":"transfer","id":"{taken}","debit":"p1","credit":"p2","asset":"EUR","amount":10}}"#
        ));
    }
    ops.push(
        r#"{"op":"transfer_group","id":"g1","legs":[{"debit":"p1","credit":"p2","asset":"EUR","amount":1},{"debit":"p1","credit":"p2","asset":"EUR","amount":2}]}"#
            .to_owned(),
    );
    let summary = run(&ledger, dialect, &ops).await;
    assert_eq!(summary.outcomes[&Outcome::Applied], 7);
    let reader = Reader::new(&*ledger, dialect);
    assert_eq!(reader.balance("p2").await.unwrap().unwrap().posted, 23);
    sound(&reader).await;
}

async fn sound(reader: &Reader<'_, impl Query>) {
    let checks = reader.audit().await.unwrap();
    assert!(checks.iter().all(|check| check.ok), "{checks:#?}");
}

async fn sqlite(folder: &std::path::Path) -> Arc<SqliteLedger> {
    let mut options = SqliteOptions::new(format!("sqlite:{}", folder.join("ops.db").display()));
    options.extensions = vec![Extension {
        name: migrations::PART,
        migrations: migrations::SQLITE,
    }];
    Arc::new(SqliteLedger::open(options).await.unwrap())
}

#[tokio::test]
async fn on_sqlite_a_message_under_the_key_of_an_expiry_does_not_stop_it() {
    let folder = tempfile::tempdir().unwrap();
    expiries_whose_keys_are_taken(sqlite(folder.path()).await, Dialect::Sqlite).await;
}

#[tokio::test]
async fn on_sqlite_a_message_under_the_key_of_a_leg_does_not_stop_its_group() {
    let folder = tempfile::tempdir().unwrap();
    groups_whose_legs_keys_are_sent(sqlite(folder.path()).await, Dialect::Sqlite).await;
}

#[tokio::test]
async fn on_postgres_messages_under_derived_keys_stop_neither_expiries_nor_groups() {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: run `scripts/test`, which starts PostgreSQL and sets it");
    let mut own = PgConnection::connect(&url).await.unwrap();
    for number in 0..2 {
        let mut options = PostgresOptions::new(&url);
        options.schema = format!("taken_{:016x}", rand::random::<u64>());
        options.extensions = vec![Extension {
            name: migrations::PART,
            migrations: migrations::POSTGRES,
        }];
        let ledger = Arc::new(PostgresLedger::open(options.clone()).await.unwrap());
        if number == 0 {
            expiries_whose_keys_are_taken(ledger, Dialect::Postgres).await;
        } else {
            groups_whose_legs_keys_are_sent(ledger, Dialect::Postgres).await;
        }
        let drop = format!(r#"DROP SCHEMA "{}" CASCADE"#, options.schema);
        own.execute(sqlx::query(AssertSqlSafe(drop))).await.unwrap();
    }
}
