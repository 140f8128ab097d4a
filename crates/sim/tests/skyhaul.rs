//! Our own controller with reports of receive times, on whole links in virtual time.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::controllers::skyhaul::{Policy, Skyhaul, Start};
use skyhaul_cc::{registry, Bytes, Duration, PathHistory, Rate, Setup, Share, Time};
use skyhaul_sim::scenario::{Change, Dir, Direction, Jitter, JitterShape, Scenario};
use skyhaul_sim::stats;
use skyhaul_sim::tcp::{AckOptions, SackBlocks};
use skyhaul_sim::world::{Flow, Stamps, World};
use std::ops::Range;

const MS: fn(u64) -> Duration = Duration::from_millis;
const S: fn(u64) -> Time = Time::from_secs;
const MSS: Bytes = Bytes(1448);
/// Payload of a packet over its size.
const EFFICIENCY: f64 = 1448.0 / 1500.0;

/// A link that is the same both ways, the queue in bandwidth-delay products.
fn link(rate: Rate, rtt: Duration, queue: f64) -> Scenario {
    let mut scenario = Scenario::find("p1.down-270").unwrap();
    for direction in [&mut scenario.forward, &mut scenario.back] {
        direction.rate = rate;
        direction.one_way = rtt / 2;
        direction.loss = Share::ZERO;
        direction.queue = Bytes::from_f64(rate.bdp(rtt).as_f64() * queue);
    }
    scenario
}

fn flow(scenario: &Scenario, start: Start) -> Flow {
    let rtt = scenario.rtt();
    let setup = Setup { initial_window: MSS * 32, initial_rtt: rtt, ..Setup::new(MSS) };
    let thinning = (rtt / 64).clamp(Duration::from_micros(200), MS(10));
    Flow {
        acks: AckOptions {
            every: 16,
            delay: MS(25),
            thinning,
            sacks: SackBlocks::All,
            ..AckOptions::default()
        },
        reports: true,
        ..Flow::new(Box::new(Skyhaul::new(&setup, start, Policy::Share)))
    }
}

fn world(scenario: &Scenario, seed: u64) -> World {
    let mut world = World::on(scenario, Dir::Forward, seed);
    world.bins = MS(10);
    world
}

/// Payload delivered in order between two times over what the rate allows.
fn used(world: &World, rate: Rate, from: Duration, to: Duration) -> f64 {
    let bins = (from.as_millis() / 10) as usize..(to.as_millis() / 10) as usize;
    let got: f64 = world.outcomes().iter().map(|outcome| outcome.delivered_in(bins.clone()).as_f64()).sum();
    got / (rate.bytes_in(to - from).as_f64() * EFFICIENCY)
}

/// Jain's index of what the flows got in these bins, and what that was.
fn fairness(world: &World, bins: Range<usize>) -> (f64, Vec<f64>) {
    let shares: Vec<f64> =
        world.outcomes().iter().map(|outcome| outcome.delivered_in(bins.clone()).as_f64()).collect();
    (stats::jain(&shares).unwrap(), shares)
}

/// Greatest queue as time, looked at every 5 ms from now until then.
fn longest_queue(world: &mut World, until: Time) -> Duration {
    let mut longest = Duration::ZERO;
    while world.now() < until {
        let next = (world.now() + MS(5)).min(until);
        world.run(next).unwrap();
        let queue = world.forward().queued(world.now());
        longest = longest.max(world.forward().rate(world.now()).time_for(queue));
    }
    longest
}

fn drops(world: &World) -> u64 {
    world.forward().counters().queue_full.packets
}

