//! Stands in for a broker whose client is not in this build: `check` says so, and nothing else works.
#![cfg_attr(
    all(feature = "kafka", feature = "rabbitmq"),
    allow(dead_code, reason = "every client is in this build")
)]

use std::sync::Arc;

use semel_core::source::Positions;
use semel_core::{Fault, Sink};

use super::Opened;
use crate::check::{Code, Finding};
use crate::cli;
use crate::config::{self, Loaded};
use crate::doctor::{Reading, Standing};
use crate::exit::Failure;
use crate::rewind::Step;

const MESSAGE: &str = "sources of this type are not in this build";

pub(super) async fn open<S>(
    _: &Loaded,
    _: &S,
    _: usize,
    _: Arc<dyn Positions>,
) -> Result<Result<Opened, Fault>, Failure> {
    Err(Failure::usage(MESSAGE))
}

pub(super) async fn sink<S>(_: &Loaded, _: &S) -> Result<Result<Arc<dyn Sink>, Fault>, Failure> {
    Err(Failure::usage(MESSAGE))
}

pub(super) async fn examine<S>(
    _: &Loaded,
    _: &Reading<'_>,
    _: &S,
) -> (Vec<Standing>, Vec<Finding>) {
    (Vec::new(), Vec::new())
}

pub(super) async fn steps<S>(
    _: &Loaded,
    _: &Reading<'_>,
    _: &S,
    _: &cli::Rewind,
) -> Result<Vec<Step>, Failure> {
    Err(Failure::usage(MESSAGE))
}

pub(super) async fn set_back<S>(_: &Loaded, _: &S, _: &[Step]) -> Result<(), Failure> {
    Err(Failure::usage(MESSAGE))
}

pub(super) fn findings<S>(loaded: &Loaded, name: &str, _: &S, _: u64) -> Vec<Finding> {
    let kind = loaded
        .config
        .sources
        .get(name)
        .map_or("", config::Source::kind);
    let message = format!(
        "this build of semel has no `{kind}`; `cargo build --release -p semel-daemon` makes one with all sources"
    );
    vec![loaded.finding(Code::NotInThisBuild, &["sources", name, "type"], message)]
}

pub(super) async fn try_to_reach<S>(_: &Loaded, _: &S) -> Result<(), String> {
    Err(MESSAGE.to_owned())
}
