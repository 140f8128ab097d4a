//! Controllers on simulated TCP against the closed forms of their papers.

use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::{registry, Setup};
use skyhaul_sim::link::Link;
use skyhaul_sim::rng;
use skyhaul_sim::scenario::{Direction, RateBase};
use skyhaul_sim::tcp::{Recovery, TcpOptions};
use skyhaul_sim::world::{Flow, Outcome, World};

const MSS: Bytes = Bytes(1448);

/// A link of 1 Gbit/s that loses packets and never overflows.
fn direction(rtt: Duration, loss: f64) -> Direction {
    Direction {
        rate: Rate::mbit(1000),
        rate_base: RateBase::Ip,
        one_way: rtt / 2,
        loss: Share::new(loss).expect("a share"),
        ber: Default::default(),
        ber_unit: Default::default(),
        burst: None,
        jitter: None,
        reorder: false,
        queue: Bytes(1_000_000_000),
        queue_rule: None,
        changes: Vec::new(),
    }
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

#[test]
#[ignore = "takes a minute; prints the figures of docs/sim.md"]
fn figures_at_one_loss_in_a_hundred_thousand() {
    over_law("newreno", newreno_law(1e-5), 1e-5, 2, 4000);
    over_law("cubic", cubic_law(1e-4), 1e-4, 12, 1200);
    over_law("cubic", cubic_law(1e-5), 1e-5, 2, 2000);
    let (near, far) = (hybla(25, 1e-5, 4, 600), hybla(550, 1e-5, 4, 600));
    println!("hybla, loss 1e-5: {near:.1} Mbit/s at 25 ms, {far:.1} at 550 ms, ratio {:.3}", far / near);
    assert!((0.85..=1.05).contains(&(far / near)), "{near} and {far} Mbit/s");
}
