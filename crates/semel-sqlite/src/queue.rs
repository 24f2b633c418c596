//! The embedded queue: a durable at-least-once queue in a SQLite file, so that the whole product runs with no
//! server. A delivery is leased; a lease that is neither acked nor nacked runs out, and its message comes again.
//!
//! What it never does: hand a leased message to a second consumer, delete a message whose lease is no longer the
//! acker's, or say that it is drained while another consumer still holds a message.

mod intake;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::Rng;
use semel_core::ledger::encode_headers;
use semel_core::message::Headers;
use semel_core::sink::IDEMPOTENCY_KEY;
use semel_core::source::{BoxFuture, Settle, Settled, Settlement, Settlements};
use semel_core::{Fault, Limit, Outgoing, Received, Sink, Source};
use tokio::sync::Mutex;

use crate::bulk::Bulk;
use crate::link::{Args, Link, no_tail, own};
use crate::migrate::{self, Mode};
use crate::options;
use crate::record::us;
use crate::sql;
use crate::store::{Missing, Store, Sync};
use intake::Intake;

/// Which queue, and how it is read.
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// `sqlite:PATH`; may be another file than the ledger's.
    pub url: String,
    /// The queue's name, and the partition of its messages' positions.
    pub name: String,
    /// How long a delivery is leased, ms: longer than any unit of work.
    pub visibility_ms: u64,
    /// Creates the file if it is missing.
    pub create: bool,
    /// How long to wait for another process that holds the write lock, ms.
    pub busy_timeout_ms: u32,
}

impl QueueOptions {
    /// Defaults for the queue `name` in a file.
    pub fn new(url: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            name: name.into(),
            // Twice the longest a unit may take before its connection is given up: what waits for its lane waits longer.
            visibility_ms: 180_000,
            create: true,
            busy_timeout_ms: 10_000,
        }
    }
}

/// The largest message a queue takes, bytes: what a consumer can still hold in memory many times over.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A queue in a SQLite file: a [`Source`] and a [`Sink`]. Order is by number, as far as leases allow: a message
/// whose lease ran out comes again, behind those that were handed out meanwhile.
#[derive(Debug)]
pub struct SqliteQueue {
    inner: Arc<Inner>,
    intake: Mutex<Intake>,
}

/// What the queue and its lease task share.
pub(crate) struct Inner {
    store: Store,
    name: Arc<str>,
    visibility_us: i64,
    /// First half of this opening's leases.
    instance: [u8; 8],
    /// Second half: one number a receive.
    generations: AtomicU64,
    statements: Statements,
    settling: Mutex<Option<Link>>,
    publishing: Mutex<Option<Link>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteQueue")
            .field("file", &self.store.file)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

struct Statements {
    put: Bulk,
    take: Bulk,
    ack: Bulk,
}

impl SqliteQueue {
    /// Opens a queue; its file and tables are created if they are missing.
    ///
    /// # Errors
    /// `Down` when the file cannot be opened, `Busy` when another process holds it; `Stop` when it is no database
    /// or its tables are newer than this program.
    pub async fn open(options: QueueOptions) -> Result<Self, Fault> {
        let path = options::path_of(&options.url)?;
        let missing = if options.create {
            Missing::Create
        } else {
            Missing::Fail
        };
        let store = Store::open(path, missing, options.busy_timeout_ms).await?;
        let mut link = store.connect(Sync::Full).await?;
        if !migrate::migrate(&mut link, &[], Mode::Plan)
            .await?
            .applied
            .is_empty()
        {
            let _turn = store.turn().await;
            migrate::migrate(&mut link, &[], Mode::Run).await?;
        }
        let inner = Inner {
            store,
            name: Arc::from(options.name),
            visibility_us: us(options.visibility_ms),
            instance: rand::rng().next_u64().to_be_bytes(),
            // Far from any other opening's numbers, so that its receipts settle nothing here.
            generations: AtomicU64::new(rand::rng().next_u64() >> 1),
            statements: Statements {
                put: Bulk::new(sql!("queue_put")),
                take: Bulk::repeated(sql!("queue_take")),
                ack: Bulk::new(sql!("queue_ack")),
            },
            settling: Mutex::default(),
            publishing: Mutex::new(Some(link)),
        };
        Ok(Self {
            inner: Arc::new(inner),
            intake: Mutex::default(),
        })
    }
}

impl Inner {
    fn generation(&self) -> u64 {
        self.generations.fetch_add(1, Ordering::Relaxed)
    }

