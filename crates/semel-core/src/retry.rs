//! Back-off as a pure policy: a number of the try in, a delay out. Chance comes in by the door, so that
//! a simulated run repeats itself.

/// Exponential back-off with full jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The largest delay of the first retry, ms.
    pub first_ms: u64,
    /// The largest delay of any retry, ms.
    pub max_ms: u64,
}

impl Backoff {
    /// For lock conflicts: the other unit needs milliseconds.
    pub const BUSY: Self = Self {
        first_ms: 5,
        max_ms: 1_000,
    };
    /// For a store or broker that is away: notice its return within seconds, without a storm.
    pub const DOWN: Self = Self {
        first_ms: 100,
        max_ms: 5_000,
    };
    /// For a handler that asked to be run again.
    pub const HANDLER: Self = Self {
        first_ms: 100,
        max_ms: 30_000,
    };

    /// The delay before retry number `retry` (from 0). `chance` is uniform in `0..=u32::MAX`; the
    /// result is uniform in `cap/2..=cap`, where the cap doubles with each retry up to `max_ms`.
    #[must_use]
    pub const fn delay_ms(&self, retry: u32, chance: u32) -> u64 {
        let doubled = if retry >= 32 {
            u64::MAX
        } else {
            self.first_ms.saturating_mul(1 << retry)
        };
        let cap = if doubled < self.max_ms {
            doubled
        } else {
            self.max_ms
        };
        let half = cap / 2;
        // In thousandths, so that it stays within 64 bits; a millisecond needs no finer share.
        half + (cap - half).saturating_mul(chance as u64 / (u32::MAX as u64 / 1_000)) / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_maximum_and_jitters_within_the_upper_half() {
        let policy = Backoff {
            first_ms: 100,
            max_ms: 1_000,
        };
        assert_eq!(policy.delay_ms(0, 0), 50);
        assert_eq!(policy.delay_ms(0, u32::MAX), 100);
        assert_eq!(policy.delay_ms(2, u32::MAX), 400);
        assert_eq!(policy.delay_ms(10, u32::MAX), 1_000);
        assert_eq!(policy.delay_ms(u32::MAX, 0), 500);
    }
}
