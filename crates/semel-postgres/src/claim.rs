//! Claims: keys go in set-based, and what was there already is read by a second statement, which sees what
//! committed while the first one waited.

use bytes::Bytes;
use semel_core::ledger::{Claim, ClaimKind, Claimed, ConsumerId, Prior, SourceId};
use semel_core::{Code, Fault, FieldSums, Fingerprint, Outcome, Scheme};
use sqlx::postgres::{PgBindIterExt, PgRow};
use sqlx::types::Uuid;
use sqlx::{PgConnection, Row};

use crate::fault::fault;
use crate::sql;
use crate::value::{Instant, uuid};

/// Claims keys (distinct, sorted); answers in the same order.
///
/// # Panics
/// When the keys are not sorted: two lanes that claim in different orders deadlock (TRAPS T32).
pub(crate) async fn claim(
    connection: &mut PgConnection,
    consumer: ConsumerId,
    claims: &[Claim],
) -> Result<Vec<Claimed>, Fault> {
    assert!(
        claims.is_sorted_by(|a, b| a.key < b.key),
        "claims are distinct and sorted by key"
    );
    let fresh = |claim: &&Claim| claim.kind == ClaimKind::New;
    let news: Vec<&Claim> = claims.iter().filter(fresh).collect();
    let taken = insert(connection, consumer, &news).await?;
    let mut seen = if taken.len() == news.len() {
        Vec::new()
    } else {
        let known: Vec<Uuid> = news
            .iter()
            .map(|c| uuid(c.key))
            .filter(|k| taken.binary_search(k).is_err())
            .collect();
        read(connection, consumer, &known).await?
    }
    .into_iter();
    let parked: Vec<Uuid> = claims
        .iter()
        .filter(|c| !fresh(c))
        .map(|c| uuid(c.key))
        .collect();
    let released = release(connection, consumer, &parked).await?;
    let answer = |claim: &Claim| {
        match claim.kind {
        ClaimKind::New if taken.len() == news.len() || taken.binary_search(&uuid(claim.key)).is_ok() => Ok(Claimed::Fresh),
        ClaimKind::New => seen.next().flatten().map(|prior| Claimed::Seen(Box::new(prior))).ok_or_else(|| {
            Fault::busy(format!(
                "key {} was neither inserted nor found: its row was deleted in between; the unit runs again",
                claim.key
            ))
        }),
        ClaimKind::Released if released.binary_search(&uuid(claim.key)).is_ok() => Ok(Claimed::Fresh),
        ClaimKind::Released => Ok(Claimed::Ended),
    }
    };
    claims.iter().map(answer).collect()
}

/// Inserts rows; the keys that went in, sorted.
async fn insert(
    connection: &mut PgConnection,
    consumer: ConsumerId,
    claims: &[&Claim],
) -> Result<Vec<Uuid>, Fault> {
    let Some(first) = claims.first() else {
        return Ok(Vec::new());
    };
    let alike = |claim: &&Claim| (claim.scheme, claim.source) == (first.scheme, first.source);
    let names = claims.iter().map(|c| uuid(c.key)).bind_iter();
    let contents = claims
        .iter()
        .map(|c| Uuid::from_bytes(c.fingerprint.into_bytes()))
        .bind_iter();
    let sums = claims.iter().map(|c| c.sums.as_bytes()).bind_iter();
    let query = if claims.iter().all(alike) {
        sqlx::query(sql!("claim"))
            .bind(consumer.0)
            .bind(first.scheme.0)
            .bind(first.source.0)
            .bind(names)
            .bind(contents)
            .bind(sums)
    } else {
        sqlx::query(sql!("claim_mixed"))
            .bind(consumer.0)
            .bind(names)
            .bind(contents)
            .bind(claims.iter().map(|c| c.scheme.0).bind_iter())
            .bind(sums)
            .bind(claims.iter().map(|c| c.source.0).bind_iter())
    };
    keys(query.fetch_one(connection).await)
}

/// Takes parked rows back; the keys that still said `parked`, sorted.
async fn release(
    connection: &mut PgConnection,
    consumer: ConsumerId,
    parked: &[Uuid],
) -> Result<Vec<Uuid>, Fault> {
    if parked.is_empty() {
        return Ok(Vec::new());
    }
    let query = sqlx::query(sql!("release")).bind(consumer.0).bind(parked);
    keys(query.fetch_one(connection).await)
}

fn keys(row: Result<PgRow, sqlx::Error>) -> Result<Vec<Uuid>, Fault> {
    let keys: Option<Vec<Uuid>> = row.and_then(|row| row.try_get(0)).map_err(fault)?;
    let mut keys = keys.unwrap_or_default();
    if !keys.is_sorted() {
        keys.sort_unstable();
    }
    Ok(keys)
}

/// What the rows of `known` say, in that order; `None` where there is none.
async fn read(
    connection: &mut PgConnection,
    consumer: ConsumerId,
    known: &[Uuid],
) -> Result<Vec<Option<Prior>>, Fault> {
    let rows = sqlx::query(sql!("seen"))
        .bind(consumer.0)
        .bind(known)
        .fetch_all(connection)
        .await
        .map_err(fault)?;
    let mut priors = vec![None; known.len()];
    for row in &rows {
        let place: i64 = row.try_get(0).map_err(fault)?;
        let slot = usize::try_from(place)
            .ok()
            .and_then(|place| priors.get_mut(place.checked_sub(1)?));
        *slot.expect("the server counts the elements of the array we sent") = Some(prior(row)?);
    }
    Ok(priors)
}

fn prior(row: &PgRow) -> Result<Prior, Fault> {
    let fields = || -> Result<(i16, Prior), sqlx::Error> {
        let fingerprint: Uuid = row.try_get(1)?;
        let at: Instant = row.try_get(8)?;
        let prior = Prior {
            outcome: Outcome::Applied,
            code: row.try_get::<Option<String>, _>(5)?.map(Code::stored),
            reply: row
                .try_get::<Option<&[u8]>, _>(6)?
                .map(Bytes::copy_from_slice),
            fingerprint: Fingerprint::from_bytes(fingerprint.into_bytes()),
            scheme: Scheme(row.try_get(2)?),
            sums: FieldSums::from_bytes(row.try_get(3)?),
            source: SourceId(row.try_get(7)?),
            at_us: at.0,
        };
        Ok((row.try_get(4)?, prior))
    };
    let (number, prior) = fields().map_err(fault)?;
    let outcome = Outcome::from_number(number).ok_or_else(|| {
        Fault::stop(format!(
            "a ledger row has outcome {number}, which this version does not know; run a newer one"
        ))
    })?;
    Ok(Prior { outcome, ..prior })
}
