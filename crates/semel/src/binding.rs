//! Binds a message to its operation by rules from the config: what every handler that has no parsed
//! form of its own uses.

use std::sync::atomic::{AtomicU64, Ordering};

use semel_core::fingerprint::{FieldSums, Fingerprint, Policy};
use semel_core::json::Json;
use semel_core::key::{Inputs, KeyRule};
use semel_core::law::{Binding, Reject};
use semel_core::{Message, codes};

/// A consumer's rules: where the key comes from, and what is compared.
///
/// ```
/// use semel::Rules;
/// use semel::Message;
///
/// let rules = Rules::new(["/id"])?;
/// let binding = rules.bind(&Message::new(br#"{"id":"pay-1"}"#.as_slice(), "p", Some(1))).unwrap();
/// assert_eq!(binding.id, "pay-1");
/// # Ok::<(), semel::key::BadRule>(())
/// ```
#[derive(Debug)]
pub struct Rules {
    key: KeyRule,
    fingerprint: Policy,
    now_ms: AtomicU64,
}

impl Rules {
    /// A key made of `parts` as the config writes them (`/id`, `header:NAME`, `message_key`), and the
    /// whole content compared.
    ///
    /// # Errors
    /// A part that is not one of these forms.
    pub fn new<'t>(
        parts: impl IntoIterator<Item = &'t str>,
    ) -> Result<Self, semel_core::key::BadRule> {
        Ok(Self::of(KeyRule::parse(parts, None)?, Policy::All))
    }

    /// Rules of a parsed key rule and a fingerprint policy.
    #[must_use]
    pub const fn of(key: KeyRule, fingerprint: Policy) -> Self {
        Self {
            key,
            fingerprint,
            now_ms: AtomicU64::new(u64::MAX / 2),
        }
    }

    /// The database's time; see [`crate::Handler::told_time`].
    pub fn told_time(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Hash of the key rules: they are part of the consumer's owner.
    #[must_use]
    pub fn hash(&self) -> Fingerprint {
        rules_hash(&self.key)
    }

    /// Binds a message.
    ///
    /// # Errors
    /// `malformed` when the rules look into the payload and it is not one JSON value with unique names;
    /// `no_key` when a part is missing, empty, too long or ill-typed.
    pub fn bind(&self, message: &Message) -> Result<Binding, Reject> {
        let payload = message.bytes();
        let parsed = Json::parse(payload);
        let needs_json = self.key.needs_payload() || self.fingerprint.needs_payload();
        if let Err(malformed) = &parsed
            && needs_json
        {
            return Err(Reject {
                code: codes::MALFORMED,
                detail: malformed.to_string(),
                field: malformed.field.clone(),
            });
        }
        let json = parsed.ok();
        let inputs = Inputs {
            payload: json.as_ref(),
            headers: &message.headers,
            message_key: message.message_key.as_deref(),
            now_ms: self.now_ms.load(Ordering::Relaxed),
        };
        let identity = self.key.identify(&inputs).map_err(|no_key| Reject {
            code: codes::NO_KEY,
            detail: no_key.to_string(),
            field: None,
        })?;
        let (fingerprint, sums) = self.fingerprint.bind(payload, json.as_ref());
        Ok(Binding {
            key: identity.key,
            id: identity.id.into_owned(),
            fingerprint,
            scheme: self.fingerprint.scheme(),
            sums,
        })
    }

    /// The payload's field in which `message` differs from stored sums.
    #[must_use]
    pub fn differing(&self, message: &Message, stored: &FieldSums) -> Option<String> {
        self.fingerprint
            .differing(stored, &Json::parse(message.bytes()).ok()?)
    }
}

/// Hash of a key rule's text.
#[must_use]
pub fn rules_hash(rule: &KeyRule) -> Fingerprint {
    Fingerprint::of_bytes(rule.to_string().as_bytes())
}
