//! Recorded tapes give the recorded windows, and the windows are what the papers say.
//!
//! `tapes/NAME.tape` is what the controller NAME heard on the model link; `tapes/NAME.windows` is
//! what it answered, per packet-timed round: time in ms, window in segments (three digits), phase.
//! After a wanted change of a controller, `RECORD=1 cargo test -p skyhaul-cc --test replay` writes
//! the windows anew, and with `-- --ignored` the tapes.

mod model;

use model::{run, Path, MSS};
use skyhaul_cc::tape::{replay, Event, Recorder, Tape};
use skyhaul_cc::{registry, Bytes, Controller, Duration, Rate, Setup, Signal, Snapshot, Time};
use std::fmt::Write as _;
use std::path::PathBuf;

fn setup(name: &str) -> Setup {
    Setup {
        initial_ssthresh: matches!(name, "newreno" | "hybla" | "veno" | "westwood" | "scps" | "hswa")
            .then_some(MSS * 45),
        link_rate: (name == "rate").then(|| path(name).rate),
        ..Setup::new(MSS)
    }
}

fn build(name: &str) -> Box<dyn Controller> {
    registry::build(name, &setup(name)).expect("a known name")
}

fn path(name: &str) -> Path {
    let (rate, rtt) = match name {
        // rho = 4; a longer round trip would overflow a queue of this size every round.
        "hybla" => (Rate::mbit(10), Duration::from_millis(100)),
        // Steps of 60 to 80 segments per round trip need a link that holds thousands.
        "hswa" => (Rate::mbit(20), Duration::from_millis(540)),
        // K is 25 round trips: the window has time to catch up with its target one round trip ahead.
        "cubic" => (Rate::mbit(5), Duration::from_millis(100)),
        _ => (Rate::mbit(2), Duration::from_millis(540)),
    };
    let loss = match name {
        "cubic" => 0.0,
        "newreno" | "hybla" | "veno" | "westwood" | "scps" | "hswa" | "enhanced" | "enhanced-literal" => {
            0.002
        }
        _ => 0.012,
    };
    Path { loss, queue: rate.bdp(rtt), per_ack: 10, seed: 7, ..Path::new(rate, rtt) }
}

fn file(name: &str, ending: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tapes").join(format!("{name}.{ending}"))
}

