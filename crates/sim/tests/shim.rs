//! The datagram shim through the real channel: what it costs, what it tells, and that it can be left out.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::{Bytes, Duration, Rate, Time};
use skyhaul_pep::ChannelStats;
use skyhaul_sim::scenario::{Dir, Scenario};
use skyhaul_sim::tunnel::{Pair, Plan, Transfer};

const MIB: u64 = 1 << 20;

fn geo() -> Scenario {
    Scenario::find("p1.down-270").unwrap()
}

/// A file through the channel; `shims` says which ends want headers.
fn run(scenario: &Scenario, contender: &str, mib: u64, shims: [bool; 2]) -> Pair {
    let mut plan = Plan::new(scenario, contender, 1).unwrap();
    (plan.terminal.tuning.shim, plan.gateway.tuning.shim) = (shims[0], shims[1]);
    let mut pair = Pair::new(scenario, plan, vec![Transfer::new(Dir::Forward, mib * MIB)]).unwrap();
    pair.run(Time::from_secs(120));
    let outcome = pair.outcomes()[0];
    assert!(outcome.finished.is_some() && !outcome.corrupt, "{outcome:?}");
    pair
}

fn stats(pair: &mut Pair, dir: Dir) -> ChannelStats {
    let peer = pair.peer(dir).unwrap();
    pair.tunnel(dir).stats(peer).unwrap()
}

fn time(pair: &Pair) -> Duration {
    let outcome = pair.outcomes()[0];
    outcome.finished.unwrap() - outcome.opened.unwrap()
}

#[test]
fn the_far_end_tells_the_loss_that_the_link_has() {
    let mut pair = run(&geo(), "rate", 64, [true, true]);
    let path = stats(&mut pair, Dir::Forward).path.unwrap();
    let link = *pair.counters(Dir::Forward);
    let lost = link.random_loss.packets as f64 / link.offered.packets as f64;
    assert!((path.loss.value() - lost).abs() < 0.001, "{path:?}, link {lost}");
    assert_eq!((path.reordered.value(), path.refused), (0.0, 0));
    // The last round trip's reports are under way when the file is there.
    assert!(path.told * 10 > link.offered.packets * 9, "{path:?}, {link:?}");
    assert_eq!(stats(&mut pair, Dir::Forward).loss_disagreements, 0);
}

#[test]
fn reports_take_less_than_half_a_percent_of_a_return_link_of_10_mbit() {
    let used = |shims| {
        let pair = run(&geo(), "rate", 128, shims);
        pair.counters(Dir::Back).offered.bytes.per(time(&pair))
    };
    let (with, without) = (used([true, true]), used([false, false]));
    let cost = with.as_f64() - without.as_f64();
    assert!(cost < 0.005 * Rate::mbit(10).as_f64(), "{with} with reports, {without} without");
}

#[test]
fn one_end_without_a_shim_makes_both_send_plain_quic() {
    for shims in [[true, false], [false, true], [false, false]] {
        let mut pair = run(&geo(), "rate", 4, shims);
        for dir in Dir::ALL {
            assert_eq!(stats(&mut pair, dir).path, None, "{shims:?}");
        }
    }
}

#[test]
fn a_full_datagram_with_its_header_fits_the_packet() {
    // A link drops nothing for its size here, so look at the sizes themselves.
    let pair = run(&geo(), "rate", 16, [true, true]);
    let sent = *pair.counters(Dir::Forward);
    let mean = sent.offered.bytes.as_f64() / sent.offered.packets as f64;
    assert!((1_480.0..=1_500.0).contains(&mean), "{mean}");
}

#[test]
fn with_receive_times_a_cold_start_fills_the_link_from_the_third_round_trip_on() {
    let scenario = geo();
    let pair = run(&scenario, "skyhaul", 128, [true, true]);
    let floor = scenario.limit(Bytes(128 * MIB)).time_for(Bytes(128 * MIB));
    // A round trip and a bit for the start, as much for whatever repair leaves of the end.
    let most = floor + scenario.rtt().mul_f64(2.5);
    assert!(time(&pair) < most, "{:?}, floor {floor:?}", time(&pair));
    assert_eq!(pair.counters(Dir::Forward).queue_full.packets, 0);
}

#[test]
fn told_the_rate_it_fills_the_link_from_the_first_packet_on() {
    let scenario = geo();
    let pair = run(&scenario, "skyhaul/known", 128, [true, true]);
    let floor = scenario.limit(Bytes(128 * MIB)).time_for(Bytes(128 * MIB));
    let most = floor + scenario.rtt().mul_f64(1.0);
    assert!(time(&pair) < most, "{:?}, floor {floor:?}", time(&pair));
}
