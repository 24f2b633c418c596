//! Faults: why nothing may be concluded about a message yet. A fault is never an outcome, and an
//! indefinite store error is never shown as a business answer.

use std::error::Error;
use std::fmt;

/// What to do about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Raised by `?` from some error: the engine classifies it by what the transaction recorded.
    /// A store error seen by the transaction gives the store's class, anything else is `Poison`.
    Unclassified,
    /// The store is busy: a lock conflict, a deadlock, a serialization failure, another unit holding a
    /// key. Run the whole unit again after a back-off, with a smaller batch. Counts no attempt.
    Busy,
    /// The store or broker is away: pause intake, keep messages unsettled, try again. Counts no attempt.
    Down,
    /// Going on could damage data: lost commits, another owner, a newer schema. The consumer stops.
    Stop,
    /// The handler asks to be run again later. Counts an attempt.
    Retry,
    /// This message breaks the handler: `dead(poison)` at once.
    Poison,
}

/// A fault: a class and the error behind it.
///
/// It converts from every error, so `?` works in a handler; for that reason it does not implement
/// [`Error`] itself.
///
/// ```
/// use semel_core::{Class, Fault};
///
/// fn parse(text: &str) -> Result<u32, Fault> {
///     Ok(text.parse()?)
/// }
/// assert_eq!(parse("x").unwrap_err().class, Class::Unclassified);
/// ```
#[derive(Debug)]
pub struct Fault {
    /// What to do about it.
    pub class: Class,
    /// What happened.
    pub error: Box<dyn Error + Send + Sync + 'static>,
}

impl Fault {
    /// A fault of `class`.
    pub fn new(class: Class, error: impl Into<Box<dyn Error + Send + Sync + 'static>>) -> Self {
        Self {
            class,
            error: error.into(),
        }
    }

    /// The store is busy; see [`Class::Busy`].
    pub fn busy(error: impl Into<Box<dyn Error + Send + Sync + 'static>>) -> Self {
        Self::new(Class::Busy, error)
    }

    /// The store or broker is away; see [`Class::Down`].
    pub fn down(error: impl Into<Box<dyn Error + Send + Sync + 'static>>) -> Self {
        Self::new(Class::Down, error)
    }

    /// Stop to protect data; see [`Class::Stop`].
    pub fn stop(error: impl Into<Box<dyn Error + Send + Sync + 'static>>) -> Self {
        Self::new(Class::Stop, error)
    }

    /// The store or broker does not serve us, and waiting would not change it: no such topic, not our tables, no
    /// right. A [`Class::Stop`] that endangers no data; [`Fault::is_refusal`] tells it from the others.
    pub fn refused(error: impl Into<Box<dyn Error + Send + Sync + 'static>>) -> Self {
        Self::new(Class::Stop, Marked(Mark::Refusal, error.into()))
    }

    /// Whether this was made by [`Fault::refused`].
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.is_marked(Mark::Refusal)
    }

    /// A row of the user's tables is there already, by a constraint of the user. A [`Class::Retry`]: another unit may
    /// have put it there a moment ago, and the next run sees it. Met twice, it is the message's poison.
    pub fn clash(error: impl Into<Box<dyn Error + Send + Sync + 'static>>) -> Self {
        Self::new(Class::Retry, Marked(Mark::Clash, error.into()))
    }

    /// Whether this was made by [`Fault::clash`].
    #[must_use]
    pub fn is_clash(&self) -> bool {
        self.is_marked(Mark::Clash)
    }

    /// The error itself, if it is an `E`, marked or not.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        let marked = self.error.downcast_ref::<Marked>();
        match marked {
            Some(Marked(_, error)) => error.downcast_ref(),
            None => self.error.downcast_ref(),
        }
    }

    fn is_marked(&self, mark: Mark) -> bool {
        let marked = self.error.downcast_ref::<Marked>();
        marked.is_some_and(|marked| marked.0 == mark)
    }

    /// The handler asks to be run again; see [`Class::Retry`].
    pub fn retry(error: impl Into<Box<dyn Error + Send + Sync + 'static>>) -> Self {
        Self::new(Class::Retry, error)
    }

    /// The message breaks the handler; see [`Class::Poison`].
    pub fn poison(error: impl Into<Box<dyn Error + Send + Sync + 'static>>) -> Self {
        Self::new(Class::Poison, error)
    }

    /// The error and its sources, joined by `: `.
    #[must_use]
    pub fn detail(&self) -> String {
        let mut text = self.error.to_string();
        let mut cause = self.error.source();
        while let Some(error) = cause {
            let next = error.to_string();
            if !text.ends_with(&next) {
                text.push_str(": ");
                text.push_str(&next);
            }
            cause = error.source();
        }
        text
    }
}

/// What tells a fault from others of its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Refusal,
    Clash,
}

/// An error with a mark. Says what it holds, and nothing itself.
#[derive(Debug)]
struct Marked(Mark, Box<dyn Error + Send + Sync + 'static>);

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.fmt(f)
    }
}

impl Error for Marked {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.source()
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::new(Class::Unclassified, error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail())
    }
}
