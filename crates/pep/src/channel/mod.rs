//! One QUIC connection as a state machine that we drive: quinn-proto for packets, streams, loss
//! recovery and TLS; our controllers, our pacer.

mod adapter;
mod backlog;
mod carriage;
mod copies;
mod pacer;
mod repairing;
mod tuning;

use crate::frame::feature;
use crate::repair::{Progress, RepairStats};
use crate::rollback::{self, Carriage};
use crate::session::{Wanted, ALWAYS};
use crate::shim::{Book, Header, Kind, Listener, PathStats, Report, HEADER};
use adapter::{Gate, Heard, Host};
use backlog::{Backlog, Room};
use copies::Copies;
use pacer::Pacer;
use quinn_proto::{Connection, ConnectionEvent, FrameStats, Transmit, VarInt};
use skyhaul_cc::{Bytes, Controller, Duration, Estimates, PathHistory, Rtt, Share, Snapshot, Time, Train};
use std::sync::Arc;
use std::time::Instant;
use tuning::headers;

pub use tuning::Tuning;
pub(crate) use tuning::{datagram_size, prepare, Prepared};

/// Turns our [`Time`] into the clock of quinn-proto. Only differences count, so any `Instant` does.
#[derive(Clone, Copy, Debug)]
pub struct Epoch(Instant);

impl Epoch {
    /// `start` is the moment called [`Time::ZERO`].
    pub fn new(start: Instant) -> Self {
        Epoch(start)
    }
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.0 + time.since_start()
    }
    /// A moment of that clock as ours.
    pub fn time(&self, instant: Instant) -> Time {
        Time::ZERO + instant.saturating_duration_since(self.0)
    }
}

/// Figures of one connection.
#[derive(Clone, Copy, Debug)]
pub struct ChannelStats {
    /// Round-trip estimate.
    pub rtt: Rtt,
    /// Bytes in flight, IP and UDP headers included.
    pub in_flight: Bytes,
    /// The controller's state.
    pub controller: Snapshot,
    /// What the controller believes of the path.
    pub estimates: Estimates,
    /// Packets acknowledged and declared lost.
    pub packets_acked: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Losses for which our books and those of quinn-proto differ; anything but zero is a bug.
    pub loss_disagreements: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// What the far end reports of the path to it; nothing without a datagram shim.
    pub path: Option<PathStats>,
    /// What coded repair has done.
    pub repair: RepairStats,
    /// What the roll back has seen and done.
    pub rollback: rollback::RollbackStats,
}

/// What holds the next datagram back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    Nothing,
    Pacer,
    Window,
}

/// Less than the true header and frame bytes of a datagram, so that the guess of what is left to send
/// errs on the high side and is put right when a poll finds nothing.
const PAYLOAD_BELOW_DATAGRAM: u64 = 60;

pub(crate) struct Channel {
    conn: Connection,
    gate: Arc<Gate>,
    host: Host,
    pacer: Pacer,
    epoch: Epoch,
    /// IP and UDP headers of one datagram.
    overhead: Bytes,
    /// Largest packet, headers included.
    packet: Bytes,
    /// Send times name packets, so no two are equal.
    last_sent: Time,
    backlog: Backlog,
    blocked: Blocked,
    tuning: Tuning,
    /// Ack-eliciting datagrams since our last ACK, and when the first of them came.
    unacked: u32,
    unacked_since: Option<Time>,
    heard: Vec<Heard>,
    /// What the library's counters said when last looked at; a look copies all of them.
    frames_sent: FrameStats,
    eliciting_received: u64,
    /// What both ends understand, by their hellos.
    agreed: u64,
    /// What was sent with a header, and what came with one.
    book: Book,
    listener: Listener,
    /// Messages read so far: a datagram with nothing else needs no report.
    messages_received: u64,
    train: Option<UnderWay>,
    /// While there is nothing to send: when repair may be wanted.
    repair_due: Option<Time>,
    copies: Copies,
    /// The other end's address has changed, and answers to challenges of paths so far.
    moving: bool,
    paths_answered: u64,
    /// Flow data was fed since the channel was idle.
    fed: bool,
    /// What carries datagrams, since when, and the round trip by UDP before that.
    carriage: Carriage,
    moved_at: Time,
    udp_rtt: Rtt,
}

/// A train of which some packets have yet to leave.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    train: Train,
    left: u32,
    next_departure: Time,
}

