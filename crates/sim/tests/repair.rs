//! Coded repair in the real channel: the end of a file does not wait for a second round trip, and
//! nothing else suffers.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::{registry, Bytes, Duration, Rate, Setup, Share, Time};
use skyhaul_pep::auth::SecretKey;
use skyhaul_pep::limits::Split;
use skyhaul_pep::repair::RepairStats;
use skyhaul_pep::{Config, Tuning};
use skyhaul_sim::scenario::{Dir, Scenario};
use skyhaul_sim::tunnel::{Pair, Plan, Reader, Transfer};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn geo() -> Scenario {
    Scenario::find("p1.down-270").unwrap()
}

fn key() -> SecretKey {
    SecretKey::generate(&ring::rand::SystemRandom::new()).unwrap()
}

/// Both ends are told their rate.
fn plan(scenario: &Scenario, repair: bool, seed: u64) -> Plan {
    let (terminal, gateway) = (key(), key());
    let rtt = scenario.rtt();
    let config = |secret: &SecretKey, peer: &SecretKey, rate: Rate, n: u8| {
        let setup = Setup { link_rate: Some(rate), initial_rtt: rtt, ..Setup::new(Bytes(1500)) };
        Config {
            secret: secret.clone(),
            peers: vec![peer.public()],
            controller: Arc::new(move |_| registry::build("rate", &setup).unwrap()),
            tuning: Tuning { initial_rtt: rtt, repair, ..Tuning::default() },
            memory: Bytes::mib(256),
            seed: [n; 32],
        }
    };
    Plan {
        terminal: config(&terminal, &gateway, scenario.forward.rate, 1),
        gateway: config(&gateway, &terminal, scenario.back.rate, 2),
        seed,
    }
}

fn run(scenario: &Scenario, repair: bool, seed: u64, transfers: Vec<Transfer>) -> Pair {
    let mut pair = Pair::new(scenario, plan(scenario, repair, seed), transfers).unwrap();
    pair.run(Time::from_secs(300));
    for (n, outcome) in pair.outcomes().iter().enumerate() {
        assert!(outcome.finished.is_some(), "{n}: {outcome:?}, {:?}", pair.down(Dir::Forward));
        assert!(!outcome.corrupt && outcome.delivered == outcome.written, "{n}: {outcome:?}");
    }
    pair
}

/// What the sender of this direction has done, and the receiver.
fn stats(pair: &mut Pair, dir: Dir) -> (RepairStats, RepairStats) {
    let other = if dir == Dir::Forward { Dir::Back } else { Dir::Forward };
    let [sender, receiver] = [dir, other].map(|dir| {
        let peer = pair.peer(dir).unwrap();
        pair.tunnel(dir).stats(peer).unwrap().repair
    });
    (sender, receiver)
}

fn took(pair: &Pair, n: usize) -> Duration {
    let outcome = pair.outcomes()[n];
    outcome.finished.unwrap() - outcome.opened.unwrap()
}

#[test]
fn the_end_of_a_file_is_there_a_tenth_of_a_round_trip_after_a_link_without_loss() {
    let file = |scenario: &Scenario, repair, seed| {
        let mut pair = run(scenario, repair, seed, vec![Transfer::new(Dir::Forward, 64 * MIB)]);
        let stats = stats(&mut pair, Dir::Forward);
        (took(&pair, 0), stats)
    };
    let mut clean = geo();
    clean.forward.loss = Share::ZERO;
    clean.back.loss = Share::ZERO;
    let (ideal, _) = file(&clean, false, 1);
    for seed in 1..4 {
        let (with, (sender, receiver)) = file(&geo(), true, seed);
        let (without, (idle, _)) = file(&geo(), false, seed);
        // What is lost must be sent again, repaired or not.
        let floor = ideal.mul_f64(1.0 / (1.0 - geo().forward.loss.value()));
        let rtt = geo().rtt();
        assert!(with < floor + rtt.mul_f64(0.05), "seed {seed}: {with:?}, {floor:?} at best");
        assert!(without > floor + rtt.mul_f64(0.8), "seed {seed}: {without:?} without repair");
        assert!(receiver.repaired > Bytes(60_000), "{receiver:?}");
        assert!(sender.sent_bytes < Bytes(MIB), "{sender:?}");
        assert_eq!(idle, RepairStats::default());
    }
}

#[test]
fn a_saturated_link_carries_no_repair() {
    let mut pair =
        Pair::new(&geo(), plan(&geo(), true, 1), vec![Transfer::new(Dir::Forward, u64::MAX)]).unwrap();
    pair.run(Time::from_secs(3));
    let (before, _) = stats(&mut pair, Dir::Forward);
    pair.run(Time::from_secs(12));
    let (after, _) = stats(&mut pair, Dir::Forward);
    assert!(pair.outcomes()[0].delivered > 100 * MIB);
    assert_eq!(after.sent, before.sent);
}

