//! A congestion window in fractional segments that cannot leave its bounds.

use crate::units::Bytes;

/// The least window, in segments: with one segment a delayed acknowledgment stalls the sender
/// (RFC 9002 §7.2 "minimum congestion window" is two packets).
pub const FLOOR_SEGMENTS: f64 = 2.0;

/// The greatest window, in segments: 2²⁴ segments of 1500 bytes are 25 GB, five times the
/// bandwidth-delay product of 10 Gbit/s over 4 s.
pub const CEILING_SEGMENTS: f64 = 16_777_216.0;

/// A window in fractional segments, kept between [`FLOOR_SEGMENTS`] and a ceiling for any input:
/// what lies outside is moved to the nearer bound, and not-a-number changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    segments: f64,
    ceiling: f64,
}

impl Window {
    /// A window of `segments` below the usual ceiling; not-a-number gives the floor.
    pub fn new(segments: f64) -> Self {
        Window::with_ceiling(segments, CEILING_SEGMENTS)
    }

    /// A window of `segments` that never exceeds `ceiling` segments. A ceiling below the floor, or
    /// not-a-number, becomes the floor.
    pub fn with_ceiling(segments: f64, ceiling: f64) -> Self {
        // `max` of a number and not-a-number is the number.
        let ceiling = FLOOR_SEGMENTS.max(ceiling).min(CEILING_SEGMENTS);
        let mut window = Window { segments: FLOOR_SEGMENTS, ceiling };
        window.set(segments);
        window
    }

    /// A window of `bytes`, in segments of `mss` (a zero `mss` counts as one byte).
    pub fn from_bytes(bytes: Bytes, mss: Bytes) -> Self {
        Window::new(segments(bytes, mss))
    }

    /// The window in segments.
    pub fn segments(self) -> f64 {
        self.segments
    }

    /// The window in bytes, rounded to whole bytes.
    pub fn bytes(self, mss: Bytes) -> Bytes {
        Bytes::from_f64(self.segments * mss.as_f64().max(1.0))
    }

    /// Sets the window in segments.
    pub fn set(&mut self, segments: f64) {
        if !segments.is_nan() {
            self.segments = segments.clamp(FLOOR_SEGMENTS, self.ceiling);
        }
    }

    /// Adds segments; a negative number takes away.
    pub fn grow(&mut self, segments: f64) {
        self.set(self.segments + segments);
    }

    /// Multiplies the window.
    pub fn scale(&mut self, factor: f64) {
        self.set(self.segments * factor);
    }
}

/// `bytes` in segments of `mss` bytes (a zero `mss` counts as one byte).
pub fn segments(bytes: Bytes, mss: Bytes) -> f64 {
    bytes.as_f64() / mss.as_f64().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_input_moves_a_window_out_of_its_bounds(
            start in any::<f64>(), ceiling in any::<f64>(), steps in prop::collection::vec((0..3, any::<f64>()), 0..20)
        ) {
            let mut window = Window::with_ceiling(start, ceiling);
            for (kind, x) in steps {
                match kind {
                    0 => window.set(x),
                    1 => window.grow(x),
                    _ => window.scale(x),
                }
                prop_assert!(window.segments() >= FLOOR_SEGMENTS && window.segments() <= CEILING_SEGMENTS);
                prop_assert!(window.bytes(Bytes(1500)) >= Bytes(3000));
            }
        }
    }

    #[test]
    fn odd_numbers_land_on_the_nearer_bound_and_not_a_number_changes_nothing() {
        let mut window = Window::with_ceiling(10.0, 100.0);
        window.set(f64::NAN);
        assert_eq!(window.segments(), 10.0);
        window.set(f64::INFINITY);
        assert_eq!(window.segments(), 100.0);
        window.set(f64::NEG_INFINITY);
        assert_eq!(window.segments(), 2.0);
        assert_eq!(Window::new(f64::NAN).segments(), 2.0);
        assert_eq!(Window::with_ceiling(50.0, f64::NAN).segments(), 2.0);
    }

    #[test]
    fn bytes_and_segments_convert_both_ways() {
        let window = Window::from_bytes(Bytes(15_000), Bytes(1500));
        assert_eq!(window.segments(), 10.0);
        assert_eq!(window.bytes(Bytes(1500)), Bytes(15_000));
        assert_eq!(Window::from_bytes(Bytes(15_000), Bytes::ZERO).segments(), 15_000.0);
    }
}
