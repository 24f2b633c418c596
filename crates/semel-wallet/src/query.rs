//! What operators ask: balances, statements, rounds, replies, expired holds. Reads only, on a connection of
//! their own, the same code for every dialect.

use std::collections::HashSet;

use bytes::Bytes;
use semel_core::rows::{Query, Value};
use semel_core::{Fault, Key, Part};

use crate::expire::Expired;
use crate::op::{LEGS_MAX, leg_key};
use crate::reply;
use crate::row::{
    ACCOUNT, Account, BET, Bet, OPERATION, OperationRow, ROUND, Round, RoundStatus, Row, TABLES,
    listed,
};
use crate::sql::{Dialect, Statements};

mod audit;
mod view;

pub use audit::Check;
pub use view::{Balance, Direction, LegView, Line, OperationView, RoundView, StakeView, WinView};
pub(crate) use view::{int, text};

/// Reads the wallet's tables.
///
/// ```no_run
/// # async fn f(ledger: &impl semel_core::rows::Query) -> Result<(), semel_core::Fault> {
/// use semel_wallet::{Dialect, Reader};
///
/// let balance = Reader::new(ledger, Dialect::Sqlite).balance("p1").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reader<'q, Q> {
    query: &'q Q,
    sql: &'static Statements,
}

impl<'q, Q: Query> Reader<'q, Q> {
    /// Reads through `query`.
    pub const fn new(query: &'q Q, dialect: Dialect) -> Self {
        Self {
            query,
            sql: dialect.statements(),
        }
    }

    /// An account by its name; `None` when it was not opened.
    ///
    /// # Errors
    /// `Down`.
    pub async fn balance(&self, account: &str) -> Result<Option<Balance>, Fault> {
        let Some(key) = key_of(account) else {
            return Ok(None);
        };
        Ok(self.account(key).await?.as_ref().map(Balance::of))
    }

    async fn account(&self, key: Key) -> Result<Option<Account>, Fault> {
        let rows = self
            .all(self.sql.account, &[Value::Key(key)], |values| {
                typed(ACCOUNT, values)
            })
            .await?;
        Ok(rows.into_iter().next().and_then(|row| {
            if let Row::Account(account) = row {
                Some(account)
            } else {
                None
            }
        }))
    }

    /// An account's entries in order, of times from `from_us` to before `to_us` (Unix µs); `false` when it
    /// was not opened.
    ///
    /// # Errors
    /// `Down`.
    pub async fn statement(
        &self,
        account: &str,
        from_us: Option<i64>,
        to_us: Option<i64>,
        each: &mut (dyn FnMut(Line) -> bool + Send),
    ) -> Result<bool, Fault> {
        let Some(key) = key_of(account) else {
            return Ok(false);
        };
        if self.account(key).await?.is_none() {
            return Ok(false);
        }
        let time = |us: Option<i64>| us.map_or(Value::Null, Value::Time);
        let args = [Value::Key(key), time(from_us), time(to_us)];
        self.each(self.sql.statement, &args, |values| {
            Ok(each(view::line(values)?))
        })
        .await?;
        Ok(true)
    }

    /// A round's players, each with bets and wins; empty when nobody knows the round.
    ///
    /// # Errors
    /// `Down`.
    pub async fn rounds(
        &self,
        round: &str,
        account: Option<&str>,
    ) -> Result<Vec<RoundView>, Fault> {
        let Some(key) = key_of(round) else {
            return Ok(Vec::new());
        };
        let width = TABLES[ROUND].width();
        let players = self
            .all(self.sql.rounds, &[Value::Key(key)], |values| {
                let Row::Round(row) = typed(ROUND, &values[..width])? else {
                    return Err(odd("a round"));
                };
                Ok((*row, view::text(&values[width])))
            })
            .await?;
        let mut views = Vec::new();
        for (row, player) in players {
            if account.is_none_or(|account| key_of(account) == Some(row.account)) {
                views.push(self.round(row, player).await?);
            }
        }
        Ok(views)
    }

