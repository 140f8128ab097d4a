//! The real channel, TLS included, over simulated links: what it reaches and the traps it must not
//! fall into.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::registry;
use skyhaul_cc::{Bytes, Duration, Rate, Setup, Time};
use skyhaul_pep::auth::SecretKey;
use skyhaul_pep::frame::Refusal;
use skyhaul_pep::limits::Split;
use skyhaul_pep::{Config, Tuning};
use skyhaul_sim::scenario::{Change, Dir, Scenario};
use skyhaul_sim::tunnel::{Pair, Plan, Reader, Transfer};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn key() -> SecretKey {
    SecretKey::generate(&ring::rand::SystemRandom::new()).unwrap()
}

/// Both ends with one controller, each told the rate of its direction.
fn plan(scenario: &Scenario, controller: &'static str) -> Plan {
    let (terminal, gateway) = (key(), key());
    let rtt = scenario.rtt();
    let config = |secret: &SecretKey, peer: &SecretKey, rate: Rate, seed: u8| {
        let setup = Setup { link_rate: Some(rate), initial_rtt: rtt, ..Setup::new(Bytes(1500)) };
        Config {
            secret: secret.clone(),
            peers: vec![peer.public()],
            controller: Arc::new(move |_| registry::build(controller, &setup).unwrap()),
            tuning: Tuning { initial_rtt: rtt, ..Tuning::default() },
            memory: Bytes::mib(256),
            seed: [seed; 32],
        }
    };
    Plan {
        terminal: config(&terminal, &gateway, scenario.forward.rate, 1),
        gateway: config(&gateway, &terminal, scenario.back.rate, 2),
        seed: 1,
    }
}

fn run(scenario: &Scenario, controller: &'static str, transfers: Vec<Transfer>, until: Time) -> Pair {
    let mut pair = Pair::new(scenario, plan(scenario, controller), transfers).unwrap();
    pair.run(until);
    pair
}

fn geo() -> Scenario {
    Scenario::find("p1.down-270").unwrap()
}

fn seconds(n: u64) -> Time {
    Time::from_secs(n)
}

/// The file arrived whole and unharmed, and the channel's books agree with those of the QUIC library.
fn assert_intact(pair: &mut Pair) {
    for (outcome, n) in pair.outcomes().to_vec().iter().zip(0..) {
        assert!(
            outcome.finished.is_some(),
            "transfer {n}: {outcome:?}; channel: {:?}",
            pair.down(Dir::Forward)
        );
        assert!(!outcome.corrupt, "transfer {n}");
        assert_eq!(outcome.delivered, outcome.written, "transfer {n}");
    }
    for dir in Dir::ALL {
        let peer = pair.peer(dir).unwrap();
        let stats = pair.tunnel(dir).stats(peer).unwrap();
        assert_eq!(stats.loss_disagreements, 0, "{dir:?}: {stats:?}");
    }
}

#[test]
fn a_file_crosses_the_geo_link_intact_and_near_the_limit() {
    let scenario = geo();
    let mut pair = run(&scenario, "rate", vec![Transfer::new(Dir::Forward, 128 * MIB)], seconds(60));
    assert_intact(&mut pair);
    let goodput = pair.outcomes()[0].goodput().unwrap();
    // Short packet numbers, offsets and connection IDs leave room for 1,443 bytes, less the header of the shim.
    let limit = scenario.limit_of(Dir::Forward, Bytes(128 * MIB), Bytes(1435));
    assert!(goodput.as_f64() > 0.985 * limit.as_f64(), "{goodput} of {limit}");
    assert!(goodput <= limit, "{goodput} of {limit}");
}

#[test]
fn acks_take_less_than_a_tenth_of_the_return_link_and_none_is_dropped() {
    let mut pair = run(&geo(), "rate", vec![Transfer::new(Dir::Forward, 128 * MIB)], seconds(60));
    assert_intact(&mut pair);
    let back = *pair.counters(Dir::Back);
    let used = back.offered.bytes.per(pair.now() - Time::ZERO);
    assert!(used < Rate::mbit(1), "{used}");
    assert_eq!(back.queue_full.packets, 0);
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let scenario = geo();
    let plan = plan(&scenario, "bbr");
    let once = || {
        let plan = Plan { terminal: plan.terminal.clone(), gateway: plan.gateway.clone(), seed: plan.seed };
        let mut pair = Pair::new(&scenario, plan, vec![Transfer::new(Dir::Forward, 16 * MIB)]).unwrap();
        pair.run(seconds(60));
        (*pair.counters(Dir::Forward), *pair.counters(Dir::Back), pair.outcomes()[0].finished)
    };
    assert_eq!(once(), once());
}

