//! Cruise: once per round, the window that keeps a small queue.

use super::path::between;
use super::round::Finding;
use crate::units::Time;

/// Queue target in seconds × √(packets per second). The inverse root makes flows at unlike rates want
/// unlike queues, so that equal queues mean equal rates (as the flow scaling of Swift does).
const TARGET: f64 = 0.6;
/// The target is at least this …
const TARGET_LEAST: f64 = 0.0005;
/// … and at most the larger of 1.5 % of the round trip and 5 ms: twice that is the goal for the 95th
/// percentile.
const TARGET_MOST: (f64, f64) = (0.015, 0.005);
/// Part of the way to the wanted window per round: a round shows the window before the last.
const GAIN: f64 = 0.5;
/// Available rate and what goes through agree if they part by less than this.
const AGREE: f64 = 0.05;
/// Growth towards that window per round at most.
const STEP_MOST: f64 = 0.10;
/// Growth without a queue: begins here, doubles each round …
const GROWTH_FIRST: f64 = 0.02;
/// … up to half, or doubling while no queue was ever seen.
const GROWTH_MOST: f64 = 0.5;
const GROWTH_UNSEEN: f64 = 1.0;
/// Window validation: not above so many times what arrives, after the first rounds. Without it the window
/// ran away beside a competitor that filled the queue.
const VALIDATED: f64 = 2.0;
const FREE_ROUNDS: u32 = 8;
/// Rounds at the bound that trains set before it is tested.
const BOUND_ROUNDS: u32 = 3;
/// Growth per round when others share the link, in windows that fill it: the same addition for all of them.
const SHARED_STEP: f64 = 0.04;
/// After congestion no growth for so many round trips, and none beyond what went through for this long.
const HOLD: f64 = 3.0;
const CAP: f64 = 5.0;

/// The queue we want at a rate of packets per second.
pub(super) fn target(rate: f64, round_trip: f64) -> f64 {
    let most = TARGET_MOST.1.max(TARGET_MOST.0 * round_trip);
    (TARGET / libm::sqrt(rate.max(1e-9))).clamp(TARGET_LEAST, most)
}

/// What a decision rests on besides the round.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Window in packets.
    pub window: f64,
    pub round_trip: f64,
    pub target: f64,
    /// What goes through in packets per second, random loss put back.
    pub rate: f64,
    /// Available rate by trains that can be trusted.
    pub available: Option<f64>,
    /// Capacity, when others share it.
    pub shared: Option<f64>,
}

/// What the rule remembers.
#[derive(Clone, Debug)]
pub(super) struct Cruise {
    growth: f64,
    seen_queue: bool,
    rounds: u32,
    at_bound: u32,
    hold_until: Option<Time>,
    cap: Option<(Time, f64)>,
    /// The last round's growth has not been seen yet.
    unseen: bool,
}

impl Cruise {
    pub fn new() -> Self {
        Cruise {
            growth: GROWTH_FIRST,
            seen_queue: false,
            rounds: 0,
            at_bound: 0,
            hold_until: None,
            cap: None,
            unseen: false,
        }
    }

    /// Whether growth has to wait.
    pub fn holds(&self, now: Time) -> bool {
        self.hold_until.is_some_and(|until| now < until)
    }

    /// No growth for so many seconds.
    pub fn hold(&mut self, now: Time, seconds: f64) {
        self.hold_until = Some(now + crate::parts::scaled(crate::units::Duration::from_secs(1), seconds));
    }

    /// The window after a congested round.
    pub fn after_congestion(&mut self, finding: &Finding, view: &View) -> f64 {
        self.hold(finding.now, HOLD * view.round_trip);
        self.cap = Some((finding.now, view.rate));
        self.growth = GROWTH_FIRST;
        self.seen_queue = true;
        let queue = finding.before_loss.map_or(view.target, |queue| view.target.min(0.7 * queue));
        view.window.min(view.rate * (view.round_trip + queue))
    }

    /// The window after a round without congestion.
    pub fn after_round(&mut self, now: Time, least_queue: f64, view: &View) -> f64 {
        self.rounds = self.rounds.saturating_add(1);
        let View { window, round_trip, target, rate, .. } = *view;
        let reach = round_trip + target;
        if least_queue >= 0.5 * target {
            self.seen_queue = true;
            self.growth = GROWTH_FIRST.max(target / round_trip);
            self.at_bound = 0;
            self.unseen = false;
            // What the trains measured is free of the scatter of random losses, where both agree.
            let rate = view.available.filter(|free| (free / rate - 1.0).abs() < AGREE).unwrap_or(rate);
            return window + (GAIN * (rate * reach - window)).min(STEP_MOST * window);
        }
        if self.holds(now) {
            return window;
        }
        let mut wanted = match view.shared {
            Some(capacity) => window + SHARED_STEP * capacity * round_trip,
            None => {
                let most = if self.seen_queue { GROWTH_MOST } else { GROWTH_UNSEEN };
                let grown = window * (1.0 + self.growth.min(most));
                match view.available {
                    Some(available) => self.towards(available * reach, grown, view),
                    // A window twice as large would be two steps ahead of what has been seen.
                    None if self.unseen && self.growth > 0.1 && self.seen_queue => {
                        self.unseen = false;
                        return window;
                    }
                    None => grown,
                }
            }
        };
        self.growth = (2.0 * self.growth.max(target / round_trip)).min(GROWTH_UNSEEN);
        if self.rounds > FREE_ROUNDS {
            wanted = wanted.min(VALIDATED * rate * reach);
        }
        if let Some((_, rate)) = self.cap.filter(|(at, _)| between(*at, now) < CAP) {
            wanted = wanted.min(rate * reach);
        }
        self.unseen = wanted > 1.05 * window;
        wanted.max(window)
    }

    /// Growth up to what trains say is free; where no queue follows, the bound is tested by a small step.
    fn towards(&mut self, bound: f64, grown: f64, view: &View) -> f64 {
        if grown < bound {
            self.at_bound = 0;
            return grown;
        }
        self.at_bound += 1;
        if self.at_bound > BOUND_ROUNDS {
            self.at_bound = 0;
            return view.window.max(bound) * (1.0 + view.target / view.round_trip);
        }
        bound
    }
}
