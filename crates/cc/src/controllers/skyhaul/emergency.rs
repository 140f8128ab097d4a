//! Within a round: a queue far above what we want, all through an eighth of a round trip, is ours to take
//! away at once.

use super::path::between;
use crate::units::Time;
use std::collections::VecDeque;

/// Parts of a round trip that are looked at.
const SPAN: f64 = 0.125;
/// Packets they must hold.
const PACKETS_LEAST: f64 = 16.0;
/// Blocks the span is divided into.
const BLOCKS: f64 = 8.0;
/// Not more often than every so many round trips: a cut is seen only then.
const PAUSE: f64 = 1.5;

/// Packets received one after the other.
#[derive(Clone, Copy, Debug)]
struct Block {
    from: Time,
    to: Time,
    packets: f64,
    least: f64,
}

/// The lookout.
#[derive(Clone, Debug, Default)]
pub(super) struct Emergency {
    blocks: VecDeque<Block>,
    last: Option<Time>,
}

/// A queue that must go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alarm {
    /// Packets received per second while it stood.
    pub rate: f64,
}

impl Emergency {
    /// A packet arrived and met this queue; an alarm if everything above `limit` has lasted long enough.
    pub fn hear(
        &mut self,
        now: Time,
        received_at: Time,
        queue: f64,
        limit: f64,
        round_trip: f64,
    ) -> Option<Alarm> {
        let width = round_trip * SPAN;
        match self.blocks.back_mut() {
            Some(block) if between(block.from, received_at) < width / BLOCKS => {
                block.to = received_at;
                block.packets += 1.0;
                block.least = block.least.min(queue);
            }
            _ => self.blocks.push_back(Block {
                from: received_at,
                to: received_at,
                packets: 1.0,
                least: queue,
            }),
        }
        while self.blocks.front().is_some_and(|block| between(block.to, received_at) > width) {
            self.blocks.pop_front();
        }
        if queue <= limit || self.last.is_some_and(|last| between(last, now) < PAUSE * round_trip) {
            return None;
        }
        let least = self.blocks.iter().map(|block| block.least).fold(f64::INFINITY, f64::min);
        let packets: f64 = self.blocks.iter().map(|block| block.packets).sum();
        let span = between(self.blocks.front()?.from, received_at);
        if least <= limit || packets < PACKETS_LEAST || span < 0.75 * width {
            return None;
        }
        Some(Alarm { rate: (packets - 1.0) / span.max(1e-9) })
    }

    /// It was answered.
    pub fn answered(&mut self, now: Time) {
        self.last = Some(now);
        self.blocks.clear();
    }

    /// What was seen no longer counts.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }
}
