//! What the two sides of this crate can be told. Plain data that a config file can be read into; a URL
//! holds a password, so nothing here shows one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lapin::uri::{AMQPScheme, AMQPUri};
use serde::Deserialize;

use crate::fault::Refusal;

/// The longest name AMQP carries (a short string: one byte of length).
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// How the broker is reached: the part that source and sink share.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broker {
    /// `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://…`. The vhost is percent-encoded: `%2f` is `/`,
    /// which is also meant when the URL ends behind the host.
    pub url: String,
    /// How long reaching the broker, the TLS and AMQP handshakes included, may take.
    #[serde(default = "connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// Seconds between heartbeats, 1 to 10. The broker may ask for fewer.
    #[serde(default = "heartbeat_s")]
    pub heartbeat_s: u16,
    /// Certificates for `amqps`.
    #[serde(default)]
    pub tls: Tls,
    /// The name that the broker's tools show for the connection.
    #[serde(default = "connection_name")]
    pub connection_name: String,
}

/// Certificates for `amqps`. Without `ca_file` the system's authorities are trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// PEM file of further authorities to trust.
    pub ca_file: Option<PathBuf>,
    /// PEM file of the client's certificate chain.
    pub cert_file: Option<PathBuf>,
    /// PEM file of the client's key (PKCS #8).
    pub key_file: Option<PathBuf>,
}

/// A queue to consume. `url` and `queue` are all that must be given.
///
/// ```
/// use semel_rabbitmq::RabbitOptions;
///
/// let options = RabbitOptions::new("amqp://wallet:secret@localhost/%2f", "bets");
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RabbitOptions {
    /// `amqp://USER:PASSWORD@HOST:PORT/VHOST`; see [`Broker::url`].
    pub url: String,
    /// The queue: the one partition of this source.
    pub queue: String,
    /// The most deliveries that may be unsettled at once. RabbitMQ knows no budget of bytes, so what is
    /// held in memory is at most `prefetch` × the largest message.
    #[serde(default = "prefetch")]
    pub prefetch: u16,
    /// When more bytes than this are unsettled, the source stops consuming until half of them are
    /// settled, and goes on with a prefetch that fits the sizes it saw.
    #[serde(default = "prefetch_bytes_max")]
    pub prefetch_bytes_max: usize,
    /// A longer payload is handed out cut, with its size and hash; it ends `dead(too_large)`.
    #[serde(default = "message_bytes_max")]
    pub message_bytes_max: usize,
    /// The most bytes of headers kept of one message. Headers that do not fit are left out whole, the
    /// largest first; the header `semel-headers-left-out` names them.
    #[serde(default = "header_bytes_max")]
    pub header_bytes_max: usize,
    /// Is the queue declared when the source starts, or only looked at?
    #[serde(default)]
    pub declare: Declare,
    /// With `declare`: the exchange that takes what the queue gives up (`x-dead-letter-exchange`).
    #[serde(default)]
    pub dead_letter_exchange: Option<String>,
    /// With `declare = "quorum"`: how often a message is delivered again before the broker gives it up
    /// (`x-delivery-limit`; RabbitMQ 4.0 and later: 20 if not given, -1 for no limit).
    #[serde(default)]
    pub delivery_limit: Option<i64>,
    /// Drained: nothing is ready in the queue, nothing is unsettled here, and nothing came for this long.
    #[serde(default = "idle_ms")]
    pub idle_ms: u64,
    /// A broker that has given no sign of life for this long is taken for lost. Every 2 s it is asked for one.
    #[serde(default = "liveness_ms")]
    pub liveness_ms: u64,
    /// The broker's own limit for an unsettled delivery (`consumer_timeout`), as it is set there: it
    /// cannot be asked for. Compared with the unit's deadline by [`RabbitOptions::findings`].
    #[serde(default = "consumer_timeout_ms")]
    pub consumer_timeout_ms: u64,
    /// See [`Broker::connect_timeout_ms`].
    #[serde(default = "connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// See [`Broker::heartbeat_s`].
    #[serde(default = "heartbeat_s")]
    pub heartbeat_s: u16,
    /// See [`Broker::tls`].
    #[serde(default)]
    pub tls: Tls,
    /// See [`Broker::connection_name`].
    #[serde(default = "connection_name")]
    pub connection_name: String,
}

