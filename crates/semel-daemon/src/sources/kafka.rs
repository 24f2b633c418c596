//! Apache Kafka as the config has it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use semel_core::source::{BoxFuture, NoPositions, Positions};
use semel_core::{Class, Fault, Sink};
use semel_kafka::{
    ClientOptions, KafkaOptions, KafkaSink, KafkaSinkOptions, KafkaSource, PartitionReport, StartAt,
};

use super::{Close, Opened};
use crate::check::{Code, Finding};
use crate::cli;
use crate::config::{Assignor, Kafka, Loaded, Secret, nearest};
use crate::doctor::{Reading, Standing, warning};
use crate::exit::Failure;
use crate::http::{Lag, PATIENCE, Pulse};
use crate::out;
use crate::rewind::{Move, Step};

/// How long the goodbye may take: the broker needs an answer or two.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// Further settings of the client; paths among them start from the config file's folder.
fn further(loaded: &Loaded, settings: &Kafka) -> ClientOptions {
    let value = |name: &str, value: &str| match name.ends_with(".location") {
        true => loaded.path(value).display().to_string(),
        false => value.to_owned(),
    };
    let further = settings
        .options
        .iter()
        .map(|(name, written)| (name, value(name, written)));
    further.fold(ClientOptions::default(), |client, (name, value)| {
        client.with(name, value)
    })
}

fn secrets(
    settings: &Kafka,
    reveal: impl Fn(&Secret) -> Result<String, String>,
) -> Result<ClientOptions, Failure> {
    settings
        .secrets
        .iter()
        .try_fold(ClientOptions::default(), |client, (name, secret)| {
            Ok(client.with(name, reveal(secret).map_err(Failure::usage)?))
        })
}

fn start_at(text: &str) -> Option<StartAt> {
    match text {
        "earliest" => Some(StartAt::Earliest),
        "latest" => Some(StartAt::Latest),
        "committed" => Some(StartAt::Committed),
        time => time
            .parse::<jiff::Timestamp>()
            .ok()
            .map(|at| StartAt::Timestamp(at.as_millisecond())),
    }
}

fn options(
    loaded: &Loaded,
    settings: &Kafka,
    message_bytes_max: usize,
) -> Result<KafkaOptions, Failure> {
    let secrets = secrets(settings, |secret| secret.reveal(&loaded.base))?;
    let options = options_with(settings, message_bytes_max)?;
    Ok(KafkaOptions {
        options: further(loaded, settings),
        secrets,
        ..options
    })
}

fn options_with(settings: &Kafka, message_bytes_max: usize) -> Result<KafkaOptions, Failure> {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let start =
        start_at(&settings.start_at).ok_or_else(|| Failure::usage(no_start(&settings.start_at)))?;
    Ok(KafkaOptions {
        assignor: match settings.assignor {
            Assignor::CooperativeSticky => semel_kafka::Assignor::CooperativeSticky,
            Assignor::Range => semel_kafka::Assignor::Range,
        },
        group_instance_id: settings.group_instance_id.clone(),
        message_bytes_max,
        header_count_max: size(settings.header_count_max),
        header_bytes_max: size(settings.header_bytes_max),
        buffer_bytes_max: size(settings.buffer_bytes_max),
        prefetch_bytes_max: size(settings.prefetch_bytes_max),
        commit_interval_ms: settings.commit_interval_ms,
        drain_ms: settings.drain_ms,
        session_timeout_ms: settings.session_timeout_ms,
        poll_interval_max_ms: settings.poll_interval_max_ms,
        timeout_ms: settings.timeout_ms,
        ..KafkaOptions::new(&settings.brokers, &settings.topics, &settings.group, start)
    })
}

fn no_start(text: &str) -> String {
    format!(
        "`{text}` is no start: `earliest`, `latest`, `committed`, or a time such as `2026-01-31T00:00:00Z`"
    )
}

pub(super) async fn open(
    loaded: &Loaded,
    settings: &Kafka,
    message_bytes_max: usize,
    positions: Arc<dyn Positions>,
) -> Result<Result<Opened, Fault>, Failure> {
    let options = options(loaded, settings, message_bytes_max)?;
    Ok(KafkaSource::open(options, positions).await.map(|source| {
        let source = Arc::new(source);
        Opened {
            source: source.clone(),
            close: Close::Kafka(source),
            skipped: 0,
        }
    }))
}

