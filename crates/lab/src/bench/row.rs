//! Rows of the tables: what was measured, what was to be reached, whether it was.

use skyhaul_cc::registry::Contender;
use skyhaul_cc::StartMode;

use super::{Bench, Cell, Host, Run};
use crate::figure::Spread;

/// A cell with a contender.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the cell.
    pub cell: String,
    /// The link in words.
    pub link: String,
    /// What carried the packets: a [`Host`], or `proxies` and `kernel` on hosts.
    pub host: String,
    /// Name of the controller.
    pub controller: String,
    /// What it was told of the path.
    pub start: StartMode,
    /// Payload rate, bit/s.
    pub goodput: Spread,
    /// Payload rate that nobody can exceed, bit/s.
    pub floor: f64,
    /// 95 % of the time the queue was shorter than this, in seconds: mean over the runs.
    pub queue_p95: Option<f64>,
    /// Packets per run that the queue had no room for.
    pub drops: f64,
    /// How many runs.
    pub seeds: u32,
    /// What was measured, the main thing first.
    pub measures: Vec<Measure>,
    /// Share by which the best of the other controllers from cold is ahead, not above zero if none is. Only for
    /// files, and only where there are others.
    pub behind_best: Option<f64>,
    /// Why a run could not go on.
    pub failure: Option<String>,
}

/// Something that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// Such as `jain`; with the unit at its end where it has one.
    pub name: &'static str,
    /// Over the runs; nothing if it did not happen in each of them.
    pub value: Option<Spread>,
    /// What to reach.
    pub goal: Option<Goal>,
}

/// What to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Not less.
    AtLeast(f64),
    /// Not more.
    AtMost(f64),
    /// Both ends included.
    Between(f64, f64),
}

/// A value of a row for machines.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// Words.
    Text(String),
    /// A number, or none.
    Number(Option<f64>),
    /// A count.
    Count(u64),
    /// Yes, no, or neither.
    Truth(Option<bool>),
    /// Lower and upper end, or none.
    Range(Option<(f64, f64)>),
}

impl Goal {
    /// Whether a value reaches it.
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(least) => value >= least,
            Goal::AtMost(most) => value <= most,
            Goal::Between(least, most) => (least..=most).contains(&value),
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Goal::AtLeast(_) => "at least",
            Goal::AtMost(_) => "at most",
            Goal::Between(..) => "between",
        }
    }

    fn field(goal: Option<Goal>) -> Field {
        match goal {
            None => Field::Number(None),
            Some(Goal::AtLeast(value) | Goal::AtMost(value)) => Field::Number(Some(value)),
            Some(Goal::Between(least, most)) => Field::Range(Some((least, most))),
        }
    }
}

impl Measure {
    /// Whether the mean reaches the goal; nothing without a goal.
    pub fn passes(&self) -> Option<bool> {
        let goal = self.goal?;
        Some(self.value.is_some_and(|value| goal.is_met(value.mean)))
    }
}

impl Row {
    /// Whether all goals are reached; nothing if there are none.
    pub fn passes(&self) -> Option<bool> {
        let mut passed = self.measures.iter().filter_map(Measure::passes).peekable();
        passed.peek()?;
        Some(passed.all(|passed| passed) && self.failure.is_none())
    }

    /// Goodput over the floor.
    pub fn fraction(&self) -> f64 {
        self.goodput.mean / self.floor.max(f64::MIN_POSITIVE)
    }

