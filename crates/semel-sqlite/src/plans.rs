//! Every statement finds its rows by an index, in every length it has, whatever the statistics say (TRAPS T30).

use sqlx::{AssertSqlSafe, Connection, Executor, Row, SqliteConnection};

use crate::bulk::Bulk;

/// Statements that ask no table.
const PLANLESS: [&str; 4] = ["begin", "clock", "schema_table", "schema_exists"];

/// What may be read from end to end: the rows that came with the statement.
const GIVEN: [&str; 4] = ["claim", "wanted", "CONSTANT ROW", "VALUES CLAUSE"];

/// A full ledger, parked messages and a queue, so that a plan that reads them all would look cheap or dear.
const FILL: &str = "
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
INSERT INTO semel_ledger (consumer, key, fingerprint, scheme, field_sums, outcome, source)
SELECT 1, randomblob(16), zeroblob(16), 1, x'', 1, 1 FROM n;
INSERT INTO semel_parked (consumer, key, id, awaiting, awaiting_key, source, partition, attempts, due_at, deadline,
                          headers)
SELECT 1, key, '', 'round', key, 1, 'p', 1, 1, 1, x'' FROM semel_ledger;
INSERT INTO semel_queue (queue, headers) SELECT 'q', x'' FROM semel_ledger;
INSERT INTO semel_dead (consumer, letter, code, detail, hash, attempts, count, source, partition, size, headers)
SELECT 1, key, 'c', '', key, 0, 1, 1, 'p', 0, x'' FROM semel_ledger;
INSERT INTO semel_attempt SELECT 1, key, 1 FROM semel_ledger;
ANALYZE";

async fn check(connection: &mut SqliteConnection, name: &str, sql: &str) {
    let plan = connection
        .fetch_all(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")))
        .await
        .unwrap();
    for step in plan {
        let step = step.get::<String, _>("detail");
        let given = GIVEN.iter().any(|name| step.contains(name));
        assert!(!step.starts_with("SCAN") || given, "{name}: {step}");
    }
}

#[tokio::test]
async fn t30_every_statement_finds_its_rows_by_an_index() {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    connection
        .execute(include_str!("../schema.sql"))
        .await
        .unwrap();
    for filled in [false, true] {
        if filled {
            connection.execute(FILL).await.unwrap();
        }
        let mut statements = 0;
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let sql = std::fs::read_to_string(&path).unwrap();
            assert!(
                sql.starts_with("-- "),
                "{name} says what it locks and which index serves it"
            );
            if PLANLESS.contains(&&*name) {
                continue;
            }
            statements += 1;
            check(&mut connection, &name, &sql).await;
            if sql.contains("VALUES (") && !sql.contains("?1") {
                for sql in Bulk::new(&sql).texts() {
                    check(&mut connection, &name, sql).await;
                }
            }
        }
        assert!(statements > 30);
    }
}
