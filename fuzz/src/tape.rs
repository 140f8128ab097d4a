//! Any text is refused with its line or becomes a tape that every controller survives and that is
//! written back the same.

use skyhaul_cc::tape::{replay, Tape};
use skyhaul_cc::units::{Bytes, Rate};
use skyhaul_cc::{registry, Setup};

/// One input.
pub fn run(text: &str) {
    let tape: Tape = match text.parse() {
        Ok(tape) => tape,
        Err(error) => {
            let error: skyhaul_cc::tape::TapeError = error;
            assert!(error.line >= 1 && error.line <= text.lines().count().max(1), "{error}");
            return;
        }
    };
    assert_eq!(tape.to_string().parse(), Ok(tape.clone()));
    let setup = Setup { link_rate: Some(Rate::mbit(150)), ..Setup::new(Bytes(1500)) };
    for name in registry::names() {
        let mut controller = registry::build(name, &setup).expect("a known name with its rate");
        for (_, state) in replay(&tape, &mut *controller) {
            assert!(state.cwnd >= Bytes(3000), "{name}");
            assert_ne!(state.pacing_rate, Some(Rate::ZERO), "{name}");
        }
    }
}
