//! BoostTCP on simulated TCP against what paper 000 shows in its figures 5 to 15.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::{registry, Setup};
use skyhaul_sim::scenario::{Dir, Jitter, RateBase, Scenario};
use skyhaul_sim::stats;
use skyhaul_sim::world::{Flow, Outcome, World};

const MSS: Bytes = Bytes(1448);
const FILE: Bytes = Bytes(500_000_000);

/// The paper's link: 1 Gbit/s on the wire, a queue of one bandwidth-delay product but 1000 packets at least.
fn link(rtt: Duration, loss: f64) -> Scenario {
    let mut scenario = Scenario::find("lan.gigabit-20").unwrap();
    for direction in [&mut scenario.forward, &mut scenario.back] {
        direction.rate = Rate::mbit(1000);
        direction.rate_base = RateBase::Wire;
        direction.one_way = rtt / 2;
        direction.loss = Share::ZERO;
        direction.queue = direction.rate.bdp(rtt).max(Bytes(1_500_000));
    }
    scenario.forward.loss = Share::new(loss).unwrap();
    scenario
}

fn flow(name: &str, start: u64, bytes: Option<Bytes>) -> Flow {
    let controller = registry::build(name, &Setup::new(MSS)).unwrap();
    Flow { start: Time::from_secs(start), bytes, ..Flow::new(controller) }
}

fn share(scenario: &Scenario, names: &[&str], until: u64, seed: u64) -> Vec<Outcome> {
    let mut world = World::on(scenario, Dir::Forward, seed);
    for (i, name) in names.iter().enumerate() {
        world.add(flow(name, 10 * i as u64, None));
    }
    world.run(Time::from_secs(until)).unwrap();
    world.outcomes()
}

fn file(scenario: &Scenario, name: &str, seed: u64) -> f64 {
    let mut world = World::on(scenario, Dir::Forward, seed);
    world.add(flow(name, 0, Some(FILE)));
    world.run(Time::from_secs(60)).unwrap();
    let outcome = world.outcomes().remove(0);
    outcome.goodput(world.now()).as_mbit()
}

fn mbit(outcome: &Outcome, from: usize, until: usize) -> f64 {
    outcome.delivered_in(from..until).per(Duration::from_secs((until - from) as u64)).as_mbit()
}

fn check(what: &str, value: f64, range: std::ops::RangeInclusive<f64>) {
    println!("{what}: {value:.3}");
    assert!(range.contains(&value), "{what}: {value} is outside {range:?}");
}

/// Mean rate over 500 MB for a start that doubles per round trip from ten segments, Mbit/s.
fn doubling(rtt: u64) -> f64 {
    match rtt {
        20 => 908.0,
        30 => 888.0,
        50 => 849.0,
        80 => 793.0,
        100 => 759.0,
        _ => 0.0,
    }
}

fn cell(rtt: u64, loss: f64) {
    let path = link(Duration::from_millis(rtt), loss);
    let [boost, bbr, newreno] = ["boost", "bbr", "newreno"].map(|name| file(&path, name, 1));
    let what = format!("{rtt} ms, loss {loss}: boost {boost:.1} Mbit/s");
    check(&format!("{what}, over bbr"), boost / bbr, 1.0..=1.4);
    check(&format!("{what}, over doubling"), boost / doubling(rtt).max(1.0), 0.93..=1e3);
    // At shorter delays NewReno has more than a tenth of the link.
    if loss >= 5e-4 && rtt >= 20 {
        check(&format!("{what}, over newreno"), boost / newreno, 10.0..=1000.0);
    }
}

#[test]
fn boost_is_as_fast_as_bbr_and_ten_times_as_fast_as_newreno_in_the_corners_of_paper_000() {
    for (rtt, loss) in [(20, 0.0), (20, 5e-3), (50, 5e-4), (80, 0.0), (80, 5e-3), (100, 5e-4)] {
        cell(rtt, loss);
    }
}

#[test]
#[ignore = "half a minute: all cells of figures 5 to 8"]
fn boost_is_as_fast_as_bbr_and_ten_times_as_fast_as_newreno_in_all_cells_of_paper_000() {
    for rtt in [20, 30, 50, 80, 100] {
        for loss in [0.0, 1e-4, 5e-4, 1e-3, 5e-3] {
            cell(rtt, loss);
        }
    }
    for rtt in [5, 10, 40] {
        cell(rtt, 5e-4);
    }
}

/// Jain's index and sum of what flows got per second, Mbit/s.
fn fairness(outcomes: &[Outcome], from: usize, until: usize) -> (f64, f64) {
    let rates: Vec<f64> = outcomes.iter().map(|outcome| mbit(outcome, from, until)).collect();
    println!("{from} to {until} s: {rates:.1?}");
    let sum: f64 = rates.iter().sum();
    (stats::jain(&rates).unwrap(), sum)
}

#[test]
fn three_boost_flows_share_the_papers_link_equally() {
    for (what, loss, jitter) in [("clean", 0.0, 0), ("loss", 1e-3, 0), ("jitter", 0.0, 2)] {
        let mut path = link(Duration::from_millis(100), loss);
        let half_range = Duration::from_millis(jitter);
        path.forward.jitter = (jitter > 0).then_some(Jitter { half_range, shape: Default::default() });
        let outcomes = share(&path, &["boost"; 3], 60, 1);
        let (jain, sum) = fairness(&outcomes, 40, 60);
        // Jitter hides as much queue as the flows keep.
        let least = if jitter > 0 { 0.9 } else { 0.95 };
        check(&format!("{what}: Jain's index"), jain, least..=1.0);
        check(&format!("{what}: sum over the limit of 941.5 Mbit/s"), sum / 941.5, 0.9..=1.001);
        // Packets of the first growth that the queue refused.
        println!("lost: {:?}", outcomes.iter().map(|outcome| outcome.counters.lost).collect::<Vec<_>>());
    }
}

#[test]
fn boost_takes_the_most_within_three_seconds_beside_cubic_and_bbr_over_hardly_any_delay() {
    // Figures 13 and 14: hardly any delay, a queue of 1000 packets; boost is the last to join.
    for names in [["cubic", "bbr", "boost"], ["bbr", "cubic", "boost"]] {
        let outcomes = share(&link(Duration::from_micros(500), 0.0), &names, 30, 1);
        let rates: Vec<f64> = outcomes.iter().map(|outcome| mbit(outcome, 23, 30)).collect();
        println!("{names:?}: {rates:.1?}");
        assert!(rates[2] > rates[0].max(rates[1]), "{names:?}: {rates:?}");
    }
}
