//! How long a plain transfer takes in the wallet's own code: parsing and fingerprint (`bind`), and deciding
//! on the model. Prints the best of several rounds in ns a message.

use std::hint::black_box;
use std::time::Instant;

use semel::staged::Staged;
use semel_core::Message;
use semel_wallet::{Config, Model, Wallet};

const MESSAGES: usize = 20_000;
const ROUNDS: usize = 9;

fn config() -> Config {
    Config::new([("EUR", 2)]).expect("a sound scale").house("house").expect("a sound account")
}

fn transfer(n: usize) -> Message {
    let text = format!(
        r#"{{"op":"transfer","id":"0190d6f3-79f9-7000-8000-{n:012x}","debit":"player-{:05}","credit":"player-{:05}","asset":"EUR","amount":"1"}}"#,
        n % 10_000,
        (n + 1) % 10_000
    );
    Message::new(text.into_bytes(), "ops.jsonl", u64::try_from(n).ok())
}

/// The best round, ns a message.
fn best(mut round: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed()
    });
    let best = times.min().expect("there are rounds");
    best.as_secs_f64() * 1e9 / f64::from(u32::try_from(MESSAGES).expect("a small number"))
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn main() {
    let wallet = Wallet::new(config());
    let messages: Vec<Message> = (0..MESSAGES).map(transfer).collect();
    let bind = best(|| messages.iter().for_each(|message| drop(black_box(wallet.bind(message)))));
    let works: Vec<_> = messages.iter().filter_map(|message| wallet.bind(message).ok()).map(|bound| bound.work).collect();
    let mut opened = Model::new(config());
    let open = |model: &mut Model, text: String| {
        let work = semel_wallet::Work::parse(text.as_bytes(), &config());
        model.apply(&work, false).map(drop).expect("the setup is sound");
    };
    open(&mut opened, r#"{"op":"open_account","id":"bank","account":"bank","asset":"EUR","kind":"external"}"#.into());
    for n in 0..10_000 {
        let player = format!("player-{n:05}");
        open(&mut opened, format!(r#"{{"op":"open_account","id":"o{n}","account":"{player}","asset":"EUR"}}"#));
        open(&mut opened, format!(r#"{{"op":"transfer","id":"f{n}","debit":"bank","credit":"{player}","asset":"EUR","amount":9}}"#));
    }
    let mut models: Vec<Model> = (0..ROUNDS).map(|_| opened.clone()).collect();
    let decide = best(|| {
        let mut model = models.pop().expect("one for each round");
        works.iter().for_each(|work| drop(black_box(model.apply(work, false))));
        std::mem::forget(model);
    });
    println!("bind {bind:.0} ns, decide on the model {decide:.0} ns, together {:.0} ns a transfer", bind + decide);
}
