//! Puts the pieces of a stream back in order.
//!
//! QUIC is read unordered and drained at once, because quinn-proto ends the connection when a stream
//! that waits to be read in order has more than 1,024 holes; at GEO rates random loss alone makes more.
//!
//! Bytes come from two sources, QUIC and repair, so the same byte may come twice: the first counts.

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Pieces of one direction of one stream, in order up to the first hole.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// In order, not yet taken.
    ready: VecDeque<Bytes>,
    /// Behind a hole, by offset; no two overlap.
    waiting: BTreeMap<u64, Bytes>,
    /// What `waiting` covers, start to end, joined where it touches: a handful of entries for
    /// thousands of pieces.
    spans: BTreeMap<u64, u64>,
    /// Offset of the byte behind the last one in `ready`.
    next: u64,
    /// The last bytes before `next`, taken or not, kept for decoding a block that begins among them.
    past: VecDeque<(u64, Bytes)>,
    past_bytes: u64,
    keep: u64,
}

impl Reassembly {
    /// Takes a piece and says how many of its bytes are new.
    pub(crate) fn insert(&mut self, offset: u64, mut bytes: Bytes) -> u64 {
        let end = offset + bytes.len() as u64;
        if end <= self.next {
            return 0;
        }
        let mut at = offset.max(self.next);
        if at == self.next && self.spans.is_empty() {
            self.push_ready(bytes.split_off((at - offset) as usize));
            return end - at;
        }
        let mut new = 0;
        while at < end {
            if let Some(covered) = self.covered_to(at) {
                at = covered;
                continue;
            }
            let stop = self.spans.range(at..).next().map_or(end, |(&start, _)| start.min(end));
            self.waiting.insert(at, bytes.slice((at - offset) as usize..(stop - offset) as usize));
            self.cover(at..stop);
            new += stop - at;
            at = stop;
        }
        self.advance();
        new
    }

    /// The end of the span that holds this offset.
    fn covered_to(&self, at: u64) -> Option<u64> {
        self.spans.range(..=at).next_back().map(|(_, &end)| end).filter(|&end| end > at)
    }

    fn cover(&mut self, range: Range<u64>) {
        let end = self.spans.remove(&range.end).unwrap_or(range.end);
        match self.spans.range_mut(..range.start).next_back() {
            Some((_, before)) if *before == range.start => *before = end,
            _ => {
                self.spans.insert(range.start, end);
            }
        }
    }

    /// Moves to `ready` what is behind a hole no more.
    fn advance(&mut self) {
        let Some(end) = self.spans.remove(&self.next) else { return };
        while let Some(entry) = self.waiting.first_entry().filter(|entry| *entry.key() < end) {
            let piece = entry.remove();
            self.push_ready(piece);
        }
    }

    fn push_ready(&mut self, bytes: Bytes) {
        let offset = self.next;
        self.next += bytes.len() as u64;
        if self.keep > 0 {
            self.past_bytes += bytes.len() as u64;
            self.past.push_back((offset, bytes.clone()));
            self.trim();
        }
        self.ready.push_back(bytes);
    }

    fn trim(&mut self) {
        while let Some(first) = self.past.front().map(|(_, piece)| piece.len() as u64) {
            if self.past_bytes - first < self.keep {
                return;
            }
            self.past.pop_front();
            self.past_bytes -= first;
        }
    }

    /// Keeps the last `bytes` received in order (and up to a piece more) from now on, even when they
    /// have been taken.
    pub(crate) fn keep(&mut self, bytes: u64) {
        self.keep = bytes;
        self.trim();
    }

    /// Bytes kept although they may have been taken.
    pub(crate) fn kept(&self) -> u64 {
        self.past_bytes
    }

    /// Lets go of what is kept, without keeping less in future.
    pub(crate) fn forget_past(&mut self) {
        self.past.clear();
        self.past_bytes = 0;
    }

