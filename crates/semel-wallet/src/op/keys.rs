//! Keys of the ids in one message, each derived once: binding asks for the same ones for the operation, the
//! fingerprint and the lane, and a derivation is a SHA-256.

use std::cell::RefCell;
use std::ptr;

use semel_core::{Json, Key};

/// The most keys remembered: an operation has up to four. Legs of a group beyond that are derived again.
const KNOWN_MAX: usize = 6;

/// The keys of a payload's ids, by where they stand in it.
#[derive(Debug, Default)]
pub(crate) struct Keys<'j> {
    known: RefCell<[Option<Known<'j>>; KNOWN_MAX]>,
}

/// An id, and its key where it is one.
type Known<'j> = (&'j Json<'j>, Option<Key>);

impl<'j> Keys<'j> {
    /// The key of an id, where it is one.
    pub(crate) fn of(&self, id: &'j Json<'j>) -> Option<Key> {
        let mut known = self.known.borrow_mut();
        let place = known
            .iter()
            .position(|slot| slot.is_none_or(|(seen, _)| ptr::eq(seen, id)));
        if let Some((_, key)) = place.and_then(|place| known[place]) {
            return key;
        }
        let key = Key::of_json(id).ok();
        if let Some(place) = place {
            known[place] = Some((id, key));
        }
        key
    }

    /// Takes the key of an id as known already.
    pub(crate) fn learn(&self, id: &'j Json<'j>, key: Key) {
        if let [first @ None, ..] = &mut *self.known.borrow_mut() {
            *first = Some((id, Some(key)));
        }
    }
}
