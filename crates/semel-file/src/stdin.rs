//! Standard input as a source: one partition, `stdin`, that cannot be read twice.

use std::io::Read;
use std::sync::Arc;

use semel_core::Fault;
use semel_core::source::{BoxFuture, Limit, Received, Settled, Settlements, Source};
use tokio::sync::mpsc;

use crate::intake::{CHUNKS_MAX, Chunk, Intake, Resumable};
use crate::lines::Lines;

/// The name of its one partition.
pub const PARTITION: &str = "stdin";

/// JSON Lines from standard input. Positions are line numbers and no marks: a later run begins with its
/// own first line.
#[derive(Debug)]
pub struct StdinSource {
    intake: Intake,
}

impl StdinSource {
    /// Reads this process's standard input.
    ///
    /// # Errors
    /// `Down` when no thread can be had.
    pub fn open(message_bytes_max: usize) -> Result<Self, Fault> {
        Self::of_reader(std::io::stdin(), message_bytes_max)
    }

    /// Reads something else as if it were standard input.
    ///
    /// # Errors
    /// As [`StdinSource::open`].
    pub fn of_reader<R: Read + Send + 'static>(
        input: R,
        message_bytes_max: usize,
    ) -> Result<Self, Fault> {
        let (give, take) = mpsc::channel(CHUNKS_MAX);
        let lines = Lines::new(input, None, message_bytes_max);
        std::thread::Builder::new()
            .name("semel-stdin".to_owned())
            .spawn(move || read_all(lines, &give))
            .map_err(|e| Fault::down(format!("no thread to read standard input: {e}")))?;
        Ok(Self {
            intake: Intake::new(vec![Arc::from(PARTITION)], take),
        })
    }
}

/// Reads until the end, an error (a broken pipe does not heal), or nobody asks any more.
fn read_all<R: Read>(mut lines: Lines<R>, give: &mpsc::Sender<Result<Chunk, Fault>>) {
    loop {
        let chunk = match lines.chunk() {
            Ok(Some(lines)) if lines.is_empty() => continue,
            Ok(Some(lines)) => Ok(Chunk::new(0, lines, Resumable::No)),
            Ok(None) => return,
            Err(error) => Err(Fault::stop(format!(
                "standard input broke off: {error}; what was read is kept"
            ))),
        };
        let broken = chunk.is_err();
        if give.blocking_send(chunk).is_err() || broken {
            return;
        }
    }
}

impl Source for StdinSource {
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        Box::pin(self.intake.receive(limit))
    }

    fn settle(&self, settlements: Settlements) -> BoxFuture<'_, Result<Settled, Fault>> {
        Box::pin(std::future::ready(Ok(self.intake.settle(&settlements))))
    }
}
