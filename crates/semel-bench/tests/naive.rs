//! The usual consumer falls into the traps that it is here to fall into: an attack on Semel that leaves this one
//! standing would prove nothing.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use semel_bench::naive::{
    Ack, Attack, Blow, Guard, Habits, Patience, Peace, SQLITE, Step, Store, consume, left,
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

/// The store is away for the first deliveries, until it was asked so many times.
struct Outage(AtomicUsize);

impl Attack for Outage {
    fn strike(&self, step: Step, _: usize, _: &Credit) -> BoxFuture<'_, Blow> {
        let tick = |left: usize| left.checked_sub(1);
        let away = step == Step::Received
            && self
                .0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, tick)
                .is_ok();
        Box::pin(std::future::ready(if away {
            Blow::Away
        } else {
            Blow::None
        }))
    }
}

#[tokio::test]
async fn t73_t74_a_store_that_is_away_longer_than_the_retries_loses_messages() {
    let credits = (0..5).map(|n| Credit {
        id: Uuid::from_u128(n),
        ..CREDIT
    });
    // Dropped at once; after two more tries; and waited for.
    for (patience, applied) in [
        (Patience::Retries(0), 0),
        (Patience::Retries(2), 3),
        (Patience::Endless, 5),
    ] {
        let store = sqlite().await;
        let habits = Habits {
            patience,
            ..Habits::BEST
        };
        let outage = Arc::new(Outage(AtomicUsize::new(6)));
        consume(&store, habits, 1, credits.clone(), outage)
            .await
            .unwrap();
        let (keys, effects, _) = left(&store).await.unwrap();
        assert_eq!((keys, effects), (applied, applied), "{patience:?}");
    }
}

#[tokio::test]
async fn t75_a_batch_in_one_transaction_is_frozen_by_one_copy_it_holds() {
    let Store::Sqlite(pool) = sqlite().await else {
        panic!("asked for SQLite");
    };
    let ids = [1, 2, 1, 3].map(Uuid::from_u128);
    for _try in 0..10 {
        let mut tx = pool.begin().await.unwrap();
        let mut ended = Ok(());
        for id in ids {
            let insert = sqlx::query("INSERT INTO bench_key (consumer, key) VALUES (1, $1)");
            ended = insert.bind(id).execute(&mut *tx).await.map(|_| ());
            if ended.is_err() {
                break;
            }
        }
        assert!(
            ended.is_err(),
            "the copy fails the whole batch, however often it is tried"
        );
        tx.rollback().await.unwrap();
    }
    let (keys, ..) = left(&Store::Sqlite(pool)).await.unwrap();
    assert_eq!(keys, 0, "and nobody in it is applied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t83_a_conflict_that_is_taken_for_a_refusal_turns_money_away() {
    let place = place("semel_naive_t83").await;
    let pool = place.pool(2).await.unwrap();
    let begin = async || {
        let mut tx = pool.begin().await.unwrap();
        let read = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SELECT balance FROM bench_balance WHERE account = 1";
        sqlx::raw_sql(read).execute(&mut *tx).await.unwrap();
        tx
    };
    let take = "UPDATE bench_balance SET balance = balance - 1 WHERE account = 1";
    sqlx::raw_sql("UPDATE bench_balance SET balance = 1000 WHERE account = 1")
        .execute(&pool)
        .await
        .unwrap();
    let (mut one, mut two) = (begin().await, begin().await);
    sqlx::query(take).execute(&mut *one).await.unwrap();
    one.commit().await.unwrap();
    // The usual code: whatever the store says here is the customer's fault.
    let answer = match sqlx::query(take).execute(&mut *two).await {
        Ok(_) => "applied",
        Err(_) => "insufficient_funds",
    };
    assert_eq!(answer, "insufficient_funds", "told to somebody who has 999");
    drop(two);
    drop(pool);
    place.drop_it().await.unwrap();
}

/// Holds the first delivery behind its check until the second has committed: a retry poller took it for lost.
struct Slow {
    overtaken: tokio::sync::Semaphore,
}

impl Attack for Slow {
    fn strike(&self, step: Step, delivery: usize, _credit: &Credit) -> BoxFuture<'_, Blow> {
        Box::pin(async move {
            match (step, delivery) {
                (Step::Checked, 0) => self.overtaken.acquire().await.unwrap().forget(),
                (Step::Committed, 1) => self.overtaken.add_permits(1),
                _ => {}
            }
            Blow::None
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t84_a_slow_handler_that_a_retry_poller_overtakes_is_done_twice() {
    let place = place("semel_naive_t84").await;
    let store = Store::Postgres(place.pool(2).await.unwrap());
    let habits = Habits {
        guard: Guard::CheckThenInsert,
        ..Habits::BEST
    };
    let slow = Slow {
        overtaken: tokio::sync::Semaphore::new(0),
    };
    consume(&store, habits, 2, [CREDIT, CREDIT], Arc::new(slow))
        .await
        .unwrap();
    assert_eq!(left(&store).await.unwrap(), (1, 2, 10));
    place.drop_it().await.unwrap();
}

async fn place(name: &'static str) -> Place {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("no SEMEL_TEST_POSTGRES_URL; run `scripts/test`");
    Place::named(&url, name, 10).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t71_two_copies_at_once_both_pass_a_check_that_comes_before_the_insert() {
    let place = place("semel_naive_t71").await;
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
