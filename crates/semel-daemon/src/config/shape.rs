//! Compares a config file's tree with the JSON Schema of the config structs, so that every mistake is found at once
//! and each is told with its line, its key and what would be right. One walk for every key there is or will be.

use serde_json::Value;

use super::text::{Node, Tree};
use crate::check::{Code, Finding};

/// Adds a finding for each place where the tree does not fit the schema.
pub(super) fn check(tree: &Node, schema: &Value, file: &str, findings: &mut Vec<Finding>) {
    let mut walk = Walk {
        schema,
        file,
        findings,
        path: Vec::new(),
    };
    walk.node(tree, schema);
    findings.sort_by_key(|finding| line_of(&finding.place));
}

fn line_of(place: &str) -> usize {
    place
        .rsplit_once(':')
        .and_then(|(_, line)| line.parse().ok())
        .unwrap_or(0)
}

struct Walk<'s, 'f> {
    schema: &'s Value,
    file: &'f str,
    findings: &'f mut Vec<Finding>,
    path: Vec<String>,
}

impl<'s> Walk<'s, '_> {
    fn find(&mut self, code: Code, line: usize, message: String) {
        self.findings
            .push(Finding::error(code, self.file, line, message));
    }

    /// The key being looked at, as messages name it.
    fn key(&self) -> String {
        format!("`{}`", self.path.join("."))
    }

    fn node(&mut self, node: &Node, schema: &'s Value) {
        let schema = self.resolve(schema);
        let choices: Vec<&'s Value> = variants(schema)
            .iter()
            .map(|choice| self.resolve(choice))
            .collect();
        let choices: Vec<&'s Value> = choices
            .into_iter()
            .filter(|choice| choice["type"] != "null")
            .collect();
        match choices[..] {
            [] => self.plain(node, schema),
            [only] => self.node(node, only),
            _ => self.choice(node, &choices),
        }
    }

    fn resolve(&self, schema: &'s Value) -> &'s Value {
        match schema["$ref"]
            .as_str()
            .and_then(|reference| reference.strip_prefix('#'))
        {
            Some(pointer) => self.schema.pointer(pointer).unwrap_or(schema),
            None => schema,
        }
    }

    /// One of several: told apart by `type = "…"`, by being one of several words, by kind, or by a key.
    fn choice(&mut self, node: &Node, choices: &[&'s Value]) {
        if choices.iter().all(|choice| tag(choice).is_some()) {
            return self.tagged(node, choices);
        }
        let words = words(choices);
        let fitting: Vec<&'s Value> = choices
            .iter()
            .copied()
            .filter(|choice| self.is_kind(node, choice))
            .collect();
        match (&node.tree, &fitting[..]) {
            (Tree::Text { written, text }, _) if words.len() == choices.len() => {
                self.word(node.line, written, text, &words)
            }
            (_, []) => self.wrong_type(node, choices),
            (_, [only]) => self.node(node, only),
            (Tree::Table(entries), several) => {
                let knows = |choice: &&&Value| {
                    entries
                        .keys()
                        .any(|key| !choice["properties"][key].is_null())
                };
                match several.iter().find(knows) {
                    Some(choice) => self.plain(node, choice),
                    None => {
                        let keys: Vec<&str> = several
                            .iter()
                            .flat_map(|choice| properties(choice))
                            .collect();
                        let message = format!("{} needs one of {}", self.key(), list(&keys));
                        self.find(Code::MissingKey, node.line, message);
                    }
                }
            }
            (_, several) => self.node(node, several[0]),
        }
    }

    fn tagged(&mut self, node: &Node, choices: &[&'s Value]) {
        let Tree::Table(entries) = &node.tree else {
            return self.wrong_type(node, choices);
        };
        let words: Vec<&str> = choices.iter().filter_map(|choice| tag(choice)).collect();
        let Some(entry) = entries.get("type") else {
            let message = format!(
                "{} has no `type`; it is one of {}",
                self.key(),
                list(&words)
            );
            return self.find(Code::MissingKey, node.line, message);
        };
        self.path.push("type".to_owned());
        let Tree::Text { written, text } = &entry.node.tree else {
            let message = format!(
                "{} is {}, not one of {}",
                self.key(),
                entry.node.tree.kind(),
                list(&words)
            );
            self.find(Code::WrongType, entry.line, message);
            self.path.pop();
            return;
        };
        self.word(entry.line, written, text, &words);
        self.path.pop();
        if let Some(choice) = choices.iter().find(|choice| tag(choice) == Some(text)) {
            self.plain(node, choice);
        }
    }

    fn word(&mut self, line: usize, written: &str, text: &str, words: &[&str]) {
        if words.contains(&text) {
            return;
        }
        let key = self.key();
        let message = match nearest(text, words.iter().copied()) {
            Some(word) => format!(
                "{key} is `{written}`, did you mean `{word}`? Allowed: {}",
                list(words)
            ),
            None => format!("{key} is `{written}`; allowed: {}", list(words)),
        };
        self.find(Code::ValueNotAllowed, line, message);
    }

    fn is_kind(&self, node: &Node, schema: &Value) -> bool {
        let kind = match &node.tree {
            Tree::Text { .. } => "string",
            Tree::Integer(_) => "integer",
            Tree::Bool(_) => "boolean",
            Tree::List(_) => "array",
            Tree::Table(_) => "object",
            Tree::Other { .. } => return false,
        };
        kinds(schema).any(|known| known == kind)
            || schema["const"].is_string() && kind == "string"
            || variants(schema)
                .iter()
                .any(|choice| self.is_kind(node, self.resolve(choice)))
    }

    fn wrong_type(&mut self, node: &Node, choices: &[&Value]) {
        let mut wanted: Vec<&str> = choices.iter().flat_map(|choice| wanted(choice)).collect();
        wanted.dedup();
        let message = format!(
            "{} is {}, not {}",
            self.key(),
            node.tree.kind(),
            wanted.join(" or ")
        );
        self.find(Code::WrongType, node.line, message);
    }

    fn plain(&mut self, node: &Node, schema: &'s Value) {
        if kinds(schema).next().is_some() && !self.is_kind(node, schema) {
            return self.wrong_type(node, &[schema]);
        }
        match &node.tree {
            Tree::Table(_) => self.table(node, schema),
            Tree::List(items) => {
                self.length(
                    node.line,
                    items.len(),
                    schema,
                    "minItems",
                    "maxItems",
                    "entries",
                );
                items
                    .iter()
                    .for_each(|item| self.node(item, &schema["items"]));
            }
            Tree::Text { written, text } => {
                self.length(
                    node.line,
                    text.len(),
                    schema,
                    "minLength",
                    "maxLength",
                    "characters",
                );
                let words: Vec<&str> = allowed(schema).collect();
                if !words.is_empty() {
                    self.word(node.line, written, text, &words);
                }
            }
            Tree::Integer(number) => self.range(node.line, *number, schema),
            Tree::Bool(_) | Tree::Other { .. } => {}
        }
    }

    fn length(
        &mut self,
        line: usize,
        length: usize,
        schema: &Value,
        min: &str,
        max: &str,
        of: &str,
    ) {
        let bound = |name: &str| {
            schema[name]
                .as_u64()
                .and_then(|bound| usize::try_from(bound).ok())
        };
        let message = match (bound(min), bound(max)) {
            (Some(1), _) if length == 0 => format!("{} is empty", self.key()),
            (Some(min), _) if length < min => {
                format!("{} has {length} {of}, fewer than {min}", self.key())
            }
            (_, Some(max)) if length > max => {
                format!("{} has {length} {of}, more than {max}", self.key())
            }
            _ => return,
        };
        self.find(Code::ValueNotAllowed, line, message);
    }

    fn range(&mut self, line: usize, number: i64, schema: &Value) {
        let message = match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
            (Some(min), _) if number < min => {
                format!("{} is {number}, less than {min}", self.key())
            }
            (_, Some(max)) if number > max => {
                format!("{} is {number}, more than {max}", self.key())
            }
            _ => return,
        };
        self.find(Code::ValueNotAllowed, line, message);
    }

    fn table(&mut self, node: &Node, schema: &'s Value) {
        let Tree::Table(entries) = &node.tree else {
            return;
        };
        let known: Vec<&str> = properties(schema).collect();
        for (key, entry) in entries {
            self.path.push(key.clone());
            match (&schema["properties"][key], &schema["additionalProperties"]) {
                (Value::Null, Value::Object(_)) => {
                    self.node(&entry.node, &schema["additionalProperties"])
                }
                (Value::Null, _) => self.unknown(key, entry.line, &known),
                (property, _) => self.node(&entry.node, property),
            }
            self.path.pop();
        }
        for key in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !entries.contains_key(key) {
                self.path.push(key.to_owned());
                let message = format!("{} is missing", self.key());
                self.find(Code::MissingKey, node.line, message);
                self.path.pop();
            }
        }
    }

    fn unknown(&mut self, key: &str, line: usize, known: &[&str]) {
        let message = match nearest(key, known.iter().copied()) {
            Some(near) => format!("unknown key `{key}`, did you mean `{near}`?"),
            None => format!("unknown key `{key}`; known here: {}", list(known)),
        };
        self.find(Code::UnknownKey, line, message);
    }
}

