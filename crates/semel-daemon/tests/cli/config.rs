//! Mistakes in the config, as every command tells them, and the commands that are about the file itself.

use crate::place::{Backend, Place};

fn place() -> Place {
    Place::new(Backend::Sqlite)
}

#[test]
fn a_mistake_is_a_finding_of_check_and_a_usage_error_of_every_other_command() {
    let place = place();
    place.wallet("lane = \"auto\"\nbatch_count = 2");
    let words =
        "semel.toml:10: unknown key `batch_count`, did you mean `batch_count_max`? [SEMEL-0103]\n";
    let check = place.semel(&["check"]);
    assert_eq!(
        (check.code, check.out.as_str(), check.err.as_str()),
        (1, words, "")
    );
    for command in [
        &["run", "--until-idle"][..],
        &["migrate"],
        &["show", "x"],
        &["dead", "list"],
        &["parked", "list"],
        &["audit"],
        &["balance", "x"],
        &["publish", "ops", "f"],
        &["key", "--consumer", "wallet", "x"],
    ] {
        let ran = place.semel(command);
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err),
            (2, "", format!("semel: {words}")),
            "{command:?}"
        );
    }
    assert!(
        !place.path().join("semel.db").exists(),
        "nothing was opened"
    );
}

#[test]
fn a_missing_config_is_told_with_what_to_do() {
    let place = place();
    let ran = place.semel(&["run", "--config", "other.toml"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err
            .contains("other.toml:1: the config file cannot be read")
            && ran.err.contains("config default"),
        "{}",
        ran.err
    );
    let check = place.json(&["check", "--config", "other.toml"]);
    assert_eq!(
        (check.code, check.object()["findings"][0]["code"].as_str()),
        (1, Some("SEMEL-0101"))
    );
}

#[test]
fn check_finds_nothing_in_the_default_file() {
    let place = place();
    let default = place.semel(&["config", "default"]).ok().out;
    place.write("semel.toml", default);
    let check = place.json(&["check"]).ok();
    assert_eq!(check.out, "{\"ok\":true,\"findings\":[]}\n");
    assert!(
        !place.path().join("semel.db").exists(),
        "check opens nothing but the config"
    );
}

/// The findings of `check --json` for these tables behind the ledger's: code, level, line.
fn findings(tables: &str) -> (bool, Vec<(String, String, String)>) {
    let place = place();
    place.config(tables);
    let report = place.json(&["check"]).object();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let findings = report["findings"].as_array().unwrap().iter();
    let findings = findings
        .map(|f| (text(&f["code"]), text(&f["level"]), text(&f["where"])))
        .collect();
    (report["ok"].as_bool().unwrap(), findings)
}

fn one(tables: &str) -> (bool, String, String, String) {
    let (ok, findings) = findings(tables);
    assert_eq!(findings.len(), 1, "{findings:?}");
    let (code, level, place) = findings[0].clone();
    (ok, code, level, place)
}

fn finding(ok: bool, code: &str, level: &str, place: &str) -> (bool, String, String, String) {
    (ok, code.to_owned(), level.to_owned(), place.to_owned())
}

const FILE: &str = "[sources.ops]\ntype = \"file\"\npaths = [\"ops.jsonl\"]\n";
const WALLET: &str = "[consumers.wallet.wallet]\nassets = { EUR = 2 }\n";

fn consumer(more: &str) -> String {
    format!("{FILE}[consumers.wallet]\nsources = [\"ops\"]\nhandler = \"wallet\"\n{more}\n{WALLET}")
}

#[test]
fn a_lease_shorter_than_a_unit_may_take_is_warned_of() {
    let tables = |lease| {
        format!(
            "[sources.q]\ntype = \"queue\"\nname = \"q\"\nlease_ms = {lease}\n[consumers.wallet]\nsources = [\"q\"]\nhandler = \"wallet\"\n{WALLET}"
        )
    };
    assert_eq!(
        one(&tables(89_999)),
        finding(true, "SEMEL-0304", "warning", "semel.toml:6")
    );
    assert_eq!(findings(&tables(90_000)), (true, Vec::new()));
}

#[test]
fn t80_a_key_made_of_what_the_transport_makes_is_warned_of() {
    for key in [
        "/offset",
        "header:message-id",
        "/meta/delivery_tag",
        "header:X-Request-Id",
        "lower(/messageId)",
    ] {
        let tables = consumer(&format!("key = \"{key}\""));
        assert_eq!(
            one(&tables),
            finding(true, "SEMEL-0203", "warning", "semel.toml:9"),
            "{key}"
        );
    }
    for key in ["/id", "header:idempotency-key", "/order_id"] {
        assert_eq!(
            findings(&consumer(&format!("key = \"{key}\""))),
            (true, Vec::new()),
            "{key}"
        );
    }
}

#[test]
fn a_time_in_the_key_is_warned_of_since_it_is_part_of_the_identity() {
    assert_eq!(
        one(&consumer("key_time = \"/at\"")),
        finding(true, "SEMEL-0204", "warning", "semel.toml:9")
    );
}

#[test]
fn names_that_do_not_meet_are_errors() {
    let unknown = consumer("").replace("[\"ops\"]\nhandler", "[\"opps\", \"ops\"]\nhandler");
    assert_eq!(
        one(&unknown),
        finding(false, "SEMEL-0201", "error", "semel.toml:7")
    );
    let unused = format!("{}[sources.more]\ntype = \"stdin\"\n", consumer(""));
    assert_eq!(
        one(&unused),
        finding(true, "SEMEL-0202", "warning", "semel.toml:12")
    );
    assert_eq!(
        one("[sources]\n"),
        finding(false, "SEMEL-0207", "error", "semel.toml:1")
    );
}

#[test]
fn one_place_read_twice_is_found() {
    let twice = consumer("").replace("[\"ops.jsonl\"]", "[\"ops.jsonl\", \"./a/../ops.jsonl\"]");
    assert_eq!(
        one(&twice),
        finding(false, "SEMEL-0301", "error", "semel.toml:5")
    );
    let two = format!(
        "{}[sources.same]\ntype = \"file\"\npaths = [\"ops.jsonl\"]\n",
        consumer("").replace("[\"ops\"]\nhandler", "[\"ops\", \"same\"]\nhandler")
    );
    assert_eq!(
        one(&two),
        finding(true, "SEMEL-0301", "warning", "semel.toml:12")
    );
}

#[test]
fn what_two_consumers_would_share_is_found() {
    let (broker, more) = (
        "[sources.ops]\ntype = \"kafka\"\nbrokers = [\"h:1\"]\ntopics = [\"t\"]\ngroup = \"g\"\nstart_at = \"earliest\"\n",
        "[consumers.more]\nsources = [\"ops\"]\nhandler = \"wallet\"\n[consumers.more.wallet]\nassets = { EUR = 2 }\nhouse = \"house\"\n",
    );
    let file = "[sources.ops]\ntype = \"file\"\npaths = [\"ops.jsonl\"]\n";
    let kafka = consumer("").replace(file, broker);
    assert_ne!(kafka, consumer(""));
    assert_eq!(
        one(&format!("{kafka}{more}")),
        finding(true, "SEMEL-0301", "warning", "semel.toml:3")
    );
    let twin = broker.replace("sources.ops", "sources.same");
    let both = format!(
        "{}{twin}",
        kafka.replace("[\"ops\"]\nhandler", "[\"ops\", \"same\"]\nhandler")
    );
    assert_eq!(one(&both).1, "SEMEL-0301");
}

#[test]
fn a_wallet_without_assets_or_with_houses_that_do_not_fit_is_an_error() {
    let none = consumer("").replace("{ EUR = 2 }", "{}");
    assert_eq!(
        one(&none),
        finding(false, "SEMEL-0206", "error", "semel.toml:11")
    );
    let foreign = format!(
        "{}house = {{ EUR = \"house\", USD = \"h\" }}\n",
        consumer("")
    );
    assert_eq!(
        one(&foreign),
        finding(false, "SEMEL-0206", "error", "semel.toml:12")
    );
    let settings = consumer("").replace(WALLET, "");
    assert_eq!(
        one(&settings),
        finding(false, "SEMEL-0205", "error", "semel.toml:6")
    );
}

#[test]
fn rules_that_cannot_be_read_are_errors() {
    for (line, place) in [
        ("key = \"id\"", "semel.toml:9"),
        ("key = \"const:x\"", "semel.toml:9"),
        ("key = \"message_key\"", "semel.toml:9"),
        ("lane = \"account\"", "semel.toml:9"),
        ("fingerprint = { except = [\"trace_id\"] }", "semel.toml:9"),
    ] {
        assert_eq!(
            one(&consumer(line)),
            finding(false, "SEMEL-0108", "error", place),
            "{line}"
        );
    }
    assert_eq!(
        one(&consumer("fingerprint = \"none\"")),
        finding(true, "SEMEL-0208", "warning", "semel.toml:9")
    );
}

#[test]
fn a_ledger_url_must_be_one_and_its_folder_must_be_there() {
    let place = place();
    for (url, code) in [
        ("mysql://h/d", "SEMEL-0401"),
        ("sqlite::memory:", "SEMEL-0401"),
        ("sqlite:a.db?mode=ro", "SEMEL-0401"),
        ("sqlite:none/semel.db", "SEMEL-0402"),
        // Behind a pooler in transaction mode, of the key below.
        (
            "postgres://h/d?options=-c%20x%3Dy\"\npooler = \"transaction",
            "SEMEL-0401",
        ),
    ] {
        place.write(
            "semel.toml",
            format!("[ledger]\nurl = \"{url}\"\n{}", consumer("")),
        );
        let report = place.json(&["check"]).object();
        assert_eq!(
            (
                &report["findings"][0]["code"],
                &report["findings"][0]["where"]
            ),
            (&code.into(), &"semel.toml:2".into())
        );
    }
    for idle in ["schema = \"x\"", "pooler = \"transaction\""] {
        place.write(
            "semel.toml",
            format!("[ledger]\nurl = \"sqlite:a.db\"\n{idle}\n{}", consumer("")),
        );
        let report = place.json(&["check"]).ok().object();
        assert_eq!(report["findings"][0]["code"], "SEMEL-0403");
    }
}

#[test]
fn e078_a_client_option_that_loads_code_is_refused() {
    let kafka = "[sources.k]\ntype = \"kafka\"\nbrokers = [\"h:1\"]\ntopics = [\"t\"]\ngroup = \"g\"\nstart_at = \"earliest\"\n\
                 options = { \"plugin.library.paths\" = \"/x\" }\n";
    let tables = format!(
        "{kafka}{}",
        consumer("").replace("[\"ops\"]", "[\"ops\", \"k\"]")
    );
    let (ok, findings) = findings(&tables);
    assert!(
        !ok && findings
            .iter()
            .any(|(code, _, place)| code == "SEMEL-0303" && place == "semel.toml:9"),
        "{findings:?}"
    );
}

#[test]
fn no_password_is_shown_anywhere() {
    let place = place();
    place.write(
        "semel.toml",
        format!(
            "[ledger]\nurl = \"postgres://u:hunter2@127.0.0.1:1/d\"\n{}",
            consumer("")
        ),
    );
    place.write("ops.jsonl", "");
    for command in [
        &["run", "--until-idle"][..],
        &["check", "--connect"],
        &["migrate"],
        &["show", "x"],
        &["dead", "list"],
    ] {
        let ran = place.semel(command);
        assert!(
            !ran.out.contains("hunter2") && !ran.err.contains("hunter2"),
            "{command:?}: {ran:?}"
        );
        assert_ne!(ran.code, 0, "{command:?}");
    }
    place.write(
        "semel.toml",
        format!(
            "[ledger]\nurl = \"mysql://u:hunter2@h/d\"\n{}",
            consumer("")
        ),
    );
    let check = place.semel(&["check"]);
    assert!(
        check.out.contains("mysql://u:…@h/d") && !check.out.contains("hunter2"),
        "{}",
        check.out
    );
}

#[test]
fn secrets_come_from_the_environment_a_file_or_a_command() {
    let place = place();
    place.write_lines("ops.jsonl", crate::place::OPENING);
    place.write("url", "sqlite:from-file.db\n");
    for (url, name) in [
        ("\"${SEMEL_TEST_URL}\"", "from-env.db"),
        ("{ file = \"url\" }", "from-file.db"),
        (
            "{ command = [\"echo\", \"sqlite:from-command.db\"] }",
            "from-command.db",
        ),
    ] {
        place.write(
            "semel.toml",
            format!("[ledger]\nurl = {url}\n{}", consumer("")),
        );
        let mut command = place.command(&["run", "--until-idle"]);
        let status = command
            .env("SEMEL_TEST_URL", "sqlite:from-env.db")
            .output()
            .unwrap()
            .status;
        assert!(
            status.success() && place.path().join(name).exists(),
            "{url}"
        );
    }
    place.write(
        "semel.toml",
        format!("[ledger]\nurl = \"${{SEMEL_TEST_NONE}}\"\n{}", consumer("")),
    );
    let ran = place.semel(&["run"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.starts_with(
            "semel: semel.toml:2: the environment variable `SEMEL_TEST_NONE` is not set"
        ),
        "{}",
        ran.err
    );
}

#[test]
fn relative_paths_start_from_the_config_files_folder() {
    let place = place();
    std::fs::create_dir(place.path().join("conf")).unwrap();
    place.write(
        "conf/semel.toml",
        format!("{}{}", place.ledger(), consumer("")),
    );
    place.write_lines("conf/ops.jsonl", crate::place::OPENING);
    let ran = place
        .json(&[
            "run",
            "--until-idle",
            "--outcomes",
            "-",
            "--config",
            "conf/semel.toml",
        ])
        .ok();
    assert_eq!(
        ran.lines()[0]["partition"],
        "ops.jsonl",
        "the partition is the path as written"
    );
    assert!(place.path().join("conf/semel.db").exists());
}

#[test]
fn the_schema_describes_the_file() {
    let schema: serde_json::Value =
        serde_json::from_str(&place().semel(&["config", "schema"]).ok().out).unwrap();
    assert_eq!(schema["properties"]["ledger"]["$ref"], "#/$defs/Ledger");
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn completions_are_scripts_of_the_shell() {
    for (shell, text) in [
        ("bash", "complete -F _semel"),
        ("zsh", "#compdef semel"),
        ("fish", "complete -c semel"),
    ] {
        let ran = place().semel(&["completions", shell]).ok();
        assert!(ran.out.contains(text), "{shell}");
    }
    assert_eq!(place().semel(&["completions", "cobol"]).code, 2);
}

#[test]
fn a_usage_error_is_exit_code_2_and_nothing_on_stdout() {
    for args in [&["frobnicate"][..], &["run", "--nope"], &["show"], &[]] {
        let ran = place().semel(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
    }
}
