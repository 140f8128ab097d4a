//! Values that papers print, and ours beside them.

use std::fmt;

use serde::Deserialize;

use crate::experiment::LabError;
use crate::figure::{Spread, Unit};

/// A value that a paper prints. The tables are `papers/*.csv`, one line each.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Its own name, such as `geo-hswa-1e-8`.
    pub id: String,
    /// The scenario it belongs to, such as `p3.geo`.
    pub scenario: String,
    /// What was reported.
    pub metric: String,
    /// Whose it is; empty if it compares several.
    pub algorithm: String,
    /// What the paper says.
    pub claim: Claim,
    /// Where it stands.
    pub found: String,
    /// What it takes to repeat it.
    pub takes: Takes,
}

/// What a paper says.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// A number or a range of them in the unit machines read.
    Number {
        /// Lower end.
        low: f64,
        /// Upper end; the same for a single number.
        high: f64,
        /// How exactly it is meant.
        relation: Relation,
        /// What it counts.
        unit: Unit,
    },
    /// A statement, most often about an order.
    Statement(String),
}

/// How exactly a number is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// As printed.
    Exactly,
    /// The paper says about, or shows it in rounded numbers.
    About,
    /// The paper says more than.
    MoreThan,
    /// The paper says less than.
    LessThan,
}

/// What it takes to repeat a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Takes {
    /// Packets in virtual time.
    Simulator,
    /// Kernels and programs: `skyhaul run … --on hosts`.
    Stack,
    /// The paper's formulas.
    Formula,
    /// It cannot be repeated from what the paper says.
    Impossible,
}

/// Ours beside a published value.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// [`Published::id`].
    pub row: String,
    /// What we found.
    pub ours: Ours,
    /// What the link could give at most, in the value's unit, where that says something.
    pub limit: Option<f64>,
    /// Whether the paper's value stands.
    pub verdict: Verdict,
    /// The reason, in plain words; empty if the numbers say it all.
    pub why: String,
}

/// What we found.
#[derive(Clone, Debug, PartialEq)]
pub enum Ours {
    /// A number in the value's unit.
    Measured(Spread),
    /// Words.
    Words(String),
    /// Nothing.
    Nothing,
}

/// Whether a published value stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It holds here as well.
    Holds,
    /// A part of it holds: the order but not the size, or some of several statements.
    Partly,
    /// It does not hold here.
    Differs,
    /// It takes a real machine; the reason says which command and what it gave.
    RealStack,
    /// The paper does not say enough to repeat it.
    NotReproducible,
}

/// A line of a table of values.
#[derive(Deserialize)]
struct Line {
    id: String,
    scenario: String,
    metric: String,
    algorithm: String,
    /// A number, `low..high`, or a statement.
    published: String,
    /// Empty for a statement.
    relation: Option<Relation>,
    unit: String,
    #[serde(rename = "where")]
    found: String,
    takes: Takes,
}

/// Reads a table of values.
///
/// # Errors
/// With the line that is wrong.
pub fn read(paper: &'static str, text: &str) -> Result<Vec<Published>, LabError> {
    let mut lines = csv::Reader::from_reader(text.as_bytes());
    let wrong = |why: String| LabError::Values { paper, why };
    lines
        .deserialize()
        .map(|line: Result<Line, _>| {
            let line = line.map_err(|error| wrong(error.to_string()))?;
            let id = line.id.clone();
            published(line).map_err(|why| wrong(format!("row {id}: {why}")))
        })
        .collect()
}

fn published(line: Line) -> Result<Published, String> {
    let claim = match line.relation {
        None => Claim::Statement(line.published),
        Some(relation) => {
            let unit = unit(&line.unit)?;
            let number = |text: &str| {
                let number: Result<f64, _> = text.trim().replace('_', "").parse();
                number.map_err(|_| format!("published wants a number, has \"{text}\""))
            };
            let (low, high) = line.published.split_once("..").unwrap_or((&line.published, &line.published));
            Claim::Number { low: number(low)?, high: number(high)?, relation, unit }
        }
    };
    let Line { id, scenario, metric, algorithm, found, takes, .. } = line;
    Ok(Published { id, scenario, metric, algorithm, claim, found, takes })
}

