//! BoostTCP, paper 000: growth by learning from the smoothed delivery rate, and losses told apart by
//! their cause. Fact sheet: section 3.1 (steps), 3.3 (growth), 3.4 (modules) and appendix A1. The folder's files take
//! the names of the paper's modules: learning state machine, traffic monitor, packet loss monitor; `round_trip` is
//! ours.
//!
//! ```text
//! rate          B_C = F_S / (T - T_S),  B = (1 - α) B' + α B_C          per ACK
//! growth mode   exponential, linear or termination, from B against B'   per round trip (`learning`)
//! exponential   W += (ε - 1) acked       while RTT <= η RTTmin          factor ε per round trip
//! linear        W += ζ acked / W
//! termination   W
//! loss          W = β W, once per episode; no growth until a packet sent later is acknowledged,
//!               then exponential again
//! pacing        W / SRTT
//! ```
//!
//! | symbol | here             | unit     | default                                                 |
//! |--------|------------------|----------|---------------------------------------------------------|
//! | W      | `window`         | segments | [`Setup::initial_window`], 10                           |
//! | B, B'  | `learning`       | bit/s    | first sample                                            |
//! | α      | [`ALPHA`]        | 1        | 1/8 (not given)                                         |
//! | β      | [`Mode`]         | kept     | 0.9 maximum, 0.8 normal, 0.6 conservative               |
//! | γ      | [`GAMMA`]        | share of B' | 2 % ("from the bandwidth of the engine")             |
//! | δ      | [`DELTA`]        | share of B' | 5 % ("from the bandwidth setting")                   |
//! | ε      | [`EPSILON`]      | 1        | 3                                                       |
//! | ζ      | [`ZETA`]         | segments | 1                                                       |
//! | η      | [`ETA`]          | 1        | 1.25 (in 1 to 2)                                        |
//! | q      | `queue_share`    | share of RTTmin | 1/20 at 200 Mbit/s, as 1 / sqrt(B); 1 % to 25 %  |
//!
//! Two variants, [`Variant`]. `Literal` (`boost-literal`) is the above and nothing else. It cuts on every
//! loss, so its rate falls as 1 / p, and its flows do not converge: neither is hidden. `Discriminating`
//! (`boost`) adds what section 3.4 asks of the packet loss monitor and what the published fairness needs:
//!
//! ```text
//! start           ends where the least of the last samples is above RTTmin + max(1/32 RTTmin, 1 ms) + jitter;
//!                 pace W ε ln ε / (ε - 1) / RTT; then W = B RTTmin (1 + q) while the queue drains
//! random loss     nothing happens                                       (`monitor`)
//! congestion      W = W max(β, 1 / (1 + 2 queue)), at most 0.9 W, once per episode; queue as a share of RTTmin
//! balance         once the path was full:  W <- W / 2 + (W RTTmin / RTT + v (q B RTTmin + ζ)) / 2
//!                 RTT is the round's least; v doubles per round trip after three without a queue,
//!                 v q <= 1/4; after sixteen, exponential growth again
//! compete         where the queue stays long and RTTmin has turned out much shorter than believed, others
//!                 come and go:  W += min(W / 80, sqrt(W) / 2) per round trip, β = 0.9 once in eight of them,
//!                 until a round shows hardly a queue
//! probe           W' = 0.7 B RTTmin for one round trip when RTTmin was not seen for 10 s
//! ```
//!
//! Flows of one path see one queueing delay D = q(B) RTTmin. As q falls with B there is but one B for
//! that delay, so shares become equal; q ∝ 1 / B would do it faster and fail on slow or fast links.
//! Joining flows measure an RTTmin with others' queue in it; the probe of any large flow empties the
//! queue for all, and the next probes fall together.
//!
//! After losses to a short queue the queue wanted is at most half of that, and grows back by a quarter per
//! round trip without one. Ten segments are given up only on a timeout.
//!
//! A flow on a path that another has learnt ([`Boost::knowing`]) starts with 0.95 of what that path held.
//!
//! Readings and differences, both variants (the fact sheet has the reasons):
//! * B and B' are compared once per packet-timed round trip; per ACK they differ by noise.
//! * F_S / (T - T_S) is the host's delivery-rate sample. The paper starts from B = 0; here from the first
//!   sample, or B would go on growing for twenty ACKs on a full path.
//! * Text and appendix select growth with opposite tests against δ, and the text omits cases: see `learning`.
//! * The exponent j counts round trips of a phase; after recovery growth goes on from the window by the
//!   factor ε. The printed restart with +1, +3, +9 contradicts the paper's own results.
//! * Exponential growth stops at RTT > η RTTmin at once; in the discriminating variant sooner, since growth by ε
//!   passes the path's rate by 0.8 of what the path holds before the first sign of it comes back.
//! * An old round trip tells nothing: in a recovery, where hosts take no samples, the age of what is acknowledged
//!   counts.
//! * "A large initial sending window" has no number: the set-up's. A timeout is not described: two
//!   segments, then exponential growth. Marks (ECN) are congestion.
//! * Discriminating only: the paper says that a rate never reduces the window. `balance` and the end of
//!   the first growth, at B RTTmin (1 + q), do.

