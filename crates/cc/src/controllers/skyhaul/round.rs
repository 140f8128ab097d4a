//! One packet-timed round: what was reported from its first packet to the first one sent after its
//! beginning.
//!
//! Where something holds packets back and lets them go together (frames of a shared medium, jitter that keeps
//! the order), a round begins and ends in the middle of a clump, and its rate is wrong by as much. So it goes
//! from the end of one clump to the end of another, and queues are those of the packets that waited least.

use super::path::between;
use crate::event::Report;
use crate::units::Time;

/// A delay that grows from one packet to the next by this much …
const HOLD: f64 = 0.001;
/// … and by so many times the mean distance of packets begins a clump.
const HOLD_SPACINGS: f64 = 2.0;
/// A round is clumped if packets were held back for this share of its time.
const CLUMPED: f64 = 0.5;

/// A packet as far as clumps are concerned.
#[derive(Clone, Copy, Debug)]
struct Packet {
    sent_at: Time,
    received_at: Time,
    /// In a train: those make queues.
    train: bool,
}

/// Clumps of packets, all rounds long.
#[derive(Clone, Copy, Debug, Default)]
struct Clumps {
    /// The newest packet, which counts when the next one is there: one that alone is late was overtaken, and
    /// nothing was held back.
    newest: Option<Packet>,
    /// The packet before: when it left and when it arrived, but not before any other.
    before: Option<(Time, Time)>,
    /// Packets that have counted so far.
    count: f64,
    /// Mean distance of the packets of the last round.
    spacing: f64,
    /// Where the last clump ended, and how many packets had arrived by then.
    end: Option<(Time, f64)>,
    /// Least delay in the present clump.
    least: Option<f64>,
}

/// A round under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    began: Option<Time>,
    /// Receive time of the newest packet when the round began.
    from: Option<Time>,
    newest: Option<Time>,
    received: f64,
    /// Those that count for the rate.
    counted: f64,
    lost: f64,
    steady: f64,
    least: Option<f64>,
    least_of_all: Option<f64>,
    sum: f64,
    greatest: f64,
    /// Queue before each loss.
    before_loss: f64,
    clumps: Clumps,
    /// The end of a clump that the rate counts from.
    from_end: Option<(Time, f64)>,
    /// Time for which packets were held back.
    held: f64,
    /// Least delays of finished clumps: their sum and number, and the least of them.
    lows: (f64, f64),
    lowest: Option<f64>,
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
    /// Least queue met by any packet: where little is sent, trains are all there is.
    pub least_of_all: f64,
    /// Mean queue met by the last packet before each loss.
    pub before_loss: Option<f64>,
    /// Packets received per second, by receive times.
    pub rate: f64,
    /// Where packets come in clumps: one-way delays, on two clocks, of those in each that waited least.
    pub clumps: Option<Lows>,
    /// Packets outside trains; the queues say nothing if there were none.
    pub steady: f64,
    pub app_limited: bool,
}

/// Mean and least over the clumps of a round of the least one-way delay in each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lows {
    pub mean: f64,
    pub least: f64,
}

impl Round {
    /// A packet arrived and met this queue.
    pub fn hear(&mut self, report: &Report, received_at: Time, queue: f64) {
        self.began.get_or_insert(report.now);
        self.received += 1.0;
        self.least_of_all = Some(self.least_of_all.map_or(queue, |least| least.min(queue)));
        if report.train.is_none() {
            self.steady += 1.0;
            self.least = Some(self.least.map_or(queue, |least| least.min(queue)));
            self.sum += queue;
            self.greatest = self.greatest.max(queue);
        }
        let packet = Packet { sent_at: report.sent_at, received_at, train: report.train.is_some() };
        if let Some(before) = self.clumps.newest.replace(packet) {
            self.hear_clump(Packet { received_at: before.received_at.min(received_at), ..before });
        }
    }

