//! Where a partition starts, and when it must not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rdkafka::admin::AdminOptions;
use rdkafka::producer::{BaseRecord, Producer};
use semel_core::Class;
use semel_core::source::{NoPositions, Received};
use semel_kafka::{Assignor, KafkaOptions, KafkaSource, StartAt, inspect, retention_ms, rewind};

use crate::bed::*;

async fn values(options: KafkaOptions, store: &Arc<Store>) -> Vec<String> {
    let worker = Worker::open(options, store).await;
    let values = worker.drain().await;
    worker.close().await;
    values
}

#[tokio::test]
async fn e045_a_new_group_reads_what_was_there_before_when_told_so() {
    let topic = topic("earliest", 1).await;
    produce(&topic, 0, numbers(0..100));
    assert_eq!(
        values(options(&topic, &fresh("g")), &Arc::default()).await,
        numbers(0..100)
    );
}

#[tokio::test]
async fn latest_begins_behind_the_last_record_and_a_restart_skips_nothing_that_came_since() {
    let topic = topic("latest", 1).await;
    produce(&topic, 0, numbers(0..10));
    let latest = KafkaOptions {
        start_at: StartAt::Latest,
        ..options(&topic, &fresh("g"))
    };
    let store: Arc<Store> = Arc::default();
    assert_eq!(values(latest.clone(), &store).await, Vec::<String>::new());
    // The first start handled nothing, so the ledger knows nothing; what comes now is not skipped.
    produce(&topic, 0, numbers(10..20));
    assert_eq!(values(latest, &store).await, numbers(10..20));
}

#[tokio::test]
async fn a_time_and_the_groups_own_offset_can_be_starts() {
    let topic = topic_for_ever("time").await;
    let producer = producer();
    for n in 0..10_i64 {
        let text = n.to_string();
        let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topic)
            .payload(text.as_bytes())
            .timestamp(1_000 + n);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
    let at = |ms| KafkaOptions {
        start_at: StartAt::Timestamp(ms),
        ..options(&topic, &fresh("g"))
    };
    assert_eq!(values(at(1_007), &Arc::default()).await, numbers(7..10));
    assert_eq!(
        values(at(5_000), &Arc::default()).await,
        Vec::<String>::new()
    );

    let group = fresh("g");
    let own = KafkaOptions {
        start_at: StartAt::Committed,
        ..options(&topic, &group)
    };
    let worker = Worker::open(own.clone(), &Arc::default()).await;
    let fault = worker.stopped().await;
    assert!(
        fault.detail().contains("the group has no offset"),
        "{fault}"
    );
    worker.close().await;
    rewind(&own, &[(format!("{topic}/0"), 4)]).await.unwrap();
    assert_eq!(values(own, &Arc::default()).await, numbers(4..10));
}

#[tokio::test]
async fn t55_when_the_groups_offsets_are_lost_the_ledgers_position_stands_in() {
    let topic = topic("expired", 1).await;
    produce(&topic, 0, numbers(0..10));
    let (group, store) = (fresh("g"), Arc::default());
    assert_eq!(values(options(&topic, &group), &store).await.len(), 10);
    admin()
        .delete_groups(&[&group], &AdminOptions::new())
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    assert_eq!(committed(&group, &topic, 0), None);
    produce(&topic, 0, numbers(10..12));
    for start_at in [StartAt::Latest, StartAt::Earliest] {
        assert_eq!(
            values(
                KafkaOptions {
                    start_at,
                    ..options(&topic, &group)
                },
                &store
            )
            .await
            .len(),
            if start_at == StartAt::Latest { 2 } else { 0 }
        );
    }
}

