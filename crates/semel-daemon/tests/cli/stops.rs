//! Stopping: what is broken stops the consumer and kills no message, and a clean stop keeps nothing to itself.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, SqliteConnection};

use crate::place::{Backend, OPENING, Place, on_both, postgres_url};
use crate::run::signal;

on_both!(
    a_missing_wallet_table_stops_the_run_and_kills_no_message,
    a_table_of_the_ledger_that_goes_away_stops_the_run_instead_of_a_spin,
    a_clean_stop_gives_back_what_was_leased,
);

/// No test may wait longer than this, whatever happens.
const BOUND: Duration = Duration::from_secs(120);

/// Runs statements on the place's ledger; the first column of the last row, if any.
fn sql(place: &Place, sql: &str) -> Option<i64> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        if let Some(schema) = place.schema() {
            let mut connection = PgConnection::connect(&postgres_url()).await.unwrap();
            let sql = format!("SET search_path = {schema}; {sql}");
            let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut connection);
            rows.await.unwrap().last().map(|row| row.get(0))
        } else {
            let url = format!("sqlite:{}", place.path().join("semel.db").display());
            let mut connection = SqliteConnection::connect(&url).await.unwrap();
            let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(&mut connection);
            rows.await.unwrap().last().map(|row| row.get(0))
        }
    })
}