/// What tells whether the brokers are there.
pub(super) fn pulse(
    loaded: &Loaded,
    settings: &Kafka,
    source: Arc<KafkaSource>,
) -> Result<Arc<dyn Pulse>, Failure> {
    let probe = semel_kafka::Pulse::open(&options(loaded, settings, 1)?, PATIENCE)
        .map_err(|fault| Failure::fault("kafka", &fault))?;
    Ok(Arc::new(Member { source, probe }))
}

/// The group's member, and a connection of its own beside it.
struct Member {
    source: Arc<KafkaSource>,
    probe: semel_kafka::Pulse,
}

impl Pulse for Member {
    fn beat(&self) -> BoxFuture<'_, Result<Vec<Lag>, String>> {
        Box::pin(async move {
            if let Some(trouble) = self.source.trouble() {
                return Err(trouble);
            }
            self.probe.beat().await.map_err(|fault| fault.detail())?;
            let lags = self.source.lag().into_iter();
            Ok(lags
                .map(|(partition, count)| Lag::Messages(partition, count))
                .collect())
        })
    }
}

pub(super) async fn close(source: &KafkaSource) -> Option<Fault> {
    let fault = source.close(CLOSE_WITHIN).await.err()?;
    if fault.class == Class::Stop {
        return Some(fault);
    }
    out::say(&fault.detail());
    None
}

pub(super) async fn sink(
    loaded: &Loaded,
    settings: &Kafka,
) -> Result<Result<Arc<dyn Sink>, Fault>, Failure> {
    let [topic] = &settings.topics[..] else {
        let message = format!(
            "it reads {} topics; publish to a source of one",
            settings.topics.len()
        );
        return Err(Failure::usage(message));
    };
    let options = KafkaSinkOptions {
        timeout_ms: settings.timeout_ms,
        options: further(loaded, settings),
        secrets: secrets(settings, |secret| secret.reveal(&loaded.base))?,
        ..KafkaSinkOptions::new(&settings.brokers, topic)
    };
    Ok(KafkaSink::open(options)
        .await
        .map(|sink| Arc::new(sink) as Arc<dyn Sink>))
}

/// What `check` says. No secret's file or command is touched: their values do not matter here.
pub(super) fn findings(loaded: &Loaded, name: &str, settings: &Kafka, _: u64) -> Vec<Finding> {
    if start_at(&settings.start_at).is_none() {
        return vec![loaded.finding(
            Code::ValueNotAllowed,
            &["sources", name, "start_at"],
            no_start(&settings.start_at),
        )];
    }
    let unopened = secrets(settings, |secret| {
        Ok(secret.text().unwrap_or_default().to_owned())
    });
    let options = unopened.and_then(|secrets| {
        let options = options_with(settings, 1)?;
        Ok(KafkaOptions {
            options: further(loaded, settings),
            secrets,
            ..options
        })
    });
    let sentences = match options {
        Ok(options) => options.check(),
        Err(failure) => failure.lines,
    };
    sentences
        .into_iter()
        .map(|sentence| finding(loaded, name, settings, sentence))
        .collect()
}

/// A sentence of the client's crate as a finding at the line of what it is about.
fn finding(loaded: &Loaded, name: &str, settings: &Kafka, sentence: String) -> Finding {
    let option = sentence
        .strip_prefix("client setting `")
        .and_then(|rest| rest.split_once('`'))
        .map(|(option, _)| option);
    let Some(option) = option else {
        return loaded.finding(Code::ValueNotAllowed, &["sources", name], sentence);
    };
    let table = if settings.secrets.contains_key(option) {
        "secrets"
    } else {
        "options"
    };
    let hint =
        nearest(option, ClientOptions::ALLOWED.iter().copied()).filter(|near| *near != option);
    let hint = hint.map_or(String::new(), |near| format!(", did you mean `{near}`?"));
    loaded.finding(
        Code::OptionNotAllowed,
        &["sources", name, table, option],
        format!("{sentence}{hint}"),
    )
}

/// Broker times shorter than this are told: an outage of a weekend outlives them.
const RETENTION_MS_MIN: u64 = 3 * 24 * 60 * 60 * 1000;

