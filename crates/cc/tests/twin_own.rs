//! BoostTCP and our own controller in C (`bpf/law_boost.h`, `bpf/law_skyhaul.h`) against those in Rust: the same events
//! give the same windows, ours to the last bit because both texts count in the same whole numbers, BoostTCP's within
//! one segment or 1 %.
//!
//! The headers are compiled for this host, with the sanitizer for undefined behaviour, and hear recorded tapes, runs
//! on the model link and random events.
#![allow(clippy::unwrap_used)]

mod model;

use model::{Lcg, Path, MSS};
use skyhaul_cc::tape::{Event, Recorder, Tape};
use skyhaul_cc::{registry, Ack, Bytes, Duration, Loss, PathHistory, Rate, Rtt, Sent, Setup, Signal, Time};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A law, and how far its windows may be from its twin's: segments and share.
struct Law {
    name: &'static str,
    segments: f64,
    share: f64,
}

const LAWS: [Law; 2] =
    [Law { name: "skyhaul", segments: 1e-3, share: 0.0 }, Law { name: "boost", segments: 1.0, share: 0.01 }];

/// The law as a program that answers events with windows.
fn program(law: &str) -> PathBuf {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let build = || {
        let crate_folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("twin-own-{law}"));
        let output = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"])
            .args(["-fsanitize=undefined", "-fno-sanitize-recover=all", "-include"])
            .arg(crate_folder.join(format!("../../bpf/law_{law}.h")))
            .arg(crate_folder.join("tests/twin/own.c"))
            .arg("-o")
            .arg(&program)
            .output()
            .expect("cc, which Rust needs for linking too, runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    };
    built.entry(law.to_owned()).or_insert_with(build).clone()
}

/// Window in segments and pace in 2^-24 segments per microsecond, after each line.
fn answers(law: &str, lines: &str) -> Vec<(f64, u64)> {
    let mut child = Command::new(program(law))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it was compiled");
    let mut input = child.stdin.take().expect("it is piped");
    let text = lines.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("it ends with its input");
    writer.join().unwrap().expect("it reads all of it");
    assert!(output.status.success(), "{law}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let (window, pace) = line.split_once(' ').unwrap();
            (window.parse().unwrap(), pace.parse().unwrap())
        })
        .collect()
}

fn segments(bytes: Bytes) -> u64 {
    (bytes.as_f64() / MSS.as_f64()).clamp(0.0, 4e9) as u64
}

fn whole_segments(bytes: Bytes) -> u64 {
    (bytes.as_f64() / MSS.as_f64() + 0.999).clamp(0.0, 4e9) as u64
}

fn micros(time: Duration) -> u64 {
    (time.as_secs_f64() * 1e6).clamp(1.0, 6e7) as u64
}

/// A rate in 2^-24 segments per microsecond.
fn per_micro(rate: Rate) -> u64 {
    (rate.bytes_per_second() as f64 / MSS.as_f64() * 16_777_216.0 / 1e6) as u64
}

/// A moment in microseconds, from one second on: zero is none.
fn at(time: Time) -> u64 {
    time.as_nanos() / 1000 + 1_000_000
}

/// An event as the C program reads it.
fn line(event: &Event) -> Option<String> {
    match event {
        Event::Ack(ack) => Some(format!(
            "a {} {} {} {} {} {} {} {} {} {}",
            at(ack.now),
            at(ack.sent_at),
            micros(ack.rtt.latest),
            micros(ack.rtt.smoothed),
            micros(ack.rtt.min),
            u64::from(whole_segments(ack.acked) as u32),
            ack.delivery_rate.map_or(0, per_micro),
            u8::from(ack.round_start),
            u8::from(ack.app_limited),
            u64::from((segments(ack.in_flight) as u32).saturating_add(whole_segments(ack.acked) as u32)),
        )),
        Event::Loss(loss) => Some(format!(
            "l {} {} {} {} {} {} {}",
            at(loss.now),
            at(loss.sent_at),
            u64::from(whole_segments(loss.lost) as u32),
            micros(loss.rtt.latest),
            micros(loss.rtt.min),
            match loss.signal {
                Signal::Gap => 0,
                Signal::Timeout => 1,
                Signal::Ecn => 2,
            },
            u8::from(loss.new_episode),
        )),
        _ => None,
    }
}

/// Plays `events` to both; how many answers were compared.
fn compare(law: &Law, name: &str, setup: &Setup, events: &[Event]) -> usize {
    let name = format!("{} on {name}", law.name);
    let mut rust = registry::build(law.name, setup).unwrap();
    let mut lines = format!("i {} {}\n", segments(setup.initial_window), MSS.0);
    let mut expected = Vec::new();
    if let Some(history) = setup.history {
        let rate = history.start_share(0.85) * history.rate.as_f64() / MSS.bits() as f64;
        let window = (rate * history.min_rtt.as_secs_f64()).max(10.0) as u64;
        // BoostTCP reduces the rate itself.
        let (rate, least) = (per_micro(history.rate), micros(history.min_rtt));
        writeln!(lines, "k {rate} {least} {window}").unwrap();
    }
    let skipped = lines.lines().count();
    for event in events {
        event.play(&mut *rust);
        if let Some(line) = line(event) {
            lines += &line;
            lines.push('\n');
            expected.push((event, rust.cwnd(), rust.pacing_rate()));
        }
    }
    let answers = answers(law.name, &lines);
    assert_eq!(answers.len(), expected.len() + skipped, "{name}");
    // Before the first answer a given path is the adapter's business.
    let heard = expected.iter().position(|(event, ..)| matches!(event, Event::Ack(_))).unwrap_or(0);
    for (number, ((window, pace), (event, cwnd, rate))) in
        answers[skipped..].iter().zip(&expected).enumerate().skip(heard)
    {
        let wanted = cwnd.as_f64() / MSS.as_f64();
        let off = (window - wanted).abs();
        assert!(
            off <= law.segments.max(law.share * wanted),
            "{name}, event {number}: {window} and {wanted}, {event:?}"
        );
        let pace = *pace as f64 / 16_777_216.0 * 1e6 * MSS.bits() as f64;
        let rate = rate.map_or(0.0, Rate::as_f64);
        // A window of few segments may be off by one of them.
        let allowed = law.share.max(1e-6) * rate + rate * law.segments / wanted + 16.0;
        assert!((pace - rate).abs() <= allowed, "{name}, event {number}: pace {pace} and {rate}");
    }
    expected.len() - heard
}