/// Whether the source makes its queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Declare {
    /// It must be there; nothing about it is changed. A missing queue is an error at the start.
    #[default]
    Passive,
    /// A durable quorum queue: replicated, and it counts deliveries.
    Quorum,
    /// A durable classic queue.
    Classic,
}

/// Where to publish. `url`, and `queue` or `exchange`, must be given.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RabbitSinkOptions {
    /// `amqp://USER:PASSWORD@HOST:PORT/VHOST`; see [`Broker::url`].
    pub url: String,
    /// The exchange; empty is the default exchange, which routes to the queue of the routing key's name.
    #[serde(default)]
    pub exchange: String,
    /// The routing key. Not given: the message's key (what keeps order there), or nothing.
    #[serde(default)]
    pub routing_key: Option<String>,
    /// How long the confirms of one batch may take. A broker short of memory or disk lets publishers wait.
    #[serde(default = "confirm_timeout_ms")]
    pub confirm_timeout_ms: u64,
    /// A larger payload is refused before it is sent: the broker would close the channel (its
    /// `max_message_size` is 16 MiB since RabbitMQ 4.0).
    #[serde(default = "publish_bytes_max")]
    pub message_bytes_max: usize,
    /// Further headers of every message, as text.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// See [`Broker::connect_timeout_ms`].
    #[serde(default = "connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// See [`Broker::heartbeat_s`].
    #[serde(default = "heartbeat_s")]
    pub heartbeat_s: u16,
    /// See [`Broker::tls`].
    #[serde(default)]
    pub tls: Tls,
    /// See [`Broker::connection_name`].
    #[serde(default = "connection_name")]
    pub connection_name: String,
}

impl RabbitOptions {
    /// The defaults for a queue.
    pub fn new(url: impl Into<String>, queue: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            queue: queue.into(),
            prefetch: prefetch(),
            prefetch_bytes_max: prefetch_bytes_max(),
            message_bytes_max: message_bytes_max(),
            header_bytes_max: header_bytes_max(),
            declare: Declare::default(),
            dead_letter_exchange: None,
            delivery_limit: None,
            idle_ms: idle_ms(),
            liveness_ms: liveness_ms(),
            consumer_timeout_ms: consumer_timeout_ms(),
            connect_timeout_ms: connect_timeout_ms(),
            heartbeat_s: heartbeat_s(),
            tls: Tls::default(),
            connection_name: connection_name(),
        }
    }

    /// Opens nothing; says what can never work.
    ///
    /// # Errors
    /// [`Refusal::Options`], naming the option and what it may be.
    pub fn validate(&self) -> Result<(), Refusal> {
        self.broker().validate()?;
        name("queue", &self.queue)?;
        at_least_one("prefetch", self.prefetch.into())?;
        at_least_one("prefetch_bytes_max", as_u64(self.prefetch_bytes_max))?;
        at_least_one("message_bytes_max", as_u64(self.message_bytes_max))?;
        at_least_one("idle_ms", self.idle_ms)?;
        at_least_one("liveness_ms", self.liveness_ms)?;
        if let Some(exchange) = &self.dead_letter_exchange {
            name("dead_letter_exchange", exchange)?;
        }
        let declared = self.declare != Declare::Passive;
        if !declared && self.dead_letter_exchange.is_some() {
            return Err(Refusal::options(
                "dead_letter_exchange",
                "needs declare = \"quorum\" or \"classic\"; a queue that is only looked at has its own",
            ));
        }
        if self.declare != Declare::Quorum && self.delivery_limit.is_some() {
            return Err(Refusal::options(
                "delivery_limit",
                "needs declare = \"quorum\"; other queues know no limit",
            ));
        }
        Ok(())
    }

    pub(crate) fn broker(&self) -> Broker {
        Broker {
            url: self.url.clone(),
            connect_timeout_ms: self.connect_timeout_ms,
            heartbeat_s: self.heartbeat_s,
            tls: self.tls.clone(),
            connection_name: self.connection_name.clone(),
        }
    }

    pub(crate) fn liveness(&self) -> Duration {
        Duration::from_millis(self.liveness_ms)
    }
}

