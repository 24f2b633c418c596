//! A folder with a config file and a ledger of its own, and the program run in it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

/// The databases that every test of the ledger runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
}

/// Makes a test of each backend out of a function.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn sqlite() {
                super::$name($crate::place::Place::new($crate::place::Backend::Sqlite));
            }

            #[test]
            fn postgres() {
                super::$name($crate::place::Place::new($crate::place::Backend::Postgres));
            }
        }
    )+};
}
pub(crate) use on_both;

/// A folder and a ledger, both gone with it.
#[derive(Debug)]
pub(crate) struct Place {
    folder: tempfile::TempDir,
    schema: Option<String>,
}

/// What a run of the program left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program prints UTF-8");
        Self {
            code: output.status.code().expect("the program was not killed"),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Every line of its output, which is JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }

    /// Its one line of output.
    pub(crate) fn object(&self) -> Value {
        let lines = self.lines();
        assert_eq!(lines.len(), 1, "{self:?}");
        lines[0].clone()
    }

    /// It ended well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }
}

/// The server's URL; a test of PostgreSQL without PostgreSQL fails.
pub(crate) fn postgres_url() -> String {
    std::env::var("SEMEL_TEST_POSTGRES_URL")
        .expect("SEMEL_TEST_POSTGRES_URL is not set: run scripts/test")
}

impl Place {
    pub(crate) fn new(backend: Backend) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let schema = (backend == Backend::Postgres).then(|| {
            postgres_url();
            format!(
                "cli_{}_{}",
                std::process::id(),
                NUMBER.fetch_add(1, Ordering::Relaxed)
            )
        });
        Self {
            folder: tempfile::tempdir().unwrap(),
            schema,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The schema of its own on PostgreSQL.
    pub(crate) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    /// Reads a file.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }

    /// Writes a file of lines.
    pub(crate) fn write_lines<L: AsRef<str>>(
        &self,
        name: &str,
        lines: impl IntoIterator<Item = L>,
    ) {
        let text: String = lines
            .into_iter()
            .map(|line| format!("{}\n", line.as_ref()))
            .collect();
        self.write(name, text);
    }

    /// The `[ledger]` table.
    pub(crate) fn ledger(&self) -> String {
        match &self.schema {
            None => "[ledger]\nurl = \"sqlite:semel.db\"\n".to_owned(),
            Some(schema) => format!(
                "[ledger]\nurl = \"{}\"\nschema = \"{schema}\"\n",
                postgres_url()
            ),
        }
    }

    /// Writes `semel.toml`: the ledger and these tables.
    pub(crate) fn config(&self, tables: &str) {
        self.write("semel.toml", format!("{}{tables}", self.ledger()));
    }

    /// Writes a config of one wallet that reads `ops.jsonl`; `more` are lines of its consumer.
    pub(crate) fn wallet(&self, more: &str) {
        self.config(&format!(
            "[sources.ops]\ntype = \"file\"\npaths = [\"ops.jsonl\"]\n\
             [consumers.wallet]\nsources = [\"ops\"]\nhandler = \"wallet\"\n{more}\n\
             [consumers.wallet.wallet]\nassets = {{ EUR = 2, JPY = 0, BTC = 8 }}\n"
        ));
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
        command
            .args(args)
            .current_dir(self.path())
            .env_remove("SEMEL_LOG");
        command
    }

    /// Runs the program to its end.
    pub(crate) fn semel(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs it with JSON output.
    pub(crate) fn json(&self, args: &[&str]) -> Ran {
        self.semel(&[args, &["--json"]].concat())
    }

    /// Runs it with this standard input.
    pub(crate) fn fed(&self, args: &[&str], input: &str) -> Ran {
        let mut command = self.command(args);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        Ran::of(child.wait_with_output().unwrap())
    }

    /// Runs a statement on the ledger's database.
    pub(crate) fn sql(&self, sql: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            match &self.schema {
                Some(schema) => {
                    let mut connection = PgConnection::connect(&postgres_url()).await.unwrap();
                    let path = AssertSqlSafe(format!("SET search_path TO {schema}"));
                    sqlx::raw_sql(path).execute(&mut connection).await.unwrap();
                    let sql = AssertSqlSafe(sql.to_owned());
                    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
                }
                None => {
                    let url = format!("sqlite:{}", self.path().join("semel.db").display());
                    let mut connection = SqliteConnection::connect(&url).await.unwrap();
                    let sql = AssertSqlSafe(sql.to_owned());
                    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
                }
            }
        });
    }

    /// Runs the consumers until idle: the outcome lines and the summary of the first consumer.
    #[track_caller]
    pub(crate) fn drained(&self, more: &[&str]) -> (Vec<Value>, Value) {
        let ran = self
            .json(&[&["run", "--until-idle", "--outcomes", "-"], more].concat())
            .ok();
        let mut lines = ran.lines();
        let summary = lines.pop().unwrap();
        (lines, summary["consumers"][0].clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(schema) = &self.schema else { return };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let sql = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
        // A schema that is left behind is litter and no failure of the test.
        let _ = runtime.block_on(async {
            let mut connection = PgConnection::connect(&postgres_url()).await?;
            sqlx::raw_sql(AssertSqlSafe(sql))
                .execute(&mut connection)
                .await?;
            connection.close().await
        });
    }
}

/// The wallet's usual beginning: a bank, a house, two players, money for the first.
pub(crate) const OPENING: [&str; 5] = [
    r#"{"op":"open_account","id":"open-bank","account":"bank","asset":"EUR","kind":"external"}"#,
    r#"{"op":"open_account","id":"open-house","account":"house","asset":"EUR","kind":"house"}"#,
    r#"{"op":"open_account","id":"open-p1","account":"p1","asset":"EUR"}"#,
    r#"{"op":"open_account","id":"open-p2","account":"p2","asset":"EUR"}"#,
    r#"{"op":"transfer","id":"fund-p1","debit":"bank","credit":"p1","asset":"EUR","amount":"1000"}"#,
];
