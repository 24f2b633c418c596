//! Behind a real PgBouncer that lends four sessions for a transaction at a time. The suite's laws run there too.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use semel_core::ledger::{Claimed, Commit, Record};
use semel_core::{Class, Fault, Ledger, Sink, Unit};
use semel_postgres::{PostgresLedger, PostgresQueue, QueueOptions, UnknownPooler};
use semel_sql::Lend;
use sqlx::{Connection, PgConnection};

use crate::proxy::Proxy;
use crate::queue::outgoing;
use crate::world::{World, committed, key, keys, number, pooler_url, run, settle, texts, url};
use crate::{cuts, fences};

/// Sessions of a pool.
const SESSIONS: usize = 4;

async fn backend(unit: &mut impl Lend<Db = sqlx::Postgres>) -> i32 {
    sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut unit.lend())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t22_eight_lanes_share_four_sessions_and_each_key_is_fresh_once() {
    let world = World::pooled(|_| {}).await;
    let lanes = (0..8_i16).map(|number| {
        let world = &world;
        async move {
            let mut lane = world.lane(number).await;
            let (mut fresh, mut served) = (0, BTreeSet::new());
            for unit in 1..=20 {
                let mut begun = world.ledger.begin(lane).await.unwrap();
                assert_eq!(
                    (begun.fence().unit, begun.fence().lane.lane),
                    (unit, number)
                );
                let start = unit.unsigned_abs() * 40 + u64::try_from(number).unwrap() * 5;
                let claims = world.claims(&keys(start..start + 60));
                let claimed = begun.claim(&claims).await.unwrap();
                fresh += claimed.iter().filter(|c| **c == Claimed::Fresh).count();
                served.insert(backend(&mut begun).await);
                lane = committed(begun.commit().await).1;
            }
            world.ledger.leave(lane).await.unwrap();
            (fresh, served)
        }
    });
    let ended = join_all(lanes).await;
    let fresh: usize = ended.iter().map(|(fresh, _)| fresh).sum();
    assert_eq!(fresh, 19 * 40 + 7 * 5 + 60);
    let all: BTreeSet<&i32> = ended.iter().flat_map(|(_, served)| served).collect();
    assert!(all.len() <= SESSIONS, "{all:?}");
    assert!(
        ended.iter().any(|(_, served)| served.len() > 1),
        "no lane changed its session, so nothing was proved"
    );
}

