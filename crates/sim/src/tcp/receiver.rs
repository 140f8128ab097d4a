//! The receiving end: what is in order, what is not, and when to say so.

use super::ranges::Ranges;
use super::{AckPacket, Sacks, FEW};
use skyhaul_cc::units::{Bytes, Duration, Time};

/// When and how a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckOptions {
    /// An ACK at the latest for every so many segments in order: 2 (RFC 5681 §4.2). Satellite
    /// performance proxies and channels use more.
    pub every: u32,
    /// An ACK at the latest so long after an unacknowledged segment: 40 ms, as Linux begins with.
    pub delay: Duration,
    /// ACK thinning: at most one ACK in this time, the newest stands for those left out; zero for none.
    pub thinning: Duration,
    /// A middlebox in front of the receiver inspects packets in bunches: it lets them through only at multiples
    /// of this time; zero for none.
    pub inspection: Duration,
    /// SACK blocks per ACK.
    pub sacks: SackBlocks,
    /// Receive buffer, which bounds what may be under way: practically boundless by default. The
    /// application reads at once whatever is in order.
    pub window: Option<Bytes>,
    /// Size of an ACK on the return link, IP header included: 60 bytes, which stands for ACKs with and
    /// without SACK blocks.
    pub size: Bytes,
}

/// How many SACK blocks fit in an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SackBlocks {
    /// At most so many, from 0 to 4: 3 beside timestamps (RFC 2018 §3).
    Most(u8),
    /// All there are: no TCP header holds them, QUIC's ACK frame does.
    All,
}

impl Default for AckOptions {
    fn default() -> Self {
        AckOptions {
            every: 2,
            delay: Duration::from_millis(40),
            thinning: Duration::ZERO,
            inspection: Duration::ZERO,
            sacks: SackBlocks::Most(3),
            window: None,
            size: Bytes(60),
        }
    }
}

/// The receiving end of a flow.
#[derive(Clone, Debug)]
pub struct Receiver {
    options: AckOptions,
    next: u64,
    above: Ranges,
    /// The last blocks that grew, the newest first; empty ranges are none.
    recent: [(u64, u64); FEW],
    waiting: u32,
    due: Option<Time>,
    last_ack: Option<Time>,
    duplicate: bool,
    duplicates: u64,
}

impl Receiver {
    /// A receiver that has nothing yet.
    pub fn new(options: AckOptions) -> Self {
        Receiver {
            options,
            next: 0,
            above: Ranges::default(),
            recent: [(0, 0); FEW],
            waiting: 0,
            due: None,
            last_ack: None,
            duplicate: false,
            duplicates: 0,
        }
    }

    /// When a segment that comes to the middlebox at `at` is let through.
    pub fn admitted(&self, at: Time) -> Time {
        match u64::try_from(self.options.inspection.as_nanos()) {
            Ok(slot @ 1..) => Time::from_nanos(at.as_nanos().div_ceil(slot).saturating_mul(slot)),
            _ => at,
        }
    }

    /// A segment has arrived; perhaps an ACK is sent at once.
    pub fn on_segment(&mut self, now: Time, seq: u64) -> Option<AckPacket> {
        let mut at_once = false;
        if seq == self.next && self.above.count() == 0 {
            self.next += 1;
        } else if seq < self.next || self.above.around(seq).is_some() {
            self.duplicates += 1;
            self.duplicate = true;
            at_once = true;
        } else {
            // RFC 5681 §4.2: an ACK at once for what leaves, fills or shortens a gap.
            at_once = true;
            self.above.insert(seq, seq + 1, |_, _| ());
            if let Some((_, end)) = self.above.first().filter(|&(start, _)| start == self.next) {
                self.next = end;
                self.above.forget_below(end);
            } else {
                self.remember(seq);
            }
        }
        self.waiting += 1;
        at_once |= self.waiting >= self.options.every;
        let due = if at_once { now } else { self.due.unwrap_or(now + self.options.delay) };
        let earliest = self.last_ack.map_or(now, |last| last + self.options.thinning);
        self.due = Some(due.min(self.due.unwrap_or(Time::MAX)).max(earliest));
        self.on_timeout(now)
    }

    /// When an ACK is due, if none was needed at once.
    pub fn timeout(&self) -> Option<Time> {
        self.due
    }

    /// The ACK that is due at `now`, if one is.
    pub fn on_timeout(&mut self, now: Time) -> Option<AckPacket> {
        if self.due? > now {
            return None;
        }
        self.due = None;
        self.waiting = 0;
        self.last_ack = Some(now);
        let duplicate = std::mem::take(&mut self.duplicate);
        Some(AckPacket { next: self.next, sacks: self.sacks(), duplicate })
    }

    /// The first segment not yet there.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Segments that arrived again.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Segments held because one before them is missing.
    pub fn held(&self) -> u64 {
        self.above.count()
    }

