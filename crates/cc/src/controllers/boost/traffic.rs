//! The traffic monitor: what each flow shows of its path (paper 000, sections 3.1 and 3.4), from nothing but
//! what a controller hears. The learning state machine of the next flow may start from it ([`PathRecord`]).
//!
//! | feature                  | measured as                                                             |
//! |--------------------------|-------------------------------------------------------------------------|
//! | delay and variation      | mean and standard deviation of the round trip                           |
//! | ACK interval, variation  | the same of the time between acknowledgments                            |
//! | reordering, variation    | share of bytes that arrive after later ones; by how much later, mean and deviation |
//! | middlebox hold           | height of the steps by which round trips fall while answers come at once |
//! | random loss              | share of bytes whose loss was judged random                             |
//! | available bandwidth      | greatest delivery rate of ten round trips                               |

use crate::controller::PathHistory;
use crate::event::{Ack, Judgement, Loss};
use crate::parts::WindowedMax;
use crate::units::{Bytes, Duration, Rate, Share, Time};

/// Samples after which the oldest begin to be forgotten.
const MEMORY: f64 = 65_536.0;
/// Rounds over which the greatest delivery rate is kept.
const BEST_ROUNDS: u64 = 10;
/// Answers closer than this share of what separated their packets come at once.
const AT_ONCE: f64 = 0.1;
/// Falls of the round trip in a row that make a step of a sawtooth.
const STEPS: u32 = 3;

/// Mean and standard deviation of samples, with a long memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count = (self.count + 1.0).min(MEMORY);
        let (weight, distance) = (1.0 / self.count, value - self.mean);
        self.mean += weight * distance;
        self.variance = (1.0 - weight) * (self.variance + weight * distance * distance);
    }

    /// Mean; zero of nothing.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Standard deviation; zero of nothing.
    pub fn deviation(&self) -> f64 {
        libm::sqrt(self.variance.max(0.0))
    }
}

/// What a flow has learnt of its path; times in seconds where they are [`Moments`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathRecord {
    /// The least round trip.
    pub least: Duration,
    /// Round trip.
    pub round_trip: Moments,
    /// Time between acknowledgments.
    pub ack_interval: Moments,
    /// Share of bytes that arrived after later ones.
    pub reordered: Share,
    /// How much later such bytes were sent than those they should have come before.
    pub reordered_by: Moments,
    /// How long a middlebox holds packets until it lets them go at once; no samples where none does.
    pub hold: Moments,
    /// Share of bytes lost at random.
    pub random_loss: Share,
    /// Greatest delivery rate lately, in payload.
    pub bandwidth: Rate,
}

impl PathRecord {
    /// The part of it that every controller can begin with. The variation of the delay stands for the jitter,
    /// although the queue has its part in it.
    pub fn history(&self) -> PathHistory {
        PathHistory {
            loss: self.random_loss,
            jitter: Duration::try_from_secs_f64(self.round_trip.deviation()).unwrap_or_default(),
            reordered: self.reordered,
            ..PathHistory::of(self.bandwidth, self.least)
        }
    }
}

/// Collects the features of one flow.
#[derive(Clone, Debug)]
pub struct TrafficMonitor {
    least: Option<Duration>,
    round_trip: Moments,
    last: Option<(Time, Time)>,
    ack_interval: Moments,
    newest: Time,
    acked: Bytes,
    late: Bytes,
    reordered_by: Moments,
    /// Fall of the round trip since answers began to come at once, and the number of answers.
    fall: (Duration, u32),
    hold: Moments,
    lost: Bytes,
    rounds: u64,
    best: WindowedMax<Rate>,
}

impl Default for TrafficMonitor {
    fn default() -> Self {
        TrafficMonitor::new()
    }
}

impl TrafficMonitor {
    /// Nothing seen yet.
    pub fn new() -> Self {
        TrafficMonitor {
            least: None,
            round_trip: Moments::default(),
            last: None,
            ack_interval: Moments::default(),
            newest: Time::ZERO,
            acked: Bytes::ZERO,
            late: Bytes::ZERO,
            reordered_by: Moments::default(),
            fall: (Duration::ZERO, 0),
            hold: Moments::default(),
            lost: Bytes::ZERO,
            rounds: 0,
            best: WindowedMax::new(BEST_ROUNDS),
        }
    }

    /// An acknowledgment.
    pub fn on_ack(&mut self, ack: &Ack) {
        let sample = ack.now.since(ack.sent_at).max(Duration::from_nanos(1));
        self.least = Some(self.least.map_or(ack.rtt.min, |least| least.min(ack.rtt.min)));
        self.round_trip.add(sample.as_secs_f64());
        if let Some((now, sent_at)) = self.last {
            let (apart, sent_apart) = (ack.now.since(now), ack.sent_at.since(sent_at));
            self.ack_interval.add(apart.as_secs_f64());
            self.on_spacing(apart, sent_apart);
        }
        self.last = Some((ack.now, ack.sent_at));
        self.acked += ack.acked;
        if ack.sent_at < self.newest {
            self.late += ack.acked;
            self.reordered_by.add(self.newest.since(ack.sent_at).as_secs_f64());
        }
        self.newest = self.newest.max(ack.sent_at);
        self.rounds += u64::from(ack.round_start);
        if let Some(rate) = ack.delivery_rate.filter(|_| !ack.app_limited) {
            self.best.update(self.rounds, rate);
        }
    }

    /// Whoever holds packets and lets them go at once makes a sawtooth of round trips: one step up, then each
    /// answer's shorter by what separated the packets.
    fn on_spacing(&mut self, apart: Duration, sent_apart: Duration) {
        let at_once = apart.as_secs_f64() < AT_ONCE * sent_apart.as_secs_f64();
        if at_once {
            self.fall.0 = self.fall.0.saturating_add(sent_apart - apart);
            self.fall.1 = self.fall.1.saturating_add(1);
            return;
        }
        let (height, steps) = std::mem::take(&mut self.fall);
        if steps >= STEPS {
            // The first and the last packet of a bunch are one spacing less apart than the hold is long.
            self.hold.add((height + height / steps).as_secs_f64());
        }
    }

    /// A loss and what it was taken for.
    pub fn on_loss(&mut self, loss: &Loss, judgement: Judgement) {
        if judgement == Judgement::Random {
            self.lost += loss.lost;
        }
    }

    /// What was learnt so far; nothing before the first delivery rate.
    pub fn record(&self) -> Option<PathRecord> {
        let all = self.acked + self.lost;
        let share = |part: Bytes| Share::new(part.as_f64() / all.as_f64().max(1.0)).unwrap_or(Share::ZERO);
        Some(PathRecord {
            least: self.least?,
            round_trip: self.round_trip,
            ack_interval: self.ack_interval,
            reordered: share(self.late),
            reordered_by: self.reordered_by,
            hold: self.hold,
            random_loss: share(self.lost),
            bandwidth: self.best.get()?,
        })
    }
}
