//! The "enhanced" controller of paper 002: Hybla's growth with a reference round trip of 75 ms, a slow
//! start in three phases, and cuts in three steps after Veno's measure of the queue. Fact sheet: paper
//! 002, section 3.
//!
//! ```text
//! ρ                     = max(RTT / RTT0, 1),   I = 2^ρ - 1,   N = W (RTT - BaseRTT) / RTT
//! slow start, W <= ssthresh, per acknowledged segment:
//!   1 W <= ssthresh / 4 and flight < rwnd / 4        W += 2 I
//!   2 neither 1 nor 3                                W += I
//!   3 W >= 3/4 ssthresh or flight > 3/4 rwnd         W += I / 2
//! congestion avoidance  W += ρ² / W       per acknowledged segment
//! loss                  ssthresh = W = 4/5 W if N < 3, 3/5 W if N < 6, else 2/5 W; once per episode
//! timeout               ssthresh = W / 2, W = 2
//! pacing                W / SRTT
//! ```
//!
//! | symbol   | here            | unit     | default                             |
//! |----------|-----------------|----------|-------------------------------------|
//! | RTT0     | [`RTT0`]        | s        | [`Setup::reference_rtt`] or 75 ms   |
//! | ρ        | `rho`           | 1        | 7.33 at 550 ms                      |
//! | W        | `window`        | segments | [`Setup::initial_window`], 10       |
//! | N        | `backlog`       | segments |                                     |
//! | rwnd     | `peer_window`   | bytes    | none: only W and ssthresh decide    |
//! | ssthresh | `ssthresh`      | segments | [`Setup::initial_ssthresh`] or none |
//!
//! Two readings, [`Reading`]. The paper prints "cwnd = 2Wi + 1", "W + 1" and "W + 1/2" for the three
//! phases, where W with index i is the update at the i-th ACK, and says that the first sends more, the
//! second as much as Hybla, the third less. `Resolved` (registered as `enhanced`) therefore scales the
//! increment I, as above. `Literal` (`enhanced-literal`) does what is printed: the window doubles and
//! gets one segment per ACK in phase 1, gets one segment in phase 2 and half a segment in phase 3, and
//! phase 3 asks for W <= 3/4 ssthresh, as printed. The phases are tried in the printed order there; where none
//! fits, phase 2 holds.
//!
//! Further readings and differences:
//! * Phase 2 lacks a "<" and phase 3 has "//" for "or"; phase 3 comes first, as being near a limit matters
//!   more than anything else.
//! * The paper says that Veno adds a segment per new ACK; per round trip is meant.
//! * A mark (ECN) is a sign of a queue: 2/5. A timeout is not described: as NewReno.
//! * Acknowledged segments count, not ACKs; in the literal reading one ACK doubles at most once.
//! * ρ is cut off at 16 in slow start, and without a threshold a round grows at most fourfold, as in
//!   [`super::hybla`], in both readings.

use super::hybla::{BLIND_GROWTH, RHO_MOST_IN_SLOW_START};
use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Sent, Signal};
use crate::parts::{backlog, Sawtooth};
use crate::units::{Bytes, Duration, Rate};
use crate::window::segments;

/// RTT0, the reference round trip of paper 002.
pub const RTT0: Duration = Duration::from_millis(75);
/// Backlogs below which a loss leaves 4/5 and 3/5 of the window, in segments.
pub const BACKLOGS: (f64, f64) = (3.0, 6.0);
/// Shares kept at a backlog below the first, below the second, and above.
pub const KEPT: (f64, f64, f64) = (0.8, 0.6, 0.4);
/// Share of the window that becomes the threshold after a timeout.
const KEPT_AFTER_TIMEOUT: f64 = 0.5;

/// How the printed rules of slow start are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The increment is scaled by 2, 1 and 1/2, as the text says.
    Resolved,
    /// The window itself becomes what is printed.
    Literal,
}

/// The enhanced controller of paper 002.
#[derive(Clone, Debug)]
pub struct Enhanced {
    mss: Bytes,
    rtt0: Duration,
    reading: Reading,
    window: Sawtooth,
    /// Greatest window of this round, in segments, while no threshold is known.
    blind_limit: f64,
    smoothed: Option<Duration>,
}

