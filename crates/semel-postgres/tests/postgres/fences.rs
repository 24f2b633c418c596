//! Fences: lives and lanes, commits around which the session ends, and a database that lost what it confirmed.

use std::time::Duration;

use semel_core::ledger::{Claimed, Commit, Committed, Fence, Record, Resolved};
use semel_core::{Class, Ledger, Unit};
use semel_sql::Lend;
use sqlx::PgConnection;

use crate::proxy::{Hurt, Proxy};
use crate::world::{World, committed, key, number, rolled_back, run, settle};

/// A table whose rows make their COMMIT take so many seconds.
async fn slow_commits(psql: &mut PgConnection) {
    run(
        psql,
        "CREATE TABLE slow (seconds double precision);
         CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM pg_sleep(NEW.seconds); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER doze AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION doze()",
    )
    .await;
}

/// The backend that sleeps in its COMMIT, once it does.
async fn dozing(psql: &mut PgConnection, schema: &str) -> i64 {
    let sql = format!(
        "SELECT coalesce((SELECT a.pid FROM pg_stat_activity a JOIN pg_locks l USING (pid) \
         WHERE wait_event = 'PgSleep' AND relation = '\"{schema}\".slow'::regclass LIMIT 1), 0)::bigint"
    );
    loop {
        match number(psql, &sql).await {
            0 => tokio::task::yield_now().await,
            pid => return pid,
        }
    }
}

#[tokio::test]
async fn units_of_a_lane_are_numbered_and_a_clean_stop_leaves_no_fence() {
    let world = World::new().await;
    let mut lane = world.lane(3).await;
    for expected in 1..=20 {
        let unit = world.ledger.begin(lane).await.unwrap();
        assert_eq!(
            unit.fence(),
            Fence {
                lane: world.lane_id(3),
                unit: expected
            }
        );
        let proof;
        (proof, lane) = committed(unit.commit().await);
        assert_eq!(
            proof,
            Committed::witnessed(Fence {
                lane: world.lane_id(3),
                unit: expected
            })
        );
    }
    // A new connection of the same lane goes on from there.
    drop(lane);
    let unit = world.unit(3).await;
    assert_eq!(unit.fence().unit, 21);
    let (_, lane) = committed(unit.commit().await);
    world.ledger.leave(lane).await.unwrap();
    assert_eq!(
        number(&mut world.psql().await, "SELECT count(*) FROM semel_fence").await,
        0
    );
}

#[tokio::test]
async fn t06_a_unit_that_saw_only_copies_still_writes() {
    let world = World::new().await;
    settle(&world, 0, &world.claims(&[key(1)]), &Record::default()).await;
    let mut unit = world.unit(0).await;
    assert!(matches!(
        unit.claim(&world.claims(&[key(1)])).await.unwrap()[0],
        Claimed::Seen(_)
    ));
    let sql = "SELECT coalesce(pg_current_xact_id_if_assigned()::text::bigint, 0)";
    let xid: i64 = sqlx::query_scalar(sql)
        .fetch_one(&mut unit.lend())
        .await
        .unwrap();
    assert_ne!(
        xid, 0,
        "a transaction without an id commits without waiting for a standby"
    );
    committed(unit.commit().await);
}

