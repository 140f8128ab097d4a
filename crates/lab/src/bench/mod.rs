//! What our own controller has to reach, measured beside the others, in virtual time.
//!
//! | table | what it asks |
//! |---|---|
//! | [`Bench::Limits`] | whole files: how near to the physical limit |
//! | [`Bench::Fairness`] | three flows of one kind that join a link one after the other |
//! | [`Bench::Change`] | a link that fades, changes its length, or goes away |
//! | [`Bench::Coexist`] | one flow beside CUBIC or BBR |
//! | [`Bench::Noise`] | one flow over links that lose, hold back and jitter |
//!
//! Each table has cells, each cell goals; `docs/bench.md` says where they come from. A row is a cell with a
//! contender, mean over the seeds. Results stand in the order of cells and contenders, whatever the threads do.

mod change;
mod channel;
mod coexist;
mod fairness;
mod limits;
mod noise;
mod path;
mod row;
#[cfg(test)]
mod tests;
pub mod traces;
mod watch;

use skyhaul_cc::registry::Contender;
use skyhaul_cc::units::Rate;

use crate::experiment::{run_seeds, Effort, LabError};
pub use limits::{on_hosts, OnHosts};
pub use row::{compare, Field, Goal, Measure, Row, GOODPUT};

/// One of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bench {
    /// Whole files against the physical limit.
    Limits,
    /// Three flows of one kind.
    Fairness,
    /// Fades, handovers, outages.
    Change,
    /// Beside others.
    Coexist,
    /// Noise of all kinds.
    Noise,
}

/// What carries the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// The simulator's TCP. Our own controller gets what the channel gives it: receive times and coded repair of
    /// the last window.
    Tcp,
    /// The simulator's TCP without receive times and repair, for all controllers alike.
    Plain,
    /// The real channel, both ends of it, over simulated links.
    Channel,
}

/// What of a table is wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only cells whose names contain one of these; all if empty.
    pub only: Vec<String>,
    /// Who is measured; the table's own choice if empty.
    pub contenders: Vec<Contender>,
    /// Only this host; those of each cell if not given.
    pub host: Option<Host>,
}

/// A link, who is on it, what is looked at, and what is to be reached.
trait Cell: Sync {
    /// What users type.
    fn id(&self) -> &str;
    /// The link in words.
    fn about(&self) -> String;
    /// Hosts on which it runs.
    fn hosts(&self) -> &'static [Host] {
        &[Host::Tcp]
    }
    /// Seconds of a core that a run takes, about.
    fn cost(&self, host: Host) -> f64;
    /// Payload rate that nobody can exceed.
    fn floor(&self, host: Host) -> Rate;
    /// What is measured, the main thing first.
    fn asks(&self, contender: &Contender) -> Vec<Ask>;
    /// One run.
    fn run(&self, host: Host, contender: &Contender, seed: u64) -> Result<Run, LabError>;
}

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ask {
    /// Such as `jain`; with the unit at its end where it has one.
    name: &'static str,
    /// What to reach.
    goal: Option<Goal>,
}

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq)]
struct Run {
    /// Payload rate, bit/s.
    goodput: f64,
    /// 95 % of the time the queue was shorter than this, in seconds.
    queue_p95: Option<f64>,
    /// Packets the queue had no room for.
    drops: u64,
    /// In the order of [`Cell::asks`]; nothing for what did not happen.
    values: Vec<Option<f64>>,
}

impl Ask {
    fn new(name: &'static str, goal: Goal) -> Ask {
        Ask { name, goal: Some(goal) }
    }

    fn only(name: &'static str) -> Ask {
        Ask { name, goal: None }
    }
}

impl Bench {
    /// All tables.
    pub const ALL: [Bench; 5] = [Bench::Limits, Bench::Fairness, Bench::Change, Bench::Coexist, Bench::Noise];

