//! Forward error correction for datagrams: a block code that repairs losses without asking for anything
//! to be sent again.
//!
//! ```text
//! packets -> [Encoder] -> data at once, repairs at the end of the block -> path -> [Decoder] -> packets
//!                ^------------------ report: received so far -----------------------|
//! ```
//!
//! The code is systematic: a packet leaves at once, unchanged behind a small header, and is handed on at
//! once where it arrives. `k` packets in a row make a block; `r` repair datagrams follow, and any `k` of
//! the `k + r` bring all packets back. A block is closed after a time limit too, so that a tail is
//! protected. How many repairs there are is fixed, or follows the loss that the far end reports.
//! The algebra is a Reed-Solomon code of the `reed-solomon-simd` crate.
//!
//! A block is never longer than [`MOST_IN_BLOCK`] datagrams, so that what is repaired comes within the
//! 129 packets after which QUIC takes a packet for a duplicate.
//!
//! Datagrams are not authenticated here. Forged ones are refused or cost the block they claim to belong
//! to, never memory or the process; on an open network they belong inside an encrypted tunnel.
//!
//! ```
//! use skyhaul_cc::Time;
//! use skyhaul_pep::fec::{End, Options};
//!
//! let (mut near, mut far) = (End::new(Options::default()), End::new(Options::default()));
//! for n in 0..64u8 {
//!     near.push(Time::ZERO, &[n; 100]).unwrap();
//! }
//! let mut datagrams: Vec<_> = std::iter::from_fn(|| near.poll_transmit()).collect();
//! datagrams.remove(3);
//! for datagram in datagrams {
//!     far.handle_datagram(Time::ZERO, datagram).unwrap();
//! }
//! assert_eq!(std::iter::from_fn(|| far.poll_deliver()).count(), 64);
//! ```

mod block;
mod code;
mod decoder;
mod encoder;
mod header;
mod redundancy;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes as Data;
use skyhaul_cc::units::{Duration, Time};

pub use decoder::{Decoder, DecoderOptions, DecoderStats, Order};
pub use encoder::{Encoder, EncoderOptions, EncoderStats};
pub use header::LARGEST_PACKET;
pub use redundancy::{repairs_for, residual_loss, Adaptive, Redundancy};

/// A block has at most so many datagrams, repairs included.
pub const MOST_IN_BLOCK: usize = 120;
/// A block has at most so many packets of data.
pub const MOST_DATA: usize = 100;
/// A datagram may be so many bytes longer than the longest packet: the header of a repair and the length
/// of a packet.
pub const ROOM: usize = header::REPAIR + code::PREFIX;

/// A packet or datagram that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A packet to send is empty or longer than [`LARGEST_PACKET`].
    Length(usize),
    /// Shorter than its header, of an unknown version or kind, or with a field out of its range.
    Malformed,
    /// Here already, or repaired before it came.
    Duplicate,
    /// Too old to tell whether it was here before.
    Late,
    /// Its number is far from the others'. If the next one follows it, both ends start anew from there.
    Astray,
    /// At odds with what its block's other datagrams say.
    Inconsistent,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Length(length) => {
                write!(f, "a packet of {length} bytes; 1 to {LARGEST_PACKET} can be carried")
            }
            Refused::Malformed => f.write_str("not a datagram of this version"),
            Refused::Duplicate => f.write_str("was here before"),
            Refused::Late => f.write_str("too late"),
            Refused::Astray => f.write_str("its number is far from the others'"),
            Refused::Inconsistent => f.write_str("at odds with its block"),
        }
    }
}

impl std::error::Error for Refused {}

/// Settings of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// What it sends.
    pub encoder: EncoderOptions,
    /// What it receives.
    pub decoder: DecoderOptions,
}

/// One end of a path that is protected both ways.
#[derive(Debug)]
pub struct End {
    encoder: Encoder,
    decoder: Decoder,
}

impl End {
    /// An end that has seen nothing yet.
    pub fn new(options: Options) -> Self {
        End { encoder: Encoder::new(options.encoder), decoder: Decoder::new(options.decoder) }
    }

    /// Takes a packet for the other end.
    ///
    /// # Errors
    /// [`Refused::Length`] if it cannot be carried.
    pub fn push(&mut self, now: Time, packet: &[u8]) -> Result<(), Refused> {
        self.encoder.push(now, packet)
    }

    /// Takes a datagram of the other end.
    ///
    /// # Errors
    /// Says why it was not taken; nothing needs to be done about it.
    pub fn handle_datagram(&mut self, now: Time, datagram: Data) -> Result<(), Refused> {
        if header::is_report(&datagram) {
            return self.encoder.on_report(&datagram);
        }
        self.decoder.on_datagram(now, datagram)
    }

    /// The next datagram for the other end.
    pub fn poll_transmit(&mut self) -> Option<Data> {
        self.encoder.poll_transmit().or_else(|| self.decoder.poll_report())
    }

    /// The next packet of the other end.
    pub fn poll_deliver(&mut self) -> Option<Data> {
        self.decoder.poll_deliver()
    }

    /// When [`handle_timeout`](End::handle_timeout) has something to do.
    pub fn timeout(&self) -> Option<Time> {
        [self.encoder.timeout(), self.decoder.timeout()].into_iter().flatten().min()
    }

    /// Does what is due at `now`; early calls do no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.encoder.on_timeout(now);
        self.decoder.on_timeout(now);
    }

    /// The sending half.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// The receiving half.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }
}

/// A block is closed so long after its first packet: 10 ms, about as long as 64 packets take at
/// 75 Mbit/s, and little beside a satellite's round trip.
const BLOCK_TIME: Duration = Duration::from_millis(10);