impl RabbitSinkOptions {
    /// Publishes to a queue, through the default exchange.
    pub fn to_queue(url: impl Into<String>, queue: impl Into<String>) -> Self {
        Self {
            routing_key: Some(queue.into()),
            ..Self::to_exchange(url, "")
        }
    }

    /// Publishes to an exchange, with each message's own key as the routing key.
    pub fn to_exchange(url: impl Into<String>, exchange: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            exchange: exchange.into(),
            routing_key: None,
            confirm_timeout_ms: confirm_timeout_ms(),
            message_bytes_max: publish_bytes_max(),
            headers: BTreeMap::new(),
            connect_timeout_ms: connect_timeout_ms(),
            heartbeat_s: heartbeat_s(),
            tls: Tls::default(),
            connection_name: connection_name(),
        }
    }

    /// Opens nothing; says what can never work.
    ///
    /// # Errors
    /// [`Refusal::Options`], naming the option and what it may be.
    pub fn validate(&self) -> Result<(), Refusal> {
        self.broker().validate()?;
        if self.exchange.is_empty() {
            name(
                "routing_key",
                self.routing_key.as_deref().unwrap_or_default(),
            )?;
        } else {
            name("exchange", &self.exchange)?;
        }
        if self
            .routing_key
            .as_ref()
            .is_some_and(|key| key.len() > NAME_BYTES_MAX)
        {
            return Err(Refusal::options("routing_key", "is at most 255 bytes long"));
        }
        at_least_one("confirm_timeout_ms", self.confirm_timeout_ms)?;
        at_least_one("message_bytes_max", as_u64(self.message_bytes_max))?;
        self.headers
            .keys()
            .try_for_each(|header| name("headers", header))
    }

    pub(crate) fn broker(&self) -> Broker {
        Broker {
            url: self.url.clone(),
            connect_timeout_ms: self.connect_timeout_ms,
            heartbeat_s: self.heartbeat_s,
            tls: self.tls.clone(),
            connection_name: self.connection_name.clone(),
        }
    }
}

impl Broker {
    fn validate(&self) -> Result<(), Refusal> {
        self.uri()?;
        at_least_one("connect_timeout_ms", self.connect_timeout_ms)?;
        if !(1..=10).contains(&self.heartbeat_s) {
            return Err(Refusal::options(
                "heartbeat_s",
                "is from 1 to 10: a dead connection has to be noticed",
            ));
        }
        if self.tls.cert_file.is_some() != self.tls.key_file.is_some() {
            return Err(Refusal::options(
                "tls",
                "needs cert_file and key_file together, or neither",
            ));
        }
        Ok(())
    }

    /// The parsed URL, with this source's heartbeat.
    pub(crate) fn uri(&self) -> Result<AMQPUri, Refusal> {
        let wrong = |why: &str| {
            Refusal::options(
                "url",
                &format!("{why}; it looks like amqp://USER:PASSWORD@HOST:PORT/VHOST"),
            )
        };
        // The parser's own words are not repeated: they may quote the password.
        let mut uri: AMQPUri = self.url.parse().map_err(|_| wrong("cannot be read"))?;
        // It takes an IPv6 address for no host at all, and would go to localhost instead.
        if let Some((_, rest)) = self.url.split_once('[')
            && let Some((address, _)) = rest.split_once(']')
        {
            uri.authority.host = address.to_owned();
        }
        if uri.vhost.len() > NAME_BYTES_MAX {
            return Err(wrong("has a vhost of more than 255 bytes"));
        }
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        uri.query.heartbeat = Some(self.heartbeat_s);
        Ok(uri)
    }
}

/// Where a connection goes, for messages: never the user's password.
pub(crate) fn place(uri: &AMQPUri) -> String {
    let scheme = match uri.scheme {
        AMQPScheme::AMQP => "amqp",
        AMQPScheme::AMQPS => "amqps",
    };
    format!(
        "{scheme}://{}:{} (vhost `{}`)",
        uri.authority.host, uri.authority.port, uri.vhost
    )
}

