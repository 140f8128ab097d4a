//! Charts as pictures: SVG text that needs no fonts, scripts or network.
//!
//! The library draws lines and shapes; the layout is ours, so that no label lies on another or on the data:
//! title and label of the vertical axis above, names of the series below. The same chart gives the same
//! text.

mod axis;
mod layout;
mod look;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE};

use crate::figure::{Chart, Point, Scale, Series, Style};
use axis::{Needs, Span};
use layout::{px, Layout, LINE, SCALE, SMALL};
use look::{looks, Look, Marker, FAINT_INK, GRID, INK};

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Plot<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;
type Pixel = (i32, i32);

/// Draws a chart as an SVG document of 760 pixels in width, more if the names of many categories need it.
///
/// Points that are no numbers, or not above zero on a logarithmic axis, are left out and break their line.
/// A chart without any point says so.
pub fn svg(chart: &Chart) -> String {
    let bars = chart.series.iter().filter(|series| series.style == Style::Bars).count();
    let needs = Needs { zero: bars > 0, room: 0.06, ticks: 6 };
    let y = Span::new(&chart.y.scale, values(chart, |p| p.y), ends(chart), needs);
    let marked = chart.series.iter().any(has_markers);
    let room = match (bars > 0, marked) {
        (true, _) => 0.5 / most_points(chart) as f64,
        (false, true) => 0.035,
        (false, false) => 0.02,
    };
    let needs = Needs { zero: false, room, ticks: 8 };
    let x = Span::new(&chart.x.scale, values(chart, |p| p.x), std::iter::empty(), needs);
    let layout = Layout::of(chart, &x, &y);
    let mut text = String::new();
    // Writing to a string cannot fail, and the layout leaves the plot its room.
    draw(chart, &x, &y, &layout, &mut text).expect("a string takes everything");
    presented(&text, chart, &layout)
}

/// Shown at its true size: the drawing has finer pixels, so that curves are smooth.
fn presented(text: &str, chart: &Chart, layout: &Layout) -> String {
    let body = text.split_once('>').map_or("", |(_, body)| body);
    let (width, height) = (layout.width / SCALE, layout.height / SCALE);
    // Where a word lies on a line it stays readable; words themselves hold no tags.
    let halo = format!("<text paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"{}\" ", px(3));
    let body = body.replace("<text ", &halo);
    format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {} {}\" role=\"img\" \
         stroke-linejoin=\"round\" stroke-linecap=\"round\" xmlns=\"http://www.w3.org/2000/svg\">\n\
         <title>{}</title>{body}",
        layout.width,
        layout.height,
        escape(&chart.title),
    )
}

/// Text for XML and HTML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Not allowed in XML, not even escaped.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

fn values<'c>(chart: &'c Chart, of: fn(&Point) -> f64) -> impl Iterator<Item = f64> + 'c {
    chart.series.iter().flat_map(|series| &series.points).map(of)
}

fn ends(chart: &Chart) -> impl Iterator<Item = f64> + '_ {
    let points = chart.series.iter().flat_map(|series| &series.points);
    points.filter_map(|point| point.interval).flat_map(|(low, high)| [low, high])
}

fn most_points(chart: &Chart) -> usize {
    chart.series.iter().map(|series| series.points.len()).max().unwrap_or(0).max(1)
}

