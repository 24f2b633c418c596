//! Values of the user's columns on the wire: single ones, whole columns of flat rows as arrays, and rows on
//! their way back.

use std::borrow::Cow;

use bytes::Bytes;
use semel_core::rows::{Column, Type as Kind, Value};
use semel_core::{Fault, Key};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{
    PgArgumentBuffer, PgHasArrayType, PgRow, PgTypeInfo, PgValueFormat, PgValueRef,
};
use sqlx::types::Uuid;
use sqlx::{Decode, Encode, Postgres, Row, Type, TypeInfo, ValueRef};

use crate::numeric;

/// Microseconds from 1970 to 2000, the server's epoch.
const EPOCH_US: i64 = 946_684_800_000_000;

/// Type numbers of the server (`pg_type.dat`), fixed for ever.
mod oid {
    use sqlx::postgres::types::Oid;

    pub(super) const UNKNOWN: Oid = Oid(0);
    pub(super) const BOOL: Oid = Oid(16);
    pub(super) const BYTEA: Oid = Oid(17);
    pub(super) const NAME: Oid = Oid(19);
    pub(super) const INT8: Oid = Oid(20);
    pub(super) const INT2: Oid = Oid(21);
    pub(super) const INT4: Oid = Oid(23);
    pub(super) const TEXT: Oid = Oid(25);
    pub(super) const JSON: Oid = Oid(114);
    pub(super) const BYTEA_ARRAY: Oid = Oid(1001);
    pub(super) const TEXT_ARRAY: Oid = Oid(1009);
    pub(super) const INT8_ARRAY: Oid = Oid(1016);
    pub(super) const BPCHAR: Oid = Oid(1042);
    pub(super) const VARCHAR: Oid = Oid(1043);
    pub(super) const TIMESTAMP: Oid = Oid(1114);
    pub(super) const TIMESTAMPTZ: Oid = Oid(1184);
    pub(super) const TIMESTAMPTZ_ARRAY: Oid = Oid(1185);
    pub(super) const UUID: Oid = Oid(2950);
    pub(super) const UUID_ARRAY: Oid = Oid(2951);
    pub(super) const JSONB: Oid = Oid(3802);
    /// Types from here on are the database's own (`FirstNormalObjectId`).
    pub(super) const FIRST_OF_USERS: u32 = 16_384;
}

/// A key or hash as the driver's UUID.
pub(crate) fn uuid(key: Key) -> Uuid {
    Uuid::from_bytes(key.into_bytes())
}

/// The driver's UUID as a key.
pub(crate) fn key(uuid: Uuid) -> Key {
    Key::from_bytes(uuid.into_bytes())
}

/// Text without NUL, which PostgreSQL cannot store (TRAPS T19): words for operators, never part of an identity.
pub(crate) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// An instant, Unix µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instant(pub(crate) i64);

impl Type<Postgres> for Instant {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(oid::TIMESTAMPTZ)
    }

    fn compatible(info: &PgTypeInfo) -> bool {
        info.oid() == Some(oid::TIMESTAMPTZ)
    }
}

impl PgHasArrayType for Instant {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(oid::TIMESTAMPTZ_ARRAY)
    }
}

impl Decode<'_, Postgres> for Instant {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        i64_of(value.as_bytes()?)?
            .checked_add(EPOCH_US)
            .map(Self)
            .ok_or_else(|| "an instant beyond 64 bits".into())
    }
}

/// The base type and the array type of a column.
const fn types(kind: Kind) -> (Oid, Oid) {
    match kind {
        Kind::Int => (oid::INT8, oid::INT8_ARRAY),
        Kind::Amount => (numeric::NUMERIC, numeric::NUMERIC_ARRAY),
        Kind::Text => (oid::TEXT, oid::TEXT_ARRAY),
        Kind::Bytes => (oid::BYTEA, oid::BYTEA_ARRAY),
        Kind::Key => (oid::UUID, oid::UUID_ARRAY),
        Kind::Time => (oid::TIMESTAMPTZ, oid::TIMESTAMPTZ_ARRAY),
    }
}

/// The SQL name of a column's type, for casts.
pub(crate) const fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Int => "bigint",
        Kind::Amount => "numeric",
        Kind::Text => "text",
        Kind::Bytes => "bytea",
        Kind::Key => "uuid",
        Kind::Time => "timestamptz",
    }
}

