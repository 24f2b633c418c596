//! One sequential stream of work: takes what is waiting, runs it as a unit, settles what the commit
//! proved, and tries again what must be tried again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use semel_core::law::{Case, Reject};
use semel_core::ledger::{
    ClaimKind, Committed, Fence, LaneId, Ledger, Parked, Reached, Resolved, Which,
};
use semel_core::{Backoff, Class, Fault, Key, Limit, Outcome, Settlements, codes};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::handler::Handler;
use crate::intake::{Queued, Stub, Ticket, bind, give_back};
use crate::observe::{Cause, Ended, UnitDone};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::unit::{self, Concluded, Desk, End, Item, Trail, Trouble, lost_commits};

/// An idle lane touches its fence row this often: a start of the consumer deletes rows that nobody touched for days, as
/// those of crashed lives.
const TOUCH: Duration = Duration::from_secs(10);

/// Copies that are waited for do not wait longer than this, however long the last unit took.
const GATHER_MAX: Duration = Duration::from_millis(5);

/// So many copies are enough for a unit.
const GATHER_COUNT: usize = 64;

/// A stream is dense if so many messages came while a unit ran: some ten thousand a second where that takes 3 ms.
const DENSE_COUNT: usize = 32;

/// Between two looks for more of a dense stream, and how many there are.
const LINGER_LOOK: Duration = Duration::from_millis(2);
const LINGER_LOOKS: usize = 2;

/// The most parked messages brought back at once.
pub(crate) const RELEASE_COUNT_MAX: usize = 1_000;

/// What a lane, and the sweep, holds of parked messages that were brought back: all of them together as much as the
/// memory budget is for deliveries.
pub(crate) fn page(settings: &Settings) -> Limit {
    Limit {
        count: RELEASE_COUNT_MAX,
        bytes: settings.memory_bytes_max / (usize::from(settings.lanes) + 1),
    }
}

pub(crate) struct Lane<L: Ledger, H: Handler<L::Unit>> {
    shared: Arc<Shared<L, H>>,
    id: LaneId,
    connection: Option<L::Lane>,
    confirmed: i64,
    queue: UnboundedReceiver<Queued<H::Work>>,
    waiting: VecDeque<Queued<H::Work>>,
    /// The most messages of the next unit: halved by conflicts, doubled by commits.
    limit: usize,
    busy: u32,
    down: u32,
    /// Said to be waiting; see [`Shared::pause`].
    paused: bool,
    /// The lane's last lives crashed before they committed anything, so some message may kill the process. So
    /// many messages must end well, each in a unit of its own, before the lane is trusted again.
    probation: usize,
    /// The message whose try this life has counted already: only its end asks for another count.
    tried: Option<Key>,
    /// A message was under way in this life, and the fence row is of that time.
    begun: bool,
    /// Until then copies alone are no reason for a unit.
    gathers_until: Instant,
    /// Many messages came while the last unit ran.
    dense: bool,
}

/// Conflicts in a row that are no longer the ordinary kind: told like an outage, so that a statement that
/// can never succeed is not retried in silence.
const BUSY_TOLD: u32 = 8;

type Done = (Committed, Concluded);

impl<L: Ledger, H: Handler<L::Unit>> Lane<L, H> {
    pub(crate) fn new(
        shared: Arc<Shared<L, H>>,
        id: LaneId,
        queue: UnboundedReceiver<Queued<H::Work>>,
        suspect: bool,
    ) -> Self {
        let limit = shared.settings.batch_count_max.max(1);
        if suspect {
            tracing::warn!(consumer = %shared.name, lane = id.lane, messages = limit, "this lane crashed twice before it committed anything: its messages run singly until so many ended well");
        }
        Self {
            shared,
            id,
            connection: None,
            confirmed: 0,
            queue,
            waiting: VecDeque::new(),
            limit,
            busy: 0,
            down: 0,
            paused: false,
            probation: if suspect { limit } else { 0 },
            tried: None,
            begun: false,
            gathers_until: Instant::now(),
            dense: false,
        }
    }