#[tokio::test]
async fn a_database_restored_to_an_earlier_state_is_seen_explained_and_repaired() {
    let topic = topic("restored", 1).await;
    produce(&topic, 0, numbers(0..10));
    let (group, store) = (fresh("g"), Arc::<Store>::default());
    let worker = Worker::open(options(&topic, &group), &store).await;
    let taken = worker.take(4).await;
    worker.commit(taken).await;
    let backup = store.reached.lock().unwrap().clone();
    worker.drain().await;
    worker.close().await;
    *store.reached.lock().unwrap() = backup;

    let worker = Worker::open(options(&topic, &group), &store).await;
    let fault = worker.stopped().await.detail();
    for part in [
        &format!("{topic}/0"),
        "10",
        "4",
        "semel doctor",
        "semel rewind",
    ] {
        assert!(fault.contains(part), "{fault}");
    }
    let busy = rewind(&options(&topic, &group), &[(format!("{topic}/0"), 4)])
        .await
        .unwrap_err();
    assert!(
        busy.class == Class::Stop && busy.detail().contains("stop every instance"),
        "{busy}"
    );
    worker.close().await;

    let report = inspect(&options(&topic, &group), store.clone())
        .await
        .unwrap()
        .remove(0);
    assert_eq!(
        (report.committed, report.ledger, report.high),
        (Some(10), Some(4), 10)
    );
    assert!(report.start.unwrap_err().contains("lost commits"));

    rewind(&options(&topic, &group), &[(format!("{topic}/0"), 4)])
        .await
        .unwrap();
    assert_eq!(
        inspect(&options(&topic, &group), store.clone())
            .await
            .unwrap()[0]
            .start,
        Ok(4)
    );
    assert_eq!(
        values(options(&topic, &group), &store).await,
        numbers(4..10)
    );
}

#[tokio::test]
async fn a_database_restored_to_before_its_first_position_skips_nothing() {
    let topic = topic("forgotten", 1).await;
    let latest = KafkaOptions {
        start_at: StartAt::Latest,
        ..options(&topic, &fresh("g"))
    };
    let committed = KafkaOptions {
        start_at: StartAt::Committed,
        ..latest.clone()
    };
    let store = Arc::<Store>::default();
    assert_eq!(values(latest.clone(), &store).await, Vec::<String>::new());
    produce(&topic, 0, numbers(0..10));
    assert_eq!(values(latest.clone(), &store).await, numbers(0..10));
    store.reached.lock().unwrap().clear();
    for own in [&latest, &committed] {
        let worker = Worker::open(own.clone(), &store).await;
        let fault = worker.stopped().await.detail();
        worker.close().await;
        for part in [&format!("{topic}/0"), "offset 10", "no position", "--to"] {
            assert!(fault.contains(part), "{fault}");
        }
        assert!(inspect(own, store.clone()).await.unwrap()[0].forgotten);
    }
    rewind(&latest, &[(format!("{topic}/0"), 2)]).await.unwrap();
    assert!(!inspect(&latest, store.clone()).await.unwrap()[0].forgotten);
    assert_eq!(values(latest.clone(), &store).await, numbers(2..10));
    // One that begins where it first began reads all of it again.
    store.reached.lock().unwrap().clear();
    let earliest = KafkaOptions {
        start_at: StartAt::Earliest,
        ..latest
    };
    assert_eq!(values(earliest, &store).await, numbers(0..10));
}

#[tokio::test]
async fn a_ledger_that_keeps_no_positions_goes_on_at_the_groups_offset() {
    let topic = topic("unkept", 1).await;
    let own = KafkaOptions {
        start_at: StartAt::Committed,
        ..options(&topic, &fresh("g"))
    };
    rewind(&own, &[(format!("{topic}/0"), 0)]).await.unwrap();
    for round in 0..2 {
        produce(&topic, 0, numbers(round * 5..round * 5 + 5));
        let source = KafkaSource::open(own.clone(), Arc::new(NoPositions)).await;
        let worker = Worker::over(source.unwrap(), &Arc::default());
        assert_eq!(worker.drain().await, numbers(round * 5..round * 5 + 5));
        worker.close().await;
    }
}

/// The group's offset is lost, the ledger's position stands in for it, and then the database is restored.
#[tokio::test]
async fn a_position_that_stood_in_for_the_groups_offset_is_not_taken_for_a_first_start() {
    let topic = topic("stood-in", 1).await;
    produce(&topic, 0, numbers(0..10));
    let (group, store) = (fresh("g"), Arc::<Store>::default());
    assert_eq!(values(options(&topic, &group), &store).await.len(), 10);
    let deleted = admin().delete_groups(&[&group], &AdminOptions::new()).await;
    deleted.unwrap().remove(0).unwrap();
    assert_eq!(
        values(options(&topic, &group), &store).await,
        Vec::<String>::new()
    );
    store.reached.lock().unwrap().clear();
    let latest = KafkaOptions {
        start_at: StartAt::Latest,
        ..options(&topic, &group)
    };
    let worker = Worker::open(latest, &store).await;
    let fault = worker.stopped().await.detail();
    assert!(fault.contains("no position"), "{fault}");
    worker.close().await;
}

