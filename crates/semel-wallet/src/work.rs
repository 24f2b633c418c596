//! A parsed message: what the handler keeps of it between binding and deciding.

use semel_core::json::Object;
use semel_core::{Json, Key};

use crate::code::Death;
use crate::config::Config;
use crate::expire::Expired;
use crate::op::{self, Dead, Keys, Operation};

/// One message of the wallet: its identity and its operation, or why it is dead.
#[derive(Debug, Clone)]
pub struct Work {
    key: Key,
    id: Box<str>,
    operation: Result<Operation, Dead>,
}

impl Work {
    /// The work of an object whose key is known.
    pub(crate) fn of<'o>(
        key: Key,
        id: &str,
        object: &'o Object<'o>,
        keys: &Keys<'o>,
        config: &Config,
    ) -> Self {
        Self {
            key,
            id: id.into(),
            operation: op::parse(id, object, keys, config),
        }
    }

    /// The sweep's release of an expired hold.
    #[must_use]
    pub fn expire(expired: &Expired) -> Self {
        Self {
            key: expired.key,
            id: format!("expire:{}", expired.id).into(),
            operation: Ok(Operation::Expire { hold: expired.hold }),
        }
    }

    /// Reads a payload whose key is its `id`: for models and tests. A payload without a usable id is dead
    /// work under a key of zeros.
    #[must_use]
    pub fn parse(payload: &[u8], config: &Config) -> Self {
        let dead = |code, detail: String, field| Self {
            key: Key::from_bytes([0; 16]),
            id: "".into(),
            operation: Err(Dead {
                code,
                detail,
                field,
            }),
        };
        let json = match Json::parse(payload) {
            Ok(json) => json,
            Err(malformed) => return dead(Death::Malformed, malformed.detail, malformed.field),
        };
        let Some(object) = json.object() else {
            return dead(
                Death::Malformed,
                format!("the payload is {}, not an object", json.kind()),
                None,
            );
        };
        let id = object.get("id").unwrap_or(&Json::Null);
        match Key::of_json(id) {
            Ok(key) => Self::of(
                key,
                id.text_or_number().unwrap_or_default(),
                object,
                &Keys::default(),
                config,
            ),
            Err(no_key) => dead(Death::NoKey, no_key.to_string(), Some("id".to_owned())),
        }
    }

    /// The operation's key.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// The id's source text.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The operation, or why the message is dead.
    ///
    /// # Errors
    /// `unknown_op`, `malformed`.
    pub const fn operation(&self) -> &Result<Operation, Dead> {
        &self.operation
    }
}
