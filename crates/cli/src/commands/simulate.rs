//! `skyhaul run --on sim`: controllers on TCP in virtual time.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use skyhaul_cc::registry;
use skyhaul_cc::tape::{Origin, Tape};
use skyhaul_cc::units::{Bytes, Rate, Time};
use skyhaul_lab::experiment::{self, Effort};
use skyhaul_sim::play;
use skyhaul_sim::scenario::{Scenario, WorkloadKind};
use skyhaul_sim::stats;
use skyhaul_sim::trace::{JsonLines, Note, Observer};
use skyhaul_sim::world::{Flow, World};

use crate::failure::Failure;
use crate::screen::numbers::{mbit, percent, seconds};
use crate::screen::progress::Jobs;
use crate::screen::rows::{self, Format};
use crate::screen::table::{Align, Table};

/// What to simulate.
pub struct Plan<'a> {
    /// The link and the way the data goes.
    pub scenario: &'a Scenario,
    /// Names of controllers.
    pub controllers: &'a [String],
    /// Size of the transfer; none for what the time allows.
    pub bytes: Option<Bytes>,
    /// First seed.
    pub seed: u64,
    /// How many seeds from there.
    pub seeds: u32,
    /// Virtual time after which a transfer is stopped.
    pub limit: Duration,
    /// Where to write what the controller hears and answers, if anywhere.
    pub tape: Option<&'a Path>,
    /// Where to write what happens to each packet, if anywhere.
    pub trace: Option<&'a Path>,
}

/// The result of one run. Names, units and meaning are those of the lab's rows.
#[derive(Clone, Debug, Serialize)]
struct Row {
    scenario: String,
    on: &'static str,
    /// The congestion controller of the TCP sender.
    scheme: String,
    workload: &'static str,
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
    queue_dropped_packets: u64,
}

/// Runs every controller with every seed, as many at once as there are cores, and prints the rows.
pub fn run(plan: &Plan<'_>, format: Format) -> Result<ExitCode, Failure> {
    for name in plan.controllers {
        registry::build(name, &play::setup(plan.scenario)).map_err(Failure::request)?;
    }
    let runs: Vec<(&str, u64)> = plan
        .controllers
        .iter()
        .flat_map(|name| (0..u64::from(plan.seeds)).map(move |i| (name.as_str(), plan.seed.wrapping_add(i))))
        .collect();
    let results: Vec<Row> = if plan.tape.is_some() || plan.trace.is_some() {
        vec![watched(plan, &runs)?]
    } else {
        let progress = Jobs::new(&plan.scenario.id, 1);
        let effort = Effort { progress: Some(&progress), ..Effort::full() };
        let results = experiment::run(&runs, &effort, |_| 1.0, |&(name, seed)| one(plan, name, seed, None).0);
        progress.finish();
        results
    };
    let text = match format {
        Format::Text => text(&results, plan),
        Format::Json => rows::json(&results)?,
        Format::Csv => rows::csv(&results)?,
    };
    rows::show(&text)?;
    Ok(ExitCode::from(u8::from(!results.iter().all(|row| row.valid))))
}

/// The only run, with tape and trace.
fn watched(plan: &Plan<'_>, runs: &[(&str, u64)]) -> Result<Row, Failure> {
    let option = if plan.tape.is_some() { "--tape" } else { "--trace" };
    let [(name, seed)] = runs else {
        return Err(Failure::request(format!(
            "{option} is for one run: give one controller and one seed, not {} and {}",
            plan.controllers.len(),
            plan.seeds
        )));
    };
    if plan.tape.is_some() && plan.tape == plan.trace {
        return Err(Failure::request("--tape and --trace name the same file; each wants its own"));
    }
    let mut tape = plan.tape.map(Output::create).transpose()?;
    let trace = plan.trace.map(Output::create).transpose()?.map(Trace::new);
    let (row, recorded) = one(plan, name, *seed, trace.clone());
    if let (Some(out), Some(recorded)) = (&mut tape, recorded) {
        let written = write!(out.file, "{recorded}").and_then(|()| out.file.flush());
        written.map_err(|error| out.failure(&error))?;
    }
    trace.map_or(Ok(()), Trace::finish)?;
    Ok(row)
}

/// A file that is being written.
struct Output<'a> {
    path: &'a Path,
    file: BufWriter<File>,
}

impl<'a> Output<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Output { path, file: BufWriter::new(file) })
    }

    fn failure(&self, error: &io::Error) -> Failure {
        cannot_write(self.path, error)
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::request(format!("cannot write {}: {error}", path.display()))
}

/// A trace that the world writes and we end.
#[derive(Clone)]
struct Trace<'a> {
    path: &'a Path,
    lines: Rc<RefCell<JsonLines<BufWriter<File>>>>,
}

/// The world's side of it.
struct Writer(Rc<RefCell<JsonLines<BufWriter<File>>>>);

impl<'a> Trace<'a> {
    fn new(out: Output<'a>) -> Self {
        Trace { path: out.path, lines: Rc::new(RefCell::new(JsonLines::new(out.file))) }
    }

