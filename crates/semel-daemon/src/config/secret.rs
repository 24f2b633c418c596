//! Secrets: written in the file, read from another file, or printed by a command. No message, log line or debug
//! output of this program shows one.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

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
    /// How long it may take before it is killed.
    #[serde(default = "command_timeout_ms")]
    #[schemars(range(min = 1))]
    timeout_ms: u64,
}

/// Longer than a vault's slowest answer, shorter than a supervisor's patience.
fn command_timeout_ms() -> u64 {
    10_000
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
            Self::Command(command) => run(command, base),
        }
    }
}

/// No secret is longer: a certificate with its key has a tenth of this.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Runs a command to its end, or to its time limit.
fn run(command: &SecretCommand, base: &Path) -> Result<String, String> {
    let (program, arguments) = command
        .command
        .split_first()
        .ok_or("the secret's command is empty")?;
    let failed = |why: String| format!("the secret's command `{program}` {why}");
    let folder = Some(base).filter(|base| !base.as_os_str().is_empty());
    let mut child = std::process::Command::new(program)
        .args(arguments)
        .current_dir(folder.unwrap_or(Path::new(".")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot be run: {error}")))?;
    let output = child.stdout.take();
    let (give, take) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.map_or(Ok(0), |output| {
            output.take(SECRET_BYTES_MAX + 1).read_to_end(&mut text)
        });
        // Nobody listens when the time is over.
        let _ = give.send(read.map(|_| text));
    });
    let limit = Duration::from_millis(command.timeout_ms);
    let text = ended(&mut child, &take, limit).map_err(&failed)?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        return Err(failed(format!(
            "printed more than {SECRET_BYTES_MAX} bytes"
        )));
    }
    let text = String::from_utf8(text).map_err(|_| failed("printed no UTF-8".to_owned()))?;
    Ok(text.trim_end().to_owned())
}

/// What a command printed, if it ended well and in time. One that did not is killed.
fn ended(
    child: &mut Child,
    printed: &mpsc::Receiver<std::io::Result<Vec<u8>>>,
    limit: Duration,
) -> Result<Vec<u8>, String> {
    /// How often it is asked whether a command that has closed its output has ended as well.
    const LOOK_EVERY: Duration = Duration::from_millis(5);
    let deadline = Instant::now() + limit;
    let text = printed.recv_timeout(limit);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) if text.is_ok() => break status,
            Ok(_) if text.is_ok() && Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
            Ok(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "did not end within {} ms and was killed; run it by hand to see what it waits for, or raise \
                     `timeout_ms` beside `command`",
                    limit.as_millis()
                ));
            }
            Err(error) => return Err(format!("cannot be waited for: {error}")),
        }
    };
    match text {
        _ if !status.success() => Err(format!("failed: {status}")),
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(format!("cannot be read: {error}")),
        Err(_) => Err("printed nothing".to_owned()),
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A URL as messages may show it: what can be a password, and every value behind `?`, is masked. A URL that is
/// mistyped shows less rather than more: everything before the last `@` counts as the user's part.
pub(crate) fn masked(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
            (format!("{scheme}://"), rest)
        }
        Some(_) | None => match url.strip_prefix("sqlite:") {
            // A path holds no password, and may hold an `@`.
            Some(path) => return format!("sqlite:{}", without_values(path)),
            None => (String::new(), url),
        },
    };
    let (user, rest) = match rest.rsplit_once('@') {
        None => (String::new(), rest),
        // Without a scheme nothing says where a name ends and a password begins.
        Some((_, rest)) if scheme.is_empty() => ("…@".to_owned(), rest),
        Some((user, rest)) => match user.split_once([':', '/', '?', '#']) {
            Some((name, _)) => (format!("{name}:…@"), rest),
            None => (format!("{user}@"), rest),
        },
    };
    format!(
        "{scheme}{user}{}",
        without_values(&without_false_port(rest))
    )
}

/// `user:password/db`, where the host was forgotten: what stands for a port and is no number is masked.
fn without_false_port(place: &str) -> String {
    let end = place.find(['/', '?', '#']).unwrap_or(place.len());
    let (host, path) = place.split_at(end);
    match host.rsplit_once(':') {
        Some((host, port))
            if !port.chars().all(|c| c.is_ascii_digit()) && !host.starts_with('[') =>
        {
            format!("{host}:…{path}")
        }
        _ => place.to_owned(),
    }
}

fn without_values(place: &str) -> String {
    let Some((front, query)) = place.split_once('?') else {
        return place.to_owned();
    };
    let names = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) => format!("{name}=…"),
        None => "…".to_owned(),
    });
    format!("{front}?{}", names.collect::<Vec<_>>().join("&"))
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
        assert_eq!(masked("postgres://u:p/a?s#s@h/db"), "postgres://u:…@h/db");
        assert_eq!(masked("u:p@h/db"), "…@h/db");
        assert_eq!(masked("postgres//u:p@h/db"), "…@h/db");
        assert_eq!(masked("postgres:u:p@h/db"), "…@h/db");
        assert_eq!(masked("mysql://u:p/db"), "mysql://u:…/db");
        assert_eq!(masked("mysql://h:3306/db"), "mysql://h:3306/db");
        assert_eq!(masked("mysql://u@h/db?p"), "mysql://u@h/db?…");
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
            timeout_ms: 60_000,
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