fn draw(chart: &Chart, x: &Span, y: &Span, layout: &Layout, text: &mut String) -> Drawn {
    let root = SVGBackend::with_string(text, (layout.width as u32, layout.height as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let plot: Plot<'_, '_> = ChartBuilder::on(&root)
        .margin_left(layout.left)
        .margin_right(layout.right)
        .margin_top(layout.top)
        .margin_bottom(layout.bottom)
        .build_cartesian_2d(x.low..x.high, y.low..y.high)?;
    frame(&root, &plot, chart, x, y, layout)?;

    let canvas = Canvas { root: &root, plot: &plot, x, y };
    let looks = looks(&chart.series);
    let each = || chart.series.iter().zip(&looks);
    let bars: Vec<_> = each().filter(|(series, _)| series.style == Style::Bars).collect();
    for (series, look) in each() {
        match series.style {
            Style::Line if !has_markers(series) => canvas.band(series, look)?,
            Style::Limit => canvas.limit(series, look)?,
            _ => {}
        }
    }
    for (number, (series, look)) in bars.iter().enumerate() {
        canvas.bars(series, look, number, bars.len())?;
    }
    if bars.iter().all(|(series, _)| canvas.values_fit(series, bars.len())) {
        for (number, (series, _)) in bars.iter().enumerate() {
            canvas.bar_values(series, number, bars.len())?;
        }
    }
    for (series, look) in each().filter(|(series, _)| series.style == Style::Line) {
        canvas.line(series, look)?;
    }
    for (series, look) in each().filter(|(series, _)| has_markers(series)) {
        // Markers that belong to bars stand on them.
        let bar = bars.iter().position(|(_, bar)| bar.colour == look.colour);
        let aside = bar.map_or(0, |number| canvas.bar(bars[number].0, number, bars.len()).1.round() as i32);
        canvas.points(series, look, aside)?;
    }
    if values(chart, |p| p.y).zip(values(chart, |p| p.x)).all(|(v, h)| y.place(v).or(x.place(h)).is_none()) {
        let (across, down) = plot.plotting_area().get_pixel_range();
        let middle = ((across.start + across.end) / 2, (down.start + down.end) / 2);
        root.draw(&Text::new("no data", middle, words(LINE, FAINT_INK, HPos::Center, VPos::Center)))?;
    }
    legend(&root, chart, &looks, layout)?;
    root.present()
}

/// Title, axes and their labels.
fn frame(root: &Area<'_>, plot: &Plot<'_, '_>, chart: &Chart, x: &Span, y: &Span, layout: &Layout) -> Drawn {
    let mut down = px(8);
    for line in &layout.title {
        let style = words(15, INK, HPos::Left, VPos::Top);
        let style = TextStyle { font: style.font.style(FontStyle::Bold), ..style };
        root.draw(&Text::new(line.clone(), (px(12), down), style))?;
        down += px(LINE + 6);
    }
    for line in &layout.y_label {
        root.draw(&Text::new(line.clone(), (px(12), down + px(2)), words(13, INK, HPos::Left, VPos::Top)))?;
        down += px(LINE + 3);
    }
    let (across, height) = plot.plotting_area().get_pixel_range();
    let axis = FAINT_INK.stroke_width(SCALE as u32);
    let grid = GRID.stroke_width(SCALE as u32);
    for (place, label) in &y.ticks {
        let at = plot.backend_coord(&(x.low, *place));
        if *place > y.low {
            root.draw(&PathElement::new(vec![at, (across.end, at.1)], grid))?;
        }
        root.draw(&PathElement::new(vec![(at.0 - px(4), at.1), at], axis))?;
        let style = words(SMALL, FAINT_INK, HPos::Right, VPos::Center);
        root.draw(&Text::new(label.clone(), (at.0 - px(7), at.1), style))?;
    }
    for ((place, _), lines) in x.ticks.iter().zip(&layout.x_ticks) {
        let at = plot.backend_coord(&(*place, y.low));
        if !matches!(chart.x.scale, Scale::Categories(_)) {
            if *place > x.low {
                root.draw(&PathElement::new(vec![at, (at.0, height.start)], grid))?;
            }
            root.draw(&PathElement::new(vec![at, (at.0, at.1 + px(4))], axis))?;
        }
        for (row, line) in (0..).zip(lines) {
            let style = words(SMALL, FAINT_INK, HPos::Center, VPos::Top);
            let down = at.1 + px(7) + row * px(SMALL + 3);
            root.draw(&Text::new(line.clone(), (at.0, down), style))?;
        }
    }
    let corner = (across.start, height.end);
    let ends = vec![(across.start, height.start), corner, (across.end, height.end)];
    root.draw(&PathElement::new(ends, axis))?;
    let middle = (across.start + across.end) / 2;
    let style = words(13, INK, HPos::Center, VPos::Top);
    root.draw(&Text::new(chart.x.label.clone(), (middle, height.end + layout.x_label), style))
}

/// The names of the series, below everything.
fn legend(root: &Area<'_>, chart: &Chart, looks: &[Look], layout: &Layout) -> Drawn {
    for entry in &layout.legend {
        let (series, look) = (&chart.series[entry.series], &looks[entry.series]);
        let middle = entry.down + px(8);
        let (from, to) = (entry.across, entry.across + px(layout::SAMPLE));
        match series.style {
            Style::Bars => {
                let corners = [(from + px(5), middle - px(5)), (to - px(5), middle + px(5))];
                root.draw(&Rectangle::new(corners, look.colour.filled()))?;
            }
            Style::Line | Style::Limit => {
                let thick = if series.style == Style::Limit { THIN } else { THICK };
                path(root, &[(from, middle), (to, middle)], stroke(look.colour, thick), look.dashed)?;
            }
            Style::Markers => {}
        }
        if has_markers(series) {
            marker(root, ((from + to) / 2, middle), look)?;
        }
        let style = words(SMALL + 1, INK, HPos::Left, VPos::Center);
        root.draw(&Text::new(series.name.clone(), (to + px(6), middle), style))?;
    }
    Ok(())
}

/// Where data is drawn.
struct Canvas<'r, 'a, 'b> {
    root: &'r Area<'a>,
    plot: &'r Plot<'a, 'b>,
    x: &'r Span,
    y: &'r Span,
}

impl Canvas<'_, '_, '_> {
    fn pixel(&self, x: f64, y: f64) -> Pixel {
        self.plot.backend_coord(&(x, y))
    }

    fn place(&self, point: &Point) -> Option<Pixel> {
        Some(self.pixel(self.x.place(point.x)?, self.y.place(point.y)?))
    }

    /// The visible part of a point's interval, in pixels from high to low.
    fn interval(&self, point: &Point) -> Option<(Pixel, Pixel)> {
        let (low, high) = point.interval.filter(|(low, high)| !low.is_nan() && !high.is_nan())?;
        let x = self.x.place(point.x)?;
        let visible = |end: f64| self.y.end(end).clamp(self.y.low, self.y.high);
        Some((self.pixel(x, visible(high)), self.pixel(x, visible(low))))
    }

    /// Runs of points that can be shown.
    fn stretches(&self, series: &Series) -> Vec<Vec<Pixel>> {
        let stretches = series.points.split(|point| self.place(point).is_none());
        stretches
            .filter(|stretch| !stretch.is_empty())
            .map(|stretch| thinned(&stretch.iter().filter_map(|point| self.place(point)).collect::<Vec<_>>()))
            .collect()
    }

    fn line(&self, series: &Series, look: &Look) -> Drawn {
        self.stretches(series)
            .iter()
            .try_for_each(|pixels| path(self.root, pixels, stroke(look.colour, THICK), look.dashed))
    }

    /// The physical limit; a single value holds everywhere.
    fn limit(&self, series: &Series, look: &Look) -> Drawn {
        let style = stroke(look.colour, THIN);
        if let [point] = series.points[..] {
            let Some(y) = self.y.place(point.y) else { return Ok(()) };
            return path(self.root, &[self.pixel(self.x.low, y), self.pixel(self.x.high, y)], style, true);
        }
        let mut stretches = self.stretches(series);
        if self.has_categories() {
            // Of categories: as far as their bars go.
            let half = self.pixel(0.5, self.y.low).0 - self.pixel(0.0, self.y.low).0;
            for stretch in &mut stretches {
                let (first, last) = (stretch[0], stretch[stretch.len() - 1]);
                stretch.insert(0, (first.0 - half, first.1));
                stretch.push((last.0 + half, last.1));
            }
        }
        stretches.iter().try_for_each(|pixels| path(self.root, pixels, style, true))
    }

    /// Intervals of so many points that whiskers would be a thicket.
    fn band(&self, series: &Series, look: &Look) -> Drawn {
        for stretch in series.points.split(|point| self.interval(point).is_none()) {
            let ends: Vec<(Pixel, Pixel)> = stretch.iter().filter_map(|point| self.interval(point)).collect();
            let edge = ends.iter().map(|(high, _)| *high).chain(ends.iter().rev().map(|(_, low)| *low));
            if ends.len() > 1 {
                self.root.draw(&Polygon::new(edge.collect::<Vec<_>>(), look.colour.mix(0.18).filled()))?;
            }
        }
        Ok(())
    }

    /// Markers and whiskers, so many pixels to the right of their places.
    fn points(&self, series: &Series, look: &Look, aside: i32) -> Drawn {
        let moved = |at: Pixel| (at.0 + aside, at.1);
        for point in &series.points {
            let Some(at) = self.place(point) else { continue };
            if let Some((high, low)) = self.interval(point) {
                self.whisker((moved(high), moved(low)), look.colour)?;
            }
            marker(self.root, moved(at), look)?;
        }
        Ok(())
    }

    /// A line with a cap at each end that lies on the axis.
    fn whisker(&self, (high, low): (Pixel, Pixel), colour: RGBColor) -> Drawn {
        let style = stroke(colour, THIN);
        self.root.draw(&PathElement::new(vec![high, low], style))?;
        let (_, down) = self.plot.plotting_area().get_pixel_range();
        for end in [high, low] {
            if end.1 > down.start && end.1 < down.end - 1 {
                let cap = vec![(end.0 - px(4), end.1), (end.0 + px(4), end.1)];
                self.root.draw(&PathElement::new(cap, style))?;
            }
        }
        Ok(())
    }

    /// Bars beside those of the other series.
    fn bars(&self, series: &Series, look: &Look, number: usize, of: usize) -> Drawn {
        let (width, offset) = self.bar(series, number, of);
        for point in &series.points {
            let (Some(x), Some(top)) = (self.x.place(point.x), self.place(point)) else { continue };
            let foot = self.pixel(x, self.y.floor());
            let left = (f64::from(top.0) + offset - width / 2.0 + f64::from(SCALE)).round() as i32;
            let right = (f64::from(top.0) + offset + width / 2.0 - f64::from(SCALE)).round() as i32;
            let corners = [(left, top.1.min(foot.1)), (right.max(left + SCALE), top.1.max(foot.1))];
            self.root.draw(&Rectangle::new(corners, look.colour.filled()))?;
            if let Some((high, low)) = self.interval(point) {
                let middle = (left + right) / 2;
                self.whisker(((middle, high.1), (middle, low.1)), INK)?;
            }
        }
        Ok(())
    }

    /// Whether every bar of a series is wide enough for its value.
    fn values_fit(&self, series: &Series, of: usize) -> bool {
        let (width, _) = self.bar(series, 0, of);
        let mut values = series.points.iter().map(|point| crate::figure::three_digits(point.y));
        values.all(|value| layout::width(&value, SMALL - 1) <= width as i32 + px(2))
    }

    /// The value of each bar above it and its whisker.
    fn bar_values(&self, series: &Series, number: usize, of: usize) -> Drawn {
        let (_, offset) = self.bar(series, number, of);
        for point in &series.points {
            let Some(top) = self.place(point) else { continue };
            let above = self.interval(point).map_or(top.1, |(high, _)| high.1.min(top.1));
            let at = (top.0 + offset.round() as i32, above - px(3));
            let style = words(SMALL - 1, FAINT_INK, HPos::Center, VPos::Bottom);
            self.root.draw(&Text::new(crate::figure::three_digits(point.y), at, style))?;
        }
        Ok(())
    }

    /// Width of a bar, and how far right of its place its middle is.
    fn bar(&self, series: &Series, number: usize, of: usize) -> (f64, f64) {
        let width = (self.gap(series) * 0.8 / of as f64).min(f64::from(px(64)));
        (width, (number as f64 - (of as f64 - 1.0) / 2.0) * width)
    }

    /// Only an axis of names begins half a step before its first tick.
    fn has_categories(&self) -> bool {
        matches!(self.x.ticks.first(), Some((place, _)) if *place - self.x.low == 0.5)
    }

    /// Pixels between neighbouring points of a series, or between categories.
    fn gap(&self, series: &Series) -> f64 {
        let across: Vec<i32> =
            series.points.iter().filter_map(|point| self.place(point)).map(|p| p.0).collect();
        let (pixels, _) = self.plot.plotting_area().get_pixel_range();
        let all = f64::from(pixels.end - pixels.start);
        let categories = all / (self.x.high - self.x.low);
        let least = across.windows(2).map(|pair| f64::from((pair[1] - pair[0]).abs())).fold(all, f64::min);
        if across.len() > 1 && !self.has_categories() {
            least
        } else {
            categories.min(all / 2.0)
        }
    }
}

