//! Connections that pass an end without a channel, and what the end holds of them.
//!
//! Such a connection holds at most one piece per direction: read from one side, not yet taken by the other. While
//! neither side waits it holds nothing. Each takes the place of a flow, whose floors are no smaller than its two; what
//! goes beyond floors comes out of the part for data taken from TCP connections ([`Split::queue`]), as for flows.

use super::budget::Split;
use skyhaul_cc::Bytes;

/// Counts the connections that no channel carries, and their pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bypass {
    connections: usize,
    held: Bytes,
    refused: u64,
}

impl Bypass {
    /// A connection begins, beside so many `others` that have floors of their own. False if there is none left for
    /// it: those that are there keep theirs.
    pub fn open(&mut self, split: &Split, others: usize) -> bool {
        let admitted = others + self.connections < split.flows;
        if admitted {
            self.connections += 1;
        } else {
            self.refused += 1;
        }
        admitted
    }

    /// A connection is over and holds nothing.
    pub fn close(&mut self) {
        self.connections = self.connections.saturating_sub(1);
    }

    /// How large the next piece may be, `most` at most, beside the `queued` bytes of flows: never nothing.
    pub fn room(&self, split: &Split, queued: Bytes, most: Bytes) -> Bytes {
        split.queue_room(Bytes::ZERO, queued + self.held, most)
    }

    /// A piece was read.
    pub fn take(&mut self, bytes: Bytes) {
        self.held += bytes;
    }

    /// A piece was passed on, or thrown away.
    pub fn release(&mut self, bytes: Bytes) {
        self.held = self.held.saturating_sub(bytes);
    }

    /// Connections there are.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Bytes read and not passed on.
    pub fn held(&self) -> Bytes {
        self.held
    }

    /// Connections refused so far, for want of a floor.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// Least and largest floor of a direction: smaller pieces cost more system calls than they carry.
const FLOORS: (Bytes, Bytes) = (Bytes::kib(4), Bytes::kib(16));

impl Split {
    /// All of `memory` for `connections` at once that no channel carries, fewer if that is too little: half of it for
    /// their floors, as far as they need it, and the rest for whoever has something to pass on.
    pub fn for_bypass(memory: Bytes, connections: usize) -> Split {
        let half = memory / 2;
        let pair = half / (connections.max(1) as u64);
        let floor = (pair / 2).clamp(FLOORS.0, FLOORS.1);
        let most = usize::try_from(half.0 / (floor * 2).0).unwrap_or(usize::MAX);
        let flows = connections.min(most);
        Split {
            pools: Bytes::ZERO,
            windows: Bytes::ZERO,
            retained: Bytes::ZERO,
            kept: Bytes::ZERO,
            queue: memory - floor * 2 * flows as u64,
            floor,
            queue_floor: floor,
            flows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PIECE: Bytes = Bytes::kib(64);

    #[test]
    fn one_too_many_is_refused_and_a_place_that_is_left_is_taken_again() {
        let split = Split::of(Bytes::mib(4), 10);
        let mut bypass = Bypass::default();
        assert!((0..split.flows - 3).all(|_| bypass.open(&split, 3)));
        assert!(!bypass.open(&split, 3));
        bypass.close();
        assert!(bypass.open(&split, 3));
        assert_eq!((bypass.connections(), bypass.refused()), (split.flows - 3, 1));
    }

    #[test]
    fn a_splitter_uses_all_of_its_memory_and_no_more() {
        for (memory, connections) in [(Bytes::mib(256), 4096), (Bytes::mib(4), 100_000), (Bytes::mib(64), 1)]
        {
            let split = Split::for_bypass(memory, connections);
            assert!(split.flows >= 1 && split.flows <= connections, "{split:?}");
            assert_eq!(split.total(), memory, "{split:?}");
        }
    }

    proptest! {
        #[test]
        fn everybody_can_always_pass_something_on_and_all_together_keep_within_the_budget(
            steps in prop::collection::vec((any::<bool>(), 0usize..64), 1..600),
            queued in 0u64..(4 << 20),
        ) {
            let split = Split::of(Bytes::mib(4), 64);
            let queued = Bytes(queued).min(split.queue);
            let mut bypass = Bypass::default();
            // Two directions of each.
            let mut pieces = vec![Bytes::ZERO; 128];
            for _ in 0..64 {
                prop_assert!(bypass.open(&split, 0));
            }
            for (reads, direction) in steps {
                let piece = &mut pieces[direction];
                if reads && *piece == Bytes::ZERO {
                    *piece = bypass.room(&split, queued, PIECE);
                    prop_assert!(*piece >= split.queue_floor && *piece <= PIECE, "{piece}");
                    bypass.take(*piece);
                } else {
                    bypass.release(std::mem::take(piece));
                }
                prop_assert_eq!(bypass.held(), pieces.iter().copied().sum());
                let floors = (split.floor + split.queue_floor) * split.flows as u64;
                prop_assert!(bypass.held() + queued <= split.queue + floors, "{}", bypass.held());
            }
        }
    }
}
