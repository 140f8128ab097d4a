//! Our controller on a machine whose processor others take away for some milliseconds now and then: a busy
//! hypervisor, a laptop, a router that does something else. Both ends and the link's emulator stand still, and
//! whatever was due happens at once when they go on.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::{Duration, Time};
use skyhaul_sim::scenario::{Dir, Scenario};
use skyhaul_sim::tunnel::{Pair, Plan, Stillness, Transfer};

const MS: fn(u64) -> Duration = Duration::from_millis;
const STARTS: [&str; 3] = ["skyhaul", "skyhaul/warm", "skyhaul/known"];

/// Goodput in Mbit/s of so many MiB over paper 001's link, and packets that its queue dropped.
fn carry(start: &str, mib: u64, stillness: Stillness) -> (f64, u64) {
    let scenario = Scenario::find("p1.down-270").unwrap();
    let plan = Plan::new(&scenario, start, 1).unwrap();
    let mut pair = Pair::new(&scenario, plan, vec![Transfer::new(Dir::Forward, mib << 20)]).unwrap();
    pair.stand_still(stillness);
    pair.run(Time::from_secs(120));
    let outcome = pair.outcomes()[0];
    assert!(!outcome.corrupt, "{start}");
    let goodput = outcome.goodput().unwrap_or_else(|| panic!("{start}: {outcome:?}"));
    (goodput.as_bit() as f64 / 1e6, pair.counters(Dir::Forward).queue_full.packets)
}

/// Stands still for `stop` out of each `period`.
fn every(period: Duration, stop: Duration) -> Stillness {
    Box::new(move |now| {
        let (now, period, stop) = (now.as_nanos(), period.as_nanos() as u64, stop.as_nanos() as u64);
        Time::from_nanos(if now % period < stop { now - now % period + stop } else { now })
    })
}

#[test]
fn a_machine_that_stands_still_a_part_of_the_time_uses_the_rest() {
    for (mib, stop, run) in [(64, 20, 47), (64, 70, 163), (128, 60, 40)] {
        let share = run as f64 / (stop + run) as f64;
        for start in STARTS {
            let (goodput, dropped) = carry(start, mib, every(MS(stop + run), MS(stop)));
            let least = 0.75 * share * 138.0;
            println!("{stop} of {} ms, {start}: {goodput:.1}, at least {least:.1}, {dropped}", stop + run);
            assert!(goodput > least, "{stop} of {} ms, {start}: {goodput} < {least}", stop + run);
            assert!(dropped < 450, "{stop} of {} ms, {start}: {dropped} of 47,000", stop + run);
        }
    }
}

#[test]
fn a_hold_up_in_the_start_drops_nothing_and_leaves_three_fifths_of_the_rate() {
    for start in STARTS {
        let (calm, _) = carry(start, 24, Box::new(|now| now));
        for at in (1_000..2_600).step_by(100) {
            let from = Time::from_millis(at);
            let stop = Box::new(move |now: Time| if now >= from { now.max(from + MS(100)) } else { now });
            let (goodput, dropped) = carry(start, 24, stop);
            println!("{start}, at {at} ms: {goodput:.1} of {calm:.1}, {dropped}");
            assert!(goodput > 0.6 * calm, "{start}, at {at} ms: {goodput} of {calm}");
            assert_eq!(dropped, 0, "{start}, at {at} ms");
        }
    }
}

#[test]
fn a_greeting_that_was_held_up_says_nothing_of_the_flight_after_it() {
    for start in STARTS {
        let goodput = |stop: Duration| {
            let scenario = Scenario::find("p1.down-270").unwrap();
            let plan = Plan::new(&scenario, start, 1).unwrap();
            let file = Transfer { start: Time::from_secs(4), ..Transfer::new(Dir::Forward, 24 << 20) };
            let mut pair = Pair::new(&scenario, plan, vec![Transfer::new(Dir::Forward, 200), file]).unwrap();
            let from = Time::from_millis(1_500);
            pair.stand_still(Box::new(move |now| if now >= from { now.max(from + stop) } else { now }));
            pair.run(Time::from_secs(30));
            pair.outcomes()[1].goodput().unwrap().as_bit() as f64 / 1e6
        };
        let calm = goodput(Duration::ZERO);
        let least = if start == "skyhaul" { 80.0 } else { 110.0 };
        assert!(calm > least, "{start}: {calm}");
        for stop in [5, 30, 100] {
            let held_up = goodput(MS(stop));
            println!("{start}, {stop} ms: {held_up:.1} of {calm:.1}");
            assert!(held_up > 0.95 * calm, "{start}, {stop} ms: {held_up} of {calm}");
        }
    }
}
