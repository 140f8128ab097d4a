//! Westwood+: L. A. Grieco and S. Mascolo, "Performance evaluation and comparison of Westwood+, New
//! Reno, and Vegas TCP congestion control", ACM SIGCOMM Computer Communication Review 34(2) (2004). The
//! rate at which data were delivered, not a fixed share, says what window stays after a loss.
//!
//! ```text
//! sample                b_k = delivered in a round trip / its length, 50 ms or longer
//! filter, twice         B1 = 7/8 B1 + 1/8 b_k,   BWE = 7/8 BWE + 1/8 B1
//! slow start            W += acked               while W < ssthresh
//! congestion avoidance  W += acked / W
//! loss, ECN mark        ssthresh = BWE RTTmin,   W = min(W, ssthresh), once per episode
//! timeout               ssthresh = BWE RTTmin,   W = 2
//! ```
//!
//! | symbol   | here         | unit     | default                             |
//! |----------|--------------|----------|-------------------------------------|
//! | W        | `window`     | segments | [`Setup::initial_window`], 10       |
//! | BWE      | `filter`     | bit/s    | first sample                        |
//! | RTTmin   | `rtt.min`    | s        | least round trip                    |
//! | ssthresh | `ssthresh`   | segments | [`Setup::initial_ssthresh`] or none |
//!
//! Readings and differences:
//! * The weights and the 50 ms are Linux's, and so is the start from the first sample (Mascolo to the
//!   end2end-interest list, July 2006). A first sample alone would be far too low after three or four
//!   doublings, so in slow start the newest sample counts if it is higher than the filter.
//! * Samples are counted in acknowledged bytes, selectively acknowledged ones included, as the paper
//!   does with duplicate ACKs. Round trips in which the application was the limit give no sample.
//! * The paper's ssthresh before any sample is unknown: half the window then.
//! * Floor of two segments and no growth when idle, as in [`super::newreno`].

use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent, Signal};
use crate::parts::sawtooth::{slow_start, ssthresh_bytes};
use crate::units::{Bytes, Duration, Rate, Time};
use crate::window::{segments, Window};

/// Share of the old value that each stage of the filter keeps, as in Linux.
const OLD: f64 = 0.875;
/// Shortest time of one sample, as in Linux.
const SAMPLE_LEAST: Duration = Duration::from_millis(50);
/// Share of the window that stays while no sample was taken.
const KEPT_BLINDLY: f64 = 0.5;

/// Westwood+.
#[derive(Clone, Debug)]
pub struct Westwood {
    mss: Bytes,
    window: Window,
    ssthresh: f64,
    /// Both stages of the filter, in bit/s.
    filter: Option<(f64, f64)>,
    sample: Sample,
    cut_at: Option<Time>,
}

/// What was delivered since a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    since: Option<Time>,
    delivered: Bytes,
    app_limited: bool,
}

impl Westwood {
    /// A controller at its initial window.
    pub fn new(setup: &Setup) -> Self {
        Westwood {
            mss: setup.mss,
            window: Window::from_bytes(setup.initial_window, setup.mss),
            ssthresh: setup.initial_ssthresh.map_or(f64::INFINITY, |bytes| segments(bytes, setup.mss)),
            filter: None,
            sample: Sample::default(),
            cut_at: None,
        }
    }

    /// BWE: the estimate of the rate, absent before the first round trip.
    pub fn bandwidth(&self) -> Option<Rate> {
        self.filter.map(|(_, rate)| Rate::from_f64(rate))
    }

    fn in_slow_start(&self) -> bool {
        self.window.segments() < self.ssthresh
    }

    fn measure(&mut self, ack: &Ack) {
        self.sample.delivered += ack.acked;
        self.sample.app_limited |= ack.app_limited;
        let Some(since) = self.sample.since else {
            self.sample = Sample { since: Some(ack.now), ..Sample::default() };
            // The first round's bytes took one round trip.
            if !ack.app_limited {
                self.take(ack.acked.per(ack.rtt.latest).as_f64());
            }
            return;
        };
        let length = ack.now.since(since);
        if ack.round_start && length >= SAMPLE_LEAST {
            if !self.sample.app_limited {
                self.take(self.sample.delivered.per(length).as_f64());
            }
            self.sample = Sample { since: Some(ack.now), ..Sample::default() };
        }
    }

