//! The tables: migrations make what `schema.sql` says, and a file that is newer than the program is refused.

#![expect(
    clippy::unwrap_used,
    reason = "a test says what it expects by unwrapping"
)]

mod world;

use semel_core::Class;
use semel_sql::Extension;
use semel_sqlite::{Options, SqliteLedger};
use sqlx::{Connection, Executor, Row, SqliteConnection};

use world::{World, url};

/// Every object and its text, but for names of indexes that SQLite makes itself.
async fn objects(connection: &mut SqliteConnection) -> Vec<(String, String)> {
    let sql = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let rows = connection.fetch_all(sql).await.unwrap();
    rows.iter()
        .map(|row| {
            let text = row.get::<String, _>(1);
            (
                row.get(0),
                text.split_whitespace().collect::<Vec<_>>().join(" "),
            )
        })
        .collect()
}

#[tokio::test]
async fn the_migrations_make_what_schema_sql_says() {
    let world = World::open().await;
    let mut migrated = SqliteConnection::connect(&url(&world.path)).await.unwrap();
    let mut written = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    written
        .execute(include_str!("../schema.sql"))
        .await
        .unwrap();
    let (migrated, written) = (objects(&mut migrated).await, objects(&mut written).await);
    assert_eq!(migrated.len(), written.len());
    for (migrated, written) in migrated.iter().zip(&written) {
        assert_eq!(migrated, written);
    }
}

const WALLET: Extension = Extension {
    name: "wallet",
    migrations: &[(
        "0001_book",
        "CREATE TABLE account (id BLOB PRIMARY KEY) STRICT; CREATE TABLE entry (id BLOB) STRICT",
    )],
};

#[tokio::test]
async fn a_dry_run_tells_what_is_missing_and_does_nothing() {
    let world = World::open().await;
    let options = |migrate| Options {
        migrate,
        extensions: vec![WALLET],
        ..Options::new(url(&world.path))
    };
    let fault = SqliteLedger::open(options(false)).await.unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    assert!(
        fault.detail().contains("wallet/0001_book") && fault.detail().contains("semel migrate"),
        "{fault}"
    );
    assert!(world.try_sql("SELECT * FROM account").await.is_err());

    let ledger = SqliteLedger::open(options(true)).await.unwrap();
    world.sql("SELECT * FROM account").await;
    let again = ledger.migrate(false).await.unwrap();
    assert_eq!((again.from, again.to, again.applied.len()), (1, 1, 0));
}

#[tokio::test]
async fn a_new_file_reports_its_first_migration() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new(url(&dir.path().join("semel.db")));
    SqliteLedger::open(options.clone()).await.unwrap();
    let fault = SqliteLedger::open(Options {
        create: false,
        url: url(&dir.path().join("no.db")),
        ..options
    })
    .await;
    assert_eq!(fault.unwrap_err().class, Class::Down);
}

#[tokio::test]
async fn tables_newer_than_the_program_stop_it() {
    let world = World::open().await;
    world.sql("INSERT INTO semel_schema (part, version, name, min_binary) VALUES ('semel', 2, '0002_x', 2)").await;
    let fault = SqliteLedger::open(Options::new(url(&world.path)))
        .await
        .unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    assert!(fault.detail().contains("newer"), "{fault}");
}

#[tokio::test]
async fn a_migration_that_needs_a_newer_program_stops_this_one_wherever_it_stands() {
    let world = World::open().await;
    world
        .sql("UPDATE semel_schema SET min_binary = 2 WHERE part = 'semel' AND version = 1")
        .await;
    let fault = SqliteLedger::open(Options::new(url(&world.path)))
        .await
        .unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    assert!(
        !fault.is_refusal() && fault.detail().contains("run a newer program"),
        "{fault}"
    );
}

#[tokio::test]
async fn tables_newer_but_declared_compatible_are_taken() {
    let world = World::open().await;
    world.sql("INSERT INTO semel_schema (part, version, name, min_binary) VALUES ('semel', 2, '0002_x', 1)").await;
    SqliteLedger::open(Options::new(url(&world.path)))
        .await
        .unwrap();
    let migrated = SqliteLedger::migrate_at(Options::new(url(&world.path)), true).await;
    let migrated = migrated.unwrap();
    assert_eq!((migrated.from, migrated.to), (2, 2), "nothing goes back");
}
