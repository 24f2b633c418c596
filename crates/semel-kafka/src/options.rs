//! What a configuration may say about Kafka, and how it becomes settings of the client library.
//! Settings the guarantee rests on are ours alone; of the rest, an allow-list passes. Secrets are never
//! shown.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use rdkafka::ClientConfig;
use semel_core::Fault;
use serde::{Deserialize, Deserializer};

use crate::fault;

/// Options of a [`KafkaSource`](crate::KafkaSource).
///
/// ```
/// use semel_kafka::{KafkaOptions, StartAt};
///
/// let options: KafkaOptions = toml::from_str(
///     r#"
///     brokers = ["127.0.0.1:9092"]
///     topics = ["payments"]
///     group = "wallet"
///     start_at = "earliest"
///     "#,
/// )?;
/// assert_eq!(options.start_at, StartAt::Earliest);
/// assert!(options.check().is_empty());
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaOptions {
    /// `host:port` of some brokers; the rest is found by them.
    pub brokers: Vec<String>,
    /// The topics to read, by name.
    pub topics: Vec<String>,
    /// The consumer group. Its committed offsets are Semel's: share it with no other program.
    pub group: String,
    /// Where a partition begins while the ledger has no position of it. Has no default: `latest` would
    /// silently skip, `earliest` would silently replay.
    pub start_at: StartAt,
    /// How the group spreads partitions. All members must agree.
    #[serde(default)]
    pub assignor: Assignor,
    /// Static membership: a name of this member that is unique in the group and survives restarts, so
    /// that a quick restart moves no partition.
    #[serde(default)]
    pub group_instance_id: Option<String>,
    /// The largest value handed out whole. Of a larger one the beginning, the size and the hash are
    /// handed out, and it ends `dead(too_large)`.
    #[serde(default = "default::message_bytes_max")]
    pub message_bytes_max: usize,
    /// The most headers of a message. One with more ends `dead(too_large)`.
    #[serde(default = "default::header_count_max")]
    pub header_count_max: usize,
    /// The most bytes of a message's headers, names and values together.
    #[serde(default = "default::header_bytes_max")]
    pub header_bytes_max: usize,
    /// The most bytes of messages that wait in this source to be received. When it is full, fetching
    /// pauses; polling does not.
    #[serde(default = "default::buffer_bytes_max")]
    pub buffer_bytes_max: usize,
    /// The most bytes that the client library fetches ahead.
    #[serde(default = "default::prefetch_bytes_max")]
    pub prefetch_bytes_max: usize,
    /// Reached positions are told to the broker this often, and on revoke and close.
    #[serde(default = "default::commit_interval_ms")]
    pub commit_interval_ms: u64,
    /// How long a revoked partition is kept for work on it that is under way.
    #[serde(default = "default::drain_ms")]
    pub drain_ms: u64,
    /// The broker gives a member up that it has not heard of for so long.
    #[serde(default = "default::session_timeout_ms")]
    pub session_timeout_ms: u32,
    /// The broker gives a member up that takes longer than this to follow a rebalance.
    #[serde(default = "default::poll_interval_max_ms")]
    pub poll_interval_max_ms: u32,
    /// How long a broker may take to answer before it counts as away.
    #[serde(default = "default::timeout_ms")]
    pub timeout_ms: u32,
    /// Settings of the client library, by an allow-list: TLS, SASL, tuning of fetches.
    #[serde(default)]
    pub options: ClientOptions,
    /// More of them: those that come from somewhere safer than a config file.
    #[serde(default)]
    pub secrets: ClientOptions,
}

mod default {
    pub(super) const fn message_bytes_max() -> usize {
        1 << 20
    }
    pub(super) const fn header_count_max() -> usize {
        128
    }
    pub(super) const fn header_bytes_max() -> usize {
        64 << 10
    }
    pub(super) const fn buffer_bytes_max() -> usize {
        16 << 20
    }
    pub(super) const fn prefetch_bytes_max() -> usize {
        32 << 20
    }
    pub(super) const fn commit_interval_ms() -> u64 {
        200
    }
    pub(super) const fn drain_ms() -> u64 {
        5_000
    }
    pub(super) const fn session_timeout_ms() -> u32 {
        45_000
    }
    pub(super) const fn poll_interval_max_ms() -> u32 {
        300_000
    }
    pub(super) const fn timeout_ms() -> u32 {
        10_000
    }
}

