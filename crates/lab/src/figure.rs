//! What a figure of a paper consists of: tables, charts, answers to the paper's values, notes.

use skyhaul_sim::stats;

use crate::compare::Answer;

/// A figure or table of a paper, made anew.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// As in the paper, such as `9` or `table-1`, or a word for what the paper does not number.
    pub id: &'static str,
    /// One line.
    pub title: String,
    /// The numbers.
    pub tables: Vec<Table>,
    /// The same as pictures.
    pub charts: Vec<Chart>,
    /// The paper's values that it answers.
    pub answers: Vec<Answer>,
    /// What a reader should know, in sentences.
    pub notes: Vec<String>,
}

impl Figure {
    /// A figure without content.
    pub fn new(id: &'static str, title: impl Into<String>) -> Figure {
        let title = title.into();
        Figure { id, title, tables: vec![], charts: vec![], answers: vec![], notes: vec![] }
    }
}

/// A table of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// A value for each column; missing ones at the end stay empty.
    pub rows: Vec<Vec<Value>>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, such as `goodput`.
    pub name: String,
    /// What its numbers count.
    pub unit: Unit,
}

/// What a number counts. Numbers are kept in the unit machines read and shown in the one people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Words, or numbers without a unit.
    None,
    /// Bits per second, shown as Mbit/s.
    Rate,
    /// Seconds.
    Seconds,
    /// Seconds, shown as milliseconds.
    Milliseconds,
    /// A share of one, shown in percent.
    Percent,
    /// Segments of a window.
    Segments,
    /// Bytes, shown as MB (10⁶).
    Megabytes,
    /// How many times as much.
    Ratio,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing to say.
    Empty,
    /// Words.
    Text(String),
    /// A count.
    Count(u64),
    /// A number in the column's unit.
    Number(f64),
    /// A mean with its spread in the column's unit.
    Spread(Spread),
}

/// A mean over seeds and the 95 % interval of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Lower end of the interval; the mean itself for a single run.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How many runs.
    pub runs: usize,
}

impl Spread {
    /// Of the values of several runs; zero of none.
    pub fn of(values: &[f64]) -> Spread {
        let mean = stats::mean(values).unwrap_or(0.0);
        let interval = stats::mean_interval(values);
        let (low, high) = interval.map_or((mean, mean), |interval| (interval.low, interval.high));
        // What is never below zero has no mean below it either; two or three runs make wide intervals.
        let low = if values.iter().all(|value| *value >= 0.0) { low.max(0.0) } else { low };
        Spread { mean, low, high, runs: values.len() }
    }

    /// Of the quotients of two lists of runs with equal seeds, pair by pair; pairs that divide by nothing
    /// are left out.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Spread {
        let pairs = above.iter().zip(below).filter(|(_, below)| **below > 0.0);
        Spread::of(&pairs.map(|(above, below)| above / below).collect::<Vec<_>>())
    }

    /// A value known exactly.
    pub fn exactly(value: f64) -> Spread {
        Spread { mean: value, low: value, high: value, runs: 1 }
    }
}

impl Unit {
    /// As in a header for people: `Mbit/s`; empty for none.
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Rate => "Mbit/s",
            Unit::Seconds => "s",
            Unit::Milliseconds => "ms",
            Unit::Percent => "%",
            Unit::Segments => "segments",
            Unit::Megabytes => "MB",
            Unit::Ratio => "×",
        }
    }

    /// As in a name for machines: `bit_per_s`; empty for none. Machines get the number as it is kept.
    pub fn suffix(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Rate => "bit_per_s",
            Unit::Seconds | Unit::Milliseconds => "s",
            Unit::Percent => "share",
            Unit::Segments => "segments",
            Unit::Megabytes => "bytes",
            Unit::Ratio => "ratio",
        }
    }

    /// The number as it is shown, from the number as it is kept.
    pub fn shown(self, value: f64) -> f64 {
        match self {
            Unit::Rate | Unit::Megabytes => value / 1e6,
            Unit::Milliseconds => value * 1e3,
            Unit::Percent => value * 100.0,
            Unit::None | Unit::Seconds | Unit::Segments | Unit::Ratio => value,
        }
    }

    /// Three significant digits in the unit people read: `131`, `9.41`, `0.0483`, `12 300`.
    pub fn text(self, value: f64) -> String {
        three_digits(self.shown(value))
    }

    /// A mean and its interval: `131 (129 to 133)`; only the mean of one run, or where all runs agree.
    pub fn spread(self, spread: &Spread) -> String {
        let mean = self.text(spread.mean);
        if spread.runs < 2 {
            return mean;
        }
        let (low, high) = (self.text(spread.low), self.text(spread.high));
        if low == mean && high == mean {
            return mean;
        }
        format!("{mean} ({low} to {high})")
    }
}

