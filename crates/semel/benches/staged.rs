//! What the staged engine costs a message, without a database: transfers between 10 000 accounts, a row
//! and two journal lines each, in batches of 1000.

use std::future::{Future, ready};
use std::time::Instant;

use semel::fingerprint::{FieldSums, Fingerprint, Scheme};
use semel::handler::{Bound, Fresh, Handler};
use semel::law::{Binding, Reject};
use semel::ledger::{
    Claim, Claimed, Commit, ConsumerId, Fence, Instance, LaneId, Record, Save, Unit, Written,
};
use semel::rows::{Change, Column, Delta, Lock, Rows, Table, Type, Value};
use semel::staged::{Name, Names, Stage, Staged, Want, handler};
use semel::{Answer, Fault, Key, Message};

const ACCOUNTS: u64 = 10_000;
const BATCH: u64 = 1000;

const fn column(name: &'static str, kind: Type, change: Change) -> Column {
    Column { name, kind, change }
}

static ACCOUNT: Table = Table {
    name: "account",
    columns: &[
        column("id", Type::Key, Change::Fixed),
        column("balance", Type::Amount, Change::Counter),
    ],
};
static TRANSFER: Table = Table {
    name: "transfer",
    columns: &[
        column("id", Type::Key, Change::Fixed),
        column("debit", Type::Key, Change::Fixed),
        column("credit", Type::Key, Change::Fixed),
        column("amount", Type::Amount, Change::Fixed),
    ],
};
static ENTRY: Table = Table {
    name: "entry",
    columns: &[
        column("account", Type::Key, Change::Fixed),
        column("amount", Type::Amount, Change::Fixed),
        column("after", Type::Amount, Change::Fixed),
    ],
};

#[derive(Clone)]
enum Row {
    Account(Key, i128),
    Transfer(Key, Key, Key, i128),
    Entry(Key, i128, i128),
}

struct Work {
    id: Key,
    debit: Key,
    credit: Key,
    amount: i128,
}

struct Bank;

impl Bank {
    fn move_by(account: Key, amount: i128, stage: &mut dyn Stage<Row>) {
        let Some(Row::Account(_, balance)) = stage.get(0, &Value::Key(account)) else {
            return;
        };
        let after = balance + amount;
        stage.put(0, Value::Key(account), Row::Account(account, after));
        stage.append(2, Row::Entry(account, amount, after), None::<Name>);
    }
}

impl Staged for Bank {
    type Work = Work;
    type Row = Row;

    fn name_of_handler(&self) -> &str {
        "bank"
    }

    fn rules(&self) -> Fingerprint {
        Fingerprint::NONE
    }

    fn tables(&self) -> &'static [&'static Table] {
        static TABLES: [&Table; 3] = [&ACCOUNT, &TRANSFER, &ENTRY];
        &TABLES
    }

    fn bind(&self, _message: &Message) -> Result<Bound<Work>, Reject> {
        unreachable!("messages are bound by hand")
    }

    fn differing(&self, _message: &Message, _work: &Work, _stored: &FieldSums) -> Option<String> {
        None
    }

    fn name(&self, work: &Work, names: &mut dyn Names<Row>) {
        names.want(0, Value::Key(work.debit), Want::Lock);
        names.want(0, Value::Key(work.credit), Want::Lock);
    }

    fn decode(&self, _table: usize, values: &[Value]) -> Result<Row, Fault> {
        match values {
            [Value::Key(id), Value::Amount(balance)] => Ok(Row::Account(*id, *balance)),
            _ => Err(Fault::poison("not an account")),
        }
    }

    fn encode(&self, _table: usize, row: &Row, values: &mut Vec<Value>) {
        match row {
            Row::Account(id, balance) => values.extend([Value::Key(*id), Value::Amount(*balance)]),
            Row::Transfer(id, debit, credit, amount) => {
                values.extend([
                    Value::Key(*id),
                    Value::Key(*debit),
                    Value::Key(*credit),
                    Value::Amount(*amount),
                ]);
            }
            Row::Entry(account, amount, after) => {
                values.extend([
                    Value::Key(*account),
                    Value::Amount(*amount),
                    Value::Amount(*after),
                ]);
            }
        }
    }

    fn decide(&self, fresh: &Fresh<'_, Work>, stage: &mut dyn Stage<Row>) -> Result<Answer, Fault> {
        let Work {
            id,
            debit,
            credit,
            amount,
        } = *fresh.work;
        Self::move_by(debit, -amount, stage);
        Self::move_by(credit, amount, stage);
        stage.put(1, Value::Key(id), Row::Transfer(id, debit, credit, amount));
        Ok(Answer::applied())
    }

    fn rebase(&self, _table: usize, _row: &mut Row, _base: &[i128]) {}
}

