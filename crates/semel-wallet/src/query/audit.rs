//! The invariants, checked over what the database holds. Every check reads its rows once, in an order that
//! lets it remember one account, hold or bet at a time; sums are made here, in 128 bits, so that no
//! database's arithmetic is trusted.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::ops::Add;

use semel_core::rows::{Query, Value};
use semel_core::{Fault, Key};
use serde::Serialize;

use super::Reader;
use super::view::{amount, int, key, text};

mod ties;

/// The most examples that a check tells.
const EXAMPLES_MAX: usize = 10;

/// One invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name, a sentence.
    pub name: &'static str,
    /// Does it hold?
    pub ok: bool,
    /// How many things were looked at.
    pub checked: u64,
    /// How many of them violate it.
    pub violations: u64,
    /// The first of them.
    pub examples: Vec<String>,
}

impl Check {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            ok: true,
            checked: 0,
            violations: 0,
            examples: Vec::new(),
        }
    }

    fn that(&mut self, holds: bool, example: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.violated(example());
        }
    }

    fn violated(&mut self, example: String) {
        self.ok = false;
        self.violations += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(example);
        }
    }
}

pub(super) async fn run<Q: Query>(reader: &Reader<'_, Q>) -> Result<Vec<Check>, Fault> {
    let mut checks = accounts(reader).await?;
    checks.push(strays(reader).await?);
    checks.push(
        totals(
            reader,
            "pending_is_the_sum_of_open_holds",
            reader.sql.audit_pending,
        )
        .await?,
    );
    checks.push(holds(reader).await?);
    checks.push(refunds(reader).await?);
    checks.push(reversals(reader).await?);
    checks.extend(bets(reader).await?);
    checks.push(
        totals(
            reader,
            "staked_is_the_sum_of_standing_bets",
            reader.sql.audit_staked,
        )
        .await?,
    );
    checks.push(totals(reader, "paid_is_the_sum_of_wins", reader.sql.audit_paid).await?);
    checks.extend(ties::checks(reader).await?);
    checks.extend(keys(reader).await?);
    Ok(checks)
}

/// Rows of one thing at a time: calls `end` with the rows of each.
async fn grouped<Q: Query>(
    reader: &Reader<'_, Q>,
    sql: &'static str,
    mut end: impl FnMut(&[Vec<Value>]) + Send,
) -> Result<(), Fault> {
    let mut group: Vec<Vec<Value>> = Vec::new();
    reader
        .each(sql, &[], |values| {
            if group.first().is_some_and(|first| first[0] != values[0]) {
                end(&group);
                group.clear();
            }
            group.push(values.to_vec());
            Ok(true)
        })
        .await?;
    if !group.is_empty() {
        end(&group);
    }
    Ok(())
}

/// A value as people read it.
fn plain(value: Option<impl Display>) -> String {
    value.map_or_else(|| "unreadable".to_owned(), |value| value.to_string())
}

fn name_of(values: &[Value]) -> String {
    text(&values[1])
        .unwrap_or_else(|| key(&values[0]).map_or_else(String::new, |key| key.to_string()))
}

/// The account in hand: its stored counters, and what its entries make of them.
struct Sum {
    key: Value,
    name: String,
    posted: Option<i128>,
    version: Option<i64>,
    total: Option<i128>,
    entries: i64,
    gap: bool,
    broken: bool,
}

impl Sum {
    fn new(values: &[Value]) -> Self {
        Self {
            key: values[0].clone(),
            name: name_of(values),
            posted: amount(&values[4]),
            version: int(&values[6]),
            total: Some(0),
            entries: 0,
            gap: false,
            broken: false,
        }
    }

    fn entry(&mut self, values: &[Value]) {
        self.entries += 1;
        self.gap |= int(&values[7]) != Some(self.entries);
        self.total = self
            .total
            .zip(amount(&values[8]))
            .and_then(|(sum, entry)| sum.checked_add(entry));
        self.broken |= amount(&values[9]) != self.total;
    }
}