#[test]
fn more_than_a_thousand_holes_in_one_stream_do_not_end_the_connection() {
    // Told twice the rate, the sender fills the queue and then loses every second packet.
    let mut scenario = geo();
    scenario.forward.rate = Rate::mbit(75);
    scenario.forward.queue = Bytes(1_000_000);
    let mut plan = plan(&scenario, "rate");
    let setup =
        Setup { link_rate: Some(Rate::mbit(150)), initial_rtt: scenario.rtt(), ..Setup::new(Bytes(1500)) };
    plan.terminal.controller = Arc::new(move |_| registry::build("rate", &setup).unwrap());
    let mut pair = Pair::new(&scenario, plan, vec![Transfer::new(Dir::Forward, 32 * MIB)]).unwrap();
    pair.run(seconds(120));
    assert!(pair.counters(Dir::Forward).queue_full.packets > 1_500, "the trap was not sprung");
    assert_intact(&mut pair);
}

/// Holds one datagram in 400 back until about `behind` later ones have overtaken it.
fn late(behind: u32) -> Pair {
    let mut scenario = geo();
    scenario.forward.loss = skyhaul_cc::Share::ZERO;
    scenario.back.loss = skyhaul_cc::Share::ZERO;
    let packet_time = scenario.forward.rate.time_for(Bytes(1500));
    let mut pair =
        Pair::new(&scenario, plan(&scenario, "rate"), vec![Transfer::new(Dir::Forward, 16 * MIB)]).unwrap();
    pair.meddle(Box::new(move |dir, number| {
        let chosen = dir == Dir::Forward && number > 100 && number % 400 == 0;
        if chosen {
            packet_time * behind
        } else {
            Duration::ZERO
        }
    }));
    pair.run(seconds(60));
    pair
}

#[test]
fn datagrams_later_than_the_duplicate_filter_reaches_are_repaired() {
    // quinn-proto takes whatever is more than 129 numbers late for a duplicate.
    for behind in [114, 139, 400] {
        let mut pair = late(behind);
        assert_intact(&mut pair);
        let peer = pair.peer(Dir::Forward).unwrap();
        let stats = pair.tunnel(Dir::Forward).stats(peer).unwrap();
        // One in 400 is late and sent again; the link itself loses none. 8,000 were judged by the end.
        assert!((15..60).contains(&stats.packets_lost), "{behind}: {stats:?}");
    }
}

#[test]
fn a_second_without_acks_costs_few_needless_packets() {
    let run_with = |blackout: Option<Duration>| {
        let mut scenario = geo();
        let outage = |outage| Change {
            at: Duration::from_secs(5),
            rate: None,
            one_way: None,
            loss: None,
            outage: Some(outage),
            every: None,
        };
        scenario.back.changes = blackout.map(outage).into_iter().collect();
        let mut pair = run(&scenario, "rate", vec![Transfer::new(Dir::Forward, 128 * MIB)], seconds(90));
        assert_intact(&mut pair);
        (pair.counters(Dir::Forward).offered.packets as f64, pair.outcomes()[0].finished.unwrap())
    };
    let (calm_packets, calm_end) = run_with(None);
    let (packets, end) = run_with(Some(Duration::from_secs(1)));
    assert!(packets < calm_packets * 1.05, "{packets} packets instead of {calm_packets}");
    assert!(end - calm_end < Duration::from_secs(3), "{end} instead of {calm_end}");
}

