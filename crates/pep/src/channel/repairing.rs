//! What leaves when nothing else does: copies of small bursts, and coded repair.

use super::{copies, message, Channel, Feed, RepairHints};
use crate::frame::feature;
use crate::rollback::Carriage;
use crate::shim::{Header, Kind};
use quinn_proto::Transmit;
use skyhaul_cc::{Bytes, Time};

impl Channel {
    /// Nothing else wants to leave: a packet of a small burst leaves again, if it is time.
    pub(super) fn offer_copy(
        &mut self,
        now: Time,
        feed: &mut dyn Feed,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if !self.repairs_now() {
            return None;
        }
        let rtt = self.host.rtt().smoothed;
        if std::mem::take(&mut self.fed) && self.copies.end_of_burst(now, rtt, self.host.loss()) {
            feed.spare_repair(self.packet.0 * copies::SMALL as u64);
        }
        let copies::Copy { mut transmit, number, packet, .. } = self.copies.next(now, rtt)?;
        if self.has_shim() {
            // The number is that of the packet: the far end leaves it out of its reports.
            out.extend_from_slice(&Header::new(Kind::Repair, false, number, now).encode());
        }
        out.extend_from_slice(&packet);
        transmit.size = out.len();
        self.pacer.spend(Bytes(out.len() as u64) + self.overhead);
        Some(transmit)
    }

    /// Nothing else wants to leave: queues one message of repair, if there is any.
    pub(super) fn offer_repair(&mut self, now: Time, feed: &mut dyn Feed) -> bool {
        let Some((room, hints)) = self.room_for_repair() else { return false };
        let Some(repair) = feed.repair(now, room, hints) else {
            self.repair_due = feed.repair_due();
            return false;
        };
        self.send_message(message::REPAIR, &repair)
    }

    /// A small burst, such as a request, is repaired before the data of others goes on.
    pub(super) fn repair_small(&mut self, now: Time, feed: &mut dyn Feed) {
        let Some((room, hints)) = self.room_for_repair() else { return };
        if let Some(repair) = feed.repair_small(now, room, hints, self.backlog.progress()) {
            self.send_message(message::REPAIR, &repair);
        }
    }

    /// Bytes of one message of repair, and what its sender must know.
    pub(super) fn room_for_repair(&mut self) -> Option<(usize, RepairHints)> {
        if !self.repairs_now() {
            return None;
        }
        let hints =
            RepairHints { loss: self.host.loss(), rtt: self.host.rtt(), in_flight: self.host.in_flight() };
        Some((self.conn.datagrams().max_size()?.checked_sub(1)?, hints))
    }

    /// Both ends understand repair.
    pub(crate) fn repairs(&self) -> bool {
        self.agreed & feature::REPAIR != 0
    }

    /// TCP loses nothing.
    pub(super) fn repairs_now(&self) -> bool {
        self.repairs() && self.carriage == Carriage::Udp
    }
}
