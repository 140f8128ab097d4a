//! RTTmin that can be unlearned: a memory of 15 s and a probe, so that flows that joined a standing queue
//! find the true round trip, and a path that became longer is not taken for a queue. Not in the paper.

use crate::event::Ack;
use crate::parts::extreme::position;
use crate::parts::{scaled, WindowedMin};
use crate::units::{Duration, Time};

/// A least round trip not seen for so long is probed, as in BBR.
const PROBE_AFTER: Duration = Duration::from_secs(10);
/// A least round trip not seen for so long is forgotten: a probe and its answer fit between.
const MEMORY: Duration = Duration::from_secs(15);
/// A sample within this factor of the least one has seen it: half of the smallest queue wanted.
const SEEN: f64 = 1.005;
/// Round trips after a probe's beginning before queues are judged again.
const SETTLING: f64 = 2.5;
/// Rounds with a long queue, in a row, that make a longer path likelier than a queue of ours.
const STUBBORN: u32 = 4;
/// Room for the queue grows by this factor per round without one, after overflows have shown it small.
const RECOVERY: f64 = 1.25;
/// Least room, as a share of the least round trip.
const ROOM_LEAST: f64 = 0.01;

/// A round trip below this share of the least one so far tells that a queue was in that one, and for how
/// long this is remembered.
const FALLEN: f64 = 0.9;
const FALLEN_MEMORY: Duration = Duration::from_secs(30);
/// So many samples in a row above a limit are no chance.
const RECENT: usize = 8;
/// Jitter spread evenly over a range differs by a third of it from one sample to the next.
const RANGE_OVER_STEP: u32 = 3;
/// Samples in a round below which their steps say nothing.
const FEW_STEPS: u32 = 8;
/// Most of the least round trip that is taken for jitter.
const SPREAD_MOST: f64 = 0.125;

/// The least round trip, the queue above it, and the probe.
#[derive(Clone, Debug)]
pub(super) struct RoundTrip {
    least: WindowedMin<Duration>,
    recent: [Duration; RECENT],
    next: usize,
    /// Steps from sample to sample in this round, their sum and number.
    steps: (Duration, u32),
    /// Samples of the last round.
    last_round: u32,
    spread: Duration,
    seen: Time,
    /// The least sample of this round.
    round: Option<Duration>,
    long_rounds: u32,
    probe_until: Option<Time>,
    settled: Time,
    /// Least sample since a probe began that may replace the memory.
    replacing: Option<Duration>,
    room: f64,
    /// Whether the least round trip should be the path's by now, and when it was not.
    long_lived: bool,
    fallen: Option<Time>,
}

impl RoundTrip {
    pub(super) fn new() -> Self {
        RoundTrip {
            least: WindowedMin::new(position(Time::ZERO + MEMORY)),
            recent: [Duration::ZERO; RECENT],
            next: 0,
            steps: (Duration::ZERO, 0),
            last_round: 0,
            spread: Duration::ZERO,
            seen: Time::ZERO,
            round: None,
            long_rounds: 0,
            probe_until: None,
            settled: Time::ZERO,
            replacing: None,
            room: 1.0,
            long_lived: false,
            fallen: None,
        }
    }

    /// RTTmin; absent before the first sample.
    pub(super) fn least(&self) -> Option<Duration> {
        self.least.get()
    }

    /// The newest sample; zero before the first.
    pub(super) fn latest(&self) -> Duration {
        self.recent[(self.next + RECENT - 1) % RECENT]
    }

    /// The least of the newest samples, of as many as the last round had in an eighth, eight at most; zero
    /// before there are so many.
    pub(super) fn recent(&self) -> Duration {
        // tidy: allow(eight): a share of a round, no bits.
        let count = usize::try_from(self.last_round / 8).unwrap_or(RECENT).clamp(1, RECENT);
        let newest = (1..=count).map(|back| self.recent[(self.next + RECENT - back) % RECENT]);
        newest.min().unwrap_or_default()
    }

    /// Range of the jitter seen while the path was not full.
    pub(super) fn spread(&self) -> Duration {
        self.spread
    }

    /// The path is not full: what varies is jitter.
    pub(super) fn learn_spread(&mut self) {
        let (sum, count) = self.steps;
        if let (Some(least), true) = (self.least(), count >= FEW_STEPS) {
            let range = (sum / count).saturating_mul(RANGE_OVER_STEP);
            self.spread = self.spread.max(range).min(scaled(least, SPREAD_MOST));
        }
    }

    /// What the least of dense samples stands above `least` by jitter alone, as a share of it.
    fn noise(&self) -> f64 {
        self.least().map_or(0.0, |least| self.spread.as_secs_f64() / least.as_secs_f64())
    }

