//! A fast hash for the identities of a batch's rows. The maps live for one batch, so a sender who finds
//! colliding ids slows down no more than that one.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds [`Fold`].
pub(super) type Build = BuildHasherDefault<Fold>;

/// Multiplies and folds eight bytes at a time.
#[derive(Debug, Default, Clone)]
pub(super) struct Fold(u64);

impl Fold {
    const fn mix(&mut self, word: u64) {
        let product = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ (product >> 32);
    }
}

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in words.by_ref() {
            self.mix(u64::from_le_bytes(
                word.try_into().expect("a chunk has eight bytes"),
            ));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            self.mix(
                rest.iter()
                    .fold(0, |word, byte| word << 8 | u64::from(*byte)),
            );
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    /// Lengths and the numbers of enum variants: told apart well enough by rotating, which is cheaper.
    fn write_usize(&mut self, word: usize) {
        self.0 = self.0.rotate_left(5).wrapping_add(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_usize(word.unsigned_abs());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
