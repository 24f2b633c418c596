//! A broker that asks who comes: passwords and certificates as a config names them.

use serde_json::Value;

use crate::brokers::Topic;
use crate::place::{Backend, OPENING, Place};

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run scripts/test"))
}

/// A wallet that reads a topic by the listener that wants a password.
fn with_password(place: &Place, topic: &Topic, password: &str) {
    let (brokers, tls) = (
        env("SEMEL_TEST_KAFKA_PASSWORD_BROKERS"),
        env("SEMEL_TEST_KAFKA_TLS"),
    );
    let source = topic.source("ops").replace(&topic.brokers, &brokers);
    place.write("password", password);
    place.config(&format!(
        "{source}\n[sources.ops.options]\n\"security.protocol\" = \"sasl_ssl\"\n\"sasl.mechanism\" = \"SCRAM-SHA-512\"\n\
         \"sasl.username\" = \"semel\"\n\"ssl.ca.location\" = \"{tls}/ca.pem\"\n\
         [sources.ops.secrets]\n\"sasl.password\" = {{ file = \"password\" }}\n\
         [consumers.wallet]\nsources = [\"ops\"]\nhandler = \"wallet\"\n\
         [consumers.wallet.wallet]\nassets = {{ EUR = 2, JPY = 0, BTC = 8 }}\n"
    ));
}

/// The one error that `check --connect` finds.
fn error(place: &Place) -> Value {
    let ran = place.json(&["check", "--connect"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let found = ran.object();
    let errors = found["findings"].as_array().unwrap().iter();
    let errors: Vec<_> = errors.filter(|found| found["level"] == "error").collect();
    assert_eq!(errors.len(), 1, "{found}");
    errors[0].clone()
}

#[test]
fn a_kafka_that_asks_for_a_password_over_tls_is_read_and_published_to() {
    let place = Place::new(Backend::Sqlite);
    let topic = Topic::with("secure", &[]);
    with_password(&place, &topic, "semel");
    assert_eq!(
        place.json(&["check", "--connect"]).ok().object()["ok"],
        true
    );
    place.write_lines("ops.jsonl", OPENING);
    place.semel(&["publish", "ops", "ops.jsonl"]).ok();
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["applied"], OPENING.len(), "{summary}");
}

#[test]
fn a_wrong_password_and_an_unknown_authority_are_told_by_their_settings() {
    let place = Place::new(Backend::Sqlite);
    let topic = Topic::with("secure", &[]);
    with_password(&place, &topic, "hunter2");
    let wrong_password = place.read("semel.toml");
    let unknown_authority = wrong_password.replace("ca.pem", "stranger.pem");
    for (config, setting) in [
        (wrong_password, "`sasl.password`"),
        (unknown_authority, "`ssl.ca.location`"),
    ] {
        place.write("semel.toml", config);
        let found = error(&place);
        assert_eq!(found["where"], "semel.toml:3", "{found}");
        let ran = place.semel(&["run", "--until-idle"]);
        assert_eq!(ran.code, 3, "{ran:?}");
        for said in [found["message"].as_str().unwrap(), &ran.err] {
            assert!(said.contains(setting), "{setting}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
