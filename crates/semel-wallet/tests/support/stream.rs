//! Random streams of operations over few names, so that they meet: every operation, in any order, with
//! wrong ones among them.

use proptest::prelude::*;

fn pick(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(words).prop_map(str::to_owned)
}

fn account() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => pick(&["p1", "p2", "p3", "bank"]),
        1 => pick(&["house", "j1", "nobody"]),
    ]
}

/// The accounts that every stream starts with.
pub const OPENED: [&str; 7] = [
    r#"{"op":"open_account","id":"o-bank","account":"bank","asset":"EUR","kind":"external"}"#,
    r#"{"op":"open_account","id":"o-house","account":"house","asset":"EUR","kind":"house"}"#,
    r#"{"op":"open_account","id":"o-p1","account":"p1","asset":"EUR"}"#,
    r#"{"op":"open_account","id":"o-p2","account":"p2","asset":"EUR"}"#,
    r#"{"op":"open_account","id":"o-j1","account":"j1","asset":"JPY"}"#,
    r#"{"op":"transfer","id":"f-p1","debit":"bank","credit":"p1","asset":"EUR","amount":"500"}"#,
    r#"{"op":"transfer","id":"f-p2","debit":"bank","credit":"p2","asset":"EUR","amount":"300"}"#,
];

fn amount() -> impl Strategy<Value = String> {
    prop_oneof![
        20 => (1_u32..200).prop_map(|n| format!(r#""amount":"{n}""#)),
        3 => (1_u32..200).prop_map(|n| format!(r#""value":"{}.{:02}""#, n / 100, n % 100)),
        1 => Just(r#""amount":0"#.to_owned()),
        1 => Just(r#""amount":"-3""#.to_owned()),
        1 => Just(r#""value":"0.005""#.to_owned()),
        1 => Just(r#""amount":1.5"#.to_owned()),
    ]
}

fn money() -> impl Strategy<Value = String> {
    (account(), account(), amount()).prop_map(|(debit, credit, amount)| {
        format!(r#""debit":"{debit}","credit":"{credit}","asset":"EUR",{amount}"#)
    })
}

fn name(prefix: &'static str, count: u32) -> impl Strategy<Value = String> {
    (0..count).prop_map(move |n| format!("{prefix}{n}"))
}

/// One operation without its id; the second part says which prefix its id has, so that others can refer to it.
fn body() -> impl Strategy<Value = (String, &'static str)> {
    let hold = || name("h", 4);
    let round = || name("r", 3);
    let player = || pick(&["p1", "p2"]);
    prop_oneof![
        1 => account().prop_map(|a| (format!(r#""op":"open_account","account":"{a}","asset":"EUR""#), "x")),
        1 => account().prop_map(|a| (format!(r#""op":"freeze","account":"{a}""#), "x")),
        2 => account().prop_map(|a| (format!(r#""op":"unfreeze","account":"{a}""#), "x")),
        1 => pick(&["p3", "j1", "p2"]).prop_map(|a| (format!(r#""op":"close_account","account":"{a}""#), "x")),
        // An account that comes and goes, while the bank credits it without a look.
        4 => pick(&["open_account", "freeze", "unfreeze", "close_account"]).prop_map(|op| {
            (format!(r#""op":"{op}","account":"p3","asset":"EUR""#), "x")
        }),
        4 => (pick(&["p1", "p3"]), amount()).prop_map(|(to, a)| {
            (format!(r#""op":"transfer","debit":"bank","credit":"{to}","asset":"EUR",{a}"#), "x")
        }),
        1 => Just((r#""op":"transfer_group","legs":[{"debit":"bank","credit":"p3","asset":"EUR","amount":1},{"debit":"bank","credit":"nobody","asset":"EUR","amount":1}]"#.to_owned(), "x")),
        8 => money().prop_map(|m| (format!(r#""op":"transfer",{m}"#), "t")),
        3 => prop::collection::vec(money(), 1..4).prop_map(|legs| {
            (format!(r#""op":"transfer_group","legs":[{{{}}}]"#, legs.join("},{")), "t")
        }),
        3 => name("t", 8).prop_map(|t| (format!(r#""op":"reverse","transfer":"{t}""#), "x")),
        4 => (hold(), money()).prop_map(|(h, m)| (format!(r#""op":"authorize","hold":"{h}",{m}"#), "x")),
        3 => (hold(), amount(), any::<bool>()).prop_map(|(h, a, last)| {
            (format!(r#""op":"capture","hold":"{h}",{a},"final":{last}"#), "c")
        }),
        1 => hold().prop_map(|h| (format!(r#""op":"capture","hold":"{h}""#), "c")),
        2 => hold().prop_map(|h| (format!(r#""op":"release","hold":"{h}""#), "x")),
        3 => (pick(&["c0", "c1", "c2", "t0", "t1", "t2"]), amount()).prop_map(|(c, a)| {
            (format!(r#""op":"refund","capture":"{c}",{a}"#), "x")
        }),
        8 => (round(), player(), amount()).prop_map(|(r, p, a)| {
            (format!(r#""op":"bet","round":"{r}","account":"{p}","asset":"EUR",{a}"#), "b")
        }),
        4 => (round(), player(), amount(), prop::option::of(name("b", 8))).prop_map(|(r, p, a, b)| {
            let bet = b.map_or(String::new(), |b| format!(r#","bet":"{b}""#));
            (format!(r#""op":"win","round":"{r}","account":"{p}","asset":"EUR",{a}{bet}"#), "x")
        }),
        3 => name("b", 8).prop_map(|b| (format!(r#""op":"rollback","bet":"{b}""#), "x")),
        1 => (round(), player()).prop_map(|(r, p)| (format!(r#""op":"close_round","round":"{r}","account":"{p}""#), "x")),
        1 => (round(), player()).prop_map(|(r, p)| (format!(r#""op":"cancel_round","round":"{r}","account":"{p}""#), "x")),
        1 => Just((r#""op":"teleport""#.to_owned(), "x")),
        1 => Just((r#""op":"transfer","debit":"p1""#.to_owned(), "x")),
    ]
}

/// Operations with ids; some ids come twice, with the same content or another.
pub fn stream(length: usize) -> impl Strategy<Value = Vec<String>> {
    let op = (body(), 0_u32..12, 0_u32..30).prop_map(|((body, prefix), number, wide)| {
        let number = if prefix == "x" {
            wide + 100 * number
        } else {
            number
        };
        format!(r#"{{"id":"{prefix}{number}",{body}}}"#)
    });
    prop::collection::vec(op, 1..length)
}
