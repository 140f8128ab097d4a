//! The channel's roll back in virtual time: what is detected how fast, that running transfers go on byte-exact, and
//! that nothing is detected where nothing is wrong.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::{registry, Bytes, Duration, Rate, Setup, Share, Time};
use skyhaul_pep::{Standing, Trouble};
use skyhaul_sim::scenario::{Change, Dir, Scenario};
use skyhaul_sim::tunnel::{Outcome, Pair, Passage, Plan, Reader, TcpAnswer, TcpModel, Transfer};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const FAULT: Time = Time::from_secs(10);

/// Paper 001's satellite link; a slower one of the same length where the rate does not matter, which costs less to play.
fn geo() -> Scenario {
    Scenario::find("p1.down-270").unwrap()
}

fn slow() -> Scenario {
    let mut scenario = geo();
    scenario.forward.rate = Rate::mbit(20);
    scenario.forward.queue = Bytes(675_000);
    scenario.back.rate = Rate::mbit(4);
    scenario.back.queue = Bytes(135_000);
    scenario
}

fn seconds(n: u64) -> Time {
    Time::from_secs(n)
}

/// Both ends with our own controller; a channel that returns to UDP is told what it had learnt.
fn plan(scenario: &Scenario) -> Plan {
    let mut plan = Plan::new(scenario, "skyhaul", 1).unwrap();
    for config in [&mut plan.terminal, &mut plan.gateway] {
        let rtt = scenario.rtt();
        config.controller = Arc::new(move |way| {
            let initial_window = Bytes(1500) * registry::first_flight("skyhaul");
            let setup =
                Setup { initial_rtt: rtt, initial_window, history: way.history, ..Setup::new(Bytes(1500)) };
            registry::build("skyhaul", &setup).unwrap()
        });
    }
    plan
}

fn pair_on(scenario: &Scenario, transfers: Vec<Transfer>) -> Pair {
    Pair::new(scenario, plan(scenario), transfers).unwrap()
}

fn outage(scenario: &mut Scenario, dirs: &[Dir], length: Duration) {
    let change = Change { at: FAULT.since_start(), outage: Some(length), ..Change::default() };
    for dir in dirs {
        match dir {
            Dir::Forward => scenario.forward.changes.push(change.clone()),
            Dir::Back => scenario.back.changes.push(change.clone()),
        }
    }
}

/// An endless transfer each way, the bulk on the fast link.
fn bulk() -> Vec<Transfer> {
    vec![Transfer::new(Dir::Forward, u64::MAX), Transfer::new(Dir::Back, u64::MAX)]
}

fn assert_exact(outcomes: &[Outcome]) {
    for (n, outcome) in outcomes.iter().enumerate() {
        assert!(!outcome.corrupt && outcome.reset.is_none(), "transfer {n}: {outcome:?}");
    }
}

/// When the standing first became one of `wanted` at or after `from`, and why.
fn when(pair: &Pair, dir: Dir, wanted: &[Standing], from: Time) -> (Time, Standing, Trouble) {
    let found = pair.standings(dir).iter().find(|(at, standing, _)| *at >= from && wanted.contains(standing));
    *found.unwrap_or_else(|| panic!("{dir:?}: never {wanted:?} after {from}: {:?}", pair.standings(dir)))
}

/// Delivered rate of the forward transfer between two moments.
fn rate(pair: &mut Pair, from: Time, to: Time) -> Rate {
    pair.run(from);
    let before = pair.outcomes()[0].delivered;
    pair.run(to);
    Bytes(pair.outcomes()[0].delivered - before).per(to - from)
}

fn filtered(pair: &mut Pair, until: Time, mut verdict: impl FnMut(Dir, &[u8]) -> Passage + 'static) {
    pair.filter(Box::new(
        move |now, dir, datagram| {
            if now >= FAULT && now < until {
                verdict(dir, datagram)
            } else {
                Passage::Pass
            }
        },
    ));
}

const DETECT: Duration = Duration::from_secs(3);

