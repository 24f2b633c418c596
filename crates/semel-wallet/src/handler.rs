//! The wallet as a staged handler: binds messages, names the rows of each operation, and lets `decide`
//! work on the engine's stage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use semel::handler::{Bound, Fresh};
use semel::staged::{Names, Stage, Staged};
use semel_core::fingerprint::{FieldSums, Fingerprint, Policy};
use semel_core::key::{Identity, Inputs, KeyRule};
use semel_core::law::{Binding, Reject};
use semel_core::rows::{Table, Value};
use semel_core::{Answer, Code, Fault, Json, Key, Message, codes};

use crate::config::Config;
use crate::decide::{Case, decide};
use crate::op::{self, Keys};
use crate::row::{ACCOUNT, ENTRY, OPERATION, Row, TABLES};
use crate::work::Work;

mod memory;
mod naming;
mod stage;

use memory::Memory;
use naming::Naming;
use stage::OnStage;

/// What the key rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyOf {
    /// `/id` as it is: the message's key is the key of its id.
    Id,
    /// Anything else.
    Other,
}

/// The handler `wallet`.
///
/// ```
/// use semel::staged::Staged;
/// use semel_core::Message;
/// use semel_wallet::{Config, Wallet};
///
/// let wallet = Wallet::new(Config::new([("EUR", 2)])?.house("house")?);
/// let message = Message::new(br#"{"op":"freeze","id":"f1","account":"p1"}"#.as_slice(), "ops.jsonl", Some(1));
/// assert_eq!(wallet.bind(&message).unwrap().binding.id, "f1");
/// # Ok::<(), semel_wallet::BadConfig>(())
/// ```
#[derive(Debug)]
pub struct Wallet {
    config: Config,
    rule: KeyRule,
    key_of: KeyOf,
    /// Another way to compare than the wallet's own, if the consumer declares one.
    fingerprint: Option<Policy>,
    now_ms: AtomicU64,
    /// The config's houses, sorted.
    houses: Box<[Key]>,
    memory: Memory,
}

impl Wallet {
    /// The handler's name in configs and in `semel_consumer`.
    pub const NAME: &'static str = "wallet";

    /// A wallet whose keys are the `/id` of its messages, compared by the wallet's own rule.
    ///
    /// # Panics
    /// Never: the rule is well formed.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let rule = KeyRule::parse(["/id"], None).expect("`/id` is a JSON pointer");
        let houses = config.assets().filter_map(|asset| asset.house.as_ref());
        let houses: BTreeSet<Key> = houses.map(|(house, _)| *house).collect();
        Self {
            houses: houses.into_iter().collect(),
            config,
            rule,
            key_of: KeyOf::Id,
            fingerprint: None,
            now_ms: AtomicU64::new(u64::MAX / 2),
            memory: Memory::default(),
        }
    }

    /// Keys by another rule of the consumer.
    #[must_use]
    pub fn keyed_by(self, rule: KeyRule) -> Self {
        let key_of = if rule.to_string() == self.rule.to_string() {
            self.key_of
        } else {
            KeyOf::Other
        };
        Self {
            rule,
            key_of,
            ..self
        }
    }

    /// With the scales that were recorded ([`crate::register_scales`]): a message of an asset that is declared no more is
    /// compared with what it was bound to when it was.
    #[must_use]
    pub fn knowing(mut self, recorded: BTreeMap<String, u8>) -> Self {
        self.config.recorded = recorded;
        self
    }

    /// Content compared by a policy of the consumer instead of the wallet's own.
    #[must_use]
    pub fn compared_by(self, fingerprint: Policy) -> Self {
        Self {
            fingerprint: Some(fingerprint),
            ..self
        }
    }

    /// Its settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The sweep's operation for an expired hold, as a message and what it is bound to. It is claimed like
    /// any message, so that two sweeps free a hold once; no message from outside is bound to it.
    #[must_use]
    pub fn expire(&self, hold: &crate::Expired) -> (Message, Bound<Work>) {
        let work = Work::expire(hold);
        let payload = format!(
            r#"{{"op":"expire","id":"{}","hold":"{}"}}"#,
            work.key(),
            hold.hold
        );
        let message = Message::new(payload.into_bytes(), "semel:expire", None);
        let binding = Binding {
            key: work.key(),
            id: work.id().to_owned(),
            fingerprint: Fingerprint::of_bytes(message.bytes()),
            scheme: op::SCHEME,
            sums: FieldSums::default(),
        };
        (
            message,
            Bound {
                binding,
                lane: None,
                work,
            },
        )
    }

    fn identify<'a>(
        &'a self,
        json: &'a Json<'a>,
        message: &'a Message,
    ) -> Result<Identity<'a>, Reject> {
        let inputs = Inputs {
            payload: Some(json),
            headers: &message.headers,
            message_key: message.message_key.as_deref(),
            now_ms: self.now_ms.load(Ordering::Relaxed),
        };
        self.rule.identify(&inputs).map_err(|no_key| {
            let field = no_key
                .part
                .strip_prefix("`/")
                .and_then(|part| part.strip_suffix('`'))
                .map(str::to_owned);
            reject(codes::NO_KEY, no_key.to_string(), field)
        })
    }

    fn is_house(&self, account: &Key) -> bool {
        self.houses.binary_search(account).is_ok()
    }
}

