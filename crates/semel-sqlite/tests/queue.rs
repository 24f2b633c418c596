//! The embedded queue keeps the laws of a source and a sink.

#![expect(
    clippy::unwrap_used,
    reason = "a test says what it expects by unwrapping"
)]

mod world;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use semel_core::ledger::{Committed, ConsumerId, Fence, Instance, LaneId};
use semel_core::source::{Settle, Settled, Settlements};
use semel_core::{Class, Delivery, Key, Limit, Outgoing, Received, Sink, Source};
use semel_sqlite::{QueueOptions, SqliteQueue};
use tempfile::TempDir;

use world::url;

const ALL: Limit = Limit {
    count: 100,
    bytes: usize::MAX,
};

/// A proof, as a ledger would give it: the queue's laws are about what follows.
fn proof() -> Committed {
    let lane = LaneId {
        consumer: ConsumerId(1),
        instance: Instance([0; 16]),
        lane: 0,
    };
    Committed::witnessed(Fence { lane, unit: 1 })
}

fn path(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("queue.db")
}

async fn open(path: &Path) -> SqliteQueue {
    SqliteQueue::open(QueueOptions::new(url(path), "bets"))
        .await
        .unwrap()
}

async fn open_with_lease_of(path: &Path, visibility_ms: u64) -> SqliteQueue {
    SqliteQueue::open(QueueOptions {
        visibility_ms,
        ..QueueOptions::new(url(path), "bets")
    })
    .await
    .unwrap()
}

fn outgoing(text: &str) -> Outgoing {
    Outgoing {
        key: None,
        payload: Some(Bytes::copy_from_slice(text.as_bytes())),
        headers: Vec::new(),
        message_key: None,
    }
}

async fn publish(queue: &SqliteQueue, texts: &[&str]) {
    let messages: Vec<Outgoing> = texts.iter().map(|text| outgoing(text)).collect();
    queue.publish(&messages).await.unwrap();
}

async fn receive(queue: &SqliteQueue, limit: Limit) -> Vec<Delivery> {
    match queue.receive(limit).await.unwrap() {
        Received::Batch(batch) => batch,
        other => panic!("no batch: {other:?}"),
    }
}

fn texts(batch: &[Delivery]) -> Vec<&str> {
    batch
        .iter()
        .map(|delivery| std::str::from_utf8(delivery.message.bytes()).unwrap())
        .collect()
}

