use std::collections::BTreeMap;

use bytes::Bytes as Data;
use proptest::prelude::*;
use skyhaul_cc::units::{Duration, Share, Time};

use super::*;

fn options(block: usize, redundancy: Redundancy, order: Order) -> Options {
    let encoder = EncoderOptions { block, redundancy, ..EncoderOptions::default() };
    Options { encoder, decoder: DecoderOptions { order, ..DecoderOptions::default() } }
}

fn share(value: f64) -> Share {
    Share::new(value).unwrap()
}

/// Packet `n`, told from every other.
fn packet(n: usize, length: usize) -> Vec<u8> {
    (0..length.max(4)).map(|i| ((n >> (8 * (i % 4))) ^ (i / 4 * 37)) as u8).collect()
}

fn sent(end: &mut End) -> Vec<Data> {
    std::iter::from_fn(|| end.poll_transmit()).collect()
}

fn delivered(end: &mut End) -> Vec<Data> {
    std::iter::from_fn(|| end.poll_deliver()).collect()
}

fn encode(options: Options, packets: &[Vec<u8>]) -> Vec<Data> {
    let mut end = End::new(options);
    packets.iter().for_each(|packet| end.push(Time::ZERO, packet).unwrap());
    end.handle_timeout(Time::from_secs(1));
    sent(&mut end)
}

fn decode(options: Options, datagrams: impl IntoIterator<Item = Data>) -> (End, Vec<Data>) {
    let mut end = End::new(options);
    for datagram in datagrams {
        // A refusal is an outcome like any other.
        let _ = end.handle_datagram(Time::ZERO, datagram);
    }
    end.handle_timeout(Time::from_secs(1));
    let packets = delivered(&mut end);
    (end, packets)
}

/// A small generator of its own: the crate has no other.
struct Dice(u64);

impl Dice {
    fn unit(&mut self) -> f64 {
        // Multiplier of Knuth's MMIX generator.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::AsTheyCome), Just(Order::default())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_k_of_n_datagrams_bring_all_packets_back_each_once(
        lengths in prop::collection::vec(1usize..1500, 1..=MOST_DATA),
        repairs in 1usize..20,
        first in prop_oneof![Just(0u32), Just(u32::MAX - 7), any::<u32>()],
        order in order(),
        seed in any::<u64>(),
    ) {
        let k = lengths.len();
        let redundancy = Redundancy::Fixed(share(((repairs as f64 + 0.5) / k as f64).min(1.0)));
        let mut options = options(k, redundancy, order);
        options.encoder.first = first;
        let packets: Vec<_> = lengths.iter().enumerate().map(|(n, &length)| packet(n, length)).collect();
        let mut datagrams = encode(options, &packets);
        prop_assert!(datagrams.len() > k && datagrams.len() <= MOST_IN_BLOCK);
        let mut dice = Dice(seed);
        while datagrams.len() > k {
            datagrams.remove((dice.unit() * datagrams.len() as f64) as usize);
        }
        let (end, got) = decode(options, datagrams);
        let sorted = |packets: &mut Vec<Vec<u8>>| packets.sort();
        let (mut want, mut have) = (packets.clone(), got.iter().map(|p| p.to_vec()).collect::<Vec<_>>());
        if order == Order::AsTheyCome {
            sorted(&mut want);
            sorted(&mut have);
        }
        prop_assert_eq!(want, have);
        prop_assert_eq!(end.decoder().stats().delivered, k as u64);
    }

