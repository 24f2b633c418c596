//! The published JSON Schema of operations: equal to the program's own, and right about the vectors.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use semel_wallet::vectors::vectors;
use semel_wallet::{Work, schema};
use serde_json::Value;

#[test]
fn the_schema_is_made_of_the_known_fields() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/wallet-operations.schema.json"
    );
    let made = format!("{:#}\n", schema::operations());
    if std::env::var_os("SEMEL_WRITE_REFERENCE").is_some() {
        std::fs::write(page, &made).unwrap();
    }
    let stored = std::fs::read_to_string(page)
        .expect("docs/reference/wallet-operations.schema.json is there");
    assert_eq!(
        stored, made,
        "write it anew: SEMEL_WRITE_REFERENCE=1 cargo test -p semel-wallet --test schema"
    );
}

/// Just enough of JSON Schema for this one: what it does not know, it does not let pass.
fn valid(schema: &Value, whole: &Value, value: &Value) -> bool {
    schema
        .as_object()
        .unwrap()
        .iter()
        .all(|(word, rule)| match word.as_str() {
            "title" | "description" | "default" | "$schema" | "$defs" | "format" => true,
            "pattern" | "minLength" | "maxLength" => {
                !value.is_string() || value.as_str() != Some("")
            }
            "$ref" => valid(
                &whole["$defs"][rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap()],
                whole,
                value,
            ),
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "type" => match rule {
                Value::Array(kinds) => kinds.iter().any(|kind| is(kind, value)),
                kind => is(kind, value),
            },
            "required" => rule
                .as_array()
                .unwrap()
                .iter()
                .all(|name| !value[name.as_str().unwrap()].is_null()),
            "properties" => rule.as_object().unwrap().iter().all(|(name, field)| {
                let Some(given) = value.get(name).filter(|given| !given.is_null()) else {
                    return true;
                };
                valid(field, whole, given)
            }),
            "items" => value
                .as_array()
                .is_some_and(|items| items.iter().all(|item| valid(rule, whole, item))),
            "minItems" => value.as_array().unwrap().len() as u64 >= rule.as_u64().unwrap(),
            "maxItems" => value.as_array().unwrap().len() as u64 <= rule.as_u64().unwrap(),
            "anyOf" => rule
                .as_array()
                .unwrap()
                .iter()
                .any(|one| valid(one, whole, value)),
            "oneOf" => {
                rule.as_array()
                    .unwrap()
                    .iter()
                    .filter(|one| valid(one, whole, value))
                    .count()
                    == 1
            }
            "not" => !valid(rule, whole, value),
            other => panic!("the schema uses {other}, which this test does not know"),
        })
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap() {
        "string" => value.is_string(),
        "number" | "integer" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("no kind {other}"),
    }
}

#[test]
fn a_vector_is_valid_by_structure_exactly_when_it_is_neither_malformed_nor_unknown() {
    let schema = schema::operations();
    for vector in vectors() {
        for op in &vector.ops {
            let value: Value = serde_json::from_slice(op).unwrap();
            let understood = Work::parse(op, &vector.config).operation().is_ok();
            assert_eq!(valid(&schema, &schema, &value), understood, "{value}");
        }
    }
}
