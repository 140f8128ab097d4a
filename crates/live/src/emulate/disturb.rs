//! What goes wrong with a link that no scenario describes: middleboxes, filters, cut cables. Put in and taken out
//! while packets flow.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use skyhaul_cc::units::{Bytes, Rate, Share};
use std::time::Duration;

/// What happens to the packets of one direction, beside what the scenario says. The default is nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// Nothing passes.
    pub cut: bool,
    /// No UDP passes.
    pub no_udp: bool,
    /// IP packets above this size vanish, and nobody is told.
    pub largest: Option<Bytes>,
    /// UDP above this rate vanishes, counted in IP bytes.
    pub udp_rate: Option<Rate>,
    /// Packets that come twice.
    pub duplicated: Share,
    /// UDP datagrams whose content has changed although their checksum is right.
    pub corrupted: Share,
    /// Packets that come later than those behind them, by `reordered_by`.
    pub reordered: Share,
    /// See `reordered`.
    pub reordered_by: Duration,
}

impl Disturbance {
    /// All is well.
    pub const NONE: Disturbance = Disturbance {
        cut: false,
        no_udp: false,
        largest: None,
        udp_rate: None,
        duplicated: Share::ZERO,
        corrupted: Share::ZERO,
        reordered: Share::ZERO,
        reordered_by: Duration::ZERO,
    };
}

impl Default for Disturbance {
    fn default() -> Disturbance {
        Disturbance::NONE
    }
}

/// What a disturbance does to one packet that is not lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// It comes so much later than planned.
    pub later: Duration,
    /// It comes twice.
    pub twice: bool,
}

/// A disturbance at work.
#[derive(Debug)]
pub struct Disturber {
    what: Disturbance,
    chance: Xoshiro256PlusPlus,
    /// Bytes that UDP may send now, and when that was counted.
    allowance: f64,
    counted: Duration,
}

impl Disturber {
    /// Begins at time `now` of a clock that goes on in [`Disturber::meet`].
    pub fn new(what: Disturbance, now: Duration) -> Disturber {
        Disturber {
            what,
            chance: Xoshiro256PlusPlus::seed_from_u64(SEED),
            allowance: BURST.as_f64(),
            counted: now,
        }
    }

    /// A packet comes to the link at `now`, and may be changed; none if it vanishes.
    pub fn meet(&mut self, now: Duration, packet: &mut [u8]) -> Option<Passage> {
        let what = self.what;
        let size = Bytes(packet.len() as u64);
        let datagram = udp_payload(packet);
        let too_large = what.largest.is_some_and(|largest| size > largest);
        if what.cut || too_large || (what.no_udp && datagram.is_some()) {
            return None;
        }
        if let (Some(rate), Some(_)) = (what.udp_rate, datagram) {
            let earned = rate.bytes_in(now.saturating_sub(self.counted)).as_f64();
            self.allowance = (self.allowance + earned).min(BURST.as_f64());
            self.counted = now;
            if self.allowance < size.as_f64() {
                return None;
            }
            self.allowance -= size.as_f64();
        }
        if let Some(start) = datagram {
            if self.happens(what.corrupted) {
                self.garble(&mut packet[start..]);
            }
        }
        let later = if self.happens(what.reordered) { what.reordered_by } else { Duration::ZERO };
        Some(Passage { later, twice: self.happens(what.duplicated) })
    }

    fn happens(&mut self, share: Share) -> bool {
        share > Share::ZERO && self.chance.random_bool(share.value())
    }

    /// Exchanges two 16-bit words: the sum of all words, which is the checksum of UDP (RFC 768), stays the same.
    fn garble(&mut self, payload: &mut [u8]) {
        let words = payload.len() / 2;
        if words < 2 {
            return;
        }
        let (a, b) = (self.chance.random_range(0..words) * 2, self.chance.random_range(0..words) * 2);
        payload.swap(a, b);
        payload.swap(a + 1, b + 1);
    }
}

/// Where the payload of a UDP datagram begins; none for other packets.
fn udp_payload(packet: &[u8]) -> Option<usize> {
    const UDP: u8 = 17;
    let first = *packet.first()?;
    let header = match first >> 4 {
        4 if packet.get(9) == Some(&UDP) => usize::from(first & 15) * 4,
        // The lab's packets have no extension headers.
        6 if packet.get(6) == Some(&UDP) => 40,
        _ => return None,
    };
    Some(header + 8).filter(|start| *start <= packet.len())
}

