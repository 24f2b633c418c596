//! The rivals on a broker: each feed in a task of its own, until nothing is left.

use semel_bench::naive_book::Teller;
use semel_bench::ops::Credit;
use semel_bench::tables::{Error, Place};
use semel_bench::{expert, naive};
use sqlx::PgPool;
use tokio::task::JoinSet;

use crate::feed::Feed;

/// One transaction a message, then its ack.
pub(crate) async fn naive(feeds: Vec<Feed>, pool: PgPool) -> Result<(), Error> {
    all(feeds, |mut feed| {
        let pool = pool.clone();
        async move {
            while let Some(one) = next(&mut feed).await? {
                naive::one(&pool, &one).await?;
                feed.done().await?;
            }
            Ok(())
        }
    })
    .await
}

/// The same for the rows of the Book, each feed with a bank of its own.
pub(crate) async fn naive_book(feeds: Vec<Feed>, place: &Place) -> Result<(), Error> {
    let mut tellers = Vec::new();
    for number in 0..feeds.len() {
        tellers.push(Teller::at(place, number).await?);
    }
    all(feeds, |mut feed| {
        let teller = tellers.pop();
        async move {
            let mut teller = teller.ok_or("a feed without a bank")?;
            while let Some(one) = next(&mut feed).await? {
                teller.apply(&one).await?;
                feed.done().await?;
            }
            Ok(())
        }
    })
    .await
}

/// One transaction of three array statements a batch, then one ack for all of it.
pub(crate) async fn expert(feeds: Vec<Feed>, place: &Place, batch: usize) -> Result<(), Error> {
    all(feeds, |mut feed| {
        let place = place.clone();
        async move {
            let mut connection = place.connect().await?;
            let mut credits: Vec<Credit> = Vec::with_capacity(batch);
            while feed
                .take(batch, |bytes| parse(bytes, |one| credits.push(one)))
                .await?
                > 0
            {
                expert::batch(&mut connection, &credits).await?;
                feed.done().await?;
                credits.clear();
            }
            Ok(())
        }
    })
    .await
}

/// No database: takes messages and acks them by the batch.
pub(crate) async fn consume(feeds: Vec<Feed>, batch: usize) -> Result<(), Error> {
    all(feeds, |mut feed| async move {
        while feed.take(batch, |_| Ok(())).await? > 0 {
            feed.done().await?;
        }
        Ok(())
    })
    .await
}

/// The next message; none when nothing is left.
async fn next(feed: &mut Feed) -> Result<Option<Credit>, Error> {
    let mut next = None;
    feed.take(1, |bytes| parse(bytes, |one| next = Some(one)))
        .await?;
    Ok(next)
}

fn parse(bytes: &[u8], keep: impl FnOnce(Credit)) -> Result<(), Error> {
    keep(serde_json::from_slice(bytes)?);
    Ok(())
}

async fn all<F>(feeds: Vec<Feed>, mut lane: impl FnMut(Feed) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for feed in feeds {
        tasks.spawn(lane(feed));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
