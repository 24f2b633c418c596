//! What the database must say after the storm: every operation ended once, every balance the model's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use semel_core::{Key, Outcome};
use semel_wallet::workload::{Workload, expected, expected_keys};

use crate::store::Store;

/// What the pure model says.
#[derive(Debug)]
pub(crate) struct Model {
    balances: BTreeMap<String, String>,
    keys: BTreeSet<Key>,
    dead: i64,
}

/// What was delivered, counted by the ledger.
#[derive(Debug)]
pub(crate) struct Deliveries {
    pub(crate) operations: i64,
    pub(crate) again: i64,
}

impl Model {
    pub(crate) fn of(workload: &Workload) -> Self {
        let (keys, dead) = expected_keys(workload);
        let model = expected(workload);
        let accounts = model.accounts();
        Self {
            balances: accounts
                .map(|account| (account.id.to_string(), account.posted.to_string()))
                .collect(),
            keys,
            dead: i64::try_from(dead).unwrap(),
        }
    }

    /// Waits until the ledger holds as many ended operations as there are, and each dead letter; in vain once
    /// nothing has ended for `quiet_max`. Meanwhile it calls `keep` again and again.
    pub(crate) async fn drained(
        &self,
        store: &Store,
        quiet_max: Duration,
        mut keep: impl FnMut(),
    ) -> Result<(), String> {
        let (mut last, mut since) = ((0, 0), Instant::now());
        loop {
            keep();
            let counts: Vec<(i16, i64)> = store
                .rows("SELECT outcome, count(*) FROM semel_ledger GROUP BY outcome")
                .await;
            let of_ended = counts.iter().filter(|(outcome, _)| has_ended(*outcome));
            let ended: i64 = of_ended.map(|(_, count)| count).sum();
            let dead = store.number(DEAD).await;
            if ended >= count(&self.keys) && dead >= self.dead {
                return Ok(());
            }
            if (ended, dead) != last {
                (last, since) = ((ended, dead), Instant::now());
            }
            if since.elapsed() > quiet_max {
                return Err(format!(
                    "nothing has ended for {quiet_max:?}: {ended} of {} operations, {dead} of {} letters",
                    self.keys.len(),
                    self.dead
                ));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Nothing is lost, nothing was done twice.
    pub(crate) async fn judge(&self, store: &Store) -> Deliveries {
        store.assert_whole().await;
        let rows: Vec<(sqlx::types::Uuid, i16)> =
            store.rows("SELECT key, outcome FROM semel_ledger").await;
        let ended: BTreeMap<Key, ()> = rows
            .into_iter()
            .filter(|(_, outcome)| has_ended(*outcome))
            .map(|(key, _)| (Key::from_bytes(key.into_bytes()), ()))
            .collect();
        same(
            "operations",
            &self.keys.iter().map(|key| (*key, ())).collect(),
            &ended,
        );
        let balances: Vec<(String, String)> = store
            .rows("SELECT id, CAST(posted AS text) FROM wallet_account")
            .await;
        same("balances", &self.balances, &balances.into_iter().collect());
        assert_eq!(store.number(DEAD).await, self.dead, "dead letters");
        Deliveries {
            operations: count(&self.keys),
            again: store
                .number("SELECT CAST(coalesce(sum(count), 0) AS bigint) FROM semel_sighting")
                .await,
        }
    }
}

/// Different lines that are dead letters.
const DEAD: &str = "SELECT count(DISTINCT hash) FROM semel_dead";

fn has_ended(outcome: i16) -> bool {
    outcome != Outcome::Parked.number()
}

fn count(keys: &BTreeSet<Key>) -> i64 {
    i64::try_from(keys.len()).unwrap()
}

fn same<K, V>(what: &str, model: &BTreeMap<K, V>, found: &BTreeMap<K, V>)
where
    K: Ord + std::fmt::Debug,
    V: PartialEq + std::fmt::Debug,
{
    let wrong: Vec<_> = model
        .iter()
        .map(|(key, must)| (key, must, found.get(key)))
        .filter(|(_, must, is)| Some(*must) != *is)
        .collect();
    let some = &wrong[..wrong.len().min(5)];
    assert!(
        wrong.is_empty(),
        "{what}: {} are wrong: {some:?}",
        wrong.len()
    );
    let more: Vec<_> = found
        .keys()
        .filter(|key| !model.contains_key(key))
        .collect();
    assert!(more.is_empty(), "{what} that nobody sent: {more:?}");
}