fn unit(name: &str) -> Result<Unit, String> {
    Ok(match name {
        "" => Unit::None,
        "bit/s" => Unit::Rate,
        "s" => Unit::Seconds,
        "share" => Unit::Percent,
        "segments" => Unit::Segments,
        "bytes" => Unit::Megabytes,
        "ratio" => Unit::Ratio,
        _ => {
            return Err(format!(
                "unit \"{name}\"; expected bit/s, s, share, segments, bytes, ratio or nothing"
            ))
        }
    })
}

/// Finds a value by its id.
///
/// # Errors
/// When the table has none of that id.
pub fn find<'a>(values: &'a [Published], paper: &'static str, id: &str) -> Result<&'a Published, LabError> {
    values
        .iter()
        .find(|published| published.id == id)
        .ok_or_else(|| LabError::NeverPublished { paper, row: id.to_owned() })
}

impl Published {
    /// Ours beside a published number. It holds within [`EXACT`] of an exact value, within [`ABOUT`] of a
    /// rounded one (or where the interval of ours reaches that), and on the right side of a bound.
    pub fn number(&self, ours: Spread) -> Answer {
        let verdict = if self.agrees(&ours) { Verdict::Holds } else { Verdict::Differs };
        Answer { row: self.id.clone(), ours: Ours::Measured(ours), limit: None, verdict, why: String::new() }
    }

    /// Ours beside a statement, taken apart into what can be checked. Statements that do not hold are
    /// named in the reason.
    pub fn statement(&self, parts: &[(&str, bool)]) -> Answer {
        let held = parts.iter().filter(|(_, holds)| *holds).count();
        let verdict = match held {
            0 => Verdict::Differs,
            n if n == parts.len() => Verdict::Holds,
            _ => Verdict::Partly,
        };
        let words: Vec<String> = parts
            .iter()
            .map(|(part, holds)| format!("{part}: {}", if *holds { "yes" } else { "no" }))
            .collect();
        let ours = Ours::Words(words.join("; "));
        Answer { row: self.id.clone(), ours, limit: None, verdict, why: String::new() }
    }

    /// It takes kernels and programs.
    pub fn on_a_real_stack(&self, ours: impl Into<String>, why: impl Into<String>) -> Answer {
        let ours = Ours::Words(ours.into());
        Answer { row: self.id.clone(), ours, limit: None, verdict: Verdict::RealStack, why: why.into() }
    }

    /// It cannot be repeated.
    pub fn not_reproducible(&self, because: impl Into<String>) -> Answer {
        let verdict = Verdict::NotReproducible;
        Answer { row: self.id.clone(), ours: Ours::Nothing, limit: None, verdict, why: because.into() }
    }

    fn agrees(&self, ours: &Spread) -> bool {
        let Claim::Number { low, high, relation, .. } = self.claim else { return false };
        let within = |tolerance: f64| {
            let (low, high) = (low * (1.0 - tolerance), high * (1.0 + tolerance));
            ours.mean >= low && ours.mean <= high
        };
        match relation {
            Relation::Exactly => within(EXACT),
            Relation::About => within(ABOUT),
            Relation::MoreThan => ours.mean >= low,
            Relation::LessThan => ours.mean <= high,
        }
    }

    /// The published value as people read it.
    pub fn text(&self) -> String {
        match &self.claim {
            Claim::Statement(words) => words.clone(),
            Claim::Number { low, high, relation, unit } => {
                let sign = match relation {
                    Relation::Exactly => "",
                    Relation::About => "about ",
                    Relation::MoreThan => "more than ",
                    Relation::LessThan => "less than ",
                };
                let range = if low == high { String::new() } else { format!(" to {}", unit.text(*high)) };
                let symbol = unit.symbol();
                let space = if symbol.is_empty() { "" } else { " " };
                format!("{sign}{}{range}{space}{symbol}", unit.text(*low))
            }
        }
    }
}