#[test]
fn udp_filtered_in_any_direction_is_detected_in_time_and_transfers_go_on_inside_tcp() {
    for blocked in [&[Dir::Forward, Dir::Back][..], &[Dir::Forward], &[Dir::Back]] {
        let mut pair = pair_on(&slow(), bulk());
        filtered(
            &mut pair,
            seconds(40),
            move |dir, _| {
                if blocked.contains(&dir) {
                    Passage::Drop
                } else {
                    Passage::Pass
                }
            },
        );
        pair.run(seconds(20));
        let (at, standing, why) = when(&pair, Dir::Forward, &[Standing::Carried, Standing::Silent], FAULT);
        println!(
            "{blocked:?}: {standing:?} {why:?} after {:?}; gateway {:?}",
            at - FAULT,
            pair.standings(Dir::Back)
        );
        assert!(at - FAULT <= DETECT, "{blocked:?}: {:?}", at - FAULT);
        assert_eq!(standing, Standing::Carried);
        // Whoever hears nothing cannot know which way is blocked.
        assert_eq!(why, if blocked == [Dir::Forward] { Trouble::OneWay } else { Trouble::Silent });
        let carried = rate(&mut pair, seconds(25), seconds(40));
        println!("carried at {carried}");
        assert!(carried > Rate::mbit(14), "{blocked:?}: {carried}");
        // Healthy again at 40 s; the hold is ten seconds.
        pair.run(seconds(60));
        let (back, ..) = when(&pair, Dir::Forward, &[Standing::Up], FAULT);
        println!("back after {:?}", back - seconds(40));
        assert!(back >= seconds(49) && back < seconds(53), "{back}");
        let after = rate(&mut pair, seconds(60), seconds(70));
        println!("afterwards {after}");
        assert!(after > Rate::mbit(16), "{after}");
        assert_exact(pair.outcomes());
        assert_eq!(pair.standings(Dir::Forward).len(), 2, "{:?}", pair.standings(Dir::Forward));
    }
}

#[test]
fn an_mtu_black_hole_is_told_from_silence() {
    for blocked in [&[Dir::Forward, Dir::Back][..], &[Dir::Forward], &[Dir::Back]] {
        let mut pair = pair_on(&slow(), bulk());
        filtered(&mut pair, seconds(30), move |dir, datagram| {
            if blocked.contains(&dir) && datagram.len() > 1172 {
                Passage::Drop
            } else {
                Passage::Pass
            }
        });
        pair.run(seconds(20));
        let (at, standing, why) = when(&pair, Dir::Forward, &[Standing::Carried, Standing::Silent], FAULT);
        println!(
            "{blocked:?}: {standing:?} {why:?} after {:?}; gateway {:?}",
            at - FAULT,
            pair.standings(Dir::Back)
        );
        // In one direction, the end that does not see it hears of it from the other.
        assert!(at - FAULT <= DETECT, "{blocked:?}: {:?}", at - FAULT);
        assert_eq!(why, Trouble::MtuBlackHole, "{standing:?}");
        when(&pair, Dir::Forward, &[Standing::Carried], FAULT);
        pair.run(seconds(60));
        assert_eq!(pair.standings(Dir::Forward).last().unwrap().1, Standing::Up);
        assert_exact(pair.outcomes());
    }
}

#[test]
fn after_an_outage_the_transfer_is_back_within_three_round_trips_and_a_second() {
    for length in [5, 60, 600] {
        let mut scenario = slow();
        outage(&mut scenario, &Dir::ALL, Duration::from_secs(length));
        let mut pair = pair_on(&scenario, bulk());
        let before = rate(&mut pair, seconds(4), FAULT);
        let end = FAULT + Duration::from_secs(length);
        pair.run(end);
        let (at, standing, why) = when(&pair, Dir::Forward, &[Standing::Carried, Standing::Silent], FAULT);
        assert!(at - FAULT <= DETECT, "{:?}", at - FAULT);
        assert_eq!((standing, why), (Standing::Silent, Trouble::Silent));
        let goal = scenario.rtt() * 3 + Duration::from_secs(1);
        if std::env::var("FINE").is_ok() {
            for n in 0..24u64 {
                let at = end + Duration::from_millis(250 * n);
                let got = rate(&mut pair, at, at + Duration::from_millis(250));
                let peer = pair.peer(Dir::Forward).unwrap();
                let stats = pair.tunnel(Dir::Forward).stats(peer).unwrap();
                println!(
                    "  +{} ms {got}: {} {} pace {:?} flight {} lost {}",
                    250 * n,
                    stats.controller.phase,
                    stats.controller.cwnd,
                    stats.controller.pacing_rate,
                    stats.in_flight,
                    stats.packets_lost
                );
            }
            continue;
        }
        let after = rate(&mut pair, end + goal, end + goal + Duration::from_secs(6));
        println!(
            "{length} s: {before} before, {after} after; {:?} {:?}",
            pair.standings(Dir::Forward),
            pair.standings(Dir::Back)
        );
        let share = after.as_f64() / before.as_f64();
        assert!(share >= 0.9, "{length} s: {share}");
        pair.run(end + Duration::from_secs(30));
        assert_exact(pair.outcomes());
        assert_eq!(pair.standings(Dir::Forward).len(), 2, "{:?}", pair.standings(Dir::Forward));
    }
}

