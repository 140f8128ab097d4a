//! HSWA-TCP ("High-Speed Windows Adjusting", also spelt HSPA-TCP by its authors): SCPS-TP whose window
//! grows by S segments per round trip, more the fewer bit errors there are, and less the more of the
//! delay is queueing. Fact sheet: paper 003, sections II and III.
//!
//! ```text
//! step        S = -A lg(p_bit)                              80, 70, 60, 50 at 1e-8, 1e-7, 1e-6, 1e-5
//! delay       TD = AvgRTT - Unit_TD,  BaseTD = min of TD over ten periods
//! doubling    W += acked            while σ <= γ as in SCPS-TP, and W < ssthresh
//! growing     W += S                TD = BaseTD             per round trip
//!             W += S (2 - TD / BaseTD)  BaseTD < TD < 2 BaseTD
//!             W                     TD >= 2 BaseTD
//! loss        ssthresh = W = W / 2, once per episode
//! timeout     ssthresh = W / 2, W = 2
//! pacing      W / SRTT
//! estimate    p_bit = -ln(1 - losses) / bits of a segment
//! ```
//!
//! | symbol   | here              | unit         | default                            |
//! |----------|-------------------|--------------|------------------------------------|
//! | W        | `window`          | segments     | [`Setup::initial_window`], 10      |
//! | A        | [`STEEPNESS`]     | segments     | 10                                 |
//! | p_bit    | `errors`          | per bit      | [`Setup::ber`], or estimated       |
//! | AvgRTT   | `RoundMean`       | s            | mean of the round's samples        |
//! | Unit_TD  | half of `rtt.min` | s            |                                    |
//! | BaseTD   | `base`            | s            | [`PERIODS`] periods                |
//! | γ        | [`GAMMA`]         | segments     | 1, as in [`super::scps`]           |
//!
//! Under random loss p the mean window is sqrt(1.5 S / p) segments.
//!
//! Readings and differences:
//! * The step is per round trip: per ACK a step of 80 would multiply the window by 81 in each round
//!   trip. It is spread over the round's ACKs.
//! * An observation period is one round trip. "TD = BaseTD" holds within 1 %: jitter makes equal
//!   delays impossible.
//! * Unit_TD is half the connection's least round trip, not half of the last period's: with a standing
//!   queue the printed form would stop only at twice the queue.
//! * Ten periods forget a delay without queue when a queue stands that long. That is as printed;
//!   [`Hswa::with_lifelong_base`] never forgets.
//! * Where the error rate is not given it is estimated from losses, all taken for bit errors, over about
//!   the last ten thousand segments, and kept between 1e-10 and 1e-2; S is at least 1.
//! * The paper counts on steps of 80 segments finding room in queues; added at once they would overflow
//!   one of 50 packets. Hence they are spread, and the window is paced; bursts cost a tenth of the rate
//!   there.
//! * cwnd_lim is [`Window`]'s ceiling; the paper says that of window scaling, 2³⁰ bytes.

pub use super::scps::GAMMA;
use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent, Signal};
use crate::parts::sawtooth::{slow_start, ssthresh_bytes};
use crate::parts::{backlog, RoundMean, WindowedMin};
use crate::units::{Ber, Bytes, Duration, Rate, Time};
use crate::window::{segments, Window};

/// A: segments per power of ten, paper 003.
pub const STEEPNESS: f64 = 10.0;
/// Periods after which BaseTD is forgotten, paper 003.
pub const PERIODS: u64 = 10;
/// Delays within this factor are equal: our choice.
const EQUAL: f64 = 1.01;
/// Bit error rates that are believed: our choice.
const BELIEVED: (f64, f64) = (1e-10, 1e-2);
/// Least step in segments: our choice.
const STEP_LEAST: f64 = 1.0;
/// Segments over which losses are counted: several losses at 1e-7 and segments of 1500 bytes.
const MEMORY: f64 = 10_000.0;
/// Share of the window that stays after a loss.
const KEPT: f64 = 0.5;

