//! Claims, copies and parked keys on their way back.

use semel_core::ledger::{Claim, ClaimKind, Claimed, Note, Record, Save, Which};
use semel_core::{Class, Code, Fingerprint, Key, Ledger, Limit, Outcome, Unit};
use semel_postgres::PostgresUnit;
use semel_sql::Lend;

use crate::world::{World, committed, key, keys, number, rolled_back, run, settle};

#[tokio::test]
async fn a_new_key_is_fresh_and_its_copy_is_seen_with_what_was_recorded() {
    let world = World::new().await;
    let claims = world.claims(&[key(1), key(2)]);
    let reply = Note {
        key: key(2),
        outcome: Outcome::Refused,
        code: Some(Code::new("no_funds")),
        reply: Some("no".into()),
    };
    let first = settle(
        &world,
        0,
        &claims,
        &Record {
            notes: vec![reply],
            ..Record::default()
        },
    )
    .await;
    assert_eq!(first, [Claimed::Fresh, Claimed::Fresh]);
    let again = settle(&world, 0, &world.claims(&keys(0..4)), &Record::default()).await;
    assert_eq!(again[0], Claimed::Fresh);
    assert_eq!(again[3], Claimed::Fresh);
    let (Claimed::Seen(one), Claimed::Seen(two)) = (&again[1], &again[2]) else {
        panic!("{again:?}")
    };
    assert_eq!(
        (one.outcome, &one.code, &one.reply),
        (Outcome::Applied, &None, &None)
    );
    assert_eq!(
        (two.outcome, two.code.as_ref().unwrap().as_str()),
        (Outcome::Refused, "no_funds")
    );
    assert_eq!(two.reply.as_deref(), Some(b"no".as_slice()));
    assert_eq!(two.fingerprint, Fingerprint::of_bytes(b"content"));
    assert_eq!(
        (two.scheme, two.sums.as_bytes(), two.source),
        (claims[1].scheme, claims[1].sums.as_bytes(), world.source)
    );
    let now = number(
        &mut world.psql().await,
        "SELECT (extract(epoch FROM now()) * 1000000)::bigint",
    )
    .await;
    assert!(
        (now - 60_000_000..=now).contains(&two.at_us),
        "{} {now}",
        two.at_us
    );
}

#[tokio::test]
async fn a_key_of_another_consumer_is_fresh() {
    let world = World::new().await;
    settle(&world, 0, &world.claims(&[key(1)]), &Record::default()).await;
    let mut other = crate::world::enrolment();
    other.consumer = "audit".to_owned();
    let enrolled = world.ledger.enroll(&other).await.unwrap();
    let lane = semel_core::ledger::LaneId {
        consumer: enrolled.consumer,
        ..world.lane_id(0)
    };
    let lane = world.ledger.connect(lane).await.unwrap();
    let mut unit = world.ledger.begin(lane).await.unwrap();
    assert_eq!(
        unit.claim(&world.claims(&[key(1)])).await.unwrap(),
        [Claimed::Fresh]
    );
    committed(unit.commit().await);
}

#[tokio::test]
async fn a_dropped_unit_leaves_nothing() {
    let world = World::new().await;
    let mut unit = world.unit(0).await;
    unit.claim(&world.claims(&[key(1)])).await.unwrap();
    drop(unit);
    let claimed = settle(&world, 1, &world.claims(&[key(1)]), &Record::default()).await;
    assert_eq!(claimed, [Claimed::Fresh]);
}

#[tokio::test]
async fn t04_a_key_held_by_an_open_unit_is_busy_after_the_lock_timeout_and_seen_after_its_commit() {
    let world = World::with(|o| o.lock_timeout_ms = 50).await;
    let mut holder = world.unit(0).await;
    holder.claim(&world.claims(&[key(1)])).await.unwrap();
    let mut other = world.unit(1).await;
    let fault = other.claim(&world.claims(&[key(1)])).await.unwrap_err();
    assert_eq!(fault.class, Class::Busy, "{fault}");
    drop(other);
    committed(holder.commit().await);
    let claimed = settle(&world, 2, &world.claims(&[key(1)]), &Record::default()).await;
    assert!(matches!(claimed[0], Claimed::Seen(_)));
}

