//! Packets of TCP against arithmetic: what must come out to the nanosecond, and what must never happen.

use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::{registry, Ack, Controller, Loss, Sent, Setup, Snapshot};
use skyhaul_sim::link::{Cause, Link};
use skyhaul_sim::rng;
use skyhaul_sim::scenario::{Change, Direction, GilbertElliott, Jitter, JitterShape};
use skyhaul_sim::stats;
use skyhaul_sim::tcp::{AckOptions, Pacing, Recovery, SackBlocks, TcpOptions};
use skyhaul_sim::trace::{Note, Observer};
use skyhaul_sim::world::{Flow, Outcome, World, Writes};

const MSS: Bytes = Bytes(1448);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// 100 Mbit/s, 50 ms, room for everything, nothing lost: a full packet takes 120 µs.
fn direction() -> Direction {
    Direction::clean(Rate::mbit(100), ms(50))
}

fn lossy(loss: f64) -> Direction {
    Direction { loss: Share::new(loss).expect("a share"), ..direction() }
}

fn world(forward: &Direction, seed: u64) -> World {
    let link = |direction: &Direction, name| Link::new(direction, rng::derive(seed, name));
    World::new(link(forward, "forward"), link(&direction(), "back"), seed)
}

fn controller(name: &str) -> Box<dyn Controller> {
    let setup = Setup { link_rate: Some(Rate::mbit(96)), ..Setup::new(MSS) };
    registry::build(name, &setup).expect("a known name")
}

/// A window that never changes.
#[derive(Clone, Debug)]
struct Fixed(Bytes, Option<Rate>);

impl Controller for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }
    fn on_sent(&mut self, _: &Sent) {}
    fn on_ack(&mut self, _: &Ack) {}
    fn on_loss(&mut self, _: &Loss) {}
    fn cwnd(&self) -> Bytes {
        self.0
    }
    fn pacing_rate(&self) -> Option<Rate> {
        self.1
    }
    fn snapshot(&self) -> Snapshot {
        Snapshot { cwnd: self.0, ssthresh: None, pacing_rate: self.1, phase: "fixed" }
    }
    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

/// `segments` in flight, sent in bursts.
fn fixed(segments: u64) -> Flow {
    let tcp = TcpOptions { pacing: Pacing::Never, ..TcpOptions::default() };
    Flow { tcp, ..Flow::new(Box::new(Fixed(MSS * segments, None))) }
}

fn run(forward: &Direction, flow: Flow, seed: u64, until: u64) -> Outcome {
    let mut world = world(forward, seed);
    world.add(flow);
    world.run(Time::from_secs(until)).expect("it runs");
    world.outcomes().remove(0)
}

fn time(outcome: &Outcome) -> Duration {
    outcome.finished.expect("it finishes").since_start()
}

#[test]
fn a_burst_over_an_empty_link_takes_its_size_over_the_rate_and_the_way() {
    // 99 full packets of 1500 bytes, and a last one of 100 + 52.
    let bytes = MSS * 99 + Bytes(100);
    let outcome = run(&direction(), Flow { bytes: Some(bytes), ..fixed(1000) }, 1, 10);
    let expected = Rate::mbit(100).time_for(Bytes(99 * 1500 + 152)) + ms(50);
    assert_eq!(time(&outcome), expected);
    assert_eq!((outcome.delivered, outcome.counters.sent, outcome.counters.again), (bytes, 100, 0));
}

#[test]
fn a_window_smaller_than_the_path_delivers_one_window_per_round_trip() {
    // Round trip of the first packet of a window: 120 µs, 50 ms, 4.8 µs of ACK, 50 ms; every packet is
    // acknowledged.
    let acks = AckOptions { every: 1, ..AckOptions::default() };
    let outcome = run(&direction(), Flow { bytes: Some(MSS * 200), acks, ..fixed(20) }, 1, 10);
    let round = Duration::from_nanos(100_124_800);
    assert_eq!(time(&outcome), round * 9 + Rate::mbit(100).time_for(Bytes(1500 * 20)) + ms(50));
}

#[test]
fn the_receive_window_bounds_what_is_under_way() {
    let acks = AckOptions { every: 1, window: Some(MSS * 20), ..AckOptions::default() };
    let outcome = run(&direction(), Flow { bytes: Some(MSS * 200), acks, ..fixed(1000) }, 1, 10);
    let round = Duration::from_nanos(100_124_800);
    assert_eq!(time(&outcome), round * 9 + Rate::mbit(100).time_for(Bytes(1500 * 20)) + ms(50));
}