#[test]
fn nothing_is_detected_where_nothing_is_wrong() {
    let change = |at: u64, change: Change| Change { at: Duration::from_secs(at), ..change };
    let mut cases: Vec<(&str, Scenario)> = vec![("as it is", slow())];
    for share in [0.05, 0.1] {
        let mut lossy = slow();
        (lossy.forward.loss, lossy.back.loss) = (Share::new(share).unwrap(), Share::new(share).unwrap());
        cases.push(("loss", lossy));
    }
    let mut blackout = slow();
    for at in [8, 16, 24] {
        let outage = Some(Duration::from_secs(1));
        blackout.back.changes.push(change(at, Change { outage, ..Change::default() }));
    }
    cases.push(("a second without acknowledgments", blackout));
    let mut fade = slow();
    for (at, mbit, loss) in [(8, 4, 0.03), (14, 2, 0.08), (22, 8, 0.02), (30, 20, 0.012)] {
        let (rate, loss) = (Some(Rate::mbit(mbit)), Share::new(loss));
        fade.forward.changes.push(change(at, Change { rate, loss, ..Change::default() }));
    }
    cases.push(("a fade", fade));
    for (name, scenario) in cases {
        for idle in [true, false] {
            let transfers = if idle {
                vec![Transfer { start: seconds(10_000), ..Transfer::new(Dir::Forward, 1) }]
            } else {
                bulk()
            };
            let mut pair = pair_on(&scenario, transfers);
            pair.run(seconds(if idle { 600 } else { 45 }));
            for dir in Dir::ALL {
                assert_eq!(pair.standings(dir), [], "{name}, idle {idle}, {dir:?}");
            }
            let peer = pair.peer(Dir::Forward).unwrap();
            let stats = pair.tunnel(Dir::Forward).stats(peer).unwrap();
            println!("{name}, idle {idle}: {:?}", stats.rollback);
        }
    }
}

#[test]
fn full_datagrams_of_data_stand_for_full_probes_and_cost_a_thin_link_nothing() {
    let mut scenario = slow();
    scenario.forward.rate = Rate::mbit(10);
    let mut pair = pair_on(&scenario, vec![Transfer::new(Dir::Forward, u64::MAX)]);
    let probes = [Dir::Forward, Dir::Back].map(|_| Arc::new(AtomicU32::new(0)));
    let counts = probes.clone();
    pair.filter(Box::new(move |now, dir, datagram| {
        // A word that is full and no answer.
        if now >= seconds(5) && datagram.first().is_some_and(|kind| kind & 0xfc == 0x24) {
            counts[dir as usize].fetch_add(1, Ordering::Relaxed);
        }
        Passage::Pass
    }));
    pair.run(seconds(25));
    let [forward, back] = probes.map(|probes| probes.load(Ordering::Relaxed));
    assert!(forward <= 3, "{forward} full probes beside data in 20 s");
    assert!(back >= 20, "{back} full probes in 20 s where nothing else is full");
    assert!(pair.down(Dir::Forward).is_none());
    assert_exact(pair.outcomes());
}

#[test]
fn reordered_copied_and_corrupted_datagrams_are_no_trouble() {
    let mut number = 0u64;
    let mut pair = pair_on(&slow(), bulk());
    filtered(&mut pair, seconds(40), move |_, _| {
        number += 1;
        match number % 50 {
            0 => Passage::Corrupt,
            10 => Passage::Twice,
            20 => Passage::Late(Duration::from_millis(3)),
            _ => Passage::Pass,
        }
    });
    pair.run(seconds(40));
    assert_eq!(pair.standings(Dir::Forward), []);
    assert_exact(pair.outcomes());
}

