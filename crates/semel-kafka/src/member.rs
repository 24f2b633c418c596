//! The client's own thread: polls, starts partitions, tells the broker what is reached, follows rebalances.
//! Polling never waits for work: when the buffer stays full, fetching is paused and polling goes on
//! (TRAPS T54). What it waits for is the drain of a revoke, which is bounded, and the broker's answer to a commit: the
//! library gives that up after the session's timeout at the latest, and none is sent while no broker answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use semel_core::Fault;
use tokio::runtime::Handle;

use crate::assignment::{Index, Phase, Start};
use crate::complaint::Complaints;
use crate::fault::{classify, is_away};
use crate::orphans::Orphans;
use crate::probe::signed;
use crate::record::Limits;
use crate::shared::{Shared, Trouble};
use crate::turn::Turn;
use crate::verdict::Word;
use crate::vetting::{Subject, Vetting, blocking};
use crate::{options, quiet, watch};

/// The longest the thread sleeps in the client: how late it sees a position to tell when nothing comes.
const POLL: Duration = Duration::from_millis(100);
/// While a partition is being compared or started.
const POLL_SOON: Duration = Duration::from_millis(5);
/// A full buffer is waited for so long before fetching is paused: a pause throws away what the library has
/// fetched, so a short one is dear.
const FULL: Duration = Duration::from_millis(500);
/// The answer to a nudge is waited for so long: a thread that is woken has done its part by then.
const NUDGE: Duration = Duration::from_millis(100);
/// Records taken before the rest of the loop has its turn.
const TURN_COUNT_MAX: usize = 1_000;
/// Everything handed out is settled, and the position that says so is still with an idle lane: its unit
/// follows at once. After this it is the next owner's redelivery.
const LATE_POSITION: Duration = Duration::from_millis(250);
/// A group that gives no answer for so long waits for a member that died: an operator must not take that for a hang.
const GROUP_SLOW: Duration = Duration::from_secs(3);
/// How often a lost broker is looked for.
const KNOCK: Duration = Duration::from_secs(1);
/// Whether a partition is at its end is asked again after this long where the broker did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What the thread is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tuning {
    pub(crate) limits: Limits,
    pub(crate) buffer_bytes_max: usize,
    pub(crate) commit_interval: Duration,
    pub(crate) drain: Duration,
    pub(crate) timeout: Duration,
    pub(crate) session_timeout: Duration,
}

/// Makes a client that asks to join the group. Its context must be a new one: complaints are of one client.
pub(crate) fn join(config: &ClientConfig, context: Context) -> Result<Client, Fault> {
    let topics = context.topics.clone();
    if let Some(orphans) = &context.orphans {
        context.shared.lock().assignment.owners_unseen();
        context.runtime.spawn(orphans.clone().run());
    }
    let client: Client = options::create(config.create_with_context(context))?;
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    client
        .subscribe(&topics)
        .map_err(|error| classify("subscribing", &error))?;
    Ok(client)
}

/// The client with its callbacks.
pub(crate) type Client = BaseConsumer<Context>;

/// What the callbacks see. They run on the client's thread, inside `poll`.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) vetting: Vetting,
    /// Of a static member that shares cooperatively.
    pub(crate) orphans: Option<Orphans>,
    pub(crate) runtime: Handle,
    pub(crate) tuning: Tuning,
    /// What is subscribed to.
    pub(crate) topics: Vec<String>,
    pub(crate) complaints: Complaints,
}

impl Context {
    /// For the next client of the same member.
    fn renewed(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            vetting: self.vetting.clone(),
            orphans: self.orphans.clone(),
            runtime: self.runtime.clone(),
            tuning: self.tuning,
            topics: self.topics.clone(),
            complaints: Complaints::default(),
        }
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        // What is fatal to the library's client comes out of `poll` too, and is judged there.
        let level = if facility == "FATAL" {
            RDKafkaLogLevel::Info
        } else {
            level
        };
        quiet::trace(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka client");
        self.complaints.hear(error.rdkafka_error_code(), reason);
        if error.rdkafka_error_code().is_some_and(is_away) {
            let told = self.complaints.told();
            let told = told.as_deref().unwrap_or(reason);
            self.shared.trouble(
                Trouble::Broker,
                format!("kafka: the broker is away: {told}"),
            );
        }
    }

