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
use semel_wallet::row::BetStatus;
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

/// The same long day on every run, and what the model makes of it. Without messages that park: when they are
/// released is up to the engine, and versions depend on it.
fn day(length: usize) -> (Vec<String>, Consumer<InModel>) {
    let mut consumer = Consumer::new(config(), InModel::new(config()));
    let mut runner = TestRunner::deterministic();
    let streams = std::iter::repeat_with(|| stream(60).new_tree(&mut runner).unwrap().current());
    // Ids of one stream meet the names of the others, so later streams repeat, clash and refer back.
    let certain = OPENED.iter().chain(&CERTAIN).map(|op| (*op).to_owned());
    let mut ops: Vec<String> = certain.chain(streams.flatten().take(length)).collect();
    ops.retain(|op| {
        consumer.deliver(&[op]);
        let parked = std::mem::take(&mut consumer.parked);
        parked
            .keys()
            .for_each(|key| drop(consumer.rows.remove(key)));
        parked.is_empty()
    });
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
        "every_effect_has_an_applied_key",
        "DELETE FROM semel_ledger WHERE outcome = 1",
    ),
    (
        "every_applied_key_has_an_effect",
        "DELETE FROM wallet_operation WHERE op = 'open_account'",
    ),
];

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
    }
}

#[tokio::test]
async fn on_postgres_a_day_reads_as_the_model_and_the_book_is_sound() {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: run `scripts/test`, which starts PostgreSQL and sets it");
    let mut options = PostgresOptions::new(&url);
    options.schema = format!("audit_{:016x}", rand::random::<u64>());
    options.extensions = vec![Extension {
        name: migrations::PART,
        migrations: migrations::POSTGRES,
    }];
    let ledger = PostgresLedger::open(options.clone())
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
    let ledger = Arc::new(ledger);
    // Each read is a session of its own here, so a part of the day has to do.
    let (ops, consumer) = day(300);
    run(ledger.clone(), &ops).await;
    assert_reads(&Reader::new(&*ledger, Dialect::Postgres), &consumer).await;
    let checks = audited(&*ledger, Dialect::Postgres).await;
    assert_eq!(violated(&checks), Vec::<&str>::new(), "{checks:#?}");
    let mut own = PgConnection::connect(&url).await.unwrap();
    let sabotage = format!(
        r#"UPDATE "{}".wallet_account SET posted = posted + 1 WHERE id = 'p1'"#,
        options.schema
    );
    own.execute(sqlx::query(AssertSqlSafe(sabotage)))
        .await
        .unwrap();
    assert_eq!(
        violated(&audited(&*ledger, Dialect::Postgres).await),
        ["balance_is_the_sum_of_entries"]
    );
    let drop = format!(r#"DROP SCHEMA "{}" CASCADE"#, options.schema);
    own.execute(sqlx::query(AssertSqlSafe(drop))).await.unwrap();
}
