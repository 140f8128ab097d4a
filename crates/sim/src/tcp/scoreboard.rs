//! What is under way, what was reported, and what was lost (RFC 6675 §3, RFC 8985 §5).

use super::ranges::Ranges;
use super::truth::Truth;
use super::AckPacket;
use skyhaul_cc::parts::PacketState;
use skyhaul_cc::units::{Bytes, Time};
use std::collections::{BTreeSet, VecDeque};

/// One segment that has been sent and is not yet acknowledged in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// When it was last sent.
    pub sent_at: Time,
    /// State of the delivery estimate at that time.
    pub delivery: PacketState,
    /// Number of its last transmission among all of the flow, from 1.
    pub transmission: u64,
    pub place: Place,
    /// It was sent more than once.
    pub again: bool,
    /// Ground truth for the statistics, of which no decision may know: a copy sent so far arrives.
    pub arrives: bool,
    /// As little known: what became of the last copy.
    pub truth: Truth,
}

/// Where a segment is, as far as the sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    InFlight,
    /// Lost and not sent again yet.
    Lost,
    Reported,
}

/// Something was declared lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    pub segments: u64,
    pub bytes: Bytes,
    /// When the newest of them left.
    pub sent_at: Time,
    /// What became of them, for the statistics; as many as segments, in the order of [`Truth::ALL`].
    pub truths: [u64; 5],
}

/// All segments from the first unacknowledged to the last one sent.
#[derive(Clone, Debug)]
pub(super) struct Scoreboard {
    mss: Bytes,
    total: Option<Bytes>,
    first: u64,
    records: VecDeque<Record>,
    reported: Ranges,
    lost: BTreeSet<u64>,
    in_flight: Bytes,
    transmissions: u64,
    /// Transmissions in their order, for loss detection by time; entries that a later transmission or an
    /// ACK has overtaken are dropped when they come to the front.
    order: Option<VecDeque<(u64, u64)>>,
    /// The three highest segments reported, the highest first: the third decides what three
    /// duplicates say.
    highest: [u64; 3],
    /// Everything below has been judged by three duplicates.
    judged: u64,
}

impl Scoreboard {
    /// Nothing sent; `total` bytes to send at most, `timed` to keep the order of transmissions.
    pub fn new(mss: Bytes, total: Option<Bytes>, timed: bool) -> Self {
        Scoreboard {
            mss: mss.max(Bytes(1)),
            total,
            first: 0,
            records: VecDeque::new(),
            reported: Ranges::default(),
            lost: BTreeSet::new(),
            in_flight: Bytes::ZERO,
            transmissions: 0,
            order: timed.then(VecDeque::new),
            highest: [0; 3],
            judged: 0,
        }
    }

    /// The first segment that is not acknowledged in order.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The first segment that was never sent.
    pub fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Whether all data has been sent at least once.
    pub fn sent_all(&self) -> bool {
        self.total.is_some_and(|total| self.next() >= total.0.div_ceil(self.mss.0))
    }

    /// Payload of a segment.
    pub fn size(&self, seq: u64) -> Bytes {
        match self.total {
            Some(total) => self.mss.min(total.saturating_sub(self.mss * seq)),
            None => self.mss,
        }
    }

    /// Bytes before a segment.
    pub fn bytes_before(&self, seq: u64) -> Bytes {
        let bytes = self.mss * seq;
        self.total.map_or(bytes, |total| bytes.min(total))
    }

    /// Bytes sent, not reported and not lost.
    pub fn in_flight(&self) -> Bytes {
        self.in_flight
    }

    /// Whether nothing waits for an acknowledgment.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Segments reported above the first unacknowledged one.
    pub fn reported(&self) -> u64 {
        self.reported.count()
    }

    /// The first segment that is lost and not yet sent again.
    pub fn first_lost(&self) -> Option<u64> {
        self.lost.first().copied()
    }

    /// The highest segment in flight.
    pub fn last_in_flight(&self) -> Option<u64> {
        let index = self.records.iter().rposition(|record| record.place == Place::InFlight)?;
        Some(self.first + index as u64)
    }

    pub fn record(&self, seq: u64) -> Option<&Record> {
        self.records.get(usize::try_from(seq.checked_sub(self.first)?).ok()?)
    }

    fn record_mut(&mut self, seq: u64) -> Option<&mut Record> {
        self.records.get_mut(usize::try_from(seq.checked_sub(self.first)?).ok()?)
    }

    /// Notes that `seq`, the next new segment or one sent before, leaves. Returns whether a copy sent
    /// earlier arrives: sending it again was needless.
    pub fn on_sent(&mut self, seq: u64, now: Time, delivery: PacketState) -> bool {
        self.transmissions += 1;
        let transmission = self.transmissions;
        if let Some(order) = &mut self.order {
            order.push_back((seq, transmission));
        }
        let size = self.size(seq);
        if seq == self.next() {
            self.in_flight += size;
            let place = Place::InFlight;
            self.records.push_back(Record {
                sent_at: now,
                delivery,
                transmission,
                place,
                again: false,
                arrives: false,
                truth: Truth::Arrives,
            });
            return false;
        }
        self.lost.remove(&seq);
        let record = self.record_mut(seq).expect("only segments on the scoreboard are sent again");
        let was_lost = record.place == Place::Lost;
        let needless = record.arrives;
        *record =
            Record { sent_at: now, delivery, transmission, place: Place::InFlight, again: true, ..*record };
        if was_lost {
            self.in_flight += size;
        }
        needless
    }

