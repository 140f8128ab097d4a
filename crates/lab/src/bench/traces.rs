//! Our own controller at work, as pictures: rate, queue, window and what trains of packets tell, over time.
//!
//! Each figure is one run with the first seed; what counts is the shape, the tables of the bench have the spread.

use skyhaul_cc::controller::Estimates;
use skyhaul_cc::registry::Contender;
use skyhaul_cc::units::{Bytes, Duration, Rate, Time};
use skyhaul_sim::play;
use skyhaul_sim::scenario::{Change, Scenario};
use skyhaul_sim::stats::quantile;
use skyhaul_sim::world::Flow;

use super::path::{ms, Path, Told};
use super::watch::{self, Arrivals, Seen};
use super::Host;
use crate::experiment::{self, Effort, LabError};
use crate::figure::{Axis, Chart, Figure, Series, Style};
use crate::{Maker, Paper};

/// A chapter of the report like a paper, without published values.
pub const CHAPTER: Paper = Paper {
    name: "skyhaul",
    prefix: "",
    title: "Our own controller, over time",
    published_in:
        "docs/skyhaul.md explains its rules, docs/bench.md its figures; the simulator's TCP carries it here",
    values: "id,scenario,metric,algorithm,published,relation,unit,where,takes\n",
    makers: &[
        Maker { figures: &["start"], make: starts },
        Maker { figures: &["fade"], make: fade },
        Maker { figures: &["handover"], make: handover },
        Maker { figures: &["three-flows"], make: three_flows },
    ],
};

/// A run to look at.
struct Case {
    path: Path,
    /// Who sends from when on.
    flows: Vec<(Contender, Time)>,
    /// What is drawn.
    from: Time,
    to: Time,
    /// Arrivals are counted over this time, and states looked at as often.
    step: Duration,
}

/// What was seen at one moment.
struct Moment {
    at: f64,
    /// Seconds.
    queue: f64,
    /// Payload rate of the link, bit/s.
    link: f64,
    flows: Vec<State>,
}

struct State {
    /// Payload that arrived in the step before, bit/s.
    rate: f64,
    window: Bytes,
    in_flight: Bytes,
    estimates: Estimates,
}

fn contender(name: &str) -> Result<Contender, LabError> {
    Ok(name.parse()?)
}

impl Case {
    fn run(&self, seed: u64) -> Result<Vec<Moment>, LabError> {
        let mut world = self.path.world(seed);
        for (who, start) in &self.flows {
            world.add(Flow { start: *start, ..self.path.flow(Host::Tcp, who, &Told::default(), None)? });
        }
        let (arrivals, seen) = Arrivals::new(self.step, self.path.mss);
        world.observe(arrivals);
        let mut moments = Vec::new();
        let mut now = Time::ZERO;
        while now < self.to {
            let before = now;
            now += self.step;
            world.run(now)?;
            if before < self.from {
                continue;
            }
            let forward = world.forward();
            let out = if forward.is_out(now) { 0.0 } else { 1.0 };
            let share = self.path.arriving_rate().as_f64() / self.path.forward().rate.as_f64();
            moments.push(Moment {
                at: now.as_secs_f64(),
                queue: watch::queue(forward, now, self.path.packet()),
                link: forward.rate(now).as_f64() * share * out,
                flows: (0..self.flows.len())
                    .filter_map(|flow| state(&world, &seen, flow, before, now))
                    .collect(),
            });
        }
        Ok(moments)
    }
}

fn state(world: &skyhaul_sim::world::World, seen: &Seen, flow: usize, from: Time, to: Time) -> Option<State> {
    let sender = world.sender(flow)?;
    let controller = sender.controller();
    Some(State {
        rate: seen.rate(flow, from, to).as_f64(),
        window: controller.cwnd(),
        in_flight: sender.in_flight(),
        estimates: controller.estimates().unwrap_or_default(),
    })
}

/// All runs of a figure.
fn all(cases: &[Case], effort: &Effort<'_>) -> Result<Vec<Vec<Moment>>, LabError> {
    let cost = |case: &Case| case.path.payload_rate().bytes_in(case.to.since_start()).as_f64() / 1e9;
    experiment::run(cases, effort, cost, |case| case.run(effort.first_seed)).into_iter().collect()
}

fn chart(title: String, y: &str, series: Vec<Series>) -> Chart {
    Chart { title, x: Axis::linear("time, s"), y: Axis::linear(y), series }
}

fn line(name: impl Into<String>, moments: &[Moment], of: impl Fn(&Moment) -> Option<f64>) -> Series {
    Series::line(name, moments.iter().map(|moment| (moment.at, of(moment).unwrap_or(f64::NAN))))
}

/// What the link could carry.
fn limit(name: &str, moments: &[Moment]) -> Series {
    line(name, moments, |moment| Some(moment.link / 1e6)).styled(Style::Limit)
}

