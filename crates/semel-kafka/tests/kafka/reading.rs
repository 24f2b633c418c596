//! What is read, how it is handed out, and what of it is told to the broker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use semel_core::source::Received;
use semel_core::{Limit, Source};
use semel_kafka::KafkaOptions;

use crate::bed::*;

#[tokio::test]
async fn e048_key_headers_time_and_a_null_value_are_kept_and_an_empty_value_is_not_a_null_one() {
    let topic = topic_for_ever("kept").await;
    let producer = producer();
    let headers = OwnedHeaders::new()
        .insert(Header {
            key: "dup",
            value: Some(&b"\x00\xff"[..]),
        })
        .insert(Header {
            key: "dup",
            value: Some(&b""[..]),
        });
    let full: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topic)
        .key(&b"195087119"[..])
        .payload(&b"{}"[..])
        .timestamp(1_234)
        .headers(headers);
    let null: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topic).key(&b"195087119"[..]);
    let empty: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topic).key(&b""[..]).payload(&b""[..]);
    for record in [full, null, empty] {
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();

    let worker = Worker::open(options(&topic, &fresh("g")), &Arc::default()).await;
    let taken = worker.take(3).await;
    let [full, null, empty] = &taken[..] else {
        panic!("{taken:?}")
    };
    assert_eq!(full.message.message_key.as_deref(), Some(&b"195087119"[..]));
    assert_eq!(full.message.payload.as_deref(), Some(&b"{}"[..]));
    assert_eq!(full.message.timestamp_ms, Some(1_234));
    let headers: Vec<_> = full
        .message
        .headers
        .iter()
        .map(|(n, v)| (n.as_str(), &v[..]))
        .collect();
    assert_eq!(headers, [("dup", &b"\x00\xff"[..]), ("dup", &b""[..])]);
    assert_eq!(null.message.payload, None);
    assert_eq!(empty.message.payload.as_deref(), Some(&b""[..]));
    assert_eq!(empty.message.message_key.as_deref(), Some(&b""[..]));
    assert_eq!(&*full.message.position.partition, format!("{topic}/0"));
    assert_eq!(offsets(&taken), [0, 1, 2]);
    worker.close().await;
}

#[tokio::test]
async fn e050_what_cannot_be_judged_stands_between_two_good_ones_and_stops_nothing() {
    let topic = fresh("limits");
    make(&topic, 1, &[("max.message.bytes", "4000000")]).await;
    let mut many = OwnedHeaders::new();
    for n in 0..10_000 {
        many = many.insert(Header {
            key: "x-death",
            value: Some(&format!("{n}")),
        });
    }
    let large = vec![b'x'; 2 << 20];
    let producer: BaseProducer = config()
        .set("message.max.bytes", "4000000")
        .create()
        .unwrap();
    let records: [(&[u8], Option<OwnedHeaders>); 5] = [
        (b"good", None),
        (b"\xff\xfe\x00\x7b", None),
        (&large, None),
        (b"headers", Some(many)),
        (b"good", None),
    ];
    for (value, headers) in records {
        let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topic).payload(value);
        record.headers = headers;
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();

    let worker = Worker::open(options(&topic, &fresh("g")), &Arc::default()).await;
    let taken = worker.take(5).await;
    let message = |n: usize| &taken[n].message;
    assert_eq!(
        (value(&taken[0]), value(&taken[4])),
        ("good".to_owned(), "good".to_owned())
    );
    assert_eq!(message(1).bytes(), b"\xff\xfe\x00\x7b");
    let cut = message(2).cut.unwrap();
    assert_eq!((cut.size, message(2).bytes().len()), (2 << 20, 64 << 10));
    assert!(
        message(3).cut.is_some(),
        "too many headers end it as too large"
    );
    assert_eq!(message(3).headers.len(), 128);
    assert!([0, 1, 4].iter().all(|n| message(*n).cut.is_none()));
    worker.close().await;
}

#[tokio::test]
async fn a_message_given_back_comes_again_before_all_that_was_not_yet_handed_out() {
    let topic = topic("nack", 1).await;
    produce(&topic, 0, numbers(0..6));
    let worker = Worker::open(options(&topic, &fresh("g")), &Arc::default()).await;
    let mut first = worker.take(3).await;
    let proof = proof();
    let (two, one, zero) = (
        first.pop().unwrap(),
        first.pop().unwrap(),
        first.pop().unwrap(),
    );
    let settled = vec![
        two.receipt.ack(&proof),
        one.receipt.nack(0),
        zero.receipt.nack(30),
    ];
    assert_eq!(worker.settle(settled, Vec::new()).await, 0);

    let rest = worker.take(5).await;
    assert_eq!(
        offsets(&rest),
        [0, 1, 3, 4, 5],
        "order is kept although the first one had to wait"
    );
    assert_eq!(
        rest.iter().map(|d| d.message.attempt).collect::<Vec<_>>(),
        [2, 2, 1, 1, 1]
    );
    worker.commit(rest).await;
    assert!(matches!(
        worker.receive(ALL).await.unwrap(),
        Received::Drained
    ));
    worker.close().await;
}