    /// Connects. A store that went away since the consumer enrolled is waited for, like one that goes away later.
    pub(crate) async fn open(&mut self) -> Result<(), Fault> {
        match self.connection().await {
            Ok(connection) => self.connection = Some(connection),
            Err(fault) if matches!(fault.class, Class::Down | Class::Busy) => {
                self.pause(&format!("the store: {fault}"));
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Runs until the queue is closed and empty, or the consumer stops.
    pub(crate) async fn run(mut self) {
        if self.connection.is_some() {
            // Until its first message this life's row is above unit 0; see `begin`.
            self.unit_without_messages(Vec::new()).await;
        }
        while self.fill().await {
            if self.waiting.is_empty() {
                // Positions too: the unit that was to write them may have failed.
                let unwritten = self.shared.tracker.unwritten();
                self.unit_without_messages(unwritten).await;
                continue;
            }
            self.deliver().await;
            if self.waiting.is_empty() && self.queue.is_empty() {
                let unwritten = self.shared.tracker.unwritten();
                if !unwritten.is_empty() {
                    self.unit_without_messages(unwritten).await;
                }
            }
        }
        self.leave().await;
    }

    /// Takes what is waiting. Waits when nothing is; returns with an empty queue when
    /// the lane was idle for long, and `false` when it is to end.
    async fn fill(&mut self) -> bool {
        if self.shared.is_stopping() {
            return false;
        }
        let room = self.shared.settings.batch_count_max.max(1);
        if !self.waiting.is_empty() {
            self.take_queued(room);
            return true;
        }
        let mut taken = Vec::new();
        // A lane that waits for the store asks it again after its back-off, whether or not a message comes.
        let patience = if self.paused { Duration::ZERO } else { TOUCH };
        let count = tokio::select! {
            biased;
            () = self.shared.stopped() => return false,
            count = tokio::time::timeout(patience, self.queue.recv_many(&mut taken, room)) => count,
        };
        self.waiting.extend(taken);
        if matches!(count, Ok(0)) {
            return false;
        }
        if std::mem::take(&mut self.dense) {
            self.linger(room).await;
        } else {
            self.gather(room).await;
        }
        true
    }

    /// In a dense stream a unit's fixed cost is worth a short wait, in which more come to share it; where nothing comes, the
    /// source waits for us. The lane looks again at times: to be woken by each message would cost what the wait saves.
    async fn linger(&mut self, room: usize) {
        let shared = self.shared.clone();
        let mut seen = 0;
        for _ in 0..LINGER_LOOKS {
            if self.waiting.len() >= room || self.waiting.len() == seen {
                return;
            }
            seen = self.waiting.len();
            tokio::select! {
                biased;
                () = shared.stopped() => return,
                () = tokio::time::sleep(LINGER_LOOK) => {}
            }
            self.take_queued(room);
        }
    }

    /// Takes what is queued, up to `room` in all.
    fn take_queued(&mut self, room: usize) {
        while self.waiting.len() < room
            && let Ok(queued) = self.queue.try_recv()
        {
            self.waiting.push_back(queued);
        }
    }

    /// While nothing but copies of what was committed not long ago waits, gives more of them the time to come: three
    /// times as long as the last unit took. What is fresh ends that at once, and finds a lane that is not busy with copies.
    async fn gather(&mut self, room: usize) {
        let shared = self.shared.clone();
        let is_copy = |queued: &Queued<H::Work>| {
            let key = queued.item.case.key();
            key.is_some_and(|key| shared.known.has(key))
        };
        let (mut looked, enough) = (0, GATHER_COUNT.min(room));
        while self.waiting.len() < enough && self.waiting.iter().skip(looked).all(is_copy) {
            looked = self.waiting.len();
            let next = tokio::select! {
                biased;
                () = shared.stopped() => return,
                next = tokio::time::timeout_at(self.gathers_until, self.queue.recv()) => next,
            };
            let Ok(Some(next)) = next else { return };
            self.waiting.push_back(next);
            self.take_queued(room);
        }
    }

    /// Makes the fence row anew, at unit 0, before this life's first message: a life whose row stays there died over its
    /// messages before it committed any. One that never had any, however long it waited, is above that.
    async fn begin(&mut self) -> Result<(), Fault> {
        if !self.begun {
            let connection = self.connection().await?;
            self.shared.ledger.leave(connection).await?;
            self.connection = Some(self.shared.ledger.connect(self.id).await?);
            self.confirmed = 0;
            self.begun = true;
        }
        Ok(())
    }

    /// One unit over the first waiting messages, to its end.
    async fn deliver(&mut self) {
        if let Err(fault) = self.begin().await {
            return self.cope(Trouble::Unit(fault), 0).await;
        }
        if self.probation > 0 && !self.tries().await {
            return;
        }
        let shared = self.shared.clone();
        let keys = self.next_keys();
        let flight = tokio::select! {
            biased;
            () = shared.stopped() => return,
            flight = shared.flights.take(&keys) => flight,
        };
        let (items, tickets): (Vec<_>, Vec<_>) = self
            .waiting
            .drain(..flight.count)
            .map(|queued| (queued.item, queued.ticket))
            .unzip();
        let items = Arc::new(items);
        let begun = Instant::now();
        let result = self.unit(items.clone(), Vec::new()).await;
        // The unit's task is over, so this is the only reference left.
        let items = Arc::into_inner(items).expect("the unit's task has ended");
        match result {
            Ok((proof, concluded)) => {
                drop(flight);
                let took = begun.elapsed();
                self.tell(took, &concluded);
                self.committed(proof, concluded, items, tickets).await;
                self.gathers_until = Instant::now() + (took * 3).min(GATHER_MAX);
                self.dense = self.queue.len() >= DENSE_COUNT;
                if self.probation > 0 {
                    self.ended_well().await;
                }
            }
            Err(trouble) => {
                let count = items.len();
                for (item, ticket) in items.into_iter().zip(tickets).rev() {
                    self.waiting.push_front(Queued { item, ticket });
                }
                drop(flight);
                self.cope(trouble, count).await;
            }
        }
    }

    /// Tells of a unit that committed.
    fn tell(&self, elapsed: Duration, concluded: &Concluded) {
        self.shared.observer.unit(&UnitDone {
            messages: concluded.kept,
            elapsed,
            new_letters: concluded.written.new_letters as u64,
            clashes: concluded.conclusion.clashes as u64,
        });
    }

    fn next_keys(&self) -> Vec<Option<Key>> {
        let mut bytes = self.shared.settings.batch_bytes_max;
        let limit = if self.probation > 0 { 1 } else { self.limit };
        let mut keys = Vec::with_capacity(self.waiting.len().min(limit));
        for queued in self.waiting.iter().take(limit) {
            let size = queued.item.case.message.size();
            if size > bytes && !keys.is_empty() {
                break;
            }
            bytes = bytes.saturating_sub(size);
            keys.push(queued.item.case.key());
        }
        keys
    }

    /// Runs a unit in a task of its own. A deadline ends the task together with its connection.
    async fn unit(
        &mut self,
        items: Arc<Vec<Box<Item<H::Work>>>>,
        positions: Vec<Reached>,
    ) -> Result<Done, Trouble> {
        let connection = self.connection().await.map_err(Trouble::Unit)?;
        let desk = Desk {
            ledger: self.shared.ledger.clone(),
            handler: self.shared.handler.clone(),
            tracker: self.shared.tracker.clone(),
            confirmed: self.confirmed,
            positions,
        };
        let trail = Arc::new(Trail::default());
        let deadline = Duration::from_millis(self.shared.settings.unit_deadline_ms);
        let mut task = tokio::spawn(unit::run(desk, connection, items, trail.clone()));
        let joined = match tokio::time::timeout(deadline, &mut task).await {
            Ok(joined) => joined,
            Err(_) => {
                task.abort();
                task.await
            }
        };
        match joined {
            Ok(End::Committed(proof, connection)) => {
                self.connection = Some(connection);
                self.confirmed(proof, &trail)
            }
            Ok(End::RolledBack(trouble)) => Err(trouble),
            Ok(End::Unknown(fault)) => self.resolve(&trail, fault).await,
            Err(lost) => {
                let fault = if lost.is_panic() {
                    Fault::poison(format!(
                        "the handler panicked: {}",
                        panic_text(lost.into_panic())
                    ))
                } else {
                    Fault::busy(
                        "the unit passed its deadline (unit_deadline_ms) and was ended with its connection",
                    )
                };
                self.resolve(&trail, fault).await
            }
        }
    }

    async fn connection(&mut self) -> Result<L::Lane, Fault> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => self.shared.ledger.connect(self.id).await,
        }
    }

    fn confirmed(&mut self, proof: Committed, trail: &Trail) -> Result<Done, Trouble> {
        self.confirmed = proof.fence().unit;
        self.busy = 0;
        self.limit = self
            .limit
            .saturating_mul(2)
            .min(self.shared.settings.batch_count_max.max(1));
        self.down = 0;
        self.resume();
        let concluded = trail.take().expect("a unit concludes before it commits");
        Ok((proof, concluded))
    }

    /// A unit whose end was not seen: rolled back if its commit was never sent, else the ledger knows.
    async fn resolve(&mut self, trail: &Trail, fault: Fault) -> Result<Done, Trouble> {
        let Some(fence) = trail.open_commit() else {
            return Err(Trouble::Unit(fault));
        };
        tracing::warn!(consumer = %self.shared.name, lane = self.id.lane, unit = fence.unit, error = %fault, "the commit's outcome is unknown; asking the ledger");
        loop {
            match self.shared.ledger.resolve(fence).await {
                Ok(Resolved::Committed(proof)) => return self.confirmed(proof, trail),
                Ok(Resolved::RolledBack) => return Err(Trouble::Unit(Fault::busy(fault.error))),
                Ok(Resolved::Lost) => {
                    let seen = Fence {
                        unit: fence.unit - 1,
                        ..fence
                    };
                    return Err(Trouble::Unit(lost_commits(seen, self.confirmed)));
                }
                Err(down) if self.shared.is_stopping() => return Err(Trouble::Unit(down)),
                Err(stop) if stop.class == Class::Stop => return Err(Trouble::Unit(stop)),
                Err(down) => self.store_away(&down).await,
            }
        }
    }

    /// Says and settles what a commit proved; then brings back what it woke.
    async fn committed(
        &mut self,
        proof: Committed,
        concluded: Concluded,
        items: Vec<Box<Item<H::Work>>>,
        tickets: Vec<Ticket>,
    ) {
        let Concluded {
            kept,
            conclusion,
            written,
        } = concluded;
        let mut queued: Vec<_> = items.into_iter().zip(tickets).collect();
        for (item, ticket) in queued.drain(kept..).rev() {
            self.waiting.push_front(Queued { item, ticket });
        }
        let slots = queued.iter().filter_map(|(item, _)| item.slot.as_ref());
        self.shared
            .tracker
            .committed(slots, &conclusion.record.positions);
        let mut told = Vec::with_capacity(kept);
        let mut receipts: Vec<Vec<_>> = self.shared.feeds.iter().map(|_| Vec::new()).collect();
        let mut still_underway = Vec::with_capacity(kept);
        {
            let mut summary = self.shared.summary();
            summary.units += 1;
            summary.new_letters += written.new_letters as u64;
            summary.clashes += conclusion.clashes as u64;
            for ((mut item, mut ticket), ending) in queued.into_iter().zip(conclusion.endings) {
                let stub = ticket.stub.take();
                still_underway.push(ticket);
                let Some(ending) = ending else { continue };
                // Large units come of a backlog, where nothing gathers.
                if kept < GATHER_COUNT
                    && !matches!(ending.outcome, Outcome::Dead | Outcome::Parked)
                    && let Some(key) = item.case.key()
                {
                    self.shared.known.add(key);
                }
                if let Some(Stub {
                    feed,
                    receipt,
                    sequence,
                }) = stub
                {
                    summary.count(&ending);
                    receipts[feed].push(receipt.ack(&proof));
                    told.push(ended(feed, sequence, &mut item.case, ending));
                } else if item.case.kind == ClaimKind::Released && ending.outcome != Outcome::Parked
                {
                    *summary.released.entry(ending.outcome).or_default() += 1;
                    self.shared
                        .observer
                        .released(ending.outcome, ending.code.as_ref());
                }
            }
        }
        self.shared.observer.ended(told);
        settle(&self.shared, receipts, &conclusion.record.positions).await;
        self.bring_back(&conclusion.wakes, &conclusion.parked).await;
        drop(still_underway);
    }

    /// Both sides of a wait look for each other after their commits (TRAPS T36); the sweep finds what a
    /// crash in between left.
    async fn bring_back(&mut self, wakes: &[Key], parked: &[Key]) {
        for which in [Which::Awaiting(wakes), Which::Keys(parked)] {
            let (Which::Awaiting(keys) | Which::Keys(keys)) = which else {
                continue;
            };
            if keys.is_empty() {
                continue;
            }
            let room = self.room_for_released();
            if room.count == 0 || room.bytes == 0 {
                continue;
            }
            match self
                .shared
                .ledger
                .parked(self.shared.consumer, which, room)
                .await
            {
                Ok(found) => {
                    for parked in found.into_iter().rev() {
                        if let Some(queued) = released(&self.shared, parked, None) {
                            self.waiting.push_front(queued);
                        }
                    }
                }
                Err(fault) => self.shared.unread(fault, "left to the sweep"),
            }
        }
    }

    /// What is left of the lane's page beside the released messages that wait already. More is left to the sweep.
    fn room_for_released(&self) -> Limit {
        let mut room = page(&self.shared.settings);
        for queued in &self.waiting {
            let case = &queued.item.case;
            if case.kind == ClaimKind::Released {
                room.count = room.count.saturating_sub(1);
                room.bytes = room.bytes.saturating_sub(case.message.size());
            }
        }
        room
    }

    /// What to do when a unit of `count` messages did not commit.
    async fn cope(&mut self, trouble: Trouble, count: usize) {
        match trouble {
            Trouble::Retry(0, fault) => self.attempted(&fault).await,
            // Its neighbours do not wait with it: those before it commit first, and it is asked again after them.
            Trouble::Retry(index, _) => self.limit = index,
            Trouble::Shorter(count) => self.limit = count,
            Trouble::Doomed(doomed) => {
                for (index, why) in doomed {
                    if let Some(queued) = self.waiting.get_mut(index) {
                        queued.item.doom(why);
                    }
                }
            }
            Trouble::Unit(fault) => match fault.class {
                Class::Stop => self.shared.stop(Some(fault)),
                Class::Down => self.store_away(&fault).await,
                Class::Busy => self.store_busy(&fault, count).await,
                // The handler was not asked for anything: no message is to blame, and none would help.
                Class::Retry if self.asks_nothing(count) => self.store_busy(&fault, count).await,
                Class::Poison | Class::Unclassified if self.asks_nothing(count) => {
                    self.shared.stop(Some(Fault::stop(fault.error)));
                }
                Class::Retry if count == 1 => self.attempted(&fault).await,
                Class::Poison | Class::Unclassified if count == 1 => {
                    if let Some(queued) = self.waiting.front_mut() {
                        queued.item.doom(fault.detail());
                    }
                }
                // Some message of the batch breaks the handler as a whole: find it by halves.
                Class::Retry | Class::Poison | Class::Unclassified => {
                    self.limit = (count / 2).max(1)
                }
            },
        }
    }

    fn pause(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.paused, true) {
            self.shared.pause(Cause::Store, reason);
        }
    }

