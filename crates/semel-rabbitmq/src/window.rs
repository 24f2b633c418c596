//! The deliveries of one channel that are not yet settled, and which acks settle them with the least
//! frames. Delivery tags count 1, 2, 3 … within a channel; a new channel has a new window, so a tag can
//! never be used on another channel than its own (TRAPS T40, T41).

use std::collections::VecDeque;
use std::num::NonZeroU64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// How many tags were dropped from the front.
    behind: u64,
    entries: VecDeque<Entry>,
    open: usize,
    held: usize,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Delivered, and not settled.
    Open { bytes: usize },
    /// Acked here; the broker was not told yet.
    Held,
    /// Settled; its turn to be forgotten comes when all before it are.
    Done,
}

/// Acks to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ack {
    /// One tag.
    One(NonZeroU64),
    /// This tag, and all before it.
    AllTo(NonZeroU64),
}

/// What became of tags that were acked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Acked {
    /// The prefix of the window that is settled by this, if there is one.
    pub(crate) send: Option<Ack>,
    /// How many of the tags were not open: they are settled already, or were never delivered here.
    pub(crate) unknown: usize,
}

impl Window {
    /// A delivery came.
    ///
    /// # Errors
    /// It is not the next tag: this is not the channel we think it is.
    pub(crate) fn deliver(&mut self, tag: u64, bytes: usize) -> Result<NonZeroU64, u64> {
        let expected = self.behind + self.len() + 1;
        let tag = NonZeroU64::new(tag)
            .filter(|tag| tag.get() == expected)
            .ok_or(expected)?;
        self.entries.push_back(Entry::Open { bytes });
        self.open += 1;
        self.bytes += bytes;
        Ok(tag)
    }

    /// Acks `tags`, in any order. What has an unsettled delivery before it is held until that is settled
    /// too, or until [`Self::flush`]: one frame acks a thousand, and a thousand frames cost more than
    /// the work that they settle.
    pub(crate) fn ack(&mut self, tags: impl IntoIterator<Item = NonZeroU64>) -> Acked {
        let mut unknown = 0;
        for tag in tags {
            if self.close(tag, Entry::Held) {
                self.held += 1;
            } else {
                unknown += 1;
            }
        }
        Acked {
            send: self.forget_the_settled(),
            unknown,
        }
    }

    /// The acks of all that is held.
    pub(crate) fn flush(&mut self) -> Vec<NonZeroU64> {
        let mut tags = Vec::with_capacity(self.held);
        for (tag, entry) in (self.behind + 1..).zip(&mut self.entries) {
            if *entry == Entry::Held {
                *entry = Entry::Done;
                tags.extend(NonZeroU64::new(tag));
            }
        }
        self.held = 0;
        tags
    }

    /// How many acks are held.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Takes tags out of the window, to be given back. Returns those that were open, and the ack of what
    /// they kept from being acked: it goes behind their nacks.
    pub(crate) fn give_back(
        &mut self,
        tags: impl IntoIterator<Item = NonZeroU64>,
    ) -> (Vec<NonZeroU64>, Option<Ack>) {
        let open = tags
            .into_iter()
            .filter(|tag| self.close(*tag, Entry::Done))
            .collect();
        (open, self.forget_the_settled())
    }

