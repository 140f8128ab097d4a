//! Quantities with their units: bytes, bit rates, times, shares, bit error rates.
//!
//! Everything is checked or saturating; nothing here wraps or panics on large values. This is the only
//! file of the project that multiplies or divides by eight.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use std::str::FromStr;

pub use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// An amount of data. 1 MB is 10⁶ bytes, 1 MiB is 2²⁰ bytes. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A bit rate in bit/s. Whoever names one says which bytes it counts: payload, IP or wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// A moment: nanoseconds since the host's start. Unlike `Instant` it can be stored and replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A probability or a fraction between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Share(f64);

/// A bit error rate between 0 and 1, errors independent.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Ber(f64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);
    /// More than any transfer has.
    pub const MAX: Bytes = Bytes(u64::MAX);

    /// `n` KiB (1024 bytes).
    pub const fn kib(n: u64) -> Self {
        Bytes(n.saturating_mul(1 << 10))
    }
    /// `n` MiB (2²⁰ bytes).
    pub const fn mib(n: u64) -> Self {
        Bytes(n.saturating_mul(1 << 20))
    }
    /// As a float, for windows.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// Nearest whole number of bytes; negative and not-a-number become zero.
    pub fn from_f64(bytes: f64) -> Self {
        Bytes(bytes.round() as u64)
    }
    /// Number of bits, saturating.
    pub fn bits(self) -> u64 {
        self.0.saturating_mul(8)
    }
    /// The smaller amount left after taking `other` away, zero if there is none.
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
    /// The rate that moves these bytes in `time`; the greatest rate for a zero time.
    pub fn per(self, time: Duration) -> Rate {
        let nanos = time.as_nanos();
        if nanos == 0 {
            return Rate::MAX;
        }
        Rate(clamp_u128(u128::from(self.0) * 8 * NANOS_PER_SECOND / nanos))
    }
}

impl Rate {
    /// Nothing moves.
    pub const ZERO: Rate = Rate(0);
    /// Faster than any link.
    pub const MAX: Rate = Rate(u64::MAX);

    /// `n` bit/s.
    pub const fn bit(n: u64) -> Self {
        Rate(n)
    }
    /// `n` kbit/s (10³ bit/s).
    pub const fn kbit(n: u64) -> Self {
        Rate(n.saturating_mul(1_000))
    }
    /// `n` Mbit/s (10⁶ bit/s).
    pub const fn mbit(n: u64) -> Self {
        Rate(n.saturating_mul(1_000_000))
    }
    /// From bytes per second, as the kernel and many libraries count.
    pub fn from_bytes_per_second(n: u64) -> Self {
        Rate(n.saturating_mul(8))
    }
    /// In bit/s.
    pub const fn as_bit(self) -> u64 {
        self.0
    }
    /// In bit/s.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
    /// In Mbit/s.
    pub fn as_mbit(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// In bytes per second, rounded down.
    pub const fn bytes_per_second(self) -> u64 {
        self.0 / 8
    }
    /// Nearest whole bit/s; negative and not-a-number become zero.
    pub fn from_f64(bit_per_s: f64) -> Self {
        Rate(bit_per_s.round() as u64)
    }
    /// This rate times a factor; negative factors give zero.
    pub fn scale(self, factor: f64) -> Self {
        Rate::from_f64(self.as_f64() * factor)
    }
    /// What moves in `time`, rounded down.
    pub fn bytes_in(self, time: Duration) -> Bytes {
        Bytes(clamp_u128(u128::from(self.0).saturating_mul(time.as_nanos()) / (8 * NANOS_PER_SECOND)))
    }
    /// How long `bytes` take, rounded up to a nanosecond; the longest duration at rate zero.
    pub fn time_for(self, bytes: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = (u128::from(bytes.0) * 8 * NANOS_PER_SECOND).div_ceil(u128::from(self.0));
        Duration::from_nanos(clamp_u128(nanos))
    }
    /// Bandwidth-delay product of this rate and a round trip.
    pub fn bdp(self, rtt: Duration) -> Bytes {
        self.bytes_in(rtt)
    }
}

impl Time {
    /// The start.
    pub const ZERO: Time = Time(0);
    /// Never.
    pub const MAX: Time = Time(u64::MAX);

