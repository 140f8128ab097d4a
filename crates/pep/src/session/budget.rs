//! The session's share of the process's memory: pools that change their size, and what it tells of its needs.

use super::{Memory, Session, SessionEvent, StreamNumber};
use crate::channel::Channel;
use crate::frame::{feature, Control};
use crate::limits::budget::{Offer, Share, Usage};
use skyhaul_cc::Bytes;
use std::net::SocketAddr;

impl Session {
    /// What this end has for the channel; to be said before [`connected`](Session::connected).
    pub(crate) fn grant(&mut self, floor: Bytes, share: &Share) {
        self.memory = Memory { floor: floor.0, pool: share.pool.0 };
        self.follow(share);
    }

    /// The channel's share is another one. Data that may be let go is let go at once.
    pub(crate) fn follow(&mut self, share: &Share) {
        self.memory.pool = share.pool.0;
        let window = share.window.min(self.channel.tuning().send_window);
        self.channel.conn().set_send_window(window.0);
        self.flows.repair.limit(share.retained.0, &mut self.flows.map);
        self.limit_kept(share.kept.0);
    }

    /// Tells the other end of another pool here.
    pub(crate) fn offer(&mut self, offer: Offer) {
        let Offer { sequence, pool } = offer;
        Control::Pool { sequence, pool: pool.0 }.encode(&mut self.flows.control_out);
    }

    /// Tells the other end where it is seen, if it can hear that.
    pub(crate) fn tell_address(&mut self, address: SocketAddr) {
        if self.channel.understands(feature::ADDRESS) {
            Control::Seen { address }.encode(&mut self.flows.control_out);
        }
    }

    /// The other end offers another pool.
    pub(super) fn hear_offer(&mut self, sequence: u64, size: u64) {
        if let Some(pool) = &mut self.flows.pool {
            let kept = pool.offer(sequence, size);
            Control::Kept { sequence, pool: kept }.encode(&mut self.flows.control_out);
            self.flows.wake_all();
        }
    }

    /// Says how far a pool has shrunk that shall.
    pub(super) fn tell_kept(&mut self) {
        if let Some((sequence, pool)) = self.flows.pool.as_mut().and_then(crate::credit::Pool::shrink) {
            Control::Kept { sequence, pool }.encode(&mut self.flows.control_out);
        }
    }

    /// What the session needs memory for.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            received: Bytes(self.received),
            held: Bytes(self.held),
            queued: Bytes(self.flows.queued),
            outstanding: Bytes(self.flows.pool.map_or(0, |pool| pool.outstanding())),
            adjustable: self.channel.understands(feature::POOL),
        }
    }

    /// What a flow has queued and not sent.
    pub(crate) fn queued(&self, stream: StreamNumber) -> Bytes {
        self.flows.map.get(&stream).map_or(Bytes::ZERO, |flow| Bytes(flow.queued()))
    }

    /// What is received from now on counts as new.
    pub(crate) fn begin_round(&mut self) {
        self.received = 0;
    }

    /// The connection is lost: nothing that its flows held is of use.
    pub(crate) fn forget_flows(&mut self) {
        self.flows.map.clear();
        self.flows.lingering.clear();
        self.flows.starved.clear();
        (self.held, self.flows.queued) = (0, 0);
    }

    /// An event about the share, for the tunnel.
    pub(super) fn hear_share(&mut self, frame: Control) {
        match frame {
            Control::Pool { sequence, pool } => self.hear_offer(sequence, pool),
            Control::Kept { sequence, pool } => {
                self.events.push_back(SessionEvent::Kept { sequence, pool: Bytes(pool) });
            }
            Control::Seen { address } => self.events.push_back(SessionEvent::SeenAt { address }),
            Control::Hello { .. } | Control::Consumed { .. } => {}
        }
    }
}

/// What every channel understands, whatever its settings.
pub(crate) const ALWAYS: u64 = feature::POOL | feature::ADDRESS;

impl Channel {
    /// Both ends understand a feature.
    pub(crate) fn understands(&self, feature: u64) -> bool {
        self.agreed() & feature != 0
    }
}
