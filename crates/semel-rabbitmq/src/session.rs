//! The life of one channel: takes what the broker pushes, sends acks in order, gives nacked deliveries
//! back when their delay is over, and asks the broker for a sign of life. It ends at the first sign
//! that something is wrong; the next one starts clean.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};
use futures_util::stream::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Consumer, Queue};
use semel_core::Message;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::content::{self, Sizes};
use crate::fault::{Refusal, is_refused};
use crate::link::Link;
use crate::options::{Declare, RabbitOptions};
use crate::pace::Pace;
use crate::source::{Depth, Order, Shared, stop};
use crate::window::{Ack, Window};

/// The broker is asked for a sign of life this often.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// A delivery is never given back sooner: a consumer that stops gives back hundreds at once, and each
/// would come straight back to it, counted once more against the queue's delivery limit (TRAPS T45).
const GIVE_BACK_AFTER: Duration = Duration::from_millis(500);

/// An ack waits this long for those before it, which other lanes settle: a few units of work. What is
/// not acked by then costs a frame of its own.
const HOLD: Duration = Duration::from_millis(25);

/// A quorum queue takes acks in some at a time, and forgets the rest when the channel closes: after
/// the last ones, closing waits this long. They would only come again as duplicates.
const LINGER: Duration = Duration::from_millis(100);

/// Deliveries taken from the client before callers hear of them.
const DELIVER_COUNT_MAX: usize = 512;

/// How a session ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It was told to.
    Stopped,
    /// The channel is gone.
    Lost(Lost),
}

/// Why a channel is gone.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) reason: Refusal,
    /// The peer is silent: it was waited for long enough, and there is nobody to say goodbye to.
    pub(crate) silent: bool,
}

impl Lost {
    fn because(why: impl ToString) -> Self {
        Self {
            reason: Refusal::ended(why),
            silent: false,
        }
    }

    fn silent(why: impl ToString) -> Self {
        Self {
            reason: Refusal::ended(why),
            silent: true,
        }
    }
}

type Probe = Pin<Box<dyn Future<Output = lapin::Result<Queue>> + Send>>;

/// An open channel that consumes.
pub(crate) struct Session {
    link: Link,
    channel: Channel,
    consumer: Consumer,
    options: RabbitOptions,
    control: Channel,
    prefetch: u16,
}

impl Session {
    /// Connects, sees to the queue, and consumes.
    pub(crate) async fn open(options: &RabbitOptions, prefetch: u16) -> Result<Self, Refusal> {
        let link = Link::open(&options.broker()).await?;
        let limit = Duration::from_millis(options.connect_timeout_ms);
        let mut declared = false;
        let opening = async {
            let control = link.channel().await?;
            let channel = link.channel().await?;
            declare(&control, options)
                .await
                .map_err(|error| Refusal::of_queue(&options.queue, link.vhost(), &error))?;
            declared = true;
            let consumer = consume(&channel, &options.queue, prefetch).await;
            let consumer = consumer
                .map_err(|error| Refusal::of_queue(&options.queue, link.vhost(), &error))?;
            Ok((control, channel, consumer))
        };
        match tokio::time::timeout(limit, opening).await {
            Ok(Ok((control, channel, consumer))) => Ok(Self {
                link,
                channel,
                consumer,
                options: options.clone(),
                control,
                prefetch,
            }),
            Ok(Err(refusal)) => {
                link.close().await;
                Err(refusal)
            }
            Err(_) => {
                link.cut();
                let queue = options.queue.clone();
                let limit_ms = options.connect_timeout_ms;
                Err(if declared {
                    Refusal::StuckQueue { queue, limit_ms }
                } else {
                    Refusal::ended(format!(
                        "no answer about queue `{queue}` within {limit_ms} ms"
                    ))
                })
            }
        }
    }

    /// Connects and looks at the queue, without declaring or consuming anything.
    pub(crate) async fn look(options: &RabbitOptions) -> Result<Depth, Refusal> {
        let link = Link::open(&options.broker()).await?;
        let limit = Duration::from_millis(options.connect_timeout_ms);
        let passive = RabbitOptions {
            declare: Declare::Passive,
            ..options.clone()
        };
        let looking = async {
            let channel = link.channel().await?;
            let depth = declare(&channel, &passive)
                .await
                .map_err(|error| Refusal::of_queue(&options.queue, link.vhost(), &error))?;
            may_consume(&channel, &options.queue)
                .await
                .map_err(|error| Refusal::of_queue(&options.queue, link.vhost(), &error))?;
            Ok(depth)
        };
        if let Ok(seen) = tokio::time::timeout(limit, looking).await {
            link.close().await;
            return seen;
        }
        link.cut();
        Err(Refusal::ended("no answer about the queue"))
    }