/// Appends the binary form of a value that is not NULL.
fn put(value: &Value, out: &mut Vec<u8>) -> Result<(), BoxDynError> {
    match value {
        Value::Null => {}
        Value::Int(int) => out.extend_from_slice(&int.to_be_bytes()),
        Value::Amount(amount) => numeric::put(*amount, out),
        Value::Text(text) => out.extend_from_slice(text.as_bytes()),
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Key(key) => out.extend_from_slice(key.as_bytes()),
        Value::Time(us) => {
            let since = us
                .checked_sub(EPOCH_US)
                .ok_or("an instant beyond 64 bits")?;
            out.extend_from_slice(&since.to_be_bytes());
        }
    }
    Ok(())
}

const fn fits(value: &Value, kind: Kind) -> bool {
    matches!(
        (value, kind),
        (Value::Null, _)
            | (Value::Int(_), Kind::Int)
            | (Value::Amount(_), Kind::Amount)
            | (Value::Text(_), Kind::Text)
            | (Value::Bytes(_), Kind::Bytes)
            | (Value::Key(_), Kind::Key)
            | (Value::Time(_), Kind::Time)
    )
}

/// One column of flat rows as an array, without copying it first.
pub(crate) struct Cells<'a> {
    pub(crate) kind: Kind,
    pub(crate) values: &'a [Value],
    /// Values in a row.
    pub(crate) width: usize,
    /// The column's place in a row.
    pub(crate) place: usize,
}

impl Type<Postgres> for Cells<'_> {
    /// Never asked for: every array says its own type.
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(oid::UNKNOWN)
    }
}

impl Encode<'_, Postgres> for Cells<'_> {
    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(types(self.kind).1))
    }

    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let cells = || self.values.iter().skip(self.place).step_by(self.width);
        let nulls = cells().any(|cell| *cell == Value::Null);
        let count = i32::try_from(cells().count())?;
        // Dimensions, the null flag, the element type, then length and lower bound of the one dimension.
        for part in [1_i32, i32::from(nulls)] {
            buffer.extend_from_slice(&part.to_be_bytes());
        }
        buffer.extend_from_slice(&types(self.kind).0.0.to_be_bytes());
        for part in [count, 1_i32] {
            buffer.extend_from_slice(&part.to_be_bytes());
        }
        for cell in cells() {
            if !fits(cell, self.kind) {
                return Err(format!(
                    "a value {cell:?} does not fit a column of type {:?}",
                    self.kind
                )
                .into());
            }
            put_element(cell, buffer)?;
        }
        Ok(IsNull::No)
    }
}

/// Appends an element with its length before it.
fn put_element(value: &Value, out: &mut Vec<u8>) -> Result<(), BoxDynError> {
    if *value == Value::Null {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return Ok(());
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    put(value, out)?;
    let length = i32::try_from(out.len() - at - 4)?;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// A single argument.
pub(crate) struct Scalar<'a>(pub(crate) &'a Value);

impl Type<Postgres> for Scalar<'_> {
    /// Never asked for: every value says its own type.
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(oid::UNKNOWN)
    }
}

impl Encode<'_, Postgres> for Scalar<'_> {
    fn produces(&self) -> Option<PgTypeInfo> {
        let kind = match self.0 {
            // The server finds the type of a NULL by itself.
            Value::Null => return Some(PgTypeInfo::with_oid(oid::UNKNOWN)),
            Value::Int(_) => Kind::Int,
            Value::Amount(_) => Kind::Amount,
            Value::Text(_) => Kind::Text,
            Value::Bytes(_) => Kind::Bytes,
            Value::Key(_) => Kind::Key,
            Value::Time(_) => Kind::Time,
        };
        Some(PgTypeInfo::with_oid(types(kind).0))
    }

    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        if *self.0 == Value::Null {
            return Ok(IsNull::Yes);
        }
        put(self.0, buffer)?;
        Ok(IsNull::No)
    }
}

/// Appends the values of a row, by their database types.
///
/// # Errors
/// `Poison` when a column has a type that no [`Value`] holds.
pub(crate) fn read_row(row: &PgRow, out: &mut Vec<Value>) -> Result<(), Fault> {
    for place in 0..row.len() {
        let raw = row.try_get_raw(place).map_err(crate::fault::fault)?;
        let value = read_cell(&raw).map_err(|error| {
            Fault::poison(format!(
                "column `{}`: {error}",
                sqlx::Column::name(row.column(place))
            ))
        })?;
        out.push(value);
    }
    Ok(())
}

fn read_cell(raw: &PgValueRef<'_>) -> Result<Value, BoxDynError> {
    if raw.is_null() {
        return Ok(Value::Null);
    }
    if raw.format() != PgValueFormat::Binary {
        return Err("it came as text; run the query with arguments or alone".into());
    }
    let info = raw.type_info();
    let bytes = raw.as_bytes()?;
    read(info.oid().unwrap_or(oid::UNKNOWN), bytes)?.ok_or_else(|| {
        format!(
            "its type `{}` is not one of Semel's; cast it in the query",
            info.name()
        )
        .into()
    })
}