#[tokio::test]
async fn t22_nothing_is_left_behind_in_a_session_that_was_lent() {
    let world = World::pooled(|_| {}).await;
    let mut unit = world.unit(0).await;
    unit.claim(&world.claims(&keys(0..100))).await.unwrap();
    sqlx::query("SELECT $1::int")
        .bind(1)
        .execute(&mut unit.lend())
        .await
        .unwrap();
    let (proof, lane) = committed(unit.commit().await);
    world.ledger.resolve(proof.fence()).await.unwrap();
    let queue = PostgresQueue::open(world.options.clone(), "q", QueueOptions::default());
    queue.await.unwrap().publish(&[outgoing(1)]).await.unwrap();
    // The pool's sessions, one after the other, each held until all are seen.
    let mut held = Vec::new();
    for _ in 0..SESSIONS {
        let mut other = PgConnection::connect_with(&naive(&world.options.url))
            .await
            .unwrap();
        run(&mut other, "BEGIN").await;
        let left = "SELECT name FROM pg_prepared_statements WHERE name <> ''
                    UNION ALL
                    SELECT format('%s=%s', name, setting) FROM pg_settings WHERE source = 'session'
                    AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone')
                    UNION ALL
                    SELECT current_setting(name, true) FROM (VALUES ('semel.consumer'), ('semel.instance'), ('semel.lane')) v (name)
                    WHERE current_setting(name, true) <> ''";
        assert_eq!(texts(&mut other, left).await, Vec::<String>::new());
        held.push(other);
    }
    drop(held);
    world.ledger.leave(lane).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t22_t03_every_cut_at_every_request_is_resolved_to_the_truth_behind_a_pooler() {
    cuts::every_cut(&World::pooled(|o| o.resolve_wait_ms = 30).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t22_t33_the_silent_session_of_a_client_that_fell_silent_is_ended_behind_a_pooler() {
    cuts::half_open(&World::pooled(|o| o.resolve_wait_ms = 30).await).await;
}

#[tokio::test]
async fn t22_t23_t65_sessions_that_are_ended_are_resolved_behind_a_pooler() {
    fences::ended_while_idle(&World::pooled(|_| {}).await).await;
    fences::ended_in_its_commit(&World::pooled(|_| {}).await).await;
}

#[tokio::test]
async fn t22_t66_a_holder_that_may_still_commit_is_waited_for_behind_a_pooler() {
    fences::holder_may_commit(&World::pooled(|o| o.resolve_wait_ms = 50).await).await;
}

#[tokio::test]
async fn t22_settings_of_a_unit_hold_behind_a_pooler() {
    let world = World::pooled(|o| {
        (o.statement_timeout_ms, o.lock_timeout_ms) = (7_000, 6_000);
        o.idle_timeout_ms = 100;
    })
    .await;
    let mut unit = world.unit(0).await;
    let shown = "SELECT format('%s=%s', name, setting) FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout', \
                 'idle_in_transaction_session_timeout', 'transaction_isolation', 'transaction_read_only') ORDER BY name";
    let rows: Vec<String> = sqlx::query_scalar(shown)
        .fetch_all(&mut unit.lend())
        .await
        .unwrap();
    assert_eq!(
        rows,
        [
            "idle_in_transaction_session_timeout=100",
            "lock_timeout=6000",
            "statement_timeout=7000",
            "transaction_isolation=read committed",
            "transaction_read_only=off"
        ]
    );
    // One that thinks too long loses its unit.
    unit.claim(&world.claims(&[key(1)])).await.unwrap();
    let mut psql = world.psql().await;
    let gone = "SELECT count(*) FROM pg_locks JOIN semel_fence ON transactionid = xmax";
    while number(&mut psql, gone).await > 0 {
        tokio::task::yield_now().await;
    }
    assert!(matches!(unit.commit().await, Commit::Unknown(_)));
    assert!(!world.holds(key(1)).await);
}

#[tokio::test]
async fn t22_a_handler_prepares_nothing_behind_a_pooler() {
    let world = World::pooled(|_| {}).await;
    let mut unit = world.unit(0).await;
    let sql = sqlx::SqlSafeStr::into_sql_str("SELECT 1");
    let refused = sqlx::Executor::prepare(&mut unit.lend(), sql).await.err();
    assert!(refused.unwrap().to_string().contains("T22"));
    assert_eq!(unit.verdict().unwrap().class, Class::Poison);
}

#[tokio::test]
async fn t22_a_type_of_ones_own_is_cast_behind_a_pooler_or_the_message_is_tried_and_given_up() {
    let world = World::pooled(|_| {}).await;
    run(&mut world.psql().await, "CREATE TYPE mood AS ENUM ('calm')").await;
    let mut unit = world.unit(0).await;
    let cast: String = sqlx::query_scalar("SELECT 'calm'::mood::text")
        .fetch_one(&mut unit.lend())
        .await
        .unwrap();
    assert_eq!(cast, "calm");
    // The driver asks for the type behind the parse, and the question takes the nameless statement away.
    sqlx::query("SELECT 'calm'::mood")
        .fetch_one(&mut unit.lend())
        .await
        .unwrap_err();
    assert_eq!(unit.verdict().unwrap().class, Class::Retry);
}

#[track_caller]
fn assert_unknown_pooler(fault: &Fault) {
    assert!(fault.downcast_ref::<UnknownPooler>().is_some(), "{fault}");
    assert!(fault.is_refusal());
    assert!(
        fault.to_string().contains("pooler = \"transaction\""),
        "{fault}"
    );
}

#[tokio::test]
async fn t22_a_ledger_that_nobody_told_of_the_pooler_refuses_to_open_and_makes_nothing() {
    let world = World::new().await;
    let mut options = world.options.clone();
    options.url = pooler_url();
    options.schema.push_str(" not made");
    assert_unknown_pooler(&PostgresLedger::open(options.clone()).await.unwrap_err());
    for dry_run in [true, false] {
        let migrated = PostgresLedger::migrate_at(options.clone(), dry_run).await;
        assert_unknown_pooler(&migrated.unwrap_err());
    }
    let queue = PostgresQueue::open(options.clone(), "q", QueueOptions::default()).await;
    assert_unknown_pooler(&queue.unwrap_err());
    let made = format!(
        "SELECT count(*) FROM pg_namespace WHERE nspname = '{}'",
        options.schema
    );
    assert_eq!(number(&mut world.psql().await, &made).await, 0);
}

#[tokio::test]
async fn t22_a_pooler_that_gives_each_connection_a_session_is_none() {
    let url = pooler_url();
    let (server, _) = url.rsplit_once('/').unwrap();
    let world = World::with(|o| o.url = format!("{server}/kept")).await;
    let claimed = settle(&world, 0, &world.claims(&[key(1)]), &Record::default()).await;
    assert_eq!(claimed, [Claimed::Fresh]);
}

#[tokio::test]
async fn t22_a_pooler_that_was_put_in_between_while_we_run_stops_the_next_unit() {
    let world = World::new().await;
    let proxy = Proxy::before(&url()).await;
    let ledger = world.again(|o| o.url.clone_from(&proxy.url)).await;
    proxy.turn(&pooler_url());
    // All sessions of this pool end with their transactions, as those of a test before.
    let hold = async || {
        let mut other = PgConnection::connect_with(&naive(&proxy.url))
            .await
            .unwrap();
        run(&mut other, "BEGIN").await;
        other
    };
    let clear = async || {
        let mut held = Vec::new();
        for _ in 0..SESSIONS {
            held.push(hold().await);
        }
    };
    clear().await;
    // The session that a lane was dressed in is somebody else's: the lane meets none of its statements.
    let lane = ledger.connect(world.lane_id(0)).await.unwrap();
    let held = hold().await;
    assert_unknown_pooler(&ledger.begin(lane).await.unwrap_err());
    drop(held);
    // The next lane meets statements of the first one.
    let lane = ledger.connect(world.lane_id(0)).await.unwrap();
    assert_unknown_pooler(&ledger.connect(world.lane_id(1)).await.unwrap_err());
    drop(lane);
    clear().await;
    // A session that was dressed for another lane since would raise that one's fence.
    let lane = ledger.connect(world.lane_id(2)).await.unwrap();
    let _other = world.lane(1).await;
    let mut dressing = PgConnection::connect_with(&naive(&proxy.url))
        .await
        .unwrap();
    run(&mut dressing, "SELECT set_config('semel.lane', '1', false)").await;
    assert_unknown_pooler(&ledger.begin(lane).await.unwrap_err());
}

#[tokio::test]
async fn t22_the_naive_consumer_loses_its_settings_and_gets_the_answer_of_a_neighbour() {
    let url = pooler_url();
    let connect = async || PgConnection::connect_with(&naive(&url)).await.unwrap();
    let (mut one, mut two, mut three) = (connect().await, connect().await, connect().await);
    run(&mut one, "SET lock_timeout = '7s'").await;
    let ask = "SELECT format('%s', current_setting('lock_timeout'))";
    run(&mut two, "BEGIN").await;
    assert_eq!(texts(&mut two, ask).await, ["7s"], "a neighbour has it");
    assert_eq!(
        texts(&mut one, ask).await,
        ["0"],
        "and who set it has it no more"
    );
    run(&mut two, "ROLLBACK").await;

    let first: i32 = sqlx::query_scalar("SELECT 1")
        .fetch_one(&mut one)
        .await
        .unwrap();
    assert_eq!(first, 1);
    // Two sessions have a statement of the same name now.
    run(&mut three, "BEGIN").await;
    let other: i32 = sqlx::query_scalar("SELECT 2")
        .fetch_one(&mut two)
        .await
        .unwrap();
    assert_eq!(other, 2);
    let again = sqlx::query_scalar::<_, i32>("SELECT 1")
        .fetch_one(&mut one)
        .await;
    assert_eq!(again.unwrap(), 2, "asked for 1");
}

/// As most write it, but for what a pooler refuses at the door.
fn naive(url: &str) -> sqlx::postgres::PgConnectOptions {
    let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
    options.extra_float_digits(None)
}

#[tokio::test]
async fn t22_copies_of_one_key_on_lanes_behind_a_pooler_are_fresh_once() {
    let world = World::pooled(|_| {}).await;
    let tries = (0..16_i16).map(|lane| {
        let world = &world;
        async move { settle(world, lane, &world.claims(&[key(1)]), &Record::default()).await }
    });
    let claimed = join_all(tries).await.concat();
    let fresh = claimed.iter().filter(|c| **c == Claimed::Fresh).count();
    assert_eq!((fresh, claimed.len()), (1, 16));
}
