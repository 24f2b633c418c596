//! `semel migrate`: brings the ledger's tables up to date, and accepts changed key rules.

use std::sync::Arc;

use semel::{Consumer, Settings};
use semel_core::Fault;
use semel_postgres::PostgresLedger;
use semel_sqlite::{Migrated, SqliteLedger};
use serde::Serialize;

use crate::cli;
use crate::config::Loaded;
use crate::dialect::Dialect;
use crate::exit::{Exit, Failure};
use crate::ledger::{self, Place, Tables, on_ledger};
use crate::out::{self, Style};
use crate::wallet;

/// What `migrate --json` prints.
#[derive(Debug, Serialize)]
struct Report {
    from: i32,
    to: i32,
    applied: Vec<String>,
}

impl Report {
    fn new(Migrated { from, to, applied }: Migrated) -> Self {
        Self { from, to, applied }
    }

    fn words(&self, dry_run: bool) -> String {
        if self.applied.is_empty() {
            return format!("up to date at version {}", self.to);
        }
        let verb = if dry_run { "would apply" } else { "applied" };
        format!(
            "{verb} {}: from version {} to {}",
            self.applied.join(", "),
            self.from,
            self.to
        )
    }
}

/// Migrates, or says what that would do.
///
/// # Errors
///
/// The ledger cannot be reached, or its tables are newer than this program.
pub(crate) async fn migrate(
    loaded: &Loaded,
    args: &cli::Migrate,
    style: Style,
) -> Result<Exit, Failure> {
    let place = ledger::place(loaded)?;
    let migrated = tables(loaded, &place, args.dry_run).await?;
    if args.accept_key_change && !args.dry_run {
        accept(loaded).await?;
    }
    let report = Report::new(migrated);
    match style {
        Style::Json => out::json(&report)?,
        Style::Words => {
            out::line(&report.words(args.dry_run))?;
            if args.accept_key_change {
                out::line(&accept_words(loaded, args.dry_run))?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Whose key rules are taken as they are now.
fn accept_words(loaded: &Loaded, dry_run: bool) -> String {
    let names: Vec<&str> = loaded.config.consumers.keys().map(String::as_str).collect();
    let verb = if dry_run { "would accept" } else { "accepted" };
    format!(
        "{verb} the key rules that the config has now of {}",
        names.join(", ")
    )
}

async fn tables(loaded: &Loaded, place: &Place, dry_run: bool) -> Result<Migrated, Failure> {
    let settings = &loaded.config.ledger;
    let migrated = match (place.dialect, dry_run) {
        (_, true) => pending(loaded, place).await,
        (Dialect::Sqlite, false) => {
            SqliteLedger::migrate_at(place.sqlite(settings, Tables::Ready), false).await
        }
        (Dialect::Postgres, false) => {
            PostgresLedger::migrate_at(place.postgres(settings, Tables::Ready), false).await
        }
    };
    migrated.map_err(|fault| Failure::fault("the ledger cannot be migrated", &fault))
}

/// What a migration would do. Nothing is made.
///
/// # Errors
///
/// The ledger's own: `Stop` when its tables are newer than this program.
pub(crate) async fn pending(loaded: &Loaded, place: &Place) -> Result<Migrated, Fault> {
    let settings = &loaded.config.ledger;
    match place.dialect {
        Dialect::Sqlite if place.sqlite_is_missing() => unmade(loaded).await,
        Dialect::Sqlite => {
            SqliteLedger::migrate_at(place.sqlite(settings, Tables::AsTheyAre), true).await
        }
        Dialect::Postgres => {
            PostgresLedger::migrate_at(place.postgres(settings, Tables::AsTheyAre), true).await
        }
    }
}

/// What a missing file would get: found out on one that is thrown away.
async fn unmade(loaded: &Loaded) -> Result<Migrated, Fault> {
    // A folder of one's own: in one that all share, a name that can be guessed may be somebody else's link.
    let folder = tempfile::tempdir()
        .map_err(|error| Fault::down(format!("no temporary folder for the dry run: {error}")))?;
    let place = Place::sqlite_at(&folder.path().join("dry-run.db"));
    SqliteLedger::migrate_at(place.sqlite(&loaded.config.ledger, Tables::Ready), true).await
}

/// Enrols every consumer of the config with the key rules that it has now.
async fn accept(loaded: &Loaded) -> Result<(), Failure> {
    let ledger = ledger::open(loaded, Tables::Ready).await?;
    on_ledger!(ledger, ledger => {
        let ledger = Arc::new(ledger);
        for (name, settings) in &loaded.config.consumers {
            let handler = Arc::new(wallet::handler(name, settings)?);
            let enrolled = Consumer::builder(name, ledger.clone(), handler)
                .settings(Settings { accept_key_change: true, ..Settings::default() })
                .sources(&settings.sources)
                .enroll()
                .await;
            enrolled.map_err(|fault| Failure::fault(&format!("consumer `{name}`"), &fault))?;
        }
    });
    Ok(())
}
