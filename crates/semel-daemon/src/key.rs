//! `semel key`: computes keys as a consumer would, from parts, from an id, or from whole messages.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use bytes::Bytes;
use jiff::Timestamp;
use semel_core::key::{Inputs, KeyRule, PartSource};
use semel_core::{Json, Key, NoKey, Part};
use serde::Serialize;

use crate::cli;
use crate::exit::{Exit, Failure};
use crate::out::{self, Style};

/// What `key --json` prints.
#[derive(Debug, Serialize)]
struct Computed {
    key: String,
    parts: Vec<String>,
}

impl Computed {
    fn print(&self, style: Style) -> std::io::Result<()> {
        match style {
            Style::Json => out::json(self),
            Style::Words => out::line(&self.key),
        }
    }
}

/// Runs the command. `rule` is the named consumer's.
///
/// # Errors
///
/// There is no key: the message would end `dead(no_key)`.
pub(crate) fn run(args: &cli::Key, rule: Option<&KeyRule>, style: Style) -> Result<Exit, Failure> {
    if let (Some(file), Some(rule)) = (&args.message, rule) {
        return of_messages(file, args, rule, style);
    }
    let time = args.time.as_deref().map(unix_ms).transpose()?;
    let (key, parts) = match rule {
        None => of_parts(&args.parts, time)
            .map(|key| (key, args.parts.clone()))
            .map_err(|error| error.to_string()),
        Some(rule) => by_rule(rule, &args.parts, time),
    }
    .map_err(Failure::no)?;
    Computed {
        key: key.to_string(),
        parts,
    }
    .print(style)?;
    Ok(Exit::Done)
}

fn unix_ms(text: &str) -> Result<u64, Failure> {
    let ms = match text.parse::<Timestamp>() {
        Ok(time) => time.as_millisecond(),
        Err(_) => text.parse().map_err(|_| {
            Failure::usage(format!(
                "`{text}` is no time: RFC 3339 with an offset, or an integer of Unix ms"
            ))
        })?,
    };
    Ok(u64::try_from(ms).unwrap_or(0))
}

fn of_parts(parts: &[String], time: Option<u64>) -> Result<Key, NoKey> {
    let parts: Vec<Part<'_>> = parts.iter().map(|part| Part::Text(part)).collect();
    match time {
        None => Key::derive(&parts),
        Some(unix_ms) => Key::derive_at(&parts, unix_ms),
    }
}

/// The key of texts given in the order of the rule's parts; constants may be left out.
fn by_rule(
    rule: &KeyRule,
    given: &[String],
    time: Option<u64>,
) -> Result<(Key, Vec<String>), String> {
    let is_constant = |source: &PartSource| matches!(source, PartSource::Constant(_));
    let variable = rule
        .parts()
        .iter()
        .filter(|part| !is_constant(&part.source))
        .count();
    if given.len() != variable && given.len() != rule.parts().len() {
        return Err(format!(
            "the rule {rule} takes {variable} parts, not {}",
            given.len()
        ));
    }
    if rule.time().is_some() && time.is_none() {
        return Err(format!(
            "the rule {rule} needs the operation's own time: --time"
        ));
    }
    let mut texts = given.iter();
    let mut parts = Vec::new();
    for part in rule.parts() {
        match &part.source {
            PartSource::Constant(text) => {
                if given.len() == rule.parts().len() && texts.next() != Some(text) {
                    return Err(format!("the rule {rule} has the constant `{text}` here"));
                }
                parts.push(text.clone());
            }
            PartSource::Pointer(_) | PartSource::Header(_) | PartSource::MessageKey => {
                parts.extend(texts.next().cloned());
            }
        }
    }
    let key = normalised(rule, &parts, time).map_err(|error| error.to_string())?;
    Ok((key, parts))
}

