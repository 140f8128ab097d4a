//! One TCP connection's two directions on their way through the channel.

use crate::credit::{Pool, ReceiveAccount, SendAccount};
use crate::frame::{Class, Malformed, Open, Verdict, OPEN_MAX};
use crate::limits::Split;
use crate::reassembly::Reassembly;
use crate::repair::{Code, Message, Pending, Repaired, Retained, BLOCK_MAX};
use bytes::{Bytes, BytesMut};
use quinn_proto::{Connection, StreamId, WriteError};
use skyhaul_cc::{Bytes as Size, Time};
use std::collections::VecDeque;

/// What a flow queues for sending before it asks its TCP connection to wait.
const QUEUE: u64 = 256 * 1024;
/// Pieces below this size are joined before they go to quinn-proto: its send buffer is searched piece
/// by piece for every packet, and 1,400-byte pieces cost twenty times the CPU.
const PIECE: usize = 16 * 1024;

/// The answer to a read.
#[derive(Debug)]
pub enum Read {
    /// The next bytes, in order.
    Data(Bytes),
    /// Nothing yet; a readable event will come.
    Pending,
    /// The other end's client has finished sending and everything was read.
    End,
    /// The flow is gone.
    Reset,
}

/// What stands in front of the TCP data.
#[derive(Debug)]
pub(super) enum Header {
    Open(Open),
    Verdict(Verdict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Opener,
    Acceptor,
}

/// What one turn of feeding did.
pub(super) struct Fed {
    /// Bytes now with quinn-proto, headers counted; an end of stream counts as one.
    pub(super) total: u64,
    /// TCP bytes among them.
    pub(super) data: u64,
    /// There is more and it may go.
    pub(super) more: bool,
    /// There is more and the far end has no room for it.
    pub(super) starved: bool,
    /// quinn-proto's send window is full for everybody.
    pub(super) blocked: bool,
    /// The queue has room again for somebody who waits for it.
    pub(super) now_writable: bool,
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: StreamId,
    role: Role,
    pub(super) class: Class,
    pub(super) account: SendAccount,
    header_out: Option<Bytes>,
    /// Bytes of the header given to QUIC.
    header_sent: u64,
    out: VecDeque<Bytes>,
    queued: u64,
    waits_for_room: bool,
    finish: Option<Finish>,
    send_over: bool,
    /// What may have to be repaired at the far end.
    pub(super) retained: Retained,

    input: Reassembly,
    header_read: bool,
    header_length: u64,
    /// All bytes received, headers included, in order or not.
    received: u64,
    receive: ReceiveAccount,
    consumed: u64,
    received_all: bool,
    receive_over: bool,
    repairs: Pending,
    /// Where the stream ends, if a repair said so.
    ends_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    Wanted,
    Said,
}

impl Flow {
    fn new(id: StreamId, role: Role, header_out: Option<Bytes>) -> Self {
        Flow {
            id,
            role,
            class: Class::Normal,
            account: SendAccount::default(),
            header_out,
            header_sent: 0,
            out: VecDeque::new(),
            queued: 0,
            waits_for_room: false,
            finish: None,
            send_over: false,
            retained: Retained::default(),
            input: Reassembly::default(),
            header_read: false,
            header_length: 0,
            received: 0,
            receive: ReceiveAccount::default(),
            consumed: 0,
            received_all: false,
            receive_over: false,
            repairs: Pending::default(),
            ends_at: None,
        }
    }

    pub(super) fn opening(id: StreamId, class: Class, header: Bytes) -> Self {
        Flow { class, ..Flow::new(id, Role::Opener, Some(header)) }
    }

    pub(super) fn accepting(id: StreamId) -> Self {
        Flow::new(id, Role::Acceptor, None)
    }

    // Sending.

    pub(super) fn answer(&mut self, verdict: Verdict) {
        self.header_out = Some(Bytes::copy_from_slice(&[verdict.encode()]));
    }

    /// `all` is what all flows of the process have queued.
    pub(super) fn room(&mut self, all: u64, split: &Split) -> u64 {
        let room = match self.finish {
            Some(_) => 0,
            None => split.queue_room(Size(self.queued), Size(all), Size(QUEUE)).0,
        };
        self.waits_for_room |= room == 0;
        room
    }

    pub(super) fn push(&mut self, bytes: Bytes) {
        self.queued += bytes.len() as u64;
        self.out.push_back(bytes);
    }

    /// The far end has passed on so much of the TCP data.
    pub(super) fn passed_on(&mut self, total: u64) {
        self.retained.passed_on(self.header_sent + total);
    }

    pub(super) fn queued(&self) -> u64 {
        self.queued
    }

    pub(super) fn finish(&mut self) {
        self.finish.get_or_insert(Finish::Wanted);
    }

    pub(super) fn send_ended(&mut self) {
        self.send_over = true;
        self.retained.clear();
    }

