//! The link against arithmetic: what a page of sums says must come out, to the nanosecond.

use skyhaul_cc::units::{Ber, Bytes, Duration, Rate, Share, Time};
use skyhaul_sim::link::{Cause, Fate, Link};
use skyhaul_sim::rng::Stream;
use skyhaul_sim::scenario::{Change, Direction, GilbertElliott, Jitter, JitterShape, RateBase};
use skyhaul_sim::stats;

const FULL: Bytes = Bytes(1500);

/// 10 Mbit/s, 270 ms, and room for everything: a full packet takes 1.2 ms.
fn direction() -> Direction {
    Direction::clean(Rate::mbit(10), ms(270))
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn share(value: f64) -> Share {
    Share::new(value).expect("between 0 and 1")
}

fn arrival(fate: Fate) -> Time {
    match fate {
        Fate::Delivered { at } => at,
        Fate::Dropped(cause) => panic!("dropped: {cause}"),
    }
}

/// The fates of `packets` full packets, each offered when the serializer has just become idle.
fn fates(direction: &Direction, seed: u64, packets: usize) -> Vec<Fate> {
    sizes_and_fates(direction, seed, packets, FULL)
}

fn sizes_and_fates(direction: &Direction, seed: u64, packets: usize, size: Bytes) -> Vec<Fate> {
    let mut link = Link::new(direction, seed);
    let gap = direction.rate.time_for(size + direction.rate_base.overhead());
    let mut now = Time::ZERO;
    (0..packets)
        .map(|_| {
            let fate = link.offer(now, size);
            now += gap;
            fate
        })
        .collect()
}

fn lost(fates: &[Fate]) -> u64 {
    fates.iter().filter(|fate| matches!(fate, Fate::Dropped(_))).count() as u64
}

#[test]
fn an_empty_link_takes_size_over_rate_plus_one_way() {
    let mut link = Link::new(&direction(), 1);
    assert_eq!(
        arrival(link.offer(Time::from_secs(3), FULL)),
        Time::from_secs(3) + ms(270) + Duration::from_micros(1200)
    );
    // One byte more takes 800 ns more.
    let now = Time::from_secs(4);
    assert_eq!(arrival(link.offer(now, Bytes(1501))), now + ms(270) + Duration::from_nanos(1_200_800));
}

#[test]
fn a_time_that_is_no_whole_number_is_rounded_up_once() {
    let mut link = Link::new(&Direction { rate: Rate::mbit(7), ..direction() }, 1);
    // 12000 bit at 7 Mbit/s: 1714285.71 ns. Three in a row: 5142857.14 ns.
    let at: Vec<_> = (0..3).map(|_| arrival(link.offer(Time::ZERO, FULL)).since_start() - ms(270)).collect();
    assert_eq!(at, [1_714_286, 3_428_572, 5_142_858].map(Duration::from_nanos));
    for _ in 3..7_000 {
        link.offer(Time::ZERO, FULL);
    }
    // 7000 packets are 12 s exactly, so the rounding does not add up.
    assert_eq!(link.queued(Time::from_nanos(11_999_999_999)), Bytes::ZERO);
    assert_eq!(
        arrival(link.offer(Time::from_secs(12), FULL)),
        Time::from_secs(12) + ms(270) + Duration::from_nanos(1_714_286)
    );
}

#[test]
fn the_rate_base_adds_what_the_wire_carries() {
    for (rate_base, nanos) in [(RateBase::Ip, 12_000), (RateBase::L2, 12_112), (RateBase::Wire, 12_304)] {
        let direction =
            Direction { rate: Rate::mbit(1000), rate_base, one_way: Duration::ZERO, ..direction() };
        assert_eq!(arrival(Link::new(&direction, 1).offer(Time::ZERO, FULL)), Time::from_nanos(nanos));
    }
}

#[test]
fn a_full_link_runs_at_its_rate_and_never_above_it() {
    let rate = 9_999_991u64;
    let direction = Direction { rate: Rate::bit(rate), queue: Bytes(150_000), ..direction() };
    let mut link = Link::new(&direction, 1);
    let mut chance = Stream::new(5, "sizes");
    let (mut now, mut bits, mut refused) = (Time::ZERO, 0u64, 0);
    for n in 0..200_000 {
        let size = Bytes(40 + chance.below(1461));
        // A full queue at the start, then offers at about twice the rate: the link is never idle.
        if n > 200 {
            now += Duration::from_nanos(chance.below(2 * 300_000));
        }
        match link.offer(now, size) {
            Fate::Delivered { at } => {
                bits += size.bits();
                // Everything sent so far has taken its time at the rate, rounded up to a nanosecond once.
                let busy = (u128::from(bits) * 1_000_000_000).div_ceil(u128::from(rate)) as u64;
                assert_eq!(at, Time::from_nanos(busy) + ms(270), "packet {n}");
            }
            Fate::Dropped(cause) => {
                assert_eq!(cause, Cause::QueueFull);
                refused += 1;
            }
        }
    }
    assert!(refused > 50_000, "{refused}");
}

#[test]
fn a_queue_adds_at_most_its_size_over_the_rate() {
    let direction = Direction { queue: Bytes(15_000), ..direction() };
    let mut link = Link::new(&direction, 1);
    let longest = ms(270) + direction.rate.time_for(Bytes(15_000) + FULL);
    let at: Vec<_> = (0..100)
        .filter_map(|_| match link.offer(Time::ZERO, FULL) {
            Fate::Delivered { at } => Some(at),
            Fate::Dropped(cause) => {
                assert_eq!(cause, Cause::QueueFull);
                None
            }
        })
        .collect();
    // One in service and ten waiting.
    assert_eq!(at.len(), 11);
    assert_eq!(at[10], Time::ZERO + longest);
    assert_eq!(link.counters().queue_full.packets, 89);
    assert_eq!(link.queued(Time::ZERO), Bytes(15_000));
}

#[test]
fn packets_in_service_and_in_the_air_leave_the_queue_free() {
    let direction = Direction { queue: FULL, ..direction() };
    let mut link = Link::new(&direction, 1);
    for n in 0..200u64 {
        // 200 packets in the air on a link with room for one, one every 1.2 ms.
        arrival(link.offer(Time::from_micros(1200 * n), FULL));
        assert_eq!(link.queued(Time::from_micros(1200 * n)), Bytes::ZERO);
    }
    let now = Time::from_micros(1200 * 199 + 1);
    arrival(link.offer(now, FULL));
    assert_eq!(link.offer(now, Bytes(1)), Fate::Dropped(Cause::QueueFull));
    // When the waiting packet enters the serializer, its place is free.
    arrival(link.offer(Time::from_micros(1200 * 200), FULL));
}

#[test]
fn one_percent_loss_loses_one_percent() {
    let fates = fates(&Direction { loss: share(0.01), ..direction() }, 1, 400_000);
    assert!(stats::agrees(lost(&fates), 400_000, share(0.01), 4.0), "{} of 400000", lost(&fates));
    // Independent losses: a lost packet's successor is lost as often as any other.
    let pairs = fates.windows(2).filter(|pair| lost(pair) == 2).count() as u64;
    assert!(stats::agrees(pairs, lost(&fates), share(0.01), 4.0), "{pairs} of {}", lost(&fates));
}

#[test]
fn a_bit_error_rate_hits_large_packets_more_often() {
    let direction = Direction { ber: Ber::new(1e-6).unwrap(), ..direction() };
    for (size, expected) in [(1500, 0.011_928), (52, 0.000_415_9), (9000, 0.069_469)] {
        let lost = lost(&sizes_and_fates(&direction, 1, 400_000, Bytes(size)));
        assert!(stats::agrees(lost, 400_000, share(expected), 4.0), "{size} bytes: {lost} of 400000");
    }
}

#[test]
fn bursts_have_the_stated_length_and_average() {
    let model = GilbertElliott::from_burst(8.0, share(0.02)).unwrap();
    assert!((model.average().value() - 0.02).abs() < 1e-12 && (model.mean_burst() - 8.0).abs() < 1e-12);
    let fates = fates(&Direction { burst: Some(model), ..direction() }, 3, 2_000_000);
    let lost_packets = lost(&fates) as f64;
    let bursts =
        fates.windows(2).filter(|pair| lost(&pair[..1]) == 0 && lost(&pair[1..]) == 1).count() as f64;
    // About 5000 bursts; their lengths scatter by as much as their mean, so 4 deviations are 6 %.
    assert!((lost_packets / bursts - 8.0).abs() < 0.5, "{lost_packets} in {bursts} bursts");
    assert!((lost_packets / 2e6 - 0.02).abs() < 0.0017, "{lost_packets}");
}

#[test]
fn each_state_of_the_burst_model_has_its_own_loss() {
    let model = GilbertElliott {
        to_bad: share(0.01),
        to_good: share(0.03),
        good_loss: share(0.001),
        bad_loss: share(0.4),
    };
    assert!((model.share_of_bad().value() - 0.25).abs() < 1e-12);
    let expected = 0.25 * 0.4 + 0.75 * 0.001;
    assert!((model.average().value() - expected).abs() < 1e-12);
    let lost = lost(&fates(&Direction { burst: Some(model), ..direction() }, 3, 1_000_000)) as f64;
    // 10000 stays in the bad state of 33 packets each: 1.5 % is four deviations.
    assert!((lost / 1e6 - expected).abs() < 0.05 * expected, "{lost} of a million");
}

#[test]
fn jitter_keeps_to_its_range_and_to_the_order_unless_asked() {
    for shape in [JitterShape::Uniform, JitterShape::Normal] {
        let jitter = Some(Jitter { half_range: ms(20), shape });
        let overtaking = Direction { jitter, reorder: true, ..direction() };
        let departure = |n: usize| Time::from_micros(1200 * (n as u64 + 1));
        let free: Vec<_> = fates(&overtaking, 1, 50_000).into_iter().map(arrival).collect();
        let extra: Vec<f64> =
            free.iter().enumerate().map(|(n, at)| at.since(departure(n)).as_secs_f64() - 0.270).collect();
        assert!(extra.iter().all(|extra| extra.abs() <= 0.020 + 1e-9), "{shape:?}");
        // Standard deviations: 11.5 ms if uniform, 5.8 ms if bell-shaped; the mean's is 1/224 of that.
        let deviation = if shape == JitterShape::Uniform { 0.011_547 } else { 0.005_774 };
        assert!(stats::mean(&extra).unwrap().abs() < 4.0 * deviation / 224.0, "{shape:?}");
        assert!((stats::deviation(&extra).unwrap() / deviation - 1.0).abs() < 0.02, "{shape:?}");
        assert!(free.windows(2).any(|pair| pair[1] < pair[0]), "nobody overtook");

        let kept: Vec<_> =
            fates(&Direction { reorder: false, ..overtaking }, 1, 50_000).into_iter().map(arrival).collect();
        assert!(kept.windows(2).all(|pair| pair[0] <= pair[1]), "order lost");
        // Keeping the order only ever delays: to the latest predecessor.
        let mut latest = Time::ZERO;
        for (kept, free) in kept.iter().zip(&free) {
            latest = latest.max(*free);
            assert_eq!(*kept, latest);
        }
    }
}

#[test]
fn a_fade_in_the_middle_of_a_packet_is_exact() {
    let change = Change { at: ms(10), rate: Some(Rate::mbit(1)), ..Change::default() };
    let mut link = Link::new(&Direction { changes: vec![change], ..direction() }, 1);
    // 15000 bytes: 100000 bit by 10 ms at 10 Mbit/s, the other 20000 in 20 ms at 1 Mbit/s.
    assert_eq!(arrival(link.offer(Time::ZERO, Bytes(15_000))), Time::from_millis(30 + 270));
    assert_eq!(link.rate(Time::from_nanos(9_999_999)), Rate::mbit(10));
    assert_eq!(link.rate(Time::from_millis(10)), Rate::mbit(1));
}

#[test]
fn a_fade_reaches_the_packets_already_queued() {
    let change = Change { at: ms(6), rate: Some(Rate::mbit(5)), ..Change::default() };
    let mut link = Link::new(&Direction { changes: vec![change], ..direction() }, 1);
    let at: Vec<_> = (0..10).map(|_| arrival(link.offer(Time::ZERO, FULL))).collect();
    // Five packets by 6 ms, then 2.4 ms each.
    assert_eq!(at[4], Time::from_millis(6 + 270));
    assert_eq!(at[9], Time::from_millis(6 + 12 + 270));
}

#[test]
fn a_handover_to_a_shorter_path_keeps_the_order_unless_asked() {
    let change = Change { at: ms(6), one_way: Some(ms(20)), ..Change::default() };
    let kept = Direction { changes: vec![change], ..direction() };
    let departures: Vec<_> = (1..=10).map(|n| Time::from_micros(1200 * n)).collect();
    let arrivals =
        |direction: &Direction| -> Vec<Time> { fates(direction, 1, 10).into_iter().map(arrival).collect() };
    // The fifth packet leaves at 6 ms, when the new path is in force.
    assert_eq!(arrivals(&kept)[3], departures[3] + ms(270));
    assert!(arrivals(&kept)[4..].iter().all(|&at| at == departures[3] + ms(270)));
    let overtaking = arrivals(&Direction { reorder: true, ..kept });
    for (n, &at) in overtaking.iter().enumerate() {
        assert_eq!(at, departures[n] + ms(if n < 4 { 270 } else { 20 }));
    }
}

#[test]
fn handovers_repeat_for_as_long_as_anybody_looks() {
    let to_long = Change {
        at: Duration::from_secs(15),
        one_way: Some(ms(31)),
        every: Some(Duration::from_secs(30)),
        ..Change::default()
    };
    let to_short = Change { at: Duration::from_secs(30), one_way: Some(ms(22)), ..to_long.clone() };
    let direction = Direction { one_way: ms(22), changes: vec![to_short, to_long], ..direction() };
    let mut link = Link::new(&direction, 1);
    for second in (0..100_000u64).step_by(7) {
        let expected = if second % 30 >= 15 { 31 } else { 22 };
        assert_eq!(link.one_way(Time::from_secs(second)), ms(expected), "at {second} s");
        let at = arrival(link.offer(Time::from_secs(second), FULL));
        assert_eq!(at, Time::from_secs(second) + ms(expected) + Duration::from_micros(1200), "at {second} s");
    }
}

#[test]
fn an_outage_takes_exactly_the_packets_sent_during_it() {
    let outage = Change { at: ms(12), outage: Some(Duration::from_micros(4800)), ..Change::default() };
    let direction = Direction { changes: vec![outage], ..direction() };
    // Packets are sent back to back from 0, 1.2, 2.4 ... ms: numbers 10 to 13 fill the outage.
    let dropped = |direction: &Direction| -> Vec<usize> {
        let fates = fates(direction, 1, 30);
        (0..30).filter(|&n| fates[n] == Fate::Dropped(Cause::Outage)).collect()
    };
    assert_eq!(dropped(&direction), [10, 11, 12, 13]);
    // A nanosecond earlier or later touches a neighbour.
    let moved = |at: Duration| Direction {
        changes: vec![Change { at, ..direction.changes[0].clone() }],
        ..direction.clone()
    };
    assert_eq!(dropped(&moved(ms(12) - Duration::from_nanos(1))), [9, 10, 11, 12, 13]);
    assert_eq!(dropped(&moved(ms(12) + Duration::from_nanos(1))), [10, 11, 12, 13, 14]);
}

#[test]
fn an_outage_shorter_than_a_packet_still_takes_it() {
    let outage =
        Change { at: Duration::from_micros(100), outage: Some(Duration::from_nanos(1)), ..Change::default() };
    let mut link = Link::new(&Direction { changes: vec![outage], ..direction() }, 1);
    assert_eq!(link.offer(Time::ZERO, FULL), Fate::Dropped(Cause::Outage));
    arrival(link.offer(Time::ZERO, FULL));
    assert!(link.is_out(Time::from_micros(100)) && !link.is_out(Time::from_nanos(100_001)));
}

#[test]
fn a_change_of_loss_counts_from_its_moment() {
    let change =
        Change { at: Duration::from_micros(1200 * 500), loss: Some(Share::ONE), ..Change::default() };
    let fates = fates(&Direction { changes: vec![change], ..direction() }, 1, 1000);
    // Packet 499 leaves at that very moment.
    assert_eq!(fates.iter().position(|&fate| fate == Fate::Dropped(Cause::RandomLoss)), Some(499));
    assert_eq!(lost(&fates), 501);
}

#[test]
fn the_same_seed_gives_the_same_fates() {
    let direction = Direction {
        loss: share(0.05),
        ber: Ber::new(1e-6).unwrap(),
        burst: GilbertElliott::from_burst(5.0, share(0.02)),
        jitter: Some(Jitter { half_range: ms(5), shape: JitterShape::Uniform }),
        ..direction()
    };
    assert_eq!(fates(&direction, 42, 20_000), fates(&direction, 42, 20_000));
    assert_ne!(fates(&direction, 42, 20_000), fates(&direction, 43, 20_000));
}

#[test]
fn another_component_leaves_the_others_luck_alone() {
    let plain = Direction { loss: share(0.05), ..direction() };
    let with_more = Direction {
        ber: Ber::new(1e-6).unwrap(),
        burst: GilbertElliott::from_burst(5.0, share(0.02)),
        jitter: Some(Jitter { half_range: ms(5), shape: JitterShape::Normal }),
        ..plain.clone()
    };
    let hit = |fate: &Fate| matches!(fate, Fate::Dropped(_));
    let (before, after) = (fates(&plain, 9, 50_000), fates(&with_more, 9, 50_000));
    assert!(
        before.iter().zip(&after).all(|(before, after)| !hit(before) || hit(after)),
        "a lost packet was saved"
    );
    let single =
        |fates: &[Fate]| fates.iter().filter(|&&fate| fate == Fate::Dropped(Cause::RandomLoss)).count();
    assert!(single(&after) < single(&before) && lost(&after) > lost(&before));
    // And the other way round: single losses do not move the jitter.
    let jitter_only = Direction { jitter: with_more.jitter, reorder: true, ..direction() };
    let jitter_and_loss = Direction { loss: share(0.5), ..jitter_only.clone() };
    for (free, lossy) in fates(&jitter_only, 9, 10_000).iter().zip(fates(&jitter_and_loss, 9, 10_000)) {
        assert!(hit(&lossy) || *free == lossy);
    }
}

#[test]
fn every_packet_is_counted_once() {
    let direction = Direction {
        loss: share(0.05),
        burst: GilbertElliott::from_burst(5.0, share(0.02)),
        ber: Ber::new(1e-6).unwrap(),
        queue: Bytes(3000),
        changes: vec![Change {
            at: ms(100),
            outage: Some(ms(50)),
            every: Some(ms(1000)),
            ..Change::default()
        }],
        ..direction()
    };
    let mut link = Link::new(&direction, 1);
    for n in 0..20_000u64 {
        link.offer(Time::from_micros(1000 * n), FULL);
    }
    let counters = link.counters();
    let dropped: u64 = Cause::ALL.iter().map(|&cause| counters.dropped(cause).packets).sum();
    assert_eq!(counters.offered.packets, 20_000);
    assert_eq!(counters.delivered.packets + dropped, 20_000);
    assert_eq!(counters.delivered.bytes, Bytes(1500 * counters.delivered.packets));
    assert!(Cause::ALL.iter().all(|&cause| counters.dropped(cause).packets > 0), "{counters:?}");
    assert_eq!(counters.sent(), 20_000 - counters.queue_full.packets);
}

#[test]
fn of_two_changes_at_one_moment_the_later_one_counts() {
    let to = |one_way, rate| Change { one_way: Some(ms(one_way)), rate: Some(rate), ..Change::default() };
    let changes = vec![to(30, Rate::mbit(1)), to(40, Rate::mbit(2))];
    let link = Link::new(&Direction { changes, ..direction() }, 1);
    assert_eq!((link.one_way(Time::ZERO), link.rate(Time::ZERO)), (ms(40), Rate::mbit(2)));
}

#[test]
fn a_detour_makes_the_stated_share_late_by_up_to_the_stated_time() {
    let lateness = |reorder| {
        let direction = Direction { reorder, ..direction() };
        let mut link = Link::new(&direction, 1).with_detour(share(0.05), ms(20), 1);
        let gap = direction.rate.time_for(FULL);
        let arrivals: Vec<Time> =
            (0..20_000u32).map(|n| arrival(link.offer(Time::ZERO + gap * n, FULL))).collect();
        let direct = |n: usize| Time::ZERO + gap * (n as u32 + 1) + ms(270);
        let late = arrivals.iter().enumerate().map(|(n, at)| at.since(direct(n))).collect::<Vec<_>>();
        let overtaken = arrivals.windows(2).filter(|pair| pair[1] < pair[0]).count();
        (late, overtaken)
    };
    let (late, overtaken) = lateness(true);
    // 1000 of 20,000 with a standard deviation of 31; the mean of their delays is 10 ms, known to 0.2 ms.
    let few: Vec<f64> = late.iter().filter(|late| !late.is_zero()).map(|late| late.as_secs_f64()).collect();
    assert!((880..1120).contains(&few.len()), "{}", few.len());
    assert!((stats::mean(&few).unwrap() - 0.010).abs() < 0.0008, "{:?}", stats::mean(&few));
    assert!(late.iter().all(|late| *late <= ms(20)) && overtaken > 800, "{overtaken}");
    // In order, whatever follows waits.
    let (late, overtaken) = lateness(false);
    assert!(late.iter().all(|late| *late <= ms(20)) && overtaken == 0);
    assert!(late.iter().filter(|late| !late.is_zero()).count() > 4000);
}
