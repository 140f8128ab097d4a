//! One channel and the flows on it: opens and accepts streams, feeds them just in time and fairly,
//! puts what arrives in order, and keeps both ends' memory within what was agreed.

mod budget;
mod flow;
mod repair;
mod schedule;

use crate::channel::{message, Arrival, Channel, ChannelStats, Feed, RepairHints};
use crate::credit::Pool;
use crate::frame::{Control, Open, Refusal, Verdict, VERSION};
use crate::limits::Split;
use crate::reassembly::Reassembly;
use crate::repair::{Progress, RepairStats};
pub(crate) use budget::ALWAYS;
use bytes::Bytes;
use flow::Flow;
pub use flow::Read;
use quinn_proto::{Connection, ConnectionEvent, Dir, ReadError, StreamEvent, StreamId, Transmit, VarInt};
use schedule::Schedule;
pub(crate) use schedule::Wanted;
use skyhaul_cc::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// A flow's name on its channel: the QUIC stream number.
pub(crate) type StreamNumber = u64;

/// What a session tells its owner.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// Both hellos are through: flows may be opened.
    Ready,
    Opened {
        stream: StreamNumber,
        open: Open,
    },
    Accepted {
        stream: StreamNumber,
    },
    Refused {
        stream: StreamNumber,
        why: Refusal,
    },
    Readable {
        stream: StreamNumber,
    },
    Writable {
        stream: StreamNumber,
    },
    Reset {
        stream: StreamNumber,
    },
    /// The other end answers an offer of another pool.
    Kept {
        sequence: u64,
        pool: skyhaul_cc::Bytes,
    },
    /// The other end says where it sees this one.
    SeenAt {
        address: SocketAddr,
    },
    /// The other end broke the rules; the connection was closed.
    Violated {
        what: &'static str,
    },
}

/// Memory this end offers to the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) floor: u64,
    pub(crate) pool: u64,
}

/// QUIC application error codes (RFC 9000 §20.2).
pub(crate) mod code {
    pub(crate) const DONE: u32 = 0;
    pub(crate) const ABORTED: u32 = 1;
    pub(crate) const VIOLATION: u32 = 2;
    pub(crate) const REPLACED: u32 = 3;
    pub(crate) const VERSION: u32 = 4;
    pub(crate) const BUSY: u32 = 5;
}

/// Control frames overtake bulk data. Flows all have the same priority there, whatever their class: the
/// schedule hands over little at a time, quinn-proto takes turns by the packet, and strict priorities would
/// leave repetitions and last bytes of the less urgent waiting for ever.
const CONTROL_PRIORITY: i32 = 1;

pub(crate) struct Session {
    channel: Channel,
    flows: Flows,
    events: VecDeque<SessionEvent>,
    control_in: Reassembly,
    /// Bytes of an unfinished control frame.
    control_rest: Vec<u8>,
    control_in_id: Option<StreamId>,
    memory: Memory,
    /// Flow data received and not yet passed on.
    held: u64,
    /// Flow data received since the last look.
    received: u64,
    repair: repair::Receiving,
    /// The other end broke a rule: close the connection with this code and reason.
    closing: Option<(u32, &'static str)>,
}

/// The sending half of a session, apart so that the channel can ask it for data while it is borrowed.
struct Flows {
    map: BTreeMap<StreamNumber, Flow>,
    schedule: Schedule,
    /// Flows with something to send for which the far end has no room.
    starved: BTreeSet<StreamNumber>,
    /// Closed flows whose data the far end still holds.
    lingering: BTreeMap<StreamNumber, crate::credit::SendAccount>,
    pool: Option<Pool>,
    control_id: Option<StreamId>,
    control_out: Vec<u8>,
    /// Bytes waiting in all flows' send queues.
    queued: u64,
    writable: Vec<StreamNumber>,
    repair: repair::Sending,
    /// When the channel was last asked for a datagram.
    now: Time,
}

impl Session {
    pub(crate) fn new(channel: Channel, memory: Memory) -> Self {
        Session {
            channel,
            flows: Flows {
                map: BTreeMap::new(),
                schedule: Schedule::default(),
                starved: BTreeSet::new(),
                lingering: BTreeMap::new(),
                pool: None,
                control_id: None,
                control_out: Vec::new(),
                queued: 0,
                writable: Vec::new(),
                repair: repair::Sending::default(),
                now: Time::ZERO,
            },
            events: VecDeque::new(),
            control_in: Reassembly::default(),
            control_rest: Vec::new(),
            control_in_id: None,
            memory,
            held: 0,
            received: 0,
            repair: repair::Receiving::default(),
            closing: None,
        }
    }

