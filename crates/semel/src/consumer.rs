//! A consumer: the named pairing of sources, a ledger and a handler. Starts the tasks, watches for
//! idleness and the word to stop, sweeps what is parked, and sums up.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel_core::ledger::{
    Enrolled, Enrolment, Instance, LaneId, Ledger, Parked, Reached, SourceId, Which,
};
use semel_core::source::{BoxFuture, Positions, SharedSource};
use semel_core::{Backoff, Class, Fault, Message, Source};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::handler::{Bound, Handler};
use crate::intake::{Intake, Queued, Ticket};
use crate::lane::{Lane, RELEASE_COUNT_MAX, page, panic_text, released};
use crate::observe::{Cause, Deaf, Observer, Summary};
use crate::settings::Settings;
use crate::shared::{Feed, Flow, Shared, lock};
use crate::unit::Item;

/// Messages that the handler itself finds due, such as the expiry of a hold. Looked for with each sweep.
pub trait Sweeper<W>: Send + Sync {
    /// What is due by the database's clock, at most `limit`. A message that is found twice is applied
    /// once: it has a key like any other.
    ///
    /// # Errors
    /// The store's fault; the next sweep asks again.
    fn due(&self, limit: usize) -> BoxFuture<'_, Result<Due<W>, Fault>>;
}

/// Messages that are due, bound to their operations.
pub type Due<W> = Vec<(Message, Bound<W>)>;

/// How often the handler is told the database's time.
const CLOCK: Duration = Duration::from_secs(1);

/// How long a sweep waits for the lanes. One that takes longer is left alone until it is done; the others are swept.
const PATIENCE: Duration = Duration::from_secs(5);

/// A consumer's sweeper, if it has one.
type MaybeSweeper<W> = Option<Arc<dyn Sweeper<W>>>;

/// A consumer that is not yet known to its ledger. See [`Consumer::builder`].
pub struct Builder<L: Ledger, H: Handler<L::Unit>> {
    name: String,
    ledger: Arc<L>,
    handler: Arc<H>,
    settings: Settings,
    sources: Vec<String>,
    observer: Arc<dyn Observer>,
    sweeper: MaybeSweeper<H::Work>,
}

/// A consumer that its ledger knows. Attach its sources, then run it.
pub struct Consumer<L: Ledger, H: Handler<L::Unit>> {
    parts: Builder<L, H>,
    enrolled: Enrolled,
    attached: HashMap<String, SharedSource>,
}

impl<L: Ledger, H: Handler<L::Unit>> Builder<L, H> {
    /// The settings.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The names of the sources: one operation may arrive by several, they share one ledger scope.
    #[must_use]
    pub fn sources<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.sources.extend(names.into_iter().map(Into::into));
        self
    }

    /// Who listens.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// What finds messages due by the handler's own clock.
    #[must_use]
    pub fn sweeper(mut self, sweeper: Arc<dyn Sweeper<H::Work>>) -> Self {
        self.sweeper = Some(sweeper);
        self
    }

    /// Registers the consumer with its ledger.
    ///
    /// # Errors
    /// `Stop` when the name has another owner or its key rules changed; `Down` when the ledger cannot be
    /// reached.
    pub async fn enroll(self) -> Result<Consumer<L, H>, Fault> {
        let enrolment = Enrolment {
            consumer: self.name.clone(),
            handler: self.handler.name().to_owned(),
            rules: self.handler.rules(),
            sources: self.sources.clone(),
            accept_key_change: self.settings.accept_key_change,
        };
        let enrolled = self.ledger.enroll(&enrolment).await?;
        self.handler.told_time(enrolled.now_ms);
        Ok(Consumer {
            parts: self,
            enrolled,
            attached: HashMap::new(),
        })
    }
}

impl<L: Ledger, H: Handler<L::Unit>> Consumer<L, H> {
    /// Begins a consumer named `name`.
    pub fn builder(name: impl Into<String>, ledger: Arc<L>, handler: Arc<H>) -> Builder<L, H> {
        Builder {
            name: name.into(),
            ledger,
            handler,
            settings: Settings::default(),
            sources: Vec::new(),
            observer: Arc::new(Deaf),
            sweeper: None,
        }
    }