    fn take(&mut self, sample: f64) {
        let slow_start = self.in_slow_start();
        self.filter = Some(match self.filter {
            Some((first, second)) if !slow_start || sample < second => {
                let first = OLD * first + (1.0 - OLD) * sample;
                (first, OLD * second + (1.0 - OLD) * first)
            }
            _ => (sample, sample),
        });
    }

    /// BWE RTTmin in segments.
    fn pipe(&self, rtt_min: Duration) -> f64 {
        self.bandwidth()
            .map_or(self.window.segments() * KEPT_BLINDLY, |rate| segments(rate.bdp(rtt_min), self.mss))
    }
}

impl Controller for Westwood {
    fn name(&self) -> &'static str {
        "westwood"
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        self.measure(ack);
        if ack.app_limited || self.cut_at.is_some_and(|cut| ack.sent_at <= cut) {
            return;
        }
        let mut acked = segments(ack.acked, self.mss);
        if self.in_slow_start() {
            acked = slow_start(&mut self.window, self.ssthresh, acked);
        }
        if acked > 0.0 {
            self.window.grow(acked / self.window.segments());
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        if loss.new_episode {
            self.ssthresh = Window::new(self.pipe(loss.rtt.min)).segments();
        }
        if loss.signal == Signal::Timeout {
            self.window.set(0.0);
            self.cut_at = None;
        } else if loss.new_episode {
            self.window.set(self.window.segments().min(self.ssthresh));
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

    /// A window of `window` segments of which `used` are delivered per round trip of 540 ms.
    fn after_rounds(window: u64, used: u64, rounds: u64) -> Westwood {
        let mut westwood = Westwood::new(&Setup {
            initial_window: MSS * window,
            initial_ssthresh: Some(MSS * window),
            ..Setup::new(MSS)
        });
        for round in 1..=rounds {
            let now = round * 540;
            westwood.on_ack(&Ack { round_start: true, ..ack(now, now - 540, used) });
        }
        westwood
    }

    #[test]
    fn a_random_loss_on_a_used_window_costs_next_to_nothing() {
        let mut westwood = after_rounds(100, 100, 20);
        let before = westwood.window.segments();
        westwood.on_loss(&loss(11_000, 10_500, Signal::Gap, true));
        westwood.on_loss(&loss(11_001, 10_501, Signal::Gap, false));
        let kept = westwood.window.segments() / before;
        assert!((0.8..=1.0).contains(&kept), "{kept}");
    }

    #[test]
    fn a_window_that_waits_in_queues_is_cut_to_what_was_delivered() {
        // 300 segments of window, of which the link delivers 100 per least round trip.
        let mut westwood = after_rounds(300, 100, 60);
        westwood.on_loss(&loss(40_000, 39_000, Signal::Gap, true));
        assert!((westwood.window.segments() - 100.0).abs() < 1.0, "{}", westwood.window.segments());
    }

    #[test]
    fn the_filter_forgets_at_the_recorded_pace() {
        let mut westwood = after_rounds(100, 100, 2);
        let high = westwood.filter.unwrap().1;
        // One sample at zero: the second stage falls by 1/64.
        westwood.on_ack(&Ack { round_start: true, ..ack(1620, 1080, 0) });
        let fallen = westwood.filter.unwrap().1 / high;
        assert!((fallen - 63.0 / 64.0).abs() < 1e-9, "{fallen}");
    }

    #[test]
    fn a_timeout_keeps_the_measured_pipe_as_threshold() {
        let mut westwood = after_rounds(300, 100, 60);
        westwood.on_loss(&loss(40_000, 39_000, Signal::Timeout, true));
        assert_eq!(westwood.cwnd(), MSS * 2);
        assert!((westwood.ssthresh - 100.0).abs() < 1.0, "{}", westwood.ssthresh);
    }

    #[test]
    fn a_pause_of_the_application_is_not_taken_for_a_slow_link() {
        let mut westwood = after_rounds(100, 100, 10);
        let before = westwood.bandwidth();
        for round in 11..30u64 {
            let now = round * 540;
            westwood.on_ack(&Ack { round_start: true, app_limited: true, ..ack(now, now - 540, 1) });
        }
        assert_eq!(westwood.bandwidth(), before);
    }
}
