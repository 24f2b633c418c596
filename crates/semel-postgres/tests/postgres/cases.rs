//! Public reports as inputs: `cases/reports.md`.

use std::sync::Arc;

use futures_util::future::join_all;
use semel_core::ledger::{Claimed, Record};
use semel_core::rows::{Change, Column, Delta, Rows, Table, Type, Value};
use semel_core::{Class, Ledger, Unit};
use semel_sql::Lend;
use tokio::sync::Barrier;

use crate::world::{World, committed, key, number, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e005_of_64_deliveries_at_once_one_is_applied_and_63_are_duplicates() {
    const WORKERS: i16 = 64;
    const KEYS: u64 = 200;
    let world = World::new().await;
    run(&mut world.psql().await, "CREATE TABLE effect (key uuid)").await;
    let barrier = Arc::new(Barrier::new(64));
    let workers = (0..WORKERS).map(|lane| {
        let (world, barrier) = (&world, Arc::clone(&barrier));
        async move {
            let mut applied = 0;
            let mut connection = world.lane(lane).await;
            for n in 0..KEYS {
                barrier.wait().await;
                let mut unit = world.ledger.begin(connection).await.unwrap();
                let claimed = unit.claim(&world.claims(&[key(n)])).await.unwrap();
                let mut record = Record::default();
                if claimed == [Claimed::Fresh] {
                    applied += 1;
                    let insert = sqlx::query("INSERT INTO effect VALUES ($1)");
                    insert
                        .bind(sqlx::types::Uuid::from_bytes(key(n).into_bytes()))
                        .execute(&mut unit.lend())
                        .await
                        .unwrap();
                } else {
                    record.sightings.push(world.sighting(key(n)));
                }
                unit.write(&record).await.unwrap();
                connection = committed(unit.commit().await).1;
            }
            applied
        }
    });
    let applied: u64 = join_all(workers).await.into_iter().sum();
    assert_eq!(applied, KEYS);
    let mut psql = world.psql().await;
    assert_eq!(
        number(&mut psql, "SELECT count(DISTINCT key) FROM effect").await,
        200
    );
    assert_eq!(number(&mut psql, "SELECT count(*) FROM effect").await, 200);
    assert_eq!(
        number(
            &mut psql,
            "SELECT count(*) FROM semel_sighting WHERE count = 63"
        )
        .await,
        200
    );
    assert_eq!(
        number(&mut psql, "SELECT count(*) FROM semel_dead").await,
        0
    );
}

static BOOK: Table = Table {
    name: "book",
    columns: &[
        Column {
            name: "id",
            kind: Type::Key,
            change: Change::Fixed,
        },
        Column {
            name: "posted",
            kind: Type::Amount,
            change: Change::Counter,
        },
    ],
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e075_two_thousand_events_on_one_account_are_all_applied() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    run(
        &mut psql,
        "CREATE TABLE book (id uuid PRIMARY KEY, posted numeric(39,0) NOT NULL)",
    )
    .await;
    run(
        &mut psql,
        &format!("INSERT INTO book VALUES ('{}', 0)", key(0)),
    )
    .await;
    let workers = (0..16_u64).map(|worker| {
        let world = &world;
        async move {
            let mut connection = world.lane(i16::try_from(worker).unwrap()).await;
            for n in 0..125 {
                let mut unit = world.ledger.begin(connection).await.unwrap();
                let claimed = unit
                    .claim(&world.claims(&[key(1 + worker * 125 + n)]))
                    .await
                    .unwrap();
                assert_eq!(claimed, [Claimed::Fresh]);
                let delta = Delta {
                    seen: vec![Value::Key(key(0))],
                    add: vec![1],
                };
                assert_eq!(unit.add(&BOOK, &[delta]).await.unwrap().len(), 2);
                connection = committed(unit.commit().await).1;
            }
        }
    });
    join_all(workers).await;
    assert_eq!(
        number(&mut psql, "SELECT posted::bigint FROM book").await,
        2_000
    );
    assert_eq!(
        number(&mut psql, "SELECT count(*) FROM semel_ledger").await,
        2_000
    );
}

#[tokio::test]
async fn e075_a_deadlock_victim_is_busy_and_its_whole_unit_runs_again() {
    let world = World::with(|o| o.lock_timeout_ms = 20_000).await;
    let mut psql = world.psql().await;
    run(
        &mut psql,
        "CREATE TABLE book (id int PRIMARY KEY, n int); INSERT INTO book VALUES (1, 0), (2, 0)",
    )
    .await;
    let barrier = Barrier::new(2);
    let lanes = [[1, 2], [2, 1]]
        .into_iter()
        .zip(0_i16..)
        .map(|(order, lane)| {
            let (world, barrier) = (&world, &barrier);
            async move {
                let mut victims = 0;
                loop {
                    let mut unit = world.unit(lane).await;
                    let claimed = unit
                        .claim(&world.claims(&[key(u64::try_from(lane).unwrap())]))
                        .await
                        .unwrap();
                    assert_eq!(claimed, [Claimed::Fresh]);
                    let update = "UPDATE book SET n = n + 1 WHERE id = $1";
                    let one = sqlx::query(update)
                        .bind(order[0])
                        .execute(&mut unit.lend())
                        .await;
                    if victims == 0 {
                        barrier.wait().await;
                    }
                    let two = sqlx::query(update)
                        .bind(order[1])
                        .execute(&mut unit.lend())
                        .await;
                    if one.is_ok() && two.is_ok() {
                        committed(unit.commit().await);
                        return victims;
                    }
                    assert_eq!(unit.verdict().unwrap().class, Class::Busy);
                    victims += 1;
                }
            }
        });
    let victims: i32 = join_all(lanes).await.into_iter().sum();
    assert_eq!(victims, 1);
    assert_eq!(number(&mut psql, "SELECT sum(n) FROM book").await, 4);
}