fn variants(schema: &Value) -> &[Value] {
    let variants = schema["anyOf"]
        .as_array()
        .or_else(|| schema["oneOf"].as_array());
    variants.map_or(&[], Vec::as_slice)
}

/// The word that `type` has in this variant of an enum.
fn tag(schema: &Value) -> Option<&str> {
    schema["properties"]["type"]["const"].as_str()
}

fn words<'s>(choices: &[&'s Value]) -> Vec<&'s str> {
    choices
        .iter()
        .filter_map(|choice| choice["const"].as_str())
        .collect()
}

/// The words of an enum without a choice of schemas.
fn allowed(schema: &Value) -> impl Iterator<Item = &str> {
    let several = schema["enum"].as_array().into_iter().flatten();
    several
        .chain(std::iter::once(&schema["const"]))
        .filter_map(Value::as_str)
}

fn kinds(schema: &Value) -> impl Iterator<Item = &str> {
    let several = schema["type"].as_array().into_iter().flatten();
    several
        .chain(std::iter::once(&schema["type"]))
        .filter_map(Value::as_str)
}

fn properties(schema: &Value) -> impl Iterator<Item = &str> {
    schema["properties"]
        .as_object()
        .into_iter()
        .flat_map(|properties| properties.keys().map(String::as_str))
}

fn wanted(schema: &Value) -> Vec<&'static str> {
    let word = |kind| match kind {
        "string" => "text",
        "integer" => "an integer",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "a table",
        _ => "something else",
    };
    if variants(schema).is_empty() {
        kinds(schema)
            .filter(|&kind| kind != "null")
            .map(word)
            .collect()
    } else {
        vec!["text"]
    }
}

fn list(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The known name that a typing mistake most likely meant.
pub(crate) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    /// Below this the names have little in common, and a guess would mislead.
    const ALIKE: f64 = 0.75;
    known
        .map(|candidate| {
            (
                strsim::jaro_winkler(&name.to_lowercase(), candidate),
                candidate,
            )
        })
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(one, _), (two, _)| one.total_cmp(two))
        .map(|(_, candidate)| candidate)
}
