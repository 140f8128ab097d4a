//! BBR version 1: N. Cardwell, Y. Cheng, C. S. Gunn, S. H. Yeganeh, V. Jacobson, "BBR:
//! congestion-based congestion control", ACM Queue 14(5) (2016), and
//! draft-cardwell-iccrg-bbr-congestion-control-00 (2017); the allowance for bundled ACKs as in
//! I. Swett's and P. Jha's 2019 addition to Linux. It models the path (greatest delivery rate, least
//! round trip) and takes no notice of single losses.
//!
//! ```text
//! BtlBw         = max of delivery-rate samples over 10 rounds
//! RTprop        = min of round trips over 10 s
//! pace          = gain * BtlBw * 0.99
//! window        = gain * BtlBw * RTprop + bundle + 3 quanta,    quantum = 1 ms of pace, 1 segment to 64 KiB
//! bundle        = max over 10 rounds of (acknowledged - BtlBw * time) within an epoch, <= 100 ms of BtlBw
//! start-up      gains 2.885, 2.885 until BtlBw grew less than 1.25-fold in 3 rounds
//! drain         gains 0.347, 2.885 until in flight <= BDP
//! probe rate    pacing gains 1.25, 0.75, 1, 1, 1, 1, 1, 1, one per RTprop; window gain 2
//! probe RTT     4 segments for 200 ms and a round trip, when RTprop was not seen for 10 s
//! timeout       window = in flight, restored when a packet sent later is acknowledged
//! ```
//!
//! | symbol    | here               | unit  | default |
//! |-----------|--------------------|-------|---------|
//! | 2 / ln 2  | [`HIGH_GAIN`]      | 1     | 2.885   |
//! | BtlBw     | `bandwidth`        | bit/s |         |
//! | RTprop    | `round_trip`       | s     |         |
//! | margin    | [`MARGIN`]         | 1     | 0.99    |
//!
//! Readings and differences:
//! * A sample within 1 % of RTprop counts as having seen it. Nanosecond clocks never see the same
//!   minimum twice, and every needless probe costs 8 to 14 % of a geostationary link's time.
//! * Packet conservation in the first round of recovery is left out: random loss on a satellite link
//!   begins such a round all the time.
//! * An ACK that was limited by the application does not make the window grow.
//! * A round in start-up that was limited by the application counts as one without growth if it shows
//!   that the pipe is full all the same: a queue of RTprop / 8 or a fifth of the packets lost. Start-up
//!   overflows the queue, repairs keep the far end's memory full, the sender has to pause, and rounds
//!   that do not count would make it overflow the queue again and again.
//! * The first phase of the cycle, random in Linux, comes from the time's nanoseconds, so that a replay
//!   repeats it.
//! * Policer detection ("long-term bandwidth sampling") is left out.

use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent, Signal};
use crate::parts::{draw, scaled, Bundles, WindowedMax};
use crate::units::{Bytes, Duration, Rate, Time};
use crate::window::Window;

/// 2 / ln 2: the least gain that doubles the rate each round.
pub const HIGH_GAIN: f64 = 2.885;
/// Inverse of the start-up gain, to empty the queue start-up made.
const DRAIN_GAIN: f64 = 1.0 / HIGH_GAIN;
/// Window gain while probing the rate.
const CWND_GAIN: f64 = 2.0;
/// Pacing gains, one per RTprop.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Pacing stays 1 % below the estimate, so that queues empty.
pub const MARGIN: f64 = 0.99;
/// Rounds over which the greatest delivery rate is kept.
const BANDWIDTH_ROUNDS: u64 = 10;
/// Time over which the least round trip is kept.
const ROUND_TRIP_LIFE: Duration = Duration::from_secs(10);
/// A round trip within this factor of RTprop has seen it.
const SEEN: f64 = 1.01;
/// Length of the round-trip probe.
const PROBE_TIME: Duration = Duration::from_millis(200);
/// Least window in segments.
const LEAST_SEGMENTS: u64 = 4;
/// Growth that says the pipe is not full yet.
const FULL_PIPE_GROWTH: f64 = 1.25;
/// Rounds without it that say the pipe is full.
const FULL_PIPE_ROUNDS: u32 = 3;
/// A queue of this part of RTprop shows a full pipe.
const FULL_PIPE_QUEUE: u32 = 8;
/// Losing this share of a round shows a full pipe; start-up sends up to 2.885 times what fits.
const FULL_PIPE_LOSS: f64 = 0.2;
/// Longest bundle of ACKs that is allowed for.
const BUNDLE_MOST: Duration = Duration::from_millis(100);
/// Greatest quantum of sending.
const QUANTUM_MOST: Bytes = Bytes::kib(64);