impl KafkaOptions {
    /// Options with every default.
    pub fn new(
        brokers: impl IntoIterator<Item = impl Into<String>>,
        topics: impl IntoIterator<Item = impl Into<String>>,
        group: impl Into<String>,
        start_at: StartAt,
    ) -> Self {
        Self {
            brokers: brokers.into_iter().map(Into::into).collect(),
            topics: topics.into_iter().map(Into::into).collect(),
            group: group.into(),
            start_at,
            assignor: Assignor::default(),
            group_instance_id: None,
            message_bytes_max: default::message_bytes_max(),
            header_count_max: default::header_count_max(),
            header_bytes_max: default::header_bytes_max(),
            buffer_bytes_max: default::buffer_bytes_max(),
            prefetch_bytes_max: default::prefetch_bytes_max(),
            commit_interval_ms: default::commit_interval_ms(),
            drain_ms: default::drain_ms(),
            session_timeout_ms: default::session_timeout_ms(),
            poll_interval_max_ms: default::poll_interval_max_ms(),
            timeout_ms: default::timeout_ms(),
            options: ClientOptions::default(),
            secrets: ClientOptions::default(),
        }
    }

    /// What is wrong with these options, without connecting: one sentence each.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut found = Vec::new();
        require_brokers(&self.brokers, &mut found);
        if self.topics.is_empty() || self.topics.iter().any(|topic| !is_topic(topic)) {
            found.push("`topics` needs at least one topic by its plain name (letters, digits, `.`, `_`, `-`; no pattern)".to_owned());
        }
        if self.group.is_empty() {
            found.push("`group` is empty; name the consumer group".to_owned());
        }
        if self.group_instance_id.as_deref() == Some("") {
            found.push("`group_instance_id` is empty; leave it out or name this member".to_owned());
        }
        if self.poll_interval_max_ms < self.session_timeout_ms {
            found.push("`poll_interval_max_ms` is below `session_timeout_ms`; the client library refuses that".to_owned());
        }
        if self.drain_ms >= u64::from(self.poll_interval_max_ms) {
            found.push(
                "`drain_ms` reaches `poll_interval_max_ms`: the group would give this member up while it drains".to_owned(),
            );
        }
        found.extend(self.settings().check());
        found
    }

    fn settings(&self) -> ClientOptions {
        self.options.joined(&self.secrets)
    }

    /// A static member that dies during a cooperative rebalance and comes back: see [`crate::orphans`].
    pub(crate) fn may_leave_orphans(&self) -> bool {
        self.group_instance_id.is_some() && self.assignor == Assignor::CooperativeSticky
    }

    /// Settings of a client that joins the group.
    pub(crate) fn member(&self) -> Result<ClientConfig, Fault> {
        let mut config = self.reader()?;
        config
            .set("partition.assignment.strategy", self.assignor.as_str())
            .set("session.timeout.ms", self.session_timeout_ms.to_string())
            .set(
                "heartbeat.interval.ms",
                (self.session_timeout_ms / 10).clamp(300, 3_000).to_string(),
            )
            .set(
                "max.poll.interval.ms",
                self.poll_interval_max_ms.to_string(),
            )
            .set(
                "queued.max.messages.kbytes",
                (self.prefetch_bytes_max / 1024)
                    .clamp(1, 2_097_151)
                    .to_string(),
            )
            // The library waits so long when it has fetched its fill. Its default, 1 s, is longer than a fast
            // consumer needs to empty that.
            .set("fetch.queue.backoff.ms", "20")
            .set("statistics.interval.ms", STATISTICS_INTERVAL_MS);
        if let Some(id) = &self.group_instance_id {
            config.set("group.instance.id", id);
        }
        Ok(config)
    }

    /// Settings of a client that only looks: it never joins the group.
    pub(crate) fn reader(&self) -> Result<ClientConfig, Fault> {
        if let Some(first) = self.check().into_iter().next() {
            return Err(Fault::stop(format!("kafka: {first}")));
        }
        let mut config = self.settings().config(&self.brokers, self.timeout_ms);
        config
            .set("group.id", &self.group)
            // What the guarantee rests on: nothing is stored or committed that we did not say, a lost
            // offset is an error and not a jump, aborted records are never seen.
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true")
            .set("allow.auto.create.topics", "false");
        Ok(config)
    }
}

/// How often the client library tells where partitions end: what the lag is measured by.
const STATISTICS_INTERVAL_MS: &str = "5000";

fn require_brokers(brokers: &[String], found: &mut Vec<String>) {
    let plain = |broker: &String| !broker.is_empty() && !broker.contains([',', ' ']);
    if brokers.is_empty() || !brokers.iter().all(plain) {
        found.push("`brokers` needs at least one `host:port`, one an entry".to_owned());
    }
}