    /// Names with units and values, for JSON and CSV. `value`, `ci95` and `goal` are those of the first measure.
    pub fn fields(&self) -> Vec<(String, Field)> {
        let text = |text: &str| Field::Text(text.to_owned());
        let main = self.measures.first();
        let value = main.and_then(|main| main.value);
        let goal = main.and_then(|main| main.goal);
        let mut fields = vec![
            ("cell", text(&self.cell)),
            ("link", text(&self.link)),
            ("host", text(&self.host)),
            ("controller", text(&self.controller)),
            ("start", text(self.start.name())),
            ("measure", text(main.map_or("", |main| main.name))),
            ("value", Field::Number(value.map(|value| value.mean))),
            ("ci95", Field::Range(value.map(|value| (value.low, value.high)))),
            ("goal", Goal::field(goal)),
            ("goal_is", text(goal.map_or("", Goal::kind))),
            ("pass", Field::Truth(self.passes())),
            ("goodput_bit_per_s", Field::Number(Some(self.goodput.mean))),
            ("floor_bit_per_s", Field::Number(Some(self.floor))),
            ("fraction", Field::Number(Some(self.fraction()))),
            ("queue_p95_ms", Field::Number(self.queue_p95.map(|seconds| seconds * 1e3))),
            ("drops", Field::Number(Some(self.drops))),
            ("seeds", Field::Count(self.seeds.into())),
        ];
        if main.is_some_and(|main| main.name == GOODPUT) {
            fields.push(("goal_bit_per_s", Goal::field(goal)));
            fields.push(("best", Field::Truth(self.behind_best.map(|behind| behind <= 0.0))));
            fields.push(("behind_best", Field::Number(self.behind_best)));
        }
        fields.push(("error", text(self.failure.as_deref().unwrap_or_default())));
        let mut fields: Vec<(String, Field)> =
            fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
        for measure in self.measures.iter().filter(|measure| measure.name != GOODPUT) {
            let Measure { name, value, goal } = measure;
            if !fields.iter().any(|(known, _)| known == name) {
                fields.push(((*name).to_owned(), Field::Number(value.map(|value| value.mean))));
            }
            fields.push((format!("{name}_ci95"), Field::Range(value.map(|value| (value.low, value.high)))));
            if goal.is_some() {
                fields.push((format!("{name}_goal"), Goal::field(*goal)));
                fields.push((format!("{name}_pass"), Field::Truth(measure.passes())));
            }
        }
        fields
    }
}

/// The measure that is the goodput itself.
pub const GOODPUT: &str = "goodput_bit_per_s";

/// The row of a job.
pub(super) fn of(
    bench: Bench,
    cell: &dyn Cell,
    host: Host,
    contender: &Contender,
    results: &[Result<Run, String>],
) -> Row {
    let runs: Vec<&Run> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    let spread = |of: &dyn Fn(&Run) -> f64| Spread::of(&runs.iter().map(|run| of(run)).collect::<Vec<_>>());
    let goodput = spread(&|run| run.goodput);
    let asks = cell.asks(contender);
    let measures = asks.iter().enumerate().map(|(index, ask)| {
        let values: Option<Vec<f64>> =
            runs.iter().map(|run| run.values.get(index).copied().flatten()).collect();
        let value = values.filter(|values| !values.is_empty()).map(|values| Spread::of(&values));
        Measure { name: ask.name, value, goal: ask.goal }
    });
    let queues: Option<Vec<f64>> = runs.iter().map(|run| run.queue_p95).collect();
    let drops: u64 = runs.iter().map(|run| run.drops).sum();
    debug_assert!(bench != Bench::Limits || asks.first().is_some_and(|ask| ask.name == GOODPUT));
    Row {
        cell: cell.id().to_owned(),
        link: cell.about(),
        host: host.name().to_owned(),
        controller: contender.controller.clone(),
        start: contender.start,
        goodput,
        floor: cell.floor(host).as_f64(),
        queue_p95: queues.filter(|queues| !queues.is_empty()).map(|queues| Spread::of(&queues).mean),
        drops: drops as f64 / runs.len().max(1) as f64,
        seeds: results.len() as u32,
        measures: measures.collect(),
        behind_best: None,
        failure: results.iter().find_map(|result| result.as_ref().err().cloned()),
    }
}

/// Programs on hosts, whoever carries the bytes, compete with each other.
fn is_real(host: &str) -> bool {
    Host::ALL.iter().all(|simulated| simulated.name() != host)
}

/// Fills in how far each row is behind the best of the other controllers in the same cell on the same host, from cold.
pub fn compare(rows: &mut [Row]) {
    let best: Vec<Option<f64>> = rows
        .iter()
        .map(|row| {
            let others = rows.iter().filter(|other| {
                other.cell == row.cell
                    && (other.host == row.host || (is_real(&row.host) && is_real(&other.host)))
                    && other.start == StartMode::Cold
                    && other.controller != row.controller
            });
            others.map(|other| other.goodput.mean).max_by(f64::total_cmp)
        })
        .collect();
    for (row, best) in rows.iter_mut().zip(best) {
        row.behind_best = best.filter(|best| *best > 0.0).map(|best| 1.0 - row.goodput.mean / best);
    }
}
