//! Laws of a source.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use semel_core::Fault;
use semel_core::ledger::{Committed, ConsumerId, Fence, Instance, LaneId, Reached, SourceId};
use semel_core::sink::Outgoing;
use semel_core::source::{BoxFuture, Delivery, Limit, Positions, Received, Settlements, Source};

use super::ok;

/// What a source can do at all. What it declares here, the suite holds it to; what it does not, is not
/// asked, and its documentation has to say so.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// It carries headers.
    pub headers: bool,
    /// It carries the broker's message key.
    pub message_key: bool,
    /// It tells a null payload from an empty one.
    pub null_payload: bool,
    /// It hands out empty payloads.
    pub empty_payload: bool,
    /// What was not acked comes again after it was opened again.
    pub redelivers: bool,
    /// It counts how often it delivered a message: `Message::attempt` rises when one comes again.
    pub counts_deliveries: bool,
    /// It says `Drained` when nothing is left for now.
    pub drains: bool,
    /// It says `End` when nothing will ever come again.
    pub ends: bool,
}

/// What the suite needs of a source's backend: one empty queue, topic or file.
pub trait SourceRig: Send + Sync + Sized + 'static {
    /// What it can do.
    const FEATURES: Features;

    /// An empty one.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// Publishes messages, in order, all to one partition. Called before [`SourceRig::open`] only.
    fn put(&self, messages: &[Outgoing]) -> impl Future<Output = ()> + Send;

    /// Opens it, as a process that starts does. What an earlier opening handed out and did not settle
    /// comes again after at most its lease: the earlier one has been dropped.
    fn open(&self, positions: Arc<Kept>) -> impl Future<Output = Arc<dyn Source>> + Send;
}

/// One named test per law of a source, over a [`SourceRig`].
#[macro_export]
macro_rules! source_laws {
    ($rig:ty) => {
        $crate::source_laws! { @each $rig:
            what_was_put_is_handed_out_once_and_in_order
            a_nacked_message_returns
            a_message_that_comes_again_is_counted
            an_unacked_message_returns_after_opening_again
            an_acked_message_does_not_return
            content_arrives_as_it_was_put
            a_batch_stays_within_its_limit
            a_dropped_receive_loses_nothing
            a_receipt_of_an_earlier_opening_settles_nothing
            drained_is_told_once
            the_end_comes_when_all_is_acked
        }
    };
    (@each $rig:ty: $($law:ident)*) => {
        $(
            #[tokio::test]
            async fn $law() {
                $crate::suite::run(stringify!($law), $crate::suite::source::$law::<$rig>()).await;
            }
        )*
    };
}

/// Positions as a ledger keeps them, in memory.
#[derive(Debug, Default)]
pub struct Kept(Mutex<BTreeMap<String, Reached>>);

impl Kept {
    /// Raises the positions to behind these deliveries, and gives what a unit would have written.
    fn reach(&self, deliveries: &[Delivery]) -> Vec<Reached> {
        let mut kept = self
            .0
            .lock()
            .expect("no code panics while it holds the positions");
        for delivery in deliveries {
            let position = &delivery.message.position;
            let (Some(mark), Some(offset)) = (&delivery.mark, position.offset) else {
                continue;
            };
            let reached = Reached {
                source: SourceId(1),
                partition: position.partition.clone(),
                next: offset + 1,
                mark: mark.clone(),
            };
            kept.insert(position.partition.to_string(), reached);
        }
        kept.values().cloned().collect()
    }
}

impl Positions for Kept {
    fn reached(&self, partition: &str) -> BoxFuture<'_, Result<Option<Reached>, Fault>> {
        let reached = self
            .0
            .lock()
            .expect("no code panics while it holds the positions")
            .get(partition)
            .cloned();
        Box::pin(std::future::ready(Ok(reached)))
    }
}

const LIMIT: Limit = Limit {
    count: 100,
    bytes: 1 << 20,
};

/// The suite is the ledger of its sources: it vouches for commits that it has imagined.
fn proof() -> Committed {
    let lane = LaneId {
        consumer: ConsumerId(1),
        instance: Instance([1; 16]),
        lane: 0,
    };
    Committed::witnessed(Fence { lane, unit: 1 })
}

