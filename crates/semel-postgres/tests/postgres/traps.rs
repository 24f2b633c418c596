//! Traps that need no proxy: swallowed errors, the user's own constraints, error texts in another language.

use semel_core::ledger::{Claimed, Record};
use semel_core::{Class, Ledger, Unit};
use semel_sql::Lend;
use sqlx::Row;

use crate::world::{World, committed, key, keys, number, rolled_back, run, settle, texts};

#[tokio::test]
async fn t01_a_swallowed_error_cannot_be_committed_around() {
    let world = World::new().await;
    let mut unit = world.unit(0).await;
    unit.claim(&world.claims(&[key(1)])).await.unwrap();
    let _ = sqlx::query("SELECT 1 / 0").execute(&mut unit.lend()).await;
    let fault = rolled_back(unit.commit().await);
    assert_eq!(fault.class, Class::Poison, "{fault}");
    assert!(!world.holds(key(1)).await);
}

#[tokio::test]
async fn t01_the_naive_consumer_believes_a_commit_that_was_none() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    run(&mut psql, "CREATE TABLE effect (n bigint)").await;
    sqlx::raw_sql("BEGIN; INSERT INTO effect VALUES (1)")
        .execute(&mut psql)
        .await
        .unwrap();
    let _ = sqlx::query("SELECT 1 / 0").execute(&mut psql).await;
    assert!(
        sqlx::raw_sql("COMMIT").execute(&mut psql).await.is_ok(),
        "the driver reports success"
    );
    assert_eq!(
        number(&mut psql, "SELECT count(*) FROM effect").await,
        0,
        "and nothing was saved"
    );
}

/// Drops a future that talks to the server after so many polls; whether it was still under way.
async fn dropped<T>(call: impl Future<Output = T>, polls: usize) -> bool {
    let mut call = Box::pin(call);
    for _ in 0..polls {
        if futures_util::FutureExt::now_or_never(&mut call).is_some() {
            return false;
        }
        tokio::task::yield_now().await;
    }
    true
}

#[tokio::test]
async fn t02_a_begin_that_was_dropped_leaves_its_lane_to_a_new_session_and_nothing_open() {
    let world = World::new().await;
    let mut under_way = 0;
    for n in 1..=12 {
        let lane = world.lane(0).await;
        let polls = usize::try_from(n % 4).unwrap() + 1;
        under_way += usize::from(dropped(world.ledger.begin(lane), polls).await);
        // The next life of the lane waits for nothing of the last one, and what it commits is there for others.
        assert_eq!(
            settle(&world, 0, &world.claims(&[key(n)]), &Record::default()).await,
            [Claimed::Fresh]
        );
        assert!(world.holds(key(n)).await, "committed and not there");
    }
    assert!(under_way > 0, "every begin had ended before it was dropped");
}

#[tokio::test]
async fn t02_the_naive_pool_hands_out_a_session_that_is_inside_of_a_transaction() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    run(&mut psql, "CREATE TABLE effect (n bigint)").await;
    let options: sqlx::postgres::PgConnectOptions = world.options.url.parse().unwrap();
    let schema = format!("\"{}\"", world.options.schema);
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        // The pool's own test of a session costs polls, and it passes a session inside of a transaction.
        .test_before_acquire(false)
        .connect_with(options.options([("search_path", schema.as_str())]))
        .await
        .unwrap();
    for polls in 1..=4 {
        dropped(pool.begin(), polls).await;
        let insert = sqlx::query("INSERT INTO effect VALUES (1)");
        assert!(
            insert.execute(&pool).await.is_ok(),
            "the driver reports success"
        );
        if number(&mut psql, "SELECT count(*) FROM effect").await == 0 {
            return;
        }
        run(&mut psql, "TRUNCATE effect").await;
    }
    panic!(
        "every insert was seen by others: the driver has become safe, so the attack proves nothing"
    );
}

#[tokio::test]
async fn t20_the_ledger_is_unique_by_consumer_and_key_alone() {
    let world = World::new().await;
    let unique = "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = 'semel_ledger'";
    let all = texts(&mut world.psql().await, unique).await;
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(
        all[0].contains("UNIQUE") && all[0].ends_with("(consumer, key)"),
        "{all:?}"
    );
}

