//! Units on a real file: claims, savepoints, records, fences and lost commits.

mod world;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use semel_core::ledger::{
    Claim, ClaimKind, Claimed, Commit, Enrolment, Letter, Note, Park, Reached, Record, Resolved,
    Save, Sighting, SightingKind, SourceId, Which,
};
use semel_core::rows::{Query, Value};
use semel_core::{Awaiting, Class, Code, Fingerprint, Key, Ledger, Message, Outcome, Unit};
use semel_sql::Lend;
use semel_sqlite::{Options, SqliteLedger};

use world::{World, claim, committed, key, keys};

#[tokio::test]
async fn a_new_key_is_fresh_and_then_seen_with_what_was_recorded() {
    let world = World::open().await;
    let mut unit = world.unit().await;
    let claims: Vec<Claim> = keys(0..1000).into_iter().map(claim).collect();
    let claimed = unit.claim(&claims).await.unwrap();
    assert!(claimed.iter().all(|claimed| *claimed == Claimed::Fresh));
    let note = Note {
        key: key(7),
        outcome: Outcome::Refused,
        code: Some(Code::new("insufficient_funds")),
        reply: Some(Bytes::from_static(b"{}")),
    };
    unit.write(&Record {
        notes: vec![note],
        unclaims: vec![key(3)],
        ..Record::default()
    })
    .await
    .unwrap();
    let lane = committed(unit).await;

    let mut unit = world.ledger.begin(lane).await.unwrap();
    let claimed = unit.claim(&claims).await.unwrap();
    let Claimed::Seen(prior) = &claimed[7] else {
        panic!("{:?}", claimed[7])
    };
    assert_eq!(prior.outcome, Outcome::Refused);
    assert_eq!(prior.code.as_ref().unwrap().as_str(), "insufficient_funds");
    assert_eq!(prior.reply.as_deref(), Some(b"{}".as_slice()));
    assert_eq!(prior.fingerprint, Fingerprint::of_bytes(b"x"));
    assert!(prior.at_us > 1_700_000_000_000_000);
    assert_eq!(
        claimed[3],
        Claimed::Fresh,
        "an unclaimed key is free again (T38)"
    );
    assert_eq!(
        claimed
            .iter()
            .filter(|claimed| matches!(claimed, Claimed::Seen(_)))
            .count(),
        999
    );
}

#[tokio::test]
async fn a_dropped_unit_leaves_nothing() {
    let world = World::open().await;
    let mut unit = world.unit().await;
    unit.claim(&[claim(key(1))]).await.unwrap();
    let fence = unit.fence();
    drop(unit);
    assert_eq!(
        world.ledger.resolve(fence).await.unwrap(),
        Resolved::RolledBack
    );
    let mut unit = world.unit().await;
    assert_eq!(
        unit.claim(&[claim(key(1))]).await.unwrap(),
        [Claimed::Fresh]
    );
    assert_eq!(
        unit.fence().unit,
        fence.unit,
        "the number was rolled back with it"
    );
}

#[tokio::test]
async fn a_committed_unit_is_resolved_as_committed() {
    let world = World::open().await;
    let mut unit = world.unit().await;
    unit.claim(&[claim(key(1))]).await.unwrap();
    let fence = unit.fence();
    let _lane = committed(unit).await;
    let Resolved::Committed(proof) = world.ledger.resolve(fence).await.unwrap() else {
        panic!()
    };
    assert_eq!(proof.fence(), fence);
}

