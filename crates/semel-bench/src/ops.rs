//! The work: credits written as JSON Lines by a seed, and what must be in the database afterwards.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use semel_core::Key;
use semel_storm::Dice;
use serde::Deserialize;
use uuid::Uuid;

/// How many files the work is spread over: each is a partition.
pub const FILES: usize = 4;

/// How many accounts the benchmarks credit.
pub const ACCOUNTS: u64 = 10_000;

/// Their seed.
pub const SEED: u64 = 20_261_129;

/// The most messages for the naive consumer: enough for its rate, where the whole work would take it minutes.
pub const NAIVE_OPS_MAX: u64 = 40_000;

/// How far behind its first delivery a copy comes at most, in messages of one file.
const COPY_DISTANCE_MAX: u64 = 5_000;

/// When the keys of version 7 begin, Unix ms. A fixed time: one seed is one file.
const EPOCH_MS: u64 = 1_790_000_000_000;

/// How messages are made.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Messages in all files together.
    pub count: u64,
    /// How many accounts they credit.
    pub accounts: u64,
    /// How many of 1000 messages are copies of an earlier one.
    pub copies_per_mille: u16,
    /// Random keys (version 4) in place of time-ordered ones (version 7).
    pub random_keys: bool,
    /// Lines of the wallet (transfers from the bank) in place of plain credits.
    pub wallet: bool,
    /// The seed.
    pub seed: u64,
}

/// Written files, and what their messages amount to.
#[derive(Debug, Clone)]
pub struct Work {
    /// The folder.
    pub folder: PathBuf,
    /// The names of the files in it.
    pub files: Vec<String>,
    /// Messages, copies included.
    pub count: u64,
    /// Operations: messages without copies.
    pub distinct: u64,
    /// What every account must hold.
    pub balances: BTreeMap<i64, i64>,
}

/// One message as every rival parses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Credit {
    /// The operation's id.
    #[serde(deserialize_with = "uuid_of_text")]
    pub id: Uuid,
    /// Whom it credits.
    pub account: i64,
    /// With how much.
    pub amount: i64,
}

fn uuid_of_text<'de, D: serde::Deserializer<'de>>(text: D) -> Result<Uuid, D::Error> {
    Uuid::parse_str(<&str>::deserialize(text)?).map_err(serde::de::Error::custom)
}

impl Credit {
    fn made(dice: &mut Dice, shape: &Shape, place: u64) -> Self {
        let mut random = [0; 16];
        random[..8].copy_from_slice(&dice.roll().to_be_bytes());
        random[8..].copy_from_slice(&dice.roll().to_be_bytes());
        let id = if shape.random_keys {
            uuid::Builder::from_random_bytes(random).into_uuid()
        } else {
            let tail = *random.first_chunk().expect("sixteen bytes have ten");
            // Fifty operations a millisecond: faster than any consumer here.
            Uuid::from_bytes(Key::v7(EPOCH_MS + place / 50, tail).into_bytes())
        };
        let mut small = |end| i64::try_from(dice.below(end)).expect("far below 63 bits");
        Self {
            id,
            account: small(shape.accounts),
            amount: small(10_000) + 1,
        }
    }

    fn write(&self, shape: &Shape, out: &mut impl Write) -> io::Result<()> {
        let Self {
            id,
            account,
            amount,
        } = self;
        if shape.wallet {
            writeln!(
                out,
                r#"{{"op":"transfer","id":"{id}","debit":"bank","credit":"p{account}","asset":"EUR","amount":{amount}}}"#
            )
        } else {
            writeln!(
                out,
                r#"{{"id":"{id}","account":{account},"amount":{amount}}}"#
            )
        }
    }
}

