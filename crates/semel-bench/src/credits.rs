//! Semel on plain credits: a small staged handler that writes the same rows as the rivals, a ledger row, a
//! balance and a journal row. A credit leans on nothing but its account's existence, so balances take deltas.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use semel::handler::{Bound, Fresh};
use semel::staged::{Names, Stage, Staged, Want};
use semel_core::fingerprint::{FieldSums, Fingerprint, Policy};
use semel_core::key::{Inputs, KeyRule};
use semel_core::law::{Binding, Reject};
use semel_core::rows::{Change, Column, Table, Type, Value};
use semel_core::{Answer, Code, Fault, Json, Key, Message, codes};

use crate::tables::{Names as Rows, RIVALS};

/// The most accounts whose existence is remembered: 8 MiB.
const KNOWN_MAX: usize = 1 << 18;

const BALANCE: usize = 0;
const JOURNAL: usize = 1;

/// How wide amounts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// `bigint`, as the rivals have it.
    Bits64,
    /// `numeric(39, 0)`.
    Bits128,
}

/// How balances change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balances {
    /// By deltas that commute.
    Deltas,
    /// Locked, read and set, as if every credit decided on the balance.
    Locked,
}

const fn column(name: &'static str, kind: Type, change: Change) -> Column {
    Column { name, kind, change }
}

static BALANCES: Table = Table {
    name: "bench_balance",
    columns: &[
        column("account", Type::Int, Change::Fixed),
        column("balance", Type::Int, Change::Counter),
    ],
};
static JOURNALS: Table = Table {
    name: "bench_journal",
    columns: &[
        column("account", Type::Int, Change::Fixed),
        column("amount", Type::Int, Change::Fixed),
        column("key", Type::Key, Change::Fixed),
    ],
};
static BALANCES_WIDE: Table = Table {
    name: "bench_balance_wide",
    columns: &[
        column("account", Type::Int, Change::Fixed),
        column("balance", Type::Amount, Change::Counter),
    ],
};
static JOURNALS_WIDE: Table = Table {
    name: "bench_journal_wide",
    columns: &[
        column("account", Type::Int, Change::Fixed),
        column("amount", Type::Amount, Change::Fixed),
        column("key", Type::Key, Change::Fixed),
    ],
};

/// The handler.
#[derive(Debug)]
pub struct Credits {
    rule: KeyRule,
    width: Width,
    balances: Balances,
    /// Accounts that were seen. None is ever closed here, so there is nothing else to know of them.
    known: RwLock<HashSet<i64>>,
}

/// A parsed credit.
#[derive(Debug, Clone, Copy)]
pub struct Credit {
    account: i64,
    amount: i64,
}

/// A row of either table.
#[derive(Debug, Clone, Copy)]
pub enum Row {
    /// Of the balances.
    Balance {
        /// Whose.
        account: i64,
        /// How much.
        balance: i128,
    },
    /// Of the journal.
    Journal {
        /// Whom it credits.
        account: i64,
        /// With how much.
        amount: i64,
        /// The operation.
        key: Key,
    },
}

impl Credits {
    /// A handler for amounts of this width.
    ///
    /// # Panics
    /// Never: the rule is well formed.
    #[must_use]
    pub fn new(width: Width, balances: Balances) -> Self {
        let rule = KeyRule::parse(["/id"], None).expect("`/id` is a JSON pointer");
        Self {
            rule,
            width,
            balances,
            known: RwLock::default(),
        }
    }

    /// Where its rows are, for the check.
    #[must_use]
    pub const fn names(&self) -> Rows {
        let rivals = Rows {
            key: "semel_ledger",
            ..RIVALS
        };
        match self.width {
            Width::Bits64 => rivals,
            Width::Bits128 => Rows {
                journal: "bench_journal_wide",
                balance: "bench_balance_wide",
                ..rivals
            },
        }
    }

    fn amount(&self, amount: i128) -> Value {
        match self.width {
            Width::Bits64 => i64::try_from(amount).map_or(Value::Null, Value::Int),
            Width::Bits128 => Value::Amount(amount),
        }
    }
}

fn number(json: &Json<'_>, field: &str) -> Result<i64, Reject> {
    let number = json
        .get(field)
        .and_then(Json::number)
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| reject(&codes::MALFORMED, "not a whole number", field))
}

fn reject(code: &Code, detail: impl Into<String>, field: &str) -> Reject {
    Reject {
        code: code.clone(),
        detail: detail.into(),
        field: Some(field.to_owned()),
    }
}

impl Staged for Credits {
    type Work = Credit;
    type Row = Row;

