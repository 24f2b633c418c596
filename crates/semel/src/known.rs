//! Keys that this process saw committed not long ago. A hint that decides when a unit begins, never what it says: the
//! ledger answers for every message.

use std::sync::atomic::{AtomicU64, Ordering};

use semel_core::Key;

/// How many keys are remembered at most, a power of two; 512 KiB.
const COUNT: usize = 1 << 16;

/// Remembers the last key of each place; a key's own bytes, which are a hash's or chance, choose its place.
#[derive(Debug)]
pub(crate) struct Known {
    tails: Box<[AtomicU64]>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            tails: (0..COUNT).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Known {
    pub(crate) fn add(&self, key: Key) {
        let (place, tail) = self.place(key);
        place.store(tail, Ordering::Relaxed);
    }

    pub(crate) fn has(&self, key: Key) -> bool {
        let (place, tail) = self.place(key);
        place.load(Ordering::Relaxed) == tail
    }

    fn place(&self, key: Key) -> (&AtomicU64, u64) {
        let bytes = key.into_bytes();
        let tail = u64::from_be_bytes(*bytes.last_chunk().expect("sixteen bytes have eight"));
        let place = usize::try_from(tail % COUNT as u64).expect("below the count");
        (&self.tails[place], tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_until_another_takes_its_place() {
        let known = Known::default();
        let key = |first, last: u16| {
            let mut bytes = [first; 16];
            bytes[14..].copy_from_slice(&last.to_be_bytes());
            Key::from_bytes(bytes)
        };
        assert!(!known.has(key(1, 7)));
        known.add(key(1, 7));
        known.add(key(1, 8));
        assert!(known.has(key(1, 7)) && known.has(key(1, 8)));
        assert!(!known.has(key(2, 7)), "another key of the same place");
        known.add(key(2, 7));
        assert!(known.has(key(2, 7)) && !known.has(key(1, 7)));
    }
}
