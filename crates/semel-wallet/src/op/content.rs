//! What of an operation is bound to its key: its known fields without `at`, normalised first. Ids and
//! references become keys, `amount` and `value` become minor units, absent optional fields their default;
//! what cannot be normalised keeps its source text.

use std::collections::BTreeSet;

use semel_core::fingerprint::{Canon, Content, FieldSums};
use semel_core::json::Object;
use semel_core::{Fingerprint, Json, Key, Scheme};

use super::{Keys, Verb};
use crate::amount::{Decimal, minor_units};
use crate::config::Config;
use crate::row::Kind;

/// Number of this way to normalise.
pub(crate) const SCHEME: Scheme = Scheme::handlers_own(16);

/// How a field is normalised.
#[derive(Clone, Copy)]
enum Rule {
    /// To the key of an id or reference.
    Key,
    /// `amount` and `value`, to minor units.
    Amount,
    /// Words and free text stay as they are.
    Plain,
    /// `kind` with its default.
    Kind,
    /// `limit` with the default of the kind.
    Limit,
    /// `final` with its default.
    Final,
    /// The legs of a group.
    Legs,
}

/// The scale of an asset, where it is known.
type Scales<'s> = &'s dyn Fn(&str) -> Option<u8>;

type Spec = &'static [(&'static str, Rule)];

const LEG: Spec = &[
    ("amount", Rule::Amount),
    ("asset", Rule::Plain),
    ("credit", Rule::Key),
    ("debit", Rule::Key),
];

/// The known fields of an operation beside `at`, sorted by name.
const fn spec(verb: Verb) -> Spec {
    use Rule::{Amount, Final, Key, Kind, Legs, Limit, Plain};
    const ID: (&str, Rule) = ("id", Key);
    const OP: (&str, Rule) = ("op", Plain);
    const AMOUNT: (&str, Rule) = ("amount", Amount);
    const ASSET: (&str, Rule) = ("asset", Plain);
    const ACCOUNT: (&str, Rule) = ("account", Key);
    const HOLD: (&str, Rule) = ("hold", Key);
    const ROUND: (&str, Rule) = ("round", Key);
    match verb {
        Verb::OpenAccount => &[ACCOUNT, ASSET, ID, ("kind", Kind), ("limit", Limit), OP],
        Verb::Freeze | Verb::Unfreeze | Verb::CloseAccount => &[ACCOUNT, ID, OP],
        Verb::Transfer => &[
            AMOUNT,
            ASSET,
            ("credit", Key),
            ("debit", Key),
            ID,
            OP,
            ("reason", Plain),
        ],
        Verb::TransferGroup => &[ID, ("legs", Legs), OP],
        Verb::Reverse => &[ID, OP, ("transfer", Key)],
        Verb::Authorize => &[
            AMOUNT,
            ASSET,
            ("credit", Key),
            ("debit", Key),
            ("expires_at", Plain),
            HOLD,
            ID,
            OP,
        ],
        Verb::Capture => &[AMOUNT, ("final", Final), HOLD, ID, OP],
        Verb::Release | Verb::Expire => &[HOLD, ID, OP],
        Verb::Refund => &[AMOUNT, ("capture", Key), ID, OP],
        Verb::Bet => &[ACCOUNT, AMOUNT, ASSET, ("game", Plain), ID, OP, ROUND],
        Verb::Win => &[ACCOUNT, AMOUNT, ASSET, ("bet", Key), ID, OP, ROUND],
        Verb::Rollback => &[("bet", Key), ID, OP],
        Verb::CloseRound | Verb::CancelRound => &[ACCOUNT, ID, OP, ROUND],
    }
}

/// The names of an operation's known fields beside `at`; `amount` stands for `value` too.
pub(crate) fn known_fields(verb: Verb) -> impl Iterator<Item = &'static str> {
    spec(verb).iter().map(|(name, _)| *name)
}

/// The content to fingerprint. Of an unknown operation every field but `at` counts.
pub(crate) fn content<'a>(object: &'a Object<'a>, keys: &Keys<'a>, config: &Config) -> Content<'a> {
    by_scales(object, keys, &|asset| config.scale(asset))
}

/// Whether the object was bound to this fingerprint when one of its assets was not declared yet, so that a `value` of it
/// was text (and the operation `asset_unknown`), or none of them.
pub(crate) fn was_bound_to(first: Fingerprint, object: &Object<'_>, config: &Config) -> bool {
    let of = |object: &Object<'_>| get(object, "asset").and_then(Json::text).map(str::to_owned);
    let legs = get(object, "legs")
        .and_then(Json::array)
        .unwrap_or_default();
    let named = legs.iter().filter_map(|leg| of(leg.object()?));
    let assets: BTreeSet<String> = of(object).into_iter().chain(named).collect();
    let unknown = |later: &dyn Fn(&str) -> bool| {
        let scales = |asset: &str| config.scale(asset).filter(|_| !later(asset));
        by_scales(object, &Keys::default(), &scales).finish().0 == first
    };
    let mut known = assets.iter().filter(|asset| config.scale(asset).is_some());
    known.any(|later| unknown(&|asset| asset == later)) || unknown(&|_| true)
}

fn by_scales<'a>(object: &'a Object<'a>, keys: &Keys<'a>, scales: Scales<'_>) -> Content<'a> {
    match get(object, "op")
        .and_then(Json::text)
        .and_then(Verb::of_wire)
    {
        Some(verb) => known(object, spec(verb), keys, scales),
        None => object
            .iter()
            .filter(|(name, _)| *name != "at")
            .fold(Content::new(), |content, (name, value)| {
                content.field(name, Canon::Json(value))
            }),
    }
}

