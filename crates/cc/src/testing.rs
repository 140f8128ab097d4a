//! Events for the unit tests of controllers: times in milliseconds, amounts in segments.

use crate::event::{Ack, Loss, Rtt, Signal};
use crate::units::{Bytes, Duration, Time};

pub(crate) const MSS: Bytes = Bytes(1500);
/// A geostationary round trip.
pub(crate) const RTT: Duration = Duration::from_millis(540);

pub(crate) fn rtt(rtt: Duration) -> Rtt {
    Rtt { latest: rtt, smoothed: rtt, min: rtt }
}

pub(crate) fn ack(now: u64, sent_at: u64, segments: u64) -> Ack {
    Ack {
        now: Time::from_millis(now),
        sent_at: Time::from_millis(sent_at),
        acked: MSS * segments,
        in_flight: Bytes::ZERO,
        peer_window: None,
        rtt: rtt(RTT),
        delivery_rate: None,
        round_start: false,
        app_limited: false,
    }
}

pub(crate) fn loss(now: u64, sent_at: u64, signal: Signal, new_episode: bool) -> Loss {
    Loss {
        now: Time::from_millis(now),
        sent_at: Time::from_millis(sent_at),
        lost: MSS,
        in_flight: Bytes::ZERO,
        rtt: rtt(RTT),
        signal,
        new_episode,
    }
}
