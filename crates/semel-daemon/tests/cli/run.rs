//! Running: ends, signals, several at once, what a run may cost.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::place::{Backend, OPENING, Place, on_both};

on_both!(
    two_processes_at_once_apply_each_operation_once,
    two_consumers_of_one_config_run_at_once,
    a_queue_carries_what_was_published_to_it,
    a_changed_key_rule_stops_until_it_is_accepted,
    a_changed_scale_stops_before_anything_is_booked,
    fail_on_makes_outcomes_an_exit_code,
);

fn two_processes_at_once_apply_each_operation_once(place: Place) {
    place.wallet("");
    let transfer = |i: u32| {
        format!(
            r#"{{"op":"transfer","id":"t{i}","debit":"bank","credit":"p1","asset":"EUR","amount":"1"}}"#
        )
    };
    place.write_lines(
        "ops.jsonl",
        OPENING
            .iter()
            .map(|line| (*line).to_owned())
            .chain((0..500).map(transfer)),
    );
    let start = || {
        place
            .command(&["run", "--until-idle", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let outputs = [start(), start()].map(|child: Child| child.wait_with_output().unwrap());
    let applied: u64 = outputs
        .iter()
        .map(|output| {
            assert!(output.status.success(), "{output:?}");
            let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
            summary["consumers"][0]["outcomes"]["applied"]
                .as_u64()
                .unwrap()
        })
        .sum();
    assert_eq!(applied, 505, "each operation is applied by one of them");
    assert_eq!(
        place.json(&["balance", "p1"]).ok().object()["posted"],
        "1500"
    );
    assert_eq!(place.json(&["audit"]).ok().object()["ok"], true);
}

fn two_consumers_of_one_config_run_at_once(place: Place) {
    place.config(
        "[sources.ops]\ntype = \"file\"\npaths = [\"ops.jsonl\"]\n\
         [sources.more]\ntype = \"file\"\npaths = [\"more.jsonl\"]\n\
         [consumers.a]\nsources = [\"ops\"]\nhandler = \"wallet\"\n[consumers.a.wallet]\nassets = { EUR = 2 }\n\
         [consumers.b]\nsources = [\"more\"]\nhandler = \"wallet\"\n[consumers.b.wallet]\nassets = { EUR = 2 }\n",
    );
    place.write_lines("ops.jsonl", OPENING);
    place.write_lines(
        "more.jsonl",
        [r#"{"op":"open_account","id":"x","account":"x","asset":"EUR"}"#],
    );
    let report = place.json(&["run", "--until-idle"]).ok().object();
    let counts: Vec<(Value, Value)> = report["consumers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["name"].clone(), c["messages"].clone()))
        .collect();
    assert_eq!(counts, [(json!("a"), json!(5)), (json!("b"), json!(1))]);
    let shown = place.json(&["show", "x"]).ok().object();
    assert_eq!(shown["consumer"], "b");
}

fn a_queue_carries_what_was_published_to_it(place: Place) {
    place.config(
        "[sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\n\
         [consumers.wallet]\nsources = [\"inbox\"]\nhandler = \"wallet\"\n[consumers.wallet.wallet]\nassets = { EUR = 2 }\n",
    );
    place.write_lines(
        "ops.jsonl",
        OPENING
            .into_iter()
            .chain(["no json", "", OPENING[0], r#"{"op":"freeze"}"#]),
    );
    let ran = place.json(&["publish", "inbox", "ops.jsonl"]).ok();
    assert_eq!(ran.out, "{\"published\":8}\n");
    for told in [
        "are no JSON objects: their consumer will say dead(malformed)",
        "have no usable key: their consumer will say dead(no_key)",
    ] {
        assert!(
            ran.err.contains(&format!("1 of the messages {told}")),
            "{}",
            ran.err
        );
    }
    let (lines, summary) = place.drained(&[]);
    assert_eq!(
        summary["outcomes"],
        json!({ "applied": 5, "ignored": 0, "refused": 0, "duplicate": 1, "parked": 0, "dead": 2 })
    );
    assert_eq!(lines[0]["partition"], "inbox");
    assert!(
        lines.iter().all(|line| line["position"].is_u64()),
        "{lines:?}"
    );
    let (lines, _) = place.drained(&[]);
    assert!(lines.is_empty(), "what was acked is gone");
    let fed = place.fed(
        &["publish", "inbox", "-", "--json"],
        &format!("{}\n", OPENING[1]),
    );
    assert_eq!(fed.ok().out, "{\"published\":1}\n");
    let ran = place.semel(&["publish", "inbex", "ops.jsonl"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("did you mean `inbox`?"), "{}", ran.err);
}

fn a_changed_key_rule_stops_until_it_is_accepted(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING);
    place.drained(&[]);
    place.wallet("key = \"lower(/id)\"");
    let ran = place.semel(&["run", "--until-idle"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(
        ran.err.contains("semel migrate --accept-key-change"),
        "{}",
        ran.err
    );
    place.semel(&["migrate", "--accept-key-change"]).ok();
    place.drained(&[]);
}

fn a_changed_scale_stops_before_anything_is_booked(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING);
    place.drained(&[]);
    let config = place.read("semel.toml");
    place.write("semel.toml", config.replace("EUR = 2", "EUR = 0"));
    place.write_lines(
        "ops.jsonl",
        OPENING.into_iter().chain([
            r#"{"op":"transfer","id":"later","debit":"bank","credit":"p1","asset":"EUR","value":"1"}"#,
        ]),
    );
    let ran = place.semel(&["run", "--until-idle"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(
        ran.err.contains(
            "asset EUR is recorded with 2 digits behind the point, and the config gives it 0"
        ),
        "{}",
        ran.err
    );
    let posted = |place: &Place| place.json(&["balance", "p1"]).ok().object()["posted"].clone();
    assert_eq!(posted(&place), "1000");
    place.write("semel.toml", config);
    place.drained(&[]);
    assert_eq!(posted(&place), "1100");
}

fn fail_on_makes_outcomes_an_exit_code(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING.into_iter().chain(["broken"]));
    assert_eq!(
        place
            .semel(&["run", "--until-idle", "--fail-on", "clash"])
            .code,
        0
    );
    let clash = OPENING[4].replace("1000", "1");
    place.write_lines("ops.jsonl", OPENING.into_iter().chain(["broken", &clash]));
    assert_eq!(
        place
            .semel(&["run", "--until-idle", "--fail-on", "dead,clash"])
            .code,
        1
    );
    assert_eq!(
        place
            .semel(&["run", "--until-idle", "--fail-on", "dead"])
            .code,
        0,
        "nothing new ended so"
    );
}

#[test]
fn standard_input_is_a_source() {
    let place = Place::new(Backend::Sqlite);
    place.config(
        "[sources.pipe]\ntype = \"stdin\"\n\
         [consumers.wallet]\nsources = [\"pipe\"]\nhandler = \"wallet\"\n[consumers.wallet.wallet]\nassets = { EUR = 2 }\n",
    );
    let input: String = OPENING.iter().map(|line| format!("{line}\n")).collect();
    let ran = place
        .fed(&["run", "--json", "--outcomes", "-"], &input)
        .ok();
    let lines = ran.lines();
    assert_eq!(
        (&lines[4]["partition"], &lines[4]["position"]),
        (&json!("stdin"), &json!(5))
    );
    assert_eq!(
        lines[5]["consumers"][0]["outcomes"]["applied"], 5,
        "without --until-idle, the end of the input is the end"
    );
}

#[test]
fn csv_records_are_messages_too() {
    let place = Place::new(Backend::Sqlite);
    place.config(
        "[sources.ops]\ntype = \"file\"\npaths = [\"ops.csv\"]\n\
         [consumers.wallet]\nsources = [\"ops\"]\nhandler = \"wallet\"\n[consumers.wallet.wallet]\nassets = { EUR = 2 }\n",
    );
    place.write(
        "ops.csv",
        "op,id,account,asset,kind,debit,credit,amount,value\n\
         open_account,a,p1,EUR,external,,,,\nopen_account,b,p2,EUR,,,,,\ntransfer,t,,EUR,,p1,p2,5,\n",
    );
    let (lines, _) = place.drained(&[]);
    let outcomes: Vec<&Value> = lines.iter().map(|line| &line["outcome"]).collect();
    assert_eq!(outcomes, ["applied"; 3], "{lines:?}");
}

/// A consumer of a queue, which never ends: it has applied one message and waits for the next.
pub(crate) fn waiting(place: &Place) -> (Child, BufReader<std::process::ChildStdout>) {
    place.config(
        "[sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\n\
         [consumers.wallet]\nsources = [\"inbox\"]\nhandler = \"wallet\"\n[consumers.wallet.wallet]\nassets = { EUR = 2 }\n",
    );
    place.write_lines("ops.jsonl", [OPENING[0]]);
    place.semel(&["publish", "inbox", "ops.jsonl"]).ok();
    let mut child = place
        .command(&["run", "--json", "--outcomes", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    // The first outcome is the sign that it runs.
    out.read_line(&mut String::new()).unwrap();
    (child, out)
}

pub(crate) fn signal(child: &Child, name: &str) {
    let status = std::process::Command::new("kill")
        .args(["-s", name, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn sigint_and_sigterm_drain_and_tell_which_it_was() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let place = Place::new(Backend::Sqlite);
        let (mut child, mut out) = waiting(&place);
        signal(&child, name);
        let mut summary = String::new();
        out.read_line(&mut summary).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let summary: Value = serde_json::from_str(&summary).unwrap();
        assert_eq!(
            summary["consumers"][0]["messages"], 1,
            "a drained run sums up"
        );
    }
}

/// What leans on the order of a queue finds it, however often a run is stopped cleanly in its midst.
#[test]
fn a_queue_keeps_its_order_over_clean_stops() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        let place = Place::new(backend);
        place.config(
            "[sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\n\
             [consumers.wallet]\nsources = [\"inbox\"]\nhandler = \"wallet\"\n[consumers.wallet.wallet]\nassets = { EUR = 2 }\n",
        );
        let open = |i: u32| {
            format!(r#"{{"op":"open_account","id":"o{i}","account":"a{i}","asset":"EUR"}}"#)
        };
        let pay = |i: u32| {
            format!(
                r#"{{"op":"transfer","id":"t{i}","debit":"bank","credit":"a{i}","asset":"EUR","amount":"1"}}"#
            )
        };
        let opened = (0..6_000).map(open);
        let lines = [OPENING[0].to_owned()].into_iter().chain(opened);
        place.write_lines("ops.jsonl", lines.chain((0..6_000).map(pay)));
        place.semel(&["publish", "inbox", "ops.jsonl"]).ok();
        for _ in 0..3 {
            let mut child = place
                .command(&["run", "--outcomes", "-"])
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut out = BufReader::new(child.stdout.take().unwrap());
            out.read_line(&mut String::new()).unwrap();
            signal(&child, "TERM");
            std::io::copy(&mut out, &mut std::io::sink()).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(143));
        }
        let (_, summary) = place.drained(&[]);
        assert_eq!(summary["codes"], json!({}), "{summary}");
        let last = place.json(&["balance", "a5999"]).ok().object();
        assert_eq!(last["posted"], "1");
    }
}

/// The files that the README begins with.
#[test]
fn the_first_example_ends_as_the_readme_says() {
    let place = Place::new(Backend::Sqlite);
    for name in ["semel.toml", "ops.jsonl"] {
        let path = format!("{}/../../examples/first/{name}", env!("CARGO_MANIFEST_DIR"));
        place.write(name, std::fs::read(path).unwrap());
    }
    place.semel(&["check"]).ok();
    let (_, summary) = place.drained(&[]);
    assert_eq!(
        summary["outcomes"],
        json!({"applied":5,"ignored":0,"refused":1,"duplicate":1,"parked":0,"dead":1})
    );
    place.semel(&["audit"]).ok();
    let checked = place.semel(&["check", "--connect"]).ok().out;
    assert_eq!(checked, "no findings\n");
    let shown = place.semel(&["show", "pay-88"]).ok().out;
    assert!(
        shown.contains("applied") && shown.contains("1 × as duplicate"),
        "{shown}"
    );
    let dead = place.semel(&["dead", "list"]).ok().out;
    assert!(
        dead.contains("ops.jsonl:8") && dead.contains("cut off"),
        "{dead}"
    );
}

/// A signal that comes while nothing can be read yet: a FIFO that nobody writes to.
#[test]
fn one_signal_ends_a_run_that_waits_for_a_pipe() {
    for writer in [false, true] {
        let place = Place::new(Backend::Sqlite);
        place.wallet("");
        let made = std::process::Command::new("mkfifo")
            .arg(place.path().join("ops.jsonl"))
            .status();
        assert!(made.unwrap().success());
        // Opened for both ways, it waits for no reader, and keeps one that reads waiting.
        let _writer = writer.then(|| {
            std::fs::File::options()
                .read(true)
                .write(true)
                .open(place.path().join("ops.jsonl"))
                .unwrap()
        });
        let mut child = place
            .command(&["run", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The ledger is opened behind the signals, and before the sources.
        while !place.path().join("semel.db").exists() {
            assert!(child.try_wait().unwrap().is_none(), "it must wait");
            std::thread::yield_now();
        }
        signal(&child, "TERM");
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(143), "{ended:?}");
        assert!(ended.stdout.starts_with(b"{\"consumers\":["), "{ended:?}");
    }
}

#[test]
fn a_reader_that_has_had_enough_is_no_panic_and_does_not_stop_the_work() {
    let place = Place::new(Backend::Sqlite);
    place.wallet("");
    let open =
        |i: u32| format!(r#"{{"op":"open_account","id":"o{i}","account":"a{i}","asset":"EUR"}}"#);
    place.write_lines("ops.jsonl", (0..3_000).map(open));
    let mut child = place
        .command(&["run", "--until-idle", "--outcomes", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    place.json(&["balance", "a2999"]).ok();
}

#[test]
fn a_database_that_is_away_is_exit_code_3() {
    let place = Place::new(Backend::Sqlite);
    place.write("semel.toml", "[ledger]\nurl = \"postgres://u:p@127.0.0.1:1/d\"\n[sources.ops]\ntype = \"file\"\npaths = [\"ops.jsonl\"]\n[consumers.wallet]\nsources = [\"ops\"]\nhandler = \"wallet\"\n[consumers.wallet.wallet]\nassets = { EUR = 2 }\n");
    place.write("ops.jsonl", "");
    for command in [&["run"][..], &["migrate"], &["dead", "list"], &["audit"]] {
        assert_eq!(place.semel(command).code, 3, "{command:?}");
    }
    let check = place.json(&["check", "--connect"]);
    assert_eq!(
        (check.code, &check.object()["findings"][0]["code"]),
        (1, &json!("SEMEL-0501"))
    );
}

#[test]
fn a_schema_newer_than_the_program_is_exit_code_4() {
    let place = Place::new(Backend::Sqlite);
    place.wallet("");
    place.write("ops.jsonl", "");
    place.semel(&["migrate"]).ok();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        use sqlx::{Connection, SqliteConnection};
        let url = format!("sqlite:{}", place.path().join("semel.db").display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let sql = "INSERT INTO semel_schema (part, version, name, min_binary, applied_at) SELECT part, 99, 'later', 99, applied_at FROM semel_schema WHERE part = 'semel' LIMIT 1";
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    });
    for command in [&["run", "--until-idle"][..], &["migrate"]] {
        let ran = place.semel(command);
        assert_eq!(ran.code, 4, "{command:?}: {ran:?}");
        assert!(ran.err.contains("newer"), "{}", ran.err);
    }
}

#[test]
fn rabbitmq_carries_what_was_published_to_it() {
    let url = std::env::var("SEMEL_TEST_RABBITMQ_URL")
        .expect("SEMEL_TEST_RABBITMQ_URL is not set: run scripts/test");
    let place = Place::new(Backend::Sqlite);
    place.config(&format!(
        "[sources.bets]\ntype = \"rabbitmq\"\nurl = \"{url}\"\nqueue = \"semel-cli-{}\"\ndeclare = \"classic\"\nidle_ms = 500\n\
         [consumers.wallet]\nsources = [\"bets\"]\nhandler = \"wallet\"\n[consumers.wallet.wallet]\nassets = {{ EUR = 2 }}\n",
        std::process::id()
    ));
    place.write_lines("ops.jsonl", OPENING.into_iter().chain([OPENING[0]]));
    place.drained(&[]);
    assert_eq!(
        place.json(&["publish", "bets", "ops.jsonl"]).ok().object(),
        json!({ "published": 6 })
    );
    let (lines, summary) = place.drained(&[]);
    assert_eq!(
        (
            &summary["outcomes"]["applied"],
            &summary["outcomes"]["duplicate"]
        ),
        (&json!(5), &json!(1))
    );
    assert_eq!(
        lines[0]["position"],
        Value::Null,
        "RabbitMQ has no positions"
    );
    let (lines, _) = place.drained(&[]);
    assert!(lines.is_empty(), "what was acked is gone");
}

#[test]
fn a_broker_that_is_away_is_exit_code_3() {
    let place = Place::new(Backend::Sqlite);
    for source in [
        "type = \"rabbitmq\"\nurl = \"amqp://127.0.0.1:1\"\nqueue = \"q\"\nconnect_timeout_ms = 1000",
        "type = \"kafka\"\nbrokers = [\"127.0.0.1:1\"]\ntopics = [\"t\"]\ngroup = \"g\"\nstart_at = \"earliest\"\ntimeout_ms = 1000",
    ] {
        place.config(&format!(
            "[sources.away]\n{source}\n[consumers.wallet]\nsources = [\"away\"]\nhandler = \"wallet\"\n\
             [consumers.wallet.wallet]\nassets = {{ EUR = 2 }}\n"
        ));
        let ran = place.semel(&["run", "--until-idle"]);
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{ran:?}");
        assert!(ran.err.contains("source `away`"), "{}", ran.err);
        let check = place.json(&["check", "--connect"]);
        assert_eq!(
            (check.code, &check.object()["findings"][0]["code"]),
            (1, &json!("SEMEL-0503"))
        );
    }
}
