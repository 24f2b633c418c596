//! Public reports turned into inputs, by their number: what an operator sees of them.

use serde_json::{Value, json};

use crate::place::{OPENING, Place, on_both};

on_both!(
    e008_two_withdrawals_at_once_from_one_account_see_each_other,
    e069_a_snapshot_in_mid_stream_is_a_thousand_duplicates,
    e100_long_numbers_keep_their_digits_everywhere,
    t89_a_dead_letter_tells_reason_attempts_place_and_times,
);

const ACCOUNTS: u32 = 20;

fn e008_two_withdrawals_at_once_from_one_account_see_each_other(place: Place) {
    let account = |kind: &str, n: u32| format!("{kind}{n}");
    let mut setup = vec![OPENING[0].to_owned()];
    let mut race = Vec::new();
    for n in 0..ACCOUNTS {
        for (kind, limit) in [("forced", "none"), ("strict", "no_negative")] {
            let name = account(kind, n);
            let transfer = |id: &str, debit: &str, credit: &str, amount: u32| {
                format!(
                    r#"{{"op":"transfer","id":"{id}-{name}","debit":"{debit}","credit":"{credit}","asset":"EUR","amount":{amount},"lane":"{id}"}}"#
                )
            };
            setup.push(format!(
                r#"{{"op":"open_account","id":"open-{name}","account":"{name}","asset":"EUR","limit":"{limit}"}}"#
            ));
            setup.push(transfer("fund", "bank", &name, 100));
            race.push(transfer("T1", &name, "bank", 50));
            race.push(transfer("T2", &name, "bank", 100));
        }
    }
    place.wallet("");
    place.write_lines("ops.jsonl", setup.iter());
    place.drained(&[]);
    place.wallet("lanes = 2\nlane = \"/lane\"\nbatch_count_max = 1");
    place.write_lines("ops.jsonl", setup.iter().chain(&race));
    let (lines, _) = place.drained(&[]);
    let refused: Vec<&Value> = lines
        .iter()
        .filter(|line| line["outcome"] == "refused")
        .collect();
    assert_eq!(
        refused.len(),
        ACCOUNTS as usize,
        "one of each strict account's two"
    );
    for line in refused {
        let id = line["id"].as_str().unwrap();
        assert!(
            id.contains("-strict") && line["code"] == "insufficient_funds",
            "{line}"
        );
    }
    let posted = |name: String| place.json(&["balance", &name]).ok().object()["posted"].clone();
    assert_eq!(
        posted(account("forced", 7)),
        "-50",
        "never 0: no withdrawal is overwritten"
    );
    let strict = posted(account("strict", 7));
    assert!(strict == "0" || strict == "50", "{strict}");
    assert_eq!(place.json(&["audit"]).ok().object()["ok"], true);
}

fn e069_a_snapshot_in_mid_stream_is_a_thousand_duplicates(place: Place) {
    let row = |change: &str, n: u32| {
        format!(
            r#"{{"op":"transfer","id":"row-{n}","debit":"bank","credit":"p1","asset":"EUR","amount":1,"change":"{change}"}}"#
        )
    };
    place.wallet("");
    let created = (0..1_000).map(|n| row("c", n));
    let read = (0..1_000).map(|n| row("r", n));
    let opening = OPENING.iter().map(|line| (*line).to_owned());
    place.write_lines("ops.jsonl", opening.chain(created).chain(read));
    let (_, summary) = place.drained(&[]);
    let outcomes = &summary["outcomes"];
    assert_eq!(
        (&outcomes["applied"], &outcomes["duplicate"]),
        (&json!(1_005), &json!(1_000))
    );
    assert_eq!(
        place.json(&["balance", "p1"]).ok().object()["posted"],
        "2000"
    );
}

fn e100_long_numbers_keep_their_digits_everywhere(place: Place) {
    place.wallet("");
    place.write_lines(
        "ops.jsonl",
        [
            r#"{"op":"open_account","id":73314510714175488,"account":73314510714175489,"asset":"EUR"}"#,
            r#"{"op":"nobody knows","id":73314510714175491,"reference":73314510714175493}"#,
        ],
    );
    let (lines, _) = place.drained(&[]);
    assert_eq!(lines[0]["id"], "73314510714175488");
    let shown = place.json(&["show", "73314510714175488"]).ok();
    assert_eq!(shown.object()["id"], "73314510714175488");
    let balance = place.json(&["balance", "73314510714175489"]).ok();
    assert_eq!(balance.object()["account"], "73314510714175489");
    let letters = place.json(&["dead", "list"]).ok().lines();
    assert_eq!(letters[0]["id"], "73314510714175491");
    let payload = letters[0]["letter"].as_str().unwrap();
    let shown = place.semel(&["dead", "show", payload]).ok();
    assert!(shown.out.contains("73314510714175493"), "{}", shown.out);
}

fn t89_a_dead_letter_tells_reason_attempts_place_and_times(place: Place) {
    place.wallet("");
    place.write_lines(
        "ops.jsonl",
        OPENING
            .iter()
            .copied()
            .chain([r#"{"op":"nobody knows","id":"odd"}"#]),
    );
    let letter = |more: &[&str]| {
        place.drained(more);
        place.json(&["dead", "list"]).ok().object()
    };
    let first = letter(&[]);
    let seen = [
        "code",
        "attempts",
        "count",
        "source",
        "partition",
        "position",
    ]
    .map(|name| &first[name]);
    assert_eq!(
        seen,
        [
            &json!("unknown_op"),
            &json!(1),
            &json!(1),
            &json!("ops"),
            &json!("ops.jsonl"),
            &json!(6)
        ]
    );
    assert!(
        first["detail"].as_str().unwrap().contains("nobody knows"),
        "{first}"
    );
    let at = |letter: &Value, name: &str| letter[name].as_str().unwrap().to_owned();
    assert_eq!(at(&first, "first_at"), at(&first, "at"));
    let again = letter(&["--from-start"]);
    assert_eq!(
        (&again["count"], &again["attempts"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(at(&again, "first_at"), at(&first, "first_at"));
    assert!(at(&again, "at") > at(&first, "at"), "{again}");
}
