//! Replies: what the sender of an operation is told, as one JSON object. Amounts are strings of digits.

use std::fmt::Write;

use bytes::Bytes;
use semel_core::Outcome;

use crate::row::{OperationRow, Snapshot};

/// The account that an `account_not_found` speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing<'a> {
    /// The operation's `account`.
    Account,
    /// The debit side of the movement.
    Debit,
    /// The credit side of the movement.
    Credit,
    /// The house's account of the asset, by its name in the config; none is declared there.
    House(Option<&'a str>),
}

/// The parts of a reply.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// How it ended.
    pub outcome: Outcome,
    /// The code of refused and ignored.
    pub code: Option<&'a str>,
    /// The account's name and state.
    pub account: Option<(&'a str, Snapshot)>,
    /// The account that was not opened.
    pub missing: Option<Missing<'a>>,
    /// The leg of a group that was refused.
    pub leg: Option<usize>,
    /// It was a counter-operation before its original.
    pub tombstoned: bool,
}

impl Reply<'_> {
    /// The JSON object.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        let mut json = String::with_capacity(160);
        let written = self.write(&mut json);
        written.expect("writing into a string cannot fail");
        json.into()
    }

    fn write(&self, json: &mut String) -> std::fmt::Result {
        write!(json, r#"{{"outcome":"{}""#, self.outcome)?;
        if let Some(code) = self.code {
            write!(json, r#","code":"{code}""#)?;
        }
        if let Some((id, account)) = self.account {
            let id = serde_json::to_string(id).map_err(|_| std::fmt::Error)?;
            let Snapshot {
                balance,
                available,
                version,
                ..
            } = account;
            write!(
                json,
                r#","account":{id},"balance":"{balance}","available":"{available}","version":{version}"#
            )?;
        }
        match self.missing {
            None => {}
            Some(Missing::Account) => json.push_str(r#","missing":"account""#),
            Some(Missing::Debit) => json.push_str(r#","missing":"debit""#),
            Some(Missing::Credit) => json.push_str(r#","missing":"credit""#),
            Some(Missing::House(name)) => {
                let name = serde_json::to_string(&name).map_err(|_| std::fmt::Error)?;
                write!(json, r#","missing":"house","house":{name}"#)?;
            }
        }
        if let Some(leg) = self.leg {
            write!(json, r#","leg":{leg}"#)?;
        }
        if self.tombstoned {
            json.push_str(r#","tombstoned":true"#);
        }
        json.push('}');
        Ok(())
    }
}

/// The original reply of an applied operation, rebuilt from its row; `account` is the name of the
/// account that the row's reply is about.
#[must_use]
pub(crate) fn applied(row: &OperationRow, account: Option<&str>) -> Bytes {
    Reply {
        outcome: Outcome::Applied,
        code: None,
        account: account.zip(row.reply),
        missing: None,
        leg: None,
        tombstoned: row.tombstoned,
    }
    .to_json()
}
