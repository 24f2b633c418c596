//! Plans of the read side: an audit of a large book takes seconds.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};

/// SQLite makes no index of its own for a table without rowid, so a join on an unindexed column reads the whole table
/// once for each row: an audit of 50 thousand operations took minutes.
#[tokio::test]
async fn no_statement_on_sqlite_reads_a_whole_table_for_each_row_of_another() {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    for schema in [
        include_str!("../../semel-sqlite/schema.sql"),
        include_str!("../migrations/sqlite/schema.sql"),
    ] {
        sqlx::raw_sql(schema)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql/sqlite");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let sql = format!(
            "EXPLAIN QUERY PLAN {}",
            std::fs::read_to_string(&path).unwrap()
        );
        let plan = sqlx::raw_sql(AssertSqlSafe(sql))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        for step in &plan {
            let step: String = step.get("detail");
            assert!(
                !(step.starts_with("SCAN") && step.ends_with("LEFT-JOIN")),
                "{}: {step}",
                path.display()
            );
        }
        seen += usize::from(!plan.is_empty());
    }
    assert!(seen > 20, "{seen}");
}