#[tokio::test]
async fn a_batch_keeps_its_limits_and_a_single_larger_message_travels_alone() {
    let topic = topic("batch", 1).await;
    produce(&topic, 0, [&[b'x'; 50_000][..], b"a", b"b", b"c"]);
    let worker = Worker::open(options(&topic, &fresh("g")), &Arc::default()).await;
    // All are here, and given back: now the limit alone decides.
    let all = worker.take(4).await;
    let back = all.into_iter().map(|d| d.receipt.nack(0)).collect();
    worker.settle(back, Vec::new()).await;
    let limit = Limit {
        count: 2,
        bytes: 2_000,
    };
    let counts = [
        worker.batch(limit).await.len(),
        worker.batch(limit).await.len(),
        worker.take(1).await.len(),
    ];
    assert_eq!(counts, [1, 2, 1]);
    worker.close().await;
}

#[tokio::test]
async fn t56_e047_aborted_transactions_and_markers_leave_gaps_that_stall_nothing() {
    let topic = topic("gaps", 1).await;
    let producer: BaseProducer = config()
        .set("transactional.id", fresh("tx"))
        .create()
        .unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    for n in 0..100 {
        producer.begin_transaction().unwrap();
        let text = n.to_string();
        let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topic).payload(text.as_bytes());
        producer.send(record).map_err(|(error, _)| error).unwrap();
        if n % 10 == 9 {
            producer.flush(PATIENCE).unwrap();
            producer.abort_transaction(PATIENCE).unwrap();
        } else {
            producer.commit_transaction(PATIENCE).unwrap();
        }
    }
    let group = fresh("g");
    let store: Arc<Store> = Arc::default();
    let worker = Worker::open(options(&topic, &group), &store).await;
    let expected: Vec<_> = (0..100)
        .filter(|n| n % 10 != 9)
        .map(|n| n.to_string())
        .collect();
    assert_eq!(
        worker.drain().await,
        expected,
        "the last records are aborted, and the source is drained all the same"
    );
    assert_eq!(worker.source.lag(), [(format!("{topic}/0"), 0)]);
    worker.close().await;

    let next = committed(&group, &topic, 0).unwrap();
    assert!(
        (195..200).contains(&next),
        "behind the last delivered record, not at the end: {next}"
    );
    let again = Worker::open(options(&topic, &group), &store).await;
    assert_eq!(again.drain().await, Vec::<String>::new());
    again.close().await;
}

#[tokio::test]
async fn drained_is_said_once_each_time_and_only_when_nothing_is_out() {
    let topics = [topic("two-a", 2).await, topic("two-b", 2).await];
    // A gap at the end of two partitions of one number: the library's word on the end names only that.
    for topic in &topics {
        let producer: BaseProducer = config()
            .set("transactional.id", fresh("tx"))
            .create()
            .unwrap();
        producer.init_transactions(PATIENCE).unwrap();
        producer.begin_transaction().unwrap();
        for partition in 0..2 {
            let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic)
                .partition(partition)
                .payload(&b"x"[..]);
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.commit_transaction(PATIENCE).unwrap();
    }
    let options = KafkaOptions {
        topics: topics.to_vec(),
        ..options("unused", &fresh("g"))
    };
    let worker = Worker::open(options, &Arc::default()).await;
    let mut taken = worker.take(4).await;
    let last = taken.split_off(3);
    worker.commit(taken).await;
    let waits = tokio::time::timeout(Duration::from_millis(500), worker.source.receive(ALL)).await;
    assert!(waits.is_err(), "one is still out: {waits:?}");
    worker.commit(last).await;
    assert!(matches!(
        worker.receive(ALL).await.unwrap(),
        Received::Drained
    ));
    let waits = tokio::time::timeout(Duration::from_millis(300), worker.source.receive(ALL)).await;
    assert!(waits.is_err(), "drained was said already: {waits:?}");
    produce(&topics[0], 0, ["y"]);
    assert_eq!(worker.drain().await, ["y"]);
    worker.close().await;
}

#[tokio::test]
async fn t50_the_broker_is_told_what_a_committed_unit_wrote_and_nothing_beyond() {
    let topic = topic("told", 1).await;
    produce(&topic, 0, numbers(0..10));
    let group = fresh("g");
    let worker = Worker::open(options(&topic, &group), &Arc::default()).await;
    let mut taken = worker.take(10).await;
    let rest = taken.split_off(4);
    worker.commit(taken).await;
    // Acked, but no unit has written a position yet: the broker hears nothing of these.
    let proof = proof();
    worker
        .settle(
            rest.into_iter().map(|d| d.receipt.ack(&proof)).collect(),
            Vec::new(),
        )
        .await;
    until("the broker knows the position", || {
        committed(&group, &topic, 0) == Some(4)
    })
    .await;
    worker.close().await;
    assert_eq!(committed(&group, &topic, 0), Some(4));
}