async fn settle(queue: &SqliteQueue, batch: Vec<Delivery>, verdict: Settle) -> Settled {
    let receipts = batch
        .into_iter()
        .map(|delivery| match verdict {
            Settle::Ack => delivery.receipt.ack(&proof()),
            Settle::Nack { delay_ms } => delivery.receipt.nack(delay_ms),
        })
        .collect();
    queue
        .settle(Settlements {
            receipts,
            positions: Vec::new(),
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn everything_of_a_message_comes_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let queue = open(&path(&dir)).await;
    let full = Outgoing {
        key: Some(Key::from_bytes([0xab; 16])),
        payload: Some(Bytes::from_static(b"\x00\xff")),
        headers: vec![
            ("idempotency-key".to_owned(), Bytes::from_static(b"stale")),
            ("trace".to_owned(), Bytes::from_static(b"t")),
        ],
        message_key: Some(Bytes::from_static(b"anna")),
    };
    let tombstone = Outgoing {
        payload: None,
        ..outgoing("")
    };
    queue
        .publish(&[full, outgoing(""), tombstone])
        .await
        .unwrap();
    let batch = receive(&queue, ALL).await;
    let message = &batch[0].message;
    assert_eq!(message.bytes(), b"\x00\xff");
    assert_eq!(message.message_key.as_deref(), Some(b"anna".as_slice()));
    let key = message.header("idempotency-key").unwrap();
    assert_eq!(key, "abababab-abab-abab-abab-abababababab".as_bytes());
    assert_eq!(message.headers.len(), 2, "the stale key gave way");
    assert_eq!((&*message.position.partition, message.attempt), ("bets", 1));
    assert!(message.timestamp_ms.unwrap() > 1_700_000_000_000);
    assert_eq!(
        batch[1].message.payload.as_deref(),
        Some([].as_slice()),
        "empty is not null"
    );
    assert_eq!(batch[2].message.payload, None);
    let offsets: Vec<_> = batch
        .iter()
        .map(|delivery| delivery.message.position.offset.unwrap())
        .collect();
    assert!(offsets.is_sorted() && offsets[0] > 0);
    assert!(batch.iter().all(|delivery| delivery.mark.is_none()));
}

#[tokio::test]
async fn an_acked_message_is_gone_and_drained_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let queue = open(&path(&dir)).await;
    assert!(matches!(
        queue.receive(ALL).await.unwrap(),
        Received::Drained
    ));
    assert!(
        queue.receive(ALL).now_or_never().is_none(),
        "drained was said; now it waits"
    );
    publish(&queue, &["a", "b"]).await;
    let batch = receive(&queue, ALL).await;
    assert_eq!(
        settle(&queue, batch, Settle::Ack).await,
        Settled { lost: 0 }
    );
    assert!(matches!(
        queue.receive(ALL).await.unwrap(),
        Received::Drained
    ));
}

#[tokio::test]
async fn a_leased_message_keeps_the_queue_from_being_drained() {
    let dir = tempfile::tempdir().unwrap();
    let holder = open(&path(&dir)).await;
    let asker = open(&path(&dir)).await;
    publish(&holder, &["a"]).await;
    let batch = receive(&holder, ALL).await;
    let asked = tokio::spawn(async move { asker.receive(ALL).await.unwrap() });
    // The asker can only end when the message is gone; its answer then is `Drained`, never a batch.
    settle(&holder, batch, Settle::Ack).await;
    assert!(matches!(asked.await.unwrap(), Received::Drained));
}

#[tokio::test]
async fn a_nacked_message_returns_with_a_higher_attempt_and_before_later_ones() {
    let dir = tempfile::tempdir().unwrap();
    let queue = open(&path(&dir)).await;
    publish(&queue, &["a", "b", "c"]).await;
    let batch = receive(&queue, Limit { count: 2, ..ALL }).await;
    assert_eq!(texts(&batch), ["a", "b"]);
    settle(&queue, batch, Settle::Nack { delay_ms: 0 }).await;
    let batch = receive(&queue, ALL).await;
    assert_eq!(texts(&batch), ["a", "b", "c"]);
    assert_eq!(
        batch
            .iter()
            .map(|delivery| delivery.message.attempt)
            .collect::<Vec<_>>(),
        [2, 2, 1]
    );
}

#[tokio::test]
async fn a_nack_with_a_delay_keeps_the_message_back() {
    let dir = tempfile::tempdir().unwrap();
    let queue = open(&path(&dir)).await;
    publish(&queue, &["a", "b"]).await;
    let batch = receive(&queue, Limit { count: 1, ..ALL }).await;
    settle(
        &queue,
        batch,
        Settle::Nack {
            delay_ms: 3_600_000,
        },
    )
    .await;
    assert_eq!(texts(&receive(&queue, ALL).await), ["b"]);
}

#[tokio::test]
async fn an_expired_lease_returns_and_its_late_ack_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let slow = open_with_lease_of(&path(&dir), 0).await;
    publish(&slow, &["a"]).await;
    let late = receive(&slow, ALL).await;
    let other = open(&path(&dir)).await;
    let again = receive(&other, ALL).await;
    assert_eq!(again[0].message.attempt, 2);
    assert_eq!(settle(&slow, late, Settle::Ack).await, Settled { lost: 1 });
    assert_eq!(
        settle(&other, again, Settle::Ack).await,
        Settled { lost: 0 },
        "the late ack deleted nothing"
    );
}

#[tokio::test]
async fn an_ack_after_the_lease_ran_out_counts_if_nobody_took_the_message() {
    let dir = tempfile::tempdir().unwrap();
    let slow = open_with_lease_of(&path(&dir), 0).await;
    publish(&slow, &["a"]).await;
    let late = receive(&slow, ALL).await;
    assert_eq!(settle(&slow, late, Settle::Ack).await, Settled { lost: 0 });
}

