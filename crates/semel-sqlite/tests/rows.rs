//! Users' rows, as the staged engine reads and writes them.

mod world;

use bytes::Bytes;
use semel_core::ledger::Save;
use semel_core::rows::{Change, Column, Delta, Lock, Rows, Table, Type, Value};
use semel_core::{Class, Unit};

use world::{World, committed, key};

static WALLET: Table = Table {
    name: "wallet",
    columns: &[
        Column {
            name: "id",
            kind: Type::Key,
            change: Change::Fixed,
        },
        Column {
            name: "name",
            kind: Type::Text,
            change: Change::Fixed,
        },
        Column {
            name: "opened",
            kind: Type::Time,
            change: Change::Fixed,
        },
        Column {
            name: "status",
            kind: Type::Int,
            change: Change::Set,
        },
        Column {
            name: "balance",
            kind: Type::Amount,
            change: Change::Counter,
        },
        Column {
            name: "entries",
            kind: Type::Int,
            change: Change::Counter,
        },
        Column {
            name: "note",
            kind: Type::Bytes,
            change: Change::Set,
        },
    ],
};

static ENTRY: Table = Table {
    name: "entry",
    columns: &[
        Column {
            name: "wallet",
            kind: Type::Key,
            change: Change::Fixed,
        },
        Column {
            name: "amount",
            kind: Type::Amount,
            change: Change::Fixed,
        },
    ],
};

const TABLES: &str = "
CREATE TABLE wallet (
    id BLOB PRIMARY KEY, name TEXT NOT NULL, opened INTEGER NOT NULL, status INTEGER NOT NULL CHECK (status < 9),
    balance TEXT NOT NULL, entries INTEGER NOT NULL, note BLOB
) STRICT, WITHOUT ROWID;
CREATE TABLE entry (wallet BLOB NOT NULL, amount TEXT NOT NULL) STRICT";

fn wallet(n: u32, status: i64, balance: i128) -> Vec<Value> {
    vec![
        Value::Key(key(n)),
        Value::Text(format!("w{n}").into()),
        Value::Time(-5),
        Value::Int(status),
        Value::Amount(balance),
        Value::Int(0),
        Value::Null,
    ]
}

fn ids(range: std::ops::Range<u32>) -> Vec<Value> {
    range.map(|n| Value::Key(key(n))).collect()
}

#[tokio::test]
async fn rows_come_back_as_they_were_inserted() {
    let world = World::open().await;
    world.sql(TABLES).await;
    let mut unit = world.unit().await;
    let mut values: Vec<Value> = (0..300)
        .flat_map(|n| wallet(n, 1, i128::from(n) - 7))
        .collect();
    values[4] = Value::Amount(i128::MIN);
    values[6] = Value::Bytes(Bytes::from_static(b"\x00"));
    assert_eq!(unit.insert(&WALLET, &values).await.unwrap(), 300);
    let _lane = committed(unit).await;
    let mut unit = world.unit().await;
    let mut read = unit
        .read(&WALLET, &ids(0..400), Lock::Update)
        .await
        .unwrap();
    let mut rows: Vec<_> = read.chunks_exact_mut(7).map(|row| row.to_vec()).collect();
    rows.sort_unstable();
    assert_eq!(rows.concat(), values);
}

#[tokio::test]
async fn a_row_that_is_there_is_a_collision_and_no_error() {
    let world = World::open().await;
    world.sql(TABLES).await;
    let mut unit = world.unit().await;
    assert_eq!(unit.insert(&WALLET, &wallet(1, 1, 5)).await.unwrap(), 1);
    let both = [wallet(1, 2, 9), wallet(2, 2, 9)].concat();
    assert_eq!(unit.insert(&WALLET, &both).await.unwrap(), 1);
    let line = [Value::Key(key(1)), Value::Amount(3)];
    assert_eq!(unit.append(&ENTRY, &line).await.unwrap(), 1);
    assert_eq!(
        unit.append(&ENTRY, &line).await.unwrap(),
        1,
        "an append-only table may repeat its first column"
    );
}

