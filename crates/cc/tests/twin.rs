//! The laws of `bpf/`, which run in the kernel, against the controllers of this crate, which run everywhere else:
//! the same events give the same windows, within one segment or 1 %.
//!
//! Each law_NAME.h is compiled for this host, with the sanitizer for undefined behaviour, and hears recorded tapes,
//! tapes of random paths and random sequences. A new law is one more row of [`LAWS`].
//!
//! What differs by design, and is tested here by itself: in C no window grows beyond four flights, while the
//! controllers hold only blind slow start to that; rho is at most 256; times are in microseconds.
#![allow(clippy::unwrap_used)]

#[path = "twin/compare.rs"]
mod compare;
mod model;
#[path = "twin/program.rs"]
mod program;
#[path = "twin/random.rs"]
mod random;

use compare::{compare, near};
use model::MSS;
use program::{Answer, Program};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};
use skyhaul_cc::controllers::enhanced::{Enhanced, Reading};
use skyhaul_cc::controllers::{Hswa, Hybic, Hybla, Veno};
use skyhaul_cc::parts::{backlog, RoundMean};
use skyhaul_cc::tape::{Event, Tape};
use skyhaul_cc::{Controller, Setup, Signal};
use std::cell::RefCell;
use std::fmt::Write as _;

/// Says of an event, with the controller's window and threshold before it in segments, whether a decision hangs on a
/// difference smaller than the two laws' own.
type Edge = Box<dyn FnMut(&Event, f64, f64) -> bool>;

/// A law and its twin.
struct Law {
    name: &'static str,
    rust: fn(&Setup) -> Box<dyn Controller>,
    /// The controller, too, holds growth to four flights while it knows no threshold.
    blind_limit: bool,
    edge: fn() -> Edge,
}

const LAWS: [Law; 5] = [
    Law {
        name: "hybla",
        rust: |setup| Box::new(Hybla::new(setup)),
        blind_limit: true,
        edge: || Box::new(|_, _, _| false),
    },
    Law {
        name: "veno",
        rust: |setup| Box::new(Veno::new(setup)),
        blind_limit: false,
        edge: || Box::new(|event, window, _| cut(event).is_some_and(|loss| near(window, &loss.rtt, &[3.0]))),
    },
    Law {
        name: "enhanced",
        rust: |setup| Box::new(Enhanced::new(setup, Reading::Resolved)),
        blind_limit: true,
        edge: steps_and_phases,
    },
    Law { name: "hswa", rust: |setup| Box::new(Hswa::new(setup)), blind_limit: false, edge: end_of_doubling },
    Law {
        name: "hybic",
        rust: |setup| Box::new(Hybic::new(setup)),
        blind_limit: false,
        edge: || Box::new(|_, _, _| false),
    },
];

fn law(name: &str) -> &'static Law {
    LAWS.iter().find(|law| law.name == name).expect("in the table")
}

/// The loss if the window is cut for it by a share that depends on the queue.
fn cut(event: &Event) -> Option<&skyhaul_cc::Loss> {
    match event {
        Event::Loss(loss) if loss.new_episode && loss.signal == Signal::Gap => Some(loss),
        _ => None,
    }
}

/// The enhanced controller cuts in steps and starts in phases, where rounding may decide.
fn steps_and_phases() -> Edge {
    Box::new(|event, window, ssthresh| match event {
        Event::Ack(_) => [0.25, 0.75].iter().any(|share| {
            let off = (window - share * ssthresh).abs();
            off < 1e-3 * window
        }),
        event => cut(event).is_some_and(|loss| near(window, &loss.rtt, &[3.0, 6.0])),
    })
}

/// HSWA doubles while at most one segment waits on the average of a round, which C knows to a microsecond, and up to
/// its threshold, which it may miss by a rounding.
fn end_of_doubling() -> Edge {
    let mut round = RoundMean::new();
    Box::new(move |event, window, ssthresh| {
        let Event::Ack(ack) = event else { return false };
        let Some(mean) = round.on_ack(ack.round_start, ack.rtt.latest) else { return false };
        let blur = window * 2e-6 / mean.as_secs_f64() + 0.02;
        let off = (window - ssthresh).abs();
        (backlog(window, ack.rtt.min, mean) - 1.0).abs() < blur || (0.0 < off && off < 0.01)
    })
}

/// The set-up with which a tape was recorded for a controller.
fn recorded_with(name: &str) -> Setup {
    let known = matches!(name, "newreno" | "hybla" | "veno" | "westwood" | "scps" | "hswa");
    Setup { initial_ssthresh: known.then_some(MSS * 45), ..Setup::new(MSS) }
}