/// The header a datagram came under, and when it came, by the most exact clock there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) header: Header,
    pub(crate) at: Time,
}

/// Where stream data comes from, just in time.
pub(crate) trait Feed {
    /// Writes some more stream data of those who are `wanted` into the connection; zero if there is
    /// none or none may go.
    fn feed(&mut self, conn: &mut Connection, wanted: Wanted) -> u64;
    /// Asked when there is no stream data and a datagram might leave: coded repair of at most `room`
    /// bytes for what the far end may be missing.
    fn repair(&mut self, now: Time, room: usize, hints: RepairHints) -> Option<bytes::Bytes>;
    /// What flows have not had repaired, if it is at most so many bytes each, needs no repair.
    fn spare_repair(&mut self, most: u64);
    /// Asked before data that waits: repair of small bursts, within an allowance.
    fn repair_small(
        &mut self,
        now: Time,
        room: usize,
        hints: RepairHints,
        progress: Progress,
    ) -> Option<bytes::Bytes>;
    /// When to ask for repair again, if there was none.
    fn repair_due(&mut self) -> Option<Time>;
}

/// What a sender of repair must know of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RepairHints {
    /// Share of this direction's packets that get lost.
    pub(crate) loss: Share,
    /// Round-trip estimate.
    pub(crate) rtt: Rtt,
    /// Bytes in flight.
    pub(crate) in_flight: Bytes,
}

/// First byte of a QUIC datagram frame (RFC 9221): what follows.
pub(crate) mod message {
    /// A report of [`crate::shim`].
    pub(crate) const REPORT: u8 = 1;
    /// Coded repair of a stream.
    pub(crate) const REPAIR: u8 = 2;
}

/// A datagram shorter than the largest by less than this counts as full: headers and the last piece of a stream vary.
const MESSAGE_SPAN: Bytes = Bytes(64);

impl Channel {
    pub(crate) fn new(
        conn: Connection,
        prepared: Prepared,
        controller: Box<dyn Controller>,
        tuning: Tuning,
        epoch: Epoch,
    ) -> Self {
        let v6 = is_v6(&conn);
        let overhead = Bytes(headers(v6).into());
        let packet = Bytes(datagram_size(tuning.mtu, v6).into()) + overhead;
        Channel {
            conn,
            gate: prepared.gate,
            host: Host::new(controller, tuning.initial_rtt, Self::full_from(packet, overhead)),
            pacer: Pacer::new(packet),
            epoch,
            overhead,
            packet,
            last_sent: Time::ZERO,
            backlog: Backlog::default(),
            blocked: Blocked::Nothing,
            tuning,
            unacked: 0,
            unacked_since: None,
            heard: Vec::new(),
            frames_sent: FrameStats::default(),
            eliciting_received: 0,
            agreed: 0,
            book: Book::default(),
            listener: Listener::default(),
            messages_received: 0,
            train: None,
            repair_due: None,
            copies: Copies::default(),
            moving: false,
            paths_answered: 0,
            fed: false,
            carriage: Carriage::Udp,
            moved_at: Time::ZERO,
            udp_rtt: Rtt {
                latest: tuning.initial_rtt,
                smoothed: tuning.initial_rtt,
                min: tuning.initial_rtt,
            },
        }
    }

    /// What this end understands, for its hello.
    pub(crate) fn features(&self) -> u64 {
        let Tuning { shim, repair, rollback, .. } = self.tuning;
        [(shim, feature::SHIM), (repair, feature::REPAIR), (rollback.enabled, feature::ROLLBACK)]
            .iter()
            .filter(|(wanted, _)| *wanted)
            .fold(ALWAYS, |all, (_, bit)| all | bit)
    }

    /// The other end's hello came; it understands this.
    pub(crate) fn agree(&mut self, features: u64) {
        self.agreed = self.features() & features;
    }

