//! Our own controller: near the physical limit from the second round trip on, with a queue of milliseconds.
//!
//! Its *rich* form hears when each packet arrived ([`crate::Report`]) and asks for trains of packets; the
//! *plain* form, for hosts without reports, has round trips and delivery rates only and lower goals.
//! `docs/skyhaul.md` has the figures and what is open. Window w in packets, D least round trip without
//! queue, q queue by one-way delay, C capacity and A available rate by trains, B what goes through, d the
//! queue target:
//!
//! ```text
//! start     first flight = a burst; C from its spacing; w = f C D, f = 0.8 if both halves agree, else 0.5;
//!           one train paced at C validates: w = 0.99 A D
//! cruise    per round: least q >= d/2: w += 0.5 (B (D + d) - w); else growth, at most to A (D + d)
//! pace      w / (D + least q); window w (1 + feedback delay / D)
//! dip       a round at w (1 - δ) every 4 s or 10 D tells a queue from a longer path, and our own losses from noise
//! loss      congestion = more than the noise explains and at the top of the queue; else noise
//! emergency q > max(4 d, 0.08 D, 5 ms) for D/8: w = b (D + d/2), b = what went through meanwhile
//! change    two bursts agree on a new C: w scales with it, then a paced train validates
//! ```
//!
//! The parts have files of their names. All constants were measured in a simulator; each says why.

mod compete;
mod cruise;
mod dip;
mod emergency;
mod held;
mod history;
mod idle;
mod judge;
mod law;
mod noise;
mod path;
mod plain;
mod round;
mod scavenge;
mod settle;
mod short;
mod start;
mod step;
mod trains;

use crate::controller::{Controller, Estimates, PathHistory, Setup, Snapshot};
use crate::event::{Ack, Loss, Report, Sent, Signal, Train};
use crate::units::{Bytes, Duration, Rate, Time};
use crate::window::{segments, Window};
use compete::Compete;
use cruise::{target, Cruise, View};
use dip::{Dips, Verdict};
use emergency::Emergency;
use held::Held;
use history::Through;
use idle::Idle;
use judge::{Judge, Run};
use noise::Noise;
use path::{between, Path};
use plain::Plain;
use round::{Finding, Round};
use scavenge::Scavenge;
use settle::Settle;
use short::Short;
use start::Given;
use step::Steps;
use trains::{Sample, Trains};

pub use crate::controller::Policy;
pub use start::Start;

/// The window counts as used if so much of it was in flight.
const USED: f64 = 0.9;
/// A flight leaves within so many seconds.
const FLIGHT: f64 = 0.005;
/// An available rate is taken at this share: the rest is found by the queue.
const VALIDATED: f64 = 0.99;
/// A jump is kept as it is if less than this share of the capacity is available.
const VALID: f64 = 0.6;
/// Rounds after which an unanswered validation is given up.
const VALIDATION_ROUNDS: u32 = 4;
/// Pace above w/(D+q), so that rounding never starves the link; the window bounds it.
const PACE_GAIN: f64 = 1.005;
/// A changed capacity is taken at this share until a train validates it.
const SCALED: f64 = 0.9;
/// The link counts as shared for so long after trains said so: for jumps, and for growth.
const SHARED_JUMP: f64 = 5.0;
const SHARED_GROWTH: f64 = 10.0;
/// An ECN mark leaves this much of the window.
const MARKED: f64 = 0.85;
/// The least queue of an emergency in round trips while flows become equal: they make a queue on purpose.
const SETTLING_LIMIT: f64 = 0.25;
/// A queue is denied by trains that find so many times more free than we use, in so many rounds.
const FREE: f64 = 1.25;
const ODD_ROUNDS: u32 = 2;
/// Steps of the delay below this are not looked at.
const STEP_LEAST: f64 = 0.001;
/// Packets after which a new round trip is known: some reports' worth.
const KEEP_PACKETS: u32 = 16;
/// The rate followed a growth of at least this much by this share of it: what stood there was no queue.
const FOLLOWED: (f64, f64) = (1.04, 0.6);
/// Losses in bursts scatter so many times more than single ones.
const BURSTY: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The first flight is under way.
    First,
    /// The window was set by a burst, at this time; a paced train has to confirm it.
    Validate {
        since: Option<Time>,
        rounds: u32,
    },
    Cruise,
}

