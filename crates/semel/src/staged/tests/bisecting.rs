//! A flush that the store refuses: only the message to blame is told so.

use semel_core::rows::Value;

use super::rig::{balance, ledger, put_account, run, unit, words};
use super::toy::{HOUSE, Op, Row, Toy, key};
use crate::staged::handler;

/// A CHECK that the toy does not know of: stakes are at most 90.
fn stakes_are_small(row: &[Value]) -> Result<(), &'static str> {
    if matches!(row[2], Value::Amount(amount) if amount > 90) {
        Err("stake above 90")
    } else {
        Ok(())
    }
}

#[tokio::test]
async fn t31_e056_one_poison_message_costs_its_neighbours_nothing() {
    let ledger = ledger(1);
    ledger.check("bet", stakes_are_small);
    put_account(&ledger, key(1), 10_000);
    let ops: Vec<Op> = (0..100)
        .map(|i| Op::Bet {
            bet: key(100 + i),
            account: key(1),
            amount: if i == 63 { 91 } else { 1 },
        })
        .collect();
    let before = ledger.statements();
    let said = run(&ledger, &ops).await;
    let statements = ledger.statements() - before;
    assert_eq!(said.iter().filter(|word| *word == "applied").count(), 99);
    assert_eq!(said[63], "fault Poison");
    assert_eq!(balance(&ledger, key(1)), Some(10_000 - 99));
    assert_eq!(balance(&ledger, HOUSE), Some(1099));
    assert_eq!(ledger.rows_of("journal").len(), 198);
    // One by one would be about 800.
    assert!(statements < 200, "{statements} statements");
}

#[tokio::test]
async fn t39_an_answer_that_leaned_on_a_thrown_away_neighbour_is_decided_again() {
    let ledger = ledger(2);
    ledger.check("bet", stakes_are_small);
    put_account(&ledger, key(1), 100);
    // The first bet takes nearly all and is thrown away; the second one was refused because of it.
    let ops = [
        Op::Bet {
            bet: key(10),
            account: key(1),
            amount: 95,
        },
        Op::Bet {
            bet: key(11),
            account: key(1),
            amount: 50,
        },
        Op::Bet {
            bet: key(12),
            account: key(1),
            amount: 60,
        },
    ];
    let said = run(&ledger, &ops).await;
    assert_eq!(said, ["fault Poison", "applied", "insufficient_funds"]);
    assert_eq!(balance(&ledger, key(1)), Some(50));
}

#[tokio::test]
async fn several_poison_messages_are_all_found() {
    let ledger = ledger(3);
    ledger.check("bet", stakes_are_small);
    put_account(&ledger, key(1), 10_000);
    let bad = [0, 1, 30, 63];
    let ops: Vec<Op> = (0..64)
        .map(|i| Op::Bet {
            bet: key(100 + i),
            account: key(1),
            amount: if bad.contains(&i) { 91 } else { 1 },
        })
        .collect();
    let said = run(&ledger, &ops).await;
    let found: Vec<usize> = (0..64).filter(|&i| said[i] == "fault Poison").collect();
    assert_eq!(found, bad.map(usize::from));
    assert_eq!(balance(&ledger, key(1)), Some(10_000 - 60));
}

#[tokio::test]
async fn a_single_poison_message_is_told_so_without_halving() {
    let ledger = ledger(4);
    ledger.check("bet", stakes_are_small);
    put_account(&ledger, key(1), 1000);
    let said = run(
        &ledger,
        &[Op::Bet {
            bet: key(10),
            account: key(1),
            amount: 95,
        }],
    )
    .await;
    assert_eq!(said, ["fault Poison"]);
    assert_eq!(balance(&ledger, key(1)), Some(1000));
}

/// It may be rolled back with the unit, and never come true.
#[tokio::test]
async fn what_an_earlier_part_of_the_unit_wrote_is_not_learnt() {
    let ledger = ledger(9);
    ledger.check("bet", stakes_are_small);
    put_account(&ledger, key(1), 1_000);
    let bet = |n, amount| Op::Bet {
        bet: key(n),
        account: key(1),
        amount,
    };
    let credit = |amount| Op::Credit {
        account: key(2),
        amount,
    };
    let open = Op::Open { account: key(2) };
    let toy = handler(Toy::default());
    let mut unit = unit(&ledger, 0).await;
    let ops = [open, bet(10, 91), credit(3), credit(4)];
    let said = unit.handle_by(&toy, &ops).await.unwrap();
    assert_eq!(
        words(&said),
        ["applied", "fault Poison", "applied", "applied"]
    );
    let learnt = toy.inner().learnt.lock().unwrap();
    let of = |account: semel_core::Key| {
        let mut rows = learnt.iter();
        rows.any(|row| matches!(row, Row::Account { id, .. } if *id == account))
    };
    assert!(of(key(1)) && !of(key(2)), "{learnt:?}");
}
