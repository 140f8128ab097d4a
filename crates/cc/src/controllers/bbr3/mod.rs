//! BBR version 3: N. Cardwell, I. Swett, J. Beshay (editors), "BBR congestion control",
//! draft-ietf-ccwg-bbr-06 (2026). As version 1 it models the path by its greatest delivery rate and least
//! round trip; unlike version 1 it takes more than 2 % of loss for too much in flight, remembers the
//! volume at which that was, and sends less than that until the next probe.
//!
//! ```text
//! max_bw       max of delivery-rate samples over two cycles of probing                    §5.5.2
//! min_rtt      min of round trips over 10 s                                               §5.5.7
//! bw           min(max_bw, bw_short),   BDP = bw * min_rtt
//! pace         gain * bw * 0.99                                                           §5.6.2
//! window       gain * BDP + bundle, at least 3 quanta and 4 segments; the bounds below    §5.6.4
//! too much     lost since a packet left > 2 % of what was in flight with it               §5.5.10.2
//! start-up     gains 2.77, 2; until a round's rate grew less than 1.25-fold three times,  §5.3.1
//!              or a second lossy round had 6 loss events and too much loss
//! drain        gains 0.5, 2 until in flight <= BDP, at most 3 rounds                      §5.3.2
//! down         gains 0.9, 2 until in flight <= BDP and <= 0.85 long                       §5.3.3.1
//! cruise       gains 1, 2 until 2 to 3 s, or min(BDP in segments, 63) rounds, after up    §5.3.3.2
//! refill       gains 1, 2 for a round; bw_short and short are forgotten                   §5.3.3.3
//! up           gains 1.25, 2.25 until the rate stops growing or too much is lost; long    §5.3.3.4
//!              grows by 1, 2, 4, ... segments per round while it holds the window
//! too much     in a probe: long = max(in flight at the loss, 0.7 min(BDP, window)), down  §5.5.10.2
//! loss         otherwise, per round: bw_short = max(newest rate, 0.7 bw_short),           §5.5.10.3
//!              short = max(newest volume delivered, 0.7 short)
//! bounds       window <= long (cruise, probe RTT: 0.85 long) and <= short                 §5.6.4.7
//! probe RTT    gains 1, 0.5 for 200 ms and a round, if no lower round trip came in 5 s    §5.3.4
//! timeout      window = in flight + 1 segment, restored when a later packet is answered   §5.6.4.4
//! ```
//!
//! | symbol             | here             | unit  | default                  |
//! |--------------------|------------------|-------|--------------------------|
//! | max_bw             | `model.fastest`  | bit/s |                          |
//! | bw_shortterm       | `model.short.0`  | bit/s | none                     |
//! | inflight_shortterm | `model.short.1`  | bytes | none                     |
//! | inflight_longterm  | `model.long`     | bytes | none                     |
//! | min_rtt            | `model.least`    | s     |                          |
//! | extra_acked        | `bundles`        | bytes |                          |
//! | Beta               | [`BETA`]         | 1     | 0.7                      |
//! | LossThresh         | [`LOSS_MOST`]    | 1     | 2 %                      |
//! | Headroom           | [`HEADROOM`]     | 1     | 0.15                     |
//!
//! Readings and differences:
//! * What a packet found when it left is remembered for departures a hundredth of a round trip apart,
//!   not for each.
//! * Hosts report several lost packets at once, and not which: each report counts as one loss event.
//! * Randomness (the wait of 2 to 3 s, the first round) comes from the time's nanoseconds, so that a
//!   replay repeats it.
//! * A mark (ECN) counts as a loss in its round but not towards the 2 %; the draft leaves marks out.
//! * The window is not saved and restored around fast recovery, which does not change it. Nothing is
//!   undone after needless repairs: hosts here do not report them.
//! * The bundle counts only after start-up, over ten rounds, as in Linux.
//! * An ACK that was limited by the application does not make the window grow.