#[tokio::test]
async fn t03_a_commit_dropped_after_one_poll_is_resolved() {
    let world = World::new().await;
    for n in 1..=20 {
        let mut unit = world.unit(0).await;
        let fence = unit.fence();
        unit.claim(&world.claims(&[key(n)])).await.unwrap();
        let mut commit = Box::pin(unit.commit());
        for _ in 0..n % 5 {
            if futures_util::FutureExt::now_or_never(&mut commit).is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(commit);
        let resolved = world.ledger.resolve(fence).await.unwrap();
        assert_eq!(
            resolved == Resolved::Committed(Committed::witnessed(fence)),
            world.holds(key(n)).await,
            "{resolved:?}"
        );
    }
}

#[tokio::test]
async fn t23_a_session_ended_while_idle_rolls_its_unit_back() {
    ended_while_idle(&World::new().await).await;
}

pub(crate) async fn ended_while_idle(world: &World) {
    for n in 1..=2 {
        let mut unit = world.unit(0).await;
        let fence = unit.fence();
        unit.claim(&world.claims(&[key(n)])).await.unwrap();
        let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
            .fetch_one(&mut unit.lend())
            .await
            .unwrap();
        run(
            &mut world.psql().await,
            &format!("SELECT pg_terminate_backend({pid}, 5000)"),
        )
        .await;
        if n == 1 {
            assert_eq!(
                unit.write(&Record {
                    unclaims: vec![key(9)],
                    ..Record::default()
                })
                .await
                .unwrap_err()
                .class,
                Class::Down
            );
        }
        let Commit::Unknown(fault) = unit.commit().await else {
            panic!("the check and the COMMIT went in one request")
        };
        assert_eq!(fault.class, Class::Down, "{fault}");
        assert_eq!(
            world.ledger.resolve(fence).await.unwrap(),
            Resolved::RolledBack
        );
        assert!(!world.holds(key(n)).await);
    }
}

#[tokio::test]
async fn t65_a_session_ended_in_its_commit_is_unknown_and_resolved() {
    ended_in_its_commit(&World::new().await).await;
}

pub(crate) async fn ended_in_its_commit(world: &World) {
    let mut psql = world.psql().await;
    slow_commits(&mut psql).await;
    let mut unit = world.unit(0).await;
    let fence = unit.fence();
    unit.claim(&world.claims(&[key(1)])).await.unwrap();
    sqlx::query("INSERT INTO slow VALUES (30)")
        .execute(&mut unit.lend())
        .await
        .unwrap();
    let (commit, ()) = tokio::join!(unit.commit(), async {
        let pid = dozing(&mut psql, &world.options.schema).await;
        run(&mut psql, &format!("SELECT pg_terminate_backend({pid})")).await;
    });
    let Commit::Unknown(fault) = commit else {
        panic!("{commit:?}")
    };
    assert_eq!(fault.class, Class::Down);
    assert_eq!(
        world.ledger.resolve(fence).await.unwrap(),
        Resolved::RolledBack
    );
    assert!(!world.holds(key(1)).await);
}

#[tokio::test]
async fn t66_a_holder_that_may_still_commit_is_waited_for_and_never_cut_short() {
    holder_may_commit(&World::with(|o| o.resolve_wait_ms = 50).await).await;
}

pub(crate) async fn holder_may_commit(world: &World) {
    let mut psql = world.psql().await;
    slow_commits(&mut psql).await;
    let proxy = Proxy::before(&world.options.url).await;
    let hurt_ledger = world.again(|o| o.url.clone_from(&proxy.url)).await;
    let lane = hurt_ledger.connect(world.lane_id(0)).await.unwrap();
    let mut unit = hurt_ledger.begin(lane).await.unwrap();
    let fence = unit.fence();
    unit.claim(&world.claims(&[key(1)])).await.unwrap();
    sqlx::query("INSERT INTO slow VALUES (1)")
        .execute(&mut unit.lend())
        .await
        .unwrap();
    proxy.arm(1, Hurt::CutAfterRequest);
    let commit = unit.commit().await;
    assert!(matches!(commit, Commit::Unknown(_)), "{commit:?}");
    dozing(&mut psql, &world.options.schema).await;
    let unlocked = "SELECT unit FROM semel_fence";
    assert_eq!(
        number(&mut psql, unlocked).await,
        fence.unit - 1,
        "the unlocked row lies"
    );
    let fault = world.ledger.resolve(fence).await.unwrap_err();
    assert_eq!(fault.class, Class::Busy, "{fault}");
    let patient = world.again(|o| o.resolve_wait_ms = 20_000).await;
    assert_eq!(
        patient.resolve(fence).await.unwrap(),
        Resolved::Committed(Committed::witnessed(fence))
    );
    assert!(world.holds(key(1)).await);
    proxy.rest();
}

#[tokio::test]
async fn t34_a_commit_has_no_statement_timeout() {
    let world = World::with(|o| o.statement_timeout_ms = 200).await;
    slow_commits(&mut world.psql().await).await;
    let mut unit = world.unit(0).await;
    sqlx::query("INSERT INTO slow VALUES (0.6)")
        .execute(&mut unit.lend())
        .await
        .unwrap();
    let (_, lane) = committed(unit.commit().await);
    // The next unit has it again.
    let mut unit = world.ledger.begin(lane).await.unwrap();
    sqlx::query("SELECT pg_sleep(10)")
        .execute(&mut unit.lend())
        .await
        .unwrap_err();
    assert_eq!(unit.verdict().unwrap().class, Class::Busy);
}

#[tokio::test]
async fn a_database_that_lost_confirmed_commits_is_noticed() {
    let world = World::new().await;
    let mut lane = world.lane(0).await;
    let mut last = None;
    for _ in 0..3 {
        let proof;
        (proof, lane) = committed(world.ledger.begin(lane).await.unwrap().commit().await);
        last = Some(proof.fence());
    }
    let last = last.unwrap();
    let mut psql = world.psql().await;
    // A failover or restore: the row is older than what this process was told.
    run(&mut psql, "UPDATE semel_fence SET unit = 1").await;
    assert_eq!(
        world
            .ledger
            .resolve(Fence { unit: 4, ..last })
            .await
            .unwrap(),
        Resolved::Lost
    );
    let fault = world.ledger.begin(lane).await.unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    run(&mut psql, "DELETE FROM semel_fence").await;
    assert_eq!(
        world
            .ledger
            .resolve(Fence { unit: 4, ..last })
            .await
            .unwrap(),
        Resolved::Lost
    );
    let lane = world.lane(0).await;
    assert_eq!(
        world.ledger.begin(lane).await.unwrap_err().class,
        Class::Stop
    );
}

#[tokio::test]
async fn a_fence_that_a_silent_session_holds_is_busy_until_the_lane_connects_again() {
    let world = World::with(|o| o.lock_timeout_ms = 50).await;
    let second = world.lane(0).await;
    let held = world.unit(0).await;
    let fault = world.ledger.begin(second).await.unwrap_err();
    assert_eq!(fault.class, Class::Busy, "{fault}");
    let fence = held.fence();
    let lane = world.lane(0).await;
    assert!(matches!(held.commit().await, Commit::Unknown(_)));
    assert_eq!(
        world.ledger.resolve(fence).await.unwrap(),
        Resolved::RolledBack
    );
    committed(world.ledger.begin(lane).await.unwrap().commit().await);
}

#[tokio::test]
async fn a_handler_that_thinks_too_long_loses_its_unit() {
    let world = World::with(|o| o.idle_timeout_ms = 100).await;
    let mut unit = world.unit(0).await;
    unit.claim(&world.claims(&[key(1)])).await.unwrap();
    let mut psql = world.psql().await;
    let gone = "SELECT count(*) FROM pg_locks JOIN semel_fence ON transactionid = xmax";
    while number(&mut psql, gone).await > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let fence = unit.fence();
    assert!(matches!(unit.commit().await, Commit::Unknown(_)));
    assert_eq!(
        world.ledger.resolve(fence).await.unwrap(),
        Resolved::RolledBack
    );
    assert!(!world.holds(key(1)).await);
}

#[tokio::test]
async fn a_unit_whose_fence_is_not_its_own_stops_before_the_commit() {
    let world = World::new().await;
    let mut unit = world.unit(0).await;
    unit.claim(&world.claims(&[key(1)])).await.unwrap();
    let elsewhere = sqlx::query("UPDATE semel_fence SET lane = 99");
    elsewhere.execute(&mut unit.lend()).await.unwrap();
    let fault = rolled_back(unit.commit().await);
    assert_eq!(fault.class, Class::Stop, "{fault}");
    assert!(!world.holds(key(1)).await);
}

#[tokio::test]
async fn a_commit_that_the_server_refuses_is_rolled_back_and_not_unknown() {
    let world = World::new().await;
    let deferred = "CREATE TABLE a (id int PRIMARY KEY);
                    CREATE TABLE b (a int REFERENCES a DEFERRABLE INITIALLY DEFERRED,
                                    n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
                    INSERT INTO b VALUES (NULL, 1)";
    run(&mut world.psql().await, deferred).await;
    for (sql, class) in [
        ("INSERT INTO b VALUES (7, 2)", Class::Poison),
        ("INSERT INTO b VALUES (NULL, 1)", Class::Retry),
    ] {
        let mut unit = world.unit(0).await;
        unit.claim(&world.claims(&[key(1)])).await.unwrap();
        sqlx::query(sql).execute(&mut unit.lend()).await.unwrap();
        assert_eq!(rolled_back(unit.commit().await).class, class, "{sql}");
        assert!(!world.holds(key(1)).await);
    }
}

#[tokio::test]
async fn fences_of_lives_that_crashed_a_week_ago_are_deleted_at_the_next_start() {
    let world = World::new().await;
    for lane in [0, 1] {
        committed(world.unit(lane).await.commit().await);
    }
    let mut psql = world.psql().await;
    let old = "UPDATE semel_fence SET seen_at = now() - interval '8 days' WHERE lane = 0";
    run(&mut psql, old).await;
    let enrolment = crate::world::enrolment();
    world.ledger.enroll(&enrolment).await.unwrap();
    assert_eq!(
        number(&mut psql, "SELECT sum(lane)::bigint FROM semel_fence").await,
        1
    );
    assert_eq!(
        number(&mut psql, "SELECT count(*) FROM semel_fence").await,
        1
    );
}
