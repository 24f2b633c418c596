//! `--outcomes`: one JSON line for each delivery, written after its commit, in source order within each partition.
//! Lanes commit in any order, so lines wait here for those before them: never more than are in flight.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use semel::Ended;
use semel_core::Outcome;
use serde::Serialize;

use super::signals::Shutdown;

/// A line, as it is printed.
#[derive(Debug, Serialize)]
struct Line<'e> {
    consumer: &'e str,
    source: &'e str,
    partition: &'e str,
    position: Option<u64>,
    id: Option<&'e str>,
    key: Option<String>,
    outcome: &'static str,
    code: Option<&'e str>,
    awaiting: Option<&'e str>,
    first: Option<First<'e>>,
}

/// How the first delivery of a duplicate ended.
#[derive(Debug, Serialize)]
struct First<'e> {
    outcome: &'static str,
    code: Option<&'e str>,
}

/// The line of a delivery, with its end.
fn line(consumer: &str, source: &str, ended: &Ended) -> Vec<u8> {
    let ending = &ended.ending;
    let code =
        |code: &'_ Option<semel_core::Code>| code.as_ref().map(|code| code.as_str().to_owned());
    let (own, awaiting) = (code(&ending.code), code(&ending.awaiting));
    let first = ending
        .first
        .as_ref()
        .filter(|_| ending.outcome == Outcome::Duplicate);
    let first_code = first.and_then(|(_, first)| code(first));
    let line = Line {
        consumer,
        source,
        partition: &ended.partition,
        position: ended.offset,
        id: ended.id.as_deref(),
        key: ended.key.map(|key| key.to_string()),
        outcome: ending.outcome.as_str(),
        code: own.as_deref(),
        awaiting: awaiting.as_deref(),
        first: first.map(|(outcome, _)| First {
            outcome: outcome.as_str(),
            code: first_code.as_deref(),
        }),
    };
    let mut bytes = serde_json::to_vec(&line).expect("texts and numbers are JSON");
    bytes.push(b'\n');
    bytes
}

/// Where lines go, shared by all consumers of a run. Once nobody reads them, it stays quiet: the work matters more.
/// A file that takes no more is another matter: somebody counts on the lines, so the run ends.
pub(crate) struct Outcomes {
    out: Mutex<Option<Box<dyn Write + Send>>>,
    failed: OnceLock<io::Error>,
    shutdown: Shutdown,
}

impl Outcomes {
    /// Opens the file, or standard output for `-`.
    ///
    /// # Errors
    ///
    /// The file cannot be made.
    pub(crate) fn open(path: &Path, shutdown: Shutdown) -> io::Result<Arc<Self>> {
        let out: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            Box::new(std::fs::File::create(path)?)
        };
        Ok(Arc::new(Self {
            out: Mutex::new(Some(out)),
            failed: OnceLock::new(),
            shutdown,
        }))
    }

    /// Why lines are missing, if some are.
    pub(crate) fn failed(&self) -> Option<&io::Error> {
        self.failed.get()
    }

    /// Writes whole lines at once, so that consumers do not cut each other's.
    fn write(&self, lines: &[u8]) {
        let mut slot = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(out) = slot.as_mut() else { return };
        if let Err(error) = out.write_all(lines).and_then(|()| out.flush()) {
            *slot = None;
            if error.kind() != io::ErrorKind::BrokenPipe {
                // The first one is told; there is no second, the place is empty.
                let _ = self.failed.set(error);
                self.shutdown.now();
            }
        }
    }
}

/// One consumer's lines, brought into order.
pub(crate) struct Orderly {
    consumer: String,
    sources: Vec<String>,
    outcomes: Arc<Outcomes>,
    partitions: Mutex<HashMap<(usize, Arc<str>), Waiting>>,
}

/// Lines of one partition that wait for those before them.
#[derive(Default)]
struct Waiting {
    next: u64,
    /// None for a delivery that went back without an outcome.
    lines: BTreeMap<u64, Option<Vec<u8>>>,
}

impl Waiting {
    /// Takes a line, and appends all that are now in order.
    fn take(&mut self, sequence: u64, line: Option<Vec<u8>>, ready: &mut Vec<u8>) {
        self.lines.insert(sequence, line);
        while let Some(line) = self.lines.remove(&self.next) {
            ready.extend(line.unwrap_or_default());
            self.next += 1;
        }
    }
}

impl Orderly {
    pub(crate) fn new(consumer: &str, sources: &[String], outcomes: Arc<Outcomes>) -> Self {
        Self {
            consumer: consumer.to_owned(),
            sources: sources.to_vec(),
            outcomes,
            partitions: Mutex::default(),
        }
    }

