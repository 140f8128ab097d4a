//! Policy `scavenge`: only what others leave.
//!
//! Paced trains tell how much of the link others leave us, whoever they are, and whether their queue is long or
//! short. While they speak of others, the window goes to what is left less a part that stays free for them to
//! take: who wants more finds it, and we go further down, to a floor that keeps trains on their way. When no
//! train has spoken of others for a while, the link is taken again as in the start.

use super::path::between;
use super::round::Finding;
use super::{Phase, Policy, Skyhaul};
use crate::parts::extreme::{position, WindowedMin};
use crate::units::{Duration, Time};
use std::collections::VecDeque;

/// Others are on the link if the median of so many trains finds less than this share of it free: they may have
/// little, as long as we have much …
const TRAINS: usize = 5;
const BUSY: f64 = 0.95;
/// … and for so long after trains said so: longer than a sender that fills the queue leaves
/// it empty after its cuts.
const QUIET: Duration = Duration::from_secs(3);
/// Share of the capacity that we leave free beside others.
const MARGIN: f64 = 0.1;
/// What we keep at least: a train now and then.
const FLOOR: f64 = 0.05;
/// Towards more, per round and as a share of the capacity.
const STEP: f64 = 0.04;
/// The link may be busy when we begin: a train says so before more than this is sent …
pub(super) const FIRST: f64 = 0.1;
/// … and on a link that has become free this much, until a train validates.
const BACK: f64 = 0.5;

/// What others leave.
#[derive(Clone, Debug)]
pub(super) struct Scavenge {
    /// Shares of the capacity that trains found free.
    free: WindowedMin<f64>,
    newest: VecDeque<f64>,
    busy_at: Option<Time>,
    gives_way: bool,
}

impl Scavenge {
    pub fn new() -> Self {
        let width = u64::try_from(QUIET.as_nanos()).unwrap_or(u64::MAX);
        Scavenge { free: WindowedMin::new(width), newest: VecDeque::new(), busy_at: None, gives_way: false }
    }

    /// A train found this share of the capacity free.
    fn hear(&mut self, now: Time, free: f64) {
        self.free.update(position(now), free);
        if self.newest.len() >= TRAINS {
            self.newest.pop_front();
        }
        self.newest.push_back(free);
        if self.newest.iter().filter(|free| **free < BUSY).count() > TRAINS / 2 {
            self.busy_at = Some(now);
        }
    }

    /// Share of the capacity that is ours beside others, coming from `share` a round ago.
    fn allowed(&self, share: f64) -> f64 {
        let free = self.free.get().unwrap_or(0.0);
        (free - MARGIN).clamp(FLOOR, (share + STEP).max(FLOOR))
    }
}

impl Skyhaul {
    /// A train found this rate free.
    pub(super) fn hear_what_is_free(&mut self, rate: f64, now: Time) {
        if let Some(capacity) = self.trains.capacity() {
            self.scavenge.hear(now, rate / capacity);
        }
    }

    /// A round has ended. Whether the window was set because others are on the link, or no longer are.
    pub(super) fn gives_way(&mut self, finding: &Finding) -> bool {
        let capacity = self.trains.capacity().filter(|_| self.policy == Policy::Scavenge && !self.is_noisy());
        let Some(capacity) = capacity else { return false };
        let round_trip = self.round_trip();
        let quiet = QUIET.as_secs_f64() + round_trip;
        let seen = [self.trains.shared_at(), self.scavenge.busy_at];
        let others = seen.iter().flatten().any(|at| between(*at, finding.now) < quiet);
        if others {
            let whole = (capacity * round_trip).max(1e-9);
            self.window.set(self.scavenge.allowed(self.window.segments() / whole) * whole);
            self.scavenge.gives_way = true;
            self.phase = Phase::Cruise;
        } else if std::mem::take(&mut self.scavenge.gives_way) {
            self.window.set(self.window.segments().max(BACK * capacity * round_trip));
            self.trains.forget_others();
            self.await_train(finding.now);
        } else {
            return false;
        }
        self.dips.cancel();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_others_a_part_of_what_they_leave_stays_free_and_the_least_of_seconds_counts() {
        let mut scavenge = Scavenge::new();
        let mut hear = |ms, free| {
            scavenge.hear(Time::from_millis(ms), free);
            (scavenge.allowed(1.0), scavenge.allowed(0.1))
        };
        let near = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).abs() < 1e-9 && (b - d).abs() < 1e-9;
        assert!(near(hear(0, 0.6), (0.5, 0.14)));
        assert!(near(hear(1_000, 0.02), (0.05, 0.05)));
        assert!(near(hear(2_000, 0.9), (0.05, 0.05)));
        assert!(near(hear(5_000, 0.9), (0.8, 0.14)));
    }

    #[test]
    fn one_train_that_finds_less_is_nobody_and_three_of_five_are_others_with_little() {
        let mut scavenge = Scavenge::new();
        let free = [1.0, 0.2, 1.0, 1.0, 0.9, 0.86, 0.88];
        let busy = free.map(|free| {
            scavenge.hear(Time::from_secs(1), free);
            scavenge.busy_at.is_some()
        });
        assert_eq!(busy, [false, false, false, false, false, true, true]);
    }
}
