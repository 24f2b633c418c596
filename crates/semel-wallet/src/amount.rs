//! Amounts: source text to minor units, exactly. No float is ever made (TRAPS T87).

use crate::code::Refusal;

/// `amount`: an integer of minor units, `-?[0-9]+`.
///
/// # Errors
/// `amount_invalid` for any other form, `overflow` beyond 128 bits.
pub(crate) fn minor_units(text: &str) -> Result<i128, Refusal> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !all_digits(digits) {
        return Err(Refusal::AmountInvalid);
    }
    // What is left to fail is the size: leading zeros are fine for the parser.
    text.parse().map_err(|_| Refusal::Overflow)
}

/// `value`: a plain decimal of major units, `-?[0-9]+(\.[0-9]+)?`, in its two halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decimal<'t> {
    negative: bool,
    whole: &'t str,
    fraction: &'t str,
}

impl<'t> Decimal<'t> {
    /// Reads the text.
    ///
    /// # Errors
    /// `amount_invalid` for any other form.
    pub(crate) fn parse(text: &'t str) -> Result<Self, Refusal> {
        let (negative, digits) = text
            .strip_prefix('-')
            .map_or((false, text), |rest| (true, rest));
        let (whole, fraction) = match digits.split_once('.') {
            Some((whole, fraction)) if all_digits(fraction) => (whole, fraction),
            Some(_) => return Err(Refusal::AmountInvalid),
            None => (digits, ""),
        };
        if !all_digits(whole) {
            return Err(Refusal::AmountInvalid);
        }
        Ok(Self {
            negative,
            whole,
            fraction: fraction.trim_end_matches('0'),
        })
    }

    /// Is it above zero, whatever the scale?
    #[must_use]
    pub(crate) fn is_positive(&self) -> bool {
        let nonzero = |digits: &str| digits.bytes().any(|b| b != b'0');
        !self.negative && (nonzero(self.whole) || nonzero(self.fraction))
    }

    /// In minor units of an asset with this many digits behind the point.
    ///
    /// # Errors
    /// `precision_loss` when it is not exact, `overflow` beyond 128 bits.
    pub(crate) fn at_scale(&self, scale: u8) -> Result<i128, Refusal> {
        let scale = usize::from(scale);
        if self.fraction.len() > scale {
            return Err(Refusal::PrecisionLoss);
        }
        let padding = std::iter::repeat_n(b'0', scale - self.fraction.len());
        let digits = self
            .whole
            .bytes()
            .chain(self.fraction.bytes())
            .chain(padding);
        // Counted downwards, since the lowest i128 has no positive twin.
        let below = digits
            .map(|b| i128::from(b - b'0'))
            .try_fold(0_i128, |sum, digit| sum.checked_mul(10)?.checked_sub(digit));
        let signed = below.and_then(|sum| {
            if self.negative {
                Some(sum)
            } else {
                sum.checked_neg()
            }
        });
        signed.ok_or(Refusal::Overflow)
    }
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, scale: u8) -> Result<i128, Refusal> {
        Decimal::parse(text)?.at_scale(scale)
    }

    #[test]
    fn amounts_are_integers_of_minor_units_only() {
        assert_eq!(minor_units("250"), Ok(250));
        assert_eq!(minor_units("-5"), Ok(-5));
        assert_eq!(minor_units("007"), Ok(7));
        for bad in ["", "-", "1.5", "5.00", "1e3", "+5", " 5", "٥", "0x5"] {
            assert_eq!(minor_units(bad), Err(Refusal::AmountInvalid), "{bad:?}");
        }
    }

    #[test]
    fn the_edges_of_128_bits_are_exact() {
        assert_eq!(
            minor_units("170141183460469231731687303715884105727"),
            Ok(i128::MAX)
        );
        assert_eq!(
            minor_units("170141183460469231731687303715884105728"),
            Err(Refusal::Overflow)
        );
        assert_eq!(
            minor_units("-170141183460469231731687303715884105728"),
            Ok(i128::MIN)
        );
        assert_eq!(
            value("1701411834604692317316873037158841057.27", 2),
            Ok(i128::MAX)
        );
        assert_eq!(
            value("-1701411834604692317316873037158841057.28", 2),
            Ok(i128::MIN)
        );
        assert_eq!(
            value("1701411834604692317316873037158841057.28", 2),
            Err(Refusal::Overflow)
        );
    }

    #[test]
    fn e103_values_are_exact_in_the_scale_of_their_asset_or_refused() {
        assert_eq!(value("1000", 0), Ok(1000));
        assert_eq!(value("1.234", 3), Ok(1234));
        assert_eq!(value("1.005", 2), Err(Refusal::PrecisionLoss));
        assert_eq!(value("1.000", 2), Ok(100));
        assert_eq!(value("2.5", 2), Ok(250));
        assert_eq!(value("0.10000000", 8), Ok(10_000_000));
        assert_eq!(value("1.", 2), Err(Refusal::AmountInvalid));
        assert_eq!(value(".5", 2), Err(Refusal::AmountInvalid));
        assert_eq!(value("1e2", 2), Err(Refusal::AmountInvalid));
        assert_eq!(value("-0.00", 2), Ok(0));
    }

    #[test]
    fn e102_a_tenth_three_times_is_three_tenths() {
        let tenth = value("0.1", 2).unwrap();
        assert_eq!(tenth * 3, 30);
        assert_eq!(value("9999.99", 2), Ok(999_999));
    }
}
