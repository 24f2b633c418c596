//! How many claims and rows a second the ledger does, beside the same insert written by hand, in turns on the same
//! machine and tables. Needs `SEMEL_TEST_POSTGRES_URL`; run it with `--release`.
#![expect(clippy::print_stdout, reason = "an example prints what it measured")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use semel_core::ledger::{
    Claim, ClaimKind, Commit, Enrolment, Instance, LaneId, Reached, Record, SourceId,
};
use semel_core::rows::{Change, Column, Delta, Lock, Rows, Table, Type, Value};
use semel_core::{Fault, FieldSums, Fingerprint, Key, Ledger, Scheme, Unit};
use semel_postgres::{Options, PostgresLane, PostgresLedger};
use sqlx::postgres::PgBindIterExt;
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

const BATCH: usize = 1_000;
const ACCOUNTS: u64 = 10_000;

static ACCOUNT: Table = Table {
    name: "rates_account",
    columns: &[
        Column {
            name: "id",
            kind: Type::Key,
            change: Change::Fixed,
        },
        Column {
            name: "status",
            kind: Type::Int,
            change: Change::Set,
        },
        Column {
            name: "posted",
            kind: Type::Amount,
            change: Change::Counter,
        },
    ],
};
static JOURNAL: Table = Table {
    name: "rates_journal",
    columns: &[
        Column {
            name: "id",
            kind: Type::Key,
            change: Change::Fixed,
        },
        Column {
            name: "account",
            kind: Type::Key,
            change: Change::Fixed,
        },
        Column {
            name: "amount",
            kind: Type::Amount,
            change: Change::Fixed,
        },
    ],
};

#[derive(Clone, Copy)]
enum Kind {
    V7,
    V4,
}

fn keys(kind: Kind, count: usize) -> Vec<Key> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let ms = u64::try_from(now.as_millis()).expect("fits");
    let mut keys: Vec<Key> = (0..count)
        .map(|_| match kind {
            Kind::V7 => Key::v7(ms, rand::random()),
            Kind::V4 => Key::from_bytes(rand::random()),
        })
        .collect();
    keys.sort_unstable();
    keys
}

fn claims(keys: &[Key]) -> Vec<Claim> {
    let claim = |key: &Key| Claim {
        key: *key,
        fingerprint: Fingerprint::from_bytes(rand::random()),
        scheme: Scheme::ALL,
        sums: FieldSums::from_bytes(&[7; 12]),
        source: SourceId(1),
        kind: ClaimKind::New,
    };
    keys.iter().map(claim).collect()
}

fn done(commit: Commit<PostgresLane>) -> Result<PostgresLane, Fault> {
    match commit {
        Commit::Committed(_, lane) => Ok(lane),
        Commit::RolledBack(fault) | Commit::Unknown(fault) => Err(fault),
    }
}

/// One lane's units, each a batch of claims and a position.
async fn units(ledger: &PostgresLedger, id: LaneId, work: &[Vec<Claim>]) -> Result<(), Fault> {
    let mut lane = ledger.connect(id).await?;
    for batch in work {
        let mut unit = ledger.begin(lane).await?;
        unit.claim(batch).await?;
        let reached = Reached {
            source: SourceId(1),
            partition: "p".into(),
            next: 1,
            mark: "m".into(),
        };
        unit.write(&Record {
            positions: vec![reached],
            ..Record::default()
        })
        .await?;
        lane = done(unit.commit().await)?;
    }
    Ok(())
}

