//! `examples/three-sources` on the real brokers: what comes by Kafka, by RabbitMQ and by file is one operation.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::brokers::{Rabbit, Topic};
use crate::place::{Backend, Place};

/// The example's files, and its variables.
fn example(place: &Place, topic: &Topic, rabbit: &Rabbit) -> Vec<(&'static str, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/three-sources");
    for name in ["semel.toml", "ops.jsonl", "run"] {
        std::fs::copy(format!("{folder}/{name}"), place.path().join(name)).unwrap();
    }
    vec![
        ("KAFKA_BROKERS", topic.brokers.clone()),
        ("TOPIC", topic.name.clone()),
        ("RABBITMQ_URL", rabbit.url.clone()),
        ("QUEUE", rabbit.queue.clone()),
    ]
}

#[test]
fn one_operation_by_three_ways_is_one_operation() {
    let place = Place::new(Backend::Sqlite);
    let (topic, rabbit) = (Topic::with("three", &[]), Rabbit::queue("three"));
    let variables = example(&place, &topic, &rabbit);
    // As a reader runs it: `semel` is found on the PATH.
    let folder = Path::new(env!("CARGO_BIN_EXE_semel")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let run = Command::new("bash")
        .arg(place.path().join("run"))
        .envs(variables.clone())
        .env_remove("SEMEL")
        .env("PATH", path)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&run.stderr),
    );
    assert!(run.status.success(), "{out}\n{err}");
    assert!(out.contains("6 duplicate"), "{out}");
    assert!(out.contains("anna: 2500 EUR"), "{out}");
    let (_, shown) = out.split_once("== semel show").unwrap();
    for source in ["topic", "bets", "ops"] {
        assert!(shown.contains(source), "{source}: {shown}");
    }
    let mut show = place.command(&["show", "pay-88", "--json"]);
    let shown = show.envs(variables).output().unwrap().stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!(
        (&shown["outcome"], &shown["source"]),
        (&json!("applied"), &json!("ops"))
    );
    let sightings = shown["sightings"].as_array().unwrap();
    let seen: BTreeSet<&str> = sightings
        .iter()
        .map(|sighting| sighting["source"].as_str().unwrap())
        .collect();
    assert_eq!(seen, BTreeSet::from(["bets", "topic"]), "{shown}");
}
