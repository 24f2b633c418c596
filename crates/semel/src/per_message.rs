//! Per-message handlers on SQL ledgers: a plain async function over the open transaction. A savepoint
//! for each small group; a group in which one message fails is run again one by one.

use semel_core::fingerprint::{FieldSums, Fingerprint};
use semel_core::law::Reject;
use semel_core::ledger::Save;
use semel_core::{Answer, Class, Code, Fault, Message, Unit};
use semel_sql::{Lend, PerMessage};

use crate::binding::Rules;
use crate::handler::{Bound, Fresh, Handler, Said};

/// Messages per savepoint: enough that its round trip does not count, few enough that running a group
/// again does not either (TRAPS T31).
const GROUP: usize = 50;

/// What a message is refused with that still waits at its deadline.
const EXPIRED: Code = Code::new("expired");

/// A handler made of a per-message function; see [`per_message`].
#[derive(Debug)]
pub struct PerMessageHandler<F> {
    name: String,
    rules: Rules,
    function: F,
}

/// Makes a handler of `function`: `async fn(Tx<'_>, Message) -> Result<Answer, Fault>`, or anything else
/// that is `PerMessage`. `name` and the key rules are the owner of the consumer's name.
///
/// A message that still waits (`NotYet`) when its deadline passes is refused with `expired`.
pub fn per_message<F>(name: impl Into<String>, rules: Rules, function: F) -> PerMessageHandler<F> {
    PerMessageHandler {
        name: name.into(),
        rules,
        function,
    }
}

impl<F, U> Handler<U> for PerMessageHandler<F>
where
    U: Unit + Lend,
    F: for<'t> PerMessage<'t, U::Db> + 'static,
{
    type Work = ();

    fn name(&self) -> &str {
        &self.name
    }

    fn rules(&self) -> Fingerprint {
        self.rules.hash()
    }

    fn bind(&self, message: &Message) -> Result<Bound<()>, Reject> {
        Ok(Bound {
            binding: self.rules.bind(message)?,
            lane: None,
            work: (),
        })
    }

    fn told_time(&self, now_ms: u64) {
        self.rules.told_time(now_ms);
    }

    fn differing(&self, message: &Message, (): &(), stored: &FieldSums) -> Option<String> {
        self.rules.differing(message, stored)
    }

    fn isolates(&self) -> bool {
        true
    }

    async fn handle(&self, unit: &mut U, fresh: &[Fresh<'_, ()>]) -> Result<Vec<Said>, Fault> {
        let mut said = Vec::with_capacity(fresh.len());
        for group in fresh.chunks(GROUP) {
            unit.save(Save::Group).await?;
            match self.together(unit, group).await? {
                Some(answers) => said.extend(answers.into_iter().map(Said::Answer)),
                None => {
                    unit.back(Save::Group).await?;
                    for one in group {
                        said.push(self.alone(unit, one).await?);
                    }
                }
            }
        }
        Ok(said)
    }
}

impl<F> PerMessageHandler<F> {
    /// Runs a group under one savepoint. `None` when one of it must be undone.
    async fn together<U>(
        &self,
        unit: &mut U,
        group: &[Fresh<'_, ()>],
    ) -> Result<Option<Vec<Answer>>, Fault>
    where
        U: Unit + Lend,
        F: for<'t> PerMessage<'t, U::Db>,
    {
        let mut answers = Vec::with_capacity(group.len());
        for one in group {
            match self.call(unit, one).await? {
                (Said::Answer(answer), Effect::Kept) => answers.push(answer),
                (Said::Answer(_) | Said::Fault(_), _) => return Ok(None),
            }
        }
        Ok(Some(answers))
    }

    async fn alone<U>(&self, unit: &mut U, one: &Fresh<'_, ()>) -> Result<Said, Fault>
    where
        U: Unit + Lend,
        F: for<'t> PerMessage<'t, U::Db>,
    {
        let mut clashed = false;
        loop {
            unit.save(Save::Group).await?;
            let (said, effect) = self.call(unit, one).await?;
            if effect == Effect::Kept {
                return Ok(said);
            }
            unit.back(Save::Group).await?;
            match said {
                // Another unit's row may have come meanwhile: the next call sees it. Met twice, it is final.
                Said::Fault(fault) if fault.is_clash() && clashed => {
                    return Ok(Said::Fault(Fault::poison(fault.error)));
                }
                Said::Fault(fault) if fault.is_clash() => clashed = true,
                said => return Ok(said),
            }
        }
    }

    /// Calls the function, and says whether its writes may stay.
    ///
    /// # Errors
    /// The store's own fault: the whole unit runs again.
    async fn call<U>(&self, unit: &mut U, one: &Fresh<'_, ()>) -> Result<(Said, Effect), Fault>
    where
        U: Unit + Lend,
        F: for<'t> PerMessage<'t, U::Db>,
    {
        let result = self.function.call(unit.lend(), one.message.clone()).await;
        // What the transaction recorded outweighs what the handler made of it (TRAPS T01).
        if let Some(verdict) = unit.verdict() {
            return match verdict.class {
                Class::Busy | Class::Down | Class::Stop => Err(verdict),
                Class::Poison | Class::Unclassified | Class::Retry => {
                    Ok((Said::Fault(verdict), Effect::Undo))
                }
            };
        }
        match result {
            Err(fault) if fault.class == Class::Unclassified => {
                Ok((Said::Fault(Fault::poison(fault.error)), Effect::Undo))
            }
            Err(fault) => Ok((Said::Fault(fault), Effect::Undo)),
            Ok(Answer::NotYet { .. }) if one.last => {
                Ok((Said::Answer(Answer::refused(EXPIRED)), undo_if_wrote(unit)))
            }
            Ok(answer @ Answer::Applied { .. }) => Ok((Said::Answer(answer), Effect::Kept)),
            Ok(answer) => Ok((Said::Answer(answer), undo_if_wrote(unit))),
        }
    }
}

/// Whether the writes of a call may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Kept,
    Undo,
}

/// An answer that keeps no effect has nothing to undo unless it wrote.
fn undo_if_wrote<U: Lend>(unit: &U) -> Effect {
    if unit.wrote() {
        Effect::Undo
    } else {
        Effect::Kept
    }
}
