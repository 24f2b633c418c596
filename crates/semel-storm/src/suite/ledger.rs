//! Laws of a ledger.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use semel_core::fingerprint::{FieldSums, Fingerprint, Scheme};
use semel_core::key::Key;
use semel_core::ledger::{
    Claim, ClaimKind, Claimed, Commit, ConsumerId, Enrolment, Fence, Instance, LaneId, Ledger,
    Letter, Note, Park, Prior, Reached, Record, Resolved, Save, Sighting, SightingKind, SourceId,
    Unit, Which,
};
use semel_core::message::{Message, Position};
use semel_core::outcome::{Awaiting, Code, Outcome, codes};
use semel_core::{Class, Fault, Limit};

use super::ok;

/// What the suite needs of a ledger's backend.
pub trait LedgerRig: Send + Sync + Sized + 'static {
    /// The ledger under test.
    type Ledger: Ledger;

    /// An empty database of its own.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// Opens it, as a process that starts does. Called more than once.
    fn open(&self) -> impl Future<Output = Self::Ledger> + Send;

    /// The committed sightings of a key: numbers of kinds, and counts, by kind.
    fn sightings(
        &self,
        consumer: ConsumerId,
        key: Key,
    ) -> impl Future<Output = Vec<(i16, i64)>> + Send;

    /// The committed dead letters of a consumer: codes and counts, by code.
    fn letters(&self, consumer: ConsumerId) -> impl Future<Output = Vec<(String, i64)>> + Send;
}

/// One named test per law of a ledger, over a [`LedgerRig`].
#[macro_export]
macro_rules! ledger_laws {
    ($rig:ty) => {
        $crate::ledger_laws! { @each $rig:
            a_key_is_claimed_once
            an_open_claim_is_never_fresh_for_another_lane
            a_rolled_back_claim_is_fresh_again
            a_copy_sees_the_recorded_outcome_code_and_reply
            other_content_shows_the_first_fingerprint
            a_deleted_claim_is_fresh_again
            a_released_message_is_claimed_once
            a_parked_message_comes_back_whole
            a_parked_message_that_ended_comes_back_no_more
            parked_messages_are_found_by_key_by_what_they_await_and_when_due
            a_park_keeps_its_first_deadline_and_counts_its_tries
            sightings_add_up
            a_dead_letter_is_unique_and_counted
            positions_only_rise
            going_back_undoes_what_came_after_the_savepoint_and_not_the_claims
            an_error_is_healed_by_going_back
            a_dropped_unit_leaves_nothing
            the_fence_rises_by_one_with_each_committed_unit
            a_lane_that_left_counts_anew
            an_unknown_commit_is_resolved_as_committed_rolled_back_or_lost
            a_commit_that_is_resolved_as_rolled_back_never_comes_true
            lanes_that_claim_the_same_keys_each_get_an_answer
            attempts_count_up_until_they_are_forgotten
            consumers_do_not_see_each_others_keys
            another_owner_or_other_key_rules_are_refused
        }
    };
    (@each $rig:ty: $($law:ident)*) => {
        $(
            #[tokio::test]
            async fn $law() {
                $crate::suite::run(stringify!($law), $crate::suite::ledger::$law::<$rig>()).await;
            }
        )*
    };
}

/// A key for a number.
fn key(number: u8) -> Key {
    Key::from_bytes([number; 16])
}

fn fingerprint(number: u8) -> Fingerprint {
    Fingerprint::from_bytes([number; 16])
}

/// An enrolled consumer on an empty ledger.
struct Bench<R: LedgerRig> {
    rig: R,
    ledger: Arc<R::Ledger>,
    consumer: ConsumerId,
    source: SourceId,
}

fn enrolment(consumer: &str) -> Enrolment {
    Enrolment {
        consumer: consumer.to_owned(),
        handler: "suite".to_owned(),
        rules: fingerprint(200),
        sources: vec!["first".to_owned(), "second".to_owned()],
        accept_key_change: false,
    }
}

impl<R: LedgerRig> Bench<R> {
    async fn new() -> Self {
        let rig = R::fresh().await;
        let ledger = Arc::new(rig.open().await);
        let enrolled = ok(ledger.enroll(&enrolment("suite")).await);
        Self {
            rig,
            ledger,
            consumer: enrolled.consumer,
            source: enrolled.sources[0],
        }
    }

    fn lane(&self, lane: i16) -> LaneId {
        LaneId {
            consumer: self.consumer,
            instance: Instance([7; 16]),
            lane,
        }
    }

