//! Which rows an operation names, and which locks they get: one order for all units, the house last.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeMap;

use semel::rows::Value;
use semel::staged::{Names, Staged, Want};
use semel::{Key, Part};
use semel_wallet::row::{
    ACCOUNT, Account, BET, Bet, BetStatus, Kind, Limit, ROUND, Round, RoundStatus, Row, Status,
};
use semel_wallet::{Config, Wallet, Work, round_key};

/// Names as the engine collects them, over these rows.
#[derive(Default)]
struct Asked {
    rows: BTreeMap<Value, Row>,
    wants: BTreeMap<(usize, Value), Want>,
    calls: usize,
}

impl Names<Row> for Asked {
    fn want(&mut self, table: usize, id: Value, want: Want) {
        self.calls += 1;
        let known = self.wants.entry((table, id)).or_insert(want);
        *known = want.max(*known);
    }

    fn row(&self, table: usize, id: &Value) -> Option<&Row> {
        self.rows.get(id).filter(|row| match row {
            Row::Account(_) => table == ACCOUNT,
            Row::Bet(_) => table == BET,
            Row::Round(_) => table == ROUND,
            Row::Operation(_) | Row::Entry(_) | Row::Hold(_) => false,
        })
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

const A_BET: &str =
    r#"{"op":"bet","id":"b1","round":"r1","account":"p1","asset":"EUR","amount":5}"#;
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
    assert_eq!(wanted(&wallet, A_BET, "p1", &[]), Want::Lock);
    assert_eq!(wanted(&wallet, A_BET, "house", &[]), Want::Refer);
    wallet.learn(ACCOUNT, &house(Limit::None));
    assert_eq!(wanted(&wallet, A_BET, "house", &[]), Want::AddLast);
    // Nothing commutes that could leave the range.
    assert_eq!(wanted(&wallet, HUGE, "house", &[]), Want::Lock);
}

#[test]
fn a_house_with_a_limit_is_locked_like_a_player() {
    let wallet = wallet();
    let limited = house(Limit::NoNegative);
    wallet.learn(ACCOUNT, &limited);
    assert_eq!(wanted(&wallet, A_BET, "house", &[limited]), Want::Lock);
}

/// The bets of one round as the wallet lists them, and the round.
fn round_of(bets: u32) -> BTreeMap<Value, Row> {
    let name = key("r1");
    let mut rows = BTreeMap::new();
    let mut round = Round {
        key: round_key(name, key("p1")),
        id: "r1".into(),
        round: name,
        account: key("p1"),
        game: None,
        status: RoundStatus::Open,
        staked: 0,
        paid: 0,
        recent: Default::default(),
        chain: None,
        ended_by: None,
    };
    for number in 0..bets {
        let mut bet = Bet {
            key: key(&format!("b{number}")),
            round: Some(round.key),
            account: Some(round.account),
            house: Some(key("house")),
            amount: 1,
            earlier: Default::default(),
            chain: None,
            status: BetStatus::Open,
            ended_by: None,
        };
        round.list(&mut bet);
        rows.insert(Value::Key(bet.key), Row::Bet(Box::new(bet)));
    }
    rows.insert(Value::Key(round.key), Row::Round(Box::new(round)));
    rows
}

const CANCEL: &str = r#"{"op":"cancel_round","id":"c","round":"r1","account":"p1"}"#;

/// Names in waves, as the engine does: what was named is read before the next one.
fn waves(stored: &BTreeMap<Value, Row>) -> Asked {
    let (wallet, mut asked) = (wallet(), Asked::default());
    let work = Work::parse(CANCEL.as_bytes(), wallet.config());
    loop {
        let before = asked.rows.len();
        wallet.name(&work, &mut asked);
        for (_, id) in asked.wants.keys() {
            if let Some(row) = stored.get(id) {
                asked.rows.insert(id.clone(), row.clone());
            }
        }
        if asked.rows.len() == before {
            return asked;
        }
    }
}

#[test]
fn naming_the_bets_of_a_long_round_costs_no_square_of_them() {
    for bets in [3, 70, 20_000] {
        let stored = round_of(bets);
        let asked = waves(&stored);
        let named = asked
            .wants
            .keys()
            .filter(|(table, _)| *table == BET)
            .count();
        assert_eq!(named, usize::try_from(bets).unwrap());
        // Each bet a few times; and each of the lists once in each wave.
        let lists = stored.len() / 64;
        let most = 12 * stored.len() + lists * lists * 2;
        assert!(
            asked.calls < most,
            "{} of {most} for {bets} bets",
            asked.calls
        );
    }
}

#[test]
fn lists_of_bets_that_are_a_circle_come_to_an_end() {
    let mut stored = round_of(200);
    let lists: Vec<Key> = stored
        .values()
        .filter_map(|row| match row {
            Row::Bet(bet) if !bet.earlier.is_empty() => Some(bet.key),
            _ => None,
        })
        .collect();
    for row in stored.values_mut() {
        if let Row::Bet(bet) = row
            && bet.chain.is_none()
            && !bet.earlier.is_empty()
        {
            bet.chain = Some(lists[0]);
        }
    }
    assert!(waves(&stored).wants.len() < 500);
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