fn mbit(rate: Option<Rate>) -> Option<f64> {
    rate.map(Rate::as_mbit)
}

fn milliseconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64() * 1e3)
}

fn megabytes(bytes: Bytes) -> Option<f64> {
    Some(bytes.as_f64() / 1e6)
}

const RATE: &str = "payload rate, Mbit/s";
const QUEUE: &str = "queue, ms";
const WINDOW: &str = "window, MB";
const DATA: &str = "window and data in flight, MB";
const LIMIT: &str = "what the link can deliver";

/// Cold, warm and with a known rate.
fn starts(effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let scenario = Scenario::find("p1.down-270")?;
    let history = play::history(&scenario, scenario.data(), scenario.payload_rate());
    let names = ["skyhaul", "skyhaul/warm", "skyhaul/known"];
    let mut cases = Vec::new();
    for name in names {
        cases.push(Case {
            path: Path::of(scenario.clone()),
            flows: vec![(contender(name)?, Time::ZERO)],
            from: Time::ZERO,
            to: Time::from_secs(4),
            step: ms(20),
        });
    }
    let runs = all(&cases, effort)?;
    let words = ["cold", "warm", "known rate"];
    let product = cases[0].path.payload_rate().bdp(cases[0].path.rtt());
    let each = |of: &dyn Fn(&Moment) -> Option<f64>| -> Vec<Series> {
        runs.iter().zip(words).map(|(moments, word)| line(word, moments, of)).collect()
    };
    let mut figure = Figure::new("start", "The first seconds: 150 Mbit/s, 540 ms, 1.2 % loss");
    let mut rates = each(&|moment| Some(moment.flows.first()?.rate / 1e6));
    rates.push(limit(LIMIT, &runs[0]));
    figure.charts.push(chart("What arrives".to_owned(), RATE, rates));
    figure.charts.push(chart(
        "Queue in front of the link".to_owned(),
        QUEUE,
        each(&|moment| Some(moment.queue * 1e3)),
    ));
    let mut windows = each(&|moment| megabytes(moment.flows.first()?.window));
    windows.push(flat("rate × round trip", &runs[0], product));
    figure.charts.push(chart("Window".to_owned(), WINDOW, windows));
    figure.charts.push(told("The cold start, and what trains of packets tell it", &runs[0]));
    figure.notes.push(
        "Cold: the first flight of 32 packets comes back after one round trip, and its spacing tells the capacity; \
         four fifths of that arrive from the second round trip on, and all of it once a train has shown that nobody \
         else is there. Warm begins with 0.85 of what an earlier connection saw, a known rate with all of it: the \
         link is full after the one way that nobody can save."
            .to_owned(),
    );
    figure.notes.push(format!(
        "That history is the truth here: {}, {} ms, {:.1} % loss. Trains count lost packets too, so C and A lie above \
         what arrives.",
        history.rate,
        history.min_rtt.as_millis(),
        history.loss.percent()
    ));
    Ok(vec![figure])
}

fn flat(name: &str, moments: &[Moment], bytes: Bytes) -> Series {
    line(name, moments, |_| megabytes(bytes)).styled(Style::Limit)
}

/// What arrives of the first flow, and what trains of packets tell it.
fn told(title: &str, moments: &[Moment]) -> Chart {
    let series = vec![
        line("arriving", moments, |moment| Some(moment.flows.first()?.rate / 1e6)),
        line("capacity C", moments, |moment| mbit(moment.flows.first()?.estimates.capacity)),
        line("available rate A, over C where both agree", moments, |moment| {
            mbit(moment.flows.first()?.estimates.available)
        }),
        limit(LIMIT, moments),
    ];
    chart(title.to_owned(), RATE, series)
}

/// Rate, queue and window of a single flow.
fn alone(figure: &mut Figure, moments: &[Moment], product: Bytes) {
    figure.charts.push(told("What arrives, and what trains of packets tell", moments));
    figure.charts.push(chart(
        "Queue in front of the link".to_owned(),
        QUEUE,
        vec![
            line("the link's", moments, |moment| Some(moment.queue * 1e3)),
            line("as the controller sees it", moments, |moment| {
                milliseconds(moment.flows.first()?.estimates.queue)
            }),
        ],
    ));
    figure.charts.push(chart(
        "Window".to_owned(),
        DATA,
        vec![
            line("window", moments, |moment| megabytes(moment.flows.first()?.window)),
            line("in flight", moments, |moment| megabytes(moment.flows.first()?.in_flight)),
            flat("rate × round trip at the start", moments, product),
        ],
    ));
}

