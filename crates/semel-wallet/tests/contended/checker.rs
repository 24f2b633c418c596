//! Replays the pure model in the order of account versions, and finds every recorded answer right or names it.
//!
//! An operation stands where its entries stand in each player's account; a refusal, and an answer that moved
//! nothing, at the version its reply says it saw. A tombstone of a rollback names no account and no row that
//! anything before it leaned on, so it is replayed first: a bet that was applied in spite of it shows.

use std::collections::{BTreeMap, HashMap, HashSet};

use semel::rows::{Query, Value};
use semel::{Answer, Key, Outcome};
use semel_wallet::row::{
    ACCOUNT, BET, ENTRY, Entry, Limit, OPERATION, OperationRow, ROUND, Row, TABLES,
};
use semel_wallet::{Config, Dialect, Model, Operation, Reader, Work};

/// The first violations; more are not told.
const TOLD_MAX: usize = 20;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) violations: Vec<String>,
    /// Answers that were replayed, by outcome and code.
    pub(crate) answers: BTreeMap<(Outcome, String), u64>,
    /// Answers `applied` that were tombstones.
    pub(crate) tombstones: u64,
    /// Messages that ended as dead letters.
    pub(crate) dead: u64,
}

impl Found {
    fn that(&mut self, holds: bool, violation: impl FnOnce() -> String) {
        if !holds && self.violations.len() < TOLD_MAX {
            self.violations.push(violation());
        }
    }

    pub(crate) fn count(&self, code: &str) -> u64 {
        self.answers
            .iter()
            .filter(|((_, known), _)| known == code)
            .map(|(_, count)| count)
            .sum()
    }
}

/// What the ledger says of a key.
struct Recorded {
    key: Key,
    outcome: Outcome,
    code: String,
    reply: Vec<u8>,
}

/// What stands first among answers at one version of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Entry,
    MovedNothing,
    Refused,
}

/// One answer's place in one account.
type Place = (i64, Class, usize);

async fn all<Q: Query>(ledger: &Q, sql: &'static str) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    let mut each = |row: &[Value]| {
        rows.push(row.to_vec());
        true
    };
    ledger
        .query(sql, &[], &mut each)
        .await
        .unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    rows
}

async fn rows<Q: Query>(ledger: &Q, table: usize) -> Vec<Row> {
    let columns: Vec<&str> = TABLES[table]
        .columns
        .iter()
        .map(|column| column.name)
        .collect();
    let sql = format!("SELECT {} FROM {}", columns.join(", "), TABLES[table].name);
    all(ledger, sql.leak())
        .await
        .iter()
        .map(|values| Row::decode(table, values).unwrap())
        .collect()
}

async fn recorded<Q: Query>(ledger: &Q) -> Vec<Recorded> {
    let rows = all(
        ledger,
        "SELECT key, outcome, code, reply FROM semel_ledger ORDER BY key",
    )
    .await;
    let read = |row: Vec<Value>| {
        let (Value::Key(key), Value::Int(outcome)) = (&row[0], &row[1]) else {
            panic!("{row:?} is no ledger row")
        };
        let outcome = i16::try_from(*outcome)
            .ok()
            .and_then(Outcome::from_number)
            .unwrap();
        let code = if let Value::Text(code) = &row[2] {
            code.to_string()
        } else {
            String::new()
        };
        let reply = if let Value::Bytes(reply) = &row[3] {
            reply.to_vec()
        } else {
            Vec::new()
        };
        Recorded {
            key: *key,
            outcome,
            code,
            reply,
        }
    };
    rows.into_iter().map(read).collect()
}

/// Everything there is to compare.
struct Book {
    recorded: Vec<Recorded>,
    operations: HashMap<Key, OperationRow>,
    entries: HashMap<Key, Vec<Entry>>,
    /// Accounts with a limit: their versions are an order of everything that leaned on them.
    limited: HashMap<String, Key>,
}

impl Book {
    async fn read<Q: Query>(ledger: &Q) -> Self {
        let mut book = Self {
            recorded: recorded(ledger).await,
            operations: HashMap::new(),
            entries: HashMap::new(),
            limited: HashMap::new(),
        };
        for row in rows(ledger, OPERATION).await {
            if let Row::Operation(row) = row {
                book.operations.insert(row.key, *row);
            }
        }
        for row in rows(ledger, ACCOUNT).await {
            match row {
                Row::Account(row) if row.limit == Limit::NoNegative => {
                    book.limited.insert(row.id.to_string(), row.key);
                }
                _ => {}
            }
        }
        let limited: HashSet<Key> = book.limited.values().copied().collect();
        for row in rows(ledger, ENTRY).await {
            match row {
                Row::Entry(row) if limited.contains(&row.account) => {
                    book.entries.entry(row.operation).or_default().push(row)
                }
                _ => {}
            }
        }
        book
    }

