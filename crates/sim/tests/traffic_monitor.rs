//! BoostTCP's traffic monitor and learning state machine against the simulator's truth (paper 000, 3.4).

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::controllers::boost::{Boost, Moments, PathRecord, TrafficMonitor, Variant};
use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::{Ack, Controller, Judgement, Loss, Sent, Setup, Snapshot};
use skyhaul_sim::scenario::{Dir, Jitter, Scenario};
use skyhaul_sim::tcp::AckOptions;
use skyhaul_sim::trace::{Note, Observer};
use skyhaul_sim::world::{Flow, World};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const MSS: Bytes = Bytes(1448);

/// A fixed window at a fixed pace that watches.
#[derive(Clone, Debug)]
struct Watching(Bytes, Rate, TrafficMonitor);

impl Controller for Watching {
    fn name(&self) -> &'static str {
        "watching"
    }
    fn on_sent(&mut self, _: &Sent) {}
    fn on_ack(&mut self, ack: &Ack) {
        self.2.on_ack(ack);
    }
    fn on_loss(&mut self, loss: &Loss) {
        self.2.on_loss(loss, Judgement::Random);
    }
    fn cwnd(&self) -> Bytes {
        self.0
    }
    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.1)
    }
    fn path(&self) -> Option<PathRecord> {
        self.2.record()
    }
    fn snapshot(&self) -> Snapshot {
        Snapshot { cwnd: self.0, ssthresh: None, pacing_rate: Some(self.1), phase: "watching" }
    }
    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

/// What really happened to packets that were sent once.
#[derive(Debug, Default)]
struct Truth {
    sent: BTreeMap<u64, Time>,
    one_way: Vec<f64>,
    arrivals: Vec<f64>,
    newest: Time,
    late: Vec<f64>,
    transmissions: u64,
    dropped: u64,
}

#[derive(Debug)]
struct Seer(Arc<Mutex<Truth>>);

impl Observer for Seer {
    fn note(&mut self, at: Time, _: usize, note: &Note) {
        let mut truth = self.0.lock().unwrap();
        match note {
            Note::Sent { segment, dropped, .. } => {
                truth.transmissions += 1;
                truth.dropped += u64::from(dropped.is_some());
                truth.sent.insert(segment.seq, at);
            }
            Note::Arrived { seq, .. } => {
                let sent = truth.sent[seq];
                truth.one_way.push(at.since(sent).as_secs_f64());
                truth.arrivals.push(at.as_secs_f64());
                if sent < truth.newest {
                    let by = truth.newest.since(sent).as_secs_f64();
                    truth.late.push(by);
                }
                truth.newest = truth.newest.max(sent);
            }
            _ => {}
        }
    }
}

fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, square.sqrt())
}

fn path(mbit: u64, rtt: u64) -> Scenario {
    let mut scenario = Scenario::find("lan.gigabit-20").unwrap();
    for direction in [&mut scenario.forward, &mut scenario.back] {
        direction.rate = Rate::mbit(mbit);
        direction.one_way = Duration::from_millis(rtt) / 2;
        direction.queue = direction.rate.bdp(Duration::from_millis(rtt));
    }
    scenario
}

/// The record after 100 round trips of 100 ms, and the truth. 300 packets in flight at 36 Mbit/s at most.
fn watch(scenario: &Scenario, inspection: Duration) -> (PathRecord, Truth) {
    let truth = Arc::new(Mutex::new(Truth::default()));
    let mut world = World::on(scenario, Dir::Forward, 7);
    world.observe(Box::new(Seer(Arc::clone(&truth))));
    let acks = AckOptions { every: 1, inspection, ..AckOptions::default() };
    let controller = Watching(MSS * 1000, Rate::mbit(30), TrafficMonitor::new());
    world.add(Flow { acks, ..Flow::new(Box::new(controller)) });
    world.run(Time::from_secs(10)).unwrap();
    let record = world.sender(0).unwrap().controller().path().unwrap();
    drop(world.take_observer());
    (record, Arc::try_unwrap(truth).unwrap().into_inner().unwrap())
}

fn near(what: &str, found: f64, true_value: f64) {
    println!("{what}: {found:.6}, in truth {true_value:.6}");
    assert!((found / true_value - 1.0).abs() < 0.1, "{what}: {found}, in truth {true_value}");
}

