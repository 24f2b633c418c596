//! Deltas on rows that others lock: behind the inserts where nothing of their table is locked, else locked too.

use semel_core::ledger::{Commit, Unit};
use semel_core::rows::Value;

use super::rig::{balance, ledger, put_account, unit, words};
use super::toy::{HOUSE, Op, Toy, key};
use crate::staged::handler;

const fn tip(account: u8, amount: i128) -> Op {
    Op::Tip {
        account: key(account),
        amount,
    }
}

fn ids<const N: usize>(accounts: [u8; N]) -> Vec<Value> {
    accounts.map(|account| Value::Key(key(account))).to_vec()
}

#[tokio::test]
async fn deltas_go_without_locks_and_the_one_that_all_meet_at_comes_last() {
    let ledger = ledger(1);
    put_account(&ledger, key(1), 10);
    put_account(&ledger, key(2), 20);
    let mut unit = unit(&ledger, 0).await;
    let ops = [tip(2, 5), tip(1, 3), tip(2, 7)];
    let said = unit
        .handle_by(&handler(Toy::default()), &ops)
        .await
        .unwrap();
    assert_eq!(words(&said), ["applied"; 3]);
    assert_eq!(unit.locks, Vec::<Vec<Value>>::new());
    assert_eq!(unit.adds, [ids([1, 2]), vec![Value::Key(HOUSE)]]);
    assert!(matches!(unit.commit().await, Commit::Committed(..)));
    let balances = [key(1), key(2), HOUSE].map(|account| balance(&ledger, account));
    assert_eq!(balances, [Some(13), Some(32), Some(985)]);
    let entry = |account, amount, after| {
        vec![
            Value::Key(account),
            Value::Amount(amount),
            Value::Amount(after),
        ]
    };
    let mut entries = ledger.rows_of("journal");
    entries.sort_unstable();
    let mut wanted = [
        entry(key(2), 5, 25),
        entry(key(1), 3, 13),
        entry(key(2), 7, 32),
        entry(HOUSE, -5, 995),
        entry(HOUSE, -3, 992),
        entry(HOUSE, -7, 985),
    ];
    wanted.sort_unstable();
    assert_eq!(entries, wanted);
}

/// Else two such units could take two rows in two orders: one by lock and the other by delta.
#[tokio::test]
async fn beside_a_locked_row_of_their_table_they_are_locked_in_the_same_pass() {
    let ledger = ledger(2);
    put_account(&ledger, key(1), 10);
    put_account(&ledger, key(2), 20);
    let mut unit = unit(&ledger, 0).await;
    let credit = Op::Credit {
        account: key(2),
        amount: 1,
    };
    let said = unit
        .handle_by(&handler(Toy::default()), &[tip(1, 3), credit])
        .await
        .unwrap();
    assert_eq!(words(&said), ["applied"; 2]);
    assert_eq!(unit.locks, [ids([1, 2])]);
    assert_eq!(unit.adds, [vec![Value::Key(HOUSE)]]);
    assert!(matches!(unit.commit().await, Commit::Committed(..)));
    assert_eq!(balance(&ledger, key(1)), Some(13));
}

/// A row of another table is enough: it is held while the deltas wait.
#[tokio::test]
async fn beside_a_locked_row_of_another_table_they_are_locked_too() {
    let ledger = ledger(4);
    put_account(&ledger, key(1), 10);
    let mut unit = unit(&ledger, 0).await;
    let rollback = Op::Rollback { bet: key(9) };
    let said = unit
        .handle_by(&handler(Toy::default()), &[tip(1, 3), rollback])
        .await
        .unwrap();
    assert_eq!(words(&said), ["applied", "tombstoned"]);
    assert_eq!(unit.locks, [ids([1]), ids([9])]);
    assert_eq!(unit.adds, [vec![Value::Key(HOUSE)]]);
}

#[tokio::test]
async fn an_account_that_is_not_there_gets_nothing() {
    let ledger = ledger(3);
    let mut unit = unit(&ledger, 0).await;
    let said = unit
        .handle_by(&handler(Toy::default()), &[tip(1, 3)])
        .await
        .unwrap();
    assert_eq!(words(&said), ["fault Poison"]);
}