#[tokio::test]
async fn a_batch_keeps_to_its_byte_limit_and_a_larger_message_goes_alone() {
    let dir = tempfile::tempdir().unwrap();
    let queue = open(&path(&dir)).await;
    let big = "x".repeat(5000);
    publish(&queue, &[&big, "a", "b", &big]).await;
    let limit = Limit {
        count: 100,
        bytes: 1000,
    };
    assert_eq!(receive(&queue, limit).await.len(), 1);
    assert_eq!(texts(&receive(&queue, limit).await), ["a", "b"]);
    assert_eq!(receive(&queue, limit).await.len(), 1);
}

#[tokio::test]
async fn a_dropped_receive_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let queue = open(&path(&dir)).await;
    publish(&queue, &["a"]).await;
    for _ in 0..50 {
        // Polled once or twice and dropped, at whatever point it is.
        if let Some(Ok(Received::Batch(batch))) = queue.receive(ALL).now_or_never() {
            assert_eq!(texts(&batch), ["a"]);
            return;
        }
        tokio::task::yield_now().await;
    }
    let batch = receive(&queue, ALL).await;
    assert_eq!(texts(&batch), ["a"]);
    assert_eq!(
        batch[0].message.attempt, 1,
        "the lease of the dropped call was handed out, not made again"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_consumers_get_each_message_once_while_leases_hold() {
    let dir = tempfile::tempdir().unwrap();
    let publisher = open(&path(&dir)).await;
    let wanted: BTreeSet<String> = (0..500).map(|n| n.to_string()).collect();
    let messages: Vec<Outgoing> = wanted.iter().map(|text| outgoing(text)).collect();
    publisher.publish(&messages).await.unwrap();
    let file = Arc::new(path(&dir));
    let consumers = (0..2).map(|_| {
        let file = file.clone();
        tokio::spawn(async move {
            let queue = open(&file).await;
            let mut got = Vec::new();
            while let Received::Batch(batch) =
                queue.receive(Limit { count: 7, ..ALL }).await.unwrap()
            {
                got.extend(texts(&batch).into_iter().map(str::to_owned));
                assert_eq!(settle(&queue, batch, Settle::Ack).await.lost, 0);
            }
            got
        })
    });
    let got: Vec<String> = futures_util::future::join_all(consumers)
        .await
        .into_iter()
        .flat_map(Result::unwrap)
        .collect();
    assert_eq!(got.len(), 500, "each message came once");
    assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), wanted);
}

#[tokio::test]
async fn numbers_are_never_used_twice() {
    let dir = tempfile::tempdir().unwrap();
    let queue = open(&path(&dir)).await;
    let mut last = 0;
    for _ in 0..3 {
        publish(&queue, &["a"]).await;
        let batch = receive(&queue, ALL).await;
        let offset = batch[0].message.position.offset.unwrap();
        assert!(offset > last);
        last = offset;
        settle(&queue, batch, Settle::Ack).await;
    }
}

#[tokio::test]
async fn queues_in_one_file_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let bets = open(&path(&dir)).await;
    let wins = SqliteQueue::open(QueueOptions::new(url(&path(&dir)), "wins"))
        .await
        .unwrap();
    publish(&wins, &["w"]).await;
    assert!(matches!(
        bets.receive(ALL).await.unwrap(),
        Received::Drained
    ));
    assert_eq!(texts(&receive(&wins, ALL).await), ["w"]);
}

#[tokio::test]
async fn a_message_that_no_queue_would_hold_is_poison_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let queue = open(&path(&dir)).await;
    let huge = Outgoing {
        payload: Some(Bytes::from(vec![0; semel_sqlite::MESSAGE_BYTES_MAX + 1])),
        ..outgoing("")
    };
    let fault = queue.publish(&[outgoing("a"), huge]).await.unwrap_err();
    assert_eq!(fault.class, Class::Poison);
    assert!(fault.detail().contains("message 1 "), "{fault}");
    assert!(
        matches!(queue.receive(ALL).await.unwrap(), Received::Drained),
        "nothing of the call arrived"
    );
}
