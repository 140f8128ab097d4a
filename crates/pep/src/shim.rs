//! A small header below QUIC, and reports about it: what the sender's controller must know of the path
//! and QUIC does not tell.
//!
//! Each datagram that counts towards the window begins with a [`Header`]: a number of its own and when it
//! left. The far end answers with [`Report`]s of when each arrived, to the microsecond, which travel inside
//! QUIC (as datagram frames, RFC 9221), so that nobody can forge or read them. The header itself is not
//! protected: an end counts a number only if QUIC has accepted what came under it.
//!
//! The two top bits of a QUIC packet are never both zero (RFC 9000 §17, RFC 8999 §5; the fixed bit is not
//! greased here), those of a [`Header`] are: either kind is understood at any time, and an end begins to
//! send headers once the other's hello has asked for them.

mod book;
mod header;
mod listener;
mod report;

pub(crate) use book::Book;
pub use header::{Header, Kind, HEADER};
pub(crate) use listener::Listener;
pub use report::{Report, Run, Totals};

use skyhaul_cc::{Duration, Share};

/// What the far end says about this direction of the path, and what follows from its reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathStats {
    /// Packets whose fate is known.
    pub told: u64,
    /// Share of them that got lost, before any repair.
    pub loss: Share,
    /// Share of the packets received that came after later ones.
    pub reordered: Share,
    /// Variation of the one-way delay between neighbours, smoothed (RFC 3550 §6.4.1).
    pub jitter: Duration,
    /// Reports received.
    pub reports: u64,
    /// Reports that made no sense.
    pub refused: u64,
    /// Bytes of all reports sent, headers below the datagram frame not counted.
    pub report_bytes: u64,
}
