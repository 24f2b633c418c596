//! A database that was restored to an earlier state under a Kafka source: the consumer stops, the doctor explains, a
//! rewind repairs, and no crash looks like it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use crate::brokers::{Rabbit, Topic};
use crate::doctor::{codes, doctor, wallet_of};
use crate::place::{Backend, OPENING, Place, on_both};
use crate::run::signal;
use crate::schema::assert_fits;

on_both!(
    crashes_and_starts_again_and_again_raise_no_alarm,
    what_was_acked_elsewhere_cannot_be_read_again_and_says_so,
);

/// Copies every table of the place's schema into another schema, or back from it.
fn copy(place: &Place, back: bool) {
    let schema = place.schema().unwrap();
    let kept = format!("{schema}_kept");
    let act = if back {
        format!(
            "EXECUTE format('INSERT INTO {schema}.%1$I OVERRIDING SYSTEM VALUE SELECT * FROM {kept}.%1$I', name);"
        )
    } else {
        format!("EXECUTE format('CREATE TABLE {kept}.%1$I AS TABLE {schema}.%1$I', name);")
    };
    let before = if back {
        // Foreign keys are not checked while rows come in the order of names.
        format!(
            "SET session_replication_role = replica;
             DO $$ DECLARE name text; BEGIN FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' LOOP
                 EXECUTE format('DELETE FROM {schema}.%I', name); END LOOP; END $$;"
        )
    } else {
        format!("CREATE SCHEMA {kept};")
    };
    place.sql(&format!(
        "{before}
         DO $$ DECLARE name text; BEGIN FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' LOOP
             {act} END LOOP; END $$;"
    ));
}

fn transfer(id: usize) -> String {
    format!(
        r#"{{"op":"transfer","id":"t{id}","debit":"p1","credit":"p2","asset":"EUR","amount":"1"}}"#
    )
}

#[test]
fn a_database_that_was_restored_is_noticed_explained_and_repaired() {
    let place = Place::new(Backend::Postgres);
    let topic = Topic::with("restored", &[]);
    place.config(&wallet_of("ops", &topic.source("ops"), "lanes = 2"));
    topic.produce(OPENING);
    topic.produce((0..20).map(transfer));
    place.drained(&[]);
    copy(&place, false);
    topic.produce((20..50).map(transfer));
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["applied"], 30);
    assert_eq!(codes(&doctor(&place)), [""; 0]);
    let nothing = place.json(&["rewind", "ops", "--yes"]).ok().object();
    assert_eq!(
        (&nothing["done"], &nothing["steps"]),
        (&json!(false), &json!([]))
    );

    copy(&place, true);
    let stopped = place.semel(&["run", "--until-idle"]);
    assert_eq!(stopped.code, 4, "{stopped:?}");
    for part in ["55", "25", "lost commits", "semel doctor", "semel rewind"] {
        assert!(stopped.err.contains(part), "{part}: {}", stopped.err);
    }
    let said = doctor(&place);
    assert_eq!(codes(&said), ["SEMEL-0601"], "{said:#}");
    let position = &said["positions"][0];
    assert_eq!(
        (&position["ledger"], &position["broker"]),
        (&json!(25), &json!(55))
    );

    let unsaid = place.semel(&["rewind", "ops"]);
    assert_eq!(unsaid.code, 2, "{unsaid:?}");
    assert!(unsaid.err.contains("--yes"), "{}", unsaid.err);
    let planned = place.json(&["rewind", "ops", "--dry-run"]).ok().object();
    assert_fits("rewind", &planned);
    let partition = format!("{}/0", topic.name);
    let step =
        json!({ "partition": partition, "ledger": null, "broker": { "from": 55, "to": 25 } });
    assert_eq!(
        (&planned["done"], &planned["steps"]),
        (&json!(false), &json!([step]))
    );
    assert_eq!(
        codes(&doctor(&place)),
        ["SEMEL-0601"],
        "a dry run changes nothing"
    );
    let because = ["--who", "alice", "--why", "the restore"];
    let done = place
        .json(&[&["rewind", "ops", "--yes"][..], &because].concat())
        .ok()
        .object();
    assert_eq!(
        (&done["done"], &done["steps"]),
        (&json!(true), &json!([step]))
    );

    let said = doctor(&place);
    assert_eq!(codes(&said), [""; 0]);
    let acts = said["acts"].as_array().unwrap();
    let [act] = &acts[..] else {
        panic!("one act, and no dry run: {said}");
    };
    assert_eq!(
        (&act["act"], &act["consumer"], &act["who"], &act["why"]),
        (
            &json!("rewind"),
            &json!("wallet"),
            &json!("alice"),
            &json!("the restore")
        )
    );
    let mut noted = step.clone();
    noted["source"] = json!("ops");
    assert_eq!(act["detail"], noted);
    let words = place.semel(&["doctor"]).ok().out;
    assert!(
        words.contains("rewind of `wallet` by alice (the restore)"),
        "{words}"
    );
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["applied"], 30, "{summary}");
    for (account, balance) in [("p1", "950"), ("p2", "50"), ("bank", "-1000")] {
        let shown = place.json(&["balance", account]).ok().object();
        assert_eq!(shown["posted"], balance, "{account}");
    }
    place.semel(&["audit"]).ok();
    place.sql(&format!(
        "DROP SCHEMA {}_kept CASCADE",
        place.schema().unwrap()
    ));
}

