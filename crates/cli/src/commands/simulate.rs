//! `skyhaul run --on sim`: controllers on TCP in virtual time.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use skyhaul_cc::tape::{Origin, Tape};
use skyhaul_cc::units::{Bytes, Rate, Time};
use skyhaul_lab::experiment::{self, Effort};
use skyhaul_sim::play;
use skyhaul_sim::scenario::{Cell, FlowPlan, Scenario};
use skyhaul_sim::stats;
use skyhaul_sim::world::Outcome;

use super::watch::{Files, Watch};
use crate::failure::Failure;
use crate::screen::numbers::{mbit, percent, seconds};
use crate::screen::progress::Jobs;
use crate::screen::rows::{self, Format};
use crate::screen::table::{Align, Table};

/// What to simulate.
pub struct Plan<'a> {
    /// The link and the way the data goes.
    pub scenario: &'a Scenario,
    /// Its cells that are wanted, with flows as large as wanted.
    pub cells: Vec<Cell>,
    /// Contenders for the flows, one list after the other; an empty one leaves them to the scenario.
    pub contenders: Vec<Vec<String>>,
    /// First seed.
    pub seed: u64,
    /// How many seeds from there.
    pub seeds: u32,
    /// Virtual time after which a run is stopped, where it is not the scenario's.
    pub limit: Option<Duration>,
    /// What to write of the run.
    pub watch: Watch<'a>,
}

/// The result of one flow in one run. Names, units and meaning are those of the lab's rows.
#[derive(Clone, Debug, Serialize)]
struct Row {
    scenario: String,
    on: &'static str,
    /// The congestion controller of the TCP sender and how it starts.
    scheme: String,
    /// Number of the flow, from 1.
    flow: usize,
    /// Which of the scenario's cells, such as `rtt 20 ms, loss 0.05 %`; empty if there is only one.
    cell: String,
    rtt_s: f64,
    loss: f64,
    /// Error rate, per bit or per byte as the scenario says.
    ber: f64,
    workload: &'static str,
    /// When the flow began.
    start_s: f64,
    bytes: u64,
    received_bytes: u64,
    complete: bool,
    seconds: f64,
    goodput_bit_per_s: f64,
    limit_bit_per_s: f64,
    fraction_of_limit: Option<f64>,
    /// Simulated bytes have no content that could be compared.
    integrity_ok: Option<bool>,
    /// False if the run failed; `error` says why.
    valid: bool,
    error: Option<String>,
    seed: u64,
    /// Segments sent, each transmission counted.
    sent_segments: u64,
    /// Of these, sent again.
    retransmitted_segments: u64,
    /// Of these, sent again needlessly: an earlier copy arrives.
    spurious_segments: u64,
    timeouts: u64,
    /// Of all flows.
    queue_dropped_packets: u64,
}

/// One run.
#[derive(Clone, Copy)]
struct Job<'a> {
    cell: &'a Cell,
    contender: usize,
    seed: u64,
}

/// Runs every contender in every cell with every seed, as many at once as there are cores, and prints the rows.
pub fn run(plan: &Plan<'_>, format: Format) -> Result<ExitCode, Failure> {
    for contender in &plan.contenders {
        play::world(plan.scenario, &names(contender), plan.seed).map_err(Failure::request)?;
    }
    let effort = Effort { seeds: plan.seeds, first_seed: plan.seed, ..Effort::full() };
    let mut jobs = Vec::new();
    for cell in &plan.cells {
        for contender in 0..plan.contenders.len() {
            jobs.extend(effort.each_seed().map(|seed| Job { cell, contender, seed }));
        }
    }
    let results: Vec<Vec<Row>> = if plan.watch.is_wanted() {
        watched(plan, &jobs)?
    } else {
        let progress = Jobs::new(&plan.scenario.id, 1);
        let effort = Effort { progress: Some(&progress), ..effort };
        let results = experiment::run(&jobs, &effort, |_| 1.0, |job| one(plan, *job, None).0);
        progress.finish();
        results
    };
    let text = match format {
        Format::Text => text(&jobs, &results, plan),
        Format::Json => rows::json(&results.concat())?,
        Format::Csv => rows::csv(&results.concat())?,
    };
    rows::show(&text)?;
    Ok(ExitCode::from(u8::from(!results.iter().flatten().all(|row| row.valid))))
}

