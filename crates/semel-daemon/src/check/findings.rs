//! What `check` finds: a code with a page of its own, a level, a place and a sentence.

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// `run` would not start.
    Error,
    /// It would start, and somebody may be sorry.
    Warning,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Its code.
    pub(crate) code: Code,
    /// How bad it is.
    pub(crate) level: Level,
    /// File and line.
    #[serde(rename = "where")]
    pub(crate) place: String,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn error(code: Code, file: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            code,
            level: Level::Error,
            place: format!("{file}:{line}"),
            message: message.into(),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        self.level == Level::Error
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let level = if self.is_error() { "" } else { "warning: " };
        write!(
            f,
            "{}: {level}{} [{}]",
            self.place,
            self.message,
            self.code.text()
        )
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal,)*) => {
        /// The codes of findings. A number is never used again for something else; each has the page
        /// `docs/errors/SEMEL-nnnn.md`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Code { $($(#[doc = $doc])* $name,)* }

        impl Code {
            /// All of them.
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// `SEMEL-nnnn`.
            pub(crate) const fn text(self) -> &'static str {
                match self { $(Self::$name => concat!("SEMEL-", $number),)* }
            }
        }
    };
}

codes! {
    /// The config file cannot be read.
    NoFile = "0101",
    /// The config file is not TOML.
    NotToml = "0102",
    /// A key that does not exist.
    UnknownKey = "0103",
    /// A key that must be there is not.
    MissingKey = "0104",
    /// A value of the wrong type.
    WrongType = "0105",
    /// A value that is not allowed.
    ValueNotAllowed = "0106",
    /// A secret cannot be had.
    NoSecret = "0107",
    /// No key rule, JSON pointer or lane can be made of the text.
    BadRule = "0108",
    /// A consumer names a source that does not exist.
    UnknownSource = "0201",
    /// A source that no consumer reads.
    UnusedSource = "0202",
    /// A key is made of something that the transport makes.
    TransportKey = "0203",
    /// `key_time` is part of the identity.
    TimeInKey = "0204",
    /// The settings of a consumer's handler are missing.
    NoHandlerSettings = "0205",
    /// The wallet has no assets, or a house for an asset that it does not have.
    WalletAssets = "0206",
    /// There is no consumer.
    NoConsumer = "0207",
    /// Content is not compared at all.
    NoFingerprint = "0208",
    /// Two sources read the same file or queue.
    SameSource = "0301",
    /// This build has no such source.
    NotInThisBuild = "0302",
    /// A client option that is not on the list.
    OptionNotAllowed = "0303",
    /// A lease that ends before a unit must.
    ShortLease = "0304",
    /// No ledger has a URL like this.
    LedgerUrl = "0401",
    /// The folder of a SQLite database does not exist.
    NoFolder = "0402",
    /// A setting that has no effect on this ledger.
    NoEffect = "0403",
    /// The ledger cannot be reached.
    LedgerAway = "0501",
    /// The ledger's tables are older or newer than this program.
    LedgerSchema = "0502",
    /// A source cannot be opened.
    SourceAway = "0503",
    /// The wallet's house account was not opened.
    NoHouse = "0504",
    /// A pooler that the config does not tell of lends its sessions to others.
    UnknownPooler = "0505",
    /// A partition would not start: the ledger and the broker disagree.
    Disagree = "0601",
    /// The broker removed messages before they were handled.
    Removed = "0602",
    /// A file is not the one that was read.
    Replaced = "0603",
    /// A topic keeps its messages for a short time only.
    ShortRetention = "0604",
    /// The database allows fewer connections than the lanes need.
    FewConnections = "0605",
    /// A confirmed commit can be lost.
    NotDurable = "0606",
    /// Runs that ended without a goodbye.
    CrashedLives = "0607",
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_its_page_and_every_page_its_code() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        let pages: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("SEMEL-"))
            .collect();
        let codes: BTreeSet<String> = Code::ALL
            .iter()
            .map(|code| format!("{}.md", code.text()))
            .collect();
        assert_eq!(codes.len(), Code::ALL.len(), "a number is used twice");
        assert_eq!(codes, pages);
    }

    #[test]
    fn every_page_opens_with_its_code_and_says_what_to_do() {
        for code in Code::ALL {
            let path = format!(
                "{}/../../docs/errors/{}.md",
                env!("CARGO_MANIFEST_DIR"),
                code.text()
            );
            let page = std::fs::read_to_string(&path).unwrap();
            assert!(page.starts_with(&format!("# {}: ", code.text())), "{path}");
            assert!(page.contains("\n## What to do\n"), "{path}");
        }
    }
}
