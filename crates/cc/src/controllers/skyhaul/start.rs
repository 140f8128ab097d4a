//! What is known before the first packet, and what is sent before the first answer.

use super::judge::Judge;
use super::path::between;
use super::trains::packets;
use super::{scavenge, Phase, Policy, Skyhaul};
use crate::controller::{PathHistory, Setup};
use crate::event::Train;
use crate::units::{Bytes, Duration, Rate, Time};

/// Share of a remembered rate to begin with, at full confidence: the first burst and a train paced at that rate tell
/// within milliseconds after the first answer what is true.
const WARM: f64 = 0.95;
/// The same where the host has no reports: nothing corrects it before two round trips have passed.
const WARM_PLAIN: f64 = 0.85;
/// The first estimate is taken at this share when both halves of the first flight agree: the round trip
/// until a train validates it costs a fifth of the link, and a queue of one bandwidth-delay product takes
/// what is too much where others fill the link (0.9 dropped packets there) …
const FIRST_CHECKED: f64 = 0.8;
/// … and at this one otherwise: that halves the harm of an estimate twice too high.
const FIRST_UNCHECKED: f64 = 0.5;
/// Packets that make halves worth comparing.
const CHECKED_PACKETS: f64 = 20.0;
/// Packets that make a first estimate.
const FIRST_PACKETS: f64 = 8.0;
/// The first burst's trail lasts for this share of a round trip: nothing comes back before one is over, and no
/// more than this is sent on its word until the trail has told its own …
const TRAIL: f64 = 1.0 / 12.0;
/// … and at most so many seconds where the round trip is not known yet.
const TRAIL_UNKNOWN_MOST: f64 = 0.010;
/// A link with less than this free is busy.
const BUSY: f64 = 0.6;
/// Longest time a start with a given rate sends without an answer.
const UNANSWERED_MOST: f64 = 3.0;

/// What is known of the path before the first packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Nothing: the first flight measures it.
    Cold,
    /// What path memory has: sends at 0.95 of the rate at once (0.85 without reports), less with little confidence; the
    /// first train validates.
    Warm(PathHistory),
    /// The operator gives the rate: sends at it from the first packet on.
    Known(Rate),
}

/// Rates that are given at the start, in packets per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    /// The link's.
    pub link: f64,
    /// What to begin with, with reports and without.
    pub rich: f64,
    pub plain: f64,
    /// It is remembered, not known.
    pub remembered: bool,
}

impl Start {
    /// The rate if it is given, else the history if there is one.
    pub fn of(setup: &Setup) -> Self {
        match (setup.link_rate, setup.history) {
            (Some(rate), _) => Start::Known(rate),
            (None, Some(history)) => Start::Warm(history),
            (None, None) => Start::Cold,
        }
    }

    /// The rate to begin with, and the round trip to reckon with until one is measured.
    pub(super) fn given(&self, setup: &Setup, mss: Bytes) -> (Option<Given>, Duration) {
        match self {
            Start::Cold => (None, setup.initial_rtt),
            Start::Warm(history) => {
                let link = packets(history.rate, mss);
                let [rich, plain] = [WARM, WARM_PLAIN].map(|sure| history.start_share(sure) * link);
                (Some(Given { link, rich, plain, remembered: true }), history.min_rtt)
            }
            Start::Known(rate) => {
                let link = packets(*rate, mss);
                (Some(Given { link, rich: link, plain: link, remembered: false }), setup.initial_rtt)
            }
        }
    }

    pub(super) fn judge(&self) -> Judge {
        match self {
            Start::Warm(history) => Judge::expecting(history.loss.value()),
            Start::Cold | Start::Known(_) => Judge::default(),
        }
    }
}

impl Skyhaul {
    /// Packets per second to begin with.
    pub(super) fn given_rate(&self) -> Option<f64> {
        self.given.map(|given| if self.rich { given.rich } else { given.plain })
    }

    /// The train that follows a first burst where a rate is given: paced at that, so that the first answers tell what is
    /// free of it.
    pub(super) fn validate_given(&mut self, now: Time) -> Option<Train> {
        let given = self.given.filter(|_| self.has_flown() && !self.given_tried)?;
        self.given_tried = true;
        self.trains.paced_at(now, given.link)
    }