    /// Runs until the channel is gone. Returns the prefetch to go on with, too.
    pub(crate) async fn run(
        self,
        shared: &Shared,
        orders: mpsc::UnboundedReceiver<Order>,
        stopped: &mut watch::Receiver<bool>,
    ) -> (Ending, u16) {
        let now = Instant::now();
        let mut life = Life {
            shared,
            wire: Wire {
                channel: self.channel,
                patience: self.options.liveness(),
                queue: self.options.queue.as_str().into(),
                vhost: self.link.vhost().to_owned(),
            },
            control: self.control,
            consumer: Some(self.consumer),
            pausing: false,
            growing: false,
            prefetch: self.prefetch,
            options: self.options,
            window: Window::default(),
            give_back: BTreeSet::new(),
            flush_at: None,
            probe: None,
            pace: Pace::new(now),
            last_sign: now,
            next_probe: now + PROBE_INTERVAL,
            quiet_since: now,
            alone: 0,
        };
        let ending = life.run(orders, stopped).await;
        if matches!(ending, Ending::Stopped) {
            life.last_words().await;
        }
        shared.lose(life.window.held());
        let prefetch = life.prefetch;
        match &ending {
            Ending::Lost(Lost { silent: true, .. }) => self.link.cut(),
            // In a task of its own: the next session does not wait for a goodbye.
            Ending::Lost(Lost { silent: false, .. }) => drop(tokio::spawn(self.link.close())),
            Ending::Stopped => self.link.close().await,
        }
        (ending, prefetch)
    }
}

/// See the module.
struct Life<'a> {
    shared: &'a Shared,
    options: RabbitOptions,
    wire: Wire,
    control: Channel,
    /// `None` while too many bytes are unsettled.
    consumer: Option<Consumer>,
    /// The consumer was told to stop; what it got before still comes out of it.
    pausing: bool,
    prefetch: u16,
    /// It is paused for a larger prefetch, which counts from nothing: until all is settled.
    growing: bool,
    window: Window,
    give_back: BTreeSet<(Instant, NonZeroU64)>,
    /// When acks that are held are sent one by one.
    flush_at: Option<Instant>,
    /// A question under way, and whether it is to find out that the queue is drained.
    probe: Option<(Probe, Instant)>,
    pace: Pace,
    last_sign: Instant,
    next_probe: Instant,
    quiet_since: Instant,
    /// How often in a row the broker said that nobody consumes.
    alone: u8,
}

/// The channel that delivers, and whose acks settle.
struct Wire {
    channel: Channel,
    /// How long a live peer may take to take something in or to answer.
    patience: Duration,
    queue: Arc<str>,
    vhost: String,
}

#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, on the stack"
)]
enum Event {
    Stop,
    Delivered(Option<lapin::Result<lapin::message::Delivery>>),
    Ordered(Order),
    Probed(lapin::Result<Queue>),
    Time,
}