    fn resume(&mut self) {
        if std::mem::take(&mut self.paused) {
            self.shared.resume();
        }
    }

    /// Whether a unit over the first `count` waiting messages has nothing to ask of the handler's `handle`.
    fn asks_nothing(&self, count: usize) -> bool {
        self.waiting
            .iter()
            .take(count)
            .all(|queued| queued.item.doomed.is_some() || queued.item.case.binding.is_err())
    }

    async fn store_busy(&mut self, fault: &Fault, count: usize) {
        tracing::debug!(consumer = %self.shared.name, lane = self.id.lane, error = %fault, "busy; the unit runs again");
        self.limit = (count / 2).max(1);
        if self.busy >= BUSY_TOLD {
            self.pause(&format!(
                "the store is busy, {} times in a row: {fault}",
                self.busy
            ));
        }
        self.shared.back_off(Backoff::BUSY, self.busy).await;
        self.busy = self.busy.saturating_add(1);
    }

    async fn store_away(&mut self, fault: &Fault) {
        self.pause(&format!("the store: {fault}"));
        self.shared.back_off(Backoff::DOWN, self.down).await;
        self.down = self.down.saturating_add(1);
    }

    /// A handler asked to be run again for the first message: count it in the ledger, and end it when its
    /// attempts are used up.
    async fn attempted(&mut self, fault: &Fault) {
        let Some(key) = self
            .waiting
            .front()
            .and_then(|queued| queued.item.case.key())
        else {
            return;
        };
        let attempts = match self.tried.take() {
            // A lane on probation counted this try before it began.
            Some(tried) if tried == key => {
                self.waiting.front().map_or(1, |one| one.item.case.attempts)
            }
            _ => match self.counted(key).await {
                Some(attempts) => attempts,
                None => return,
            },
        };
        let last = attempts >= self.shared.settings.attempts_max;
        if let Some(queued) = self.waiting.front_mut() {
            queued.item.case.attempts = attempts;
            queued.item.counted = false;
            if last {
                queued.item.doomed = Some(format!(
                    "{attempts} attempts failed, the last one with: {fault}"
                ));
            }
        }
        if !last {
            self.shared.back_off(Backoff::HANDLER, attempts - 1).await;
        }
    }

