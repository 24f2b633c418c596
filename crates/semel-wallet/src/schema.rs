//! The JSON Schema of operations, made of the same list of fields that fingerprints are made of, so that the
//! document cannot tell of other fields than the program knows.

use serde_json::{Map, Value, json};

use crate::op::{Verb, known_fields};

/// The schema, `docs/reference/wallet-operations.schema.json`.
#[must_use]
pub fn operations() -> Value {
    let known = Verb::ALL.into_iter().filter(|verb| *verb != Verb::Expire);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An operation of the Semel wallet",
        "description": "One message is one JSON object is one operation. Unknown fields are ignored; an optional field that is null counts as absent. The pattern of an amount is a business rule: another text is refused, not dead.",
        "type": "object",
        "required": ["op", "id"],
        "oneOf": known.map(operation).collect::<Vec<Value>>(),
        "$defs": definitions(),
    })
}

fn definitions() -> Value {
    let leg = fields(&["amount", "asset", "credit", "debit"]);
    json!({
        "id": {
            "description": "Text, or a number taken as its source text, so that 123 and \"123\" are one id. A UUID is one id in any spelling.",
            "anyOf": [{ "type": "string", "minLength": 1, "maxLength": 512 }, { "type": "number" }],
        },
        "amount": {
            "description": "Minor units, an integer of 128 bits.",
            "anyOf": [{ "type": "string", "pattern": "^-?[0-9]+$" }, { "type": "integer" }],
        },
        "value": {
            "description": "Major units, a plain decimal, exact in the asset's scale.",
            "anyOf": [{ "type": "string", "pattern": "^-?[0-9]+(\\.[0-9]+)?$" }, { "type": "number" }],
        },
        "time": { "description": "RFC 3339 with an offset.", "type": "string", "format": "date-time" },
        "note": { "type": ["string", "number", "null"] },
        "leg": {
            "type": "object",
            "required": ["asset", "credit", "debit"],
            "properties": leg,
            "oneOf": [{ "required": ["amount"] }, { "required": ["value"] }],
        },
    })
}

fn operation(verb: Verb) -> Value {
    let names: Vec<&str> = known_fields(verb).collect();
    let mut properties = fields(&names);
    properties.insert("op".to_owned(), json!({ "const": verb.as_str() }));
    properties.insert("at".to_owned(), json!({ "$ref": "#/$defs/time" }));
    let optional = optional(verb);
    let required: Vec<&&str> = names
        .iter()
        .filter(|name| !optional.contains(name))
        .collect();
    let mut schema =
        json!({ "title": verb.as_str(), "properties": properties, "required": required });
    let money = names.contains(&"amount");
    if let (true, Some(schema)) = (money, schema.as_object_mut()) {
        let one = json!([{ "required": ["amount"] }, { "required": ["value"] }]);
        let neither = json!({ "not": { "anyOf": one } });
        let choices = if verb == Verb::Capture {
            json!([one[0], one[1], neither])
        } else {
            one
        };
        schema.insert("oneOf".to_owned(), choices);
    }
    schema
}

/// Known fields that may be absent. Which of `amount` and `value` is there is said by `oneOf`.
fn optional(verb: Verb) -> &'static [&'static str] {
    match verb {
        Verb::OpenAccount => &["kind", "limit"],
        Verb::Transfer => &["amount", "reason"],
        Verb::Authorize => &["amount", "expires_at"],
        Verb::Capture => &["amount", "final"],
        Verb::Refund => &["amount"],
        Verb::Bet => &["amount", "game"],
        Verb::Win => &["amount", "bet"],
        Verb::Freeze
        | Verb::Unfreeze
        | Verb::CloseAccount
        | Verb::TransferGroup
        | Verb::Reverse
        | Verb::Release
        | Verb::Rollback
        | Verb::CloseRound
        | Verb::CancelRound
        | Verb::Expire => &[],
    }
}

fn fields(names: &[&str]) -> Map<String, Value> {
    let mut properties = Map::new();
    for name in names {
        properties.insert((*name).to_owned(), field(name));
        if *name == "amount" {
            properties.insert("value".to_owned(), field("value"));
        }
    }
    properties
}

fn field(name: &str) -> Value {
    match name {
        "amount" => json!({ "$ref": "#/$defs/amount" }),
        "value" => json!({ "$ref": "#/$defs/value" }),
        "asset" => json!({ "description": "A code declared in the config.", "type": "string" }),
        "kind" => {
            json!({ "enum": ["cash", "bonus", "house", "external", null], "default": "cash" })
        }
        "limit" => json!({ "enum": ["no_negative", "none", null] }),
        "final" => json!({ "type": ["boolean", "null"], "default": true }),
        "expires_at" => json!({ "anyOf": [{ "$ref": "#/$defs/time" }, { "type": "null" }] }),
        "reason" | "game" => json!({ "$ref": "#/$defs/note" }),
        "legs" => {
            json!({ "type": "array", "minItems": 1, "maxItems": crate::op::LEGS_MAX, "items": { "$ref": "#/$defs/leg" } })
        }
        _ => json!({ "$ref": "#/$defs/id" }),
    }
}