#[test]
fn an_application_that_writes_block_by_block_is_followed() {
    let writes = Some(Writes { segments: 3, every: ms(200) });
    // Ten segments are three blocks and one of the fourth, which is written 600 ms after the first.
    let outcome = run(&direction(), Flow { writes, bytes: Some(MSS * 10), ..fixed(1000) }, 1, 10);
    assert_eq!(time(&outcome), ms(600) + Duration::from_micros(120) + ms(50));
    assert_eq!((outcome.delivered, outcome.counters.sent), (MSS * 10, 10));
}

#[test]
fn a_given_pace_is_kept() {
    let flow = Flow {
        bytes: Some(MSS * 1000),
        tcp: TcpOptions::default(),
        ..Flow::new(Box::new(Fixed(MSS * 10_000, Some(Rate::mbit(10)))))
    };
    let outcome = run(&direction(), flow, 1, 10);
    // 999 gaps, then the last packet's own time on the link.
    let expected = Rate::mbit(10).time_for(MSS) * 999 + Duration::from_micros(120) + ms(50);
    let error = time(&outcome).abs_diff(expected);
    assert!(error < Duration::from_micros(2), "{error:?}");
}

#[test]
fn a_full_link_never_delivers_above_its_rate() {
    let forward = Direction { queue: Bytes(100_000), ..direction() };
    for name in ["newreno", "cubic", "bbr", "rate"] {
        let outcome = run(&forward, Flow::new(controller(name)), 1, 30);
        // Segments that waited for a gap to be filled count when it is, so look at sums from the start.
        let mut sum = Bytes::ZERO;
        for (second, bytes) in outcome.bins.iter().enumerate() {
            sum += *bytes;
            let most = 12_500_000.0 / 1500.0 * 1448.0 * (second as f64 + 1.0);
            assert!(sum.as_f64() <= most, "{name}, second {second}: {sum}");
        }
        assert!(outcome.goodput(Time::from_secs(30)).as_mbit() > 40.0, "{name}: {:?}", outcome.delivered);
    }
}

#[test]
fn one_lost_segment_costs_one_retransmission_and_one_cut() {
    for recovery in [Recovery::Dupack, Recovery::Rack, Recovery::Predictive] {
        // 1 ms of outage in a stream paced at one packet per 1.16 ms.
        let change = Change { at: ms(500), outage: Some(ms(1)), ..Change::default() };
        let forward = Direction { changes: vec![change], ..direction() };
        let tcp = TcpOptions { recovery, ..TcpOptions::default() };
        let flow = Flow {
            bytes: Some(MSS * 1000),
            tcp,
            ..Flow::new(Box::new(Fixed(MSS * 10_000, Some(Rate::mbit(10)))))
        };
        let counters = run(&forward, flow, 1, 10).counters;
        assert_eq!(
            (counters.again, counters.spurious, counters.episodes, counters.timeouts),
            (1, 0, 1, 0),
            "{recovery:?}"
        );
    }
}

#[test]
fn a_cut_is_spread_over_its_round_trip_instead_of_falling_silent() {
    struct Departures(std::sync::Arc<std::sync::Mutex<Vec<Time>>>);
    impl Observer for Departures {
        fn note(&mut self, now: Time, _: usize, note: &Note) {
            if let Note::Sent { .. } = note {
                self.0.lock().unwrap().push(now);
            }
        }
    }
    // 5 ms of outage in a window of 200 segments that fills four fifths of each round trip.
    let change = Change { at: ms(500), outage: Some(ms(5)), ..Change::default() };
    let departures = Departures(Default::default());
    let times = departures.0.clone();
    let window = Some(MSS * 200);
    let setup = Setup { initial_window: MSS * 200, initial_ssthresh: window, ..Setup::new(MSS) };
    let mut world = world(&Direction { changes: vec![change], ..direction() }, 1);
    world.observe(Box::new(departures));
    let flow = world.add(Flow::new(registry::build("newreno", &setup).unwrap()));
    world.run(Time::from_secs(1)).unwrap();
    assert_eq!(world.outcomes()[flow].counters.episodes, 1);
    // Silence until half the window is answered would last 40 ms.
    let late: Vec<Time> =
        times.lock().unwrap().iter().copied().filter(|at| *at > Time::from_millis(300)).collect();
    let pause = late.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap();
    assert!(pause < ms(20), "{pause:?}");
}