impl Life<'_> {
    async fn run(
        &mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        stopped: &mut watch::Receiver<bool>,
    ) -> Ending {
        loop {
            let event = self.next(&mut orders, stopped).await;
            let step = match event {
                Event::Stop => return Ending::Stopped,
                Event::Delivered(delivery) => self.delivered(delivery).await,
                Event::Ordered(order) => self.ordered(order).await,
                Event::Probed(answer) => self.probed(answer),
                Event::Time => self.time().await,
            };
            if let Err(lost) = step {
                return Ending::Lost(lost);
            }
        }
    }

    async fn next(
        &mut self,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        stopped: &mut watch::Receiver<bool>,
    ) -> Event {
        let wake = self.next_wake();
        let rests = self.pace.rests_until().is_some();
        let (consumer, probe) = (&mut self.consumer, &mut self.probe);
        // Fair on purpose: a flood of deliveries must not keep acks waiting, nor the other way round.
        tokio::select! {
            () = stop(stopped) => Event::Stop,
            delivery = async { consumer.as_mut().expect("there is one").next().await }, if consumer.is_some() && !rests => Event::Delivered(delivery),
            // The source keeps the sender as long as this session is its current one.
            Some(order) = orders.recv() => Event::Ordered(order),
            answer = async { (&mut probe.as_mut().expect("there is one").0).await }, if probe.is_some() => Event::Probed(answer),
            () = tokio::time::sleep_until(wake) => Event::Time,
        }
    }

    fn next_wake(&self) -> Instant {
        let mut wake = if self.probe.is_some() {
            self.dead_at()
        } else {
            self.next_probe
        };
        if let Some(due) = self.pace.rests_until() {
            wake = wake.min(due);
        }
        if let Some((due, _)) = self.give_back.first() {
            wake = wake.min(*due);
        }
        if let Some(due) = self.flush_at {
            wake = wake.min(due);
        }
        if let Some(due) = self.drained_at() {
            wake = wake.min(due);
        }
        wake
    }

    fn dead_at(&self) -> Instant {
        let asked = self
            .probe
            .as_ref()
            .map_or(self.last_sign, |(_, asked)| *asked);
        self.last_sign.max(asked) + self.options.liveness()
    }

    /// When to ask whether the queue is drained.
    fn drained_at(&self) -> Option<Instant> {
        let possible =
            self.probe.is_none() && self.window.open() == 0 && !self.shared.knows_it_is_drained();
        possible.then(|| self.quiet_since + Duration::from_millis(self.options.idle_ms))
    }

    async fn time(&mut self) -> Result<(), Lost> {
        let now = Instant::now();
        self.pace.rested(now);
        if self.probe.is_some() && now >= self.dead_at() {
            return Err(Lost::silent(format!(
                "no sign of life for {} ms",
                self.options.liveness_ms
            )));
        }
        if self.probe.is_none()
            && (now >= self.next_probe || self.drained_at().is_some_and(|due| now >= due))
        {
            self.ask(now);
        }
        if self.flush_at.is_some_and(|due| now >= due) {
            self.flush().await?;
        }
        self.give_back_due(now).await
    }

    /// Asks how the queue is: a sign of life of the broker, and its depth.
    fn ask(&mut self, now: Instant) {
        let (control, queue) = (self.control.clone(), self.wire.queue.clone());
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let probe = async move {
            control
                .queue_declare(queue.as_ref().into(), passive, FieldTable::default())
                .await
        };
        self.probe = Some((Box::pin(probe), now));
        self.next_probe = now + PROBE_INTERVAL;
    }

    fn probed(&mut self, answer: lapin::Result<Queue>) -> Result<(), Lost> {
        let asked = self.probe.take().map_or(self.last_sign, |(_, asked)| asked);
        let queue = answer.map_err(|error| self.wire.lost(&error))?;
        let now = Instant::now();
        self.last_sign = now;
        let depth = depth(&queue);
        self.shared.seen(depth);
        self.alone = if depth.consumers == 0 && self.consumer.is_some() {
            self.alone + 1
        } else {
            0
        };
        if self.alone >= 2 {
            return Err(Lost::because(
                "the broker no longer counts us as a consumer",
            ));
        }
        let quiet =
            now.duration_since(self.quiet_since) >= Duration::from_millis(self.options.idle_ms);
        if quiet && self.quiet_since <= asked && self.window.open() == 0 {
            if depth.ready == 0 {
                self.shared.drained();
            } else {
                // Messages that the broker does not give to us now: another consumer's turn, say.
                self.quiet_since = now;
            }
        }
        Ok(())
    }

    async fn delivered(
        &mut self,
        first: Option<lapin::Result<lapin::message::Delivery>>,
    ) -> Result<(), Lost> {
        self.last_sign = Instant::now();
        self.quiet_since = self.last_sign;
        let mut batch = Vec::new();
        let mut next = Some(first);
        let mut end = Ok(());
        while let Some(delivery) = next {
            match delivery {
                Some(Ok(delivery)) => batch.push(self.take(delivery)?),
                Some(Err(error)) => end = Err(self.wire.lost(&error)),
                None => end = self.cancelled(),
            }
            if end.is_err() || self.consumer.is_none() || batch.len() >= DELIVER_COUNT_MAX {
                break;
            }
            next = self
                .consumer
                .as_mut()
                .and_then(|consumer| consumer.next().now_or_never());
        }
        end?;
        self.pace.came(batch.len(), self.last_sign);
        if !batch.is_empty() {
            self.shared.deliver(batch, self.window.open());
        }
        self.mind_the_bytes().await
    }

    fn take(&mut self, delivery: lapin::message::Delivery) -> Result<(NonZeroU64, Message), Lost> {
        let tag = delivery.delivery_tag;
        let sizes = Sizes {
            message_bytes_max: self.options.message_bytes_max,
            header_bytes_max: self.options.header_bytes_max,
        };
        let message = content::read(delivery, &self.wire.queue, sizes);
        match self.window.deliver(tag, message.size()) {
            Ok(tag) => Ok((tag, message)),
            Err(expected) => Err(Lost::because(format!(
                "delivery tag {tag} came where {expected} was due"
            ))),
        }
    }

    /// The stream of deliveries ended: because we stopped it, or the broker did.
    fn cancelled(&mut self) -> Result<(), Lost> {
        self.consumer = None;
        if std::mem::take(&mut self.pausing) {
            return Ok(());
        }
        Err(Lost::because(
            "the broker cancelled the consumer: the queue was deleted, or its node went down",
        ))
    }

    async fn ordered(&mut self, order: Order) -> Result<(), Lost> {
        self.quiet_since = Instant::now();
        for (tag, delay) in order.nacks {
            self.give_back
                .insert((self.quiet_since + delay.max(GIVE_BACK_AFTER), tag));
        }
        let waiting = self.window.held() + order.acks.len();
        let acked = self.window.ack(order.acks);
        let covered = waiting - acked.unknown - self.window.held();
        let mut sent = self.wire.ack(acked.send).await;
        // What is still held is not lost yet.
        let lost = acked.unknown + if sent.is_err() { covered } else { 0 };
        if sent.is_ok() && self.window.held() > usize::from(self.prefetch / 4) {
            sent = self.flush().await;
        }
        if self.window.held() > 0 {
            self.flush_at.get_or_insert(self.quiet_since + HOLD);
        }
        self.shared.settled(self.window.open());
        // A caller that went away does not want to know.
        let _ = order.reply.send(lost);
        sent?;
        self.mind_the_bytes().await
    }

    /// Acks one by one what waited for its predecessors long enough.
    async fn flush(&mut self) -> Result<(), Lost> {
        self.flush_at = None;
        let tags = self.window.flush();
        let sent = self.wire.ack_each(&tags).await;
        if sent.is_err() {
            self.shared.lose(tags.len());
        }
        sent
    }

    /// Tells the broker what it can still be told, and lets it take that in.
    async fn last_words(&mut self) {
        let _ = self.flush().await;
        let quiet = self.quiet_since.elapsed();
        tokio::time::sleep(LINGER.saturating_sub(quiet)).await;
    }

    async fn give_back_due(&mut self, now: Instant) -> Result<(), Lost> {
        let mut due = Vec::new();
        while let Some((at, tag)) = self.give_back.first().copied()
            && at <= now
        {
            self.give_back.pop_first();
            due.push(tag);
        }
        if due.is_empty() {
            return Ok(());
        }
        self.quiet_since = now;
        let held = self.window.held();
        let (tags, ack) = self.window.give_back(due);
        self.shared.settled(self.window.open());
        let mut sent = self.wire.give_back(&tags).await;
        if sent.is_ok() {
            sent = self.wire.ack(ack).await;
        }
        if sent.is_err() {
            self.shared.lose(held - self.window.held());
        }
        sent?;
        // It may have been the last that kept the consumer paused.
        self.mind_the_bytes().await
    }

    /// Stops consuming while too many bytes are unsettled, and goes on with a prefetch that fits them. Where a full window of
    /// small messages shows that more would fit again, it grows back.
    async fn mind_the_bytes(&mut self) -> Result<(), Lost> {
        let (bytes, open, bytes_max) = (
            self.window.bytes(),
            self.window.open(),
            self.options.prefetch_bytes_max,
        );
        if bytes > bytes_max
            && open > 1
            && self.prefetch > 1
            && self.consumer.is_some()
            && !self.pausing
        {
            let fitting = bytes_max.saturating_mul(open) / bytes;
            self.prefetch = u16::try_from(fitting)
                .unwrap_or(u16::MAX)
                .clamp(1, self.prefetch - 1);
            tracing::debug!(queue = %self.wire.queue, bytes, prefetch = self.prefetch, "too many bytes are unsettled; pausing");
            return self.pause().await;
        }
        if self.prefetch < self.options.prefetch
            && open >= usize::from(self.prefetch)
            && bytes <= bytes_max / 4
            && self.consumer.is_some()
            && !self.pausing
        {
            self.prefetch = self.prefetch.saturating_mul(2).min(self.options.prefetch);
            self.growing = true;
            tracing::debug!(queue = %self.wire.queue, bytes, prefetch = self.prefetch, "messages are small again; going on with a larger prefetch");
            return self.pause().await;
        }
        let fits = if self.growing {
            open == 0
        } else {
            bytes <= bytes_max / 2
        };
        if self.consumer.is_none() && fits {
            self.growing = false;
            let again = consume(&self.wire.channel, &self.options.queue, self.prefetch);
            self.consumer = Some(
                self.wire
                    .patiently("no answer to basic.consume", again)
                    .await?,
            );
        }
        Ok(())
    }

    async fn pause(&mut self) -> Result<(), Lost> {
        let Some(tag) = self.consumer.as_ref().map(Consumer::tag) else {
            return Ok(());
        };
        self.pausing = true;
        let cancel = self
            .wire
            .channel
            .basic_cancel(tag, BasicCancelOptions::default());
        self.wire
            .patiently("no answer to basic.cancel", cancel)
            .await
    }
}

