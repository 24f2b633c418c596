//! The wallet's published vectors through the whole program, file in and outcome lines out.

use serde_json::{Value, json};

use crate::place::{Backend, Place};

fn vectors() -> Vec<Value> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../semel-wallet/tests/vectors/wallet.json"
    );
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn place_of(case: &Value, backend: Backend) -> Place {
    let place = Place::new(backend);
    let lines = case["ops"].as_array().unwrap().iter().map(|op| match op {
        Value::String(line) => line.clone(),
        op => op.to_string(),
    });
    place.write_lines("ops.jsonl", lines);
    let assets = case["assets"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(code, scale)| format!("{code} = {scale}"));
    place.config(&format!(
        "[sources.ops]\ntype = \"file\"\npaths = [\"ops.jsonl\"]\n\
         [consumers.wallet]\nsources = [\"ops\"]\nhandler = \"wallet\"\n\
         [consumers.wallet.wallet]\nassets = {{ {} }}\nhouse = {}\n",
        assets.collect::<Vec<_>>().join(", "),
        case["house"]
    ));
    place
}

/// Outcome with its code, or with what a parked message waits for.
fn ending(line: &Value) -> Value {
    let why = if line["outcome"] == "parked" {
        &line["awaiting"]
    } else {
        &line["code"]
    };
    json!([line["outcome"], why])
}

/// What the same file gives when it is read from its start again.
fn again(first: &Value) -> Value {
    if first[0] == "dead" {
        first.clone()
    } else {
        json!(["duplicate", null])
    }
}

fn runs_as_published(case: &Value, backend: Backend) {
    let (name, place) = (&case["name"], place_of(case, backend));
    let (lines, _) = place.drained(&[]);
    let endings: Vec<Value> = lines.iter().map(ending).collect();
    assert_eq!(json!(endings), case["expect"], "{name}");
    for (account, posted) in case["balances"].as_object().unwrap() {
        let balance = place.json(&["balance", account]).ok().object();
        assert_eq!(balance["posted"], *posted, "{name}: {account}");
    }
    for (id, expected) in case["after_idle"].as_object().into_iter().flatten() {
        let shown = place.json(&["show", id]).ok().object();
        assert_eq!(
            json!([shown["outcome"], shown["code"]]),
            *expected,
            "{name}: {id}"
        );
        assert_eq!(
            shown["sightings"],
            json!([]),
            "{name}: {id} was released and not delivered again"
        );
    }
    if let Some(field) = case.get("reused_field") {
        let letters = place
            .json(&["dead", "list", "--code", "key_reused"])
            .ok()
            .lines();
        assert_eq!(letters[0]["field"], *field, "{name}");
    }
    let audit = place.json(&["audit"]).ok().object();
    assert_eq!(audit["ok"], true, "{name}: {audit}");

    let (lines, summary) = place.drained(&[]);
    assert!(
        lines.is_empty() && summary["messages"] == 0,
        "{name}: a second run reads nothing: {lines:?}"
    );
    let letters = place.json(&["dead", "list"]).ok().lines().len();
    let (lines, _) = place.drained(&["--from-start"]);
    let endings: Vec<Value> = lines.iter().map(ending).collect();
    let expected: Vec<Value> = case["expect"]
        .as_array()
        .unwrap()
        .iter()
        .map(again)
        .collect();
    assert_eq!(
        endings, expected,
        "{name}: from the start again, nothing is applied"
    );
    let same = place.json(&["dead", "list"]).ok().lines().len();
    assert_eq!(
        same, letters,
        "{name}: the same dead again are counted and are no new letters"
    );
}

fn all_run_as_published(backend: Backend) {
    let vectors = vectors();
    assert!(vectors.len() >= 28, "the vectors are there");
    // Two at once: a program waits for its database most of the time.
    std::thread::scope(|scope| {
        for half in vectors.chunks(vectors.len().div_ceil(2)) {
            scope.spawn(move || {
                half.iter()
                    .for_each(|case| runs_as_published(case, backend))
            });
        }
    });
}

#[test]
fn every_vector_ends_as_published_on_sqlite() {
    all_run_as_published(Backend::Sqlite);
}

#[test]
fn every_vector_ends_as_published_on_postgres() {
    all_run_as_published(Backend::Postgres);
}
