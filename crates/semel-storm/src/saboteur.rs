//! Saboteurs: parts that are broken on purpose, so that every law of the suite can be seen to catch one.

use std::future::Future;
use std::sync::Arc;

use semel_core::Fault;
use semel_core::key::Key;
use semel_core::ledger::{
    Claim, Claimed, Commit, ConsumerId, Enrolled, Enrolment, Fence, LaneId, Ledger, Parked,
    Reached, Record, Resolved, Save, SourceId, Unit, Which, Written,
};
use semel_core::source::{BoxFuture, Limit, Received, Settled, Settlements, Source};

/// What a saboteur of a ledger spoils. Every hook leaves things as they are by default.
pub trait LedgerSaboteur: Default + Send + Sync + 'static {
    /// Spoils an enrolment.
    fn enrolment(&self, _enrolment: &mut Enrolment) {}
    /// Spoils the lane that is connected.
    fn lane(&self, _lane: &mut LaneId) {}
    /// Spoils claims on their way in.
    fn claims(&self, _lane: LaneId, _claims: &mut Vec<Claim>) {}
    /// Spoils the answers to claims.
    fn claimed(&self, _claims: &[Claim], _claimed: &mut Vec<Claimed>) {}
    /// Says `Fresh` to all when the claims failed.
    fn swallows(&self, _fault: &Fault) -> bool {
        false
    }
    /// Spoils what a unit writes.
    fn record(&self, _fence: Fence, _record: &mut Record) {}
    /// Spoils counted attempts.
    fn attempts(&self, _attempts: &mut Vec<u32>) {}
    /// Whether going back to a savepoint is done at all.
    fn goes_back(&self) -> bool {
        true
    }
    /// Whether a second going back is refused.
    fn tires_of_going_back(&self) -> bool {
        false
    }
    /// Whether records are written, and committed, on another lane.
    fn writes_elsewhere(&self) -> bool {
        false
    }
    /// Spoils the number of a unit.
    fn fence(&self, fence: Fence) -> Fence {
        fence
    }
    /// Answers for an unknown commit without asking the ledger.
    fn resolves(&self, _fence: Fence) -> Option<Resolved> {
        None
    }
    /// Spoils parked messages that come back.
    fn parked(&self, _which: &Which<'_>, _parked: &mut Vec<Parked>) {}
    /// Spoils positions.
    fn positions(&self, _positions: &mut Vec<Reached>) {}
}

/// A ledger with a saboteur inside.
#[derive(Debug)]
pub struct BrokenLedger<L, S> {
    ledger: Arc<L>,
    saboteur: Arc<S>,
}

/// A lane of a [`BrokenLedger`].
#[derive(Debug)]
pub struct BrokenLane<L: Ledger, S> {
    ledger: Arc<L>,
    saboteur: Arc<S>,
    lane: L::Lane,
    id: LaneId,
}

/// A unit of a [`BrokenLedger`].
pub struct BrokenUnit<L: Ledger, S> {
    ledger: Arc<L>,
    saboteur: Arc<S>,
    unit: L::Unit,
    id: LaneId,
    backs: u32,
}

impl<L: Ledger, S: LedgerSaboteur> BrokenLedger<L, S> {
    /// Puts the saboteur in.
    pub fn new(ledger: L) -> Self {
        Self {
            ledger: Arc::new(ledger),
            saboteur: Arc::new(S::default()),
        }
    }

    /// Another opening with the same saboteur.
    #[must_use]
    pub fn again(&self) -> Self {
        Self {
            ledger: self.ledger.clone(),
            saboteur: self.saboteur.clone(),
        }
    }
}

impl<L: Ledger, S: LedgerSaboteur> Ledger for BrokenLedger<L, S> {
    type Lane = BrokenLane<L, S>;
    type Unit = BrokenUnit<L, S>;

    async fn enroll(&self, enrolment: &Enrolment) -> Result<Enrolled, Fault> {
        let mut enrolment = enrolment.clone();
        self.saboteur.enrolment(&mut enrolment);
        self.ledger.enroll(&enrolment).await
    }

    async fn connect(&self, mut id: LaneId) -> Result<Self::Lane, Fault> {
        self.saboteur.lane(&mut id);
        let lane = self.ledger.connect(id).await?;
        Ok(BrokenLane {
            ledger: self.ledger.clone(),
            saboteur: self.saboteur.clone(),
            lane,
            id,
        })
    }

    async fn begin(&self, lane: Self::Lane) -> Result<Self::Unit, Fault> {
        let unit = self.ledger.begin(lane.lane).await?;
        Ok(BrokenUnit {
            ledger: lane.ledger,
            saboteur: lane.saboteur,
            unit,
            id: lane.id,
            backs: 0,
        })
    }

    async fn resolve(&self, fence: Fence) -> Result<Resolved, Fault> {
        match self.saboteur.resolves(fence) {
            Some(resolved) => Ok(resolved),
            None => self.ledger.resolve(fence).await,
        }
    }

    async fn leave(&self, lane: Self::Lane) -> Result<(), Fault> {
        self.ledger.leave(lane.lane).await
    }

