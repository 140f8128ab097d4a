//! Any text is refused in one line or becomes a scenario that carries packets.

use skyhaul_cc::units::{Bytes, Time};
use skyhaul_sim::link::Fate;
use skyhaul_sim::scenario::{Dir, Scenario};

/// One input.
pub fn run(text: &str) {
    let scenario = match Scenario::parse(text, "fuzz.toml") {
        Ok(scenario) => scenario,
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("fuzz.toml: ") && !error.contains('\n'), "{error:?}");
            return;
        }
    };
    for dir in Dir::ALL {
        let mut link = scenario.link(dir, 1);
        for n in 0..50u64 {
            let now = Time::from_millis(n * n);
            if let Fate::Delivered { at } = link.offer(now, Bytes(40 + 30 * n)) {
                assert!(at >= now);
            }
            assert!(link.queued(now) <= scenario.direction(dir).queue);
        }
        assert!(scenario.payload_limit(dir, Bytes(1433)) <= scenario.direction(dir).rate);
    }
    scenario.limit(scenario.workload.bytes);
    let cells = scenario.cells();
    assert_eq!(cells.len(), scenario.sweep.len());
    for cell in cells.iter().take(20) {
        assert!(cell.scenario.tcp.packet() <= cell.scenario.direction(scenario.data()).queue);
        assert_eq!(cell.scenario.rtt(), cell.rtt);
        assert!(scenario.flow_plans().len() <= 1000);
    }
}
