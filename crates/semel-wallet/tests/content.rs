//! What makes two messages the same operation: the fingerprint of the normalised content, and the field
//! that a Clash names.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use semel::staged::Staged;
use semel_core::Message;
use semel_core::key::KeyRule;
use semel_core::law::Binding;
use semel_wallet::{Config, Wallet};

fn wallet() -> Wallet {
    Wallet::new(
        Config::new([("EUR", 2), ("JPY", 0)])
            .unwrap()
            .house("house")
            .unwrap(),
    )
}

fn message(text: &str) -> Message {
    Message::new(text.as_bytes().to_vec(), "ops.jsonl", Some(1))
}

fn bind(text: &str) -> Binding {
    wallet().bind(&message(text)).unwrap().binding
}

fn assert_same(one: &str, two: &str) {
    assert_eq!(bind(one), bind(two), "{one} and {two}");
}

/// The field that the second is said to differ in.
fn clash(one: &str, two: &str) -> Option<String> {
    let (first, second) = (bind(one), wallet().bind(&message(two)).unwrap());
    assert_eq!(first.key, second.binding.key);
    assert_ne!(
        first.fingerprint, second.binding.fingerprint,
        "{one} and {two}"
    );
    wallet().differing(&message(two), &second.work, &first.sums)
}

const TRANSFER: &str =
    r#"{"op":"transfer","id":"1","debit":"7","credit":"b","asset":"EUR","amount":"250"}"#;

#[test]
fn e110_order_space_spelling_and_unknown_fields_make_no_other_operation() {
    assert_same(
        TRANSFER,
        r#"{ "amount":250, "asset":"EUR", "credit":"b", "debit":7, "id":"1", "op":"transfer" }"#,
    );
    assert_same(
        TRANSFER,
        r#"{"op":"transfer","id":"1","debit":"7","credit":"b","asset":"EUR","value":"2.50"}"#,
    );
    assert_same(
        TRANSFER,
        r#"{"op":"transfer","id":"1","debit":"7","credit":"b","asset":"EUR","value":2.5,"amount":null}"#,
    );
    assert_same(
        TRANSFER,
        r#"{"op":"transfer","id":"1","debit":"7","credit":"b","asset":"EUR","amount":"0250","trace":"x","at":"2026-01-01T00:00:00Z","reason":null}"#,
    );
}

