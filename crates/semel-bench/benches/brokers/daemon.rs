//! The daemon itself, as a process of its own: what it takes while nothing comes, and what it holds over a backlog.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use semel_bench::book;
use semel_bench::contest::Ground;
use semel_bench::measure::{memory_peak_mib, process_seconds};
use semel_bench::ops::{self, Work};
use semel_bench::tables::{Error, Place};

use crate::stock::{Broker, Stock};

/// Until it has joined, looked for the queue's end and prepared its statements.
const SETTLE: Duration = Duration::from_secs(10);

/// How long it is watched while nothing comes.
const IDLE: Duration = Duration::from_secs(30);

/// How often the memory of a process that may end is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A running `semel run`. Dropped, it is killed.
struct Daemon(Child);

impl Daemon {
    fn start(folder: &Path, stock: &Stock, place: &Place, more: &[&str]) -> Result<Self, Error> {
        let config = folder.join("semel.toml");
        std::fs::write(&config, text(stock, place))?;
        let child = Command::new(binary()?)
            .arg("--config")
            .arg(config)
            .arg("run")
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    fn id(&self) -> String {
        self.0.id().to_string()
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        Ok(self.0.try_wait()?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The daemon beside the benches.
fn binary() -> Result<PathBuf, Error> {
    let bench = std::env::current_exe()?;
    let folder = bench.parent().and_then(Path::parent);
    let binary = folder.ok_or("no folder of programs")?.join("semel");
    if binary.exists() {
        Ok(binary)
    } else {
        Err("the daemon is not built: cargo build --release -p semel-daemon".into())
    }
}

fn text(stock: &Stock, place: &Place) -> String {
    let (address, name) = (&stock.address, &stock.name);
    let source = match stock.broker {
        Broker::Kafka => format!(
            "type = \"kafka\"\nbrokers = [\"{address}\"]\ntopics = [\"{name}\"]\ngroup = \"{name}-daemon-{}\"\nstart_at = \"earliest\"",
            place.schema
        ),
        Broker::Rabbit => {
            format!("type = \"rabbitmq\"\nurl = \"{address}\"\nqueue = \"{name}\"")
        }
    };
    format!(
        "[ledger]\nurl = \"{}\"\nschema = \"{}\"\n\n[sources.broker]\n{source}\n\n\
         [consumers.bench]\nsources = [\"broker\"]\nhandler = \"wallet\"\n\n\
         [consumers.bench.wallet]\nassets = {{ EUR = 2 }}\n",
        place.url, place.schema
    )
}

/// Of one processor, how much it takes while nothing comes.
pub(crate) async fn idle(broker: Broker, ground: &Ground, folder: &Path) -> Result<f64, Error> {
    let place = Place::make(&ground.url, ground.accounts).await?;
    let stock = Stock::make(broker).await?;
    let mut daemon = Daemon::start(folder, &stock, &place, &[])?;
    tokio::time::sleep(SETTLE).await;
    let before = process_seconds(&daemon.id());
    tokio::time::sleep(IDLE).await;
    let after = process_seconds(&daemon.id());
    if let Some(status) = daemon.ended()? {
        return Err(format!("the daemon ended: {status}").into());
    }
    drop(daemon);
    place.drop_it().await?;
    stock.drop_it().await?;
    let seconds = after.zip(before).map(|(after, before)| after - before);
    Ok(seconds.ok_or("no /proc here")? / IDLE.as_secs_f64())
}

/// The most memory it holds while it drains a topic, MiB.
pub(crate) async fn peak(ground: &Ground, work: &Work, folder: &Path) -> Result<f64, Error> {
    let place = Place::make(&ground.url, ground.accounts).await?;
    let ledger = book::ledger(&place).await?;
    let accounts = ops::write_accounts(&work.folder, ground.accounts)?;
    book::open_accounts(&ledger, &work.folder, accounts).await?;
    let stock = Stock::make(Broker::Kafka).await?;
    stock.fill(work).await?;
    let mut daemon = Daemon::start(folder, &stock, &place, &["--until-idle"])?;
    let mut peak = f64::NAN;
    let status = loop {
        peak = memory_peak_mib(&daemon.id()).unwrap_or(peak);
        if let Some(status) = daemon.ended()? {
            break status;
        }
        tokio::time::sleep(LOOK).await;
    };
    if !status.success() {
        return Err(format!("the daemon ended: {status}").into());
    }
    book::check(&place, work, &book::NAMES).await?;
    place.drop_it().await?;
    stock.drop_it().await?;
    Ok(peak)
}