impl Wire {
    /// Sends acks by the channel itself, and waits until they are written: two that were handed to the
    /// client's ackers could change places on their way.
    async fn ack(&self, ack: Option<Ack>) -> Result<(), Lost> {
        let (tag, multiple) = match ack {
            None => return Ok(()),
            Some(Ack::One(tag)) => (tag, false),
            Some(Ack::AllTo(tag)) => (tag, true),
        };
        let sending = self
            .channel
            .basic_ack(tag.get(), BasicAckOptions { multiple });
        self.patiently("the broker takes no acks in", sending).await
    }

    async fn ack_each(&self, tags: &[NonZeroU64]) -> Result<(), Lost> {
        let acks = tags.iter().map(|tag| {
            self.channel
                .basic_ack(tag.get(), BasicAckOptions::default())
        });
        let sending = async { join_all(acks).await.into_iter().collect() };
        self.patiently("the broker takes no acks in", sending).await
    }

    async fn give_back(&self, tags: &[NonZeroU64]) -> Result<(), Lost> {
        let again = BasicNackOptions {
            requeue: true,
            ..BasicNackOptions::default()
        };
        let nacks = tags
            .iter()
            .map(|tag| self.channel.basic_nack(tag.get(), again));
        let sending = async { join_all(nacks).await.into_iter().collect() };
        self.patiently("the broker takes no nacks in", sending)
            .await
    }

