//! `semel doctor` on real servers: each check is seen to find something, and to find nothing.

use std::process::{Command, Stdio};

use lapin::types::AMQPValue;
use serde_json::{Value, json};

use crate::brokers::{Rabbit, Topic};
use crate::place::{Backend, OPENING, Place, on_both};
use crate::schema::assert_fits;

on_both!(
    a_wallet_that_runs_well_has_nothing,
    a_file_that_was_replaced_is_told_and_read_again_by_a_rewind,
    runs_that_were_killed_are_told_and_clean_ones_are_not,
);

/// What the doctor says; its exit code goes with it.
#[track_caller]
pub(crate) fn doctor(place: &Place) -> Value {
    let ran = place.json(&["doctor"]);
    let said = ran.object();
    assert_fits("doctor", &said);
    let away = codes(&said).iter().any(|code| code.starts_with("SEMEL-05"));
    let code = match (&said["ok"], away) {
        (Value::Bool(true), _) => 0,
        (_, true) => 3,
        (_, false) => 1,
    };
    assert_eq!(ran.code, code, "{said:#}");
    said
}

/// The codes of what it found.
pub(crate) fn codes(said: &Value) -> Vec<String> {
    let found = said["findings"].as_array().unwrap().iter();
    found
        .map(|finding| finding["code"].as_str().unwrap().to_owned())
        .collect()
}

#[track_caller]
fn assert_codes(place: &Place, wanted: &[&str]) -> Value {
    let said = doctor(place);
    assert_eq!(codes(&said), wanted, "{said:#}");
    said
}

/// A wallet that reads this source.
pub(crate) fn wallet_of(name: &str, source: &str, more: &str) -> String {
    format!(
        "{source}[consumers.wallet]\nsources = [\"{name}\"]\nhandler = \"wallet\"\n{more}\n\
         [consumers.wallet.wallet]\nassets = {{ EUR = 2 }}\n"
    )
}

fn a_wallet_that_runs_well_has_nothing(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING);
    place.drained(&[]);
    let said = assert_codes(&place, &[]);
    assert_eq!(
        said["positions"],
        json!([{ "consumer": "wallet", "source": "ops", "partition": "ops.jsonl", "ledger": 6, "broker": null,
                 "first": null, "end": null, "ready": null, "retention_ms": null }])
    );
    assert_eq!(said["lives"], json!([]));
    let words = place.semel(&["doctor"]).ok().out;
    assert!(words.starts_with("all is well\n"), "{words}");
    assert!(words.contains("ops.jsonl  6"), "{words}");
}

fn a_file_that_was_replaced_is_told_and_read_again_by_a_rewind(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING);
    place.drained(&[]);
    place.write_lines("ops.jsonl", [&OPENING[..1], &OPENING[2..]].concat());
    let said = assert_codes(&place, &["SEMEL-0603"]);
    let message = said["findings"][0]["message"].as_str().unwrap();
    assert!(message.contains("semel rewind ops --to 1"), "{message}");
    assert_eq!(place.semel(&["run", "--until-idle"]).code, 4);
    for (to, words) in [("3", "from its first line"), ("0", "from its first line")] {
        let ran = place.semel(&["rewind", "ops", "--to", to, "--yes"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(words), "{}", ran.err);
    }
    // Services have no `USER`: the account is asked for.
    let mut rewind = place.command(&["rewind", "ops", "--to", "1", "--yes", "--json"]);
    let rewind = rewind.env_remove("USER").env_remove("LOGNAME");
    let rewound = rewind.output().unwrap();
    assert!(rewound.status.success(), "{rewound:?}");
    assert_fits("rewind", &serde_json::from_slice(&rewound.stdout).unwrap());
    let account = Command::new("id").arg("-un").output().unwrap().stdout;
    let account = String::from_utf8(account).unwrap();
    let said = assert_codes(&place, &[]);
    assert_eq!(said["acts"][0]["who"], account.trim());
    let (lines, summary) = place.drained(&[]);
    assert_eq!(lines.len(), 4);
    assert_eq!(summary["outcomes"]["duplicate"], 4);
}

