//! Means, medians and intervals for the numbers we report.

use skyhaul_cc::units::Share;

/// A range, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` lies inside.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    Some(values.iter().sum::<f64>() / values.len() as f64)
}

/// Standard deviation of the population the values are a sample of (n-1); `None` below two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Jain's index of fairness: 1 for equal shares, 1/n if one of n has everything; `None` of nothing (Jain, Chiu and
/// Hawe 1984).
pub fn jain(shares: &[f64]) -> Option<f64> {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (squares > 0.0).then(|| sum * sum / (squares * shares.len() as f64))
}

/// Middle value, or the mean of the two in the middle; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which the share `q` (0 to 1) of all values lies, on a straight line between neighbours
/// (type 7 of Hyndman and Fan 1996, the usual default); `None` of nothing.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let (low, high) = (sorted.get(below)?, sorted.get(above)?);
    Some(low + (high - low) * (place - place.floor()))
}

/// 95 % confidence interval of the mean of normally distributed values, by Student's t; `None` below two
/// values, because one value says nothing about the spread.
pub fn mean_interval(values: &[f64]) -> Option<Interval> {
    let (mean, deviation) = (mean(values)?, deviation(values)?);
    let half = student(values.len() - 1) * deviation / (values.len() as f64).sqrt();
    Some(Interval { low: mean - half, high: mean + half })
}

/// 95 % confidence interval of a probability of which `hits` in `trials` were seen (Wilson 1927); everything
/// from 0 to 1 without a trial. It holds for few hits and for none, where mean ± deviation does not.
pub fn share_interval(hits: u64, trials: u64) -> Interval {
    if trials == 0 {
        return Interval { low: 0.0, high: 1.0 };
    }
    let (n, p) = (trials as f64, hits.min(trials) as f64 / trials as f64);
    let z2 = NORMAL_975 * NORMAL_975;
    let centre = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = NORMAL_975 / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    Interval { low: (centre - half).max(0.0), high: (centre + half).min(1.0) }
}

/// Whether `hits` in `trials` agree with the probability `expected` within `deviations` standard deviations
/// (and one hit, for the whole numbers).
pub fn agrees(hits: u64, trials: u64, expected: Share, deviations: f64) -> bool {
    let (n, p) = (trials as f64, expected.value());
    (hits as f64 - n * p).abs() <= deviations * (n * p * (1.0 - p)).sqrt() + 1.0
}

/// 97.5 % quantile of Student's t with `freedom` degrees of freedom: two-sided 95 %.
fn student(freedom: usize) -> f64 {
    if let Some(&t) = freedom.checked_sub(1).and_then(|index| STUDENT_975.get(index)) {
        return t;
    }
    // Cornish-Fisher expansion around the normal quantile (Abramowitz and Stegun 26.7.5); six digits here.
    let (z, n) = (NORMAL_975, freedom.max(1) as f64);
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * n)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * n.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * n.powi(3))
}

/// 97.5 % quantile of the normal distribution.
const NORMAL_975: f64 = 1.959_963_984_540_054;

/// Student's t, 97.5 %, for 1 to 30 degrees of freedom (any statistics table).
const STUDENT_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64, error: f64) {
        assert!((found - expected).abs() <= error, "found {found}, expected {expected}");
    }

    #[test]
    fn mean_median_and_deviation_match_known_values() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&values), Some(5.0));
        assert_eq!(median(&values), Some(4.5));
        near(deviation(&values).unwrap(), (32.0f64 / 7.0).sqrt(), 1e-12);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn quantiles_lie_on_the_line_between_neighbours() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 1.0), Some(4.0));
        near(quantile(&values, 0.25).unwrap(), 1.75, 1e-12);
        near(quantile(&values, 0.99).unwrap(), 3.97, 1e-12);
    }

    #[test]
    fn nothing_has_no_mean_and_one_value_no_interval() {
        assert_eq!((mean(&[]), median(&[]), mean_interval(&[1.0])), (None, None, None));
    }

    #[test]
    fn three_runs_get_students_wide_interval() {
        // Mean 10, deviation 1, t(2) = 4.303, half width 4.303 / sqrt(3).
        let interval = mean_interval(&[9.0, 10.0, 11.0]).unwrap();
        near(interval.high, 10.0 + 4.303 / 3f64.sqrt(), 1e-12);
        near(interval.low, 10.0 - 4.303 / 3f64.sqrt(), 1e-12);
    }

    #[test]
    fn students_t_agrees_with_tables_beyond_thirty() {
        near(student(30), 2.042, 1e-3);
        near(student(40), 2.0211, 1e-4);
        near(student(60), 2.0003, 1e-4);
        near(student(120), 1.9799, 1e-4);
    }

    #[test]
    fn wilsons_interval_matches_known_values() {
        let interval = share_interval(10, 100);
        near(interval.low, 0.0552, 1e-4);
        near(interval.high, 0.1744, 1e-4);
        let none = share_interval(0, 20);
        near(none.low, 0.0, 1e-12);
        near(none.high, 0.1611, 1e-4);
        assert!(share_interval(0, 0).contains(0.5));
    }

    #[test]
    fn agreement_allows_for_chance_and_not_for_more() {
        let one_percent = Share::new(0.01).unwrap();
        assert!(agrees(1_030, 100_000, one_percent, 4.0));
        assert!(!agrees(1_300, 100_000, one_percent, 4.0));
    }
}
