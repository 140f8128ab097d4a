//! Segments of ours that wait in queues, the measure of Vegas, Veno and SCPS-TP.

use crate::units::Duration;

/// `W (RTT - BaseRTT) / RTT`: of a window of `window` segments, those that are not on the wire but in a
/// queue, as told by a round trip and the least one. Between zero and `window`; a round trip of zero
/// tells of no queue.
pub fn backlog(window: f64, base: Duration, rtt: Duration) -> f64 {
    if rtt.is_zero() {
        return 0.0;
    }
    window * (rtt.saturating_sub(base).as_secs_f64() / rtt.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_tenth_of_the_round_trip_in_queues_is_a_tenth_of_the_window() {
        assert!((backlog(100.0, MS(540), MS(600)) - 10.0).abs() < 1e-9);
        assert_eq!(backlog(100.0, MS(540), MS(540)), 0.0);
    }

    #[test]
    fn odd_round_trips_stay_within_the_window() {
        for (base, rtt) in [(0, 0), (540, 0), (540, 100), (0, 540)] {
            let n = backlog(100.0, MS(base), MS(rtt));
            assert!((0.0..=100.0).contains(&n), "{base}, {rtt}: {n}");
        }
        assert!(backlog(100.0, Duration::ZERO, Duration::MAX) <= 100.0);
    }
}
