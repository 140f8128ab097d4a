//! Hybla: C. Caini and R. Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks",
//! International Journal of Satellite Communications and Networking 22 (2004). A long round trip grows
//! its window as fast in bytes per second as a reference connection of 25 ms would.
//!
//! ```text
//! ρ                     = max(RTT / RTT0, 1)
//! slow start            W += 2^ρ - 1         per acknowledged segment, W <= ssthresh
//! congestion avoidance  W += ρ² / W          per acknowledged segment
//! closed form           W = ρ 2^(t / RTT0), then W = ρ ((t - t0) / RTT0 + γ): no RTT but in ρ
//! loss                  ssthresh = W = W / 2, once per episode (as NewReno)
//! timeout               ssthresh = W / 2, W = 2
//! pacing                W / SRTT
//! ```
//!
//! | symbol   | here         | unit     | default                             |
//! |----------|--------------|----------|-------------------------------------|
//! | RTT0     | [`RTT0`]     | s        | [`Setup::reference_rtt`] or 25 ms   |
//! | RTT      | `rtt.min`    | s        | least round trip                    |
//! | ρ        | `rho`        | 1        | 21.6 at 540 ms                      |
//! | W        | `window`     | segments | [`Setup::initial_window`], 10       |
//! | ssthresh | `ssthresh`   | segments | [`Setup::initial_ssthresh`] or none |
//!
//! Readings and differences:
//! * ρ comes from the least round trip, so that a queue of our own does not speed us up.
//! * Acknowledged segments are counted, not ACKs: Linux counts ACKs and grows 50 times too slowly
//!   where an ACK covers 50 segments.
//! * 2^ρ is cut off at ρ = 16, as in Linux: at 540 ms it would be 3 million segments per segment.
//! * Slow start at these ρ is one ACK long, hence the clamp to ssthresh and the pacing, which the
//!   paper asks for as "packet spacing", are not optional. The paper takes the first ssthresh from
//!   Hoe's bandwidth estimate; here the set-up gives it. Where it does not, slow start is held to
//!   four times the bytes that were in flight when the round began (our choice: above slow start's
//!   usual doubling, and an overshoot takes at most two halvings).

use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent};
use crate::parts::Sawtooth;
use crate::units::{Bytes, Duration, Rate};
use crate::window::segments;

/// RTT0, the reference round trip: 25 ms in the paper and in Linux.
pub const RTT0: Duration = Duration::from_millis(25);
/// Greatest exponent of 2^ρ, as in Linux.
pub(crate) const RHO_MOST_IN_SLOW_START: f64 = 16.0;
/// Growth per round while no threshold is known, in flights.
pub(crate) const BLIND_GROWTH: f64 = 4.0;
/// Share of the window that stays after a loss.
const KEPT: f64 = 0.5;

/// Hybla.
#[derive(Clone, Debug)]
pub struct Hybla {
    mss: Bytes,
    rtt0: Duration,
    window: Sawtooth,
    /// Greatest window of this round, in segments, while no threshold is known.
    blind_limit: f64,
    smoothed: Option<Duration>,
}

impl Hybla {
    /// A controller at its initial window; the reference round trip is the set-up's (ns-3 has 50 ms,
    /// papers use 25 to 75 ms) or the paper's.
    pub fn new(setup: &Setup) -> Self {
        let window = Sawtooth::new(setup);
        Hybla {
            mss: setup.mss,
            rtt0: setup.reference_rtt.unwrap_or(RTT0).max(Duration::from_nanos(1)),
            window,
            blind_limit: window.segments(),
            smoothed: None,
        }
    }

    fn rho(&self, rtt: Duration) -> f64 {
        (rtt.as_secs_f64() / self.rtt0.as_secs_f64()).max(1.0)
    }
}

