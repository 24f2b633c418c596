//! Semel and its rivals on real brokers, in one run: `cargo bench -p semel-bench --bench brokers`.
//!
//! `-- --ops N` sets the number of messages, `--repeat N` how often the contest is run (medians are told), `--batch N` and
//! `--connections N` how large and how many the transactions at a time are (naive ones apart), `--rate N` the
//! fresh operations a second of the latencies, and `--only TEXT` keeps the lines whose name holds the text: they begin
//! with `contest`, `latency`, `idle` or `memory` and the broker. Needs `SEMEL_TEST_POSTGRES_URL`,
//! `SEMEL_TEST_KAFKA_BROKERS` and `SEMEL_TEST_RABBITMQ_URL`, and for `idle` and `memory` a daemon that is built.
#![expect(clippy::print_stdout, reason = "a benchmark's product is its table")]

/// As the program has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod consumer;
mod contest;
mod daemon;
mod feed;
mod latency;
mod rivals;
mod stock;

use std::sync::Arc;

use contest::{Contest, Contestant, Line, Size, Works};
use latency::Times;
use semel_bench::contest::Ground;
use semel_bench::measure::Rounds;
use semel_bench::ops::{self, ACCOUNTS, NAIVE_OPS_MAX, SEED, Shape, Work};
use semel_bench::tables::Error;
use stock::Broker;

struct Args {
    size: Size,
    ops: u64,
    repeat: usize,
    rate: u64,
    only: Vec<String>,
}

