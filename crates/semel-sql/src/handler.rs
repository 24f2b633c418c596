//! Per-message handlers: plain async functions over the open transaction.

use std::future::Future;

use semel_core::{Answer, Fault, Message};
use sqlx::Database;

use crate::tx::Tx;

/// Business logic for one message, on a transaction lent for the call.
///
/// Every `async fn(Tx<'_, DB>, Message) -> Result<Answer, Fault>` is one:
///
/// ```
/// use semel_core::{Answer, Fault, Message};
/// use semel_sql::{PerMessage, Tx};
/// use sqlx::Sqlite;
///
/// async fn credit(mut tx: Tx<'_, Sqlite>, message: Message) -> Result<Answer, Fault> {
///     sqlx::query("UPDATE wallet SET balance = balance + ?1 WHERE name = 'anna'")
///         .bind(message.bytes().len() as i64)
///         .execute(&mut tx)
///         .await?;
///     Ok(Answer::applied())
/// }
///
/// fn is_a_handler<F: for<'t> PerMessage<'t, Sqlite>>(_: F) {}
/// is_a_handler(credit);
/// ```
///
/// State comes in by [`bind`], or by implementing the trait:
///
/// ```
/// # use semel_core::{Answer, Fault, Message};
/// # use semel_sql::{PerMessage, Tx};
/// # use sqlx::Sqlite;
/// struct Credit {
///     limit: i64,
/// }
///
/// impl<'t> PerMessage<'t, Sqlite> for Credit {
///     async fn call(&'t self, mut tx: Tx<'t, Sqlite>, _: Message) -> Result<Answer, Fault> {
///         sqlx::query("UPDATE wallet SET spent = ?1").bind(self.limit).execute(&mut tx).await?;
///         Ok(Answer::applied())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a per-message handler for `{DB}`",
    label = "not `async fn(Tx<'_, {DB}>, Message) -> Result<Answer, Fault>`",
    note = "the handler takes the `Tx` by value and the `Message`, and returns `Result<Answer, Fault>`",
    note = "its future must be `Send`: keep no `Rc`, `RefCell` borrow or lock guard across an `.await`",
    note = "give it state with `bind(state, async fn(state, Tx<'_, {DB}>, Message) -> …)`"
)]
pub trait PerMessage<'t, DB: Database>: Send + Sync {
    /// Handles one message.
    ///
    /// # Errors
    /// `Retry` or `Poison` of this message; any other error converts by `?` and gets the class that the
    /// transaction recorded.
    fn call(
        &'t self,
        tx: Tx<'t, DB>,
        message: Message,
    ) -> impl Future<Output = Result<Answer, Fault>> + Send + 't;
}

impl<'t, DB, F, Fut> PerMessage<'t, DB> for F
where
    DB: Database,
    F: Fn(Tx<'t, DB>, Message) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Answer, Fault>> + Send + 't,
{
    fn call(
        &'t self,
        tx: Tx<'t, DB>,
        message: Message,
    ) -> impl Future<Output = Result<Answer, Fault>> + Send + 't {
        self(tx, message)
    }
}

/// A handler with state; made by [`bind`].
#[derive(Debug, Clone, Copy)]
pub struct Bound<S, F> {
    state: S,
    handler: F,
}

/// Gives a handler its state. It is cloned for each message, so put what is large into an `Arc`.
///
/// ```
/// use std::sync::Arc;
///
/// use semel_core::{Answer, Fault, Message};
/// use semel_sql::{PerMessage, Tx, bind};
/// use sqlx::Sqlite;
///
/// struct Limits {
///     per_day: i64,
/// }
///
/// async fn credit(limits: Arc<Limits>, mut tx: Tx<'_, Sqlite>, _: Message) -> Result<Answer, Fault> {
///     sqlx::query("UPDATE wallet SET spent = ?1").bind(limits.per_day).execute(&mut tx).await?;
///     Ok(Answer::applied())
/// }
///
/// fn is_a_handler<F: for<'t> PerMessage<'t, Sqlite>>(_: F) {}
/// is_a_handler(bind(Arc::new(Limits { per_day: 100 }), credit));
/// ```
pub const fn bind<S, F>(state: S, handler: F) -> Bound<S, F> {
    Bound { state, handler }
}

impl<'t, DB, S, F, Fut> PerMessage<'t, DB> for Bound<S, F>
where
    DB: Database,
    S: Clone + Send + Sync,
    F: Fn(S, Tx<'t, DB>, Message) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Answer, Fault>> + Send + 't,
{
    fn call(
        &'t self,
        tx: Tx<'t, DB>,
        message: Message,
    ) -> impl Future<Output = Result<Answer, Fault>> + Send + 't {
        (self.handler)(self.state.clone(), tx, message)
    }
}
