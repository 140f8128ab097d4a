//! CUBIC: RFC 9438.
//!
//! ```text
//! curve        W(t) = C (t - K)³ + W_max,  K = cbrt((W_max - W_epoch) / C)          §4.2
//! target       clamp(W(t + RTT), W, 1.5 W)                                          §4.2
//! growth       W += (target - W) / W        per acknowledged segment                §4.4, §4.5
//! Reno's own   W_est += α / W               per acknowledged segment                §4.3
//!              α = 3 (1 - β) / (1 + β) until W_est reaches the window before the cut, then 1
//! friendly     W = W_est                    where W_est > W(t)                       §4.3
//! loss         W_max = W, or W (1 + β) / 2 if W lies below the last W_max            §4.7
//!              ssthresh = W = β W                                                    §4.6
//! timeout      ssthresh = β W, W = 2                                                 §4.8
//! ```
//!
//! | symbol | here      | unit           | default |
//! |--------|-----------|----------------|---------|
//! | C      | [`SCALE`] | segments/s³    | 0.4     |
//! | β      | [`KEPT`]  | share kept     | 0.7     |
//! | K      | `curve.k` | s              |         |
//! | W_max  | `w_max`   | segments       |         |
//! | α      |           | segments/RTT   | 0.529   |
//!
//! The CUBIC paper of 2008 writes β for the share given up; here it is the share kept, as in the RFC.
//!
//! Differences: an ACK for n segments takes n steps at once, stopping at the target, which one step
//! per segment would not pass either. HyStart++ (RFC 9406) is there but off: its threshold of at most
//! 16 ms mistakes the jitter of a satellite path for a queue. Time during which the application was
//! the limit does not move the curve on (§5.8).

use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent, Signal};
use crate::parts::hystart::{Advice, HyStart};
use crate::parts::sawtooth::{slow_start, ssthresh_bytes};
use crate::parts::CubicCurve;
use crate::units::{Bytes, Rate, Time};
use crate::window::{segments, Window};

/// C: steepness of the curve in segments per second cubed, RFC 9438 §4.6 and §5.1.
pub const SCALE: f64 = 0.4;
/// β: share of the window kept after a loss, RFC 9438 §4.6.
pub const KEPT: f64 = 0.7;
/// Greatest target relative to the window, RFC 9438 §4.2.
pub(crate) const TARGET_BOUND: f64 = 1.5;

/// CUBIC.
#[derive(Clone, Debug)]
pub struct Cubic {
    mss: Bytes,
    window: Window,
    ssthresh: f64,
    /// W_max; zero before the first loss.
    w_max: f64,
    /// The window just before the last cut (cwnd_prior).
    prior: f64,
    epoch: Option<Epoch>,
    cut_at: Option<Time>,
    last_ack: Time,
    hystart: Option<HyStart>,
    /// C and β.
    shape: (f64, f64),
}

/// One stretch of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Time,
    curve: CubicCurve,
    /// W_est: where Reno would be.
    reno: f64,
}

impl Cubic {
    /// A controller at its initial window, HyStart++ off.
    pub fn new(setup: &Setup) -> Self {
        Cubic {
            mss: setup.mss,
            window: Window::from_bytes(setup.initial_window, setup.mss),
            ssthresh: setup.initial_ssthresh.map_or(f64::INFINITY, |bytes| segments(bytes, setup.mss)),
            w_max: 0.0,
            prior: 0.0,
            epoch: None,
            cut_at: None,
            last_ack: Time::ZERO,
            hystart: None,
            shape: (SCALE, KEPT),
        }
    }

    /// The same with another C, in segments/s³ above zero, and another β, a share kept below one.
    pub fn with_shape(mut self, scale: f64, kept: f64) -> Self {
        self.shape = (scale, kept);
        self
    }

    /// The same with HyStart++ (RFC 9406) in the first slow start.
    pub fn with_hystart(mut self) -> Self {
        self.hystart = Some(HyStart::new());
        self
    }

