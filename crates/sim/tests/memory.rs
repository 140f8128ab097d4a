//! Path memory: what a connection leaves, what the next one makes of it, and what it costs when it is wrong.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::controllers::skyhaul::{Skyhaul, Start};
use skyhaul_cc::{registry, Bytes, Duration, PathHistory, Policy, Rate, Setup, Share, Time};
use skyhaul_pep::memory::{recall, Interface, PathKey, Record, UnixTime};
use skyhaul_pep::Way;
use skyhaul_sim::scenario::{Change, Dir, Scenario};
use skyhaul_sim::tcp::{AckOptions, SackBlocks};
use skyhaul_sim::tunnel::{Outcome, Pair, Plan, Transfer};
use skyhaul_sim::world::{Flow, World, Writes};
use std::sync::{Arc, Mutex};

const MS: fn(u64) -> Duration = Duration::from_millis;
const S: fn(u64) -> Duration = Duration::from_secs;
const MSS: Bytes = Bytes(1448);
const MIB: u64 = 1 << 20;

/// The same both ways, with a queue of one bandwidth-delay product.
fn link(rate: Rate, rtt: Duration, loss: f64) -> Scenario {
    let mut scenario = Scenario::find("p1.down-270").unwrap();
    for direction in [&mut scenario.forward, &mut scenario.back] {
        direction.rate = rate;
        direction.one_way = rtt / 2;
        direction.loss = Share::new(loss).unwrap();
        direction.queue = rate.bdp(rtt);
    }
    scenario
}

