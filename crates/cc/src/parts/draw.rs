//! Chance for controllers, which own no random numbers: flows that begin at unlike moments draw unlike
//! numbers, and a replay draws the same.

use crate::units::Time;

/// A number from 0 to below 2³² that looks random, from the nanoseconds of a moment: multiplicative
/// hashing with 2⁶⁴ over the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
pub fn draw(now: Time) -> u64 {
    now.as_nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_a_microsecond_apart_draw_every_part_of_the_range_alike() {
        let mut counts = [0; 8];
        for i in 0..8000 {
            counts[(draw(Time::from_micros(540_000 + i)) >> 29) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