mod learning;
mod monitor;
mod round_trip;
mod traffic;

pub use learning::{Growth, ALPHA, DELTA, GAMMA};
pub use traffic::{Moments, PathRecord, TrafficMonitor};

use crate::controller::{Controller, PathHistory, Setup, Snapshot};
use crate::event::{Ack, Judgement, Loss, Sent, Signal};
use crate::parts::{scaled, WindowedMax};
use crate::units::{Bytes, Duration, Rate, Time};
use crate::window::{segments, Window};
use learning::Learning;
use monitor::LossMonitor;
use round_trip::RoundTrip;

/// ε: growth per round trip in the exponential mode; paper 000 has more than 2, usually 3.
pub const EPSILON: f64 = 3.0;
/// ζ: segments per round trip in the linear mode.
pub const ZETA: f64 = 1.0;
/// η: a round trip of so many least ones shows a queue; paper 000 has 1 to 2.
pub const ETA: f64 = 1.25;
/// Queue wanted at [`QUEUE_RATE`], as a share of the least round trip: our choice.
const QUEUE_SHARE: f64 = 0.05;
/// Rate at which [`QUEUE_SHARE`] holds.
const QUEUE_RATE: Rate = Rate::mbit(200);
/// Bounds of the queue wanted: above jitter's smallest, below η.
const QUEUE_BOUNDS: (f64, f64) = (0.01, 0.25);
/// Rounds over which the greatest delivery rate is kept.
const BEST_ROUNDS: u64 = 10;
/// Rounds without growth of B that end the first exponential phase, as in the paper's "three times".
const FULL_ROUNDS: u32 = 3;
/// Rounds with hardly a queue before growth accelerates.
const EMPTY_ROUNDS: u32 = 3;
/// Rounds with hardly a queue after which growth is exponential again, as at the start.
const EMPTY_ROUNDS_TO_FILL: u32 = 16;
/// Greatest step of `balance` and most that is sent above what arrives, as shares: BBR's probe.
const STEP_MOST: f64 = 0.25;
/// Longest bundle of ACKs that is allowed for, as in BBR.
const BUNDLE_MOST: Duration = Duration::from_millis(100);
/// Segments that are never given up but for a timeout: what RFC 6928 lets anyone start with. With fewer,
/// delayed ACKs look like a queue.
const LEAST: f64 = 10.0;
/// Beside others one cut in so many round trips, the length of BBR's probing cycle: who cuts at each of its
/// overflows is left nothing by it.
const COMPETING_ROUNDS: u64 = 8;
/// Growth per round trip beside others, as a share of the window, the root of the window at most: ours. A cut
/// to 0.9 is made good in eight round trips.
const COMPETING_STEP: f64 = 0.0125;
/// First window on a known path, in bandwidth-delay products, and first pace, in shares of the known rate: below
/// one, since others may have come.
const KNOWN_WINDOW: f64 = 0.95;
const KNOWN_PACE: f64 = 0.95;
/// Pace of the exponential growth, in windows per round trip: ε ln ε / (ε - 1). A flight that grows by the
/// factor ε per round trip holds so much less than its newest packets' rate times the round trip.
const FILLING_PACE: f64 = 1.648;
/// Pace otherwise: a little above one, so that the window decides and hardly a burst stands in a short queue.
const PACE: f64 = 1.01;
/// Round trip above the least, as a share, that shows a full path, and its bounds. Growth by ε passes
/// the limit by 0.8 of the path's content before the first sign comes back, so signs must be small.
const FULL_STRETCH: f64 = 1.0 / 32.0;
const FULL_BOUNDS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));
/// Window during a probe, in bandwidth-delay products.
const PROBE_WINDOW: f64 = 0.7;

