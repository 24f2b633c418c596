//! State machines: a pure answer of "may this event move that state?".

use crate::key::Key;
use crate::outcome::{Answer, Code};

/// What an event does to a state.
///
/// A machine is a plain function of state and event; the compare-and-set that executes it is the
/// handler's SQL (`UPDATE … WHERE id = ? AND state = ?`).
///
/// ```
/// use semel_core::Step;
///
/// #[derive(Clone, Copy, PartialEq, Debug)]
/// enum Session { Active, Completed }
///
/// fn complete(state: Option<Session>) -> Step<Session> {
///     match state {
///         None => Step::NotYet,
///         Some(Session::Active) => Step::To(Session::Completed),
///         Some(Session::Completed) => Step::Already,
///     }
/// }
/// assert_eq!(complete(None), Step::NotYet);
/// assert_eq!(complete(Some(Session::Active)), Step::To(Session::Completed));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<S> {
    /// Move to this state: `applied`.
    To(S),
    /// The state is already there or beyond: `ignored`.
    Already,
    /// The event is early: `parked`.
    NotYet,
    /// The event can never be right in this state: `refused`.
    Never,
}

/// The codes and the waiting time that turn a [`Step`] into an [`Answer`].
#[derive(Debug, Clone)]
pub struct StepCodes {
    /// Reason for `Already`.
    pub already: Code,
    /// What `NotYet` waits for.
    pub awaiting: Code,
    /// How long `NotYet` waits, ms.
    pub park_for_ms: u64,
    /// Code for `Never`.
    pub never: Code,
}

impl<S> Step<S> {
    /// The answer of this step; `subject` is the identity of the machine that the event is about.
    pub fn answer(&self, subject: Key, codes: &StepCodes) -> Answer {
        match self {
            Self::To(_) => Answer::Applied {
                reply: None,
                wakes: vec![subject],
            },
            Self::Already => Answer::ignored(codes.already.clone()),
            Self::NotYet => Answer::not_yet(codes.awaiting.clone(), subject, codes.park_for_ms),
            Self::Never => Answer::refused(codes.never.clone()),
        }
    }
}
