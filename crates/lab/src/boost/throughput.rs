//! Figures 5 to 9: one transfer of 500 MB, against loss and against delay.

use skyhaul_cc::units::{Bytes, Duration};
use skyhaul_sim::scenario::{Cell, Scenario};

use super::PAPER;
use crate::compare::find;
use crate::experiment::{Effort, LabError};
use crate::figure::{Axis, Chart, Figure, Series, Spread, Style, Table, Unit, Value};
use crate::grid::Grid;

/// Who runs: the paper's four, then what else claims to be fast here.
const CONTENDERS: [&str; 8] =
    ["newreno", "cubic", "bbr", "boost", "boost-literal", "bbr3", "hybla", "enhanced"];
/// The paper's own.
const PAPERS: usize = 4;

/// Figures 5 to 8: mean throughput against loss at 20, 30, 50 and 80 ms.
pub fn against_loss(effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let scenario = Scenario::find("p0.throughput-vs-loss")?;
    let effort = &effort.once_if_quick();
    let (cells, contenders) = chosen(&scenario, effort, |i, _| i % 2 == 0);
    let grid = Grid::run(&cells, contenders, effort, cost)?;
    let mut delays: Vec<Duration> = cells.iter().map(|cell| cell.rtt).collect();
    delays.dedup();
    let all: Vec<Duration> = {
        let mut all: Vec<Duration> = scenario.cells().iter().map(|cell| cell.rtt).collect();
        all.dedup();
        all
    };
    let mut figures: Vec<Figure> = Vec::new();
    for (id, rtt) in ["5", "6", "7", "8"].into_iter().zip(all) {
        let title = format!("Mean throughput against loss at {} ms", rtt.as_millis());
        let mut figure = Figure::new(id, title.clone());
        let here: Vec<usize> = (0..cells.len()).filter(|&cell| cells[cell].rtt == rtt).collect();
        if here.is_empty() {
            figure.notes.push("left out with --quick".to_owned());
            figures.push(figure);
            continue;
        }
        let x = |cell: usize| cells[cell].loss.value() * 100.0;
        let names: Vec<String> = here.iter().map(|&cell| format!("{} %", plain(x(cell)))).collect();
        figure.tables.push(table(&grid, &here, "loss", |cell| Value::from(format!("{} %", plain(x(cell))))));
        let points = |f: &dyn Fn(usize) -> Spread| {
            here.iter().enumerate().map(|(place, &cell)| (place as f64, f(cell))).collect::<Vec<_>>()
        };
        figure.charts.push(chart(title, Axis::names("packet loss", names), &grid, &points));
        figures.push(figure);
    }
    let values = PAPER.published()?;
    let lossy: Vec<usize> = (0..cells.len()).filter(|&cell| cells[cell].loss.value() > 0.0).collect();
    let ratios: Vec<f64> = lossy.iter().map(|&cell| grid.ratio(cell, "boost", "bbr").mean).collect();
    let whole = Spread {
        low: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        high: ratios.iter().copied().fold(0.0, f64::max),
        ..Spread::of(&ratios)
    };
    let room =
        lossy.iter().map(|&cell| limit(&cells[cell]) / grid.goodput(cell, "bbr").mean).fold(0.0, f64::max);
    let last = figures.len() - 1;
    let order: Vec<Spread> = ["newreno", "cubic", "bbr", "boost"].map(|name| mean_over(&grid, name)).into();
    let least = cells.iter().map(|cell| cell.loss).min_by(|a, b| a.value().total_cmp(&b.value()));
    let most = cells.iter().map(|cell| cell.loss).max_by(|a, b| a.value().total_cmp(&b.value()));
    let kept = |name: &str| {
        let at = |loss| {
            let here: Vec<f64> = (0..cells.len())
                .filter(|&cell| Some(cells[cell].loss) == loss)
                .map(|cell| grid.goodput(cell, name).mean)
                .collect();
            Spread::of(&here).mean
        };
        at(most) / at(least)
    };
    figures[last].answers.push(
        find(&values, PAPER.name, "loss-ratio")?
            .number(whole)
            .with_limit(room)
            .if_order_holds(ratios.iter().all(|ratio| *ratio >= 1.0))
            .because(
                "the range is over the cells with loss. Both start by doubling or faster and fill the link; bbr lies so \
                 near the limit that a higher ratio is physically impossible. The paper's ratio needs a bbr of at most \
                 747 Mbit/s",
            ),
    );
    figures[last].answers.push(
        find(&values, PAPER.name, "loss-order")?
            .statement(&[
                ("boost highest on average", order[..3].iter().all(|other| order[3].mean > other.mean)),
                ("newreno lowest on average", order[1..].iter().all(|other| order[0].mean < other.mean)),
                ("cubic keeps the least of its throughput", ["newreno", "bbr", "boost"].iter().all(|name| kept("cubic") <= kept(name))),
            ])
            .because(format!(
                "from no loss to the most, newreno keeps {} % and cubic {} %: both fall alike, by the law of random loss",
                Unit::Percent.text(kept("newreno")),
                Unit::Percent.text(kept("cubic")),
            )),
    );
    if effort.quick {
        figures[last].notes.push(quick_note());
    }
    Ok(figures)
}