/// Few enough points to mark each, and published values always.
fn has_markers(series: &Series) -> bool {
    match series.style {
        Style::Markers => true,
        Style::Line => series.points.len() <= MARKED,
        Style::Bars | Style::Limit => false,
    }
}

fn marker(root: &Area<'_>, at: Pixel, look: &Look) -> Drawn {
    let size = if look.hollow { px(5) } else { px(4) };
    let corners = |corners: &[(i32, i32)]| {
        corners.iter().map(|(x, y)| (at.0 + x * size / 10, at.1 + y * size / 10)).collect::<Vec<Pixel>>()
    };
    let shape = match look.marker {
        Marker::Circle => {
            let inside = if look.hollow { WHITE.filled() } else { look.colour.filled() };
            root.draw(&Circle::new(at, size, inside))?;
            return root.draw(&Circle::new(at, size, stroke(look.colour, THIN + 1)));
        }
        Marker::Square => corners(&[(-9, -9), (9, -9), (9, 9), (-9, 9)]),
        Marker::Triangle => corners(&[(0, -12), (11, 8), (-11, 8)]),
        Marker::Diamond => corners(&[(0, -12), (12, 0), (0, 12), (-12, 0)]),
        Marker::Wedge => corners(&[(0, 12), (11, -8), (-11, -8)]),
    };
    let inside = if look.hollow { WHITE.filled() } else { look.colour.filled() };
    root.draw(&Polygon::new(shape.clone(), inside))?;
    let outline: Vec<Pixel> = shape.iter().chain(shape.first()).copied().collect();
    root.draw(&PathElement::new(outline, stroke(look.colour, THIN + 1)))
}