#[tokio::test]
async fn e040_a_stop_tells_what_is_reached_and_a_restart_repeats_only_what_was_in_flight() {
    let topic = topic("stop", 1).await;
    produce(&topic, 0, numbers(0..2_000));
    let group = fresh("g");
    let store: Arc<Store> = Arc::default();
    // Longer than the test: only the close can tell it.
    let slow = KafkaOptions {
        commit_interval_ms: 600_000,
        ..options(&topic, &group)
    };
    let worker = Worker::open(slow, &store).await;
    let mut taken = worker.take(1_000).await;
    let in_flight = taken.split_off(900);
    worker.commit(taken).await;
    worker.close().await;
    drop(in_flight);
    assert_eq!(committed(&group, &topic, 0), Some(900));
    let again = Worker::open(options(&topic, &group), &store).await;
    assert_eq!(again.drain().await, numbers(900..2_000));
    again.close().await;
}

#[tokio::test]
async fn t52_e042_closing_right_after_the_first_settle_never_hangs() {
    let topic = topic("close", 1).await;
    produce(&topic, 0, numbers(0..200));
    let group = fresh("g");
    let store: Arc<Store> = Arc::default();
    for _ in 0..5 {
        let worker = Worker::open(options(&topic, &group), &store).await;
        let taken = worker.take(1).await;
        worker.commit(taken).await;
        let begin = Instant::now();
        worker.close().await;
        assert!(begin.elapsed() < Duration::from_secs(10));
        let fault = worker.receive(ALL).await.unwrap_err();
        assert!(fault.detail().contains("closed"), "{fault}");
    }
    assert_eq!(committed(&group, &topic, 0), Some(5));
}

#[tokio::test]
async fn t54_a_handler_slower_than_the_poll_interval_loses_nothing() {
    let topic = topic("slow", 1).await;
    produce(&topic, 0, (0..400).map(|n| format!("{n:01000}")));
    let mut slow = options(&topic, &fresh("g"));
    slow.session_timeout_ms = 6_000;
    slow.poll_interval_max_ms = 6_000;
    slow.drain_ms = 100;
    // Room for a few records: fetching must pause, polling must not.
    slow.buffer_bytes_max = 10_000;
    let worker = Worker::open(slow, &Arc::default()).await;
    let taken = worker.take(10).await;
    let generation = taken[0].receipt.generation();
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(worker.commit(taken).await, 0, "the assignment was kept");
    let mut count = 10;
    while count < 400 {
        let batch = worker.batch(ALL).await;
        assert!(batch.iter().all(|d| d.receipt.generation() == generation));
        count += batch.len();
        assert_eq!(worker.commit(batch).await, 0);
    }
    assert!(matches!(
        worker.receive(ALL).await.unwrap(),
        Received::Drained
    ));
    worker.close().await;
}

#[tokio::test]
async fn a_receive_that_is_dropped_loses_nothing() {
    let topic = topic("cancel", 1).await;
    let worker = Worker::open(options(&topic, &fresh("g")), &Arc::default()).await;
    for _ in 0..50 {
        let _ = tokio::time::timeout(Duration::from_millis(1), worker.source.receive(ALL)).await;
    }
    produce(&topic, 0, numbers(0..100));
    let mut values = Vec::new();
    while values.len() < 100 {
        let received = tokio::time::timeout(
            Duration::from_millis(1),
            worker.source.receive(Limit { count: 3, ..ALL }),
        );
        if let Ok(Ok(Received::Batch(batch))) = received.await {
            values.extend(batch.iter().map(value));
        }
    }
    assert_eq!(values, numbers(0..100));
    worker.close().await;
}

#[tokio::test]
async fn t56_a_compacted_topic_is_read_over_its_gaps() {
    let topic = fresh("compacted");
    let eager = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("min.compaction.lag.ms", "0"),
        ("max.compaction.lag.ms", "100"),
    ];
    make(&topic, 1, &eager).await;
    let producer = producer();
    let put = |key: usize, value: &str| {
        let (key, record) = (format!("k{key}"), BaseRecord::to(&topic).payload(value));
        producer
            .send(record.key(key.as_str()))
            .map_err(|(error, _)| error)
            .unwrap();
        producer.flush(PATIENCE).unwrap();
    };
    (0..50).for_each(|n| put(n % 5, &n.to_string()));
    let group = fresh("g");
    let store: Arc<Store> = Arc::default();
    // Rolls the segment, so that the one before can be cleaned; then whatever is gone is gone.
    let begin = Instant::now();
    loop {
        put(9, "roll");
        let worker = Worker::open(options(&topic, &fresh("look")), &Arc::default()).await;
        let left = worker
            .drain()
            .await
            .into_iter()
            .filter(|value| value != "roll")
            .count();
        worker.close().await;
        if left < 50 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "the broker did not compact");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let worker = Worker::open(options(&topic, &group), &store).await;
    let values = worker.drain().await;
    assert!(values.iter().any(|value| value == "49"));
    worker.close().await;
    let again = Worker::open(options(&topic, &group), &store).await;
    assert_eq!(again.drain().await, Vec::<String>::new());
    again.close().await;
}