#[tokio::test]
async fn a_row_that_another_constraint_than_the_identity_refuses_is_an_error() {
    let world = World::open().await;
    world.sql(TABLES).await;
    world
        .sql("CREATE UNIQUE INDEX named ON wallet (name)")
        .await;
    let mut unit = world.unit().await;
    assert_eq!(unit.insert(&WALLET, &wallet(1, 1, 5)).await.unwrap(), 1);
    let mut other = wallet(2, 1, 5);
    other[1] = Value::Text("w1".into());
    let fault = unit.insert(&WALLET, &other).await.unwrap_err();
    assert_eq!(fault.class, Class::Poison, "{fault}");
}

#[tokio::test]
async fn an_update_sets_what_may_change_and_nothing_else() {
    let world = World::open().await;
    world.sql(TABLES).await;
    let mut unit = world.unit().await;
    unit.insert(&WALLET, &wallet(1, 1, 5)).await.unwrap();
    let mut changed = wallet(1, 2, 8);
    changed[1] = Value::Text("other".into());
    let values = [changed, wallet(2, 2, 8)].concat();
    assert_eq!(
        unit.update(&WALLET, &values).await.unwrap(),
        1,
        "only rows that exist count"
    );
    assert_eq!(
        unit.read(&WALLET, &ids(1..3), Lock::None).await.unwrap(),
        wallet(1, 2, 8)
    );
}

#[tokio::test]
async fn deltas_apply_only_while_the_set_columns_are_as_seen() {
    let world = World::open().await;
    world.sql(TABLES).await;
    let mut unit = world.unit().await;
    unit.insert(&WALLET, &[wallet(1, 1, 5), wallet(2, 1, 5)].concat())
        .await
        .unwrap();
    let delta = |n, status| Delta {
        seen: vec![Value::Key(key(n)), Value::Int(status), Value::Null],
        add: vec![-7, 2],
    };
    let raised = unit
        .add(&WALLET, &[delta(1, 1), delta(2, 8), delta(3, 1)])
        .await
        .unwrap();
    let mut expected = wallet(1, 1, -2);
    expected[5] = Value::Int(2);
    let counters = [4, 5].map(|at: usize| expected[at].clone());
    assert_eq!(raised, [&expected[..1], &counters].concat());
    assert_eq!(
        unit.read(&WALLET, &ids(1..2), Lock::None).await.unwrap(),
        expected
    );
    assert_eq!(
        unit.read(&WALLET, &ids(2..3), Lock::None).await.unwrap(),
        wallet(2, 1, 5)
    );
    let beyond = Delta {
        add: vec![0, i128::from(i64::MAX)],
        ..delta(1, 1)
    };
    assert_eq!(
        unit.add(&WALLET, &[beyond]).await.unwrap_err().class,
        Class::Poison
    );
}

#[tokio::test]
async fn a_broken_check_is_poison_and_heals_by_going_back() {
    let world = World::open().await;
    world.sql(TABLES).await;
    let mut unit = world.unit().await;
    unit.save(Save::Claims).await.unwrap();
    let fault = unit
        .insert(&WALLET, &[wallet(1, 1, 5), wallet(2, 9, 5)].concat())
        .await
        .unwrap_err();
    assert_eq!(fault.class, Class::Poison);
    assert!(
        unit.read(&WALLET, &ids(1..2), Lock::None).await.is_err(),
        "nothing more until it went back"
    );
    unit.back(Save::Claims).await.unwrap();
    assert_eq!(unit.insert(&WALLET, &wallet(1, 1, 5)).await.unwrap(), 1);
    let _lane = committed(unit).await;
    assert_eq!(world.count("SELECT count(*) FROM wallet", &[]).await, 1);
}
