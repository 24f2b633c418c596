//! The seam to a broker: hand out deliveries, settle receipts. Two methods; what a broker can do
//! beyond them stays inside its crate.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;

use crate::fault::Fault;
use crate::ledger::{Committed, Mark, Reached};
use crate::message::Message;

/// A boxed future: sources and sinks are chosen by configuration, so their traits are used as `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The right to settle one delivery, once. It can only be spent: as an ack, which needs the proof of a
/// commit, or as a nack.
///
/// ```compile_fail
/// # use semel_core::{Committed, Receipt};
/// fn twice(receipt: Receipt, proof: &Committed) {
///     let _ = receipt.ack(proof);
///     let _ = receipt.ack(proof); // the receipt is spent
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Receipt {
    generation: u64,
    partition: u32,
    tag: NonZeroU64,
}

impl Receipt {
    /// Called by sources only. `generation` changes with every new channel, assignment or lease epoch
    /// of the source; `partition` is the source's own index; `tag` is its own number of the delivery,
    /// from 1, so that AMQP's tag 0 ("all outstanding") cannot be expressed.
    #[must_use]
    pub const fn new(generation: u64, partition: u32, tag: NonZeroU64) -> Self {
        Self {
            generation,
            partition,
            tag,
        }
    }

    /// The source's generation in which this delivery was made.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The source's index of the partition.
    #[must_use]
    pub const fn partition(&self) -> u32 {
        self.partition
    }

    /// The source's number of the delivery.
    #[must_use]
    pub const fn tag(&self) -> NonZeroU64 {
        self.tag
    }

    /// Spends the receipt: the message is done. Needs the proof that the unit which judged it committed.
    #[must_use]
    pub const fn ack(self, _proof: &Committed) -> Settlement {
        Settlement {
            receipt: self,
            verdict: Settle::Ack,
        }
    }

    /// Spends the receipt: deliver again, not before `delay_ms`.
    #[must_use]
    pub const fn nack(self, delay_ms: u64) -> Settlement {
        Settlement {
            receipt: self,
            verdict: Settle::Nack { delay_ms },
        }
    }
}

/// How a receipt is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// Done; never deliver again.
    Ack,
    /// Deliver again, not before the delay.
    Nack {
        /// The least delay, ms. A source that cannot delay delivers at once.
        delay_ms: u64,
    },
}

/// A spent receipt on its way to the source.
#[derive(Debug, PartialEq, Eq)]
pub struct Settlement {
    receipt: Receipt,
    verdict: Settle,
}

impl Settlement {
    /// The receipt that was spent.
    #[must_use]
    pub const fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// What it was spent on.
    #[must_use]
    pub const fn verdict(&self) -> Settle {
        self.verdict
    }
}

/// One message with the right to settle it.
#[derive(Debug)]
pub struct Delivery {
    /// The right to settle it.
    pub receipt: Receipt,
    /// Its content.
    pub message: Message,
    /// Present when the source can be read again from a position: what the source needs to continue
    /// behind this message (`Position::offset` is then present too and grows within the partition).
    /// The engine stores positions for such sources only.
    pub mark: Option<Mark>,
}

/// The most that one [`Source::receive`] may hand out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Messages, at least 1.
    pub count: usize,
    /// Sum of [`Message::size`]; a single larger message is still handed out, alone.
    pub bytes: usize,
}

impl Limit {
    /// So many messages, however large.
    #[must_use]
    pub const fn messages(count: usize) -> Self {
        Self {
            count,
            bytes: usize::MAX,
        }
    }

    /// How many of the first messages of these sizes it lets through: the first one always.
    pub fn lets_through(self, sizes: impl IntoIterator<Item = usize>) -> usize {
        let mut bytes = 0_usize;
        let fits = |(index, size): &(usize, usize)| {
            bytes = bytes.saturating_add(*size);
            *index == 0 || bytes <= self.bytes
        };
        let sizes = sizes.into_iter().take(self.count).enumerate();
        sizes.take_while(fits).count()
    }
}

/// What [`Source::receive`] found.
#[derive(Debug)]
pub enum Received {
    /// Deliveries, at least one, in the order of each partition.
    Batch(Vec<Delivery>),
    /// Nothing is left for now, by the source's own definition of drained (deliveries that are out
    /// count as left where the source can see them). More may come: ask again, and the call waits.
    Drained,
    /// Nothing will ever come again (end of a file).
    End,
}

/// Receipts to settle together, after one commit.
#[derive(Debug, Default)]
pub struct Settlements {
    /// Spent receipts.
    pub receipts: Vec<Settlement>,
    /// Positions as the committed unit wrote them. A source that commits offsets tells its broker these
    /// values and nothing beyond them.
    pub positions: Vec<Reached>,
}

/// What became of settlements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// Acks that may not have arrived: a dead channel, a lost assignment, an expired lease. The broker
    /// will deliver again, and the ledger knows.
    pub lost: usize,
}

/// Hands out deliveries and settles receipts. At-least-once: a delivery that is not acked comes again.
///
/// `receive` and `settle` run at the same time from different tasks.
pub trait Source: Send + Sync {
    /// Waits until something is there, then hands out what is waiting, up to `limit`, without lingering.
    ///
    /// Cancel-safe: a dropped future loses nothing; what it would have handed out comes with a later
    /// call. `Drained` is answered once each time the source becomes drained; the next call waits.
    ///
    /// # Errors
    /// `Down` when the broker is away (the source reconnects by itself; call again), `Stop` when going
    /// on could skip or repeat messages unseen.
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>>;

    /// Settles receipts. A receipt of an older generation is dropped and counted as lost.
    ///
    /// # Errors
    /// `Down` when the broker is away: every ack of the call counts as lost, nothing is retried.
    fn settle(&self, settlements: Settlements) -> BoxFuture<'_, Result<Settled, Fault>>;
}

/// What a source needs to know of the ledger when it is opened or gets a partition assigned.
pub trait Positions: Send + Sync {
    /// The stored position of one partition of this source: the maximum over the lanes, or `None`
    /// when no unit has written one.
    fn reached(&self, partition: &str) -> BoxFuture<'_, Result<Option<Reached>, Fault>>;

    /// Whether units write positions at all. Where they do, a partition without one that a unit once told its broker of means
    /// that the ledger lost it.
    fn are_kept(&self) -> bool {
        true
    }
}

/// Positions of a ledger that keeps none: every partition starts as the source's settings say.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPositions;

impl Positions for NoPositions {
    fn reached(&self, _partition: &str) -> BoxFuture<'_, Result<Option<Reached>, Fault>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn are_kept(&self) -> bool {
        false
    }
}

/// A shared source, as the engine holds it.
pub type SharedSource = Arc<dyn Source>;
