//! BoostTCP's packet loss monitor against the truth that only the link knows (paper 000, section 3.4).

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::{registry, Judgement, Setup};
use skyhaul_sim::scenario::{Dir, GilbertElliott, Scenario};
use skyhaul_sim::tcp::Truth;
use skyhaul_sim::world::{Flow, World};

fn path(mbit: u64, rtt: u64, loss: f64, queue: u64) -> Scenario {
    let mut scenario = Scenario::find("lan.gigabit-20").unwrap();
    for direction in [&mut scenario.forward, &mut scenario.back] {
        direction.rate = Rate::mbit(mbit);
        direction.one_way = Duration::from_millis(rtt) / 2;
        direction.queue = Bytes(queue);
    }
    scenario.forward.loss = Share::new(loss).unwrap();
    scenario
}

fn judged(what: &str, scenario: &Scenario, names: &[&str], seconds: u64, least: f64) {
    let mut world = World::on(scenario, Dir::Forward, 1);
    for (i, name) in names.iter().enumerate() {
        let controller = registry::build(name, &Setup::new(Bytes(1448))).unwrap();
        world.add(Flow { start: Time::from_secs(5 * i as u64), ..Flow::new(controller) });
    }
    world.run(Time::from_secs(seconds)).unwrap();
    let all = world.judged();
    for truth in Truth::ALL.into_iter().filter(|truth| all.total(*truth) > 0) {
        let random = all.share(truth, Judgement::Random).unwrap().value();
        println!("{what}: {} packets {}: {random:.3} judged random", all.total(truth), truth.name());
    }
    for (truth, judgement, least) in
        [(Truth::Alone, Judgement::Random, least), (Truth::Overflow, Judgement::Congestion, 0.9)]
    {
        // A handful says nothing about a share.
        if let Some(share) = all.share(truth, judgement).filter(|_| all.total(truth) >= 50) {
            assert!(share.value() >= least, "{what}, {}: {share:?}", truth.name());
        }
    }
    assert_eq!(all.total(Truth::Arrives), 0, "{what}: nothing was declared lost that arrives");
}

#[test]
fn random_losses_are_told_from_overflow_on_the_papers_link_and_over_satellites() {
    judged("1 Gbit/s, 100 ms, 0.1 %", &path(1000, 100, 1e-3, 12_500_000), &["boost"], 20, 0.95);
    judged("1 Gbit/s, 20 ms, 0.5 %", &path(1000, 20, 5e-3, 2_500_000), &["boost"], 10, 0.95);
    judged("150 Mbit/s, 540 ms, 1.2 %", &path(150, 540, 0.012, 5_000_000), &["boost"], 60, 0.95);
    let mut bursts = path(150, 540, 0.0, 5_000_000);
    bursts.forward.burst = GilbertElliott::from_burst(20.0, Share::new(0.012).unwrap());
    judged("the same in bursts of 20", &bursts, &["boost"], 60, 0.95);
}

#[test]
fn random_losses_are_told_from_overflow_of_short_queues_and_beside_other_controllers() {
    // 25 packets are 5 % of this round trip: even the full queue is hardly one.
    judged("10 Mbit/s, 550 ms, 0.1 %, 25 packets", &path(10, 550, 1e-3, 37_500), &["boost"], 240, 0.9);
    judged("100 Mbit/s, 20 ms, 0.5 %, a quarter", &path(100, 20, 5e-3, 62_500), &["boost"], 60, 0.95);
    judged("three flows", &path(100, 100, 1e-3, 1_250_000), &["boost"; 3], 60, 0.95);
    judged("beside cubic", &path(100, 50, 1e-3, 625_000), &["boost", "cubic"], 60, 0.95);
    judged("beside bbr", &path(100, 50, 1e-3, 625_000), &["boost", "bbr"], 60, 0.95);
}