/// A sum over all accounts, which may leave 128 bits on its way and come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Total {
    low: i128,
    /// How often it went around: the sum is `low` + 2^128 · `turns`.
    turns: i64,
}

impl Add<i128> for Total {
    type Output = Self;

    fn add(self, amount: i128) -> Self {
        let (low, over) = self.low.overflowing_add(amount);
        let turn = i64::from(over) * if amount > 0 { 1 } else { -1 };
        Self {
            low,
            turns: self.turns + turn,
        }
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.turns {
            0 => self.low.fmt(f),
            turns => write!(f, "{} + {turns} · 2^128", self.low),
        }
    }
}

/// Everything that an account's entries tell.
struct Accounts {
    zero: BTreeMap<String, Option<Total>>,
    balance: Check,
    versions: Check,
    chain: Check,
    limits: Check,
    open: Option<Sum>,
}

impl Accounts {
    fn row(&mut self, values: &[Value]) {
        if self.open.as_ref().is_none_or(|open| open.key != values[0]) {
            self.end();
            self.limit(values);
            self.open = Some(Sum::new(values));
        }
        if int(&values[7]).is_none() {
            return;
        }
        if let Some(open) = &mut self.open {
            open.entry(values);
        }
        let sum = self
            .zero
            .entry(text(&values[2]).unwrap_or_default())
            .or_insert_with(|| Some(Total::default()));
        *sum = sum.zip(amount(&values[8])).map(|(sum, entry)| sum + entry);
    }

    fn limit(&mut self, values: &[Value]) {
        let unlimited = text(&values[3]).as_deref() == Some("none");
        let (posted, pending) = (amount(&values[4]), amount(&values[5]));
        let available = posted
            .zip(pending)
            .and_then(|(posted, pending)| posted.checked_sub(pending));
        self.limits.that(
            unlimited || available.is_some_and(|available| available >= 0),
            || {
                let (posted, pending) = (plain(posted), plain(pending));
                format!("{}: posted {posted}, pending {pending}", name_of(values))
            },
        );
    }

    fn end(&mut self) {
        let Some(sum) = self.open.take() else { return };
        let Sum {
            name,
            posted,
            version,
            total,
            entries,
            ..
        } = &sum;
        self.balance.that(posted == total, || {
            format!(
                "{name}: posted {}, entries {}",
                plain(*posted),
                plain(*total)
            )
        });
        self.versions
            .that(!sum.gap && *version == Some(*entries), || {
                format!(
                    "{name}: version {}, {entries} entries{}",
                    plain(*version),
                    if sum.gap { " with gaps" } else { "" }
                )
            });
        self.chain.that(!sum.broken, || {
            format!("{name}: a balance_after is not the sum so far")
        });
    }

    fn checks(mut self) -> Vec<Check> {
        self.end();
        let mut zero = Check::new("entries_sum_to_zero_per_asset");
        for (asset, sum) in &self.zero {
            zero.that(*sum == Some(Total::default()), || {
                format!("{asset}: sum {}", plain(*sum))
            });
        }
        vec![zero, self.balance, self.versions, self.chain, self.limits]
    }
}

async fn accounts<Q: Query>(reader: &Reader<'_, Q>) -> Result<Vec<Check>, Fault> {
    let mut accounts = Accounts {
        zero: BTreeMap::new(),
        balance: Check::new("balance_is_the_sum_of_entries"),
        versions: Check::new("versions_have_no_gaps"),
        chain: Check::new("balances_after_make_a_chain"),
        limits: Check::new("limits_hold"),
        open: None,
    };
    reader
        .each(reader.sql.audit_accounts, &[], |values| {
            accounts.row(values);
            Ok(true)
        })
        .await?;
    Ok(accounts.checks())
}

async fn strays<Q: Query>(reader: &Reader<'_, Q>) -> Result<Check, Fault> {
    let mut check = Check::new("entries_have_an_account_and_an_operation");
    reader
        .each(reader.sql.audit_strays, &[], |values| {
            check.violated(format!(
                "version {} of operation {}",
                plain(int(&values[1])),
                plain(key(&values[0]))
            ));
            Ok(true)
        })
        .await?;
    check.checked = counts(reader).await?[2];
    Ok(check)
}