    /// What users type.
    pub fn name(self) -> &'static str {
        match self {
            Bench::Limits => "limits",
            Bench::Fairness => "fairness",
            Bench::Change => "change",
            Bench::Coexist => "coexist",
            Bench::Noise => "noise",
        }
    }

    /// One line.
    pub fn title(self) -> &'static str {
        match self {
            Bench::Limits => "Whole files against the physical limit",
            Bench::Fairness => "Three flows of one kind, from 0, 10 and 20 s on",
            Bench::Change => "Links that fade, change their length or go away",
            Bench::Coexist => "Beside CUBIC and BBR",
            Bench::Noise => "One flow on noisy links, steady state",
        }
    }

    /// Whom the table compares if nobody is named.
    pub fn contenders(self) -> Vec<Contender> {
        let names: &[&str] = match self {
            Bench::Limits => &[
                "skyhaul",
                "skyhaul/warm",
                "skyhaul/known",
                "bbr",
                "bbr3",
                "boost",
                "hybla",
                "hybic",
                "hswa",
                "enhanced",
                "cubic",
            ],
            Bench::Fairness | Bench::Change | Bench::Noise => {
                &["skyhaul", "bbr", "bbr3", "boost", "hybla", "hybic", "hswa", "enhanced", "cubic"]
            }
            Bench::Coexist => &["skyhaul", "bbr", "bbr3", "boost", "cubic"],
        };
        names.iter().map(|name| name.parse().expect("these are in the registry")).collect()
    }

    /// Names of its cells.
    pub fn cells(self, quick: bool) -> Vec<String> {
        self.all(quick).iter().map(|cell| cell.id().to_owned()).collect()
    }

    fn all(self, quick: bool) -> Vec<Box<dyn Cell>> {
        match self {
            Bench::Limits => limits::cells(quick),
            Bench::Fairness => fairness::cells(quick),
            Bench::Change => change::cells(quick),
            Bench::Coexist => coexist::cells(quick),
            Bench::Noise => noise::cells(quick),
        }
    }

    /// Measures. A controller that misbehaves gives a row that says so.
    ///
    /// # Errors
    /// When no cell has such a name, or a controller cannot be built.
    pub fn run(self, wanted: &Wanted, effort: &Effort<'_>) -> Result<Vec<Row>, LabError> {
        let mut cells = self.all(effort.quick);
        let meant = |cell: &dyn Cell| wanted.only.iter().any(|only| cell.id().contains(only.as_str()));
        if let Some(only) =
            wanted.only.iter().find(|only| !cells.iter().any(|cell| cell.id().contains(*only)))
        {
            return Err(LabError::Other(format!(
                "bench {} has no cell \"{only}\"; it has {}",
                self.name(),
                self.cells(effort.quick).join(", ")
            )));
        }
        cells.retain(|cell| wanted.only.is_empty() || meant(&**cell));
        let contenders =
            if wanted.contenders.is_empty() { self.contenders() } else { wanted.contenders.clone() };
        let mut jobs: Vec<(&dyn Cell, Host, &Contender)> = Vec::new();
        for cell in &cells {
            let hosts: Vec<Host> = match wanted.host {
                // Every cell of TCP can do without reports.
                Some(Host::Plain) => vec![Host::Plain],
                Some(host) => cell.hosts().iter().copied().filter(|known| *known == host).collect(),
                None => cell.hosts().to_vec(),
            };
            for host in hosts {
                jobs.extend(contenders.iter().map(|contender| (&**cell, host, contender)));
            }
        }
        let cost = |(cell, host, contender): &(&dyn Cell, Host, &Contender)| {
            // A warm start has a transfer before it.
            let before = if contender.start == skyhaul_cc::StartMode::Warm { 2.0 } else { 1.0 };
            cell.cost(*host) * before
        };
        let runs = run_seeds(&jobs, effort, cost, |(cell, host, contender), seed| {
            match cell.run(*host, contender, seed) {
                Err(LabError::Run(failure)) => Ok(Err(failure.to_string())),
                Err(error) => Err(error),
                Ok(run) => Ok(Ok(run)),
            }
        })?;
        let rows = jobs.iter().zip(&runs).map(|(job, runs)| row::of(self, job.0, job.1, job.2, runs));
        let mut rows: Vec<Row> = rows.collect();
        if self == Bench::Limits {
            row::compare(&mut rows);
        }
        Ok(rows)
    }
}

impl Host {
    /// All of them.
    pub const ALL: [Host; 3] = [Host::Tcp, Host::Plain, Host::Channel];

    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Host::Tcp => "tcp",
            Host::Plain => "plain",
            Host::Channel => "channel",
        }
    }
}
