//! For people: text for a terminal, Markdown for a page.

use std::fmt::Write;

use skyhaul_lab::figure::{Column, Figure, Value};

use super::{cells, counts, shown, COLUMNS, VERDICTS};
use crate::commands::paper::Made;
use crate::screen::table::{Align, Table};

/// Aligned tables.
pub fn text(made: &[Made]) -> String {
    render(made, &Text)
}

/// Markdown, as in docs/papers.md.
pub fn markdown(made: &[Made]) -> String {
    render(made, &Markdown)
}

/// How the parts of a page look.
trait Look {
    fn heading(&self, level: usize, words: &str) -> String;
    fn table(&self, header: &[String], numbers: &[bool], rows: &[Vec<String>]) -> String;
    fn paragraph(&self, words: &str) -> String;
    /// Published values with their cells and, where there is one, the reason for the verdict.
    fn answers(&self, answers: &[Answered]) -> String;
}

struct Answered {
    cells: Vec<String>,
    what: String,
    why: String,
}

struct Text;
struct Markdown;

fn render(made: &[Made], look: &dyn Look) -> String {
    let mut page = String::new();
    for made in made {
        page.push_str(&paper(made, look));
    }
    if made.iter().all(|made| made.whole) {
        page.push_str(&summary(made, look));
    }
    page
}

fn paper(made: &Made, look: &dyn Look) -> String {
    let mut page = look.heading(2, &format!("{}: {}", made.paper.name, made.paper.title));
    page.push_str(&look.paragraph(made.paper.published_in));
    for figure in &made.figures {
        page.push_str(&part(made, figure, look));
    }
    let missing: Vec<&str> = made.unanswered().map(|published| published.id.as_str()).collect();
    if !missing.is_empty() {
        page.push_str(&look.paragraph(&format!("Without an answer: {}.", missing.join(", "))));
    }
    page
}

fn part(made: &Made, figure: &Figure, look: &dyn Look) -> String {
    let mut page = look.heading(3, &format!("{}: {}", name(figure), figure.title));
    for table in &figure.tables {
        page.push_str(&look.paragraph(&table.title));
        let header: Vec<String> = table.columns.iter().map(header).collect();
        let rows: Vec<Vec<String>> = table
            .rows
            .iter()
            .map(|row| {
                row.iter().zip(&table.columns).map(|(value, column)| shown(value, column.unit)).collect()
            })
            .collect();
        let is_number = |index: usize| {
            let mut cells = table.rows.iter().filter_map(|row| row.get(index));
            cells.any(|value| matches!(value, Value::Count(_) | Value::Number(_) | Value::Spread(_)))
        };
        let numbers: Vec<bool> = (0..header.len()).map(is_number).collect();
        page.push_str(&look.table(&header, &numbers, &rows));
    }
    if !figure.answers.is_empty() {
        page.push_str(&look.paragraph("What the paper says, and ours"));
        let mut answers = Vec::new();
        for published in &made.published {
            for answer in figure.answers.iter().filter(|answer| answer.row == published.id) {
                let mut what = format!("{} {}", published.scenario, published.metric);
                if !published.algorithm.is_empty() {
                    what.push_str(&format!(", {}", published.algorithm));
                }
                answers.push(Answered {
                    cells: cells(published, Some(answer)),
                    what,
                    why: answer.why.clone(),
                });
            }
        }
        page.push_str(&look.answers(&answers));
    }
    for note in &figure.notes {
        page.push_str(&look.paragraph(note));
    }
    page
}

fn summary(made: &[Made], look: &dyn Look) -> String {
    let header: Vec<String> = ["paper", "values"]
        .into_iter()
        .chain(VERDICTS.iter().map(|verdict| verdict.name()))
        .chain(["without an answer"])
        .map(str::to_owned)
        .collect();
    let rows: Vec<Vec<String>> = made
        .iter()
        .map(|made| {
            let mut row = vec![made.paper.name.to_owned(), made.published.len().to_string()];
            row.extend(counts(made).iter().map(usize::to_string));
            row.push(made.unanswered().count().to_string());
            row
        })
        .collect();
    let mut numbers = vec![true; header.len()];
    numbers[0] = false;
    look.heading(2, "How many of the published values hold") + &look.table(&header, &numbers, &rows)
}

/// `Figure 9`, or the word that names it.
pub(super) fn name(figure: &Figure) -> String {
    let numbered = figure.id.starts_with(|c: char| c.is_ascii_digit());
    if numbered {
        format!("Figure {}", figure.id)
    } else {
        capital(&figure.id.replace('-', " "))
    }
}

