//! The window of loss-based controllers: slow start up to a threshold, one cut per recovery episode, no
//! growth from packets that left before the cut (RFC 9002 §7.3). How it grows beyond the threshold and
//! what share a cut leaves is each controller's own.

use crate::controller::{Setup, Snapshot};
use crate::event::{Ack, Loss, Signal};
use crate::units::{Bytes, Rate, Time};
use crate::window::{segments, Window};

/// A window with its threshold and the moment of the last cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sawtooth {
    mss: Bytes,
    window: Window,
    ssthresh: f64,
    /// Packets that left before do not make the window grow.
    cut_at: Option<Time>,
}

impl Sawtooth {
    /// The first window and threshold of a set-up.
    pub fn new(setup: &Setup) -> Self {
        Sawtooth {
            mss: setup.mss,
            window: Window::from_bytes(setup.initial_window, setup.mss),
            ssthresh: setup.initial_ssthresh.map_or(f64::INFINITY, |bytes| segments(bytes, setup.mss)),
            cut_at: None,
        }
    }

    /// The window in segments.
    pub fn segments(&self) -> f64 {
        self.window.segments()
    }

    /// The window in bytes.
    pub fn bytes(&self) -> Bytes {
        self.window.bytes(self.mss)
    }

    /// The threshold in segments; infinite while it is unknown.
    pub fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    /// Whether the window is below the threshold.
    pub fn in_slow_start(&self) -> bool {
        self.window.segments() < self.ssthresh
    }

    /// Segments of an ACK that may make the window grow: none if the application was the limit
    /// (RFC 9002 §7.8) or the packets left before the last cut (§7.3.2).
    pub fn usable(&self, ack: &Ack) -> Option<f64> {
        let idle = ack.app_limited || self.cut_at.is_some_and(|cut| ack.sent_at <= cut);
        (!idle).then(|| segments(ack.acked, self.mss))
    }

    /// Adds `acked` segments up to the threshold; returns those left for congestion avoidance.
    pub fn slow_start(&mut self, acked: f64) -> f64 {
        slow_start(&mut self.window, self.ssthresh, acked)
    }

    /// Adds `step` segments, but not beyond `top`, which is raised to the present window; returns the
    /// segments left over.
    pub fn grow_to(&mut self, top: f64, step: f64) -> f64 {
        let top = top.max(self.window.segments());
        slow_start(&mut self.window, top, step)
    }

    /// Adds segments.
    pub fn grow(&mut self, segments: f64) {
        self.window.grow(segments);
    }

    /// A loss, of which `kept` is the share of the window that stays: once per episode. A timeout leaves
    /// the least window and slow start begins at once (RFC 9002 §7.6.2).
    pub fn on_loss(&mut self, loss: &Loss, kept: f64) {
        if loss.new_episode {
            self.ssthresh = self.window.segments() * kept;
        }
        if loss.signal == Signal::Timeout {
            self.window.set(0.0);
            self.cut_at = None;
        } else if loss.new_episode {
            self.window.set(self.ssthresh);
            self.cut_at = Some(loss.now);
        }
    }

    /// For people.
    pub fn snapshot(&self, pacing_rate: Option<Rate>) -> Snapshot {
        Snapshot {
            cwnd: self.bytes(),
            ssthresh: ssthresh_bytes(self.ssthresh, self.mss),
            pacing_rate,
            phase: if self.in_slow_start() { "slow start" } else { "congestion avoidance" },
        }
    }
}

/// Adds `acked` segments up to the threshold; returns the segments left for congestion avoidance.
pub(crate) fn slow_start(window: &mut Window, ssthresh: f64, acked: f64) -> f64 {
    let step = acked.min((ssthresh - window.segments()).max(0.0));
    window.grow(step);
    acked - step
}

/// A threshold for people: none while it is unknown.
pub(crate) fn ssthresh_bytes(ssthresh: f64, mss: Bytes) -> Option<Bytes> {
    ssthresh.is_finite().then(|| Window::new(ssthresh).bytes(mss))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ack, loss, MSS};

    fn at(segments: u64, ssthresh: u64) -> Sawtooth {
        Sawtooth::new(&Setup {
            initial_window: MSS * segments,
            initial_ssthresh: Some(MSS * ssthresh),
            ..Setup::new(MSS)
        })
    }

    #[test]
    fn an_episode_is_cut_once_and_its_packets_do_not_let_the_window_grow() {
        let mut window = at(100, 1000);
        window.on_loss(&loss(1000, 400, Signal::Gap, true), 0.8);
        window.on_loss(&loss(1001, 401, Signal::Gap, false), 0.8);
        assert_eq!((window.segments(), window.ssthresh()), (80.0, 80.0));
        assert_eq!(window.usable(&ack(1540, 1000, 2)), None);
        assert_eq!(window.usable(&ack(1541, 1001, 2)), Some(2.0));
    }

    #[test]
    fn growth_stops_at_the_threshold_and_hands_back_the_rest() {
        let mut window = at(10, 12);
        assert_eq!(window.slow_start(5.0), 3.0);
        assert!(!window.in_slow_start());
        assert_eq!(window.grow_to(20.0, 10.0), 2.0);
        assert_eq!(window.grow_to(5.0, 1.0), 1.0);
        assert_eq!(window.segments(), 20.0);
    }
}