    pub(crate) fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }

    pub(crate) fn channel_ref(&self) -> &Channel {
        &self.channel
    }

    pub(crate) fn stats(&self) -> ChannelStats {
        let stats = self.channel.stats();
        let RepairStats { copies, .. } = stats.repair;
        ChannelStats { repair: RepairStats { copies, ..self.repair_stats() }, ..stats }
    }

    pub(crate) fn history(&self) -> Option<skyhaul_cc::PathHistory> {
        self.channel.history()
    }

    /// Bytes of flow data in this end's memory: received and not passed on, queued and not sent.
    pub(crate) fn held(&self) -> (u64, u64) {
        (self.held, self.flows.queued)
    }

    pub(crate) fn look(&self) -> crate::rollback::Look {
        let mut look = self.channel.look();
        look.has_flows = !self.flows.map.is_empty();
        look.progress.wanting |= self.flows.queued > 0;
        look
    }

    pub(crate) fn flow_count(&self) -> usize {
        self.flows.map.len()
    }

    /// The next event. Flows may overtake the other end's hello on the way; they are heard of after it.
    pub(crate) fn poll_event(&mut self) -> Option<SessionEvent> {
        let waits = self.flows.pool.is_none() && self.closing.is_none();
        if waits {
            return None;
        }
        self.events.pop_front()
    }

    /// The handshake is done: say hello.
    pub(crate) fn connected(&mut self) {
        let Some(id) = self.channel.conn().streams().open(Dir::Uni) else {
            return self.violation("no control stream allowed");
        };
        // A stream just opened has a send side.
        let _ = self.channel.conn().send_stream(id).set_priority(CONTROL_PRIORITY);
        self.flows.control_id = Some(id);
        let Memory { floor, pool } = self.memory;
        let features = self.channel.features();
        Control::Hello { version: VERSION, floor, pool, features }.encode(&mut self.flows.control_out);
    }

    pub(crate) fn handle_event(&mut self, now: Time, event: ConnectionEvent, arrival: Option<Arrival>) {
        self.channel.handle_event(now, event, arrival);
    }

    /// Messages have come.
    pub(crate) fn handle_messages(&mut self, now: Time) {
        while let Some(message) = self.channel.conn().datagrams().recv() {
            match message.split_first() {
                Some((&message::REPORT, report)) => self.channel.hear_report(now, report),
                Some((&message::REPAIR, _)) => self.handle_repair(message.slice(1..)),
                // Other kinds are of later versions.
                _ => {}
            }
        }
    }

