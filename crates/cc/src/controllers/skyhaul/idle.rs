//! After a pause.
//!
//! RFC 9002 §7.8 and RFC 7661 give the window up while it is not used. Ours rests on what trains and delays have
//! told, which does not change by waiting, so it stays, and the first flight after a pause validates it: by a burst
//! that is believed alone where it shows another capacity, and by a paced train. After ten minutes it begins at
//! half of what is known, as with a remembered rate that is as old.

use super::path::between;
use super::{Phase, Skyhaul};
use crate::event::Sent;
use crate::units::Time;
use crate::window::segments;

/// More in flight than so many packets is a flight: keep-alives and requests are less …
const FLIGHT: f64 = 10.0;
/// … and so is more than this share of the window, where that is small.
const SHARE: f64 = 0.5;
/// A pause is longer than so many round trips …
const PAUSE: f64 = 4.0;
/// … and what is known is old after so many seconds.
const OLD: f64 = 600.0;
/// The share of it to begin with then.
const OLD_SHARE: f64 = 0.5;

/// When there was last something to send.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idle {
    busy_at: Option<Time>,
    /// Less than a flight was in flight when the last packet left: a closed window is no pause.
    quiet: bool,
}

impl Skyhaul {
    /// A packet leaves: the first ones of a flight after a pause are to validate.
    pub(super) fn wake(&mut self, sent: &Sent) {
        if segments(sent.in_flight, self.mss) <= FLIGHT.min(SHARE * self.effective()) {
            self.idle.quiet = true;
            return;
        }
        let quiet = std::mem::take(&mut self.idle.quiet);
        let Some(busy_at) = self.idle.busy_at.replace(sent.now).filter(|_| quiet) else { return };
        let pause = between(busy_at, sent.now);
        if !self.rich || self.phase != Phase::Cruise || pause <= PAUSE * self.round_trip() {
            return;
        }
        if pause > OLD {
            self.window.scale(OLD_SHARE);
        }
        self.available = None;
        self.app_limited = false;
        self.dips.cancel();
        self.phase = Phase::Validate { since: Some(sent.now), rounds: 0 };
        self.trains.doubt();
    }
}
