//! The wallet in memory: the oracle that databases are compared with, and the simulator's handler.

use std::collections::BTreeMap;
use std::sync::Arc;

use semel_core::{Answer, Fault, Key};

use crate::books::{Books, Change};
use crate::config::Config;
use crate::decide::{Case, decide};
use crate::row::{Account, Bet, Entry, Hold, OperationRow, Round, Snapshot};
use crate::work::Work;

/// The whole state of a wallet, in ordered maps.
///
/// ```
/// use semel_wallet::{Config, Model, Work};
///
/// let config = Config::new([("EUR", 2)])?;
/// let mut model = Model::new(config);
/// let open = Work::parse(br#"{"op":"open_account","id":"o1","account":"p1","asset":"EUR"}"#, model.config());
/// let answer = model.apply(&open, false).unwrap();
/// assert_eq!(answer.outcome().as_str(), "applied");
/// assert_eq!(model.account("p1").unwrap().posted, 0);
/// # Ok::<(), semel_wallet::BadConfig>(())
/// ```
#[derive(Debug, Clone)]
pub struct Model {
    config: Arc<Config>,
    accounts: BTreeMap<Key, Account>,
    operations: BTreeMap<Key, OperationRow>,
    entries: Vec<Entry>,
    holds: BTreeMap<Key, Hold>,
    bets: BTreeMap<Key, Bet>,
    rounds: BTreeMap<Key, Round>,
}

/// A row as it was before the operation in hand.
enum Before {
    Account(Key, Option<Account>),
    Operation(Key, Option<OperationRow>),
    Entry,
    Hold(Key, Option<Hold>),
    Bet(Key, Option<Bet>),
    Round(Key, Option<Round>),
}

impl Model {
    /// An empty wallet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config: Arc::new(config),
            accounts: BTreeMap::new(),
            operations: BTreeMap::new(),
            entries: Vec::new(),
            holds: BTreeMap::new(),
            bets: BTreeMap::new(),
            rounds: BTreeMap::new(),
        }
    }

    /// Its settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Answers a fresh operation. `last` says that its deadline has passed.
    ///
    /// # Errors
    /// `Poison` when the state is one that no sequence of fresh operations makes.
    pub fn apply(&mut self, work: &Work, last: bool) -> Result<Answer, Fault> {
        let config = Arc::clone(&self.config);
        let mut books = Journal {
            model: self,
            undo: Vec::new(),
        };
        let mut case = Case {
            config: &config,
            key: work.key(),
            id: work.id(),
            last,
            books: &mut books,
        };
        let answer = decide(&mut case, work.operation());
        if !matches!(answer, Ok(Answer::Applied { .. })) {
            books.undo();
        }
        answer
    }

    /// An account by its name.
    #[must_use]
    pub fn account(&self, id: &str) -> Option<&Account> {
        self.accounts.values().find(|account| &*account.id == id)
    }

    /// All accounts.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.accounts.values()
    }

    /// All operations that were applied.
    pub fn operations(&self) -> impl Iterator<Item = &OperationRow> {
        self.operations.values()
    }

    /// An applied operation.
    #[must_use]
    pub fn operation(&self, key: Key) -> Option<&OperationRow> {
        self.operations.get(&key)
    }

    /// All entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// All holds.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.values()
    }

    /// All bets, tombstones included.
    pub fn bets(&self) -> impl Iterator<Item = &Bet> {
        self.bets.values()
    }

    /// All rounds, tombstones included.
    pub fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.rounds.values()
    }
}

/// The model while one operation is decided.
struct Journal<'m> {
    model: &'m mut Model,
    undo: Vec<Before>,
}

impl Journal<'_> {
    fn undo(self) {
        let Self { model, undo } = self;
        for before in undo.into_iter().rev() {
            match before {
                Before::Account(key, row) => set(&mut model.accounts, key, row),
                Before::Operation(key, row) => set(&mut model.operations, key, row),
                Before::Hold(key, row) => set(&mut model.holds, key, row),
                Before::Bet(key, row) => set(&mut model.bets, key, row),
                Before::Round(key, row) => set(&mut model.rounds, key, row),
                Before::Entry => drop(model.entries.pop()),
            }
        }
    }
}

fn set<R>(rows: &mut BTreeMap<Key, R>, key: Key, row: Option<R>) {
    match row {
        Some(row) => drop(rows.insert(key, row)),
        None => drop(rows.remove(&key)),
    }
}

impl Books for Journal<'_> {
    fn account(&self, key: Key) -> Option<&Account> {
        self.model.accounts.get(&key)
    }

    fn operation(&self, key: Key) -> Option<&OperationRow> {
        self.model.operations.get(&key)
    }

    fn hold(&self, key: Key) -> Option<&Hold> {
        self.model.holds.get(&key)
    }

    fn bet(&self, key: Key) -> Option<&Bet> {
        self.model.bets.get(&key)
    }

    fn round(&self, key: Key) -> Option<&Round> {
        self.model.rounds.get(&key)
    }

    fn put_account(&mut self, row: Account) {
        let key = row.key;
        self.undo
            .push(Before::Account(key, self.model.accounts.insert(key, row)));
    }

    fn put_operation(&mut self, row: OperationRow) {
        let key = row.key;
        self.undo.push(Before::Operation(
            key,
            self.model.operations.insert(key, row),
        ));
    }

    fn put_hold(&mut self, row: Hold) {
        let key = row.key;
        self.undo
            .push(Before::Hold(key, self.model.holds.insert(key, row)));
    }

    fn put_bet(&mut self, row: Bet) {
        let key = row.key;
        self.undo
            .push(Before::Bet(key, self.model.bets.insert(key, row)));
    }

    fn put_round(&mut self, row: Round) {
        let key = row.key;
        self.undo
            .push(Before::Round(key, self.model.rounds.insert(key, row)));
    }

    fn add(&mut self, account: Key, change: Change) -> Snapshot {
        let row = self
            .model
            .accounts
            .get(&account)
            .expect("money moves between accounts that were checked");
        let row = raised(row, change);
        let after = crate::decide::snapshot_of(&row);
        self.put_account(row);
        after
    }

    fn append(&mut self, entry: Entry) {
        self.model.entries.push(entry);
        self.undo.push(Before::Entry);
    }
}

/// An account after a change that was checked.
pub(crate) fn raised(account: &Account, change: Change) -> Account {
    Account {
        posted: account.posted + change.posted,
        pending: account.pending + change.pending,
        version: account.version + change.entries,
        ..account.clone()
    }
}
