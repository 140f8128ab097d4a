//! The real channel over the links of the table: the same code that runs live, TLS and all.

use skyhaul_cc::registry::Contender;
use skyhaul_cc::units::{Bytes, Duration, Time};
use skyhaul_sim::tunnel::{Pair, Plan, Transfer};

use super::path::Path;
use super::{watch, Run};
use crate::experiment::LabError;

/// A packet of the channel through both ends, on a core of 2024.
pub(super) const SECONDS_PER_PACKET: f64 = 13e-6;

/// Between two looks at the queue.
const LOOK: Duration = Duration::from_millis(10);

/// Carries one file, from opening the flow to its last byte at the far application.
pub(super) fn file(
    path: &Path,
    who: &Contender,
    bytes: Bytes,
    stop: Time,
    seed: u64,
) -> Result<Run, LabError> {
    let scenario = &path.scenario;
    let plan = Plan::new(scenario, &who.to_string(), seed)?;
    let transfer = Transfer::new(path.data, bytes.0);
    let mut pair = Pair::new(scenario, plan, vec![transfer])
        .map_err(|error| LabError::Other(format!("{}: {error}", scenario.id)))?;
    let mut queues = Vec::new();
    while pair.now() < stop {
        let next = pair.now() + LOOK;
        pair.run(next);
        // The queue counts from the first byte on.
        if pair.outcomes().iter().all(|outcome| outcome.opened.is_some()) {
            queues.push(watch::queue(pair.link(path.data), pair.now(), path.packet()));
        }
        if pair.now() < next {
            break;
        }
    }
    let outcome = pair.outcomes()[0];
    if outcome.corrupt || outcome.reset.is_some() || outcome.refused.is_some() {
        return Err(LabError::Other(format!(
            "{}: the channel with {who} delivered {} of {} bytes wrongly or not at all, with seed {seed}",
            scenario.id, outcome.delivered, bytes.0
        )));
    }
    let since = |end: Time| end.since(outcome.opened.unwrap_or(Time::ZERO)).as_secs_f64();
    let seconds = since(outcome.finished.unwrap_or(pair.now())).max(1e-9);
    let goodput = Bytes(outcome.delivered).bits() as f64 / seconds;
    Ok(Run {
        goodput,
        queue_p95: watch::p95(&queues),
        drops: pair.counters(path.data).queue_full.packets,
        values: vec![Some(goodput)],
    })
}
