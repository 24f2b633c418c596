//! Members come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use semel_core::source::Received;
use semel_core::{Class, Delivery, Limit, Source};
use semel_kafka::{Assignor, KafkaOptions};
use tokio::task::JoinHandle;

use crate::bed::*;

/// What the members of a storm did, by partition and offset: how often.
type Seen = Arc<std::sync::Mutex<BTreeMap<(String, u64), usize>>>;

/// A member that works until it is told to stop; returns how many acks were lost.
fn member(
    options: KafkaOptions,
    store: Arc<Store>,
    seen: Seen,
    stop: Arc<AtomicBool>,
) -> JoinHandle<usize> {
    tokio::spawn(async move {
        let worker = Worker::open(options, &store).await;
        let mut lost = 0;
        while !stop.load(Ordering::Acquire) {
            let received = tokio::time::timeout(
                Duration::from_millis(50),
                worker.source.receive(Limit { count: 20, ..ALL }),
            );
            let Ok(received) = received.await else {
                continue;
            };
            if let Received::Batch(batch) = received.unwrap() {
                // The handler's time, in which a rebalance may come.
                tokio::time::sleep(Duration::from_millis(2)).await;
                for delivery in &batch {
                    let position = &delivery.message.position;
                    *seen
                        .lock()
                        .unwrap()
                        .entry((position.partition.to_string(), position.offset.unwrap()))
                        .or_default() += 1;
                }
                lost += worker.commit(batch).await;
            }
        }
        worker.close().await;
        lost
    })
}

