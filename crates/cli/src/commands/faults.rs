//! `skyhaul faults`: breaks things under running transfers and tells what became of them.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;

use clap::ValueEnum;
use skyhaul_cc::units::{Bytes, Rate};
use skyhaul_live::netns::ensure_privileged;
use skyhaul_live::testbed::faults::{matrix, Fault, Place, Row};
use skyhaul_live::testbed::lab::Lab;
use skyhaul_live::testbed::workload::Job;
use skyhaul_sim::scenario::Scenario;

use super::run::size;
use crate::failure::Failure;
use crate::screen::rows;
use crate::screen::table::{Align, Table};

/// Break something in the middle of a transfer, one fault after the other, and tell what became of it.
///
/// Terminal and gateway on an emulated satellite link (540 ms, 1.2 % loss, 50 Mbit/s), a file by FTP or HTTP through
/// them, one fault when a quarter has arrived. Meanwhile new connections are opened. Exit status: 0 when every fault
/// met its goals, 1 when one did not, 2 when the request could not be carried out.
#[derive(clap::Args)]
#[command(after_help = "Examples, as root:\n  \
    skyhaul faults --skip cut-10min\n  \
    skyhaul faults --only udp,mtu --jobs 1 --format json\n\
    docs/rollback.md explains what happens.")]
pub struct Args {
    /// Only faults whose names contain one of these, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// All but those whose names contain one of these.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    skip: Vec<String>,
    /// Size of each file.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    bytes: Bytes,
    /// How many faults at once, each with hosts of its own.
    #[arg(long, value_name = "N", default_value = "2")]
    jobs: NonZeroUsize,
    /// List the faults and do nothing.
    #[arg(long)]
    list: bool,
    /// How to print the results.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people.
    Text,
    /// A table for a page of documentation.
    Markdown,
    /// One array of objects.
    Json,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let faults = chosen(&args)?;
    if args.list {
        let mut table = Table::new(&[("fault", Align::Left), ("what happens", Align::Left)]);
        for fault in &faults {
            table.row(
                false,
                vec![fault.name.to_owned(), story(fault.what, fault.lasts.map(|time| time.as_secs_f64()))],
            );
        }
        rows::show(&table.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    for job in [Job::FtpUpload, Job::HttpDownload] {
        Lab::check(job).map_err(Failure::request)?;
    }
    ensure_privileged()?;
    let jobs = args.jobs.get().min(faults.len());
    let place = Place::new(link()?, args.bytes, jobs as u64).map_err(Failure::request)?;
    let results = all(&place, &faults, jobs)?;
    rows::show(&match args.format {
        Format::Text => text(&results),
        Format::Markdown => markdown(&results),
        Format::Json => rows::json(&results)?,
    })?;
    Ok(ExitCode::from(u8::from(!results.iter().all(Row::passed))))
}

fn chosen(args: &Args) -> Result<Vec<Fault>, Failure> {
    let named = |fault: &Fault, parts: &[String]| parts.iter().any(|part| fault.name.contains(part.as_str()));
    let all = matrix();
    for part in args.only.iter().chain(&args.skip) {
        if !all.iter().any(|fault| fault.name.contains(part.as_str())) {
            let names: Vec<&str> = all.iter().map(|fault| fault.name).collect();
            return Err(Failure::request(format!(
                "no fault is called \"{part}\"; there are {}",
                names.join(", ")
            )));
        }
    }
    let wanted =
        |fault: &Fault| (args.only.is_empty() || named(fault, &args.only)) && !named(fault, &args.skip);
    let chosen: Vec<Fault> = all.into_iter().filter(wanted).collect();
    match chosen.is_empty() {
        true => Err(Failure::request("--only and --skip leave no fault")),
        false => Ok(chosen),
    }
}

/// The satellite of paper 001 with 50 Mbit/s both ways: several trials fit on one machine.
fn link() -> Result<Scenario, Failure> {
    let mut scenario = Scenario::find("p1.down-270").map_err(Failure::request)?;
    for direction in [&mut scenario.forward, &mut scenario.back] {
        direction.rate = Rate::mbit(50);
        direction.queue = direction.rate.bdp(direction.one_way * 2);
    }
    scenario.back.loss = scenario.forward.loss;
    Ok(scenario)
}

/// Carries all out, the longest first, and returns the rows in the order of the list.
fn all(place: &Place, faults: &[Fault], jobs: usize) -> Result<Vec<Row>, Failure> {
    let mut order: Vec<usize> = (0..faults.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(faults[*index].lasts));
    let waiting = Mutex::new(order.into_iter());
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| loop {
                let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(index) = next else { return };
                let fault = &faults[index];
                let row = place.run(fault).map_err(|error| format!("{}: {error}", fault.name));
                if let Ok(row) = &row {
                    let verdict = if row.passed() { "passes".to_owned() } else { row.missed.join("; ") };
                    eprintln!("{}: {}, {verdict}", row.fault, row.verdict.name());
                }
                results.lock().unwrap_or_else(PoisonError::into_inner).push((index, row));
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, row)| row.map_err(Failure::request)).collect()
}

const COLUMNS: [(&str, Align); 9] = [
    ("fault", Align::Left),
    ("what happens", Align::Left),
    ("file", Align::Left),
    ("detected s", Align::Point),
    ("new connections s", Align::Point),
    ("recovered s", Align::Point),
    ("bytes lost", Align::Point),
    ("transfer", Align::Left),
    ("verdict", Align::Left),
];

fn cells(row: &Row) -> Vec<String> {
    let time = |seconds: Option<f64>| seconds.map_or(String::new(), |seconds| format!("{seconds:.1}"));
    vec![
        row.fault.clone(),
        story(&row.what, row.lasts_seconds),
        if row.workload.contains("upload") { "up" } else { "down" }.to_owned(),
        time(row.detected_seconds),
        time(row.new_connection_seconds),
        time(row.recovered_seconds),
        row.bytes_lost.to_string(),
        match row.told_seconds {
            Some(told) => format!("told after {told:.1} s"),
            None => row.verdict.name().to_owned(),
        },
        if row.passed() { "pass".to_owned() } else { format!("FAIL: {}", row.missed.join("; ")) },
    ]
}

fn story(what: &str, lasts: Option<f64>) -> String {
    lasts.map_or(what.to_owned(), |seconds| format!("{what}, for {seconds} s"))
}

fn text(results: &[Row]) -> String {
    let mut table = Table::new(&COLUMNS);
    for row in results {
        table.row(false, cells(row));
    }
    let passed = results.iter().filter(|row| row.passed()).count();
    format!("{table}{passed} of {} faults met their goals\n", results.len())
}

fn markdown(results: &[Row]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect());
    let rule = |align: Align| if align == Align::Point { "---:" } else { "---" };
    text.push_str(&line(COLUMNS.iter().map(|(_, align)| rule(*align).to_owned()).collect()));
    for row in results {
        text.push_str(&line(cells(row)));
    }
    text
}
