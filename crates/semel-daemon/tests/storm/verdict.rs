//! What the database must say after the storm: every operation ended once, every balance the model's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use semel_core::{Key, Outcome};
use semel_wallet::workload::{Workload, expected, expected_keys};
use sqlx::{Connection, PgConnection};

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
    /// nothing has ended for `quiet_max`.
    pub(crate) async fn drained(&self, url: &str, quiet_max: Duration) -> Result<(), String> {
        let (mut last, mut since) = ((0, 0), Instant::now());
        loop {
            let mut database = PgConnection::connect(url).await.unwrap();
            let (ended, dead): (i64, i64) = sqlx::query_as(
                "SELECT (SELECT count(*) FROM semel_ledger WHERE outcome <> $1), \
                        (SELECT count(DISTINCT hash) FROM semel_dead)",
            )
            .bind(Outcome::Parked.number())
            .fetch_one(&mut database)
            .await
            .unwrap();
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
    pub(crate) async fn judge(&self, url: &str) -> Deliveries {
        let mut database = PgConnection::connect(url).await.unwrap();
        let rows: Vec<(sqlx::types::Uuid, i16)> =
            sqlx::query_as("SELECT key, outcome FROM semel_ledger")
                .fetch_all(&mut database)
                .await
                .unwrap();
        let ended: BTreeMap<Key, ()> = rows
            .into_iter()
            .filter(|(_, outcome)| *outcome != Outcome::Parked.number())
            .map(|(key, _)| (Key::from_bytes(key.into_bytes()), ()))
            .collect();
        same(
            "operations",
            &self.keys.iter().map(|key| (*key, ())).collect(),
            &ended,
        );
        let balances: Vec<(String, String)> =
            sqlx::query_as("SELECT id, posted::text FROM wallet_account")
                .fetch_all(&mut database)
                .await
                .unwrap();
        same("balances", &self.balances, &balances.into_iter().collect());
        let (dead, again): (i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(DISTINCT hash) FROM semel_dead), \
                    (SELECT coalesce(sum(count), 0)::bigint FROM semel_sighting)",
        )
        .fetch_one(&mut database)
        .await
        .unwrap();
        assert_eq!(dead, self.dead, "dead letters");
        Deliveries {
            operations: count(&self.keys),
            again,
        }
    }
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