/// What the broker and the ledger say of each partition.
pub(super) async fn examine(
    loaded: &Loaded,
    reading: &Reading<'_>,
    settings: &Kafka,
) -> (Vec<Standing>, Vec<Finding>) {
    match asked(loaded, reading, settings).await {
        Err(why) => (Vec::new(), vec![super::away(loaded, reading, why)]),
        Ok((reports, retention)) => {
            let mut found = disagreements(loaded, reading, &reports);
            found.extend(short_retentions(loaded, reading, &retention));
            let places = reports.into_iter().map(|report| Standing {
                consumer: reading.consumer.to_owned(),
                source: reading.source.to_owned(),
                ledger: report.ledger,
                broker: report.committed,
                first: Some(report.low),
                end: Some(report.high),
                ready: None,
                retention_ms: topic(&report).and_then(|topic| *retention.get(topic)?),
                partition: report.partition,
            });
            (places.collect(), found)
        }
    }
}

type Retention = HashMap<String, Option<u64>>;

async fn asked(
    loaded: &Loaded,
    reading: &Reading<'_>,
    settings: &Kafka,
) -> Result<(Vec<PartitionReport>, Retention), String> {
    let options = options(loaded, settings, 1).map_err(|failure| failure.lines.join("; "))?;
    let reports = semel_kafka::inspect(&options, reading.positions.clone())
        .await
        .map_err(|fault| fault.detail())?;
    let retention = semel_kafka::retention_ms(&options)
        .await
        .map_err(|fault| fault.detail())?;
    Ok((reports, retention))
}

fn disagreements(
    loaded: &Loaded,
    reading: &Reading<'_>,
    reports: &[PartitionReport],
) -> Vec<Finding> {
    let path = ["sources", reading.source];
    let mut found = Vec::new();
    for report in reports {
        if let Err(why) = &report.start {
            found.push(loaded.finding(Code::Disagree, &path, why));
        }
        if report.forgotten && report.start.is_ok() {
            let message = format!(
                "kafka {}: the group's offset was told by a ledger that had a position here, and this one has none (restored, or another one); \
                 `start_at` has all read again that the broker still has, from {}",
                report.partition, report.low
            );
            found.push(warning(loaded.finding(Code::Disagree, &path, message)));
        }
        if report.removed > 0 {
            let message = format!(
                "kafka {}: the broker removed {} offsets before they were handled (its retention); reading goes on behind them, at {}. Send them \
                 again from their sender",
                report.partition, report.removed, report.low
            );
            found.push(warning(loaded.finding(Code::Removed, &path, message)));
        }
    }
    found
}

fn short_retentions(loaded: &Loaded, reading: &Reading<'_>, retention: &Retention) -> Vec<Finding> {
    let mut short: Vec<(&String, u64)> = retention
        .iter()
        .filter_map(|(topic, kept)| Some((topic, (*kept)?)))
        .filter(|(_, kept)| *kept < RETENTION_MS_MIN)
        .collect();
    short.sort_unstable();
    let found = short.into_iter().map(|(topic, kept)| {
        let message = format!(
            "the broker keeps what is in topic `{topic}` for {} (`retention.ms = {kept}`), and the ledger its keys for ever: what an outage or a \
             restore keeps from being read for longer than that is gone. Keep it longer than your longest outage, and than your oldest backup",
            words(kept)
        );
        let path = ["sources", reading.source, "topics"];
        warning(loaded.finding(Code::ShortRetention, &path, message))
    });
    found.collect()
}

fn words(ms: u64) -> String {
    match ms / 60_000 {
        0 => format!("{} s", ms / 1000),
        minutes @ 1..=119 => format!("{minutes} minutes"),
        minutes => format!("{} hours", minutes / 60),
    }
}

/// What a rewind sets back: the group to the ledger's position where it is ahead of it, both to the first record of a
/// topic that was made again, or the group to the place that was named.
pub(super) async fn steps(
    loaded: &Loaded,
    reading: &Reading<'_>,
    settings: &Kafka,
    args: &cli::Rewind,
) -> Result<Vec<Step>, Failure> {
    let options = options(loaded, settings, 1)?;
    let reports = semel_kafka::inspect(&options, reading.positions.clone())
        .await
        .map_err(|fault| Failure::fault(&format!("source `{}`", reading.source), &fault))?;
    let partitions = reports.iter().map(|report| report.partition.as_str());
    let wanted = super::wanted(partitions, args)?;
    let mut steps = Vec::new();
    for report in reports
        .iter()
        .filter(|report| wanted.contains(&report.partition.as_str()))
    {
        let remade = reports
            .iter()
            .any(|other| other.made_again && topic(other) == topic(report));
        if args.partition.is_some() && (remade || report.alarmed) {
            return Err(Failure::usage(format!(
                "{}: its topic was made again, all partitions at once: rewind without --partition",
                report.partition
            )));
        }
        // One whose own record cannot be compared any more is as new as the others.
        let ledger = (remade && report.ledger.is_some()).then_some(Move {
            from: report.ledger,
            to: report.low,
        });
        let to = match ledger {
            Some(made_again) => Some(made_again.to),
            None => place(report, settings, args.to)?,
        };
        steps.extend(to.map(|to| Step {
            partition: report.partition.clone(),
            ledger,
            broker: Some(Move {
                from: report.committed,
                to,
            }),
        }));
    }
    Ok(steps)
}