/// The controller; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Skyhaul {
    mss: Bytes,
    policy: Policy,
    window: Window,
    /// Rates before anything is known, where something is given.
    given: Option<Given>,
    given_rtt: f64,
    /// A train paced at it has left.
    given_tried: bool,
    phase: Phase,
    rich: bool,
    started: Option<Time>,
    /// When the first flight began, and how many packets left with it.
    flight: (Time, f64),
    now: Time,
    held: Held,
    path: Path,
    round: Round,
    last: Option<Finding>,
    trains: Trains,
    available: Option<(Time, f64)>,
    cruise: Cruise,
    judge: Judge,
    emergency: Emergency,
    fell_at: Option<Time>,
    dips: Dips,
    steps: Steps,
    noise: Noise,
    compete: Compete,
    scavenge: Scavenge,
    settle: Settle,
    short: Short,
    plain: Plain,
    silent: bool,
    app_limited: bool,
    /// Packets in flight …
    in_flight: f64,
    /// … and the most since the round before began.
    most_in_flight: f64,
    /// Window and rate at the ends of the last two rounds.
    before: [(f64, f64); 2],
    /// A pace to keep, and packets until the new round trip is known.
    keep: Option<(f64, u32)>,
    /// Rounds in a row with a queue that trains deny.
    odd_rounds: u32,
    /// When the first of them ended.
    odd_since: Time,
    through: Through,
    idle: Idle,
}

impl Skyhaul {
    /// A controller for a path of which `start` says what is known.
    pub fn new(setup: &Setup, start: Start, policy: Policy) -> Self {
        let mss = Bytes(setup.mss.0.max(1));
        let (given, given_rtt) = start.given(setup, mss);
        let given = given.filter(|given| given.plain > 0.0);
        let mut plain = Plain::new(setup);
        if let Some(given) = given {
            plain.know(given.plain, given_rtt.as_secs_f64());
        }
        Skyhaul {
            mss: setup.mss,
            policy,
            window: Window::from_bytes(setup.initial_window, setup.mss),
            given,
            given_rtt: given_rtt.as_secs_f64(),
            given_tried: false,
            phase: Phase::First,
            rich: false,
            started: None,
            flight: (Time::ZERO, 0.0),
            now: Time::ZERO,
            held: Held::new(setup),
            path: Path::new(),
            round: Round::default(),
            last: None,
            trains: Trains::new(setup.mss),
            available: None,
            cruise: Cruise::new(),
            judge: start.judge(),
            emergency: Emergency::default(),
            fell_at: None,
            dips: Dips::default(),
            steps: Steps::default(),
            noise: Noise::new(),
            compete: Compete::default(),
            scavenge: Scavenge::new(),
            settle: Settle::default(),
            short: Short::default(),
            plain,
            silent: false,
            app_limited: false,
            in_flight: 0.0,
            most_in_flight: 0.0,
            before: [(0.0, 0.0); 2],
            keep: None,
            odd_rounds: 0,
            odd_since: Time::ZERO,
            through: Through::default(),
            idle: Idle::default(),
        }
    }

    /// D, or what was given for it.
    fn round_trip(&self) -> f64 {
        self.path.round_trip().unwrap_or(self.given_rtt).max(1e-6)
    }

    fn is_measured(&self) -> bool {
        self.path.round_trip().is_some()
    }

    /// The window, a dip counted, and what we hold against others at least.
    fn effective(&self) -> f64 {
        let queue = self.last.map_or(0.0, |last| last.mean).max(self.path.queue());
        (self.window.segments() * self.dips.factor()).max(self.held() * (self.round_trip() + queue))
    }

    /// Queue that the pace reckons with: the lesser of the last round's least and the newest.
    fn reckoned_queue(&self) -> f64 {
        self.last.map_or(0.0, |last| last.least.min(self.path.queue()))
    }

    /// Packets per second we mean to send.
    fn pace(&self) -> f64 {
        let window = self.window.segments() * self.dips.factor();
        (window / (self.round_trip() + self.reckoned_queue())).max(self.held())
    }

    /// The queue we would want, whatever fits.
    fn wanted(&self) -> f64 {
        target(self.pace(), self.round_trip())
    }

