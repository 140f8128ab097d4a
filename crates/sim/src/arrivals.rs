//! What a receiver knows of the times at which packets arrived, until the sender knows it too.

use std::collections::VecDeque;

use skyhaul_cc::units::{Bytes, Duration, Time};

use crate::rng::Stream;
use crate::tcp::Arrival;

/// How exact the receive times of a real host are. By default they are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stamps {
    /// Packets are seen at multiples of this time, later than they arrived, as network cards that gather
    /// packets before they call show them; zero for at once.
    pub step: Duration,
    /// Then each time is off by up to this much either way, all values equally likely.
    pub noise: Duration,
    /// The receiver's clock gains so many seconds per second; 50e-6 is a bad but usual one.
    pub drift: f64,
}

/// When each transmission arrived, kept until the sender knows.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    waiting: VecDeque<Arrival>,
    /// How many the sender has heard of.
    taken: u64,
    /// How many have been reported.
    reported: u64,
    stamps: Stamps,
    stream: Stream,
}

impl Arrivals {
    pub fn new(stamps: Stamps, flow: u64) -> Self {
        let stream = Stream::new(flow, "stamps");
        Arrivals { waiting: VecDeque::new(), taken: 0, reported: 0, stamps, stream }
    }

    /// A transmission has arrived.
    pub fn hear(&mut self, transmission: u64, now: Time) {
        let stamp = self.stamp(now);
        self.waiting.push_back((transmission, stamp));
    }

    fn stamp(&mut self, now: Time) -> Time {
        let Stamps { step, noise, drift } = self.stamps;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut at = now.as_nanos();
        if !step.is_zero() {
            at = at.next_multiple_of(nanos(step));
        }
        if !noise.is_zero() {
            at = (at + self.stream.below(nanos(noise) * 2 + 1)).saturating_sub(nanos(noise));
        }
        Time::from_nanos(at + (at as f64 * drift.max(0.0)) as u64)
    }

    /// An ACK leaves: how many arrivals it tells of, counted from the first, and its further size.
    pub fn report(&mut self) -> (u64, Bytes) {
        let all = self.taken + self.waiting.len() as u64;
        let size = REPORT * (all - self.reported);
        self.reported = all;
        (all, size)
    }

    /// Those up to number `reported` that the sender has not heard of.
    pub fn take(&mut self, reported: u64) -> impl Iterator<Item = Arrival> + '_ {
        let count = reported.saturating_sub(self.taken);
        self.taken += count;
        self.waiting.drain(..count as usize)
    }
}

/// Size of a report of one arrival: a receive time of a few microseconds after the one before, and the
/// repetition that makes up for lost reports.
const REPORT: Bytes = Bytes(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_in_steps_with_noise_and_drift() {
        let exact = Stamps::default();
        let coarse = Stamps { step: Duration::from_millis(1), ..exact };
        let noisy = Stamps { noise: Duration::from_micros(50), ..exact };
        let fast = Stamps { drift: 100e-6, ..exact };
        let stamp = |stamps, at| Arrivals::new(stamps, 1).stamp(at);
        let at = Time::from_micros(10_000_300);
        assert_eq!(stamp(exact, at), at);
        assert_eq!(stamp(coarse, at), Time::from_millis(10_001));
        assert!(stamp(noisy, at).since(at - Duration::from_micros(50)) <= Duration::from_micros(100));
        assert_eq!(stamp(fast, Time::from_secs(10)), Time::from_millis(10_001));
    }
}