/// The same rows by hand.
async fn by_hand(url: &str, work: &[Vec<Claim>]) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    for batch in work {
        let mut tx = connection.begin().await?;
        let rows = sqlx::query(
            "INSERT INTO semel_ledger (consumer, key, fingerprint, scheme, field_sums, source, outcome)
             SELECT 1, k, f, 1, s, 1, 1 FROM unnest($1::uuid[], $2::uuid[], $3::bytea[]) AS c (k, f, s)
             ON CONFLICT DO NOTHING RETURNING key",
        )
        .bind(batch.iter().map(|c| Uuid::from_bytes(c.key.into_bytes())).bind_iter())
        .bind(batch.iter().map(|c| Uuid::from_bytes(c.fingerprint.into_bytes())).bind_iter())
        .bind(batch.iter().map(|c| c.sums.as_bytes()).bind_iter())
        .fetch_all(&mut *tx)
        .await?;
        assert_eq!(rows.len(), batch.len());
        tx.commit().await?;
    }
    Ok(())
}

async fn reset(url: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let sql = "TRUNCATE semel_ledger, semel_position; CHECKPOINT";
    sqlx::raw_sql(sql).execute(&mut connection).await.map(drop)
}

struct Bench {
    ledger: PostgresLedger,
    url: String,
    lane: LaneId,
    batches: usize,
}

impl Bench {
    fn lane(&self, lane: usize) -> LaneId {
        LaneId {
            lane: i16::try_from(lane).expect("few lanes"),
            ..self.lane
        }
    }