    /// Commits, before the first waiting message runs, that it is tried; one that was tried as often as it may be
    /// and did not live to tell is dead without being run. Says whether the message may go on.
    async fn tries(&mut self) -> bool {
        let front = self.waiting.front().map(|queued| &queued.item);
        let runs = front.filter(|item| item.doomed.is_none());
        let Some(key) = runs.and_then(|item| item.case.key()) else {
            return true;
        };
        if self.tried == Some(key) {
            return true;
        }
        let Some(attempts) = self.counted(key).await else {
            return false;
        };
        self.tried = Some(key);
        let before = attempts - 1;
        if let Some(queued) = self.waiting.front_mut() {
            queued.item.case.attempts = attempts;
            queued.item.counted = true;
            if before >= self.shared.settings.attempts_max {
                queued.item.case.attempts = before;
                queued.item.doomed = Some(format!(
                    "{before} attempts began and did not end: the process ended with the last one"
                ));
            }
        }
        true
    }

    /// One more message of a lane on probation ended well. After the last one the lane is acquitted in the
    /// ledger: its crashes are no longer counted.
    async fn ended_well(&mut self) {
        self.tried = None;
        self.probation -= 1;
        if self.probation > 0 {
            return;
        }
        tracing::info!(consumer = %self.shared.name, lane = self.id.lane, "the lane is trusted again");
        if let Err(fault) = unit::acquit(&*self.shared.ledger, self.id.acquittal()).await {
            tracing::debug!(error = %fault, "the lane's next life begins on probation as well");
        }
    }