/// The rule's own normalisers on these texts: each part becomes a header that only it reads.
fn normalised(rule: &KeyRule, texts: &[String], time: Option<u64>) -> Result<Key, NoKey> {
    let mut parts = rule.parts().to_vec();
    let mut headers = Vec::new();
    for (i, (part, text)) in parts.iter_mut().zip(texts).enumerate() {
        if !matches!(part.source, PartSource::Constant(_)) {
            part.source = PartSource::Header(i.to_string());
            headers.push((i.to_string(), Bytes::copy_from_slice(text.as_bytes())));
        }
    }
    let pointer = semel_core::Pointer::parse("/at").expect("a JSON pointer starts with `/`");
    let payload = format!("{{\"at\":{}}}", time.unwrap_or_default());
    let payload = Json::parse(payload.as_bytes()).expect("a number in an object is JSON");
    let rule = KeyRule::new(parts, time.map(|_| pointer))
        .expect("only the places of a good rule's parts were changed");
    let inputs = Inputs {
        payload: Some(&payload),
        headers: &headers,
        message_key: None,
        now_ms: u64::MAX / 2,
    };
    rule.identify(&inputs).map(|identity| identity.key)
}

/// The key of an id as people write it: the text of a rule's only part, or the texts of all its parts (with or
/// without constants) joined by `/`, as outcomes and lists print them. Without a rule, the id alone.
///
/// # Errors
///
/// The rule needs more than the id tells.
pub(crate) fn of_id(rule: Option<&KeyRule>, id: &str) -> Result<Key, String> {
    let Some(rule) = rule else {
        return Key::derive(&[Part::Text(id)]).map_err(|error| error.to_string());
    };
    if let [_] = rule.parts() {
        return by_rule(rule, &[id.to_owned()], None).map(|(key, _)| key);
    }
    let texts: Vec<String> = id.split('/').map(str::to_owned).collect();
    by_rule(rule, &texts, None).map(|(key, _)| key)
}

fn of_messages(
    file: &Path,
    args: &cli::Key,
    rule: &KeyRule,
    style: Style,
) -> Result<Exit, Failure> {
    let headers = args
        .header
        .iter()
        .map(|header| match header.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), Bytes::copy_from_slice(value.as_bytes()))),
            None => Err(Failure::usage(format!(
                "`{header}` is no header; write NAME=VALUE"
            ))),
        });
    let headers: Vec<(String, Bytes)> = headers.collect::<Result<_, _>>()?;
    let message_key = args.message_key.as_ref().map(|key| key.as_bytes());
    let mut exit = Exit::Done;
    let mut lines = Lines::of(open(file)?);
    let mut line = Vec::new();
    let unreadable = |error| Failure::usage(format!("{}: {error}", file.display()));
    while lines.next(&mut line).map_err(unreadable)? > 0 {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let json = Json::parse(&line);
        let payload = json.as_ref().ok();
        let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        match rule.identify(&Inputs {
            payload,
            headers: &headers,
            message_key,
            now_ms,
        }) {
            Ok(identity) => {
                Computed {
                    key: identity.key.to_string(),
                    parts: vec![identity.id.into_owned()],
                }
                .print(style)?;
            }
            Err(no_key) => {
                let why = json
                    .as_ref()
                    .err()
                    .map_or(no_key.to_string(), |malformed| malformed.to_string());
                out::say(&format!("{}:{}: {why}", file.display(), lines.number));
                exit = Exit::No;
            }
        }
    }
    Ok(exit)
}

/// The longest line that is read: no queue takes a longer message.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The byte order mark of UTF-8.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Lines as a file source reads them: a byte order mark at the start of the file and a `\r` before `\n` are no content.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    bytes_max: usize,
    /// The number of the last line that was read.
    pub(crate) number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) const fn of(input: R) -> Self {
        Self {
            input,
            bytes_max: LINE_BYTES_MAX,
            number: 0,
        }
    }

    /// Reads the next line in place of `line`, and tells how many bytes it took of the file: none at its end.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or the line is too long to be a message: it is not read to its end then.
    pub(crate) fn next(&mut self, line: &mut Vec<u8>) -> std::io::Result<usize> {
        line.clear();
        let most = self.bytes_max.saturating_add(1) as u64;
        let size = (&mut self.input).take(most).read_until(b'\n', line)?;
        self.number += 1;
        if size > self.bytes_max {
            let (number, most) = (self.number, self.bytes_max);
            let why =
                format!("line {number} is longer than {most} bytes, more than a message can be");
            return Err(std::io::Error::other(why));
        }
        if line.ends_with(b"\n") {
            line.pop();
            if line.ends_with(b"\r") {
                line.pop();
            }
        }
        if self.number == 1 && line.starts_with(BOM) {
            line.drain(..BOM.len());
        }
        Ok(size)
    }
}

