//! A ledger of the law in memory, just enough to run the wallet under it without a database.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

pub mod memory;
pub mod stream;

use std::collections::BTreeMap;

use semel::handler::Fresh;
use semel::staged::Staged;
use semel_core::law::{Answered, Case, Conclusion, Ending, claims, conclude, cut, plan};
use semel_core::ledger::{Claim, ClaimKind, Claimed, Letter, Park, Prior, Record, SourceId};
use semel_core::{Answer, Key, Message, Outcome};
use semel_wallet::{Config, Model, Wallet, Work};

/// Who answers for fresh messages, and can go back to where a unit began.
pub trait Book {
    fn answer(&mut self, fresh: &[Fresh<'_, Work>]) -> Vec<Answer>;
    fn save(&mut self);
    fn back(&mut self);
}

/// The model as a book.
pub struct InModel {
    pub model: Model,
    saved: Option<Model>,
}

impl InModel {
    pub fn new(config: Config) -> Self {
        Self {
            model: Model::new(config),
            saved: None,
        }
    }
}

impl Book for InModel {
    fn answer(&mut self, fresh: &[Fresh<'_, Work>]) -> Vec<Answer> {
        fresh
            .iter()
            .map(|message| {
                self.model
                    .apply(message.work, message.last)
                    .expect("the state is sound")
            })
            .collect()
    }

    fn save(&mut self) {
        self.saved = Some(self.model.clone());
    }

    fn back(&mut self) {
        self.model = self.saved.clone().expect("a unit began");
    }
}

/// One consumer of the wallet.
pub struct Consumer<B> {
    pub wallet: Wallet,
    pub book: B,
    pub rows: BTreeMap<Key, Prior>,
    pub parked: BTreeMap<Key, Park>,
    pub letters: Vec<Letter>,
}

/// What is said of a delivery: outcome and code, or what a parked one awaits.
pub type Said = (String, Option<String>);

impl<B: Book> Consumer<B> {
    pub fn new(config: Config, book: B) -> Self {
        Self {
            wallet: Wallet::new(config),
            book,
            rows: BTreeMap::new(),
            parked: BTreeMap::new(),
            letters: Vec::new(),
        }
    }

    /// Delivers payloads as one batch, then releases what came true.
    pub fn deliver(&mut self, payloads: &[impl AsRef<[u8]>]) -> Vec<Said> {
        let mut said = Vec::new();
        let mut waiting: Vec<Case<Work>> = payloads
            .iter()
            .map(|payload| self.case(message(payload.as_ref()), ClaimKind::New, false))
            .collect();
        let mut wakes = Vec::new();
        while !waiting.is_empty() {
            let (kept, conclusion) = self.unit(&waiting);
            said.extend(conclusion.endings.iter().flatten().map(told));
            wakes.extend(conclusion.wakes);
            wakes.extend(
                conclusion
                    .parked
                    .iter()
                    .filter_map(|key| Some(self.parked.get(key)?.awaiting.key)),
            );
            waiting.drain(..kept);
        }
        self.release(&wakes, false);
        said
    }

    /// Tries everything parked a last time: the deadline.
    pub fn deadline(&mut self) {
        let awaited: Vec<Key> = self.parked.values().map(|park| park.awaiting.key).collect();
        self.release(&awaited, true);
    }

    fn release(&mut self, wakes: &[Key], last: bool) {
        let mut wakes = wakes.to_vec();
        while let Some(awaited) = wakes.pop() {
            let due: Vec<Message> = self
                .parked
                .values()
                .filter(|park| park.awaiting.key == awaited)
                .map(|park| park.message.clone())
                .collect();
            if due.is_empty() {
                continue;
            }
            let cases: Vec<Case<Work>> = due
                .into_iter()
                .map(|message| self.case(message, ClaimKind::Released, last))
                .collect();
            let (kept, conclusion) = self.unit(&cases);
            assert_eq!(kept, cases.len());
            wakes.extend(conclusion.wakes);
        }
    }

    fn case(&self, message: Message, kind: ClaimKind, last: bool) -> Case<Work> {
        let binding = self
            .wallet
            .bind(&message)
            .map(|bound| (bound.binding, bound.work));
        Case {
            message,
            source: SourceId(1),
            binding,
            unbound: None,
            kind,
            replay: false,
            last,
            attempts: 0,
        }
    }

    /// One unit of work; returns how many messages it kept.
    fn unit(&mut self, cases: &[Case<Work>]) -> (usize, Conclusion) {
        let cases: Vec<&Case<Work>> = cases.iter().collect();
        let plan = plan(&cases);
        let claimed: Vec<Claimed> = claims(&cases, &plan)
            .iter()
            .map(|claim| self.claim(claim))
            .collect();
        let mut fresh: Vec<usize> = plan
            .firsts
            .iter()
            .zip(&claimed)
            .filter(|(_, claimed)| **claimed == Claimed::Fresh)
            .map(|(i, _)| *i)
            .collect();
        fresh.sort_unstable();
        self.book.save();
        let mut answers = self.answer(&cases, &fresh);
        let kept = cut(&cases, &plan, &answers).unwrap_or(cases.len());
        if kept < cases.len() {
            self.book.back();
            fresh.retain(|i| *i < kept);
            answers = self.answer(&cases, &fresh);
        }
        let wallet = &self.wallet;
        let same = |i: usize, first| {
            let work = cases[i].binding.as_ref().map(|(_, work)| work);
            work.is_ok_and(|work| wallet.same(&cases[i].message, work, first))
        };
        let field = |i: usize, stored: &_| {
            let (_, work) = cases[i].binding.as_ref().ok()?;
            wallet.differing(&cases[i].message, work, stored)
        };
        let conclusion = conclude(&cases, kept, &plan, &claimed, &answers, same, field);
        self.write(&conclusion.record);
        (kept, conclusion)
    }

    fn answer(&mut self, cases: &[&Case<Work>], fresh: &[usize]) -> Vec<Answered> {
        let messages: Vec<Fresh<'_, Work>> = fresh
            .iter()
            .map(|&i| {
                let (binding, work) = cases[i]
                    .binding
                    .as_ref()
                    .expect("only bound messages are claimed");
                Fresh {
                    message: &cases[i].message,
                    binding,
                    work,
                    last: cases[i].last,
                }
            })
            .collect();
        let answers = self.book.answer(&messages);
        fresh
            .iter()
            .zip(answers)
            .map(|(&case, answer)| Answered {
                case,
                answer,
                attempts: 1,
            })
            .collect()
    }

    fn claim(&mut self, claim: &Claim) -> Claimed {
        match (self.rows.get_mut(&claim.key), claim.kind) {
            (Some(row), ClaimKind::Released) if row.outcome == Outcome::Parked => {
                row.outcome = Outcome::Applied;
                row.code = None;
                Claimed::Fresh
            }
            (_, ClaimKind::Released) => Claimed::Ended,
            (Some(row), ClaimKind::New) => Claimed::Seen(Box::new(row.clone())),
            (None, ClaimKind::New) => {
                let row = Prior {
                    outcome: Outcome::Applied,
                    code: None,
                    reply: None,
                    fingerprint: claim.fingerprint,
                    scheme: claim.scheme,
                    sums: claim.sums,
                    source: claim.source,
                    at_us: 0,
                };
                self.rows.insert(claim.key, row);
                Claimed::Fresh
            }
        }
    }

    fn write(&mut self, record: &Record) {
        for note in &record.notes {
            let row = self
                .rows
                .get_mut(&note.key)
                .expect("only claimed rows are noted");
            row.outcome = note.outcome;
            row.code.clone_from(&note.code);
            row.reply.clone_from(&note.reply);
        }
        record
            .unclaims
            .iter()
            .for_each(|key| drop(self.rows.remove(key)));
        record
            .unparks
            .iter()
            .for_each(|key| drop(self.parked.remove(key)));
        record
            .parks
            .iter()
            .for_each(|park| drop(self.parked.insert(park.key, park.clone())));
        self.letters.extend(record.letters.iter().cloned());
    }

    /// How the operation with this id stands in the ledger.
    pub fn stands(&self, id: &str) -> Option<Said> {
        let key = Key::derive(&[semel_core::Part::Text(id)]).ok()?;
        let row = self.rows.get(&key)?;
        Some((
            row.outcome.to_string(),
            row.code.as_ref().map(ToString::to_string),
        ))
    }
}

pub fn message(payload: &[u8]) -> Message {
    Message::new(payload.to_vec(), "ops.jsonl", Some(1))
}

fn told(ending: &Ending) -> Said {
    let code = ending.code.as_ref().or(ending.awaiting.as_ref());
    (ending.outcome.to_string(), code.map(ToString::to_string))
}