#[test]
fn flows_of_all_sizes_arrive_intact_and_memory_is_given_back() {
    let transfers = |n: u64| {
        let data = if n.is_multiple_of(4) { Dir::Back } else { Dir::Forward };
        let bytes = [0, 1, 1_000, 70_000, 900_000, 3_000_000][n as usize % 6] + n;
        let write = [1, 700, 1_400, 65_536][n as usize % 4].max(bytes as usize / 500);
        Transfer { start: Time::from_millis(37 * n), write, ..Transfer::new(data, bytes) }
    };
    let mut scenario = geo();
    // Enough for all kinds of accidents, repaired twice over and not at all.
    scenario.forward.loss = Share::new(0.05).unwrap();
    scenario.back.loss = Share::new(0.05).unwrap();
    let mut pair = run(&scenario, true, 3, (0..150).map(transfers).collect());
    for dir in Dir::ALL {
        assert_eq!(pair.tunnel(dir).held(), (Bytes::ZERO, Bytes::ZERO), "{dir:?}");
        let peer = pair.peer(dir).unwrap();
        let stats = pair.tunnel(dir).stats(peer).unwrap();
        assert_eq!(stats.loss_disagreements, 0, "{dir:?}: {stats:?}");
        assert!(stats.repair.decoded > 0, "{dir:?}: {stats:?}");
    }
}

#[test]
fn memory_for_repair_is_bounded_and_given_back_when_repair_has_been_sent() {
    let scenario = geo();
    let file = |bytes| Transfer::new(Dir::Forward, bytes);
    let stopped = Transfer { reader: Reader::Stopped, ..file(u64::MAX) };
    let mut plan = plan(&scenario, true, 1);
    plan.gateway.memory = Bytes::mib(256);
    let last = Transfer { start: Time::from_secs(1_000), ..file(1) };
    let transfers = [vec![stopped; 4], vec![file(100 * MIB), last]].concat();
    let mut pair = Pair::new(&scenario, plan, transfers).unwrap();
    let (mut retained, mut kept) = (Bytes::ZERO, Bytes::ZERO);
    for tenth in 0..250 {
        pair.run(Time::from_millis(100 * tenth));
        if pair.peer(Dir::Forward).is_some() && pair.peer(Dir::Back).is_some() {
            let (sender, receiver) = stats(&mut pair, Dir::Forward);
            (retained, kept) = (retained.max(sender.retained), kept.max(receiver.kept));
        }
    }
    assert!(pair.outcomes()[4].finished.is_some());
    let split = Split::of(Bytes::mib(256), 4096);
    assert!(retained > split.retained / 4 * 3 && retained <= split.retained, "{retained}");
    assert!(kept > Bytes::mib(1) && kept <= split.kept, "{kept}");
    // Everybody waits for a reader that will not read, and everything was repaired.
    assert_eq!(stats(&mut pair, Dir::Forward).0.retained, Bytes::ZERO);
}

/// Objects of these sizes, one after the other, `count` of each and both ways, on a channel that is up:
/// time from opening the flow to the end at the receiver, beyond one-way delay and sending time.
fn objects(scenario: &Scenario, repair: bool, sizes: &[u64], count: u64) -> (Vec<Vec<Duration>>, Pair) {
    let gap = scenario.rtt() * 3;
    let mut transfers = Vec::new();
    for n in 0..count {
        for (i, &size) in sizes.iter().enumerate() {
            for (j, data) in Dir::ALL.into_iter().enumerate() {
                let place = (n * sizes.len() as u64 + i as u64) * 2 + j as u64;
                let start = Time::from_secs(2) + gap * place as u32;
                transfers.push(Transfer { start, ..Transfer::new(data, size) });
            }
        }
    }
    let mut pair = Pair::new(scenario, plan(scenario, repair, 5), transfers.clone()).unwrap();
    pair.run(Time::from_secs(100_000));
    let mut beyond = vec![Vec::new(); sizes.len()];
    for (n, (transfer, outcome)) in transfers.iter().zip(pair.outcomes()).enumerate() {
        assert!(outcome.finished.is_some() && !outcome.corrupt, "{n}: {outcome:?}");
        let link = scenario.direction(transfer.data);
        // Headers are a twentieth of what carries data; the flow's own header is small.
        let sending = link.rate.time_for(Bytes(transfer.bytes + transfer.bytes / 20 + 100));
        beyond[n / 2 % sizes.len()].push(took(&pair, n).saturating_sub(link.one_way + sending));
    }
    beyond.iter_mut().for_each(|times| times.sort());
    (beyond, pair)
}