    #[test]
    fn copies_and_disorder_give_each_packet_once(
        copies in 1usize..4,
        first in any::<u32>(),
        order in order(),
        seed in any::<u64>(),
    ) {
        let mut options = options(10, Redundancy::Fixed(share(0.2)), order);
        options.encoder.first = first;
        let packets: Vec<_> = (0..100).map(|n| packet(n, 40)).collect();
        let once = encode(options, &packets);
        let mut datagrams: Vec<_> = (0..copies).flat_map(|_| once.clone()).collect();
        let mut dice = Dice(seed);
        for i in (1..datagrams.len()).rev() {
            datagrams.swap(i, (dice.unit() * (i + 1) as f64) as usize);
        }
        let (end, got) = decode(options, datagrams);
        let mut counts = BTreeMap::new();
        got.iter().for_each(|packet| *counts.entry(packet.to_vec()).or_insert(0) += 1);
        prop_assert!(counts.values().all(|&count| count == 1));
        prop_assert_eq!(counts.len(), packets.len());
        let stats = end.decoder().stats();
        prop_assert_eq!(stats.refused + stats.received, (once.len() * copies) as u64);
        prop_assert_eq!(stats.lost, 0);
    }

    #[test]
    fn mangled_and_made_up_datagrams_do_no_harm(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..60),
        noise in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..60),
        order in order(),
    ) {
        let options = options(8, Redundancy::Fixed(share(0.5)), order);
        let packets: Vec<_> = (0..64).map(|n| packet(n, 30)).collect();
        let genuine = encode(options, &packets);
        let mut datagrams = genuine.clone();
        for (which, place, value) in cuts {
            let mut bytes = which.get(&genuine).to_vec();
            let place = place.index(bytes.len());
            if value % 4 == 0 {
                bytes.truncate(place);
            } else {
                bytes[place] = value;
            }
            datagrams.push(bytes.into());
        }
        datagrams.extend(noise.into_iter().map(Data::from));
        let offered = datagrams.len() as u64;
        let (end, got) = decode(options, datagrams);
        let stats = end.decoder().stats();
        prop_assert_eq!(got.len() as u64, stats.delivered);
        prop_assert!(stats.received <= offered && stats.most_kept <= 1024);
        // What was not touched came first.
        prop_assert!(packets.iter().all(|packet| got.iter().any(|other| other == packet)));
    }
}

#[test]
fn data_leaves_at_once_and_is_handed_on_at_once() {
    let (mut near, mut far) = (End::new(Options::default()), End::new(Options::default()));
    for n in 0..200 {
        near.push(Time::ZERO, &packet(n, 1400)).unwrap();
        let data = near.poll_transmit().unwrap();
        assert_eq!(data.len(), 1406);
        far.handle_datagram(Time::ZERO, data).unwrap();
        assert_eq!(far.poll_deliver().unwrap(), packet(n, 1400), "packet {n}");
        // Repairs, whatever their number, change nothing.
        while let Some(repair) = near.poll_transmit() {
            assert_eq!(repair.len(), 1400 + ROOM);
            far.handle_datagram(Time::ZERO, repair).unwrap();
            assert_eq!(far.poll_deliver(), None);
        }
    }
}

#[test]
fn a_short_tail_is_protected_after_the_time_limit() {
    let options = Options::default();
    let (mut near, mut far) = (End::new(options), End::new(options));
    let at = Time::from_millis(3);
    near.push(at, b"the last").unwrap();
    assert_eq!(near.timeout(), Some(at + options.encoder.time_limit));
    near.handle_timeout(at);
    assert_eq!(sent(&mut near).len(), 1, "too early for a repair");
    near.handle_timeout(at + options.encoder.time_limit);
    let repair = near.poll_transmit().unwrap();
    far.handle_datagram(at, repair).unwrap();
    assert_eq!(far.poll_deliver().unwrap(), "the last");
    assert_eq!(near.timeout(), None);
}

