//! The peers' traps: each breaks a consumer that somebody ships, and none breaks Semel.
//!
//! On simulated parts, under a clock that stands still until everybody waits: an hour's outage takes no time, and
//! no result depends on a real clock.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "traps/reports.rs"]
mod reports;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::fingerprint::{FieldSums, Fingerprint};
use semel::handler::{Bound, Fresh, Handler, Said};
use semel::json::Json;
use semel::law::Reject;
use semel::rows::{Change, Column, Rows, Table, Type, Value};
use semel::{Answer, Code, Consumer, Fault, Message, Outcome, Rules, Settings, Summary, Unit};
use semel_storm::sim::Faults;
use semel_storm::{Dice, SimLedger, SimSource};

static EFFECTS: Table = Table {
    name: "effects",
    columns: &[
        Column {
            name: "key",
            kind: Type::Key,
            change: Change::Fixed,
        },
        Column {
            name: "amount",
            kind: Type::Int,
            change: Change::Fixed,
        },
    ],
};

/// Writes one row a message; `"do"` asks for something else.
struct Credits {
    rules: Rules,
    runs: Arc<AtomicUsize>,
    takes: Duration,
    /// Knows what `die` means.
    knows: bool,
}

impl<U: Unit + Rows> Handler<U> for Credits {
    type Work = String;

    fn name(&self) -> &str {
        "credits"
    }

    fn rules(&self) -> Fingerprint {
        self.rules.hash()
    }

    fn bind(&self, message: &Message) -> Result<Bound<String>, Reject> {
        let binding = self.rules.bind(message)?;
        let json = Json::parse(message.bytes()).expect("bound as JSON");
        let work = json
            .get("do")
            .and_then(Json::text)
            .unwrap_or("credit")
            .to_owned();
        Ok(Bound {
            binding,
            lane: None,
            work,
        })
    }

    fn differing(&self, message: &Message, _: &String, stored: &FieldSums) -> Option<String> {
        self.rules.differing(message, stored)
    }

    async fn handle(&self, unit: &mut U, fresh: &[Fresh<'_, String>]) -> Result<Vec<Said>, Fault> {
        let mut said = Vec::new();
        for one in fresh {
            let run = self.runs.fetch_add(1, Ordering::Relaxed);
            if !self.takes.is_zero() {
                tokio::time::sleep(self.takes).await;
            }
            said.push(match one.work.as_str() {
                "poison" => Said::Fault(Fault::poison("the total is not a number")),
                "die" if !self.knows => {
                    Answer::dead(Code::new("unknown_op"), "nobody knows how to `die`").into()
                }
                _ => {
                    unit.insert(&EFFECTS, &[Value::Key(one.binding.key), Value::Int(1)])
                        .await?;
                    if one.work == "flaky" && run == 0 {
                        Said::Fault(Fault::retry("failed behind its effect"))
                    } else {
                        Answer::applied().into()
                    }
                }
            });
        }
        Ok(said)
    }
}

/// One simulated world.
struct World {
    ledger: SimLedger,
    source: SimSource,
    runs: Arc<AtomicUsize>,
    takes: Duration,
    lanes: u16,
    knows: bool,
    consumer: &'static str,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            ledger: SimLedger::new(seed),
            source: SimSource::new(seed),
            runs: Arc::default(),
            takes: Duration::ZERO,
            lanes: 1,
            knows: false,
            consumer: "credits",
        }
    }

    /// Sends payloads, each with a message key of its own, so that they spread over the lanes.
    fn send(&self, payloads: impl IntoIterator<Item = String>) {
        for (number, payload) in payloads.into_iter().enumerate() {
            let mut message = Message::new(payload.into_bytes(), "p", Some(number as u64));
            message.message_key = Some(number.to_string().into_bytes().into());
            self.source.push(message);
        }
    }

    /// Runs until nothing is left, or until `shutdown`; it is first polled when the lanes are connected.
    async fn run(&self, shutdown: impl Future<Output = ()> + Send) -> Summary {
        let dice = Mutex::new(Dice::new(1));
        let roll = move || u32::try_from(dice.lock().unwrap().roll() >> 32).unwrap();
        let settings = Settings {
            until_idle: true,
            lanes: self.lanes,
            dice: Arc::new(roll),
            ..Settings::default()
        };
        let handler = Credits {
            rules: Rules::new(["/id"]).unwrap(),
            runs: self.runs.clone(),
            takes: self.takes,
            knows: self.knows,
        };
        let consumer = Consumer::builder(
            self.consumer,
            Arc::new(self.ledger.clone()),
            Arc::new(handler),
        )
        .settings(settings)
        .sources(["sim"])
        .enroll()
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
        let run = consumer
            .attach("sim", Arc::new(self.source.clone()))
            .run(shutdown)
            .await;
        run.unwrap_or_else(|fault| panic!("{fault}"))
    }

    async fn run_to_the_end(&self) -> Summary {
        self.run(std::future::pending()).await
    }

    fn effects(&self) -> usize {
        self.ledger.rows_of("effects").len()
    }

    fn applied(&self) -> usize {
        self.ledger
            .ledger_rows()
            .iter()
            .filter(|row| row.says.outcome == Outcome::Applied)
            .count()
    }

    fn of(summary: &Summary, outcome: Outcome) -> u64 {
        summary.outcomes.get(&outcome).copied().unwrap_or_default()
    }
}

