//! The published JSON Schemas of `docs/reference/json`, and the part of JSON Schema that they use.

use serde_json::Value;

/// The schema of a command's output.
pub(crate) fn schema(name: &str) -> Value {
    let path = format!(
        "{}/../../docs/reference/json/{name}.schema.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// The value fits the schema of this name.
#[track_caller]
pub(crate) fn assert_fits(name: &str, value: &Value) {
    if let Err(why) = fits(value, &schema(name)) {
        panic!("{name}{why}: {value:#}");
    }
}

/// Why a value does not fit, with the path to it.
pub(crate) fn fits(value: &Value, schema: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference
            .strip_suffix(".schema.json")
            .expect("references name another file");
        return fits(value, &self::schema(name));
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let errors: Vec<String> = choices
            .iter()
            .filter_map(|choice| fits(value, choice).err())
            .collect();
        return if errors.len() < choices.len() {
            Ok(())
        } else {
            Err(errors.join(" and "))
        };
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        Value::String(kind) => vec![kind],
        _ => Vec::new(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is_kind(value, kind)) {
        return Err(format!(" is no {kinds:?}: {value}"));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return Err(format!(" is none of {allowed:?}: {value}"));
    }
    match value {
        Value::String(text) => text_fits(text, schema),
        Value::Array(items) => items.iter().enumerate().try_for_each(|(i, item)| {
            fits(item, &schema["items"]).map_err(|why| format!("/{i}{why}"))
        }),
        Value::Object(_) => object_fits(value, schema),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn is_kind(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the schemas use no `{other}`"),
    }
}

fn text_fits(text: &str, schema: &Value) -> Result<(), String> {
    let fits = match (schema["format"].as_str(), schema["pattern"].as_str()) {
        (Some("date-time"), _) => text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok(),
        (Some("uuid"), _) => {
            text.len() == 36
                && *text == text.to_lowercase()
                && text.parse::<semel_core::Key>().is_ok()
        }
        (_, Some("^-?[0-9]+$")) => text.parse::<i128>().is_ok(),
        (_, Some("^[a-z0-9_]+$")) => {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        }
        (_, Some("^SEMEL-[0-9]{4}$")) => text.len() == 10 && text.starts_with("SEMEL-"),
        (None, None) => true,
        other => panic!("the schemas use no {other:?}"),
    };
    if fits {
        Ok(())
    } else {
        Err(format!(" does not look right: {text}"))
    }
}

/// Every name is always present, and no other.
fn object_fits(value: &Value, schema: &Value) -> Result<(), String> {
    let Some(object) = value.as_object() else {
        return Ok(());
    };
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !object.contains_key(name) {
            return Err(format!(" lacks `{name}`"));
        }
    }
    for (name, inner) in object {
        let property = match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => {
                return Err(format!(" has `{name}`, which the schema does not know"));
            }
            (Value::Null, more) => more,
            (property, _) => property,
        };
        fits(inner, property).map_err(|why| format!("/{name}{why}"))?;
    }
    Ok(())
}
