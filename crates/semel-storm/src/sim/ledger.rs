//! The simulated ledger: enrols consumers, opens lanes, resolves unknown commits.

use std::sync::Arc;

use semel_core::key::Key;
use semel_core::ledger::{
    Committed, ConsumerId, Enrolled, Enrolment, Fence, LaneId, Ledger, Letter, Parked, Prior,
    Reached, Resolved, SightingKind, SourceId, Which,
};
use semel_core::rows::Value;
use semel_core::{Fault, Limit};

use super::store::{Consumer, Faults, ParkedRow, Place, Row, Store, Tx};
use super::unit::SimUnit;

/// A ledger in memory. Clones share one database.
///
/// ```
/// use semel_storm::SimLedger;
///
/// let ledger = SimLedger::new(42); // one seed, one run
/// assert!(ledger.ledger_rows().is_empty());
/// ```
#[derive(Debug, Clone)]
pub struct SimLedger {
    store: Arc<Store>,
}

/// A lane's connection to a [`SimLedger`].
#[derive(Debug)]
pub struct SimLane {
    pub(crate) store: Arc<Store>,
    pub(crate) lane: LaneId,
}

/// A committed row of the ledger.
#[derive(Debug, Clone)]
pub struct LedgerRow {
    /// Its consumer.
    pub consumer: ConsumerId,
    /// Its key.
    pub key: Key,
    /// What it says.
    pub says: Prior,
}

/// A committed dead letter.
#[derive(Debug, Clone)]
pub struct LetterRow {
    /// Its consumer.
    pub consumer: ConsumerId,
    /// Its content as first written.
    pub letter: Letter,
    /// How often the same dead message was met.
    pub count: i64,
}

/// Committed further deliveries of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SightingRow {
    /// Its consumer.
    pub consumer: ConsumerId,
    /// The key.
    pub key: Key,
    /// The source.
    pub source: SourceId,
    /// The kind.
    pub kind: SightingKind,
    /// How many.
    pub count: i64,
}

