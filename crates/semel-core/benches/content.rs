//! What the hot path costs: reading a payload, binding it, deriving its key. `cargo bench -p semel-core`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use semel_core::fingerprint::{Canon, Content};
use semel_core::{Json, Key, Part, Policy, canonical};

const ROUNDS: u32 = 20;
const CALLS: u32 = 20_000;

const FLAT: &[u8] = br#"{"op":"transfer","id":"0190d6f3-79f9-7000-8000-0000deadbeef","at":"2026-01-02T03:04:05.678Z","debit":"player-000123","credit":"house-eur","asset":"EUR","amount":125000,"reason":"stake of table 7, seat 3"}"#;

/// The fastest of several rounds: the one the machine disturbed least.
#[expect(clippy::print_stdout, reason = "a benchmark reports to its caller")]
fn measure<T>(what: &str, mut call: impl FnMut() -> T) {
    let round = |call: &mut dyn FnMut() -> T| {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        start.elapsed()
    };
    let best = (0..ROUNDS)
        .map(|_| round(&mut call))
        .min()
        .unwrap_or(Duration::ZERO);
    println!(
        "{what:<44} {:>8.0} ns",
        best.as_secs_f64() * 1e9 / f64::from(CALLS)
    );
}

fn group(legs: usize) -> Vec<u8> {
    let leg = r#"{"debit":"player-000123","credit":"house-eur","asset":"EUR","amount":125000}"#;
    format!(
        r#"{{"op":"transfer_group","id":"g-1","legs":[{}]}}"#,
        vec![leg; legs].join(",")
    )
    .into_bytes()
}

fn main() {
    let read = |payload: &'static [u8]| Json::parse(payload).expect("the payload is well-formed");
    let flat = read(FLAT);
    measure("parse, flat, 8 fields, 205 bytes", || read(black_box(FLAT)));
    measure("serde_json::Value of the same (numbers lost)", || {
        serde_json::from_slice::<serde_json::Value>(black_box(FLAT))
            .expect("the payload is well-formed")
    });
    measure("canonical form of it", || canonical(black_box(&flat)));
    measure("Policy::All of it", || {
        Policy::All.bind(FLAT, Some(black_box(&flat)))
    });
    let raw: &[u8] = &[7; 200];
    measure("Policy::All of 200 raw bytes", || {
        Policy::All.bind(black_box(raw), None)
    });

    let legs = group(100);
    let big = Json::parse(&legs).expect("the payload is well-formed");
    measure("parse, 100 legs, 7.7 kB", || {
        Json::parse(black_box(&legs)).expect("the payload is well-formed")
    });
    measure("Policy::All of it", || {
        Policy::All.bind(&legs, Some(black_box(&big)))
    });

    let account = Key::from_bytes([0x42; 16]);
    measure("Content of 8 normalised fields", || {
        Content::new()
            .field("amount", Canon::Integer(black_box(125_000)))
            .field("asset", Canon::Text("EUR"))
            .field("credit", Canon::Key(account))
            .field("debit", Canon::Key(account))
            .field("hold", Canon::Null)
            .field("id", Canon::Key(account))
            .field("op", Canon::Text("transfer"))
            .field("reason", Canon::Text("stake of table 7"))
            .finish()
    });
    measure("Key::derive, two parts", || {
        Key::derive(&[Part::Text(black_box("acme")), Part::Text("bet-000000042")])
            .expect("the parts are short")
    });
    measure("Key::derive, one UUID", || {
        Key::derive(&[Part::Text(black_box(
            "0190d6f3-79f9-7000-8000-0000deadbeef",
        ))])
        .expect("it is a UUID")
    });
    measure("Key::child", || {
        account
            .child(black_box("expire"))
            .expect("the name is short")
    });
}
