//! How the program ends when it cannot go on: one exit code for one kind of reason, on every database and broker.

use std::io::{BufRead, BufReader};
use std::process::ChildStdout;

use serde_json::{Value, json};

use crate::place::{Backend, OPENING, Place, on_both};
use crate::run::waiting;

on_both!(
    what_is_not_known_is_exit_code_1,
    a_ledger_that_lost_a_table_is_exit_code_3,
    tables_that_need_a_newer_program_are_exit_code_4,
    a_stop_in_mid_run_prints_what_was_done,
);

fn sqlite() -> Place {
    Place::new(Backend::Sqlite)
}

fn what_is_not_known_is_exit_code_1(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING);
    place.drained(&[]);
    for command in [
        &["dead", "show", "1"][..],
        &["dead", "show", "0190d6f3-79f9-7000-8000-0000deadbeef"],
        &["show", "nothing"],
        &["balance", "nobody"],
        &["statement", "nobody"],
        &["round", "none"],
    ] {
        let ran = place.semel(command);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (1, ""),
            "{command:?}: {ran:?}"
        );
    }
}

#[test]
fn a_url_that_cannot_work_is_exit_code_2_in_every_command_but_check() {
    for (url, schema) in [
        ("postgres://u:p@127.0.0.1:99999/d", "public"),
        ("postgres:u:p@h/d", "public"),
        ("postgres://u:p@h/d?sslmod=require", "public"),
        ("sqlite::memory:", "public"),
        ("mysql://u:p@h/d", "public"),
        // The server would cut it to 63 bytes, and two names would be one schema.
        ("postgres://u:p@127.0.0.1:1/d", &"s".repeat(64)),
    ] {
        let place = sqlite();
        place.wallet("");
        place.write("ops.jsonl", "");
        let config = place.read("semel.toml").replace(
            "sqlite:semel.db\"",
            &format!("{url}\"\nschema = \"{schema}\""),
        );
        place.write("semel.toml", config);
        for command in [
            &["run", "--until-idle"][..],
            &["migrate"],
            &["migrate", "--dry-run"],
            &["audit"],
            &["dead", "list"],
            &["show", "x"],
        ] {
            let ran = place.semel(command);
            assert_eq!(ran.code, 2, "{url} {command:?}: {ran:?}");
        }
        let check = place.json(&["check"]);
        assert_eq!(
            (check.code, &check.object()["ok"]),
            (1, &json!(false)),
            "{url}"
        );
    }
}

fn a_ledger_that_lost_a_table_is_exit_code_3(place: Place) {
    place.wallet("");
    place.write("ops.jsonl", "");
    place.semel(&["migrate"]).ok();
    place.sql("ALTER TABLE semel_consumer RENAME TO lost");
    for command in [&["dead", "list"][..], &["run", "--until-idle"]] {
        let ran = place.semel(command);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (3, ""),
            "{command:?}: {ran:?}"
        );
    }
}

#[test]
fn a_file_that_is_no_database_is_exit_code_3() {
    let place = sqlite();
    place.wallet("");
    place.write("ops.jsonl", "");
    place.write("semel.db", "this is a letter and no database\n".repeat(200));
    for command in [&["run", "--until-idle"][..], &["migrate"], &["audit"]] {
        let ran = place.semel(command);
        assert_eq!(ran.code, 3, "{command:?}: {ran:?}");
        assert!(ran.err.contains("not a SQLite database"), "{}", ran.err);
    }
}