#[tokio::test]
async fn t03_a_commit_whose_answer_was_lost_is_found() {
    let world = World::open().await;
    for cut in 0..20_u32 {
        let mut unit = world.unit().await;
        unit.claim(&[claim(key(cut))]).await.unwrap();
        let fence = unit.fence();
        // Polled once: COMMIT is on its way to SQLite's thread, or not even that.
        let mut commit = Box::pin(unit.commit());
        for _ in 0..cut % 4 {
            if commit.as_mut().now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(commit);
        let resolved = world.ledger.resolve(fence).await.unwrap();
        let there = world
            .count(
                "SELECT count(*) FROM semel_ledger WHERE key = ?1",
                &[Value::Key(key(cut))],
            )
            .await;
        match resolved {
            Resolved::Committed(_) => assert_eq!(there, 1),
            Resolved::RolledBack => assert_eq!(there, 0),
            Resolved::Lost => panic!("nothing was lost"),
        }
    }
}

#[tokio::test]
async fn a_file_that_lost_commits_is_noticed() {
    let world = World::open().await;
    let lane = committed(world.unit().await).await;
    let unit = world.ledger.begin(lane).await.unwrap();
    let fence = unit.fence();
    let lane = committed(unit).await;
    world.sql("UPDATE semel_fence SET unit = 1").await;
    assert_eq!(world.ledger.resolve(fence).await.unwrap(), Resolved::Lost);
    let fault = world.ledger.begin(lane).await.unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    assert!(fault.detail().contains("lost commits"), "{fault}");
    assert_eq!(
        world.ledger.connect(world.lane).await.unwrap_err().class,
        Class::Stop
    );
}

#[tokio::test]
async fn going_back_undoes_and_heals() {
    let world = World::open().await;
    world.sql("CREATE TABLE wallet (name TEXT PRIMARY KEY, balance INTEGER CHECK (balance >= 0)) STRICT").await;
    let mut unit = world.unit().await;
    unit.claim(&[claim(key(1))]).await.unwrap();
    unit.save(Save::Claims).await.unwrap();
    for _ in 0..3 {
        unit.save(Save::Group).await.unwrap();
        sqlx::query(
            "INSERT INTO wallet VALUES ('anna', 1) ON CONFLICT DO UPDATE SET balance = balance + 1",
        )
        .execute(&mut unit.lend())
        .await
        .unwrap();
    }
    unit.save(Save::Group).await.unwrap();
    let error = sqlx::query("UPDATE wallet SET balance = -1")
        .execute(&mut unit.lend())
        .await
        .unwrap_err();
    assert!(error.as_database_error().is_some());
    assert_eq!(unit.verdict().unwrap().class, Class::Poison);
    assert!(
        unit.save(Save::Group).await.is_err(),
        "a unit with a verdict does nothing more"
    );
    unit.back(Save::Group).await.unwrap();
    assert!(unit.verdict().is_none());
    let balance: i64 = sqlx::query_scalar("SELECT balance FROM wallet")
        .fetch_one(&mut unit.lend())
        .await
        .unwrap();
    assert_eq!(balance, 3);
    unit.back(Save::Claims).await.unwrap();
    let _lane = committed(unit).await;
    assert_eq!(world.count("SELECT count(*) FROM wallet", &[]).await, 0);
    assert_eq!(
        world.count("SELECT count(*) FROM semel_ledger", &[]).await,
        1,
        "the claim stands before the savepoint"
    );
}

#[tokio::test]
async fn t01_a_unit_whose_handler_swallowed_an_error_cannot_commit() {
    let world = World::open().await;
    world
        .sql("CREATE TABLE wallet (name TEXT PRIMARY KEY) STRICT")
        .await;
    let mut unit = world.unit().await;
    unit.claim(&[claim(key(1))]).await.unwrap();
    let _ = sqlx::query("INSERT INTO nowhere VALUES (1)")
        .execute(&mut unit.lend())
        .await;
    let Commit::RolledBack(fault) = unit.commit().await else {
        panic!("it must not commit")
    };
    assert_eq!(fault.class, Class::Poison);
    assert_eq!(
        world.count("SELECT count(*) FROM semel_ledger", &[]).await,
        0
    );
}

#[tokio::test]
async fn t18_keys_are_sixteen_bytes_and_never_null() {
    let world = World::open().await;
    for key in ["NULL", "7", "'0123456789abcdef'", "x'07'"] {
        let sql = format!(
            "INSERT INTO semel_ledger (consumer, key, fingerprint, scheme, field_sums, outcome, source) \
             VALUES (1, {key}, zeroblob(16), 1, x'', 1, 1)"
        );
        assert!(world.try_sql(&sql).await.is_err(), "{key}");
    }
    let fault = world
        .try_sql("INSERT INTO semel_source VALUES (99, 1, 'x')")
        .await
        .unwrap_err();
    assert!(
        fault.to_string().contains("FOREIGN KEY"),
        "foreign keys are on: {fault}"
    );
}

#[tokio::test]
async fn t25_a_unique_violation_of_a_users_table_is_never_seen() {
    let world = World::open().await;
    world
        .sql("CREATE TABLE bet (id BLOB PRIMARY KEY) STRICT")
        .await;
    world.sql("INSERT INTO bet VALUES (x'01')").await;
    let mut unit = world.unit().await;
    assert_eq!(
        unit.claim(&[claim(key(1))]).await.unwrap(),
        [Claimed::Fresh]
    );
    let error = sqlx::query("INSERT INTO bet VALUES (x'01')")
        .execute(&mut unit.lend())
        .await
        .unwrap_err();
    assert_eq!(semel_sqlite::classify(&error), Class::Poison);
    drop(unit);
    let mut unit = world.unit().await;
    assert_eq!(
        unit.claim(&[claim(key(1))]).await.unwrap(),
        [Claimed::Fresh]
    );
}

#[tokio::test]
async fn e097_a_ledger_row_that_breaks_another_rule_is_an_error_and_not_seen() {
    let world = World::open().await;
    // A rule that the claim breaks, where INSERT OR IGNORE would say "duplicate".
    world
        .sql(
            "CREATE TRIGGER strict BEFORE INSERT ON semel_ledger WHEN NEW.source = 2 \
         BEGIN INSERT INTO semel_source VALUES (NULL, NULL, NULL); END",
        )
        .await;
    let mut unit = world.unit().await;
    let fault = unit
        .claim(&[Claim {
            source: SourceId(2),
            ..claim(key(1))
        }])
        .await
        .unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    assert!(fault.detail().contains("NOT NULL"), "{fault}");
}

fn park(key: Key, kind: ClaimKind, due_in_ms: u64, deadline_in_ms: u64) -> Park {
    let mut message = Message::new(b"win".as_slice(), "ops", Some(4));
    message.headers = Arc::new([("a".to_owned(), Bytes::from_static(b"\x00b"))]);
    message.message_key = Some(Bytes::from_static(b"k"));
    message.timestamp_ms = Some(12);
    Park {
        key,
        id: "w-1".to_owned(),
        awaiting: Awaiting {
            kind: Code::new("round"),
            key: self::key(900),
        },
        message,
        source: SourceId(1),
        due_in_ms,
        deadline_in_ms,
        kind,
    }
}

fn parked_note(key: Key) -> Note {
    Note {
        key,
        outcome: Outcome::Parked,
        code: Some(Code::new("round")),
        reply: None,
    }
}

#[tokio::test]
async fn a_parked_message_comes_back_once_by_compare_and_set() {
    let world = World::open().await;
    let mut unit = world.unit().await;
    unit.claim(&[claim(key(1))]).await.unwrap();
    let record = Record {
        notes: vec![parked_note(key(1))],
        parks: vec![park(key(1), ClaimKind::New, 3_600_000, 7_200_000)],
        ..Record::default()
    };
    unit.write(&record).await.unwrap();
    let lane = committed(unit).await;

    assert!(world.parked(Which::Due(None)).await.is_empty());
    let parked = world.parked(Which::Awaiting(&[key(900)])).await;
    assert_eq!(parked.len(), 1);
    assert_eq!(
        parked[0].message.payload.as_deref(),
        Some(b"win".as_slice())
    );
    assert_eq!(parked[0].message.headers[0].1, Bytes::from_static(b"\x00b"));
    assert_eq!(parked[0].message.position.offset, Some(4));
    assert_eq!((parked[0].attempts, parked[0].last), (1, false));
    assert_eq!(world.parked(Which::Keys(&[key(1), key(2)])).await.len(), 1);
    assert_eq!(world.parked(Which::After(None)).await.len(), 1);
    assert!(world.parked(Which::After(Some(key(1)))).await.is_empty());

    // Parked again: one more try, another due time, the deadline stays (and has passed at once here).
    world.sql("UPDATE semel_parked SET deadline = 1").await;
    let released = Claim {
        kind: ClaimKind::Released,
        ..claim(key(1))
    };
    let mut unit = world.ledger.begin(lane).await.unwrap();
    assert_eq!(
        unit.claim(std::slice::from_ref(&released)).await.unwrap(),
        [Claimed::Fresh]
    );
    let again = Record {
        notes: vec![parked_note(key(1))],
        parks: vec![park(key(1), ClaimKind::Released, 0, 7_200_000)],
        ..Record::default()
    };
    unit.write(&again).await.unwrap();
    let lane = committed(unit).await;
    let due = world.parked(Which::Due(None)).await;
    assert_eq!((due[0].attempts, due[0].last), (2, true));

    // It ends; a second release of the same message finds that out.
    let mut unit = world.ledger.begin(lane).await.unwrap();
    unit.claim(std::slice::from_ref(&released)).await.unwrap();
    unit.write(&Record {
        unparks: vec![key(1)],
        ..Record::default()
    })
    .await
    .unwrap();
    let lane = committed(unit).await;
    let mut unit = world.ledger.begin(lane).await.unwrap();
    assert_eq!(unit.claim(&[released]).await.unwrap(), [Claimed::Ended]);
    assert!(world.parked(Which::After(None)).await.is_empty());
}

fn letter(hash: u8) -> Letter {
    Letter {
        key: None,
        id: None,
        code: Code::new("malformed"),
        detail: "not JSON".to_owned(),
        field: None,
        hash: [hash; 16],
        attempts: 0,
        source: SourceId(1),
        message: Message::new(b"{".as_slice(), "ops", Some(9)),
    }
}

#[tokio::test]
async fn a_redelivered_dead_message_adds_a_count_and_no_letter() {
    let world = World::open().await;
    let mut unit = world.unit().await;
    let record = Record {
        letters: vec![letter(1), letter(1), letter(2)],
        ..Record::default()
    };
    assert_eq!(unit.write(&record).await.unwrap().new_letters, 2);
    let lane = committed(unit).await;
    let mut unit = world.ledger.begin(lane).await.unwrap();
    assert_eq!(unit.write(&record).await.unwrap().new_letters, 0);
    let _lane = committed(unit).await;
    assert_eq!(world.count("SELECT count(*) FROM semel_dead", &[]).await, 2);
    assert_eq!(
        world.count("SELECT max(count) FROM semel_dead", &[]).await,
        4
    );
}

#[tokio::test]
async fn sightings_count_and_positions_only_rise() {
    let world = World::open().await;
    let sighting = |count| Sighting {
        key: key(1),
        source: SourceId(1),
        kind: SightingKind::Duplicate,
        count,
        partition: Arc::from("ops"),
        offset: Some(5),
    };
    let reached = |next, mark: &'static [u8]| Reached {
        source: SourceId(1),
        partition: Arc::from("ops"),
        next,
        mark: Bytes::from_static(mark),
    };
    let mut lane = world.ledger.connect(world.lane).await.unwrap();
    for (next, mark) in [(5, b"five".as_slice()), (3, b"three"), (8, b"eight")] {
        let mut unit = world.ledger.begin(lane).await.unwrap();
        let record = Record {
            sightings: vec![sighting(2)],
            positions: vec![reached(next, mark)],
            ..Record::default()
        };
        unit.write(&record).await.unwrap();
        lane = committed(unit).await;
        let positions = world
            .ledger
            .positions(world.consumer, SourceId(1))
            .await
            .unwrap();
        assert_eq!(
            positions,
            [if next == 8 {
                reached(8, b"eight")
            } else {
                reached(5, b"five")
            }]
        );
    }
    assert_eq!(
        world.count("SELECT count FROM semel_sighting", &[]).await,
        6
    );
}

