//! The handler that the engine sees: a [`Staged`] one with the machinery around it.

use semel_core::Fault;
use semel_core::fingerprint::{FieldSums, Fingerprint};
use semel_core::law::Reject;
use semel_core::ledger::Unit;
use semel_core::message::Message;
use semel_core::rows::Rows;

use super::{Staged, bisect};
use crate::handler::{Bound, Fresh, Handler, Said};

/// Makes a handler of a [`Staged`] one, for every ledger whose units know [`Rows`].
pub const fn handler<S: Staged>(staged: S) -> StagedHandler<S> {
    StagedHandler { staged }
}

/// See [`handler`].
#[derive(Debug, Clone)]
pub struct StagedHandler<S> {
    staged: S,
}

impl<S> StagedHandler<S> {
    /// The staged handler inside.
    pub const fn inner(&self) -> &S {
        &self.staged
    }
}

impl<S: Staged, U: Unit + Rows> Handler<U> for StagedHandler<S> {
    type Work = S::Work;

    fn name(&self) -> &str {
        self.staged.name_of_handler()
    }

    fn rules(&self) -> Fingerprint {
        self.staged.rules()
    }

    fn bind(&self, message: &Message) -> Result<Bound<S::Work>, Reject> {
        self.staged.bind(message)
    }

    fn told_time(&self, now_ms: u64) {
        self.staged.told_time(now_ms);
    }

    fn differing(&self, message: &Message, work: &S::Work, stored: &FieldSums) -> Option<String> {
        self.staged.differing(message, work, stored)
    }

    async fn handle(&self, unit: &mut U, fresh: &[Fresh<'_, S::Work>]) -> Result<Vec<Said>, Fault> {
        if fresh.is_empty() {
            return Ok(Vec::new());
        }
        bisect::run(&self.staged, unit, fresh).await
    }
}