fn is_topic(name: &str) -> bool {
    // The rules of org.apache.kafka.common.internals.Topic; a leading `^` would be a pattern here.
    !name.is_empty()
        && name.len() <= 249
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Where a partition begins while the ledger has no position of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// At the first record the broker still has.
    Earliest,
    /// Behind the last record: what was there before the first start is never handled. It holds for a
    /// partition that is added later, too.
    Latest,
    /// At the group's committed offset, for teams that move over; a partition without one is an error.
    Committed,
    /// At the first record of this broker time, Unix ms, or later.
    Timestamp(i64),
}

impl FromStr for StartAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            "committed" => Ok(Self::Committed),
            time => match time.parse::<jiff::Timestamp>() {
                Ok(at) => Ok(Self::Timestamp(at.as_millisecond())),
                Err(_) => Err(format!("`{time}` is no start: expected {STARTS}")),
            },
        }
    }
}

const STARTS: &str = "`earliest`, `latest`, `committed` or a time such as `2026-01-31T00:00:00Z`";

impl<'de> Deserialize<'de> for StartAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// How the group spreads partitions over its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignor {
    /// A rebalance moves only the partitions that must move.
    #[default]
    CooperativeSticky,
    /// Every rebalance takes all partitions from everyone first (the eager protocol).
    Range,
}

impl Assignor {
    const fn as_str(self) -> &'static str {
        match self {
            Self::CooperativeSticky => "cooperative-sticky",
            Self::Range => "range",
        }
    }
}

/// Options of a [`KafkaSink`](crate::KafkaSink).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaSinkOptions {
    /// `host:port` of some brokers.
    pub brokers: Vec<String>,
    /// The topic to publish to.
    pub topic: String,
    /// The largest value published; a larger one is refused before it is sent.
    #[serde(default = "default::message_bytes_max")]
    pub message_bytes_max: usize,
    /// How long the broker may take to confirm a message before it counts as away. The message may
    /// still have arrived.
    #[serde(default = "KafkaSinkOptions::confirm_timeout_ms")]
    pub confirm_timeout_ms: u32,
    /// How long a broker may take to answer any request.
    #[serde(default = "default::timeout_ms")]
    pub timeout_ms: u32,
    /// Settings of the client library, by an allow-list: TLS, SASL, compression, lingering.
    #[serde(default)]
    pub options: ClientOptions,
    /// More of them: those that come from somewhere safer than a config file.
    #[serde(default)]
    pub secrets: ClientOptions,
}

impl KafkaSinkOptions {
    const fn confirm_timeout_ms() -> u32 {
        30_000
    }

    /// Options with every default.
    pub fn new(
        brokers: impl IntoIterator<Item = impl Into<String>>,
        topic: impl Into<String>,
    ) -> Self {
        Self {
            brokers: brokers.into_iter().map(Into::into).collect(),
            topic: topic.into(),
            message_bytes_max: default::message_bytes_max(),
            confirm_timeout_ms: Self::confirm_timeout_ms(),
            timeout_ms: default::timeout_ms(),
            options: ClientOptions::default(),
            secrets: ClientOptions::default(),
        }
    }

    /// What is wrong with these options, without connecting: one sentence each.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let mut found = Vec::new();
        require_brokers(&self.brokers, &mut found);
        if !is_topic(&self.topic) {
            found.push("`topic` is no topic's name (letters, digits, `.`, `_`, `-`)".to_owned());
        }
        found.extend(self.settings().check());
        found
    }

    /// Settings that pass both tables.
    pub(crate) fn settings(&self) -> ClientOptions {
        self.options.joined(&self.secrets)
    }

    pub(crate) fn producer(&self) -> Result<ClientConfig, Fault> {
        if let Some(first) = self.check().into_iter().next() {
            return Err(Fault::stop(format!("kafka: {first}")));
        }
        let mut config = self.settings().config(&self.brokers, self.timeout_ms);
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("message.timeout.ms", self.confirm_timeout_ms.to_string())
            // Room for the key and headers of the largest value.
            .set(
                "message.max.bytes",
                (self.message_bytes_max + (1 << 20))
                    .min(1_000_000_000)
                    .to_string(),
            )
            // Where the Java client puts a key, so that producers of both kinds keep one order.
            .set("partitioner", "murmur2_random")
            .set("allow.auto.create.topics", "false");
        Ok(config)
    }
}

/// Settings of the client library as `name = "value"`, by their names in librdkafka's reference.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct ClientOptions(BTreeMap<String, String>);

