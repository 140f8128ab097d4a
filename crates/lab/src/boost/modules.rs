//! The modules of section 3.4 against the simulator's truth: what losses were taken for, what a flow learns of its
//! path and what the next one makes of it, and the faults of peers that are found.

use skyhaul_cc::controllers::boost::{Boost, PathRecord, Variant};
use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::{registry, Judgement, Setup};
use skyhaul_pep::exceptions::{ExceptionHandler, Fault, Options, Seen};
use skyhaul_sim::link::Link;
use skyhaul_sim::rng;
use skyhaul_sim::scenario::{Direction, GilbertElliott};
use skyhaul_sim::tcp::{AckOptions, Confusion, Receiver, SackBlocks, TcpOptions, Truth};
use skyhaul_sim::world::{Flow, World};

use super::predictor;
use crate::experiment::{run_seeds, Effort, LabError};
use crate::figure::{Figure, Spread, Table, Unit, Value};

/// As [`TcpOptions`] has it.
const MSS: Bytes = Bytes(1448);

/// A link and the flows on it, five seconds apart.
#[derive(Clone, Debug)]
struct Case {
    name: &'static str,
    rate: Rate,
    rtt: Duration,
    loss: f64,
    burst: Option<f64>,
    queue: Bytes,
    flows: &'static [&'static str],
    seconds: u64,
}

/// The tables of the modules, those of the loss predictor among them.
///
/// # Errors
/// When a run fails.
pub fn modules(effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let mut figures = predictor::modules(effort)?;
    if let Some(figure) = figures.first_mut() {
        figure.title = "The modules of BoostTCP against the simulator's truth".to_owned();
        figure.tables.push(confusion(effort)?);
        figure.tables.extend(learning(effort)?);
        figure.tables.push(faults(effort)?);
        figure.notes.push(
            "Random losses count as such beside hardly a queue, at most 1/20 of the round trip. A second flow \
             starts from what the first has learnt in ten seconds."
                .to_owned(),
        );
        figure.notes.push(
            "Window controller and resource manager are held to their bounds by the tests of \
             skyhaul_pep::limits; nothing about them depends on a path."
                .to_owned(),
        );
    }
    Ok(figures)
}

fn case(name: &'static str, mbit: u64, rtt: u64, loss: f64, queue: Bytes, seconds: u64) -> Case {
    let (rate, rtt) = (Rate::mbit(mbit), Duration::from_millis(rtt));
    Case { name, rate, rtt, loss, burst: None, queue, flows: &["boost"], seconds }
}

impl Case {
    fn world(&self, seed: u64) -> World {
        let share = |value| Share::new(value).unwrap_or(Share::ZERO);
        let direction = |loss, burst: Option<f64>| Direction {
            loss: share(if burst.is_some() { 0.0 } else { loss }),
            burst: burst.and_then(|mean| GilbertElliott::from_burst(mean, share(loss))),
            queue: self.queue,
            ..Direction::clean(self.rate, self.rtt / 2)
        };
        let link = |direction: &Direction, name| Link::new(direction, rng::derive(seed, name));
        let forward = link(&direction(self.loss, self.burst), "forward");
        World::new(forward, link(&direction(0.0, None), "back"), seed)
    }

    fn cost(&self) -> f64 {
        self.rate.as_mbit() * self.seconds as f64 / 1e4
    }
}

