//! A seeded day of a wallet: realistic operations with copies, reordering, conflicts and rubbish, and what
//! must be left of them. Only with the feature `testing`.
//!
//! It is *confluent*: accounts are opened and funded first, a chain of operations that must stay in order
//! stays in one file, and no refusal depends on what other files did. So every way to read the files, any
//! number of times, with any crash in between, ends in the same balances.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use semel_core::{Answer, Key, Outcome};

use crate::config::Config;
use crate::model::Model;
use crate::work::Work;

/// How large a day is.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// One seed is one day, byte for byte.
    pub seed: u64,
    /// Lines of all files together, besides the set-up.
    pub lines: usize,
    /// Players in EUR; JPY and BTC have a tenth of that each.
    pub players: u64,
    /// Files.
    pub files: usize,
    /// Copies, per mille of the lines.
    pub copies: u64,
    /// Rubbish lines, per mille: broken JSON, no id, an operation that nobody knows.
    pub rubbish: u64,
    /// Known ids with another amount, per mille.
    pub conflicts: u64,
    /// Whether chains are written that must be read in order (rounds with an end, holds, visitors).
    /// Without them the lines may be read in any order, by any number of consumers.
    pub ordered: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            seed: 1,
            lines: 100_000,
            players: 2_000,
            files: 1,
            copies: 330,
            rubbish: 2,
            conflicts: 2,
            ordered: true,
        }
    }
}

/// The lines of a day, without line ends.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Opens and funds the accounts. To be read before the files.
    pub setup: Vec<Vec<u8>>,
    /// The files.
    pub files: Vec<Vec<Vec<u8>>>,
}

/// The assets of a day, as `wallet.assets` in the config.
pub const ASSETS: [(&str, u8); 3] = [("EUR", 2), ("JPY", 0), ("BTC", 8)];

/// The settings of a day: each asset has a house of its own.
///
/// # Panics
/// Never: the settings are sound.
#[must_use]
pub fn config() -> Config {
    let mut config = Config::new(ASSETS).expect("the assets are sound");
    for (asset, _) in ASSETS {
        config = config
            .house_of(asset, &house(asset))
            .expect("the asset is declared");
    }
    config
}

fn house(asset: &str) -> String {
    format!("house-{}", asset.to_lowercase())
}

/// Writes a day.
#[must_use]
pub fn generate(shape: Shape) -> Workload {
    let files = shape.files.max(1);
    let setup = setup(shape);
    let lines = shape.lines / files;
    let files = (0..files)
        .map(|file| Clerk::new(shape, file).write(lines))
        .collect();
    Workload { setup, files }
}

/// What must be left of a day: the model after each operation was applied once, in file order.
///
/// # Panics
/// When the model meets a state that no sequence of operations makes: a bug.
#[must_use]
pub fn expected(workload: &Workload) -> Model {
    Book::of(workload).model
}

/// The keys that must be held after a day, and how many different lines must be dead letters. Not how each key
/// ended: a bet behind its own rollback is refused, before it the bet was applied, and the money is the same.
///
/// # Panics
/// As [`expected`].
#[must_use]
pub fn expected_keys(workload: &Workload) -> (BTreeSet<Key>, usize) {
    let book = Book::of(workload);
    let dead = book.dead.len();
    (book.held.into_keys().collect(), dead)
}

/// The model behind a tiny ledger.
struct Book {
    model: Model,
    held: HashMap<Key, Outcome>,
    waiting: HashMap<Key, Vec<Work>>,
    dead: HashSet<Vec<u8>>,
}

impl Book {
    fn of(workload: &Workload) -> Self {
        let mut book = Self {
            model: Model::new(config()),
            held: HashMap::new(),
            waiting: HashMap::new(),
            dead: HashSet::new(),
        };
        for line in workload.setup.iter().chain(workload.files.iter().flatten()) {
            book.take(line);
        }
        book
    }

    fn take(&mut self, line: &[u8]) {
        let work = Work::parse(line, self.model.config());
        let key = work.key();
        let keyed = *key.as_bytes() != [0; 16];
        if keyed && !self.held.contains_key(&key) {
            self.apply(work);
        }
        if !self.held.contains_key(&key) {
            self.dead.insert(line.to_vec());
        }
    }

