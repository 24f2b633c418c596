//! The ledger's database as the storm knows it: what must run for it, where it is, and what it holds. Everything
//! that differs between the two databases is in here.

use std::path::Path;

use sqlx::postgres::PgRow;
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{ConnectOptions, Connection, FromRow, PgConnection};

use crate::Party;
use crate::servers::Servers;

/// Which database the instances share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Postgres,
    /// One file, opened by every instance.
    Sqlite,
}

/// A row of either database.
pub(crate) trait Row:
    for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin
{
}

impl<T> Row for T where T: for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin
{}

/// The database of one storm.
#[derive(Debug)]
pub(crate) struct Store {
    backend: Backend,
    /// As `ledger.url` has it.
    pub(crate) url: String,
}

impl Backend {
    /// Its storm's name.
    pub(crate) const fn storm(self) -> &'static str {
        match self {
            Self::Postgres => "storm-postgres",
            Self::Sqlite => "storm-sqlite",
        }
    }

    /// The servers of a storm on it.
    pub(crate) const fn servers(self) -> &'static [&'static str] {
        match self {
            Self::Postgres => &["postgres", "kafka", "rabbitmq"],
            Self::Sqlite => &["kafka", "rabbitmq"],
        }
    }

    /// Who dies when the database dies. SQLite has no process of its own: it dies with the last one that has the
    /// file open, and the next to open it finds its log as the dead left it.
    pub(crate) const fn death(self) -> Party {
        match self {
            Self::Postgres => Party::Server("postgres"),
            Self::Sqlite => Party::Instances,
        }
    }
}

impl Store {
    pub(crate) fn new(backend: Backend, servers: &Servers, place: &Path) -> Self {
        let url = match backend {
            Backend::Postgres => servers.address("POSTGRES_URL"),
            Backend::Sqlite => format!("sqlite:{}", place.join("semel.db").display()),
        };
        Self { backend, url }
    }

    /// What a statement that both databases understand returns.
    pub(crate) async fn rows<T: Row>(&self, sql: &'static str) -> Vec<T> {
        match self.backend {
            Backend::Postgres => {
                let mut database = PgConnection::connect(&self.url).await.unwrap();
                sqlx::query_as(sql).fetch_all(&mut database).await.unwrap()
            }
            Backend::Sqlite => {
                let options: SqliteConnectOptions = self.url.parse().unwrap();
                let mut database = options.connect().await.unwrap();
                sqlx::query_as(sql).fetch_all(&mut database).await.unwrap()
            }
        }
    }

    /// The one value of a statement that returns one.
    pub(crate) async fn number(&self, sql: &'static str) -> i64 {
        let rows: Vec<(i64,)> = self.rows(sql).await;
        rows[0].0
    }

    /// Nothing in the file is torn. A server looks after its files itself.
    pub(crate) async fn assert_whole(&self) {
        if self.backend == Backend::Sqlite {
            let said: Vec<(String,)> = self.rows("PRAGMA integrity_check").await;
            assert_eq!(said, [("ok".to_owned(),)]);
        }
    }
}
