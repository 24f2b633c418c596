//! Laws of a sink, seen through a source behind it.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use semel_core::key::Key;
use semel_core::sink::{IDEMPOTENCY_KEY, Outgoing, Sink};
use semel_core::source::Source;

use super::ok;
use super::source::{Features, outgoing, take};

/// What the suite needs of a sink's backend: an empty queue or topic, to write to and to read from.
pub trait SinkRig: Send + Sync + Sized + 'static {
    /// What it carries.
    const FEATURES: Features;

    /// An empty one.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// A sink into it.
    fn sink(&self) -> impl Future<Output = Arc<dyn Sink>> + Send;

    /// A source out of it, that begins with the first message.
    fn source(&self) -> impl Future<Output = Arc<dyn Source>> + Send;
}

/// One named test per law of a sink, over a [`SinkRig`].
#[macro_export]
macro_rules! sink_laws {
    ($rig:ty) => {
        $crate::sink_laws! { @each $rig:
            what_is_published_is_there_when_the_call_returns_and_in_order
            the_key_travels_with_the_message
            what_is_published_arrives_as_it_was
            publishing_nothing_is_fine
        }
    };
    (@each $rig:ty: $($law:ident)*) => {
        $(
            #[tokio::test]
            async fn $law() {
                $crate::suite::run(stringify!($law), $crate::suite::sink::$law::<$rig>()).await;
            }
        )*
    };
}

/// Durable and routed when the call returns; order is kept under one message key.
pub async fn what_is_published_is_there_when_the_call_returns_and_in_order<R: SinkRig>() {
    let rig = R::fresh().await;
    let sink = rig.sink().await;
    let messages: Vec<Outgoing> = (0..120)
        .map(|i| Outgoing {
            message_key: Some(Bytes::from_static(b"lane")),
            ..outgoing(&format!("m{i}"))
        })
        .collect();
    for part in messages.chunks(50) {
        ok(sink.publish(part).await);
    }
    drop(sink);
    let got = take(&*rig.source().await, messages.len()).await;
    let got: Vec<_> = got.iter().map(|d| d.message.payload.clone()).collect();
    let sent: Vec<_> = messages.iter().map(|m| m.payload.clone()).collect();
    assert_eq!(got, sent);
}

/// The key is stamped as a header, as lower-case hyphenated text.
pub async fn the_key_travels_with_the_message<R: SinkRig>() {
    let rig = R::fresh().await;
    let key = Key::from_bytes([0xAB; 16]);
    let messages = [
        Outgoing {
            key: Some(key),
            ..outgoing("with")
        },
        outgoing("without"),
    ];
    ok(rig.sink().await.publish(&messages).await);
    let got = take(&*rig.source().await, 2).await;
    let stamps: Vec<_> = got
        .iter()
        .map(|d| d.message.header(IDEMPOTENCY_KEY).cloned())
        .collect();
    assert_eq!(stamps, [Some(Bytes::from(key.to_string())), None]);
}

/// Payload, headers and message key are not touched.
pub async fn what_is_published_arrives_as_it_was<R: SinkRig>() {
    let features = R::FEATURES;
    let rig = R::fresh().await;
    let mut messages = vec![outgoing("plain")];
    messages[0].payload = Some(Bytes::from_static(b"\xff\x00"));
    if features.headers {
        let headers = vec![
            ("b".to_owned(), Bytes::from_static(b"\x00\xff")),
            ("a".to_owned(), Bytes::from_static(b"x")),
        ];
        messages.push(Outgoing {
            headers,
            ..outgoing("headers")
        });
    }
    if features.null_payload {
        messages.push(Outgoing {
            payload: None,
            ..outgoing("")
        });
    }
    if features.empty_payload {
        messages.push(outgoing(""));
    }
    for message in &mut messages {
        message.message_key = features.message_key.then(|| Bytes::from_static(b"lane"));
    }
    ok(rig.sink().await.publish(&messages).await);
    let got = take(&*rig.source().await, messages.len()).await;
    for (sent, got) in messages.iter().zip(&got) {
        assert_eq!(got.message.payload, sent.payload);
        let headers: Vec<_> = got
            .message
            .headers
            .iter()
            .filter(|(n, _)| n == "a" || n == "b")
            .cloned()
            .collect();
        assert_eq!(headers, sent.headers);
        if features.message_key {
            assert_eq!(got.message.message_key, sent.message_key);
        }
    }
}

/// No message is no error.
pub async fn publishing_nothing_is_fine<R: SinkRig>() {
    let rig = R::fresh().await;
    ok(rig.sink().await.publish(&[]).await);
}