    fn remember(&mut self, seq: u64) {
        let Some(block) = self.above.around(seq) else { return };
        // A block that grew has swallowed those it touched.
        let others = self.recent.into_iter().filter(|old| old.1 > self.next && old.0 < old.1);
        let mut newest =
            std::iter::once(block).chain(others.filter(|old| old.1 < block.0 || old.0 > block.1));
        self.recent = std::array::from_fn(|_| newest.next().unwrap_or((0, 0)));
    }

    fn sacks(&self) -> Sacks {
        if self.above.count() == 0 {
            return Sacks::default();
        }
        match self.options.sacks {
            SackBlocks::All => Sacks::all(self.above.iter()),
            SackBlocks::Most(most) => {
                let mut sacks = Sacks::default();
                let blocks = self.recent.into_iter().filter(|block| block.1 > self.next);
                blocks.take(usize::from(most)).for_each(|block| sacks.push(block));
                sacks
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MS: fn(u64) -> Time = Time::from_millis;

    fn acks(receiver: &mut Receiver, seqs: &[u64]) -> Vec<Option<AckPacket>> {
        seqs.iter().enumerate().map(|(i, &seq)| receiver.on_segment(MS(i as u64), seq)).collect()
    }

    #[test]
    fn every_second_segment_in_order_is_acknowledged_at_once_and_the_first_after_the_delay() {
        let mut receiver = Receiver::new(AckOptions::default());
        let sent = acks(&mut receiver, &[0, 1, 2]);
        assert_eq!(sent.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(receiver.timeout(), Some(MS(42)));
        assert_eq!(receiver.on_timeout(MS(41)), None);
        assert_eq!(receiver.on_timeout(MS(42)).map(|ack| ack.next), Some(3));
        assert_eq!(receiver.timeout(), None);
    }

    #[test]
    fn gaps_are_reported_at_once_the_newest_block_first_and_at_most_three() {
        let mut receiver = Receiver::new(AckOptions::default());
        let sent = acks(&mut receiver, &[0, 2, 4, 6, 8, 5]);
        let last = sent[5].clone().unwrap();
        assert_eq!((last.next, last.sacks.blocks()), (1, &[(4, 7), (8, 9), (2, 3)][..]));
        let filled = receiver.on_segment(MS(9), 1).unwrap();
        assert_eq!((filled.next, filled.sacks.blocks()), (3, &[(4, 7), (8, 9)][..]));
        assert_eq!(receiver.held(), 4);
    }

    proptest! {
        #[test]
        fn blocks_are_whole_ranges_of_what_arrived_the_one_that_grew_first(
            seqs in prop::collection::vec(0..40u64, 1..60)
        ) {
            let mut receiver = Receiver::new(AckOptions { every: 1, ..AckOptions::default() });
            let (mut arrived, mut most) = (BTreeSet::new(), 0);
            for seq in seqs {
                let fresh = arrived.insert(seq);
                let ack = receiver.on_segment(MS(0), seq).expect("an ACK for each");
                prop_assert_eq!(ack.next, (0..).find(|n| !arrived.contains(n)).unwrap());
                prop_assert_eq!(ack.duplicate, !fresh);
                for &(start, end) in ack.sacks.blocks() {
                    prop_assert!((start..end).all(|n| arrived.contains(&n)) && start > ack.next);
                    prop_assert!(!arrived.contains(&(start - 1)) && !arrived.contains(&end));
                }
                if fresh && seq > ack.next {
                    prop_assert!(ack.sacks.blocks().first().is_some_and(|&(s, e)| (s..e).contains(&seq)));
                }
                // Four blocks are remembered; what more there ever was is forgotten.
                let held = receiver.above.iter().count();
                most = most.max(held);
                prop_assert!(most > FEW || ack.sacks.blocks().len() == held.min(3));
            }
        }
    }

    #[test]
    fn all_blocks_are_reported_where_asked() {
        let mut receiver = Receiver::new(AckOptions { sacks: SackBlocks::All, ..AckOptions::default() });
        let sent = acks(&mut receiver, &[0, 2, 4, 6, 8, 10]);
        assert_eq!(sent[5].as_ref().map(|ack| ack.sacks.blocks().len()), Some(5));
    }

    #[test]
    fn a_segment_that_comes_twice_is_reported_as_a_duplicate_once() {
        let mut receiver = Receiver::new(AckOptions::default());
        let sent = acks(&mut receiver, &[0, 0, 2, 2, 1]);
        let told: Vec<_> = sent.iter().flatten().map(|ack| (ack.next, ack.duplicate)).collect();
        assert_eq!(told, [(1, true), (1, false), (1, true), (3, false)]);
        assert_eq!(receiver.duplicates(), 2);
    }

    #[test]
    fn thinning_leaves_one_ack_per_interval_that_stands_for_all() {
        let options = AckOptions { thinning: Duration::from_millis(10), every: 1, ..AckOptions::default() };
        let mut receiver = Receiver::new(options);
        let sent = acks(&mut receiver, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let at: Vec<_> = (0..).zip(&sent).filter(|(_, ack)| ack.is_some()).map(|(i, _)| i).collect();
        assert_eq!(at, [0, 10]);
        assert_eq!(sent[10].as_ref().map(|ack| ack.next), Some(11));
    }
}
