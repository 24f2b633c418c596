//! For each law a part that is broken on purpose: the law must catch it, else it proves nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use semel_core::fingerprint::Fingerprint;
use semel_core::key::Key;
use semel_core::ledger::{
    Claim, Claimed, ConsumerId, Enrolment, Fence, LaneId, Parked, Prior, Reached, Record, Resolved,
    Which,
};
use semel_core::outcome::Outcome;
use semel_core::sink::{Outgoing, Sink};
use semel_core::source::{BoxFuture, Limit, Received, Settle, Settlements, Source};
use semel_core::{Class, Committed, Fault};
use semel_storm::SimLedger;
use semel_storm::saboteur::{BrokenLedger, BrokenSource, LedgerSaboteur, SourceSaboteur};
use semel_storm::suite::{
    self, Features, Kept, LedgerRig, SimRig, SimSourceRig, SinkRig, SourceRig,
};

/// Runs a law on a broken part and demands that it fails. Hooks of the runtime's clock are paused, so a
/// law that hangs fails at once.
async fn must_be_caught(law: &'static str, run: impl Future<Output = ()> + Send + 'static) {
    let ended = tokio::spawn(suite::run(law, run)).await;
    assert!(ended.is_err(), "`{law}` did not notice its saboteur");
}

struct Rig<S> {
    sim: SimRig,
    ledger: BrokenLedger<SimLedger, S>,
}

impl<S: LedgerSaboteur> LedgerRig for Rig<S> {
    type Ledger = BrokenLedger<SimLedger, S>;

    async fn fresh() -> Self {
        let sim = SimRig::fresh().await;
        let ledger = BrokenLedger::new(sim.open().await);
        Self { sim, ledger }
    }

    async fn open(&self) -> Self::Ledger {
        self.ledger.again()
    }

    async fn sightings(&self, consumer: ConsumerId, key: Key) -> Vec<(i16, i64)> {
        self.sim.sightings(consumer, key).await
    }

    async fn letters(&self, consumer: ConsumerId) -> Vec<(String, i64)> {
        self.sim.letters(consumer).await
    }
}

