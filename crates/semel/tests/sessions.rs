//! The smallest example keeps its promises: state moves once, a repeat is ignored, an early event waits.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "../examples/sessions.rs"]
#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example prints"
)]
mod sessions;

use semel::{Outcome, Summary};
use sqlx::Connection;

async fn run(folder: &std::path::Path, events: &[(&str, &str, &str)]) -> Summary {
    let lines: String = events
        .iter()
        .map(|(id, session, kind)| {
            format!("{{\"event_id\":\"{id}\",\"session\":\"{session}\",\"kind\":\"{kind}\"}}\n")
        })
        .collect();
    let path = folder.join("events.jsonl");
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, before + &lines).unwrap();
    sessions::run(folder)
        .await
        .unwrap_or_else(|fault| panic!("{fault}"))
}

async fn state(folder: &std::path::Path, session: &str) -> String {
    let url = format!("sqlite:{}", folder.join("sessions.db").display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    sqlx::query_scalar("SELECT state FROM session WHERE id = ?1")
        .bind(session)
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn e111_a_session_is_completed_once_and_stays_completed() {
    let folder = tempfile::tempdir().unwrap();
    let summary = run(
        folder.path(),
        &[
            ("e1", "s1", "started"),
            ("e2", "s1", "completed"),
            ("e3", "s1", "completed"),
            ("e4", "s1", "started"),
            ("e2", "s1", "completed"),
        ],
    )
    .await;
    assert_eq!(summary.outcomes[&Outcome::Applied], 2);
    assert_eq!(summary.outcomes[&Outcome::Ignored], 2);
    assert_eq!(summary.outcomes[&Outcome::Duplicate], 1);
    assert_eq!(state(folder.path(), "s1").await, "Completed");
}

#[tokio::test]
async fn t76_an_early_event_is_parked_and_applied_when_its_session_starts() {
    let folder = tempfile::tempdir().unwrap();
    let first = run(folder.path(), &[("e1", "s1", "completed")]).await;
    assert_eq!(first.outcomes[&Outcome::Parked], 1);
    let second = run(folder.path(), &[("e2", "s1", "started")]).await;
    assert_eq!(second.outcomes[&Outcome::Applied], 1);
    assert_eq!(second.released[&Outcome::Applied], 1);
    assert_eq!(state(folder.path(), "s1").await, "Completed");
}