    fn stats(&self, statistics: Statistics) {
        let mut state = self.shared.lock();
        for topic in statistics.topics.values() {
            for (number, partition) in &topic.partitions {
                // Behind the last finished transaction where the library knows it, else the last record.
                let end = if partition.ls_offset >= 0 {
                    partition.ls_offset
                } else {
                    partition.hi_offset
                };
                if let Ok(end) = u64::try_from(end) {
                    state.assignment.end_is(&topic.topic, *number, end);
                }
            }
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, client: &Client, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        if matches!(what, RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
            if let Err(error) = self.assigned(client, list) {
                // The group takes them for ours, so nobody else would read them.
                self.shared
                    .fail(format!("kafka: partitions could not be taken: {error}"));
            }
        } else if let Err(error) = self.revoked(client, list) {
            tracing::warn!(%error, "kafka: a rebalance was not followed; the group will try again");
        }
    }
}

impl Context {
    /// Takes partitions, paused: they start when they are compared.
    fn assigned(&self, client: &Client, given: &TopicPartitionList) -> KafkaResult<()> {
        let mut list = given.clone();
        list.set_all_offsets(Offset::Offset(0))?;
        let indices = self.indices(given);
        self.shared.lock().assignment.assign(&indices);
        match client.rebalance_protocol() {
            RebalanceProtocol::Cooperative => client.incremental_assign(&list)?,
            RebalanceProtocol::Eager | RebalanceProtocol::None => client.assign(&list)?,
        }
        if list.count() > 0 {
            client.pause(&list)?;
        }
        self.vet(&indices);
        self.shared.wake();
        Ok(())
    }

    fn indices(&self, list: &TopicPartitionList) -> Vec<Index> {
        let mut state = self.shared.lock();
        list.elements()
            .iter()
            .map(|e| state.assignment.index(e.topic(), e.partition()).0)
            .collect()
    }

    /// Compares these, beside this thread.
    fn vet(&self, indices: &[Index]) {
        let state = self.shared.lock();
        let subjects: Vec<_> = indices
            .iter()
            .filter_map(|index| {
                let partition = state.assignment.get(*index)?;
                Some(Subject {
                    index: *index,
                    generation: partition.generation,
                    place: (partition.topic.to_string(), partition.number),
                    name: partition.name.clone(),
                })
            })
            .collect();
        drop(state);
        if !subjects.is_empty() {
            self.runtime.spawn(self.vetting.clone().run(subjects));
        }
    }

    /// Gives partitions up: intake stops, work on them may end within the drain's time while the others go
    /// on, what is reached is told, the rest is dropped (TRAPS T53).
    fn revoked(&self, client: &Client, taken: &TopicPartitionList) -> KafkaResult<()> {
        let indices = self.indices(taken);
        let closing = {
            let mut state = self.shared.lock();
            state.assignment.leave(&indices);
            state.closing
        };
        self.shared.wake();
        // Lost: others own these already, and the broker would refuse our word.
        if !client.assignment_lost() {
            if !closing {
                self.drain(&indices);
                watch::last_look(&self.vetting, Some(&indices));
                let alarms = self.shared.lock().assignment.alarms();
                let _ = tell_each(client, &self.shared, &alarms);
            }
            let untold = self.shared.lock().assignment.untold(Some(&indices));
            if let Err(error) = tell(client, &self.shared, &untold) {
                tracing::info!(%error, "kafka: not told on revoke; the next owner sees duplicates");
            }
        }
        let cooperative = matches!(client.rebalance_protocol(), RebalanceProtocol::Cooperative);
        {
            let mut state = self.shared.lock();
            state.assignment.gone(&indices);
            if !cooperative || client.assignment_lost() {
                state.assignment.taken_by_group();
            }
        }
        self.shared.wake();
        if cooperative {
            client.incremental_unassign(taken)
        } else {
            client.unassign()
        }
    }

