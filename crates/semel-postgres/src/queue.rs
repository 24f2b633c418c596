//! The embedded queue: a durable at-least-once queue in a table. Messages are leased in the order of their ids
//! by `FOR UPDATE SKIP LOCKED`, by as many processes as like; a lease that runs out is handed out again.
//!
//! Delivery guarantees, the bad news first: a slow consumer whose lease ran out works on a message that another
//! one may have got too; its ack is then refused and counted as lost. Order is kept by id among messages that
//! are visible; one that was nacked with a delay is overtaken.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use semel_core::ledger::encode_headers;
use semel_core::sink::IDEMPOTENCY_KEY;
use semel_core::source::{
    BoxFuture, Delivery, Limit, Receipt, Received, Settle, Settled, Settlements,
};
use semel_core::{Fault, Outgoing, Sink, Source};
use sqlx::types::Uuid;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;

use crate::fault::fault;
use crate::ledger::PostgresLedger;
use crate::options::Options;
use crate::session::{self, Purpose, Session, Span};

mod desk;

use desk::{Taken, acks, left, nacks, put, take};

/// The largest message the queue takes, bytes: far below PostgreSQL's own limit of 1 GB a value.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Messages and bytes in one insert.
const PUT_COUNT_MAX: usize = 1_000;
const PUT_BYTES_MAX: usize = 16 << 20;
/// First and longest wait before an empty queue is asked again, ms. Messages put by this very handle wake at
/// once; those of others come within the longest.
const POLL_MS_FIRST: u64 = 10;
const POLL_MS_MAX: u64 = 200;

/// How a queue behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueOptions {
    /// How long a delivery may be worked on before it is handed out again, ms.
    pub visibility_ms: u64,
}

impl Default for QueueOptions {
    /// Twice the longest a unit may take before its connection is given up: what waits for its lane waits longer.
    fn default() -> Self {
        Self {
            visibility_ms: 180_000,
        }
    }
}

/// A queue in the table `semel_queue`: a source and a sink. Clones share leases and connections.
#[derive(Clone)]
pub struct PostgresQueue {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    name: Arc<str>,
    visibility_ms: u64,
    /// Names the leases of this handle.
    lease: Uuid,
    reader: Mutex<Reader>,
    settler: Mutex<Option<Session>>,
    writer: Mutex<Option<Session>>,
    put: Notify,
}

/// What is being read. A taking runs in a task of its own, so that a dropped `receive` loses nothing: the next
/// one waits for the same task.
#[derive(Default)]
struct Reader {
    connection: Option<Session>,
    under_way: Option<JoinHandle<Taking>>,
    /// Leased, and not handed out yet.
    buffer: VecDeque<Delivery>,
    drained_told: bool,
}

/// A taking's end: its connection, if all went well, and what it found.
type Taking = (Option<Session>, Result<Found, Fault>);

/// What a taking found.
enum Found {
    Leased(Vec<Delivery>),
    /// Nothing that is visible, but something is left.
    Invisible,
    Nothing,
}

impl fmt::Debug for PostgresQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresQueue")
            .field("name", &self.inner.name)
            .finish_non_exhaustive()
    }
}

