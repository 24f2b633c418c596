//! Takes deliveries from one source, binds them and routes them to lanes, within the byte budget.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use semel_core::json::Json;
use semel_core::law::{Case, Reject};
use semel_core::ledger::{ClaimKind, Ledger};
use semel_core::source::{Delivery, Received};
use semel_core::{Backoff, Class, Limit, Message, Receipt, Settlements, codes};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::mpsc::error::SendError;

use crate::handler::{Bound, Handler};
use crate::lane::panic_text;
use crate::observe::Cause;
use crate::position::ENTRY_BYTES;
use crate::settings::{LaneRule, Settings};
use crate::shared::{Flow, Shared, Underway};
use crate::unit::Item;

/// How long a stopping consumer waits for a source that is about to hand something out.
const GOODBYE: Duration = Duration::from_millis(500);

/// What a message holds beside its own size while it is under way: its parsed form, its place in a lane's queue and in
/// the position window, and the source's copy (measured: a kilobyte in all for a payload of 85 bytes).
const HELD_BYTES: usize = 640;

/// How many full units a lane is read ahead, on average. Neither speed nor an outage asks for more, and what waits
/// in memory is late.
const READ_AHEAD: usize = 8;

/// Reading ahead is not stopped below this many messages in all, however small the units are.
const AHEAD_COUNT_MIN: usize = 1_024;

/// A message in a lane's queue.
pub(crate) struct Queued<W> {
    /// In a box, since it is moved from hand to hand: it is half a kilobyte.
    pub(crate) item: Box<Item<W>>,
    pub(crate) ticket: Ticket,
}

/// What a message holds while it is under way. Dropping it frees its memory budget.
pub(crate) struct Ticket {
    /// Of a delivery: what is told and settled when it ended. A released message has none.
    pub(crate) stub: Option<Stub>,
    pub(crate) _underway: Underway,
    pub(crate) _permit: Option<OwnedSemaphorePermit>,
    /// Dropped with the ticket: the sweep waits for it.
    pub(crate) _watch: Option<Arc<tokio::sync::oneshot::Sender<()>>>,
}

/// Where a delivery came from.
pub(crate) struct Stub {
    pub(crate) feed: usize,
    pub(crate) receipt: Receipt,
    pub(crate) sequence: u64,
}

/// One source's way in.
pub(crate) struct Intake<L: Ledger, H: Handler<L::Unit>> {
    pub(crate) shared: Arc<Shared<L, H>>,
    pub(crate) feed: usize,
    pub(crate) lanes: Vec<UnboundedSender<Queued<H::Work>>>,
    /// Stored positions at the start: deliveries below them are read again.
    pub(crate) stored: HashMap<Arc<str>, u64>,
    pub(crate) partitions: HashMap<Arc<str>, Partition>,
}

/// What is known of a partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Partition {
    lane: usize,
    next_sequence: u64,
}