/// Claims keys of which a holder has some, and lets the holder end when the claim waits for it in a statement of this text.
async fn while_held(
    world: &World,
    waiting: &mut PostgresUnit,
    claims: &[Claim],
    text: &str,
    holder: PostgresUnit,
    commits: bool,
) -> Vec<Claimed> {
    let both = async {
        tokio::join!(waiting.claim(claims), async {
            let mut psql = world.psql().await;
            let blocked = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{text}%'"
            );
            while number(&mut psql, &blocked).await == 0 {
                tokio::task::yield_now().await;
            }
            if commits {
                committed(holder.commit().await);
            } else {
                drop(holder);
            }
        })
    };
    // A claim that does not wait would be looked for without end.
    let hang = std::time::Duration::from_secs(60);
    let (claimed, ()) = tokio::time::timeout(hang, both).await.unwrap();
    claimed.unwrap()
}

#[tokio::test]
async fn t04_a_waiting_copy_gets_its_verdict_from_the_first_ones_end() {
    let world = World::new().await;
    for (lane, commits) in [(0, true), (2, false)] {
        let key = key(u64::try_from(lane).unwrap() + 1);
        let mut holder = world.unit(lane).await;
        holder.claim(&world.claims(&[key])).await.unwrap();
        let mut waiting = world.unit(lane + 1).await;
        let claims = world.claims(&[key]);
        let text = "INSERT INTO semel_ledger";
        let claimed = while_held(&world, &mut waiting, &claims, text, holder, commits).await;
        assert_eq!(matches!(claimed[0], Claimed::Seen(_)), commits);
    }
}

/// Many keys are looked for and inserted plainly: what another unit commits between the two is found nevertheless.
#[tokio::test]
async fn t04_many_keys_that_wait_get_their_verdicts_from_the_first_ones_end() {
    let world = World::new().await;
    for (lane, begin, commits) in [(0, 0, true), (2, 1_000, false)] {
        let mut holder = world.unit(lane).await;
        let held = world.claims(&keys(begin + 50..begin + 150));
        holder.claim(&held).await.unwrap();
        // A process whose look was in vain goes without for a while, so each try is one of its own.
        let process = world.again(|_| ()).await;
        let connection = process.connect(world.lane_id(lane + 1)).await.unwrap();
        let mut waiting = process.begin(connection).await.unwrap();
        let claims = world.claims(&keys(begin..begin + 100));
        let text = "that a look has just not found";
        let claimed = while_held(&world, &mut waiting, &claims, text, holder, commits).await;
        let seen = |claimed: &Claimed| matches!(claimed, Claimed::Seen(_));
        assert!(!claimed[..50].iter().any(seen));
        assert_eq!(claimed[50..].iter().all(seen), commits);
        assert_eq!(claimed[50..].iter().any(seen), commits);
        let (_, connection) = committed(waiting.commit().await);
        // The unit whose look was in vain goes on, and so do the next ones on its connection.
        let mut next = process.begin(connection).await.unwrap();
        let claimed = next
            .claim(&world.claims(&keys(begin + 100..begin + 200)))
            .await;
        let copies = claimed
            .unwrap()
            .iter()
            .filter(|claimed| seen(claimed))
            .count();
        assert_eq!(copies, if commits { 50 } else { 0 });
        committed(next.commit().await);
    }
    let held = number(&mut world.psql().await, "SELECT count(*) FROM semel_ledger").await;
    assert_eq!(held, 400);
}

