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

/// A running measurement.
#[derive(Debug)]
pub struct Watch {
    postmaster: Option<u32>,
    client: Option<f64>,
    server: Option<f64>,
    began: Instant,
}

impl Watch {
    /// Begins. `backend` is the process of any session of the server, where it runs on this machine.
    #[must_use]
    pub fn start(backend: Option<u32>) -> Self {
        let postmaster = backend.and_then(parent);
        Self {
            postmaster,
            client: own(),
            server: postmaster.and_then(family),
            began: Instant::now(),
        }
    }

    /// Ends.
    #[must_use]
    pub fn stop(self, messages: u64) -> Taken {
        let wall = self.began.elapsed();
        let since = |now: Option<f64>, then: Option<f64>| Some(now? - then?);
        Taken {
            messages,
            wall,
            client: since(own(), self.client),
            server: since(self.postmaster.and_then(family), self.server),
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

fn own() -> Option<f64> {
    seconds(&fields("self")?, &[USER, SYSTEM])
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

/// The most memory this process ever held, MiB.
#[must_use]
pub fn memory_peak_mib() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}
