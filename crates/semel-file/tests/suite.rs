//! File sources under the laws of all sources.

use std::sync::Arc;

use semel_core::sink::Outgoing;
use semel_core::source::Source;
use semel_file::{FileSource, Settings};
use semel_storm::suite::{Features, Kept, SourceRig};

struct FileRig {
    folder: tempfile::TempDir,
}

impl SourceRig for FileRig {
    const FEATURES: Features = Features {
        headers: false,
        message_key: false,
        null_payload: false,
        empty_payload: false,
        redelivers: true,
        counts_deliveries: true,
        drains: false,
        ends: true,
    };

    async fn fresh() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder for the test's file"),
        }
    }

    async fn put(&self, messages: &[Outgoing]) {
        let lines = messages
            .iter()
            .map(|m| [m.payload.as_deref().unwrap_or_default(), b"\n"].concat());
        let content: Vec<u8> = lines.flatten().collect();
        std::fs::write(self.folder.path().join("ops.jsonl"), content)
            .expect("the test's folder takes a file");
    }

    async fn open(&self, positions: Arc<Kept>) -> Arc<dyn Source> {
        let settings = Settings::new(self.folder.path(), ["ops.jsonl"]);
        let opened = FileSource::open(settings, positions).await;
        Arc::new(opened.unwrap_or_else(|fault| panic!("the file must open: {fault}")))
    }
}

semel_storm::source_laws!(FileRig);