#[tokio::test]
async fn attempts_are_counted_and_forgotten() {
    let world = World::open().await;
    let mut unit = world.unit().await;
    assert_eq!(unit.attempt(&[key(1), key(2)]).await.unwrap(), [1, 1]);
    assert_eq!(unit.attempt(&[key(2), key(3)]).await.unwrap(), [2, 1]);
    unit.write(&Record {
        settled_attempts: vec![key(2)],
        ..Record::default()
    })
    .await
    .unwrap();
    assert_eq!(unit.attempt(&[key(2)]).await.unwrap(), [1]);
}

#[tokio::test]
async fn t79_a_consumer_has_one_owner_and_its_key_rules_do_not_change_unseen() {
    let world = World::open().await;
    let first = world::enrolment();
    let again = world.ledger.enroll(&first).await.unwrap();
    assert_eq!(again.consumer, world.consumer);
    let more = Enrolment {
        sources: vec!["b".to_owned(), "a".to_owned()],
        ..first.clone()
    };
    assert_eq!(
        world.ledger.enroll(&more).await.unwrap().sources,
        [SourceId(2), SourceId(1)]
    );

    let other = Enrolment {
        handler: "other".to_owned(),
        ..first.clone()
    };
    let fault = world.ledger.enroll(&other).await.unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    assert!(
        fault.detail().contains("`wallet`") && fault.detail().contains("`other`"),
        "{fault}"
    );

    let changed = Enrolment {
        rules: Fingerprint::of_bytes(b"new"),
        ..first.clone()
    };
    let fault = world.ledger.enroll(&changed).await.unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    assert!(fault.detail().contains("--accept-key-change"), "{fault}");
    world
        .ledger
        .enroll(&Enrolment {
            accept_key_change: true,
            ..changed.clone()
        })
        .await
        .unwrap();
    world.ledger.enroll(&changed).await.unwrap();
}

