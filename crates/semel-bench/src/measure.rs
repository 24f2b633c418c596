//! Time and processor time of a run: the client's from its own accounts, the server's from those of the
//! server's processes, where `/proc` shows them.

use std::fs;
use std::time::{Duration, Instant};

/// Clock ticks a second in `/proc`: fixed by the kernel's ABI on every platform Linux has.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a run took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Taken {
    /// Messages.
    pub messages: u64,
    /// Time on the wall.
    pub wall: Duration,
    /// Processor time of this process, seconds.
    pub client: Option<f64>,
    /// Processor time of the server's processes, seconds.
    pub server: Option<f64>,
    /// Processor time of everything else on the machine, seconds: a broker, where there is one.
    pub rest: Option<f64>,
}

impl Taken {
    /// Messages a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        count(self.messages) / self.wall.as_secs_f64()
    }

    /// Of processor time: µs a message.
    #[must_use]
    pub fn micros(&self, seconds: Option<f64>) -> Option<f64> {
        seconds.map(|seconds| seconds * 1e6 / count(self.messages))
    }
}

/// A count as a number to divide by.
#[must_use]
pub fn count(count: u64) -> f64 {
    // Exact up to 2^53, and counts of messages end far below.
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// What several runs of the same thing took, one each round.
#[derive(Debug, Clone, Default)]
pub struct Rounds(pub Vec<Taken>);

impl Rounds {
    /// The median of the rates.
    #[must_use]
    pub fn rate(&self) -> f64 {
        median(self.0.iter().map(Taken::rate).collect())
    }

    /// The median of the ratios to another, each within its round.
    #[must_use]
    pub fn of(&self, other: &Self) -> f64 {
        let ratios = self.0.iter().zip(&other.0);
        median(ratios.map(|(a, b)| a.rate() / b.rate()).collect())
    }

    /// The slower one of each round.
    #[must_use]
    pub fn slower(&self, other: &Self) -> Self {
        let pairs = self.0.iter().zip(&other.0);
        Self(
            pairs
                .map(|(a, b)| if a.rate() < b.rate() { *a } else { *b })
                .collect(),
        )
    }

    /// The median of a processor time, µs a message, as a cell of a table.
    #[must_use]
    pub fn micros(&self, of: impl Fn(&Taken) -> Option<f64>) -> String {
        let all = self.0.iter().map(|taken| taken.micros(of(taken)));
        let all: Option<Vec<f64>> = all.collect();
        all.map_or("–".to_owned(), |all| format!("{:.1}", median(all)))
    }
}

/// The median; of an even number the upper one.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A running measurement.
#[derive(Debug)]
pub struct Watch {
    postmaster: Option<u32>,
    client: Option<f64>,
    server: Option<f64>,
    machine: Option<f64>,
    began: Instant,
}

impl Watch {
    /// Begins. `backend` is the process of any session of the server, where it runs on this machine.
    #[must_use]
    pub fn start(backend: Option<u32>) -> Self {
        let postmaster = backend.and_then(parent);
        Self {
            postmaster,
            client: process_seconds("self"),
            server: postmaster.and_then(family),
            machine: machine(),
            began: Instant::now(),
        }
    }

    /// Ends.
    #[must_use]
    pub fn stop(self, messages: u64) -> Taken {
        let wall = self.began.elapsed();
        let since = |now: Option<f64>, then: Option<f64>| Some(now? - then?);
        let client = since(process_seconds("self"), self.client);
        let server = since(self.postmaster.and_then(family), self.server);
        let rest = since(machine(), self.machine)
            .zip(client)
            .map(|(all, client)| all - client - server.unwrap_or(0.0));
        Taken {
            messages,
            wall,
            client,
            server,
            rest,
        }
    }
}

/// The fields of a process behind its name, which may hold spaces.
fn fields(process: &str) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(
        stat.rsplit_once(") ")?
            .1
            .split(' ')
            .map(str::to_owned)
            .collect(),
    )
}

fn seconds(fields: &[String], places: &[usize]) -> Option<f64> {
    let ticks = places
        .iter()
        .map(|place| fields.get(*place)?.trim().parse::<f64>().ok());
    Some(ticks.sum::<Option<f64>>()? / TICKS_PER_SECOND)
}

/// Places in `/proc/PID/stat`, counted from the state: user, system, and those of children that ended.
const USER: usize = 11;
const SYSTEM: usize = 12;
const CHILDREN_USER: usize = 13;
const CHILDREN_SYSTEM: usize = 14;

/// Processor time of a process (its number, or `self`), seconds.
#[must_use]
pub fn process_seconds(process: &str) -> Option<f64> {
    seconds(&fields(process)?, &[USER, SYSTEM])
}

/// Processor time of the whole machine, seconds: all but the fields `idle` and `iowait` of `/proc/stat`, and but the
/// guests', which `user` counts already.
fn machine() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<String> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .map(str::to_owned)
        .collect();
    seconds(&fields, &[0, 1, 2, 5, 6])
}

fn parent(process: u32) -> Option<u32> {
    fields(&process.to_string())?.get(1)?.parse().ok()
}

/// A process, its children, and those of its children that have ended. A child that ends while they are counted is
/// counted twice or not at all, so two counts in a row must agree.
fn family(process: u32) -> Option<f64> {
    const COUNTS_MAX: usize = 50;
    let mut last = family_once(process)?;
    for _ in 0..COUNTS_MAX {
        let now = family_once(process)?;
        if (now - last).abs() < 1.0 / TICKS_PER_SECOND {
            return Some(now);
        }
        last = now;
    }
    Some(last)
}

fn family_once(process: u32) -> Option<f64> {
    let mut sum = seconds(
        &fields(&process.to_string())?,
        &[USER, SYSTEM, CHILDREN_USER, CHILDREN_SYSTEM],
    )?;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(name) = name
            .to_str()
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        else {
            continue;
        };
        // A process that ended meanwhile is counted with its parent's children next time.
        let Some(fields) = fields(name) else { continue };
        if fields.get(1).and_then(|parent| parent.parse().ok()) == Some(process) {
            sum += seconds(&fields, &[USER, SYSTEM]).unwrap_or(0.0);
        }
    }
    Some(sum)
}

/// The most memory a process (its number, or `self`) ever held, MiB.
#[must_use]
pub fn memory_peak_mib(process: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}
