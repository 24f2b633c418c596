//! Operations on the wire: one JSON object becomes one [`Operation`], or the reason why it cannot.
//!
//! What the message alone shows is judged here, in the order of the code lists; what needs a stored row is
//! left to `decide`. Nothing is guessed and nothing is rounded.

use std::sync::Arc;

use semel_core::json::Object;
use semel_core::{Key, Part};

use crate::amount::{Decimal, minor_units};
use crate::code::{Death, Refusal};
use crate::config::{Asset, Config};
use crate::row::{Kind, Limit};

mod content;
mod field;
mod keys;

pub(crate) use content::{SCHEME, content, differing, known_fields, lane, was_bound_to};
use field::Fields;
pub(crate) use keys::Keys;

/// The most legs of a group: what one unit can lock without holding up its neighbours.
pub const LEGS_MAX: usize = 100;

/// The operations' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// `open_account`
    OpenAccount,
    /// `freeze`
    Freeze,
    /// `unfreeze`
    Unfreeze,
    /// `close_account`
    CloseAccount,
    /// `transfer`
    Transfer,
    /// `transfer_group`
    TransferGroup,
    /// `reverse`
    Reverse,
    /// `authorize`
    Authorize,
    /// `capture`
    Capture,
    /// `release`
    Release,
    /// `refund`
    Refund,
    /// `bet`
    Bet,
    /// `win`
    Win,
    /// `rollback`
    Rollback,
    /// `close_round`
    CloseRound,
    /// `cancel_round`
    CancelRound,
    /// `expire`: made by the sweep alone, unknown on the wire.
    Expire,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::OpenAccount,
        Self::Freeze,
        Self::Unfreeze,
        Self::CloseAccount,
        Self::Transfer,
        Self::TransferGroup,
        Self::Reverse,
        Self::Authorize,
        Self::Capture,
        Self::Release,
        Self::Refund,
        Self::Bet,
        Self::Win,
        Self::Rollback,
        Self::CloseRound,
        Self::CancelRound,
        Self::Expire,
    ];

    /// The word on the wire and in `wallet_operation.op`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAccount => "open_account",
            Self::Freeze => "freeze",
            Self::Unfreeze => "unfreeze",
            Self::CloseAccount => "close_account",
            Self::Transfer => "transfer",
            Self::TransferGroup => "transfer_group",
            Self::Reverse => "reverse",
            Self::Authorize => "authorize",
            Self::Capture => "capture",
            Self::Release => "release",
            Self::Refund => "refund",
            Self::Bet => "bet",
            Self::Win => "win",
            Self::Rollback => "rollback",
            Self::CloseRound => "close_round",
            Self::CancelRound => "cancel_round",
            Self::Expire => "expire",
        }
    }

    /// The operation of a word from the wire; `expire` is none of them.
    #[must_use]
    pub fn of_wire(word: &str) -> Option<Self> {
        Self::of_stored(word).filter(|verb| *verb != Self::Expire)
    }

    /// The operation of a stored word.
    #[must_use]
    pub fn of_stored(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == word)
    }
}

/// A name in a message with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// What it is compared by.
    pub key: Key,
    /// The source text.
    pub id: Box<str>,
}

/// A movement of money that the message shows completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The account that pays.
    pub debit: Key,
    /// The account that gets it.
    pub credit: Key,
    /// What is moved.
    pub asset: Arc<str>,
    /// How much, in minor units.
    pub amount: i128,
}

/// A movement, or the refusal that the message alone calls for; the subject is the account of the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leg {
    /// The account whose balance the reply tells.
    pub subject: Key,
    /// What to move.
    pub money: Result<Move, Refusal>,
}

/// An amount whose asset only a stored row knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quantity {
    /// In minor units.
    Minor(i128),
    /// In major units, as its source text.
    Major(Box<str>),
}

