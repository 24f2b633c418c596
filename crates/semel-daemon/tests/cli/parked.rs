//! Messages that wait: until when, for what, and how they end.

use crate::place::{OPENING, Place, on_both};

on_both!(a_parked_message_that_no_longer_binds_is_dead_at_its_deadline);

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