    async fn unit(&self, lane: i16) -> <R::Ledger as Ledger>::Unit {
        let lane = ok(self.ledger.connect(self.lane(lane)).await);
        ok(self.ledger.begin(lane).await)
    }

    fn claim(&self, number: u8) -> Claim {
        Claim {
            key: key(number),
            fingerprint: fingerprint(number),
            scheme: Scheme::ALL,
            sums: FieldSums::from_bytes(&[number, 1, number, 2]),
            source: self.source,
            kind: ClaimKind::New,
        }
    }

    fn released(&self, number: u8) -> Claim {
        Claim {
            kind: ClaimKind::Released,
            ..self.claim(number)
        }
    }

    /// One unit that claims and writes, committed. Gives the answers to the claims.
    async fn apply(&self, claims: &[Claim], record: &Record) -> Vec<Claimed> {
        let mut unit = self.unit(0).await;
        let claimed = ok(unit.claim(claims).await);
        ok(unit.write(record).await);
        commit(unit).await;
        claimed
    }

    /// Parks a message under its key, in a unit that claims it.
    async fn park(&self, park: Park) {
        let note = note(park.key, Outcome::Parked, Some(&park.awaiting.kind), None);
        let claim = match park.kind {
            ClaimKind::New => self.claim(park.key.as_bytes()[0]),
            ClaimKind::Released => self.released(park.key.as_bytes()[0]),
        };
        self.apply(
            &[claim],
            &Record {
                parks: vec![park],
                notes: vec![note],
                ..Record::default()
            },
        )
        .await;
    }

    fn parking(&self, number: u8, awaiting: u8, due_in_ms: u64, deadline_in_ms: u64) -> Park {
        Park {
            key: key(number),
            id: format!("id-{number}"),
            awaiting: Awaiting {
                kind: Code::new("round"),
                key: key(awaiting),
            },
            message: Message::new(format!("payload {number}"), "p", Some(u64::from(number))),
            source: self.source,
            due_in_ms,
            deadline_in_ms,
            kind: ClaimKind::New,
        }
    }

    async fn parked(&self, which: Which<'_>) -> Vec<Key> {
        ok(self
            .ledger
            .parked(self.consumer, which, Limit::messages(100))
            .await)
        .into_iter()
        .map(|parked| parked.key)
        .collect()
    }
}

const AN_HOUR_MS: u64 = 3_600_000;

fn note(key: Key, outcome: Outcome, code: Option<&Code>, reply: Option<&'static [u8]>) -> Note {
    Note {
        key,
        outcome,
        code: code.cloned(),
        reply: reply.map(Bytes::from_static),
    }
}

async fn commit<U: Unit>(unit: U) -> U::Lane {
    match unit.commit().await {
        Commit::Committed(_, lane) => lane,
        Commit::RolledBack(fault) => panic!("the commit was rolled back: {fault}"),
        Commit::Unknown(fault) => panic!("the commit is unknown: {fault}"),
    }
}

fn seen(claimed: &Claimed) -> &Prior {
    match claimed {
        Claimed::Seen(prior) => prior,
        Claimed::Fresh => panic!("the key was free, though a committed unit claimed it"),
        Claimed::Ended => panic!("a new message was taken for a released one"),
    }
}

/// Claims and commits on a lane of its own, again after each `Busy`.
async fn claim_until_answered<L: Ledger>(
    ledger: Arc<L>,
    lane: LaneId,
    claims: Vec<Claim>,
) -> Vec<Claimed> {
    loop {
        match try_claim(&*ledger, lane, &claims).await {
            Ok(claimed) => return claimed,
            Err(fault) => assert_eq!(fault.class, Class::Busy, "{fault}"),
        }
        tokio::task::yield_now().await;
    }
}

async fn try_claim<L: Ledger>(
    ledger: &L,
    lane: LaneId,
    claims: &[Claim],
) -> Result<Vec<Claimed>, Fault> {
    let lane = ledger.connect(lane).await?;
    let mut unit = ledger.begin(lane).await?;
    let claimed = unit.claim(claims).await?;
    match unit.commit().await {
        Commit::Committed(..) => Ok(claimed),
        Commit::RolledBack(fault) | Commit::Unknown(fault) => Err(fault),
    }
}