/// The same packets suffer every time.
const SEED: u64 = 0x5eed;
/// What a policer lets through at once.
const BURST: Bytes = Bytes::kib(64);

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2];
        packet.extend([0; 8]);
        packet.extend(payload);
        packet
    }

    fn tcp(length: usize) -> Vec<u8> {
        let mut packet = udp(&vec![7; length]);
        packet[9] = 6;
        packet
    }

    fn sum(packet: &[u8]) -> u32 {
        packet.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
    }

    #[test]
    fn udp_alone_is_filtered_and_a_cut_link_carries_nothing() {
        let mut filter = Disturber::new(Disturbance { no_udp: true, ..Disturbance::NONE }, Duration::ZERO);
        assert_eq!(filter.meet(Duration::ZERO, &mut udp(b"quic")), None);
        assert_eq!(filter.meet(Duration::ZERO, &mut tcp(4)), Some(Passage::default()));
        let mut six = vec![0x60; 60];
        six[6] = 17;
        assert_eq!(filter.meet(Duration::ZERO, &mut six), None);
        let mut cut = Disturber::new(Disturbance { cut: true, ..Disturbance::NONE }, Duration::ZERO);
        assert_eq!(cut.meet(Duration::ZERO, &mut tcp(4)), None);
    }

    #[test]
    fn packets_above_the_size_vanish_whatever_they_are() {
        let largest = Some(Bytes(1200));
        let mut hole = Disturber::new(Disturbance { largest, ..Disturbance::NONE }, Duration::ZERO);
        assert!(hole.meet(Duration::ZERO, &mut tcp(1172)).is_some());
        assert!(hole.meet(Duration::ZERO, &mut tcp(1173)).is_none());
        assert!(hole.meet(Duration::ZERO, &mut udp(&[0; 1173])).is_none());
    }

    #[test]
    fn a_policer_lets_its_rate_through_and_no_more() {
        let what = Disturbance { udp_rate: Some(Rate::mbit(1)), ..Disturbance::NONE };
        let mut policer = Disturber::new(what, Duration::ZERO);
        let mut passed = 0;
        for ms in 0..10_000 {
            let mut packet = udp(&[0; 1222]);
            let size = packet.len() as u64;
            if policer.meet(Duration::from_millis(ms), &mut packet).is_some() {
                passed += size;
            }
        }
        // 10 s at 125,000 bytes/s and the burst at the start.
        assert!((1_250_000..=1_250_000 + BURST.0).contains(&passed), "{passed}");
    }

    #[test]
    fn a_garbled_datagram_differs_and_its_checksum_does_not() {
        let what = Disturbance { corrupted: Share::ONE, ..Disturbance::NONE };
        let mut bad = Disturber::new(what, Duration::ZERO);
        let original = udp(&(0..200).collect::<Vec<u8>>());
        let mut changed = 0;
        for _ in 0..100 {
            let mut packet = original.clone();
            assert!(bad.meet(Duration::ZERO, &mut packet).is_some());
            assert_eq!(sum(&packet), sum(&original));
            assert_eq!(packet[..28], original[..28], "the headers stay");
            changed += u32::from(packet != original);
        }
        assert!(changed > 90, "{changed}");
        let mut segment = tcp(200);
        let before = segment.clone();
        bad.meet(Duration::ZERO, &mut segment);
        assert_eq!(segment, before, "TCP could not tell, so it is left alone");
    }

    #[test]
    fn shares_are_met_on_average() {
        let share = Share::new(0.05).unwrap();
        let later = Duration::from_millis(20);
        let what =
            Disturbance { duplicated: share, reordered: share, reordered_by: later, ..Disturbance::NONE };
        let mut disturber = Disturber::new(what, Duration::ZERO);
        let passages: Vec<Passage> =
            (0..10_000).filter_map(|_| disturber.meet(Duration::ZERO, &mut tcp(10))).collect();
        assert_eq!(passages.len(), 10_000);
        let twice = passages.iter().filter(|passage| passage.twice).count();
        let late = passages.iter().filter(|passage| passage.later == later).count();
        assert!((400..600).contains(&twice) && (400..600).contains(&late), "{twice} {late}");
    }
}
