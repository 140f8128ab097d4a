//! What BBR version 3 wants to know about a packet when its fate is known: the state of the connection
//! when it left.

use crate::units::{Bytes, Duration, Time};
use std::collections::VecDeque;

/// Departures are kept this far apart, as a share of the least round trip; packets between two of them
/// count as the earlier one. Less than a percent of a round trip, and memory stays bounded.
const GRAIN: u32 = 128;
/// Most departures kept: eight round trips of them.
const MOST: usize = 1024;

/// The connection when a packet left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departure {
    pub at: Time,
    /// Bytes in flight with the packet (P.tx_in_flight).
    pub in_flight: Bytes,
    /// Bytes delivered so far (P.delivered).
    pub delivered: Bytes,
    /// Bytes lost so far (P.lost).
    pub lost: Bytes,
}

/// The departures of the last round trips.
#[derive(Clone, Debug, Default)]
pub(super) struct Departures(VecDeque<Departure>);

impl Departures {
    /// A packet left. `least` is the least round trip, zero while none is known.
    pub fn push(&mut self, departure: Departure, least: Duration) {
        if self.0.back().is_some_and(|last| departure.at < last.at + least / GRAIN) {
            return;
        }
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(departure);
    }

    /// The departure of a packet that left at `sent_at`, or the nearest one before; none if all that is
    /// known is younger.
    pub fn at(&self, sent_at: Time) -> Option<Departure> {
        let next = self.0.partition_point(|departure| departure.at <= sent_at);
        self.0.get(next.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn departure(ms: u64) -> Departure {
        Departure { at: Time::from_millis(ms), in_flight: Bytes(ms), delivered: Bytes(0), lost: Bytes(0) }
    }

    #[test]
    fn a_packet_is_found_by_its_departure_or_the_one_before() {
        let mut departures = Departures::default();
        (1..=9).for_each(|i| departures.push(departure(i * 10), Duration::ZERO));
        let at = |ms| departures.at(Time::from_millis(ms)).map(|found| found.in_flight.0);
        assert_eq!([at(9), at(10), at(19), at(20), at(1000)], [None, Some(10), Some(10), Some(20), Some(90)]);
    }

    #[test]
    fn memory_is_bounded_and_holds_round_trips_at_any_rate() {
        let mut departures = Departures::default();
        (0..100_000).for_each(|i| departures.push(departure(i), Duration::from_millis(540)));
        assert!(departures.0.len() <= MOST);
        assert!(departures.at(Time::from_millis(100_000 - 4 * 540)).is_some());
    }
}