/// A key is Fresh for the first unit that claims it, and Seen for every later one, in every process.
pub async fn a_key_is_claimed_once<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let claims = [bench.claim(1), bench.claim(2)];
    let first = bench.apply(&claims, &Record::default()).await;
    assert_eq!(
        first,
        [Claimed::Fresh, Claimed::Fresh],
        "new keys are Fresh"
    );
    let second = bench
        .apply(
            &[bench.claim(1), bench.claim(2), bench.claim(3)],
            &Record::default(),
        )
        .await;
    assert!(
        matches!(second[2], Claimed::Fresh),
        "a new key among old ones is Fresh, in its place"
    );
    for (claimed, number) in second[..2].iter().zip([1, 2]) {
        let prior = seen(claimed);
        assert_eq!(
            (prior.outcome, prior.fingerprint),
            (Outcome::Applied, fingerprint(number))
        );
    }
    let elsewhere = bench.rig.open().await;
    let third = ok(try_claim(&elsewhere, bench.lane(1), &claims[..1]).await);
    seen(&third[0]);
}

/// While a unit that claimed a key is open, no other one gets it Fresh; afterwards it is Seen.
pub async fn an_open_claim_is_never_fresh_for_another_lane<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let mut first = bench.unit(0).await;
    ok(first.claim(&[bench.claim(1)]).await);
    let second = claim_until_answered(bench.ledger.clone(), bench.lane(1), vec![bench.claim(1)]);
    let second = tokio::spawn(second);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert!(
        !second.is_finished(),
        "a claim waits for the open unit that has the key"
    );
    commit(first).await;
    let second = second.await.expect("the other lane must not panic");
    seen(&second[0]);
}

/// A claim goes with its unit.
pub async fn a_rolled_back_claim_is_fresh_again<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let mut unit = bench.unit(0).await;
    ok(unit.claim(&[bench.claim(1)]).await);
    drop(unit);
    let again =
        claim_until_answered(bench.ledger.clone(), bench.lane(1), vec![bench.claim(1)]).await;
    assert_eq!(
        again,
        [Claimed::Fresh],
        "a claim that was rolled back must not hold its key"
    );
}

/// What was noted is what a copy is told, byte for byte.
pub async fn a_copy_sees_the_recorded_outcome_code_and_reply<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let code = Code::new("insufficient_funds");
    let notes = vec![
        note(key(1), Outcome::Applied, None, Some(b"\x00reply\xff")),
        note(key(2), Outcome::Refused, Some(&code), Some(b"")),
        note(key(3), Outcome::Ignored, Some(&code), None),
    ];
    let claims = [
        bench.claim(1),
        bench.claim(2),
        bench.claim(3),
        bench.claim(4),
    ];
    bench
        .apply(
            &claims,
            &Record {
                notes,
                ..Record::default()
            },
        )
        .await;
    let copies = bench.apply(&claims, &Record::default()).await;
    let told: Vec<_> = copies
        .iter()
        .map(seen)
        .map(|p| (p.outcome, p.code.clone(), p.reply.as_deref()))
        .collect();
    let expected = [
        (Outcome::Applied, None, Some(b"\x00reply\xff".as_slice())),
        (Outcome::Refused, Some(code.clone()), Some(b"".as_slice())),
        (Outcome::Ignored, Some(code), None),
        (Outcome::Applied, None, None),
    ];
    assert_eq!(told, expected);
    assert!(
        copies
            .iter()
            .map(seen)
            .all(|prior| prior.source == bench.source && prior.at_us > 0)
    );
}

/// A Clash is judged by what the first delivery said.
pub async fn other_content_shows_the_first_fingerprint<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    bench.apply(&[bench.claim(1)], &Record::default()).await;
    let other = Claim {
        fingerprint: fingerprint(99),
        scheme: Scheme(777),
        sums: FieldSums::default(),
        ..bench.claim(1)
    };
    let claimed = bench.apply(&[other], &Record::default()).await;
    let prior = seen(&claimed[0]);
    assert_eq!(prior.fingerprint, fingerprint(1));
    assert_eq!(prior.scheme, Scheme::ALL);
    assert_eq!(prior.sums, bench.claim(1).sums);
}

/// T38: a dead message holds no key.
pub async fn a_deleted_claim_is_fresh_again<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let record = Record {
        unclaims: vec![key(1)],
        ..Record::default()
    };
    bench
        .apply(&[bench.claim(1), bench.claim(2)], &record)
        .await;
    let again = bench
        .apply(&[bench.claim(1), bench.claim(2)], &Record::default())
        .await;
    assert_eq!(
        again[0],
        Claimed::Fresh,
        "a claim deleted in its unit must not hold the key"
    );
    seen(&again[1]);
}

