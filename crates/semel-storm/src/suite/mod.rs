//! The suite: laws as async functions over any ledger, source or sink, one named test per law.
//!
//! A backend writes one small rig (how to get an empty store, how to open it) and one line:
//!
//! ```
//! use semel_storm::suite::SimRig;
//!
//! semel_storm::ledger_laws!(SimRig);
//! # fn main() {}
//! ```
//!
//! A law that fails panics with a sentence. For each law there is a saboteur in this crate's tests: a
//! broken part that the law must catch, so that no law is an empty one.

pub mod ledger;
pub mod sink;
pub mod source;

mod rigs;

use std::future::Future;
use std::time::Duration;

use semel_core::Fault;

pub use ledger::LedgerRig;
pub use rigs::{SimRig, SimSourceRig};
pub use sink::SinkRig;
pub use source::{Features, Kept, SourceRig};

/// How long a law may take before it is held for hung, seconds. No verdict depends on it: a law that
/// holds ends long before, a slow machine included.
const HUNG_AFTER_SECONDS: u64 = 120;

/// Runs a law; one that hangs fails.
pub async fn run(law: &str, run: impl Future<Output = ()>) {
    let hung = tokio::time::timeout(Duration::from_secs(HUNG_AFTER_SECONDS), run).await;
    assert!(
        hung.is_ok(),
        "`{law}` hangs: something that must come never came"
    );
}

/// The value, or the fault as the law's failure.
pub(crate) fn ok<T>(result: Result<T, Fault>) -> T {
    result.unwrap_or_else(|fault| panic!("no fault was expected: {fault} ({:?})", fault.class))
}
