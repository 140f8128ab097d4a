//! What became of the packets, per cause.

use skyhaul_cc::units::{Bytes, Share};

use super::Cause;

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many packets.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: Bytes,
}

impl Count {
    pub(super) fn add(&mut self, size: Bytes) {
        self.packets += 1;
        self.bytes += size;
    }
}

/// The fates of all packets offered to one direction. Offered is the sum of all the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Everything that was offered.
    pub offered: Count,
    /// What arrives, packets still in the air included.
    pub delivered: Count,
    /// Refused because the queue was full.
    pub queue_full: Count,
    /// Lost singly.
    pub random_loss: Count,
    /// Lost to bit errors.
    pub bit_error: Count,
    /// Lost in a burst.
    pub burst: Count,
    /// Sent during an outage.
    pub outage: Count,
}

impl Counters {
    /// The count of one cause.
    pub fn dropped(&self, cause: Cause) -> Count {
        match cause {
            Cause::QueueFull => self.queue_full,
            Cause::RandomLoss => self.random_loss,
            Cause::BitError => self.bit_error,
            Cause::Burst => self.burst,
            Cause::Outage => self.outage,
        }
    }

    /// Packets that passed the queue and went on the air.
    pub fn sent(&self) -> u64 {
        self.offered.packets - self.queue_full.packets
    }

    /// Share of the packets on the air that were lost there, whatever the cause; none if nothing was sent.
    pub fn loss_on_air(&self) -> Share {
        let lost = self.sent() - self.delivered.packets;
        Share::new(lost as f64 / self.sent() as f64).unwrap_or(Share::ZERO)
    }

    pub(super) fn drop(&mut self, cause: Cause, size: Bytes) {
        match cause {
            Cause::QueueFull => &mut self.queue_full,
            Cause::RandomLoss => &mut self.random_loss,
            Cause::BitError => &mut self.bit_error,
            Cause::Burst => &mut self.burst,
            Cause::Outage => &mut self.outage,
        }
        .add(size);
    }
}
