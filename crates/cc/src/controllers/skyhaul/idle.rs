//! After a pause.
//!
//! RFC 9002 §7.8 and RFC 7661 give the window up while it is not used. Ours rests on what trains and delays have
//! told, which does not change by waiting, so it stays; the first flight after a pause begins with paced trains
//! and sets the window by what they find. After ten minutes it begins at half of that, as with a remembered rate
//! that is as old.

use super::path::between;
use super::{Phase, Skyhaul};
use crate::event::Sent;
use crate::units::{Bytes, Time};

/// More in flight than so many packets is a flight: keep-alives and requests are less.
const FLIGHT: u64 = 10;
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
}

impl Skyhaul {
    /// A packet leaves: the first ones of a flight after a pause are to validate.
    pub(super) fn wake(&mut self, sent: &Sent) {
        if sent.in_flight <= Bytes(self.mss.0.saturating_mul(FLIGHT)) {
            return;
        }
        let Some(busy_at) = self.idle.busy_at.replace(sent.now) else { return };
        let pause = between(busy_at, sent.now);
        if !self.rich || self.phase != Phase::Cruise || pause <= PAUSE * self.round_trip() {
            return;
        }
        if pause > OLD {
            self.window.scale(OLD_SHARE);
        }
        self.available = None;
        self.dips.cancel();
        self.await_train(sent.now);
    }
}