/// How much of the window a loss leaves: paper 000, appendix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// 0.9
    Maximum,
    /// 0.8
    Normal,
    /// 0.6
    Conservative,
}

impl Mode {
    /// β, the share of the window kept.
    pub const fn kept(self) -> f64 {
        match self {
            Mode::Maximum => 0.9,
            Mode::Normal => 0.8,
            Mode::Conservative => 0.6,
        }
    }
}

/// Which reading of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The printed steps: every loss cuts.
    Literal,
    /// Losses are told apart and the queue is held; see the module's head.
    Discriminating,
}

/// BoostTCP.
#[derive(Clone, Debug)]
pub struct Boost {
    mss: Bytes,
    variant: Variant,
    mode: Mode,
    window: Window,
    learning: Learning,
    monitor: LossMonitor,
    traffic: TrafficMonitor,
    /// Rate and round trip that another flow has learnt here, until the first round trip has confirmed them.
    known: Option<(Rate, Duration)>,
    round_trip: RoundTrip,
    best: WindowedMax<Rate>,
    /// Greatest amount that one ACK covered.
    bundles: WindowedMax<Bytes>,
    rounds: u64,
    /// The path was not full yet, since the start or the last timeout.
    filling: bool,
    /// Others hold the queue.
    competing: bool,
    /// The last round in which the queue overflowed.
    overflow_round: u64,
    /// The queue of the first growth drains.
    draining: bool,
    /// Rounds in a row in which B did not grow, or in which no queue stood.
    flat: u32,
    empty: u32,
    velocity: f64,
    smoothed: Option<Duration>,
    cut_at: Option<Time>,
}

impl Boost {
    /// A controller at its initial window, in the normal mode.
    pub fn new(setup: &Setup, variant: Variant) -> Self {
        Boost {
            mss: setup.mss,
            variant,
            mode: Mode::Normal,
            window: Window::from_bytes(setup.initial_window, setup.mss),
            learning: Learning::new(),
            monitor: LossMonitor::new(setup.mss),
            traffic: TrafficMonitor::new(),
            known: None,
            round_trip: RoundTrip::new(),
            best: WindowedMax::new(BEST_ROUNDS),
            bundles: WindowedMax::new(BEST_ROUNDS),
            rounds: 0,
            filling: true,
            draining: false,
            competing: false,
            overflow_round: 0,
            flat: 0,
            empty: 0,
            velocity: 1.0,
            smoothed: None,
            cut_at: None,
        }
    }

    /// The same in another mode.
    pub fn in_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The same on a path that another flow has learnt: it starts with what the path holds, at the path's rate,
    /// instead of finding both. A first round trip that differs by a quarter forgets all that.
    pub fn knowing(self, path: &PathRecord) -> Self {
        self.knowing_rate(path.bandwidth, path.least)
    }

    /// The same with what a connection before has left of the path.
    pub fn remembering(self, history: &PathHistory) -> Self {
        self.knowing_rate(history.rate.scale(history.start_share(1.0)), history.min_rtt)
    }

    fn knowing_rate(mut self, rate: Rate, least: Duration) -> Self {
        if self.variant == Variant::Discriminating {
            let pipe = segments(rate.bdp(least), self.mss);
            self.window.set(self.window.segments().max(KNOWN_WINDOW * pipe));
            self.known = Some((rate, least));
            self.filling = false;
        }
        self
    }

