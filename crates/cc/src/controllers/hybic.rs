//! HYBIC, paper 004: Hybla's slow start and CUBIC's curve, both in the time of a reference round trip.
//! This is the packet form (the paper's section on implementation, equation 7); its closed form
//! (equations 4 to 6) with the published table belongs to the lab.
//!
//! ```text
//! ρ                     = max(RTT / RTT_ref, 1)
//! slow start            W += 2^ρ - 1           per acknowledged segment, W <= ρ γ
//! curve                 W(t) = A (t - K)³ + W_max,   K = cbrt((W_max - W_epoch) / A)
//! friendly              W_f(t) = β W_max + 3 t (1 - β) / ((1 + β) RTT_ref)
//! congestion avoidance  W = W_f(t)              where W_f(t) > W(t)
//!                       W += (W(t + RTT) - W) / W   per acknowledged segment otherwise
//! loss                  W_max = W, ssthresh = W = β W, once per episode
//! timeout               ssthresh = β W, W = 2
//! pacing                W / SRTT
//! ```
//!
//! | symbol  | here         | unit         | default                                       |
//! |---------|--------------|--------------|-----------------------------------------------|
//! | RTT_ref | [`RTT_REF`]  | s            | [`Setup::reference_rtt`] or 100 ms            |
//! | γ       | `gamma`      | segments     | [`Setup::initial_ssthresh`] or [`GAMMA`], 128 |
//! | A       | [`SCALE`]    | segments/s³  | 0.4                                           |
//! | β       | [`KEPT`]     | share kept   | 0.7                                           |
//! | W_max   | `w_max`      | segments     | ρ γ at the end of slow start, K = 0           |
//! | ρ       | `rho`        | 1            | 22.87 at 2287 ms                              |
//!
//! Readings and differences:
//! * β is not given, and the paper's two formulas use it with complementary meanings: K with the share
//!   given up (as in the CUBIC paper of 2008), the friendly region with the share kept (RFC 8312). Here
//!   it is the share kept, 0.7, and K has 1 - β.
//! * Equation 7 lacks "W +" before "(target - W) / W"; the target is not defined and is CUBIC's
//!   W(t + RTT), at most 1.5 W (RFC 9438 §4.2).
//! * A first threshold that the host gives is γ, so slow start ends at ρ times as much: it is the threshold
//!   a connection with the reference round trip would have.
//! * The friendly region begins at W_epoch where there was no cut, so that the first one does not fall
//!   below the window. It never lowers the window.
//! * ρ is cut off at 16 in 2^ρ, as in [`super::hybla`]; slow start is one ACK long anyway.
//! * The first round trip must be allowed for: at 2.287 s an initial timeout of one second expires first.

use super::cubic::{KEPT, SCALE, TARGET_BOUND};
use super::hybla::RHO_MOST_IN_SLOW_START;
use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent, Signal};
use crate::parts::sawtooth::{slow_start, ssthresh_bytes};
use crate::parts::CubicCurve;
use crate::units::{Bytes, Duration, Rate, Time};
use crate::window::{segments, Window};

/// RTT_ref, the reference round trip of paper 004.
pub const RTT_REF: Duration = Duration::from_millis(100);
/// γ: first threshold of a connection with the reference round trip, in segments; paper 004.
pub const GAMMA: f64 = 128.0;

/// HYBIC.
#[derive(Clone, Debug)]
pub struct Hybic {
    mss: Bytes,
    reference: Duration,
    window: Window,
    gamma: f64,
    /// The threshold, once set by a loss; ρ γ before.
    ssthresh: Option<f64>,
    /// W_max; zero before the first loss.
    w_max: f64,
    epoch: Option<Epoch>,
    slow_start: bool,
    smoothed: Option<Duration>,
    cut_at: Option<Time>,
    last_ack: Time,
}

/// One stretch of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Time,
    curve: CubicCurve,
    window: f64,
}

