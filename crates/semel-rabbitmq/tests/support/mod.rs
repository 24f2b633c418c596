//! What the tests against a real broker share: queues of their own, a second pair of eyes on them, a
//! proxy that breaks connections, and waits that end.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "tests: each file uses its part, and a failure is the answer"
)]

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use semel_core::ledger::{Committed, ConsumerId, Fence, Instance, LaneId};
use semel_core::source::Settled;
use semel_core::{Delivery, Fault, Limit, Received, Settlements, Source};
use semel_rabbitmq::{RabbitOptions, RabbitSource};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub(crate) const LIMIT: Limit = Limit {
    count: 10_000,
    bytes: usize::MAX,
};

/// Long enough for two busy cores, short enough that a hang is seen as one.
const WAIT: Duration = Duration::from_secs(30);

pub(crate) fn url() -> String {
    std::env::var("SEMEL_TEST_RABBITMQ_URL").expect("SEMEL_TEST_RABBITMQ_URL is not set: run scripts/test, or scripts/services start rabbitmq and eval \"$(scripts/services env)\"")
}

/// The URL with another port.
pub(crate) fn url_at(url: &str, port: u16) -> String {
    let (head, tail) = url.rsplit_once('@').expect("a URL with a user");
    let vhost = tail.split_once('/').map_or("", |(_, vhost)| vhost);
    format!("{head}@127.0.0.1:{port}/{vhost}")
}

fn host_of(url: &str) -> String {
    let (_, tail) = url.rsplit_once('@').expect("a URL with a user");
    tail.split('/').next().expect("a host").to_owned()
}

/// Waits for a future, and panics with `what` when it takes too long.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT, work)
        .await
        .unwrap_or_else(|_| panic!("still waiting for: {what}"))
}

/// Waits until a question is answered with yes.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    within(what, async {
        while !ask().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// A commit that nobody made: the receipts of these tests need the proof, not the ledger.
pub(crate) fn proof() -> Committed {
    let lane = LaneId {
        consumer: ConsumerId(1),
        instance: Instance([0; 16]),
        lane: 0,
    };
    Committed::witnessed(Fence { lane, unit: 1 })
}

/// A connection beside the one that is tested.
pub(crate) struct Admin {
    _connection: Connection,
    pub(crate) channel: Channel,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Admin {
    pub(crate) async fn connect() -> Self {
        Self::connect_to(&url()).await
    }

    pub(crate) async fn connect_to(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default())
            .await
            .expect("RabbitMQ answers");
        let channel = connection.create_channel().await.unwrap();
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .unwrap();
        Self {
            _connection: connection,
            channel,
        }
    }

    /// A name that no other test has.
    pub(crate) fn name(what: &str) -> String {
        let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        format!(
            "semel-test-{what}-{}-{}-{nanos}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        )
    }

    /// A queue that goes away by itself when a test fails before it deletes it.
    pub(crate) async fn queue(&self, what: &str, kind: &str) -> String {
        self.queue_with(what, kind, &[]).await
    }

    pub(crate) async fn queue_with(
        &self,
        what: &str,
        kind: &str,
        arguments: &[(&str, AMQPValue)],
    ) -> String {
        let name = Self::name(what);
        self.declare(&name, kind, arguments).await;
        name
    }

    pub(crate) async fn declare(&self, name: &str, kind: &str, arguments: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        table.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        table.insert("x-expires".into(), AMQPValue::LongInt(300_000));
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let how = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        self.channel
            .queue_declare(name.into(), how, table)
            .await
            .unwrap();
    }

    pub(crate) async fn delete(&self, queue: &str) {
        self.channel
            .queue_delete(queue.into(), QueueDeleteOptions::default())
            .await
            .unwrap();
    }

    pub(crate) async fn publish(&self, queue: &str, payloads: impl IntoIterator<Item = String>) {
        let mut confirms = Vec::new();
        for payload in payloads {
            confirms.push(
                self.send(queue, payload.as_bytes(), BasicProperties::default())
                    .await,
            );
        }
        for confirm in confirms {
            assert!(confirm.await.unwrap().is_ack());
        }
    }

    pub(crate) async fn publish_one(
        &self,
        queue: &str,
        payload: &[u8],
        properties: BasicProperties,
    ) {
        let confirm = self.send(queue, payload, properties).await.await.unwrap();
        assert!(confirm.is_ack() && confirm.take_message().is_none());
    }

    async fn send(
        &self,
        queue: &str,
        payload: &[u8],
        properties: BasicProperties,
    ) -> lapin::PublisherConfirm {
        let how = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let properties = properties.with_delivery_mode(2);
        self.channel
            .basic_publish("".into(), queue.into(), how, payload, properties)
            .await
            .unwrap()
    }

    /// How many messages wait. What a consumer holds is not among them.
    pub(crate) async fn ready(&self, queue: &str) -> u32 {
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        self.channel
            .queue_declare(queue.into(), passive, FieldTable::default())
            .await
            .unwrap()
            .message_count()
    }
}

/// Options that notice things quickly.
pub(crate) fn brisk(url: &str, queue: &str) -> RabbitOptions {
    RabbitOptions {
        idle_ms: 300,
        liveness_ms: 1_500,
        connect_timeout_ms: 5_000,
        ..RabbitOptions::new(url, queue)
    }
}

pub(crate) async fn open(options: RabbitOptions) -> RabbitSource {
    within("the source to open", RabbitSource::open(options))
        .await
        .unwrap()
}

/// Receives `count` deliveries, through outages.
pub(crate) async fn receive(source: &RabbitSource, count: usize) -> Vec<Delivery> {
    within(&format!("{count} deliveries"), async {
        let mut all = Vec::new();
        while all.len() < count {
            match source
                .receive(Limit {
                    count: count - all.len(),
                    ..LIMIT
                })
                .await
            {
                Ok(Received::Batch(batch)) => all.extend(batch),
                Ok(Received::Drained) | Err(_) => {}
                Ok(Received::End) => panic!("the source ended"),
            }
        }
        all
    })
    .await
}

pub(crate) fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries
        .iter()
        .map(|delivery| text(delivery).to_owned())
        .collect()
}

