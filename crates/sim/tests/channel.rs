//! The real channel, TLS included, over simulated links: what it reaches and the traps it must not
//! fall into.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::registry;
use skyhaul_cc::{Bytes, Rate, Setup, Time};
use skyhaul_pep::auth::SecretKey;
use skyhaul_pep::{Config, Tuning};
use skyhaul_sim::scenario::{Dir, Scenario};
use skyhaul_sim::tunnel::{Pair, Plan, Transfer};
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
            controller: Arc::new(move || registry::build(controller, &setup).unwrap()),
            tuning: Tuning { initial_rtt: rtt, ..Tuning::default() },
            memory: Bytes::mib(96),
            seed: Some([seed; 32]),
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

#[test]
fn a_file_crosses_the_geo_link_intact_and_near_the_limit() {
    let scenario = geo();
    let pair = run(&scenario, "rate", vec![Transfer::new(Dir::Forward, 128 * MIB)], Time::from_secs(60));
    let outcome = pair.outcomes()[0];
    let goodput = outcome
        .goodput()
        .unwrap_or_else(|| panic!("not finished: {outcome:?} {:?}", pair.down(Dir::Forward)));
    assert!(!outcome.corrupt);
    assert_eq!(outcome.delivered, 128 * MIB);
    let limit = scenario.limit(Bytes(128 * MIB));
    println!("goodput {goodput}, limit {limit}");
    assert!(goodput.as_f64() > 0.90 * limit.as_f64(), "{goodput} of {limit}");
    assert!(goodput <= limit, "{goodput} of {limit}");
}