    fn name_of_handler(&self) -> &str {
        "credits"
    }

    fn rules(&self) -> Fingerprint {
        semel::rules_hash(&self.rule)
    }

    fn tables(&self) -> &'static [&'static Table] {
        const NARROW: &[&Table] = &[&BALANCES, &JOURNALS];
        const WIDE: &[&Table] = &[&BALANCES_WIDE, &JOURNALS_WIDE];
        match self.width {
            Width::Bits64 => NARROW,
            Width::Bits128 => WIDE,
        }
    }

    fn bind(&self, message: &Message) -> Result<Bound<Credit>, Reject> {
        let json = Json::parse(message.bytes())
            .map_err(|bad| reject(&codes::MALFORMED, bad.detail, ""))?;
        let inputs = Inputs {
            payload: Some(&json),
            headers: &message.headers,
            message_key: None,
            now_ms: u64::MAX / 2,
        };
        let identity = self
            .rule
            .identify(&inputs)
            .map_err(|bad| reject(&codes::NO_KEY, bad.to_string(), "id"))?;
        let (fingerprint, sums) = Policy::All.bind(message.bytes(), Some(&json));
        let work = Credit {
            account: number(&json, "account")?,
            amount: number(&json, "amount")?,
        };
        let scheme = Policy::All.scheme();
        let binding = Binding {
            key: identity.key,
            id: identity.id.into_owned(),
            fingerprint,
            scheme,
            sums,
        };
        Ok(Bound {
            binding,
            lane: u64::try_from(work.account).ok(),
            work,
        })
    }

    fn differing(&self, message: &Message, _work: &Credit, stored: &FieldSums) -> Option<String> {
        Policy::All.differing(stored, &Json::parse(message.bytes()).ok()?)
    }

    fn name(&self, work: &Credit, names: &mut dyn Names<Row>) {
        let want = match self.balances {
            Balances::Deltas => Want::Add,
            Balances::Locked => Want::Lock,
        };
        names.want(BALANCE, Value::Int(work.account), want);
    }

    fn decode(&self, table: usize, values: &[Value]) -> Result<Row, Fault> {
        match (table, values) {
            (BALANCE, [Value::Int(account), Value::Int(balance)]) => Ok(Row::Balance {
                account: *account,
                balance: i128::from(*balance),
            }),
            (BALANCE, [Value::Int(account), Value::Amount(balance)]) => Ok(Row::Balance {
                account: *account,
                balance: *balance,
            }),
            _ => Err(Fault::poison(format!(
                "not a row of table {table}: {values:?}"
            ))),
        }
    }

    fn encode(&self, _table: usize, row: &Row, values: &mut Vec<Value>) {
        match *row {
            Row::Balance { account, balance } => {
                values.extend([Value::Int(account), self.amount(balance)])
            }
            Row::Journal {
                account,
                amount,
                key,
            } => {
                values.extend([
                    Value::Int(account),
                    self.amount(i128::from(amount)),
                    Value::Key(key),
                ]);
            }
        }
    }

    fn decide(
        &self,
        fresh: &Fresh<'_, Credit>,
        stage: &mut dyn Stage<Row>,
    ) -> Result<Answer, Fault> {
        const ACCOUNT_NOT_FOUND: Code = Code::new("account_not_found");
        let Credit { account, amount } = *fresh.work;
        let id = Value::Int(account);
        let Some(&Row::Balance { balance, .. }) = stage.get(BALANCE, &id) else {
            return Ok(Answer::refused(ACCOUNT_NOT_FOUND));
        };
        match self.balances {
            Balances::Deltas => drop(stage.add(BALANCE, &id, &[i128::from(amount)])),
            Balances::Locked => {
                let balance = balance + i128::from(amount);
                stage.put(BALANCE, id, Row::Balance { account, balance });
            }
        }
        stage.append(
            JOURNAL,
            Row::Journal {
                account,
                amount,
                key: fresh.binding.key,
            },
            None,
        );
        Ok(Answer::applied())
    }

    fn learn(&self, _table: usize, row: &Row) {
        if let (Row::Balance { account, .. }, Balances::Deltas) = (row, self.balances) {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() < KNOWN_MAX {
                known.insert(*account);
            }
        }
    }

    fn recall(&self, _table: usize, id: &Value) -> Option<Row> {
        let Value::Int(account) = *id else {
            return None;
        };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.contains(&account).then_some(Row::Balance {
            account,
            balance: 0,
        })
    }

    fn rebase(&self, _table: usize, _row: &mut Row, _base: &[i128]) {}
}
