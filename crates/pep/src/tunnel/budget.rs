//! The resource manager at work: every channel's share of the process's memory, and who is turned away at the door.

use super::{DownReason, Event, FlowId, PeerId, Tunnel};
use crate::frame::Refusal;
use crate::limits::budget::{Share, Usage};
use crate::limits::Bypass;
use crate::rollback::Standing;
use crate::session::{code, StreamNumber};
use quinn_proto::Transmit;
use skyhaul_cc::{Bytes, Duration, Time};

/// What an end holds, of what it may, and how many it has turned away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// The budget.
    pub memory: Bytes,
    /// Flow data received and not passed on.
    pub received: Bytes,
    /// Flow data taken and not sent.
    pub queued: Bytes,
    /// Flow data sent and not known to be passed on by the far ends; what of it is here has been neither acknowledged
    /// nor let go.
    pub outstanding: Bytes,
    /// Flow data kept for repairing far ends.
    pub retained: Bytes,
    /// Flow data kept for being repaired.
    pub kept: Bytes,
    /// What far ends may have waiting here, floors not counted.
    pub promised: Bytes,
    /// Flows open.
    pub flows: usize,
    /// Flows at once, at most.
    pub most_flows: usize,
    /// Connections that this end carries beside its channels.
    pub bypass: Bypass,
    /// Flows refused for want of memory.
    pub refused_flows: u64,
    /// Channels refused for want of memory.
    pub refused_channels: u64,
    /// Channels given up because nothing was heard of their other ends.
    pub silent_channels: u64,
}

/// How often shares are looked at: more often than a round trip of most links, so that a channel that begins to be
/// busy does not wait for it.
const LOOK: Duration = Duration::from_millis(250);
/// An end that waits for others gives one up that carries no flow, after this much silence: it will come again, and
/// that costs it two round trips.
const IDLE_SILENCE: Duration = Duration::from_secs(120);
/// A channel silent for so long makes room for another where memory is short.
const SILENCE: Duration = Duration::from_secs(30);

impl Tunnel {
    /// The other end has shown its key: a share for its channel, and the hello that says how large it is.
    pub(super) fn begin_session(&mut self, now: Time, peer: PeerId) {
        let share = match self.budget.open(peer) {
            Ok(share) => Ok(share),
            Err(_) if self.make_room(now, peer) => self.budget.open(peer),
            full => full,
        };
        match share {
            Ok(share) => {
                let floor = self.budget.split().floor;
                if let Some(entry) = self.peers.get_mut(&peer) {
                    entry.session.grant(floor, &share);
                    entry.session.connected();
                }
                self.follow_shares();
            }
            Err(full) => {
                self.counts.refused_channels += 1;
                if let Some(entry) = self.peers.get_mut(&peer) {
                    entry.session.channel().close(now, code::BUSY, "no memory for another channel");
                }
                self.down(peer, DownReason::Failed(format!("no memory for another channel: {full}")));
            }
        }
    }

    /// Ends the channel that the same peer had before, or the one that has been silent for longest; false if there
    /// is none.
    fn make_room(&mut self, now: Time, newcomer: PeerId) -> bool {
        let key = self.peers.get(&newcomer).and_then(|entry| entry.key);
        let others = || self.peers.iter().filter(|(id, other)| **id != newcomer && !other.down);
        let same = others().find(|(_, other)| key.is_some() && other.key == key).map(|(id, _)| *id);
        let silent = || {
            others()
                .filter(|(id, other)| {
                    now.since(other.heard) >= SILENCE && self.budget.pool(**id) > Bytes::ZERO
                })
                .min_by_key(|(_, other)| other.heard)
                .map(|(id, _)| *id)
        };
        if let Some(same) = same {
            if let Some(entry) = self.peers.get_mut(&same) {
                entry.session.channel().close(now, code::REPLACED, "connected anew");
            }
            self.down(same, DownReason::Replaced);
            return true;
        }
        let Some(silent) = silent() else { return false };
        self.counts.silent_channels += 1;
        self.abandon(now, silent, "silent, and its memory is needed".to_owned());
        true
    }

    /// A channel is over.
    pub(super) fn end_session(&mut self, peer: PeerId) {
        if let Some(entry) = self.peers.get_mut(&peer) {
            entry.session.forget_flows();
        }
        self.budget.close(peer);
        self.follow_shares();
    }

    /// Flows and connections beside them, each of which has its floor.
    fn with_floors(&self) -> usize {
        self.flow_count() + self.bypass.connections()
    }

    /// A connection begins that this end carries beside its channels; to be closed again with
    /// [`bypass_close`](Self::bypass_close). False if there is no memory for it.
    pub fn bypass_open(&mut self) -> bool {
        let flows = self.flow_count();
        self.bypass.open(self.budget.split(), flows)
    }

    /// A connection beside the channels is over.
    pub fn bypass_close(&mut self) {
        self.bypass.close();
    }

    /// How much a connection beside the channels may read at once, `most` at most and never nothing; what it has
    /// read it tells by [`bypass_take`](Self::bypass_take).
    pub fn bypass_room(&self, most: Bytes) -> Bytes {
        self.bypass.room(self.budget.split(), self.held().1, most)
    }

    /// So much was read of a connection beside the channels.
    pub fn bypass_take(&mut self, bytes: Bytes) {
        self.bypass.take(bytes);
    }

    /// So much of that was passed on, or thrown away.
    pub fn bypass_release(&mut self, bytes: Bytes) {
        self.bypass.release(bytes);
    }

    /// Whether one flow more has its floor, at this end.
    pub(super) fn admits_flow(&mut self) -> bool {
        let admitted = self.with_floors() < self.budget.split().flows;
        self.counts.refused_flows += u64::from(!admitted);
        admitted
    }

