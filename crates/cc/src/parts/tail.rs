//! How often a duration was exceeded lately: the upper tail of a distribution, forgotten little by little.

use crate::units::Duration;

/// A histogram of durations that answers "which share of them was greater than this?".
///
/// Bins are nearly even on the logarithm of 1 + x / 250 µs, eight to each doubling: 31 µs wide at zero, a
/// sixteenth to an eighth of the value far above it. Inside a bin values count as evenly spread. A sample
/// weighs `1 - 1 / memory` of what the next one does.
///
/// What was never seen is not impossible: beyond the greatest sample the tail is never lighter than one more
/// sample would make it that lies x beyond it with probability e^(-x / scale).
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    weights: Box<[f64; BINS]>,
    total: f64,
    /// Weight of the next sample; grows instead of the others shrinking.
    next: f64,
    growth: f64,
    /// No bin above this one holds anything.
    top: usize,
}

impl Tail {
    /// Nothing seen. `memory`: how many samples it remembers, at least 1.
    pub fn new(memory: f64) -> Self {
        let memory = memory.max(1.0);
        // A memory of one would have the next sample weigh infinitely more.
        let growth = if memory < 2.0 { 2.0 } else { memory / (memory - 1.0) };
        Tail { weights: Box::new([0.0; BINS]), total: 0.0, next: 1.0, growth, top: 0 }
    }

    /// Takes in a duration; zero is exceeded by none.
    pub fn add(&mut self, value: Duration) {
        if !value.is_zero() {
            let bin = bin_of(position(value));
            self.weights[bin] += self.next;
            self.top = self.top.max(bin);
        }
        self.total += self.next;
        self.next *= self.growth;
        if self.next > HEAVY {
            self.renew();
        }
    }

    /// How many samples stand behind an answer: at most the memory.
    pub fn count(&self) -> f64 {
        self.total / self.next
    }

    /// Share of durations greater than `value`, in (0, 1]. `scale` is the reach of what was never seen.
    pub fn beyond(&self, value: Duration, scale: Duration) -> f64 {
        let place = position(value);
        let bin = bin_of(place);
        let above: f64 =
            self.weights[(bin + 1).min(BINS)..(self.top + 1).max(bin + 1).min(BINS)].iter().sum();
        let part = (edge(bin + 1) - place) / (edge(bin + 1) - edge(bin));
        let seen = (above + self.weights[bin] * part.clamp(0.0, 1.0)) / self.next;
        let further = value.saturating_sub(self.exceeded(1.0)).as_secs_f64();
        let unseen = if seen < 1.0 { libm::exp(-further / reach(scale)) } else { 0.0 };
        (seen.max(unseen) / (self.count() + 1.0)).clamp(f64::MIN_POSITIVE, 1.0)
    }

    /// The least duration beyond which lie `share` of them or less; the reverse of
    /// [`beyond`](Tail::beyond).
    pub fn exceeded_by(&self, share: f64, scale: Duration) -> Duration {
        let samples = share * (self.count() + 1.0);
        if samples.is_nan() || samples <= 0.0 {
            return Duration::MAX;
        }
        let seen = self.exceeded(samples);
        if samples >= 1.0 {
            return seen;
        }
        let further = -libm::log(samples) * reach(scale);
        seen.max(self.exceeded(1.0).saturating_add(Duration::from_secs_f64(further.clamp(0.0, LONGEST))))
    }

    /// The least duration that so many of the remembered samples exceed, or fewer.
    fn exceeded(&self, samples: f64) -> Duration {
        let target = samples * self.next;
        let mut above = 0.0;
        for bin in (0..=self.top).rev() {
            let weight = self.weights[bin];
            if above + weight > target {
                let part = (target - above) / weight;
                return value_at(edge(bin + 1) - part * (edge(bin + 1) - edge(bin)));
            }
            above += weight;
        }
        Duration::ZERO
    }

    /// Brings the weights back to where an `f64` is exact, and forgets for good what weighs nothing.
    fn renew(&mut self) {
        let factor = 1.0 / self.next;
        self.next = 1.0;
        self.total *= factor;
        for weight in self.weights.iter_mut() {
            *weight = if *weight * factor < NOTHING { 0.0 } else { *weight * factor };
        }
        self.top = self.weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0);
    }
}

fn reach(scale: Duration) -> f64 {
    scale.as_secs_f64().max(LEAST_SCALE)
}

/// 1 + x / 250 µs.
fn position(value: Duration) -> f64 {
    1.0 + value.as_secs_f64().min(LONGEST) / UNIT
}

fn value_at(position: f64) -> Duration {
    Duration::from_secs_f64(((position - 1.0) * UNIT).clamp(0.0, LONGEST))
}

/// The bin of a position of 1 or more: exponent and highest bits of the mantissa are the logarithm in
/// steps that are even within a doubling.
fn bin_of(position: f64) -> usize {
    ((position.to_bits() >> SHIFT).saturating_sub(ONE) as usize).min(BINS - 1)
}

/// Where a bin begins.
fn edge(bin: usize) -> f64 {
    f64::from_bits((bin as u64 + ONE) << SHIFT)
}

