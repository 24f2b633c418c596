//! Runs operations through a staged handler on the simulated ledger, with other units in between.

use std::future::Future;

use semel_core::fingerprint::{FieldSums, Fingerprint, Scheme};
use semel_core::law::Binding;
use semel_core::ledger::{
    Claim, Claimed, Commit, ConsumerId, Fence, Instance, LaneId, Ledger, Record, Save, Unit,
    Written,
};
use semel_core::message::Message;
use semel_core::rows::{Delta, Lock, Rows, Table, Value};
use semel_core::{Answer, Class, Fault, Key, Outcome};
use semel_storm::{SimLane, SimLedger, SimUnit};

use super::toy::{HOUSE, Op, Toy};
use crate::handler::{Fresh, Handler, Said};
use crate::staged::{StagedHandler, handler};

/// A unit in which something else happens right before one of its acts on rows.
pub(super) struct Hooked {
    unit: SimUnit,
    acts: usize,
    /// The ids of every read, by table.
    pub(super) reads: Vec<(&'static str, Vec<Value>)>,
    /// The ids of every read that locks, and of every act on counters.
    pub(super) locks: Vec<Vec<Value>>,
    pub(super) adds: Vec<Vec<Value>>,
    at: usize,
    hook: Option<Box<dyn FnOnce() + Send>>,
    pub(super) backs: usize,
    only_writer: bool,
}

impl Rows for Hooked {
    fn only_writer(&self) -> bool {
        self.only_writer
    }

    async fn read(
        &mut self,
        table: &'static Table,
        ids: &[Value],
        lock: Lock,
    ) -> Result<Vec<Value>, Fault> {
        self.act();
        self.reads.push((table.name, ids.to_vec()));
        if lock == Lock::Update {
            self.locks.push(ids.to_vec());
        }
        self.unit.read(table, ids, lock).await
    }

    async fn insert(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        self.act();
        self.unit.insert(table, values).await
    }

    async fn update(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        self.act();
        self.unit.update(table, values).await
    }

    async fn add(&mut self, table: &'static Table, deltas: &[Delta]) -> Result<Vec<Value>, Fault> {
        self.act();
        let ids = deltas.iter().map(|delta| delta.seen[0].clone());
        self.adds.push(ids.collect());
        self.unit.add(table, deltas).await
    }
}

impl Unit for Hooked {
    type Lane = SimLane;

    fn fence(&self) -> Fence {
        self.unit.fence()
    }

    fn claim(
        &mut self,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Claimed>, Fault>> + Send {
        self.unit.claim(claims)
    }

    fn save(&mut self, save: Save) -> impl Future<Output = Result<(), Fault>> + Send {
        self.unit.save(save)
    }

    fn back(&mut self, save: Save) -> impl Future<Output = Result<(), Fault>> + Send {
        self.backs += 1;
        self.unit.back(save)
    }

    fn attempt(&mut self, keys: &[Key]) -> impl Future<Output = Result<Vec<u32>, Fault>> + Send {
        self.unit.attempt(keys)
    }

    fn write(&mut self, record: &Record) -> impl Future<Output = Result<Written, Fault>> + Send {
        self.unit.write(record)
    }

    fn commit(self) -> impl Future<Output = Commit<SimLane>> + Send {
        self.unit.commit()
    }
}

/// A database for the tests: a house, and the journal's nature.
pub(super) fn ledger(seed: u64) -> SimLedger {
    let ledger = SimLedger::new(seed);
    ledger.append_only("journal");
    ledger.put_row(
        "account",
        vec![Value::Key(HOUSE), Value::Int(0), Value::Amount(1000)],
    );
    ledger
}

pub(super) fn put_account(ledger: &SimLedger, account: Key, balance: i128) {
    ledger.put_row(
        "account",
        vec![Value::Key(account), Value::Int(0), Value::Amount(balance)],
    );
}

pub(super) fn balance(ledger: &SimLedger, account: Key) -> Option<i128> {
    ledger
        .rows_of("account")
        .into_iter()
        .find(|row| row[0] == Value::Key(account))
        .map(|row| match row[2] {
            Value::Amount(amount) => amount,
            _ => panic!("a balance is an amount"),
        })
}

pub(super) async fn unit(ledger: &SimLedger, lane: i16) -> Hooked {
    let lane = LaneId {
        consumer: ConsumerId(1),
        instance: Instance([1; 16]),
        lane,
    };
    let lane = ledger.connect(lane).await.unwrap();
    let mut unit = ledger.begin(lane).await.unwrap();
    unit.save(Save::Claims).await.unwrap();
    Hooked {
        unit,
        acts: 0,
        reads: Vec::new(),
        locks: Vec::new(),
        adds: Vec::new(),
        at: 0,
        hook: None,
        backs: 0,
        only_writer: false,
    }
}

impl Hooked {
    fn act(&mut self) {
        self.acts += 1;
        if self.acts == self.at
            && let Some(hook) = self.hook.take()
        {
            hook();
        }
    }

    pub(super) fn before_act(mut self, at: usize, hook: impl FnOnce() + Send + 'static) -> Self {
        self.at = at;
        self.hook = Some(Box::new(hook));
        self
    }

    pub(super) fn alone(mut self) -> Self {
        self.only_writer = true;
        self
    }

    pub(super) async fn handle(&mut self, ops: &[Op]) -> Result<Vec<Said>, Fault> {
        self.handle_by(&handler(Toy::default()), ops).await
    }

    pub(super) async fn handle_by(
        &mut self,
        toy: &StagedHandler<Toy>,
        ops: &[Op],
    ) -> Result<Vec<Said>, Fault> {
        let message = Message::new("", "p", Some(1));
        let binding = Binding {
            key: HOUSE,
            id: String::new(),
            fingerprint: Fingerprint::NONE,
            scheme: Scheme::NONE,
            sums: FieldSums::default(),
        };
        let fresh: Vec<Fresh<'_, Op>> = ops
            .iter()
            .map(|work| Fresh {
                message: &message,
                binding: &binding,
                work,
                last: false,
            })
            .collect();
        toy.handle(self, &fresh).await
    }
}

/// Runs operations in one unit and commits; gives one word for each.
pub(super) async fn run(ledger: &SimLedger, ops: &[Op]) -> Vec<String> {
    finish(unit(ledger, 0).await, ops).await
}

pub(super) async fn finish(mut unit: Hooked, ops: &[Op]) -> Vec<String> {
    let said = unit.handle(ops).await.unwrap();
    assert!(matches!(unit.commit().await, Commit::Committed(..)));
    words(&said)
}

/// Runs operations on a lane until no unit of it was busy.
pub(super) async fn run_retrying(ledger: SimLedger, lane: i16, ops: Vec<Op>) -> Vec<String> {
    loop {
        let mut unit = unit(&ledger, lane).await;
        match unit.handle(&ops).await {
            Ok(said) => match unit.commit().await {
                Commit::Committed(..) => return words(&said),
                other => panic!("no fault was asked for: {other:?}"),
            },
            Err(fault) => assert_eq!(fault.class, Class::Busy, "{fault}"),
        }
    }
}

pub(super) fn words(said: &[Said]) -> Vec<String> {
    said.iter()
        .map(|said| match said {
            Said::Answer(Answer::Applied {
                reply: Some(reply), ..
            }) => String::from_utf8_lossy(reply).into_owned(),
            Said::Answer(answer) if answer.outcome() == Outcome::Applied => "applied".to_owned(),
            Said::Answer(answer) => answer.code().map_or("?", |code| code.as_str()).to_owned(),
            Said::Fault(fault) => format!("fault {:?}", fault.class),
        })
        .collect()
}
