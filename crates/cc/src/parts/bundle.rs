//! How far acknowledgments run ahead of the estimated rate because they come in bundles: BBR's
//! "extra_acked", an addition to Linux by I. Swett and P. Jha (2019).

use super::WindowedMax;
use crate::units::{Bytes, Rate, Time};

/// Rounds over which the greatest bundle is kept, as in Linux.
const ROUNDS: u64 = 10;

/// The greatest bundle of the last ten rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundles {
    since: Time,
    acked: Bytes,
    greatest: WindowedMax<Bytes>,
}

impl Default for Bundles {
    fn default() -> Self {
        Bundles::new()
    }
}

impl Bundles {
    /// No acknowledgment yet.
    pub fn new() -> Self {
        Bundles { since: Time::ZERO, acked: Bytes::ZERO, greatest: WindowedMax::new(ROUNDS) }
    }

    /// Hears of `acked` bytes at `now`, in a round, while data should arrive at `rate`. No bundle counts
    /// for more than `most`. Where acknowledgments no longer run ahead, a new bundle begins.
    pub fn on_ack(&mut self, now: Time, round: u64, acked: Bytes, rate: Rate, most: Bytes) {
        let mut expected = rate.bytes_in(now.since(self.since));
        if self.acked <= expected {
            self.since = now;
            self.acked = Bytes::ZERO;
            expected = Bytes::ZERO;
        }
        self.acked += acked;
        self.greatest.update(round, self.acked.saturating_sub(expected).min(most));
    }

    /// Bytes by which acknowledgments ran ahead at most; none before the first.
    pub fn greatest(&self) -> Option<Bytes> {
        self.greatest.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_per_tenth_of_a_second_runs_a_tenth_of_a_second_ahead() {
        let rate = Rate::mbit(10);
        let tenth = rate.bytes_in(std::time::Duration::from_millis(100));
        let mut bundles = Bundles::new();
        for i in 1..=20 {
            bundles.on_ack(Time::from_millis(100 * i), i / 5, tenth, rate, Bytes::MAX);
        }
        assert_eq!(bundles.greatest(), Some(tenth));
    }

    #[test]
    fn no_bundle_counts_for_more_than_it_may_and_all_are_forgotten() {
        let mut bundles = Bundles::new();
        bundles.on_ack(Time::from_millis(1), 1, Bytes(5000), Rate::kbit(1), Bytes(3000));
        assert_eq!(bundles.greatest(), Some(Bytes(3000)));
        bundles.on_ack(Time::from_secs(1000), 11, Bytes(10), Rate::kbit(1), Bytes(3000));
        assert_eq!(bundles.greatest(), Some(Bytes(10)));
    }
}