    fn drain(&self, indices: &[Index]) {
        let settled = self.shared.wait(self.tuning.drain, |state| {
            state.closing || state.assignment.settled(indices)
        });
        if settled {
            let late = LATE_POSITION.min(self.tuning.drain);
            self.shared.wait(late, |state| {
                state.closing || state.assignment.written(indices)
            });
        } else {
            tracing::info!(
                "kafka: partitions were revoked while work on them was under way; its messages come again to their new owner"
            );
        }
    }
}

/// Tells the broker, and waits for its answer: an asynchronous commit's `Ok` proves nothing (TRAPS T50).
/// Storing first lets the library refuse what is not assigned to us (TRAPS T51).
fn tell(client: &Client, shared: &Shared, positions: &[(Index, u64, Word)]) -> KafkaResult<()> {
    if positions.is_empty() {
        return Ok(());
    }
    let mut list = TopicPartitionList::with_capacity(positions.len());
    {
        let state = shared.lock();
        for (index, next, word) in positions {
            let Some(partition) = state.assignment.get(*index) else {
                continue;
            };
            list.add_partition_offset(
                &partition.topic,
                partition.number,
                Offset::Offset(signed(*next)),
            )?;
            if let Some(mut element) = list.find_partition(&partition.topic, partition.number) {
                element.set_metadata(word.text());
            }
        }
    }
    client.store_offsets(&list)?;
    client.commit(&list, CommitMode::Sync)?;
    let mut state = shared.lock();
    for (index, next, _) in positions {
        state.assignment.told(*index, *next);
    }
    Ok(())
}

/// Tells one by one: a new topic may have fewer partitions than the old one, and those that are gone need no word.
fn tell_each(
    client: &Client,
    shared: &Shared,
    positions: &[(Index, u64, Word)],
) -> KafkaResult<()> {
    for position in positions {
        match tell(client, shared, std::slice::from_ref(position)) {
            Err(error)
                if matches!(
                    error.rdkafka_error_code(),
                    Some(Code::UnknownTopicOrPartition | Code::UnknownPartition)
                ) => {}
            told => told?,
        }
    }
    Ok(())
}

/// The thread's loop.
pub(crate) struct Member {
    config: ClientConfig,
    client: Client,
    /// Another member's request came under our `group_instance_id`: the group hears only that one now.
    fenced: bool,
    /// When it last took its name back.
    rejoined_at: Option<Instant>,
    shared: Arc<Shared>,
    tuning: Tuning,
    told_at: Instant,
    knocked_at: Instant,
    /// Since when the group's first answer is waited for, until it came or that was told.
    joining_since: Option<Instant>,
    /// The broker knows that a topic is another one.
    alarmed: bool,
    /// It was said that this could not be told.
    alarm_failed: bool,
    full_since: Option<Instant>,
    paused: bool,
    turn: Turn,
}

impl Member {
    pub(crate) fn new(
        config: ClientConfig,
        client: Client,
        shared: Arc<Shared>,
        tuning: Tuning,
    ) -> Self {
        let now = Instant::now();
        Self {
            config,
            client,
            fenced: false,
            rejoined_at: None,
            shared,
            tuning,
            told_at: now,
            knocked_at: now,
            joining_since: Some(now),
            alarmed: false,
            alarm_failed: false,
            full_since: None,
            paused: false,
            turn: Turn::new(tuning.limits),
        }
    }

    /// Runs until the source is closed. Whatever happens, a waiting `receive` hears of the end.
    pub(crate) fn run(mut self) {
        let _end = End(self.shared.clone());
        while !self.shared.lock().closing {
            self.tell_when_due();
            self.tell_alarms();
            let soon = self.start_ready();
            self.knock();
            self.tell_slow_group();
            self.poll(if soon { POLL_SOON } else { POLL });
            if std::mem::take(&mut self.fenced) && !self.shared.lock().closing {
                self.rejoin();
            }
        }
        self.close();
    }

    /// Joins again under its own name. Who is fenced need not have a living twin: the last request of a killed predecessor may
    /// reach the broker behind our own, and a broker that was killed while a rebalance was under way knows the predecessor
    /// only. A twin comes back at once.
    fn rejoin(&mut self) {
        let ago = self.rejoined_at.map(|at| at.elapsed());
        if !may_take_back(ago, self.tuning.session_timeout) {
            return self.shared.fail(
                "kafka: another member runs with the same `group_instance_id`; give each member its own".to_owned(),
            );
        }
        self.rejoined_at = Some(Instant::now());
        tracing::warn!(
            "kafka: the group took this member's `group_instance_id` from it; it joins once more"
        );
        {
            let mut state = self.shared.lock();
            let ours: Vec<Index> = state.assignment.ours().map(|(index, _)| index).collect();
            state.assignment.gone(&ours);
            state.assignment.taken_by_group();
        }
        // A fenced client has no goodbye to say, and ends with its drop.
        match join(&self.config, self.context().renewed()) {
            Ok(client) => self.client = client,
            Err(fault) => self.shared.fail(fault.detail()),
        }
        self.joining_since = Some(Instant::now());
        self.full_since = None;
        self.paused = false;
    }