fn topic(report: &PartitionReport) -> Option<&str> {
    report.partition.rsplit_once('/').map(|(topic, _)| topic)
}

/// Where the group is set back to, if it is: the place that was named; the beginning of a topic that was made again under its
/// reader; the ledger's position, where the group is ahead of it.
fn place(
    report: &PartitionReport,
    settings: &Kafka,
    to: Option<u64>,
) -> Result<Option<u64>, Failure> {
    let committed = report.committed.unwrap_or(report.high);
    let end = match report.ledger {
        Some(next) => ("the ledger's position", next),
        None if report.alarmed => ("the partition's end", report.high),
        None if report.forgotten => ("the group's offset", committed),
        // `start_at` decides.
        None => return Ok(None),
    };
    if report.forgotten && report.start == Ok(report.low) {
        return match to {
            None => Ok(None),
            Some(_) => Err(Failure::usage(format!(
                "{}: with `start_at = \"{}\"` the next run reads all of it anyway, from {}: the ledger has no position there",
                report.partition, settings.start_at, report.low
            ))),
        };
    }
    if let Some(to) = to {
        return placed(report, end, to).map(|()| Some(to));
    }
    match report.ledger {
        _ if report.alarmed => Ok(Some(report.low)),
        Some(next) => {
            Ok((committed > next && report.committed.is_some()).then_some(next.max(report.low)))
        }
        // Nothing here knows where its first start was.
        None => Err(Failure::usage(format!(
            "{}: the ledger has no position to go back to. Say with --partition and --to where to read again from, {} at the earliest and {committed} at the \
             latest; `start_at = \"{}\"` could skip what was handled before",
            report.partition, report.low, settings.start_at
        ))),
    }
}

/// A place that can be gone back to from `end`.
fn placed(report: &PartitionReport, (name, end): (&str, u64), to: u64) -> Result<(), Failure> {
    let partition = &report.partition;
    if to > end {
        return Err(Failure::usage(format!(
            "{partition}: {to} is beyond {name} {end}: that would skip messages, which a rewind never does"
        )));
    }
    if to < report.low {
        return Err(Failure::usage(format!(
            "{partition}: {to} is gone; the first offset that the broker still has is {}",
            report.low
        )));
    }
    Ok(())
}

pub(super) async fn set_back(
    loaded: &Loaded,
    settings: &Kafka,
    steps: &[Step],
) -> Result<(), Failure> {
    let to: Vec<(String, u64)> = steps
        .iter()
        .filter_map(|step| Some((step.partition.clone(), step.broker?.to)))
        .collect();
    semel_kafka::rewind(&options(loaded, settings, 1)?, &to)
        .await
        .map_err(|fault| Failure::fault("the group was not set back", &fault))
}

pub(super) async fn try_to_reach(loaded: &Loaded, settings: &Kafka) -> Result<(), String> {
    let options = options(loaded, settings, 1).map_err(|failure| failure.lines.join("; "))?;
    // Without the ledger's positions: that the broker is there and has the topics is all that is asked.
    semel_kafka::inspect(&options, Arc::new(NoPositions))
        .await
        .map(drop)
        .map_err(|fault| fault.detail())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_brokers_crate() {
        let text = r#"{"brokers":["b:1"],"topics":["t"],"group":"g","start_at":"latest"}"#;
        let settings: Kafka = serde_json::from_str(text).unwrap();
        let options = options_with(&settings, 1 << 20).unwrap();
        assert_eq!(
            options,
            KafkaOptions::new(["b:1"], ["t"], "g", StartAt::Latest)
        );
    }
}
