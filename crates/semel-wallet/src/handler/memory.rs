//! What the wallet remembers of accounts, so that a change that commutes neither locks nor reads them.

use std::collections::{HashMap, HashSet};
use std::sync::{PoisonError, RwLock};

use semel_core::Key;

use crate::row::{Account, Limit, Status};

/// The most accounts without limit whose kind is remembered: houses and banks, not a table of players.
const UNLIMITED_MAX: usize = 4_096;

/// The most accounts with a limit that are remembered: some 7 MiB. Others cost a credit one more read.
const LIMITED_MAX: usize = 1 << 15;

/// Up to here an account is far from the edge of 128 bits, so that deltas on it need no look at its
/// balance: two thousand million movements of up to [`AMOUNT_COMMUTING_MAX`] lie between, and the column's own CHECK
/// stands behind.
const BALANCE_COMMUTING_MAX: u128 = 1 << 120;

/// The largest amount that commutes: 79 228 162 514 264 337 593 543 950 336 minor units.
pub(super) const AMOUNT_COMMUTING_MAX: i128 = 1 << 96;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Accounts known to have no limit and to be far from overflow.
    unlimited: RwLock<HashSet<Key>>,
    /// Accounts with a limit that [take credits](takes_credits).
    limited: RwLock<HashMap<Key, Account>>,
}

/// Whether any credit to an account with a limit is right whatever its balance is.
pub(super) fn takes_credits(account: &Account) -> bool {
    account.limit == Limit::NoNegative && account.status != Status::Closed && is_far(account)
}

fn is_far(account: &Account) -> bool {
    account.posted.unsigned_abs() < BALANCE_COMMUTING_MAX
}

impl Memory {
    pub(super) fn is_unlimited(&self, account: &Key) -> bool {
        self.unlimited
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(account)
    }

    pub(super) fn takes_credits(&self, account: &Key) -> bool {
        self.limited
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(account)
    }

    /// An account that takes credits, without its counters.
    pub(super) fn recall(&self, account: &Key) -> Option<Account> {
        let limited = self.limited.read().unwrap_or_else(PoisonError::into_inner);
        limited.get(account).cloned()
    }

    /// Remembers an account as it was read, or forgets it.
    pub(super) fn learn(&self, account: &Account) {
        self.learn_unlimited(account);
        self.learn_limited(account);
    }

    fn learn_unlimited(&self, account: &Account) {
        let far = account.limit == Limit::None && is_far(account);
        if far == self.is_unlimited(&account.key) {
            return;
        }
        let mut unlimited = self
            .unlimited
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if !far {
            unlimited.remove(&account.key);
        } else if unlimited.len() < UNLIMITED_MAX {
            unlimited.insert(account.key);
        }
    }

    /// A full memory is emptied: the busy accounts come back first.
    fn learn_limited(&self, account: &Account) {
        let takes = takes_credits(account);
        {
            let limited = self.limited.read().unwrap_or_else(PoisonError::into_inner);
            let known = limited.get(&account.key);
            if known.is_some_and(|known| takes && are_one(known, account))
                || (known.is_none() && !takes)
            {
                return;
            }
        }
        let mut limited = self.limited.write().unwrap_or_else(PoisonError::into_inner);
        if !takes {
            limited.remove(&account.key);
            return;
        }
        if limited.len() >= LIMITED_MAX {
            limited.clear();
        }
        let without_counters = Account {
            posted: 0,
            pending: 0,
            version: 0,
            ..account.clone()
        };
        limited.insert(account.key, without_counters);
    }
}

/// Whether two accounts are the same but for their counters.
fn are_one(one: &Account, two: &Account) -> bool {
    let words = |account: &Account| (account.kind, account.limit, account.status);
    words(one) == words(two) && one.id == two.id && one.asset == two.asset
}