pub(super) fn outgoing(payload: &str) -> Outgoing {
    Outgoing {
        key: None,
        payload: Some(Bytes::from(payload.to_owned())),
        headers: Vec::new(),
        message_key: None,
    }
}

/// Leaves a law out, and says so.
#[expect(
    clippy::print_stderr,
    reason = "what was not tested must be seen in the test's output"
)]
fn not_asked(law: &str, feature: &str) {
    eprintln!("`{law}` is not asked: this source does not declare `{feature}`");
}

async fn put<R: SourceRig>(rig: &R, payloads: &[&str]) {
    rig.put(
        &payloads
            .iter()
            .map(|payload| outgoing(payload))
            .collect::<Vec<_>>(),
    )
    .await;
}

/// At least `count` deliveries.
pub(super) async fn take(source: &dyn Source, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        match ok(source.receive(LIMIT).await) {
            Received::Batch(batch) => {
                assert!(!batch.is_empty(), "a batch holds at least one delivery");
                all.extend(batch);
            }
            Received::Drained => {}
            Received::End => panic!("the end came after {} of {count} messages", all.len()),
        }
    }
    all
}

pub(super) async fn ack(source: &dyn Source, kept: &Kept, deliveries: Vec<Delivery>) -> usize {
    let positions = kept.reach(&deliveries);
    let receipts = deliveries
        .into_iter()
        .map(|delivery| delivery.receipt.ack(&proof()))
        .collect();
    ok(source
        .settle(Settlements {
            receipts,
            positions,
        })
        .await)
    .lost
}

fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries
        .iter()
        .map(|d| String::from_utf8_lossy(d.message.bytes()).into_owned())
        .collect()
}