#[test]
fn a_topic_or_queue_that_is_not_there_is_exit_code_3() {
    let rabbitmq = std::env::var("SEMEL_TEST_RABBITMQ_URL")
        .expect("SEMEL_TEST_RABBITMQ_URL is not set: run scripts/test");
    let kafka = std::env::var("SEMEL_TEST_KAFKA_BROKERS")
        .expect("SEMEL_TEST_KAFKA_BROKERS is not set: run scripts/test");
    let none = format!("semel-none-{}", std::process::id());
    for source in [
        format!("type = \"rabbitmq\"\nurl = \"{rabbitmq}\"\nqueue = \"{none}\""),
        format!(
            "type = \"kafka\"\nbrokers = [\"{kafka}\"]\ntopics = [\"{none}\"]\ngroup = \"g\"\nstart_at = \"earliest\""
        ),
    ] {
        let place = sqlite();
        place.config(&format!(
            "[sources.gone]\n{source}\n[consumers.wallet]\nsources = [\"gone\"]\nhandler = \"wallet\"\n\
             [consumers.wallet.wallet]\nassets = {{ EUR = 2 }}\n"
        ));
        let ran = place.semel(&["run", "--until-idle"]);
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{ran:?}");
        assert!(ran.err.contains(&none), "{}", ran.err);
    }
}

fn tables_that_need_a_newer_program_are_exit_code_4(place: Place) {
    place.wallet("");
    place.write("ops.jsonl", "");
    place.semel(&["migrate"]).ok();
    // The row of a migration that this program knows, marked by a newer one.
    place.sql("UPDATE semel_schema SET min_binary = 99 WHERE part = 'semel' AND version = 1");
    for command in [&["run", "--until-idle"][..], &["migrate"], &["audit"]] {
        let ran = place.semel(command);
        assert_eq!(ran.code, 4, "{command:?}: {ran:?}");
        assert!(ran.err.contains("run a newer program"), "{}", ran.err);
    }
}

fn summary(out: &mut BufReader<ChildStdout>) -> Value {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

fn a_stop_in_mid_run_prints_what_was_done(place: Place) {
    let (child, mut out) = waiting(&place);
    // Lost commits, as after a restore: the fence says less than what was confirmed.
    place.sql("UPDATE semel_fence SET unit = 0");
    place.semel(&["publish", "inbox", "ops.jsonl"]).ok();
    assert_eq!(summary(&mut out)["consumers"][0]["messages"], 1);
    let ended = child.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(4), "{err}");
    assert!(err.contains("lost commits"), "{err}");
}

#[test]
fn a_database_file_deleted_or_replaced_under_a_consumer_stops_it() {
    for replaced in [false, true] {
        let place = sqlite();
        let (child, mut out) = waiting(&place);
        let (file, away) = (place.path().join("semel.db"), place.path().join("away.db"));
        std::fs::copy(&file, &away).unwrap();
        if replaced {
            std::fs::rename(&away, &file).unwrap();
        } else {
            std::fs::remove_file(&file).unwrap();
        }
        // Nothing more comes: it is noticed all the same.
        assert_eq!(summary(&mut out)["consumers"][0]["messages"], 1);
        let ended = child.wait_with_output().unwrap();
        let err = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(4), "{err}");
        let what = if replaced {
            "was replaced"
        } else {
            "was deleted"
        };
        assert!(err.contains(what), "{err}");
    }
}

#[test]
fn a_full_standard_output_ends_a_run_like_a_full_outcomes_file() {
    let place = sqlite();
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = place.command(&["run", "--until-idle", "--outcomes", "-", "--json"]);
    let ended = command.stdout(full.unwrap()).output().unwrap();
    assert_eq!(ended.status.code(), Some(4));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("--outcomes"), "{said}");
}

#[test]
fn an_outcomes_file_that_takes_no_more_ends_the_run_with_exit_code_4_and_loses_nothing() {
    let place = sqlite();
    place.wallet("");
    let open =
        |i: u32| format!(r#"{{"op":"open_account","id":"o{i}","account":"a{i}","asset":"EUR"}}"#);
    place.write_lines("ops.jsonl", (0..3_000).map(open));
    let ran = place.json(&["run", "--until-idle", "--outcomes", "/dev/full"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("--outcomes"), "{}", ran.err);
    let done = ran.object()["consumers"][0]["messages"].as_u64().unwrap();
    let (lines, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["applied"], json!(3_000 - done));
    assert_eq!(lines.len() as u64, 3_000 - done);
}
