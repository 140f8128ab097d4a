//! State of RACK (RFC 8985 §5.2) and its reordering window.

use skyhaul_cc::units::{Duration, Time};
use skyhaul_cc::Rtt;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rack {
    /// Transmission that was delivered and sent last.
    pub newest: u64,
    /// Its round trip.
    pub rtt: Duration,
    /// Highest segment delivered so far, plus one.
    pub delivered_to: u64,
    pub reordering_seen: bool,
    /// `reo_wnd_mult` - 1.
    widened: u32,
    /// Duplicates widen the window once per round trip: not before this segment is acknowledged.
    widen_after: u64,
    /// When the oldest suspect becomes lost.
    pub due: Option<Time>,
}

impl Rack {
    /// How long something sent later may have been there before, RFC 8985 §6.2 step 4. `gap`: recovery is
    /// under way or three segments are reported above a gap.
    pub fn window(&self, gap: bool, rtt: Rtt) -> Duration {
        if !self.reordering_seen && gap {
            return Duration::ZERO;
        }
        (rtt.min / 4 * (self.widened + 1)).min(rtt.smoothed)
    }

    /// A segment was reported that was there before, while all below `first` is acknowledged and all below
    /// `next` was sent.
    pub fn on_duplicate(&mut self, first: u64, next: u64, probing: bool) {
        // A duplicate that is no probe's tells of reordering (RFC 3708), which step 3 of RFC 8985 §6.2 can
        // not see where everything late was sent again.
        self.reordering_seen |= !probing;
        // Step 4: a duplicate means that the window was too small; once per round trip.
        if first >= self.widen_after {
            self.widened = (self.widened + 1).min(MOST_WIDENED);
            self.widen_after = next;
        }
    }
}

/// The reordering window grows to the round trip, four quarters of it, at most; RFC 8985 §6.2 has no
/// bound but that.
const MOST_WIDENED: u32 = 15;
