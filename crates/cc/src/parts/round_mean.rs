//! The mean round trip of each round, for controllers that judge once per round trip.

use crate::units::Duration;

/// Adds up round-trip samples until a round ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundMean {
    seconds: f64,
    samples: u64,
}

impl RoundMean {
    /// No sample yet.
    pub fn new() -> Self {
        RoundMean::default()
    }

    /// Takes the sample of an ACK. If the ACK starts a round, the answer is the mean of the round
    /// that has ended, unless that had no sample.
    pub fn on_ack(&mut self, round_start: bool, sample: Duration) -> Option<Duration> {
        let mut ended = None;
        if round_start && self.samples > 0 {
            let mean = self.seconds / self.samples as f64;
            ended = Some(Duration::try_from_secs_f64(mean).unwrap_or(Duration::MAX));
            *self = RoundMean::default();
        }
        self.seconds += sample.as_secs_f64();
        self.samples += 1;
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn each_round_has_the_mean_of_its_own_samples() {
        let mut mean = RoundMean::new();
        assert_eq!(mean.on_ack(true, MS(100)), None);
        assert_eq!(mean.on_ack(false, MS(300)), None);
        assert_eq!(mean.on_ack(true, MS(500)), Some(MS(200)));
        assert_eq!(mean.on_ack(true, MS(1)), Some(MS(500)));
    }

    #[test]
    fn endless_samples_make_an_endless_mean() {
        let mut mean = RoundMean::new();
        (0..3).for_each(|_| assert_eq!(mean.on_ack(false, Duration::MAX), None));
        assert!(mean.on_ack(true, MS(1)).is_some_and(|mean| mean > MS(1_000_000)));
    }
}
