//! Controllers on simulated TCP against the closed forms of their papers. The tests that are ignored take
//! minutes, print the figures of docs/sim.md with their spread over seeds, and hold them to their bounds.

use skyhaul_cc::units::{Ber, Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::{registry, Setup};
use skyhaul_sim::link::Link;
use skyhaul_sim::scenario::{Direction, Scenario};
use skyhaul_sim::tcp::{Recovery, TcpOptions};
use skyhaul_sim::world::{Flow, Outcome, World};
use skyhaul_sim::{play, rng, stats};

const MSS: Bytes = Bytes(1448);

/// A link of 1 Gbit/s that loses packets and never overflows.
fn direction(rtt: Duration, loss: f64) -> Direction {
    let loss = Share::new(loss).expect("a share");
    Direction { loss, ..Direction::clean(Rate::mbit(1000), rtt / 2) }
}

/// A flow without end that begins at the window the loss allows, so that start-up weighs little; measured
/// from `from` to `until` seconds.
fn run(name: &str, window: f64, rtt: Duration, loss: f64, seed: u64, span: [u64; 2]) -> Outcome {
    let link = |loss, name| Link::new(&direction(rtt, loss), rng::derive(seed, name));
    let mut world = World::new(link(loss, "forward"), link(0.0, "back"), seed);
    let setup = Setup {
        initial_window: MSS * 10,
        initial_ssthresh: Some(Bytes::from_f64(window * MSS.as_f64())),
        ..Setup::new(MSS)
    };
    let tcp = TcpOptions { recovery: Recovery::Rack, ..TcpOptions::default() };
    world.add(Flow { tcp, ..Flow::new(registry::build(name, &setup).expect("a known name")) });
    world.run(Time::from_secs(span[0])).expect("it runs");
    world.measure_windows();
    world.run(Time::from_secs(span[1])).expect("it runs");
    world.outcomes().remove(0)
}

/// Mean window over its law, over the controller's window and over what it delivered per round trip.
fn over_law(name: &str, law: f64, loss: f64, seeds: u64, seconds: u64) -> [f64; 2] {
    let rtt = Duration::from_millis(100);
    let runs: Vec<_> = (1..=seeds).map(|seed| run(name, law, rtt, loss, seed, [60, seconds])).collect();
    let window = mean(runs.iter().map(|run| run.counters.mean_window().expect("time has passed")));
    let delivered = mean(runs.iter().map(|run| {
        let bytes = run.delivered_in(60..seconds as usize);
        (bytes / MSS.0).as_f64() * 0.1 / (seconds - 60) as f64
    }));
    let losses: u64 = runs.iter().map(|run| run.counters.episodes).sum();
    let ratios = [window / law, delivered / law];
    println!("{name}, loss {loss:e}: {ratios:.3?} of {law:.1} segments over {losses} cuts");
    ratios
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// sqrt(1.5 / p) segments (Mathis and others, 1997).
fn newreno_law(loss: f64) -> f64 {
    f64::sqrt(1.5 / loss)
}

/// 1.054 (RTT / p)^0.75 segments: RFC 9438 §5.1 with C = 0.4 and 0.7 of the window kept.
fn cubic_law(loss: f64) -> f64 {
    1.054 * f64::powf(0.1 / loss, 0.75)
}

/// Goodput of Hybla in Mbit/s over `seconds` after start-up.
fn hybla(rtt: u64, loss: f64, seeds: u64, seconds: u64) -> f64 {
    let window = rtt as f64 / 25.0 * newreno_law(loss);
    mean((1..=seeds).map(|seed| {
        let outcome = run("hybla", window, Duration::from_millis(rtt), loss, seed, [20, 20 + seconds]);
        outcome.delivered_in(20..20 + seconds as usize).per(Duration::from_secs(seconds)).as_mbit()
    }))
}

#[test]
fn newreno_keeps_the_window_of_the_square_root_law() {
    for (loss, seeds, seconds) in [(1e-3, 4, 600), (1e-4, 2, 1800)] {
        for ratio in over_law("newreno", newreno_law(loss), loss, seeds, seconds) {
            assert!((0.85..=1.15).contains(&ratio), "loss {loss}: {ratio}");
        }
    }
}

#[test]
fn cubic_keeps_the_window_of_its_response_function() {
    // The law is for losses at even distances; random ones raise the mean by 13 %, and a loss is noticed a
    // round trip of growth later.
    for ratio in over_law("cubic", cubic_law(1e-4), 1e-4, 4, 1200) {
        assert!((0.90..=1.25).contains(&ratio), "{ratio}");
    }
}

#[test]
fn hybla_is_as_fast_at_four_times_the_round_trip() {
    let (near, far) = (hybla(25, 1e-4, 3, 600), hybla(100, 1e-4, 3, 600));
    println!("hybla, loss 1e-4: {near:.1} Mbit/s at 25 ms, {far:.1} at 100 ms, ratio {:.3}", far / near);
    // Recovery is a round trip without growth, of 80 and 20 between losses: 3 % less at 100 ms.
    assert!((0.90..=1.05).contains(&(far / near)), "{near} and {far} Mbit/s");
}

/// Prints a mean over seeds with its interval and holds it to a range.
fn hold(what: &str, values: &[f64], range: std::ops::RangeInclusive<f64>) {
    let value = mean(values.iter().copied());
    let interval = stats::mean_interval(values).expect("several seeds");
    println!("{what}: {value:.3} ({:.3} to {:.3}), {} seeds", interval.low, interval.high, values.len());
    assert!(range.contains(&value), "{what}: {value} is outside {range:?}");
}

/// Mean window over its law and segments delivered per round trip over it, for each seed.
fn each_over_law(name: &str, law: f64, loss: f64, seeds: u64, seconds: u64) -> [Vec<f64>; 2] {
    let rtt = Duration::from_millis(100);
    let runs = (1..=seeds).map(|seed| run(name, law, rtt, loss, seed, [60, seconds]));
    runs.map(|run| {
        let delivered = (run.delivered_in(60..seconds as usize) / MSS.0).as_f64();
        let rounds = 10.0 * (seconds - 60) as f64;
        (run.counters.mean_window().expect("time has passed") / law, delivered / rounds / law)
    })
    .unzip::<f64, f64, Vec<_>, Vec<_>>()
    .into()
}

/// Goodput in Mbit/s and mean window in segments on a cell of a scenario, from `from` to `until` seconds.
fn steady(scenario: &Scenario, name: &str, seed: u64, span: [u64; 2]) -> [f64; 2] {
    let [from, until] = span;
    let mut world = play::world(scenario, &[name], seed).expect("a known name");
    world.run(Time::from_secs(from)).expect("it runs");
    world.measure_windows();
    world.run(Time::from_secs(until)).expect("it runs");
    let outcome = world.outcomes().remove(0);
    let rate = outcome.delivered_in(from as usize..until as usize).per(Duration::from_secs(until - from));
    [rate.as_mbit(), outcome.counters.mean_window().expect("time has passed")]
}

/// The geostationary link of paper 003 with this bit error rate.
fn geo(ber: f64) -> Scenario {
    let scenario = Scenario::find("p3.geo").expect("in the catalogue");
    let mut cells = scenario.cells().into_iter();
    cells.find(|cell| cell.ber.value() == ber).expect("the sweep has it").scenario
}

#[test]
#[ignore = "takes a minute"]
fn newreno_obeys_the_square_root_law_from_a_thousandth_to_a_hundred_thousandth() {
    for (loss, seconds) in [(1e-3, 600), (1e-4, 1800), (1e-5, 4000)] {
        let [window, delivered] = each_over_law("newreno", newreno_law(loss), loss, 6, seconds);
        hold(&format!("newreno, loss {loss:e}: window over the law"), &window, 0.85..=1.15);
        hold(&format!("newreno, loss {loss:e}: delivered over the law"), &delivered, 0.85..=1.15);
    }
}

#[test]
#[ignore = "takes some minutes"]
fn cubic_obeys_its_response_function() {
    for (loss, seeds, seconds) in [(1e-4, 30, 1260), (1e-5, 5, 1260)] {
        let [window, delivered] = each_over_law("cubic", cubic_law(loss), loss, seeds, seconds);
        // The law is for losses at even distances. Random ones, noticed a round trip late, make 1.144 of it
        // at 1e-4 and 1.148 at 1e-5: the equations of RFC 9438 played by themselves, 0.01 either way.
        hold(&format!("cubic, loss {loss:e}: window over the law"), &window, 0.85..=1.19);
        hold(&format!("cubic, loss {loss:e}: delivered over the law"), &delivered, 0.85..=1.19);
    }
}

#[test]
#[ignore = "takes a minute"]
fn hybla_is_nearly_as_fast_at_geostationary_distance_as_nearby() {
    let each = |rtt: u64| -> Vec<f64> {
        let window = rtt as f64 / 25.0 * newreno_law(1e-5);
        (1..=6)
            .map(|seed| {
                let outcome = run("hybla", window, Duration::from_millis(rtt), 1e-5, seed, [20, 320]);
                outcome.delivered_in(20..320).per(Duration::from_secs(300)).as_mbit()
            })
            .collect()
    };
    let (near, far) = (each(25), each(550));
    hold("hybla at 25 ms, Mbit/s", &near, 170.0..=200.0);
    hold("hybla at 550 ms, Mbit/s", &far, 160.0..=200.0);
    let ratios: Vec<f64> = far.iter().map(|far| far / mean(near.iter().copied())).collect();
    // Twelve round trips between two losses, and one of them without growth: the claim leaves that out.
    hold("hybla, 550 ms over 25 ms", &ratios, 0.93..=1.05);
}

#[test]
#[ignore = "takes a minute"]
fn veno_beats_newreno_by_the_root_of_three_where_losses_are_random() {
    let per = Ber::new(1e-6).expect("a rate").packet_error(Bytes(1500)).value();
    for (what, loss, seconds) in [("loss 1e-3", 1e-3, 1200), ("bit errors 1e-6", per, 300)] {
        let each = |name| each_over_law(name, newreno_law(loss), loss, 8, seconds)[1].clone();
        let below = mean(each("newreno").into_iter());
        let ratios: Vec<f64> = each("veno").iter().map(|above| above / below).collect();
        hold(&format!("veno over newreno, {what}"), &ratios, 1.58..=1.88);
    }
}

#[test]
#[ignore = "takes a minute"]
fn scps_and_hswa_on_the_geostationary_link_of_paper_003() {
    // Loss of a packet of 1000 bytes, and S of the paper.
    for (ber, step, least_ratio) in
        [(1e-8, 80.0, 7.0), (1e-7, 70.0, 7.0), (1e-6, 60.0, 7.0), (1e-5, 50.0, 10.0)]
    {
        let cell = geo(ber);
        let seeds = 1..=8;
        let scps: Vec<_> = seeds.clone().map(|seed| steady(&cell, "scps", seed, [200, 3200])).collect();
        let hswa: Vec<_> = seeds.clone().map(|seed| steady(&cell, "hswa", seed, [200, 1000])).collect();
        let rates = |runs: &[[f64; 2]]| runs.iter().map(|run| run[0]).collect::<Vec<_>>();
        let slow = rates(&scps);
        hold(&format!("scps, {ber:e}, Mbit/s"), &slow, if ber == 1e-8 { 2.0..=2.6 } else { 0.0..=2.6 });
        hold(&format!("hswa, {ber:e}, Mbit/s"), &rates(&hswa), 0.0..=96.0);
        let slow = mean(slow.into_iter());
        let ratios: Vec<f64> = rates(&hswa).iter().map(|fast| fast / slow).collect();
        hold(&format!("hswa over scps, {ber:e}"), &ratios, least_ratio..=70.0);
        let law = f64::sqrt(1.5 * step / cell.forward.packet_error(Bytes(1000)).value());
        let windows: Vec<f64> = hswa.iter().map(|run| run[1] / law).collect();
        let bounds = if ber <= 1e-7 { 0.85..=1.15 } else { 0.0..=2.0 };
        hold(&format!("hswa, {ber:e}: window over {law:.0} segments"), &windows, bounds);
    }
}

#[test]
#[ignore = "takes a minute"]
fn hybic_as_packets_has_the_mean_window_of_its_curve() {
    let cell = Scenario::find("p4.packet").expect("in the catalogue");
    let runs: Vec<_> = (1..=5).map(|seed| steady(&cell, "hybic", seed, [0, 60])).collect();
    let windows: Vec<f64> = runs.iter().map(|run| run[1]).collect();
    hold("hybic, mean window in segments", &windows, 20.7e3 * 0.9..=20.7e3 * 1.1);
    hold("hybic, Mbit/s", &runs.iter().map(|run| run[0]).collect::<Vec<_>>(), 90.0..=120.0);
}

#[test]
#[ignore = "takes some minutes"]
fn bbr_is_nearly_as_fast_as_a_start_by_doubling_allows() {
    // Mean rate in Mbit/s over 500 MB that start with ten segments and double until the link is full.
    for (rtt, doubling) in [(20, 908.0), (30, 888.0), (50, 849.0), (80, 793.0), (100, 759.0)] {
        let mut scenario = Scenario::find("p0.throughput-vs-loss").expect("in the catalogue");
        scenario.sweep.rtt = vec![Duration::from_millis(rtt)];
        for cell in scenario.cells() {
            let goodput: Vec<f64> = (1..=5)
                .map(|seed| {
                    let world = play(&cell.scenario, &["bbr"], seed).expect("it runs");
                    world.outcomes()[0].goodput(world.now()).as_mbit() / doubling
                })
                .collect();
            hold(
                &format!("bbr over doubling, {rtt} ms, loss {} %", cell.loss.percent()),
                &goodput,
                0.90..=1.05,
            );
        }
    }
}
