//! Puts the pieces of a stream back in order.
//!
//! QUIC is read unordered and drained at once, because quinn-proto ends the connection when a stream
//! that waits to be read in order has more than 1,024 holes; at GEO rates random loss alone makes more.

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Pieces of one direction of one stream, in order up to the first hole.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// In order, not yet taken.
    ready: VecDeque<Bytes>,
    /// Behind a hole, by offset; pieces do not overlap because QUIC hands out every byte once.
    waiting: BTreeMap<u64, Bytes>,
    /// Offset of the byte behind the last one in `ready`.
    next: u64,
}

impl Reassembly {
    pub(crate) fn insert(&mut self, offset: u64, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        if offset != self.next {
            self.waiting.insert(offset, bytes);
            return;
        }
        self.push_ready(bytes);
        while let Some(entry) = self.waiting.first_entry() {
            if *entry.key() != self.next {
                break;
            }
            let piece = entry.remove();
            self.push_ready(piece);
        }
    }

    fn push_ready(&mut self, bytes: Bytes) {
        self.next += bytes.len() as u64;
        self.ready.push_back(bytes);
    }

    /// The next piece in order.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// Puts back what was taken too much of.
    pub(crate) fn unpop(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.ready.push_front(piece);
        }
    }

    /// Bytes received in order since the beginning.
    pub(crate) fn contiguous(&self) -> u64 {
        self.next
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Number of pieces behind holes.
    #[cfg(test)]
    fn pieces_waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_in_any_order_become_the_stream_again(
            lengths in proptest::collection::vec(1usize..2000, 1..60),
            shuffle in any::<u64>(),
        ) {
            let mut pieces = Vec::new();
            let mut whole = Vec::new();
            for (i, length) in lengths.iter().enumerate() {
                let piece: Vec<u8> = (0..*length).map(|n| (n * 31 + i * 7) as u8).collect();
                pieces.push((whole.len() as u64, Bytes::from(piece.clone())));
                whole.extend(piece);
            }
            let mut state = shuffle | 1;
            for i in (1..pieces.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                pieces.swap(i, (state >> 33) as usize % (i + 1));
            }
            let mut reassembly = Reassembly::default();
            let mut out = Vec::new();
            for (offset, bytes) in pieces {
                reassembly.insert(offset, bytes);
                while let Some(piece) = reassembly.pop() {
                    out.extend_from_slice(&piece);
                }
                prop_assert_eq!(out.len() as u64, reassembly.contiguous());
            }
            prop_assert_eq!(out, whole);
            prop_assert_eq!(reassembly.pieces_waiting(), 0);
        }
    }
}
