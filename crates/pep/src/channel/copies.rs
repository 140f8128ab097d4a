//! Bursts of one or two packets are sent twice.
//!
//! The code for one packet is the packet itself. It also works where repair of streams cannot: when the
//! packet that opens a flow is lost, the far end's QUIC knows of no stream that could be repaired. The far
//! end's QUIC drops the copy if the packet has come.

use bytes::Bytes;
use quinn_proto::Transmit;
use skyhaul_cc::{Duration, Share, Time};
use std::collections::VecDeque;

/// Packets of a burst that is small. A flow of three packets is known to the far end if one of them
/// arrives, and then its stream can be repaired.
pub(super) const SMALL: usize = 2;
/// The copy follows after 1/64 of a round trip, so that one accident seldom hits both …
const PAUSE: u32 = 64;
/// … within these bounds.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// Copies that have not left after so many parts of a round trip are of no use.
const STALE: u32 = 2;
/// More loss than this takes a second copy.
const MUCH_LOSS: f64 = 0.02;
/// Copies that wait, at most.
const MOST: usize = 16;

/// A packet and where it went.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) transmit: Transmit,
    /// Its number, if packets have numbers.
    pub(super) number: u64,
    pub(super) packet: Bytes,
    due: Time,
}

impl Copy {
    fn at(&self, due: Time) -> Copy {
        let Transmit { destination, ecn, size, segment_size, src_ip } = self.transmit;
        let transmit = Transmit { destination, ecn, size, segment_size, src_ip };
        Copy { transmit, number: self.number, packet: self.packet.clone(), due }
    }
}

/// What was sent since the channel was idle, and the copies that are due.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Packets with flow data in this burst.
    burst: usize,
    /// They themselves, while they are few.
    first: Vec<Copy>,
    waiting: VecDeque<Copy>,
    pub(super) sent: u64,
}

impl Copies {
    /// A packet with flow data has left.
    pub(super) fn on_sent(&mut self, transmit: &Transmit, number: u64, packet: &[u8]) {
        self.burst += 1;
        if self.burst > SMALL {
            self.first.clear();
            return;
        }
        let Transmit { destination, ecn, size, segment_size, src_ip } = *transmit;
        let transmit = Transmit { destination, ecn, size, segment_size, src_ip };
        self.first.push(Copy { transmit, number, packet: Bytes::copy_from_slice(packet), due: Time::ZERO });
    }

    /// Nothing more is to be sent now: the burst is over. True if it will be copied.
    pub(super) fn end_of_burst(&mut self, now: Time, rtt: Duration, loss: Share) -> bool {
        self.burst = 0;
        let pause = (rtt / PAUSE).clamp(PAUSES.0, PAUSES.1);
        let copies = if loss.value() > MUCH_LOSS { 2 } else { 1 };
        for n in 1..=copies {
            self.waiting.extend(self.first.iter().map(|packet| packet.at(now + pause * n)));
        }
        while self.waiting.len() > MOST {
            self.waiting.pop_front();
        }
        let is_small = !self.first.is_empty();
        self.first.clear();
        is_small
    }

    /// When the next copy is due.
    pub(super) fn due(&self) -> Option<Time> {
        self.waiting.front().map(|copy| copy.due)
    }

    /// A copy to send now.
    pub(super) fn next(&mut self, now: Time, rtt: Duration) -> Option<Copy> {
        while self.due()? <= now {
            let copy = self.waiting.pop_front()?;
            if now.since(copy.due) <= rtt / STALE {
                self.sent += 1;
                return Some(copy);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(540);

    fn transmit() -> Transmit {
        let destination = std::net::SocketAddr::from(([10, 0, 0, 1], 1));
        Transmit { destination, ecn: None, size: 3, segment_size: None, src_ip: None }
    }

    fn burst(copies: &mut Copies, packets: u64, loss: f64) -> bool {
        (0..packets).for_each(|n| copies.on_sent(&transmit(), n, &[n as u8; 3]));
        copies.end_of_burst(Time::ZERO, RTT, Share::new(loss).unwrap())
    }

    fn sent(copies: &mut Copies, at: u64) -> Vec<u64> {
        std::iter::from_fn(|| copies.next(Time::from_millis(at), RTT)).map(|copy| copy.number).collect()
    }

    #[test]
    fn one_packet_or_two_are_copied_after_a_pause_and_three_are_not() {
        let mut copies = Copies::default();
        assert!(burst(&mut copies, 2, 0.01));
        assert_eq!(copies.due(), Some(Time::ZERO + RTT / 64));
        assert_eq!(sent(&mut copies, 8), []);
        assert_eq!(sent(&mut copies, 9), [0, 1]);
        assert!(!burst(&mut copies, 3, 0.01) && !burst(&mut copies, 0, 0.01));
        assert_eq!((copies.due(), copies.sent), (None, 2));
    }

    #[test]
    fn much_loss_takes_two_copies_and_late_ones_are_dropped() {
        let mut copies = Copies::default();
        assert!(burst(&mut copies, 1, 0.1));
        assert_eq!(sent(&mut copies, 9), [0]);
        assert_eq!(sent(&mut copies, 17), [0]);
        assert!(burst(&mut copies, 1, 0.1));
        assert_eq!(sent(&mut copies, 300), []);
    }

    #[test]
    fn copies_that_may_not_leave_are_kept_in_bounds() {
        let mut copies = Copies::default();
        (0..100).for_each(|_| assert!(burst(&mut copies, 2, 0.01)));
        assert_eq!(copies.waiting.len(), MOST);
    }
}