#[test]
fn a_packet_behind_a_gap_waits_for_the_repair_and_no_longer_than_allowed() {
    let limit = Duration::from_millis(60);
    let options = options(4, Redundancy::Fixed(share(0.25)), Order::Hold(limit));
    let packets: Vec<_> = (0..8).map(|n| packet(n, 50)).collect();
    let datagrams = encode(options, &packets);
    let take = |far: &mut End, which: &[usize], now: Time| {
        which.iter().for_each(|&n| far.handle_datagram(now, datagrams[n].clone()).unwrap());
        delivered(far)
    };
    let mut far = End::new(options);
    assert_eq!(take(&mut far, &[0], Time::ZERO), packets[..1]);
    let at = Time::from_millis(5);
    assert!(take(&mut far, &[2, 3], at).is_empty());
    assert_eq!(far.decoder().timeout(), Some(at + limit));
    assert_eq!(take(&mut far, &[4], at), packets[1..4], "the repair brings the second packet");

    let mut far = End::new(options);
    assert_eq!(take(&mut far, &[0], Time::ZERO), packets[..1]);
    assert!(take(&mut far, &[2, 3], at).is_empty());
    far.handle_timeout(at + limit);
    assert_eq!(delivered(&mut far), packets[2..4], "no repair came");
    assert_eq!(take(&mut far, &[4], at + limit), packets[1..2], "and then it did");
}

#[test]
fn nobody_waits_for_a_block_that_is_beyond_repair() {
    let options = options(16, Redundancy::Fixed(share(0.0625)), Order::Hold(Duration::from_secs(9)));
    let packets: Vec<_> = (0..32).map(|n| packet(n, 50)).collect();
    let mut datagrams = encode(options, &packets);
    assert_eq!(datagrams.len(), 34);
    // Two packets and no repair of the first block: 15 of 17 arrive.
    datagrams.drain(4..6);
    let mut far = End::new(options);
    let mut count = 0;
    for datagram in datagrams.drain(..15 + 8) {
        far.handle_datagram(Time::ZERO, datagram).unwrap();
        count += delivered(&mut far).len();
    }
    assert_eq!(count, 14 + 8, "eight packets of the next block are patience enough");
    assert_eq!(far.decoder().stats().repaired, 0);
}

#[test]
fn what_cannot_be_repaired_is_counted_as_lost() {
    let options = options(10, Redundancy::Fixed(share(0.2)), Order::default());
    let packets: Vec<_> = (0..2000).map(|n| packet(n, 50)).collect();
    let datagrams = encode(options, &packets);
    // Of the third block, three packets: more than its two repairs.
    let lost = |n: &usize| !(26..29).contains(n);
    let kept = datagrams.into_iter().enumerate().filter(|(n, _)| lost(n)).map(|(_, datagram)| datagram);
    let (end, got) = decode(options, kept);
    assert_eq!(got.len(), 1997);
    assert_eq!(end.decoder().stats().lost, 3);
    // Those of the block that stays broken and of the present one.
    assert!(end.decoder().stats().most_kept <= 9 + 10);
}

#[test]
fn fixed_redundancy_is_exact_in_the_long_run_and_none_costs_a_header() {
    for (share_of_data, expected) in [(0.0, 0), (0.1, 640), (0.07, 448), (1.0 / 3.0, 2133)] {
        let redundancy = Redundancy::Fixed(share(share_of_data));
        let mut encoder = Encoder::new(EncoderOptions { redundancy, ..EncoderOptions::default() });
        for n in 0..6400 {
            encoder.push(Time::ZERO, &packet(n, 100)).unwrap();
        }
        let stats = encoder.stats();
        assert_eq!((stats.data, stats.blocks), (6400, 100));
        assert!(stats.repairs.abs_diff(expected) <= 1, "{share_of_data}: {}", stats.repairs);
    }
    let off = encode(options(64, Redundancy::Off, Order::AsTheyCome), &[packet(1, 1000)]);
    assert_eq!(off.iter().map(Data::len).collect::<Vec<_>>(), [1006]);
}

