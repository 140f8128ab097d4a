//! The predictive loss judgement of section 3.2, which the paper describes without equations or numbers, beside
//! the conventional rules.

use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::{registry, Setup};
use skyhaul_sim::link::Link;
use skyhaul_sim::repairs::{Delays, Repairs, RepairsObserver};
use skyhaul_sim::rng;
use skyhaul_sim::scenario::{Direction, GilbertElliott, Jitter, JitterShape};
use skyhaul_sim::tcp::{AckOptions, Decile, Judgement, Recovery, SenderCounters, TcpOptions};
use skyhaul_sim::world::{Flow, World, Writes};

use crate::experiment::{run_seeds, Effort, LabError};
use crate::figure::{Axis, Chart, Figure, Point, Scale, Series, Spread, Style, Table, Unit, Value};

/// A path and a flow on it.
#[derive(Clone, Debug)]
struct Case {
    name: &'static str,
    loss: f64,
    /// Mean length of loss bursts, in packets.
    burst: Option<f64>,
    /// Share of packets on a detour of up to 20 ms.
    reordered: f64,
    /// Half range of the jitter.
    jitter: Option<Duration>,
    writes: Option<Writes>,
    /// Segments per acknowledgment.
    every: u32,
    seconds: u64,
}

/// A way to find losses.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rule {
    name: &'static str,
    recovery: Recovery,
    threshold: f64,
}

/// What one run gave.
#[derive(Clone, Copy, Debug)]
struct Found {
    repairs: Repairs,
    counters: SenderCounters,
    judgement: Judgement,
}

const RULES: [Rule; 4] = [
    Rule { name: "three duplicates", recovery: Recovery::Dupack, threshold: 1.0 },
    Rule { name: "RACK", recovery: Recovery::Rack, threshold: 1.0 },
    Rule { name: "odds of 0.95", recovery: Recovery::Predictive, threshold: 0.95 },
    Rule { name: "odds of 0.99", recovery: Recovery::Predictive, threshold: 0.99 },
];
/// The one whose odds are held against the truth.
const DEFAULT: usize = 2;
/// The downlink of paper 001 has these; paper 000 names no path for section 3.2.
const RATE: Rate = Rate::mbit(150);
const ONE_WAY: Duration = Duration::from_millis(270);
const LOSS: f64 = 0.012;
/// The flow sends at this rate at most, so that there is no queue.
const PACE: Rate = Rate::mbit(130);
/// Room for everything.
const QUEUE: Bytes = Bytes(1_000_000_000);
/// With fewer transmissions in a tenth, its share of lost ones is known to 3 points at best.
const ENOUGH: u64 = 250;

/// The tables and the chart of the part that judges losses; the other modules add theirs.
///
/// # Errors
/// When a run fails.
pub fn modules(effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let effort = &effort.once_if_quick();
    let cases = cases(effort.quick);
    let jobs: Vec<(&Case, Rule)> =
        cases.iter().flat_map(|case| RULES.map(|rule| (case, rule)).into_iter()).collect();
    let found =
        run_seeds(&jobs, effort, |(case, _)| case.cost(), |(case, rule), seed| case.run(*rule, seed))?;
    let found: Vec<&[Vec<Found>]> = found.chunks(RULES.len()).collect();

    let mut figure =
        Figure::new("modules", "Lost packets judged by their odds, beside the conventional rules");
    figure.tables = vec![repairs(&cases, &found), calibration(&cases, &found)];
    figure.charts = vec![chart(&cases, &found)];
    figure.notes = vec![
        "Section 3.2 gives neither equations nor numbers; the judgement is ours \
         (skyhaul_cc::parts::loss_odds), and there is nothing published to compare with."
            .to_owned(),
        format!(
            "150 Mbit/s, 540 ms, {} % loss, a sender of given rate. A delay is the time from a lost \
             copy's departure to the next copy's, less the round trip that every answer takes; below zero, a \
             timeout had sent everything again. A stall is the time a segment is missing at the receiver after \
             it would have been there.",
            LOSS * 100.0
        ),
        "Needless copies count those of timeouts and of the time before 200 samples.".to_owned(),
    ];
    if effort.quick {
        figure.notes.push("With --quick one seed and a third of the time.".to_owned());
    }
    Ok(vec![figure])
}