#[test]
fn a_program_that_stops_ends_the_channel_at_once() {
    for killed in Dir::ALL {
        let mut pair = pair_on(&slow(), bulk());
        pair.run(FAULT);
        pair.kill(killed);
        pair.run(seconds(40));
        let witness = Dir::ALL.into_iter().find(|dir| *dir != killed).unwrap();
        let reset = pair.outcomes().iter().filter_map(|outcome| outcome.reset).min().unwrap();
        println!("{killed:?} killed: reset after {:?}: {:?}", reset - FAULT, pair.down(witness));
        assert!(pair.down(witness).unwrap().contains("stopped"), "{:?}", pair.down(witness));
        assert!(
            reset - FAULT < Duration::from_secs(if killed == Dir::Back { 3 } else { 9 }),
            "{:?}",
            reset - FAULT
        );
    }
}

/// Both ends give up after `give_up`; with TCP to fall back to, or without.
fn patient(scenario: &Scenario, give_up: u64, carriage: bool) -> Plan {
    let mut plan = plan(scenario);
    for config in [&mut plan.terminal, &mut plan.gateway] {
        config.tuning.rollback.give_up = Duration::from_secs(give_up);
        config.tuning.rollback.carriage = carriage;
    }
    plan
}

fn first_reset(pair: &Pair) -> Option<Time> {
    pair.outcomes().iter().filter_map(|outcome| outcome.reset).min()
}

#[test]
fn a_program_that_starts_again_is_noticed_at_once_although_its_host_says_nothing() {
    for (dead, carriage) in [(2, true), (2, false), (20, true), (60, false), (300, true)] {
        let scenario = slow();
        let mut pair = Pair::new(&scenario, patient(&scenario, 900, carriage), bulk()).unwrap();
        pair.run(FAULT);
        pair.vanish(Dir::Back);
        let again = FAULT + Duration::from_secs(dead);
        pair.run(again);
        assert_eq!(first_reset(&pair), None, "silence alone says nothing");
        pair.restart(Dir::Back).unwrap();
        pair.run(again + Duration::from_secs(30));
        let reset = first_reset(&pair).unwrap();
        println!(
            "{dead} s, carriage {carriage}: {:?} after the start: {:?}",
            reset - again,
            pair.down(Dir::Forward)
        );
        assert!(pair.down(Dir::Forward).unwrap().contains("restarted"), "{:?}", pair.down(Dir::Forward));
        assert!(reset - again < Duration::from_secs(5), "{dead} s: {:?}", reset - again);
    }
}

#[test]
fn a_program_that_vanishes_without_a_trace_is_given_up_when_the_operator_says() {
    for give_up in [5, 10, 30] {
        let scenario = slow();
        let mut pair = Pair::new(&scenario, patient(&scenario, give_up, true), bulk()).unwrap();
        pair.run(FAULT);
        pair.vanish(Dir::Back);
        pair.run(FAULT + Duration::from_secs(2 * give_up));
        let reset = first_reset(&pair).unwrap();
        println!("{give_up} s: {:?} after the fault: {:?}", reset - FAULT, pair.down(Dir::Forward));
        let wanted = Duration::from_secs(give_up);
        assert!(
            reset - FAULT <= wanted && reset - FAULT > wanted - Duration::from_secs(2),
            "{:?}",
            reset - FAULT
        );
        assert!(pair.down(Dir::Forward).unwrap().contains("nothing has got through"));
    }
}

#[test]
fn an_end_that_is_heard_is_not_given_up_and_a_shorter_outage_is_survived() {
    let scenario = slow();
    let mut pair = Pair::new(&scenario, patient(&scenario, 8, false), bulk()).unwrap();
    // What the terminal says does not arrive for a while; then nothing does, for less than it waits.
    pair.filter(Box::new(|now, dir, _| match (now - FAULT).as_secs() {
        _ if now < FAULT => Passage::Pass,
        0..5 if dir == Dir::Forward => Passage::Drop,
        20..26 => Passage::Drop,
        _ => Passage::Pass,
    }));
    pair.run(seconds(60));
    assert_eq!(pair.down(Dir::Forward), None);
    assert_exact(pair.outcomes());
    assert_eq!(pair.standings(Dir::Forward).len(), 4, "{:?}", pair.standings(Dir::Forward));
}

