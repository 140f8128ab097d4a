//! The receiving end: gathers symbols until they make up for what is missing.

use super::code::Code;
use super::wire::Message;
use crate::reassembly::Reassembly;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Repair symbols of one flow whose blocks are not whole yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    blocks: BTreeMap<Key, Gathered>,
    bytes: u64,
}

/// Symbols of one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    start: u64,
    length: u64,
    symbol: u64,
    code_bits: u8,
}

#[derive(Debug, Default)]
struct Gathered {
    /// By index.
    symbols: BTreeMap<u64, Bytes>,
    bytes: u64,
}

/// What repair did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repaired {
    /// Blocks decoded.
    pub(crate) blocks: u64,
    /// New stream bytes.
    pub(crate) bytes: u64,
}

/// Blocks of one flow at a time: four times what a window of 64 MiB has.
const BLOCKS: usize = 256;

impl Pending {
    /// Bytes of symbols that wait here.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = Pending::default();
    }

    /// Takes a message; false if it is of no use.
    pub(crate) fn add(&mut self, message: Message, input: &Reassembly) -> bool {
        let Message { start, length, symbol, code_bits, first, .. } = message;
        if length == 0 || start + length <= input.contiguous() {
            return false;
        }
        let key = Key { start, length, symbol, code_bits };
        if self.blocks.len() >= BLOCKS && !self.blocks.contains_key(&key) {
            // The furthest behind is the likeliest to be repeated by QUIC in time.
            if let Some((_, gone)) = self.blocks.pop_last() {
                self.bytes -= gone.bytes;
            }
        }
        let block = self.blocks.entry(key).or_default();
        for n in 0..message.count() {
            let from = (n * symbol) as usize;
            let piece = message.symbols.slice(from..from + symbol as usize);
            if block.symbols.insert(first + n, piece).is_none() {
                block.bytes += symbol;
                self.bytes += symbol;
            }
        }
        true
    }

    /// Decodes what can be decoded now and puts it in its place.
    pub(crate) fn repair(&mut self, input: &mut Reassembly, code: &mut Code) -> Repaired {
        let mut done = Repaired::default();
        let mut bytes = self.bytes;
        self.blocks.retain(|key, gathered| {
            let keep = key.start + key.length > input.contiguous()
                && match gathered.decode(key, input, code) {
                    Outcome::Wait => true,
                    Outcome::Whole => false,
                    Outcome::Decoded(new) => {
                        done.blocks += 1;
                        done.bytes += new;
                        false
                    }
                };
            if !keep {
                bytes -= gathered.bytes;
            }
            keep
        });
        self.bytes = bytes;
        done
    }
}

enum Outcome {
    /// There are not enough symbols.
    Wait,
    /// Nothing is missing.
    Whole,
    /// So many bytes are new.
    Decoded(u64),
}

impl Gathered {
    fn decode(&self, key: &Key, input: &mut Reassembly, code: &mut Code) -> Outcome {
        let Key { start, length, symbol, code_bits } = *key;
        let absent = input.absent(start..start + length);
        let touched = |range: &std::ops::Range<u64>| {
            ((range.start - start) / symbol) as usize..((range.end - start).div_ceil(symbol)) as usize
        };
        let mut missing = 0;
        let mut counted = 0;
        for range in &absent {
            let symbols = touched(range);
            missing += symbols.end - symbols.start.max(counted);
            counted = symbols.end;
        }
        if missing > self.symbols.len() {
            return Outcome::Wait;
        }
        if !absent.iter().any(|range| range.end > input.contiguous()) {
            return Outcome::Whole;
        }
        let mut present = vec![true; length.div_ceil(symbol) as usize];
        for range in &absent {
            present[touched(range)].fill(false);
        }
        let mut block = vec![0; present.len() * symbol as usize];
        input.copy_to(start, &mut block[..length as usize]);
        let repairs = self.symbols.iter().map(|(&index, piece)| (index as usize, &piece[..]));
        if !code.decode(&mut block, symbol as usize, &present, code_bits, repairs) {
            // The code cannot do it, however many symbols come.
            return Outcome::Whole;
        }
        let mut new = 0;
        for range in absent {
            let piece = &block[(range.start - start) as usize..(range.end - start) as usize];
            new += input.insert(range.start, Bytes::copy_from_slice(piece));
        }
        Outcome::Decoded(new)
    }
}