fn cases(quick: bool) -> Vec<Case> {
    let seconds = |full: u64| if quick { full / 3 } else { full };
    let bulk = Case {
        name: "random loss",
        loss: LOSS,
        burst: None,
        reordered: 0.0,
        jitter: None,
        writes: None,
        every: 1,
        seconds: seconds(30),
    };
    let gap = Duration::from_millis(50);
    let thin = Case {
        name: "thin, a packet each 50 ms",
        writes: Some(Writes { segments: 1, every: gap }),
        seconds: seconds(1800),
        ..bulk.clone()
    };
    let blocks = Writes { segments: 20, every: Duration::from_millis(1500) };
    vec![
        bulk.clone(),
        Case { name: "bursts of 20", burst: Some(20.0), loss: 0.0, ..bulk.clone() },
        Case { name: "5 % up to 20 ms late", reordered: 0.05, ..bulk.clone() },
        Case { name: "5 % late, no loss", reordered: 0.05, loss: 0.0, ..bulk },
        thin.clone(),
        Case { name: "thin, 20 ms of jitter", jitter: Some(Duration::from_millis(20)), ..thin.clone() },
        Case { name: "thin, ACKs held back", every: 2, ..thin.clone() },
        Case { name: "blocks of 20 packets", writes: Some(blocks), ..thin.clone() },
        Case { name: "blocks, ACKs held back", writes: Some(blocks), every: 2, ..thin },
    ]
}

impl Case {
    /// Seconds of a core, about.
    fn cost(&self) -> f64 {
        self.seconds as f64 * if self.writes.is_some() { 2e-4 } else { 2e-2 }
    }

    fn direction(&self) -> Direction {
        let share = |value| Share::new(value).unwrap_or(Share::ZERO);
        let shape = JitterShape::Uniform;
        Direction {
            loss: share(self.loss),
            burst: self.burst.and_then(|length| GilbertElliott::from_burst(length, share(LOSS))),
            jitter: self.jitter.map(|half_range| Jitter { half_range, shape }),
            reorder: true,
            queue: QUEUE,
            ..Direction::clean(RATE, ONE_WAY)
        }
    }

    fn run(&self, rule: Rule, seed: u64) -> Result<Found, LabError> {
        let luck = rng::derive(seed, "forward");
        let mut forward = Link::new(&self.direction(), luck);
        if let Some(share) = Share::new(self.reordered).filter(|share| *share > Share::ZERO) {
            forward = forward.with_detour(share, Duration::from_millis(20), luck);
        }
        let clean = Case { loss: 0.0, burst: None, jitter: None, ..self.clone() };
        let back = Link::new(&clean.direction(), rng::derive(seed, "back"));
        let mut world = World::new(forward, back, seed);
        let (observer, repairs) = RepairsObserver::new(ONE_WAY);
        world.observe(Box::new(observer));
        let tcp = TcpOptions {
            recovery: rule.recovery,
            threshold: Share::new(rule.threshold).unwrap_or(Share::ONE),
            ..TcpOptions::default()
        };
        let setup = Setup { link_rate: Some(PACE), ..Setup::new(tcp.mss) };
        let acks = AckOptions { every: self.every, ..AckOptions::default() };
        let controller = registry::build("rate", &setup)?;
        world.add(Flow { tcp, acks, writes: self.writes, ..Flow::new(controller) });
        world.run(Time::from_secs(self.seconds))?;
        let sender = world.sender(0).ok_or_else(|| LabError::Other("a flow is gone".to_owned()))?;
        Ok(Found {
            repairs: repairs.so_far(),
            counters: *sender.counters(),
            judgement: sender.judgement().copied().unwrap_or_default(),
        })
    }
}

impl Found {
    /// Mean delay beyond the round trip, in seconds.
    fn beyond(delays: Delays) -> Option<f64> {
        delays.mean().map(|mean| mean.as_secs_f64() - 2.0 * ONE_WAY.as_secs_f64())
    }
}

/// A value of every run that has it, with its spread.
fn spread(runs: &[Found], value: impl Fn(&Found) -> Option<f64>) -> Option<Spread> {
    let values: Vec<f64> = runs.iter().filter_map(value).collect();
    (!values.is_empty()).then(|| Spread::of(&values))
}

/// The mean alone.
fn mean(runs: &[Found], value: impl Fn(&Found) -> Option<f64>) -> Value {
    spread(runs, value).map_or(Value::Empty, |spread| Value::Number(spread.mean))
}

