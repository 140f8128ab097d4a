//! The receiving half: datagrams in, packets out, repaired where they were lost.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes as Data;
use skyhaul_cc::units::{Duration, Time};

use super::block::Block;
use super::code::Code;
use super::header::{Header, Report};
use super::Refused;

/// Settings of a [`Decoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderOptions {
    /// In which order packets are handed on.
    pub order: Order,
    /// A report is sent so long after the first news since the last one: 100 ms by default.
    pub report: Duration,
    /// Packets of up to so many bytes never wait behind a gap: none by default. TCP's acknowledgments may overtake each
    /// other, and one that waits looks like a queue to their reader.
    pub small: usize,
}

impl Default for DecoderOptions {
    fn default() -> Self {
        DecoderOptions { order: Order::default(), report: Duration::from_millis(100), small: 0 }
    }
}

/// In which order packets are handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they come; repaired ones follow those of their block that arrived.
    AsTheyCome,
    /// Packets behind a gap wait for its repair, at most so long. They do not wait for what cannot be
    /// repaired any more: if the next block has begun, no repair of this one will come.
    Hold(Duration),
}

impl Default for Order {
    /// Hold for at most 60 ms: the time limit of a block, and a thin flow's next packets.
    fn default() -> Self {
        Order::Hold(Duration::from_millis(60))
    }
}

/// What a decoder has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecoderStats {
    /// Datagrams of data and repair that arrived, each once, needless or not.
    pub received: u64,
    /// Of these, repairs.
    pub repairs: u64,
    /// Packets handed on, or waiting to be.
    pub delivered: u64,
    /// Of these, repaired.
    pub repaired: u64,
    /// Packets that are known to be lost for good. Blocks of which nothing arrived are not known.
    pub lost: u64,
    /// All other datagrams: copies, late ones, what could not be read.
    pub refused: u64,
    /// Most datagrams kept for repair at once.
    pub most_kept: usize,
}

/// Hands data on and repairs what is missing.
#[derive(Debug)]
pub struct Decoder {
    options: DecoderOptions,
    code: Code,
    /// One more than the highest number seen; numbers are extended to 64 bits and begin at 2³².
    end: Option<u64>,
    /// The number after that of a datagram that was refused as astray.
    astray: Option<u32>,
    /// By the number of their first datagram; those of the last [`WINDOW`] numbers.
    blocks: BTreeMap<u64, Block>,
    kept: usize,
    /// Packets behind a gap, by number, with the time of their arrival.
    held: BTreeMap<u64, (Time, Data)>,
    /// All before it has been handed on or given up; for [`Order::Hold`].
    next: u64,
    out: VecDeque<Data>,
    report_due: Option<Time>,
    report: Option<Data>,
    stats: DecoderStats,
}

impl Decoder {
    /// A decoder that has seen nothing yet.
    pub fn new(options: DecoderOptions) -> Self {
        Decoder {
            options,
            code: Code::default(),
            end: None,
            astray: None,
            blocks: BTreeMap::new(),
            kept: 0,
            held: BTreeMap::new(),
            next: 0,
            out: VecDeque::new(),
            report_due: None,
            report: None,
            stats: DecoderStats::default(),
        }
    }

    /// Takes a datagram of data or repair.
    ///
    /// # Errors
    /// Says why it was not taken; nothing needs to be done about it.
    pub fn on_datagram(&mut self, now: Time, datagram: Data) -> Result<(), Refused> {
        let received = self.stats.received;
        let taken = self.take(now, datagram);
        self.stats.refused += u64::from(self.stats.received == received);
        taken
    }

    /// The next packet.
    pub fn poll_deliver(&mut self) -> Option<Data> {
        self.out.pop_front()
    }

    /// The report for the encoder at the other end, if one is due.
    pub fn poll_report(&mut self) -> Option<Data> {
        self.report.take()
    }

    /// When [`on_timeout`](Decoder::on_timeout) has something to do.
    pub fn timeout(&self) -> Option<Time> {
        let patience = match self.options.order {
            Order::AsTheyCome => None,
            Order::Hold(limit) => self.held.values().next().map(|(arrival, _)| *arrival + limit),
        };
        [patience, self.report_due].into_iter().flatten().min()
    }

    /// Hands on what has waited long enough and makes the report that is due.
    pub fn on_timeout(&mut self, now: Time) {
        if let Order::Hold(limit) = self.options.order {
            while let Some((&number, (arrival, _))) = self.held.first_key_value() {
                if *arrival + limit > now {
                    break;
                }
                self.next = number;
                self.hand_on();
            }
        }
        if self.report_due.is_some_and(|due| due <= now) {
            self.report_due = None;
            let report = Report {
                next: self.end.unwrap_or(0) as u32,
                received: self.stats.received as u32,
                repaired: self.stats.repaired as u32,
                lost: self.stats.lost as u32,
            };
            self.report = Some(report.encode().into());
        }
    }

    /// What has been done so far.
    pub fn stats(&self) -> &DecoderStats {
        &self.stats
    }

