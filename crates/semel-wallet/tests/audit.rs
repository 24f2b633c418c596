//! The read side and the audit over a long mixed day on both ledgers: what is read is what the model has,
//! a sound book passes, and for each check there is a saboteur that it catches.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::path::Path;
use std::sync::Arc;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use semel::ledger::Ledger;
use semel::postgres::{Options as PostgresOptions, PostgresLedger};
use semel::rows::{Query, Rows};
use semel::sqlite::{Options as SqliteOptions, SqliteLedger};
use semel::{Extension, Settings};
use semel_storm::SimSource;
use semel_wallet::row::{BetStatus, RECENT_MAX, TABLES};
use semel_wallet::{Check, Config, Dialect, Direction, Reader, Wallet, migrations};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};
use support::stream::{OPENED, stream};
use support::{Consumer, InModel};

fn config() -> Config {
    Config::new([("EUR", 2), ("JPY", 0)])
        .unwrap()
        .house("house")
        .unwrap()
}

/// One of everything that the checks look at, whatever the dice say.
const CERTAIN: [&str; 10] = [
    r#"{"op":"transfer","id":"d1","debit":"p1","credit":"p2","asset":"EUR","amount":100}"#,
    r#"{"op":"refund","id":"d2","capture":"d1","amount":40}"#,
    r#"{"op":"transfer","id":"d3","debit":"p1","credit":"p2","asset":"EUR","amount":30}"#,
    r#"{"op":"reverse","id":"d4","transfer":"d3"}"#,
    r#"{"op":"authorize","id":"d5","hold":"hd","debit":"p1","credit":"p2","asset":"EUR","amount":50}"#,
    r#"{"op":"capture","id":"d6","hold":"hd","amount":20}"#,
    r#"{"op":"bet","id":"d7","round":"rd","account":"p1","asset":"EUR","amount":20}"#,
    r#"{"op":"rollback","id":"d8","bet":"d7"}"#,
    r#"{"op":"bet","id":"d9","round":"rd","account":"p1","asset":"EUR","amount":20}"#,
    r#"{"op":"win","id":"d10","round":"rd","account":"p1","asset":"EUR","amount":90,"bet":"d9"}"#,
];

/// A round with more bets than its row lists, so that bets list bets.
fn long_round() -> impl Iterator<Item = String> {
    (0..2 * RECENT_MAX + 3).map(|number| {
        format!(
            r#"{{"op":"bet","id":"long-{number}","round":"long","account":"p1","asset":"EUR","amount":1}}"#
        )
    })
}

/// The same long day on every run, and what the model makes of it. Without messages that park: when they are
/// released is up to the engine, and versions depend on it.
fn day(length: usize) -> (Vec<String>, Consumer<InModel>) {
    let mut consumer = Consumer::new(config(), InModel::new(config()));
    let mut runner = TestRunner::deterministic();
    let streams = std::iter::repeat_with(|| stream(60).new_tree(&mut runner).unwrap().current());
    // Ids of one stream meet the names of the others, so later streams repeat, clash and refer back.
    let certain = OPENED.iter().chain(&CERTAIN).map(|op| (*op).to_owned());
    let mut ops: Vec<String> = certain
        .chain(long_round())
        .chain(streams.flatten().take(length))
        .collect();
    ops.retain(|op| {
        consumer.deliver(&[op]);
        let parked = std::mem::take(&mut consumer.parked);
        parked
            .keys()
            .for_each(|key| drop(consumer.rows.remove(key)));
        parked.is_empty()
    });
    let chained = consumer
        .book
        .model
        .rounds()
        .any(|round| round.chain.is_some());
    assert!(chained, "no round has more bets than its row lists");
    (ops, consumer)
}

async fn run<L>(ledger: Arc<L>, ops: &[String])
where
    L: Ledger,
    L::Unit: Rows,
{
    let source = SimSource::new(1);
    ops.iter()
        .for_each(|op| source.push_payload("day", op.clone().into_bytes()));
    source.close();
    let wallet = Arc::new(semel::staged::handler(Wallet::new(config())));
    let consumer = semel::Consumer::builder("wallet", ledger, wallet)
        .settings(Settings {
            until_idle: true,
            batch_count_max: 64,
            ..Settings::default()
        })
        .sources(["day"])
        .enroll()
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
    let run = consumer
        .attach("day", Arc::new(source))
        .run(std::future::pending())
        .await;
    run.unwrap_or_else(|fault| panic!("{fault}"));
}

