//! Values between Rust and SQLite, and rows of Semel's own tables read back.

use bytes::Bytes;
use semel_core::rows::{Type, Value};
use semel_core::{Fault, Key};
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row, Sqlite, TypeInfo, ValueRef};

use crate::link::Args;

/// Adds a value of a user's column. Amounts are decimal text in one spelling, since SQLite has no integer of 128
/// bits and compares text byte for byte.
pub(crate) fn push(args: &mut Args, value: &Value) {
    match value {
        Value::Null => args.push(None::<i64>),
        Value::Int(int) | Value::Time(int) => args.push(*int),
        Value::Amount(amount) => args.push(amount.to_string()),
        Value::Text(text) => args.push(&**text),
        Value::Bytes(bytes) => args.push(&**bytes),
        Value::Key(key) => args.push(&key.as_bytes()[..]),
    }
}

/// A value of a user's column, by the table's description.
pub(crate) fn read(row: &SqliteRow, at: usize, kind: Type) -> Result<Value, Fault> {
    let raw = row.try_get_raw(at)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    Ok(match kind {
        Type::Int => Value::Int(decode(raw)?),
        Type::Time => Value::Time(decode(raw)?),
        Type::Text => Value::Text(decode::<&str>(raw)?.into()),
        Type::Bytes => Value::Bytes(Bytes::copy_from_slice(decode(raw)?)),
        Type::Amount => Value::Amount(amount(decode(raw)?)?),
        Type::Key => Value::Key(Key::from_bytes(sixteen(decode(raw)?)?)),
    })
}

/// A value by its own type: SQLite knows integers, text and blobs.
pub(crate) fn read_any(row: &SqliteRow, at: usize) -> Result<Value, Fault> {
    let raw = row.try_get_raw(at)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    let kind = raw.type_info().name().to_owned();
    Ok(match kind.as_str() {
        "INTEGER" => Value::Int(decode(raw)?),
        "TEXT" => Value::Text(decode::<&str>(raw)?.into()),
        "BLOB" => Value::Bytes(Bytes::copy_from_slice(decode(raw)?)),
        other => {
            return Err(Fault::poison(format!(
                "column {at} is a {other}; cast it to text in the query"
            )));
        }
    })
}

/// The amount of a decimal text in its one spelling.
fn amount(text: &str) -> Result<i128, Fault> {
    let parsed = text
        .parse::<i128>()
        .ok()
        .filter(|amount| amount.to_string() == text);
    parsed.ok_or_else(|| Fault::poison(format!("`{text}` is not an amount as Semel writes it")))
}

/// Sixteen bytes of a blob.
pub(crate) fn sixteen(bytes: &[u8]) -> Result<[u8; 16], Fault> {
    bytes
        .try_into()
        .map_err(|_| Fault::stop(format!("a key has {} bytes, not 16", bytes.len())))
}

fn decode<'r, T: Decode<'r, Sqlite>>(raw: sqlx::sqlite::SqliteValueRef<'r>) -> Result<T, Fault> {
    T::decode(raw).map_err(Fault::poison)
}

/// Columns of Semel's own tables.
pub(crate) trait Columns {
    /// Sixteen bytes.
    fn sixteen(&self, at: usize) -> Result<[u8; 16], Fault>;

    /// A blob or NULL.
    fn bytes(&self, at: usize) -> Result<Option<Bytes>, Fault>;

    /// A column of a type that sqlx knows.
    fn own<'r, T: Decode<'r, Sqlite> + sqlx::Type<Sqlite>>(&'r self, at: usize)
    -> Result<T, Fault>;
}

impl Columns for SqliteRow {
    fn sixteen(&self, at: usize) -> Result<[u8; 16], Fault> {
        sixteen(self.own::<&[u8]>(at)?)
    }

    fn bytes(&self, at: usize) -> Result<Option<Bytes>, Fault> {
        Ok(self.own::<Option<&[u8]>>(at)?.map(Bytes::copy_from_slice))
    }

    fn own<'r, T: Decode<'r, Sqlite> + sqlx::Type<Sqlite>>(
        &'r self,
        at: usize,
    ) -> Result<T, Fault> {
        self.try_get(at)
            .map_err(|error| Fault::stop(format!("a row of the ledger cannot be read: {error}")))
    }
}