fn runs_that_were_killed_are_told_and_clean_ones_are_not(place: Place) {
    let queue = "[sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\n";
    place.config(&wallet_of("inbox", queue, "lanes = 2"));
    place.write_lines("ops.jsonl", OPENING);
    place.semel(&["publish", "inbox", "ops.jsonl"]).ok();
    place.drained(&[]);
    assert_codes(&place, &[]);
    place.semel(&["publish", "inbox", "ops.jsonl"]).ok();
    let mut child = place
        .command(&["run", "--outcomes", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let said = assert_codes(&place, &[]);
    assert_eq!(
        (&said["lives"][0]["live"], &said["lives"][0]["lanes"]),
        (&json!(true), &json!(2)),
        "seen a moment ago: {said}"
    );
    let refused = place.semel(&["rewind", "inbox", "--yes"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    place.sql(match place.schema() {
        Some(_) => "UPDATE semel_fence SET seen_at = now() - interval '31 seconds'",
        None => "UPDATE semel_fence SET seen_at = seen_at - 3600000000",
    });
    let said = assert_codes(&place, &["SEMEL-0607"]);
    assert_eq!(said["lives"][0]["live"], false);
    assert_eq!(said["ok"], true, "it is no error");
}

#[test]
fn a_topic_whose_retention_is_short_and_records_that_it_removed_are_told() {
    let place = Place::new(Backend::Sqlite);
    let (short, long) = (
        Topic::with("short", &[("retention.ms", "7200000")]),
        Topic::with("long", &[("retention.ms", "604800000")]),
    );
    place.config(&wallet_of("ops", &long.source("ops"), ""));
    long.produce(&OPENING[..3]);
    place.drained(&[]);
    let said = assert_codes(&place, &[]);
    let position = &said["positions"][0];
    assert_eq!(
        [&position["ledger"], &position["broker"], &position["end"]],
        [&json!(3), &json!(3), &json!(3)]
    );
    assert_eq!(position["retention_ms"], 604_800_000);
    long.produce(OPENING);
    long.remove_before(5);
    let said = assert_codes(&place, &["SEMEL-0602"]);
    let message = said["findings"][0]["message"].as_str().unwrap();
    assert!(message.contains("removed 2 offsets"), "{message}");
    place.config(&wallet_of("ops", &short.source("ops"), ""));
    let said = assert_codes(&place, &["SEMEL-0604"]);
    let message = said["findings"][0]["message"].as_str().unwrap();
    assert!(message.contains("for 2 hours"), "{message}");
}

#[test]
fn t45_t46_a_queue_that_would_lose_messages_is_told() {
    let place = Place::new(Backend::Sqlite);
    let kind = ("x-delivery-limit", AMQPValue::LongInt(5));
    let exchange = AMQPValue::LongString("amq.fanout".into());
    let (lossy, safe) = (
        Rabbit::with("lossy", std::slice::from_ref(&kind)),
        Rabbit::with("safe", &[kind, ("x-dead-letter-exchange", exchange)]),
    );
    place.write_lines("ops.jsonl", OPENING);
    place.wallet("");
    place.drained(&[]);
    let limit = "declare = \"quorum\"\ndelivery_limit = 5\nprefetch = 100\n";
    let exchange = "dead_letter_exchange = \"amq.fanout\"\n";
    place.config(&wallet_of(
        "bets",
        &format!("{}{limit}{exchange}", safe.source("bets")),
        "",
    ));
    place.semel(&["publish", "bets", "ops.jsonl"]).ok();
    let said = assert_codes(&place, &[]);
    assert_eq!(said["positions"][0]["ready"], 5, "{said:#}");
    let source = format!(
        "{}{limit}{exchange}consumer_timeout_ms = 60000\n",
        safe.source("bets")
    );
    place.config(&wallet_of("bets", &source, ""));
    let said = assert_codes(&place, &["SEMEL-0106"]);
    assert!(said.to_string().contains("consumer_timeout"), "{said:#}");
    place.config(&wallet_of(
        "bets",
        &format!("{}{limit}", lossy.source("bets")),
        "",
    ));
    let said = assert_codes(&place, &["SEMEL-0106"]);
    assert!(said.to_string().contains("delivery_limit = 5"), "{said:#}");
}

#[test]
fn t34_settings_of_the_server_that_lose_commits_and_too_few_connections_are_told() {
    let place = Place::new(Backend::Postgres);
    place.wallet("lanes = 2");
    place.write_lines("ops.jsonl", OPENING);
    place.drained(&[]);
    assert_codes(&place, &[]);
    let tables = place.read("semel.toml");
    let url = crate::place::postgres_url();
    let lowered = format!("{url}?options=-c%20synchronous_commit%3Doff");
    place.write("semel.toml", tables.replace(&url, &lowered));
    let said = assert_codes(&place, &["SEMEL-0606"]);
    assert!(
        said.to_string().contains("synchronous_commit = off"),
        "{said:#}"
    );
    let more = |i: u32| {
        format!(
            "[consumers.w{i}]\nsources = [\"ops\"]\nhandler = \"wallet\"\nlanes = 64\n\
             [consumers.w{i}.wallet]\nassets = {{ EUR = 2 }}\n"
        )
    };
    // More lanes than any server of these tests has connections.
    let many: String = (0..20).map(more).collect();
    place.write("semel.toml", format!("{tables}{many}"));
    let said = assert_codes(&place, &["SEMEL-0605"]);
    assert_eq!(said["ok"], false, "{said:#}");
}

#[test]
fn what_is_away_is_exit_code_3_and_the_rest_is_still_told() {
    let place = Place::new(Backend::Sqlite);
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING);
    place.drained(&[]);
    std::fs::remove_file(place.path().join("ops.jsonl")).unwrap();
    let said = doctor(&place);
    assert!(codes(&said).contains(&"SEMEL-0503".to_owned()), "{said:#}");
    assert_eq!(said["positions"][0]["ledger"], 6);
}
