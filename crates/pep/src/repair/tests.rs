use super::code::Code;
use super::*;
use crate::channel::RepairHints;
use crate::reassembly::Reassembly;
use bytes::Bytes as Data;
use proptest::prelude::*;
use skyhaul_cc::{Duration, Rtt, Share, Time};
use std::collections::BTreeMap;

const ROOM: usize = 1400;

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
    fn unit(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 31) as f64
    }
}

impl Streams for BTreeMap<u64, Retained> {
    fn retained(&mut self, stream: u64) -> Option<&mut Retained> {
        self.get_mut(&stream)
    }
}

fn hints(loss: f64) -> RepairHints {
    let rtt = Duration::from_millis(540);
    RepairHints {
        loss: Share::new(loss).unwrap(),
        rtt: Rtt { latest: rtt, smoothed: rtt, min: rtt },
        in_flight: skyhaul_cc::Bytes::ZERO,
    }
}

fn bytes(range: std::ops::Range<u64>) -> Data {
    range.map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A stream of `length` bytes given to QUIC at once, and its repair.
fn sent(length: u64, ends: bool, loss: f64) -> (BTreeMap<u64, Retained>, Vec<Message>, RepairStats) {
    let mut retained = Retained::default();
    let mut at = 0;
    while at < length {
        let piece = (length - at).min(65_536);
        retained.push(Time::ZERO, bytes(at..at + piece));
        at += piece;
    }
    if ends {
        retained.end(Time::ZERO);
    }
    let mut streams = BTreeMap::from([(4, retained)]);
    let mut planner = Planner::default();
    planner.sent(4);
    let mut stats = RepairStats::default();
    let mut messages = Vec::new();
    let later = Time::from_millis(100);
    while let Some(message) = planner.next(later, ROOM, hints(loss), &mut streams, &mut stats) {
        assert!(message.len() <= ROOM);
        messages.push(Message::decode(&message).unwrap());
    }
    assert_eq!(planner.due(&mut streams), None);
    (streams, messages, stats)
}

/// Takes out all that is in order.
fn read(input: &mut Reassembly, out: &mut Vec<u8>) {
    while let Some(piece) = input.pop() {
        out.extend_from_slice(&piece);
    }
}

/// Sends `length` bytes as packets of which `loss` get lost, then repair with the same loss, then the
/// lost packets again: how many bytes were there in order after each, and how many repair added.
fn deliver(length: u64, loss: f64, seed: u64) -> (u64, u64, u64) {
    let (_, messages, _) = sent(length, true, loss);
    let mut dice = Dice(seed);
    let (mut input, mut code, mut pending) = (Reassembly::default(), Code::default(), Pending::default());
    input.keep(BLOCK_MAX);
    let (mut out, mut counted, mut lost) = (Vec::new(), 0, Vec::new());
    let mut at = 0;
    while at < length {
        let packet = (length - at).min(1 + dice.next() % 1_430);
        if dice.unit() < loss {
            lost.push((at, packet));
        } else {
            counted += input.insert(at, bytes(at..at + packet));
        }
        at += packet;
    }
    read(&mut input, &mut out);
    let plain = input.contiguous();
    let mut repaired = 0;
    for message in messages {
        if dice.unit() >= loss && pending.add(message, &input) {
            let done = pending.repair(&mut input, &mut code);
            repaired += done.bytes;
            counted += done.bytes;
            read(&mut input, &mut out);
        }
    }
    let with_repair = input.contiguous();
    for (offset, packet) in lost {
        counted += input.insert(offset, bytes(offset..offset + packet));
        counted += pending.repair(&mut input, &mut code).bytes;
        read(&mut input, &mut out);
    }
    assert!(pending.is_empty() && pending.bytes() == 0);
    assert_eq!(counted, length, "each byte counts once");
    assert_eq!(out, bytes(0..length));
    (plain, with_repair, repaired)
}

#[test]
fn what_was_lost_at_the_measured_rate_is_repaired() {
    for (length, loss) in [(600_000, 0.012), (4_000_000, 0.012), (3_000_000, 0.05), (2_500_000, 0.2)] {
        for seed in 0..4 {
            let (plain, with_repair, repaired) = deliver(length, loss, seed);
            assert!(plain < length, "nothing was lost");
            assert_eq!(with_repair, length, "{length} bytes, {loss}, seed {seed}");
            assert!(repaired as f64 > 0.5 * loss * length as f64);
        }
    }
}

#[test]
fn the_messages_of_a_block_are_few_and_every_block_has_some_early() {
    let (_, messages, stats) = sent(10_000_000, true, 0.012);
    let blocks: std::collections::BTreeSet<u64> = messages.iter().map(|message| message.start).collect();
    assert_eq!(blocks.len(), 16);
    assert_eq!(stats.encoded, 16);
    let share = stats.sent_bytes.as_f64() / 10e6;
    assert!((0.02..0.05).contains(&share), "{share}");
    let half: std::collections::BTreeSet<u64> =
        messages[..messages.len() * 6 / 10].iter().map(|message| message.start).collect();
    assert_eq!(half, blocks);
    assert!(messages.iter().all(|message| message.ends == (message.start + message.length == 10_000_000)));
}

#[test]
fn a_stream_that_ends_after_everything_was_covered_is_said_to_end() {
    let (mut streams, _, mut stats) = sent(1_000, false, 0.012);
    streams.get_mut(&4).unwrap().end(Time::from_millis(200));
    let mut planner = Planner::default();
    planner.sent(4);
    let end = planner.next(Time::from_millis(200), ROOM, hints(0.012), &mut streams, &mut stats).unwrap();
    let end = Message::decode(&end).unwrap();
    assert_eq!((end.start, end.length, end.ends), (1_000, 0, true));
}

#[test]
fn repair_waits_for_a_pause_or_enough_bytes_and_never_long() {
    let mut streams = BTreeMap::from([(0, Retained::default())]);
    let mut planner = Planner::default();
    let mut stats = RepairStats::default();
    let ms = Time::from_millis;
    // A piece every 5 ms: never a pause, but an eighth of a round trip is long enough.
    let mut first = None;
    for n in 0..100u64 {
        streams.get_mut(&0).unwrap().push(ms(5 * n), bytes(0..100));
        planner.sent(0);
        if planner.next(ms(5 * n), ROOM, hints(0.01), &mut streams, &mut stats).is_some() {
            first.get_or_insert(5 * n);
        }
    }
    assert_eq!(first, Some(70));
    // Then a pause of an ordinary 1/64.
    while planner.next(ms(496), ROOM, hints(0.01), &mut streams, &mut stats).is_some() {}
    let due = planner.due(&mut streams).unwrap();
    assert!(due > ms(500) && due < ms(505), "{due}");
    assert!(planner.next(due, ROOM, hints(0.01), &mut streams, &mut stats).is_some());
}

#[test]
fn what_the_far_end_has_passed_on_is_let_go_and_no_longer_repaired() {
    let mut retained = Retained::default();
    for n in 0..40u64 {
        retained.push(Time::ZERO, bytes(n * 50_000..(n + 1) * 50_000));
    }
    assert_eq!(retained.bytes(), 2_000_000);
    retained.passed_on(1_860_000);
    assert_eq!(retained.bytes(), 150_000);
    retained.shrink_to(120_000);
    assert_eq!(retained.bytes(), 100_000);
    let mut streams = BTreeMap::from([(0, retained)]);
    let mut planner = Planner::default();
    planner.sent(0);
    let mut stats = RepairStats::default();
    let message = planner.next(Time::from_secs(1), ROOM, hints(0.01), &mut streams, &mut stats).unwrap();
    let message = Message::decode(&message).unwrap();
    assert_eq!((message.start, message.length), (1_900_000, 100_000));
    // It is encoded, and never again.
    assert_eq!(streams[&0].bytes(), 0);
}

/// Any message within the limits.
fn any_message() -> impl Strategy<Value = Message> {
    let numbers = (0..1u64 << 62, 0..1u64 << 61, 1..=BLOCK_MAX, any::<bool>());
    let code = (0u8..=11, 1..=SYMBOL_MAX / 2, any::<prop::sample::Index>(), 1u64..5);
    (numbers, code).prop_filter_map(
        "limits",
        |((stream, start, length, ends), (code_bits, half, at, count))| {
            let symbol = 2 * half;
            let count = count.min(1 << code_bits);
            let first = at.index((1 << code_bits) - count as usize + 1) as u64;
            let symbols = bytes(0..symbol * count);
            let message = Message { stream, start, length, ends, code_bits, symbol, first, symbols };
            let possible = message.data_symbols() <= SYMBOLS_MAX && symbol << code_bits <= PARITY_MAX;
            possible.then_some(message)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_message_survives_the_wire_and_nothing_cut_is_taken_for_whole(message in any_message()) {
        let mut out = Vec::new();
        message.encode(&mut out);
        let out = Data::from(out);
        prop_assert!(out.len() <= wire::HEADER_MAX + message.symbols.len());
        prop_assert_eq!(&Message::decode(&out).unwrap(), &message);
        for cut in 1..message.symbol.min(out.len() as u64) as usize {
            prop_assert!(Message::decode(&out.slice(..out.len() - cut)).is_err());
        }
    }

    #[test]
    fn any_loss_with_repair_delivers_each_byte_once(
        length in 1u64..300_000,
        loss in 0.0f64..0.5,
        seed in any::<u64>(),
    ) {
        deliver(length, loss, seed);
    }

    #[test]
    fn made_up_messages_cost_bounded_memory_and_nothing_else(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..40),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..24, any::<u8>()), 0..40),
        length in 1u64..40_000,
    ) {
        let (_, genuine, _) = sent(length, true, 0.05);
        let mut all: Vec<Data> = messages.into_iter().map(Data::from).collect();
        for (which, place, value) in changes {
            let mut out = Vec::new();
            which.get(&genuine).encode(&mut out);
            let place = place % out.len();
            out[place] = value;
            all.push(out.into());
        }
        let (mut input, mut code, mut pending) = (Reassembly::default(), Code::default(), Pending::default());
        input.insert(0, bytes(0..length / 2));
        let offered: usize = all.iter().map(Data::len).sum();
        for message in all {
            if let Ok(message) = Message::decode(&message) {
                if pending.add(message, &input) {
                    pending.repair(&mut input, &mut code);
                }
            }
        }
        prop_assert!(pending.bytes() <= offered as u64);
        // What had come is as it was.
        let mut out = Vec::new();
        read(&mut input, &mut out);
        prop_assert_eq!(&out[..length as usize / 2], &bytes(0..length / 2)[..]);
    }
}

