//! Typed access to the fields of one object; every complaint names the field as the sender wrote it.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use semel_core::json::Object;
use semel_core::{Json, Key};

use super::{Dead, Keys, Named, Written};
use crate::code::Death;

/// The fields of a message or of one leg.
pub(super) struct Fields<'o, 'k> {
    object: &'o Object<'o>,
    keys: &'k Keys<'o>,
    /// The list and the place in it, for a leg.
    inside: Option<(&'static str, usize)>,
}

impl<'o, 'k> Fields<'o, 'k> {
    pub(super) fn new(object: &'o Object<'o>, keys: &'k Keys<'o>) -> Self {
        Self {
            object,
            keys,
            inside: None,
        }
    }

    /// The fields of an item of a list.
    pub(super) fn of_item(
        &self,
        list: &'static str,
        number: usize,
        item: &'o Json<'o>,
    ) -> Result<Self, Dead> {
        match item.object() {
            Some(object) => Ok(Self {
                object,
                keys: self.keys,
                inside: Some((list, number)),
            }),
            None => Err(malformed(
                format!("{list}/{number}"),
                &format!("is {}, not an object", item.kind()),
            )),
        }
    }

    /// A field that is there and not null.
    fn get(&self, name: &str) -> Option<&'o Json<'o>> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn required(&self, name: &str) -> Result<&'o Json<'o>, Dead> {
        self.get(name)
            .ok_or_else(|| self.bad(name, "is missing or null"))
    }

    #[cold]
    fn bad(&self, name: &str, what: impl std::fmt::Display) -> Dead {
        malformed(self.path(name).into_owned(), &what.to_string())
    }

    /// The field's name as it is nested.
    fn path<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.inside {
            Some((list, number)) => Cow::Owned(format!("{list}/{number}/{name}")),
            None => Cow::Borrowed(name),
        }
    }

    fn ill_typed(&self, name: &str, value: &Json<'_>, wanted: &str) -> Dead {
        self.bad(name, format_args!("is {}, not {wanted}", value.kind()))
    }

    pub(super) fn text(&self, name: &str) -> Result<&'o str, Dead> {
        let value = self.required(name)?;
        value
            .text()
            .ok_or_else(|| self.ill_typed(name, value, "text"))
    }

    /// Free text for people; numbers are taken as their source text.
    pub(super) fn note(&self, name: &str) -> Result<Option<Box<str>>, Dead> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let text = value
            .text_or_number()
            .ok_or_else(|| self.ill_typed(name, value, "text"))?;
        storable(&self.path(name), text)?;
        Ok(Some(text.into()))
    }

    fn key_of(&self, name: &str, value: &'o Json<'o>) -> Result<Key, Dead> {
        match self.keys.of(value) {
            Some(key) => Ok(key),
            None => Key::of_json(value).map_err(|no_key| self.bad(name, no_key.why)),
        }
    }

    /// The key of an id or a reference.
    pub(super) fn key(&self, name: &str) -> Result<Key, Dead> {
        self.key_of(name, self.required(name)?)
    }

    pub(super) fn optional_key(&self, name: &str) -> Result<Option<Key>, Dead> {
        self.get(name)
            .map(|value| self.key_of(name, value))
            .transpose()
    }

    /// An id with its source text.
    pub(super) fn named(&self, name: &str) -> Result<Named, Dead> {
        let value = self.required(name)?;
        let key = self.key_of(name, value)?;
        let id = value
            .text_or_number()
            .expect("a key is made of text or a number only");
        storable(&self.path(name), id)?;
        Ok(Named { key, id: id.into() })
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Dead> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.ill_typed(name, other, "true or false")),
        }
    }

    pub(super) fn choice<T>(
        &self,
        name: &str,
        of: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Dead> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let word = value
            .text()
            .ok_or_else(|| self.ill_typed(name, value, "text"))?;
        match of(word) {
            Some(chosen) => Ok(Some(chosen)),
            None => Err(self.bad(
                name,
                format_args!("is {word:?}, which is none of its words"),
            )),
        }
    }

    /// A time with offset, as Unix µs.
    pub(super) fn time(&self, name: &str) -> Result<Option<i64>, Dead> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let text = value
            .text()
            .ok_or_else(|| self.ill_typed(name, value, "a time (RFC 3339 with offset)"))?;
        let Some(exact) = nine_digits(text) else {
            return Err(self.bad(
                name,
                format_args!("has more than nine digits of a second; a time is exact to the nanosecond at most"),
            ));
        };
        unix_us(&exact).map(Some).map_err(|e| {
            self.bad(
                name,
                format_args!("is no time of RFC 3339 with offset: {e}"),
            )
        })
    }

    pub(super) fn list(&self, name: &str) -> Result<&'o [Json<'o>], Dead> {
        let value = self.required(name)?;
        value
            .array()
            .ok_or_else(|| self.ill_typed(name, value, "an array"))
    }

    /// The source text of `amount` or `value`.
    pub(super) fn written_amount(&self) -> Result<Option<Written<'o>>, Dead> {
        let source = |name: &'static str, value: &'o Json<'o>| {
            value
                .text_or_number()
                .ok_or_else(|| self.ill_typed(name, value, "an amount"))
        };
        match (self.get("amount"), self.get("value")) {
            (Some(_), Some(_)) => {
                Err(self.bad("value", "is given beside `amount`: send one of them"))
            }
            (Some(amount), None) => {
                source("amount", amount).map(|text| Some(Written::Amount(text)))
            }
            (None, Some(value)) => source("value", value).map(|text| Some(Written::Value(text))),
            (None, None) => Ok(None),
        }
    }

    pub(super) fn required_amount(&self) -> Result<Written<'o>, Dead> {
        self.written_amount()?
            .ok_or_else(|| self.bad("amount", "is missing, and so is `value`"))
    }
}

