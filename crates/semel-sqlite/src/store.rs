//! One database file, as this process sees it: how a connection to it is opened and checked, and whose turn it
//! is to write.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use semel_core::{Class, Fault};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions, Executor, Row};
use tokio::sync::{Notify, OwnedMutexGuard};

use crate::fault;
use crate::link::Link;

/// The turn to write. SQLite has one writer a file; waiting for one's turn here costs nothing, waiting in
/// `busy_timeout` sleeps and wakes by chance.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// What the users of one file in one process share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Rung when a queue of this file may have something new to say.
    pub(crate) bell: Notify,
}

/// The files open in this process, by canonical path.
static FILES: LazyLock<Mutex<HashMap<PathBuf, Weak<Shared>>>> = LazyLock::new(Mutex::default);

/// How durable a commit of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// On the disk when COMMIT returns.
    Full,
    /// Survives the process, and may be undone by a power cut. For leases and acks of the queue only: losing one
    /// means one more delivery.
    Lazy,
}

/// How a connection is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Creates the file.
    Create,
    /// A missing file is an error.
    Fail,
}

/// A file and the settings of its connections.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) file: Arc<Path>,
    pub(crate) shared: Arc<Shared>,
    busy_timeout: Duration,
    /// Which file it was when it was opened.
    opened: Option<Identity>,
}

/// What tells one file from another that took its name: device and inode.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(file: &Path) -> std::io::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(file).map(|file| Some((file.dev(), file.ino())))
}

/// Elsewhere a file that is open can neither be deleted nor replaced.
#[cfg(not(unix))]
fn identity(file: &Path) -> std::io::Result<Option<Identity>> {
    std::fs::metadata(file).map(|_| None)
}

/// Rows that may wait between SQLite's thread and ours before the thread waits for us.
const ROW_BUFFER_COUNT: usize = 1024;

/// Prepared statements kept by a connection: about 30 of ours in four sizes, six for each staged table, and the
/// handler's own.
const STATEMENTS_MAX: usize = 1024;

/// Page cache of a connection, KiB (negative means KiB to SQLite): holds the upper levels of a key's tree with
/// tens of millions of rows.
const CACHE_SIZE: &str = "-16000";

/// Pages of the log before it is copied into the file (16 MiB). SQLite's own 1000 is less than one unit with 1000
/// keys in random order writes, which would copy each page at each commit.
const CHECKPOINT_PAGES: &str = "4000";

impl Store {
    /// Opens the file, creating it if told so, and puts it into WAL mode.
    ///
    /// # Errors
    /// `Down` when it cannot be opened, `Stop` when it is no database.
    pub(crate) async fn open(
        path: PathBuf,
        missing: Missing,
        busy_timeout_ms: u32,
    ) -> Result<Self, Fault> {
        let mut store = Self {
            file: Arc::from(path),
            shared: Arc::default(),
            busy_timeout: Duration::from_millis(u64::from(busy_timeout_ms)),
            opened: None,
        };
        let mut connection = store.attach(missing, Sync::Full).await?;
        store.enter_wal(&mut connection).await?;
        store.check(&mut connection, Sync::Full).await?;
        // Only now the file exists and has one name.
        store.opened = identity(&store.file)
            .map_err(|error| store.moved(&format!("cannot be looked at: {error}")))?;
        store.shared = shared(&store.file);
        Ok(store)
    }

    /// Waits for the turn to write, in order of asking.
    pub(crate) async fn turn(&self) -> Turn {
        self.shared.turn.clone().lock_owned().await
    }

