//! AMQP's typed header table as Semel's headers, and back. Headers are advisory: an odd one is text or
//! left out, never an error. None is ever cut: the beginning of a key could be another operation's key.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write as _;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};

/// Names the headers that did not fit.
pub const LEFT_OUT: &str = "semel-headers-left-out";

/// Present on a message whose payload is null: AMQP itself has only empty ones.
pub const NULL_PAYLOAD: &str = "semel-null-payload";

/// Names the headers in the order in which they were published, when that is not the order of their
/// names: AMQP's table keeps none. Written by the sink, and used up by the source.
const ORDER: &str = "semel-headers-order";

/// Tables and arrays nested deeper than this are left out.
const DEPTH_MAX: usize = 16;

/// What the text of all names may take in [`LEFT_OUT`].
const LEFT_OUT_BYTES_MAX: usize = 1_024;

/// Headers of the broker's own, and those by which it sends a message to further queues: one that is
/// published again must not carry them.
const BROKERS_OWN: [&str; 8] = [
    "CC",
    "BCC",
    "x-death",
    "x-delivery-count",
    "x-acquired-count",
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
];

/// Is this header the broker's own?
pub(crate) fn is_brokers_own(name: &str) -> bool {
    BROKERS_OWN.contains(&name) || name.starts_with("x-last-death-")
}

/// All headers, by name (the client keeps no other order), then the properties that say something of
/// the content, under AMQP's names for them where no header has that name. At most `bytes_max`.
pub(crate) fn read(
    properties: &BasicProperties,
    exchange: &str,
    routing_key: &str,
    bytes_max: usize,
) -> Vec<(String, Bytes)> {
    let mut headers = Vec::new();
    let mut left_out = Vec::new();
    if let Some(table) = properties.headers() {
        for (name, value) in table {
            match text(value, bytes_max) {
                Some(value) => headers.push((name.as_str().to_owned(), value)),
                None => left_out.push(name.as_str().to_owned()),
            }
        }
    }
    for (name, value) in properties_said(properties, exchange, routing_key) {
        if !headers.iter().any(|(known, _)| known == name) {
            headers.push((name.to_owned(), Bytes::copy_from_slice(value.as_bytes())));
        }
    }
    restore_order(&mut headers);
    fit(&mut headers, &mut left_out, bytes_max);
    if !left_out.is_empty() {
        headers.push((LEFT_OUT.to_owned(), Bytes::from(list(&left_out))));
    }
    headers
}

fn properties_said<'a>(
    properties: &'a BasicProperties,
    exchange: &'a str,
    routing_key: &'a str,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let named = [
        ("message-id", properties.message_id()),
        ("correlation-id", properties.correlation_id()),
        ("type", properties.kind()),
        ("content-type", properties.content_type()),
        ("content-encoding", properties.content_encoding()),
        ("reply-to", properties.reply_to()),
        ("app-id", properties.app_id()),
        ("user-id", properties.user_id()),
    ];
    let said = named
        .into_iter()
        .filter_map(|(name, value)| value.as_ref().map(|value| (name, value.as_str())));
    // On the default exchange the routing key is the queue's name, which the position says already.
    let routed =
        (!exchange.is_empty()).then_some([("exchange", exchange), ("routing-key", routing_key)]);
    said.chain(routed.into_iter().flatten())
}

fn restore_order(headers: &mut Vec<(String, Bytes)>) {
    let Some(at) = headers.iter().position(|(name, _)| name == ORDER) else {
        return;
    };
    let (_, order) = headers.remove(at);
    // The first place of a name counts. A map: both lists are as long as a sender likes.
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    for (place, name) in order.split(|byte| *byte == b',').enumerate() {
        places.entry(name).or_insert(place);
    }
    // Stable: what it does not name stays in order, behind.
    headers.sort_by_key(|(name, _)| {
        let place = places.get(name.as_bytes());
        place.copied().unwrap_or(usize::MAX)
    });
}

/// Leaves out the largest headers until the rest fits.
fn fit(headers: &mut Vec<(String, Bytes)>, left_out: &mut Vec<String>, bytes_max: usize) {
    let mut bytes: usize = headers.iter().map(size).sum();
    if bytes <= bytes_max {
        return;
    }
    let mut largest_first: Vec<usize> = (0..headers.len()).collect();
    largest_first.sort_by_key(|at| Reverse((size(&headers[*at]), *at)));
    let mut out = vec![false; headers.len()];
    for at in largest_first {
        if bytes <= bytes_max {
            break;
        }
        bytes -= size(&headers[at]);
        left_out.push(headers[at].0.clone());
        out[at] = true;
    }
    let mut out = out.into_iter();
    headers.retain(|_| !out.next().unwrap_or(false));
}