/// What passes. Everything here changes how a broker is reached or how fast, nothing what is promised.
const ALLOWED: &[&str] = &[
    "broker.address.family",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "compression.type",
    "connections.max.idle.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "linger.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "topic.metadata.refresh.interval.ms",
];

/// Of what guards the connection only these values are shown.
const SHOWN: &[&str] = &["sasl.mechanism", "sasl.mechanisms"];

/// Refused with a reason of their own: they run code or commands on this machine, or switch a check off.
const DANGEROUS: &[(&str, &str)] = &[
    ("plugin.library.paths", "it loads code into this process"),
    (
        "sasl.kerberos.kinit.cmd",
        "it runs a command on this machine",
    ),
    ("ssl.engine.location", "it loads code into this process"),
    ("ssl.providers", "it loads code into this process"),
    (
        "enable.ssl.certificate.verification",
        "without it anyone can pose as the broker",
    ),
    (
        "ssl.endpoint.identification.algorithm",
        "without it anyone with a certificate can pose as the broker",
    ),
];

const MECHANISMS: &[&str] = &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

impl ClientOptions {
    /// The names that pass.
    pub const ALLOWED: &'static [&'static str] = ALLOWED;

    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    fn joined(&self, more: &Self) -> Self {
        let both = self.0.iter().chain(&more.0);
        Self(
            both.map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn check(&self) -> Vec<String> {
        let mut found: Vec<String> = self.0.keys().filter_map(|name| refusal(name)).collect();
        let mechanism = self.get("sasl.mechanism").or(self.get("sasl.mechanisms"));
        let protocol = self.get("security.protocol").unwrap_or("plaintext");
        if let Some(mechanism) = mechanism
            && !MECHANISMS.contains(&mechanism)
        {
            found.push(format!(
                "client setting `sasl.mechanism` must be one of {}",
                MECHANISMS.join(", ")
            ));
        }
        if protocol.eq_ignore_ascii_case("sasl_plaintext") && mechanism.is_none_or(|m| m == "PLAIN")
        {
            found.push(
                "the password would travel readable: use `security.protocol` = \"sasl_ssl\", or a SCRAM mechanism".to_owned(),
            );
        }
        found
    }

    /// Settings of a client that reads and has no group.
    pub(crate) fn config_to_look(&self, brokers: &[String], timeout_ms: u32) -> ClientConfig {
        const PRODUCERS: &[&str] = &["compression.type", "linger.ms"];
        let mut config = self.config(brokers, timeout_ms);
        for name in PRODUCERS {
            config.remove(name);
        }
        config
    }

    fn config(&self, brokers: &[String], timeout_ms: u32) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.0 {
            config.set(name, value);
        }
        config
            .set("bootstrap.servers", brokers.join(","))
            // Finds a half-open connection: an unanswered request closes it (TRAPS T48).
            .set(
                "socket.timeout.ms",
                timeout_ms.clamp(1_000, 300_000).to_string(),
            )
            .set_log_level(rdkafka::config::RDKafkaLogLevel::Warning);
        if self.get("socket.keepalive.enable").is_none() {
            config.set("socket.keepalive.enable", "true");
        }
        if self.get("reconnect.backoff.max.ms").is_none() {
            config.set("reconnect.backoff.max.ms", "2000");
        }
        config
    }
}

/// Why a setting may not be given.
fn refusal(name: &str) -> Option<String> {
    if ALLOWED.contains(&name) {
        return None;
    }
    if let Some((_, reason)) = DANGEROUS.iter().find(|(dangerous, _)| *dangerous == name) {
        return Some(format!("client setting `{name}` is refused: {reason}"));
    }
    Some(format!(
        "client setting `{name}` is not on the list of those that may be given; see docs/guides/kafka.md"
    ))
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |name: &String, value: &String| {
            let guards = name.starts_with("sasl.") || name.starts_with("ssl.");
            if guards && !SHOWN.contains(&name.as_str()) {
                "(secret)".to_owned()
            } else {
                value.clone()
            }
        };
        f.debug_map()
            .entries(
                self.0
                    .iter()
                    .map(|(name, value)| (name, shown(name, value))),
            )
            .finish()
    }
}

