//! Holds: money reserved on the debit side until it is captured, released or expired.

use semel_core::Key;

use super::{Case, Frozen, Stop, Wakes};
use crate::books::{Books, Change};
use crate::code::{Awaited, Reason, Refusal};
use crate::op::{Leg, Move, Named, Quantity, Verb};
use crate::row::{Hold, HoldStatus};

impl<B: Books + ?Sized> Case<'_, B> {
    pub(super) fn authorize(
        &mut self,
        hold: &Named,
        leg: &Leg,
        expires_us: Option<i64>,
    ) -> Result<Wakes, Stop> {
        let subject = leg.subject;
        let money = leg
            .money
            .as_ref()
            .map_err(|code| self.refused(*code, Some(subject)))?;
        self.check(money, Frozen::Stops, subject)?;
        let pending = self
            .account(money.debit, Some(subject))?
            .pending
            .checked_add(money.amount);
        if pending.is_none() {
            return Err(self.refused(Refusal::Overflow, Some(subject)));
        }
        if self.books.hold(hold.key).is_some() {
            return Err(self.refused(Refusal::HoldExists, Some(subject)));
        }
        self.books.put_hold(Hold {
            key: hold.key,
            id: hold.id.clone(),
            debit: money.debit,
            credit: money.credit,
            asset: money.asset.clone(),
            amount: money.amount,
            expires_us,
            captured: 0,
            remaining: money.amount,
            status: HoldStatus::Open,
        });
        let after = self.books.add(
            money.debit,
            Change {
                pending: money.amount,
                ..Change::default()
            },
        );
        let due = expires_us.map(|us| us.to_string());
        let row = self
            .row(Verb::Authorize)
            .moved(money)
            .refers_to(hold.key)
            .noted(due.as_deref())
            .replied(Some(after));
        self.books.put_operation(row);
        Ok(vec![hold.key])
    }

    pub(super) fn capture(
        &mut self,
        hold: Key,
        amount: Option<&Result<Quantity, Refusal>>,
        last: bool,
    ) -> Result<Wakes, Stop> {
        let payer = self.books.hold(hold).map(|row| row.debit);
        let quantity = amount
            .map(|amount| amount.as_ref().map_err(|code| self.refused(*code, payer)))
            .transpose()?;
        let row = self.known_hold(hold)?;
        let no = |code| self.refused(code, payer);
        let asked = quantity
            .map(|quantity| quantity.minor(self.config.asset(&row.asset)))
            .transpose()
            .map_err(no)?;
        let amount = asked.unwrap_or(row.remaining);
        match row.status {
            HoldStatus::Expired => return Err(no(Refusal::HoldExpired)),
            HoldStatus::Captured | HoldStatus::Released => return Err(no(Refusal::HoldResolved)),
            HoldStatus::Open if amount > row.remaining => {
                return Err(no(Refusal::CaptureExceedsHold));
            }
            HoldStatus::Open => {}
        }
        let row = row.clone();
        let money = Move {
            debit: row.debit,
            credit: row.credit,
            asset: row.asset.clone(),
            amount,
        };
        let parties = self.parties(&money, row.debit)?;
        let verdict = parties
            .may_take_part(&money, Frozen::Pays)
            .and_then(|()| parties.are_in_range(&money));
        verdict.map_err(no)?;
        let freed = if last { row.remaining } else { amount };
        let posted = self.post(self.key, &money, freed);
        let remaining = row.remaining - freed;
        let status = if remaining == 0 {
            HoldStatus::Captured
        } else {
            HoldStatus::Open
        };
        self.books.put_hold(Hold {
            captured: row.captured + amount,
            remaining,
            status,
            ..row
        });
        let row = self
            .row(Verb::Capture)
            .moved(&money)
            .refers_to(hold)
            .replied(Some(posted.debit));
        self.books.put_operation(row);
        Ok(vec![self.key])
    }

    pub(super) fn release(&mut self, hold: Key) -> Result<Wakes, Stop> {
        let row = self.known_hold(hold)?;
        match row.status {
            HoldStatus::Open => Ok(self.free(Verb::Release, row.clone(), HoldStatus::Released)),
            HoldStatus::Released => Err(self.ignored(Reason::AlreadyReleased, Some(row.debit))),
            HoldStatus::Expired => Err(self.refused(Refusal::HoldExpired, Some(row.debit))),
            HoldStatus::Captured => Err(self.refused(Refusal::HoldResolved, Some(row.debit))),
        }
    }

    /// The sweep found it past its time; whoever ended it meanwhile was first.
    pub(super) fn expire(&mut self, hold: Key) -> Result<Wakes, Stop> {
        match self.books.hold(hold) {
            Some(row) if row.status == HoldStatus::Open => {
                let row = row.clone();
                Ok(self.free(Verb::Expire, row, HoldStatus::Expired))
            }
            other => Err(self.ignored(Reason::AlreadyReleased, other.map(|row| row.debit))),
        }
    }

    fn known_hold(&self, hold: Key) -> Result<&Hold, Stop> {
        let absent = || self.absent(Awaited::Hold, hold, Refusal::HoldNotFound, None);
        self.books.hold(hold).ok_or_else(absent)
    }

    fn free(&mut self, verb: Verb, row: Hold, status: HoldStatus) -> Wakes {
        let after = self.books.add(
            row.debit,
            Change {
                pending: -row.remaining,
                ..Change::default()
            },
        );
        let mut note = self.row(verb).refers_to(row.key).replied(Some(after));
        note.debit = Some(row.debit);
        note.amount = Some(row.remaining);
        note.asset = Some(row.asset.clone());
        self.books.put_operation(note);
        self.books.put_hold(Hold {
            remaining: 0,
            status,
            ..row
        });
        Vec::new()
    }
}
