//! The scales of assets, recorded at their first use. Amounts are stored in minor units, so with another scale in
//! the config every stored amount would change its worth in silence.

use std::collections::BTreeMap;

use semel_core::Fault;
use semel_core::rows::{Register, Value};

use crate::config::{Asset, Config};
use crate::query::{int, text};
use crate::sql::{Dialect, Statements};

/// Compares the scales of the config with the recorded ones and records those of new assets. Call it before a
/// consumer runs, and tell its wallet what comes back ([`crate::Wallet::knowing`]): the scales of all assets that were ever
/// declared.
///
/// # Errors
/// `Stop` when an asset was recorded with another scale; the store's otherwise.
pub async fn register_scales(
    config: &Config,
    ledger: &impl Register,
    dialect: Dialect,
) -> Result<BTreeMap<String, u8>, Fault> {
    let sql = dialect.statements();
    let mut recorded = compared(config, ledger, sql).await?;
    let mut noted = false;
    for asset in config.assets() {
        if !recorded.contains_key(&*asset.code) {
            let args = [
                Value::Text((*asset.code).into()),
                Value::Int(asset.scale.into()),
            ];
            ledger.register(sql.asset_note, &args).await?;
            noted = true;
        }
    }
    if noted {
        // Another process may have recorded one of them first.
        recorded = compared(config, ledger, sql).await?;
    }
    Ok(recorded)
}

async fn compared(
    config: &Config,
    ledger: &impl Register,
    sql: &Statements,
) -> Result<BTreeMap<String, u8>, Fault> {
    let mut recorded = BTreeMap::new();
    let mut each = |values: &[Value]| {
        let scale = int(&values[1]).and_then(|scale| u8::try_from(scale).ok());
        recorded.extend(text(&values[0]).zip(scale));
        true
    };
    ledger.query(sql.assets, &[], &mut each).await?;
    for asset in config.assets() {
        match recorded.get(&*asset.code) {
            Some(scale) if *scale != asset.scale => return Err(changed(asset, *scale)),
            Some(_) | None => {}
        }
    }
    Ok(recorded)
}

#[cold]
fn changed(asset: &Asset, recorded: u8) -> Fault {
    let Asset { code, scale, .. } = asset;
    Fault::stop(format!(
        "the asset {code} is recorded with {recorded} digits behind the point, and the config gives it {scale}: all stored \
         amounts of it would change their worth. Set `assets.{code} = {recorded}` again, or book the other scale under a code \
         of its own"
    ))
}