    fn target(&self) -> f64 {
        self.short.bound(self.wanted()) + self.noise.queue()
    }

    fn is_shared(&self, now: Time, seconds: f64) -> bool {
        let recent = self.trains.shared_at().is_some_and(|at| between(at, now) < seconds);
        self.policy != Policy::Exclusive && recent
    }

    fn received(&mut self, report: &Report, received_at: Time) {
        match self.judge.hear_arrival() {
            Some(Run::Losses(packets)) => self.round.hear_loss(packets, self.path.queue()),
            Some(Run::Outage) => {
                self.dips.cancel();
                self.emergency.clear();
                self.held.hear_outage();
                self.steps.after_outage(self.path.base());
            }
            None => {}
        }
        let (round_trip, target) = (self.round_trip(), self.target());
        let (base, pace) = (self.path.base(), self.pace());
        let queue = self.path.hear(report, received_at);
        if matches!(self.phase, Phase::Validate { .. }) && self.round_trip() < round_trip {
            // The first answer was late: what was set rests on a rate.
            self.window.scale(self.round_trip() / round_trip);
        }
        self.look_for_hold_up(report, received_at);
        let fell = base.zip(self.path.base()).map_or(0.0, |(before, now)| before - now);
        if self.phase == Phase::Cruise && fell > (0.4 * target).max(STEP_LEAST) {
            self.keep = Some((pace, KEEP_PACKETS));
        }
        self.keep_pace();
        self.look_for_noise();
        self.round.hear(report, received_at, queue);
        if !self.is_measured() || self.phase == Phase::First {
            return;
        }
        if report.train.is_none() {
            let burst = self.trains.capacity().map_or(0.0, |rate| 1.5 * Trains::length(rate) / rate);
            let least = burst.max(0.4 * target).max(STEP_LEAST);
            let longer = self.steps.hear(report, received_at, self.path.jitter(), least, round_trip);
            if let Some(longer) = longer.filter(|_| !self.is_shared(report.now, SHARED_GROWTH)) {
                self.lengthen(report.now, longer);
                return;
            }
        }
        let long = if self.settle.is_under_way() { SETTLING_LIMIT } else { 0.08 };
        let limit = (4.0 * target).max(long * round_trip).max(0.005);
        if let Some(alarm) = self.emergency.hear(report.now, received_at, queue, limit, round_trip) {
            let rate = alarm.rate / (1.0 - self.judge.noise());
            if self.settle.ramp().is_none() && self.window.segments() > 1.15 * rate * (round_trip + target) {
                let fading = self.fell_at.is_some_and(|at| between(at, report.now) < 2.0 * round_trip);
                let floor = if fading { 0.25 } else { 0.6 } * self.window.segments();
                self.window.set((rate * (round_trip + 0.5 * target)).max(floor));
                self.available = None;
                self.cruise.hold(report.now, 1.5 * round_trip);
                self.emergency.answered(report.now);
                self.dips.cancel();
            }
        }
    }

    /// The path has changed its length: once the round trip is known again, the window that keeps the pace.
    fn keep_pace(&mut self) {
        let Some((pace, left)) = self.keep else { return };
        self.keep = (left > 0).then(|| (pace, left.saturating_sub(1)));
        if left == 0 {
            self.window.set(pace * self.round_trip());
        }
    }

    /// The path is proven to be longer than was thought.
    fn lengthen(&mut self, now: Time, longer: f64) {
        if self.available.is_some() {
            self.keep = Some((self.pace(), KEEP_PACKETS));
        }
        self.path.rebase(now, longer);
        self.noise.forget_level();
        self.emergency.clear();
        self.dips.cancel();
        if let Some(last) = &mut self.last {
            last.least = (last.least - longer).max(0.0);
        }
    }

    /// The host has reports, which it did not say before; the plain form is asked no more.
    fn hear_of_reports(&mut self) {
        self.rich = true;
    }

