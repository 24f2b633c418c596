//! The identity of a dead letter, the same in every dialect.

use semel_core::ledger::Letter;
use semel_core::{Key, Part};

/// The key of a letter's row: made of its subject, content and code, so that a redelivered dead message
/// adds a count to its letter and no new one.
///
/// # Panics
/// Never for a letter of the engine: its code is a valid part of a key.
#[must_use]
pub fn letter_id(letter: &Letter) -> Key {
    let parts = [
        Part::Uuid(letter.subject()),
        Part::Uuid(letter.hash),
        Part::Text(letter.code.as_str()),
    ];
    Key::derive(&parts).expect("a code has 1 to 64 characters")
}
