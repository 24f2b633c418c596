//! A message that ends the process, in real processes on both ledgers: after some restarts it is a dead letter, and
//! all its neighbours are applied. The test binary runs itself as the child.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use semel::handler::{Bound, Fresh, Handler, Said};
use semel::law::Reject;
use semel::{Answer, Consumer, Fault, Ledger, Message, Rules, Settings, Summary};
use semel_core::fingerprint::{FieldSums, Fingerprint};
use semel_file::{FileSource, Settings as Files};
use semel_postgres::PostgresLedger;
use semel_sqlite::SqliteLedger;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

/// The folder of the child; without it this binary is the parent.
const FOLDER: &str = "SEMEL_TEST_FOLDER";
const SCHEMA: &str = "SEMEL_TEST_SCHEMA";
const ABORTED: i32 = 6;

/// Applies everything, and aborts the process at one message.
struct Bomb(Rules);

impl<U: Send> Handler<U> for Bomb {
    type Work = ();

    fn name(&self) -> &str {
        "bomb"
    }

    fn rules(&self) -> Fingerprint {
        self.0.hash()
    }

    fn bind(&self, message: &Message) -> Result<Bound<()>, Reject> {
        Ok(Bound {
            binding: self.0.bind(message)?,
            lane: None,
            work: (),
        })
    }

    fn differing(&self, message: &Message, (): &(), stored: &FieldSums) -> Option<String> {
        self.0.differing(message, stored)
    }

    async fn handle(&self, _: &mut U, fresh: &[Fresh<'_, ()>]) -> Result<Vec<Said>, Fault> {
        if fresh.iter().any(|one| one.binding.id == "bomb") {
            std::process::abort();
        }
        Ok(fresh.iter().map(|_| Answer::applied().into()).collect())
    }
}

async fn work<L: Ledger>(ledger: L, folder: &Path) -> Summary {
    let handler = Arc::new(Bomb(Rules::new(["/id"]).unwrap()));
    let consumer = Consumer::builder("bomb", Arc::new(ledger), handler)
        .settings(Settings {
            until_idle: true,
            batch_count_max: 10,
            attempts_max: 2,
            lanes: 1,
            ..Settings::default()
        })
        .sources(["ops"])
        .enroll()
        .await
        .unwrap();
    let files = Files::new(folder, ["ops.jsonl"]);
    let source = FileSource::open(files, consumer.positions("ops")).await;
    let running = consumer.attach("ops", Arc::new(source.unwrap()));
    running.run(std::future::pending()).await.unwrap()
}

/// The other half of the tests below: does nothing unless one of them started this process.
#[tokio::test]
async fn the_child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let summary = match std::env::var(SCHEMA) {
        Ok(schema) => {
            let options = semel_postgres::Options {
                schema,
                ..semel_postgres::Options::new(postgres_url())
            };
            work(PostgresLedger::open(options).await.unwrap(), folder).await
        }
        Err(_) => {
            let options = semel_sqlite::Options::new(sqlite_url(folder));
            work(SqliteLedger::open(options).await.unwrap(), folder).await
        }
    };
    println!("\nunits {}", summary.units);
}

fn postgres_url() -> String {
    std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: run scripts/test")
}

fn sqlite_url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("semel.db").display())
}

/// A folder of operations and a ledger.
struct Place {
    folder: tempfile::TempDir,
    schema: Option<String>,
}

