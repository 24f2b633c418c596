//! The rows that later decisions read, tied to the operations and entries that made them: a column that somebody
//! changed by hand shows, whatever sums it leaves alone.

use std::collections::BTreeSet;

use semel_core::rows::{Query, Value};
use semel_core::{Fault, Key};

use super::{Check, grouped, key, name_of, sum};
use crate::op::round_key;
use crate::query::view::{amount, bytes, int, text, time};
use crate::query::{Reader, key_of};
use crate::row::listed;

pub(super) async fn checks<Q: Query>(reader: &Reader<'_, Q>) -> Result<Vec<Check>, Fault> {
    let mut checks = entries(reader).await?;
    checks.extend(references(reader).await?);
    checks.push(opened(reader).await?);
    checks.push(authorized(reader).await?);
    checks.push(placed(reader).await?);
    checks.push(rounds(reader).await?);
    Ok(checks)
}

/// Each operation's entries: their sum, and whether they are the movement that its row tells.
async fn entries<Q: Query>(reader: &Reader<'_, Q>) -> Result<Vec<Check>, Fault> {
    let mut zero = Check::new("entries_of_an_operation_sum_to_zero");
    let mut told = Check::new("operations_have_the_entries_they_tell");
    grouped(reader, reader.sql.audit_operations, |rows| {
        let sum = sum(rows, 9);
        zero.that(sum == Some(0), || {
            format!("{}: sum {}", name_of(&rows[0]), super::plain(sum))
        });
        told.that(moves_what_it_tells(rows).unwrap_or(false), || {
            name_of(&rows[0])
        });
    })
    .await?;
    Ok(vec![zero, told])
}

/// Columns: key, id, op, debit, credit, amount, asset, tombstoned, and an entry's account, amount and asset.
fn moves_what_it_tells(rows: &[Vec<Value>]) -> Option<bool> {
    let row = &rows[0];
    let (op, tombstoned) = (text(&row[2])?, row[7] != Value::Null);
    let entries: Vec<&Vec<Value>> = rows.iter().filter(|row| row[8] != Value::Null).collect();
    let moves = match op.as_str() {
        "transfer" | "transfer_group" | "reverse" | "capture" | "refund" | "bet" | "win" => true,
        "rollback" => !tombstoned,
        "cancel_round" => row[5] != Value::Null,
        _ => false,
    };
    if !moves {
        return Some(entries.is_empty());
    }
    let moved = amount(&row[5])?;
    if moved == 0 {
        return Some(entries.is_empty());
    }
    let (paid, got): (Vec<&Vec<Value>>, Vec<&Vec<Value>>) = entries
        .iter()
        .partition(|entry| amount(&entry[9]).is_some_and(|amount| amount < 0));
    let total = |side: &[&Vec<Value>]| {
        side.iter()
            .try_fold(0_i128, |sum, entry| sum.checked_add(amount(&entry[9])?))
    };
    // A cancelled round has a movement for each house; its row names the last one.
    let pairs = paid.len() == got.len() && (paid.len() == 1 || op == "cancel_round");
    Some(
        pairs
            && entries.iter().all(|entry| entry[10] == row[6])
            && got.iter().all(|entry| entry[8] == row[4])
            && paid.iter().any(|entry| entry[8] == row[3])
            && total(&got) == Some(moved)
            && total(&paid) == Some(-moved),
    )
}

/// What an operation refers to is there, and its reply is what its account's entries say.
async fn references<Q: Query>(reader: &Reader<'_, Q>) -> Result<Vec<Check>, Fault> {
    let mut there = Check::new("operations_refer_to_what_is_there");
    let mut replies = Check::new("replies_tell_balances_of_entries");
    reader
        .each(reader.sql.audit_references, &[], |row| {
            there.that(refers(row).unwrap_or(false), || name_of(row));
            replies.that(replies_truly(row), || {
                format!(
                    "{}: balance {} at version {}",
                    name_of(row),
                    super::plain(amount(&row[14])),
                    super::plain(int(&row[15]))
                )
            });
            Ok(true)
        })
        .await?;
    Ok(vec![there, replies])
}

