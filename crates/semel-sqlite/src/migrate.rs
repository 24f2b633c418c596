//! Forward-only migrations: Semel's own and those of handlers' tables, under one write lock, so that two
//! processes starting at once are fine.

use semel_core::Fault;
use semel_sql::{Extension, Migrated, OWN_PART, migration_name, migration_stem};
use sqlx::{AssertSqlSafe, Row};

use crate::link::{Args, Link, own};
use crate::sql;

/// Semel's own migrations, in order. One that was released never changes.
const MIGRATIONS: &[(&str, &str)] =
    &[("0001_ledger", include_str!("../migrations/0001_ledger.sql"))];

/// Whether missing migrations are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Run them.
    Run,
    /// Only tell which.
    Plan,
}

/// Brings the tables up to date, or tells what that would do.
///
/// # Errors
/// `Stop` when the tables are newer than this program, or others than its migrations made; `Down`, `Busy`.
pub(crate) async fn migrate(
    link: &mut Link,
    extensions: &[Extension],
    mode: Mode,
) -> Result<Migrated, Fault> {
    if mode == Mode::Plan {
        return plan(link, extensions).await.map(|plan| plan.migrated);
    }
    link.run(sql!("begin")).await?;
    let done = apply(link, extensions).await;
    match done {
        Ok(migrated) => link.run("COMMIT").await.map(|()| migrated).map_err(own),
        Err(fault) => {
            // The first fault is the one to tell; the connection is closed behind it anyway.
            let _ = link.try_run("ROLLBACK").await;
            Err(own(fault))
        }
    }
}

/// What is missing.
struct Plan {
    migrated: Migrated,
    missing: Vec<Step>,
}

struct Step {
    part: &'static str,
    version: i32,
    name: &'static str,
    sql: &'static str,
}

async fn apply(link: &mut Link, extensions: &[Extension]) -> Result<Migrated, Fault> {
    link.run(sql!("schema_table")).await?;
    let plan = plan(link, extensions).await?;
    for step in &plan.missing {
        link.run(AssertSqlSafe(step.sql)).await?;
        let args = Args::default()
            .with(step.part)
            .with(step.version)
            .with(migration_stem(step.name));
        link.change(sql!("schema_note"), args).await?;
    }
    Ok(plan.migrated)
}

async fn plan(link: &mut Link, extensions: &[Extension]) -> Result<Plan, Fault> {
    let tables = link.fetch(sql!("schema_exists"), Args::default()).await?;
    let exists = tables.first().is_some_and(|row| row.get::<i64, _>(0) > 0);
    let own_part = Extension {
        name: OWN_PART,
        migrations: MIGRATIONS,
    };
    let mut missing = Vec::new();
    let mut from = 0;
    for part in std::iter::once(&own_part).chain(extensions) {
        let applied = if exists {
            applied(link, part).await?
        } else {
            0
        };
        if part.name == OWN_PART {
            from = number(applied);
        }
        missing.extend(part.migrations.iter().enumerate().skip(applied).map(
            |(at, (name, sql))| Step {
                part: part.name,
                version: number(at + 1),
                name,
                sql,
            },
        ));
    }
    let applied = missing
        .iter()
        .map(|step| migration_name(step.part, step.name))
        .collect();
    Ok(Plan {
        migrated: Migrated {
            from,
            to: from.max(number(MIGRATIONS.len())),
            applied,
        },
        missing,
    })
}

/// How many migrations of a part ran, after a look at whether they are ours.
async fn applied(link: &mut Link, part: &Extension) -> Result<usize, Fault> {
    let rows = link
        .fetch(sql!("schema_list"), Args::default().with(part.name))
        .await?;
    for (at, row) in rows.iter().enumerate() {
        let (name, min_binary) = (
            row.get::<String, _>("name"),
            row.get::<i32, _>("min_binary"),
        );
        if min_binary > number(part.migrations.len()) {
            return Err(Fault::stop(format!(
                "the tables of `{}` are newer (version {}, for programs that know version {min_binary}) than this \
                 program (version {}); run a newer program",
                part.name,
                rows.len(),
                part.migrations.len()
            )));
        }
        let ours = part
            .migrations
            .get(at)
            .map(|(ours, _)| migration_stem(ours));
        if let Some(ours) = ours.filter(|ours| *ours != migration_stem(&name)) {
            return Err(Fault::stop(format!(
                "migration {} of `{}` is `{name}` in the database and `{ours}` in this program: they were made by \
                 different programs; use the one that made the tables",
                at + 1,
                part.name
            )));
        }
    }
    Ok(rows.len())
}

fn number(count: usize) -> i32 {
    i32::try_from(count).expect("nobody writes two thousand million migrations")
}
