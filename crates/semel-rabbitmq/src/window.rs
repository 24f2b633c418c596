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
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Delivered, and not settled.
    Open { bytes: usize },
    /// Settled; its turn to be forgotten comes when all before it are.
    Done,
}

/// The frames that ack a set of tags. `all_to` goes first: behind it, a single one that it covers would
/// be an unknown tag, and the broker would close the channel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Acks {
    /// One ack of this tag and of all before it.
    pub(crate) all_to: Option<NonZeroU64>,
    /// Acks of one tag each.
    pub(crate) singles: Vec<NonZeroU64>,
    /// How many deliveries these settle.
    pub(crate) count: usize,
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

    /// Acks `tags`, in any order. A prefix of the window that is settled by this is one frame.
    pub(crate) fn ack(&mut self, tags: impl IntoIterator<Item = NonZeroU64>) -> Acks {
        let mut acks = Acks::default();
        for tag in tags {
            if self.close(tag) {
                acks.singles.push(tag);
            } else {
                acks.unknown += 1;
            }
        }
        acks.count = acks.singles.len();
        acks.singles.sort_unstable();
        let behind = self.forget_the_done();
        let covered = acks.singles.partition_point(|tag| tag.get() <= behind);
        if covered > 1 {
            acks.all_to = acks.singles.drain(..covered).next_back();
        }
        acks
    }

    /// Takes one tag out of the window, to be given back. `false` when it is not open.
    pub(crate) fn give_back(&mut self, tag: NonZeroU64) -> bool {
        let open = self.close(tag);
        self.forget_the_done();
        open
    }

    /// How many deliveries are unsettled.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// The sum of their sizes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn close(&mut self, tag: NonZeroU64) -> bool {
        let index = (tag.get() - 1)
            .checked_sub(self.behind)
            .and_then(|index| usize::try_from(index).ok());
        let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) else {
            return false;
        };
        let Entry::Open { bytes } = *entry else {
            return false;
        };
        *entry = Entry::Done;
        self.open -= 1;
        self.bytes -= bytes;
        true
    }

    /// Returns the last tag that is behind the window now.
    fn forget_the_done(&mut self) -> u64 {
        while self.entries.front() == Some(&Entry::Done) {
            self.entries.pop_front();
            self.behind += 1;
        }
        self.behind
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

    fn acks(window: &mut Window, tags: &[u64]) -> (Option<u64>, Vec<u64>, usize) {
        let acks = window.ack(tags.iter().map(|n| tag(*n)));
        (
            acks.all_to.map(NonZeroU64::get),
            acks.singles.into_iter().map(NonZeroU64::get).collect(),
            acks.unknown,
        )
    }

    #[test]
    fn t41_a_multiple_ack_never_passes_an_unsettled_delivery() {
        let mut window = window(10);
        assert_eq!(acks(&mut window, &[2, 3, 5]), (None, vec![2, 3, 5], 0));
        assert_eq!(acks(&mut window, &[1, 4, 6, 8]), (Some(6), vec![8], 0));
        assert_eq!(
            acks(&mut window, &[7]),
            (None, vec![7], 0),
            "one frame for one tag, whatever is behind it"
        );
        assert_eq!(acks(&mut window, &[10, 9]), (Some(10), vec![], 0));
        assert_eq!((window.open(), window.bytes()), (0, 0));
    }

    #[test]
    fn t41_a_multiple_ack_always_names_a_tag_that_it_settles() {
        let mut window = window(4);
        assert_eq!(acks(&mut window, &[3, 4]), (None, vec![3, 4], 0));
        assert_eq!(
            acks(&mut window, &[1, 2]),
            (Some(2), vec![], 0),
            "3 and 4 are unknown to the broker by now"
        );
    }

    #[test]
    fn e024_a_delivery_is_settled_once() {
        let mut window = window(3);
        assert_eq!(acks(&mut window, &[2]), (None, vec![2], 0));
        assert_eq!(acks(&mut window, &[2]), (None, vec![], 1));
        assert!(!window.give_back(tag(2)));
        assert!(window.give_back(tag(1)));
        assert_eq!(acks(&mut window, &[1, 4, u64::MAX]), (None, vec![], 3));
        assert_eq!(acks(&mut window, &[3]), (None, vec![3], 0));
    }

    #[test]
    fn a_delivery_that_waits_to_be_given_back_holds_the_prefix() {
        let mut window = window(5);
        assert_eq!(acks(&mut window, &[1, 2, 4]), (Some(2), vec![4], 0));
        assert!(window.give_back(tag(3)));
        assert_eq!(acks(&mut window, &[5]), (None, vec![5], 0));
        assert_eq!(window.open(), 0);
    }

    #[test]
    fn t40_a_tag_that_is_not_the_next_one_is_refused() {
        let mut window = window(2);
        assert_eq!(window.deliver(2, 1), Err(3));
        assert_eq!(window.deliver(0, 1), Err(3));
        assert_eq!(window.deliver(3, 1), Ok(tag(3)));
    }
}