/// Release is a compare-and-set on the row that says `parked`.
pub async fn a_released_message_is_claimed_once<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    bench.park(bench.parking(1, 50, 0, AN_HOUR_MS)).await;
    let copy = bench.apply(&[bench.claim(1)], &Record::default()).await;
    let prior = seen(&copy[0]);
    assert_eq!(
        (prior.outcome, prior.code.as_ref().map(Code::as_str)),
        (Outcome::Parked, Some("round"))
    );
    let ended = Record {
        unparks: vec![key(1)],
        ..Record::default()
    };
    let unread = Claim {
        fingerprint: fingerprint(0),
        scheme: Scheme::NONE,
        sums: FieldSums::default(),
        ..bench.released(1)
    };
    let first = bench.apply(&[unread], &ended).await;
    assert_eq!(first, [Claimed::Fresh], "a release compares no content");
    let second = bench
        .apply(&[bench.released(1), bench.released(9)], &Record::default())
        .await;
    assert_eq!(
        second,
        [Claimed::Ended, Claimed::Ended],
        "what another unit ended, or nobody knows, is Ended"
    );
    let copy = bench.apply(&[bench.claim(1)], &Record::default()).await;
    assert_eq!(seen(&copy[0]).outcome, Outcome::Applied);
}

/// Content, headers, key and position come back; null is not empty.
pub async fn a_parked_message_comes_back_whole<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let headers = vec![
        ("h".to_owned(), Bytes::from_static(b"\x00\xff")),
        ("h".to_owned(), Bytes::new()),
    ];
    let mut full = bench.parking(1, 50, 0, AN_HOUR_MS);
    full.message.headers = headers.into();
    full.message.message_key = Some(Bytes::from_static(b"\x00lane"));
    full.message.timestamp_ms = Some(-5);
    let mut null = bench.parking(2, 50, 0, AN_HOUR_MS);
    null.message.payload = None;
    null.message.position = Position {
        partition: "q".into(),
        offset: None,
    };
    let mut empty = bench.parking(3, 50, 0, AN_HOUR_MS);
    empty.message.payload = Some(Bytes::new());
    empty.message.message_key = Some(Bytes::new());
    let parks = [full, null, empty];
    for park in &parks {
        bench.park(park.clone()).await;
    }
    let back = ok(bench
        .ledger
        .parked(bench.consumer, Which::After(None), Limit::messages(100))
        .await);
    assert_eq!(back.len(), parks.len());
    for (park, back) in parks.iter().zip(&back) {
        let (sent, got) = (&park.message, &back.message);
        assert_eq!(back.key, park.key, "parked messages come in key order");
        assert_eq!(back.id, park.id);
        assert_eq!(
            got.payload, sent.payload,
            "a null payload is not an empty one"
        );
        assert_eq!(got.headers, sent.headers);
        assert_eq!(got.message_key, sent.message_key);
        assert_eq!(got.timestamp_ms, sent.timestamp_ms);
        assert_eq!(got.position, sent.position);
        assert_eq!(back.source, park.source);
    }
}

/// An ended message is gone from the parked ones in the unit that ends it.
pub async fn a_parked_message_that_ended_comes_back_no_more<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    bench.park(bench.parking(1, 50, 0, AN_HOUR_MS)).await;
    bench.park(bench.parking(2, 50, 0, AN_HOUR_MS)).await;
    bench
        .apply(
            &[bench.released(1)],
            &Record {
                unparks: vec![key(1)],
                ..Record::default()
            },
        )
        .await;
    assert_eq!(bench.parked(Which::After(None)).await, [key(2)]);
}

/// The ways to look for parked messages, each in key order and within its limit.
pub async fn parked_messages_are_found_by_key_by_what_they_await_and_when_due<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    for (number, awaiting, due, deadline) in [
        (1, 50, AN_HOUR_MS, AN_HOUR_MS),
        (2, 51, 0, AN_HOUR_MS),
        (3, 50, AN_HOUR_MS, 0),
        (4, 52, AN_HOUR_MS, AN_HOUR_MS),
    ] {
        bench
            .park(bench.parking(number, awaiting, due, deadline))
            .await;
    }
    assert_eq!(
        bench.parked(Which::Keys(&[key(1), key(4), key(9)])).await,
        [key(1), key(4)]
    );
    assert_eq!(
        bench.parked(Which::Awaiting(&[key(50)])).await,
        [key(1), key(3)]
    );
    assert_eq!(
        bench.parked(Which::Due(None)).await,
        [key(2), key(3)],
        "due, or past the deadline"
    );
    assert_eq!(
        bench
            .parked(Which::Due(Some(Key::from_bytes([255; 16]))))
            .await,
        [],
        "due messages come in pages"
    );
    assert_eq!(
        bench.parked(Which::After(Some(key(2)))).await,
        [key(3), key(4)]
    );
    let two = ok(bench
        .ledger
        .parked(bench.consumer, Which::After(None), Limit::messages(2))
        .await);
    assert_eq!(
        two.iter().map(|p| p.key).collect::<Vec<_>>(),
        [key(1), key(2)],
        "the limit takes the first ones"
    );
    let size = two[0].message.size();
    for (bytes, count) in [(0, 1), (2 * size, 2), (3 * size - 1, 2), (4 * size, 4)] {
        let limit = Limit { count: 9, bytes };
        for which in [Which::After(None), Which::Awaiting(&[50, 51, 52].map(key))] {
            let found = ok(bench.ledger.parked(bench.consumer, which, limit).await);
            assert_eq!(
                found.len(),
                count,
                "{bytes} bytes, and one message at least"
            );
        }
    }
    let last: Vec<bool> = ok(bench
        .ledger
        .parked(bench.consumer, Which::After(None), Limit::messages(9))
        .await)
    .iter()
    .map(|p| p.last)
    .collect();
    assert_eq!(
        last,
        [false, false, true, false],
        "only a message past its deadline runs for the last time"
    );
}

