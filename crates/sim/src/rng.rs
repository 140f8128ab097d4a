//! Seeded randomness: every component draws from a stream of its own, so that adding one does not change
//! another's luck.

use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skyhaul_cc::units::Share;

/// The seed of one component of a run: the run's seed and the component's name, mixed. The value is part
/// of what makes results reproducible and stays the same between versions.
pub fn derive(seed: u64, component: &str) -> u64 {
    // FNV-1a (Fowler, Noll, Vo): offset basis and prime of the 64-bit variant.
    let name = component.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(mix(seed) ^ name)
}

/// A stream of random numbers that belongs to one component.
#[derive(Clone, Debug)]
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream of `component` in the run with this seed.
    pub fn new(seed: u64, component: &str) -> Self {
        Stream(Xoshiro256PlusPlus::seed_from_u64(derive(seed, component)))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 up to but not including 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / CHANCES as f64
    }

    /// A whole number from 0 up to but not including `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// Yes with the given probability. Draws exactly once, whatever the probability.
    pub fn chance(&mut self, chance: Chance) -> bool {
        self.bits() >> 11 < chance.0
    }
}

/// A probability in the form the draw compares with, so that a packet costs no floating-point arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(u64);

impl Chance {
    /// Never.
    pub const NEVER: Chance = Chance(0);

    /// Back as a share, to 16 digits.
    pub fn share(self) -> Share {
        Share::new(self.0 as f64 / CHANCES as f64).unwrap_or(Share::ONE)
    }
}

impl From<Share> for Chance {
    fn from(share: Share) -> Self {
        Chance((share.value() * CHANCES as f64).round() as u64)
    }
}

/// As many steps as an `f64` has between 0 and 1 at even distance.
const CHANCES: u64 = 1 << 53;

/// The output step of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_name_give_the_same_stream() {
        let draw = |seed, name| {
            let mut stream = Stream::new(seed, name);
            [stream.bits(), stream.bits(), stream.bits()]
        };
        assert_eq!(draw(1, "loss"), draw(1, "loss"));
        assert_ne!(draw(1, "loss"), draw(2, "loss"));
        assert_ne!(draw(1, "loss"), draw(1, "jitter"));
    }

    #[test]
    fn certain_and_impossible_are_exact() {
        let mut stream = Stream::new(7, "test");
        assert!((0..10_000).all(|_| stream.chance(Share::ONE.into())));
        assert!((0..10_000).all(|_| !stream.chance(Chance::NEVER)));
        assert!((0..10_000).all(|_| (0.0..1.0).contains(&stream.unit())));
    }

    #[test]
    fn numbers_below_an_end_are_evenly_spread() {
        let mut stream = Stream::new(7, "test");
        let mut seen = [0u32; 6];
        for _ in 0..60_000 {
            seen[stream.below(6) as usize] += 1;
        }
        // 10,000 each with a standard deviation of 91.
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
        assert_eq!(stream.below(0), 0);
    }
}