/// A fade to a quarter and back.
fn fade(effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let mut path = Path::with_queue(150, ms(540), 0.0, 1.0)?;
    let rate = path.forward().rate;
    for (at, rate) in [(6, rate.scale(0.25)), (12, rate)] {
        let change = Change { at: Duration::from_secs(at), rate: Some(rate), ..Change::default() };
        path.forward_mut().changes.push(change);
    }
    let product = path.payload_rate().bdp(path.rtt());
    let case = Case {
        path,
        flows: vec![(contender("skyhaul")?, Time::ZERO)],
        from: Time::ZERO,
        to: Time::from_secs(18),
        step: ms(40),
    };
    let runs = all(&[case], effort)?;
    let mut figure = Figure::new("fade", "A fade to a quarter from 6 to 12 s: 150 Mbit/s, 540 ms");
    alone(&mut figure, &runs[0], product);
    figure.notes.push(
        "The news of a fade needs half a round trip to the receiver and as long back; what is on its way by then \
         waits in the queue, and the sender pauses until it has drained. After the return, trains find the \
         capacity, the window follows at once, and one train confirms it."
            .to_owned(),
    );
    Ok(vec![figure])
}

/// A handover of a low orbit.
fn handover(effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let mut path = Path::with_queue(100, ms(40), 0.0, 1.0)?;
    for direction in [&mut path.scenario.forward, &mut path.scenario.back] {
        for (at, way) in [(10_000, 50), (12_000, 20)] {
            direction.changes.push(Change {
                at: ms(at),
                one_way: Some(ms(way)),
                outage: Some(ms(200)),
                ..Change::default()
            });
        }
    }
    let product = path.payload_rate().bdp(path.rtt());
    let case = Case {
        path,
        flows: vec![(contender("skyhaul")?, Time::ZERO)],
        from: ms_at(9_500),
        to: ms_at(13_500),
        step: ms(20),
    };
    let runs = all(&[case], effort)?;
    let mut figure = Figure::new(
        "handover",
        "Handovers at 10 and 12 s, 30 ms longer and back, out for 0.2 s: 100 Mbit/s, 40 ms",
    );
    alone(&mut figure, &runs[0], product);
    figure.notes.push(
        "While the path is out, nothing is held against it. A path that is longer by more than any queue could grow \
         from one packet to the next is a longer path: the window grows with it and the pace stays."
            .to_owned(),
    );
    Ok(vec![figure])
}

fn ms_at(at: u64) -> Time {
    Time::from_millis(at)
}

/// Flows that join one after the other.
fn three_flows(effort: &Effort<'_>) -> Result<Vec<Figure>, LabError> {
    let path = Path::with_queue(200, ms(50), 0.0, 1.0)?;
    let starts = [0, 10, 20];
    let mut flows = Vec::new();
    for start in starts {
        flows.push((contender("skyhaul")?, Time::from_secs(start)));
    }
    let case = Case { path, flows, from: Time::ZERO, to: Time::from_secs(40), step: ms(200) };
    let runs = all(&[case], effort)?;
    let moments = &runs[0];
    let each = |of: &dyn Fn(&State) -> Option<f64>| -> Vec<Series> {
        let series = starts.iter().enumerate().map(|(flow, start)| {
            line(format!("flow from {start} s on"), moments, |moment| {
                let begun = moment.at > *start as f64;
                of(moment.flows.get(flow).filter(|_| begun)?)
            })
        });
        series.collect()
    };
    let mut figure = Figure::new("three-flows", "Three flows from 0, 10 and 20 s on: 200 Mbit/s, 50 ms");
    let mut rates = each(&|state| Some(state.rate / 1e6));
    rates.push(limit(LIMIT, moments));
    figure.charts.push(chart("What arrives of each".to_owned(), RATE, rates));
    figure.charts.push(chart(
        "Queue in front of the link".to_owned(),
        QUEUE,
        vec![line("queue", moments, |moment| Some(moment.queue * 1e3))],
    ));
    figure.charts.push(chart("Windows".to_owned(), WINDOW, each(&|state| megabytes(state.window))));
    figure.charts.push(chart(
        "Available rate by trains, median of the last second".to_owned(),
        RATE,
        starts
            .iter()
            .enumerate()
            .map(|(flow, start)| {
                let told = |moment: &Moment| {
                    let begun = moment.at > *start as f64;
                    mbit(moment.flows.get(flow).filter(|_| begun)?.estimates.available)
                };
                let points = moments.iter().enumerate().map(|(last, moment)| {
                    let second: Vec<f64> =
                        moments[last.saturating_sub(4)..=last].iter().filter_map(told).collect();
                    (moment.at, quantile(&second, 0.5).unwrap_or(f64::NAN))
                });
                Series::line(format!("flow from {start} s on"), points)
            })
            .collect(),
    ));
    figure.notes.push(
        "A newcomer's first flight sees the capacity and not who uses it, so it takes most of the link for one round \
         trip; then trains tell everybody that the link is shared, and equal growth with a cut at each dip makes the \
         shares equal. A single train between two of another flow finds the link free: hence the median."
            .to_owned(),
    );
    figure
        .notes
        .push("The queue is looked at every 0.2 s; trains and dips are shorter than that.".to_owned());
    Ok(vec![figure])
}
