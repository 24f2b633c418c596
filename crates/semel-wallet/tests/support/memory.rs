//! A unit over tables in memory, as the staged engine sees a database: with locks that are always free, and
//! either as the only writer (SQLite) or one of several (PostgreSQL), whose deltas go last.

use std::collections::BTreeMap;

use semel::handler::{Fresh, Handler, Said};
use semel::staged::{StagedHandler, handler};
use semel_core::ledger::{
    Claim, Claimed, Commit, Fence, Instance, LaneId, Record, Save, Unit, Written,
};
use semel_core::rows::{Change, Delta, Lock, Rows, Table, Value};
use semel_core::{Answer, Fault, Key};
use semel_wallet::row::{ENTRY, Row, TABLES};
use semel_wallet::{Config, Wallet, Work};

use super::Book;

type Stored = Vec<Value>;

#[derive(Clone, Default)]
struct Tables {
    keyed: BTreeMap<(&'static str, Value), Stored>,
    entries: Vec<Stored>,
}

/// How the unit behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    One,
    Many,
}

pub struct MemoryUnit {
    tables: Tables,
    claims: Tables,
    group: Tables,
    writers: Writers,
    /// How many deltas were sent: shows that the commutative path was taken.
    pub deltas: usize,
    /// How many rows were written, without the ledger's.
    pub written: usize,
}

impl MemoryUnit {
    pub fn new(writers: Writers) -> Self {
        let tables = Tables::default();
        Self {
            claims: tables.clone(),
            group: tables.clone(),
            tables,
            writers,
            deltas: 0,
            written: 0,
        }
    }

    pub fn rows(&self) -> Vec<Row> {
        let place = |name: &str| TABLES.iter().position(|table| table.name == name).unwrap();
        let keyed = self
            .tables
            .keyed
            .iter()
            .map(|((name, _), values)| (place(name), values));
        let entries = self.tables.entries.iter().map(|values| (ENTRY, values));
        keyed
            .chain(entries)
            .map(|(table, values)| Row::decode(table, values).unwrap())
            .collect()
    }
}

impl Unit for MemoryUnit {
    type Lane = ();

    fn fence(&self) -> Fence {
        let lane = LaneId {
            consumer: semel_core::ledger::ConsumerId(1),
            instance: Instance([0; 16]),
            lane: 0,
        };
        Fence { lane, unit: 1 }
    }

    async fn claim(&mut self, _: &[Claim]) -> Result<Vec<Claimed>, Fault> {
        unreachable!("the test's ledger claims")
    }

    async fn save(&mut self, save: Save) -> Result<(), Fault> {
        match save {
            Save::Claims => self.claims = self.tables.clone(),
            Save::Group => self.group = self.tables.clone(),
        }
        Ok(())
    }

    async fn back(&mut self, save: Save) -> Result<(), Fault> {
        self.tables = match save {
            Save::Claims => self.claims.clone(),
            Save::Group => self.group.clone(),
        };
        Ok(())
    }

    async fn attempt(&mut self, keys: &[Key]) -> Result<Vec<u32>, Fault> {
        Ok(vec![1; keys.len()])
    }

    async fn write(&mut self, _: &Record) -> Result<Written, Fault> {
        Ok(Written::default())
    }

    async fn commit(self) -> Commit<()> {
        unreachable!("the test commits by keeping")
    }
}

impl Rows for MemoryUnit {
    fn only_writer(&self) -> bool {
        self.writers == Writers::One
    }

    async fn read(
        &mut self,
        table: &'static Table,
        ids: &[Value],
        _: Lock,
    ) -> Result<Vec<Value>, Fault> {
        assert!(ids.is_sorted(), "ids come sorted");
        let found = ids
            .iter()
            .filter_map(|id| self.tables.keyed.get(&(table.name, id.clone())));
        Ok(found.flatten().cloned().collect())
    }

    async fn insert(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        let mut inserted = 0;
        for row in values.chunks_exact(table.width()) {
            if table.name == TABLES[ENTRY].name {
                if self
                    .tables
                    .entries
                    .iter()
                    .any(|known| known[..2] == row[..2])
                {
                    continue;
                }
                self.tables.entries.push(row.to_vec());
            } else {
                let id = (table.name, row[0].clone());
                if self.tables.keyed.contains_key(&id) {
                    continue;
                }
                self.tables.keyed.insert(id, row.to_vec());
            }
            inserted += 1;
        }
        self.written += inserted;
        Ok(inserted)
    }

    async fn update(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        let mut found = 0;
        for row in values.chunks_exact(table.width()) {
            let Some(known) = self.tables.keyed.get_mut(&(table.name, row[0].clone())) else {
                continue;
            };
            for (place, column) in table.columns.iter().enumerate() {
                match column.change {
                    Change::Fixed => assert_eq!(
                        known[place], row[place],
                        "{}.{} is fixed",
                        table.name, column.name
                    ),
                    Change::Set | Change::Counter => known[place] = row[place].clone(),
                }
            }
            found += 1;
        }
        self.written += found;
        Ok(found)
    }

    async fn add(&mut self, table: &'static Table, deltas: &[Delta]) -> Result<Vec<Value>, Fault> {
        let mut now = Vec::new();
        for delta in deltas {
            let Some(row) = self
                .tables
                .keyed
                .get_mut(&(table.name, delta.seen[0].clone()))
            else {
                continue;
            };
            let set = row
                .iter()
                .zip(table.columns)
                .skip(1)
                .filter(|(_, column)| column.change == Change::Set);
            if !set.map(|(value, _)| value).eq(&delta.seen[1..]) {
                continue;
            }
            for (place, add) in table.counters().zip(&delta.add) {
                row[place] = match row[place] {
                    Value::Amount(amount) => Value::Amount(amount + add),
                    Value::Int(int) => Value::Int(int + i64::try_from(*add).unwrap()),
                    ref other => panic!("{other:?} is no counter"),
                };
            }
            now.push(row[0].clone());
            now.extend(table.counters().map(|place| row[place].clone()));
        }
        self.deltas += deltas.len();
        self.written += deltas.len();
        Ok(now)
    }
}

/// The engine's staged path as a book.
pub struct OnEngine {
    handler: StagedHandler<Wallet>,
    pub unit: MemoryUnit,
    began: Tables,
}

impl OnEngine {
    pub fn new(config: Config, writers: Writers) -> Self {
        let began = Tables::default();
        Self {
            handler: handler(Wallet::new(config)),
            unit: MemoryUnit::new(writers),
            began,
        }
    }
}

impl Book for OnEngine {
    fn answer(&mut self, fresh: &[Fresh<'_, Work>]) -> Vec<Answer> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            self.unit.save(Save::Claims).await.unwrap();
            let said = self.handler.handle(&mut self.unit, fresh).await.unwrap();
            let answers = said.into_iter().map(|said| match said {
                Said::Answer(answer) => answer,
                Said::Fault(fault) => panic!("{fault}"),
            });
            answers.collect()
        })
    }

    fn save(&mut self) {
        self.began = self.unit.tables.clone();
    }

    fn back(&mut self) {
        self.unit.tables = self.began.clone();
    }
}
