//! What a unit writes besides: parked messages, dead letters, sightings, positions, attempts.

use semel_core::ledger::{ClaimKind, Letter, Park, Reached, Record, SightingKind, Which};
use semel_core::message::Cut;
use semel_core::rows::Query;
use semel_core::{Awaiting, Code, Key, Ledger, Limit, Message, Unit, codes};

use crate::world::{World, committed, key, keys, message, number, run, settle, texts};

fn park(world: &World, n: u64, awaiting: Key, kind: ClaimKind) -> Park {
    Park {
        key: key(n),
        id: format!("id-{n}"),
        awaiting: Awaiting {
            kind: Code::new("round"),
            key: awaiting,
        },
        message: message(b"parked", n),
        source: world.source,
        due_in_ms: 3_600_000,
        deadline_in_ms: 7_200_000,
        kind,
    }
}

fn letter(world: &World, key: Option<Key>, payload: &'static [u8], code: Code) -> Letter {
    Letter {
        key,
        id: key.map(|k| k.to_string()),
        code,
        detail: "why".to_owned(),
        field: Some("legs/0/amount".to_owned()),
        hash: semel_core::Fingerprint::of_bytes(payload).into_bytes(),
        attempts: 2,
        source: world.source,
        message: Message::new(payload, "topic/0", None),
    }
}

fn parks(parks: Vec<Park>) -> Record {
    Record {
        parks,
        ..Record::default()
    }
}

#[tokio::test]
async fn a_parked_message_comes_back_as_it_was() {
    let world = World::new().await;
    let mut null = park(&world, 2, key(101), ClaimKind::New);
    null.message.payload = None;
    let mut empty = park(&world, 3, key(102), ClaimKind::New);
    (empty.message.payload, empty.message.message_key) = (Some(bytes::Bytes::new()), None);
    (empty.message.timestamp_ms, empty.message.position.offset) = (None, None);
    settle(
        &world,
        0,
        &[],
        &parks(vec![park(&world, 1, key(100), ClaimKind::New), null, empty]),
    )
    .await;
    let all = world
        .ledger
        .parked(world.consumer, Which::After(None), Limit::messages(10))
        .await
        .unwrap();
    assert_eq!(all.iter().map(|p| p.key).collect::<Vec<_>>(), keys(1..4));
    let (one, original) = (&all[0], message(b"parked", 1));
    assert_eq!(
        (one.source, one.attempts, one.last),
        (world.source, 1, false)
    );
    assert_eq!(one.message.payload, original.payload);
    assert_eq!(one.message.headers, original.headers);
    assert_eq!(one.message.position, original.position);
    assert_eq!(
        (&one.message.message_key, one.message.timestamp_ms),
        (&original.message_key, Some(-5))
    );
    assert_eq!(all[1].message.payload, None);
    assert_eq!(all[2].message.payload.as_deref(), Some(b"".as_slice()));
    assert_eq!(
        (&all[2].message.message_key, all[2].message.position.offset),
        (&None, None)
    );
}

#[tokio::test]
async fn parked_messages_are_found_by_key_by_what_they_wait_for_by_time_and_in_pages() {
    let world = World::new().await;
    let some: Vec<_> = (1..=6)
        .map(|n| park(&world, n, key(100 + n % 2), ClaimKind::New))
        .collect();
    settle(&world, 0, &[], &parks(some)).await;
    let found = async |which: Which<'_>, limit| {
        let parked = world
            .ledger
            .parked(world.consumer, which, Limit::messages(limit))
            .await
            .unwrap();
        parked.iter().map(|p| p.key).collect::<Vec<_>>()
    };
    assert_eq!(
        found(Which::Keys(&[key(2), key(5), key(9)]), 10).await,
        [key(2), key(5)]
    );
    assert_eq!(
        found(Which::Awaiting(&[key(101)]), 10).await,
        [key(1), key(3), key(5)]
    );
    assert_eq!(
        found(Which::Awaiting(&[key(100), key(101)]), 4).await,
        keys(1..5)
    );
    assert_eq!(
        found(Which::After(Some(key(4))), 10).await,
        [key(5), key(6)]
    );
    assert_eq!(found(Which::After(None), 2).await, keys(1..3));
    assert!(found(Which::Due(None), 10).await.is_empty());
    let mut psql = world.psql().await;
    run(
        &mut psql,
        "UPDATE semel_parked SET due_at = now() WHERE id = 'id-3'",
    )
    .await;
    run(
        &mut psql,
        "UPDATE semel_parked SET deadline = now() WHERE id = 'id-4'",
    )
    .await;
    let due = world
        .ledger
        .parked(world.consumer, Which::Due(None), Limit::messages(10))
        .await
        .unwrap();
    assert_eq!(
        due.iter().map(|p| (p.key, p.last)).collect::<Vec<_>>(),
        [(key(3), false), (key(4), true)]
    );
}

