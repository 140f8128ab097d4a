//! `skyhaul run`: compares schemes on a scenario.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use skyhaul_cc::units::{parse_duration, Bytes, ParseUnitError};
use skyhaul_live::netns::ensure_privileged;
use skyhaul_live::testbed::lab::{Lab, On, Run};
use skyhaul_live::testbed::row::Row;
use skyhaul_live::testbed::scheme::Scheme;
use skyhaul_live::testbed::workload::Job;
use skyhaul_sim::scenario::Scenario;

use super::simulate;
use super::watch::Watch;
use crate::failure::Failure;
use crate::screen::progress::Line;
use crate::screen::rows::{self, Format};

/// Compare schemes on a scenario: real programs, an emulated link, one row of results for each run.
///
/// Each run has hosts, a link and servers of its own, so schemes do not influence each other. All schemes meet the
/// same seed. Exit status: 0 when every transfer was intact and every run valid, 1 when one was not, 2 when the
/// request could not be carried out.
#[derive(clap::Args)]
#[command(after_help = "Examples, as root:\n  \
    skyhaul run p1.down-270 --scheme direct:cubic,direct:bbr --bytes 16MiB --max-seconds 20\n  \
    skyhaul run p1.down-270 --scheme skyhaul:rate --bytes 512MiB --format json\n  \
    skyhaul run p1.up-270 --scheme direct:bbr,skyhaul:rate --workload http-objects\n\
    As anybody, in virtual time:\n  \
    skyhaul run p1.down-270 --on sim --cc cubic,hybla,bbr,rate --bytes 64MiB --seeds 5\n  \
    skyhaul run p2.random-loss --on sim --cell \"ber 1e-6\"\n\
    `skyhaul list` shows scenarios, schemes and workloads.")]
pub struct Args {
    /// Scenario: an id of the catalogue or a path to a TOML file.
    scenario: String,
    /// Testbed: real programs on the kernel's network stack, with or without the link.
    #[arg(long, value_enum, default_value_t = Testbed::Hosts)]
    on: Testbed,
    /// Schemes, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    scheme: Vec<Scheme>,
    /// With `--on sim`: congestion controllers, separated by commas; those of the scenario if not given.
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["scheme", "workload"])]
    cc: Vec<String>,
    /// Of a scenario that varies, only the cells with these values, such as "rtt 20 ms, loss 0.5 %".
    #[arg(long, value_name = "VALUES")]
    cell: Option<String>,
    /// What the client does; the scenario's own workload if not given.
    #[arg(long, value_name = "NAME")]
    workload: Option<Job>,
    /// Size of the file, such as 64MiB; the scenario's if not given.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bytes: Option<Bytes>,
    /// How often each scheme runs, with seeds SEED, SEED+1 and so on.
    #[arg(long, visible_alias = "seeds", value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Number that decides the luck of the packets and the content of the file.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Stop a transfer after this many seconds and judge it by what has arrived; for iperf3 how long it sends
    /// [default: 120, iperf3: 30; with --on sim the scenario's duration, if it has one].
    #[arg(long, value_name = "S", value_parser = seconds)]
    max_seconds: Option<Duration>,
    /// With `--on sim`: write what the controller hears and answers to this file, for `skyhaul replay`.
    #[arg(long, value_name = "FILE", conflicts_with = "scheme")]
    tape: Option<PathBuf>,
    /// With `--on sim`: write what happens to each packet to this file, a line of JSON each.
    #[arg(long, value_name = "FILE", conflicts_with = "scheme")]
    trace: Option<PathBuf>,
    /// How to print the results.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Testbed {
    /// Client, terminal, gateway and server as network namespaces of this machine, with the emulated link.
    Hosts,
    /// The same with a cable in place of the link: what the programs themselves cost.
    Cable,
    /// TCP in virtual time: no programs, no waiting, the same result for the same seed.
    Sim,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let scenario = Scenario::find(&args.scenario).map_err(Failure::request)?;
    let on = match args.on {
        Testbed::Hosts => On::Hosts,
        Testbed::Cable => On::Cable,
        Testbed::Sim => return simulated(&args, &scenario),
    };
    let scenario = one_link(&args, &scenario)?;
    if !args.cc.is_empty() {
        return Err(Failure::request(
            "--cc is for --on sim; programs take --scheme direct:NAME or skyhaul:NAME",
        ));
    }
    if args.tape.is_some() || args.trace.is_some() {
        return Err(Failure::request("--tape and --trace are for --on sim"));
    }
    if args.scheme.is_empty() {
        return Err(Failure::request(
            "--scheme is missing: one or more of `skyhaul list`, such as --scheme direct:bbr",
        ));
    }
    let job = args.workload.unwrap_or_else(|| Job::from(scenario.workload.kind));
    let bytes = args.bytes.unwrap_or(scenario.workload.bytes);
    let limit = args.max_seconds.unwrap_or(match job {
        Job::Iperf3 | Job::Iperf3Download => STREAM,
        _ => TRANSFER,
    });
    Lab::check(job).map_err(Failure::request)?;
    ensure_privileged()?;
    let mut lab = Lab::new(bytes).map_err(Failure::request)?;
    let mut results = Vec::new();
    for repetition in 1..=args.repeat {
        let seed = args.seed.wrapping_add(u64::from(repetition) - 1);
        for scheme in &args.scheme {
            let run = Run { on, scenario: &scenario, scheme, job, bytes, seed, repetition, limit };
            results.extend(one(&mut lab, &run)?);
        }
    }
    rows::print(&results, &scenario, args.format)?;
    Ok(status(&results))
}

