//! The yardstick: the same durable rows by bulk COPY and one UPDATE a batch, as fast as the database takes
//! them. It is no consumer: copies are told by a set in memory that no restart survives, and one key that is
//! there already would end it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::ops::{Credit, Reader, Work};
use crate::run::spread;
use crate::tables::{Error, Place};

/// Rows in the binary form of COPY.
struct Rows(Vec<u8>);

impl Rows {
    fn new() -> Self {
        // Signature, flags, length of the extension.
        Self([b"PGCOPY\n\xff\r\n\0".as_slice(), &[0; 8]].concat())
    }

    fn row(&mut self, fields: &[&[u8]]) {
        let count = i16::try_from(fields.len()).expect("a table here has three columns");
        self.0.extend_from_slice(&count.to_be_bytes());
        for field in fields {
            let length = i32::try_from(field.len()).expect("a field here has at most sixteen bytes");
            self.0.extend_from_slice(&length.to_be_bytes());
            self.0.extend_from_slice(field);
        }
    }

    async fn copy(mut self, connection: &mut PgConnection, statement: &str) -> Result<(), sqlx::Error> {
        self.0.extend_from_slice(&(-1_i16).to_be_bytes());
        let mut copy = connection.copy_in_raw(statement).await?;
        copy.send(self.0).await?;
        copy.finish().await.map(drop)
    }
}

async fn apply(connection: &mut PgConnection, fresh: &[Credit]) -> Result<(), sqlx::Error> {
    let (mut keys, mut journal) = (Rows::new(), Rows::new());
    let mut sums = BTreeMap::<i64, i64>::new();
    for Credit { id, account, amount } in fresh {
        keys.row(&[&1_i32.to_be_bytes(), id.as_bytes()]);
        journal.row(&[&account.to_be_bytes(), &amount.to_be_bytes(), id.as_bytes()]);
        *sums.entry(*account).or_default() += amount;
    }
    let (accounts, amounts): (Vec<i64>, Vec<i64>) = sums.into_iter().unzip();
    let mut tx = connection.begin().await?;
    keys.copy(&mut tx, "COPY bench_key (consumer, key) FROM STDIN (FORMAT binary)").await?;
    journal.copy(&mut tx, "COPY bench_journal (account, amount, key) FROM STDIN (FORMAT binary)").await?;
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
    let mut readers = files.into_iter().map(|file| Reader::open(&work, file)).collect::<Result<Vec<_>, _>>()?;
    while !readers.is_empty() {
        let mut left = Vec::new();
        for mut reader in readers {
            let mut messages = reader.batch(batch)?;
            if messages.is_empty() {
                continue;
            }
            messages.retain(|credit| known.insert(credit.id));
            while let Err(error) = apply(&mut connection, &messages).await {
                if error.as_database_error().and_then(|error| error.code()).as_deref() != Some("40P01") {
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
pub async fn run(place: &Place, work: &Arc<Work>, connections: usize, batch: usize) -> Result<(), Error> {
    spread(connections, |files| lane(place.clone(), work.clone(), files, batch)).await
}
