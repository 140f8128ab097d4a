//! Tables of `skyhaul bench` for people and for machines.

use serde::ser::{Serialize, SerializeMap, Serializer};
use skyhaul_cc::registry::Contender;
use skyhaul_lab::bench::{Bench, Field, Goal, Measure, Row, GOODPUT};

use super::table::{Align, Table};
use crate::failure::Failure;
use crate::screen::rows;

/// An aligned table, the links below it.
pub fn text(bench: Bench, results: &[Row]) -> String {
    let sheet = Sheet::of(results);
    let columns: Vec<(&str, Align)> =
        sheet.columns.iter().map(|(name, align)| (name.as_str(), *align)).collect();
    let mut table = Table::new(&columns);
    for (row, cells) in results.iter().zip(sheet.rows) {
        table.row(is_best(row), cells);
    }
    let mut text = format!("{}; {}\n{table}", bench.title(), runs(results));
    if results.iter().any(is_best) {
        text.push_str("* best\n");
    }
    for line in links(results).into_iter().chain(failures(results)) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The same for a page of documentation.
pub fn markdown(bench: Bench, results: &[Row]) -> String {
    let sheet = Sheet::of(results);
    let filled = |index: usize| sheet.rows.iter().any(|row| !row[index].is_empty());
    let shown: Vec<usize> = (0..sheet.columns.len()).filter(|index| filled(*index)).collect();
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let mut text = format!("{}; {}.\n\n", bench.title(), runs(results));
    text.push_str(&line(shown.iter().map(|index| sheet.columns[*index].0.as_str()).collect()));
    let rule = |align: Align| if align == Align::Point { "---:" } else { "---" };
    text.push_str(&line(shown.iter().map(|index| rule(sheet.columns[*index].1)).collect()));
    for (row, cells) in results.iter().zip(&sheet.rows) {
        let cells: Vec<String> = shown.iter().map(|index| cells[*index].replace('|', "\\|")).collect();
        let cells: Vec<String> = match is_best(row) {
            true => cells.into_iter().map(|cell| bold(&cell)).collect(),
            false => cells,
        };
        text.push_str(&line(cells.iter().map(String::as_str).collect()));
    }
    text.push('\n');
    for line in links(results).into_iter().chain(failures(results)) {
        text.push_str(&format!("- {line}\n"));
    }
    text
}

fn bold(cell: &str) -> String {
    if cell.is_empty() {
        String::new()
    } else {
        format!("**{cell}**")
    }
}

/// One array, an object for each row, names in the order of [`Row::fields`].
pub fn json(results: &[Row]) -> Result<String, Failure> {
    rows::json(&results.iter().map(|row| Object(row.fields())).collect::<Vec<_>>())
}

/// A header with the names of all rows and a line for each row; ranges are `0.25..0.75`.
pub fn csv(results: &[Row]) -> Result<String, Failure> {
    let all: Vec<Vec<(String, Field)>> = results.iter().map(Row::fields).collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in all.iter().flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let failure = |error: csv::Error| Failure::request(format!("cannot write CSV: {error}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&names).map_err(failure)?;
    for fields in &all {
        let value = |name: &&str| {
            fields.iter().find(|(known, _)| known == name).map_or(String::new(), |f| plain(&f.1))
        };
        writer.write_record(names.iter().map(value)).map_err(failure)?;
    }
    let bytes =
        writer.into_inner().map_err(|error| Failure::request(format!("cannot write CSV: {error}")))?;
    String::from_utf8(bytes).map_err(|error| Failure::request(format!("cannot write CSV: {error}")))
}

fn plain(field: &Field) -> String {
    match field {
        Field::Text(text) => text.clone(),
        Field::Number(number) => number.map_or(String::new(), |number| number.to_string()),
        Field::Count(count) => count.to_string(),
        Field::Truth(truth) => truth.map_or(String::new(), |truth| truth.to_string()),
        Field::Range(range) => range.map_or(String::new(), |(low, high)| format!("{low}..{high}")),
    }
}

struct Object(Vec<(String, Field)>);

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, field) in &self.0 {
            match field {
                Field::Text(text) => map.serialize_entry(name, text)?,
                Field::Number(number) => map.serialize_entry(name, number)?,
                Field::Count(count) => map.serialize_entry(name, count)?,
                Field::Truth(truth) => map.serialize_entry(name, truth)?,
                Field::Range(range) => map.serialize_entry(name, range)?,
            }
        }
        map.end()
    }
}

