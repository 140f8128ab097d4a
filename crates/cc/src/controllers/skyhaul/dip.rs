//! The dip: for one round we send a little less and look what becomes of queue and rate two rounds later.
//!
//! | queue falls with the window | rate falls with the window | meaning |
//! |---|---|---|
//! | yes | whatever | a queue, and the base is right |
//! | no | yes | no queue at all: the path has become longer |
//! | no | no | somebody else fills the queue as fast as we empty it |
//!
//! Where a queue shorter than the one we want may be what loses packets (`short`), the dip is deeper than the losses.
//!
//! Whether others share the link is asked of the trains: a dip that empties the queue lowers the rate too,
//! and its size is that of the answer.

use super::path::between;
use super::round::Finding;
use crate::units::Time;

/// Least time between dips …
const PERIOD: f64 = 4.0;
/// … where others share the link, whose shares dips make equal …
const PERIOD_SHARED: f64 = 2.0;
/// … and in round trips.
const PERIOD_ROUND_TRIPS: f64 = 10.0;
/// A dip takes away the queue one and a half times, that is, all of it and a bit.
const DEPTH: f64 = 1.5;
/// Least depth: less drowns in the scatter of the rate, which is that of random losses. So many deviations …
const DEPTH_DEVIATIONS: f64 = 6.0;
/// … within these bounds: a dip deeper than the queue leaves the link idle.
const DEPTH_LEAST: std::ops::RangeInclusive<f64> = 0.005..=0.02;
const DEPTH_MOST: f64 = 0.4;
/// A decisive dip, when something is wrong: 0.7 of the queue, within these bounds.
const DECISIVE: f64 = 0.7;
const DECISIVE_DEPTH: std::ops::RangeInclusive<f64> = 0.25..=0.6;
/// Rounds with a queue too long before a decisive dip.
const STANDING_ROUNDS: u32 = 3;

/// Where losses may be our own, a dip takes so many times what is lost …
const DEPTH_LOSSES: f64 = 1.5;
/// … and they were, if less than this part of them is left, and chance leaves no less, in standard deviations.
const LEFT: f64 = 0.5;
const DEVIATIONS: f64 = 3.0;

/// A queue below this share of the last round's does not stand.
const SHRINKS: f64 = 0.97;

/// A dip under way.
#[derive(Clone, Copy, Debug)]
struct Dip {
    factor: f64,
    queue: f64,
    rate: f64,
    window: f64,
    /// The noise, where some of it may be losses of our own making, and the greatest queue.
    doubted: Option<(f64, f64)>,
    rounds: u32,
}

/// Losses that were taken for noise and are our own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Own {
    /// The queue that overflows.
    pub queue: f64,
    /// The share that is lost without them.
    pub noise: f64,
    /// Packets received per second beside them.
    pub rate: f64,
}

/// When to dip, and what came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Dips {
    last: Option<Time>,
    dip: Option<Dip>,
    standing: u32,
    /// Queue of the last round.
    before: f64,
    count: u32,
}

/// What a dip showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The queue is one.
    Queue,
    /// This much of what looked like a queue is none.
    NoQueue(f64),
    /// Nothing clear.
    Unclear,
    /// The queue overflowed before.
    Overflow(Own),
}

impl Dips {
    /// What is left of the window at present.
    pub fn factor(&self) -> f64 {
        self.dip.filter(|dip| dip.rounds == 0).map_or(1.0, |dip| dip.factor)
    }

    /// Whether a dip or its echo is under way.
    pub fn is_under_way(&self) -> bool {
        self.dip.is_some()
    }

    /// Gives up a dip: something else has changed the window.
    pub fn cancel(&mut self) {
        self.dip = None;
        self.standing = 0;
    }

