//! The lent transaction on a real database: what it runs, what poisons it, and what it refuses.

#![expect(
    clippy::unwrap_used,
    reason = "a test says what it expects by unwrapping"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use semel_core::{Answer, Class, Fault, Message};
use semel_sql::{Lend, PerMessage, Tx, Watch, bind};
use sqlx::{Connection, Executor, Sqlite, SqliteConnection};

/// The smallest unit: a connection with an open transaction.
struct Unit {
    connection: SqliteConnection,
    watch: Watch,
}

impl Lend for Unit {
    type Db = Sqlite;

    fn lend(&mut self) -> Tx<'_, Sqlite> {
        self.watch.lent();
        Tx::new(&mut self.connection, &mut self.watch)
    }

    fn verdict(&self) -> Option<Fault> {
        self.watch.verdict()
    }

    fn wrote(&self) -> bool {
        self.watch.wrote()
    }
}

async fn unit() -> Unit {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    connection
        .execute(
            "CREATE TABLE wallet (name TEXT PRIMARY KEY, balance INTEGER CHECK (balance >= 0))",
        )
        .await
        .unwrap();
    connection
        .execute("INSERT INTO wallet VALUES ('anna', 5), ('bert', 5)")
        .await
        .unwrap();
    connection.execute("BEGIN IMMEDIATE").await.unwrap();
    Unit {
        connection,
        watch: Watch::new(|_| Class::Busy),
    }
}

fn message() -> Message {
    Message::new(b"{}".as_slice(), "ops.jsonl", Some(1))
}

/// As an engine runs a handler: generic over the unit, in a spawned task.
async fn run<F, U>(handler: F, mut unit: U) -> (Result<Answer, Fault>, U)
where
    U: Lend + Send + 'static,
    F: for<'t> PerMessage<'t, U::Db> + 'static,
{
    tokio::spawn(async move {
        let answer = handler.call(unit.lend(), message()).await;
        (answer, unit)
    })
    .await
    .unwrap()
}

async fn pay(mut tx: Tx<'_, Sqlite>, _: Message) -> Result<Answer, Fault> {
    sqlx::query("UPDATE wallet SET balance = balance + 1 WHERE name = ?1")
        .bind("anna")
        .execute(&mut tx)
        .await?;
    let balance: i64 = sqlx::query_scalar("SELECT balance FROM wallet")
        .fetch_one(&mut tx)
        .await?;
    assert_eq!(balance, 6);
    Ok(Answer::applied())
}

#[tokio::test]
async fn a_plain_async_function_is_a_handler() {
    let (answer, unit) = run(pay, unit().await).await;
    assert_eq!(answer.unwrap(), Answer::applied());
    assert!(unit.verdict().is_none());
    assert!(unit.wrote());
}

struct Rates {
    calls: AtomicU64,
}

async fn counted(rates: Arc<Rates>, mut tx: Tx<'_, Sqlite>, _: Message) -> Result<Answer, Fault> {
    rates.calls.fetch_add(1, Ordering::Relaxed);
    sqlx::query("SELECT 1").execute(&mut tx).await?;
    Ok(Answer::applied())
}

#[tokio::test]
async fn state_comes_in_by_binding() {
    let rates = Arc::new(Rates {
        calls: AtomicU64::new(0),
    });
    let (answer, unit) = run(bind(rates.clone(), counted), unit().await).await;
    answer.unwrap();
    assert!(!unit.wrote(), "a plain read writes nothing");
    assert_eq!(rates.calls.load(Ordering::Relaxed), 1);
}

struct Credit {
    amount: i64,
}

impl<'t> PerMessage<'t, Sqlite> for Credit {
    async fn call(&'t self, mut tx: Tx<'t, Sqlite>, _: Message) -> Result<Answer, Fault> {
        sqlx::query("UPDATE wallet SET balance = balance + ?1")
            .bind(self.amount)
            .execute(&mut tx)
            .await?;
        Ok(Answer::applied())
    }
}

#[tokio::test]
async fn a_struct_can_be_a_handler() {
    let (answer, _) = run(Credit { amount: 3 }, unit().await).await;
    answer.unwrap();
}