/// The URL as it may be shown: the password is gone, and all of a URL that cannot be read.
fn shown(url: &str) -> String {
    let scheme_end = url.find("://").map_or(0, |at| at + 3);
    let authority_end = url[scheme_end..]
        .find('/')
        .map_or(url.len(), |at| scheme_end + at);
    // The last `@`: an unencoded one in a password must not let its end through.
    match url[scheme_end..].rfind('@').map(|at| scheme_end + at) {
        None => url.to_owned(),
        Some(at) => {
            let user = &url[scheme_end..at.min(authority_end)];
            let user = user.split_once(':').map_or(user, |(user, _)| user);
            format!("{}{user}:***{}", &url[..scheme_end], &url[at..])
        }
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("url", &shown(&self.url))
            .field("connect_timeout_ms", &self.connect_timeout_ms)
            .field("heartbeat_s", &self.heartbeat_s)
            .field("tls", &self.tls)
            .field("connection_name", &self.connection_name)
            .finish()
    }
}

impl fmt::Debug for RabbitOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitOptions")
            .field("broker", &self.broker())
            .field("queue", &self.queue)
            .field("prefetch", &self.prefetch)
            .field("prefetch_bytes_max", &self.prefetch_bytes_max)
            .field("message_bytes_max", &self.message_bytes_max)
            .field("header_bytes_max", &self.header_bytes_max)
            .field("declare", &self.declare)
            .field("dead_letter_exchange", &self.dead_letter_exchange)
            .field("delivery_limit", &self.delivery_limit)
            .field("idle_ms", &self.idle_ms)
            .field("liveness_ms", &self.liveness_ms)
            .field("consumer_timeout_ms", &self.consumer_timeout_ms)
            .finish()
    }
}

impl fmt::Debug for RabbitSinkOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitSinkOptions")
            .field("broker", &self.broker())
            .field("exchange", &self.exchange)
            .field("routing_key", &self.routing_key)
            .field("confirm_timeout_ms", &self.confirm_timeout_ms)
            .field("message_bytes_max", &self.message_bytes_max)
            .finish_non_exhaustive()
    }
}

fn name(option: &'static str, value: &str) -> Result<(), Refusal> {
    if value.is_empty() || value.len() > NAME_BYTES_MAX {
        return Err(Refusal::options(option, "is a name of 1 to 255 bytes"));
    }
    Ok(())
}

fn at_least_one(option: &'static str, value: u64) -> Result<(), Refusal> {
    if value == 0 {
        return Err(Refusal::options(option, "is at least 1"));
    }
    Ok(())
}

fn as_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// A few batches: enough to be busy, little to deliver again.
const fn prefetch() -> u16 {
    2_000
}

/// As much as a consumer holds by default in all.
const fn prefetch_bytes_max() -> usize {
    64 << 20
}

/// A mebibyte: the limit that brokers have by default.
const fn message_bytes_max() -> usize {
    1 << 20
}

/// Half of what one AMQP frame carries by default, and so the most that a header can be.
const fn header_bytes_max() -> usize {
    64 << 10
}

/// An empty queue may be refilled by a publisher that waits for its own confirm.
const fn idle_ms() -> u64 {
    2_000
}

/// With the 2 s between two questions: seen within 9 s, so that readiness turns red within 10.
const fn liveness_ms() -> u64 {
    7_000
}

/// RabbitMQ's default: half an hour.
const fn consumer_timeout_ms() -> u64 {
    1_800_000
}

/// Longer than a broker with a thousand connections to take back needs, short enough to be told.
const fn connect_timeout_ms() -> u64 {
    10_000
}

/// The most that is allowed: the broker gives a connection up after two of them.
const fn heartbeat_s() -> u16 {
    10
}

/// Longer than a quorum queue needs to choose a new leader.
const fn confirm_timeout_ms() -> u64 {
    30_000
}

/// `max_message_size` of RabbitMQ 4.
const fn publish_bytes_max() -> usize {
    16 << 20
}