impl SimLedger {
    /// An empty database. The seed decides how units interleave, and which faults happen once
    /// [`SimLedger::set_faults`] allows them.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            store: Arc::new(Store::new(seed)),
        }
    }

    /// Allows faults, until their budget is spent.
    pub fn set_faults(&self, faults: Faults) {
        self.store.state().faults = faults;
    }

    /// Moves the database's clock, which never moves by itself.
    pub fn advance_ms(&self, ms: u32) {
        self.store.state().clock_us += i64::from(ms) * 1000;
    }

    /// Declares a table whose first column is no identity: rows are only ever appended.
    pub fn append_only(&self, table: &'static str) {
        self.store.state().append_only.push(table);
    }

    /// Declares a CHECK: a row that it refuses fails the statement as `Poison`.
    pub fn check(&self, table: &'static str, check: fn(&[Value]) -> Result<(), &'static str>) {
        self.store.state().checks.push((table, check));
    }

    /// How many statements were run so far.
    #[must_use]
    pub fn statements(&self) -> u64 {
        self.store.state().statements
    }

    /// Begins anew what [`SimLedger::page_bytes_max`] tells.
    pub fn forget_pages(&self) {
        self.store.state().page_bytes_max = 0;
    }

    /// The most bytes of parked messages that one look-up gave.
    #[must_use]
    pub fn page_bytes_max(&self) -> usize {
        self.store.state().page_bytes_max
    }

    /// Puts a row of a user's table, as if a transaction had committed it just now.
    pub fn put_row(&self, table: &'static str, row: Vec<Value>) {
        let id = row.first().cloned().unwrap_or(Value::Null);
        self.store
            .state()
            .rows
            .insert(Place::User(table, id), Row::User(row));
    }

    /// The committed rows of a user's table, in the order of their identities or of their appending.
    #[must_use]
    pub fn rows_of(&self, table: &'static str) -> Vec<Vec<Value>> {
        let state = self.store.state();
        let of_table = |place: &Place| match place {
            Place::User(name, _) | Place::Appended(name, _) => *name == table,
            _ => false,
        };
        let rows = state.rows.iter().filter(|(place, _)| of_table(place));
        rows.filter_map(|(_, row)| {
            if let Row::User(values) = row {
                Some(values.clone())
            } else {
                None
            }
        })
        .collect()
    }

    /// The committed rows of the ledger, in the order of consumers and keys.
    #[must_use]
    pub fn ledger_rows(&self) -> Vec<LedgerRow> {
        let state = self.store.state();
        let rows = state
            .rows
            .iter()
            .filter_map(|(place, row)| match (place, row) {
                (Place::Ledger(consumer, key), Row::Ledger(says)) => Some(LedgerRow {
                    consumer: *consumer,
                    key: *key,
                    says: says.clone(),
                }),
                _ => None,
            });
        rows.collect()
    }

    /// The committed dead letters.
    #[must_use]
    pub fn letters(&self) -> Vec<LetterRow> {
        let state = self.store.state();
        let rows = state
            .rows
            .iter()
            .filter_map(|(place, row)| match (place, row) {
                (Place::Letter(consumer, _), Row::Letter(letter, count)) => Some(LetterRow {
                    consumer: *consumer,
                    letter: (**letter).clone(),
                    count: *count,
                }),
                _ => None,
            });
        rows.collect()
    }

    /// The committed sightings.
    #[must_use]
    pub fn sightings(&self) -> Vec<SightingRow> {
        let state = self.store.state();
        let rows = state
            .rows
            .iter()
            .filter_map(|(place, row)| match (place, row) {
                (Place::Sighting(consumer, key, source, kind), Row::Sighting(count)) => {
                    Some(SightingRow {
                        consumer: *consumer,
                        key: *key,
                        source: *source,
                        kind: *kind,
                        count: *count,
                    })
                }
                _ => None,
            });
        rows.collect()
    }

    /// How many messages are parked.
    #[must_use]
    pub fn parked_count(&self) -> usize {
        self.store
            .state()
            .rows
            .keys()
            .filter(|place| matches!(place, Place::Parked(..)))
            .count()
    }
}

impl Ledger for SimLedger {
    type Lane = SimLane;
    type Unit = SimUnit;

    async fn enroll(&self, enrolment: &Enrolment) -> Result<Enrolled, Fault> {
        let mut state = self.store.state();
        let known = state
            .consumers
            .iter()
            .position(|c| c.name == enrolment.consumer);
        let at = match known {
            None => {
                state.consumers.push(Consumer {
                    name: enrolment.consumer.clone(),
                    handler: enrolment.handler.clone(),
                    rules: enrolment.rules,
                    sources: Vec::new(),
                });
                state.consumers.len() - 1
            }
            Some(at) => at,
        };
        let consumer = &mut state.consumers[at];
        own(consumer, enrolment)?;
        for source in &enrolment.sources {
            if !consumer.sources.contains(source) {
                consumer.sources.push(source.clone());
            }
        }
        Ok(state.enrolled(at, &enrolment.sources))
    }

    async fn connect(&self, lane: LaneId) -> Result<SimLane, Fault> {
        self.store.let_in()?;
        self.store.end_in_flight_of(lane);
        self.store.state().connected(lane);
        Ok(SimLane {
            store: self.store.clone(),
            lane,
        })
    }

    async fn begin(&self, lane: SimLane) -> Result<SimUnit, Fault> {
        SimUnit::begin(lane).await
    }

    async fn resolve(&self, fence: Fence) -> Result<Resolved, Fault> {
        let mut tx = Tx::begin(self.store.clone());
        tx.enter().await?;
        self.store.end_in_flight_of(fence.lane);
        Ok(match tx.lock_row(&Place::Fence(fence.lane)).await? {
            Some(Row::Fence(unit, _)) if unit >= fence.unit => {
                Resolved::Committed(Committed::witnessed(fence))
            }
            Some(Row::Fence(unit, _)) if unit == fence.unit - 1 => Resolved::RolledBack,
            _ => Resolved::Lost,
        })
    }