/// Parking again moves the next try, never the deadline.
pub async fn a_park_keeps_its_first_deadline_and_counts_its_tries<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    bench.park(bench.parking(1, 50, 0, AN_HOUR_MS)).await;
    let first = ok(bench
        .ledger
        .parked(bench.consumer, Which::Due(None), Limit::messages(9))
        .await);
    let again = Park {
        kind: ClaimKind::Released,
        ..bench.parking(1, 51, AN_HOUR_MS, 0)
    };
    bench.park(again).await;
    assert_eq!(
        bench.parked(Which::Due(None)).await,
        [],
        "the new due time counts"
    );
    assert_eq!(
        bench.parked(Which::Awaiting(&[key(51)])).await,
        [key(1)],
        "the new thing awaited counts"
    );
    let second = ok(bench
        .ledger
        .parked(bench.consumer, Which::After(None), Limit::messages(9))
        .await);
    assert!(!second[0].last, "the deadline is the first park's");
    assert_eq!(second[0].attempts, first[0].attempts + 1);
    let copy = bench.apply(&[bench.claim(1)], &Record::default()).await;
    assert_eq!(seen(&copy[0]).outcome, Outcome::Parked);
}

/// Counts of sightings add up over units, by key, source and kind.
pub async fn sightings_add_up<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let sighting = |number, kind, count| Sighting {
        key: key(number),
        source: bench.source,
        kind,
        count,
        partition: "p".into(),
        offset: None,
    };
    for count in [1, 41] {
        let mut sightings = vec![
            sighting(1, SightingKind::Duplicate, count),
            sighting(1, SightingKind::Clash, 1),
            sighting(2, SightingKind::Replay, 5),
        ];
        sightings.sort_by_key(|s| (s.key, s.source, s.kind));
        bench
            .apply(
                &[],
                &Record {
                    sightings,
                    ..Record::default()
                },
            )
            .await;
    }
    let duplicate = SightingKind::Duplicate.number();
    let clash = SightingKind::Clash.number();
    assert_eq!(
        bench.rig.sightings(bench.consumer, key(1)).await,
        [(duplicate, 42), (clash, 2)]
    );
    assert_eq!(
        bench.rig.sightings(bench.consumer, key(2)).await,
        [(SightingKind::Replay.number(), 10)]
    );
}

/// The same dead message again raises a count; another code, content or place is another letter.
pub async fn a_dead_letter_is_unique_and_counted<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let letter = |key: Option<Key>, code: &Code, hash: u8, offset: u64| Letter {
        key,
        id: key.map(|_| "id".to_owned()),
        code: code.clone(),
        detail: "detail".to_owned(),
        field: Some("legs/0/amount".to_owned()),
        hash: [hash; 16],
        attempts: 1,
        source: bench.source,
        message: Message::new("not json", "p", Some(offset)),
    };
    let letters = vec![
        letter(None, &codes::MALFORMED, 1, 1),
        letter(None, &codes::MALFORMED, 1, 2),
        letter(Some(key(1)), &codes::KEY_REUSED, 1, 1),
        letter(Some(key(1)), &codes::POISON, 1, 1),
    ];
    let mut new = Vec::new();
    for offset in [0, 0, 7] {
        let mut letters = letters.clone();
        // A keyed letter met at another place is still the same.
        letters[2].message.position.offset = Some(offset);
        letters.sort_by_key(|l| (l.subject(), l.hash));
        let mut unit = bench.unit(0).await;
        new.push(
            ok(unit
                .write(&Record {
                    letters,
                    ..Record::default()
                })
                .await)
            .new_letters,
        );
        commit(unit).await;
    }
    assert_eq!(new, [4, 0, 0]);
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for (code, count) in bench.rig.letters(bench.consumer).await {
        *counts.entry(code).or_default() += count;
    }
    let expected =
        [("key_reused", 3), ("malformed", 6), ("poison", 3)].map(|(code, n)| (code.to_owned(), n));
    assert_eq!(counts, BTreeMap::from(expected));
    assert_eq!(
        bench.rig.letters(bench.consumer).await.len(),
        4,
        "two places without a key are two letters"
    );
}