    async fn parked(
        &self,
        consumer: ConsumerId,
        which: Which<'_>,
        limit: Limit,
    ) -> Result<Vec<Parked>, Fault> {
        let mut parked = self.ledger.parked(consumer, which.clone(), limit).await?;
        self.saboteur.parked(&which, &mut parked);
        Ok(parked)
    }

    async fn positions(
        &self,
        consumer: ConsumerId,
        source: SourceId,
    ) -> Result<Vec<Reached>, Fault> {
        let mut positions = self.ledger.positions(consumer, source).await?;
        self.saboteur.positions(&mut positions);
        Ok(positions)
    }
}

impl<L: Ledger, S: LedgerSaboteur> Unit for BrokenUnit<L, S> {
    type Lane = BrokenLane<L, S>;

    fn fence(&self) -> Fence {
        self.saboteur.fence(self.unit.fence())
    }

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Claimed>, Fault> {
        let mut spoilt = claims.to_vec();
        self.saboteur.claims(self.id, &mut spoilt);
        let mut claimed = match self.unit.claim(&spoilt).await {
            Ok(claimed) => claimed,
            Err(fault) if self.saboteur.swallows(&fault) => {
                claims.iter().map(|_| Claimed::Fresh).collect()
            }
            Err(fault) => return Err(fault),
        };
        self.saboteur.claimed(claims, &mut claimed);
        Ok(claimed)
    }

    fn save(&mut self, save: Save) -> impl Future<Output = Result<(), Fault>> + Send {
        self.unit.save(save)
    }

    async fn back(&mut self, save: Save) -> Result<(), Fault> {
        self.backs += 1;
        if self.saboteur.tires_of_going_back() && self.backs > 1 {
            return Err(Fault::down("no savepoint any more"));
        }
        if self.saboteur.goes_back() {
            self.unit.back(save).await
        } else {
            Ok(())
        }
    }

    async fn attempt(&mut self, keys: &[Key]) -> Result<Vec<u32>, Fault> {
        let mut attempts = self.unit.attempt(keys).await?;
        self.saboteur.attempts(&mut attempts);
        Ok(attempts)
    }

    async fn write(&mut self, record: &Record) -> Result<Written, Fault> {
        let mut record = record.clone();
        self.saboteur.record(self.unit.fence(), &mut record);
        if !self.saboteur.writes_elsewhere() {
            return self.unit.write(&record).await;
        }
        let lane = self
            .ledger
            .connect(LaneId {
                lane: self.id.lane + 1000,
                ..self.id
            })
            .await?;
        let mut unit = self.ledger.begin(lane).await?;
        // The notes would wait for the claims of the open unit.
        let written = unit
            .write(&Record {
                notes: Vec::new(),
                ..record
            })
            .await?;
        match unit.commit().await {
            Commit::Committed(..) => Ok(written),
            Commit::RolledBack(fault) | Commit::Unknown(fault) => Err(fault),
        }
    }

    async fn commit(self) -> Commit<Self::Lane> {
        let Self {
            ledger,
            saboteur,
            unit,
            id,
            ..
        } = self;
        match unit.commit().await {
            Commit::Committed(proof, lane) => Commit::Committed(
                proof,
                BrokenLane {
                    ledger,
                    saboteur,
                    lane,
                    id,
                },
            ),
            Commit::RolledBack(fault) => Commit::RolledBack(fault),
            Commit::Unknown(fault) => Commit::Unknown(fault),
        }
    }
}

/// What a saboteur of a source spoils.
pub trait SourceSaboteur: Default + Send + Sync + 'static {
    /// Spoils a limit.
    fn limit(&self, _limit: &mut Limit) {}
    /// Spoils what was received.
    fn received(&self, _received: &mut Received) {}
    /// Spoils settlements.
    fn settlements(&self, _settlements: &mut Settlements) {}
    /// Whether a call waits once more after it took its batch, and so loses it when it is dropped.
    fn dawdles(&self) -> bool {
        false
    }
}

/// A source with a saboteur inside.
pub struct BrokenSource<S> {
    source: Arc<dyn Source>,
    saboteur: Arc<S>,
}

impl<S: SourceSaboteur> BrokenSource<S> {
    /// Puts the saboteur in.
    pub fn new(source: Arc<dyn Source>, saboteur: Arc<S>) -> Self {
        Self { source, saboteur }
    }
}

impl<S: SourceSaboteur> Source for BrokenSource<S> {
    fn receive(&self, mut limit: Limit) -> BoxFuture<'_, Result<Received, Fault>> {
        Box::pin(async move {
            self.saboteur.limit(&mut limit);
            let mut received = self.source.receive(limit).await?;
            if self.saboteur.dawdles() {
                tokio::task::yield_now().await;
            }
            self.saboteur.received(&mut received);
            Ok(received)
        })
    }

    fn settle(&self, mut settlements: Settlements) -> BoxFuture<'_, Result<Settled, Fault>> {
        self.saboteur.settlements(&mut settlements);
        self.source.settle(settlements)
    }
}
