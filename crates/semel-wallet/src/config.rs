//! What the config declares: assets, the house, and the policies. Plain data, checked once.

use std::collections::BTreeMap;
use std::sync::Arc;

use semel_core::{Key, Part};

/// The most digits behind the point that an asset may have.
pub const SCALE_MAX: u8 = 18;

/// The wallet's settings.
///
/// ```
/// use semel_wallet::Config;
///
/// let config = Config::new([("EUR", 2), ("JPY", 0)])?.house("house")?;
/// assert!(config.asset("EUR").is_some());
/// # Ok::<(), semel_wallet::BadConfig>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    assets: BTreeMap<Arc<str>, Asset>,
    /// The scales of all assets that were ever declared, as far as they are known.
    pub(crate) recorded: BTreeMap<String, u8>,
    /// How long a child waits for its parent, ms.
    pub park_for_ms: u64,
    /// Does an operation on an unknown account wait for it, instead of being refused at once?
    pub park_for_account: bool,
    /// A win for a round that is completed or cancelled.
    pub late_win: LateWin,
    /// What a duplicate is answered.
    pub duplicate_reply: DuplicateReply,
}

/// A declared asset.
#[derive(Debug, Clone)]
pub struct Asset {
    /// Its code, such as `EUR`.
    pub code: Arc<str>,
    /// Digits behind the point, 0 to [`SCALE_MAX`].
    pub scale: u8,
    /// The house's account for it: bets go there, wins come from there.
    pub house: Option<(Key, Arc<str>)>,
}

/// Policy for a win of a round that is completed or cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LateWin {
    /// A dead letter: people decide.
    #[default]
    Dead,
    /// It is paid.
    Accept,
}

/// Policy for the reply of a duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DuplicateReply {
    /// As of the first answer.
    #[default]
    Original,
    /// The account as it is now.
    Current,
}

/// Settings that cannot be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadConfig {
    /// A scale beyond [`SCALE_MAX`].
    #[error("the asset {asset} has {scale} digits behind the point; give it 0 to {SCALE_MAX}")]
    Scale {
        /// The asset.
        asset: String,
        /// Its scale.
        scale: u8,
    },
    /// A house for an asset that is not declared.
    #[error("the house of {asset} is declared, but the asset is not; add it to `assets`")]
    UnknownAsset {
        /// The asset.
        asset: String,
    },
    /// A house without a usable account id.
    #[error("the house's account {account:?} is no account id: use 1 to 512 bytes of text")]
    House {
        /// The account.
        account: String,
    },
}

impl Config {
    /// These assets, without a house, and the default policies.
    ///
    /// # Errors
    /// A scale beyond [`SCALE_MAX`].
    pub fn new<C: AsRef<str>>(
        assets: impl IntoIterator<Item = (C, u8)>,
    ) -> Result<Self, BadConfig> {
        let mut known = BTreeMap::new();
        for (code, scale) in assets {
            let code: Arc<str> = code.as_ref().into();
            if scale > SCALE_MAX {
                return Err(BadConfig::Scale {
                    asset: code.to_string(),
                    scale,
                });
            }
            known.insert(
                code.clone(),
                Asset {
                    code,
                    scale,
                    house: None,
                },
            );
        }
        Ok(Self {
            assets: known,
            recorded: BTreeMap::new(),
            park_for_ms: 60_000,
            park_for_account: false,
            late_win: LateWin::Dead,
            duplicate_reply: DuplicateReply::Original,
        })
    }

    /// One house account for all assets.
    ///
    /// # Errors
    /// An account id that is empty or too long.
    pub fn house(mut self, account: &str) -> Result<Self, BadConfig> {
        let house = house_account(account)?;
        self.assets
            .values_mut()
            .for_each(|asset| asset.house = Some(house.clone()));
        Ok(self)
    }

    /// The house account of one asset.
    ///
    /// # Errors
    /// An asset that is not declared, or an account id that is empty or too long.
    pub fn house_of(mut self, asset: &str, account: &str) -> Result<Self, BadConfig> {
        let house = house_account(account)?;
        match self.assets.get_mut(asset) {
            Some(known) => known.house = Some(house),
            None => {
                return Err(BadConfig::UnknownAsset {
                    asset: asset.to_owned(),
                });
            }
        }
        Ok(self)
    }

    /// A declared asset.
    #[must_use]
    pub fn asset(&self, code: &str) -> Option<&Asset> {
        self.assets.get(code)
    }

    /// The scale that an asset has, or had when it was declared.
    pub(crate) fn scale(&self, code: &str) -> Option<u8> {
        let declared = self.asset(code).map(|asset| asset.scale);
        declared.or_else(|| self.recorded.get(code).copied())
    }

    /// All declared assets.
    pub fn assets(&self) -> impl Iterator<Item = &Asset> {
        self.assets.values()
    }
}

fn house_account(account: &str) -> Result<(Key, Arc<str>), BadConfig> {
    Key::derive(&[Part::Text(account)])
        .map(|key| (key, account.into()))
        .map_err(|_| BadConfig::House {
            account: account.to_owned(),
        })
}