impl PostgresQueue {
    /// Opens a queue, whose table is migrated as the options say.
    ///
    /// # Errors
    /// As [`PostgresLedger::open`].
    pub async fn open(options: Options, name: &str, queue: QueueOptions) -> Result<Self, Fault> {
        PostgresLedger::open(options.clone()).await?;
        let mut connection = session::open(&options, Purpose::Work).await?;
        connection.begin(Span::Each).await.map_err(fault)?;
        left(&mut connection, name).await?;
        connection.commit(Span::Each).await.map_err(fault)?;
        let inner = Inner {
            options,
            name: name.into(),
            visibility_ms: queue.visibility_ms,
            lease: Uuid::from_bytes(rand::random()),
            reader: Mutex::default(),
            settler: Mutex::new(Some(connection)),
            writer: Mutex::default(),
            put: Notify::new(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    async fn next(&self, limit: Limit) -> Result<Received, Fault> {
        let mut reader = self.inner.reader.lock().await;
        let mut wait = POLL_MS_FIRST;
        loop {
            if !reader.buffer.is_empty() {
                return Ok(Received::Batch(reader.hand_out(limit)));
            }
            match self.found(&mut reader, limit).await? {
                Found::Leased(deliveries) => {
                    reader.drained_told = false;
                    reader.buffer.extend(deliveries);
                    continue;
                }
                Found::Invisible => reader.drained_told = false,
                Found::Nothing if reader.drained_told => {}
                Found::Nothing => {
                    reader.drained_told = true;
                    return Ok(Received::Drained);
                }
            }
            // Put by this handle, or time to look again: either way the table is asked.
            let _ =
                tokio::time::timeout(Duration::from_millis(wait), self.inner.put.notified()).await;
            wait = (wait * 2).min(POLL_MS_MAX);
        }
    }

    async fn found(&self, reader: &mut Reader, limit: Limit) -> Result<Found, Fault> {
        let connection = &mut reader.connection;
        let under_way = reader.under_way.get_or_insert_with(|| {
            tokio::spawn(Arc::clone(&self.inner).take(connection.take(), limit))
        });
        let ended = under_way.await;
        reader.under_way = None;
        let (connection, found) =
            ended.map_err(|error| Fault::down(format!("taking from the queue: {error}")))?;
        reader.connection = connection;
        found
    }

    async fn settled(&self, settlements: Settlements) -> Result<Settled, Fault> {
        let inner = &self.inner;
        let mut done: Vec<(i64, i32)> = Vec::new();
        let mut again: Vec<(i64, i32, i64)> = Vec::new();
        for settlement in &settlements.receipts {
            let receipt = settlement.receipt();
            let place = i64::try_from(receipt.tag().get())
                .and_then(|id| Ok((id, i32::try_from(receipt.generation())?)));
            let (id, attempt) =
                place.map_err(|_| Fault::stop("a receipt of another source came to this queue"))?;
            match settlement.verdict() {
                Settle::Ack => done.push((id, attempt)),
                Settle::Nack { delay_ms } => {
                    again.push((id, attempt, i64::try_from(delay_ms).unwrap_or(i64::MAX)))
                }
            }
        }
        done.sort_unstable();
        again.sort_unstable();
        let acked = inner
            .on(&inner.settler, "settling", async |connection| {
                let acked = acks(connection, inner.lease, &done).await?;
                nacks(connection, inner.lease, &again).await?;
                Ok(acked)
            })
            .await?;
        if !again.is_empty() {
            inner.put.notify_one();
        }
        Ok(Settled {
            lost: done.len().saturating_sub(acked),
        })
    }

    async fn published(&self, messages: &[Outgoing]) -> Result<(), Fault> {
        let inner = &self.inner;
        for (place, message) in messages.iter().enumerate() {
            let size = size(message);
            if size > MESSAGE_BYTES_MAX {
                return Err(Fault::poison(format!(
                    "message {place} has {size} bytes; the queue takes at most {MESSAGE_BYTES_MAX}"
                )));
            }
        }
        let mut rest = messages;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(chunk(rest));
            inner
                .on(&inner.writer, "publishing", async |connection| {
                    put(connection, &inner.name, now).await
                })
                .await?;
            inner.put.notify_one();
            rest = later;
        }
        Ok(())
    }
}

impl Reader {
    fn hand_out(&mut self, limit: Limit) -> Vec<Delivery> {
        let mut bytes = 0_usize;
        let mut batch = Vec::new();
        while let Some(next) = self.buffer.front() {
            bytes = bytes.saturating_add(next.message.size());
            if !batch.is_empty() && (batch.len() >= limit.count || bytes > limit.bytes) {
                break;
            }
            batch.extend(self.buffer.pop_front());
        }
        batch
    }
}

impl Inner {
    /// Takes what is visible. Owns its connection, and gives it back when all went well.
    async fn take(self: Arc<Self>, connection: Option<Session>, limit: Limit) -> Taking {
        let taking = session::within(
            self.options.call_limit_ms(),
            "taking from the queue",
            async {
                let mut connection = match connection {
                    Some(connection) => connection,
                    None => session::open(&self.options, Purpose::Work).await?,
                };
                connection.begin(Span::Each).await.map_err(fault)?;
                let taken = take(
                    &mut connection,
                    &self.name,
                    self.lease,
                    self.visibility_ms,
                    limit,
                )
                .await?;
                let found = if taken.is_empty() {
                    if left(&mut connection, &self.name).await? {
                        Found::Invisible
                    } else {
                        Found::Nothing
                    }
                } else {
                    Found::Leased(
                        taken
                            .into_iter()
                            .map(|taken| self.delivery(taken))
                            .collect::<Result<_, _>>()?,
                    )
                };
                connection.commit(Span::Each).await.map_err(fault)?;
                Ok((connection, found))
            },
        );
        match taking.await {
            Ok((connection, found)) => (Some(connection), Ok(found)),
            Err(error) => (None, Err(error)),
        }
    }

    fn delivery(&self, taken: Taken) -> Result<Delivery, Fault> {
        let tag = u64::try_from(taken.id).ok().and_then(NonZeroU64::new);
        let tag = tag.ok_or_else(|| {
            Fault::stop(format!(
                "queue row {} has an id that no identity gives",
                taken.id
            ))
        })?;
        // Each lease of a row counts its attempt up, so the attempt tells a receipt of an older lease.
        let receipt = Receipt::new(u64::from(taken.attempt), 0, tag);
        let message = taken.message(&self.name, tag.get())?;
        Ok(Delivery {
            receipt,
            message,
            mark: None,
        })
    }

    /// Runs a call on a connection of its own, which is kept only when it went well.
    async fn on<T: Send>(
        &self,
        slot: &Mutex<Option<Session>>,
        what: &str,
        call: impl AsyncFnOnce(&mut Session) -> Result<T, Fault> + Send,
    ) -> Result<T, Fault> {
        let mut slot = slot.lock().await;
        let kept = slot.take();
        let (connection, answer) = session::within(self.options.call_limit_ms(), what, async {
            let mut connection = match kept {
                Some(connection) => connection,
                None => session::open(&self.options, Purpose::Work).await?,
            };
            connection.begin(Span::Each).await.map_err(fault)?;
            let answer = call(&mut connection).await?;
            connection.commit(Span::Each).await.map_err(fault)?;
            Ok((connection, answer))
        })
        .await?;
        *slot = Some(connection);
        Ok(answer)
    }
}

fn size(message: &Outgoing) -> usize {
    let headers: usize = message
        .headers
        .iter()
        .map(|(n, v)| n.len() + v.len() + 8)
        .sum();
    message.payload.as_ref().map_or(0, bytes::Bytes::len)
        + headers
        + message.message_key.as_ref().map_or(0, bytes::Bytes::len)
}

/// How many of `messages` go into one insert: at least one.
fn chunk(messages: &[Outgoing]) -> usize {
    let mut bytes = 0;
    let fits = messages.iter().take(PUT_COUNT_MAX).take_while(|message| {
        bytes += size(message);
        bytes <= PUT_BYTES_MAX
    });
    fits.count().max(1)
}

/// Headers as stored, with the key among them.
fn stamped(message: &Outgoing) -> Vec<u8> {
    let mut headers = message.headers.clone();
    if let Some(key) = message.key {
        headers.retain(|(name, _)| name != IDEMPOTENCY_KEY);
        headers.push((IDEMPOTENCY_KEY.to_owned(), key.to_string().into()));
    }
    encode_headers(&headers.into())
}

impl Source for PostgresQueue {
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        Box::pin(self.next(limit))
    }

    fn settle(&self, settlements: Settlements) -> BoxFuture<'_, Result<Settled, Fault>> {
        Box::pin(self.settled(settlements))
    }
}

impl Sink for PostgresQueue {
    fn publish<'a>(&'a self, messages: &'a [Outgoing]) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(self.published(messages))
    }
}
