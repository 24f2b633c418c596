//! The wallet as the config asks for it, and its commands for people.

use semel::staged::{self, StagedHandler};
use semel_core::fingerprint::Policy;
use semel_core::Pointer;
use semel_sqlite::Extension;
use semel_wallet::Wallet;

use crate::check;
use crate::config::{self, Consumer, DuplicateReply, House, LateWin, Whole};
use crate::dialect::Dialect;
use crate::exit::Failure;

/// The wallet's tables, which live beside the ledger's.
pub(crate) fn tables(_dialect: Dialect) -> Vec<Extension> {
    Vec::new()
}

/// The handler of a consumer.
///
/// # Errors
///
/// Its settings are missing or cannot be right; `check` says so with the line.
pub(crate) fn handler(name: &str, consumer: &Consumer) -> Result<StagedHandler<Wallet>, Failure> {
    let Some(settings) = &consumer.wallet else {
        return Err(Failure::usage(format!("`consumers.{name}` has no table [consumers.{name}.wallet]")));
    };
    let rule = check::key_rule(consumer).map_err(|error| Failure::usage(error.to_string()))?;
    let wallet = Wallet::new(wallet_config(settings).map_err(|error| Failure::usage(error.to_string()))?).keyed_by(rule);
    Ok(staged::handler(match &consumer.fingerprint {
        None => wallet,
        Some(fingerprint) => wallet.compared_by(policy(fingerprint)?),
    }))
}

fn wallet_config(settings: &config::Wallet) -> Result<semel_wallet::Config, semel_wallet::BadConfig> {
    let assets = settings.assets.iter().map(|(code, scale)| (code, scale.0));
    let mut wallet = semel_wallet::Config::new(assets)?;
    match &settings.house {
        House::One(account) => wallet = wallet.house(account)?,
        House::Each(houses) => {
            for (asset, account) in houses {
                wallet = wallet.house_of(asset, account)?;
            }
        }
    }
    wallet.park_for_ms = settings.park_for_ms;
    wallet.park_for_account = settings.park_for_account;
    wallet.late_win = match settings.late_win {
        LateWin::Dead => semel_wallet::LateWin::Dead,
        LateWin::Accept => semel_wallet::LateWin::Accept,
    };
    wallet.duplicate_reply = match settings.duplicate_reply {
        DuplicateReply::Original => semel_wallet::DuplicateReply::Original,
        DuplicateReply::Current => semel_wallet::DuplicateReply::Current,
    };
    Ok(wallet)
}

fn policy(fingerprint: &config::Fingerprint) -> Result<Policy, Failure> {
    let pointers = |texts: &[String]| texts.iter().map(|text| Pointer::parse(text)).collect::<Result<_, _>>();
    let policy = match fingerprint {
        config::Fingerprint::Whole(Whole::All) => Ok(Policy::All),
        config::Fingerprint::Whole(Whole::None) => Ok(Policy::None),
        config::Fingerprint::Except(except) => pointers(&except.except).map(Policy::Except),
        config::Fingerprint::Fields(fields) => pointers(&fields.fields).map(Policy::Fields),
    };
    policy.map_err(|error| Failure::usage(error.to_string()))
}