fn connection_name() -> String {
    "semel".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "amqp://u:secret@h/v",
            "amqps://u:se@cret@h:1/v",
            "amqp://u:sec/ret@h/v",
            "u:secret@h",
        ] {
            let options = RabbitOptions::new(url, "q");
            let sink = RabbitSinkOptions::to_queue(url, "q");
            let text = format!(
                "{options:?} {sink:?} {:?} {:?}",
                options.validate(),
                options.broker()
            );
            assert!(
                !text.contains("secret") && !text.contains("cret@"),
                "{text}"
            );
            assert!(!text.contains("ret@"), "{text}");
        }
    }

    #[test]
    fn the_smallest_table_of_a_config_file_is_enough() {
        let options: RabbitOptions =
            toml::from_str("url = \"amqp://h/%2f\"\nqueue = \"bets\"").unwrap();
        assert_eq!(options, RabbitOptions::new("amqp://h/%2f", "bets"));
        options.validate().unwrap();
        assert!(
            toml::from_str::<RabbitOptions>("url = \"amqp://h\"\nqueue = \"b\"\nprefetsch = 1")
                .is_err()
        );
    }

    /// The names that a table may have, as the reader of the config file tells them.
    fn names<T: serde::de::DeserializeOwned + fmt::Debug>() -> Vec<String> {
        let error = toml::from_str::<T>("no-such-option = 1")
            .unwrap_err()
            .to_string();
        let (_, expected) = error.split_once("expected one of ").unwrap();
        let names = expected.split('`').skip(1).step_by(2);
        names.map(str::to_owned).collect()
    }

    #[test]
    fn the_guide_knows_every_option() {
        let guide = include_str!("../../../docs/guides/rabbitmq.md");
        let (_, guide) = guide.split_once("## The source's options").unwrap();
        let (source, sink) = guide.split_once("## The sink's options").unwrap();
        for (table, names) in [
            (source, names::<RabbitOptions>()),
            (sink, names::<RabbitSinkOptions>()),
        ] {
            let rows = table
                .lines()
                .filter(|line| line.starts_with("| `"))
                .filter_map(|line| line.split('|').nth(1));
            let told: Vec<String> = rows
                .flat_map(|row| row.split('`').skip(1).step_by(2))
                .map(str::to_owned)
                .collect();
            let told: Vec<_> = told.into_iter().take(names.len()).collect();
            assert_eq!(told, names);
        }
    }

    #[test]
    fn what_can_never_work_is_refused_with_the_options_name() {
        let good = RabbitOptions::new("amqp://h", "q");
        let wrong = [
            (
                "url",
                RabbitOptions {
                    url: "http://h".to_owned(),
                    ..good.clone()
                },
            ),
            (
                "queue",
                RabbitOptions {
                    queue: String::new(),
                    ..good.clone()
                },
            ),
            (
                "prefetch",
                RabbitOptions {
                    prefetch: 0,
                    ..good.clone()
                },
            ),
            (
                "heartbeat_s",
                RabbitOptions {
                    heartbeat_s: 0,
                    ..good.clone()
                },
            ),
            (
                "heartbeat_s",
                RabbitOptions {
                    heartbeat_s: 11,
                    ..good.clone()
                },
            ),
            (
                "delivery_limit",
                RabbitOptions {
                    delivery_limit: Some(1),
                    ..good.clone()
                },
            ),
            (
                "dead_letter_exchange",
                RabbitOptions {
                    dead_letter_exchange: Some("x".to_owned()),
                    ..good.clone()
                },
            ),
            (
                "tls",
                RabbitOptions {
                    tls: Tls {
                        cert_file: Some("c".into()),
                        ..Tls::default()
                    },
                    ..good.clone()
                },
            ),
        ];
        for (option, options) in wrong {
            let refusal = options.validate().unwrap_err();
            assert!(refusal.to_string().contains(option), "{refusal}");
        }
        assert!(
            RabbitSinkOptions::to_exchange("amqp://h", "")
                .validate()
                .is_err()
        );
    }

    #[test]
    fn a_url_that_ends_behind_its_host_means_the_default_vhost_and_ipv6_is_not_localhost() {
        let uri = |url: &str| RabbitOptions::new(url, "q").broker().uri().unwrap();
        assert_eq!(uri("amqp://h").vhost, "/");
        assert_eq!(uri("amqp://h/").vhost, "/");
        assert_eq!(uri("amqp://h/%2f").vhost, "/");
        assert_eq!(uri("amqp://h/a").vhost, "a");
        assert_eq!(uri("amqp://u:p@[::1]:99/a").authority.host, "::1");
        assert_eq!(uri("amqp://h").query.heartbeat, Some(10));
    }
}
