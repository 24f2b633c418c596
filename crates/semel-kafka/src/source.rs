//! The source: the async side of a group member. It hands out what the member has fetched and never waits
//! for the broker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use semel_core::source::{BoxFuture, Positions, Received, Settle, Settled};
use semel_core::{Fault, Limit, Settlements, Source};
use tokio::runtime::Handle;

use crate::assignment::Found;
use crate::complaint::Complaints;
use crate::member::{self, Context, Member, Tuning};
use crate::options::KafkaOptions;
use crate::orphans::Orphans;
use crate::probe::Probe;
use crate::record::Limits;
use crate::shared::Shared;
use crate::vetting::{Vetting, blocking};

/// Topics of a Kafka cluster, read as a member of a consumer group.
///
/// Its partitions are called `topic/partition` in positions. Close it with [`close`](Self::close): what is
/// reached is told to the broker, and the group learns at once that this member is gone. Dropped without
/// that, it closes itself in the background.
///
/// ```no_run
/// # async fn example() -> Result<(), semel_core::Fault> {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use semel_core::source::NoPositions;
/// use semel_core::{Limit, Source};
/// use semel_kafka::{KafkaOptions, KafkaSource, StartAt};
///
/// let options = KafkaOptions::new(["127.0.0.1:9092"], ["payments"], "wallet", StartAt::Earliest);
/// let source = KafkaSource::open(options, Arc::new(NoPositions)).await?;
/// let received = source.receive(Limit { count: 1_000, bytes: 8 << 20 }).await?;
/// println!("{received:?}");
/// source.close(Duration::from_secs(10)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct KafkaSource {
    shared: Arc<Shared>,
}

impl KafkaSource {
    /// Checks the options and that the topics are there, then joins the group. Partitions come with the
    /// first [`receive`](Source::receive)s. `positions` is the ledger's knowledge of this source; with
    /// [`NoPositions`](semel_core::source::NoPositions) every start is a first start.
    ///
    /// Must be called within a tokio runtime, which the source uses as long as it lives.
    ///
    /// # Errors
    /// `Stop` when the options are wrong, a topic does not exist or may not be read, or no broker lets us in; `Down`
    /// when none answers within `timeout_ms`.
    pub async fn open(options: KafkaOptions, positions: Arc<dyn Positions>) -> Result<Self, Fault> {
        let reader = options.reader()?;
        let timeout = Duration::from_millis(options.timeout_ms.into());
        let topics = options.topics.clone();
        let asked = reader.clone();
        let probe = blocking(move || {
            let probe = Probe::open(&asked, timeout)?;
            topics
                .iter()
                .try_for_each(|topic| probe.partitions(topic).map(drop))?;
            Ok(probe)
        })
        .await?;
        // The group is joined while the probe ends.
        let ended = tokio::task::spawn_blocking(move || drop(probe));
        let joined = Self::join(&options, reader, positions);
        let _ = ended.await;
        joined
    }

    fn join(
        options: &KafkaOptions,
        reader: ClientConfig,
        positions: Arc<dyn Positions>,
    ) -> Result<Self, Fault> {
        let timeout = Duration::from_millis(options.timeout_ms.into());
        let shared = Arc::new(Shared::new());
        let tuning = Tuning {
            limits: Limits::from(options),
            buffer_bytes_max: options.buffer_bytes_max.max(1),
            commit_interval: Duration::from_millis(options.commit_interval_ms),
            drain: Duration::from_millis(options.drain_ms),
            timeout,
            session_timeout: Duration::from_millis(options.session_timeout_ms.into()),
        };
        let vetting = Vetting {
            shared: shared.clone(),
            positions,
            reader,
            timeout,
            start_at: options.start_at,
        };
        let orphans = Orphans::of(options, vetting.reader.clone(), shared.clone())?;
        let context = Context {
            orphans,
            shared: shared.clone(),
            vetting: vetting.clone(),
            runtime: Handle::current(),
            tuning,
            topics: options.topics.clone(),
            complaints: Complaints::default(),
        };
        let config = options.member()?;
        let client = member::join(&config, context)?;
        let member = Member::new(config, client, shared.clone(), tuning);
        std::thread::Builder::new()
            .name("semel-kafka".to_owned())
            .spawn(move || member.run())
            .map_err(|error| Fault::down(format!("kafka: no thread for the client: {error}")))?;
        tokio::spawn(crate::watch::run(vetting));
        Ok(Self { shared })
    }

