//! Memory for the packets that are on their way over the link.

use std::collections::VecDeque;

/// Packets waiting for their time, earliest first. Memory grows to the largest number ever under way and is then
/// used again: no allocation per packet.
pub struct Store {
    order: VecDeque<Held>,
    /// Packets kept before the last [`Store::begin_again`] are of an older run and do not count.
    run: u32,
    counted: u64,
    /// ACKs and the like; a link full of them must not cost a full-size slot each.
    small: Slab<128>,
    large: Slab<2048>,
}

/// A packet's time and place.
#[derive(Clone, Copy)]
struct Held {
    /// When it leaves the link, ns since the emulator's start.
    due: u64,
    slot: u32,
    run: u32,
    size: u16,
}

/// No more packets than this at once, about 4 GB if all are of full size: 33 s of a 1 Gbit/s link.
const MOST: usize = 2_000_000;

impl Store {
    /// Nothing under way.
    pub fn new() -> Store {
        Store { order: VecDeque::new(), run: 0, counted: 0, small: Slab::new(), large: Slab::new() }
    }

    /// Packets under way that count.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// From now on, what is under way does not count.
    pub fn begin_again(&mut self) {
        self.run += 1;
        self.counted = 0;
    }

    /// When the next packet leaves, ns since the emulator's start.
    pub fn next_due(&self) -> Option<u64> {
        self.order.front().map(|held| held.due)
    }

    /// Keeps a copy of `packet` until `due`; packets of equal time leave in the order they came. False when the
    /// packet is too large (above 2048 bytes) or there are too many.
    #[must_use]
    pub fn keep(&mut self, due: u64, packet: &[u8]) -> bool {
        if self.order.len() >= MOST || packet.len() > 2048 {
            return false;
        }
        let slot = if packet.len() <= 128 { self.small.fill(packet) } else { self.large.fill(packet) };
        // Nearly always at the end: only links that reorder look further.
        let mut place = self.order.len();
        while place > 0 && self.order[place - 1].due > due {
            place -= 1;
        }
        self.order.insert(place, Held { due, slot, run: self.run, size: packet.len() as u16 });
        self.counted += 1;
        true
    }

    /// Forgets the next packet after `write` has seen it. Returns what `write` says and whether the packet counts;
    /// none if nothing is under way.
    pub fn take<T>(&mut self, write: impl FnOnce(&[u8]) -> T) -> Option<(T, bool)> {
        let held = self.order.pop_front()?;
        let counts = held.run == self.run;
        self.counted -= u64::from(counts);
        let size = usize::from(held.size);
        let result = if size <= 128 {
            self.small.free.push(held.slot);
            write(&self.small.slots[held.slot as usize][..size])
        } else {
            self.large.free.push(held.slot);
            write(&self.large.slots[held.slot as usize][..size])
        };
        Some((result, counts))
    }
}

/// Slots of one size; the one used last is used first again, while it is still in the cache.
struct Slab<const SIZE: usize> {
    slots: Vec<Box<[u8; SIZE]>>,
    free: Vec<u32>,
}

impl<const SIZE: usize> Slab<SIZE> {
    fn new() -> Slab<SIZE> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    fn fill(&mut self, packet: &[u8]) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Box::new([0; SIZE]));
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize][..packet.len()].copy_from_slice(packet);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(store: &mut Store) -> Vec<u8> {
        store.take(<[u8]>::to_vec).unwrap().0
    }

    #[test]
    fn packets_leave_by_time_and_those_of_equal_time_as_they_came() {
        let mut store = Store::new();
        for (due, text) in [(20, "a"), (20, "b"), (10, "c"), (30, "d"), (20, "e")] {
            assert!(store.keep(due, text.as_bytes()));
        }
        let order: Vec<_> = (0..5).map(|_| next(&mut store)).collect();
        assert_eq!(order.concat(), b"cabed");
        assert_eq!((store.counted(), store.next_due()), (0, None));
        assert!(store.take(|_| ()).is_none());
    }

    #[test]
    fn packets_of_an_older_run_still_arrive_but_do_not_count() {
        let mut store = Store::new();
        assert!(store.keep(10, b"old") && store.keep(30, b"old"));
        store.begin_again();
        assert!(store.keep(20, b"new"));
        assert_eq!(store.counted(), 1);
        let counts: Vec<_> = (0..3).map(|_| store.take(|_| ()).unwrap().1).collect();
        assert_eq!((counts, store.counted()), (vec![false, true, false], 0));
    }

    #[test]
    fn packets_of_every_size_come_back_unchanged_from_reused_memory() {
        let mut store = Store::new();
        for round in 0..3u64 {
            for size in 0..=2048usize {
                assert!(store.keep(round, &vec![(size as u64 + round) as u8; size]));
            }
            for size in 0..=2048usize {
                assert_eq!(next(&mut store), vec![(size as u64 + round) as u8; size], "size {size}");
            }
        }
        assert_eq!((store.small.slots.len(), store.large.slots.len()), (129, 2048 - 128));
        assert!(!store.keep(0, &[0; 2049]));
    }
}