    /// A stream event of the connection.
    pub(crate) fn handle_stream(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Opened { dir } => {
                while let Some(id) = self.channel.conn().streams().accept(dir) {
                    match dir {
                        Dir::Uni if self.control_in_id.is_none() => self.control_in_id = Some(id),
                        Dir::Uni => return self.violation("a second control stream"),
                        Dir::Bi => {
                            self.flows.map.insert(number(id), Flow::accepting(id));
                        }
                    }
                    self.drain(id);
                }
            }
            StreamEvent::Readable { id } => self.drain(id),
            StreamEvent::Writable { id } => {
                self.flows.schedule.unblock();
                self.flows.wake(number(id));
            }
            StreamEvent::Finished { id } => {
                if let Some(flow) = self.flows.map.get_mut(&number(id)) {
                    flow.send_ended();
                }
                self.collect(number(id));
            }
            StreamEvent::Stopped { id, error_code } if error_code == VarInt::from_u32(code::DONE) => {
                self.stop_sending(id);
            }
            StreamEvent::Stopped { id, .. } => {
                if self.flows.map.contains_key(&number(id)) {
                    self.flow_reset(number(id));
                }
            }
            StreamEvent::Available { .. } => {}
        }
    }

    /// Takes everything a stream has, in whatever order it came.
    fn drain(&mut self, id: StreamId) {
        let is_control = self.control_in_id == Some(id);
        let mut pieces = Vec::new();
        let mut ended = false;
        let mut reset = false;
        {
            let mut stream = self.channel.conn().recv_stream(id);
            let Ok(mut chunks) = stream.read(false) else { return };
            loop {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => pieces.push(chunk),
                    Ok(None) => {
                        ended = true;
                        break;
                    }
                    Err(ReadError::Blocked) => break,
                    Err(ReadError::Reset(_)) => {
                        reset = true;
                        break;
                    }
                }
            }
            let _ = chunks.finalize();
        }
        if is_control {
            for chunk in pieces {
                self.control_in.insert(chunk.offset, chunk.bytes);
            }
            if ended || reset {
                return self.violation("end of the control stream");
            }
            return self.read_control();
        }
        let stream = number(id);
        let Some(flow) = self.flows.map.get_mut(&stream) else { return };
        self.repair.before_data(flow);
        let mut new = 0;
        for chunk in pieces {
            new += flow.received(chunk.offset, chunk.bytes);
        }
        new += self.repair.after_data(flow);
        self.held += new;
        self.received += new;
        if reset {
            return self.flow_reset(stream);
        }
        if ended {
            flow.receive_ended();
        }
        self.taken(stream);
        self.bound_kept(new);
    }

    /// A flow has received something: looks what that makes possible.
    fn taken(&mut self, stream: StreamNumber) {
        let bound = self.memory.pool
            + (self.memory.floor + crate::frame::OPEN_MAX as u64) * (self.flows.map.len() as u64 + 1);
        if self.held > bound {
            return self.violation("more data than was agreed");
        }
        let Some(flow) = self.flows.map.get_mut(&stream) else { return };
        let id = flow.id;
        match flow.take_header(&mut self.held) {
            Ok(Some(flow::Header::Open(open))) => {
                self.events.push_back(SessionEvent::Opened { stream, open })
            }
            Ok(Some(flow::Header::Verdict(Verdict::Accepted))) => {
                self.events.push_back(SessionEvent::Accepted { stream })
            }
            Ok(Some(flow::Header::Verdict(Verdict::Refused(why)))) => {
                self.events.push_back(SessionEvent::Refused { stream, why });
                let _ = self.channel.conn().send_stream(id).reset(VarInt::from_u32(code::DONE));
                self.drop_flow(stream);
                return;
            }
            Ok(None) => {}
            Err(_) => return self.violation("flow header"),
        }
        if self.flows.map.get(&stream).is_some_and(Flow::is_readable) {
            self.events.push_back(SessionEvent::Readable { stream });
        }
    }

    fn read_control(&mut self) {
        while let Some(piece) = self.control_in.pop() {
            self.control_rest.extend_from_slice(&piece);
        }
        let mut used = 0;
        loop {
            match Control::decode(&self.control_rest[used..]) {
                Ok(Some((frame, length))) => {
                    used += length;
                    if !self.handle_control(frame) {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => return self.violation("control frame"),
            }
        }
        self.control_rest.drain(..used);
    }

    /// False if the connection is over.
    fn handle_control(&mut self, frame: Control) -> bool {
        match (frame, &mut self.flows.pool) {
            (Control::Hello { version, .. }, None) if version != VERSION => {
                self.violate(code::VERSION, "another protocol version");
                return false;
            }
            (Control::Hello { floor, pool, features, .. }, none @ None) => {
                *none = Some(Pool::new(floor, pool));
                self.channel.agree(features);
                self.begin_repair();
                self.events.push_front(SessionEvent::Ready);
            }
            (Control::Consumed { stream, total }, Some(pool)) => {
                if let Some(flow) = self.flows.map.get_mut(&stream) {
                    if !flow.account.consumed(total, pool) {
                        self.violation("report of more than was sent");
                        return false;
                    }
                    flow.passed_on(total);
                } else if let Some(account) = self.flows.lingering.get_mut(&stream) {
                    if !account.consumed(total, pool) {
                        self.violation("report of more than was sent");
                        return false;
                    }
                    if account.is_settled() {
                        self.flows.lingering.remove(&stream);
                    }
                }
                self.flows.wake_all();
            }
            (frame @ (Control::Pool { .. } | Control::Kept { .. } | Control::Seen { .. }), Some(_)) => {
                self.hear_share(frame);
            }
            _ => {
                self.violation("control frames out of order");
                return false;
            }
        }
        true
    }

    fn violation(&mut self, what: &'static str) {
        self.violate(code::VIOLATION, what);
    }

    fn violate(&mut self, code: u32, what: &'static str) {
        self.events.push_front(SessionEvent::Violated { what });
        self.closing = Some((code, what));
    }

    /// Opens a flow; refused while the channel is not ready or carries all the flows it may.
    pub(crate) fn open(&mut self, open: &Open) -> Result<StreamNumber, Refusal> {
        let header = open.encode().map_err(|_| Refusal::NoSuchName)?;
        if self.flows.pool.is_none() {
            return Err(Refusal::Unreachable);
        }
        let id = self.channel.conn().streams().open(Dir::Bi).ok_or(Refusal::Busy)?;
        let stream = number(id);
        self.flows.map.insert(stream, Flow::opening(id, open.class, header.into()));
        self.flows.wake(stream);
        Ok(stream)
    }

    /// The destination of an opened flow answered.
    pub(crate) fn accept(&mut self, stream: StreamNumber) {
        if let Some(flow) = self.flows.map.get_mut(&stream) {
            flow.answer(Verdict::Accepted);
            self.flows.wake(stream);
        }
    }

    /// The destination of an opened flow did not answer.
    pub(crate) fn refuse(&mut self, stream: StreamNumber, why: Refusal) {
        let Some(flow) = self.flows.map.get_mut(&stream) else { return };
        flow.answer(Verdict::Refused(why));
        flow.finish();
        let id = flow.id;
        self.held -= flow.discard_received();
        let total = flow.received_total();
        self.report(stream, total);
        let _ = self.channel.conn().recv_stream(id).stop(VarInt::from_u32(code::DONE));
        self.flows.wake(stream);
    }

    /// Bytes [`write`](Self::write) takes gladly; zero: wait for a writable event.
    /// `all` is what waits to be sent over all channels.
    pub(crate) fn writable(&mut self, stream: StreamNumber, all: u64, split: &Split) -> u64 {
        self.flows.map.get_mut(&stream).map_or(0, |flow| flow.room(all, split))
    }

    /// Queues TCP data. False if the flow is gone.
    pub(crate) fn write(&mut self, stream: StreamNumber, bytes: Bytes) -> bool {
        let Some(flow) = self.flows.map.get_mut(&stream) else { return false };
        self.flows.queued += bytes.len() as u64;
        flow.push(bytes);
        self.flows.wake(stream);
        true
    }

    /// The client has nothing more to send.
    pub(crate) fn finish(&mut self, stream: StreamNumber) {
        if let Some(flow) = self.flows.map.get_mut(&stream) {
            flow.finish();
            self.flows.wake(stream);
        }
    }

    /// The next piece of TCP data in order.
    pub(crate) fn read(&mut self, stream: StreamNumber) -> Read {
        self.flows.map.get_mut(&stream).map_or(Read::Reset, Flow::read)
    }

    /// So much of what was read has been written to the TCP connection.
    pub(crate) fn consumed(&mut self, stream: StreamNumber, bytes: u64) {
        let Some(flow) = self.flows.map.get_mut(&stream) else { return };
        self.held -= bytes;
        if let Some(total) = flow.consume(bytes, self.memory.pool) {
            self.report(stream, total);
        }
    }

    /// The end of the stream has been passed on.
    pub(crate) fn end_consumed(&mut self, stream: StreamNumber) {
        if let Some(flow) = self.flows.map.get_mut(&stream) {
            flow.end_passed_on();
            let total = flow.received_total();
            self.report(stream, total);
        }
        self.collect(stream);
    }

    /// Ends a flow at once in both directions; the other end resets its TCP connection.
    pub(crate) fn reset(&mut self, stream: StreamNumber) {
        let Some(flow) = self.flows.map.get(&stream) else { return };
        let id = flow.id;
        let code = VarInt::from_u32(code::ABORTED);
        // Either half may be over already, which is just as well.
        let _ = self.channel.conn().send_stream(id).reset(code);
        let _ = self.channel.conn().recv_stream(id).stop(code);
        self.drop_flow(stream);
    }

    /// The other end refuses the flow and wants no more of it; why, its verdict will say.
    fn stop_sending(&mut self, id: StreamId) {
        let Some(flow) = self.flows.map.get_mut(&number(id)) else { return };
        self.flows.queued -= flow.discard_queue();
        if let Some(pool) = &mut self.flows.pool {
            flow.account.settle(pool);
        }
        self.flows.leave(number(id));
        let _ = self.channel.conn().send_stream(id).reset(VarInt::from_u32(code::DONE));
    }

    /// The other end reset the flow.
    fn flow_reset(&mut self, stream: StreamNumber) {
        self.reset(stream);
        self.events.push_back(SessionEvent::Reset { stream });
    }

    /// Forgets a flow that was aborted or refused: all it holds at either end is given back.
    fn drop_flow(&mut self, stream: StreamNumber) {
        let Some(mut flow) = self.flows.map.remove(&stream) else { return };
        self.held -= flow.unconsumed();
        self.flows.queued -= flow.queued();
        self.flows.leave(stream);
        if let Some(pool) = &mut self.flows.pool {
            flow.account.settle(pool);
        }
        let total = flow.received_total();
        self.report(stream, total);
        self.flows.wake_all();
    }

    /// Forgets a flow whose two directions have ended in order.
    fn collect(&mut self, stream: StreamNumber) {
        if !self.flows.map.get(&stream).is_some_and(Flow::is_over) {
            return;
        }
        if let Some(flow) = self.flows.map.remove(&stream) {
            self.flows.leave(stream);
            if !flow.account.is_settled() {
                self.flows.lingering.insert(stream, flow.account);
            }
        }
    }

    fn report(&mut self, stream: StreamNumber, total: u64) {
        Control::Consumed { stream, total }.encode(&mut self.flows.control_out);
    }

    /// The next datagram, if one may leave.
    pub(crate) fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((code, what)) = self.closing.take() {
            self.channel.close(now, code, what);
        }
        self.flows.now = now;
        self.tell_kept();
        self.flows.flush_control(self.channel.conn());
        let transmit = self.channel.poll(now, &mut self.flows, out);
        for stream in self.flows.writable.drain(..) {
            self.events.push_back(SessionEvent::Writable { stream });
        }
        transmit
    }

    /// All flows of a lost connection, for resetting them.
    pub(crate) fn streams(&self) -> Vec<StreamNumber> {
        self.flows.map.keys().copied().collect()
    }
}

