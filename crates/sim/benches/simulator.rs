//! How fast the simulator is: `cargo bench -p skyhaul-sim --bench simulator`.
//!
//! Prints packet events per second (a packet offered to a link and arriving, or dropped, is one) and what
//! 60 s of 1 Gbit/s at 100 ms cost, with and without loss. Linux tells the processor time, so other
//! programs disturb little; elsewhere it is the time that passes.

use std::time::{Duration as Span, Instant};

use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::{registry, Setup};
use skyhaul_sim::link::Link;
use skyhaul_sim::scenario::Direction;
use skyhaul_sim::tcp::{Recovery, TcpOptions};
use skyhaul_sim::world::{Flow, World};

// A benchmark is the one place here that looks at a clock.
#[allow(clippy::disallowed_methods)]
fn main() {
    println!("1 Gbit/s, 100 ms, queue of one bandwidth-delay product, 60 s of virtual time");
    for (controller, loss, recovery) in [
        ("rate", 0.0, Recovery::Rack),
        ("rate", 0.012, Recovery::Rack),
        ("bbr", 0.005, Recovery::Rack),
        ("cubic", 0.0, Recovery::Rack),
        ("hybla", 1e-5, Recovery::Rack),
        ("rate", 0.0, Recovery::Predictive),
        ("rate", 0.012, Recovery::Predictive),
    ] {
        let direction = Direction {
            loss: Share::new(loss).unwrap_or_default(),
            queue: Bytes(12_500_000),
            ..Direction::clean(Rate::mbit(1000), Duration::from_millis(50))
        };
        let back = Direction { loss: Share::ZERO, ..direction.clone() };
        let setup =
            Setup { link_rate: Some(Rate::mbit(1000).scale(1448.0 / 1500.0)), ..Setup::new(Bytes(1448)) };
        let flow = match registry::build(controller, &setup) {
            Ok(controller) => Flow::new(controller),
            Err(error) => return println!("{error}"),
        };
        let flow = Flow { tcp: TcpOptions { recovery, ..flow.tcp }, ..flow };
        let mut world = World::new(Link::new(&direction, 1), Link::new(&back, 2), 1);
        world.add(flow);
        let begin = (Instant::now(), processor_time());
        if let Err(failure) = world.run(Time::from_secs(60)) {
            return println!("{failure}");
        }
        let seconds = match (begin.1, processor_time()) {
            (Some(from), Some(to)) => (to - from).as_secs_f64(),
            _ => begin.0.elapsed().as_secs_f64(),
        };
        println!(
            "{controller:>6}, {recovery:?}, loss {:>6}: {seconds:5.2} s, {:9} packets, {:5.2} million packet events per second, {:6.1} Mbit/s",
            format!("{} %", loss * 100.0),
            world.packets(),
            world.packets() as f64 / seconds / 1e6,
            world.outcomes()[0].goodput(world.now()).as_mbit(),
        );
    }
}

/// What this process has used so far: the first number of `schedstat` is nanoseconds on a processor.
fn processor_time() -> Option<Span> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok().map(Span::from_nanos)
}
