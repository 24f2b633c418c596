//! Few players with next to nothing, bets with what takes them back in either order and on any lane, copies.

use std::collections::VecDeque;

use semel_storm::Dice;

pub(crate) const LANES: u64 = 4;
const PLAYERS: u64 = 6;
/// Frozen and unfrozen all the time, while money comes in.
pub(crate) const SHARED: &str = "shared";

/// Opens and funds the accounts: to be read first, in order.
pub(crate) fn setup() -> Vec<String> {
    let open = |account: &str, kind: &str| {
        format!(
            r#"{{"op":"open_account","id":"open-{account}","account":"{account}","asset":"EUR","kind":"{kind}"}}"#
        )
    };
    let mut lines = vec![
        open("house", "house"),
        open("bank", "external"),
        open(SHARED, "cash"),
    ];
    for player in 0..PLAYERS {
        lines.push(open(&format!("p{player}"), "cash"));
        lines.push(format!(
            r#"{{"op":"transfer","id":"fund-{player}","debit":"bank","credit":"p{player}","asset":"EUR","amount":60}}"#
        ));
    }
    lines
}

/// The lines of `groups` small fights for one round each; or all for one account that is frozen and credited.
pub(crate) fn fights(seed: u64, groups: usize, shared: bool) -> Vec<String> {
    let mut clerk = Clerk {
        dice: Dice::new(seed),
        shared,
        lines: Vec::new(),
        later: VecDeque::new(),
    };
    for group in 0..groups {
        clerk.fight(group);
        while clerk.later.front().is_some_and(|(due, _)| *due <= group) {
            let (_, lines) = clerk.later.pop_front().unwrap();
            clerk.put(lines);
        }
    }
    while let Some((_, lines)) = clerk.later.pop_front() {
        clerk.put(lines);
    }
    clerk.lines
}

struct Clerk {
    dice: Dice,
    shared: bool,
    lines: Vec<String>,
    /// Lines that come some fights later.
    later: VecDeque<(usize, Vec<String>)>,
}

impl Clerk {
    /// Puts lines in any order, each on any lane, now and then followed by a copy of one of the last.
    fn put(&mut self, mut lines: Vec<String>) {
        while !lines.is_empty() {
            let at = usize::try_from(self.dice.below(lines.len() as u64)).unwrap();
            let line = lines.swap_remove(at);
            self.on_any_lane(&line);
            if self.dice.hit(120) {
                let back =
                    1 + usize::try_from(self.dice.below(30.min(self.lines.len() as u64))).unwrap();
                let copy = self.lines[self.lines.len() - back].clone();
                self.on_any_lane(copy.split_once(r#","lane""#).unwrap().0);
            }
        }
    }

    fn on_any_lane(&mut self, line: &str) {
        let lane = self.dice.below(LANES * 4);
        self.lines.push(format!(
            r#"{},"lane":"l{lane}"}}"#,
            line.trim_end_matches('}')
        ));
    }

    fn fight(&mut self, n: usize) {
        let player = self.dice.below(PLAYERS);
        let amount = 1 + self.dice.below(40);
        let bet = |which: &str, amount: u64| {
            format!(
                r#"{{"op":"bet","id":"b{which}{n}","round":"r{n}","account":"p{player}","asset":"EUR","amount":{amount}}}"#
            )
        };
        let rollback = |id: &str, which: &str| {
            format!(r#"{{"op":"rollback","id":"{id}{n}","bet":"b{which}{n}"}}"#)
        };
        let cancel =
            format!(r#"{{"op":"cancel_round","id":"c{n}","round":"r{n}","account":"p{player}"}}"#);
        let win = format!(
            r#"{{"op":"win","id":"w{n}","round":"r{n}","account":"p{player}","asset":"EUR","amount":{}}}"#,
            amount + 9
        );
        let deposit = format!(
            r#"{{"op":"transfer","id":"d{n}","debit":"bank","credit":"p{player}","asset":"EUR","amount":1}}"#
        );
        let lines = match if self.shared { 11 } else { self.dice.below(12) } {
            0..=2 => vec![bet("", amount), rollback("x", "")],
            // Money comes in by deltas, while the bet and what takes it back lock the player.
            3 => vec![bet("", amount), rollback("x", ""), deposit],
            4 | 5 => vec![bet("", amount), rollback("x", ""), cancel],
            6 => vec![bet("", amount), rollback("x", ""), rollback("y", "")],
            7 | 8 => vec![bet("", amount), win],
            9 => {
                // A round without open bets is cancelled while its next bet comes.
                self.later
                    .push_back((n + 12, vec![cancel, bet("late", amount)]));
                vec![bet("", 1), rollback("x", "")]
            }
            10 => {
                let to = (player + 1 + self.dice.below(PLAYERS - 1)) % PLAYERS;
                vec![format!(
                    r#"{{"op":"transfer","id":"t{n}","debit":"p{player}","credit":"p{to}","asset":"EUR","amount":{amount}}}"#
                )]
            }
            _ => {
                let op = if self.dice.hit(500) {
                    "freeze"
                } else {
                    "unfreeze"
                };
                vec![
                    format!(
                        r#"{{"op":"transfer","id":"s{n}","debit":"bank","credit":"{SHARED}","asset":"EUR","amount":1}}"#
                    ),
                    format!(r#"{{"op":"{op}","id":"f{n}","account":"{SHARED}"}}"#),
                ]
            }
        };
        self.put(lines);
    }
}