mod departures;
mod model;

use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent, Signal};
use crate::parts::{draw, Bundles, Rounds};
use crate::units::{Bytes, Duration, Rate, Time};
use crate::window::Window;
use departures::{Departure, Departures};
use model::Model;

/// Share of the short-term bounds that a round with losses leaves at least, as CUBIC's β.
pub const BETA: f64 = 0.7;
/// LossThresh: more loss than this says that too much was in flight.
pub const LOSS_MOST: f64 = 0.02;
/// Share of the long-term bound left to others while cruising.
pub const HEADROOM: f64 = 0.15;
/// 4 ln 2: the least pacing gain that doubles the rate each round with a window gain of 2.
const START_UP_GAIN: f64 = 2.77;
const DRAIN_GAIN: f64 = 0.5;
const DOWN_GAIN: f64 = 0.9;
const UP_GAIN: f64 = 1.25;
const CWND_GAIN: f64 = 2.0;
const UP_CWND_GAIN: f64 = 2.25;
const PROBE_ROUND_TRIP_CWND_GAIN: f64 = 0.5;
/// PacingMarginPercent: pacing stays 1 % below the estimate, so that queues empty.
const MARGIN: f64 = 0.99;
/// MinRTTFilterLen.
const ROUND_TRIP_LIFE: Duration = Duration::from_secs(10);
/// ProbeRTTInterval.
const ROUND_TRIP_PROBE_EVERY: Duration = Duration::from_secs(5);
/// ProbeRTTDuration.
const PROBE_TIME: Duration = Duration::from_millis(200);
/// MinPipeCwnd, in segments.
const LEAST_SEGMENTS: u64 = 4;
/// Growth that says the pipe is not full yet, and rounds without it that say it is (§5.3.1.2).
const FULL_PIPE: (f64, u32) = (1.25, 3);
/// BBRStartupFullLossCnt.
const START_UP_LOSS_EVENTS: u32 = 6;
/// Rounds after which the drain ends in any case.
const DRAIN_ROUNDS: u64 = 3;
/// Rounds after which a probe comes in any case: what Reno would need at 25 Mbit/s and 30 ms (§5.3.3.8).
const PROBE_ROUNDS: u64 = 63;
/// Least and greatest wait between probes.
const PROBE_WAIT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(1));
/// Greatest quantum of sending.
const QUANTUM_MOST: Bytes = Bytes::kib(64);

/// BBR version 3.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    mss: Bytes,
    initial_window: Bytes,
    window: Window,
    pace: Rate,
    /// Whether a round trip was measured and the pace is no longer a guess.
    measured: bool,
    mode: Mode,
    model: Model,
    rounds: Rounds,
    full: FullPipe,
    probe: Probe,
    bundles: Bundles,
    departures: Departures,
    delivered: Bytes,
    lost: Bytes,
    losses: Losses,
    app_limited: bool,
    idle_restart: bool,
    /// When the window last was the limit.
    limited_at: Option<Time>,
    /// Window to return to after a timeout, and the moment it happened.
    restore: Option<(Window, Time)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    StartUp,
    Drain { since: u64 },
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRoundTrip { prior: Window, low_until: Option<Time>, round_passed: bool },
}

/// Has the delivery rate stopped growing? `now` in this probe, `ever` since the connection began.
#[derive(Clone, Copy, Debug, Default)]
struct FullPipe {
    best: Rate,
    rounds: u32,
    now: bool,
    ever: bool,
}

/// Losses of the round under way.
#[derive(Clone, Debug, Default)]
struct Losses {
    rounds: Rounds,
    seen: bool,
    events: u32,
    /// The round before had losses, too.
    before: bool,
}

