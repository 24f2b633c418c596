//! The command line. Names and exit codes are a contract; words may get better.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Apply each message of an at-least-once broker to a SQL database exactly once in effect.
#[derive(Debug, Parser)]
#[command(
    name = "semel",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit codes: 0 done; 1 the answer is no; 2 usage or config error; 3 a database or broker is away or \
    refuses us; 4 stopped to protect data; 130/143 drained after SIGINT/SIGTERM.\n\n\
    Logs go to stderr, warnings by default. The environment variable SEMEL_LOG chooses others: SEMEL_LOG=info, or by crate \
    SEMEL_LOG=warn,semel_kafka=debug."
)]
pub(crate) struct Cli {
    /// The config file.
    #[arg(long, global = true, value_name = "FILE", default_value = "semel.toml")]
    pub(crate) config: PathBuf,
    /// Print JSON: one object, or one object a line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read the sources into the ledger.
    Run(Run),
    /// Look for mistakes in the config.
    Check(Check),
    /// Compare what the ledger, the brokers and the database's server say of each other.
    Doctor,
    /// Read a source again: from the ledger's position, or from a place before it.
    Rewind(Rewind),
    /// Bring the ledger's tables up to date.
    Migrate(Migrate),
    /// Show all that the ledger knows of an operation.
    Show(Show),
    /// Compute a key as a consumer would.
    Key(Key),
    /// Send a file's lines to a queue, topic or exchange.
    Publish(Publish),
    /// Look at dead letters.
    #[command(subcommand)]
    Dead(Dead),
    /// Look at parked messages.
    #[command(subcommand)]
    Parked(Parked),
    /// Verify every invariant of the ledger and the wallet.
    Audit,
    /// Show an account's balance.
    Balance(Balance),
    /// Show an account's entries.
    Statement(Statement),
    /// Show a round and its bets.
    Round(Round),
    /// Print things about the config file.
    #[command(subcommand)]
    Config(Config),
    /// Print a shell's completion script.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Read the sources into the ledger.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// End when every source is drained and nothing parked or due can be released.
    #[arg(long)]
    pub(crate) until_idle: bool,
    /// Read file sources again from their first line: what is known is found to be a duplicate.
    #[arg(long)]
    pub(crate) from_start: bool,
    /// Write one JSON line for each delivery, after its commit, in source order per partition (`-`: stdout).
    #[arg(long, value_name = "FILE")]
    pub(crate) outcomes: Option<PathBuf>,
    /// Exit with 1 if a message ended like this.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) fail_on: Vec<FailOn>,
}

/// What `--fail-on` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Any dead message.
    Dead,
    /// A dead message with the code `key_reused`.
    Clash,
    /// Any refused message.
    Refused,
}

/// Look for mistakes in the config.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Also open the ledger and the sources.
    #[arg(long)]
    pub(crate) connect: bool,
}

/// Read a source again: from the ledger's position, or from a place before it.
#[derive(Debug, Args)]
#[command(
    after_help = "Stop every instance of the consumer first. What the ledger knows comes out as duplicates.\n\n\
    semel rewind payments --dry-run\nsemel rewind payments --partition payments/0 --to 1200 --yes\nsemel rewind ops --to 1 --yes"
)]
pub(crate) struct Rewind {
    /// The source.
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// The consumer, if several read the source.
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
    /// Only this partition.
    #[arg(long, value_name = "PARTITION")]
    pub(crate) partition: Option<String>,
    /// Kafka: an offset, of every partition without --partition, not beyond the ledger's position, or if that is lost not beyond the group's. A file:
    /// 1, its first line.
    #[arg(long, value_name = "PLACE")]
    pub(crate) to: Option<u64>,
    /// Say what would be done.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Do it without a question.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Who does it, for the record: by default the name that the system has for you.
    #[arg(long, value_name = "NAME", value_parser = one_line)]
    pub(crate) who: Option<String>,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", value_parser = one_line)]
    pub(crate) why: Option<String>,
}

/// Bring the ledger's tables up to date.
#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Say what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Accept that consumers make keys by other rules than before: known operations may get new keys.
    #[arg(long)]
    pub(crate) accept_key_change: bool,
}

