//! SCPS-TP's window control, Vegas with a guard against large queues: CCSDS 714.0-B-2, as restated by
//! equation 1 of the paper on HSWA-TCP and as its reference implementation behaves. The queue of our own
//! segments, measured once per round trip, is held between α and β segments.
//!
//! ```text
//! backlog     σ = W - W BaseRTT / AvgRTT                               once per round trip
//! doubling    W += acked        while W < ssthresh and σ <= γ, else balancing begins
//! balancing   W += 1            σ < α
//!             W                 α <= σ <= β
//!             W -= 1 + min(W / 2, (σ - β) / 2)                         σ > β
//! loss        ssthresh = W = W / 2, once per episode; then balancing
//! timeout     ssthresh = max(2, W / 2), W = 2; then doubling
//! ```
//!
//! | symbol   | here         | unit     | default                             |
//! |----------|--------------|----------|-------------------------------------|
//! | W        | `window`     | segments | [`Setup::initial_window`], 10       |
//! | BaseRTT  | `rtt.min`    | s        | least round trip                    |
//! | AvgRTT   | `RoundMean`  | s        | mean of the round's samples         |
//! | α        | [`ALPHA`]    | segments | 1                                   |
//! | β        | [`BETA`]     | segments | 3                                   |
//! | γ        | [`GAMMA`]    | segments | 1                                   |
//! | ssthresh | `ssthresh`   | segments | [`Setup::initial_ssthresh`] or none |
//!
//! Readings and differences:
//! * The paper writes σ = W / BaseRTT - W / AvgRTT, segments per second; times BaseRTT it is Vegas's
//!   backlog in segments, as the implementation has it. α, β and γ are not printed: Vegas's own values.
//! * Below two segments the implementation doubles again; our least window is two.
//! * A route can be set to mean "losses are corruption, not congestion":
//!   [`Scps::taking_losses_for`]. Then nothing is cut on a gap, and a timeout keeps ssthresh.
//! * Growth is spread over the round's ACKs; the decrease comes at its start.

use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent, Signal};
use crate::parts::sawtooth::{slow_start, ssthresh_bytes};
use crate::parts::{backlog, RoundMean};
use crate::units::{Bytes, Rate, Time};
use crate::window::{segments, Window};

/// α: with fewer segments in queues the window grows. Vegas's value.
pub const ALPHA: f64 = 1.0;
/// β: with more segments in queues it shrinks. Vegas's value.
pub const BETA: f64 = 3.0;
/// γ: with more segments in queues doubling ends. Vegas's value.
pub const GAMMA: f64 = 1.0;
/// Share of the window that stays after a loss.
const KEPT: f64 = 0.5;

/// What a route's losses mean, a setting of SCPS-TP (its default is congestion).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Queues overflow: losses cut the window.
    Congestion,
    /// Bit errors: losses do not cut it.
    Corruption,
}

/// SCPS-TP.
#[derive(Clone, Debug)]
pub struct Scps {
    mss: Bytes,
    window: Window,
    ssthresh: f64,
    cause: Cause,
    doubling: bool,
    /// Growth of this round in segments.
    step: f64,
    round: RoundMean,
    cut_at: Option<Time>,
}

impl Scps {
    /// A controller at its initial window that takes losses for congestion.
    pub fn new(setup: &Setup) -> Self {
        Scps {
            mss: setup.mss,
            window: Window::from_bytes(setup.initial_window, setup.mss),
            ssthresh: setup.initial_ssthresh.map_or(f64::INFINITY, |bytes| segments(bytes, setup.mss)),
            cause: Cause::Congestion,
            doubling: true,
            step: 0.0,
            round: RoundMean::new(),
            cut_at: None,
        }
    }

    /// The same on a route whose losses have this cause.
    pub fn taking_losses_for(mut self, cause: Cause) -> Self {
        self.cause = cause;
        self
    }

    /// A round trip is over: what its mean says about the next one.
    fn judge(&mut self, sigma: f64) {
        if self.doubling {
            self.doubling = sigma <= GAMMA && self.window.segments() < self.ssthresh;
        }
        if self.doubling {
            return;
        }
        self.step = if sigma < ALPHA { 1.0 } else { 0.0 };
        if sigma > BETA {
            let excess = (sigma - BETA) / 2.0;
            self.window.grow(-1.0 - excess.min(self.window.segments() / 2.0));
        }
    }
}