    /// Tells the ground truth about the last transmission of `seq`.
    pub fn on_fate(&mut self, seq: u64, truth: Truth) {
        if let Some(record) = self.record_mut(seq) {
            record.arrives |= truth == Truth::Arrives;
            record.truth = truth;
        }
    }

    /// Takes in an ACK; `delivered` hears of every segment it newly covers, as it was. Returns how many
    /// segments the in-order point moved.
    pub fn acknowledge(&mut self, ack: &AckPacket, mut delivered: impl FnMut(u64, &Record, Bytes)) -> u64 {
        let next = ack.next.min(self.next());
        let before = self.first;
        while self.first < next {
            let Some(record) = self.records.pop_front() else { break };
            let seq = self.first;
            let size = self.size(seq);
            self.first += 1;
            match record.place {
                Place::Reported => continue,
                Place::InFlight => self.in_flight -= size,
                Place::Lost => {
                    self.lost.remove(&seq);
                }
            }
            delivered(seq, &record, size);
        }
        if self.first > before {
            self.reported.forget_below(self.first);
        }
        let end = self.next();
        for &(start, stop) in ack.sacks.blocks() {
            let (start, stop) = (start.max(self.first), stop.min(end));
            let Scoreboard { reported, records, lost, in_flight, first, highest, mss, total, .. } = self;
            reported.insert(start, stop, |from, to| {
                for seq in from..to {
                    let record = &mut records[(seq - *first) as usize];
                    let size = total.map_or(*mss, |total| (*mss).min(total.saturating_sub(*mss * seq)));
                    match record.place {
                        Place::InFlight => *in_flight -= size,
                        Place::Lost => {
                            lost.remove(&seq);
                        }
                        Place::Reported => unreachable!("the set of ranges says it is new"),
                    }
                    delivered(seq, record, size);
                    record.place = Place::Reported;
                    if seq > highest[2] {
                        highest[2] = seq;
                        highest.sort_unstable_by(|a, b| b.cmp(a));
                    }
                }
            });
        }
        self.first - before
    }

    /// Declares lost what has three reported segments above it and was sent only once (RFC 6675 §4).
    pub fn judge_by_count(&mut self) -> Losses {
        let mut losses = Losses::default();
        if self.reported.count() < 3 {
            return losses;
        }
        let end = self.highest[2];
        self.judged = self.judged.max(self.first);
        while self.judged < end {
            let seq = self.judged;
            self.judged += 1;
            if self.record(seq).is_some_and(|record| !record.again) {
                self.lose(seq, &mut losses);
            }
        }
        losses
    }

    /// Declares lost what was sent before transmission `newest` and is `overdue`; the answer's second
    /// part is the oldest such segment that is not overdue yet.
    pub fn judge_by_time(&mut self, newest: u64, overdue: impl Fn(Time) -> bool) -> (Losses, Option<Time>) {
        let mut losses = Losses::default();
        while let Some(&(seq, transmission)) = self.order.as_ref().and_then(VecDeque::front) {
            if let Some(record) = self.record(seq) {
                let current = record.transmission == transmission && record.place == Place::InFlight;
                if current && transmission >= newest {
                    break;
                }
                if current && !overdue(record.sent_at) {
                    return (losses, Some(record.sent_at));
                }
                if current {
                    self.lose(seq, &mut losses);
                }
            }
            if let Some(order) = &mut self.order {
                order.pop_front();
            }
        }
        (losses, None)
    }

    /// Transmissions so far.
    pub fn transmissions(&self) -> u64 {
        self.transmissions
    }

    /// The first transmission in order that was not [taken](Scoreboard::take_oldest) yet: its segment and
    /// its number.
    pub fn oldest(&self) -> Option<(u64, u64)> {
        self.order.as_ref()?.front().copied()
    }

    /// Takes the oldest transmission out of the order.
    pub fn take_oldest(&mut self) {
        if let Some(order) = &mut self.order {
            order.pop_front();
        }
    }

    /// Declares everything in flight lost: the timeout.
    pub fn lose_all(&mut self) -> Losses {
        let mut losses = Losses::default();
        for seq in self.first..self.next() {
            self.lose(seq, &mut losses);
        }
        self.judged = self.next();
        if let Some(order) = &mut self.order {
            order.clear();
        }
        losses
    }

    /// Declares `seq` lost if it is in flight, and adds it to `losses`.
    pub fn lose(&mut self, seq: u64, losses: &mut Losses) {
        let size = self.size(seq);
        let Some(record) = self.record_mut(seq).filter(|record| record.place == Place::InFlight) else {
            return;
        };
        record.place = Place::Lost;
        losses.sent_at = losses.sent_at.max(record.sent_at);
        losses.segments += 1;
        losses.truths[record.truth as usize] += 1;
        losses.bytes += size;
        self.in_flight -= size;
        self.lost.insert(seq);
    }
}
