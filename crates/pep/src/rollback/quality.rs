//! Whether UDP, though it works, is worse than TCP would be: a policer or a filter that drops most of it.
//!
//! A slow link is no reason: only while data waits, and the channel moves a tenth of what it did and loses a
//! quarter of its packets, or next to nothing, for seconds, TCP is tried for a while; the faster one stays.

use super::Carriage;
use skyhaul_cc::{Bytes, Duration, Rate, Time};

/// What a channel has moved since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Bytes acknowledged.
    pub(crate) acked: Bytes,
    /// Packets acknowledged and lost.
    pub(crate) packets: (u64, u64),
    /// Data waits to be sent.
    pub(crate) wanting: bool,
}

/// What a trial of TCP says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Stay there for now.
    KeepTcp,
    /// UDP was no slower, or it is time to look again.
    BackToUdp,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    /// What UDP had reached.
    udp: Rate,
    begins: Time,
    ends: Time,
    /// What had been moved when half of it was over.
    half: Option<(Time, Bytes)>,
    /// Until when its result holds.
    keep: Option<Time>,
    over: bool,
}

#[derive(Debug)]
pub(crate) struct Quality {
    /// The last look, and what had been moved by then.
    at: Time,
    before: Progress,
    /// Wanting at every look since.
    wanting: bool,
    /// Of late, the rate by UDP in the mean of the last looks, and the best of it.
    recent: Rate,
    best: Rate,
    bad: u32,
    suspect: Option<Time>,
    trial: Option<Trial>,
    not_before: Time,
    pause: Duration,
    keep: Duration,
}

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Weight of the newest look in the mean.
const NEW: f64 = 0.3;
/// The best rate is forgotten by this much per look: half of it in six minutes.
const FORGET: f64 = 0.998;
/// Less than this share of the best is a collapse, if losses are high; …
const COLLAPSE: (f64, f64) = (0.1, 0.25);
/// … less than this in any case, unless the channel never was fast.
const NOTHING: f64 = 0.03;
const LEAST: Rate = Rate::kbit(500);
/// So many bad looks in a row make a suspect, and so many a trial.
const SUSPECT: u32 = 3;
const GUILTY: u32 = 6;
/// A trial takes so many round trips, at least so long: a TCP connection starts slowly.
const TRIAL: (u32, Duration) = (20, Duration::from_secs(10));
/// TCP stays if it is faster by this factor.
const FASTER: f64 = 1.25;
/// How long TCP is kept before UDP is looked at again, doubled each time up to the second.
const KEEP: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(3600));
/// After a trial that UDP has won.
const PAUSE: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(7200));
/// After a return to UDP.
const SETTLE: Duration = Duration::from_secs(60);

impl Quality {
    pub(crate) fn new(now: Time) -> Self {
        Quality {
            at: now,
            before: Progress::default(),
            wanting: false,
            recent: Rate::ZERO,
            best: Rate::ZERO,
            bad: 0,
            suspect: None,
            trial: None,
            not_before: now,
            pause: PAUSE.0,
            keep: KEEP.0,
        }
    }

    /// What the channel has moved by now; cheap to call often.
    pub(crate) fn look(&mut self, now: Time, carriage: Carriage, rtt: Duration, progress: Progress) {
        self.wanting &= progress.wanting;
        self.measure_trial(now, rtt, progress);
        let took = now - self.at;
        if took < PERIOD {
            return;
        }
        let (before, wanting) = (self.before, self.wanting);
        (self.at, self.before, self.wanting) = (now, progress, progress.wanting);
        // Whoever was away for seconds has no rate to speak of.
        if carriage != Carriage::Udp || took > PERIOD * 3 {
            return;
        }
        let rate = Bytes(progress.acked.0.saturating_sub(before.acked.0)).per(took);
        self.recent = Rate::from_f64(NEW * rate.as_f64() + (1.0 - NEW) * self.recent.as_f64());
        let (acked, lost) = (progress.packets.0 - before.packets.0, progress.packets.1 - before.packets.1);
        let loss = lost as f64 / (acked + lost).max(1) as f64;
        let share = rate.as_f64() / self.best.as_f64().max(1.0);
        let collapsed = share < COLLAPSE.0 && loss > COLLAPSE.1 || share < NOTHING;
        self.best = self.best.scale(FORGET).max(self.recent);
        self.bad = if wanting && self.best >= LEAST && collapsed { self.bad + 1 } else { 0 };
        match self.bad {
            0 => self.suspect = None,
            SUSPECT.. => {
                self.suspect.get_or_insert(now);
            }
            _ => {}
        }
    }

