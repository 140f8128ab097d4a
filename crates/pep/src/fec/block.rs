//! One block at the receiving end.

use bytes::Bytes as Data;

use super::code::{Code, PREFIX};
use super::header::Shape;
use super::{Refused, MOST_DATA};

/// What has arrived of a block.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Bit i: the datagram of index i has arrived.
    arrived: u128,
    /// Bit i: packet i has been handed on, arrived or repaired.
    known: u128,
    /// Packets, kept for repair.
    data: Vec<(u8, Data)>,
    /// Repair shards, by index from 0.
    repairs: Vec<(u8, Data)>,
    /// Known from the first repair on, with the length of the shards.
    shape: Option<(Shape, usize)>,
    /// All packets are known, or what came last could not be used.
    settled: bool,
}

impl Block {
    /// Whether the datagram of this index has arrived.
    pub fn has(&self, index: u8) -> bool {
        self.arrived >> index & 1 == 1
    }

    /// Whether packet `index` has been handed on.
    pub fn knows(&self, index: u8) -> bool {
        self.known >> index & 1 == 1
    }

    /// Whether nothing more is to be had from the block.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Datagrams in the block, once a repair has told.
    pub fn total(&self) -> Option<u64> {
        self.shape.map(|(shape, _)| shape.total())
    }

    /// Packets that are known not to have come.
    pub fn missing(&self) -> u32 {
        let sent = match self.shape {
            Some((shape, _)) => u32::from(shape.data),
            None => 128 - self.known.leading_zeros(),
        };
        sent - self.known.count_ones().min(sent)
    }

    /// Datagrams kept for repair.
    pub fn kept(&self) -> usize {
        self.data.len() + self.repairs.len()
    }

    /// A packet arrives. Whether it is news: a packet repaired before is none.
    pub fn on_data(&mut self, index: u8, packet: &Data) -> Result<(), Refused> {
        let fits =
            self.shape.is_none_or(|(shape, length)| index < shape.data && PREFIX + packet.len() <= length);
        if !fits {
            return Err(Refused::Inconsistent);
        }
        self.arrived |= 1 << index;
        if self.knows(index) {
            return Err(Refused::Duplicate);
        }
        self.known |= 1 << index;
        if !self.settled {
            self.data.push((index, packet.clone()));
            self.settle();
        }
        Ok(())
    }

    /// A repair arrives; its index counts from the block's beginning.
    pub fn on_repair(&mut self, index: u8, shape: Shape, shard: Data) -> Result<(), Refused> {
        let first = self.shape.is_none();
        let known = *self.shape.get_or_insert((shape, shard.len()));
        let beyond = 128 - self.known.leading_zeros() > u32::from(shape.data);
        let too_long = || self.data.iter().any(|(_, packet)| PREFIX + packet.len() > shard.len());
        if known != (shape, shard.len()) || beyond || too_long() {
            if first {
                self.shape = None;
            }
            return Err(Refused::Inconsistent);
        }
        self.arrived |= 1 << index;
        if !self.settled {
            self.repairs.push((index - shape.data, shard));
            self.settle();
        }
        Ok(())
    }

    /// Repairs what is missing, if there is enough for it.
    pub fn repair(&mut self, code: &mut Code) -> Vec<(u8, Data)> {
        let Some((shape, length)) = self.shape else { return Vec::new() };
        if self.settled || self.data.len() + self.repairs.len() < usize::from(shape.data) {
            return Vec::new();
        }
        let data = self.data.iter().map(|(index, packet)| (usize::from(*index), &packet[..]));
        let repairs = self.repairs.iter().map(|(index, shard)| (usize::from(*index), &shard[..]));
        let restored = code.restore(shape, data, repairs, length);
        let restored: Vec<(u8, Data)> = (restored.into_iter())
            .filter(|(index, _)| *index < MOST_DATA)
            .map(|(index, packet)| (index as u8, Data::from(packet)))
            .collect();
        for (index, _) in &restored {
            self.known |= 1 << index;
        }
        self.forget();
        restored
    }

    /// Lets go of what was kept once every packet is known.
    fn settle(&mut self) {
        if self.shape.is_some_and(|(shape, _)| self.known.count_ones() == u32::from(shape.data)) {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.settled = true;
        self.data = Vec::new();
        self.repairs = Vec::new();
    }
}
