//! Flows without end on links that are noisy, change, or are shared.

use crate::{link, sampled, Contender, MS};
use skyhaul_cc::{Bytes, Duration, Rate, Share, Time};
use skyhaul_sim::scenario::{Change, Dir, GilbertElliott, Jitter, JitterShape, RateBase, Scenario};
use skyhaul_sim::stats;
use skyhaul_sim::world::World;

const MSS: Bytes = Bytes(1448);
const HEADERS: Bytes = Bytes(52);

/// A link, who is on it and when, and what to look at.
struct Cell {
    name: String,
    scenario: Scenario,
    /// Others beside the contender, and when everybody starts; an empty name stands for the contender.
    flows: Vec<(&'static str, u64)>,
    /// Seconds to look at.
    window: (u64, u64),
    seconds: u64,
    goal: f64,
    /// Each flow's share of what the link carried counts, not the sum.
    shares: bool,
    /// The data arrives in frames of this length.
    frame: Duration,
}

fn base(name: &str, scenario: Scenario) -> Cell {
    Cell {
        name: name.to_owned(),
        scenario,
        flows: vec![("", 0)],
        window: (10, 60),
        seconds: 60,
        goal: 0.993,
        shares: false,
        frame: Duration::ZERO,
    }
}

fn steady(mbit: u64, rtt: u64) -> Vec<Cell> {
    let name = |what: &str| format!("steady-{mbit}-{rtt}-{what}");
    let queue = Rate::mbit(mbit).bdp(MS(rtt));
    let plain = |loss| link(Rate::mbit(mbit), MS(rtt), loss, RateBase::Ip, queue);
    let mut cells = vec![
        base(&name("clean"), plain(0.0)),
        base(&name("base"), plain(0.01)),
        base(&name("loss5"), plain(0.05)),
    ];
    let mut acks = plain(0.01);
    acks.back.loss = Share::new(0.2).unwrap();
    cells.push(base(&name("ackloss20"), acks));
    let mut bursts = plain(0.0);
    bursts.forward.burst = GilbertElliott::from_burst(8.0, Share::new(0.01).unwrap());
    cells.push(base(&name("bursts8"), bursts));
    let mut narrow = plain(0.01);
    narrow.back.rate = Rate::mbit(1);
    cells.push(base(&name("return1"), narrow));
    let mut small = plain(0.01);
    small.forward.queue = Bytes(queue.0 / 20);
    cells.push(base(&name("queue05"), small));
    for ms in [5, 20] {
        let mut jitter = plain(0.01);
        jitter.forward.jitter = Some(Jitter { half_range: MS(ms) / 2, shape: JitterShape::Uniform });
        cells.push(Cell { goal: 0.95, ..base(&name(&format!("jitter{ms}")), jitter) });
    }
    cells.push(Cell { goal: 0.95, frame: MS(20), ..base(&name("frames20"), plain(0.01)) });
    cells
}

fn fade(mbit: u64, rtt: u64, loss: f64, queue: f64) -> Cell {
    let rate = Rate::mbit(mbit);
    let mut scenario =
        link(rate, MS(rtt), loss, RateBase::Ip, Bytes::from_f64(rate.bdp(MS(rtt)).as_f64() * queue));
    for (at, rate) in [(20, rate.scale(0.25)), (40, rate)] {
        scenario.forward.changes.push(Change {
            at: Duration::from_secs(at),
            rate: Some(rate),
            ..Change::default()
        });
    }
    Cell { window: (15, 60), goal: 0.95, ..base(&format!("fade-{mbit}-{rtt}"), scenario) }
}

fn leo(step: u64, outage: u64) -> Cell {
    let rate = Rate::mbit(100);
    let mut scenario = link(rate, MS(40), 0.0, RateBase::Ip, rate.bdp(MS(40)));
    let every = Some(Duration::from_secs(30));
    for direction in [&mut scenario.forward, &mut scenario.back] {
        for (at, one_way) in [(15, MS(20 + step)), (30, MS(20))] {
            direction.changes.push(Change {
                at: Duration::from_secs(at),
                one_way: Some(one_way),
                outage: Some(MS(outage)),
                every,
                ..Change::default()
            });
        }
    }
    Cell { window: (5, 95), seconds: 95, goal: 0.97, ..base(&format!("leo-{step}-{outage}"), scenario) }
}

fn fair(mbit: u64, rtt: u64, queue: f64, window: (u64, u64), goal: f64) -> Cell {
    let rate = Rate::mbit(mbit);
    let queue = Bytes::from_f64(rate.bdp(MS(rtt)).as_f64() * queue);
    let scenario = link(rate, MS(rtt), 0.0, RateBase::Ip, queue);
    Cell {
        flows: vec![("", 0), ("", 10), ("", 20)],
        window,
        seconds: window.1,
        shares: true,
        goal,
        ..base(&format!("fair-{mbit}-{rtt}-{}", window.0), scenario)
    }
}

fn coexist(other: &'static str, mbit: u64, rtt: u64, queue: f64, first: bool) -> Cell {
    let rate = Rate::mbit(mbit);
    let name = format!("{}-{other}-{mbit}-{rtt}-{queue}", if first { "before" } else { "after" });
    let queue = Bytes::from_f64(rate.bdp(MS(rtt)).as_f64() * queue);
    let scenario = link(rate, MS(rtt), 0.0, RateBase::Ip, queue);
    Cell {
        flows: if first { vec![("", 0), (other, 5)] } else { vec![(other, 0), ("", 5)] },
        window: (70, 100),
        seconds: 100,
        shares: true,
        goal: 0.8,
        ..base(&name, scenario)
    }
}

fn cells() -> Vec<Cell> {
    let mut cells = steady(150, 540);
    cells.extend(steady(100, 40));
    cells.push(fade(150, 540, 0.012, 0.5));
    cells.push(fade(100, 40, 0.0, 1.0));
    cells.extend([leo(10, 50), leo(30, 200), leo(30, 500)]);
    for window in [(22, 25), (25, 30), (40, 60)] {
        cells.push(fair(1000, 100, 1.0, window, 0.99));
        cells.push(fair(1000, 20, 1.0, window, 0.99));
    }
    cells.push(fair(200, 50, 1.0, (25, 45), 0.99));
    cells.push(fair(150, 540, 0.5, (40, 60), 0.99));
    for other in ["cubic", "bbr"] {
        for (mbit, rtt) in [(100, 40), (300, 80), (50, 540)] {
            for queue in [0.25, 1.0, 4.0] {
                for first in [true, false] {
                    cells.push(coexist(other, mbit, rtt, queue, first));
                }
            }
        }
    }
    cells
}

impl Cell {
    /// What the link could have carried of payload between two moments.
    fn offered(&self, from: u64, to: u64) -> f64 {
        let forward = &self.scenario.forward;
        let link = skyhaul_sim::link::Link::new(forward, 1);
        let loss = forward.loss.value() + forward.burst.map_or(0.0, |burst| burst.average().value());
        (from * 1000..to * 1000)
            .map(Time::from_millis)
            .filter(|now| !link.is_out(*now))
            .map(|now| link.rate(now).as_f64() * 1e-3)
            .sum::<f64>()
            * (1.0 - loss)
            * MSS.as_f64()
            / (MSS + HEADERS).as_f64()
    }
}

/// Prints the table.
pub fn table(filter: &str, contenders: &[&str], seeds: u64) {
    println!(
        "{:28} {:10} {:>8} {:>7} {:>7} {:>7} {:>8} {:>8}  shares",
        "cell", "contender", "used", "+-", "fair", "goal", "p95 ms", "drops"
    );
    for cell in cells().iter().filter(|cell| cell.name.contains(filter)) {
        for contender in contenders {
            let (mut used, mut fairness, mut queue, mut drops, mut last) =
                (Vec::new(), Vec::new(), 0.0f64, 0, Vec::new());
            for seed in 1..=seeds {
                let [data, acks] = [Dir::Forward, Dir::Back].map(|dir| cell.scenario.link(dir, seed));
                let mut world = World::new(data.with_frames(cell.frame), acks, seed);
                world.bins = MS(100);
                for (name, start) in &cell.flows {
                    let name = if name.is_empty() { contender } else { name };
                    let rate = cell.scenario.forward.rate.scale(MSS.as_f64() / (MSS + HEADERS).as_f64());
                    let contender = Contender { name, rate, mss: MSS, headers: HEADERS };
                    let mut flow = contender.flow(&cell.scenario, None);
                    flow.start = Time::from_secs(*start);
                    world.add(flow);
                }
                sampled(&mut world, Time::from_secs(cell.window.0));
                let before = world.forward().counters().delivered.bytes;
                let queues = sampled(&mut world, Time::from_secs(cell.seconds));
                drops += world.forward().counters().queue_full.packets;
                queue = queue.max(stats::quantile(&queues, 0.95).unwrap_or(0.0));
                let bins = cell.window.0 as usize * 10..cell.window.1 as usize * 10;
                let got: Vec<f64> = world
                    .outcomes()
                    .iter()
                    .map(|outcome| outcome.delivered_in(bins.clone()).bits() as f64)
                    .collect();
                let sum: f64 = got.iter().sum();
                let squares: f64 = got.iter().map(|x| x * x).sum();
                // What the link delivered: in order, the edges of the window move by round trips.
                let delivered = (world.forward().counters().delivered.bytes - before).bits() as f64;
                let delivered = delivered * MSS.as_f64() / (MSS + HEADERS).as_f64();
                used.push(delivered / cell.offered(cell.window.0, cell.window.1));
                fairness.push(sum * sum / (squares.max(1.0) * got.len() as f64));
                last = got.iter().map(|x| format!("{:.2}", x / sum.max(1.0))).collect();
            }
            let half = stats::mean_interval(&used).map_or(0.0, |i| (i.high - i.low) / 2.0);
            let (used, fairness) = (stats::mean(&used).unwrap(), stats::mean(&fairness).unwrap());
            let reached = if cell.shares { fairness } else { used };
            println!(
                "{:28} {contender:10} {used:8.4} {half:7.4} {fairness:7.4} {:7.3} {queue:8.2} {drops:8}  {} {}",
                cell.name,
                cell.goal,
                last.join("/"),
                if reached >= cell.goal { "ok" } else { "MISS" }
            );
        }
    }
}
