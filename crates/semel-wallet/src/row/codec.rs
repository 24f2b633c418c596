//! Rows to values and back, in the order of the table's columns.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::Key;
use semel_core::rows::Value;

use super::{
    ACCOUNT, Account, BET, Bet, BetStatus, ENTRY, Entry, HOLD, Hold, HoldStatus, Kind, Limit,
    OPERATION, OperationRow, ROUND, Round, RoundStatus, Row, Snapshot, Status,
};
use crate::op::Verb;

/// Values that the wallet did not write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "column {column} of table {table} holds {found}, which the wallet never writes there: run `semel audit`, and find \
     out who else writes to the wallet's tables"
)]
pub struct NotOurs {
    table: usize,
    column: usize,
    found: String,
}

/// Reads the values of one row, from left to right.
struct Reader<'v> {
    table: usize,
    values: &'v [Value],
    at: usize,
}

impl<'v> Reader<'v> {
    fn next(&mut self) -> &'v Value {
        self.at += 1;
        self.values.get(self.at - 1).unwrap_or(&Value::Null)
    }

    #[cold]
    fn not_ours(&self, found: &Value) -> NotOurs {
        NotOurs {
            table: self.table,
            column: self.at,
            found: format!("{found:?}"),
        }
    }

    fn key(&mut self) -> Result<Key, NotOurs> {
        let value = self.next();
        if let Value::Key(key) = value {
            Ok(*key)
        } else {
            Err(self.not_ours(value))
        }
    }

    fn key_or_null(&mut self) -> Result<Option<Key>, NotOurs> {
        match self.next() {
            Value::Null => Ok(None),
            Value::Key(key) => Ok(Some(*key)),
            other => Err(self.not_ours(other)),
        }
    }

    fn text(&mut self) -> Result<&'v str, NotOurs> {
        let value = self.next();
        if let Value::Text(text) = value {
            Ok(text)
        } else {
            Err(self.not_ours(value))
        }
    }

    fn text_or_null(&mut self) -> Result<Option<&'v str>, NotOurs> {
        match self.next() {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            other => Err(self.not_ours(other)),
        }
    }

    fn word<T>(&mut self, of: impl Fn(&str) -> Option<T>) -> Result<T, NotOurs> {
        let value = self.next();
        let word = if let Value::Text(text) = value {
            of(text)
        } else {
            None
        };
        word.ok_or_else(|| self.not_ours(value))
    }

    fn amount(&mut self) -> Result<i128, NotOurs> {
        let value = self.next();
        if let Value::Amount(amount) = value {
            Ok(*amount)
        } else {
            Err(self.not_ours(value))
        }
    }

    fn amount_or_null(&mut self) -> Result<Option<i128>, NotOurs> {
        match self.next() {
            Value::Null => Ok(None),
            Value::Amount(amount) => Ok(Some(*amount)),
            other => Err(self.not_ours(other)),
        }
    }

    fn int(&mut self) -> Result<i64, NotOurs> {
        let value = self.next();
        if let Value::Int(int) = value {
            Ok(*int)
        } else {
            Err(self.not_ours(value))
        }
    }

    fn int_or_null(&mut self) -> Result<Option<i64>, NotOurs> {
        match self.next() {
            Value::Null => Ok(None),
            Value::Int(int) => Ok(Some(*int)),
            other => Err(self.not_ours(other)),
        }
    }

    fn time_or_null(&mut self) -> Result<Option<i64>, NotOurs> {
        match self.next() {
            Value::Null => Ok(None),
            Value::Time(us) => Ok(Some(*us)),
            other => Err(self.not_ours(other)),
        }
    }

    fn bytes_or_null(&mut self) -> Result<Bytes, NotOurs> {
        match self.next() {
            Value::Null => Ok(Bytes::new()),
            Value::Bytes(bytes) => Ok(bytes.clone()),
            other => Err(self.not_ours(other)),
        }
    }
}

