//! Files as a source: each path a partition, read by one thread, a chunk of each in turn.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel_core::Fault;
use semel_core::ledger::Reached;
use semel_core::source::{BoxFuture, Limit, Positions, Received, Settled, Settlements, Source};
use tokio::sync::mpsc;

use crate::feed::{Feed, Format};
use crate::intake::{CHUNKS_MAX, Chunk, Intake, Resumable};

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// Behind the ledger's position; at the first line where it has none.
    #[default]
    Resume,
    /// At the first line, whatever the ledger says (`--from-start`).
    First,
}

/// Which files to read, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The paths as written in the config: names of the partitions.
    pub paths: Vec<String>,
    /// What relative paths are relative to.
    pub folder: PathBuf,
    /// The format of all files; `None` goes by each file's name.
    pub format: Option<Format>,
    /// Where to begin.
    pub start: Start,
    /// The longest message handed out whole, bytes.
    pub message_bytes_max: usize,
}

impl Settings {
    /// Settings with defaults for these paths.
    pub fn new(
        folder: impl Into<PathBuf>,
        paths: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            paths: paths.into_iter().map(Into::into).collect(),
            folder: folder.into(),
            format: None,
            start: Start::Resume,
            message_bytes_max: crate::MESSAGE_BYTES_MAX,
        }
    }
}

/// Files as a source.
///
/// It ends when every line was handed out and acked; see the crate's page for what it guarantees.
///
/// ```
/// use std::sync::Arc;
/// use semel_core::source::{Limit, NoPositions, Received, Source};
/// use semel_file::{FileSource, Settings};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), semel_core::Fault> {
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("ops.jsonl"), "{\"id\":\"pay-1\"}\n")?;
/// let source = FileSource::open(Settings::new(folder.path(), ["ops.jsonl"]), Arc::new(NoPositions)).await?;
/// let Received::Batch(batch) = source.receive(Limit { count: 10, bytes: 1 << 20 }).await? else { panic!() };
/// assert_eq!(batch[0].message.position.offset, Some(1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileSource {
    intake: Intake,
    skipped: u64,
}

impl FileSource {
    /// Opens the files behind the ledger's positions.
    ///
    /// # Errors
    /// `Down` when a file cannot be opened; `Stop` when it is not the one that the position was stored
    /// for, or a path is given twice.
    pub async fn open(settings: Settings, positions: Arc<dyn Positions>) -> Result<Self, Fault> {
        let mut reached = Vec::with_capacity(settings.paths.len());
        for (i, path) in settings.paths.iter().enumerate() {
            if settings.paths[..i].contains(path) {
                return Err(Fault::refused(format!(
                    "`{path}` is listed twice in `paths`: each file is one partition"
                )));
            }
            reached.push(match settings.start {
                Start::Resume => positions.reached(path).await?,
                Start::First => None,
            });
        }
        let partitions = settings
            .paths
            .iter()
            .map(|path| Arc::from(path.as_str()))
            .collect();
        let feeds = tokio::task::spawn_blocking(move || open_all(&settings, &reached))
            .await
            .map_err(|e| Fault::down(format!("opening the files broke off: {e}")))??;
        let skipped = feeds.iter().map(|file| file.skipped).sum();
        let (give, take) = mpsc::channel(CHUNKS_MAX);
        std::thread::Builder::new()
            .name("semel-file".to_owned())
            .spawn(move || read_all(feeds, &give))
            .map_err(|e| Fault::down(format!("no thread to read the files: {e}")))?;
        Ok(Self {
            intake: Intake::new(partitions, take),
            skipped,
        })
    }

    /// How many bytes of the files are behind the positions it was opened at.
    #[must_use]
    pub fn skipped_bytes(&self) -> u64 {
        self.skipped
    }

    /// The paths whose files are not those that the positions were stored for. Who reads them from their first line
    /// forgets these positions first: a position is never lowered by reading, and the next run would not know the file.
    ///
    /// # Errors
    /// `Down` when a file cannot be read.
    pub async fn replaced(
        settings: &Settings,
        positions: &dyn Positions,
    ) -> Result<Vec<String>, Fault> {
        let mut replaced = Vec::new();
        for path in &settings.paths {
            let Some(reached) = positions.reached(path).await? else {
                continue;
            };
            let place = settings.folder.join(path);
            let another = tokio::task::spawn_blocking(move || Feed::is_another(&place, &reached))
                .await
                .map_err(|e| Fault::down(format!("opening the files broke off: {e}")))??;
            if another {
                replaced.push(path.clone());
            }
        }
        Ok(replaced)
    }
}

/// A file with its index and its path.
struct Opened {
    partition: u32,
    path: String,
    feed: Feed,
    skipped: u64,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

fn open_all(settings: &Settings, reached: &[Option<Reached>]) -> Result<Vec<Opened>, Fault> {
    let open = |(i, (path, reached)): (usize, (&String, &Option<Reached>))| {
        let place = settings.folder.join(Path::new(path));
        let format = settings.format.unwrap_or_else(|| Format::of_name(&place));
        let (feed, skipped) =
            Feed::open(&place, format, settings.message_bytes_max, reached.as_ref())?;
        let partition =
            u32::try_from(i).map_err(|_| Fault::refused("more files than a source can number"))?;
        Ok(Opened {
            partition,
            path: path.clone(),
            feed,
            skipped,
        })
    };
    settings
        .paths
        .iter()
        .zip(reached)
        .enumerate()
        .map(open)
        .collect()
}

/// Reads a chunk of each file in turn until all have ended or nobody asks any more.
fn read_all(mut files: Vec<Opened>, give: &mpsc::Sender<Result<Chunk, Fault>>) {
    while !files.is_empty() {
        let mut heard = true;
        files.retain_mut(|file| {
            let chunk = match file.feed.chunk() {
                Ok(Some(lines)) if lines.is_empty() => return heard,
                Ok(Some(lines)) => Ok(Chunk::new(file.partition, lines, Resumable::Yes)),
                Ok(None) => return false,
                Err(error) => Err(Fault::down(format!("cannot read `{}`: {error}", file.path))),
            };
            heard = heard && give.blocking_send(chunk).is_ok();
            heard
        });
    }
}

impl Source for FileSource {
    fn receive(&self, limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        Box::pin(self.intake.receive(limit))
    }

    fn settle(&self, settlements: Settlements) -> BoxFuture<'_, Result<Settled, Fault>> {
        Box::pin(std::future::ready(Ok(self.intake.settle(&settlements))))
    }
}
