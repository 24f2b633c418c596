//! The handler that the engine sees: a [`Staged`] one with the machinery around it.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use semel_core::Fault;
use semel_core::fingerprint::{FieldSums, Fingerprint};
use semel_core::law::Reject;
use semel_core::ledger::Unit;
use semel_core::message::Message;
use semel_core::rows::Rows;

use super::batch::Batch;
use super::{Staged, bisect};
use crate::handler::{Bound, Fresh, Handler, Said};

/// Makes a handler of a [`Staged`] one, for every ledger whose units know [`Rows`].
pub const fn handler<S: Staged>(staged: S) -> StagedHandler<S> {
    StagedHandler {
        staged,
        idle: Mutex::new(Vec::new()),
    }
}

/// See [`handler`].
pub struct StagedHandler<S: Staged> {
    staged: S,
    /// Memory of batches that are done, one for each lane that ever ran at the same time: a batch of
    /// 1000 messages would else get a MiB from the system and give it back.
    idle: Mutex<Vec<Batch<S::Row>>>,
}

impl<S: Staged> fmt::Debug for StagedHandler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StagedHandler")
            .field("name", &self.staged.name_of_handler())
            .finish_non_exhaustive()
    }
}

impl<S: Staged> StagedHandler<S> {
    /// The staged handler inside.
    pub const fn inner(&self) -> &S {
        &self.staged
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Batch<S::Row>>> {
        self.idle
            .lock()
            .expect("no code panics while it holds the list")
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

    fn same(&self, message: &Message, work: &S::Work, first: Fingerprint) -> bool {
        self.staged.same(message, work, first)
    }

    fn differing(&self, message: &Message, work: &S::Work, stored: &FieldSums) -> Option<String> {
        self.staged.differing(message, work, stored)
    }

    fn isolates(&self) -> bool {
        true
    }

    async fn handle(&self, unit: &mut U, fresh: &[Fresh<'_, S::Work>]) -> Result<Vec<Said>, Fault> {
        if fresh.is_empty() {
            return Ok(Vec::new());
        }
        let idle = self.idle().pop();
        let mut batch = idle.unwrap_or_else(|| Batch::new(self.staged.tables()));
        let said = bisect::run(&self.staged, unit, &mut batch, fresh).await;
        batch.clear();
        self.idle().push(batch);
        said
    }
}