    /// Nothing more goes out; says how much was waiting.
    pub(super) fn discard_queue(&mut self) -> u64 {
        self.out.clear();
        self.send_over = true;
        self.retained.clear();
        std::mem::take(&mut self.queued)
    }

    pub(super) fn wants_turn(&self) -> bool {
        !self.send_over
            && (self.header_out.is_some() || !self.out.is_empty() || self.finish == Some(Finish::Wanted))
    }

    /// Hands quinn-proto up to `turn` bytes, as far as the far end has room.
    pub(super) fn feed(&mut self, now: Time, conn: &mut Connection, turn: u64, pool: &mut Pool) -> Fed {
        let mut fed =
            Fed { total: 0, data: 0, more: false, starved: false, blocked: false, now_writable: false };
        if let Some(header) = self.header_out.take() {
            let written = self.write(now, conn, header);
            fed.total += written.bytes;
            fed.blocked = written.blocked;
            self.header_sent += written.bytes;
            self.header_out = written.rest;
            if self.header_out.is_some() {
                fed.more = written.bytes > 0 || fed.blocked;
                return fed;
            }
        }
        let may = turn.min(self.account.available(pool));
        if !self.out.is_empty() {
            fed.starved = may == 0;
            let piece = self.gather_piece(may);
            let length = piece.len() as u64;
            let written = self.write(now, conn, piece);
            if let Some(rest) = written.rest {
                self.queued += rest.len() as u64;
                self.out.push_front(rest);
            }
            self.account.spend(written.bytes, pool);
            fed.total += written.bytes;
            fed.data = written.bytes;
            fed.blocked = written.blocked;
            if written.bytes < length {
                // quinn-proto's send window is full. It tells when that changes only to those it has
                // refused altogether, so after a partial write ask once more.
                fed.more = written.bytes > 0 || fed.blocked;
                return fed;
            }
        }
        if self.out.is_empty() && self.finish == Some(Finish::Wanted) {
            // Fails only if the stream was stopped or reset, and then nobody waits for its end.
            let _ = conn.send_stream(self.id).finish();
            self.finish = Some(Finish::Said);
            self.retained.end(now);
            fed.total += 1;
        }
        fed.more = !self.out.is_empty() && !fed.starved;
        if self.waits_for_room && self.queued <= QUEUE / 2 {
            self.waits_for_room = false;
            fed.now_writable = true;
        }
        fed
    }

    fn write(&mut self, now: Time, conn: &mut Connection, bytes: Bytes) -> Written {
        if bytes.is_empty() {
            return Written { bytes: 0, rest: None, blocked: false };
        }
        let whole = bytes.clone();
        let mut chunks = [bytes];
        let outcome = conn.send_stream(self.id).write_chunks(&mut chunks);
        let blocked = matches!(outcome, Err(WriteError::Blocked));
        // Of a stream that was stopped or closed the session hears by an event.
        let written = outcome.map_or(0, |written| written.bytes);
        if written > 0 {
            self.retained.push(now, whole.slice(..written));
        }
        let [rest] = chunks;
        Written { bytes: written as u64, rest: (!rest.is_empty()).then_some(rest), blocked }
    }

    /// Takes up to `limit` bytes from the queue as one piece.
    fn gather_piece(&mut self, limit: u64) -> Bytes {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let Some(mut first) = self.out.pop_front() else { return Bytes::new() };
        let piece = if first.len() >= limit.min(PIECE) || self.out.is_empty() {
            let rest = first.split_off(first.len().min(limit));
            if !rest.is_empty() {
                self.out.push_front(rest);
            }
            first
        } else {
            let mut joined = BytesMut::with_capacity(limit.min(self.queued as usize));
            joined.extend_from_slice(&first);
            while joined.len() < limit {
                let Some(mut next) = self.out.pop_front() else { break };
                let rest = next.split_off(next.len().min(limit - joined.len()));
                joined.extend_from_slice(&next);
                if !rest.is_empty() {
                    self.out.push_front(rest);
                }
            }
            joined.freeze()
        };
        self.queued -= piece.len() as u64;
        piece
    }

    // Receiving.

    /// Takes stream bytes and says how many are new.
    pub(super) fn received(&mut self, offset: u64, bytes: Bytes) -> u64 {
        let new = self.input.insert(offset, bytes);
        self.received += new;
        new
    }

    /// The ends repair what is lost: some of what was received is kept for that.
    pub(super) fn keep_for_repair(&mut self) {
        self.input.keep(BLOCK_MAX);
    }

    /// Takes a message of repair; false if it is of no use.
    pub(super) fn gather(&mut self, message: Message) -> bool {
        if self.receive_over || self.received_all {
            return false;
        }
        if message.ends {
            self.ends_at = Some(message.start + message.length);
        }
        self.repairs.add(message, &self.input) || self.ends_at == Some(self.input.contiguous())
    }