async fn made_again(values_after: usize) -> String {
    let topic = topic("again", 1).await;
    produce(&topic, 0, numbers(0..10));
    let (group, store) = (fresh("g"), Arc::default());
    assert_eq!(values(options(&topic, &group), &store).await.len(), 10);
    make_again(&topic).await;
    produce(&topic, 0, (0..values_after).map(|n| format!("new {n}")));
    let worker = Worker::open(options(&topic, &group), &store).await;
    let fault = worker.stopped().await.detail();
    worker.close().await;
    fault
}

/// Reads a topic that is made again meanwhile, longer or shorter than it was read.
async fn made_again_under_the_reader(values_after: usize) {
    let topic = topic("under", 1).await;
    produce(&topic, 0, numbers(0..10));
    let (group, store) = (fresh("g"), Arc::default());
    let worker = Worker::open(options(&topic, &group), &store).await;
    assert_eq!(worker.drain().await.len(), 10);
    make_again(&topic).await;
    let new: Vec<String> = (0..values_after).map(|n| format!("new {n}")).collect();
    produce(&topic, 0, &new);
    alarmed(&worker).await;
    worker.close().await;
    starts_after_a_rewind_only(&topic, &group, &store, &new).await;
}

/// Handles what comes until the alarm.
async fn alarmed(worker: &Worker) {
    let stopped = async {
        loop {
            match worker.receive(ALL).await {
                Ok(Received::Batch(batch)) => drop(worker.commit(batch).await),
                Ok(_) => {}
                Err(fault) if fault.class == Class::Stop => return fault.detail(),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let fault = soon("the alarm", stopped).await;
    assert!(fault.contains("made again"), "{fault}");
}

/// What was read of the new topic looks right to a later start, which must not go on all the same.
async fn starts_after_a_rewind_only(topic: &str, group: &str, store: &Arc<Store>, new: &[String]) {
    let own = options(topic, group);
    let worker = Worker::open(own.clone(), store).await;
    let again = worker.stopped().await.detail();
    assert!(again.contains("made again"), "{again}");
    worker.close().await;
    let place = format!("{topic}/0");
    store.reached.lock().unwrap().remove(&*place);
    rewind(&own, &[(place, 0)]).await.unwrap();
    assert_eq!(values(own, store).await, new);
}

#[tokio::test]
async fn t57_a_member_that_is_stopped_in_a_topic_made_again_leaves_no_silence() {
    let topic = topic("stopped", 1).await;
    produce(&topic, 0, numbers(0..10));
    let (group, store) = (fresh("g"), Arc::default());
    let worker = Worker::open(options(&topic, &group), &store).await;
    assert_eq!(worker.drain().await.len(), 10);
    make_again(&topic).await;
    let new: Vec<String> = (0..100).map(|n| format!("new {n}")).collect();
    produce(&topic, 0, &new);
    // As soon as it has read in the new one; that is before its next look, or that look ends it.
    let read_on = async {
        loop {
            match worker.receive(ALL).await {
                Ok(Received::Batch(batch)) => return worker.commit(batch).await,
                Err(fault) if fault.class == Class::Stop => return 0,
                Ok(_) => {}
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    soon("the new topic", read_on).await;
    let stopped = worker.source.trouble();
    let closed = worker.source.close(PATIENCE).await;
    let word = closed.err().map(|fault| fault.detail()).or(stopped);
    assert!(
        word.as_ref()
            .is_some_and(|word| word.contains("made again")),
        "{word:?}"
    );
    starts_after_a_rewind_only(&topic, &group, &store, &new).await;
}

#[tokio::test]
async fn t57_a_topic_that_is_away_hides_no_other_that_was_made_again() {
    let (made, away) = (topic("made", 1).await, topic("away", 1).await);
    let (group, store) = (fresh("g"), Arc::default());
    for topic in [&made, &away] {
        produce(topic, 0, numbers(0..10));
    }
    let mut own = options(&made, &group);
    own.topics.push(away.clone());
    let worker = Worker::open(own, &store).await;
    assert_eq!(worker.drain().await.len(), 20);
    delete(&away).await;
    make_again(&made).await;
    produce(&made, 0, numbers(0..100));
    alarmed(&worker).await;
    worker.close().await;
}

#[tokio::test]
async fn t57_an_alarm_holds_for_every_partition_of_its_topic() {
    let topic = topic("all", 2).await;
    for partition in 0..2 {
        produce(&topic, partition, numbers(0..5));
    }
    let (group, store) = (fresh("g"), Arc::default());
    let own = options(&topic, &group);
    assert_eq!(values(own.clone(), &store).await.len(), 10);
    // The member that raised it had one of them, and another one went on in the other.
    let client: rdkafka::consumer::BaseConsumer =
        config().set("group.id", &group).create().unwrap();
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset(&topic, 0, rdkafka::Offset::Offset(5))
        .unwrap();
    let mut place = list.find_partition(&topic, 0).unwrap();
    place.set_metadata("semel: made again");
    rdkafka::consumer::Consumer::commit(&client, &list, rdkafka::consumer::CommitMode::Sync)
        .unwrap();
    let reports = inspect(&own, store.clone()).await.unwrap();
    let stops = |report: &semel_kafka::PartitionReport| report.alarmed && report.start.is_err();
    assert!(
        reports.len() == 2 && reports.iter().all(stops),
        "{reports:?}"
    );
    let all: Vec<_> = (0..2).map(|n| (format!("{topic}/{n}"), 0)).collect();
    rewind(&own, &all).await.unwrap();
    let reports = inspect(&own, store.clone()).await.unwrap();
    assert!(
        reports.iter().all(|report| report.start == Ok(0)),
        "{reports:?}"
    );
}

#[tokio::test]
async fn t57_a_topic_made_again_under_its_reader_is_recognised_and_is_not_forgotten() {
    made_again_under_the_reader(100).await;
}

#[tokio::test]
async fn t57_a_shorter_topic_made_again_under_its_reader_is_recognised_too() {
    made_again_under_the_reader(3).await;
}

async fn make_again(topic: &str) {
    delete(topic).await;
    make(topic, 1, &[]).await;
}

async fn delete(topic: &str) {
    admin()
        .delete_topics(&[topic], &AdminOptions::new())
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    // The broker removes a topic behind the answer.
    until("the topic is gone", || {
        let client: rdkafka::consumer::BaseConsumer = config().create().unwrap();
        let found =
            rdkafka::consumer::Consumer::fetch_metadata(&client, Some(topic), PATIENCE).unwrap();
        found.topics().iter().all(|topic| topic.error().is_some())
    })
    .await;
}

#[tokio::test]
async fn t57_a_topic_made_again_is_recognised_by_its_end() {
    let fault = made_again(3).await;
    assert!(
        fault.contains("ends at 3") && fault.contains("made again"),
        "{fault}"
    );
}

#[tokio::test]
async fn t57_a_topic_made_again_and_longer_than_before_is_recognised_by_the_record_before_the_position()
 {
    let fault = made_again(50).await;
    assert!(
        fault.contains("offset 9") && fault.contains("made again"),
        "{fault}"
    );
}

#[tokio::test]
async fn what_retention_removed_is_no_alarm_and_no_standstill() {
    let topic = topic("retention", 1).await;
    produce(&topic, 0, numbers(0..10));
    let (group, store) = (fresh("g"), Arc::<Store>::default());
    let worker = Worker::open(options(&topic, &group), &store).await;
    let taken = worker.take(4).await;
    worker.commit(taken).await;
    worker.close().await;
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset(&topic, 0, rdkafka::Offset::Offset(7))
        .unwrap();
    admin()
        .delete_records(&list, &AdminOptions::new())
        .await
        .unwrap();
    assert_eq!(
        inspect(&options(&topic, &group), store.clone())
            .await
            .unwrap()[0]
            .removed,
        3
    );
    for expected in [numbers(7..10), Vec::new()] {
        assert_eq!(values(options(&topic, &group), &store).await, expected);
    }
    let kept = retention_ms(&options(&topic, &group)).await.unwrap();
    assert_eq!(kept[&topic], Some(604_800_000));
}

/// Removes records that a running member has not fetched yet; it goes on behind them.
async fn overtaken(assignor: Assignor) {
    let topic = topic("overtaken", 2).await;
    // One record a batch: what is not fetched can be removed from under the reader.
    let producer: rdkafka::producer::BaseProducer =
        config().set("batch.num.messages", "1").create().unwrap();
    for n in 0..40 {
        for partition in 0..2 {
            let text = format!("{n:04000}");
            let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topic)
                .partition(partition)
                .payload(text.as_bytes());
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
    }
    producer.flush(PATIENCE).unwrap();
    let mut small = KafkaOptions {
        assignor,
        buffer_bytes_max: 1,
        prefetch_bytes_max: 1024,
        ..options(&topic, &fresh("g"))
    };
    small.options = small.options.with("fetch.message.max.bytes", "1000");
    let worker = Worker::open(small, &Arc::default()).await;
    let taken = worker.take(2).await;
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset(&topic, 0, rdkafka::Offset::Offset(30))
        .unwrap();
    admin()
        .delete_records(&list, &AdminOptions::new())
        .await
        .unwrap();
    worker.commit(taken).await;
    let mut seen = std::collections::BTreeMap::<String, std::collections::BTreeSet<u64>>::new();
    while let semel_core::Received::Batch(batch) = worker.receive(ALL).await.unwrap() {
        for delivery in &batch {
            let position = &delivery.message.position;
            seen.entry(position.partition.to_string())
                .or_default()
                .insert(position.offset.unwrap());
        }
        worker.commit(batch).await;
    }
    worker.close().await;
    let cut = &seen[&format!("{topic}/0")];
    assert!(cut.len() < 30, "the test's broker removed nothing in time");
    assert!((30..40).all(|offset| cut.contains(&offset)), "{cut:?}");
    let whole = &seen[&format!("{topic}/1")];
    assert!((2..40).all(|offset| whole.contains(&offset)), "{whole:?}");
}

#[tokio::test]
async fn a_member_that_retention_overtakes_goes_on_behind_it_and_loses_no_other_partition() {
    overtaken(Assignor::CooperativeSticky).await;
}

#[tokio::test]
async fn an_eager_member_that_retention_overtakes_goes_on_behind_it() {
    overtaken(Assignor::Range).await;
}

#[tokio::test]
async fn restarts_at_any_point_raise_no_false_alarm_and_lose_nothing() {
    let topic = topic("restart", 2).await;
    for partition in 0..2 {
        produce(&topic, partition, numbers(0..200));
    }
    let (group, store) = (fresh("g"), Arc::<Store>::default());
    // A group that was used before, far ahead: its offset must not look like lost commits later.
    rewind(
        &options(&topic, &group),
        &[(format!("{topic}/0"), 150), (format!("{topic}/1"), 150)],
    )
    .await
    .unwrap();
    let place = |d: &semel_core::Delivery| {
        let position = &d.message.position;
        (position.partition.to_string(), position.offset)
    };
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..6 {
        let worker = Worker::open(options(&topic, &group), &store).await;
        let taken = worker.take(20 + round).await;
        seen.extend(taken.iter().map(place));
        if round % 2 == 0 {
            // Committed in the ledger, and the process dies before it is told.
            store.write(&positions(&taken));
        } else {
            worker.commit(taken).await;
        }
        worker.close().await;
    }
    let worker = Worker::open(options(&topic, &group), &store).await;
    while let semel_core::Received::Batch(batch) = worker.receive(ALL).await.unwrap() {
        seen.extend(batch.iter().map(place));
        worker.commit(batch).await;
    }
    worker.close().await;
    assert_eq!(seen.len(), 400);
}

#[tokio::test]
async fn an_unknown_topic_and_a_broker_that_is_not_there_are_clear_at_the_start() {
    let missing = fresh("missing");
    let fault = KafkaSource::open(options(&missing, "g"), Arc::new(NoPositions))
        .await
        .unwrap_err();
    assert!(
        fault.class == Class::Stop && fault.detail().contains(&missing),
        "{fault}"
    );
    let nobody = KafkaOptions {
        brokers: vec!["127.0.0.1:1".to_owned()],
        timeout_ms: 1_000,
        ..options(&missing, "g")
    };
    let fault = KafkaSource::open(nobody, Arc::new(NoPositions))
        .await
        .unwrap_err();
    assert!(
        fault.class == Class::Down && fault.detail().contains("no broker answers"),
        "{fault}"
    );
}

#[tokio::test]
async fn a_ledger_that_is_away_delays_a_partition_and_skips_nothing() {
    let topic = topic("ledger-away", 1).await;
    produce(&topic, 0, numbers(0..3));
    let store: Arc<Store> = Arc::default();
    store.away.store(true, Ordering::Release);
    let worker = Worker::open(options(&topic, &fresh("g")), &store).await;
    let fault = worker.receive(ALL).await.unwrap_err();
    assert!(
        fault.class == Class::Down && fault.detail().contains("the ledger is away"),
        "{fault}"
    );
    store.away.store(false, Ordering::Release);
    let taken = loop {
        match worker.receive(ALL).await {
            Ok(semel_core::Received::Batch(batch)) => break batch,
            Ok(other) => panic!("{other:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert_eq!(value(&taken[0]), "0");
    worker.close().await;
}