/// A position is the maximum over the lanes and over time, with the mark of that maximum.
pub async fn positions_only_rise<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let reached = |partition: &str, next: u64| Reached {
        source: bench.source,
        partition: partition.into(),
        next,
        mark: Bytes::from(next.to_string()),
    };
    for (lane, next) in [(0, 5), (1, 9), (0, 7), (0, 3), (1, 8)] {
        let mut unit = bench.unit(lane).await;
        let positions = vec![reached("p", next), reached("q", 1)];
        ok(unit
            .write(&Record {
                positions,
                ..Record::default()
            })
            .await);
        commit(unit).await;
    }
    let mut found = ok(bench.ledger.positions(bench.consumer, bench.source).await);
    found.sort_by(|a, b| a.partition.cmp(&b.partition));
    assert_eq!(found, [reached("p", 9), reached("q", 1)]);
    let none = ok(bench.ledger.positions(bench.consumer, SourceId(99)).await);
    assert_eq!(none, [], "another source has none");
}

/// A savepoint is where it was set: claims before it stay, notes after it go, and it can be gone back to
/// again; an inner one goes with it.
pub async fn going_back_undoes_what_came_after_the_savepoint_and_not_the_claims<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let mut unit = bench.unit(0).await;
    ok(unit.claim(&[bench.claim(1), bench.claim(2)]).await);
    ok(unit.save(Save::Claims).await);
    let refuse = |number, reply| Record {
        notes: vec![note(
            key(number),
            Outcome::Refused,
            Some(&codes::POISON),
            Some(reply),
        )],
        ..Record::default()
    };
    for _ in 0..2 {
        ok(unit.write(&refuse(1, b"thrown away")).await);
        ok(unit.save(Save::Group).await);
        ok(unit.write(&refuse(2, b"thrown away")).await);
        ok(unit.back(Save::Claims).await);
    }
    ok(unit.save(Save::Group).await);
    ok(unit.write(&refuse(2, b"kept")).await);
    ok(unit.save(Save::Group).await);
    ok(unit.write(&refuse(2, b"thrown away")).await);
    ok(unit.back(Save::Group).await);
    commit(unit).await;
    let copies = bench
        .apply(&[bench.claim(1), bench.claim(2)], &Record::default())
        .await;
    assert_eq!(
        seen(&copies[0]).outcome,
        Outcome::Applied,
        "undone, but still claimed"
    );
    assert_eq!(seen(&copies[1]).reply.as_deref(), Some(b"kept".as_slice()));
}

/// Going back also works when nothing was wrong, and the unit can go on to its commit.
pub async fn an_error_is_healed_by_going_back<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let mut unit = bench.unit(0).await;
    ok(unit.claim(&[bench.claim(1)]).await);
    ok(unit.save(Save::Claims).await);
    ok(unit.back(Save::Claims).await);
    ok(unit.back(Save::Claims).await);
    assert_eq!(ok(unit.claim(&[bench.claim(2)]).await), [Claimed::Fresh]);
    ok(unit.back(Save::Claims).await);
    assert_eq!(
        ok(unit.claim(&[bench.claim(2)]).await),
        [Claimed::Fresh],
        "a claim behind the savepoint is undone"
    );
    commit(unit).await;
    seen(&bench.apply(&[bench.claim(2)], &Record::default()).await[0]);
}

