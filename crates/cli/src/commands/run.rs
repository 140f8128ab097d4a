//! `skyhaul run`: compares schemes on a scenario.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use skyhaul_cc::units::{parse_duration, Bytes, ParseUnitError};
use skyhaul_live::netns::ensure_privileged;
use skyhaul_live::testbed::lab::{unavailable, Lab, On, Run};
use skyhaul_live::testbed::row::Row;
use skyhaul_live::testbed::scheme::{Scheme, UnknownScheme};
use skyhaul_live::testbed::workload::Job;
use skyhaul_sim::scenario::Scenario;

use super::simulate;
use super::watch::Watch;
use crate::failure::Failure;
use crate::screen::progress::Line;
use crate::screen::rows::{self, Format};
use crate::screen::schemes;

/// Compare schemes on a scenario: real programs, an emulated link, one row of results for each run.
///
/// Each run has hosts, a link and servers of its own, so schemes do not influence each other. All schemes meet the
/// same seed. Exit status: 0 when every transfer was intact and every run valid, 1 when one was not, 2 when the
/// request could not be carried out.
#[derive(clap::Args)]
#[command(after_help = "Examples, as root:\n  \
    skyhaul run p1.down-270 --scheme direct:cubic,direct:bbr --bytes 16MiB --max-seconds 20\n  \
    skyhaul run p1.down-270 --scheme skyhaul:rate --bytes 512MiB --format json\n  \
    skyhaul run p1.up-270 --scheme direct:bbr,skyhaul:rate --workload http-objects\n  \
    skyhaul run p1.down-270 --scheme all --save results.json\n\
    As anybody, from saved results:\n  \
    skyhaul run p1.down-270 --from results.json --format table9\n\
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
    /// Schemes, separated by commas; "all" for each of paper 001 with the controllers that stand for it.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    scheme: Vec<Asked>,
    /// Print the results in this file of JSON instead of running anything.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scheme", "cc", "workload", "bytes", "save", "tape", "trace"])]
    from: Option<PathBuf>,
    /// Also keep the results in this file as JSON, from run to run.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
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
    #[arg(long, value_enum, default_value_t = Output::Text)]
    format: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table for people.
    Text,
    /// One array of objects.
    Json,
    /// A header and one line for each row.
    Csv,
    /// A table for a page of documentation.
    Markdown,
    /// Table 9 of paper 001: its schemes and results, ours beside them, in Markdown.
    Table9,
}

impl Output {
    /// # Errors
    /// When simulated results are not printed that way.
    fn simulated(self) -> Result<Format, Failure> {
        match self {
            Output::Text => Ok(Format::Text),
            Output::Json => Ok(Format::Json),
            Output::Csv => Ok(Format::Csv),
            Output::Markdown | Output::Table9 => Err(Failure::request(
                "--format markdown and table9 are for programs on hosts, not for --on sim",
            )),
        }
    }
}

/// What one word of `--scheme` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    One(Box<Scheme>),
    All,
}

impl FromStr for Asked {
    type Err = UnknownScheme;
    fn from_str(text: &str) -> Result<Asked, UnknownScheme> {
        match text.trim() {
            "all" => Ok(Asked::All),
            one => one.parse().map(|scheme| Asked::One(Box::new(scheme))),
        }
    }
}

/// The schemes to run. What "all" adds may be missing on this machine; what was named may not.
fn contenders(asked: &[Asked]) -> Vec<(Scheme, Missing)> {
    let each = asked.iter().flat_map(|word| match word {
        Asked::One(scheme) => vec![((**scheme).clone(), Missing::Fails)],
        Asked::All => Scheme::representative().into_iter().map(|scheme| (scheme, Missing::IsNoted)).collect(),
    });
    let mut contenders: Vec<(Scheme, Missing)> = Vec::new();
    for (scheme, missing) in each {
        if !contenders.iter().any(|(known, _)| *known == scheme) {
            contenders.push((scheme, missing));
        }
    }
    contenders
}

