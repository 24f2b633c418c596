//! Chance with a seed. One seed is one run, so a failing storm is repeated by one number.

/// A small seeded generator (SplitMix64, public domain by Sebastiano Vigna): good enough to choose
/// faults, never used for identity or secrets.
#[derive(Debug, Clone)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Dice that fall the same way every time for one seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn roll(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.roll() % end }
    }

    /// True in `per_mille` of 1000 cases.
    pub fn hit(&mut self, per_mille: u16) -> bool {
        per_mille > 0 && self.below(1000) < u64::from(per_mille)
    }

    /// Dice of their own for a part, so that a change in one part does not shift the others.
    pub const fn fork(&mut self) -> Self {
        Self::new(self.roll())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_sequence() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed);
            [dice.roll(), dice.roll(), dice.roll()]
        };
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
    }

    #[test]
    fn a_chance_of_zero_never_hits_and_a_chance_of_a_thousand_always_does() {
        let mut dice = Dice::new(1);
        assert!((0..1000).all(|_| !dice.hit(0)));
        assert!((0..1000).all(|_| dice.hit(1000)));
    }
}
