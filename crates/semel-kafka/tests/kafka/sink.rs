//! Publishing.

use std::sync::Arc;

use bytes::Bytes;
use rdkafka::admin::{AdminOptions, AlterConfig, ResourceSpecifier};
use semel_core::sink::IDEMPOTENCY_KEY;
use semel_core::{Class, Key, Outgoing, Part, Sink};
use semel_kafka::{KafkaSink, KafkaSinkOptions};

use crate::bed::*;

fn outgoing(n: usize) -> Outgoing {
    Outgoing {
        key: Some(Key::derive(&[Part::Text(&n.to_string())]).unwrap()),
        payload: Some(Bytes::from(n.to_string())),
        headers: vec![("trace".to_owned(), Bytes::from_static(b"\x01"))],
        message_key: Some(Bytes::from_static(b"account")),
    }
}

#[tokio::test]
async fn what_is_published_is_there_in_order_with_its_key() {
    let topic = topic("sink", 3).await;
    let sink = KafkaSink::open(KafkaSinkOptions::new([brokers()], &topic))
        .await
        .unwrap();
    let mut messages: Vec<_> = (0..1_000).map(outgoing).collect();
    messages.push(Outgoing {
        key: None,
        payload: None,
        headers: Vec::new(),
        message_key: Some(Bytes::from_static(b"account")),
    });
    sink.publish(&messages).await.unwrap();

    let worker = Worker::open(options(&topic, &fresh("g")), &Arc::default()).await;
    let taken = worker.take(1_001).await;
    let partition = &taken[0].message.position.partition;
    assert!(
        taken
            .iter()
            .all(|d| d.message.position.partition == *partition),
        "one message key, one partition"
    );
    for (sent, got) in messages.iter().zip(&taken) {
        let got = &got.message;
        assert_eq!(got.payload, sent.payload);
        let key = sent.key.map(|key| Bytes::from(key.to_string()));
        assert_eq!(got.header(IDEMPOTENCY_KEY), key.as_ref());
        assert_eq!(got.header("trace").is_some(), sent.key.is_some());
    }
    worker.close().await;
}

#[tokio::test]
async fn e052_a_message_that_is_too_large_is_named_and_never_retried() {
    let topic = fresh("small");
    make(&topic, 1, &[("max.message.bytes", "10000")]).await;
    let sink = KafkaSink::open(KafkaSinkOptions::new([brokers()], &topic))
        .await
        .unwrap();
    for size in [20_000, 2 << 20] {
        let mut messages: Vec<_> = (0..3).map(outgoing).collect();
        messages[1].payload = Some(Bytes::from(vec![b'x'; size]));
        let fault = sink.publish(&messages).await.unwrap_err();
        assert_eq!(fault.class, Class::Poison, "{fault}");
        assert!(fault.detail().contains("index 1"), "{fault}");
    }
    // Together far above the topic's limit, which is one on batches; each far below.
    sink.publish(&(0..1_000).map(outgoing).collect::<Vec<_>>())
        .await
        .unwrap();
    // Made smaller behind our back: only the broker can tell, and refuses a whole batch for one message.
    let setting =
        AlterConfig::new(ResourceSpecifier::Topic(&topic)).set("max.message.bytes", "2000");
    admin()
        .alter_configs([&setting], &AdminOptions::new())
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    let mut messages: Vec<_> = (0..3).map(outgoing).collect();
    messages[1].payload = Some(Bytes::from(vec![b'x'; 4_000]));
    let fault = sink.publish(&messages).await.unwrap_err();
    assert!(
        fault.class == Class::Poison && fault.detail().contains("index 1"),
        "{fault}"
    );
}

#[tokio::test]
async fn a_header_name_that_cannot_be_sent_is_named_and_breaks_nothing() {
    let topic = topic("nul", 1).await;
    let sink = KafkaSink::open(KafkaSinkOptions::new([brokers()], &topic))
        .await
        .unwrap();
    let mut message = outgoing(0);
    message.headers[0].0 = "a\0b".to_owned();
    let fault = sink.publish(&[outgoing(1), message]).await.unwrap_err();
    assert!(
        fault.class == Class::Poison && fault.detail().contains("index 1"),
        "{fault}"
    );
    sink.publish(&[outgoing(2)]).await.unwrap();
}

#[tokio::test]
async fn a_sink_for_a_topic_that_is_not_there_is_refused_at_its_start() {
    let missing = fresh("missing");
    let fault = KafkaSink::open(KafkaSinkOptions::new([brokers()], &missing))
        .await
        .unwrap_err();
    assert!(
        fault.class == Class::Stop && fault.detail().contains(&missing),
        "{fault}"
    );
}

#[tokio::test]
async fn a_compacted_topic_needs_message_keys_and_says_so() {
    let topic = fresh("keyed");
    make(&topic, 1, &[("cleanup.policy", "compact")]).await;
    let sink = KafkaSink::open(KafkaSinkOptions::new([brokers()], &topic))
        .await
        .unwrap();
    let mut message = outgoing(1);
    message.message_key = None;
    let fault = sink.publish(&[message]).await.unwrap_err();
    assert!(
        fault.class == Class::Poison && fault.detail().contains("message key"),
        "{fault}"
    );
}
