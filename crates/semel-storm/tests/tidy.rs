//! What no compiler checks: statements that lose messages, fail points that any sender could pull, and promises
//! without a test.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// All files of the repository with this ending; what is built or fetched is left out.
fn files(ending: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![
        root().join("crates"),
        root().join("examples"),
        root().join("docs"),
    ];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|known| known == ending) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(
        !found.is_empty(),
        "no .{ending} files below {}",
        root().display()
    );
    found
}

/// A statement without its comments, in capitals, with single blanks.
fn plain(sql: &str) -> String {
    let code = sql
        .lines()
        .map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
    words.join(" ").to_uppercase()
}

#[test]
fn t10_t30_no_statement_swallows_errors_or_probes_by_any() {
    for (path, sql) in files("sql") {
        let sql = plain(&sql);
        for (forbidden, why) in [
            (
                "INSERT IGNORE",
                "it takes every error for a duplicate (TRAPS T10)",
            ),
            (
                "INSERT OR IGNORE",
                "it takes every error for a duplicate (TRAPS T10)",
            ),
            (
                "= ANY(",
                "the planner may read the whole ledger for it (TRAPS T30): join `unnest` laterally",
            ),
            (
                "= ANY (",
                "the planner may read the whole ledger for it (TRAPS T30): join `unnest` laterally",
            ),
        ] {
            assert!(
                !sql.contains(forbidden),
                "{}: `{forbidden}`: {why}",
                path.display()
            );
        }
    }
}

/// Whoever writes waits for a deletion, so each names the rows that it takes. What else is deleted is a row of a lane,
/// or of lives that crashed a week ago, and few.
#[test]
fn e098_t27_no_statement_deletes_without_bound() {
    const FEW: [&str; 3] = ["fence_sweep", "fence_delete", "position_forget"];
    let mut seen = 0;
    for (path, sql) in files("sql") {
        let (name, sql) = (path.file_stem().unwrap().to_str().unwrap(), plain(&sql));
        let Some((_, deletes)) = sql.split_once("DELETE FROM") else {
            continue;
        };
        seen += 1;
        let named = ["VALUES (", "UNNEST(", "LIMIT "]
            .iter()
            .any(|given| deletes.contains(given));
        assert!(
            named || FEW.contains(&name),
            "{}: {deletes}",
            path.display()
        );
    }
    assert!(seen > 10, "only {seen} statements that delete");
}

#[test]
fn t86_no_program_has_a_fail_point() {
    for (path, code) in files("rs") {
        if !path.components().any(|part| part.as_os_str() == "src")
            || path
                .components()
                .any(|part| part.as_os_str() == "semel-storm")
        {
            continue;
        }
        let code = code.to_lowercase();
        for hook in [
            "x-semel-fail",
            "fail_point",
            "failpoint",
            "fail::cfg",
            "semel_test_fail",
        ] {
            assert!(
                !code.contains(hook),
                "{}: `{hook}`: faults belong into semel-storm",
                path.display()
            );
        }
    }
}

#[test]
fn t43_e130_the_drivers_are_new_enough() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    // Before them: acks by a stale tag after a recovery; values whose length prefix overflows.
    for (name, least) in [("lapin", [4, 12, 3]), ("sqlx", [0, 8, 1])] {
        let head = format!("name = \"{name}\"\nversion = \"");
        let locked: Vec<&str> = lock
            .split(&head)
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert!(!locked.is_empty(), "{name} is not locked");
        for version in locked {
            let parts: Vec<u32> = version
                .split('.')
                .map(|part| part.parse().unwrap())
                .collect();
            assert!(
                parts[..] >= least[..],
                "{name} {version}: at least {least:?}"
            );
        }
    }
}

#[test]
fn every_promise_names_tests_that_exist() {
    let page = std::fs::read_to_string(root().join("GUARANTEES.md")).unwrap();
    let code = files("rs");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains("| ---"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert!(rows.len() > 20, "the table is missing");
    let mut missing = BTreeSet::new();
    for row in &rows[1..] {
        let [promise, tests] = row[..] else {
            panic!("a row has a promise and its tests: {row:?}");
        };
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test proves: {promise}");
        for name in names {
            let (file, test) = name
                .split_once("::")
                .unwrap_or_else(|| panic!("{name} is no `file::test`"));
            let holds = |path: &Path, text: &str| {
                path.ends_with(file) && text.contains(&format!("fn {test}("))
            };
            if !code.iter().any(|(path, text)| holds(path, text)) {
                missing.insert(name);
            }
        }
    }
    assert!(
        missing.is_empty(),
        "GUARANTEES.md names tests that are not there: {missing:#?}"
    );
}
