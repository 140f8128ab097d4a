//! Flows that share one channel: how long small ones take beside large ones, and who gets how much.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::{Bytes, Duration, Rate, Share, Time};
use skyhaul_pep::frame::Class;
use skyhaul_sim::rng::Stream;
use skyhaul_sim::scenario::{Dir, Scenario};
use skyhaul_sim::stats::quantile;
use skyhaul_sim::tunnel::{Pair, Plan, Reader, Transfer};

/// What a small page or API call asks for.
const REQUEST: u64 = 10_000;

fn scenario(id: &str, loss: Option<f64>) -> Scenario {
    let mut scenario = Scenario::find(id).unwrap();
    if let Some(loss) = loss {
        scenario.forward.loss = Share::new(loss).unwrap();
        scenario.back.loss = Share::new(loss).unwrap();
    }
    scenario
}

fn endless(data: Dir, class: Class) -> Transfer {
    Transfer { class, ..Transfer::new(data, u64::MAX) }
}

/// What requests beside uploads took, in round trips.
struct Requests {
    took: Vec<f64>,
    upload: Rate,
}

impl Requests {
    fn p(&self, share: f64) -> f64 {
        quantile(&self.took, share).unwrap()
    }
}

/// `requests` of [`REQUEST`] bytes at random times in `span`, which begins at `from`, beside `uploads`.
fn requests(
    scenario: &Scenario,
    controller: &str,
    uploads: &[Transfer],
    requests: usize,
    (from, span): (Time, Duration),
    seed: u64,
) -> Requests {
    let data = scenario.data();
    let mut chance = Stream::new(seed, "requests");
    let mut transfers = uploads.to_vec();
    transfers.extend((0..requests).map(|_| {
        let start = from + span.mul_f64(chance.unit());
        Transfer { start, ..Transfer::new(data, REQUEST) }
    }));
    let plan = Plan::new(scenario, controller, seed).unwrap();
    let mut pair = Pair::new(scenario, plan, transfers).unwrap();
    pair.run(from);
    let before = pair.outcomes()[0].delivered;
    pair.run(from + span);
    let uploaded = pair.outcomes()[0].delivered - before;
    pair.run(from + span + Duration::from_secs(5));
    for dir in Dir::ALL {
        assert_eq!(pair.down(dir), None, "{dir:?} {controller}");
    }
    let rtt = scenario.rtt().as_secs_f64();
    let took = pair.outcomes()[uploads.len()..].iter().map(|outcome| {
        assert!(!outcome.corrupt);
        outcome.finished.map_or(f64::INFINITY, |end| (end - outcome.opened.unwrap()).as_secs_f64() / rtt)
    });
    Requests { took: took.collect(), upload: Bytes(uploaded).per(span) }
}

fn seconds(n: u64) -> Time {
    Time::from_secs(n)
}

/// Bytes each of `transfers` has delivered between two moments.
fn delivered(
    scenario: &Scenario,
    plan: Plan,
    transfers: Vec<Transfer>,
    (from, until): (Time, Time),
) -> (Vec<f64>, Pair) {
    let mut pair = Pair::new(scenario, plan, transfers).unwrap();
    pair.run(from);
    let before: Vec<u64> = pair.outcomes().iter().map(|outcome| outcome.delivered).collect();
    pair.run(until);
    assert!(pair.outcomes().iter().all(|outcome| !outcome.corrupt));
    let after = pair.outcomes().iter().zip(before);
    (after.map(|(outcome, before)| (outcome.delivered - before) as f64).collect(), pair)
}

fn shares(bytes: &[f64]) -> Vec<f64> {
    let total: f64 = bytes.iter().sum();
    bytes.iter().map(|bytes| bytes / total).collect()
}

/// Requests begin when even a cold start has long found the rate.
const SETTLED: (Time, Duration) = (Time::from_secs(12), Duration::from_secs(12));

#[test]
fn requests_beside_an_upload_take_little_more_than_their_own_way() {
    for id in ["p1.up-270", "p1.down-270"] {
        for controller in ["rate", "skyhaul"] {
            let scenario = scenario(id, Some(0.0));
            let upload = [endless(scenario.data(), Class::Normal)];
            let all = requests(&scenario, controller, &upload, 120, SETTLED, 1);
            // Half a round trip is the way; ten packets take 12 ms at 10 Mbit/s; the rest is the queue that
            // the controller keeps.
            assert!(all.p(0.95) <= 1.0, "{id} {controller}: p95 {:.2} RTT", all.p(0.95));
            let limit = scenario.direction(scenario.data()).rate.as_f64();
            assert!(all.upload.as_f64() > 0.8 * limit, "{id} {controller}: {} beside them", all.upload);
        }
    }
}

#[test]
fn a_lost_packet_of_a_request_is_repaired_beside_an_upload_and_costs_no_round_trip() {
    for id in ["p1.up-270", "p1.down-270"] {
        let scenario = scenario(id, Some(0.012));
        let upload = [endless(scenario.data(), Class::Normal)];
        let all = requests(&scenario, "rate", &upload, 120, SETTLED, 1);
        // Every tenth request loses a packet.
        assert!(all.p(0.95) <= 1.0, "{id}: p95 {:.2} RTT", all.p(0.95));
        assert!(all.p(1.0) <= 1.8, "{id}: longest {:.2} RTT", all.p(1.0));
        let limit = scenario.direction(scenario.data()).rate.as_f64();
        assert!(all.upload.as_f64() > 0.8 * limit, "{id}: {} beside them", all.upload);
    }
}