    fn in_slow_start(&self) -> bool {
        self.window.segments() < self.ssthresh
    }

    fn slow_start(&mut self, ack: &Ack, acked: f64) -> f64 {
        let share = match self.hystart.as_mut().map(|h| h.on_ack(ack.round_start, ack.rtt.latest)) {
            None => 1.0,
            Some(Advice::Grow(share)) => share,
            Some(Advice::Leave) => {
                self.ssthresh = self.window.segments();
                return acked;
            }
        };
        slow_start(&mut self.window, self.ssthresh, acked * share) / share
    }

    fn congestion_avoidance(&mut self, ack: &Ack, acked: f64) {
        let window = self.window.segments();
        let (scale, kept) = self.shape;
        let w_max = self.w_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start: ack.now,
            curve: CubicCurve::new(window, w_max, scale),
            reno: window,
        });
        let t = ack.now.since(epoch.start);
        let alpha = if epoch.reno < self.prior { 3.0 * (1.0 - kept) / (1.0 + kept) } else { 1.0 };
        epoch.reno += alpha * acked / window;
        if epoch.reno > epoch.curve.at(t) {
            self.window.set(window.max(epoch.reno));
        } else {
            let target =
                epoch.curve.at(t.saturating_add(ack.rtt.smoothed)).clamp(window, TARGET_BOUND * window);
            self.window.grow((target - window) * (acked / window).min(1.0));
        }
    }

    fn cut(&mut self) {
        let (_, kept) = self.shape;
        let window = self.window.segments();
        // Fast convergence, RFC 9438 §4.7: a flow that did not get back to its maximum leaves room.
        self.w_max = if window < self.w_max { window * (1.0 + kept) / 2.0 } else { window };
        self.prior = window;
        self.ssthresh = window * kept;
        // HyStart++ serves the first slow start only (RFC 9406 §4.3).
        self.hystart = None;
    }
}

