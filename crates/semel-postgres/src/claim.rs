//! Claims: keys go in set-based. Few are inserted where they are not there, and the same statement tells what was there
//! already; what committed while it waited is read by a second one, which sees it. Many are looked for first.

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use semel_core::ledger::{Claim, ClaimKind, Claimed, ConsumerId, Prior, SourceId};
use semel_core::{Code, Fault, FieldSums, Fingerprint, Outcome, Scheme};
use sqlx::postgres::{PgBindIterExt, PgRow};
use sqlx::types::Uuid;
use sqlx::{Encode, Postgres, Row, Type};

use crate::fault::fault;
use crate::session::{self, Session};
use crate::sql;
use crate::value::{Instant, uuid};

/// From so many keys on, a look and a plain insert cost less than an insert that expects collisions (2.7 against
/// 3.9 ms for 1000 keys of which 100 are known), in spite of the further request.
const LOOK_COUNT_MIN: usize = 64;

/// So many claims go without a look after one that another unit overtook: where the same keys are claimed at once again and
/// again, it is the look that is in vain.
const OVERTAKEN: u32 = 64;

/// How the lanes of a process claim.
#[derive(Debug, Default)]
pub(crate) struct Manner {
    /// Claims that still expect collisions.
    expecting: AtomicU32,
}

impl Manner {
    /// Whether to look first.
    fn looks(&self, news: &[&Claim]) -> bool {
        news.len() >= LOOK_COUNT_MIN
            && alike(news)
            && self
                .expecting
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
                .is_err()
    }

    fn overtaken(&self) {
        self.expecting.store(OVERTAKEN, Ordering::Relaxed);
    }
}

/// Claims keys (distinct, sorted); answers in the same order.
///
/// # Panics
/// When the keys are not sorted: two lanes that claim in different orders deadlock (TRAPS T32).
pub(crate) async fn claim(
    connection: &mut Session,
    manner: &Manner,
    consumer: ConsumerId,
    claims: &[Claim],
) -> Result<Vec<Claimed>, Fault> {
    assert!(
        claims.is_sorted_by(|a, b| a.key < b.key),
        "claims are distinct and sorted by key"
    );
    let is_new = |claim: &&Claim| claim.kind == ClaimKind::New;
    let news: Vec<&Claim> = claims.iter().filter(is_new).collect();
    let looked = if manner.looks(&news) {
        let priors = look_and_insert(connection, consumer, &news).await?;
        if priors.is_none() {
            manner.overtaken();
        }
        priors
    } else {
        None
    };
    let priors = match looked {
        Some(priors) => priors,
        None => insert_and_look(connection, consumer, &news).await?,
    };
    let parked: Vec<Uuid> = claims
        .iter()
        .filter(|claim| !is_new(claim))
        .map(|claim| uuid(claim.key))
        .collect();
    let released = release(connection, consumer, &parked).await?;
    let mut priors = priors.into_iter();
    let answer = |claim: &Claim| match claim.kind {
        ClaimKind::New => match priors.next().flatten() {
            None => Claimed::Fresh,
            Some(prior) => Claimed::Seen(Box::new(prior)),
        },
        ClaimKind::Released if released.binary_search(&uuid(claim.key)).is_ok() => Claimed::Fresh,
        ClaimKind::Released => Claimed::Ended,
    };
    Ok(claims.iter().map(answer).collect())
}

/// Looks for the keys and inserts those that are not there; tells what the others' rows say. `None`, with the
/// transaction as it was, when another unit committed one of them in between.
async fn look_and_insert(
    connection: &mut Session,
    consumer: ConsumerId,
    news: &[&Claim],
) -> Result<Option<Vec<Option<Prior>>>, Fault> {
    let keys: Vec<Uuid> = news.iter().map(|claim| uuid(claim.key)).collect();
    let priors = read(connection, consumer, &keys).await?;
    let absent = news
        .iter()
        .zip(&priors)
        .filter(|(_, prior)| prior.is_none());
    let absent: Vec<&Claim> = absent.map(|(claim, _)| *claim).collect();
    let Some(first) = absent.first() else {
        return Ok(Some(priors));
    };
    session::script(connection, "SAVEPOINT semel_look").await?;
    let inserted = sqlx::query(sql!("claim_new"))
        .bind(consumer.0)
        .bind(first.scheme.0)
        .bind(first.source.0)
        .bind(names(&absent))
        .bind(contents(&absent))
        .bind(sums(&absent))
        .execute(&mut *connection)
        .await;
    match inserted {
        Ok(_) => Ok(Some(priors)),
        Err(sqlx::Error::Database(error)) if error.constraint() == Some("semel_ledger_key") => {
            session::script(connection, "ROLLBACK TO SAVEPOINT semel_look").await?;
            Ok(None)
        }
        Err(error) => Err(fault(error)),
    }
}