fn size((name, value): &(String, Bytes)) -> usize {
    name.len() + value.len()
}

fn list(names: &[String]) -> String {
    let mut text = names.join(",");
    if text.len() > LEFT_OUT_BYTES_MAX {
        text = format!("{} headers", names.len());
    }
    text
}

/// A value as bytes: strings as they are, numbers in decimal, arrays and tables as JSON. `None` when it
/// is nested too deep or longer than `bytes_max`.
fn text(value: &AMQPValue, bytes_max: usize) -> Option<Bytes> {
    let bytes: Bytes = match value {
        AMQPValue::LongString(text) => Bytes::copy_from_slice(text.as_bytes()),
        AMQPValue::ShortString(text) => Bytes::copy_from_slice(text.as_str().as_bytes()),
        AMQPValue::ByteArray(bytes) => Bytes::copy_from_slice(bytes.as_slice()),
        AMQPValue::Void => Bytes::new(),
        AMQPValue::FieldArray(_) | AMQPValue::FieldTable(_) => {
            let mut json = String::new();
            return write_json(&mut json, value, bytes_max, 0).then(|| Bytes::from(json));
        }
        number => Bytes::from(scalar(number)),
    };
    (bytes.len() <= bytes_max).then_some(bytes)
}

fn scalar(value: &AMQPValue) -> String {
    match value {
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(value) => value.to_string(),
        AMQPValue::ShortShortUInt(value) => value.to_string(),
        AMQPValue::ShortInt(value) => value.to_string(),
        AMQPValue::ShortUInt(value) => value.to_string(),
        AMQPValue::LongInt(value) => value.to_string(),
        AMQPValue::LongUInt(value) => value.to_string(),
        AMQPValue::LongLongInt(value) => value.to_string(),
        AMQPValue::Timestamp(value) => value.to_string(),
        AMQPValue::Float(value) => value.to_string(),
        AMQPValue::Double(value) => value.to_string(),
        AMQPValue::DecimalValue(decimal) => with_point(decimal.value, decimal.scale),
        AMQPValue::LongString(_)
        | AMQPValue::ShortString(_)
        | AMQPValue::ByteArray(_)
        | AMQPValue::FieldArray(_)
        | AMQPValue::FieldTable(_)
        | AMQPValue::Void => String::new(),
    }
}

/// `value` × 10^-`scale` in digits. AMQP's decimals are signed on the wire, the client reads them unsigned.
fn with_point(value: u32, scale: u8) -> String {
    let scale = usize::from(scale);
    let digits = format!("{value:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if fraction.is_empty() {
        whole.to_owned()
    } else {
        format!("{whole}.{fraction}")
    }
}

/// Appends `value` as JSON; `false` when it does not fit.
fn write_json(json: &mut String, value: &AMQPValue, bytes_max: usize, depth: usize) -> bool {
    if depth > DEPTH_MAX || json.len() > bytes_max {
        return false;
    }
    match value {
        AMQPValue::FieldArray(array) => {
            write_all(json, "[]", array.as_slice().iter(), |json, item| {
                write_json(json, item, bytes_max, depth + 1)
            })
        }
        AMQPValue::FieldTable(table) => {
            write_all(json, "{}", table.into_iter(), |json, (name, value)| {
                quote(json, name.as_str());
                json.push(':');
                write_json(json, value, bytes_max, depth + 1)
            })
        }
        AMQPValue::LongString(text) => {
            quote(json, &String::from_utf8_lossy(text.as_bytes()));
            json.len() <= bytes_max
        }
        AMQPValue::ShortString(text) => {
            quote(json, text.as_str());
            json.len() <= bytes_max
        }
        AMQPValue::ByteArray(bytes) => {
            quote(json, &String::from_utf8_lossy(bytes.as_slice()));
            json.len() <= bytes_max
        }
        AMQPValue::Void => {
            json.push_str("null");
            true
        }
        // JSON has no words for these numbers.
        AMQPValue::Float(number) if !number.is_finite() => {
            quote(json, &number.to_string());
            true
        }
        AMQPValue::Double(number) if !number.is_finite() => {
            quote(json, &number.to_string());
            true
        }
        number => {
            json.push_str(&scalar(number));
            json.len() <= bytes_max
        }
    }
}

