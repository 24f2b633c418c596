//! The yardstick: the same durable rows by plain array inserts and one UPDATE a batch, as fast as the database
//! takes them through this driver. It is no consumer: copies are told by a set in memory that no restart
//! survives, and one key that is there already would end it.
//!
//! Not COPY, although that costs the server a fifth less: sqlx leaves Nagle's algorithm on, and the small message
//! that ends a COPY waits 40 ms for an acknowledgement (measured), which would make the yardstick a slow one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::ops::{Credit, Reader, Work};
use crate::run::spread;
use crate::tables::{Error, Place};

async fn apply(connection: &mut PgConnection, fresh: &[Credit]) -> Result<(), sqlx::Error> {
    let mut sums = BTreeMap::<i64, i64>::new();
    fresh
        .iter()
        .for_each(|credit| *sums.entry(credit.account).or_default() += credit.amount);
    let (accounts, amounts): (Vec<i64>, Vec<i64>) = sums.into_iter().unzip();
    let mut tx = connection.begin().await?;
    sqlx::query("INSERT INTO bench_key (consumer, key) SELECT 1, unnest($1::uuid[])")
        .bind(fresh.iter().map(|credit| credit.id).collect::<Vec<_>>())
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
    sqlx::query(
        "UPDATE bench_balance AS known SET balance = known.balance + given.amount
         FROM unnest($1::bigint[], $2::bigint[]) AS given (account, amount) WHERE known.account = given.account",
    )
    .bind(&accounts)
    .bind(&amounts)
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

async fn lane(place: Place, work: Arc<Work>, files: Vec<usize>, batch: usize) -> Result<(), Error> {
    let mut connection = place.connect().await?;
    let mut known = HashSet::<Uuid>::new();
    let mut readers = files
        .into_iter()
        .map(|file| Reader::open(&work, file))
        .collect::<Result<Vec<_>, _>>()?;
    while !readers.is_empty() {
        let mut left = Vec::new();
        for mut reader in readers {
            let mut messages = reader.batch(batch)?;
            if messages.is_empty() {
                continue;
            }
            messages.retain(|credit| known.insert(credit.id));
            while let Err(error) = apply(&mut connection, &messages).await {
                if error
                    .as_database_error()
                    .and_then(|error| error.code())
                    .as_deref()
                    != Some("40P01")
                {
                    return Err(error.into());
                }
            }
            left.push(reader);
        }
        readers = left;
    }
    Ok(())
}

/// Writes the rows of the work over `connections`, each its share of the files.
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
