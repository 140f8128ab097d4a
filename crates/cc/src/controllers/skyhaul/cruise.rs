//! Cruise: once per round, the window that keeps a small queue.

use super::compete::STARVED;
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
/// A growth by more than this must be followed by the rate by this share of it.
const FOLLOW: (f64, f64) = (1.03, 0.4);
/// Growth of such a start, and what must come of it.
const FILLING: (f64, f64) = (2.0, 1.2);
/// Rounds at the bound that trains set before it is tested.
const BOUND_ROUNDS: u32 = 3;
/// Growth per round when others share the link, in windows that fill it: the same addition for all of them …
const SHARED_STEP: f64 = 0.01;
/// … and as a part of the queue we want: several grow, and see it two rounds later.
const SHARED_GAIN: f64 = 0.25;
/// … and this part of what trains find free beyond what we use, which is all of it for several of us together.
const SHARED_LEFT: f64 = 0.2;
/// Who is starved adds more, and so does everyone beside senders that fill the queue.
const MORE_STEP: f64 = 0.04;
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
    /// How unsure `rate` and `available` are, as shares of them.
    pub unsure: (f64, f64),
    /// Capacity by bursts that can be trusted.
    pub capacity: Option<f64>,
    /// Capacity, when others share it.
    pub shared: Option<f64>,
    /// What trains found available by all signs, when others share the link …
    pub free: Option<f64>,
    /// … and whether that is so much that nobody else can be there for whom to make room.
    pub alone: bool,
    /// Packets were lost to a full queue on a shared link: who does that is not of our kind.
    pub fillers: bool,
}

impl View {
    /// What goes through by all evidence: random losses make the round's rate scatter, noisy times what the
    /// trains say; each counts by what the other lacks.
    fn settled(&self) -> f64 {
        let Some(available) = self.available.filter(|free| (free / self.rate - 1.0).abs() < AGREE) else {
            return self.rate;
        };
        let (rate, trains) = (self.unsure.0 * self.unsure.0, self.unsure.1 * self.unsure.1);
        (self.rate * trains + available * rate) / (rate + trains).max(1e-18)
    }

    /// Packets to add because trains find more free than we use, on a shared link.
    pub fn room(&self) -> f64 {
        SHARED_LEFT * self.free.map_or(0.0, |free| (free - self.rate).max(0.0)) * self.round_trip
    }
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
    /// The last growth without trains.
    step: Option<Step>,
    /// The link was found to be full at some time.
    full: bool,
    /// Rates of the last two rounds.
    rates: [f64; 2],
}

/// A growth of the window whose effect is awaited.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Rate before it.
    rate: f64,
    by: f64,
    /// The round that still shows the window before is over.
    seen: bool,
}

/// What became of it.
enum StepSays {
    Wait,
    Useless,
    Go,
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
            step: None,
            full: false,
            rates: [0.0; 2],
        }
    }

    /// Whether the link was full once.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Trains have found what the link carries.
    pub fn filled(&mut self) {
        self.full = true;
    }

    /// The window of a start that noise leaves without trains and without a queue to look at: twice
    /// what goes through, until that no longer brings more two rounds later or the window is what was given for
    /// the link.
    pub fn fill(&mut self, view: &View, given: Option<f64>) -> f64 {
        let before = self.rates[0];
        self.rates = [self.rates[1], view.rate];
        if before > 0.0 && view.rate < FILLING.1 * before {
            self.full = true;
            return view.rate * (view.round_trip + view.target);
        }
        let wanted = (FILLING.0 * view.rate * view.round_trip).max(view.window);
        let Some(given) = given.filter(|given| wanted >= *given) else { return wanted };
        self.full = true;
        given.max(view.window)
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
        self.full = true;
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
            self.step = None;
            return window + (GAIN * (view.settled() * reach - window)).min(STEP_MOST * window);
        }
        if self.holds(now) {
            return window;
        }
        let mut wanted = match view.shared {
            Some(capacity) => {
                let step = if view.fillers || rate < STARVED * capacity {
                    MORE_STEP * round_trip
                } else {
                    (SHARED_STEP * round_trip).min(SHARED_GAIN * target)
                };
                window + step * capacity + view.room()
            }
            None => {
                let most = if self.seen_queue { GROWTH_MOST } else { GROWTH_UNSEEN };
                let grown = window * (1.0 + self.growth.min(most));
                match view.available.or(view.capacity) {
                    Some(bound) => self.towards(bound * reach, grown, view),
                    None if self.seen_queue || self.full => match self.judge_step(view) {
                        StepSays::Wait => return window,
                        StepSays::Useless => {
                            self.growth = GROWTH_FIRST;
                            return window.min(rate * reach);
                        }
                        StepSays::Go => {
                            self.step = Some(Step { rate, by: grown / window, seen: false });
                            grown
                        }
                    },
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
        wanted.max(window)
    }

    /// Without trains the rate has to follow the window, or a noise that hides the queue lets it run away.
    fn judge_step(&mut self, view: &View) -> StepSays {
        match &mut self.step {
            Some(step) if !step.seen => {
                step.seen = true;
                StepSays::Wait
            }
            Some(step) if step.by > FOLLOW.0 && view.rate / step.rate - 1.0 < FOLLOW.1 * (step.by - 1.0) => {
                self.step = None;
                StepSays::Useless
            }
            _ => StepSays::Go,
        }
    }

    /// Growth up to what trains say is free; where no queue follows, the bound is tested by a small step.
    fn towards(&mut self, bound: f64, grown: f64, view: &View) -> f64 {
        if grown < bound {
            self.at_bound = 0;
            return grown;
        }
        self.at_bound += 1;
        self.growth = GROWTH_FIRST;
        if self.at_bound > BOUND_ROUNDS {
            self.at_bound = 0;
            return view.window.max(bound) * (1.0 + view.target / view.round_trip);
        }
        bound
    }
}