    /// Where an answer stands, in each account it leaned on.
    fn places(&self, recorded: &Recorded) -> Vec<(Key, i64, Class)> {
        if recorded.outcome == Outcome::Applied {
            let entries = self
                .entries
                .get(&recorded.key)
                .map_or(&[][..], Vec::as_slice);
            if !entries.is_empty() {
                return entries
                    .iter()
                    .map(|entry| (entry.account, entry.version, Class::Entry))
                    .collect();
            }
            let reply = self.operations.get(&recorded.key).and_then(|row| row.reply);
            let reply =
                reply.filter(|reply| self.limited.values().any(|key| *key == reply.account));
            return reply
                .map(|reply| (reply.account, reply.version, Class::MovedNothing))
                .into_iter()
                .collect();
        }
        let reply: serde_json::Value = serde_json::from_slice(&recorded.reply).unwrap_or_default();
        let account = reply["account"]
            .as_str()
            .and_then(|account| self.limited.get(account));
        account
            .zip(reply["version"].as_i64())
            .map(|(key, version)| (*key, version, Class::Refused))
            .into_iter()
            .collect()
    }
}

/// Checks all that is recorded of `payloads`, and unless the run was stopped that all of them are.
pub(crate) async fn check<Q: Query>(
    ledger: &Q,
    config: &Config,
    payloads: &[String],
    stopped: bool,
) -> Found {
    let mut found = Found::default();
    let works: HashMap<Key, Work> = payloads
        .iter()
        .map(|payload| Work::parse(payload.as_bytes(), config))
        .map(|work| (work.key(), work))
        .collect();
    let book = Book::read(ledger).await;
    let ended: HashSet<Key> = book.recorded.iter().map(|recorded| recorded.key).collect();
    for work in works
        .values()
        .filter(|work| !stopped && !ended.contains(&work.key()))
    {
        // A win behind a cancel is `late_win`: dead, and its key is not held.
        found.that(
            matches!(work.operation(), Ok(Operation::Win { .. })),
            || format!("{} left no answer", work.id()),
        );
        found.dead += 1;
    }
    let model = replay(&book, &works, config, &mut found);
    compare(ledger, &model, &mut found).await;
    let audit = Reader::new(ledger, Dialect::Postgres)
        .audit()
        .await
        .unwrap_or_else(|fault| panic!("{fault}"));
    for check in audit.iter().filter(|check| !check.ok) {
        found.that(false, || {
            format!("audit: {}: {:?}", check.name, check.examples.first())
        });
    }
    found
}

/// Runs every recorded answer through the model, in the order of versions.
fn replay(book: &Book, works: &HashMap<Key, Work>, config: &Config, found: &mut Found) -> Model {
    let mut model = Model::new(config.clone());
    let mut chains: BTreeMap<Key, Vec<Place>> = BTreeMap::new();
    let mut places = Vec::new();
    let mut free = Vec::new();
    for (at, recorded) in book.recorded.iter().enumerate() {
        let work = works.get(&recorded.key);
        let flicker = matches!(
            work.map(Work::operation),
            Some(Ok(Operation::Freeze(_) | Operation::Unfreeze(_)))
        );
        let told =
            [Outcome::Applied, Outcome::Refused, Outcome::Ignored].contains(&recorded.outcome);
        // The set-up ended before the fights began: whatever leans on an account finds it open.
        let opens = matches!(
            work.map(Work::operation),
            Some(Ok(Operation::OpenAccount { .. }))
        );
        // Which of two that freeze at one version came first is told by nothing; the audit checks the balance.
        places.push(if flicker || opens || !told {
            Vec::new()
        } else {
            book.places(recorded)
        });
        for (account, version, class) in &places[at] {
            chains
                .entry(*account)
                .or_default()
                .push((*version, *class, at));
        }
        if places[at].is_empty() && told && !flicker {
            free.push(at);
        }
    }
    chains
        .values_mut()
        .for_each(|chain| chain.sort_unstable_by(|a, b| b.cmp(a)));
    free.sort_by_key(|at| {
        let open = book.recorded[*at].outcome == Outcome::Applied
            && !book
                .operations
                .get(&book.recorded[*at].key)
                .is_some_and(|row| row.tombstoned);
        (!open, book.recorded[*at].outcome != Outcome::Applied)
    });
    free.iter()
        .for_each(|at| answer(&mut model, book, works, &book.recorded[*at], found));
    let mut turn: Vec<Key> = chains.keys().copied().collect();
    while let Some(account) = turn.pop() {
        let Some((_, _, at)) = chains[&account].last().copied() else {
            continue;
        };
        let first = |place: &(Key, i64, Class)| {
            chains[&place.0]
                .last()
                .is_some_and(|(_, _, head)| *head == at)
        };
        if places[at].iter().all(first) {
            for (account, _, _) in &places[at] {
                chains.get_mut(account).unwrap().pop();
                turn.push(*account);
            }
            answer(&mut model, book, works, &book.recorded[at], found);
        }
    }
    let left: usize = chains.values().map(Vec::len).sum();
    found.that(left == 0, || {
        format!("the versions of {left} answers fit no order")
    });
    model
}

