//! Results of the comparison: kept as CSV, shown as Markdown.

use std::fmt::Write;

use super::plan::{Cell, Form, Job, CONTENDERS, STEP_CELLS};

/// What a run printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Payload delivered in order, bit/s.
    goodput: f64,
    /// The line as printed.
    line: String,
}

impl Figures {
    /// Of `goodput_bit_per_s,seconds,cuts,timeouts,window_segments`.
    pub fn parse(line: &str) -> Option<Figures> {
        let numbers: Option<Vec<f64>> = line.split(',').map(|number| number.parse().ok()).collect();
        let numbers = numbers.filter(|numbers| numbers.len() == 5)?;
        Some(Figures { goodput: numbers[0], line: line.to_owned() })
    }
}

/// A run and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    contender: String,
    form: Form,
    cell: Cell,
    seed: u32,
    figures: Figures,
}

impl Record {
    /// The result of `job`.
    pub fn of(job: &Job, figures: Figures) -> Record {
        let Job { form, cell, seed, .. } = *job;
        Record { contender: CONTENDERS[job.contender].ns3.to_owned(), form, cell, seed, figures }
    }
}

/// All results.
#[derive(Clone, Debug, PartialEq)]
pub struct Records {
    versions: String,
    records: Vec<Record>,
}

/// Names of the columns.
const HEADER: &str =
    "controller,form,rtt_ms,loss,seed,goodput_bit_per_s,seconds,cuts,timeouts,window_segments";
/// Ratios within this share of one agree.
const TOLERANCE: f64 = 0.15;

impl Records {
    /// Results made by `versions`.
    pub fn new(versions: String, mut records: Vec<Record>) -> Records {
        let place = |record: &Record| CONTENDERS.iter().position(|known| known.ns3 == record.contender);
        records.sort_by(|a, b| {
            let cells = (a.cell.rtt_ms, a.cell.loss).partial_cmp(&(b.cell.rtt_ms, b.cell.loss));
            let by_cell = cells.expect("losses are numbers");
            (place(a).cmp(&place(b))).then(by_cell).then((a.form, a.seed).cmp(&(b.form, b.seed)))
        });
        Records { versions, records }
    }

    /// The same with other results of ours.
    pub fn with_ours(mut self, ours: Vec<Record>) -> Records {
        self.records.retain(|record| record.form != Form::Ours);
        self.records.extend(ours);
        Records::new(self.versions, self.records)
    }

    /// As a file.
    pub fn to_csv(&self) -> String {
        let mut text = format!("# cargo xtask ns3, {}\n{HEADER}\n", self.versions);
        for Record { contender, form, cell, seed, figures } in &self.records {
            let Cell { rtt_ms, loss } = cell;
            let line = &figures.line;
            writeln!(text, "{contender},{form},{rtt_ms},{loss},{seed},{line}").expect("strings take all");
        }
        text
    }

    /// From a file; an error names the line.
    pub fn parse(text: &str) -> Result<Records, String> {
        let mut lines = text.lines();
        let versions = lines.next().and_then(|line| line.strip_prefix("# cargo xtask ns3, "));
        let versions = versions.ok_or("line 1 wants the command and versions")?.to_owned();
        if lines.next() != Some(HEADER) {
            return Err(format!("line 2 wants {HEADER}"));
        }
        let records = lines.enumerate().map(|(index, line)| {
            record(line).ok_or_else(|| format!("line {} wants {HEADER}, has \"{line}\"", index + 3))
        });
        Ok(Records { versions, records: records.collect::<Result<_, _>>()? })
    }

    /// Every table.
    pub fn tables(&self) -> String {
        let mut text = format!("Recorded with {}.\n", self.versions);
        for contender in &CONTENDERS {
            let ours = if contender.ns3 == contender.ours {
                String::new()
            } else {
                format!(", ours is `{}`", contender.ours)
            };
            let head = ["ns-3", "matched", "ours", "ours / ns-3", "ours / matched"].join(" | ");
            write!(text, "\n`{}`{ours}\n\n| RTT ms | loss % | {head} |\n", contender.ns3)
                .expect("strings take all");
            text.push_str("|---:|---:|---:|---:|---:|---:|---:|\n");
            for cell in Cell::all() {
                let found = |form| self.found(contender.ns3, form, cell);
                let (shipped, matched, ours) =
                    (found(Form::Shipped), found(Form::Matched), found(Form::Ours));
                let ratios = (ratio(ours, shipped), ratio(ours, matched));
                writeln!(
                    text,
                    "| {} | {} | {} | {} | {} | {} | {} |",
                    cell.rtt_ms,
                    percent(cell.loss),
                    mbit(shipped),
                    mbit(matched),
                    mbit(ours),
                    two(ratios.0),
                    two(ratios.1)
                )
                .expect("strings take all");
            }
        }
        text.push_str(&self.causes());
        text
    }

