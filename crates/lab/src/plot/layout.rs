//! How much room the words of a chart take, and where they stand.
//!
//! The drawing has [`SCALE`] pixels for each pixel on the screen. Widths of words are estimates for common
//! sans-serif fonts, on the safe side.

use super::axis::Span;
use crate::figure::{Chart, Scale};

/// Pixels of the drawing for one on the screen.
pub(super) const SCALE: i32 = 4;
/// On the screen, unless the names of categories need more.
const WIDTH: i32 = 760;
/// On the screen at most.
const WIDEST: i32 = 1040;
/// Height of the plot itself, on the screen.
const PLOT: i32 = 290;
/// Size of the words, on the screen.
pub(super) const LINE: i32 = 14;
/// Size of labels of ticks, on the screen.
pub(super) const SMALL: i32 = 12;
/// Width of the sample in front of a name, on the screen.
pub(super) const SAMPLE: i32 = 30;

/// Pixels of the drawing.
pub(super) const fn px(screen: i32) -> i32 {
    screen * SCALE
}

/// Everything in pixels of the drawing.
pub(super) struct Layout {
    pub width: i32,
    pub height: i32,
    pub left: i32,
    pub right: i32,
    pub top: i32,
    pub bottom: i32,
    /// The title in lines.
    pub title: Vec<String>,
    /// The vertical axis' label in lines.
    pub y_label: Vec<String>,
    /// Labels of the horizontal axis' ticks in lines.
    pub x_ticks: Vec<Vec<String>>,
    /// From the axis down to its label.
    pub x_label: i32,
    pub legend: Vec<Entry>,
}

/// A name below the plot.
pub(super) struct Entry {
    /// Number of the series.
    pub series: usize,
    pub across: i32,
    pub down: i32,
}

impl Layout {
    pub fn of(chart: &Chart, x: &Span, y: &Span) -> Layout {
        let widest = y.ticks.iter().map(|(_, label)| width(label, SMALL)).max().unwrap_or(0);
        let left = px(12) + widest.max(px(16)) + px(9);
        let right = px(26);
        let whole = whole_width(chart, left + right);
        let room = whole - px(24);
        let title = wrapped(&chart.title, 16, room);
        let y_label = wrapped(&chart.y.label, 13, room);
        let top = px(10 + 20 * lines(&title) + 17 * lines(&y_label) + 12);
        let places = (x.high - x.low).max(f64::MIN_POSITIVE);
        let each = match chart.x.scale {
            Scale::Categories(_) => (f64::from(whole - left - right) / places) as i32 - px(6),
            Scale::Linear | Scale::Log => whole,
        };
        let x_ticks: Vec<Vec<String>> =
            x.ticks.iter().map(|(_, label)| wrapped(label, SMALL, each)).collect();
        let rows = x_ticks.iter().map(|rows| lines(rows)).max().unwrap_or(1).max(1);
        let x_label = px(7 + rows * (SMALL + 3) + 5);
        let below = px(if chart.x.label.is_empty() { 2 } else { 20 });
        let plot_end = top + px(PLOT);
        let (legend, legend_height) = legend(chart, plot_end + x_label + below + px(6), room);
        let bottom = x_label + below + px(6) + legend_height + px(8);
        let height = plot_end + bottom;
        Layout { width: whole, height, left, right, top, bottom, title, y_label, x_ticks, x_label, legend }
    }
}

/// Enough for the longest word below each category, within bounds.
fn whole_width(chart: &Chart, margins: i32) -> i32 {
    let Scale::Categories(names) = &chart.x.scale else { return px(WIDTH) };
    let words = names.iter().flat_map(|name| name.split_whitespace());
    let longest = words.map(|word| width(word, SMALL)).max().unwrap_or(0) + px(8);
    (longest.saturating_mul(lines(names)).saturating_add(margins)).clamp(px(WIDTH), px(WIDEST))
}

/// Names in rows; a chart of one series needs none.
fn legend(chart: &Chart, top: i32, room: i32) -> (Vec<Entry>, i32) {
    if chart.series.len() < 2 {
        return (Vec::new(), 0);
    }
    let (mut across, mut down) = (px(12), top);
    let mut entries = Vec::new();
    for (series, name) in chart.series.iter().map(|series| series.name.as_str()).enumerate() {
        let wide = px(SAMPLE + 6) + width(name, SMALL + 1);
        if across > px(12) && across + wide > px(12) + room {
            (across, down) = (px(12), down + px(19));
        }
        entries.push(Entry { series, across, down });
        across += wide + px(20);
    }
    (entries, down + px(19) - top)
}

/// About how wide a text is at this size on the screen.
pub(super) fn width(text: &str, size: i32) -> i32 {
    let em = |character: char| match character {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' => 0.32,
        'f' | 't' | 'r' | '(' | ')' | '-' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' => 0.95,
        c if c.is_ascii_uppercase() => 0.72,
        c if c.is_ascii() => 0.61,
        _ => 0.8,
    };
    let ems: f64 = text.chars().map(em).sum();
    (ems * f64::from(px(size))).ceil() as i32
}

/// A text in lines that fit, broken at spaces; a word that is too long has a line of its own.
fn wrapped(text: &str, size: i32, room: i32) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match rows.last_mut() {
            Some(row) if width(row, size) + width(" ", size) + width(word, size) <= room => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows
}

fn lines(rows: &[String]) -> i32 {
    i32::try_from(rows.len()).unwrap_or(i32::MAX)
}
