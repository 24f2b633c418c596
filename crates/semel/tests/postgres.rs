//! The engine with per-message handlers on PostgreSQL, where other units' rows appear in the middle of one.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use semel::postgres::{Options, PostgresLedger};
use semel::{Answer, Consumer, Fault, Message, Outcome, Rules, Settings, Tx, per_message};
use semel_storm::SimSource;
use sqlx::{Connection, PgConnection, Postgres};

/// Puts the payload's last word into a table whose rows are unique.
async fn put(mut tx: Tx<'_, Postgres>, message: Message) -> Result<Answer, Fault> {
    let payload = String::from_utf8(message.bytes().to_vec())?;
    let name = payload.rsplit('"').nth(1).unwrap_or_default().to_owned();
    sqlx::query("INSERT INTO named VALUES ($1)")
        .bind(name)
        .execute(&mut tx)
        .await?;
    Ok(Answer::applied())
}

#[tokio::test]
async fn t25_a_unique_violation_of_the_users_table_costs_its_message_and_no_neighbour_waits_for_it()
{
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: run `scripts/test`, which starts PostgreSQL and sets it");
    let mut options = Options::new(url.clone());
    options.schema = format!("test_{:016x}", rand::random::<u64>());
    let schema = options.schema.clone();
    let ledger = PostgresLedger::open(options)
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
    let mut psql = PgConnection::connect(&url).await.unwrap();
    let tables = format!(
        "SET search_path = {schema}; CREATE TABLE named (name text UNIQUE); INSERT INTO named VALUES ('taken')"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(tables))
        .execute(&mut psql)
        .await
        .unwrap();

    let source = SimSource::new(1);
    for (id, name) in [("1", "a"), ("2", "taken"), ("3", "b"), ("4", "a")] {
        let payload = format!(r#"{{"id":"{id}","name":"{name}"}}"#);
        source.push_payload("p", payload.into_bytes());
    }
    let handler = per_message("put", Rules::new(["/id"]).unwrap(), put);
    let consumer = Consumer::builder("put", Arc::new(ledger), Arc::new(handler))
        .settings(Settings {
            until_idle: true,
            ..Settings::default()
        })
        .sources(["sim"])
        .enroll()
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
    let summary = consumer
        .attach("sim", Arc::new(source))
        .run(std::future::pending())
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(summary.outcomes[&Outcome::Applied], 2);
    assert_eq!(summary.outcomes[&Outcome::Dead], 2);
    assert_eq!(summary.units, 1, "no unit was run again for it");
    let attempts: Vec<i32> = sqlx::query_scalar("SELECT attempts FROM semel_dead")
        .fetch_all(&mut psql)
        .await
        .unwrap();
    assert_eq!(attempts, [1, 1]);
}
