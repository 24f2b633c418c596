//! Reads the text of a statement just far enough to know what kind it is: does it control the transaction,
//! may it write? A guard against mistakes, and on the safe side of them: what is not understood counts as
//! a write. The unit's fence stands behind it.

/// What a text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Text {
    /// Plain reads only.
    Reads,
    /// May write.
    Writes,
    /// Begins, ends or saves a transaction, or changes what the connection promises; with its first word.
    Controls(String),
}

/// First words that are never for a handler.
const CONTROL: &[&str] = &[
    "abort",
    "attach",
    "begin",
    "commit",
    "deallocate",
    "detach",
    "discard",
    "end",
    "pragma",
    "release",
    "reset",
    "rollback",
    "savepoint",
    "start",
    "unlock",
    "vacuum",
];

/// First words that are not for a handler when one of these comes second.
const CONTROL_PAIRS: &[(&str, &[&str])] = &[
    ("prepare", &["transaction"]),
    ("lock", &["tables"]),
    (
        "set",
        &[
            "authorization",
            "autocommit",
            "role",
            "search_path",
            "semel",
            "session_authorization",
            "synchronous_commit",
            "transaction",
        ],
    ),
];

/// Words before a parenthesis in a `SELECT` that write nothing: keywords, and functions that are the same
/// in every dialect.
const HARMLESS: &[&str] = &[
    "abs",
    "all",
    "and",
    "any",
    "as",
    "avg",
    "between",
    "by",
    "case",
    "cast",
    "coalesce",
    "count",
    "distinct",
    "else",
    "except",
    "exists",
    "filter",
    "from",
    "having",
    "in",
    "intersect",
    "join",
    "length",
    "like",
    "limit",
    "lower",
    "max",
    "min",
    "not",
    "nullif",
    "offset",
    "on",
    "or",
    "over",
    "round",
    "select",
    "some",
    "substr",
    "substring",
    "sum",
    "then",
    "trim",
    "union",
    "upper",
    "using",
    "values",
    "when",
    "where",
];

/// Judges a text of one or more statements.
pub(crate) fn judge(sql: &str) -> Text {
    let mut reads = true;
    for statement in statements(sql) {
        if let Some(word) = control(statement) {
            return Text::Controls(word);
        }
        reads &= only_reads(statement);
    }
    // A second look that believes in no quotes: a text made to hide its semicolon in what one dialect takes
    // for a string or comment, and another does not.
    let hidden = sql.bytes().filter(|b| *b == b';').count() > 0;
    if hidden && let Some(word) = sql.split(';').find_map(control) {
        return Text::Controls(word);
    }
    if reads { Text::Reads } else { Text::Writes }
}

/// The words with which a statement controls the transaction, if it does.
fn control(statement: &str) -> Option<String> {
    let mut words = Words(statement);
    let first = words.next()?.to_ascii_lowercase();
    if CONTROL.contains(&first.as_str()) {
        return Some(first.to_ascii_uppercase());
    }
    let (_, seconds) = CONTROL_PAIRS.iter().find(|(word, _)| *word == first)?;
    let mut second = words.next()?.to_ascii_lowercase();
    let session = first == "set" && matches!(second.as_str(), "session" | "local" | "global");
    if session {
        second = words.next()?.to_ascii_lowercase();
        if second == "characteristics" {
            return Some("SET SESSION CHARACTERISTICS".to_owned());
        }
    }
    seconds
        .contains(&second.as_str())
        .then(|| format!("{first} {second}").to_ascii_uppercase())
}

/// Is it a `SELECT` (or `VALUES`) that calls nothing unknown and puts nothing anywhere?
fn only_reads(statement: &str) -> bool {
    let mut words = Words(statement);
    match words.next() {
        None => true,
        Some(first) if is(first, "select") || is(first, "values") => {
            !Words(statement).any(|word| is(word, "into")) && calls_harmless(statement)
        }
        Some(_) => false,
    }
}

/// Is every word right before a parenthesis a harmless one?
fn calls_harmless(statement: &str) -> bool {
    statement.match_indices('(').all(|(at, _)| {
        let before = statement[..at].trim_end();
        match before.bytes().last() {
            None => true,
            Some(byte) if is_word(byte) => {
                let start = before
                    .bytes()
                    .rposition(|b| !is_word(b))
                    .map_or(0, |i| i + 1);
                let qualified =
                    start > 0 && matches!(before.as_bytes()[start - 1], b'.' | b'"' | b'`');
                !qualified && HARMLESS.iter().any(|word| is(&before[start..], word))
            }
            Some(byte) => !matches!(byte, b'"' | b'`' | b']'),
        }
    })
}

