//! What a config means as a whole: names that must meet, keys that must be business keys, and combinations that
//! somebody would be sorry for. Opens nothing.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use semel_core::key::{KeyRule, PartSource};
use semel_core::{Pointer, key::BadRule};

use super::{Code, Finding, Level};
use crate::config::{
    Consumer, Fingerprint, HandlerKind, House, Http, Loaded, Pooler, Source, Wallet, Whole, nearest,
};
use crate::dialect::Dialect;
use crate::sources;

/// Everything that can be said of a config without opening anything else.
pub(crate) fn findings(loaded: &Loaded) -> Vec<Finding> {
    let mut rules = Rules {
        loaded,
        findings: Vec::new(),
    };
    rules.ledger();
    if let Some(Err(message)) = loaded.config.http.as_ref().map(Http::address) {
        rules.error(Code::ValueNotAllowed, &["http", "listen"], message);
    }
    rules.sources();
    if loaded.config.consumers.is_empty() {
        rules.error(
            Code::NoConsumer,
            &["consumers"],
            "there is no consumer: add a table [consumers.NAME]",
        );
    }
    for (name, consumer) in &loaded.config.consumers {
        rules.consumer(name, consumer);
    }
    rules.findings
}

/// The key rule of a consumer. Its handler may have a default.
///
/// # Errors
///
/// The rule cannot be read.
pub(crate) fn key_rule(consumer: &Consumer) -> Result<KeyRule, BadRule> {
    let time = consumer.key_time.as_deref();
    match (&consumer.key, consumer.handler) {
        (Some(key), _) => KeyRule::parse(key.texts(), time),
        (None, HandlerKind::Wallet) => KeyRule::parse(["/id"], time),
    }
}

struct Rules<'l> {
    loaded: &'l Loaded,
    findings: Vec<Finding>,
}

