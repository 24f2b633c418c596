//! An expert's own consumer: one transaction a batch, three array statements. It decides nothing per message,
//! keeps no fingerprint, no outcome, no position and no dead letter; one bad message stops it. About sixty lines.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::ops::{Credit, Reader, Work};
use crate::run::spread;
use crate::tables::{Error, Place};

/// One batch. Keys go in sorted, so that two connections never wait for each other in a circle.
async fn apply(connection: &mut PgConnection, batch: &[Credit]) -> Result<(), sqlx::Error> {
    let mut by_key: Vec<&Credit> = batch.iter().collect();
    by_key.sort_unstable_by_key(|credit| credit.id);
    let keys: Vec<Uuid> = by_key.iter().map(|credit| credit.id).collect();
    let mut tx = connection.begin().await?;
    let fresh: Vec<Uuid> = sqlx::query_scalar(
        "INSERT INTO bench_key (consumer, key) SELECT 1, key FROM unnest($1::uuid[]) AS given (key)
         ON CONFLICT DO NOTHING RETURNING key",
    )
    .bind(&keys)
    .fetch_all(&mut *tx)
    .await?;
    if !fresh.is_empty() {
        let of: HashMap<Uuid, &Credit> = batch.iter().map(|credit| (credit.id, credit)).collect();
        let fresh: Vec<&Credit> = fresh
            .iter()
            .filter_map(|key| of.get(key).copied())
            .collect();
        let mut sums = BTreeMap::<i64, i64>::new();
        fresh
            .iter()
            .for_each(|credit| *sums.entry(credit.account).or_default() += credit.amount);
        let (accounts, amounts): (Vec<i64>, Vec<i64>) = sums.into_iter().unzip();
        sqlx::query(
            "UPDATE bench_balance AS known SET balance = known.balance + given.amount
             FROM unnest($1::bigint[], $2::bigint[]) AS given (account, amount) WHERE known.account = given.account",
        )
        .bind(&accounts)
        .bind(&amounts)
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "INSERT INTO bench_journal (account, amount, key)
             SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::uuid[])",
        )
        .bind(
            fresh
                .iter()
                .map(|credit| credit.account)
                .collect::<Vec<_>>(),
        )
        .bind(fresh.iter().map(|credit| credit.amount).collect::<Vec<_>>())
        .bind(fresh.iter().map(|credit| credit.id).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await
}

/// One batch in one transaction. Two batches that lock accounts in different orders may deadlock; the victim runs
/// again.
///
/// # Errors
/// The database's.
pub async fn batch(connection: &mut PgConnection, batch: &[Credit]) -> Result<(), sqlx::Error> {
    while let Err(error) = apply(connection, batch).await {
        let code = error.as_database_error().and_then(|error| error.code());
        if code.as_deref() != Some("40P01") {
            return Err(error);
        }
    }
    Ok(())
}

/// One connection with its share of the files, a batch of each in turn.
async fn lane(place: Place, work: Arc<Work>, files: Vec<usize>, batch: usize) -> Result<(), Error> {
    let mut connection = place.connect().await?;
    let mut readers = files
        .into_iter()
        .map(|file| Reader::open(&work, file))
        .collect::<Result<Vec<_>, _>>()?;
    while !readers.is_empty() {
        let mut left = Vec::new();
        for mut reader in readers {
            let messages = reader.batch(batch)?;
            if messages.is_empty() {
                continue;
            }
            self::batch(&mut connection, &messages).await?;
            left.push(reader);
        }
        readers = left;
    }
    Ok(())
}

/// Consumes the work with `connections`, each its share of the files.
///
/// # Errors
/// The database's, or the file system's.
pub async fn run(
    place: &Place,
    work: &Arc<Work>,
    connections: usize,
    batch: usize,
) -> Result<(), Error> {
    spread(connections, |files| {
        lane(place.clone(), work.clone(), files, batch)
    })
    .await
}