    /// The world has to be gone.
    fn finish(self) -> Result<(), Failure> {
        let lines = Rc::into_inner(self.lines).map(RefCell::into_inner);
        let written = lines.map_or(Ok(()), |lines| lines.finish().map(drop));
        written.map_err(|error| cannot_write(self.path, &error))
    }
}

impl Observer for Writer {
    fn note(&mut self, at: Time, flow: usize, note: &Note) {
        self.0.borrow_mut().note(at, flow, note);
    }
}

/// One run, and its tape where one was asked for.
fn one(plan: &Plan<'_>, name: &str, seed: u64, trace: Option<Trace<'_>>) -> (Row, Option<Tape>) {
    let scenario = plan.scenario;
    let data = scenario.workload.kind.data();
    let mut world = World::on(scenario, data, seed);
    if let Some(trace) = trace {
        world.observe(Box::new(Writer(trace.lines)));
    }
    let setup = play::setup(scenario);
    let error = match registry::build(name, &setup) {
        Ok(controller) => {
            let (tcp, acks) = (scenario.tcp.sender(), scenario.tcp.receiver());
            let flow = Flow::new(controller);
            world.add(Flow { bytes: plan.bytes, tape: plan.tape.is_some(), tcp, acks, ..flow });
            world.run(Time::ZERO + plan.limit).err().map(|failure| failure.to_string())
        }
        Err(unknown) => Some(unknown.to_string()),
    };
    let outcome = world.outcomes().pop();
    let delivered = outcome.as_ref().map_or(Bytes::ZERO, |outcome| outcome.delivered);
    let counters = outcome.as_ref().map(|outcome| outcome.counters).unwrap_or_default();
    let end = outcome.as_ref().and_then(|outcome| outcome.finished);
    let goodput = outcome.as_ref().map_or(Rate::ZERO, |outcome| outcome.goodput(world.now()));
    let bytes = plan.bytes.unwrap_or(delivered);
    let limit = scenario.limit_of(data, bytes.max(Bytes(1)), scenario.tcp.mss);
    let origin = Some(Origin { controller: name.to_owned(), setup });
    let tape = outcome.and_then(|outcome| outcome.tape).map(|tape| Tape { origin, ..tape });
    let row = Row {
        scenario: scenario.id.clone(),
        on: "sim",
        scheme: name.to_owned(),
        workload: scenario.workload.kind.name(),
        bytes: bytes.0,
        received_bytes: delivered.0,
        complete: end.is_some() || plan.bytes.is_none(),
        seconds: end.unwrap_or(world.now()).as_secs_f64(),
        goodput_bit_per_s: goodput.as_f64(),
        limit_bit_per_s: limit.as_f64(),
        fraction_of_limit: (limit > Rate::ZERO).then(|| goodput.as_f64() / limit.as_f64()),
        integrity_ok: None,
        valid: error.is_none(),
        error,
        seed,
        sent_segments: counters.sent,
        retransmitted_segments: counters.again,
        spurious_segments: counters.spurious,
        timeouts: counters.timeouts,
        queue_dropped_packets: world.forward().counters().queue_full.packets,
    };
    (row, tape)
}

