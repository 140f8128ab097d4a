//! Beside senders that fill the queue: a floor under what we yield.
//!
//! A small queue is kept by giving way, and a sender that fills the queue takes all that is given. Flows of our
//! own kind do not: whoever has less grows as fast as the others and is cut by less. So evidence is our share
//! over time. While trains say that the link is shared and next to nothing of it is left to us for long, although
//! the queue is long or packets are lost, we hold a third of the capacity against the queue, whatever it does: senders
//! that answer losses make room, and three of our kind that were all mistaken would still fit. Where losses take a
//! part of it, more is sent; where they take most of it, too many do the same, and it is given up.

use super::path::between;
use super::round::Finding;
use super::{Policy, Skyhaul, SHARED_GROWTH};
use crate::units::Time;

/// Below this share of the capacity …
pub(super) const STARVED: f64 = 0.12;
/// … or this one, if packets were lost to a full queue, which flows of our kind do not fill …
const BESIDE_FILLERS: f64 = 0.2;
/// … for so many seconds and round trips we are starved: flows of our kind part by less after a join.
const PATIENCE: f64 = 3.0;
const PATIENCE_ROUND_TRIPS: f64 = 10.0;
/// Where more than this is left it takes longer, with its square: a dozen flows of our kind have twice as much.
const LITTLE: f64 = 0.04;
/// So much queue beyond what we want, or such a share of losses, is of others' making: many of our own kind leave
/// each as little, but keep the queue small.
const FILLED: f64 = 0.008;
const OVERFLOWS: f64 = 0.01;
/// With losses, so much is enough.
const STANDS: f64 = 0.002;
/// For so many seconds after a queue ran over on a shared link others count as senders that fill it.
const FILLERS: f64 = 15.0;
/// That the link is shared is remembered for so many round trips, with the queue in them.
const MEMORY_ROUND_TRIPS: f64 = 12.0;
/// Share of the capacity that is held …
const FLOOR: f64 = 1.0 / 3.0;
/// … and more, up to this, where of ours less than this arrives: who answers no loss drops most of it.
const FLOOR_MOST: f64 = 0.6;
const WANTED: f64 = 0.3;
/// Where more than this share of it is lost and less than that of the capacity arrives, the floors of several are
/// too many: it sinks, by this factor per round. BBR costs up to a third of what is sent beside it.
const CROWDED: f64 = 0.25;
const HOPELESS: f64 = 0.2;
/// It does not grow with losses beyond this, and sinks beyond that.
const LOST_GROWS: f64 = 0.4;
const LOST_MOST: f64 = 0.45;
const SINK: f64 = 0.95;
/// Below what counts as starved it is given up, for so many seconds: it has not helped.
const REST: f64 = 60.0;
/// Losses of a round count by this: BBR probes in one of eight.
const WEIGHT: f64 = 1.0 / 16.0;
/// It grows or returns by so much per round.
const RISE: f64 = 0.005;

/// Whether we are starved, and what we hold then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Compete {
    starved: Option<Starved>,
    given_up: Option<Time>,
    /// When a round lost packets to a full queue on a shared link.
    overflowed_at: Option<Time>,
    floor: Option<f64>,
    lost: f64,
    /// Share of the capacity that is delivered, once a floor is held, and queue beyond what we want.
    delivered: f64,
    queue: f64,
}

/// Rounds in a row that left us next to nothing.
#[derive(Clone, Copy, Debug)]
struct Starved {
    since: Time,
    rounds: f64,
    /// Sums over them: shares of the capacity, least queues beyond what we want, and shares lost.
    share: f64,
    queue: f64,
    lost: f64,
}

/// A round as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub now: Time,
    /// Capacity in packets per second, while trains say that others are on the link.
    pub shared: Option<f64>,
    pub rate: f64,
    /// Least queue beyond what we want, in seconds.
    pub queue: f64,
    /// Share of packets lost beyond the noise.
    pub lost: f64,
    /// A queue ran over not long ago.
    pub fillers: bool,
    pub round_trip: f64,
    pub app_limited: bool,
}

impl Compete {
    /// Share of the capacity to hold, if others would leave us none.
    pub fn floor(&self) -> Option<f64> {
        self.floor
    }

    /// Whether losses and queue are more than ours: a full queue drops what would stand between the packets
    /// of a train, and hides those who fill it.
    pub fn feels_others(&self) -> bool {
        self.floor.is_some() && self.lost > OVERFLOWS && self.queue > STANDS
    }

    /// A round lost packets to a full queue, which flows of our kind do not fill.
    pub fn hear_overflow(&mut self, now: Time) {
        self.overflowed_at = Some(now);
    }

    /// Whether a queue ran over on a shared link not long ago: who does that is not of our kind.
    pub fn are_fillers(&self, now: Time) -> bool {
        self.overflowed_at.is_some_and(|at| between(at, now) < FILLERS)
    }

    /// No floor, and nothing counted towards one.
    fn start_anew(&mut self, given_up: Option<Time>) {
        *self = Compete { given_up, overflowed_at: self.overflowed_at, ..Compete::default() };
    }