/// A time as Unix µs, of all years that RFC 3339 can write: a `Timestamp` ends a day before the last of them, so that it
/// has a date in every offset.
fn unix_us(text: &str) -> Result<i64, jiff::Error> {
    text.parse().map_or_else(
        |error| edge_us(text).ok_or(error),
        |time: Timestamp| Ok(time.as_microsecond()),
    )
}

fn edge_us(text: &str) -> Option<i64> {
    let pieces = Pieces::parse(text).ok()?;
    let local = pieces.date().to_datetime(pieces.time()?);
    let since = local.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
    let offset = i128::from(pieces.to_numeric_offset()?.seconds()) * 1_000_000;
    i64::try_from(since.as_micros() - offset).ok()
}

/// A time with at most nine digits of a second: zeros behind them change nothing and are left out. `None` when one of
/// them is another digit, which could only be dropped.
fn nine_digits(text: &str) -> Option<Cow<'_, str>> {
    let Some((front, rest)) = text.split_once(['.', ',']) else {
        return Some(Cow::Borrowed(text));
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits <= 9 {
        return Some(Cow::Borrowed(text));
    }
    let zeros = rest[9..digits].bytes().all(|digit| digit == b'0');
    zeros.then(|| Cow::Owned(format!("{front}.{}{}", &rest[..9], &rest[digits..])))
}

/// Text that is stored as it came has no NUL character: one rule for every database, since PostgreSQL takes none
/// (TRAPS T19).
pub(super) fn storable(field: &str, text: &str) -> Result<(), Dead> {
    if text.contains('\0') {
        let what = "has a NUL character, which not every database stores as text";
        return Err(malformed(field.to_owned(), what));
    }
    Ok(())
}

#[cold]
fn malformed(field: String, what: &str) -> Dead {
    Dead {
        code: Death::Malformed,
        detail: format!("`{field}` {what}"),
        field: Some(field),
    }
}

#[cfg(test)]
mod tests {
    use super::{nine_digits, unix_us};

    #[test]
    fn every_time_that_rfc_3339_can_write_is_taken() {
        for (text, us) in [
            ("1970-01-01T00:00:00.000001Z", 1),
            ("1969-12-31T23:59:59.5Z", -500_000),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
            ("9999-12-30T22:00:00Z", 253_402_207_200_000_000),
            ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
            ("9999-12-31T23:59:59-23:59", 253_402_387_139_000_000),
        ] {
            assert_eq!(unix_us(text).unwrap(), us, "{text}");
        }
        for text in [
            "9999-12-31T23:59:59",
            "9999-12-31",
            "9999-12-32T00:00:00Z",
            "10000-01-01T00:00:00Z",
        ] {
            assert!(unix_us(text).is_err(), "{text}");
        }
    }

    #[test]
    fn digits_of_a_second_are_never_dropped() {
        let exact = |text| nine_digits(text).map(|text| text.into_owned());
        for text in [
            "2026-01-31T00:00:00Z",
            "2026-01-31T00:00:00.123456789+01:00",
            "x.y",
        ] {
            assert_eq!(exact(text).as_deref(), Some(text));
        }
        assert_eq!(
            exact("2026-01-31T00:00:00.100000000000+01:00").as_deref(),
            Some("2026-01-31T00:00:00.100000000+01:00")
        );
        assert_eq!(exact("2026-01-31T00:00:00.1234567891Z"), None);
    }
}
