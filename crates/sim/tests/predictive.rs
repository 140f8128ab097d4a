//! The predictive loss judgement of paper 000 §3.2 beside the conventional rules.
#![allow(clippy::unwrap_used)]

use skyhaul_cc::units::{Bytes, Duration, Rate, Share, Time};
use skyhaul_cc::{Ack, Controller, Loss, Sent, Snapshot};
use skyhaul_sim::link::Link;
use skyhaul_sim::repairs::{Repairs, RepairsObserver};
use skyhaul_sim::rng;
use skyhaul_sim::scenario::{Change, Direction, GilbertElliott, Jitter, JitterShape};
use skyhaul_sim::tcp::{AckOptions, Judgement, Recovery, SenderCounters, TcpOptions};
use skyhaul_sim::world::{Flow, World, Writes};

const MSS: Bytes = Bytes(1448);
/// The round trip of paper 001's downlink.
const RTT: Duration = Duration::from_millis(540);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn share(value: f64) -> Share {
    Share::new(value).expect("a share")
}

/// 150 Mbit/s, 270 ms each way, room for everything, nothing lost.
fn direction() -> Direction {
    Direction { reorder: true, ..Direction::clean(Rate::mbit(150), ms(270)) }
}

/// A window and a pace that never change: what is measured is recovery alone.
#[derive(Clone, Debug)]
struct Fixed;

impl Controller for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }
    fn on_sent(&mut self, _: &Sent) {}
    fn on_ack(&mut self, _: &Ack) {}
    fn on_loss(&mut self, _: &Loss) {}
    fn cwnd(&self) -> Bytes {
        MSS * 10_000
    }
    fn pacing_rate(&self) -> Option<Rate> {
        Some(Rate::mbit(130))
    }
    fn snapshot(&self) -> Snapshot {
        Snapshot { cwnd: self.cwnd(), ssthresh: None, pacing_rate: self.pacing_rate(), phase: "fixed" }
    }
    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

/// A case of the table of losses.
#[derive(Clone, Debug)]
struct Case {
    forward: Direction,
    detour: Option<(f64, u64)>,
    writes: Option<Writes>,
    seconds: u64,
    every: u32,
    threshold: f64,
    /// Milliseconds, each way.
    one_way: u64,
}

#[derive(Debug)]
struct Run {
    counters: SenderCounters,
    repairs: Repairs,
    judgement: Option<Judgement>,
}

impl Case {
    fn bulk(loss: f64) -> Case {
        Case {
            forward: Direction { loss: share(loss), ..direction() },
            detour: None,
            writes: None,
            seconds: 15,
            every: 1,
            threshold: 0.95,
            one_way: 270,
        }
    }

    fn run(&self, recovery: Recovery, seed: u64) -> Run {
        let one_way = ms(self.one_way);
        let forward = Direction { one_way, ..self.forward.clone() };
        let mut forward = Link::new(&forward, rng::derive(seed, "forward"));
        if let Some((part, longest)) = self.detour {
            forward = forward.with_detour(share(part), ms(longest), rng::derive(seed, "forward"));
        }
        let back = Link::new(&Direction { one_way, ..direction() }, rng::derive(seed, "back"));
        let mut world = World::new(forward, back, seed);
        let (observer, repairs) = RepairsObserver::new(one_way);
        world.observe(Box::new(observer));
        let tcp = TcpOptions { recovery, threshold: share(self.threshold), ..TcpOptions::default() };
        let acks = AckOptions { every: self.every, ..AckOptions::default() };
        world.add(Flow { tcp, acks, writes: self.writes, ..Flow::new(Box::new(Fixed)) });
        world.run(Time::from_secs(self.seconds)).unwrap();
        let sender = world.sender(0).unwrap();
        Run {
            counters: *sender.counters(),
            judgement: sender.judgement().copied(),
            repairs: repairs.so_far(),
        }
    }
}

/// How long beyond a round trip it took to send lost first copies again, in milliseconds.
fn delay(run: &Run) -> f64 {
    beyond(run.repairs.first().mean().expect("losses"))
}

fn beyond(delay: Duration) -> f64 {
    (delay.as_secs_f64() - RTT.as_secs_f64()) * 1e3
}

