//! The comparison of `docs/benchmarks.md`, in one run: `cargo bench -p semel-bench --bench throughput`.
//!
//! `-- --ops N` sets the number of messages, `--repeat N` how often the contest is run (medians are told),
//! `--only TEXT` keeps the lines whose name holds the text. Needs `SEMEL_TEST_POSTGRES_URL`.
#![expect(clippy::print_stdout, reason = "a benchmark's product is its table")]

/// As the program has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use semel_bench::contest::{self, Contestant, Ground};
use semel_bench::credits::{Balances, Width};
use semel_bench::measure::{Rounds, median};
use semel_bench::ops::{self, ACCOUNTS, NAIVE_OPS_MAX, SEED, Shape, Work};
use semel_bench::tables::Error;

struct Args {
    ops: u64,
    repeat: usize,
    only: Vec<String>,
    memory: Option<String>,
}

fn args() -> Result<Args, Error> {
    let mut args = Args {
        ops: 1_000_000,
        repeat: 1,
        only: Vec::new(),
        memory: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            // What cargo itself passes.
            "--bench" => {}
            "--ops" => args.ops = value()?.parse()?,
            "--repeat" => args.repeat = value()?.parse()?,
            "--only" => args.only.push(value()?),
            "--memory-of" => args.memory = Some(value()?),
            other => {
                return Err(format!(
                    "`{other}` is no option; there are --ops, --repeat and --only"
                )
                .into());
            }
        }
    }
    Ok(args)
}

fn main() -> Result<(), Error> {
    let args = args()?;
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")
        .map_err(|_| "SEMEL_TEST_POSTGRES_URL is not set; start the services: eval \"$(scripts/services env)\"")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    if let Some(files) = &args.memory {
        let files: Vec<String> = files.split(',').map(str::to_owned).collect();
        let folder = std::env::current_dir()?;
        let peak = runtime.block_on(contest::memory(&url, ACCOUNTS, &folder, &files))?;
        println!("{}", peak.ok_or("no /proc/self/status here")?);
        return Ok(());
    }
    let bench = Bench {
        folder: tempfile::tempdir()?,
        ground: Ground {
            url,
            accounts: ACCOUNTS,
        },
        args,
    };
    runtime.block_on(bench.run())
}

struct Bench {
    folder: tempfile::TempDir,
    ground: Ground,
    args: Args,
}

/// One line of the table: what each round took.
struct Line {
    contestant: Contestant,
    rounds: Rounds,
}

const fn credits(lanes: u16, batch: usize) -> Contestant {
    Contestant::Credits {
        lanes,
        batch,
        width: Width::Bits64,
        balances: Balances::Deltas,
    }
}

const NAIVE: Contestant = Contestant::Naive { connections: 8 };
const NAIVE_BOOK: Contestant = Contestant::NaiveBook { connections: 8 };

const fn expert(batch: usize) -> Contestant {
    Contestant::Expert {
        connections: 2,
        batch,
    }
}

const fn raw(batch: usize) -> Contestant {
    Contestant::Raw {
        connections: 2,
        batch,
    }
}

