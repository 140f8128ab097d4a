//! One packet-timed round: what was reported from its first packet to the first one sent after its
//! beginning.

use super::path::between;
use crate::event::Report;
use crate::units::Time;

/// A round under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    began: Option<Time>,
    /// Receive time of the newest packet when the round began.
    from: Option<Time>,
    newest: Option<Time>,
    received: f64,
    lost: f64,
    steady: f64,
    least: Option<f64>,
    sum: f64,
    greatest: f64,
    /// Queue before each loss.
    before_loss: f64,
    pub app_limited: bool,
}

/// A finished round in numbers: packets and seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finding {
    pub now: Time,
    pub packets: f64,
    pub lost: f64,
    /// Queues met by packets outside trains: least, mean and greatest.
    pub least: f64,
    pub mean: f64,
    pub greatest: f64,
    /// Mean queue met by the last packet before each loss.
    pub before_loss: Option<f64>,
    /// Packets received per second, by receive times.
    pub rate: f64,
    /// Packets outside trains; the queues say nothing if there were none.
    pub steady: f64,
    pub app_limited: bool,
}

impl Round {
    /// A packet arrived and met this queue.
    pub fn hear(&mut self, report: &Report, received_at: Time, queue: f64) {
        self.began.get_or_insert(report.now);
        self.from.get_or_insert(received_at);
        self.newest = self.newest.max(Some(received_at));
        self.received += 1.0;
        if report.train.is_none() {
            self.steady += 1.0;
            self.least = Some(self.least.map_or(queue, |least| least.min(queue)));
            self.sum += queue;
            self.greatest = self.greatest.max(queue);
        }
    }

    /// Packets were lost after one that had met this queue.
    pub fn hear_loss(&mut self, packets: f64, queue: f64) {
        self.lost += packets;
        self.before_loss += packets * queue;
    }

    /// Whether a packet that left at `sent_at` ends the round.
    pub fn ends_with(&self, sent_at: Time) -> bool {
        self.began.is_some_and(|began| sent_at >= began)
    }

    /// Ends the round and begins the next one.
    pub fn end(&mut self, now: Time) -> Option<Finding> {
        let round = std::mem::take(self);
        self.began = Some(now);
        self.from = round.newest;
        self.newest = round.newest;
        let span = between(round.from?, round.newest?);
        Some(Finding {
            now,
            packets: round.received + round.lost,
            lost: round.lost,
            least: round.least.unwrap_or(0.0),
            mean: if round.steady > 0.0 { round.sum / round.steady } else { 0.0 },
            greatest: round.greatest,
            before_loss: (round.lost > 0.0).then(|| round.before_loss / round.lost),
            rate: if span > 0.0 { round.received / span } else { 0.0 },
            steady: round.steady,
            app_limited: round.app_limited,
        })
    }
}