fn confusion(effort: &Effort<'_>) -> Result<Table, LabError> {
    let cases = [
        case("1 Gbit/s, 100 ms, 0.1 %", 1000, 100, 1e-3, Bytes(12_500_000), 20),
        case("1 Gbit/s, 20 ms, 0.5 %", 1000, 20, 5e-3, Bytes(2_500_000), 10),
        case("150 Mbit/s, 540 ms, 1.2 %", 150, 540, 0.012, Bytes(5_000_000), 60),
        Case { burst: Some(20.0), ..case("the same in bursts of 20", 150, 540, 0.012, Bytes(5_000_000), 60) },
        case("10 Mbit/s, 550 ms, 0.1 %, queue of 25 packets", 10, 550, 1e-3, Bytes(37_500), 240),
        case("100 Mbit/s, 20 ms, 0.5 %, quarter of a BDP", 100, 20, 5e-3, Bytes(62_500), 60),
        Case {
            flows: &["boost", "boost", "boost"],
            ..case("three flows, 100 Mbit/s, 100 ms, 0.1 %", 100, 100, 1e-3, Bytes(1_250_000), 60)
        },
        Case {
            flows: &["boost", "cubic"],
            ..case("beside cubic, 100 Mbit/s, 50 ms, 0.1 %", 100, 50, 1e-3, Bytes(625_000), 60)
        },
        Case {
            flows: &["boost", "bbr"],
            ..case("beside bbr, 100 Mbit/s, 50 ms, 0.1 %", 100, 50, 1e-3, Bytes(625_000), 60)
        },
    ];
    let found = run_seeds(&cases, effort, Case::cost, |case, seed| {
        let mut world = case.world(seed);
        for (i, name) in case.flows.iter().enumerate() {
            let controller = registry::build(name, &Setup::new(MSS)).map_err(LabError::Controller)?;
            world.add(Flow { start: Time::from_secs(5 * i as u64), ..Flow::new(controller) });
        }
        world.run(Time::from_secs(case.seconds)).map_err(LabError::Run)?;
        Ok(world.judged())
    })?;
    let columns = [
        ("path", Unit::None),
        ("in truth", Unit::None),
        ("packets", Unit::None),
        ("judged random", Unit::Percent),
        ("judged congestion", Unit::Percent),
    ];
    let mut table = Table::new("What lost packets were taken for", &columns);
    for (case, runs) in cases.iter().zip(&found) {
        let mut all = Confusion::default();
        runs.iter().for_each(|run| all.merge(run));
        for truth in [Truth::Overflow, Truth::Alone, Truth::BesideQueue] {
            let share = |judgement| all.share(truth, judgement).map_or(Value::Empty, |s| s.value().into());
            let packets = all.total(truth);
            let judged = [Judgement::Random, Judgement::Congestion].map(share);
            let [random, congestion] = judged;
            table.row(vec![case.name.into(), truth.name().into(), packets.into(), random, congestion]);
        }
    }
    Ok(table)
}

/// Time until 0.9 of the payload the link can carry arrives, and what was learnt in ten seconds.
fn start(case: &Case, controller: Boost, seed: u64) -> Result<(f64, Option<PathRecord>), LabError> {
    let mut world = case.world(seed);
    world.bins = case.rtt / 2;
    let flow = world.add(Flow::new(Box::new(controller)));
    world.run(Time::from_secs(10)).map_err(LabError::Run)?;
    let wanted = case.rate.bytes_in(world.bins).as_f64() * payload() * 0.9;
    let outcome = world.outcomes().swap_remove(flow);
    let bins = outcome.bins.iter().take_while(|bytes| bytes.as_f64() < wanted).count();
    let record = world.sender(flow).and_then(|sender| sender.controller().path());
    Ok(((bins + 1) as f64 * world.bins.as_secs_f64(), record))
}

fn payload() -> f64 {
    MSS.as_f64() / (MSS + TcpOptions::default().headers).as_f64()
}

fn learning(effort: &Effort<'_>) -> Result<[Table; 2], LabError> {
    let cases = [
        case("1 Gbit/s, 100 ms, 0.05 %", 1000, 100, 5e-4, Bytes(12_500_000), 20),
        case("150 Mbit/s, 540 ms, 1.2 %", 150, 540, 0.012, Bytes(10_125_000), 20),
        case("100 Mbit/s, 50 ms, 0.1 %", 100, 50, 1e-3, Bytes(625_000), 20),
    ];
    let found = run_seeds(&cases, effort, Case::cost, |case, seed| {
        let new = || Boost::new(&Setup::new(MSS), Variant::Discriminating);
        let (first, record) = start(case, new(), seed)?;
        let record = record.ok_or_else(|| LabError::Other("nothing was learnt in ten seconds".to_owned()))?;
        Ok((first, start(case, new().knowing(&record), seed)?.0, record))
    })?;
    let columns = [
        ("path", Unit::None),
        ("first flow", Unit::Seconds),
        ("second flow", Unit::Seconds),
        ("second / first", Unit::Ratio),
    ];
    let mut starts = Table::new("Time to 0.9 of the link's payload rate", &columns);
    let columns = [
        ("path", Unit::None),
        ("least round trip", Unit::Milliseconds),
        ("in truth", Unit::Milliseconds),
        ("random loss", Unit::Percent),
        ("in truth", Unit::Percent),
        ("bandwidth", Unit::Rate),
        ("in truth", Unit::Rate),
    ];
    let mut features = Table::new("What a flow has learnt of its path", &columns);
    for (case, runs) in cases.iter().zip(&found) {
        let of = |value: fn(&(f64, f64, PathRecord)) -> f64| -> Vec<f64> { runs.iter().map(value).collect() };
        let (first, second) = (of(|run| run.0), of(|run| run.1));
        starts.row(vec![
            case.name.into(),
            Spread::of(&first).into(),
            Spread::of(&second).into(),
            Spread::of_ratios(&second, &first).into(),
        ]);
        features.row(vec![
            case.name.into(),
            Spread::of(&of(|run| run.2.least.as_secs_f64())).into(),
            case.rtt.as_secs_f64().into(),
            Spread::of(&of(|run| run.2.random_loss.value())).into(),
            case.loss.into(),
            Spread::of(&of(|run| run.2.bandwidth.as_f64())).into(),
            (case.rate.as_f64() * payload()).into(),
        ]);
    }
    Ok([starts, features])
}