#[test]
fn residual_loss_has_the_binomial_tail() {
    let p = share(0.012);
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 + 1e-9 * b;
    // Nothing is repaired; a copy of one packet; two packets with a repair, by hand.
    assert!(near(residual_loss(64, 0, p), 0.012));
    assert!(near(residual_loss(1, 1, p), 0.012 * 0.012));
    assert!(near(residual_loss(2, 1, p), 3.0 * 0.012 * 0.012 * 0.988 * 2.0 / 3.0 + 0.012_f64.powi(3)));
    assert_eq!(residual_loss(50, 10, Share::ZERO), 0.0);
    assert_eq!(residual_loss(50, 10, Share::ONE), 1.0);
    for k in [1, 10, 64, 100] {
        let r = repairs_for(k, p, share(1e-6), 100);
        assert!(residual_loss(k, r, p) <= 1e-6 && residual_loss(k, r - 1, p) > 1e-6, "{k}: {r}");
    }
    assert_eq!(repairs_for(64, p, share(1e-6), 3), 3);
}

#[test]
fn losses_after_repair_are_as_many_as_computed() {
    // A loss high enough and repairs few enough to count the rest: 0.9 % computed.
    let (k, r, p) = (20, 4, share(0.08));
    let options = options(k, Redundancy::Fixed(share(r as f64 / k as f64)), Order::default());
    let (mut near, mut far) = (End::new(options), End::new(options));
    let mut dice = Dice(5);
    let packets = 100_000;
    for n in 0..packets {
        near.push(Time::ZERO, &packet(n, 20)).unwrap();
        while let Some(datagram) = near.poll_transmit() {
            if dice.unit() >= p.value() {
                far.handle_datagram(Time::ZERO, datagram).unwrap();
            }
        }
        while far.poll_deliver().is_some() {}
    }
    let measured = far.decoder().stats().lost as f64 / packets as f64;
    let computed = residual_loss(k, r, p);
    assert!((measured / computed - 1.0).abs() < 0.1, "measured {measured}, computed {computed}");
}

#[test]
fn adaptive_redundancy_follows_the_loss_that_is_reported() {
    let (mut near, mut far) = (End::new(Options::default()), End::new(Options::default()));
    let mut dice = Dice(11);
    let mut at = Time::ZERO;
    let mut run = |loss: f64, packets: usize| {
        let before = *near.encoder().stats();
        for n in 0..packets {
            at += Duration::from_micros(80);
            near.push(at, &packet(n, 20)).unwrap();
            near.handle_timeout(at);
            far.handle_timeout(at);
            while let Some(datagram) = near.poll_transmit() {
                if dice.unit() >= loss {
                    far.handle_datagram(at, datagram).unwrap();
                }
            }
            while let Some(report) = far.poll_transmit() {
                near.handle_datagram(at, report).unwrap();
            }
            while far.poll_deliver().is_some() {}
        }
        let stats = near.encoder().stats();
        let repairs = stats.repairs - before.repairs;
        (stats.loss.value(), repairs as f64 / (stats.blocks - before.blocks) as f64)
    };
    let (_, _) = run(0.012, 60_000);
    let (loss, repairs) = run(0.012, 60_000);
    assert!((0.008..0.016).contains(&loss), "{loss}");
    // Six suffice for 1.2 % itself with 10⁻⁵, seven with 10⁻⁶; the caution may add one.
    assert!((7.0..8.5).contains(&repairs), "{repairs}");
    let (_, _) = run(0.0, 60_000);
    let (loss, repairs) = run(0.0, 60_000);
    assert!(loss < 1e-4 && repairs < 2.0, "{loss} {repairs}");
}

#[test]
fn reports_out_of_order_repeated_or_made_up_leave_the_estimate_within_bounds() {
    let mut encoder = Encoder::new(EncoderOptions::default());
    let mut dice = Dice(3);
    for _ in 0..10_000 {
        let mut field = || if dice.unit() < 0.5 { (dice.unit() * 5e9) as u32 } else { 1000 };
        let report = header::Report { next: field(), received: field(), repaired: field(), lost: field() };
        encoder.on_report(&report.encode()).unwrap();
        assert!((0.0..=1.0).contains(&encoder.stats().loss.value()));
        encoder.push(Time::ZERO, b"any").unwrap();
        while encoder.poll_transmit().is_some() {}
    }
    let stats = encoder.stats();
    assert!(stats.repairs * 4 <= stats.data, "never more than asked for: {stats:?}");
    assert_eq!(encoder.on_report(b"\x13short"), Err(Refused::Malformed));
}