/// The exit code of a child that is to end by itself.
fn ended(child: &mut Child) -> Option<i32> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if since.elapsed() > BOUND {
            child.kill().unwrap();
            panic!("it runs on after {BOUND:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn a_missing_wallet_table_stops_the_run_and_kills_no_message(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING);
    place.drained(&[]);
    sql(&place, "ALTER TABLE wallet_account RENAME TO elsewhere");
    let more = r#"{"op":"open_account","id":"open-p3","account":"p3","asset":"EUR"}"#;
    place.write_lines("ops.jsonl", OPENING.into_iter().chain([more]));
    let ran = place.semel(&["run", "--until-idle"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("wallet_account"), "{}", ran.err);
    let left =
        "SELECT (SELECT count(*) FROM semel_dead) * 100 + (SELECT count(*) FROM semel_ledger)";
    assert_eq!(
        sql(&place, left),
        Some(5),
        "no letter, and no key of the new message"
    );
    sql(&place, "ALTER TABLE elsewhere RENAME TO wallet_account");
    let (lines, _) = place.drained(&[]);
    assert_eq!(
        (lines.len(), &lines[0]["outcome"]),
        (1, &Value::from("applied"))
    );
}

fn a_table_of_the_ledger_that_goes_away_stops_the_run_instead_of_a_spin(place: Place) {
    queue(&place, "lease_ms = 60000", "");
    place.write_lines("ops.jsonl", [OPENING[0]]);
    place.semel(&["publish", "inbox", "ops.jsonl"]).ok();
    let mut child = started(&place, &[]);
    sql(&place, "ALTER TABLE semel_parked RENAME TO elsewhere");
    assert_eq!(ended(&mut child), Some(4));
    let left =
        "SELECT (SELECT count(*) FROM semel_dead) * 100 + (SELECT count(*) FROM semel_ledger)";
    assert_eq!(sql(&place, left), Some(1));
}

fn a_clean_stop_gives_back_what_was_leased(place: Place) {
    // A lease outlives the test: what is kept would be seen.
    queue(&place, "lease_ms = 3600000", "batch_count_max = 20");
    let open =
        |i: u32| format!(r#"{{"op":"open_account","id":"o{i}","account":"a{i}","asset":"EUR"}}"#);
    place.write_lines("ops.jsonl", (0..3_000).map(open));
    place.semel(&["publish", "inbox", "ops.jsonl"]).ok();
    let mut child = started(&place, &[]);
    signal(&child, "TERM");
    assert_eq!(ended(&mut child), Some(143));
    let waiting = sql(&place, "SELECT count(*) FROM semel_queue").unwrap();
    assert!(waiting > 0, "it was stopped before it was done");
    let leased = match place.schema() {
        Some(_) => "SELECT count(*) FROM semel_queue WHERE visible_at > now()",
        None => "SELECT count(*) FROM semel_queue WHERE visible_at > unixepoch('subsec') * 1000000",
    };
    assert_eq!(sql(&place, leased), Some(0), "of {waiting}");
    place.drained(&[]);
    assert_eq!(
        sql(
            &place,
            "SELECT count(*) FROM semel_ledger WHERE outcome = 1"
        ),
        Some(3_000)
    );
}

fn queue(place: &Place, source: &str, consumer: &str) {
    place.config(&format!(
        "[sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\n{source}\n\
         [consumers.wallet]\nsources = [\"inbox\"]\nhandler = \"wallet\"\n{consumer}\n\
         [consumers.wallet.wallet]\nassets = {{ EUR = 2 }}\n"
    ));
}

/// A run that has told its first outcome. What else it prints is read and thrown away, so that it never waits for us.
fn started(place: &Place, args: &[&str]) -> Child {
    let mut child = place
        .command(&[&["run", "--json", "--outcomes", "-"], args].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    child
}

/// Runs a statement as the server's operator.
fn operate(sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut connection = PgConnection::connect(&postgres_url()).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&mut connection)
            .await
            .unwrap();
    });
}

#[test]
fn e017_a_server_that_ends_every_session_and_lets_nobody_in_is_waited_for() {
    let place = Place::new(Backend::Postgres);
    let role = format!("semel_e017_{}", std::process::id());
    operate(&format!(
        "CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'semel'"
    ));
    let url = postgres_url();
    let (_, server) = url.split_once('@').unwrap();
    queue(&place, "lease_ms = 15000", "batch_count_max = 5");
    let config = place.read("semel.toml");
    let (head, _) = url.split_once('@').unwrap();
    let ours = config.replace(
        &format!("{head}@{server}"),
        &format!("postgres://{role}:semel@{server}"),
    );
    assert_ne!(ours, config);
    place.write("semel.toml", ours);
    let open =
        |i: u32| format!(r#"{{"op":"open_account","id":"o{i}","account":"a{i}","asset":"EUR"}}"#);
    place.write_lines("ops.jsonl", (0..1_500).map(open));
    place.semel(&["publish", "inbox", "ops.jsonl"]).ok();
    let mut child = started(&place, &["--until-idle"]);
    operate(&format!(
        "ALTER ROLE {role} NOLOGIN; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
    ));
    let mut words = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    while !said
        .last()
        .is_some_and(|line: &String| line.contains("paused"))
    {
        let Some(line) = words.next() else {
            panic!("it ended: {:?}: {said:#?}", child.wait().unwrap().code());
        };
        said.push(line.unwrap());
    }
    // Nobody listens to what it goes on to say: that is no reason to end.
    drop(words);
    // Nothing is acked that is not in the ledger: what left the queue has its row.
    let sum = "SELECT (SELECT count(*) FROM semel_queue) + (SELECT count(*) FROM semel_ledger)";
    assert!(sql(&place, sum) >= Some(1_500));
    assert!(sql(&place, "SELECT count(*) FROM semel_queue") > Some(0));
    operate(&format!("ALTER ROLE {role} LOGIN"));
    assert_eq!(ended(&mut child), Some(0), "it goes on by itself");
    assert_eq!(
        sql(
            &place,
            "SELECT count(*) FROM semel_ledger WHERE outcome = 1"
        ),
        Some(1_500)
    );
    assert_eq!(
        sql(&place, "SELECT count(*) FROM wallet_account"),
        Some(1_500)
    );
    assert_eq!(sql(&place, "SELECT count(*) FROM semel_dead"), Some(0));
    drop(place);
    operate(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"));
}