    /// What the ledger knows this consumer by.
    #[must_use]
    pub const fn enrolled(&self) -> &Enrolled {
        &self.enrolled
    }

    /// The stored positions of a source, to open it with.
    ///
    /// # Panics
    /// When the name was not given to [`Builder::sources`].
    #[must_use]
    pub fn positions(&self, source: &str) -> Arc<LedgerPositions<L>> {
        let id = self.source_id(source);
        Arc::new(LedgerPositions::new(
            self.parts.ledger.clone(),
            self.enrolled.consumer,
            id,
        ))
    }

    /// Attaches an opened source.
    ///
    /// # Panics
    /// When the name was not given to [`Builder::sources`].
    #[must_use]
    pub fn attach(mut self, name: &str, source: Arc<dyn Source>) -> Self {
        self.source_id(name);
        self.attached.insert(name.to_owned(), source);
        self
    }

    fn source_id(&self, name: &str) -> SourceId {
        let index = self.parts.sources.iter().position(|known| known == name);
        self.enrolled.sources[index.unwrap_or_else(|| panic!("source `{name}` was not enrolled"))]
    }

    /// Runs until `shutdown` is ready (then the units under way end and the rest is given back), until
    /// every source has ended, or, with `until_idle`, until nothing is left to do.
    ///
    /// # Errors
    /// `Down` when the ledger cannot be reached before anything was consumed; `Stop` when going on could
    /// damage data. Once running, an outage is waited for.
    ///
    /// If the future is dropped, units under way still run to their end in their tasks, and nothing is
    /// acked for them.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<Summary, Fault> {
        match self.summed_up(shutdown).await {
            (_, Some(fault)) => Err(fault),
            (summary, None) => Ok(summary),
        }
    }

    /// As [`Consumer::run`], and sums up what was done before a fault as well.
    pub async fn summed_up(
        self,
        shutdown: impl Future<Output = ()> + Send,
    ) -> (Summary, Option<Fault>) {
        let started = Instant::now();
        let enrolled = self.enrolled.clone();
        let (shared, sweeper) = self.share();
        let fault = match work(&shared, sweeper, &enrolled, started, shutdown).await {
            Ok(()) => shared.take_fault(),
            Err(fault) => Some(fault),
        };
        let mut summary = shared.summary().clone();
        summary.elapsed = started.elapsed();
        (summary, fault)
    }

    fn share(mut self) -> (Arc<Shared<L, H>>, MaybeSweeper<H::Work>) {
        let feeds = self
            .parts
            .sources
            .iter()
            .zip(&self.enrolled.sources)
            .filter_map(|(name, id)| {
                let source = self.attached.remove(name)?;
                Some(Feed {
                    name: name.clone(),
                    id: *id,
                    source,
                    flow: Flow::Open.into(),
                })
            })
            .collect();
        let Builder {
            name,
            ledger,
            handler,
            settings,
            observer,
            sweeper,
            ..
        } = self.parts;
        let shared = Shared::new(
            name,
            (ledger, handler),
            settings,
            self.enrolled.consumer,
            feeds,
            observer,
        );
        (Arc::new(shared), sweeper)
    }
}