impl<L: Ledger, H: Handler<L::Unit>> Intake<L, H> {
    /// Runs until the source ends or the consumer stops.
    pub(crate) async fn run(mut self) {
        let shared = self.shared.clone();
        let mut failures = 0;
        loop {
            let receiving = shared.feeds[self.feed].source.receive(self.limit());
            tokio::pin!(receiving);
            let received = tokio::select! {
                biased;
                () = shared.stopped() => {
                    // What the source is handing out at this moment is given back at once, and not only
                    // when its lease or its channel ends.
                    if let Ok(Ok(Received::Batch(late))) = tokio::time::timeout(GOODBYE, receiving).await {
                        give_back(&shared, self.feed, late.into_iter().map(|d| d.receipt)).await;
                    }
                    return;
                }
                received = &mut receiving => received,
            };
            match received {
                Ok(received) => {
                    if std::mem::take(&mut failures) > 0 {
                        shared.resume();
                    }
                    if !self.take(received).await {
                        return;
                    }
                }
                Err(fault) if fault.class == Class::Stop => return shared.stop(Some(fault)),
                Err(fault) => {
                    if failures == 0 {
                        let why = format!("source `{}`: {fault}", shared.feeds[self.feed].name);
                        shared.pause(Cause::Source(self.feed), &why);
                    }
                    shared.back_off(Backoff::DOWN, failures).await;
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    fn limit(&self) -> Limit {
        let settings = &self.shared.settings;
        let free = self.shared.budget.available_permits();
        Limit {
            count: settings.batch_count_max,
            bytes: settings.batch_bytes_max.min(free).max(1),
        }
    }

    /// Returns whether the source may have more.
    async fn take(&mut self, received: Received) -> bool {
        match received {
            Received::Batch(deliveries) => {
                self.shared.set_flow(self.feed, Flow::Open);
                let (mut rest, mut back, mut more) = (deliveries.into_iter(), Vec::new(), true);
                while let Some(delivery) = rest.next() {
                    match self.admit(delivery).await {
                        Ok(gone) => back.extend(gone),
                        Err(delivery) => {
                            more = false;
                            back.push(delivery.receipt);
                            back.extend(rest.by_ref().map(|d| d.receipt));
                        }
                    }
                }
                give_back(&self.shared, self.feed, back.into_iter()).await;
                more
            }
            Received::Drained => {
                self.shared.set_flow(self.feed, Flow::Drained);
                true
            }
            Received::End => {
                self.shared.set_flow(self.feed, Flow::Ended);
                false
            }
        }
    }

    /// Waits for memory, then routes. Gives the delivery back when the consumer stops meanwhile, and the receipt when
    /// its lane has gone.
    async fn admit(&mut self, delivery: Delivery) -> Result<Option<Receipt>, Delivery> {
        let shared = self.shared.clone();
        let wanted = delivery
            .message
            .size()
            .saturating_add(HELD_BYTES)
            .max(least_share(&shared.settings))
            .min(shared.settings.memory_bytes_max);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let permit = match shared.budget.clone().try_acquire_many_owned(wanted) {
            Ok(permit) => permit,
            Err(_) => tokio::select! {
                biased;
                () = shared.stopped() => return Err(delivery),
                permit = shared.budget.clone().acquire_many_owned(wanted) => permit.expect("the budget is never closed"),
            },
        };
        Ok(self.route(delivery, permit))
    }

    fn route(&mut self, delivery: Delivery, mut permit: OwnedSemaphorePermit) -> Option<Receipt> {
        let Delivery {
            receipt,
            message,
            mark,
        } = delivery;
        let shared = &self.shared;
        let feed = &shared.feeds[self.feed];
        let (binding, handlers_lane) = bind(
            &*shared.handler,
            &message,
            shared.settings.message_bytes_max,
        );
        let lanes = self.lanes.len();
        let spread = self.feed + self.partitions.len();
        let partition = self
            .partitions
            .entry(message.position.partition.clone())
            .or_insert_with(|| Partition {
                lane: spread % lanes,
                next_sequence: 0,
            });
        let sequence = partition.next_sequence;
        partition.next_sequence += 1;
        let lane = match lane_key(&shared.settings.lane, &message, handlers_lane) {
            Some(key) => usize::try_from(key % lanes as u64).expect("below the number of lanes"),
            None => partition.lane,
        };
        let offset = message.position.offset;
        let slot = offset.zip(mark).map(|(offset, mark)| {
            shared.tracker.open(
                feed.id,
                &message.position.partition,
                receipt.generation(),
                offset,
                mark,
                permit.split(ENTRY_BYTES.min(permit.num_permits() / 2)),
            )
        });
        let replay = self
            .stored
            .get(&message.position.partition)
            .zip(offset)
            .is_some_and(|(next, at)| at < *next);
        let case = Case {
            message,
            source: feed.id,
            binding,
            unbound: None,
            kind: ClaimKind::New,
            replay,
            last: false,
            attempts: 0,
        };
        let ticket = Ticket {
            stub: Some(Stub {
                feed: self.feed,
                receipt,
                sequence,
            }),
            _underway: shared.outstanding.begin(),
            _permit: Some(permit),
            _watch: None,
        };
        let queued = Queued {
            item: Box::new(Item {
                case,
                slot,
                doomed: None,
                counted: false,
            }),
            ticket,
        };
        // A lane that has gone is a consumer that stops: the delivery goes back at once, and not only when its lease
        // or its channel ends.
        let SendError(queued) = self.lanes[lane].send(queued).err()?;
        let stub = queued.ticket.stub?;
        let partition = &queued.item.case.message.position.partition;
        shared.observer.passed(stub.feed, partition, stub.sequence);
        Some(stub.receipt)
    }
}

/// What the smallest message takes of the budget, so that the budget also bounds their number.
fn least_share(settings: &Settings) -> usize {
    let unit = settings
        .batch_count_max
        .saturating_mul(settings.lanes.into());
    let ahead = unit.saturating_mul(READ_AHEAD).max(AHEAD_COUNT_MIN);
    settings.memory_bytes_max / ahead
}

/// A message's binding and the handler's lane for it.
type Bindings<W> = (Result<(semel_core::law::Binding, W), Reject>, Option<u64>);

pub(crate) fn bind<U, H: Handler<U>>(
    handler: &H,
    message: &Message,
    bytes_max: usize,
) -> Bindings<H::Work> {
    let size = message
        .cut
        .map_or(message.bytes().len() as u64, |cut| cut.size);
    if message.cut.is_some() || size > bytes_max as u64 {
        let detail = if size > bytes_max as u64 {
            format!("the payload has {size} bytes, more than the limit of {bytes_max}")
        } else {
            "the message is over a limit of its source: its headers are too many, too large, or no text"
                .to_owned()
        };
        return (
            Err(Reject {
                code: codes::TOO_LARGE,
                detail,
                field: None,
            }),
            None,
        );
    }
    // Binding keeps no state, so a panic leaves nothing half-done behind.
    match catch_unwind(AssertUnwindSafe(|| handler.bind(message))) {
        Ok(Ok(Bound {
            binding,
            lane,
            work,
        })) => (Ok((binding, work)), lane),
        Ok(Err(reject)) => (Err(reject), None),
        Err(panic) => {
            let reject = Reject {
                code: codes::POISON,
                detail: format!("the handler panicked at its binding: {}", panic_text(panic)),
                field: None,
            };
            (Err(reject), None)
        }
    }
}

/// The lane key of a message as a number; `None` leaves it to the partition.
fn lane_key(rule: &LaneRule, message: &Message, handlers_lane: Option<u64>) -> Option<u64> {
    match rule {
        LaneRule::Auto => message.message_key.as_deref().map(fnv1a),
        LaneRule::Partition => None,
        LaneRule::Handler => handlers_lane,
        LaneRule::Pointer(pointer) => {
            let json = Json::parse(message.bytes()).ok()?;
            json.at(pointer)?
                .text_or_number()
                .map(|text| fnv1a(text.as_bytes()))
        }
    }
}

/// FNV-1a, 64 bit: spreads lane keys the same way in every build. Not a fingerprint.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Gives deliveries back to their source at once.
pub(crate) async fn give_back<L, H>(
    shared: &Shared<L, H>,
    feed: usize,
    receipts: impl Iterator<Item = Receipt>,
) {
    let receipts: Vec<_> = receipts.map(|receipt| receipt.nack(0)).collect();
    if receipts.is_empty() {
        return;
    }
    let settlements = Settlements {
        receipts,
        positions: Vec::new(),
    };
    if let Err(fault) = shared.feeds[feed].source.settle(settlements).await {
        tracing::debug!(error = %fault, "not given back; the source delivers again by itself");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use semel_core::source::Source;
    use semel_storm::SimSource;

    use super::*;
    use crate::observe::Observer;
    use crate::toy;

    #[derive(Default)]
    struct Ear(Mutex<Vec<u64>>);

    impl Observer for Ear {
        fn passed(&self, _: usize, _: &Arc<str>, sequence: u64) {
            self.0.lock().unwrap().push(sequence);
        }
    }

    #[tokio::test]
    async fn what_comes_for_a_lane_that_has_gone_is_given_back_at_once() {
        let source = SimSource::new(1);
        source.push_payload("p", b"{}".to_vec());
        source.push_payload("p", b"{}".to_vec());
        let ear = Arc::new(Ear::default());
        let (lane, queue) = tokio::sync::mpsc::unbounded_channel();
        drop(queue);
        let mut intake = Intake {
            shared: toy::shared(&source, ear.clone()),
            feed: 0,
            lanes: vec![lane],
            stored: HashMap::new(),
            partitions: HashMap::new(),
        };
        let limit = intake.limit();
        let received = source
            .receive(limit)
            .await
            .unwrap_or_else(|f| panic!("{f}"));
        intake.take(received).await;
        assert_eq!(*ear.0.lock().unwrap(), [0, 1]);
        let again = source
            .receive(limit)
            .await
            .unwrap_or_else(|f| panic!("{f}"));
        assert!(
            matches!(&again, Received::Batch(batch) if batch.len() == 2),
            "{again:?}"
        );
    }
}
