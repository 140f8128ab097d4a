//! Figures that others printed about a scenario.

use std::fmt;

use skyhaul_cc::units::{Duration, Rate, Share};

/// One published figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Whose result it is, such as "TCP-QUIC proxy" or "direct TCP".
    pub system: String,
    /// What was reported.
    pub figure: Figure,
    /// How the source puts it.
    pub relation: Relation,
    /// Where it stands, such as "section 3".
    pub found: String,
    /// What a reader should know about it; may be empty.
    pub note: String,
}

/// A figure and its kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// Bytes of a file over its time.
    Goodput(Rate),
    /// What was seen on the link, whatever it carried.
    LinkRate(Rate),
    /// How many times faster than direct TCP.
    SpeedUp(f64),
    /// How many times as fast as another, both named by the system: "enhanced / newreno".
    Ratio(f64),
    /// Load of the machine that the note names.
    Cpu(Share),
    /// How long it took.
    Completion(Duration),
    /// A statement without a number.
    Statement(String),
}

/// How exactly a figure is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Relation {
    /// As printed.
    #[default]
    Exactly,
    /// The source says about.
    About,
    /// The source says more than.
    MoreThan,
    /// The source says less than.
    LessThan,
}

impl Relation {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Relation::Exactly => "exactly",
            Relation::About => "about",
            Relation::MoreThan => "more than",
            Relation::LessThan => "less than",
        }
    }
}

impl Figure {
    /// The kind as in scenario files, such as `link-rate`.
    pub fn metric(&self) -> &'static str {
        match self {
            Figure::Goodput(_) => "goodput",
            Figure::LinkRate(_) => "link-rate",
            Figure::SpeedUp(_) => "speed-up",
            Figure::Ratio(_) => "ratio",
            Figure::Cpu(_) => "cpu",
            Figure::Completion(_) => "completion",
            Figure::Statement(_) => "statement",
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Goodput(rate) | Figure::LinkRate(rate) => rate.fmt(f),
            Figure::SpeedUp(factor) | Figure::Ratio(factor) => write!(f, "{factor}x"),
            Figure::Cpu(share) => share.fmt(f),
            Figure::Completion(time) => write!(f, "{} s", time.as_secs_f64()),
            Figure::Statement(words) => f.write_str(words),
        }
    }
}

/// The figure with its relation: `~115 Mbit/s`, `>44 Mbit/s`.
impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.relation {
            Relation::Exactly => "",
            Relation::About => "~",
            Relation::MoreThan => ">",
            Relation::LessThan => "<",
        };
        write!(f, "{sign}{}", self.figure)
    }
}
