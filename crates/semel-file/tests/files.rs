//! What users of file sources rely on.
#![expect(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use semel_core::ledger::{ConsumerId, Fence, Instance, LaneId, Reached, SourceId};
use semel_core::source::{
    BoxFuture, Delivery, Limit, NoPositions, Positions, Received, Settlements, Source,
};
use semel_core::{Class, Committed, Fault};
use semel_file::{FileSource, Settings, Start, StdinSource};

const LIMIT: Limit = Limit {
    count: 100,
    bytes: 1 << 20,
};

/// Positions as a ledger would keep them.
#[derive(Debug, Default, Clone)]
struct Kept(Arc<Mutex<BTreeMap<String, Reached>>>);

impl Kept {
    fn reach(&self, delivery: &Delivery) {
        let position = &delivery.message.position;
        let reached = Reached {
            source: SourceId(1),
            partition: position.partition.clone(),
            next: position.offset.unwrap() + 1,
            mark: delivery.mark.clone().unwrap(),
        };
        self.0
            .lock()
            .unwrap()
            .insert(position.partition.to_string(), reached);
    }
}

impl Positions for Kept {
    fn reached(&self, partition: &str) -> BoxFuture<'_, Result<Option<Reached>, Fault>> {
        let reached = self.0.lock().unwrap().get(partition).cloned();
        Box::pin(std::future::ready(Ok(reached)))
    }
}

fn proof() -> Committed {
    let lane = LaneId {
        consumer: ConsumerId(1),
        instance: Instance([0; 16]),
        lane: 0,
    };
    Committed::witnessed(Fence { lane, unit: 1 })
}

async fn batch(source: &dyn Source) -> Vec<Delivery> {
    match source.receive(LIMIT).await.unwrap() {
        Received::Batch(batch) => batch,
        other => panic!("{other:?}"),
    }
}

async fn ack(source: &dyn Source, deliveries: Vec<Delivery>) {
    let receipts = deliveries
        .into_iter()
        .map(|d| d.receipt.ack(&proof()))
        .collect();
    source
        .settle(Settlements {
            receipts,
            positions: Vec::new(),
        })
        .await
        .unwrap();
}

/// Everything to the end, acked at once: (partition, line, content).
async fn drain(source: &dyn Source, kept: Option<&Kept>) -> Vec<(String, u64, String)> {
    let mut all = Vec::new();
    loop {
        match source.receive(LIMIT).await.unwrap() {
            Received::Batch(batch) => {
                for delivery in &batch {
                    let position = &delivery.message.position;
                    let text = String::from_utf8_lossy(delivery.message.bytes()).into_owned();
                    all.push((
                        position.partition.to_string(),
                        position.offset.unwrap(),
                        text,
                    ));
                    if let Some(kept) = kept {
                        kept.reach(delivery);
                    }
                }
                ack(source, batch).await;
            }
            Received::Drained => panic!("a file ends, it does not drain"),
            Received::End => return all,
        }
    }
}

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    std::fs::write(folder.join(name), content).unwrap();
}

async fn open(folder: &Path, kept: &Kept) -> Result<FileSource, Fault> {
    FileSource::open(Settings::new(folder, ["ops.jsonl"]), Arc::new(kept.clone())).await
}

#[tokio::test]
async fn a_file_goes_on_behind_its_position_and_empty_lines_keep_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::default();
    write(folder.path(), "ops.jsonl", "\u{feff}one\r\n\r\ntwo\n");
    let source = open(folder.path(), &kept).await.unwrap();
    let lines = drain(&source, Some(&kept)).await;
    assert_eq!(
        lines,
        [
            ("ops.jsonl".into(), 1, "one".into()),
            ("ops.jsonl".into(), 3, "two".into())
        ]
    );

    write(
        folder.path(),
        "ops.jsonl",
        "\u{feff}one\r\n\r\ntwo\n\n{\"n\":3}",
    );
    let source = open(folder.path(), &kept).await.unwrap();
    assert_eq!(
        drain(&source, Some(&kept)).await,
        [("ops.jsonl".into(), 5, "{\"n\":3}".into())]
    );

    // Only the missing line end came.
    write(
        folder.path(),
        "ops.jsonl",
        "\u{feff}one\r\n\r\ntwo\n\n{\"n\":3}\r\nfour\n",
    );
    let source = open(folder.path(), &kept).await.unwrap();
    assert_eq!(
        drain(&source, Some(&kept)).await,
        [("ops.jsonl".into(), 6, "four".into())]
    );
    let source = open(folder.path(), &kept).await.unwrap();
    assert_eq!(drain(&source, Some(&kept)).await, []);
}