impl Hybic {
    /// A controller at its initial window; the reference round trip is the set-up's or the paper's.
    pub fn new(setup: &Setup) -> Self {
        Hybic {
            mss: setup.mss,
            reference: setup.reference_rtt.unwrap_or(RTT_REF).max(Duration::from_nanos(1)),
            window: Window::from_bytes(setup.initial_window, setup.mss),
            gamma: setup.initial_ssthresh.map_or(GAMMA, |bytes| segments(bytes, setup.mss)),
            ssthresh: None,
            w_max: 0.0,
            epoch: None,
            slow_start: true,
            smoothed: None,
            cut_at: None,
            last_ack: Time::ZERO,
        }
    }

    fn rho(&self, rtt: Duration) -> f64 {
        (rtt.as_secs_f64() / self.reference.as_secs_f64()).max(1.0)
    }

    fn congestion_avoidance(&mut self, ack: &Ack, acked: f64) {
        let window = self.window.segments();
        let w_max = self.w_max;
        let epoch = *self.epoch.get_or_insert_with(|| Epoch {
            start: ack.now,
            curve: CubicCurve::new(window, w_max, SCALE),
            window,
        });
        let t = ack.now.since(epoch.start);
        let slope = 3.0 * (1.0 - KEPT) / ((1.0 + KEPT) * self.reference.as_secs_f64());
        let friendly = epoch.window + slope * t.as_secs_f64();
        // Where an epoch begins the two meet: rounding must not decide.
        if !t.is_zero() && friendly > epoch.curve.at(t) {
            // As far as ACKs allow: 1.5 windows per round trip, like the curve.
            let most = window + (TARGET_BOUND - 1.0) * acked;
            self.window.set(window.max(friendly.min(most)));
        } else {
            let target =
                epoch.curve.at(t.saturating_add(ack.rtt.smoothed)).clamp(window, TARGET_BOUND * window);
            self.window.grow((target - window) * (acked / window).min(1.0));
        }
    }
}

impl Controller for Hybic {
    fn name(&self) -> &'static str {
        "hybic"
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        self.smoothed = Some(ack.rtt.smoothed);
        let quiet = ack.now.since(self.last_ack);
        self.last_ack = self.last_ack.max(ack.now);
        if ack.app_limited {
            // RFC 9438 §5.8: idle time does not move the curve on.
            if let Some(epoch) = &mut self.epoch {
                epoch.start += quiet;
            }
            return;
        }
        if self.cut_at.is_some_and(|cut| ack.sent_at <= cut) {
            return;
        }
        let mut acked = segments(ack.acked, self.mss);
        if self.slow_start {
            let rho = self.rho(ack.rtt.min);
            let top = self.ssthresh.unwrap_or(rho * self.gamma);
            let step = libm::exp2(rho.min(RHO_MOST_IN_SLOW_START)) - 1.0;
            acked = slow_start(&mut self.window, top, step * acked) / step;
            self.slow_start = self.window.segments() < top;
        }
        if acked > 0.0 && !self.slow_start {
            self.congestion_avoidance(ack, acked);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        if loss.new_episode {
            self.w_max = self.window.segments();
            self.ssthresh = Some(self.w_max * KEPT);
            self.epoch = None;
        }
        if loss.signal == Signal::Timeout {
            self.window.set(0.0);
            self.epoch = None;
            self.slow_start = true;
            self.cut_at = None;
        } else if loss.new_episode {
            self.window.scale(KEPT);
            self.slow_start = false;
            self.cut_at = Some(loss.now);
        }
    }