async fn swallow(mut tx: Tx<'_, Sqlite>, _: Message) -> Result<Answer, Fault> {
    let _ = sqlx::query("UPDATE wallet SET balance = -1")
        .execute(&mut tx)
        .await;
    let later = sqlx::query("UPDATE wallet SET balance = 9")
        .execute(&mut tx)
        .await
        .unwrap_err();
    assert!(later.to_string().contains("runs nothing more"), "{later}");
    Ok(Answer::applied())
}

#[tokio::test]
async fn t01_a_swallowed_error_poisons_the_transaction() {
    let (answer, mut unit) = run(swallow, unit().await).await;
    answer.unwrap();
    let verdict = unit.verdict().unwrap();
    assert_eq!(verdict.class, Class::Busy, "the class is the dialect's");
    assert!(verdict.detail().contains("CHECK"), "{verdict}");
    let balance: i64 = sqlx::query_scalar("SELECT max(balance) FROM wallet")
        .fetch_one(&mut unit.connection)
        .await
        .unwrap();
    assert_eq!(balance, 5);
    unit.watch.reset();
    assert!(unit.verdict().is_none(), "going back to a savepoint heals");
}

async fn half_read(mut tx: Tx<'_, Sqlite>, _: Message) -> Result<Answer, Fault> {
    let mut rows = sqlx::query("SELECT name FROM wallet").fetch(&mut tx);
    rows.next().await.unwrap()?;
    drop(rows);
    Ok(Answer::applied())
}

#[tokio::test]
async fn t64_a_half_read_fetch_poisons_the_transaction() {
    let (answer, unit) = run(half_read, unit().await).await;
    answer.unwrap();
    assert!(
        unit.verdict()
            .unwrap()
            .detail()
            .contains("dropped before it ended")
    );
}

async fn read_to_the_end(mut tx: Tx<'_, Sqlite>, _: Message) -> Result<Answer, Fault> {
    let mut rows = sqlx::query("SELECT name FROM wallet").fetch(&mut tx);
    while let Some(row) = rows.next().await {
        row?;
    }
    drop(rows);
    drop(sqlx::query("SELECT name FROM wallet").fetch(&mut tx));
    let one = sqlx::query("SELECT name FROM wallet")
        .fetch_optional(&mut tx)
        .await?;
    assert!(one.is_some());
    Ok(Answer::applied())
}

#[tokio::test]
async fn reading_to_the_end_or_never_starting_does_not_poison() {
    let (answer, unit) = run(read_to_the_end, unit().await).await;
    answer.unwrap();
    assert!(unit.verdict().is_none());
}

async fn commits(mut tx: Tx<'_, Sqlite>, _: Message) -> Result<Answer, Fault> {
    tx.execute("/* done */ COMMIT").await?;
    Ok(Answer::applied())
}

#[tokio::test]
async fn transaction_control_is_refused_and_poisons() {
    let (answer, mut unit) = run(commits, unit().await).await;
    assert!(
        answer
            .unwrap_err()
            .detail()
            .contains("`COMMIT` is not for a handler")
    );
    assert_eq!(unit.verdict().unwrap().class, Class::Poison);
    // Still inside the transaction: it can be rolled back.
    unit.connection.execute("ROLLBACK").await.unwrap();
}

async fn prepared(mut tx: Tx<'_, Sqlite>, _: Message) -> Result<Answer, Fault> {
    use sqlx::Statement;
    let statement = tx
        .prepare(sqlx::SqlSafeStr::into_sql_str(
            "SELECT balance FROM wallet WHERE name = ?1",
        ))
        .await?;
    let (balance,): (i64,) = statement.query_as().bind("bert").fetch_one(&mut tx).await?;
    assert_eq!(balance, 5);
    Ok(Answer::applied())
}

#[tokio::test]
async fn prepared_statements_keep_their_arguments() {
    let (answer, unit) = run(prepared, unit().await).await;
    answer.unwrap();
    assert!(unit.verdict().is_none());
}
