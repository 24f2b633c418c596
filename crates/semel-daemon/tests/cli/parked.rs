//! Messages that wait: until when, for what, and how they end.

use crate::place::{OPENING, Place, on_both};

on_both!(
    a_parked_message_that_no_longer_binds_is_dead_at_its_deadline,
    what_a_message_waits_for_is_told_by_name,
);

const WIN: &str = r#"{"op":"win","id":"w-1","ref":"r-1","round":"none","account":"p1","asset":"EUR","amount":"5"}"#;

fn a_parked_message_that_no_longer_binds_is_dead_at_its_deadline(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING.into_iter().chain([WIN]));
    assert_eq!(place.drained(&[]).1["outcomes"]["parked"], 1);

    place.wallet("key = \"/ref\"");
    place.semel(&["migrate", "--accept-key-change"]).ok();
    let (_, early) = place.drained(&[]);
    assert_eq!(early["released"]["dead"], 0, "its minute is not over");
    assert_eq!(place.json(&["parked", "list"]).lines().len(), 1);

    place.sql("UPDATE semel_parked SET deadline = parked_at");
    let (_, late) = place.drained(&[]);
    assert_eq!(late["released"]["dead"], 1);
    assert!(place.json(&["parked", "list"]).ok().lines().is_empty());
    let letter = place.json(&["dead", "list"]).ok().object();
    assert_eq!(letter["code"], "parked_too_long");
    assert_eq!(letter["id"], "w-1");
}

fn what_a_message_waits_for_is_told_by_name(place: Place) {
    place.wallet("");
    let waiting = [
        r#"{"op":"capture","id":"c-1","hold":"h-7"}"#,
        r#"{"op":"refund","id":"r-1","capture":"c-8","amount":1}"#,
        WIN,
        // Taken to the last day of years with four digits.
        r#"{"op":"authorize","id":"a-1","hold":"h-9","debit":"p1","credit":"p2","asset":"EUR","amount":1,"expires_at":"9999-12-31T23:59:59Z"}"#,
    ];
    place.write_lines("ops.jsonl", OPENING.into_iter().chain(waiting));
    let (_, summary) = place.drained(&[]);
    assert_eq!(
        (
            &summary["outcomes"]["parked"],
            &summary["outcomes"]["applied"]
        ),
        (&3.into(), &6.into())
    );
    let parked = place.json(&["parked", "list"]).ok().lines();
    let mut told: Vec<_> = parked
        .iter()
        .map(|line| ["id", "awaiting", "awaited"].map(|name| line[name].as_str().unwrap()))
        .collect();
    told.sort_unstable();
    let known = [
        ["c-1", "hold", "h-7"],
        ["r-1", "transfer", "c-8"],
        ["w-1", "round", "none"],
    ];
    assert_eq!(told, known);
    let words = place.semel(&["parked", "list"]).ok().out;
    assert!(
        words.contains("hold h-7") && words.contains("round none"),
        "{words}"
    );
    let words = place.semel(&["show", "r-1"]).ok().out;
    assert!(words.contains("waits for transfer c-8"), "{words}");
    place.json(&["audit"]).ok();
}