    /// Deliveries ended.
    pub(crate) fn ended(&self, ended: &[Ended]) {
        let mut partitions = self
            .partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut ready = Vec::new();
        for one in ended {
            let source = self.sources.get(one.source).map_or("", String::as_str);
            let line = line(&self.consumer, source, one);
            let waiting = partitions
                .entry((one.source, one.partition.clone()))
                .or_default();
            waiting.take(one.sequence, Some(line), &mut ready);
        }
        // Written under the lock: another lane's lines of the same partition come behind.
        self.write(&ready);
    }

    /// A delivery went back to its source.
    pub(crate) fn passed(&self, source: usize, partition: &Arc<str>, sequence: u64) {
        let mut partitions = self
            .partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut ready = Vec::new();
        partitions
            .entry((source, partition.clone()))
            .or_default()
            .take(sequence, None, &mut ready);
        self.write(&ready);
    }

    fn write(&self, ready: &[u8]) {
        if !ready.is_empty() {
            self.outcomes.write(ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use semel_core::law::Ending;
    use semel_core::{Code, Key, Part};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn outcomes(out: impl Write + Send + 'static) -> Arc<Outcomes> {
        Arc::new(Outcomes {
            out: Mutex::new(Some(Box::new(out))),
            failed: OnceLock::new(),
            shutdown: Shutdown::deaf(),
        })
    }

    fn orderly() -> (Orderly, Page) {
        let page = Page::default();
        let outcomes = outcomes(page.clone());
        (Orderly::new("wallet", &["ops".to_owned()], outcomes), page)
    }

    fn ended(partition: &str, sequence: u64) -> Ended {
        Ended {
            source: 0,
            sequence,
            partition: partition.into(),
            offset: Some(sequence + 1),
            id: Some(format!("id-{sequence}")),
            key: Some(Key::derive(&[Part::Text("x")]).unwrap()),
            ending: Ending {
                outcome: Outcome::Applied,
                code: None,
                awaiting: None,
                first: None,
            },
            redelivered: false,
        }
    }

    fn positions(page: &Page) -> Vec<String> {
        let bytes = page.0.lock().unwrap().clone();
        let lines = String::from_utf8(bytes).unwrap();
        let value = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        lines
            .lines()
            .map(value)
            .map(|line| {
                format!(
                    "{}:{}",
                    line["partition"].as_str().unwrap(),
                    line["position"]
                )
            })
            .collect()
    }

    #[test]
    fn lines_of_a_partition_wait_for_those_before_them_and_for_no_others() {
        let (orderly, page) = orderly();
        orderly.ended(&[ended("a", 2), ended("a", 1)]);
        assert_eq!(positions(&page), [""; 0]);
        orderly.ended(&[ended("b", 0)]);
        assert_eq!(positions(&page), ["b:1"]);
        orderly.ended(&[ended("a", 0)]);
        assert_eq!(positions(&page), ["b:1", "a:1", "a:2", "a:3"]);
    }

    #[test]
    fn a_delivery_that_went_back_leaves_no_line_and_holds_up_none() {
        let (orderly, page) = orderly();
        orderly.ended(&[ended("a", 1)]);
        orderly.passed(0, &"a".into(), 0);
        assert_eq!(positions(&page), ["a:2"]);
    }

    #[test]
    fn every_name_is_in_a_line_and_null_where_it_does_not_apply() {
        let mut duplicate = ended("a", 0);
        duplicate.ending = Ending {
            outcome: Outcome::Duplicate,
            code: None,
            awaiting: None,
            first: Some((Outcome::Refused, Some(Code::new("not_empty")))),
        };
        let text = String::from_utf8(line("wallet", "ops", &duplicate)).unwrap();
        let key = duplicate.key.unwrap();
        assert_eq!(
            text,
            format!(
                "{{\"consumer\":\"wallet\",\"source\":\"ops\",\"partition\":\"a\",\"position\":1,\"id\":\"id-0\",\"key\":\"{key}\",\
                 \"outcome\":\"duplicate\",\"code\":null,\"awaiting\":null,\"first\":{{\"outcome\":\"refused\",\"code\":\"not_empty\"}}}}\n"
            )
        );
        let text = String::from_utf8(line("wallet", "ops", &ended("a", 0))).unwrap();
        assert!(
            text.ends_with(
                "\"outcome\":\"applied\",\"code\":null,\"awaiting\":null,\"first\":null}\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_closed_pipe_ends_the_lines_alone_and_a_full_disk_the_run() {
        struct Broken(io::ErrorKind);
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for (kind, fails) in [
            (io::ErrorKind::BrokenPipe, false),
            (io::ErrorKind::StorageFull, true),
        ] {
            let outcomes = outcomes(Broken(kind));
            let orderly = Orderly::new("wallet", &["ops".to_owned()], outcomes.clone());
            orderly.ended(&[ended("a", 0)]);
            assert!(outcomes.out.lock().unwrap().is_none());
            orderly.ended(&[ended("a", 1)]);
            assert_eq!(outcomes.failed().is_some(), fails, "{kind}");
        }
    }
}
