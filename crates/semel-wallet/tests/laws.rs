//! What must hold for every stream of operations: money is conserved, limits hold, and the engine's staged
//! path over tables says and stores what the model does.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use semel_core::Key;
use semel_wallet::row::{Account, BetStatus, Entry, HoldStatus, Limit, OperationRow, Row};
use semel_wallet::{Config, LateWin, Model, Verb};
use support::memory::{OnEngine, Writers};
use support::stream::{OPENED, stream};
use support::{Consumer, InModel};

fn config() -> Config {
    Config::new([("EUR", 2), ("JPY", 0)])
        .unwrap()
        .house("house")
        .unwrap()
}

/// The rows of a model, in the order of [`semel_wallet::row::TABLES`].
fn rows_of(model: &Model) -> Vec<Row> {
    let entries = model.entries().iter().map(|entry| Row::Entry(*entry));
    let mut rows: Vec<Row> = Vec::new();
    rows.extend(model.accounts().cloned().map(Row::Account));
    rows.extend(
        model
            .operations()
            .cloned()
            .map(Box::new)
            .map(Row::Operation),
    );
    rows.extend(model.holds().cloned().map(Box::new).map(Row::Hold));
    rows.extend(model.bets().cloned().map(Box::new).map(Row::Bet));
    rows.extend(model.rounds().cloned().map(Box::new).map(Row::Round));
    rows.extend(entries);
    rows
}

fn sorted(mut rows: Vec<Row>) -> Vec<String> {
    let texts = rows.iter_mut().map(|row| format!("{row:?}"));
    let mut texts: Vec<String> = texts.collect();
    texts.sort_unstable();
    texts
}