/// Figures for docs/repair.md.
#[test]
#[ignore = "prints figures, decides nothing"]
fn what_a_block_costs() {
    #[allow(clippy::disallowed_methods)]
    let now = std::time::Instant::now;
    for (length, symbol) in [(640 << 10, 88), (640 << 10, 174), (640 << 10, 348), (1280 << 10, 174)] {
        let layout = Layout { packet: 1400, symbol, per_message: 1400 / symbol };
        let (_, all) = datagrams(Exposed { once: length, twice: 0 }, 0.012, layout);
        let count = all * layout.per_message;
        let code_bits = count.next_power_of_two().ilog2() as u8;
        let (length, symbol, count) = (length as usize, symbol as usize, count as usize);
        let block = bytes(0..length.next_multiple_of(symbol) as u64);
        let mut code = Code::default();
        let mut best = [Duration::MAX; 2];
        // As many packets as get lost on average.
        let touched = 1 + 1400 / symbol;
        let lost = (length as f64 / 1400.0 * 0.012).round() as usize;
        let mut present = vec![true; block.len() / symbol];
        (0..lost).for_each(|n| present[n * 50..n * 50 + touched].fill(false));
        let mut damaged = block.to_vec();
        let missing = damaged.chunks_mut(symbol).zip(&present).filter(|(_, &present)| !present);
        missing.for_each(|(chunk, _)| chunk.fill(0));
        for _ in 0..20 {
            let start = now();
            let symbols = code.encode(&block, symbol, count).unwrap();
            best[0] = best[0].min(start.elapsed());
            let mut copy = damaged.clone();
            let repairs = symbols.chunks(symbol).enumerate().take(lost * touched);
            let start = now();
            assert!(code.decode(&mut copy, symbol, &present, code_bits, repairs));
            best[1] = best[1].min(start.elapsed());
            assert_eq!(copy, block);
        }
        let [encode, decode] = best;
        println!("{length} in {symbol}: {all} messages, encode {encode:?}, decode {decode:?}");
    }
}
