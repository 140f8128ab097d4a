//! NewReno: RFC 5681 (slow start, congestion avoidance), RFC 6582 (one cut per recovery episode), in
//! the form of RFC 9002 §7 and appendix B, which counts bytes and needs no window inflation.
//!
//! ```text
//! slow start            W += acked                     while W < ssthresh
//! congestion avoidance  W += acked / W                 one segment per round trip
//! loss, ECN mark        ssthresh = W = W / 2           once per episode
//! timeout               ssthresh = W / 2, W = 2        ssthresh once per episode
//! ```
//!
//! | symbol   | here       | unit     | default                             |
//! |----------|------------|----------|-------------------------------------|
//! | W        | `window`   | segments | [`Setup::initial_window`], 10       |
//! | ssthresh | `ssthresh` | segments | [`Setup::initial_ssthresh`] or none |
//!
//! Differences: the floor is two segments also after a timeout (RFC 9002 §7.6.2; RFC 5681 says one),
//! because a delayed acknowledgment would stall one segment. ssthresh comes from the window, not from
//! the bytes in flight (RFC 9002 §7.3.2); the window does not grow while the application is the limit
//! (RFC 9002 §7.8), so the two hardly differ.

use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent};
use crate::parts::Sawtooth;
use crate::units::{Bytes, Rate};

/// Share of the window that stays after a loss, RFC 5681 §3.1 equation 4.
const KEPT: f64 = 0.5;

/// NewReno.
#[derive(Clone, Debug)]
pub struct NewReno {
    window: Sawtooth,
}

impl NewReno {
    /// A controller at its initial window.
    pub fn new(setup: &Setup) -> Self {
        NewReno { window: Sawtooth::new(setup) }
    }
}

impl Controller for NewReno {
    fn name(&self) -> &'static str {
        "newreno"
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        let Some(acked) = self.window.usable(ack) else { return };
        let rest = self.window.slow_start(acked);
        self.window.grow(rest / self.window.segments());
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.window.on_loss(loss, KEPT);
    }

    fn cwnd(&self) -> Bytes {
        self.window.bytes()
    }

    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    fn snapshot(&self) -> Snapshot {
        self.window.snapshot(None)
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Signal;
    use crate::testing::{ack, loss, MSS};

    fn at(segments: u64, ssthresh: Option<u64>) -> NewReno {
        NewReno::new(&Setup {
            initial_window: MSS * segments,
            initial_ssthresh: ssthresh.map(|n| MSS * n),
            ..Setup::new(MSS)
        })
    }

    #[test]
    fn slow_start_adds_what_was_acknowledged() {
        let mut reno = at(10, None);
        reno.on_ack(&ack(540, 0, 10));
        assert_eq!(reno.cwnd(), MSS * 20);
    }

    #[test]
    fn one_ack_for_fifty_segments_counts_as_fifty() {
        let (mut one, mut fifty) = (at(100, Some(100)), at(100, Some(100)));
        one.on_ack(&ack(540, 0, 50));
        (0..50).for_each(|_| fifty.on_ack(&ack(540, 0, 1)));
        assert!((one.window.segments() - 100.5).abs() < 1e-9);
        assert!((one.window.segments() - fifty.window.segments()).abs() < 0.01);
    }

    #[test]
    fn an_ack_across_the_threshold_is_shared_between_the_phases() {
        let mut reno = at(10, Some(12));
        reno.on_ack(&ack(540, 0, 8));
        assert!((reno.window.segments() - (12.0 + 6.0 / 12.0)).abs() < 1e-9);
    }

    #[test]
    fn one_episode_halves_once_and_recovery_does_not_grow() {
        let mut reno = at(100, None);
        reno.on_loss(&loss(1000, 400, Signal::Gap, true));
        reno.on_loss(&loss(1100, 500, Signal::Gap, false));
        assert_eq!(reno.cwnd(), MSS * 50);
        reno.on_ack(&ack(1200, 900, 20));
        assert_eq!(reno.cwnd(), MSS * 50);
        reno.on_ack(&ack(1600, 1001, 50));
        assert_eq!(reno.cwnd(), MSS * 51);
    }

    #[test]
    fn a_timeout_starts_again_from_two_segments_towards_half_the_window() {
        let mut reno = at(100, None);
        reno.on_loss(&loss(3000, 400, Signal::Timeout, true));
        assert_eq!((reno.cwnd(), reno.snapshot().ssthresh), (MSS * 2, Some(MSS * 50)));
        reno.on_ack(&ack(3600, 2900, 4));
        assert_eq!(reno.cwnd(), MSS * 6);
    }

    #[test]
    fn an_idle_application_earns_no_window() {
        let mut reno = at(10, None);
        reno.on_ack(&Ack { app_limited: true, ..ack(540, 0, 10) });
        assert_eq!(reno.cwnd(), MSS * 10);
    }
}
