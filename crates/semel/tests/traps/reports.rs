//! Public reports turned into inputs, by their number: copies, races, lost answers, outages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semel::{Message, Outcome};
use semel_storm::SimLedger;
use semel_storm::sim::{Faults, SourceFaults};
use tracing::{Level, Metadata, Subscriber, span};

use crate::{World, numbered};

const ONE: &str = r#"{"id":"one"}"#;

/// Counts what is logged as a warning or an error.
#[derive(Clone, Default)]
struct Log {
    warnings: Arc<AtomicUsize>,
    errors: Arc<AtomicUsize>,
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        match *event.metadata().level() {
            Level::ERROR => _ = self.errors.fetch_add(1, Ordering::Relaxed),
            Level::WARN => _ = self.warnings.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Log {
    /// Warnings and errors so far.
    fn told(&self) -> (usize, usize) {
        (
            self.warnings.load(Ordering::Relaxed),
            self.errors.load(Ordering::Relaxed),
        )
    }
}

/// A copy as another producer, topic or file would deliver it.
fn elsewhere(partition: &str, offset: u64) -> Message {
    let mut message = Message::new(ONE.as_bytes(), partition, Some(offset));
    message.headers = Arc::new([("message-id".to_owned(), offset.to_string().into())]);
    message
}

fn sightings(world: &World) -> i64 {
    world.ledger.sightings().iter().map(|row| row.count).sum()
}

#[tokio::test(start_paused = true)]
async fn e002_e019_a_committed_message_whose_ack_was_lost_comes_five_times_and_is_credited_once() {
    let mut world = World::new(1);
    world.takes = Duration::from_secs(10);
    world.send([ONE.to_owned()]);
    let dies = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        // The unit commits with a channel that is gone: its ack reaches nobody.
        world.source.break_off();
        std::future::pending::<()>().await;
    };
    let summary = world.run(dies).await;
    assert_eq!(summary.lost_acks, 1);
    assert_eq!(World::of(&summary, Outcome::Duplicate), 1);
    world.send([ONE, ONE].map(str::to_owned));
    world.run_to_the_end().await;
    world.send([ONE, ONE].map(str::to_owned));
    world.run_to_the_end().await;
    assert_eq!((world.effects(), world.source.unacked()), (1, 0));
    assert_eq!(
        sightings(&world),
        5,
        "the first is the ledger's row, and five hits are counted"
    );
}

#[tokio::test(start_paused = true)]
async fn e004_a_resend_a_redelivery_and_a_replay_two_days_later_are_duplicates() {
    let world = World::new(1);
    world.source.push(elsewhere("orders", 1));
    world.source.push(elsewhere("orders", 2));
    world.source.set_faults(SourceFaults {
        budget: 1,
        duplicate: 1_000,
        ..SourceFaults::default()
    });
    world.run_to_the_end().await;
    world.ledger.advance_ms(48 * 3_600_000);
    world.source.push(elsewhere("replay.jsonl", 1));
    let summary = world.run_to_the_end().await;
    assert_eq!(
        World::of(&summary, Outcome::Duplicate),
        1,
        "age is no evidence"
    );
    assert_eq!((world.effects(), sightings(&world)), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn e006_an_increment_counts_once_at_once_after_a_second_and_after_an_hour() {
    let world = World::new(1);
    for wait_ms in [0, 1_000, 3_600_000] {
        world.ledger.advance_ms(wait_ms);
        world.send([ONE.to_owned()]);
        world.run_to_the_end().await;
        assert_eq!(world.effects(), 1);
    }
    assert_eq!(sightings(&world), 2);
}

#[tokio::test(start_paused = true)]
async fn e012_ten_thousand_duplicates_are_counted_and_log_nothing() {
    let world = World::new(1);
    world.send(numbered(100));
    world.run_to_the_end().await;
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    for _ in 0..100 {
        world.send(numbered(100));
    }
    let summary = world.run_to_the_end().await;
    assert_eq!(World::of(&summary, Outcome::Duplicate), 10_000);
    assert_eq!((world.effects(), sightings(&world)), (100, 10_000));
    assert_eq!(log.told(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn e013_operations_without_an_id_are_kept_apart_and_never_merged_by_their_time() {
    let world = World::new(1);
    world.send([30.5, 44.3, 62.8].map(|at| format!(r#"{{"amount":11.7,"at":{at}}}"#)));
    let summary = world.run_to_the_end().await;
    assert_eq!(World::of(&summary, Outcome::Dead), 3);
    let letters = world.ledger.letters();
    assert_eq!(letters.len(), 3);
    assert!(
        letters
            .iter()
            .all(|row| row.letter.code.as_str() == "no_key")
    );
    assert_eq!(world.effects(), 0);
}

#[tokio::test(start_paused = true)]
async fn e085_a_full_disk_pauses_with_a_line_a_minute_at_most_and_goes_on_by_itself() {
    let world = World::new(1);
    world.send(numbered(50));
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let ten_minutes = async {
        world.ledger.set_faults(Faults {
            budget: u32::MAX,
            cut: 1_000,
            ..Faults::default()
        });
        tokio::time::sleep(Duration::from_secs(600)).await;
        world.ledger.set_faults(Faults::default());
        let (warnings, errors) = log.told();
        assert!(
            (1..=11).contains(&warnings),
            "{warnings} lines in ten minutes"
        );
        assert_eq!(errors, 0);
        assert_eq!(
            (world.source.unacked(), world.ledger.letters().len()),
            (50, 0)
        );
        std::future::pending::<()>().await;
    };
    world.run(ten_minutes).await;
    assert_eq!((world.effects(), world.source.unacked()), (50, 0));
}

#[tokio::test(start_paused = true)]
async fn e107_other_content_that_comes_while_the_first_is_under_way_is_a_conflict_after_its_outcome()
 {
    let mut world = World::new(1);
    world.takes = Duration::from_millis(500);
    world.lanes = 2;
    world.send([ONE.to_owned()]);
    let second = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut message = Message::new(br#"{"id":"one","amount":2}"#.as_slice(), "p", Some(9));
        message.message_key = Some("1".into());
        world.source.push(message);
        std::future::pending::<()>().await;
    };
    let summary = world.run(second).await;
    assert_eq!(World::of(&summary, Outcome::Applied), 1);
    let letters = world.ledger.letters();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].letter.code.as_str(), "key_reused");
    let detail = &letters[0].letter.detail;
    assert!(
        detail.contains("`amount`") && detail.contains("applied"),
        "{detail}"
    );
    assert_eq!(world.runs.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn e113_a_handler_that_fails_behind_the_claim_is_run_again_and_applied() {
    let world = World::new(1);
    world.send([r#"{"id":"order","do":"flaky"}"#.to_owned()]);
    let summary = world.run_to_the_end().await;
    assert_eq!(World::of(&summary, Outcome::Applied), 1);
    assert_eq!(world.runs.load(Ordering::Relaxed), 2);
    assert_eq!((world.effects(), world.source.unacked()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn e114_what_no_handler_knew_is_a_dead_letter_and_applied_when_one_knows_it() {
    let unknown = r#"{"id":"customer-action","do":"die"}"#.to_owned();
    let mut world = World::new(1);
    world.send([unknown.clone()]);
    let summary = world.run_to_the_end().await;
    assert_eq!(
        World::of(&summary, Outcome::Dead),
        1,
        "never recorded as processed"
    );
    assert_eq!(world.ledger.letters()[0].letter.code.as_str(), "unknown_op");
    world.knows = true;
    world.send([unknown.clone(), unknown]);
    let summary = world.run_to_the_end().await;
    assert_eq!(World::of(&summary, Outcome::Applied), 1);
    assert_eq!(World::of(&summary, Outcome::Duplicate), 1);
    assert_eq!(world.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn e118_a_provider_that_asks_again_while_the_first_is_under_way_gets_one_effect() {
    let mut world = World::new(1);
    world.takes = Duration::from_secs(5);
    world.lanes = 3;
    world.send([r#"{"id":"cancel-1"}"#.to_owned()]);
    let again = async {
        for number in 1..=2_u64 {
            tokio::time::sleep(Duration::from_secs(4)).await;
            let mut message = Message::new(br#"{"id":"cancel-1"}"#.as_slice(), "p", Some(number));
            message.message_key = Some(number.to_string().into());
            world.source.push(message);
        }
        std::future::pending::<()>().await;
    };
    let summary = world.run(again).await;
    assert_eq!(World::of(&summary, Outcome::Applied), 1);
    assert_eq!(
        (world.effects(), world.runs.load(Ordering::Relaxed)),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn e134_an_error_behind_a_commit_that_went_well_changes_nothing() {
    let world = World::new(1);
    world.send([ONE.to_owned()]);
    world.ledger.set_faults(Faults {
        budget: 1,
        cut_after_commit: 1_000,
        ..Faults::default()
    });
    let summary = world.run_to_the_end().await;
    assert_eq!(World::of(&summary, Outcome::Applied), 1);
    assert_eq!(
        (world.effects(), world.runs.load(Ordering::Relaxed)),
        (1, 1),
        "no second run"
    );
}

#[tokio::test(start_paused = true)]
async fn e021_a_hole_in_the_log_holds_up_nothing_behind_it() {
    let world = World::new(1);
    for n in (1..=100).filter(|n| *n != 57) {
        let payload = format!(r#"{{"id":"{n}"}}"#).into_bytes();
        world.source.push(Message::new(payload, "p", Some(n)));
    }
    let summary = world.run_to_the_end().await;
    assert_eq!(World::of(&summary, Outcome::Applied), 99);
    assert_eq!((world.effects(), world.source.unacked()), (99, 0));
    // What comes late is applied late.
    world
        .source
        .push(Message::new(r#"{"id":"57"}"#, "p", Some(101)));
    world.run_to_the_end().await;
    assert_eq!(world.effects(), 100);
}

#[tokio::test(start_paused = true)]
async fn e031_no_dead_letter_is_dropped_however_many_come() {
    let world = World::new(1);
    world.send((0..500).map(|n| format!(r#"{{"id":"{n}","do":"poison"}}"#)));
    let summary = world.run_to_the_end().await;
    assert_eq!(World::of(&summary, Outcome::Dead), 500);
    assert_eq!(
        (world.ledger.letters().len(), world.source.unacked()),
        (500, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn e122_the_ledger_alone_decides_whatever_a_process_remembers() {
    let mut world = World::new(1);
    let copies = || std::iter::repeat_n(ONE.to_owned(), 2);
    world.send(copies());
    world.run_to_the_end().await;
    let known = world.ledger.clone();
    // A ledger that lost the key: the process has just applied it, and must not answer out of its memory.
    world.ledger = SimLedger::new(2);
    world.send(copies());
    let summary = world.run_to_the_end().await;
    assert_eq!(World::of(&summary, Outcome::Applied), 1);
    // A process that remembers nothing.
    let mut other = World::new(3);
    other.ledger = known;
    other.send(copies());
    let summary = other.run_to_the_end().await;
    assert_eq!(World::of(&summary, Outcome::Duplicate), 2);
    assert_eq!(other.runs.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn e132_a_dead_letter_whose_source_was_not_told_is_one_letter_and_is_settled_then() {
    let mut world = World::new(1);
    world.takes = Duration::from_secs(10);
    world.send([r#"{"id":"one","do":"die"}"#.to_owned()]);
    let dies = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.source.break_off();
        std::future::pending::<()>().await;
    };
    let summary = world.run(dies).await;
    assert_eq!(
        (summary.lost_acks, World::of(&summary, Outcome::Dead)),
        (1, 2)
    );
    let letters = world.ledger.letters();
    assert_eq!(
        (letters.len(), letters[0].count, world.source.unacked()),
        (1, 2, 0)
    );
}
