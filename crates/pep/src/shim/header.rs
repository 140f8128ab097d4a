//! The eight bytes in front of a QUIC packet.

use skyhaul_cc::Time;

/// Bytes of a [`Header`].
pub const HEADER: usize = 8;
/// Version of the bytes; two bits.
const VERSION: u8 = 1;
/// Bits of the sequence number on the wire: as many packets as 1 Gbit/s sends in three minutes.
const SEQUENCE_BITS: u32 = 24;

/// What follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One QUIC packet.
    Packet,
    /// A copy of the QUIC packet that was sent under this number.
    Repair,
}

/// The header of a datagram.
///
/// ```text
///  0 0 v v k t 0 0   version (2 bits), kind, train; the top bits tell it from QUIC
///  sequence          24 bits, most significant first
///  sent              32 bits: microseconds of the sender's clock
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What follows.
    pub kind: Kind,
    /// Part of a train: its receive time is wanted exactly.
    pub train: bool,
    /// The lowest 24 bits of the datagram's number.
    pub sequence: u32,
    /// When it left, in microseconds modulo 2³² (71 minutes).
    pub sent: u32,
}

impl Header {
    /// A header for datagram `number`, leaving at `now`.
    pub fn new(kind: Kind, train: bool, number: u64, now: Time) -> Self {
        let sequence = number as u32 & ((1 << SEQUENCE_BITS) - 1);
        Header { kind, train, sequence, sent: (now.as_nanos() / 1_000) as u32 }
    }

    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; HEADER] {
        let kind = match self.kind {
            Kind::Packet => 0,
            Kind::Repair => 1,
        };
        let first = VERSION << 4 | kind << 3 | u8::from(self.train) << 2;
        let [_, a, b, c] = self.sequence.to_be_bytes();
        let [d, e, f, g] = self.sent.to_be_bytes();
        [first, a, b, c, d, e, f, g]
    }

    /// Whether a datagram begins with a header, of whatever version.
    pub fn is_there(datagram: &[u8]) -> bool {
        datagram.first().is_some_and(|first| first & 0xc0 == 0)
    }

    /// Reads the header; nothing if this is none, or one of another version.
    pub fn decode(datagram: &[u8]) -> Option<Header> {
        let [first, a, b, c, d, e, f, g] = *datagram.first_chunk::<HEADER>()?;
        if first & 0xf3 != VERSION << 4 {
            return None;
        }
        let kind = if first & 8 == 0 { Kind::Packet } else { Kind::Repair };
        Some(Header {
            kind,
            train: first & 4 != 0,
            sequence: u32::from_be_bytes([0, a, b, c]),
            sent: u32::from_be_bytes([d, e, f, g]),
        })
    }

    /// The whole number: the one nearest to `expected` that ends in these bits (as RFC 9000 §A.3).
    pub fn number(&self, expected: u64) -> u64 {
        let span = 1u64 << SEQUENCE_BITS;
        let candidate = (expected & !(span - 1)) | u64::from(self.sequence);
        if candidate + span / 2 <= expected {
            candidate + span
        } else if candidate > expected + span / 2 && candidate >= span {
            candidate - span
        } else {
            candidate
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_survives_the_wire_and_its_number_is_found_again(
            number in 0u64..1 << 40,
            off in -8_000_000i64..8_000_000,
            train: bool,
            repair: bool,
            at in 0u64..1 << 50,
        ) {
            let kind = if repair { Kind::Repair } else { Kind::Packet };
            let header = Header::new(kind, train, number, Time::from_nanos(at));
            let bytes = header.encode();
            prop_assert!(Header::is_there(&bytes));
            prop_assert_eq!(Header::decode(&bytes), Some(header));
            let expected = number.saturating_add_signed(off);
            prop_assert_eq!(header.number(expected), number);
        }

        #[test]
        fn any_bytes_are_read_or_left_alone(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Some(header) = Header::decode(&bytes) {
                prop_assert_eq!(&header.encode()[..], &bytes[..HEADER]);
            }
        }
    }

    #[test]
    fn quic_packets_and_other_versions_are_no_headers_of_ours() {
        for first in [0x40u8, 0x7f, 0x80, 0xc0, 0xff] {
            assert!(!Header::is_there(&[first; 20]));
            assert_eq!(Header::decode(&[first; 20]), None);
        }
        for first in [0x00u8, 0x20, 0x30, 0x11, 0x12] {
            assert!(Header::is_there(&[first; 20]));
            assert_eq!(Header::decode(&[first; 20]), None);
        }
        assert_eq!(Header::decode(&[0x10; 7]), None);
    }
}
