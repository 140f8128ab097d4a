//! Tapes by chance: sequences of events that no real path would give, and paths with real feedback.

use crate::model::{run, Path, MSS};
use crate::Law;
use proptest::prelude::*;
use skyhaul_cc::parts::RttEstimator;
use skyhaul_cc::tape::{Event, Recorder};
use skyhaul_cc::{Ack, Ber, Duration, Loss, Rate, Setup, Signal, Time};

/// First windows and thresholds small and great, with and without what an operator may give.
pub fn setups() -> impl Strategy<Value = Setup> {
    let threshold = prop_oneof![Just(None), (2u64..200).prop_map(Some), (200u64..2_000_000).prop_map(Some)];
    let window = prop_oneof![Just(10u64), 2u64..100_000];
    let reference = prop_oneof![3 => Just(None), 1 => (15u64..200).prop_map(Some)];
    let ber = prop_oneof![2 => Just(None), 1 => (4u32..9).prop_map(|n| Ber::new(0.1f64.powi(n as i32)))];
    (window, threshold, reference, ber).prop_map(|(window, threshold, reference, ber)| Setup {
        initial_window: MSS * window,
        initial_ssthresh: threshold.map(|segments| MSS * segments),
        reference_rtt: reference.map(Duration::from_millis),
        ber,
        ..Setup::new(MSS)
    })
}

/// One thing that happens, in shares and counts that [`events`] makes times and amounts of.
#[derive(Clone, Debug)]
struct Step {
    kind: u32,
    wait: u32,
    queue: u32,
    acked: u64,
    flight: u64,
    flags: u32,
}

/// Events in any order, round trips from a millisecond to three seconds, up to 2000 segments per acknowledgment.
pub fn sequences() -> impl Strategy<Value = Vec<Event>> {
    let step = (
        0u32..100,
        0u32..1000,
        prop_oneof![2 => Just(0u32), 1 => 0u32..50, 1 => 0u32..1000],
        prop_oneof![3 => 1u64..50, 1 => 1u64..2000],
        0u64..30_000,
        0u32..1000,
    );
    let step = step.prop_map(|(kind, wait, queue, acked, flight, flags)| Step {
        kind,
        wait,
        queue,
        acked,
        flight,
        flags,
    });
    let base = prop_oneof![1u64..50, Just(540), 1u64..3000];
    (base, prop::collection::vec(step, 1..400))
        .prop_map(|(base, steps)| events(Duration::from_millis(base), &steps))
}

fn events(base: Duration, steps: &[Step]) -> Vec<Event> {
    let mut estimator = RttEstimator::new(base);
    let mut now = Time::ZERO + base;
    let mut round_began = Time::ZERO;
    let mut events = Vec::new();
    // The first loss begins the first episode.
    let mut lossy = false;
    for step in steps {
        now += base * step.wait / 2000;
        let latest = base + base * step.queue / 1000;
        let sent_at = Time::ZERO + now.since(Time::ZERO + latest);
        let event = match step.kind {
            // At least once the path is measured before anything is lost.
            0..=5 if estimator.is_measured() => Event::Loss(Loss {
                now,
                sent_at,
                lost: MSS * step.acked.min(100),
                in_flight: MSS * step.flight,
                rtt: estimator.rtt(),
                signal: match step.kind {
                    0 => Signal::Timeout,
                    1 => Signal::Ecn,
                    _ => Signal::Gap,
                },
                new_episode: step.flags % 3 > 0 || !std::mem::replace(&mut lossy, true),
            }),
            _ => {
                estimator.on_sample(latest);
                let round_start = sent_at >= round_began;
                if round_start {
                    round_began = now;
                }
                Event::Ack(Ack {
                    now,
                    sent_at,
                    acked: MSS * step.acked,
                    in_flight: MSS * step.flight,
                    peer_window: (step.flags % 7 == 0).then(|| MSS * (1 + 50 * u64::from(step.flags))),
                    rtt: estimator.rtt(),
                    delivery_rate: None,
                    round_start,
                    app_limited: step.flags % 11 == 0,
                })
            }
        };
        events.push(event);
    }
    events
}

/// Paths from short and thin to GEO, with losses, outages and idle applications.
pub fn paths() -> impl Strategy<Value = Path> {
    let rtt = prop_oneof![2u64..50, Just(540u64), 50u64..1200];
    let loss = prop_oneof![Just(0.0), 1e-4..0.03];
    (1u64..40, rtt, loss, 1u64..30, 1usize..60, any::<u64>(), 0u64..4, 0u64..4).prop_map(
        |(mbit, rtt, loss, queue, per_ack, seed, outage, idle)| {
            let (rate, rtt) = (Rate::mbit(mbit), Duration::from_millis(rtt));
            let from = Time::from_secs(2);
            Path {
                loss,
                queue: (rate.bdp(rtt) * queue / 10).max(MSS * 10),
                per_ack,
                seed,
                outages: (outage == 0).then_some((from, from + rtt * 8)).into_iter().collect(),
                source: (idle == 0).then(|| Rate::mbit(mbit).scale(0.4)),
                ..Path::new(rate, rtt)
            }
        },
    )
}

/// What the Rust law hears on a path within some seconds, at most so many events.
pub fn heard(law: &Law, setup: &Setup, path: &Path, most: usize) -> Vec<Event> {
    let mut recorder = Recorder::new((law.rust)(setup));
    run(path, &mut recorder, Duration::from_secs(6));
    let events = recorder.into_tape().events.into_iter();
    events
        .filter(|event| {
            matches!(event, Event::Ack(ack) if ack.acked.0 > 0) || matches!(event, Event::Loss(_))
        })
        .take(most)
        .collect()
}
