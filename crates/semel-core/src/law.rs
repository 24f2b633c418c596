//! The law in batch form: who is claimed, who is a copy of whom, and what is written when the handler
//! has answered. Pure functions over one batch; the engine runs them between the ledger's acts.
//!
//! A batch of one is a batch.

use std::collections::HashMap;

use crate::fingerprint::{FieldSums, Fingerprint, Scheme};
use crate::key::Key;
use crate::ledger::{
    Claim, ClaimKind, Claimed, Letter, Note, Park, Prior, Record, Sighting, SightingKind, SourceId,
};
use crate::message::Message;
use crate::outcome::{Answer, Awaiting, Code, Outcome, codes};

/// What binds a message to an operation: its key and the fingerprint of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The key.
    pub key: Key,
    /// The key's source text.
    pub id: String,
    /// Fingerprint of the content.
    pub fingerprint: Fingerprint,
    /// Its scheme.
    pub scheme: Scheme,
    /// Sums of its fields.
    pub sums: FieldSums,
}

/// A message that is dead before it could be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Why: `too_large`, `malformed`, `no_key` or `too_old`.
    pub code: Code,
    /// A sentence for the operator.
    pub detail: String,
    /// The payload's field at fault.
    pub field: Option<String>,
}

/// One message of a batch with all that the law needs to know of it.
#[derive(Debug)]
pub struct Case<W> {
    /// The content.
    pub message: Message,
    /// Its source.
    pub source: SourceId,
    /// Its binding and the handler's parsed form, or why it is dead.
    pub binding: Result<(Binding, W), Reject>,
    /// Of a parked message that no longer binds to its key: the key and id of its row, under which it ends.
    pub unbound: Option<(Key, String)>,
    /// New, or a parked message on its way back.
    pub kind: ClaimKind,
    /// It is read again on purpose.
    pub replay: bool,
    /// A parked message past its deadline: the handler must answer finally.
    pub last: bool,
    /// How often it was tried before, by the ledger's count.
    pub attempts: u32,
}

impl<W> Case<W> {
    /// Its key, if it has one.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        match &self.binding {
            Ok((binding, _)) => Some(binding.key),
            Err(_) => self.unbound.as_ref().map(|(key, _)| *key),
        }
    }

    /// The source text of its key, if it has one.
    fn id(&self) -> Option<&str> {
        match &self.binding {
            Ok((binding, _)) => Some(&binding.id),
            Err(_) => self.unbound.as_ref().map(|(_, id)| &**id),
        }
    }
}

/// The part a message plays in its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// Dead before the claim.
    Rejected,
    /// The first of its key by arrival: it is claimed.
    First,
    /// A copy of the earlier message at this index: judged after that one's outcome.
    Copy(usize),
}

/// Seats of a batch, and the firsts in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// One seat per message, of as many as one unit can take.
    pub seats: Vec<Seat>,
    /// Indices of the firsts, sorted by key: the order of claims, the same in every lane (TRAPS T32).
    pub firsts: Vec<usize>,
}

/// Seats a batch, up to the first message whose key stands before it in the other kind. A delivery and a release
/// of one key are claimed in different ways, so neither can be judged by the other's claim: they go into two units.
#[must_use]
pub fn plan<W>(cases: &[&Case<W>]) -> Plan {
    let mut seats = vec![Seat::Rejected; cases.len()];
    // By key, copies behind their first: one sort tells who is a copy of whom, and the order of the claims.
    let mut keyed: Vec<(Key, usize)> = cases
        .iter()
        .enumerate()
        .filter_map(|(i, case)| Some((case.key()?, i)))
        .collect();
    keyed.sort_unstable();
    let mut firsts: Vec<usize> = Vec::with_capacity(keyed.len());
    let (mut last, mut mixed) = (None, cases.len());
    for (key, i) in keyed {
        seats[i] = match (last, firsts.last()) {
            (Some(known), Some(first)) if known == key => {
                if cases[*first].kind != cases[i].kind {
                    mixed = mixed.min(i);
                }
                Seat::Copy(*first)
            }
            _ => {
                firsts.push(i);
                Seat::First
            }
        };
        last = Some(key);
    }
    if mixed < cases.len() {
        return plan(&cases[..mixed]);
    }
    Plan { seats, firsts }
}

