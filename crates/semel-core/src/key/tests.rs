use bytes::Bytes;

use super::*;
use crate::json::Json;

const UUID: &str = "0190d6f3-79f9-7000-8000-0000deadbeef";

fn rule(parts: &[&str]) -> KeyRule {
    KeyRule::parse(parts.iter().copied(), None).unwrap()
}

/// What the rule makes of a payload: the id and the key, or why there is none.
fn identify(rule: &KeyRule, payload: &str) -> Result<(String, Key), NoKey> {
    let json = Json::parse(payload.as_bytes()).unwrap();
    let inputs = Inputs {
        payload: Some(&json),
        headers: &[],
        message_key: None,
        now_ms: 1_800_000_000_000,
    };
    rule.identify(&inputs)
        .map(|identity| (identity.id.into_owned(), identity.key))
}

fn no_key(rule: &KeyRule, payload: &str) -> String {
    identify(rule, payload).unwrap_err().to_string()
}

fn of(text: &str) -> Key {
    Key::derive(&[Part::Text(text)]).unwrap()
}

#[test]
fn a_key_is_written_in_one_spelling_and_read_in_all() {
    let key: Key = UUID.parse().unwrap();
    assert_eq!(key.to_string(), UUID);
    assert_eq!(format!("{key:?}"), format!("Key({UUID})"));
    assert_eq!(Key::from_bytes(*key.as_bytes()), key);
    let simple = UUID.replace('-', "");
    for spelling in [
        UUID.to_uppercase(),
        simple.clone(),
        format!("{{{UUID}}}"),
        format!("{{{simple}}}"),
        format!("urn:uuid:{UUID}"),
        format!("URN:UUID:{simple}"),
    ] {
        assert_eq!(spelling.parse(), Ok(key), "{spelling}");
        assert_eq!(of(&spelling), key, "{spelling}");
    }
    assert_eq!(
        "bet-42".parse::<Key>().unwrap_err().to_string(),
        "no key: `bet-42` is text, not a UUID"
    );
    assert!("é".repeat(16).parse::<Key>().is_err());
}

#[test]
fn keys_sort_like_their_bytes_and_new_ones_by_time() {
    let early = Key::v7(1_000, [0xFF; 10]);
    let late = Key::v7(1_001, [0; 10]);
    assert!(early < late);
    assert_eq!(
        (early.v7_unix_ms(), late.v7_unix_ms()),
        (Some(1_000), Some(1_001))
    );
    assert_eq!(Key::v7(u64::MAX, [0; 10]).v7_unix_ms(), Some((1 << 48) - 1));
}

#[test]
fn the_time_of_a_derived_key_is_never_guessed_from_its_bits() {
    let parts = [Part::Text("acme"), Part::Text("bet-42")];
    let key = Key::derive_at(&parts, 1_767_323_045_678).unwrap();
    assert_eq!(
        key.as_bytes()[..6],
        1_767_323_045_678_u64.to_be_bytes()[2..]
    );
    assert_eq!(key.v7_unix_ms(), None);
    assert_ne!(key, Key::derive_at(&parts, 1_767_323_045_679).unwrap());
}