fn key(key: Option<Key>) -> Value {
    key.map_or(Value::Null, Value::Key)
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

fn amount(amount: Option<i128>) -> Value {
    amount.map_or(Value::Null, Value::Amount)
}

fn bytes(bytes: &Bytes) -> Value {
    if bytes.is_empty() {
        Value::Null
    } else {
        Value::Bytes(bytes.clone())
    }
}

impl Row {
    /// A row from the values of its columns.
    ///
    /// # Errors
    /// When the wallet did not write them.
    pub fn decode(table: usize, values: &[Value]) -> Result<Self, NotOurs> {
        let mut reader = Reader {
            table,
            values,
            at: 0,
        };
        Ok(match table {
            ACCOUNT => Self::Account(account(&mut reader)?),
            OPERATION => Self::Operation(Box::new(operation(&mut reader)?)),
            ENTRY => Self::Entry(entry(&mut reader)?),
            HOLD => Self::Hold(Box::new(hold(&mut reader)?)),
            BET => Self::Bet(Box::new(bet(&mut reader)?)),
            ROUND => Self::Round(Box::new(round(&mut reader)?)),
            _ => {
                return Err(NotOurs {
                    table,
                    column: 0,
                    found: "a table of somebody else".to_owned(),
                });
            }
        })
    }

    /// The values of its columns, appended to `values`.
    pub fn encode(&self, values: &mut Vec<Value>) {
        match self {
            Self::Account(row) => row.encode(values),
            Self::Operation(row) => row.encode(values),
            Self::Entry(row) => row.encode(values),
            Self::Hold(row) => row.encode(values),
            Self::Bet(row) => row.encode(values),
            Self::Round(row) => row.encode(values),
        }
    }
}

fn account(r: &mut Reader<'_>) -> Result<Account, NotOurs> {
    Ok(Account {
        key: r.key()?,
        id: r.text()?.into(),
        asset: r.text()?.into(),
        kind: r.word(Kind::of_word)?,
        limit: r.word(Limit::of_word)?,
        status: r.word(Status::of_word)?,
        posted: r.amount()?,
        pending: r.amount()?,
        version: r.int()?,
    })
}

impl Account {
    fn encode(&self, values: &mut Vec<Value>) {
        values.extend([
            Value::Key(self.key),
            text(&self.id),
            text(&self.asset),
            text(self.kind.as_str()),
            text(self.limit.as_str()),
            text(self.status.as_str()),
            Value::Amount(self.posted),
            Value::Amount(self.pending),
            Value::Int(self.version),
        ]);
    }
}

fn operation(r: &mut Reader<'_>) -> Result<OperationRow, NotOurs> {
    Ok(OperationRow {
        key: r.key()?,
        id: r.text()?.into(),
        verb: r.word(Verb::of_stored)?,
        leg: r.int()?,
        debit: r.key_or_null()?,
        credit: r.key_or_null()?,
        amount: r.amount_or_null()?,
        asset: r.text_or_null()?.map(Arc::from),
        reference: r.key_or_null()?,
        bet: r.key_or_null()?,
        note: r.text_or_null()?.map(Box::from),
        reply: snapshot(r)?,
        tombstoned: r.int_or_null()?.is_some(),
        refunded: r.amount_or_null()?.unwrap_or(0),
        reversed_by: r.key_or_null()?,
    })
}

fn snapshot(r: &mut Reader<'_>) -> Result<Option<Snapshot>, NotOurs> {
    let account = r.key_or_null()?;
    let balance = r.amount_or_null()?;
    let available = r.amount_or_null()?;
    let version = r.int_or_null()?;
    Ok(account
        .zip(balance)
        .zip(version)
        .map(|((account, balance), version)| Snapshot {
            account,
            balance,
            available: available.unwrap_or(balance),
            version,
            relative: false,
        }))
}

impl OperationRow {
    /// Zeros, and what equals its neighbour, are stored as NULL: most rows are plain transfers.
    fn encode(&self, values: &mut Vec<Value>) {
        let reply = self.reply.as_ref();
        let available = reply
            .filter(|reply| reply.available != reply.balance)
            .map(|reply| reply.available);
        values.extend([
            Value::Key(self.key),
            text(&self.id),
            text(self.verb.as_str()),
            Value::Int(self.leg),
            key(self.debit),
            key(self.credit),
            amount(self.amount),
            self.asset.as_deref().map_or(Value::Null, text),
            key(self.reference),
            key(self.bet),
            self.note.as_deref().map_or(Value::Null, text),
            key(reply.map(|reply| reply.account)),
            amount(reply.map(|reply| reply.balance)),
            amount(available),
            reply.map_or(Value::Null, |reply| Value::Int(reply.version)),
            if self.tombstoned {
                Value::Int(1)
            } else {
                Value::Null
            },
            amount(Some(self.refunded).filter(|refunded| *refunded != 0)),
            key(self.reversed_by),
        ]);
    }
}

fn entry(r: &mut Reader<'_>) -> Result<Entry, NotOurs> {
    Ok(Entry {
        account: r.key()?,
        version: r.int()?,
        operation: r.key()?,
        amount: r.amount()?,
        balance_after: r.amount()?,
        relative: false,
    })
}

impl Entry {
    fn encode(&self, values: &mut Vec<Value>) {
        values.extend([
            Value::Key(self.account),
            Value::Int(self.version),
            Value::Key(self.operation),
            Value::Amount(self.amount),
            Value::Amount(self.balance_after),
        ]);
    }
}

fn hold(r: &mut Reader<'_>) -> Result<Hold, NotOurs> {
    Ok(Hold {
        key: r.key()?,
        id: r.text()?.into(),
        debit: r.key()?,
        credit: r.key()?,
        asset: r.text()?.into(),
        amount: r.amount()?,
        expires_us: r.time_or_null()?,
        captured: r.amount()?,
        remaining: r.amount()?,
        status: r.word(HoldStatus::of_word)?,
    })
}

impl Hold {
    fn encode(&self, values: &mut Vec<Value>) {
        values.extend([
            Value::Key(self.key),
            text(&self.id),
            Value::Key(self.debit),
            Value::Key(self.credit),
            text(&self.asset),
            Value::Amount(self.amount),
            self.expires_us.map_or(Value::Null, Value::Time),
            Value::Amount(self.captured),
            Value::Amount(self.remaining),
            text(self.status.as_str()),
        ]);
    }
}

fn bet(r: &mut Reader<'_>) -> Result<Bet, NotOurs> {
    Ok(Bet {
        key: r.key()?,
        round: r.key_or_null()?,
        account: r.key_or_null()?,
        house: r.key_or_null()?,
        amount: r.amount_or_null()?.unwrap_or(0),
        earlier: r.bytes_or_null()?,
        chain: r.key_or_null()?,
        status: r.word(BetStatus::of_word)?,
        ended_by: r.key_or_null()?,
    })
}

impl Bet {
    fn encode(&self, values: &mut Vec<Value>) {
        values.extend([
            Value::Key(self.key),
            key(self.round),
            key(self.account),
            key(self.house),
            amount(self.round.map(|_| self.amount)),
            bytes(&self.earlier),
            key(self.chain),
            text(self.status.as_str()),
            key(self.ended_by),
        ]);
    }
}

fn round(r: &mut Reader<'_>) -> Result<Round, NotOurs> {
    Ok(Round {
        key: r.key()?,
        id: r.text()?.into(),
        round: r.key()?,
        account: r.key()?,
        game: r.text_or_null()?.map(Box::from),
        status: r.word(RoundStatus::of_word)?,
        staked: r.amount()?,
        paid: r.amount()?,
        recent: r.bytes_or_null()?,
        chain: r.key_or_null()?,
        ended_by: r.key_or_null()?,
    })
}

impl Round {
    fn encode(&self, values: &mut Vec<Value>) {
        values.extend([
            Value::Key(self.key),
            text(&self.id),
            Value::Key(self.round),
            Value::Key(self.account),
            self.game.as_deref().map_or(Value::Null, text),
            text(self.status.as_str()),
            Value::Amount(self.staked),
            Value::Amount(self.paid),
            bytes(&self.recent),
            key(self.chain),
            key(self.ended_by),
        ]);
    }
}
