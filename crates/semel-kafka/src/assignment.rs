//! What is assigned to this member: what waits to be received, what is handed out, how far the ledger has
//! committed. Plain bookkeeping: it knows no client and no clock; both come in by the door.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use semel_core::ledger::{Mark, Reached};
use semel_core::source::{Settle, Settlement};
use semel_core::{Delivery, Limit, Message, Receipt};

use crate::verdict::{self, Word};
use crate::watch::Anchor;

/// The next generation. One count for the whole process: a receipt of a source that was closed and opened
/// again is worth nothing at the new one.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

/// A partition's number in receipts: its index here, for ever.
pub(crate) type Index = u32;

/// Everything this member knows of its partitions.
#[derive(Debug, Default)]
pub(crate) struct Assignment {
    partitions: Vec<Partition>,
    by_name: HashMap<Arc<str>, Index>,
    /// Where the next batch begins to look, so that no partition starves.
    turn: usize,
    /// Bytes that wait to be received.
    buffered: usize,
    /// The group has answered with an assignment, which may be empty.
    assigned: bool,
    /// It is not known whether every partition has an owner.
    owners_unseen: bool,
    /// `Drained` was said since something last came.
    drained_said: bool,
}

/// One partition of a topic.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) topic: Arc<str>,
    pub(crate) number: i32,
    /// `topic/partition`: its name in positions.
    pub(crate) name: Arc<str>,
    pub(crate) generation: u64,
    pub(crate) phase: Phase,
    /// Fetched, not handed out.
    waiting: VecDeque<Held>,
    /// Handed out, in order of offsets; `None` when settled.
    out: VecDeque<(u64, Option<Held>)>,
    /// Given back, in order of offsets.
    returned: VecDeque<(Held, Instant)>,
    /// The offset behind the last record fetched.
    read_next: u64,
    /// The offset behind the last record handed out.
    handed_next: u64,
    /// The partition's end as seen after the assignment.
    end: u64,
    /// The newest end the client library has told of.
    end_latest: u64,
    /// The library has read to the end, over gaps that hold no records.
    at_end: bool,
    /// Written by a committed unit.
    reached: u64,
    /// Told to the broker.
    told: u64,
    /// A record that is known, to be read anew now and then: its offset and mark.
    anchor: Option<(u64, Mark)>,
    /// The topic is another one: nothing more is told of this partition but that.
    alarm: bool,
}

/// The life of an assigned partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not ours.
    Away,
    /// Ours; the broker's facts and the ledger's are being compared. Whatever is fetched is discarded.
    Vetting,
    /// Compared; the client is to start it.
    Ready(Start),
    /// Records flow.
    Live,
    /// Being taken away: nothing more is handed out.
    Leaving,
}

/// Where a partition starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) offset: u64,
    pub(crate) end: u64,
    /// The group's offset must be moved here first, with this word.
    pub(crate) tell: Option<Word>,
}

/// A message that is not settled.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) offset: u64,
    pub(crate) message: Message,
    pub(crate) mark: Mark,
}

/// What a look for deliveries found.
#[derive(Debug)]
pub(crate) enum Found {
    Batch(Vec<Delivery>),
    /// Nothing now; something given back is due then.
    Nothing(Option<Instant>),
}

impl Assignment {
    pub(crate) fn get(&self, index: Index) -> Option<&Partition> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    fn get_mut(&mut self, index: Index) -> Option<&mut Partition> {
        self.partitions.get_mut(usize::try_from(index).ok()?)
    }

    /// The partition's index and name; they are made when it is new.
    pub(crate) fn index(&mut self, topic: &str, number: i32) -> (Index, Arc<str>) {
        let name: Arc<str> = format!("{topic}/{number}").into();
        if let Some((name, index)) = self.by_name.get_key_value(&name) {
            return (*index, name.clone());
        }
        let index = Index::try_from(self.partitions.len())
            .expect("a cluster has fewer than 2^32 partitions");
        self.partitions
            .push(Partition::new(topic.into(), number, name.clone()));
        self.by_name.insert(name.clone(), index);
        (index, name)
    }

    /// Every partition that is ours, with its index.
    pub(crate) fn ours(&self) -> impl Iterator<Item = (Index, &Partition)> {
        (0..)
            .zip(&self.partitions)
            .filter(|(_, partition)| partition.phase != Phase::Away)
    }

