//! Processes killed by SIGKILL at every point of a unit, and in between: what is in the file afterwards, and what
//! the fence says of it. The test binary runs itself as the child.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test unwraps, and a child talks to its parent"
)]

mod world;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use semel_core::ledger::{Fence, Instance, LaneId, Note, Record, Resolved};
use semel_core::rows::Value;
use semel_core::{Ledger, Limit, Outcome, Outgoing, Received, Sink, Source, Unit};
use semel_sql::Lend;
use semel_sqlite::{Options, QueueOptions, SqliteLane, SqliteLedger, SqliteQueue};

use world::{World, claim, committed, key, url};

/// What the child is to do, and on which file. Without it this binary is the parent.
const ROLE: &str = "SEMEL_TEST_CHILD";
const FILE: &str = "SEMEL_TEST_FILE";
const NUMBER: &str = "SEMEL_TEST_NUMBER";

/// The points at which a unit is stopped, in order. Only at the last is it committed.
const POINTS: [&str; 6] = [
    "connected",
    "begun",
    "claimed",
    "handled",
    "written",
    "committed",
];

fn spawn(role: &str, file: &Path, number: u8) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child", "--nocapture", "--test-threads=1"])
        .envs([(ROLE, role), (NUMBER, &number.to_string())])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Says something to the parent.
fn say(what: &str) {
    println!("\nsemel {what}");
}

/// Waits until the child says a line that begins with `what`, and returns the rest of it.
fn hear(lines: &mut impl Iterator<Item = std::io::Result<String>>, what: &str) -> String {
    lines
        .map(Result::unwrap)
        .find_map(|line| {
            line.strip_prefix("semel ")?
                .strip_prefix(what)
                .map(|rest| rest.trim().to_owned())
        })
        .unwrap_or_else(|| panic!("the child ended before it said `{what}`"))
}

fn lane_of(number: u8, consumer: semel_core::ledger::ConsumerId) -> LaneId {
    LaneId {
        consumer,
        instance: Instance([number; 16]),
        lane: 0,
    }
}

/// The other half of the tests below: does nothing unless one of them started this process.
#[tokio::test]
async fn the_child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let file = std::env::var_os(FILE).unwrap();
    let number: u8 = std::env::var(NUMBER).unwrap().parse().unwrap();
    let file = Path::new(&file);
    match role.as_str() {
        "stop" => stop_at(file, number).await,
        "loop" => work(file, number, u32::MAX).await,
        "work" => work(file, number, 40).await,
        "hold" => hold(file).await,
        other => panic!("no role `{other}`"),
    }
}

async fn child_lane(file: &Path, number: u8) -> (SqliteLedger, SqliteLane) {
    let ledger = SqliteLedger::open(Options::new(url(file))).await.unwrap();
    let consumer = ledger.enroll(&world::enrolment()).await.unwrap().consumer;
    let lane = ledger.connect(lane_of(number, consumer)).await.unwrap();
    (ledger, lane)
}

/// Goes up to one point of a unit and waits there to be killed.
async fn stop_at(file: &Path, number: u8) {
    let stop = POINTS[usize::from(number)];
    let reached = async |point: &str| {
        if point == stop {
            say(point);
            std::future::pending::<()>().await;
        }
    };
    let (ledger, lane) = child_lane(file, number).await;
    reached("connected").await;
    let mut unit = ledger.begin(lane).await.unwrap();
    reached("begun").await;
    unit.claim(&[claim(key(u32::from(number)))]).await.unwrap();
    reached("claimed").await;
    sqlx::query("UPDATE wallet SET balance = balance + 1")
        .execute(&mut unit.lend())
        .await
        .unwrap();
    reached("handled").await;
    unit.write(&refused(u32::from(number))).await.unwrap();
    reached("written").await;
    let _lane = committed(unit).await;
    reached("committed").await;
}

fn refused(n: u32) -> Record {
    let note = Note {
        key: key(n),
        outcome: Outcome::Refused,
        code: None,
        reply: Some(Bytes::from_static(b"no")),
    };
    Record {
        notes: vec![note],
        ..Record::default()
    }
}

/// One unit after the other, saying each number right before its commit.
async fn work(file: &Path, number: u8, units: u32) {
    let (ledger, mut lane) = child_lane(file, number).await;
    for n in 0..units {
        let mut unit = ledger.begin(lane).await.unwrap();
        unit.claim(&[claim(key(u32::from(number) * 100_000 + n))])
            .await
            .unwrap();
        sqlx::query("UPDATE wallet SET balance = balance + 1")
            .execute(&mut unit.lend())
            .await
            .unwrap();
        say(&format!("commit {}", unit.fence().unit));
        lane = committed(unit).await;
    }
}