const fn book(lanes: u16, batch: usize) -> Contestant {
    Contestant::Book { lanes, batch }
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.args.only.is_empty()
            || self
                .args
                .only
                .iter()
                .any(|part| name.contains(part.as_str()))
    }

    fn shape(&self) -> Shape {
        Shape {
            count: self.args.ops,
            accounts: ACCOUNTS,
            copies_per_mille: 100,
            random_keys: false,
            wallet: false,
            seed: SEED,
        }
    }

    fn write(&self, name: &str, shape: Shape) -> Result<Arc<Work>, Error> {
        Ok(Arc::new(ops::write(self.folder.path(), name, &shape)?))
    }

    async fn run(&self) -> Result<(), Error> {
        self.contest().await?;
        self.duplicates().await?;
        self.kinds().await?;
        self.memory()
    }

    async fn contest(&self) -> Result<(), Error> {
        let contestants = [
            NAIVE,
            NAIVE_BOOK,
            expert(1_000),
            expert(5_000),
            raw(1_000),
            raw(5_000),
            credits(2, 1_000),
            credits(4, 1_000),
            credits(2, 5_000),
            credits(4, 5_000),
            book(2, 1_000),
            book(4, 1_000),
            book(2, 5_000),
        ];
        let mut lines: Vec<Line> = contestants
            .into_iter()
            .filter(|contestant| self.wants(&contestant.name()))
            .map(|contestant| Line {
                contestant,
                rounds: Rounds::default(),
            })
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        let plain = self.write("plain", self.shape())?;
        let wallet = self.write(
            "wallet",
            Shape {
                wallet: true,
                ..self.shape()
            },
        )?;
        let few = self.write(
            "few",
            Shape {
                count: self.args.ops.min(NAIVE_OPS_MAX),
                ..self.shape()
            },
        )?;
        for _ in 0..self.args.repeat {
            for line in &mut lines {
                let work = match line.contestant {
                    Contestant::Naive { .. } | Contestant::NaiveBook { .. } => &few,
                    other if other.is_book() => &wallet,
                    _ => &plain,
                };
                line.rounds
                    .0
                    .push(self.ground.run(line.contestant, work).await?);
            }
        }
        table(&lines, self.args.ops, few.count);
        floors(&lines);
        Ok(())
    }

    /// Duplicates are never slower than fresh messages.
    async fn duplicates(&self) -> Result<(), Error> {
        if self.wants("duplicates") {
            let mut rates = Vec::new();
            for copies_per_mille in [0, 500] {
                let work = self.write(
                    "copies",
                    Shape {
                        copies_per_mille,
                        ..self.shape()
                    },
                )?;
                rates.push(self.one(credits(2, 1_000), &work).await?);
            }
            ratio("50 % duplicates / none, rate", rates[1] / rates[0]);
        }
        if self.wants("second pass") {
            let work = self.write(
                "twice",
                Shape {
                    copies_per_mille: 0,
                    ..self.shape()
                },
            )?;
            let mut ratios = Vec::new();
            for _ in 0..self.args.repeat {
                let (first, second) = self.ground.run_twice(1, 1_000, &work).await?;
                ratios.push(second.wall.as_secs_f64() / first.wall.as_secs_f64());
            }
            ratio(
                "a unit of duplicates / a fresh unit (second pass, 1 lane, batch 1000), time",
                median(ratios),
            );
        }
        Ok(())
    }

    /// What kinds of keys, accounts and amounts cost.
    async fn kinds(&self) -> Result<(), Error> {
        let wide = Contestant::Credits {
            lanes: 2,
            batch: 1_000,
            width: Width::Bits128,
            balances: Balances::Deltas,
        };
        let locked = Contestant::Credits {
            lanes: 2,
            batch: 1_000,
            width: Width::Bits64,
            balances: Balances::Locked,
        };
        let cases = [
            (
                "10 hot accounts / 10 000, rate",
                Shape {
                    accounts: 10,
                    ..self.shape()
                },
                credits(2, 1_000),
            ),
            (
                "random keys (v4) / time-ordered (v7), rate",
                Shape {
                    random_keys: true,
                    ..self.shape()
                },
                credits(2, 1_000),
            ),
            ("amounts of 128 bits / 64, rate", self.shape(), wide),
            ("balances locked / deltas, rate", self.shape(), locked),
        ];
        if !cases.iter().any(|(name, ..)| self.wants(name)) {
            return Ok(());
        }
        let plain = self.write("base", self.shape())?;
        for (name, shape, contestant) in cases {
            if !self.wants(name) {
                continue;
            }
            let work = self.write("kind", shape)?;
            let mut ratios = Vec::new();
            for _ in 0..self.args.repeat {
                let base = self.ground.run(credits(2, 1_000), &plain).await?;
                ratios.push(self.ground.run(contestant, &work).await?.rate() / base.rate());
            }
            ratio(name, median(ratios));
        }
        Ok(())
    }

    async fn one(&self, contestant: Contestant, work: &Arc<Work>) -> Result<f64, Error> {
        let mut rates = Vec::new();
        for _ in 0..self.args.repeat {
            rates.push(self.ground.run(contestant, work).await?.rate());
        }
        Ok(median(rates))
    }

    /// The peak of a process that consumes 100 000 messages, and of one that consumes five millions.
    fn memory(&self) -> Result<(), Error> {
        if !self.wants("memory") {
            return Ok(());
        }
        let mut peaks = Vec::new();
        for count in [self.args.ops.min(100_000), self.args.ops.saturating_mul(5)] {
            let work = self.write(
                "memory",
                Shape {
                    count,
                    ..self.shape()
                },
            )?;
            peaks.push(peak(self.folder.path(), &work)?);
            println!(
                "memory peak, {count} messages: {:.1} MiB",
                peaks[peaks.len() - 1]
            );
        }
        ratio("memory, most / fewest messages", peaks[1] / peaks[0]);
        Ok(())
    }
}

