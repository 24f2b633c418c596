//! Which locks the rows of an operation get: one order for all units, the house last.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeMap;

use semel::rows::Value;
use semel::staged::{Names, Staged, Want};
use semel::{Key, Part};
use semel_wallet::row::{ACCOUNT, Account, Kind, Limit, Row, Status};
use semel_wallet::{Config, Wallet, Work};

/// Names as the engine collects them, over these rows.
#[derive(Default)]
struct Asked {
    rows: BTreeMap<Value, Row>,
    wants: BTreeMap<(usize, Value), Want>,
}

impl Names<Row> for Asked {
    fn want(&mut self, table: usize, id: Value, want: Want) {
        let known = self.wants.entry((table, id)).or_insert(want);
        *known = want.max(*known);
    }

    fn row(&self, table: usize, id: &Value) -> Option<&Row> {
        self.rows.get(id).filter(|_| table == ACCOUNT)
    }
}

fn key(id: &str) -> Key {
    Key::derive(&[Part::Text(id)]).unwrap()
}

fn house(limit: Limit) -> Row {
    Row::Account(Account {
        key: key("house"),
        id: "house".into(),
        asset: "EUR".into(),
        kind: Kind::House,
        limit,
        status: Status::Active,
        posted: 1_000,
        pending: 0,
        version: 1,
    })
}

const BET: &str = r#"{"op":"bet","id":"b1","round":"r1","account":"p1","asset":"EUR","amount":5}"#;
const HUGE: &str = r#"{"op":"bet","id":"b2","round":"r1","account":"p1","asset":"EUR","amount":"79228162514264337593543950337"}"#;

/// What a bet wants of an account, by these rows.
fn wanted(wallet: &Wallet, op: &str, account: &str, rows: &[Row]) -> Want {
    let mut asked = Asked::default();
    let house = Value::Key(key("house"));
    asked
        .rows
        .extend(rows.iter().map(|row| (house.clone(), row.clone())));
    wallet.name(&Work::parse(op.as_bytes(), wallet.config()), &mut asked);
    asked.wants[&(ACCOUNT, Value::Key(key(account)))]
}

fn wallet() -> Wallet {
    Wallet::new(Config::new([("EUR", 2)]).unwrap().house("house").unwrap())
}

#[test]
fn a_house_is_looked_at_before_it_is_locked_and_then_takes_deltas_alone() {
    let wallet = wallet();
    assert_eq!(wanted(&wallet, BET, "p1", &[]), Want::Lock);
    assert_eq!(wanted(&wallet, BET, "house", &[]), Want::Refer);
    wallet.learn(ACCOUNT, &house(Limit::None));
    assert_eq!(wanted(&wallet, BET, "house", &[]), Want::AddLast);
    // Nothing commutes that could leave the range.
    assert_eq!(wanted(&wallet, HUGE, "house", &[]), Want::Lock);
}

#[test]
fn a_house_with_a_limit_is_locked_like_a_player() {
    let wallet = wallet();
    let limited = house(Limit::NoNegative);
    wallet.learn(ACCOUNT, &limited);
    assert_eq!(wanted(&wallet, BET, "house", &[limited]), Want::Lock);
}

fn player(status: Status, posted: i128) -> Row {
    Row::Account(Account {
        key: key("p2"),
        id: "p2".into(),
        asset: "EUR".into(),
        kind: Kind::Cash,
        limit: Limit::NoNegative,
        status,
        posted,
        pending: 0,
        version: 1,
    })
}

const TRANSFER: &str =
    r#"{"op":"transfer","id":"t1","debit":"house","credit":"p2","asset":"EUR","amount":5}"#;

/// What a transfer wants of the account that gets the money, when this is its row.
fn credited(wallet: &Wallet, row: Option<&Row>) -> Want {
    let mut asked = Asked::default();
    let id = Value::Key(key("p2"));
    asked.rows.extend(row.map(|row| (id.clone(), row.clone())));
    wallet.name(
        &Work::parse(TRANSFER.as_bytes(), wallet.config()),
        &mut asked,
    );
    asked.wants[&(ACCOUNT, id)]
}

#[test]
fn the_side_that_gets_the_money_takes_deltas_wherever_its_balance_cannot_matter() {
    let wallet = wallet();
    wallet.learn(ACCOUNT, &house(Limit::None));
    let huge = 1 << 121;
    assert_eq!(credited(&wallet, None), Want::Refer);
    for (row, want) in [
        (player(Status::Active, 7), Want::Add),
        (player(Status::Frozen, 7), Want::Add),
        (player(Status::Closed, 0), Want::Lock),
        (player(Status::Active, huge), Want::Lock),
    ] {
        assert_eq!(credited(&wallet, Some(&row)), want, "{row:?}");
    }
    assert_eq!(wanted(&wallet, TRANSFER, "house", &[]), Want::AddLast);
    // A payer with a limit is locked, so the other side would be too.
    let between = TRANSFER.replace("house", "p1");
    assert_eq!(wanted(&wallet, &between, "p2", &[]), Want::Lock);
}

#[test]
fn what_is_remembered_of_an_account_is_forgotten_when_it_is_so_no_more() {
    let wallet = wallet();
    wallet.learn(ACCOUNT, &house(Limit::None));
    let id = Value::Key(key("p2"));
    wallet.learn(ACCOUNT, &player(Status::Frozen, 7));
    assert_eq!(credited(&wallet, None), Want::Add);
    let Some(Row::Account(known)) = wallet.recall(ACCOUNT, &id) else {
        panic!("it was learnt")
    };
    assert_eq!((known.status, known.posted), (Status::Frozen, 0));
    wallet.learn(ACCOUNT, &player(Status::Closed, 0));
    assert_eq!(credited(&wallet, None), Want::Refer);
    assert!(wallet.recall(ACCOUNT, &id).is_none());
}
