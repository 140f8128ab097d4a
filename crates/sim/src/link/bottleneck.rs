//! The queue that overflows, and the serializer behind it.

use std::collections::VecDeque;

use super::changes::{Changes, Settings};

/// A drop-tail queue in bytes in front of a serializer whose rate changes over time.
///
/// All sums are integers: work is counted in bit × 10⁹, of which a rate of r bit/s does r per nanosecond.
/// What the last nanosecond of a packet leaves over goes to a packet that was already waiting, so a busy
/// link runs at its rate exactly and never above it.
#[derive(Clone, Debug)]
pub(super) struct Bottleneck {
    changes: Changes,
    /// In force at `front`, the furthest moment looked at.
    settings: Settings,
    next_change: u64,
    overhead: u64,
    limit: u64,
    /// Packets that had to wait: when each enters the serializer, and its size.
    waiting: VecDeque<(u64, u64)>,
    waiting_bytes: u64,
    busy_until: u64,
    spare: u64,
}

/// How a packet left the serializer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    /// When its last bit was sent, in nanoseconds.
    pub at: u64,
    /// Settings at that moment; `out` tells whether any of it was sent in an outage.
    pub settings: Settings,
}

impl Bottleneck {
    /// `limit`: queue size, `overhead`: bytes the link adds to each packet.
    pub fn new(changes: Changes, limit: u64, overhead: u64) -> Self {
        let settings = changes.at(0);
        let next_change = changes.next_after(0);
        let capacity = usize::try_from(limit / 1500).unwrap_or(usize::MAX).clamp(16, 65_536);
        Bottleneck {
            changes,
            settings,
            next_change,
            overhead,
            limit,
            waiting: VecDeque::with_capacity(capacity),
            waiting_bytes: 0,
            busy_until: 0,
            spare: 0,
        }
    }

    /// Queues a packet of `size` bytes, or refuses it when the queue is full.
    pub fn enqueue(&mut self, now: u64, size: u64) -> Option<Departure> {
        while let Some(&(start, bytes)) = self.waiting.front() {
            if start > now {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= bytes;
        }
        let start = if self.busy_until > now {
            if self.waiting_bytes.saturating_add(size) > self.limit {
                return None;
            }
            self.waiting.push_back((self.busy_until, size));
            self.waiting_bytes += size;
            self.busy_until
        } else {
            self.spare = 0;
            now
        };
        Some(self.serve(start, size))
    }

    /// Bytes waiting at `now`, the packet in service not counted.
    pub fn queued(&self, now: u64) -> u64 {
        let started: u64 =
            self.waiting.iter().take_while(|(start, _)| *start <= now).map(|(_, bytes)| bytes).sum();
        self.waiting_bytes - started
    }

    pub fn settings(&self, now: u64) -> Settings {
        self.changes.at(now)
    }

    fn serve(&mut self, start: u64, size: u64) -> Departure {
        let work = (size + self.overhead) * WORK_PER_BYTE;
        let mut left = work.saturating_sub(self.spare);
        self.spare = self.spare.saturating_sub(work);
        let mut from = start;
        if self.next_change <= from {
            self.change(from);
        }
        let mut out = self.settings.out;
        while left > 0 {
            let rate = self.settings.rate;
            let time = left.div_ceil(rate);
            let end = from.saturating_add(time);
            if end <= self.next_change {
                self.spare = (u128::from(time) * u128::from(rate) - u128::from(left)) as u64;
                from = end;
                break;
            }
            // Less than `left` is done before the change, so this fits.
            left -= (self.next_change - from) * rate;
            from = self.next_change;
            self.change(from);
            out |= self.settings.out;
        }
        self.busy_until = from;
        if self.next_change <= from {
            self.change(from);
        }
        Departure { at: from, settings: Settings { out, ..self.settings } }
    }

    fn change(&mut self, now: u64) {
        self.settings = self.changes.at(now);
        self.next_change = self.changes.next_after(now);
    }
}

/// One byte in bit × 10⁹. With packets of at most `LARGEST_PACKET` the product stays below 2⁵³.
const WORK_PER_BYTE: u64 = 8_000_000_000;

/// Larger packets count as this large; no IP packet without a jumbo payload option exceeds 65,575 bytes.
pub(super) const LARGEST_PACKET: u64 = 1 << 20;