/// Each message once, in order; offsets rise where there are any.
pub async fn what_was_put_is_handed_out_once_and_in_order<R: SourceRig>() {
    let rig = R::fresh().await;
    let payloads: Vec<String> = (0..250).map(|i| format!("m{i}")).collect();
    put(
        &rig,
        &payloads.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .await;
    let kept = Arc::new(Kept::default());
    let source = rig.open(kept.clone()).await;
    let mut got = Vec::new();
    let mut offsets = Vec::new();
    while got.len() < payloads.len() {
        let batch = take(&*source, 1).await;
        got.extend(texts(&batch));
        offsets.extend(batch.iter().filter_map(|d| d.message.position.offset));
        assert_eq!(
            ack(&*source, &kept, batch).await,
            0,
            "an ack in time is not lost"
        );
    }
    assert_eq!(got, payloads);
    assert!(
        offsets.is_sorted_by(|a, b| a < b),
        "offsets rise within the partition"
    );
}

/// What is nacked comes again, while its neighbours are done.
pub async fn a_nacked_message_returns<R: SourceRig>() {
    let rig = R::fresh().await;
    put(&rig, &["a", "b", "c"]).await;
    let kept = Arc::new(Kept::default());
    let source = rig.open(kept.clone()).await;
    let mut deliveries = take(&*source, 3).await;
    let b = deliveries.remove(1);
    let receipts = vec![b.receipt.nack(0)];
    ok(source
        .settle(Settlements {
            receipts,
            positions: Vec::new(),
        })
        .await);
    ack(&*source, &kept, deliveries).await;
    let again = take(&*source, 1).await;
    assert_eq!(texts(&again), ["b"]);
    ack(&*source, &kept, again).await;
}

/// The attempt of a message rises with each delivery of it.
pub async fn a_message_that_comes_again_is_counted<R: SourceRig>() {
    if !R::FEATURES.counts_deliveries {
        return not_asked("a_message_that_comes_again_is_counted", "counts_deliveries");
    }
    let rig = R::fresh().await;
    put(&rig, &["a"]).await;
    let source = rig.open(Arc::new(Kept::default())).await;
    let mut attempts = Vec::new();
    for _ in 0..3 {
        let again = take(&*source, 1).await.remove(0);
        attempts.push(again.message.attempt);
        ok(source
            .settle(Settlements {
                receipts: vec![again.receipt.nack(0)],
                positions: Vec::new(),
            })
            .await);
    }
    assert!(attempts[0] >= 1, "attempts count from 1");
    assert!(
        attempts.is_sorted_by(|before, after| before < after),
        "each delivery is told by a higher attempt: {attempts:?}"
    );
}

/// At-least-once: a process that ended without an ack leaves the message to the next one.
pub async fn an_unacked_message_returns_after_opening_again<R: SourceRig>() {
    if !R::FEATURES.redelivers {
        return not_asked(
            "an_unacked_message_returns_after_opening_again",
            "redelivers",
        );
    }
    let rig = R::fresh().await;
    put(&rig, &["a", "b", "c"]).await;
    let kept = Arc::new(Kept::default());
    let source = rig.open(kept.clone()).await;
    let mut deliveries = take(&*source, 3).await;
    deliveries.truncate(1);
    ack(&*source, &kept, deliveries).await;
    drop(source);
    let source = rig.open(kept.clone()).await;
    let mut again = texts(&take(&*source, 2).await);
    again.sort();
    assert_eq!(again, ["b", "c"]);
}

/// What is acked is done, also for the next process.
pub async fn an_acked_message_does_not_return<R: SourceRig>() {
    if !R::FEATURES.redelivers {
        return not_asked("an_acked_message_does_not_return", "redelivers");
    }
    let rig = R::fresh().await;
    put(&rig, &["a", "b"]).await;
    let kept = Arc::new(Kept::default());
    let source = rig.open(kept.clone()).await;
    let mut deliveries = take(&*source, 2).await;
    let b = deliveries.pop().expect("two were taken");
    ack(&*source, &kept, deliveries).await;
    drop((b, source));
    let source = rig.open(kept.clone()).await;
    assert_eq!(texts(&take(&*source, 1).await), ["b"]);
}

/// Bytes, headers and keys are not touched; null is not empty.
pub async fn content_arrives_as_it_was_put<R: SourceRig>() {
    let features = R::FEATURES;
    let rig = R::fresh().await;
    let mut sent = vec![
        outgoing("{\"id\": \"ä\u{1F600}\"}"),
        outgoing("not json \u{0}\u{1}"),
    ];
    sent[1].payload = Some(Bytes::from_static(b"\xff\xfe\x00{"));
    if features.headers {
        let mut with = outgoing("headers");
        with.headers = vec![
            ("b".to_owned(), Bytes::from_static(b"\x00\xff")),
            ("a".to_owned(), Bytes::from_static(b"x")),
        ];
        sent.push(with);
    }
    if features.message_key {
        sent.push(Outgoing {
            message_key: Some(Bytes::from_static(b"\x00lane")),
            ..outgoing("key")
        });
    }
    if features.null_payload {
        sent.push(Outgoing {
            payload: None,
            ..outgoing("")
        });
    }
    if features.empty_payload {
        sent.push(outgoing(""));
    }
    rig.put(&sent).await;
    let source = rig.open(Arc::new(Kept::default())).await;
    let got = take(&*source, sent.len()).await;
    for (sent, got) in sent.iter().zip(&got) {
        assert_eq!(got.message.payload, sent.payload);
        let headers: Vec<_> = got
            .message
            .headers
            .iter()
            .filter(|(n, _)| n == "a" || n == "b")
            .cloned()
            .collect();
        assert_eq!(headers, sent.headers, "headers keep their order");
        if features.message_key {
            assert_eq!(got.message.message_key, sent.message_key);
        }
    }
}

/// Count and bytes are limits; a message larger than all bytes still comes, alone.
pub async fn a_batch_stays_within_its_limit<R: SourceRig>() {
    let rig = R::fresh().await;
    let large = "x".repeat(10_000);
    put(&rig, &["a", "b", "c", &large, "d"]).await;
    let kept = Arc::new(Kept::default());
    let source = rig.open(kept.clone()).await;
    let mut got = 0;
    while got < 5 {
        match ok(source
            .receive(Limit {
                count: 2,
                bytes: 5_000,
            })
            .await)
        {
            Received::Batch(batch) => {
                assert!(
                    batch.len() <= 2,
                    "{} deliveries for a limit of 2",
                    batch.len()
                );
                let bytes: usize = batch.iter().map(|d| d.message.size()).sum();
                assert!(
                    bytes <= 5_000 || batch.len() == 1,
                    "{bytes} bytes in {} deliveries",
                    batch.len()
                );
                got += batch.len();
                ack(&*source, &kept, batch).await;
            }
            Received::Drained => {}
            Received::End => panic!("the end came after {got} of 5 messages"),
        }
    }
}

/// `receive` is cancel-safe: what a dropped call would have handed out comes with a later one.
pub async fn a_dropped_receive_loses_nothing<R: SourceRig>() {
    let rig = R::fresh().await;
    let payloads: Vec<String> = (0..50).map(|i| format!("m{i}")).collect();
    put(
        &rig,
        &payloads.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .await;
    let kept = Arc::new(Kept::default());
    let source = rig.open(kept.clone()).await;
    let mut got = Vec::new();
    let mut polls = 0_u32;
    while got.len() < payloads.len() {
        // Every call but each tenth is dropped at its first wait.
        polls += 1;
        let patient = polls.is_multiple_of(10);
        let received = tokio::select! {
            biased;
            received = source.receive(Limit { count: 3, bytes: 1 << 20 }) => ok(received),
            () = std::future::ready(()), if !patient => {
                tokio::task::yield_now().await;
                continue;
            }
        };
        if let Received::Batch(batch) = received {
            got.extend(texts(&batch));
            ack(&*source, &kept, batch).await;
        }
    }
    got.sort_by_key(|text| text[1..].parse::<u32>().unwrap_or(u32::MAX));
    assert_eq!(got, payloads);
}

/// T40: a receipt belongs to its generation.
pub async fn a_receipt_of_an_earlier_opening_settles_nothing<R: SourceRig>() {
    if !R::FEATURES.redelivers {
        return not_asked(
            "a_receipt_of_an_earlier_opening_settles_nothing",
            "redelivers",
        );
    }
    let rig = R::fresh().await;
    put(&rig, &["a", "b"]).await;
    let kept = Arc::new(Kept::default());
    let source = rig.open(kept.clone()).await;
    let old = take(&*source, 2).await;
    drop(source);
    let source = rig.open(kept.clone()).await;
    let new = take(&*source, 2).await;
    let receipts: Vec<_> = old
        .into_iter()
        .map(|delivery| delivery.receipt.ack(&proof()))
        .collect();
    let settled = ok(source
        .settle(Settlements {
            receipts,
            positions: Vec::new(),
        })
        .await);
    assert_eq!(settled.lost, 2, "stale acks are counted as lost");
    // Nacked, they come again: the stale acks did not touch them.
    let receipts = new
        .into_iter()
        .map(|delivery| delivery.receipt.nack(0))
        .collect();
    ok(source
        .settle(Settlements {
            receipts,
            positions: Vec::new(),
        })
        .await);
    let mut again = texts(&take(&*source, 2).await);
    again.sort();
    assert_eq!(again, ["a", "b"]);
}

/// `Drained` is told when nothing is left and nothing is out, once; then the call waits.
pub async fn drained_is_told_once<R: SourceRig>() {
    if !R::FEATURES.drains {
        return not_asked("drained_is_told_once", "drains");
    }
    let rig = R::fresh().await;
    put(&rig, &["a"]).await;
    let kept = Arc::new(Kept::default());
    let source = rig.open(kept.clone()).await;
    let batch = take(&*source, 1).await;
    ack(&*source, &kept, batch).await;
    assert!(matches!(ok(source.receive(LIMIT).await), Received::Drained));
    let second =
        tokio::time::timeout(std::time::Duration::from_millis(300), source.receive(LIMIT)).await;
    assert!(second.is_err(), "told a second time: {second:?}");
}

/// `End` is told when nothing will come again, and told again to who asks again.
pub async fn the_end_comes_when_all_is_acked<R: SourceRig>() {
    if !R::FEATURES.ends {
        return not_asked("the_end_comes_when_all_is_acked", "ends");
    }
    let rig = R::fresh().await;
    put(&rig, &["a", "b"]).await;
    let kept = Arc::new(Kept::default());
    let source = rig.open(kept.clone()).await;
    let mut deliveries = take(&*source, 2).await;
    let b = deliveries.pop().expect("two were taken");
    ack(&*source, &kept, deliveries).await;
    ok(source
        .settle(Settlements {
            receipts: vec![b.receipt.nack(0)],
            positions: Vec::new(),
        })
        .await);
    let again = take(&*source, 1).await;
    ack(&*source, &kept, again).await;
    for _ in 0..2 {
        assert!(matches!(ok(source.receive(LIMIT).await), Received::End));
    }
}
