//! How long a plain transfer takes in the wallet's own code: parsing and fingerprint (`bind`), and deciding
//! on a stage in memory, batch by batch. Prints the best of several rounds in ns of this thread's CPU time a
//! message, so that a busy machine does not blur it (Linux; it reads `/proc/thread-self/schedstat`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;

use semel::handler::{Bound, Fresh};
use semel::staged::{Added, Name, Stage, Staged};
use semel_core::rows::Value;
use semel_core::{Answer, Message};
use semel_wallet::row::{ACCOUNT, OPERATION, Row};
use semel_wallet::{Config, Model, Operation, Wallet, Work};

const MESSAGES: usize = 20_000;
const ACCOUNTS: usize = 10_000;
const BATCH: usize = 1_000;
const ROUNDS: usize = 9;

/// As fast as the engine's own: it is the wallet's code that is measured.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        let words = bytes
            .chunks(8)
            .map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
        self.0 = words.fold(self.0, |sum, word| {
            (sum ^ word)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29)
        });
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A stage over plain maps, one a batch.
#[derive(Default)]
struct Maps {
    rows: [HashMap<Value, Row, BuildHasherDefault<Fold>>; 6],
    appended: Vec<Row>,
}

impl Stage<Row> for Maps {
    fn get(&self, table: usize, id: &Value) -> Option<&Row> {
        self.rows[table].get(id)
    }

    fn held(&self, _: usize, _: &Value) -> bool {
        true
    }

    fn put(&mut self, table: usize, id: Value, row: Row) {
        self.rows[table].insert(id, row);
    }

    fn put_after(&mut self, table: usize, id: Value, row: Row, _: Name) {
        self.put(table, id, row);
    }

    fn add(&mut self, _: usize, _: &Value, add: &[i128]) -> Added {
        Added::Later(add.to_vec())
    }

    fn append(&mut self, _: usize, row: Row, _: Option<Name>) {
        self.appended.push(row);
    }
}

fn config() -> Config {
    Config::new([("EUR", 2)])
        .expect("a sound scale")
        .house("house")
        .expect("a sound account")
}

fn player(n: usize) -> String {
    format!("player-{:05}", n % ACCOUNTS)
}

fn transfer(n: usize) -> Message {
    let (debit, credit) = (player(n), player(n + 1));
    let text = format!(
        r#"{{"op":"transfer","id":"0190d6f3-79f9-7000-8000-{n:012x}","debit":"{debit}","credit":"{credit}","asset":"EUR","amount":"1"}}"#
    );
    Message::new(text.into_bytes(), "ops.jsonl", u64::try_from(n).ok())
}

/// A wallet of players with some money.
fn opened() -> Model {
    let mut model = Model::new(config());
    let mut apply = |text: String| {
        let work = Work::parse(text.as_bytes(), &config());
        model
            .apply(&work, false)
            .map(drop)
            .expect("the setup is sound");
    };
    apply(
        r#"{"op":"open_account","id":"bank","account":"bank","asset":"EUR","kind":"external"}"#
            .into(),
    );
    for n in 0..ACCOUNTS {
        let player = player(n);
        apply(format!(
            r#"{{"op":"open_account","id":"o{n}","account":"{player}","asset":"EUR"}}"#
        ));
        apply(format!(
            r#"{{"op":"transfer","id":"f{n}","debit":"bank","credit":"{player}","asset":"EUR","amount":9}}"#
        ));
    }
    model
}

/// The stage that the engine would have loaded for a batch.
fn loaded(model: &HashMap<Value, Row>, batch: &[Bound<Work>]) -> Maps {
    let mut stage = Maps::default();
    for bound in batch {
        let Ok(Operation::Transfer { leg, .. }) = bound.work.operation() else {
            continue;
        };
        for key in leg
            .money
            .iter()
            .flat_map(|money| [money.debit, money.credit])
        {
            let id = Value::Key(key);
            stage.rows[ACCOUNT].insert(id.clone(), model[&id].clone());
        }
    }
    stage.rows[OPERATION].reserve(batch.len());
    stage.appended.reserve(2 * batch.len());
    stage
}

/// The best round, ns a message.
fn best(mut round: impl FnMut()) -> u64 {
    let times = (0..ROUNDS).map(|_| {
        let start = cpu_ns();
        round();
        cpu_ns() - start
    });
    times.min().expect("there are rounds") / u64::try_from(MESSAGES).expect("a small number")
}

/// CPU time of this thread, ns.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")
        .expect("a Linux kernel with schedstat");
    text.split(' ')
        .next()
        .and_then(|ns| ns.parse().ok())
        .expect("the first figure is CPU time in ns")
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn main() {
    let wallet = Wallet::new(config());
    let messages: Vec<Message> = (0..MESSAGES).map(transfer).collect();
    let bind = best(|| {
        messages
            .iter()
            .for_each(|message| drop(black_box(wallet.bind(message))))
    });
    let bound: Vec<Bound<Work>> = messages
        .iter()
        .filter_map(|message| wallet.bind(message).ok())
        .collect();
    let rows = opened()
        .accounts()
        .map(|a| (Value::Key(a.key), Row::Account(a.clone())))
        .collect();
    let mut stages: Vec<Maps> = bound
        .chunks(BATCH)
        .map(|batch| loaded(&rows, batch))
        .collect();
    // Every account pays as often as it is paid, so a round leaves the stages as it found them, but warm.
    let decide = best(|| {
        for (at, Bound { binding, work, .. }) in bound.iter().enumerate() {
            let stage = &mut stages[at / BATCH];
            if at % BATCH == 0 {
                stage.appended.clear();
            }
            let fresh = Fresh {
                message: &messages[at],
                binding,
                work,
                last: false,
            };
            let answer = wallet.decide(&fresh, stage);
            assert!(matches!(black_box(answer), Ok(Answer::Applied { .. })));
        }
    });
    println!(
        "bind {bind} ns, decide {decide} ns, together {} ns a transfer",
        bind + decide
    );
}