fn tape(name: &str) -> Vec<Event> {
    let file = format!("{}/tests/tapes/{name}.tape", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let tape: Tape = text.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
    tape.events
}

#[test]
fn recorded_tapes_give_both_the_same_windows() {
    for law in &LAWS {
        for name in ["newreno", "cubic", "hybla", "veno", "enhanced", "hswa", "hybic", "bbr", "boost"] {
            for setup in [recorded_with(name), recorded_with(law.name)] {
                let outcome = compare(law, &Program::of(law.name), &setup, &tape(name))
                    .unwrap_or_else(|error| panic!("{name}.tape: {error}"));
                eprintln!("{} on {name}.tape: {outcome:?}", law.name);
                assert!(outcome.compared > 20, "{} on {name}.tape: {outcome:?}", law.name);
            }
        }
    }
}

/// Tries a law on `cases` random tapes; prints how far the two were apart.
fn on_random<T: std::fmt::Debug>(
    law: &Law,
    cases: u32,
    strategy: impl Strategy<Value = T>,
    events: impl Fn(&T) -> (Setup, Vec<Event>),
) {
    let program = Program::of(law.name);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let outcomes = RefCell::new(Vec::new());
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
        .run(&strategy, |chosen| {
            let (setup, events) = events(&chosen);
            let outcome = compare(law, &program, &setup, &events).map_err(TestCaseError::fail)?;
            outcomes.borrow_mut().push(outcome);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{}: {error}", law.name));
    let outcomes = outcomes.into_inner();
    let compared: usize = outcomes.iter().map(|outcome| outcome.compared).sum();
    let worst = outcomes.iter().map(|outcome| outcome.worst).fold(0.0, f64::max);
    let edges = outcomes.iter().filter(|outcome| outcome.edge).count();
    eprintln!(
        "{}: {compared} events on {} tapes, worst {worst:.2} of what is allowed, {edges} ended early",
        law.name,
        outcomes.len()
    );
    assert!(compared > 50 * cases as usize, "{}: compared {compared} events only", law.name);
}

/// Tapes to try, always the same: as many as a test run has time for, or as many as `PROPTEST_CASES` asks.
fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").map_or(usual, |cases| cases.parse().expect("a number in PROPTEST_CASES"))
}

#[test]
fn random_sequences_give_both_the_same_windows() {
    for law in &LAWS {
        on_random(law, cases(150), (random::setups(), random::sequences()), |(setup, events)| {
            (*setup, events.clone())
        });
    }
}

#[test]
fn random_paths_give_both_the_same_windows() {
    for law in &LAWS {
        on_random(law, cases(40), (random::setups(), random::paths()), |(setup, path)| {
            let setup = Setup { initial_window: setup.initial_window.min(MSS * 100), ..*setup };
            (setup, random::heard(law, &setup, path, 3000))
        });
    }
}

#[test]
fn the_comparison_notices_a_law_that_is_slightly_wrong() {
    for (name, from, to) in [
        ("hybla", "FIX_Q16(0.5)", "FIX_Q16(0.48)"),
        ("veno", "FIX_ONE / 2 : FIX_ONE", "FIX_ONE : FIX_ONE"),
        ("enhanced", "75000U", "80000U"),
        ("hswa", "3.0102999566", "3.2"),
        ("hybic", "HYBIC_SCALE FIX_Q16(0.4)", "HYBIC_SCALE FIX_Q16(0.5)"),
    ] {
        let program = Program::altered(name, from, to);
        let noticed = LAWS.iter().any(|tape_of| {
            compare(law(name), &program, &recorded_with(tape_of.name), &tape(tape_of.name)).is_err()
        });
        assert!(noticed, "law_{name}.h with {to:?} instead of {from:?} passes");
    }
}

#[test]
fn no_law_lets_a_window_outgrow_four_flights() {
    for law in &LAWS {
        let program = Program::of(law.name);
        // GEO, thresholds out of reach: left alone, Hybla's window would be ten million segments after a round.
        for ssthresh in [1_000_000, 0x7fff_ffff_u64] {
            let mut lines = format!("b 10 {ssthresh} 1500 0 0\n");
            let (mut flights, mut now) = (Vec::new(), 540_000);
            for flight in [10u64, 10, 40, 50, 50, 2000, 2000] {
                for i in 0..10 {
                    let acked = (flight / 10).max(1);
                    writeln!(
                        lines,
                        "a {now} {acked} 540000 540000 540000 {flight} 0 4000000 {} 1 1",
                        u8::from(i == 0)
                    )
                    .unwrap();
                    flights.push(flight);
                    now += 54_000;
                }
            }
            let answers: Vec<Answer> = program.answer(&lines).split_off(1);
            let mut before = 10;
            for (answer, flight) in answers.iter().zip(flights) {
                assert!(
                    answer.cwnd <= before.max(4 * flight),
                    "{}: {answer:?} at {flight} in flight",
                    law.name
                );
                before = answer.cwnd;
            }
            assert!(before > 10, "{} does not grow at all", law.name);
        }
    }
}

#[test]
fn no_input_moves_a_window_out_of_its_bounds() {
    let numbers =
        prop::collection::vec((any::<bool>(), prop::array::uniform12(any::<u32>()), any::<u64>()), 1..50);
    for law in &LAWS {
        let program = Program::of(law.name);
        TestRunner::new(ProptestConfig {
            cases: 100,
            failure_persistence: None,
            ..ProptestConfig::default()
        })
        .run(&(prop::array::uniform5(any::<u32>()), numbers.clone()), |(setup, events)| {
            let [cwnd, ssthresh, mss, reference, step] = setup;
            let mut lines = format!("b {cwnd} {ssthresh} {mss} {reference} {step}\n");
            for (ack, n, now) in events {
                if ack {
                    write!(lines, "a {now}").unwrap();
                    n[..7].iter().for_each(|n| write!(lines, " {n}").unwrap());
                    writeln!(lines, " {} {} {}", n[8] & 1, n[9] & 1, n[10] & 1).unwrap();
                } else {
                    write!(lines, "l {now}").unwrap();
                    n[..4].iter().for_each(|n| write!(lines, " {n}").unwrap());
                    writeln!(lines, " {} {}", n[4] % 3, n[5] & 1).unwrap();
                }
            }
            for answer in program.answer(&lines).into_iter().skip(1) {
                let moved = answer.cwnd != u64::from(cwnd);
                prop_assert!(!moved || (2..=1 << 24).contains(&answer.cwnd), "{}: {answer:?}", law.name);
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{}: {error}", law.name));
    }
}

#[test]
fn the_kernel_has_room_for_every_law() {
    for law in &LAWS {
        // 104 bytes per socket, of which the adapter takes 24 (SKY_STATE_MOST).
        let bytes = Program::of(law.name).number('s', 0);
        assert!(bytes <= 80, "{} keeps {bytes} bytes", law.name);
    }
}

#[test]
fn powers_logarithms_and_roots_are_those_of_real_numbers() {
    let program = Program::of("hybla");
    let mut lines = String::new();
    let mut check = Vec::new();
    let mut state = 1u64;
    for i in 0..3000u32 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let whole = (state >> 1) >> (i % 63);
        for (what, of) in [('2', state >> 43), ('g', whole), ('3', whole), ('i', whole)] {
            writeln!(lines, "{what} {of}").unwrap();
            check.push((what, of));
        }
    }
    for (answer, (what, of)) in program.answer(&lines).iter().zip(check) {
        let (got, x) = (answer.cwnd as f64, of as f64);
        let (wanted, allowed) = match what {
            '2' => (libm::exp2(x / 65536.0) * 65536.0, 3e-7 * libm::exp2(x / 65536.0) * 65536.0 + 1.0),
            'g' if of > 0 => (libm::log2(x) * 65536.0, 2.0),
            '3' => (libm::cbrt(x), 1.0),
            'i' if of > 0 => (f64::from(63 - of.leading_zeros()), 0.0),
            _ => (0.0, 0.0),
        };
        assert!((got - wanted).abs() <= allowed, "{what} of {of}: {got}, wanted {wanted}");
    }
}

#[test]
fn after_an_undone_cut_slow_start_goes_on_as_if_there_had_been_none() {
    for law in &LAWS {
        let program = Program::of(law.name);
        let run = |between: &str| {
            let mut lines = String::from("b 10 2147483647 1500 100000 0\n");
            for i in 0..8u64 {
                let now = 200_000 * (i + 1);
                writeln!(lines, "a {now} {} 200000 200000 200000 4000000 0 8000000 1 1 1", i + 1).unwrap();
                if i == 3 {
                    lines += between;
                }
            }
            *program.answer(&lines).last().unwrap()
        };
        let gap = "l 900000 0 200000 200000 10 0 1\n";
        assert_eq!(run(&format!("{gap}u\n")), run(""), "{}", law.name);
        assert_ne!(run(gap), run(""), "{}: a cut that is not undone changes nothing", law.name);
    }
}

#[test]
fn a_given_step_and_a_given_reference_round_trip_reach_the_law() {
    let answers = |name: &str, begin: &str| {
        let mut lines = format!("{begin}\n");
        for i in 0..400u64 {
            let now = 540_000 + i * 5_400;
            writeln!(lines, "a {now} 10 540000 540000 540000 1000 0 4000000 {} 1 1", u8::from(i % 100 == 0))
                .unwrap();
        }
        program::Program::of(name).answer(&lines).last().unwrap().segments() - 1000.0
    };
    // Three rounds of growth (the first step comes with the second round), each a window of acknowledgments.
    let (few, many) =
        (answers("hswa", "b 1000 1000 1500 0 6400"), answers("hswa", "b 1000 1000 1500 0 12800"));
    assert!((1.8..2.0).contains(&(many / few)), "{few} and {many} segments");
    let (near, far) =
        (answers("hybla", "b 1000 1000 1500 50000 0"), answers("hybla", "b 1000 1000 1500 25000 0"));
    assert!((2.5..4.0).contains(&(far / near)), "{near} and {far} segments");
}