    /// Decodes what can be decoded with what has come.
    pub(super) fn repair(&mut self, code: &mut Code) -> Repaired {
        let repaired = match self.repairs.is_empty() {
            true => Repaired::default(),
            false => self.repairs.repair(&mut self.input, code),
        };
        self.received += repaired.bytes;
        self.received_all |= self.ends_at == Some(self.input.contiguous());
        repaired
    }

    /// Bytes kept for repair beside those that wait to be read.
    pub(super) fn kept(&self) -> u64 {
        self.input.kept() + self.repairs.bytes()
    }

    /// Lets go of them.
    pub(super) fn forget_kept(&mut self) {
        self.input.forget_past();
        self.repairs.clear();
    }

    pub(super) fn receive_ended(&mut self) {
        self.received_all = true;
    }

    /// Reads the header once it is there; its bytes leave `held`.
    pub(super) fn take_header(&mut self, held: &mut u64) -> Result<Option<Header>, Malformed> {
        if self.header_read || !self.input.is_ready() {
            return Ok(None);
        }
        let mut front = BytesMut::new();
        while front.len() < OPEN_MAX {
            let Some(piece) = self.input.pop() else { break };
            front.extend_from_slice(&piece);
        }
        let front = front.freeze();
        let header = match self.role {
            Role::Opener => Some((Header::Verdict(Verdict::decode(front[0])), 1)),
            Role::Acceptor => Open::decode(&front)?.map(|(open, length)| {
                self.class = open.class;
                (Header::Open(open), length)
            }),
        };
        let Some((header, length)) = header else {
            self.input.unpop(front);
            return Ok(None);
        };
        self.input.unpop(front.slice(length..));
        self.header_read = true;
        self.header_length = length as u64;
        *held -= length as u64;
        Ok(Some(header))
    }

    pub(super) fn is_readable(&self) -> bool {
        self.header_read && (self.input.is_ready() || self.at_end())
    }

    /// Everything was received and read; only the end itself is left.
    fn at_end(&self) -> bool {
        self.received_all && !self.input.is_ready() && !self.receive_over
    }

    pub(super) fn read(&mut self) -> Read {
        match self.input.pop() {
            _ if !self.header_read => Read::Pending,
            Some(bytes) => Read::Data(bytes),
            None if self.at_end() => Read::End,
            None => Read::Pending,
        }
    }

    /// Counts bytes passed on; answers with the total to report, when it is time.
    pub(super) fn consume(&mut self, bytes: u64, pool: u64) -> Option<u64> {
        self.consumed += bytes;
        self.receive.consume(bytes, self.unconsumed(), pool)
    }

    /// Bytes received, header not counted, and not passed on.
    pub(super) fn unconsumed(&self) -> u64 {
        self.received - self.header_length - self.consumed
    }

    /// The TCP data received in order so far, and no less than what was passed on.
    pub(super) fn received_total(&self) -> u64 {
        self.input.contiguous().saturating_sub(self.header_length).max(self.consumed)
    }

    /// Forgets what was received and will not be read; says how much that was.
    pub(super) fn discard_received(&mut self) -> u64 {
        let dropped = self.unconsumed();
        self.consumed += dropped;
        self.input = Reassembly::default();
        self.repairs.clear();
        self.receive_over = true;
        dropped
    }

    pub(super) fn end_passed_on(&mut self) {
        self.receive_over = true;
    }

    pub(super) fn is_over(&self) -> bool {
        self.send_over && self.receive_over
    }
}

struct Written {
    bytes: u64,
    rest: Option<Bytes>,
    /// Nothing was taken because the send window is full; a writable event will come.
    blocked: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_proto::{Dir, Side};

    fn flow() -> Flow {
        Flow::accepting(StreamId::new(Side::Client, Dir::Bi, 0))
    }

    /// Everything a flow hands over when it may hand over `turn` bytes at a time.
    fn gathered(flow: &mut Flow, turn: u64) -> Vec<Bytes> {
        std::iter::from_fn(|| Some(flow.gather_piece(turn)).filter(|piece| !piece.is_empty())).collect()
    }

    #[test]
    fn small_writes_are_joined_before_they_cost_twenty_times_the_cpu() {
        let mut flow = flow();
        let bytes: Vec<u8> = (0..140_000u32).map(|i| ((i * 31) >> 5) as u8).collect();
        for write in bytes.chunks(1_400) {
            flow.push(Bytes::copy_from_slice(write));
        }
        let pieces = gathered(&mut flow, 64 * 1024);
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [65_536, 65_536, 8_928]);
        assert_eq!(pieces.concat(), bytes);
        assert_eq!(flow.queued(), 0);
    }

    #[test]
    fn large_writes_are_cut_and_not_copied() {
        let mut flow = flow();
        let bytes = Bytes::from(vec![7; 200_000]);
        flow.push(bytes.clone());
        let pieces = gathered(&mut flow, 64 * 1024);
        assert_eq!(pieces.len(), 4);
        assert!(pieces.iter().all(|piece| bytes.as_ptr_range().contains(&piece.as_ptr())));
        assert_eq!(pieces.concat(), bytes);
    }
}
