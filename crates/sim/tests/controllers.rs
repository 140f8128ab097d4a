//! Controllers in the real channel, TLS included, over the links of paper 001: what a file reaches.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::{registry, Bytes, Duration, Rate, Setup, Time};
use skyhaul_pep::auth::SecretKey;
use skyhaul_pep::{Config, Tuning};
use skyhaul_sim::scenario::{Dir, Scenario};
use skyhaul_sim::tunnel::{Pair, Plan, Transfer};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn key() -> SecretKey {
    SecretKey::generate(&ring::rand::SystemRandom::new()).unwrap()
}

/// Paper 001's downlink at another distance and rate.
fn link(one_way: u64, rate: u64) -> Scenario {
    let mut scenario = Scenario::find("p1.down-270").unwrap();
    for direction in [&mut scenario.forward, &mut scenario.back] {
        direction.one_way = Duration::from_millis(one_way);
    }
    scenario.forward.rate = Rate::mbit(rate);
    scenario
}

/// Goodput of one file over the limit for files of its size, from a cold channel.
fn share_of_limit(scenario: &Scenario, controller: &'static str, mib: u64) -> f64 {
    let (terminal, gateway) = (key(), key());
    let config = |secret: &SecretKey, peer: &SecretKey, rate: Rate, seed: u8| {
        let setup = Setup { link_rate: Some(rate), initial_rtt: scenario.rtt(), ..Setup::new(Bytes(1500)) };
        Config {
            secret: secret.clone(),
            peers: vec![peer.public()],
            controller: Arc::new(move |_| registry::build(controller, &setup).unwrap()),
            tuning: Tuning { initial_rtt: scenario.rtt(), ..Tuning::default() },
            memory: Bytes::mib(256),
            seed: [seed; 32],
        }
    };
    let plan = Plan {
        terminal: config(&terminal, &gateway, scenario.forward.rate, 1),
        gateway: config(&gateway, &terminal, scenario.back.rate, 2),
        seed: 1,
    };
    let mut pair = Pair::new(scenario, plan, vec![Transfer::new(Dir::Forward, mib * MIB)]).unwrap();
    pair.run(Time::from_secs(200));
    let outcome = pair.outcomes()[0];
    assert!(!outcome.corrupt);
    let goodput = outcome.goodput().unwrap_or_else(|| panic!("{controller} never finished: {outcome:?}"));
    goodput.as_f64() / scenario.limit(Bytes(mib * MIB)).as_f64()
}

#[test]
fn the_given_rate_brings_a_file_close_to_the_limit_at_every_distance() {
    for (one_way, rate, mib) in [(270, 150, 256), (400, 150, 256), (270, 10, 32)] {
        let share = share_of_limit(&link(one_way, rate), "rate", mib);
        println!("rate, {one_way} ms, {rate} Mbit/s, {mib} MiB: {share:.3}");
        assert!(share > 0.9, "{one_way} ms, {rate} Mbit/s: {share}");
    }
}

#[test]
fn bbr_finds_the_rate_by_itself_at_every_distance() {
    // From cold it takes 6 to 12 s to find 150 Mbit/s, of the 16 s that 256 MiB need at least.
    for (one_way, rate, mib, least) in [(270, 150, 256, 0.6), (400, 150, 256, 0.5), (270, 10, 32, 0.8)] {
        let share = share_of_limit(&link(one_way, rate), "bbr", mib);
        println!("bbr, {one_way} ms, {rate} Mbit/s, {mib} MiB: {share:.3}");
        assert!(share > least, "{one_way} ms, {rate} Mbit/s: {share}");
    }
}
