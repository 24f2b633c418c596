//! Partitions that belong to nobody. A cooperative rebalance has two rounds: members give up what they lose, and ask for the
//! second, which gives it out. A static member that dies in between and comes back under its name is handed what it had left, without
//! a rebalance; the second round never begins, and what it gave up is read by nobody (seen with Kafka 4). So such a member looks, after
//! it joined, whether every partition has an owner. Where one has none for a while, a guest joins the group and leaves it,
//! which makes all members share anew.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Buf;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use semel_core::{Class, Fault};

use crate::fault::classify;
use crate::options::{self, KafkaOptions};
use crate::probe::{Place, Probe};
use crate::quiet::Quiet;
use crate::shared::Shared;
use crate::vetting::blocking;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// A member that gives partitions up may take `drain_ms` for it; so much later its second round is due.
const BESIDE_DRAIN: Duration = Duration::from_secs(2);
/// So often a guest is sent; a group that has orphans then has them for another reason.
const GUESTS_MAX: u32 = 3;
/// How long a guest waits to be let in.
const GUEST: Duration = Duration::from_secs(15);

/// What the look needs.
#[derive(Clone)]
pub(crate) struct Orphans {
    shared: Arc<Shared>,
    reader: ClientConfig,
    guest: ClientConfig,
    group: String,
    topics: Vec<String>,
    timeout: Duration,
    /// A partition without an owner for longer is an orphan.
    patience: Duration,
}

/// What a look at the group brings.
pub(crate) enum Owners {
    /// The group forms anew.
    Unknown,
    All,
    /// This partition has none.
    NotOf(Place),
}

impl Orphans {
    /// For a static member that shares cooperatively; others have no orphans for long.
    pub(crate) fn of(
        options: &KafkaOptions,
        reader: ClientConfig,
        shared: Arc<Shared>,
    ) -> Result<Option<Self>, Fault> {
        if !options.may_leave_orphans() {
            return Ok(None);
        }
        let mut guest = options.member()?;
        guest.remove("group.instance.id");
        Ok(Some(Self {
            shared,
            reader,
            guest,
            group: options.group.clone(),
            topics: options.topics.clone(),
            timeout: Duration::from_millis(options.timeout_ms.into()),
            patience: Duration::from_millis(options.drain_ms) + BESIDE_DRAIN,
        }))
    }

    /// Looks until every partition has an owner. Until then nothing is drained.
    pub(crate) async fn run(self) {
        let (mut alone_since, mut guests) = (None, 0);
        loop {
            tokio::time::sleep(LOOK).await;
            {
                let state = self.shared.lock();
                if state.closing {
                    return;
                }
                if !state.assignment.is_assigned() {
                    continue;
                }
            }
            let this = self.clone();
            let look = blocking(move || {
                let probe = Probe::open(&this.reader, this.timeout)?;
                probe.owners(&this.group, &this.topics)
            });
            match look.await {
                Ok(Owners::All) => break,
                Ok(Owners::Unknown) => alone_since = None,
                Ok(Owners::NotOf(_))
                    if alone_since.get_or_insert_with(Instant::now).elapsed() < self.patience => {}
                Ok(Owners::NotOf((topic, number))) if guests < GUESTS_MAX => {
                    tracing::warn!(
                        "kafka: {topic}/{number} belongs to no member of the group, since one died while it gave partitions up; a guest makes the group share anew"
                    );
                    (alone_since, guests) = (None, guests + 1);
                    let this = self.clone();
                    if let Err(fault) = blocking(move || this.visit()).await {
                        tracing::debug!(error = %fault, "kafka: a guest was not let in");
                    }
                }
                Ok(Owners::NotOf((topic, number))) => {
                    tracing::error!(
                        "kafka: {topic}/{number} belongs to no member of the group, and nothing changes that; stop all members for `session_timeout_ms`"
                    );
                    break;
                }
                Err(fault) if fault.class == Class::Stop => {
                    tracing::warn!(error = %fault, "kafka: whether every partition has an owner cannot be seen");
                    break;
                }
                Err(fault) => tracing::debug!(error = %fault, "kafka: owners are not known yet"),
            }
        }
        self.shared.lock().assignment.owners_seen();
        self.shared.wake();
    }

    /// Joins and leaves.
    fn visit(&self) -> Result<(), Fault> {
        let config = self.guest.create_with_context(Quiet::default());
        let client: BaseConsumer<Quiet> = options::create(config)?;
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        client
            .subscribe(&topics)
            .map_err(|error| classify("subscribing a guest", &error))?;
        let begin = Instant::now();
        let is_in = || client.assignment().is_ok_and(|list| list.count() > 0);
        while begin.elapsed() < GUEST && !self.shared.lock().closing && !is_in() {
            // What it reads is of no consequence: it tells nobody.
            client.poll(LOOK);
        }
        Ok(())
    }
}

/// The partitions that a member owns: the assignment of Kafka's consumer protocol, version 0 and up.
pub(crate) fn owned(mut bytes: &[u8]) -> Option<HashSet<Place>> {
    let mut places = HashSet::new();
    let _version = bytes.try_get_i16().ok()?;
    for _ in 0..bytes.try_get_i32().ok()? {
        let length = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
        let topic = bytes.get(..length)?;
        let topic = std::str::from_utf8(topic).ok()?.to_owned();
        bytes.advance(length);
        for _ in 0..bytes.try_get_i32().ok()? {
            places.insert((topic.clone(), bytes.try_get_i32().ok()?));
        }
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_is_read_and_a_cut_one_is_none() {
        let bytes = b"\0\x03\0\0\0\x02\0\x01a\0\0\0\x02\0\0\0\0\0\0\0\x07\0\x02bc\0\0\0\x01\0\0\0\x01\xff\xff\xff\xff";
        let expected = [("a", 0), ("a", 7), ("bc", 1)].map(|(topic, n)| (topic.to_owned(), n));
        assert_eq!(owned(bytes), Some(HashSet::from(expected)));
        // Behind the places comes what the assignors say to each other.
        for length in 0..bytes.len() - 4 {
            assert_eq!(owned(&bytes[..length]), None, "{length}");
        }
    }
}
