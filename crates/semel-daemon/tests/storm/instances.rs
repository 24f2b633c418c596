//! The instances of the real `semel run`, kept as a service manager keeps them: who ended is started again.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::servers::end_of;

/// A database or broker could not be reached when it started: the one reason to end by itself in a storm.
pub(crate) const AWAY: i32 = 3;
/// Drained after SIGTERM.
const TERMINATED: i32 = 143;

/// One instance, dead or alive.
#[derive(Debug)]
pub(crate) struct Instance {
    folder: PathBuf,
    number: usize,
    child: Option<Child>,
    /// How often it ended by itself since a server was away when it started.
    pub(crate) gave_up: u32,
}

/// The program in the storm's folder.
pub(crate) fn semel(folder: &PathBuf, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    command
        .args(args)
        .current_dir(folder)
        .env_remove("SEMEL_LOG")
        .stdin(Stdio::null());
    command
}

impl Instance {
    pub(crate) fn new(folder: PathBuf, number: usize) -> Self {
        Self {
            folder,
            number,
            child: None,
            gave_up: 0,
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.join(format!("instance-{}.log", self.number))
    }

    /// What it said last.
    pub(crate) fn tell(&self) -> String {
        let end = end_of(&self.log(), 10);
        format!("--- the end of instance {}'s log\n{end}\n", self.number)
    }

    /// Starts it unless it lives.
    pub(crate) fn keep(&mut self) {
        if let Some(child) = &mut self.child
            && let Some(status) = child.try_wait().unwrap()
        {
            assert_eq!(status.code(), Some(AWAY), "{}", self.tell());
            self.gave_up += 1;
            self.child = None;
        }
        if self.child.is_none() {
            let mut log = OpenOptions::new();
            let log = log.create(true).append(true).open(self.log()).unwrap();
            let config = format!("instance-{}.toml", self.number);
            let mut command = semel(&self.folder, &["run", "--config", &config]);
            self.child = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// SIGKILL, also for one that has just ended by itself: it is started and dies at its start.
    pub(crate) fn strike(&mut self) {
        self.keep();
        self.kill();
    }

    /// SIGTERM, and waits for its drained end.
    pub(crate) fn end_well(&mut self) {
        let mut child = self.child.take().unwrap();
        let told = Command::new("kill").arg(child.id().to_string()).status();
        assert!(told.unwrap().success());
        let ended = child.wait().unwrap().code();
        assert_eq!(ended, Some(TERMINATED), "{}", self.tell());
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.kill();
    }
}