/// A client from its settings; the error names a setting and never its value.
pub(crate) fn create<T>(result: rdkafka::error::KafkaResult<T>) -> Result<T, Fault> {
    result.map_err(|error| Fault::stop(fault::without_values(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str = "brokers = [\"b:9092\"]\ntopics = [\"t\"]\ngroup = \"g\"\n";

    fn parse(more: &str) -> Result<KafkaOptions, toml::de::Error> {
        toml::from_str(&format!("{SMALLEST}{more}"))
    }

    #[test]
    fn e045_start_at_is_mandatory() {
        let error = parse("").unwrap_err().to_string();
        assert!(error.contains("start_at"), "{error}");
        assert_eq!(
            parse("start_at = \"committed\"").unwrap().start_at,
            StartAt::Committed
        );
        let at = parse("start_at = \"1970-01-01T00:00:01Z\"")
            .unwrap()
            .start_at;
        assert_eq!(at, StartAt::Timestamp(1_000));
        let error = parse("start_at = \"now\"").unwrap_err().to_string();
        assert!(
            error.contains("`earliest`, `latest`, `committed`"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_option_is_an_error() {
        let error = parse("start_at = \"latest\"\nenable_auto_commit = true")
            .unwrap_err()
            .to_string();
        assert!(error.contains("enable_auto_commit"), "{error}");
    }

    #[test]
    fn client_settings_pass_by_an_allow_list() {
        let with = |name: &str| KafkaOptions {
            options: ClientOptions::default().with(name, "x"),
            ..KafkaOptions::new(["b:1"], ["t"], "g", StartAt::Latest)
        };
        for name in [
            "plugin.library.paths",
            "sasl.kerberos.kinit.cmd",
            "enable.auto.commit",
            "isolation.level",
            "debug",
        ] {
            let found = with(name).check();
            assert!(found.len() == 1 && found[0].contains(name), "{found:?}");
            assert!(with(name).member().is_err());
        }
        for name in [
            "ssl.ca.location",
            "sasl.username",
            "ssl.key.password",
            "fetch.wait.max.ms",
        ] {
            assert_eq!(with(name).check(), Vec::<String>::new());
        }
    }

    #[test]
    fn a_password_never_travels_readable() {
        let client = |mechanism: &str, protocol: &str| {
            ClientOptions::default()
                .with("sasl.mechanism", mechanism)
                .with("security.protocol", protocol)
                .check()
                .len()
        };
        assert_eq!(client("PLAIN", "SASL_PLAINTEXT"), 1);
        assert_eq!(client("PLAIN", "SASL_SSL"), 0);
        assert_eq!(client("SCRAM-SHA-256", "SASL_PLAINTEXT"), 0);
        assert_eq!(client("GSSAPI", "SASL_SSL"), 1);
    }

    #[test]
    fn secrets_are_never_shown() {
        let mut options = KafkaOptions::new(["b:1"], ["t"], "g", StartAt::Latest);
        options.options = ClientOptions::default()
            .with("sasl.password", "hunter2")
            .with("ssl.key.pem", "hunter2")
            .with("client.id", "me");
        let shown = format!("{options:?}");
        assert!(
            !shown.contains("hunter2") && shown.contains("\"me\""),
            "{shown}"
        );
        // A setting of which the library itself refuses the value.
        options.options = ClientOptions::default()
            .with("security.protocol", "ssl")
            .with("ssl.key.pem", "hunter2")
            .with("ssl.certificate.pem", "hunter2");
        let created: rdkafka::error::KafkaResult<rdkafka::consumer::BaseConsumer> =
            options.member().unwrap().create();
        let fault = create(created.map(drop)).unwrap_err();
        assert!(!fault.detail().contains("hunter2"), "{fault}");
    }

    #[test]
    fn the_guide_names_every_setting_that_passes_and_every_option() {
        let guide = include_str!("../../../docs/guides/kafka.md");
        let error = parse("start_at = \"latest\"\nx = 1")
            .unwrap_err()
            .to_string();
        let sinks = toml::from_str::<KafkaSinkOptions>("x = 1")
            .unwrap_err()
            .to_string();
        // serde's errors quote the names it expects.
        let is_name = |text: &&str| {
            text.len() > 1 && text.bytes().all(|b| b == b'_' || b.is_ascii_lowercase())
        };
        let options: Vec<_> = error
            .split('`')
            .chain(sinks.split('`'))
            .filter(is_name)
            .collect();
        assert!(options.len() > 15, "{options:?}");
        for name in options.iter().chain(ALLOWED) {
            assert!(guide.contains(&format!("`{name}`")), "`{name}` is missing");
        }
    }

    #[test]
    fn options_that_contradict_each_other_are_found_without_a_broker() {
        let mut options = KafkaOptions::new(["b:1,c:2"], ["^pay.*"], "", StartAt::Latest);
        options.drain_ms = 400_000;
        options.session_timeout_ms = 400_000;
        options.group_instance_id = Some(String::new());
        assert_eq!(options.check().len(), 6, "{:?}", options.check());
    }
}
