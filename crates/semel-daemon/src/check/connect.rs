//! `check --connect`: what only a look at the ledger and the sources can tell. Nothing is made or changed.

use semel_core::Class;
use semel_postgres::UnknownPooler;
use semel_wallet::Reader;

use super::{Code, Finding, Level};
use crate::config::{Loaded, Secret, Source};
use crate::exit::Failure;
use crate::ledger::{self, Place, Tables, on_ledger};
use crate::{migrate, sources, wallet};

/// What is wrong with the places that a config names.
pub(crate) async fn findings(loaded: &Loaded) -> Vec<Finding> {
    let mut findings = ledger(loaded).await;
    for (name, source) in &loaded.config.sources {
        let path = ["sources", name.as_str()];
        match source {
            Source::File(file) => {
                let unreadable = |path: &&String| std::fs::File::open(loaded.path(path)).err();
                let away = file
                    .paths
                    .iter()
                    .filter_map(|path| Some((path, unreadable(&path)?)));
                findings.extend(away.map(|(written, error)| {
                    let message = format!("`{written}` cannot be read: {error}");
                    loaded.finding(Code::SourceAway, &["sources", name, "paths"], message)
                }));
            }
            Source::Queue(queue) => {
                let Some(url) = &queue.url else { continue };
                findings.extend(database(loaded, url, &path, Code::SourceAway).await.err());
            }
            Source::Stdin(_) | Source::Kafka(_) | Source::Rabbitmq(_) => {
                let reached = sources::try_to_reach(loaded, source).await;
                findings.extend(
                    reached
                        .err()
                        .map(|why| loaded.finding(Code::SourceAway, &path, why)),
                );
            }
        }
    }
    findings
}

async fn ledger(loaded: &Loaded) -> Vec<Finding> {
    let settings = &loaded.config.ledger;
    let path = ["ledger", "url"];
    let missing = match database(loaded, &settings.url, &path, Code::LedgerAway).await {
        Ok(missing) => missing,
        Err(finding) => return vec![finding],
    };
    if missing.is_empty() {
        return match houses(loaded).await {
            Ok(findings) => findings,
            Err(failure) => {
                vec![loaded.finding(Code::LedgerAway, &path, failure.lines.join("; "))]
            }
        };
    }
    let missing = missing.join(", ");
    let (level, what) = if settings.migrate {
        (Level::Warning, "`semel run` brings them up to date")
    } else {
        (
            Level::Error,
            "run `semel migrate`, or set `ledger.migrate = true`",
        )
    };
    let message = format!("the ledger's tables lack {missing}; {what}");
    vec![Finding {
        level,
        ..loaded.finding(Code::LedgerSchema, &path, message)
    }]
}

/// Houses that no bet could reach.
async fn houses(loaded: &Loaded) -> Result<Vec<Finding>, Failure> {
    let dialect = ledger::place(loaded)?.dialect;
    let ledger = ledger::open(loaded, Tables::AsTheyAre).await?;
    let mut findings = Vec::new();
    for (name, consumer) in &loaded.config.consumers {
        let Some(settings) = &consumer.wallet else {
            continue;
        };
        let absent = on_ledger!(&ledger, ledger => {
            wallet::absent_houses(&Reader::new(ledger, wallet::dialect(dialect)), settings).await?
        });
        findings.extend(absent.into_iter().map(|house| {
            let message = format!(
                "the house account `{house}` was not opened: every bet and win would be refused (account_not_found), \
                 and stay so; open it first, or correct its name"
            );
            let path = ["consumers", name, "wallet", "house"];
            Finding {
                level: Level::Warning,
                ..loaded.finding(Code::NoHouse, &path, message)
            }
        }));
    }
    Ok(findings)
}

/// The migrations that a database lacks.
async fn database(
    loaded: &Loaded,
    url: &Secret,
    path: &[&str],
    away: Code,
) -> Result<Vec<String>, Finding> {
    let place = Place::of(url, &loaded.base)
        .map_err(|failure| loaded.finding(away, path, failure.lines.join("; ")))?;
    match migrate::pending(loaded, &place).await {
        Ok(migrated) => Ok(migrated.applied),
        Err(fault) => {
            let code = if fault.downcast_ref::<UnknownPooler>().is_some() {
                Code::UnknownPooler
            } else if fault.class == Class::Stop {
                Code::LedgerSchema
            } else {
                away
            };
            Err(loaded.finding(code, path, fault.detail()))
        }
    }
}
