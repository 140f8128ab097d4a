//! Departures at the rate of the link. Pure.

use skyhaul_cc::units::{Bytes, Duration, Rate, Time};

/// Says when the next datagram may leave. Without a rate it always may.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    rate: Option<Rate>,
    /// When the link will have carried what has left so far.
    idle_at: Time,
}

impl Pace {
    /// A pace of so many bits per second, counted in bytes of IP packets.
    pub fn new(rate: Option<Rate>) -> Pace {
        Pace { rate, idle_at: Time::ZERO }
    }

    /// Whether a datagram may leave now.
    pub fn may_send(&self, now: Time) -> bool {
        self.idle_at <= now + AHEAD
    }

    /// When one may leave, if not now.
    pub fn next(&self, now: Time) -> Option<Time> {
        (!self.may_send(now)).then(|| Time::ZERO + self.idle_at.since_start().saturating_sub(AHEAD))
    }

    /// An IP packet of so many bytes leaves.
    pub fn sent(&mut self, now: Time, size: Bytes) {
        if let Some(rate) = self.rate {
            self.idle_at = self.idle_at.max(now) + rate.time_for(size);
        }
    }
}

/// Datagrams may leave so much before the link is free: what a busy host's timers are late. The link's queue holds it,
/// 19 kB at 150 Mbit/s.
const AHEAD: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_leaves_at_the_rate_and_no_faster() {
        let mut pace = Pace::new(Some(Rate::mbit(12)));
        let (mut now, mut sent) = (Time::ZERO, 0);
        while now < Time::from_secs(1) {
            match pace.next(now) {
                Some(at) => now = at,
                None => {
                    pace.sent(now, Bytes(1500));
                    sent += 1;
                }
            }
        }
        // 1000 packets a second, and the millisecond ahead.
        assert!((1000..=1003).contains(&sent), "{sent}");
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let mut pace = Pace::new(Some(Rate::mbit(12)));
        let late = Time::from_secs(100);
        let burst = std::iter::from_fn(|| pace.may_send(late).then(|| pace.sent(late, Bytes(1500))));
        assert!(burst.count() <= 3);
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = Pace::new(None);
        for _ in 0..1000 {
            assert_eq!(pace.next(Time::ZERO), None);
            pace.sent(Time::ZERO, Bytes(1500));
        }
    }
}
