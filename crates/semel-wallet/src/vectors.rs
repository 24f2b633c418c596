//! The published vectors as data (`tests/vectors/wallet.json`), so that the model, every ledger and the
//! daemon run the same cases. Only with the feature `testing`.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::config::{BadConfig, Config};

/// One case: messages in order, and what must come of them.
#[derive(Debug, Clone)]
pub struct Vector {
    /// Its name, a sentence.
    pub name: String,
    /// The wallet's settings.
    pub config: Config,
    /// The payloads, byte for byte.
    pub ops: Vec<Bytes>,
    /// Outcome of each, and its code; for parked the kind awaited.
    pub expect: Vec<(String, Option<String>)>,
    /// Balances at the end, by account.
    pub balances: BTreeMap<String, i128>,
    /// What parked messages came to when nothing was left to do, by id.
    pub after_idle: BTreeMap<String, (String, Option<String>)>,
    /// The field that the one Clash of the case names.
    pub reused_field: Option<String>,
}

#[derive(Deserialize)]
struct Written {
    name: String,
    assets: BTreeMap<String, u8>,
    house: House,
    ops: Vec<Box<RawValue>>,
    expect: Vec<(String, Option<String>)>,
    #[serde(default)]
    balances: BTreeMap<String, String>,
    #[serde(default)]
    after_idle: BTreeMap<String, (String, Option<String>)>,
    reused_field: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum House {
    One(String),
    PerAsset(BTreeMap<String, String>),
}

/// All vectors.
///
/// # Panics
/// When the file is not what this module reads: the tests that need it cannot run.
#[must_use]
pub fn vectors() -> Vec<Vector> {
    let written: Vec<Written> = serde_json::from_str(include_str!("../tests/vectors/wallet.json"))
        .expect("the vectors are readable");
    written.into_iter().map(read).collect()
}

fn read(written: Written) -> Vector {
    let config = config(&written.assets, &written.house).expect("the vectors have a sound config");
    let balance =
        |(account, text): (String, String)| (account, text.parse().expect("balances are digits"));
    Vector {
        name: written.name,
        config,
        ops: written
            .ops
            .iter()
            .map(|op| Bytes::copy_from_slice(op.get().as_bytes()))
            .collect(),
        expect: written.expect,
        balances: written.balances.into_iter().map(balance).collect(),
        after_idle: written.after_idle,
        reused_field: written.reused_field,
    }
}

fn config(assets: &BTreeMap<String, u8>, house: &House) -> Result<Config, BadConfig> {
    let config = Config::new(assets.iter().map(|(code, scale)| (code, *scale)))?;
    match house {
        House::One(account) => config.house(account),
        House::PerAsset(houses) => houses.iter().try_fold(config, |config, (asset, house)| {
            config.house_of(asset, house)
        }),
    }
}