#[test]
fn a_firewall_that_rejects_udp_is_told_from_a_program_that_stopped() {
    let mut pair = pair_on(&slow(), bulk());
    filtered(&mut pair, seconds(30), |_, _| Passage::Reject);
    pair.run(seconds(25));
    let (at, standing, why) = when(&pair, Dir::Forward, &[Standing::Carried, Standing::Silent], FAULT);
    println!("after {:?}; gateway {:?}", at - FAULT, pair.standings(Dir::Back));
    assert_eq!((standing, why), (Standing::Carried, Trouble::Unreachable));
    assert!(at - FAULT <= DETECT, "{:?}", at - FAULT);
    pair.run(seconds(60));
    assert_exact(pair.outcomes());
    assert_eq!(pair.standings(Dir::Forward).last().unwrap().1, Standing::Up);
}

#[test]
fn policed_udp_is_left_for_tcp_if_that_is_faster() {
    let mut pair = pair_on(&slow(), bulk());
    // A token bucket of 400 kbit/s.
    let mut tokens = 0.0;
    let mut last = FAULT;
    pair.filter(Box::new(move |now, dir, datagram| {
        if now < FAULT || dir == Dir::Back || datagram.len() < 200 {
            return Passage::Pass;
        }
        tokens = f64::min(tokens + (now - last).as_secs_f64() * 50_000.0, 15_000.0);
        last = now;
        if tokens < datagram.len() as f64 {
            return Passage::Drop;
        }
        tokens -= datagram.len() as f64;
        Passage::Pass
    }));
    pair.run(seconds(40));
    let (at, standing, why) = when(&pair, Dir::Forward, &[Standing::Carried], FAULT);
    println!("{why:?} after {:?}: {:?}", at - FAULT, pair.standings(Dir::Forward));
    assert_eq!((standing, why), (Standing::Carried, Trouble::Degraded));
    let carried = rate(&mut pair, seconds(60), seconds(70));
    assert!(carried > Rate::mbit(14), "{carried}");
    assert_eq!(pair.standings(Dir::Forward).len(), 1, "{:?}", pair.standings(Dir::Forward));
    assert_exact(pair.outcomes());
}

#[test]
fn a_path_that_relapses_is_returned_to_more_and_more_slowly() {
    let reader = Reader::Paced(Rate::mbit(1));
    let mut pair = pair_on(&slow(), vec![Transfer { reader, ..Transfer::new(Dir::Forward, u64::MAX) }]);
    // UDP works for 14 s of every 24 s.
    pair.filter(Box::new(|now, _, _| {
        if now >= FAULT && (now - FAULT).as_secs() % 24 < 10 {
            Passage::Drop
        } else {
            Passage::Pass
        }
    }));
    pair.run(seconds(200));
    let returns =
        pair.standings(Dir::Forward).iter().filter(|(_, standing, _)| *standing == Standing::Up).count();
    println!("{:?}", pair.standings(Dir::Forward));
    assert!(returns <= 2, "{returns}");
    assert_exact(pair.outcomes());
}

#[test]
fn an_end_without_the_roll_back_works_with_one_that_has_it() {
    for disabled in Dir::ALL {
        let scenario = slow();
        let mut plan = plan(&scenario);
        match disabled {
            Dir::Forward => plan.terminal.tuning.rollback.enabled = false,
            Dir::Back => plan.gateway.tuning.rollback.enabled = false,
        }
        let mut pair = Pair::new(&scenario, plan, vec![Transfer::new(Dir::Forward, 16 * MIB)]).unwrap();
        pair.run(seconds(60));
        let outcome = pair.outcomes()[0];
        assert!(outcome.finished.is_some() && !outcome.corrupt, "{outcome:?}");
        assert_eq!(pair.standings(Dir::Forward), []);
        let peer = pair.peer(Dir::Forward).unwrap();
        assert_eq!(pair.tunnel(Dir::Forward).stats(peer).unwrap().rollback.words_sent, 0);
    }
}