/// Where the cycle of probing is.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// Which packets the ACKs of now tell of.
    feedback: Feedback,
    /// Packets of the last probe are still unanswered, and it has not been found too much.
    sampling: bool,
    too_high: bool,
    /// The last probe stopped at the volume that once was too much, to be sure.
    precautionary: bool,
    began: Time,
    wait: Duration,
    /// rounds_since_probe_up.
    rounds: u64,
    up_rounds: u32,
    up_acked: Bytes,
    /// Bytes to be acknowledged for each segment that the long-term bound grows by.
    per_segment: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Feedback {
    Nothing,
    Starting,
    Probing,
    Stopping,
}

/// What an ACK or a loss tells about the round trip of a packet.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// In flight when it left.
    in_flight: Bytes,
    delivered: Bytes,
    lost: Bytes,
}

impl Sample {
    fn too_high(&self) -> bool {
        self.lost.as_f64() > self.in_flight.as_f64() * LOSS_MOST
    }
}

impl Bbr3 {
    /// A controller in start-up at its initial window.
    pub fn new(setup: &Setup) -> Self {
        Bbr3 {
            mss: setup.mss,
            initial_window: setup.initial_window,
            window: Window::from_bytes(setup.initial_window, setup.mss),
            pace: setup.initial_window.per(setup.initial_rtt).scale(START_UP_GAIN),
            measured: false,
            mode: Mode::StartUp,
            model: Model::new(setup.mss),
            rounds: Rounds::new(),
            full: FullPipe::default(),
            probe: Probe {
                feedback: Feedback::Nothing,
                sampling: false,
                too_high: false,
                precautionary: false,
                began: Time::ZERO,
                wait: PROBE_WAIT.0,
                rounds: 0,
                up_rounds: 0,
                up_acked: Bytes::ZERO,
                per_segment: Bytes::MAX,
            },
            bundles: Bundles::new(),
            departures: Departures::default(),
            delivered: Bytes::ZERO,
            lost: Bytes::ZERO,
            losses: Losses::default(),
            app_limited: false,
            idle_restart: false,
            limited_at: None,
            restore: None,
        }
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::StartUp => START_UP_GAIN,
            Mode::Drain { .. } => DRAIN_GAIN,
            Mode::Down => DOWN_GAIN,
            Mode::Up => UP_GAIN,
            Mode::Cruise | Mode::Refill | Mode::ProbeRoundTrip { .. } => 1.0,
        }
    }

    fn cwnd_gain(&self) -> f64 {
        match self.mode {
            Mode::Up => UP_CWND_GAIN,
            Mode::ProbeRoundTrip { .. } => PROBE_ROUND_TRIP_CWND_GAIN,
            _ => CWND_GAIN,
        }
    }

    fn probing_rate(&self) -> bool {
        matches!(self.mode, Mode::Down | Mode::Cruise | Mode::Refill | Mode::Up)
    }

    /// Bytes to have in flight for a gain at a rate: nothing measured yet means the initial window.
    fn in_flight_for(&self, rate: Option<Rate>, gain: f64) -> Bytes {
        let Some(bdp) = self.model.bdp(rate) else { return self.initial_window };
        self.with_quanta(Bytes::from_f64(bdp.as_f64() * gain))
    }

    /// QuantizationBudget.
    fn with_quanta(&self, bytes: Bytes) -> Bytes {
        let quantum = self.pace.bytes_in(Duration::from_millis(1)).min(QUANTUM_MOST).max(self.mss * 2);
        let bytes = bytes.max(quantum * 3).max(self.mss * LEAST_SEGMENTS);
        if self.mode == Mode::Up {
            bytes + self.mss * 2
        } else {
            bytes
        }
    }

    /// The product of rate and round trip, unless the window is smaller.
    fn target(&self) -> Bytes {
        let window = self.window.bytes(self.mss);
        self.model.bdp(self.model.rate()).map_or(window, |bdp| bdp.min(window))
    }

    fn sample(&self, departure: Option<Departure>, in_flight: Bytes) -> Sample {
        // A packet nobody remembers found what there is now.
        let Departure { in_flight, delivered, lost, .. } = departure.unwrap_or(Departure {
            at: Time::ZERO,
            in_flight,
            delivered: self.delivered,
            lost: self.lost,
        });
        Sample { in_flight, delivered: self.delivered - delivered, lost: self.lost - lost }
    }

    fn window_limited(&self, ack: &Ack) -> bool {
        self.limited_at.is_some_and(|at| ack.now.since(at) <= ack.rtt.smoothed)
    }

    fn reset_full_pipe(&mut self, best: Rate) {
        self.full = FullPipe { best, ever: self.full.ever, ..FullPipe::default() };
    }

    fn update_full_pipe(&mut self, ack: &Ack, round_start: bool) {
        if self.full.now || !round_start || ack.app_limited {
            return;
        }
        let rate = ack.delivery_rate.unwrap_or(Rate::ZERO);
        if rate >= self.full.best.scale(FULL_PIPE.0) {
            self.reset_full_pipe(rate);
            return;
        }
        self.full.rounds += 1;
        self.full.now = self.full.rounds >= FULL_PIPE.1;
        self.full.ever |= self.full.now;
    }

    /// The losses of a round, once per round.
    fn end_loss_round(&mut self, sample: &Sample) {
        let Losses { seen, events, before, .. } = self.losses;
        if seen && !matches!(self.mode, Mode::StartUp | Mode::Refill | Mode::Up) {
            self.model.adapt_to_loss(self.window.bytes(self.mss));
        }
        if self.mode == Mode::StartUp && before && events >= START_UP_LOSS_EVENTS && sample.too_high() {
            self.full.ever = true;
            let bdp = self.model.bdp(self.model.rate()).unwrap_or(Bytes::ZERO);
            self.model.long = Some(bdp.max(self.model.latest.1));
        }
        self.losses = Losses { rounds: self.losses.rounds, seen: false, events: 0, before: seen };
    }

    fn reset_losses(&mut self) {
        self.losses.seen = false;
        self.losses.events = 0;
        self.model.latest = (Rate::ZERO, Bytes::ZERO);
    }

    fn start_down(&mut self, now: Time) {
        self.reset_losses();
        let wait = draw(now);
        self.probe.per_segment = Bytes::MAX;
        self.probe.rounds = wait & 1;
        self.probe.wait = PROBE_WAIT.0 + PROBE_WAIT.1.mul_f64(wait as f64 / (1u64 << 32) as f64);
        self.probe.began = now;
        self.probe.feedback = Feedback::Stopping;
        self.rounds.begin(now);
        self.mode = Mode::Down;
    }

    fn start_refill(&mut self, now: Time) {
        self.model.short = None;
        self.probe.up_rounds = 0;
        self.probe.up_acked = Bytes::ZERO;
        self.probe.precautionary = false;
        self.probe.feedback = Feedback::Nothing;
        self.rounds.begin(now);
        self.mode = Mode::Refill;
    }

    fn start_up(&mut self, ack: &Ack) {
        self.probe.sampling = true;
        self.probe.feedback = Feedback::Starting;
        self.rounds.begin(ack.now);
        self.reset_full_pipe(ack.delivery_rate.unwrap_or(Rate::ZERO));
        self.mode = Mode::Up;
        self.raise_slope();
    }

    fn raise_slope(&mut self) {
        let growth = 1u64 << self.probe.up_rounds.min(30);
        self.probe.up_rounds += 1;
        self.probe.per_segment = (self.window.bytes(self.mss) / growth).max(self.mss).max(Bytes(1));
    }

    /// The volume of a probe was too much (HandleInflightTooHigh).
    fn give_way(&mut self, now: Time, in_flight: Bytes) {
        self.probe.too_high = true;
        self.probe.sampling = false;
        if !self.app_limited {
            self.model.long = Some(in_flight.max(Bytes::from_f64(self.target().as_f64() * BETA)));
        }
        if self.mode == Mode::Up {
            self.start_down(now);
        }
    }

    /// Says whether it has changed the mode.
    fn adapt_long_term(&mut self, ack: &Ack, round_start: bool, sample: &Sample) -> bool {
        match self.probe.feedback {
            Feedback::Starting if round_start => self.probe.feedback = Feedback::Probing,
            Feedback::Stopping if round_start => {
                self.probe.sampling = false;
                self.probe.feedback = Feedback::Nothing;
                if self.probing_rate() {
                    if !ack.app_limited {
                        self.model.end_cycle();
                    }
                    if self.probe.precautionary && !self.probe.too_high {
                        self.start_refill(ack.now);
                        return true;
                    }
                }
            }
            _ => {}
        }
        if let (Some(long), false) = (self.model.long, sample.too_high()) {
            let mut long = long.max(sample.in_flight);
            let window = self.window.bytes(self.mss);
            if self.mode == Mode::Up && self.window_limited(ack) && window >= long {
                self.probe.up_acked += ack.acked;
                let segments = self.probe.up_acked.0 / self.probe.per_segment.0.max(1);
                self.probe.up_acked -= self.probe.per_segment * segments;
                long += self.mss * segments;
                if round_start {
                    self.raise_slope();
                }
            }
            self.model.long = Some(long);
        }
        false
    }

    fn update_mode(&mut self, ack: &Ack, round_start: bool, sample: &Sample) {
        if self.mode == Mode::StartUp && self.full.ever {
            self.mode = Mode::Drain { since: self.rounds.count() };
        }
        if let Mode::Drain { since } = self.mode {
            let empty = ack.in_flight <= self.in_flight_for(self.model.rate(), 1.0);
            if empty || self.rounds.count() > since + DRAIN_ROUNDS {
                self.start_down(ack.now);
            }
        }
        if !self.full.ever || self.adapt_long_term(ack, round_start, sample) {
            return;
        }
        let probed = self.mode == Mode::Up && self.time_to_go_down(ack);
        match self.mode {
            Mode::Down | Mode::Cruise if self.time_to_probe(ack.now) => self.start_refill(ack.now),
            Mode::Down => {
                let room = self.model.with_headroom().unwrap_or(Bytes::MAX);
                if ack.in_flight <= room.min(self.in_flight_for(self.model.fastest(), 1.0)) {
                    self.mode = Mode::Cruise;
                }
            }
            Mode::Refill if round_start => self.start_up(ack),
            Mode::Up if probed => {
                self.probe.too_high = false;
                self.start_down(ack.now);
            }
            _ => {}
        }
    }

    fn time_to_probe(&self, now: Time) -> bool {
        let reno_rounds = (self.target().0 / self.mss.0.max(1)).min(PROBE_ROUNDS);
        now.since(self.probe.began) > self.probe.wait || self.probe.rounds >= reno_rounds
    }

    fn time_to_go_down(&mut self, ack: &Ack) -> bool {
        let long = self.model.long.unwrap_or(Bytes::MAX);
        if self.probe.too_high && ack.in_flight >= long {
            self.probe.precautionary = true;
            return true;
        }
        if self.window_limited(ack) && self.window.bytes(self.mss) >= long {
            // The rate is held by the bound, not by the path.
            self.reset_full_pipe(ack.delivery_rate.unwrap_or(Rate::ZERO));
            return false;
        }
        self.full.now
    }

    fn probe_round_trip_window(&self) -> Bytes {
        let bdp = self
            .model
            .bdp(self.model.rate())
            .map_or(self.initial_window, |bdp| Bytes::from_f64(bdp.as_f64() * PROBE_ROUND_TRIP_CWND_GAIN));
        bdp.max(self.mss * LEAST_SEGMENTS)
    }

    fn update_round_trip(&mut self, ack: &Ack, round_start: bool) {
        let expired = self.model.on_round_trip(ack.now, ack.rtt.latest);
        let probing = matches!(self.mode, Mode::ProbeRoundTrip { .. });
        if expired && !probing && !self.idle_restart {
            self.mode = Mode::ProbeRoundTrip { prior: self.window, low_until: None, round_passed: false };
            self.probe.feedback = Feedback::Stopping;
            self.rounds.begin(ack.now);
        }
        let low = self.probe_round_trip_window();
        if let Mode::ProbeRoundTrip { low_until, round_passed, .. } = &mut self.mode {
            match low_until {
                None if ack.in_flight <= low => {
                    *low_until = Some(ack.now + PROBE_TIME);
                    *round_passed = false;
                    self.rounds.begin(ack.now);
                }
                None => {}
                Some(_) => *round_passed |= round_start,
            }
            self.end_round_trip_probe(ack.now);
        }
        self.idle_restart = false;
    }

    fn end_round_trip_probe(&mut self, now: Time) {
        let Mode::ProbeRoundTrip { prior, low_until: Some(until), round_passed: true } = self.mode else {
            return;
        };
        if now <= until {
            return;
        }
        self.model.end_round_trip_probe(now);
        self.window.set(self.window.segments().max(prior.segments()));
        self.model.short = None;
        if self.full.ever {
            self.start_down(now);
            self.mode = Mode::Cruise;
        } else {
            self.mode = Mode::StartUp;
        }
    }

    fn update_pace(&mut self, ack: &Ack) {
        if !self.measured {
            self.measured = true;
            self.pace = self.initial_window.per(ack.rtt.smoothed).scale(START_UP_GAIN);
        }
        self.set_pace(self.pacing_gain());
    }

    fn set_pace(&mut self, gain: f64) {
        if let Some(rate) = self.model.rate() {
            let pace = rate.scale(gain * MARGIN);
            if self.full.ever || pace > self.pace {
                self.pace = pace;
            }
        }
    }

    fn update_window(&mut self, ack: &Ack) {
        if let Some((prior, at)) = self.restore {
            if ack.sent_at <= at {
                return;
            }
            self.restore = None;
            self.window.set(self.window.segments().max(prior.segments()));
        }
        let window = self.window.bytes(self.mss);
        let most = match self.model.bdp(self.model.rate()) {
            Some(bdp) => {
                let bundle = self.bundles.greatest().filter(|_| self.full.ever).unwrap_or(Bytes::ZERO);
                self.with_quanta(Bytes::from_f64(bdp.as_f64() * self.cwnd_gain()) + bundle)
            }
            None => self.initial_window,
        };
        let next = if self.full.ever {
            (window + ack.acked).min(most)
        } else if window < most || self.delivered < self.initial_window {
            window + ack.acked
        } else {
            window
        };
        let next = if ack.app_limited { next.min(window) } else { next };
        let next = next.max(self.mss * LEAST_SEGMENTS).min(self.bound());
        self.window = Window::from_bytes(next, self.mss);
    }

    /// The bounds that losses have set (BoundCwndForModel).
    fn bound(&self) -> Bytes {
        let long = match self.mode {
            Mode::Down | Mode::Refill | Mode::Up => self.model.long,
            Mode::Cruise | Mode::ProbeRoundTrip { .. } => self.model.with_headroom(),
            Mode::StartUp | Mode::Drain { .. } => None,
        };
        let short = self.model.short.map(|(_, flight)| flight);
        long.unwrap_or(Bytes::MAX).min(short.unwrap_or(Bytes::MAX)).max(self.mss * LEAST_SEGMENTS)
    }
}

