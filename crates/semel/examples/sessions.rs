//! State validation with the user's own table: a session moves `Active → Completed` once. A second event
//! with another key is ignored by state, an early one waits for its session.
//!
//! ```sh
//! cargo run -p semel --example sessions
//! ```

use std::sync::Arc;

use semel::file::{FileSource, Settings as Files};
use semel::sqlite::{Options, SqliteLedger, Tx};
use semel::{
    Answer, Code, Consumer, Fault, Key, Message, Part, Rules, Settings, Summary, per_message,
};
use sqlx::Connection;

#[derive(serde::Deserialize)]
struct Event {
    session: String,
    kind: String,
}

const ALREADY: Code = Code::new("already_completed");
const EXISTS: Code = Code::new("already_active");
const SESSION: Code = Code::new("session");
const A_MINUTE: u64 = 60_000;

/// The handler: any SQL through `tx`, one answer, no commit.
async fn on_event(mut tx: Tx<'_>, message: Message) -> Result<Answer, Fault> {
    let event: Event = serde_json::from_slice(message.bytes())?;
    let session = Key::derive(&[Part::Text(&event.session)])?;
    if event.kind == "started" {
        let sql = "INSERT INTO session (id, state) VALUES (?1, 'Active') ON CONFLICT DO NOTHING";
        let new = sqlx::query(sql)
            .bind(&event.session)
            .execute(&mut tx)
            .await?
            .rows_affected()
            == 1;
        return Ok(if new {
            Answer::Applied {
                reply: None,
                wakes: vec![session],
            }
        } else {
            Answer::ignored(EXISTS)
        });
    }
    let sql = "UPDATE session SET state = 'Completed' WHERE id = ?1 AND state = 'Active'";
    if sqlx::query(sql)
        .bind(&event.session)
        .execute(&mut tx)
        .await?
        .rows_affected()
        == 1
    {
        return Ok(Answer::applied());
    }
    let sql = "SELECT count(*) FROM session WHERE id = ?1";
    let known: i64 = sqlx::query_scalar(sql)
        .bind(&event.session)
        .fetch_one(&mut tx)
        .await?;
    Ok(if known == 1 {
        Answer::ignored(ALREADY)
    } else {
        Answer::not_yet(SESSION, session, A_MINUTE)
    })
}

/// Applies `events.jsonl` of `folder` to `sessions.db` beside it.
pub(crate) async fn run(folder: &std::path::Path) -> Result<Summary, Fault> {
    let url = format!("sqlite:{}", folder.join("sessions.db").display());
    let ledger = Arc::new(SqliteLedger::open(Options::new(&url)).await?);
    let mut own = sqlx::SqliteConnection::connect(&url).await?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, state TEXT NOT NULL) STRICT",
    )
    .execute(&mut own)
    .await?;
    let handler = Arc::new(per_message(
        "sessions",
        Rules::new(["/event_id"])?,
        on_event,
    ));
    let consumer = Consumer::builder("sessions", ledger, handler)
        .settings(Settings {
            until_idle: true,
            ..Settings::default()
        })
        .sources(["events"])
        .enroll()
        .await?;
    let files = Files::new(folder, ["events.jsonl"]);
    let source = FileSource::open(files, consumer.positions("events")).await?;
    consumer
        .attach("events", Arc::new(source))
        .run(std::future::pending())
        .await
}

#[tokio::main]
#[allow(
    dead_code,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example; a test runs its `run` too"
)]
async fn main() {
    let folder = tempfile::tempdir().expect("a folder for the example");
    let events = r#"{"event_id":"e1","session":"s1","kind":"completed"}
{"event_id":"e2","session":"s1","kind":"started"}
{"event_id":"e2","session":"s1","kind":"started"}
{"event_id":"e3","session":"s1","kind":"completed"}
"#;
    std::fs::write(folder.path().join("events.jsonl"), events).expect("the folder is writable");
    match run(folder.path()).await {
        Ok(summary) => println!("{summary:#?}"),
        Err(fault) => eprintln!("{fault}"),
    }
}
