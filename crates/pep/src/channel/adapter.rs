//! The full controller interface on top of unmodified quinn-proto.
//!
//! quinn-proto tells its congestion controller little: no packet numbers, one call per loss detection,
//! no pacing rate. But the driver calls `poll_transmit`, and three facts suffice. One datagram per call
//! with a strictly increasing `now` makes the send time the packet's name; when a packet is declared
//! lost, so is every older one still outstanding; and the window may answer "open" or "closed" for each
//! datagram, which leaves window and pacing to us.

use quinn_proto::congestion as quinn;
use quinn_proto::RttEstimator as QuinnRtt;
use skyhaul_cc::parts::{DeliveryEstimator, Episodes, PacketState, Rounds, RttEstimator};
use skyhaul_cc::{
    Ack, Bytes, Controller, Duration, Estimates, Loss, PathHistory, Rate, Report, Sent, Share, Signal,
    Snapshot, Time, Train,
};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What quinn-proto said, to be worked off once its call has returned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heard {
    /// A packet sent at this time was acknowledged.
    Acked { sent: Instant },
    /// The acknowledgment frame is complete.
    AckEnd,
    /// Everything outstanding up to this send time is lost.
    Lost { sent: Instant, persistent: bool, bytes: u64 },
}

/// The controller quinn-proto sees: a gate that is open or closed, and a notebook.
#[derive(Debug, Default)]
pub(super) struct Gate {
    open: AtomicBool,
    heard: Mutex<Vec<Heard>>,
}

impl Gate {
    pub(super) fn set(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }

    fn hear(&self, what: Heard) {
        self.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(what);
    }

