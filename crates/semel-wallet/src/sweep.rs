//! The sweep for expired holds, as the engine asks for it.

use std::sync::Arc;

use semel::{Bound, Sweeper};
use semel_core::rows::Query;
use semel_core::source::BoxFuture;
use semel_core::{Fault, Message};

use crate::handler::Wallet;
use crate::query::Reader;
use crate::sql::Dialect;
use crate::work::Work;

/// Finds holds that the database's clock says are past their time, and makes operations of them. Give it to
/// the consumer's `sweeper`.
#[derive(Debug)]
pub struct Sweep<Q> {
    wallet: Arc<Wallet>,
    query: Arc<Q>,
    dialect: Dialect,
}

impl<Q> Sweep<Q> {
    /// A sweep of `wallet` over the tables behind `query`.
    pub const fn new(wallet: Arc<Wallet>, query: Arc<Q>, dialect: Dialect) -> Self {
        Self {
            wallet,
            query,
            dialect,
        }
    }
}

impl<Q: Query> Sweeper<Work> for Sweep<Q> {
    fn due(&self, limit: usize) -> BoxFuture<'_, Result<Vec<(Message, Bound<Work>)>, Fault>> {
        Box::pin(async move {
            let expired = Reader::new(&*self.query, self.dialect)
                .expired(limit)
                .await?;
            Ok(expired
                .iter()
                .map(|hold| self.wallet.expire(hold))
                .collect())
        })
    }
}