pub(crate) fn text(delivery: &Delivery) -> &str {
    std::str::from_utf8(delivery.message.bytes()).unwrap()
}

pub(crate) async fn ack(
    source: &RabbitSource,
    deliveries: impl IntoIterator<Item = Delivery>,
) -> usize {
    let proof = proof();
    let receipts = deliveries
        .into_iter()
        .map(|delivery| delivery.receipt.ack(&proof))
        .collect();
    let settlements = Settlements {
        receipts,
        positions: Vec::new(),
    };
    let Settled { lost } = within("acks", source.settle(settlements)).await.unwrap();
    lost
}

pub(crate) async fn nack(
    source: &RabbitSource,
    deliveries: impl IntoIterator<Item = Delivery>,
    delay_ms: u64,
) {
    let receipts = deliveries
        .into_iter()
        .map(|delivery| delivery.receipt.nack(delay_ms))
        .collect();
    within(
        "nacks",
        source.settle(Settlements {
            receipts,
            positions: Vec::new(),
        }),
    )
    .await
    .unwrap();
}

/// Waits until the source says that the broker is away.
pub(crate) async fn told_down(source: &RabbitSource) -> Fault {
    within("word of the outage", async {
        loop {
            match source.receive(LIMIT).await {
                // The outage may come in the middle of it.
                Ok(Received::Drained) => {}
                Ok(other) => panic!("{other:?}"),
                Err(fault) => return fault,
            }
        }
    })
    .await
}

/// Waits for `Drained`; anything else fails the test.
pub(crate) async fn drained(source: &RabbitSource) {
    match within("drained", source.receive(LIMIT)).await {
        Ok(Received::Drained) => {}
        other => panic!("{other:?}"),
    }
}

pub(crate) fn numbers(from: u32, to: u32) -> impl Iterator<Item = String> {
    (from..to).map(|n| n.to_string())
}

/// How often each text came.
pub(crate) fn tally(deliveries: &[Delivery]) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for text in texts(deliveries) {
        *tally.entry(text).or_default() += 1;
    }
    tally
}

/// Stands between the source and the broker.
pub(crate) struct Proxy {
    pub(crate) url: String,
    lines: Arc<Mutex<Vec<mpsc::UnboundedSender<Act>>>>,
    door: Arc<AtomicBool>,
}

#[derive(Clone)]
enum Act {
    Cut,
    Freeze,
    Inject(Vec<u8>),
}

impl Proxy {
    pub(crate) async fn start(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (host, lines) = (host_of(url), Arc::new(Mutex::new(Vec::new())));
        let door = Arc::new(AtomicBool::new(true));
        let (known, open) = (lines.clone(), door.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !open.load(Ordering::Relaxed) {
                    continue;
                }
                let (sender, acts) = mpsc::unbounded_channel();
                known.lock().unwrap().push(sender);
                let host = host.clone();
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(host).await {
                        carry(client, server, acts).await;
                    }
                });
            }
        });
        Self {
            url: url_at(url, port),
            lines,
            door,
        }
    }

    /// Are new connections carried, or ended at once?
    pub(crate) fn door(&self, open: bool) {
        self.door.store(open, Ordering::Relaxed);
    }

    fn act(&self, act: &Act) {
        self.lines
            .lock()
            .unwrap()
            .retain(|line| line.send(act.clone()).is_ok());
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.act(&Act::Cut);
    }

    /// All connections stay open, and nothing passes any more. New ones work.
    pub(crate) fn freeze(&self) {
        self.act(&Act::Freeze);
        self.lines.lock().unwrap().clear();
    }

    /// Sends bytes to the broker as if the client had.
    pub(crate) fn inject(&self, bytes: &[u8]) {
        self.act(&Act::Inject(bytes.to_vec()));
    }
}

async fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    mut acts: mpsc::UnboundedReceiver<Act>,
) {
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let carried = tokio::select! {
            n = client.read(&mut up) => match n { Ok(1..) => server.write_all(&up[..n.unwrap()]).await, _ => return },
            n = server.read(&mut down) => match n { Ok(1..) => client.write_all(&down[..n.unwrap()]).await, _ => return },
            act = acts.recv() => match act {
                Some(Act::Cut) => return,
                // Whoever froze it does not want it ended, nor does the proxy's own end.
                Some(Act::Freeze) | None => std::future::pending().await,
                Some(Act::Inject(bytes)) => server.write_all(&bytes).await,
            },
        };
        if carried.is_err() {
            return;
        }
    }
}

/// A basic.ack of a tag that the channel of the source (its second) does not know: the broker closes it.
pub(crate) fn ack_frame_of(tag: u64) -> Vec<u8> {
    let mut frame = vec![1, 0, 2, 0, 0, 0, 13, 0, 60, 0, 80];
    frame.extend(tag.to_be_bytes());
    frame.extend([0, 0xCE]);
    frame
}
