//! `semel`, the program: one config file, commands for people and scripts, exit codes and printing. What a message
//! is and how it ends is decided in the crates below; environment, files and the terminal are known here alone.

// A build without the brokers still reads their settings, to say clearly that it cannot use them.
#![cfg_attr(
    not(all(feature = "kafka", feature = "rabbitmq")),
    allow(dead_code, unused_imports)
)]

mod acts;
mod check;
mod cli;
mod config;
mod dialect;
mod doctor;
mod exit;
mod http;
mod inspect;
mod key;
mod ledger;
mod migrate;
mod out;
mod publish;
mod rewind;
mod run;
mod sources;
mod wallet;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use semel_core::key::KeyRule;
use semel_wallet::Reader;

use crate::check::Finding;
use crate::cli::{Cli, Command};
use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::ledger::{Tables, on_ledger};
use crate::out::Style;

/// A message costs dozens of small allocations, made on one thread and freed on another: a fifth of the client's time with
/// the C library's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr();
    match command(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.lines.iter().for_each(|line| out::say(line));
            failure.exit.into()
        }
    }
}

/// What is logged without `SEMEL_LOG`: warnings, but none of clients about events that our own rooms tell.
const DEFAULT_LOG: &str = "warn,sqlx=off,sqlx_core=off,sqlx_postgres=off,sqlx_sqlite=off,lapin=off,amq_protocol=off,rdkafka::consumer=off";

/// What is never logged, whatever `SEMEL_LOG` says: rooms of drivers that write URLs, password files and login frames, and
/// one that calls each ordinary end of a client an error.
const NEVER_LOGGED: [&str; 6] = [
    "sqlx_postgres::options=off",
    "lapin::frames=off",
    "lapin::channels=off",
    "lapin::io_loop=off",
    "lapin::connection=off",
    "rdkafka::consumer::base_consumer=off",
];

/// Logs go to stderr like all words. `SEMEL_LOG` chooses which, in the manner of `RUST_LOG`. Colours are for
/// terminals, and for those who do not set `NO_COLOR`.
fn log_to_stderr() {
    let chosen = tracing_subscriber::EnvFilter::try_from_env("SEMEL_LOG");
    let mut filter = chosen.unwrap_or_else(|_| DEFAULT_LOG.into());
    for never in NEVER_LOGGED {
        if let Ok(never) = never.parse() {
            filter = filter.add_directive(never);
        }
    }
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It would tell a closed stderr that stderr is closed, and panic.
        .log_internal_errors(false)
        .with_ansi(colours && std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}

fn command(cli: Cli) -> Result<Exit, Failure> {
    let style = if cli.json { Style::Json } else { Style::Words };
    let config = cli.config.as_path();
    match cli.command {
        Command::Check(args) => check_config(config, &args, style),
        Command::Key(args) => key_of(config, &args, style),
        Command::Config(what) => print_config(&what),
        Command::Completions { shell } => completions(shell),
        Command::Run(args) => {
            asynchronous(async { run::run(checked(config)?, &args, style).await })
        }
        Command::Migrate(args) => {
            asynchronous(async { migrate::migrate(&load(config)?, &args, style).await })
        }
        Command::Publish(args) => {
            asynchronous(async { publish::publish(&checked(config)?, &args, style).await })
        }
        Command::Rewind(args) => {
            asynchronous(async { rewind::rewind(&load(config)?, &args, style).await })
        }
        Command::Doctor => asynchronous(doctor::doctor(config, style)),
        Command::Show(args) => asynchronous(inspect(config, Question::Show(args), style)),
        Command::Dead(what) => asynchronous(inspect(config, Question::Dead(what), style)),
        Command::Parked(what) => asynchronous(inspect(config, Question::Parked(what), style)),
        Command::Audit => asynchronous(inspect(config, Question::Audit, style)),
        Command::Balance(args) => asynchronous(inspect(config, Question::Balance(args), style)),
        Command::Statement(args) => asynchronous(inspect(config, Question::Statement(args), style)),
        Command::Round(args) => asynchronous(inspect(config, Question::Round(args), style)),
    }
}

/// One runtime for the whole process.
fn asynchronous(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Away, format!("no threads to work with: {error}")))?;
    let ended = runtime.block_on(command);
    // A thread that waits for standard input must not hold up the end.
    runtime.shutdown_background();
    ended
}

