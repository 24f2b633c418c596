//! The rows of the Book and the Rounds: what is stored, and in which columns.
//!
//! Rows are plain values; who may change what is decided in `decide`. The tables are a contract,
//! written down in `migrations/*/schema.sql`: names and words here are never changed.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::Key;

use crate::op::Verb;

mod codec;
mod table;

pub use codec::NotOurs;
pub use table::{ACCOUNT, BET, ENTRY, HOLD, OPERATION, ROUND, TABLES};

/// A closed list of words stored as text.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// The word on the wire and in the table.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The value of a word.
            #[must_use]
            pub fn of_word(word: &str) -> Option<Self> {
                match word { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

words! {
    /// What an account is for.
    Kind {
        /// A player's money.
        Cash = "cash",
        /// A player's bonus.
        Bonus = "bonus",
        /// The house.
        House = "house",
        /// The world outside: a bank, a payment provider.
        External = "external",
    }
}

words! {
    /// Whether an account may go below zero.
    Limit {
        /// What is available never goes below zero.
        NoNegative = "no_negative",
        /// No limit.
        None = "none",
    }
}

impl Kind {
    /// The limit of an account that declares none.
    #[must_use]
    pub const fn limit(self) -> Limit {
        match self {
            Self::Cash | Self::Bonus => Limit::NoNegative,
            Self::House | Self::External => Limit::None,
        }
    }
}

words! {
    /// What may be done with an account.
    Status {
        /// Everything.
        Active = "active",
        /// Credits only, and what was promised before.
        Frozen = "frozen",
        /// Nothing any more.
        Closed = "closed",
    }
}

words! {
    /// Where a hold stands.
    HoldStatus {
        /// Something remains.
        Open = "open",
        /// Captured to its end.
        Captured = "captured",
        /// What remained was freed by a release.
        Released = "released",
        /// What remained was freed by the sweep.
        Expired = "expired",
    }
}

words! {
    /// Where a bet stands.
    BetStatus {
        /// Nothing was said yet.
        Open = "open",
        /// A win named it.
        Won = "won",
        /// Its stake was returned.
        RolledBack = "rolled_back",
        /// A tombstone: its rollback came first, it can never be placed.
        Void = "void",
    }
}

words! {
    /// Where a player's round stands.
    RoundStatus {
        /// Bets and wins come.
        Open = "open",
        /// Closed.
        Completed = "completed",
        /// Cancelled when it had bets.
        Cancelled = "cancelled",
        /// A tombstone: cancelled before any bet.
        Void = "void",
    }
}

/// A row of `wallet_account`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Key of its name.
    pub key: Key,
    /// Its name.
    pub id: Arc<str>,
    /// Its asset.
    pub asset: Arc<str>,
    /// What it is for.
    pub kind: Kind,
    /// Whether it may go below zero.
    pub limit: Limit,
    /// What may be done with it.
    pub status: Status,
    /// The sum of its entries.
    pub posted: i128,
    /// What open holds reserve.
    pub pending: i128,
    /// How many entries it has: the version of the last one.
    pub version: i64,
}

impl Account {
    /// What can be spent; saturates where only nonsense reaches.
    #[must_use]
    pub const fn available(&self) -> i128 {
        self.posted.saturating_sub(self.pending)
    }
}

/// An account as a reply tells it. The balance is relative while `relative` says so: it becomes absolute
/// when the batch's deltas return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// The account.
    pub account: Key,
    /// Its balance.
    pub balance: i128,
    /// What can be spent.
    pub available: i128,
    /// Its version.
    pub version: i64,
    /// Is it still relative to what the database will return?
    pub relative: bool,
}

/// A row of `wallet_operation`: what one applied operation did. Refused operations leave none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRow {
    /// The operation's key; for the legs of a group after the first, derived of it.
    pub key: Key,
    /// The id as it was sent.
    pub id: Box<str>,
    /// What it was.
    pub verb: Verb,
    /// Number of the leg, from 0.
    pub leg: i64,
    /// The account that paid.
    pub debit: Option<Key>,
    /// The account that got it.
    pub credit: Option<Key>,
    /// How much.
    pub amount: Option<i128>,
    /// Of what.
    pub asset: Option<Arc<str>>,
    /// What it refers to: the first leg, the original, the hold, the bet of a rollback, the player's round.
    pub reference: Option<Key>,
    /// The bet a win names.
    pub bet: Option<Key>,
    /// The sender's reason or game; of an account its kind and limit, of a hold its time of expiry in Unix µs.
    pub note: Option<Box<str>>,
    /// The account of the reply, as of the answer.
    pub reply: Option<Snapshot>,
    /// It was a counter-operation before its original.
    pub tombstoned: bool,
    /// How much of it was refunded.
    pub refunded: i128,
    /// The operation that reversed it.
    pub reversed_by: Option<Key>,
}