/// What a unit wrote goes with it.
pub async fn a_dropped_unit_leaves_nothing<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let park = bench.parking(1, 50, 0, AN_HOUR_MS);
    let record = Record {
        notes: vec![note(
            key(1),
            Outcome::Parked,
            Some(&park.awaiting.kind),
            None,
        )],
        parks: vec![park],
        positions: vec![Reached {
            source: bench.source,
            partition: "p".into(),
            next: 5,
            mark: Bytes::new(),
        }],
        ..Record::default()
    };
    let mut unit = bench.unit(0).await;
    ok(unit.claim(&[bench.claim(1)]).await);
    ok(unit.write(&record).await);
    drop(unit);
    let again =
        claim_until_answered(bench.ledger.clone(), bench.lane(1), vec![bench.claim(1)]).await;
    assert_eq!(again, [Claimed::Fresh]);
    assert_eq!(bench.parked(Which::After(None)).await, []);
    assert_eq!(
        ok(bench.ledger.positions(bench.consumer, bench.source).await),
        []
    );
}

/// Units of a lane are numbered without gaps; one that was rolled back gives its number to the next.
pub async fn the_fence_rises_by_one_with_each_committed_unit<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let mut lane = ok(bench.ledger.connect(bench.lane(0)).await);
    let mut last = None;
    for _ in 0..3 {
        let unit = ok(bench.ledger.begin(lane).await);
        let fence = unit.fence();
        assert_eq!(fence.lane, bench.lane(0));
        assert!(
            last.is_none_or(|last| fence.unit == last + 1),
            "{fence:?} after {last:?}"
        );
        last = Some(fence.unit);
        lane = commit(unit).await;
    }
    drop(ok(bench.ledger.begin(lane).await));
    let unit = bench.unit(0).await;
    assert_eq!(
        Some(unit.fence().unit),
        last.map(|last| last + 1),
        "a unit that was rolled back left no trace"
    );
    drop(unit);
    assert_eq!(
        bench.unit(1).await.fence().unit,
        1,
        "each lane counts for itself"
    );
}

/// A lane leaves before a life's first message as well, and the same one connects again.
pub async fn a_lane_that_left_counts_anew<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let mut lane = ok(bench.ledger.connect(bench.lane(0)).await);
    for _ in 0..2 {
        lane = commit(ok(bench.ledger.begin(lane).await)).await;
    }
    ok(bench.ledger.leave(lane).await);
    let unit = bench.unit(0).await;
    assert_eq!(unit.fence().unit, 1);
    commit(unit).await;
    assert_eq!(bench.unit(0).await.fence().unit, 2);
}

/// T03: the fence row tells how an unknown commit ended.
pub async fn an_unknown_commit_is_resolved_as_committed_rolled_back_or_lost<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let unit = bench.unit(0).await;
    let committed = unit.fence();
    drop(commit(unit).await);
    let open = bench.unit(0).await;
    let gone = open.fence();
    drop(open);
    let resolved = resolve(&*bench.ledger, committed).await;
    assert!(
        matches!(&resolved, Resolved::Committed(proof) if proof.fence() == committed),
        "{resolved:?}"
    );
    assert_eq!(resolve(&*bench.ledger, gone).await, Resolved::RolledBack);
    let confirmed_but_not_there = Fence {
        unit: gone.unit + 1,
        ..gone
    };
    assert_eq!(
        resolve(&*bench.ledger, confirmed_but_not_there).await,
        Resolved::Lost
    );
}

/// T66: who resolves waits for the unit, or ends it; when the answer is there, it is final.
pub async fn a_commit_that_is_resolved_as_rolled_back_never_comes_true<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let mut unit = bench.unit(0).await;
    let fence = unit.fence();
    ok(unit.claim(&[bench.claim(1)]).await);
    let ledger = bench.ledger.clone();
    let resolving = tokio::spawn(async move { resolve(&*ledger, fence).await });
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    // Where the holder was ended meanwhile, its commit fails.
    let committed = matches!(unit.commit().await, Commit::Committed(..));
    let resolved = resolving.await.expect("resolving must not panic");
    let again =
        claim_until_answered(bench.ledger.clone(), bench.lane(1), vec![bench.claim(1)]).await;
    assert_eq!(
        committed,
        again != [Claimed::Fresh],
        "a confirmed commit is there, a failed one is not"
    );
    assert_eq!(
        committed,
        matches!(resolved, Resolved::Committed(_)),
        "the answer and the database agree"
    );
}

/// Resolves, again after each fault that asks for it.
async fn resolve<L: Ledger>(ledger: &L, fence: Fence) -> Resolved {
    loop {
        match ledger.resolve(fence).await {
            Ok(resolved) => return resolved,
            Err(fault) => assert!(matches!(fault.class, Class::Busy | Class::Down), "{fault}"),
        }
        tokio::task::yield_now().await;
    }
}

