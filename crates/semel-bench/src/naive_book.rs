//! The usual consumer of transfers: the rows of the Book, one transaction a message. Each connection has a bank of its
//! own, so that no two of them wait for one row through each other's flush to disk: kinder to it than the work that the
//! Book does, where all players meet at one bank.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use semel_core::Key;
use semel_core::key::Part;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::book;
use crate::ops::Credit;
use crate::tables::{Error, Names, Place};

/// Where its rows are.
pub const NAMES: Names = Names {
    key: "bench_key",
    ..book::NAMES
};

fn key(account: &str) -> Result<Uuid, Error> {
    let key = Key::derive(&[Part::Text(account)]).map_err(|bad| bad.to_string())?;
    Ok(Uuid::from_bytes(key.into_bytes()))
}

/// Opens the banks of so many connections.
///
/// # Errors
/// The database's.
pub async fn open_banks(place: &Place, connections: usize) -> Result<(), Error> {
    let mut connection = place.connect().await?;
    for number in 0..connections {
        let bank = format!("bank-{number}");
        sqlx::query(
            "INSERT INTO wallet_account (version, key, id, asset, kind, limit_kind, status, posted, pending)
             VALUES (0, $1, $2, 'EUR', 'external', 'none', 'active', 0, 0)",
        )
        .bind(key(&bank)?)
        .bind(bank)
        .execute(&mut connection)
        .await?;
    }
    Ok(())
}

/// One connection and its bank.
#[derive(Debug)]
pub struct Teller {
    connection: PgConnection,
    bank: Uuid,
}

impl Teller {
    /// Connects, for one of the banks of [`open_banks`].
    ///
    /// # Errors
    /// The database's.
    pub async fn at(place: &Place, number: usize) -> Result<Self, Error> {
        Ok(Self {
            connection: place.connect().await?,
            bank: key(&format!("bank-{number}"))?,
        })
    }

    /// One message: its key under a UNIQUE constraint, both accounts, both entries, the operation.
    ///
    /// # Errors
    /// The database's.
    pub async fn apply(&mut self, credit: &Credit) -> Result<(), Error> {
        const RAISE: &str = "UPDATE wallet_account SET posted = posted + $2, version = version + 1
                         WHERE key = $1 RETURNING version, posted::bigint";
        let bank = self.bank;
        let player = key(&format!("p{}", credit.account))?;
        let mut tx = self.connection.begin().await?;
        let fresh = sqlx::query(
            "INSERT INTO bench_key (consumer, key) VALUES (1, $1) ON CONFLICT DO NOTHING",
        )
        .bind(credit.id)
        .execute(&mut *tx)
        .await?;
        if fresh.rows_affected() == 1 {
            let (to, to_balance): (i64, i64) = sqlx::query_as(RAISE)
                .bind(player)
                .bind(credit.amount)
                .fetch_one(&mut *tx)
                .await?;
            let (from, from_balance): (i64, i64) = sqlx::query_as(RAISE)
                .bind(bank)
                .bind(-credit.amount)
                .fetch_one(&mut *tx)
                .await?;
            sqlx::query(
                "INSERT INTO wallet_entry (account, version, operation, amount, balance_after)
             VALUES ($1, $2, $3, -$4::bigint, $5), ($6, $7, $3, $4, $8)",
            )
            .bind(bank)
            .bind(from)
            .bind(credit.id)
            .bind(credit.amount)
            .bind(from_balance)
            .bind(player)
            .bind(to)
            .bind(to_balance)
            .execute(&mut *tx)
            .await?;
            sqlx::query(
            "INSERT INTO wallet_operation (key, id, op, leg, debit, credit, amount, asset, account, balance, version)
             VALUES ($1, $1::text, 'transfer', 0, $2, $3, $4, 'EUR', $2, $5, $6)",
        )
        .bind(credit.id)
        .bind(bank)
        .bind(player)
        .bind(credit.amount)
        .bind(from_balance)
        .bind(from)
        .execute(&mut *tx)
        .await?;
        }
        tx.commit().await?;
        Ok(())
    }
}

/// Consumes the messages with so many connections, each of which takes the next one.
///
/// # Errors
/// The database's.
pub async fn consume(
    place: &Place,
    connections: usize,
    messages: Vec<Credit>,
) -> Result<(), Error> {
    let waiting = Arc::new(Mutex::new(VecDeque::from(messages)));
    let mut tasks = tokio::task::JoinSet::<Result<(), Error>>::new();
    for number in 0..connections {
        let (mut teller, waiting) = (Teller::at(place, number).await?, waiting.clone());
        tasks.spawn(async move {
            loop {
                let next = {
                    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    waiting.pop_front()
                };
                let Some(credit) = next else {
                    return Ok(());
                };
                teller.apply(&credit).await?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