#[test]
fn the_rate_is_found_two_round_trips_and_a_train_after_the_start_without_a_drop() {
    for (mbit, rtt, queue) in
        [(10, 100, 1.0), (10, 540, 0.5), (150, 540, 0.5), (150, 800, 1.0), (1000, 50, 0.25)]
    {
        let rate = Rate::mbit(mbit);
        let scenario = link(rate, MS(rtt), queue);
        let mut world = world(&scenario, 1);
        world.add(flow(&scenario, Start::Cold));
        // Half a round trip for the news of the train to arrive as data, and a tenth for the train.
        let found = MS(rtt) * 31 / 10;
        let longest = longest_queue(&mut world, Time::ZERO + found + MS(rtt) * 3);
        let share = used(&world, rate, found, found + MS(rtt) * 3);
        let what = format!("{mbit} Mbit/s, {rtt} ms");
        assert!(share >= 0.95, "{what}: {share}");
        assert_eq!(drops(&world), 0, "{what}");
        let first_flight = rate.time_for(Bytes(1500) * 32);
        assert!(longest < first_flight.max(MS(rtt) / 12), "{what}: a queue of {longest:?}");
    }
}

#[test]
fn a_warm_start_sends_at_once_and_is_right_after_one_round_trip() {
    let rate = Rate::mbit(150);
    let scenario = link(rate, MS(540), 0.5);
    let payload = rate.scale(EFFICIENCY);
    for (start, first) in
        [(Start::Warm(PathHistory::of(payload, MS(540))), 0.92), (Start::Known(payload), 0.95)]
    {
        let mut world = world(&scenario, 1);
        world.add(flow(&scenario, start));
        world.run(S(4)).unwrap();
        let share = used(&world, rate, MS(280), MS(800));
        assert!(share >= first, "{start:?}: {share}");
        // The first answers tell of the burst and of a train behind it; half a round trip later it is seen here.
        let share = used(&world, rate, MS(880), MS(1400));
        assert!(share >= 0.98, "{start:?}: {share}");
        assert!(used(&world, rate, MS(2000), MS(4000)) > 0.98, "{start:?}");
        assert_eq!(drops(&world), 0, "{start:?}");
    }
}

#[test]
fn a_remembered_rate_four_times_too_high_is_corrected_within_two_round_trips() {
    let rate = Rate::mbit(40);
    let scenario = link(rate, MS(100), 2.0);
    let mut world = world(&scenario, 1);
    world.add(flow(&scenario, Start::Warm(PathHistory::of(Rate::mbit(150), MS(100)))));
    world.run(S(1)).unwrap();
    let before = drops(&world);
    let longest = longest_queue(&mut world, S(5));
    assert_eq!(drops(&world), before);
    assert!(longest < MS(25), "{longest:?}");
    assert!(used(&world, rate, MS(1000), MS(5000)) > 0.97);
}

#[test]
fn random_loss_does_not_slow_it_down() {
    for (loss, seed) in [(0.012, 1), (0.05, 2), (0.08, 3)] {
        let rate = Rate::mbit(150);
        let mut scenario = link(rate, MS(540), 0.5);
        scenario.forward.loss = Share::new(loss).unwrap();
        let mut world = world(&scenario, seed);
        world.add(flow(&scenario, Start::Cold));
        world.run(S(30)).unwrap();
        // In-order delivery lags by up to a few round trips at both ends.
        let share = used(&world, rate, MS(6000), MS(30_000)) / (1.0 - loss);
        assert!(share > 0.97, "loss {loss}, seed {seed}: {share}");
        assert_eq!(drops(&world), 0);
    }
}

#[test]
fn the_window_does_not_run_away_beside_a_competitor_that_fills_the_queue() {
    let rate = Rate::mbit(100);
    for queue in [1.0, 4.0] {
        let scenario = link(rate, MS(40), queue);
        let mut world = world(&scenario, 1);
        world.add(flow(&scenario, Start::Cold));
        world.add(Flow { start: S(2), ..Flow::new(registry::build("bbr", &Setup::new(MSS)).unwrap()) });
        world.run(S(60)).unwrap();
        let greatest = world.outcomes()[0].windows.iter().copied().max().unwrap();
        let most = Bytes::from_f64(rate.bdp(MS(40)).as_f64() * (2.0 * (1.0 + queue)));
        assert!(greatest < most, "a queue of {queue}: a window of {greatest}");
    }
}

