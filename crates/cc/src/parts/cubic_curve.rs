//! The curve of CUBIC, RFC 9438 §4.2: `W(t) = C (t - K)³ + W_max`, in segments and seconds.

use crate::units::Duration;

/// A cubic that starts at a window, levels off at `W_max` after K seconds and rises again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubicCurve {
    scale: f64,
    plateau: f64,
    k: f64,
}

impl CubicCurve {
    /// A curve through `start` segments at time zero with its plateau at `w_max` segments, steepness
    /// C = `scale` segments per second cubed. A start above the plateau is its own plateau.
    /// K = cbrt((W_max - start) / C), RFC 9438 figure 2.
    pub fn new(start: f64, w_max: f64, scale: f64) -> Self {
        let plateau = w_max.max(start);
        let k = libm::cbrt((plateau - start).max(0.0) / scale);
        CubicCurve { scale, plateau, k: if k.is_finite() { k } else { 0.0 } }
    }

    /// The window, in segments, `t` after the start.
    pub fn at(&self, t: Duration) -> f64 {
        let x = t.as_secs_f64() - self.k;
        self.scale * x * x * x + self.plateau
    }

    /// K: seconds from the start to the plateau.
    pub fn k(&self) -> f64 {
        self.k
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_passes_its_start_its_plateau_and_k() {
        // W_max 1000, beta 0.7: K = cbrt(300 / 0.4) = 9.0856 s.
        let curve = CubicCurve::new(700.0, 1000.0, 0.4);
        assert!((curve.k() - 9.0856).abs() < 1e-4, "{}", curve.k());
        assert!((curve.at(Duration::ZERO) - 700.0).abs() < 1e-9);
        assert!((curve.at(Duration::from_secs_f64(curve.k())) - 1000.0).abs() < 1e-9);
        assert!((curve.at(Duration::from_secs_f64(2.0 * curve.k())) - 1300.0).abs() < 1e-6);
    }

    #[test]
    fn a_start_above_the_old_maximum_rises_at_once() {
        let curve = CubicCurve::new(500.0, 100.0, 0.4);
        assert_eq!(curve.k(), 0.0);
        assert!((curve.at(Duration::from_secs(10)) - 900.0).abs() < 1e-9);
    }
}
