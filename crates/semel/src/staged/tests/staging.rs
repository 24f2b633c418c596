//! What a message stages, and what is left of it.

use semel_core::rows::Value;

use super::rig::{balance, finish, ledger, put_account, run, unit};
use super::toy::{HOUSE, Op, key};

#[tokio::test]
async fn later_messages_see_what_earlier_ones_staged() {
    let ledger = ledger(1);
    let account = key(1);
    let said = run(
        &ledger,
        &[
            Op::Bet {
                bet: key(10),
                account,
                amount: 5,
            },
            Op::Open { account },
            Op::Open { account },
            Op::Credit { account, amount: 7 },
            Op::Bet {
                bet: key(11),
                account,
                amount: 5,
            },
            Op::Bet {
                bet: key(12),
                account,
                amount: 5,
            },
        ],
    )
    .await;
    let expected = [
        "account_not_found",
        "applied",
        "account_exists",
        "applied",
        "applied",
        "insufficient_funds",
    ];
    assert_eq!(said, expected);
    assert_eq!(balance(&ledger, account), Some(2));
    assert_eq!(balance(&ledger, HOUSE), Some(1005));
}

#[tokio::test]
async fn a_refusal_and_a_fault_leave_nothing_of_what_they_staged() {
    let ledger = ledger(2);
    put_account(&ledger, key(1), 10);
    let bet = |bet, amount| Op::Bet {
        bet: key(bet),
        account: key(1),
        amount,
    };
    let said = run(&ledger, &[bet(10, 11), Op::Broken, bet(11, 4)]).await;
    assert_eq!(said, ["insufficient_funds", "fault Poison", "applied"]);
    assert_eq!(balance(&ledger, key(1)), Some(6));
    assert_eq!(balance(&ledger, HOUSE), Some(1004));
    assert_eq!(ledger.rows_of("bet").len(), 1);
    assert_eq!(ledger.rows_of("journal").len(), 2);
}

#[tokio::test]
async fn rows_that_depend_on_deltas_are_completed_by_what_the_database_says() {
    let ledger = ledger(3);
    let change = {
        let ledger = ledger.clone();
        // After the unlocked read of the house: the counters it showed are stale by then.
        move || put_account(&ledger, HOUSE, 5000)
    };
    let gift = |receipt, amount| Op::Gift {
        receipt: key(receipt),
        amount,
    };
    let unit = unit(&ledger, 0).await.before_act(3, change);
    let said = finish(
        unit,
        &[gift(1, 10), gift(2, 1), Op::Rollback { bet: key(77) }],
    )
    .await;
    assert_eq!(said, ["applied", "applied", "tombstoned"]);
    let amounts = |table, at: usize| -> Vec<Value> {
        ledger
            .rows_of(table)
            .into_iter()
            .map(|mut r| r.swap_remove(at))
            .collect()
    };
    assert_eq!(
        amounts("receipt", 1),
        [Value::Amount(5010), Value::Amount(5011)]
    );
    assert_eq!(
        amounts("journal", 2),
        [Value::Amount(5010), Value::Amount(5011)]
    );
    assert_eq!(balance(&ledger, HOUSE), Some(5011));
}

#[tokio::test]
async fn a_row_wanted_as_add_and_as_lock_is_locked_and_counted_at_once() {
    let ledger = ledger(4);
    put_account(&ledger, key(1), 10);
    let said = run(
        &ledger,
        &[
            Op::Bet {
                bet: key(10),
                account: key(1),
                amount: 4,
            },
            Op::Credit {
                account: HOUSE,
                amount: 100,
            },
            Op::Bet {
                bet: key(11),
                account: HOUSE,
                amount: 1104,
            },
            Op::Gift {
                receipt: key(12),
                amount: 1,
            },
        ],
    )
    .await;
    assert_eq!(said, ["applied", "applied", "applied", "applied"]);
    assert_eq!(balance(&ledger, HOUSE), Some(1105));
    assert_eq!(
        ledger.rows_of("receipt"),
        [vec![Value::Key(key(12)), Value::Amount(1105)]]
    );
}

#[tokio::test]
async fn the_only_writer_updates_instead_of_sending_deltas() {
    let ledger = ledger(5);
    let unit = unit(&ledger, 0).await.alone();
    let said = finish(
        unit,
        &[Op::Gift {
            receipt: key(1),
            amount: 10,
        }],
    )
    .await;
    assert_eq!(said, ["applied"]);
    assert_eq!(
        ledger.rows_of("receipt"),
        [vec![Value::Key(key(1)), Value::Amount(1010)]]
    );
    assert_eq!(balance(&ledger, HOUSE), Some(1010));
}

#[tokio::test]
async fn writes_of_a_batch_are_one_statement_a_table_however_many_messages() {
    let cost = async |messages: u8| {
        let ledger = ledger(6);
        put_account(&ledger, key(1), 1_000);
        let bets: Vec<Op> = (0..messages)
            .map(|i| Op::Bet {
                bet: key(100 + i),
                account: key(1),
                amount: 1,
            })
            .collect();
        let before = ledger.statements();
        run(&ledger, &bets).await;
        ledger.statements() - before
    };
    assert_eq!(cost(1).await, cost(100).await);
}