/// HSWA-TCP.
#[derive(Clone, Debug)]
pub struct Hswa {
    mss: Bytes,
    window: Window,
    ssthresh: f64,
    errors: Errors,
    doubling: bool,
    /// Growth of this round in segments.
    step: f64,
    period: u64,
    round: RoundMean,
    base: WindowedMin<Duration>,
    smoothed: Option<Duration>,
    cut_at: Option<Time>,
}

/// Where the bit error rate comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Errors {
    Configured(Ber),
    /// Segments acknowledged and lost, both forgetting at the same pace.
    Counted {
        acked: f64,
        lost: f64,
    },
}

impl Hswa {
    /// A controller at its initial window that estimates the bit error rate unless the set-up gives it.
    pub fn new(setup: &Setup) -> Self {
        Hswa {
            mss: setup.mss,
            window: Window::from_bytes(setup.initial_window, setup.mss),
            ssthresh: setup.initial_ssthresh.map_or(f64::INFINITY, |bytes| segments(bytes, setup.mss)),
            errors: setup.ber.map_or(Errors::Counted { acked: 0.0, lost: 0.0 }, Errors::Configured),
            doubling: true,
            step: 0.0,
            period: 0,
            round: RoundMean::new(),
            base: WindowedMin::new(PERIODS),
            smoothed: None,
            cut_at: None,
        }
    }

    /// The same with a BaseTD that is never forgotten.
    pub fn with_lifelong_base(mut self) -> Self {
        self.base = WindowedMin::new(u64::MAX);
        self
    }

    /// p_bit: the bit error rate, given or estimated, between 1e-10 and 1e-2.
    pub fn bit_error_rate(&self) -> f64 {
        let errors = match self.errors {
            Errors::Configured(ber) => ber.value(),
            Errors::Counted { acked, lost } => {
                let share = if lost > 0.0 { lost / (acked + lost) } else { 0.0 };
                -libm::log1p(-share.min(1.0)) / (self.mss.bits() as f64).max(1.0)
            }
        };
        errors.clamp(BELIEVED.0, BELIEVED.1)
    }

    /// S: greatest growth per round trip, in segments.
    pub fn greatest_step(&self) -> f64 {
        (-STEEPNESS * libm::log10(self.bit_error_rate())).max(STEP_LEAST)
    }

    fn count(&mut self, more_acked: f64, more_lost: f64) {
        if let Errors::Counted { acked, lost } = &mut self.errors {
            *acked += more_acked;
            *lost += more_lost;
            let all = *acked + *lost;
            if all > MEMORY {
                *acked *= MEMORY / all;
                *lost *= MEMORY / all;
            }
        }
    }

    /// A period is over: its mean round trip says what the next one may add.
    fn judge(&mut self, mean: Duration, least: Duration) {
        self.period = self.period.saturating_add(1);
        let delay = mean.saturating_sub(least / 2);
        self.base.update(self.period, delay);
        let base = self.base.get().unwrap_or(delay).as_secs_f64();
        let delay = delay.as_secs_f64();
        self.step = if delay <= EQUAL * base {
            self.greatest_step()
        } else {
            self.greatest_step() * (2.0 - delay / base).max(0.0)
        };
        let sigma = backlog(self.window.segments(), least, mean);
        self.doubling &= sigma <= GAMMA && self.window.segments() < self.ssthresh;
    }
}

impl Controller for Hswa {
    fn name(&self) -> &'static str {
        "hswa"
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        self.smoothed = Some(ack.rtt.smoothed);
        let acked = segments(ack.acked, self.mss);
        self.count(acked, 0.0);
        if let Some(mean) = self.round.on_ack(ack.round_start, ack.rtt.latest) {
            self.judge(mean, ack.rtt.min);
        }
        if ack.app_limited || self.cut_at.is_some_and(|cut| ack.sent_at <= cut) {
            return;
        }
        if self.doubling {
            slow_start(&mut self.window, self.ssthresh, acked);
        } else {
            self.window.grow(self.step * (acked / self.window.segments()).min(1.0));
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.count(0.0, segments(loss.lost, self.mss));
        if loss.new_episode {
            self.ssthresh = self.window.segments() * KEPT;
        }
        if loss.signal == Signal::Timeout {
            self.window.set(0.0);
            self.doubling = true;
            self.cut_at = None;
        } else if loss.new_episode {
            self.window.set(self.ssthresh);
            self.doubling = false;
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
            ssthresh: ssthresh_bytes(self.ssthresh, self.mss),
            pacing_rate: self.pacing_rate(),
            phase: if self.doubling { "doubling" } else { "growing" },
        }
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ack, loss, MSS, RTT};