/// A value of a type in its binary form; nothing for a type that no [`Value`] holds.
fn read(kind: Oid, bytes: &[u8]) -> Result<Option<Value>, BoxDynError> {
    Ok(Some(match kind {
        oid::INT8 => Value::Int(i64_of(bytes)?),
        oid::INT4 => Value::Int(i32::from_be_bytes(bytes.try_into()?).into()),
        oid::INT2 => Value::Int(i16::from_be_bytes(bytes.try_into()?).into()),
        oid::BOOL => Value::Int((bytes == [1]).into()),
        numeric::NUMERIC => Value::Amount(numeric::get(bytes)?),
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME | oid::JSON => {
            Value::Text(std::str::from_utf8(bytes)?.into())
        }
        // One byte of version before the text.
        oid::JSONB => Value::Text(std::str::from_utf8(bytes.get(1..).unwrap_or_default())?.into()),
        oid::BYTEA => Value::Bytes(Bytes::copy_from_slice(bytes)),
        oid::UUID => Value::Key(Key::from_bytes(bytes.try_into()?)),
        oid::TIMESTAMPTZ | oid::TIMESTAMP => Value::Time(
            i64_of(bytes)?
                .checked_add(EPOCH_US)
                .ok_or("an instant beyond 64 bits")?,
        ),
        _ => return Ok(None),
    }))
}

/// The values of arrays, one for each of `columns`, as flat rows; nothing where they are NULL, as of no rows.
///
/// # Errors
/// `Poison` when a column has a type that no [`Value`] holds.
pub(crate) fn read_columns(
    row: &PgRow,
    columns: impl Iterator<Item = &'static Column>,
) -> Result<Vec<Value>, Fault> {
    let width = row.len();
    let mut values = Vec::new();
    for (place, column) in columns.enumerate() {
        let raw = row.try_get_raw(place).map_err(crate::fault::fault)?;
        if raw.is_null() {
            return Ok(values);
        }
        raw.as_bytes()
            .and_then(|bytes| read_array(bytes, column.kind, &mut values, (place, width)))
            .map_err(|error| Fault::poison(format!("column `{}`: {error}", column.name)))?;
    }
    Ok(values)
}

/// Puts the elements of an array at a place of rows of a width. The first column makes room for the others.
fn read_array(
    mut bytes: &[u8],
    kind: Kind,
    values: &mut Vec<Value>,
    (place, width): (usize, usize),
) -> Result<(), BoxDynError> {
    let mut header = [0; 5];
    for part in &mut header {
        *part = i32_of(&mut bytes)?;
    }
    let [dimensions, _nulls, element, count, _lower] = header;
    if dimensions != 1 {
        return Err("its type is an array, not one of Semel's".into());
    }
    let element = Oid(element.cast_unsigned());
    let count = usize::try_from(count)?;
    if place == 0 {
        values.resize(count * width, Value::Null);
    }
    for at in 0..count {
        // A length of -1 stands for NULL.
        if let Ok(length) = usize::try_from(i32_of(&mut bytes)?) {
            let (value, rest) = bytes.split_at_checked(length).ok_or(CUT)?;
            let value = if element.0 < oid::FIRST_OF_USERS {
                read(element, value)?
            } else {
                // A domain comes as what it is based on, under its own number.
                read(base(kind, length), value)?
            };
            *values.get_mut(at * width + place).ok_or(CUT)? =
                value.ok_or_else(|| format!("its type {} is not one of Semel's", element.0))?;
            bytes = rest;
        }
    }
    Ok(())
}

const CUT: &str = "an array that is cut off";

/// The type that a domain of a column's kind is based on, by the length of a value.
const fn base(kind: Kind, length: usize) -> Oid {
    match (kind, length) {
        (Kind::Int, 4) => oid::INT4,
        (Kind::Int, 2) => oid::INT2,
        (kind, _) => types(kind).0,
    }
}

fn i32_of(bytes: &mut &[u8]) -> Result<i32, BoxDynError> {
    let (first, rest) = bytes.split_first_chunk().ok_or(CUT)?;
    *bytes = rest;
    Ok(i32::from_be_bytes(*first))
}

fn i64_of(bytes: &[u8]) -> Result<i64, BoxDynError> {
    Ok(i64::from_be_bytes(bytes.try_into()?))
}