    /// Counts an attempt; copes with a ledger that is away.
    async fn counted(&mut self, key: Key) -> Option<u32> {
        match self.count_attempt(key).await {
            Ok(attempts) => return Some(attempts),
            Err(fault) if fault.class == Class::Stop => self.shared.stop(Some(fault)),
            Err(fault) => self.store_away(&fault).await,
        }
        None
    }

    async fn count_attempt(&mut self, key: Key) -> Result<u32, Fault> {
        let connection = self.connection().await?;
        let deadline = Duration::from_millis(self.shared.settings.unit_deadline_ms);
        let mut task = tokio::spawn(unit::attempt(self.shared.ledger.clone(), connection, key));
        let Ok(joined) = tokio::time::timeout(deadline, &mut task).await else {
            task.abort();
            return Err(Fault::down(
                "counting an attempt passed the unit's deadline",
            ));
        };
        let (attempts, proof, connection) =
            joined.map_err(|lost| Fault::down(lost.to_string()))??;
        self.connection = Some(connection);
        self.confirmed = proof.fence().unit;
        self.down = 0;
        self.resume();
        Ok(attempts)
    }

    /// Writes positions that other lanes reached, or only touches the fence.
    async fn unit_without_messages(&mut self, positions: Vec<Reached>) {
        let begun = Instant::now();
        match self.unit(Arc::new(Vec::new()), positions).await {
            Ok((_, concluded)) => {
                self.tell(begun.elapsed(), &concluded);
                self.shared
                    .tracker
                    .committed(std::iter::empty(), &concluded.conclusion.record.positions);
                let nothing = self.shared.feeds.iter().map(|_| Vec::new()).collect();
                settle(
                    &self.shared,
                    nothing,
                    &concluded.conclusion.record.positions,
                )
                .await;
            }
            Err(trouble) => self.cope(trouble, 0).await,
        }
    }

