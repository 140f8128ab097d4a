//! Coded repair of what is lost last: the ends of bursts, whose loss costs a round trip more.
//!
//! When a channel has nothing to send, the link would be idle. Then the sender sends Reed-Solomon
//! symbols over the stream bytes that may be missing at the far end, as many as the measured loss asks
//! for; the far end makes the missing bytes from them and hands them on without waiting for QUIC to
//! repeat them. QUIC repeats them all the same, and the copies are dropped.
//!
//! ```text
//! stream bytes   |.....block.....|.....block.....|..block..|   each up to 640 KiB
//! block          |s|s|s|s|s|s|s|s|s|s|s|s|s|s|s|s| + r r r      symbols of a few hundred bytes
//! ```
//!
//! It works on streams and not on packets because quinn-proto takes a packet for a duplicate once the
//! newest is 129 numbers ahead: repaired packets from the middle of a window of thousands would be
//! thrown away. Symbols are not aligned with packets, so a lost packet touches one symbol more than it
//! has bytes for; small symbols keep that share small.
//!
//! [`Message`] is the wire format; numbers and limits are described there.

mod code;
mod need;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use code::Code;
use need::{datagrams, Exposed, Layout};
pub(crate) use receiver::{Pending, Repaired};
pub(crate) use sender::{Planner, Progress, Retained, Streams};
pub use wire::{Message, BLOCK_MAX, PARITY_MAX, SYMBOLS_MAX, SYMBOL_MAX};

use skyhaul_cc::Bytes;

/// What repair has done on one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairStats {
    /// Messages of repair sent.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: Bytes,
    /// Blocks encoded.
    pub encoded: u64,
    /// Packets of small bursts sent a second time.
    pub copies: u64,
    /// Messages received.
    pub received: u64,
    /// Messages received that were malformed, late or for a stream not known.
    pub ignored: u64,
    /// Blocks decoded.
    pub decoded: u64,
    /// Stream bytes that were missing and came out of a code.
    pub repaired: Bytes,
    /// Kept now for repair at the other end: what may be missing there.
    pub retained: Bytes,
    /// Kept now for repair here: symbols, and what was read already.
    pub kept: Bytes,
}
