//! Contended money on PostgreSQL: few accounts with next to nothing, four lanes, bets that race with what takes
//! them back. A checker replays the pure model in the order of account versions and finds every recorded
//! answer right, refusals included; and it finds violations as soon as a part that keeps them out is taken out.
//!
//! Longer: `CONTENDED_OPS=100000 cargo test -p semel-wallet --release --test contended -- --nocapture every_answer`
//! fights for that many rounds, each a bet with its rollback, cancel or win.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod checker;
mod saboteur;
mod workload;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use checker::{Found, check};
use saboteur::{Out, Shared, Tampered};
use semel::postgres::{Options, PostgresLedger};
use semel::{Consumer, Extension, LaneRule, Pointer, Settings, Summary};
use semel_storm::SimSource;
use semel_wallet::{Config, Wallet, migrations};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// The units' largest sizes, and how many per mille of the messages meet each.
const SIZES: [(usize, usize); 4] = [(1, 100), (5, 200), (40, 300), (300, 400)];

/// Deadlocks that may come of units which lock the bank because nobody has learned yet that they need not.
const LEARNING_MAX: usize = SIZES.len();

fn config() -> Config {
    Config::new([("EUR", 2)]).unwrap().house("house").unwrap()
}

/// A schema of its own, dropped at the end of a test that passed.
struct Place {
    url: String,
    options: Options,
}

impl Place {
    fn new() -> Self {
        let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
            .expect("SEMEL_TEST_POSTGRES_URL is not set: run `scripts/test`, which starts PostgreSQL and sets it");
        let mut options = Options::new(&url);
        options.schema = format!("contended_{:016x}", rand::random::<u64>());
        options.extensions = vec![Extension {
            name: migrations::PART,
            migrations: migrations::POSTGRES,
        }];
        Self { url, options }
    }

    async fn drop(self) {
        let mut own = PgConnection::connect(&self.url).await.unwrap();
        let drop = format!(r#"DROP SCHEMA "{}" CASCADE"#, self.options.schema);
        own.execute(sqlx::query(AssertSqlSafe(drop))).await.unwrap();
    }
}

/// Consumes lines on so many lanes; stops early when a broken engine does not come to an end.
async fn consume(by: &Arc<Tampered>, lines: &[String], lanes: u16, batch: usize) -> Summary {
    let source = SimSource::new(batch as u64);
    lines
        .iter()
        .for_each(|line| source.push_payload("fights", line.clone()));
    source.close();
    let lane = LaneRule::Pointer(Pointer::parse("/lane").unwrap());
    let settings = Settings {
        until_idle: true,
        lanes,
        lane,
        batch_count_max: batch,
        ..Settings::default()
    };
    let wallet = Arc::new(semel::staged::handler(Wallet::new(config())));
    let consumer = Consumer::builder("wallet", Arc::new(Shared(by.clone())), wallet)
        .settings(settings)
        .sources(["fights"])
        .enroll()
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
    // A run that does not come to its end is a failure with a number, not a hang.
    let stop = async {
        let _ = tokio::time::timeout(
            Duration::from_secs(45 + lines.len() as u64 / 20),
            by.enough.notified(),
        )
        .await;
    };
    let run = consumer
        .attach("fights", Arc::new(source.clone()))
        .run(stop)
        .await;
    let summary = run.unwrap_or_else(|fault| panic!("{fault}"));
    assert!(
        by.may_stop() || source.unacked() == 0,
        "the run stalled with {} messages unacked",
        source.unacked()
    );
    summary
}

struct Ran {
    found: Found,
    deadlocks: usize,
    messages: u64,
    seconds: f64,
}

/// Fights for `groups` rounds with this part taken out, and checks.
async fn fight(out: Out, groups: usize, sizes: &[(usize, usize)]) -> Ran {
    let place = Place::new();
    let ledger = PostgresLedger::open(place.options.clone())
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
    let setup = workload::setup();
    let fights = workload::fights(7, groups, out == Out::Locks);
    let by = Arc::new(Tampered::new(ledger, out));
    consume(&by, &setup, 1, 100).await;
    let (mut messages, mut seconds) = (0, 0.0);
    let mut rest = &fights[..];
    for (number, (size, share)) in sizes.iter().enumerate() {
        if by.is_stopped() {
            break;
        }
        let count = if number + 1 == sizes.len() {
            rest.len()
        } else {
            fights.len() * share / 1_000
        };
        let (now, then) = rest.split_at(count);
        let summary = consume(&by, now, u16::try_from(workload::LANES).unwrap(), *size).await;
        messages += summary.messages;
        seconds += summary.elapsed.as_secs_f64();
        rest = then;
    }
    let found = check(
        by.ledger(),
        &config(),
        &[setup, fights].concat(),
        by.is_stopped(),
    )
    .await;
    let deadlocks = by.deadlocks.load(Ordering::Relaxed);
    drop(by);
    place.drop().await;
    Ran {
        found,
        deadlocks,
        messages,
        seconds,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_answer_of_a_contended_wallet_is_right_at_the_version_it_saw() {
    let groups = std::env::var("CONTENDED_OPS")
        .map_or(400, |n| n.parse().expect("CONTENDED_OPS is a number"));
    let Ran {
        found,
        deadlocks,
        messages,
        seconds,
    } = fight(Out::Nothing, groups, &SIZES).await;
    eprintln!("{groups} fights, {messages} messages in {seconds:.1} s; deadlocks {deadlocks}");
    eprintln!(
        "tombstones {}, dead {}, {:?}",
        found.tombstones, found.dead, found.answers
    );
    assert!(found.violations.is_empty(), "{:#?}", found.violations);
    // A run's first units do not know yet that the bank has no limit, and lock it among the others. The house they
    // look at first, since the config names it.
    assert!(
        deadlocks <= LEARNING_MAX,
        "locks are taken in one order, yet there were {deadlocks} deadlocks"
    );
    assert!(found.tombstones > 0, "no counter-operation came first");
    for code in [
        "insufficient_funds",
        "rolled_back_before",
        "round_closed",
        "already_rolled_back",
    ] {
        assert!(found.count(code) > 0, "no fight ended with {code}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn t35_a_tombstone_outside_the_row_of_its_original_is_found() {
    let ran = fight(Out::SharedRow, 150, &[(5, 1_000)]).await;
    assert!(!ran.found.violations.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn t39_a_collision_that_is_not_decided_again_is_found() {
    let ran = fight(Out::Deciding, 150, &[(1, 500), (5, 500)]).await;
    assert!(!ran.found.violations.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rows_that_are_read_but_not_locked_are_found() {
    let ran = fight(Out::Locks, 150, &[(1, 500), (3, 500)]).await;
    assert!(!ran.found.violations.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn locks_that_are_not_taken_in_one_order_end_in_deadlocks() {
    let ran = fight(Out::Order, 400, &[(40, 1_000)]).await;
    eprintln!("deadlocks {}", ran.deadlocks);
    assert!(ran.deadlocks > LEARNING_MAX);
}