impl Quantity {
    /// In minor units of `asset`.
    pub(crate) fn minor(&self, asset: Option<&Asset>) -> Result<i128, Refusal> {
        match self {
            Self::Minor(amount) => Ok(*amount),
            Self::Major(text) => {
                Decimal::parse(text)?.at_scale(asset.ok_or(Refusal::AssetUnknown)?.scale)
            }
        }
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// An account with balance 0.
    OpenAccount {
        /// Its name.
        account: Named,
        /// Its asset.
        asset: Result<Arc<str>, Refusal>,
        /// Its kind.
        kind: Kind,
        /// Whether it may go negative.
        limit: Limit,
    },
    /// Stops debits of an account.
    Freeze(Key),
    /// Allows them again.
    Unfreeze(Key),
    /// Ends an account.
    CloseAccount(Key),
    /// Moves money.
    Transfer {
        /// The movement.
        leg: Leg,
        /// Why, in the sender's words.
        reason: Option<Box<str>>,
    },
    /// Moves money in several legs, all or none.
    TransferGroup(Vec<Leg>),
    /// A counter-transfer, once.
    Reverse {
        /// The original.
        transfer: Key,
    },
    /// Reserves money on the debit account.
    Authorize {
        /// The hold's name.
        hold: Named,
        /// What will be moved.
        leg: Leg,
        /// When the sweep may release it, Unix µs.
        expires_us: Option<i64>,
    },
    /// Posts a hold.
    Capture {
        /// The hold.
        hold: Key,
        /// How much; all that remains by default.
        amount: Option<Result<Quantity, Refusal>>,
        /// Does it release the rest?
        last: bool,
    },
    /// Frees what remains of a hold.
    Release {
        /// The hold.
        hold: Key,
    },
    /// The sweep's release of an expired hold.
    Expire {
        /// The hold.
        hold: Key,
    },
    /// Back to the payer.
    Refund {
        /// The capture or transfer.
        capture: Key,
        /// How much.
        amount: Result<Quantity, Refusal>,
    },
    /// A stake.
    Bet {
        /// The round's name.
        round: Named,
        /// The stake.
        leg: Leg,
        /// The game's name, as information.
        game: Option<Box<str>>,
    },
    /// A payment from the house.
    Win {
        /// The round's key, of its name alone.
        round: Key,
        /// The payment.
        leg: Leg,
        /// The bet that won.
        bet: Option<Key>,
    },
    /// Returns a stake.
    Rollback {
        /// The bet.
        bet: Key,
    },
    /// Completes a player's round.
    CloseRound {
        /// The round's key, of its name alone.
        round: Key,
        /// The player.
        account: Key,
    },
    /// Cancels a player's round.
    CancelRound {
        /// The round's name.
        round: Named,
        /// The player.
        account: Key,
    },
}

impl Operation {
    /// Its name.
    #[must_use]
    pub const fn verb(&self) -> Verb {
        match self {
            Self::OpenAccount { .. } => Verb::OpenAccount,
            Self::Freeze(_) => Verb::Freeze,
            Self::Unfreeze(_) => Verb::Unfreeze,
            Self::CloseAccount(_) => Verb::CloseAccount,
            Self::Transfer { .. } => Verb::Transfer,
            Self::TransferGroup(_) => Verb::TransferGroup,
            Self::Reverse { .. } => Verb::Reverse,
            Self::Authorize { .. } => Verb::Authorize,
            Self::Capture { .. } => Verb::Capture,
            Self::Release { .. } => Verb::Release,
            Self::Expire { .. } => Verb::Expire,
            Self::Refund { .. } => Verb::Refund,
            Self::Bet { .. } => Verb::Bet,
            Self::Win { .. } => Verb::Win,
            Self::Rollback { .. } => Verb::Rollback,
            Self::CloseRound { .. } => Verb::CloseRound,
            Self::CancelRound { .. } => Verb::CancelRound,
        }
    }
}

/// Why a fresh message is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// `malformed` or `unknown_op`.
    pub code: Death,
    /// A sentence for the operator.
    pub detail: String,
    /// The field at fault, nested as `legs/0/amount`.
    pub field: Option<String>,
}

/// A round's identity: of its name and its player.
#[must_use]
pub fn round_key(round: Key, account: Key) -> Key {
    Key::derive(&[
        Part::Uuid(round.into_bytes()),
        Part::Uuid(account.into_bytes()),
    ])
    .expect("two UUIDs are parts of the right size")
}

