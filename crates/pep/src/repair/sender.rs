//! The sending end: keeps what may have to be repaired, and decides what is repaired when.

use super::code::Code;
use super::wire::{Message, BLOCK_MAX, PARITY_MAX, SYMBOLS_MAX, SYMBOL_MAX};
use super::{datagrams, wire, Exposed, Layout, RepairStats};
use crate::channel::RepairHints;
use bytes::Bytes;
use skyhaul_cc::{Duration, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One direction of one flow at its sending end: the stream bytes given to QUIC that the far end is not
/// known to have passed on.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    pieces: VecDeque<Piece>,
    bytes: u64,
    /// The far end is known to have passed on all before.
    passed: u64,
    /// Stream bytes given to QUIC.
    end: u64,
    /// The stream ends there.
    ended: bool,
    /// Up to here, repair has been planned.
    covered: u64,
    end_covered: bool,
    /// When the first uncovered byte was given to QUIC, and the last.
    since: Time,
    last: Time,
}

#[derive(Debug)]
struct Piece {
    offset: u64,
    bytes: Bytes,
    at: Time,
}

/// So much of one flow is repaired at once even if it goes on: blocks much smaller cost more per byte.
const ENOUGH: u64 = 256 << 10;
/// A flow that pauses for 1/64 of a round trip has probably come to the end of something …
const PAUSE: u32 = 64;
/// … within these limits: a sender that is merely slow pauses for less, and waiting longer costs more
/// than a needless repair.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// A flow that sends a little now and then is repaired at least every eighth of a round trip.
const PATIENCE: u32 = 8;
/// A loss is known after a round trip, and QUIC's tolerance of an eighth for reordering
/// (RFC 9002 §6.1.2).
const KNOWN_AFTER: (u32, u32) = (9, 8);
/// After so many round trips everything lost has been sent again and a planned repair is worth nothing.
const STALE: u32 = 2;
/// Symbols per message. Small symbols waste less on packets that begin in the middle of one, and cost
/// more per byte to encode and decode: measured in docs/repair.md.
const PER_MESSAGE: u64 = 8;
/// Repair of small bursts takes at most one byte in so many of those that wait: a request of 10 kB is worth
/// two packets, so that is 14 requests a second beside 10 Mbit/s.
const SMALL_SHARE: u64 = 32;
/// And as much at once as the repair of some 20 requests.
const MOST_ALLOWANCE: u64 = 64 << 10;

impl Retained {
    /// `bytes` were given to QUIC.
    pub(crate) fn push(&mut self, now: Time, bytes: Bytes) {
        if self.is_covered() {
            self.since = now;
        }
        self.last = now;
        let offset = self.end;
        self.end += bytes.len() as u64;
        self.bytes += bytes.len() as u64;
        self.pieces.push_back(Piece { offset, bytes, at: now });
    }

    /// The end of the stream was given to QUIC.
    pub(crate) fn end(&mut self, now: Time) {
        if self.is_covered() {
            self.since = now;
        }
        self.last = now;
        self.ended = true;
    }

    /// The far end has passed on all before `offset`.
    pub(crate) fn passed_on(&mut self, offset: u64) {
        self.passed = self.passed.max(offset);
        self.let_go(offset);
    }

    /// All before `offset` is needed no more.
    fn let_go(&mut self, offset: u64) {
        while let Some(piece) = self.pieces.front() {
            let length = piece.bytes.len() as u64;
            if piece.offset + length > offset {
                return;
            }
            self.pieces.pop_front();
            self.bytes -= length;
        }
    }

