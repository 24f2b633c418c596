//! Transfers: one, a group of them, and what takes them back.

use semel_core::Key;

use super::{Case, Frozen, Stop, Wakes};
use crate::books::Books;
use crate::code::{Awaited, Refusal};
use crate::op::{Leg, Move, Quantity, Verb, leg_key};
use crate::row::{OperationRow, Snapshot};

impl<B: Books + ?Sized> Case<'_, B> {
    pub(super) fn transfer(&mut self, leg: &Leg, reason: Option<&str>) -> Result<Wakes, Stop> {
        let money = self.checked(leg)?;
        let posted = self.post(self.key, money, 0);
        let row = self
            .row(Verb::Transfer)
            .moved(money)
            .noted(reason)
            .replied(Some(posted.debit));
        self.books.put_operation(row);
        Ok(vec![self.key])
    }

    /// The money of a leg, when it may be moved.
    fn checked<'l>(&self, leg: &'l Leg) -> Result<&'l Move, Stop> {
        let money = leg
            .money
            .as_ref()
            .map_err(|code| self.refused(*code, Some(leg.subject)))?;
        self.check(money, Frozen::Stops, leg.subject)?;
        Ok(money)
    }

    /// Each leg sees the ones before it; the first refusal takes all of them back, so its reply tells the
    /// accounts as they were before the first.
    pub(super) fn transfer_group(&mut self, legs: &[Leg]) -> Result<Wakes, Stop> {
        let before: Vec<Option<Snapshot>> =
            legs.iter().map(|leg| self.snapshot(leg.subject)).collect();
        let mut first: Option<OperationRow> = None;
        for (number, leg) in legs.iter().enumerate() {
            let money = self
                .checked(leg)
                .map_err(|stop| self.of_leg(stop, leg, before[number], number))?;
            let key = leg_key(self.key, number);
            let posted = self.post(key, money, 0);
            let row = OperationRow::new(key, self.id, Verb::TransferGroup).moved(money);
            match &mut first {
                None => first = Some(row.replied(Some(posted.debit))),
                Some(first) => {
                    refresh(first, &posted.debit);
                    refresh(first, &posted.credit);
                    let leg = i64::try_from(number).unwrap_or(i64::MAX);
                    self.books.put_operation(OperationRow {
                        leg,
                        ..row.refers_to(self.key)
                    });
                }
            }
        }
        if let Some(first) = first {
            self.books.put_operation(first);
        }
        Ok(vec![self.key])
    }

    /// A refusal of one leg, told with the leg's number.
    fn of_leg(&self, stop: Stop, leg: &Leg, before: Option<Snapshot>, number: usize) -> Stop {
        let Stop::Answer(semel_core::Answer::Refused { code, .. }) = &stop else {
            return stop;
        };
        let refusal = Refusal::ALL
            .iter()
            .find(|known| known.as_str() == code.as_str());
        let missing = leg
            .money
            .as_ref()
            .ok()
            .and_then(|money| self.missing(money));
        let missing = missing
            .map(|(_, missing)| missing)
            .filter(|_| refusal == Some(&Refusal::AccountNotFound));
        refusal.map_or(stop, |refusal| {
            self.refused_on(*refusal, before, missing, Some(number))
        })
    }

    /// Gives a whole transfer back.
    pub(super) fn reverse(&mut self, transfer: Key) -> Result<Wakes, Stop> {
        let original = self.original(transfer)?;
        if original.reversed_by.is_some() {
            return Err(self.refused(Refusal::AlreadyReversed, original.debit));
        }
        let (Verb::Transfer, 0, Some((money, payer))) =
            (original.verb, original.refunded, back(original))
        else {
            return Err(self.refused(Refusal::NotReversible, original.debit));
        };
        let reversed = OperationRow {
            reversed_by: Some(self.key),
            ..original.clone()
        };
        self.give_back(Verb::Reverse, &money, payer, reversed)
    }

    /// Gives a part of a capture or transfer back.
    pub(super) fn refund(
        &mut self,
        capture: Key,
        amount: &Result<Quantity, Refusal>,
    ) -> Result<Wakes, Stop> {
        let payer = self.books.operation(capture).and_then(|row| row.debit);
        let quantity = amount.as_ref().map_err(|code| self.refused(*code, payer))?;
        let original = self.original(capture)?;
        let (Verb::Capture | Verb::Transfer, Some((whole, payer))) =
            (original.verb, back(original))
        else {
            return Err(self.refused(Refusal::TransferNotFound, original.debit));
        };
        let no = |code| self.refused(code, Some(payer));
        let amount = quantity
            .minor(self.config.asset(&whole.asset))
            .map_err(no)?;
        if amount > whole.amount - original.refunded {
            return Err(no(Refusal::RefundExceedsCapture));
        }
        if original.reversed_by.is_some() {
            return Err(no(Refusal::AlreadyReversed));
        }
        let refunded = OperationRow {
            refunded: original.refunded + amount,
            ..original.clone()
        };
        self.give_back(Verb::Refund, &Move { amount, ..whole }, payer, refunded)
    }

    fn original(&self, key: Key) -> Result<&OperationRow, Stop> {
        let absent = || self.absent(Awaited::Transfer, key, Refusal::TransferNotFound, None);
        self.books.operation(key).ok_or_else(absent)
    }

    fn give_back(
        &mut self,
        verb: Verb,
        money: &Move,
        payer: Key,
        original: OperationRow,
    ) -> Result<Wakes, Stop> {
        self.check(money, Frozen::Pays, payer)?;
        let posted = self.post(self.key, money, 0);
        let row = self
            .row(verb)
            .moved(money)
            .refers_to(original.key)
            .replied(Some(posted.credit));
        self.books.put_operation(original);
        self.books.put_operation(row);
        Ok(vec![self.key])
    }
}

/// The way back of what an operation moved, and who paid.
fn back(original: &OperationRow) -> Option<(Move, Key)> {
    let (debit, credit) = original.debit.zip(original.credit)?;
    let (asset, amount) = original.asset.clone().zip(original.amount)?;
    Some((
        Move {
            debit: credit,
            credit: debit,
            asset,
            amount,
        },
        debit,
    ))
}

/// The group's reply tells its first debit side as it is after the last leg.
fn refresh(first: &mut OperationRow, after: &Snapshot) {
    if first
        .reply
        .is_some_and(|reply| reply.account == after.account)
    {
        first.reply = Some(*after);
    }
}