    async fn round(&self, row: Round, player: Option<String>) -> Result<RoundView, Fault> {
        let mut chunks = vec![self.bets(&row.recent).await?];
        let mut chain = row.chain;
        while let Some(lister) = chain {
            let mut chunk = self.bets(lister.as_bytes()).await?;
            let Some((bet, _)) = chunk.first().cloned() else {
                break;
            };
            let mut earlier = self.bets(&bet.earlier).await?;
            earlier.append(&mut chunk);
            chunks.push(earlier);
            chain = bet.chain;
        }
        let bets = chunks
            .into_iter()
            .rev()
            .flatten()
            .map(|(bet, id)| StakeView::of(id, &bet, row.status))
            .collect();
        let wins = self
            .all(self.sql.wins, &[Value::Key(row.key)], view::win)
            .await?;
        let account = player.unwrap_or_else(|| row.account.to_string());
        let status = match row.status {
            RoundStatus::Void => RoundStatus::Cancelled,
            status @ (RoundStatus::Open | RoundStatus::Completed | RoundStatus::Cancelled) => {
                status
            }
        };
        Ok(RoundView {
            round: row.id.into(),
            account,
            game: row.game.map(String::from),
            status: status.as_str(),
            bets,
            wins,
            staked: row.staked,
            paid: row.paid,
        })
    }

    /// The bets of a list of keys, with their ids.
    async fn bets(&self, list: &[u8]) -> Result<Vec<(Bet, String)>, Fault> {
        if list.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<String> = listed(list).map(|key| key.to_string()).collect();
        let width = TABLES[BET].width();
        self.all(
            self.sql.bets,
            &[Value::Text(keys.join(",").into())],
            |values| {
                let Row::Bet(bet) = typed(BET, &values[..width])? else {
                    return Err(odd("a bet"));
                };
                Ok((*bet, view::text(&values[width]).unwrap_or_default()))
            },
        )
        .await
    }

    /// An applied operation, and the name of its reply's account.
    ///
    /// # Errors
    /// `Down`.
    pub async fn operation(
        &self,
        key: Key,
    ) -> Result<Option<(OperationRow, Option<String>)>, Fault> {
        let width = TABLES[OPERATION].width();
        let found = self
            .all(self.sql.operation, &[Value::Key(key)], |values| {
                let Row::Operation(row) = typed(OPERATION, &values[..width])? else {
                    return Err(odd("an operation"));
                };
                Ok((*row, view::text(&values[width])))
            })
            .await?;
        Ok(found.into_iter().next())
    }

    /// What an applied operation did, with the names of its accounts.
    ///
    /// # Errors
    /// `Down`.
    pub async fn told(&self, key: Key) -> Result<Option<OperationView>, Fault> {
        let legs = (1..LEGS_MAX).map(|number| leg_key(key, number));
        let keys: Vec<String> = std::iter::once(key)
            .chain(legs)
            .map(|key| key.to_string())
            .collect();
        let list = Value::Text(keys.join(",").into());
        let rows = self
            .all(self.sql.legs, &[list], |values| Ok(values.to_vec()))
            .await?;
        Ok(view::operation(&rows))
    }

    /// The original reply of an applied operation. Refused and ignored ones have theirs in the ledger.
    ///
    /// # Errors
    /// `Down`.
    pub async fn reply(&self, key: Key) -> Result<Option<Bytes>, Fault> {
        let found = self.operation(key).await?;
        Ok(found.map(|(row, account)| reply::applied(&row, account.as_deref())))
    }

    /// The reply of an applied operation with its account as it is now (`duplicate_reply = "current"`).
    ///
    /// # Errors
    /// `Down`.
    pub async fn current_reply(&self, key: Key) -> Result<Option<Bytes>, Fault> {
        let Some((mut row, id)) = self.operation(key).await? else {
            return Ok(None);
        };
        if let Some(account) = row.reply.map(|reply| reply.account) {
            row.reply = self
                .account(account)
                .await?
                .as_ref()
                .map(crate::decide::snapshot_of);
        }
        Ok(Some(reply::applied(&row, id.as_deref())))
    }