impl Enhanced {
    /// A controller at its initial window; the reference round trip is the set-up's or the paper's.
    pub fn new(setup: &Setup, reading: Reading) -> Self {
        let window = Sawtooth::new(setup);
        Enhanced {
            mss: setup.mss,
            rtt0: setup.reference_rtt.unwrap_or(RTT0).max(Duration::from_nanos(1)),
            reading,
            window,
            blind_limit: window.segments(),
            smoothed: None,
        }
    }

    fn rho(&self, rtt: Duration) -> f64 {
        (rtt.as_secs_f64() / self.rtt0.as_secs_f64()).max(1.0)
    }

    /// Segments to add for `acked` segments in slow start.
    fn slow_start_growth(&self, ack: &Ack, acked: f64) -> f64 {
        let (window, ssthresh) = (self.window.segments(), self.window.ssthresh());
        let rwnd = ack.peer_window.map_or(f64::INFINITY, Bytes::as_f64);
        let flight = (ack.in_flight + ack.acked).as_f64();
        let small = window <= ssthresh / 4.0 && flight < rwnd / 4.0;
        match self.reading {
            Reading::Resolved => {
                let near = window >= 0.75 * ssthresh || flight > 0.75 * rwnd;
                let increment = libm::exp2(self.rho(ack.rtt.min).min(RHO_MOST_IN_SLOW_START)) - 1.0;
                let factor = if near {
                    0.5
                } else if small {
                    2.0
                } else {
                    1.0
                };
                factor * increment * acked
            }
            Reading::Literal => {
                let middle = window > ssthresh / 4.0
                    && window < 0.75 * ssthresh
                    && flight >= rwnd / 4.0
                    && flight < 0.75 * rwnd;
                let third = window <= 0.75 * ssthresh || flight > 0.75 * rwnd;
                if small {
                    window + acked
                } else if !middle && third {
                    acked / 2.0
                } else {
                    acked
                }
            }
        }
    }

    fn kept(&self, loss: &Loss) -> f64 {
        let waiting = backlog(self.window.segments(), loss.rtt.min, loss.rtt.latest);
        match loss.signal {
            Signal::Timeout => KEPT_AFTER_TIMEOUT,
            Signal::Gap if waiting < BACKLOGS.0 => KEPT.0,
            Signal::Gap if waiting < BACKLOGS.1 => KEPT.1,
            Signal::Gap | Signal::Ecn => KEPT.2,
        }
    }
}