/// Cells as people read them.
struct Sheet {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Sheet {
    fn of(results: &[Row]) -> Sheet {
        let mut names: Vec<&'static str> = Vec::new();
        for measure in results.iter().flat_map(|row| &row.measures) {
            if !names.contains(&measure.name) {
                names.push(measure.name);
            }
        }
        let files = names.contains(&GOODPUT);
        let number = |name: &str| (name.to_owned(), Align::Point);
        let word = |name: &str| (name.to_owned(), Align::Left);
        let mut columns = vec![word("cell"), word("on"), word("controller")];
        columns.extend(names.iter().map(|name| number(&heading(name))));
        columns.push(number("± 95 %"));
        columns.push(word("goal"));
        columns.push(word("reached"));
        columns.extend((!files).then(|| number("Mbit/s")));
        columns.extend([number("limit"), number("% of limit"), number("queue p95 ms"), number("drops")]);
        columns.push(number("behind best %"));
        // What all rows are measured on needs no column.
        let alike = results.iter().all(|row| row.host == results[0].host);
        let rows = results.iter().map(|row| {
            let mut cells =
                vec![row.cell.clone(), if alike { String::new() } else { row.host.clone() }, who(row)];
            for name in &names {
                let measure = row.measures.iter().find(|measure| measure.name == *name);
                cells.push(measure.map_or(String::new(), value));
            }
            let main = row.measures.first();
            let half = main.and_then(|main| Some((main.name, main.value.filter(|value| value.runs > 1)?)));
            cells.push(
                half.map_or(String::new(), |(name, value)| shown(name, (value.high - value.low) / 2.0)),
            );
            cells.push(goals(&row.measures));
            cells.push(reached(row));
            cells.extend((!files).then(|| shown(GOODPUT, row.goodput.mean)));
            cells.push(shown(GOODPUT, row.floor));
            cells.push(format!("{:.2}", row.fraction() * 100.0));
            // Where the queue has a goal it has a column already.
            let queue = row.queue_p95.filter(|_| !names.contains(&"queue_p95_ms"));
            cells.push(queue.map_or(String::new(), |queue| format!("{:.1}", queue * 1e3)));
            cells.push(if names.contains(&"queue_drops") {
                String::new()
            } else {
                format!("{:.0}", row.drops)
            });
            cells.push(row.behind_best.map_or(String::new(), |behind| format!("{:.2}", behind * 100.0)));
            cells
        });
        let rows = rows.collect();
        Sheet { columns, rows }
    }
}

/// Whether all goals are reached, and which of several are not.
fn reached(row: &Row) -> String {
    let missed = row.measures.iter().filter(|measure| measure.passes() == Some(false));
    let missed: Vec<String> = missed.map(|measure| heading(measure.name)).collect();
    match row.passes() {
        None => String::new(),
        Some(true) => "yes".to_owned(),
        Some(false) if row.measures.len() == 1 || missed.is_empty() => "no".to_owned(),
        Some(false) => format!("not {}", missed.join(", ")),
    }
}

fn who(row: &Row) -> String {
    Contender { controller: row.controller.clone(), start: row.start }.to_string()
}

/// The name of a measure with its unit apart.
fn heading(name: &str) -> String {
    match name {
        GOODPUT => "Mbit/s".to_owned(),
        name => match name.strip_suffix("_ms") {
            Some(name) => format!("{} ms", name.replace('_', " ")),
            None => name.replace('_', " "),
        },
    }
}

fn value(measure: &Measure) -> String {
    measure.value.map_or("never".to_owned(), |value| shown(measure.name, value.mean))
}

/// Four digits of what is told apart by them.
fn shown(name: &str, value: f64) -> String {
    match name {
        GOODPUT => {
            let mbit = value / 1e6;
            let digits = if mbit.abs() < 15.0 { 3 } else { 1 };
            format!("{mbit:.digits$}")
        }
        "queue_drops" => format!("{value:.0}"),
        name if name.ends_with("_ms") => format!("{value:.1}"),
        name if name.starts_with("seconds") || name.ends_with("_rtt") => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn goals(measures: &[Measure]) -> String {
    let mut goals = Vec::new();
    for measure in measures {
        let text = |value: f64| match measure.name {
            GOODPUT | "queue_drops" => shown(measure.name, value),
            _ => format!("{}", (value * 1e4).round() / 1e4),
        };
        // A column of one measure needs no name.
        let name = if measures.len() == 1 { String::new() } else { format!("{} ", heading(measure.name)) };
        match measure.goal {
            None => {}
            Some(Goal::AtLeast(least)) => goals.push(format!("{name}≥ {}", text(least))),
            Some(Goal::AtMost(most)) => goals.push(format!("{name}≤ {}", text(most))),
            Some(Goal::Between(least, most)) => {
                goals.push(format!("{name}{} to {}", text(least), text(most)))
            }
        }
    }
    goals.join(", ")
}

fn is_best(row: &Row) -> bool {
    row.behind_best.is_some_and(|behind| behind <= 0.0)
}

fn runs(results: &[Row]) -> String {
    match results.first().map_or(0, |row| row.seeds) {
        1 => "one run per row".to_owned(),
        runs => format!("{runs} runs per row"),
    }
}

/// What the cells are, each once.
fn links(results: &[Row]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in results {
        let line = format!("{}: {}", row.cell, row.link);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn failures(results: &[Row]) -> Vec<String> {
    let failed = results.iter().filter_map(|row| Some((row, row.failure.as_ref()?)));
    failed.map(|(row, why)| format!("FAILED: {} with {}: {why}", row.cell, who(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value as Json;
    use skyhaul_cc::StartMode;
    use skyhaul_lab::figure::Spread;

    fn row(controller: &str, goodput: f64, goal: f64) -> Row {
        let value = Spread { mean: goodput, low: goodput - 1e5, high: goodput + 1e5, runs: 5 };
        Row {
            cell: "gigabit-20-0".to_owned(),
            link: "1 Gbit/s, 20 ms".to_owned(),
            host: "tcp".to_owned(),
            controller: controller.to_owned(),
            start: StartMode::Cold,
            goodput: value,
            floor: 939.3e6,
            queue_p95: Some(0.0024),
            drops: 0.0,
            seeds: 5,
            measures: vec![Measure { name: GOODPUT, value: Some(value), goal: Some(Goal::AtLeast(goal)) }],
            behind_best: Some(1.0 - goodput / 903e6),
            failure: None,
        }
    }

    #[test]
    fn machines_get_every_promised_name_and_pass_follows_from_the_numbers() {
        let rows = [row("skyhaul", 933e6, 932e6), row("bbr", 903e6, 932e6)];
        let json: Json = serde_json::from_str(&json(&rows).unwrap()).unwrap();
        let keys = [
            "cell",
            "controller",
            "start",
            "goodput_bit_per_s",
            "floor_bit_per_s",
            "fraction",
            "queue_p95_ms",
            "ci95",
            "seeds",
            "goal",
            "goal_bit_per_s",
            "pass",
            "best",
            "behind_best",
            "host",
        ];
        for (index, passes) in [(0, true), (1, false)] {
            for key in keys {
                assert!(json[index].get(key).is_some(), "{key} is missing: {json}");
            }
            assert_eq!(json[index]["pass"], passes);
        }
        assert_eq!(json[0]["ci95"][1], 933.1e6);
        let csv = csv(&rows).unwrap();
        assert!(csv.starts_with("cell,link,host,controller,start,measure,value,ci95,goal,"), "{csv}");
        assert_eq!(csv.lines().count(), 3);
    }

    #[test]
    fn people_get_goals_and_the_best_row_marked() {
        let rows = [row("skyhaul", 933e6, 932e6), row("bbr", 903e6, 932e6)];
        let page = text(Bench::Limits, &rows);
        assert!(page.contains("* gigabit-20-0  skyhaul"), "{page}");
        assert!(page.contains("≥ 932.0") && page.contains("gigabit-20-0: 1 Gbit/s, 20 ms"), "{page}");
        let page = markdown(Bench::Limits, &rows);
        assert!(page.contains("| **933.0** |") && page.contains("| ---: |"), "{page}");
    }
}