#[tokio::test]
async fn from_the_start_means_the_first_line_whatever_the_position() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::default();
    write(folder.path(), "ops.jsonl", "one\ntwo\n");
    drain(&open(folder.path(), &kept).await.unwrap(), Some(&kept)).await;
    let settings = Settings {
        start: Start::First,
        ..Settings::new(folder.path(), ["ops.jsonl"])
    };
    let source = FileSource::open(settings, Arc::new(kept)).await.unwrap();
    assert_eq!(drain(&source, None).await.len(), 2);
}

#[tokio::test]
async fn a_file_that_shrank_changed_or_was_continued_in_its_last_line_stops_by_name_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("one\ntwo\n", "one\n", "line 2"),
        ("one\ntwo\n", "one\ntwi\nthree\n", "line 2"),
        ("one\n{}", "one\n{} and more\n", "line 2"),
    ];
    for (before, after, line) in cases {
        let kept = Kept::default();
        write(folder.path(), "ops.jsonl", before);
        drain(&open(folder.path(), &kept).await.unwrap(), Some(&kept)).await;
        write(folder.path(), "ops.jsonl", after);
        let fault = open(folder.path(), &kept).await.unwrap_err();
        assert_eq!(fault.class, Class::Stop, "{fault}");
        assert!(
            fault.to_string().contains("`ops.jsonl`") && fault.to_string().contains(line),
            "{fault}"
        );
    }
}

#[tokio::test]
async fn a_missing_file_is_named_and_so_is_one_listed_twice() {
    let folder = tempfile::tempdir().unwrap();
    let fault = open(folder.path(), &Kept::default()).await.unwrap_err();
    assert_eq!(fault.class, Class::Down);
    assert!(fault.to_string().contains("ops.jsonl"), "{fault}");
    write(folder.path(), "a.jsonl", "");
    let settings = Settings::new(folder.path(), ["a.jsonl", "a.jsonl"]);
    let fault = FileSource::open(settings, Arc::new(NoPositions))
        .await
        .unwrap_err();
    assert!(fault.to_string().contains("twice"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_nacked_line_comes_again_after_its_delay_and_the_end_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "ops.jsonl", "one\ntwo\n");
    let source = open(folder.path(), &Kept::default()).await.unwrap();
    let mut deliveries = batch(&source).await;
    while deliveries.len() < 2 {
        deliveries.extend(batch(&source).await);
    }
    let two = deliveries.pop().unwrap();
    let settlements = Settlements {
        receipts: vec![two.receipt.nack(5_000)],
        positions: Vec::new(),
    };
    source.settle(settlements).await.unwrap();
    ack(&source, deliveries).await;
    let before = tokio::time::Instant::now();
    let again = batch(&source).await;
    assert!(before.elapsed().as_millis() >= 5_000);
    assert_eq!(again[0].message.bytes(), b"two");
    assert_eq!(again[0].message.attempt, 2);
    ack(&source, again).await;
    assert!(matches!(source.receive(LIMIT).await, Ok(Received::End)));
    assert!(matches!(source.receive(LIMIT).await, Ok(Received::End)));
}

#[tokio::test]
async fn four_files_come_side_by_side_each_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c", "d"];
    for name in names {
        let lines: String = (1..=20_000).map(|i| format!("{name}{i}\n")).collect();
        write(folder.path(), name, lines);
    }
    let source = FileSource::open(Settings::new(folder.path(), names), Arc::new(NoPositions))
        .await
        .unwrap();
    let all = drain(&source, None).await;
    assert_eq!(all.len(), 80_000);
    for name in names {
        let lines: Vec<u64> = all
            .iter()
            .filter(|(p, _, _)| p == name)
            .map(|(_, line, _)| *line)
            .collect();
        assert!(lines.iter().copied().eq(1..=20_000));
    }
    let first_of_d = all.iter().position(|(p, _, _)| p == "d").unwrap();
    assert!(
        first_of_d < 30_000,
        "the last file must not wait for the first one's end"
    );
}

