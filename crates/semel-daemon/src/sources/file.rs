//! Files as the port for health checks sees them: can they be read, and how much of them is not done?

use std::path::PathBuf;
use std::sync::Arc;

use semel_core::source::{BoxFuture, Positions};

use crate::check::{Code, Finding};
use crate::cli;
use crate::config::{File, Loaded};
use crate::doctor::{Reading, Standing};
use crate::exit::Failure;
use crate::http::{Lag, Pulse};
use crate::rewind::{Move, Step};

/// What the ledger says of each file, and whether it is still the one that was read.
pub(super) async fn examine(
    loaded: &Loaded,
    reading: &Reading<'_>,
    settings: &File,
) -> (Vec<Standing>, Vec<Finding>) {
    let (mut places, mut found) = (Vec::new(), Vec::new());
    for path in &settings.paths {
        match reading.positions.reached(path).await {
            Ok(reached) => places.push(Standing {
                consumer: reading.consumer.to_owned(),
                source: reading.source.to_owned(),
                partition: path.clone(),
                ledger: reached.map(|reached| reached.next),
                ..Standing::default()
            }),
            Err(fault) => found.push(super::away(loaded, reading, fault.detail())),
        }
    }
    match super::replaced(loaded, reading.source, &*reading.positions).await {
        Err(failure) => found.push(super::away(loaded, reading, failure.lines.join("; "))),
        Ok(replaced) => found.extend(replaced.into_iter().map(|path| {
            let message = format!(
                "`{path}` is not the file that `{}` has read: it was replaced, cut or changed, and a run stops. Put the old one back, give the \
                 new one another name, or read it from its first line with `semel rewind {} --to 1` (what was applied is not applied again)",
                reading.consumer, reading.source
            );
            loaded.finding(Code::Replaced, &["sources", reading.source], message)
        })),
    }
    (places, found)
}

/// Each file from its first line again. Without a place there is nothing to do: a file has no position but the ledger's.
pub(super) async fn steps(
    reading: &Reading<'_>,
    settings: &File,
    args: &cli::Rewind,
) -> Result<Vec<Step>, Failure> {
    match args.to {
        None => return Ok(Vec::new()),
        Some(1) => {}
        Some(line) => {
            return Err(Failure::usage(format!(
                "a file is read again from its first line, not from {line}: say `--to 1`; what the ledger knows comes out as duplicates"
            )));
        }
    }
    let mut steps = Vec::new();
    for path in super::wanted(settings.paths.iter().map(String::as_str), args)? {
        let reached = reading.positions.reached(path).await;
        let reached =
            reached.map_err(|fault| Failure::fault("the ledger cannot be read", &fault))?;
        steps.extend(reached.map(|reached| Step {
            partition: path.to_owned(),
            ledger: Some(Move {
                from: Some(reached.next),
                to: 1,
            }),
            broker: None,
        }));
    }
    Ok(steps)
}

/// The files of a source: as written, and where they are.
pub(super) struct Paths {
    paths: Vec<(String, PathBuf)>,
    positions: Arc<dyn Positions>,
}

impl Paths {
    pub(super) fn new(loaded: &Loaded, file: &File, positions: Arc<dyn Positions>) -> Self {
        let paths = file.paths.iter();
        Self {
            paths: paths
                .map(|path| (path.clone(), loaded.path(path)))
                .collect(),
            positions,
        }
    }

    async fn lags(&self) -> Result<Vec<Lag>, String> {
        let mut lags = Vec::new();
        for (written, path) in &self.paths {
            let size = tokio::fs::metadata(path).await;
            let size = size
                .map_err(|error| format!("`{written}` cannot be read: {error}"))?
                .len();
            // A ledger that is away is told as such, and not as a file's fault.
            if let Ok(reached) = self.positions.reached(written).await {
                let done = reached.as_ref().and_then(semel_file::done_bytes);
                let left = size.saturating_sub(done.unwrap_or(0));
                lags.push(Lag::Bytes(written.clone(), left));
            }
        }
        Ok(lags)
    }
}

impl Pulse for Paths {
    fn beat(&self) -> BoxFuture<'_, Result<Vec<Lag>, String>> {
        Box::pin(self.lags())
    }
}