/// The sum of a column, without its NULLs.
fn sum(rows: &[Vec<Value>], column: usize) -> Option<i128> {
    let known = rows
        .iter()
        .map(|row| &row[column])
        .filter(|value| **value != Value::Null);
    known
        .map(amount)
        .try_fold(0_i128, |sum, amount| sum.checked_add(amount?))
}

async fn holds<Q: Query>(reader: &Reader<'_, Q>) -> Result<Check, Fault> {
    let mut check = Check::new("a_hold_resolves_at_most_once");
    grouped(reader, reader.sql.audit_holds, |rows| {
        check.that(hold_is_sound(rows).unwrap_or(false), || name_of(&rows[0]));
    })
    .await?;
    Ok(check)
}

/// Columns: key, id, amount, captured, remaining, status, and an operation's word and amount.
fn hold_is_sound(rows: &[Vec<Value>]) -> Option<bool> {
    let hold = &rows[0];
    let (authorized, captured, remaining) =
        (amount(&hold[2])?, amount(&hold[3])?, amount(&hold[4])?);
    let of = |word: &str| -> Vec<Vec<Value>> {
        rows.iter()
            .filter(|row| text(&row[6]).as_deref() == Some(word))
            .cloned()
            .collect()
    };
    let (captures, releases, expiries) = (of("capture"), of("release"), of("expire"));
    let freed = sum(&releases, 7)?.checked_add(sum(&expiries, 7)?)?;
    let is_whole = |rest| captured.checked_add(rest) == Some(authorized);
    let ends = match text(&hold[5])?.as_str() {
        "open" => releases.is_empty() && expiries.is_empty() && is_whole(remaining),
        "captured" => {
            releases.is_empty() && expiries.is_empty() && remaining == 0 && !captures.is_empty()
        }
        "released" => {
            releases.len() == 1 && expiries.is_empty() && remaining == 0 && is_whole(freed)
        }
        "expired" => {
            expiries.len() == 1 && releases.is_empty() && remaining == 0 && is_whole(freed)
        }
        _ => false,
    };
    Some(ends && sum(&captures, 7)? == captured && captured <= authorized)
}

async fn refunds<Q: Query>(reader: &Reader<'_, Q>) -> Result<Check, Fault> {
    let mut check = Check::new("refunds_are_within_captures");
    grouped(reader, reader.sql.audit_refunds, |rows| {
        let (captured, stored, refunded) = (amount(&rows[0][2]), amount(&rows[0][3]), sum(rows, 4));
        check.that(stored == refunded && captured >= refunded, || {
            format!(
                "{}: captured {}, refunded {}, refunds {}",
                name_of(&rows[0]),
                plain(captured),
                plain(stored.or(Some(0))),
                plain(refunded)
            )
        });
    })
    .await?;
    Ok(check)
}

async fn reversals<Q: Query>(reader: &Reader<'_, Q>) -> Result<Check, Fault> {
    let mut check = Check::new("a_transfer_is_reversed_at_most_once");
    grouped(reader, reader.sql.audit_reversals, |rows| {
        let once =
            rows.len() == 1 && key(&rows[0][2]).is_some() && key(&rows[0][2]) == key(&rows[0][3]);
        check.that(once, || name_of(&rows[0]));
    })
    .await?;
    Ok(check)
}