impl Answer {
    /// With the reason.
    pub fn because(self, why: impl Into<String>) -> Answer {
        Answer { why: why.into(), ..self }
    }

    /// With what the link could give at most.
    pub fn with_limit(self, limit: f64) -> Answer {
        Answer { limit: Some(limit), ..self }
    }

    /// A number that differs while what it is said for, an order, holds.
    pub fn if_order_holds(self, holds: bool) -> Answer {
        let verdict = if self.verdict == Verdict::Differs && holds { Verdict::Partly } else { self.verdict };
        Answer { verdict, ..self }
    }

    /// Ours over the published number, the nearer end of a range; nothing for statements.
    pub fn ratio(&self, published: &Published) -> Option<f64> {
        let (Claim::Number { low, high, .. }, Ours::Measured(ours)) = (&published.claim, &self.ours) else {
            return None;
        };
        let nearest = ours.mean.clamp(*low, *high);
        (nearest != 0.0).then(|| ours.mean / nearest)
    }
}

impl Verdict {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Partly => "partly",
            Verdict::Differs => "does not hold",
            Verdict::RealStack => "real stack",
            Verdict::NotReproducible => "not reproducible",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How far a value may be from one that is printed exactly: the rounding of two digits.
pub const EXACT: f64 = 0.05;
/// How far a value may be from one that is said to be about right: the spread between simulators that agree.
pub const ABOUT: f64 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "id,scenario,metric,algorithm,published,relation,unit,where,takes\n\
        a,p3.geo,throughput,hswa,44_000_000,about,bit/s,IV.B,simulator\n\
        b,p3.geo,order,,higher at shorter delay,,,IV.B,simulator\n\
        c,p0.x,ratio,,1.26..1.41,about,ratio,4.2.1,simulator\n\
        d,p1.x,ratio,,100,more-than,ratio,3,stack\n";

    fn values() -> Vec<Published> {
        read("test", TABLE).unwrap()
    }

    #[test]
    fn numbers_hold_within_what_their_relation_allows() {
        let values = values();
        let verdict = |row: usize, ours| values[row].number(Spread::exactly(ours)).verdict;
        assert_eq!(verdict(0, 40e6), Verdict::Holds);
        assert_eq!(verdict(0, 20e6), Verdict::Differs);
        assert_eq!(verdict(2, 1.3), Verdict::Holds);
        assert_eq!(verdict(2, 1.05), Verdict::Differs);
        assert_eq!(verdict(3, 290.0), Verdict::Holds);
        assert_eq!(verdict(3, 99.0), Verdict::Differs);
        let answer = values[0].number(Spread::exactly(22e6));
        assert_eq!(answer.ratio(&values[0]), Some(0.5));
        assert_eq!(answer.if_order_holds(true).verdict, Verdict::Partly);
    }

    #[test]
    fn a_statement_holds_as_far_as_its_parts_do() {
        let values = values();
        let verdict = |parts: &[bool]| {
            let parts: Vec<_> = parts.iter().map(|holds| ("a part", *holds)).collect();
            values[1].statement(&parts).verdict
        };
        assert_eq!(verdict(&[true, true]), Verdict::Holds);
        assert_eq!(verdict(&[true, false]), Verdict::Partly);
        assert_eq!(verdict(&[false]), Verdict::Differs);
    }

    #[test]
    fn values_are_shown_as_the_paper_means_them() {
        let texts: Vec<String> = values().iter().map(Published::text).collect();
        assert_eq!(
            texts,
            ["about 44.0 Mbit/s", "higher at shorter delay", "about 1.26 to 1.41 ×", "more than 100 ×"]
        );
    }

    #[test]
    fn a_wrong_table_is_refused_with_its_row() {
        let wrong = TABLE.replace("44_000_000", "much");
        let error = read("test", &wrong).unwrap_err().to_string();
        assert!(error.contains("row a") && error.contains("\"much\""), "{error}");
        let error = read("test", &TABLE.replace("bit/s", "furlongs")).unwrap_err().to_string();
        assert!(error.contains("furlongs"), "{error}");
        assert!(read("test", &TABLE.replace("simulator", "luck")).is_err());
    }
}
