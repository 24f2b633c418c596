//! The simulated parts under their own suite.

use std::sync::Arc;

use semel_core::key::Key;
use semel_core::ledger::ConsumerId;
use semel_core::sink::{Outgoing, Sink};
use semel_core::source::Source;

use super::ledger::LedgerRig;
use super::ok;
use super::sink::SinkRig;
use super::source::{Features, Kept, SourceRig};
use crate::sim::{SimLedger, SimSource};

/// [`SimLedger`] under the suite.
#[derive(Debug)]
pub struct SimRig {
    ledger: SimLedger,
}

impl SimRig {
    /// The ledger.
    #[must_use]
    pub const fn ledger(&self) -> &SimLedger {
        &self.ledger
    }
}

impl LedgerRig for SimRig {
    type Ledger = SimLedger;

    async fn fresh() -> Self {
        Self {
            ledger: SimLedger::new(1),
        }
    }

    async fn open(&self) -> SimLedger {
        self.ledger.clone()
    }

    async fn sightings(&self, consumer: ConsumerId, key: Key) -> Vec<(i16, i64)> {
        let rows = self
            .ledger
            .sightings()
            .into_iter()
            .filter(|row| row.consumer == consumer && row.key == key);
        rows.map(|row| (row.kind.number(), row.count)).collect()
    }

    async fn letters(&self, consumer: ConsumerId) -> Vec<(String, i64)> {
        let rows = self
            .ledger
            .letters()
            .into_iter()
            .filter(|row| row.consumer == consumer);
        rows.map(|row| (row.letter.code.to_string(), row.count))
            .collect()
    }
}

/// [`SimSource`] under the suite.
#[derive(Debug)]
pub struct SimSourceRig {
    source: SimSource,
}

impl SimSourceRig {
    /// The source.
    #[must_use]
    pub const fn source(&self) -> &SimSource {
        &self.source
    }
}

impl SourceRig for SimSourceRig {
    const FEATURES: Features = Features {
        headers: true,
        message_key: true,
        null_payload: true,
        empty_payload: true,
        redelivers: true,
        counts_deliveries: true,
        drains: true,
        ends: false,
    };

    async fn fresh() -> Self {
        Self {
            source: SimSource::new(1),
        }
    }

    async fn put(&self, messages: &[Outgoing]) {
        ok(self.source.publish(messages).await);
    }

    async fn open(&self, _positions: Arc<Kept>) -> Arc<dyn Source> {
        self.source.break_off();
        Arc::new(self.source.clone())
    }
}

impl SinkRig for SimSourceRig {
    const FEATURES: Features = <Self as SourceRig>::FEATURES;

    async fn fresh() -> Self {
        <Self as SourceRig>::fresh().await
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.source.clone())
    }

    async fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.source.clone())
    }
}