fn simulated(args: &Args, scenario: &Scenario) -> Result<ExitCode, Failure> {
    let fixed = scenario.flows.iter().any(|flow| flow.controller.is_some());
    let names = if args.cc.is_empty() { &scenario.controllers } else { &args.cc };
    let contenders: Vec<Vec<String>> = match (args.cc.is_empty() && fixed, names.is_empty()) {
        (true, _) => vec![Vec::new()],
        (false, true) => {
            return Err(Failure::request(
                "--on sim wants --cc with controllers, such as --cc newreno,cubic,bbr",
            ));
        }
        (false, false) => names.iter().map(|name| vec![name.clone()]).collect(),
    };
    let plan = simulate::Plan {
        scenario,
        cells: simulate::cells(scenario, args.cell.as_deref(), args.bytes)?,
        contenders,
        seed: args.seed,
        seeds: args.repeat,
        limit: args.max_seconds,
        watch: Watch { tape: args.tape.as_deref(), trace: args.trace.as_deref() },
    };
    simulate::run(&plan, args.format)
}

/// The one link of a scenario that programs can run on.
fn one_link(args: &Args, scenario: &Scenario) -> Result<Scenario, Failure> {
    let cells = simulate::cells(scenario, args.cell.as_deref(), None)?;
    let flows = scenario.flows.len();
    let id = &scenario.id;
    match &cells[..] {
        [_] if flows > 1 => Err(Failure::request(format!(
            "{id} has {flows} flows and programs send one; it runs with --on sim"
        ))),
        [cell] => Ok(cell.scenario.clone()),
        _ => Err(Failure::request(format!(
            "{id} varies over {} cells and programs run on one: choose it, such as --cell \"{}\", or run all \
             with --on sim",
            cells.len(),
            cells[0].name
        ))),
    }
}

/// One run with its line of progress.
pub fn one(lab: &mut Lab, run: &Run<'_>) -> Result<Vec<Row>, Failure> {
    let name = match run.repetition {
        1 => run.scheme.to_string(),
        _ => format!("{} (seed {})", run.scheme, run.seed),
    };
    let line = Line::new(&name);
    let rows = lab.run(run, &mut |progress| line.show(progress));
    line.finish();
    rows.map_err(|error| Failure::request(format!("{}: {error}", run.scheme)))
}

/// 0 if nothing went wrong in any row, else 1.
pub fn status(rows: &[Row]) -> ExitCode {
    ExitCode::from(u8::from(!rows.iter().all(Row::passed)))
}

/// Reads a size such as `64MiB`, at least one byte.
pub fn size(text: &str) -> Result<Bytes, String> {
    match text.parse().map_err(|error: ParseUnitError| error.to_string())? {
        Bytes::ZERO => Err("found 0 bytes, expected at least 1".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Reads a number of seconds, with or without the unit.
fn seconds(text: &str) -> Result<Duration, String> {
    let with_unit = if text.trim().ends_with(|last: char| last.is_ascii_digit()) {
        format!("{text} s")
    } else {
        text.to_owned()
    };
    match parse_duration(&with_unit) {
        Ok(time) if time >= Duration::from_millis(100) => Ok(time),
        _ => Err(format!("found \"{text}\", expected a number of seconds such as 20, at least 0.1")),
    }
}

/// Enough for 512 MiB at a third of 100 Mbit/s.
pub const TRANSFER: Duration = Duration::from_secs(120);
/// Long enough for start-up to weigh little.
pub const STREAM: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_and_nonsense_is_refused() {
        assert_eq!(size("64MiB"), Ok(Bytes::mib(64)));
        assert_eq!(seconds("20"), Ok(Duration::from_secs(20)));
        assert_eq!(seconds("1.5 min"), Ok(Duration::from_secs(90)));
        for text in ["0", "-1", "", "long", "0.01", "nan"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert!(size("0").is_err() && size("many").is_err());
    }
}
