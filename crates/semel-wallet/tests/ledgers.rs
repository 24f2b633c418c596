//! The published vectors on every ledger, through the engine: in order, in copies, in every cut.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use semel::ledger::Ledger;
use semel::postgres::{Options as PostgresOptions, PostgresLedger};
use semel::rows::{Query, Rows, Value};
use semel::sqlite::{Options as SqliteOptions, SqliteLedger};
use semel::{Consumer, Ended, Extension, Observer, Outcome, Settings};
use semel_storm::SimSource;
use semel_wallet::vectors::{Vector, vectors};
use semel_wallet::{Config, Wallet, migrations};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

#[derive(Default)]
struct Ear(Mutex<Vec<Ended>>);

impl Observer for Ear {
    fn ended(&self, ended: Vec<Ended>) {
        self.0.lock().unwrap().extend(ended);
    }
}

/// Outcome and code, or what is awaited.
type Said = (String, Option<String>);

/// Runs a vector's messages, each `copies` times, in units of at most `batch`. One list per message.
async fn run<L>(ledger: Arc<L>, vector: &Vector, copies: usize, batch: usize) -> Vec<Vec<Said>>
where
    L: Ledger,
    L::Unit: Rows,
{
    let source = SimSource::new(1);
    for op in &vector.ops {
        for _ in 0..copies {
            source.push_payload("vector", op.clone());
        }
    }
    source.close();
    let ear = Arc::new(Ear::default());
    let wallet = semel::staged::handler(Wallet::new(vector.config.clone()));
    let consumer = Consumer::builder("wallet", ledger, Arc::new(wallet))
        .settings(Settings {
            until_idle: true,
            batch_count_max: batch,
            ..Settings::default()
        })
        .sources(["vector"])
        .observer(ear.clone())
        .enroll()
        .await
        .unwrap_or_else(|fault| panic!("{}: {fault}", vector.name));
    let run = consumer
        .attach("vector", Arc::new(source))
        .run(std::future::pending())
        .await;
    run.unwrap_or_else(|fault| panic!("{}: {fault}", vector.name));
    let mut ended = std::mem::take(&mut *ear.0.lock().unwrap());
    ended.sort_by_key(|e| e.sequence);
    let said: Vec<Said> = ended
        .into_iter()
        .map(|e| {
            let code = e
                .ending
                .code
                .or(e.ending.awaiting)
                .map(|code| code.to_string());
            (e.ending.outcome.to_string(), code)
        })
        .collect();
    said.chunks(copies).map(<[Said]>::to_vec).collect()
}

fn assert_said(vector: &Vector, said: &[Vec<Said>], how: &str) {
    let firsts: Vec<Said> = said.iter().map(|copies| copies[0].clone()).collect();
    assert_eq!(firsts, vector.expect, "{} {how}", vector.name);
    for copies in said {
        for copy in &copies[1..] {
            let right = match copies[0].0.as_str() {
                "dead" => copy == &copies[0],
                "parked" => copy == &copies[0] || copy.0 == "duplicate",
                _ => *copy == ("duplicate".to_owned(), None),
            };
            assert!(
                right,
                "{} {how}: {:?} then {copy:?}",
                vector.name, copies[0]
            );
        }
    }
}

