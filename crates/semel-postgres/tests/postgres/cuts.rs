//! The connection is hurt at every request of a unit, in every way; each unknown commit must be resolved to what
//! is true, and each key must end up applied exactly once.

use semel_core::ledger::{Claimed, Commit, Fence, Reached, Record, Resolved, Save};
use semel_core::{Fault, Key, Ledger, Unit};
use semel_postgres::{PostgresLane, PostgresLedger};
use semel_sql::Lend;
use sqlx::PgConnection;

use crate::proxy::{HURTS, Hurt, Proxy};
use crate::world::{World, key, number, run};

/// How one try ended, as the engine would see it.
enum Ended {
    Committed,
    /// Nothing was concluded, and no COMMIT can have been sent.
    Failed,
    RolledBack,
    Unknown(Fence),
}

/// A key, and how many others its unit claims behind it: few and many are claimed in two ways.
#[derive(Clone, Copy)]
struct Keyed {
    key: Key,
    others: u64,
}

impl Keyed {
    fn all(self) -> Vec<Key> {
        let number = u128::from_be_bytes(self.key.into_bytes());
        let other =
            |n: u64| Key::from_bytes((1 << 127 | number << 32 | u128::from(n)).to_be_bytes());
        std::iter::once(self.key)
            .chain((0..self.others).map(other))
            .collect()
    }
}

/// A unit as the engine runs one: claim, a handler's statement in a savepoint, a record, commit. `fence` tells
/// the caller how far it came, since the caller may have to abort it.
async fn unit(
    world: &World,
    ledger: &PostgresLedger,
    lane: PostgresLane,
    key: Keyed,
    begun: &std::sync::Mutex<Option<Fence>>,
) -> Result<Commit<PostgresLane>, Fault> {
    let mut unit = ledger.begin(lane).await?;
    *begun.lock().unwrap() = Some(unit.fence());
    let claimed = unit.claim(&world.claims(&key.all())).await?;
    unit.save(Save::Claims).await?;
    let key = key.key;
    let mut record = Record::default();
    if claimed[0] == Claimed::Fresh {
        sqlx::query("INSERT INTO effect VALUES ($1)")
            .bind(sqlx::types::Uuid::from_bytes(key.into_bytes()))
            .execute(&mut unit.lend())
            .await?;
    } else {
        record.sightings.push(world.sighting(key));
    }
    record.positions.push(Reached {
        source: world.source,
        partition: "p".into(),
        next: 1,
        mark: "m".into(),
    });
    unit.write(&record).await?;
    Ok(unit.commit().await)
}

/// Runs a unit until it ends, or until the proxy has left it hanging: then it is aborted with its connection, as
/// `unit_deadline` does, and its outcome is unknown.
async fn hurt(
    world: &World,
    ledger: &PostgresLedger,
    lane: PostgresLane,
    key: Keyed,
    proxy: &Proxy,
    how: Hurt,
) -> Ended {
    let begun = std::sync::Mutex::new(None);
    let ended = tokio::select! {
        ended = unit(world, ledger, lane, key, &begun) => Some(ended),
        () = hanging(proxy, how) => None,
    };
    let fence = *begun.lock().unwrap();
    match ended {
        Some(Ok(Commit::Committed(..))) => Ended::Committed,
        Some(Ok(Commit::RolledBack(_))) => Ended::RolledBack,
        Some(Ok(Commit::Unknown(_))) => Ended::Unknown(fence.unwrap()),
        Some(Err(_)) => Ended::Failed,
        None => fence.map_or(Ended::Failed, Ended::Unknown),
    }
}

async fn hanging(proxy: &Proxy, how: Hurt) {
    if how.is_silent() {
        proxy.reached().await;
    } else {
        std::future::pending::<()>().await;
    }
}