impl Controller for Bbr3 {
    fn name(&self) -> &'static str {
        "bbr3"
    }

    fn on_sent(&mut self, sent: &Sent) {
        let departure =
            Departure { at: sent.now, in_flight: sent.in_flight, delivered: self.delivered, lost: self.lost };
        self.departures.push(departure, self.model.least().unwrap_or_default());
        if sent.in_flight + self.mss > self.cwnd() {
            self.limited_at = Some(sent.now);
        }
        if sent.in_flight <= sent.bytes && self.app_limited {
            self.idle_restart = true;
            if self.probing_rate() {
                self.set_pace(1.0);
            }
            self.end_round_trip_probe(sent.now);
        }
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.delivered += ack.acked;
        self.app_limited = ack.app_limited;
        let sample = self.sample(self.departures.at(ack.sent_at), ack.in_flight + ack.acked);
        let newest = (ack.delivery_rate.unwrap_or(Rate::ZERO), sample.delivered);
        self.model.latest = (self.model.latest.0.max(newest.0), self.model.latest.1.max(newest.1));
        let round_start = self.rounds.on_ack(ack.now, ack.sent_at);
        self.probe.rounds += u64::from(round_start);
        if let Some(rate) = ack.delivery_rate {
            self.model.on_rate(rate, ack.app_limited);
        }
        let loss_round = self.losses.rounds.on_ack(ack.now, ack.sent_at);
        if let Some(rate) = self.model.rate() {
            let most = self.window.bytes(self.mss);
            self.bundles.on_ack(ack.now, self.rounds.count(), ack.acked, rate, most);
        }
        self.update_full_pipe(ack, round_start);
        if loss_round {
            self.end_loss_round(&sample);
        }
        self.update_mode(ack, round_start, &sample);
        self.update_round_trip(ack, round_start);
        if loss_round {
            self.model.latest = newest;
        }
        self.update_pace(ack);
        self.update_window(ack);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.lost += loss.lost;
        if !self.losses.seen {
            self.losses.rounds.begin(loss.now);
        }
        self.losses.seen = true;
        self.losses.events += u32::from(loss.lost > Bytes::ZERO);
        if self.probe.sampling && loss.lost > Bytes::ZERO {
            let departure = self.departures.at(loss.sent_at);
            let sample = self.sample(departure, loss.in_flight + loss.lost);
            if sample.too_high() {
                self.give_way(loss.now, in_flight_at_loss(&sample, loss.lost));
            }
        }
        if loss.signal == Signal::Timeout {
            let prior = self.restore.map_or(self.window, |(prior, _)| prior);
            self.restore = Some((prior, loss.now));
            let window = (loss.in_flight + self.mss).min(self.window.bytes(self.mss));
            self.window = Window::from_bytes(window, self.mss);
        }
    }

    fn cwnd(&self) -> Bytes {
        let window = self.window.bytes(self.mss);
        match self.mode {
            Mode::ProbeRoundTrip { .. } => window.min(self.probe_round_trip_window()),
            _ => window,
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.pace.max(Rate::bit(1)))
    }

    fn snapshot(&self) -> Snapshot {
        let phase = match self.mode {
            Mode::StartUp => "start-up",
            Mode::Drain { .. } => "drain",
            Mode::Down => "probe down",
            Mode::Cruise => "cruise",
            Mode::Refill => "refill",
            Mode::Up => "probe up",
            Mode::ProbeRoundTrip { .. } => "probe round trip",
        };
        Snapshot { cwnd: self.cwnd(), ssthresh: None, pacing_rate: self.pacing_rate(), phase }
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

/// How much was in flight when the share of lost bytes crossed the threshold, within the `newest` lost
/// ones (InflightAtLoss).
fn in_flight_at_loss(sample: &Sample, newest: Bytes) -> Bytes {
    let before = sample.in_flight.saturating_sub(newest).as_f64();
    let lost_before = sample.lost.saturating_sub(newest).as_f64();
    let more = (LOSS_MOST * before - lost_before) / (1.0 - LOSS_MOST);
    Bytes::from_f64(before + more.max(0.0))
}

#[cfg(test)]
mod tests;