impl Rules<'_> {
    fn error(&mut self, code: Code, path: &[&str], message: impl Into<String>) {
        self.findings.push(self.loaded.finding(code, path, message));
    }

    fn warning(&mut self, code: Code, path: &[&str], message: impl Into<String>) {
        let finding = self.loaded.finding(code, path, message);
        self.findings.push(Finding {
            level: Level::Warning,
            ..finding
        });
    }

    fn ledger(&mut self) {
        let ledger = &self.loaded.config.ledger;
        // What a file or a command would say is not asked here: `check` opens nothing but the config.
        let url = ledger.url.text();
        if let Some(url) = url {
            self.url(url, &["ledger", "url"]);
        }
        let sqlite = matches!(url.and_then(Dialect::of), Some(Dialect::Sqlite));
        if sqlite && ledger.pooler != Pooler::None {
            let message = "`ledger.pooler` has no effect on SQLite; remove it";
            self.warning(Code::NoEffect, &["ledger", "pooler"], message);
        }
        if sqlite && ledger.schema != "public" {
            let message = "`ledger.schema` has no effect on SQLite; remove it";
            self.warning(Code::NoEffect, &["ledger", "schema"], message);
        } else if let Err(message) = Dialect::schema_checked(&ledger.schema) {
            self.error(Code::ValueNotAllowed, &["ledger", "schema"], message);
        }
    }

    fn url(&mut self, url: &str, path: &[&str]) {
        match Dialect::checked(url) {
            Err(message) => self.error(Code::LedgerUrl, path, message),
            Ok(Dialect::Sqlite) => {
                let Some(file) = Dialect::sqlite_file(url, &self.loaded.base) else {
                    return;
                };
                let folder = file
                    .parent()
                    .filter(|folder| !folder.as_os_str().is_empty());
                if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                    let message = format!(
                        "the folder {} does not exist; create it (the file in it is made by itself)",
                        folder.display()
                    );
                    self.error(Code::NoFolder, path, message);
                }
            }
            Ok(Dialect::Postgres) => {
                if self.loaded.config.ledger.pooler == Pooler::Transaction
                    && let Err(message) = Dialect::pooler_checked(url)
                {
                    self.error(Code::LedgerUrl, path, message);
                }
            }
        }
    }

    fn sources(&mut self) {
        let loaded = self.loaded;
        let mut places: BTreeMap<Place, &str> = BTreeMap::new();
        for (name, source) in &loaded.config.sources {
            self.source(name, source);
            for (place, written) in places_of(loaded, source) {
                match places.insert(place, name) {
                    Some(other) if other == name => {
                        let message =
                            format!("`sources.{name}` reads {written} twice; name it once");
                        self.error(Code::SameSource, &["sources", name, "paths"], message);
                    }
                    Some(other) if written == "standard input" => {
                        let message = format!(
                            "`sources.{other}` and `sources.{name}` both read standard input, which can be read once"
                        );
                        self.error(Code::SameSource, &["sources", name], message);
                    }
                    Some(other) => {
                        let message = format!(
                            "`sources.{other}` and `sources.{name}` both read {written}; one of them is enough"
                        );
                        self.warning(Code::SameSource, &["sources", name], message);
                    }
                    None => {}
                }
            }
        }
    }

    fn source(&mut self, name: &str, source: &Source) {
        let readers: Vec<&String> = self
            .loaded
            .config
            .consumers
            .iter()
            .filter(|(_, c)| c.sources.iter().any(|s| s == name))
            .map(|(n, _)| n)
            .collect();
        if readers.is_empty() {
            self.warning(
                Code::UnusedSource,
                &["sources", name],
                format!("no consumer reads `sources.{name}`"),
            );
        }
        match source {
            Source::Stdin(_) if readers.len() > 1 => {
                let message = format!(
                    "`sources.{name}` is standard input, which one consumer can read, not {}",
                    readers.len()
                );
                self.error(Code::SameSource, &["sources", name], message);
            }
            Source::Queue(queue) => {
                self.shared(name, readers.len(), "a queue", "queue");
                if let Some(url) = queue.url.as_ref().and_then(|url| url.text()) {
                    self.url(url, &["sources", name, "url"]);
                }
            }
            Source::Kafka(_) => self.shared(name, readers.len(), "a group", "source and group"),
            Source::Rabbitmq(_) => self.shared(name, readers.len(), "a queue", "source and queue"),
            Source::File(_) | Source::Stdin(_) => {}
        }
        let deadlines = readers
            .iter()
            .map(|name| self.loaded.config.consumers[*name].unit_deadline_ms);
        let deadline = deadlines.max().unwrap_or(0);
        if let Source::Queue(queue) = source
            && queue.lease_ms < deadline
        {
            let message = format!(
                "messages are leased for {} ms, and a unit may take {deadline} ms: the queue would deliver again what is being worked on; set lease_ms to {deadline} or more",
                queue.lease_ms
            );
            self.warning(Code::ShortLease, &["sources", name, "lease_ms"], message);
        }
        let found = sources::findings(self.loaded, name, source, deadline);
        self.findings.extend(found);
    }

    /// Several consumers that read by one door each get a part of the messages.
    fn shared(&mut self, name: &str, readers: usize, door: &str, own: &str) {
        if readers > 1 {
            let message = format!(
                "{readers} consumers read `sources.{name}`: {door} gives each message to one of them only; give each consumer its own {own}"
            );
            self.warning(Code::SameSource, &["sources", name], message);
        }
    }

    fn consumer(&mut self, name: &str, consumer: &Consumer) {
        let known = &self.loaded.config.sources;
        for (i, source) in consumer.sources.iter().enumerate() {
            if !known.contains_key(source) {
                let hint = nearest(source, known.keys().map(String::as_str))
                    .map_or(String::new(), |near| format!(", did you mean `{near}`?"));
                let message = format!(
                    "the consumer `{name}` reads a source `{source}` that does not exist{hint}"
                );
                self.error(
                    Code::UnknownSource,
                    &["consumers", name, "sources"],
                    message,
                );
            }
            if consumer.sources[..i].contains(source) {
                let message = format!(
                    "the consumer `{name}` names the source `{source}` twice; name it once"
                );
                self.error(Code::SameSource, &["consumers", name, "sources"], message);
            }
        }
        self.key(name, consumer);
        self.fingerprint(name, consumer);
        if !matches!(consumer.lane.as_str(), "auto" | "partition" | "handler")
            && !is_pointer(&consumer.lane)
        {
            let message = format!(
                "`{}` is no lane: `auto`, `partition`, `handler`, or a JSON pointer such as `/account`",
                consumer.lane
            );
            self.error(Code::BadRule, &["consumers", name, "lane"], message);
        }
        match (consumer.handler, &consumer.wallet) {
            (HandlerKind::Wallet, Some(wallet)) => self.wallet(name, wallet),
            (HandlerKind::Wallet, None) => {
                let message = format!(
                    "the wallet needs its settings: add [consumers.{name}.wallet] with `assets = {{ EUR = 2 }}`"
                );
                self.error(Code::NoHandlerSettings, &["consumers", name], message);
            }
        }
    }

    fn key(&mut self, name: &str, consumer: &Consumer) {
        let path = [
            "consumers",
            name,
            if consumer.key.is_some() {
                "key"
            } else {
                "key_time"
            },
        ];
        let rule = match key_rule(consumer) {
            Ok(rule) => rule,
            Err(error) => return self.error(Code::BadRule, &path, error.to_string()),
        };
        if rule.time().is_some() {
            let message = "`key_time` is part of the identity: a copy with another time is another operation; name a field that is set once, when the operation is born";
            self.warning(Code::TimeInKey, &["consumers", name, "key_time"], message);
        }
        for part in rule.parts() {
            if let Some(what) = made_by_transport(&part.source) {
                let message = format!(
                    "the key is made of {what}, which the transport makes: a producer's resend or a replay would be executed again (T80); use a business id made at the source"
                );
                self.warning(Code::TransportKey, &path, message);
            }
            if part.source == PartSource::MessageKey && !self.has_message_keys(consumer) {
                let message = "no source of this consumer has message keys: every message would end `dead(no_key)`";
                self.error(Code::BadRule, &path, message);
            }
        }
    }

    fn has_message_keys(&self, consumer: &Consumer) -> bool {
        let mut sources = consumer
            .sources
            .iter()
            .filter_map(|name| self.loaded.config.sources.get(name));
        sources.any(|source| matches!(source, Source::Kafka(_) | Source::Queue(_)))
    }

    fn fingerprint(&mut self, name: &str, consumer: &Consumer) {
        let path = ["consumers", name, "fingerprint"];
        let pointers = match &consumer.fingerprint {
            None | Some(Fingerprint::Whole(Whole::All)) => return,
            Some(Fingerprint::Whole(Whole::None)) => {
                let message = "content is not compared: other content under a known key is taken for a copy, and lost";
                return self.warning(Code::NoFingerprint, &path, message);
            }
            Some(Fingerprint::Except(except)) => &except.except,
            Some(Fingerprint::Fields(fields)) => &fields.fields,
        };
        for pointer in pointers.iter().filter(|pointer| !is_pointer(pointer)) {
            let message =
                format!("`{pointer}` is no JSON pointer; one starts with `/`, such as `/trace_id`");
            self.error(Code::BadRule, &path, message);
        }
    }

    fn wallet(&mut self, name: &str, wallet: &Wallet) {
        let path = ["consumers", name, "wallet", "assets"];
        if wallet.assets.is_empty() {
            self.error(Code::WalletAssets, &path, "the wallet has no assets: name them with their scales, such as `assets = { EUR = 2 }`");
        }
        let House::Each(houses) = &wallet.house else {
            return;
        };
        let path = ["consumers", name, "wallet", "house"];
        for asset in houses
            .keys()
            .filter(|asset| !wallet.assets.contains_key(*asset))
        {
            let hint = nearest(asset, wallet.assets.keys().map(String::as_str))
                .map_or(String::new(), |near| format!(", did you mean `{near}`?"));
            self.error(
                Code::WalletAssets,
                &path,
                format!("there is a house for `{asset}`, which is no asset{hint}"),
            );
        }
        for asset in wallet
            .assets
            .keys()
            .filter(|asset| !houses.contains_key(*asset))
        {
            let message = format!("the asset `{asset}` has no house: bets and wins in it need one");
            self.error(Code::WalletAssets, &path, message);
        }
    }
}

fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && Pointer::parse(text).is_ok()
}

/// Where messages are, so that two names for one place are found.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    File(PathBuf),
    Stdin,
    Queue(Option<String>, String),
    /// Brokers, topic and group.
    Topic(Vec<String>, String, String),
}

fn places_of(loaded: &Loaded, source: &Source) -> Vec<(Place, String)> {
    match source {
        Source::File(file) => {
            let place =
                |path: &String| (Place::File(tidy(&loaded.path(path))), format!("`{path}`"));
            file.paths.iter().map(place).collect()
        }
        Source::Stdin(_) => vec![(Place::Stdin, "standard input".to_owned())],
        Source::Queue(queue) => {
            let url = queue
                .url
                .as_ref()
                .and_then(|url| url.text())
                .map(str::to_owned);
            vec![(
                Place::Queue(url, queue.name.clone()),
                format!("the queue `{}`", queue.name),
            )]
        }
        Source::Kafka(kafka) => {
            let mut brokers = kafka.brokers.clone();
            brokers.sort();
            let place = |topic: &String| {
                (
                    Place::Topic(brokers.clone(), topic.clone(), kafka.group.clone()),
                    format!("the topic `{topic}` as the group `{}`", kafka.group),
                )
            };
            kafka.topics.iter().map(place).collect()
        }
        Source::Rabbitmq(rabbitmq) => {
            let url = rabbitmq.url.text().map(str::to_owned);
            let written = format!("the queue `{}`", rabbitmq.queue);
            vec![(Place::Queue(url, rabbitmq.queue.clone()), written)]
        }
    }
}

/// The path without `.` and `name/..`: links are not followed, since nothing is opened.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(tidy.components().next_back(), Some(Component::Normal(_))) =>
            {
                tidy.pop();
            }
            other => tidy.push(other),
        }
    }
    tidy
}

/// Names that brokers, clients and tracers fill in themselves, without case and punctuation.
const TRANSPORT_NAMES: [&str; 20] = [
    "offset",
    "kafkaoffset",
    "partition",
    "kafkapartition",
    "kafkareceivedtimestamp",
    "messageid",
    "amqpmessageid",
    "xmessageid",
    "deliverytag",
    "deliverycount",
    "xdeliverycount",
    "xdeath",
    "sequencenumber",
    "receipthandle",
    "traceid",
    "traceparent",
    "xrequestid",
    "timestamp",
    "date",
    "receivedat",
];

fn made_by_transport(source: &PartSource) -> Option<String> {
    let (name, shown) = match source {
        PartSource::Header(name) => (name.as_str(), format!("the header `{name}`")),
        PartSource::Pointer(pointer) => {
            (pointer.segments().last()?.as_str(), format!("`{pointer}`"))
        }
        PartSource::MessageKey | PartSource::Constant(_) => return None,
    };
    let bare: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect::<String>()
        .to_ascii_lowercase();
    TRANSPORT_NAMES.contains(&bare.as_str()).then_some(shown)
}