impl Controller for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        let quiet = ack.now.since(self.last_ack);
        self.last_ack = self.last_ack.max(ack.now);
        if ack.app_limited {
            if let Some(epoch) = &mut self.epoch {
                epoch.start += quiet;
            }
            return;
        }
        if self.cut_at.is_some_and(|cut| ack.sent_at <= cut) {
            return;
        }
        let mut acked = segments(ack.acked, self.mss);
        if self.in_slow_start() {
            acked = self.slow_start(ack, acked);
        }
        if acked > 0.0 && !self.in_slow_start() {
            self.congestion_avoidance(ack, acked);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        if loss.new_episode {
            self.cut();
        }
        if loss.signal == Signal::Timeout {
            self.window.set(0.0);
            self.epoch = None;
            self.cut_at = None;
        } else if loss.new_episode {
            self.window.set(self.ssthresh);
            self.epoch = None;
            self.cut_at = Some(loss.now);
        }
    }

    fn cwnd(&self) -> Bytes {
        self.window.bytes(self.mss)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            cwnd: self.cwnd(),
            ssthresh: ssthresh_bytes(self.ssthresh, self.mss),
            pacing_rate: None,
            phase: if self.in_slow_start() { "slow start" } else { "congestion avoidance" },
        }
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ack, loss, MSS};

    /// A window of 1000 segments that has just been cut to 700 at time zero.
    fn after_one_cut() -> Cubic {
        let mut cubic = Cubic::new(&Setup { initial_window: MSS * 1000, ..Setup::new(MSS) });
        cubic.on_loss(&loss(1, 0, Signal::Gap, true));
        cubic
    }

    #[test]
    fn another_shape_keeps_its_own_share_and_grows_by_its_own_curve() {
        let mut cubic =
            Cubic::new(&Setup { initial_window: MSS * 1000, ..Setup::new(MSS) }).with_shape(4.0, 0.9);
        cubic.on_loss(&loss(1, 0, Signal::Gap, true));
        assert_eq!(cubic.cwnd(), MSS * 900);
        // RFC 9438 figure 2: K = cbrt((W_max - cwnd) / C), after which the window is W_max again.
        let k = (100.0_f64 / 4.0).cbrt() * 1000.0;
        for now in 1..k as u64 {
            cubic.on_ack(&ack(now + 1, now, 30));
        }
        let window = cubic.window.segments();
        assert!((990.0..1001.0).contains(&window), "{window}");
    }

    #[test]
    fn a_loss_keeps_seven_tenths_and_remembers_the_maximum() {
        let cubic = after_one_cut();
        assert_eq!(cubic.cwnd(), MSS * 700);
        assert_eq!(cubic.w_max, 1000.0);
    }

    #[test]
    fn a_second_cut_below_the_maximum_gives_room_to_others() {
        let mut cubic = after_one_cut();
        cubic.on_loss(&loss(600, 500, Signal::Gap, true));
        assert!((cubic.w_max - 700.0 * 0.85).abs() < 1e-9);
        assert_eq!(cubic.cwnd(), MSS * 490);
    }

    #[test]
    fn the_window_follows_the_curve_within_two_percent() {
        let mut cubic = after_one_cut();
        let curve = CubicCurve::new(700.0, 1000.0, SCALE);
        // 14 segments every 10 ms: about the 700 to 1100 segments per 540 ms that are in flight.
        for i in 1..=1800u64 {
            let now = 540 + i * 10;
            cubic.on_ack(&ack(now, now - 530, (cubic.window.segments() / 54.0).round() as u64));
            let expected = curve.at(std::time::Duration::from_millis(now - 550));
            // The target lies one round trip ahead and the window follows it with that lag.
            if i > 100 {
                let off = cubic.window.segments() / expected - 1.0;
                assert!(off.abs() < 0.02, "{now} ms: {} against {expected}", cubic.window.segments());
            }
        }
    }

    #[test]
    fn a_short_round_trip_is_at_least_as_fast_as_reno() {
        let mut cubic = Cubic::new(&Setup { initial_window: MSS * 20, ..Setup::new(MSS) });
        cubic.on_loss(&loss(1, 0, Signal::Gap, true));
        let mut now = 2;
        // 5 ms round trips, 100 of them: Reno's share grows by 0.529 per round trip.
        for _ in 0..100 {
            let mut one = ack(now, now, 0);
            one.acked = cubic.cwnd();
            one.rtt = crate::testing::rtt(std::time::Duration::from_millis(5));
            cubic.on_ack(&one);
            now += 5;
        }
        assert!(cubic.window.segments() > 14.0 + 0.5 * 100.0, "{}", cubic.window.segments());
    }

    #[test]
    fn one_ack_never_passes_one_and_a_half_windows() {
        let mut cubic = after_one_cut();
        cubic.on_ack(&ack(600, 500, 1));
        let before = cubic.window.segments();
        cubic.on_ack(&ack(3_600_000, 3_599_000, 100_000));
        assert!(cubic.window.segments() <= before * 1.5 + 1.0, "{}", cubic.window.segments());
    }

    #[test]
    fn idle_time_does_not_move_the_curve_on() {
        let (mut busy, mut paused) = (after_one_cut(), after_one_cut());
        for cubic in [&mut busy, &mut paused] {
            cubic.on_ack(&ack(600, 500, 7));
        }
        paused.on_ack(&Ack { app_limited: true, ..ack(60_600, 60_000, 1) });
        busy.on_ack(&ack(700, 600, 7));
        paused.on_ack(&ack(60_700, 60_100, 7));
        assert_eq!(busy.cwnd(), paused.cwnd());
    }

    #[test]
    fn hystart_leaves_slow_start_when_round_trips_grow() {
        let mut cubic = Cubic::new(&Setup::new(MSS)).with_hystart();
        for round in 0..12u64 {
            for i in 0..10 {
                let mut one = ack(round * 540 + i, round * 540, 1);
                one.round_start = i == 0;
                one.rtt.latest += std::time::Duration::from_millis(round * 20);
                cubic.on_ack(&one);
            }
        }
        assert!(!cubic.in_slow_start());
    }
}
