//! What became of a commit whose answer was lost. A fresh session writes the lane's fence row, which waits for
//! the transaction that may still hold it; then the row's number tells.

use semel_core::Fault;
use semel_core::ledger::{Committed, Fence, LaneId, Resolved};
use sqlx::Row;
use sqlx::types::Uuid;

use crate::fault::{fault, is_lock_timeout};
use crate::ledger::Shared;
use crate::session::{self, Purpose, Session, Span};
use crate::sql;

/// How long a resolution may take in all, beyond connecting: two waits for the lock, ending the holder, and a
/// commit that may wait for a standby, ms.
const MARGIN_MS: u64 = 30_000;

pub(crate) async fn resolve(shared: &Shared, fence: Fence) -> Result<Resolved, Fault> {
    let options = &shared.options;
    let limit = options
        .connect_timeout_ms
        .saturating_add(options.resolve_wait_ms.saturating_mul(2))
        .saturating_add(MARGIN_MS);
    let unit = session::within(limit, "asking after a lost commit", async {
        let mut connection = session::open(options, Purpose::Resolve).await?;
        let unit = locked(&mut connection, fence.lane).await?;
        connection.close().await;
        Ok(unit)
    })
    .await?;
    let resolved = compare(unit, fence, shared.confirmed(fence.lane));
    if let Resolved::Committed(_) = resolved {
        shared.confirm(fence);
    }
    Ok(resolved)
}

/// The number on the fence row once nobody else holds it; `None` when the row is gone.
async fn locked(connection: &mut Session, lane: LaneId) -> Result<Option<i64>, Fault> {
    match touch(connection, lane).await {
        Err(error) if is_lock_timeout(&error) => {}
        other => return other.map_err(fault),
    }
    evict(connection, lane).await?;
    match touch(connection, lane).await {
        Err(error) if is_lock_timeout(&error) => Err(Fault::busy(format!(
            "the fence row of lane {} is still held by a session that works; its commit stays unknown, nothing is \
             acked, and it will be asked after again",
            lane.lane
        ))),
        other => other.map_err(fault),
    }
}

/// Writes the fence row and commits, or leaves nothing open. All rows are read, so that the commit is waited for.
async fn touch(connection: &mut Session, lane: LaneId) -> Result<Option<i64>, sqlx::Error> {
    connection.begin(Span::Each).await?;
    let touched = sqlx::query(sql!("fence_resolve"))
        .bind(lane.consumer.0)
        .bind(Uuid::from_bytes(lane.instance.0))
        .bind(lane.lane)
        .fetch_all(&mut *connection)
        .await;
    let rows = connection.ended(Span::Each, touched).await?;
    rows.first().map(|row| row.try_get(0)).transpose()
}

/// Ends the silent session that holds the fence row.
pub(crate) async fn evict(connection: &mut Session, lane: LaneId) -> Result<(), Fault> {
    connection.begin(Span::Each).await.map_err(fault)?;
    let evicted = sqlx::query(sql!("fence_evict"))
        .bind(lane.consumer.0)
        .bind(Uuid::from_bytes(lane.instance.0))
        .bind(lane.lane)
        .fetch_all(&mut *connection)
        .await;
    let evicted = connection.ended(Span::Each, evicted).await;
    evicted.map(drop).map_err(fault)
}

/// Reads the answer out of the number. A unit begins only when the one before it is committed, so anything
/// lower than the number before means that the database lost commits.
fn compare(found: Option<i64>, fence: Fence, confirmed: i64) -> Resolved {
    match found {
        Some(unit) if unit >= fence.unit => Resolved::Committed(Committed::witnessed(fence)),
        Some(unit) if unit == fence.unit - 1 && unit >= confirmed => Resolved::RolledBack,
        Some(_) | None => Resolved::Lost,
    }
}

#[cfg(test)]
mod tests {
    use semel_core::ledger::{ConsumerId, Instance};

    use super::*;

    #[test]
    fn the_fence_tells_committed_from_rolled_back_from_lost() {
        let lane = LaneId {
            consumer: ConsumerId(1),
            instance: Instance([7; 16]),
            lane: 0,
        };
        let fence = Fence { lane, unit: 5 };
        assert_eq!(
            compare(Some(5), fence, 4),
            Resolved::Committed(Committed::witnessed(fence))
        );
        assert_eq!(
            compare(Some(6), fence, 4),
            Resolved::Committed(Committed::witnessed(fence))
        );
        assert_eq!(compare(Some(4), fence, 4), Resolved::RolledBack);
        assert_eq!(compare(Some(4), fence, 5), Resolved::Lost);
        assert_eq!(compare(Some(3), fence, 3), Resolved::Lost);
        assert_eq!(compare(None, fence, 4), Resolved::Lost);
    }
}