/// A saboteur of the ledger with one hook, and the law that catches it.
macro_rules! ledger_saboteurs {
    ($($(#[$what:meta])* $name:ident { $($hook:item)+ } is caught by $law:ident;)+) => {
        $(
            $(#[$what])*
            #[derive(Default)]
            struct $name;

            impl LedgerSaboteur for $name {
                $($hook)+
            }
        )+

        $(
            #[tokio::test(start_paused = true)]
            async fn $law() {
                must_be_caught(stringify!($law), suite::ledger::$law::<Rig<$name>>()).await;
            }
        )+
    };
}

ledger_saboteurs! {
    /// T71: looks first, and applies anyway.
    SaysFreshAlways {
        fn claimed(&self, _claims: &[Claim], claimed: &mut Vec<Claimed>) {
            claimed.iter_mut().for_each(|one| *one = Claimed::Fresh);
        }
    } is caught by a_key_is_claimed_once;

    /// Each lane claims in a scope of its own.
    ClaimsPerLane {
        fn claims(&self, lane: LaneId, claims: &mut Vec<Claim>) {
            for claim in claims {
                let mut bytes = claim.key.into_bytes();
                bytes[15] = bytes[15].wrapping_add(u8::try_from(lane.lane).unwrap_or(0));
                claim.key = Key::from_bytes(bytes);
            }
        }
    } is caught by an_open_claim_is_never_fresh_for_another_lane;

    /// Loses replies.
    ForgetsReplies {
        fn record(&self, _fence: Fence, record: &mut Record) {
            record.notes.iter_mut().for_each(|note| note.reply = None);
        }
    } is caught by a_copy_sees_the_recorded_outcome_code_and_reply;

    /// Compares a copy with itself.
    EchoesTheFingerprint {
        fn claimed(&self, claims: &[Claim], claimed: &mut Vec<Claimed>) {
            for (claim, one) in claims.iter().zip(claimed) {
                if let Claimed::Seen(prior) = one {
                    prior.fingerprint = claim.fingerprint;
                }
            }
        }
    } is caught by other_content_shows_the_first_fingerprint;

    /// T38: keeps the claims of dead messages.
    KeepsDeadClaims {
        fn record(&self, _fence: Fence, record: &mut Record) {
            record.unclaims.clear();
        }
    } is caught by a_deleted_claim_is_fresh_again;

    /// Runs a released message as often as it is released.
    ReleasesTwice {
        fn claimed(&self, _claims: &[Claim], claimed: &mut Vec<Claimed>) {
            for one in claimed {
                if *one == Claimed::Ended {
                    *one = Claimed::Fresh;
                }
            }
        }
    } is caught by a_released_message_is_claimed_once;

    /// E048: takes a null for an empty payload.
    TakesNullForEmpty {
        fn parked(&self, _which: &Which<'_>, parked: &mut Vec<Parked>) {
            parked.iter_mut().for_each(|one| { one.message.payload.get_or_insert_default(); });
        }
    } is caught by a_parked_message_comes_back_whole;

    /// Leaves ended messages parked.
    NeverUnparks {
        fn record(&self, _fence: Fence, record: &mut Record) {
            record.unparks.clear();
        }
    } is caught by a_parked_message_that_ended_comes_back_no_more;

    /// Brings everything back at once.
    IgnoresDueTimes {
        fn record(&self, _fence: Fence, record: &mut Record) {
            record.parks.iter_mut().for_each(|park| park.due_in_ms = 0);
        }
    } is caught by parked_messages_are_found_by_key_by_what_they_await_and_when_due;

    /// Counts only what it sees last.
    DropsSightings {
        fn record(&self, _fence: Fence, record: &mut Record) {
            record.sightings.iter_mut().for_each(|sighting| sighting.count = sighting.count.min(1));
        }
    } is caught by sightings_add_up;

    /// A letter for every delivery.
    WritesEachLetterAnew {
        fn record(&self, fence: Fence, record: &mut Record) {
            let unit = u8::try_from(fence.unit).unwrap_or(0);
            record.letters.iter_mut().for_each(|letter| letter.hash[0] ^= unit);
        }
    } is caught by a_dead_letter_is_unique_and_counted;

    /// Going back does nothing.
    StaysWhereItIs {
        fn goes_back(&self) -> bool {
            false
        }
    } is caught by going_back_undoes_what_came_after_the_savepoint_and_not_the_claims;

    /// A savepoint that can be used once.
    TiresOfGoingBack {
        fn tires_of_going_back(&self) -> bool {
            true
        }
    } is caught by an_error_is_healed_by_going_back;

    /// T70: a second store beside the transaction.
    WritesElsewhere {
        fn writes_elsewhere(&self) -> bool {
            true
        }
    } is caught by a_dropped_unit_leaves_nothing;

    /// All units have one number.
    HasOneFence {
        fn fence(&self, fence: Fence) -> Fence {
            Fence { unit: 1, ..fence }
        }
    } is caught by the_fence_rises_by_one_with_each_committed_unit;

    /// T03: takes an error around COMMIT for a rollback.
    TakesUnknownForRolledBack {
        fn resolves(&self, _fence: Fence) -> Option<Resolved> {
            Some(Resolved::RolledBack)
        }
    } is caught by an_unknown_commit_is_resolved_as_committed_rolled_back_or_lost;

    /// T66: reads the fence without a lock, while the silent holder may still commit.
    ResolvesWithoutWaiting {
        fn resolves(&self, fence: Fence) -> Option<Resolved> {
            let _ = Committed::witnessed(fence);
            Some(Resolved::RolledBack)
        }
    } is caught by a_commit_that_is_resolved_as_rolled_back_never_comes_true;

    /// T32, T73: claims in any order, and goes on after the deadlock.
    SwallowsDeadlocks {
        fn claims(&self, lane: LaneId, claims: &mut Vec<Claim>) {
            if lane.lane % 2 == 1 {
                claims.reverse();
            }
        }
        fn swallows(&self, fault: &Fault) -> bool {
            fault.class == Class::Busy
        }
    } is caught by lanes_that_claim_the_same_keys_each_get_an_answer;

    /// T59: counts like a broker that forgets.
    CountsOneAttempt {
        fn attempts(&self, attempts: &mut Vec<u32>) {
            attempts.iter_mut().for_each(|count| *count = 1);
        }
    } is caught by attempts_count_up_until_they_are_forgotten;

    /// T79: one scope for all consumers.
    SharesOneScope {
        fn lane(&self, lane: &mut LaneId) {
            lane.consumer = ConsumerId(1);
        }
    } is caught by consumers_do_not_see_each_others_keys;

    /// Anyone may have any name.
    AcceptsAnyOwner {
        fn enrolment(&self, enrolment: &mut Enrolment) {
            "suite".clone_into(&mut enrolment.handler);
            enrolment.accept_key_change = true;
        }
    } is caught by another_owner_or_other_key_rules_are_refused;
}

/// T61: remembers keys before their commit.
#[derive(Default)]
struct RemembersTooEarly(Mutex<Vec<Key>>);

impl LedgerSaboteur for RemembersTooEarly {
    fn claimed(&self, claims: &[Claim], claimed: &mut Vec<Claimed>) {
        let mut known = self.0.lock().expect("nobody panics with the list");
        for (claim, one) in claims.iter().zip(claimed) {
            if known.contains(&claim.key) && *one == Claimed::Fresh {
                *one = Claimed::Seen(Box::new(Prior {
                    outcome: Outcome::Applied,
                    code: None,
                    reply: None,
                    fingerprint: Fingerprint::NONE,
                    scheme: claim.scheme,
                    sums: claim.sums,
                    source: claim.source,
                    at_us: 1,
                }));
            }
            known.push(claim.key);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rolled_back_claim_is_fresh_again() {
    let law = suite::ledger::a_rolled_back_claim_is_fresh_again::<Rig<RemembersTooEarly>>();
    must_be_caught("a_rolled_back_claim_is_fresh_again", law).await;
}

/// Moves the deadline with each try.
#[derive(Default)]
struct MovesDeadlines(AtomicU32);

impl LedgerSaboteur for MovesDeadlines {
    fn parked(&self, _which: &Which<'_>, parked: &mut Vec<Parked>) {
        let asked = self.0.fetch_add(1, Ordering::Relaxed);
        parked.iter_mut().for_each(|one| one.last |= asked > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_park_keeps_its_first_deadline_and_counts_its_tries() {
    let law = suite::ledger::a_park_keeps_its_first_deadline_and_counts_its_tries::<
        Rig<MovesDeadlines>,
    >();
    must_be_caught("a_park_keeps_its_first_deadline_and_counts_its_tries", law).await;
}

/// T50: tells what was written last, not what is highest.
#[derive(Default)]
struct TellsTheLastPosition(Mutex<Vec<Reached>>);

impl LedgerSaboteur for TellsTheLastPosition {
    fn record(&self, _fence: Fence, record: &mut Record) {
        if !record.positions.is_empty() {
            self.0
                .lock()
                .expect("nobody panics with the list")
                .clone_from(&record.positions);
        }
    }

    fn positions(&self, positions: &mut Vec<Reached>) {
        if !positions.is_empty() {
            positions.clone_from(&self.0.lock().expect("nobody panics with the list"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn positions_only_rise() {
    must_be_caught(
        "positions_only_rise",
        suite::ledger::positions_only_rise::<Rig<TellsTheLastPosition>>(),
    )
    .await;
}

struct Spout<S> {
    sim: SimSourceRig,
    saboteur: Arc<S>,
}

/// As a file: it has an end.
const FEATURES: Features = Features {
    ends: true,
    ..<SimSourceRig as SourceRig>::FEATURES
};

impl<S: SourceSaboteur> SourceRig for Spout<S> {
    const FEATURES: Features = FEATURES;

    async fn fresh() -> Self {
        Self {
            sim: <SimSourceRig as SourceRig>::fresh().await,
            saboteur: Arc::new(S::default()),
        }
    }

    async fn put(&self, messages: &[Outgoing]) {
        self.sim.put(messages).await;
    }

    async fn open(&self, positions: Arc<Kept>) -> Arc<dyn Source> {
        Arc::new(BrokenSource::new(
            self.sim.open(positions).await,
            self.saboteur.clone(),
        ))
    }
}

/// A saboteur of a source, and the law that catches it.
macro_rules! source_saboteurs {
    ($($(#[$what:meta])* $name:ident { $($hook:item)+ } is caught by $law:ident;)+) => {
        mod source_laws {
            use super::*;

            $(
                $(#[$what])*
                #[derive(Default)]
                struct $name;

                impl SourceSaboteur for $name {
                    $($hook)+
                }
            )+

            $(
                #[tokio::test(start_paused = true)]
                async fn $law() {
                    must_be_caught(stringify!($law), suite::source::$law::<Spout<$name>>()).await;
                }
            )+
        }
    };
}

source_saboteurs! {
    /// Hands a batch out from its end.
    TurnsBatchesRound {
        fn received(&self, received: &mut Received) {
            if let Received::Batch(batch) = received {
                batch.reverse();
            }
        }
    } is caught by what_was_put_is_handed_out_once_and_in_order;

    /// T73: drops what is nacked.
    DropsNacks {
        fn settlements(&self, settlements: &mut Settlements) {
            settlements.receipts.retain(|receipt| receipt.verdict() == Settle::Ack);
        }
    } is caught by a_nacked_message_returns;

    /// T44: takes every delivery for the first one.
    ForgetsToCount {
        fn received(&self, received: &mut Received) {
            if let Received::Batch(batch) = received {
                batch.iter_mut().for_each(|delivery| delivery.message.attempt = 1);
            }
        }
    } is caught by a_message_that_comes_again_is_counted;

    /// T42: loses what it has taken and not handed out.
    SwallowsTheRest {
        fn received(&self, received: &mut Received) {
            if let Received::Batch(batch) = received {
                batch.truncate(1);
            }
        }
    } is caught by an_unacked_message_returns_after_opening_again;

    /// Never tells the broker.
    ForgetsAcks {
        fn settlements(&self, settlements: &mut Settlements) {
            settlements.receipts.clear();
        }
    } is caught by an_acked_message_does_not_return;

    /// E048 again: null becomes empty.
    TakesNullForEmpty {
        fn received(&self, received: &mut Received) {
            if let Received::Batch(batch) = received {
                batch.iter_mut().for_each(|delivery| { delivery.message.payload.get_or_insert_default(); });
            }
        }
    } is caught by content_arrives_as_it_was_put;

    /// Takes a limit for advice.
    IgnoresLimits {
        fn limit(&self, limit: &mut Limit) {
            *limit = Limit { count: 1000, bytes: usize::MAX };
        }
    } is caught by a_batch_stays_within_its_limit;

    /// Waits with the batch in its hands.
    Dawdles {
        fn dawdles(&self) -> bool {
            true
        }
    } is caught by a_dropped_receive_loses_nothing;

    /// Says drained when it is not asked to, and never the end.
    TakesEndForDrained {
        fn received(&self, received: &mut Received) {
            if matches!(received, Received::End) {
                *received = Received::Drained;
            }
        }
    } is caught by the_end_comes_when_all_is_acked;
}

/// A source that counts no stale receipt.
struct Unaware(Arc<dyn Source>);

impl Source for Unaware {
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        self.0.receive(limit)
    }

    fn settle(
        &self,
        settlements: Settlements,
    ) -> BoxFuture<'_, Result<semel_core::source::Settled, Fault>> {
        Box::pin(async move {
            self.0.settle(settlements).await?;
            Ok(semel_core::source::Settled::default())
        })
    }
}

struct UnawareRig(SimSourceRig);

impl SourceRig for UnawareRig {
    const FEATURES: Features = FEATURES;

    async fn fresh() -> Self {
        Self(<SimSourceRig as SourceRig>::fresh().await)
    }

    async fn put(&self, messages: &[Outgoing]) {
        self.0.put(messages).await;
    }

    async fn open(&self, positions: Arc<Kept>) -> Arc<dyn Source> {
        Arc::new(Unaware(self.0.open(positions).await))
    }
}

#[tokio::test(start_paused = true)]
async fn t40_a_receipt_of_an_earlier_opening_settles_nothing() {
    let law = suite::source::a_receipt_of_an_earlier_opening_settles_nothing::<UnawareRig>();
    must_be_caught("a_receipt_of_an_earlier_opening_settles_nothing", law).await;
}

struct RepeatingRig(SimSourceRig);

/// Answers `Drained` whenever the source would wait.
struct Repeating(Arc<dyn Source>);

impl Source for Repeating {
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                received = self.0.receive(limit) => received,
                () = std::future::ready(()) => Ok(Received::Drained),
            }
        })
    }

    fn settle(
        &self,
        settlements: Settlements,
    ) -> BoxFuture<'_, Result<semel_core::source::Settled, Fault>> {
        self.0.settle(settlements)
    }
}

impl SourceRig for RepeatingRig {
    const FEATURES: Features = FEATURES;

    async fn fresh() -> Self {
        Self(<SimSourceRig as SourceRig>::fresh().await)
    }

    async fn put(&self, messages: &[Outgoing]) {
        self.0.put(messages).await;
    }

    async fn open(&self, positions: Arc<Kept>) -> Arc<dyn Source> {
        Arc::new(Repeating(self.0.open(positions).await))
    }
}

#[tokio::test(start_paused = true)]
async fn drained_is_told_once() {
    must_be_caught(
        "drained_is_told_once",
        suite::source::drained_is_told_once::<RepeatingRig>(),
    )
    .await;
}

/// Spoils what is published.
type Spoil = fn(&mut Vec<Outgoing>) -> Result<(), Fault>;

struct BrokenSink(Arc<dyn Sink>, Spoil);

impl Sink for BrokenSink {
    fn publish<'a>(&'a self, messages: &'a [Outgoing]) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let mut messages = messages.to_vec();
            (self.1)(&mut messages)?;
            self.0.publish(&messages).await
        })
    }
}

/// A saboteur of a sink, and the law that catches it.
macro_rules! sink_saboteurs {
    ($($(#[$what:meta])* $name:ident $spoil:expr, is caught by $law:ident;)+) => {
        mod sink_laws {
            use super::*;

            $(
                $(#[$what])*
                struct $name(SimSourceRig);

                impl SinkRig for $name {
                    const FEATURES: Features = FEATURES;

                    async fn fresh() -> Self {
                        Self(<SimSourceRig as SinkRig>::fresh().await)
                    }

                    async fn sink(&self) -> Arc<dyn Sink> {
                        Arc::new(BrokenSink(SinkRig::sink(&self.0).await, $spoil))
                    }

                    async fn source(&self) -> Arc<dyn Source> {
                        SinkRig::source(&self.0).await
                    }
                }

                #[tokio::test(start_paused = true)]
                async fn $law() {
                    must_be_caught(stringify!($law), suite::sink::$law::<$name>()).await;
                }
            )+
        }
    };
}

sink_saboteurs! {
    /// T47: says sent before the last one is.
    HoldsTheLastBack |messages| {
        messages.pop();
        Ok(())
    }, is caught by what_is_published_is_there_when_the_call_returns_and_in_order;

    /// E054: loses the key.
    LosesTheKey |messages| {
        messages.iter_mut().for_each(|message| message.key = None);
        Ok(())
    }, is caught by the_key_travels_with_the_message;

    /// Sends null as empty.
    SendsNullAsEmpty |messages| {
        messages.iter_mut().for_each(|message| { message.payload.get_or_insert_with(Bytes::new); });
        Ok(())
    }, is caught by what_is_published_arrives_as_it_was;

    /// Fails on nothing.
    FailsOnNothing |messages| {
        if messages.is_empty() { Err(Fault::poison("nothing to send")) } else { Ok(()) }
    }, is caught by publishing_nothing_is_fine;
}