    /// Greatest queue that is known to fit, as a share of the least round trip.
    pub(super) fn room(&self) -> f64 {
        self.room
    }

    /// Packets were lost to a queue of this share of the least round trip: half of it fits.
    pub(super) fn lost_at(&mut self, queue: f64) {
        self.room = self.room.min(queue / 2.0).max(ROOM_LEAST);
    }

    /// A round passed without a queue.
    pub(super) fn more_room(&mut self) {
        self.room = (self.room * RECOVERY).min(1.0);
    }

    pub(super) fn is_probing(&self) -> bool {
        self.probe_until.is_some()
    }

    /// Whether queues tell of a probe rather than of the window.
    pub(super) fn is_settling(&self, now: Time) -> bool {
        now < self.settled
    }

    /// Takes a sample. At a round's end the answer is the standing queue of that round, as a share of the
    /// least round trip: jitter and bundled ACKs do not stand.
    pub(super) fn on_ack(&mut self, ack: &Ack) -> Option<f64> {
        let sample = self.sample(ack);
        if self.latest() > Duration::ZERO {
            self.steps.0 = self.steps.0.saturating_add(self.latest().abs_diff(sample));
            self.steps.1 = self.steps.1.saturating_add(1);
        }
        self.recent[self.next] = sample;
        self.next = (self.next + 1) % RECENT;
        if self.least().is_none_or(|least| sample <= scaled(least, SEEN)) {
            self.seen = ack.now;
        }
        let before = self.least();
        self.least.update(position(ack.now), sample);
        if let (Some(before), true) = (before, self.long_lived) {
            if sample < scaled(before, FALLEN) {
                self.fallen = Some(ack.now);
            }
        }
        if self.least() > before {
            // The new one was seen among dense samples.
            self.spread = Duration::ZERO;
        }
        if self.probe_until.is_some_and(|until| ack.now >= until) {
            self.probe_until = None;
        }
        if let Some(least) = &mut self.replacing {
            *least = sample.min(*least);
            if ack.now >= self.settled {
                let least = *least;
                self.least.clear();
                self.least.update(position(ack.now), least);
                self.spread = Duration::ZERO;
                self.replacing = None;
            }
        }
        if !ack.round_start {
            self.round = Some(self.round.map_or(sample, |least| least.min(sample)));
            return None;
        }
        let least = self.least()?;
        let standing = self.round.replace(sample)?;
        let share = standing.saturating_sub(least).as_secs_f64() / least.as_secs_f64();
        Some((share - self.noise()).max(0.0))
    }

    /// Steps from sample to sample are counted anew.
    pub(super) fn next_round(&mut self) {
        self.last_round = self.steps.1;
        self.steps = (Duration::ZERO, 0);
    }

    /// The round trip that an ACK tells of. Hosts take no sample from packets sent twice, so in a long
    /// recovery `latest` is old and the queue it tells of is gone.
    fn sample(&self, ack: &Ack) -> Duration {
        let elapsed = ack.now.since(ack.sent_at);
        let latest = ack.rtt.latest.max(Duration::from_nanos(1));
        match self.least() {
            Some(least) if elapsed >= least => latest.min(elapsed),
            _ => latest,
        }
    }

    /// Whether the queue has been above `eta` least round trips for some rounds; `standing` is the newest.
    pub(super) fn is_stubborn(&mut self, standing: f64, eta: f64) -> bool {
        self.long_rounds = if 1.0 + standing > eta { self.long_rounds.saturating_add(1) } else { 0 };
        self.long_rounds >= STUBBORN
    }

    /// Whether the least round trip was not seen for long.
    pub(super) fn is_unseen(&self, now: Time) -> bool {
        now.since(self.seen) > PROBE_AFTER
    }

    /// Whether the least round trip turned out much shorter lately: others' queue was in it.
    pub(super) fn comes_and_goes(&self, now: Time) -> bool {
        self.fallen.is_some_and(|at| now.since(at) < FALLEN_MEMORY)
    }

    /// From now on a much shorter round trip tells of others; before, first samples are what they are.
    pub(super) fn expect_no_less(&mut self) {
        self.long_lived = true;
    }

    /// Others keep the queue long; the least round trip is remembered meanwhile.
    pub(super) fn keep_least(&mut self, now: Time) {
        if let Some(least) = self.least() {
            self.least.update(position(now), least);
        }
        self.seen = now;
    }

    /// Begins a probe; with `replacing`, what it sees is the least round trip from then on.
    pub(super) fn start_probe(&mut self, ack: &Ack, replacing: bool) {
        if replacing {
            self.replacing = Some(Duration::MAX);
        }
        self.long_rounds = 0;
        self.seen = ack.now;
        self.probe_until = Some(ack.now + ack.rtt.latest);
        self.settled = ack.now + scaled(ack.rtt.latest, SETTLING);
    }
}
