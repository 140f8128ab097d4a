//! Gentle: additive increase, and a cut of an eighth (the example of CONTRIBUTING.md).
//!
//! ```text
//! growth   W += acked / W     one segment per round trip
//! loss     W = 7/8 W          once per episode
//! timeout  W = 2
//! ```
//!
//! | symbol | here     | unit     | default                       |
//! |--------|----------|----------|-------------------------------|
//! | W      | `window` | segments | [`Setup::initial_window`], 10 |
//!
//! Under random loss p the mean window is sqrt(7.5 / p) segments.

use skyhaul_cc::window::{segments, Window};
use skyhaul_cc::{Ack, Bytes, Controller, Loss, Rate, Sent, Setup, Signal, Snapshot};

/// Share of the window that stays after a loss: our choice.
const KEPT: f64 = 0.875;

/// Gentle.
#[derive(Clone, Debug)]
pub struct Gentle {
    mss: Bytes,
    window: Window,
}

impl Gentle {
    /// A controller at its initial window.
    pub fn new(setup: &Setup) -> Self {
        Gentle { mss: setup.mss, window: Window::from_bytes(setup.initial_window, setup.mss) }
    }
}

impl Controller for Gentle {
    fn name(&self) -> &'static str {
        "gentle"
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        if !ack.app_limited {
            self.window.grow(segments(ack.acked, self.mss) / self.window.segments());
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        if loss.signal == Signal::Timeout {
            self.window.set(0.0); // `Window` keeps two segments
        } else if loss.new_episode {
            self.window.scale(KEPT);
        }
    }

    fn cwnd(&self) -> Bytes {
        self.window.bytes(self.mss)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot { cwnd: self.cwnd(), ssthresh: None, pacing_rate: None, phase: "congestion avoidance" }
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
