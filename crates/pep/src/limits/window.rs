//! The window controller: how much a TCP sender on the near side (LAN) may send, so that the far side (WAN) never
//! waits for data while it could send, and memory stays within its limit.
//!
//! ```text
//! wanted buffer   T = min(limit, 2 R H + mss)      R: rate at which data leave, H: time the near side needs to answer
//! window          A = T - held                     never taken back: what was promised stays promised
//! ```
//!
//! Twice the near side's bandwidth-delay product, because half of it is on its way while the other half drains. A
//! reader that was slow and becomes fast finds data waiting: T is at least two segments. After RFC 1122 §4.2.3.3 a
//! window that has closed opens again only by a segment or more, so that nobody sends crumbs.

use skyhaul_cc::{Bytes, Duration, Rate};

/// Weight of a new sample of the leaving rate when it is lower than believed; a higher one counts at once, since
/// starving the far side costs more than memory.
const WEIGHT: f64 = 0.125;

/// One flow's window towards its sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowController {
    mss: Bytes,
    limit: Bytes,
    rate: Rate,
    held: Bytes,
    /// Bytes the sender may still send by what it was told.
    promised: Bytes,
}

impl WindowController {
    /// A flow that may hold `limit` at most, two segments of `mss` at least.
    pub fn new(mss: Bytes, limit: Bytes) -> Self {
        let mss = mss.max(Bytes(1));
        let limit = limit.max(mss * 2);
        WindowController { mss, limit, rate: Rate::ZERO, held: Bytes::ZERO, promised: limit.min(mss * 10) }
    }

    /// Bytes held here: arrived and not yet gone.
    pub fn held(&self) -> Bytes {
        self.held
    }

    /// What the sender may send from now on.
    pub fn window(&self) -> Bytes {
        self.promised
    }

    /// The buffer that keeps the far side busy, by what left so far; `answer` as for [`left`](Self::left).
    pub fn wanted(&self, answer: Duration) -> Bytes {
        (self.rate.bdp(answer) * 2 + self.mss).max(self.mss * 2).min(self.limit)
    }

    /// Another limit, as the resource manager has it. A lower one takes nothing back that was promised.
    pub fn set_limit(&mut self, limit: Bytes) {
        self.limit = limit.max(self.mss * 2);
    }

    /// `bytes` came from the sender; what exceeds its window counts too, and closes it.
    pub fn arrived(&mut self, bytes: Bytes) {
        self.held += bytes;
        self.promised = self.promised.saturating_sub(bytes);
    }

