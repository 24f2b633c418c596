//! Runs the connections of a rival, each in a task of its own with its share of the files.

use std::future::Future;

use crate::ops::FILES;
use crate::tables::Error;

/// Runs `lane` once for each connection with the files that are its own, and waits for all.
///
/// # Errors
/// The first one's that failed.
pub async fn spread<F>(connections: usize, lane: impl Fn(Vec<usize>) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..connections {
        tasks.spawn(lane((number..FILES).step_by(connections).collect()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
