//! Figures of papers as text, Markdown, HTML, JSON and CSV.

mod html;
mod machine;
mod page;

use skyhaul_lab::compare::{Answer, Claim, Ours, Published, Verdict};
use skyhaul_lab::figure::{Unit, Value};

use crate::commands::paper::Made;

pub use html::html;
pub use machine::{csv, json};
pub use page::{markdown, text};

/// The columns of a table of answers.
const COLUMNS: [&str; 8] = [
    "scenario",
    "metric",
    "algorithm",
    "published",
    "ours (95 % interval)",
    "ours / theirs",
    "limit",
    "verdict",
];

/// Verdicts in the order of a summary.
const VERDICTS: [Verdict; 5] =
    [Verdict::Holds, Verdict::Partly, Verdict::Differs, Verdict::RealStack, Verdict::NotReproducible];

/// A published value and its answer as cells under [`COLUMNS`].
fn cells(published: &Published, answer: Option<&Answer>) -> Vec<String> {
    let unit = unit(published);
    let ours = match answer.map(|answer| &answer.ours) {
        Some(Ours::Measured(spread)) => with_symbol(unit, unit.spread(spread)),
        Some(Ours::Words(words)) => words.clone(),
        Some(Ours::Nothing) | None => String::new(),
    };
    let ratio = answer.and_then(|answer| answer.ratio(published));
    let limit = answer.and_then(|answer| answer.limit);
    vec![
        published.scenario.clone(),
        published.metric.clone(),
        published.algorithm.clone(),
        published.text(),
        ours,
        ratio.map_or(String::new(), |ratio| Unit::Ratio.text(ratio)),
        limit.map_or(String::new(), |limit| with_symbol(unit, unit.text(limit))),
        answer.map_or("no answer", |answer| answer.verdict.name()).to_owned(),
    ]
}

/// The unit of a published value.
fn unit(published: &Published) -> Unit {
    match published.claim {
        Claim::Number { unit, .. } => unit,
        Claim::Statement(_) => Unit::None,
    }
}

fn with_symbol(unit: Unit, text: String) -> String {
    match unit.symbol() {
        "" => text,
        symbol => format!("{text} {symbol}"),
    }
}

/// A cell of a table as people read it.
fn shown(value: &Value, unit: Unit) -> String {
    match value {
        Value::Empty => String::new(),
        Value::Text(text) => text.clone(),
        Value::Count(count) => count.to_string(),
        Value::Number(number) => unit.text(*number),
        Value::Spread(spread) => unit.spread(spread),
    }
}

/// How many values of a paper have each verdict.
fn counts(made: &Made) -> [usize; VERDICTS.len()] {
    let answers = || made.figures.iter().flat_map(|figure| &figure.answers);
    VERDICTS.map(|verdict| answers().filter(|answer| answer.verdict == verdict).count())
}
