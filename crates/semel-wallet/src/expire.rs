//! Holds past their time: what the engine's sweep asks the database for, and makes operations of.

use semel_core::Key;

/// A hold that the database's clock says is past `expires_at`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    /// Key of its name.
    pub hold: Key,
    /// Its name.
    pub id: Box<str>,
}
