//! What became of each packet, for hosts whose far end reports receive times: told in the order of
//! sending, each exactly once.

use crate::event::Report;
use crate::units::{Bytes, Duration, Time};
use std::collections::VecDeque;

/// The sender's book of packets whose fate is not told yet. Packets are numbered from 0 in the order of
/// sending.
#[derive(Clone, Debug, Default)]
pub struct Fates {
    /// Number of the first packet in the book.
    first: u64,
    book: VecDeque<Entry>,
    /// Entries that have arrived, or are taken to have.
    arrived: usize,
    /// Delay of the packet told last, for those nobody reported.
    delay: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    sent_at: Time,
    fate: Fate,
    bytes: Bytes,
    train: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Arrived(Time),
    Unknown,
}

impl Fates {
    /// The next packet leaves.
    pub fn on_sent(&mut self, sent_at: Time, bytes: Bytes, train: Option<u32>) {
        self.book.push_back(Entry { sent_at, fate: Fate::Open, bytes, train });
    }

    /// Number of the next packet to leave.
    pub fn next_number(&self) -> u64 {
        self.first + self.book.len() as u64
    }

    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.book.get_mut(index)
    }

    /// When packet `number` left, while its fate is not told.
    pub fn sent_at(&self, number: u64) -> Option<Time> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.book.get(index).map(|entry| entry.sent_at)
    }

    /// The far end says that packet `number` has arrived. One that was told as lost before is not told
    /// again.
    pub fn on_arrival(&mut self, number: u64, received_at: Time) {
        let Some(entry) = self.entry(number) else { return };
        let new = entry.fate == Fate::Open;
        if !matches!(entry.fate, Fate::Arrived(_)) {
            entry.fate = Fate::Arrived(received_at);
        }
        self.arrived += usize::from(new);
    }

    /// No report will ever say what became of packet `number`, because reports were lost: it counts as
    /// arrived, with the delay of the one before.
    pub fn on_unknown(&mut self, number: u64) {
        let Some(entry) = self.entry(number) else { return };
        let new = entry.fate == Fate::Open;
        if new {
            entry.fate = Fate::Unknown;
        }
        self.arrived += usize::from(new);
    }

    /// What can be told next: a packet that has arrived, or one that three later ones have overtaken
    /// (RFC 9002 §6.1.1).
    pub fn next(&mut self, now: Time) -> Option<Report> {
        let first = self.book.front()?;
        if first.fate == Fate::Open && self.arrived < OVERTAKEN {
            return None;
        }
        let Entry { sent_at, fate, bytes, train } = self.book.pop_front()?;
        self.first += 1;
        self.arrived -= usize::from(fate != Fate::Open);
        let received_at = match fate {
            Fate::Open => None,
            Fate::Arrived(at) => {
                self.delay = at - sent_at;
                Some(at)
            }
            Fate::Unknown => Some(sent_at + self.delay),
        };
        Some(Report { now, sent_at, received_at, bytes, train })
    }
}

/// Later packets that make a missing one lost.
const OVERTAKEN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    fn told(fates: &mut Fates) -> Vec<(u64, bool)> {
        std::iter::from_fn(|| fates.next(MS(99)))
            .map(|report| (report.sent_at.as_nanos() / 1_000_000, report.received_at.is_some()))
            .collect()
    }

    #[test]
    fn fates_are_told_once_in_order_of_sending_and_a_loss_when_three_later_ones_are_there() {
        let mut fates = Fates::default();
        (0..6).for_each(|n| fates.on_sent(MS(n), Bytes(1448), None));
        fates.on_arrival(0, MS(51));
        fates.on_arrival(2, MS(53));
        fates.on_arrival(3, MS(54));
        fates.on_arrival(3, MS(55));
        assert_eq!(told(&mut fates), [(0, true)]);
        fates.on_arrival(4, MS(55));
        assert_eq!(told(&mut fates), [(1, false), (2, true), (3, true), (4, true)]);
        // Too late: it was told as lost.
        fates.on_arrival(1, MS(60));
        fates.on_arrival(5, MS(61));
        assert_eq!(told(&mut fates), [(5, true)]);
        assert_eq!(fates.next_number(), 6);
    }

    #[test]
    fn a_packet_of_which_no_report_says_anything_takes_the_delay_of_the_one_before() {
        let mut fates = Fates::default();
        (0..3).for_each(|n| fates.on_sent(MS(n), Bytes(1448), None));
        fates.on_arrival(0, MS(50));
        fates.on_unknown(1);
        fates.on_unknown(1);
        fates.on_arrival(2, MS(70));
        let times: Vec<_> =
            std::iter::from_fn(|| fates.next(MS(99))).map(|report| report.received_at).collect();
        assert_eq!(times, [Some(MS(50)), Some(MS(51)), Some(MS(70))]);
    }
}