#[derive(Debug, Default)]
struct Tally {
    cuts: u32,
    unknown: u32,
    unknown_committed: u32,
    rolled_back: u32,
    failed: u32,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_e016_every_cut_at_every_request_is_resolved_to_the_truth() {
    every_cut(&World::with(|o| o.resolve_wait_ms = 30).await).await;
}

pub(crate) async fn every_cut(world: &World) {
    run(
        &mut world.psql().await,
        "CREATE TABLE effect (key uuid PRIMARY KEY)",
    )
    .await;
    let proxy = Proxy::before(&world.options.url).await;
    let hurt_ledger = world.again(|o| o.url.clone_from(&proxy.url)).await;
    let mut tally = Tally::default();
    let mut keys = 0;
    let mut psql = world.psql().await;
    for (warm, others) in [(false, 0), (true, 0), (true, 99), (true, 0), (false, 99)] {
        for how in HURTS {
            let mut request = 1;
            loop {
                keys += 1;
                if !one_cut(
                    world,
                    &hurt_ledger,
                    &proxy,
                    (warm, how, request),
                    Keyed {
                        key: key(keys),
                        others,
                    },
                    &mut tally,
                    &mut psql,
                )
                .await
                {
                    break;
                }
                request += 1;
            }
            assert!(
                request > if warm { 6 } else { 9 },
                "{how:?}: only {request} requests"
            );
        }
    }
    assert!(tally.cuts >= 200, "{tally:?}");
    assert!(
        tally.unknown_committed > 0 && tally.unknown > tally.unknown_committed,
        "{tally:?}"
    );
    let exact = i64::try_from(keys).unwrap();
    assert_eq!(
        number(&mut psql, "SELECT count(*) FROM effect").await,
        exact
    );
    assert_eq!(
        number(
            &mut psql,
            "SELECT count(*) FROM effect JOIN semel_ledger USING (key)"
        )
        .await,
        exact
    );
}

/// One cut and its aftermath; false when the unit ended before the chosen request came.
async fn one_cut(
    world: &World,
    hurt_ledger: &PostgresLedger,
    proxy: &Proxy,
    (warm, how, request): (bool, Hurt, u64),
    keyed: Keyed,
    tally: &mut Tally,
    psql: &mut PgConnection,
) -> bool {
    let lane_id = world.lane_id(0);
    let key = keyed.key;
    let mut lane = hurt_ledger.connect(lane_id).await.unwrap();
    if warm {
        // Statements are prepared by a unit of a key that was there, then by one that is new.
        for n in [0, u64::MAX - rand::random::<u64>() / 2] {
            let warming = semel_core::Key::from_bytes(u128::from(n).to_be_bytes());
            let began = std::sync::Mutex::new(None);
            let warmer = Keyed {
                key: warming,
                ..keyed
            };
            let commit = unit(world, hurt_ledger, lane, warmer, &began)
                .await
                .unwrap();
            lane = crate::world::committed(commit).1;
            run(psql, &format!("DELETE FROM effect WHERE key = '{warming}'")).await;
        }
    }
    proxy.arm(request, how);
    let ended = hurt(world, hurt_ledger, lane, keyed, proxy, how).await;
    let struck = proxy.struck();
    let held = format!("SELECT count(*) FROM semel_ledger WHERE key = '{key}'");
    let place = format!("warm={warm} {how:?} at request {request}");
    match ended {
        Ended::Committed => assert!(!struck, "{place}: a commit was confirmed by nobody"),
        Ended::Failed => tally.failed += 1,
        Ended::RolledBack => tally.rolled_back += 1,
        Ended::Unknown(fence) => {
            tally.unknown += 1;
            let resolved = world
                .ledger
                .resolve(fence)
                .await
                .unwrap_or_else(|e| panic!("{place}: {e}"));
            let truth = number(psql, &held).await == 1;
            match resolved {
                Resolved::Committed(proof) => {
                    tally.unknown_committed += 1;
                    assert!(truth, "{place}: told as committed, and is not");
                    assert_eq!(proof.fence(), fence);
                }
                Resolved::RolledBack => {
                    assert!(!truth, "{place}: told as rolled back, and is committed")
                }
                Resolved::Lost => panic!("{place}: nothing was lost"),
            }
        }
    }
    proxy.rest();
    tally.cuts += u32::from(struck);
    // The broker delivers again; the lane has a new connection.
    again(world, keyed, &place, psql).await;
    struck
}

async fn again(world: &World, keyed: Keyed, place: &str, psql: &mut PgConnection) {
    let lane = world.ledger.connect(world.lane_id(0)).await.unwrap();
    let begun = std::sync::Mutex::new(None);
    match unit(world, &world.ledger, lane, keyed, &begun).await {
        Ok(Commit::Committed(..)) => {}
        Ok(Commit::RolledBack(fault) | Commit::Unknown(fault)) | Err(fault) => {
            panic!("{place}: {fault}")
        }
    }
    let sql = format!("SELECT count(*) FROM effect WHERE key = '{}'", keyed.key);
    assert_eq!(number(psql, &sql).await, 1, "{place}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_a_half_open_connection_is_given_up_and_its_silent_session_ended() {
    half_open(&World::with(|o| o.resolve_wait_ms = 30).await).await;
}

pub(crate) async fn half_open(world: &World) {
    let proxy = Proxy::before(&world.options.url).await;
    let hurt_ledger = world.again(|o| o.url.clone_from(&proxy.url)).await;
    let lane = hurt_ledger.connect(world.lane_id(0)).await.unwrap();
    let mut unit = hurt_ledger.begin(lane).await.unwrap();
    let fence = unit.fence();
    // Parse and execute pass; then silence while the server holds the fence and the key.
    proxy.arm(2, Hurt::HoldReply);
    let claims = [world.claim(key(1))];
    tokio::select! {
        _ = unit.claim(&claims) => panic!("nothing answers"),
        () = proxy.reached() => {}
    }
    drop(unit);
    let sessions = "SELECT count(*) FROM pg_locks JOIN semel_fence ON transactionid = xmax";
    assert_eq!(number(&mut world.psql().await, sessions).await, 1);
    assert_eq!(
        world.ledger.resolve(fence).await.unwrap(),
        Resolved::RolledBack
    );
    assert_eq!(number(&mut world.psql().await, sessions).await, 0);
    assert!(!world.holds(key(1)).await);
    proxy.rest();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_a_connection_that_falls_silent_while_a_unit_begins_does_not_block_its_lane() {
    let world = World::with(|o| o.lock_timeout_ms = 50).await;
    let proxy = Proxy::before(&world.options.url).await;
    let hurt_ledger = world.again(|o| o.url.clone_from(&proxy.url)).await;
    let lane = hurt_ledger.connect(world.lane_id(0)).await.unwrap();
    proxy.arm(1, Hurt::HoldReply);
    tokio::select! {
        _ = hurt_ledger.begin(lane) => panic!("nothing answers"),
        () = proxy.reached() => {}
    }
    let unit = world.unit(0).await;
    assert_eq!(unit.fence().unit, 1);
    crate::world::committed(unit.commit().await);
    proxy.rest();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_a_lane_whose_goodbye_was_not_answered_goes_on_and_has_lost_nothing() {
    let world = World::new().await;
    // Nobody hears that the row is gone; or it stays.
    for (hurt, unit) in [(Hurt::SwallowReply, 1), (Hurt::CutRequest, 3)] {
        let proxy = Proxy::before(&world.options.url).await;
        let ledger = world.again(|o| o.url.clone_from(&proxy.url)).await;
        let id = world.lane_id(i16::try_from(unit).unwrap());
        let mut lane = ledger.connect(id).await.unwrap();
        for _ in 0..2 {
            lane = crate::world::committed(ledger.begin(lane).await.unwrap().commit().await).1;
        }
        // The row is looked for first, and each statement is parsed before it runs.
        proxy.arm(4, hurt);
        ledger.leave(lane).await.unwrap_err();
        assert!(proxy.struck(), "{hurt:?}");
        let lane = ledger.connect(id).await.unwrap();
        let next = ledger.begin(lane).await.unwrap();
        assert_eq!(next.fence().unit, unit, "{hurt:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_a_goodbye_that_the_network_kept_does_not_hit_the_row_made_anew() {
    let world = World::new().await;
    let id = world.lane_id(0);
    let lane = world.ledger.connect(id).await.unwrap();
    let mut psql = world.psql().await;
    let seen: String = sqlx::query_scalar("SELECT xmin::text FROM semel_fence")
        .fetch_one(&mut psql)
        .await
        .unwrap();
    world.ledger.leave(lane).await.unwrap();
    drop(world.ledger.connect(id).await.unwrap());
    let late = sqlx::query(include_str!("../../src/sql/fence_delete.sql"))
        .bind(id.consumer.0)
        .bind(sqlx::types::Uuid::from_bytes(id.instance.0))
        .bind(id.lane)
        .bind(seen);
    let hit = late.execute(&mut psql).await.unwrap().rows_affected();
    assert_eq!(hit, 0);
    let lives = number(&mut psql, "SELECT count(*) FROM semel_fence").await;
    assert_eq!(lives, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t33_a_connection_that_falls_silent_while_a_lane_is_set_up_or_left_is_given_up() {
    let world = World::new().await;
    let tries = (0..12_i16).map(|request| {
        let world = &world;
        async move {
            let proxy = Proxy::before(&world.options.url).await;
            let hurt_ledger = world
                .again(|o| {
                    o.url.clone_from(&proxy.url);
                    (o.connect_timeout_ms, o.statement_timeout_ms) = (2_000, 1_000);
                })
                .await;
            let id = world.lane_id(request);
            let ended = if request == 0 {
                let lane = world.again(|o| o.url.clone_from(&proxy.url)).await;
                let lane = lane.connect(id).await.unwrap();
                proxy.arm(1, Hurt::HoldRequest);
                hurt_ledger.leave(lane).await
            } else {
                proxy.arm(request.unsigned_abs().into(), Hurt::HoldRequest);
                hurt_ledger.connect(id).await.map(drop)
            };
            assert_eq!(ended.is_err(), proxy.struck(), "request {request}");
            proxy.rest();
            proxy.struck()
        }
    });
    let struck = futures_util::future::join_all(tries).await;
    assert!(struck[..6].iter().all(|struck| *struck), "{struck:?}");
}
