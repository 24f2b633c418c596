//! How the program ends: exit codes as the command line's contract has them, and failures with their words.

use std::process::ExitCode;

use semel_core::{Class, Fault};

use crate::check::Finding;

/// An exit code. A closed list: scripts rely on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done,
    /// The answer is no.
    No,
    /// The command line or the config is wrong.
    Usage,
    /// A database or broker cannot be reached, or refuses us.
    Away,
    /// Stopped to protect data.
    Stopped,
    /// Drained after SIGINT.
    Interrupted,
    /// Drained after SIGTERM.
    Terminated,
}

impl Exit {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Away => 3,
            Self::Stopped => 4,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Why a command did not get to its end, with a line of words for each thing that is wrong.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// What to say, without the program's name. None when nobody is left to hear it.
    pub(crate) lines: Vec<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, line: impl Into<String>) -> Self {
        Self {
            exit,
            lines: vec![line.into()],
        }
    }

    /// The answer is no.
    pub(crate) fn no(line: impl Into<String>) -> Self {
        Self::new(Exit::No, line)
    }

    /// The command line or the config is wrong.
    pub(crate) fn usage(line: impl Into<String>) -> Self {
        Self::new(Exit::Usage, line)
    }

    /// A fault of a ledger or source, met while doing `what`.
    pub(crate) fn fault(what: &str, fault: &Fault) -> Self {
        let exit = match fault.class {
            Class::Stop if !fault.is_refusal() => Exit::Stopped,
            Class::Stop
            | Class::Down
            | Class::Busy
            | Class::Retry
            | Class::Poison
            | Class::Unclassified => Exit::Away,
        };
        Self::new(exit, format!("{what}: {}", fault.detail()))
    }

    /// Findings about the config.
    pub(crate) fn findings(findings: &[Finding]) -> Self {
        Self {
            exit: Exit::Usage,
            lines: findings.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<std::io::Error> for Failure {
    /// Standard output went away: the reader has had enough, which is no mistake of anyone (`semel dead list | head`).
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self {
                exit: Exit::Done,
                lines: Vec::new(),
            }
        } else {
            Self::new(Exit::Away, format!("standard output: {error}"))
        }
    }
}