fn answer(
    model: &mut Model,
    book: &Book,
    works: &HashMap<Key, Work>,
    recorded: &Recorded,
    found: &mut Found,
) {
    let Some(work) = works.get(&recorded.key) else {
        return found.that(false, || format!("{} was never sent", recorded.key));
    };
    let before = model.entries().len();
    // Only the deadline of its wait makes this answer out of a wait.
    let last = recorded.code == "round_not_found";
    let answer = match model.apply(work, last) {
        Ok(answer) => answer,
        Err(fault) => return found.that(false, || format!("{}: {fault}", work.id())),
    };
    let (code, reply) = match &answer {
        Answer::Refused { code, reply } => (code.to_string(), reply.clone()),
        Answer::Ignored { reason, reply } => (reason.to_string(), reply.clone()),
        _ => (String::new(), None),
    };
    *found
        .answers
        .entry((recorded.outcome, recorded.code.clone()))
        .or_default() += 1;
    let same = answer.outcome() == recorded.outcome && code == recorded.code;
    found.that(same, || {
        format!(
            "{}: recorded {} {}, right is {answer:?}",
            work.id(),
            recorded.outcome,
            recorded.code
        )
    });
    if recorded.outcome != Outcome::Applied {
        let reply = reply.unwrap_or_default();
        let told = String::from_utf8_lossy(&recorded.reply);
        return found.that(reply == recorded.reply, || {
            format!("{}: told {told}, right is {reply:?}", work.id())
        });
    }
    let limited = |account: &Key| book.limited.values().any(|key| key == account);
    let made = model.entries()[before..]
        .iter()
        .filter(|entry| limited(&entry.account));
    let mut made: Vec<Entry> = made.copied().collect();
    let mut stored = book.entries.get(&recorded.key).cloned().unwrap_or_default();
    made.sort_unstable_by_key(|entry| entry.account);
    stored.sort_unstable_by_key(|entry| entry.account);
    found.that(made == stored, || {
        format!("{}: stored {stored:?}, right is {made:?}", work.id())
    });
    let told = |row: Option<&OperationRow>| {
        let row = row?;
        Some((
            row.tombstoned,
            row.amount,
            row.reply.filter(|reply| limited(&reply.account)),
        ))
    };
    let (right, is) = (
        told(model.operation(recorded.key)),
        told(book.operations.get(&recorded.key)),
    );
    found.tombstones += u64::from(is.is_some_and(|(tombstoned, ..)| tombstoned));
    found.that(right == is, || {
        format!("{}: answered {is:?}, right is {right:?}", work.id())
    });
}

/// What is left in the database is what is left in the model.
async fn compare<Q: Query>(ledger: &Q, model: &Model, found: &mut Found) {
    for row in rows(ledger, ACCOUNT).await {
        let Row::Account(row) = row else { continue };
        let right = model
            .account(&row.id)
            .map(|right| (right.posted, right.pending, right.version));
        let is = (row.posted, row.pending, row.version);
        found.that(right == Some(is), || {
            format!("{} has {is:?}, right is {right:?}", row.id)
        });
    }
    let total: i128 = model.accounts().map(|account| account.posted).sum();
    found.that(total == 0, || {
        format!("the model's balances add up to {total}")
    });
    let bets: HashMap<Key, _> = model
        .bets()
        .map(|bet| (bet.key, (bet.status, bet.amount, bet.ended_by.is_some())))
        .collect();
    let mut stored = HashMap::new();
    for row in rows(ledger, BET).await {
        if let Row::Bet(bet) = row {
            stored.insert(bet.key, (bet.status, bet.amount, bet.ended_by.is_some()));
        }
    }
    for key in bets
        .keys()
        .chain(stored.keys())
        .filter(|key| bets.get(*key) != stored.get(*key))
    {
        found.that(false, || {
            format!(
                "bet {key} is {:?}, right is {:?}",
                stored.get(key),
                bets.get(key)
            )
        });
    }
    let rounds: HashMap<Key, _> = model
        .rounds()
        .map(|round| (round.key, (round.status, round.staked, round.paid)))
        .collect();
    for row in rows(ledger, ROUND).await {
        let Row::Round(round) = row else { continue };
        let is = (round.status, round.staked, round.paid);
        found.that(rounds.get(&round.key) == Some(&is), || {
            format!(
                "round {} is {is:?}, right is {:?}",
                round.id,
                rounds.get(&round.key)
            )
        });
    }
}
