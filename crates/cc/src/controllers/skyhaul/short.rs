//! A queue shorter than the one we want: some dozen packets in front of a fast link. It overflows before it has the
//! length we look for, and always at the same length, so that its losses look like noise; making up for noise adds
//! to them. A dip deep enough to do without them tells (`dip`): noise loses as much in it as before.

use super::dip::Own;
use super::path::between;
use super::round::Finding;
use super::Skyhaul;
use crate::units::Time;

/// Noise below this share is not asked about: a dip that could tell would cost more than such losses.
const LOSSY: f64 = 0.03;
/// Part of what fits that we want in the queue.
const WANTED: f64 = 0.5;
/// What was found is forgotten after so many seconds: the link may have become slower, and its queue longer.
const MEMORY: f64 = 120.0;

/// The queue that was found to overflow, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Short {
    room: Option<(Time, f64)>,
}

impl Short {
    /// Whether the queue is known to be short: then what is lost beside a dip is no noise to learn.
    pub fn is_known(&self) -> bool {
        self.room.is_some()
    }

    /// What is left of the queue that one would want.
    pub fn bound(&self, wanted: f64) -> f64 {
        self.room.map_or(wanted, |(_, room)| wanted.min(WANTED * room))
    }

    /// A round has ended.
    pub fn end_round(&mut self, now: Time) {
        self.room = self.room.filter(|(at, _)| between(*at, now) < MEMORY);
    }
}

/// The noise, if losses of our own making may be in it: there are many, and the queue never has the length that we
/// would want.
pub(super) fn doubted(noise: f64, finding: &Finding, wanted: f64) -> Option<f64> {
    (noise > LOSSY && finding.greatest < wanted).then_some(noise)
}

impl Skyhaul {
    /// A dip did without losses that were taken for noise.
    pub(super) fn hear_own_losses(&mut self, own: Own, now: Time) {
        self.short.room = Some((now, own.queue));
        self.judge.know(own.noise);
        let reach = self.round_trip() + self.target();
        let window = self.window.segments().min(own.rate / (1.0 - own.noise) * reach);
        self.window.set(window);
    }
}