fn number(id: StreamId) -> StreamNumber {
    VarInt::from(id).into_inner()
}

impl Flows {
    fn wake(&mut self, stream: StreamNumber) {
        if let Some(flow) = self.map.get(&stream).filter(|flow| flow.wants_turn()) {
            self.schedule.wake(stream, flow.class);
        }
    }

    /// A flow has nothing more to send. It may have been the one that was to be told of room.
    fn leave(&mut self, stream: StreamNumber) {
        self.starved.remove(&stream);
        self.schedule.remove(stream);
        self.schedule.unblock();
    }

    /// Memory came free at the far end: those who wait for it may try again.
    fn wake_all(&mut self) {
        for stream in std::mem::take(&mut self.starved) {
            self.wake(stream);
        }
    }

    fn flush_control(&mut self, conn: &mut Connection) {
        let Some(id) = self.control_id else { return };
        while !self.control_out.is_empty() {
            match conn.send_stream(id).write(&self.control_out) {
                Ok(n) => {
                    self.control_out.drain(..n);
                }
                // Room comes with the next acknowledgment.
                Err(_) => return,
            }
        }
    }
}

impl Feed for Flows {
    fn feed(&mut self, conn: &mut Connection, wanted: Wanted) -> u64 {
        self.flush_control(conn);
        self.repair.bound(&mut self.map);
        let Some(pool) = &mut self.pool else { return 0 };
        while let Some(turn) = self.schedule.next(wanted) {
            let Some(flow) = self.map.get_mut(&turn.stream) else {
                self.schedule.remove(turn.stream);
                continue;
            };
            let fed = flow.feed(self.now, conn, turn.bytes, pool);
            let is_small = self.schedule.served(turn.stream, fed.total, fed.more);
            self.queued -= fed.data;
            self.repair.fed(turn.stream, flow, fed.total, is_small);
            if fed.now_writable {
                self.writable.push(turn.stream);
            }
            if fed.starved {
                self.starved.insert(turn.stream);
            }
            if fed.blocked {
                self.schedule.block();
            }
            if fed.total > 0 {
                return fed.total;
            }
        }
        0
    }

    fn repair(&mut self, now: Time, room: usize, hints: RepairHints) -> Option<Bytes> {
        self.repair.next(now, room, hints, &mut self.map)
    }

    fn spare_repair(&mut self, most: u64) {
        self.repair.spare(most, &mut self.map);
    }

    fn repair_small(
        &mut self,
        now: Time,
        room: usize,
        hints: RepairHints,
        progress: Progress,
    ) -> Option<Bytes> {
        self.repair.next_small(now, room, hints, progress, &mut self.map)
    }

    fn repair_due(&mut self) -> Option<Time> {
        self.repair.due(&mut self.map)
    }
}