#[test]
fn requests_are_quick_beside_a_busy_flow_of_every_class() {
    let scenario = scenario("p1.up-270", Some(0.0));
    let uploads = Class::ALL.map(|class| endless(scenario.data(), class));
    let all = requests(&scenario, "rate", &uploads, 120, SETTLED, 1);
    // The other classes' budgets of one round and what lies ahead of the pacer: 0.12 s and 0.03 s.
    assert!(all.p(0.95) <= 0.9, "p95 {:.2} RTT", all.p(0.95));
}

#[test]
fn flows_of_a_class_get_equal_shares_also_where_the_send_window_is_the_limit() {
    let scenario = scenario("p1.up-270", Some(0.012));
    let three = vec![endless(scenario.data(), Class::Bulk); 3];
    for window in [Bytes::mib(64), Bytes::kib(512)] {
        let mut plan = Plan::new(&scenario, "rate", 1).unwrap();
        for config in [&mut plan.terminal, &mut plan.gateway] {
            config.tuning.send_window = window;
        }
        let (bytes, _) = delivered(&scenario, plan, three.clone(), (seconds(4), seconds(44)));
        for share in shares(&bytes) {
            assert!((share * 3.0 - 1.0).abs() < 0.05, "{window}: {:.3?}", shares(&bytes));
        }
    }
}

#[test]
fn background_gets_out_of_the_way_and_takes_what_is_left() {
    let scenario = scenario("p1.up-270", Some(0.0));
    let data = scenario.data();
    let normal = Transfer { start: seconds(6), ..Transfer::new(data, 20_000_000) };
    let both = vec![endless(data, Class::Background), normal];
    let plan = Plan::new(&scenario, "rate", 1).unwrap();
    let mut pair = Pair::new(&scenario, plan, both).unwrap();
    let mut rates = Vec::new();
    for second in [5, 8, 20, 30, 38] {
        let before = pair.outcomes()[0].delivered;
        let from = pair.now();
        pair.run(seconds(second));
        rates.push(Bytes(pair.outcomes()[0].delivered - before).per(pair.now() - from).as_mbit());
    }
    assert!(rates[2] < 0.07 * 9.4, "beside normal: {rates:.2?} Mbit/s");
    assert!(rates[2] > 0.04 * 9.4, "starved: {rates:.2?} Mbit/s");
    assert!(pair.outcomes()[1].finished.unwrap() < seconds(26), "{:?}", pair.outcomes()[1]);
    assert!(rates[4] > 0.9 * 9.4, "alone: {rates:.2?} Mbit/s");
}

#[test]
fn a_slow_reader_gets_what_it_reads_and_the_others_the_rest() {
    let scenario = scenario("p1.up-270", Some(0.0));
    let data = scenario.data();
    let slow = Transfer { reader: Reader::Paced(Rate::kbit(500)), ..endless(data, Class::Normal) };
    let uploads = [endless(data, Class::Normal), slow];
    let mut plan = Plan::new(&scenario, "rate", 1).unwrap();
    for config in [&mut plan.terminal, &mut plan.gateway] {
        config.memory = Bytes::mib(22);
    }
    // Six sixteenths of it, 8 MiB, less what the other flow needs are full after 15 s.
    let (bytes, mut pair) = delivered(&scenario, plan, uploads.to_vec(), (seconds(20), seconds(40)));
    let rate = |n: usize| Bytes(bytes[n] as u64).per(Duration::from_secs(20)).as_mbit();
    assert!((rate(1) - 0.5).abs() < 0.03, "{:.2} Mbit/s", rate(1));
    assert!(rate(0) > 8.5, "{:.2} Mbit/s beside {:.2}", rate(0), rate(1));
    let receiver = if data == Dir::Forward { Dir::Back } else { Dir::Forward };
    assert!(pair.tunnel(receiver).held().0 > Bytes::mib(4), "{}", pair.tunnel(receiver).held().0);
    let all = requests(&scenario, "rate", &uploads, 120, SETTLED, 1);
    assert!(all.p(0.95) <= 0.9, "p95 {:.2} RTT", all.p(0.95));
}

/// The figures of docs/operator.md.
#[test]
#[ignore = "a table for people: minutes"]
fn table_of_requests() {
    for id in ["p1.up-270", "p1.down-270"] {
        for controller in ["rate", "skyhaul", "bbr"] {
            for loss in [0.0, 0.012] {
                let scenario = scenario(id, Some(loss));
                let data = scenario.data();
                let classes = Class::ALL.map(|class| endless(data, class)).to_vec();
                for (what, uploads) in
                    [("1", classes[1..2].to_vec()), ("20", vec![classes[1]; 20]), ("classes", classes)]
                {
                    let all = requests(
                        &scenario,
                        controller,
                        &uploads,
                        150,
                        (seconds(12), Duration::from_secs(20)),
                        1,
                    );
                    println!(
                        "{id:12} {controller:8} loss {loss:5} beside {what:7}: p50 {:.2} p95 {:.2} p99 {:.2} RTT, upload {}",
                        all.p(0.5),
                        all.p(0.95),
                        all.p(0.99),
                        all.upload
                    );
                }
            }
        }
    }
}