    /// A window of 1000 segments past its doubling, at a bit error rate.
    fn growing(ber: f64) -> Hswa {
        Hswa::new(&Setup {
            initial_window: MSS * 1000,
            initial_ssthresh: Some(MSS * 1000),
            ber: Ber::new(ber),
            ..Setup::new(MSS)
        })
    }

    /// One round trip of `latest`, 500 ACKs for two segments each.
    fn round(hswa: &mut Hswa, now: u64, latest: Duration) {
        for i in 0..500 {
            let mut one = ack(now + i, now - 540, 2);
            one.rtt = crate::Rtt { latest, smoothed: RTT, min: RTT };
            one.round_start = i == 0;
            hswa.on_ack(&one);
        }
    }

    #[test]
    fn the_step_is_the_papers_eighty_to_fifty_segments() {
        for (ber, expected) in [(1e-8, 80.0), (1e-7, 70.0), (1e-6, 60.0), (1e-5, 50.0)] {
            let step = growing(ber).greatest_step();
            assert!((step - expected).abs() < 1e-9, "{ber}: {step}");
        }
        assert_eq!(growing(0.0).greatest_step(), 100.0);
        assert!((growing(1.0).greatest_step() - 20.0).abs() < 1e-9);
    }

    #[test]
    fn without_a_queue_the_window_grows_by_the_step_per_round_trip() {
        let mut hswa = growing(1e-8);
        round(&mut hswa, 540, RTT);
        let before = hswa.window.segments();
        round(&mut hswa, 1080, RTT);
        let grown = hswa.window.segments() - before;
        assert!((grown - 80.0).abs() < 4.0, "{grown}");
    }

    #[test]
    fn growth_falls_with_the_queue_and_stops_when_it_is_half_a_round_trip() {
        // BaseTD is half a round trip, so a queue of a quarter makes TD 1.5 BaseTD.
        for (queue, expected) in [(4, 40.0), (2, 0.0), (1, 0.0)] {
            let mut hswa = growing(1e-8);
            round(&mut hswa, 540, RTT);
            round(&mut hswa, 1080, RTT + RTT / queue);
            let before = hswa.window.segments();
            round(&mut hswa, 1620, RTT + RTT / queue);
            let grown = hswa.window.segments() - before;
            // The window has grown by 8 % since the round's 1000 segments left.
            assert!((grown - expected).abs() < 4.0, "queue of 1/{queue}: {grown}");
        }
    }

    #[test]
    fn ten_periods_forget_the_empty_queue_and_a_lifelong_base_does_not() {
        for (mut hswa, forgets) in [(growing(1e-8), true), (growing(1e-8).with_lifelong_base(), false)] {
            (1..=3).for_each(|i| round(&mut hswa, i * 540, RTT));
            (4..=20).for_each(|i| round(&mut hswa, i * 540, RTT * 3 / 2));
            assert_eq!(hswa.step > 0.0, forgets, "step of {}", hswa.step);
        }
    }

    #[test]
    fn the_error_rate_is_found_from_the_losses() {
        let mut hswa = Hswa::new(&Setup::new(MSS));
        assert_eq!(hswa.bit_error_rate(), 1e-10);
        // PER = 12000 bits times 1e-7 = 0.12 %.
        for i in 0..100 {
            hswa.on_ack(&ack(540 + i, i, 832));
            hswa.on_loss(&loss(540 + i, i, Signal::Gap, i == 0));
        }
        let estimate = hswa.bit_error_rate() / 1e-7;
        // Just after a loss the estimate is at its highest.
        assert!((0.98..1.1).contains(&estimate), "{estimate}");
    }

    #[test]
    fn a_loss_halves_once() {
        let mut hswa = growing(1e-8);
        hswa.on_loss(&loss(1000, 400, Signal::Gap, true));
        hswa.on_loss(&loss(1001, 401, Signal::Gap, false));
        assert_eq!(hswa.cwnd(), MSS * 500);
    }
}