/// Writes the files into `folder`.
///
/// # Errors
/// The file system's.
pub fn write(folder: &Path, name: &str, shape: &Shape) -> io::Result<Work> {
    let mut dice = Dice::new(shape.seed);
    let mut files = Vec::new();
    let mut outs = Vec::new();
    for i in 0..FILES {
        let file = format!("{name}-{i}.jsonl");
        outs.push(BufWriter::new(File::create(folder.join(&file))?));
        files.push(file);
    }
    let mut recent: Vec<Vec<Credit>> = vec![Vec::new(); FILES];
    let mut work = Work {
        folder: folder.to_owned(),
        files,
        count: shape.count,
        distinct: 0,
        balances: BTreeMap::new(),
    };
    for place in 0..shape.count {
        let file = usize::try_from(place).expect("a benchmark fits into memory") % FILES;
        let known = &mut recent[file];
        let credit = if !known.is_empty() && dice.hit(shape.copies_per_mille) {
            let back = dice.below(COPY_DISTANCE_MAX.min(known.len() as u64));
            known[known.len() - 1 - usize::try_from(back).expect("a distance is small")]
        } else {
            let credit = Credit::made(&mut dice, shape, place);
            work.distinct += 1;
            *work.balances.entry(credit.account).or_default() += credit.amount;
            known.push(credit);
            credit
        };
        credit.write(shape, &mut outs[file])?;
    }
    outs.iter_mut().try_for_each(Write::flush)?;
    Ok(work)
}

/// Writes the messages that open the wallet's accounts: the bank and every player.
///
/// # Errors
/// The file system's.
pub fn write_accounts(folder: &Path, accounts: u64) -> io::Result<String> {
    let name = "accounts.jsonl";
    let mut out = BufWriter::new(File::create(folder.join(name))?);
    writeln!(
        out,
        r#"{{"op":"open_account","id":"open-bank","account":"bank","asset":"EUR","kind":"external"}}"#
    )?;
    for account in 0..accounts {
        writeln!(
            out,
            r#"{{"op":"open_account","id":"open-p{account}","account":"p{account}","asset":"EUR"}}"#
        )?;
    }
    out.flush()?;
    Ok(name.to_owned())
}

/// Reads credits of one file, a batch at a time, as a rival's consumer does: parsed, typed, nothing kept.
#[derive(Debug)]
pub struct Reader {
    lines: BufReader<File>,
    line: Vec<u8>,
}

impl Reader {
    /// Opens a file of the work.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(work: &Work, file: usize) -> io::Result<Self> {
        let file = File::open(work.folder.join(&work.files[file]))?;
        Ok(Self {
            lines: BufReader::with_capacity(64 * 1024, file),
            line: Vec::new(),
        })
    }

    /// The next messages, at most `count`; none at the end.
    ///
    /// # Errors
    /// The file system's, or a line that is no credit.
    pub fn batch(&mut self, count: usize) -> io::Result<Vec<Credit>> {
        let mut batch = Vec::with_capacity(count.min(10_000));
        while batch.len() < count {
            self.line.clear();
            if self.lines.read_until(b'\n', &mut self.line)? == 0 {
                break;
            }
            batch.push(serde_json::from_slice(&self.line)?);
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        count: 4_000,
        accounts: 50,
        copies_per_mille: 100,
        random_keys: false,
        wallet: false,
        seed: 7,
    };

    #[test]
    fn one_seed_is_one_work_whose_files_hold_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let work = write(folder.path(), "a", &SHAPE).unwrap();
        let again = write(folder.path(), "b", &SHAPE).unwrap();
        let mut first_of = std::collections::HashMap::new();
        let mut count = 0;
        for file in 0..FILES {
            let read = Reader::open(&work, file).unwrap().batch(10_000).unwrap();
            assert_eq!(
                read,
                Reader::open(&again, file).unwrap().batch(10_000).unwrap()
            );
            count += read.len() as u64;
            for credit in read {
                assert_eq!(
                    *first_of.entry(credit.id).or_insert(credit),
                    credit,
                    "a copy is a copy"
                );
            }
        }
        assert_eq!((count, first_of.len() as u64), (work.count, work.distinct));
        assert!(
            (300..500).contains(&(work.count - work.distinct)),
            "a tenth are copies"
        );
        let sum: i64 = first_of.values().map(|credit| credit.amount).sum();
        assert_eq!(work.balances.values().sum::<i64>(), sum);
    }
}