#[test]
fn without_reordering_no_retransmission_is_needless() {
    for (recovery, sacks) in [
        (Recovery::Dupack, SackBlocks::All),
        (Recovery::Rack, SackBlocks::Most(3)),
        (Recovery::Rack, SackBlocks::All),
    ] {
        for seed in 1..=3 {
            let tcp = TcpOptions { recovery, ..TcpOptions::default() };
            let acks = AckOptions { sacks, ..AckOptions::default() };
            let flow = Flow { tcp, acks, bytes: Some(MSS * 20_000), ..Flow::new(controller("rate")) };
            let outcome = run(&lossy(0.01), flow, seed, 600);
            let counters = outcome.counters;
            assert_eq!(outcome.delivered, MSS * 20_000, "{recovery:?} {sacks:?}, seed {seed}");
            assert!(counters.again > 150, "{recovery:?} {sacks:?}, seed {seed}: {counters:?}");
            // A timeout sends everything again; nothing else may.
            if counters.timeouts == 0 {
                assert!(
                    counters.spurious <= counters.probes,
                    "{recovery:?} {sacks:?}, seed {seed}: {counters:?}"
                );
                assert_eq!(outcome.duplicates, counters.spurious, "{recovery:?} {sacks:?}, seed {seed}");
            }
            if recovery == Recovery::Rack {
                assert_eq!(counters.timeouts, 0, "{sacks:?}, seed {seed}: {counters:?}");
            }
        }
    }
}

#[test]
fn rack_finds_lost_retransmissions_that_three_duplicates_leave_to_the_timeout() {
    let timeouts = |recovery| {
        let tcp = TcpOptions { recovery, ..TcpOptions::default() };
        let flow = Flow { tcp, bytes: Some(MSS * 20_000), ..fixed(100) };
        run(&lossy(0.05), Flow { tcp: TcpOptions { pacing: Pacing::Never, ..tcp }, ..flow }, 1, 3600)
            .counters
            .timeouts
    };
    assert_eq!(timeouts(Recovery::Rack), 0);
    // 5 % of 1000 retransmissions.
    assert!(timeouts(Recovery::Dupack) > 20);
}

#[test]
fn an_outage_is_survived_by_timeouts_that_double() {
    let change =
        Change { at: Duration::from_secs(2), outage: Some(Duration::from_secs(20)), ..Change::default() };
    let forward = Direction { changes: vec![change], ..direction() };
    let mut world = world(&forward, 1);
    world.add(Flow { bytes: Some(MSS * 100_000), ..Flow::new(controller("newreno")) });
    world.run(Time::from_secs(100)).unwrap();
    let outcome = world.outcomes().remove(0);
    assert_eq!(outcome.delivered, MSS * 100_000);
    // 0.3 s doubled: after 0.3, 0.9, 2.1, 4.5, 9.3, 18.9 s; one more brings the data through.
    assert!((5..=8).contains(&outcome.counters.timeouts), "{:?}", outcome.counters);
}

#[test]
fn a_lost_tail_is_repaired_by_a_probe_or_else_by_the_timeout() {
    // The last 10 of 100 segments, sent from 10.8 ms on, are lost.
    let change = Change { at: Duration::from_micros(10_801), outage: Some(ms(20)), ..Change::default() };
    let forward = Direction { changes: vec![change], ..direction() };
    let counters = |recovery| {
        let flow = fixed(1000);
        let tcp = TcpOptions { recovery, ..flow.tcp };
        let outcome = run(&forward, Flow { tcp, bytes: Some(MSS * 100), ..flow }, 1, 10);
        assert_eq!(outcome.delivered, MSS * 100);
        (outcome.counters.probes, outcome.counters.timeouts, outcome.counters.again)
    };
    assert_eq!(counters(Recovery::Rack), (1, 0, 10));
    assert_eq!(counters(Recovery::Dupack), (0, 1, 10));
}

#[test]
fn a_first_timeout_shorter_than_the_path_sends_again_needlessly_and_recovers() {
    let forward = Direction { one_way: ms(1500), ..direction() };
    let outcome = run(&forward, Flow { bytes: Some(MSS * 50), ..Flow::new(controller("cubic")) }, 1, 60);
    assert_eq!(outcome.delivered, MSS * 50);
    assert!(outcome.counters.timeouts >= 1 && outcome.counters.spurious >= 1, "{:?}", outcome.counters);
    let patient = TcpOptions { initial_rto: Duration::from_secs(3), ..TcpOptions::default() };
    let flow = Flow { bytes: Some(MSS * 50), tcp: patient, ..Flow::new(controller("cubic")) };
    let counters = run(&forward, flow, 1, 60).counters;
    assert_eq!((counters.timeouts, counters.again), (0, 0));
}