/// The claims of a batch, in the order of [`Plan::firsts`].
#[must_use]
pub fn claims<W>(cases: &[&Case<W>], plan: &Plan) -> Vec<Claim> {
    plan.firsts
        .iter()
        .filter_map(|&i| {
            let case = cases[i];
            let content = case.binding.as_ref().ok().map(|(b, _)| b);
            Some(Claim {
                key: case.key()?,
                // A parked message that no longer binds has none, and a release compares none.
                fingerprint: content
                    .map_or_else(|| Fingerprint::from_bytes([0; 16]), |b| b.fingerprint),
                scheme: content.map_or(Scheme::NONE, |b| b.scheme),
                sums: content.map_or_else(FieldSums::default, |b| b.sums),
                source: case.source,
                kind: case.kind,
            })
        })
        .collect()
}

/// How a repeat of a held key is to be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Same content, ended.
    Duplicate,
    /// Same content, parked.
    Parked,
    /// Other content.
    Clash,
}

/// Judges a message whose key is held with outcome `held`. Contents of different schemes cannot be
/// compared, so they count as the same.
#[must_use]
pub fn repeat(
    held: Outcome,
    first: (Fingerprint, Scheme),
    second: (Fingerprint, Scheme),
) -> Repeat {
    if first.1 == second.1 && first.0 != second.0 {
        Repeat::Clash
    } else if held == Outcome::Parked {
        Repeat::Parked
    } else {
        Repeat::Duplicate
    }
}

/// What is to be said of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// The outcome.
    pub outcome: Outcome,
    /// Code of ignored, refused and dead.
    pub code: Option<Code>,
    /// What a parked message waits for.
    pub awaiting: Option<Code>,
    /// For a duplicate: the first outcome and its code.
    pub first: Option<(Outcome, Option<Code>)>,
}

impl Ending {
    const fn plain(outcome: Outcome, code: Option<Code>) -> Self {
        Self {
            outcome,
            code,
            awaiting: None,
            first: None,
        }
    }

    const fn parked(awaiting: Option<Code>) -> Self {
        Self {
            outcome: Outcome::Parked,
            code: None,
            awaiting,
            first: None,
        }
    }
}

/// The handler's answer for one message of the batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Index of the message.
    pub case: usize,
    /// What the handler said.
    pub answer: Answer,
    /// Attempts to record, should the message be dead.
    pub attempts: u32,
}

/// Where a batch must be cut, if anywhere: at the first copy that has other content than a first that
/// ended dead. The dead one does not hold the key, so the copy is a message of its own; it, and all
/// behind it, go to the next unit.
#[must_use]
pub fn cut<W>(cases: &[&Case<W>], plan: &Plan, answers: &[Answered]) -> Option<usize> {
    let dead: Vec<usize> = answers
        .iter()
        .filter(|a| a.answer.outcome() == Outcome::Dead)
        .map(|a| a.case)
        .collect();
    if dead.is_empty() {
        return None;
    }
    plan.seats
        .iter()
        .take(cases.len())
        .enumerate()
        .position(|(i, seat)| match seat {
            Seat::Copy(first) => {
                dead.contains(first) && content(cases[*first]) != content(cases[i])
            }
            Seat::Rejected | Seat::First => false,
        })
}

/// Whether a released message behind the cut was claimed: what its row said before is gone, so the unit cannot
/// give it back and must run again over the messages before the cut alone.
#[must_use]
pub fn cuts_a_release<W>(cases: &[&Case<W>], plan: &Plan, claimed: &[Claimed], at: usize) -> bool {
    let claims = plan.firsts.iter().zip(claimed);
    claims
        .filter(|(i, verdict)| **i >= at && **verdict == Claimed::Fresh)
        .any(|(i, _)| cases[*i].kind == ClaimKind::Released)
}

fn content<W>(case: &Case<W>) -> Option<(Fingerprint, Scheme)> {
    case.binding
        .as_ref()
        .ok()
        .map(|(b, _)| (b.fingerprint, b.scheme))
}