fn assert_sound(model: &Model) {
    let mut sums: BTreeMap<&str, i128> = BTreeMap::new();
    let accounts: BTreeMap<Key, &Account> = model
        .accounts()
        .map(|account| (account.key, account))
        .collect();
    let mut last: BTreeMap<Key, Entry> = BTreeMap::new();
    for entry in model.entries() {
        *sums.entry(&*accounts[&entry.account].asset).or_default() += entry.amount;
        let (version, balance) = last
            .get(&entry.account)
            .map_or((0, 0), |e| (e.version, e.balance_after));
        assert_eq!(entry.version, version + 1, "versions have no gap");
        assert_eq!(
            entry.balance_after,
            balance + entry.amount,
            "balances make a chain"
        );
        last.insert(entry.account, *entry);
    }
    assert!(
        sums.values().all(|sum| *sum == 0),
        "entries sum to zero: {sums:?}"
    );
    let mut pending: BTreeMap<Key, i128> = BTreeMap::new();
    for hold in model.holds() {
        assert!(
            hold.captured >= 0
                && hold.remaining >= 0
                && hold.captured + hold.remaining <= hold.amount
        );
        assert_eq!(
            hold.remaining > 0,
            hold.status == HoldStatus::Open,
            "{hold:?}"
        );
        *pending.entry(hold.debit).or_default() += hold.remaining;
    }
    for account in accounts.values() {
        let end = last
            .get(&account.key)
            .map_or((0, 0), |e| (e.version, e.balance_after));
        assert_eq!((account.version, account.posted), end, "{}", account.id);
        assert_eq!(
            account.pending,
            pending.get(&account.key).copied().unwrap_or(0),
            "{}",
            account.id
        );
        assert!(
            account.limit == Limit::None || account.available() >= 0,
            "{account:?}"
        );
    }
    let operations: BTreeMap<Key, &OperationRow> =
        model.operations().map(|row| (row.key, row)).collect();
    for row in operations.values() {
        assert!(row.refunded <= row.amount.unwrap_or(0));
        assert!(
            row.refunded == 0 || row.reversed_by.is_none(),
            "refunded and reversed: {row:?}"
        );
    }
    for bet in model.bets() {
        let placed = operations
            .get(&bet.key)
            .is_some_and(|row| row.verb == Verb::Bet);
        assert_eq!(
            placed,
            bet.status != BetStatus::Void,
            "a tombstone was applied: {bet:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn money_is_conserved_and_limits_hold_after_every_operation(ops in stream(60)) {
        let mut consumer = Consumer::new(config(), InModel::new(config()));
        consumer.deliver(&OPENED);
        for op in &ops {
            consumer.deliver(&[op]);
            assert_sound(&consumer.book.model);
        }
        consumer.deadline();
        prop_assert!(consumer.parked.is_empty(), "a deadline is final");
        assert_sound(&consumer.book.model);
    }

    #[test]
    fn the_staged_path_says_and_stores_what_the_model_does(ops in stream(60), batch in 1_usize..20, late in any::<bool>()) {
        let mut config = config();
        config.late_win = if late { LateWin::Accept } else { LateWin::Dead };
        for writers in [Writers::One, Writers::Many] {
            let mut model = Consumer::new(config.clone(), InModel::new(config.clone()));
            let mut engine = Consumer::new(config.clone(), OnEngine::new(config.clone(), writers));
            for batch in [&OPENED.map(str::to_owned)[..]].into_iter().chain(ops.chunks(batch)) {
                prop_assert_eq!(model.deliver(batch), engine.deliver(batch));
            }
            model.deadline();
            engine.deadline();
            prop_assert_eq!(sorted(rows_of(&model.book.model)), sorted(engine.book.unit.rows()));
        }
    }
}

/// The engine, as it knows that the bank has no limit and that p3, which is empty, takes credits.
fn remembering() -> Consumer<OnEngine> {
    let mut consumer = Consumer::new(config(), OnEngine::new(config(), Writers::Many));
    consumer.deliver(&OPENED);
    for op in [
        r#"{"op":"open_account","id":"o-p3","account":"p3","asset":"EUR"}"#,
        r#"{"op":"unfreeze","id":"u1","account":"p3"}"#,
        r#"{"op":"transfer","id":"k1","debit":"bank","credit":"p1","asset":"EUR","amount":1}"#,
        r#"{"op":"transfer","id":"k2","debit":"bank","credit":"p1","asset":"EUR","amount":1}"#,
        r#"{"op":"close_account","id":"z1","account":"p3"}"#,
    ] {
        consumer.deliver(&[op]);
    }
    consumer
}

fn refused(code: &str) -> (String, Option<String>) {
    ("refused".to_owned(), Some(code.to_owned()))
}

#[test]
fn no_refusal_leans_on_what_is_remembered_of_the_credited_side() {
    let mut consumer = remembering();
    let group = r#"{"op":"transfer_group","id":"g1","legs":[{"debit":"bank","credit":"p3","asset":"EUR","amount":1},{"debit":"bank","credit":"nobody","asset":"EUR","amount":1}]}"#;
    assert_eq!(consumer.deliver(&[group]), [refused("account_closed")]);
    let mut consumer = remembering();
    consumer.deliver(&[r#"{"op":"freeze","id":"f1","account":"bank"}"#]);
    let transfer =
        r#"{"op":"transfer","id":"k3","debit":"bank","credit":"p3","asset":"EUR","amount":1}"#;
    assert_eq!(consumer.deliver(&[transfer]), [refused("account_closed")]);
}

#[test]
fn no_credit_reaches_an_account_that_was_closed_since() {
    let mut consumer = remembering();
    let transfer =
        r#"{"op":"transfer","id":"k3","debit":"bank","credit":"p3","asset":"EUR","amount":1}"#;
    assert_eq!(consumer.deliver(&[transfer]), [refused("account_closed")]);
}

#[test]
fn e103_transfer_and_reversal_cancel_exactly_ten_thousand_times() {
    let mut consumer = Consumer::new(config(), InModel::new(config()));
    consumer.deliver(&OPENED);
    let there_and_back = |n: u32| {
        let there = format!(
            r#"{{"op":"transfer","id":"n{n}","debit":"p1","credit":"p2","asset":"EUR","value":"1.23"}}"#
        );
        [
            there,
            format!(r#"{{"op":"reverse","id":"v{n}","transfer":"n{n}"}}"#),
        ]
    };
    let ops: Vec<String> = (0..10_000).flat_map(there_and_back).collect();
    ops.chunks(1_000)
        .for_each(|batch| drop(consumer.deliver(batch)));
    let balance = |id| consumer.book.model.account(id).unwrap().posted;
    assert_eq!((balance("p1"), balance("p2")), (500, 300));
    assert_eq!(consumer.book.model.entries().len(), 4 + 40_000);
}

#[test]
fn a_plain_transfer_writes_one_operation_two_entries_and_its_accounts() {
    let mut consumer = Consumer::new(config(), OnEngine::new(config(), Writers::Many));
    consumer.deliver(&OPENED);
    // Now the bank is known to have no limit: it was read.
    consumer.deliver(&[
        r#"{"op":"transfer","id":"m","debit":"bank","credit":"p1","asset":"EUR","amount":1}"#,
    ]);
    let before = consumer.book.unit.written;
    let transfers: Vec<String> = (0..100)
        .map(|n| format!(r#"{{"op":"transfer","id":"n{n}","debit":"bank","credit":"p1","asset":"EUR","amount":1}}"#))
        .collect();
    consumer.deliver(&transfers);
    assert_eq!(consumer.book.unit.written - before, 100 + 200 + 2);
    assert_eq!(
        consumer.book.unit.deltas, 2,
        "both accounts take one delta a batch"
    );
}

#[test]
fn a_round_of_many_bets_is_cancelled_whole() {
    for writers in [Writers::One, Writers::Many] {
        let mut consumer = Consumer::new(config(), OnEngine::new(config(), writers));
        consumer.deliver(&OPENED);
        consumer.deliver(&[r#"{"op":"transfer","id":"more","debit":"bank","credit":"p1","asset":"EUR","amount":500}"#]);
        // Far more lists of bets than any other operation has rows that refer to rows.
        let bets: Vec<String> = (0..1_000)
            .map(|n| format!(r#"{{"op":"bet","id":"n{n}","round":"r","account":"p1","asset":"EUR","amount":1}}"#))
            .collect();
        bets.chunks(70)
            .for_each(|batch| drop(consumer.deliver(batch)));
        let cancel = r#"{"op":"cancel_round","id":"z","round":"r","account":"p1"}"#;
        assert_eq!(consumer.deliver(&[cancel]), [("applied".to_owned(), None)]);
        let rows = consumer.book.unit.rows();
        let open = rows
            .iter()
            .filter(|row| matches!(row, Row::Bet(bet) if bet.status != BetStatus::RolledBack))
            .count();
        assert_eq!(open, 0);
        let p1 = rows.iter().find_map(|row| match row {
            Row::Account(account) if &*account.id == "p1" => Some(account.posted),
            _ => None,
        });
        assert_eq!(p1, Some(1_000));
    }
}
