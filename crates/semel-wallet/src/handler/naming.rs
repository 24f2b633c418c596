//! Which rows an operation needs. What a row names is only asked of rows that an earlier wave has read, so
//! an operation is asked again until it names nothing new.

use bytes::Bytes;
use semel::staged::{Names, Want};
use semel_core::Key;
use semel_core::rows::Value;

use super::Wallet;
use super::memory::{AMOUNT_COMMUTING_MAX, takes_credits};
use crate::op::{Leg, Move, Operation, round_key};
use crate::row::{ACCOUNT, BET, Bet, CHAIN_MAX, HOLD, OPERATION, ROUND, Row, listed};

pub(super) struct Naming<'a, 'n> {
    pub(super) wallet: &'a Wallet,
    pub(super) names: &'n mut dyn Names<Row>,
}

impl Naming<'_, '_> {
    pub(super) fn operation(&mut self, own: Key, operation: &Operation) {
        match operation {
            Operation::OpenAccount { account, .. } => self.lock(ACCOUNT, account.key),
            Operation::Freeze(account)
            | Operation::Unfreeze(account)
            | Operation::CloseAccount(account) => {
                self.lock(ACCOUNT, *account);
            }
            Operation::Transfer { leg, .. } => self.transfer(leg),
            Operation::TransferGroup(legs) => legs.iter().for_each(|leg| self.transfer(leg)),
            Operation::Authorize { hold, leg, .. } => {
                self.leg(leg);
                self.lock(HOLD, hold.key);
            }
            Operation::Reverse { transfer: original }
            | Operation::Refund {
                capture: original, ..
            } => {
                self.way_back(*original);
            }
            Operation::Capture { hold, .. }
            | Operation::Release { hold }
            | Operation::Expire { hold } => {
                self.hold(*hold);
            }
            Operation::Bet { round, leg, .. } => {
                self.leg(leg);
                self.lock(BET, own);
                self.lock(ROUND, round_key(round.key, leg.subject));
            }
            Operation::Win { round, leg, bet } => {
                self.leg(leg);
                self.lock(ROUND, round_key(*round, leg.subject));
                if let Some(bet) = bet {
                    self.lock(BET, *bet);
                }
            }
            Operation::Rollback { bet } => self.rollback(*bet),
            Operation::CloseRound { round, account } => {
                self.lock(ROUND, round_key(*round, *account));
                self.lock(ACCOUNT, *account);
            }
            Operation::CancelRound { round, account } => {
                self.cancel(round_key(round.key, *account), *account)
            }
        }
    }

    fn lock(&mut self, table: usize, key: Key) {
        self.names.want(table, Value::Key(key), Want::Lock);
    }

    /// Names a row whose content names further rows, which never change.
    fn follow(&mut self, table: usize, key: Key) {
        self.names.want(table, Value::Key(key), Want::Refer);
        self.lock(table, key);
    }

    /// An account whose balance changes: without a lock where that is known to be safe.
    ///
    /// A house that nobody has looked at yet is looked at first. Locked among the players, before the unit's inserts, it
    /// would be taken in another order than by units that know it and take it last, by their delta.
    fn account(&mut self, account: Key, amount: i128) {
        let id = Value::Key(account);
        let small = amount <= AMOUNT_COMMUTING_MAX;
        let want = if small && self.wallet.memory.is_unlimited(&account) {
            Want::AddLast
        } else if small && self.wallet.is_house(&account) && self.names.row(ACCOUNT, &id).is_none()
        {
            // One that is not there has nothing to lock.
            Want::Refer
        } else {
            Want::Lock
        };
        self.names.want(ACCOUNT, id, want);
    }

