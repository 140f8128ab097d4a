//! For machines: JSON with everything, CSV with a line for each number.

use serde::Serialize;
use serde_json::{json, Map, Value as Json};
use skyhaul_lab::compare::{Answer, Claim, Ours, Published};
use skyhaul_lab::figure::{Column, Figure, Series, Spread, Table, Value};

use super::unit;
use crate::commands::paper::Made;
use crate::failure::Failure;
use crate::screen::rows;

/// One document: papers, their figures, tables, charts and answers. Numbers are in the unit that the end of
/// their name says.
pub fn json(made: &[Made]) -> Result<String, Failure> {
    let papers: Vec<Json> = made
        .iter()
        .map(|made| {
            json!({
                "paper": made.paper.name,
                "title": made.paper.title,
                "published_in": made.paper.published_in,
                "figures": made.figures.iter().map(|it| figure(made, it)).collect::<Vec<_>>(),
                "unanswered": made.unanswered().map(|value| value.id.as_str()).collect::<Vec<_>>(),
            })
        })
        .collect();
    let mut text = serde_json::to_string_pretty(&papers).map_err(Failure::request)?;
    text.push('\n');
    Ok(text)
}

fn figure(made: &Made, figure: &Figure) -> Json {
    let answers: Vec<Json> = figure
        .answers
        .iter()
        .filter_map(|answer| {
            let published = made.published.iter().find(|published| published.id == answer.row)?;
            Some(compared(published, answer))
        })
        .collect();
    let charts = figure.charts.iter().map(|chart| {
        json!({
            "title": chart.title, "x": chart.x.label, "y": chart.y.label,
            "series": chart.series.iter().map(series).collect::<Vec<_>>(),
        })
    });
    json!({
        "figure": figure.id,
        "title": figure.title,
        "tables": figure.tables.iter().map(table).collect::<Vec<_>>(),
        "charts": charts.collect::<Vec<_>>(),
        "published": answers,
        "notes": figure.notes,
    })
}

fn table(table: &Table) -> Json {
    let row = |row: &Vec<Value>| {
        let cells = row.iter().zip(&table.columns).map(|(value, column)| (key(column), cell(value)));
        Json::Object(cells.collect::<Map<String, Json>>())
    };
    json!({ "title": table.title, "rows": table.rows.iter().map(row).collect::<Vec<_>>() })
}

fn cell(value: &Value) -> Json {
    match value {
        Value::Empty => Json::Null,
        Value::Text(text) => json!(text),
        Value::Count(count) => json!(count),
        Value::Number(number) => json!(number),
        Value::Spread(spread) => spread_of(spread),
    }
}

fn spread_of(spread: &Spread) -> Json {
    json!({ "mean": spread.mean, "ci95": [spread.low, spread.high], "runs": spread.runs })
}

fn series(series: &Series) -> Json {
    let points = series.points.iter().map(|point| match point.interval {
        None => json!([point.x, point.y]),
        Some((low, high)) => json!([point.x, point.y, low, high]),
    });
    json!({ "name": series.name, "points": points.collect::<Vec<_>>() })
}

fn compared(published: &Published, answer: &Answer) -> Json {
    let claim = match &published.claim {
        Claim::Statement(words) => json!(words),
        Claim::Number { low, high, .. } if low == high => json!(low),
        Claim::Number { low, high, .. } => json!([low, high]),
    };
    let ours = match &answer.ours {
        Ours::Measured(spread) => spread_of(spread),
        Ours::Words(words) => json!(words),
        Ours::Nothing => Json::Null,
    };
    json!({
        "id": published.id, "scenario": published.scenario, "metric": published.metric,
        "algorithm": published.algorithm, "where": published.found, "unit": unit(published).suffix(),
        "published": claim, "published_text": published.text(), "ours": ours, "limit": answer.limit,
        "ratio": answer.ratio(published), "verdict": answer.verdict.name(), "why": answer.why,
    })
}

/// The name of a column for machines: `goodput_bit_per_s`.
fn key(column: &Column) -> String {
    let plain = |c: char| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let name: String = column.name.chars().map(plain).collect();
    match column.unit.suffix() {
        "" => name,
        suffix => format!("{name}_{suffix}"),
    }
}

#[derive(Serialize)]
struct Line<'a> {
    paper: &'a str,
    figure: &'a str,
    table: &'a str,
    row: usize,
    column: String,
    value: String,
    low: Option<f64>,
    high: Option<f64>,
    runs: Option<usize>,
}

/// A line for each cell of each table; the answers are the table `published`.
pub fn csv(made: &[Made]) -> Result<String, Failure> {
    let mut lines = Vec::new();
    for made in made {
        for figure in &made.figures {
            let line = |table, row, column: String, value: &Value| {
                let spread = if let Value::Spread(spread) = value { Some(spread) } else { None };
                Line {
                    paper: made.paper.name,
                    figure: figure.id,
                    table,
                    row,
                    column,
                    value: plain(value),
                    low: spread.map(|spread| spread.low),
                    high: spread.map(|spread| spread.high),
                    runs: spread.map(|spread| spread.runs),
                }
            };
            for table in &figure.tables {
                for (index, row) in table.rows.iter().enumerate() {
                    let cells = row.iter().zip(&table.columns);
                    lines.extend(cells.map(|(value, column)| line(&table.title, index, key(column), value)));
                }
            }
            for (index, answer) in figure.answers.iter().enumerate() {
                let ours = match &answer.ours {
                    Ours::Measured(spread) => Value::Spread(*spread),
                    Ours::Words(words) => Value::Text(words.clone()),
                    Ours::Nothing => Value::Empty,
                };
                let published = made.published.iter().find(|published| published.id == answer.row);
                let theirs = published.map_or(String::new(), Published::text);
                for (column, value) in [
                    ("id", Value::from(answer.row.as_str())),
                    ("published", Value::from(theirs)),
                    ("ours", ours),
                    ("limit", answer.limit.map_or(Value::Empty, Value::from)),
                    ("verdict", Value::from(answer.verdict.name())),
                    ("why", Value::from(answer.why.as_str())),
                ] {
                    lines.push(line("published", index, column.to_owned(), &value));
                }
            }
        }
    }
    rows::csv(&lines)
}

fn plain(value: &Value) -> String {
    match value {
        Value::Empty => String::new(),
        Value::Text(text) => text.clone(),
        Value::Count(count) => count.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Spread(spread) => spread.mean.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::paper::make;
    use skyhaul_lab::experiment::Effort;
    use skyhaul_lab::hybic;

    #[test]
    fn machines_get_names_with_units_and_whole_numbers() {
        let made = make(&[&hybic::PAPER], None, &Effort::quick()).unwrap();
        let json: Json = serde_json::from_str(&json(&made).unwrap()).unwrap();
        let figure = &json[0]["figures"][0];
        assert_eq!(figure["figure"], "table-1");
        let rate = figure["tables"][0]["rows"][2]["true_rate_bit_per_s"].as_f64().unwrap();
        assert!((rate / 48.6e6 - 1.0).abs() < 0.01, "{rate}");
        assert_eq!(figure["published"][0]["verdict"], "holds");
        let csv = csv(&made).unwrap();
        assert!(csv.starts_with("paper,figure,table,row,column,value,low,high,runs\n"), "{csv}");
        assert!(csv.contains("hybic,table-1,published,0,verdict,holds,"), "{csv}");
    }
}