#[test]
fn flows_that_see_idle_capacity_together_do_not_all_take_it() {
    // Two of five flows end; the others share what they leave without an overflow.
    let rate = Rate::mbit(300);
    let scenario = link(rate, MS(50), 1.0);
    let mut world = world(&scenario, 1);
    for n in 0..5 {
        let bytes = (n < 2).then_some(Bytes(40_000_000));
        world.add(Flow { start: S(n), bytes, ..flow(&scenario, Start::Cold) });
    }
    world.run(S(6)).unwrap();
    let before = drops(&world);
    world.run(S(40)).unwrap();
    assert_eq!(drops(&world), before);
    let share = used(&world, rate, MS(20_000), MS(40_000));
    assert!(share > 0.97, "{share}");
}

fn change(direction: &mut Direction, at: Duration, change: Change) {
    direction.changes.push(Change { at, ..change });
}

#[test]
fn an_outage_is_not_taken_for_congestion() {
    let rate = Rate::mbit(100);
    let mut scenario = link(rate, MS(40), 1.0);
    for direction in [&mut scenario.forward, &mut scenario.back] {
        change(direction, MS(10_000), Change { outage: Some(MS(300)), ..Change::default() });
    }
    let mut world = world(&scenario, 1);
    world.add(flow(&scenario, Start::Cold));
    world.run(S(15)).unwrap();
    // What was lost is sent again within 0.4 s of the end; from then on the link is full.
    let share = used(&world, rate, MS(10_700), MS(15_000));
    assert!(share > 0.97, "{share}");
}

#[test]
fn a_longer_path_is_told_from_a_queue() {
    for step in [10, 30] {
        let rate = Rate::mbit(100);
        let mut scenario = link(rate, MS(40), 1.0);
        for direction in [&mut scenario.forward, &mut scenario.back] {
            change(direction, MS(10_000), Change { one_way: Some(MS(20 + step)), ..Change::default() });
        }
        let mut world = world(&scenario, 1);
        world.add(flow(&scenario, Start::Cold));
        world.run(S(15)).unwrap();
        let share = used(&world, rate, MS(10_500), MS(15_000));
        assert!(share > 0.95, "a step of {step} ms: {share}");
    }
}

#[test]
fn a_handover_with_an_outage_keeps_the_pace_on_the_new_path() {
    let rate = Rate::mbit(100);
    let mut scenario = link(rate, MS(40), 1.0);
    for direction in [&mut scenario.forward, &mut scenario.back] {
        for (at, one_way) in [(10_000, 50), (20_000, 20)] {
            let handover = Change { one_way: Some(MS(one_way)), outage: Some(MS(200)), ..Change::default() };
            change(direction, MS(at), handover);
        }
    }
    let mut world = world(&scenario, 1);
    world.add(flow(&scenario, Start::Cold));
    world.run(S(25)).unwrap();
    for from in [10_800, 20_800] {
        let share = used(&world, rate, MS(from), MS(from + 4_000));
        assert!(share > 0.97, "from {from} ms on: {share}");
    }
    assert_eq!(drops(&world), 0);
}

#[test]
fn jitter_is_neither_a_queue_nor_others_on_the_link() {
    for (jitter, seed) in [(5, 1), (20, 2)] {
        let rate = Rate::mbit(100);
        let mut scenario = link(rate, MS(40), 1.0);
        scenario.forward.jitter = Some(Jitter { half_range: MS(jitter) / 2, shape: JitterShape::Uniform });
        let mut world = world(&scenario, seed);
        world.add(flow(&scenario, Start::Cold));
        world.run(S(20)).unwrap();
        let share = used(&world, rate, MS(5_000), MS(20_000));
        assert!(share > 0.95, "jitter of {jitter} ms, seed {seed}: {share}");
    }
}

#[test]
fn a_fade_of_a_shared_link_does_not_empty_it() {
    let rate = Rate::mbit(200);
    let mut scenario = link(rate, MS(50), 1.0);
    change(&mut scenario.forward, MS(20_000), Change { rate: Some(rate.scale(0.25)), ..Change::default() });
    let mut world = world(&scenario, 1);
    for n in 0..3 {
        world.add(Flow { start: S(n), ..flow(&scenario, Start::Cold) });
    }
    world.run(S(25)).unwrap();
    let share = used(&world, rate.scale(0.25), MS(20_500), MS(25_000));
    assert!(share > 0.95, "{share}");
}

