//! The config file: one set of structs that the JSON Schema, the checks with their lines, the reference page and
//! the default file all come from. A key exists only if it has an effect.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::check::{Code, Finding};

mod consumer;
mod http;
mod ledger;
mod reference;
mod secret;
mod shape;
mod source;
mod text;

pub(crate) use consumer::{
    Consumer, DuplicateReply, Fingerprint, HandlerKind, House, LateWin, Wallet, Whole,
};
pub(crate) use http::Http;
pub(crate) use ledger::{Ledger, Pooler};
pub(crate) use reference::reference;
pub(crate) use secret::{Secret, masked};
pub(crate) use shape::nearest;
pub(crate) use source::{Assignor, Declare, File, Format, Kafka, Queue, Rabbitmq, Source};

/// The commented, complete file that `semel config default` prints.
pub(crate) const DEFAULT: &str = include_str!("default.toml");

/// The whole file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "semel.toml")]
pub(crate) struct Config {
    /// The database that holds the idempotency ledger.
    pub(crate) ledger: Ledger,
    /// The port for health checks and metrics; without it there is none.
    pub(crate) http: Option<Http>,
    /// Where messages come from, by name.
    #[serde(default)]
    pub(crate) sources: BTreeMap<String, Source>,
    /// Who reads them into the ledger, by name. The name is the first half of every key's scope: never change it.
    #[serde(default)]
    pub(crate) consumers: BTreeMap<String, Consumer>,
}

/// The JSON Schema of the file.
pub(crate) fn schema() -> serde_json::Value {
    schemars::schema_for!(Config).into()
}

/// A config file that was read, with the places of its keys.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// What it says.
    pub(crate) config: Config,
    /// The folder that relative paths start from.
    pub(crate) base: PathBuf,
    file: String,
    tree: text::Node,
}

impl Loaded {
    /// A finding about the key at `path`, or about the deepest part of the path that the file has.
    pub(crate) fn finding(&self, code: Code, path: &[&str], message: impl Into<String>) -> Finding {
        let (mut line, mut node) = (self.tree.line, &self.tree);
        for key in path {
            let Some(entry) = node.get(key) else { break };
            (line, node) = (entry.line, &entry.node);
        }
        Finding::error(code, &self.file, line, message)
    }

    /// The default file.
    #[cfg(test)]
    pub(crate) fn of_default() -> Self {
        parse(DEFAULT, "semel.toml".to_owned(), PathBuf::new(), &|_| None)
            .expect("a test reads the default file")
    }

    /// A path as the file means it.
    pub(crate) fn path(&self, written: &str) -> PathBuf {
        self.base.join(written)
    }
}

/// Reads a config file. Its own mistakes become findings with their lines; what it means as a whole is for
/// [`check`](crate::check).
///
/// # Errors
///
/// The findings, at least one of which is an error.
pub(crate) fn load(path: &Path) -> Result<Loaded, Vec<Finding>> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        let message = format!("the config file cannot be read: {error}; name another with --config, or start from `semel config default`");
        vec![Finding::error(Code::NoFile, &file, 1, message)]
    })?;
    let base = path.parent().map(Path::to_path_buf).unwrap_or_default();
    parse(&text, file, base, &|name| std::env::var(name).ok())
}

fn parse(
    text: &str,
    file: String,
    base: PathBuf,
    environment: text::Environment<'_>,
) -> Result<Loaded, Vec<Finding>> {
    let (tree, mut findings) = text::read(text, &file, environment);
    let Some(tree) = tree else {
        return Err(findings);
    };
    shape::check(&tree, &schema(), &file, &mut findings);
    if findings.iter().any(Finding::is_error) {
        return Err(findings);
    }
    match serde_path_to_error::deserialize(tree.json()) {
        Ok(config) => Ok(Loaded {
            config,
            base,
            file,
            tree,
        }),
        Err(error) => {
            // The shape was checked against the schema of the same structs, so this is what a schema cannot say.
            let path: Vec<String> = error.path().iter().map(ToString::to_string).collect();
            let keys: Vec<&str> = path.iter().map(String::as_str).collect();
            let line = keys.iter().scan(&tree, |node, key| {
                let entry = node.get(key)?;
                *node = &entry.node;
                Some(entry.line)
            });
            let message = format!(
                "`{}` is not allowed here: {}",
                keys.join("."),
                error.inner()
            );
            Err(vec![Finding::error(
                Code::ValueNotAllowed,
                &file,
                line.last().unwrap_or(1),
                message,
            )])
        }
    }
}

#[cfg(test)]
mod tests;