#[test]
fn a_gigabit_over_800_ms_with_loss_is_used() {
    let mut scenario = geo();
    scenario.forward.rate = Rate::mbit(1000);
    scenario.forward.one_way = Duration::from_millis(400);
    scenario.forward.queue = Bytes(25_000_000);
    scenario.back.one_way = Duration::from_millis(400);
    scenario.back.rate = Rate::mbit(50);
    let mut plan = plan(&scenario, "rate");
    // Some of what is sent again is lost again, and everything behind it waits at the far end for three round trips.
    for config in [&mut plan.terminal, &mut plan.gateway] {
        config.tuning.send_window = Bytes::mib(1024);
        config.memory = Bytes::mib(2048);
    }
    let mut pair = Pair::new(&scenario, plan, vec![Transfer::new(Dir::Forward, u64::MAX)]).unwrap();
    pair.run(seconds(4));
    let before = pair.outcomes()[0].delivered;
    pair.run(seconds(8));
    let rate = Bytes(pair.outcomes()[0].delivered - before).per(Duration::from_secs(4));
    let limit = scenario.payload_limit(Dir::Forward, Bytes(1433));
    assert!(!pair.outcomes()[0].corrupt);
    assert!(rate.as_f64() > 0.95 * limit.as_f64(), "{rate} of {limit}; {:?}", pair.down(Dir::Forward));
}

#[test]
fn both_directions_at_their_windows_keep_acknowledging() {
    // With a window smaller than the path and data waiting, quinn-proto alone would send no ACKs.
    let mut scenario = geo();
    scenario.back.rate = Rate::mbit(150);
    let transfers = vec![Transfer::new(Dir::Forward, 2 * MIB), Transfer::new(Dir::Back, 2 * MIB)];
    let mut pair = run(&scenario, "cubic", transfers, seconds(600));
    assert_intact(&mut pair);
    for outcome in pair.outcomes() {
        // CUBIC makes about 0.5 Mbit/s here: 2 MiB in well under two minutes, if nothing ever stalls.
        let took = outcome.finished.unwrap() - outcome.opened.unwrap();
        assert!(took < Duration::from_secs(150), "{took:?}");
    }
}

#[test]
fn an_outage_of_a_minute_is_survived() {
    let mut scenario = geo();
    let outage = Change {
        at: Duration::from_secs(4),
        rate: None,
        one_way: None,
        loss: None,
        outage: Some(Duration::from_secs(60)),
        every: None,
    };
    scenario.forward.changes = vec![outage.clone()];
    scenario.back.changes = vec![outage.clone()];
    let mut pair = run(&scenario, "rate", vec![Transfer::new(Dir::Forward, 96 * MIB)], seconds(200));
    assert_intact(&mut pair);
}

#[test]
fn a_stopped_reader_holds_up_nobody_else_and_memory_stays_bounded() {
    let mut scenario = geo();
    scenario.forward.one_way = Duration::from_millis(50);
    scenario.back.one_way = Duration::from_millis(50);
    let mut plan = plan(&scenario, "rate");
    plan.gateway.memory = Bytes::mib(16);
    let stopped = |n| Transfer {
        reader: Reader::Stopped,
        start: Time::from_millis(n),
        ..Transfer::new(Dir::Forward, u64::MAX)
    };
    let mut transfers: Vec<Transfer> = (0..8).map(|n| stopped(500 * n)).collect();
    transfers.push(Transfer { start: seconds(8), ..Transfer::new(Dir::Forward, 4 * MIB) });
    let mut pair = Pair::new(&scenario, plan, transfers).unwrap();
    pair.run(seconds(60));
    let good = pair.outcomes()[8];
    assert!(good.finished.is_some() && !good.corrupt, "{good:?}");
    assert!(good.finished.unwrap() < seconds(30), "{good:?}");
    // What the budget has for receiving, and the floors.
    let split = Split::of(Bytes::mib(16), Tuning::default().flows as usize);
    let peak = pair.peak_held(Dir::Back);
    assert!(peak <= split.pools + split.floor * 10, "{peak}");
    assert!(peak > split.pools / 10 * 9, "{peak}");
}

#[test]
fn a_refused_destination_is_told_after_one_round_trip() {
    let transfer =
        Transfer { reader: Reader::Refuses(Refusal::Refused), ..Transfer::new(Dir::Forward, 10 * MIB) };
    let pair = run(&geo(), "rate", vec![transfer], seconds(30));
    let outcome = pair.outcomes()[0];
    assert_eq!(outcome.refused, Some(Refusal::Refused));
    let took = pair.now() - outcome.opened.unwrap();
    assert!(took < Duration::from_millis(1700), "{took:?}");
}

