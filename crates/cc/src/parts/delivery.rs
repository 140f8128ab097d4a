//! Delivery rate, draft-cheng-iccrg-delivery-rate-estimation-00: what a host keeps per packet when
//! it leaves, and the sample it gets when packets are acknowledged.
//!
//! A host calls [`on_sent`](DeliveryEstimator::on_sent) for each packet and keeps the answer beside
//! its own record, [`on_packet_acked`](DeliveryEstimator::on_packet_acked) for each packet an ACK
//! newly covers, and [`end_of_ack`](DeliveryEstimator::end_of_ack) once when the ACK is done.

use crate::units::{Bytes, Duration, Rate, Time};

/// The connection's state when a packet left; kept by the host with the packet (§3.2 of the draft).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketState {
    /// P.delivered: bytes delivered when the packet left.
    pub delivered: Bytes,
    /// P.delivered_time: when that count was last raised.
    pub delivered_time: Time,
    /// P.first_sent_time: departure of the packet whose delivery raised it.
    pub first_sent_time: Time,
    /// P.is_app_limited: the application, not the window, was the limit.
    pub app_limited: bool,
}

/// What one ACK tells about the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeliverySample {
    /// Delivered bytes over the longer of the sending and the acknowledging interval; absent when
    /// the ACK covered nothing new or the interval is shorter than the least round trip.
    pub rate: Option<Rate>,
    /// The sampled packet left while the application was the limit: the rate is a lower bound.
    pub app_limited: bool,
    /// Departure of the newest packet the ACK covered.
    pub newest_sent_at: Option<Time>,
}

/// The connection's side of the estimate (C.* in the draft).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryEstimator {
    delivered: Bytes,
    delivered_time: Time,
    first_sent_time: Time,
    /// C.app_limited: samples are marked until this many bytes are delivered; zero when not limited.
    app_limited_until: Bytes,
    /// The newest packet of the ACK under way.
    newest: Option<(Time, PacketState)>,
}

impl DeliveryEstimator {
    /// Nothing sent yet.
    pub fn new() -> Self {
        DeliveryEstimator::default()
    }

    /// A packet leaves at `now` while `in_flight` bytes, this packet not counted, are unacknowledged.
    /// After idleness (nothing in flight) a new interval begins, so that silence is not measured.
    pub fn on_sent(&mut self, now: Time, in_flight: Bytes) -> PacketState {
        if in_flight == Bytes::ZERO {
            self.first_sent_time = now;
            self.delivered_time = now;
        }
        PacketState {
            delivered: self.delivered,
            delivered_time: self.delivered_time,
            first_sent_time: self.first_sent_time,
            app_limited: self.app_limited_until > Bytes::ZERO,
        }
    }

    /// The application has nothing more to send although the window is open (§3.4): samples are
    /// marked until everything now in flight is delivered. `in_flight` counts bytes unacknowledged.
    pub fn mark_app_limited(&mut self, in_flight: Bytes) {
        // At least one byte: zero means "not limited".
        self.app_limited_until = (self.delivered + in_flight).max(Bytes(1));
    }

    /// A packet of `bytes` that left at `sent_at` with `state` was newly acknowledged at `now`.
    pub fn on_packet_acked(&mut self, state: &PacketState, bytes: Bytes, now: Time, sent_at: Time) {
        self.delivered += bytes;
        self.delivered_time = now.max(self.delivered_time);
        let newer = self.newest.is_none_or(|(at, old)| (sent_at, state.delivered) >= (at, old.delivered));
        if newer {
            self.newest = Some((sent_at, *state));
        }
    }

    /// The ACK is complete: the sample of its newest packet. `min_rtt`, where known, throws away
    /// samples over less than a round trip (§3.3: they come from spurious retransmissions).
    pub fn end_of_ack(&mut self, min_rtt: Option<Duration>) -> DeliverySample {
        if self.app_limited_until > Bytes::ZERO && self.delivered > self.app_limited_until {
            self.app_limited_until = Bytes::ZERO;
        }
        let Some((sent_at, state)) = self.newest.take() else {
            return DeliverySample::default();
        };
        self.first_sent_time = self.first_sent_time.max(sent_at);
        let send_elapsed = sent_at.since(state.first_sent_time);
        let ack_elapsed = self.delivered_time.since(state.delivered_time);
        let interval = send_elapsed.max(ack_elapsed);
        let too_short = interval.is_zero() || min_rtt.is_some_and(|rtt| interval < rtt);
        let rate = (!too_short).then(|| (self.delivered - state.delivered).per(interval));
        DeliverySample { rate, app_limited: state.app_limited, newest_sent_at: Some(sent_at) }
    }