    fn context(&self) -> &Context {
        self.client.context()
    }

    fn tell_when_due(&mut self) {
        if self.told_at.elapsed() < self.tuning.commit_interval {
            return;
        }
        self.told_at = Instant::now();
        if self.shared.lock().is_troubled(Trouble::Broker) {
            return;
        }
        let untold = self.shared.lock().assignment.untold(None);
        match tell(&self.client, &self.shared, &untold) {
            Ok(()) => {}
            // A rebalance is under way or the coordinator moves: the next interval tries again, and
            // fetching goes on meanwhile (E041).
            Err(error) => tracing::debug!(%error, "kafka: positions not told yet"),
        }
    }

    /// Tells the broker, for every later start, that a topic is another one: once, and what fails is tried again in the next
    /// turn and at the end.
    fn tell_alarms(&mut self) {
        if self.alarmed {
            return;
        }
        let alarms = self.shared.lock().assignment.alarms();
        let told = tell_each(&self.client, &self.shared, &alarms);
        self.alarmed = !alarms.is_empty() && told.is_ok();
        if let Err(error) = told
            && !std::mem::replace(&mut self.alarm_failed, true)
        {
            tracing::error!(%error, "kafka: that the topic was made again is not told to the broker yet; a start before it is may not know it");
        }
    }

    /// Starts what is compared. Says whether some partition still waits for that.
    fn start_ready(&mut self) -> bool {
        let mut waits = false;
        let mut ready = Vec::new();
        for (index, partition) in self.shared.lock().assignment.ours() {
            match partition.phase {
                Phase::Ready(start) => {
                    ready.push((
                        index,
                        partition.generation,
                        (partition.topic.clone(), partition.number),
                        start,
                    ));
                }
                Phase::Vetting => waits = true,
                Phase::Away | Phase::Live | Phase::Leaving => {}
            }
        }
        let untold: Vec<_> = ready
            .iter()
            .filter_map(|(index, .., start)| Some((*index, start.offset, start.tell?)))
            .collect();
        if let Err(error) = tell(&self.client, &self.shared, &untold) {
            tracing::debug!(%error, "kafka: where partitions start is not told yet");
            return true;
        }
        let mut started = false;
        for (index, generation, place, start) in ready {
            match self.start(index, generation, (&place.0, place.1), start) {
                Ok(()) => {
                    started = true;
                    self.shared.wake();
                }
                Err(error) => {
                    waits = true;
                    tracing::debug!(%error, topic = %place.0, partition = place.1, "kafka: not started yet");
                }
            }
        }
        if started && !self.paused {
            self.nudge();
        }
        waits
    }

    /// Has the library fetch what was resumed at once. A resume alone does not wake its threads, which sleep for up to a
    /// second while nothing is fetched; a request does. Its answer is of no consequence.
    fn nudge(&self) {
        self.every_live(|client, list| {
            let mut ends = list.clone();
            ends.set_all_offsets(Offset::End)?;
            client.offsets_for_times(ends, NUDGE).map(drop)
        });
    }

    fn start(
        &self,
        index: Index,
        generation: u64,
        place: (&str, i32),
        start: Start,
    ) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(place.0, place.1, Offset::Offset(signed(start.offset)))?;
        let sought = self.client.seek(
            place.0,
            place.1,
            Offset::Offset(signed(start.offset)),
            self.tuning.timeout,
        );
        if sought.is_err() {
            self.assign_again(&list)?;
        }
        if self.paused {
            self.client.pause(&list)?;
        } else {
            self.client.resume(&list)?;
        }
        self.shared
            .lock()
            .assignment
            .started(index, generation, start);
        Ok(())
    }

    /// A partition that the library has stopped (its offset was out of range) cannot be sought in.
    fn assign_again(&self, list: &TopicPartitionList) -> KafkaResult<()> {
        if matches!(
            self.client.rebalance_protocol(),
            RebalanceProtocol::Cooperative
        ) {
            self.client.incremental_unassign(list)?;
            return self.client.incremental_assign(list);
        }
        let mut all = self.client.position()?;
        for element in list.elements() {
            all.set_partition_offset(element.topic(), element.partition(), element.offset())?;
        }
        self.client.assign(&all)
    }