/// The key of a group's leg: the first has the operation's own, the others have inner keys, which no message can
/// have taken.
pub(crate) fn leg_key(group: Key, number: usize) -> Key {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    match number {
        0 => group,
        _ => group
            .inner("leg", number)
            .expect("the name is neither empty nor too long"),
    }
}

/// Reads an operation; `id` is the source text that its key was made of.
///
/// # Errors
/// `unknown_op`, or `malformed` with the field.
pub(crate) fn parse<'o>(
    id: &str,
    object: &'o Object<'o>,
    keys: &Keys<'o>,
    config: &Config,
) -> Result<Operation, Dead> {
    let fields = Fields::new(object, keys);
    let word = fields.text("op")?;
    let verb = Verb::of_wire(word).ok_or_else(|| Dead {
        code: Death::UnknownOp,
        detail: format!("the wallet knows no operation {word:?}"),
        field: Some("op".to_owned()),
    })?;
    field::storable("id", id)?;
    fields.time("at")?;
    Parser { fields, config }.operation(verb)
}

struct Parser<'o, 'c> {
    fields: Fields<'o, 'c>,
    config: &'c Config,
}

impl Parser<'_, '_> {
    fn operation(&self, verb: Verb) -> Result<Operation, Dead> {
        let fields = &self.fields;
        Ok(match verb {
            Verb::OpenAccount => self.open_account()?,
            Verb::Freeze => Operation::Freeze(fields.key("account")?),
            Verb::Unfreeze => Operation::Unfreeze(fields.key("account")?),
            Verb::CloseAccount => Operation::CloseAccount(fields.key("account")?),
            Verb::Transfer => Operation::Transfer {
                leg: self.leg()?,
                reason: fields.note("reason")?,
            },
            Verb::TransferGroup => self.group()?,
            Verb::Reverse => Operation::Reverse {
                transfer: fields.key("transfer")?,
            },
            Verb::Authorize => Operation::Authorize {
                hold: fields.named("hold")?,
                leg: self.leg()?,
                expires_us: fields.time("expires_at")?,
            },
            Verb::Capture => Operation::Capture {
                hold: fields.key("hold")?,
                amount: fields.written_amount()?.map(quantity),
                last: fields.flag("final")?.unwrap_or(true),
            },
            Verb::Release => Operation::Release {
                hold: fields.key("hold")?,
            },
            Verb::Refund => Operation::Refund {
                capture: fields.key("capture")?,
                amount: quantity(fields.required_amount()?),
            },
            Verb::Bet => self.bet()?,
            Verb::Win => self.win()?,
            Verb::Rollback => Operation::Rollback {
                bet: fields.key("bet")?,
            },
            Verb::CloseRound => Operation::CloseRound {
                round: fields.key("round")?,
                account: fields.key("account")?,
            },
            Verb::CancelRound => Operation::CancelRound {
                round: fields.named("round")?,
                account: fields.key("account")?,
            },
            // `of_wire` gives no such verb: only the sweep makes one.
            Verb::Expire => Operation::Expire {
                hold: fields.key("hold")?,
            },
        })
    }

    fn open_account(&self) -> Result<Operation, Dead> {
        let account = self.fields.named("account")?;
        let asset = self.fields.text("asset")?;
        let kind = self
            .fields
            .choice("kind", Kind::of_word)?
            .unwrap_or(Kind::Cash);
        let limit = self
            .fields
            .choice("limit", Limit::of_word)?
            .unwrap_or_else(|| kind.limit());
        let asset = self
            .config
            .asset(asset)
            .map(|known| known.code.clone())
            .ok_or(Refusal::AssetUnknown);
        Ok(Operation::OpenAccount {
            account,
            asset,
            kind,
            limit,
        })
    }