    /// Gives back what was not begun, and deletes the fence row of this life.
    async fn leave(mut self) {
        self.queue.close();
        while let Ok(queued) = self.queue.try_recv() {
            self.waiting.push_back(queued);
        }
        let mut receipts: Vec<Vec<_>> = self.shared.feeds.iter().map(|_| Vec::new()).collect();
        for queued in self.waiting.drain(..) {
            if let Some(stub) = queued.ticket.stub {
                let partition = &queued.item.case.message.position.partition;
                self.shared
                    .observer
                    .passed(stub.feed, partition, stub.sequence);
                receipts[stub.feed].push(stub.receipt);
            }
        }
        for (feed, receipts) in receipts.into_iter().enumerate() {
            give_back(&self.shared, feed, receipts.into_iter()).await;
        }
        self.resume();
        if let Some(connection) = self.connection.take()
            && let Err(fault) = self.shared.ledger.leave(connection).await
        {
            tracing::debug!(error = %fault, "the fence row stays; it will look like a crashed life's");
        }
    }
}

/// A parked message as an ordinary message of a lane. One that no longer binds to its key stays parked for an
/// operator (`None`) until its deadline, and is a dead letter then.
pub(crate) fn released<L: Ledger, H: Handler<L::Unit>>(
    shared: &Shared<L, H>,
    parked: Parked,
    watch: Option<Arc<tokio::sync::oneshot::Sender<()>>>,
) -> Option<Queued<H::Work>> {
    let (mut binding, _) = bind::<L::Unit, H>(&*shared.handler, &parked.message, usize::MAX);
    let binds = binding.as_ref().is_ok_and(|(b, _)| b.key == parked.key);
    if !binds && !parked.last {
        if shared.is_news(parked.key) {
            tracing::error!(key = %parked.key, "a parked message no longer binds to its key, so it stays parked and is dead at its deadline; undo the change of the key rules, or look at it with `semel parked list`");
        }
        return None;
    }
    if !binds {
        binding = Err(Reject {
            code: codes::PARKED_TOO_LONG,
            detail: "it no longer binds to its key, since the key rules were changed while it was parked; send it again"
                .to_owned(),
            field: None,
        });
    }
    let case = Case {
        message: parked.message,
        source: parked.source,
        binding,
        unbound: (!binds).then_some((parked.key, parked.id)),
        kind: ClaimKind::Released,
        replay: false,
        last: parked.last,
        attempts: parked.attempts,
    };
    let ticket = Ticket {
        stub: None,
        _underway: shared.outstanding.begin(),
        _permit: None,
        _watch: watch,
    };
    Some(Queued {
        item: Box::new(Item {
            case,
            slot: None,
            doomed: None,
            counted: false,
        }),
        ticket,
    })
}