impl Place {
    fn append(&self, ids: impl IntoIterator<Item = String>) {
        let path = self.folder.path().join("ops.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap_or_default();
        for id in ids {
            text += &format!("{{\"id\":\"{id}\"}}\n");
        }
        std::fs::write(path, text).unwrap();
    }

    /// One life of the process: the units it committed, or `None` when it was ended by the message.
    fn life(&self) -> Option<u64> {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "the_child", "--nocapture", "--test-threads=1"])
            .env(FOLDER, self.folder.path())
            .env_remove(SCHEMA)
            .stderr(Stdio::null());
        if let Some(schema) = &self.schema {
            child.env(SCHEMA, schema);
        }
        let ran = child.output().unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&ran.status);
        assert!(ran.status.success() || signal == Some(ABORTED), "{ran:?}");
        let said = String::from_utf8(ran.stdout).unwrap();
        let units = said.lines().find_map(|line| line.strip_prefix("units "));
        units.map(|units| units.parse().unwrap())
    }

    /// The restart took its time: every row is a minute older.
    async fn wait_a_minute(&self) {
        self.change(
            "UPDATE semel_fence SET seen_at = seen_at - interval '60 s'",
            "UPDATE semel_fence SET seen_at = seen_at - 60000000",
        )
        .await;
    }

    async fn change(&self, postgres: &str, sqlite: &str) {
        match &self.schema {
            Some(schema) => {
                let sql = format!("SET search_path TO {schema}; {postgres}");
                let mut database = PgConnection::connect(&postgres_url()).await.unwrap();
                let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut database);
                done.await.unwrap();
            }
            None => {
                let url = sqlite_url(self.folder.path());
                let mut database = SqliteConnection::connect(&url).await.unwrap();
                let sql = AssertSqlSafe(sqlite.to_owned());
                sqlx::raw_sql(sql).execute(&mut database).await.unwrap();
            }
        }
    }

    async fn count(&self, of: &str) -> i64 {
        match &self.schema {
            Some(schema) => {
                let sql = format!("SELECT count(*) FROM {schema}.{of}");
                let mut database = PgConnection::connect(&postgres_url()).await.unwrap();
                let query = sqlx::query_scalar(AssertSqlSafe(sql));
                query.fetch_one(&mut database).await.unwrap()
            }
            None => {
                let url = sqlite_url(self.folder.path());
                let mut database = SqliteConnection::connect(&url).await.unwrap();
                let query = AssertSqlSafe(format!("SELECT count(*) FROM {of}"));
                sqlx::query_scalar(query)
                    .fetch_one(&mut database)
                    .await
                    .unwrap()
            }
        }
    }
}

/// Twenty innocents, then a unit with the message in its midst, then more of them.
async fn a_message_that_ends_the_process(place: Place) {
    place.append((0..23).map(|n| n.to_string()));
    place.append(["bomb".to_owned()]);
    place.append((23..60).map(|n| n.to_string()));
    let mut applied = Vec::new();
    while place.life().is_none() {
        applied.push(place.count("semel_ledger").await);
        assert!(applied.len() < 10, "it dies for ever: {applied:?}");
        place.wait_a_minute().await;
    }
    // The first life commits before it dies; two die with the whole unit; then it is tried alone, twice.
    assert_eq!(applied, [20, 20, 20, 23, 23]);
    assert_eq!(place.count("semel_ledger").await, 60);
    let poison = "semel_dead WHERE code = 'poison' AND id = 'bomb' AND attempts = 2";
    assert_eq!(place.count(poison).await, 1);
    assert_eq!(place.count("semel_dead").await, 1);
    assert_eq!(place.count("semel_attempt").await, 0);
    // It has ended well so often that the next life takes whole units again.
    place.wait_a_minute().await;
    place.append((60..100).map(|n| n.to_string()));
    let units = place.life().unwrap();
    assert!(units < 15, "{units} units for 40 messages");
    assert_eq!(place.count("semel_ledger").await, 100);
}

#[tokio::test]
async fn t45_on_sqlite_a_message_that_ends_the_process_is_dead_and_its_neighbours_are_applied() {
    let place = Place {
        folder: tempfile::tempdir().unwrap(),
        schema: None,
    };
    a_message_that_ends_the_process(place).await;
}

#[tokio::test]
async fn t45_on_postgres_a_message_that_ends_the_process_is_dead_and_its_neighbours_are_applied() {
    let schema = format!("suspects_{}", std::process::id());
    let place = Place {
        folder: tempfile::tempdir().unwrap(),
        schema: Some(schema.clone()),
    };
    a_message_that_ends_the_process(place).await;
    let mut database = PgConnection::connect(&postgres_url()).await.unwrap();
    let drop = AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"));
    sqlx::raw_sql(drop).execute(&mut database).await.unwrap();
}
