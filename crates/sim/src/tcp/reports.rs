//! Reports of receive times beside TCP's own acknowledgments, as the channel's datagram shim gives them:
//! what became of each transmission, in the order of sending.

use skyhaul_cc::units::{Bytes, Time};
use skyhaul_cc::Report;
use std::collections::VecDeque;

/// A transmission that was received: its number among all of the flow, from 1, and when.
pub(crate) type Arrival = (u64, Time);

/// The sender's book of transmissions whose fate is not told yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    /// Number of the first transmission in the book.
    first: u64,
    book: VecDeque<Entry>,
    /// Entries that have arrived.
    arrived: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    sent_at: Time,
    received_at: Option<Time>,
    bytes: Bytes,
    train: Option<u32>,
}

impl Reports {
    /// The next transmission leaves.
    pub fn on_sent(&mut self, sent_at: Time, bytes: Bytes, train: Option<u32>) {
        self.book.push_back(Entry { sent_at, received_at: None, bytes, train });
    }

    /// The far end says that a transmission has arrived. One that was told as lost before is not told
    /// again.
    pub fn on_arrival(&mut self, (number, received_at): Arrival) {
        let index = number.checked_sub(self.first + 1).and_then(|index| usize::try_from(index).ok());
        if let Some(entry) = index.and_then(|index| self.book.get_mut(index)) {
            self.arrived += usize::from(entry.received_at.is_none());
            entry.received_at.get_or_insert(received_at);
        }
    }

    /// What can be told next: a transmission that has arrived, or one that three later ones have overtaken
    /// (RFC 9002 §6.1.1).
    pub fn next(&mut self, now: Time) -> Option<Report> {
        let first = self.book.front()?;
        if first.received_at.is_none() && self.arrived < OVERTAKEN {
            return None;
        }
        let Entry { sent_at, received_at, bytes, train } = self.book.pop_front()?;
        self.first += 1;
        self.arrived -= usize::from(received_at.is_some());
        Some(Report { now, sent_at, received_at, bytes, train })
    }
}

/// Later packets that make a missing one lost.
const OVERTAKEN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    fn told(reports: &mut Reports) -> Vec<(u64, bool)> {
        std::iter::from_fn(|| reports.next(MS(99)))
            .map(|report| (report.sent_at.as_nanos() / 1_000_000, report.received_at.is_some()))
            .collect()
    }

    #[test]
    fn fates_are_told_once_in_order_of_sending_and_a_loss_when_three_later_ones_are_there() {
        let mut reports = Reports::default();
        (1..=6).for_each(|n| reports.on_sent(MS(n), Bytes(1448), None));
        reports.on_arrival((1, MS(51)));
        reports.on_arrival((3, MS(53)));
        reports.on_arrival((4, MS(54)));
        reports.on_arrival((4, MS(55)));
        assert_eq!(told(&mut reports), [(1, true)]);
        reports.on_arrival((5, MS(55)));
        assert_eq!(told(&mut reports), [(2, false), (3, true), (4, true), (5, true)]);
        // Too late: it was told as lost.
        reports.on_arrival((2, MS(60)));
        reports.on_arrival((6, MS(61)));
        assert_eq!(told(&mut reports), [(6, true)]);
    }
}