/// Three significant digits without an exponent where that is readable.
pub(crate) fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "-".to_owned() };
    }
    let magnitude = value.abs().log10().floor();
    match magnitude {
        m if m >= 6.0 => format!("{:.3}e{m:.0}", value / 10f64.powf(m)),
        m if m >= 2.0 => {
            let step = 10f64.powf((m - 2.0).max(0.0));
            format!("{:.0}", (value / step).round() * step)
        }
        m if m >= -3.0 => format!("{value:.*}", (2.0 - m) as usize),
        m => format!("{:.2}e{m:.0}", value / 10f64.powf(m)),
    }
}

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, columns: &[(&str, Unit)]) -> Table {
        let column = |(name, unit): &(&str, Unit)| Column { name: (*name).to_owned(), unit: *unit };
        Table { title: title.into(), columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, values: Vec<Value>) {
        self.rows.push(values);
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Number(number)
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Value {
        Value::Count(count)
    }
}

impl From<Spread> for Value {
    fn from(spread: Spread) -> Value {
        Value::Spread(spread)
    }
}

/// A picture of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// An axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// With its unit: `goodput, Mbit/s`. Points are in this unit.
    pub label: String,
    /// How values are spread over it.
    pub scale: Scale,
}

/// How values are spread over an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// Each decade takes the same room; only values above zero can be shown.
    Log,
    /// Names at 0, 1, 2 and so on.
    Categories(Vec<String>),
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<Point>,
    /// How they are drawn.
    pub style: Style,
}

/// A point of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// The interval it is known to lie in, where there is one.
    pub interval: Option<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line, with markers where there are few points.
    Line,
    /// Markers only: published values.
    Markers,
    /// Bars beside those of the other series.
    Bars,
    /// A dashed grey line: what is physically possible.
    Limit,
}

impl Series {
    /// A line through points without intervals.
    pub fn line(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        let points = points.into_iter().map(|(x, y)| Point { x, y, interval: None }).collect();
        Series { name: name.into(), points, style: Style::Line }
    }

    /// A line through means with their intervals, each shown in `unit`.
    pub fn spreads(
        name: impl Into<String>,
        unit: Unit,
        points: impl IntoIterator<Item = (f64, Spread)>,
    ) -> Series {
        let point = |(x, spread): (f64, Spread)| Point {
            x,
            y: unit.shown(spread.mean),
            interval: (spread.runs > 1).then(|| (unit.shown(spread.low), unit.shown(spread.high))),
        };
        Series { name: name.into(), points: points.into_iter().map(point).collect(), style: Style::Line }
    }

    /// The same in another style.
    pub fn styled(self, style: Style) -> Series {
        Series { style, ..self }
    }
}

impl Axis {
    /// An even axis.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log }
    }

    /// An axis of names.
    pub fn names<N: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = N>) -> Axis {
        Axis { label: label.into(), scale: Scale::Categories(names.into_iter().map(Into::into).collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_in_the_unit_people_read() {
        assert_eq!(Unit::Rate.text(131_249_000.0), "131");
        assert_eq!(Unit::Rate.text(9_414_000.0), "9.41");
        assert_eq!(Unit::Rate.text(48_320.0), "0.0483");
        assert_eq!(Unit::Segments.text(23_031.4), "23000");
        assert_eq!(Unit::Percent.text(0.0217), "2.17");
        assert_eq!(Unit::Milliseconds.text(0.5402), "540");
        assert_eq!(Unit::None.text(1.2e-5), "1.20e-5");
        assert_eq!(Unit::None.text(2_667_900_000.0), "2.668e9");
        assert_eq!(Unit::None.text(0.0), "0");
    }

    #[test]
    fn a_spread_of_one_run_claims_no_interval() {
        assert_eq!(Unit::Rate.spread(&Spread::of(&[2e6])), "2.00");
        let spread = Spread::of(&[1e6, 2e6, 3e6]);
        assert_eq!(spread.mean, 2e6);
        assert_eq!(Unit::Rate.spread(&spread), "2.00 (0 to 4.48)");
        assert_eq!(Unit::Rate.spread(&Spread::of(&[2e6, 2e6])), "2.00");
        assert!(Spread::of(&[-1.0, 2.0]).low < -1.0);
    }

    #[test]
    fn ratios_are_taken_seed_by_seed() {
        let spread = Spread::of_ratios(&[2.0, 6.0, 1.0], &[1.0, 3.0, 0.0]);
        assert_eq!((spread.mean, spread.low, spread.runs), (2.0, 2.0, 2));
    }
}