    /// `n` nanoseconds after the start.
    pub const fn from_nanos(n: u64) -> Self {
        Time(n)
    }
    /// `n` microseconds after the start.
    pub const fn from_micros(n: u64) -> Self {
        Time(n.saturating_mul(1_000))
    }
    /// `n` milliseconds after the start.
    pub const fn from_millis(n: u64) -> Self {
        Time(n.saturating_mul(1_000_000))
    }
    /// `n` seconds after the start.
    pub const fn from_secs(n: u64) -> Self {
        Time(n.saturating_mul(1_000_000_000))
    }
    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Seconds since the start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// Time passed since `earlier`, zero if that lies ahead.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
    /// Time passed since the start.
    pub fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl Share {
    /// Nothing.
    pub const ZERO: Share = Share(0.0);
    /// Everything.
    pub const ONE: Share = Share(1.0);

    /// A share, if `value` lies in 0..=1.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Share(value))
    }
    /// The plain number between 0 and 1.
    pub fn value(self) -> f64 {
        self.0
    }
    /// In per cent.
    pub fn percent(self) -> f64 {
        self.0 * 100.0
    }
}

impl Ber {
    /// No errors.
    pub const ZERO: Ber = Ber(0.0);

    /// A bit error rate, if `value` lies in 0..=1.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Ber(value))
    }
    /// The plain number.
    pub fn value(self) -> f64 {
        self.0
    }
    /// Probability that a packet of this size has at least one bit wrong: 1-(1-BER)^bits.
    pub fn packet_error(self, packet: Bytes) -> Share {
        self.error_among(packet.bits())
    }
    /// Probability that at least one of `trials` is wrong, whatever this is the error rate of: 1-(1-rate)^trials.
    pub fn error_among(self, trials: u64) -> Share {
        if self.0 >= 1.0 {
            return if trials == 0 { Share::ZERO } else { Share::ONE };
        }
        // ln1p and expm1 keep the digits of 1e-9 that 1-(1-x)^n loses.
        let log_survival = trials as f64 * libm::log1p(-self.0);
        Share((-libm::expm1(log_survival)).clamp(0.0, 1.0))
    }
}

fn clamp_u128(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}
impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        self.saturating_sub(other)
    }
}
impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}
impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, n: u64) -> Bytes {
        Bytes(self.0.saturating_mul(n))
    }
}
impl Div<u64> for Bytes {
    type Output = Bytes;
    fn div(self, n: u64) -> Bytes {
        Bytes(self.0 / n)
    }
}
impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}
impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(clamp_u128(d.as_nanos())))
    }
}
impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}
impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, d: Duration) -> Time {
        Time(self.0.saturating_sub(clamp_u128(d.as_nanos())))
    }
}
impl Sub<Time> for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        for (step, unit) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if n >= step && n.is_multiple_of(step) {
                return write!(f, "{} {unit}", n / step);
            }
        }
        for (step, unit) in [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")] {
            if n >= step && n.is_multiple_of(step) {
                return write!(f, "{} {unit}", n / step);
            }
        }
        write!(f, "{n} B")
    }
}
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        for (step, unit) in [(1_000_000_000u64, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")] {
            if n >= step {
                return write!(f, "{} {unit}", n as f64 / step as f64);
            }
        }
        write!(f, "{n} bit/s")
    }
}
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.percent())
    }
}
impl fmt::Display for Ber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:e}", self.0)
    }
}
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_secs_f64())
    }
}

/// A quantity that could not be read: what was found and what would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseUnitError {
    found: String,
    wanted: &'static str,
}

impl fmt::Display for ParseUnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found \"{}\", expected {}", self.found, self.wanted)
    }
}
impl std::error::Error for ParseUnitError {}

/// Splits "150 Mbit/s" or "150Mbit/s" into number and unit.
fn number_and_unit<'a>(text: &'a str, wanted: &'static str) -> Result<(f64, &'a str), ParseUnitError> {
    let error = || ParseUnitError { found: text.to_owned(), wanted };
    let trimmed = text.trim();
    // "1e-6" is a number and "5 e" is not: the exponent belongs to the number if digits follow it.
    let end = (1..=trimmed.len())
        .rev()
        .find(|&end| trimmed.is_char_boundary(end) && trimmed[..end].parse::<f64>().is_ok())
        .ok_or_else(error)?;
    let number: f64 = trimmed[..end].parse().map_err(|_| error())?;
    if !number.is_finite() || number < 0.0 {
        return Err(error());
    }
    Ok((number, trimmed[end..].trim()))
}

