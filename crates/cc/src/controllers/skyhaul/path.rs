//! What the packets' own times say of the path: queue, round trip without it, jitter, feedback delay.
//!
//! `owd` is the one-way delay on two clocks, so only differences count. `base` is the least one seen for
//! [`MEMORY`]; the queue is what lies above it. Times are seconds, as floats.

use crate::event::Report;
use crate::parts::extreme::{position, WindowedMin};
use crate::units::{Duration, Time};

/// How long the least delay is believed: several dips long at any distance, and short enough that clocks
/// which drift by 50 millionths part by only 1.5 ms.
pub(super) const MEMORY: Duration = Duration::from_secs(30);
/// Delays this far apart are compared: a queue of ours changes by a tenth of a millisecond meanwhile, and
/// neighbours that jitter kept in order differ by nothing but their spacing.
const JITTER_LAG: f64 = 0.002;
/// The median is followed in steps of this share of it, from this much up.
const JITTER_STEP: f64 = 1.0 / 16.0;
const JITTER_LEAST: f64 = 1e-6;
/// The first difference counts whole, up to this.
const JITTER_FIRST_MOST: f64 = 1e-4;
/// Weight of a difference in the mean of differences: a queue's way up or down lasts for many.
const DRIFT_WEIGHT: f64 = 1.0 / 16.0;
/// The feedback delay of a round is forgotten by this factor per round.
const EXTRA_DECAY: f64 = 0.8;
/// The share of reordered packets is an average over so many.
const REORDERING_MEMORY: f64 = 2_000.0;
/// Feedback delay that is believed at most, in round trips.
const EXTRA_MOST: f64 = 1.0;

/// Delays of the path.
#[derive(Clone, Debug)]
pub(super) struct Path {
    base: WindowedMin<f64>,
    /// Least time from an arrival until its report is here, on two clocks.
    back: WindowedMin<f64>,
    /// Part of the delay above the base that is noise and no queue.
    offset: f64,
    queue: f64,
    /// When the last packet that counts for the jitter arrived, and its delay.
    compared: Option<(Time, f64)>,
    jitter: f64,
    is_jitter_known: bool,
    /// Mean difference of the delays compared, sign and all.
    drift: f64,
    extra: f64,
    extra_now: f64,
    /// The latest arrival so far, and the share of packets that came before one sent earlier.
    newest: Option<Time>,
    reordered: f64,
}

impl Path {
    pub fn new() -> Self {
        let width = u64::try_from(MEMORY.as_nanos()).unwrap_or(u64::MAX);
        Path {
            base: WindowedMin::new(width),
            back: WindowedMin::new(width),
            offset: 0.0,
            queue: 0.0,
            compared: None,
            jitter: JITTER_LEAST,
            is_jitter_known: false,
            drift: 0.0,
            extra: 0.0,
            extra_now: 0.0,
            newest: None,
            reordered: 0.0,
        }
    }

    /// Takes in a packet that has arrived; the queue it met.
    pub fn hear(&mut self, report: &Report, received_at: Time) -> f64 {
        let owd = between(report.sent_at, received_at);
        let at = position(report.now);
        let before = f64::from(self.newest.is_some_and(|newest| received_at < newest));
        self.reordered += (before - self.reordered) / REORDERING_MEMORY;
        self.newest = self.newest.max(Some(received_at));
        self.base.update(at, owd);
        let base = self.base.get().unwrap_or(owd);
        match self.compared {
            _ if report.train.is_some() => {}
            Some((at, _)) if between(at, received_at) < JITTER_LAG => {}
            before => {
                // The median: trains of others on the link move the mean, but not half of the packets.
                if let Some((_, before)) = before {
                    // A queue that grows or shrinks is no jitter.
                    let step = owd - before;
                    let apart = (step - self.drift).abs();
                    self.drift += DRIFT_WEIGHT * (step - self.drift);
                    self.jitter *= if apart > self.jitter { 1.0 + JITTER_STEP } else { 1.0 - JITTER_STEP };
                    if !self.is_jitter_known {
                        self.is_jitter_known = true;
                        self.jitter = apart.min(JITTER_FIRST_MOST);
                    }
                    self.jitter = self.jitter.clamp(JITTER_LEAST, 1.0);
                }
                self.compared = Some((received_at, owd));
            }
        }
        self.queue = (owd - base - self.offset).max(0.0);
        self.back.update(at, between(received_at, report.now));
        self.queue
    }

    /// Takes in an acknowledgment, which is what opens the window: how late it was, and the time that it
    /// covers, because its oldest packet has waited for its newest.
    pub fn hear_ack(&mut self, sent_at: Time, now: Time, covers: f64) {
        let Some(round_trip) = self.round_trip() else { return };
        let late = (between(sent_at, now) - self.queue - round_trip).max(0.0);
        self.extra_now = self.extra_now.max(late + covers);
    }

    /// A round has ended.
    pub fn end_round(&mut self) {
        let most = EXTRA_MOST * self.round_trip().unwrap_or(0.0);
        self.extra = self.extra_now.max(self.extra * EXTRA_DECAY).min(most);
        self.extra_now = 0.0;
    }

    /// `D`: the least round trip, queues taken away.
    pub fn round_trip(&self) -> Option<f64> {
        Some((self.base.get()? + self.offset + self.back.get()?).max(1e-6))
    }

    /// The least one-way delay, on two clocks.
    pub fn base(&self) -> Option<f64> {
        self.base.get()
    }

    /// The queue that the newest packet met.
    pub fn queue(&self) -> f64 {
        self.queue
    }

    /// How long acknowledgments are held back beyond the round trip at worst.
    pub fn extra(&self) -> f64 {
        self.extra.max(self.extra_now)
    }

    /// Share of packets that overtook one sent before them.
    pub fn reordered(&self) -> f64 {
        self.reordered
    }

    /// Median difference of delays a few packets apart.
    pub fn jitter(&self) -> f64 {
        self.jitter
    }

    /// It is proven that the path is longer by `longer` than was believed: that much is no queue.
    pub fn rebase(&mut self, now: Time, longer: f64) {
        let Some(base) = self.base.get() else { return };
        self.base.clear();
        self.base.update(position(now), base + longer);
        self.back.clear();
        self.queue = (self.queue - longer).max(0.0);
        self.extra_now = 0.0;
    }

    /// A constant part of the delay that no dip takes away and no packet's minimum shows.
    pub fn learn_offset(&mut self, more: f64) {
        self.offset = (self.offset + more).max(0.0);
    }

    /// Up to this delay, on two clocks, nothing is a queue.
    pub fn put_level(&mut self, level: f64) {
        self.offset = self.base().map_or(0.0, |base| (level - base).max(0.0));
    }

    /// The noise may have gone.
    pub fn forget_offset(&mut self, share: f64) {
        self.offset *= 1.0 - share;
    }
}

/// Seconds from one moment to another, negative if it lies before.
pub(super) fn between(from: Time, to: Time) -> f64 {
    if to >= from {
        to.since(from).as_secs_f64()
    } else {
        -from.since(to).as_secs_f64()
    }
}
