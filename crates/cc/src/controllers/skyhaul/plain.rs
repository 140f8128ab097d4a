//! The plain form, for hosts without reports: round trips and delivery rates are all there is.
//!
//! It doubles until the delivery rate no longer grows or a queue stands, and then keeps the same small
//! queue by the same rule. Goals are lower here: bundled acknowledgments hide what trains would show.

use super::cruise::{target, View};
use super::Skyhaul;
use crate::event::{Ack, Loss, Signal};
use crate::units::Bytes;
use crate::window::segments;

/// Growth of the delivery rate per round that still counts, and rounds without before the start ends: the
/// test for a full pipe of BBR (draft-cardwell-iccrg-bbr-congestion-control-00 §4.3.2.2).
const GROWTH: f64 = 1.25;
const PLATEAU_ROUNDS: u32 = 3;

/// A finished round of acknowledgments.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainFinding {
    pub packets: f64,
    /// Least queue of the round, by round trips.
    pub queue: f64,
    pub round_trip: f64,
    /// Greatest delivery rate of the round in packets per second.
    pub rate: f64,
    pub app_limited: bool,
}

/// What acknowledgments told so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Plain {
    acked: f64,
    lost: f64,
    queue: Option<f64>,
    rate: f64,
    app_limited: bool,
    best: f64,
    flat: u32,
    /// There was an answer.
    pub answered: bool,
    /// The rate has stopped growing.
    pub full: bool,
    /// Rate and round trip of the newest round after that.
    pub learnt: Option<(f64, f64)>,
}

impl Plain {
    /// An ACK; the round it ends, if it does.
    pub fn hear(&mut self, ack: &Ack, mss: Bytes) -> Option<PlainFinding> {
        let mut ended = None;
        let round_trip = ack.rtt.min.as_secs_f64();
        if ack.round_start {
            ended = self.queue.map(|queue| PlainFinding {
                packets: self.acked + self.lost,
                queue,
                round_trip,
                rate: self.rate,
                app_limited: self.app_limited || ack.app_limited,
            });
            let Plain { best, flat, answered, full, learnt, .. } = *self;
            *self = Plain { best, flat, answered, full, learnt, ..Plain::default() };
        }
        let queue = (ack.rtt.latest.as_secs_f64() - round_trip).max(0.0);
        self.queue = Some(self.queue.map_or(queue, |least| least.min(queue)));
        self.acked += segments(ack.acked, mss);
        if let Some(rate) = ack.delivery_rate {
            self.rate = self.rate.max(super::trains::packets(rate, mss));
        }
        self.app_limited |= ack.app_limited;
        ended
    }

    /// Packets were lost.
    pub fn hear_loss(&mut self, loss: &Loss, mss: Bytes) {
        if loss.signal == Signal::Gap {
            self.lost += segments(loss.lost, mss);
        }
    }

    /// Looks for the plateau.
    pub fn watch_growth(&mut self, finding: &PlainFinding) {
        if finding.app_limited || finding.rate <= 0.0 {
            return;
        }
        if finding.rate >= GROWTH * self.best {
            self.best = finding.rate;
            self.flat = 0;
        } else {
            self.flat += 1;
            self.full |= self.flat >= PLATEAU_ROUNDS;
        }
    }
}

impl Skyhaul {
    /// A round of acknowledgments has ended.
    pub(super) fn end_plain_round(&mut self, finding: &PlainFinding) {
        let round_trip = finding.round_trip.max(1e-6);
        self.plain.watch_growth(finding);
        let rate = if finding.rate > 0.0 { finding.rate } else { finding.packets / round_trip };
        // Round trips are coarser than one-way delays.
        let wanted = target(rate, round_trip).max(round_trip / 32.0).max(0.002);
        if finding.app_limited {
            return;
        }
        let start = !self.plain.full;
        if start && finding.queue < 4.0 * wanted {
            self.window.scale(2.0);
            return;
        }
        self.plain.full = true;
        self.plain.learnt = Some((rate, round_trip));
        let view = View {
            window: self.window.segments(),
            round_trip,
            target: wanted,
            rate,
            available: Some(1.25 * rate),
            unsure: (0.0, 1.0),
            capacity: None,
            shared: None,
        };
        let window = self.cruise.after_round(self.now, finding.queue, &view);
        self.window.set(window);
        if start {
            self.window.set(self.window.segments().min(rate * (round_trip + wanted)));
        }
    }
}