/// Balances by account, letters by code, outcomes by id: read with the dialect's own SQL.
async fn assert_end(vector: &Vector, ledger: &impl Query, copies: usize, how: &str) {
    let mut balances = BTreeMap::new();
    let mut each = |row: &[Value]| {
        let Value::Text(account) = &row[0] else {
            panic!("an account is text")
        };
        let posted = match &row[1] {
            Value::Amount(posted) => *posted,
            Value::Text(digits) => digits.parse().unwrap(),
            other => panic!("posted is {other:?}"),
        };
        balances.insert(account.to_string(), posted);
        true
    };
    ledger
        .query("SELECT id, posted FROM wallet_account", &[], &mut each)
        .await
        .unwrap_or_else(|f| panic!("{f}"));
    for (account, balance) in &vector.balances {
        assert_eq!(
            balances.get(account),
            Some(balance),
            "{}: balance of {account}, {how}",
            vector.name
        );
    }
    let mut letters = 0;
    let mut fields = Vec::new();
    let mut each = |row: &[Value]| {
        letters += 1;
        if let Value::Text(field) = &row[0] {
            fields.push(field.to_string());
        }
        true
    };
    let sql = "SELECT CASE WHEN code = 'key_reused' THEN field END FROM semel_dead";
    ledger
        .query(sql, &[], &mut each)
        .await
        .unwrap_or_else(|f| panic!("{f}"));
    // Without a key a letter's subject is its place in the source, and each copy has its own here.
    let of = |(outcome, code): &Said| match (outcome.as_str(), code.as_deref()) {
        ("dead", Some("no_key")) => copies,
        ("dead", _) => 1,
        _ => 0,
    };
    let dead: usize = vector.expect.iter().map(of).sum();
    assert_eq!(
        letters, dead,
        "{} {how}: a copy of a dead message adds no letter",
        vector.name
    );
    if let Some(field) = &vector.reused_field {
        assert!(
            fields.contains(field),
            "{} {how}: {fields:?} should name {field}",
            vector.name
        );
    }
    for (id, (outcome, _)) in &vector.after_idle {
        let key = semel::Key::of_json(&semel::Json::Text(id.into())).unwrap();
        let mut found = None;
        let mut each = |row: &[Value]| {
            if row[0] == Value::Key(key)
                || row[0] == Value::Bytes(Bytes::copy_from_slice(key.as_bytes()))
            {
                found = if let Value::Int(number) = row[1] {
                    i16::try_from(number).ok()
                } else {
                    None
                };
            }
            true
        };
        let sql = "SELECT key, outcome FROM semel_ledger";
        ledger
            .query(sql, &[], &mut each)
            .await
            .unwrap_or_else(|f| panic!("{f}"));
        let ended = found.and_then(Outcome::from_number).map(Outcome::as_str);
        assert_eq!(
            ended,
            Some(outcome.as_str()),
            "{}: end of {id}, {how}",
            vector.name
        );
    }
}

fn ways(vector: &Vector) -> Vec<(usize, usize)> {
    let in_order = [(1, 1_000), (1, 1)];
    let copies = [(2, 1_000), (5, 1_000), (3, 4)];
    // A unit of n messages is cut behind every n-th; with 1 above, every boundary is cut somewhere.
    let cuts = (2..vector.ops.len())
        .filter(|n| n % 3 != 1)
        .map(|batch| (1, batch));
    in_order.into_iter().chain(copies).chain(cuts).collect()
}

async fn sqlite(folder: &std::path::Path, number: usize) -> Arc<SqliteLedger> {
    let url = format!("sqlite:{}", folder.join(format!("{number}.db")).display());
    let mut options = SqliteOptions::new(url);
    options.extensions = vec![Extension {
        name: migrations::PART,
        migrations: migrations::SQLITE,
    }];
    Arc::new(
        SqliteLedger::open(options)
            .await
            .unwrap_or_else(|fault| panic!("{fault}")),
    )
}

#[tokio::test]
async fn every_vector_holds_on_sqlite_in_order_in_copies_and_in_every_cut() {
    for vector in vectors() {
        let folder = tempfile::tempdir().unwrap();
        for (number, (copies, batch)) in ways(&vector).into_iter().enumerate() {
            let ledger = sqlite(folder.path(), number).await;
            let how = format!("on SQLite, {copies} copies, units of {batch}");
            let said = run(ledger.clone(), &vector, copies, batch).await;
            assert_said(&vector, &said, &how);
            assert_end(&vector, &*ledger, copies, &how).await;
        }
    }
}

/// A connection of one's own, and a ledger in a new schema.
async fn postgres(what: &str) -> (PgConnection, PostgresOptions) {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: run `scripts/test`, which starts PostgreSQL and sets it");
    let mut options = PostgresOptions::new(&url);
    options.schema = format!("{what}_{:016x}", rand::random::<u64>());
    options.extensions = vec![Extension {
        name: migrations::PART,
        migrations: migrations::POSTGRES,
    }];
    (PgConnection::connect(&url).await.unwrap(), options)
}