#[tokio::test]
async fn a_message_parked_again_keeps_its_deadline_and_counts_a_try() {
    let world = World::new().await;
    settle(
        &world,
        0,
        &[],
        &parks(vec![park(&world, 1, key(100), ClaimKind::New)]),
    )
    .await;
    let mut psql = world.psql().await;
    let deadline = "SELECT (extract(epoch FROM deadline) * 1000000)::bigint FROM semel_parked";
    let first = number(&mut psql, deadline).await;
    let mut again = park(&world, 1, key(200), ClaimKind::Released);
    (again.due_in_ms, again.deadline_in_ms) = (0, u64::MAX);
    settle(&world, 0, &[], &parks(vec![again])).await;
    assert_eq!(number(&mut psql, deadline).await, first);
    let due = world
        .ledger
        .parked(world.consumer, Which::Due(None), Limit::messages(10))
        .await
        .unwrap();
    assert_eq!(due[0].attempts, 2);
    assert_eq!(
        world
            .ledger
            .parked(
                world.consumer,
                Which::Awaiting(&[key(200)]),
                Limit::messages(1)
            )
            .await
            .unwrap()
            .len(),
        1
    );
    settle(
        &world,
        0,
        &[],
        &Record {
            unparks: vec![key(1)],
            ..Record::default()
        },
    )
    .await;
    assert!(
        world
            .ledger
            .parked(world.consumer, Which::After(None), Limit::messages(10))
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_redelivered_dead_message_adds_a_count_and_no_letter() {
    let world = World::new().await;
    let letters = vec![
        letter(&world, Some(key(1)), b"a", codes::MALFORMED),
        letter(&world, Some(key(1)), b"b", codes::MALFORMED),
        letter(&world, Some(key(1)), b"a", codes::POISON),
        letter(&world, None, b"a", codes::NO_KEY),
        letter(&world, None, b"a", codes::NO_KEY),
    ];
    let record = Record {
        letters,
        ..Record::default()
    };
    for new in [4, 0] {
        let mut unit = world.unit(0).await;
        assert_eq!(unit.write(&record).await.unwrap().new_letters, new);
        committed(unit.commit().await);
    }
    let mut psql = world.psql().await;
    assert_eq!(
        number(&mut psql, "SELECT count(*) FROM semel_dead").await,
        4
    );
    assert_eq!(
        number(&mut psql, "SELECT sum(count)::bigint FROM semel_dead").await,
        10
    );
    assert_eq!(
        number(
            &mut psql,
            "SELECT count FROM semel_dead WHERE code = 'no_key' AND key IS NULL"
        )
        .await,
        4
    );
}

#[tokio::test]
async fn a_cut_letter_keeps_the_whole_size() {
    let world = World::new().await;
    let mut cut = letter(&world, None, b"begin", codes::TOO_LARGE);
    cut.message.cut = Some(Cut {
        size: 5_000_000_000,
        hash: cut.hash,
    });
    settle(
        &world,
        0,
        &[],
        &Record {
            letters: vec![cut],
            ..Record::default()
        },
    )
    .await;
    assert_eq!(
        number(&mut world.psql().await, "SELECT size FROM semel_dead").await,
        5_000_000_000
    );
}

#[tokio::test]
async fn t19_nul_bytes_and_long_texts_are_stored() {
    let world = World::new().await;
    let mut dead = letter(&world, Some(key(1)), b"\x00\xff", codes::MALFORMED);
    dead.detail = format!("\0{}", "x".repeat(100_000));
    dead.id = Some("a\0b".to_owned());
    dead.field = Some("\0".to_owned());
    let mut parked = park(&world, 1, key(2), ClaimKind::New);
    parked.id = format!("\0{}", "y".repeat(10_000));
    let record = Record {
        letters: vec![dead],
        parks: vec![parked],
        ..Record::default()
    };
    settle(&world, 0, &[], &record).await;
    let mut psql = world.psql().await;
    assert_eq!(
        texts(&mut psql, "SELECT id FROM semel_dead").await,
        ["a\u{fffd}b"]
    );
    assert_eq!(
        number(&mut psql, "SELECT length(detail)::bigint FROM semel_dead").await,
        100_001
    );
    assert_eq!(
        number(
            &mut psql,
            "SELECT count(*) FROM semel_dead WHERE payload = '\\x00ff'"
        )
        .await,
        1
    );
}

#[tokio::test]
async fn sightings_add_up_by_key_source_and_kind() {
    let world = World::new().await;
    let mut clash = world.sighting(key(1));
    (clash.kind, clash.count) = (SightingKind::Clash, 3);
    let record = Record {
        sightings: vec![world.sighting(key(1)), clash, world.sighting(key(2))],
        ..Record::default()
    };
    settle(&world, 0, &[], &record).await;
    settle(&world, 0, &[], &record).await;
    let sql = "SELECT key::text || ' ' || kind || ' ' || count || ' ' || position FROM semel_sighting ORDER BY key, kind";
    let all = texts(&mut world.psql().await, sql).await;
    assert_eq!(
        all,
        [
            format!("{} 1 2 7", key(1)),
            format!("{} 3 6 7", key(1)),
            format!("{} 1 2 7", key(2))
        ]
    );
}

#[tokio::test]
async fn a_position_is_only_ever_raised_and_the_highest_lane_counts() {
    let world = World::new().await;
    let reached = |partition: &str, next, mark: &'static str| Reached {
        source: world.source,
        partition: partition.into(),
        next,
        mark: mark.into(),
    };
    let write = async |lane, positions| {
        settle(
            &world,
            lane,
            &[],
            &Record {
                positions,
                ..Record::default()
            },
        )
        .await;
    };
    write(
        0,
        vec![
            reached("t/1", 5, "five"),
            reached("t/0", 10, "ten"),
            reached("t/1", 4, "four"),
        ],
    )
    .await;
    write(0, vec![reached("t/0", 9, "nine")]).await;
    write(1, vec![reached("t/1", 7, "seven")]).await;
    let positions = world
        .ledger
        .positions(world.consumer, world.source)
        .await
        .unwrap();
    assert_eq!(
        positions,
        [reached("t/0", 10, "ten"), reached("t/1", 7, "seven")]
    );
    let other = semel_core::ledger::SourceId(2);
    assert!(
        world
            .ledger
            .positions(world.consumer, other)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn attempts_rise_and_are_forgotten_when_their_key_ends() {
    let world = World::new().await;
    for expected in [[1, 1], [2, 2]] {
        let mut unit = world.unit(0).await;
        assert_eq!(unit.attempt(&[key(1), key(2)]).await.unwrap(), expected);
        committed(unit.commit().await);
    }
    settle(
        &world,
        0,
        &[],
        &Record {
            settled_attempts: vec![key(1)],
            ..Record::default()
        },
    )
    .await;
    let mut unit = world.unit(0).await;
    assert_eq!(unit.attempt(&keys(0..3)).await.unwrap(), [1, 1, 3]);
}

#[tokio::test]
async fn an_error_tells_no_line_of_the_servers_own_source() {
    let world = World::new().await;
    let sql = "SELECT nothing FROM nowhere";
    let asked = world.ledger.query(sql, &[], &mut |_| true).await;
    let fault = asked.unwrap_err();
    assert!(fault.detail().contains("nowhere"), "{fault}");
    assert!(!fault.detail().contains("at line"), "{fault}");
}