/// The config, for commands that consume or publish: a finding of level error stops them, warnings are told.
fn checked(path: &Path) -> Result<Loaded, Failure> {
    let loaded = load(path)?;
    let (errors, warnings): (Vec<Finding>, Vec<Finding>) = check::findings(&loaded)
        .into_iter()
        .partition(Finding::is_error);
    if !errors.is_empty() {
        return Err(Failure::findings(&errors));
    }
    warnings
        .iter()
        .for_each(|warning| out::say(&warning.to_string()));
    Ok(loaded)
}

/// What operators ask the ledger.
enum Question {
    Show(cli::Show),
    Dead(cli::Dead),
    Parked(cli::Parked),
    Audit,
    Balance(cli::Balance),
    Statement(cli::Statement),
    Round(cli::Round),
}

async fn inspect(config: &Path, question: Question, style: Style) -> Result<Exit, Failure> {
    let loaded = load(config)?;
    let dialect = ledger::place(&loaded)?.dialect;
    let sql = inspect::Statements::of(dialect);
    let ledger = ledger::open(&loaded, Tables::AsTheyAre).await?;
    on_ledger!(&ledger, ledger => match &question {
        Question::Show(args) => {
            let known = inspect::Known { rules: key_rules(&loaded), replies: wallet::replies(&loaded), lanes: lane_rules(&loaded), dialect };
            inspect::show(ledger, &known, args, style).await
        }
        Question::Dead(cli::Dead::List { consumer, code }) => {
            inspect::dead::list(ledger, sql, consumer.as_deref(), code.as_deref(), style).await
        }
        Question::Dead(cli::Dead::Show { letter }) => inspect::dead::show(ledger, sql, letter, style).await,
        Question::Parked(cli::Parked::List { consumer }) => inspect::parked::list(ledger, sql, consumer.as_deref(), &lane_rules(&loaded), style).await,
        Question::Audit => wallet::audit(&Reader::new(ledger, wallet::dialect(dialect)), style).await,
        Question::Balance(args) => wallet::balance(&Reader::new(ledger, wallet::dialect(dialect)), args, style).await,
        Question::Statement(args) => wallet::statement(&Reader::new(ledger, wallet::dialect(dialect)), args, style).await,
        Question::Round(args) => wallet::round(&Reader::new(ledger, wallet::dialect(dialect)), args, style).await,
    })
}

/// The key rules of the consumers, as far as they can be read: an id is then looked up as the consumer would.
fn key_rules(loaded: &Loaded) -> BTreeMap<String, KeyRule> {
    let rules = loaded
        .config
        .consumers
        .iter()
        .filter_map(|(name, consumer)| Some((name.clone(), check::key_rule(consumer).ok()?)));
    rules.collect()
}

/// The consumers' `lane`, by name.
fn lane_rules(loaded: &Loaded) -> BTreeMap<String, String> {
    let consumers = loaded.config.consumers.iter();
    consumers
        .map(|(name, consumer)| (name.clone(), consumer.lane.clone()))
        .collect()
}

/// The config, for commands that go on only with one that can be read.
fn load(path: &Path) -> Result<Loaded, Failure> {
    config::load(path).map_err(|findings| Failure::findings(&findings))
}

fn check_config(path: &Path, args: &cli::Check, style: Style) -> Result<Exit, Failure> {
    let (loaded, mut findings) = check::config(path);
    let Some(loaded) = loaded.filter(|_| args.connect) else {
        return check::report(findings, style);
    };
    asynchronous(async {
        findings.extend(check::connected(&loaded).await);
        check::report(findings, style)
    })
}

fn key_of(path: &Path, args: &cli::Key, style: Style) -> Result<Exit, Failure> {
    let Some(name) = &args.consumer else {
        return key::run(args, None, style);
    };
    let loaded = load(path)?;
    let Some(consumer) = loaded.config.consumers.get(name) else {
        let hint = config::nearest(name, loaded.config.consumers.keys().map(String::as_str));
        let hint = hint.map_or(String::new(), |near| format!(", did you mean `{near}`?"));
        return Err(Failure::usage(format!(
            "the config has no consumer `{name}`{hint}"
        )));
    };
    let rule = check::key_rule(consumer).map_err(|error| Failure::usage(error.to_string()))?;
    key::run(args, Some(&rule), style)
}

fn print_config(what: &cli::Config) -> Result<Exit, Failure> {
    match what {
        cli::Config::Schema => out::text(&format!("{:#}\n", config::schema()))?,
        cli::Config::Default => out::text(config::DEFAULT)?,
        cli::Config::Reference => out::text(&config::reference())?,
    }
    Ok(Exit::Done)
}

fn completions(shell: clap_complete::Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "semel", &mut script);
    out::text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