    /// A round has ended: perhaps a verdict, perhaps a dip begins.
    pub fn end_round(
        &mut self,
        finding: &Finding,
        window: f64,
        target: f64,
        round_trip: f64,
        shared: bool,
        doubted: Option<f64>,
    ) -> Option<Verdict> {
        if let Some(dip) = &mut self.dip {
            dip.rounds += 1;
            if dip.rounds < 2 {
                return None;
            }
            let dip = *dip;
            self.dip = None;
            return Some(dip.judge(finding));
        }
        let last = *self.last.get_or_insert(finding.now);
        let queue = finding.least;
        // A queue that shrinks is one, and on its way out; on a shared link dips are what makes flows equal.
        let stands = queue > 2.0 * target + 0.001 && (shared || queue > SHRINKS * self.before);
        self.standing = if stands { self.standing + 1 } else { 0 };
        self.before = queue;
        if finding.steady < 8.0 || finding.app_limited {
            return None;
        }
        let depth = if self.standing >= STANDING_ROUNDS {
            (DECISIVE * queue * finding.rate / window).clamp(*DECISIVE_DEPTH.start(), *DECISIVE_DEPTH.end())
        } else {
            // A tenth more or less, so that flows do not dip in step.
            let scatter = 0.9 + 0.05 * f64::from(self.count % 5);
            let least = if shared { PERIOD_SHARED } else { PERIOD };
            let period = scatter * least.max(PERIOD_ROUND_TRIPS * round_trip);
            if between(last, finding.now) < period {
                return None;
            }
            let scatter = libm::sqrt(finding.lost + 1.0) / finding.packets.max(1.0);
            let least = (DEPTH_DEVIATIONS * scatter).clamp(*DEPTH_LEAST.start(), *DEPTH_LEAST.end());
            let losses = DEPTH_LOSSES * doubted.unwrap_or(0.0);
            (DEPTH * queue / round_trip).max(losses).clamp(least, DEPTH_MOST)
        };
        self.last = Some(finding.now);
        self.count = self.count.wrapping_add(1);
        self.standing = 0;
        let doubted = doubted.map(|noise| (noise, finding.greatest));
        self.dip = Some(Dip { factor: 1.0 - depth, queue, rate: finding.rate, window, doubted, rounds: 0 });
        None
    }
}

impl Dip {
    fn judge(&self, finding: &Finding) -> Verdict {
        if let Some(own) = self.own_losses(finding) {
            return Verdict::Overflow(own);
        }
        let taken = (1.0 - self.factor) * self.window / self.rate.max(1e-9);
        let fell = ((self.queue - finding.least) / taken.min(self.queue.max(1e-9))).clamp(-1.0, 2.0);
        let slower = libm::log(finding.rate.max(1e-9) / self.rate.max(1e-9)) / libm::log(self.factor);
        if self.queue < 0.0005 || finding.steady < 8.0 || finding.app_limited {
            return Verdict::Unclear;
        }
        match (fell > 0.5, slower > 0.5) {
            (true, _) => Verdict::Queue,
            (false, true) => Verdict::NoQueue(finding.least),
            (false, false) => Verdict::Unclear,
        }
    }

    fn own_losses(&self, finding: &Finding) -> Option<Own> {
        let (noise, queue) = self.doubted?;
        let expected = noise * finding.packets;
        let fewer = finding.lost < LEFT * expected
            && expected - finding.lost > DEVIATIONS * libm::sqrt(expected)
            && 1.0 - self.factor > noise;
        let noise = finding.lost / finding.packets.max(1.0);
        fewer.then_some(Own { queue, noise, rate: self.rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How deep the first dip is of a flow that sees this queue and loses so many of its packets.
    fn depth(packets: f64, lost: f64, queue: f64, round_trip: f64) -> f64 {
        let mut dips = Dips::default();
        for round in 0..1_000 {
            let now = Time::ZERO + crate::units::Duration::from_secs_f64(round_trip) * round;
            let finding = Finding {
                now,
                packets,
                lost,
                least: queue,
                mean: queue,
                greatest: queue,
                least_of_all: 0.0,
                before_loss: None,
                clumps: None,
                rate: packets / round_trip,
                steady: packets,
                app_limited: false,
            };
            dips.end_round(&finding, packets, queue, round_trip, false, None);
            if dips.is_under_way() {
                return 1.0 - dips.factor();
            }
        }
        0.0
    }

    #[test]
    fn a_dip_is_no_deeper_than_queue_and_scatter_ask_for() {
        // 150 Mbit/s over 540 ms with 1.2 % loss: one and a half times the queue of 5.4 ms.
        assert!((depth(6_750.0, 81.0, 0.0054, 0.540) - 0.015).abs() < 1e-9);
        // 10 Mbit/s: 5 of 450 packets lost scatter by more.
        assert!((depth(450.0, 5.0, 0.004, 0.540) - 0.02).abs() < 1e-9);
        assert!((depth(10_000.0, 0.0, 0.0, 0.540) - 0.005).abs() < 1e-9);
    }
}