/// A line through pixels, dashed or not.
fn path(root: &Area<'_>, pixels: &[Pixel], style: ShapeStyle, dashed: bool) -> Drawn {
    if !dashed {
        return root.draw(&PathElement::new(pixels.to_vec(), style));
    }
    dashes(pixels, f64::from(px(6)), f64::from(px(6)))
        .into_iter()
        .try_for_each(|dash| root.draw(&PathElement::new(dash, style)))
}

/// Pieces of a line: `on` pixels drawn, `off` pixels not, and so on.
fn dashes(pixels: &[Pixel], on: f64, off: f64) -> Vec<Vec<Pixel>> {
    let mut pieces: Vec<Vec<Pixel>> = Vec::new();
    let (mut drawing, mut left) = (true, on);
    if let Some(first) = pixels.first() {
        pieces.push(vec![*first]);
    }
    for pair in pixels.windows(2) {
        let (from, to) = ((f64::from(pair[0].0), f64::from(pair[0].1)), pair[1]);
        let step = (f64::from(to.0) - from.0, f64::from(to.1) - from.1);
        let length = step.0.hypot(step.1);
        let mut gone = 0.0;
        while length - gone > left {
            gone += left;
            let share = gone / length;
            let at = ((from.0 + step.0 * share).round() as i32, (from.1 + step.1 * share).round() as i32);
            match (drawing, pieces.last_mut()) {
                (true, Some(piece)) => piece.push(at),
                _ => pieces.push(vec![at]),
            }
            drawing = !drawing;
            left = if drawing { on } else { off };
        }
        left -= length - gone;
        if let (true, Some(piece)) = (drawing, pieces.last_mut()) {
            piece.push(to);
        }
    }
    pieces.retain(|piece| piece.len() > 1);
    pieces
}

