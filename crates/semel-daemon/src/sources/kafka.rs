//! Apache Kafka as the config has it.

use std::sync::Arc;
use std::time::Duration;

use semel_core::source::{NoPositions, Positions};
use semel_core::{Fault, Sink};
use semel_kafka::{ClientOptions, KafkaOptions, KafkaSink, KafkaSinkOptions, KafkaSource, StartAt};

use super::{Close, Opened};
use crate::check::{Code, Finding};
use crate::config::{Assignor, Kafka, Loaded, Secret, nearest};
use crate::exit::Failure;
use crate::out;

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

pub(super) async fn close(source: &KafkaSource) {
    if let Err(fault) = source.close(CLOSE_WITHIN).await {
        out::say(&fault.detail());
    }
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
