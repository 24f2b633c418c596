//! Decides one operation on the rows it named: the rules of the Book and the Rounds. Pure: no clock, no
//! I/O; the same rows and the same operation give the same answer.
//!
//! Rows come in an order: the one an operation refers to, then the accounts. A code that needs a row comes
//! once that row is read. Nothing is written before everything is checked, except by the legs of a group,
//! whose refusal takes them all back.

use std::sync::Arc;

use bytes::Bytes;
use semel_core::{Answer, Fault, Key, Outcome};

use crate::books::{Books, Change};
use crate::code::{Awaited, Death, Reason, Refusal};
use crate::config::Config;
use crate::op::{Dead, Move, Operation, Verb};
use crate::reply::{Missing, Reply};
use crate::row::{Account, Entry, Limit, OperationRow, Snapshot, Status};

mod account;
mod hold;
mod round;
mod transfer;

/// Why an operation is not applied.
pub(crate) enum Stop {
    /// An answer.
    Answer(Answer),
    /// Something is where it can never be.
    Broken(String),
}

/// What an applied operation makes true: messages that wait for these keys are tried again.
type Wakes = Vec<Key>;

/// One operation in front of the books.
pub(crate) struct Case<'a, B: ?Sized> {
    pub(crate) config: &'a Config,
    pub(crate) key: Key,
    pub(crate) id: &'a str,
    /// The deadline has passed: no more waiting.
    pub(crate) last: bool,
    pub(crate) books: &'a mut B,
}

/// Do frozen accounts pay?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frozen {
    /// What was promised before is kept.
    Pays,
    /// A new debit is stopped.
    Stops,
}

/// Decides an operation, or says why its message is dead.
pub(crate) fn decide<B: Books + ?Sized>(
    case: &mut Case<'_, B>,
    op: &Result<Operation, Dead>,
) -> Result<Answer, Fault> {
    let stop = match op {
        Ok(op) => match case.run(op) {
            Ok(wakes) => return Ok(Answer::Applied { reply: None, wakes }),
            Err(stop) => stop,
        },
        Err(dead) => Stop::Answer(Answer::Dead {
            code: dead.code.code(),
            detail: dead.detail.clone(),
            field: dead.field.clone(),
        }),
    };
    match stop {
        Stop::Answer(answer) => Ok(answer),
        Stop::Broken(why) => Err(Fault::poison(why)),
    }
}