impl Controller for Scps {
    fn name(&self) -> &'static str {
        "scps"
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        let mean = self.round.on_ack(ack.round_start, ack.rtt.latest);
        if self.cut_at.is_some_and(|cut| ack.sent_at <= cut) {
            return;
        }
        if let Some(mean) = mean {
            self.judge(backlog(self.window.segments(), ack.rtt.min, mean));
        }
        if ack.app_limited {
            return;
        }
        let acked = segments(ack.acked, self.mss);
        if self.doubling {
            slow_start(&mut self.window, self.ssthresh, acked);
        } else {
            self.window.grow(self.step * (acked / self.window.segments()).min(1.0));
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        let forgiven = self.cause == Cause::Corruption && loss.signal != Signal::Ecn;
        if loss.new_episode && !forgiven {
            self.ssthresh = Window::new(self.window.segments() * KEPT).segments();
        }
        if loss.signal == Signal::Timeout {
            self.window.set(0.0);
            self.doubling = true;
            self.cut_at = None;
        } else if loss.new_episode && !forgiven {
            self.window.set(self.ssthresh);
            self.doubling = false;
            self.step = 0.0;
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
            phase: if self.doubling { "doubling" } else { "balancing" },
        }
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ack, loss, rtt, MSS, RTT};
    use crate::units::Duration;

    /// A window of 100 segments in balance.
    fn balancing() -> Scps {
        Scps::new(&Setup { initial_window: MSS * 100, initial_ssthresh: Some(MSS * 100), ..Setup::new(MSS) })
    }

    /// One round trip of `latest`, 50 ACKs for two segments each.
    fn round(scps: &mut Scps, now: u64, latest: Duration) {
        for i in 0..50 {
            let mut one = ack(now + i, now - 540, 2);
            one.rtt = crate::Rtt { latest, smoothed: latest, min: RTT };
            one.round_start = i == 0;
            scps.on_ack(&one);
        }
    }

    /// The round trip with `n` of a hundred segments in queues.
    fn waiting(n: u32) -> Duration {
        RTT * 100 / (100 - n)
    }

    #[test]
    fn below_one_waiting_segment_the_window_grows_by_one_and_between_it_stays() {
        for (n, expected) in [(0, 1.0), (2, 0.0)] {
            let mut scps = balancing();
            round(&mut scps, 540, waiting(n));
            let before = scps.window.segments();
            round(&mut scps, 1080, waiting(n));
            let grown = scps.window.segments() - before;
            assert!((grown - expected).abs() < 0.02, "{n} waiting: {grown}");
        }
    }

    #[test]
    fn above_three_waiting_segments_it_gives_up_one_and_half_of_the_excess() {
        let mut scps = balancing();
        round(&mut scps, 540, waiting(13));
        round(&mut scps, 1080, waiting(13));
        // One and (13 - 3) / 2.
        assert!((scps.window.segments() - 94.0).abs() < 0.1, "{}", scps.window.segments());
    }

    #[test]
    fn doubling_ends_when_a_segment_waits() {
        let mut scps = Scps::new(&Setup { initial_window: MSS * 100, ..Setup::new(MSS) });
        round(&mut scps, 540, RTT);
        assert_eq!((scps.cwnd(), scps.snapshot().phase), (MSS * 200, "doubling"));
        // Two of the 200 segments wait in the next round, and the one after it knows.
        round(&mut scps, 1080, waiting(1));
        round(&mut scps, 1620, waiting(1));
        assert_eq!(scps.snapshot().phase, "balancing");
    }

    #[test]
    fn a_loss_halves_once_and_a_timeout_doubles_again_to_half_the_window() {
        let mut scps = balancing();
        scps.on_loss(&loss(1000, 400, Signal::Gap, true));
        scps.on_loss(&loss(1001, 401, Signal::Gap, false));
        assert_eq!((scps.cwnd(), scps.snapshot().phase), (MSS * 50, "balancing"));
        scps.on_loss(&loss(5000, 4000, Signal::Timeout, true));
        assert_eq!((scps.cwnd(), scps.snapshot().ssthresh), (MSS * 2, Some(MSS * 25)));
        scps.on_ack(&Ack { rtt: rtt(RTT), ..ack(6000, 5400, 2) });
        assert_eq!((scps.cwnd(), scps.snapshot().phase), (MSS * 4, "doubling"));
    }

    #[test]
    fn on_a_route_with_corruption_losses_cost_nothing_and_marks_still_do() {
        let mut scps = balancing().taking_losses_for(Cause::Corruption);
        scps.on_loss(&loss(1000, 400, Signal::Gap, true));
        assert_eq!(scps.cwnd(), MSS * 100);
        scps.on_loss(&loss(2000, 1400, Signal::Ecn, true));
        assert_eq!(scps.cwnd(), MSS * 50);
    }
}