/// What becomes of a scheme whose congestion control this machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// The command fails.
    Fails,
    /// Its row says so.
    IsNoted,
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
    if let Some(file) = &args.from {
        let results = read(file, &scenario)?;
        print(&results, &scenario, args.format)?;
        return Ok(status(&results));
    }
    let on = match args.on {
        Testbed::Hosts => On::Hosts,
        Testbed::Cable => On::Cable,
        Testbed::Sim => return simulated(&args, &scenario),
    };
    let scenario = one_link(&args, &scenario)?;
    if !args.cc.is_empty() {
        return Err(Failure::request(
            "--cc is for --on sim; programs take --scheme, such as kernel-one:NAME or skyhaul:NAME",
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
    if let Some(file) = &args.save {
        // A place that cannot be written shall show before the first run.
        save(file, &[])?;
    }
    ensure_privileged()?;
    let mut lab = Lab::new(bytes).map_err(Failure::request)?;
    let mut results = Vec::new();
    for repetition in 1..=args.repeat {
        let seed = args.seed.wrapping_add(u64::from(repetition) - 1);
        for (scheme, missing) in &contenders(&args.scheme) {
            let run = Run { on, scenario: &scenario, scheme, job, bytes, seed, repetition, limit };
            results.extend(attempt(&mut lab, &run, *missing)?);
            if let Some(file) = &args.save {
                save(file, &results)?;
            }
        }
    }
    print(&results, &scenario, args.format)?;
    Ok(status(&results))
}

fn print(results: &[Row], scenario: &Scenario, output: Output) -> Result<(), Failure> {
    rows::show(&match output {
        Output::Text => rows::text(results, scenario),
        Output::Json => rows::json(results)?,
        Output::Csv => rows::csv(results)?,
        Output::Markdown => schemes::markdown(results, scenario),
        Output::Table9 => schemes::table_9(results, scenario),
    })
}

fn save(file: &Path, results: &[Row]) -> Result<(), Failure> {
    let failure = |error| Failure::request(format!("cannot write {}: {error}", file.display()));
    std::fs::write(file, rows::json(results)?).map_err(failure)
}

/// Results that were saved, all of this scenario.
fn read(file: &Path, scenario: &Scenario) -> Result<Vec<Row>, Failure> {
    let failure = |what: &dyn std::fmt::Display| Failure::request(format!("{}: {what}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| failure(&error))?;
    let results: Vec<Row> = serde_json::from_str(&text).map_err(|error| {
        failure(&format!("{error}; expected results of `skyhaul run --format json` or `--save`"))
    })?;
    match results.iter().find(|row| row.scenario != scenario.id) {
        _ if results.is_empty() => Err(failure(&"found no results")),
        Some(row) => {
            Err(failure(&format!("found results of {}, expected those of {}", row.scenario, scenario.id)))
        }
        None => Ok(results),
    }
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
    simulate::run(&plan, args.format.simulated()?)
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
    attempt(lab, run, Missing::Fails)
}

fn attempt(lab: &mut Lab, run: &Run<'_>, missing: Missing) -> Result<Vec<Row>, Failure> {
    let name = match run.repetition {
        1 => run.scheme.to_string(),
        _ => format!("{} (seed {})", run.scheme, run.seed),
    };
    let line = Line::new(&name);
    let rows = lab.run(run, &mut |progress| line.show(progress));
    line.finish();
    match rows {
        Err(error) if missing == Missing::IsNoted && error.is_unavailable() => {
            Ok(vec![unavailable(run, &error)])
        }
        other => other.map_err(|error| Failure::request(format!("{}: {error}", run.scheme))),
    }
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
    fn all_may_lack_a_control_and_what_was_named_may_not() {
        let asked: Vec<Asked> = ["kernel-one:boost", "all"].map(|word| word.parse().unwrap()).into();
        let contenders = contenders(&asked);
        assert_eq!(contenders.len(), Scheme::representative().len(), "named and in all: once");
        assert_eq!(
            (contenders[0].0.to_string(), contenders[0].1),
            ("kernel-one:boost".to_owned(), Missing::Fails)
        );
        assert!(contenders[1..].iter().all(|(_, missing)| *missing == Missing::IsNoted));
        assert!("everything".parse::<Asked>().is_err());
    }

    #[test]
    fn saved_results_of_another_scenario_and_other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let scenario = Scenario::find("p1.down-270").unwrap();
        let file = dir.path().join("results.json");
        let results = [crate::screen::rows::tests::row("tuned", 1e6)];
        save(&file, &results).unwrap();
        assert_eq!(read(&file, &scenario).unwrap(), results);
        let error = read(&file, &Scenario::find("p1.up-270").unwrap()).unwrap_err().to_string();
        assert!(error.contains("found results of p1.down-270, expected those of p1.up-270"), "{error}");
        for text in ["", "{}", "[]", "[{}]"] {
            std::fs::write(&file, text).unwrap();
            let error = read(&file, &scenario).unwrap_err().to_string();
            assert!(error.contains("results.json: "), "{error}");
        }
        assert!(read(&dir.path().join("none.json"), &scenario).is_err());
    }

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
