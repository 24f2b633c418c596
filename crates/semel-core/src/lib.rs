//! The words and the law of Semel: what a message, a key, a claim and an outcome are, and what a unit
//! of work must write. No I/O, no SQL, no clock, no randomness, no spawned task lives here, so that
//! brokers, databases and the simulator all stand on the same floor.

pub mod fault;
pub mod fingerprint;
pub mod json;
pub mod key;
pub mod law;
pub mod ledger;
pub mod message;
pub mod outcome;
pub mod retry;
pub mod rows;
pub mod sink;
pub mod source;
pub mod step;

pub use fault::{Class, Fault};
pub use fingerprint::{Canon, Content, FieldSums, Fingerprint, Policy, Scheme};
pub use json::{Json, Malformed, Pointer, canonical};
pub use key::{Key, KeyRule, NoKey, Part};
pub use ledger::{Committed, Ledger, Unit};
pub use message::{Message, Position};
pub use outcome::{Answer, Awaiting, Code, Outcome, codes};
pub use retry::Backoff;
pub use sink::{Outgoing, Sink};
pub use source::{Delivery, Limit, Receipt, Received, Settlements, Source};
pub use step::{Step, StepCodes};
