//! What a link can carry at best.

use skyhaul_cc::units::{Bytes, Duration, Rate, Share};

use super::{Dir, Direction, Scenario};
use crate::link::changes::Changes;

/// Payload of a full 1500-byte packet of the accelerator's channel: less 28 bytes of IPv4 and UDP, 13 of
/// QUIC header, 16 of its tag and 10 of stream frame.
pub const PAYLOAD_PER_PACKET: Bytes = Bytes(1433);

impl Scenario {
    /// The greatest payload rate of one direction at the start, when every packet on the link is full
    /// (1500 bytes) and carries `payload` bytes of the file, and what is lost is sent again: link rate ×
    /// payload / (1500 + bytes the rate base adds) × (1 - loss).
    pub fn payload_limit(&self, data: Dir, payload: Bytes) -> Rate {
        let direction = self.direction(data);
        let full = Packet { size: FULL_PACKET, payload };
        direction.rate.scale(full.share(direction) * direction.survival(direction.loss, full))
    }

    /// The greatest goodput of a file of `bytes` in the workload's direction: `bytes` / (one-way delay +
    /// sending time at the payload limit), with [`PAYLOAD_PER_PACKET`]. Connection set-up would come on
    /// top. Changes of the link while the file is sent are counted; jitter is not.
    pub fn limit(&self, bytes: Bytes) -> Rate {
        self.limit_of(self.workload.kind.data(), bytes, PAYLOAD_PER_PACKET)
    }

    /// As [`Scenario::limit`] for either direction and for packets that carry `payload` bytes of the file.
    pub fn limit_of(&self, data: Dir, bytes: Bytes, payload: Bytes) -> Rate {
        self.limit_with(data, bytes, Packet { size: FULL_PACKET, payload })
    }

    /// As [`Scenario::limit`] for the segments of `[tcp]`.
    pub fn tcp_limit(&self, bytes: Bytes) -> Rate {
        self.limit_with(self.data(), bytes, Packet { size: self.tcp.packet(), payload: self.tcp.mss })
    }

    fn limit_with(&self, data: Dir, bytes: Bytes, packet: Packet) -> Rate {
        let time = self.direction(data).shortest_time(bytes, packet);
        if time == Duration::MAX {
            return Rate::ZERO;
        }
        bytes.per(time)
    }
}

impl Direction {
    /// Share of packets that survive, given the single loss in force.
    fn survival(&self, loss: Share, packet: Packet) -> f64 {
        let bits = self.packet_error(packet.size);
        let bursts = self.burst.map_or(Share::ZERO, |burst| burst.average());
        [loss, bits, bursts].map(|lost| 1.0 - lost.value()).iter().product()
    }

    /// From the first bit sent to the last one received.
    fn shortest_time(&self, bytes: Bytes, packet: Packet) -> Duration {
        let changes = Changes::new(self);
        let payload_bits = bytes.bits() as f64;
        let efficiency = packet.share(self);
        let (mut now, mut done) = (0u64, 0.0);
        for _ in 0..MOST_STEPS {
            let settings = changes.at(now);
            let on_air = if settings.out { 0.0 } else { settings.rate as f64 };
            let rate = on_air * efficiency * self.survival(settings.loss.share(), packet);
            let next = changes.next_after(now);
            let left = (payload_bits - done) / rate;
            if left.is_finite() && now as f64 + left * 1e9 <= next as f64 {
                let end = now.saturating_add((left * 1e9) as u64);
                return Duration::from_nanos(end.saturating_add(changes.at(end).one_way));
            }
            if next == u64::MAX {
                return Duration::MAX;
            }
            done += rate * (next - now) as f64 / 1e9;
            now = next;
        }
        // So many periods make a fair mean.
        Duration::try_from_secs_f64(now as f64 / 1e9 * payload_bits / done).unwrap_or(Duration::MAX)
    }
}

/// A packet as large as it gets.
#[derive(Clone, Copy)]
struct Packet {
    /// IP bytes.
    size: Bytes,
    /// Of these, bytes of the file.
    payload: Bytes,
}

impl Packet {
    /// Share of the link's time that payload has.
    fn share(self, direction: &Direction) -> f64 {
        self.payload.as_f64() / (self.size + direction.rate_base.overhead()).as_f64()
    }
}

const FULL_PACKET: Bytes = Bytes(1500);
const MOST_STEPS: usize = 100_000;
