//! `semel`, the program: one config file, commands for people and scripts, exit codes and printing. What a message
//! is and how it ends is decided in the crates below; environment, files and the terminal are known here alone.

mod check;
mod cli;
mod config;
mod dialect;
mod exit;
mod inspect;
mod key;
mod out;
mod run;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};
use crate::config::Loaded;
use crate::exit::{Exit, Failure};
use crate::out::Style;

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

/// Logs go to stderr like all words. `SEMEL_LOG` chooses which, in the manner of `RUST_LOG`.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SEMEL_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
}

fn command(cli: Cli) -> Result<Exit, Failure> {
    let style = if cli.json { Style::Json } else { Style::Words };
    let config = cli.config.as_path();
    match cli.command {
        Command::Check(args) => check_config(config, &args, style),
        Command::Key(args) => key_of(config, &args, style),
        Command::Config(what) => print_config(&what),
        Command::Completions { shell } => completions(shell),
        _ => Err(Failure::usage("not yet")),
    }
}

/// The config, for commands that go on only with one that can be read.
fn load(path: &Path) -> Result<Loaded, Failure> {
    config::load(path).map_err(|findings| Failure::findings(&findings))
}

fn check_config(path: &Path, _args: &cli::Check, style: Style) -> Result<Exit, Failure> {
    let (_, findings) = check::config(path);
    check::report(findings, style)
}

fn key_of(path: &Path, args: &cli::Key, style: Style) -> Result<Exit, Failure> {
    let Some(name) = &args.consumer else { return key::run(args, None, style) };
    let loaded = load(path)?;
    let Some(consumer) = loaded.config.consumers.get(name) else {
        let hint = config::nearest(name, loaded.config.consumers.keys().map(String::as_str));
        let hint = hint.map_or(String::new(), |near| format!(", did you mean `{near}`?"));
        return Err(Failure::usage(format!("the config has no consumer `{name}`{hint}")));
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
