//! What the config says about mistakes: the texts are the product, so they are compared whole.

use super::*;

const SMALLEST: &str = r#"[ledger]
url = "sqlite:semel.db"

[sources.ops]
type = "file"
paths = ["ops.jsonl"]

[consumers.wallet]
sources = ["ops"]
handler = "wallet"

[consumers.wallet.wallet]
assets = { EUR = 2, JPY = 0, BTC = 8 }
"#;

fn environment(name: &str) -> Option<String> {
    (name == "PW").then(|| "s3cret".to_owned())
}

fn parse_text(text: &str) -> Result<Loaded, Vec<Finding>> {
    parse(text, "semel.toml".to_owned(), PathBuf::new(), &environment)
}

/// The findings for the smallest file with one text replaced by another.
fn mistakes(find: &str, replace: &str) -> Vec<String> {
    assert!(SMALLEST.contains(find), "{find}");
    match parse_text(&SMALLEST.replace(find, replace)) {
        Ok(_) => Vec::new(),
        Err(findings) => findings.iter().map(|f| f.to_string()).collect(),
    }
}

#[test]
fn the_smallest_file_is_read_with_every_default() {
    let loaded = parse_text(SMALLEST).unwrap();
    let consumer = &loaded.config.consumers["wallet"];
    assert_eq!(
        (
            consumer.lanes,
            consumer.batch_count_max,
            consumer.lane.as_str()
        ),
        (4, 1000, "auto")
    );
    let wallet = consumer.wallet.as_ref().unwrap();
    assert_eq!(wallet.assets["BTC"].0, 8);
    assert!(matches!(&wallet.house, House::One(account) if account == "house"));
    assert!(loaded.config.ledger.migrate);
}

#[test]
fn an_unknown_key_is_told_with_its_line_and_the_nearest_known_name() {
    assert_eq!(
        mistakes("assets =", "asset ="),
        [
            "semel.toml:12: `consumers.wallet.wallet.assets` is missing [SEMEL-0104]",
            "semel.toml:13: unknown key `asset`, did you mean `assets`? [SEMEL-0103]",
        ]
    );
    assert_eq!(
        mistakes("sources = [\"ops\"]", "sources = [\"ops\"]\nLanes = 2"),
        ["semel.toml:10: unknown key `Lanes`, did you mean `lanes`? [SEMEL-0103]"]
    );
    assert_eq!(
        mistakes("[ledger]", "[ledger]\nfrobnicate = 1"),
        [
            "semel.toml:2: unknown key `frobnicate`; known here: `connect_timeout_ms`, `idle_in_transaction_timeout_ms`, \
          `lock_timeout_ms`, `migrate`, `pooler`, `schema`, `statement_timeout_ms`, `url` [SEMEL-0103]"
        ]
    );
    assert_eq!(
        mistakes("[sources.ops]", "[source.ops]")[0],
        "semel.toml:4: unknown key `source`, did you mean `sources`? [SEMEL-0103]"
    );
}

#[test]
fn a_wrong_type_is_told_with_what_is_wanted() {
    assert_eq!(
        mistakes(
            "handler = \"wallet\"",
            "handler = \"wallet\"\nlanes = \"two\""
        ),
        ["semel.toml:11: `consumers.wallet.lanes` is text, not an integer [SEMEL-0105]"]
    );
    assert_eq!(
        mistakes("paths = [\"ops.jsonl\"]", "paths = \"ops.jsonl\""),
        ["semel.toml:6: `sources.ops.paths` is text, not a list [SEMEL-0105]"]
    );
    assert_eq!(
        mistakes("EUR = 2", "EUR = 2.0"),
        [
            "semel.toml:13: `consumers.wallet.wallet.assets.EUR` is a number with a point, not an integer [SEMEL-0105]"
        ]
    );
    assert_eq!(
        mistakes("url = \"sqlite:semel.db\"", "url = 5"),
        ["semel.toml:2: `ledger.url` is an integer, not text or a table [SEMEL-0105]"]
    );
}

#[test]
fn a_value_that_is_not_allowed_is_told_with_those_that_are() {
    assert_eq!(
        mistakes("type = \"file\"", "type = \"flie\""),
        [
            "semel.toml:5: `sources.ops.type` is `flie`, did you mean `file`? Allowed: `file`, `stdin`, `queue`, `kafka`, `rabbitmq` [SEMEL-0106]"
        ]
    );
    assert_eq!(
        mistakes("handler = \"wallet\"", "handler = \"sql\""),
        ["semel.toml:10: `consumers.wallet.handler` is `sql`; allowed: `wallet` [SEMEL-0106]"]
    );
    assert_eq!(
        mistakes("assets =", "late_win = \"acept\"\nassets ="),
        [
            "semel.toml:13: `consumers.wallet.wallet.late_win` is `acept`, did you mean `accept`? Allowed: `dead`, `accept` [SEMEL-0106]"
        ]
    );
    assert_eq!(
        mistakes("EUR = 2", "EUR = 19"),
        ["semel.toml:13: `consumers.wallet.wallet.assets.EUR` is 19, more than 18 [SEMEL-0106]"]
    );
    assert_eq!(
        mistakes("handler = \"wallet\"", "handler = \"wallet\"\nlanes = 0"),
        ["semel.toml:11: `consumers.wallet.lanes` is 0, less than 1 [SEMEL-0106]"]
    );
    assert_eq!(
        mistakes("paths = [\"ops.jsonl\"]", "paths = []"),
        ["semel.toml:6: `sources.ops.paths` is empty [SEMEL-0106]"]
    );
    assert_eq!(
        mistakes(
            "handler = \"wallet\"",
            "handler = \"wallet\"\nfingerprint = \"some\""
        ),
        [
            "semel.toml:11: `consumers.wallet.fingerprint` is `some`; allowed: `all`, `none` [SEMEL-0106]"
        ]
    );
    assert_eq!(
        mistakes(
            "handler = \"wallet\"",
            "handler = \"wallet\"\nfingerprint = { only = [] }"
        ),
        [
            "semel.toml:11: `consumers.wallet.fingerprint` needs one of `except`, `fields` [SEMEL-0104]"
        ]
    );
}