    /// The account that gets the money of a house or bank. The reply tells the other side, so nothing is
    /// decided on a balance that stays in its range whatever it is. (Beside a payer who is locked it would be locked too.)
    fn credited(&mut self, account: Key, amount: i128) {
        let memory = &self.wallet.memory;
        if amount > AMOUNT_COMMUTING_MAX || memory.is_unlimited(&account) {
            return self.account(account, amount);
        }
        let id = Value::Key(account);
        if memory.takes_credits(&account) {
            return self.names.want(ACCOUNT, id, Want::Add);
        }
        match self.names.row(ACCOUNT, &id) {
            Some(Row::Account(row)) if takes_credits(row) => {
                self.names.want(ACCOUNT, id, Want::Add)
            }
            Some(_) => self.account(account, amount),
            None => self.names.want(ACCOUNT, id, Want::Refer),
        }
    }

    fn transfer(&mut self, leg: &Leg) {
        match &leg.money {
            Ok(money) if self.wallet.memory.is_unlimited(&money.debit) => {
                self.account(money.debit, money.amount);
                self.credited(money.credit, money.amount);
            }
            Ok(_) | Err(_) => self.leg(leg),
        }
    }

    fn leg(&mut self, leg: &Leg) {
        match &leg.money {
            Ok(Move {
                debit,
                credit,
                amount,
                ..
            }) => {
                self.account(*debit, *amount);
                self.account(*credit, *amount);
            }
            // Refused as it is; its reply tells the account.
            Err(_) => self.account(leg.subject, 0),
        }
    }

    fn way_back(&mut self, original: Key) {
        self.follow(OPERATION, original);
        if let Some(Row::Operation(row)) = self.names.row(OPERATION, &Value::Key(original)) {
            let (debit, credit, amount) = (row.debit, row.credit, row.amount.unwrap_or(0));
            debit
                .into_iter()
                .chain(credit)
                .for_each(|account| self.account(account, amount));
        }
    }

    fn hold(&mut self, hold: Key) {
        self.follow(HOLD, hold);
        if let Some(Row::Hold(row)) = self.names.row(HOLD, &Value::Key(hold)) {
            let (debit, credit, amount) = (row.debit, row.credit, row.amount);
            self.account(debit, amount);
            self.account(credit, amount);
        }
    }

    fn rollback(&mut self, bet: Key) {
        self.follow(BET, bet);
        if let Some(Row::Bet(row)) = self.names.row(BET, &Value::Key(bet)) {
            let Bet {
                round,
                account,
                house,
                amount,
                ..
            } = **row;
            account
                .into_iter()
                .chain(house)
                .for_each(|account| self.account(account, amount));
            if let Some(round) = round {
                self.lock(ROUND, round);
            }
        }
    }

    fn cancel(&mut self, round: Key, player: Key) {
        self.follow(ROUND, round);
        self.lock(ACCOUNT, player);
        if let Some(Row::Round(row)) = self.names.row(ROUND, &Value::Key(round)) {
            let (recent, chain, staked) = (row.recent.clone(), row.chain, row.staked);
            listed(&recent).for_each(|bet| self.cancelled(bet, staked));
            let links = self.links(chain);
            for (link, earlier) in &links {
                self.cancelled(*link, staked);
                listed(earlier).for_each(|bet| self.cancelled(bet, staked));
            }
        }
    }

    /// The bets that list others, once they are all read: every wave walks the chain anew, and with the listed
    /// bets a long one would cost the square of its length. Nothing for a chain that does not end.
    fn links(&mut self, mut chain: Option<Key>) -> Vec<(Key, Bytes)> {
        let mut links = Vec::new();
        while let Some(link) = chain {
            self.follow(BET, link);
            match self.names.row(BET, &Value::Key(link)) {
                Some(Row::Bet(row)) if links.len() < CHAIN_MAX => {
                    links.push((link, row.earlier.clone()));
                    chain = row.chain;
                }
                _ => return Vec::new(),
            }
        }
        links
    }

    /// A bet of a cancelled round.
    fn cancelled(&mut self, bet: Key, staked: i128) {
        self.follow(BET, bet);
        let house = match self.names.row(BET, &Value::Key(bet)) {
            Some(Row::Bet(row)) => row.house,
            _ => None,
        };
        if let Some(house) = house {
            self.account(house, staked);
        }
    }
}