    /// `bytes` left towards the far side within `time`; `answer` is how long the near side needs to send more.
    /// Returns the new window if the sender should hear of it now.
    pub fn left(&mut self, bytes: Bytes, time: Duration, answer: Duration) -> Option<Bytes> {
        // Nothing leaves where nothing is: that is not the far side's fault.
        let empty = self.held == Bytes::ZERO;
        self.held = self.held.saturating_sub(bytes);
        if !time.is_zero() && !empty {
            let sample = bytes.per(time).as_f64();
            let old = self.rate.as_f64();
            self.rate = Rate::from_f64(if sample > old { sample } else { old + WEIGHT * (sample - old) });
        }
        let wanted = self.wanted(answer);
        let window = wanted.saturating_sub(self.held);
        let more = window.saturating_sub(self.promised);
        // A closed window opens by a segment; an open one is told of when it has grown by a quarter.
        let least = if self.promised < self.mss { self.mss } else { self.mss.max(wanted / 4) };
        if more < least {
            return None;
        }
        self.promised = window;
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const MSS: Bytes = Bytes(1448);
    const STEP: Duration = Duration::from_micros(100);

    /// What a flow went through.
    #[derive(Debug, Default)]
    struct Run {
        most: Bytes,
        delivered: Bytes,
        /// Longest time without data to send on.
        starved: Duration,
        /// Longest time with a window below a segment.
        closed: Duration,
    }

    /// A LAN of `answer` round trip and 1 Gbit/s, a reader that takes `rate(now)`; steps of 100 µs for `steps`.
    fn run(limit: Bytes, answer: Duration, steps: u32, rate: impl Fn(u32) -> Rate) -> Run {
        let mut controller = WindowController::new(MSS, limit);
        let (mut run, mut lan, mut news) = (Run::default(), VecDeque::new(), VecDeque::new());
        let (mut sender, mut starved, mut closed) = (controller.window(), Duration::ZERO, Duration::ZERO);
        let half = (answer.as_micros() / 2 / STEP.as_micros()) as u32;
        for step in 0..steps {
            while news.front().is_some_and(|(at, _)| *at <= step) {
                sender = news.pop_front().map_or(sender, |(_, window)| sender + window);
            }
            let burst = sender.min(Rate::mbit(1000).bytes_in(STEP));
            sender -= burst;
            lan.push_back((step + half, burst));
            while lan.front().is_some_and(|(at, _)| *at <= step) {
                controller.arrived(lan.pop_front().map_or(Bytes::ZERO, |(_, bytes)| bytes));
            }
            run.most = run.most.max(controller.held());
            let out = controller.held().min(rate(step).bytes_in(STEP));
            let before = controller.window();
            starved =
                if out == Bytes::ZERO && rate(step) > Rate::ZERO { starved + STEP } else { Duration::ZERO };
            closed = if before < MSS && rate(step) > Rate::ZERO { closed + STEP } else { Duration::ZERO };
            (run.starved, run.closed) = (run.starved.max(starved), run.closed.max(closed));
            run.delivered += out;
            if let Some(window) = controller.left(out, STEP, answer) {
                news.push_back((step + half, window.saturating_sub(before)));
            }
        }
        run
    }

    #[test]
    fn a_slow_reader_never_makes_the_buffer_exceed_its_limit() {
        for limit in [Bytes::kib(64), Bytes::mib(1)] {
            let run = run(limit, Duration::from_millis(2), 50_000, |_| Rate::mbit(2));
            assert!(run.most <= limit, "{run:?}");
            // And hardly more than it needs.
            assert!(run.most <= MSS * 12, "{run:?}");
        }
    }

    #[test]
    fn a_fast_reader_never_waits_for_a_closed_window_longer_than_a_round_trip() {
        for (answer, limit) in [(1, Bytes::mib(1)), (10, Bytes::mib(8))] {
            let answer = Duration::from_millis(answer);
            let run = run(limit, answer, 50_000, |_| Rate::mbit(900));
            assert!(run.closed <= answer && run.starved <= answer * 2, "{run:?}");
            assert!(run.delivered.per(STEP * 50_000).as_mbit() > 850.0, "{run:?}");
        }
    }

    #[test]
    fn a_reader_that_stops_and_goes_on_gets_its_rate_back() {
        let go = |step: u32| if (10_000..30_000).contains(&step) { Rate::ZERO } else { Rate::mbit(500) };
        let run = run(Bytes::mib(1), Duration::from_millis(2), 50_000, go);
        assert!(run.most <= Bytes::mib(1), "{run:?}");
        assert!(run.delivered.per(STEP * 30_000).as_mbit() > 470.0, "{run:?}");
    }

    proptest! {
        #[test]
        fn what_is_held_and_promised_stays_within_the_limit_for_any_order_of_events(
            steps in prop::collection::vec((any::<bool>(), 0u64..100_000), 1..300)
        ) {
            let limit = Bytes::kib(256);
            let mut controller = WindowController::new(MSS, limit);
            for (comes, bytes) in steps {
                if comes {
                    controller.arrived(Bytes(bytes).min(controller.window()));
                } else {
                    controller.left(Bytes(bytes).min(controller.held()), STEP, Duration::from_millis(5));
                }
                prop_assert!(controller.held() + controller.window() <= limit);
            }
        }
    }
}
