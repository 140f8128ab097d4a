//! `skyhaul list`: what the other commands can be given.

use std::fmt::Write;
use std::process::ExitCode;

use skyhaul_cc::registry;
use skyhaul_live::testbed::scheme::{Control, Scheme};
use skyhaul_live::testbed::workload::Job;
use skyhaul_sim::scenario::{catalogue, Scenario};

use crate::failure::Failure;
use crate::screen::table::{Align, Table};

/// List scenarios, schemes, workloads and controllers.
#[derive(clap::Args)]
pub struct Args {}

/// Carries the command out.
pub fn run(_args: Args) -> Result<ExitCode, Failure> {
    print!("{}", text()?);
    Ok(ExitCode::SUCCESS)
}

fn text() -> Result<String, Failure> {
    let mut scenarios = Table::new(&[("SCENARIO", Align::Left), ("", Align::Left), ("", Align::Left)]);
    for id in catalogue() {
        let scenario = Scenario::find(id).map_err(Failure::request)?;
        let shape = match (scenario.sweep.len(), scenario.flows.len()) {
            (1, 0..=1) => String::new(),
            (1, flows) => format!("{flows} flows"),
            (cells, _) => format!("{cells} cells"),
        };
        scenarios.row(false, vec![scenario.id, shape, scenario.title]);
    }
    let mut schemes = Table::new(&[("SCHEME", Align::Left), ("", Align::Left)]);
    for (name, meaning) in Scheme::families() {
        schemes.row(false, vec![name, meaning]);
    }
    schemes
        .row(false, vec!["all".to_owned(), "each of them with the controllers that stand for it".to_owned()]);
    let mut workloads = Table::new(&[("WORKLOAD", Align::Left), ("", Align::Left)]);
    for job in Job::ALL {
        workloads.row(false, vec![job.name().to_owned(), job.title().to_owned()]);
    }
    let mut text = String::new();
    let controllers: Vec<&str> = registry::names().collect();
    write!(
        text,
        "{scenarios}\n{schemes}\n  NAME  one of {}\n\n{workloads}\n  CONTROLLERS  {}\n",
        Control::names(),
        controllers.join(", ")
    )
    .map_err(Failure::request)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_can_be_run_is_listed() {
        let text = text().unwrap();
        for id in catalogue() {
            assert!(text.contains(id), "{id}");
        }
        for (name, _) in Scheme::families() {
            assert!(text.contains(&name), "{name}");
        }
        assert!(text.contains(&Control::names()), "{text}");
        for job in Job::ALL {
            assert!(text.contains(job.title()), "{job}");
        }
    }
}
