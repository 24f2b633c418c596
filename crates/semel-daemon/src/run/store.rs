//! The ledger as the port for health checks asks it.

use std::sync::Arc;

use semel::Ledger;
use semel_core::ledger::{ConsumerId, SourceId};
use semel_core::rows::Query;

use crate::http::{Backlog, Store};
use crate::inspect::{Cells, Statements};

/// A ledger, and a position to ask it for.
pub(super) struct Asked<L> {
    pub(super) ledger: Arc<L>,
    pub(super) of: (ConsumerId, SourceId),
    pub(super) sql: &'static Statements,
}

impl<L: Ledger + Query> Store for Asked<L> {
    async fn beat(&self) -> Result<(), String> {
        let (consumer, source) = self.of;
        let asked = self.ledger.positions(consumer, source).await;
        asked.map(drop).map_err(|fault| fault.detail())
    }

    async fn backlog(&self) -> Result<Vec<Backlog>, String> {
        let mut backlog = Vec::new();
        let mut each = |row: &[semel_core::rows::Value]| {
            let mut cells = Cells::new(row);
            let count = |count: Option<i64>| u64::try_from(count.unwrap_or(0)).unwrap_or(0);
            if let Some(consumer) = cells.text() {
                backlog.push(Backlog {
                    consumer,
                    parked: count(cells.int()),
                    letters: count(cells.int()),
                });
            }
            true
        };
        let asked = self.ledger.query(self.sql.backlog, &[], &mut each).await;
        asked.map_err(|fault| fault.detail())?;
        Ok(backlog)
    }
}
