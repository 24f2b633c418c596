//! One unit of work: begin, claim, handle, write, commit. Runs in a task of its own to its end; what the
//! lane must know should the task be lost travels in [`Trail`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use semel_core::law::{self, Answered, Case, Conclusion};
use semel_core::ledger::{
    Claimed, Commit, Committed, Fence, LaneId, Ledger, Reached, Save, Unit, Written,
};
use semel_core::{Answer, Class, Fault, codes};

use crate::handler::{Fresh, Handler, Said};
use crate::position::{Slot, Tracker};

/// One message on its way through a lane.
#[derive(Debug)]
pub(crate) struct Item<W> {
    /// What the law needs to know.
    pub(crate) case: Case<W>,
    /// Its place in the position window, for sources that can be read again.
    pub(crate) slot: Option<Slot>,
    /// Set when its attempts are used up: it is `dead(poison)` without meeting the handler again.
    pub(crate) doomed: Option<String>,
    /// Its case's attempts include the one under way: a lane on probation counts it beforehand.
    pub(crate) counted: bool,
}

impl<W> Item<W> {
    /// How often it was tried, the try under way included.
    pub(crate) fn attempts(&self) -> u32 {
        self.case.attempts + u32::from(!self.counted)
    }

    /// It ends dead, and the try under way was its last.
    pub(crate) fn doom(&mut self, why: String) {
        self.case.attempts = self.attempts();
        self.doomed = Some(why);
    }
}

/// What survives the task of a unit.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    fence: OnceLock<Fence>,
    committing: AtomicBool,
    concluded: Mutex<Option<Concluded>>,
}

/// What a unit says and writes, complete before its commit is sent.
#[derive(Debug)]
pub(crate) struct Concluded {
    /// How many messages of the batch it settles.
    pub(crate) kept: usize,
    pub(crate) conclusion: Conclusion,
    pub(crate) written: Written,
}

impl Trail {
    /// The fence of a commit that was sent and not answered.
    pub(crate) fn open_commit(&self) -> Option<Fence> {
        self.committing
            .load(Ordering::Acquire)
            .then(|| self.fence.get().copied())
            .flatten()
    }