/// Figure 9: mean throughput against delay at 0.05 % loss.
pub fn against_delay(effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let scenario = Scenario::find("p0.throughput-vs-delay")?;
    let effort = &effort.once_if_quick();
    let (cells, contenders) = chosen(&scenario, effort, |i, count| i % 3 == 0 || i + 1 == count);
    let grid = Grid::run(&cells, contenders, effort, cost)?;
    let title = "Mean throughput against delay at 0.05 % loss";
    let mut figure = Figure::new("9", title);
    let here: Vec<usize> = (0..cells.len()).collect();
    figure
        .tables
        .push(table(&grid, &here, "RTT", |cell| Value::from(format!("{} ms", cells[cell].rtt.as_millis()))));
    let points = |f: &dyn Fn(usize) -> Spread| {
        here.iter().map(|&cell| (cells[cell].rtt.as_secs_f64() * 1e3, f(cell))).collect::<Vec<_>>()
    };
    figure.charts.push(chart(title.to_owned(), Axis::linear("round trip, ms"), &grid, &points));

    let values = PAPER.published()?;
    let far = cells.len() - 1;
    let ratio = grid.ratio(far, "boost", "bbr");
    figure.answers.push(
        find(&values, PAPER.name, "delay-ratio")?
            .number(ratio)
            .with_limit(limit(&cells[far]) / grid.goodput(far, "bbr").mean)
            .if_order_holds(ratio.mean >= 1.0)
            .because("2.3 needs a bbr of at most 409 Mbit/s; ours, and the kernel's, use most of the link"),
    );
    let near: Vec<usize> = here.iter().copied().filter(|&cell| cells[cell].rtt <= SHORT).collect();
    let close = near.iter().all(|&cell| (grid.ratio(cell, "boost", "bbr").mean - 1.0).abs() < 0.1);
    let newreno_lowest = here.iter().all(|&cell| {
        CONTENDERS[1..PAPERS]
            .iter()
            .all(|name| grid.goodput(cell, "newreno").mean <= grid.goodput(cell, name).mean * 1.02)
    });
    figure.answers.push(find(&values, PAPER.name, "delay-order")?.statement(&[
        ("boost within 10 % of bbr up to 20 ms", close),
        ("newreno lowest (cubic may equal it)", newreno_lowest),
    ]));
    figure.notes.push(
        "The paper's delay is read as the round trip. netem's default queue of 1000 packets would cap 100 ms at \
         about 123 Mbit/s, so the paper must have raised it; here it is one bandwidth-delay product, at least 1000 \
         packets."
            .to_owned(),
    );
    if effort.quick {
        figure.notes.push(quick_note());
    }
    Ok(vec![figure])
}

