//! What operators did, by whom and why: noted in the ledger before it is done, and told by `doctor`.

use jiff::Timestamp;
use semel_core::ledger::ConsumerId;
use semel_core::rows::{Query, Register, Value};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::dialect::Dialect;
use crate::exit::Failure;
use crate::inspect::{Statements, rows};

/// So many of the newest are told.
const TOLD_MAX: i64 = 20;

/// Who acts, and why.
#[derive(Debug, Clone)]
pub(crate) struct By {
    who: String,
    why: String,
}

impl By {
    /// Who is not named is who the system says.
    pub(crate) fn new(who: Option<&str>, why: Option<&str>) -> Self {
        let names = ["USER", "LOGNAME"].map(std::env::var);
        let known = || names.into_iter().flatten().find(|name| !name.is_empty());
        let who = who.map(str::to_owned).or_else(known).or_else(account);
        Self {
            who: who.unwrap_or_else(|| "unknown".to_owned()),
            why: why.unwrap_or_default().to_owned(),
        }
    }
}

/// The name of the account that the process runs as: services and containers have no `USER`.
fn account() -> Option<String> {
    let said = std::process::Command::new("id").arg("-un").output().ok()?;
    let name = String::from_utf8(said.stdout).ok()?.trim().to_owned();
    (said.status.success() && !name.is_empty()).then_some(name)
}

/// An act, as it is told.
#[derive(Debug, Serialize)]
pub(crate) struct Act {
    pub(crate) at: Option<Timestamp>,
    pub(crate) consumer: String,
    pub(crate) act: String,
    pub(crate) who: String,
    pub(crate) why: Option<String>,
    /// What was changed, from what to what.
    pub(crate) detail: Box<RawValue>,
}

/// Notes an act.
///
/// # Errors
///
/// The ledger does not take it; then the act must not be done.
pub(crate) async fn note(
    ledger: &impl Register,
    dialect: Dialect,
    ConsumerId(consumer): ConsumerId,
    act: &str,
    by: &By,
    detail: &impl Serialize,
) -> Result<(), Failure> {
    let detail = to_raw_value(detail).expect("texts and numbers are JSON");
    let args = [
        Value::Int(consumer.into()),
        Value::Text(act.into()),
        Value::Text(by.who.as_str().into()),
        Value::Text(by.why.as_str().into()),
        Value::Text(detail.get().into()),
    ];
    ledger
        .register(Statements::of(dialect).act, &args)
        .await
        .map_err(|fault| Failure::fault("the act could not be noted, so it was not done", &fault))
}

/// The newest acts, the last first.
///
/// # Errors
///
/// The ledger cannot be read.
pub(crate) async fn newest(ledger: &impl Query, dialect: Dialect) -> Result<Vec<Act>, Failure> {
    let sql = Statements::of(dialect).acts;
    rows(ledger, sql, &[Value::Int(TOLD_MAX)], |mut cells| {
        Some(Act {
            at: cells.time(),
            consumer: cells.text()?,
            act: cells.text()?,
            who: cells.text()?,
            why: cells.text().filter(|why| !why.is_empty()),
            detail: RawValue::from_string(cells.text()?).ok()?,
        })
    })
    .await
}
