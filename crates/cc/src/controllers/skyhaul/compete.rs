//! Beside senders that fill the queue: a floor under what we yield.
//!
//! A small queue is kept by giving way, and a sender that fills the queue takes all that is given. Flows of our
//! own kind do not: whoever has less grows as fast as the others and is cut by less. So evidence is our share
//! over time. While trains say that the link is shared and next to nothing of it is left to us for long, we hold
//! a third of the capacity against the queue, whatever it does: senders that answer losses make room, and
//! three of our kind that were all mistaken would still fit.

use super::path::between;
use super::round::Finding;
use super::{Policy, Skyhaul};
use crate::units::Time;

/// Below this share of the capacity …
const STARVED: f64 = 0.12;
/// … for so many seconds and round trips we are starved: flows of our kind part by less after a join.
const PATIENCE: f64 = 3.0;
const PATIENCE_ROUND_TRIPS: f64 = 10.0;
/// Share of the capacity that is held.
const FLOOR: f64 = 1.0 / 3.0;
/// Beyond this share of losses the floors of several are too many: it sinks, by this factor per round …
/// BBR, which answers no loss, costs up to a fifth beside a third in a queue of a quarter of a product.
const CROWDED: f64 = 0.25;
const SINK: f64 = 0.98;
/// Losses of a round count by this: BBR probes in one of eight.
const WEIGHT: f64 = 1.0 / 16.0;
/// … down to this …
const FLOOR_LEAST: f64 = 0.1;
/// … and comes back by this.
const RISE: f64 = 0.005;

/// Whether we are starved, and what we hold then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Compete {
    starved_since: Option<Time>,
    floor: Option<f64>,
    lost: f64,
}

/// A round as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub now: Time,
    /// Capacity in packets per second, while trains say that others are on the link.
    pub shared: Option<f64>,
    pub rate: f64,
    /// Share of packets lost beyond the noise.
    pub lost: f64,
    pub round_trip: f64,
    pub app_limited: bool,
}

impl Compete {
    /// Share of the capacity to hold, if others would leave us none.
    pub fn floor(&self) -> Option<f64> {
        self.floor
    }

    /// A round has ended.
    pub fn end_round(&mut self, share: &Share) {
        let Some(capacity) = share.shared else {
            *self = Compete::default();
            return;
        };
        if let Some(floor) = &mut self.floor {
            self.lost += WEIGHT * (share.lost - self.lost);
            let next = if self.lost > CROWDED { SINK * *floor } else { *floor + RISE };
            *floor = next.clamp(FLOOR_LEAST, FLOOR);
            return;
        }
        if share.rate > STARVED * capacity || share.app_limited {
            self.starved_since = None;
            return;
        }
        let since = *self.starved_since.get_or_insert(share.now);
        if between(since, share.now) > PATIENCE.max(PATIENCE_ROUND_TRIPS * share.round_trip) {
            self.floor = Some(FLOOR);
        }
    }
}

impl Skyhaul {
    /// Packets per second that we hold against others; zero without need.
    pub(super) fn held(&self) -> f64 {
        self.compete.floor().zip(self.trains.capacity()).map_or(0.0, |(floor, capacity)| floor * capacity)
    }

    /// A round has ended on a link of this capacity, if others share it.
    pub(super) fn look_for_fillers(&mut self, finding: &Finding, shared: Option<f64>) {
        self.compete.end_round(&Share {
            now: finding.now,
            shared: shared.filter(|_| self.policy == Policy::Share),
            rate: finding.rate,
            lost: finding.lost / finding.packets.max(1.0) - self.judge.noise(),
            round_trip: self.round_trip(),
            app_limited: finding.app_limited,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(second: u64, rate: f64, lost: f64) -> Share {
        let now = Time::from_secs(second);
        Share { now, shared: Some(1000.0), rate, lost, round_trip: 0.04, app_limited: false }
    }

    #[test]
    fn who_is_starved_for_seconds_on_a_shared_link_holds_a_third_and_less_if_that_is_too_much() {
        let mut compete = Compete::default();
        (0..4).for_each(|second| compete.end_round(&round(second, 50.0, 0.0)));
        assert_eq!(compete.floor(), None);
        compete.end_round(&round(4, 50.0, 0.0));
        assert_eq!(compete.floor(), Some(1.0 / 3.0));
        (5..120).for_each(|second| compete.end_round(&round(second, 300.0, 0.4)));
        assert_eq!(compete.floor(), Some(0.1));
        compete.end_round(&Share { shared: None, ..round(121, 300.0, 0.0) });
        assert_eq!(compete.floor(), None);
    }

    #[test]
    fn a_fifth_of_the_link_is_a_share_among_five_and_no_evidence() {
        let mut compete = Compete::default();
        (0..60).for_each(|second| compete.end_round(&round(second, 200.0, 0.0)));
        assert_eq!(compete.floor(), None);
    }
}