fn spurious(run: &Run) -> f64 {
    run.counters.spurious as f64 / run.counters.sent as f64
}

fn bulk() -> Case {
    Case::bulk(0.012)
}

fn bursts() -> Case {
    let burst = GilbertElliott::from_burst(20.0, share(0.012));
    Case { forward: Direction { burst, ..direction() }, ..bulk() }
}

/// 5 % of the packets are up to 20 ms late.
fn reordered(loss: f64) -> Case {
    Case { detour: Some((0.05, 20)), ..Case::bulk(loss) }
}

/// A packet each 50 ms.
fn thin() -> Case {
    Case { writes: Some(Writes { segments: 1, every: ms(50) }), seconds: 1200, ..bulk() }
}

fn jittery() -> Case {
    let jitter = Some(Jitter { half_range: ms(20), shape: JitterShape::Uniform });
    let thin = thin();
    Case { forward: Direction { jitter, ..thin.forward.clone() }, ..thin }
}

/// Blocks of `segments` with silence between them.
fn blocks(segments: u64) -> Case {
    Case { writes: Some(Writes { segments, every: ms(1500) }), seconds: 1800, ..bulk() }
}

#[test]
fn what_is_judged_likely_lost_is_lost_so_often() {
    for (name, case) in [
        ("random", bulk()),
        ("bursts", bursts()),
        ("reordered", reordered(0.012)),
        ("thin", thin()),
        ("thin, jitter", jittery()),
        ("thin, delayed ACKs", Case { every: 2, ..thin() }),
        ("blocks, delayed ACKs", Case { every: 2, ..blocks(20) }),
    ] {
        let judgement = case.run(Recovery::Predictive, 2).judgement.unwrap();
        for (tenth, decile) in judgement.deciles.iter().enumerate() {
            // Of 250 the share is known within 3 points.
            if decile.found >= 250 {
                let error = decile.error().unwrap();
                assert!(error.abs() <= 0.05, "{name}, tenth {tenth}: {decile:?} off by {error:.3}");
            }
        }
    }
    let judgement = reordered(0.012).run(Recovery::Predictive, 2).judgement.unwrap();
    let full = judgement.deciles.iter().filter(|decile| decile.found >= 250).count();
    assert!(full >= 8, "every odds are met with under reordering: {judgement:?}");
}

#[test]
fn reordering_that_misleads_three_duplicates_is_learned() {
    let dupack = reordered(0.0).run(Recovery::Dupack, 1);
    assert!((0.03..0.05).contains(&spurious(&dupack)), "{dupack:?}");
    for (loss, threshold, most) in [(0.0, 0.95, 0.001), (0.012, 0.95, 0.001), (0.012, 0.99, 0.0002)] {
        let run = Case { threshold, ..reordered(loss) }.run(Recovery::Predictive, 1);
        assert!(spurious(&run) <= most, "{loss} {threshold}: {} {run:?}", spurious(&run));
        if loss > 0.0 {
            // RACK waits for a quarter of the round trip and more.
            assert!((0.0..25.0).contains(&delay(&run)), "{loss} {threshold}: {run:?}");
        }
    }
    let rack = reordered(0.012).run(Recovery::Rack, 1);
    assert!(delay(&rack) > 130.0, "{rack:?}");
}

#[test]
fn neither_random_loss_nor_bursts_lead_to_a_timeout() {
    for case in [bulk(), bursts()] {
        for seed in 1..=2 {
            let run = case.run(Recovery::Predictive, seed);
            assert!(run.repairs.first().count > 1500, "seed {seed}: {run:?}");
            assert_eq!((run.counters.timeouts, run.counters.probes), (0, 0), "seed {seed}: {run:?}");
            assert!(spurious(&run) < 0.001 && delay(&run) < 7.0, "seed {seed}: {run:?}");
        }
    }
    assert!(bulk().run(Recovery::Dupack, 1).counters.timeouts > 0);
}