    pub(crate) fn take(&self) -> Option<Concluded> {
        self.concluded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// How a unit's task ended.
pub(crate) enum End<L> {
    /// Committed; the lane has its connection back.
    Committed(Committed, L),
    /// Nothing of it is in the database.
    RolledBack(Trouble),
    /// The commit was sent and its answer is not known.
    Unknown(Fault),
}

/// Why a unit did not commit.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A fault of the store, or one that the handler laid on the whole unit.
    Unit(Fault),
    /// One message asks to be run again: index in the batch.
    Retry(usize, Fault),
    /// These messages, with why, end as `dead(poison)`, and their writes must not stay: run again without
    /// asking for them.
    Doomed(Vec<(usize, String)>),
    /// It must run again over so many messages.
    Shorter(usize),
}

/// What a unit works with.
pub(crate) struct Desk<L, H> {
    pub(crate) ledger: Arc<L>,
    pub(crate) handler: Arc<H>,
    pub(crate) tracker: Arc<Tracker>,
    /// The last unit of this lane that was confirmed: the fence must be above it.
    pub(crate) confirmed: i64,
    /// Positions to write besides those of the messages.
    pub(crate) positions: Vec<Reached>,
}

/// Runs one unit over `items`.
pub(crate) async fn run<L, H>(
    desk: Desk<L, H>,
    lane: L::Lane,
    items: Arc<Vec<Box<Item<H::Work>>>>,
    trail: Arc<Trail>,
) -> End<L::Lane>
where
    L: Ledger,
    H: Handler<L::Unit>,
{
    let mut unit = match desk.ledger.begin(lane).await {
        Ok(unit) => unit,
        Err(fault) => return End::RolledBack(Trouble::Unit(fault)),
    };
    let fence = unit.fence();
    // Set once: a trail belongs to one unit.
    let _ = trail.fence.set(fence);
    if fence.unit <= desk.confirmed {
        return End::RolledBack(Trouble::Unit(lost_commits(fence, desk.confirmed)));
    }
    match judge(&desk, &mut unit, &items).await {
        Err(trouble) => return End::RolledBack(trouble),
        Ok(concluded) => {
            *trail
                .concluded
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(concluded);
        }
    }
    trail.committing.store(true, Ordering::Release);
    match unit.commit().await {
        Commit::Committed(proof, lane) => End::Committed(proof, lane),
        Commit::RolledBack(fault) => End::RolledBack(Trouble::Unit(fault)),
        Commit::Unknown(fault) => End::Unknown(fault),
    }
}

pub(crate) fn lost_commits(fence: Fence, confirmed: i64) -> Fault {
    Fault::stop(format!(
        "the database lost commits: lane {} had confirmed unit {confirmed}, and the ledger is back at {}; \
         a restored backup or a failover without synchronous replication does this. Nothing more is read or \
         acked. Compare the ledger with the business before starting again",
        fence.lane.lane,
        fence.unit - 1,
    ))
}

async fn judge<L, H>(
    desk: &Desk<L, H>,
    unit: &mut L::Unit,
    items: &[Box<Item<H::Work>>],
) -> Result<Concluded, Trouble>
where
    L: Ledger,
    H: Handler<L::Unit>,
{
    let cases: Vec<&Case<H::Work>> = items.iter().map(|item| &item.case).collect();
    let plan = law::plan(&cases);
    let cases = &cases[..plan.seats.len()];
    let claims = law::claims(cases, &plan);
    let claimed = if claims.is_empty() {
        Vec::new()
    } else {
        unit.claim(&claims).await.map_err(Trouble::Unit)?
    };
    let mut fresh: Vec<usize> = plan
        .firsts
        .iter()
        .zip(&claimed)
        .filter(|(_, c)| **c == Claimed::Fresh)
        .map(|(i, _)| *i)
        .collect();
    fresh.sort_unstable();
    if !fresh.is_empty() {
        unit.save(Save::Claims).await.map_err(Trouble::Unit)?;
    }
    let mut kept = cases.len();
    let answers = loop {
        fresh.retain(|&i| i < kept);
        let answers = answer(desk, unit, items, &fresh).await?;
        match law::cut(&cases[..kept], &plan, &answers) {
            None => break answers,
            Some(at) if law::cuts_a_release(cases, &plan, &claimed, at) => {
                return Err(Trouble::Shorter(at));
            }
            Some(at) => {
                kept = at;
                unit.back(Save::Claims).await.map_err(Trouble::Unit)?;
            }
        }
    };
    let same = |i: usize, first| {
        let case = cases[i];
        let work = case.binding.as_ref().map(|(_, work)| work);
        work.is_ok_and(|work| desk.handler.same(&case.message, work, first))
    };
    let field = |i: usize, stored: &semel_core::FieldSums| {
        let case = cases[i];
        let (_, work) = case.binding.as_ref().ok()?;
        // Only a word for the operator: a panic over it must not cost the unit.
        let found = || desk.handler.differing(&case.message, work, stored);
        catch_unwind(AssertUnwindSafe(found)).unwrap_or(None)
    };
    let mut conclusion = law::conclude(cases, kept, &plan, &claimed, &answers, same, field);
    conclusion.record.positions.clone_from(&desk.positions);
    let slots = items[..kept].iter().filter_map(|item| item.slot.as_ref());
    conclusion
        .record
        .positions
        .extend(desk.tracker.reach(slots));
    let written = if conclusion.record.is_empty() {
        Written::default()
    } else {
        unit.write(&conclusion.record)
            .await
            .map_err(Trouble::Unit)?
    };
    Ok(Concluded {
        kept,
        conclusion,
        written,
    })
}

/// Asks the handler for the fresh messages; doomed ones are dead without being asked.
async fn answer<L, H>(
    desk: &Desk<L, H>,
    unit: &mut L::Unit,
    items: &[Box<Item<H::Work>>],
    fresh: &[usize],
) -> Result<Vec<Answered>, Trouble>
where
    L: Ledger,
    H: Handler<L::Unit>,
{
    let mut answers = Vec::with_capacity(fresh.len());
    let mut asked = Vec::with_capacity(fresh.len());
    let mut views = Vec::with_capacity(fresh.len());
    for &i in fresh {
        let case = &items[i].case;
        match (&case.binding, &items[i].doomed) {
            (Err(reject), _) => answers.push(Answered {
                case: i,
                answer: Answer::Dead {
                    code: reject.code.clone(),
                    detail: reject.detail.clone(),
                    field: reject.field.clone(),
                },
                attempts: case.attempts,
            }),
            (Ok(_), Some(detail)) => answers.push(poison(i, case.attempts, detail.clone())),
            (Ok((binding, work)), None) => {
                asked.push(i);
                views.push(Fresh {
                    message: &case.message,
                    binding,
                    work,
                    last: case.last,
                });
            }
        }
    }
    if views.is_empty() {
        return Ok(answers);
    }
    let said = desk
        .handler
        .handle(unit, &views)
        .await
        .map_err(Trouble::Unit)?;
    assert_eq!(
        said.len(),
        views.len(),
        "a handler answers once for each message it is given"
    );
    let mut doomed = Vec::new();
    for (&i, said) in asked.iter().zip(said) {
        match said {
            Said::Fault(fault) if is_poison(&fault) && !desk.handler.isolates() => {
                doomed.push((i, fault.detail()));
            }
            said => answers.push(sort(i, &items[i], said)?),
        }
    }
    if doomed.is_empty() {
        Ok(answers)
    } else {
        Err(Trouble::Doomed(doomed))
    }
}

const fn is_poison(fault: &Fault) -> bool {
    matches!(fault.class, Class::Poison | Class::Unclassified)
}

fn sort<W>(i: usize, item: &Item<W>, said: Said) -> Result<Answered, Trouble> {
    match said {
        Said::Answer(Answer::NotYet { awaiting, .. }) if item.case.last => {
            let detail = format!(
                "the handler still waits for its {} at the deadline",
                awaiting.kind
            );
            Ok(Answered {
                case: i,
                answer: Answer::dead(codes::PARKED_TOO_LONG, detail),
                attempts: item.attempts(),
            })
        }
        Said::Answer(answer) => Ok(Answered {
            case: i,
            answer,
            attempts: item.attempts(),
        }),
        Said::Fault(fault) => match fault.class {
            Class::Poison | Class::Unclassified => Ok(poison(i, item.attempts(), fault.detail())),
            Class::Retry => Err(Trouble::Retry(i, fault)),
            Class::Busy | Class::Down | Class::Stop => Err(Trouble::Unit(fault)),
        },
    }
}

fn poison(case: usize, attempts: u32, detail: String) -> Answered {
    Answered {
        case,
        answer: Answer::dead(codes::POISON, detail),
        attempts,
    }
}

/// Counts an attempt of `key` in a unit of its own.
pub(crate) async fn attempt<L: Ledger>(
    ledger: Arc<L>,
    lane: L::Lane,
    key: semel_core::Key,
) -> Result<(u32, Committed, L::Lane), Fault> {
    let mut unit = ledger.begin(lane).await?;
    let attempts = unit.attempt(&[key]).await?;
    match unit.commit().await {
        Commit::Committed(proof, lane) => Ok((attempts.first().copied().unwrap_or(1), proof, lane)),
        // Counted twice at worst: the message is tried once less.
        Commit::RolledBack(fault) | Commit::Unknown(fault) => Err(fault),
    }
}

/// Raises the fence row of `acquittal`, which belongs to no life: crashes before now are no longer counted.
pub(crate) async fn acquit<L: Ledger>(ledger: &L, acquittal: LaneId) -> Result<(), Fault> {
    let lane = ledger.connect(acquittal).await?;
    let unit = ledger.begin(lane).await?;
    match unit.commit().await {
        Commit::Committed(..) => Ok(()),
        Commit::RolledBack(fault) | Commit::Unknown(fault) => Err(fault),
    }
}