    /// Whether the file's name still leads to the file that was opened. SQLite itself goes on writing into a file
    /// that was deleted or replaced, and what it commits there nobody will ever read. One system call.
    ///
    /// # Errors
    /// `Stop` when it is gone or another one.
    pub(crate) fn unmoved(&self) -> Result<(), Fault> {
        match identity(&self.file) {
            Ok(found) if found == self.opened => Ok(()),
            Ok(_) => Err(self.moved("was replaced by another file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(self.moved("was deleted or moved away"))
            }
            Err(error) => Err(Fault::down(format!(
                "SQLite file `{}` cannot be looked at: {error}",
                self.file.display()
            ))),
        }
    }

    fn moved(&self, what: &str) -> Fault {
        Fault::stop(format!(
            "SQLite file `{}` {what} while it was in use: nothing is acked that is not in it; put the file back, with \
             its `-wal` beside it, and start again",
            self.file.display()
        ))
    }

    /// A checked connection.
    ///
    /// # Errors
    /// `Down`, `Busy`; `Stop` when the settings do not hold.
    pub(crate) async fn connect(&self, sync: Sync) -> Result<Link, Fault> {
        self.unmoved()?;
        let mut connection = self.attach(Missing::Fail, sync).await?;
        self.check(&mut connection, sync).await?;
        Ok(Link::new(connection, self.file.clone()))
    }

    /// The fault of an error met on this file.
    pub(crate) fn fault(&self, error: sqlx::Error) -> Fault {
        let class = match fault::classify(&error) {
            Class::Poison => Class::Stop,
            class => class,
        };
        fault::of_store(&self.file, class, error)
    }

    async fn attach(&self, missing: Missing, sync: Sync) -> Result<SqliteConnection, Fault> {
        let options = SqliteConnectOptions::new()
            .filename(&self.file)
            .create_if_missing(missing == Missing::Create)
            .foreign_keys(true)
            .synchronous(match sync {
                Sync::Full => SqliteSynchronous::Full,
                Sync::Lazy => SqliteSynchronous::Normal,
            })
            .busy_timeout(self.busy_timeout)
            .statement_cache_capacity(STATEMENTS_MAX)
            .row_buffer_size(ROW_BUFFER_COUNT)
            .pragma("cache_size", CACHE_SIZE)
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
            // On macOS a plain fsync does not reach the disk.
            .pragma("fullfsync", "1")
            .disable_statement_logging();
        options.connect().await.map_err(|error| self.fault(error))
    }

    /// Switching to WAL needs the file alone for a moment, and SQLite does not always call its busy handler for
    /// it, so two processes that open a new file at once take turns here.
    async fn enter_wal(&self, connection: &mut SqliteConnection) -> Result<(), Fault> {
        let deadline = tokio::time::Instant::now() + self.busy_timeout;
        loop {
            match connection.execute("PRAGMA journal_mode = WAL").await {
                Ok(_) => return Ok(()),
                Err(error) if fault::is_busy(&error) && tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => return Err(self.fault(error)),
            }
        }
    }

    /// Checks what the guarantee stands on (TRAPS T18).
    async fn check(&self, connection: &mut SqliteConnection, sync: Sync) -> Result<(), Fault> {
        let synchronous = match sync {
            Sync::Full => "2",
            Sync::Lazy => "1",
        };
        let wanted = [
            ("PRAGMA journal_mode", "wal"),
            ("PRAGMA synchronous", synchronous),
            ("PRAGMA foreign_keys", "1"),
        ];
        for (pragma, wanted) in wanted {
            let row = connection
                .fetch_one(pragma)
                .await
                .map_err(|error| self.fault(error))?;
            let found = row
                .try_get_unchecked::<String, _>(0)
                .map_err(|error| self.fault(error))?;
            if found != wanted {
                return Err(Fault::refused(format!(
                    "SQLite file `{}`: {pragma} is `{found}`, not `{wanted}`; its file system may not support \
                     WAL (a network share does not)",
                    self.file.display()
                )));
            }
        }
        Ok(())
    }
}

/// What this process shares about a file.
fn shared(file: &Path) -> Arc<Shared> {
    let name = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.retain(|_, shared| shared.strong_count() > 0);
    if let Some(shared) = files.get(&name).and_then(Weak::upgrade) {
        return shared;
    }
    let shared = Arc::<Shared>::default();
    files.insert(name, Arc::downgrade(&shared));
    shared
}