#[test]
fn a_database_restored_to_before_its_first_unit_stops_and_is_read_again_from_a_named_place() {
    let place = Place::new(Backend::Sqlite);
    let topic = Topic::with("forgotten", &[]);
    let source = topic.source("ops").replace("earliest", "latest");
    place.config(&wallet_of("ops", &source, ""));
    place.drained(&[]);
    topic.produce(OPENING);
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["applied"], 5, "{summary}");
    for file in ["semel.db", "semel.db-wal", "semel.db-shm"] {
        let removed = std::fs::remove_file(place.path().join(file));
        assert!(removed.is_ok() || file != "semel.db", "{removed:?}");
    }
    let stopped = place.semel(&["run", "--until-idle"]);
    assert_eq!(stopped.code, 4, "{stopped:?}");
    for part in ["offset 5", "no position", "--to OFFSET"] {
        assert!(stopped.err.contains(part), "{part}: {}", stopped.err);
    }
    // Of the house that a new ledger lacks it warns, too.
    let disagrees = || {
        let said = place.json(&["doctor"]).object();
        codes(&said).contains(&"SEMEL-0601".to_owned())
    };
    assert!(disagrees());
    for (args, words) in [
        (&[][..], "0 at the earliest and 5 at the latest"),
        (&["--to", "6"], "beyond the group's offset 5"),
    ] {
        let refused = place.semel(&[&["rewind", "ops", "--yes"], args].concat());
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains(words), "{}", refused.err);
    }
    // `earliest` reads all of it anyway, and says so.
    let config = std::fs::read_to_string(place.path().join("semel.toml")).unwrap();
    let write = |config: &str| std::fs::write(place.path().join("semel.toml"), config).unwrap();
    write(&config.replace("latest", "earliest"));
    let refused = place.semel(&["rewind", "ops", "--to", "1", "--yes"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.err.contains("reads all of it anyway, from 0"),
        "{}",
        refused.err
    );
    assert!(disagrees(), "a warning");
    write(&config);
    let words = place
        .semel(&["rewind", "ops", "--to", "0", "--yes"])
        .ok()
        .out;
    assert!(words.contains("from 5 to 0"), "{words}");
    assert!(!disagrees());
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["applied"], 5, "{summary}");
}