#[tokio::test]
async fn what_a_dropped_receive_would_have_handed_out_comes_with_a_later_one() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (1..=50_000).map(|i| format!("{i}\n")).collect();
    write(folder.path(), "ops.jsonl", lines);
    let source = open(folder.path(), &Kept::default()).await.unwrap();
    let mut seen = Vec::new();
    loop {
        // Polled once, then dropped if it is not ready.
        let received = tokio::select! { biased; received = source.receive(LIMIT) => received.unwrap(), () = std::future::ready(()) => { tokio::task::yield_now().await; continue } };
        match received {
            Received::Batch(batch) => {
                seen.extend(batch.iter().map(|d| d.message.position.offset.unwrap()));
                ack(&source, batch).await;
            }
            Received::Drained => panic!("a file ends, it does not drain"),
            Received::End => break,
        }
    }
    assert!(seen.iter().copied().eq(1..=50_000));
}

#[tokio::test]
async fn batches_stay_within_count_and_bytes_but_a_larger_message_still_comes() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "ops.jsonl",
        format!("{}\nsmall\nsmall\nsmall\n", "x".repeat(5_000)),
    );
    let source = open(folder.path(), &Kept::default()).await.unwrap();
    let mut sizes = Vec::new();
    loop {
        match source
            .receive(Limit {
                count: 2,
                bytes: 1_000,
            })
            .await
            .unwrap()
        {
            Received::Batch(batch) => {
                sizes.push(batch.len());
                ack(&source, batch).await;
            }
            Received::Drained => panic!("a file ends, it does not drain"),
            Received::End => break,
        }
    }
    assert_eq!(sizes[0], 1);
    assert!(sizes.iter().all(|&n| n <= 2), "{sizes:?}");
}

#[tokio::test]
async fn standard_input_has_lines_and_no_marks() {
    let input = std::io::Cursor::new("one\n\ntwo");
    let source = StdinSource::of_reader(input, 100).unwrap();
    let mut deliveries = Vec::new();
    while deliveries.len() < 2 {
        deliveries.extend(batch(&source).await);
    }
    assert!(deliveries.iter().all(|d| d.mark.is_none()));
    assert_eq!(deliveries[1].message.position.offset, Some(3));
    assert_eq!(deliveries[1].message.position.partition.as_ref(), "stdin");
    ack(&source, deliveries).await;
    assert!(matches!(source.receive(LIMIT).await, Ok(Received::End)));
}

#[tokio::test]
async fn a_folder_is_refused_when_the_source_opens() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new(folder.path(), ["."]);
    let fault = FileSource::open(settings, Arc::new(Kept::default()))
        .await
        .unwrap_err();
    assert!(fault.to_string().contains("is a folder"), "{fault}");
}

