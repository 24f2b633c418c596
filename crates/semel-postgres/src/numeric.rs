//! Amounts of 128 bits as `numeric`, exact in both directions. sqlx binds no `i128`, and the decimal crates it
//! knows have 96 bits or allocate.
//!
//! Binary form (PostgreSQL, `numeric_send`): digit count, weight, sign, display scale, all 16 bits, then digits
//! of base 10000, the most significant first; the first digit counts 10000^weight.

use bytes::Buf;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;

/// Type numbers of the server (`pg_type.dat`), fixed for ever.
pub(crate) const NUMERIC: Oid = Oid(1700);
pub(crate) const NUMERIC_ARRAY: Oid = Oid(1231);

const BASE: u128 = 10_000;
const NEGATIVE: u16 = 0x4000;

/// Appends the binary form.
pub(crate) fn put(amount: i128, out: &mut Vec<u8>) {
    // 39 decimal digits are at most 10 digits of base 10000.
    let mut digits = [0_u16; 10];
    let mut rest = amount.unsigned_abs();
    let mut count = 0_u16;
    for digit in digits.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit = u16::try_from(rest % BASE).expect("a remainder of 10000 has 14 bits");
        rest /= BASE;
        count += 1;
    }
    let sign = if amount < 0 { NEGATIVE } else { 0 };
    for part in [count, count.saturating_sub(1), sign, 0] {
        out.extend_from_slice(&part.to_be_bytes());
    }
    for digit in &digits[digits.len() - usize::from(count)..] {
        out.extend_from_slice(&digit.to_be_bytes());
    }
}

/// Reads the binary form; refuses what is no integer of 128 bits.
pub(crate) fn get(mut bytes: &[u8]) -> Result<i128, BoxDynError> {
    if bytes.len() < 8 {
        return Err("a numeric is cut short".into());
    }
    let (count, weight, sign) = (bytes.get_u16(), bytes.get_i16(), bytes.get_u16());
    bytes.advance(2); // the display scale says nothing of the value
    if sign != 0 && sign != NEGATIVE {
        return Err("a numeric is NaN or infinite, where an amount was expected".into());
    }
    if bytes.len() != usize::from(count) * 2 {
        return Err("a numeric is cut short".into());
    }
    let out_of_range = || {
        BoxDynError::from("a numeric is beyond 128 bits; widen the reading code or cast it to text")
    };
    // Summed as a negative number, whose range is the larger one.
    let mut sum = 0_i128;
    for place in 0..i32::from(count) {
        let digit = i128::from(bytes.get_u16());
        if place <= i32::from(weight) {
            sum = sum
                .checked_mul(10_000)
                .and_then(|s| s.checked_sub(digit))
                .ok_or_else(out_of_range)?;
        } else if digit != 0 {
            return Err("a numeric has a fraction, where minor units were expected".into());
        }
    }
    for _ in i32::from(count)..=i32::from(weight) {
        if sum == 0 {
            break;
        }
        sum = sum.checked_mul(10_000).ok_or_else(out_of_range)?;
    }
    if sign == NEGATIVE {
        Ok(sum)
    } else {
        sum.checked_neg().ok_or_else(out_of_range)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(amount: i128) {
        let mut bytes = Vec::new();
        put(amount, &mut bytes);
        assert_eq!(get(&bytes).expect("own bytes are read"), amount, "{amount}");
    }

    #[test]
    fn the_edges_of_128_bits_come_back() {
        for amount in [
            0,
            1,
            -1,
            9_999,
            10_000,
            -10_000,
            100_000_000,
            i128::MAX,
            i128::MIN,
            i128::MIN + 1,
        ] {
            round_trip(amount);
        }
    }

    #[test]
    fn trailing_zero_digits_that_the_server_strips_are_put_back() {
        // 1_0000_0000: one digit of weight 2.
        assert_eq!(
            get(&[0, 1, 0, 2, 0, 0, 0, 0, 0, 1]).expect("valid"),
            100_000_000
        );
    }

    #[test]
    fn what_is_no_integer_of_128_bits_is_refused() {
        let half = [0, 1, 0xff, 0xff, 0, 0, 0, 1, 0x13, 0x88];
        let nan = [0, 0, 0, 0, 0xc0, 0, 0, 0];
        let infinite = [0, 0, 0, 0, 0xd0, 0, 0, 0x20];
        let huge = [0, 1, 0, 10, 0, 0, 0, 0, 0, 1];
        for bytes in [
            half.as_slice(),
            &nan,
            &infinite,
            &huge,
            &[0, 1],
            &[0, 1, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(get(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn every_amount_comes_back(amount: i128, shift in 0_u32..127) {
            round_trip(amount);
            round_trip(amount >> shift);
        }
    }
}