#[test]
fn a_topic_made_again_under_a_run_is_not_forgotten_by_a_clean_stop() {
    let place = Place::new(Backend::Sqlite);
    let topic = Topic::with("remade", &[]);
    place.config(&wallet_of("ops", &topic.source("ops"), ""));
    topic.produce(OPENING);
    let mut child = place
        .command(&["run", "--outcomes", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut lines = |count| {
        for _ in 0..count {
            assert!(out.read_line(&mut String::new()).unwrap() > 0);
        }
    };
    lines(OPENING.len());
    topic.make_again();
    topic.produce((0..10).map(transfer));
    // It goes on behind the old topic's five.
    lines(1);
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(place.semel(&["run", "--until-idle"]).code, 4);
    let one = format!("{}/0", topic.name);
    let refused = place.semel(&["rewind", "ops", "--partition", &one, "--yes"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.err.contains("without --partition"),
        "{}",
        refused.err
    );
    place.semel(&["rewind", "ops", "--yes"]).ok();
    place.drained(&[]);
    let shown = place.json(&["balance", "p2"]).ok().object();
    assert_eq!(shown["posted"], "10");
}

/// As when a topic of several partitions is made again, of which some never had a record.
#[test]
fn an_alarmed_partition_without_a_position_is_rewound_to_its_beginning() {
    let place = Place::new(Backend::Sqlite);
    let topic = Topic::with("alarmed", &[]);
    place.config(&wallet_of("ops", &topic.source("ops"), ""));
    place.drained(&[]);
    topic.alarm();
    topic.produce(OPENING);
    let stopped = place.semel(&["run", "--until-idle"]);
    assert_eq!(stopped.code, 4, "{stopped:?}");
    assert!(stopped.err.contains("semel rewind"), "{}", stopped.err);
    let beyond = place.semel(&["rewind", "ops", "--to", "6", "--yes"]);
    assert_eq!(beyond.code, 2, "{beyond:?}");
    assert!(
        beyond.err.contains("the partition's end 5"),
        "{}",
        beyond.err
    );
    let done = place.json(&["rewind", "ops", "--yes"]).ok().object();
    assert_eq!(done["steps"][0]["broker"], json!({ "from": 0, "to": 0 }));
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["applied"], 5, "{summary}");
}

/// Half of each round's records is handled on four lanes when the run dies by SIGKILL.
fn crashes_and_starts_again_and_again_raise_no_alarm(place: Place) {
    let rounds = match std::env::var("SEMEL_STORM").as_deref() {
        Ok("long") => 50,
        Err(_) | Ok("" | "short") => 8,
        Ok(other) => panic!("SEMEL_STORM={other}: say `long` or `short`"),
    };
    let topic = Topic::with("crashes", &[]);
    place.config(&wallet_of(
        "ops",
        &topic.source("ops"),
        "lanes = 4\nlane = \"/id\"\nbatch_count_max = 5",
    ));
    // One at a time: on four lanes money could come before its account.
    let more = r#"{"op":"transfer","id":"fund-more","debit":"bank","credit":"p1","asset":"EUR","amount":"5000"}"#;
    for operation in OPENING.into_iter().chain([more]) {
        topic.produce([operation]);
        place.drained(&[]);
    }
    for round in 0..rounds {
        topic.produce((round * 40..(round + 1) * 40).map(transfer));
        let mut child = place
            .command(&["run", "--outcomes", "-"])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        for _ in 0..20 {
            assert!(
                out.read_line(&mut String::new()).unwrap() > 0,
                "round {round}"
            );
        }
        if round == 0 {
            let refused = place.semel(&["rewind", "ops", "--yes"]);
            assert_eq!(refused.code, 4, "it runs: {refused:?}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let said = doctor(&place);
        let mut alarms = codes(&said);
        // That runs ended without a goodbye is true.
        alarms.retain(|code| code != "SEMEL-0607");
        assert_eq!(alarms, [""; 0], "round {round}: {said:#}");
    }
    place.drained(&[]);
    let shown = place.json(&["balance", "p2"]).ok().object();
    assert_eq!(shown["posted"], (rounds * 40).to_string());
    place.semel(&["audit"]).ok();
}

#[test]
fn a_topic_is_read_again_from_a_place_before_the_ledgers_position_and_never_skipped() {
    let place = Place::new(Backend::Sqlite);
    let topic = Topic::with("again", &[]);
    place.config(&wallet_of("ops", &topic.source("ops"), ""));
    topic.produce(OPENING);
    place.drained(&[]);
    let partition = format!("{}/0", topic.name);
    for (args, words) in [
        (&["--to", "6"][..], "beyond the ledger's position 5"),
        (
            &["--to", "1", "--partition", "other/0"],
            "has no partition `other/0`",
        ),
        (&["--to", "1", "--consumer", "walet"], "does not read"),
    ] {
        let ran = place.semel(&[&["rewind", "ops", "--yes"], args].concat());
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
    let words = place
        .semel(&[
            "rewind",
            "ops",
            "--to",
            "2",
            "--partition",
            &partition,
            "--yes",
        ])
        .ok()
        .out;
    assert!(
        words.contains("the broker's position from 5 to 2"),
        "{words}"
    );
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["duplicate"], 3, "{summary}");
    // And once more from nothing: the topic made again is read from its first record.
    topic.make_again();
    topic.produce(&OPENING[..2]);
    assert_eq!(place.semel(&["run", "--until-idle"]).code, 4);
    assert_eq!(codes(&doctor(&place)), ["SEMEL-0601"]);
    let because = ["--who", "alice", "--why", "the restore"];
    let done = place
        .json(&[&["rewind", "ops", "--yes"][..], &because].concat())
        .ok()
        .object();
    assert_eq!(done["steps"][0]["ledger"], json!({ "from": 5, "to": 0 }));
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["duplicate"], 2, "{summary}");
}

fn what_was_acked_elsewhere_cannot_be_read_again_and_says_so(place: Place) {
    let rabbit = Rabbit::queue("rewind");
    let queue = "[sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\n";
    for (name, source) in [("inbox", queue), ("bets", &rabbit.source("bets"))] {
        place.config(&wallet_of(name, source, ""));
        place.semel(&["migrate"]).ok();
        let ran = place.semel(&["rewind", name, "--yes"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains("Publish it again"), "{}", ran.err);
    }
    let ran = place.semel(&["rewind", "bet", "--yes"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("did you mean `bets`?"), "{}", ran.err);
}
