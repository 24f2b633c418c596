//! The embedded queue.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use semel_core::ledger::{Committed, Fence};
use semel_core::source::{Delivery, Limit, Received, Settlements};
use semel_core::{Class, Key, Outgoing, Sink, Source};
use semel_postgres::{PostgresQueue, QueueOptions};

use crate::proxy::{Hurt, Proxy};
use crate::world::{World, key, number, run};

const ALL: Limit = Limit {
    count: 1_000,
    bytes: usize::MAX,
};

async fn queue(world: &World, visibility_ms: u64) -> PostgresQueue {
    PostgresQueue::open(world.options.clone(), "ops", QueueOptions { visibility_ms })
        .await
        .unwrap()
}

pub(crate) fn outgoing(n: u64) -> Outgoing {
    Outgoing {
        key: Some(key(n)),
        payload: Some(format!("message {n}").into()),
        headers: vec![("h".to_owned(), Bytes::from_static(b"\0"))],
        message_key: Some("lane".into()),
    }
}

fn proof(world: &World) -> Committed {
    Committed::witnessed(Fence {
        lane: world.lane_id(0),
        unit: 1,
    })
}

async fn batch(queue: &PostgresQueue, limit: Limit) -> Vec<Delivery> {
    match queue.receive(limit).await.unwrap() {
        Received::Batch(batch) => batch,
        other => panic!("{other:?}"),
    }
}

fn offsets(batch: &[Delivery]) -> Vec<u64> {
    batch
        .iter()
        .map(|d| d.message.position.offset.unwrap())
        .collect()
}

fn acks(batch: Vec<Delivery>, proof: &Committed) -> Settlements {
    Settlements {
        receipts: batch.into_iter().map(|d| d.receipt.ack(proof)).collect(),
        positions: Vec::new(),
    }
}

fn nacks(batch: Vec<Delivery>, delay_ms: u64) -> Settlements {
    Settlements {
        receipts: batch
            .into_iter()
            .map(|d| d.receipt.nack(delay_ms))
            .collect(),
        positions: Vec::new(),
    }
}