    fn hear_sample(&mut self, sample: Sample, now: Time) {
        let round_trip = self.round_trip();
        if self.is_noisy() && self.phase == Phase::Cruise {
            self.hear_long_burst(sample);
            return;
        }
        match sample {
            Sample::Burst { packets, rate, agrees, changed, .. } => {
                if !self.hear_first(packets, rate, agrees, now) {
                    if let Some(factor) = changed {
                        self.rescale(factor, rate, now);
                    }
                    self.hear_late_burst(agrees);
                }
            }
            Sample::Room(share) => self.hear_room(share, now),
            Sample::Fell => {
                self.fell_at = Some(now);
                self.available = None;
            }
            Sample::Available { rate, sent_at } => {
                self.available = Some((now, rate));
                self.hear_what_is_free(rate, now);
                self.settle.hear_available(now, rate);
                let Phase::Validate { since, .. } = self.phase else { return self.fill_late(rate, now) };
                if since.is_none_or(|since| sent_at < since) {
                    return;
                }
                if let Some(capacity) = self.trains.capacity().filter(|capacity| rate > VALID * capacity) {
                    self.window.set(VALIDATED * rate.min(capacity) * round_trip);
                    self.cruise.filled();
                }
                self.phase = Phase::Cruise;
            }
        }
    }

    /// The capacity has changed by this factor: our share of it stays the same.
    fn rescale(&mut self, factor: f64, capacity: f64, now: Time) {
        let (round_trip, target) = (self.round_trip(), self.target());
        self.available = None;
        self.dips.cancel();
        if factor < 1.0 {
            self.window.set(self.window.segments().min(capacity * (round_trip + target)));
            return;
        }
        if self.path.queue() > 2.0 * target + 0.002 || self.cruise.holds(now) || self.app_limited {
            return;
        }
        let most = SCALED * capacity * round_trip;
        let scaled = (SCALED * factor * self.window.segments()).min(most).max(self.window.segments());
        self.window.set(scaled);
        if !self.is_shared(now, SHARED_JUMP) {
            self.await_train(now);
        }
    }

    fn end_round(&mut self, finding: &Finding) {
        self.path.end_round();
        self.short.end_round(finding.now);
        let deaf = self.judge.is_deaf();
        let (round_trip, target) = (self.round_trip(), self.target());
        if let Phase::Validate { rounds, .. } = &mut self.phase {
            *rounds += 1;
            if *rounds > VALIDATION_ROUNDS {
                self.phase = Phase::Cruise;
            }
        }
        self.app_limited = finding.app_limited;
        let rate = finding.rate / (1.0 - self.judge.noise());
        let window = self.window.segments();
        let before = self.before;
        self.before = [before[1], (window, rate)];
        if deaf {
            return;
        }
        let shared = self.trains.capacity().filter(|_| self.is_shared(finding.now, SHARED_GROWTH));
        self.look_for_joins(finding, shared.is_some(), target);
        self.look_for_fillers(finding);
        let learns = self.compete.floor().is_none() && !self.short.is_known();
        let congested = self.judge.is_congested(finding, target, learns);
        if self.phase == Phase::Cruise && !finding.app_limited {
            self.through.hear(rate);
        }
        let noisy = self.is_noisy();
        let hidden = noisy && !self.noise.is_clumped() && followed(before, rate);
        if hidden && !self.is_shared(finding.now, SHARED_GROWTH) {
            self.path.learn_offset(0.9 * finding.least);
        }
        if congested && shared.is_some() {
            self.compete.hear_overflow(finding.now);
        }
        let (free, alone) = self.look_for_room(finding, shared, rate);
        let view = View {
            window: self.window.segments(),
            round_trip,
            target,
            rate,
            available: self
                .available
                .filter(|(at, _)| {
                    !noisy && self.trains.is_trusted() && between(*at, finding.now) < 1.5 * round_trip + 0.2
                })
                .map(|(_, rate)| rate),
            unsure: (
                BURSTY * libm::sqrt(self.judge.noise() / finding.packets.max(1.0)),
                self.trains.unsure(self.path.jitter()),
            ),
            capacity: self.trains.capacity().filter(|_| !noisy && self.trains.is_trusted()),
            shared,
            free,
            alone,
            fillers: self.compete.are_fillers(finding.now),
        };
        if self.gives_way(finding) {
            return;
        }
        if self.phase == Phase::Cruise && view.shared.is_none() && self.is_no_queue(finding, &view) {
            self.lengthen(finding.now, finding.least);
            return;
        }
        if congested {
            let window = self.cruise.after_congestion(finding, &view);
            self.window.set(window);
            self.dips.cancel();
            return;
        }
        if self.end_settling_round(finding, &view) || self.phase != Phase::Cruise || finding.steady < 1.0 {
            return;
        }
        let under_way = self.dips.is_under_way();
        let alone = view.shared.is_none();
        let doubted = short::doubted(self.judge.noise(), finding, self.wanted()).filter(|_| alone && !noisy);
        let verdict = self.dips.end_round(finding, view.window, target, round_trip, !alone, doubted);
        if let Some(verdict) = verdict {
            self.hear_verdict(verdict, finding);
            self.cut_after_dip(&view);
        }
        if noisy && !self.cruise.is_full() {
            if !finding.app_limited {
                let given = self.given.map(|given| given.link * (round_trip + target));
                let window = self.cruise.fill(&view, given);
                self.window.set(window);
            }
            return;
        }
        // While a dip or its echo is under way, the round shows the dip and not the window.
        let echo = under_way || self.dips.is_under_way() || (shared.is_some() && self.settle.is_echo());
        if !echo && (!finding.app_limited || self.is_free(finding, &view)) {
            let window = self.cruise.after_round(finding.now, finding.least, &view);
            self.window.set(window);
        }
    }