async fn storm(assignor: Assignor) {
    const PARTITIONS: i32 = 6;
    const PART: usize = 300;
    let rounds = rounds(5, 50);
    let parts = 2 * rounds;
    let each = parts * PART;
    let all = usize::try_from(PARTITIONS).unwrap() * each;
    let topic = topic("storm", PARTITIONS).await;
    let group = fresh("g");
    let options = KafkaOptions {
        assignor,
        ..options(&topic, &group)
    };
    let (store, seen) = (Arc::<Store>::default(), Seen::default());
    let feed = {
        let topic = topic.clone();
        std::thread::spawn(move || {
            for part in 0..parts {
                (0..PARTITIONS).for_each(|partition| produce(&topic, partition, numbers(0..PART)));
                let pause = if part + 1 < parts { 300 } else { 0 };
                std::thread::sleep(Duration::from_millis(pause));
            }
        })
    };
    let start = || {
        let stop = Arc::new(AtomicBool::new(false));
        (
            stop.clone(),
            member(options.clone(), store.clone(), seen.clone(), stop),
        )
    };
    let mut members = std::collections::VecDeque::from([start()]);
    let mut lost = 0;
    // Joins and leaves under load: each waits only for progress, not for time.
    for _ in 0..rounds {
        while members.len() < 3 {
            members.push_back(start());
            let before = seen.lock().unwrap().len();
            until("a joined member disturbed nobody for long", || {
                let now = seen.lock().unwrap().len();
                now > before + 50 || now == all
            })
            .await;
        }
        let (stop, task) = members.pop_front().unwrap();
        stop.store(true, Ordering::Release);
        lost += task.await.unwrap();
    }
    feed.join().unwrap();
    until("everything is handled", || {
        seen.lock().unwrap().len() == all
    })
    .await;
    for (stop, task) in members {
        stop.store(true, Ordering::Release);
        lost += task.await.unwrap();
    }
    let again: usize = seen.lock().unwrap().values().map(|count| count - 1).sum();
    // Every rebalance may repeat what was handed out and not settled: a batch a member.
    assert!(
        again <= 3 * rounds * 3 * 20,
        "{again} handled twice, {lost} acks lost"
    );
    for partition in 0..PARTITIONS {
        assert_eq!(
            committed(&group, &topic, partition),
            Some(i64::try_from(each).unwrap())
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e043_cooperative_members_join_and_leave_under_load() {
    storm(Assignor::CooperativeSticky).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e043_eager_members_join_and_leave_under_load() {
    storm(Assignor::Range).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e041_commits_under_way_while_a_second_member_joins_stall_nobody() {
    let topic = topic("joins", 2).await;
    let options = options(&topic, &fresh("g"));
    let (store, firsts) = (Arc::<Store>::default(), Seen::default());
    let start = |seen: &Seen| {
        let stop = Arc::new(AtomicBool::new(false));
        let task = member(options.clone(), store.clone(), seen.clone(), stop.clone());
        (stop, task)
    };
    let (stop_first, first) = start(&firsts);
    let rounds = rounds(6, 200);
    let (mut put, mut seconds) = (0, BTreeSet::new());
    for _ in 0..rounds {
        let theirs = Seen::default();
        let (stop, second) = start(&theirs);
        // Small batches, one behind the other, so that commits are under way whenever the rebalance comes, until
        // the second member works too.
        while theirs.lock().unwrap().is_empty() {
            (0..2).for_each(|partition| produce(&topic, partition, numbers(0..60)));
            put += 120;
            within(Duration::from_secs(30), "both partitions go on", || {
                let firsts = firsts.lock().unwrap();
                let theirs = theirs.lock().unwrap();
                let alone = |place: &&(String, u64)| !firsts.contains_key(*place);
                seconds.extend(theirs.keys().cloned());
                firsts.len() + seconds.iter().filter(alone).count() == put
            })
            .await;
        }
        stop.store(true, Ordering::Release);
        second.await.unwrap();
    }
    stop_first.store(true, Ordering::Release);
    first.await.unwrap();
    for partition in 0..2 {
        let told = committed(&options.group, &topic, partition);
        assert_eq!(told, Some(i64::try_from(put / 2).unwrap()));
    }
}

/// Takes until every partition has handed out all of its `each` records.
async fn take_all(worker: &Worker, partitions: usize, each: usize) -> Vec<Delivery> {
    worker.take(partitions * each).await
}

fn split(deliveries: Vec<Delivery>) -> BTreeMap<String, Vec<Delivery>> {
    let mut by_partition: BTreeMap<String, Vec<Delivery>> = BTreeMap::new();
    for delivery in deliveries {
        by_partition
            .entry(delivery.message.position.partition.to_string())
            .or_default()
            .push(delivery);
    }
    by_partition
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t53_e039_work_in_flight_at_a_revoke_is_finished_and_told_and_kept_partitions_go_on() {
    let topic = topic("drain", 3).await;
    (0..3).for_each(|partition| produce(&topic, partition, numbers(0..100)));
    let (group, store) = (fresh("g"), Arc::<Store>::default());
    let slow = KafkaOptions {
        drain_ms: 30_000,
        ..options(&topic, &group)
    };
    let first = Worker::open(slow.clone(), &store).await;
    let flight = split(take_all(&first, 3, 100).await);

    // The second member joins; the first keeps what it has in flight until it is settled.
    let second = Worker::open(slow, &store).await;
    let joined = tokio::time::timeout(Duration::from_secs(2), second.source.receive(ALL)).await;
    assert!(
        !matches!(joined, Ok(Ok(Received::Batch(_)))),
        "nothing is handed out twice while the owner drains: {joined:?}"
    );
    let mut lost = 0;
    for (_, deliveries) in flight {
        lost += first.commit(deliveries).await;
    }
    assert_eq!(
        lost, 0,
        "all were still owned: the revoked one drained, the others were kept"
    );
    assert!(
        matches!(second.receive(ALL).await, Ok(Received::Drained)),
        "its new owner has nothing to repeat"
    );
    for partition in 0..3 {
        until("told", || committed(&group, &topic, partition) == Some(100)).await;
    }
    first.close().await;
    second.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t53_work_that_outlives_the_drain_is_dropped_and_its_acks_count_as_lost() {
    let topic = topic("overdue", 2).await;
    (0..2).for_each(|partition| produce(&topic, partition, numbers(0..10)));
    let (group, store) = (fresh("g"), Arc::<Store>::default());
    let short = KafkaOptions {
        drain_ms: 200,
        ..options(&topic, &group)
    };
    let first = Worker::open(short.clone(), &store).await;
    let flight = split(take_all(&first, 2, 10).await);
    let second = Worker::open(short, &store).await;
    let moved = second.take(10).await;
    let name = moved[0].message.position.partition.to_string();
    assert!(
        moved.iter().all(|d| *d.message.position.partition == *name),
        "one partition moved, one was kept"
    );
    for (partition, deliveries) in flight {
        let lost = first.commit(deliveries).await;
        assert_eq!(lost, if partition == name { 10 } else { 0 }, "{partition}");
    }
    assert_eq!(second.commit(moved).await, 0);
    first.close().await;
    second.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_a_position_of_a_partition_that_is_not_ours_is_told_to_nobody() {
    let topic = topic("own", 2).await;
    (0..2).for_each(|partition| produce(&topic, partition, numbers(0..10)));
    let (group, store) = (fresh("g"), Arc::<Store>::default());
    let first = Worker::open(options(&topic, &group), &store).await;
    let taken = take_all(&first, 2, 10).await;
    let positions = positions(&taken);
    let second = Worker::open(
        KafkaOptions {
            drain_ms: 100,
            ..options(&topic, &group)
        },
        &store,
    )
    .await;
    // The first drains for its whole time, then one partition is the second's.
    let moved = soon("the moved partition", async {
        loop {
            if let Ok(Received::Batch(batch)) = second.source.receive(ALL).await {
                break batch[0].message.position.partition.to_string();
            }
        }
    })
    .await;
    first.settle(Vec::new(), positions).await;
    for partition in 0..2 {
        let name = format!("{topic}/{partition}");
        if name != moved {
            until("the own one is told", || {
                committed(&group, &topic, partition) == Some(10)
            })
            .await;
        }
    }
    for partition in 0..2 {
        let expected = if format!("{topic}/{partition}") == moved {
            Some(0)
        } else {
            Some(10)
        };
        assert_eq!(
            committed(&group, &topic, partition),
            expected,
            "{partition}"
        );
    }
    first.close().await;
    second.close().await;
}

/// A static member, whose session outlives the test.
fn named(topic: &str, group: &str, name: &str) -> KafkaOptions {
    KafkaOptions {
        group_instance_id: Some(name.to_owned()),
        session_timeout_ms: 45_000,
        ..options(topic, group)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_member_comes_back_to_its_partitions_and_a_twin_is_refused() {
    let topic = topic("static", 2).await;
    (0..2).for_each(|partition| produce(&topic, partition, numbers(0..10)));
    let (group, store) = (fresh("g"), Arc::<Store>::default());
    let named = |name| named(&topic, &group, name);
    let first = Worker::open(named("a"), &store).await;
    assert_eq!(first.drain().await.len(), 20);
    first.close().await;
    (0..2).for_each(|partition| produce(&topic, partition, ["more"]));
    let again = Worker::open(named("a"), &store).await;
    assert_eq!(again.drain().await, ["more", "more"]);
    all_told(&group, &topic, 11).await;

    let twin = Worker::open(named("a"), &store).await;
    let fault = again.stopped().await;
    assert!(
        fault.class == Class::Stop && fault.detail().contains("group_instance_id"),
        "{fault}"
    );
    twin.close().await;
    again.close().await;
}

/// What a member that was killed while it joined had sent may reach the broker behind the request of its successor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_member_takes_its_name_back_once_from_a_late_request() {
    let topic = topic("late", 2).await;
    (0..2).for_each(|partition| produce(&topic, partition, numbers(0..10)));
    let (group, store) = (fresh("g"), Arc::<Store>::default());
    let named = || named(&topic, &group, "a");
    let member = Worker::open(named(), &store).await;
    assert_eq!(member.drain().await.len(), 20);
    all_told(&group, &topic, 10).await;
    let late = named();
    tokio::task::spawn_blocking(move || join_until_fenced(&late))
        .await
        .unwrap();
    (0..2).for_each(|partition| produce(&topic, partition, ["more"]));
    let more = member.take(2).await;
    assert_eq!(more.iter().map(value).collect::<Vec<_>>(), ["more", "more"]);
    assert_eq!(member.commit(more).await, 0);

    let twin = Worker::open(named(), &store).await;
    let fault = member.stopped().await;
    assert!(
        fault.class == Class::Stop && fault.detail().contains("group_instance_id"),
        "{fault}"
    );
    twin.close().await;
    member.close().await;
}

/// It gives partitions up, and dies before it asks for the round that gives them out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_static_member_gave_up_at_its_death_is_not_left_to_nobody() {
    let topic = topic("orphans", 4).await;
    (0..4).for_each(|partition| produce(&topic, partition, numbers(0..10)));
    let (group, store) = (fresh("g"), Arc::<Store>::default());
    let named = |name, drain_ms| KafkaOptions {
        drain_ms,
        ..named(&topic, &group, name)
    };
    let dying = Worker::open(named("a", 30_000), &store).await;
    let unsettled = dying.take(40).await;
    let other = Worker::open(named("b", 500), &store).await;
    let client: BaseConsumer = config().create().unwrap();
    until("the first round is over", || {
        let groups = client.fetch_group_list(Some(&group), PATIENCE).unwrap();
        let found = &groups.groups()[0];
        found.state() == "Stable" && found.members().len() == 2
    })
    .await;
    dying.close().await;
    drop(unsettled);

    let again = Worker::open(named("a", 500), &store).await;
    let (mut values, more) = tokio::join!(again.drain(), other.drain());
    values.extend(more);
    values.sort_unstable();
    let mut expected: Vec<String> = (0..4).flat_map(|_| numbers(0..10)).collect();
    expected.sort_unstable();
    assert_eq!(values, expected);
    again.close().await;
    other.close().await;
}

/// What is not told yet comes again to a member that joins again.
async fn all_told(group: &str, topic: &str, next: i64) {
    until("all is told", || {
        (0..2).all(|partition| committed(group, topic, partition) == Some(next))
    })
    .await;
}

/// Joins under the member's name, and goes when the member has it back.
fn join_until_fenced(member: &KafkaOptions) {
    let id = member.group_instance_id.as_deref().unwrap();
    let client: BaseConsumer = config()
        .set("group.id", &member.group)
        .set("group.instance.id", id)
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("heartbeat.interval.ms", "300")
        .create()
        .unwrap();
    client.subscribe(&[&member.topics[0]]).unwrap();
    let begin = Instant::now();
    let fenced = |error: &KafkaError| {
        let fatal = KafkaError::MessageConsumptionFatal(RDKafkaErrorCode::FencedInstanceId);
        *error == fatal
    };
    while !matches!(client.poll(Duration::from_millis(100)), Some(Err(error)) if fenced(&error)) {
        assert!(begin.elapsed() < PATIENCE, "the name was not taken back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_partitions_is_drained() {
    let topic = topic("spare", 1).await;
    let (group, store) = (fresh("g"), Arc::<Store>::default());
    let first = Worker::open(options(&topic, &group), &store).await;
    assert!(matches!(
        first.receive(ALL).await.unwrap(),
        Received::Drained
    ));
    let second = Worker::open(options(&topic, &group), &store).await;
    assert!(matches!(
        second.receive(ALL).await.unwrap(),
        Received::Drained
    ));
    let names: BTreeSet<_> = [&first, &second]
        .iter()
        .flat_map(|w| w.source.lag())
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    first.close().await;
    second.close().await;
}
