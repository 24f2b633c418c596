//! The usual consumer falls into the traps that it is here to fall into: an attack on Semel that leaves this one
//! standing would prove nothing.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use semel_bench::naive::{
    Ack, Attack, Blow, Guard, Habits, Peace, SQLITE, Step, Store, consume, left,
};
use semel_bench::ops::Credit;
use semel_bench::tables::Place;
use semel_core::source::BoxFuture;
use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;
use tokio::sync::Barrier;
use uuid::Uuid;

const CREDIT: Credit = Credit {
    id: Uuid::from_bytes([7; 16]),
    account: 1,
    amount: 5,
};

/// Dies once, at one step of the first delivery.
struct DiesAt(Step);

impl Attack for DiesAt {
    fn strike(&self, step: Step, delivery: usize, _credit: &Credit) -> BoxFuture<'_, Blow> {
        let dies = step == self.0 && delivery == 0;
        Box::pin(std::future::ready(if dies {
            Blow::Crash
        } else {
            Blow::None
        }))
    }
}

async fn sqlite() -> Store {
    // One connection: a database in memory belongs to its connection.
    let pool: SqlitePool = SqlitePoolOptions::new()
        .max_connections(1)
        .connect("sqlite::memory:")
        .await
        .unwrap();
    sqlx::raw_sql(SQLITE).execute(&pool).await.unwrap();
    sqlx::raw_sql("INSERT INTO bench_balance VALUES (1, 0)")
        .execute(&pool)
        .await
        .unwrap();
    Store::Sqlite(pool)
}

#[tokio::test]
async fn a_quiet_day_is_survived() {
    let store = sqlite().await;
    let tally = consume(&store, Habits::BEST, 1, [CREDIT, CREDIT], Arc::new(Peace))
        .await
        .unwrap();
    assert_eq!((tally.applied, tally.duplicates, tally.failures), (1, 1, 0));
    assert_eq!(left(&store).await.unwrap(), (1, 1, 5));
}

#[tokio::test]
async fn t70_a_key_remembered_before_the_effect_loses_the_retry() {
    let store = sqlite().await;
    let habits = Habits {
        guard: Guard::RememberFirst,
        ..Habits::BEST
    };
    let tally = consume(&store, habits, 1, [CREDIT], Arc::new(DiesAt(Step::Checked)))
        .await
        .unwrap();
    assert_eq!((tally.applied, tally.duplicates), (0, 1));
    assert_eq!(
        left(&store).await.unwrap(),
        (1, 0, 0),
        "acked as a duplicate, and nobody got the money"
    );
}

#[tokio::test]
async fn an_ack_on_receipt_loses_what_was_under_way() {
    let store = sqlite().await;
    let habits = Habits {
        ack: Ack::OnReceipt,
        ..Habits::BEST
    };
    consume(&store, habits, 1, [CREDIT], Arc::new(DiesAt(Step::Worked)))
        .await
        .unwrap();
    assert_eq!(left(&store).await.unwrap(), (0, 0, 0));
}

#[tokio::test]
async fn t90_its_own_metric_misses_a_commit_whose_answer_was_lost() {
    let store = sqlite().await;
    let tally = consume(
        &store,
        Habits::BEST,
        1,
        [CREDIT],
        Arc::new(DiesAt(Step::Committed)),
    )
    .await
    .unwrap();
    assert_eq!((tally.applied, tally.duplicates), (0, 1));
    assert_eq!(
        left(&store).await.unwrap(),
        (1, 1, 5),
        "one effect, and a metric that says none"
    );
}

/// Holds the first two deliveries behind their check until both have passed it.
struct Together {
    barrier: Barrier,
    met: AtomicBool,
}

impl Attack for Together {
    fn strike(&self, step: Step, delivery: usize, _credit: &Credit) -> BoxFuture<'_, Blow> {
        Box::pin(async move {
            if step == Step::Checked && delivery < 2 && !self.met.load(Ordering::Acquire) {
                self.barrier.wait().await;
                self.met.store(true, Ordering::Release);
            }
            Blow::None
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t71_two_copies_at_once_both_pass_a_check_that_comes_before_the_insert() {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("no SEMEL_TEST_POSTGRES_URL; run `scripts/test`");
    let place = Place::named(&url, "semel_naive_t71", 10).await.unwrap();
    let store = Store::Postgres(place.pool(2).await.unwrap());
    let habits = Habits {
        guard: Guard::CheckThenInsert,
        ..Habits::BEST
    };
    let attack = Together {
        barrier: Barrier::new(2),
        met: AtomicBool::new(false),
    };
    consume(&store, habits, 2, [CREDIT, CREDIT], Arc::new(attack))
        .await
        .unwrap();
    assert_eq!(
        left(&store).await.unwrap(),
        (1, 2, 10),
        "one key, two credits"
    );
    place.drop_it().await.unwrap();
}