impl Controller for Hybla {
    fn name(&self) -> &'static str {
        "hybla"
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        self.smoothed = Some(ack.rtt.smoothed);
        if ack.round_start {
            self.blind_limit = BLIND_GROWTH * segments(ack.in_flight + ack.acked, self.mss);
        }
        let Some(mut acked) = self.window.usable(ack) else { return };
        let rho = self.rho(ack.rtt.min);
        if self.window.in_slow_start() {
            let step = libm::exp2(rho.min(RHO_MOST_IN_SLOW_START)) - 1.0;
            let known = self.window.ssthresh().is_finite();
            let top = if known { self.window.ssthresh() } else { self.blind_limit };
            acked = self.window.grow_to(top, step * acked) / step;
            if !known {
                return;
            }
        }
        if acked > 0.0 {
            self.window.grow(rho * rho * acked / self.window.segments());
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.window.on_loss(loss, KEPT);
    }

    fn cwnd(&self) -> Bytes {
        self.window.bytes()
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.smoothed.map(|rtt| self.cwnd().per(rtt).max(Rate::bit(1)))
    }

    fn snapshot(&self) -> Snapshot {
        self.window.snapshot(self.pacing_rate())
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Signal;
    use crate::testing::{ack, loss, rtt, MSS};

    fn at(segments: u64, ssthresh: Option<u64>) -> Hybla {
        Hybla::new(&Setup {
            initial_window: MSS * segments,
            initial_ssthresh: ssthresh.map(|n| MSS * n),
            ..Setup::new(MSS)
        })
    }

    #[test]
    fn slow_start_at_geo_distance_is_one_ack_long_and_ends_at_the_threshold() {
        let mut hybla = at(10, Some(6750));
        hybla.on_ack(&ack(540, 0, 1));
        assert_eq!(hybla.cwnd().0 / MSS.0, 6750);
        let rate = hybla.pacing_rate().unwrap().as_mbit();
        assert!((rate - 150.0).abs() < 0.1, "{rate}");
    }

    #[test]
    fn the_window_grows_by_rho_squared_per_round_trip() {
        let mut hybla = at(1000, Some(1000));
        (0..20).for_each(|_| hybla.on_ack(&ack(540, 0, 50)));
        // rho = 540 / 25 = 21.6.
        let grown = hybla.window.segments() - 1000.0;
        assert!(grown > 0.8 * 21.6 * 21.6 && grown < 21.6 * 21.6, "{grown}");
    }

    #[test]
    fn the_set_up_may_name_the_reference_round_trip() {
        let at = |reference_rtt| {
            let mut hybla = Hybla::new(&Setup {
                initial_window: MSS * 1000,
                initial_ssthresh: Some(MSS * 1000),
                reference_rtt,
                ..Setup::new(MSS)
            });
            hybla.on_ack(&ack(540, 0, 1));
            hybla.window.segments() - 1000.0
        };
        // A ninth of the growth at three times the reference.
        let ratio = at(None) / at(Some(RTT0 * 3));
        assert!((ratio - 9.0).abs() < 1e-6, "{ratio}");
    }

    #[test]
    fn at_the_reference_round_trip_it_is_newreno() {
        let (mut hybla, mut reno) = (
            at(10, Some(40)),
            super::super::NewReno::new(&Setup { initial_ssthresh: Some(MSS * 40), ..Setup::new(MSS) }),
        );
        for i in 0..200 {
            let one = Ack { rtt: rtt(RTT0), ..ack(25 + i, i, 2) };
            hybla.on_ack(&one);
            reno.on_ack(&one);
            assert_eq!(hybla.cwnd(), reno.cwnd(), "ACK {i}");
        }
        hybla.on_loss(&loss(400, 300, Signal::Gap, true));
        reno.on_loss(&loss(400, 300, Signal::Gap, true));
        assert_eq!(hybla.cwnd(), reno.cwnd());
    }

    #[test]
    fn without_a_threshold_a_round_grows_at_most_fourfold() {
        let mut hybla = at(10, None);
        hybla.on_ack(&Ack { round_start: true, in_flight: MSS * 8, ..ack(540, 0, 2) });
        hybla.on_ack(&ack(550, 1, 8));
        assert_eq!(hybla.cwnd(), MSS * 40);
    }
}