    /// Drops everything, and with it the wish to repair it.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
        self.covered = self.end;
        self.end_covered = true;
    }

    /// Drops the oldest pieces until at most `bytes` are kept.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        while self.bytes > bytes {
            let Some(piece) = self.pieces.pop_front() else { return };
            self.bytes -= piece.bytes.len() as u64;
        }
    }

    /// Bytes kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Stream bytes that no repair is planned for.
    fn is_covered(&self) -> bool {
        self.covered == self.end && (!self.ended || self.end_covered)
    }

    /// Offset of the first byte kept that the far end may be missing.
    fn start(&self) -> u64 {
        self.pieces.front().map_or(self.end, |piece| piece.offset.max(self.passed))
    }

    /// When to repair what is not covered.
    fn due(&self, rtt: Duration) -> Option<Time> {
        if self.is_covered() {
            return None;
        }
        if self.ended || self.end - self.covered >= ENOUGH {
            return Some(self.last);
        }
        let pause = (rtt / PAUSE).clamp(PAUSES.0, PAUSES.1);
        Some((self.last + pause).min(self.since + rtt / PATIENCE))
    }

    fn exposed(&self, start: u64, length: u64, now: Time, rtt: Duration) -> Exposed {
        let end = start + length;
        let known_after = rtt * KNOWN_AFTER.0 / KNOWN_AFTER.1;
        let mut exposed = Exposed::default();
        let first = self.pieces.partition_point(|piece| piece.offset + piece.bytes.len() as u64 <= start);
        for piece in self.pieces.range(first..).take_while(|piece| piece.offset < end) {
            let from = piece.offset.max(start);
            let to = (piece.offset + piece.bytes.len() as u64).min(end);
            if now.since(piece.at) < known_after {
                exposed.once += to - from;
            } else {
                exposed.twice += to - from;
            }
        }
        exposed
    }

    /// The bytes of a block, padded to whole symbols; nothing if some are kept no more.
    fn block(&self, start: u64, length: u64, symbol: u64) -> Option<Vec<u8>> {
        if self.pieces.front().is_none_or(|piece| start < piece.offset) || start + length > self.end {
            return None;
        }
        let mut block = Vec::with_capacity(length.next_multiple_of(symbol) as usize);
        let first = self.pieces.partition_point(|piece| piece.offset + piece.bytes.len() as u64 <= start);
        for piece in self.pieces.range(first..) {
            let from = start.saturating_sub(piece.offset) as usize;
            let want = length as usize - block.len();
            let piece = &piece.bytes[from..];
            block.extend_from_slice(&piece[..piece.len().min(want)]);
            if block.len() as u64 == length {
                break;
            }
        }
        block.resize(length.next_multiple_of(symbol) as usize, 0);
        Some(block)
    }
}

/// Finds the streams of a channel.
pub(crate) trait Streams {
    /// What is kept of a stream, while it exists.
    fn retained(&mut self, stream: u64) -> Option<&mut Retained>;
}

/// Repair of one block, on its way.
#[derive(Debug)]
struct Block {
    stream: u64,
    start: u64,
    length: u64,
    ends: bool,
    layout: Layout,
    /// Messages in this round over all blocks, and in all.
    round: u64,
    all: u64,
    /// The second round is left out.
    first_only: bool,
    sent: u64,
    planned: Time,
    code_bits: u8,
    /// Made when the first message is due: only one block is encoded at a time.
    symbols: Option<Bytes>,
}

/// Where the channel stands with what it was given, in stream bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Sent since the beginning.
    pub(crate) sent: u64,
    /// Given to QUIC and not sent yet.
    pub(crate) ahead: u64,
}

/// Decides what one channel repairs.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    plan: VecDeque<Block>,
    /// Repair of small bursts, which does not wait for the link to be idle.
    small_plan: VecDeque<Block>,
    /// Streams with a small burst, and how much the channel will have sent when the burst has left.
    small: BTreeMap<u64, Option<u64>>,
    /// Bytes that repair of small bursts may take from data that waits.
    allowance: u64,
    /// Streams with bytes that no repair is planned for.
    open: BTreeSet<u64>,
    code: Code,
    rtt: Duration,
}

impl Planner {
    /// Something of this stream was given to QUIC.
    pub(crate) fn sent(&mut self, stream: u64) {
        self.open.insert(stream);
    }

    /// Streams with at most so many bytes that no repair is planned for need none for these.
    pub(crate) fn spare(&mut self, most: u64, streams: &mut impl Streams) {
        self.open.retain(|&stream| {
            let Some(retained) = streams.retained(stream) else { return false };
            let is_small = retained.end - retained.covered <= most;
            if is_small {
                retained.covered = retained.end;
                retained.end_covered = retained.ended;
            }
            !is_small
        });
    }