    async fn leave(&self, lane: SimLane) -> Result<(), Fault> {
        self.store.let_in()?;
        let mut state = self.store.state();
        let cut = state.strikes(|faults| faults.cut);
        // The answer is lost, or the request was.
        if !cut || state.dice.below(2) == 0 {
            state.rows.remove(&Place::Fence(lane.lane));
        }
        if cut {
            return Err(Fault::down("the connection broke while the lane left"));
        }
        Ok(())
    }

    async fn parked(
        &self,
        consumer: ConsumerId,
        which: Which<'_>,
        limit: Limit,
    ) -> Result<Vec<Parked>, Fault> {
        let mut tx = Tx::begin(self.store.clone());
        tx.enter().await?;
        let mut state = self.store.state();
        let now = state.clock_us;
        let rows = state
            .rows
            .iter()
            .filter_map(|(place, row)| match (place, row) {
                (Place::Parked(c, key), Row::Parked(parked)) if *c == consumer => {
                    Some((*key, parked))
                }
                _ => None,
            });
        let wanted = rows
            .filter(|(key, row)| is_wanted(&which, *key, row, now))
            .take(limit.count);
        let parked = wanted.map(|(key, row)| Parked {
            key,
            id: row.id.clone(),
            message: row.message.clone(),
            source: row.source,
            attempts: row.attempts,
            last: row.deadline_us <= now,
        });
        let mut parked: Vec<Parked> = parked.collect();
        parked.truncate(limit.lets_through(parked.iter().map(|p| p.message.size())));
        let bytes = parked.iter().map(|p| p.message.size()).sum();
        state.page_bytes_max = state.page_bytes_max.max(bytes);
        drop(state);
        Ok(parked)
    }

    async fn positions(
        &self,
        consumer: ConsumerId,
        source: SourceId,
    ) -> Result<Vec<Reached>, Fault> {
        self.store.let_in()?;
        let state = self.store.state();
        let mut reached: Vec<Reached> = Vec::new();
        for (place, row) in &state.rows {
            let (Place::Position(c, s, partition, _), Row::Position(next, mark)) = (place, row)
            else {
                continue;
            };
            if *c != consumer || *s != source {
                continue;
            }
            let found = Reached {
                source,
                partition: partition.clone(),
                next: *next,
                mark: mark.clone(),
            };
            match reached.iter_mut().find(|r| r.partition == found.partition) {
                Some(known) if known.next < found.next => *known = found,
                Some(_) => {}
                None => reached.push(found),
            }
        }
        Ok(reached)
    }
}

fn own(consumer: &mut Consumer, enrolment: &Enrolment) -> Result<(), Fault> {
    let name = &consumer.name;
    if consumer.handler != enrolment.handler {
        return Err(Fault::stop(format!(
            "consumer `{name}` belongs to handler `{}`",
            consumer.handler
        )));
    }
    if consumer.rules != enrolment.rules && !enrolment.accept_key_change {
        return Err(Fault::stop(format!(
            "the key rules of consumer `{name}` changed; accept the change to go on"
        )));
    }
    consumer.rules = enrolment.rules;
    Ok(())
}

fn is_wanted(which: &Which<'_>, key: Key, row: &ParkedRow, now_us: i64) -> bool {
    match which {
        Which::Keys(keys) => keys.contains(&key),
        Which::Awaiting(keys) => keys.contains(&row.awaiting.key),
        Which::Due(after) => {
            (row.due_us <= now_us || row.deadline_us <= now_us)
                && after.is_none_or(|after| key > after)
        }
        Which::After(after) => after.is_none_or(|after| key > after),
    }
}