/// The same line with fewer pixels: of those in one column the first, the last, the highest and the lowest.
fn thinned(pixels: &[Pixel]) -> Vec<Pixel> {
    if pixels.len() <= DRAWN {
        return pixels.to_vec();
    }
    let mut kept: Vec<Pixel> = Vec::new();
    for column in pixels.chunk_by(|a, b| a.0 / px(1) == b.0 / px(1)) {
        let mut extremes: Vec<usize> = (0..column.len()).collect();
        extremes.sort_by_key(|&i| (column[i].1, i));
        let mut wanted = [0, extremes[0], extremes[column.len() - 1], column.len() - 1];
        wanted.sort_unstable();
        for i in wanted {
            if kept.last() != Some(&column[i]) {
                kept.push(column[i]);
            }
        }
    }
    kept
}

fn stroke(colour: RGBColor, quarters: i32) -> ShapeStyle {
    colour.stroke_width((quarters * SCALE / 4) as u32)
}

fn words(size: i32, colour: RGBColor, across: HPos, down: VPos) -> TextStyle<'static> {
    let font = ("sans-serif", f64::from(px(size)) * FONT).into_font();
    TextStyle { font, color: colour.to_backend_color(), pos: Pos::new(across, down) }
}

/// The library divides sizes of fonts by this.
const FONT: f64 = 1.24;
/// Width of lines of data, in quarters of a pixel.
const THICK: i32 = 8;
/// Width of whiskers and limits.
const THIN: i32 = 5;
/// A line with at most so many points has a marker at each.
const MARKED: usize = 26;
/// A line with more points is thinned out.
const DRAWN: usize = 1500;

#[cfg(test)]
mod tests;