/// The field, as the payload names it, by which the content differs from what was stored.
pub(crate) fn differing(
    object: &Object<'_>,
    config: &Config,
    stored: &FieldSums,
) -> Option<String> {
    let field = content(object, &Keys::default(), config).differing(stored)?;
    Some(as_written(object, field))
}

/// `amount` is `value` where the payload says so.
fn as_written(object: &Object<'_>, field: String) -> String {
    let Some(before) = field.strip_suffix("amount") else {
        return field;
    };
    let holder = match before
        .strip_prefix("legs/")
        .and_then(|rest| rest.strip_suffix('/'))
    {
        Some(number) => leg_at(object, number),
        None => Some(object),
    };
    let by_value = holder
        .is_some_and(|holder| get(holder, "amount").is_none() && get(holder, "value").is_some());
    if by_value {
        format!("{before}value")
    } else {
        field
    }
}

fn leg_at<'a>(object: &'a Object<'a>, number: &str) -> Option<&'a Object<'a>> {
    get(object, "legs")?
        .array()?
        .get(number.parse::<usize>().ok()?)?
        .object()
}

fn get<'a>(object: &'a Object<'a>, name: &str) -> Option<&'a Json<'a>> {
    object.get(name).filter(|value| !value.is_null())
}

fn known<'a>(
    object: &'a Object<'a>,
    spec: Spec,
    keys: &Keys<'a>,
    scales: Scales<'_>,
) -> Content<'a> {
    spec.iter().fold(Content::new(), |content, (name, rule)| {
        let value = get(object, name);
        match rule {
            Rule::Amount => amount(object, scales, content),
            Rule::Key => content.field_if(
                name,
                value.map(|v| keys.of(v).map_or(Canon::Json(v), Canon::Key)),
            ),
            Rule::Plain => content.field_if(name, value.map(plain)),
            Rule::Kind => content.field(
                name,
                value.map_or(Canon::Text(Kind::Cash.as_str()), Canon::Json),
            ),
            Rule::Limit => content.field(
                name,
                value.map_or_else(|| default_limit(object), Canon::Json),
            ),
            Rule::Final => content.field(name, value.map_or(Canon::Bool(true), Canon::Json)),
            Rule::Legs => content.field_if(name, value.map(|v| legs(v, keys, scales))),
        }
    })
}

/// A number is its source text here too, so that a game `5` is the game `"5"`.
fn plain<'a>(value: &'a Json<'a>) -> Canon<'a> {
    value
        .text_or_number()
        .map_or(Canon::Json(value), Canon::Text)
}

fn default_limit<'a>(object: &Object<'_>) -> Canon<'a> {
    let kind = get(object, "kind")
        .and_then(Json::text)
        .and_then(Kind::of_word)
        .unwrap_or(Kind::Cash);
    Canon::Text(kind.limit().as_str())
}

fn legs<'a>(value: &'a Json<'a>, keys: &Keys<'a>, scales: Scales<'_>) -> Canon<'a> {
    let items = value
        .array()
        .and_then(|items| items.iter().map(Json::object).collect::<Option<Vec<_>>>());
    match items {
        Some(items) => Canon::List(
            items
                .into_iter()
                .map(|leg| known(leg, LEG, keys, scales))
                .collect(),
        ),
        None => Canon::Json(value),
    }
}

fn amount<'a>(object: &'a Object<'a>, scales: Scales<'_>, content: Content<'a>) -> Content<'a> {
    match (get(object, "amount"), get(object, "value")) {
        (Some(amount), None) => content.field("amount", minor(amount)),
        (None, Some(value)) => match exact(object, value, scales) {
            Some(units) => content.field("amount", Canon::Integer(units)),
            None => content.field("value", plain(value)),
        },
        // Malformed, and so different from anything that was ever applied.
        (Some(amount), Some(value)) => content
            .field("amount", minor(amount))
            .field("value", plain(value)),
        (None, None) => content,
    }
}

fn minor<'a>(amount: &'a Json<'a>) -> Canon<'a> {
    let units = amount
        .text_or_number()
        .and_then(|text| minor_units(text).ok());
    units.map_or_else(|| plain(amount), Canon::Integer)
}

fn exact(object: &Object<'_>, value: &Json<'_>, scales: Scales<'_>) -> Option<i128> {
    let scale = scales(get(object, "asset")?.text()?)?;
    Decimal::parse(value.text_or_number()?)
        .ok()?
        .at_scale(scale)
        .ok()
}

/// The wallet's own lane of a message: `round`, else `hold`, else `account`, else `debit` (of a group's
/// first leg), else the id it refers to. Messages of one number stay in order.
pub(crate) fn lane<'o>(object: &'o Object<'o>, keys: &Keys<'o>) -> Option<u64> {
    const NAMES: [&str; 7] = [
        "round", "hold", "account", "debit", "transfer", "capture", "bet",
    ];
    let of = |name: &str| match (object.get(name), name) {
        (None, "debit") => object
            .get("legs")?
            .array()?
            .first()?
            .get("debit")
            .and_then(|id| keys.of(id)),
        (value, _) => value.and_then(|id| keys.of(id)),
    };
    NAMES.iter().find_map(|name| of(name)).map(spread)
}

/// A number of a key that differs in all bits also where keys start with a time.
fn spread(key: Key) -> u64 {
    let (high, low) = key.as_bytes().split_at(8);
    let half = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    (half(high) ^ half(low).rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