    /// The first answer on a known path.
    fn confirm(&mut self, ack: &Ack) {
        let Some((rate, least)) = self.known.take() else { return };
        let (least, found) = (least.as_secs_f64(), ack.rtt.latest.as_secs_f64());
        if found > ETA * least || found * ETA < least {
            self.window.set(self.window.segments().min(LEAST));
            self.filling = true;
        } else {
            self.learning.on_sample(rate);
            self.best.update(self.rounds, rate);
        }
    }

    /// B RTTmin in segments; absent before the first sample.
    fn pipe(&self) -> Option<f64> {
        let rate = self.best.get()?;
        Some(segments(rate.bdp(self.round_trip.least()?), self.mss))
    }

    /// Segments that are acknowledged at once, twice: they are in flight although no queue holds them.
    fn bundle(&self) -> f64 {
        let most = self.best.get().map_or(Bytes::ZERO, |rate| rate.bytes_in(BUNDLE_MOST));
        let bundle = self.bundles.get().map_or(Bytes::ZERO, |bytes| (bytes * 2).min(most));
        segments(bundle, self.mss).max(ZETA)
    }

    /// q: the queue to hold, as a share of the least round trip.
    fn queue_share(&self) -> f64 {
        let rate = self.learning.rate().max(1.0);
        let share = QUEUE_SHARE * libm::sqrt(QUEUE_RATE.as_f64() / rate);
        share.min(self.round_trip.room()).clamp(QUEUE_BOUNDS.0, QUEUE_BOUNDS.1)
    }

    fn literal_ack(&mut self, ack: &Ack) {
        if self.cut_at.is_some_and(|cut| ack.sent_at <= cut) {
            return;
        }
        if self.cut_at.take().is_some() {
            self.learning.restart();
        }
        if ack.app_limited {
            return;
        }
        let acked = segments(ack.acked, self.mss);
        let queue = ack.rtt.latest.as_secs_f64() > ETA * ack.rtt.min.as_secs_f64();
        match self.learning.growth() {
            Growth::Exponential if !queue => self.window.grow((EPSILON - 1.0) * acked),
            Growth::Linear => self.window.grow(ZETA * acked / self.window.segments()),
            Growth::Exponential | Growth::Termination => {}
        }
    }

    fn discriminating_ack(&mut self, ack: &Ack) {
        let standing = self.round_trip.on_ack(ack);
        if let Some(standing) = standing {
            self.monitor.on_round(standing, standing < QUEUE_BOUNDS.0);
            if self.filling && standing < QUEUE_BOUNDS.0 {
                self.round_trip.learn_spread();
            }
            self.round_trip.next_round();
        }
        let before_cut = self.cut_at.is_some_and(|cut| ack.sent_at <= cut);
        if self.filling {
            // Answers to what left before a timeout tell of the silence, not of a queue.
            if !before_cut {
                self.fill(ack);
            }
            return;
        }
        if before_cut && self.draining {
            // What is acknowledged now was sent while the path filled; it arrives at the path's rate.
            let full = self.full();
            self.window.set(self.window.segments().max(full));
        }
        self.draining &= before_cut;
        if self.competing {
            self.compete(ack, standing, before_cut);
        } else if let (Some(standing), false) =
            (standing, ack.app_limited || self.round_trip.is_settling(ack.now))
        {
            let long = self.round_trip.is_stubborn(standing, ETA);
            if long && self.round_trip.comes_and_goes(ack.now) {
                self.competing = true;
            } else if long || self.round_trip.is_unseen(ack.now) {
                self.round_trip.start_probe(ack, long);
            }
            if !before_cut {
                self.balance(standing);
            }
        }
    }

    /// Exponential growth from the start until the path is full.
    fn fill(&mut self, ack: &Ack) {
        if ack.app_limited {
            return;
        }
        if ack.round_start {
            let grows = self.learning.growth() == Growth::Exponential;
            self.flat = if grows { 0 } else { self.flat + 1 };
        }
        let least = self.round_trip.least().unwrap_or(ack.rtt.min);
        let shown = scaled(least, FULL_STRETCH).clamp(FULL_BOUNDS.0, FULL_BOUNDS.1);
        if self.round_trip.recent().saturating_sub(least) > shown + self.round_trip.spread()
            || self.flat >= FULL_ROUNDS
        {
            self.end_filling(ack.now);
        } else {
            self.window.grow((EPSILON - 1.0) * segments(ack.acked, self.mss));
        }
    }

