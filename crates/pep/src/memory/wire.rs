//! Keys and records as bytes, for a store on disk. Numbers are big-endian.
//!
//! ```text
//! key      u8 1 | 32 bytes peer | u8 4: 3 bytes, or 6: 6 bytes of network | interface, to the end
//! record   u8 1 | u64 bit/s | u64 ns least round trip | u64 ns jitter | u32 loss | u32 reordered | u32 variation
//!          | u32 connections | i8 run | u64 s since 1970 | 8 bytes: SHA-256 of the key and all this, shortened
//! ```
//!
//! Shares are billionths. The first byte is the version; a record of another version is refused, which costs
//! one cold start.

use super::{Interface, Network, PathKey, Record, UnixTime};
use crate::auth::PublicKey;
use ring::digest::{Context, SHA256};
use std::fmt;

const VERSION: u8 = 1;
const CHECKSUM: usize = 8;
/// Bytes of a record.
const LENGTH: usize = 1 + 3 * size_of::<u64>() + 4 * size_of::<u32>() + 1 + size_of::<u64>() + CHECKSUM;

/// Bytes that are no key or record of this version, or none that can be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another version, or something else altogether.
    Version,
    /// Too short, too long or with parts that cannot be.
    Form,
    /// Damaged, or a record that belongs to another path.
    Checksum,
    /// Whole, and says what cannot be: no rate, a round trip of hours.
    Range,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Version => "of another version",
            Refused::Form => "malformed",
            Refused::Checksum => "damaged",
            Refused::Range => "impossible",
        })
    }
}
impl std::error::Error for Refused {}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Refused::Form)?;
        self.0 = rest;
        Ok(*first)
    }
    fn u64(&mut self) -> Result<u64, Refused> {
        self.take().map(u64::from_be_bytes)
    }
    fn u32(&mut self) -> Result<u32, Refused> {
        self.take().map(u32::from_be_bytes)
    }
    fn version(&mut self) -> Result<(), Refused> {
        match self.take() {
            Ok([VERSION]) => Ok(()),
            _ => Err(Refused::Version),
        }
    }
}

impl PathKey {
    /// As bytes, the peer first: the keys of one peer are neighbours.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(self.peer.as_bytes());
        match self.network {
            Network::V4(bytes) => {
                out.push(4);
                out.extend_from_slice(&bytes);
            }
            Network::V6(bytes) => {
                out.push(6);
                out.extend_from_slice(&bytes);
            }
        }
        out.extend_from_slice(self.interface.name().as_bytes());
        out
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// When it did not.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refused> {
        let mut reader = Reader(bytes);
        reader.version()?;
        let peer = PublicKey::from_bytes(reader.take()?);
        let network = match reader.take()? {
            [4] => Network::V4(reader.take()?),
            [6] => Network::V6(reader.take()?),
            _ => return Err(Refused::Form),
        };
        let name = std::str::from_utf8(reader.0).map_err(|_| Refused::Form)?;
        let interface = Interface::new(name).ok_or(Refused::Form)?;
        Ok(PathKey { peer, interface, network })
    }
}

impl Record {
    /// As bytes, good for this path only.
    pub fn encode(&self, path: &PathKey) -> Vec<u8> {
        let mut out = Vec::with_capacity(LENGTH);
        out.push(VERSION);
        for number in [self.rate, self.min_rtt, self.jitter] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for number in [self.loss, self.reordered, self.variation, self.observations] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&self.run.to_be_bytes());
        out.extend_from_slice(&self.seen.0.to_be_bytes());
        let sum = checksum(path, &out);
        out.extend_from_slice(&sum);
        out
    }

    /// Reads what [`encode`](Self::encode) wrote of this path.
    ///
    /// # Errors
    /// When it did not, something has changed since, or no link is like that.
    pub fn decode(path: &PathKey, bytes: &[u8]) -> Result<Self, Refused> {
        let mut reader = Reader(bytes);
        reader.version()?;
        if bytes.len() != LENGTH {
            return Err(Refused::Form);
        }
        let [rate, min_rtt, jitter] = [reader.u64()?, reader.u64()?, reader.u64()?];
        let [loss, reordered, variation, observations] =
            [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        let run = i8::from_be_bytes(reader.take()?);
        let seen = UnixTime(reader.u64()?);
        if reader.0 != checksum(path, &bytes[..LENGTH - CHECKSUM]) {
            return Err(Refused::Checksum);
        }
        let record = Record { rate, min_rtt, jitter, loss, reordered, variation, observations, run, seen };
        record.is_possible().then_some(record).ok_or(Refused::Range)
    }
}

/// Against damage and mix-ups, not against somebody who may write the file: he could as well write the config.
fn checksum(path: &PathKey, record: &[u8]) -> [u8; CHECKSUM] {
    let mut context = Context::new(&SHA256);
    context.update(&path.encode());
    context.update(record);
    let mut sum = [0; CHECKSUM];
    sum.copy_from_slice(&context.finish().as_ref()[..CHECKSUM]);
    sum
}