fn is(word: &str, lower: &str) -> bool {
    word.eq_ignore_ascii_case(lower)
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || !byte.is_ascii()
}

/// The words of a text, without white space, comments and anything else.
struct Words<'s>(&'s str);

impl<'s> Iterator for Words<'s> {
    type Item = &'s str;

    fn next(&mut self) -> Option<&'s str> {
        loop {
            let skipped = skip_blank(self.0);
            let length = skipped.bytes().take_while(|b| is_word(*b)).count();
            if length > 0 {
                let (word, rest) = skipped.split_at(length);
                self.0 = rest;
                return Some(word);
            }
            let one = skipped.chars().next()?.len_utf8();
            self.0 = &skipped[one..];
        }
    }
}

/// What comes after white space and comments.
fn skip_blank(mut sql: &str) -> &str {
    loop {
        sql = sql.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        if sql.starts_with("--") || sql.starts_with('#') {
            sql = sql.split_once('\n').map_or("", |(_, rest)| rest);
        } else if sql.starts_with("/*") {
            sql = sql.split_once("*/").map_or("", |(_, rest)| rest);
        } else {
            return sql;
        }
    }
}

/// Cuts a text at the semicolons that stand outside of strings, quoted names and comments.
fn statements(sql: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(sql);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = statement_end(text);
        rest = text.get(end + 1..);
        Some(&text[..end])
    })
}

fn statement_end(sql: &str) -> usize {
    let bytes = sql.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let ahead = &sql.as_bytes()[at..];
        at += match ahead[0] {
            b';' => return at,
            quote @ (b'\'' | b'"' | b'`') => {
                2 + ahead[1..].iter().take_while(|b| **b != quote).count()
            }
            b'-' if ahead.starts_with(b"--") => ahead.iter().take_while(|b| **b != b'\n').count(),
            b'/' if ahead.starts_with(b"/*") => {
                4 + ahead[2..]
                    .windows(2)
                    .take_while(|pair| *pair != b"*/")
                    .count()
            }
            _ => 1,
        };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_control_is_found_in_every_dress() {
        for sql in [
            "COMMIT",
            "  commit ;",
            "-- why\nROLLBACK TO SAVEPOINT a",
            "/* ; */ BEGIN IMMEDIATE",
            "SELECT 1; END",
            "SELECT ';'; /* x */ -- y\n savepoint a",
            "release a",
            "START TRANSACTION",
            "prepare transaction 'x'",
            "COMMIT PREPARED 'x'",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "set local transaction read only",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "SET autocommit = 1",
            "SET synchronous_commit = off",
            "set local \"synchronous_commit\" to off",
            "SET SESSION search_path = other",
            "SET ROLE admin",
            "SET SESSION AUTHORIZATION admin",
            "SET semel.lane = '2'",
            "RESET synchronous_commit",
            "DEALLOCATE semel_hold",
            "DISCARD PLANS",
            "SELECT 'a\\'; COMMIT; --'",
            "PRAGMA foreign_keys = OFF",
            "SELECT 'it''s'; ABORT",
            "/* a /* b */ COMMIT",
        ] {
            assert!(matches!(judge(sql), Text::Controls(_)), "{sql}");
        }
    }

    #[test]
    fn ordinary_statements_pass_as_reads_or_writes() {
        for sql in [
            "SELECT a FROM t WHERE b = $1",
            "select count(*) from t where x in (1, 2)",
            "SELECT CASE WHEN a THEN 1 END FROM t",
            "SELECT ';' FROM t",
            "VALUES (1), (2)",
            "",
            "-- nothing",
        ] {
            assert_eq!(judge(sql), Text::Reads, "{sql}");
        }
        for sql in [
            "UPDATE t SET a = 1",
            "INSERT INTO t VALUES ('commit')",
            "SELECT pay(1)",
            "SELECT public.count(1)",
            "SELECT \"pay\"(1)",
            "SELECT a INTO b FROM t",
            "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
            "SET LOCAL statement_timeout = 5",
            "PREPARE p AS SELECT 1",
            "SELECT 1; DELETE FROM t",
        ] {
            assert_eq!(judge(sql), Text::Writes, "{sql}");
        }
    }
}