    /// The peculiarities one after the other.
    fn causes(&self) -> String {
        let cells = STEP_CELLS.map(|cell| format!("{} ms, {} %", cell.rtt_ms, percent(cell.loss)));
        let mut text = format!(
            "\nOne cause after the other, ours over ns-3\n\n| controller | ns-3 | {} |\n|---|---|---:|---:|\n",
            cells.join(" | ")
        );
        for contender in &CONTENDERS {
            let steps = contender.steps.iter().enumerate().map(|(step, (what, _))| (*what, Form::Step(step)));
            for (what, form) in [("as it ships", Form::Shipped)].into_iter().chain(steps) {
                let ratios = STEP_CELLS.map(|cell| {
                    two(ratio(
                        self.found(contender.ns3, Form::Ours, cell),
                        self.found(contender.ns3, form, cell),
                    ))
                });
                writeln!(text, "| `{}` | {what} | {} |", contender.ns3, ratios.join(" | "))
                    .expect("strings take all");
            }
        }
        text
    }

    /// Cells where ns-3 without its peculiarities and ours lie further apart than the tolerance, for no known reason.
    pub fn apart(&self) -> Vec<String> {
        let cells = CONTENDERS.iter().flat_map(|contender| Cell::all().map(move |cell| (contender, cell)));
        cells
            .filter_map(|(contender, cell)| {
                let found = |form| self.found(contender.ns3, form, cell);
                let ratio = ratio(found(Form::Ours), found(Form::Matched))?;
                let known = contender.known.contains(&(cell.rtt_ms, cell.loss));
                ((ratio - 1.0).abs() > TOLERANCE && !known).then(|| {
                    let (name, loss) = (contender.ns3, percent(cell.loss));
                    format!("{name} at {} ms and {loss} %: {ratio:.2} of ns-3, matched", cell.rtt_ms)
                })
            })
            .collect()
    }

    /// Mean and standard deviation over the seeds, bit/s.
    fn found(&self, contender: &str, form: Form, cell: Cell) -> Option<(f64, Option<f64>)> {
        let wanted =
            |record: &&Record| record.contender == contender && record.form == form && record.cell == cell;
        let rates: Vec<f64> =
            self.records.iter().filter(wanted).map(|record| record.figures.goodput).collect();
        let count = rates.len() as f64;
        let mean = (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / count)?;
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        Some((mean, (rates.len() > 1).then(|| (squares / (count - 1.0)).sqrt())))
    }
}

fn record(line: &str) -> Option<Record> {
    let mut words = line.splitn(6, ',');
    let contender = words.next()?.to_owned();
    let form = Form::parse(words.next()?)?;
    let cell = Cell { rtt_ms: words.next()?.parse().ok()?, loss: words.next()?.parse().ok()? };
    let seed = words.next()?.parse().ok()?;
    Some(Record { contender, form, cell, seed, figures: Figures::parse(words.next()?)? })
}

type Found = Option<(f64, Option<f64>)>;

fn ratio(above: Found, below: Found) -> Option<f64> {
    Some(above?.0 / below?.0)
}

fn two(ratio: Option<f64>) -> String {
    ratio.map_or("".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn mbit(found: Found) -> String {
    let digits = |rate: f64| format!("{:.2}", rate / 1e6);
    match found {
        None => String::new(),
        Some((mean, None)) => digits(mean),
        Some((mean, Some(deviation))) => format!("{} ± {}", digits(mean), digits(deviation)),
    }
}

fn percent(loss: f64) -> String {
    // 0.0003 * 100 is not 0.03 to the last bit; four digits are.
    let text = format!("{:.4}", loss * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        crate::root()
    }

    #[test]
    fn the_recorded_results_are_those_of_the_plan_and_of_the_page() {
        let text = std::fs::read_to_string(root().join(super::super::RECORDED)).unwrap();
        let records = Records::parse(&text).unwrap();
        assert_eq!(records.to_csv(), text);
        let page = std::fs::read_to_string(root().join("docs/ns3.md")).unwrap();
        for line in records.tables().lines() {
            assert!(page.contains(line), "docs/ns3.md lacks \"{line}\"; cargo xtask ns3 show prints it");
        }
        assert_eq!(records.records.len(), super::super::plan::jobs().len());
    }

    #[test]
    fn the_last_step_of_a_contender_leaves_the_matched_one() {
        for contender in &CONTENDERS {
            let steps: Vec<_> = contender.steps.iter().map(|step| step.1).collect();
            assert!(steps.contains(&contender.matched), "{contender:?}");
        }
    }

    #[test]
    fn means_ratios_and_spread_are_those_of_the_seeds() {
        let line = |form, seed, rate| format!("cubic,{form},100,0.002,{seed},{rate},10.0,5,0,20.0\n");
        let text = format!("# cargo xtask ns3, by hand\n{HEADER}\n")
            + &line("ours", 1, 2e6)
            + &line("ours", 2, 4e6)
            + &line("matched", 1, 2e6);
        let records = Records::parse(&text).unwrap();
        assert!(records.tables().contains("| 100 | 0.2 |  | 2.00 | 3.00 ± 1.41 |  | 1.50 |"));
        assert_eq!(records.apart(), ["cubic at 100 ms and 0.2 %: 1.50 of ns-3, matched"]);
    }

    #[test]
    fn a_line_that_says_something_else_is_named() {
        let text = format!("# cargo xtask ns3, by hand\n{HEADER}\ncubic,ours,100,0.002,1,x,1,1,1,1\n");
        let error = Records::parse(&text).unwrap_err();
        assert!(error.starts_with("line 3 wants"), "{error}");
    }
}
