//! `semel publish`: a file's lines to a sink, each with the key that its consumer would make, confirmed.

use std::io::BufRead;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use semel_core::key::{Inputs, KeyRule};
use semel_core::{Json, Key, Outgoing};
use serde::Serialize;

use crate::cli;
use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::key::Lines;
use crate::out::{self, Style};
use crate::{check, key, sources};

/// The most messages confirmed at once: what queues insert with one statement.
const BATCH_COUNT_MAX: usize = 1_000;
/// The most bytes confirmed at once.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What `publish --json` prints.
#[derive(Debug, Serialize)]
struct Published {
    published: u64,
}

/// Publishes a file.
///
/// # Errors
///
/// The target is no sink, the file cannot be read, or the sink does not take a message: what was confirmed before
/// stays.
pub(crate) async fn publish(
    loaded: &Loaded,
    args: &cli::Publish,
    style: Style,
) -> Result<Exit, Failure> {
    let rules = rules(loaded, &args.target)?;
    let mut lines = Lines::of(key::open(&args.file)?);
    let sink = sources::sink(loaded, &args.target).await?;
    let bar = bar(&args.file);
    let mut total = Totals::default();
    loop {
        let batch = Batch::read(&mut lines, &rules)
            .map_err(|error| Failure::usage(format!("{}: {error}", args.file.display())))?;
        let published = sink.publish(&batch.messages).await;
        published.map_err(|fault| total.broken(&args.target, &fault))?;
        total.published += batch.messages.len() as u64;
        total.malformed += batch.malformed;
        total.keyless += batch.keyless;
        bar.inc(batch.bytes as u64);
        if batch.ended {
            break;
        }
    }
    bar.finish_and_clear();
    for (count, what, code) in [
        (total.malformed, "are no JSON objects", "malformed"),
        (total.keyless, "have no usable key", "no_key"),
    ] {
        if count > 0 {
            let message =
                format!("{count} of the messages {what}: their consumer will say dead({code})");
            out::say(&message);
        }
    }
    match style {
        Style::Json => out::json(&Published {
            published: total.published,
        })?,
        Style::Words => out::line(&format!(
            "published {} messages to `{}`",
            total.published, args.target
        ))?,
    }
    Ok(Exit::Done)
}

/// The key rules of all consumers that read the target, then `/id`: the first that finds a key makes it.
fn rules(loaded: &Loaded, target: &str) -> Result<Vec<KeyRule>, Failure> {
    let consumers = loaded.config.consumers.values();
    let readers =
        consumers.filter(|consumer| consumer.sources.iter().any(|source| source == target));
    let rules = readers
        .map(check::key_rule)
        .chain([KeyRule::parse(["/id"], None)]);
    rules
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::usage(error.to_string()))
}

fn bar(file: &Path) -> ProgressBar {
    let bar = match std::fs::metadata(file) {
        Ok(about) if about.is_file() => ProgressBar::new(about.len()),
        _ => ProgressBar::new_spinner(),
    };
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}, {eta} left") {
        bar.set_style(style);
    }
    bar
}

#[derive(Debug, Default)]
struct Totals {
    published: u64,
    malformed: u64,
    keyless: u64,
}

impl Totals {
    fn broken(&self, target: &str, fault: &semel_core::Fault) -> Failure {
        let sure = self.published;
        let what = format!(
            "publishing to `{target}` broke off after {sure} confirmed messages; the same file can be published again, known keys are found to be duplicates"
        );
        Failure::fault(&what, fault)
    }
}

/// Lines that are confirmed together.
#[derive(Debug, Default)]
struct Batch {
    messages: Vec<Outgoing>,
    bytes: usize,
    malformed: u64,
    keyless: u64,
    ended: bool,
}

impl Batch {
    /// Reads lines as a file source would: empty ones are no messages, a byte order mark and `\r` no content.
    fn read(lines: &mut Lines<impl BufRead>, rules: &[KeyRule]) -> std::io::Result<Self> {
        let mut batch = Self::default();
        let mut content = Vec::new();
        while batch.messages.len() < BATCH_COUNT_MAX && batch.bytes < BATCH_BYTES_MAX {
            let read = lines.next(&mut content)?;
            if read == 0 {
                batch.ended = true;
                break;
            }
            batch.bytes += read;
            if content.is_empty() {
                continue;
            }
            let json = Json::parse(&content).ok();
            let key = rules.iter().find_map(|rule| key_of(json.as_ref(), rule));
            if key.is_none() {
                let is_object = json.is_some_and(|json| json.object().is_some());
                *(if is_object {
                    &mut batch.keyless
                } else {
                    &mut batch.malformed
                }) += 1;
            }
            let payload = Some(content.clone().into());
            batch.messages.push(Outgoing {
                key,
                payload,
                headers: Vec::new(),
                message_key: None,
            });
        }
        Ok(batch)
    }
}

fn key_of(json: Option<&Json<'_>>, rule: &KeyRule) -> Option<Key> {
    let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    let inputs = Inputs {
        payload: json,
        headers: &[],
        message_key: None,
        now_ms,
    };
    rule.identify(&inputs).ok().map(|identity| identity.key)
}

#[cfg(test)]
mod tests {
    use semel_core::Part;

    use super::*;

    #[test]
    fn lines_become_messages_with_the_first_key_that_a_rule_finds() {
        let rules = [
            KeyRule::parse(["/ref"], None).unwrap(),
            KeyRule::parse(["/id"], None).unwrap(),
        ];
        let file =
            "\u{feff}{\"id\":\"a\",\"ref\":\"r\"}\r\n\n{\"id\":\"b\"}\nnot json\n{\"ref\":null}";
        let batch = Batch::read(&mut Lines::of(file.as_bytes()), &rules).unwrap();
        let keys: Vec<Option<Key>> = batch.messages.iter().map(|message| message.key).collect();
        let key = |text| Some(Key::derive(&[Part::Text(text)]).unwrap());
        assert_eq!(keys, [key("r"), key("b"), None, None]);
        assert_eq!(
            batch.messages[0].payload.as_deref(),
            Some(br#"{"id":"a","ref":"r"}"#.as_slice())
        );
        assert_eq!((batch.malformed, batch.keyless, batch.ended), (1, 1, true));
    }
}
