//! The published vectors, computed by the second implementation in `vectors/generate.py`.

#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml exempts test functions, not the helpers beside them"
)]

use bytes::Bytes;
use semel_core::key::{Inputs, Lack};
use semel_core::{
    FieldSums, Fingerprint, Json, Key, KeyRule, NoKey, Part, Pointer, Policy, canonical,
};
use serde_json::Value;

fn vectors(file: &str, section: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let whole: Value = serde_json::from_str(&text).unwrap();
    let cases = whole[section].as_array().unwrap().clone();
    assert!(!cases.is_empty());
    cases
}

fn unhex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap().as_bytes();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap())
        .collect()
}

fn lack(no_key: &NoKey) -> &'static str {
    match no_key.why {
        Lack::Missing => "missing",
        Lack::Empty => "empty",
        Lack::TooLong { .. } => "too_long",
        Lack::IllTyped { .. } => "ill_typed",
        Lack::Ambiguous => "ambiguous",
        Lack::TimeOutOfRange { .. } => "time_out_of_range",
        Lack::PartCount { .. } => "part_count",
    }
}

fn assert_answer(case: &Value, answer: &Result<Key, NoKey>) {
    match answer {
        Ok(key) => assert_eq!(case["key"], key.to_string(), "{case}"),
        Err(no_key) => assert_eq!(case["no_key"], lack(no_key), "{case}"),
    }
}

#[test]
fn derived_keys_are_those_of_the_vectors() {
    for case in vectors("key.json", "derive") {
        let parts = case["parts"].as_array().unwrap();
        let bytes: Vec<Vec<u8>> = parts
            .iter()
            .map(|part| {
                if part["kind"] == "s" {
                    part["text"].as_str().unwrap().into()
                } else {
                    unhex(&part["hex"])
                }
            })
            .collect();
        let parts: Vec<Part<'_>> = parts
            .iter()
            .zip(&bytes)
            .map(|(part, bytes)| match part["kind"].as_str().unwrap() {
                "s" => Part::Text(std::str::from_utf8(bytes).unwrap()),
                "u" => Part::Uuid(bytes.as_slice().try_into().unwrap()),
                _ => Part::Raw(bytes),
            })
            .collect();
        let answer = match case["unix_ms"].as_u64() {
            Some(unix_ms) => Key::derive_at(&parts, unix_ms),
            None => Key::derive(&parts),
        };
        assert_answer(&case, &answer);
    }
}

#[test]
fn uuids_are_told_from_text_as_in_the_vectors() {
    for case in vectors("key.json", "spellings") {
        let text = case["text"].as_str().unwrap();
        assert_eq!(case["is_uuid"], text.parse::<Key>().is_ok(), "{case}");
        assert_answer(&case, &Key::derive(&[Part::Text(text)]));
        assert_answer(&case, &Key::of_json(&Json::Text(text.into())));
    }
}

#[test]
fn inner_keys_are_those_of_the_vectors_and_no_id_becomes_one() {
    for case in vectors("key.json", "inner") {
        let of: Key = case["of"].as_str().unwrap().parse().unwrap();
        let number = case["number"].as_u64().unwrap().try_into().unwrap();
        let key = of.inner(case["name"].as_str().unwrap(), number).unwrap();
        assert_eq!(case["key"], key.to_string());
        assert!(key.is_inner());
        for sent in [
            Key::derive(&[Part::Text(&key.to_string())]),
            Key::derive(&[Part::Uuid(key.into_bytes())]),
            Key::derive_at(&[Part::Text(&key.to_string())], 1_767_323_045_678),
        ] {
            assert!(!sent.unwrap().is_inner(), "{case}");
        }
        // Whatever its spelling, such an id is one operation.
        let text = key.to_string();
        for sent in [
            Key::derive(&[Part::Text(&text)]),
            Key::derive(&[Part::Text(&text.to_uppercase())]),
            Key::derive(&[Part::Text(&text.replace('-', ""))]),
            Key::derive(&[Part::Text(&format!("urn:uuid:{text}"))]),
            Key::derive(&[Part::Uuid(key.into_bytes())]),
        ] {
            assert_eq!(case["sent"], sent.unwrap().to_string(), "{case}");
        }
    }
}