/// Columns: key, id, op, leg, reference; the account, hold, bet and round that it is the key of, the word of the operation
/// that it is the key of; the bet of the own key; the named bet and its round.
fn refers(row: &[Value]) -> Option<bool> {
    let is = |column: usize| row[column] != Value::Null;
    let parent = text(&row[9]);
    let word = |words: &[&str]| {
        parent
            .as_deref()
            .is_some_and(|parent| words.contains(&parent))
    };
    let leg = int(&row[3])?;
    let right = match text(&row[2])?.as_str() {
        "open_account" | "freeze" | "unfreeze" | "close_account" => is(5),
        "transfer" => !is(4),
        "transfer_group" if leg == 0 => !is(4),
        "transfer_group" => word(&["transfer_group"]),
        "reverse" => word(&["transfer"]),
        "refund" => word(&["transfer", "capture"]),
        "authorize" | "capture" | "release" | "expire" => is(6),
        "bet" => is(8) && is(10),
        "win" => is(8) && (!is(11) || row[12] == row[4]),
        "rollback" => is(7),
        "close_round" | "cancel_round" => is(8),
        _ => false,
    };
    let leg_fits = leg == 0 || text(&row[2])? == "transfer_group";
    Some(right && leg_fits)
}

/// Columns from 13: account, balance and version of the reply, the balance after that entry, what was available, the
/// operation's debit and credit, and the player of the round that it refers to.
fn replies_truly(row: &[Value]) -> bool {
    let (balance, version) = (amount(&row[14]), int(&row[15]));
    if row[13] == Value::Null {
        return balance.is_none() && version.is_none() && row[17] == Value::Null;
    }
    let stood = if version == Some(0) {
        Some(0)
    } else {
        amount(&row[16])
    };
    // What is available lies below the balance, as holds reserve and never lend.
    let available = row[17] == Value::Null
        || amount(&row[17])
            .zip(balance)
            .is_some_and(|(available, balance)| available < balance);
    let subject = match text(&row[2]).as_deref() {
        Some("open_account" | "freeze" | "unfreeze" | "close_account") => 4,
        Some("reverse" | "refund" | "rollback" | "win") => 19,
        Some("close_round" | "cancel_round") => 20,
        _ => 18,
    };
    balance.is_some() && balance == stood && available && row[13] == row[subject]
}

async fn opened<Q: Query>(reader: &Reader<'_, Q>) -> Result<Check, Fault> {
    let mut check = Check::new("accounts_are_as_they_were_opened");
    grouped(reader, reader.sql.audit_opened, |rows| {
        check.that(is_as_opened(rows).unwrap_or(false), || name_of(&rows[0]));
    })
    .await?;
    Ok(check)
}

/// Columns: key, id, asset, kind, limit, status; an operation's word, asset and note.
fn is_as_opened(rows: &[Vec<Value>]) -> Option<bool> {
    let account = &rows[0];
    let of = |word: &'static str| {
        rows.iter()
            .filter(move |row| text(&row[6]).as_deref() == Some(word))
    };
    let opening = of("open_account").next()?;
    let (kind, limit) = (text(&account[3])?, text(&account[4])?);
    let frozen = match of("freeze").count().checked_sub(of("unfreeze").count())? {
        0 => false,
        1 => true,
        _ => return Some(false),
    };
    let status = match (of("close_account").count(), frozen) {
        (0, false) => "active",
        (0, true) => "frozen",
        (1, _) => "closed",
        _ => return Some(false),
    };
    Some(
        of("open_account").count() == 1
            && key(&account[0]) == key_of(&text(&account[1])?)
            && account[2] == opening[7]
            && text(&opening[8])? == format!("{kind} {limit}")
            && text(&account[5])? == status,
    )
}

/// Columns: key, id, debit, credit, asset, amount, time of expiry; the same of the operation, with the time in its note.
async fn authorized<Q: Query>(reader: &Reader<'_, Q>) -> Result<Check, Fault> {
    let mut check = Check::new("holds_are_as_they_were_authorized");
    grouped(reader, reader.sql.audit_authorized, |rows| {
        let hold = &rows[0];
        let due = time(&hold[6]).map(|us| us.to_string());
        let same = rows.len() == 1
            && key(&hold[0]) == text(&hold[1]).and_then(|id| key_of(&id))
            && hold[2..5] == hold[7..10]
            && amount(&hold[5]).is_some()
            && amount(&hold[5]) == amount(&hold[10])
            && due == text(&hold[11]);
        check.that(same, || name_of(hold));
    })
    .await?;
    Ok(check)
}