/// Show all that the ledger knows of an operation.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// A key (a UUID in any spelling), or the id that the consumer's rule makes one of.
    #[arg(value_name = "KEY-OR-ID")]
    pub(crate) key_or_id: String,
    /// Only this consumer.
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
}

/// Compute a key as a consumer would.
#[derive(Debug, Args)]
#[command(
    after_help = "semel key acme bet-42\nsemel key --consumer wallet pay-1\nsemel key --consumer wallet --message ops.jsonl"
)]
pub(crate) struct Key {
    /// The parts as text. One part that is a UUID is the key.
    #[arg(value_name = "PART", required_unless_present = "message")]
    pub(crate) parts: Vec<String>,
    /// By the key rule of this consumer: its normalisers apply, its constants need not be given.
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
    /// The operation's own time, for a time-ordered key (RFC 3339, or Unix ms).
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// Key each line of this file as a message of the consumer (`-`: stdin).
    #[arg(long, value_name = "FILE", requires = "consumer", conflicts_with_all = ["parts", "time"])]
    pub(crate) message: Option<PathBuf>,
    /// A header of the message.
    #[arg(long, value_name = "NAME=VALUE", requires = "message")]
    pub(crate) header: Vec<String>,
    /// The broker's message key of the message.
    #[arg(long, value_name = "TEXT", requires = "message")]
    pub(crate) message_key: Option<String>,
}

/// Send a file's lines to a queue, topic or exchange.
#[derive(Debug, Args)]
#[command(
    after_help = "Lines have no message key: a topic with several partitions spreads them, and their order holds within one \
    partition only."
)]
pub(crate) struct Publish {
    /// A source of the config that can be written to.
    #[arg(value_name = "SOURCE-OR-SINK")]
    pub(crate) target: String,
    /// The file (`-`: stdin).
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Look at dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// List them, oldest first.
    List {
        /// Only this consumer's.
        #[arg(long, value_name = "NAME")]
        consumer: Option<String>,
        /// Only with this code.
        #[arg(long, value_name = "CODE")]
        code: Option<String>,
    },
    /// Show one.
    Show {
        /// The letter's id, as `dead list` prints it.
        #[arg(value_name = "ID")]
        letter: String,
    },
}

/// Look at parked messages.
#[derive(Debug, Subcommand)]
pub(crate) enum Parked {
    /// List them, in the order in which they are due.
    List {
        /// Only this consumer's.
        #[arg(long, value_name = "NAME")]
        consumer: Option<String>,
    },
}

/// Show an account's balance.
#[derive(Debug, Args)]
pub(crate) struct Balance {
    /// The account.
    pub(crate) account: String,
}

/// Show an account's entries.
#[derive(Debug, Args)]
pub(crate) struct Statement {
    /// The account.
    pub(crate) account: String,
    /// Only entries at or after this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<jiff::Timestamp>,
    /// Only entries before this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<jiff::Timestamp>,
}

/// Show a round and its bets.
#[derive(Debug, Args)]
pub(crate) struct Round {
    /// The round.
    pub(crate) round: String,
    /// Only this player's.
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) account: Option<String>,
}

/// Print things about the config file.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// The JSON Schema.
    Schema,
    /// A complete file with comments.
    Default,
    /// The reference page, as Markdown.
    Reference,
}

/// The longest name or reason in a record of an act, in characters.
const RECORD_LENGTH_MAX: usize = 200;

/// A record is one line, and nobody forges another in it.
fn one_line(text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        Err("a record is one line without control characters".to_owned())
    } else if text.chars().count() > RECORD_LENGTH_MAX {
        Err(format!("longer than {RECORD_LENGTH_MAX} characters"))
    } else {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn a_record_of_an_act_is_one_line() {
        let rewind = |why: &str| {
            let args = ["semel", "rewind", "ops", "--yes", "--why", why];
            super::Cli::try_parse_from(args).map(drop)
        };
        assert!(rewind("restored on Monday: é").is_ok());
        for forged in ["fine)\n2020-01-01T00:00:00Z: rewind by root", "\u{1b}[31m"] {
            let refused = rewind(forged).unwrap_err().to_string();
            assert!(refused.contains("one line"), "{refused}");
        }
        assert!(rewind(&"x".repeat(200)).is_ok());
        assert!(rewind(&"x".repeat(201)).is_err());
    }
}
