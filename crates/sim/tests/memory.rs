//! Path memory: what a connection leaves, what the next one makes of it, and what it costs when it is wrong.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::{registry, Setup, Time};
use skyhaul_pep::Way;
use skyhaul_sim::scenario::{Dir, Scenario};
use skyhaul_sim::tunnel::{Pair, Plan, Transfer};
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;

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
            let setup = Setup::new(skyhaul_cc::Bytes(1500));
            // Their phases have different names.
            registry::build(if way.peer.is_some() { "bbr" } else { "newreno" }, &setup).unwrap()
        });
    }
    let both = vec![Transfer::new(Dir::Forward, MIB), Transfer::new(Dir::Back, MIB)];
    let mut pair = Pair::new(&scenario, plan, both).unwrap();
    pair.run(Time::from_secs(3));
    let bbr = registry::build("bbr", &Setup::new(skyhaul_cc::Bytes(1500))).unwrap();
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