    fn apply(&mut self, work: Work) {
        let answer = self
            .model
            .apply(&work, false)
            .expect("the model takes every operation");
        match &answer {
            Answer::Dead { .. } => return,
            Answer::NotYet { awaiting, .. } => self
                .waiting
                .entry(awaiting.key)
                .or_default()
                .push(work.clone()),
            Answer::Applied { .. } | Answer::Ignored { .. } | Answer::Refused { .. } => {}
        }
        self.held.insert(work.key(), answer.outcome());
        if let Answer::Applied { wakes, .. } = answer {
            for woken in wakes
                .iter()
                .flat_map(|key| self.waiting.remove(key).unwrap_or_default())
                .collect::<Vec<_>>()
            {
                self.apply(woken);
            }
        }
    }
}

fn setup(shape: Shape) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut put = |line: String| lines.push(line.into_bytes());
    for (asset, _) in ASSETS {
        let (house, low) = (house(asset), asset.to_lowercase());
        put(format!(
            r#"{{"op":"open_account","id":"open-{house}","account":"{house}","asset":"{asset}","kind":"house"}}"#
        ));
        put(format!(
            r#"{{"op":"open_account","id":"open-bank-{low}","account":"bank-{low}","asset":"{asset}","kind":"external"}}"#
        ));
    }
    for player in 0..shape.players {
        for asset in assets_of(player) {
            let account = account(player, asset);
            let low = asset.to_lowercase();
            put(format!(
                r#"{{"op":"open_account","id":"open-{account}","account":"{account}","asset":"{asset}"}}"#
            ));
            put(format!(
                r#"{{"op":"transfer","id":"fund-{account}","debit":"bank-{low}","credit":"{account}","asset":"{asset}","amount":"{FUNDS}","reason":"deposit"}}"#
            ));
        }
    }
    lines
}

/// What a player starts with: more than any day can spend, so that no refusal depends on the order.
const FUNDS: u64 = 1_000_000_000_000;

fn assets_of(player: u64) -> Vec<&'static str> {
    let all = if player.is_multiple_of(10) { 3 } else { 1 };
    ASSETS[..all].iter().map(|(asset, _)| *asset).collect()
}

fn account(player: u64, asset: &str) -> String {
    if asset == "EUR" {
        format!("p{player}")
    } else {
        format!("p{player}-{}", asset.to_lowercase())
    }
}

/// Chance with a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("below a length")
    }
}

/// An operation that a copy or a conflict can be made of.
#[derive(Clone)]
struct Written {
    /// Fields behind `op` and `id`, in order, with their JSON text.
    fields: Vec<(&'static str, String)>,
    /// Whether another amount under this id is a Clash: its first form holds the key.
    conflicts: bool,
}

/// Writes one file: many chains under way at once, their lines interleaved.
struct Clerk {
    shape: Shape,
    file: usize,
    dice: Dice,
    number: u64,
    chains: Vec<VecDeque<Written>>,
    recent: VecDeque<Written>,
    lines: Vec<Vec<u8>>,
}

/// Chains under way at once, and how far back a copy reaches.
const CHAINS: usize = 200;
const RECENT: usize = 4_000;

impl Clerk {
    fn new(shape: Shape, file: usize) -> Self {
        let dice = Dice(shape.seed.wrapping_mul(1_000_003).wrapping_add(file as u64));
        Self {
            shape,
            file,
            dice,
            number: 0,
            chains: Vec::new(),
            recent: VecDeque::new(),
            lines: Vec::new(),
        }
    }

    fn write(mut self, lines: usize) -> Vec<Vec<u8>> {
        while self.lines.len() < lines {
            let chance = self.dice.below(1_000);
            let Shape {
                copies,
                rubbish,
                conflicts,
                ..
            } = self.shape;
            if chance < copies && !self.recent.is_empty() {
                self.copy();
            } else if chance < copies + rubbish {
                self.rubbish();
            } else if chance < copies + rubbish + conflicts {
                self.conflict();
            } else {
                self.start();
                self.next();
            }
        }
        // Every chain is written to its end, so that nothing waits for ever.
        while !self.chains.is_empty() {
            self.next();
        }
        self.lines
    }

    fn start(&mut self) {
        while self.chains.len() < CHAINS {
            let chain = self.chain();
            self.chains.push(chain.into());
        }
    }