#[test]
fn rack_learns_to_wait_for_reordered_segments() {
    let jitter = Some(Jitter { half_range: ms(5), shape: JitterShape::Uniform });
    let forward = Direction { jitter, reorder: true, ..direction() };
    let spurious = |recovery| {
        let flow = fixed(500);
        let tcp = TcpOptions { recovery, ..flow.tcp };
        let outcome = run(&forward, Flow { tcp, bytes: Some(MSS * 50_000), ..flow }, 1, 100);
        assert_eq!(outcome.delivered, MSS * 50_000);
        assert_eq!(outcome.counters.again, outcome.counters.spurious, "{recovery:?}: nothing is lost");
        outcome.counters.spurious
    };
    let (dupack, rack) = (spurious(Recovery::Dupack), spurious(Recovery::Rack));
    assert!(dupack > 10 * rack.max(1), "three duplicates {dupack}, RACK {rack}");
}

#[test]
fn data_is_whole_under_every_kind_of_trouble_at_once() {
    let forward = Direction {
        loss: Share::new(0.02).unwrap(),
        burst: GilbertElliott::from_burst(4.0, Share::new(0.01).unwrap()),
        jitter: Some(Jitter { half_range: ms(3), shape: JitterShape::Normal }),
        reorder: true,
        queue: Bytes(150_000),
        changes: vec![Change {
            at: ms(900),
            outage: Some(ms(700)),
            every: Some(ms(4937)),
            ..Change::default()
        }],
        ..direction()
    };
    let acks = Direction {
        loss: Share::new(0.2).unwrap(),
        rate: Rate::kbit(500),
        queue: Bytes(6000),
        ..direction()
    };
    for name in registry::names() {
        for recovery in [Recovery::Dupack, Recovery::Rack, Recovery::Predictive] {
            for seed in 1..=2 {
                let mut world = World::new(Link::new(&forward, seed), Link::new(&acks, seed + 100), seed);
                let tcp = TcpOptions { recovery, ..TcpOptions::default() };
                let bytes = MSS * 3000 + Bytes(7);
                world.add(Flow { tcp, bytes: Some(bytes), ..Flow::new(controller(name)) });
                world.run(Time::from_secs(7200)).unwrap();
                let outcome = world.outcomes().remove(0);
                assert_eq!(
                    outcome.delivered, bytes,
                    "{name} {recovery:?} seed {seed}: {:?}",
                    outcome.counters
                );
            }
        }
    }
}

#[test]
fn a_thin_return_link_slows_bundled_acks_less() {
    let goodput = |every, thinning| {
        let back = Direction { rate: Rate::kbit(100), queue: Bytes(3000), ..direction() };
        let mut world = World::new(Link::new(&direction(), 1), Link::new(&back, 2), 1);
        let acks = AckOptions { every, thinning, ..AckOptions::default() };
        world.add(Flow { acks, ..Flow::new(controller("newreno")) });
        world.run(Time::from_secs(20)).unwrap();
        (world.outcomes()[0].goodput(world.now()), world.back().counters().dropped(Cause::QueueFull).packets)
    };
    let (plain, thinned) = (goodput(2, Duration::ZERO), goodput(2, ms(10)));
    assert!(plain.1 > 1000, "{plain:?}");
    assert_eq!(thinned.1, 0, "{thinned:?}");
}

#[test]
fn the_same_seed_gives_the_same_run_to_the_last_digit() {
    let once = |seed| {
        let mut world = world(&lossy(0.003), seed);
        for (i, name) in ["newreno", "cubic", "bbr"].iter().enumerate() {
            world.add(Flow { start: Time::from_secs(i as u64), ..Flow::new(controller(name)) });
        }
        world.run(Time::from_secs(20)).unwrap();
        format!("{:?} {} {:?}", world.outcomes(), world.events(), world.forward().counters())
    };
    assert_eq!(once(1), once(1));
    assert_ne!(once(1), once(2));
}

#[test]
fn a_later_flow_changes_nothing_before_it_starts() {
    let bins = |second: bool| {
        let mut world = world(&lossy(0.003), 1);
        world.add(Flow::new(controller("cubic")));
        if second {
            world.add(Flow { start: Time::from_secs(10), ..Flow::new(controller("bbr")) });
        }
        world.run(Time::from_secs(20)).unwrap();
        world.outcomes().remove(0).bins
    };
    let (alone, together) = (bins(false), bins(true));
    assert_eq!(alone[..10], together[..10]);
    assert_ne!(alone[10..], together[10..]);
}

