//! The link against a second, slower implementation, and the parser against anything.

use proptest::prelude::*;
use skyhaul_cc::units::{Ber, Bytes, Duration, Rate, Share, Time};
use skyhaul_sim::link::{Cause, Fate, Link};
use skyhaul_sim::scenario::{
    catalogue, Change, Dir, Direction, GilbertElliott, Jitter, JitterShape, RateBase, Scenario,
};

/// The link written down as one would explain it: all changes listed one by one, all packets kept, work as
/// an integral. It has no randomness.
struct Slow<'d> {
    direction: &'d Direction,
    /// When each packet let in enters the serializer, and its size.
    accepted: Vec<(u64, u64)>,
    /// Work done when the last packet has left, in bit × 10⁹ since the start.
    done: u128,
    departure: u64,
    arrival: u64,
    /// Every moment something changes, with the index of the change.
    moments: Vec<(u64, usize)>,
}

impl<'d> Slow<'d> {
    fn new(direction: &'d Direction) -> Self {
        let mut moments = Vec::new();
        for (index, change) in direction.changes.iter().enumerate() {
            let mut at = change.at;
            while at < HORIZON {
                moments.push((at.as_nanos() as u64, index));
                at += change.every.unwrap_or(HORIZON);
            }
        }
        moments.sort();
        Slow { direction, accepted: Vec::new(), done: 0, departure: 0, arrival: 0, moments }
    }

    fn rate_at(&self, now: u64) -> u64 {
        let changes = self.moments.iter().take_while(|(at, _)| *at <= now);
        let latest = changes.filter_map(|&(_, index)| self.direction.changes[index].rate).last();
        latest.unwrap_or(self.direction.rate).as_bit()
    }

    fn one_way_at(&self, now: u64) -> u64 {
        let changes = self.moments.iter().take_while(|(at, _)| *at <= now);
        let latest = changes.filter_map(|&(_, index)| self.direction.changes[index].one_way).last();
        latest.unwrap_or(self.direction.one_way).as_nanos() as u64
    }

    fn out_during(&self, from: u64, to: u64) -> bool {
        self.moments.iter().any(|&(at, index)| {
            let outage = self.direction.changes[index].outage.unwrap_or_default().as_nanos() as u64;
            outage > 0 && at < to && from < at + outage
        })
    }

    /// What an always busy serializer has done by `now`, and when it has done `work`.
    fn integrate(&self, now: u64, work: u128) -> (u128, u64) {
        let mut pieces: Vec<u64> = self.moments.iter().map(|(at, _)| *at).collect();
        pieces.push(HORIZON.as_nanos() as u64);
        let (mut from, mut sum, mut by_now, mut when) = (0u64, 0u128, 0u128, None);
        for to in pieces {
            let rate = u128::from(self.rate_at(from));
            by_now += rate * u128::from(to.min(now).saturating_sub(from));
            let next = sum + rate * u128::from(to - from);
            if when.is_none() && work <= next {
                when = Some(from + (work - sum).div_ceil(rate) as u64);
            }
            (from, sum) = (to, next);
        }
        (by_now, when.expect("the horizon is far enough"))
    }

    fn offer(&mut self, now: u64, size: u64) -> Fate {
        let start = self.departure.max(now);
        let waiting: u64 = self.accepted.iter().filter(|(start, _)| *start > now).map(|(_, size)| size).sum();
        if start > now && waiting + size > self.direction.queue.0 {
            return Fate::Dropped(Cause::QueueFull);
        }
        self.accepted.push((start, size));
        let bits = (Bytes(size) + self.direction.rate_base.overhead()).bits();
        self.done = self.done.max(self.integrate(now, 0).0) + u128::from(bits) * 1_000_000_000;
        self.departure = self.integrate(0, self.done).1;
        if self.out_during(start, self.departure) {
            return Fate::Dropped(Cause::Outage);
        }
        let at = self.departure + self.one_way_at(self.departure);
        self.arrival = if self.direction.reorder { at } else { self.arrival.max(at) };
        Fate::Delivered { at: Time::from_nanos(self.arrival) }
    }
}

/// Far beyond what the offers below can take.
const HORIZON: Duration = Duration::from_secs(4);

fn rates() -> impl Strategy<Value = Rate> {
    prop_oneof![1_000_000u64..10_000_000, 10_000_000u64..1_000_000_000].prop_map(Rate::bit)
}

fn micros(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_micros)
}

prop_compose! {
    fn changes()(
        at in micros(0..200_000),
        rate in proptest::option::of(rates()),
        one_way in proptest::option::of(micros(0..50_000)),
        outage in proptest::option::of(micros(0..9_000)),
        every in proptest::option::of(micros(10_000..200_000)),
    ) -> Change {
        Change { at, rate, one_way, outage, every, loss: None }
    }
}

prop_compose! {
    /// Without randomness.
    fn directions()(
        rate in rates(),
        rate_base in prop_oneof![Just(RateBase::Ip), Just(RateBase::L2), Just(RateBase::Wire)],
        one_way in micros(0..50_000),
        queue in 1500u64..30_000,
        reorder in any::<bool>(),
        changes in proptest::collection::vec(changes(), 0..6),
    ) -> Direction {
        Direction { rate_base, queue: Bytes(queue), reorder, changes, ..Direction::clean(rate, one_way) }
    }
}