#[test]
fn without_tcp_flows_wait_for_udp() {
    let scenario = slow();
    for (carriage, answer) in [(false, TcpAnswer::Accepts), (true, TcpAnswer::Swallows)] {
        let mut plan = plan(&scenario);
        plan.terminal.tuning.rollback.carriage = carriage;
        plan.gateway.tuning.rollback.carriage = carriage;
        let mut pair = Pair::new(&scenario, plan, bulk()).unwrap();
        pair.set_tcp(TcpModel { rates: [Rate::mbit(18), Rate::mbit(3)], answer });
        filtered(&mut pair, seconds(70), |_, _| Passage::Drop);
        pair.run(seconds(60));
        assert_eq!(pair.standings(Dir::Forward).len(), 1);
        let (at, _, why) = when(&pair, Dir::Forward, &[Standing::Silent], FAULT);
        assert_eq!(why, Trouble::Silent);
        assert!(at - FAULT <= DETECT);
        let after = rate(&mut pair, seconds(73), seconds(76));
        assert!(after > Rate::mbit(15), "{after}");
        assert_exact(pair.outcomes());
    }
}

#[test]
fn a_new_address_of_the_terminal_is_followed() {
    let mut pair = pair_on(&slow(), bulk());
    pair.run(FAULT);
    pair.rebind(5555);
    pair.run(seconds(30));
    println!("{:?} {:?}", pair.standings(Dir::Forward), pair.standings(Dir::Back));
    let after = rate(&mut pair, seconds(30), seconds(40));
    assert!(after > Rate::mbit(16), "{after}");
    assert_exact(pair.outcomes());
}

/// From the end of an outage of so many milliseconds until bytes arrive at 90 % of the rate before, in the direction of
/// each transfer; and when each end knew that the link is back.
fn return_after(outage_ms: u64, seed: u64) -> ([Duration; 2], [Duration; 2]) {
    let mut scenario = slow();
    outage(&mut scenario, &Dir::ALL, Duration::from_millis(outage_ms));
    let plan = Plan { seed, ..plan(&scenario) };
    let mut pair = Pair::new(&scenario, plan, bulk()).unwrap();
    let delivered = |pair: &Pair| [0, 1].map(|n| pair.outcomes()[n].delivered);
    pair.run(seconds(4));
    let before = delivered(&pair);
    pair.run(FAULT);
    let before = [0, 1].map(|n| Bytes(delivered(&pair)[n] - before[n]).per(FAULT - seconds(4)));
    let end = FAULT + Duration::from_millis(outage_ms);
    pair.run(end);
    let (step, mut back) = (Duration::from_millis(20), [None; 2]);
    let mut last = delivered(&pair);
    let mut at = end;
    // A quarter of a second at that rate, from its beginning.
    let mut recent: [std::collections::VecDeque<u64>; 2] = Default::default();
    while back.iter().any(Option::is_none) && at < end + Duration::from_secs(20) {
        at += step;
        pair.run(at);
        let now = delivered(&pair);
        for n in 0..2 {
            recent[n].push_back(now[n] - last[n]);
            if recent[n].len() > 12 {
                recent[n].pop_front();
            }
            let full = recent[n].len() == 12;
            let rate = Bytes(recent[n].iter().sum()).per(step * 12);
            if full && rate >= before[n].scale(0.9) {
                back[n].get_or_insert(at - step * 12);
            }
        }
        last = now;
    }
    let known = Dir::ALL.map(|dir| when(&pair, dir, &[Standing::Up], FAULT).0 - end);
    (back.map(|at| at.unwrap_or(end + Duration::from_secs(20)) - end), known)
}

#[test]
#[ignore = "a minute: many outages"]
fn the_return_after_an_outage_takes_less_than_its_goal_wherever_it_falls_between_two_probes() {
    let mut worst = [Duration::ZERO; 2];
    for n in 0..24 {
        let (back, known) = return_after(20_000 + 37 * n, n);
        println!("{n}: bytes after {back:?}, known after {known:?}");
        worst = [0, 1].map(|n| worst[n].max(back[n]));
    }
    println!("worst {worst:?}");
    let goal = slow().rtt() * 3 + Duration::from_secs(1);
    assert!(worst.iter().all(|worst| *worst <= goal), "{worst:?}");
}
