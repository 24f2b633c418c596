//! `[consumers.NAME]`: which sources are read into the ledger by which handler, and how.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// A named pairing of sources, the ledger and a handler: one ledger scope.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Consumer {
    /// The names of its sources. One operation may arrive by several: the key decides.
    #[schemars(length(min = 1))]
    pub(crate) sources: Vec<String>,
    /// What is done with a message; its settings are in `[consumers.NAME.<handler>]`.
    pub(crate) handler: HandlerKind,
    /// How the key is made: a JSON pointer (`"/id"`), `"header:NAME"`, `"message_key"`, `"const:TEXT"`, with
    /// normalisers around them (`"lower(trim(/id))"`), or a list of such parts. The wallet's default is `"/id"`.
    pub(crate) key: Option<OneOrMore>,
    /// A JSON pointer to the operation's own, immutable time. It becomes part of the key and makes keys
    /// time-ordered.
    pub(crate) key_time: Option<String>,
    /// What of the content is bound to the key: `"all"`, `"none"`, `{ except = ["/trace_id"] }` or
    /// `{ fields = ["/amount"] }`. The wallet has a rule of its own.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// What keeps its order: `"auto"` (the message key where the source has one, else the partition),
    /// `"partition"`, a JSON pointer, or `"handler"` (the handler's own choice).
    #[serde(default = "lane")]
    pub(crate) lane: String,
    /// How many lanes run at once; lane keys are spread over them by hash.
    #[serde(default = "lanes")]
    #[schemars(range(min = 1, max = 64))]
    pub(crate) lanes: u16,
    /// The most messages in one unit of work.
    #[serde(default = "batch_count_max")]
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) batch_count_max: u32,
    /// The most bytes of messages in one unit of work.
    #[serde(default = "batch_bytes_max")]
    #[schemars(range(min = 1))]
    pub(crate) batch_bytes_max: u64,
    /// The most bytes of messages in memory, over all lanes of this consumer.
    #[serde(default = "memory_bytes_max")]
    #[schemars(range(min = 1))]
    pub(crate) memory_bytes_max: u64,
    /// A longer message ends `dead(too_large)`.
    #[serde(default = "message_bytes_max")]
    #[schemars(range(min = 1))]
    pub(crate) message_bytes_max: u64,
    /// After so many tries that the handler asked to repeat or the process did not survive, a message ends `dead(poison)`.
    #[serde(default = "attempts_max")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) attempts_max: u32,
    /// A unit that takes longer is given up with its connection, and its outcome is asked of the database.
    #[serde(default = "unit_deadline_ms")]
    #[schemars(range(min = 1))]
    pub(crate) unit_deadline_ms: u64,
    /// Settings of `handler = "wallet"`.
    pub(crate) wallet: Option<Wallet>,
}

/// What is done with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HandlerKind {
    /// The Book and the Rounds: double entry, holds, bets and wins.
    Wallet,
}

/// One text or a list of them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum OneOrMore {
    /// One.
    One(String),
    /// A list.
    More(#[schemars(length(min = 1, max = 16))] Vec<String>),
}

impl OneOrMore {
    /// All of them.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::One(text) => std::slice::from_ref(text).iter().map(String::as_str),
            Self::More(texts) => texts.iter().map(String::as_str),
        }
    }
}

/// What of the content is bound to the key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Fingerprint {
    /// By name.
    Whole(Whole),
    /// All but these values.
    Except(Except),
    /// These values alone.
    Fields(Fields),
}

/// Everything or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Whole {
    /// The whole payload.
    All,
    /// Nothing: every message with a known key is a duplicate, whatever it says.
    None,
}

/// All but these values.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Except {
    /// JSON pointers to what is left out.
    #[schemars(length(min = 1))]
    pub(crate) except: Vec<String>,
}

/// These values alone.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fields {
    /// JSON pointers to what is compared.
    #[schemars(length(min = 1))]
    pub(crate) fields: Vec<String>,
}

/// Settings of the wallet.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wallet {
    /// The assets and their scales: `{ EUR = 2, JPY = 0, BTC = 8 }`. The first scale of an asset is recorded; another one stops the run.
    pub(crate) assets: BTreeMap<String, Scale>,
    /// The house's account, or one for each asset: `{ EUR = "house", JPY = "house-jpy" }`.
    #[serde(default = "house")]
    pub(crate) house: House,
    /// How long a child waits for its parent before it is refused with the not-found code.
    #[serde(default = "park_for_ms")]
    pub(crate) park_for_ms: u64,
    /// Does an operation on an unknown account wait for it, instead of being refused at once?
    #[serde(default)]
    pub(crate) park_for_account: bool,
    /// A win for a round that is completed or cancelled.
    #[serde(default)]
    pub(crate) late_win: LateWin,
    /// What a duplicate is answered.
    #[serde(default)]
    pub(crate) duplicate_reply: DuplicateReply,
}

/// Digits behind the point.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Scale(#[schemars(range(min = 0, max = 18))] pub(crate) u8);

/// The house's account.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum House {
    /// One for all assets.
    One(String),
    /// One for each asset.
    Each(BTreeMap<String, String>),
}

/// What becomes of a win for a round that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LateWin {
    /// `dead(late_win)`: an operator decides.
    #[default]
    Dead,
    /// It is paid.
    Accept,
}

/// What a duplicate is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DuplicateReply {
    /// The reply of the first delivery.
    #[default]
    Original,
    /// The balance as it is now.
    Current,
}

fn lane() -> String {
    "auto".to_owned()
}

/// Measured: two to four lanes are enough, more only contend.
fn lanes() -> u16 {
    4
}

/// Set-based statements reach most of their speed at a thousand rows, and a unit stays below 10 ms.
fn batch_count_max() -> u32 {
    1_000
}

/// Eight mebibytes: a batch of full-sized messages still fits a connection's buffers.
fn batch_bytes_max() -> u64 {
    8 * 1024 * 1024
}

/// Room for a few batches on every lane.
fn memory_bytes_max() -> u64 {
    64 * 1024 * 1024
}

/// A mebibyte: the limit that brokers have by default.
fn message_bytes_max() -> u64 {
    1024 * 1024
}

fn attempts_max() -> u32 {
    10
}

/// Above the server's own timeouts, so that only a silent socket meets it.
fn unit_deadline_ms() -> u64 {
    90_000
}

fn house() -> House {
    House::One("house".to_owned())
}

fn park_for_ms() -> u64 {
    60_000
}
