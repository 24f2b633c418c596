//! Holds past their time: what the engine's sweep asks the database for, and makes operations of.

use semel_core::Key;

/// What the keys of an expiry are derived of, beside the hold's key.
const NAME: &str = "expire";

/// A hold that the database's clock says is past `expires_at`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    /// Key of its name.
    pub hold: Key,
    /// Its name.
    pub id: Box<str>,
    /// Key of the operation that frees it, so that two sweeps make one operation.
    pub key: Key,
}

impl Expired {
    /// Freed under the published key, derived from the parts (the hold's key, `expire`).
    ///
    /// # Panics
    /// Never: the name is a part of the right size.
    #[must_use]
    pub fn new(hold: Key, id: &str) -> Self {
        let key = hold
            .child(NAME)
            .expect("the name is neither empty nor too long");
        Self {
            hold,
            id: id.into(),
            key,
        }
    }

    /// Freed under an inner key, because a message has taken the published one: an id may be any UUID, and this one
    /// can be computed by everybody. An inner key is out of a sender's reach.
    ///
    /// # Panics
    /// Never: the name is a part of the right size.
    #[must_use]
    pub fn with_inner_key(self) -> Self {
        let key = self
            .hold
            .inner(NAME, 0)
            .expect("the name is neither empty nor too long");
        Self { key, ..self }
    }
}
