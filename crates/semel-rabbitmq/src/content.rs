//! A delivery of the client as a message of Semel.

use std::sync::Arc;

use bytes::Bytes;
use lapin::BasicProperties;
use semel_core::Message;
use semel_core::message::{Cut, Position};
use sha2::{Digest, Sha256};

use crate::headers;

/// What is handed out of a payload that is too large.
const CUT_BYTES: usize = 64 << 10;

/// What a message may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) message_bytes_max: usize,
    pub(crate) header_bytes_max: usize,
}

/// Reads a delivery. The payload's memory is taken over, never copied, unless it is cut.
pub(crate) fn read(delivery: lapin::message::Delivery, queue: &Arc<str>, sizes: Sizes) -> Message {
    let properties = &delivery.properties;
    let headers = headers::read(
        properties,
        delivery.exchange.as_str(),
        delivery.routing_key.as_str(),
        sizes.header_bytes_max,
    );
    let (attempt, timestamp_ms, null) = (
        headers::attempt(properties),
        timestamp_ms(properties),
        headers::is_null(properties),
    );
    let (payload, cut) = payload(delivery.data, sizes.message_bytes_max);
    Message {
        payload: (!null || !payload.is_empty()).then_some(payload),
        cut,
        headers: headers.into(),
        position: Position {
            partition: queue.clone(),
            offset: None,
        },
        message_key: None,
        attempt,
        timestamp_ms,
    }
}

fn payload(data: Vec<u8>, bytes_max: usize) -> (Bytes, Option<Cut>) {
    if data.len() <= bytes_max {
        return (Bytes::from(data), None);
    }
    let digest = Sha256::digest(&data);
    let mut hash = [0; 16];
    hash.copy_from_slice(&digest[..16]);
    let size = u64::try_from(data.len()).unwrap_or(u64::MAX);
    // A copy, so that the large one is freed now.
    let start = Bytes::copy_from_slice(&data[..data.len().min(CUT_BYTES)]);
    (start, Some(Cut { size, hash }))
}

/// AMQP counts seconds; some publishers write milliseconds. Either way it is the publisher's word only.
fn timestamp_ms(properties: &BasicProperties) -> Option<i64> {
    let seconds = i64::try_from((*properties.timestamp())?).ok()?;
    seconds.checked_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes {
        message_bytes_max: 100_000,
        header_bytes_max: 1_000,
    };

    fn delivery(data: Vec<u8>) -> lapin::message::Delivery {
        lapin::message::Delivery::mock(1, "".into(), "q".into(), true, data)
    }

    #[test]
    fn a_payload_at_the_limit_is_whole_and_one_byte_more_is_cut_with_size_and_hash() {
        let queue: Arc<str> = "q".into();
        let whole = read(delivery(vec![7; 100_000]), &queue, SIZES);
        assert_eq!((whole.bytes().len(), whole.cut), (100_000, None));
        let cut = read(delivery(vec![7; 100_001]), &queue, SIZES);
        assert_eq!(cut.bytes().len(), CUT_BYTES);
        let expected = Sha256::digest(vec![7; 100_001]);
        assert_eq!(cut.cut.map(|c| c.size), Some(100_001));
        assert_eq!(
            cut.cut.map(|c| c.hash.to_vec()),
            Some(expected[..16].to_vec())
        );
    }

    #[test]
    fn an_empty_payload_is_not_a_null_one() {
        let queue: Arc<str> = "q".into();
        assert_eq!(
            read(delivery(vec![]), &queue, SIZES).payload,
            Some(Bytes::new())
        );
        let mut null = delivery(vec![]);
        let table = headers::write([(headers::NULL_PAYLOAD, b"1".as_slice())].into_iter()).unwrap();
        null.properties = BasicProperties::default().with_headers(table);
        assert_eq!(read(null, &queue, SIZES).payload, None);
    }

    #[test]
    fn t44_redelivered_says_nothing_and_an_absurd_timestamp_is_none() {
        let queue: Arc<str> = "q".into();
        let mut odd = delivery(vec![1]);
        odd.properties = BasicProperties::default().with_timestamp(u64::MAX);
        let message = read(odd, &queue, SIZES);
        assert_eq!((message.attempt, message.timestamp_ms), (1, None));
        assert_eq!(
            message.position,
            Position {
                partition: "q".into(),
                offset: None
            }
        );
    }
}
