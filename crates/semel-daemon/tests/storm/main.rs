//! The kill storm: three instances of the real program drain a topic of Kafka and a queue of RabbitMQ into one
//! PostgreSQL or one SQLite file while a seeded director kills all of them with SIGKILL, in random order, one or two
//! at a time, and starts them again. In the end the money is what one clean pass over the operations gives.
//!
//! `cargo test` runs the short form, one ledger after the other. `SEMEL_STORM=long` is the long one: 200 000
//! operations, five minutes and more. `scripts/storm` runs it and prints its report.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and a storm reports"
)]

mod instances;
mod servers;
mod store;
mod verdict;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use instances::{AWAY, Instance, semel};
use semel_wallet::workload::{Shape, Workload, generate};
use servers::Servers;
use store::{Backend, Store};
use verdict::Model;

/// What gets nothing done for so long hangs: no machine is that slow.
const HANG: Duration = Duration::from_secs(600);

/// Between two tries.
const REST: Duration = Duration::from_millis(400);

const QUEUE: &str = "ops";

const INSTANCES: usize = 3;

/// How hard it blows.
#[derive(Debug)]
struct Force {
    lines: usize,
    /// Chunks of lines; each is published while somebody is killed.
    rounds: usize,
    /// The longest wait before a blow, and between a death and the new life, in ms.
    pause_ms: u64,
    seconds_min: u64,
}

const SHORT: Force = Force {
    lines: 20_000,
    rounds: 6,
    pause_ms: 800,
    seconds_min: 0,
};