    /// Bytes delivered so far (C.delivered).
    pub fn delivered(&self) -> Bytes {
        self.delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(540);
    const SIZE: Bytes = Bytes(1500);

    /// Packets every `gap` for `count`, acknowledged `per_ack` at a time when the last of them has
    /// arrived; returns the samples.
    fn steady(gap: Duration, count: usize, per_ack: usize, min_rtt: Option<Duration>) -> Vec<DeliverySample> {
        let mut estimator = DeliveryEstimator::new();
        let mut sent: Vec<(Time, PacketState)> = Vec::new();
        let mut samples = Vec::new();
        let (mut acked, mut now) = (0, Time::ZERO);
        for _ in 0..count {
            while acked + per_ack <= sent.len() && sent[acked + per_ack - 1].0 + RTT <= now {
                let at = sent[acked + per_ack - 1].0 + RTT;
                for (sent_at, state) in &sent[acked..acked + per_ack] {
                    estimator.on_packet_acked(state, SIZE, at, *sent_at);
                }
                acked += per_ack;
                samples.push(estimator.end_of_ack(min_rtt));
            }
            let in_flight = SIZE * (sent.len() - acked) as u64;
            sent.push((now, estimator.on_sent(now, in_flight)));
            now += gap;
        }
        samples
    }

    #[test]
    fn a_steady_stream_is_measured_at_its_rate_however_acks_are_bundled() {
        let gap = Rate::mbit(150).time_for(SIZE);
        for per_ack in [1, 2, 25, 50] {
            let samples = steady(gap, 20_000, per_ack, Some(RTT));
            let rate = samples.last().and_then(|s| s.rate).unwrap().as_mbit();
            assert!((rate - 150.0).abs() < 0.2, "{per_ack} per ACK: {rate} Mbit/s");
        }
    }

    #[test]
    fn no_sample_exceeds_the_sending_rate_even_when_acks_are_compressed() {
        // Twenty packets 10 ms apart; all ACKs arrive within 1 ms.
        let mut estimator = DeliveryEstimator::new();
        let sent: Vec<_> = (0..20u64)
            .map(|i| (Time::from_millis(i * 10), estimator.on_sent(Time::from_millis(i * 10), SIZE * i)))
            .collect();
        for (i, (at, state)) in sent.iter().enumerate() {
            estimator.on_packet_acked(state, SIZE, Time::from_micros(740_000 + i as u64 * 50), *at);
            let sample = estimator.end_of_ack(None);
            if i > 0 {
                let rate = sample.rate.unwrap();
                assert!(rate <= SIZE.per(Duration::from_millis(10)), "packet {i}: {rate}");
            }
        }
    }

    #[test]
    fn idleness_is_not_measured() {
        let mut estimator = DeliveryEstimator::new();
        let first = estimator.on_sent(Time::ZERO, Bytes::ZERO);
        estimator.on_packet_acked(&first, SIZE, Time::ZERO + RTT, Time::ZERO);
        estimator.end_of_ack(None);
        let later = Time::from_secs(60);
        let second = estimator.on_sent(later, Bytes::ZERO);
        estimator.on_packet_acked(&second, SIZE, later + RTT, later);
        assert_eq!(estimator.end_of_ack(None).rate, Some(SIZE.per(RTT)));
    }

    #[test]
    fn samples_are_marked_until_what_was_in_flight_when_the_application_paused_is_delivered() {
        let mut estimator = DeliveryEstimator::new();
        let plain = estimator.on_sent(Time::ZERO, Bytes::ZERO);
        estimator.mark_app_limited(SIZE);
        let marked = estimator.on_sent(Time::from_millis(1), SIZE);
        assert!(!plain.app_limited && marked.app_limited);
        estimator.on_packet_acked(&plain, SIZE, Time::from_millis(540), Time::ZERO);
        estimator.on_packet_acked(&marked, SIZE, Time::from_millis(540), Time::from_millis(1));
        assert!(estimator.end_of_ack(None).app_limited);
        assert!(!estimator.on_sent(Time::from_millis(541), Bytes::ZERO).app_limited);
    }

    #[test]
    fn a_sample_shorter_than_the_least_round_trip_is_thrown_away() {
        let mut estimator = DeliveryEstimator::new();
        let state = estimator.on_sent(Time::ZERO, Bytes::ZERO);
        estimator.on_packet_acked(&state, SIZE, Time::from_millis(20), Time::ZERO);
        assert_eq!(estimator.end_of_ack(Some(RTT)).rate, None);
        assert_eq!(estimator.end_of_ack(Some(RTT)), DeliverySample::default());
    }
}
