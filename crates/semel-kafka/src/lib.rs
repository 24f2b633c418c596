//! Apache Kafka as a source and a sink.
//!
//! **Delivery guarantees, the bad news first.** Kafka delivers again: after every crash, rebalance or lost
//! answer, what was in flight comes once more. The ledger makes duplicates of it; nothing here tries to. A
//! producer's own retries, its idempotence and its transactions prove nothing about business operations
//! (E020, E058). Order is that of a partition; when a partition moves to another member, the two may work on
//! neighbouring messages for a moment, and the ledger decides. `start_at = "latest"` skips what was there
//! before, on purpose.
//!
//! The good news: the broker is told only what a committed unit has written into the ledger's database; a
//! broker that is ahead of that means lost commits, and a topic that was made again is recognised. Both stop
//! with both numbers instead of skipping.
//!
//! Rooms: `options` (what a configuration may say), `source` (the async side), `member` (the client's
//! thread), `turn` (one turn of its polling), `assignment` (who holds what, plain bookkeeping), `vetting` and `verdict` (where a partition
//! starts), `probe` (looks at the broker), `record` and `mark` (a record as a message), `sink`, `operate`
//! (for `semel doctor` and `semel rewind`).

mod assignment;
mod complaint;
mod fault;
mod mark;
mod member;
mod operate;
mod options;
mod orphans;
mod probe;
mod quiet;
mod record;
mod shared;
mod sink;
mod source;
mod turn;
mod verdict;
mod vetting;
mod watch;

pub use operate::{PartitionReport, Pulse, inspect, retention_ms, rewind};
pub use options::{Assignor, ClientOptions, KafkaOptions, KafkaSinkOptions, StartAt};
pub use sink::KafkaSink;
pub use source::KafkaSource;