#[test]
fn who_joins_a_busy_link_overflows_no_queue_of_half_a_product_and_has_its_share_seconds_later() {
    for (mbit, rtt, settled, until) in [(200, 50, 25, 35), (150, 540, 40, 50)] {
        let rate = Rate::mbit(mbit);
        let scenario = link(rate, MS(rtt), 0.5);
        for later in [17, 61] {
            let mut world = world(&scenario, 1);
            for n in 0..3 {
                let start = S(n * 10) + MS(later * n);
                world.add(Flow { start, ..flow(&scenario, Start::Cold) });
            }
            world.run(S(until)).unwrap();
            let (jain, shares) = fairness(&world, settled as usize * 100..until as usize * 100);
            let what = format!("{mbit} Mbit/s, {rtt} ms, {later} ms later");
            assert!(jain > 0.9, "{what}: {jain}, {shares:?}");
            let share = used(&world, rate, MS(settled * 1000), MS(until * 1000));
            assert!(share > 0.9, "{what}: {share}");
            // A jump to four fifths of the link overflowed a thousand packets and more.
            assert!(drops(&world) < 100, "{what}: {} packets", drops(&world));
        }
    }
}

#[test]
fn three_flows_become_equal() {
    let rate = Rate::mbit(200);
    let scenario = link(rate, MS(50), 1.0);
    let mut world = world(&scenario, 1);
    for n in 0..3 {
        world.add(Flow { start: S(n * 10), ..flow(&scenario, Start::Cold) });
    }
    world.run(S(45)).unwrap();
    let (jain, shares) = fairness(&world, 2500..4500);
    assert!(jain > 0.97, "{jain}: {shares:?}");
    let share = used(&world, rate, MS(25_000), MS(45_000));
    assert!(share > 0.98, "{share}");
    let share = drops(&world) as f64 / world.forward().counters().offered.packets as f64;
    assert!(share < 0.001, "{share} of the packets overflowed the queue");
}

/// A flow between hosts that send by the millisecond, read times to 100 µs and have two quartzes.
fn live(scenario: &Scenario, start: Start) -> Flow {
    let mut flow = flow(scenario, start);
    flow.tcp.batch = MS(1);
    flow.stamps = Stamps { noise: Duration::from_micros(100), drift: 50e-6, ..Stamps::default() };
    flow
}

#[test]
fn hosts_that_send_in_batches_and_read_rough_times_find_the_rate_and_keep_a_small_queue() {
    for (mbit, rtt, loss, seed) in
        [(150, 540, 0.012, 1), (150, 540, 0.0, 2), (10, 540, 0.012, 3), (1000, 50, 0.0, 4)]
    {
        let rate = Rate::mbit(mbit);
        let mut scenario = link(rate, MS(rtt), 1.0);
        scenario.forward.loss = Share::new(loss).unwrap();
        let mut world = world(&scenario, seed);
        world.add(live(&scenario, Start::Cold));
        let found = Time::ZERO + MS(rtt) * 4;
        world.run(found).unwrap();
        let before = world.forward().counters().delivered.packets;
        let longest = longest_queue(&mut world, found + MS(rtt) * 16);
        let packets = (world.forward().counters().delivered.packets - before) as f64;
        let share = packets * 1500.0 / rate.bytes_in(MS(rtt) * 16).as_f64() / (1.0 - loss);
        let what = format!("{mbit} Mbit/s, {rtt} ms, loss {loss}, seed {seed}");
        assert!(share > 0.975, "{what}: {share}");
        assert!(longest < (MS(rtt) / 14).max(MS(10)), "{what}: a queue of {longest:?}");
        assert_eq!(drops(&world), 0, "{what}");
    }
}

