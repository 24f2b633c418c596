//! How often a dense stream of deliveries is looked at. A look that finds nothing waits, and the client's thread wakes it with the
//! next delivery: a switch of threads for every second message. So a dense stream is left alone for a moment after each look.

use std::time::Duration;

use tokio::time::Instant;

/// A stream is dense if so many deliveries come within [`SPAN`]: ten thousand a second.
const DENSE_COUNT: usize = 32;
const SPAN: Duration = Duration::from_millis(3);

/// How long a dense stream is left alone. The clock counts in milliseconds and rounds up.
const REST: Duration = Duration::from_millis(2);

/// What came lately, and until when nobody looks.
#[derive(Debug)]
pub(crate) struct Pace {
    since: Instant,
    count: usize,
    rests_until: Option<Instant>,
}

impl Pace {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            count: 0,
            rests_until: None,
        }
    }

    /// So many deliveries were there.
    pub(crate) fn came(&mut self, count: usize, now: Instant) {
        if now.duration_since(self.since) >= SPAN {
            *self = Self::new(now);
        }
        self.count += count;
        if self.count >= DENSE_COUNT {
            *self = Self::new(now);
            self.rests_until = Some(now + REST);
        }
    }

    /// Until when nobody looks, if somebody rests.
    pub(crate) const fn rests_until(&self) -> Option<Instant> {
        self.rests_until
    }

    /// Ends a rest that is over.
    pub(crate) fn rested(&mut self, now: Instant) {
        self.rests_until.take_if(|until| *until <= now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dense_stream_rests_for_a_moment_and_a_thin_one_never() {
        let begin = Instant::now();
        let at = |micros| begin + Duration::from_micros(micros);
        let mut pace = Pace::new(begin);
        for number in 0..100 {
            pace.came(1, at(100 * number));
            assert_eq!(
                pace.rests_until(),
                None,
                "10 000 a second at most, {number}"
            );
        }
        let mut pace = Pace::new(begin);
        for number in 0..31 {
            pace.came(1, at(50 * number));
            assert_eq!(pace.rests_until(), None, "{number}");
        }
        pace.came(1, at(1_500));
        assert_eq!(pace.rests_until(), Some(at(3_500)));
        pace.rested(at(3_499));
        assert_eq!(pace.rests_until(), Some(at(3_500)));
        pace.rested(at(3_500));
        assert_eq!(pace.rests_until(), None);
        pace.came(31, at(3_600));
        assert_eq!(pace.rests_until(), None, "it is counted anew");
        pace.came(1, at(3_700));
        assert_eq!(pace.rests_until(), Some(at(5_700)));
    }
}