    /// Trains find much more free than we use, and yet a queue seems to stand: it is none. On a link that
    /// is busy, by whomever, a paced train finds what we have.
    fn is_no_queue(&mut self, finding: &Finding, view: &View) -> bool {
        let odd = view.available.is_some_and(|available| available > FREE * view.rate)
            && finding.least > 0.4 * view.target
            && finding.greatest < 2.0 * finding.least
            && !finding.app_limited;
        if !odd {
            self.odd_rounds = 0;
            return false;
        }
        if self.odd_rounds == 0 {
            self.odd_since = finding.now;
        }
        self.odd_rounds += 1;
        let found = self.settle.found(finding.now, between(self.odd_since, finding.now));
        self.odd_rounds >= ODD_ROUNDS && found.is_some_and(|(least, _)| least > FREE * view.rate)
    }

    fn hear_verdict(&mut self, verdict: Verdict, finding: &Finding) {
        match verdict {
            Verdict::Queue | Verdict::Unclear => {}
            Verdict::Overflow(own) => self.hear_own_losses(own, finding.now),
            // What others do in the same rounds looks like this too.
            Verdict::NoQueue(_) if self.is_shared(finding.now, SHARED_GROWTH) => {}
            Verdict::NoQueue(_) if self.noise.is_clumped() => self.noise.forget_level(),
            Verdict::NoQueue(queue) if self.is_noisy() => self.path.learn_offset(0.9 * queue),
            Verdict::NoQueue(queue) => self.lengthen(finding.now, queue),
        }
        self.path.forget_offset(0.03);
    }
}

/// Whether this round's rate followed the growth of the window before last; `before` has the windows at the
/// ends of the last two rounds and the rates seen then.
fn followed(before: [(f64, f64); 2], rate: f64) -> bool {
    let grown = before[1].0 / before[0].0.max(1e-9);
    let faster = rate / before[1].1.max(1e-9);
    before[0].0 > 0.0 && grown > FOLLOWED.0 && libm::log(faster) > FOLLOWED.1 * libm::log(grown)
}

