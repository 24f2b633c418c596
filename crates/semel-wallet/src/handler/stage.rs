//! The engine's stage as the books that `decide` works on.

use semel::staged::{Added, Name, Stage};
use semel_core::Key;
use semel_core::rows::Value;

use crate::books::{Books, Change};
use crate::decide::snapshot_of;
use crate::model::raised;
use crate::row::{
    ACCOUNT, Account, BET, Bet, ENTRY, Entry, HOLD, Hold, OPERATION, OperationRow, ROUND, Round,
    Row, Snapshot,
};

pub(super) struct OnStage<'s>(pub(super) &'s mut dyn Stage<Row>);

/// The row of one table; another kind of row in it is a bug of `decode`.
macro_rules! row {
    ($stage:expr, $table:expr, $key:expr, $variant:ident) => {
        match $stage.get($table, &Value::Key($key)) {
            Some(Row::$variant(row)) => Some(row),
            _ => None,
        }
    };
}

impl Books for OnStage<'_> {
    fn account(&self, key: Key) -> Option<&Account> {
        row!(self.0, ACCOUNT, key, Account)
    }

    fn operation(&self, key: Key) -> Option<&OperationRow> {
        row!(self.0, OPERATION, key, Operation)
    }

    fn hold(&self, key: Key) -> Option<&Hold> {
        row!(self.0, HOLD, key, Hold)
    }

    fn bet(&self, key: Key) -> Option<&Bet> {
        row!(self.0, BET, key, Bet)
    }

    fn round(&self, key: Key) -> Option<&Round> {
        row!(self.0, ROUND, key, Round)
    }

    fn put_account(&mut self, row: Account) {
        self.0.put(ACCOUNT, Value::Key(row.key), Row::Account(row));
    }

    fn put_operation(&mut self, row: OperationRow) {
        let key = Value::Key(row.key);
        match row.reply.filter(|reply| reply.relative) {
            None => self.0.put(OPERATION, key, Row::Operation(Box::new(row))),
            Some(reply) => self.0.put_after(
                OPERATION,
                key,
                Row::Operation(Box::new(row)),
                of_account(reply.account),
            ),
        }
    }

    fn put_hold(&mut self, row: Hold) {
        self.0
            .put(HOLD, Value::Key(row.key), Row::Hold(Box::new(row)));
    }

    fn put_bet(&mut self, row: Bet) {
        self.0
            .put(BET, Value::Key(row.key), Row::Bet(Box::new(row)));
    }

    fn put_round(&mut self, row: Round) {
        self.0
            .put(ROUND, Value::Key(row.key), Row::Round(Box::new(row)));
    }

    /// An account that is held is put as a whole: cheaper than raising its counters.
    fn add(&mut self, account: Key, change: Change) -> Snapshot {
        if self.0.held(ACCOUNT, &Value::Key(account))
            && let Some(row) = self.account(account)
        {
            let row = raised(row, change);
            let after = snapshot_of(&row);
            self.put_account(row);
            return after;
        }
        let counters = [change.posted, change.pending, i128::from(change.entries)];
        match self.0.add(ACCOUNT, &Value::Key(account), &counters) {
            Added::Now(now) => snapshot(account, &now, false),
            Added::Later(sums) => snapshot(account, &sums, true),
        }
    }

    fn append(&mut self, entry: Entry) {
        let depends = entry.relative.then(|| of_account(entry.account));
        self.0.append(ENTRY, Row::Entry(entry), depends);
    }
}

fn of_account(account: Key) -> Name {
    Name {
        table: ACCOUNT,
        id: Value::Key(account),
    }
}

fn snapshot(account: Key, counters: &[i128], relative: bool) -> Snapshot {
    let at = |place: usize| counters.get(place).copied().unwrap_or(0);
    Snapshot {
        account,
        balance: at(0),
        available: at(0).saturating_sub(at(1)),
        version: i64::try_from(at(2)).unwrap_or(i64::MAX),
        relative,
    }
}