/// Settles what a commit proved, source by source.
async fn settle<L, H>(
    shared: &Shared<L, H>,
    receipts: Vec<Vec<semel_core::source::Settlement>>,
    positions: &[Reached],
) {
    for (index, (feed, receipts)) in shared.feeds.iter().zip(receipts).enumerate() {
        let positions: Vec<_> = positions
            .iter()
            .filter(|p| p.source == feed.id)
            .cloned()
            .collect();
        if receipts.is_empty() && positions.is_empty() {
            continue;
        }
        let count = receipts.len();
        let lost = match feed
            .source
            .settle(Settlements {
                receipts,
                positions,
            })
            .await
        {
            Ok(settled) => settled.lost,
            Err(fault) => {
                tracing::debug!(source = %feed.name, error = %fault, "acks may be lost; the ledger knows");
                count
            }
        };
        if lost > 0 {
            shared.summary().lost_acks += lost as u64;
            shared.observer.lost_acks(index, lost as u64);
        }
    }
}

/// What is told of a case. It gives its id away, and stays where it is: it is large.
fn ended<W>(
    feed: usize,
    sequence: u64,
    case: &mut Case<W>,
    ending: semel_core::law::Ending,
) -> Ended {
    let binding = case.binding.as_mut().ok();
    let id = binding.map(|(binding, _)| std::mem::take(&mut binding.id));
    Ended {
        source: feed,
        sequence,
        partition: case.message.position.partition.clone(),
        offset: case.message.position.offset,
        id,
        key: case.key(),
        ending,
        redelivered: case.replay || case.message.attempt > 1,
    }
}

pub(crate) fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a text".to_owned())
}

#[cfg(test)]
mod tests {
    use semel_core::Message;
    use semel_core::fingerprint::{FieldSums, Fingerprint, Scheme};
    use semel_core::law::Binding;
    use semel_core::ledger::{ConsumerId, Instance, SourceId};
    use semel_storm::{SimLedger, SimSource};
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;
    use crate::observe::Deaf;
    use crate::toy::{self, Mute};

    const WAIT: Duration = Duration::from_millis(4);

    /// A lane that gathers copies of key 1 for a while, and its queue.
    fn gathering() -> (Lane<SimLedger, Mute>, UnboundedSender<Queued<()>>) {
        let (sender, queue) = unbounded_channel();
        let shared = toy::shared(&SimSource::new(1), Arc::new(Deaf));
        shared.known.add(key(1));
        let id = LaneId {
            consumer: ConsumerId(1),
            instance: Instance([1; 16]),
            lane: 0,
        };
        let mut lane = Lane::new(shared, id, queue, false);
        lane.gathers_until = Instant::now() + WAIT;
        (lane, sender)
    }

    fn key(number: u8) -> Key {
        Key::from_bytes([number; 16])
    }

    fn queued(lane: &Lane<SimLedger, Mute>, number: u8) -> Queued<()> {
        let binding = Binding {
            key: key(number),
            id: number.to_string(),
            fingerprint: Fingerprint::of_bytes(b""),
            scheme: Scheme::NONE,
            sums: FieldSums::default(),
        };
        let case = Case {
            message: Message::new("", "p", None),
            source: SourceId(1),
            binding: Ok((binding, ())),
            unbound: None,
            kind: ClaimKind::New,
            replay: false,
            last: false,
            attempts: 0,
        };
        Queued {
            item: Box::new(Item {
                case,
                slot: None,
                doomed: None,
                counted: false,
            }),
            ticket: Ticket {
                stub: None,
                _underway: lane.shared.outstanding.begin(),
                _permit: None,
                _watch: None,
            },
        }
    }