/// The only run, with tape and trace.
fn watched(plan: &Plan<'_>, jobs: &[Job<'_>]) -> Result<Vec<Vec<Row>>, Failure> {
    let files = plan.watch.open(jobs.len())?;
    if files.wants_tape() && plan.scenario.flow_plans().len() > 1 {
        return Err(Failure::request(format!(
            "--tape is for one controller and {} has {} flows; --trace writes all of them",
            plan.scenario.id,
            plan.scenario.flows.len()
        )));
    }
    let (rows, tape) = one(plan, jobs[0], Some(&files));
    files.finish(tape.as_ref())?;
    Ok(vec![rows])
}

fn names(contender: &[String]) -> Vec<&str> {
    contender.iter().map(String::as_str).collect()
}

/// The cells of a scenario that are wanted, each flow as large as asked.
///
/// `wanted` is nothing for all, or parts of a cell's name such as `rtt 20 ms, loss 0.5 %`.
pub fn cells(scenario: &Scenario, wanted: Option<&str>, bytes: Option<Bytes>) -> Result<Vec<Cell>, Failure> {
    let parts: Vec<&str> = wanted.unwrap_or("").split(',').map(str::trim).filter(|p| !p.is_empty()).collect();
    let all = scenario.cells();
    let is_wanted = |cell: &&Cell| {
        let name: Vec<&str> = cell.name.split(", ").collect();
        parts.iter().all(|part| name.contains(part))
    };
    let mut cells: Vec<Cell> = all.iter().filter(is_wanted).cloned().collect();
    if cells.is_empty() {
        let (id, asked) = (&scenario.id, wanted.unwrap_or(""));
        let known = match &all[..] {
            [only] if only.name.is_empty() => "; it does not vary".to_owned(),
            _ => format!("; the first is \"{}\"", all[0].name),
        };
        return Err(Failure::request(format!("{id} has no cell \"{asked}\"{known}")));
    }
    for cell in cells.iter_mut().filter(|_| bytes.is_some()) {
        let flows = cell.scenario.flow_plans().into_iter();
        cell.scenario.flows = flows.map(|flow| FlowPlan { bytes, ..flow }).collect();
        cell.bytes = bytes;
    }
    Ok(cells)
}

/// One run, and the tape of its first flow where one is asked for.
fn one(plan: &Plan<'_>, job: Job<'_>, files: Option<&Files<'_>>) -> (Vec<Row>, Option<Tape>) {
    let cell = job.cell;
    let scenario = &cell.scenario;
    let wanted = names(&plan.contenders[job.contender]);
    let world = play::world(scenario, &wanted, job.seed);
    // They could be built with the scenario itself, and cells differ only in numbers.
    let (Ok(mut world), Ok(contenders)) = (world, play::contenders(scenario, &wanted)) else {
        return (Vec::new(), None);
    };
    if files.is_some_and(Files::wants_tape) {
        world.record(0);
    }
    if let Some(observer) = files.and_then(Files::observer) {
        world.observe(observer);
    }
    let error = world.run(end(plan, scenario)).err().map(|failure| failure.to_string());
    let (now, dropped) = (world.now(), world.forward().counters().queue_full.packets);
    let outcomes = world.outcomes();
    let row = |(index, (flow, outcome)): (usize, (FlowPlan, &Outcome))| {
        let bytes = flow.bytes.unwrap_or(outcome.delivered);
        let time = outcome.finished.unwrap_or(now).since(outcome.start);
        // What has no end is held against what the link carries in the time.
        let most = flow.bytes.unwrap_or(scenario.payload_rate().bytes_in(time)).max(Bytes(1));
        let limit = scenario.tcp_limit(most);
        let goodput = outcome.goodput(now);
        Row {
            scenario: scenario.id.clone(),
            on: "sim",
            scheme: contenders[index].to_string(),
            flow: index + 1,
            cell: cell.name.clone(),
            rtt_s: cell.rtt.as_secs_f64(),
            loss: cell.loss.value(),
            ber: cell.ber.value(),
            workload: scenario.workload.kind.name(),
            start_s: flow.start.as_secs_f64(),
            bytes: bytes.0,
            received_bytes: outcome.delivered.0,
            complete: outcome.finished.is_some() || flow.bytes.is_none(),
            seconds: time.as_secs_f64(),
            goodput_bit_per_s: goodput.as_f64(),
            limit_bit_per_s: limit.as_f64(),
            fraction_of_limit: (limit > Rate::ZERO).then(|| goodput.as_f64() / limit.as_f64()),
            integrity_ok: None,
            valid: error.is_none(),
            error: error.clone(),
            seed: job.seed,
            sent_segments: outcome.counters.sent,
            retransmitted_segments: outcome.counters.again,
            spurious_segments: outcome.counters.spurious,
            timeouts: outcome.counters.timeouts,
            queue_dropped_packets: dropped,
        }
    };
    let rows = scenario.flow_plans().into_iter().zip(&outcomes).enumerate().map(row).collect();
    let tape = outcomes.first().zip(contenders.first()).and_then(|(outcome, contender)| {
        let origin =
            Origin { controller: outcome.controller.to_owned(), setup: play::setup(scenario, contender) };
        outcome.tape.clone().map(|tape| Tape { origin: Some(origin), ..tape })
    });
    (rows, tape)
}

