//! What a controller hears. Hosts compute `new_episode`, `round_start` and `delivery_rate` with
//! [`crate::parts`], so that no controller repeats them and all hosts agree.

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
