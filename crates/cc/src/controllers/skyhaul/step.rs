//! Handover: the path becomes longer from one packet to the next.
//!
//! No queue of ours grows by milliseconds between neighbours; what grew so and stays although we send no
//! less is a longer path. A queue that somebody else's burst left behind would drain.

use super::path::between;
use crate::event::Report;
use crate::units::Time;

/// Jitter is a step this many times below.
const JITTERS: f64 = 6.0;
/// A step lasts so long, in round trips, and so many packets, before it is believed.
const WATCH: f64 = 0.25;
const WATCH_PACKETS: u32 = 32;
/// It stays if no packet falls back by more than this share of it.
const STAYS: f64 = 0.8;

#[derive(Clone, Copy, Debug)]
struct Watch {
    since: Time,
    before: f64,
    height: f64,
    least: f64,
    packets: u32,
}

/// The lookout for steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    owd: Option<f64>,
    watch: Option<Watch>,
}

impl Steps {
    /// The path was out, long enough for any queue to drain: what comes next is compared with the least
    /// delay, not with the last one.
    pub fn after_outage(&mut self, base: Option<f64>) {
        self.owd = base;
        self.watch = None;
    }

    /// Hears of every packet that has arrived; by how much the path has become longer, once that is clear.
    /// Steps below `least` are not looked at.
    pub fn hear(
        &mut self,
        report: &Report,
        received_at: Time,
        jitter: f64,
        least: f64,
        round_trip: f64,
    ) -> Option<f64> {
        let owd = between(report.sent_at, received_at);
        let before = self.owd.replace(owd)?;
        if let Some(watch) = &mut self.watch {
            watch.packets += 1;
            watch.least = watch.least.min(owd);
            let long_enough =
                watch.packets >= WATCH_PACKETS && between(watch.since, received_at) > WATCH * round_trip;
            if watch.least < watch.before + STAYS * watch.height {
                self.watch = None;
            } else if long_enough {
                let longer = watch.least - watch.before;
                self.watch = None;
                return Some(longer);
            }
            return None;
        }
        let height = owd - before;
        if height > least.max(JITTERS * jitter) {
            self.watch = Some(Watch { since: received_at, before, height, least: owd, packets: 0 });
        }
        None
    }
}