/// T32: batches with the same keys, sorted, from several lanes at once: all end, each key is Fresh once.
pub async fn lanes_that_claim_the_same_keys_each_get_an_answer<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let lanes = (0..4_i16).map(|lane| {
        let (ledger, id) = (bench.ledger.clone(), bench.lane(lane));
        let first = u8::try_from(lane * 7).expect("a small number");
        // Batches overlap with those of the other lanes, from both sides.
        let batches: Vec<Vec<Claim>> = (0..8_u8)
            .map(|batch| {
                (0..20)
                    .map(|i| bench.claim(first + batch * 3 + i))
                    .collect()
            })
            .collect();
        tokio::spawn(async move {
            let mut fresh = Vec::new();
            for claims in batches {
                let claimed = claim_until_answered(ledger.clone(), id, claims.clone()).await;
                assert_eq!(claimed.len(), claims.len());
                let new = claims
                    .iter()
                    .zip(&claimed)
                    .filter(|(_, c)| **c == Claimed::Fresh);
                fresh.extend(new.map(|(claim, _)| claim.key));
            }
            fresh
        })
    });
    let mut fresh = Vec::new();
    for lane in lanes.collect::<Vec<_>>() {
        fresh.extend(lane.await.expect("a lane must not panic"));
    }
    fresh.sort_unstable();
    let expected: Vec<Key> = (0..62).map(key).collect();
    assert_eq!(fresh, expected, "every key is Fresh exactly once");
}

/// Attempts are counted in the database, by key, and forgotten when the message ended.
pub async fn attempts_count_up_until_they_are_forgotten<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let mut counts = Vec::new();
    for keys in [vec![key(1)], vec![key(1), key(2)]] {
        let mut unit = bench.unit(0).await;
        counts.push(ok(unit.attempt(&keys).await));
        commit(unit).await;
    }
    let mut unit = bench.unit(0).await;
    ok(unit.attempt(&[key(1)]).await);
    drop(unit);
    bench
        .apply(
            &[],
            &Record {
                settled_attempts: vec![key(2)],
                ..Record::default()
            },
        )
        .await;
    let mut unit = bench.unit(1).await;
    counts.push(ok(unit.attempt(&[key(1), key(2)]).await));
    commit(unit).await;
    assert_eq!(counts, [vec![1], vec![2, 1], vec![3, 1]]);
}

/// T79: one scope a consumer.
pub async fn consumers_do_not_see_each_others_keys<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let other = ok(bench.ledger.enroll(&enrolment("other")).await);
    assert_ne!(other.consumer, bench.consumer);
    bench.park(bench.parking(1, 50, 0, AN_HOUR_MS)).await;
    let lane = LaneId {
        consumer: other.consumer,
        ..bench.lane(0)
    };
    let claimed = ok(try_claim(&*bench.ledger, lane, &[bench.claim(1)]).await);
    assert_eq!(
        claimed,
        [Claimed::Fresh],
        "the same key of another consumer is another operation"
    );
    let parked = ok(bench
        .ledger
        .parked(other.consumer, Which::After(None), Limit::messages(9))
        .await);
    assert!(
        parked.is_empty(),
        "parked messages are their consumer's own"
    );
    let again = ok(bench.ledger.enroll(&enrolment("suite")).await);
    assert_eq!(
        (again.consumer, again.sources[0]),
        (bench.consumer, bench.source),
        "numbers stay"
    );
    assert_ne!(again.sources[0], again.sources[1]);
}

/// An owner is a handler and its key rules.
pub async fn another_owner_or_other_key_rules_are_refused<R: LedgerRig>() {
    let bench = Bench::<R>::new().await;
    let stops = async |enrolment: &Enrolment| match bench.ledger.enroll(enrolment).await {
        Ok(_) => false,
        Err(fault) => {
            assert_eq!(fault.class, Class::Stop, "{fault}");
            assert!(
                fault.to_string().contains("suite"),
                "the message names the consumer: {fault}"
            );
            true
        }
    };
    let other_handler = Enrolment {
        handler: "another".to_owned(),
        ..enrolment("suite")
    };
    assert!(stops(&other_handler).await, "a second owner of the name");
    let other_rules = Enrolment {
        rules: fingerprint(201),
        ..enrolment("suite")
    };
    assert!(stops(&other_rules).await, "other key rules give other keys");
    let accepted = Enrolment {
        accept_key_change: true,
        ..other_rules.clone()
    };
    assert_eq!(
        ok(bench.ledger.enroll(&accepted).await).consumer,
        bench.consumer
    );
    assert!(
        !stops(&other_rules).await,
        "an accepted change stays accepted"
    );
    assert!(
        stops(&enrolment("suite")).await,
        "the old rules are the others now"
    );
}
