//! When the next datagram may leave: a token bucket in the controller's rate.

use skyhaul_cc::{Bytes, Duration, Rate, Time};

/// Depth of the bucket in time: what may leave at once after the host woke up late. What does not fit
/// is lost rate, and a busy host is late by milliseconds; 4 ms at 150 Mbit/s are 75 kB, 1.5 % of a GEO
/// queue.
const DEPTH: Duration = Duration::from_millis(4);
/// After a pause so many datagrams may leave at once, whatever the rate: the usual initial window
/// (RFC 9002 §7.7). A small object does not wait for a controller that has not seen the link yet.
const BURST: u64 = 10;
/// A window that was shut lets this many leave at once when it opens, or what [`DEPTH`] allows: acknowledgments open it
/// by many packets, and ten of them are 12 ms of a link of 10 Mbit/s.
const REOPENED: u64 = 2;
/// So many datagrams may be owed: a train, or the burst of a start.
const OWED: u64 = 40;
/// Once the bucket is empty, wait until this much may leave together, so that one system call sends
/// several datagrams: twelve at 150 Mbit/s.
const QUANTUM: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    rate: Rate,
    /// Largest datagram, the least the bucket must hold.
    datagram: Bytes,
    /// What may leave now in billionths of a bit, so that no refill rounds; negative after datagrams
    /// that were not asked about (ACKs, probes).
    tokens: i128,
    refilled: Time,
    /// The bucket ran empty and has not gathered a quantum since.
    gathering: bool,
}

const NANO: i128 = 1_000_000_000;

fn nanobits(bytes: Bytes) -> i128 {
    i128::from(bytes.bits()) * NANO
}

impl Pacer {
    pub(crate) fn new(datagram: Bytes) -> Self {
        Pacer {
            rate: Rate::MAX,
            datagram,
            tokens: nanobits(datagram),
            refilled: Time::ZERO,
            gathering: false,
        }
    }

    /// Sets the rate; tokens gathered so far stay.
    pub(crate) fn set_rate(&mut self, rate: Rate, now: Time) {
        if rate != self.rate {
            self.refill(now);
            self.rate = rate.max(Rate::bit(1));
            self.tokens = self.tokens.min(self.depth());
        }
    }

    fn gain(&self, time: Duration) -> i128 {
        i128::from(self.rate.as_bit()).saturating_mul(i128::try_from(time.as_nanos()).unwrap_or(i128::MAX))
    }

    fn depth(&self) -> i128 {
        self.gain(DEPTH).max(nanobits(self.datagram * BURST))
    }

    /// The window was shut until now: what it has kept back does not leave in a burst.
    pub(crate) fn reopen(&mut self, now: Time) {
        self.refill(now);
        self.tokens = self.tokens.min(self.gain(DEPTH).max(nanobits(self.datagram * REOPENED)));
    }

    fn refill(&mut self, now: Time) {
        self.tokens = self.tokens.saturating_add(self.gain(now - self.refilled)).min(self.depth());
        self.refilled = self.refilled.max(now);
    }

    /// May a datagram leave now?
    pub(crate) fn ready(&mut self, now: Time) -> bool {
        self.refill(now);
        let enough = if self.gathering { self.batch() } else { nanobits(self.datagram) };
        self.gathering = self.tokens < enough;
        !self.gathering
    }

    fn batch(&self) -> i128 {
        self.gain(QUANTUM).max(nanobits(self.datagram)).min(self.depth())
    }

    /// When the next batch may leave.
    pub(crate) fn next(&self) -> Time {
        let missing = self.batch().saturating_sub(self.tokens).max(0);
        let rate = i128::from(self.rate.as_bit());
        let nanos = u64::try_from((missing + rate - 1) / rate).unwrap_or(u64::MAX);
        self.refilled + Duration::from_nanos(nanos)
    }

    /// Bytes left, asked for or not.
    pub(crate) fn spend(&mut self, bytes: Bytes) {
        // Debt is bounded so that a burst of probes cannot silence the channel.
        let most = self.depth().max(nanobits(self.datagram * OWED));
        self.tokens = (self.tokens - nanobits(bytes)).max(-most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_to_a_tenth_of_a_percent_whatever_the_polling() {
        for (mbit, step) in [(1u64, 7_000u64), (10, 130_000), (150, 333), (1000, 900_000)] {
            let rate = Rate::mbit(mbit);
            let mut pacer = Pacer::new(Bytes(1500));
            pacer.set_rate(rate, Time::ZERO);
            let (mut now, mut sent) = (Time::ZERO, Bytes::ZERO);
            while now < Time::from_secs(2) {
                while pacer.ready(now) {
                    pacer.spend(Bytes(1500));
                    sent += Bytes(1500);
                }
                now += Duration::from_nanos(step);
            }
            let ideal = rate.bytes_in(Duration::from_secs(2)).as_f64();
            let slack = BURST as f64 * 1500.0 + rate.bytes_in(DEPTH).as_f64();
            assert!(
                (sent.as_f64() - ideal).abs() <= ideal * 0.001 + slack,
                "{mbit} Mbit/s: {sent} of {ideal}"
            );
        }
    }

    #[test]
    fn whoever_waits_until_next_may_send() {
        let mut pacer = Pacer::new(Bytes(1500));
        pacer.set_rate(Rate::mbit(10), Time::ZERO);
        let mut now = Time::ZERO;
        for _ in 0..1000 {
            while pacer.ready(now) {
                pacer.spend(Bytes(1500));
            }
            let next = pacer.next();
            assert!(next > now);
            now = next;
            assert!(pacer.ready(now), "at {now}");
        }
    }

    #[test]
    fn a_window_that_opens_lets_no_burst_onto_a_thin_link_and_a_pause_lets_one() {
        let leaves = |pacer: &mut Pacer, at| {
            let mut count = 0;
            while pacer.ready(at) {
                pacer.spend(Bytes(1500));
                count += 1;
            }
            count
        };
        for (mbit, shut, paused) in [(1, REOPENED, BURST), (10, 3, BURST), (150, 50, 50)] {
            let mut pacer = Pacer::new(Bytes(1500));
            pacer.set_rate(Rate::mbit(mbit), Time::ZERO);
            leaves(&mut pacer, Time::ZERO);
            pacer.reopen(Time::from_secs(1));
            assert_eq!(leaves(&mut pacer, Time::from_secs(1)), shut, "{mbit} Mbit/s");
            assert_eq!(leaves(&mut pacer, Time::from_secs(2)), paused, "{mbit} Mbit/s");
        }
    }

    #[test]
    fn a_burst_of_a_start_is_paid_for_by_silence() {
        let mut pacer = Pacer::new(Bytes(1500));
        pacer.set_rate(Rate::mbit(10), Time::ZERO);
        let burst = Bytes(1500) * 32;
        (0..32).for_each(|_| pacer.spend(Bytes(1500)));
        assert!(!pacer.ready(Time::ZERO + Rate::mbit(10).time_for(burst - Bytes(1500))));
        assert!(pacer.ready(Time::ZERO + Rate::mbit(10).time_for(burst)));
    }
}