    async fn patiently<T>(
        &self,
        silence: &str,
        work: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, Lost> {
        match tokio::time::timeout(self.patience, work).await {
            Ok(done) => done.map_err(|error| self.lost(&error)),
            Err(_) => Err(Lost::silent(silence)),
        }
    }

    fn lost(&self, error: &lapin::Error) -> Lost {
        Lost {
            reason: Refusal::of_queue(&self.queue, &self.vhost, error),
            silent: false,
        }
    }
}

/// Looks at the queue, or makes it. Declaring one that is there and equal changes nothing.
async fn declare(channel: &Channel, options: &RabbitOptions) -> lapin::Result<Depth> {
    let mut arguments = FieldTable::default();
    let kind = match options.declare {
        Declare::Passive => None,
        Declare::Quorum => Some("quorum"),
        Declare::Classic => Some("classic"),
    };
    if let Some(kind) = kind {
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        if let Some(exchange) = &options.dead_letter_exchange {
            arguments.insert(
                "x-dead-letter-exchange".into(),
                AMQPValue::LongString(exchange.as_str().into()),
            );
        }
        if let Some(limit) = options.delivery_limit {
            arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(limit));
        }
    }
    let durable = kind.is_some();
    let how = QueueDeclareOptions {
        passive: !durable,
        durable,
        ..QueueDeclareOptions::default()
    };
    channel
        .queue_declare(options.queue.as_str().into(), how, arguments)
        .await
        .map(|queue| depth(&queue))
}

/// Looking at a queue needs no right at all, so this asks for the right to consume: with a priority that is none, which
/// the broker refuses in its turn, after it has looked at the rights. Nothing is consumed; the channel is gone then.
async fn may_consume(channel: &Channel, queue: &str) -> lapin::Result<()> {
    let mut arguments = FieldTable::default();
    arguments.insert(
        "x-priority".into(),
        AMQPValue::LongString("a question".into()),
    );
    let how = BasicConsumeOptions::default();
    let asked = channel
        .basic_consume(queue.into(), "".into(), how, arguments)
        .await;
    match asked {
        Err(error) if is_refused(&error) => Err(error),
        _ => Ok(()),
    }
}

fn depth(queue: &Queue) -> Depth {
    Depth {
        ready: queue.message_count(),
        consumers: queue.consumer_count(),
    }
}

/// Subscribes with a prefetch of its own: consumers keep the one that was set when they began.
async fn consume(channel: &Channel, queue: &str, prefetch: u16) -> lapin::Result<Consumer> {
    channel
        .basic_qos(prefetch, BasicQosOptions::default())
        .await?;
    channel
        .basic_consume(
            queue.into(),
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await
}