/// The resolution near zero: what counts as no difference on any path.
const UNIT: f64 = 250e-6;
/// Bits of an `f64` below the three highest of its mantissa.
const SHIFT: u32 = 49;
/// The bin number of 1.0 before any is taken away.
const ONE: u64 = 1023 << (52 - SHIFT);
/// 24 doublings of 250 µs are more than an hour.
const BINS: usize = 24 << (52 - SHIFT);
/// An hour, in seconds: as long as any sample counts.
const LONGEST: f64 = 3600.0;
/// A microsecond: a scale of zero would say that nothing unseen can happen.
const LEAST_SCALE: f64 = 1e-6;
/// When weights are brought back: far from the greatest `f64`, and seldom.
const HEAVY: f64 = 1e9;
/// A weight, in samples, that no answer could show.
const NOTHING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCALE: Duration = Duration::from_millis(8);

    fn tail(values: &[u64], memory: f64) -> Tail {
        let mut tail = Tail::new(memory);
        values.iter().for_each(|&micros| tail.add(Duration::from_micros(micros)));
        tail
    }

    #[test]
    fn bins_join_without_gaps_and_get_wider_by_an_eighth_at_most() {
        for bin in 0..BINS - 1 {
            assert_eq!(bin_of(edge(bin)), bin);
            assert!(edge(bin + 1) > edge(bin) && edge(bin + 1) <= edge(bin) * 1.126, "{bin}");
        }
        assert_eq!(edge(0), 1.0);
        assert!((edge(BINS - 1) - 1.0) * UNIT > 3600.0);
        assert_eq!(bin_of(position(Duration::MAX)), bin_of(1.0 + LONGEST / UNIT));
    }

    #[test]
    fn a_new_greatest_value_is_as_likely_as_the_number_of_samples_says() {
        // Of 20 ms and less, 200 times: the next one is the greatest with a chance of 1 in 201.
        let tail = tail(&(1..=200).map(|n| n * 100).collect::<Vec<_>>(), 1e9);
        let beyond = tail.beyond(Duration::from_millis(20), SCALE);
        assert!(beyond > 0.5 / 201.0 && beyond <= 3.0 / 201.0, "{beyond}");
        let crossing = tail.exceeded_by(0.1 / 201.0, SCALE);
        // 2.3 scales further, give or take a bin.
        assert!(crossing > Duration::from_millis(36) && crossing < Duration::from_millis(41), "{crossing:?}");
    }

    #[test]
    fn old_samples_are_forgotten() {
        let mut tail = tail(&[20_000; 1000], 100.0);
        assert!(tail.beyond(Duration::from_millis(10), SCALE) > 0.98);
        (0..460).for_each(|_| tail.add(Duration::ZERO));
        // 460 samples of a memory of 100 leave e^-4.6 = 1 %.
        let left = tail.beyond(Duration::from_millis(10), SCALE);
        assert!((left - 0.01).abs() < 0.001, "{left}");
        assert!((tail.count() - 99.0).abs() < 1.5, "{}", tail.count());
    }

    #[test]
    fn weights_stay_in_bounds_however_many_samples_come() {
        let mut tail = Tail::new(10.0);
        (0..10_000u64).for_each(|n| tail.add(Duration::from_micros(n % 100 * 100)));
        assert!(tail.next.is_finite() && tail.total.is_finite() && tail.next <= HEAVY * tail.growth);
        assert!((tail.count() - 9.0).abs() < 1.0, "{}", tail.count());
    }

    #[test]
    fn what_was_never_seen_is_as_likely_as_one_more_sample_makes_it() {
        let empty = Tail::new(1000.0);
        assert_eq!(empty.beyond(Duration::ZERO, SCALE), 1.0);
        let quiet = tail(&[0; 99], 1e9);
        assert!((quiet.beyond(Duration::ZERO, SCALE) - 0.01).abs() < 1e-6);
        assert!((quiet.beyond(SCALE, SCALE) - 0.01 / std::f64::consts::E).abs() < 1e-6);
        assert_eq!(quiet.exceeded_by(0.01001, SCALE), Duration::ZERO);
        assert_eq!(quiet.exceeded_by(0.0, SCALE), Duration::MAX);
    }

    proptest! {
        #[test]
        fn shares_are_those_of_counting_within_a_bin(
            values in prop::collection::vec(0..200_000u64, 1..300), asked in 0..250_000u64
        ) {
            let tail = tail(&values, 1e9);
            let found = tail.beyond(Duration::from_micros(asked), Duration::ZERO);
            // A bin is an eighth of the value and 250 µs wide at most.
            let (low, high) = (asked as f64 * 0.88 - 32.0, asked as f64 * 1.13 + 32.0);
            let count = |from: f64| values.iter().filter(|&&v| v as f64 > from).count() as f64;
            let n = values.len() as f64 + 1.0;
            prop_assert!(found >= count(high) / n - 1e-6, "{found}: {} above {high}", count(high));
            prop_assert!(found <= (count(low) / n).max(1.0 / n) + 1e-6, "{found}: {} above {low}", count(low));
        }

        #[test]
        fn longer_is_rarer_and_the_reverse_function_agrees(
            values in prop::collection::vec(0..2_000_000u64, 0..300),
            memory in 2.0..5000.0f64, share in 1e-6..1.0f64, a in 0..3_000_000u64, b in 0..3_000_000u64
        ) {
            let tail = tail(&values, memory);
            let at = |micros| tail.beyond(Duration::from_micros(micros), SCALE);
            prop_assert!(at(a.min(b)) >= at(a.max(b)));
            prop_assert!(at(a) > 0.0 && at(a) <= 1.0);
            let reached = tail.exceeded_by(share, SCALE);
            prop_assert!(tail.beyond(reached, SCALE) <= share * (1.0 + 1e-4) + 1e-12, "{reached:?}");
            if reached > Duration::from_nanos(10) {
                let before = tail.beyond(reached - reached.min(Duration::from_micros(1)), SCALE);
                prop_assert!(before >= share * (1.0 - 1e-4) - 1e-12, "{reached:?}: {before} before");
            }
        }
    }
}