impl Controller for Enhanced {
    fn name(&self) -> &'static str {
        match self.reading {
            Reading::Resolved => "enhanced",
            Reading::Literal => "enhanced-literal",
        }
    }

    fn on_sent(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        self.smoothed = Some(ack.rtt.smoothed);
        if ack.round_start {
            self.blind_limit = BLIND_GROWTH * segments(ack.in_flight + ack.acked, self.mss);
        }
        let Some(acked) = self.window.usable(ack) else { return };
        if self.window.in_slow_start() {
            let ssthresh = self.window.ssthresh();
            let top = if ssthresh.is_finite() { ssthresh } else { self.blind_limit };
            self.window.grow_to(top, self.slow_start_growth(ack, acked));
        } else {
            let rho = self.rho(ack.rtt.min);
            self.window.grow(rho * rho * acked / self.window.segments());
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.window.on_loss(loss, self.kept(loss));
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
    use crate::event::Rtt;
    use crate::testing::{ack, loss, rtt, MSS, RTT};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn at(segments: u64, ssthresh: u64, reading: Reading) -> Enhanced {
        let setup = Setup {
            initial_window: MSS * segments,
            initial_ssthresh: Some(MSS * ssthresh),
            ..Setup::new(MSS)
        };
        Enhanced::new(&setup, reading)
    }

    /// Growth for one segment acknowledged at a round trip, with `flight` segments in flight before.
    fn growth(enhanced: &Enhanced, round_trip: Duration, flight: u64, rwnd: Option<u64>) -> f64 {
        let mut copy = enhanced.clone();
        let mut one = ack(540, 0, 1);
        (one.rtt, one.in_flight, one.peer_window) =
            (rtt(round_trip), MSS * (flight - 1), rwnd.map(|n| MSS * n));
        copy.on_ack(&one);
        copy.window.segments() - enhanced.window.segments()
    }

    #[test]
    fn the_increment_is_doubled_far_from_the_threshold_and_halved_close_to_it() {
        // At 150 ms rho is 2, and Hybla would add 2² - 1 = 3.
        for (window, expected) in [(100, 6.0), (250, 6.0), (251, 3.0), (749, 3.0), (750, 1.5), (990, 1.5)] {
            let enhanced = at(window, 1000, Reading::Resolved);
            assert!((growth(&enhanced, MS(150), 10, None) - expected).abs() < 1e-9, "{window}");
        }
    }

    #[test]
    fn the_receivers_window_slows_the_start_as_well() {
        let enhanced = at(100, 1000, Reading::Resolved);
        for (flight, expected) in [(24, 6.0), (25, 3.0), (75, 3.0), (76, 1.5)] {
            let grown = growth(&enhanced, MS(150), flight, Some(100));
            assert!((grown - expected).abs() < 1e-9, "{flight} in flight: {grown}");
        }
    }

    #[test]
    fn the_literal_reading_does_what_is_printed() {
        for (window, expected) in [(100, 101.0), (250, 251.0), (251, 0.5), (700, 0.5), (760, 1.0)] {
            let enhanced = at(window, 1000, Reading::Literal);
            let grown = growth(&enhanced, MS(150), 10, None);
            assert!((grown - expected).abs() < 1e-9, "{window}: {grown}");
        }
    }

    #[test]
    fn slow_start_at_geo_distance_ends_at_the_threshold() {
        let enhanced = at(10, 1000, Reading::Resolved);
        // rho = 7.33: 160 segments per segment, twice, so seven segments' ACKs suffice.
        assert!((growth(&enhanced, MS(550), 10, None) - 2.0 * (libm::exp2(22.0 / 3.0) - 1.0)).abs() < 1e-6);
        let mut copy = enhanced.clone();
        copy.on_ack(&Ack { rtt: rtt(MS(550)), ..ack(550, 0, 7) });
        assert_eq!(copy.cwnd(), MSS * 1000);
    }

    #[test]
    fn the_window_grows_by_rho_squared_per_round_trip() {
        let mut enhanced = at(1000, 1000, Reading::Resolved);
        (0..20).for_each(|_| enhanced.on_ack(&Ack { rtt: rtt(MS(550)), ..ack(550, 0, 50) }));
        let grown = (enhanced.window.segments() - 1000.0) / (22.0f64 / 3.0).powi(2);
        assert!((0.95..=1.0).contains(&grown), "{grown}");
    }

    #[test]
    fn the_set_up_may_name_the_reference_round_trip() {
        let setup = Setup { reference_rtt: Some(MS(150)), ..Setup::new(MSS) };
        let enhanced = Enhanced::new(&setup, Reading::Resolved);
        // rho is 2: twice 2² - 1 far from any threshold.
        let mut copy = enhanced.clone();
        copy.on_ack(&Ack { round_start: true, in_flight: MSS * 9, rtt: rtt(MS(300)), ..ack(300, 0, 1) });
        assert!((copy.window.segments() - 16.0).abs() < 1e-9, "{}", copy.window.segments());
    }

    #[test]
    fn a_loss_costs_a_fifth_two_fifths_or_three_fifths_as_the_queue_fills() {
        for (waiting, signal, kept) in [
            (0, Signal::Gap, 80),
            (2, Signal::Gap, 80),
            (4, Signal::Gap, 60),
            (5, Signal::Gap, 60),
            (7, Signal::Gap, 40),
            (0, Signal::Ecn, 40),
        ] {
            let mut enhanced = at(100, 100, Reading::Resolved);
            let rtt = Rtt { latest: RTT * 100 / (100 - waiting), smoothed: RTT, min: RTT };
            enhanced.on_loss(&Loss { rtt, ..loss(1000, 400, signal, true) });
            enhanced.on_loss(&Loss { rtt, ..loss(1001, 401, signal, false) });
            assert_eq!(enhanced.cwnd(), MSS * kept, "{waiting} waiting, {signal:?}");
        }
    }

    #[test]
    fn without_a_threshold_a_round_grows_at_most_fourfold() {
        for reading in [Reading::Resolved, Reading::Literal] {
            let mut enhanced = Enhanced::new(&Setup::new(MSS), reading);
            enhanced.on_ack(&Ack { round_start: true, in_flight: MSS * 8, ..ack(540, 0, 2) });
            (0..8).for_each(|i| enhanced.on_ack(&ack(550 + i, 1, 1)));
            assert_eq!(enhanced.cwnd(), MSS * 40, "{reading:?}");
        }
    }
}
