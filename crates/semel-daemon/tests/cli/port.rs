//! The port for health checks and metrics: what it tells, and how soon it notices an outage and its end.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::brokers::{Rabbit, kafka_source};
use crate::place::{Backend, OPENING, Place, on_both, postgres_url};
use crate::proxy::{Mode, Proxy};
use crate::schema::assert_fits;

on_both!(the_metrics_are_those_of_the_page_and_count_what_happened);

/// No test may wait longer than this, whatever happens.
const BOUND: Duration = Duration::from_secs(120);

/// A run with its port open.
struct Served {
    child: Child,
    address: String,
    /// What it said since.
    heard: Arc<Mutex<Vec<String>>>,
}

impl Served {
    fn start(place: &Place) -> Self {
        let mut child = place
            .command(&["run"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
            if let Some((_, address)) = line.trim().split_once("metrics at http://") {
                break address.to_owned();
            }
        };
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let hearing = heard.clone();
        std::thread::spawn(move || {
            let lines = said.lines().map_while(Result::ok);
            lines.for_each(|line| hearing.lock().unwrap().push(line));
        });
        Self {
            child,
            address,
            heard,
        }
    }

    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address)
            .unwrap_or_else(|error| panic!("{error}; it said {:?}", self.heard.lock().unwrap()));
        let ask = format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    /// Asks until the answer is as wanted.
    #[track_caller]
    fn until(&self, path: &str, wanted: impl Fn(u16, &str) -> bool) {
        let since = Instant::now();
        loop {
            let (status, body) = self.get(path);
            if wanted(status, &body) {
                return;
            }
            assert!(since.elapsed() < BOUND, "{path}: {status} {body}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn until_ready(&self) {
        self.until("/readyz", |status, _| status == 200);
    }

    /// Waits until it is not ready, and says why.
    #[track_caller]
    fn until_red(&self) -> Value {
        self.until("/readyz", |status, _| status == 503);
        let red: Value = serde_json::from_str(&self.get("/readyz").1).unwrap();
        assert_fits("readyz", &red);
        red
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const HTTP: &str = "[http]\nlisten = \"127.0.0.1:0\"\n";

fn wallet_of(sources: &str, source: &str) -> String {
    format!(
        "{HTTP}{source}[consumers.wallet]\nsources = [{sources}]\nhandler = \"wallet\"\n\
         [consumers.wallet.wallet]\nassets = {{ EUR = 2 }}\n"
    )
}

/// The names on the page.
fn page() -> BTreeSet<String> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/metrics.md"
    );
    let page = std::fs::read_to_string(path).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `semel_"));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned())
        .collect()
}

fn the_metrics_are_those_of_the_page_and_count_what_happened(place: Place) {
    place.config(&wallet_of(
        "\"ops\", \"inbox\"",
        "[sources.ops]\ntype = \"file\"\npaths = [\"ops.jsonl\"]\n\
         [sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\n",
    ));
    let refused =
        r#"{"op":"transfer","id":"t1","debit":"p2","credit":"p1","asset":"EUR","amount":"1"}"#;
    let clash = OPENING[4].replace("1000", "9");
    let early = r#"{"op":"win","id":"w","round":"r","account":"p1","asset":"EUR","amount":"1"}"#;
    let lines = [refused, &clash, "broken", early];
    place.write_lines("ops.jsonl", OPENING.into_iter().chain(lines));
    place.write_lines("again.jsonl", OPENING);
    place.semel(&["publish", "inbox", "again.jsonl"]).ok();
    let served = Served::start(&place);
    served.until_ready();
    assert_fits(
        "readyz",
        &serde_json::from_str(&served.get("/readyz").1).unwrap(),
    );
    assert_eq!(served.get("/healthz"), (200, "alive\n".to_owned()));
    assert_eq!(served.get("/elsewhere").0, 404);
    let has = |line: &str| {
        served.until("/metrics", |_, text| text.lines().any(|one| one == line));
    };
    // Of each operation's two copies either may have been the first.
    for (outcome, count) in [
        ("applied", 5),
        ("duplicate", 5),
        ("refused", 1),
        ("dead", 2),
        ("parked", 1),
    ] {
        has(&format!(
            "semel_messages_total{{consumer=\"wallet\",outcome=\"{outcome}\"}} {count}"
        ));
    }
    has("semel_clashes_total{consumer=\"wallet\"} 1");
    has("semel_new_dead_letters_total{consumer=\"wallet\"} 2");
    has("semel_dead_letters{consumer=\"wallet\"} 2");
    has("semel_parked{consumer=\"wallet\"} 1");
    has("semel_lag_messages{consumer=\"wallet\",source=\"inbox\",partition=\"inbox\"} 0");
    has("semel_lag_bytes{consumer=\"wallet\",source=\"ops\",partition=\"ops.jsonl\"} 0");
    has("semel_store_up 1");
    has("semel_source_up{consumer=\"wallet\",source=\"ops\"} 1");
    has("semel_paused{consumer=\"wallet\",reason=\"store\"} 0");
    let text = served.get("/metrics").1;
    let told: BTreeSet<String> = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned()))
        .collect();
    assert_eq!(told, page(), "{text}");
    let units = "semel_unit_seconds_count{consumer=\"wallet\"} ";
    let units = text.lines().find_map(|line| line.strip_prefix(units));
    assert!(units.unwrap().parse::<u64>().unwrap() > 0, "{text}");
}

#[test]
fn a_source_that_goes_away_is_told_and_its_return_too() {
    let place = Place::new(Backend::Sqlite);
    place.write_lines("ops.jsonl", OPENING);
    place.config(&wallet_of(
        "\"ops\", \"inbox\"",
        "[sources.ops]\ntype = \"file\"\npaths = [\"ops.jsonl\"]\n\
         [sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\n",
    ));
    let served = Served::start(&place);
    served.until_ready();
    std::fs::rename(place.path().join("ops.jsonl"), place.path().join("gone")).unwrap();
    let red = served.until_red();
    let sources = red["consumers"][0]["sources"].as_array().unwrap();
    let ops = sources
        .iter()
        .find(|source| source["name"] == "ops")
        .unwrap();
    assert!(
        ops["why"].as_str().unwrap().contains("`ops.jsonl`"),
        "{red}"
    );
    served.until("/metrics", |_, text| {
        text.contains("semel_paused{consumer=\"wallet\",reason=\"source\"} 1\n")
    });
    std::fs::rename(place.path().join("gone"), place.path().join("ops.jsonl")).unwrap();
    served.until_ready();
}

#[test]
fn a_database_that_is_cut_off_or_silent_is_told_and_its_return_too() {
    let place = Place::new(Backend::Postgres);
    let url = postgres_url();
    let (before, rest) = url.split_once('@').unwrap();
    let (server, after) = rest.split_once('/').unwrap();
    let proxy = Proxy::to(server);
    place.config(&wallet_of(
        "\"inbox\"",
        "[sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\nurl = \"sqlite:queue.db\"\n",
    ));
    let through = format!("{before}@{}/{after}", proxy.address);
    place.write(
        "semel.toml",
        place.read("semel.toml").replace(&url, &through),
    );
    let served = Served::start(&place);
    served.until_ready();
    for mode in [Mode::Cut, Mode::Silent] {
        proxy.set(mode);
        // A lane may tell that it waits before the store is asked.
        served.until_red();
        served.until("/readyz", |status, text| {
            status == 503 && text.contains(r#""store":{"up":false"#)
        });
        assert_eq!(served.get("/healthz").0, 200, "{mode:?}");
        served.until("/metrics", |_, text| {
            text.contains("semel_store_up 0\n")
                && text.contains("semel_paused{consumer=\"wallet\",reason=\"store\"} 1\n")
        });
        proxy.set(Mode::Open);
        served.until_ready();
    }
    // And it works: what comes now is applied.
    place.write_lines("ops.jsonl", OPENING);
    place.semel(&["publish", "inbox", "ops.jsonl"]).ok();
    served.until("/metrics", |_, text| {
        text.contains("semel_messages_total{consumer=\"wallet\",outcome=\"applied\"} 5\n")
    });
}

#[test]
fn a_rabbitmq_that_is_cut_off_or_silent_is_told_and_its_return_too() {
    let place = Place::new(Backend::Sqlite);
    let rabbit = Rabbit::queue("port");
    let (before, rest) = rabbit.url.split_once('@').unwrap();
    let (server, after) = rest.split_once('/').unwrap_or((rest, ""));
    let proxy = Proxy::to(server);
    let url = format!("{before}@{}/{after}", proxy.address);
    place.config(&wallet_of(
        "\"bets\"",
        &format!(
            "[sources.bets]\ntype = \"rabbitmq\"\nurl = \"{url}\"\nqueue = \"{}\"\n",
            rabbit.queue
        ),
    ));
    let served = Served::start(&place);
    served.until_ready();
    for mode in [Mode::Cut, Mode::Silent] {
        proxy.set(mode);
        let red = served.until_red();
        assert_eq!(red["store"]["up"], true, "{mode:?}: {red}");
        let source = &red["consumers"][0]["sources"][0];
        assert_eq!(source["up"], false, "{mode:?}: {red}");
        proxy.set(Mode::Open);
        served.until_ready();
    }
    place.write_lines("ops.jsonl", OPENING);
    place.semel(&["publish", "bets", "ops.jsonl"]).ok();
    served.until("/metrics", |_, text| {
        text.contains("semel_messages_total{consumer=\"wallet\",outcome=\"applied\"} 5\n")
    });
}

#[test]
fn a_kafka_that_is_away_is_told_and_its_return_too() {
    let cluster = rdkafka::mocking::MockCluster::new(1).unwrap();
    cluster.create_topic("bets", 1, 1).unwrap();
    let place = Place::new(Backend::Sqlite);
    let source = kafka_source("bets", &cluster.bootstrap_servers(), "bets");
    place.config(&wallet_of("\"bets\"", &source));
    let served = Served::start(&place);
    served.until_ready();
    cluster.broker_down(1).unwrap();
    let red = served.until_red();
    assert_eq!(red["store"]["up"], true, "{red}");
    let why = red["consumers"][0]["sources"][0]["why"].as_str().unwrap();
    assert!(why.contains("kafka"), "{why}");
    cluster.broker_up(1).unwrap();
    served.until_ready();
}

#[test]
fn t85_there_is_no_port_without_its_table_and_none_that_others_reach_unless_it_is_allowed() {
    let place = Place::new(Backend::Sqlite);
    place.wallet("");
    place.write("ops.jsonl", "");
    let ran = place.semel(&["run", "--until-idle"]).ok();
    assert!(!ran.err.contains("http://"), "{}", ran.err);
    let tables = place.read("semel.toml");
    let listen = |more: &str| format!("{tables}[http]\nlisten = \"0.0.0.0:0\"\n{more}");
    place.write("semel.toml", listen(""));
    let ran = place.semel(&["run", "--until-idle"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("allow_remote = true"), "{}", ran.err);
    place.write("semel.toml", listen("allow_remote = true\n"));
    let ran = place.semel(&["run", "--until-idle"]).ok();
    assert!(ran.err.contains("http://0.0.0.0:"), "{}", ran.err);
}

#[test]
fn an_address_that_is_taken_is_exit_code_3() {
    let place = Place::new(Backend::Sqlite);
    place.wallet("");
    place.write("ops.jsonl", "");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let tables = place.read("semel.toml");
    place.write(
        "semel.toml",
        format!("{tables}[http]\nlisten = \"{address}\"\n"),
    );
    let ran = place.semel(&["run", "--until-idle"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("http.listen"), "{}", ran.err);
    assert!(ran.err.contains("its own `listen`"), "{}", ran.err);
}