/// A file, or standard input for `-`.
///
/// # Errors
///
/// It cannot be read.
pub(crate) fn open(file: &Path) -> Result<BufReader<Box<dyn Read + Send>>, Failure> {
    if file == Path::new("-") {
        return Ok(BufReader::new(Box::new(std::io::stdin())));
    }
    let opened = std::fs::File::open(file)
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    Ok(BufReader::new(Box::new(opened)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(parts: &[&str]) -> KeyRule {
        KeyRule::parse(parts.iter().copied(), None).unwrap()
    }

    #[test]
    fn an_id_becomes_the_key_that_the_rule_would_make() {
        let text = Key::derive(&[Part::Text("pay-1")]).unwrap();
        assert_eq!(of_id(None, "pay-1"), Ok(text));
        assert_eq!(of_id(Some(&rule(&["/id"])), "pay-1"), Ok(text));
        assert_eq!(
            of_id(Some(&rule(&["lower(trim(/id))"])), " PAY-1 "),
            Ok(text)
        );
        let uuid = "0190D6F3-79F9-7000-8000-0000DEADBEEF";
        assert_eq!(
            of_id(Some(&rule(&["/id"])), uuid),
            Ok(uuid.parse().unwrap())
        );
    }

    #[test]
    fn a_rule_of_several_parts_takes_the_id_as_it_is_printed_or_without_its_constants() {
        let rule = rule(&["const:acme", "lower(/ref)"]);
        let key = Key::derive(&[Part::Text("acme"), Part::Text("bet-42")]).unwrap();
        assert_eq!(of_id(Some(&rule), "acme/BET-42"), Ok(key));
        assert_eq!(of_id(Some(&rule), "BET-42"), Ok(key));
        assert!(of_id(Some(&rule), "a/b/c").is_err());
    }

    #[test]
    fn a_line_beyond_the_limit_is_named_and_not_read_to_its_end() {
        let file = format!("{{}}\n{}", "x".repeat(1_000));
        let mut lines = Lines {
            bytes_max: 10,
            ..Lines::of(file.as_bytes())
        };
        let mut line = Vec::new();
        assert_eq!(lines.next(&mut line).unwrap(), 3);
        let error = lines.next(&mut line).unwrap_err().to_string();
        assert!(error.contains("line 2 is longer than 10 bytes"), "{error}");
        assert_eq!(lines.input.len(), 1_000 - 11);
    }

    #[test]
    fn a_byte_order_mark_is_no_content_at_the_start_of_a_file_and_nowhere_else() {
        let mut lines = Lines::of("\u{feff}a\r\n\u{feff}b\r".as_bytes());
        let mut line = Vec::new();
        lines.next(&mut line).unwrap();
        assert_eq!(line, b"a");
        lines.next(&mut line).unwrap();
        assert_eq!(line, "\u{feff}b\r".as_bytes());
        assert_eq!(lines.next(&mut line).unwrap(), 0);
    }

    #[test]
    fn a_rule_with_a_time_needs_the_time() {
        let rule = KeyRule::parse(["/id"], Some("/at")).unwrap();
        assert!(of_id(Some(&rule), "pay-1").is_err());
        let (key, _) = by_rule(&rule, &["pay-1".to_owned()], Some(1_700_000_000_000)).unwrap();
        assert_eq!(
            key,
            Key::derive_at(&[Part::Text("pay-1")], 1_700_000_000_000).unwrap()
        );
    }
}
