//! Forward-only migrations, all pending ones in one transaction, under a lock that two processes starting at
//! once share.

use semel_core::Fault;
use semel_sql::{Extension, Migrated, OWN_PART, migration_name, migration_stem};
use sqlx::Row;

use crate::fault::fault;
use crate::ledger::PostgresLedger;
use crate::options::quoted;
use crate::pooler;
use crate::session::{self, Purpose, Session, Span};
use crate::sql;

/// Semel's own.
const OWN: Extension = Extension {
    name: OWN_PART,
    migrations: &[("0001_ledger", include_str!("../migrations/0001_ledger.sql"))],
};

/// First half of the advisory lock's number: `seml` in ASCII. The second half is the schema's.
const LOCK: i32 = 0x7365_6d6c;

impl PostgresLedger {
    /// Brings the schema up to this program: its own tables and those of the extensions. A dry run only tells
    /// what is pending.
    ///
    /// # Errors
    /// `Stop` when the schema is newer than this program or the role may not change it; `Down`.
    pub async fn migrate(&self, dry_run: bool) -> Result<Migrated, Fault> {
        let options = &self.shared.options;
        let purpose = if dry_run {
            Purpose::Work
        } else {
            Purpose::Migrate
        };
        pooler::refuse_unknown(options).await?;
        let mut connection = session::open(options, purpose).await?;
        connection.begin(Span::Whole).await.map_err(fault)?;
        if !dry_run {
            prepare(&mut connection, &options.schema).await?;
        }
        let exists = exists(&mut connection).await?;
        let mut migrated = Migrated {
            from: 0,
            to: 0,
            applied: Vec::new(),
        };
        for part in std::iter::once(&OWN).chain(&options.extensions) {
            let version = if exists {
                version(&mut connection, part).await?
            } else {
                0
            };
            if part == &OWN {
                migrated.from = version;
                migrated.to = version.max(known(part));
            }
            for (number, (name, sql)) in (1..)
                .zip(part.migrations)
                .filter(|(number, _)| *number > version)
            {
                migrated.applied.push(migration_name(part.name, name));
                if !dry_run {
                    run(&mut connection, part.name, number, name, sql).await?;
                }
            }
        }
        connection.commit(Span::Whole).await.map_err(fault)?;
        connection.close().await;
        Ok(migrated)
    }
}

/// Takes the lock, then makes the schema and its table of migrations.
async fn prepare(connection: &mut Session, schema: &str) -> Result<(), Fault> {
    let lock = sqlx::query(sql!("schema_lock"))
        .persistent(false)
        .bind(LOCK)
        .bind(schema);
    lock.execute(&mut *connection).await.map_err(fault)?;
    // A statement of its own: it must see what another process made while the lock was waited for.
    let find = sqlx::query(sql!("schema_find"))
        .persistent(false)
        .bind(schema);
    let row = find.fetch_one(&mut *connection).await.map_err(fault)?;
    if !row.try_get::<bool, _>(0).map_err(fault)? {
        let sql = format!("CREATE SCHEMA {}", quoted(schema));
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut *connection)
            .await
            .map_err(fault)?;
    }
    session::script(connection, sql!("schema_table")).await
}

/// Whether the table of migrations is there.
async fn exists(connection: &mut Session) -> Result<bool, Fault> {
    let row = sqlx::query(sql!("schema_exists"))
        .persistent(false)
        .fetch_one(connection)
        .await
        .map_err(fault)?;
    row.try_get(0).map_err(fault)
}

/// How many migrations of a part this program knows.
fn known(part: &Extension) -> i32 {
    i32::try_from(part.migrations.len()).expect("migrations are written by hand")
}

/// How many migrations of a part are in place.
async fn version(connection: &mut Session, part: &Extension) -> Result<i32, Fault> {
    let query = sqlx::query(sql!("schema_version"))
        .persistent(false)
        .bind(part.name);
    let row = query.fetch_one(connection).await.map_err(fault)?;
    let (version, least): (i32, i32) = (
        row.try_get(0).map_err(fault)?,
        row.try_get(1).map_err(fault)?,
    );
    let known = known(part);
    if least > known {
        return Err(Fault::stop(format!(
            "the tables of `{}` are newer (version {version}, for programs that know version {least}) than this program \
             (version {known}); run a newer program",
            part.name
        )));
    }
    Ok(version)
}

/// Runs one migration and records it. Its version is also the least a program must know, until a migration comes
/// that older programs can live with.
async fn run(
    connection: &mut Session,
    part: &str,
    version: i32,
    name: &str,
    sql: &'static str,
) -> Result<(), Fault> {
    session::script(connection, sql).await.map_err(|error| {
        Fault::new(
            error.class,
            format!("migration {}: {error}", migration_name(part, name)),
        )
    })?;
    let note = sqlx::query(sql!("schema_note"))
        .persistent(false)
        .bind(part)
        .bind(version)
        .bind(migration_stem(name));
    note.execute(connection).await.map(drop).map_err(fault)
}