impl Controller for Skyhaul {
    fn name(&self) -> &'static str {
        "skyhaul"
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.now = sent.now;
        self.started.get_or_insert(sent.now);
        self.plain.hear_departure(sent.now, sent.bytes, sent.in_flight);
        self.in_flight = segments(sent.in_flight, self.mss);
        self.most_in_flight = self.most_in_flight.max(self.in_flight);
        if self.phase == Phase::First && between(self.flight.0, sent.now) < FLIGHT {
            self.flight.1 += 1.0;
        }
        self.trains.hear_departure(sent.now);
        self.wake(sent);
    }

    fn on_report(&mut self, report: &Report) {
        self.now = report.now;
        self.hear_of_reports();
        self.silent = false;
        match report.received_at {
            Some(received_at) => self.received(report, received_at),
            None => self.judge.hear_loss(report.sent_at),
        }
        let sample = self.trains.hear(report, self.path.jitter());
        if self.phase == Phase::First {
            self.estimate_first();
        }
        if let Some(sample) = sample {
            self.hear_sample(sample, report.now);
        }
        if self.round.ends_with(report.sent_at) {
            if let Some(mut finding) = self.round.end(report.now) {
                // A host too busy to keep the pace says nothing about the link either (RFC 7661 §4.3).
                let most = std::mem::take(&mut self.most_in_flight);
                self.make_haste(most, finding.app_limited);
                finding.app_limited |= most < USED * self.effective();
                if self.is_flight_over(report.sent_at) {
                    self.end_silent_flight(report.now);
                }
                self.hear_noise(&mut finding);
                self.end_round(&finding);
                self.last = Some(finding);
            }
        }
    }

    fn poll_train(&mut self, now: Time) -> Option<Train> {
        self.hear_of_reports();
        if self.phase == Phase::First {
            return self.poll_first(now);
        }
        if self.silent {
            return None;
        }
        if self.is_noisy() {
            return self.poll_long_burst(now);
        }
        let (rate, round_trip) = (self.pace(), self.round_trip());
        self.trains.poll(now, rate, round_trip, self.path.jitter())
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.now = ack.now;
        self.silent = false;
        self.in_flight = segments(ack.in_flight, self.mss);
        if self.rich {
            self.round.app_limited |= ack.app_limited;
            if !ack.app_limited && self.phase != Phase::First {
                let covers = ack.acked.as_f64() / self.mss.as_f64() / self.pace().max(1e-9);
                self.path.hear_ack(ack.sent_at, ack.now, covers);
            }
            return;
        }
        self.plain.hear(ack);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.now = loss.now;
        match loss.signal {
            Signal::Timeout => self.silent = true,
            Signal::Ecn if loss.new_episode => self.window.scale(MARKED),
            Signal::Ecn | Signal::Gap => {}
        }
        if !self.rich {
            self.plain.hear_loss(loss);
        }
    }

    fn cwnd(&self) -> Bytes {
        if !self.rich && !self.plain.is_unanswered() {
            return Window::new(self.plain.window()).bytes(self.mss);
        }
        let mut window = self.effective();
        match self.given_rate().filter(|_| self.phase == Phase::First) {
            Some(rate) if self.is_measured() => window = window.max(rate * self.round_trip()),
            Some(rate) => window = self.unanswered(rate),
            None if self.rich && self.phase != Phase::First => {
                let train = self.trains.capacity().map_or(0.0, Trains::length).max(self.long_burst());
                window += self.path.extra() * window / self.round_trip() + 2.0 + train;
            }
            None => {}
        }
        if self.silent {
            // The papers' hosts all expect a smaller window after a timeout; the first answer ends it.
            window /= 2.0;
        }
        Window::new(window).bytes(self.mss)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        if !self.rich && !self.plain.is_unanswered() {
            return self.plain.pace();
        }
        let given = self.given_rate().filter(|_| self.phase == Phase::First);
        Some(trains::rate(given.unwrap_or(PACE_GAIN * self.held.haste() * self.pace()), self.mss))
    }

    fn history(&self) -> Option<PathHistory> {
        self.learnt()
    }

    fn estimates(&self) -> Option<Estimates> {
        let seconds = |time: f64| Duration::try_from_secs_f64(time).ok();
        Some(Estimates {
            capacity: self.trains.capacity().map(|rate| trains::rate(rate, self.mss)),
            available: self.available.map(|(_, rate)| trains::rate(rate, self.mss)),
            queue: self.path.round_trip().and_then(|_| seconds(self.path.queue())),
            round_trip: self.path.round_trip().and_then(seconds),
        })
    }

    fn snapshot(&self) -> Snapshot {
        let phase = match self.phase {
            _ if !self.rich => self.plain.phase(),
            _ if self.silent => "silence",
            Phase::First => "start",
            Phase::Validate { .. } => "validation",
            Phase::Cruise if self.compete.floor().is_some() => "compete",
            Phase::Cruise if self.dips.is_under_way() => "dip",
            Phase::Cruise => "cruise",
        };
        Snapshot { cwnd: self.cwnd(), ssthresh: None, pacing_rate: self.pacing_rate(), phase }
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