#[test]
fn losses_at_the_end_and_in_thin_flows_are_repaired_without_later_packets() {
    // A spread is the standard deviation of the round trip; where there is none, 3 ms.
    let (none, jitter) = (3.0 * 3.0, 3.0 * 20.0 / f64::sqrt(3.0));
    for (name, case, most) in
        [("thin", thin(), none), ("thin, jitter", jittery(), jitter), ("blocks", blocks(20), none)]
    {
        let run = case.run(Recovery::Predictive, 1);
        assert!(delay(&run) < most, "{name}: {} ms, {run:?}", delay(&run));
        assert_eq!((run.counters.timeouts, run.counters.probes), (0, 0), "{name}: {run:?}");
        assert!(spurious(&run) < 0.001, "{name}: {run:?}");
    }
    let (dupack, rack) = (thin().run(Recovery::Dupack, 1), blocks(20).run(Recovery::Rack, 1));
    // Three duplicates at 50 ms each; a tail waits for two round trips or the timeout.
    assert!((140.0..160.0).contains(&delay(&dupack)), "{dupack:?}");
    assert!(beyond(rack.repairs.tail.mean().unwrap()) > 190.0, "{rack:?}");
}

#[test]
fn a_held_back_acknowledgment_is_no_loss() {
    let case = Case { every: 2, forward: direction(), ..blocks(21) };
    let run = case.run(Recovery::Predictive, 1);
    assert_eq!((run.counters.again, run.counters.timeouts), (0, 0), "{run:?}");
    // With losses, the tail waits for the receiver's timer as well.
    let run = Case { every: 2, ..blocks(21) }.run(Recovery::Predictive, 1);
    assert!(beyond(run.repairs.tail.mean().unwrap()) < 100.0 && spurious(&run) < 0.001, "{run:?}");
}

#[test]
fn a_lost_retransmission_is_found_after_one_more_round_trip() {
    for (name, case, most) in [("random", bulk(), 5.0), ("reordered", reordered(0.012), 27.0)] {
        let run = case.run(Recovery::Predictive, 1);
        let delay = beyond(run.repairs.again.mean().unwrap());
        assert!(run.repairs.again.count > 10 && delay < most, "{name}: {delay} ms, {run:?}");
    }
    let dupack = bulk().run(Recovery::Dupack, 1);
    assert!(beyond(dupack.repairs.again.mean().unwrap()) > 190.0, "{dupack:?}");
}

#[test]
fn tails_stall_half_as_long_as_with_timeouts() {
    // Every loss is one of a tail: there are never three packets behind it.
    let pairs = |recovery, one_way| Case { one_way, ..blocks(2) }.run(recovery, 1);
    let stall = |run: &Run| run.repairs.stalls.mean().unwrap().as_secs_f64() * 1e3;
    let tail = |run: &Run| run.repairs.tail.mean().unwrap().as_secs_f64() * 1e3;
    let (timeouts, odds) = (pairs(Recovery::Dupack, 50), pairs(Recovery::Predictive, 50));
    assert!(stall(&odds) * 2.0 < stall(&timeouts), "{odds:?} {timeouts:?}");
    // At 540 ms the timeout for the first of a pair takes only 200 ms more than the round trip of any repair;
    // for the last one it starts anew with the answer to the first.
    let (timeouts, odds) = (pairs(Recovery::Dupack, 270), pairs(Recovery::Predictive, 270));
    assert!(stall(&odds) < stall(&timeouts) * 0.6, "{odds:?} {timeouts:?}");
    assert!(tail(&odds) * 2.0 < tail(&timeouts), "{odds:?} {timeouts:?}");
}

#[test]
fn an_outage_is_left_to_the_timeout() {
    let change = Change { at: ms(10_000), outage: Some(ms(20_000)), ..Change::default() };
    let forward = Direction { changes: vec![change], ..bulk().forward };
    let run = Case { forward, seconds: 60, ..bulk() }.run(Recovery::Predictive, 1);
    let judgement = run.judgement.unwrap();
    // At most 32 by age while all is silent, then the timer doubles: 0.7 s to 20 s.
    assert!((3..=7).contains(&run.counters.timeouts), "{run:?}");
    assert!(run.counters.spurious < 100, "{run:?}");
    assert!(judgement.acquitted < 100, "{run:?}");
}