/// All that a unit writes and says when its handler has answered.
#[derive(Debug, Default)]
pub struct Conclusion {
    /// What is written (positions are added by the engine).
    pub record: Record,
    /// One per message of the kept part; `None` for a released message that another unit ended.
    pub endings: Vec<Option<Ending>>,
    /// Things that came true: messages parked for them are tried after the commit.
    pub wakes: Vec<Key>,
    /// Messages parked by this unit: tried once after the commit (TRAPS T36).
    pub parked: Vec<Key>,
    /// How many clashes were met.
    pub clashes: usize,
}

/// The most of a too large payload that a dead letter keeps.
pub const LETTER_BYTES_MAX: usize = 64 * 1024;

/// Why a message is parked again no sooner than this: the sweep's first interval, ms. It doubles with
/// each try up to [`PARK_RETRY_MS_MAX`].
pub const PARK_RETRY_MS: u64 = 1_000;

/// The longest interval between two tries of the sweep, ms.
pub const PARK_RETRY_MS_MAX: u64 = 60_000;

/// Concludes the first `kept` messages of a batch.
///
/// `claimed` answers [`claims`]; `answers` holds one entry for every kept first that was `Fresh`.
/// `same` says whether message `case` is the held one after all although its fingerprint is another than the stored
/// one; `field` names the field in which it differs from stored sums. Claims of new firsts beyond
/// `kept` are given back; [`cuts_a_release`] says when that cannot be done.
pub fn conclude<W>(
    cases: &[&Case<W>],
    kept: usize,
    plan: &Plan,
    claimed: &[Claimed],
    answers: &[Answered],
    same: impl Fn(usize, Fingerprint) -> bool,
    field: impl Fn(usize, &FieldSums) -> Option<String>,
) -> Conclusion {
    let mut seen: Vec<Option<&Claimed>> = vec![None; kept];
    let mut back = Vec::new();
    for (&i, verdict) in plan.firsts.iter().zip(claimed) {
        if i < kept {
            seen[i] = Some(verdict);
        } else if *verdict == Claimed::Fresh {
            back.extend(cases[i].key());
        }
    }
    let mut said: Vec<Option<&Answered>> = vec![None; kept];
    for answered in answers.iter().filter(|a| a.case < kept) {
        said[answered.case] = Some(answered);
    }
    let mut scribe = Scribe {
        cases,
        same,
        field,
        said,
        seen,
        sightings: HashMap::new(),
        conclusion: Conclusion::default(),
    };
    scribe.conclusion.record.unclaims = back;
    for i in 0..kept {
        let ending = match plan.seats[i] {
            Seat::Rejected => scribe.rejected(i),
            Seat::First => scribe.first(i),
            Seat::Copy(first) => scribe.copy(i, first),
        };
        scribe.conclusion.endings.push(ending);
    }
    scribe.finish()
}

/// Writes a conclusion, message by message.
struct Scribe<'a, W, S, F> {
    cases: &'a [&'a Case<W>],
    same: S,
    field: F,
    said: Vec<Option<&'a Answered>>,
    seen: Vec<Option<&'a Claimed>>,
    sightings: HashMap<(Key, SourceId, SightingKind), Sighting>,
    conclusion: Conclusion,
}