async fn assert_reads(reader: &Reader<'_, impl Query>, consumer: &Consumer<InModel>) {
    let model = &consumer.book.model;
    for account in model.accounts() {
        let read = reader
            .balance(&account.id)
            .await
            .unwrap_or_else(|f| panic!("{f}"))
            .expect("it is open");
        assert_eq!(
            (read.posted, read.pending, read.version),
            (account.posted, account.pending, account.version)
        );
        let mut lines = Vec::new();
        let mut each = |line| {
            lines.push(line);
            true
        };
        assert!(
            reader
                .statement(&account.id, None, None, &mut each)
                .await
                .unwrap_or_else(|f| panic!("{f}"))
        );
        let entries: Vec<_> = model
            .entries()
            .iter()
            .filter(|entry| entry.account == account.key)
            .collect();
        assert_eq!(lines.len(), entries.len());
        for (line, entry) in lines.iter().zip(entries) {
            assert_eq!(
                (line.transfer, line.version, line.balance_after),
                (entry.operation, entry.version, entry.balance_after)
            );
            assert_eq!(
                (line.amount, line.direction == Direction::Debit),
                (entry.amount.unsigned_abs(), entry.amount < 0)
            );
        }
    }
    assert_eq!(
        reader
            .balance("nobody")
            .await
            .unwrap_or_else(|f| panic!("{f}")),
        None
    );
    for round in model.rounds() {
        let player = model
            .accounts()
            .find(|account| account.key == round.account)
            .expect("players are open");
        let read = reader
            .rounds(&round.id, Some(&player.id))
            .await
            .unwrap_or_else(|f| panic!("{f}"));
        let [read] = &read[..] else {
            panic!("{round:?} is read once, not {read:?}")
        };
        assert_eq!(
            (read.staked, read.paid),
            (round.staked, round.paid),
            "{round:?}"
        );
        let of_round = |status: fn(BetStatus) -> bool| {
            model
                .bets()
                .filter(|bet| bet.round == Some(round.key) && status(bet.status))
                .count()
        };
        assert_eq!(read.bets.len(), of_round(|_| true));
        let back = read
            .bets
            .iter()
            .filter(|bet| bet.status == "rolled_back")
            .count();
        assert_eq!(back, of_round(|status| status == BetStatus::RolledBack));
        assert_eq!(
            read.wins.iter().map(|win| win.amount).sum::<i128>(),
            round.paid
        );
    }
    for row in model.operations().filter(|row| row.leg == 0) {
        let (read, _) = reader
            .operation(row.key)
            .await
            .unwrap_or_else(|f| panic!("{f}"))
            .expect("it was applied");
        assert_eq!(&read, row);
        let reply = reader
            .reply(row.key)
            .await
            .unwrap_or_else(|f| panic!("{f}"))
            .unwrap();
        assert!(reply.starts_with(br#"{"outcome":"applied""#), "{reply:?}");
    }
}

async fn audited(query: &impl Query, dialect: Dialect) -> Vec<Check> {
    Reader::new(query, dialect)
        .audit()
        .await
        .unwrap_or_else(|fault| panic!("{fault}"))
}

fn violated(checks: &[Check]) -> Vec<&str> {
    checks
        .iter()
        .filter(|check| !check.ok)
        .map(|check| check.name)
        .collect()
}

async fn sqlite(path: &Path) -> Arc<SqliteLedger> {
    let mut options = SqliteOptions::new(format!("sqlite:{}", path.display()));
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

/// One for each check: what somebody did to the tables by hand.
const SABOTEURS: &[(&str, &str)] = &[
    (
        "balance_is_the_sum_of_entries",
        "UPDATE wallet_account SET posted = '987654' WHERE id = 'p1'",
    ),
    (
        "versions_have_no_gaps",
        "UPDATE wallet_account SET version = version + 1 WHERE id = 'p1'",
    ),
    (
        "balances_after_make_a_chain",
        "UPDATE wallet_entry SET balance_after = '1234567' WHERE version = 1",
    ),
    (
        "limits_hold",
        "UPDATE wallet_account SET posted = '-1' WHERE id = 'p1'",
    ),
    (
        "entries_sum_to_zero_per_asset",
        "UPDATE wallet_entry SET amount = '77777' WHERE version = 1",
    ),
    (
        "entries_of_an_operation_sum_to_zero",
        "UPDATE wallet_entry SET amount = '77777' WHERE version = 1",
    ),
    (
        "entries_have_an_account_and_an_operation",
        "DELETE FROM wallet_operation WHERE op = 'bet'",
    ),
    (
        "pending_is_the_sum_of_open_holds",
        "UPDATE wallet_account SET pending = '3' WHERE id = 'house'",
    ),
    (
        "a_hold_resolves_at_most_once",
        "UPDATE wallet_hold SET status = 'released' WHERE status = 'captured'",
    ),
    (
        "a_hold_resolves_at_most_once",
        "UPDATE wallet_hold SET status = 'open', remaining = '170141183460469231731687303715884105727' WHERE id = 'hd'",
    ),
    (
        "a_hold_resolves_at_most_once",
        "UPDATE wallet_operation SET op = 'release', amount = '170141183460469231731687303715884105727' WHERE op = 'capture'",
    ),
    (
        "refunds_are_within_captures",
        "UPDATE wallet_operation SET refunded = '99999' WHERE op = 'transfer'",
    ),
    (
        "a_transfer_is_reversed_at_most_once",
        "UPDATE wallet_operation SET reversed_by = key WHERE op = 'transfer'",
    ),
    (
        "a_bet_ends_once",
        "UPDATE wallet_bet SET status = 'open', ended_by = NULL WHERE status = 'rolled_back'",
    ),
    (
        "a_tombstoned_bet_is_never_applied",
        "UPDATE wallet_bet SET status = 'void' WHERE status = 'rolled_back'",
    ),
    (
        "staked_is_the_sum_of_standing_bets",
        "UPDATE wallet_round SET staked = '1234567'",
    ),
    (
        "paid_is_the_sum_of_wins",
        "UPDATE wallet_round SET paid = '1234567'",
    ),
    (
        "operations_have_the_entries_they_tell",
        "UPDATE wallet_operation SET amount = '101' WHERE id = 'd1'",
    ),
    (
        "operations_refer_to_what_is_there",
        "UPDATE wallet_operation SET reference = NULL WHERE id = 'd6'",
    ),
    (
        "replies_tell_balances_of_entries",
        "UPDATE wallet_operation SET balance = '1' WHERE id = 'd1'",
    ),
    (
        "accounts_are_as_they_were_opened",
        "UPDATE wallet_account SET status = 'closed' WHERE id = 'p1'",
    ),
    (
        "holds_are_as_they_were_authorized",
        "UPDATE wallet_hold SET credit = debit WHERE id = 'hd'",
    ),
    (
        "bets_are_as_they_were_placed",
        "UPDATE wallet_bet SET house = account WHERE status = 'open'",
    ),
    (
        "rounds_are_as_their_operations_left_them",
        "UPDATE wallet_round SET recent = NULL WHERE id = 'rd'",
    ),
    (
        "every_effect_has_an_applied_key",
        "DELETE FROM semel_ledger WHERE outcome = 1",
    ),
    (
        "every_applied_key_has_an_effect",
        "DELETE FROM wallet_operation WHERE op = 'open_account'",
    ),
];

const P2: &str = "(SELECT key FROM wallet_account WHERE id = 'p2')";

/// Every column that a later decision or reply reads, in a row that exists, with another value. Both sides of what the
/// entries alone would not show are among them: the amount that a reverse gives back, the account that it takes it from.
const TAMPERED: &[(&str, &str, &str, &str)] = &[
    ("wallet_account", "id", "'nobody'", "id = 'p1'"),
    ("wallet_account", "asset", "'JPY'", "id = 'p1'"),
    ("wallet_account", "kind", "'bonus'", "id = 'p1'"),
    ("wallet_account", "limit_kind", "'none'", "id = 'p1'"),
    ("wallet_account", "status", "'frozen'", "id = 'house'"),
    ("wallet_account", "status", "'closed'", "id = 'p1'"),
    ("wallet_account", "posted", "'98765432'", "id = 'p1'"),
    ("wallet_account", "pending", "'1'", "id = 'house'"),
    ("wallet_account", "version", "1", "id = 'p1'"),
    ("wallet_operation", "op", "'reverse'", "id = 'd1'"),
    ("wallet_operation", "op", "'capture'", "id = 'd1'"),
    ("wallet_operation", "op", "'transfer'", "id = 'd6'"),
    ("wallet_operation", "op", "'transfer'", "id = 'd4'"),
    ("wallet_operation", "op", "'transfer'", "id = 'd7'"),
    ("wallet_operation", "leg", "1", "id = 'd1'"),
    ("wallet_operation", "debit", P2, "id = 'd1'"),
    ("wallet_operation", "credit", "debit", "id = 'd1'"),
    ("wallet_operation", "amount", "'101'", "id = 'd1'"),
    ("wallet_operation", "asset", "'JPY'", "id = 'd1'"),
    ("wallet_operation", "debit", "credit", "id = 'd6'"),
    ("wallet_operation", "credit", "debit", "id = 'd6'"),
    ("wallet_operation", "amount", "'21'", "id = 'd6'"),
    ("wallet_operation", "asset", "'JPY'", "id = 'd6'"),
    ("wallet_operation", "amount", "'51'", "id = 'd5'"),
    ("wallet_operation", "reference", "NULL", "id = 'd6'"),
    ("wallet_operation", "reference", "key", "id = 'd2'"),
    ("wallet_operation", "reference", "key", "id = 'd10'"),
    ("wallet_operation", "bet", "NULL", "id = 'd10'"),
    (
        "wallet_operation",
        "note",
        "'bonus none'",
        "op = 'open_account' AND reference = (SELECT key FROM wallet_account WHERE id = 'p1')",
    ),
    ("wallet_operation", "refunded", "'39'", "id = 'd1'"),
    ("wallet_operation", "refunded", "NULL", "id = 'd1'"),
    ("wallet_operation", "reversed_by", "NULL", "id = 'd3'"),
    ("wallet_operation", "reversed_by", "key", "id = 'd1'"),
    ("wallet_operation", "tombstoned", "1", "id = 'd8'"),
    ("wallet_operation", "account", P2, "id = 'd1'"),
    ("wallet_operation", "balance", "'1'", "id = 'd1'"),
    ("wallet_operation", "available", "'99999999'", "id = 'd1'"),
    ("wallet_operation", "version", "1", "id = 'd1'"),
    (
        "wallet_entry",
        "account",
        "operation",
        "operation = (SELECT key FROM wallet_operation WHERE id = 'long-1') AND amount = '-1'",
    ),
    (
        "wallet_entry",
        "operation",
        "(SELECT key FROM wallet_operation WHERE id = 'd3')",
        "operation = (SELECT key FROM wallet_operation WHERE id = 'd1')",
    ),
    (
        "wallet_entry",
        "amount",
        "'101'",
        "operation = (SELECT key FROM wallet_operation WHERE id = 'd1') AND amount = '100'",
    ),
    (
        "wallet_entry",
        "balance_after",
        "'101'",
        "operation = (SELECT key FROM wallet_operation WHERE id = 'd1') AND amount = '100'",
    ),
    ("wallet_hold", "id", "'hx'", "id = 'hd'"),
    ("wallet_hold", "debit", "credit", "id = 'hd'"),
    ("wallet_hold", "credit", "debit", "id = 'hd'"),
    ("wallet_hold", "asset", "'JPY'", "id = 'hd'"),
    ("wallet_hold", "amount", "'51'", "id = 'hd'"),
    (
        "wallet_hold",
        "expires_at",
        "(SELECT at FROM wallet_operation WHERE id = 'd1')",
        "id = 'hd'",
    ),
    ("wallet_hold", "captured", "'21'", "id = 'hd'"),
    ("wallet_hold", "remaining", "'1'", "id = 'hd'"),
    ("wallet_hold", "status", "'open'", "id = 'hd'"),
    (
        "wallet_bet",
        "round",
        "NULL",
        "key = (SELECT key FROM wallet_operation WHERE id = 'd9')",
    ),
    (
        "wallet_bet",
        "account",
        P2,
        "key = (SELECT key FROM wallet_operation WHERE id = 'd9')",
    ),
    (
        "wallet_bet",
        "house",
        P2,
        "key = (SELECT key FROM wallet_operation WHERE id = 'd9')",
    ),
    (
        "wallet_bet",
        "amount",
        "'21'",
        "key = (SELECT key FROM wallet_operation WHERE id = 'd7')",
    ),
    (
        "wallet_bet",
        "earlier",
        "(SELECT recent FROM wallet_round WHERE id = 'rd')",
        "key = (SELECT key FROM wallet_operation WHERE id = 'd9')",
    ),
    ("wallet_bet", "earlier", "NULL", "earlier IS NOT NULL"),
    ("wallet_bet", "chain", "NULL", "chain IS NOT NULL"),
    (
        "wallet_bet",
        "status",
        "'open'",
        "key = (SELECT key FROM wallet_operation WHERE id = 'd9')",
    ),
    (
        "wallet_bet",
        "ended_by",
        "(SELECT key FROM wallet_operation WHERE id = 'd8')",
        "key = (SELECT key FROM wallet_operation WHERE id = 'd9')",
    ),
    (
        "wallet_bet",
        "ended_by",
        "NULL",
        "key = (SELECT key FROM wallet_operation WHERE id = 'd7')",
    ),
    ("wallet_round", "id", "'rx'", "id = 'rd'"),
    ("wallet_round", "round", "key", "id = 'rd'"),
    ("wallet_round", "account", P2, "id = 'rd'"),
    ("wallet_round", "status", "'completed'", "id = 'rd'"),
    ("wallet_round", "status", "'cancelled'", "id = 'long'"),
    ("wallet_round", "staked", "'1'", "id = 'rd'"),
    ("wallet_round", "paid", "'1'", "id = 'rd'"),
    ("wallet_round", "recent", "NULL", "id = 'rd'"),
    ("wallet_round", "chain", "NULL", "id = 'long'"),
    ("wallet_round", "ended_by", "key", "id = 'rd'"),
];

/// Columns that nothing decides on: what they say is for people, or is tied elsewhere by the database's own constraints.
const FREE: [(&str, &str); 7] = [
    ("wallet_account", "key"),
    ("wallet_operation", "key"),
    ("wallet_operation", "id"),
    ("wallet_entry", "version"),
    ("wallet_hold", "key"),
    ("wallet_bet", "key"),
    ("wallet_round", "key"),
];

#[test]
fn every_column_that_a_decision_reads_is_tampered_with() {
    for table in TABLES {
        for column in table.columns {
            let name = (table.name, column.name);
            let known = TAMPERED
                .iter()
                .any(|(table, column, ..)| (*table, *column) == name);
            assert!(
                known || FREE.contains(&name) || name.1 == "game",
                "{name:?}"
            );
        }
    }
}

#[tokio::test]
async fn on_sqlite_a_day_reads_as_the_model_and_every_saboteur_is_caught() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("day.db");
    let (ops, consumer) = day(1_500);
    {
        let ledger = sqlite(&path).await;
        run(ledger.clone(), &ops).await;
        assert_reads(&Reader::new(&*ledger, Dialect::Sqlite), &consumer).await;
        let checks = audited(&*ledger, Dialect::Sqlite).await;
        assert_eq!(violated(&checks), Vec::<&str>::new(), "{checks:#?}");
        let idle: Vec<&str> = checks
            .iter()
            .filter(|check| check.checked == 0)
            .map(|check| check.name)
            .collect();
        assert_eq!(
            idle,
            Vec::<&str>::new(),
            "every check has something to look at"
        );
        let names: Vec<&str> = checks.iter().map(|check| check.name).collect();
        assert!(
            names
                .iter()
                .all(|name| SABOTEURS.iter().any(|(known, _)| known == name)),
            "{names:?}"
        );
    }
    let mut own = SqliteConnection::connect(&format!("sqlite:{}", path.display()))
        .await
        .unwrap();
    own.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        .await
        .unwrap();
    own.close().await.unwrap();
    for (number, (name, sql)) in SABOTEURS.iter().enumerate() {
        let copy = folder.path().join(format!("{number}.db"));
        std::fs::copy(&path, &copy).unwrap();
        let mut own = SqliteConnection::connect(&format!("sqlite:{}", copy.display()))
            .await
            .unwrap();
        own.execute("PRAGMA ignore_check_constraints = ON")
            .await
            .unwrap();
        let done = own.execute(*sql).await.unwrap();
        assert!(done.rows_affected() > 0, "{sql} did nothing");
        own.close().await.unwrap();
        let checks = audited(&*sqlite(&copy).await, Dialect::Sqlite).await;
        assert!(
            violated(&checks).contains(name),
            "{sql}: {:?}",
            violated(&checks)
        );
        assert_plain(&checks, sql);
    }
}

#[tokio::test]
async fn on_sqlite_every_tampered_column_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("day.db");
    run(sqlite(&path).await, &day(0).0).await;
    let mut own = SqliteConnection::connect(&format!("sqlite:{}", path.display()))
        .await
        .unwrap();
    own.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        .await
        .unwrap();
    own.close().await.unwrap();
    let copy = folder.path().join("tampered.db");
    for (table, column, value, which) in TAMPERED {
        std::fs::copy(&path, &copy).unwrap();
        let mut own = SqliteConnection::connect(&format!("sqlite:{}", copy.display()))
            .await
            .unwrap();
        let sql = format!("UPDATE {table} SET {column} = {value} WHERE {which}");
        let done = own
            .execute(sqlx::query(AssertSqlSafe(sql.clone())))
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(done.rows_affected() > 0, "{sql} did nothing");
        own.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            .await
            .unwrap();
        own.close().await.unwrap();
        let checks = audited(&*sqlite(&copy).await, Dialect::Sqlite).await;
        assert!(!violated(&checks).is_empty(), "{sql} is not found");
        assert_plain(&checks, &sql);
        for file in ["tampered.db-wal", "tampered.db-shm"] {
            let _ = std::fs::remove_file(folder.path().join(file));
        }
    }
}

fn assert_plain(checks: &[Check], what: &str) {
    let examples = checks.iter().flat_map(|check| &check.examples);
    for example in examples {
        assert!(
            !example.contains("Some(") && !example.contains("None") && !example.contains("Key("),
            "{what}: {example}"
        );
    }
}

#[tokio::test]
async fn on_postgres_a_day_reads_as_the_model_and_the_book_is_sound() {
    let (ledger, mut own, schema) = postgres().await;
    // Each read is a session of its own here, so a part of the day has to do.
    let (ops, consumer) = day(300);
    run(ledger.clone(), &ops).await;
    assert_reads(&Reader::new(&*ledger, Dialect::Postgres), &consumer).await;
    let checks = audited(&*ledger, Dialect::Postgres).await;
    assert_eq!(violated(&checks), Vec::<&str>::new(), "{checks:#?}");
    let sabotage =
        format!(r#"UPDATE "{schema}".wallet_account SET posted = posted + 1 WHERE id = 'p1'"#);
    own.execute(sqlx::query(AssertSqlSafe(sabotage)))
        .await
        .unwrap();
    assert_eq!(
        violated(&audited(&*ledger, Dialect::Postgres).await),
        ["balance_is_the_sum_of_entries"]
    );
    let drop = format!(r#"DROP SCHEMA "{schema}" CASCADE"#);
    own.execute(sqlx::query(AssertSqlSafe(drop))).await.unwrap();
}

/// Changes one value, sees the audit find it, and changes it back.
async fn tamper_on_postgres(ledger: &PostgresLedger, own: &mut PgConnection, schema: &str) {
    own.execute(sqlx::query(AssertSqlSafe(format!(
        r#"SET search_path = "{schema}""#
    ))))
    .await
    .unwrap();
    for (table, column, value, which) in TAMPERED {
        let sql = format!("UPDATE {table} SET {column} = {value} WHERE {which}");
        let steps = format!("CREATE TABLE kept AS SELECT * FROM {table}; {sql}");
        own.execute(sqlx::raw_sql(AssertSqlSafe(steps)))
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        let checks = audited(ledger, Dialect::Postgres).await;
        assert!(!violated(&checks).is_empty(), "{sql} is not found");
        assert_plain(&checks, &sql);
        let back =
            format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept; DROP TABLE kept");
        own.execute(sqlx::raw_sql(AssertSqlSafe(back)))
            .await
            .unwrap();
    }
    let checks = audited(ledger, Dialect::Postgres).await;
    assert_eq!(violated(&checks), Vec::<&str>::new(), "{checks:#?}");
}

/// A ledger in a schema of its own, and a connection beside it.
async fn postgres() -> (Arc<PostgresLedger>, PgConnection, String) {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: run `scripts/test`, which starts PostgreSQL and sets it");
    let mut options = PostgresOptions::new(&url);
    options.schema = format!("audit_{:016x}", rand::random::<u64>());
    // Each read is a session of its own, and a loaded machine is no finding.
    options.connect_timeout_ms = 120_000;
    options.extensions = vec![Extension {
        name: migrations::PART,
        migrations: migrations::POSTGRES,
    }];
    let ledger = PostgresLedger::open(options.clone())
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
    let own = PgConnection::connect(&url).await.unwrap();
    (Arc::new(ledger), own, options.schema)
}

#[tokio::test]
async fn on_postgres_every_tampered_column_is_found() {
    let (ledger, mut own, schema) = postgres().await;
    run(ledger.clone(), &day(0).0).await;
    tamper_on_postgres(&ledger, &mut own, &schema).await;
    let drop = format!(r#"DROP SCHEMA "{schema}" CASCADE"#);
    own.execute(sqlx::query(AssertSqlSafe(drop))).await.unwrap();
}
