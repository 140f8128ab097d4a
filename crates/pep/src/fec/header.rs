//! What stands in front of each datagram.
//!
//! ```text
//! data    version·kind 1 | index 1 | number 4 | packet
//! repair  version·kind 1 | index 1 | number 4 | k 1 | r 1 | repair shard
//! report  version·kind 1 | next number 4 | received 4 | repaired 4 | lost 4
//! ```
//!
//! All numbers are big-endian. Every data and repair datagram has a number of its own, one more than the
//! one before, and its index in its block; their difference is the number of the block's first datagram
//! and names the block. Numbers and counts wrap around.

use super::{Refused, MOST_DATA, MOST_IN_BLOCK};

/// Length of the header of data.
pub(super) const DATA: usize = 6;
/// Length of the header of a repair.
pub(super) const REPAIR: usize = 8;
/// Length of a report.
pub(super) const REPORT: usize = 17;
/// The longest packet that can be carried: the longest UDP payload over IPv4, less the greatest header and
/// what makes a shard even.
pub const LARGEST_PACKET: usize = 65_506 - REPAIR - super::code::PREFIX;

const VERSION: u8 = 1;
const KIND_DATA: u8 = 1;
const KIND_REPAIR: u8 = 2;
const KIND_REPORT: u8 = 3;

/// What a header of data or repair says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Number of the datagram.
    pub number: u32,
    /// Index in its block; repairs follow data.
    pub index: u8,
    /// For repairs, the block's numbers of data and repair datagrams.
    pub repair: Option<Shape>,
}

/// How many datagrams a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Data.
    pub data: u8,
    /// Repairs.
    pub repairs: u8,
}

impl Shape {
    /// Both together.
    pub fn total(self) -> u64 {
        u64::from(self.data) + u64::from(self.repairs)
    }
}

/// What a decoder has seen so far, modulo 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// One more than the highest number seen.
    pub next: u32,
    /// Datagrams received, each once.
    pub received: u32,
    /// Packets repaired.
    pub repaired: u32,
    /// Packets given up.
    pub lost: u32,
}

impl Header {
    /// Appends the header to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let kind = if self.repair.is_some() { KIND_REPAIR } else { KIND_DATA };
        out.extend_from_slice(&[VERSION << 4 | kind, self.index]);
        out.extend_from_slice(&self.number.to_be_bytes());
        if let Some(shape) = self.repair {
            out.extend_from_slice(&[shape.data, shape.repairs]);
        }
    }

    /// Reads a header; the rest of the datagram follows it.
    pub fn read(datagram: &[u8]) -> Result<(Header, usize), Refused> {
        let (&[first, index, a, b, c, d], rest) =
            datagram.split_first_chunk::<DATA>().ok_or(Refused::Malformed)?;
        let number = u32::from_be_bytes([a, b, c, d]);
        let (header, length) = match (first >> 4, first & 0xf) {
            (VERSION, KIND_DATA) => {
                let fits = usize::from(index) < MOST_DATA;
                fits.then_some((Header { number, index, repair: None }, DATA)).ok_or(Refused::Malformed)?
            }
            (VERSION, KIND_REPAIR) => {
                let &[data, repairs] = rest.first_chunk::<2>().ok_or(Refused::Malformed)?;
                let shape = Shape { data, repairs };
                let possible = (1..=MOST_DATA).contains(&usize::from(data))
                    && shape.total() <= MOST_IN_BLOCK as u64
                    && (u64::from(data)..shape.total()).contains(&u64::from(index));
                let header = Header { number, index, repair: Some(shape) };
                possible.then_some((header, REPAIR)).ok_or(Refused::Malformed)?
            }
            _ => return Err(Refused::Malformed),
        };
        let left = datagram.len() - length;
        // A shard has an even length and room for a packet; no packet is empty.
        let whole = match header.repair {
            Some(_) => left > super::code::PREFIX && left.is_multiple_of(2),
            None => left > 0,
        };
        (whole && left <= LARGEST_PACKET + super::code::PREFIX + 1)
            .then_some((header, length))
            .ok_or(Refused::Malformed)
    }
}

/// Whether a datagram claims to be a report.
pub(super) fn is_report(datagram: &[u8]) -> bool {
    datagram.first() == Some(&(VERSION << 4 | KIND_REPORT))
}

impl Report {
    /// The report as a datagram.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(REPORT);
        out.push(VERSION << 4 | KIND_REPORT);
        for field in [self.next, self.received, self.repaired, self.lost] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out
    }

    /// Reads a report. Longer ones may come from later versions; what follows is ignored.
    pub fn decode(datagram: &[u8]) -> Result<Report, Refused> {
        if !is_report(datagram) || datagram.len() < REPORT {
            return Err(Refused::Malformed);
        }
        let mut fields = datagram[1..REPORT]
            .chunks_exact(4)
            .map(|four| four.iter().fold(0u32, |value, &byte| value << 8 | u32::from(byte)));
        let mut field = || fields.next().ok_or(Refused::Malformed);
        Ok(Report { next: field()?, received: field()?, repaired: field()?, lost: field()? })
    }
}