impl<W, S, F> Scribe<'_, W, S, F>
where
    S: Fn(usize, Fingerprint) -> bool,
    F: Fn(usize, &FieldSums) -> Option<String>,
{
    fn rejected(&mut self, i: usize) -> Option<Ending> {
        let case = self.cases[i];
        let reject = case.binding.as_ref().err()?;
        let letter = letter(
            case,
            &reject.code,
            &reject.detail,
            reject.field.clone(),
            case.attempts,
        );
        self.conclusion.record.letters.push(letter);
        Some(Ending::plain(Outcome::Dead, Some(reject.code.clone())))
    }

    fn first(&mut self, i: usize) -> Option<Ending> {
        match (*self.seen.get(i)?)? {
            Claimed::Ended => None,
            Claimed::Seen(prior) => Some(self.seen_before(i, prior)),
            Claimed::Fresh => {
                let answered = (*self.said.get(i)?)?;
                Some(self.answered(i, answered))
            }
        }
    }

    fn copy(&mut self, i: usize, first: usize) -> Option<Ending> {
        if self.cases[i].kind == ClaimKind::Released {
            // Brought back twice, by both sides of its wait: the first one is it, and nobody delivered this one.
            return None;
        }
        match (*self.seen.get(first)?)? {
            Claimed::Ended => None,
            Claimed::Seen(prior) => Some(self.seen_before(i, prior)),
            Claimed::Fresh => {
                let answered = (*self.said.get(first)?)?;
                Some(self.copy_of_answered(i, first, answered))
            }
        }
    }

    fn seen_before(&mut self, i: usize, prior: &Prior) -> Ending {
        let case = self.cases[i];
        let Ok((binding, _)) = &case.binding else {
            return Ending::plain(Outcome::Dead, None);
        };
        let first = (prior.fingerprint, prior.scheme);
        let mut judged = repeat(prior.outcome, first, (binding.fingerprint, binding.scheme));
        if judged == Repeat::Clash && (self.same)(i, prior.fingerprint) {
            judged = repeat(prior.outcome, first, first);
        }
        match judged {
            Repeat::Duplicate => self.duplicate(i, binding.key, prior.outcome, prior.code.clone()),
            Repeat::Parked => self.parked_again(i, binding.key, prior.code.clone()),
            Repeat::Clash => {
                let field = (self.field)(i, &prior.sums);
                let code = prior
                    .code
                    .as_ref()
                    .map_or(String::new(), |c| format!(" ({c})"));
                let reply = prior.reply.as_ref().map_or(String::new(), |r| {
                    format!(", with reply {}", String::from_utf8_lossy(r))
                });
                let first = format!("{}{code} at {} µs{reply}", prior.outcome, prior.at_us);
                self.clash(i, binding.key, &first, field)
            }
        }
    }

    fn copy_of_answered(&mut self, i: usize, first: usize, answered: &Answered) -> Ending {
        let cases = self.cases;
        let (Ok((one, _)), Ok((two, _))) = (&cases[first].binding, &cases[i].binding) else {
            return Ending::plain(Outcome::Dead, None);
        };
        let outcome = answered.answer.outcome();
        let same = (two.fingerprint, two.scheme);
        match repeat(outcome, (one.fingerprint, one.scheme), same) {
            // `cut` keeps copies with other content out of a unit in which the first one is dead.
            _ if outcome == Outcome::Dead => self.dead(i, answered),
            Repeat::Duplicate => {
                self.duplicate(i, one.key, outcome, answered.answer.code().cloned())
            }
            Repeat::Parked => {
                let kind = match &answered.answer {
                    Answer::NotYet { awaiting, .. } => Some(awaiting.kind.clone()),
                    Answer::Applied { .. }
                    | Answer::Ignored { .. }
                    | Answer::Refused { .. }
                    | Answer::Dead { .. } => None,
                };
                self.parked_again(i, one.key, kind)
            }
            Repeat::Clash => {
                let field = (self.field)(i, &one.sums);
                self.clash(i, one.key, &format!("{outcome} in the same unit"), field)
            }
        }
    }

    fn answered(&mut self, i: usize, answered: &Answered) -> Ending {
        let case = self.cases[i];
        let Some(key) = case.key() else {
            return Ending::plain(Outcome::Dead, None);
        };
        if answered.answer.outcome() != Outcome::Parked {
            self.settle_attempts(i, key);
        }
        if case.kind == ClaimKind::Released && answered.answer.outcome() != Outcome::Parked {
            self.conclusion.record.unparks.push(key);
        }
        match &answered.answer {
            Answer::Applied { reply, wakes } => {
                self.conclusion.wakes.extend_from_slice(wakes);
                if reply.is_some() {
                    self.note(key, Outcome::Applied, None, reply.clone());
                }
                Ending::plain(Outcome::Applied, None)
            }
            Answer::Ignored {
                reason: code,
                reply,
            }
            | Answer::Refused { code, reply } => {
                let outcome = answered.answer.outcome();
                self.note(key, outcome, Some(code.clone()), reply.clone());
                Ending::plain(outcome, Some(code.clone()))
            }
            Answer::NotYet {
                awaiting,
                park_for_ms,
            } => self.park(i, key, awaiting, *park_for_ms),
            Answer::Dead { .. } => {
                self.conclusion.record.unclaims.push(key);
                self.dead(i, answered)
            }
        }
    }

    fn note(
        &mut self,
        key: Key,
        outcome: Outcome,
        code: Option<Code>,
        reply: Option<bytes::Bytes>,
    ) {
        self.conclusion.record.notes.push(Note {
            key,
            outcome,
            code,
            reply,
        });
    }

    fn park(&mut self, i: usize, key: Key, awaiting: &Awaiting, park_for_ms: u64) -> Ending {
        let case = self.cases[i];
        let id = case.id().unwrap_or_default().to_owned();
        self.note(key, Outcome::Parked, Some(awaiting.kind.clone()), None);
        let interval = PARK_RETRY_MS
            .saturating_mul(1 << case.attempts.min(16))
            .min(PARK_RETRY_MS_MAX);
        self.conclusion.record.parks.push(Park {
            key,
            id,
            awaiting: awaiting.clone(),
            message: case.message.clone(),
            source: case.source,
            due_in_ms: interval,
            deadline_in_ms: park_for_ms,
            kind: case.kind,
        });
        if case.kind == ClaimKind::New {
            self.conclusion.parked.push(key);
        }
        Ending::parked(Some(awaiting.kind.clone()))
    }

    fn dead(&mut self, i: usize, answered: &Answered) -> Ending {
        let Answer::Dead {
            code,
            detail,
            field,
        } = &answered.answer
        else {
            return Ending::plain(Outcome::Dead, None);
        };
        let letter = letter(
            self.cases[i],
            code,
            detail,
            field.clone(),
            answered.attempts,
        );
        self.conclusion.record.letters.push(letter);
        Ending::plain(Outcome::Dead, Some(code.clone()))
    }

    fn duplicate(&mut self, i: usize, key: Key, first: Outcome, code: Option<Code>) -> Ending {
        let kind = if self.cases[i].replay {
            SightingKind::Replay
        } else {
            SightingKind::Duplicate
        };
        self.sight(i, key, kind);
        self.settle_attempts(i, key);
        Ending {
            outcome: Outcome::Duplicate,
            code: None,
            awaiting: None,
            first: Some((first, code)),
        }
    }

    /// Attempts are there to be forgotten only if some were counted.
    fn settle_attempts(&mut self, i: usize, key: Key) {
        if self.cases[i].attempts > 0 {
            self.conclusion.record.settled_attempts.push(key);
        }
    }

    fn parked_again(&mut self, i: usize, key: Key, awaiting: Option<Code>) -> Ending {
        self.sight(i, key, SightingKind::Parked);
        Ending::parked(awaiting)
    }

    fn clash(&mut self, i: usize, key: Key, first: &str, field: Option<String>) -> Ending {
        self.conclusion.clashes += 1;
        self.settle_attempts(i, key);
        self.sight(i, key, SightingKind::Clash);
        let differs = field
            .as_deref()
            .map_or("its content".to_owned(), |f| format!("field `{f}`"));
        let detail = format!(
            "the key is held by a message that differs in {differs}; the first one ended {first}"
        );
        let letter = letter(
            self.cases[i],
            &codes::KEY_REUSED,
            &detail,
            field,
            self.cases[i].attempts,
        );
        self.conclusion.record.letters.push(letter);
        Ending::plain(Outcome::Dead, Some(codes::KEY_REUSED))
    }

    fn sight(&mut self, i: usize, key: Key, kind: SightingKind) {
        let case = self.cases[i];
        let position = &case.message.position;
        let sighting = self
            .sightings
            .entry((key, case.source, kind))
            .or_insert_with(|| Sighting {
                key,
                source: case.source,
                kind,
                count: 0,
                partition: position.partition.clone(),
                offset: position.offset,
            });
        sighting.count += 1;
        sighting.partition = position.partition.clone();
        sighting.offset = position.offset;
    }

    fn finish(self) -> Conclusion {
        let mut conclusion = self.conclusion;
        let record = &mut conclusion.record;
        record.sightings = self.sightings.into_values().collect();
        record
            .sightings
            .sort_unstable_by_key(|s| (s.key, s.source, s.kind));
        record.notes.sort_unstable_by_key(|n| n.key);
        record.unclaims.sort_unstable();
        record.parks.sort_unstable_by_key(|p| p.key);
        record.unparks.sort_unstable();
        record.settled_attempts.sort_unstable();
        record.settled_attempts.dedup();
        record.letters.sort_by_key(|l| (l.subject(), l.hash));
        conclusion.wakes.sort_unstable();
        conclusion.wakes.dedup();
        conclusion
    }
}