async fn put(queue: &PostgresQueue, range: std::ops::Range<u64>) {
    queue
        .publish(&range.map(outgoing).collect::<Vec<_>>())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_message_arrives_as_it_was_put_with_its_key_in_a_header() {
    let world = World::new().await;
    let queue = queue(&world, 60_000).await;
    let mut null = outgoing(2);
    (null.payload, null.message_key, null.key) = (None, None, None);
    let mut forged = outgoing(3);
    forged
        .headers
        .push(("idempotency-key".to_owned(), "forged".into()));
    queue.publish(&[outgoing(1), null, forged]).await.unwrap();
    let batch = batch(&queue, ALL).await;
    let one = &batch[0].message;
    assert_eq!(one.payload.as_deref(), Some(b"message 1".as_slice()));
    assert_eq!(one.header("h").unwrap().as_ref(), b"\0");
    assert_eq!(
        one.header("idempotency-key").unwrap().as_ref(),
        key(1).to_string().as_bytes()
    );
    assert_eq!(
        (one.message_key.as_deref(), one.attempt),
        (Some(b"lane".as_slice()), 1)
    );
    assert_eq!(
        (&*one.position.partition, one.position.offset),
        ("ops", Some(1))
    );
    assert!(one.timestamp_ms.unwrap() > 1_700_000_000_000);
    assert!(batch[0].mark.is_none());
    assert_eq!(
        (&batch[1].message.payload, &batch[1].message.message_key),
        (&None, &None)
    );
    assert!(batch[1].message.header("idempotency-key").is_none());
    assert_eq!(
        batch[2].message.header("idempotency-key").unwrap().as_ref(),
        key(3).to_string().as_bytes()
    );
}

#[tokio::test]
async fn messages_come_in_order_up_to_the_limit() {
    let world = World::new().await;
    let queue = queue(&world, 60_000).await;
    put(&queue, 0..10).await;
    assert_eq!(
        offsets(
            &batch(
                &queue,
                Limit {
                    count: 4,
                    bytes: usize::MAX
                }
            )
            .await
        ),
        [1, 2, 3, 4]
    );
    // About 650 bytes each, by the queue's cautious count.
    assert_eq!(
        offsets(
            &batch(
                &queue,
                Limit {
                    count: 9,
                    bytes: 1_500
                }
            )
            .await
        ),
        [5, 6]
    );
    assert_eq!(
        offsets(&batch(&queue, Limit { count: 9, bytes: 1 }).await),
        [7]
    );
    assert_eq!(offsets(&batch(&queue, ALL).await), [8, 9, 10]);
}

#[tokio::test]
async fn an_acked_message_is_gone_and_the_drained_queue_says_so_once() {
    let world = World::new().await;
    let queue = queue(&world, 60_000).await;
    assert!(matches!(
        queue.receive(ALL).await.unwrap(),
        Received::Drained
    ));
    put(&queue, 0..3).await;
    let all = batch(&queue, ALL).await;
    // Leased messages count as left.
    let waiting = tokio::time::timeout(Duration::from_millis(300), queue.receive(ALL)).await;
    assert!(waiting.is_err(), "{waiting:?}");
    assert_eq!(
        queue.settle(acks(all, &proof(&world))).await.unwrap().lost,
        0
    );
    assert!(matches!(
        queue.receive(ALL).await.unwrap(),
        Received::Drained
    ));
    let waiting = tokio::time::timeout(Duration::from_millis(300), queue.receive(ALL)).await;
    assert!(waiting.is_err(), "{waiting:?}");
    put(&queue, 3..4).await;
    assert_eq!(offsets(&batch(&queue, ALL).await), [4]);
}

#[tokio::test]
async fn a_nacked_message_returns_after_its_delay_with_one_attempt_more() {
    let world = World::new().await;
    let queue = queue(&world, 60_000).await;
    put(&queue, 0..3).await;
    let mut all = batch(&queue, ALL).await;
    let last = all.split_off(2);
    queue.settle(nacks(all, 0)).await.unwrap();
    let again = batch(&queue, ALL).await;
    assert_eq!(offsets(&again), [1, 2]);
    assert!(again.iter().all(|d| d.message.attempt == 2));
    queue.settle(nacks(last, 3_600_000)).await.unwrap();
    let delayed = "SELECT count(*) FROM semel_queue WHERE visible_at > now() + interval '50 minutes' AND lease IS NULL";
    assert_eq!(number(&mut world.psql().await, delayed).await, 1);
}

#[tokio::test]
async fn an_ack_after_the_lease_ran_out_and_went_to_another_is_lost() {
    let world = World::new().await;
    let (slow, quick) = (queue(&world, 0).await, queue(&world, 60_000).await);
    put(&slow, 0..2).await;
    let late = batch(&slow, ALL).await;
    let taken = batch(&quick, ALL).await;
    assert_eq!(offsets(&late), offsets(&taken));
    assert_eq!(
        slow.settle(acks(late, &proof(&world))).await.unwrap().lost,
        2
    );
    assert_eq!(
        quick
            .settle(acks(taken, &proof(&world)))
            .await
            .unwrap()
            .lost,
        0
    );
}

#[tokio::test]
async fn an_older_receipt_of_the_same_handle_is_lost_too() {
    let world = World::new().await;
    let queue = queue(&world, 0).await;
    put(&queue, 0..1).await;
    let first = batch(&queue, ALL).await;
    let second = batch(&queue, ALL).await;
    assert_eq!(
        queue
            .settle(acks(first, &proof(&world)))
            .await
            .unwrap()
            .lost,
        1
    );
    assert_eq!(
        queue
            .settle(acks(second, &proof(&world)))
            .await
            .unwrap()
            .lost,
        0
    );
}

#[tokio::test]
async fn a_dropped_receive_loses_nothing() {
    let world = World::new().await;
    let queue = queue(&world, 60_000).await;
    put(&queue, 0..50).await;
    let mut got = Vec::new();
    for polls in 0..200 {
        let mut receive = queue.receive(Limit {
            count: 5,
            bytes: usize::MAX,
        });
        for _ in 0..polls % 20 {
            if let Some(received) = futures_util::FutureExt::now_or_never(&mut receive) {
                let Received::Batch(batch) = received.unwrap() else {
                    panic!("not yet drained")
                };
                got.extend(offsets(&batch));
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    while got.len() < 50 {
        got.extend(offsets(&batch(&queue, ALL).await));
    }
    assert_eq!(got, (1..=50).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_consumers_share_a_queue_and_each_message_goes_to_one() {
    let world = World::new().await;
    put(&queue(&world, 60_000).await, 0..2_000).await;
    let consumers = (0..6).map(|_| async {
        let queue = queue(&world, 60_000).await;
        let mut got = Vec::new();
        loop {
            match queue
                .receive(Limit {
                    count: 37,
                    bytes: usize::MAX,
                })
                .await
                .unwrap()
            {
                Received::Batch(batch) => {
                    got.extend(offsets(&batch));
                    assert_eq!(
                        queue
                            .settle(acks(batch, &proof(&world)))
                            .await
                            .unwrap()
                            .lost,
                        0
                    );
                }
                Received::Drained => return got,
                Received::End => panic!("a queue never ends"),
            }
        }
    });
    let mut all: Vec<u64> = join_all(consumers).await.concat();
    all.sort_unstable();
    assert_eq!(all, (1..=2_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn t28_a_message_that_commits_late_is_not_skipped() {
    let world = World::new().await;
    let queue = queue(&world, 60_000).await;
    let mut psql = world.psql().await;
    run(
        &mut psql,
        "BEGIN; INSERT INTO semel_queue (queue, headers, payload) VALUES ('ops', '', 'late')",
    )
    .await;
    put(&queue, 0..1).await;
    assert_eq!(offsets(&batch(&queue, ALL).await), [2]);
    run(&mut psql, "COMMIT").await;
    assert_eq!(offsets(&batch(&queue, ALL).await), [1]);
}

#[tokio::test]
async fn a_queue_sees_no_other_queues_messages() {
    let world = World::new().await;
    let (ops, other) = (
        queue(&world, 60_000).await,
        PostgresQueue::open(world.options.clone(), "other", QueueOptions::default())
            .await
            .unwrap(),
    );
    put(&ops, 0..2).await;
    assert!(matches!(
        other.receive(ALL).await.unwrap(),
        Received::Drained
    ));
}

#[tokio::test]
async fn a_message_that_is_too_large_is_poison_and_named() {
    let world = World::new().await;
    let queue = queue(&world, 60_000).await;
    let mut large = outgoing(1);
    large.payload = Some(vec![0; (64 << 20) + 1].into());
    let fault = queue.publish(&[outgoing(0), large]).await.unwrap_err();
    assert_eq!(fault.class, Class::Poison);
    assert!(fault.detail().contains("message 1"), "{fault}");
}

#[tokio::test]
async fn a_queue_whose_session_was_ended_is_down_once_and_goes_on() {
    let world = World::with(|o| o.connect_timeout_ms = 5_000).await;
    let proxy = Proxy::before(&world.options.url).await;
    let mut options = world.options.clone();
    options.url.clone_from(&proxy.url);
    let queue = PostgresQueue::open(
        options,
        "ops",
        QueueOptions {
            visibility_ms: 60_000,
        },
    )
    .await
    .unwrap();
    put(&queue, 0..4).await;
    let first = batch(
        &queue,
        Limit {
            count: 2,
            bytes: usize::MAX,
        },
    )
    .await;
    proxy.arm(1, Hurt::CutRequest);
    assert_eq!(
        queue
            .settle(acks(first, &proof(&world)))
            .await
            .unwrap_err()
            .class,
        Class::Down
    );
    proxy.arm(1, Hurt::CutRequest);
    assert_eq!(queue.receive(ALL).await.unwrap_err().class, Class::Down);
    let rest = batch(&queue, ALL).await;
    assert_eq!(offsets(&rest), [3, 4]);
    assert_eq!(
        queue.settle(acks(rest, &proof(&world))).await.unwrap().lost,
        0
    );
}

#[tokio::test]
async fn keys_of_a_publisher_come_back_whole() {
    let world = World::new().await;
    let queue = queue(&world, 60_000).await;
    put(&queue, 0..2_500).await;
    let mut got = 0_u64;
    while got < 2_500 {
        for delivery in batch(&queue, ALL).await {
            let text = delivery.message.header("idempotency-key").unwrap();
            let text = std::str::from_utf8(text).unwrap();
            assert_eq!(text.parse::<Key>().unwrap(), key(got));
            got += 1;
        }
    }
}
