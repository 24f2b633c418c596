//! Killed with SIGKILL at random points, a hundred times and more, and started again: the money is what one
//! clean pass over the operations gives. And two processes on one queue and one ledger, killed in turns.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use semel_wallet::workload::{Shape, Workload, expected, generate};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use crate::place::{Place, on_both, postgres_url};

on_both!(
    killed_a_hundred_times_the_money_is_exact,
    two_processes_on_one_queue_killed_in_turns_apply_each_operation_once
);

/// How often a process must be killed while it works.
const KILLS: u32 = 100;

/// No test may run longer than this, whatever happens.
const BOUND: Duration = Duration::from_secs(900);

const WALLET: &str = "handler = \"wallet\"\nbatch_count_max = 64\n[consumers.wallet.wallet]\n\
     assets = { EUR = 2, JPY = 0, BTC = 8 }\n\
     house = { EUR = \"house-eur\", JPY = \"house-jpy\", BTC = \"house-btc\" }\n";

fn killed_a_hundred_times_the_money_is_exact(place: Place) {
    let shape = Shape {
        seed: 11,
        lines: 12_000,
        players: 100,
        files: 4,
        ..Shape::default()
    };
    let workload = generate(shape);
    write(&place, &workload);
    let sources = |paths: &str| {
        format!(
            "[sources.ops]\ntype = \"file\"\npaths = [{paths}]\n[consumers.wallet]\nsources = [\"ops\"]\nlanes = 2\n{WALLET}"
        )
    };
    place.config(&sources("\"setup.jsonl\""));
    place.semel(&["run", "--until-idle"]).ok();
    place.config(&sources(
        "\"ops-1.jsonl\", \"ops-2.jsonl\", \"ops-3.jsonl\", \"ops-4.jsonl\"",
    ));
    let mut dice = Dice(7);
    let (started, mut killed) = (Instant::now(), 0);
    let mut again: &[&str] = &[];
    while killed < KILLS {
        assert!(
            started.elapsed() < BOUND,
            "only {killed} kills in {BOUND:?}"
        );
        let mut child = spawn(&place, again);
        std::thread::sleep(Duration::from_millis(20 + dice.below(180)));
        if end(&mut child) {
            // It finished before the blow: from then on every line is read again.
            again = &["--from-start"];
        } else {
            killed += 1;
        }
    }
    place.semel(&["run", "--until-idle"]).ok();
    place.semel(&["run", "--until-idle", "--from-start"]).ok();
    assert_exact(&place, &workload);
}

fn two_processes_on_one_queue_killed_in_turns_apply_each_operation_once(place: Place) {
    let shape = Shape {
        seed: 12,
        lines: 4_000,
        players: 50,
        ordered: false,
        ..Shape::default()
    };
    let workload = generate(shape);
    write(&place, &workload);
    place.config(&format!(
        "[sources.setup]\ntype = \"file\"\npaths = [\"setup.jsonl\"]\n\
         [sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\nlease_ms = 2000\n\
         [consumers.wallet]\nsources = [\"setup\", \"inbox\"]\nlanes = 2\n{WALLET}"
    ));
    // The queue is empty: this reads the set-up alone.
    place.semel(&["run", "--until-idle"]).ok();
    place.semel(&["publish", "inbox", "ops-1.jsonl"]).ok();
    let mut dice = Dice(8);
    let mut pair = [spawn(&place, &[]), spawn(&place, &[])];
    for turn in 0..20 {
        std::thread::sleep(Duration::from_millis(20 + dice.below(180)));
        let one = &mut pair[turn % 2];
        end(one);
        *one = spawn(&place, &[]);
    }
    for child in &mut pair {
        assert!(child.wait().unwrap().success());
    }
    assert_exact(&place, &workload);
}

fn write(place: &Place, workload: &Workload) {
    let lines = |lines: &[Vec<u8>]| [lines.join(&b'\n'), b"\n".to_vec()].concat();
    place.write("setup.jsonl", lines(&workload.setup));
    for (number, file) in workload.files.iter().enumerate() {
        place.write(&format!("ops-{}.jsonl", number + 1), lines(file));
    }
}

fn spawn(place: &Place, more: &[&str]) -> Child {
    let args = [&["run", "--until-idle", "--json"], more].concat();
    place
        .command(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills a child with SIGKILL unless it has ended. Returns whether it had, and then it ended well.
fn end(child: &mut Child) -> bool {
    if let Some(status) = child.try_wait().unwrap() {
        assert!(status.success(), "{status}");
        return true;
    }
    child.kill().unwrap();
    std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()) != Some(9)
}

/// The audit holds, and every balance is the model's.
fn assert_exact(place: &Place, workload: &Workload) {
    assert_eq!(place.json(&["audit"]).ok().object()["ok"], true);
    let model: BTreeMap<String, String> = expected(workload)
        .accounts()
        .map(|account| (account.id.to_string(), account.posted.to_string()))
        .collect();
    let found = balances(place);
    let wrong: Vec<_> = model
        .iter()
        .filter(|(account, posted)| found.get(*account) != Some(posted))
        .take(5)
        .collect();
    assert!(
        wrong.is_empty(),
        "expected {wrong:?}, found {:?}",
        wrong.iter().map(|(a, _)| found.get(*a)).collect::<Vec<_>>()
    );
    assert_eq!(found.len(), model.len());
}

fn balances(place: &Place) -> BTreeMap<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let rows: Vec<(String, String)> = runtime.block_on(async {
        match place.schema() {
            Some(schema) => {
                let sql = format!("SELECT id, posted::text FROM {schema}.wallet_account");
                let mut connection = PgConnection::connect(&postgres_url()).await.unwrap();
                sqlx::query_as(AssertSqlSafe(sql))
                    .fetch_all(&mut connection)
                    .await
                    .unwrap()
            }
            None => {
                let url = format!("sqlite:{}", place.path().join("semel.db").display());
                let mut connection = SqliteConnection::connect(&url).await.unwrap();
                sqlx::query_as("SELECT id, posted FROM wallet_account")
                    .fetch_all(&mut connection)
                    .await
                    .unwrap()
            }
        }
    });
    rows.into_iter().collect()
}

/// When to strike (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) % end
    }
}