    /// The path is full. The delivery rate of the last round trip still has its beginning in it; while the
    /// queue drains it comes to tell the path's rate, and the window follows it.
    fn end_filling(&mut self, now: Time) {
        self.filling = false;
        self.draining = true;
        self.round_trip.expect_no_less();
        self.flat = 0;
        self.cut_at = Some(now);
        let full = self.full();
        self.window.set(self.window.segments().min(full));
    }

    /// What the path and the wanted queue hold, in segments; the window before the first sample.
    fn full(&self) -> f64 {
        match self.pipe() {
            Some(pipe) => pipe * (1.0 + self.queue_share()) + self.bundle(),
            None => self.window.segments(),
        }
    }

    /// Others keep the queue long until it overflows; whoever made room would get none. The window
    /// grows and losses cut it.
    fn compete(&mut self, ack: &Ack, standing: Option<f64>, before_cut: bool) {
        self.round_trip.keep_least(ack.now);
        if standing.is_some_and(|standing| standing < self.queue_share()) {
            (self.competing, self.empty, self.velocity) = (false, 0, 1.0);
        } else if !before_cut && !ack.app_limited {
            let window = self.window.segments();
            let step = (libm::sqrt(window) / 2.0).min(COMPETING_STEP * window).max(ZETA);
            self.window.grow(step * segments(ack.acked, self.mss) / window);
        }
    }

    /// One step towards the wanted queue, `standing` being the queue's share of the least round trip.
    fn balance(&mut self, standing: f64) {
        let share = self.queue_share();
        self.empty = if standing < share / 2.0 { self.empty.saturating_add(1) } else { 0 };
        self.velocity = if self.empty > EMPTY_ROUNDS { self.velocity * 2.0 } else { 1.0 };
        if self.empty > EMPTY_ROUNDS {
            self.round_trip.more_room();
        }
        if self.empty > EMPTY_ROUNDS_TO_FILL {
            (self.filling, self.empty, self.flat) = (true, 0, 0);
        }
        let window = self.window.segments();
        let pipe = window / (1.0 + standing);
        // Never faster than a queue of the known size can take.
        let step = (self.velocity * share).min(STEP_MOST.min(self.round_trip.room()).max(share));
        let wanted = pipe * (1.0 + step) + ZETA;
        // Half of the way per round trip, because the answer is a round trip late.
        let next = (window + wanted) / 2.0;
        let next = match self.pipe() {
            // Where packets vanish without a queue (a policer), the window must not run away from what
            // arrives; and a queue that others made, or a longer path, must not starve us.
            Some(pipe) => {
                let most =
                    pipe * (1.0 + share) * (1.0 + STEP_MOST) / (1.0 - self.monitor.usual().min(STEP_MOST));
                next.min(most + self.bundle()).max((pipe / 2.0).min(window))
            }
            None => next,
        };
        self.window.set(next.max(window.min(LEAST)));
    }
}

