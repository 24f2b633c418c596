//! In-process single flight: two lanes never claim one key at the same time, so they never wait for
//! each other inside the database (TRAPS T04, T12). A hint for speed; the ledger's constraint decides.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use semel_core::Key;
use tokio::sync::Notify;

/// Keys that are in an open unit of this process.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    held: Mutex<Held>,
    freed: Notify,
}

/// By key, which flight has it.
#[derive(Debug, Default)]
struct Held {
    by_key: HashMap<Key, u64>,
    flights: u64,
}

/// Keys held by one unit; given back on drop.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    flights: &'a Flights,
    keys: Vec<Key>,
    /// How many messages of the batch may fly.
    pub(crate) count: usize,
}

impl Flights {
    /// Takes the keys of the longest prefix of `keys` that no other unit holds, and waits while that is
    /// empty. Messages without a key always fly. Several keys are taken at once or not at all, so two
    /// units never wait for each other.
    pub(crate) async fn take(&self, keys: &[Option<Key>]) -> Flight<'_> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registered before the look, so that a key freed in between is not missed.
            freed.as_mut().enable();
            if let Some(flight) = self.try_take(keys) {
                return flight;
            }
            freed.await;
        }
    }

    fn try_take(&self, keys: &[Option<Key>]) -> Option<Flight<'_>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.flights += 1;
        let flight = held.flights;
        let (mut count, mut taken) = (0, Vec::with_capacity(keys.len()));
        for key in keys {
            if let Some(key) = *key {
                match held.by_key.entry(key) {
                    Entry::Vacant(place) => {
                        place.insert(flight);
                        taken.push(key);
                    }
                    Entry::Occupied(holder) if *holder.get() == flight => {}
                    Entry::Occupied(_) => break,
                }
            }
            count += 1;
        }
        if count == 0 && !keys.is_empty() {
            return None;
        }
        Some(Flight {
            flights: self,
            keys: taken,
            count,
        })
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut held = self
            .flights
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for key in &self.keys {
            held.by_key.remove(key);
        }
        drop(held);
        self.flights.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Option<Key> {
        Some(Key::from_bytes([n; 16]))
    }

    #[tokio::test]
    async fn a_unit_flies_with_the_prefix_that_nobody_holds_and_waits_when_that_is_empty() {
        let flights = Flights::default();
        let first = flights.take(&[key(1), key(2), key(1)]).await;
        assert_eq!(first.count, 3, "copies inside one unit do not stop it");
        let second = flights.take(&[None, key(3), key(2), key(4)]).await;
        assert_eq!(second.count, 2);
        assert!(flights.try_take(&[key(2)]).is_none());
        drop(first);
        assert_eq!(flights.take(&[key(2), key(4)]).await.count, 2);
    }
}