    fn cwnd(&self) -> Bytes {
        self.window.bytes(self.mss)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.smoothed.map(|rtt| self.cwnd().per(rtt).max(Rate::bit(1)))
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            cwnd: self.cwnd(),
            ssthresh: self.ssthresh.and_then(|segments| ssthresh_bytes(segments, self.mss)),
            pacing_rate: self.pacing_rate(),
            phase: if self.slow_start { "slow start" } else { "congestion avoidance" },
        }
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ack, loss, rtt, MSS};

    /// The round trip of paper 004.
    const FAR: Duration = Duration::from_millis(2287);

    fn new() -> Hybic {
        Hybic::new(&Setup::new(MSS))
    }

    #[test]
    fn slow_start_is_one_ack_long_and_ends_at_rho_gamma() {
        let mut hybic = new();
        hybic.on_ack(&Ack { rtt: rtt(FAR), ..ack(2287, 0, 1) });
        // 22.87 * 128 = 2927 segments.
        assert!((hybic.window.segments() - 2927.36).abs() < 0.01, "{}", hybic.window.segments());
        assert!(!hybic.slow_start);
    }

    #[test]
    fn the_set_up_may_name_the_reference_round_trip() {
        let reference_rtt = Some(FAR / 4);
        let mut hybic = Hybic::new(&Setup { reference_rtt, ..Setup::new(MSS) });
        (0..100).for_each(|i| hybic.on_ack(&Ack { rtt: rtt(FAR), ..ack(2287 + i, 0, 1) }));
        // rho is 4: slow start ends at 4 * 128 segments, and the curve begins level.
        assert!((511.9..=515.0).contains(&hybic.window.segments()), "{}", hybic.window.segments());
    }

    #[test]
    fn near_the_reference_it_starts_like_reno() {
        let mut hybic = new();
        hybic.on_ack(&Ack { rtt: rtt(RTT_REF), ..ack(100, 0, 10) });
        assert_eq!(hybic.cwnd(), MSS * 20);
    }

    #[test]
    fn without_a_loss_the_curve_begins_at_its_plateau() {
        let mut hybic = new();
        for i in 1..=200u64 {
            let now = 2287 + i * 100;
            let acked = (hybic.window.segments() / 22.87).round().max(1.0) as u64;
            hybic.on_ack(&Ack { rtt: rtt(FAR), ..ack(now, now - 2287, acked) });
        }
        // K = 0: W(20 s) = 2927 + 0.4 * 20³ = 6127, and the window is between W(t) and W(t + RTT).
        let window = hybic.window.segments();
        assert!((0.95 * 6127.0..1.05 * 7368.0).contains(&window), "{window}");
    }

    #[test]
    fn the_friendly_region_rises_by_five_segments_per_second() {
        let mut hybic = Hybic::new(&Setup {
            initial_window: MSS * 100,
            initial_ssthresh: Some(MSS * 100),
            ..Setup::new(MSS)
        });
        hybic.on_loss(&loss(1, 0, Signal::Gap, true));
        assert_eq!(hybic.cwnd(), MSS * 70);
        // K = cbrt(30 / 0.4) = 4.2 s. On the plateau the curve is flat at 100, the line goes on.
        for i in 0..=800u64 {
            let now = 100 + i * 10;
            hybic.on_ack(&Ack { rtt: rtt(RTT_REF), ..ack(now, now - 90, 10) });
        }
        // 70 + 8 * 3 * 0.3 / (1.7 * 0.1) = 112; the curve: 0.4 * 3.8³ + 100 = 121.
        let window = hybic.window.segments();
        assert!((112.0..=126.0).contains(&window), "{window}");
        let line = 3.0 * 0.3 / (1.7 * 0.1);
        assert!((line - 5.29f64).abs() < 0.01);
    }

    #[test]
    fn a_loss_keeps_seven_tenths_once_and_a_timeout_starts_again() {
        let mut hybic = new();
        hybic.on_ack(&Ack { rtt: rtt(FAR), ..ack(2287, 0, 1) });
        let before = hybic.window.segments();
        hybic.on_loss(&loss(5000, 3000, Signal::Gap, true));
        hybic.on_loss(&loss(5001, 3001, Signal::Gap, false));
        assert!((hybic.window.segments() / before - 0.7).abs() < 1e-9);
        hybic.on_loss(&loss(20_000, 15_000, Signal::Timeout, true));
        assert_eq!((hybic.cwnd(), hybic.snapshot().phase), (MSS * 2, "slow start"));
    }
}