#[test]
fn two_hundred_flows_in_both_directions_arrive_intact() {
    let mut transfers = Vec::new();
    for n in 0..200u64 {
        let data = if n % 4 == 0 { Dir::Back } else { Dir::Forward };
        let bytes = [0, 1, 1_000, 70_000, 300_000][n as usize % 5] + n;
        let write = [1, 700, 1_400, 65_536][n as usize % 4].max(bytes as usize / 500);
        transfers.push(Transfer { start: Time::from_millis(20 * n), write, ..Transfer::new(data, bytes) });
    }
    let mut pair = run(&geo(), "rate", transfers, seconds(120));
    assert_intact(&mut pair);
    for dir in Dir::ALL {
        let held = pair.tunnel(dir).held();
        assert_eq!(held, (Bytes::ZERO, Bytes::ZERO), "{dir:?}");
    }
}

#[test]
fn a_small_request_beside_a_bulk_upload_takes_little_more_than_its_own_time() {
    let transfers = vec![
        Transfer::new(Dir::Forward, u64::MAX),
        Transfer { start: seconds(6), ..Transfer::new(Dir::Forward, 10_000) },
    ];
    let mut scenario = geo();
    scenario.forward.loss = skyhaul_cc::Share::ZERO;
    let pair = run(&scenario, "rate", transfers, seconds(10));
    let small = pair.outcomes()[1];
    let took = small.finished.unwrap_or(Time::MAX) - small.opened.unwrap();
    assert!(took < Duration::from_millis(300), "{took:?}");
}

#[test]
fn an_unknown_key_is_refused_and_both_ends_say_so() {
    let scenario = geo();
    let mut plan = plan(&scenario, "bbr");
    plan.terminal.secret = key();
    let mut pair = Pair::new(&scenario, plan, vec![Transfer::new(Dir::Forward, 1)]).unwrap();
    pair.run(seconds(10));
    assert!(pair.up(Dir::Forward).is_none() && pair.up(Dir::Back).is_none());
    for dir in Dir::ALL {
        assert!(pair.down(dir).is_some_and(|why| why.contains("key")), "{dir:?}: {:?}", pair.down(dir));
    }
}

#[test]
fn a_gateway_with_another_key_is_refused() {
    let scenario = geo();
    let mut plan = plan(&scenario, "bbr");
    plan.gateway.secret = key();
    let mut pair = Pair::new(&scenario, plan, vec![Transfer::new(Dir::Forward, 1)]).unwrap();
    pair.run(seconds(10));
    for dir in Dir::ALL {
        assert!(pair.down(dir).is_some_and(|why| why.contains("key")), "{dir:?}: {:?}", pair.down(dir));
    }
}

/// Number of the terminal's datagram that ends the handshake and has its hello behind that.
const HELLO: u64 = 1;

#[test]
fn a_flow_that_overtakes_the_hello_waits_for_it() {
    let mut scenario = geo();
    scenario.forward.loss = skyhaul_cc::Share::ZERO;
    let transfers = vec![Transfer::new(Dir::Forward, 100_000), Transfer::new(Dir::Forward, 1)];
    let mut pair = Pair::new(&scenario, plan(&scenario, "rate"), transfers).unwrap();
    // It is lost. The end of the handshake is repeated first, the gateway's hello comes, flows are opened,
    // and the terminal's own hello is repeated behind them.
    pair.meddle(Box::new(|dir, number| {
        if dir == Dir::Forward && number == HELLO {
            Duration::from_secs(86_400)
        } else {
            Duration::ZERO
        }
    }));
    pair.run(seconds(30));
    assert_intact(&mut pair);
}

#[test]
fn a_handshake_that_never_ends_is_given_up() {
    let scenario = geo();
    let mut pair =
        Pair::new(&scenario, plan(&scenario, "rate"), vec![Transfer::new(Dir::Forward, 1)]).unwrap();
    // Nothing of the terminal's but its very first datagrams arrives within the day.
    pair.meddle(Box::new(|dir, number| {
        if dir == Dir::Forward && number > 0 {
            Duration::from_secs(86_400)
        } else {
            Duration::ZERO
        }
    }));
    pair.run(seconds(100));
    assert!(pair.down(Dir::Back).is_some_and(|why| why.contains("handshake")), "{:?}", pair.down(Dir::Back));
}