    /// At most `limit` holds past their time by the database's clock, the longest past first. The sweep makes
    /// operations of them with [`crate::Wallet::expire`].
    ///
    /// # Errors
    /// `Down`.
    pub async fn expired(&self, limit: usize) -> Result<Vec<Expired>, Fault> {
        let limit = Value::Int(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut expired = self
            .all(self.sql.expired, &[limit], |values| {
                let hold = view::key(&values[0]).ok_or_else(|| odd("a hold's key"))?;
                Ok(Expired::new(
                    hold,
                    &view::text(&values[1]).unwrap_or_default(),
                ))
            })
            .await?;
        // An expiry ends its hold, so a key that is there while the hold is open is somebody else's. A sweep
        // elsewhere may free the hold between the two reads: then the second operation finds it ended.
        let taken = self.taken(expired.iter().map(|hold| hold.key)).await?;
        for hold in &mut expired {
            if taken.contains(&hold.key) {
                *hold = hold.clone().with_inner_key();
            }
        }
        Ok(expired)
    }

    /// Those of the keys that a wallet's ledger holds.
    async fn taken(&self, keys: impl Iterator<Item = Key>) -> Result<HashSet<Key>, Fault> {
        let keys: Vec<String> = keys.map(|key| key.to_string()).collect();
        if keys.is_empty() {
            return Ok(HashSet::new());
        }
        let list = Value::Text(keys.join(",").into());
        let taken = self
            .all(self.sql.taken, &[list], |values| {
                view::key(&values[0]).ok_or_else(|| odd("a key"))
            })
            .await?;
        Ok(taken.into_iter().collect())
    }

    /// Checks the invariants of the Book and the Rounds over all rows. Memory stays flat.
    ///
    /// # Errors
    /// `Down`.
    pub async fn audit(&self) -> Result<Vec<Check>, Fault> {
        audit::run(self).await
    }

    async fn all<T: Send>(
        &self,
        sql: &'static str,
        args: &[Value],
        mut read: impl FnMut(&[Value]) -> Result<T, Fault> + Send,
    ) -> Result<Vec<T>, Fault> {
        let mut rows = Vec::new();
        self.each(sql, args, |values| {
            rows.push(read(values)?);
            Ok(true)
        })
        .await?;
        Ok(rows)
    }

    /// Gives each row to `read`, until it says `false` or fails.
    async fn each(
        &self,
        sql: &'static str,
        args: &[Value],
        mut read: impl FnMut(&[Value]) -> Result<bool, Fault> + Send,
    ) -> Result<(), Fault> {
        let mut fault = None;
        self.query
            .query(sql, args, &mut |values| {
                read(values).unwrap_or_else(|found| {
                    fault = Some(found);
                    false
                })
            })
            .await?;
        fault.map_or(Ok(()), Err)
    }
}

/// The key of a name as people type it.
fn key_of(name: &str) -> Option<Key> {
    Key::derive(&[Part::Text(name)]).ok()
}

#[cold]
fn odd(what: &str) -> Fault {
    Fault::poison(format!("the database did not give back {what}"))
}

/// A whole row of a table; a query gives columns back by their database type, and SQLite has few of them.
fn typed(table: usize, values: &[Value]) -> Result<Row, Fault> {
    let columns = TABLES[table].columns.iter();
    let typed: Vec<Value> = columns
        .zip(values)
        .map(|(column, value)| view::as_kind(column.kind, value))
        .collect();
    Row::decode(table, &typed).map_err(Fault::poison)
}

/// For tests of the conversion.
#[cfg(test)]
mod tests {
    use semel_core::rows::Type;

    use super::*;

    #[test]
    fn values_of_sqlite_become_the_types_of_their_columns() {
        let key = Key::from_bytes([7; 16]);
        let blob = Value::Bytes(Bytes::copy_from_slice(key.as_bytes()));
        assert_eq!(view::as_kind(Type::Key, &blob), Value::Key(key));
        let most = i128::MAX.to_string();
        assert_eq!(
            view::as_kind(Type::Amount, &Value::Text(most.into())),
            Value::Amount(i128::MAX)
        );
        assert_eq!(view::as_kind(Type::Time, &Value::Int(5)), Value::Time(5));
        assert_eq!(view::as_kind(Type::Amount, &Value::Null), Value::Null);
    }
}