    fn measure_trial(&mut self, now: Time, rtt: Duration, progress: Progress) {
        let Some(trial) = self.trial.as_mut().filter(|trial| trial.keep.is_none() && !trial.over) else {
            return;
        };
        trial.ends = trial.ends.max(trial.begins + rtt * TRIAL.0);
        let middle = trial.begins + (trial.ends - trial.begins) / 2;
        if now >= middle {
            trial.half.get_or_insert((now, progress.acked));
        }
        let Some((since, had)) = trial.half.filter(|_| now >= trial.ends) else { return };
        let tcp =
            Bytes(progress.acked.0.saturating_sub(had.0)).per((now - since).max(Duration::from_millis(1)));
        if tcp.as_f64() > trial.udp.as_f64() * FASTER {
            trial.keep = Some(now + self.keep);
            self.keep = (self.keep * 2).min(KEEP.1);
        } else {
            trial.over = true;
            self.not_before = now + self.pause;
            self.pause = (self.pause * 2).min(PAUSE.1);
        }
    }

    /// Since when UDP is suspected to be worse than TCP, if a trial may follow.
    pub(crate) fn suspects_since(&self) -> Option<Time> {
        self.suspect.filter(|at| *at >= self.not_before)
    }

    /// TCP shall be tried.
    pub(crate) fn wants_trial(&self, now: Time) -> bool {
        self.bad >= GUILTY && now >= self.not_before && self.suspects_since().is_some()
    }

    /// The channel has moved; `trial` says that this is to find out which way is faster.
    pub(crate) fn moved(&mut self, now: Time, carriage: Carriage, trial: bool) {
        let udp = self.recent;
        (self.bad, self.suspect, self.at, self.wanting) = (0, None, now, false);
        if carriage == Carriage::Udp {
            self.trial = None;
            self.not_before = self.not_before.max(now + SETTLE);
        } else if trial {
            let (begins, ends) = (now, now + TRIAL.1);
            self.trial = Some(Trial { udp, begins, ends, half: None, keep: None, over: false });
        }
    }

    /// TCP is in use because it may be, or was, faster.
    pub(crate) fn is_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// What to do about a trial under way, if there is one.
    pub(crate) fn verdict(&self, now: Time) -> Option<Verdict> {
        let trial = self.trial?;
        let back = trial.over || trial.keep.is_some_and(|until| now >= until);
        Some(if back { Verdict::BackToUdp } else { Verdict::KeepTcp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(540);

    /// Seconds of a channel at `kbyte` per second that loses a share.
    struct Run(Quality, Progress, Time);

    impl Run {
        fn go(&mut self, carriage: Carriage, seconds: u64, kbyte: u64, loss: f64, wanting: bool) {
            for _ in 0..seconds * 4 {
                self.2 += Duration::from_millis(250);
                self.1.acked += Bytes(kbyte * 250);
                self.1.packets.0 += 1_000;
                self.1.packets.1 += (1_000.0 * loss / (1.0 - loss)) as u64;
                self.1.wanting = wanting;
                self.0.look(self.2, carriage, RTT, self.1);
            }
        }
    }

    fn run() -> Run {
        Run(Quality::new(Time::ZERO), Progress::default(), Time::ZERO)
    }

    #[test]
    fn a_policer_is_suspected_and_the_faster_way_is_kept() {
        let mut run = run();
        run.go(Carriage::Udp, 20, 10_000, 0.01, true);
        run.go(Carriage::Udp, 8, 100, 0.5, true);
        assert!(run.0.wants_trial(run.2));
        run.0.moved(run.2, Carriage::Tcp, true);
        assert_eq!(run.0.verdict(run.2), Some(Verdict::KeepTcp));
        run.go(Carriage::Tcp, 15, 5_000, 0.0, true);
        assert_eq!(run.0.verdict(run.2), Some(Verdict::KeepTcp));
        run.go(Carriage::Tcp, 310, 5_000, 0.0, true);
        assert_eq!(run.0.verdict(run.2), Some(Verdict::BackToUdp));
    }

    #[test]
    fn a_link_that_became_slow_for_both_returns_to_udp_and_is_not_tried_again_soon() {
        let mut run = run();
        run.go(Carriage::Udp, 20, 10_000, 0.01, true);
        run.go(Carriage::Udp, 8, 100, 0.5, true);
        run.0.moved(run.2, Carriage::Tcp, true);
        run.go(Carriage::Tcp, 15, 60, 0.0, true);
        assert_eq!(run.0.verdict(run.2), Some(Verdict::BackToUdp));
        run.0.moved(run.2, Carriage::Udp, false);
        run.go(Carriage::Udp, 120, 100, 0.5, true);
        assert!(!run.0.wants_trial(run.2));
    }

    #[test]
    fn loss_alone_a_fade_and_an_idle_channel_are_no_reason() {
        for (kbyte, loss, wanting) in
            [(9_000, 0.1, true), (5_000, 0.4, true), (600, 0.05, true), (0, 0.0, false)]
        {
            let mut run = run();
            run.go(Carriage::Udp, 20, 10_000, 0.01, true);
            run.go(Carriage::Udp, 60, kbyte, loss, wanting);
            assert!(!run.0.wants_trial(run.2), "{kbyte} {loss}");
        }
    }
}