#[tokio::test]
async fn t21_duplicates_burn_no_sequence() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    let sequences = "SELECT format('%s=%s', sequencename, last_value) FROM pg_sequences \
                     WHERE schemaname = current_schema() ORDER BY 1";
    settle(&world, 0, &world.claims(&keys(0..100)), &Record::default()).await;
    let before = texts(&mut psql, sequences).await;
    let record = Record {
        sightings: keys(0..100)
            .into_iter()
            .map(|k| world.sighting(k))
            .collect(),
        ..Record::default()
    };
    for _ in 0..10 {
        let claimed = settle(&world, 0, &world.claims(&keys(0..100)), &record).await;
        assert!(claimed.iter().all(|c| matches!(c, Claimed::Seen(_))));
        world
            .ledger
            .enroll(&crate::world::enrolment())
            .await
            .unwrap();
    }
    assert_eq!(texts(&mut psql, sequences).await, before);
    assert_eq!(before, ["semel_consumer_id_seq=1", "semel_queue_id_seq="]);
}

#[tokio::test]
async fn t24_e081_a_handler_works_on_the_units_own_connection() {
    let world = World::new().await;
    let pid = "SELECT pg_backend_pid()";
    let mut unit = world.unit(0).await;
    let first: i32 = sqlx::query_scalar(pid)
        .fetch_one(&mut unit.lend())
        .await
        .unwrap();
    let (_, lane) = committed(unit.commit().await);
    let mut unit = world.ledger.begin(lane).await.unwrap();
    let second: i32 = sqlx::query_scalar(pid)
        .fetch_one(&mut unit.lend())
        .await
        .unwrap();
    assert_eq!(first, second);
    // As many lanes as there are units, and none waits for a connection of another.
    let units = futures_util::future::join_all((1..20).map(|lane| world.unit(lane))).await;
    for unit in units {
        committed(unit.commit().await);
    }
}

#[tokio::test]
async fn t25_a_unique_violation_of_the_users_table_is_no_duplicate() {
    let world = World::new().await;
    run(
        &mut world.psql().await,
        "CREATE TABLE semel_ledger_key_of_user (n int CONSTRAINT mine UNIQUE)",
    )
    .await;
    run(
        &mut world.psql().await,
        "INSERT INTO semel_ledger_key_of_user VALUES (1)",
    )
    .await;
    let mut unit = world.unit(0).await;
    let claimed = unit.claim(&world.claims(&[key(1)])).await.unwrap();
    assert_eq!(claimed, [Claimed::Fresh]);
    let clash = "INSERT INTO semel_ledger_key_of_user VALUES (1)";
    sqlx::query(clash)
        .execute(&mut unit.lend())
        .await
        .unwrap_err();
    // Another unit's row: the next run sees it. If it never helps, the attempts run out.
    assert_eq!(unit.verdict().unwrap().class, Class::Retry);
    assert_eq!(rolled_back(unit.commit().await).class, Class::Retry);
    assert!(!world.holds(key(1)).await);
}

#[tokio::test]
async fn t26_errors_are_judged_by_their_code_whatever_their_text() {
    let world = World::new().await;
    let fail = "CREATE FUNCTION fail(code text, message text) RETURNS void LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message; END $$";
    run(&mut world.psql().await, fail).await;
    for (code, text, class) in [
        ("40001", "la sérialisation a échoué", Class::Busy),
        ("40P01", "Verklemmung entdeckt", Class::Busy),
        ("23505", "la clé dupliquée", Class::Retry),
        ("23514", "deadlock detected", Class::Poison),
        (
            "P0001",
            "duplicate key value violates unique constraint \"semel_ledger_key\"",
            Class::Poison,
        ),
        ("53100", "could not serialize access", Class::Down),
    ] {
        let mut unit = world.unit(0).await;
        let fails = sqlx::query("SELECT fail($1, $2)").bind(code).bind(text);
        fails.execute(&mut unit.lend()).await.unwrap_err();
        assert_eq!(unit.verdict().unwrap().class, class, "{code}");
    }
}

#[tokio::test]
async fn t32_lanes_that_claim_the_same_keys_sorted_never_deadlock() {
    let world = World::new().await;
    let lanes = (0..8_u64).map(|lane| {
        let world = &world;
        async move {
            let mut fresh = 0;
            for round in 0..20_u64 {
                // Overlapping windows, each sorted.
                let start = round * 40 + lane * 5;
                let claims = world.claims(&keys(start..start + 60));
                let claimed = settle(
                    world,
                    i16::try_from(lane).unwrap(),
                    &claims,
                    &Record::default(),
                )
                .await;
                fresh += claimed.iter().filter(|c| **c == Claimed::Fresh).count();
            }
            fresh
        }
    });
    let fresh: usize = futures_util::future::join_all(lanes)
        .await
        .into_iter()
        .sum();
    assert_eq!(fresh, 19 * 40 + 7 * 5 + 60);
}

