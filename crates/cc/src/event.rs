//! What a controller hears. Hosts compute `new_episode`, `round_start` and `delivery_rate` with
//! [`crate::parts`], so that no controller repeats them and all hosts agree.
//!
//! Hosts whose far end reports receive times tell a [`Report`] per packet besides, in the order of
//! sending, before the [`Ack`] of the same news. A retransmission is a packet of its own there.

use crate::units::{Bytes, Duration, Rate, Time};

/// The host's round-trip estimate at the moment of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// The newest sample.
    pub latest: Duration,
    /// Smoothed as in RFC 6298 §2 (weight 1/8).
    pub smoothed: Duration,
    /// The lowest sample of the connection so far.
    pub min: Duration,
}

/// A packet that counts towards the window has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Departure time.
    pub now: Time,
    /// Size of the packet.
    pub bytes: Bytes,
    /// Bytes in flight, this packet included.
    pub in_flight: Bytes,
}

/// One acknowledgment arrived; it may cover many packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Arrival time of the acknowledgment.
    pub now: Time,
    /// When the newest packet it newly covers was sent.
    pub sent_at: Time,
    /// Bytes newly acknowledged. Count these, not ACKs: one ACK may cover fifty packets.
    pub acked: Bytes,
    /// Bytes still in flight, the acknowledged ones taken away.
    pub in_flight: Bytes,
    /// The peer's advertised receive window, where the transport has one.
    pub peer_window: Option<Bytes>,
    /// Round-trip estimate, this ACK's sample included.
    pub rtt: Rtt,
    /// Delivery-rate sample of the newest packet (draft-cheng-iccrg-delivery-rate-estimation §3),
    /// absent while there is nothing to measure.
    pub delivery_rate: Option<Rate>,
    /// First ACK of a packet sent after the previous round began: one per packet-timed round trip.
    pub round_start: bool,
    /// The sampled packet left while the application, not the window, was the limit.
    pub app_limited: bool,
}

/// What a controller takes a loss for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Bit errors, fading: the rate was not too high.
    Random,
    /// A queue overflowed, or a router marked the packet.
    Congestion,
}

/// How a loss was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Later packets arrived and this one did not.
    Gap,
    /// Nothing arrived for a timeout.
    Timeout,
    /// The path marked packets instead of dropping them (RFC 3168, RFC 9002 §7.1).
    Ecn,
}

/// Packets were declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When the loss was declared.
    pub now: Time,
    /// When the newest lost packet was sent.
    pub sent_at: Time,
    /// Bytes declared lost; zero for [`Signal::Ecn`].
    pub lost: Bytes,
    /// Bytes still in flight, the lost ones taken away.
    pub in_flight: Bytes,
    /// Round-trip estimate.
    pub rtt: Rtt,
    /// How it was noticed.
    pub signal: Signal,
    /// The lost packet was sent after the previous reduction: a new recovery episode
    /// (RFC 9002 §7.3.2). A window is cut at most once per episode.
    pub new_episode: bool,
}

/// What became of one packet, as the far end reported it: exactly once per packet, in the order of
/// sending. A packet is told as lost once three sent later have arrived (RFC 9002 §6.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// When the report was taken in.
    pub now: Time,
    /// When the packet left.
    pub sent_at: Time,
    /// When it arrived, on the receiver's clock, moved so that it never lies before `sent_at`: only
    /// differences mean anything. Nothing if it was lost.
    pub received_at: Option<Time>,
    /// Size of the packet.
    pub bytes: Bytes,
    /// The train it belonged to, by [`Train::number`].
    pub train: Option<u32>,
}

/// Packets that are to leave as one train, so that their spacing at the receiver tells of the path.
/// They are ordinary data. The average pace stays as it was: after a train the host waits as long as
/// its packets would have taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// The controller's own number for it.
    pub number: u32,
    /// How many packets, at least two to be of any use. It ends sooner when window or data end.
    pub packets: u32,
    /// Pace inside the train; nothing for back to back.
    pub pace: Option<Rate>,
    /// How the last of its packets leave, if not like the others.
    pub trail: Option<Trail>,
}

/// The end of a train: packets that leave one by one, each gap twice as long as the one before, to see what
/// becomes of the queue that the train has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trail {
    /// So many packets of the train leave before, at its pace.
    pub after: u32,
    /// The first gap.
    pub gap: Duration,
}

impl Train {
    /// How long to wait between the packet with this number in the train, counted from 0 and of so many bytes,
    /// and the next one.
    pub fn gap(&self, number: u32, bytes: Bytes) -> Duration {
        match self.trail.filter(|trail| number.saturating_add(1) >= trail.after) {
            Some(trail) => trail.gap.saturating_mul(1 << (number + 1 - trail.after).min(16)),
            None => self.pace.unwrap_or(Rate::MAX).time_for(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gaps_of_a_trail_double_behind_a_burst() {
        let gap = Duration::from_micros(10);
        let trail = Some(Trail { after: 3, gap });
        let train = Train { number: 1, packets: 6, pace: None, trail };
        let gaps: Vec<Duration> = (0..5).map(|number| train.gap(number, Bytes(1500))).collect();
        assert_eq!(gaps[2..], [gap, gap * 2, gap * 4]);
        assert!(gaps[..2].iter().all(|gap| gap.as_nanos() < 1000), "{gaps:?}");
    }
}
