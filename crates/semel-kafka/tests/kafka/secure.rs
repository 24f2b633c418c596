//! Who the broker is and who we are: TLS, passwords and certificates, against a broker that asks for them.

use std::path::PathBuf;
use std::sync::Arc;

use semel_core::source::NoPositions;
use semel_core::{Class, Fault, Outgoing, Sink};
use semel_kafka::{ClientOptions, KafkaOptions, KafkaSink, KafkaSinkOptions, KafkaSource, inspect};
use tokio::task::JoinSet;

use crate::bed::*;

/// A listener, and what a client says there.
#[derive(Debug, Clone)]
struct Client {
    brokers: String,
    options: ClientOptions,
    secrets: ClientOptions,
}

/// The listener that asks for a password.
fn password_brokers() -> String {
    env("SEMEL_TEST_KAFKA_PASSWORD_BROKERS")
}

/// The listener that asks for a certificate.
fn certificate_brokers() -> String {
    env("SEMEL_TEST_KAFKA_CERTIFICATE_BROKERS")
}

fn file(name: &str) -> String {
    let folder = PathBuf::from(env("SEMEL_TEST_KAFKA_TLS"));
    folder.join(name).display().to_string()
}

fn with_password(mechanism: &str) -> Client {
    Client {
        brokers: password_brokers(),
        options: ClientOptions::default()
            .with("security.protocol", "sasl_ssl")
            .with("ssl.ca.location", file("ca.pem"))
            .with("sasl.mechanism", mechanism)
            .with("sasl.username", "semel"),
        secrets: ClientOptions::default().with("sasl.password", "semel"),
    }
}

fn with_certificate() -> Client {
    Client {
        brokers: certificate_brokers(),
        options: ClientOptions::default()
            .with("security.protocol", "ssl")
            .with("ssl.ca.location", file("ca.pem"))
            .with("ssl.certificate.location", file("client.pem"))
            .with("ssl.key.location", file("client.key")),
        secrets: ClientOptions::default(),
    }
}

impl Client {
    fn at(self, brokers: String) -> Self {
        Self { brokers, ..self }
    }

    fn option(mut self, name: &str, value: impl Into<String>) -> Self {
        self.options = self.options.with(name, value);
        self
    }

    fn secret(mut self, name: &str, value: &str) -> Self {
        self.secrets = self.secrets.with(name, value);
        self
    }

    fn source(&self, topic: &str) -> KafkaOptions {
        KafkaOptions {
            brokers: vec![self.brokers.clone()],
            options: self.options.clone(),
            secrets: self.secrets.clone(),
            ..options(topic, &fresh("g"))
        }
    }

    fn sink(&self, topic: &str) -> KafkaSinkOptions {
        KafkaSinkOptions {
            options: self.options.clone(),
            secrets: self.secrets.clone(),
            ..KafkaSinkOptions::new([&self.brokers], topic)
        }
    }
}

/// Everything that connects: a sink, a source, and an operator's look.
async fn goes_there_and_back(client: &Client) {
    let topic = topic("secure", 1).await;
    let sink = KafkaSink::open(client.sink(&topic)).await.unwrap();
    let sent = Outgoing {
        key: None,
        payload: Some("kept".into()),
        headers: Vec::new(),
        message_key: None,
    };
    sink.publish(&[sent]).await.unwrap();
    let worker = Worker::open(client.source(&topic), &Arc::default()).await;
    assert_eq!(worker.drain().await, ["kept"]);
    worker.close().await;
    let reports = inspect(&client.source(&topic), Arc::new(NoPositions)).await;
    assert_eq!(reports.unwrap()[0].high, 1);
}

#[tokio::test]
async fn passwords_by_plain_and_scram_pass_over_tls() {
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        goes_there_and_back(&with_password(mechanism)).await;
    }
}

#[tokio::test]
async fn a_client_is_known_by_its_certificate() {
    goes_there_and_back(&with_certificate()).await;
    let locked = with_certificate()
        .option("ssl.key.location", file("client-locked.key"))
        .secret("ssl.key.password", "semel");
    goes_there_and_back(&locked).await;
}

async fn source_refused(client: Client, topic: String) -> Fault {
    let opened = KafkaSource::open(client.source(&topic), Arc::new(NoPositions)).await;
    opened.map(drop).expect_err("no entry")
}

async fn sink_refused(client: Client, topic: String) -> Fault {
    KafkaSink::open(client.sink(&topic))
        .await
        .expect_err("no entry")
}

/// Source and sink are refused, and told which setting to look at.
async fn refused(client: Client, topic: String, class: Class, setting: &'static str) {
    let (source, sink) = tokio::join!(
        source_refused(client.clone(), topic.clone()),
        sink_refused(client.clone(), topic)
    );
    for fault in [source, sink] {
        assert_eq!(fault.class, class, "{client:?}: {fault}");
        let said = fault.detail();
        assert!(said.contains(setting), "`{setting}`: {client:?}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_refused_is_told_which_setting_to_look_at() {
    let stranger = with_certificate()
        .option("ssl.certificate.location", file("stranger.pem"))
        .option("ssl.key.location", file("stranger.key"));
    let nobody = Client {
        options: ClientOptions::default()
            .with("security.protocol", "ssl")
            .with("ssl.ca.location", file("ca.pem")),
        ..with_certificate()
    };
    let plain = Client {
        options: ClientOptions::default(),
        ..with_certificate()
    };
    let wrong = |mechanism| with_password(mechanism).secret("sasl.password", "hunter2");
    let trusts_another = with_certificate().option("ssl.ca.location", file("stranger.pem"));
    let cases = [
        (wrong("PLAIN"), Class::Stop, "`sasl.password`"),
        (wrong("SCRAM-SHA-256"), Class::Stop, "`sasl.password`"),
        (wrong("SCRAM-SHA-512"), Class::Stop, "`sasl.password`"),
        (trusts_another, Class::Stop, "`ssl.ca.location`"),
        (stranger, Class::Stop, "`ssl.certificate.location`"),
        (nobody, Class::Stop, "`ssl.certificate.location`"),
        (plain.clone(), Class::Down, "`security.protocol`"),
        (
            plain.at(password_brokers()),
            Class::Down,
            "`security.protocol`",
        ),
        (
            with_certificate().at(brokers()),
            Class::Down,
            "`security.protocol`",
        ),
        (
            with_password("PLAIN").at(brokers()),
            Class::Down,
            "`security.protocol`",
        ),
    ];

    let topic = topic("refused", 1).await;
    let mut all = JoinSet::new();
    for (client, class, setting) in cases {
        all.spawn(refused(client, topic.clone(), class, setting));
    }
    all.join_all().await;
}