#[tokio::test]
async fn csv_records_become_json_objects_of_text_and_go_on_behind_their_position() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::default();
    let settings = || Settings::new(folder.path(), ["ops.csv"]);
    let rows = "id,amount,note\r\np-1,007,\"two\r\nlines, \"\"quoted\"\"\"\r\np-2,1.50,\r\n";
    write(folder.path(), "ops.csv", rows);
    let source = FileSource::open(settings(), Arc::new(kept.clone()))
        .await
        .unwrap();
    let lines = drain(&source, Some(&kept)).await;
    assert_eq!(lines[0].1, 2);
    assert_eq!(
        lines[0].2,
        r#"{"id":"p-1","amount":"007","note":"two\r\nlines, \"quoted\""}"#
    );
    assert_eq!(
        (lines[1].1, lines[1].2.as_str()),
        (4, r#"{"id":"p-2","amount":"1.50","note":null}"#)
    );

    write(
        folder.path(),
        "ops.csv",
        format!("{rows}p-3,9\r\np-4,1,x\n"),
    );
    let source = FileSource::open(settings(), Arc::new(kept.clone()))
        .await
        .unwrap();
    let lines = drain(&source, Some(&kept)).await;
    assert_eq!(lines.len(), 2);
    // A record that does not fit its header is passed as it stands: not one JSON object.
    assert_eq!((lines[0].1, lines[0].2.trim()), (5, "p-3,9"));
    assert_eq!(
        (lines[1].1, lines[1].2.as_str()),
        (6, r#"{"id":"p-4","amount":"1","note":"x"}"#)
    );
}

/// The content and whether a position may be stored behind it.
async fn marked(folder: &Path, name: &str, kept: &Kept) -> Vec<(u64, String, bool)> {
    let settings = Settings::new(folder, [name]);
    let source = FileSource::open(settings, Arc::new(kept.clone()))
        .await
        .unwrap();
    let mut all = Vec::new();
    while let Received::Batch(batch) = source.receive(LIMIT).await.unwrap() {
        for delivery in &batch {
            let text = String::from_utf8_lossy(delivery.message.bytes()).into_owned();
            let offset = delivery.message.position.offset.unwrap();
            all.push((offset, text, delivery.mark.is_some()));
            if delivery.mark.is_some() {
                kept.reach(delivery);
            }
        }
        ack(&source, batch).await;
    }
    all
}

#[tokio::test]
async fn a_csv_record_cut_at_any_byte_is_no_message_until_its_line_end_is_there() {
    let whole = "id,amount\r\na,100\r\n\"b\n\"\"x\",200\r\n";
    let first = whole.find("\"b").unwrap();
    for end in first + 1..whole.len() - 1 {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::default();
        write(folder.path(), "ops.csv", &whole[..end]);
        let read = marked(folder.path(), "ops.csv", &kept).await;
        let whole_first = (2, r#"{"id":"a","amount":"100"}"#.to_owned(), true);
        assert_eq!(read[0], whole_first, "{end}");
        assert_eq!(read.len(), 2, "{end}");
        let (line, text, is_marked) = &read[1];
        assert_eq!((*line, *is_marked), (3, false), "{end}");
        // As it stands in the file, so that nothing takes it for a message.
        assert!(
            whole[first..end].starts_with(text.as_str()),
            "{end}: {text}"
        );
        write(folder.path(), "ops.csv", whole);
        let again = marked(folder.path(), "ops.csv", &kept).await;
        let completed = r#"{"id":"b\n\"x","amount":"200"}"#.to_owned();
        assert_eq!(again, [(3, completed, true)], "{end}");
        assert_eq!(marked(folder.path(), "ops.csv", &kept).await, [], "{end}");
    }
}

#[tokio::test]
async fn a_json_line_cut_at_any_byte_is_done_only_as_a_whole_object() {
    let whole = "{\"id\":\"a\"}\n{\"id\":\"b\",\"n\":12}\r\n";
    let first = whole.find("{\"id\":\"b").unwrap();
    let object = whole.len() - 2;
    for end in first + 1..whole.len() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::default();
        write(folder.path(), "ops.jsonl", &whole[..end]);
        let read = marked(folder.path(), "ops.jsonl", &kept).await;
        let is_whole = end >= object;
        let text = whole[first..end.min(object)].to_owned();
        // A carriage return alone is no line end.
        let text = if end > object { text + "\r" } else { text };
        assert_eq!(read[1], (2, text, is_whole), "{end}");
        write(folder.path(), "ops.jsonl", whole);
        let again = marked(folder.path(), "ops.jsonl", &kept).await;
        let completed = (2, whole[first..object].to_owned(), true);
        assert_eq!(
            again,
            Vec::from_iter((!is_whole).then_some(completed)),
            "{end}"
        );
        assert_eq!(marked(folder.path(), "ops.jsonl", &kept).await, [], "{end}");
    }
}

#[tokio::test]
async fn a_source_tells_how_much_is_behind_it_and_which_files_are_others() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::default();
    write(folder.path(), "ops.jsonl", "one\ntwo\n");
    let source = open(folder.path(), &kept).await.unwrap();
    assert_eq!(source.skipped_bytes(), 0);
    drain(&source, Some(&kept)).await;
    write(folder.path(), "ops.jsonl", "one\ntwo\nthree\n");
    let source = open(folder.path(), &kept).await.unwrap();
    assert_eq!(source.skipped_bytes(), 8);
    let settings = Settings::new(folder.path(), ["ops.jsonl"]);
    assert_eq!(
        FileSource::replaced(&settings, &kept).await.unwrap(),
        [""; 0]
    );
    write(folder.path(), "ops.jsonl", "new\n");
    assert_eq!(
        FileSource::replaced(&settings, &kept).await.unwrap(),
        ["ops.jsonl"]
    );
}
