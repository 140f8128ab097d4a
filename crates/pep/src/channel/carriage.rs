//! The channel inside TCP and its way back: who decides how much may be in flight, and what of the past counts.

use super::{Channel, MESSAGE_SPAN};
use crate::frame::feature;
use crate::rollback::wire::SECRET;
use crate::rollback::{wire, Carriage, Look, Progress};
use skyhaul_cc::{Ack, Bytes, Controller, Duration, Loss, Rate, Sent, Snapshot, Time};

/// The controller of a channel inside TCP: TCP decides what may leave, by taking it.
#[derive(Clone, Debug)]
struct Plain {
    window: Bytes,
}

impl Controller for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }
    fn on_sent(&mut self, _: &Sent) {}
    fn on_ack(&mut self, _: &Ack) {}
    fn on_loss(&mut self, _: &Loss) {}
    fn cwnd(&self) -> Bytes {
        self.window
    }
    fn pacing_rate(&self) -> Option<Rate> {
        Some(Rate::MAX)
    }
    fn snapshot(&self) -> Snapshot {
        Snapshot { cwnd: self.window, ssthresh: None, pacing_rate: None, phase: "carried" }
    }
    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

impl Channel {
    /// Both ends watch the path.
    pub(crate) fn rolls_back(&self) -> bool {
        self.agreed & feature::ROLLBACK != 0
    }

    /// What both ends of this connection know and nobody else does; nothing before the handshake is through.
    pub(crate) fn rollback_secret(&self) -> Option<[u8; SECRET]> {
        let mut secret = [0; SECRET];
        self.conn.crypto_session().export_keying_material(&mut secret, wire::EXPORTER, &[]).ok()?;
        Some(secret)
    }

    /// Bytes of a full datagram, as a probe that is to show whether one gets through.
    pub(crate) fn full_datagram(&self) -> u16 {
        u16::try_from((self.packet - self.overhead).0).unwrap_or(u16::MAX)
    }

    /// What carries the channel.
    pub(crate) fn carriage(&self) -> Carriage {
        self.carriage
    }

    /// From now on datagrams leave inside TCP.
    pub(crate) fn move_into_tcp(&mut self, now: Time) {
        self.udp_rtt = self.host.rtt();
        self.carriage = Carriage::Tcp;
        let window = self.tuning.send_window;
        self.change_controller(now, Box::new(Plain { window }));
    }

    /// From now on datagrams leave by UDP, governed by `controller`, which may know the path.
    pub(crate) fn move_to_udp(&mut self, now: Time, controller: Box<dyn Controller>) {
        self.carriage = Carriage::Udp;
        self.change_controller(now, controller);
        self.host.expect(self.udp_rtt.smoothed);
    }

    /// The path is what it was, with this round trip, and `controller` knows it: what happened meanwhile is forgotten.
    pub(crate) fn begin_anew(&mut self, now: Time, controller: Box<dyn Controller>, rtt: Duration) {
        self.change_controller(now, controller);
        self.host.expect(rtt);
    }

    fn change_controller(&mut self, now: Time, controller: Box<dyn Controller>) {
        self.train = None;
        self.moved_at = self.last_sent.max(now);
        self.host.replace(controller);
        self.book.forget();
        self.pacer.set_rate(self.host.pacing_rate(), now);
    }

    /// The path has been away and is back: what was in flight is lost, which is no news, and QUIC shall try again now.
    pub(crate) fn wake(&mut self, after_silence: bool) {
        if after_silence {
            self.host.forgive();
        }
        // A datagram that asks for an acknowledgment ends the back-off of timeouts (RFC 9002 §6.2.1) and shows what
        // was lost before it.
        self.conn.ping();
    }

    /// Nothing gets through: one datagram may leave whatever the window says, and asks for an answer.
    pub(crate) fn knock(&mut self, now: Time) {
        self.host.excuse();
        self.conn.ping();
        // As for an acknowledgment that is due.
        self.unacked = self.tuning.ack_every;
        self.unacked_since.get_or_insert(now);
    }

    /// What the supervisor must know.
    pub(crate) fn look(&self) -> Look {
        let moved = |at: &Time| *at >= self.moved_at;
        let rtt = match self.carriage {
            Carriage::Udp => self.host.rtt(),
            Carriage::Tcp => self.udp_rtt,
        };
        Look {
            rtt: rtt.smoothed,
            acked: self.host.newest_acked.filter(moved),
            acked_full: self.host.newest_full.filter(moved),
            sent_full: self.host.sent_full.filter(moved),
            has_flows: false,
            progress: Progress {
                acked: self.host.acked_total,
                packets: (self.host.acked_packets, self.host.lost_packets),
                wanting: !self.backlog.is_empty(),
            },
        }
    }

    /// When QUIC itself wants to be woken.
    pub(crate) fn next_timer(&mut self) -> Option<Time> {
        self.conn.poll_timeout().map(|at| self.epoch.time(at))
    }

    /// A datagram of at least so many QUIC bytes is a full one.
    pub(super) fn full_from(packet: Bytes, overhead: Bytes) -> Bytes {
        packet.saturating_sub(overhead).saturating_sub(MESSAGE_SPAN)
    }
}
