//! `skyhaul list`: what the other commands can be given.

use std::fmt::Write;
use std::process::ExitCode;

use skyhaul_cc::registry;
use skyhaul_live::testbed::scheme::Scheme;
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
    for scheme in Scheme::all() {
        let meaning = match &scheme {
            Scheme::Direct(kernel) => {
                format!("TCP of the kernel end to end: {}, {} buffers", kernel.algorithm(), scheme.buffers())
            }
            Scheme::Skyhaul(contender) => format!("terminal and gateway, controller {contender}"),
        };
        schemes.row(false, vec![scheme.to_string(), meaning]);
    }
    let mut workloads = Table::new(&[("WORKLOAD", Align::Left), ("", Align::Left)]);
    for job in Job::ALL {
        workloads.row(false, vec![job.name().to_owned(), job.title().to_owned()]);
    }
    let mut text = String::new();
    let controllers: Vec<&str> = registry::names().collect();
    write!(text, "{scenarios}\n{schemes}\n{workloads}\n  CONTROLLERS  {}\n", controllers.join(", "))
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
        for scheme in Scheme::all() {
            assert!(text.contains(&scheme.to_string()), "{scheme}");
        }
        for job in Job::ALL {
            assert!(text.contains(job.title()), "{job}");
        }
    }
}
