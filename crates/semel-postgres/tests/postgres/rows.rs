//! Set-based acts on a user's tables.

use bytes::Bytes;
use futures_util::future::join_all;
use semel_core::rows::{Change, Column, Delta, Lock, Query, Rows, Table, Type, Value};
use semel_core::{Class, Ledger, Unit};
use semel_sql::Lend;
use sqlx::{AssertSqlSafe, Row};

use crate::world::{World, committed, key, number, run};

static ACCOUNT: Table = Table {
    name: "account",
    columns: &[
        Column {
            name: "id",
            kind: Type::Key,
            change: Change::Fixed,
        },
        Column {
            name: "order",
            kind: Type::Text,
            change: Change::Fixed,
        },
        Column {
            name: "status",
            kind: Type::Int,
            change: Change::Set,
        },
        Column {
            name: "note",
            kind: Type::Bytes,
            change: Change::Set,
        },
        Column {
            name: "seen",
            kind: Type::Time,
            change: Change::Set,
        },
        Column {
            name: "posted",
            kind: Type::Amount,
            change: Change::Counter,
        },
        Column {
            name: "version",
            kind: Type::Int,
            change: Change::Counter,
        },
    ],
};

const DDL: &str = "CREATE TABLE account (
    id uuid PRIMARY KEY, \"order\" text NOT NULL, status int NOT NULL, note bytea, seen timestamptz,
    posted numeric(39,0) NOT NULL CHECK (posted > -1000), version bigint NOT NULL)";

fn row(n: u64, posted: i128) -> Vec<Value> {
    vec![
        Value::Key(key(n)),
        Value::Text(format!("text {n}").into()),
        Value::Int(1),
        if n.is_multiple_of(2) {
            Value::Null
        } else {
            Value::Bytes(Bytes::from_static(b"\0x"))
        },
        if n.is_multiple_of(3) {
            Value::Null
        } else {
            Value::Time(-1)
        },
        Value::Amount(posted),
        Value::Int(0),
    ]
}

/// What a delta says it saw of a row: its identity and the `Set` columns.
fn seen(row: &[Value]) -> Vec<Value> {
    [&row[..1], &row[2..5]].concat()
}

fn ids(range: std::ops::Range<u64>) -> Vec<Value> {
    range.map(|n| Value::Key(key(n))).collect()
}

async fn accounts(range: std::ops::Range<u64>) -> World {
    let world = World::new().await;
    run(&mut world.psql().await, DDL).await;
    let mut unit = world.unit(0).await;
    let values: Vec<Value> = range.clone().flat_map(|n| row(n, 0)).collect();
    assert_eq!(
        unit.insert(&ACCOUNT, &values).await.unwrap(),
        values.len() / ACCOUNT.width()
    );
    committed(unit.commit().await);
    world
}