impl FromStr for Bytes {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = "an amount of data such as \"64 MiB\", \"5 MB\" or \"1500 B\"";
        let (number, unit) = number_and_unit(text, wanted)?;
        let step = match unit {
            "" | "B" => 1.0,
            "kB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            "KiB" => 1024.0,
            "MiB" => 1_048_576.0,
            "GiB" => 1_073_741_824.0,
            _ => return Err(ParseUnitError { found: text.to_owned(), wanted }),
        };
        Ok(Bytes::from_f64(number * step))
    }
}
impl FromStr for Rate {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = "a bit rate with its unit, such as \"150 Mbit/s\"";
        let (number, unit) = number_and_unit(text, wanted)?;
        let step = match unit {
            "bit/s" => 1.0,
            "kbit/s" => 1e3,
            "Mbit/s" => 1e6,
            "Gbit/s" => 1e9,
            _ => return Err(ParseUnitError { found: text.to_owned(), wanted }),
        };
        Ok(Rate::from_f64(number * step))
    }
}
impl FromStr for Share {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = "a share such as \"1.2 %\" or 0.012, between 0 and 1";
        let (number, unit) = number_and_unit(text, wanted)?;
        let value = match unit {
            "" => number,
            "%" => number / 100.0,
            _ => return Err(ParseUnitError { found: text.to_owned(), wanted }),
        };
        Share::new(value).ok_or_else(|| ParseUnitError { found: text.to_owned(), wanted })
    }
}
impl FromStr for Ber {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = "a bit error rate such as \"1e-6\", between 0 and 1";
        let (number, unit) = number_and_unit(text, wanted)?;
        let found = || ParseUnitError { found: text.to_owned(), wanted };
        if !unit.is_empty() {
            return Err(found());
        }
        Ber::new(number).ok_or_else(found)
    }
}

/// Reads a duration such as "270 ms", "1.5 s" or "25 us".
///
/// # Errors
/// When number or unit is missing, unknown or out of range.
pub fn parse_duration(text: &str) -> Result<Duration, ParseUnitError> {
    let wanted = "a time with its unit, such as \"270 ms\"";
    let (number, unit) = number_and_unit(text, wanted)?;
    let error = || ParseUnitError { found: text.to_owned(), wanted };
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(error()),
    } * number;
    Duration::try_from_secs_f64(seconds).map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_their_units() {
        assert_eq!("150 Mbit/s".parse(), Ok(Rate::mbit(150)));
        assert_eq!("1.5Gbit/s".parse(), Ok(Rate::mbit(1500)));
        assert_eq!("64 MiB".parse(), Ok(Bytes::mib(64)));
        assert_eq!("512MiB".parse(), Ok(Bytes::mib(512)));
        assert_eq!("1.2 %".parse::<Share>().map(Share::value), Ok(0.012));
        assert_eq!("1e-6".parse::<Ber>().map(Ber::value), Ok(1e-6));
        assert_eq!(parse_duration("270 ms"), Ok(Duration::from_millis(270)));
    }

    #[test]
    fn a_rate_without_unit_is_refused_with_what_would_do() {
        let error = "150".parse::<Rate>().unwrap_err().to_string();
        assert!(error.contains("found \"150\"") && error.contains("150 Mbit/s"), "{error}");
    }

    #[test]
    fn ten_megabit_carry_a_full_packet_in_1200_microseconds() {
        assert_eq!(Rate::mbit(10).time_for(Bytes(1500)), Duration::from_micros(1200));
        assert_eq!(Rate::mbit(10).bytes_in(Duration::from_micros(1200)), Bytes(1500));
        assert_eq!(Bytes(1500).per(Duration::from_micros(1200)), Rate::mbit(10));
    }

    #[test]
    fn a_bit_error_rate_of_one_in_a_million_loses_1_19_percent_of_full_packets() {
        let per = Ber::new(1e-6).unwrap().packet_error(Bytes(1500)).value();
        assert!((per - 0.01193).abs() < 1e-5, "{per}");
    }
}
