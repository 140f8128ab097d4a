//! The plain form of our own controller, without reports of receive times, on TCP in virtual time.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::{registry, Bytes, Duration, Rate, Setup, Time};
use skyhaul_sim::scenario::{Change, Dir, Scenario};
use skyhaul_sim::world::{Flow, World};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Bytes in the first ten seconds over paper 001's link, which holds everything up for 0.1 s from this time on.
fn received(held_up_at: Option<Duration>) -> f64 {
    let mut scenario = Scenario::find("p1.down-270").unwrap();
    let rate = scenario.forward.rate;
    if let Some(at) = held_up_at {
        for (at, rate) in [(at, Rate::kbit(10)), (at + MS(100), rate)] {
            scenario.forward.changes.push(Change { at, rate: Some(rate), ..Change::default() });
        }
    }
    let mut world = World::on(&scenario, Dir::Forward, 1);
    let mss = Bytes(1448);
    let setup = Setup { initial_rtt: scenario.rtt(), initial_window: mss * 10, ..Setup::new(mss) };
    world.add(Flow::new(registry::build("skyhaul", &setup).unwrap()));
    world.run(Time::from_secs(10)).unwrap();
    world.outcomes()[0].delivered.as_f64()
}

#[test]
fn what_was_held_up_for_a_moment_does_not_end_the_start() {
    let calm = received(None);
    for at in [1_500, 2_000, 2_500, 3_000] {
        let held_up = received(Some(MS(at)));
        assert!(held_up > 0.9 * calm, "after {at} ms: {held_up} of {calm} bytes");
    }
}
