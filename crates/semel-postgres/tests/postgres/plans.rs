//! Plans: the ledger is probed by its index however old the statistics are.

use sqlx::PgConnection;

use crate::world::{World, number, run, texts};

/// The ledger's statements with their parameter types.
const STATEMENTS: [(&str, &str, &str); 6] = [
    (
        "claim",
        "int, smallint, smallint, uuid[], uuid[], bytea[]",
        include_str!("../../src/sql/claim.sql"),
    ),
    (
        "claim_mixed",
        "int, uuid[], uuid[], smallint[], bytea[], smallint[]",
        include_str!("../../src/sql/claim_mixed.sql"),
    ),
    (
        "seen",
        "int, uuid[]",
        include_str!("../../src/sql/seen.sql"),
    ),
    (
        "release",
        "int, uuid[]",
        include_str!("../../src/sql/release.sql"),
    ),
    (
        "note",
        "int, uuid[], smallint[], text[], bytea[]",
        include_str!("../../src/sql/note.sql"),
    ),
    (
        "unclaim",
        "int, uuid[]",
        include_str!("../../src/sql/unclaim.sql"),
    ),
];

fn arguments(name: &str) -> &'static str {
    match name {
        "claim" => "1, 1::smallint, 1::smallint, $k, $k, array_fill(''::bytea, ARRAY[1000])",
        "claim_mixed" => {
            "1, $k, $k, array_fill(1::smallint, ARRAY[1000]), array_fill(''::bytea, ARRAY[1000]), array_fill(1::smallint, ARRAY[1000])"
        }
        "note" => {
            "1, $k, array_fill(1::smallint, ARRAY[1000]), array_fill(''::text, ARRAY[1000]), array_fill(''::bytea, ARRAY[1000])"
        }
        _ => "1, $k",
    }
}

async fn explain(psql: &mut PgConnection, name: &str) -> String {
    let keys = format!(
        "'{{{}}}'",
        vec!["00000000-0000-0000-0000-000000000001"; 1000].join(",")
    );
    let call = arguments(name).replace("$k", &keys);
    texts(psql, &format!("EXPLAIN EXECUTE {name}({call})"))
        .await
        .join("\n")
}

async fn prepare(psql: &mut PgConnection) {
    for (name, types, sql) in STATEMENTS {
        run(psql, &format!("PREPARE {name} ({types}) AS {sql}")).await;
    }
}

async fn fill(psql: &mut PgConnection, rows: u32) {
    let sql = format!(
        "INSERT INTO semel_ledger (consumer, key, fingerprint, scheme, field_sums, outcome, source)
         SELECT 1, gen_random_uuid(), gen_random_uuid(), 1, '', 1, 1 FROM generate_series(1, {rows})"
    );
    run(psql, &sql).await;
}

/// A table of one row that was vacuumed: the planner knows that it has one page, and nothing will tell it better.
async fn stale(psql: &mut PgConnection) {
    run(
        psql,
        "ALTER TABLE semel_ledger SET (autovacuum_enabled = off)",
    )
    .await;
    fill(psql, 1).await;
    run(psql, "VACUUM ANALYZE semel_ledger").await;
}

#[tokio::test]
async fn t30_statistics_of_a_tiny_table_do_not_make_anybody_read_the_whole_ledger() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    stale(&mut psql).await;
    fill(&mut psql, 100_000).await;
    prepare(&mut psql).await;
    for mode in ["force_custom_plan", "force_generic_plan"] {
        run(&mut psql, &format!("SET plan_cache_mode = {mode}")).await;
        for (name, ..) in STATEMENTS {
            let plan = explain(&mut psql, name).await;
            assert!(
                !plan.contains("Seq Scan on semel_ledger"),
                "{mode} {name}:\n{plan}"
            );
            assert!(
                plan.contains("Index Scan using semel_ledger_key"),
                "{mode} {name}:\n{plan}"
            );
        }
    }
}

#[tokio::test]
async fn t30_a_plan_made_while_the_ledger_was_tiny_is_forgotten() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    stale(&mut psql).await;
    prepare(&mut psql).await;
    run(&mut psql, "SET plan_cache_mode = force_generic_plan").await;
    let tiny = explain(&mut psql, "seen").await;
    assert!(tiny.contains("Seq Scan on semel_ledger"), "{tiny}");
    // Growth alone replans nothing; only what others do to the catalog may.
    fill(&mut psql, 100_000).await;
    run(&mut psql, "BEGIN; DISCARD PLANS").await;
    let after = explain(&mut psql, "seen").await;
    run(&mut psql, "ROLLBACK").await;
    assert!(
        after.contains("Index Scan using semel_ledger_key"),
        "{after}"
    );
}

#[tokio::test]
async fn t30_the_naive_probe_reads_the_whole_ledger() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    fill(&mut psql, 100_000).await;
    run(&mut psql, "ANALYZE semel_ledger").await;
    let keys: Vec<String> = (0..1_000)
        .map(|n| crate::world::key(n).to_string())
        .collect();
    let probe = format!(
        "EXPLAIN SELECT outcome FROM semel_ledger WHERE consumer = 1 AND key = ANY ('{{{}}}')",
        keys.join(",")
    );
    let plan = texts(&mut psql, &probe).await.join("\n");
    assert!(
        plan.contains("Seq Scan on semel_ledger"),
        "the attack proves nothing:\n{plan}"
    );
}

#[tokio::test]
async fn a_message_costs_few_bytes() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    fill(&mut psql, 100_000).await;
    run(&mut psql, "REINDEX TABLE semel_ledger").await;
    let bytes = number(
        &mut psql,
        "SELECT pg_total_relation_size('semel_ledger') / 100000",
    )
    .await;
    assert!(bytes <= 150, "{bytes} bytes a key");
}
