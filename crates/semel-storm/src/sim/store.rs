//! The store behind the simulated ledger: committed rows, row locks and transactions.
//!
//! It behaves like a server under READ COMMITTED: what is not committed is invisible to others, a row
//! that exists can be locked, a missing one cannot (TRAPS T35), an insert waits for the other unit that
//! inserted the same row, a circle of waiting units costs the one that closed it (`Busy`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use semel_core::Fault;
use semel_core::fingerprint::Fingerprint;
use semel_core::key::Key;
use semel_core::ledger::{
    CRASHED_AFTER_S, ConsumerId, Enrolled, Fence, LaneId, Letter, Prior, Save, SightingKind,
    SourceId,
};
use semel_core::message::Message;
use semel_core::outcome::Awaiting;
use semel_core::rows::Value;
use tokio::sync::Notify;

use super::pause::Pause;
use crate::dice::Dice;

/// Faults that the dice may choose, each in per mille of its occasions, until the budget is spent.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// How many faults may still happen; then it is calm, and everything must drain.
    pub budget: u32,
    /// An act finds the store busy; the unit may go back to a savepoint.
    pub busy: u16,
    /// The connection breaks in the middle of a unit.
    pub cut: u16,
    /// Nobody is let in, and no position can be read.
    pub away: u16,
    /// A commit is refused: nothing of the unit is there, for certain.
    pub refused_commit: u16,
    /// The connection breaks before the commit arrived.
    pub cut_before_commit: u16,
    /// The connection breaks after the commit.
    pub cut_after_commit: u16,
    /// The connection breaks while the commit is under way: it ends later, this way or that, and holds
    /// its locks until then.
    pub commit_in_flight: u16,
    /// A commit is confirmed and then forgotten (a failover to a standby that was behind).
    pub lost_commit: u16,
}

/// Names one row of any table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Fence(LaneId),
    Ledger(ConsumerId, Key),
    Attempt(ConsumerId, Key),
    Parked(ConsumerId, Key),
    Sighting(ConsumerId, Key, SourceId, SightingKind),
    Position(ConsumerId, SourceId, Arc<str>, i16),
    Letter(ConsumerId, Key),
    User(&'static str, Value),
    Appended(&'static str, u64),
}

/// One row of any table.
#[derive(Debug, Clone)]
pub(crate) enum Row {
    /// The unit, and when it was raised, µs.
    Fence(i64, i64),
    Ledger(Prior),
    Attempt(u32),
    Parked(Box<ParkedRow>),
    Sighting(i64),
    Position(u64, Bytes),
    Letter(Box<Letter>, i64),
    User(Vec<Value>),
}

#[derive(Debug, Clone)]
pub(crate) struct ParkedRow {
    pub(crate) id: String,
    pub(crate) awaiting: Awaiting,
    pub(crate) message: Message,
    pub(crate) source: SourceId,
    pub(crate) attempts: u32,
    pub(crate) due_us: i64,
    pub(crate) deadline_us: i64,
}

#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) name: String,
    pub(crate) handler: String,
    pub(crate) rules: Fingerprint,
    pub(crate) sources: Vec<String>,
}

/// A unit whose commit is under way while its client is gone.
#[derive(Debug)]
struct InFlight {
    lane: LaneId,
    writes: BTreeMap<Place, Option<Row>>,
    commits: bool,
    /// How often others may still look at its locks before it ends.
    patience: u64,
}

type Check = (&'static str, fn(&[Value]) -> Result<(), &'static str>);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) rows: BTreeMap<Place, Row>,
    pub(crate) consumers: Vec<Consumer>,
    pub(crate) append_only: Vec<&'static str>,
    pub(crate) checks: Vec<Check>,
    pub(crate) clock_us: i64,
    pub(crate) faults: Faults,
    pub(crate) dice: Dice,
    /// How many statements were run, so that tests can say what a batch costs.
    pub(crate) statements: u64,
    pub(crate) lines: u64,
    /// The most bytes of parked messages that one look-up gave.
    pub(crate) page_bytes_max: usize,
    locks: BTreeMap<Place, u64>,
    waits: BTreeMap<u64, u64>,
    in_flight: BTreeMap<u64, InFlight>,
    units: u64,
}