fn text(results: &[Row], plan: &Plan<'_>) -> String {
    let mut table = Table::new(&[
        ("controller", Align::Left),
        (if plan.seeds > 1 { "Mbit/s mean" } else { "Mbit/s" }, Align::Point),
        ("95 % interval", Align::Left),
        ("% of limit", Align::Point),
        ("time s", Align::Point),
        ("sent again %", Align::Point),
        ("needlessly %", Align::Point),
        ("timeouts", Align::Point),
        ("", Align::Left),
    ]);
    let groups: Vec<Vec<&Row>> = plan
        .controllers
        .iter()
        .map(|name| results.iter().filter(|row| row.scheme == *name).collect::<Vec<_>>())
        .filter(|group| !group.is_empty())
        .collect();
    let mean = |group: &[&Row], of: &dyn Fn(&Row) -> f64| {
        stats::mean(&group.iter().map(|row| of(row)).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let rate = |group: &[&Row]| mean(group, &|row| row.goodput_bit_per_s);
    let most = groups.iter().map(|group| rate(group)).fold(0.0, f64::max);
    for group in &groups {
        let rates: Vec<f64> = group.iter().map(|row| row.goodput_bit_per_s).collect();
        let interval = stats::mean_interval(&rates).map_or(String::new(), |interval| {
            format!("{} to {}", mbit(interval.low.max(0.0)), mbit(interval.high))
        });
        let of_sent = |part: fn(&Row) -> u64| {
            percent(mean(group, &|row| part(row) as f64 / row.sent_segments.max(1) as f64))
        };
        let state = match (group.iter().all(|row| row.valid), group.iter().all(|row| row.complete)) {
            (false, _) => "failed",
            (true, false) => "stopped",
            (true, true) => "",
        };
        table.row(
            groups.len() > 1 && rate(group) == most,
            vec![
                group[0].scheme.clone(),
                mbit(rate(group)),
                interval,
                percent(mean(group, &|row| row.fraction_of_limit.unwrap_or(0.0))),
                seconds(mean(group, &|row| row.seconds)),
                of_sent(|row| row.retransmitted_segments),
                of_sent(|row| row.spurious_segments),
                format!("{:.1}", mean(group, &|row| row.timeouts as f64)),
                state.to_owned(),
            ],
        );
    }
    let size = plan.bytes.map_or(String::new(), |bytes| format!(" of {bytes}"));
    let last = plan.seed.wrapping_add(u64::from(plan.seeds) - 1);
    let seeds =
        if plan.seeds > 1 { format!("seeds {} to {last}", plan.seed) } else { format!("seed {last}") };
    let Scenario { id, title, .. } = plan.scenario;
    let mut text = format!("{id}: {title}; TCP end to end in virtual time{size}; {seeds}\n{table}");
    if groups.len() > 1 {
        text.push_str("* best\n");
    }
    for row in results {
        if let Some(error) = &row.error {
            text.push_str(&format!("{error}\n"));
        } else if !row.complete {
            text.push_str(&format!(
                "{} (seed {}) was stopped after {} s with {:.1} of {:.1} MB; --max-seconds allows more\n",
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

/// The size of the transfer: as asked, or the scenario's; a stream has none.
pub fn size(scenario: &Scenario, asked: Option<Bytes>) -> Option<Bytes> {
    asked.or((scenario.workload.kind != WorkloadKind::Iperf3).then_some(scenario.workload.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan<'a>(scenario: &'a Scenario, controllers: &'a [String]) -> Plan<'a> {
        let bytes = Some(Bytes::mib(2));
        let limit = Duration::from_secs(20);
        Plan { scenario, controllers, bytes, seed: 1, seeds: 2, limit, tape: None, trace: None }
    }

    #[test]
    fn a_table_has_a_line_for_each_controller_and_says_what_was_stopped() {
        let scenario = Scenario::find("p1.down-270").unwrap();
        let controllers = ["newreno".to_owned(), "rate".to_owned()];
        let plan = plan(&scenario, &controllers);
        let rows: Vec<Row> = [("newreno", 1), ("newreno", 2), ("rate", 1), ("rate", 2)]
            .map(|(name, seed)| one(&plan, name, seed, None).0)
            .into();
        let text = text(&rows, &plan);
        assert!(text.lines().any(|line| line.starts_with("* rate")), "{text}");
        assert!(text.contains("newreno (seed 2) was stopped after 20 s"), "{text}");
        assert!(text.contains("seeds 1 to 2"), "{text}");
        assert!(rows.iter().all(|row| row.fraction_of_limit.is_some_and(|share| share > 0.0 && share < 1.0)));
    }

    #[test]
    fn rows_carry_the_keys_of_the_lab() {
        let scenario = Scenario::find("p1.down-270").unwrap();
        let controllers = ["rate".to_owned()];
        let json = rows::json(&[one(&plan(&scenario, &controllers), "rate", 1, None).0]).unwrap();
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
        let controllers = ["hybla".to_owned()];
        let folder = tempfile::tempdir().unwrap();
        let (tape, trace) = (folder.path().join("a.tape"), folder.path().join("a.jsonl"));
        let plan = Plan { seeds: 1, tape: Some(&tape), trace: Some(&trace), ..plan(&scenario, &controllers) };
        let row = watched(&plan, &[("hybla", 1)]).unwrap();
        assert_eq!(row.received_bytes, one(&Plan { tape: None, ..plan }, "hybla", 1, None).0.received_bytes);
        let tape: Tape = std::fs::read_to_string(&tape).unwrap().parse().unwrap();
        let Origin { controller, setup } = tape.origin.clone().unwrap();
        let mut controller = registry::build(&controller, &setup).unwrap();
        let replayed = skyhaul_cc::tape::replay(&tape, &mut *controller);
        assert!(replayed.len() > 1000);
        assert_eq!(skyhaul_cc::tape::first_difference(&tape, &replayed), None);
        let trace = std::fs::read_to_string(&trace).unwrap();
        let sent = trace.lines().filter(|line| line.contains("\"event\":\"sent\"")).count();
        assert_eq!(sent as u64, row.sent_segments);
    }

    #[test]
    fn a_tape_of_many_runs_or_into_nowhere_is_refused() {
        let scenario = Scenario::find("p1.down-270").unwrap();
        let controllers = ["hybla".to_owned()];
        let plan = Plan { tape: Some(Path::new("/no/such/folder/x")), ..plan(&scenario, &controllers) };
        let refusal = watched(&plan, &[("hybla", 1), ("hybla", 2)]).unwrap_err().to_string();
        assert!(refusal.contains("--tape is for one run") && refusal.ends_with("1 and 2"), "{refusal}");
        let refusal = watched(&plan, &[("hybla", 1)]).unwrap_err().to_string();
        assert!(refusal.starts_with("cannot write /no/such/folder/x: "), "{refusal}");
        let refusal = watched(&Plan { trace: plan.tape, ..plan }, &[("hybla", 1)]).unwrap_err().to_string();
        assert!(refusal.contains("the same file"), "{refusal}");
    }
}