    /// The window before the first answer, where a rate is given: what the time has allowed so far.
    pub(super) fn unanswered(&self, rate: f64) -> f64 {
        let spent = self.started.map_or(0.0, |start| between(start, self.now)).min(UNANSWERED_MOST);
        (rate * spent.max(self.given_rtt) * 1.25).max(self.window.segments())
    }

    /// Whether the first flight was long enough to tell anything. A greeting or a request is not, and then
    /// the next one is a burst again.
    pub(super) fn has_flown(&self) -> bool {
        self.flight.1 >= FIRST_PACKETS
    }

    /// The first flight is coming in.
    pub(super) fn estimate_first(&mut self) {
        let Some(round_trip) = self.path.round_trip() else { return };
        let Some((n, rate, agrees)) = self.trains.so_far() else { return };
        self.set_first(n, rate, agrees, round_trip);
    }

    fn set_first(&mut self, n: f64, rate: f64, agrees: bool, round_trip: f64) {
        if n < FIRST_PACKETS {
            return;
        }
        let share = match self.policy {
            Policy::Scavenge => scavenge::FIRST,
            _ if n >= CHECKED_PACKETS && agrees => FIRST_CHECKED,
            _ => FIRST_UNCHECKED,
        };
        match self.given {
            // What was given holds unless the path says clearly otherwise; what is remembered makes the start no
            // slower than without it, and no faster than the path.
            Some(given) if given.rich < rate * 1.1 => {
                let (least, most) =
                    if given.remembered { (share * rate, rate) } else { (0.0, f64::INFINITY) };
                self.window.set(given.rich.clamp(least, most) * round_trip);
            }
            _ => self.window.set(share * rate * round_trip),
        }
    }

    /// The first flight, and where a rate is given the train that follows it.
    pub(super) fn poll_first(&mut self, now: Time) -> Option<Train> {
        let window = self.window.segments().floor();
        if self.started.is_some() && self.flight.1 >= CHECKED_PACKETS.min(window) {
            return self.validate_given(now);
        }
        self.flight = (now, 0.0);
        let most = if self.is_measured() { f64::INFINITY } else { TRAIL_UNKNOWN_MOST };
        let trail = (TRAIL * self.round_trip()).min(most);
        // Who begins at a given rate has something to send meanwhile.
        let trails = self.given.is_none() && self.policy != Policy::Exclusive;
        let train = self.trains.first(now, window, trails.then_some(trail));
        self.held.begin(train.as_ref().map(|train| train.number));
        train
    }

    /// A burst has told this; whether it was one of the first flight.
    pub(super) fn hear_first(&mut self, packets: f64, rate: f64, agrees: bool, now: Time) -> bool {
        let first = self.phase == Phase::First;
        // Data came bit by bit, so the first flight left in pieces: a later one may say more.
        let better = matches!(self.phase, Phase::Validate { .. })
            && (self.available.is_none() && !self.cruise.is_full())
            && (packets >= CHECKED_PACKETS && agrees);
        if first && packets < FIRST_PACKETS {
            // A request: the flight that counts is still to come.
        } else if first || better {
            let before = self.window.segments();
            self.set_first(packets, rate, agrees, self.round_trip());
            if first {
                self.await_train(now);
                if self.given_tried {
                    // The train that left with the first flight counts as well.
                    self.phase = Phase::Validate { since: Some(self.flight.0), rounds: 0 };
                }
            } else {
                self.window.set(before.max(self.window.segments()));
            }
        }
        first || better
    }

    /// The window rests on a burst: paced trains validate it.
    pub(super) fn await_train(&mut self, now: Time) {
        self.phase = Phase::Validate { since: Some(now), rounds: 0 };
        self.trains.pace_next(2);
    }

    /// The trail of the first burst has told how much of the link is free. On a busy one what the burst showed
    /// is taken back: others have the link, and make room step by step.
    pub(super) fn hear_room(&mut self, share: f64, now: Time) {
        let Some(capacity) = self.trains.capacity().filter(|_| share < BUSY) else { return };
        if !matches!(self.phase, Phase::Validate { .. }) || self.given.is_some() {
            return;
        }
        self.trains.hear_of_others(now);
        if self.policy == Policy::Scavenge {
            return;
        }
        self.phase = Phase::Cruise;
        self.cruise.filled();
        self.settle.join(self.round_trip());
        let share = share.max(self.settle.ramp().unwrap_or(0.0));
        self.window.set(share * capacity * self.round_trip());
    }
}