    /// The group gave us these. Each begins a new generation.
    pub(crate) fn assign(&mut self, given: &[Index]) {
        self.assigned = true;
        self.drained_said = false;
        for index in given {
            let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
            let freed = self.get_mut(*index).map_or(0, |partition| {
                let freed = partition.clear();
                partition.generation = generation;
                partition.phase = Phase::Vetting;
                freed
            });
            self.buffered -= freed;
        }
    }

    /// The comparison says where to start.
    pub(crate) fn vetted(&mut self, index: Index, generation: u64, start: Start) {
        if let Some(partition) = self.current(index, generation)
            && partition.phase == Phase::Vetting
        {
            partition.phase = Phase::Ready(start);
        }
    }

    /// The partition, if it is still in this generation.
    fn current(&mut self, index: Index, generation: u64) -> Option<&mut Partition> {
        self.get_mut(index)
            .filter(|partition| partition.generation == generation)
    }

    /// The client starts it.
    pub(crate) fn started(&mut self, index: Index, generation: u64, start: Start) {
        if let Some(partition) = self.current(index, generation) {
            partition.phase = Phase::Live;
            partition.read_next = start.offset;
            partition.handed_next = start.offset;
            partition.end = start.end;
            partition.end_latest = start.end;
            partition.reached = start.offset;
            partition.told = start.offset;
        }
    }

    /// Stops handing out these. Their messages that wait are forgotten: they come again to the next owner.
    pub(crate) fn leave(&mut self, taken: &[Index]) {
        for index in taken {
            let freed = self.get_mut(*index).map_or(0, |partition| {
                partition.phase = Phase::Leaving;
                partition.returned.clear();
                partition.forget_waiting()
            });
            self.buffered -= freed;
        }
    }

    /// These are no longer ours: receipts that are out are worth nothing.
    pub(crate) fn gone(&mut self, taken: &[Index]) {
        for index in taken {
            let freed = self.get_mut(*index).map_or(0, |partition| {
                partition.phase = Phase::Away;
                partition.clear()
            });
            self.buffered -= freed;
        }
    }

    /// Nothing handed out of these is unsettled.
    pub(crate) fn settled(&self, of: &[Index]) -> bool {
        of.iter()
            .filter_map(|index| self.get(*index))
            .all(|partition| partition.out.is_empty())
    }

    /// A committed unit has written everything handed out of these.
    pub(crate) fn written(&self, of: &[Index]) -> bool {
        of.iter()
            .filter_map(|index| self.get(*index))
            .all(|partition| partition.reached >= partition.handed_next)
    }

    /// Puts a fetched record where it waits to be received. Discards it when its partition is not live, and
    /// when it was fetched before the partition was started where it is now.
    pub(crate) fn push(&mut self, index: Index, held: Held) {
        let size = held.message.size();
        let Some(partition) = self.get_mut(index) else {
            return;
        };
        if partition.phase != Phase::Live || held.offset < partition.read_next {
            return;
        }
        partition.read_next = held.offset + 1;
        if partition.anchor.is_none() {
            partition.anchor = Some((held.offset, held.mark.clone()));
        }
        partition.at_end = false;
        partition.waiting.push_back(held);
        self.buffered += size;
        self.drained_said = false;
    }

    pub(crate) const fn buffered(&self) -> usize {
        self.buffered
    }

    /// The client has read partition `number` of some topic to its end. Says which, if that is certain:
    /// if no other topic has one of this number here. Else those it may be, to be asked; one that is known to be at
    /// its end may be the one that the client means.
    pub(crate) fn end_of(&mut self, number: i32) -> Vec<(Index, u64, u64)> {
        let namesakes = self.ours().filter(|(_, p)| p.number == number).count();
        let candidates: Vec<_> = self
            .ours()
            .filter(|(_, p)| p.number == number && p.phase == Phase::Live && !p.is_at_end())
            .map(|(index, p)| (index, p.generation, p.read_next))
            .collect();
        if let [(index, generation, read_next)] = candidates[..]
            && namesakes == 1
        {
            self.at_end(index, generation, read_next);
            return Vec::new();
        }
        candidates
    }

    /// Whether this is still what the client reads next there.
    pub(crate) fn reads(&mut self, index: Index, generation: u64, read_next: u64) -> bool {
        self.current(index, generation)
            .is_some_and(|partition| partition.read_next == read_next)
    }