#[test]
fn flows_of_the_same_kind_share_the_link_and_fill_it() {
    let forward = Direction { queue: Bytes(1_250_000), ..direction() };
    let mut world = world(&forward, 1);
    (0..4).for_each(|i| {
        world.add(Flow { start: Time::from_millis(i * 200), ..Flow::new(controller("newreno")) });
    });
    world.run(Time::from_secs(300)).unwrap();
    let bytes: Vec<f64> = world.outcomes().iter().map(|flow| flow.delivered_in(100..300).as_f64()).collect();
    let sum: f64 = bytes.iter().sum();
    assert!(stats::jain(&bytes).unwrap() > 0.9, "{bytes:?}");
    assert!(sum / 200.0 > 0.9 * 12_500_000.0 * 1448.0 / 1500.0, "{bytes:?}");
}

#[test]
fn a_controller_out_of_bounds_fails_the_run_by_name_and_seed() {
    for (window, pace) in
        [(Bytes(100), None), (Bytes(u64::MAX / 4), Some(Rate::mbit(1))), (MSS * 10, Some(Rate::ZERO))]
    {
        let mut world = world(&direction(), 42);
        world.add(Flow::new(Box::new(Fixed(window, pace))));
        let message = world.run(Time::from_secs(4000)).unwrap_err().to_string();
        assert!(message.contains("\"fixed\"") && message.contains("seed 42"), "{message}");
    }
}

#[test]
fn a_controller_that_stops_sending_fails_the_run_instead_of_hanging() {
    // 1 bit/s: the second segment would leave after three hours.
    let mut world = world(&direction(), 42);
    world.add(Flow::new(Box::new(Fixed(MSS * 10, Some(Rate::bit(1))))));
    let failure = world.run(Time::from_secs(100_000)).unwrap_err();
    assert!(failure.to_string().contains("nothing was delivered for 300 s"), "{failure}");
    assert!(failure.at < Time::from_secs(601), "{failure}");
}

#[test]
fn nothing_to_send_is_done_at_once_and_a_flow_may_start_late() {
    let outcome = run(&direction(), Flow { bytes: Some(Bytes::ZERO), ..fixed(10) }, 1, 10);
    assert_eq!((outcome.finished, outcome.counters.sent), (Some(Time::ZERO), 0));
    let start = Time::from_secs(400);
    let outcome = run(&direction(), Flow { bytes: Some(Bytes(1)), start, ..fixed(10) }, 1, 1000);
    assert_eq!(outcome.finished, Some(start + ms(50) + Rate::mbit(100).time_for(Bytes(53))));
}

#[test]
fn the_tape_of_a_flow_replays_to_the_same_windows() {
    let mut world = world(&lossy(0.01), 1);
    world.add(Flow { tape: true, ..Flow::new(controller("cubic")) });
    world.run(Time::from_secs(10)).unwrap();
    let tape = world.outcomes().remove(0).tape.unwrap();
    let replayed = skyhaul_cc::tape::replay(&tape, &mut *controller("cubic"));
    let window = world.sender(0).unwrap().controller().cwnd();
    assert_eq!(replayed.last().map(|(_, state)| state.cwnd), Some(window));
    assert!(replayed.len() > 1000);
}

#[test]
fn the_trace_tells_every_packet() {
    #[derive(Default)]
    struct Count(std::sync::Arc<std::sync::Mutex<[u64; 4]>>);
    impl Observer for Count {
        fn note(&mut self, _: Time, _: usize, note: &Note) {
            let index = match note {
                Note::Sent { dropped: None, .. } => 0,
                Note::Sent { .. } => 1,
                Note::Arrived { .. } => 2,
                _ => 3,
            };
            self.0.lock().unwrap()[index] += 1;
        }
    }
    let counts = Count::default();
    let shared = counts.0.clone();
    let mut world = world(&lossy(0.01), 1);
    world.observe(Box::new(counts));
    world.add(Flow { bytes: Some(MSS * 5000), ..Flow::new(controller("rate")) });
    world.run(Time::from_secs(100)).unwrap();
    let [sent, dropped, arrived, _] = *shared.lock().unwrap();
    let counters = world.forward().counters();
    assert_eq!((sent, dropped), (counters.delivered.packets, counters.random_loss.packets));
    // The run ends with the last byte in order; copies may still be in the air.
    assert!(arrived <= sent && arrived >= 5000, "{arrived} of {sent}");
}