#[test]
fn new_keys_are_laid_out_as_in_the_vectors() {
    for case in vectors("key.json", "v7") {
        let key = Key::v7(
            case["unix_ms"].as_u64().unwrap(),
            unhex(&case["random"]).try_into().unwrap(),
        );
        assert_eq!(case["key"], key.to_string());
        assert_eq!(case["unix_ms"].as_u64(), key.v7_unix_ms());
    }
}

#[test]
fn rules_find_the_keys_of_the_vectors() {
    for case in vectors("key.json", "rules") {
        let rule = KeyRule::parse(texts(&case["rule"]), case["key_time"].as_str()).unwrap();
        let payload = Json::parse(case["payload"].as_str().unwrap().as_bytes()).unwrap();
        let headers: Vec<(String, Bytes)> = case["headers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|header| {
                (
                    header[0].as_str().unwrap().to_owned(),
                    unhex(&header[1]).into(),
                )
            })
            .collect();
        let message_key = (!case["message_key"].is_null()).then(|| unhex(&case["message_key"]));
        let inputs = Inputs {
            payload: Some(&payload),
            headers: &headers,
            message_key: message_key.as_deref(),
            now_ms: case["now_ms"].as_u64().unwrap(),
        };
        let found = rule.identify(&inputs);
        if let Ok(identity) = &found {
            assert_eq!(case["id"], *identity.id, "{case}");
        }
        assert_answer(&case, &found.map(|identity| identity.key));
    }
}

fn assert_bound(case: &Value, (fingerprint, sums): (Fingerprint, FieldSums)) {
    assert_eq!(case["fingerprint"], fingerprint.to_string(), "{case}");
    assert_eq!(unhex(&case["sums"]), sums.as_bytes(), "{case}");
}

#[test]
fn content_has_the_form_and_the_fingerprint_of_the_vectors() {
    for case in vectors("fingerprint.json", "content") {
        let payload = case["json"].as_str().unwrap().as_bytes();
        let json = Json::parse(payload).unwrap();
        assert_eq!(
            case["canonical"].as_str().unwrap().as_bytes(),
            canonical(&json),
            "{case}"
        );
        assert_bound(&case, Policy::All.bind(payload, Some(&json)));
    }
}

fn policy(value: &Value) -> Policy {
    let pointers = |name: &str| {
        texts(&value[name])
            .into_iter()
            .map(|text| Pointer::parse(text).unwrap())
            .collect()
    };
    match value {
        Value::String(name) if name == "all" => Policy::All,
        Value::String(_) => Policy::None,
        Value::Object(table) if table.contains_key("except") => Policy::Except(pointers("except")),
        _ => Policy::Fields(pointers("fields")),
    }
}

#[test]
fn policies_bind_what_the_vectors_say() {
    for case in vectors("fingerprint.json", "policies") {
        let policy = policy(&case["policy"]);
        let payload = case["json"].as_str().unwrap().as_bytes();
        let json = Json::parse(payload).unwrap();
        assert_eq!(case["scheme"], policy.scheme().0, "{case}");
        assert_bound(&case, policy.bind(payload, Some(&json)));
        if let Some(content) = case["canonical"].as_str() {
            assert_eq!(
                case["fingerprint"],
                Fingerprint::of_bytes(content.as_bytes()).to_string(),
                "{case}"
            );
        }
    }
}

#[test]
fn raw_bytes_have_the_fingerprint_of_the_vectors() {
    for case in vectors("fingerprint.json", "raw") {
        let payload = unhex(&case["hex"]);
        assert_eq!(
            case["fingerprint"],
            Fingerprint::of_bytes(&payload).to_string()
        );
        assert_eq!(
            Policy::All.bind(&payload, None),
            (Fingerprint::of_bytes(&payload), FieldSums::default())
        );
    }
}