fn repairs(cases: &[Case], found: &[&[Vec<Found>]]) -> Table {
    let mut table = Table::new(
        "How soon losses are repaired, and at what price",
        &[
            ("case", Unit::None),
            ("rule", Unit::None),
            ("delay beyond RTT", Unit::Milliseconds),
            ("of tails", Unit::Milliseconds),
            ("of lost copies", Unit::Milliseconds),
            ("stall", Unit::Milliseconds),
            ("needless copies", Unit::Percent),
            ("timeouts", Unit::None),
        ],
    );
    for (case, rules) in cases.iter().zip(found) {
        for (rule, runs) in RULES.iter().zip(rules.iter()) {
            table.row(vec![
                case.name.into(),
                rule.name.into(),
                spread(runs, |run| Found::beyond(run.repairs.first())).map_or(Value::Empty, Value::Spread),
                mean(runs, |run| Found::beyond(run.repairs.tail)),
                mean(runs, |run| Found::beyond(run.repairs.again)),
                mean(runs, |run| run.repairs.stalls.mean().map(|mean| mean.as_secs_f64())),
                mean(runs, |run| Some(run.counters.spurious as f64 / run.counters.sent as f64)),
                mean(runs, |run| Some(run.counters.timeouts as f64)),
            ]);
        }
    }
    table
}

/// Deciles of all runs of a case with the default threshold.
fn deciles(rules: &[Vec<Found>]) -> [Decile; 10] {
    let mut sum = [Decile::default(); 10];
    for run in rules.iter().skip(DEFAULT).take(1).flatten() {
        for (sum, decile) in sum.iter_mut().zip(run.judgement.deciles) {
            sum.found += decile.found;
            sum.lost += decile.lost;
            sum.predicted += decile.predicted;
        }
    }
    sum
}

fn calibration(cases: &[Case], found: &[&[Vec<Found>]]) -> Table {
    let mut columns = vec![("odds", Unit::None)];
    columns.extend(cases.iter().map(|case| (case.name, Unit::Percent)));
    let title = format!(
        "Share of lost packets beyond the mean of their odds, by tenths of the odds; empty below {ENOUGH} packets"
    );
    let mut table = Table::new(title, &columns);
    let sums: Vec<[Decile; 10]> = found.iter().map(|rules| deciles(rules)).collect();
    for tenth in 0..10 {
        let mut row = vec![Value::from(format!("0.{tenth} to {:.1}", (tenth as f64 + 1.0) / 10.0))];
        row.extend(sums.iter().map(|deciles| {
            let decile = &deciles[tenth];
            decile.error().filter(|_| decile.found >= ENOUGH).map_or(Value::Empty, Value::from)
        }));
        table.row(row);
    }
    table
}

fn chart(cases: &[Case], found: &[&[Vec<Found>]]) -> Chart {
    let lossy = |case: &&Case| case.loss > 0.0 || case.burst.is_some();
    let names = cases.iter().filter(lossy).map(|case| case.name.to_owned()).collect();
    let series = RULES.iter().enumerate().map(|(index, rule)| {
        let runs = cases.iter().zip(found).filter(|(case, _)| lossy(case));
        let points = runs.enumerate().filter_map(|(x, (_, rules))| {
            let ms = |seconds: f64| Unit::Milliseconds.shown(seconds).max(0.0);
            let spread = spread(&rules[index], |run| Found::beyond(run.repairs.first()))?;
            let interval = (spread.runs > 1).then(|| (ms(spread.low), ms(spread.high)));
            Some(Point { x: x as f64, y: ms(spread.mean), interval })
        });
        Series { name: rule.name.to_owned(), points: points.collect(), style: Style::Bars }
    });
    Chart {
        title: "From a lost packet to its copy, beyond the round trip".to_owned(),
        x: Axis { label: "case".to_owned(), scale: Scale::Categories(names) },
        y: Axis { label: "delay, ms".to_owned(), scale: Scale::Linear },
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, rule: usize) -> Found {
        let case = cases(true).into_iter().find(|case| case.name == name).unwrap();
        case.run(RULES[rule], 1).unwrap()
    }

    #[test]
    fn odds_repair_a_thin_flow_a_tenth_of_a_second_sooner_than_three_duplicates() {
        let [dupack, odds] = [0, DEFAULT].map(|rule| one("thin, a packet each 50 ms", rule));
        let delay = |found: Found| Found::beyond(found.repairs.first()).unwrap();
        assert!(delay(dupack) > 0.1 && delay(odds) < 0.01, "{dupack:?} {odds:?}");
    }

    #[test]
    fn needless_copies_are_rare_where_three_duplicates_send_one_for_each_late_packet() {
        let [dupack, odds] = [0, DEFAULT].map(|rule| one("5 % late, no loss", rule).counters);
        let share = |counters: SenderCounters| counters.spurious as f64 / counters.sent as f64;
        assert!((0.03..0.05).contains(&share(dupack)), "{dupack:?}");
        assert!(share(odds) < 0.001, "{odds:?}");
    }
}