fn numbered(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!(r#"{{"id":"{n}","lane":{n}}}"#))
}

#[tokio::test(start_paused = true)]
async fn t70_a_unit_that_broke_behind_its_claim_leaves_no_claim() {
    let mut broke = 0;
    for seed in 0..40 {
        let world = World::new(seed);
        world.send(numbered(20));
        world.ledger.set_faults(Faults {
            budget: 5,
            cut: 200,
            cut_before_commit: 200,
            refused_commit: 200,
            ..Faults::default()
        });
        world.run_to_the_end().await;
        assert_eq!(
            (world.effects(), world.applied(), world.source.unacked()),
            (20, 20, 0),
            "seed {seed}"
        );
        broke += usize::from(world.runs.load(Ordering::Relaxed) > 20);
    }
    assert!(broke > 0, "no handler ran twice, so nothing broke");
}

#[tokio::test(start_paused = true)]
async fn t71_e001_e005_e010_of_64_copies_at_once_on_four_lanes_one_runs() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.lanes = 4;
        world.send(std::iter::repeat_n(r#"{"id":"one"}"#.to_owned(), 64));
        let summary = world.run_to_the_end().await;
        assert_eq!((world.effects(), world.applied()), (1, 1), "seed {seed}");
        assert_eq!(World::of(&summary, Outcome::Duplicate), 63, "seed {seed}");
        assert_eq!(world.runs.load(Ordering::Relaxed), 1, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn t73_t74_a_store_that_is_away_for_an_hour_drops_nothing_acks_nothing_and_goes_on_by_itself()
{
    let world = World::new(3);
    world.send(numbered(50));
    let hour = async {
        world.ledger.set_faults(Faults {
            budget: u32::MAX,
            cut: 1_000,
            ..Faults::default()
        });
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(
            (
                world.source.unacked(),
                world.applied(),
                world.ledger.letters().len()
            ),
            (50, 0, 0)
        );
        world.ledger.set_faults(Faults::default());
        std::future::pending::<()>().await;
    };
    let began = tokio::time::Instant::now();
    let summary = world.run(hour).await;
    assert!(
        began.elapsed() >= Duration::from_secs(3_600),
        "it did not wait"
    );
    assert_eq!(World::of(&summary, Outcome::Applied), 50);
    assert_eq!(
        (
            world.effects(),
            world.source.unacked(),
            world.ledger.letters().len()
        ),
        (50, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn t75_every_message_of_a_batch_has_its_own_verdict() {
    let world = World::new(5);
    world.send(numbered(3));
    world.run_to_the_end().await;
    let odd = [
        r#"{"id":"1","lane":1}"#,
        r#"{"id":"bad","do":"poison"}"#,
        "not json",
        r#"{"id":"2","lane":7}"#,
    ];
    world.send(odd.map(str::to_owned));
    world.send((10..20).map(|n| format!(r#"{{"id":"{n}"}}"#)));
    let summary = world.run_to_the_end().await;
    assert_eq!(World::of(&summary, Outcome::Applied), 10);
    assert_eq!(World::of(&summary, Outcome::Duplicate), 1, "{summary:?}");
    assert_eq!(World::of(&summary, Outcome::Dead), 3, "{summary:?}");
    let ids: BTreeSet<Option<String>> = world
        .ledger
        .letters()
        .into_iter()
        .map(|row| row.letter.id)
        .collect();
    assert_eq!(
        ids,
        BTreeSet::from([None, Some("2".to_owned()), Some("bad".to_owned())]),
        "the right ones are blamed"
    );
    assert_eq!((world.effects(), world.source.unacked()), (13, 0));
}

#[tokio::test(start_paused = true)]
async fn t79_two_consumers_of_one_ledger_each_apply_the_same_messages() {
    let mut world = World::new(1);
    for consumer in ["credits", "statistics"] {
        world.consumer = consumer;
        world.send(numbered(20));
        let summary = world.run_to_the_end().await;
        assert_eq!(World::of(&summary, Outcome::Applied), 20, "{consumer}");
    }
    assert_eq!(world.applied(), 40);
}

#[tokio::test(start_paused = true)]
async fn t83_a_conflict_in_the_store_is_never_told_as_an_answer() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.lanes = 3;
        world.send(numbered(60));
        world.ledger.set_faults(Faults {
            budget: 60,
            busy: 300,
            refused_commit: 300,
            ..Faults::default()
        });
        let summary = world.run_to_the_end().await;
        assert_eq!(
            summary.outcomes.keys().copied().collect::<Vec<_>>(),
            [Outcome::Applied],
            "seed {seed}"
        );
        assert!(
            world
                .ledger
                .ledger_rows()
                .iter()
                .all(|row| row.says.code.is_none()),
            "seed {seed}"
        );
        assert_eq!(
            (world.effects(), world.ledger.letters().len()),
            (60, 0),
            "seed {seed}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn t84_a_slow_handler_is_not_overtaken() {
    let mut world = World::new(1);
    world.takes = Duration::from_secs(80);
    world.lanes = 2;
    world.send([r#"{"id":"slow","lane":1}"#.to_owned()]);
    let summary = world.run_to_the_end().await;
    assert_eq!(
        (world.runs.load(Ordering::Relaxed), world.effects()),
        (1, 1)
    );
    assert_eq!(World::of(&summary, Outcome::Applied), 1);
}

#[tokio::test(start_paused = true)]
async fn t86_no_header_of_a_sender_makes_a_delivery_fail() {
    let world = World::new(1);
    for name in [
        "x-semel-fail",
        "x-fail",
        "x-test-fail",
        "semel-fail-point",
        "x-death",
        "x-retry",
        "x-delivery-count",
    ] {
        let payload = format!(r#"{{"id":"{name}"}}"#);
        let mut message = Message::new(payload.into_bytes(), "p", None);
        let headers: Vec<(String, bytes::Bytes)> =
            vec![(name.to_owned(), bytes::Bytes::from_static(b"true"))];
        message.headers = headers.into();
        world.source.push(message);
    }
    let summary = world.run_to_the_end().await;
    assert_eq!(
        (World::of(&summary, Outcome::Applied), summary.messages),
        (7, 7)
    );
    assert_eq!(world.runs.load(Ordering::Relaxed), 7, "each ran once");
}

#[tokio::test(start_paused = true)]
async fn t89_a_dead_letter_keeps_reason_attempts_place_and_the_original_bytes() {
    let world = World::new(1);
    let odd = [
        r#"{"id":"a", "do":"die"}"#,
        r#"{"id":"b","do":"poison"}"#,
        "{\"id\":\"c\"",
    ];
    world.send(odd.map(str::to_owned));
    world.run_to_the_end().await;
    world.send(odd.map(str::to_owned));
    world.run_to_the_end().await;
    let letters = world.ledger.letters();
    for (payload, code) in odd.iter().zip(["unknown_op", "poison", "malformed"]) {
        let row = letters
            .iter()
            .find(|row| row.letter.code.as_str() == code)
            .unwrap_or_else(|| panic!("no letter of {code}"));
        assert_eq!(row.letter.message.bytes(), payload.as_bytes(), "{code}");
        assert!(!row.letter.detail.is_empty(), "{code} has a reason");
        assert_eq!(&*row.letter.message.position.partition, "p");
        assert!(row.letter.message.position.offset.is_some());
    }
    let attempts = |code: &str| {
        let mut of = letters
            .iter()
            .filter(|row| row.letter.code.as_str() == code);
        of.next().unwrap().letter.attempts
    };
    assert_eq!(
        ["unknown_op", "poison", "malformed"].map(attempts),
        [1, 1, 0],
        "what met the handler once, and what never met it"
    );
    let poison = letters
        .iter()
        .find(|row| row.letter.code.as_str() == "poison")
        .unwrap();
    assert!(
        poison.letter.detail.contains("the total is not a number"),
        "{}",
        poison.letter.detail
    );
    assert_eq!(poison.count, 2, "met again: counted, no second letter");
}

#[tokio::test(start_paused = true)]
async fn t90_what_is_told_as_applied_is_what_the_ledger_holds_even_when_answers_of_commits_are_lost()
 {
    for seed in 0..40 {
        let mut world = World::new(seed);
        world.lanes = 3;
        world.send(numbered(100));
        let faults = Faults {
            budget: 30,
            cut_after_commit: 300,
            commit_in_flight: 200,
            cut_before_commit: 100,
            ..Faults::default()
        };
        world.ledger.set_faults(faults);
        let summary = world.run_to_the_end().await;
        assert_eq!(
            (world.applied(), world.effects()),
            (100, 100),
            "seed {seed}"
        );
        assert_eq!(World::of(&summary, Outcome::Applied), 100, "seed {seed}");
    }
}