/// The links of the papers: a geostationary one with 1.2 % loss and a long cable.
fn links() -> [(&'static str, Scenario); 2] {
    [
        ("150 Mbit/s, 540 ms", link(Rate::mbit(150), MS(540), 0.012)),
        ("1 Gbit/s, 20 ms", link(Rate::mbit(1000), MS(20), 0.0)),
    ]
}

/// A TCP flow with reports of receive times that writes blocks.
fn flow(scenario: &Scenario, start: Start, block: Bytes, every: Duration, blocks: u64) -> Flow {
    let setup = Setup { initial_window: MSS * 32, ..Setup::new(MSS) };
    Flow {
        acks: AckOptions {
            every: 16,
            delay: MS(25),
            thinning: (scenario.rtt() / 64).clamp(Duration::from_micros(200), MS(10)),
            sacks: SackBlocks::All,
            ..AckOptions::default()
        },
        reports: true,
        writes: Some(Writes { segments: block.0 / MSS.0, every }),
        bytes: Some(MSS * (block.0 / MSS.0) * blocks),
        ..Flow::new(Box::new(Skyhaul::new(&setup, start, Policy::Share)))
    }
}

/// When each block had arrived, in round trips after it was written; and packets dropped by the queue.
fn blocks(scenario: &Scenario, start: Start, block: Bytes, every: Duration, count: u64) -> (Vec<f64>, u64) {
    let (block, rtt) = (MSS * (block.0 / MSS.0), scenario.rtt());
    let mut world = World::on(scenario, Dir::Forward, 1);
    world.bins = rtt / 20;
    world.patience = S(5000);
    world.add(flow(scenario, start, block, every, count));
    world.run(Time::ZERO + every * count as u32).unwrap();
    let (mut sum, mut times) = (0, Vec::new());
    for (bin, bytes) in world.outcomes()[0].bins.iter().zip(1u32..).map(|(bytes, bin)| (bin, bytes)) {
        sum += bytes.0;
        while sum >= block.0 * (times.len() as u64 + 1) {
            let at = world.bins * bin - every * times.len() as u32;
            times.push(at.as_secs_f64() / rtt.as_secs_f64());
        }
    }
    (times, world.forward().counters().queue_full.packets)
}

#[test]
fn a_wrong_memory_costs_at_most_a_round_trip_and_a_right_one_saves_one() {
    for (name, scenario) in links() {
        let (rate, rtt) = (scenario.forward.rate.scale(1448.0 / 1500.0), scenario.rtt());
        let right = PathHistory { loss: scenario.forward.loss, ..PathHistory::of(rate, rtt) };
        let amount = rate.bdp(rtt) * 12;
        let run = |start| {
            let (times, drops) = blocks(&scenario, start, amount, rtt * 40, 1);
            (times[0], drops)
        };
        let (cold, _) = run(Start::Cold);
        println!("{name}: cold {cold:.2} round trips");
        let with = |rate: f64, rtt: f64| PathHistory {
            rate: right.rate.scale(rate),
            min_rtt: right.min_rtt.mul_f64(rtt),
            ..right
        };
        for (what, history, most, times) in [
            ("right", right, -0.6, 0.0),
            ("old", PathHistory { confidence: Share::ZERO, ..right }, -0.2, 0.0),
            ("4 times too fast", with(4.0, 1.0), 1.0, 4.0),
            ("10 times too fast", with(10.0, 1.0), 1.0, 10.0),
            ("4 times too slow", with(0.25, 1.0), 1.0, 0.0),
            ("4 times too long", with(1.0, 4.0), -0.6, 0.0),
            ("10 times too short", with(1.0, 0.1), -0.6, 0.0),
            ("4 times too fast and too long", with(4.0, 4.0), 1.0, 4.0),
            ("all of its packets lost", PathHistory { loss: Share::new(0.5).unwrap(), ..right }, 0.5, 0.0),
        ] {
            let (time, drops) = run(Start::Warm(history));
            println!("{name}: memory {what}: {time:.2} round trips, {drops} packets dropped");
            assert!(time <= cold + most, "{name}, {what}: {time} against {cold}");
            // What a round trip of the remembered rate holds beyond the link's, at most.
            let product = rate.bdp(rtt).as_f64() / MSS.as_f64();
            assert!(drops as f64 <= times * product, "{name}, {what}: {drops} of {product} packets");
        }
    }
}

#[test]
fn a_pause_keeps_what_was_known_and_the_next_flight_validates_it() {
    for (name, scenario) in links() {
        let (rate, rtt) = (scenario.forward.rate.scale(1448.0 / 1500.0), scenario.rtt());
        let (amount, history) = (rate.bdp(rtt) * 8, PathHistory::of(rate, rtt));
        for (pause, most) in [(5, 0.15), (60, 0.15), (630, 0.7)] {
            let every = rtt * 14 + S(pause);
            let (times, drops) = blocks(&scenario, Start::Warm(history), amount, every, 3);
            println!("{name}, {pause} s: {times:.2?} round trips");
            let floor = 0.5 + 8.0 / (1.0 - scenario.forward.loss.value());
            // Half a round trip for repairs of what was lost last, as in the first block.
            let first = times[0].min(floor + 1.1);
            assert_eq!((times.len(), drops), (3, 0));
            assert!(times[1] <= first + most && times[2] <= first + most, "{name}, {pause} s: {times:?}");
        }
    }
}

#[test]
fn a_rate_that_changed_in_a_pause_costs_about_a_round_trip() {
    for (name, mut scenario) in links() {
        let (rate, rtt) = (scenario.forward.rate.scale(1448.0 / 1500.0), scenario.rtt());
        for (factor, pause) in [(0.25, 30), (0.5, 630), (2.0, 30), (4.0, 630)] {
            let every = S(pause) + rtt * 14;
            let amount = rate.scale(f64::max(factor, 1.0)).bdp(rtt) * if factor < 1.0 { 3 } else { 8 };
            let changed = scenario.forward.rate.scale(factor);
            let mut later = scenario.clone();
            later.forward.rate = changed;
            let (cold, _) = blocks(&later, Start::Cold, amount, rtt * 60, 1);
            scenario.forward.changes = vec![Change {
                at: every - S(5),
                rate: Some(changed),
                one_way: None,
                loss: None,
                outage: None,
                every: None,
            }];
            // Both blocks fit: before the change the first one has half of a pause.
            let (times, drops) = blocks(&scenario, Start::Warm(PathHistory::of(rate, rtt)), amount, every, 2);
            println!(
                "{name}, rate times {factor} in {pause} s: {times:.2?}, cold {cold:.2?}, {drops} dropped"
            );
            let [_, kept] = times[..] else { panic!("{name}, times {factor}: {times:?}") };
            assert!(kept <= cold[0] + 1.25, "{name}, times {factor}: {kept} against {cold:?}");
        }
    }
}

fn seconds(outcome: &Outcome) -> f64 {
    assert!(!outcome.corrupt);
    outcome.finished.unwrap().since(outcome.opened.unwrap()).as_secs_f64()
}

#[test]
fn what_a_cold_channel_leaves_makes_the_next_one_warm() {
    let (_, scenario) = &links()[0];
    let file = |start| vec![Transfer { start, ..Transfer::new(Dir::Forward, 64 * MIB) }];
    let mut first =
        Pair::new(scenario, Plan::new(scenario, "skyhaul", 1).unwrap(), file(Time::ZERO)).unwrap();
    first.run(Time::from_secs(60));
    let peer = first.peer(Dir::Forward).unwrap();
    let left = first.tunnel(Dir::Forward).history(peer).unwrap();
    assert!((140.0..=153.0).contains(&left.rate.as_mbit()), "{left:?}");
    assert!((0.53..0.55).contains(&left.min_rtt.as_secs_f64()), "{left:?}");
    assert!((0.008..0.016).contains(&left.loss.value()), "{left:?}");

    // To disk and back.
    let mut plan = Plan::new(scenario, "skyhaul", 2).unwrap();
    let path =
        PathKey::new(plan.gateway.secret.public(), Interface::default(), "10.77.0.2:4433".parse().unwrap());
    let bytes = Record::first(&left, UnixTime(1_750_000_000)).unwrap().encode(&path);
    let record = Record::decode(&path, &bytes).unwrap();
    let inner = plan.terminal.controller.clone();
    plan.terminal.controller = Arc::new(move |way: &Way| {
        let Some(peer) = way.peer else { return inner(way) };
        let path = PathKey::new(peer, Interface::default(), way.remote);
        let history = recall([(&path, &record)], &path, UnixTime(1_750_000_060));
        registry::build("skyhaul", &Setup { history, ..Setup::new(Bytes(1500)) }).unwrap()
    });
    let mut second = Pair::new(scenario, plan, file(Time::ZERO)).unwrap();
    second.run(Time::from_secs(60));
    let mut truth =
        Pair::new(scenario, Plan::new(scenario, "skyhaul/warm", 2).unwrap(), file(Time::ZERO)).unwrap();
    truth.run(Time::from_secs(60));
    let [cold, warm, truth] = [&first, &second, &truth].map(|pair| seconds(&pair.outcomes()[0]));
    println!("64 MiB: cold {cold:.2} s, by what it left {warm:.2} s, by the truth {truth:.2} s");
    assert!(warm < cold - 0.3 && warm < truth + 0.1, "cold {cold} s, {warm} s, truth {truth} s");
}

#[test]
fn the_second_file_of_a_kept_channel_is_as_fast_as_the_first_of_a_warm_one() {
    let (_, scenario) = &links()[0];
    let size = 32 * MIB;
    let at = |seconds| Transfer { start: Time::from_secs(seconds), ..Transfer::new(Dir::Forward, size) };
    let mut fresh =
        Pair::new(scenario, Plan::new(scenario, "skyhaul/warm", 1).unwrap(), vec![at(2)]).unwrap();
    fresh.run(Time::from_secs(60));
    let warm = seconds(&fresh.outcomes()[0]);
    for (pause, most) in [(5, 0.1), (60, 0.1), (630, 0.4)] {
        let plan = Plan::new(scenario, "skyhaul", 1).unwrap();
        let mut pair = Pair::new(scenario, plan, vec![at(2), at(12 + pause)]).unwrap();
        pair.run(Time::from_secs(11));
        let before = pair.counters(Dir::Forward).delivered;
        pair.run(Time::from_secs(11 + pause));
        let sent = pair.counters(Dir::Forward).delivered.packets - before.packets;
        // A probe every second, the answer to that of the other end, QUIC's pings, reports of both.
        assert!(sent <= 5 * pause, "{sent} packets in {pause} s");
        pair.run(Time::from_secs(100 + pause));
        let kept = seconds(&pair.outcomes()[1]);
        println!("32 MiB: warm {warm:.2} s, after {pause} s {kept:.2} s");
        assert!(kept <= warm + most, "after {pause} s: {kept} s, warm {warm} s");
    }
}

#[test]
fn both_ends_send_by_the_controller_that_is_made_for_the_peer_that_has_shown_its_key() {
    let scenario = Scenario::find("p1.down-270").unwrap();
    let mut plan = Plan::new(&scenario, "cubic", 1).unwrap();
    let keys = [plan.terminal.secret.public(), plan.gateway.secret.public()];
    let asked = Arc::new(Mutex::new(Vec::new()));
    for config in [&mut plan.terminal, &mut plan.gateway] {
        let asked = asked.clone();
        config.controller = Arc::new(move |way: &Way| {
            asked.lock().unwrap().extend(way.peer);
            let setup = Setup::new(Bytes(1500));
            // Their phases have different names.
            registry::build(if way.peer.is_some() { "bbr" } else { "newreno" }, &setup).unwrap()
        });
    }
    let both = vec![Transfer::new(Dir::Forward, MIB), Transfer::new(Dir::Back, MIB)];
    let mut pair = Pair::new(&scenario, plan, both).unwrap();
    pair.run(Time::from_secs(3));
    let bbr = registry::build("bbr", &Setup::new(Bytes(1500))).unwrap();
    for dir in [Dir::Forward, Dir::Back] {
        let peer = pair.peer(dir).unwrap();
        let stats = pair.tunnel(dir).stats(peer).unwrap();
        assert_eq!(stats.controller.phase, bbr.snapshot().phase, "{dir:?}");
        assert_eq!(stats.loss_disagreements, 0);
    }
    let mut asked = asked.lock().unwrap().clone();
    asked.sort();
    let mut keys = keys.to_vec();
    keys.sort();
    assert_eq!(asked, keys);
}