    /// Nothing is left behind `read_next` but gaps.
    pub(crate) fn at_end(&mut self, index: Index, generation: u64, read_next: u64) {
        if let Some(partition) = self.current(index, generation)
            && partition.read_next == read_next
        {
            partition.at_end = true;
        }
    }

    /// The client library's news of a partition's end.
    pub(crate) fn end_is(&mut self, topic: &str, number: i32, end: u64) {
        let partition = self
            .partitions
            .iter_mut()
            .find(|p| p.number == number && &*p.topic == topic);
        if let Some(partition) = partition {
            partition.end_latest = partition.end_latest.max(end);
        }
    }

    /// Offsets between what is done and the end, by partition.
    pub(crate) fn lag(&self) -> Vec<(String, u64)> {
        let live = self
            .ours()
            .filter(|(_, p)| matches!(p.phase, Phase::Live | Phase::Leaving));
        live.map(|(_, p)| (p.name.to_string(), p.lag())).collect()
    }

    /// Messages in the order of their partitions, within the limit; or that there is nothing, and why.
    pub(crate) fn take(&mut self, limit: Limit, now: Instant) -> Found {
        let mut batch = Batch {
            deliveries: Vec::new(),
            count: limit.count.max(1),
            bytes: limit.bytes,
        };
        let count = self.partitions.len();
        let mut due: Option<Instant> = None;
        for step in 0..count {
            let index = (self.turn + step) % count;
            let partition = &mut self.partitions[index];
            let index = Index::try_from(index).expect("made by `index`");
            let before = batch.deliveries.len();
            let (freed, blocked) = partition.hand_out(index, &mut batch, now);
            self.buffered -= freed;
            due = blocked.into_iter().chain(due).min();
            if batch.deliveries.len() > before && batch.count == 0 {
                self.turn = (self.turn + step + 1) % count;
                break;
            }
        }
        if !batch.deliveries.is_empty() {
            return Found::Batch(batch.deliveries);
        }
        Found::Nothing(due)
    }

    /// Whether all is read and settled, and this was not said since something last came. Saying it counts, so a caller that
    /// has something else to say must not ask.
    pub(crate) fn says_drained(&mut self) -> bool {
        let says = self.has_drained();
        self.drained_said |= says;
        says
    }

    /// Whether all is read and settled, and was not said so.
    pub(crate) fn has_drained(&self) -> bool {
        !self.drained_said && self.is_drained()
    }

    /// The group has taken everything and will give anew: until then nothing is at its end.
    pub(crate) const fn taken_by_group(&mut self) {
        self.assigned = false;
    }

    /// Nothing is drained until [`owners_seen`](Self::owners_seen).
    pub(crate) const fn owners_unseen(&mut self) {
        self.owners_unseen = true;
    }

    pub(crate) const fn owners_seen(&mut self) {
        self.owners_unseen = false;
    }

    /// Whether the group has answered.
    pub(crate) const fn is_assigned(&self) -> bool {
        self.assigned
    }

    fn is_drained(&self) -> bool {
        self.assigned
            && !self.owners_unseen
            && self.ours().all(|(_, partition)| partition.is_drained())
    }

    /// Settles one receipt. `false` when it is worth nothing any more.
    pub(crate) fn settle(&mut self, settlement: &Settlement, now: Instant) -> bool {
        let receipt = settlement.receipt();
        let offset = receipt.tag().get() - 1;
        let Some(partition) = self.current(receipt.partition(), receipt.generation()) else {
            return false;
        };
        let Some(place) = partition.place_of(offset) else {
            return false;
        };
        let Some(mut held) = partition.out[place].1.take() else {
            return false;
        };
        match settlement.verdict() {
            Settle::Ack => {}
            // A partition that leaves goes to another member, together with what is not done.
            Settle::Nack { .. } if partition.phase == Phase::Leaving => {}
            Settle::Nack { delay_ms } => {
                held.message.attempt = held.message.attempt.saturating_add(1);
                let due = now + Duration::from_millis(delay_ms);
                let at = partition
                    .returned
                    .partition_point(|(other, _)| other.offset < offset);
                partition.returned.insert(at, (held, due));
            }
        }
        partition.trim();
        true
    }

    /// A committed unit wrote this. `false` when the partition is not ours.
    pub(crate) fn reach(&mut self, position: &Reached) -> bool {
        let index = self.by_name.get(&position.partition).copied();
        let Some(partition) = index.and_then(|index| self.get_mut(index)) else {
            return false;
        };
        if !matches!(partition.phase, Phase::Live | Phase::Leaving) {
            return false;
        }
        partition.reached = partition.reached.max(position.next);
        true
    }