    /// How many deliveries are unsettled.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// The sum of their sizes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn close(&mut self, tag: NonZeroU64, to: Entry) -> bool {
        let index = (tag.get() - 1)
            .checked_sub(self.behind)
            .and_then(|index| usize::try_from(index).ok());
        let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) else {
            return false;
        };
        let Entry::Open { bytes } = *entry else {
            return false;
        };
        *entry = to;
        self.open -= 1;
        self.bytes -= bytes;
        true
    }

    /// The ack names the last tag that was held, not the last one: one that was settled before is
    /// unknown to the broker by now, and it would close the channel.
    fn forget_the_settled(&mut self) -> Option<Ack> {
        let (mut count, mut last) = (0, None);
        while let Some(Entry::Held | Entry::Done) = self.entries.front() {
            self.behind += 1;
            if self.entries.pop_front() == Some(Entry::Held) {
                count += 1;
                last = NonZeroU64::new(self.behind);
            }
        }
        self.held -= count;
        last.map(|tag| {
            if count == 1 {
                Ack::One(tag)
            } else {
                Ack::AllTo(tag)
            }
        })
    }

    fn len(&self) -> u64 {
        u64::try_from(self.entries.len()).expect("a window is bounded by the prefetch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(count: u64) -> Window {
        let mut window = Window::default();
        for tag in 1..=count {
            window.deliver(tag, 10).unwrap();
        }
        window
    }

    fn tag(n: u64) -> NonZeroU64 {
        NonZeroU64::new(n).unwrap()
    }

    fn ack(window: &mut Window, tags: &[u64]) -> (Option<Ack>, usize) {
        let acked = window.ack(tags.iter().map(|n| tag(*n)));
        (acked.send, acked.unknown)
    }

    fn flush(window: &mut Window) -> Vec<u64> {
        window.flush().into_iter().map(NonZeroU64::get).collect()
    }

    fn all_to(n: u64) -> Option<Ack> {
        Some(Ack::AllTo(tag(n)))
    }

    fn one(n: u64) -> Option<Ack> {
        Some(Ack::One(tag(n)))
    }

    #[test]
    fn t41_a_multiple_ack_never_passes_an_unsettled_delivery() {
        let mut window = window(10);
        assert_eq!(ack(&mut window, &[2, 3, 5]), (None, 0));
        assert_eq!(window.held(), 3);
        assert_eq!(ack(&mut window, &[1, 4, 6, 8]), (all_to(6), 0));
        assert_eq!((window.held(), window.open()), (1, 3));
        assert_eq!(ack(&mut window, &[7]), (all_to(8), 0));
        assert_eq!(ack(&mut window, &[9]), (one(9), 0));
        assert_eq!(ack(&mut window, &[10]), (one(10), 0));
        assert_eq!((window.open(), window.bytes(), window.held()), (0, 0, 0));
    }

    #[test]
    fn t41_an_ack_always_names_a_tag_that_the_broker_still_knows() {
        let mut window = window(6);
        assert_eq!(ack(&mut window, &[3, 4, 6]), (None, 0));
        assert_eq!(flush(&mut window), [3, 4, 6]);
        assert_eq!(flush(&mut window), [0; 0]);
        assert_eq!(ack(&mut window, &[1, 2]), (all_to(2), 0));
        assert_eq!(ack(&mut window, &[5]), (one(5), 0));
        assert_eq!(window.held(), 0);
    }

    #[test]
    fn e024_a_delivery_is_settled_once() {
        let mut window = window(3);
        assert_eq!(ack(&mut window, &[2, 2]), (None, 1));
        assert_eq!(ack(&mut window, &[2]), (None, 1));
        assert_eq!(window.give_back([tag(2)]), (vec![], None));
        assert_eq!(window.give_back([tag(1)]), (vec![tag(1)], one(2)));
        assert_eq!(ack(&mut window, &[1, 4, u64::MAX]), (None, 3));
        assert_eq!(ack(&mut window, &[3]), (one(3), 0));
    }

    #[test]
    fn a_delivery_that_waits_to_be_given_back_holds_the_prefix() {
        let mut window = window(6);
        assert_eq!(ack(&mut window, &[1, 2, 4, 5]), (all_to(2), 0));
        assert_eq!(window.give_back([tag(3)]), (vec![tag(3)], all_to(5)));
        assert_eq!(ack(&mut window, &[6]), (one(6), 0));
        assert_eq!(window.open(), 0);
    }

    #[test]
    fn t40_a_tag_that_is_not_the_next_one_is_refused() {
        let mut window = window(2);
        assert_eq!(window.deliver(2, 1), Err(3));
        assert_eq!(window.deliver(0, 1), Err(3));
        assert_eq!(window.deliver(3, 1), Ok(tag(3)));
    }

    /// Any order of acks and nacks, against the broker's own rule: an ack of an unknown tag closes the
    /// channel, and one of an unsettled tag loses a message.
    #[test]
    fn t41_whatever_the_order_the_broker_hears_of_each_tag_once_and_of_no_other() {
        for seed in 0..500_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut next = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let mut window = window(40);
            let (mut wanted, mut known): (Vec<u64>, Vec<u64>) = (Vec::new(), (1..=40).collect());
            let told = |known: &mut Vec<u64>, wanted: &[u64], ack: Option<Ack>| match ack {
                None => {}
                Some(Ack::One(tag)) => {
                    let at = known.iter().position(|n| *n == tag.get());
                    known.remove(at.expect("a known tag"));
                    assert!(wanted.contains(&tag.get()));
                }
                Some(Ack::AllTo(tag)) => {
                    assert!(known.contains(&tag.get()), "seed {seed}");
                    let all = known.iter().take_while(|n| **n <= tag.get());
                    assert!(all.clone().all(|n| wanted.contains(n)), "seed {seed}");
                    known.retain(|n| *n > tag.get());
                }
            };
            while wanted.len() < 40 {
                let free: Vec<u64> = (1..=40).filter(|n| !wanted.contains(n)).collect();
                let picked = free[usize::try_from(next(free.len() as u64)).unwrap()];
                wanted.push(picked);
                match next(5) {
                    0 => {
                        let (given, then) = window.give_back([tag(picked)]);
                        assert_eq!(given, [tag(picked)]);
                        known.retain(|n| *n != picked);
                        told(&mut known, &wanted, then);
                    }
                    1 => {
                        let send = window.ack([tag(picked)]).send;
                        told(&mut known, &wanted, send);
                        for tag in window.flush() {
                            told(&mut known, &wanted, Some(Ack::One(tag)));
                        }
                    }
                    _ => {
                        let send = window.ack([tag(picked)]).send;
                        told(&mut known, &wanted, send);
                    }
                }
            }
            for tag in window.flush() {
                told(&mut known, &wanted, Some(Ack::One(tag)));
            }
            assert_eq!(known, [0; 0], "seed {seed}");
        }
    }
}