#[tokio::test]
async fn many_copies_are_told_from_new_keys_with_what_was_recorded() {
    let world = World::new().await;
    let even: Vec<_> = keys(0..200).into_iter().step_by(2).collect();
    settle(&world, 0, &world.claims(&even), &Record::default()).await;
    let claimed = settle(&world, 1, &world.claims(&keys(0..200)), &Record::default()).await;
    for (number, claimed) in claimed.iter().enumerate() {
        match claimed {
            Claimed::Seen(prior) if number % 2 == 0 => {
                assert_eq!(prior.fingerprint, Fingerprint::of_bytes(b"content"));
            }
            Claimed::Fresh if number % 2 == 1 => {}
            other => panic!("{number}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn t05_a_unit_with_copies_goes_on_working() {
    let world = World::new().await;
    run(&mut world.psql().await, "CREATE TABLE effect (n bigint)").await;
    settle(&world, 0, &world.claims(&keys(0..10)), &Record::default()).await;
    let mut unit = world.unit(0).await;
    let claimed = unit.claim(&world.claims(&keys(5..15))).await.unwrap();
    assert_eq!(claimed.iter().filter(|c| **c == Claimed::Fresh).count(), 5);
    sqlx::query("INSERT INTO effect VALUES (1)")
        .execute(&mut unit.lend())
        .await
        .unwrap();
    committed(unit.commit().await);
    assert_eq!(
        number(&mut world.psql().await, "SELECT count(*) FROM effect").await,
        1
    );
}

#[tokio::test]
async fn going_back_behind_the_claims_keeps_them_and_heals_an_error() {
    let world = World::new().await;
    run(
        &mut world.psql().await,
        "CREATE TABLE effect (n bigint CHECK (n > 0))",
    )
    .await;
    let mut unit = world.unit(0).await;
    unit.claim(&world.claims(&[key(1)])).await.unwrap();
    for _ in 0..3 {
        unit.save(Save::Claims).await.unwrap();
        unit.save(Save::Group).await.unwrap();
        sqlx::query("INSERT INTO effect VALUES (1)")
            .execute(&mut unit.lend())
            .await
            .unwrap();
        unit.save(Save::Group).await.unwrap();
        sqlx::query("INSERT INTO effect VALUES (0)")
            .execute(&mut unit.lend())
            .await
            .unwrap_err();
        assert_eq!(unit.verdict().unwrap().class, Class::Poison);
        unit.back(Save::Group).await.unwrap();
        assert!(unit.verdict().is_none());
        sqlx::query("INSERT INTO effect VALUES (2)")
            .execute(&mut unit.lend())
            .await
            .unwrap();
    }
    sqlx::query("INSERT INTO effect VALUES (-1)")
        .execute(&mut unit.lend())
        .await
        .unwrap_err();
    unit.back(Save::Claims).await.unwrap();
    sqlx::query("INSERT INTO effect VALUES (3)")
        .execute(&mut unit.lend())
        .await
        .unwrap();
    committed(unit.commit().await);
    // Two rounds were kept by a later savepoint of the same name; the third went back.
    assert_eq!(
        number(&mut world.psql().await, "SELECT sum(n)::bigint FROM effect").await,
        2 * (1 + 2) + 3
    );
    assert!(world.holds(key(1)).await);
}

/// Leaves a key whose row says `parked`.
async fn park_key(world: &World, key: Key) {
    let parked = Note {
        key,
        outcome: Outcome::Parked,
        code: Some(Code::new("round")),
        reply: None,
    };
    let record = Record {
        notes: vec![parked],
        ..Record::default()
    };
    settle(world, 0, &world.claims(&[key]), &record).await;
}

#[tokio::test]
async fn t04_a_copy_that_waits_for_a_release_hears_how_it_ended() {
    let world = World::new().await;
    park_key(&world, key(1)).await;
    let mut holder = world.unit(1).await;
    let released = world.claim_of(key(1), b"content", ClaimKind::Released);
    holder.claim(&[released]).await.unwrap();
    let mut waiting = world.unit(2).await;
    let claims = world.claims(&[key(1)]);
    let text = "INSERT INTO semel_ledger";
    let claimed = while_held(&world, &mut waiting, &claims, text, holder, true).await;
    let Claimed::Seen(prior) = &claimed[0] else {
        panic!("{claimed:?}");
    };
    assert_eq!(prior.outcome, Outcome::Applied);
}

#[tokio::test]
async fn a_parked_key_is_released_by_one_unit_alone() {
    let world = World::new().await;
    park_key(&world, key(1)).await;
    let copy = settle(&world, 0, &world.claims(&[key(1)]), &Record::default()).await;
    let Claimed::Seen(prior) = &copy[0] else {
        panic!("{copy:?}")
    };
    assert_eq!(
        (prior.outcome, prior.code.as_ref().unwrap().as_str()),
        (Outcome::Parked, "round")
    );
    let released = world.claim_of(key(1), b"content", ClaimKind::Released);
    let mixed = [world.claim(key(0)), released.clone(), world.claim(key(2))];
    let claimed = settle(&world, 0, &mixed, &Record::default()).await;
    assert_eq!(claimed, [Claimed::Fresh, Claimed::Fresh, Claimed::Fresh]);
    let claimed = settle(&world, 0, &[released], &Record::default()).await;
    assert_eq!(claimed, [Claimed::Ended]);
    let copy = settle(&world, 0, &world.claims(&[key(1)]), &Record::default()).await;
    let Claimed::Seen(prior) = &copy[0] else {
        panic!("{copy:?}")
    };
    assert_eq!((prior.outcome, &prior.code), (Outcome::Applied, &None));
}

#[tokio::test]
async fn two_units_that_release_the_same_keys_share_them_without_a_deadlock() {
    let world = World::new().await;
    let all = keys(0..200);
    let notes = |key: &semel_core::Key| Note {
        key: *key,
        outcome: Outcome::Parked,
        code: None,
        reply: None,
    };
    let record = Record {
        notes: all.iter().map(notes).collect(),
        ..Record::default()
    };
    settle(&world, 0, &world.claims(&all), &record).await;
    let released: Vec<_> = all
        .iter()
        .map(|k| world.claim_of(*k, b"content", ClaimKind::Released))
        .collect();
    let nothing = Record::default();
    let (one, two, three) = tokio::join!(
        settle(&world, 1, &released, &nothing),
        settle(&world, 2, &released, &nothing),
        settle(&world, 3, &released, &nothing),
    );
    for i in 0..200 {
        let fresh = [&one[i], &two[i], &three[i]]
            .iter()
            .filter(|c| ***c == Claimed::Fresh)
            .count();
        assert_eq!(fresh, 1, "key {i}");
    }
}

#[tokio::test]
async fn t38_a_deleted_claim_is_fresh_again() {
    let world = World::new().await;
    let record = Record {
        unclaims: vec![key(2)],
        ..Record::default()
    };
    settle(&world, 0, &world.claims(&keys(1..4)), &record).await;
    let claimed = settle(&world, 0, &world.claims(&keys(1..4)), &Record::default()).await;
    assert!(matches!(
        claimed[..],
        [Claimed::Seen(_), Claimed::Fresh, Claimed::Seen(_)]
    ));
}

#[tokio::test]
async fn a_call_that_was_dropped_half_way_ends_the_unit() {
    let world = World::with(|o| o.lock_timeout_ms = 60_000).await;
    let mut holder = world.unit(0).await;
    holder.claim(&world.claims(&[key(1)])).await.unwrap();
    let mut unit = world.unit(1).await;
    let claims = world.claims(&[key(1)]);
    tokio::select! {
        biased;
        _ = unit.claim(&claims) => panic!("the key is held"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(unit.claim(&claims).await.unwrap_err().class, Class::Down);
    let fault = rolled_back(unit.commit().await);
    assert_eq!(fault.class, Class::Down, "{fault}");
}

#[tokio::test]
async fn nothing_to_claim_is_no_statement() {
    let world = World::new().await;
    assert!(settle(&world, 0, &[], &Record::default()).await.is_empty());
    assert!(
        world
            .ledger
            .parked(world.consumer, Which::Keys(&[]), Limit::messages(10))
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn claims_of_several_sources_and_schemes_keep_their_own() {
    let world = World::new().await;
    let mut claims = world.claims(&keys(0..4));
    claims[1].source = semel_core::ledger::SourceId(2);
    claims[2].scheme = semel_core::Scheme::NONE;
    settle(&world, 0, &claims, &Record::default()).await;
    for (claim, seen) in claims
        .iter()
        .zip(settle(&world, 0, &claims, &Record::default()).await)
    {
        let Claimed::Seen(prior) = seen else {
            panic!("{seen:?}")
        };
        assert_eq!((prior.source, prior.scheme), (claim.source, claim.scheme));
    }
}