    /// Tells the broker what is reached, leaves the group and waits for that, at most for `deadline`. What
    /// is not settled comes again to the next member. Nothing more is handed out.
    ///
    /// # Errors
    /// `Down` when the deadline passed; the client's thread is then left behind, and the process may end. `Stop` when a last
    /// look shows that a topic is not the one that was read.
    pub async fn close(&self, deadline: Duration) -> Result<(), Fault> {
        let stopped = self.shared.lock().stop().is_some();
        self.shut();
        let mut ended = self.shared.ended.subscribe();
        let ended = tokio::time::timeout(deadline, ended.wait_for(|ended| *ended)).await;
        match ended {
            Ok(_) => match self.shared.lock().stop() {
                Some(stop) if !stopped => Err(stop),
                _ => Ok(()),
            },
            Err(_) => Err(Fault::down(
                "kafka: the client did not close in time; what it has not told the broker comes again as duplicates",
            )),
        }
    }

    /// How many offsets each assigned partition has between what is done and its end, by name. Offsets that
    /// hold no records count while records follow them, so this is never too low; 0 means done. The end is
    /// as new as the client library's last word, at most 5 s old.
    #[must_use]
    pub fn lag(&self) -> Vec<(String, u64)> {
        self.shared.lock().assignment.lag()
    }

    /// What it waits for, in words; `None` while all is well.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.shared.lock().fault().map(|fault| fault.detail())
    }

    fn shut(&self) {
        self.shared.lock().closing = true;
        self.shared.wake();
    }

    async fn next(&self, limit: Limit) -> Result<Received, Fault> {
        loop {
            let arrived = self.shared.arrived.notified();
            tokio::pin!(arrived);
            // Registered before the look, so that nothing that comes in between is missed.
            arrived.as_mut().enable();
            let due = match self.look(limit)? {
                Look::Found(received) => return Ok(received),
                Look::Wait(due) => due,
            };
            match due {
                None => arrived.await,
                Some(due) => {
                    let _ = tokio::time::timeout_at(due.into(), arrived).await;
                }
            }
        }
    }

    fn look(&self, limit: Limit) -> Result<Look, Fault> {
        let mut state = self.shared.lock();
        if let Some(stop) = state.stop() {
            return Err(stop);
        }
        if state.closing {
            return Err(Fault::down("kafka: the source is closed"));
        }
        let held_some = state.assignment.buffered() > 0;
        let due = match state.assignment.take(limit, Instant::now()) {
            Found::Batch(batch) => {
                drop(state);
                if held_some {
                    self.shared.changed();
                }
                return Ok(Look::Found(Received::Batch(batch)));
            }
            Found::Nothing(due) => due,
        };
        if let Some(fault) = state.fault() {
            return Err(fault);
        }
        // Said once, and so only when nothing else is to be said.
        Ok(if state.assignment.says_drained() {
            Look::Found(Received::Drained)
        } else {
            Look::Wait(due)
        })
    }
}

/// What a look brought.
enum Look {
    Found(Received),
    /// Nothing now; something given back is due then.
    Wait(Option<Instant>),
}

impl Source for KafkaSource {
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        Box::pin(self.next(limit))
    }

    fn settle(&self, settlements: Settlements) -> BoxFuture<'_, Result<Settled, Fault>> {
        let now = Instant::now();
        let mut settled = Settled::default();
        let mut state = self.shared.lock();
        for position in &settlements.positions {
            state.assignment.reach(position);
        }
        let mut given_back = false;
        for settlement in &settlements.receipts {
            given_back |= matches!(settlement.verdict(), Settle::Nack { .. });
            if !state.assignment.settle(settlement, now) {
                settled.lost += 1;
            }
        }
        // Acks alone bring a waiting `receive` nothing to hand out.
        let heard = given_back || state.assignment.has_drained();
        drop(state);
        self.shared.changed();
        if heard {
            self.shared.arrived.notify_waiters();
        }
        Box::pin(std::future::ready(Ok(settled)))
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        self.shut();
    }
}
