//! Accounts: opened once, frozen and unfrozen, closed for ever.

use std::sync::Arc;

use semel_core::Key;

use super::{Case, Stop, Wakes};
use crate::books::Books;
use crate::code::{Reason, Refusal};
use crate::op::{Named, Verb};
use crate::row::{Account, Kind, Limit, OperationRow, Status};

impl<B: Books + ?Sized> Case<'_, B> {
    pub(super) fn open_account(
        &mut self,
        account: &Named,
        asset: &Result<Arc<str>, Refusal>,
        kind: Kind,
        limit: Limit,
    ) -> Result<Wakes, Stop> {
        let asset = asset
            .clone()
            .map_err(|code| self.refused(code, Some(account.key)))?;
        if self.books.account(account.key).is_some() {
            return Err(self.refused(Refusal::AccountExists, Some(account.key)));
        }
        let id = Arc::from(&*account.id);
        let status = Status::Active;
        let row = Account {
            key: account.key,
            id,
            asset,
            kind,
            limit,
            status,
            posted: 0,
            pending: 0,
            version: 0,
        };
        let asset = row.asset.clone();
        self.books.put_account(row);
        // What can never change afterwards stands in the operation too, where an audit finds it.
        let terms = format!("{} {}", kind.as_str(), limit.as_str());
        let note = self
            .row(Verb::OpenAccount)
            .refers_to(account.key)
            .noted(Some(&terms))
            .replied(self.snapshot(account.key));
        self.books.put_operation(OperationRow {
            asset: Some(asset),
            ..note
        });
        Ok(vec![account.key])
    }

    pub(super) fn freeze(&mut self, account: Key) -> Result<Wakes, Stop> {
        match self.account(account, Some(account))?.status {
            Status::Active => Ok(self.becomes(Verb::Freeze, account, Status::Frozen)),
            Status::Frozen => Err(self.ignored(Reason::AlreadyFrozen, Some(account))),
            Status::Closed => Err(self.refused(Refusal::AccountClosed, Some(account))),
        }
    }

    pub(super) fn unfreeze(&mut self, account: Key) -> Result<Wakes, Stop> {
        match self.account(account, Some(account))?.status {
            Status::Frozen => Ok(self.becomes(Verb::Unfreeze, account, Status::Active)),
            Status::Active => Err(self.ignored(Reason::AlreadyUnfrozen, Some(account))),
            Status::Closed => Err(self.refused(Refusal::AccountClosed, Some(account))),
        }
    }

    pub(super) fn close_account(&mut self, account: Key) -> Result<Wakes, Stop> {
        let row = self.account(account, Some(account))?;
        match row.status {
            Status::Closed => Err(self.ignored(Reason::AlreadyClosed, Some(account))),
            Status::Active | Status::Frozen if row.posted != 0 || row.pending != 0 => {
                Err(self.refused(Refusal::NotEmpty, Some(account)))
            }
            Status::Active | Status::Frozen => {
                Ok(self.becomes(Verb::CloseAccount, account, Status::Closed))
            }
        }
    }

    fn becomes(&mut self, verb: Verb, account: Key, status: Status) -> Wakes {
        if let Some(row) = self.books.account(account) {
            let row = Account {
                status,
                ..row.clone()
            };
            self.books.put_account(row);
        }
        self.note_account(verb, account);
        Vec::new()
    }

    fn note_account(&mut self, verb: Verb, account: Key) {
        let row = self
            .row(verb)
            .refers_to(account)
            .replied(self.snapshot(account));
        self.books.put_operation(row);
    }
}