/// Takes a message and waits to be killed with it.
async fn hold(file: &Path) {
    let queue = SqliteQueue::open(QueueOptions {
        visibility_ms: 300,
        ..QueueOptions::new(url(file), "bets")
    })
    .await
    .unwrap();
    let Received::Batch(batch) = queue
        .receive(Limit {
            count: 1,
            bytes: 1000,
        })
        .await
        .unwrap()
    else {
        panic!()
    };
    assert_eq!(batch.len(), 1);
    say("holding");
    std::future::pending::<()>().await;
}

async fn world_with_wallet() -> World {
    let world = World::open().await;
    world
        .sql("CREATE TABLE wallet (balance INTEGER NOT NULL) STRICT")
        .await;
    world.sql("INSERT INTO wallet VALUES (0)").await;
    world
}

async fn balance(world: &World) -> i64 {
    world.count("SELECT balance FROM wallet", &[]).await
}

#[tokio::test]
async fn t03_a_process_killed_at_any_point_of_a_unit_leaves_all_of_it_or_nothing() {
    for (number, point) in POINTS.iter().enumerate() {
        let world = world_with_wallet().await;
        let number = u8::try_from(number).unwrap();
        let mut child = spawn("stop", &world.path, number);
        hear(
            &mut BufReader::new(child.stdout.take().unwrap()).lines(),
            point,
        );
        child.kill().unwrap();
        child.wait().unwrap();
        let fence = Fence {
            lane: lane_of(number, world.consumer),
            unit: 1,
        };
        let resolved = world.ledger.resolve(fence).await.unwrap();
        let kept = i64::from(*point == "committed");
        assert_eq!(
            matches!(resolved, Resolved::Committed(_)),
            kept == 1,
            "{point}: {resolved:?}"
        );
        assert_eq!(balance(&world).await, kept, "{point}");
        assert_eq!(
            world.count("SELECT count(*) FROM semel_ledger", &[]).await,
            kept,
            "{point}"
        );
    }
}

#[tokio::test]
async fn t03_a_process_killed_around_its_commits_never_splits_a_unit() {
    let world = world_with_wallet().await;
    let (mut kept, mut undone) = (0, 0);
    for number in 1..=40_u8 {
        let mut child = spawn("loop", &world.path, number);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The nth commit, so that kills fall into young and warm units alike.
        let mut last = 0_i64;
        for _ in 0..=number % 7 {
            last = hear(&mut lines, "commit").parse().unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What the child still said before it died counts too.
        let rest = lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("semel commit ")?.parse().ok());
        last = rest.fold(last, |_, unit: i64| unit);
        let fence = Fence {
            lane: lane_of(number, world.consumer),
            unit: last,
        };
        let last_key = key(u32::from(number) * 100_000 + u32::try_from(last - 1).unwrap());
        let resolved = world.ledger.resolve(fence).await.unwrap();
        let there = world
            .count(
                "SELECT count(*) FROM semel_ledger WHERE key = ?1",
                &[Value::Key(last_key)],
            )
            .await;
        match resolved {
            Resolved::Committed(_) => kept += 1,
            Resolved::RolledBack => undone += 1,
            Resolved::Lost => panic!("nothing was lost"),
        }
        assert_eq!(there, i64::from(matches!(resolved, Resolved::Committed(_))));
        let rows = world.count("SELECT count(*) FROM semel_ledger", &[]).await;
        assert_eq!(
            balance(&world).await,
            rows,
            "each row has its effect, each effect its row"
        );
    }
    assert_eq!(kept + undone, 40);
}

#[tokio::test]
async fn e095_processes_on_one_file_meet_no_busy_error() {
    let world = world_with_wallet().await;
    let mut children: Vec<Child> = (1..=4)
        .map(|number| spawn("work", &world.path, number))
        .collect();
    for child in &mut children {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let text: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(child.wait().unwrap().success(), "{}", text.join("\n"));
    }
    assert_eq!(balance(&world).await, 160);
    assert_eq!(
        world.count("SELECT count(*) FROM semel_ledger", &[]).await,
        160
    );
}

#[tokio::test]
async fn a_message_held_by_a_killed_consumer_is_delivered_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("queue.db");
    let queue = SqliteQueue::open(QueueOptions::new(url(&file), "bets"))
        .await
        .unwrap();
    let message = Outgoing {
        key: None,
        payload: Some(Bytes::from_static(b"a")),
        headers: vec![],
        message_key: None,
    };
    queue.publish(&[message]).await.unwrap();
    let mut child = spawn("hold", &file, 0);
    hear(
        &mut BufReader::new(child.stdout.take().unwrap()).lines(),
        "holding",
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let Received::Batch(batch) = queue
        .receive(Limit {
            count: 9,
            bytes: 1000,
        })
        .await
        .unwrap()
    else {
        panic!()
    };
    assert_eq!(batch[0].message.attempt, 2);
}