    /// What the broker has not been told, of these partitions or of all.
    pub(crate) fn untold(&self, of: Option<&[Index]>) -> Vec<(Index, u64, Word)> {
        let asked = |index: &Index| of.is_none_or(|of| of.contains(index));
        self.ours()
            .filter(|(index, p)| {
                asked(index)
                    && matches!(p.phase, Phase::Live | Phase::Leaving)
                    && !p.alarm
                    && p.reached > p.told
            })
            .map(|(index, p)| (index, p.reached, Word::Reached))
            .collect()
    }

    /// A record before the start is known to be the one that the ledger has handled.
    pub(crate) fn anchor(&mut self, index: Index, generation: u64, record: (u64, Mark)) {
        if let Some(partition) = self.current(index, generation) {
            partition.anchor = Some(record);
        }
    }

    /// The known records of live partitions.
    pub(crate) fn anchors(&self) -> Vec<Anchor> {
        self.ours()
            .filter(|(_, p)| p.phase == Phase::Live)
            .filter_map(|(index, p)| {
                let (offset, mark) = p.anchor.clone()?;
                Some(Anchor {
                    index,
                    generation: p.generation,
                    place: (p.topic.to_string(), p.number),
                    offset,
                    mark,
                })
            })
            .collect()
    }

    /// The broker has removed the known record.
    pub(crate) fn lift_anchor(&mut self, index: Index, generation: u64) {
        if let Some(partition) = self.current(index, generation) {
            partition.anchor = None;
        }
    }

    /// The topic is another one: no position of it is told any more. The reason to stop, unless none of it is ours by now.
    pub(crate) fn alarm(&mut self, topic: &str) -> Option<String> {
        let mut told = None;
        for partition in &mut self.partitions {
            if *partition.topic == *topic && matches!(partition.phase, Phase::Live | Phase::Leaving)
            {
                partition.alarm = true;
                told.get_or_insert_with(|| verdict::made_again(&partition.name));
            }
        }
        told
    }

    /// The partitions whose topic is another one, with how far they are read.
    pub(crate) fn alarms(&self) -> Vec<(Index, u64, Word)> {
        let alarmed = self.ours().filter(|(_, p)| p.alarm);
        alarmed
            .map(|(index, p)| (index, p.reached, Word::Alarm))
            .collect()
    }

    /// The broker has confirmed this.
    pub(crate) fn told(&mut self, index: Index, next: u64) {
        if let Some(partition) = self.get_mut(index) {
            partition.told = partition.told.max(next);
        }
    }
}

/// A batch that is being filled.
struct Batch {
    deliveries: Vec<Delivery>,
    /// What is left of the limit.
    count: usize,
    bytes: usize,
}

impl Batch {
    /// Whether a message of this size may join. A single larger one travels alone.
    fn admit(&mut self, size: usize) -> bool {
        if self.count == 0 || (size > self.bytes && !self.deliveries.is_empty()) {
            self.count = 0;
            return false;
        }
        self.count -= 1;
        self.bytes = self.bytes.saturating_sub(size);
        true
    }
}

impl Partition {
    const fn new(topic: Arc<str>, number: i32, name: Arc<str>) -> Self {
        Self {
            topic,
            number,
            name,
            generation: 0,
            phase: Phase::Away,
            waiting: VecDeque::new(),
            out: VecDeque::new(),
            returned: VecDeque::new(),
            read_next: 0,
            handed_next: 0,
            end: 0,
            end_latest: 0,
            at_end: false,
            reached: 0,
            told: 0,
            anchor: None,
            alarm: false,
        }
    }

    /// Where an offset is among what is handed out. Mostly it is the first: units end in order.
    fn place_of(&self, offset: u64) -> Option<usize> {
        if self.out.front().is_some_and(|(first, _)| *first == offset) {
            return Some(0);
        }
        self.out
            .binary_search_by_key(&offset, |(offset, _)| *offset)
            .ok()
    }

    /// Forgets everything of a generation; says how many waiting bytes that frees.
    fn clear(&mut self) -> usize {
        self.out.clear();
        self.returned.clear();
        self.at_end = false;
        self.anchor = None;
        self.alarm = false;
        // A receipt of the generation that ended must not find the next one.
        self.generation = 0;
        self.forget_waiting()
    }