    /// The parts of a range that are not in memory: not received, or received and let go.
    pub(crate) fn absent(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let kept_from = self.next - self.past_bytes;
        let mut absent = Vec::new();
        if range.start < kept_from {
            absent.push(range.start..range.end.min(kept_from));
        }
        let mut at = range.start.max(self.next);
        while at < range.end {
            if let Some(covered) = self.covered_to(at) {
                at = covered;
                continue;
            }
            let stop = self.spans.range(at..).next().map_or(range.end, |(&start, _)| start.min(range.end));
            absent.push(at..stop);
            at = stop;
        }
        absent
    }

    /// Writes what is in memory of the bytes from `start` on to `out`, each to its place.
    pub(crate) fn copy_to(&self, start: u64, out: &mut [u8]) {
        let end = start + out.len() as u64;
        let mut copy = |offset: u64, piece: &Bytes| {
            let from = offset.max(start);
            let to = (offset + piece.len() as u64).min(end);
            if from < to {
                let source = &piece[(from - offset) as usize..(to - offset) as usize];
                out[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
            }
        };
        let first = self.past.partition_point(|(offset, piece)| offset + piece.len() as u64 <= start);
        for (offset, piece) in self.past.iter().skip(first).take_while(|(offset, _)| *offset < end) {
            copy(*offset, piece);
        }
        let first = self.waiting.range(..=start).next_back().map_or(start, |(&offset, _)| offset);
        for (&offset, piece) in self.waiting.range(first..end) {
            copy(offset, piece);
        }
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

    /// A deterministic shuffle.
    fn shuffle<T>(items: &mut [T], seed: u64) {
        let mut state = seed | 1;
        for i in (1..items.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            items.swap(i, (state >> 33) as usize % (i + 1));
        }
    }

    fn bytes(range: Range<u64>) -> Bytes {
        range.map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_become_the_stream_again(
            lengths in proptest::collection::vec(1usize..2000, 1..60),
            seed in any::<u64>(),
        ) {
            let mut pieces = Vec::new();
            let mut whole = Vec::new();
            for (i, length) in lengths.iter().enumerate() {
                let piece: Vec<u8> = (0..*length).map(|n| (n * 31 + i * 7) as u8).collect();
                pieces.push((whole.len() as u64, Bytes::from(piece.clone())));
                whole.extend(piece);
            }
            shuffle(&mut pieces, seed);
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

        #[test]
        fn overlapping_pieces_count_each_byte_once(
            mut pieces in proptest::collection::vec((0u64..3000, 0u64..400), 0..80),
            seed in any::<u64>(),
            keep in 0u64..2000,
            asked in (0u64..3400, 0u64..1500),
        ) {
            // The last two make sure that the stream is whole in the end.
            pieces.extend([(0, 1700), (1700, 1700)]);
            shuffle(&mut pieces, seed);
            let mut reassembly = Reassembly::default();
            reassembly.keep(keep);
            let mut seen = vec![false; 3400];
            let mut out = Vec::new();
            for (offset, length) in pieces {
                let range = offset..offset + length;
                let expected = range.clone().filter(|&n| !std::mem::replace(&mut seen[n as usize], true)).count();
                prop_assert_eq!(reassembly.insert(offset, bytes(range)), expected as u64);
                while let Some(piece) = reassembly.pop() {
                    out.extend_from_slice(&piece);
                }
                prop_assert_eq!(&out[..], &bytes(0..reassembly.contiguous())[..]);
                let front = seen.iter().position(|&seen| !seen).unwrap_or(seen.len()) as u64;
                prop_assert_eq!(reassembly.contiguous(), front);

                // What it says it has, it has, and nothing else.
                let range = asked.0..(asked.0 + asked.1).min(3400);
                let absent = reassembly.absent(range.clone());
                let is_absent = |n: u64| absent.iter().any(|gap| gap.contains(&n));
                let mut copy = vec![0; range.clone().count()];
                reassembly.copy_to(range.start, &mut copy);
                let truth = bytes(range.clone());
                for (n, i) in range.zip(0..) {
                    prop_assert!(is_absent(n) || copy[i] == truth[i], "byte {}", n);
                    prop_assert_eq!(is_absent(n), !seen[n as usize] || n + reassembly.kept() < front);
                }
                prop_assert!(reassembly.kept() >= keep.min(front) && reassembly.kept() < keep.max(1) + 1700);
            }
            prop_assert_eq!(out.len(), seen.len());
        }
    }
}