    /// The last of what was given to QUIC of this stream ends a small burst.
    pub(crate) fn small_burst(&mut self, stream: u64) {
        self.small.insert(stream, None);
    }

    /// So many stream bytes were given to QUIC: a share of them may be spent on repair of small bursts.
    pub(crate) fn earn(&mut self, bytes: u64) {
        self.allowance = (self.allowance + bytes / SMALL_SHARE).min(MOST_ALLOWANCE);
    }

    /// When [`next`](Self::next), which has just answered with nothing, is to be asked again.
    pub(crate) fn due(&self, streams: &mut impl Streams) -> Option<Time> {
        let due = self.open.iter().filter_map(|&stream| streams.retained(stream)?.due(self.rtt));
        due.min()
    }

    /// The next message of repair, at most `room` bytes long.
    pub(crate) fn next(
        &mut self,
        now: Time,
        room: usize,
        hints: RepairHints,
        streams: &mut impl Streams,
        stats: &mut RepairStats,
    ) -> Option<Bytes> {
        self.rtt = hints.rtt.smoothed;
        loop {
            if self.plan.is_empty() && !self.plan(now, room, hints, streams) {
                return None;
            }
            let message = take(&mut self.plan, &mut self.code, (now, self.rtt), room, streams, stats);
            if message.is_some() {
                return message;
            }
        }
    }

    /// The next message of repair of a small burst that has left, while other data waits: a first round for
    /// each burst, as far as the allowance goes. The repair comes behind the burst, because the far end
    /// cannot use it before it has heard of the stream.
    pub(crate) fn next_small(
        &mut self,
        now: Time,
        room: usize,
        hints: RepairHints,
        progress: Progress,
        streams: &mut impl Streams,
        stats: &mut RepairStats,
    ) -> Option<Bytes> {
        if self.small.is_empty() && self.small_plan.is_empty() || self.allowance < room as u64 {
            return None;
        }
        self.rtt = hints.rtt.smoothed;
        let (rtt, plan) = (self.rtt, &mut self.small_plan);
        self.small.retain(|&stream, left_at| {
            let Some(retained) = streams.retained(stream) else { return false };
            let left_at = *left_at.get_or_insert(progress.sent + progress.ahead);
            match retained.due(rtt) {
                None => false,
                Some(due) if due > now || progress.sent < left_at => true,
                Some(_) => {
                    let planned = plan.len();
                    cover(stream, retained, now, room, hints, plan);
                    plan.iter_mut().skip(planned).for_each(|block| block.first_only = true);
                    false
                }
            }
        });
        let message = take(&mut self.small_plan, &mut self.code, (now, rtt), room, streams, stats)?;
        self.allowance -= message.len() as u64;
        Some(message)
    }

    /// Plans repair of everything that is due; false if nothing is.
    fn plan(&mut self, now: Time, room: usize, hints: RepairHints, streams: &mut impl Streams) -> bool {
        let rtt = self.rtt;
        let plan = &mut self.plan;
        self.open.retain(|&stream| {
            let Some(retained) = streams.retained(stream) else { return false };
            match retained.due(rtt) {
                None => false,
                Some(due) if due > now => true,
                Some(_) => {
                    cover(stream, retained, now, room, hints, plan);
                    false
                }
            }
        });
        !self.plan.is_empty()
    }
}

