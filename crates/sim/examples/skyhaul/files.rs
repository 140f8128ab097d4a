//! Whole files: goodput over the physical floor.

use crate::{link, sampled, Contender, MS};
use skyhaul_cc::{Bytes, Rate, Share, Time};
use skyhaul_sim::scenario::{Dir, RateBase, Scenario};
use skyhaul_sim::stats;
use skyhaul_sim::world::{Flow, World};

/// A link, a file, and what to reach.
#[derive(Clone)]
struct Cell {
    name: String,
    scenario: Scenario,
    bytes: Option<Bytes>,
    seconds: u64,
    mss: Bytes,
    headers: Bytes,
    /// Mbit/s from cold and with a known or remembered path.
    goals: [f64; 2],
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    let gigabit = [
        (20, [932.0, 936.0], [928.0, 932.0]),
        (50, [919.0, 930.0], [914.0, 926.0]),
        (100, [902.0, 920.0], [897.0, 916.0]),
    ];
    for (rtt, clean, lossy) in gigabit {
        for (loss, goals) in [(0.0, clean), (0.0005, clean), (0.005, lossy)] {
            let queue = Rate::mbit(1000).bdp(MS(rtt)).max(Bytes(1_500_000));
            cells.push(Cell {
                name: format!("lan-{rtt}-{loss}"),
                scenario: link(Rate::mbit(1000), MS(rtt), loss, RateBase::Wire, queue),
                bytes: Some(Bytes(500_000_000)),
                seconds: 60,
                mss: Bytes(1448),
                headers: Bytes(52),
                goals,
            });
        }
    }
    for (mbit, rtt, mib, goals) in [
        (150, 540, 512, [137.0, 139.0]),
        (150, 800, 512, [135.0, 138.5]),
        (10, 540, 64, [9.3, 9.38]),
        (10, 800, 64, [9.3, 9.38]),
    ] {
        let mut scenario = link(Rate::mbit(mbit), MS(rtt), 0.012, RateBase::Ip, Bytes(1_500_000));
        scenario.back.loss = Share::new(0.002).unwrap();
        cells.push(Cell {
            name: format!("geo-{mbit}-{rtt}"),
            scenario,
            bytes: Some(Bytes::mib(mib)),
            seconds: 200,
            mss: Bytes(1433),
            headers: Bytes(67),
            goals,
        });
    }
    let per = 1.0 - (1.0f64 - 1e-5).powi(8000);
    cells.push(Cell {
        name: "ber".into(),
        scenario: link(Rate::mbit(100), MS(500), per, RateBase::Ip, Rate::mbit(100).bdp(MS(500))),
        bytes: Some(Bytes(250_000_000)),
        seconds: 100,
        mss: Bytes(955),
        headers: Bytes(45),
        goals: [84.5, 86.5],
    });
    cells.push(Cell {
        name: "moon".into(),
        scenario: link(Rate::mbit(5000), MS(2287), 0.0, RateBase::Ip, Rate::mbit(5000).bdp(MS(2287))),
        bytes: None,
        seconds: 60,
        mss: Bytes(1448),
        headers: Bytes(52),
        goals: [4450.0, 4680.0],
    });
    for (name, mbit, rtt, loss, queue) in [
        ("minute-geo", 150, 540, 0.012, 5_000_000),
        ("minute-up", 10, 540, 0.012, 1_500_000),
        ("minute-short-540", 10, 540, 0.0, 30_000),
        ("minute-short-100", 10, 100, 0.0, 30_000),
        ("minute-clean", 100, 20, 0.0, 250_000),
        ("minute-gigabit", 1000, 50, 0.0, 6_250_000),
    ] {
        let mut scenario = link(Rate::mbit(mbit), MS(rtt), loss, RateBase::Ip, Bytes(queue));
        scenario.back.loss = Share::new(loss / 6.0).unwrap();
        cells.push(Cell {
            name: name.into(),
            scenario,
            bytes: None,
            seconds: 60,
            mss: Bytes(1448),
            headers: Bytes(52),
            goals: [0.0, 0.0],
        });
    }
    cells
}

impl Cell {
    /// What no sender can exceed: the payload rate after the one-way delay.
    fn floor(&self) -> f64 {
        let forward = &self.scenario.forward;
        let packet = (self.mss + self.headers + forward.rate_base.overhead()).as_f64();
        let rate = forward.rate.as_f64() * self.mss.as_f64() / packet * (1.0 - forward.loss.value());
        let one_way = forward.one_way.as_secs_f64();
        match self.bytes {
            Some(bytes) => bytes.bits() as f64 / (bytes.bits() as f64 / rate + one_way) / 1e6,
            None => rate * (1.0 - one_way / self.seconds as f64) / 1e6,
        }
    }

    /// The link's rate in the bytes a TCP sender counts.
    fn payload_rate(&self) -> Rate {
        let forward = &self.scenario.forward;
        let packet = (self.mss + self.headers + forward.rate_base.overhead()).as_f64();
        forward.rate.scale(self.mss.as_f64() / packet)
    }

    fn flow(&self, contender: &str) -> Flow {
        let rate = self.payload_rate();
        let contender = Contender { name: contender, rate, mss: self.mss, headers: self.headers };
        contender.flow(&self.scenario, self.bytes)
    }
}

struct Result {
    goodput: f64,
    queue_p95: f64,
    drops: u64,
}

fn run(cell: &Cell, contender: &str, seed: u64) -> Result {
    let mut world = World::on(&cell.scenario, Dir::Forward, seed);
    world.add(cell.flow(contender));
    let queues = sampled(&mut world, Time::from_secs(cell.seconds));
    let outcome = &world.outcomes()[0];
    Result {
        goodput: outcome.goodput(world.now()).as_mbit(),
        queue_p95: stats::quantile(&queues, 0.95).unwrap_or(0.0),
        drops: world.forward().counters().queue_full.packets,
    }
}

/// Prints the table.
pub fn table(filter: &str, contenders: &[&str], seeds: u64) {
    println!(
        "{:16} {:12} {:>9} {:>7} {:>9} {:>8} {:>9} {:>8} {:>7}",
        "cell", "contender", "Mbit/s", "+-", "floor", "fraction", "goal", "p95 ms", "drops"
    );
    for cell in cells().iter().filter(|cell| cell.name.contains(filter)) {
        for contender in contenders {
            let results: Vec<Result> = (1..=seeds).map(|seed| run(cell, contender, seed)).collect();
            let goodputs: Vec<f64> = results.iter().map(|result| result.goodput).collect();
            let mean = stats::mean(&goodputs).unwrap();
            let half = stats::mean_interval(&goodputs).map_or(0.0, |i| (i.high - i.low) / 2.0);
            let queue = results.iter().map(|result| result.queue_p95).fold(0.0, f64::max);
            let drops: u64 = results.iter().map(|result| result.drops).sum();
            let goal =
                cell.goals[usize::from(contender.starts_with("warm") || contender.starts_with("known"))];
            println!(
                "{:16} {contender:12} {mean:9.2} {half:7.2} {:9.2} {:8.4} {goal:9.2} {queue:8.2} {drops:7} {}",
                cell.name,
                cell.floor(),
                mean / cell.floor(),
                if mean >= goal { "ok" } else { "MISS" }
            );
        }
    }
}
