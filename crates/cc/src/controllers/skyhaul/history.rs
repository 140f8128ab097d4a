//! What this connection leaves for the next one on the path ([`PathHistory`]).
//!
//! The rate is the link's where trains agree on it, and ours where others share the link or packets come in
//! clumps: the next connection begins with what this one had.

use super::{Phase, Skyhaul, SHARED_GROWTH};
use crate::controller::PathHistory;
use crate::units::{Duration, Share};

/// Bursts that must agree before their rate is passed on.
const BURSTS: usize = 3;
/// Weight of a round in the average rate, as of a sample in BoostTCP's (α = 1/8).
const WEIGHT: f64 = 0.125;

/// The average rate of rounds that were full, and how far they strayed from it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Through {
    rate: Option<f64>,
    strayed: f64,
}

impl Through {
    /// A round ended in which the window was the limit; packets per second, random loss put back.
    pub fn hear(&mut self, rate: f64) {
        if !(rate > 0.0 && rate.is_finite()) {
            return;
        }
        let mean = self.rate.unwrap_or(rate);
        self.strayed += WEIGHT * ((rate / mean - 1.0).abs().min(1.0) - self.strayed);
        self.rate = Some(mean + WEIGHT * (rate - mean));
    }
}

impl Skyhaul {
    /// Nothing before the start is over.
    pub(super) fn learnt(&self) -> Option<PathHistory> {
        let share = |value: f64| Share::new(value.clamp(0.0, 1.0)).unwrap_or_default();
        let time = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        if !self.rich {
            let (rate, round_trip, loss) = self.plain.learnt()?;
            return Some(PathHistory {
                loss: share(loss),
                ..PathHistory::of(super::trains::rate(rate, self.mss), time(round_trip))
            });
        }
        let (rate, round_trip) = self.learnt_rich()?;
        Some(PathHistory {
            loss: share(self.judge.noise()),
            jitter: time(self.path.jitter()),
            reordered: share(self.path.reordered()),
            rate_variation: share(self.through.strayed.max(self.trains.spread())),
            ..PathHistory::of(super::trains::rate(rate, self.mss), time(round_trip))
        })
    }

    fn learnt_rich(&self) -> Option<(f64, f64)> {
        if self.phase != Phase::Cruise {
            return None;
        }
        let by_trains =
            (!self.noise.is_clumped() && self.trains.is_trusted() && self.trains.bursts() >= BURSTS)
                .then(|| self.trains.capacity())
                .flatten();
        let shared = self.is_shared(self.now, SHARED_GROWTH);
        let through = self.through.rate;
        let rate = if shared { through.or(by_trains) } else { by_trains.or(through) };
        Some((rate?, self.path.round_trip()?))
    }
}
