//! The reference page of the config file, written from the JSON Schema of its structs.

use std::fmt::Write as _;

use serde_json::Value;

/// The page, as Markdown.
pub(crate) fn reference() -> String {
    let schema = super::schema();
    let mut page = String::from(
        "# semel.toml\n\n\
         Written by `semel config reference` from the structs that read the file; a test keeps the two equal.\n\
         `semel config default` prints a complete file with comments, `semel config schema` the JSON Schema.\n\n\
         Relative paths start from the config file's folder. `${NAME}` is replaced from the environment in every text; \
         `$${NAME}` means the text itself. Unknown keys are errors.\n",
    );
    let table = |name: &str| &schema["$defs"][name];
    section(&mut page, &schema, "[ledger]", table("Ledger"));
    section(&mut page, &schema, "[http]", table("Http"));
    for variant in table("Source")["oneOf"].as_array().into_iter().flatten() {
        let kind = variant["properties"]["type"]["const"]
            .as_str()
            .unwrap_or_default();
        section(
            &mut page,
            &schema,
            &format!("[sources.NAME] with type = \"{kind}\""),
            variant,
        );
    }
    section(&mut page, &schema, "[consumers.NAME]", table("Consumer"));
    section(
        &mut page,
        &schema,
        "[consumers.NAME.wallet]",
        table("Wallet"),
    );
    page
}

fn section(page: &mut String, root: &Value, title: &str, schema: &Value) {
    let intro = text(schema);
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let rows = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != "type");
    let rows = rows.map(|(key, property)| {
        let default = match &property["default"] {
            Value::Null if required.contains(&key.as_str()) => "required".to_owned(),
            Value::Null => "–".to_owned(),
            value => format!("`{value}`"),
        };
        format!(
            "| `{key}` | {} | {default} | {} |\n",
            kind(root, property),
            text(property)
        )
    });
    let rows: String = rows.collect();
    let _ = write!(page, "\n## {title}\n\n{intro}\n");
    if !rows.is_empty() {
        let _ = write!(
            page,
            "\n| key | value | default | meaning |\n|---|---|---|---|\n{rows}"
        );
    }
}

fn text(schema: &Value) -> String {
    schema["description"]
        .as_str()
        .unwrap_or_default()
        .replace('\n', " ")
        .replace('|', "\\|")
}

fn kind(root: &Value, schema: &Value) -> String {
    if let Some(target) = schema["$ref"]
        .as_str()
        .and_then(|reference| reference.strip_prefix('#'))
    {
        return root
            .pointer(target)
            .map_or(String::new(), |target| kind(root, target));
    }
    if let Some(word) = schema["const"].as_str() {
        return format!("`\"{word}\"`");
    }
    if let Some(choices) = schema["anyOf"]
        .as_array()
        .or_else(|| schema["oneOf"].as_array())
    {
        let choices = choices
            .iter()
            .filter(|choice| choice["type"] != "null")
            .map(|choice| kind(root, choice));
        return choices.collect::<Vec<_>>().join(" or ");
    }
    let kinds = schema["type"]
        .as_array()
        .into_iter()
        .flatten()
        .chain(std::iter::once(&schema["type"]));
    match kinds.filter_map(Value::as_str).find(|kind| *kind != "null") {
        Some("string") => "text".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => integer(schema),
        Some("array") => format!("list of {}", kind(root, &schema["items"])),
        Some("object") => object(root, schema),
        _ => String::new(),
    }
}

fn integer(schema: &Value) -> String {
    match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
        (Some(min), Some(max)) => format!("integer, {min} to {max}"),
        (Some(min), None) => format!("integer, at least {min}"),
        _ => "integer".to_owned(),
    }
}

fn object(root: &Value, schema: &Value) -> String {
    if schema["additionalProperties"].is_object() {
        return format!("table of {}", kind(root, &schema["additionalProperties"]));
    }
    let keys = schema["properties"].as_object().into_iter().flatten();
    let keys = keys.map(|(key, property)| format!("{key} = {}", kind(root, property)));
    format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_in_the_docs_is_the_one_the_structs_write() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/config.md"
        );
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            page == super::reference(),
            "run: semel config reference > docs/reference/config.md"
        );
    }
}