    /// Says once that the group lets this member wait.
    fn tell_slow_group(&mut self) {
        let Some(since) = self.joining_since else {
            return;
        };
        if self.shared.lock().assignment.is_assigned() {
            self.joining_since = None;
        } else if since.elapsed() >= GROUP_SLOW {
            self.joining_since = None;
            tracing::warn!(
                "kafka: the group has given this member no partitions yet; one that died, or was stopped while the group formed anew, keeps its own for `session_timeout_ms`"
            );
        }
    }

    /// Looks for a broker that was lost: nothing else would tell that it is back while no record comes.
    fn knock(&mut self) {
        let lost = {
            let state = self.shared.lock();
            state.is_troubled(Trouble::Broker) || state.is_troubled(Trouble::Topic)
        };
        if !lost || self.knocked_at.elapsed() < KNOCK {
            return;
        }
        self.knocked_at = Instant::now();
        let mut readable = true;
        for topic in &self.context().topics {
            match self.client.fetch_metadata(Some(topic), KNOCK) {
                Ok(metadata) => {
                    readable &= metadata
                        .topics()
                        .iter()
                        .all(|topic| topic.error().is_none())
                }
                Err(error) => return tracing::debug!(%error, "kafka: still away"),
            }
        }
        self.context().complaints.forget();
        self.shared.healed(Trouble::Broker);
        if readable {
            self.shared.healed(Trouble::Topic);
        }
    }

    fn poll(&mut self, time: Duration) {
        let room = self.room();
        if room == 0 {
            return self.stay_full();
        }
        self.full_since = None;
        if self.paused {
            self.paused = !self.every_live(|client, list| client.resume(list));
            self.nudge();
        }
        let mut time = time;
        for _ in 0..TURN_COUNT_MAX {
            if !self.poll_once(time) || self.turn.bytes() >= room {
                break;
            }
            time = Duration::ZERO;
        }
        self.turn.end(&self.shared);
    }

    /// Bytes that the buffer still takes.
    fn room(&self) -> usize {
        let buffered = self.shared.lock().assignment.buffered();
        self.tuning.buffer_bytes_max.saturating_sub(buffered)
    }

    /// The buffer is full. A short while the client is left alone, then fetching pauses and polling goes on.
    fn stay_full(&mut self) {
        let since = *self.full_since.get_or_insert_with(Instant::now);
        if !self.paused && since.elapsed() >= FULL {
            self.paused = self.every_live(|client, list| client.pause(list));
        }
        if self.paused {
            self.poll_once(Duration::ZERO);
            self.turn.end(&self.shared);
        }
        let limit = self.tuning.buffer_bytes_max;
        self.shared
            .wait(POLL.min(self.tuning.commit_interval), |state| {
                state.closing || state.assignment.buffered() < limit
            });
    }

    fn every_live(
        &self,
        change: impl FnOnce(&Client, &TopicPartitionList) -> KafkaResult<()>,
    ) -> bool {
        let mut list = TopicPartitionList::new();
        for (_, partition) in self
            .shared
            .lock()
            .assignment
            .ours()
            .filter(|(_, p)| p.phase == Phase::Live)
        {
            list.add_partition(&partition.topic, partition.number);
        }
        if list.count() == 0 {
            return true;
        }
        change(&self.client, &list)
            .inspect_err(|error| tracing::debug!(%error, "kafka: pause or resume"))
            .is_ok()
    }

    /// Says whether more may be there at once.
    fn poll_once(&mut self, time: Duration) -> bool {
        let polled = self.client.poll(time);
        if matches!(polled, Some(Err(_))) {
            // What came before an end or an error is in its place before that is looked at.
            self.turn.end(&self.shared);
        }
        match polled {
            None => return false,
            Some(Ok(record)) => self.turn.take(&record, &self.shared),
            Some(Err(KafkaError::PartitionEOF(number))) => self.at_end(number),
            Some(Err(error)) => self.troubled(&error),
        }
        true
    }