    fn take(&mut self, now: Time, datagram: Data) -> Result<(), Refused> {
        let (header, length) = Header::read(&datagram)?;
        let number = self.locate(header.number)?;
        let base = number - u64::from(header.index);
        let end = self.end.unwrap_or(number).max(number + 1);
        if base + WINDOW < end {
            return Err(Refused::Late);
        }
        let block = self.blocks.entry(base).or_default();
        if block.has(header.index) {
            return Err(Refused::Duplicate);
        }
        let before = block.kept();
        let body = datagram.slice(length..);
        let news = match header.repair {
            None => block.on_data(header.index, &body).map(|()| Some(body)),
            Some(shape) => block.on_repair(header.index, shape, body).map(|()| None),
        };
        let repaired = if news.is_ok() { block.repair(&mut self.code) } else { Vec::new() };
        self.kept = self.kept + block.kept() - before;
        // A packet that comes after its repair has arrived all the same: the loss is before repair.
        let counts = news.is_ok() || (news == Err(Refused::Duplicate) && block.has(header.index));
        if self.end.is_none() {
            self.next = base;
        }
        self.end = Some(end);
        self.stats.received += u64::from(counts);
        self.report_due.get_or_insert(now + self.options.report);
        let news = news?;
        self.stats.repairs += u64::from(header.repair.is_some());
        self.stats.repaired += repaired.len() as u64;
        self.stats.most_kept = self.stats.most_kept.max(self.kept);
        self.forget_before(end.saturating_sub(WINDOW));
        if let Some(packet) = news {
            self.deliver(now, number, packet);
        }
        for (index, packet) in repaired {
            self.deliver(now, base + u64::from(index), packet);
        }
        if matches!(self.options.order, Order::Hold(_)) {
            self.hand_on();
        }
        Ok(())
    }

    /// Extends a number to 64 bits. One far from the others is refused unless it follows another such
    /// (RFC 3550 appendix A.1 does the same): the other end may have begun anew.
    fn locate(&mut self, number: u32) -> Result<u64, Refused> {
        let begin = (1 << 32) + u64::from(number);
        let Some(end) = self.end else { return Ok(begin) };
        let ahead = number.wrapping_sub(end as u32) as i32;
        if ahead.unsigned_abs() <= STRAY {
            self.astray = None;
            return Ok(end.wrapping_add_signed(i64::from(ahead)));
        }
        if self.astray.replace(number.wrapping_add(1)) != Some(number) {
            return Err(Refused::Astray);
        }
        self.astray = None;
        self.forget_before(u64::MAX);
        while let Some((_, (_, packet))) = self.held.pop_first() {
            self.out.push_back(packet);
        }
        self.end = None;
        Ok(begin)
    }

    fn deliver(&mut self, now: Time, number: u64, packet: Data) {
        self.stats.delivered += 1;
        // Only a made-up datagram has the number of one that waits already.
        let at_once =
            number < self.next || self.held.contains_key(&number) || packet.len() <= self.options.small;
        if self.options.order == Order::AsTheyCome || at_once {
            self.out.push_back(packet);
        } else {
            self.held.insert(number, (now, packet));
        }
    }

    /// Hands on what is in order.
    fn hand_on(&mut self) {
        while let Some((&first, _)) = self.held.first_key_value() {
            if first == self.next {
                self.next += 1;
                if let Some((_, (_, packet))) = self.held.pop_first() {
                    self.out.push_back(packet);
                }
            } else if self.needs_nothing(self.next) {
                self.next += 1;
            } else if self.is_hopeless() {
                self.next = first;
            } else {
                break;
            }
        }
    }

    /// Whether the datagram of this number carries nothing that is still waited for.
    fn needs_nothing(&self, number: u64) -> bool {
        let Some((base, block)) = self.blocks.range(..=number).next_back() else { return false };
        let Ok(index) = u8::try_from(number - base) else { return false };
        if usize::from(index) >= super::MOST_IN_BLOCK {
            return false;
        }
        let within = block.total().is_some_and(|total| u64::from(index) < total);
        block.has(index) || block.knows(index) || (within && block.is_settled())
    }

    /// Whether the gap at `next` will stay: a later block is well under way.
    fn is_hopeless(&self) -> bool {
        let later = self.blocks.range(self.next + 1..).next();
        later.is_some_and(|(base, _)| self.end.is_some_and(|end| end >= base + REORDERED))
    }

    fn forget_before(&mut self, number: u64) {
        while let Some(entry) = self.blocks.first_entry() {
            if *entry.key() >= number {
                break;
            }
            let block = entry.remove();
            self.kept -= block.kept();
            self.stats.lost += u64::from(block.missing());
        }
    }
}

/// Blocks are remembered over so many datagrams, 80 ms of 150 Mbit/s: later ones cannot be told from
/// duplicates. So many datagrams are kept for repair at most.
const WINDOW: u64 = 1024;
/// Datagrams this far from the others are astray: a minute's outage of 12 Mbit/s, and more than is ever
/// reordered.
const STRAY: u32 = 1 << 16;
/// A datagram of the next block may overtake so many of this one.
const REORDERED: u64 = 8;