#[tokio::test]
async fn two_processes_may_open_and_enroll_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", dir.path().join("new.db").display());
    let open = |url: String| async move {
        let ledger = SqliteLedger::open(Options::new(url)).await.unwrap();
        ledger.enroll(&world::enrolment()).await.unwrap().consumer
    };
    let all = (0..8).map(|_| tokio::spawn(open(url.clone())));
    let ids = futures_util::future::join_all(all).await;
    let ids: Vec<_> = ids.into_iter().map(Result::unwrap).collect();
    assert!(ids.iter().all(|id| *id == ids[0]));
}

#[tokio::test]
async fn t16_e095_workers_that_read_and_then_write_meet_no_busy_error() {
    for workers in [2_i16, 8] {
        let world = Arc::new(World::open().await);
        world
            .sql("CREATE TABLE wallet (id INTEGER PRIMARY KEY, balance INTEGER) STRICT")
            .await;
        world.sql("INSERT INTO wallet VALUES (1, 0)").await;
        let work = (0..workers).map(|worker| {
            let world = world.clone();
            tokio::spawn(async move {
                let id = semel_core::ledger::LaneId {
                    lane: worker,
                    ..world.lane
                };
                let mut lane = world.ledger.connect(id).await.unwrap();
                for n in 0..25_u32 {
                    let mut unit = world.ledger.begin(lane).await.unwrap();
                    unit.claim(&[claim(key(u32::from(worker.unsigned_abs()) * 1000 + n))])
                        .await
                        .unwrap();
                    let balance: i64 = sqlx::query_scalar("SELECT balance FROM wallet")
                        .fetch_one(&mut unit.lend())
                        .await
                        .unwrap();
                    sqlx::query("UPDATE wallet SET balance = ?1")
                        .bind(balance + 1)
                        .execute(&mut unit.lend())
                        .await
                        .unwrap();
                    lane = committed(unit).await;
                }
                world.ledger.leave(lane).await.unwrap();
            })
        });
        for done in futures_util::future::join_all(work).await {
            done.unwrap();
        }
        let balance = world.count("SELECT balance FROM wallet", &[]).await;
        assert_eq!(balance, i64::from(workers) * 25);
        assert_eq!(
            world.count("SELECT count(*) FROM semel_fence", &[]).await,
            0,
            "clean stops leave no fence"
        );
    }
}