impl State {
    /// Whether this fault happens now.
    pub(crate) fn strikes(&mut self, chance: impl Fn(&Faults) -> u16) -> bool {
        let hit = self.faults.budget > 0 && self.dice.hit(chance(&self.faults));
        if hit {
            self.faults.budget -= 1;
        }
        hit
    }

    fn apply(&mut self, writes: BTreeMap<Place, Option<Row>>) {
        for (place, row) in writes {
            match row {
                Some(row) => self.rows.insert(place, row),
                None => self.rows.remove(&place),
            };
        }
    }

    fn release(&mut self, unit: u64) {
        self.locks.retain(|_, holder| *holder != unit);
        self.waits.remove(&unit);
    }

    /// Whether `waiter` waiting for `holder` closes a circle.
    fn circle(&self, waiter: u64, holder: u64) -> bool {
        let mut at = holder;
        while let Some(next) = self.waits.get(&at) {
            if *next == waiter {
                return true;
            }
            at = *next;
        }
        false
    }

    fn end_in_flight(&mut self, unit: u64) {
        if let Some(ended) = self.in_flight.remove(&unit) {
            if ended.commits {
                self.apply(ended.writes);
            }
            self.release(unit);
        }
    }

    /// Makes sure that the fence row of `lane` exists.
    pub(crate) fn connected(&mut self, lane: LaneId) {
        let now = self.clock_us;
        let row = self.rows.entry(Place::Fence(lane));
        row.or_insert(Row::Fence(0, now));
    }

    /// Lanes of which two lives or more crashed at unit 0 since they were last acquitted.
    fn suspects(&self, consumer: ConsumerId) -> Vec<i16> {
        let stale = self.clock_us - i64::from(CRASHED_AFTER_S) * 1_000_000;
        let mut crashes: BTreeMap<i16, u32> = BTreeMap::new();
        for (place, row) in &self.rows {
            let (Place::Fence(lane), Row::Fence(0, seen)) = (place, row) else {
                continue;
            };
            let acquitted = match self.rows.get(&Place::Fence(lane.acquittal())) {
                Some(Row::Fence(_, at)) => *at,
                _ => i64::MIN,
            };
            if lane.consumer == consumer && *seen < stale && *seen > acquitted {
                *crashes.entry(lane.lane).or_default() += 1;
            }
        }
        crashes.retain(|_, count| *count >= 2);
        crashes.into_keys().collect()
    }

    pub(crate) fn enrolled(&self, at: usize, sources: &[String]) -> Enrolled {
        let known = &self.consumers[at].sources;
        let number = |name: &String| known.iter().position(|k| k == name).map_or(0, |i| i + 1);
        let consumer = ConsumerId(i32::try_from(at + 1).expect("a simulation has few consumers"));
        Enrolled {
            consumer,
            sources: sources
                .iter()
                .map(|name| {
                    SourceId(i16::try_from(number(name)).expect("a consumer has few sources"))
                })
                .collect(),
            now_ms: u64::try_from(self.clock_us / 1000).unwrap_or(0),
            suspects: self.suspects(consumer),
        }
    }
}

/// The store, shared by its connections.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<State>,
    freed: Notify,
}

impl Store {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: Mutex::new(State {
                rows: BTreeMap::new(),
                consumers: Vec::new(),
                append_only: Vec::new(),
                checks: Vec::new(),
                // 2026-01-01T00:00:00Z: any day does, as long as it is always the same.
                clock_us: 1_767_225_600_000_000,
                faults: Faults::default(),
                dice: Dice::new(seed),
                statements: 0,
                lines: 0,
                page_bytes_max: 0,
                locks: BTreeMap::new(),
                waits: BTreeMap::new(),
                in_flight: BTreeMap::new(),
                units: 0,
            }),
            freed: Notify::new(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no code panics while it holds the store")
    }

    /// Opens a connection, if somebody is there.
    pub(crate) fn let_in(&self) -> Result<(), Fault> {
        if self.state().strikes(|faults| faults.away) {
            return Err(Fault::down("simulated: nobody is let in"));
        }
        Ok(())
    }

    /// Waits for a commit of `lane` that is under way: here it ends at once.
    pub(crate) fn end_in_flight_of(&self, lane: LaneId) {
        let mut state = self.state();
        let units: Vec<u64> = state
            .in_flight
            .iter()
            .filter(|(_, f)| f.lane == lane)
            .map(|(u, _)| *u)
            .collect();
        for unit in units {
            state.end_in_flight(unit);
        }
        drop(state);
        self.freed.notify_waiters();
    }
}

