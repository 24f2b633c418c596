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
    /// What the files hold; by default a name ending in `.csv` means CSV, any other JSON Lines.
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

/// Topics of Apache Kafka.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kafka {
    /// The brokers to ask first, as `host:port`.
    #[schemars(length(min = 1))]
    pub(crate) brokers: Vec<String>,
    /// The topics.
    #[schemars(length(min = 1))]
    pub(crate) topics: Vec<String>,
    /// The consumer group.
    #[schemars(length(min = 1))]
    pub(crate) group: String,
    /// Where to start while the ledger has no position: `earliest`, `latest`, `committed` (the group's own), or a
    /// time (RFC 3339). Mandatory: a silent `latest` loses what is there already.
    #[schemars(length(min = 1))]
    pub(crate) start_at: String,
    /// Further options of the client, by its own names; only those on the list are allowed.
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
    /// Options that are secrets, such as `sasl.password`.
    #[serde(default)]
    pub(crate) secrets: BTreeMap<String, Secret>,
}

/// A queue of RabbitMQ.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rabbitmq {
    /// The broker: `amqp://USER:PASSWORD@HOST/VHOST`.
    pub(crate) url: Secret,
    /// The queue.
    #[schemars(length(min = 1))]
    pub(crate) queue: String,
    /// How many deliveries may be unsettled at once.
    #[serde(default = "prefetch")]
    #[schemars(range(min = 1))]
    pub(crate) prefetch: u16,
    /// `--until-idle`: the queue counts as drained when it is empty and nothing came for this long.
    #[serde(default = "idle_ms")]
    #[schemars(range(min = 1))]
    pub(crate) idle_ms: u64,
}

impl Kafka {
    /// The client's options that a config may set: the ones that change how the broker is reached. Those that load
    /// code or run programs (`plugin.library.paths`, `sasl.kerberos.kinit.cmd`) are not among them, nor those that
    /// the engine sets itself.
    pub(crate) const OPTIONS: [&'static str; 18] = [
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "enable.ssl.certificate.verification",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "fetch.wait.max.ms",
        "group.instance.id",
        "max.partition.fetch.bytes",
        "sasl.mechanism",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "session.timeout.ms",
        "socket.keepalive.enable",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
    ];
}

/// Longer than any unit may take (`unit_deadline_ms`), short enough that the work of a dead process is soon taken up.
fn lease_ms() -> u64 {
    60_000
}

/// A few batches: enough to be busy, little to deliver again.
fn prefetch() -> u16 {
    2_000
}

/// An empty queue may be refilled by a publisher that waits for its own confirm.
fn idle_ms() -> u64 {
    2_000
}