fn write_all<T>(
    json: &mut String,
    brackets: &str,
    items: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut String, T) -> bool,
) -> bool {
    json.push_str(&brackets[..1]);
    for (index, item) in items.enumerate() {
        if index > 0 {
            json.push(',');
        }
        if !write(json, item) {
            return false;
        }
    }
    json.push_str(&brackets[1..]);
    true
}

fn quote(json: &mut String, text: &str) {
    json.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => json.extend(['\\', char]),
            // Writing to a String never fails.
            char if char < ' ' => drop(write!(json, "\\u{:04x}", u32::from(char))),
            char => json.push(char),
        }
    }
    json.push('"');
}

/// How often the broker says it delivered the message, from 1: quorum queues count. Anything else than
/// a small count is no evidence of anything (TRAPS T44), and says 1.
pub(crate) fn attempt(properties: &BasicProperties) -> u32 {
    let count = properties
        .headers()
        .as_ref()
        .and_then(|table| table.inner().get("x-delivery-count"));
    let count = match count {
        Some(AMQPValue::LongLongInt(count)) => u32::try_from(*count).ok(),
        Some(AMQPValue::LongInt(count)) => u32::try_from(*count).ok(),
        Some(AMQPValue::LongUInt(count)) => Some(*count),
        Some(AMQPValue::ShortInt(count)) => u32::try_from(*count).ok(),
        Some(AMQPValue::ShortShortInt(count)) => u32::try_from(*count).ok(),
        Some(AMQPValue::ShortUInt(count)) => Some((*count).into()),
        Some(AMQPValue::ShortShortUInt(count)) => Some((*count).into()),
        _ => None,
    };
    count.unwrap_or(0).saturating_add(1)
}

/// Does the message stand for a null payload?
pub(crate) fn is_null(properties: &BasicProperties) -> bool {
    properties
        .headers()
        .as_ref()
        .is_some_and(|table| table.contains_key(NULL_PAYLOAD))
}

