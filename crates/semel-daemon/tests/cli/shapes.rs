//! The shape of everything that is printed as JSON, against the published schemas, and what people see instead.

use serde_json::{Value, json};

use crate::place::{OPENING, Place, on_both};
use crate::schema::assert_fits;

on_both!(
    every_output_fits_its_schema,
    what_is_not_found_is_exit_code_1,
    words_say_the_same_as_json,
    an_id_is_found_where_its_key_cannot_be_computed_from_it,
    a_statement_is_of_a_time,
);

/// A wallet with something of everything.
fn furnish(place: &Place) {
    place.wallet("");
    let more = [
        r#"{"op":"bet","id":"b1","round":"r1","account":"p1","asset":"EUR","amount":"100","game":"dice"}"#,
        r#"{"op":"win","id":"w1","round":"r1","account":"p1","asset":"EUR","amount":"50","bet":"b1"}"#,
        r#"{"op":"win","id":"early","round":"r2","account":"p1","asset":"EUR","amount":"1"}"#,
        r#"{"op":"transfer","id":"t1","debit":"p2","credit":"p1","asset":"EUR","amount":"1"}"#,
        r#"{"op":"transfer","id":"fund-p1","debit":"bank","credit":"p1","asset":"EUR","amount":"1000"}"#,
        r#"{"op":"transfer","id":"fund-p1","debit":"bank","credit":"p1","asset":"EUR","amount":"9000"}"#,
        r#"{"op":"unfreeze","id":"u1","account":"p1"}"#,
        r#"{"op":"authorize","id":"h1","hold":"h1","debit":"p1","credit":"p2","asset":"EUR","amount":"10"}"#,
        "broken",
    ];
    place.write_lines("ops.jsonl", OPENING.into_iter().chain(more));
}

