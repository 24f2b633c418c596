//! A broker that goes away and comes back, played by the client library's own mock of a cluster.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use semel_core::source::Received;
use semel_core::{Class, Source};
use semel_kafka::{KafkaOptions, StartAt};

use crate::bed::*;
use crate::proxy::Proxy;

fn options(brokers: &str, topic: &str) -> KafkaOptions {
    let mut options = KafkaOptions::new(brokers.split(','), [topic], "g", StartAt::Earliest);
    options.commit_interval_ms = 50;
    options.session_timeout_ms = 6_000;
    options.timeout_ms = 3_000;
    options
}

fn put(brokers: &str, topic: &str, values: &[String]) {
    let producer: BaseProducer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .create()
        .unwrap();
    for value in values {
        let record: BaseRecord<'_, [u8], [u8]> =
            BaseRecord::to(topic).partition(0).payload(value.as_bytes());
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_goes_away_is_told_and_comes_back_without_our_doing() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    put(&brokers, "t", &numbers(0..5));
    let worker = Worker::open(options(&brokers, "t"), &Arc::default()).await;
    assert_eq!(worker.drain().await, numbers(0..5));

    cluster.broker_down(1).unwrap();
    let fault = worker.receive(ALL).await.unwrap_err();
    assert!(
        fault.class == Class::Down && fault.detail().contains("the broker is away"),
        "{fault}"
    );
    cluster.broker_up(1).unwrap();
    // Healed before anything comes: a quiet topic does not look lost for ever.
    soon("the word that the broker is back", async {
        while let Ok(Err(_)) =
            tokio::time::timeout(Duration::from_millis(200), worker.source.receive(ALL)).await
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    put(&brokers, "t", &numbers(5..8));
    let mut values = Vec::new();
    while values.len() < 3 {
        match worker.receive(ALL).await {
            Ok(Received::Batch(batch)) => {
                values.extend(batch.iter().map(value));
                worker.commit(batch).await;
            }
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    assert_eq!(values, numbers(5..8));
    worker.close().await;
}

/// What is settled while the broker is away ends a run that waits for the end, as soon as the broker is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_all_is_drained_is_said_behind_an_outage_too() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    put(&brokers, "t", &numbers(0..5));
    let worker = Worker::open(options(&brokers, "t"), &Arc::default()).await;
    let taken = worker.take(5).await;
    cluster.broker_down(1).unwrap();
    until("the outage is told", || worker.source.trouble().is_some()).await;
    worker.commit(taken).await;
    let fault = worker.receive(ALL).await.unwrap_err();
    assert_eq!(fault.class, Class::Down, "{fault}");
    cluster.broker_up(1).unwrap();
    let drained = async {
        while !matches!(worker.receive(ALL).await, Ok(Received::Drained)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("the word that all is drained", drained).await;
    worker.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e041_commits_that_fail_stop_no_fetching_and_are_made_good() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    let worker = Worker::open(options(&brokers, "t"), &Arc::default()).await;
    put(&brokers, "t", &numbers(0..1));
    let taken = worker.take(1).await;
    let failures = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS; 20];
    cluster.request_errors(RDKafkaApiKey::OffsetCommit, &failures);
    worker.commit(taken).await;
    for n in 1..10 {
        put(&brokers, "t", &numbers(n..n + 1));
        let taken = worker.take(1).await;
        assert_eq!(value(&taken[0]), n.to_string());
        worker.commit(taken).await;
    }
    cluster.clear_request_errors(RDKafkaApiKey::OffsetCommit);
    let told = || {
        let client: rdkafka::consumer::BaseConsumer = rdkafka::ClientConfig::new()
            .set("bootstrap.servers", &brokers)
            .set("group.id", "g")
            .create()
            .unwrap();
        let mut list = rdkafka::TopicPartitionList::new();
        list.add_partition("t", 0);
        let list = rdkafka::consumer::Consumer::committed_offsets(&client, list, PATIENCE).unwrap();
        list.elements()[0].offset() == rdkafka::Offset::Offset(10)
    };
    until("the last position is told", told).await;
    worker.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t48_half_open_connections_are_noticed_and_replaced_and_nothing_is_lost() {
    let proxy = Proxy::to(&brokers()).await;
    let topic = topic("half-open", 1).await;
    let group = fresh("g");
    let options = KafkaOptions {
        brokers: vec![proxy.address.clone()],
        timeout_ms: 3_000,
        ..crate::bed::options(&topic, &group)
    };
    let worker = Worker::open(options, &Arc::default()).await;
    produce(&topic, 0, numbers(0..5));
    let taken = worker.take(5).await;
    proxy.freeze();
    // Committed in the ledger, and the broker cannot be told any more.
    worker.commit(taken).await;
    produce(&topic, 0, numbers(5..10));
    let mut values = Vec::new();
    while values.last() != Some(&"9".to_owned()) {
        match worker.receive(ALL).await {
            Ok(Received::Batch(batch)) => {
                values.extend(batch.iter().map(value));
                worker.commit(batch).await;
            }
            Ok(_) => {}
            Err(fault) => {
                assert_eq!(fault.class, Class::Down, "{fault}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    // What came before it may come again, by a group that lost its member.
    assert_eq!(values[values.len() - 5..], numbers(5..10));
    until("the group knows the end", || {
        committed(&group, &topic, 0) == Some(10)
    })
    .await;
    worker.close().await;
}
