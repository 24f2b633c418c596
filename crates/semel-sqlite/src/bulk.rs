//! Statements over many rows in few sizes. Each awaited statement costs two switches between threads, each text
//! is prepared once a connection: so a statement is kept in four lengths, and a batch is cut into those.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// How many rows one statement takes, from most to least.
const SIZES: [usize; 4] = [256, 32, 4, 1];

/// How many times a statement is repeated in one text. Each repetition is a prepared statement of its own, about
/// 3 KiB.
const REPEATS: [usize; 3] = [64, 8, 1];

/// SQLite's limit of parameters in one statement (SQLITE_MAX_VARIABLE_NUMBER).
const PARAMETERS_MAX: usize = 32_766;

/// A statement over many rows.
#[derive(Debug, Clone)]
pub(crate) struct Bulk {
    sizes: Vec<(usize, SqlStr)>,
}

impl Bulk {
    /// Makes the lengths of a statement whose text holds one `VALUES (…)` of one row.
    ///
    /// # Panics
    /// When the text has no `VALUES (…)`: a bug in the text.
    pub(crate) fn new(sql: &str) -> Self {
        let sql = without_comments(sql);
        let start = sql
            .find("VALUES (")
            .expect("a bulk statement has one `VALUES (…)`")
            + "VALUES ".len();
        let end = start + closing(&sql[start..]) + 1;
        let (head, row, tail) = (&sql[..start], &sql[start..end], &sql[end..]);
        let width = row.bytes().filter(|b| *b == b'?').count();
        let sizes = SIZES
            .into_iter()
            .filter(|size| *size == 1 || size * width + 8 <= PARAMETERS_MAX)
            .map(|size| {
                (
                    size,
                    text(format!("{head}{}{tail}", vec![row; size].join(", "))),
                )
            })
            .collect();
        Self { sizes }
    }

    /// Makes the lengths of a statement that is repeated for each row. An `UPDATE … FROM (VALUES …)` would leave it
    /// to SQLite's planner which side to read from end to end, and once a small table was analysed it reads the
    /// table (TRAPS T30).
    pub(crate) fn repeated(sql: &str) -> Self {
        let sql = without_comments(sql);
        let sizes = REPEATS
            .into_iter()
            .map(|size| (size, text(vec![&*sql; size].join(";\n"))))
            .collect();
        Self { sizes }
    }

    /// Cuts items into parts, each with the statement of its length.
    pub(crate) fn parts<'b, T>(
        &'b self,
        mut items: &'b [T],
    ) -> impl Iterator<Item = (&'b SqlStr, &'b [T])> {
        std::iter::from_fn(move || {
            let (size, sql) = self.sizes.iter().find(|(size, _)| *size <= items.len())?;
            let (part, rest) = items.split_at(*size);
            items = rest;
            Some((sql, part))
        })
    }

    #[cfg(test)]
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.sizes.iter().map(|(_, sql)| sql.as_str())
    }
}

/// A text that is kept and shared, not copied.
pub(crate) fn text(sql: String) -> SqlStr {
    AssertSqlSafe(std::sync::Arc::<str>::from(sql)).into_sql_str()
}

fn without_comments(sql: &str) -> String {
    sql.lines()
        .filter(|line| !line.starts_with("--"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The place of the parenthesis that closes the first one.
fn closing(sql: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in sql.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 1 => return at,
            b')' => depth -= 1,
            _ => {}
        }
    }
    panic!("the parentheses of a bulk statement match")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_cut_into_few_lengths_and_nothing_is_lost() {
        let bulk =
            Bulk::new("-- Why.\nINSERT INTO t (a, b)\nVALUES (?, f(?, 1))\nON CONFLICT DO NOTHING");
        let items: Vec<usize> = (0..300).collect();
        let parts: Vec<_> = bulk.parts(&items).map(|(_, part)| part.to_vec()).collect();
        assert_eq!(parts.concat(), items);
        assert_eq!(parts.len(), 1 + 1 + 3);
        let (sql, _) = bulk.parts(&items[..4]).next().unwrap();
        assert_eq!(sql.as_str().matches("(?, f(?, 1))").count(), 4);
        assert!(sql.as_str().ends_with("\nON CONFLICT DO NOTHING"));
    }

    #[test]
    fn wide_rows_stay_below_the_limit_of_parameters() {
        let bulk = Bulk::new(&format!("VALUES ({})", vec!["?"; 200].join(", ")));
        assert!(
            bulk.sizes
                .iter()
                .all(|(size, _)| size * 200 <= PARAMETERS_MAX)
        );
    }
}
