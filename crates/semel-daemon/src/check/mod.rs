//! `semel check`: what is wrong with a config, or will be.

use serde::Serialize;

use crate::config::{self, Loaded};
use crate::exit::{Exit, Failure};
use crate::out::{self, Style};

mod connect;
mod findings;
mod rules;

pub(crate) use connect::findings as connected;
pub(crate) use findings::{Code, Finding, Level};
pub(crate) use rules::{findings, key_rule};

/// What `check --json` prints.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    findings: Vec<Finding>,
}

/// The config as it was read, or the findings that kept it from being read; then what it means as a whole.
pub(crate) fn config(path: &std::path::Path) -> (Option<Loaded>, Vec<Finding>) {
    match config::load(path) {
        Err(findings) => (None, findings),
        Ok(loaded) => {
            let findings = findings(&loaded);
            (Some(loaded), findings)
        }
    }
}

/// Prints the findings; the exit code says if one is an error.
pub(crate) fn report(mut findings: Vec<Finding>, style: Style) -> Result<Exit, Failure> {
    findings.sort_by_key(|finding| (finding.level == Level::Warning, line(&finding.place)));
    let ok = !findings.iter().any(Finding::is_error);
    match style {
        Style::Json => out::json(&Report { ok, findings })?,
        Style::Words if findings.is_empty() => out::line("no findings")?,
        Style::Words => findings
            .iter()
            .try_for_each(|finding| out::line(&finding.to_string()))?,
    }
    Ok(if ok { Exit::Done } else { Exit::No })
}

fn line(place: &str) -> usize {
    place
        .rsplit_once(':')
        .and_then(|(_, line)| line.parse().ok())
        .unwrap_or(0)
}
