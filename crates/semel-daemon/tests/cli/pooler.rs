//! The program behind a real PgBouncer that lends four sessions for a transaction at a time (TRAPS T22).

use serde_json::{Value, json};

use crate::doctor::{codes, doctor};
use crate::place::{Backend, OPENING, Place, postgres_url};

/// The pooler, with a pool that is this test's own.
fn pooler_url(place: &Place) -> String {
    let url = std::env::var("SEMEL_TEST_PGBOUNCER_URL")
        .expect("SEMEL_TEST_PGBOUNCER_URL is not set: run scripts/test");
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{}", place.schema().unwrap())
}

/// A wallet behind the pooler; `pooler` is the line that tells of it, `more` are lines of its consumer.
fn wallet(place: &Place, pooler: &str, more: &str) {
    place.wallet(more);
    let config = place.read("semel.toml").replace(
        &format!("url = \"{}\"\n", postgres_url()),
        &format!("url = \"{}\"\n{pooler}\n", pooler_url(place)),
    );
    assert!(config.contains(&pooler_url(place)), "{config}");
    place.write("semel.toml", config);
}

const TOLD: &str = "pooler = \"transaction\"";

#[test]
fn t22_a_file_of_copies_on_four_lanes_behind_a_pooler_ends_with_the_right_balances() {
    const PLAYERS: i64 = 12;
    const ROUNDS: i64 = 25;
    let place = Place::new(Backend::Postgres);
    wallet(
        &place,
        TOLD,
        "lane = \"/credit\"\nlanes = 4\nbatch_count_max = 20",
    );
    let open = |n: i64| {
        format!(r#"{{"op":"open_account","id":"open-x{n}","account":"x{n}","asset":"EUR"}}"#)
    };
    let opening = OPENING.into_iter().map(str::to_owned);
    place.write_lines("ops.jsonl", opening.chain((0..PLAYERS).map(open)));
    place.drained(&[]);
    let all = ROUNDS * PLAYERS;
    let pay = |n: i64| {
        let (player, amount) = (n % PLAYERS, n % 7 + 1);
        format!(
            r#"{{"op":"transfer","id":"pay-{n}","debit":"bank","credit":"x{player}","asset":"EUR","amount":"{amount}"}}"#
        )
    };
    // Once in order, and twice the other way round.
    let copies = (0..2).flat_map(|_| (0..all).rev());
    let payments = (0..all).chain(copies).map(pay);
    place.write_lines("more.jsonl", payments);
    let config = place.read("semel.toml");
    place.write("semel.toml", config.replace("ops.jsonl", "more.jsonl"));
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["applied"], all, "{summary:#}");
    assert_eq!(summary["outcomes"]["duplicate"], 2 * all, "{summary:#}");
    for player in 0..PLAYERS {
        let owed: i64 = (0..all)
            .filter(|n| n % PLAYERS == player)
            .map(|n| n % 7 + 1)
            .sum();
        let account = format!("x{player}");
        let balance = place.json(&["balance", &account]).ok().object();
        assert_eq!(balance["posted"], owed.to_string(), "{balance:#}");
    }
    let audit = place.json(&["audit"]).ok().object();
    assert_eq!(audit["ok"], true, "{audit:#}");
    assert_eq!(codes(&doctor(&place)), Vec::<String>::new());
    let shown = place.json(&["show", "pay-7"]).ok().object();
    assert_eq!(shown["sightings"][0]["count"], 2, "{shown:#}");
}

#[test]
fn t22_a_queue_behind_a_pooler_is_published_and_drained() {
    let place = Place::new(Backend::Postgres);
    wallet(&place, TOLD, "");
    let config = place.read("semel.toml").replace(
        "type = \"file\"\npaths = [\"ops.jsonl\"]",
        "type = \"queue\"\nname = \"ops\"",
    );
    place.write("semel.toml", config);
    place.write_lines("ops.jsonl", OPENING);
    place.semel(&["publish", "ops", "ops.jsonl"]).ok();
    place.semel(&["publish", "ops", "ops.jsonl"]).ok();
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["applied"], 5, "{summary:#}");
    assert_eq!(summary["outcomes"]["duplicate"], 5, "{summary:#}");
    let balance = place.json(&["balance", "p1"]).ok().object();
    assert_eq!(balance["posted"], "1000", "{balance:#}");
}

#[test]
fn t22_a_pooler_that_the_config_does_not_tell_of_is_refused_and_explained() {
    let place = Place::new(Backend::Postgres);
    wallet(&place, "", "");
    place.write_lines("ops.jsonl", OPENING);
    for command in [
        &["run", "--until-idle"][..],
        &["migrate"],
        &["balance", "p1"],
    ] {
        let ran = place.semel(command);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.err.contains("pooler = \"transaction\""), "{}", ran.err);
        assert_eq!(ran.out, "", "{command:?}");
    }
    let said = doctor(&place);
    assert_eq!(codes(&said), ["SEMEL-0505"], "{said:#}");
    let checked = place.json(&["check", "--connect"]);
    assert_eq!(
        (checked.code, codes(&checked.object())),
        (1, vec!["SEMEL-0505".to_owned()])
    );
    // Told of it, the same config works, and finds that nothing was made before.
    wallet(&place, TOLD, "");
    let dry = place.json(&["migrate", "--dry-run"]).ok().object();
    assert_eq!(dry["from"], 0, "{dry:#}");
    let (_, summary) = place.drained(&[]);
    assert_eq!(summary["outcomes"]["applied"], 5, "{summary:#}");
    // And at the server itself, where it costs a little and breaks nothing.
    let config = place.read("semel.toml");
    place.write(
        "semel.toml",
        config.replace(&pooler_url(&place), &postgres_url()),
    );
    let (lines, _) = place.drained(&["--from-start"]);
    assert!(
        lines
            .iter()
            .all(|line: &Value| line["outcome"] == json!("duplicate"))
    );
}
