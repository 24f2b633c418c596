//! Without `--json` the same facts: every value of a command's JSON is in its words.

use serde_json::{Value, json};

use crate::place::{Backend, OPENING, Place, on_both};

on_both!(
    every_fact_of_the_json_is_in_the_words,
    letters_of_one_moment_are_listed_in_the_order_of_their_file,
);

/// The values of a tree, by their names; without null.
fn facts(name: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::String(text) => found.push((name.to_owned(), text.clone())),
        Value::Number(number) => found.push((name.to_owned(), number.to_string())),
        Value::Array(items) => items.iter().for_each(|item| facts(name, item, found)),
        Value::Object(fields) => fields
            .iter()
            .for_each(|(field, value)| facts(&format!("{name}/{field}"), value, found)),
    }
}

#[track_caller]
fn assert_same(place: &Place, command: &[&str], left_out: &[&str]) {
    let json = place.json(command);
    let words = place.semel(command);
    assert_eq!(json.code, words.code, "{command:?}");
    let mut found = Vec::new();
    let lines = json.lines();
    assert!(!lines.is_empty(), "{command:?} tells something");
    lines.iter().for_each(|line| facts("", line, &mut found));
    for (name, value) in found {
        if left_out.iter().any(|out| name.ends_with(out)) {
            continue;
        }
        // A cell of a table is cut, the whole is in JSON.
        let shown: String = value.chars().take(60).collect();
        assert!(
            words.out.contains(&shown),
            "{command:?}: {name} = {value} is not in\n{}",
            words.out
        );
    }
}

fn every_fact_of_the_json_is_in_the_words(place: Place) {
    place.wallet("lane = \"/round\"");
    let bet = r#"{"op":"bet","id":"bet-1","round":"r1","account":"p1","asset":"EUR","amount":"10","game":"dice"}"#;
    let win = r#"{"op":"win","id":"win-9","round":"r9","account":"p1","asset":"EUR","amount":"5"}"#;
    let won = r#"{"op":"win","id":"win-1","round":"r1","account":"p1","asset":"EUR","amount":"5","bet":"bet-1"}"#;
    let clash = OPENING[4].replace("1000", "999");
    let poor =
        r#"{"op":"transfer","id":"poor","debit":"p2","credit":"p1","asset":"EUR","amount":"7"}"#;
    place.write_lines(
        "ops.jsonl",
        OPENING
            .into_iter()
            .chain([bet, won, win, win, OPENING[4], &clash, poor, "no json"]),
    );
    place.drained(&[]);
    let letters = place.json(&["dead", "list"]).ok().lines();
    assert_eq!(letters.len(), 2);
    let of_table = [
        "payload",
        "payload_encoding",
        "size",
        "first_at",
        "value",
        "encoding",
    ];
    assert_same(&place, &["dead", "list"], &of_table);
    for letter in &letters {
        let id = letter["letter"].as_str().unwrap();
        assert_same(&place, &["dead", "show", id], &["payload_encoding"]);
    }
    let parked = place.json(&["parked", "list"]).ok().object();
    assert_eq!(parked["lane"], json!("r9"));
    assert_same(&place, &["parked", "list"], &[]);
    for id in ["fund-p1", "win-9", "poor", "bet-1"] {
        // A dead letter has a command of its own, and a parked message repeats its operation.
        assert_same(
            &place,
            &["show", id],
            &[
                "dead/field",
                "dead/attempts",
                "dead/partition",
                "dead/position",
                "dead/payload",
                "dead/payload_encoding",
                "dead/size",
                "dead/first_at",
                "dead/at",
            ],
        );
    }
    assert_same(&place, &["statement", "p1"], &[]);
    assert_same(&place, &["balance", "p1"], &[]);
    assert_same(&place, &["round", "r1"], &[]);
    assert_same(&place, &["audit"], &[]);
}

fn letters_of_one_moment_are_listed_in_the_order_of_their_file(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", (0..40).map(|i| format!("line {i}")));
    place.drained(&[]);
    let letters = place.json(&["dead", "list"]).ok().lines();
    let positions: Vec<u64> = letters
        .iter()
        .map(|letter| letter["position"].as_u64().unwrap())
        .collect();
    assert_eq!(positions, (1..=40).collect::<Vec<_>>());
    // Our words, and nothing of the scanner's.
    assert_eq!(
        letters[0]["detail"],
        "the payload is not JSON from byte 1 on"
    );
}

#[test]
fn e127_text_of_a_sender_makes_no_line_of_its_own_in_any_command() {
    let place = Place::new(Backend::Sqlite);
    place.wallet("");
    let open = r#"{"op":"open_account","id":"o\nforged","account":"p\nforged","asset":"EUR"}"#;
    let cancel =
        r#"{"op":"cancel_round","id":"c\nforged","round":"r\nforged","account":"p\nforged"}"#;
    let dead = r#"{"op":"freeze","id":"d\nforged"}"#;
    place.write_lines("ops.jsonl", [open, cancel, dead]);
    place.drained(&[]);
    let listed = place.json(&["dead", "list"]).ok();
    let letter = listed.object()["letter"].as_str().unwrap().to_owned();
    for command in [
        &["balance", "p\nforged"][..],
        &["round", "r\nforged"],
        &["show", "o\nforged"],
        &["dead", "show", &letter],
    ] {
        let out = place.semel(command).ok().out;
        assert!(out.contains("\\nforged"), "{command:?}: {out}");
        let forged = out.lines().any(|line| line.starts_with("forged"));
        assert!(!forged, "{command:?}: {out}");
    }
}

/// The shell's process becomes ours, so the link has the name that a process id would give.
#[cfg(unix)]
#[test]
fn a_dry_run_follows_no_link_that_somebody_laid_in_the_temporary_folder() {
    let place = Place::new(Backend::Sqlite);
    place.wallet("");
    let shared = place.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let script = "ln -s \"$TMPDIR/../victim\" \"$TMPDIR/semel-dry-run-$$.db\" && exec \"$0\" migrate --dry-run";
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", script, env!("CARGO_BIN_EXE_semel")])
        .current_dir(place.path())
        .env("TMPDIR", &shared);
    let done = shell.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(!place.path().join("victim").exists());
    // The link alone is left.
    assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 1);
}

#[test]
fn a_dry_run_says_whose_key_rules_it_would_accept() {
    let place = Place::new(Backend::Sqlite);
    place.wallet("");
    let dry = place
        .semel(&["migrate", "--dry-run", "--accept-key-change"])
        .ok();
    assert!(
        dry.out
            .contains("would apply 0001_ledger, wallet/0001_wallet"),
        "{}",
        dry.out
    );
    assert!(
        dry.out
            .contains("would accept the key rules that the config has now of wallet"),
        "{}",
        dry.out
    );
    let done = place.semel(&["migrate", "--accept-key-change"]).ok();
    assert!(
        done.out.contains("\naccepted the key rules"),
        "{}",
        done.out
    );
    let help = place.semel(&["config", "--help"]).ok();
    assert!(help.out.contains("reference"), "{}", help.out);
}
