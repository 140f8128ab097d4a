//! Where values lie on an axis, and where its ticks are.

use crate::figure::Scale;

/// An axis from its first to its last value, in places: the value itself, or its decimal logarithm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    log: bool,
    /// The least place.
    pub low: f64,
    /// The greatest place, above the least.
    pub high: f64,
    /// Places with a label.
    pub ticks: Vec<(f64, String)>,
}

/// What an axis has to make room for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// Zero belongs on it: bars begin there.
    pub zero: bool,
    /// Room at both ends, as a share of its length.
    pub room: f64,
    /// How many ticks are good.
    pub ticks: usize,
}

impl Span {
    /// An axis for these values. `ends` are the ends of intervals: there is room for them, but only as much
    /// as leaves the values readable.
    pub fn new(
        scale: &Scale,
        values: impl Iterator<Item = f64>,
        ends: impl Iterator<Item = f64>,
        needs: Needs,
    ) -> Span {
        let log = *scale == Scale::Log;
        let place = |value: f64| place(log, value);
        let (low, high) = match scale {
            Scale::Categories(names) => (-0.5, names.len().max(1) as f64 - 0.5),
            Scale::Linear | Scale::Log => match extremes(values.filter_map(place)) {
                None => (0.0, 1.0),
                Some(inner) => {
                    let ends = extremes(ends.filter_map(place)).unwrap_or(inner);
                    around(log, inner, ends, needs)
                }
            },
        };
        let ticks = match scale {
            Scale::Categories(names) => (0u32..).map(f64::from).zip(names.iter().cloned()).collect(),
            Scale::Linear => even(low, high, needs.ticks),
            Scale::Log => decades(low, high, needs.ticks),
        };
        Span { log, low, high, ticks }
    }

    /// The place of a value; none for what cannot be shown here, such as zero on a logarithmic axis.
    pub fn place(&self, value: f64) -> Option<f64> {
        place(self.log, value)
    }

    /// The place of the end of an interval, which may lie beyond the axis.
    pub fn end(&self, value: f64) -> f64 {
        place(self.log, value).unwrap_or(if value > 0.0 { self.high } else { self.low })
    }

    /// Where bars begin.
    pub fn floor(&self) -> f64 {
        if self.log {
            self.low
        } else {
            0f64.clamp(self.low, self.high)
        }
    }
}

fn place(log: bool, value: f64) -> Option<f64> {
    let place = if log { value.log10() } else { value };
    (place.is_finite() && (!log || value > 0.0)).then_some(place)
}

fn extremes(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |found, value| match found {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

/// The axis around places from `low` to `high`, with room for ends of intervals.
fn around(log: bool, (low, high): (f64, f64), ends: (f64, f64), needs: Needs) -> (f64, f64) {
    let from_zero = !log && low >= 0.0 && (needs.zero || low <= FROM_ZERO * high);
    let to_zero = !log && high <= 0.0 && needs.zero;
    let length = if from_zero { high } else { high - low };
    // One value alone lies in the middle of half a decade, or of as much as it is itself.
    let length = match (length > 0.0, log) {
        (true, _) => length,
        (false, true) => 0.5,
        (false, false) => low.abs().max(1.0),
    };
    let beyond = length
        * match (log, from_zero) {
            (true, _) => BEYOND_LOG,
            (false, true) => BEYOND,
            (false, false) => 1.0,
        };
    let (first, last) = (ends.0.clamp(low - beyond, low), ends.1.clamp(high, high + beyond));
    let room = if log { length.max(0.5) } else { length } * needs.room;
    let first = if from_zero { 0.0 } else { first - room };
    let last = if to_zero { 0.0 } else { last + room };
    if last > first {
        (first, last)
    } else {
        (first, first + length)
    }
}

/// About `wanted` ticks at 1, 2 or 5 times a power of ten.
fn even(low: f64, high: f64, wanted: usize) -> Vec<(f64, String)> {
    let raw = (high - low) / wanted.max(1) as f64;
    let power = raw.log10().floor();
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|times| times * 10f64.powf(power))
        .into_iter()
        .find(|step| *step >= raw * 0.85)
        .unwrap_or(raw);
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let great = low.abs().max(high.abs()) >= GREAT;
    let label = |value: f64| match (value == 0.0, great || digits > MOST_DIGITS) {
        (true, _) => "0".to_owned(),
        (false, true) => exponent(value),
        (false, false) => format!("{value:.digits$}"),
    };
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).take(MOST_TICKS).map(|i| i as f64 * step).map(|value| (value, label(value))).collect()
}

/// Ticks at powers of ten, and at 2 and 5 times as much where there are few of them.
fn decades(low: f64, high: f64, wanted: usize) -> Vec<(f64, String)> {
    let length = high - low;
    let every = (length / wanted.max(1) as f64).ceil().max(1.0) as i32;
    let at = |times: &[f64]| -> Vec<f64> {
        let powers = (low.floor() as i32..=high.ceil() as i32).filter(|power| power % every == 0);
        powers
            .flat_map(|power| times.iter().map(move |times| times * 10f64.powi(power)))
            .filter(|value| (low..=high).contains(&value.log10()))
            .collect()
    };
    let mut values = if length < 2.5 { Vec::new() } else { at(&[1.0]) };
    if values.len() < 3 {
        values = at(&[1.0, 2.0, 5.0]);
    }
    if values.len() < 3 {
        // Less than a decade: even steps of the value, shown at their logarithms.
        let values = even(10f64.powf(low), 10f64.powf(high), wanted).into_iter();
        return values.filter(|(value, _)| *value > 0.0).map(|(v, label)| (v.log10(), label)).collect();
    }
    let plain = values.iter().all(|value| (0.000_9..GREAT).contains(value));
    let label = |value: f64| {
        let digits = (-value.log10().floor()).max(0.0) as usize;
        if plain {
            format!("{value:.digits$}")
        } else {
            exponent(value)
        }
    };
    values.into_iter().map(|value| (value.log10(), label(value))).collect()
}

