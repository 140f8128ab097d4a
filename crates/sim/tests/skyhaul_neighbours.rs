//! Our own controller beside others, by its policy, and on links that hold packets back or let them overtake,
//! in virtual time.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::controllers::skyhaul::{Policy, Skyhaul, Start};
use skyhaul_cc::{registry, Bytes, Duration, Rate, Setup, Share, Time};
use skyhaul_sim::scenario::{Dir, Scenario};
use skyhaul_sim::tcp::{AckOptions, SackBlocks};
use skyhaul_sim::world::{Flow, Stamps, World};

const MS: fn(u64) -> Duration = Duration::from_millis;
const S: fn(u64) -> Time = Time::from_secs;
const MSS: Bytes = Bytes(1448);
const PACKET: f64 = 1500.0;
/// Bins of what was delivered, per second.
const BINS: usize = 10;

/// A link that is the same both ways, the queue in bandwidth-delay products.
fn link(mbit: u64, rtt: u64, loss: f64, queue: f64) -> Scenario {
    let mut scenario = Scenario::find("p1.down-270").unwrap();
    for direction in [&mut scenario.forward, &mut scenario.back] {
        direction.rate = Rate::mbit(mbit);
        direction.one_way = MS(rtt) / 2;
        direction.loss = Share::ZERO;
        direction.queue = Bytes::from_f64(direction.rate.bdp(MS(rtt)).as_f64() * queue);
    }
    scenario.forward.loss = Share::new(loss).unwrap();
    scenario
}

fn own(scenario: &Scenario, policy: Policy) -> Flow {
    let rtt = scenario.rtt();
    let setup = Setup { initial_window: MSS * 32, initial_rtt: rtt, ..Setup::new(MSS) };
    let thinning = (rtt / 64).clamp(Duration::from_micros(200), MS(10));
    let acks =
        AckOptions { every: 16, delay: MS(25), thinning, sacks: SackBlocks::All, ..AckOptions::default() };
    Flow { acks, reports: true, ..Flow::new(Box::new(Skyhaul::new(&setup, Start::Cold, policy))) }
}

/// A flow by the name of its controller: ours by its policy.
fn flow(scenario: &Scenario, name: &str) -> Flow {
    match name {
        "share" => own(scenario, Policy::Share),
        "scavenge" => own(scenario, Policy::Scavenge),
        other => Flow::new(registry::build(other, &Setup::new(MSS)).unwrap()),
    }
}

fn world(scenario: &Scenario, seed: u64, flows: &[(&str, u64)]) -> World {
    let mut world = World::on(scenario, Dir::Forward, seed);
    world.bins = MS(1000 / BINS as u64);
    for (name, start) in flows {
        world.add(Flow { start: S(*start), ..flow(scenario, name) });
    }
    world
}

/// Shares of the link that each flow had in those seconds.
fn shares(world: &World, mbit: u64, from: usize, to: usize) -> Vec<f64> {
    let whole = Rate::mbit(mbit).bytes_in(Duration::from_secs((to - from) as u64)).as_f64();
    let got = |bytes: Bytes| bytes.as_f64() / whole * (PACKET / MSS.as_f64());
    world.outcomes().iter().map(|flow| got(flow.delivered_in(from * BINS..to * BINS))).collect()
}

#[test]
fn who_scavenges_leaves_the_link_to_anybody_and_takes_it_alone() {
    for (mbit, rtt, flows) in [
        (100, 40, [("scavenge", 0), ("share", 10)]),
        (100, 40, [("scavenge", 10), ("share", 0)]),
        (100, 40, [("scavenge", 0), ("cubic", 10)]),
        (150, 540, [("scavenge", 0), ("share", 10)]),
    ] {
        let scenario = link(mbit, rtt, 0.0, 1.0);
        let mut world = world(&scenario, 1, &flows);
        world.run(S(50)).unwrap();
        let shares = shares(&world, mbit, 30, 50);
        assert!(shares[0] < 0.1 && shares[1] > 0.85, "{mbit} Mbit/s, {flows:?}: {shares:?}");
    }
    for (mbit, rtt) in [(100, 40), (150, 540)] {
        let scenario = link(mbit, rtt, 0.01, 1.0);
        let mut world = world(&scenario, 2, &[("scavenge", 0)]);
        world.run(S(30)).unwrap();
        let share = shares(&world, mbit, 10, 30)[0] / 0.99;
        assert!(share > 0.97, "{mbit} Mbit/s, {rtt} ms: {share}");
    }
}

