//! Files as they come: broken, huge, empty, changed.

use serde_json::json;

use crate::place::{OPENING, Place, on_both};

on_both!(
    a_bad_line_is_a_dead_letter_and_its_neighbours_go_on,
    lines_that_are_no_messages_are_counted_and_skipped,
    a_huge_line_is_dead_and_its_beginning_is_kept,
    payloads_that_are_no_text_are_shown_in_base64,
    half_a_csv_record_is_never_applied_and_applies_once_it_is_whole,
    half_a_json_line_is_dead_and_applies_once_it_is_whole,
    a_replaced_file_is_known_after_it_was_read_from_its_start,
    lists_of_bets_that_somebody_bent_into_a_circle_kill_the_cancel_alone,
);

fn a_bad_line_is_a_dead_letter_and_its_neighbours_go_on(place: Place) {
    place.wallet("");
    let bad = [
        "not json",
        "[1]",
        "{\"op\":\"freeze\"",
        "{\"op\":\"freeze\",\"id\":\"a\",\"id\":\"b\"}",
        "{\"op\":\"freeze\",\"id\":\"\\ud800\"}",
        "{\"op\":\"freeze\",\"id\":1.5e400,\"account\":\"none\"}",
        "null",
    ];
    let lines: Vec<&str> = OPENING
        .iter()
        .copied()
        .chain(bad)
        .chain([r#"{"op":"freeze","id":"f","account":"p1"}"#])
        .collect();
    place.write_lines("ops.jsonl", lines);
    let (lines, summary) = place.drained(&[]);
    let codes: Vec<_> = lines[5..12]
        .iter()
        .map(|line| line["code"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(
        codes,
        [
            "malformed",
            "malformed",
            "malformed",
            "malformed",
            "malformed",
            "account_not_found",
            "malformed"
        ]
    );
    assert_eq!(lines[12]["outcome"], "applied");
    assert_eq!(summary["messages"], 13);
    let sum: u64 = summary["outcomes"]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert_eq!(sum, 13, "messages is the sum of outcomes");
}

fn lines_that_are_no_messages_are_counted_and_skipped(place: Place) {
    place.wallet("");
    let text = format!(
        "\u{feff}{}\r\n\n\n{}\n{}",
        OPENING[0], OPENING[1], OPENING[2]
    );
    place.write("ops.jsonl", text);
    let (lines, _) = place.drained(&[]);
    let seen: Vec<_> = lines
        .iter()
        .map(|line| (line["position"].clone(), line["outcome"].clone()))
        .collect();
    assert_eq!(
        seen,
        [
            (json!(1), json!("applied")),
            (json!(4), json!("applied")),
            (json!(5), json!("applied"))
        ]
    );
}

fn a_huge_line_is_dead_and_its_beginning_is_kept(place: Place) {
    place.wallet("message_bytes_max = 100000");
    let huge = format!(
        "{{\"op\":\"freeze\",\"id\":\"h\",\"x\":\"{}\"}}",
        "x".repeat(200_000)
    );
    place.write_lines("ops.jsonl", [huge.as_str(), OPENING[0]]);
    let (lines, _) = place.drained(&[]);
    assert_eq!(
        (&lines[0]["outcome"], &lines[0]["code"]),
        (&json!("dead"), &json!("too_large"))
    );
    assert_eq!(lines[1]["outcome"], "applied");
    let letter = place.json(&["dead", "list"]).ok().object();
    assert_eq!(letter["payload"].as_str().unwrap().len(), 64 * 1024);
    assert_eq!(letter["size"], huge.len());
}

fn payloads_that_are_no_text_are_shown_in_base64(place: Place) {
    place.wallet("");
    place.write("ops.jsonl", b"\xff\xfe\n");
    place.drained(&[]);
    let letter = place.json(&["dead", "list"]).ok().object();
    assert_eq!(
        (&letter["payload"], &letter["payload_encoding"]),
        (&json!("//4="), &json!("base64"))
    );
}

#[test]
fn a_missing_file_stops_the_run_before_anything_is_consumed() {
    let place = Place::new(crate::place::Backend::Sqlite);
    place.wallet("");
    let ran = place.semel(&["run", "--until-idle"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    assert!(ran.err.contains("ops.jsonl"), "{}", ran.err);
    let check = place.json(&["check", "--connect"]);
    assert_eq!(check.code, 1);
    let codes: Vec<_> = check.object()["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["code"].clone())
        .collect();
    assert!(codes.contains(&json!("SEMEL-0503")), "{codes:?}");
}

#[test]
fn a_file_that_shrank_or_changed_stops_the_run_with_exit_code_4() {
    let place = Place::new(crate::place::Backend::Sqlite);
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING);
    place.drained(&[]);
    place.write_lines("ops.jsonl", &OPENING[..2]);
    let ran = place.semel(&["run", "--until-idle"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(
        ran.err.contains("shrank") && ran.err.contains("--from-start"),
        "{}",
        ran.err
    );
    let (lines, _) = place.drained(&["--from-start"]);
    assert!(
        lines.iter().all(|line| line["outcome"] == "duplicate"),
        "{lines:?}"
    );
}

fn half_a_json_line_is_dead_and_applies_once_it_is_whole(place: Place) {
    place.wallet("");
    let opening = OPENING.join("\n");
    place.write("ops.jsonl", &opening[..opening.len() - 10]);
    for run in 0..2 {
        let (_, summary) = place.drained(&[]);
        assert_eq!(summary["outcomes"]["dead"], 1, "{run}: {summary}");
    }
    let letter = place.json(&["dead", "list"]).ok().object();
    assert_eq!(letter["count"], 2);
    assert!(
        letter["headers"].to_string().contains("no line end"),
        "{letter}"
    );
    place.write("ops.jsonl", opening + "\n");
    let (_, summary) = place.drained(&[]);
    assert_eq!(
        (&summary["messages"], &summary["outcomes"]["applied"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(place.drained(&[]).1["messages"], 0);
}

fn half_a_csv_record_is_never_applied_and_applies_once_it_is_whole(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING);
    place.drained(&[]);
    let config = place.read("semel.toml").replace("ops.jsonl", "pays.csv");
    place.write("semel.toml", config);
    let record = "transfer,pay-1,bank,p1,EUR,1000\n";
    let head = "op,id,debit,credit,asset,amount\n";
    // The amount is cut: 10 of 1000.
    place.write("pays.csv", format!("{head}{}", &record[..record.len() - 3]));
    for _ in 0..2 {
        let (lines, summary) = place.drained(&[]);
        assert_eq!(summary["outcomes"]["dead"], 1, "{summary}");
        assert_eq!(
            (&lines[0]["code"], &lines[0]["position"]),
            (&json!("malformed"), &json!(2))
        );
    }
    assert_eq!(
        place.json(&["balance", "p1"]).ok().object()["posted"],
        "1000"
    );
    let letters = place.json(&["dead", "list"]).ok().lines();
    assert_eq!(letters.len(), 1, "the same letter, counted: {letters:?}");
    let shown = place
        .semel(&["dead", "show", letters[0]["letter"].as_str().unwrap()])
        .ok();
    assert!(shown.out.contains("may be half written"), "{}", shown.out);
    place.write("pays.csv", format!("{head}{record}"));
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["applied"], 1);
    assert_eq!(
        place.json(&["balance", "p1"]).ok().object()["posted"],
        "2000"
    );
    let (lines, _) = place.drained(&[]);
    assert!(lines.is_empty());
}

fn a_replaced_file_is_known_after_it_was_read_from_its_start(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING);
    place.drained(&[]);
    let shorter = r#"{"op":"open_account","id":"open-p9","account":"p9","asset":"EUR"}"#;
    place.write_lines("ops.jsonl", [shorter]);
    let ran = place.semel(&["run", "--until-idle"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("--from-start"), "{}", ran.err);
    let (_, summary) = place.drained(&["--from-start"]);
    assert_eq!(summary["outcomes"]["applied"], 1);
    let (lines, _) = place.drained(&[]);
    assert!(lines.is_empty(), "{lines:?}");
    // The same file, read again: its position stays where it is.
    place.write_lines("ops.jsonl", [shorter, OPENING[0]]);
    let (lines, _) = place.drained(&[]);
    assert_eq!(lines.len(), 1);
}

fn lists_of_bets_that_somebody_bent_into_a_circle_kill_the_cancel_alone(place: Place) {
    place.wallet("");
    let bets = (0..70).map(|n| {
        format!(r#"{{"op":"bet","id":"b{n}","round":"r","account":"p1","asset":"EUR","amount":1}}"#)
    });
    let mut lines: Vec<String> = OPENING.map(str::to_owned).into_iter().chain(bets).collect();
    place.write_lines("ops.jsonl", &lines);
    place.drained(&[]);
    place.sql("UPDATE wallet_bet SET chain = key WHERE length(earlier) > 0");
    lines.push(r#"{"op":"cancel_round","id":"c","round":"r","account":"p1"}"#.to_owned());
    lines.push(r#"{"op":"freeze","id":"f","account":"p2"}"#.to_owned());
    place.write_lines("ops.jsonl", &lines);
    let (lines, _) = place.drained(&[]);
    let ends: Vec<_> = lines.iter().map(|l| (&l["outcome"], &l["code"])).collect();
    assert_eq!(
        ends,
        [
            (&json!("dead"), &json!("poison")),
            (&json!("applied"), &json!(null))
        ]
    );
    let letter = place.json(&["dead", "list"]).ok().object();
    assert!(
        letter["detail"].as_str().unwrap().contains("do not end"),
        "{letter}"
    );
    let player = place.json(&["balance", "p1"]).ok().object();
    assert_eq!(player["posted"], "930", "no stake came back");
}
