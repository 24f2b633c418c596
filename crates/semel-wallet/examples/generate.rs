//! Writes a seeded day of a wallet as JSON Lines: one file `ops.jsonl`, or with `--files N` the file
//! `setup.jsonl`, which opens and funds the accounts, and `ops-1.jsonl` to `ops-N.jsonl`, to be read after
//! it in any order or at once. The same arguments write the same bytes.
//!
//! ```sh
//! cargo run --release -p semel-wallet --features testing --example generate -- --out DIR --lines 120000
//! ```

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use semel_wallet::workload::{Shape, generate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (shape, out) = arguments(std::env::args().skip(1))?;
    fs::create_dir_all(&out)?;
    let workload = generate(shape);
    if let [only] = &workload.files[..] {
        write(&out.join("ops.jsonl"), workload.setup.iter().chain(only))?;
        return Ok(());
    }
    write(&out.join("setup.jsonl"), &workload.setup)?;
    for (number, lines) in workload.files.iter().enumerate() {
        write(&out.join(format!("ops-{}.jsonl", number + 1)), lines)?;
    }
    Ok(())
}

fn arguments(
    mut words: impl Iterator<Item = String>,
) -> Result<(Shape, PathBuf), Box<dyn std::error::Error>> {
    let mut shape = Shape::default();
    let mut out = PathBuf::from(".");
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--out" => out = value.into(),
            "--seed" => shape.seed = value.parse()?,
            "--lines" => shape.lines = value.parse()?,
            "--players" => shape.players = value.parse()?,
            "--files" => shape.files = value.parse()?,
            _ => {
                return Err(format!(
                    "unknown {word}; known: --out --seed --lines --players --files"
                )
                .into());
            }
        }
    }
    Ok((shape, out))
}

fn write<'a>(path: &Path, lines: impl IntoIterator<Item = &'a Vec<u8>>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for line in lines {
        file.write_all(line)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}
