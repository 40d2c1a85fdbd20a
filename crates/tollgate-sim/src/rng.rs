//! Randomness of the world: xoshiro256**, seeded by splitmix64.
//!
//! Invariant: a draw depends on the seed, the stream and the earlier draws of that stream, and on nothing else. Each
//! part of the world has a stream of its own, so that leaving out one fault does not change what all others draw.

use tollgate_replica::Randomness;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Returns the stream of a seed.
    pub fn new(seed: u64) -> Rng {
        let mut mix = seed;
        Rng { state: std::array::from_fn(|_| splitmix(&mut mix)) }
    }

    /// Returns one of many streams of a seed, told apart by a purpose and a number.
    pub fn stream(seed: u64, purpose: &str, number: u64) -> Rng {
        let mut mix = seed;
        let mut state = splitmix(&mut mix);
        for byte in purpose.bytes() {
            mix = state ^ u64::from(byte);
            state = splitmix(&mut mix);
        }
        mix = state ^ number;
        Rng::new(splitmix(&mut mix))
    }

    /// Splits off a new stream, which is independent of this one from here on.
    #[must_use]
    pub fn split(&mut self) -> Rng {
        Rng::new(self.bits())
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let bits = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        bits
    }

    /// Returns a number below `end`, which must be above 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below 0");
        // The high half of a 128-bit product: even enough for this purpose, and no division.
        let product = u128::from(self.bits()) * u128::from(end);
        u64::try_from(product >> 64).expect("the high half of 128 bits")
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "there is no number from {low} to {high}");
        match (high - low).checked_add(1) {
            Some(count) => low + self.below(count),
            None => self.bits(),
        }
    }

    /// Like `range`, but small numbers are as likely as large ones: the exponent is evenly distributed, not the number.
    pub fn log_range(&mut self, low: u64, high: u64) -> u64 {
        assert!(0 < low && low <= high, "no number from {low} to {high} has a logarithm to draw from");
        let mut top = low;
        let doublings = u64::from((high / low).ilog2());
        for _ in 0..self.range(0, doublings) {
            top *= 2;
        }
        self.range(top, (top * 2).min(high))
    }

    /// Returns true this many times in a million.
    pub fn chance_ppm(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// Returns true this many times in a hundred.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// Returns one of the items; there must be at least one.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        assert!(!items.is_empty(), "there is nothing to pick from");
        &items[self.index(items.len())]
    }

    /// Returns an index into a list of this length, which must be above 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a length")
    }
}

impl Randomness for Rng {
    fn next_u64(&mut self) -> u64 {
        self.bits()
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_the_same_each_time_and_differs_from_the_others() {
        let draw = |purpose, number| {
            let mut rng = Rng::stream(7, purpose, number);
            [rng.bits(), rng.bits(), rng.bits()]
        };
        assert_eq!(draw("network", 1), draw("network", 1));
        assert_ne!(draw("network", 1), draw("network", 2));
        assert_ne!(draw("network", 1), draw("disk", 1));
    }

    #[test]
    fn every_number_of_a_range_comes_and_no_other() {
        let mut rng = Rng::new(3);
        let mut seen = [0_u32; 5];
        for _ in 0..10_000 {
            seen[usize::try_from(rng.range(10, 14) - 10).unwrap()] += 1;
            let logarithmic = rng.log_range(3, 1_000);
            assert!((3..=1_000).contains(&logarithmic), "{logarithmic}");
        }
        assert!(seen.iter().all(|&count| count > 1_500), "{seen:?}");
    }

    #[test]
    fn chances_come_as_often_as_they_should() {
        let mut rng = Rng::new(11);
        let hits = (0..100_000).filter(|_| rng.chance_ppm(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!(!rng.chance_ppm(0));
    }
}