/// What cannot be repeated.
pub fn field(_: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let mut figure = Figure::new("field", "Field test, figures 16 to 18");
    for value in PAPER.published()?.iter().filter(|value| value.scenario == "p0.field") {
        figure.answers.push(value.not_reproducible(
            "an operational network of seven ground stations; rate, delay and loss of each station are not given",
        ));
    }
    Ok(vec![figure])
}

/// Cells and contenders: all of them, or with `--quick` the paper's four on chosen delays and losses.
fn chosen(
    scenario: &Scenario,
    effort: &Effort<'_>,
    keep: impl Fn(usize, usize) -> bool,
) -> (Vec<Cell>, &'static [&'static str]) {
    let cells = scenario.cells();
    if !effort.quick {
        return (cells, &CONTENDERS);
    }
    let mut delays: Vec<Duration> = cells.iter().map(|cell| cell.rtt).collect();
    delays.sort();
    delays.dedup();
    let mut losses: Vec<f64> = cells.iter().map(|cell| cell.loss.value()).collect();
    losses.sort_by(f64::total_cmp);
    losses.dedup();
    let kept = |place: usize, count: usize| count < 2 || keep(place, count);
    let cells = cells.into_iter().filter(|cell| {
        let delay = delays.iter().position(|delay| *delay == cell.rtt).unwrap_or(0);
        let loss = losses.iter().position(|loss| *loss == cell.loss.value()).unwrap_or(0);
        kept(delay, delays.len()) && kept(loss, losses.len())
    });
    (cells.collect(), &CONTENDERS[..PAPERS])
}

fn table(grid: &Grid<'_>, here: &[usize], key: &str, name: impl Fn(usize) -> Value) -> Table {
    let mut columns = vec![(key, Unit::None)];
    columns.extend(grid.controllers.iter().map(|name| (*name, Unit::Rate)));
    columns.extend([("limit", Unit::Rate), ("boost / bbr", Unit::Ratio)]);
    let mut table = Table::new("Goodput of 500 MB over 1 Gbit/s, one flow", &columns);
    for &cell in here {
        let mut row = vec![name(cell)];
        row.extend(grid.controllers.iter().map(|name| Value::from(grid.goodput(cell, name))));
        row.push(limit(&grid.cells[cell]).into());
        row.push(grid.ratio(cell, "boost", "bbr").into());
        table.row(row);
    }
    table
}

type Points<'a> = dyn Fn(&dyn Fn(usize) -> Spread) -> Vec<(f64, Spread)> + 'a;

fn chart(title: String, x: Axis, grid: &Grid<'_>, points: &Points<'_>) -> Chart {
    let mut series: Vec<Series> = grid
        .controllers
        .iter()
        .map(|name| Series::spreads(*name, Unit::Rate, points(&|cell| grid.goodput(cell, name))))
        .collect();
    let most = points(&|cell| Spread::exactly(limit(&grid.cells[cell])));
    series.push(Series::spreads("limit", Unit::Rate, most).styled(Style::Limit));
    Chart { title, x, y: Axis::linear("goodput, Mbit/s"), series }
}

/// What the link allows the whole transfer, bit/s.
fn limit(cell: &Cell) -> f64 {
    let bytes = cell.bytes.unwrap_or(Bytes(1));
    cell.scenario.limit_of(cell.scenario.data(), bytes, cell.scenario.tcp.mss).as_f64()
}

fn mean_over(grid: &Grid<'_>, name: &str) -> Spread {
    Spread::of(&(0..grid.cells.len()).map(|cell| grid.goodput(cell, name).mean).collect::<Vec<_>>())
}

/// 500 MB are half a million packets there and back, whatever the link.
fn cost(_: &Cell) -> f64 {
    0.35
}

fn plain(percent: f64) -> String {
    let text = format!("{percent:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn quick_note() -> String {
    "With --quick only some delays and losses, one seed, and only the paper's four controllers.".to_owned()
}

/// Short delays, where the paper sees boost and bbr nearly equal.
const SHORT: Duration = Duration::from_millis(20);