/// Starts the tasks, waits for the word to stop or for nothing to be left, and sees the tasks end.
async fn work<L: Ledger, H: Handler<L::Unit>>(
    shared: &Arc<Shared<L, H>>,
    sweeper: MaybeSweeper<H::Work>,
    enrolled: &Enrolled,
    started: Instant,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Fault> {
    let instance = instance(&shared.settings);
    let mut lanes = Vec::new();
    let mut tasks = JoinSet::new();
    for lane in 0..shared.settings.lanes.clamp(1, 64) {
        let lane = i16::try_from(lane).expect("at most 64");
        let id = LaneId {
            consumer: enrolled.consumer,
            instance,
            lane,
        };
        let (sender, queue) = unbounded_channel();
        lanes.push(sender);
        let suspect = enrolled.suspects.contains(&lane);
        let mut lane = Lane::new(shared.clone(), id, queue, suspect);
        lane.open().await?;
        tasks.spawn(lane.run());
    }
    tokio::pin!(shutdown);
    let intakes = tokio::select! {
        biased;
        () = &mut shutdown => None,
        () = shared.stopped() => None,
        intakes = intakes(shared, &lanes) => Some(intakes?),
    };
    let Some(intakes) = intakes else {
        shared.stop(None);
        joined(shared, &mut tasks).await;
        return Ok(());
    };
    for intake in intakes {
        tasks.spawn(intake.run());
    }
    shared.started();
    let desk = Sweep {
        shared: shared.clone(),
        behind: Mutex::new(lanes.iter().map(|_| None).collect()),
        lanes,
        sweeper,
        now_ms: enrolled.now_ms,
        started,
    };
    tokio::select! {
        biased;
        () = &mut shutdown => {}
        () = shared.stopped() => {}
        () = watch(shared, &mut tasks) => {}
        () = desk.tell_time() => {}
        () = desk.run() => {}
    }
    shared.stop(None);
    joined(shared, &mut tasks).await;
    Ok(())
}

/// Sees tasks end. Ready only when the word to stop is said: a consumer with nothing but a sweep goes on.
async fn watch<L, H>(shared: &Shared<L, H>, tasks: &mut JoinSet<()>) {
    joined(shared, tasks).await;
    shared.stopped().await;
}

/// Waits for every task. One that panicked stops the consumer, which else would look alive without it.
async fn joined<L, H>(shared: &Shared<L, H>, tasks: &mut JoinSet<()>) {
    while let Some(joined) = tasks.join_next().await {
        if let Err(lost) = joined
            && lost.is_panic()
        {
            shared.stop(Some(Fault::stop(format!(
                "a task of the consumer panicked: {}; what it held is not acked and comes again",
                panic_text(lost.into_panic())
            ))));
        }
    }
}

type Lanes<W> = [UnboundedSender<Queued<W>>];

async fn intakes<L: Ledger, H: Handler<L::Unit>>(
    shared: &Arc<Shared<L, H>>,
    lanes: &Lanes<H::Work>,
) -> Result<Vec<Intake<L, H>>, Fault> {
    let mut intakes = Vec::new();
    for (feed, source) in shared.feeds.iter().enumerate() {
        let stored = stored(shared, source.id).await?;
        intakes.push(Intake {
            shared: shared.clone(),
            feed,
            lanes: lanes.to_vec(),
            stored: stored
                .into_iter()
                .map(|reached| (reached.partition, reached.next))
                .collect(),
            partitions: HashMap::new(),
        });
    }
    Ok(intakes)
}

/// The positions of a source; a store that is away is waited for.
async fn stored<L: Ledger, H>(
    shared: &Shared<L, H>,
    source: SourceId,
) -> Result<Vec<Reached>, Fault> {
    let mut tries: u32 = 0;
    loop {
        let answered = shared.ledger.positions(shared.consumer, source).await;
        match answered {
            Err(fault) if matches!(fault.class, Class::Down | Class::Busy) => {
                if tries == 0 {
                    shared.pause(Cause::Store, &format!("the store: {fault}"));
                }
                shared.back_off(Backoff::DOWN, tries).await;
                tries = tries.saturating_add(1);
            }
            answered => {
                if tries > 0 {
                    shared.resume();
                }
                return answered;
            }
        }
    }
}

fn instance(settings: &Settings) -> Instance {
    let mut id = [0; 16];
    for part in id.chunks_exact_mut(4) {
        part.copy_from_slice(&(settings.dice)().to_be_bytes());
    }
    Instance(id)
}

/// Brings back what is due, and notices when nothing is left.
struct Sweep<L: Ledger, H: Handler<L::Unit>> {
    shared: Arc<Shared<L, H>>,
    lanes: Vec<UnboundedSender<Queued<H::Work>>>,
    /// By lane: ready when what the sweep sent it last has ended.
    behind: Mutex<Vec<Option<oneshot::Receiver<()>>>>,
    sweeper: MaybeSweeper<H::Work>,
    now_ms: u64,
    started: Instant,
}

impl<L: Ledger, H: Handler<L::Unit>> Sweep<L, H> {
    /// Returns when every source has ended and nothing is under way, or when the consumer is idle and
    /// told to return then.
    async fn run(&self) {
        let interval = Duration::from_millis(self.shared.settings.sweep_interval_ms.max(1));
        loop {
            let tick = tokio::time::sleep(interval);
            tokio::select! {
                biased;
                () = self.idle() => {
                    if self.shared.settings.until_idle {
                        if self.last_pass().await {
                            return;
                        }
                    } else {
                        return;
                    }
                }
                () = tick => {
                    self.due().await;
                    self.due_by_handler(Some(PATIENCE)).await;
                }
            }
        }
    }

    /// Tells the handler the database's time for ever, whatever the lanes do.
    async fn tell_time(&self) {
        loop {
            tokio::time::sleep(CLOCK).await;
            let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.shared
                .handler
                .told_time(self.now_ms.saturating_add(elapsed));
        }
    }

    /// Brings back what is due, page by page, so that messages which cannot be brought back hide no others.
    async fn due(&self) {
        let mut after = None;
        while let Page::Upto(last) = self.pass(Which::Due(after), Some(PATIENCE)).await {
            after = Some(last);
        }
    }

    /// Waits until nothing is left: of a consumer that is to return when idle, or whose sources ended.
    async fn idle(&self) {
        loop {
            let changed = self.shared.outstanding.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.shared.is_idle() && (self.shared.settings.until_idle || self.all_ended()) {
                return;
            }
            changed.await;
        }
    }

    fn all_ended(&self) -> bool {
        self.shared
            .feeds
            .iter()
            .all(|feed| *lock(&feed.flow) == Flow::Ended)
    }

    /// Tries everything parked once more, page by page, and what the handler finds due, until a pass ends
    /// nothing. Returns whether the consumer is still idle.
    async fn last_pass(&self) -> bool {
        loop {
            let before = self.ended_so_far();
            let mut after = None;
            loop {
                match self.pass(Which::After(after), None).await {
                    Page::Empty => break,
                    Page::Upto(last) => after = Some(last),
                    Page::Unread => {
                        self.shared.back_off(semel_core::Backoff::DOWN, 0).await;
                        return false;
                    }
                }
            }
            let mut first = None;
            // A full page that looks like the one before it did not end: it is left to the next run.
            while let Some(next) = self.due_by_handler(None).await
                && first != Some(next)
            {
                first = Some(next);
            }
            if self.ended_so_far() == before {
                return self.shared.is_idle();
            }
        }
    }

    fn ended_so_far(&self) -> u64 {
        let summary = self.shared.summary();
        summary.released.values().sum::<u64>()
    }

    /// Sends a page of parked messages through the lanes and waits for their end, but no longer than `patience`.
    async fn pass(&self, which: Which<'_>, patience: Option<Duration>) -> Page {
        let parked = match self
            .shared
            .ledger
            .parked(self.shared.consumer, which, page(&self.shared.settings))
            .await
        {
            Ok(parked) => parked,
            Err(fault) => {
                self.shared
                    .unread(fault, "the sweep could not look; it looks again");
                return Page::Unread;
            }
        };
        let Some(last) = parked.last().map(|parked: &Parked| parked.key) else {
            return Page::Empty;
        };
        let watches = self.watches();
        for parked in parked {
            let lane = self.lane_of(parked.key);
            if let Some(watch) = &watches[lane]
                && let Some(queued) = released(&self.shared, parked, Some(watch.clone()))
            {
                let _ = self.lanes[lane].send(queued);
            }
        }
        self.wait(watches, patience).await;
        Page::Upto(last)
    }

    /// Sends what the handler finds due through the lanes and waits for its end, but no longer than `patience`.
    /// Returns the first key of a full page: there may be more.
    async fn due_by_handler(&self, patience: Option<Duration>) -> Option<semel_core::Key> {
        let sweeper = self.sweeper.as_ref()?;
        let due = match sweeper.due(RELEASE_COUNT_MAX).await {
            Ok(due) => due,
            Err(fault) => {
                self.shared
                    .unread(fault, "the handler's sweep could not look; it looks again");
                return None;
            }
        };
        let full = due.len() >= RELEASE_COUNT_MAX;
        let first = due.first().map(|(_, bound)| bound.binding.key);
        let watches = self.watches();
        for (message, bound) in due {
            let lane = self.lane_of(bound.binding.key);
            if let Some(watch) = &watches[lane] {
                let queued = internal(&self.shared, message, bound, watch.clone());
                let _ = self.lanes[lane].send(queued);
            }
        }
        self.wait(watches, patience).await;
        first.filter(|_| full)
    }

    fn lane_of(&self, key: semel_core::Key) -> usize {
        usize::from(key.as_bytes()[15]) % self.lanes.len()
    }

    /// By lane a watch for what is sent to it next; none for a lane that still has what it was sent before: it would
    /// only be given the same again.
    fn watches(&self) -> Vec<MaybeWatch> {
        let mut behind = lock(&self.behind);
        let mut watches = Vec::with_capacity(behind.len());
        for slot in behind.iter_mut() {
            let busy = slot
                .as_mut()
                .is_some_and(|done| done.try_recv() == Err(oneshot::error::TryRecvError::Empty));
            watches.push((!busy).then(|| {
                let (watch, done) = oneshot::channel();
                *slot = Some(done);
                Arc::new(watch)
            }));
        }
        watches
    }

    /// Waits until what was sent with `watches` has ended.
    async fn wait(&self, watches: Vec<MaybeWatch>, patience: Option<Duration>) {
        let sent: Vec<bool> = watches.iter().map(Option::is_some).collect();
        drop(watches);
        let mut behind = std::mem::take(&mut *lock(&self.behind));
        let ended = async {
            for (slot, _) in behind.iter_mut().zip(sent).filter(|(_, sent)| *sent) {
                if let Some(done) = slot {
                    // Never sent: it is ready when the last of the lane's messages was dropped.
                    let _ = done.await;
                    *slot = None;
                }
            }
        };
        match patience {
            Some(patience) => {
                let _ = tokio::time::timeout(patience, ended).await;
            }
            None => ended.await,
        }
        *lock(&self.behind) = behind;
    }
}

/// What a lane's share of a sweep holds until it has ended.
type MaybeWatch = Option<Arc<oneshot::Sender<()>>>;

enum Page {
    Empty,
    Upto(semel_core::Key),
    Unread,
}

fn internal<L, H, U>(
    shared: &Shared<L, H>,
    message: Message,
    bound: Bound<H::Work>,
    watch: Arc<oneshot::Sender<()>>,
) -> Queued<H::Work>
where
    H: Handler<U>,
{
    let case = semel_core::law::Case {
        message,
        source: INTERNAL,
        binding: Ok((bound.binding, bound.work)),
        unbound: None,
        kind: semel_core::ledger::ClaimKind::New,
        replay: false,
        last: false,
        attempts: 0,
    };
    let ticket = Ticket {
        stub: None,
        _underway: shared.outstanding.begin(),
        _permit: None,
        _watch: Some(watch),
    };
    Queued {
        item: Box::new(Item {
            case,
            slot: None,
            doomed: None,
            counted: false,
        }),
        ticket,
    }
}

/// The source number of messages that Semel makes itself.
pub const INTERNAL: SourceId = SourceId(0);

/// Positions of one source, read from the ledger.
#[derive(Debug)]
pub struct LedgerPositions<L> {
    ledger: Arc<L>,
    consumer: semel_core::ledger::ConsumerId,
    source: SourceId,
}

impl<L> LedgerPositions<L> {
    /// Positions of `source` as `consumer` has stored them.
    #[must_use]
    pub const fn new(
        ledger: Arc<L>,
        consumer: semel_core::ledger::ConsumerId,
        source: SourceId,
    ) -> Self {
        Self {
            ledger,
            consumer,
            source,
        }
    }
}

impl<L: Ledger> Positions for LedgerPositions<L> {
    fn reached(&self, partition: &str) -> BoxFuture<'_, Result<Option<Reached>, Fault>> {
        let partition = partition.to_owned();
        Box::pin(async move {
            let stored = self.ledger.positions(self.consumer, self.source).await?;
            Ok(stored
                .into_iter()
                .find(|reached| *reached.partition == *partition))
        })
    }
}