fn compare(what: &str, found: Moments, values: &[f64], offset: f64) {
    let (mean, deviation) = moments(values);
    near(what, found.mean(), mean + offset);
    near(&format!("{what}, deviation"), found.deviation(), deviation);
}

fn intervals(truth: &Truth) -> Vec<f64> {
    truth.arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn every_feature_of_a_jittery_path_is_within_a_tenth_of_the_truth_after_100_round_trips() {
    let mut scenario = path(100, 100);
    scenario.forward.loss = Share::new(0.01).unwrap();
    scenario.forward.jitter =
        Some(Jitter { half_range: Duration::from_millis(2), shape: Default::default() });
    scenario.forward.reorder = true;
    let (record, truth) = watch(&scenario, Duration::ZERO);
    compare("round trip", record.round_trip, &truth.one_way, 0.05);
    compare("ACK interval", record.ack_interval, &intervals(&truth), 0.0);
    near("reordered", record.reordered.value(), truth.late.len() as f64 / truth.one_way.len() as f64);
    compare("reordered by", record.reordered_by, &truth.late, 0.0);
    near("random loss", record.random_loss.value(), truth.dropped as f64 / truth.transmissions as f64);
    near("bandwidth", record.bandwidth.as_mbit(), 30.0);
    near("least round trip", record.least.as_secs_f64(), 0.098);
}

#[test]
fn a_middlebox_that_holds_packets_is_measured_and_none_is_seen_where_none_is() {
    let (record, truth) = watch(&path(100, 100), Duration::from_millis(10));
    near("hold", record.hold.mean(), 0.01);
    compare("round trip", record.round_trip, &truth.one_way, 0.05);
    compare("ACK interval", record.ack_interval, &intervals(&truth), 0.0);
    let (record, _) = watch(&path(100, 100), Duration::ZERO);
    assert_eq!(record.hold, Moments::default());
}

/// Seconds until 0.9 of the link's payload arrive in half a round trip, and what was learnt by 10 s.
fn time_to_rate(scenario: &Scenario, controller: Boost) -> (f64, PathRecord) {
    let mut world = World::on(scenario, Dir::Forward, 1);
    world.bins = scenario.rtt() / 2;
    world.add(Flow::new(Box::new(controller)));
    world.run(Time::from_secs(10)).unwrap();
    let outcome = world.outcomes().remove(0);
    let wanted = scenario.forward.rate.bytes_in(world.bins).as_f64() * (1448.0 / 1500.0) * 0.9;
    let bin = outcome.bins.iter().position(|bytes| bytes.as_f64() >= wanted).unwrap();
    ((bin + 1) as f64 * world.bins.as_secs_f64(), world.sender(0).unwrap().controller().path().unwrap())
}

#[test]
fn a_second_connection_reaches_the_rate_in_half_the_time_of_the_first() {
    for (mbit, rtt, loss) in [(1000, 100, 5e-4), (150, 540, 0.012), (100, 50, 0.0)] {
        let mut scenario = path(mbit, rtt);
        scenario.forward.loss = Share::new(loss).unwrap();
        let new = || Boost::new(&Setup::new(MSS), Variant::Discriminating);
        let (first, record) = time_to_rate(&scenario, new());
        let (second, _) = time_to_rate(&scenario, new().knowing(&record));
        println!("{mbit} Mbit/s, {rtt} ms: first {first} s, second {second} s");
        assert!(second <= first / 2.0, "{mbit} Mbit/s, {rtt} ms: {second} s after {first} s");
    }
}

#[test]
fn a_path_that_has_changed_is_found_anew() {
    let (_, record) = time_to_rate(&path(1000, 100), Boost::new(&Setup::new(MSS), Variant::Discriminating));
    let known = Boost::new(&Setup::new(MSS), Variant::Discriminating).knowing(&record);
    let (longer, _) = time_to_rate(&path(100, 200), known.clone());
    assert!(longer < 5.0, "a longer and slower path takes {longer} s");
    let (slower, _) = time_to_rate(&path(500, 100), known);
    assert!(slower < 5.0, "a path of half the rate takes {slower} s");
}