fn peak(folder: &Path, work: &Work) -> Result<f64, Error> {
    let out = Command::new(std::env::current_exe()?)
        .current_dir(folder)
        .args(["--memory-of", &work.files.join(",")])
        .output()?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).into_owned().into());
    }
    Ok(String::from_utf8(out.stdout)?.trim().parse()?)
}

fn ratio(name: &str, value: f64) {
    println!("{name}: {value:.2}");
}

fn table(lines: &[Line], ops: u64, few: u64) {
    let find = |contestant| lines.iter().find(|line| line.contestant == contestant);
    let against = |line: &Line, other: Option<&Line>| {
        other.map_or("–".to_owned(), |other| {
            format!("{:.2}", line.rounds.of(&other.rounds))
        })
    };
    println!(
        "{ops} messages in {} files, 10 % copies, {ACCOUNTS} accounts; naive: {few} messages\n",
        ops::FILES
    );
    println!(
        "| consumer | msg/s | of naive | of the expert's | of raw | client CPU µs | server CPU µs |"
    );
    println!("|---|---|---|---|---|---|---|");
    for line in lines {
        let batch = match line.contestant {
            Contestant::Expert { batch, .. }
            | Contestant::Raw { batch, .. }
            | Contestant::Credits { batch, .. }
            | Contestant::Book { batch, .. } => batch,
            Contestant::Naive { .. } | Contestant::NaiveBook { .. } => 1_000,
        };
        println!(
            "| {} | {:.0} | {} | {} | {} | {} | {} |",
            line.contestant.name(),
            line.rounds.rate(),
            against(
                line,
                find(if line.contestant.is_book() {
                    NAIVE_BOOK
                } else {
                    NAIVE
                })
            ),
            against(line, find(expert(batch))),
            against(line, find(raw(batch))),
            line.rounds.micros(|taken| taken.client),
            line.rounds.micros(|taken| taken.server),
        );
    }
    println!();
}

fn floors(lines: &[Line]) {
    let find = |contestant| lines.iter().find(|line| line.contestant == contestant);
    let best = |all: &[Contestant], of: Contestant| {
        let ratios = all
            .iter()
            .filter_map(|one| Some(find(*one)?.rounds.of(&find(of)?.rounds)));
        ratios.fold(f64::NAN, f64::max)
    };
    let floor = |name: &str, value: f64, floor: f64| {
        if !value.is_nan() {
            println!(
                "{name}: {value:.2} (floor {floor}) {}",
                if value >= floor { "held" } else { "MISSED" }
            );
        }
    };
    let books = [book(2, 1_000), book(4, 1_000)];
    floor(
        "the Book / naive, the same rows",
        best(&books, NAIVE_BOOK),
        10.0,
    );
    let lighter = best(&books, NAIVE);
    if !lighter.is_nan() {
        ratio(
            "the Book / naive, plain credits (three rows, the Book writes six)",
            lighter,
        );
    }
    floor(
        "plain credits / expert, batch 1000",
        best(&[credits(2, 1_000), credits(4, 1_000)], expert(1_000)),
        0.7,
    );
    floor(
        "plain credits / expert, batch 5000",
        best(&[credits(2, 5_000), credits(4, 5_000)], expert(5_000)),
        0.7,
    );
}
