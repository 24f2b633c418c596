//! Scales on both ledgers: the first one is recorded for ever, and a config with another one is refused before
//! anything is recorded of it.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use semel::postgres::{Options as PostgresOptions, PostgresLedger};
use semel::rows::Register;
use semel::sqlite::{Options as SqliteOptions, SqliteLedger};
use semel::{Class, Extension};
use semel_wallet::{Config, Dialect, migrations, register_scales};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

async fn a_changed_scale_is_refused(ledger: &impl Register, dialect: Dialect) {
    let register = async |assets: &[(&str, u8)]| {
        let config = Config::new(assets.iter().copied()).unwrap();
        register_scales(&config, ledger, dialect).await
    };
    register(&[("EUR", 2)]).await.unwrap();
    register(&[("EUR", 2), ("JPY", 0)]).await.unwrap();
    let fault = register(&[("BTC", 8), ("EUR", 0)]).await.unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    let words = fault.detail();
    assert!(
        words.contains("asset EUR is recorded with 2 digits") && words.contains("gives it 0"),
        "{words}"
    );
    // What is refused records nothing, and what is not declared any more stays recorded.
    register(&[("BTC", 4)]).await.unwrap();
    let fault = register(&[("JPY", 1)]).await.unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    // What is not declared any more is told with the rest.
    let recorded = register(&[("EUR", 2), ("BTC", 4)]).await.unwrap();
    let all = [("BTC", 4), ("EUR", 2), ("JPY", 0)].map(|(code, scale)| (code.to_owned(), scale));
    assert_eq!(recorded, all.into());
}

#[tokio::test]
async fn on_sqlite_a_scale_is_recorded_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scales.db");
    let mut options = SqliteOptions::new(format!("sqlite:{}", file.display()));
    options.extensions = vec![Extension {
        name: migrations::PART,
        migrations: migrations::SQLITE,
    }];
    let ledger = SqliteLedger::open(options).await.unwrap();
    a_changed_scale_is_refused(&ledger, Dialect::Sqlite).await;
}

#[tokio::test]
async fn on_postgres_a_scale_is_recorded_for_ever() {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: run `scripts/test`, which starts PostgreSQL and sets it");
    let mut options = PostgresOptions::new(&url);
    options.schema = format!("scales_{:016x}", rand::random::<u64>());
    options.extensions = vec![Extension {
        name: migrations::PART,
        migrations: migrations::POSTGRES,
    }];
    let ledger = PostgresLedger::open(options.clone()).await.unwrap();
    a_changed_scale_is_refused(&ledger, Dialect::Postgres).await;
    let mut own = PgConnection::connect(&url).await.unwrap();
    let drop = format!(r#"DROP SCHEMA "{}" CASCADE"#, options.schema);
    own.execute(sqlx::query(AssertSqlSafe(drop))).await.unwrap();
}