#[tokio::test]
async fn a_query_streams_values_by_their_type_and_stops_when_told() {
    let world = World::open().await;
    let mut seen = Vec::new();
    let sql = "SELECT 1, 'a', x'00ff', NULL UNION ALL SELECT 2, 'b', x'', NULL UNION ALL SELECT 3, 'c', x'', NULL";
    world
        .ledger
        .query(sql, &[], &mut |row| {
            seen.push(row.to_vec());
            seen.len() < 2
        })
        .await
        .unwrap();
    assert_eq!(seen.len(), 2);
    assert_eq!(
        seen[0],
        [
            Value::Int(1),
            Value::Text("a".into()),
            Value::Bytes(Bytes::from_static(b"\x00\xff")),
            Value::Null
        ]
    );
    let fault = world
        .ledger
        .query("SELECT nonsense", &[], &mut |_| true)
        .await
        .unwrap_err();
    assert_eq!(fault.class, Class::Poison);
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_down_and_named() {
    let fault = SqliteLedger::open(Options::new("sqlite:/nowhere/at/all/semel.db"))
        .await
        .unwrap_err();
    assert_eq!(fault.class, Class::Down);
    assert!(
        fault.detail().contains("/nowhere/at/all/semel.db") && fault.detail().contains("folder"),
        "{fault}"
    );

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text.db");
    std::fs::write(
        &path,
        "this is no database, whatever its name says; it is longer than a header",
    )
    .unwrap();
    let fault = SqliteLedger::open(Options::new(format!("sqlite:{}", path.display())))
        .await
        .unwrap_err();
    assert_eq!(fault.class, Class::Stop, "{fault}");
}

#[tokio::test]
async fn fences_of_lives_that_crashed_a_week_ago_are_deleted_at_the_next_start() {
    let world = World::open().await;
    let _lane = committed(world.unit().await).await;
    let count = "SELECT count(*) FROM semel_fence";
    world.ledger.enroll(&world::enrolment()).await.unwrap();
    assert_eq!(world.count(count, &[]).await, 1, "a live one stays");
    world
        .sql("UPDATE semel_fence SET seen_at = seen_at - 8 * 86400000000")
        .await;
    world.ledger.enroll(&world::enrolment()).await.unwrap();
    assert_eq!(world.count(count, &[]).await, 0);
}
