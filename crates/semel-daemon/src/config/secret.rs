//! Secrets: written in the file, read from another file, or printed by a command. No message, log line or debug
//! output of this program shows one.

use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

/// Text that may hold a secret: as it is (with `${NAME}` from the environment), `{ file = "path" }`, or
/// `{ command = ["program", "argument"] }`, whose first line of output is taken.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Secret {
    /// The text itself.
    Text(String),
    /// From a file: all of it, without white space at its end.
    File(SecretFile),
    /// From a command: its standard output, without white space at its end.
    Command(SecretCommand),
}

/// A file that holds a secret.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretFile {
    /// The file's path, relative to the config file's folder.
    file: PathBuf,
}

/// A command that prints a secret.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretCommand {
    /// The program and its arguments. No shell is involved.
    #[schemars(length(min = 1))]
    command: Vec<String>,
}

impl Secret {
    /// The text, where it is in the config itself.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::File(_) | Self::Command(_) => None,
        }
    }

    /// The text. `base` is the config file's folder.
    ///
    /// # Errors
    ///
    /// A sentence that says why it cannot be had, without any of the secret in it.
    pub(crate) fn reveal(&self, base: &Path) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(SecretFile { file }) => std::fs::read_to_string(base.join(file))
                .map(|text| text.trim_end().to_owned())
                .map_err(|error| {
                    format!(
                        "the secret's file {} cannot be read: {error}",
                        file.display()
                    )
                }),
            Self::Command(SecretCommand { command }) => run(command, base),
        }
    }
}

fn run(command: &[String], base: &Path) -> Result<String, String> {
    let (program, arguments) = command
        .split_first()
        .ok_or("the secret's command is empty")?;
    let output = std::process::Command::new(program)
        .args(arguments)
        .current_dir(if base.as_os_str().is_empty() {
            Path::new(".")
        } else {
            base
        })
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("the secret's command `{program}` cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "the secret's command `{program}` failed: {}",
            output.status
        ));
    }
    let text = String::from_utf8(output.stdout)
        .map_err(|_| format!("the secret's command `{program}` printed no UTF-8"))?;
    Ok(text.trim_end().to_owned())
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A URL as messages may show it: the password, and every value behind `?`, is masked.
pub(crate) fn masked(url: &str) -> String {
    let (front, query) = url
        .split_once('?')
        .map_or((url, None), |(front, query)| (front, Some(query)));
    let mut shown = match front.split_once("://") {
        None => front.to_owned(),
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            format!("{scheme}://{}{path}", without_password(authority))
        }
    };
    if let Some(query) = query {
        let names = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, _)) => format!("{name}=…"),
            None => pair.to_owned(),
        });
        shown.push('?');
        shown.push_str(&names.collect::<Vec<_>>().join("&"));
    }
    shown
}

/// The last `@` ends the user's part: a password may hold one that should have been escaped.
fn without_password(authority: &str) -> String {
    match authority.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((name, _)) => format!("{name}:…@{host}"),
            None => authority.to_owned(),
        },
        None => authority.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_masked_in_every_place_a_url_has_for_one() {
        assert_eq!(
            masked("postgres://u:p@h:5432/db"),
            "postgres://u:…@h:5432/db"
        );
        assert_eq!(
            masked("postgres://u:p@ss@h/db?password=x&sslmode=require"),
            "postgres://u:…@h/db?password=…&sslmode=…"
        );
        assert_eq!(masked("postgres://u@h/db"), "postgres://u@h/db");
        assert_eq!(masked("sqlite:semel.db"), "sqlite:semel.db");
    }

    #[test]
    fn debug_output_of_a_secret_says_nothing() {
        assert_eq!(
            format!("{:?}", Secret::Text("hunter2".to_owned())),
            "Secret(…)"
        );
    }

    #[test]
    fn a_secret_comes_from_a_file_or_a_command_without_its_line_end() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pw"), "s3cret\n").unwrap();
        let file = Secret::File(SecretFile { file: "pw".into() });
        assert_eq!(file.reveal(folder.path()).unwrap(), "s3cret");
        let command = Secret::Command(SecretCommand {
            command: vec!["cat".to_owned(), "pw".to_owned()],
        });
        assert_eq!(command.reveal(folder.path()).unwrap(), "s3cret");
        let none = Secret::File(SecretFile {
            file: "none".into(),
        });
        assert!(
            none.reveal(folder.path())
                .unwrap_err()
                .contains("none cannot be read")
        );
    }
}
