//! `[sources.NAME]`: where messages come from.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Secret;

/// Where messages come from.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Source {
    /// Files of lines. Each file is one partition, and its name is the path as written here.
    File(File),
    /// Standard input, once.
    Stdin(Stdin),
    /// A durable queue in a SQL table. Also a sink: `semel publish NAME FILE`.
    Queue(Queue),
    /// Topics of Apache Kafka.
    Kafka(Kafka),
    /// A queue of RabbitMQ.
    Rabbitmq(Rabbitmq),
}

impl Source {
    /// The word behind `type`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Stdin(_) => "stdin",
            Self::Queue(_) => "queue",
            Self::Kafka(_) => "kafka",
            Self::Rabbitmq(_) => "rabbitmq",
        }
    }
}

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// One JSON value a line.
    Jsonl,
    /// A header, then one message a record: a JSON object of text values.
    Csv,
}

/// Files of lines or records.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// The files, relative to the config file's folder. Each is one partition.
    #[schemars(length(min = 1))]
    pub(crate) paths: Vec<String>,
    /// What the files hold; by default a name ending in `.csv` means CSV, any other JSON Lines. An empty CSV cell is null.
    pub(crate) format: Option<Format>,
}

/// Standard input: one JSON value a line. It cannot be read twice.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stdin {}

/// A durable queue in a SQL table.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Queue {
    /// The queue's name: one table holds many queues.
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// Its database; by default the ledger's.
    pub(crate) url: Option<Secret>,
    /// How long a delivery may stay unsettled before it is delivered again.
    #[serde(default = "lease_ms")]
    #[schemars(range(min = 1))]
    pub(crate) lease_ms: u64,
}

/// Topics of Apache Kafka. Each topic's partition is a partition, named `topic/number`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kafka {
    /// The brokers to ask first, as `host:port`; the rest is found by them.
    #[schemars(length(min = 1))]
    pub(crate) brokers: Vec<String>,
    /// The topics, by name.
    #[schemars(length(min = 1))]
    pub(crate) topics: Vec<String>,
    /// The consumer group. Its committed offsets are Semel's: share it with no other program.
    #[schemars(length(min = 1))]
    pub(crate) group: String,
    /// Where a partition begins while the ledger has no position of it: `earliest`, `latest`, `committed` (the group's
    /// own), or a time (RFC 3339). Mandatory: a silent `latest` loses what is there already.
    #[schemars(length(min = 1))]
    pub(crate) start_at: String,
    /// How the group spreads partitions; all members must agree.
    #[serde(default = "assignor")]
    pub(crate) assignor: Assignor,
    /// Static membership: a name of this member that is unique in the group and survives restarts.
    pub(crate) group_instance_id: Option<String>,
    /// The most headers of a message; one with more ends `dead(too_large)`.
    #[serde(default = "header_count_max")]
    #[schemars(range(min = 1))]
    pub(crate) header_count_max: u64,
    /// The most bytes of a message's headers, names and values together.
    #[serde(default = "header_bytes_max")]
    #[schemars(range(min = 1))]
    pub(crate) header_bytes_max: u64,
    /// The most bytes of messages that wait to be received. When it is full, fetching pauses; polling does not.
    #[serde(default = "buffer_bytes_max")]
    #[schemars(range(min = 1))]
    pub(crate) buffer_bytes_max: u64,
    /// The most bytes that the client fetches ahead.
    #[serde(default = "kafka_prefetch_bytes_max")]
    #[schemars(range(min = 1))]
    pub(crate) prefetch_bytes_max: u64,
    /// Reached positions are told to the broker this often.
    #[serde(default = "commit_interval_ms")]
    #[schemars(range(min = 1))]
    pub(crate) commit_interval_ms: u64,
    /// How long a revoked partition is kept for work on it that is under way.
    #[serde(default = "drain_ms")]
    #[schemars(range(min = 1))]
    pub(crate) drain_ms: u64,
    /// The broker gives a member up that it has not heard of for so long.
    #[serde(default = "session_timeout_ms")]
    #[schemars(range(min = 1))]
    pub(crate) session_timeout_ms: u32,
    /// The broker gives a member up that takes longer than this to follow a rebalance.
    #[serde(default = "poll_interval_max_ms")]
    #[schemars(range(min = 1))]
    pub(crate) poll_interval_max_ms: u32,
    /// How long a broker may take to answer before it counts as away.
    #[serde(default = "kafka_timeout_ms")]
    #[schemars(range(min = 1))]
    pub(crate) timeout_ms: u32,
    /// Further settings of the client library by its own names, those of an allow-list: TLS, SASL, tuning.
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
    /// The same for those that are secrets, such as `{ "sasl.password" = "${KAFKA_PASSWORD}" }`.
    #[serde(default)]
    pub(crate) secrets: BTreeMap<String, Secret>,
}

/// How the group spreads partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Assignor {
    /// A rebalance moves only the partitions that must move.
    CooperativeSticky,
    /// Every rebalance takes all partitions from everyone first.
    Range,
}

