//! The parts of a scenario that say who sends: `[tcp]`, `[[flows]]`, `[sweep]`, controllers, duration.

use skyhaul_cc::registry::{self, Contender, UnknownController};
use skyhaul_cc::units::{Bytes, Duration};

use super::parse::{ber, length, share, transfer, Result};
use super::plan::{FlowPlan, Sweep, TcpPlan, Threshold};
use super::reader::{Found, Table};
use super::{Dir, Direction, Scenario, WorkloadKind};
use crate::tcp::{Pacing, Recovery};

/// What the plan consists of in the file.
pub(super) struct Plan {
    pub tcp: TcpPlan,
    pub flows: Vec<FlowPlan>,
    pub sweep: Sweep,
    pub controllers: Vec<String>,
    pub duration: Option<Duration>,
    pub repeats: Option<u32>,
}

pub(super) fn plan(root: &Table<'_>) -> Result<Plan> {
    let duration = root.get("duration").map(|found| some_time(&found)).transpose()?;
    Ok(Plan {
        tcp: match root.get("tcp") {
            Some(found) => tcp(&found.table()?)?,
            None => TcpPlan::default(),
        },
        flows: root.get("flows").map_or(Ok(Vec::new()), |found| flows(&found, duration))?,
        sweep: root.get("sweep").map_or(Ok(Sweep::default()), |found| sweep(&found.table()?))?,
        controllers: match root.get("controllers") {
            Some(found) => found.some_items("controllers")?.iter().map(controller).collect::<Result<_>>()?,
            None => Vec::new(),
        },
        duration,
        repeats: root.get("repeats").map(|found| found.whole(1, MOST_REPEATS, "")).transpose()?,
    })
}

fn tcp(table: &Table<'_>) -> Result<TcpPlan> {
    let plain = TcpPlan::default();
    let mss = table.get("mss").map_or(Ok(plain.mss), |found| size(&found, Bytes(1), LARGEST_SEGMENT))?;
    let plan = TcpPlan {
        mss,
        headers: table
            .get("headers")
            .map_or(Ok(plain.headers), |found| size(&found, Bytes::ZERO, LARGEST_HEADERS))?,
        pacing: table.get("pacing").map_or(Ok(plain.pacing), |found| found.choice(&PACINGS))?,
        recovery: table.get("recovery").map_or(Ok(plain.recovery), |found| found.choice(&RECOVERIES))?,
        initial_rto: table.get("initial_rto").map_or(Ok(plain.initial_rto), |found| timeout(&found))?,
        initial_window: table.get("initial_window").map(|found| window(&found, mss)).transpose()?,
        initial_ssthresh: table.get("initial_ssthresh").map(|found| threshold(&found, mss)).transpose()?,
        reference_rtt: table.get("reference_rtt").map(|found| some_time(&found)).transpose()?,
        ack_every: table
            .get("ack_every")
            .map_or(Ok(plain.ack_every), |found| found.whole(1, MOST_PER_ACK, "segments"))?,
        receive_window: table
            .get("receive_window")
            .map(|found| size(&found, mss, LARGEST_WINDOW))
            .transpose()?,
    };
    table.no_others()?;
    Ok(plan)
}

fn flows(found: &Found<'_>, duration: Option<Duration>) -> Result<Vec<FlowPlan>> {
    let tables = found.tables()?;
    if tables.is_empty() || tables.len() > MOST_FLOWS {
        return Err(found.error(format!("{} flows, expected between 1 and {MOST_FLOWS}", tables.len())));
    }
    tables.iter().map(|table| flow(table, duration)).collect()
}

fn flow(table: &Table<'_>, duration: Option<Duration>) -> Result<FlowPlan> {
    let mut plan = FlowPlan::default();
    if let Some(found) = table.get("start") {
        plan.start = length(&found)?;
        if duration.is_some_and(|duration| plan.start >= duration) {
            return Err(found.expected("before the end of the scenario's duration: the flow never starts"));
        }
    }
    plan.controller = table.get("controller").map(|found| controller(&found)).transpose()?;
    plan.bytes = table.get("bytes").map(|found| transfer(&found)).transpose()?;
    table.no_others()?;
    if plan.bytes.is_none() && duration.is_none() {
        return Err(table
            .error("bytes", "missing; expected bytes = \"500 MB\", or a duration for a flow without end"));
    }
    Ok(plan)
}