fn read(name: &str, ending: &str) -> String {
    let file = file(name, ending);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn tape(name: &str) -> Tape {
    read(name, "tape").parse().unwrap_or_else(|error| panic!("{name}.tape: {error}"))
}

#[test]
#[ignore = "writes the tapes; run it with RECORD=1 after a wanted change"]
fn record_the_tapes() {
    if std::env::var_os("RECORD").is_none() {
        return;
    }
    for name in registry::names() {
        let mut recorder = Recorder::new(build(name));
        let length = Duration::from_secs(match name {
            "hybla" | "hswa" => 4,
            "cubic" => 10,
            _ => 20,
        });
        run(&path(name), &mut recorder, length);
        // Nine of ten departures tell nothing new and would make the file five times longer.
        let mut departures = 0;
        let events = recorder
            .into_tape()
            .events
            .into_iter()
            .filter(|event| {
                departures += u64::from(matches!(event, Event::Sent(_)));
                !matches!(event, Event::Sent(_)) || departures % 10 == 1
            })
            .collect();
        std::fs::write(file(name, "tape"), Tape { events, ..Tape::default() }.to_string())
            .expect("the folder is there");
    }
}

/// The controller's state after each event, with the event.
fn replayed(name: &str) -> Vec<(Event, Snapshot)> {
    let tape = tape(name);
    let states = replay(&tape, &mut *build(name));
    tape.events.into_iter().zip(states).map(|(event, (_, state))| (event, state)).collect()
}

fn segments(bytes: Bytes) -> f64 {
    bytes.as_f64() / MSS.as_f64()
}

/// Time and window at the start of each round.
fn rounds(steps: &[(Event, Snapshot)]) -> Vec<(Time, f64, &'static str)> {
    steps
        .iter()
        .filter(|(event, _)| matches!(event, Event::Ack(ack) if ack.round_start))
        .map(|(event, state)| (event.now(), segments(state.cwnd), state.phase))
        .collect()
}

/// Three significant digits.
fn three_digits(value: f64) -> String {
    let digits = (2 - libm::floor(libm::log10(value)) as i32).max(0) as usize;
    let unit = libm::pow(10.0, libm::floor(libm::log10(value)) - 2.0);
    format!("{:.digits$}", (value / unit).round() * unit)
}

#[test]
fn recorded_tapes_give_the_recorded_windows() {
    for name in registry::names() {
        let mut text = String::from("# ms, segments, phase\n");
        for (at, window, phase) in rounds(&replayed(name)) {
            let ms = at.as_nanos() / 1_000_000;
            writeln!(text, "{ms} {} {phase}", three_digits(window)).expect("a string takes everything");
        }
        if std::env::var_os("RECORD").is_some() {
            std::fs::write(file(name, "windows"), &text).expect("the folder is there");
        }
        for (number, (new, old)) in text.lines().zip(read(name, "windows").lines()).enumerate() {
            assert_eq!(new, old, "{name}.windows, line {}", number + 1);
        }
        assert_eq!(text.lines().count(), read(name, "windows").lines().count(), "{name}.windows");
    }
}

/// Stretches of events between cuts: each begins after a loss event.
fn stretches(name: &str) -> Vec<Vec<(Event, Snapshot)>> {
    let mut stretches = vec![Vec::new()];
    for step in replayed(name) {
        if matches!(step.0, Event::Loss(loss) if loss.new_episode) {
            stretches.push(Vec::new());
        }
        stretches.last_mut().expect("there is one from the start").push(step);
    }
    stretches
}

/// Growth per round in congestion avoidance, where neither this round nor its neighbours were cut.
fn growth_per_round(name: &str) -> Vec<f64> {
    stretches(name)
        .iter()
        .flat_map(|steps| {
            let avoidance: Vec<_> =
                rounds(steps).into_iter().filter(|(.., phase)| *phase == "congestion avoidance").collect();
            let inner = avoidance.get(2..avoidance.len().saturating_sub(1)).unwrap_or_default();
            inner.windows(2).map(|pair| pair[1].1 - pair[0].1).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn newreno_on_tape_grows_by_one_segment_per_round() {
    let growth = growth_per_round("newreno");
    assert!(growth.len() >= 10, "{growth:?}");
    let mean = growth.iter().sum::<f64>() / growth.len() as f64;
    assert!((mean - 1.0).abs() < 0.1, "{mean} of {growth:?}");
}

#[test]
fn hybla_on_tape_grows_by_rho_squared_per_round() {
    let growth = growth_per_round("hybla");
    assert!(growth.len() >= 5, "{growth:?}");
    let mean = growth.iter().sum::<f64>() / growth.len() as f64;
    // rho = 100 / 25 = 4.
    assert!((mean / 16.0 - 1.0).abs() < 0.15, "{mean} of {growth:?}");
}

#[test]
fn veno_on_tape_keeps_four_fifths_unless_three_segments_wait() {
    let steps = replayed("veno");
    let mut kept = Vec::new();
    for pair in steps.windows(2) {
        if let Event::Loss(loss) = pair[1].0 {
            if loss.new_episode && loss.signal == Signal::Gap {
                let before = segments(pair[0].1.cwnd);
                let waiting = before * (1.0 - loss.rtt.min.as_secs_f64() / loss.rtt.latest.as_secs_f64());
                let expected = if waiting < 3.0 { 0.8 } else { 0.5 };
                let share = segments(pair[1].1.cwnd) / before;
                assert!((share - expected).abs() < 0.01, "{}: {share}, {waiting} waiting", loss.now);
                kept.push(expected);
            }
        }
    }
    assert!(kept.contains(&0.8), "{kept:?}");
}

#[test]
fn westwood_on_tape_keeps_what_was_delivered_per_round_trip() {
    let path = path("westwood");
    let bdp = segments(path.rate.bdp(path.rtt));
    let steps = replayed("westwood");
    let cuts: Vec<_> = steps
        .windows(2)
        .filter(|pair| matches!(pair[1].0, Event::Loss(loss) if loss.new_episode))
        .map(|pair| (pair[0].1.cwnd, pair[1].1.cwnd, pair[1].1.ssthresh))
        .collect();
    assert!(cuts.len() >= 2, "{cuts:?}");
    for (before, after, ssthresh) in cuts {
        let pipe = segments(ssthresh.expect("a loss sets it"));
        assert!(pipe <= 1.05 * bdp, "{pipe} segments on a link that holds {bdp}");
        assert_eq!(after, before.min(ssthresh.expect("a loss sets it")));
    }
}

#[test]
fn boost_on_tape_forgives_random_losses_and_the_literal_reading_cuts_by_a_fifth() {
    for (name, kept) in [("boost", 1.0), ("boost-literal", 0.8)] {
        let mut cuts = 0;
        for pair in replayed(name).windows(2) {
            let Event::Loss(loss) = pair[1].0 else { continue };
            let queued = loss.rtt.latest > loss.rtt.min * 11 / 10;
            if loss.new_episode && loss.signal == Signal::Gap && !queued {
                let share = segments(pair[1].1.cwnd) / segments(pair[0].1.cwnd);
                assert!((share - kept).abs() < 0.01, "{name} at {}: {share}", loss.now);
                cuts += 1;
            }
        }
        assert!(cuts >= 2, "{name}: {cuts} losses at an empty queue");
    }
}

#[test]
fn cubic_on_tape_follows_its_curve() {
    let stretches = stretches("cubic");
    assert!(stretches.len() >= 2, "no cut on the tape");
    let (mut compared, mut w_max) = (0, 0.0);
    for pair in stretches.windows(2) {
        let before = segments(pair[0].last().expect("not empty").1.cwnd);
        // Fast convergence: below the last maximum, the next one is lower still.
        w_max = if before < w_max { before * 0.85 } else { before };
        let after = &pair[1];
        let cut = segments(after[0].1.cwnd);
        let Some(epoch) = after.iter().position(|(_, state)| segments(state.cwnd) > cut) else { continue };
        let start = after[epoch].0.now();
        let k = libm::cbrt((w_max - cut).max(0.0) / 0.4);
        for (at, window, _) in rounds(&after[epoch..]).into_iter().skip(4) {
            let t = at.since(start).as_secs_f64();
            if t < k {
                let curve = 0.4 * (t - k).powi(3) + w_max;
                assert!((window / curve - 1.0).abs() < 0.02, "{t:.2} s: {window} against {curve}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 10, "compared {compared} rounds");
}

#[test]
fn bbr_on_tape_finds_rate_and_window_of_the_link() {
    let path = path("bbr");
    let steps = replayed("bbr");
    let bdp = segments(path.rate.bdp(path.rtt));
    for (event, state) in steps.iter().filter(|(event, _)| event.now() > Time::from_secs(15)) {
        let at = event.now();
        if state.phase == "probe rate" {
            let window = segments(state.cwnd) / bdp;
            assert!((1.5..3.2).contains(&window), "{at}: window of {window} BDP");
            let pace = state.pacing_rate.expect("BBR paces").as_f64() / path.rate.as_f64();
            assert!((0.7..1.3).contains(&pace), "{at}: pace of {pace} link rates");
        }
    }
    assert!(steps.iter().any(|(_, state)| state.phase == "probe rate"));
}

#[test]
fn rate_on_tape_keeps_the_given_rate_through_every_loss() {
    let path = path("rate");
    let steps = replayed("rate");
    let gaps =
        steps.iter().filter(|(event, _)| matches!(event, Event::Loss(loss) if loss.signal == Signal::Gap));
    assert!(gaps.count() >= 10);
    let answered = steps.iter().position(|(event, _)| matches!(event, Event::Ack(_))).expect("an ACK");
    for (event, state) in &steps[answered..] {
        assert_eq!(state.pacing_rate, Some(path.rate), "{}", event.now());
        let window = segments(state.cwnd) / segments(path.rate.bdp(path.rtt));
        assert!((1.2..1.35).contains(&window), "{}: window of {window} BDP", event.now());
    }
}
