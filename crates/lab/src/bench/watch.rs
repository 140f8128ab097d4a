//! What a run shows from outside: the queue, and when each segment arrived.

use std::sync::{Arc, Mutex, PoisonError};

use skyhaul_cc::units::{Bytes, Duration, Rate, Time};
use skyhaul_sim::link::Link;
use skyhaul_sim::stats;
use skyhaul_sim::trace::{Note, Observer};
use skyhaul_sim::world::{Failure, World};

/// Between two looks at the queue: the least queue that counts is 5 ms.
const LOOK: Duration = Duration::from_millis(10);

/// Runs until `until` or until every flow is done, and returns the queue in seconds, every 10 ms.
pub(super) fn queues(world: &mut World, until: Time, packet: Packet) -> Result<Vec<f64>, Failure> {
    let mut queues = Vec::new();
    while world.now() < until {
        let next = (world.now() + LOOK).min(until);
        world.run(next)?;
        queues.push(queue(world.forward(), world.now(), packet));
        if world.now() < next {
            break;
        }
    }
    Ok(queues)
}

/// A full packet: its IP bytes, and those by which the link's rate counts more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub size: Bytes,
    pub overhead: Bytes,
}

/// How long what waits in front of a link takes at the rate of the moment, in seconds.
pub(super) fn queue(link: &Link, now: Time, packet: Packet) -> f64 {
    let waiting = link.queued(now).as_f64() * (packet.size + packet.overhead).as_f64() / packet.size.as_f64();
    link.rate(now).time_for(Bytes::from_f64(waiting)).as_secs_f64()
}

/// 95 % of the values are below this.
pub(super) fn p95(values: &[f64]) -> Option<f64> {
    stats::quantile(values, 0.95)
}

/// Counts segments when they arrive, for the first time: the order in which they are delivered depends on the
/// repair of what went before, and would move a second's worth from one interval to the next.
#[derive(Debug)]
pub(super) struct Arrivals {
    bin: Duration,
    shared: Arc<Mutex<Vec<Arrived>>>,
}

/// Where the results of [`Arrivals`] are to be had.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    bin: Duration,
    mss: Bytes,
    shared: Arc<Mutex<Vec<Arrived>>>,
}

#[derive(Clone, Debug, Default)]
struct Arrived {
    /// A bit for each segment.
    seen: Vec<u64>,
    /// Segments in each interval.
    bins: Vec<u32>,
}

impl Arrivals {
    /// An observer that counts in intervals of `bin`, and where it reports; segments carry `mss` bytes.
    pub fn new(bin: Duration, mss: Bytes) -> (Box<Self>, Seen) {
        let shared = Arc::default();
        let seen = Seen { bin, mss, shared: Arc::clone(&shared) };
        (Box::new(Arrivals { bin, shared }), seen)
    }
}

impl Observer for Arrivals {
    fn note(&mut self, at: Time, flow: usize, note: &Note) {
        let Note::Arrived { seq, .. } = *note else { return };
        let mut flows = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if flows.len() <= flow {
            flows.resize(flow + 1, Arrived::default());
        }
        let Arrived { seen, bins } = &mut flows[flow];
        let (word, bit) = ((seq / 64) as usize, 1 << (seq % 64));
        if seen.len() <= word {
            seen.resize(word + 1, 0);
        }
        if seen[word] & bit != 0 {
            return;
        }
        seen[word] |= bit;
        let bin = (at.as_secs_f64() / self.bin.as_secs_f64()) as usize;
        if bins.len() <= bin {
            bins.resize(bin + 1, 0);
        }
        bins[bin] += 1;
    }
}

impl Seen {
    /// Length of an interval.
    pub fn bin(&self) -> Duration {
        self.bin
    }

    /// Payload bits of a flow that arrived between two moments, both at the beginning of an interval.
    pub fn bits(&self, flow: usize, from: Time, to: Time) -> f64 {
        let place = |at: Time| (at.as_secs_f64() / self.bin.as_secs_f64()).round() as usize;
        let flows = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Arrived { bins, .. }) = flows.get(flow) else { return 0.0 };
        let (from, to) = (place(from).min(bins.len()), place(to).min(bins.len()));
        let segments: u64 = bins.get(from..to).unwrap_or_default().iter().map(|n| u64::from(*n)).sum();
        (self.mss * segments).bits() as f64
    }

    /// The same of several flows.
    pub fn each(&self, flows: usize, from: Time, to: Time) -> Vec<f64> {
        (0..flows).map(|flow| self.bits(flow, from, to)).collect()
    }

    /// Payload rate of a flow in an interval that ends at `to`.
    pub fn rate(&self, flow: usize, from: Time, to: Time) -> Rate {
        Rate::from_f64(self.bits(flow, from, to) / to.since(from).as_secs_f64().max(1e-9))
    }
}

/// Jain's index: 1 for equal shares, 1/n if one of n has all; 1 of nothing.
pub(super) fn jain(shares: &[f64]) -> f64 {
    stats::jain(shares).unwrap_or(1.0)
}