#[tokio::test]
async fn every_vector_holds_on_postgres_in_order_in_copies_and_in_every_cut() {
    let (mut own, options) = postgres("vectors").await;
    let ledger = PostgresLedger::open(options.clone())
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
    let ledger = Arc::new(ledger);
    for vector in vectors() {
        for (copies, batch) in ways(&vector) {
            let how = format!("on PostgreSQL, {copies} copies, units of {batch}");
            let said = run(ledger.clone(), &vector, copies, batch).await;
            assert_said(&vector, &said, &how);
            assert_end(&vector, &*ledger, copies, &how).await;
            empty(&mut own, &options.schema).await;
        }
    }
    let drop = format!(r#"DROP SCHEMA "{}" CASCADE"#, options.schema);
    own.execute(sqlx::query(AssertSqlSafe(drop))).await.unwrap();
}

/// A round of so many bets that its row names a list, that another, and so on, and its cancel.
fn long_round() -> Vector {
    let opened = [
        r#"{"op":"open_account","id":"o1","account":"bank","asset":"EUR","kind":"external"}"#,
        r#"{"op":"open_account","id":"o2","account":"house","asset":"EUR","kind":"house"}"#,
        r#"{"op":"open_account","id":"o3","account":"p1","asset":"EUR"}"#,
        r#"{"op":"transfer","id":"f1","debit":"bank","credit":"p1","asset":"EUR","amount":1000}"#,
    ];
    let bet = |n| {
        format!(r#"{{"op":"bet","id":"b{n}","round":"r","account":"p1","asset":"EUR","amount":1}}"#)
    };
    let cancel = r#"{"op":"cancel_round","id":"c","round":"r","account":"p1"}"#;
    let ops: Vec<Bytes> = opened
        .into_iter()
        .map(str::to_owned)
        .chain((0..1_000).map(bet))
        .chain([cancel.to_owned()])
        .map(Bytes::from)
        .collect();
    Vector {
        name: "a round of a thousand bets is cancelled".to_owned(),
        config: Config::new([("EUR", 2)]).unwrap().house("house").unwrap(),
        expect: vec![("applied".to_owned(), None); ops.len()],
        ops,
        balances: BTreeMap::from([("p1".to_owned(), 1_000), ("house".to_owned(), 0)]),
        after_idle: BTreeMap::new(),
        reused_field: None,
    }
}

#[tokio::test]
async fn on_sqlite_a_round_of_a_thousand_bets_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = sqlite(folder.path(), 0).await;
    let vector = long_round();
    let said = run(ledger.clone(), &vector, 1, 100).await;
    assert_said(&vector, &said, "on SQLite");
    assert_end(&vector, &*ledger, 1, "on SQLite").await;
}

#[tokio::test]
async fn a_copy_of_what_was_refused_for_its_asset_is_a_duplicate_when_the_asset_is_declared() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = sqlite(folder.path(), 0).await;
    let op = r#"{"op":"transfer","id":"t1","debit":"a","credit":"b","asset":"XAU","value":"5.00"}"#;
    let unknown = Vector {
        name: "an asset that is declared later".to_owned(),
        config: Config::new([("EUR", 2)]).unwrap(),
        ops: vec![Bytes::from(op)],
        expect: vec![("refused".to_owned(), Some("asset_unknown".to_owned()))],
        balances: BTreeMap::new(),
        after_idle: BTreeMap::new(),
        reused_field: None,
    };
    let said = run(ledger.clone(), &unknown, 1, 100).await;
    assert_said(&unknown, &said, "before");
    let declared = Vector {
        config: Config::new([("EUR", 2), ("XAU", 2)]).unwrap(),
        expect: vec![("duplicate".to_owned(), None)],
        ..unknown
    };
    let said = run(ledger, &declared, 1, 100).await;
    assert_said(&declared, &said, "after");
}

#[tokio::test]
async fn on_postgres_a_round_of_a_thousand_bets_is_cancelled() {
    let (mut own, options) = postgres("long_round").await;
    let ledger = PostgresLedger::open(options.clone()).await;
    let ledger = Arc::new(ledger.unwrap_or_else(|fault| panic!("{fault}")));
    let vector = long_round();
    let said = run(ledger.clone(), &vector, 1, 100).await;
    assert_said(&vector, &said, "on PostgreSQL");
    assert_end(&vector, &*ledger, 1, "on PostgreSQL").await;
    let drop = format!(r#"DROP SCHEMA "{}" CASCADE"#, options.schema);
    own.execute(sqlx::query(AssertSqlSafe(drop))).await.unwrap();
}

/// Empties every table of the schema but the registers of migrations and consumers.
async fn empty(own: &mut PgConnection, schema: &str) {
    let sql = "SELECT tablename::text FROM pg_tables WHERE schemaname = $1 \
               AND tablename NOT IN ('semel_schema', 'semel_consumer', 'semel_source')";
    let tables: Vec<String> = sqlx::query_scalar(sql)
        .bind(schema)
        .fetch_all(&mut *own)
        .await
        .unwrap();
    let list: Vec<String> = tables
        .iter()
        .map(|table| format!(r#""{schema}".{table}"#))
        .collect();
    let delete: String = list
        .iter()
        .map(|table| format!("DELETE FROM {table};"))
        .collect();
    own.execute(sqlx::raw_sql(AssertSqlSafe(delete)))
        .await
        .unwrap();
}