/// A queue of RabbitMQ: one partition.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rabbitmq {
    /// The broker: `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://…`. The vhost is percent-encoded: `%2f` is `/`.
    pub(crate) url: Secret,
    /// The queue.
    #[schemars(length(min = 1))]
    pub(crate) queue: String,
    /// How many deliveries may be unsettled at once.
    #[serde(default = "prefetch")]
    #[schemars(range(min = 1))]
    pub(crate) prefetch: u16,
    /// When more bytes than this are unsettled, the source stops consuming until half of them are settled.
    #[serde(default = "prefetch_bytes_max")]
    #[schemars(range(min = 1))]
    pub(crate) prefetch_bytes_max: u64,
    /// The most bytes of headers kept of one message; those that do not fit are left out whole.
    #[serde(default = "header_bytes_max")]
    #[schemars(range(min = 1))]
    pub(crate) header_bytes_max: u64,
    /// Is the queue made when it is missing (`quorum`, `classic`), or must it be there (`passive`)?
    #[serde(default = "declare")]
    pub(crate) declare: Declare,
    /// With `declare`: the exchange that takes what the queue gives up (`x-dead-letter-exchange`).
    pub(crate) dead_letter_exchange: Option<String>,
    /// With `declare = "quorum"`: how often a message is delivered again before the broker gives it up
    /// (`x-delivery-limit`; -1: no limit).
    pub(crate) delivery_limit: Option<i64>,
    /// `--until-idle`: drained when the queue is empty and nothing came for this long.
    #[serde(default = "idle_ms")]
    #[schemars(range(min = 1))]
    pub(crate) idle_ms: u64,
    /// A broker that has given no sign of life for this long is taken for lost.
    #[serde(default = "liveness_ms")]
    #[schemars(range(min = 1))]
    pub(crate) liveness_ms: u64,
    /// The broker's own limit for an unsettled delivery, as it is set there: `check` compares it with
    /// `unit_deadline_ms`.
    #[serde(default = "consumer_timeout_ms")]
    #[schemars(range(min = 1))]
    pub(crate) consumer_timeout_ms: u64,
    /// How long reaching the broker may take.
    #[serde(default = "rabbitmq_connect_timeout_ms")]
    #[schemars(range(min = 1))]
    pub(crate) connect_timeout_ms: u64,
    /// Seconds between heartbeats.
    #[serde(default = "heartbeat_s")]
    #[schemars(range(min = 1, max = 10))]
    pub(crate) heartbeat_s: u16,
    /// Certificates for `amqps`: `{ ca_file = "ca.pem", cert_file = "c.pem", key_file = "k.pem" }`; without `ca_file` the
    /// system's authorities are trusted.
    pub(crate) tls: Option<Tls>,
    /// The name that the broker's tools show for the connection.
    #[serde(default = "connection_name")]
    #[schemars(length(min = 1))]
    pub(crate) connection_name: String,
}

/// Certificates, as PEM files relative to the config file's folder.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// Further authorities to trust.
    pub(crate) ca_file: Option<String>,
    /// The client's certificate chain.
    pub(crate) cert_file: Option<String>,
    /// The client's key (PKCS #8).
    pub(crate) key_file: Option<String>,
}

/// Whether a queue is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Declare {
    /// It must be there; nothing about it is changed.
    Passive,
    /// A durable quorum queue.
    Quorum,
    /// A durable classic queue.
    Classic,
}

/// Longer than any unit may take (`unit_deadline_ms`), short enough that the work of a dead process is soon taken up.
fn lease_ms() -> u64 {
    120_000
}

// The defaults of the brokers' own crates, which give their reasons; a test compares.

fn assignor() -> Assignor {
    Assignor::CooperativeSticky
}

fn header_count_max() -> u64 {
    128
}

fn header_bytes_max() -> u64 {
    64 << 10
}

fn buffer_bytes_max() -> u64 {
    16 << 20
}

fn kafka_prefetch_bytes_max() -> u64 {
    32 << 20
}

fn commit_interval_ms() -> u64 {
    200
}

fn drain_ms() -> u64 {
    5_000
}

fn session_timeout_ms() -> u32 {
    45_000
}

fn poll_interval_max_ms() -> u32 {
    300_000
}

fn kafka_timeout_ms() -> u32 {
    10_000
}

fn prefetch() -> u16 {
    2_000
}

fn prefetch_bytes_max() -> u64 {
    64 << 20
}

fn declare() -> Declare {
    Declare::Passive
}

fn idle_ms() -> u64 {
    2_000
}

fn liveness_ms() -> u64 {
    7_000
}

fn consumer_timeout_ms() -> u64 {
    1_800_000
}

fn rabbitmq_connect_timeout_ms() -> u64 {
    10_000
}

fn heartbeat_s() -> u16 {
    10
}

fn connection_name() -> String {
    "semel".to_owned()
}
