//! The cells that run on hosts: real programs, an emulated link.

use skyhaul_cc::StartMode;
use skyhaul_lab::bench::{self, Bench, Goal, Measure, OnHosts, Row};
use skyhaul_lab::figure::Spread;
use skyhaul_live::netns::ensure_privileged;
use skyhaul_live::testbed::lab::{Lab, On, Run};
use skyhaul_live::testbed::row::Row as HostRow;
use skyhaul_live::testbed::scheme::Scheme;
use skyhaul_live::testbed::workload::Job;
use skyhaul_sim::scenario::Scenario;
use skyhaul_sim::stats;

use super::Args;
use crate::commands::run::{one, TRANSFER};
use crate::failure::Failure;

/// Who is compared if nobody is named.
const SCHEMES: [&str; 7] = [
    "skyhaul:skyhaul",
    "skyhaul:skyhaul/warm",
    "skyhaul:skyhaul/known",
    "skyhaul:bbr",
    "skyhaul:rate",
    "direct:bbr",
    "direct:cubic",
];

/// Runs the cells, scheme after scheme, all of them with the same seeds.
pub fn run(bench: Bench, args: &Args) -> Result<Vec<Row>, Failure> {
    if bench != Bench::Limits {
        return Err(Failure::request(format!(
            "bench {} is for --on sim: programs on hosts run one flow over a steady link",
            bench.name()
        )));
    }
    if !args.controllers.is_empty() || args.host.is_some() {
        return Err(Failure::request("--controllers and --host are for --on sim; --on hosts has --scheme"));
    }
    let schemes = schemes(&args.scheme)?;
    let all = bench::on_hosts();
    let named = |cell: &OnHosts| args.only.iter().any(|only| cell.scenario.contains(only.as_str()));
    let cells: Vec<OnHosts> = all.into_iter().filter(|cell| args.only.is_empty() || named(cell)).collect();
    if cells.is_empty() {
        let known: Vec<&str> = all.iter().map(|cell| cell.scenario).collect();
        return Err(Failure::request(format!(
            "no cell on hosts has such a name; there are {}",
            known.join(", ")
        )));
    }
    let size = |cell: &OnHosts| args.bytes.unwrap_or(cell.bytes);
    let largest = cells.iter().map(size).max().unwrap_or_default();
    for job in [Job::FtpUpload, Job::FtpDownload] {
        Lab::check(job).map_err(Failure::request)?;
    }
    ensure_privileged()?;
    let mut lab = Lab::new(largest).map_err(Failure::request)?;
    let mut rows = Vec::new();
    for cell in &cells {
        let scenario = Scenario::find(cell.scenario).map_err(Failure::request)?;
        let job = Job::from(scenario.workload.kind);
        let mut results: Vec<Vec<HostRow>> = vec![Vec::new(); schemes.len()];
        for repetition in 1..=args.repeats {
            let seed = args.seed.wrapping_add(u64::from(repetition) - 1);
            for (scheme, results) in schemes.iter().zip(&mut results) {
                let run = Run {
                    on: On::Hosts,
                    scenario: &scenario,
                    scheme,
                    job,
                    bytes: size(cell),
                    seed,
                    repetition,
                    limit: TRANSFER,
                };
                results.extend(one(&mut lab, &run)?);
            }
        }
        for (scheme, results) in schemes.iter().zip(&results) {
            let (host, controller, start) = parts(scheme);
            let goal = cell.goal(start, size(cell)).map_err(Failure::request)?;
            rows.push(Row { host, controller, start, ..row(cell, &scenario, goal, results) });
        }
    }
    bench::compare(&mut rows);
    Ok(rows)
}

fn schemes(asked: &[Scheme]) -> Result<Vec<Scheme>, Failure> {
    if !asked.is_empty() {
        return Ok(asked.to_vec());
    }
    SCHEMES.iter().map(|scheme| scheme.parse().map_err(Failure::request)).collect()
}

/// Who carries the bytes, whose window decides, and what it is told.
fn parts(scheme: &Scheme) -> (String, String, StartMode) {
    let text = scheme.to_string();
    let (kind, name) = text.split_once(':').unwrap_or(("", &text));
    let (name, start) = name.split_once('/').unwrap_or((name, ""));
    let start = StartMode::ALL.into_iter().find(|known| known.name() == start).unwrap_or_default();
    let host = if kind == "direct" { "kernel" } else { "proxies" };
    (host.to_owned(), name.to_owned(), start)
}

/// The median of the runs of a scheme.
fn row(cell: &OnHosts, scenario: &Scenario, goal: Goal, results: &[HostRow]) -> Row {
    let rates: Vec<f64> = results.iter().map(|result| result.goodput_bit_per_s).collect();
    let goodput = Spread { mean: stats::median(&rates).unwrap_or(0.0), ..Spread::of(&rates) };
    let wrong = results.iter().filter(|result| !result.passed());
    let reason = |result: &HostRow| {
        let reason = result.error.clone().or(result.invalid_reason.clone());
        reason.unwrap_or_else(|| "the received file differs".to_owned())
    };
    let drops: u64 = results.iter().map(|result| result.queue_dropped_packets).sum();
    Row {
        cell: cell.scenario.to_owned(),
        link: scenario.title.clone(),
        host: String::new(),
        controller: String::new(),
        start: StartMode::Cold,
        goodput,
        floor: results.iter().find_map(|result| result.limit_bit_per_s).unwrap_or(0.0),
        queue_p95: None,
        drops: drops as f64 / results.len().max(1) as f64,
        seeds: results.len() as u32,
        measures: vec![Measure { name: bench::GOODPUT, value: Some(goodput), goal: Some(goal) }],
        behind_best: None,
        failure: wrong.map(reason).next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_say_who_carries_and_how_it_starts() {
        let of = |text: &str| parts(&text.parse().unwrap());
        assert_eq!(of("direct:bbr"), ("kernel".to_owned(), "bbr".to_owned(), StartMode::Cold));
        assert_eq!(of("skyhaul:skyhaul"), ("proxies".to_owned(), "skyhaul".to_owned(), StartMode::Cold));
        assert_eq!(of("skyhaul:skyhaul/warm"), ("proxies".to_owned(), "skyhaul".to_owned(), StartMode::Warm));
        assert_eq!(schemes(&[]).unwrap().len(), SCHEMES.len());
    }
}
