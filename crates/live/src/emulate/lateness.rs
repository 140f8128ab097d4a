//! How late the emulator itself is, and how much of the processors the hypervisor took away meanwhile.

use serde::Serialize;
use skyhaul_cc::units::Share;
use std::fmt;
use std::fs;
use std::time::Duration;

/// Times between the moment a packet should have left the link and the moment it did.
#[derive(Clone)]
pub struct Histogram {
    /// One bucket per microsecond; the last one holds everything beyond.
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

/// What a [`Histogram`] says in three numbers. All zero when nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lateness {
    /// Half of the packets were late by no more than this.
    #[serde(rename = "p50_us", serialize_with = "micros")]
    pub p50: Duration,
    /// 99 of 100 packets were late by no more than this.
    #[serde(rename = "p99_us", serialize_with = "micros")]
    pub p99: Duration,
    /// The latest packet.
    #[serde(rename = "max_us", serialize_with = "micros")]
    pub max: Duration,
}

/// Lateness beyond this is known by its maximum only. Ten times what makes a run invalid.
const RANGE_US: usize = 10_000;

impl Histogram {
    /// Nothing measured yet.
    pub fn new() -> Histogram {
        Histogram { buckets: vec![0; RANGE_US + 1], count: 0, max: Duration::ZERO }
    }

    /// Takes note of one packet.
    pub fn record(&mut self, late: Duration) {
        let bucket = (late.as_micros() as usize).min(RANGE_US);
        self.buckets[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(late);
    }

    /// The three numbers, quantiles rounded up to a microsecond.
    pub fn summary(&self) -> Lateness {
        Lateness { p50: self.quantile(50), p99: self.quantile(99), max: self.max }
    }

    fn quantile(&self, percent: u64) -> Duration {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (us, packets) in self.buckets[..RANGE_US].iter().enumerate() {
            seen += packets;
            if seen >= wanted && seen > 0 {
                return Duration::from_micros(us as u64 + 1).min(self.max);
            }
        }
        self.max
    }
}

impl fmt::Display for Lateness {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(out, "half {:.3} ms, p99 {:.3} ms, max {:.3} ms", ms(self.p50), ms(self.p99), ms(self.max))
    }
}

/// Serializes a time as whole microseconds.
pub fn micros<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(time.as_micros() as u64)
}

/// The kernel's count of processor time, to tell how much of it the hypervisor stole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    total: u64,
    stolen: u64,
}

impl ProcessorTime {
    /// The count so far; zero where the kernel does not show it.
    pub fn now() -> ProcessorTime {
        fs::read_to_string("/proc/stat").ok().and_then(|text| ProcessorTime::parse(&text)).unwrap_or_default()
    }

    /// The part of the time since `earlier`, all processors together, that was stolen.
    pub fn stolen_since(self, earlier: ProcessorTime) -> Share {
        let total = self.total.saturating_sub(earlier.total);
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        Share::new(stolen as f64 / total.max(1) as f64).unwrap_or(Share::ZERO)
    }

    /// First line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, then guest times that
    /// are part of user and nice: proc(5).
    fn parse(text: &str) -> Option<ProcessorTime> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(ProcessorTime { total: ticks.iter().sum(), stolen: *ticks.get(7)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_one_to_a_hundred_microseconds_are_what_one_counts() {
        let mut histogram = Histogram::new();
        for us in (1..=100).rev() {
            histogram.record(Duration::from_nanos(us * 1000 - 1));
        }
        let Lateness { p50, p99, max } = histogram.summary();
        assert_eq!((p50.as_micros(), p99.as_micros()), (50, 99));
        assert_eq!(max.as_nanos(), 99_999);
    }

    #[test]
    fn one_packet_in_a_hundred_may_be_late_before_p99_says_so() {
        let mut histogram = Histogram::new();
        for _ in 0..99 {
            histogram.record(Duration::from_micros(20));
        }
        histogram.record(Duration::from_millis(50));
        assert!(histogram.summary().p99 < Duration::from_micros(22), "{:?}", histogram.summary());
        histogram.record(Duration::from_millis(50));
        assert_eq!(histogram.summary().p99, Duration::from_millis(50));
    }

    #[test]
    fn nothing_measured_is_zero() {
        assert_eq!(Histogram::new().summary(), Lateness::default());
    }

    #[test]
    fn stolen_time_is_a_share_of_all_processors_and_guest_time_is_not_counted_twice() {
        let before = ProcessorTime::parse("cpu  100 0 0 100 0 0 0 0 50 0\ncpu0 1\n").unwrap();
        let after = ProcessorTime::parse("cpu  180 0 0 110 0 0 0 10 120 0\n").unwrap();
        assert_eq!(after.stolen_since(before), Share::new(0.1).unwrap());
        assert_eq!(before.stolen_since(before), Share::ZERO);
        assert_eq!(ProcessorTime::parse("cpu 1 2 three"), None);
    }
}