    /// How long the lane waits for its next unit, and how many messages that has.
    async fn filled(lane: &mut Lane<SimLedger, Mute>) -> (Duration, usize) {
        let begun = Instant::now();
        assert!(lane.fill().await);
        (begun.elapsed(), lane.waiting.len())
    }

    #[tokio::test(start_paused = true)]
    async fn copies_alone_wait_for_more_of_them_until_the_gathering_is_over() {
        let (mut lane, sender) = gathering();
        sender
            .send(queued(&lane, 1))
            .unwrap_or_else(|_| panic!("open"));
        sender
            .send(queued(&lane, 1))
            .unwrap_or_else(|_| panic!("open"));
        // Its clock counts in milliseconds, and rounds up.
        let (took, count) = filled(&mut lane).await;
        assert!(
            took >= WAIT && took <= WAIT + Duration::from_millis(1),
            "{took:?}"
        );
        assert_eq!(count, 2);
        lane.waiting.clear();
        sender
            .send(queued(&lane, 1))
            .unwrap_or_else(|_| panic!("open"));
        assert_eq!(
            filled(&mut lane).await,
            (Duration::ZERO, 1),
            "the wait is over"
        );
    }

    #[tokio::test]
    async fn what_is_committed_is_known() {
        let (mut lane, sender) = gathering();
        sender
            .send(queued(&lane, 7))
            .unwrap_or_else(|_| panic!("open"));
        assert!(lane.fill().await);
        lane.deliver().await;
        assert!(lane.waiting.is_empty() && lane.shared.known.has(key(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_fresh_never_waits_for_copies_and_takes_them_with_it() {
        let (mut lane, sender) = gathering();
        sender
            .send(queued(&lane, 2))
            .unwrap_or_else(|_| panic!("open"));
        assert_eq!(filled(&mut lane).await, (Duration::ZERO, 1));
        lane.waiting.clear();
        for number in [1, 1, 2] {
            sender
                .send(queued(&lane, number))
                .unwrap_or_else(|_| panic!("open"));
        }
        assert_eq!(filled(&mut lane).await, (Duration::ZERO, 3));
        lane.waiting.clear();
        sender
            .send(queued(&lane, 1))
            .unwrap_or_else(|_| panic!("open"));
        let late = queued(&lane, 2);
        let sent = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            sender.send(late).unwrap_or_else(|_| panic!("open"));
        });
        assert_eq!(filled(&mut lane).await, (Duration::from_millis(2), 2));
        sent.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_dense_stream_more_come_to_share_a_unit_unless_it_is_full() {
        let (mut lane, sender) = gathering();
        let late = queued(&lane, 255);
        for number in 0..=u8::try_from(DENSE_COUNT).unwrap() {
            sender
                .send(queued(&lane, number))
                .unwrap_or_else(|_| panic!("open"));
        }
        lane.take_queued(1);
        lane.deliver().await;
        let sent = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            sender.send(late).unwrap_or_else(|_| panic!("open"));
            sender
        });
        let all = LINGER_LOOK * u32::try_from(LINGER_LOOKS).unwrap();
        assert_eq!(filled(&mut lane).await, (all, DENSE_COUNT + 1));
        let sender = sent.await.unwrap();
        lane.waiting.clear();
        let fresh = queued(&lane, 254);
        sender.send(fresh).unwrap_or_else(|_| panic!("open"));
        assert_eq!(filled(&mut lane).await, (Duration::ZERO, 1), "not dense");

        let waited = async |lane: &mut Lane<SimLedger, Mute>, room| {
            let begun = Instant::now();
            lane.linger(room).await;
            begun.elapsed()
        };
        assert_eq!(waited(&mut lane, 1).await, Duration::ZERO, "full");
        assert_eq!(waited(&mut lane, 9).await, LINGER_LOOK, "nothing comes");
        lane.shared.stop(None);
        assert_eq!(waited(&mut lane, 9).await, Duration::ZERO, "stopped");
    }

    #[tokio::test(start_paused = true)]
    async fn many_copies_are_enough_and_a_stop_ends_the_wait() {
        let (mut lane, sender) = gathering();
        for _ in 0..GATHER_COUNT {
            sender
                .send(queued(&lane, 1))
                .unwrap_or_else(|_| panic!("open"));
        }
        assert_eq!(filled(&mut lane).await, (Duration::ZERO, GATHER_COUNT));
        lane.waiting.clear();
        sender
            .send(queued(&lane, 1))
            .unwrap_or_else(|_| panic!("open"));
        lane.shared.stop(None);
        let begun = Instant::now();
        lane.gather(GATHER_COUNT).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