#[test]
fn a_late_first_answer_is_not_taken_for_a_long_path() {
    // Every report of the first flight is lost; what is sent again is answered after three round trips.
    let rate = Rate::mbit(150);
    let mut scenario = link(rate, MS(540), 1.0);
    change(&mut scenario.back, Duration::ZERO, Change { outage: Some(MS(400)), ..Change::default() });
    let mut flow = flow(&scenario, Start::Cold);
    flow.tcp.initial_rto = MS(1200);
    let mut world = world(&scenario, 1);
    world.add(flow);
    let longest = longest_queue(&mut world, S(8));
    assert!(longest < MS(60), "{longest:?}");
    assert_eq!(drops(&world), 0);
    assert!(used(&world, rate, MS(5000), MS(8000)) > 0.97);
}

/// Flows by name and start in seconds, an empty name for our own; their shares in the last 30 of 80 seconds.
fn shares(scenario: &Scenario, flows: &[(&str, u64)]) -> Vec<f64> {
    let mut world = world(scenario, 1);
    for (name, start) in flows {
        let own = flow(scenario, Start::Cold);
        let flow = match *name {
            "" => own,
            name => Flow::new(registry::build(name, &Setup::new(MSS)).unwrap()),
        };
        world.add(Flow { start: S(*start), ..flow });
    }
    world.run(S(80)).unwrap();
    let got: Vec<f64> =
        world.outcomes().iter().map(|outcome| outcome.delivered_in(5000..8000).as_f64()).collect();
    let sum: f64 = got.iter().sum();
    got.iter().map(|bytes| bytes / sum).collect()
}

#[test]
fn senders_that_fill_the_queue_leave_us_a_quarter_and_keep_one() {
    for (other, queue) in [("cubic", 0.25), ("cubic", 1.0), ("cubic", 4.0), ("bbr", 1.0), ("bbr", 4.0)] {
        let scenario = link(Rate::mbit(100), MS(40), queue);
        for flows in [[("", 0), (other, 5)], [(other, 0), ("", 5)]] {
            let shares = shares(&scenario, &flows);
            assert!(shares.iter().all(|share| *share > 0.24), "{flows:?}, queue {queue}: {shares:?}");
        }
    }
}

#[test]
fn flows_of_our_own_kind_never_compete() {
    for (mbit, rtt) in [(200, 50), (150, 540)] {
        let scenario = link(Rate::mbit(mbit), MS(rtt), 1.0);
        let mut world = world(&scenario, 1);
        for n in 0..4 {
            world.add(Flow { start: S(n * 10), ..flow(&scenario, Start::Cold) });
        }
        while world.now() < S(60) {
            let next = world.now() + MS(50);
            world.run(next).unwrap();
            for flow in 0..4 {
                let state = world.sender(flow).unwrap().controller().snapshot();
                assert_ne!(state.phase, "compete", "{mbit} Mbit/s, {rtt} ms, flow {flow} at {}", world.now());
            }
        }
    }
}

/// Sixteen packets at 100 Mbit/s, a hundred at a gigabit: less than the queue we want.
#[test]
fn a_queue_too_short_to_hold_what_we_want_is_not_kept_overflowing() {
    for (mbit, rtt, loss, packets) in [(100, 40, 0.01, 16), (1000, 20, 0.0, 100), (100, 40, 0.05, 24)] {
        let rate = Rate::mbit(mbit);
        let mut scenario = link(rate, MS(rtt), 1.0);
        scenario.forward.loss = Share::new(loss).unwrap();
        scenario.forward.queue = Bytes(1500 * packets);
        let mut world = world(&scenario, 1);
        world.add(flow(&scenario, Start::Cold));
        world.run(S(20)).unwrap();
        let before = drops(&world);
        world.run(S(60)).unwrap();
        let used = used(&world, rate, Duration::from_secs(20), Duration::from_secs(60)) / (1.0 - loss);
        let packets_sent = rate.bytes_in(Duration::from_secs(40)).as_f64() / 1500.0;
        let dropped = (drops(&world) - before) as f64 / packets_sent;
        println!("{mbit} Mbit/s, {packets} packets: {used:.4} used, {dropped:.4} dropped");
        assert!(used > 0.99, "{mbit} Mbit/s: {used} used");
        assert!(dropped < 0.04, "{mbit} Mbit/s: {dropped} dropped");
    }
}