#[test]
fn who_scavenges_comes_back_when_the_others_have_gone() {
    let scenario = link(100, 40, 0.0, 1.0);
    let mut world = world(&scenario, 1, &[("scavenge", 0)]);
    world.add(Flow { start: S(5), bytes: Some(Bytes(100_000_000)), ..flow(&scenario, "share") });
    world.run(S(30)).unwrap();
    let ended = world.outcomes()[1].finished.unwrap().as_secs_f64();
    // 8.3 s alone; its own rules keep it small for five seconds after the losses of its beginning.
    assert!(ended < 22.0, "{ended}");
    let share = shares(&world, 100, ended as usize + 7, 30)[0];
    assert!(share > 0.95, "{share}");
}

#[test]
fn beside_bbr_in_a_short_queue_we_keep_a_quarter() {
    let scenario = link(100, 40, 0.0, 0.25);
    for flows in [[("share", 0), ("bbr", 5)], [("share", 5), ("bbr", 0)]] {
        let mut world = world(&scenario, 1, &flows);
        world.run(S(80)).unwrap();
        let shares = shares(&world, 100, 50, 80);
        assert!(shares[0] / (shares[0] + shares[1]) > 0.24, "{flows:?}: {shares:?}");
    }
}

#[test]
fn data_that_arrives_in_frames_hides_neither_the_rate_nor_the_queue() {
    for (mbit, rtt, rough, seed) in [(150, 540, false, 1), (100, 40, false, 2), (100, 40, true, 3)] {
        let scenario = link(mbit, rtt, 0.01, 1.0);
        let [data, acks] = [Dir::Forward, Dir::Back].map(|dir| scenario.link(dir, seed));
        let mut world = World::new(data.with_frames(MS(20)), acks, seed);
        world.bins = MS(1000 / BINS as u64);
        let mut flow = flow(&scenario, "share");
        if rough {
            flow.tcp.batch = MS(1);
            flow.stamps = Stamps { noise: Duration::from_micros(100), drift: 50e-6, ..Stamps::default() };
        }
        world.add(flow);
        world.run(S(15)).unwrap();
        let mut longest = Duration::ZERO;
        while world.now() < S(35) {
            let next = world.now() + MS(5);
            world.run(next).unwrap();
            longest = longest.max(world.forward().rate(next).time_for(world.forward().queued(next)));
        }
        let share = shares(&world, mbit, 15, 35)[0] / 0.99;
        let what = format!("{mbit} Mbit/s, {rtt} ms, rough {rough}, seed {seed}");
        assert!(share > 0.95, "{what}: {share}");
        assert!(longest < MS(40), "{what}: a queue of {longest:?}");
    }
}

#[test]
fn packets_that_are_overtaken_cost_what_is_sent_twice_and_no_more() {
    for (mbit, rtt) in [(150, 540), (100, 40)] {
        let mut scenario = link(mbit, rtt, 0.01, 1.0);
        scenario.forward.reorder = true;
        let [data, acks] = [Dir::Forward, Dir::Back].map(|dir| scenario.link(dir, 1));
        let data = data.with_detour(Share::new(0.01).unwrap(), MS(10), 1);
        let mut world = World::new(data, acks, 1);
        world.bins = MS(1000 / BINS as u64);
        world.add(flow(&scenario, "share"));
        world.run(S(60)).unwrap();
        let share = shares(&world, mbit, 10, 60)[0] / 0.99;
        assert!(share > 0.95, "{mbit} Mbit/s, {rtt} ms: {share}");
    }
}
