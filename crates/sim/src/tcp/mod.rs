//! TCP as packets: a sender and a receiver without sockets and clocks.
//!
//! Data is numbered in whole segments, as the papers do; only the last one of a transfer may be short.
//! A connection is established from the start: no handshake is sent and none is lost.

mod judge;
mod rack;
mod ranges;
pub mod receiver;
mod reduction;
mod scoreboard;
pub mod sender;
pub mod truth;

use skyhaul_cc::parts::LossOddsOptions;
use skyhaul_cc::units::{Bytes, Duration, Share, Time};

pub use judge::{Decile, Judgement};
pub use receiver::{AckOptions, Receiver, SackBlocks};
pub use sender::{Sender, SenderCounters};
pub use truth::{Confusion, Truth};

/// A transmission that was received, as the channel's datagram shim reports it: its number among all of
/// the flow, from 1, and when.
pub(crate) type Arrival = (u64, Time);

/// How a sender finds out what was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// Three segments reported above it (RFC 6675 §4 `IsLost`). A lost retransmission is found only by
    /// the timeout, and so is a lost tail.
    Dupack,
    /// By time: something sent later has arrived, and a reordering window has passed (RACK, RFC 8985 §6),
    /// with a tail loss probe (TLP, §7).
    #[default]
    Rack,
    /// By what was learned of the path: lost is what so likely is lost, given its silence, that waiting
    /// would cost more than a needless copy (paper 000 §3.2, [`skyhaul_cc::parts::loss_odds`]).
    /// [`Rack`](Recovery::Rack) decides until enough was seen, and whenever it would be sooner.
    Predictive,
}

/// When segments leave inside the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// At the controller's rate, or at 1.25 windows per smoothed round trip where it has none
    /// (RFC 9002 §7.7). The first window leaves at once.
    #[default]
    Always,
    /// At the controller's rate; in bursts where it has none, as Linux does.
    IfAsked,
    /// In bursts, whatever the controller says.
    Never,
}

/// Settings of a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpOptions {
    /// Payload of a full segment. 1448 bytes: 1500 less 52 of headers.
    pub mss: Bytes,
    /// IP and TCP headers: 20, 20 and 12 bytes of timestamps.
    pub headers: Bytes,
    /// Loss detection.
    pub recovery: Recovery,
    /// How likely lost a segment must be to be judged so by [`Recovery::Predictive`]: 0.95.
    pub threshold: Share,
    /// Spacing.
    pub pacing: Pacing,
    /// Paced segments leave together with those that are due within this time, as from a host that does not
    /// wake up for each; zero by default.
    pub batch: Duration,
    /// Retransmission timeout before the first round-trip sample: 1 s (RFC 6298 §2.1).
    pub initial_rto: Duration,
    /// The timeout is at least the smoothed round trip and this: 200 ms, as Linux has it. RFC 6298 §2.4
    /// would have a least timeout of 1 s, which [`least_rto`](TcpOptions::least_rto) sets.
    pub rto_margin: Duration,
    /// Least timeout; zero by default.
    pub least_rto: Duration,
    /// Greatest timeout, back-off included: 60 s (RFC 6298 §2.5).
    pub greatest_rto: Duration,
}

impl Default for TcpOptions {
    fn default() -> Self {
        TcpOptions {
            mss: Bytes(1448),
            headers: Bytes(52),
            recovery: Recovery::default(),
            threshold: LossOddsOptions::default().threshold,
            pacing: Pacing::default(),
            batch: Duration::ZERO,
            initial_rto: Duration::from_secs(1),
            rto_margin: Duration::from_millis(200),
            least_rto: Duration::ZERO,
            greatest_rto: Duration::from_secs(60),
        }
    }
}

/// A data segment on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of the segment in its flow, from 0.
    pub seq: u64,
    /// Payload.
    pub payload: Bytes,
    /// It was sent before.
    pub again: bool,
}

/// An acknowledgment on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckPacket {
    /// The first segment not yet there: everything below has arrived.
    pub next: u64,
    /// Ranges that have arrived above `next`, the newest first (RFC 2018 §4).
    pub sacks: Sacks,
    /// The segment that caused it had arrived before (D-SACK, RFC 2883).
    pub duplicate: bool,
}

/// SACK blocks of one acknowledgment, half-open ranges of segment numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sacks {
    few: [(u64, u64); FEW],
    count: u8,
    many: Option<Box<[(u64, u64)]>>,
}

/// As many SACK blocks as a TCP header has room for (RFC 2018 §3).
const FEW: usize = 4;

impl Sacks {
    /// The blocks.
    pub fn blocks(&self) -> &[(u64, u64)] {
        match &self.many {
            Some(many) => many,
            None => &self.few[..usize::from(self.count)],
        }
    }

    fn all(blocks: impl Iterator<Item = (u64, u64)>) -> Self {
        Sacks { many: Some(blocks.collect()), ..Sacks::default() }
    }

    /// Adds a block unless it is there or the header is full.
    fn push(&mut self, block: (u64, u64)) {
        let count = usize::from(self.count);
        if count < FEW && !self.few[..count].contains(&block) {
            self.few[count] = block;
            self.count += 1;
        }
    }
}