#[tokio::test]
async fn rows_come_back_as_they_went_in() {
    let world = accounts(0..0).await;
    let mut unit = world.unit(0).await;
    let values: Vec<Value> = (0..6).flat_map(|n| row(n, i128::from(n) << 60)).collect();
    assert_eq!(unit.insert(&ACCOUNT, &values).await.unwrap(), 6);
    for lock in [Lock::None, Lock::Update] {
        assert_eq!(unit.read(&ACCOUNT, &ids(0..9), lock).await.unwrap(), values);
    }
    assert!(
        unit.read(&ACCOUNT, &[], Lock::Update)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn an_update_sets_what_changes_and_nothing_else() {
    let world = accounts(0..4).await;
    let mut unit = world.unit(0).await;
    let mut changed: Vec<Value> = row(1, 0).into_iter().chain(row(9, 5)).collect();
    changed[1] = Value::Text("other".into());
    changed[2] = Value::Int(7);
    changed[3] = Value::Null;
    changed[5] = Value::Amount(i128::MAX);
    assert_eq!(unit.update(&ACCOUNT, &changed).await.unwrap(), 1);
    let now = unit.read(&ACCOUNT, &ids(1..2), Lock::None).await.unwrap();
    changed[1] = Value::Text("text 1".into());
    assert_eq!(now, changed[..ACCOUNT.width()]);
}

#[tokio::test]
async fn t35_an_insert_that_collides_goes_in_less() {
    let world = accounts(2..4).await;
    let mut unit = world.unit(0).await;
    let values: Vec<Value> = (0..6).flat_map(|n| row(n, 1)).collect();
    assert_eq!(unit.insert(&ACCOUNT, &values).await.unwrap(), 4);
    committed(unit.commit().await);
    assert_eq!(
        number(
            &mut world.psql().await,
            "SELECT sum(posted)::bigint FROM account"
        )
        .await,
        4
    );
}

#[tokio::test]
async fn deltas_apply_to_unchanged_rows_alone() {
    let world = accounts(0..4).await;
    let mut unit = world.unit(0).await;
    let mut stale = row(1, 0);
    stale[2] = Value::Int(2);
    let delta = |row: Vec<Value>| Delta {
        seen: seen(&row),
        add: vec![5, 1],
    };
    let now = unit
        .add(
            &ACCOUNT,
            &[delta(row(0, 0)), delta(stale.clone()), delta(row(2, 99))],
        )
        .await
        .unwrap();
    let mut ids: Vec<&Value> = now.iter().step_by(ACCOUNT.counted()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [&Value::Key(key(0)), &Value::Key(key(2))]);
    assert_eq!(&now[1..3], [Value::Amount(5), Value::Int(1)]);
    let now = unit.add(&ACCOUNT, &[delta(row(0, 0))]).await.unwrap();
    assert_eq!(&now[1..3], [Value::Amount(10), Value::Int(2)]);
    assert!(
        unit.add(&ACCOUNT, &[delta(stale)])
            .await
            .unwrap()
            .is_empty()
    );
    assert!(unit.add(&ACCOUNT, &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_violated_check_is_poison_and_heals() {
    let world = accounts(0..4).await;
    let mut unit = world.unit(0).await;
    unit.save(semel_core::ledger::Save::Claims).await.unwrap();
    let delta = Delta {
        seen: seen(&row(0, 0)),
        add: vec![-5_000, 1],
    };
    assert_eq!(
        unit.add(&ACCOUNT, std::slice::from_ref(&delta))
            .await
            .unwrap_err()
            .class,
        Class::Poison
    );
    unit.back(semel_core::ledger::Save::Claims).await.unwrap();
    assert_eq!(
        unit.insert(&ACCOUNT, &row(7, -5_000))
            .await
            .unwrap_err()
            .class,
        Class::Poison
    );
    unit.back(semel_core::ledger::Save::Claims).await.unwrap();
    assert_eq!(unit.insert(&ACCOUNT, &row(7, -500)).await.unwrap(), 1);
    let beyond = Delta {
        seen: seen(&row(0, 0)),
        add: vec![0, i128::MAX],
    };
    assert_eq!(
        unit.add(&ACCOUNT, &[beyond]).await.unwrap_err().class,
        Class::Poison
    );
}

#[tokio::test]
async fn a_value_of_another_type_is_a_bug_that_is_told() {
    let world = accounts(0..1).await;
    let mut unit = world.unit(0).await;
    let mut wrong = row(1, 0);
    wrong[2] = Value::Text("1".into());
    let fault = unit.insert(&ACCOUNT, &wrong).await.unwrap_err();
    assert_eq!(fault.class, Class::Poison);
    assert!(fault.detail().contains("does not fit"), "{fault}");
}

#[tokio::test]
async fn amounts_of_128_bits_pass_the_server_unchanged() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    run(
        &mut psql,
        "CREATE TABLE amounts (id bigint PRIMARY KEY, amount numeric(39,0))",
    )
    .await;
    static AMOUNTS: Table = Table {
        name: "amounts",
        columns: &[
            Column {
                name: "id",
                kind: Type::Int,
                change: Change::Fixed,
            },
            Column {
                name: "amount",
                kind: Type::Amount,
                change: Change::Counter,
            },
        ],
    };
    let mut all = vec![
        0,
        1,
        -1,
        9_999,
        10_000,
        99_990_000,
        -100_000_000,
        i128::MAX,
        i128::MIN,
        i128::MIN + 1,
    ];
    all.extend((0..2_000).map(|_| rand::random::<i128>() >> (rand::random::<u32>() % 127)));
    let values: Vec<Value> = (0_i64..)
        .zip(&all)
        .flat_map(|(n, amount)| [Value::Int(n), Value::Amount(*amount)])
        .collect();
    let mut unit = world.unit(0).await;
    unit.insert(&AMOUNTS, &values).await.unwrap();
    let ids: Vec<Value> = values.iter().step_by(2).cloned().collect();
    assert_eq!(
        unit.read(&AMOUNTS, &ids, Lock::Update).await.unwrap(),
        values
    );
    committed(unit.commit().await);
    let rows = sqlx::query("SELECT amount::text FROM amounts ORDER BY id")
        .fetch_all(&mut psql)
        .await
        .unwrap();
    let texts: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(texts, all.iter().map(i128::to_string).collect::<Vec<_>>());
}

#[tokio::test]
async fn e009_a_hundred_parallel_credits_lose_none() {
    let world = accounts(0..8).await;
    let tasks = (0..20_u64).map(|lane| {
        let world = &world;
        async move {
            let mut connection = world.lane(i16::try_from(lane).unwrap()).await;
            for round in 0..5_u64 {
                let mut unit = world.ledger.begin(connection).await.unwrap();
                if (lane + round).is_multiple_of(2) {
                    let mut rows = unit.read(&ACCOUNT, &ids(0..8), Lock::Update).await.unwrap();
                    for row in rows.chunks_mut(ACCOUNT.width()) {
                        let Value::Amount(posted) = &mut row[5] else {
                            panic!("{row:?}")
                        };
                        *posted += 1;
                    }
                    assert_eq!(unit.update(&ACCOUNT, &rows).await.unwrap(), 8);
                } else {
                    let deltas: Vec<Delta> = (0..8)
                        .map(|n| Delta {
                            seen: seen(&row(n, 0)),
                            add: vec![1, 0],
                        })
                        .collect();
                    assert_eq!(
                        unit.add(&ACCOUNT, &deltas).await.unwrap().len(),
                        8 * ACCOUNT.counted()
                    );
                }
                connection = committed(unit.commit().await).1;
            }
        }
    });
    join_all(tasks).await;
    let mut psql = world.psql().await;
    assert_eq!(
        number(&mut psql, "SELECT min(posted)::bigint FROM account").await,
        100
    );
    assert_eq!(
        number(&mut psql, "SELECT sum(posted)::bigint FROM account").await,
        800
    );
}

#[tokio::test]
async fn a_query_gives_columns_by_their_type_and_can_stop() {
    let world = accounts(0..10).await;
    let mut all = Vec::new();
    let sql = "SELECT id, \"order\", status, note, seen, posted, version, $2::text AS nothing, status = 1 AS yes \
               FROM account WHERE id < $1 ORDER BY id";
    let args = [Value::Key(key(2)), Value::Null];
    world
        .ledger
        .query(sql, &args, &mut |row| {
            all.push(row.to_vec());
            true
        })
        .await
        .unwrap();
    let expected = |n| [row(n, 0), vec![Value::Null, Value::Int(1)]].concat();
    assert_eq!(all, [expected(0), expected(1)]);
    let mut count = 0;
    let endless = "SELECT generate_series(1, 100000000)";
    world
        .ledger
        .query(endless, &[], &mut |_| {
            count += 1;
            count < 10
        })
        .await
        .unwrap();
    assert_eq!(count, 10);
    for (sql, class) in [
        ("SELECT 1 / 0", Class::Poison),
        ("DELETE FROM account", Class::Down),
        ("SELECT 0.5", Class::Poison),
    ] {
        let fault = world
            .ledger
            .query(sql, &[], &mut |_| true)
            .await
            .unwrap_err();
        assert_eq!(fault.class, class, "{sql}: {fault}");
    }
    assert_eq!(
        number(&mut world.psql().await, "SELECT count(*) FROM account").await,
        10
    );
}

#[tokio::test]
async fn a_locked_read_takes_its_locks_in_the_order_of_the_ids() {
    let world = accounts(0..500).await;
    let sql = "SELECT count(*) FROM pg_stat_database WHERE deadlocks < 0";
    assert_eq!(
        sqlx::query(AssertSqlSafe(sql))
            .fetch_one(&mut world.psql().await)
            .await
            .unwrap()
            .get::<i64, _>(0),
        0
    );
    let tasks = (0..6_i16).map(|lane| {
        let world = &world;
        async move {
            let mut connection = world.lane(lane).await;
            for round in 0..10_u64 {
                let mut unit = world.ledger.begin(connection).await.unwrap();
                let range = round * 20..round * 20 + 300;
                unit.read(&ACCOUNT, &ids(range.clone()), Lock::Update)
                    .await
                    .unwrap();
                let deltas: Vec<Delta> = range
                    .map(|n| Delta {
                        seen: seen(&row(n, 0)),
                        add: vec![1, 1],
                    })
                    .collect();
                unit.add(&ACCOUNT, &deltas).await.unwrap();
                connection = committed(unit.commit().await).1;
            }
        }
    });
    join_all(tasks).await;
    assert_eq!(
        number(
            &mut world.psql().await,
            "SELECT sum(posted)::bigint FROM account"
        )
        .await,
        6 * 10 * 300
    );
}

#[tokio::test]
async fn rows_that_are_new_by_construction_go_in_plainly_and_a_collision_heals() {
    let world = accounts(0..2).await;
    let mut unit = world.unit(0).await;
    unit.save(semel_core::ledger::Save::Claims).await.unwrap();
    let fresh: Vec<Value> = (5..8).flat_map(|n| row(n, 1)).collect();
    assert_eq!(unit.append(&ACCOUNT, &fresh).await.unwrap(), 3);
    let colliding: Vec<Value> = (1..5).flat_map(|n| row(n, 1)).collect();
    assert_eq!(unit.append(&ACCOUNT, &colliding).await.unwrap(), 0);
    unit.back(semel_core::ledger::Save::Claims).await.unwrap();
    assert_eq!(unit.append(&ACCOUNT, &fresh).await.unwrap(), 3);
    assert_eq!(unit.append(&ACCOUNT, &[]).await.unwrap(), 0);
    committed(unit.commit().await);
    assert_eq!(
        number(&mut world.psql().await, "SELECT count(*) FROM account").await,
        5
    );
}

#[tokio::test]
async fn a_row_that_another_constraint_than_the_identity_refuses_is_a_clash_and_no_collision() {
    let world = accounts(0..2).await;
    let unique = "CREATE UNIQUE INDEX ordered ON account (\"order\")";
    run(&mut world.psql().await, unique).await;
    let mut unit = world.unit(0).await;
    let mut other = row(5, 1);
    other[1].clone_from(&row(1, 1)[1]);
    let fault = unit.insert(&ACCOUNT, &other).await.unwrap_err();
    assert!(fault.is_clash(), "{fault}");
    assert_eq!(fault.class, Class::Retry);
}

#[tokio::test]
async fn deltas_whose_rows_nobody_needs_are_counted() {
    let world = accounts(0..3).await;
    let mut unit = world.unit(0).await;
    let delta = |row: Vec<Value>| Delta {
        seen: seen(&row),
        add: vec![5, 1],
    };
    let mut stale = row(1, 0);
    stale[2] = Value::Int(2);
    let many = [delta(row(0, 0)), delta(stale), delta(row(2, 0))];
    assert_eq!(unit.raise(&ACCOUNT, &many).await.unwrap(), 2);
    assert_eq!(unit.raise(&ACCOUNT, &[delta(row(2, 0))]).await.unwrap(), 1);
    assert_eq!(unit.raise(&ACCOUNT, &[]).await.unwrap(), 0);
    committed(unit.commit().await);
    let sum = "SELECT sum(posted)::bigint FROM account";
    assert_eq!(number(&mut world.psql().await, sum).await, 15);
}

/// The plan of the last deltas that this unit's connection sent.
async fn plan_of_deltas(unit: &mut semel_postgres::PostgresUnit) -> String {
    let find =
        "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%UPDATE%\"account\"%'";
    let name: String = sqlx::query_scalar(find)
        .persistent(false)
        .fetch_one(&mut unit.lend())
        .await
        .unwrap();
    // Generic: without the arrays, whose length the planner must not know anyway.
    sqlx::raw_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        .execute(&mut unit.lend())
        .await
        .unwrap();
    let explain = format!("EXPLAIN EXECUTE {name}(NULL, NULL, NULL, NULL, NULL, NULL)");
    let rows = sqlx::raw_sql(AssertSqlSafe(explain))
        .fetch_all(&mut unit.lend())
        .await
        .unwrap();
    let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    lines.join("\n")
}

/// Whoever takes many row locks takes them in the order of the arrays, whatever the planner knows of the table: two
/// lanes that add to the same rows wait for each other, never in a circle.
#[tokio::test]
async fn t32_many_deltas_lock_their_rows_in_the_order_of_the_arrays() {
    for (count, analyzed) in [(200, false), (200, true), (2_000, true), (20_000, true)] {
        let world = accounts(0..count).await;
        if analyzed {
            run(&mut world.psql().await, "VACUUM ANALYZE account").await;
        }
        let mut unit = world.unit(0).await;
        let mut keys = ids(0..200);
        keys.sort_unstable();
        let delta = |key: Value| Delta {
            seen: [&[key][..], &row(1, 0)[2..5]].concat(),
            add: vec![1, 1],
        };
        let deltas: Vec<Delta> = keys.into_iter().map(delta).collect();
        assert!(unit.raise(&ACCOUNT, &deltas).await.unwrap() > 0);
        let plan = plan_of_deltas(&mut unit).await;
        let nested = plan.find("Nested Loop").expect(&plan);
        let outer = plan.find("Function Scan on given").expect(&plan);
        let inner = plan.find("on account known").expect(&plan);
        assert!(
            !plan.contains("Hash Join") && !plan.contains("Merge Join"),
            "{plan}"
        );
        let inner = inner.max(plan.rfind("on account known").unwrap_or(0));
        assert!(nested < outer && outer < inner, "{count} rows:\n{plan}");
    }
}

static TYPES: Table = Table {
    name: "types",
    columns: &[
        Column {
            name: "id",
            kind: Type::Int,
            change: Change::Fixed,
        },
        Column {
            name: "word",
            kind: Type::Text,
            change: Change::Fixed,
        },
        Column {
            name: "cents",
            kind: Type::Amount,
            change: Change::Fixed,
        },
        Column {
            name: "flag",
            kind: Type::Int,
            change: Change::Fixed,
        },
    ],
};

/// Rows come back as arrays, which name the domain and not what it is based on.
#[tokio::test]
async fn columns_of_domains_come_back_and_wrong_types_are_refused() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    run(
        &mut psql,
        "CREATE DOMAIN small AS int; CREATE DOMAIN word AS varchar(9); CREATE DOMAIN cents AS numeric(39, 0);
         CREATE TABLE types (id small PRIMARY KEY, word word, cents cents, flag boolean);
         INSERT INTO types VALUES (-7, 'é', 12345678901234567890, true), (8, NULL, 0, NULL)",
    )
    .await;
    let ids = [Value::Int(-7), Value::Int(8)];
    let mut unit = world.unit(0).await;
    let rows = unit.read(&TYPES, &ids, Lock::None).await.unwrap();
    let first = [
        Value::Int(-7),
        Value::Text("é".into()),
        Value::Amount(12_345_678_901_234_567_890),
        Value::Int(1),
    ];
    let second = [Value::Int(8), Value::Null, Value::Amount(0), Value::Null];
    assert_eq!(rows, [first, second].concat());
    drop(unit);
    for (wrong, lane) in [
        ("double precision", 1),
        ("numeric(9, 2)", 2),
        ("bigint[]", 3),
    ] {
        let value = if lane == 3 { "ARRAY[1]" } else { "2.5" };
        run(
            &mut psql,
            &format!(
                "ALTER TABLE types DROP cents; ALTER TABLE types ADD cents {wrong} DEFAULT {value}"
            ),
        )
        .await;
        let mut unit = world.unit(lane).await;
        let fault = unit.read(&TYPES, &ids, Lock::None).await.unwrap_err();
        assert_eq!(fault.class, Class::Poison, "{wrong}: {fault}");
        assert!(fault.detail().contains("`cents`"), "{wrong}: {fault}");
    }
}