#[test]
fn a_value_whose_asset_only_a_stored_row_tells_counts_as_it_is_written() {
    let of = |op: &str, value: &str| format!(r#"{{"op":{op},"id":"1","value":{value}}}"#);
    for op in [r#""capture","hold":"h""#, r#""refund","capture":"c""#] {
        assert_same(&of(op, r#""5.0""#), &of(op, "5.0"));
        let field = clash(&of(op, r#""5.0""#), &of(op, r#""5.00""#));
        assert_eq!(field.as_deref(), Some("value"));
    }
}

/// Binds as a wallet of these assets, and says whether it takes the message for the one that was bound first.
fn again(first: &Binding, text: &str, assets: &[(&str, u8)], recorded: &[(&str, u8)]) -> bool {
    let recorded = recorded
        .iter()
        .map(|(code, scale)| ((*code).to_owned(), *scale));
    let config = Config::new(assets.iter().copied()).unwrap();
    let wallet = Wallet::new(config).knowing(recorded.collect());
    let bound = wallet.bind(&message(text)).unwrap();
    let same = || wallet.same(&message(text), &bound.work, first.fingerprint);
    bound.binding.scheme == first.scheme
        && (bound.binding.fingerprint == first.fingerprint || same())
}

#[test]
fn an_asset_that_is_declared_later_or_no_more_makes_no_other_operation_of_a_copy() {
    let op = |value: &str| {
        format!(
            r#"{{"op":"transfer","id":"1","debit":"a","credit":"b","asset":"XAU","value":"{value}"}}"#
        )
    };
    let group = |value: &str| {
        format!(
            r#"{{"op":"transfer_group","id":"1","legs":[{{"debit":"a","credit":"b","asset":"EUR","value":"1"}},{{"debit":"a","credit":"b","asset":"XAU","value":"{value}"}}]}}"#
        )
    };
    for (five, six) in [(op("5.00"), op("6.00")), (group("5.00"), group("6.00"))] {
        let before = bind(&five);
        let declared = [("EUR", 2), ("JPY", 0), ("XAU", 2)];
        assert!(again(&before, &five, &declared, &[]), "{five}");
        assert!(!again(&before, &six, &declared, &[]), "{six}");
        let wallet = Wallet::new(Config::new(declared).unwrap());
        let first = wallet.bind(&message(&five)).unwrap().binding;
        let left = [("EUR", 2), ("JPY", 0)];
        assert!(again(&first, &five, &left, &declared), "{five}");
        assert!(!again(&first, &six, &left, &declared), "{six}");
    }
}

#[test]
fn uuids_are_one_reference_in_any_spelling() {
    let op = |hold: &str| format!(r#"{{"op":"release","id":"1","hold":"{hold}"}}"#);
    assert_same(
        &op("0190d6f3-79f9-7000-8000-0000deadbeef"),
        &op("{0190D6F379F9700080000000DEADBEEF}"),
    );
}

#[test]
fn absent_optional_fields_are_their_default() {
    assert_same(
        r#"{"op":"capture","id":"1","hold":"h"}"#,
        r#"{"op":"capture","id":"1","hold":"h","final":true}"#,
    );
    let open = r#"{"op":"open_account","id":"1","account":"a","asset":"EUR"}"#;
    assert_same(
        open,
        r#"{"op":"open_account","id":"1","account":"a","asset":"EUR","kind":"cash","limit":"no_negative"}"#,
    );
    let house = r#"{"op":"open_account","id":"1","account":"a","asset":"EUR","kind":"house"}"#;
    assert_same(
        house,
        r#"{"op":"open_account","id":"1","account":"a","asset":"EUR","kind":"house","limit":"none"}"#,
    );
    assert_eq!(clash(open, house).as_deref(), Some("kind"));
}

#[test]
fn a_clash_names_the_field_as_the_payload_writes_it() {
    let other = |text: &str| clash(TRANSFER, text);
    let t = |rest: &str| format!(r#"{{"op":"transfer","id":"1","debit":"7","credit":"b",{rest}}}"#);
    assert_eq!(
        other(&t(r#""asset":"EUR","amount":"2500""#)).as_deref(),
        Some("amount")
    );
    assert_eq!(
        other(&t(r#""asset":"EUR","value":"25.00""#)).as_deref(),
        Some("value")
    );
    assert_eq!(
        other(&t(r#""asset":"EUR","value":"2.505""#)).as_deref(),
        Some("value")
    );
    assert_eq!(
        other(&t(r#""asset":"JPY","amount":"250""#)).as_deref(),
        Some("asset")
    );
    assert_eq!(
        other(&t(r#""asset":"EUR","amount":"250","reason":"gift""#)).as_deref(),
        Some("reason")
    );
    assert_eq!(
        other(r#"{"op":"freeze","id":"1","account":"7"}"#).as_deref(),
        Some("account")
    );
}

#[test]
fn a_clash_inside_a_group_names_the_leg() {
    let group = |amount: &str| {
        format!(
            r#"{{"op":"transfer_group","id":"1","legs":[{{"debit":"a","credit":"b","asset":"EUR",{amount}}},{{"debit":"b","credit":"c","asset":"EUR","amount":1}}]}}"#
        )
    };
    let first = group(r#""amount":5"#);
    assert_eq!(
        clash(&first, &group(r#""amount":6"#)).as_deref(),
        Some("legs/0/amount")
    );
    assert_eq!(
        clash(&first, &group(r#""value":"0.06""#)).as_deref(),
        Some("legs/0/value")
    );
}

#[test]
fn a_malformed_copy_of_a_held_key_is_still_compared_field_by_field() {
    assert_same(
        TRANSFER,
        r#"{"op":"transfer","id":"1","debit":"7","credit":"b","asset":"EUR","amount":"250","at":"never"}"#,
    );
    assert_eq!(
        clash(
            TRANSFER,
            r#"{"op":"transfer","id":"1","debit":["7"],"credit":"b","asset":"EUR","amount":"250"}"#
        )
        .as_deref(),
        Some("debit/0")
    );
}

#[test]
fn without_a_key_or_an_object_nothing_is_claimed() {
    for (payload, code) in [
        ("", "malformed"),
        ("[1]", "malformed"),
        ("\"x\"", "malformed"),
        (r#"{"op":"freeze","id":"1","account":"a"} x"#, "malformed"),
        (
            r#"{"op":"freeze","id":"1","id":"1","account":"a"}"#,
            "malformed",
        ),
        (r#"{"op":"freeze","account":"a"}"#, "no_key"),
        (r#"{"op":"freeze","id":null,"account":"a"}"#, "no_key"),
        (r#"{"op":"freeze","id":"","account":"a"}"#, "no_key"),
        (r#"{"op":"freeze","id":true,"account":"a"}"#, "no_key"),
        (r#"{"op":"freeze","id":["1"],"account":"a"}"#, "no_key"),
    ] {
        let reject = wallet().bind(&message(payload)).unwrap_err();
        assert_eq!(reject.code.as_str(), code, "{payload}");
        if code == "no_key" {
            assert_eq!(reject.field.as_deref(), Some("id"), "{payload}");
        }
    }
    let null = Message {
        payload: None,
        ..message("")
    };
    assert_eq!(wallet().bind(&null).unwrap_err().code.as_str(), "malformed");
    let edge = |bytes: usize| {
        message(&format!(
            r#"{{"op":"freeze","id":"{}","account":"a"}}"#,
            "k".repeat(bytes)
        ))
    };
    assert!(wallet().bind(&edge(512)).is_ok());
    assert_eq!(
        wallet().bind(&edge(513)).unwrap_err().code.as_str(),
        "no_key"
    );
}

#[test]
fn t19_the_id_that_is_stored_has_no_nul_character_whatever_it_is_made_of() {
    let field = |id: &str, reference: &str| {
        let rule = KeyRule::parse(["/ref"], None).unwrap();
        let wallet = wallet().keyed_by(rule);
        let text = format!(r#"{{"op":"freeze","id":"{id}","ref":"{reference}","account":"a"}}"#);
        let work = wallet.bind(&message(&text)).unwrap().work;
        work.operation().clone().err().and_then(|dead| dead.field)
    };
    assert_eq!(field("1", "\\u0000").as_deref(), Some("id"));
    assert_eq!(field("\\u0000", "1"), None);
}

#[test]
fn t88_a_name_twice_is_malformed_and_named() {
    let twice = r#"{"op":"transfer","id":"1","debit":"a","credit":"b","asset":"EUR","amount":1,"amount":1000000}"#;
    let reject = wallet().bind(&message(twice)).unwrap_err();
    assert_eq!(
        (reject.code.as_str(), reject.field.as_deref()),
        ("malformed", Some("amount"))
    );
}

#[test]
fn e129_deep_nesting_is_a_dead_letter_and_not_a_crash() {
    let deep = format!(
        r#"{{"op":"freeze","id":"1","account":{}1{}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    assert_eq!(
        wallet().bind(&message(&deep)).unwrap_err().code.as_str(),
        "malformed"
    );
}

#[test]
fn messages_of_one_round_hold_account_or_debit_share_a_lane() {
    let lane = |text: &str| wallet().bind(&message(text)).unwrap().lane;
    let bet = lane(r#"{"op":"bet","id":"1","round":"r","account":"p1","asset":"EUR","amount":1}"#);
    assert!(bet.is_some());
    assert_eq!(
        bet,
        lane(r#"{"op":"win","id":"2","round":"r","account":"p2","asset":"EUR","amount":1}"#)
    );
    assert_ne!(
        bet,
        lane(r#"{"op":"bet","id":"1","round":"r2","account":"p1","asset":"EUR","amount":1}"#)
    );
    let leg = r#"{"op":"transfer_group","id":"1","legs":[{"debit":"d","credit":"b","asset":"EUR","amount":1}]}"#;
    let debit = r#"{"op":"transfer","id":"1","debit":"d","credit":"c","asset":"EUR","amount":1}"#;
    assert_eq!(lane(leg), lane(debit));
    assert_eq!(
        lane(r#"{"op":"freeze","id":"1","account":"d"}"#),
        lane(debit)
    );
    assert_eq!(lane(r#"{"op":"rollback","id":"1","bet":"r"}"#), bet);
}
