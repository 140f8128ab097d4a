//! What losses cost: how soon they are noticed, and how long they hold up what follows. Heard from outside
//! of the ends, so that every way to find losses is measured alike.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use skyhaul_cc::units::{Duration, Time};

use crate::trace::{Note, Observer};

/// Losses of the flows of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Repairs {
    /// First copies that something sent later passed: the ordinary loss.
    pub amid: Delays,
    /// First copies after which nothing else arrived until they were sent again: the end of what was
    /// there to send.
    pub tail: Delays,
    /// Copies sent again that were lost once more.
    pub again: Delays,
    /// Times in which the receiver waited for a lost segment although it could have had it: nothing lost, the
    /// segment would have been there.
    pub stalls: Delays,
}

/// Sums over some delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// How many.
    pub count: u64,
    /// All together.
    pub sum: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Repairs {
    /// All lost first copies.
    pub fn first(&self) -> Delays {
        self.amid.and(self.tail)
    }
}

impl Delays {
    /// The mean; none of none.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_secs_f64(self.sum.as_secs_f64() / self.count as f64))
    }

    /// These and those.
    #[must_use]
    pub fn and(self, other: Delays) -> Delays {
        Delays {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            longest: self.longest.max(other.longest),
        }
    }

    fn add(&mut self, delay: Duration) {
        self.count += 1;
        self.sum += delay;
        self.longest = self.longest.max(delay);
    }
}

/// Measures [`Repairs`]. A delay of a lost copy is from its departure to that of the next copy of the same
/// segment, so it is a round trip at the least; a probe or a needless copy counts like any other.
///
/// ```
/// # use skyhaul_sim::{repairs::RepairsObserver, world::World, link::Link, scenario::{Dir, Scenario}};
/// # use skyhaul_cc::Duration;
/// # let scenario = Scenario::find("p1.down-270").unwrap();
/// let mut world = World::on(&scenario, Dir::Forward, 1);
/// let (observer, repairs) = RepairsObserver::new(Duration::from_millis(270));
/// world.observe(Box::new(observer));
/// // ... add flows, run ...
/// assert_eq!(repairs.so_far().amid.count, 0);
/// ```
#[derive(Debug)]
pub struct RepairsObserver {
    way: Duration,
    shared: Arc<Mutex<Repairs>>,
    flows: BTreeMap<usize, FlowState>,
}

/// Where the results of a [`RepairsObserver`] are to be had.
#[derive(Clone, Debug)]
pub struct RepairsReport(Arc<Mutex<Repairs>>);

impl RepairsReport {
    /// What was measured so far.
    pub fn so_far(&self) -> Repairs {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct FlowState {
    transmissions: u64,
    /// Segments of which no copy is on its way or there.
    lost: BTreeMap<u64, Lost>,
    /// Segments whose first copy was lost, with the time at which it would have been there.
    missing: BTreeMap<u64, Time>,
    /// Transmissions that arrive, with the times of their departure, the oldest first.
    arriving: VecDeque<(u64, Time)>,
    /// When the in-order point came to where it is.
    stopped: Time,
}

#[derive(Clone, Copy, Debug)]
struct Lost {
    sent_at: Time,
    transmission: u64,
    again: bool,
}

impl RepairsObserver {
    /// An observer, and where it reports. `way`: how long a segment takes to the receiver if nothing holds
    /// it up.
    pub fn new(way: Duration) -> (Self, RepairsReport) {
        let shared = Arc::default();
        let report = RepairsReport(Arc::clone(&shared));
        (RepairsObserver { way, shared, flows: BTreeMap::new() }, report)
    }
}

impl Observer for RepairsObserver {
    fn note(&mut self, at: Time, flow: usize, note: &Note) {
        let state = self.flows.entry(flow).or_default();
        match *note {
            Note::Sent { segment, dropped, .. } => {
                state.transmissions += 1;
                if let Some(lost) = state.lost.remove(&segment.seq) {
                    let passed = state.passed(lost, at, self.way);
                    let mut repairs = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                    let class = match (lost.again, passed) {
                        (true, _) => &mut repairs.again,
                        (false, true) => &mut repairs.amid,
                        (false, false) => &mut repairs.tail,
                    };
                    class.add(at.since(lost.sent_at));
                }
                if dropped.is_some() {
                    let transmission = state.transmissions;
                    let again = segment.again;
                    state.lost.insert(segment.seq, Lost { sent_at: at, transmission, again });
                    if !again {
                        state.missing.insert(segment.seq, at + self.way);
                    }
                } else {
                    if state.lost.is_empty() {
                        state.arriving.clear();
                    }
                    state.arriving.push_back((state.transmissions, at));
                }
            }
            Note::Arrived { seq, in_order } => {
                if let Some(expected) = state.missing.remove(&seq) {
                    if in_order > seq {
                        let from = expected.max(state.stopped);
                        let mut repairs = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                        repairs.stalls.add(at.since(from));
                    }
                }
                if in_order > seq {
                    state.stopped = at;
                }
            }
            _ => {}
        }
    }
}

impl FlowState {
    /// Whether something sent after `lost` was there, and the sender could know, at `now`.
    fn passed(&mut self, lost: Lost, now: Time, way: Duration) -> bool {
        // What left two ways before the oldest lost transmission passed nothing that is still open.
        let open = self.lost.values().map(|lost| lost.transmission).min().unwrap_or(u64::MAX);
        let open = open.min(lost.transmission);
        while self.arriving.front().is_some_and(|&(transmission, _)| transmission < open) {
            self.arriving.pop_front();
        }
        let next = self.arriving.partition_point(|&(transmission, _)| transmission < lost.transmission);
        self.arriving.get(next).is_some_and(|&(_, sent_at)| sent_at + way * 2 <= now)
    }
}