impl<B: Books + ?Sized> Case<'_, B> {
    fn run(&mut self, op: &Operation) -> Result<Wakes, Stop> {
        match op {
            Operation::OpenAccount {
                account,
                asset,
                kind,
                limit,
            } => self.open_account(account, asset, *kind, *limit),
            Operation::Freeze(account) => self.freeze(*account),
            Operation::Unfreeze(account) => self.unfreeze(*account),
            Operation::CloseAccount(account) => self.close_account(*account),
            Operation::Transfer { leg, reason } => self.transfer(leg, reason.as_deref()),
            Operation::TransferGroup(legs) => self.transfer_group(legs),
            Operation::Reverse { transfer } => self.reverse(*transfer),
            Operation::Authorize {
                hold,
                leg,
                expires_us,
            } => self.authorize(hold, leg, *expires_us),
            Operation::Capture { hold, amount, last } => {
                self.capture(*hold, amount.as_ref(), *last)
            }
            Operation::Release { hold } => self.release(*hold),
            Operation::Expire { hold } => self.expire(*hold),
            Operation::Refund { capture, amount } => self.refund(*capture, amount),
            Operation::Bet { round, leg, game } => self.bet(round, leg, game.as_deref()),
            Operation::Win { round, leg, bet } => self.win(*round, leg, *bet),
            Operation::Rollback { bet } => self.rollback(*bet),
            Operation::CloseRound { round, account } => self.close_round(*round, *account),
            Operation::CancelRound { round, account } => self.cancel_round(round, *account),
        }
    }

    /// The operation's own row, to be filled.
    fn row(&self, verb: Verb) -> OperationRow {
        OperationRow::new(self.key, self.id, verb)
    }

    /// The account as a reply tells it.
    fn snapshot(&self, account: Key) -> Option<Snapshot> {
        self.books.account(account).map(snapshot_of)
    }

    fn reply(
        &self,
        outcome: Outcome,
        code: &str,
        account: Option<Snapshot>,
        missing: Option<Missing<'_>>,
        leg: Option<usize>,
    ) -> Bytes {
        let named = account
            .and_then(|snapshot| Some((&*self.books.account(snapshot.account)?.id, snapshot)));
        Reply {
            outcome,
            code: Some(code),
            account: named,
            missing,
            leg,
            tombstoned: false,
        }
        .to_json()
    }

    /// A definite no; the reply tells the subject's account, where there is one.
    #[cold]
    fn refused(&self, code: Refusal, subject: Option<Key>) -> Stop {
        let account = subject.and_then(|account| self.snapshot(account));
        // What rows show comes from `no_account`, so here it is an asset without a house.
        let missing = (code == Refusal::AccountNotFound).then_some(Missing::House(None));
        self.refused_on(code, account, missing, None)
    }

    fn refused_on(
        &self,
        code: Refusal,
        account: Option<Snapshot>,
        missing: Option<Missing<'_>>,
        leg: Option<usize>,
    ) -> Stop {
        let reply = self.reply(Outcome::Refused, code.as_str(), account, missing, leg);
        Stop::Answer(Answer::Refused {
            code: code.code(),
            reply: Some(reply),
        })
    }

    /// The state says it is so already.
    #[cold]
    fn ignored(&self, reason: Reason, subject: Option<Key>) -> Stop {
        let account = subject.and_then(|account| self.snapshot(account));
        let reply = self.reply(Outcome::Ignored, reason.as_str(), account, None, None);
        Stop::Answer(Answer::Ignored {
            reason: reason.code(),
            reply: Some(reply),
        })
    }

    #[cold]
    fn dead(code: Death, detail: &str, field: &str) -> Stop {
        Stop::Answer(Answer::Dead {
            code: code.code(),
            detail: detail.to_owned(),
            field: Some(field.to_owned()),
        })
    }

    /// The parent is unknown: wait for it, or at the deadline say so.
    #[cold]
    fn absent(&self, awaited: Awaited, parent: Key, code: Refusal, subject: Option<Key>) -> Stop {
        if self.last {
            return self.refused(code, subject);
        }
        self.wait(awaited, parent)
    }

    fn wait(&self, awaited: Awaited, parent: Key) -> Stop {
        Stop::Answer(Answer::not_yet(
            awaited.code(),
            parent,
            self.config.park_for_ms,
        ))
    }

    /// The account is unknown: by default a definite no.
    #[cold]
    fn no_account(&self, account: Key, missing: Missing<'_>, subject: Option<Key>) -> Stop {
        if self.config.park_for_account && !self.last {
            return self.wait(Awaited::Account, account);
        }
        let subject = subject.and_then(|account| self.snapshot(account));
        self.refused_on(Refusal::AccountNotFound, subject, Some(missing), None)
    }

    fn account(&self, account: Key, subject: Option<Key>) -> Result<&Account, Stop> {
        self.books
            .account(account)
            .ok_or_else(|| self.no_account(account, Missing::Account, subject))
    }

    /// The account of a movement that was not opened, the debit side first.
    #[cold]
    fn missing(&self, money: &Move) -> Option<(Key, Missing<'_>)> {
        let sides = [
            (money.debit, Missing::Debit),
            (money.credit, Missing::Credit),
        ];
        let (account, side) = sides
            .into_iter()
            .find(|(account, _)| self.books.account(*account).is_none())?;
        let asset = self.config.asset(&money.asset);
        let house = asset.and_then(|asset| asset.house.as_ref());
        let house = house.filter(|(house, _)| *house == account);
        Some((
            account,
            house.map_or(side, |(_, name)| Missing::House(Some(name))),
        ))
    }

    /// Both accounts of a movement.
    fn parties(&self, money: &Move, subject: Key) -> Result<Parties<'_>, Stop> {
        let sides = (
            self.books.account(money.debit),
            self.books.account(money.credit),
        );
        if let (Some(debit), Some(credit)) = sides {
            return Ok(Parties { debit, credit });
        }
        let (account, missing) = self.missing(money).expect("one of both is not there");
        Err(self.no_account(account, missing, Some(subject)))
    }

    /// The whole check of a movement.
    fn check(&self, money: &Move, frozen: Frozen, subject: Key) -> Result<(), Stop> {
        let parties = self.parties(money, subject)?;
        let verdict = parties
            .may_take_part(money, frozen)
            .and_then(|()| parties.have_funds(money));
        verdict.map_err(|code| self.refused(code, Some(subject)))
    }

    /// Moves checked money and frees what a hold reserved for it: two entries, the debit side first.
    fn post(&mut self, operation: Key, money: &Move, freed: i128) -> Posted {
        let debit = Change {
            posted: -money.amount,
            pending: -freed,
            entries: 1,
        };
        let credit = Change {
            posted: money.amount,
            pending: 0,
            entries: 1,
        };
        Posted {
            debit: self.entry(operation, money.debit, debit),
            credit: self.entry(operation, money.credit, credit),
        }
    }

    fn entry(&mut self, operation: Key, account: Key, change: Change) -> Snapshot {
        let after = self.books.add(account, change);
        self.books.append(Entry {
            account,
            version: after.version,
            operation,
            amount: change.posted,
            balance_after: after.balance,
            relative: after.relative,
        });
        after
    }
}