/// Inserts the keys that are not there; tells what the others' rows say.
async fn insert_and_look(
    connection: &mut Session,
    consumer: ConsumerId,
    news: &[&Claim],
) -> Result<Vec<Option<Prior>>, Fault> {
    let mut priors = vec![None; news.len()];
    let mut late = Vec::new();
    for row in insert(connection, consumer, news).await? {
        let at = place(&row)?;
        priors[at] = prior(&row)?;
        // A row that says `parked` may have said so before the claim waited for who released it.
        let may_change = |prior: &Prior| prior.outcome == Outcome::Parked;
        if priors[at].as_ref().is_none_or(may_change) {
            late.push(at);
        }
    }
    // What was committed while the claim waited is seen by a later statement only.
    let keys: Vec<Uuid> = late.iter().map(|&at| uuid(news[at].key)).collect();
    let found = if keys.is_empty() {
        Vec::new()
    } else {
        read(connection, consumer, &keys).await?
    };
    for (at, prior) in late.into_iter().zip(found) {
        if prior.is_none() {
            return Err(Fault::busy(format!(
                "key {} was neither inserted nor found: its row was deleted in between; the unit runs again",
                news[at].key
            )));
        }
        priors[at] = prior;
    }
    Ok(priors)
}

/// Whether one scheme and one source are those of all.
fn alike(claims: &[&Claim]) -> bool {
    let content = |claim: &Claim| (claim.scheme, claim.source);
    claims
        .windows(2)
        .all(|pair| content(pair[0]) == content(pair[1]))
}

fn names<'a>(claims: &'a [&Claim]) -> impl Encode<'a, Postgres> + Type<Postgres> {
    claims.iter().map(|claim| uuid(claim.key)).bind_iter()
}

fn contents<'a>(claims: &'a [&Claim]) -> impl Encode<'a, Postgres> + Type<Postgres> {
    let content = |claim: &&Claim| Uuid::from_bytes(claim.fingerprint.into_bytes());
    claims.iter().map(content).bind_iter()
}

fn sums<'a>(claims: &'a [&Claim]) -> impl Encode<'a, Postgres> + Type<Postgres> {
    claims.iter().map(|claim| claim.sums.as_bytes()).bind_iter()
}

/// Inserts rows; a row for each key that was there.
async fn insert(
    connection: &mut Session,
    consumer: ConsumerId,
    claims: &[&Claim],
) -> Result<Vec<PgRow>, Fault> {
    let Some(first) = claims.first() else {
        return Ok(Vec::new());
    };
    let (names, contents, sums) = (names(claims), contents(claims), sums(claims));
    let query = if alike(claims) {
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
    query.fetch_all(connection).await.map_err(fault)
}

/// Takes parked rows back; the keys that still said `parked`, sorted.
async fn release(
    connection: &mut Session,
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
    connection: &mut Session,
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
        priors[place(row)?] = prior(row)?;
    }
    Ok(priors)
}

/// Which of the keys that were sent a row is about.
fn place(row: &PgRow) -> Result<usize, Fault> {
    let place: i64 = row.try_get(0).map_err(fault)?;
    let from_zero = place.checked_sub(1).and_then(|at| usize::try_from(at).ok());
    Ok(from_zero.expect("the server counts the elements of the array we sent"))
}

/// What a row of the ledger says; `None` where there was none.
fn prior(row: &PgRow) -> Result<Option<Prior>, Fault> {
    let fields = || -> Result<Option<(i16, Prior)>, sqlx::Error> {
        let Some(fingerprint) = row.try_get::<Option<Uuid>, _>(1)? else {
            return Ok(None);
        };
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
        Ok(Some((row.try_get(4)?, prior)))
    };
    let Some((number, prior)) = fields().map_err(fault)? else {
        return Ok(None);
    };
    let outcome = Outcome::from_number(number).ok_or_else(|| {
        Fault::stop(format!(
            "a ledger row has outcome {number}, which this version does not know; run a newer one"
        ))
    })?;
    Ok(Some(Prior { outcome, ..prior }))
}
