//! One aligned table of text.

use std::fmt;

/// A table with a header; columns are as wide as their widest cell.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Line>,
}

/// A column: its header, which names the unit, and how its cells are aligned.
#[derive(Clone, Debug)]
struct Column {
    header: String,
    align: Align,
}

/// How the cells of a column stand below each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers, by their decimal point.
    Point,
}

#[derive(Clone, Debug)]
struct Line {
    best: bool,
    cells: Vec<String>,
}

impl Table {
    /// An empty table.
    pub fn new(columns: &[(&str, Align)]) -> Table {
        let columns =
            columns.iter().map(|(header, align)| Column { header: (*header).to_owned(), align: *align });
        Table { columns: columns.collect(), rows: Vec::new() }
    }

    /// Adds a row; a missing cell stays empty, the best row is marked with a star.
    pub fn row(&mut self, best: bool, cells: Vec<String>) {
        self.rows.push(Line { best, cells });
    }

    fn cell<'a>(&self, line: &'a Line, column: usize) -> &'a str {
        line.cells.get(column).map_or("", String::as_str)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![String::from(" "); self.rows.len() + 1];
        for (line, row) in lines.iter_mut().skip(1).zip(&self.rows) {
            if row.best {
                *line = String::from("*");
            }
        }
        for (index, column) in self.columns.iter().enumerate() {
            let cells: Vec<&str> = self.rows.iter().map(|row| self.cell(row, index)).collect();
            if cells.iter().all(|cell| cell.is_empty()) {
                continue;
            }
            let cells = match column.align {
                Align::Left => cells.into_iter().map(str::to_owned).collect(),
                Align::Point => at_the_point(&cells),
            };
            let width = cells.iter().map(|cell| count(cell)).max().unwrap_or(0).max(count(&column.header));
            for (line, cell) in lines.iter_mut().zip(std::iter::once(&column.header).chain(&cells)) {
                let gap = " ".repeat(width - count(cell));
                match column.align {
                    Align::Left => line.push_str(&format!(" {cell}{gap} ")),
                    Align::Point => line.push_str(&format!(" {gap}{cell} ")),
                }
            }
        }
        for line in lines {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Pads the right side so that all decimal points fall on one column.
fn at_the_point(cells: &[&str]) -> Vec<String> {
    let behind = |cell: &str| cell.find('.').map_or(0, |point| count(&cell[point..]));
    let longest = cells.iter().map(|cell| behind(cell)).max().unwrap_or(0);
    cells.iter().map(|cell| format!("{cell}{}", " ".repeat(longest - behind(cell)))).collect()
}

fn count(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stand_below_each_other_and_the_best_row_has_a_star() {
        let mut table =
            Table::new(&[("scheme", Align::Left), ("Mbit/s", Align::Point), ("note", Align::Left)]);
        table.row(false, vec!["direct:cubic".into(), "0.48".into(), "stopped".into()]);
        table.row(true, vec!["skyhaul:rate".into(), "131.2".into()]);
        table.row(false, vec!["paper".into(), "~115".into()]);
        let expected = "  scheme         Mbit/s  note\n  \
                        direct:cubic     0.48  stopped\n\
                        * skyhaul:rate   131.2\n  \
                        paper         ~115\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn a_column_without_content_is_left_out() {
        let mut table = Table::new(&[("a", Align::Left), ("b", Align::Point)]);
        table.row(false, vec!["x".into(), String::new()]);
        assert_eq!(table.to_string(), "  a\n  x\n");
    }
}
