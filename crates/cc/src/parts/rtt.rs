//! Round-trip estimate of RFC 6298 §2, with the connection's minimum.

use crate::event::Rtt;
use crate::units::Duration;

/// Clock granularity G of RFC 6298 §2: RFC 9002 §6.1.2 recommends 1 ms.
pub const GRANULARITY: Duration = Duration::from_millis(1);

/// A longer sample counts as this: a clock jumped, and sums must not overflow.
const LONGEST: Duration = Duration::from_secs(3600);

/// Smoothed round trip (weight 1/8), its variation (weight 1/4) and the least sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttEstimator {
    initial: Duration,
    measured: Option<(Rtt, Duration)>,
}

impl RttEstimator {
    /// No sample yet; `initial` is assumed meanwhile.
    pub fn new(initial: Duration) -> Self {
        RttEstimator { initial, measured: None }
    }

    /// Takes one sample; a zero sample counts as a nanosecond so that nobody divides by zero,
    /// and more than an hour as an hour.
    pub fn on_sample(&mut self, sample: Duration) {
        let sample = sample.clamp(Duration::from_nanos(1), LONGEST);
        self.measured = Some(match self.measured {
            None => (Rtt { latest: sample, smoothed: sample, min: sample }, sample / 2),
            Some((old, variation)) => {
                let distance = old.smoothed.abs_diff(sample);
                // RFC 6298 §2.3: the variation first, with the old smoothed value.
                let variation = variation * 3 / 4 + distance / 4;
                // tidy: allow(eight): RFC 6298 §2.3 gives a sample the weight 1/8.
                let smoothed = old.smoothed * 7 / 8 + sample / 8;
                (Rtt { latest: sample, smoothed, min: old.min.min(sample) }, variation)
            }
        });
    }

    /// The estimate; before the first sample all three are the assumed round trip.
    pub fn rtt(&self) -> Rtt {
        self.measured
            .map_or(Rtt { latest: self.initial, smoothed: self.initial, min: self.initial }, |(rtt, _)| rtt)
    }

    /// Whether a sample was taken.
    pub fn is_measured(&self) -> bool {
        self.measured.is_some()
    }

    /// RTTVAR of RFC 6298; half the assumed round trip before the first sample.
    pub fn variation(&self) -> Duration {
        self.measured.map_or(self.initial / 2, |(_, variation)| variation)
    }

    /// Retransmission timeout SRTT + max(G, 4 RTTVAR), RFC 6298 §2.3, at least `least`.
    pub fn timeout(&self, least: Duration) -> Duration {
        (self.rtt().smoothed.min(LONGEST) + (self.variation().min(LONGEST) * 4).max(GRANULARITY)).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_first_sample_sets_everything_and_the_variation_to_half() {
        let mut estimator = RttEstimator::new(MS(333));
        assert_eq!(estimator.rtt().smoothed, MS(333));
        assert!(!estimator.is_measured());
        estimator.on_sample(MS(540));
        assert_eq!(estimator.rtt(), Rtt { latest: MS(540), smoothed: MS(540), min: MS(540) });
        assert_eq!(estimator.variation(), MS(270));
        assert_eq!(estimator.timeout(MS(200)), MS(1620));
    }

    #[test]
    fn later_samples_weigh_one_eighth_and_a_quarter() {
        let mut estimator = RttEstimator::new(MS(333));
        estimator.on_sample(MS(800));
        estimator.on_sample(MS(1600));
        assert_eq!(estimator.rtt(), Rtt { latest: MS(1600), smoothed: MS(900), min: MS(800) });
        assert_eq!(estimator.variation(), MS(500));
    }

    #[test]
    fn the_minimum_never_rises_and_is_never_zero() {
        let mut estimator = RttEstimator::new(MS(333));
        for sample in [MS(50), Duration::ZERO, MS(70)] {
            estimator.on_sample(sample);
        }
        assert_eq!(estimator.rtt().min, Duration::from_nanos(1));
    }
}