fn args() -> Result<Args, Error> {
    let mut args = Args {
        size: Size {
            batch: 1_000,
            connections: 2,
        },
        ops: 1_000_000,
        repeat: 1,
        rate: 500,
        only: Vec::new(),
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            // What cargo itself passes.
            "--bench" => {}
            "--ops" => args.ops = value()?.parse()?,
            "--batch" => args.size.batch = value()?.parse()?,
            "--connections" => args.size.connections = value()?.parse()?,
            "--repeat" => args.repeat = value()?.parse()?,
            "--rate" => args.rate = value()?.parse()?,
            "--only" => args.only.push(value()?),
            other => {
                let all = "--ops, --repeat, --batch, --connections, --rate and --only";
                return Err(format!("`{other}` is no option; there are {all}").into());
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
    let bench = Bench {
        folder: tempfile::tempdir()?,
        ground: Ground {
            url,
            accounts: ACCOUNTS,
        },
        args,
    };
    runtime.block_on(async { tokio::spawn(bench.run()).await? })
}

struct Bench {
    folder: tempfile::TempDir,
    ground: Ground,
    args: Args,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        let only = &self.args.only;
        only.is_empty() || only.iter().any(|part| name.contains(part.as_str()))
    }

    fn write(&self, name: &str, count: u64, wallet: bool) -> Result<Arc<Work>, Error> {
        let shape = Shape {
            count,
            accounts: ACCOUNTS,
            copies_per_mille: 100,
            random_keys: false,
            wallet,
            seed: SEED,
        };
        Ok(Arc::new(ops::write(self.folder.path(), name, &shape)?))
    }

    async fn run(self) -> Result<(), Error> {
        for broker in Broker::ALL {
            self.contest(broker).await?;
        }
        for broker in Broker::ALL {
            self.latency(broker).await?;
        }
        for broker in Broker::ALL {
            self.idle(broker).await?;
        }
        self.memory().await
    }

    async fn contest(&self, broker: Broker) -> Result<(), Error> {
        let wanted = |contestant: &Contestant| {
            self.wants(&format!(
                "contest {}: {}",
                broker.name(),
                contestant.name(self.args.size)
            ))
        };
        let mut lines: Vec<Line> = Contestant::ALL
            .into_iter()
            .filter(wanted)
            .map(|contestant| Line {
                contestant,
                rounds: Rounds::default(),
            })
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        let works = Works {
            plain: self.write("plain", self.args.ops, false)?,
            wallet: self.write("wallet", self.args.ops, true)?,
            few: self.write("few", self.args.ops.min(NAIVE_OPS_MAX), false)?,
        };
        Contest::new(broker, &self.ground, &works, self.args.size)
            .run(&mut lines, self.args.repeat)
            .await?;
        table(broker, &lines, &works, self.args.size);
        Ok(())
    }

    async fn latency(&self, broker: Broker) -> Result<(), Error> {
        if !self.wants(&format!("latency {}", broker.name())) {
            return Ok(());
        }
        let (calm, storm) = latency::run(broker, &self.ground, self.args.rate).await?;
        let title = format!("latency {}", broker.name());
        for (name, phase) in [("calm", calm), ("storm", storm)] {
            println!(
                "{title}, {name}, {:.0} messages/s of which {} fresh:",
                phase.rate, self.args.rate
            );
            for (what, times) in [
                ("from publish to the told commit", phase.all),
                ("until Semel is handed it", phase.way),
                ("from there on", phase.work),
            ] {
                let Times { p50, p99, most } = times;
                println!("  {what}: p50 {p50:.1} ms, p99 {p99:.1} ms, most {most:.1} ms");
            }
        }
        for (what, asked) in [
            ("p99 storm / p99 calm", storm.all.p99 / calm.all.p99),
            (
                "the same from being handed out on",
                storm.work.p99 / calm.work.p99,
            ),
        ] {
            verdict(
                &format!("{title}, {what}"),
                asked,
                asked <= 2.0,
                "at most 2",
            );
        }
        Ok(())
    }

    async fn idle(&self, broker: Broker) -> Result<(), Error> {
        if self.wants(&format!("idle {}", broker.name())) {
            let share = daemon::idle(broker, &self.ground, self.folder.path()).await?;
            println!(
                "idle {}: {:.2} % of one processor",
                broker.name(),
                share * 100.0
            );
        }
        Ok(())
    }

    async fn memory(&self) -> Result<(), Error> {
        if !self.wants("memory Kafka") {
            return Ok(());
        }
        let mut peaks = Vec::new();
        for count in [self.args.ops / 10, self.args.ops] {
            let work = self.write("memory", count, true)?;
            let peak = daemon::peak(&self.ground, &work, self.folder.path()).await?;
            println!("memory Kafka, backlog of {count} messages: peak {peak:.1} MiB");
            peaks.push(peak);
        }
        println!(
            "memory Kafka, most / fewest messages: {:.2}",
            peaks[1] / peaks[0]
        );
        Ok(())
    }
}

fn verdict(name: &str, value: f64, held: bool, asked: &str) {
    let held = if held { "held" } else { "MISSED" };
    println!("{name}: {value:.2} (asked: {asked}) {held}");
}

fn table(broker: Broker, lines: &[Line], works: &Works, size: Size) {
    let find = |contestant| {
        let line = lines.iter().find(|line| line.contestant == contestant);
        line.map(|line| &line.rounds)
    };
    let (naive, expert) = (find(Contestant::Naive), find(Contestant::Expert));
    let naive_book = find(Contestant::NaiveBook);
    let limits = find(Contestant::Consume).zip(find(Contestant::Database));
    let raw = limits.map(|(consume, database)| consume.slower(database));
    let against = |rounds: &Rounds, other: Option<&Rounds>| {
        other.map_or("–".to_owned(), |other| format!("{:.2}", rounds.of(other)))
    };
    println!(
        "{}: {} messages, 10 % copies, {ACCOUNTS} accounts; naive: {} messages\n",
        broker.name(),
        works.plain.count,
        works.few.count
    );
    println!(
        "| consumer | msg/s | of naive | of the expert's | of the slower raw | client CPU µs | PostgreSQL CPU µs | broker and rest CPU µs |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for Line { contestant, rounds } in lines {
        println!(
            "| {} | {:.0} | {} | {} | {} | {} | {} | {} |",
            contestant.name(size),
            rounds.rate(),
            against(
                rounds,
                if matches!(contestant, Contestant::Book) {
                    naive_book
                } else {
                    naive
                }
            ),
            against(rounds, expert),
            against(rounds, raw.as_ref()),
            rounds.micros(|taken| taken.client),
            rounds.micros(|taken| taken.server),
            rounds.micros(|taken| taken.rest),
        );
    }
    println!();
    for (name, contestant) in [
        ("plain credits", Contestant::Credits),
        ("the Book", Contestant::Book),
    ] {
        let naive = if contestant == Contestant::Book {
            naive_book
        } else {
            naive
        };
        let asked = [
            ("naive of the same rows", naive, 10.0),
            ("the expert's batch", expert, 0.7),
            ("the slower raw", raw.as_ref(), 0.5),
        ];
        for (whom, other, floor) in asked {
            if let Some((rounds, other)) = find(contestant).zip(other) {
                let value = rounds.of(other);
                let name = format!("{}, {name} / {whom}", broker.name());
                verdict(&name, value, value >= floor, &format!("at least {floor}"));
            }
        }
    }
}
