//! A toy wallet for the tests: accounts with a limit, a house that only gets deltas, bets whose rollback
//! leaves a tombstone, and a journal that is only appended.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use semel_core::fingerprint::{FieldSums, Fingerprint, Scheme};
use semel_core::law::{Binding, Reject};
use semel_core::message::Message;
use semel_core::rows::{Change, Column, Table, Type, Value};
use semel_core::{Answer, Code, Fault, Key};

use crate::handler::{Bound, Fresh};
use crate::staged::{Added, Name, Names, Stage, Staged, Want};

pub(super) const ACCOUNTS: usize = 0;
pub(super) const BETS: usize = 1;
pub(super) const RECEIPTS: usize = 2;
pub(super) const JOURNAL: usize = 3;

const fn column(name: &'static str, kind: Type, change: Change) -> Column {
    Column { name, kind, change }
}

pub(super) static ACCOUNT: Table = Table {
    name: "account",
    columns: &[
        column("id", Type::Key, Change::Fixed),
        column("frozen", Type::Int, Change::Set),
        column("balance", Type::Amount, Change::Counter),
    ],
};
pub(super) static BET: Table = Table {
    name: "bet",
    columns: &[
        column("id", Type::Key, Change::Fixed),
        column("account", Type::Key, Change::Set),
        column("amount", Type::Amount, Change::Set),
        column("state", Type::Int, Change::Set),
    ],
};
pub(super) static RECEIPT: Table = Table {
    name: "receipt",
    columns: &[
        column("id", Type::Key, Change::Fixed),
        column("house", Type::Amount, Change::Set),
    ],
};
pub(super) static ENTRIES: Table = Table {
    name: "journal",
    columns: &[
        column("account", Type::Key, Change::Fixed),
        column("amount", Type::Amount, Change::Fixed),
        column("balance_after", Type::Amount, Change::Fixed),
    ],
};

pub(super) const fn key(number: u8) -> Key {
    Key::from_bytes([number; 16])
}

pub(super) const HOUSE: Key = key(255);

/// States of a bet.
pub(super) const OPEN: i64 = 1;
pub(super) const VOID: i64 = 2;

#[derive(Debug, Clone)]
pub(super) enum Op {
    Open {
        account: Key,
    },
    Credit {
        account: Key,
        amount: i128,
    },
    /// Moves a stake to the house.
    Bet {
        bet: Key,
        account: Key,
        amount: i128,
    },
    Rollback {
        bet: Key,
    },
    /// Adds to the house and keeps a receipt with the house's balance.
    Gift {
        receipt: Key,
        amount: i128,
    },
    /// Moves something from the house to an account, whatever both have.
    Tip {
        account: Key,
        amount: i128,
    },
    /// Breaks in the handler.
    Broken,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Row {
    Account {
        id: Key,
        frozen: bool,
        balance: i128,
    },
    Bet {
        id: Key,
        account: Key,
        amount: i128,
        state: i64,
    },
    Receipt {
        id: Key,
        house: i128,
    },
    Entry {
        account: Key,
        amount: i128,
        after: i128,
    },
}

pub(super) const FUNDS: Code = Code::new("insufficient_funds");
pub(super) const UNKNOWN: Code = Code::new("account_not_found");
pub(super) const EXISTS: Code = Code::new("account_exists");
pub(super) const ROLLED_BACK: Code = Code::new("rolled_back_before");

#[derive(Debug, Default)]
pub(super) struct Toy {
    /// The house as it knows it without looking.
    pub(super) house: Option<Row>,
    /// How often it was asked to recall a row.
    pub(super) asked: AtomicUsize,
    /// What it learnt.
    pub(super) learnt: Mutex<Vec<Row>>,
}

impl Toy {
    fn bet(bet: Key, account: Key, amount: i128, stage: &mut dyn Stage<Row>) -> Answer {
        if stage.get(BETS, &Value::Key(bet)).is_some() {
            return Answer::refused(ROLLED_BACK);
        }
        let Some(Row::Account {
            balance, frozen, ..
        }) = stage.get(ACCOUNTS, &Value::Key(account)).cloned()
        else {
            return Answer::refused(UNKNOWN);
        };
        // Staged before the check, so that a refusal has something to leave behind if it could.
        stage.put(
            ACCOUNTS,
            Value::Key(account),
            Row::Account {
                id: account,
                frozen,
                balance: balance - amount,
            },
        );
        stage.append(
            JOURNAL,
            Row::Entry {
                account,
                amount: -amount,
                after: balance - amount,
            },
            None,
        );
        Self::house(amount, stage);
        if balance < amount {
            return Answer::refused(FUNDS);
        }
        stage.put(
            BETS,
            Value::Key(bet),
            Row::Bet {
                id: bet,
                account,
                amount,
                state: OPEN,
            },
        );
        Answer::applied()
    }