impl OperationRow {
    /// A row that moved nothing.
    #[must_use]
    pub fn new(key: Key, id: &str, verb: Verb) -> Self {
        Self {
            key,
            id: id.into(),
            verb,
            leg: 0,
            debit: None,
            credit: None,
            amount: None,
            asset: None,
            reference: None,
            bet: None,
            note: None,
            reply: None,
            tombstoned: false,
            refunded: 0,
            reversed_by: None,
        }
    }
}

/// A row of `wallet_entry`: one side of a movement. Insert-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The account.
    pub account: Key,
    /// Its version after it: 1, 2, 3 …
    pub version: i64,
    /// The operation, or the leg of a group.
    pub operation: Key,
    /// Credits are positive, debits negative.
    pub amount: i128,
    /// The account's balance after it.
    pub balance_after: i128,
    /// Are version and balance still relative to what the database will return?
    pub relative: bool,
}

/// A row of `wallet_hold`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Key of its name.
    pub key: Key,
    /// Its name.
    pub id: Box<str>,
    /// Who pays.
    pub debit: Key,
    /// Who gets it.
    pub credit: Key,
    /// Of what.
    pub asset: Arc<str>,
    /// How much was authorized.
    pub amount: i128,
    /// When the sweep may release it, Unix µs.
    pub expires_us: Option<i64>,
    /// How much was captured.
    pub captured: i128,
    /// How much is still reserved.
    pub remaining: i128,
    /// Where it stands.
    pub status: HoldStatus,
}

/// A row of `wallet_bet`. Its identity is the bet operation's key, so that a bet and its rollback meet on
/// one row whichever comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bet {
    /// The bet operation's key.
    pub key: Key,
    /// The player's round; a tombstone knows none.
    pub round: Option<Key>,
    /// The player.
    pub account: Option<Key>,
    /// The house account that took the stake.
    pub house: Option<Key>,
    /// The stake.
    pub amount: i128,
    /// The bets of the round that the round's row no longer lists, see [`Round::recent`].
    pub earlier: Bytes,
    /// The bet that lists the ones before those.
    pub chain: Option<Key>,
    /// Where it stands.
    pub status: BetStatus,
    /// The operation that said so.
    pub ended_by: Option<Key>,
}

/// A row of `wallet_round`: one player's round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Derived of the round's name and the player.
    pub key: Key,
    /// The round's name.
    pub id: Box<str>,
    /// Key of the round's name: the same for all its players.
    pub round: Key,
    /// The player.
    pub account: Key,
    /// The game, as information.
    pub game: Option<Box<str>>,
    /// Where it stands.
    pub status: RoundStatus,
    /// Stakes taken and not returned.
    pub staked: i128,
    /// Wins paid.
    pub paid: i128,
    /// The keys of its latest bets, 16 bytes each.
    pub recent: Bytes,
    /// The bet that lists the ones before those.
    pub chain: Option<Key>,
    /// The operation that ended it.
    pub ended_by: Option<Key>,
}

/// The most bets that a round's row lists; the one that would be too many takes the list over. So the row
/// stays near a kilobyte however long a round lasts, and a cancel needs one read per so many bets.
pub const RECENT_MAX: usize = 64;

/// The most lists of a round behind one another: as many as the engine follows references. A longer chain was not
/// written by the wallet, or is a circle.
pub const CHAIN_MAX: usize = 4_096;

impl Round {
    /// Adds a bet to the list; a full list moves into the bet.
    pub fn list(&mut self, bet: &mut Bet) {
        if self.recent.len() >= RECENT_MAX * 16 {
            bet.earlier = std::mem::take(&mut self.recent);
            bet.chain = self.chain.replace(bet.key);
            return;
        }
        let mut list = Vec::with_capacity(self.recent.len() + 16);
        list.extend_from_slice(&self.recent);
        list.extend_from_slice(bet.key.as_bytes());
        self.recent = list.into();
    }
}

/// The keys of a list of bets.
pub fn listed(list: &[u8]) -> impl Iterator<Item = Key> + '_ {
    list.chunks_exact(16)
        .filter_map(|bytes| bytes.try_into().ok().map(Key::from_bytes))
}

/// A row of any of the tables. The wide ones are boxed: rows are moved more often than made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// Of `wallet_account`.
    Account(Account),
    /// Of `wallet_operation`.
    Operation(Box<OperationRow>),
    /// Of `wallet_entry`.
    Entry(Entry),
    /// Of `wallet_hold`.
    Hold(Box<Hold>),
    /// Of `wallet_bet`.
    Bet(Box<Bet>),
    /// Of `wallet_round`.
    Round(Box<Round>),
}