/// A unit that has every account and takes everything.
struct Nowhere;

impl Rows for Nowhere {
    fn read(
        &mut self,
        _table: &'static Table,
        ids: &[Value],
        _lock: Lock,
    ) -> impl Future<Output = Result<Vec<Value>, Fault>> + Send {
        ready(Ok(ids
            .iter()
            .flat_map(|id| [id.clone(), Value::Amount(1_000_000)])
            .collect()))
    }

    fn insert(
        &mut self,
        table: &'static Table,
        values: &[Value],
    ) -> impl Future<Output = Result<usize, Fault>> + Send {
        ready(Ok(values.len() / table.width()))
    }

    fn update(
        &mut self,
        table: &'static Table,
        values: &[Value],
    ) -> impl Future<Output = Result<usize, Fault>> + Send {
        ready(Ok(values.len() / table.width()))
    }

    fn add(
        &mut self,
        _table: &'static Table,
        _deltas: &[Delta],
    ) -> impl Future<Output = Result<Vec<Value>, Fault>> + Send {
        ready(Ok(Vec::new()))
    }
}

impl Unit for Nowhere {
    type Lane = ();

    fn fence(&self) -> Fence {
        Fence {
            lane: LaneId {
                consumer: ConsumerId(1),
                instance: Instance([0; 16]),
                lane: 0,
            },
            unit: 1,
        }
    }

    async fn claim(&mut self, _claims: &[Claim]) -> Result<Vec<Claimed>, Fault> {
        Ok(Vec::new())
    }

    async fn save(&mut self, _save: Save) -> Result<(), Fault> {
        Ok(())
    }

    async fn back(&mut self, _save: Save) -> Result<(), Fault> {
        Ok(())
    }

    async fn attempt(&mut self, _keys: &[Key]) -> Result<Vec<u32>, Fault> {
        Ok(Vec::new())
    }

    async fn write(&mut self, _record: &Record) -> Result<Written, Fault> {
        Ok(Written::default())
    }

    async fn commit(self) -> Commit<()> {
        Commit::RolledBack(Fault::busy("nothing is stored"))
    }
}

/// Spreads numbers over keys as a hash would.
fn key(kind: u8, number: u64) -> Key {
    let mut bytes = [kind; 16];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    Key::from_bytes(bytes)
}

fn works(batch: u64) -> Vec<Work> {
    let work = |i: u64| Work {
        id: key(2, batch * BATCH + i),
        debit: key(1, (i * 7919 + batch) % ACCOUNTS),
        credit: key(1, (i * 104_729 + 13 * batch + 1) % ACCOUNTS),
        amount: 5,
    };
    (0..BATCH).map(work).collect()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime needs no more than memory");
    let message = Message::new("", "p", Some(1));
    let binding = Binding {
        key: key(3, 1),
        id: String::new(),
        fingerprint: Fingerprint::NONE,
        scheme: Scheme::NONE,
        sums: FieldSums::default(),
    };
    let bank = handler(Bank);
    let batches: Vec<Vec<Work>> = (0..50).map(works).collect();
    let mut best = f64::MAX;
    for _ in 0..20 {
        let began = Instant::now();
        for works in &batches {
            let fresh: Vec<Fresh<'_, Work>> = works
                .iter()
                .map(|work| Fresh {
                    message: &message,
                    binding: &binding,
                    work,
                    last: false,
                })
                .collect();
            let said = runtime.block_on(bank.handle(&mut Nowhere, &fresh));
            assert!(said.is_ok_and(|said| said.len() == works.len()));
        }
        let messages = batches.len() as f64 * BATCH as f64;
        best = best.min(began.elapsed().as_secs_f64() * 1e9 / messages);
    }
    #[expect(clippy::print_stdout, reason = "a benchmark prints its figure")]
    {
        println!(
            "staged: {best:.0} ns a message (named, locked, decided, encoded; batches of {BATCH})"
        );
    }
}