pub(super) fn header(column: &Column) -> String {
    match column.unit.symbol() {
        "" => column.name.clone(),
        symbol => format!("{}, {symbol}", column.name),
    }
}

fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

impl Look for Text {
    fn heading(&self, level: usize, words: &str) -> String {
        let line = if level < 3 { "=" } else { "-" };
        format!("{words}\n{}\n", line.repeat(words.chars().count()))
    }

    fn table(&self, header: &[String], numbers: &[bool], rows: &[Vec<String>]) -> String {
        let align = |number: &bool| if *number { Align::Point } else { Align::Left };
        let columns: Vec<(&str, Align)> =
            header.iter().zip(numbers).map(|(name, number)| (name.as_str(), align(number))).collect();
        let mut table = Table::new(&columns);
        for row in rows {
            table.row(false, row.clone());
        }
        format!("{table}\n")
    }

    fn paragraph(&self, words: &str) -> String {
        hang("", words) + "\n"
    }

    /// A terminal has no room for statements beside each other.
    fn answers(&self, answers: &[Answered]) -> String {
        let mut text = String::new();
        for Answered { cells, what, why } in answers {
            let [_, _, _, published, ours, ratio, limit, verdict] = cells.as_slice() else { continue };
            let mut words = format!("{what}: paper: {published}");
            for (name, value) in
                [("ours", ours), ("ours / theirs", ratio), ("limit", limit), ("because", why)]
            {
                if !value.is_empty() {
                    words.push_str(&format!("; {name}: {value}"));
                }
            }
            text.push_str(&hang(&format!("  {verdict:<18}"), &words));
        }
        text + "\n"
    }
}

/// Words in lines that are not too long, the label before the first and as much room before the others.
fn hang(label: &str, words: &str) -> String {
    let mut text = label.to_owned();
    let indent = text.chars().count();
    let mut width = indent;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if width + 1 + length > LINE && width > indent {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            width = indent;
        } else if width > indent {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += length;
    }
    text + "\n"
}

/// Columns of a line of prose.
const LINE: usize = 110;

impl Look for Markdown {
    fn heading(&self, level: usize, words: &str) -> String {
        format!("{} {words}\n\n", "#".repeat(level))
    }

    fn table(&self, header: &[String], numbers: &[bool], rows: &[Vec<String>]) -> String {
        let mut table = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = String>| {
            table.push('|');
            for cell in cells {
                let _ = write!(table, " {} |", cell.replace('|', "\\|"));
            }
            table.push('\n');
        };
        line(&mut header.iter().cloned());
        line(&mut numbers.iter().map(|number| if *number { "---:" } else { "---" }.to_owned()));
        for row in rows {
            line(&mut (0..header.len()).map(|index| row.get(index).cloned().unwrap_or_default()));
        }
        table + "\n"
    }

    fn paragraph(&self, words: &str) -> String {
        format!("{words}\n\n")
    }

    fn answers(&self, answers: &[Answered]) -> String {
        let header = COLUMNS.map(str::to_owned);
        let rows: Vec<Vec<String>> = answers.iter().map(|answer| answer.cells.clone()).collect();
        let mut text = self.table(&header, &[false; COLUMNS.len()], &rows);
        for answer in answers.iter().filter(|answer| !answer.why.is_empty()) {
            let _ = writeln!(text, "- {}: {}", answer.what, answer.why);
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::paper::make;
    use skyhaul_lab::experiment::Effort;
    use skyhaul_lab::hybic;

    #[test]
    fn a_page_has_every_published_value_with_its_verdict() {
        let made = make(&[&hybic::PAPER], None, &Effort::quick()).unwrap();
        for page in [text(&made), markdown(&made)] {
            assert!(page.contains("23000 segments") && page.contains("60.0 %"), "{page}");
            assert!(page.contains("Table 1: Mean window") && page.contains("Figure 3: Windows"), "{page}");
            assert!(page.contains("How many of the published values hold"), "{page}");
        }
        let page = markdown(&made);
        let lines = page.lines().filter(|line| line.starts_with("| p4.analytic |")).count();
        assert_eq!(lines, made[0].published.len(), "{page}");
    }

    #[test]
    fn one_figure_has_no_summary_and_misses_nothing() {
        let made = make(&[&hybic::PAPER], Some("3"), &Effort::quick()).unwrap();
        let page = text(&made);
        assert!(!page.contains("How many") && !page.contains("Without an answer"), "{page}");
        assert!(page.contains("Figure 3") && !page.contains("Table 1"), "{page}");
    }
}
