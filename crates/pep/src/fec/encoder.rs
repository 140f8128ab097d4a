//! The sending half: packets in, the same packets and repairs out.

use std::collections::VecDeque;

use bytes::Bytes as Data;
use skyhaul_cc::units::{Bytes, Duration, Share, Time};

use super::code::Code;
use super::header::{Header, Report, Shape, DATA, LARGEST_PACKET, REPAIR};
use super::redundancy::{Planner, Redundancy};
use super::{Refused, BLOCK_TIME, MOST_DATA, MOST_IN_BLOCK};

/// Settings of an [`Encoder`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncoderOptions {
    /// Packets per block: 64 by default; 1 to [`MOST_DATA`], what is outside counts as the nearer end.
    /// Longer blocks need fewer repairs for the same residual loss and repair later.
    pub block: usize,
    /// A block is closed so long after its first packet: 10 ms by default.
    pub time_limit: Duration,
    /// How many repairs.
    pub redundancy: Redundancy,
    /// Number of the first datagram: 0 by default. Drawn by chance, a restarted encoder is not taken for
    /// its former self.
    pub first: u32,
}

impl Default for EncoderOptions {
    fn default() -> Self {
        EncoderOptions { block: 64, time_limit: BLOCK_TIME, redundancy: Redundancy::default(), first: 0 }
    }
}

/// What an encoder has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EncoderStats {
    /// Packets taken.
    pub data: u64,
    /// Their bytes, headers not counted.
    pub data_bytes: Bytes,
    /// Repairs made.
    pub repairs: u64,
    /// Their bytes, headers not counted.
    pub repair_bytes: Bytes,
    /// Blocks closed.
    pub blocks: u64,
    /// Loss before repair, as last estimated.
    pub loss: Share,
    /// Packets repaired at the far end, as last reported, modulo 2³².
    pub repaired: u32,
    /// Packets lost for good at the far end, as last reported, modulo 2³².
    pub lost: u32,
}

/// Sends packets on at once and repairs behind them.
#[derive(Debug)]
pub struct Encoder {
    options: EncoderOptions,
    planner: Planner,
    code: Code,
    /// Number of the next datagram.
    number: u32,
    /// Packets of the open block.
    block: Vec<Data>,
    deadline: Option<Time>,
    out: VecDeque<Data>,
    stats: EncoderStats,
}

impl Encoder {
    /// An encoder that has sent nothing yet.
    pub fn new(options: EncoderOptions) -> Self {
        let options = EncoderOptions { block: options.block.clamp(1, MOST_DATA), ..options };
        let planner = Planner::new(options.redundancy);
        let stats = EncoderStats { loss: planner.loss(), ..EncoderStats::default() };
        Encoder {
            options,
            planner,
            code: Code::default(),
            number: options.first,
            block: Vec::with_capacity(options.block),
            deadline: None,
            out: VecDeque::new(),
            stats,
        }
    }

    /// Takes a packet, to leave at once.
    ///
    /// # Errors
    /// [`Refused::Length`] if it is empty or too long.
    pub fn push(&mut self, now: Time, packet: &[u8]) -> Result<(), Refused> {
        if packet.is_empty() || packet.len() > LARGEST_PACKET {
            return Err(Refused::Length(packet.len()));
        }
        // A block that is due but was not asked to close yet does not grow.
        self.on_timeout(now);
        let mut datagram = Vec::with_capacity(DATA + packet.len());
        let index = self.block.len() as u8;
        Header { number: self.take_number(), index, repair: None }.write(&mut datagram);
        datagram.extend_from_slice(packet);
        let datagram = Data::from(datagram);
        self.block.push(datagram.slice(DATA..));
        self.out.push_back(datagram);
        self.stats.data += 1;
        self.stats.data_bytes += Bytes(packet.len() as u64);
        self.deadline.get_or_insert(now + self.options.time_limit);
        if self.block.len() >= self.options.block {
            self.close();
        }
        Ok(())
    }

    /// The next datagram that shall leave.
    pub fn poll_transmit(&mut self) -> Option<Data> {
        self.out.pop_front()
    }

    /// When the open block is closed at the latest.
    pub fn timeout(&self) -> Option<Time> {
        self.deadline
    }

    /// Closes the open block if it is due.
    pub fn on_timeout(&mut self, now: Time) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.close();
        }
    }

    /// Closes the open block now: nothing will follow for a while.
    pub fn flush(&mut self) {
        if !self.block.is_empty() {
            self.close();
        }
    }

    /// Takes in a report of the far end's decoder.
    ///
    /// # Errors
    /// [`Refused::Malformed`] if it is none.
    pub fn on_report(&mut self, datagram: &[u8]) -> Result<(), Refused> {
        let report = Report::decode(datagram)?;
        self.planner.on_report(report);
        self.stats.loss = self.planner.loss();
        self.stats.repaired = report.repaired;
        self.stats.lost = report.lost;
        Ok(())
    }

    /// What has been done so far.
    pub fn stats(&self) -> &EncoderStats {
        &self.stats
    }

    fn close(&mut self) {
        self.deadline = None;
        let data = self.block.len();
        let repairs = self.planner.repairs(data).min(MOST_IN_BLOCK - data);
        self.stats.blocks += 1;
        if repairs > 0 {
            let shape = Shape { data: data as u8, repairs: repairs as u8 };
            let Encoder { code, block, number, out, stats, .. } = self;
            let mut index = shape.data;
            code.repairs(shape, block.iter().map(|packet| &packet[..]), |shard| {
                let mut datagram = Vec::with_capacity(REPAIR + shard.len());
                Header { number: *number, index, repair: Some(shape) }.write(&mut datagram);
                datagram.extend_from_slice(shard);
                out.push_back(Data::from(datagram));
                *number = number.wrapping_add(1);
                index += 1;
                stats.repairs += 1;
                stats.repair_bytes += Bytes(shard.len() as u64);
            });
            debug_assert_eq!(usize::from(index), data + repairs, "the code takes what a block may be");
        }
        self.block.clear();
    }

    fn take_number(&mut self) -> u32 {
        let number = self.number;
        self.number = number.wrapping_add(1);
        number
    }
}
