//! The rivals' tables: a key, a balance and a journal row. Each run has a schema of its own, so that no run
//! sees another's statistics, indexes or dead rows.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, Row};

use crate::ops::Work;

/// What every run's failure is.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

const CREATE: &str = "
    CREATE TABLE bench_key (
        at timestamptz NOT NULL DEFAULT now(),
        consumer integer NOT NULL,
        key uuid NOT NULL,
        PRIMARY KEY (consumer, key)
    );
    CREATE TABLE bench_balance (
        account bigint PRIMARY KEY,
        balance bigint NOT NULL
    ) WITH (fillfactor = 50);
    CREATE TABLE bench_journal (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        account bigint NOT NULL,
        amount bigint NOT NULL,
        key uuid NOT NULL
    )";

/// The same with amounts of 128 bits.
pub const CREATE_WIDE: &str = "
    CREATE TABLE bench_balance_wide (
        account bigint PRIMARY KEY,
        balance numeric(39, 0) NOT NULL
    ) WITH (fillfactor = 50);
    CREATE TABLE bench_journal_wide (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        account bigint NOT NULL,
        amount numeric(39, 0) NOT NULL,
        key uuid NOT NULL
    )";

/// A schema for one run. Dropped by [`Place::drop_it`]; what an interrupted run leaves is dropped by the next.
#[derive(Debug, Clone)]
pub struct Place {
    /// The server's URL.
    pub url: String,
    /// The schema.
    pub schema: &'static str,
}

impl Place {
    /// Makes the schema with the rivals' tables and funded accounts.
    ///
    /// # Errors
    /// The database's.
    pub async fn make(url: &str, accounts: u64) -> Result<Self, Error> {
        Self::named(url, "semel_bench", accounts).await
    }

    /// The same under another name, for a test beside others.
    ///
    /// # Errors
    /// The database's.
    pub async fn named(url: &str, schema: &'static str, accounts: u64) -> Result<Self, Error> {
        let place = Self {
            url: url.to_owned(),
            schema,
        };
        let mut admin = PgConnectOptions::from_str(url)?.connect().await?;
        execute(
            &mut admin,
            &format!(
                "DROP SCHEMA IF EXISTS {0} CASCADE; CREATE SCHEMA {0}",
                place.schema
            ),
        )
        .await?;
        let mut connection = place.connect().await?;
        let count = i64::try_from(accounts)?;
        for create in [CREATE, CREATE_WIDE] {
            execute(&mut connection, create).await?;
        }
        for table in ["bench_balance", "bench_balance_wide"] {
            let fund = format!(
                "INSERT INTO {table} SELECT account, 0 FROM generate_series(0, {}) AS account",
                count - 1
            );
            execute(&mut connection, &fund).await?;
        }
        // Statistics as autovacuum would have them in a running system, and no checkpoint debt of the run before.
        execute(&mut connection, "ANALYZE bench_balance, bench_balance_wide").await?;
        let _ = execute(&mut admin, "CHECKPOINT").await;
        Ok(place)
    }

    fn options(&self) -> Result<PgConnectOptions, Error> {
        Ok(PgConnectOptions::from_str(&self.url)?
            .options([("search_path", self.schema)])
            .disable_statement_logging())
    }

    /// A connection whose tables are this run's.
    ///
    /// # Errors
    /// The database's.
    pub async fn connect(&self) -> Result<PgConnection, Error> {
        Ok(self.options()?.connect().await?)
    }

    /// A pool of such connections.
    ///
    /// # Errors
    /// The database's.
    pub async fn pool(&self, connections: u32) -> Result<PgPool, Error> {
        let pool = PgPoolOptions::new()
            .min_connections(connections)
            .max_connections(connections);
        Ok(pool.connect_with(self.options()?).await?)
    }

    /// Drops the schema.
    ///
    /// # Errors
    /// The database's.
    pub async fn drop_it(self) -> Result<(), Error> {
        let mut admin = PgConnectOptions::from_str(&self.url)?.connect().await?;
        execute(&mut admin, &format!("DROP SCHEMA {} CASCADE", self.schema)).await
    }

    /// Checks that the run left exactly what the work amounts to: one key row and one journal row for each
    /// operation, and every account's balance.
    ///
    /// # Errors
    /// What differs.
    pub async fn check(&self, work: &Work, names: &Names) -> Result<(), Error> {
        let mut connection = self.connect().await?;
        let distinct = i64::try_from(work.distinct)?;
        for (table, wanted) in [(names.key, distinct), (names.journal, distinct)] {
            let count: i64 = row(&mut connection, &format!("SELECT count(*) FROM {table}"))
                .await?
                .try_get(0)?;
            if count != wanted {
                return Err(format!("{table} has {count} rows, not {wanted}").into());
            }
        }
        let balances = format!(
            "SELECT {}, {}::bigint FROM {} ORDER BY 1",
            names.account, names.amount, names.balance
        );
        let rows = sqlx::query(AssertSqlSafe(balances))
            .fetch_all(&mut connection)
            .await?;
        let mut credited = 0;
        for row in rows {
            let (account, balance): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let wanted = work.balances.get(&account).copied().unwrap_or(0);
            if balance != wanted {
                return Err(format!("account {account} holds {balance}, not {wanted}").into());
            }
            credited += usize::from(work.balances.contains_key(&account));
        }
        if credited == work.balances.len() {
            Ok(())
        } else {
            Err("accounts are missing".into())
        }
    }
}

/// Where a contestant keeps what is checked.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// One row for each key.
    pub key: &'static str,
    /// One row for each operation.
    pub journal: &'static str,
    /// One row for each account.
    pub balance: &'static str,
    /// The account as a number: an expression.
    pub account: &'static str,
    /// The balance: an expression.
    pub amount: &'static str,
}

/// The rivals'.
pub const RIVALS: Names = Names {
    key: "bench_key",
    journal: "bench_journal",
    balance: "bench_balance",
    account: "account",
    amount: "balance",
};

/// Runs a text of statements.
///
/// # Errors
/// The database's.
pub async fn execute(connection: &mut PgConnection, sql: &str) -> Result<(), Error> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await?;
    Ok(())
}

async fn row(connection: &mut PgConnection, sql: &str) -> Result<sqlx::postgres::PgRow, Error> {
    Ok(sqlx::query(AssertSqlSafe(sql.to_owned()))
        .fetch_one(connection)
        .await?)
}