/// The longest sentence kept with a dead letter, bytes: an error's text is not the sender's to inflate (TRAPS T89).
pub const DETAIL_BYTES_MAX: usize = 4 * 1024;

fn bounded(detail: &str) -> String {
    let mut end = detail.len().min(DETAIL_BYTES_MAX);
    while !detail.is_char_boundary(end) {
        end -= 1;
    }
    detail[..end].to_owned()
}

fn letter<W>(
    case: &Case<W>,
    code: &Code,
    detail: &str,
    field: Option<String>,
    attempts: u32,
) -> Letter {
    let bytes = case.message.bytes();
    let hash = case
        .message
        .cut
        .map_or_else(|| Fingerprint::of_bytes(bytes).into_bytes(), |cut| cut.hash);
    let mut message = case.message.clone();
    if bytes.len() > LETTER_BYTES_MAX && *code == codes::TOO_LARGE {
        message.payload = message.payload.map(|p| p.slice(..LETTER_BYTES_MAX));
    }
    Letter {
        key: case.key(),
        id: case.id().map(str::to_owned),
        code: code.clone(),
        detail: bounded(detail),
        field,
        hash,
        attempts,
        source: case.source,
        message,
    }
}

impl Letter {
    /// What makes a letter the same letter again, beside its content and code: the key, else the place
    /// in the source where that survives redelivery, else nothing (zeros).
    #[must_use]
    pub fn subject(&self) -> [u8; 16] {
        if let Some(key) = self.key {
            return *key.as_bytes();
        }
        let position = &self.message.position;
        position.offset.map_or([0; 16], |offset| {
            let mut place = Vec::with_capacity(position.partition.len() + 10);
            place.extend_from_slice(&self.source.0.to_be_bytes());
            place.extend_from_slice(position.partition.as_bytes());
            place.extend_from_slice(&offset.to_be_bytes());
            Fingerprint::of_bytes(&place).into_bytes()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(kind: ClaimKind, key: u8) -> Case<()> {
        let binding = Binding {
            key: Key::from_bytes([key; 16]),
            id: key.to_string(),
            fingerprint: Fingerprint::of_bytes(&[key]),
            scheme: Scheme(1),
            sums: FieldSums::default(),
        };
        Case {
            message: Message::new("{}", "p", None),
            source: SourceId(1),
            binding: Ok((binding, ())),
            unbound: None,
            kind,
            replay: false,
            last: false,
            attempts: 0,
        }
    }

    #[test]
    fn t36_a_delivery_and_a_release_of_one_key_are_never_judged_by_one_claim() {
        use ClaimKind::{New, Released};
        let seats = |kinds: &[(ClaimKind, u8)]| {
            let cases: Vec<_> = kinds.iter().map(|(kind, key)| case(*kind, *key)).collect();
            let plan = plan(&cases.iter().collect::<Vec<_>>());
            (plan.seats.len(), plan.firsts)
        };
        assert_eq!(
            seats(&[(Released, 1), (New, 2), (New, 1), (New, 0)]),
            (2, vec![0, 1])
        );
        assert_eq!(seats(&[(New, 1), (New, 2), (Released, 1)]), (2, vec![0, 1]));
        assert_eq!(
            seats(&[(New, 1), (New, 1), (Released, 2), (Released, 2)]),
            (4, vec![0, 2])
        );
    }

    #[test]
    fn t89_the_sentence_of_a_letter_is_bounded_at_a_whole_character() {
        let long = "ä".repeat(DETAIL_BYTES_MAX);
        let kept = bounded(&format!("x{long}"));
        assert!(kept.len() <= DETAIL_BYTES_MAX && kept.len() > DETAIL_BYTES_MAX - 2);
        assert_eq!(bounded("short"), "short");
    }
}
