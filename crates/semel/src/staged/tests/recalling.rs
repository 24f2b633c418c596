//! Rows that the handler knows without looking: not read while only deltas go to them, never trusted beyond that.

use std::sync::atomic::Ordering;

use semel_core::ledger::{Commit, Unit};
use semel_core::rows::Value;

use super::rig::{Hooked, balance, ledger, unit, words};
use super::toy::{HOUSE, Op, Row, Toy, key};
use crate::staged::{StagedHandler, handler};

/// Remembers a house whose balance has changed since, as every memory's has.
fn remembering(frozen: bool) -> StagedHandler<Toy> {
    let house = Row::Account {
        id: HOUSE,
        frozen,
        balance: 7,
    };
    handler(Toy {
        house: Some(house),
        ..Toy::default()
    })
}

const GIFT: Op = Op::Gift {
    receipt: key(1),
    amount: 5,
};

fn read_the_house(unit: &Hooked) -> usize {
    let house = |ids: &[Value]| ids.contains(&Value::Key(HOUSE));
    unit.reads
        .iter()
        .filter(|(table, ids)| *table == "account" && house(ids))
        .count()
}

async fn commit(unit: Hooked) {
    assert!(matches!(unit.commit().await, Commit::Committed(..)));
}

#[tokio::test]
async fn a_recalled_row_is_not_read_and_its_counters_come_from_the_delta() {
    let ledger = ledger(1);
    let toy = remembering(false);
    let mut unit = unit(&ledger, 0).await;
    let said = unit.handle_by(&toy, &[GIFT]).await.unwrap();
    assert_eq!(words(&said), ["applied"]);
    assert_eq!((read_the_house(&unit), unit.backs), (0, 0));
    commit(unit).await;
    assert_eq!(balance(&ledger, HOUSE), Some(1005));
    let receipt = [Value::Key(key(1)), Value::Amount(1005)];
    assert_eq!(ledger.rows_of("receipt"), [receipt]);
}

#[tokio::test]
async fn a_row_that_is_not_recalled_is_read() {
    let ledger = ledger(2);
    let mut unit = unit(&ledger, 0).await;
    unit.handle_by(&handler(Toy::default()), &[GIFT])
        .await
        .unwrap();
    assert_eq!(read_the_house(&unit), 1);
}

#[tokio::test]
async fn a_recalled_row_that_is_not_so_any_more_is_read_and_decided_on_again() {
    let ledger = ledger(3);
    let toy = remembering(true);
    let mut unit = unit(&ledger, 0).await;
    let said = unit.handle_by(&toy, &[GIFT]).await.unwrap();
    assert_eq!(words(&said), ["applied"]);
    // The first try wrote nothing, since its delta met another house; the second one did not trust the memory.
    assert_eq!((read_the_house(&unit), unit.backs), (1, 1));
    commit(unit).await;
    assert_eq!(balance(&ledger, HOUSE), Some(1005));
    assert_eq!(ledger.rows_of("receipt").len(), 1);
}

#[tokio::test]
async fn a_row_that_a_neighbour_decides_on_is_locked_and_not_recalled() {
    let ledger = ledger(4);
    let toy = remembering(false);
    let mut unit = unit(&ledger, 0).await;
    let credit = Op::Credit {
        account: HOUSE,
        amount: 100,
    };
    let said = unit.handle_by(&toy, &[GIFT, credit]).await.unwrap();
    assert_eq!(words(&said), ["applied", "applied"]);
    assert_eq!(read_the_house(&unit), 1);
    assert_eq!(toy.inner().asked.load(Ordering::Relaxed), 0);
    commit(unit).await;
    assert_eq!(balance(&ledger, HOUSE), Some(1105));
}

#[tokio::test]
async fn the_only_writer_reads_and_recalls_nothing() {
    let ledger = ledger(5);
    let toy = remembering(true);
    let mut unit = unit(&ledger, 0).await.alone();
    let said = unit.handle_by(&toy, &[GIFT]).await.unwrap();
    assert_eq!(words(&said), ["applied"]);
    assert_eq!((read_the_house(&unit), unit.backs), (1, 0));
    assert_eq!(toy.inner().asked.load(Ordering::Relaxed), 0);
}
