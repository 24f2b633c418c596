//! Commands that need no ledger, and those that make one.

use serde_json::{Value, json};

use crate::place::{Backend, OPENING, Place, on_both};

on_both!(
    migrations_are_told_before_and_after,
    run_migrates_by_itself_unless_told_not_to,
    inspecting_makes_nothing
);

fn place() -> Place {
    Place::new(Backend::Sqlite)
}

#[test]
fn keys_are_those_of_the_published_vectors() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/key.json");
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut computed = 0;
    for vector in vectors["derive"].as_array().unwrap() {
        let Some(parts) = text_parts(vector).filter(|parts| !parts.is_empty()) else {
            continue;
        };
        let time = vector["unix_ms"].as_u64().map(|ms| ms.to_string());
        let time: Vec<&str> = time.iter().flat_map(|ms| ["--time", ms.as_str()]).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        // Behind `--`, a part may begin with a hyphen.
        let args = [&["key", "--json"][..], &time, &["--"], &parts].concat();
        let ran = place().semel(&args);
        if vector["no_key"].is_null() {
            assert_eq!(ran.ok().object()["key"], vector["key"], "{vector}");
        } else {
            assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{vector}");
        }
        computed += 1;
    }
    assert!(computed > 10, "the vectors hold keys of text parts");
}

/// The parts of a vector, where all are text that an argument can be.
fn text_parts(vector: &Value) -> Option<Vec<String>> {
    let parts = vector["parts"].as_array()?.iter();
    parts
        .map(|part| {
            Some(
                part["text"]
                    .as_str()
                    .filter(|text| part["kind"] == "s" && !text.contains('\0'))?
                    .to_owned(),
            )
        })
        .collect()
}

#[test]
fn a_key_is_made_of_parts_as_they_are() {
    let ran = place().json(&["key", "acme", "bet-42"]).ok();
    assert_eq!(
        ran.object(),
        json!({ "key": "4a4c7068-f922-85dc-a87c-b02c5b9f134a", "parts": ["acme", "bet-42"] })
    );
    let ran = place()
        .semel(&["key", "{0190D6F3-79F9-7000-8000-0000DEADBEEF}"])
        .ok();
    assert_eq!(ran.out, "0190d6f3-79f9-7000-8000-0000deadbeef\n");
    assert_eq!(
        place().semel(&["key", ""]).code,
        1,
        "an empty part makes no key"
    );
}

#[test]
fn a_key_is_made_as_the_consumer_would() {
    let place = place();
    place.wallet("key = [\"const:acme\", \"lower(trim(/id))\"]");
    let expected = place.json(&["key", "acme", "bet-42"]).ok().object()["key"].clone();
    let given = place
        .json(&["key", "--consumer", "wallet", " BET-42 "])
        .ok()
        .object();
    assert_eq!(
        given,
        json!({ "key": expected, "parts": ["acme", " BET-42 "] })
    );
    place.write_lines("m.jsonl", ["{\"id\":\"BET-42\"}", "{\"id\":null}"]);
    let messages = place.json(&["key", "--consumer", "wallet", "--message", "m.jsonl"]);
    assert_eq!((messages.code, &messages.object()["key"]), (1, &expected));
    assert!(
        messages.err.contains("m.jsonl:2: no key"),
        "{}",
        messages.err
    );
    let unknown = place.semel(&["key", "--consumer", "walet", "x"]);
    assert_eq!(unknown.code, 2);
    assert!(
        unknown.err.contains("did you mean `wallet`?"),
        "{}",
        unknown.err
    );
}

#[test]
fn a_key_may_hold_the_operations_own_time() {
    let at = place()
        .semel(&["key", "pay-1", "--time", "2026-01-31T00:00:00Z"])
        .ok()
        .out;
    let ms = place()
        .semel(&["key", "pay-1", "--time", "1769817600000"])
        .ok()
        .out;
    assert_eq!(at, ms);
    assert!(at.starts_with("019c1159-7000-"), "{at}");
    assert_eq!(
        place()
            .semel(&["key", "pay-1", "--time", "1999-01-01T00:00:00Z"])
            .code,
        1
    );
}

fn migrations_are_told_before_and_after(place: Place) {
    place.wallet("");
    let planned = place.json(&["migrate", "--dry-run"]).ok().object();
    assert_eq!(
        (&planned["from"], &planned["applied"][0]),
        (&json!(0), &json!("0001_ledger"))
    );
    assert_eq!(
        place.json(&["migrate", "--dry-run"]).ok().object(),
        planned,
        "a dry run changes nothing"
    );
    let done = place.json(&["migrate"]).ok().object();
    assert_eq!(done, planned);
    let again = place.json(&["migrate"]).ok().object();
    assert_eq!(
        again,
        json!({ "from": done["to"], "to": done["to"], "applied": [] })
    );
}

fn run_migrates_by_itself_unless_told_not_to(place: Place) {
    place.wallet("");
    let config = place
        .read("semel.toml")
        .replacen("[ledger]\n", "[ledger]\nmigrate = false\n", 1);
    place.write("semel.toml", config);
    place.write_lines("ops.jsonl", OPENING);
    let ran = place.semel(&["run", "--until-idle"]);
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("semel migrate"), "{}", ran.err);
    let check = place.json(&["check", "--connect"]);
    assert_eq!(
        (check.code, &check.object()["findings"][0]["code"]),
        (1, &json!("SEMEL-0502"))
    );
    place.semel(&["migrate"]).ok();
    let warned = place.json(&["check", "--connect"]).ok().object();
    let house = &warned["findings"][0];
    assert_eq!(
        (&house["code"], &house["level"]),
        (&json!("SEMEL-0504"), &json!("warning"))
    );
    assert!(
        house["message"].as_str().unwrap().contains("`house`"),
        "{warned}"
    );
    place.drained(&[]);
    assert_eq!(
        place.json(&["check", "--connect"]).ok().object(),
        json!({ "ok": true, "findings": [] })
    );
}

fn inspecting_makes_nothing(place: Place) {
    place.wallet("");
    for command in [
        &["dead", "list"][..],
        &["show", "x"],
        &["audit"],
        &["parked", "list"],
        &["balance", "x"],
    ] {
        let ran = place.semel(command);
        assert_eq!(ran.code, 3, "{command:?}");
        assert!(
            ran.err.contains("semel migrate"),
            "{command:?}: {}",
            ran.err
        );
    }
    assert!(!place.path().join("semel.db").exists());
}