    /// A flow came from the other end: refused if there is no room for it. `true` if it may go on.
    pub(super) fn greet_flow(&mut self, peer: PeerId, stream: StreamNumber) -> bool {
        // It is among those that are counted.
        let most = self.budget.split().flows;
        if self.with_floors() <= most {
            return true;
        }
        self.counts.refused_flows += 1;
        self.refuse(FlowId { peer, stream }, Refusal::Busy);
        false
    }

    /// The other end answered an offer.
    pub(super) fn heard_kept(&mut self, now: Time, peer: PeerId, sequence: u64, pool: Bytes) {
        match self.budget.kept(peer, sequence, pool) {
            Ok(()) => self.follow_shares(),
            Err(what) => {
                if let Some(entry) = self.peers.get_mut(&peer) {
                    entry.session.channel().close(now, code::VIOLATION, what);
                }
                self.down(peer, DownReason::Violation(what));
            }
        }
    }

    /// Looks at the shares, if it is time.
    pub(super) fn look(&mut self, now: Time) {
        self.give_up_silent(now);
        if now < self.next_look || !self.budget.is_divided() {
            return;
        }
        self.next_look = now + LOOK;
        let peers = &self.peers;
        let offers = self
            .budget
            .rebalance(|id| peers.get(&id).map_or(Usage::default(), |entry| entry.session.usage()));
        for entry in self.peers.values_mut() {
            entry.session.begin_round();
        }
        self.follow_shares();
        for (peer, offer) in offers {
            if let Some(entry) = self.peers.get_mut(&peer) {
                entry.session.offer(offer);
            }
            self.mark(peer);
        }
    }

    /// When to look next.
    pub(super) fn look_at(&self) -> Option<Time> {
        let shares = self.budget.is_divided().then_some(self.next_look);
        let silent = self.peers.values().filter(|entry| entry.may_be_forgotten());
        let silent = silent.map(|entry| entry.heard + IDLE_SILENCE).min();
        [shares, silent].into_iter().flatten().min()
    }

    fn give_up_silent(&mut self, now: Time) {
        let silent = |entry: &super::Peer| entry.may_be_forgotten() && now >= entry.heard + IDLE_SILENCE;
        let gone: Vec<PeerId> =
            self.peers.iter().filter(|(_, entry)| silent(entry)).map(|(id, _)| *id).collect();
        for peer in gone {
            self.counts.silent_channels += 1;
            let seconds = IDLE_SILENCE.as_secs();
            self.abandon(now, peer, format!("nothing was heard for {seconds} s, and it carried nothing"));
            self.after(now, peer);
        }
    }

    fn follow_shares(&mut self) {
        let shares: Vec<(PeerId, Share)> = self
            .peers
            .keys()
            .filter(|id| self.budget.has(**id))
            .map(|id| (*id, self.budget.share(*id)))
            .collect();
        for (peer, share) in shares {
            if let Some(entry) = self.peers.get_mut(&peer) {
                entry.session.follow(&share);
            }
        }
    }

    /// Flow data in memory here, over all channels, and what was turned away.
    pub fn holdings(&self) -> Holdings {
        let (received, queued) = self.held();
        let sum = |of: fn(&super::Peer) -> Bytes| self.peers.values().map(of).sum::<Bytes>();
        Holdings {
            memory: self.config.memory,
            received,
            queued,
            outstanding: sum(|entry| entry.session.usage().outstanding),
            retained: sum(|entry| entry.session.kept_for_repair().0),
            kept: sum(|entry| entry.session.kept_for_repair().1),
            promised: self.budget.promised(),
            flows: self.flow_count(),
            most_flows: self.budget.split().flows,
            bypass: self.bypass,
            ..self.counts
        }
    }

    /// What a flow has queued and not sent.
    pub fn queued(&self, flow: FlowId) -> Bytes {
        self.peers.get(&flow.peer).map_or(Bytes::ZERO, |entry| entry.session.queued(flow.stream))
    }

    /// Whether what goes to a peer is marked as able to hear of congestion (ECN).
    pub fn marks(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_some_and(|entry| entry.marks)
    }

    /// A datagram leaves. QUIC marks all of them until it finds that marks do not arrive (RFC 9000 §13.4.2), and
    /// begins anew where the peer's address is another one.
    pub(super) fn watch_marks(&mut self, peer: PeerId, transmit: &Transmit) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        if !entry.up || transmit.destination != entry.remote {
            return;
        }
        let marked = transmit.ecn.is_some();
        if std::mem::replace(&mut entry.marks, marked) && !marked && self.standing(peer) == Some(Standing::Up)
        {
            self.events.push_back(Event::EcnLost { peer });
        }
    }

    /// What a channel's other end may have waiting here, floors not counted.
    pub fn pool(&self, peer: PeerId) -> Bytes {
        self.budget.pool(peer)
    }

    /// Follows a peer whose address has changed: QUIC has moved the connection there (RFC 9000 §9).
    pub(super) fn follow_peer(&mut self, now: Time, peer: PeerId) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        let to = entry.session.channel().conn_ref().remote_address();
        let from = std::mem::replace(&mut entry.remote, to);
        if from != to && !entry.down {
            entry.session.channel().moved(now);
            entry.session.tell_address(to);
            if entry.up {
                self.events.push_back(Event::Moved { peer, from, to });
            }
        }
    }

    /// The other end says where it sees this one.
    pub(super) fn seen_at(&mut self, peer: PeerId, address: std::net::SocketAddr) {
        let Some(entry) = self.peers.get_mut(&peer) else { return };
        let before = entry.seen_at.replace(address);
        if before != Some(address) {
            self.events.push_back(Event::SeenAt { peer, before, address });
        }
    }
}