/// BBR version 1.
#[derive(Clone, Debug)]
pub struct Bbr {
    mss: Bytes,
    initial_window: Bytes,
    window: Window,
    pace: Rate,
    /// Whether a round trip was measured and the pace is no longer a guess.
    measured: bool,
    mode: Mode,
    round: u64,
    bandwidth: WindowedMax<Rate>,
    round_trip: Option<(Duration, Time)>,
    full: FullPipe,
    bundles: Bundles,
    delivered: Bytes,
    lost_in_phase: bool,
    /// Acknowledged and lost since the round began.
    round_acked: Bytes,
    round_lost: Bytes,
    /// Window to return to after a timeout, and the moment it happened.
    restore: Option<(Window, Time)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    StartUp,
    Drain,
    ProbeRate { phase: usize, since: Time },
    ProbeRoundTrip { prior: Window, low_until: Option<Time>, round_passed: bool },
}

/// Has the delivery rate stopped growing?
#[derive(Clone, Copy, Debug, Default)]
struct FullPipe {
    best: f64,
    rounds: u32,
    reached: bool,
}

impl Bbr {
    /// A controller in start-up at its initial window.
    pub fn new(setup: &Setup) -> Self {
        let window = Window::from_bytes(setup.initial_window, setup.mss);
        Bbr {
            mss: setup.mss,
            initial_window: setup.initial_window,
            window,
            pace: setup.initial_window.per(setup.initial_rtt).scale(HIGH_GAIN),
            measured: false,
            mode: Mode::StartUp,
            round: 0,
            bandwidth: WindowedMax::new(BANDWIDTH_ROUNDS),
            round_trip: None,
            full: FullPipe::default(),
            bundles: Bundles::new(),
            delivered: Bytes::ZERO,
            lost_in_phase: false,
            round_acked: Bytes::ZERO,
            round_lost: Bytes::ZERO,
            restore: None,
        }
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::StartUp => HIGH_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::ProbeRate { phase, .. } => CYCLE[phase % CYCLE.len()],
            Mode::ProbeRoundTrip { .. } => 1.0,
        }
    }

    fn cwnd_gain(&self) -> f64 {
        match self.mode {
            Mode::StartUp | Mode::Drain => HIGH_GAIN,
            Mode::ProbeRate { .. } => CWND_GAIN,
            Mode::ProbeRoundTrip { .. } => 1.0,
        }
    }

    /// Bytes to have in flight for a gain: nothing measured yet means the initial window.
    fn in_flight_for(&self, gain: f64) -> Bytes {
        match (self.bandwidth.get(), self.round_trip) {
            (Some(rate), Some((rtt, _))) => {
                let quantum =
                    self.pace.bytes_in(Duration::from_millis(1)).clamp(self.mss, QUANTUM_MOST.max(self.mss));
                Bytes::from_f64(rate.bdp(rtt).as_f64() * gain) + quantum * 3
            }
            _ => self.initial_window,
        }
    }

    fn update_bandwidth(&mut self, ack: &Ack) {
        if let Some(rate) = ack.delivery_rate {
            if !ack.app_limited || self.bandwidth.get().is_none_or(|best| rate >= best) {
                self.bandwidth.update(self.round, rate);
            }
        }
    }

    fn update_bundle(&mut self, ack: &Ack) {
        if let Some(rate) = self.bandwidth.get() {
            self.bundles.on_ack(ack.now, self.round, ack.acked, rate, self.window.bytes(self.mss));
        }
    }

    fn update_full_pipe(&mut self, ack: &Ack) {
        self.round_acked += ack.acked;
        if !ack.round_start {
            return;
        }
        let acked = std::mem::take(&mut self.round_acked).as_f64();
        let lost = std::mem::take(&mut self.round_lost).as_f64();
        let queue = ack.rtt.latest.saturating_sub(ack.rtt.min);
        let visibly_full = queue > ack.rtt.min / FULL_PIPE_QUEUE || lost > FULL_PIPE_LOSS * (acked + lost);
        if self.full.reached || (ack.app_limited && !visibly_full) {
            return;
        }
        let Some(rate) = self.bandwidth.get() else { return };
        if rate.as_f64() >= self.full.best * FULL_PIPE_GROWTH {
            self.full = FullPipe { best: rate.as_f64(), rounds: 0, reached: false };
        } else {
            self.full.rounds += 1;
            self.full.reached = self.full.rounds >= FULL_PIPE_ROUNDS;
        }
    }

    fn update_mode(&mut self, ack: &Ack) {
        if self.mode == Mode::StartUp && self.full.reached {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && ack.in_flight <= self.in_flight_for(1.0) {
            self.enter_probe_rate(ack.now);
        }
        if let Mode::ProbeRate { phase, since } = self.mode {
            let flight = ack.in_flight + ack.acked;
            let long = self.round_trip.is_none_or(|(rtt, _)| ack.now.since(since) > rtt);
            let gain = CYCLE[phase % CYCLE.len()];
            let over = if gain > 1.0 {
                long && (self.lost_in_phase || flight >= self.in_flight_for(gain))
            } else if gain < 1.0 {
                long || flight <= self.in_flight_for(1.0)
            } else {
                long
            };
            if over {
                self.mode = Mode::ProbeRate { phase: (phase + 1) % CYCLE.len(), since: ack.now };
                self.lost_in_phase = false;
            }
        }
    }

    fn enter_probe_rate(&mut self, now: Time) {
        // Any phase but the draining one.
        let phase = match draw(now) % 7 {
            0 => 0,
            later => later as usize + 1,
        };
        self.mode = Mode::ProbeRate { phase, since: now };
        self.lost_in_phase = false;
    }

    fn update_round_trip(&mut self, ack: &Ack) {
        let sample = ack.rtt.latest.max(Duration::from_nanos(1));
        let (least, seen_at) = *self.round_trip.get_or_insert((sample, ack.now));
        let expired = ack.now.since(seen_at) > ROUND_TRIP_LIFE;
        if sample < least || expired {
            self.round_trip = Some((sample, ack.now));
        } else if sample <= scaled(least, SEEN) {
            self.round_trip = Some((least, ack.now));
        }
        // A new least value, even a late one, needs no probe.
        let probing = matches!(self.mode, Mode::ProbeRoundTrip { .. });
        if expired && sample > scaled(least, SEEN) && !probing && !ack.app_limited {
            self.mode = Mode::ProbeRoundTrip { prior: self.window, low_until: None, round_passed: false };
        }
        let low = self.mss * LEAST_SEGMENTS;
        if let Mode::ProbeRoundTrip { prior, low_until, round_passed } = &mut self.mode {
            match low_until {
                None if ack.in_flight <= low => {
                    *low_until = Some(ack.now + PROBE_TIME);
                    *round_passed = false;
                }
                None => {}
                Some(until) => {
                    *round_passed |= ack.round_start;
                    if *round_passed && ack.now > *until {
                        self.window.set(self.window.segments().max(prior.segments()));
                        if let Some((_, seen_at)) = &mut self.round_trip {
                            *seen_at = ack.now;
                        }
                        if self.full.reached {
                            self.enter_probe_rate(ack.now);
                        } else {
                            self.mode = Mode::StartUp;
                        }
                    }
                }
            }
        }
    }

    fn update_pace(&mut self, ack: &Ack) {
        if !self.measured {
            self.measured = true;
            self.pace = self.cwnd().per(ack.rtt.smoothed).scale(HIGH_GAIN);
        }
        if let Some(rate) = self.bandwidth.get() {
            let pace = rate.scale(self.pacing_gain() * MARGIN);
            if self.full.reached || pace > self.pace {
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
        let target = self.in_flight_for(self.cwnd_gain()) + self.bundle_allowance();
        let next = if self.full.reached {
            (window + ack.acked).min(target)
        } else if window < target || self.delivered < self.initial_window {
            window + ack.acked
        } else {
            window
        };
        let next = if ack.app_limited { next.min(window) } else { next };
        self.set_window(next.max(self.mss * LEAST_SEGMENTS));
    }

    fn bundle_allowance(&self) -> Bytes {
        match (self.full.reached, self.bandwidth.get(), self.bundles.greatest()) {
            (true, Some(rate), Some(extra)) => extra.min(rate.bytes_in(BUNDLE_MOST)),
            _ => Bytes::ZERO,
        }
    }

    fn set_window(&mut self, bytes: Bytes) {
        self.window = Window::from_bytes(bytes, self.mss);
    }
}

impl Controller for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        self.delivered += ack.acked;
        if ack.round_start {
            self.round = self.round.saturating_add(1);
        }
        self.update_bandwidth(ack);
        self.update_bundle(ack);
        self.update_full_pipe(ack);
        self.update_mode(ack);
        self.update_round_trip(ack);
        self.update_pace(ack);
        self.update_window(ack);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.lost_in_phase |= loss.lost > Bytes::ZERO;
        self.round_lost += loss.lost;
        if loss.signal == Signal::Timeout {
            let prior = self.restore.map_or(self.window, |(prior, _)| prior);
            self.restore = Some((prior, loss.now));
            let window = loss.in_flight.min(self.window.bytes(self.mss));
            self.set_window(window.max(self.mss * LEAST_SEGMENTS));
            self.full.best = 0.0;
        }
    }

    fn cwnd(&self) -> Bytes {
        let window = self.window.bytes(self.mss);
        match self.mode {
            Mode::ProbeRoundTrip { .. } => window.min(self.mss * LEAST_SEGMENTS),
            _ => window,
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.pace.max(Rate::bit(1)))
    }

    fn snapshot(&self) -> Snapshot {
        let phase = match self.mode {
            Mode::StartUp => "start-up",
            Mode::Drain => "drain",
            Mode::ProbeRate { .. } => "probe rate",
            Mode::ProbeRoundTrip { .. } => "probe round trip",
        };
        Snapshot { cwnd: self.cwnd(), ssthresh: None, pacing_rate: self.pacing_rate(), phase }
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ack, loss, rtt, MSS, RTT};

    fn new() -> Bbr {
        Bbr::new(&Setup::new(MSS))
    }

    /// One ACK per round trip for all of `window`, at a delivery rate.
    fn round(bbr: &mut Bbr, now: u64, rate: Rate, in_flight: Bytes) {
        bbr.on_ack(&Ack {
            delivery_rate: Some(rate),
            round_start: true,
            in_flight,
            ..ack(now, now.saturating_sub(540), 100)
        });
    }

    /// Start-up at 10 Mbit/s until the drain is over.
    fn probing() -> Bbr {
        let mut bbr = new();
        (1..=5).for_each(|i| round(&mut bbr, i * 540, Rate::mbit(10), Bytes::ZERO));
        assert!(matches!(bbr.mode, Mode::ProbeRate { .. }), "{bbr:?}");
        bbr
    }

    #[test]
    fn start_up_paces_at_the_high_gain_and_lasts_while_the_rate_grows() {
        let mut bbr = new();
        for i in 1..=8 {
            round(&mut bbr, i * 540, Rate::mbit(1 << i), MSS * 1000);
            assert_eq!(bbr.mode, Mode::StartUp, "round {i}");
        }
        let pace = bbr.pacing_rate().unwrap().as_f64() / Rate::mbit(256).as_f64();
        assert!((pace - 2.885 * 0.99).abs() < 1e-6, "{pace}");
    }

    #[test]
    fn three_rounds_without_growth_end_start_up_and_the_queue_is_drained() {
        let mut bbr = new();
        for i in 1..=4 {
            assert_eq!(bbr.mode, Mode::StartUp);
            round(&mut bbr, i * 540, Rate::mbit(10), MSS * 10_000);
        }
        assert_eq!(bbr.mode, Mode::Drain);
        assert!(bbr.pacing_rate().unwrap() < Rate::mbit(4));
    }

    #[test]
    fn rounds_limited_by_the_application_do_not_end_start_up() {
        let mut bbr = new();
        for i in 1..=20 {
            bbr.on_ack(&Ack {
                delivery_rate: Some(Rate::mbit(1)),
                round_start: true,
                app_limited: true,
                ..ack(i * 540, i * 540 - 540, 10)
            });
        }
        assert_eq!(bbr.mode, Mode::StartUp);
    }

    #[test]
    fn a_full_queue_ends_start_up_even_if_the_application_pauses() {
        for lossy in [false, true] {
            let mut bbr = new();
            for i in 1..=4 {
                let mut one = ack(i * 540, i * 540 - 540, 100);
                (one.delivery_rate, one.round_start) = (Some(Rate::mbit(10)), true);
                (one.app_limited, one.in_flight) = (i > 1, MSS * 10_000);
                if lossy {
                    bbr.on_loss(&Loss { lost: MSS * 50, ..loss(i * 540, i * 540 - 540, Signal::Gap, true) });
                } else {
                    one.rtt.latest = RTT * 5 / 4;
                }
                bbr.on_ack(&one);
            }
            assert_eq!(bbr.mode, Mode::Drain, "lossy: {lossy}");
        }
    }

    #[test]
    fn a_lost_packet_changes_neither_window_nor_pace() {
        let mut bbr = probing();
        let before = (bbr.cwnd(), bbr.pacing_rate());
        bbr.on_loss(&loss(3000, 2400, Signal::Gap, true));
        assert_eq!((bbr.cwnd(), bbr.pacing_rate()), before);
    }

    #[test]
    fn the_cycle_lasts_eight_round_trips_with_one_probe_and_one_drain() {
        let mut bbr = probing();
        let bdp = Rate::mbit(10).bdp(RTT);
        let mut gains = Vec::new();
        for i in 6..=37 {
            // Enough in flight for the probe's end, little enough for the drain's.
            let in_flight = if bbr.pacing_gain() > 1.0 { bdp.0 * 5 / 4 + 100_000 } else { bdp.0 };
            round(&mut bbr, i * 541, Rate::mbit(10), Bytes(in_flight));
            gains.push(bbr.pacing_gain());
        }
        let count = |gain| gains.iter().filter(|&&g| g == gain).count();
        assert_eq!((count(1.25), count(0.75), count(1.0)), (4, 4, 24), "{gains:?}");
    }

    #[test]
    fn a_round_trip_not_seen_for_ten_seconds_is_probed_with_four_segments() {
        let mut bbr = probing();
        let queued = rtt(RTT * 2);
        let mut low = 0;
        for i in 1..=400u64 {
            let now = 2800 + i * 50;
            let mut one = ack(now, now - 1080, 20);
            (one.rtt, one.delivery_rate, one.round_start) = (queued, Some(Rate::mbit(10)), i % 20 == 0);
            one.in_flight = bbr.cwnd();
            bbr.on_ack(&one);
            low += u32::from(bbr.cwnd() == MSS * 4);
        }
        // 200 ms and the rest of a round trip, in steps of 50 ms.
        assert!((4..=50).contains(&low), "{low} ACKs at four segments");
        assert!(matches!(bbr.mode, Mode::ProbeRate { .. }));
    }

    #[test]
    fn a_round_trip_within_a_percent_needs_no_probe() {
        let mut bbr = probing();
        for i in 1..=200u64 {
            let now = 2800 + i * 200;
            bbr.on_ack(&Ack { rtt: rtt(RTT + Duration::from_millis(5)), ..ack(now, now - 545, 20) });
            assert!(!matches!(bbr.mode, Mode::ProbeRoundTrip { .. }), "{now} ms");
        }
    }

    #[test]
    fn acks_in_bundles_earn_an_allowance_of_their_size() {
        let mut bbr = probing();
        let before = bbr.in_flight_for(2.0);
        // 100 ms of data per ACK, every 100 ms.
        for i in 1..=60u64 {
            let now = 2800 + i * 100;
            let mut one = ack(now, now - 540, 0);
            one.acked = Rate::mbit(10).bytes_in(Duration::from_millis(100));
            (one.delivery_rate, one.in_flight) = (Some(Rate::mbit(10)), bbr.cwnd());
            bbr.on_ack(&one);
        }
        let allowance = bbr.cwnd().saturating_sub(before).as_f64();
        let bundle = Rate::mbit(10).bytes_in(Duration::from_millis(100)).as_f64();
        assert!((allowance / bundle - 1.0).abs() < 0.1, "{allowance} for {bundle}");
    }

    #[test]
    fn a_timeout_is_forgotten_with_the_first_new_answer() {
        let mut bbr = probing();
        let before = bbr.cwnd();
        bbr.on_loss(&loss(3000, 2400, Signal::Timeout, true));
        assert_eq!(bbr.cwnd(), MSS * 4);
        bbr.on_ack(&ack(3500, 2900, 2));
        assert_eq!(bbr.cwnd(), MSS * 4);
        bbr.on_ack(&ack(3600, 3001, 2));
        assert!(bbr.cwnd() >= before, "{} after {before}", bbr.cwnd());
    }
}
