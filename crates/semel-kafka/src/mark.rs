//! The mark of a record: its timestamp and a hash of its key. The ledger keeps the one of the record
//! before a position, so that a topic that was deleted and made again is recognised (TRAPS T57): the
//! client library knows no topic ids.

/// Form 1: this byte, the timestamp (i64, big-endian; `i64::MIN` for none), the key's hash (u64).
const FORM: u8 = 1;
const LENGTH: usize = 17;

/// The mark of a record.
pub(crate) fn of(timestamp_ms: Option<i64>, key: Option<&[u8]>) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[0] = FORM;
    bytes[1..9].copy_from_slice(&timestamp_ms.unwrap_or(i64::MIN).to_be_bytes());
    bytes[9..].copy_from_slice(&hash(key).to_be_bytes());
    bytes
}

/// Whether a stored mark can be compared; one of a later form cannot.
pub(crate) fn is_known(mark: &[u8]) -> bool {
    mark.len() == LENGTH && mark[0] == FORM
}

/// FNV-1a, 64 bit. It tells two records at one offset apart, it defends nothing: an attacker who can make
/// topics again needs no collision. No key and an empty one differ.
fn hash(key: Option<&[u8]>) -> u64 {
    let kind: &[u8] = if key.is_some() { &[1] } else { &[0] };
    kind.iter()
        .chain(key.unwrap_or_default())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_time_and_key_apart() {
        let marks = [
            of(Some(1), Some(b"a")),
            of(Some(2), Some(b"a")),
            of(Some(1), Some(b"b")),
            of(Some(1), Some(b"")),
            of(Some(1), None),
            of(None, None),
        ];
        for (i, a) in marks.iter().enumerate() {
            assert!(is_known(a));
            assert!(marks[..i].iter().all(|b| a != b));
        }
        assert_eq!(of(Some(1), Some(b"a")), marks[0]);
        assert!(!is_known(b"") && !is_known(&[2; LENGTH]));
    }
}