    /// What both ends understand.
    pub(crate) fn agreed(&self) -> u64 {
        self.agreed
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    pub(crate) fn conn(&mut self) -> &mut Connection {
        &mut self.conn
    }

    /// Ends the connection with an application error code and a reason for the other end's log.
    pub(crate) fn close(&mut self, now: Time, code: u32, reason: &'static str) {
        let now = self.epoch.instant(now);
        self.conn.close(now, VarInt::from_u32(code), bytes::Bytes::from_static(reason.as_bytes()));
    }

    pub(crate) fn conn_ref(&self) -> &Connection {
        &self.conn
    }

    /// A datagram for this connection arrived.
    pub(crate) fn handle_event(&mut self, now: Time, event: ConnectionEvent, arrival: Option<Arrival>) {
        self.conn.handle_event(event);
        let frames = self.conn.stats().frame_rx;
        let received = eliciting(&frames);
        let before = std::mem::replace(&mut self.eliciting_received, received);
        let messages_before = std::mem::replace(&mut self.messages_received, frames.datagram);
        let answered = std::mem::replace(&mut self.paths_answered, frames.path_response);
        if self.moving && answered != frames.path_response {
            self.host.strand(now);
        }
        // QUIC has accepted it, so its header is believed.
        if before != received {
            self.unacked += 1;
            self.unacked_since.get_or_insert(now);
            if let Some(Arrival { header, at }) = arrival {
                let others = received - before > frames.datagram - messages_before;
                self.listener.on_arrival(&header, at, others);
            }
        }
        self.work_off(now);
    }

    /// QUIC has followed the other end to another address.
    pub(crate) fn moved(&mut self, now: Time) {
        self.moving = true;
        self.train = None;
        self.host.strand(now);
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let instant = self.epoch.instant(now);
        if self.conn.poll_timeout().is_some_and(|at| at <= instant) {
            self.conn.handle_timeout(instant);
            self.work_off(now);
        }
    }

    fn work_off(&mut self, now: Time) {
        self.gate.take(&mut self.heard);
        if self.heard.is_empty() {
            return;
        }
        for heard in &self.heard {
            // What was lost will be sent again.
            if let Heard::Lost { bytes, .. } = heard {
                self.backlog.lost(*bytes);
            }
        }
        let epoch = self.epoch;
        self.host.hear(now, &self.heard, |instant| epoch.time(instant));
        self.pacer.set_rate(self.host.pacing_rate(), now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and then [`poll`](Self::poll) again.
    pub(crate) fn next_wake(&mut self) -> Option<Time> {
        let timer = self.conn.poll_timeout().map(|at| self.epoch.time(at));
        // Reports that are due and will never leave are no reason to wake.
        if self.conn.is_closed() {
            return timer;
        }
        let own = match self.blocked {
            Blocked::Nothing => [self.repair_due, self.copies.due()].into_iter().flatten().min(),
            Blocked::Pacer => {
                Some(self.train.map_or_else(|| self.pacer.next(), |train| train.next_departure))
            }
            Blocked::Window => self.unacked_since.map(|since| since + self.tuning.ack_delay),
        };
        let report = self.has_shim().then(|| self.listener.due_at(self.host.rtt().smoothed)).flatten();
        [timer, own, report].into_iter().flatten().min()
    }

    /// Whether datagrams carry headers.
    fn has_shim(&self) -> bool {
        self.agreed & feature::SHIM != 0 && self.carriage == Carriage::Udp
    }

    /// The next datagram, if one may and can leave now; `out` must be empty.
    pub(crate) fn poll(&mut self, now: Time, feed: &mut dyn Feed, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.conn.is_handshaking() || self.conn.is_closed() {
            self.gate.set(true);
            self.blocked = Blocked::Nothing;
            let at = self.tick(now);
            let transmit = self.conn.poll_transmit(at, 1, out);
            self.frames_sent = self.conn.stats().frame_tx;
            return transmit;
        }
        self.pacer.set_rate(self.host.pacing_rate(), now);
        if self.blocked == Blocked::Window {
            self.pacer.reopen(now);
        }
        self.repair_due = None;
        let mut offered = false;
        loop {
            self.blocked = if !self.host.has_window(self.packet) {
                self.train = None;
                Blocked::Window
            } else if !self.may_depart(now) {
                Blocked::Pacer
            } else {
                Blocked::Nothing
            };
            // quinn-proto sends no ACK while it has data that may not go, so a closed gate would keep
            // ACKs back and, with both ends at their windows, stop the connection: an ACK that is due
            // opens the gate for one datagram.
            let ack_due = self.ack_due(now);
            let open = self.queue_report(now, ack_due) || self.blocked == Blocked::Nothing || ack_due;
            self.gate.set(open);
            if open {
                let fed = match self.backlog.room(self.packet) {
                    Room::Any => feed.feed(&mut self.conn, Wanted::Any),
                    Room::Fresh => feed.feed(&mut self.conn, Wanted::Fresh),
                    Room::None => 0,
                };
                self.backlog.fed(fed);
                self.fed |= fed > 0;
                if self.blocked == Blocked::Nothing {
                    self.repair_small(now, feed);
                }
            }
            let at = self.tick(now);
            self.ask_for_train();
            let transmit = self.conn.poll_transmit(at, 1, out);
            if let Some(mut transmit) = transmit {
                transmit.size = self.sent(&transmit, out);
                if self.blocked != Blocked::Nothing {
                    // One datagram, whether quinn-proto agreed that an ACK was due or not.
                    self.acknowledged();
                }
                return Some(transmit);
            }
            if !open {
                return None;
            }
            self.train = None;
            let fed = feed.feed(&mut self.conn, Wanted::Any);
            self.backlog.found_empty(fed);
            self.fed |= fed > 0;
            if fed == 0 {
                if self.blocked == Blocked::Nothing {
                    self.host.mark_app_limited();
                    if let Some(transmit) = self.offer_copy(now, feed, out) {
                        return Some(transmit);
                    }
                    if !std::mem::replace(&mut offered, true) && self.offer_repair(now, feed) {
                        continue;
                    }
                }
                // If an ACK was due, then only by our count.
                self.acknowledged();
                return None;
            }
        }
    }

    /// May a datagram leave, for all the pacer or the train under way says?
    fn may_depart(&mut self, now: Time) -> bool {
        match self.train {
            Some(train) => train.next_departure <= now,
            None => self.pacer.ready(now),
        }
    }

    /// When the next datagram of a train under way shall leave: to the microsecond, if that can be had.
    pub(crate) fn train_departure(&self) -> Option<Time> {
        self.train.filter(|_| self.blocked == Blocked::Pacer).map(|train| train.next_departure)
    }

    /// Begins a train with the next datagram, if the controller wants one and there is data for it.
    fn ask_for_train(&mut self) {
        if self.has_shim()
            && self.train.is_none()
            && !self.backlog.is_empty()
            && self.blocked == Blocked::Nothing
        {
            let now = self.last_sent;
            self.train = (self.host.poll_train(now)).map(|train| UnderWay {
                train,
                left: train.packets,
                next_departure: now,
            });
        }
    }

    /// Counts a datagram of the train under way; its number.
    fn ride(&mut self, bytes: Bytes) -> Option<u32> {
        let mut under_way = self.train.take()?;
        let gap = under_way.train.gap(under_way.train.packets.saturating_sub(under_way.left), bytes);
        under_way.left = under_way.left.saturating_sub(1);
        // From when it should have left: who comes late catches up, and the train keeps its length.
        under_way.next_departure += gap;
        self.train = Some(under_way).filter(|under_way| under_way.left > 0);
        Some(under_way.train.number)
    }

    /// Queues a report of what arrived, if one is due.
    fn queue_report(&mut self, now: Time, ack_due: bool) -> bool {
        let rtt = self.host.rtt().smoothed;
        if !self.has_shim() || !self.listener.is_due(now, rtt, ack_due) {
            return false;
        }
        let Some(room) = self.conn.datagrams().max_size().and_then(|size| size.checked_sub(1)) else {
            return false;
        };
        let Some(report) = self.listener.report(rtt, room) else { return false };
        self.book.count_report(report.len() + 1);
        self.send_message(message::REPORT, &report)
    }

    /// The other end reports what arrived. What makes no sense is not heard: the controller then has only
    /// what QUIC says.
    pub(crate) fn hear_report(&mut self, now: Time, report: &[u8]) {
        let rtt = self.host.rtt().smoothed;
        if Report::decode(report).and_then(|report| self.book.hear(&report, rtt)).is_err() {
            self.book.count_refused();
        }
        while let Some(fate) = self.book.next(now) {
            self.host.on_report(&fate);
        }
        self.pacer.set_rate(self.host.pacing_rate(), now);
    }

    /// Queues a message for the next datagram; false if it cannot be sent.
    fn send_message(&mut self, kind: u8, content: &[u8]) -> bool {
        let mut message = bytes::BytesMut::with_capacity(1 + content.len());
        message.extend_from_slice(&[kind]);
        message.extend_from_slice(content);
        self.conn.datagrams().send(message.freeze(), true).is_ok()
    }

    /// A send time no other packet has.
    fn tick(&mut self, now: Time) -> Instant {
        self.last_sent = now.max(self.last_sent + Duration::from_nanos(1));
        self.epoch.instant(self.last_sent)
    }

    fn ack_due(&self, now: Time) -> bool {
        self.unacked >= self.tuning.ack_every
            || self.unacked_since.is_some_and(|since| now >= since + self.tuning.ack_delay)
    }

    fn acknowledged(&mut self) {
        self.unacked = 0;
        self.unacked_since = None;
    }

    /// A datagram leaves: puts a header in front of it if it counts; its size.
    fn sent(&mut self, transmit: &Transmit, out: &mut Vec<u8>) -> usize {
        let size = transmit.size;
        let after = self.conn.stats().frame_tx;
        let before = std::mem::replace(&mut self.frames_sent, after);
        if after.acks != before.acks {
            self.acknowledged();
        }
        if after.stream != before.stream {
            self.backlog.sent(size);
            if self.fed && self.repairs_now() {
                self.copies.on_sent(transmit, self.book.next_number(), out);
            }
        }
        // The datagram that ends the handshake holds packets of two kinds, which are lost and
        // acknowledged apart; it is not worth a record.
        let ends_handshake = after.crypto != before.crypto;
        let counts = eliciting(&after) != eliciting(&before) && !ends_handshake;
        let quic = Bytes(size as u64) + self.overhead;
        if !counts || !self.has_shim() {
            self.pacer.spend(quic);
            if counts {
                self.host.on_sent(self.last_sent, quic, Bytes(size as u64));
            }
            return size;
        }
        let bytes = quic + Bytes(HEADER as u64);
        let train = self.ride(bytes);
        let number = self.book.next_number();
        self.book.on_sent(self.last_sent, bytes, train);
        let header = Header::new(Kind::Packet, train.is_some(), number, self.last_sent).encode();
        out.resize(size + HEADER, 0);
        out.copy_within(..size, HEADER);
        out[..HEADER].copy_from_slice(&header);
        self.pacer.spend(bytes);
        self.host.on_sent(self.last_sent, bytes, Bytes(size as u64));
        size + HEADER
    }

    /// The other end is known: this controller carries what is sent from now on.
    pub(crate) fn begin_with(&mut self, controller: Box<dyn Controller>) {
        self.host.begin_with(controller);
    }

    pub(crate) fn history(&self) -> Option<PathHistory> {
        self.host.history()
    }

    pub(crate) fn stats(&self) -> ChannelStats {
        let quinn = self.conn.stats();
        ChannelStats {
            rtt: self.host.rtt(),
            in_flight: self.host.in_flight(),
            controller: self.host.snapshot(),
            estimates: self.host.estimates(),
            packets_acked: self.host.acked_packets,
            packets_lost: self.host.lost_packets,
            loss_disagreements: self.host.disagreements,
            datagrams_sent: quinn.udp_tx.datagrams,
            datagrams_received: quinn.udp_rx.datagrams,
            path: self.has_shim().then(|| self.book.stats()),
            repair: RepairStats { copies: self.copies.sent, ..RepairStats::default() },
            rollback: rollback::RollbackStats::default(),
        }
    }
}

fn is_v6(conn: &Connection) -> bool {
    match conn.remote_address().ip() {
        std::net::IpAddr::V4(_) => false,
        // A dual-stack socket shows IPv4 peers as mapped addresses.
        std::net::IpAddr::V6(ip) => ip.to_ipv4_mapped().is_none(),
    }
}

/// Frames that ask for an acknowledgment: all but ACK, PADDING and CONNECTION_CLOSE (RFC 9002 §2).
fn eliciting(f: &FrameStats) -> u64 {
    f.ack_frequency
        + f.crypto
        + f.data_blocked
        + f.datagram
        + u64::from(f.handshake_done)
        + f.immediate_ack
        + f.max_data
        + f.max_stream_data
        + f.max_streams_bidi
        + f.max_streams_uni
        + f.new_connection_id
        + f.new_token
        + f.path_challenge
        + f.path_response
        + f.ping
        + f.reset_stream
        + f.retire_connection_id
        + f.stream_data_blocked
        + f.streams_blocked_bidi
        + f.streams_blocked_uni
        + f.stop_sending
        + f.stream
}