#[derive(Debug)]
enum Undo {
    Write(Place, Option<Option<Row>>),
    Lock(Place),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    /// A statement failed: only going back to a savepoint heals it.
    Failed,
    /// The connection is gone, and the transaction with it.
    Gone,
}

/// An open transaction. Dropping it rolls it back.
#[derive(Debug)]
pub(crate) struct Tx {
    pub(crate) store: Arc<Store>,
    no: u64,
    writes: BTreeMap<Place, Option<Row>>,
    undo: Vec<Undo>,
    saves: Vec<(Save, usize)>,
    health: Health,
}

/// How a transaction's commit ended.
pub(crate) enum Ended {
    Committed,
    RolledBack,
    Unknown,
}

impl Tx {
    pub(crate) fn begin(store: Arc<Store>) -> Self {
        let no = {
            let mut state = store.state();
            state.units += 1;
            state.units
        };
        Self {
            store,
            no,
            writes: BTreeMap::new(),
            undo: Vec::new(),
            saves: Vec::new(),
            health: Health::Well,
        }
    }

    /// Starts a statement: lets others run, and may meet a fault.
    pub(crate) async fn enter(&mut self) -> Result<(), Fault> {
        let pause = {
            let mut state = self.store.state();
            state.statements += 1;
            state.dice.below(3)
        };
        Pause(pause).await;
        match self.health {
            Health::Well => {}
            Health::Failed => {
                return Err(Fault::poison(
                    "the unit failed before: go back to a savepoint or drop it",
                ));
            }
            Health::Gone => {
                return Err(Fault::down(
                    "the connection of this unit is gone: drop the unit",
                ));
            }
        }
        let (busy, cut) = {
            let mut state = self.store.state();
            (state.strikes(|f| f.busy), state.strikes(|f| f.cut))
        };
        if cut {
            self.cut();
            return Err(Fault::down("the connection broke"));
        }
        if busy {
            self.health = Health::Failed;
            return Err(Fault::busy("a lock could not be had"));
        }
        Ok(())
    }

    /// Ends a statement: after an error the unit only goes back.
    pub(crate) fn leave<T>(&mut self, result: Result<T, Fault>) -> Result<T, Fault> {
        if result.is_err() && self.health == Health::Well {
            self.health = Health::Failed;
        }
        result
    }

    fn cut(&mut self) {
        self.health = Health::Gone;
        self.writes.clear();
        self.store.state().release(self.no);
        self.store.freed.notify_waiters();
    }

    /// The row as this unit sees it.
    pub(crate) fn see(&self, place: &Place) -> Option<Row> {
        match self.writes.get(place) {
            Some(mine) => mine.clone(),
            None => self.store.state().rows.get(place).cloned(),
        }
    }

    /// Locks a place, waiting for the unit that holds it. Says whether the lock is new.
    pub(crate) async fn lock(&mut self, place: &Place) -> Result<bool, Fault> {
        loop {
            let freed = self.store.freed.notified();
            let mut freed = std::pin::pin!(freed);
            let in_flight = {
                let mut state = self.store.state();
                let Some(&holder) = state.locks.get(place) else {
                    state.locks.insert(place.clone(), self.no);
                    state.waits.remove(&self.no);
                    drop(state);
                    self.undo.push(Undo::Lock(place.clone()));
                    return Ok(true);
                };
                if holder == self.no {
                    return Ok(false);
                }
                if state.circle(self.no, holder) {
                    state.waits.remove(&self.no);
                    return Err(Fault::busy("deadlock: this unit would wait for itself"));
                }
                state.waits.insert(self.no, holder);
                freed.as_mut().enable();
                wear_out(&mut state, holder)
            };
            match in_flight {
                Some(true) => self.store.freed.notify_waiters(),
                Some(false) => Pause(1).await,
                None => freed.await,
            }
        }
    }

    /// Gives a lock back that turned out to be of no use.
    pub(crate) fn unlock(&mut self, place: &Place) {
        self.store.state().locks.remove(place);
        self.store.freed.notify_waiters();
    }

    /// Locks the row if it exists, and gives it as it is then.
    pub(crate) async fn lock_row(&mut self, place: &Place) -> Result<Option<Row>, Fault> {
        if self.see(place).is_none() {
            return Ok(None);
        }
        let new = self.lock(place).await?;
        let row = self.see(place);
        if row.is_none() && new {
            self.unlock(place);
        }
        Ok(row)
    }

