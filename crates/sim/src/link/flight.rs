//! The way through the air: one-way delay, jitter and order.

use super::changes::nanos;
use crate::rng::{Chance, Stream};
use crate::scenario::{Direction, Jitter, JitterShape};

/// Delay of the packets that were sent and not lost.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    jitter: Option<(Jitter, Stream)>,
    detour: Option<(Chance, u64, Stream)>,
    reorder: bool,
    /// Packets leave at multiples of this; 1 for at once.
    frame: u64,
    latest: u64,
}

impl Flight {
    pub fn new(direction: &Direction, seed: u64) -> Self {
        let jitter = direction.jitter.map(|jitter| (jitter, Stream::new(seed, "jitter")));
        Flight { jitter, detour: None, reorder: direction.reorder, frame: 1, latest: 0 }
    }

    /// From now on `share` of the packets take up to `longest` more.
    pub fn detour(&mut self, share: Chance, longest: u64, stream: Stream) {
        self.detour = Some((share, longest, stream));
    }

    /// From now on packets leave in frames of this length.
    pub fn gather(&mut self, frame: u64) {
        self.frame = frame.max(1);
    }

    /// Delay of the next packet, jitter and detour included. Draws for lost packets too.
    pub fn delay(&mut self, one_way: u64) -> u64 {
        let more = self.detour.as_mut().map_or(0, |(share, longest, stream)| {
            let late = stream.below(longest.saturating_add(1));
            if stream.chance(*share) {
                late
            } else {
                0
            }
        });
        self.jittered(one_way).saturating_add(more)
    }

    fn jittered(&mut self, one_way: u64) -> u64 {
        let Some((jitter, stream)) = &mut self.jitter else { return one_way };
        let half_range = nanos(jitter.half_range);
        let late = match jitter.shape {
            JitterShape::Uniform => stream.below(half_range.saturating_mul(2).saturating_add(1)),
            JitterShape::Normal => bell(stream.bits(), half_range),
        };
        one_way.saturating_add(late).saturating_sub(half_range)
    }

    /// When a packet sent at `departure` arrives: not before its predecessors unless reordering was asked.
    pub fn arrive(&mut self, departure: u64, delay: u64) -> u64 {
        let departure = departure.checked_next_multiple_of(self.frame).unwrap_or(departure);
        let at = departure.saturating_add(delay);
        if self.reorder {
            return at;
        }
        self.latest = self.latest.max(at);
        self.latest
    }
}

/// A sum of four even draws, one from each 16 bits, spread over twice the half range: close to a normal
/// distribution with a standard deviation of 0.29 half ranges, and never outside the stated range.
fn bell(bits: u64, half_range: u64) -> u64 {
    let sum: u64 = (0..4).map(|n| bits >> (16 * n) & 0xffff).sum();
    (u128::from(sum) * 2 * u128::from(half_range) / (4 * 0xffff)) as u64
}