/// Both sides before a movement.
struct Parties<'b> {
    debit: &'b Account,
    credit: &'b Account,
}

impl Parties<'_> {
    /// Both accounts may take part in the movement.
    fn may_take_part(&self, money: &Move, frozen: Frozen) -> Result<(), Refusal> {
        let Self { debit, credit } = self;
        if debit.asset != money.asset || credit.asset != money.asset {
            return Err(Refusal::AssetMismatch);
        }
        if debit.status == Status::Closed || credit.status == Status::Closed {
            return Err(Refusal::AccountClosed);
        }
        if frozen == Frozen::Stops && debit.status == Status::Frozen {
            return Err(Refusal::AccountFrozen);
        }
        Ok(())
    }

    /// The debit side has the money, and no balance leaves its range.
    fn have_funds(&self, money: &Move) -> Result<(), Refusal> {
        let Self { debit, credit } = self;
        let after = debit
            .posted
            .checked_sub(money.amount)
            .and_then(|posted| posted.checked_sub(debit.pending));
        if after.is_none() || credit.posted.checked_add(money.amount).is_none() {
            return Err(Refusal::Overflow);
        }
        if debit.limit == Limit::NoNegative && debit.available() < money.amount {
            return Err(Refusal::InsufficientFunds);
        }
        Ok(())
    }

    /// The money of a hold is there by its reservation; only the ranges are left to check.
    fn are_in_range(&self, money: &Move) -> Result<(), Refusal> {
        let debit = self.debit.posted.checked_sub(money.amount);
        let credit = self.credit.posted.checked_add(money.amount);
        debit.and(credit).map(drop).ok_or(Refusal::Overflow)
    }
}

/// Both sides after a movement.
struct Posted {
    debit: Snapshot,
    credit: Snapshot,
}

pub(crate) fn snapshot_of(account: &Account) -> Snapshot {
    Snapshot {
        account: account.key,
        balance: account.posted,
        available: account.available(),
        version: account.version,
        relative: false,
    }
}

impl OperationRow {
    /// Says what was moved.
    fn moved(mut self, money: &Move) -> Self {
        self.debit = Some(money.debit);
        self.credit = Some(money.credit);
        self.amount = Some(money.amount);
        self.asset = Some(Arc::clone(&money.asset));
        self
    }

    fn refers_to(mut self, reference: Key) -> Self {
        self.reference = Some(reference);
        self
    }

    fn noted(mut self, note: Option<&str>) -> Self {
        self.note = note.map(Box::from);
        self
    }

    fn replied(mut self, account: Option<Snapshot>) -> Self {
        self.reply = account;
        self
    }

    fn tombstone(mut self) -> Self {
        self.tombstoned = true;
        self
    }
}