/// The next message of a plan; none once the plan is empty.
fn take(
    plan: &mut VecDeque<Block>,
    code: &mut Code,
    (now, rtt): (Time, Duration),
    room: usize,
    streams: &mut impl Streams,
    stats: &mut RepairStats,
) -> Option<Bytes> {
    while let Some(mut block) = plan.pop_front() {
        if now.since(block.planned) > rtt * STALE {
            continue;
        }
        let Some(retained) = streams.retained(block.stream) else { continue };
        // Passed on meanwhile, if it is not a bare end.
        if block.length > 0 && retained.passed >= block.start + block.length {
            continue;
        }
        if block.symbols.is_none() {
            let Some(symbols) = block.encode(code, retained) else { continue };
            block.symbols = Some(symbols);
            // Blocks are encoded in order, and once.
            retained.let_go(block.start + block.length);
            stats.encoded += u64::from(block.length > 0);
        }
        let message = block.message();
        block.sent += 1;
        if block.sent < block.round {
            plan.push_front(block);
        } else if block.sent < block.all && !block.first_only {
            // The rest follows when every block has had its first round.
            block.round = block.all;
            plan.push_back(block);
        }
        if message.len() > room {
            continue;
        }
        stats.sent += 1;
        stats.sent_bytes += skyhaul_cc::Bytes(message.len() as u64);
        return Some(message);
    }
    None
}

/// Plans the blocks of one stream.
fn cover(
    stream: u64,
    retained: &mut Retained,
    now: Time,
    room: usize,
    hints: RepairHints,
    plan: &mut VecDeque<Block>,
) {
    let start = retained.covered.max(retained.start());
    let length = retained.end - start;
    retained.covered = retained.end;
    retained.end_covered = retained.ended;
    let room = (room as u64).saturating_sub(wire::HEADER_MAX as u64);
    let largest = (room / PER_MESSAGE).min(SYMBOL_MAX) & !1;
    if largest == 0 {
        return;
    }
    let block = |start, length: u64, ends| {
        // A block smaller than a symbol is one.
        let symbol = largest.min(length.next_multiple_of(2)).max(2);
        let per_message = (room / symbol).min(length.div_ceil(symbol)).max(1);
        let layout = Layout { packet: room, symbol, per_message };
        let exposed = retained.exposed(start, length, now, hints.rtt.smoothed);
        let (round, all) = datagrams(exposed, hints.loss.value(), layout);
        let bits_max = (PARITY_MAX / symbol).ilog2().min(wire::CODE_BITS_MAX.into());
        let all = all.min((1 << bits_max) / per_message);
        let code_bits = (all * per_message).next_power_of_two().ilog2() as u8;
        let round = round.min(all);
        Block {
            stream,
            start,
            length,
            ends,
            layout,
            round,
            all,
            first_only: false,
            sent: 0,
            planned: now,
            code_bits,
            symbols: None,
        }
    };
    if length == 0 {
        if retained.ended {
            plan.push_back(Block { code_bits: 0, ..block(start, 0, true) });
        }
        return;
    }
    let blocks = length.div_ceil(BLOCK_MAX.min(largest * SYMBOLS_MAX));
    // Equal blocks, so that none is left with few bytes and much overhead.
    for n in 0..blocks {
        let (from, to) = (length * n / blocks, length * (n + 1) / blocks);
        plan.push_back(block(start + from, to - from, retained.ended && n + 1 == blocks));
    }
}

impl Block {
    /// All repair symbols; nothing if bytes of the block are gone.
    fn encode(&mut self, code: &mut Code, retained: &Retained) -> Option<Bytes> {
        if self.length == 0 {
            return Some(Bytes::new());
        }
        // What was passed on meanwhile needs no repair.
        let passed_on = retained.start().saturating_sub(self.start);
        if passed_on >= self.length {
            return None;
        }
        self.start += passed_on;
        self.length -= passed_on;
        let block = retained.block(self.start, self.length, self.layout.symbol)?;
        let count = self.all * self.layout.per_message;
        code.encode(&block, self.layout.symbol as usize, count as usize).map(Bytes::from)
    }

    fn message(&self) -> Bytes {
        let Layout { symbol, per_message, .. } = self.layout;
        let first = self.sent * per_message;
        let symbols = match &self.symbols {
            Some(all) if self.length > 0 => {
                all.slice((first * symbol) as usize..((first + per_message) * symbol) as usize)
            }
            _ => Bytes::new(),
        };
        let mut out = Vec::with_capacity(wire::HEADER_MAX + symbols.len());
        let Block { stream, start, length, ends, code_bits, .. } = *self;
        Message { stream, start, length, ends, code_bits, symbol, first, symbols }.encode(&mut out);
        out.into()
    }
}