/// `1e-9`, `2.5e7`.
fn exponent(value: f64) -> String {
    let power = (value.abs().log10() + 1e-9).floor();
    let front = value / 10f64.powf(power);
    let front = format!("{front:.2}");
    format!("{}e{power:.0}", front.trim_end_matches('0').trim_end_matches('.'))
}

/// An axis of positive values begins at zero if the least is at most this share of the greatest: heights can
/// then be compared by eye.
const FROM_ZERO: f64 = 0.7;
/// How far an interval may stretch an axis that begins at zero, as a share of what the values take.
const BEYOND: f64 = 0.3;
/// The same of a logarithmic axis, on which an end near zero would lie decades away.
const BEYOND_LOG: f64 = 0.1;
/// From here on labels have an exponent.
const GREAT: f64 = 1e6;
/// Longer fractions have an exponent as well.
const MOST_DIGITS: usize = 4;
/// A guard against rounding; ten is usual.
const MOST_TICKS: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs { zero: false, room: 0.05, ticks: 6 };

    fn span(scale: Scale, values: &[f64]) -> Span {
        Span::new(&scale, values.iter().copied(), std::iter::empty(), NEEDS)
    }

    fn labels(span: &Span) -> Vec<&str> {
        span.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn even_ticks_are_round_numbers_with_as_many_digits_as_they_need() {
        let span_of = |values: &[f64]| span(Scale::Linear, values);
        assert_eq!(labels(&span_of(&[0.0, 941.0])), ["0", "200", "400", "600", "800"]);
        assert_eq!(labels(&span_of(&[0.1, 0.47])), ["0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(labels(&span_of(&[0.0, 25e6])), ["0", "5e6", "1e7", "1.5e7", "2e7", "2.5e7"]);
        assert_eq!(labels(&span_of(&[-2.0, 2.0])), ["-2", "-1", "0", "1", "2"]);
        assert_eq!(labels(&span_of(&[900.0, 910.0])), ["900", "902", "904", "906", "908", "910"]);
    }

    #[test]
    fn logarithmic_ticks_are_decades_and_parts_of_them_where_there_are_few() {
        let span_of = |values: &[f64]| span(Scale::Log, values);
        assert_eq!(labels(&span_of(&[1e-9, 1e-5])), ["1e-9", "1e-8", "1e-7", "1e-6", "1e-5"]);
        assert_eq!(labels(&span_of(&[0.05, 800.0])), ["0.1", "1", "10", "100", "1000"]);
        assert_eq!(labels(&span_of(&[3.0, 40.0])), ["5", "10", "20"]);
        assert_eq!(labels(&span_of(&[1.0, 100.0])), ["1", "2", "5", "10", "20", "50", "100"]);
        assert!(labels(&span_of(&[20.0, 30.0])).len() >= 3);
        // Two and a half decades with two powers of ten among them.
        assert!(labels(&span_of(&[15.0, 6_700.0])).starts_with(&["20", "50", "100"]));
        assert!(labels(&span_of(&[1e-12, 1e12])).len() <= 9);
    }

    #[test]
    fn what_a_logarithm_cannot_show_has_no_place() {
        let span = span(Scale::Log, &[0.0, -3.0, f64::NAN, 10.0, 1000.0]);
        assert_eq!((span.place(0.0), span.place(-3.0), span.place(f64::NAN)), (None, None, None));
        assert_eq!(span.place(100.0), Some(2.0));
        assert!(span.low > 0.8 && span.high < 3.2, "{span:?}");
        assert_eq!((span.end(-5.0), span.end(f64::INFINITY)), (span.low, span.high));
    }

    #[test]
    fn axes_of_nothing_or_one_value_have_a_length() {
        for scale in [Scale::Linear, Scale::Log] {
            for values in [&[][..], &[5.0], &[0.0], &[f64::NAN], &[1e-9], &[1e300]] {
                let span = span(scale.clone(), values);
                assert!(span.high > span.low && span.low.is_finite(), "{scale:?} {values:?} {span:?}");
            }
        }
        assert!(span(Scale::Categories(vec![]), &[]).high > -0.5);
    }

    #[test]
    fn a_wide_interval_does_not_squeeze_the_values() {
        let ends = [-500.0, 900.0];
        let span = Span::new(&Scale::Linear, [40.0, 50.0].into_iter(), ends.into_iter(), NEEDS);
        assert!(span.low > 25.0 && span.high < 65.0, "{span:?}");
        let span = Span::new(&Scale::Linear, [4.0, 50.0].into_iter(), ends.into_iter(), NEEDS);
        assert!(span.low == 0.0 && span.high < 70.0, "{span:?}");
        let ends = [1e-4, 900.0];
        let span = Span::new(&Scale::Log, [1.0, 100.0].into_iter(), ends.into_iter(), NEEDS);
        assert!(span.low > -0.5 && span.high < 2.5, "{span:?}");
    }
}
