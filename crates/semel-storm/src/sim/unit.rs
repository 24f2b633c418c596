//! The simulated unit of work: claims, notes and all else that the law makes a unit write.

use semel_core::Fault;
use semel_core::key::Key;
use semel_core::key::Part;
use semel_core::ledger::{
    Claim, ClaimKind, Claimed, Commit, Committed, ConsumerId, Fence, Letter, Park, Prior, Reached,
    Record, Save, Sighting, Unit, Written,
};
use semel_core::outcome::Outcome;

use super::ledger::SimLane;
use super::store::{Ended, ParkedRow, Place, Row, Tx};

/// An open unit of a [`SimLedger`](super::SimLedger).
#[derive(Debug)]
pub struct SimUnit {
    pub(crate) tx: Tx,
    fence: Fence,
}

impl SimUnit {
    pub(crate) async fn begin(lane: SimLane) -> Result<Self, Fault> {
        let mut tx = Tx::begin(lane.store);
        tx.enter().await?;
        let place = Place::Fence(lane.lane);
        let Some(Row::Fence(unit, _)) = tx.lock_row(&place).await? else {
            return Err(Fault::down("the lane has no fence row: connect it again"));
        };
        let fence = Fence {
            lane: lane.lane,
            unit: unit + 1,
        };
        let now = tx.store.state().clock_us;
        tx.set(place, Some(Row::Fence(fence.unit, now)));
        Ok(Self { tx, fence })
    }

    const fn consumer(&self) -> ConsumerId {
        self.fence.lane.consumer
    }

    fn now_us(&self) -> i64 {
        self.tx.store.state().clock_us
    }

    async fn claim_one(&mut self, claim: &Claim) -> Result<Claimed, Fault> {
        let place = Place::Ledger(self.consumer(), claim.key);
        let row = |now| Prior {
            outcome: Outcome::Applied,
            code: None,
            reply: None,
            fingerprint: claim.fingerprint,
            scheme: claim.scheme,
            sums: claim.sums,
            source: claim.source,
            at_us: now,
        };
        let now = self.now_us();
        match claim.kind {
            ClaimKind::New => Ok(match self.tx.insert(place, Row::Ledger(row(now))).await? {
                Some(Row::Ledger(prior)) => Claimed::Seen(Box::new(prior)),
                _ => Claimed::Fresh,
            }),
            ClaimKind::Released => match self.tx.lock_row(&place).await? {
                Some(Row::Ledger(mut prior)) if prior.outcome == Outcome::Parked => {
                    prior.outcome = Outcome::Applied;
                    prior.code = None;
                    self.tx.set(place, Some(Row::Ledger(prior)));
                    Ok(Claimed::Fresh)
                }
                _ => Ok(Claimed::Ended),
            },
        }
    }

    async fn attempt_one(&mut self, key: Key) -> Result<u32, Fault> {
        let place = Place::Attempt(self.consumer(), key);
        self.tx.lock(&place).await?;
        let attempts = if let Some(Row::Attempt(attempts)) = self.tx.see(&place) {
            attempts + 1
        } else {
            1
        };
        self.tx.set(place, Some(Row::Attempt(attempts)));
        Ok(attempts)
    }

    async fn write_all(&mut self, record: &Record) -> Result<Written, Fault> {
        let consumer = self.consumer();
        for note in &record.notes {
            let place = Place::Ledger(consumer, note.key);
            if let Some(Row::Ledger(mut row)) = self.tx.lock_row(&place).await? {
                row.outcome = note.outcome;
                row.code.clone_from(&note.code);
                row.reply.clone_from(&note.reply);
                self.tx.set(place, Some(Row::Ledger(row)));
            }
        }
        for key in &record.unclaims {
            self.delete(Place::Ledger(consumer, *key)).await?;
        }
        for park in &record.parks {
            self.park(park).await?;
        }
        for key in &record.unparks {
            self.delete(Place::Parked(consumer, *key)).await?;
        }
        let mut written = Written::default();
        for letter in &record.letters {
            written.new_letters += usize::from(self.letter(letter).await?);
        }
        for sighting in &record.sightings {
            self.sight(sighting).await?;
        }
        for reached in &record.positions {
            self.reach(reached).await?;
        }
        for key in &record.settled_attempts {
            self.delete(Place::Attempt(consumer, *key)).await?;
        }
        Ok(written)
    }

    async fn delete(&mut self, place: Place) -> Result<(), Fault> {
        if self.tx.lock_row(&place).await?.is_some() {
            self.tx.set(place, None);
        }
        Ok(())
    }