    fn next(&mut self) {
        let at = self.dice.index(self.chains.len());
        let Some(written) = self.chains[at].pop_front() else {
            self.chains.swap_remove(at);
            return;
        };
        self.lines.push(line(&written.fields, Spelling::Plain));
        self.recent.push_back(written);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    fn copy(&mut self) {
        let at = self.dice.index(self.recent.len());
        let spelling = match self.dice.below(4) {
            0 => Spelling::Reversed,
            1 => Spelling::Spaced,
            2 => Spelling::Traced,
            _ => Spelling::Plain,
        };
        self.lines.push(line(&self.recent[at].fields, spelling));
    }

    fn conflict(&mut self) {
        // In another order the conflict could be the first.
        if !self.shape.ordered {
            return;
        }
        let at = self.dice.index(self.recent.len().max(1));
        let Some(written) = self.recent.get(at).filter(|written| written.conflicts) else {
            return;
        };
        let mut fields = written.fields.clone();
        for (name, text) in &mut fields {
            if *name == "amount" {
                *text = text.replace('"', "") + "7";
            }
        }
        self.lines.push(line(&fields, Spelling::Plain));
    }

    fn rubbish(&mut self) {
        let id = self.id();
        let bytes = match self.dice.below(6) {
            0 => br#"{"op":"bet","id":"cut-"#.to_vec(),
            1 => vec![0xff, 0xfe, 0x00, 0x7b],
            2 => br#"{"op":"transfer","debit":"p1","credit":"p2","asset":"EUR","amount":1}"#.to_vec(),
            3 => format!(r#"{{"op":"teleport","id":{id},"account":"p1"}}"#).into_bytes(),
            4 => format!(r#"{{"op":"transfer","id":{id},"debit":"p1","credit":"p2","asset":"EUR","amount":1,"amount":1000000}}"#).into_bytes(),
            _ => format!(r#"{{"op":"transfer","id":{id},"debit":"p1","asset":"EUR","amount":1}}"#).into_bytes(),
        };
        self.lines.push(bytes);
    }

    /// A new id: text, a number or a UUID.
    fn id(&mut self) -> String {
        self.number += 1;
        let unique = (self.file as u64 + 1) * 10_000_000_000 + self.number;
        match self.number % 5 {
            0 => unique.to_string(),
            1 => {
                let (high, low) = (self.dice.roll(), self.dice.roll());
                let (time, node) = (high >> 32, low >> 16);
                format!(
                    r#""{time:08x}-{:04x}-4{:03x}-8{:03x}-{node:012x}""#,
                    high & 0xffff,
                    low & 0xfff,
                    (high >> 16) & 0xfff
                )
            }
            _ => format!(r#""op-{unique}""#),
        }
    }

    fn op(&mut self, op: &'static str, fields: Vec<(&'static str, String)>) -> Written {
        let id = self.id();
        op_with(op, id, fields)
    }

    fn amount(&mut self) -> String {
        let amount = 1 + self.dice.below(500);
        if self.dice.below(2) == 0 {
            amount.to_string()
        } else {
            format!(r#""{amount}""#)
        }
    }

    /// A player's account and its asset.
    fn player(&mut self) -> (String, &'static str) {
        let player = self.dice.below(self.shape.players);
        let assets = assets_of(player);
        let asset = assets[self.dice.index(assets.len())];
        (account(player, asset), asset)
    }

    fn chain(&mut self) -> Vec<Written> {
        let tolerant = [0, 15, 16, 17, 18];
        let choice = if self.shape.ordered {
            self.dice.below(20)
        } else {
            tolerant[self.dice.index(tolerant.len())]
        };
        match choice {
            0..=5 => self.transfer(),
            6..=13 => self.round(),
            14 => self.hold(),
            15 => self.group(),
            16 => self.reversal(),
            17 => self.early(),
            18 => self.refusals(),
            _ => self.visitor(),
        }
    }

    fn transfer_fields(&mut self) -> Vec<(&'static str, String)> {
        let from = self.dice.below(self.shape.players);
        let to = (from + 1 + self.dice.below(self.shape.players - 1)) % self.shape.players;
        vec![
            ("debit", quoted(&account(from, "EUR"))),
            ("credit", quoted(&account(to, "EUR"))),
            ("asset", quoted("EUR")),
            ("amount", self.amount()),
        ]
    }

    fn transfer(&mut self) -> Vec<Written> {
        let fields = self.transfer_fields();
        vec![self.op("transfer", fields)]
    }

    /// Bets, perhaps one of them taken back, a win (often of zero), the end.
    fn round(&mut self) -> Vec<Written> {
        let (account, asset) = self.player();
        let round = quoted(&format!("r{}-{}", self.file, self.number));
        let base = [("round", round), ("account", quoted(&account))];
        let mut chain = Vec::new();
        for _ in 0..=self.dice.below(3) {
            let mut fields = base.to_vec();
            fields.extend([
                ("asset", quoted(asset)),
                ("amount", self.amount()),
                ("game", quoted("starlight")),
            ]);
            chain.push(self.op("bet", fields));
        }
        match self.dice.below(8) {
            0 => {
                let bet = id_of(&chain[0]);
                chain.push(self.op("rollback", vec![("bet", bet)]));
            }
            1 => {
                chain.push(self.op("cancel_round", base.to_vec()));
                return chain;
            }
            _ => {}
        }
        let mut fields = base.to_vec();
        let amount = if self.dice.below(2) == 0 {
            "0".to_owned()
        } else {
            self.amount()
        };
        fields.extend([("asset", quoted(asset)), ("amount", amount)]);
        chain.push(self.op("win", fields));
        chain.push(self.op("close_round", base.to_vec()));
        chain.push(self.op("close_round", base.to_vec()));
        chain
    }

    fn hold(&mut self) -> Vec<Written> {
        let (from, asset) = self.player();
        let hold = quoted(&format!("h{}-{}", self.file, self.number));
        let money = [
            ("debit", quoted(&from)),
            ("credit", quoted(&house(asset))),
            ("asset", quoted(asset)),
        ];
        let mut fields = vec![("hold", hold.clone())];
        fields.extend(money);
        fields.push(("amount", "400".to_owned()));
        let authorize = self.op("authorize", fields);
        let part = self.op(
            "capture",
            vec![
                ("hold", hold.clone()),
                ("amount", "150".to_owned()),
                ("final", "false".to_owned()),
            ],
        );
        let capture = id_of(&part);
        let too_much = self.op(
            "capture",
            vec![("hold", hold.clone()), ("amount", "251".to_owned())],
        );
        let release = self.op("release", vec![("hold", hold.clone())]);
        let again = self.op("release", vec![("hold", hold)]);
        let refund = self.op(
            "refund",
            vec![("capture", capture.clone()), ("amount", "100".to_owned())],
        );
        let beyond = self.op(
            "refund",
            vec![("capture", capture), ("amount", "51".to_owned())],
        );
        vec![authorize, part, too_much, release, again, refund, beyond]
    }

    fn group(&mut self) -> Vec<Written> {
        let legs: Vec<String> = (0..2 + self.dice.below(2))
            .map(|_| {
                let fields = self.transfer_fields();
                let texts: Vec<String> = fields
                    .iter()
                    .map(|(name, text)| format!(r#""{name}":{text}"#))
                    .collect();
                format!("{{{}}}", texts.join(","))
            })
            .collect();
        vec![self.op(
            "transfer_group",
            vec![("legs", format!("[{}]", legs.join(",")))],
        )]
    }

    fn reversal(&mut self) -> Vec<Written> {
        let fields = self.transfer_fields();
        let transfer = self.op("transfer", fields);
        let original = id_of(&transfer);
        let reverse = self.op("reverse", vec![("transfer", original.clone())]);
        let again = self.op("reverse", vec![("transfer", original)]);
        vec![transfer, reverse, again]
    }

    /// Children before their parents: a win that waits for its round (which stays open), a rollback that
    /// leaves a tombstone. In another order the bet is rolled back: the money is the same.
    fn early(&mut self) -> Vec<Written> {
        let (account, asset) = self.player();
        let round = quoted(&format!("e{}-{}", self.file, self.number));
        let money = |round: &str, amount: String| {
            let base = [("round", round.to_owned()), ("account", quoted(&account))];
            let mut fields = base.to_vec();
            fields.extend([("asset", quoted(asset)), ("amount", amount)]);
            fields
        };
        let win = money(&round, self.amount());
        let bet = money(&round, self.amount());
        let (win, bet) = (self.op("win", win), self.op("bet", bet));
        let late = money(
            &quoted(&format!("v{}-{}", self.file, self.number)),
            self.amount(),
        );
        let late = self.op("bet", late);
        let rollback = self.op("rollback", vec![("bet", id_of(&late))]);
        vec![win, bet, rollback, late]
    }

    /// What is refused in whatever order it is read.
    fn refusals(&mut self) -> Vec<Written> {
        let (account, asset) = self.player();
        let me = quoted(&account);
        let transfer = |debit: &str, credit: &str, asset: &str, amount: (&'static str, &str)| {
            vec![
                ("debit", debit.to_owned()),
                ("credit", credit.to_owned()),
                ("asset", quoted(asset)),
                (amount.0, amount.1.to_owned()),
            ]
        };
        let bank = quoted(&format!("bank-{}", asset.to_lowercase()));
        let cases = [
            transfer(&me, &me, asset, ("amount", "5")),
            transfer(&me, &bank, "XAU", ("amount", "5")),
            transfer(&me, &bank, asset, ("amount", "1.5")),
            transfer(&me, &bank, asset, ("amount", "-5")),
            transfer(&me, &bank, asset, ("value", r#""0.000000001""#)),
            transfer(&me, r#""nobody""#, asset, ("amount", "5")),
            transfer(
                &me,
                &bank,
                asset,
                ("amount", r#""1000000000000000000000000000000""#),
            ),
        ];
        cases
            .into_iter()
            .map(|fields| self.op("transfer", fields))
            .map(|w| Written {
                conflicts: false,
                ..w
            })
            .collect()
    }

    /// An account that comes, is frozen, and goes.
    fn visitor(&mut self) -> Vec<Written> {
        let account = quoted(&format!("visitor{}-{}", self.file, self.number));
        let name = |account: &str| vec![("account", account.to_owned())];
        let mut open = name(&account);
        open.push(("asset", quoted("EUR")));
        let ops = [
            ("open_account", open),
            ("freeze", name(&account)),
            ("freeze", name(&account)),
            ("unfreeze", name(&account)),
            ("close_account", name(&account)),
        ];
        ops.into_iter()
            .map(|(op, fields)| self.op(op, fields))
            .collect()
    }
}

fn op_with(op: &'static str, id: String, fields: Vec<(&'static str, String)>) -> Written {
    let mut all = vec![("op", quoted(op)), ("id", id)];
    all.extend(fields);
    let conflicts = matches!(op, "transfer" | "bet");
    Written {
        fields: all,
        conflicts,
    }
}

fn id_of(written: &Written) -> String {
    written.fields[1].1.clone()
}

fn quoted(text: &str) -> String {
    format!(r#""{text}""#)
}

/// Ways to write the same content.
#[derive(Clone, Copy)]
enum Spelling {
    Plain,
    Reversed,
    Spaced,
    /// With a tracing field that nobody knows.
    Traced,
}

fn line(fields: &[(&'static str, String)], spelling: Spelling) -> Vec<u8> {
    let mut texts: Vec<String> = fields
        .iter()
        .map(|(name, text)| format!(r#""{name}":{text}"#))
        .collect();
    let joined = match spelling {
        Spelling::Plain => texts.join(","),
        Spelling::Spaced => texts.join(" , "),
        Spelling::Reversed => {
            texts.reverse();
            texts.join(",")
        }
        Spelling::Traced => {
            texts.push(r#""trace_id":"4bf92f35""#.to_owned());
            texts.join(",")
        }
    };
    format!("{{{joined}}}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_day_and_it_balances() {
        let shape = Shape {
            lines: 5_000,
            players: 50,
            ..Shape::default()
        };
        let (one, two) = (generate(shape), generate(shape));
        assert_eq!(one.files, two.files);
        let model = expected(&one);
        assert!(model.operations().count() > 1_000);
        let mut sums: HashMap<String, i128> = HashMap::new();
        for account in model.accounts() {
            *sums.entry(account.asset.to_string()).or_default() += account.posted;
        }
        assert!(sums.values().all(|sum| *sum == 0), "{sums:?}");
    }

    #[test]
    fn the_order_of_files_does_not_matter() {
        let shape = Shape {
            lines: 6_000,
            players: 40,
            files: 3,
            ..Shape::default()
        };
        let forwards = generate(shape);
        let mut backwards = forwards.clone();
        backwards.files.reverse();
        let balances = |workload: &Workload| -> Vec<(String, i128)> {
            expected(workload)
                .accounts()
                .map(|a| (a.id.to_string(), a.posted))
                .collect()
        };
        assert_eq!(balances(&forwards), balances(&backwards));
    }
}