    /// The movement of a transfer, a hold or a leg.
    fn leg(&self) -> Result<Leg, Dead> {
        let debit = self.fields.key("debit")?;
        let credit = self.fields.key("credit")?;
        let asset = self.fields.text("asset")?;
        let written = self.fields.required_amount()?;
        let money = self
            .money(asset, written, Zero::Refused)
            .and_then(|(asset, amount)| {
                if debit == credit {
                    return Err(Refusal::SelfTransfer);
                }
                Ok(Move {
                    debit,
                    credit,
                    asset: asset.code.clone(),
                    amount,
                })
            });
        Ok(Leg {
            subject: debit,
            money,
        })
    }

    fn group(&self) -> Result<Operation, Dead> {
        let items = self.fields.list("legs")?;
        if items.is_empty() || items.len() > LEGS_MAX {
            let detail = format!("a group has 1 to {LEGS_MAX} legs, not {}", items.len());
            return Err(Dead {
                code: Death::Malformed,
                detail,
                field: Some("legs".to_owned()),
            });
        }
        let legs = items.iter().enumerate().map(|(number, item)| {
            let fields = self.fields.of_item("legs", number, item)?;
            Parser {
                fields,
                config: self.config,
            }
            .leg()
        });
        legs.collect::<Result<_, _>>().map(Operation::TransferGroup)
    }

    fn bet(&self) -> Result<Operation, Dead> {
        let round = self.fields.named("round")?;
        let account = self.fields.key("account")?;
        let asset = self.fields.text("asset")?;
        let written = self.fields.required_amount()?;
        let game = self.fields.note("game")?;
        let money = self
            .money(asset, written, Zero::Refused)
            .and_then(|(asset, amount)| {
                let house = house(asset, account)?;
                Ok(Move {
                    debit: account,
                    credit: house,
                    asset: asset.code.clone(),
                    amount,
                })
            });
        Ok(Operation::Bet {
            round,
            leg: Leg {
                subject: account,
                money,
            },
            game,
        })
    }

    fn win(&self) -> Result<Operation, Dead> {
        let round = self.fields.key("round")?;
        let account = self.fields.key("account")?;
        let asset = self.fields.text("asset")?;
        let written = self.fields.required_amount()?;
        let bet = self.fields.optional_key("bet")?;
        let money = self
            .money(asset, written, Zero::Fine)
            .and_then(|(asset, amount)| {
                let house = house(asset, account)?;
                Ok(Move {
                    debit: house,
                    credit: account,
                    asset: asset.code.clone(),
                    amount,
                })
            });
        Ok(Operation::Win {
            round,
            leg: Leg {
                subject: account,
                money,
            },
            bet,
        })
    }

    /// Asset and amount, judged in the order of the list.
    fn money(
        &self,
        asset: &str,
        written: Written<'_>,
        zero: Zero,
    ) -> Result<(&Asset, i128), Refusal> {
        let asset = self.config.asset(asset).ok_or(Refusal::AssetUnknown)?;
        let amount = match written {
            Written::Amount(text) => minor_units(text)?,
            Written::Value(text) => Decimal::parse(text)?.at_scale(asset.scale)?,
        };
        if amount < 0 || (amount == 0 && zero == Zero::Refused) {
            return Err(Refusal::AmountNotPositive);
        }
        Ok((asset, amount))
    }
}

/// An amount as its source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written<'t> {
    /// Of `amount`.
    Amount(&'t str),
    /// Of `value`.
    Value(&'t str),
}

/// Whether nothing may be moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zero {
    Fine,
    Refused,
}

fn house(asset: &Asset, player: Key) -> Result<Key, Refusal> {
    let (house, _) = asset.house.as_ref().ok_or(Refusal::AccountNotFound)?;
    if *house == player {
        Err(Refusal::SelfTransfer)
    } else {
        Ok(*house)
    }
}

/// An amount of a capture or refund: what can be said without the asset, is.
fn quantity(written: Written<'_>) -> Result<Quantity, Refusal> {
    match written {
        Written::Amount(text) => match minor_units(text)? {
            1.. => minor_units(text).map(Quantity::Minor),
            _ => Err(Refusal::AmountNotPositive),
        },
        Written::Value(text) if Decimal::parse(text)?.is_positive() => {
            Ok(Quantity::Major(text.into()))
        }
        Written::Value(_) => Err(Refusal::AmountNotPositive),
    }
}