#[tokio::test]
async fn t32_the_naive_order_deadlocks() {
    let world = World::with(|o| o.lock_timeout_ms = 20_000).await;
    let (mut one, mut two) = (world.unit(0).await, world.unit(1).await);
    one.claim(&world.claims(&[key(1)])).await.unwrap();
    two.claim(&world.claims(&[key(2)])).await.unwrap();
    let (first, second) = (world.claims(&[key(2)]), world.claims(&[key(1)]));
    let run = async |unit: &mut semel_postgres::PostgresUnit,
                     claims: &[semel_core::ledger::Claim]| {
        unit.claim(claims).await.map(|_| ())
    };
    let (one_ends, two_ends) = tokio::join!(
        async {
            let ended = run(&mut one, &first).await;
            drop(one);
            ended
        },
        async {
            let ended = run(&mut two, &second).await;
            drop(two);
            ended
        },
    );
    let victim = one_ends
        .err()
        .or(two_ends.err())
        .expect("one of them is the victim");
    assert_eq!(victim.class, Class::Busy, "{victim}");
}

#[tokio::test]
async fn a_session_keeps_its_promises_whatever_the_role_prefers() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    let role = format!("semel_sloppy_{:08x}", rand::random::<u32>());
    run(
        &mut psql,
        &format!("CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'semel'"),
    )
    .await;
    for setting in [
        "synchronous_commit = off",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "timezone = 'Asia/Tokyo'",
        "search_path = pg_catalog",
    ] {
        run(&mut psql, &format!("ALTER ROLE {role} SET {setting}")).await;
    }
    let (_, place) = world.options.url.split_once('@').unwrap();
    let ledger = world
        .again(|o| o.url = format!("postgres://{role}:semel@{place}"))
        .await;
    let mut unit = ledger
        .begin(ledger.connect(world.lane_id(0)).await.unwrap())
        .await
        .unwrap();
    let sql = "SELECT current_setting('synchronous_commit'), current_setting('transaction_isolation'), \
               current_setting('timezone'), current_setting('application_name'), current_schema()::text";
    let row = sqlx::query(sql).fetch_one(&mut unit.lend()).await.unwrap();
    let settings: Vec<String> = (0..5).map(|i| row.get(i)).collect();
    assert_eq!(
        settings,
        [
            "on",
            "read committed",
            "UTC",
            "semel",
            &world.options.schema
        ]
    );
    committed(unit.commit().await);
    drop(ledger);
    run(&mut psql, &format!("DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_missing_table_stops_the_consumer_instead_of_killing_its_messages() {
    let world = World::new().await;
    let mut unit = world.unit(0).await;
    sqlx::query("SELECT * FROM not_migrated_yet")
        .execute(&mut unit.lend())
        .await
        .unwrap_err();
    assert_eq!(unit.verdict().unwrap().class, Class::Stop);
}

#[tokio::test]
async fn t65_a_handler_that_switches_durability_off_cannot_commit() {
    let world = World::new().await;
    for local in [false, true] {
        let mut unit = world.unit(0).await;
        unit.claim(&world.claims(&[key(1)])).await.unwrap();
        sqlx::query("SELECT set_config('synchronous_commit', 'off', $1)")
            .bind(local)
            .execute(&mut unit.lend())
            .await
            .unwrap();
        let fault = rolled_back(unit.commit().await);
        assert_eq!(fault.class, Class::Stop, "{fault}");
        assert!(!world.holds(key(1)).await);
    }
}

#[tokio::test]
async fn a_statement_of_our_own_that_is_refused_stops_the_consumer_and_kills_no_message() {
    let world = World::new().await;
    let trigger = "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
                   CREATE TRIGGER no BEFORE INSERT ON semel_ledger FOR EACH ROW EXECUTE FUNCTION no()";
    run(&mut world.psql().await, trigger).await;
    let mut unit = world.unit(0).await;
    let fault = unit.claim(&world.claims(&[key(1)])).await.unwrap_err();
    assert_eq!(fault.class, Class::Stop, "{fault}");
    // What a handler left broken is still its own fault.
    let mut unit = world.unit(0).await;
    let _ = sqlx::query("SELECT 1 / 0").execute(&mut unit.lend()).await;
    let fault = unit.attempt(&[key(1)]).await.unwrap_err();
    assert_eq!(fault.class, Class::Poison, "{fault}");
}