    /// The lease of a generation: only this opening of the queue can have written it.
    fn lease(&self, generation: u64) -> [u8; 16] {
        let mut lease = [0; 16];
        lease[..8].copy_from_slice(&self.instance);
        lease[8..].copy_from_slice(&generation.to_be_bytes());
        lease
    }

    async fn settle(&self, receipts: &[Settlement]) -> Result<Settled, Fault> {
        let mut kept = self.settling.lock().await;
        let mut link = match kept.take() {
            Some(link) => link,
            None => self.store.connect(Sync::Lazy).await?,
        };
        let turn = self.store.turn().await;
        link.run(sql!("begin")).await?;
        let settled = self.settle_in(&mut link, receipts).await?;
        link.run("COMMIT").await?;
        drop(turn);
        *kept = Some(link);
        // A nacked message is there again, or the last one is gone.
        self.store.shared.bell.notify_waiters();
        Ok(settled)
    }

    async fn settle_in(&self, link: &mut Link, receipts: &[Settlement]) -> Result<Settled, Fault> {
        let mut acks: Vec<(u64, i64)> = Vec::with_capacity(receipts.len());
        for settlement in receipts {
            let receipt = settlement.receipt();
            let id = receipt.tag().get().cast_signed();
            match settlement.verdict() {
                Settle::Ack => acks.push((receipt.generation(), id)),
                Settle::Nack { delay_ms } => {
                    let lease = self.lease(receipt.generation());
                    let args = Args::default().with(id).with(&lease[..]).with(us(delay_ms));
                    link.change(sql!("queue_nack"), args).await?;
                }
            }
        }
        acks.sort_unstable();
        let mut deleted = 0;
        for acked in acks.chunk_by(|one, two| one.0 == two.0) {
            let lease = self.lease(acked[0].0);
            let row = |args: &mut Args, (_, id): &(u64, i64)| args.push(*id);
            deleted += link
                .change_all(&self.statements.ack, acked, row, |args| {
                    args.push(&lease[..])
                })
                .await?;
        }
        let deleted = usize::try_from(deleted).unwrap_or(usize::MAX);
        Ok(Settled {
            lost: acks.len().saturating_sub(deleted),
        })
    }

    async fn publish(&self, messages: &[Outgoing]) -> Result<(), Fault> {
        if let Some((at, size)) = messages
            .iter()
            .map(size)
            .enumerate()
            .find(|(_, size)| *size > MESSAGE_BYTES_MAX)
        {
            return Err(Fault::poison(format!(
                "message {at} has {size} bytes; a queue takes at most {MESSAGE_BYTES_MAX}"
            )));
        }
        let mut kept = self.publishing.lock().await;
        let mut link = match kept.take() {
            Some(link) => link,
            None => self.store.connect(Sync::Full).await?,
        };
        let row = |args: &mut Args, message: &Outgoing| {
            args.push(&*self.name);
            args.push(encode_headers(&stamped(message)));
            args.push(message.message_key.as_deref());
            args.push(message.payload.as_deref());
        };
        let turn = self.store.turn().await;
        link.run(sql!("begin")).await?;
        link.change_all(&self.statements.put, messages, row, no_tail)
            .await?;
        link.run("COMMIT").await?;
        drop(turn);
        // Behind the commit: only now it is known into which file it went.
        self.store.unmoved()?;
        *kept = Some(link);
        self.store.shared.bell.notify_waiters();
        Ok(())
    }
}

impl Source for SqliteQueue {
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        Box::pin(async move {
            self.intake
                .lock()
                .await
                .receive(&self.inner, limit)
                .await
                .map_err(own)
        })
    }

    fn settle(&self, settlements: Settlements) -> BoxFuture<'_, Result<Settled, Fault>> {
        Box::pin(async move { self.inner.settle(&settlements.receipts).await.map_err(own) })
    }
}

impl Sink for SqliteQueue {
    fn publish<'a>(&'a self, messages: &'a [Outgoing]) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(self.inner.publish(messages))
    }
}

/// Headers with the key stamped; a key that stood there before gives way.
fn stamped(message: &Outgoing) -> Headers {
    let mut headers = message.headers.clone();
    if let Some(key) = message.key {
        headers.retain(|(name, _)| name != IDEMPOTENCY_KEY);
        headers.push((IDEMPOTENCY_KEY.to_owned(), key.to_string().into()));
    }
    headers.into()
}

fn size(message: &Outgoing) -> usize {
    let headers: usize = message
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let content = message.payload.as_ref().map_or(0, |payload| payload.len());
    content + headers + message.message_key.as_ref().map_or(0, |key| key.len())
}