    pub(super) fn take(&self, into: &mut Vec<Heard>) {
        into.clear();
        into.append(&mut self.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}

/// One handle on the gate; quinn-proto may copy it when the path changes.
struct GateHandle(Arc<Gate>);

impl quinn::Controller for GateHandle {
    fn on_ack(&mut self, _: Instant, sent: Instant, _: u64, _: bool, _: &QuinnRtt) {
        self.0.hear(Heard::Acked { sent });
    }
    fn on_end_acks(&mut self, _: Instant, _: u64, _: bool, _: Option<u64>) {
        self.0.hear(Heard::AckEnd);
    }
    fn on_congestion_event(&mut self, _: Instant, sent: Instant, persistent: bool, bytes: u64) {
        self.0.hear(Heard::Lost { sent, persistent, bytes });
    }
    fn on_mtu_update(&mut self, _: u16) {}
    fn window(&self) -> u64 {
        // Above 2^32 quinn-proto's own pacer is off; 1 lets nothing through but ACKs and probes.
        match self.0.open.load(Ordering::Relaxed) {
            true => u64::MAX >> 1,
            false => 1,
        }
    }
    fn clone_box(&self) -> Box<dyn quinn::Controller> {
        Box::new(GateHandle(self.0.clone()))
    }
    fn initial_window(&self) -> u64 {
        u64::MAX >> 1
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Builds handles on one gate: one factory per connection.
pub(super) struct GateFactory(pub(super) Arc<Gate>);

impl quinn::ControllerFactory for GateFactory {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn quinn::Controller> {
        Box::new(GateHandle(self.0.clone()))
    }
}

/// Beyond round trips, the time after which a packet counts as lost by a timer.
const STRAGGLERS: Duration = Duration::from_secs(1);
/// Packets that say what share gets lost: at 1 % the mean of so many scatters by a tenth of itself.
const RECENT: u64 = 16_384;

/// One packet that counts towards the window.
#[derive(Clone, Copy, Debug)]
struct Record {
    at: Time,
    /// Bytes on the wire, headers below QUIC counted.
    bytes: Bytes,
    /// Bytes as QUIC counts them.
    quic: Bytes,
    state: PacketState,
    outstanding: bool,
    /// Counts no more, whatever becomes of it.
    forgiven: bool,
}

/// Runs one of our controllers over the packets of one connection.
#[derive(Debug)]
pub(super) struct Host {
    controller: Box<dyn Controller>,
    rtt: RttEstimator,
    rounds: Rounds,
    episodes: Episodes,
    delivery: DeliveryEstimator,
    /// In order of sending; the front is outstanding, or the queue is empty.
    records: VecDeque<Record>,
    in_flight: Bytes,
    /// When the first packet with a record left. Those of the handshake have none.
    first_sent: Option<Time>,
    /// The ACK being read: bytes and newest send time.
    acked: Bytes,
    newest: Option<Time>,
    pub(super) lost_packets: u64,
    pub(super) acked_packets: u64,
    pub(super) acked_total: Bytes,
    /// When packets were last forgotten of which nothing may be heard any more.
    stranded: Option<Time>,
    /// A packet of so many QUIC bytes is a full one.
    full: Bytes,
    /// Send times of the newest packet acknowledged, and of the newest full one.
    pub(super) newest_acked: Option<Time>,
    pub(super) newest_full: Option<Time>,
    /// When the newest full one left.
    pub(super) sent_full: Option<Time>,
    /// Packets acknowledged and lost lately; both are halved now and then.
    recent: (u64, u64),
    /// Losses whose bytes are not those quinn-proto counted; none, if the adapter is right.
    pub(super) disagreements: u64,
}

impl Host {
    pub(super) fn new(controller: Box<dyn Controller>, initial_rtt: Duration, full: Bytes) -> Self {
        Host {
            controller,
            rtt: RttEstimator::new(initial_rtt),
            rounds: Rounds::new(),
            episodes: Episodes::new(),
            delivery: DeliveryEstimator::new(),
            records: VecDeque::new(),
            in_flight: Bytes::ZERO,
            first_sent: None,
            acked: Bytes::ZERO,
            newest: None,
            lost_packets: 0,
            acked_packets: 0,
            acked_total: Bytes::ZERO,
            stranded: None,
            full,
            newest_acked: None,
            newest_full: None,
            sent_full: None,
            recent: (0, 0),
            disagreements: 0,
        }
    }

    /// Another controller, as long as this one has heard of nothing.
    pub(super) fn begin_with(&mut self, controller: Box<dyn Controller>) {
        if self.first_sent.is_none() {
            self.controller = controller;
        }
    }

    /// Another controller for another path; what was sent before is none of its business.
    pub(super) fn replace(&mut self, controller: Box<dyn Controller>) {
        self.forgive();
        self.controller = controller;
        self.expect(self.rtt.rtt().smoothed);
        (self.rounds, self.episodes) = (Rounds::new(), Episodes::new());
        self.delivery = DeliveryEstimator::new();
    }

    /// Round trip to assume until one is measured.
    pub(super) fn expect(&mut self, rtt: Duration) {
        self.rtt = RttEstimator::new(rtt);
    }

    /// What is in flight counts no more: an outage, or a change of the path, has swallowed it, and that says
    /// nothing about congestion.
    pub(super) fn forgive(&mut self) {
        self.excuse();
        self.in_flight = Bytes::ZERO;
        (self.acked, self.newest) = (Bytes::ZERO, None);
    }

    /// The same, as long as nothing gets through: what is in flight goes on filling the window, so that nothing
    /// follows it into the hole.
    pub(super) fn excuse(&mut self) {
        for record in self.records.iter_mut().filter(|record| record.outstanding) {
            record.forgiven = true;
        }
    }

    /// The other end has another address. Of what was sent to the old one quinn-proto says nothing any more, and
    /// nothing of what is acknowledged before the new one is validated (RFC 9000 §9.4): waiting for that would keep
    /// the window full for ever.
    pub(super) fn strand(&mut self, now: Time) {
        self.stranded = Some(now);
        self.records.clear();
        self.in_flight = Bytes::ZERO;
        (self.acked, self.newest) = (Bytes::ZERO, None);
    }

    /// Losses may still be those of packets that were forgotten.
    fn is_stranded(&self, now: Time) -> bool {
        self.stranded.is_some_and(|at| now < at + self.rtt.rtt().smoothed * 4 + STRAGGLERS)
    }

    pub(super) fn history(&self) -> Option<PathHistory> {
        self.controller.history()
    }

    /// Room for one more packet of this size?
    pub(super) fn has_window(&self, packet: Bytes) -> bool {
        self.in_flight + packet <= self.controller.cwnd()
    }

    /// The controller's rate, or 1.25 windows per round trip (RFC 9002 §7.7).
    pub(super) fn pacing_rate(&self) -> Rate {
        self.controller
            .pacing_rate()
            .unwrap_or_else(|| self.controller.cwnd().per(self.rtt.rtt().smoothed).scale(1.25))
    }

    /// A packet left: its bytes on the wire, and those that QUIC counts.
    pub(super) fn on_sent(&mut self, at: Time, bytes: Bytes, quic: Bytes) {
        self.first_sent.get_or_insert(at);
        if quic >= self.full {
            self.sent_full = Some(at);
        }
        let state = self.delivery.on_sent(at, self.in_flight);
        self.in_flight += bytes;
        self.records.push_back(Record { at, bytes, quic, state, outstanding: true, forgiven: false });
        self.controller.on_sent(&Sent { now: at, bytes, in_flight: self.in_flight });
    }

    /// The application has nothing to send although it may.
    pub(super) fn mark_app_limited(&mut self) {
        self.delivery.mark_app_limited(self.in_flight);
    }

    /// The far end reported what became of a packet.
    pub(super) fn on_report(&mut self, report: &Report) {
        self.controller.on_report(report);
    }

    /// A train to begin with the packet that is about to leave, if one is due.
    pub(super) fn poll_train(&mut self, now: Time) -> Option<Train> {
        self.controller.poll_train(now)
    }

    /// Works off what quinn-proto said; `time` turns its clock into ours.
    pub(super) fn hear(&mut self, now: Time, heard: &[Heard], time: impl Fn(Instant) -> Time) {
        for &what in heard {
            match what {
                Heard::Acked { sent } => self.acked_packet(now, time(sent)),
                Heard::AckEnd => self.ack_end(now),
                Heard::Lost { sent, persistent, bytes } => {
                    self.lost(now, time(sent), persistent, Bytes(bytes));
                }
            }
        }
        while self.records.front().is_some_and(|record| !record.outstanding) {
            self.records.pop_front();
        }
    }

    fn acked_packet(&mut self, now: Time, sent_at: Time) {
        // Handshake packets have no record; they are few and not congestion controlled.
        let Ok(index) = self.records.binary_search_by_key(&sent_at, |record| record.at) else { return };
        let record = &mut self.records[index];
        if !record.outstanding {
            return;
        }
        record.outstanding = false;
        let record = *record;
        self.newest_acked = self.newest_acked.max(Some(sent_at));
        if record.quic >= self.full {
            self.newest_full = self.newest_full.max(Some(sent_at));
        }
        self.acked_packets += 1;
        self.acked_total += record.bytes;
        if record.forgiven {
            return;
        }
        self.in_flight -= record.bytes;
        self.acked += record.bytes;
        self.count_recent(1, 0);
        self.newest = self.newest.max(Some(sent_at));
        self.delivery.on_packet_acked(&record.state, record.bytes, now, sent_at);
    }

    fn ack_end(&mut self, now: Time) {
        let Some(sent_at) = self.newest.take() else { return };
        self.rtt.on_sample(now - sent_at);
        let rtt = self.rtt.rtt();
        let sample = self.delivery.end_of_ack(Some(rtt.min));
        let ack = Ack {
            now,
            sent_at,
            acked: std::mem::take(&mut self.acked),
            in_flight: self.in_flight,
            peer_window: None,
            rtt,
            delivery_rate: sample.rate,
            round_start: self.rounds.on_ack(now, sent_at),
            app_limited: sample.app_limited,
        };
        self.controller.on_ack(&ack);
    }

    fn lost(&mut self, now: Time, sent_at: Time, persistent: bool, counted: Bytes) {
        if self.first_sent.is_none_or(|first| sent_at < first) {
            return;
        }
        let (mut lost, mut lost_quic) = (Bytes::ZERO, Bytes::ZERO);
        let (mut packets, mut forgiven) = (0, 0);
        let mut newest = None;
        if counted > Bytes::ZERO {
            for record in self.records.iter_mut().take_while(|record| record.at <= sent_at) {
                if std::mem::take(&mut record.outstanding) {
                    lost_quic += record.quic;
                    if record.forgiven {
                        forgiven += 1;
                        continue;
                    }
                    lost += record.bytes;
                    packets += 1;
                    newest = Some(record.at);
                }
            }
            if lost_quic != counted && !self.is_stranded(now) {
                self.disagreements += 1;
            }
            self.in_flight -= lost;
            self.lost_packets += packets + forgiven;
            self.count_recent(0, packets);
            if packets == 0 && (forgiven > 0 || self.is_stranded(now)) {
                return;
            }
        }
        let sent_at = newest.unwrap_or(sent_at);
        let signal = match (counted > Bytes::ZERO, persistent) {
            (false, _) => Signal::Ecn,
            (true, true) => Signal::Timeout,
            (true, false) => Signal::Gap,
        };
        self.controller.on_loss(&Loss {
            now,
            sent_at,
            lost,
            in_flight: self.in_flight,
            rtt: self.rtt.rtt(),
            signal,
            new_episode: self.episodes.on_loss(now, sent_at),
        });
    }

    pub(super) fn rtt(&self) -> skyhaul_cc::Rtt {
        self.rtt.rtt()
    }

    fn count_recent(&mut self, acked: u64, lost: u64) {
        self.recent = (self.recent.0 + acked, self.recent.1 + lost);
        if self.recent.0 + self.recent.1 > RECENT {
            self.recent = (self.recent.0 / 2, self.recent.1 / 2);
        }
    }

    /// Share of the last thousands of packets that got lost.
    pub(super) fn loss(&self) -> Share {
        let (acked, lost) = self.recent;
        Share::new(lost as f64 / (acked + lost).max(1) as f64).unwrap_or(Share::ZERO)
    }

    pub(super) fn in_flight(&self) -> Bytes {
        self.in_flight
    }

    pub(super) fn estimates(&self) -> Estimates {
        self.controller.estimates().unwrap_or_default()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.controller.snapshot()
    }
}
