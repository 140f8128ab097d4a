//! The packet loss monitor: losses and their most probable cause.
//!
//! A queue that overflows is long: a loss at a round trip of more than 1.25 least ones is congestion. A
//! queue too short to be seen betrays itself by its losses: 5 points above the usual share in a round
//! trip, and five packets more than that, are congestion too: as a round trip begins, a handful of random losses makes
//! a large share. All else is random. The usual share is learned in round trips without a queue, so that a link that
//! loses 8 % all the time is cut a few times and then believed. Once a short queue has betrayed itself its length is
//! known, and what is lost close to it is overflow. All limits are ours; the paper has none.

use crate::event::{Ack, Judgement, Loss, Signal};
use crate::units::Bytes;

/// Queue, as a share of the least round trip, above which losses are overflow.
const QUEUE: f64 = 0.25;
/// Share of losses above the usual that is overflow.
const ABOVE_USUAL: f64 = 0.05;
/// So many loss events in a round, or packets above that share, say nothing.
const FEW: u64 = 5;
/// A path that loses more than this by itself has rounds with more losses than usual by chance.
const QUIET: f64 = 0.01;
/// A queue of this share of the one that overflowed before is close to it.
const CLOSE: f64 = 0.8;
/// A queue that stands above the one that overflowed before by this factor has shown more room.
const ROOMIER: f64 = 1.25;
/// Least queue that is told from jitter, as a share of the least round trip.
const SEEN: f64 = 0.01;
/// Weight of a round in the usual share.
const WEIGHT: f64 = 0.125;

/// Counts losses per round trip and judges them.
#[derive(Clone, Debug)]
pub(super) struct LossMonitor {
    mss: Bytes,
    usual: f64,
    acked: Bytes,
    lost: Bytes,
    /// Loss events since the round began.
    events: u64,
    last: Option<Judgement>,
    /// Queue at which a round lost more than usual, as a share of the least round trip.
    limit: Option<f64>,
}

impl LossMonitor {
    pub(super) fn new(mss: Bytes) -> Self {
        LossMonitor {
            mss,
            usual: 0.0,
            acked: Bytes::ZERO,
            lost: Bytes::ZERO,
            events: 0,
            last: None,
            limit: None,
        }
    }

    pub(super) fn last(&self) -> Option<Judgement> {
        self.last
    }

    pub(super) fn on_ack(&mut self, ack: &Ack) {
        self.acked += ack.acked;
    }

    /// The share of packets that the path loses without a queue.
    pub(super) fn usual(&self) -> f64 {
        self.usual
    }

    /// A round is over; only one without a queue tells what the path itself loses.
    pub(super) fn on_round(&mut self, standing: f64, without_queue: bool) {
        if self.limit.is_some_and(|limit| standing > ROOMIER * limit) {
            self.limit = None;
        }
        if without_queue {
            let share = if self.lost > Bytes::ZERO { self.lost.as_f64() / self.counted() } else { 0.0 };
            self.usual += WEIGHT * (share - self.usual);
        }
        (self.acked, self.lost, self.events) = (Bytes::ZERO, Bytes::ZERO, 0);
    }

    /// What has arrived or was lost since the round began.
    fn counted(&self) -> f64 {
        (self.acked + self.lost).as_f64()
    }

    /// Judges a loss at a queue of this share of the least round trip.
    pub(super) fn on_loss(&mut self, loss: &Loss, queue: f64) -> Judgement {
        self.lost += loss.lost;
        self.events = self.events.saturating_add(1);
        let chance = self.counted() * (self.usual + ABOVE_USUAL) + (self.mss * FEW).as_f64();
        let many = self.events > FEW && self.lost.as_f64() > chance;
        if many && queue > SEEN && self.usual < QUIET {
            self.limit = Some(self.limit.map_or(queue, |limit| limit.min(queue)));
        }
        let close = self.limit.is_some_and(|limit| queue >= CLOSE * limit);
        let cause = if loss.signal == Signal::Ecn || queue > QUEUE || many || close {
            Judgement::Congestion
        } else {
            Judgement::Random
        };
        self.last = Some(cause);
        cause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ack, loss, MSS};

    #[test]
    fn six_random_losses_as_a_round_begins_are_no_overflow_and_no_limit() {
        let mut monitor = LossMonitor::new(MSS);
        let judge = |monitor: &mut LossMonitor| monitor.on_loss(&loss(1000, 400, Signal::Gap, true), 0.05);
        for _ in 0..3 {
            monitor.on_ack(&ack(1000, 400, 7000));
            monitor.on_round(0.05, false);
        }
        monitor.on_ack(&ack(1000, 400, 50));
        assert!((0..6).all(|_| judge(&mut monitor) == Judgement::Random));
        monitor.on_ack(&ack(1000, 400, 900));
        assert!((0..40).all(|_| judge(&mut monitor) == Judgement::Random), "4.6 %");
        assert!((0..40).any(|_| judge(&mut monitor) == Judgement::Congestion), "8 %");
    }

    #[test]
    fn a_long_queue_or_a_mark_is_congestion_and_an_empty_queue_chance() {
        for (queue, signal, cause) in [
            (0.0, Signal::Gap, Judgement::Random),
            (0.2, Signal::Gap, Judgement::Random),
            (0.3, Signal::Gap, Judgement::Congestion),
            (0.0, Signal::Ecn, Judgement::Congestion),
        ] {
            let mut monitor = LossMonitor::new(MSS);
            assert_eq!(monitor.on_loss(&loss(1000, 400, signal, true), queue), cause, "{queue} {signal:?}");
            assert_eq!(monitor.last(), Some(cause));
        }
    }

    #[test]
    fn more_losses_than_usual_are_congestion_until_they_are_usual() {
        let mut monitor = LossMonitor::new(MSS);
        let mut causes = Vec::new();
        for round in 0..60u64 {
            let now = round * 540;
            monitor.on_round(0.0, true);
            monitor.on_ack(&ack(now, now, 20));
            // Ten of a hundred, twice.
            for i in 0..20 {
                monitor.on_ack(&ack(now, now, 8));
                causes.push(monitor.on_loss(&loss(now, now, Signal::Gap, i == 0), 0.0));
            }
        }
        assert!(causes[..200].contains(&Judgement::Congestion));
        assert!(!causes[1000..].contains(&Judgement::Congestion));
    }
}