    fn house(amount: i128, stage: &mut dyn Stage<Row>) -> i128 {
        Self::move_to(HOUSE, amount, stage)
    }

    fn move_to(account: Key, amount: i128, stage: &mut dyn Stage<Row>) -> i128 {
        let id = Value::Key(account);
        let (after, depends) = match stage.add(ACCOUNTS, &id, &[amount]) {
            Added::Now(now) => (now[0], None),
            Added::Later(sums) => (
                sums[0],
                Some(Name {
                    table: ACCOUNTS,
                    id,
                }),
            ),
        };
        stage.append(
            JOURNAL,
            Row::Entry {
                account,
                amount,
                after,
            },
            depends,
        );
        after
    }

    fn rollback(bet: Key, stage: &mut dyn Stage<Row>) -> Answer {
        match stage.get(BETS, &Value::Key(bet)).cloned() {
            None => {
                stage.put(
                    BETS,
                    Value::Key(bet),
                    Row::Bet {
                        id: bet,
                        account: HOUSE,
                        amount: 0,
                        state: VOID,
                    },
                );
                Answer::Applied {
                    reply: Some("tombstoned".into()),
                    wakes: Vec::new(),
                }
            }
            Some(Row::Bet {
                account,
                amount,
                state: OPEN,
                ..
            }) => {
                let Some(Row::Account {
                    balance, frozen, ..
                }) = stage.get(ACCOUNTS, &Value::Key(account)).cloned()
                else {
                    return Answer::refused(UNKNOWN);
                };
                let after = balance + amount;
                stage.put(
                    ACCOUNTS,
                    Value::Key(account),
                    Row::Account {
                        id: account,
                        frozen,
                        balance: after,
                    },
                );
                stage.append(
                    JOURNAL,
                    Row::Entry {
                        account,
                        amount,
                        after,
                    },
                    None,
                );
                Self::house(-amount, stage);
                stage.put(
                    BETS,
                    Value::Key(bet),
                    Row::Bet {
                        id: bet,
                        account,
                        amount,
                        state: VOID,
                    },
                );
                Answer::applied()
            }
            Some(_) => Answer::ignored(Code::new("already_rolled_back")),
        }
    }
}

impl Staged for Toy {
    type Work = Op;
    type Row = Row;

    fn name_of_handler(&self) -> &str {
        "toy"
    }

    fn rules(&self) -> Fingerprint {
        Fingerprint::NONE
    }

    fn tables(&self) -> &'static [&'static Table] {
        static TABLES: [&Table; 4] = [&ACCOUNT, &BET, &RECEIPT, &ENTRIES];
        &TABLES
    }

    fn bind(&self, _message: &Message) -> Result<Bound<Op>, Reject> {
        let binding = Binding {
            key: HOUSE,
            id: String::new(),
            fingerprint: Fingerprint::NONE,
            scheme: Scheme::NONE,
            sums: FieldSums::default(),
        };
        Ok(Bound {
            binding,
            lane: None,
            work: Op::Broken,
        })
    }

    fn differing(&self, _message: &Message, _work: &Op, _stored: &FieldSums) -> Option<String> {
        None
    }

    fn name(&self, work: &Op, names: &mut dyn Names<Row>) {
        match work {
            Op::Open { account } | Op::Credit { account, .. } => {
                names.want(ACCOUNTS, Value::Key(*account), Want::Lock);
            }
            Op::Bet { bet, account, .. } => {
                names.want(BETS, Value::Key(*bet), Want::Lock);
                names.want(ACCOUNTS, Value::Key(*account), Want::Lock);
                names.want(ACCOUNTS, Value::Key(HOUSE), Want::AddLast);
            }
            Op::Rollback { bet } => {
                names.want(BETS, Value::Key(*bet), Want::Refer);
                names.want(BETS, Value::Key(*bet), Want::Lock);
                if let Some(Row::Bet { account, .. }) = names.row(BETS, &Value::Key(*bet)) {
                    let account = *account;
                    names.want(ACCOUNTS, Value::Key(account), Want::Lock);
                    names.want(ACCOUNTS, Value::Key(HOUSE), Want::AddLast);
                }
            }
            Op::Gift { .. } => names.want(ACCOUNTS, Value::Key(HOUSE), Want::AddLast),
            Op::Tip { account, .. } => {
                names.want(ACCOUNTS, Value::Key(*account), Want::Add);
                names.want(ACCOUNTS, Value::Key(HOUSE), Want::AddLast);
            }
            Op::Broken => {}
        }
    }

