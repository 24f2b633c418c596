//! What must be done to the broker itself: killed, stopped, made impatient. It happens to a node of this
//! test's own, so that nobody else's is disturbed; one test after the other, in one.

#![allow(clippy::unwrap_used, reason = "tests: a failure is the answer")]

mod support;

use std::path::PathBuf;
use std::process::Command;

use semel_core::{Class, Outgoing, Sink};
use semel_rabbitmq::{
    Declare, RabbitOptions, RabbitSink, RabbitSinkOptions, RabbitSource, Refusal, Tls,
};
use support::{
    Admin, ack, brisk, drained, numbers, open, receive, tally, texts, told_down, until, url_at,
    within,
};

/// A second set of services: the script keeps everything beside itself and takes free ports.
struct Node(tempfile::TempDir);

impl Node {
    fn start() -> Self {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services");
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("scripts")).unwrap();
        std::fs::copy(script, folder.path().join("scripts/services")).unwrap();
        let node = Self(folder);
        node.run(&["start", "rabbitmq"]);
        node
    }

    fn run(&self, words: &[&str]) -> String {
        let output = Command::new(self.0.path().join("scripts/services"))
            .args(words)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn url(&self) -> String {
        let env = self.run(&["env"]);
        let line = env
            .lines()
            .find_map(|line| line.strip_prefix("export SEMEL_TEST_RABBITMQ_URL='"));
        line.expect("it runs").trim_end_matches('\'').to_owned()
    }

    /// Asks the node's own console.
    fn eval(&self, expression: &str) {
        let status = std::fs::read_to_string(self.0.path().join(".services/port-base")).unwrap();
        let base: u16 = status.trim().parse().unwrap();
        let home = self.0.path().join(".services/rabbitmq");
        let output = Command::new("/usr/lib/rabbitmq/bin/rabbitmqctl")
            .args(["-n", "semel@localhost", "eval", expression])
            .env("HOME", home)
            .env("ERL_EPMD_PORT", (base + 58).to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let failed = !output.status.success() || said.contains("error");
        assert!(!failed, "{expression}: {said}");
    }
}

impl Node {
    /// Opens a TLS listener; returns its options for a client that it trusts.
    fn listen_with_tls(&self, queue: &str) -> RabbitOptions {
        let port = {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap().port()
        };
        let folder = self.0.path();
        let script = include_str!("tls.erl");
        let script = script.replace("FOLDER", folder.to_str().unwrap());
        self.eval(&script.replace("PORT", &port.to_string()));
        let tls = Tls {
            ca_file: Some(folder.join("ca.pem")),
            cert_file: Some(folder.join("cert.pem")),
            key_file: Some(folder.join("key.pem")),
        };
        let url = url_at(&self.url(), port).replacen("amqp://", "amqps://", 1);
        RabbitOptions {
            tls,
            ..brisk(&url.replacen("127.0.0.1", "localhost", 1), queue)
        }
    }
}

impl Node {
    /// Leaves a quorum queue as a kill of the node within its first second does: the name of its member is lost, so
    /// the start makes a new one, which nobody tells to lead.
    fn unlead(&self, queue: &str) {
        self.eval(&format!(
            "{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{queue}\">>)),
             ok = ra:force_delete_server(quorum_queues, amqqueue:get_pid(Q)),
             {{[_], []}} = rabbit_quorum_queue:recover(<<\"/\">>, [Q]), ok."
        ));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.run(&["kill", "rabbitmq"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e034_t46_a_killed_or_impatient_broker_loses_nothing_and_tls_knows_whom_it_talks_to() {
    let node = tokio::task::spawn_blocking(Node::start).await.unwrap();
    let url = node.url();
    // T46, made quick: what is unsettled for a second costs the channel.
    node.eval("application:set_env(rabbit, consumer_timeout, 1000), application:set_env(rabbit, channel_tick_interval, 500).");
    let admin = Admin::connect_to(&url).await;
    let queue = admin.queue("node", "quorum").await;
    admin.publish(&queue, numbers(0, 20)).await;
    let source = open(brisk(&url, &queue)).await;
    let slow = receive(&source, 20).await;
    let again = receive(&source, 20).await;
    assert!(
        again[0].receipt.generation() > slow[0].receipt.generation(),
        "t46: another channel"
    );
    assert_eq!(tally(&again), tally(&slow));
    assert_eq!(ack(&source, slow).await, 20);
    assert_eq!(ack(&source, again).await, 0);
    drained(&source).await;

    // An operator closes all connections, again and again: a thousand forced redeliveries.
    node.eval("application:set_env(rabbit, consumer_timeout, 1800000).");
    admin.publish(&queue, numbers(1_000, 1_250)).await;
    for _ in 0..4 {
        let out = receive(&source, 250).await;
        assert_eq!(tally(&out).len(), 250);
        let generation = out[0].receipt.generation();
        node.eval("rabbit_networking:close_all_connections(\"for a test\").");
        until("another channel", || async {
            source.status().generation > generation
        })
        .await;
        assert_eq!(ack(&source, out).await, 250);
    }
    let last = receive(&source, 250).await;
    assert_eq!(tally(&last).len(), 250);
    assert_eq!(ack(&source, last).await, 0);
    drained(&source).await;

    // E034: killed with deliveries out, and started again. The queue is older than its unsafe first second.
    let admin = Admin::connect_to(&url).await;
    admin.publish(&queue, numbers(30, 40)).await;
    let out = receive(&source, 10).await;
    node.run(&["kill", "rabbitmq"]);
    told_down(&source).await;
    assert_eq!(ack(&source, out).await, 10);
    assert!(source.status().away.is_some());
    node.run(&["start", "rabbitmq"]);
    let admin = Admin::connect_to(&url).await;
    admin.publish(&queue, numbers(40, 41)).await;
    let again = receive(&source, 11).await;
    assert_eq!(texts(&again), numbers(30, 41).collect::<Vec<_>>());
    assert_eq!(ack(&source, again).await, 0);
    drained(&source).await;
    assert_eq!(source.status().away, None);
    source.close().await;

    // A quorum queue that is there and has no leader.
    let lost = RabbitOptions {
        declare: Declare::Quorum,
        ..brisk(&url, &Admin::name("lost"))
    };
    let source = open(lost.clone()).await;
    source.close().await;
    node.unlead(&lost.queue);
    let fault = within("a refusal", RabbitSource::open(lost.clone()))
        .await
        .expect_err("nobody can consume it");
    assert!(
        matches!(
            fault.error.downcast_ref(),
            Some(Refusal::StuckQueue { queue, .. }) if *queue == lost.queue
        ),
        "{fault}"
    );
    let to_lost = RabbitSinkOptions {
        confirm_timeout_ms: 5_000,
        ..RabbitSinkOptions::to_queue(&url, &lost.queue)
    };
    let sink = RabbitSink::open(to_lost).await.unwrap();
    let letter = Outgoing {
        key: None,
        payload: Some("1".into()),
        headers: Vec::new(),
        message_key: None,
    };
    let fault = within("an answer", sink.publish(std::slice::from_ref(&letter)))
        .await
        .expect_err("nobody keeps it");
    assert!(fault.to_string().contains("quorum_status"), "{fault}");
    // What its page tells to do.
    admin.delete(&lost.queue).await;
    let source = open(lost).await;
    within("a confirm", sink.publish(&[letter])).await.unwrap();
    let one = receive(&source, 1).await;
    assert_eq!(
        (texts(&one), ack(&source, one).await),
        (vec!["1".to_owned()], 0)
    );
    source.close().await;

    // TLS, both sides known to each other by certificate.
    let secure = node.listen_with_tls(&queue);
    admin.publish(&queue, numbers(41, 42)).await;
    let source = open(secure.clone()).await;
    let again = receive(&source, 1).await;
    assert_eq!(
        (texts(&again), ack(&source, again).await),
        (vec!["41".to_owned()], 0)
    );
    drained(&source).await;
    source.close().await;
    let strangers = [
        RabbitOptions {
            tls: Tls::default(),
            ..secure.clone()
        },
        RabbitOptions {
            url: secure.url.replacen("localhost", "127.0.0.1", 1),
            ..secure.clone()
        },
        RabbitOptions {
            tls: Tls {
                cert_file: None,
                key_file: None,
                ..secure.tls.clone()
            },
            ..secure.clone()
        },
        RabbitOptions {
            url: url.replacen("amqp://", "amqps://", 1),
            ..secure.clone()
        },
    ];
    for stranger in strangers {
        let fault = within("a refusal", RabbitSource::open(stranger))
            .await
            .expect_err("no trust");
        assert_eq!(fault.class, Class::Down);
        assert!(
            matches!(fault.error.downcast_ref(), Some(Refusal::Tls { .. })),
            "{fault}"
        );
    }
    let readable = RabbitOptions {
        url: secure.url.replacen("amqps://", "amqp://", 1),
        tls: Tls::default(),
        ..secure
    };
    let fault = within("a refusal", RabbitSource::open(readable))
        .await
        .expect_err("no AMQP there");
    assert!(fault.detail().contains("amqps://"), "{fault}");
}