/// Faults and the receiver that shows them; the first has none.
fn injected() -> [(Option<Fault>, AckOptions); 6] {
    let sound = AckOptions::default();
    [
        (None, sound),
        (Some(Fault::NoWindowScaling), AckOptions { window: Some(Bytes(65_535)), ..sound }),
        (Some(Fault::SackStripped), AckOptions { sacks: SackBlocks::Most(0), ..sound }),
        (Some(Fault::TimestampsRemoved), sound),
        (Some(Fault::StretchedAcks), AckOptions { every: 50, ..sound }),
        (Some(Fault::HeldByInspection), AckOptions { inspection: Duration::from_millis(10), ..sound }),
    ]
}

/// A receiver's answers to 4000 packets of which each hundredth comes fifty packets late.
fn answers(acks: AckOptions, timestamp: bool) -> ExceptionHandler {
    let mut handler = ExceptionHandler::new(Options::ALL, Options::ALL);
    let mut receiver = Receiver::new(acks);
    let (mut arrived, mut next) = (0, 0);
    let order = (0..4000u64).flat_map(|n| [(n % 100 != 0).then_some(n), (n % 100 == 50).then(|| n - 50)]);
    for (step, seq) in (0u64..).zip(order.flatten()) {
        arrived += 1;
        let Some(ack) = receiver.on_segment(Time::from_micros(step * 116), seq) else { continue };
        let blocks = !ack.sacks.blocks().is_empty();
        let packets = if blocks { arrived } else { ack.next - next };
        let window = acks.window.unwrap_or(Bytes::mib(4));
        let repeats = ack.next == next;
        handler.on_ack(&Seen {
            packets,
            repeats,
            blocks,
            timestamp,
            window,
            window_full: acks.window.is_some(),
        });
        (arrived, next) = (0, ack.next);
    }
    handler
}

fn faults(effort: &Effort<'_>) -> Result<Table, LabError> {
    let path = case("100 Mbit/s, 100 ms, 0.1 %", 100, 100, 1e-3, Bytes(1_250_000), 30);
    let jobs = injected();
    let found = run_seeds(
        &jobs,
        effort,
        |_| path.cost(),
        |(fault, acks), seed| {
            let mut world = path.world(seed);
            let controller = registry::build("boost", &Setup::new(MSS)).map_err(LabError::Controller)?;
            let flow = world.add(Flow { acks: *acks, ..Flow::new(controller) });
            world.run(Time::from_secs(path.seconds)).map_err(LabError::Run)?;
            let mut handler = answers(*acks, *fault != Some(Fault::TimestampsRemoved));
            if let Some(record) = world.sender(flow).and_then(|sender| sender.controller().path()) {
                handler.on_hold(&record.hold);
            }
            Ok((world.outcomes()[flow].goodput(world.now()).as_f64(), handler.faults()))
        },
    )?;
    let columns = [
        ("injected", Unit::None),
        ("found", Unit::None),
        ("goodput", Unit::Rate),
        ("share of faultless", Unit::Percent),
    ];
    let mut table = Table::new(format!("Faults, {}", path.name), &columns);
    let rates = |runs: &[(f64, Vec<Fault>)]| runs.iter().map(|run| run.0).collect::<Vec<_>>();
    let sound = found.first().map(|runs| rates(runs)).unwrap_or_default();
    for ((fault, _), runs) in jobs.iter().zip(&found) {
        let mut names: Vec<String> = runs.iter().flat_map(|run| &run.1).map(Fault::to_string).collect();
        names.sort();
        names.dedup();
        table.row(vec![
            fault.map_or_else(|| "nothing".to_owned(), |fault| fault.to_string()).into(),
            if names.is_empty() { "nothing".into() } else { names.join(", ").into() },
            Spread::of(&rates(runs)).into(),
            Spread::of_ratios(&rates(runs), &sound).into(),
        ]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effort() -> Effort<'static> {
        Effort { seeds: 1, ..Effort::quick() }
    }

    #[test]
    fn each_injected_fault_is_found_by_name_and_no_other() {
        let table = faults(&effort()).unwrap();
        for row in &table.rows {
            println!("{row:?}");
            assert_eq!(row[0], row[1]);
        }
    }

    #[test]
    fn a_second_flow_starts_in_half_the_time() {
        let [starts, features] = learning(&effort()).unwrap();
        println!("{features:?}");
        for row in &starts.rows {
            println!("{row:?}");
            assert!(matches!(&row[3], Value::Spread(ratio) if ratio.mean <= 0.5), "{row:?}");
        }
    }
}
