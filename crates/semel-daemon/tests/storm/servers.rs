//! The storm's own servers: a second set beside the one that other tests share, so that killing them hurts nobody.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

/// The end of a log that a failure shows, in lines.
const LOG_LINES: usize = 20;

/// The servers, all killed with it.
#[derive(Debug)]
pub(crate) struct Servers {
    folder: PathBuf,
    names: &'static [&'static str],
    /// What `scripts/services env` says of them.
    env: String,
    /// Held for the storm's life: a second storm of this clone waits instead of killing this one's servers.
    _lock: File,
}

impl Servers {
    /// Starts them on empty folders, after an end of what a killed storm of this name left behind.
    pub(crate) fn start(storm: &str, names: &'static [&'static str]) -> Self {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(target).unwrap();
        let lock = File::create(target.join("storm.lock")).unwrap();
        lock.lock().unwrap();
        let folder = target.join(storm);
        if folder.exists() {
            call(&folder, "stop", &[]);
            std::fs::remove_dir_all(&folder).unwrap();
        }
        call(&folder, "start", names);
        Self {
            names,
            env: call(&folder, "env", &[]),
            folder,
            _lock: lock,
        }
    }

    /// A server's address: what `SEMEL_TEST_…` of this name holds.
    pub(crate) fn address(&self, name: &str) -> String {
        let start = format!("export SEMEL_TEST_{name}='");
        let found = self.env.lines().find_map(|line| line.strip_prefix(&start));
        found.unwrap().trim_end_matches('\'').to_owned()
    }

    pub(crate) fn kill(&self, names: &[&str]) {
        call(&self.folder, "kill", names);
    }

    /// Starts them and waits until each answers.
    pub(crate) fn revive(&self, names: &[&str]) {
        call(&self.folder, "start", names);
    }

    /// Stops them in good order, and starts them.
    pub(crate) fn restart(&self, names: &[&str]) {
        call(&self.folder, "restart", names);
    }

    /// What the brokers say of a queue and of themselves, for a failure that they may explain.
    pub(crate) fn tell(&self, queue: &str) -> String {
        let asked = run(
            &self.folder,
            "tool",
            &[
                "rabbitmq-queues",
                "quorum_status",
                queue,
                "--formatter=json",
            ],
        );
        let said = [asked.stdout, asked.stderr].concat();
        let mut told = String::from_utf8_lossy(&said).into_owned();
        for name in self.names {
            let log = self.folder.join(name).join("log");
            let end = end_of(&log, LOG_LINES);
            told.push_str(&format!("\n--- the end of {name}'s log\n{end}\n"));
        }
        told
    }

    pub(crate) async fn make_topic(&self, name: &str, partitions: i32) {
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", self.address("KAFKA_BROKERS"))
            .create()
            .unwrap();
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let made = admin.create_topics([&topic], &AdminOptions::new()).await;
        made.unwrap()
            .into_iter()
            .for_each(|made| drop(made.unwrap()));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        call(&self.folder, "kill", self.names);
        // Their logs stay where they can tell why the storm failed.
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// The last lines of a log.
pub(crate) fn end_of(log: &Path, lines: usize) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Runs `scripts/services` on the storm's folder.
fn run(folder: &Path, command: &str, args: &[&str]) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services");
    Command::new(script)
        .arg(command)
        .args(args)
        .env("SEMEL_SERVICES_DIR", folder)
        .output()
        .unwrap()
}

/// Runs `scripts/services` to its good end; its output.
fn call(folder: &Path, command: &str, names: &[&str]) -> String {
    let ran = run(folder, command, names);
    let words = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success(),
        "scripts/services {command}: {words}\n(missing services: scripts/services install)"
    );
    String::from_utf8(ran.stdout).unwrap()
}