    fn at_end(&self, number: i32) {
        let (candidates, drained) = {
            let mut state = self.shared.lock();
            let candidates = state.assignment.end_of(number);
            (candidates, state.assignment.has_drained())
        };
        if drained {
            self.shared.arrived.notify_waiters();
        }
        for (index, generation, read_next) in candidates {
            self.ask_end(index, generation, read_next);
        }
    }

    /// Several topics have a partition of this number: asks beside this thread whether anything is left.
    fn ask_end(&self, index: Index, generation: u64, read_next: u64) {
        let place = {
            let state = self.shared.lock();
            let Some(partition) = state.assignment.get(index) else {
                return;
            };
            (partition.topic.to_string(), partition.number)
        };
        let context = self.context();
        let (reader, timeout, shared) = (
            context.vetting.reader.clone(),
            self.tuning.timeout,
            self.shared.clone(),
        );
        // The client tells an end once, so a broker that does not answer is asked again.
        context.runtime.spawn(async move {
            loop {
                let (reader, place) = (reader.clone(), place.clone());
                let asked = blocking(move || {
                    let found = crate::probe::Probe::open(&reader, timeout)?
                        .first_records(&[(place, read_next)])?;
                    Ok(found.is_empty())
                });
                let answer = asked.await;
                {
                    let mut state = shared.lock();
                    if state.closing || !state.assignment.reads(index, generation, read_next) {
                        return;
                    }
                    if matches!(answer, Ok(true)) {
                        state.assignment.at_end(index, generation, read_next);
                    }
                }
                if answer.is_ok() {
                    return shared.wake();
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        });
    }

    fn troubled(&mut self, error: &KafkaError) {
        tracing::debug!(%error, "kafka: poll");
        let code = match error {
            KafkaError::MessageConsumptionFatal(code) => Some(*code),
            other => other.rdkafka_error_code(),
        };
        match code {
            // Retention overtook a partition, or its topic was made again: compare anew.
            Some(Code::AutoOffsetReset) => self.compare_again(),
            Some(code @ (Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::TopicAuthorizationFailed)) => {
                self.shared.trouble(Trouble::Topic, format!("kafka: a topic cannot be read: {code}"));
            }
            Some(Code::FencedInstanceId) => self.fenced = true,
            Some(code @ (Code::GroupAuthorizationFailed | Code::InconsistentGroupProtocol)) => self.shared.fail(format!(
                "kafka: the group refuses this member: {code}; check the rights on `group`, and that all its members use the same `assignor`"
            )),
            _ if matches!(error, KafkaError::MessageConsumptionFatal(_)) => {
                self.shared.fail(classify("the group", error).detail());
            }
            _ => {}
        }
    }

    /// Live partitions begin a new generation from the comparison on.
    fn compare_again(&self) {
        let live: Vec<Index> = {
            let mut state = self.shared.lock();
            let live: Vec<_> = state
                .assignment
                .ours()
                .filter(|(_, p)| p.phase == Phase::Live)
                .map(|(index, _)| index)
                .collect();
            state.assignment.assign(&live);
            live
        };
        self.context().vet(&live);
    }

    /// Tells what is reached and leaves the group. `close` waits for this with a deadline and goes on
    /// without it (TRAPS T52).
    fn close(mut self) {
        watch::last_look(&self.context().vetting, None);
        self.tell_alarms();
        let untold = self.shared.lock().assignment.untold(None);
        if let Err(error) = tell(&self.client, &self.shared, &untold) {
            tracing::info!(%error, "kafka: not told at the end; the next start sees duplicates");
        }
        if self.client.close_queue().is_ok() {
            while !self.client.closed() {
                self.client.poll(POLL_SOON);
            }
        }
    }
}

/// Whether a fenced member joins again, whose last time was so long ago. A living twin hears within a few heartbeats, of which a
/// session has ten, that it is fenced in its turn.
fn may_take_back(ago: Option<Duration>, session_timeout: Duration) -> bool {
    ago.is_none_or(|ago| ago >= session_timeout)
}

/// Says at the thread's end, even at a panic's, that there will be nothing more.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0
                .fail("kafka: the client's thread panicked; this is a bug in Semel".to_owned());
        }
        self.0.ended.send_replace(true);
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_back_once_in_a_session() {
        let seconds = Duration::from_secs;
        assert!(may_take_back(None, seconds(45)));
        assert!(!may_take_back(Some(seconds(44)), seconds(45)));
        assert!(may_take_back(Some(seconds(45)), seconds(45)));
    }
}