    async fn park(&mut self, park: &Park) -> Result<(), Fault> {
        let place = Place::Parked(self.consumer(), park.key);
        self.tx.lock(&place).await?;
        let now = self.now_us();
        let (attempts, deadline_us) = match self.tx.see(&place) {
            Some(Row::Parked(before)) => (before.attempts + 1, before.deadline_us),
            _ => (1, now.saturating_add(us(park.deadline_in_ms))),
        };
        let row = ParkedRow {
            id: park.id.clone(),
            awaiting: park.awaiting.clone(),
            message: park.message.clone(),
            source: park.source,
            attempts,
            due_us: now.saturating_add(us(park.due_in_ms)),
            deadline_us,
        };
        self.tx.set(place, Some(Row::Parked(Box::new(row))));
        Ok(())
    }

    /// Says whether the letter is new.
    async fn letter(&mut self, letter: &Letter) -> Result<bool, Fault> {
        let parts = [
            Part::Uuid(letter.subject()),
            Part::Uuid(letter.hash),
            Part::Text(letter.code.as_str()),
        ];
        let id = Key::derive(&parts).map_err(Fault::poison)?;
        let place = Place::Letter(self.consumer(), id);
        self.tx.lock(&place).await?;
        let (row, new) = match self.tx.see(&place) {
            Some(Row::Letter(first, count)) => (Row::Letter(first, count + 1), false),
            _ => (Row::Letter(Box::new(letter.clone()), 1), true),
        };
        self.tx.set(place, Some(row));
        Ok(new)
    }

    async fn sight(&mut self, sighting: &Sighting) -> Result<(), Fault> {
        let place = Place::Sighting(
            self.consumer(),
            sighting.key,
            sighting.source,
            sighting.kind,
        );
        self.tx.lock(&place).await?;
        let before = if let Some(Row::Sighting(count)) = self.tx.see(&place) {
            count
        } else {
            0
        };
        self.tx
            .set(place, Some(Row::Sighting(before + sighting.count)));
        Ok(())
    }

    async fn reach(&mut self, reached: &Reached) -> Result<(), Fault> {
        let lane = self.fence.lane.lane;
        let place = Place::Position(
            self.consumer(),
            reached.source,
            reached.partition.clone(),
            lane,
        );
        self.tx.lock(&place).await?;
        let behind = match self.tx.see(&place) {
            Some(Row::Position(next, _)) => next < reached.next,
            _ => true,
        };
        if behind {
            self.tx.set(
                place,
                Some(Row::Position(reached.next, reached.mark.clone())),
            );
        }
        Ok(())
    }
}

impl Unit for SimUnit {
    type Lane = SimLane;

    fn fence(&self) -> Fence {
        self.fence
    }

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Claimed>, Fault> {
        self.tx.enter().await?;
        let mut claimed = Vec::with_capacity(claims.len());
        for claim in claims {
            let one = self.claim_one(claim).await;
            claimed.push(self.tx.leave(one)?);
        }
        Ok(claimed)
    }

    async fn save(&mut self, save: Save) -> Result<(), Fault> {
        self.tx.enter().await?;
        self.tx.save(save);
        Ok(())
    }

    async fn back(&mut self, save: Save) -> Result<(), Fault> {
        self.tx.back(save)
    }

    async fn attempt(&mut self, keys: &[Key]) -> Result<Vec<u32>, Fault> {
        self.tx.enter().await?;
        let mut attempts = Vec::with_capacity(keys.len());
        for key in keys {
            let one = self.attempt_one(*key).await;
            attempts.push(self.tx.leave(one)?);
        }
        Ok(attempts)
    }

    async fn write(&mut self, record: &Record) -> Result<Written, Fault> {
        self.tx.enter().await?;
        let written = self.write_all(record).await;
        self.tx.leave(written)
    }

    async fn commit(self) -> Commit<SimLane> {
        let lane = SimLane {
            store: self.tx.store.clone(),
            lane: self.fence.lane,
        };
        match self.tx.commit(self.fence).await {
            Ended::Committed => Commit::Committed(Committed::witnessed(self.fence), lane),
            Ended::RolledBack => {
                Commit::RolledBack(Fault::busy("the database rolled the unit back"))
            }
            Ended::Unknown => {
                Commit::Unknown(Fault::down("the connection broke around the commit"))
            }
        }
    }
}

/// Microseconds of a delay; one beyond the calendar counts as for ever.
fn us(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1000)
}