#[cold]
fn reject(code: Code, detail: String, field: Option<String>) -> Reject {
    Reject {
        code,
        detail,
        field,
    }
}

impl Staged for Wallet {
    type Work = Work;
    type Row = Row;

    fn name_of_handler(&self) -> &str {
        Self::NAME
    }

    fn rules(&self) -> Fingerprint {
        semel::rules_hash(&self.rule)
    }

    fn tables(&self) -> &'static [&'static Table] {
        TABLES
    }

    fn bind(&self, message: &Message) -> Result<Bound<Work>, Reject> {
        let Some(payload) = message.payload.as_deref() else {
            return Err(reject(
                codes::MALFORMED,
                "the payload is null, not a JSON object".to_owned(),
                None,
            ));
        };
        let json =
            Json::parse(payload).map_err(|bad| reject(codes::MALFORMED, bad.detail, bad.field))?;
        let Some(object) = json.object() else {
            let detail = format!("the payload is {}, not a JSON object", json.kind());
            return Err(reject(codes::MALFORMED, detail, None));
        };
        let identity = self.identify(&json, message)?;
        let keys = Keys::default();
        if let (KeyOf::Id, Some(id)) = (self.key_of, object.get("id")) {
            keys.learn(id, identity.key);
        }
        let (scheme, (fingerprint, sums)) = match &self.fingerprint {
            None => (
                op::SCHEME,
                op::content(object, &keys, &self.config).finish(),
            ),
            Some(policy) => (policy.scheme(), policy.bind(payload, Some(&json))),
        };
        let work = Work::of(identity.key, &identity.id, object, &keys, &self.config);
        let binding = Binding {
            key: identity.key,
            id: identity.id.into_owned(),
            fingerprint,
            scheme,
            sums,
        };
        Ok(Bound {
            binding,
            lane: op::lane(object, &keys),
            work,
        })
    }

    fn told_time(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }

    fn same(&self, message: &Message, _work: &Work, first: Fingerprint) -> bool {
        let Ok(json) = Json::parse(message.bytes()) else {
            return false;
        };
        self.fingerprint.is_none()
            && json
                .object()
                .is_some_and(|object| op::was_bound_to(first, object, &self.config))
    }

    fn differing(&self, message: &Message, _work: &Work, stored: &FieldSums) -> Option<String> {
        let json = Json::parse(message.bytes()).ok()?;
        match &self.fingerprint {
            None => op::differing(json.object()?, &self.config, stored),
            Some(policy) => policy.differing(stored, &json),
        }
    }

    fn name(&self, work: &Work, names: &mut dyn Names<Row>) {
        if let Ok(operation) = work.operation() {
            Naming {
                wallet: self,
                names,
            }
            .operation(work.key(), operation);
        }
    }

    fn decode(&self, table: usize, values: &[Value]) -> Result<Row, Fault> {
        Row::decode(table, values).map_err(Fault::poison)
    }

    fn encode(&self, _table: usize, row: &Row, values: &mut Vec<Value>) {
        row.encode(values);
    }

    fn decide(&self, fresh: &Fresh<'_, Work>, stage: &mut dyn Stage<Row>) -> Result<Answer, Fault> {
        let work = fresh.work;
        let mut books = OnStage(stage);
        let mut case = Case {
            config: &self.config,
            key: work.key(),
            id: work.id(),
            last: fresh.last,
            books: &mut books,
        };
        decide(&mut case, work.operation())
    }

    fn learn(&self, table: usize, row: &Row) {
        if let (ACCOUNT, Row::Account(account)) = (table, row) {
            self.memory.learn(account);
        }
    }

    fn recall(&self, table: usize, id: &Value) -> Option<Row> {
        match (table, id) {
            (ACCOUNT, Value::Key(account)) => self.memory.recall(account).map(Row::Account),
            _ => None,
        }
    }

    fn rebase(&self, table: usize, row: &mut Row, base: &[i128]) {
        let &[posted, pending, version] = base else {
            return;
        };
        let version = i64::try_from(version).unwrap_or(i64::MAX);
        match (table, row) {
            (ENTRY, Row::Entry(entry)) if entry.relative => {
                entry.balance_after = entry.balance_after.saturating_add(posted);
                entry.version = entry.version.saturating_add(version);
                entry.relative = false;
            }
            (OPERATION, Row::Operation(operation)) => {
                let Some(reply) = operation.reply.as_mut().filter(|reply| reply.relative) else {
                    return;
                };
                reply.balance = reply.balance.saturating_add(posted);
                reply.available = reply
                    .available
                    .saturating_add(posted)
                    .saturating_sub(pending);
                reply.version = reply.version.saturating_add(version);
                reply.relative = false;
            }
            _ => {}
        }
    }
}
