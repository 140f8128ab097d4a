//! Figures of the controller `skyhaul` in virtual time, as docs/skyhaul.md has them.
//!
//! ```text
//! cargo run --release -p skyhaul-sim --example skyhaul -- files [cell filter] [contenders] [seeds]
//! cargo run --release -p skyhaul-sim --example skyhaul -- files lan-100 skyhaul,warm+tail,bbr 3
//! cargo run --release -p skyhaul-sim --example skyhaul -- links [cell filter] [contenders] [seeds]
//! ```
//!
//! Contenders are the controllers' names, and of our own `skyhaul` (cold), `warm`, `known` and `plain`
//! (without reports), with `+tail` for ideal coded repair of the last window, and
//! what real hosts add: `+batch` (departures by the millisecond), `+noise` (receive times off by up to 50 µs),
//! `+step100` and `+step1000` (receive times in steps of so many µs), `+drift` (a clock that gains 100 ppm),
//! `+live` (batches, 100 µs of noise, 50 ppm).

#![allow(clippy::unwrap_used)] // a tool for developers

mod files;
mod links;

use skyhaul_cc::controllers::skyhaul::{Policy, Skyhaul, Start};
use skyhaul_cc::{registry, Bytes, Controller, Duration, PathHistory, Rate, Setup, Share, Time};
use skyhaul_sim::scenario::{RateBase, Scenario};
use skyhaul_sim::tcp::{AckOptions, SackBlocks, TcpOptions};
use skyhaul_sim::world::{Flow, Stamps, World};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A link that is the same both ways, but for the loss, which is the data's.
fn link(rate: Rate, rtt: Duration, loss: f64, base: RateBase, queue: Bytes) -> Scenario {
    let mut scenario = Scenario::find("p1.down-270").unwrap();
    for direction in [&mut scenario.forward, &mut scenario.back] {
        direction.rate = rate;
        direction.rate_base = base;
        direction.one_way = rtt / 2;
        direction.loss = Share::ZERO;
        direction.queue = queue;
    }
    scenario.forward.loss = Share::new(loss).unwrap();
    scenario
}

/// Who sends, and how its packets look.
struct Contender<'a> {
    name: &'a str,
    /// Rate of the link in payload.
    rate: Rate,
    mss: Bytes,
    headers: Bytes,
}

impl Contender<'_> {
    fn flow(&self, scenario: &Scenario, bytes: Option<Bytes>) -> Flow {
        let mut words = self.name.split('+');
        let name = words.next().unwrap_or_default();
        let (mut tail, mut stamps, mut batch) = (false, Stamps::default(), Duration::ZERO);
        for word in words {
            match word {
                "tail" => tail = true,
                "batch" => batch = MS(1),
                "noise" => stamps.noise = Duration::from_micros(50),
                "drift" => stamps.drift = 100e-6,
                "step100" => stamps.step = Duration::from_micros(100),
                "step1000" => stamps.step = MS(1),
                // What a host shows: departures by the millisecond, times interpolated, two quartzes.
                "live" => {
                    batch = MS(1);
                    stamps = Stamps { noise: Duration::from_micros(100), drift: 50e-6, ..stamps };
                }
                other => panic!("unknown word {other:?} after a contender"),
            }
        }
        let rtt = scenario.rtt();
        let setup = Setup {
            link_rate: Some(self.rate),
            initial_rtt: rtt,
            initial_window: self.mss * if name == "plain" { 10 } else { 32 },
            ..Setup::new(self.mss)
        };
        let own = |start| Some(Box::new(Skyhaul::new(&setup, start, Policy::Share)) as Box<dyn Controller>);
        let own = match name {
            "skyhaul" | "plain" => own(Start::Cold),
            "warm" => own(Start::Warm(PathHistory::of(self.rate, rtt))),
            "known" => own(Start::Known(self.rate)),
            _ => None,
        };
        let reports = own.is_some() && name != "plain";
        // Coded repair of the last window: what is lost of it, four deviations more, and two.
        let lost = scenario.forward.loss.value() * (self.rate.bdp(rtt).as_f64() / self.mss.as_f64());
        let repair = if reports && tail { (lost + 4.0 * lost.sqrt() + 2.0) as u64 } else { 0 };
        // The channel's shim probes without back-off while a path is out.
        let default = TcpOptions::default();
        let (initial_rto, greatest_rto) =
            if reports { (rtt * 3, rtt * 2 + MS(200)) } else { (default.initial_rto, default.greatest_rto) };
        let acks = if reports {
            let thinning = (rtt / 64).clamp(Duration::from_micros(200), MS(10));
            AckOptions { every: 16, delay: MS(25), thinning, sacks: SackBlocks::All, ..AckOptions::default() }
        } else {
            AckOptions::default()
        };
        Flow {
            bytes,
            tcp: TcpOptions {
                mss: self.mss,
                headers: self.headers,
                initial_rto,
                greatest_rto,
                batch,
                ..TcpOptions::default()
            },
            acks,
            reports,
            stamps,
            repair,
            ..Flow::new(own.unwrap_or_else(|| {
                registry::build(name, &Setup { initial_window: self.mss * 10, ..setup }).unwrap()
            }))
        }
    }
}

/// Runs until every flow is done or `until`; the queue in ms, every 10 ms.
fn sampled(world: &mut World, until: Time) -> Vec<f64> {
    let mut queues = Vec::new();
    let mut now = world.now();
    let verbose = std::env::var("VERBOSE").is_ok();
    while world.now() < until && world.outcomes().iter().any(|outcome| outcome.finished.is_none()) {
        now += MS(10);
        world.run(now).unwrap();
        let rate = world.forward().rate(world.now());
        queues.push(rate.time_for(world.forward().queued(world.now())).as_secs_f64() * 1e3);
        if verbose {
            tell(world, queues.last().copied().unwrap_or(0.0));
        }
    }
    queues
}

fn tell(world: &World, queue: f64) {
    print!("{:.3} q={queue:.2}", world.now().as_secs_f64());
    for flow in 0..world.outcomes().len() {
        let sender = world.sender(flow).unwrap();
        let state = sender.controller().snapshot();
        print!(
            " | cwnd={:.1} pace={:.2} flight={:.1} {}",
            state.cwnd.as_f64() / 1448.0,
            state.pacing_rate.map_or(0.0, |rate| rate.as_mbit()),
            sender.in_flight().as_f64() / 1448.0,
            state.phase
        );
    }
    println!(" drops={}", world.forward().counters().queue_full.packets);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, default| arguments.get(index).map_or(default, String::as_str);
    let filter = argument(1, "");
    let seeds: u64 = argument(3, "3").parse().unwrap();
    let contenders = |default| argument(2, default).split(',').collect::<Vec<_>>();
    match argument(0, "files") {
        "links" => links::table(filter, &contenders("skyhaul"), seeds),
        _ => files::table(filter, &contenders("skyhaul+tail,warm+tail,known+tail"), seeds),
    }
}