async fn placed<Q: Query>(reader: &Reader<'_, Q>) -> Result<Check, Fault> {
    let mut check = Check::new("bets_are_as_they_were_placed");
    reader
        .each(reader.sql.audit_placed, &[], |row| {
            check.that(is_as_placed(row).unwrap_or(false), || name_of(row));
            Ok(true)
        })
        .await?;
    Ok(check)
}

/// Columns: key, id, status, round, account, house, amount; reference, debit, credit and amount of the bet's operation;
/// word, reference and named bet of the one that ended it.
fn is_as_placed(row: &[Value]) -> Option<bool> {
    let status = text(&row[2])?;
    let ended = match status.as_str() {
        "open" => row[11] == Value::Null,
        "won" => row[12] == row[3] && row[13] == row[0],
        "rolled_back" if text(&row[11])? == "cancel_round" => row[12] == row[3],
        "rolled_back" | "void" => row[12] == row[0],
        _ => false,
    };
    let placed = if status == "void" {
        row[3..7].iter().all(|value| *value == Value::Null)
    } else {
        row[3] != Value::Null && row[3..6] == row[7..10] && amount(&row[6])? == amount(&row[10])?
    };
    Some(ended && placed)
}

/// A round lists every bet of its own once, and stands where its operations left it.
async fn rounds<Q: Query>(reader: &Reader<'_, Q>) -> Result<Check, Fault> {
    let mut check = Check::new("rounds_are_as_their_operations_left_them");
    grouped(reader, reader.sql.audit_lists, |rows| {
        check.that(lists_its_bets(rows).unwrap_or(false), || name_of(&rows[0]));
    })
    .await?;
    grouped(reader, reader.sql.audit_ends, |rows| {
        check.that(is_as_ended(rows).unwrap_or(false), || name_of(&rows[0]));
    })
    .await?;
    Ok(check)
}

/// Columns: key, id, key of the name, account, latest bets, the bet that lists the ones before; and a bet's key, the
/// bets that it lists, and the bet that lists the ones before those.
fn lists_its_bets(rows: &[Vec<Value>]) -> Option<bool> {
    let round = &rows[0];
    let name = key(&round[2])?;
    let own = Some(name) == key_of(&text(&round[1])?)
        && key(&round[0])? == round_key(name, key(&round[3])?);
    let bet = |wanted: Key| rows.iter().find(|row| key(&row[6]) == Some(wanted));
    let mut found: Vec<Key> = listed(&bytes(&round[4])).collect();
    let mut chain = key(&round[5]);
    let mut chained = 0;
    while let Some(lister) = chain {
        let row = bet(lister)?;
        found.push(lister);
        found.extend(listed(&bytes(&row[7])));
        chain = key(&row[8]);
        chained += 1;
        if found.len() > rows.len() {
            return Some(false);
        }
    }
    let bets: BTreeSet<Key> = rows.iter().filter_map(|row| key(&row[6])).collect();
    let lists = |row: &&Vec<Value>| row[7] != Value::Null || row[8] != Value::Null;
    let once = found.len() == bets.len() && rows.iter().filter(lists).count() == chained;
    Some(own && once && found.into_iter().collect::<BTreeSet<Key>>() == bets)
}

/// Columns: key, id, status, ended by; and key, word and tombstone of an operation that ended it.
fn is_as_ended(rows: &[Vec<Value>]) -> Option<bool> {
    let round = &rows[0];
    if rows.len() > 1 {
        return Some(false);
    }
    let (word, tombstone) = (text(&round[5]), round[6] != Value::Null);
    let status = match (word.as_deref(), tombstone) {
        (None, _) => "open",
        (Some("close_round"), _) => "completed",
        (Some(_), false) => "cancelled",
        (Some(_), true) => "void",
    };
    Some(text(&round[2])? == status && round[3] == round[4])
}