    fn forget_waiting(&mut self) -> usize {
        self.waiting.drain(..).map(|held| held.message.size()).sum()
    }

    fn is_at_end(&self) -> bool {
        self.at_end || self.read_next >= self.end
    }

    fn is_drained(&self) -> bool {
        self.phase == Phase::Live
            && self.is_at_end()
            && self.waiting.is_empty()
            && self.returned.is_empty()
            && self.out.is_empty()
    }

    fn lag(&self) -> u64 {
        let done = self.waiting.is_empty() && self.returned.is_empty() && self.out.is_empty();
        if done && self.at_end {
            0
        } else {
            self.end_latest
                .max(self.read_next)
                .saturating_sub(self.reached)
        }
    }

    fn trim(&mut self) {
        while self.out.front().is_some_and(|(_, held)| held.is_none())
            && self
                .returned
                .front()
                .is_none_or(|(held, _)| held.offset > self.out[0].0)
        {
            self.out.pop_front();
        }
    }

    /// Moves messages into the batch. Says how many bytes that frees, and when what blocks it is due.
    fn hand_out(
        &mut self,
        index: Index,
        batch: &mut Batch,
        now: Instant,
    ) -> (usize, Option<Instant>) {
        if self.phase != Phase::Live {
            return (0, None);
        }
        // What was given back goes first: it is older than all that waits.
        while let Some((held, due)) = self.returned.front() {
            if *due > now {
                return (0, Some(*due));
            }
            if !batch.admit(held.message.size()) {
                return (0, None);
            }
            if let Some((held, _)) = self.returned.pop_front() {
                batch.deliveries.push(held.delivery(self.generation, index));
                if let Some(place) = self.place_of(held.offset) {
                    self.out[place].1 = Some(held);
                }
            }
        }
        let mut freed = 0;
        while let Some(held) = self.waiting.front() {
            let size = held.message.size();
            if !batch.admit(size) {
                break;
            }
            if let Some(held) = self.waiting.pop_front() {
                freed += size;
                self.handed_next = held.offset + 1;
                batch.deliveries.push(held.delivery(self.generation, index));
                self.out.push_back((held.offset, Some(held)));
            }
        }
        (freed, None)
    }
}