    async fn claims(
        &self,
        kind: Kind,
        connections: usize,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let name = match kind {
            Kind::V7 => "v7",
            Kind::V4 => "v4",
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..30 {
            for hand in [true, false] {
                reset(&self.url).await?;
                let work: Vec<Vec<Vec<Claim>>> = (0..connections)
                    .map(|_| {
                        (0..self.batches)
                            .map(|_| claims(&keys(kind, BATCH)))
                            .collect()
                    })
                    .collect();
                let start = Instant::now();
                if hand {
                    for ended in join_all(work.iter().map(|work| by_hand(&self.url, work))).await {
                        ended?;
                    }
                } else {
                    let lanes = work
                        .iter()
                        .enumerate()
                        .map(|(n, work)| units(&self.ledger, self.lane(n), work));
                    for ended in join_all(lanes).await {
                        ended.map_err(|fault| fault.to_string())?;
                    }
                }
                let rate = rate(connections * self.batches * BATCH, start);
                if hand {
                    theirs.push(rate)
                } else {
                    ours.push(rate)
                }
            }
        }
        let (ours, theirs) = (best(&ours), best(&theirs));
        println!(
            "claims {name}, {connections} connections: {ours:.0}/s, by hand {theirs:.0}/s, ratio {:.2}",
            ours / theirs
        );
        Ok(())
    }

    async fn seen(&self) -> Result<(), Fault> {
        let work: Vec<Vec<Claim>> = (0..self.batches)
            .map(|_| claims(&keys(Kind::V7, BATCH)))
            .collect();
        units(&self.ledger, self.lane(0), &work).await?;
        let start = Instant::now();
        units(&self.ledger, self.lane(0), &work).await?;
        println!(
            "copies, 1 connection: {:.0}/s",
            rate(self.batches * BATCH, start)
        );
        Ok(())
    }

    async fn rows(&self) -> Result<(), Fault> {
        let mut lane = self.ledger.connect(self.lane(0)).await?;
        let account = |n: u64| Value::Key(Key::from_bytes(u128::from(n % ACCOUNTS).to_be_bytes()));
        let window = |batch: usize| {
            let start = u64::try_from(batch * BATCH).expect("small") % ACCOUNTS;
            start..start + u64::try_from(BATCH).expect("small")
        };
        let mut spent = [0.0; 4];
        for batch in 0..self.batches {
            let ids: Vec<Value> = window(batch).map(account).collect();
            let entries: Vec<Value> = keys(Kind::V7, BATCH)
                .into_iter()
                .zip(&ids)
                .flat_map(|(key, id)| [Value::Key(key), id.clone(), Value::Amount(5)])
                .collect();
            let mut unit = self.ledger.begin(lane).await?;
            let start = Instant::now();
            let mut rows = unit.read(&ACCOUNT, &ids, Lock::Update).await?;
            spent[0] += start.elapsed().as_secs_f64();
            for row in rows.chunks_mut(3) {
                row[2] = Value::Amount(1);
            }
            let start = Instant::now();
            unit.update(&ACCOUNT, &rows).await?;
            spent[1] += start.elapsed().as_secs_f64();
            let start = Instant::now();
            unit.insert(&JOURNAL, &entries).await?;
            spent[2] += start.elapsed().as_secs_f64();
            lane = done(unit.commit().await)?;
            let deltas: Vec<Delta> = ids
                .iter()
                .map(|id| Delta {
                    seen: vec![id.clone(), Value::Int(1)],
                    add: vec![1],
                })
                .collect();
            let mut unit = self.ledger.begin(lane).await?;
            let start = Instant::now();
            unit.add(&ACCOUNT, &deltas).await?;
            spent[3] += start.elapsed().as_secs_f64();
            lane = done(unit.commit().await)?;
        }
        let count = self.batches * BATCH;
        for (name, spent) in ["locked read", "update", "insert", "add"]
            .into_iter()
            .zip(spent)
        {
            println!(
                "rows, {name}: {:.0}/s",
                f64::from(u32::try_from(count).expect("small")) / spent
            );
        }
        Ok(())
    }
}

fn rate(count: usize, start: Instant) -> f64 {
    f64::from(u32::try_from(count).expect("small")) / start.elapsed().as_secs_f64()
}

/// The quietest run: others on the machine only ever slow one down.
fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url =
        std::env::var("SEMEL_TEST_POSTGRES_URL").map_err(|_| "set SEMEL_TEST_POSTGRES_URL")?;
    let mut options = Options::new(&url);
    options.schema = "semel_rates".to_owned();
    let ledger = PostgresLedger::open(options)
        .await
        .map_err(|fault| fault.to_string())?;
    let enrolment = Enrolment {
        consumer: "rates".to_owned(),
        handler: "rates".to_owned(),
        rules: Fingerprint::NONE,
        sources: vec!["main".to_owned()],
        accept_key_change: false,
    };
    let enrolled = ledger
        .enroll(&enrolment)
        .await
        .map_err(|fault| fault.to_string())?;
    let mut psql = PgConnection::connect(&url).await?;
    let tables = format!(
        "SET search_path = semel_rates; DROP TABLE IF EXISTS rates_account, rates_journal;
         CREATE TABLE rates_account (id uuid PRIMARY KEY, status bigint NOT NULL, posted numeric(39,0) NOT NULL);
         CREATE TABLE rates_journal (id uuid PRIMARY KEY, account uuid NOT NULL, amount numeric(39,0) NOT NULL);
         INSERT INTO rates_account SELECT lpad(to_hex(n), 32, '0')::uuid, 1, 0 FROM generate_series(0, {ACCOUNTS} - 1) n"
    );
    sqlx::raw_sql(AssertSqlSafe(tables))
        .execute(&mut psql)
        .await?;
    let separator = if url.contains('?') { '&' } else { '?' };
    let bench = Bench {
        ledger,
        url: format!("{url}{separator}options[search_path]=semel_rates"),
        lane: LaneId {
            consumer: enrolled.consumer,
            instance: Instance(rand::random()),
            lane: 0,
        },
        batches: std::env::args()
            .nth(1)
            .and_then(|n| n.parse().ok())
            .unwrap_or(15),
    };
    for kind in [Kind::V7, Kind::V4] {
        for connections in [1, 2] {
            bench.claims(kind, connections).await?;
        }
    }
    bench.seen().await.map_err(|fault| fault.to_string())?;
    bench.rows().await.map_err(|fault| fault.to_string())?;
    sqlx::raw_sql("DROP SCHEMA semel_rates CASCADE")
        .execute(&mut psql)
        .await?;
    Ok(())
}