#[test]
fn e045_a_kafka_source_without_start_at_is_an_error() {
    let text = "[ledger]\nurl = \"sqlite:a.db\"\n[sources.k]\ntype = \"kafka\"\nbrokers = [\"h:1\"]\ntopics = [\"t\"]\ngroup = \"g\"\n";
    let findings = parse_text(text).unwrap_err();
    assert_eq!(
        findings[0].to_string(),
        "semel.toml:3: `sources.k.start_at` is missing [SEMEL-0104]"
    );
}

#[test]
fn a_source_without_a_type_is_told_the_types() {
    assert_eq!(
        mistakes("type = \"file\"\n", ""),
        [
            "semel.toml:4: `sources.ops` has no `type`; it is one of `file`, `stdin`, `queue`, `kafka`, `rabbitmq` [SEMEL-0104]"
        ]
    );
}

#[test]
fn a_file_that_is_not_toml_is_told_with_its_line() {
    let findings = mistakes("type = \"file\"", "type = \"file");
    assert!(
        findings[0].starts_with("semel.toml:5: not TOML: "),
        "{findings:?}"
    );
    let findings = mistakes("type = \"file\"", "type = \"file\"\ntype = \"file\"");
    assert!(
        findings[0].starts_with("semel.toml:6: not TOML: ")
            && findings[0].contains("duplicate key"),
        "{findings:?}"
    );
}

#[test]
fn no_message_shows_what_came_from_the_environment() {
    let findings = mistakes("type = \"file\"", "type = \"${PW}\"");
    assert_eq!(
        findings,
        [
            "semel.toml:5: `sources.ops.type` is `${PW}`; allowed: `file`, `stdin`, `queue`, `kafka`, `rabbitmq` [SEMEL-0106]"
        ]
    );
    let loaded =
        parse_text(&SMALLEST.replace("sqlite:semel.db", "postgres://u:${PW}@h/d")).unwrap();
    assert!(!format!("{loaded:?}").contains("s3cret"));
    assert_eq!(
        loaded.config.ledger.url.reveal(Path::new("")).unwrap(),
        "postgres://u:s3cret@h/d"
    );
}

#[test]
fn the_default_file_is_read_and_names_every_key_there_is() {
    let loaded = parse_text(DEFAULT).unwrap();
    assert_eq!(loaded.config.consumers.len(), 1);
    // A key is named at the start of a line, commented out or not.
    let names: std::collections::BTreeSet<&str> = DEFAULT
        .lines()
        .map(|line| line.trim_start_matches("# "))
        .filter_map(|line| Some(line.split_once(" = ")?.0))
        .collect();
    let schema = schema();
    let mut tables: Vec<&serde_json::Value> = vec![
        &schema["$defs"]["Ledger"],
        &schema["$defs"]["Consumer"],
        &schema["$defs"]["Wallet"],
    ];
    tables.extend(schema["$defs"]["Source"]["oneOf"].as_array().unwrap());
    for table in tables {
        for key in table["properties"]
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "wallet")
        {
            assert!(
                names.contains(key.as_str()),
                "`config default` does not name `{key}`"
            );
        }
    }
}

#[test]
fn the_default_file_says_the_defaults_that_the_structs_have() {
    let (complete, smallest) = (parse_text(DEFAULT).unwrap(), parse_text(SMALLEST).unwrap());
    // `key` is optional in the struct: its default depends on the handler.
    let shown = format!("{:?}", complete.config).replace("key: Some(One(\"/id\"))", "key: None");
    assert_eq!(shown, format!("{:?}", smallest.config));
}

#[test]
fn the_commented_out_sources_of_the_default_file_are_right_too() {
    let text: String = DEFAULT
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest)
                if rest.starts_with('[')
                    || rest
                        .split_once(" = ")
                        .is_some_and(|(key, _)| !key.contains(' ')) =>
            {
                rest
            }
            _ => line,
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    let environment = |_: &str| Some("x".to_owned());
    let loaded = parse(&text, "semel.toml".to_owned(), PathBuf::new(), &environment);
    let loaded = loaded.unwrap_or_else(|findings| panic!("{findings:#?}"));
    assert_eq!(loaded.config.sources.len(), 5);
    let findings = crate::check::findings(&loaded);
    let errors: Vec<_> = findings
        .iter()
        .filter(|finding| finding.is_error())
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}