    /// A round has ended.
    pub fn end_round(&mut self, share: &Share) {
        let Some(capacity) = share.shared else {
            self.start_anew(self.given_up);
            return;
        };
        if self.floor.is_some() {
            self.follow(share, capacity);
            return;
        }
        if self.given_up.is_some_and(|at| between(at, share.now) < REST) {
            return;
        }
        let starved = if share.fillers { BESIDE_FILLERS } else { STARVED };
        if share.rate > starved * capacity || share.app_limited {
            self.starved = None;
            return;
        }
        let starved = self.starved.get_or_insert(Starved {
            since: share.now,
            rounds: 0.0,
            share: 0.0,
            queue: 0.0,
            lost: 0.0,
        });
        starved.rounds += 1.0;
        starved.share += share.rate / capacity;
        starved.queue += share.queue;
        starved.lost += share.lost;
        let left = if share.fillers { 0.0 } else { starved.share / starved.rounds / LITTLE };
        let patience = PATIENCE.max(PATIENCE_ROUND_TRIPS * share.round_trip) * (left * left).max(1.0);
        if between(starved.since, share.now) > patience {
            let (queue, lost) = (starved.queue / starved.rounds, starved.lost / starved.rounds);
            self.starved = None;
            if queue > FILLED || lost > OVERFLOWS || share.fillers {
                self.floor = Some(FLOOR);
                (self.delivered, self.queue) = (FLOOR, queue);
            }
        }
    }

    /// What is sent follows what arrives of it.
    fn follow(&mut self, share: &Share, capacity: f64) {
        let Some(floor) = &mut self.floor else { return };
        self.lost += WEIGHT * (share.lost - self.lost);
        self.delivered += WEIGHT * (share.rate / capacity - self.delivered);
        self.queue += WEIGHT * (share.queue - self.queue);
        let hopeless = self.lost > CROWDED && self.delivered < HOPELESS;
        let next = if hopeless || self.lost > LOST_MOST {
            SINK * *floor
        } else if self.delivered < WANTED && self.lost < LOST_GROWS {
            *floor + RISE
        } else if self.delivered < WANTED {
            *floor
        } else {
            (*floor - RISE).max(FLOOR.min(*floor + RISE))
        };
        *floor = next.min(FLOOR_MOST);
        if *floor < STARVED {
            self.start_anew(Some(share.now));
        }
    }
}

impl Skyhaul {
    /// Packets per second that we hold against others; zero without need.
    pub(super) fn held(&self) -> f64 {
        self.compete.floor().zip(self.trains.capacity()).map_or(0.0, |(floor, capacity)| floor * capacity)
    }

    /// A round has ended on a link of this capacity, if others share it.
    pub(super) fn look_for_fillers(&mut self, finding: &Finding) {
        // Whoever is starved in a queue of seconds hardly sends a train that could tell.
        let memory = SHARED_GROWTH.max(MEMORY_ROUND_TRIPS * (self.round_trip() + finding.mean));
        let shared = self.trains.capacity().filter(|_| self.is_shared(finding.now, memory));
        self.compete.end_round(&Share {
            now: finding.now,
            shared: shared.filter(|_| self.policy == Policy::Share),
            rate: finding.rate,
            queue: finding.least_of_all - self.target(),
            lost: finding.lost / finding.packets.max(1.0) - self.judge.noise(),
            fillers: self.compete.are_fillers(finding.now),
            round_trip: self.round_trip(),
            app_limited: finding.app_limited,
        });
        if self.compete.feels_others() {
            self.trains.hear_of_others(finding.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(second: u64, rate: f64, lost: f64) -> Share {
        let now = Time::from_secs(second);
        Share {
            now,
            shared: Some(1000.0),
            rate,
            queue: 0.0,
            lost,
            fillers: false,
            round_trip: 0.04,
            app_limited: false,
        }
    }

    #[test]
    fn who_is_starved_for_seconds_by_a_long_queue_holds_a_third_and_gives_up_what_does_not_help() {
        let mut compete = Compete::default();
        let long = |second, rate, lost| Share { queue: 0.02, ..round(second, rate, lost) };
        (0..4).for_each(|second| compete.end_round(&long(second, 30.0, 0.0)));
        assert_eq!(compete.floor(), None);
        compete.end_round(&long(4, 30.0, 0.0));
        assert_eq!(compete.floor(), Some(1.0 / 3.0));
        let given_up = (5..100).find(|second| {
            compete.end_round(&long(*second, 100.0, 0.7));
            compete.floor().is_none()
        });
        let given_up = given_up.expect("it does not help");
        let again = (given_up..given_up + 100).find(|second| {
            compete.end_round(&long(*second, 30.0, 0.0));
            compete.floor().is_some()
        });
        assert!(again.is_some_and(|second| second > given_up + 60), "{given_up}, {again:?}");
        compete.end_round(&Share { shared: None, ..long(300, 300.0, 0.0) });
        assert_eq!(compete.floor(), None);
    }

    #[test]
    fn more_is_sent_where_less_than_a_third_arrives_of_it() {
        let mut compete = Compete::default();
        (0..5).for_each(|second| compete.end_round(&round(second, 30.0, 0.05)));
        (5..200).for_each(|second| compete.end_round(&round(second, 220.0, 0.35)));
        assert_eq!(compete.floor(), Some(0.6));
        (200..400).for_each(|second| compete.end_round(&round(second, 350.0, 0.4)));
        assert!(compete.floor().is_some_and(|floor| floor < 0.35), "{:?}", compete.floor());
    }

    #[test]
    fn as_little_at_a_small_queue_without_losses_is_the_share_among_many_of_our_kind() {
        let mut compete = Compete::default();
        (0..60).for_each(|second| compete.end_round(&round(second, 50.0, 0.0)));
        assert_eq!(compete.floor(), None);
    }

    #[test]
    fn a_fifth_of_the_link_is_a_share_among_five_and_no_evidence() {
        let mut compete = Compete::default();
        (0..60).for_each(|second| compete.end_round(&round(second, 200.0, 0.0)));
        assert_eq!(compete.floor(), None);
    }
}