/// Columns: key, status, ended by, own operation's word, a rollback's key, the word of what ended it.
async fn bets<Q: Query>(reader: &Reader<'_, Q>) -> Result<Vec<Check>, Fault> {
    let mut once = Check::new("a_bet_ends_once");
    let mut tombstones = Check::new("a_tombstoned_bet_is_never_applied");
    grouped(reader, reader.sql.audit_bets, |rows| {
        let bet = &rows[0];
        let word = |column: usize| text(&bet[column]);
        let (status, ended_by, rollback) = (word(1), key(&bet[2]), key(&bet[4]));
        let ends = match (status.as_deref(), word(5).as_deref()) {
            (Some("open"), None) | (Some("won"), Some("win")) => rollback.is_none(),
            (Some("rolled_back"), Some("rollback")) => rows.len() == 1 && rollback == ended_by,
            (Some("rolled_back"), Some("cancel_round")) => rollback.is_none(),
            (Some("void"), Some("rollback")) => rollback.is_none(),
            _ => false,
        };
        let example = || key(&bet[0]).map_or_else(String::new, |key: Key| key.to_string());
        once.that(ends, example);
        let placed = word(3).as_deref() == Some("bet");
        tombstones.that(placed == (status.as_deref() != Some("void")), example);
    })
    .await?;
    Ok(vec![once, tombstones])
}

/// Compares the stored total in the third column with the sum of the fourth, one thing at a time.
async fn totals<Q: Query>(
    reader: &Reader<'_, Q>,
    name: &'static str,
    sql: &'static str,
) -> Result<Check, Fault> {
    let mut check = Check::new(name);
    let mut open: Option<(Vec<Value>, Option<i128>)> = None;
    let mut end = |open: Option<(Vec<Value>, Option<i128>)>| {
        let Some((thing, sum)) = open else { return };
        let stored = amount(&thing[2]);
        check.that(stored.is_some() && stored == sum, || {
            format!(
                "{}: {}, rows {}",
                name_of(&thing),
                plain(stored),
                plain(sum)
            )
        });
    };
    reader
        .each(sql, &[], |values| {
            if open.as_ref().is_none_or(|(thing, _)| thing[0] != values[0]) {
                end(open.replace((values[..3].to_vec(), Some(0))));
            }
            if let (Some((_, sum)), false) = (&mut open, values[3] == Value::Null) {
                *sum = sum
                    .zip(amount(&values[3]))
                    .and_then(|(sum, row)| sum.checked_add(row));
            }
            Ok(true)
        })
        .await?;
    end(open);
    Ok(check)
}

/// (consumer, key) applied ↔ exactly one operation: its key is unique, so what is left is that neither side
/// is alone.
async fn keys<Q: Query>(reader: &Reader<'_, Q>) -> Result<Vec<Check>, Fault> {
    let [operations, applied, _] = counts(reader).await?;
    let mut effects = Check::new("every_effect_has_an_applied_key");
    let mut keys = Check::new("every_applied_key_has_an_effect");
    for (check, sql) in [
        (&mut effects, reader.sql.audit_effects),
        (&mut keys, reader.sql.audit_keys),
    ] {
        reader
            .each(sql, &[], |values| {
                check.violated(format!(
                    "{} ({})",
                    key(&values[0]).map_or_else(String::new, |k| k.to_string()),
                    name_of(values)
                ));
                Ok(true)
            })
            .await?;
    }
    (effects.checked, keys.checked) = (operations, applied);
    Ok(vec![effects, keys])
}

async fn counts<Q: Query>(reader: &Reader<'_, Q>) -> Result<[u64; 3], Fault> {
    let mut counts = [0; 3];
    reader
        .each(reader.sql.audit_counts, &[], |values| {
            for (count, value) in counts.iter_mut().zip(values) {
                *count = int(value)
                    .and_then(|count| u64::try_from(count).ok())
                    .unwrap_or(0);
            }
            Ok(false)
        })
        .await?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_leaves_128_bits_on_its_way_comes_back_exactly() {
        let sum = |amounts: &[i128]| amounts.iter().fold(Total::default(), |sum, one| sum + *one);
        let most = i128::MAX;
        assert_eq!(sum(&[most, most, -most, -most]), Total::default());
        assert_eq!(
            sum(&[-most, -most, -most, most, most, most]),
            Total::default()
        );
        assert_eq!(sum(&[most, most, -most]), sum(&[most]));
        // What is zero in 128 bits alone is none.
        assert_ne!(sum(&[i128::MIN, i128::MIN]), Total::default());
        assert_eq!(sum(&[i128::MIN, i128::MIN]).to_string(), "0 + -1 · 2^128");
    }
}
