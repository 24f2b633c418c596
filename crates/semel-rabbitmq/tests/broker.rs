//! The source and the sink against a real broker.

mod support;

use std::time::{Duration, Instant};

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::{AMQPValue, FieldArray, FieldTable};
use semel_core::{Class, Fault, Key, Limit, Outgoing, Received, Sink, Source};
use semel_rabbitmq::{
    Declare, LEFT_OUT, RabbitOptions, RabbitSink, RabbitSinkOptions, RabbitSource, Refusal, inspect,
};
use support::{
    Admin, LIMIT, Proxy, ack, ack_frame_of, brisk, drained, nack, numbers, open, receive, tally,
    text, texts, told_down, until, url, url_at, within,
};

fn refusal(fault: &Fault) -> &Refusal {
    fault
        .error
        .downcast_ref()
        .unwrap_or_else(|| panic!("{fault}"))
}

async fn refused(options: RabbitOptions) -> Refusal {
    let fault = within("a refusal", RabbitSource::open(options))
        .await
        .expect_err("it is refused");
    assert_eq!(fault.class, Class::Down);
    refusal(&fault).clone()
}

fn outgoing(n: u8, payload: &str) -> Outgoing {
    Outgoing {
        key: Some(Key::from_bytes([n; 16])),
        payload: Some(Bytes::copy_from_slice(payload.as_bytes())),
        headers: vec![("trace".to_owned(), Bytes::from_static(b"t"))],
        message_key: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_in_order_and_are_gone_once_acked() {
    let admin = Admin::connect().await;
    for kind in ["quorum", "classic"] {
        let queue = admin.queue("order", kind).await;
        admin.publish(&queue, numbers(0, 500)).await;
        let source = open(brisk(&url(), &queue)).await;
        let all = receive(&source, 500).await;
        assert_eq!(texts(&all), numbers(0, 500).collect::<Vec<_>>());
        let first = &all[0].message;
        assert_eq!(
            (first.position.partition.as_ref(), first.position.offset),
            (queue.as_str(), None)
        );
        assert_eq!(
            (
                first.attempt,
                all[0].mark.is_none(),
                first.message_key.is_none()
            ),
            (1, true, true)
        );
        assert_eq!(ack(&source, all).await, 0);
        source.close().await;
        assert!(matches!(source.receive(LIMIT).await, Ok(Received::End)));
        assert_eq!(
            admin.ready(&queue).await,
            0,
            "close waits until the acks have arrived"
        );
        admin.delete(&queue).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t41_only_what_is_settled_is_acked_in_whatever_order_units_commit() {
    let admin = Admin::connect().await;
    // A classic queue takes in every ack before the channel is closed, so that the rest is exact.
    let queue = admin.queue("lanes", "classic").await;
    admin.publish(&queue, numbers(0, 1_000)).await;
    let source = open(brisk(&url(), &queue)).await;
    let all = receive(&source, 1_000).await;
    // Four lanes settle at the same time; one of them never does.
    let mut lanes: Vec<Vec<_>> = (0..4).map(|_| Vec::new()).collect();
    for (index, delivery) in all.into_iter().enumerate() {
        lanes[(index / 7) % 4].push(delivery);
    }
    let unsettled = lanes.pop().unwrap();
    let mut lanes = lanes.into_iter();
    let mut next = || ack(&source, lanes.next().unwrap());
    let (a, b, c) = tokio::join!(next(), next(), next());
    assert_eq!((a, b, c), (0, 0, 0));
    assert_eq!(source.status().unsettled, unsettled.len());
    source.close().await;
    let again = open(brisk(&url(), &queue)).await;
    let rest = receive(&again, unsettled.len()).await;
    assert_eq!(tally(&rest), tally(&unsettled));
    ack(&again, rest).await;
    drained(&again).await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t40_t42_e018_an_ack_of_a_dead_channel_is_lost_and_settles_nothing_on_the_new_one() {
    let admin = Admin::connect().await;
    let queue = admin.queue("stale", "quorum").await;
    let proxy = Proxy::start(&url()).await;
    admin.publish(&queue, numbers(0, 2)).await;
    let source = open(brisk(&proxy.url, &queue)).await;
    let mut old = receive(&source, 2).await;
    let generation = source.status().generation;
    proxy.cut();
    until("the source to see it", || async {
        source.status().away.is_some() || source.status().generation > generation
    })
    .await;
    assert_eq!(ack(&source, old.pop()).await, 1, "a dead channel");
    let new = receive(&source, 2).await;
    assert_eq!(
        texts(&new),
        ["0", "1"],
        "a new channel counts its tags from 1 again"
    );
    assert!(new[0].receipt.generation() > generation);
    assert_eq!(ack(&source, old).await, 1, "tag 1 of the old channel");
    assert_eq!(source.status().unsettled, 2);
    assert_eq!(source.status().lost_acks, 2);
    assert_eq!(ack(&source, new).await, 0);
    drained(&source).await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e024_e026_a_channel_closed_by_the_broker_is_opened_again_and_nothing_is_lost() {
    let admin = Admin::connect().await;
    let queue = admin.queue("closed", "quorum").await;
    let proxy = Proxy::start(&url()).await;
    admin.publish(&queue, numbers(0, 50)).await;
    let source = open(brisk(&proxy.url, &queue)).await;
    let mut first = receive(&source, 50).await;
    let rest = first.split_off(1);
    assert_eq!(ack(&source, first).await, 0);
    proxy.inject(&ack_frame_of(1));
    let again = receive(&source, 49).await;
    assert_eq!(tally(&again), tally(&rest));
    assert!(
        again.iter().all(|delivery| delivery.message.attempt == 2),
        "the queue's count is handed on as a hint"
    );
    assert_eq!(ack(&source, rest).await, 49);
    admin.publish(&queue, ["after".to_owned()]).await;
    assert_eq!(ack(&source, again).await, 0);
    assert_eq!(texts(&receive(&source, 1).await), ["after"]);
    source.close().await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_forced_redeliveries_lose_nothing() {
    let admin = Admin::connect().await;
    let queue = admin.queue("thousand", "quorum").await;
    let proxy = Proxy::start(&url()).await;
    admin.publish(&queue, numbers(0, 250)).await;
    let source = open(brisk(&proxy.url, &queue)).await;
    for _ in 0..4 {
        let unsettled = receive(&source, 250).await;
        assert_eq!(tally(&unsettled).len(), 250);
        proxy.cut();
        let generation = unsettled[0].receipt.generation();
        until("another channel", || async {
            source.status().generation > generation
        })
        .await;
        assert_eq!(ack(&source, unsettled).await, 250);
    }
    let last = receive(&source, 250).await;
    assert_eq!(tally(&last).len(), 250);
    assert_eq!(ack(&source, last).await, 0);
    drained(&source).await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nacked_message_returns_after_its_delay_and_not_before() {
    let admin = Admin::connect().await;
    let queue = admin.queue("nack", "quorum").await;
    admin.publish(&queue, numbers(0, 3)).await;
    let source = open(brisk(&url(), &queue)).await;
    let mut all = receive(&source, 3).await;
    let begun = Instant::now();
    nack(&source, all.drain(..1), 1_200).await;
    assert_eq!(ack(&source, all).await, 0);
    let again = receive(&source, 1).await;
    assert!(begun.elapsed() >= Duration::from_millis(1_200));
    assert_eq!((text(&again[0]), again[0].message.attempt), ("0", 2));
    ack(&source, again).await;
    drained(&source).await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t45_messages_given_back_at_the_end_are_not_delivered_to_ourselves_again() {
    let admin = Admin::connect().await;
    let queue = admin.queue("limit", "quorum").await;
    admin.publish(&queue, numbers(0, 100)).await;
    let source = open(brisk(&url(), &queue)).await;
    nack(&source, receive(&source, 100).await, 0).await;
    source.close().await;
    let again = open(brisk(&url(), &queue)).await;
    let all = receive(&again, 100).await;
    assert_eq!(
        all.iter().map(|delivery| delivery.message.attempt).max(),
        Some(2),
        "counted once"
    );
    ack(&again, all).await;
    drained(&again).await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t48_e034_a_half_open_connection_is_noticed_told_and_replaced() {
    let admin = Admin::connect().await;
    let queue = admin.queue("half-open", "quorum").await;
    let proxy = Proxy::start(&url()).await;
    // The broker has to notice too: until then it delivers to the dead connection.
    let options = RabbitOptions {
        heartbeat_s: 1,
        ..brisk(&proxy.url, &queue)
    };
    let source = open(options).await;
    drained(&source).await;
    proxy.door(false);
    proxy.freeze();
    assert_eq!(told_down(&source).await.class, Class::Down);
    assert!(source.status().away.is_some());
    proxy.door(true);
    admin.publish(&queue, ["alive".to_owned()]).await;
    let all = receive(&source, 1).await;
    assert_eq!(ack(&source, all).await, 0);
    drained(&source).await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_into_a_half_open_connection_come_back_and_their_messages_too() {
    let admin = Admin::connect().await;
    let queue = admin.queue("half-acks", "classic").await;
    let proxy = Proxy::start(&url()).await;
    admin.publish(&queue, numbers(0, 10)).await;
    let source = open(RabbitOptions {
        heartbeat_s: 1,
        ..brisk(&proxy.url, &queue)
    })
    .await;
    let all = receive(&source, 10).await;
    proxy.freeze();
    // They fit into the socket, so nobody can know that they are lost.
    ack(&source, all).await;
    let again = receive(&source, 10).await;
    assert_eq!(
        tally(&again).len(),
        10,
        "the broker has given the connection up after two heartbeats"
    );
    assert_eq!(ack(&source, again).await, 0);
    drained(&source).await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_cancelled_by_the_deletion_of_its_queue_comes_back_with_the_queue() {
    let admin = Admin::connect().await;
    let queue = admin.queue("deleted", "classic").await;
    let source = open(brisk(&url(), &queue)).await;
    drained(&source).await;
    admin.delete(&queue).await;
    let fault = told_down(&source).await;
    assert_eq!(fault.class, Class::Down);
    assert!(
        matches!(refusal(&fault), Refusal::NoQueue { .. }),
        "{fault}"
    );
    admin.declare(&queue, "classic", &[]).await;
    admin.publish(&queue, ["back".to_owned()]).await;
    assert_eq!(texts(&receive(&source, 1).await), ["back"]);
    source.close().await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t49_e035_what_is_wrong_at_the_start_is_told_by_name() {
    let good = brisk(&url(), "semel-test-no-such-queue");
    let (head, _) = url()
        .rsplit_once('/')
        .map(|(head, vhost)| (head.to_owned(), vhost.to_owned()))
        .unwrap();
    let wrong_vhost = RabbitOptions {
        url: format!("{head}/does-not-exist"),
        ..good.clone()
    };
    let refusal = refused(wrong_vhost).await;
    assert!(
        refusal.to_string().contains("`does-not-exist`"),
        "{refusal}"
    );
    let wrong_password = RabbitOptions {
        url: url().replacen(":semel@", ":wrong-secret@", 1),
        ..good.clone()
    };
    let refusal = refused(wrong_password).await;
    assert!(matches!(refusal, Refusal::Credentials { .. }), "{refusal}");
    assert!(!refusal.to_string().contains("wrong-secret"));
    let refusal = refused(good.clone()).await;
    assert!(matches!(refusal, Refusal::NoQueue { .. }), "{refusal}");
    assert!(
        refusal.to_string().contains("semel-test-no-such-queue"),
        "{refusal}"
    );
    let fault = within("a look", inspect(&good))
        .await
        .expect_err("no queue");
    assert!(
        matches!(fault.error.downcast_ref(), Some(Refusal::NoQueue { .. })),
        "{fault}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn t49_a_broker_that_is_away_or_silent_is_told_within_the_time_out() {
    let unused = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = unused.local_addr().unwrap().port();
    // It takes connections in and never says a word.
    let silent = RabbitOptions {
        connect_timeout_ms: 500,
        ..brisk(&url_at(&url(), port), "q")
    };
    let refusal = refused(silent.clone()).await;
    assert!(refusal.to_string().contains("500 ms"), "{refusal}");
    drop(unused);
    let refusal = refused(silent).await;
    assert!(matches!(refusal, Refusal::Unreachable { .. }), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_declared_when_told_so_and_another_one_of_its_name_is_refused() {
    let admin = Admin::connect().await;
    let queue = Admin::name("declared");
    let quorum = RabbitOptions {
        declare: Declare::Quorum,
        ..brisk(&url(), &queue)
    };
    let look = || within("a look", inspect(&quorum));
    let depth = look().await.unwrap();
    assert_eq!((depth.ready, depth.consumers), (0, 0), "a start makes it");
    open(quorum.clone()).await.close().await;
    open(quorum.clone()).await.close().await;
    let depth = look().await.unwrap();
    assert_eq!((depth.ready, depth.consumers), (0, 0));
    let refusal = refused(RabbitOptions {
        declare: Declare::Classic,
        ..quorum
    })
    .await;
    assert!(matches!(refusal, Refusal::OtherQueue { .. }), "{refusal}");
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_is_answered_once_each_time_and_not_while_deliveries_are_out() {
    let admin = Admin::connect().await;
    let queue = admin.queue("drained", "quorum").await;
    admin.publish(&queue, numbers(0, 1)).await;
    let source = open(brisk(&url(), &queue)).await;
    let out = receive(&source, 1).await;
    let longer_than_idle = Duration::from_millis(1_500);
    let waiting = tokio::time::timeout(longer_than_idle, source.receive(LIMIT)).await;
    assert!(waiting.is_err(), "a delivery is out: {waiting:?}");
    ack(&source, out).await;
    drained(&source).await;
    let waiting = tokio::time::timeout(longer_than_idle, source.receive(LIMIT)).await;
    assert!(waiting.is_err(), "it was told: {waiting:?}");
    admin.publish(&queue, numbers(1, 2)).await;
    let out = receive(&source, 1).await;
    ack(&source, out).await;
    drained(&source).await;
    source.close().await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_receive_loses_nothing_and_limits_are_kept() {
    let admin = Admin::connect().await;
    let queue = admin.queue("cancel", "quorum").await;
    admin.publish(&queue, numbers(0, 300)).await;
    let source = open(brisk(&url(), &queue)).await;
    let mut all = Vec::new();
    within("all of them", async {
        while all.len() < 300 {
            let received = tokio::select! {
                biased;
                received = source.receive(Limit { count: 7, bytes: 1_000 }) => received.unwrap(),
                () = std::future::ready(()) => { tokio::task::yield_now().await; continue },
            };
            let Received::Batch(batch) = received else {
                continue;
            };
            let bytes: usize = batch.iter().map(|delivery| delivery.message.size()).sum();
            assert!(batch.len() <= 7 && (bytes <= 1_000 || batch.len() == 1));
            all.extend(batch);
        }
    })
    .await;
    assert_eq!(texts(&all), numbers(0, 300).collect::<Vec<_>>());
    source.close().await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_the_prefetch_is_unsettled_and_too_many_bytes_shrink_it() {
    let admin = Admin::connect().await;
    let queue = admin.queue("bytes", "classic").await;
    let large = "x".repeat(32 << 10);
    admin.publish(&queue, (0..200).map(|_| large.clone())).await;
    let options = RabbitOptions {
        prefetch: 100,
        prefetch_bytes_max: 640 << 10,
        ..brisk(&url(), &queue)
    };
    let source = open(options).await;
    let mut count = 0;
    let mut first = receive(&source, 100).await;
    until("the consumer to stop", || async {
        source
            .status()
            .depth
            .is_some_and(|depth| depth.consumers == 0)
    })
    .await;
    assert_eq!(admin.ready(&queue).await, 100, "the prefetch holds");
    while count < 200 {
        count += first.len();
        assert_eq!(ack(&source, first).await, 0);
        first = if count < 200 {
            receive(&source, 1).await
        } else {
            Vec::new()
        };
        assert!(
            count <= 100 || source.status().unsettled <= 25,
            "{}",
            source.status().unsettled
        );
    }
    drained(&source).await;
    // Small ones let it grow back, and never beyond what was asked for.
    admin.publish(&queue, numbers(0, 2_000)).await;
    let mut small = 0;
    let mut most = 0;
    while small < 2_000 {
        let batch = receive(&source, 1).await;
        small += batch.len();
        most = most.max(source.status().unsettled);
        assert_eq!(ack(&source, batch).await, 0);
    }
    assert!(most > 50 && most <= 100, "{most}");
    drained(&source).await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_waits_for_bytes_goes_on_when_all_are_given_back() {
    let admin = Admin::connect().await;
    let queue = admin.queue("bytes-back", "classic").await;
    let large = "x".repeat(32 << 10);
    admin.publish(&queue, (0..40).map(|_| large.clone())).await;
    let source = open(RabbitOptions {
        prefetch: 40,
        prefetch_bytes_max: 320 << 10,
        ..brisk(&url(), &queue)
    })
    .await;
    let held = receive(&source, 40).await;
    until("the consumer to stop", || async {
        source
            .status()
            .depth
            .is_some_and(|depth| depth.consumers == 0)
    })
    .await;
    nack(&source, held, 0).await;
    assert_eq!(receive(&source, 1).await.len(), 1, "they come again");
    source.close().await;
    admin.delete(&queue).await;
}

/// Runs the broker's own tool.
fn ctl(args: &[&str]) {
    let services = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services");
    let done = std::process::Command::new(services)
        .args(["tool", "rabbitmqctl", "-q"])
        .args(args)
        .status()
        .expect("scripts/services runs");
    assert!(done.success(), "{args:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_a_queue_tells_that_rights_to_consume_are_missing() {
    let admin = Admin::connect().await;
    let queue = admin.queue("rights", "quorum").await;
    admin.publish(&queue, numbers(0, 3)).await;
    let user = queue.as_str();
    ctl(&["add_user", user, "poor"]);
    ctl(&["set_permissions", user, "", "", ""]);
    let (scheme, rest) = url()
        .split_once("://")
        .map(|(s, r)| (s.to_owned(), r.to_owned()))
        .unwrap();
    let (_, place) = rest.rsplit_once('@').unwrap();
    let options = RabbitOptions {
        declare: Declare::Passive,
        ..brisk(&format!("{scheme}://{user}:poor@{place}"), &queue)
    };
    let refused = semel_rabbitmq::inspect(&options)
        .await
        .unwrap_err()
        .detail();
    assert!(
        refused.contains("rights") && refused.contains(&queue),
        "{refused}"
    );
    ctl(&["set_permissions", user, "", "", ".*"]);
    let depth = semel_rabbitmq::inspect(&options).await.unwrap();
    assert_eq!(
        (depth.ready, depth.consumers),
        (3, 0),
        "nothing is consumed"
    );
    ctl(&["delete_user", user]);
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_limit_comes_cut_between_two_good_ones() {
    let admin = Admin::connect().await;
    let queue = admin.queue("large", "quorum").await;
    admin
        .publish(
            &queue,
            ["before".to_owned(), "y".repeat(300_000), "after".to_owned()],
        )
        .await;
    let source = open(RabbitOptions {
        message_bytes_max: 100_000,
        ..brisk(&url(), &queue)
    })
    .await;
    let all = receive(&source, 3).await;
    let sizes: Vec<_> = all
        .iter()
        .map(|delivery| {
            (
                delivery.message.bytes().len(),
                delivery.message.cut.map(|cut| cut.size),
            )
        })
        .collect();
    assert_eq!(sizes, [(6, None), (64 << 10, Some(300_000)), (5, None)]);
    ack(&source, all).await;
    drained(&source).await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e036_headers_are_advisory_whatever_they_say() {
    let admin = Admin::connect().await;
    let queue = admin.queue("headers", "classic").await;
    let odd = [
        AMQPValue::FieldArray(FieldArray::from(vec![
            AMQPValue::FieldTable(
                FieldTable::default()
            );
            10_000
        ])),
        AMQPValue::LongString("7".into()),
        AMQPValue::LongLongInt(-1),
    ];
    for value in odd {
        let mut table = FieldTable::default();
        table.insert("x-death".into(), value.clone());
        table.insert("x-delivery-count".into(), AMQPValue::LongLongInt(-1));
        table.insert("idempotency-key".into(), AMQPValue::LongString("k".into()));
        let properties = BasicProperties::default()
            .with_headers(table)
            .with_timestamp(1_700_000_000);
        admin.publish_one(&queue, b"{}", properties).await;
    }
    let source = open(RabbitOptions {
        header_bytes_max: 8_000,
        ..brisk(&url(), &queue)
    })
    .await;
    let all = receive(&source, 3).await;
    for delivery in &all {
        let message = &delivery.message;
        assert_eq!(
            message.header("idempotency-key").map(Bytes::as_ref),
            Some(b"k".as_slice())
        );
        assert_eq!(
            (message.attempt, message.timestamp_ms),
            (1, Some(1_700_000_000_000))
        );
    }
    let x_death: Vec<_> = all
        .iter()
        .map(|delivery| delivery.message.header("x-death").cloned())
        .collect();
    assert_eq!(
        x_death,
        [
            None,
            Some(Bytes::from_static(b"7")),
            Some(Bytes::from_static(b"-1"))
        ]
    );
    assert_eq!(
        all[0].message.header(LEFT_OUT).map(Bytes::as_ref),
        Some(b"x-death".as_slice())
    );
    ack(&source, all).await;
    drained(&source).await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_sink_publishes_the_source_reads() {
    let admin = Admin::connect().await;
    let queue = admin.queue("sink", "quorum").await;
    let sink = RabbitSink::open(RabbitSinkOptions::to_queue(url(), &queue))
        .await
        .unwrap();
    let mut messages: Vec<_> = (0..=200).map(|n| outgoing(n, &n.to_string())).collect();
    messages.push(Outgoing {
        key: None,
        payload: None,
        headers: Vec::new(),
        message_key: None,
    });
    messages.push(Outgoing {
        payload: Some(Bytes::new()),
        ..outgoing(9, "")
    });
    within("confirms", sink.publish(&messages)).await.unwrap();
    assert_eq!(
        admin.ready(&queue).await,
        203,
        "confirmed is routed and kept"
    );
    let source = open(brisk(&url(), &queue)).await;
    let all = receive(&source, 203).await;
    assert_eq!(texts(&all[..201]), numbers(0, 201).collect::<Vec<_>>());
    let first = &all[7].message;
    let key = Key::from_bytes([7; 16]).to_string();
    assert_eq!(
        first.header("idempotency-key").map(Bytes::as_ref),
        Some(key.as_bytes())
    );
    assert_eq!(
        first.header("message-id").map(Bytes::as_ref),
        Some(key.as_bytes())
    );
    assert_eq!(
        first.header("trace").map(Bytes::as_ref),
        Some(b"t".as_slice())
    );
    assert_eq!(all[201].message.payload, None, "null is not empty");
    assert_eq!(all[202].message.payload, Some(Bytes::new()));
    assert_eq!(all[201].message.header("idempotency-key"), None);
    source.close().await;
    sink.close().await;
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t47_e033_a_returned_message_was_not_sent_although_it_was_confirmed() {
    let admin = Admin::connect().await;
    let queue = admin.queue("returned", "quorum").await;
    let exchange = Admin::name("exchange");
    let passing = ExchangeDeclareOptions {
        auto_delete: true,
        ..ExchangeDeclareOptions::default()
    };
    admin
        .channel
        .exchange_declare(
            exchange.as_str().into(),
            lapin::ExchangeKind::Direct,
            passing,
            FieldTable::default(),
        )
        .await
        .unwrap();
    let bind = |key: &'static str| {
        admin.channel.queue_bind(
            queue.as_str().into(),
            exchange.as_str().into(),
            key.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
    };
    bind("good").await.unwrap();
    let sink = RabbitSink::open(RabbitSinkOptions::to_exchange(url(), &exchange))
        .await
        .unwrap();
    let keyed = |n: u8, key: &'static str| Outgoing {
        message_key: Some(Bytes::from_static(key.as_bytes())),
        ..outgoing(n, "m")
    };
    let batch: Vec<_> = (0..50)
        .map(|n| keyed(n, if n == 33 { "bad" } else { "good" }))
        .collect();
    let fault = within("an answer", sink.publish(&batch))
        .await
        .expect_err("one of them went nowhere");
    assert_eq!(fault.class, Class::Down, "a binding can still be made");
    assert!(
        fault.to_string().contains("message 33 was returned")
            && fault.to_string().contains("`bad`"),
        "{fault}"
    );
    bind("bad").await.unwrap();
    within("confirms", sink.publish(&batch[33..34]))
        .await
        .unwrap();
    assert_eq!(admin.ready(&queue).await, 50);
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e052_what_can_never_be_published_is_poison_and_nothing_of_its_batch_is_sent() {
    let admin = Admin::connect().await;
    let queue = admin.queue("poison", "quorum").await;
    let options = RabbitSinkOptions {
        message_bytes_max: 10,
        ..RabbitSinkOptions::to_queue(url(), &queue)
    };
    let sink = RabbitSink::open(options).await.unwrap();
    let long_name = Outgoing {
        headers: vec![("n".repeat(300), Bytes::new())],
        ..outgoing(2, "b")
    };
    for bad in [outgoing(2, "01234567890"), long_name] {
        let fault = within("an answer", sink.publish(&[outgoing(1, "a"), bad]))
            .await
            .expect_err("poison");
        assert_eq!(fault.class, Class::Poison);
        assert!(fault.to_string().contains("message 1"), "{fault}");
    }
    assert_eq!(admin.ready(&queue).await, 0);
    within("confirms", sink.publish(&[outgoing(3, "0123456789")]))
        .await
        .unwrap();
    assert_eq!(admin.ready(&queue).await, 1);
    admin.delete(&queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_and_a_missing_exchange_are_told_and_the_sink_works_again_after_them() {
    let admin = Admin::connect().await;
    let full = [
        ("x-max-length", AMQPValue::LongInt(1)),
        ("x-overflow", AMQPValue::LongString("reject-publish".into())),
    ];
    let queue = admin.queue_with("full", "classic", &full).await;
    let sink = RabbitSink::open(RabbitSinkOptions::to_queue(url(), &queue))
        .await
        .unwrap();
    let mut refused = None;
    for n in 0..20 {
        if let Err(fault) = within("an answer", sink.publish(&[outgoing(n, "m")])).await {
            refused = Some(fault);
            break;
        }
    }
    let fault = refused.expect("the queue is full");
    assert_eq!(fault.class, Class::Down);
    let source = open(brisk(&url(), &queue)).await;
    let kept = receive(&source, 1).await;
    ack(&source, kept).await;
    drained(&source).await;
    within("confirms", sink.publish(&[outgoing(99, "m")]))
        .await
        .unwrap();
    source.close().await;
    admin.delete(&queue).await;
    let nowhere = RabbitSink::open(RabbitSinkOptions::to_exchange(
        url(),
        "semel-test-no-exchange",
    ))
    .await
    .unwrap();
    let fault = within("an answer", nowhere.publish(&[outgoing(1, "m")]))
        .await
        .expect_err("no exchange");
    assert!(
        matches!(refusal(&fault), Refusal::NoExchange { .. }),
        "{fault}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_whose_connection_was_cut_or_frozen_says_so_and_works_again() {
    let admin = Admin::connect().await;
    let queue = admin.queue("sink-cut", "quorum").await;
    let proxy = Proxy::start(&url()).await;
    let options = RabbitSinkOptions {
        confirm_timeout_ms: 1_000,
        ..RabbitSinkOptions::to_queue(&proxy.url, &queue)
    };
    let sink = RabbitSink::open(options).await.unwrap();
    within("confirms", sink.publish(&[outgoing(1, "1")]))
        .await
        .unwrap();
    proxy.freeze();
    let fault = within("an answer", sink.publish(&[outgoing(2, "2")]))
        .await
        .expect_err("silence is no confirm");
    assert_eq!(fault.class, Class::Down);
    within("confirms", sink.publish(&[outgoing(2, "2")]))
        .await
        .unwrap();
    proxy.cut();
    until("a confirm again", || async {
        sink.publish(&[outgoing(3, "3")]).await.is_ok()
    })
    .await;
    let source = open(brisk(&url(), &queue)).await;
    let all = receive(&source, 3).await;
    assert_eq!(tally(&all).keys().collect::<Vec<_>>(), ["1", "2", "3"]);
    source.close().await;
    admin.delete(&queue).await;
}