    fn hear_clump(&mut self, packet: Packet) {
        let clumps = &mut self.clumps;
        let (sent_at, newest) = clumps.before.unwrap_or((packet.sent_at, packet.received_at));
        let received_at = packet.received_at.max(newest);
        let held = between(newest, received_at) - between(sent_at, packet.sent_at);
        if held > HOLD.max(HOLD_SPACINGS * clumps.spacing) {
            self.held += held;
            clumps.end = Some((newest, clumps.count));
            if let Some(least) = clumps.least.take() {
                self.lows = (self.lows.0 + least, self.lows.1 + 1.0);
                self.lowest = Some(self.lowest.map_or(least, |lowest| lowest.min(least)));
            }
            self.from_end = self.from_end.or(clumps.end);
        }
        clumps.before = Some((packet.sent_at, received_at));
        clumps.count += 1.0;
        self.from.get_or_insert(received_at);
        self.newest = Some(received_at);
        self.counted += 1.0;
        if !packet.train {
            let delay = between(packet.sent_at, packet.received_at);
            clumps.least = Some(clumps.least.map_or(delay, |least| least.min(delay)));
        }
    }

    /// From the end of one clump to the end of the last one, if the round has more than one.
    fn clumped_rate(&self, span: f64) -> Option<f64> {
        let (from, to) = (self.from_end?, self.clumps.end?);
        let time = between(from.0, to.0);
        (self.held > CLUMPED * span && time > 0.0).then(|| (to.1 - from.1) / time)
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
        self.clumps = round.clumps;
        // One from long ago would tell of long ago.
        self.from_end = round.clumps.end.filter(|(at, _)| Some(*at) >= round.from);
        let span = between(round.from?, round.newest?);
        if span > 0.0 && round.counted > 0.0 {
            self.clumps.spacing = span / round.counted;
        }
        let clumped_rate = round.clumped_rate(span);
        let rate = if span > 0.0 { round.counted / span } else { 0.0 };
        let mean = if round.steady > 0.0 { round.sum / round.steady } else { 0.0 };
        let lows = round.lowest.map(|least| Lows { mean: round.lows.0 / round.lows.1, least });
        Some(Finding {
            now,
            packets: round.received + round.lost,
            lost: round.lost,
            least: round.least.unwrap_or(0.0),
            mean,
            greatest: round.greatest,
            least_of_all: round.least_of_all.unwrap_or(0.0),
            before_loss: (round.lost > 0.0).then(|| round.before_loss / round.lost),
            rate: clumped_rate.unwrap_or(rate),
            clumps: clumped_rate.and(lows),
            steady: round.steady,
            app_limited: round.app_limited,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, Duration};

    const SPACING: u64 = 100;

    /// Rounds of 500 packets, one every 100 µs with this queue, and what they find.
    fn rounds(arrives: impl Fn(u64) -> u64) -> Vec<Finding> {
        let mut round = Round::default();
        let mut findings = Vec::new();
        for n in 0..5_000 {
            let sent_at = Time::from_micros(n * SPACING);
            let received_at = Time::from_micros(arrives(n));
            let queue = between(sent_at, received_at) - 0.270;
            let report = Report {
                now: received_at,
                sent_at,
                received_at: Some(received_at),
                bytes: Bytes(1448),
                train: None,
            };
            round.hear(&report, received_at, queue);
            if n % 500 == 499 {
                findings.extend(round.end(received_at + Duration::from_millis(270)));
            }
        }
        findings.split_off(2)
    }

    #[test]
    fn rounds_that_begin_and_end_within_frames_know_the_rate_and_the_queue() {
        let framed = |n: u64| (n * SPACING + 3_000).next_multiple_of(17_000) + 270_000;
        for finding in rounds(framed) {
            assert!((finding.rate / 10_000.0 - 1.0).abs() < 0.01, "{}", finding.rate);
            let lows = finding.clumps.expect("frames are clumps");
            assert!((lows.mean - 0.273).abs() < 2e-4 && (lows.least - 0.273).abs() < 2e-4, "{lows:?}");
        }
    }

    #[test]
    fn packets_that_come_as_they_left_or_are_overtaken_are_no_clumps() {
        let late = |n: u64| n * SPACING + 272_000 + 10_000 * u64::from(n.is_multiple_of(70));
        for finding in rounds(late) {
            assert_eq!(finding.clumps, None);
            assert!((finding.rate / 10_000.0 - 1.0).abs() < 0.05, "{}", finding.rate);
        }
    }
}