/// When a run is stopped: as asked, as the scenario says, or after 30 s without an end and 120 s with one.
fn end(plan: &Plan<'_>, scenario: &Scenario) -> Time {
    let endless = scenario.flow_plans().iter().any(|flow| flow.bytes.is_none());
    let usual = if endless { super::run::STREAM } else { super::run::TRANSFER };
    Time::ZERO + plan.limit.or(scenario.duration).unwrap_or(usual)
}

/// A line for each flow of each contender in each cell, seeds together.
fn text(jobs: &[Job<'_>], results: &[Vec<Row>], plan: &Plan<'_>) -> String {
    let mut table = Table::new(&[
        ("cell", Align::Left),
        ("controller", Align::Left),
        ("from s", Align::Point),
        (if plan.seeds > 1 { "Mbit/s mean" } else { "Mbit/s" }, Align::Point),
        ("95 % interval", Align::Left),
        ("% of limit", Align::Point),
        ("time s", Align::Point),
        ("sent again %", Align::Point),
        ("needlessly %", Align::Point),
        ("timeouts", Align::Point),
        ("", Align::Left),
    ]);
    let mut contest = false;
    for cell in &plan.cells {
        let of_cell = |contender: usize| {
            let runs = jobs.iter().zip(results);
            runs.filter(move |(job, _)| job.contender == contender && std::ptr::eq(job.cell, cell))
        };
        let mut lines: Vec<Vec<&Row>> = Vec::new();
        for contender in 0..plan.contenders.len() {
            let flows = of_cell(contender).map(|(_, rows)| rows.len()).max().unwrap_or(0);
            let line = |flow| of_cell(contender).filter_map(|(_, rows)| rows.get(flow)).collect();
            lines.extend((0..flows).map(line));
        }
        // Flows that share a link do not compete for the best result.
        let alone = lines.len() > 1 && lines.len() == plan.contenders.len();
        let most = lines.iter().map(|line| rate(line)).fold(0.0, f64::max);
        contest |= alone;
        for line in &lines {
            table.row(alone && rate(line) == most, cells_of(line, lines.len() > plan.contenders.len()));
        }
    }
    let size = plan.cells.first().and_then(|cell| cell.bytes);
    let size = size.map_or(String::new(), |bytes| format!(" of {bytes}"));
    let last = plan.seed.wrapping_add(u64::from(plan.seeds) - 1);
    let seeds =
        if plan.seeds > 1 { format!("seeds {} to {last}", plan.seed) } else { format!("seed {last}") };
    let Scenario { id, title, .. } = plan.scenario;
    let mut text = format!("{id}: {title}; TCP end to end in virtual time{size}; {seeds}\n{table}");
    text.push_str(if contest { "* best\n" } else { "" });
    for row in results.iter().flatten() {
        let cell = if row.cell.is_empty() { String::new() } else { format!(", {}", row.cell) };
        if let (Some(error), 1) = (&row.error, row.flow) {
            text.push_str(&format!("{error}{cell}\n"));
        } else if !row.complete {
            text.push_str(&format!(
                "{} (seed {}{cell}) was stopped after {} s with {:.1} of {:.1} MB; --max-seconds allows more\n",
                row.scheme,
                row.seed,
                row.seconds,
                row.received_bytes as f64 / 1e6,
                row.bytes as f64 / 1e6,
            ));
        }
    }
    text
}

fn mean(line: &[&Row], of: impl Fn(&Row) -> f64) -> f64 {
    stats::mean(&line.iter().map(|row| of(row)).collect::<Vec<_>>()).unwrap_or(0.0)
}

fn rate(line: &[&Row]) -> f64 {
    mean(line, |row| row.goodput_bit_per_s)
}

/// The same flow with several seeds as a row of the table; `starts` tells when it began.
fn cells_of(line: &[&Row], starts: bool) -> Vec<String> {
    let rates: Vec<f64> = line.iter().map(|row| row.goodput_bit_per_s).collect();
    let interval = stats::mean_interval(&rates).map_or(String::new(), |interval| {
        format!("{} to {}", mbit(interval.low.max(0.0)), mbit(interval.high))
    });
    let of_sent =
        |part: fn(&Row) -> u64| percent(mean(line, |row| part(row) as f64 / row.sent_segments.max(1) as f64));
    let state = match (line.iter().all(|row| row.valid), line.iter().all(|row| row.complete)) {
        (false, _) => "failed",
        (true, false) => "stopped",
        (true, true) => "",
    };
    vec![
        line[0].cell.clone(),
        line[0].scheme.clone(),
        if starts { seconds(line[0].start_s) } else { String::new() },
        mbit(rate(line)),
        interval,
        percent(mean(line, |row| row.fraction_of_limit.unwrap_or(0.0))),
        seconds(mean(line, |row| row.seconds)),
        of_sent(|row| row.retransmitted_segments),
        of_sent(|row| row.spurious_segments),
        format!("{:.1}", mean(line, |row| row.timeouts as f64)),
        state.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn plan<'a>(scenario: &'a Scenario, controllers: &[&str], bytes: Option<Bytes>) -> Plan<'a> {
        let cells = cells(scenario, None, bytes).unwrap();
        let contenders = controllers.iter().map(|name| vec![(*name).to_owned()]).collect();
        let limit = Some(Duration::from_secs(20));
        Plan { scenario, cells, contenders, seed: 1, seeds: 2, limit, watch: Watch::default() }
    }

    fn first<'a>(plan: &'a Plan<'_>) -> Job<'a> {
        Job { cell: &plan.cells[0], contender: 0, seed: 1 }
    }

    fn shown(plan: &Plan<'_>) -> String {
        let mut jobs = Vec::new();
        for cell in &plan.cells {
            for contender in 0..plan.contenders.len() {
                jobs.extend([1, 2].map(|seed| Job { cell, contender, seed }));
            }
        }
        let results: Vec<Vec<Row>> = jobs.iter().map(|job| one(plan, *job, None).0).collect();
        let in_bounds = |row: &Row| row.fraction_of_limit.is_some_and(|share| share > 0.0 && share < 1.0);
        assert!(results.iter().flatten().all(in_bounds));
        text(&jobs, &results, plan)
    }

    #[test]
    fn a_table_has_a_line_for_each_controller_and_says_what_was_stopped() {
        let scenario = Scenario::find("p1.down-270").unwrap();
        let text = shown(&plan(&scenario, &["newreno", "rate"], Some(Bytes::mib(2))));
        assert!(text.lines().any(|line| line.starts_with("* rate")), "{text}");
        assert!(text.contains("newreno (seed 2) was stopped after 20 s"), "{text}");
        assert!(text.contains("seeds 1 to 2"), "{text}");
    }

    #[test]
    fn a_sweep_has_a_line_for_each_cell_and_controller() {
        let scenario = Scenario::find("p2.random-loss").unwrap();
        let text = shown(&plan(&scenario, &["newreno", "hybla"], Some(Bytes(200_000))));
        for ber in ["1e-9", "1e-8", "1e-7", "1e-6", "1e-5"] {
            let lines = text.lines().filter(|line| line.contains(&format!("ber {ber} ")));
            assert_eq!(lines.count(), 2, "{text}");
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("* ber ")).count(), 5, "{text}");
    }

    #[test]
    fn flows_have_a_line_each_with_their_own_controller_and_none_is_the_best() {
        let mut scenario = Scenario::find("p0.preemption-c").unwrap();
        scenario.flows.iter_mut().for_each(|flow| flow.start /= 10);
        let plan = Plan { contenders: vec![vec![]], ..plan(&scenario, &[], Some(Bytes::mib(4))) };
        let text = shown(&plan);
        for (name, start) in [("cubic", "0.000"), ("bbr", "1.00"), ("boost", "2.00")] {
            let line = text.lines().find(|line| line.contains(name) && line.contains("  ")).unwrap();
            assert!(line.split_whitespace().nth(1) == Some(start), "{text}");
        }
        assert!(!text.contains("best"), "{text}");
    }

    #[test]
    fn a_flow_without_end_is_held_against_what_the_link_carries_in_its_time() {
        let scenario = Scenario::find("p4.packet").unwrap();
        let plan = plan(&scenario, &["newreno"], None);
        let row = one(&plan, first(&plan), None).0.remove(0);
        // 5 Gbit/s for 20 s and a window that has only begun to grow.
        let share = row.fraction_of_limit.unwrap();
        assert!(share > 0.0 && share < 0.001, "{share}");
        assert!(row.limit_bit_per_s > 4e9, "{}", row.limit_bit_per_s);
    }

    #[test]
    fn cells_are_chosen_by_whole_parts_of_their_names() {
        let scenario = Scenario::find("p0.throughput-vs-loss").unwrap();
        let count = |wanted| cells(&scenario, wanted, None).map(|cells| cells.len());
        assert_eq!(count(None).unwrap(), 20);
        assert_eq!(count(Some("rtt 20 ms")).unwrap(), 5);
        assert_eq!(count(Some("loss 0 %")).unwrap(), 4);
        assert_eq!(count(Some("loss 0.5 %,rtt 80 ms")).unwrap(), 1);
        let error = count(Some("rtt 25 ms")).unwrap_err().to_string();
        assert!(error.contains("no cell \"rtt 25 ms\"; the first is \"rtt 20 ms, loss 0 %\""), "{error}");
        let sized = cells(&scenario, Some("rtt 20 ms"), Some(Bytes(7))).unwrap();
        assert!(sized.iter().all(|cell| cell.scenario.flow_plans()[0].bytes == Some(Bytes(7))));
    }

    #[test]
    fn rows_carry_the_keys_of_the_lab() {
        let scenario = Scenario::find("p1.down-270").unwrap();
        let plan = plan(&scenario, &["rate"], Some(Bytes::mib(2)));
        let json = rows::json(&one(&plan, first(&plan), None).0).unwrap();
        for key in ["scenario", "on", "scheme", "workload", "bytes", "seconds", "goodput_bit_per_s"] {
            assert!(json.contains(&format!("\"{key}\": ")), "{json}");
        }
        for key in ["limit_bit_per_s", "fraction_of_limit", "integrity_ok", "valid", "seed"] {
            assert!(json.contains(&format!("\"{key}\": ")), "{json}");
        }
    }

    #[test]
    fn tape_and_trace_hold_the_run_and_the_tape_replays_to_its_windows() {
        let scenario = Scenario::find("p1.down-270").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (tape, trace) = (folder.path().join("a.tape"), folder.path().join("a.jsonl"));
        let watch = Watch { tape: Some(&tape), trace: Some(&trace) };
        let plan = Plan { watch, ..plan(&scenario, &["hybla"], Some(Bytes::mib(2))) };
        let rows = watched(&plan, &[first(&plan)]).unwrap().concat();
        assert_eq!(rows[0].received_bytes, one(&plan, first(&plan), None).0[0].received_bytes);
        let tape: Tape = std::fs::read_to_string(&tape).unwrap().parse().unwrap();
        let Origin { controller, setup } = tape.origin.clone().unwrap();
        let mut controller = skyhaul_cc::registry::build(&controller, &setup).unwrap();
        let replayed = skyhaul_cc::tape::replay(&tape, &mut *controller);
        assert!(replayed.len() > 1000);
        assert_eq!(skyhaul_cc::tape::first_difference(&tape, &replayed), None);
        let trace = std::fs::read_to_string(&trace).unwrap();
        let sent = trace.lines().filter(|line| line.contains("\"event\":\"sent\"")).count();
        assert_eq!(sent as u64, rows[0].sent_segments);
    }

    #[test]
    fn a_tape_of_many_runs_or_of_many_flows_or_into_nowhere_is_refused() {
        let nowhere = Some(Path::new("/no/such/folder/x"));
        let refusal = |id: &str, watch, runs| {
            let scenario = Scenario::find(id).unwrap();
            let plan = Plan { watch, ..plan(&scenario, &["hybla"], None) };
            watched(&plan, &vec![first(&plan); runs]).unwrap_err().to_string()
        };
        let tape = Watch { tape: nowhere, trace: None };
        let said = refusal("p1.down-270", tape, 2);
        assert!(said.starts_with("--tape is for one run and this makes 2: "), "{said}");
        let said = refusal("p1.down-270", tape, 1);
        assert!(said.starts_with("cannot write /no/such/folder/x: "), "{said}");
        let said = refusal("p1.down-270", Watch { trace: nowhere, ..tape }, 1);
        assert!(said.contains("the same file"), "{said}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let said = refusal("p0.fairness-3-flows", Watch { tape: Some(file.path()), trace: None }, 1);
        assert!(said.contains("p0.fairness-3-flows has 3 flows"), "{said}");
    }
}
