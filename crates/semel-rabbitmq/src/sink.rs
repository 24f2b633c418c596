//! Publishing to RabbitMQ: mandatory, persistent, confirmed. A message that the broker confirms and
//! returns reached no queue: it was not sent (TRAPS T47).

use std::time::Duration;

use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, PublisherConfirm};
use semel_core::sink::IDEMPOTENCY_KEY;
use semel_core::source::BoxFuture;
use semel_core::{Fault, Outgoing, Sink};
use tokio::sync::Mutex;

use crate::fault::{Refusal, down, is_too_large};
use crate::headers::{self, NULL_PAYLOAD};
use crate::link::Link;
use crate::options::{NAME_BYTES_MAX, RabbitSinkOptions};

/// Messages, and bytes of them, that are on their way before their confirms are waited for.
const WINDOW_COUNT_MAX: usize = 1_000;
const WINDOW_BYTES_MAX: usize = 8 << 20;

/// AMQP's word for "keep it on disk".
const PERSISTENT: u8 = 2;

/// Publishes to one exchange, over a connection of its own: a broker that is short of memory stops the
/// connections that publish, and must not stop those that consume.
pub struct RabbitSink {
    options: RabbitSinkOptions,
    /// `None` until the first use, and after any trouble.
    channel: Mutex<Option<Open>>,
}

struct Open {
    link: Link,
    channel: Channel,
}

/// A message as it goes out.
struct Letter {
    routing_key: ShortString,
    properties: BasicProperties,
    payload: bytes::Bytes,
}

impl RabbitSink {
    /// Connects, so that a wrong URL is told at the start.
    ///
    /// # Errors
    /// `Down` with a [`Refusal`] inside that names what is wrong.
    pub async fn open(options: RabbitSinkOptions) -> Result<Self, Fault> {
        options.validate().map_err(down)?;
        let open = Open::connect(&options).await.map_err(down)?;
        Ok(Self {
            options,
            channel: Mutex::new(Some(open)),
        })
    }

    /// Closes the connection. The next `publish` opens another.
    pub async fn close(&self) {
        if let Some(open) = self.channel.lock().await.take() {
            open.link.close().await;
        }
    }

    async fn publish_all(&self, messages: &[Outgoing]) -> Result<(), Fault> {
        // Before the first is sent: one that can never go must not leave half a batch behind.
        let letters = messages
            .iter()
            .enumerate()
            .map(|(index, message)| self.letter(index, message));
        let letters = letters.collect::<Result<Vec<_>, Fault>>()?;
        let mut slot = self.channel.lock().await;
        // Taken out while it is used: a caller that goes away in between leaves unread confirms on it.
        let open = match slot.take() {
            Some(open) if open.channel.status().connected() => open,
            _ => Open::connect(&self.options).await.map_err(down)?,
        };
        let limit = Duration::from_millis(self.options.confirm_timeout_ms);
        let mut first = 0;
        for window in windows(&letters) {
            match tokio::time::timeout(limit, self.publish_window(&open.channel, first, window))
                .await
            {
                Ok(Ok(())) => first += window.len(),
                Ok(Err(fault)) => {
                    open.link.close().await;
                    return Err(fault);
                }
                Err(_) => return Err(self.late(&open.link, first)),
            }
        }
        *slot = Some(open);
        Ok(())
    }

