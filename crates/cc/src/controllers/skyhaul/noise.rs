//! Where the path shakes what it carries, trains say nothing of it and delays are not queues alone.
//!
//! Two signs: delays that differ from one packet to the next, and packets that are held back and let go
//! together, as by a shared medium whose slots come round in turn. Of the second kind those in each clump that
//! waited least show the queue: what the mean of a round was at least, for as long as a base is believed, is none.
//! The least delay of all would be too little, because few packets wait less than many.

use super::path::{between, MEMORY};
use super::round::{Finding, Lows};
use super::trains::{Sample, Trains};
use super::{Phase, Skyhaul, SHARED_GROWTH, VALIDATED};
use crate::event::Train;
use crate::parts::extreme::{position, WindowedMin};
use crate::units::Time;

/// Jitter above which trains say nothing; and as a share of a train's time, because the trains of others
/// on the link are no noise.
const NOISY: f64 = 0.0002;
const NOISY_TRAINS: f64 = 0.15;
const NOISY_SHARED: f64 = 4.0;
/// Clumped rounds in a row that are believed, and others that end it.
const CLUMPED_ROUNDS: u32 = 2;
/// Beside others, where nothing shakes, what was taken for noise is forgotten by this share per round: it may be queue.
const FORGOTTEN: f64 = 0.2;
/// Queue that noise may hide at most.
const HIDDEN_MOST: f64 = 0.020;

/// While the start is in noise, so much of a window leaves as one burst, once a round trip, and at least and at most
/// so many packets: a burst that lasts longer than packets are held back tells the capacity.
const BURST: f64 = 0.5;
const BURST_PACKETS: (f64, f64) = (16.0, 1024.0);

/// What shakes the path.
#[derive(Clone, Debug)]
pub(super) struct Noise {
    shaken: bool,
    clumped: bool,
    /// The least of what rounds showed in clumps.
    level: WindowedMin<f64>,
    burst_at: Option<Time>,
    /// Rounds in a row that say otherwise.
    otherwise: u32,
    queue: f64,
}

impl Noise {
    pub fn new() -> Self {
        let width = u64::try_from(MEMORY.as_nanos()).unwrap_or(u64::MAX);
        let level = WindowedMin::new(width);
        Noise { shaken: false, clumped: false, level, burst_at: None, otherwise: 0, queue: 0.0 }
    }

    /// Whether packets are held back and let go together.
    pub fn is_clumped(&self) -> bool {
        self.clumped
    }

    /// What was no queue is proven to be more.
    pub fn forget_level(&mut self) {
        self.level.clear();
    }

    /// By what the queue target grows, because less cannot be told from noise.
    pub fn queue(&self) -> f64 {
        self.queue
    }
}

impl Skyhaul {
    /// Whether trains say nothing here.
    pub(super) fn is_noisy(&self) -> bool {
        self.noise.shaken || self.noise.clumped
    }

    /// A packet has arrived. Once noisy, a path is so until half of it has gone.
    pub(super) fn look_for_noise(&mut self) {
        let train = self.trains.capacity().map_or(0.0, |rate| Trains::length(rate) / rate);
        // Others on the link make delays vary as well.
        let shared = self.is_shared(self.now, SHARED_GROWTH) && !self.trains.are_clumped();
        let shared = if shared { NOISY_SHARED } else { 1.0 };
        let threshold = shared * NOISY.max(NOISY_TRAINS * train);
        let before = self.noise.shaken;
        self.noise.shaken = self.path.jitter() > if before { 0.5 * threshold } else { threshold };
        if self.noise.shaken && !before && self.trains.are_clumped() {
            self.trains.forget_others();
        }
    }

    /// A round has ended; the queue it found is put right.
    pub(super) fn hear_noise(&mut self, finding: &mut Finding) {
        let clumped = finding.clumps.is_some();
        let noise = &mut self.noise;
        noise.otherwise = if clumped == noise.clumped { 0 } else { noise.otherwise + 1 };
        if noise.otherwise >= CLUMPED_ROUNDS {
            noise.otherwise = 0;
            noise.clumped = clumped;
            noise.level.clear();
            if clumped {
                self.trains.forget_others();
            }
        }
        let mut hidden = finding.mean - finding.least;
        if let Some(Lows { mean, least }) = finding.clumps.filter(|_| self.noise.clumped) {
            hidden = mean - least;
            self.noise.level.update(position(finding.now), mean);
            let level = self.noise.level.get().unwrap_or(mean);
            self.path.put_level(level);
            finding.least = (mean - level).max(0.0);
        }
        if self.is_noisy() {
            self.noise.queue = hidden.clamp(0.0, HIDDEN_MOST);
        } else {
            self.noise.queue = 0.0;
            if self.is_shared(finding.now, SHARED_GROWTH) {
                self.path.forget_offset(FORGOTTEN);
            }
        }
    }

    fn fills_in_noise(&self) -> bool {
        self.is_noisy() && self.phase == Phase::Cruise && !self.cruise.is_full()
    }

    /// Packets of a burst in a start that noise leaves without trains.
    pub(super) fn long_burst(&self) -> f64 {
        let packets = (BURST * self.window.segments()).min(BURST_PACKETS.1).floor();
        if self.fills_in_noise() && packets >= BURST_PACKETS.0 {
            packets
        } else {
            0.0
        }
    }

    /// Such a burst, if one is due.
    pub(super) fn poll_long_burst(&mut self, now: Time) -> Option<Train> {
        let due = self.noise.burst_at.is_none_or(|at| between(at, now) >= self.round_trip());
        let packets = self.long_burst();
        if !due || packets < 1.0 {
            return None;
        }
        self.noise.burst_at = Some(now);
        self.trains.first(now, packets, None)
    }

    /// What trains say in noise: nothing but in the start.
    pub(super) fn hear_long_burst(&mut self, sample: Sample) {
        let Sample::Burst { packets, rate, outlasts: true, delay, .. } = sample else { return };
        let window = VALIDATED * rate * self.round_trip();
        let held_up = self.is_held_up(delay, packets / rate);
        if self.fills_in_noise() && !held_up && window > self.window.segments() {
            self.window.set(window);
            self.cruise.filled();
        }
    }
}