impl Controller for Boost {
    fn name(&self) -> &'static str {
        match self.variant {
            Variant::Literal => "boost-literal",
            Variant::Discriminating => "boost",
        }
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        self.smoothed = Some(ack.rtt.smoothed);
        self.confirm(ack);
        self.monitor.on_ack(ack);
        self.traffic.on_ack(ack);
        if ack.round_start {
            self.rounds = self.rounds.saturating_add(1);
        }
        self.bundles.update(self.rounds, ack.acked);
        if let Some(rate) = ack.delivery_rate {
            if !ack.app_limited || self.best.get().is_none_or(|best| rate >= best) {
                self.best.update(self.rounds, rate);
                self.learning.on_sample(rate);
            }
        }
        if ack.round_start && !ack.app_limited {
            let calm = ack.rtt.smoothed.as_secs_f64() <= ETA * ack.rtt.min.as_secs_f64();
            self.learning.on_round(calm);
        }
        match self.variant {
            Variant::Literal => self.literal_ack(ack),
            Variant::Discriminating => self.discriminating_ack(ack),
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        let least = self.round_trip.least().unwrap_or(loss.rtt.min);
        let latest = match (self.variant, self.round_trip.latest()) {
            (Variant::Literal, _) | (_, Duration::ZERO) => loss.rtt.latest,
            (_, latest) => latest,
        };
        let queue = latest.saturating_sub(least).as_secs_f64() / least.as_secs_f64().max(1e-9);
        let cause = self.monitor.on_loss(loss, queue);
        self.traffic.on_loss(loss, cause);
        if loss.signal == Signal::Timeout {
            self.window.set(0.0);
            match self.variant {
                Variant::Literal => self.learning.restart(),
                // What comes now is another path until shown otherwise.
                Variant::Discriminating => self.learning = Learning::new(),
            }
            (self.filling, self.flat, self.cut_at) = (true, 0, Some(loss.now));
        } else if loss.new_episode {
            match (self.variant, cause) {
                (Variant::Literal, _) => self.window.scale(self.mode.kept()),
                (Variant::Discriminating, Judgement::Random) => return,
                // Sent before the last cut, or before the first growth ended, and answered then.
                (Variant::Discriminating, Judgement::Congestion)
                    if self.cut_at.is_some_and(|cut| loss.sent_at <= cut) =>
                {
                    return;
                }
                (Variant::Discriminating, Judgement::Congestion) => {
                    let since = self.rounds.saturating_sub(self.overflow_round);
                    if self.competing && since < COMPETING_ROUNDS {
                        return;
                    }
                    self.round_trip.lost_at(queue);
                    self.overflow_round = self.rounds;
                    if self.filling {
                        self.end_filling(loss.now);
                    }
                    let least = self.window.segments().min(LEAST);
                    let kept = if self.competing { Mode::Maximum } else { self.mode }.kept();
                    // Emptying a short queue twice is enough.
                    let enough = (1.0 / (1.0 + 2.0 * queue)).min(Mode::Maximum.kept());
                    let kept = kept.max(enough);
                    self.window.set((self.window.segments() * kept).max(least));
                    (self.empty, self.velocity) = (0, 1.0);
                }
            }
            self.cut_at = Some(loss.now);
        }
    }

    fn cwnd(&self) -> Bytes {
        match (self.round_trip.is_probing(), self.pipe()) {
            (true, Some(pipe)) => {
                Window::new(self.window.segments().min(PROBE_WINDOW * pipe)).bytes(self.mss)
            }
            _ => self.window.bytes(self.mss),
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let Some(smoothed) = self.smoothed else {
            return self.known.map(|(rate, _)| rate.scale(KNOWN_PACE).max(Rate::bit(1)));
        };
        let rate = match (self.variant, self.round_trip.recent()) {
            (Variant::Literal, _) | (_, Duration::ZERO) => self.cwnd().per(smoothed),
            (_, recent) => {
                let gain = if self.filling { FILLING_PACE } else { PACE };
                self.cwnd().per(recent.min(smoothed)).scale(gain)
            }
        };
        Some(rate.max(Rate::bit(1)))
    }

    fn judgement(&self) -> Option<Judgement> {
        self.monitor.last()
    }

    fn path(&self) -> Option<PathRecord> {
        self.traffic.record()
    }

    fn history(&self) -> Option<PathHistory> {
        // While the path is not full, the rate is that of the start.
        self.traffic.record().filter(|_| !self.filling && self.known.is_none()).map(|record| record.history())
    }

    fn snapshot(&self) -> Snapshot {
        let phase = match (self.variant, self.learning.growth()) {
            (Variant::Literal, _) if self.cut_at.is_some() => "recovery",
            (Variant::Literal, growth) => growth.name(),
            _ if self.round_trip.is_probing() => "probe round trip",
            _ if self.filling => Growth::Exponential.name(),
            _ if self.competing => "compete",
            _ => "balance",
        };
        Snapshot { cwnd: self.cwnd(), ssthresh: None, pacing_rate: self.pacing_rate(), phase }
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests;