    fn decode(&self, table: usize, values: &[Value]) -> Result<Row, Fault> {
        match (table, values) {
            (ACCOUNTS, [Value::Key(id), Value::Int(frozen), Value::Amount(balance)]) => {
                Ok(Row::Account {
                    id: *id,
                    frozen: *frozen == 1,
                    balance: *balance,
                })
            }
            (
                BETS,
                [
                    Value::Key(id),
                    Value::Key(account),
                    Value::Amount(amount),
                    Value::Int(state),
                ],
            ) => Ok(Row::Bet {
                id: *id,
                account: *account,
                amount: *amount,
                state: *state,
            }),
            _ => Err(Fault::poison(format!(
                "no row of table {table}: {values:?}"
            ))),
        }
    }

    fn encode(&self, _table: usize, row: &Row, values: &mut Vec<Value>) {
        match row {
            Row::Account {
                id,
                frozen,
                balance,
            } => {
                values.extend([
                    Value::Key(*id),
                    Value::Int(i64::from(*frozen)),
                    Value::Amount(*balance),
                ]);
            }
            Row::Bet {
                id,
                account,
                amount,
                state,
            } => {
                values.extend([
                    Value::Key(*id),
                    Value::Key(*account),
                    Value::Amount(*amount),
                    Value::Int(*state),
                ]);
            }
            Row::Receipt { id, house } => values.extend([Value::Key(*id), Value::Amount(*house)]),
            Row::Entry {
                account,
                amount,
                after,
            } => {
                values.extend([
                    Value::Key(*account),
                    Value::Amount(*amount),
                    Value::Amount(*after),
                ]);
            }
        }
    }

    fn decide(&self, fresh: &Fresh<'_, Op>, stage: &mut dyn Stage<Row>) -> Result<Answer, Fault> {
        Ok(match *fresh.work {
            Op::Open { account } => {
                if stage.get(ACCOUNTS, &Value::Key(account)).is_some() {
                    return Ok(Answer::refused(EXISTS));
                }
                stage.put(
                    ACCOUNTS,
                    Value::Key(account),
                    Row::Account {
                        id: account,
                        frozen: false,
                        balance: 0,
                    },
                );
                Answer::applied()
            }
            Op::Credit { account, amount } => match stage.get(ACCOUNTS, &Value::Key(account)) {
                Some(_) => {
                    stage.add(ACCOUNTS, &Value::Key(account), &[amount]);
                    Answer::applied()
                }
                None => Answer::refused(UNKNOWN),
            },
            Op::Bet {
                bet,
                account,
                amount,
            } => Self::bet(bet, account, amount, stage),
            Op::Rollback { bet } => Self::rollback(bet, stage),
            Op::Tip { account, amount } => {
                Self::house(-amount, stage);
                Self::move_to(account, amount, stage);
                Answer::applied()
            }
            Op::Gift { receipt, amount } => {
                let house = Self::house(amount, stage);
                let row = Row::Receipt { id: receipt, house };
                stage.put_after(
                    RECEIPTS,
                    Value::Key(receipt),
                    row,
                    Name {
                        table: ACCOUNTS,
                        id: Value::Key(HOUSE),
                    },
                );
                Answer::applied()
            }
            Op::Broken => return Err(Fault::poison("the handler breaks")),
        })
    }

    fn learn(&self, _table: usize, row: &Row) {
        self.learnt.lock().unwrap().push(row.clone());
    }

    fn recall(&self, table: usize, id: &Value) -> Option<Row> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.house
            .clone()
            .filter(|_| table == ACCOUNTS && *id == Value::Key(HOUSE))
    }

    fn rebase(&self, _table: usize, row: &mut Row, base: &[i128]) {
        match row {
            Row::Receipt { house, .. } => *house += base[0],
            Row::Entry { after, .. } => *after += base[0],
            Row::Account { .. } | Row::Bet { .. } => {}
        }
    }
}