/// A table for publishing. Of several headers of one name the first is kept, as AMQP has no others.
///
/// # Errors
/// The name that is too long for AMQP.
pub(crate) fn write<'a>(
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<FieldTable, String> {
    let mut table = FieldTable::default();
    let mut names: Vec<&str> = Vec::new();
    for (name, value) in headers.filter(|(name, _)| !is_brokers_own(name)) {
        if !table.contains_key(name) {
            names.push(name);
            let name = ShortString::try_new(name).map_err(|_| name.to_owned())?;
            table.insert(name, AMQPValue::LongString(LongString::from(value)));
        }
    }
    if !names.is_sorted() && !names.iter().any(|name| name.contains(',')) {
        let order = AMQPValue::LongString(names.join(",").into());
        table.insert(ORDER.into(), order);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use lapin::types::{DecimalValue, FieldArray};

    use super::*;

    fn table(entries: impl IntoIterator<Item = (&'static str, AMQPValue)>) -> BasicProperties {
        let mut table = FieldTable::default();
        for (name, value) in entries {
            table.insert(name.into(), value);
        }
        BasicProperties::default().with_headers(table)
    }

    fn read_all(properties: &BasicProperties) -> Vec<(String, String)> {
        let headers = read(properties, "", "q", 1 << 16);
        headers
            .into_iter()
            .map(|(name, value)| (name, String::from_utf8(value.to_vec()).unwrap()))
            .collect()
    }

    #[test]
    fn every_type_of_amqp_is_kept_as_text_or_bytes() {
        let mut inner = FieldTable::default();
        inner.insert("a\"b".into(), AMQPValue::LongInt(-7));
        inner.insert("n".into(), AMQPValue::Double(f64::NAN));
        inner.insert("v".into(), AMQPValue::Void);
        let properties = table([
            ("a", AMQPValue::Boolean(true)),
            ("b", AMQPValue::ShortShortInt(-1)),
            ("c", AMQPValue::LongLongInt(i64::MIN)),
            ("d", AMQPValue::Timestamp(5)),
            (
                "e",
                AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 5 }),
            ),
            ("f", AMQPValue::LongString("ü\n".into())),
            ("g", AMQPValue::ByteArray(vec![0x41].into())),
            ("h", AMQPValue::Void),
            ("i", AMQPValue::FieldTable(inner)),
            (
                "j",
                AMQPValue::FieldArray(FieldArray::from(vec![
                    AMQPValue::LongString("x\n".into()),
                    AMQPValue::Float(1.5),
                ])),
            ),
        ]);
        let expected = [
            ("a", "true"),
            ("b", "-1"),
            ("c", "-9223372036854775808"),
            ("d", "5"),
            ("e", "0.05"),
            ("f", "ü\n"),
            ("g", "A"),
            ("h", ""),
            ("i", r#"{"a\"b":-7,"n":"NaN","v":null}"#),
            ("j", r#"["x\u000a",1.5]"#),
        ];
        assert_eq!(
            read_all(&properties),
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn properties_become_headers_unless_a_header_has_their_name() {
        let properties = table([("type", AMQPValue::LongString("mine".into()))])
            .with_type("theirs".into())
            .with_message_id("m-1".into());
        let headers = read(&properties, "ops", "eu.bets", 1 << 16);
        let value = |name: &str| {
            headers
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.to_vec())
        };
        assert_eq!(value("type").as_deref(), Some(b"mine".as_slice()));
        assert_eq!(value("message-id").as_deref(), Some(b"m-1".as_slice()));
        assert_eq!(value("routing-key").as_deref(), Some(b"eu.bets".as_slice()));
    }

    #[test]
    fn e036_headers_that_do_not_fit_are_left_out_whole_and_named_largest_first() {
        let entries = vec![AMQPValue::FieldTable(FieldTable::default()); 10_000];
        let properties = table([
            ("idempotency-key", AMQPValue::LongString("k".into())),
            ("x-death", AMQPValue::FieldArray(entries.into())),
            ("large", AMQPValue::LongString(vec![b'l'; 900].into())),
            ("small", AMQPValue::LongString(vec![b's'; 200].into())),
        ]);
        let headers = read(&properties, "", "q", 1_000);
        let names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["idempotency-key", "small", LEFT_OUT]);
        assert_eq!(headers[2].1, "x-death,large".as_bytes());
    }

    #[test]
    fn e036_a_header_nested_without_end_is_left_out() {
        let nested = (0..100).fold(AMQPValue::Void, |inner, _| {
            AMQPValue::FieldArray(vec![inner].into())
        });
        assert_eq!(
            read_all(&table([("x", nested)])),
            [(LEFT_OUT.to_owned(), "x".to_owned())]
        );
    }

    #[test]
    fn e036_only_a_sane_delivery_count_is_a_hint() {
        let count = |value| attempt(&table([("x-delivery-count", value)]));
        assert_eq!(attempt(&BasicProperties::default()), 1);
        assert_eq!(count(AMQPValue::LongLongInt(3)), 4);
        assert_eq!(count(AMQPValue::LongLongInt(-1)), 1);
        assert_eq!(count(AMQPValue::LongLongInt(i64::MAX)), 1);
        assert_eq!(count(AMQPValue::LongUInt(u32::MAX)), u32::MAX);
        assert_eq!(count(AMQPValue::LongString("7".into())), 1);
        assert_eq!(count(AMQPValue::FieldArray(FieldArray::default())), 1);
    }

    #[test]
    fn the_order_of_what_the_sink_publishes_is_kept() {
        let headers = [("b", "1"), ("a", "2"), ("c", "3")];
        let table = write(
            headers
                .iter()
                .map(|(name, value)| (*name, value.as_bytes())),
        )
        .unwrap();
        let read = read_all(&BasicProperties::default().with_headers(table));
        assert_eq!(
            read,
            headers.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn what_the_broker_wrote_is_not_published_again() {
        let headers = [
            ("x-death", "7"),
            ("CC", "other"),
            ("a", "1"),
            ("a", "2"),
            ("x-last-death-queue", "q"),
        ];
        let table = write(
            headers
                .iter()
                .map(|(name, value)| (*name, value.as_bytes())),
        )
        .unwrap();
        assert_eq!(table.inner().len(), 1);
        assert_eq!(
            table.inner().get("a"),
            Some(&AMQPValue::LongString("1".into()))
        );
        assert_eq!(
            write([("n".repeat(256).as_str(), [].as_slice())].into_iter()),
            Err("n".repeat(256))
        );
    }
}