fn tape(name: &str) -> Vec<Event> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tapes").join(format!("{name}.tape"));
    std::fs::read_to_string(file).unwrap().parse::<Tape>().unwrap().events
}

#[test]
fn recorded_tapes_give_both_the_same_windows() {
    for law in &LAWS {
        for name in registry::names() {
            let compared = compare(law, name, &Setup::new(MSS), &tape(name));
            assert!(compared > 20, "{} on {name}: {compared}", law.name);
        }
    }
}

/// What the controller hears when it governs the model link itself.
fn run(law: &Law, path: &Path, setup: &Setup, seconds: u64) -> Vec<Event> {
    let mut recorder = Recorder::new(registry::build(law.name, setup).unwrap());
    model::run(path, &mut recorder, Duration::from_secs(seconds));
    recorder.into_tape().events
}

#[test]
fn runs_on_the_model_link_give_both_the_same_windows() {
    let link = |mbit, ms| Path::new(Rate::mbit(mbit), Duration::from_millis(ms));
    let second = Time::from_secs;
    let paths = [
        ("geo", Path { per_ack: 10, ..Path::geo(3) }),
        ("short queue", Path { queue: Bytes(30_000), ..link(10, 540) }),
        ("lossy", Path { loss: 0.08, ..link(20, 300) }),
        (
            "fade",
            Path {
                changes: vec![
                    (second(10), Rate::mbit(5), Duration::from_millis(120)),
                    (second(20), Rate::mbit(20), Duration::from_millis(90)),
                ],
                ..link(20, 90)
            },
        ),
        ("outage", Path { outages: vec![(second(8), second(14))], ..link(20, 100) }),
        ("bits and pieces", Path { source: Some(Rate::mbit(3)), ..link(20, 100) }),
    ];
    for law in &LAWS {
        for (name, path) in &paths {
            let compared = compare(law, name, &Setup::new(MSS), &run(law, path, &Setup::new(MSS), 40));
            assert!(compared > 1000, "{} on {name}: {compared}", law.name);
        }
    }
}

#[test]
fn a_known_path_gives_both_the_same_windows() {
    for (mbit, ms) in [(20, 100), (20, 300), (60, 100)] {
        let history = Some(PathHistory::of(Rate::mbit(mbit), Duration::from_millis(ms)));
        let setup = Setup { history, ..Setup::new(MSS) };
        for law in &LAWS {
            let events = run(law, &Path::new(Rate::mbit(20), Duration::from_millis(100)), &setup, 10);
            assert!(compare(law, "known", &setup, &events) > 1000);
        }
    }
}

/// Anything a host might say, and more.
fn random_events(seed: u64) -> Vec<Event> {
    let mut lcg = Lcg::new(seed);
    let mut now = Time::ZERO;
    let base = Duration::from_micros(200 + (lcg.share() * 800_000.0) as u64);
    (0..3000)
        .map(|_| {
            now += base.mul_f64(lcg.share() * 0.2);
            let latest = base.mul_f64(1.0 + lcg.share() * lcg.share());
            let rtt = Rtt { latest, smoothed: latest, min: base };
            let in_flight = Bytes::from_f64(lcg.share() * lcg.share() * 2e7);
            let kind = lcg.share();
            if kind < 0.03 {
                let signal = match lcg.share() {
                    x if x < 0.1 => Signal::Timeout,
                    x if x < 0.2 => Signal::Ecn,
                    _ => Signal::Gap,
                };
                let lost = MSS * (lcg.share() * 300.0) as u64;
                let new_episode = lcg.share() < 0.5;
                Event::Loss(Loss { now, sent_at: now, lost, in_flight, rtt, signal, new_episode })
            } else if kind < 0.1 {
                Event::Sent(Sent { now, bytes: MSS, in_flight: in_flight + MSS * 2 })
            } else {
                Event::Ack(Ack {
                    now,
                    sent_at: now - latest,
                    acked: MSS * (1 + (lcg.share() * 60.0) as u64),
                    in_flight,
                    peer_window: None,
                    rtt,
                    delivery_rate: (lcg.share() < 0.9).then(|| Rate::from_f64(lcg.share() * 2e8)),
                    round_start: lcg.share() < 0.1,
                    app_limited: lcg.share() < 0.02,
                })
            }
        })
        .collect()
}

#[test]
fn random_events_give_ours_the_same_windows() {
    for seed in 1..=40 {
        compare(&LAWS[0], &format!("seed {seed}"), &Setup::new(MSS), &random_events(seed));
    }
}