    /// Inserts the row unless it exists, after waiting for another unit that inserts it. Gives the row
    /// that was there.
    pub(crate) async fn insert(&mut self, place: Place, row: Row) -> Result<Option<Row>, Fault> {
        let new = self.lock(&place).await?;
        if let Some(there) = self.see(&place) {
            if new {
                self.unlock(&place);
            }
            return Ok(Some(there));
        }
        self.set(place, Some(row));
        Ok(None)
    }

    /// Writes a row whose lock is held.
    pub(crate) fn set(&mut self, place: Place, row: Option<Row>) {
        let before = self.writes.insert(place.clone(), row);
        self.undo.push(Undo::Write(place, before));
    }

    pub(crate) fn save(&mut self, save: Save) {
        self.saves.retain(|(name, _)| *name != save);
        self.saves.push((save, self.undo.len()));
    }

    pub(crate) fn back(&mut self, save: Save) -> Result<(), Fault> {
        if self.health == Health::Gone {
            return Err(Fault::down(
                "the connection of this unit is gone: drop the unit",
            ));
        }
        let Some(at) = self.saves.iter().position(|(name, _)| *name == save) else {
            return Err(Fault::poison(format!("there is no savepoint {save:?}")));
        };
        self.saves.truncate(at + 1);
        let keep = self.saves[at].1;
        for undo in self.undo.split_off(keep).into_iter().rev() {
            match undo {
                Undo::Write(place, Some(before)) => {
                    self.writes.insert(place, before);
                }
                Undo::Write(place, None) => {
                    self.writes.remove(&place);
                }
                Undo::Lock(place) => {
                    let mut state = self.store.state();
                    if state.locks.get(&place) == Some(&self.no) {
                        state.locks.remove(&place);
                    }
                }
            }
        }
        self.health = Health::Well;
        self.store.freed.notify_waiters();
        Ok(())
    }

    /// Commits, or meets one of the ways in which a commit goes wrong.
    pub(crate) async fn commit(mut self, fence: Fence) -> Ended {
        let pause = self.store.state().dice.below(3);
        Pause(pause).await;
        let place = Place::Fence(fence.lane);
        let fenced = matches!(self.see(&place), Some(Row::Fence(unit, _)) if unit == fence.unit);
        if self.health != Health::Well || !fenced {
            return Ended::RolledBack;
        }
        let mut state = self.store.state();
        if state.strikes(|f| f.refused_commit) {
            return self.gone(state, Ended::RolledBack);
        }
        if state.strikes(|f| f.cut_before_commit) {
            return self.gone(state, Ended::Unknown);
        }
        if state.strikes(|f| f.lost_commit) {
            return self.gone(state, Ended::Committed);
        }
        if state.strikes(|f| f.commit_in_flight) {
            let commits = state.dice.hit(500);
            let patience = state.dice.below(20);
            let writes = std::mem::take(&mut self.writes);
            state.in_flight.insert(
                self.no,
                InFlight {
                    lane: fence.lane,
                    writes,
                    commits,
                    patience,
                },
            );
            return self.gone(state, Ended::Unknown);
        }
        let cut_after = state.strikes(|f| f.cut_after_commit);
        state.apply(std::mem::take(&mut self.writes));
        self.gone(
            state,
            if cut_after {
                Ended::Unknown
            } else {
                Ended::Committed
            },
        )
    }

    /// The transaction has ended. The guard is let go before the drop of `self` takes the lock again.
    fn gone(&self, state: MutexGuard<'_, State>, ended: Ended) -> Ended {
        drop(state);
        ended
    }
}

/// Looks at the locks of a commit under way once more; it ends when others have looked often enough.
/// `None` when the holder is an ordinary open unit.
fn wear_out(state: &mut State, holder: u64) -> Option<bool> {
    let patience = &mut state.in_flight.get_mut(&holder)?.patience;
    if *patience > 0 {
        *patience -= 1;
        return Some(false);
    }
    state.end_in_flight(holder);
    Some(true)
}

impl Drop for Tx {
    fn drop(&mut self) {
        let mut state = self.store.state();
        if !state.in_flight.contains_key(&self.no) {
            state.release(self.no);
        }
        drop(state);
        self.store.freed.notify_waiters();
    }
}