fn every_output_fits_its_schema(place: Place) {
    furnish(&place);
    assert_fits(
        "migrate",
        &place.json(&["migrate", "--dry-run"]).ok().object(),
    );
    assert_fits("migrate", &place.json(&["migrate"]).ok().object());
    let ran = place
        .json(&["run", "--until-idle", "--outcomes", "out.jsonl"])
        .ok();
    assert_fits("run", &ran.object());
    let outcomes: Vec<Value> = place
        .read("out.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(outcomes.len(), 14);
    outcomes
        .iter()
        .for_each(|line| assert_fits("outcome", line));
    assert_fits("check", &place.json(&["check"]).ok().object());
    for id in ["fund-p1", "early", "t1", "b1", "u1"] {
        assert_fits("show", &place.json(&["show", id]).ok().object());
    }
    let letters = place.json(&["dead", "list"]).ok().lines();
    assert_eq!(letters.len(), 2);
    for letter in &letters {
        assert_fits("dead", letter);
        let shown = place
            .json(&["dead", "show", letter["letter"].as_str().unwrap()])
            .ok()
            .object();
        assert_eq!(shown, *letter);
    }
    let parked = place.json(&["parked", "list"]).ok().object();
    assert_fits("parked", &parked);
    assert_eq!(
        (&parked["id"], &parked["awaiting"]),
        (&json!("early"), &json!("round"))
    );
    assert_fits("balance", &place.json(&["balance", "p1"]).ok().object());
    let lines = place.json(&["statement", "p1"]).ok().lines();
    assert_eq!(lines.len(), 3);
    lines.iter().for_each(|line| assert_fits("statement", line));
    assert_fits("round", &place.json(&["round", "r1"]).ok().object());
    assert_fits("audit", &place.json(&["audit"]).ok().object());
    assert_fits(
        "key",
        &place
            .json(&["key", "--consumer", "wallet", "b1"])
            .ok()
            .object(),
    );
    the_facts_are_right(&place, &outcomes);
}

fn the_facts_are_right(place: &Place, outcomes: &[Value]) {
    let duplicate = &outcomes[9];
    assert_eq!(
        (&duplicate["outcome"], &duplicate["first"]),
        (
            &json!("duplicate"),
            &json!({ "outcome": "applied", "code": null })
        )
    );
    let shown = place.json(&["show", "fund-p1"]).ok().object();
    assert_eq!(
        (&shown["outcome"], &shown["dead"][0]["code"]),
        (&json!("applied"), &json!("key_reused"))
    );
    assert_eq!(shown["dead"][0]["field"], "amount");
    let reply = &shown["reply"];
    assert_eq!(
        (&reply["account"], &reply["balance"]),
        (&json!("bank"), &json!("-1000")),
        "derived from the wallet's rows"
    );
    assert_eq!(
        shown["operation"],
        json!({ "op": "transfer", "id": "fund-p1", "account": "bank", "legs": [
            { "debit": "bank", "credit": "p1", "amount": "1000", "asset": "EUR" },
        ] })
    );
    let by_key = place
        .json(&["show", shown["key"].as_str().unwrap()])
        .ok()
        .object();
    assert_eq!(by_key["id"], "fund-p1");
    let words = place.semel(&["show", "fund-p1"]).ok().out;
    assert!(
        words.contains("transfer, 1000 EUR in minor units from bank to p1"),
        "{words}"
    );
    let opened = place.semel(&["show", "open-p1"]).ok().out;
    assert!(opened.contains("open_account, account p1"), "{opened}");
    let kinds: Vec<&Value> = shown["sightings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sighting| &sighting["kind"])
        .collect();
    assert!(
        kinds.contains(&&json!("duplicate")) && kinds.contains(&&json!("clash")),
        "{kinds:?}"
    );
    let early = place.json(&["show", "early"]).ok().object();
    assert_eq!(
        (&early["outcome"], &early["awaiting"], &early["code"]),
        (&json!("parked"), &json!("round"), &json!(null))
    );
    assert_eq!(early["parked"]["id"], "early");
    let refused = place.json(&["show", "t1"]).ok().object();
    assert_eq!(refused["operation"], json!(null));
    assert_eq!(
        (&refused["outcome"], &refused["code"]),
        (&json!("refused"), &json!("insufficient_funds"))
    );
    assert_eq!(refused["reply"]["code"], "insufficient_funds");
    let balance = place.json(&["balance", "p1"]).ok().object();
    assert_eq!(
        (
            &balance["posted"],
            &balance["pending"],
            &balance["available"]
        ),
        (&json!("950"), &json!("10"), &json!("940"))
    );
    // A key in any spelling is the id's.
    let key = place.json(&["key", "b1"]).ok().object()["key"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = place
        .json(&["show", &format!("{{{}}}", key.to_uppercase())])
        .ok()
        .object();
    assert_eq!(shown["key"], json!(key));
    let round = place
        .json(&["round", "r1", "--account", "p1"])
        .ok()
        .object();
    assert_eq!(
        (&round["staked"], &round["paid"], &round["game"]),
        (&json!("100"), &json!("50"), &json!("dice"))
    );
}

fn what_is_not_found_is_exit_code_1(place: Place) {
    furnish(&place);
    place.drained(&[]);
    let letter = "00000000-0000-8000-8000-000000000000";
    for (args, words) in [
        (&["show", "nobody"][..], "nothing is known of `nobody`"),
        (&["balance", "nobody"], "there is no account `nobody`"),
        (&["statement", "nobody"], "there is no account `nobody`"),
        (&["round", "nobody"], "there is no round `nobody`"),
        (
            &["round", "r1", "--account", "p2"],
            "there is no round `r1` of `p2`",
        ),
        (&["dead", "show", letter], "there is no dead letter"),
    ] {
        let ran = place.json(args);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{args:?}: {ran:?}");
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
    let ran = place.json(&["show", "b1", "--consumer", "walet"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("did you mean `wallet`?"), "{}", ran.err);
}

fn words_say_the_same_as_json(place: Place) {
    furnish(&place);
    let ran = place.semel(&["run", "--until-idle"]).ok();
    assert!(
        ran.out.starts_with("wallet: 14 messages in "),
        "{}",
        ran.out
    );
    assert!(
        ran.out
            .contains("8 applied, 1 ignored, 1 refused, 1 duplicate, 1 parked, 2 dead"),
        "{}",
        ran.out
    );
    let said = |args: &[&str]| place.semel(args).ok().out;
    assert!(
        said(&["balance", "p1"]).starts_with("p1: 950 EUR in minor units, 10 held, 940 available")
    );
    assert!(
        said(&["statement", "p1"]).contains("  credit     1000    1000           1\n"),
        "{}",
        said(&["statement", "p1"])
    );
    assert!(
        said(&["round", "r1"])
            .starts_with("r1 of p1: open, staked 100, paid 50, game dice\n  bet b1: 100, won\n"),
        "{}",
        said(&["round", "r1"])
    );
    assert!(said(&["dead", "list"]).lines().count() == 3);
    assert!(said(&["parked", "list"]).contains("early"));
    assert!(said(&["show", "t1"]).contains("refused: insufficient_funds"));
    assert!(
        said(&["audit"]).lines().all(|line| line.starts_with("ok ")),
        "{}",
        said(&["audit"])
    );
}

fn an_id_is_found_where_its_key_cannot_be_computed_from_it(place: Place) {
    place.wallet("key_time = \"/at\"");
    place.write_lines(
        "ops.jsonl",
        [
            r#"{"op":"open_account","id":"open","at":"2026-01-31T00:00:00Z","account":"p","asset":"EUR"}"#,
            r#"{"op":"open_account","id":"house","at":"2026-01-31T00:00:00Z","account":"house","asset":"EUR","kind":"house"}"#,
            r#"{"op":"win","id":"early","at":"2026-01-31T00:00:00Z","round":"r","account":"p","asset":"EUR","amount":"1"}"#,
            r#"{"op":"nope","id":"odd","at":"2026-01-31T00:00:00Z"}"#,
        ],
    );
    let (lines, _) = place.drained(&[]);
    for (line, outcome) in lines[2..].iter().zip(["parked", "dead"]) {
        let shown = place
            .json(&["show", line["id"].as_str().unwrap()])
            .ok()
            .object();
        assert_eq!(
            (&shown["key"], &shown["outcome"]),
            (&line["key"], &json!(outcome))
        );
    }
    let key = place
        .json(&[
            "key",
            "--consumer",
            "wallet",
            "early",
            "--time",
            "2026-01-31T00:00:00Z",
        ])
        .ok()
        .object();
    assert_eq!(key["key"], lines[2]["key"]);
    let unknown = place.semel(&["show", "open"]);
    assert_eq!(unknown.code, 1);
    assert!(
        unknown.err.contains("semel key --consumer wallet"),
        "{}",
        unknown.err
    );
}

fn a_statement_is_of_a_time(place: Place) {
    furnish(&place);
    place.drained(&[]);
    let count = |args: &[&str]| {
        place
            .json(&[&["statement", "p1"], args].concat())
            .ok()
            .lines()
            .len()
    };
    assert_eq!(count(&["--from", "2000-01-01T00:00:00Z"]), 3);
    assert_eq!(count(&["--to", "2000-01-01T00:00:00Z"]), 0);
    let first = place.json(&["statement", "p1"]).ok().lines()[0]["at"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(count(&["--to", &first]), 0, "the end is not part of it");
    assert_eq!(
        place
            .semel(&["statement", "p1", "--from", "yesterday"])
            .code,
        2
    );
}