#[test]
fn small_objects_on_a_warm_channel_take_no_second_round_trip() {
    let sizes = [300, 10_000, 64_000];
    let scenario = geo();
    let late = |times: &[Duration]| times.iter().filter(|&&time| time > Duration::from_millis(25)).count();
    let (beyond, mut pair) = objects(&scenario, true, &sizes, 200);
    let (without, _) = objects(&scenario, false, &sizes, 200);
    for ((size, times), without) in sizes.iter().zip(&beyond).zip(&without) {
        // Measured: none of 400 each, and 3, 17 and 96 without repair.
        assert!(late(times) * 100 <= times.len(), "{size} bytes: {} of {}", late(times), times.len());
        assert!(late(without) > late(times), "{size} bytes: {} without repair", late(without));
    }
    for dir in Dir::ALL {
        let (sender, _) = stats(&mut pair, dir);
        assert!(sender.copies > 300 && sender.sent < 8 * 400, "{dir:?}: {sender:?}");
    }
}

#[test]
fn acknowledgments_and_copies_of_them_do_not_keep_an_idle_channel_busy() {
    let never = Transfer { start: Time::from_secs(1_000), ..Transfer::new(Dir::Forward, 1) };
    let transfers = vec![Transfer::new(Dir::Forward, MIB), never];
    let mut plan = plan(&geo(), true, 2);
    for config in [&mut plan.terminal, &mut plan.gateway] {
        // Its probes keep no channel busy either, but are not what is counted here.
        config.tuning.rollback.enabled = false;
    }
    let mut pair = Pair::new(&geo(), plan, transfers).unwrap();
    let mut sent = |until| {
        pair.run(Time::from_secs(until));
        assert!(pair.outcomes()[0].finished.is_some());
        Dir::ALL.map(|dir| pair.counters(dir).offered.packets)
    };
    // By then the last word has been acknowledged.
    let before = sent(6);
    let after = sent(16);
    for (before, after) in before.into_iter().zip(after) {
        // A ping every 2 s from either end, its acknowledgment, a report of it.
        assert!(after - before <= 5 * 4, "{before} {after}");
    }
}

/// Figures for docs/repair.md: seconds of a file with and without, and without any loss.
#[test]
#[ignore = "prints figures, decides nothing; a minute"]
fn files_with_and_without() {
    let cell = |rate: u64, one_way: u64, loss: f64| {
        let mut scenario = geo();
        scenario.forward.rate = Rate::mbit(rate);
        scenario.forward.queue = Bytes(20_000_000);
        for direction in [&mut scenario.forward, &mut scenario.back] {
            direction.one_way = Duration::from_millis(one_way);
            direction.loss = Share::new(loss).unwrap();
        }
        scenario
    };
    let cells = [
        ("150 Mbit/s, 540 ms, 1.2 %", geo(), 64),
        ("150 Mbit/s, 540 ms, 1.2 %", geo(), 512),
        ("10 Mbit/s, 540 ms, 1.2 %", cell(10, 270, 0.012), 64),
        ("1 Gbit/s, 50 ms, 0.5 %", cell(1_000, 25, 0.005), 476),
        ("100 Mbit/s, 500 ms, 7.7 %", cell(100, 250, 0.077), 238),
    ];
    for (name, scenario, mib) in cells {
        let transfer = || vec![Transfer::new(Dir::Forward, mib * MIB)];
        let [mut with, mut without] = [[Duration::ZERO; 3]; 2];
        let mut last = RepairStats::default();
        for seed in 0..3 {
            let mut pair = run(&scenario, true, seed + 1, transfer());
            with[seed as usize] = took(&pair, 0);
            last = stats(&mut pair, Dir::Forward).0;
            without[seed as usize] = took(&run(&scenario, false, seed + 1, transfer()), 0);
        }
        let mut clean = scenario.clone();
        clean.forward.loss = Share::ZERO;
        let ideal =
            took(&run(&clean, false, 1, transfer()), 0).mul_f64(1.0 / (1.0 - scenario.forward.loss.value()));
        println!(
            "{name}, {mib} MiB: with {with:.3?}, without {without:.3?}, no tail {ideal:.3?}; {} messages",
            last.sent
        );
    }
}

#[test]
fn a_channel_that_closes_with_repair_outstanding_comes_to_rest() {
    for after in [0, 1, 5, 9] {
        let request = Transfer { start: Time::from_secs(3), ..Transfer::new(Dir::Forward, 300) };
        let never = Transfer { start: Time::from_secs(1_000), ..request };
        let mut pair = Pair::new(&geo(), plan(&geo(), true, 1), vec![request, never]).unwrap();
        pair.run(Time::from_millis(3_000 + after));
        let (now, peer) = (pair.now(), pair.peer(Dir::Forward).unwrap());
        pair.tunnel(Dir::Forward).close(now, peer, "enough");
        // It would never return, were it woken again and again at one time.
        pair.run(Time::from_secs(30));
        assert_eq!(pair.now(), Time::from_secs(30));
        assert!(pair.tunnel(Dir::Forward).stats(peer).is_none(), "the connection is forgotten");
    }
}