fn sweep(table: &Table<'_>) -> Result<Sweep> {
    fn values<T>(table: &Table<'_>, key: &'static str, read: fn(&Found<'_>) -> Result<T>) -> Result<Vec<T>> {
        let Some(found) = table.get(key) else { return Ok(Vec::new()) };
        found.some_items("values to sweep over")?.iter().map(read).collect()
    }
    let sweep = Sweep {
        rtt: values(table, "rtt", length)?,
        loss: values(table, "loss", share)?,
        ber: values(table, "ber", ber)?,
        bytes: values(table, "bytes", transfer)?,
    };
    table.no_others()?;
    if sweep.is_empty() {
        return Err(table.error("", "sweeps over nothing; expected a list rtt, loss, ber or bytes"));
    }
    if sweep.len() > MOST_CELLS {
        return Err(table.error("", format!("{} cells, expected at most {MOST_CELLS}", sweep.len())));
    }
    Ok(sweep)
}

/// Checks what takes more than one table to see, in every cell of the sweep.
pub(super) fn check(scenario: &Scenario, root: &Table<'_>) -> Result<()> {
    let at = |table: &'static str, key: &'static str, problem: String| match root.need_table(table) {
        Ok(table) => match table.get(key) {
            Some(found) => found.expected(problem),
            None => table.error(key, format!("expected {problem}")),
        },
        Err(missing) => missing,
    };
    let Sweep { rtt, loss, bytes, .. } = &scenario.sweep;
    let data = scenario.direction(scenario.data());
    if !loss.is_empty() && data.changes.iter().any(|change| change.loss.is_some()) {
        let problem = format!("none, or no changes of loss in [[{}.changes]]", scenario.data());
        return Err(at("sweep", "loss", problem));
    }
    let sized = match scenario.flows.is_empty() {
        true => scenario.workload.kind != WorkloadKind::Iperf3,
        false => scenario.flows.iter().any(|flow| flow.bytes.is_some()),
    };
    if !bytes.is_empty() && !sized {
        return Err(at("sweep", "bytes", "none, or a workload or flow that has a size".to_owned()));
    }
    for dir in Dir::ALL {
        let Direction { jitter, changes, .. } = scenario.direction(dir);
        if !rtt.is_empty() && changes.iter().any(|change| change.one_way.is_some()) {
            let problem = format!("none, or no changes of one_way in [[{dir}.changes]]");
            return Err(at("sweep", "rtt", problem));
        }
        let least = rtt.iter().min().filter(|&&rtt| jitter.is_some_and(|jitter| jitter.half_range > rtt / 2));
        if least.is_some() {
            return Err(at("sweep", "rtt", format!("at least twice the half_range of [{dir}.jitter]")));
        }
    }
    // Queues follow from the round trip; the shortest one makes the smallest.
    let mut extreme = scenario.clone();
    for rtt in rtt.iter().min().into_iter().chain(rtt.iter().max()).copied().chain([scenario.rtt()]) {
        extreme.set_rtt(rtt);
        for dir in Dir::ALL {
            let queue = extreme.direction(dir).queue;
            if !(FULL_PACKET..=LARGEST_QUEUE).contains(&queue) {
                let problem = format!(
                    "between 1500 B, one full packet, and 100 GB, but it is {queue} at a round trip of {} ms; \
                     queue_least sets a least size",
                    rtt.as_nanos() as f64 / 1e6
                );
                return Err(at(dir.name(), "queue", problem));
            }
        }
        let packet = scenario.tcp.packet();
        if packet > extreme.direction(scenario.data()).queue {
            let problem =
                format!("a segment that fits the queue with its headers, but together it is {packet}");
            return Err(at("tcp", "mss", problem));
        }
    }
    Ok(())
}

/// A controller, with its start where that matters: `skyhaul/warm`.
fn controller(found: &Found<'_>) -> Result<String> {
    let name = found.text()?;
    match name.parse::<Contender>() {
        Ok(contender) => Ok(contender.to_string()),
        Err(UnknownController::Name(_)) => {
            let known = registry::names().collect::<Vec<_>>().join(", ");
            Err(found.expected(format_args!("a controller: one of {known}")))
        }
        Err(_) => Err(found.expected("a controller or one with its start, such as \"skyhaul/warm\"")),
    }
}

fn size(found: &Found<'_>, least: Bytes, most: Bytes) -> Result<Bytes> {
    let size: Bytes = found.quantity("an amount of data such as \"1448 B\"")?;
    if !(least..=most).contains(&size) {
        return Err(found.expected(format_args!("between {least} and {most}")));
    }
    Ok(size)
}

fn some_time(found: &Found<'_>) -> Result<Duration> {
    let time = length(found)?;
    if time.is_zero() {
        return Err(found.expected("more than nothing"));
    }
    Ok(time)
}

fn timeout(found: &Found<'_>) -> Result<Duration> {
    let timeout = length(found)?;
    if !(SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(&timeout) {
        return Err(found.expected("between 1 ms and 60 s"));
    }
    Ok(timeout)
}

/// A window in segments.
fn window(found: &Found<'_>, mss: Bytes) -> Result<Bytes> {
    Ok(mss * u64::from(found.whole(2, MOST_SEGMENTS, "segments")?))
}

/// A threshold: a plain number of segments, `"5 MB"`, or `"1 bdp"`.
fn threshold(found: &Found<'_>, mss: Bytes) -> Result<Threshold> {
    if let Some(times) = found.products()? {
        return Ok(Threshold::Bdp(times));
    }
    if found.is_number() {
        return window(found, mss).map(Threshold::Bytes);
    }
    size(found, mss, LARGEST_WINDOW).map(Threshold::Bytes)
}

const PACINGS: [(&str, Pacing); 3] =
    [("always", Pacing::Always), ("if-asked", Pacing::IfAsked), ("never", Pacing::Never)];
const RECOVERIES: [(&str, Recovery); 3] =
    [("rack", Recovery::Rack), ("dupack", Recovery::Dupack), ("predictive", Recovery::Predictive)];

/// With headers still an IP packet.
const LARGEST_SEGMENT: Bytes = Bytes(65_000);
/// IPv6 with a few extension headers, TCP with all its options.
const LARGEST_HEADERS: Bytes = Bytes(200);
/// As many segments as a controller's window may hold.
const MOST_SEGMENTS: u32 = 1 << 24;
const LARGEST_WINDOW: Bytes = Bytes(1_000_000_000_000);
const MOST_PER_ACK: u32 = 1000;
/// The timeout is never longer than a minute.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
const MOST_REPEATS: u32 = 10_000;
const MOST_FLOWS: usize = 1000;
/// Each cell is a run of seconds to minutes.
const MOST_CELLS: usize = 1000;
/// The largest IP packet on an Ethernet.
pub(super) const FULL_PACKET: Bytes = Bytes(1500);
pub(super) const LARGEST_QUEUE: Bytes = Bytes(100_000_000_000);
