//! Durations times factors, without the panics of the standard library.

use crate::units::Duration;

/// `span` times `factor`: the longest duration when that is too long, zero for a negative factor or
/// not-a-number.
pub fn scaled(span: Duration, factor: f64) -> Duration {
    let seconds = span.as_secs_f64() * factor;
    if seconds > 0.0 {
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    } else {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_factors_saturate() {
        assert_eq!(scaled(Duration::from_secs(10), 0.5), Duration::from_secs(5));
        for (factor, expected) in [
            (f64::NAN, Duration::ZERO),
            (-1.0, Duration::ZERO),
            (1e300, Duration::MAX),
            (f64::INFINITY, Duration::MAX),
        ] {
            assert_eq!(scaled(Duration::from_secs(10), factor), expected, "{factor}");
        }
        assert_eq!(scaled(Duration::MAX, 2.0), Duration::MAX);
    }
}