    async fn publish_window(
        &self,
        channel: &Channel,
        first: usize,
        letters: &[Letter],
    ) -> Result<(), Fault> {
        let mut confirms = Vec::with_capacity(letters.len());
        for (index, letter) in letters.iter().enumerate() {
            let sent = self.send(channel, letter).await;
            confirms.push(sent.map_err(|error| self.failed(first + index, letter, &error))?);
        }
        for (index, confirm) in confirms.into_iter().enumerate() {
            match confirm.await {
                Ok(Confirmation::Ack(None)) => {}
                // A confirm of several may carry the returned message of any of them.
                Ok(Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned))) => {
                    return Err(self.returned(first, letters, &returned));
                }
                Ok(Confirmation::Nack(None)) => {
                    let why = "the broker refused to keep it (the queue is full, or has no leader)";
                    return Err(down(Refusal::ended(format!(
                        "message {}: {why}",
                        first + index
                    ))));
                }
                Ok(Confirmation::NotRequested) => {
                    return Err(down(Refusal::ended("the channel does not confirm")));
                }
                Err(error) => return Err(self.failed(first + index, &letters[index], &error)),
            }
        }
        Ok(())
    }

    async fn send(&self, channel: &Channel, letter: &Letter) -> lapin::Result<PublisherConfirm> {
        let how = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let exchange = self.options.exchange.as_str().into();
        channel
            .basic_publish(
                exchange,
                letter.routing_key.clone(),
                how,
                &letter.payload,
                letter.properties.clone(),
            )
            .await
    }

    fn letter(&self, index: usize, message: &Outgoing) -> Result<Letter, Fault> {
        let poison =
            |why: String| Fault::poison(format!("message {index} can never be published: {why}"));
        let payload = message.payload.clone().unwrap_or_default();
        if payload.len() > self.options.message_bytes_max {
            return Err(poison(format!(
                "its payload has {} bytes, more than message_bytes_max = {}",
                payload.len(),
                self.options.message_bytes_max
            )));
        }
        let key = message.key.map(|key| key.to_string());
        let stamped = key.iter().map(|key| (IDEMPOTENCY_KEY, key.as_bytes()));
        let null = message
            .payload
            .is_none()
            .then_some((NULL_PAYLOAD, b"1".as_slice()));
        let own = message
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_ref()));
        let own = own.filter(|(name, _)| {
            *name != NULL_PAYLOAD && (key.is_none() || *name != IDEMPOTENCY_KEY)
        });
        let fixed = self
            .options
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        let table = headers::write(stamped.chain(null).chain(own).chain(fixed));
        let table = table.map_err(|name| {
            poison(format!(
                "header name `{name}` has more than {NAME_BYTES_MAX} bytes"
            ))
        })?;
        let mut properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_headers(table);
        if let Some(key) = &key {
            properties = properties.with_message_id(key.as_str().into());
        }
        let routing_key = self.routing_key(message).map_err(poison)?;
        Ok(Letter {
            routing_key,
            properties,
            payload,
        })
    }

    fn routing_key(&self, message: &Outgoing) -> Result<ShortString, String> {
        let key = match (&self.options.routing_key, &message.message_key) {
            (Some(fixed), _) => fixed.clone(),
            (None, Some(key)) => String::from_utf8(key.to_vec())
                .map_err(|_| "its message key is no text, so it is no routing key".to_owned())?,
            (None, None) => String::new(),
        };
        ShortString::try_new(key)
            .map_err(|_| format!("its routing key has more than {NAME_BYTES_MAX} bytes"))
    }

    /// Which message came back: the broker tells by content only.
    fn returned(&self, first: usize, letters: &[Letter], returned: &BasicReturnMessage) -> Fault {
        let same = |letter: &Letter| {
            letter.payload == returned.data
                && letter.routing_key == returned.routing_key
                && letter.properties.message_id() == returned.properties.message_id()
        };
        let which = letters.iter().position(same).map_or_else(
            || "a message".to_owned(),
            |at| format!("message {}", first + at),
        );
        down(Refusal::ended(format!(
            "{which} was returned, not sent: exchange `{}` routes the key `{}` to no queue ({}). Declare the queue or its binding",
            returned.exchange, returned.routing_key, returned.reply_text
        )))
    }

    fn failed(&self, index: usize, letter: &Letter, error: &lapin::Error) -> Fault {
        if is_too_large(error) {
            let size = letter.payload.len();
            return Fault::poison(format!(
                "message {index} or one before it is too large for the broker ({size} bytes): {error}"
            ));
        }
        down(Refusal::of_exchange(&self.options.exchange, error))
    }

    fn late(&self, link: &Link, first: usize) -> Fault {
        let why = if link.is_blocked() {
            "it blocks publishers: it is short of memory or disk"
        } else {
            "if it stays so, look whether the queue has a leader, with `rabbitmq-queues quorum_status`"
        };
        let limit = self.options.confirm_timeout_ms;
        down(Refusal::ended(format!(
            "no confirm of messages {first} and later within {limit} ms; {why}"
        )))
    }
}

impl Open {
    async fn connect(options: &RabbitSinkOptions) -> Result<Self, Refusal> {
        let link = Link::open(&options.broker()).await?;
        let limit = Duration::from_millis(options.connect_timeout_ms);
        let opening = async {
            let channel = link.channel().await?;
            channel
                .confirm_select(ConfirmSelectOptions::default())
                .await
                .map_err(Refusal::ended)?;
            Ok(channel)
        };
        match tokio::time::timeout(limit, opening).await {
            Ok(Ok(channel)) => Ok(Self { link, channel }),
            Ok(Err(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::ended(format!(
                "no channel within {} ms",
                options.connect_timeout_ms
            ))),
        }
    }
}

impl Sink for RabbitSink {
    fn publish<'a>(&'a self, messages: &'a [Outgoing]) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(self.publish_all(messages))
    }
}

impl std::fmt::Debug for RabbitSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitSink")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Splits letters into windows, each within both limits unless a single letter is larger.
fn windows(letters: &[Letter]) -> impl Iterator<Item = &[Letter]> {
    let mut rest = letters;
    std::iter::from_fn(move || {
        let mut bytes = 0_usize;
        let fitting = rest.iter().take(WINDOW_COUNT_MAX).take_while(|letter| {
            bytes = bytes.saturating_add(letter.payload.len());
            bytes <= WINDOW_BYTES_MAX
        });
        let count = fitting.count().max(1).min(rest.len());
        let (window, later) = rest.split_at(count);
        rest = later;
        (!window.is_empty()).then_some(window)
    })
}