/// Gaps in nanoseconds and sizes in bytes.
fn offers() -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((prop_oneof![Just(0), 0u64..100_000, 0u64..5_000_000], 1u64..3_000), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_link_agrees_with_the_slow_one_to_the_nanosecond(direction in directions(), offers in offers()) {
        let (mut fast, mut slow) = (Link::new(&direction, 1), Slow::new(&direction));
        let mut now = 0;
        for (gap, size) in offers {
            now += gap;
            let (found, expected) = (fast.offer(Time::from_nanos(now), Bytes(size)), slow.offer(now, size));
            prop_assert_eq!(found, expected, "{} bytes at {} ns", size, now);
            let waiting: u64 = slow.accepted.iter().filter(|(start, _)| *start > now).map(|(_, size)| size).sum();
            prop_assert_eq!(fast.queued(Time::from_nanos(now)), Bytes(waiting));
            prop_assert_eq!(fast.rate(Time::from_nanos(now)).as_bit(), slow.rate_at(now));
        }
    }

    #[test]
    fn nothing_arrives_early_or_out_of_order_whatever_is_lost(
        direction in directions(),
        offers in offers(),
        loss in 0.0..1.0f64,
        ber in 0.0..1e-4f64,
        half_range in 0u64..20_000,
        seed in any::<u64>(),
    ) {
        let one_ways = direction.changes.iter().filter_map(|change| change.one_way);
        let shortest = one_ways.fold(direction.one_way, Ord::min);
        let rates = direction.changes.iter().filter_map(|change| change.rate);
        let fastest = rates.fold(direction.rate, Ord::max);
        let half_range = Duration::from_micros(half_range).min(shortest);
        let direction = Direction {
            loss: Share::new(loss).unwrap(),
            ber: Ber::new(ber).unwrap(),
            burst: GilbertElliott::from_burst(3.0, Share::new(0.1).unwrap()),
            jitter: Some(Jitter { half_range, shape: JitterShape::Uniform }),
            ..direction
        };
        let mut link = Link::new(&direction, seed);
        let (mut now, mut latest) = (Time::ZERO, Time::ZERO);
        for (gap, size) in offers {
            now += Duration::from_nanos(gap);
            if let Fate::Delivered { at } = link.offer(now, Bytes(size)) {
                let sending = fastest.time_for(Bytes(size)).saturating_sub(Duration::from_nanos(1));
                prop_assert!(at >= now + sending + (shortest - half_range));
                prop_assert!(direction.reorder || at >= latest);
                latest = at;
            }
            prop_assert!(link.queued(now) <= direction.queue);
        }
        let counters = link.counters();
        let dropped: u64 = Cause::ALL.iter().map(|&cause| counters.dropped(cause).packets).sum();
        prop_assert_eq!(counters.offered.packets, counters.delivered.packets + dropped);
    }

    #[test]
    fn the_parser_answers_any_text(text in "(?s).{0,300}") {
        let _ = Scenario::parse(&text, "any");
    }

    #[test]
    fn the_parser_answers_any_mutation_and_what_it_accepts_works(
        which in any::<prop::sample::Index>(),
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[0-9a-z.\\[\\]\"= %\n-]{0,6}"), 1..4),
    ) {
        let ids: Vec<_> = catalogue().collect();
        let path = format!("{}/../../scenarios/{}.toml", env!("CARGO_MANIFEST_DIR"), which.get(&ids));
        let mut text: Vec<char> = std::fs::read_to_string(path).unwrap().chars().collect();
        for (place, length, put) in cuts {
            let from = place.index(text.len());
            let to = (from + length).min(text.len());
            text.splice(from..to, put.chars());
        }
        let text: String = text.into_iter().collect();
        match Scenario::parse(&text, "mutated.toml") {
            Ok(scenario) => works(&scenario),
            Err(error) => {
                let error = error.to_string();
                prop_assert!(error.starts_with("mutated.toml: ") && !error.contains('\n'), "{}", error);
            }
        }
    }
}

/// A round of offers, and the limits.
fn works(scenario: &Scenario) {
    for dir in Dir::ALL {
        let mut link = scenario.link(dir, 1);
        for n in 0..200u64 {
            let now = Time::from_millis(n * n);
            if let Fate::Delivered { at } = link.offer(now, Bytes(40 + 8 * n)) {
                assert!(at >= now);
            }
        }
        assert_eq!(link.counters().offered.packets, 200);
        assert!(scenario.payload_limit(dir, Bytes(1433)) <= scenario.direction(dir).rate);
    }
    let fastest = |direction: &Direction| {
        direction.changes.iter().filter_map(|change| change.rate).fold(direction.rate, Ord::max)
    };
    let limit = scenario.limit(scenario.workload.bytes);
    assert!(limit <= fastest(scenario.direction(scenario.workload.kind.data())), "{limit}");
}
