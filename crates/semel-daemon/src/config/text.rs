//! The text of a config file: TOML read into a tree that remembers the line of every key and value, with
//! `${NAME}` replaced from the environment. It knows no key of Semel's.

use std::collections::BTreeMap;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::check::{Code, Finding};

/// A value and its place in the file.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) tree: Tree,
}

/// What a value is.
pub(super) enum Tree {
    /// Text. What came from the environment is in `text` alone, so that messages can quote `written`.
    Text {
        written: String,
        text: String,
    },
    Integer(i64),
    /// A float or a time: no setting is one, so only its name matters.
    Other {
        kind: &'static str,
    },
    Bool(bool),
    List(Vec<Node>),
    Table(BTreeMap<String, Entry>),
}

/// A key of a table with its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) line: usize,
    pub(super) node: Node,
}

impl std::fmt::Debug for Tree {
    /// Shows the shape and never a value: one may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Table(entries) => f.debug_map().entries(entries).finish(),
            Self::List(items) => f.debug_list().entries(items).finish(),
            Self::Text { .. } | Self::Integer(_) | Self::Other { .. } | Self::Bool(_) => {
                f.write_str(self.kind())
            }
        }
    }
}

impl Tree {
    /// What it is, in a word, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text { .. } => "text",
            Self::Integer(_) => "an integer",
            Self::Other { kind } => kind,
            Self::Bool(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

impl Node {
    /// The entry of a table.
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        match &self.tree {
            Tree::Table(entries) => entries.get(key),
            Tree::Text { .. }
            | Tree::Integer(_)
            | Tree::Other { .. }
            | Tree::Bool(_)
            | Tree::List(_) => None,
        }
    }

    /// The same tree as JSON, for `serde`.
    pub(super) fn json(&self) -> Value {
        match &self.tree {
            Tree::Text { text, .. } => Value::String(text.clone()),
            Tree::Integer(number) => Value::from(*number),
            Tree::Other { kind } => Value::String((*kind).to_owned()),
            Tree::Bool(bool) => Value::Bool(*bool),
            Tree::List(items) => Value::Array(items.iter().map(Self::json).collect()),
            Tree::Table(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, entry)| (key.clone(), entry.node.json()))
                    .collect(),
            ),
        }
    }
}

/// Looks up environment variables: by the door, so that tests need not change the process.
pub(super) type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Reads TOML. What is no TOML, or names a variable that is not set, becomes a finding.
pub(super) fn read(
    text: &str,
    file: &str,
    environment: Environment<'_>,
) -> (Option<Node>, Vec<Finding>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        text,
        file,
        environment,
        findings: Vec::new(),
    };
    if let Some(first) = errors.first() {
        // Errors behind the first are mostly its echo.
        let line = reader.line(first.span().map_or(0, |span| span.start));
        reader.findings.push(Finding::error(
            Code::NotToml,
            file,
            line,
            format!("not TOML: {}", one_line(first.message())),
        ));
        return (None, reader.findings);
    }
    let node = Node {
        line: 1,
        tree: reader.table(table.get_ref()),
    };
    (Some(node), reader.findings)
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(", ")
}

struct Reader<'t> {
    text: &'t str,
    file: &'t str,
    environment: Environment<'t>,
    findings: Vec<Finding>,
}

impl Reader<'_> {
    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().iter().take(offset);
        1 + before.filter(|&&byte| byte == b'\n').count()
    }

    fn table(&mut self, table: &DeTable<'_>) -> Tree {
        let entries = table.iter().map(|(key, value)| {
            let line = self.line(key.span().start);
            (
                key.get_ref().to_string(),
                Entry {
                    line,
                    node: self.node(value, line),
                },
            )
        });
        Tree::Table(entries.collect())
    }

    fn node(&mut self, value: &Spanned<DeValue<'_>>, key_line: usize) -> Node {
        let line = match value.get_ref() {
            // The span of a table is its body's; the key is where people look.
            DeValue::Table(_) => key_line,
            _ => self.line(value.span().start),
        };
        let tree = match value.get_ref() {
            DeValue::String(text) => self.string(text, line),
            DeValue::Integer(number) => self.integer(number, line),
            DeValue::Float(_) => Tree::Other {
                kind: "a number with a point",
            },
            DeValue::Datetime(_) => Tree::Other {
                kind: "a bare time (write it in quotes)",
            },
            DeValue::Boolean(bool) => Tree::Bool(*bool),
            DeValue::Array(items) => {
                Tree::List(items.iter().map(|item| self.node(item, line)).collect())
            }
            DeValue::Table(table) => self.table(table),
        };
        Node { line, tree }
    }

    fn integer(&mut self, number: &toml::de::DeInteger<'_>, line: usize) -> Tree {
        match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Tree::Integer(number),
            Err(_) => {
                let message = format!("`{}` is beyond 64 bits", number.as_str());
                self.findings.push(Finding::error(
                    Code::ValueNotAllowed,
                    self.file,
                    line,
                    message,
                ));
                Tree::Integer(0)
            }
        }
    }

    fn string(&mut self, written: &str, line: usize) -> Tree {
        let mut text = String::with_capacity(written.len());
        let mut rest = written;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            let Some(end) = from.find('}') else { break };
            let name = &from[2..end];
            if let Some(escaped) = before.strip_suffix('$') {
                text.push_str(escaped);
                text.push_str(&from[..=end]);
            } else {
                text.push_str(before);
                match (self.environment)(name) {
                    Some(value) => text.push_str(&value),
                    None => self.missing(name, line),
                }
            }
            rest = &from[end + 1..];
        }
        text.push_str(rest);
        Tree::Text {
            written: written.to_owned(),
            text,
        }
    }

    fn missing(&mut self, name: &str, line: usize) {
        let message = format!(
            "the environment variable `{name}` is not set; set it, or write `$${{{name}}}` to mean the text itself"
        );
        self.findings
            .push(Finding::error(Code::NoSecret, self.file, line, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        (name == "PW").then(|| "s3cret".to_owned())
    }

    fn text_of(source: &str) -> (String, Vec<Finding>) {
        let (node, findings) = read(source, "semel.toml", &environment);
        let text = match node.unwrap().get("a").map(|entry| &entry.node.tree) {
            Some(Tree::Text { text, .. }) => text.clone(),
            other => panic!("{other:?}"),
        };
        (text, findings)
    }

    #[test]
    fn variables_are_replaced_and_two_dollars_mean_one() {
        assert_eq!(text_of("a = 'x-${PW}-y-${PW}'").0, "x-s3cret-y-s3cret");
        assert_eq!(text_of("a = 'x-$${PW}-${PW}'").0, "x-${PW}-s3cret");
        assert_eq!(text_of("a = '${PW'").0, "${PW");
        assert_eq!(text_of("a = '$5 {}'").0, "$5 {}");
    }

    #[test]
    fn a_variable_that_is_not_set_is_named_with_its_line() {
        let (_, findings) = text_of("\na = '${NOPE}'");
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].place, "semel.toml:2");
        assert!(
            findings[0].message.contains("`NOPE` is not set"),
            "{}",
            findings[0].message
        );
    }

    #[test]
    fn a_tree_shows_no_value_in_debug_output() {
        let (node, _) = read("a = '${PW}'\nb = ['plain']", "semel.toml", &environment);
        let shown = format!("{node:?}");
        assert!(
            !shown.contains("s3cret") && !shown.contains("plain"),
            "{shown}"
        );
    }
}