#[test]
fn a_number_and_its_text_are_one_id() {
    let id = |payload: &str| Key::of_json(&Json::parse(payload.as_bytes()).unwrap());
    assert_eq!(id("123"), id(r#""123""#));
    assert_ne!(id("1.0"), id("1"));
    assert_eq!(
        id(r#""{0190D6F3-79F9-7000-8000-0000DEADBEEF}""#),
        UUID.parse()
    );
}

#[test]
fn t78_what_is_empty_or_missing_is_no_key() {
    let id = |payload: &str| {
        Key::of_json(&Json::parse(payload.as_bytes()).unwrap())
            .unwrap_err()
            .of("debit")
            .to_string()
    };
    assert_eq!(id("null"), "no key: `debit` is missing or null");
    assert_eq!(id(r#""""#), "no key: `debit` is empty");
    assert_eq!(
        id("true"),
        "no key: `debit` is a boolean, not text or a number"
    );
    assert_eq!(
        id("{}"),
        "no key: `debit` is an object, not text or a number"
    );

    let by_id = rule(&["/id"]);
    assert_eq!(no_key(&by_id, "{}"), "no key: `/id` is missing or null");
    assert_eq!(
        no_key(&by_id, r#"{"id":null}"#),
        "no key: `/id` is missing or null"
    );
    assert_eq!(no_key(&by_id, r#"{"id":""}"#), "no key: `/id` is empty");
    assert_eq!(
        no_key(&by_id, r#"{"id":[]}"#),
        "no key: `/id` is an array, not text or a number"
    );
    assert_eq!(
        no_key(&rule(&["trim(/id)"]), r#"{"id":" "}"#),
        "no key: `trim(/id)` is empty"
    );
    assert_eq!(
        no_key(&rule(&["/id", "/seat"]), r#"{"id":"a"}"#),
        "no key: `/seat` is missing or null"
    );
    assert_eq!(
        Key::derive(&[]).unwrap_err().to_string(),
        "no key: the parts are 0, not 1 to 16"
    );
}

#[test]
fn e087_one_limit_of_512_bytes_whatever_the_text() {
    let by_id = rule(&["/id"]);
    for length in [100, 101, 255, 256, PART_BYTES_MAX] {
        assert!(
            identify(&by_id, &format!(r#"{{"id":"{}"}}"#, "k".repeat(length))).is_ok(),
            "{length}"
        );
    }
    for length in [PART_BYTES_MAX + 1, 2_600, 2_700, 9_000, 10_000] {
        let text = no_key(&by_id, &format!(r#"{{"id":"{}"}}"#, "a".repeat(length)));
        assert_eq!(
            text,
            format!("no key: `/id` has {length} bytes, more than 512")
        );
    }
}

#[test]
fn e089_a_space_or_a_tab_makes_another_id_unless_trimmed() {
    let ids = [
        r#"{"id":"evt-1"}"#,
        r#"{"id":"evt-1 "}"#,
        r#"{"id":"evt-1\t"}"#,
    ];
    let keys = |rule: &KeyRule| ids.map(|payload| identify(rule, payload).unwrap().1);
    let [plain, space, tab] = keys(&rule(&["/id"]));
    assert!(plain != space && space != tab && plain != tab);
    assert_eq!(keys(&rule(&["trim(/id)"])), [plain; 3]);
}

#[test]
fn parts_are_told_apart_by_kind_length_and_order() {
    let key = |parts: &[Part<'_>]| Key::derive(parts).unwrap();
    let (a, b) = (Part::Text("a"), Part::Text("b"));
    let keys = [
        key(&[a, b]),
        key(&[b, a]),
        key(&[Part::Text("ab")]),
        key(&[Part::Text("a"), Part::Raw(b"b")]),
        key(&[Part::Raw(b"ab")]),
        key(&[a, b, b]),
    ];
    let different: std::collections::BTreeSet<Key> = keys.into_iter().collect();
    assert_eq!(different.len(), keys.len());
}

#[test]
fn a_child_is_derived_from_its_parent_and_name() {
    let parent: Key = UUID.parse().unwrap();
    let parts = [Part::Uuid(parent.into_bytes()), Part::Text("expire")];
    assert_eq!(parent.child("expire"), Key::derive(&parts));
    let numbered = [
        Part::Uuid(parent.into_bytes()),
        Part::Text("outbox"),
        Part::Text("7"),
    ];
    assert_eq!(parent.numbered_child("outbox", 7), Key::derive(&numbered));
    assert_ne!(parent.child("outbox"), parent.numbered_child("outbox", 0));
    assert_eq!(
        parent.child("").unwrap_err().to_string(),
        "no key: part 2 is empty"
    );
}

#[test]
fn the_id_is_the_source_text_before_normalising() {
    let (id, key) = identify(&rule(&["lower(trim(/id))"]), r#"{"id":" BET-42 "}"#).unwrap();
    assert_eq!((id.as_str(), key), (" BET-42 ", of("bet-42")));
    let (id, _) = identify(
        &rule(&["const:acme", "/id", "/live"]),
        r#"{"id":7,"live":true}"#,
    )
    .unwrap();
    assert_eq!(id, "acme/7/true");
}

#[test]
fn a_boolean_is_a_part_but_never_a_whole_key() {
    let text = no_key(&rule(&["/live"]), r#"{"live":true}"#);
    assert_eq!(text, "no key: `/live` is a boolean, not text or a number");
    assert!(identify(&rule(&["/live", "/id"]), r#"{"live":true,"id":1}"#).is_ok());
}

fn header_key(headers: &[(&str, &[u8])]) -> Result<Key, NoKey> {
    let headers: Vec<(String, Bytes)> = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Bytes::copy_from_slice(value)))
        .collect();
    let inputs = Inputs {
        payload: None,
        headers: &headers,
        message_key: Some(b"k-1"),
        now_ms: 0,
    };
    let by_header = rule(&["header:idempotency-key"]);
    assert!(!by_header.needs_payload());
    by_header.identify(&inputs).map(|identity| identity.key)
}

#[test]
fn a_header_with_two_values_is_no_key() {
    assert_eq!(
        header_key(&[("Idempotency-Key", b"a"), ("x", b"b")]),
        Ok(of("a"))
    );
    assert_eq!(
        header_key(&[("idempotency-key", b"a"), ("Idempotency-Key", b"a")]),
        Ok(of("a"))
    );
    let text = header_key(&[("idempotency-key", b"a"), ("idempotency-key", b"b")])
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "no key: `header:idempotency-key` is given more than once, with different values"
    );
    assert_eq!(header_key(&[]).unwrap_err().why, Lack::Missing);
}

#[test]
fn a_pointer_without_a_json_payload_is_no_key() {
    let inputs = Inputs {
        payload: None,
        headers: &[],
        message_key: None,
        now_ms: 0,
    };
    assert_eq!(
        rule(&["/id"]).identify(&inputs).unwrap_err().why,
        Lack::Missing
    );
    assert!(rule(&["/id"]).needs_payload());
}

fn timed(payload: &str) -> Result<Option<u64>, String> {
    let rule = KeyRule::parse(["/id"], Some("/at")).unwrap();
    let json = Json::parse(payload.as_bytes()).unwrap();
    let inputs = Inputs {
        payload: Some(&json),
        headers: &[],
        message_key: None,
        now_ms: 1_767_323_045_678,
    };
    rule.identify(&inputs)
        .map(|identity| identity.unix_ms)
        .map_err(|e| e.to_string())
}

#[test]
fn an_operations_own_time_is_floored_and_stays_within_its_limits() {
    let ms = Ok(Some(1_767_323_045_678));
    assert_eq!(
        timed(r#"{"id":"a","at":"2026-01-02T03:04:05.678999Z"}"#),
        ms
    );
    assert_eq!(
        timed(r#"{"id":"a","at":"2026-01-02T04:04:05.678+01:00"}"#),
        ms
    );
    assert_eq!(timed(r#"{"id":"a","at":1767323045678}"#), ms);
    assert_eq!(
        timed(r#"{"id":"a","at":1767409445678}"#),
        Ok(Some(1_767_409_445_678))
    );
    for at in [
        "1767409445679",
        "1767323045",
        "-1",
        "\"1999-12-31T23:59:59.999Z\"",
        "99999999999999999999",
    ] {
        let text = timed(&format!(r#"{{"id":"a","at":{at}}}"#)).unwrap_err();
        assert!(
            text.contains("before 2000-01-01 or more than a day ahead"),
            "{at}: {text}"
        );
    }
    for at in [
        "null",
        "1.5",
        "1e12",
        "true",
        "\"\"",
        "\"2026-01-02\"",
        "\"2026-01-02T03:04:05\"",
        "\"yesterday\"",
    ] {
        let text = timed(&format!(r#"{{"id":"a","at":{at}}}"#)).unwrap_err();
        assert!(
            text.starts_with("no key: `/at` (key_time) is "),
            "{at}: {text}"
        );
    }
}

#[test]
fn the_time_of_a_uuidv7_and_of_a_declared_ulid_is_known() {
    let unix_ms = |rule: KeyRule, payload: &str| {
        let json = Json::parse(payload.as_bytes()).unwrap();
        let inputs = Inputs {
            payload: Some(&json),
            headers: &[],
            message_key: None,
            now_ms: 0,
        };
        rule.identify(&inputs).unwrap().unix_ms
    };
    let v7 = format!(r#"{{"id":"{}"}}"#, Key::v7(1_767_323_045_678, [1; 10]));
    assert_eq!(unix_ms(rule(&["/id"]), &v7), Some(1_767_323_045_678));
    let ulid = r#"{"id":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}"#;
    assert_eq!(unix_ms(rule(&["ulid(/id)"]), ulid), Some(1_469_922_850_259));
    assert_eq!(unix_ms(rule(&["/id"]), ulid), None);
}

#[test]
fn a_rule_is_written_as_it_is_read() {
    for text in [
        "/id",
        "/a~1b/0",
        "header:X-Id",
        "message_key",
        "const:a(b)",
        "lower(trim(/id))",
        "uuid(message_key)",
        "int(const:)x)",
    ] {
        assert_eq!(text.parse::<PartRule>().unwrap().to_string(), text);
    }
    let rule = KeyRule::parse(["const:acme", "/id"], Some("/at")).unwrap();
    assert_eq!(rule.to_string(), r#"["const:acme", "/id"] at /at"#);
}

#[test]
fn a_rule_that_makes_no_sensible_key_is_refused() {
    let why = |parts: &[&str]| {
        KeyRule::parse(parts.iter().copied(), None)
            .unwrap_err()
            .to_string()
    };
    assert!(why(&[]).contains("it needs 1 to 16 parts"));
    assert!(why(&["/id"; 17]).contains("it needs 1 to 16 parts"));
    assert!(why(&["const:a", "const:b"]).contains("all messages would be one operation"));
    assert!(why(&["/id", "const:"]).contains("a constant has 1 to 512 bytes"));
    assert!(why(&["header:"]).contains("the header has no name"));
    assert!(why(&["lower(uuid(/id))"]).contains("nothing can be done to a part after"));
    assert!(
        why(&["id"]).starts_with("`id` is no key rule: a part is a JSON pointer such as `/id`")
    );
    assert!(why(&["upper(/id)"]).contains("`nfc`"));
    assert!(why(&["/a~"]).contains("JSON pointer"));
    assert!(
        KeyRule::parse(["/id"], Some("at"))
            .unwrap_err()
            .to_string()
            .contains("must start with `/`")
    );
}
