//! How many keys a second one lane claims and commits, by batch and kind of key. `cargo bench -p semel-sqlite`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and says what it expects by unwrapping"
)]

use std::time::Instant;

use rand::Rng;
use semel_core::ledger::{
    Claim, ClaimKind, Claimed, Commit, Enrolment, Instance, LaneId, Record, SourceId,
};
use semel_core::ledger::{Sighting, SightingKind};
use semel_core::{FieldSums, Fingerprint, Key, Ledger, Scheme, Unit};
use semel_sqlite::{Options, SqliteLedger};

#[derive(Clone, Copy, Debug)]
enum Keys {
    Ordered,
    Random,
}

fn claims(kind: Keys, from: u64, count: u64) -> Vec<Claim> {
    let mut claims: Vec<Claim> = (from..from + count)
        .map(|n| {
            let mut random = [0; 10];
            rand::rng().fill_bytes(&mut random);
            let key = match kind {
                Keys::Ordered => Key::v7(1_800_000_000_000 + n / 4, random),
                Keys::Random => {
                    let mut bytes = [0; 16];
                    rand::rng().fill_bytes(&mut bytes);
                    Key::from_bytes(bytes)
                }
            };
            Claim {
                key,
                fingerprint: Fingerprint::of_bytes(key.as_bytes()),
                scheme: Scheme::ALL,
                sums: FieldSums::from_bytes(&[1; 12]),
                source: SourceId(1),
                kind: ClaimKind::New,
            }
        })
        .collect();
    claims.sort_unstable_by_key(|claim| claim.key);
    claims
}

async fn measure(kind: Keys, batch: u64, total: u64) {
    let dir =
        tempfile::tempdir_in(std::env::var("SEMEL_BENCH_DIR").unwrap_or_else(|_| ".".to_owned()))
            .unwrap();
    let url = format!("sqlite:{}", dir.path().join("semel.db").display());
    let ledger = SqliteLedger::open(Options::new(url)).await.unwrap();
    let enrolment = Enrolment {
        consumer: "bench".to_owned(),
        handler: "bench".to_owned(),
        rules: Fingerprint::NONE,
        sources: vec!["a".to_owned()],
        accept_key_change: false,
    };
    let consumer = ledger.enroll(&enrolment).await.unwrap().consumer;
    let mut lane = ledger
        .connect(LaneId {
            consumer,
            instance: Instance([1; 16]),
            lane: 0,
        })
        .await
        .unwrap();
    let batches: Vec<Vec<Claim>> = (0..total / batch)
        .map(|n| claims(kind, n * batch, batch))
        .collect();
    for (what, fresh) in [("fresh", true), ("seen", false)] {
        let start = Instant::now();
        for claims in &batches {
            let mut unit = ledger.begin(lane).await.unwrap();
            let claimed = unit.claim(claims).await.unwrap();
            assert!(
                claimed
                    .iter()
                    .all(|claimed| (*claimed == Claimed::Fresh) == fresh)
            );
            let mut record = Record::default();
            if !fresh {
                record.sightings = claims.iter().map(sighting).collect();
            }
            unit.write(&record).await.unwrap();
            let Commit::Committed(_, next) = unit.commit().await else {
                panic!("not committed")
            };
            lane = next;
        }
        let rate = total as f64 / start.elapsed().as_secs_f64();
        println!("{kind:?} keys, batch {batch}, {what}: {rate:.0} claims/s");
    }
}

fn sighting(claim: &Claim) -> Sighting {
    Sighting {
        key: claim.key,
        source: claim.source,
        kind: SightingKind::Duplicate,
        count: 1,
        partition: "ops".into(),
        offset: Some(1),
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // One case alone: `SEMEL_BENCH_CASE=Ordered-1000`.
    let wanted = std::env::var("SEMEL_BENCH_CASE").ok();
    for (kind, batch, total) in [
        (Keys::Ordered, 1, 2_000),
        (Keys::Ordered, 100, 50_000),
        (Keys::Ordered, 1000, 300_000),
        (Keys::Ordered, 5000, 300_000),
        (Keys::Random, 1000, 300_000),
    ]
    .into_iter()
    .filter(|(kind, batch, _)| {
        wanted
            .as_ref()
            .is_none_or(|wanted| *wanted == format!("{kind:?}-{batch}"))
    }) {
        measure(kind, batch, total).await;
    }
}
