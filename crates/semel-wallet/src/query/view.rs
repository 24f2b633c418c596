//! What the commands print: shapes are a contract. Amounts are strings of digits, times RFC 3339 in UTC, keys
//! lower-case hyphenated UUIDs.

use std::fmt::Display;

use bytes::Bytes;
use semel_core::rows::{Type, Value};
use semel_core::{Fault, Key};
use serde::{Serialize, Serializer};

use crate::row::{Account, Bet, BetStatus, RoundStatus};

fn digits<S: Serializer>(amount: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(amount)
}

/// `semel balance`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// The account's name.
    pub account: String,
    /// Its asset.
    pub asset: String,
    /// What it is for.
    pub kind: &'static str,
    /// What may be done with it.
    pub status: &'static str,
    /// Its balance.
    #[serde(serialize_with = "digits")]
    pub posted: i128,
    /// What open holds reserve.
    #[serde(serialize_with = "digits")]
    pub pending: i128,
    /// What can be spent.
    #[serde(serialize_with = "digits")]
    pub available: i128,
    /// How many entries it has.
    pub version: i64,
}

impl Balance {
    pub(super) fn of(account: &Account) -> Self {
        Self {
            account: account.id.to_string(),
            asset: account.asset.to_string(),
            kind: account.kind.as_str(),
            status: account.status.as_str(),
            posted: account.posted,
            pending: account.pending,
            available: account.available(),
            version: account.version,
        }
    }
}

/// Which side of a movement an account was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// It paid.
    Debit,
    /// It got it.
    Credit,
}

/// One line of `semel statement`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// When, by the database's clock.
    pub at: String,
    /// The operation's key.
    #[serde(serialize_with = "digits")]
    pub transfer: Key,
    /// Paid or got.
    pub direction: Direction,
    /// How much.
    #[serde(serialize_with = "digits")]
    pub amount: u128,
    /// The balance after it.
    #[serde(serialize_with = "digits")]
    pub balance_after: i128,
    /// The account's version after it.
    pub version: i64,
    /// What it was.
    pub op: String,
    /// The operation's id.
    pub id: String,
}

/// A bet of `semel round`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StakeView {
    /// Its id.
    pub id: String,
    /// The stake.
    #[serde(serialize_with = "digits")]
    pub amount: i128,
    /// `open`, `won`, `rolled_back`, or `settled` when the round was completed and no win named it.
    pub status: &'static str,
}

impl StakeView {
    pub(super) fn of(id: String, bet: &Bet, round: RoundStatus) -> Self {
        let status = match (bet.status, round) {
            (BetStatus::Open, RoundStatus::Completed) => "settled",
            (status, _) => status.as_str(),
        };
        Self {
            id,
            amount: bet.amount,
            status,
        }
    }
}

/// A win of `semel round`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WinView {
    /// Its id.
    pub id: String,
    /// The payment.
    #[serde(serialize_with = "digits")]
    pub amount: i128,
    /// The id of the bet it names.
    pub bet: Option<String>,
}

/// One line of `semel round`: a player's round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoundView {
    /// The round's name.
    pub round: String,
    /// The player.
    pub account: String,
    /// The game.
    pub game: Option<String>,
    /// `open`, `completed` or `cancelled`.
    pub status: &'static str,
    /// Its bets, in order.
    pub bets: Vec<StakeView>,
    /// Its wins, in order.
    pub wins: Vec<WinView>,
    /// Stakes taken and not returned.
    #[serde(serialize_with = "digits")]
    pub staked: i128,
    /// Wins paid.
    #[serde(serialize_with = "digits")]
    pub paid: i128,
}

/// A movement of [`OperationView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LegView {
    /// The account that paid or whose money is held.
    pub debit: Option<String>,
    /// The account that got it, or is to get it; nobody when a hold was freed.
    pub credit: Option<String>,
    /// How much, in minor units.
    #[serde(serialize_with = "digits")]
    pub amount: i128,
    /// Of what.
    pub asset: Option<String>,
}

/// What an applied operation did, for `semel show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OperationView {
    /// What it was.
    pub op: String,
    /// Its id.
    pub id: String,
    /// The account that its reply tells.
    pub account: Option<String>,
    /// What it moved, reserved or freed: more than one for a group alone.
    pub legs: Vec<LegView>,
}

/// The operation of its rows, the first leg first.
pub(super) fn operation(rows: &[Vec<Value>]) -> Option<OperationView> {
    let first = rows.first()?;
    let leg = |row: &Vec<Value>| {
        Some(LegView {
            debit: text(&row[3]),
            credit: text(&row[4]),
            amount: amount(&row[5])?,
            asset: text(&row[6]),
        })
    };
    Some(OperationView {
        op: text(&first[0])?,
        id: text(&first[1])?,
        account: text(&first[2]),
        legs: rows.iter().filter_map(leg).collect(),
    })
}

pub(super) fn line(values: &[Value]) -> Result<Line, Fault> {
    let read = || {
        let amount = amount(&values[2])?;
        Some(Line {
            at: jiff::Timestamp::from_microsecond(time(&values[0])?)
                .ok()?
                .to_string(),
            transfer: key(&values[1])?,
            direction: if amount < 0 {
                Direction::Debit
            } else {
                Direction::Credit
            },
            amount: amount.unsigned_abs(),
            balance_after: self::amount(&values[3])?,
            version: int(&values[4])?,
            op: text(&values[5])?,
            id: text(&values[6])?,
        })
    };
    read().ok_or_else(|| super::odd("a line of a statement"))
}

pub(super) fn win(values: &[Value]) -> Result<WinView, Fault> {
    let read = || {
        Some(WinView {
            id: text(&values[0])?,
            amount: amount(&values[1])?,
            bet: text(&values[2]),
        })
    };
    read().ok_or_else(|| super::odd("a win"))
}

/// The value as one of the column's type, where it is one.
pub(super) fn as_kind(kind: Type, value: &Value) -> Value {
    let converted = match kind {
        Type::Key => key(value).map(Value::Key),
        Type::Amount => amount(value).map(Value::Amount),
        Type::Time => time(value).map(Value::Time),
        Type::Int | Type::Text | Type::Bytes => None,
    };
    converted.unwrap_or_else(|| value.clone())
}

pub(super) fn key(value: &Value) -> Option<Key> {
    match value {
        Value::Key(key) => Some(*key),
        Value::Bytes(bytes) => bytes[..].try_into().ok().map(Key::from_bytes),
        Value::Null | Value::Int(_) | Value::Amount(_) | Value::Text(_) | Value::Time(_) => None,
    }
}

pub(super) fn amount(value: &Value) -> Option<i128> {
    match value {
        Value::Amount(amount) => Some(*amount),
        Value::Text(digits) => digits.parse().ok(),
        Value::Int(int) => Some(i128::from(*int)),
        Value::Null | Value::Bytes(_) | Value::Key(_) | Value::Time(_) => None,
    }
}

pub(crate) fn int(value: &Value) -> Option<i64> {
    if let Value::Int(int) = value {
        Some(*int)
    } else {
        None
    }
}

pub(super) fn bytes(value: &Value) -> Bytes {
    if let Value::Bytes(bytes) = value {
        bytes.clone()
    } else {
        Bytes::new()
    }
}

pub(super) fn time(value: &Value) -> Option<i64> {
    if let Value::Time(us) | Value::Int(us) = value {
        Some(*us)
    } else {
        None
    }
}

pub(crate) fn text(value: &Value) -> Option<String> {
    if let Value::Text(text) = value {
        Some(text.to_string())
    } else {
        None
    }
}