impl Held {
    fn delivery(&self, generation: u64, index: Index) -> Delivery {
        let tag = NonZeroU64::MIN.saturating_add(self.offset);
        Delivery {
            receipt: Receipt::new(generation, index, tag),
            message: self.message.clone(),
            mark: Some(self.mark.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use semel_core::Committed;
    use semel_core::ledger::{ConsumerId, Fence, Instance as Life, LaneId, SourceId};

    use super::*;

    const ALL: Limit = Limit {
        count: 100,
        bytes: usize::MAX,
    };

    fn held(offset: u64) -> Held {
        Held {
            offset,
            message: Message::new("x", "t/0", Some(offset)),
            mark: Mark::new(),
        }
    }

    /// Partition `number` of topic `t`, live from 0 to `end`.
    fn live(assignment: &mut Assignment, number: i32, end: u64) -> Index {
        live_of(assignment, "t", number, end)
    }

    fn live_of(assignment: &mut Assignment, topic: &str, number: i32, end: u64) -> Index {
        let (index, _) = assignment.index(topic, number);
        assignment.assign(&[index]);
        let start = Start {
            offset: 0,
            end,
            tell: None,
        };
        let generation = assignment.get(index).unwrap().generation;
        assignment.vetted(index, generation, start);
        assignment.started(index, generation, start);
        index
    }

    fn batch(assignment: &mut Assignment, limit: Limit) -> Vec<Delivery> {
        match assignment.take(limit, Instant::now()) {
            Found::Batch(batch) => batch,
            other => panic!("{other:?}"),
        }
    }

    fn ack(assignment: &mut Assignment, delivery: Delivery) -> bool {
        let lane = LaneId {
            consumer: ConsumerId(1),
            instance: Life([0; 16]),
            lane: 0,
        };
        let proof = Committed::witnessed(Fence { lane, unit: 1 });
        assignment.settle(&delivery.receipt.ack(&proof), Instant::now())
    }

    fn reached(next: u64) -> Reached {
        Reached {
            source: SourceId(1),
            partition: "t/0".into(),
            next,
            mark: Mark::new(),
        }
    }

    #[test]
    fn a_receipt_of_an_assignment_that_ended_is_worth_nothing() {
        let mut assignment = Assignment::default();
        let index = live(&mut assignment, 0, 9);
        assignment.push(index, held(0));
        let old = batch(&mut assignment, ALL).remove(0);
        assignment.gone(&[index]);
        let again = live(&mut assignment, 0, 9);
        assert_eq!(again, index);
        assignment.push(index, held(0));
        let new = batch(&mut assignment, ALL).remove(0);
        assert!(!ack(&mut assignment, old));
        assert!(ack(&mut assignment, new));
    }

    #[test]
    fn what_is_fetched_before_the_comparison_or_twice_is_discarded() {
        let mut assignment = Assignment::default();
        let (index, _) = assignment.index("t", 0);
        assignment.assign(&[index]);
        assignment.push(index, held(0));
        assert_eq!(assignment.buffered(), 0);
        let index = live(&mut assignment, 0, 9);
        for offset in [5, 3, 5, 7] {
            assignment.push(index, held(offset));
        }
        let offsets: Vec<_> = batch(&mut assignment, ALL)
            .iter()
            .map(|d| d.message.position.offset)
            .collect();
        assert_eq!(offsets, [Some(5), Some(7)]);
    }

    #[test]
    fn no_partition_starves_behind_a_full_one() {
        let mut assignment = Assignment::default();
        let (a, b) = (live(&mut assignment, 0, 99), live(&mut assignment, 1, 99));
        (0..50).for_each(|offset| assignment.push(a, held(offset)));
        assignment.push(b, held(0));
        let limit = Limit { count: 10, ..ALL };
        assert!(
            batch(&mut assignment, limit)
                .iter()
                .all(|d| d.receipt.partition() == a)
        );
        let second = batch(&mut assignment, limit);
        assert_eq!(second[0].receipt.partition(), b);
    }

    #[test]
    fn only_written_positions_of_own_partitions_are_to_be_told() {
        let mut assignment = Assignment::default();
        let index = live(&mut assignment, 0, 9);
        assignment.push(index, held(0));
        let delivery = batch(&mut assignment, ALL).remove(0);
        assert!(ack(&mut assignment, delivery));
        assert_eq!(assignment.untold(None), []);
        assert!(!assignment.written(&[index]));
        assert!(assignment.reach(&reached(1)));
        assert!(assignment.written(&[index]));
        assert_eq!(assignment.untold(None), [(index, 1, Word::Reached)]);
        assignment.told(index, 1);
        assert!(
            assignment.reach(&reached(0)),
            "an older row's word changes nothing"
        );
        assert_eq!(assignment.untold(None), []);
        assignment.gone(&[index]);
        assert!(!assignment.reach(&reached(5)));
        assert_eq!(assignment.untold(None), []);
    }

    #[test]
    fn drained_needs_an_assignment_and_every_partition_at_its_end() {
        let mut assignment = Assignment::default();
        let drained = Assignment::says_drained;
        assert!(!drained(&mut assignment), "the group has not answered");
        let index = live(&mut assignment, 0, 3);
        assignment.push(index, held(0));
        let delivery = batch(&mut assignment, ALL).remove(0);
        ack(&mut assignment, delivery);
        assert!(
            !drained(&mut assignment),
            "offsets 1 and 2 may hold records"
        );
        assert_eq!(
            assignment.end_of(0),
            [],
            "one partition of this number: no doubt"
        );
        assert!(drained(&mut assignment));
        assert_eq!(assignment.lag(), [("t/0".to_owned(), 0)]);
        assert!(!drained(&mut assignment), "said once");
        assignment.gone(&[index]);
        assignment.taken_by_group();
        assert!(!drained(&mut assignment), "the group will give anew");
        assignment.assign(&[]);
        assert!(drained(&mut assignment), "it gave nothing");
    }

    #[test]
    fn the_end_of_one_topic_is_not_taken_for_that_of_another_with_a_backlog() {
        let mut assignment = Assignment::default();
        let _caught_up = live_of(&mut assignment, "a", 0, 0);
        let behind = live_of(&mut assignment, "b", 0, 5);
        let candidates = assignment.end_of(0);
        assert_eq!(candidates.len(), 1, "to be asked");
        assert_eq!((candidates[0].0, candidates[0].2), (behind, 0));
        assert!(!assignment.says_drained());
        assert!(assignment.lag().contains(&("b/0".to_owned(), 5)));
    }
}
