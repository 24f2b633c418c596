//! Two units at once: rows that appear, rows that both insert, rows that change under a delta.

use semel_core::Class;
use semel_core::rows::Value;

use super::rig::{balance, finish, ledger, put_account, run, run_retrying, unit};
use super::toy::{HOUSE, OPEN, Op, VOID, key};

fn bet_row(bet: u8, account: u8, amount: i128, state: i64) -> Vec<Value> {
    vec![
        Value::Key(key(bet)),
        Value::Key(key(account)),
        Value::Amount(amount),
        Value::Int(state),
    ]
}

#[tokio::test]
async fn a_row_that_appears_before_its_lock_and_names_others_starts_the_pass_again() {
    let ledger = ledger(1);
    put_account(&ledger, key(1), 0);
    let appear = {
        let ledger = ledger.clone();
        move || ledger.put_row("bet", bet_row(9, 1, 50, OPEN))
    };
    // The first act reads without a lock, the second one locks.
    let mut unit = unit(&ledger, 0).await.before_act(2, appear);
    let said = unit.handle(&[Op::Rollback { bet: key(9) }]).await.unwrap();
    assert_eq!(unit.backs, 1);
    assert_eq!(super::rig::words(&said), ["applied"]);
    drop(unit);
    let said = run(&ledger, &[Op::Rollback { bet: key(9) }]).await;
    assert_eq!(said, ["applied"]);
    assert_eq!(balance(&ledger, key(1)), Some(50));
}

#[tokio::test]
async fn a_collision_on_insert_decides_again_on_the_row_that_was_faster() {
    let ledger = ledger(2);
    put_account(&ledger, key(1), 100);
    let appear = {
        let ledger = ledger.clone();
        move || ledger.put_row("bet", bet_row(9, 255, 0, VOID))
    };
    // The locks of the account, the house beside it, the lock of the bet that is not there; then its
    // insert meets the tombstone.
    let unit = unit(&ledger, 0).await.before_act(4, appear);
    let said = finish(
        unit,
        &[Op::Bet {
            bet: key(9),
            account: key(1),
            amount: 30,
        }],
    )
    .await;
    assert_eq!(said, ["rolled_back_before"]);
    assert_eq!(balance(&ledger, key(1)), Some(100));
    assert_eq!(balance(&ledger, HOUSE), Some(1000));
}

#[tokio::test]
async fn t35_a_rollback_and_its_bet_at_once_never_both_win() {
    let mut collisions = [0, 0];
    for seed in 0..200 {
        let ledger = ledger(seed);
        put_account(&ledger, key(1), 100);
        let bet = run_retrying(
            ledger.clone(),
            1,
            vec![Op::Bet {
                bet: key(9),
                account: key(1),
                amount: 30,
            }],
        );
        let rollback = run_retrying(ledger.clone(), 2, vec![Op::Rollback { bet: key(9) }]);
        let (bet, rollback) = tokio::join!(bet, rollback);
        match (bet[0].as_str(), rollback[0].as_str()) {
            ("applied", "applied") => collisions[0] += 1,
            ("rolled_back_before", "tombstoned") => collisions[1] += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
        assert_eq!(balance(&ledger, key(1)), Some(100), "seed {seed}");
        assert_eq!(balance(&ledger, HOUSE), Some(1000), "seed {seed}");
    }
    assert!(
        collisions.iter().all(|&times| times > 10),
        "the seeds must show both orders: {collisions:?}"
    );
}

#[tokio::test]
async fn a_delta_on_a_row_that_changed_meanwhile_is_decided_again() {
    let ledger = ledger(3);
    let freeze = {
        let ledger = ledger.clone();
        move || {
            ledger.put_row(
                "account",
                vec![Value::Key(HOUSE), Value::Int(1), Value::Amount(1000)],
            );
        }
    };
    // The bet without a lock, the house without a lock, the lock of the bet: then the house changes.
    let mut unit = unit(&ledger, 0).await.before_act(3, freeze);
    let said = unit
        .handle(&[
            Op::Rollback { bet: key(5) },
            Op::Gift {
                receipt: key(1),
                amount: 1,
            },
        ])
        .await
        .unwrap();
    assert_eq!(super::rig::words(&said), ["tombstoned", "applied"]);
    assert_eq!(unit.backs, 1);
}

#[tokio::test]
async fn two_lanes_with_the_same_hot_rows_neither_lose_an_update_nor_hang() {
    for seed in 0..50 {
        let ledger = ledger(seed);
        put_account(&ledger, key(1), 1000);
        put_account(&ledger, key(2), 1000);
        let ops = |first: u8, a: u8, b: u8| -> Vec<Op> {
            (0..10)
                .map(|i| Op::Bet {
                    bet: key(first + i),
                    account: key(if i % 2 == 0 { a } else { b }),
                    amount: 10,
                })
                .collect()
        };
        let one = run_retrying(ledger.clone(), 1, ops(10, 1, 2));
        let two = run_retrying(ledger.clone(), 2, ops(30, 2, 1));
        let (one, two) = tokio::join!(one, two);
        assert!(one.iter().chain(&two).all(|word| word == "applied"));
        assert_eq!(balance(&ledger, key(1)), Some(900), "seed {seed}");
        assert_eq!(balance(&ledger, HOUSE), Some(1200), "seed {seed}");
    }
}

#[tokio::test]
async fn a_store_that_is_busy_ends_the_unit_and_blames_no_message() {
    let ledger = ledger(4);
    put_account(&ledger, key(1), 1000);
    let mut unit = unit(&ledger, 0).await;
    ledger.set_faults(semel_storm::sim::Faults {
        budget: 1,
        busy: 1000,
        ..Default::default()
    });
    let fault = unit
        .handle(&[Op::Credit {
            account: key(1),
            amount: 1,
        }])
        .await
        .unwrap_err();
    assert_eq!(fault.class, Class::Busy);
}

#[tokio::test]
async fn a_row_held_for_new_that_is_there_breaks_its_message_alone() {
    let ledger = ledger(5);
    ledger.put_row("receipt", vec![Value::Key(key(3)), Value::Amount(0)]);
    let gift = |receipt| Op::Gift {
        receipt: key(receipt),
        amount: 1,
    };
    let said = run(&ledger, &[gift(1), gift(2), gift(3), gift(4)]).await;
    assert_eq!(said, ["applied", "applied", "fault Poison", "applied"]);
    assert_eq!(balance(&ledger, HOUSE), Some(1003));
}