const LONG: Force = Force {
    lines: 200_000,
    rounds: 40,
    pause_ms: 2_500,
    seconds_min: 300,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    Semel(usize),
    Server(&'static str),
    /// All of them at once.
    Instances,
}

#[test]
fn killed_in_random_order_instances_brokers_and_database_lose_nothing_and_do_nothing_twice() {
    blow(Backend::Postgres);
}

#[test]
fn killed_in_random_order_instances_on_one_sqlite_file_and_brokers_lose_nothing_and_do_nothing_twice()
 {
    blow(Backend::Sqlite);
}

fn blow(backend: Backend) {
    let force = match std::env::var("SEMEL_STORM").as_deref() {
        Ok("long") => LONG,
        Err(_) | Ok("" | "short") => SHORT,
        Ok(other) => panic!("SEMEL_STORM={other}: say `long` or `short`"),
    };
    let servers = Servers::start(backend.storm(), backend.servers());
    let workload = generate(Shape {
        seed: 21,
        lines: force.lines,
        players: 400,
        copies: 330,
        ordered: false,
        ..Shape::default()
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_path_buf();
    let store = Store::new(backend, &servers, &place);
    configure(&place, &store, &servers);
    let rounds = write(&place, &workload, force.rounds);
    runtime.block_on(servers.make_topic("ops", 4));
    done(&place, &["run", "--config", "setup.toml", "--until-idle"]);
    // RabbitMQ writes down the name of a new quorum queue's Raft member up to a second late. Killed before, it starts
    // a new member in its place, without an election and without what the old one had confirmed: nobody could
    // publish or consume any more. That is a defect of the broker, told in docs/guides/rabbitmq.md, which
    // decides nothing here: the queue is made before the first blow, and a stop in good order writes all down.
    done(
        &place,
        &["run", "--config", "instance-0.toml", "--until-idle"],
    );
    servers.restart(&["rabbitmq"]);

    let mut storm = Storm::new(&place, &servers, parties(backend), force.pause_ms);
    let begin = Instant::now();
    for round in 0..rounds {
        storm.round(Some(round));
    }
    while begin.elapsed().as_secs() < force.seconds_min {
        storm.round(None);
    }
    let blew = begin.elapsed();

    let model = Model::of(&workload);
    storm.calm(&runtime, &model, &store);
    done(
        &place,
        &["run", "--config", "instance-0.toml", "--until-idle"],
    );
    let deliveries = runtime.block_on(model.judge(&store));
    done(&place, &["audit", "--config", "instance-0.toml"]);
    storm.report(blew, &deliveries);
    for party in &storm.parties {
        assert!(storm.kills.get(party) > Some(&0), "{party:?} was spared");
    }
    let all = deliveries.operations + deliveries.again;
    assert!(
        deliveries.again * 10 >= all * 3,
        "fewer than 30 % were copies"
    );
}

fn parties(backend: Backend) -> Vec<Party> {
    let brokers = ["kafka", "rabbitmq"].map(Party::Server);
    let instances = (0..INSTANCES).map(Party::Semel);
    instances.chain([backend.death()]).chain(brokers).collect()
}

/// One configuration for the beginning and one for each instance; the first is a static member of its group.
fn configure(place: &Path, store: &Store, servers: &Servers) {
    let ledger = format!("[ledger]\nurl = \"{}\"\n", store.url);
    let wallet = "handler = \"wallet\"\nlanes = 2\nbatch_count_max = 100\n[consumers.wallet.wallet]\n\
         park_for_ms = 3600000\nassets = { EUR = 2, JPY = 0, BTC = 8 }\n\
         house = { EUR = \"house-eur\", JPY = \"house-jpy\", BTC = \"house-btc\" }\n";
    let put = |name: &str, text: String| std::fs::write(place.join(name), text).unwrap();
    put(
        "setup.toml",
        format!(
            "{ledger}[sources.setup]\ntype = \"file\"\npaths = [\"setup.jsonl\"]\n\
             [consumers.wallet]\nsources = [\"setup\"]\n{wallet}"
        ),
    );
    for number in 0..INSTANCES {
        let member = match number {
            0 => "group_instance_id = \"first\"\n",
            _ => "",
        };
        put(
            &format!("instance-{number}.toml"),
            format!(
                "{ledger}[sources.log]\ntype = \"kafka\"\nbrokers = [\"{}\"]\ntopics = [\"ops\"]\n\
                 group = \"wallet\"\nstart_at = \"earliest\"\nsession_timeout_ms = 6000\n{member}\
                 [sources.queue]\ntype = \"rabbitmq\"\nurl = \"{}\"\nqueue = \"{QUEUE}\"\ndeclare = \"quorum\"\n\
                 prefetch = 500\n[consumers.wallet]\nsources = [\"log\", \"queue\"]\n{wallet}",
                servers.address("KAFKA_BROKERS"),
                servers.address("RABBITMQ_URL")
            ),
        );
    }
}

/// Writes what each round publishes: even lines to the log, odd ones to the queue, every tenth to both. Returns
/// how many rounds there are.
fn write(place: &Path, workload: &Workload, rounds: usize) -> usize {
    let put = |name: String, lines: Vec<&[u8]>| {
        std::fs::write(place.join(name), lines.join(&b'\n')).unwrap();
    };
    put("setup.jsonl".to_owned(), slices(&workload.setup));
    let lines: Vec<_> = workload.files.iter().flatten().cloned().collect();
    let chunks = lines.chunks(lines.len().div_ceil(rounds));
    for (round, chunk) in chunks.clone().enumerate() {
        for (half, target) in TARGETS.iter().enumerate() {
            let of = |n: &usize| n % 2 == half || n.is_multiple_of(10);
            let mine = (0..chunk.len()).filter(of).map(|n| &*chunk[n]).collect();
            put(format!("{target}-{round}.jsonl"), mine);
        }
    }
    chunks.count()
}

fn slices(lines: &[Vec<u8>]) -> Vec<&[u8]> {
    lines.iter().map(Vec::as_slice).collect()
}

const TARGETS: [&str; 2] = ["log", "queue"];

/// Runs the program to its end, which is a good one. A start that a server's slowness ended is tried again, as of any
/// instance.
fn done(place: &PathBuf, args: &[&str]) {
    let begin = Instant::now();
    loop {
        let ran = semel(place, args).output().unwrap();
        if ran.status.success() {
            return;
        }
        let again = ran.status.code() == Some(AWAY) && begin.elapsed() < HANG;
        let words = String::from_utf8_lossy(&ran.stderr);
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(again, "semel {args:?}: {words}{said}");
        std::thread::sleep(REST);
    }
}

struct Storm<'a> {
    place: &'a PathBuf,
    servers: &'a Servers,
    instances: Vec<Instance>,
    dice: Dice,
    pause_ms: u64,
    parties: Vec<Party>,
    /// Who is killed next; dealt anew when it is empty, so that nobody is spared.
    deck: Vec<Party>,
    kills: BTreeMap<Party, u32>,
    published_again: u32,
}

impl<'a> Storm<'a> {
    fn new(place: &'a PathBuf, servers: &'a Servers, parties: Vec<Party>, pause_ms: u64) -> Self {
        let mut instances: Vec<_> = (0..INSTANCES)
            .map(|number| Instance::new(place.clone(), number))
            .collect();
        instances.iter_mut().for_each(Instance::keep);
        Self {
            place,
            servers,
            instances,
            dice: Dice(9),
            pause_ms,
            parties,
            deck: Vec::new(),
            kills: BTreeMap::new(),
            published_again: 0,
        }
    }

    /// Publishes a chunk to both brokers and kills somebody meanwhile.
    fn round(&mut self, chunk: Option<usize>) {
        let publishing: Vec<_> = chunk
            .iter()
            .flat_map(|chunk| TARGETS.map(|target| publish(self.place, target, *chunk)))
            .collect();
        self.pause();
        let victims = self.victims();
        self.strike(&victims);
        self.pause();
        self.revive(&victims);
        while !publishing.iter().all(JoinHandle::is_finished) {
            self.instances.iter_mut().for_each(Instance::keep);
            std::thread::sleep(Duration::from_millis(50));
        }
        for publisher in publishing {
            match publisher.join().unwrap() {
                Ok(again) => self.published_again += again,
                Err(words) => panic!("{words}\n{}", self.tell()),
            }
        }
        self.instances.iter_mut().for_each(Instance::keep);
    }

    fn pause(&mut self) {
        std::thread::sleep(Duration::from_millis(self.dice.below(self.pause_ms)));
    }

    /// One party, or two at once.
    fn victims(&mut self) -> Vec<Party> {
        let count = 1 + usize::from(self.dice.below(3) == 0);
        let mut victims = Vec::new();
        while victims.len() < count {
            if self.deck.is_empty() {
                self.deck = self.parties.clone();
                self.dice.shuffle(&mut self.deck);
            }
            let next = self.deck.pop().unwrap();
            if !victims.contains(&next) {
                victims.push(next);
            }
        }
        victims
    }

    fn strike(&mut self, victims: &[Party]) {
        for victim in victims {
            match *victim {
                Party::Semel(number) => self.instances[number].strike(),
                Party::Server(name) => self.servers.kill(&[name]),
                Party::Instances => self.instances.iter_mut().for_each(Instance::strike),
            }
            *self.kills.entry(*victim).or_default() += 1;
        }
    }

    /// The servers side by side; instances before or behind them.
    fn revive(&mut self, victims: &[Party]) {
        let mut names = Vec::new();
        for victim in victims {
            match *victim {
                Party::Semel(number) => self.instances[number].keep(),
                Party::Server(name) => names.push(name),
                Party::Instances => self.instances.iter_mut().for_each(Instance::keep),
            }
        }
        if !names.is_empty() {
            self.servers.revive(&names);
        }
    }

    /// Nobody is killed any more: what lives drains all by itself, and then ends well.
    fn calm(&mut self, runtime: &tokio::runtime::Runtime, model: &Model, store: &Store) {
        let instances = &mut self.instances;
        let keep = || instances.iter_mut().for_each(Instance::keep);
        let drained = runtime.block_on(model.drained(store, HANG, keep));
        if let Err(words) = drained {
            panic!("{words}\n{}", self.tell());
        }
        self.instances.iter_mut().for_each(Instance::keep);
        self.instances.iter_mut().for_each(Instance::end_well);
    }

    /// What everybody said last.
    fn tell(&self) -> String {
        let instances: String = self.instances.iter().map(Instance::tell).collect();
        format!("{}{instances}", self.servers.tell(QUEUE))
    }

    fn report(&self, blew: Duration, deliveries: &verdict::Deliveries) {
        let gave_up: u32 = self.instances.iter().map(|one| one.gave_up).sum();
        println!(
            "storm of {} s: {} operations, {} further deliveries ({} %), {} chunks published again",
            blew.as_secs(),
            deliveries.operations,
            deliveries.again,
            deliveries.again * 100 / (deliveries.again + deliveries.operations),
            self.published_again,
        );
        for (party, kills) in &self.kills {
            println!("  {party:?}: killed {kills} times");
        }
        println!("  starts given up while a server was away: {gave_up}");
    }
}

/// Publishes a chunk until its end is confirmed, as an at-least-once producer does; how often it began again, or
/// what the last try said.
fn publish(place: &Path, target: &'static str, chunk: usize) -> JoinHandle<Result<u32, String>> {
    let place = place.to_path_buf();
    std::thread::spawn(move || {
        let file = format!("{target}-{chunk}.jsonl");
        let begin = Instant::now();
        let mut again = 0;
        loop {
            let args = ["publish", "--config", "instance-0.toml", target, &file];
            let ran = semel(&place, &args).output().unwrap();
            if ran.status.success() {
                return Ok(again);
            }
            if begin.elapsed() > HANG {
                let words = String::from_utf8_lossy(&ran.stderr);
                return Err(format!(
                    "{target}: not published within {HANG:?}, after {again} tries: {words}"
                ));
            }
            again += 1;
            std::thread::sleep(REST);
        }
    })
}

/// Who, and when (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) % end
    }

    fn shuffle<T>(&mut self, cards: &mut [T]) {
        for last in (1..cards.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap();
            cards.swap(last, other);
        }
    }
}
