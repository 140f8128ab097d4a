//! Veno: C. P. Fu and S. C. Liew, "TCP Veno: TCP enhancement for transmission over wireless access
//! networks", IEEE Journal on Selected Areas in Communications 21(2) (2003). NewReno with Vegas's
//! measure of the queue: a loss at an empty queue is taken for random and costs a fifth of the window.
//!
//! ```text
//! backlog               N = W (RTT - BaseRTT) / RTT
//! slow start            W += acked               while W < ssthresh
//! congestion avoidance  W += acked / W           while N < β
//!                       W += acked / (2 W)       while N >= β: on every second ACK
//! loss                  ssthresh = W = 4/5 W     if N < β, else W / 2; once per episode
//! timeout, ECN mark     as NewReno
//! ```
//!
//! | symbol   | here       | unit     | default                             |
//! |----------|------------|----------|-------------------------------------|
//! | W        | `window`   | segments | [`Setup::initial_window`], 10       |
//! | N        | `backlog`  | segments |                                     |
//! | β        | [`QUEUED`] | segments | 3                                   |
//! | BaseRTT  | `rtt.min`  | s        | least round trip                    |
//! | RTT      | `rtt.latest` | s      | newest sample                       |
//! | ssthresh | `ssthresh` | segments | [`Setup::initial_ssthresh`] or none |
//!
//! Under random loss p at an empty queue the mean window is sqrt(4.5 / p) segments where NewReno's is
//! sqrt(1.5 / p): sqrt(3) = 1.73 times as much.
//!
//! Differences: acknowledged segments count, not ACKs, so "every second ACK" is half a step per
//! segment. A mark (ECN) comes from a queue, whatever N says, and halves. Floor and ssthresh as in
//! [`super::newreno`].

use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Rtt, Sent, Signal};
use crate::parts::{backlog, Sawtooth};
use crate::units::{Bytes, Rate};

/// β: a backlog of this many segments says that the path is congested. Fu and Liew 2003, Linux.
pub const QUEUED: f64 = 3.0;
/// Share of the window that stays after a random loss.
pub const KEPT_RANDOM: f64 = 0.8;
/// Share of the window that stays after a loss from congestion.
const KEPT: f64 = 0.5;

/// Veno.
#[derive(Clone, Debug)]
pub struct Veno {
    window: Sawtooth,
}

impl Veno {
    /// A controller at its initial window.
    pub fn new(setup: &Setup) -> Self {
        Veno { window: Sawtooth::new(setup) }
    }

    fn congested(&self, rtt: &Rtt) -> bool {
        backlog(self.window.segments(), rtt.min, rtt.latest) >= QUEUED
    }
}

impl Controller for Veno {
    fn name(&self) -> &'static str {
        "veno"
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        let Some(acked) = self.window.usable(ack) else { return };
        let rest = self.window.slow_start(acked);
        let pace = if self.congested(&ack.rtt) { 0.5 } else { 1.0 };
        self.window.grow(pace * rest / self.window.segments());
    }

    fn on_loss(&mut self, loss: &Loss) {
        let random = loss.signal == Signal::Gap && !self.congested(&loss.rtt);
        self.window.on_loss(loss, if random { KEPT_RANDOM } else { KEPT });
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
    use crate::testing::{ack, loss, MSS, RTT};
    use crate::units::Duration;

    fn at(segments: u64) -> Veno {
        Veno::new(&Setup {
            initial_window: MSS * segments,
            initial_ssthresh: Some(MSS * segments),
            ..Setup::new(MSS)
        })
    }

    /// A round trip with `waiting` of 100 segments in queues.
    fn queued(waiting: u32) -> Rtt {
        Rtt { latest: RTT * 100 / (100 - waiting), smoothed: RTT, min: RTT }
    }

    #[test]
    fn an_empty_queue_earns_a_segment_per_round_trip_and_a_queue_of_three_half_of_one() {
        for (waiting, expected) in [(0, 1.0), (2, 1.0), (4, 0.5), (50, 0.5)] {
            let mut veno = at(100);
            for _ in 0..50 {
                veno.on_ack(&Ack { rtt: queued(waiting), ..ack(540, 0, 2) });
            }
            let grown = veno.window.segments() - 100.0;
            assert!((grown - expected).abs() < 0.01, "{waiting} waiting: {grown}");
        }
    }

    #[test]
    fn a_loss_at_an_empty_queue_costs_a_fifth_and_at_a_full_one_half() {
        for (waiting, signal, kept) in
            [(0, Signal::Gap, 80), (2, Signal::Gap, 80), (4, Signal::Gap, 50), (0, Signal::Ecn, 50)]
        {
            let mut veno = at(100);
            veno.on_loss(&Loss { rtt: queued(waiting), ..loss(1000, 400, signal, true) });
            veno.on_loss(&Loss { rtt: queued(waiting), ..loss(1100, 500, signal, false) });
            assert_eq!(veno.cwnd(), MSS * kept, "{waiting} waiting, {signal:?}");
        }
    }

    #[test]
    fn a_timeout_halves_the_threshold_even_at_an_empty_queue() {
        let mut veno = at(100);
        veno.on_loss(&loss(3000, 400, Signal::Timeout, true));
        assert_eq!((veno.cwnd(), veno.snapshot().ssthresh), (MSS * 2, Some(MSS * 50)));
    }

    #[test]
    fn no_round_trip_at_all_is_no_queue() {
        let mut veno = at(100);
        let rtt = crate::testing::rtt(Duration::ZERO);
        veno.on_loss(&Loss { rtt, ..loss(1000, 400, Signal::Gap, true) });
        assert_eq!(veno.cwnd(), MSS * 80);
    }
}