#[test]
fn an_end_that_begins_anew_is_followed_after_one_datagram() {
    let options = options(4, Redundancy::Off, Order::default());
    let old = encode(options, &[packet(1, 20), packet(2, 20)]);
    let mut anew = options;
    anew.encoder.first = 1 << 30;
    let new = encode(anew, &[packet(3, 20), packet(4, 20), packet(5, 20)]);
    let mut far = End::new(options);
    for datagram in old {
        far.handle_datagram(Time::ZERO, datagram).unwrap();
    }
    assert_eq!(far.handle_datagram(Time::ZERO, new[0].clone()), Err(Refused::Astray));
    far.handle_datagram(Time::ZERO, new[1].clone()).unwrap();
    far.handle_datagram(Time::ZERO, new[2].clone()).unwrap();
    far.handle_timeout(Time::from_secs(1));
    let got = delivered(&mut far);
    assert_eq!(got, [packet(1, 20), packet(2, 20), packet(4, 20), packet(5, 20)]);
}

#[test]
fn packets_of_impossible_length_are_refused() {
    let mut encoder = Encoder::new(EncoderOptions { block: 1, ..EncoderOptions::default() });
    assert_eq!(encoder.push(Time::ZERO, b""), Err(Refused::Length(0)));
    let longest = vec![7; LARGEST_PACKET];
    assert_eq!(
        encoder.push(Time::ZERO, &[&longest[..], b"x"].concat()),
        Err(Refused::Length(LARGEST_PACKET + 1))
    );
    encoder.push(Time::ZERO, &longest).unwrap();
    let datagrams: Vec<_> = std::iter::from_fn(|| encoder.poll_transmit()).collect();
    assert!(datagrams.len() >= 2 && datagrams.iter().all(|datagram| datagram.len() <= 65_507));
    let (_, got) = decode(Options::default(), datagrams.into_iter().skip(1));
    assert_eq!(got, [longest]);
}

#[test]
fn many_open_blocks_are_kept_within_the_window_only() {
    let options = options(100, Redundancy::Fixed(share(0.1)), Order::Hold(Duration::from_secs(100)));
    let packets: Vec<_> = (0..50_000).map(|n| packet(n, 20)).collect();
    // The first packet of each block and all repairs are lost: nothing is ever settled.
    let datagrams = encode(options, &packets).into_iter().enumerate();
    let kept = datagrams.filter(|(n, _)| (1..100).contains(&(n % 110))).map(|(_, datagram)| datagram);
    let (end, got) = decode(options, kept);
    assert_eq!(got.len(), 49_500);
    assert!(end.decoder().stats().most_kept <= 1024, "{:?}", end.decoder().stats());
}

#[test]
fn small_packets_do_not_wait_behind_a_gap_and_nothing_waits_for_them() {
    let mut options = options(6, Redundancy::Fixed(share(0.34)), Order::Hold(Duration::from_secs(9)));
    options.decoder.small = 20;
    let lengths = [20, 500, 20, 500, 20, 500];
    let packets: Vec<_> = lengths.iter().enumerate().map(|(n, &length)| packet(n, length)).collect();
    let datagrams = encode(options, &packets);
    let mut far = End::new(options);
    let mut hear = |numbers: &[usize]| {
        for number in numbers {
            far.handle_datagram(Time::ZERO, datagrams[*number].clone()).unwrap();
        }
        delivered(&mut far)
    };
    // 1 is missing: 3 waits for it, 2 and 4 do not.
    assert_eq!(hear(&[0, 2, 3, 4]), [&packets[0][..], &packets[2], &packets[4]]);
    // The first repair brings 1 and 5 is still to come: with it everything is there, in order.
    assert_eq!(hear(&[5, 6]), [&packets[1][..], &packets[3], &packets[5]]);
}
