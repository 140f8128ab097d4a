//! The algebra, done by a library, and how packets of any length become shards of one length.
//!
//! A shard is the packet's length in two bytes, the packet, and zeros up to the length of the block's
//! longest. Data shards are never sent: a packet travels as it is.

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use super::header::Shape;

/// Bytes of a shard in front of its packet.
pub(super) const PREFIX: usize = 2;

/// The code with its working memory, which is kept from block to block.
#[derive(Default)]
pub(super) struct Code {
    encoder: Option<ReedSolomonEncoder>,
    decoder: Option<ReedSolomonDecoder>,
    shard: Vec<u8>,
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Code")
    }
}

/// Length of the shards of a block whose longest packet has `longest` bytes; the code wants it even.
fn shard_length(longest: usize) -> usize {
    (PREFIX + longest).next_multiple_of(2)
}

impl Code {
    /// Hands `each` the repair shards of a block, in their order. Nothing happens for what the code
    /// cannot do, such as no repairs at all.
    pub fn repairs<'a>(
        &mut self,
        shape: Shape,
        packets: impl Iterator<Item = &'a [u8]> + Clone,
        mut each: impl FnMut(&[u8]),
    ) {
        let length = shard_length(packets.clone().map(<[u8]>::len).max().unwrap_or(0));
        let (data, repairs) = (usize::from(shape.data), usize::from(shape.repairs));
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder.reset(data, repairs, length).ok().map(|()| encoder),
            none => ReedSolomonEncoder::new(data, repairs, length).ok().map(|encoder| none.insert(encoder)),
        };
        let Some(encoder) = encoder else { return };
        for packet in packets {
            if fill(&mut self.shard, packet, length) {
                // Counts and lengths are those announced, so the code takes it.
                let _ = encoder.add_original_shard(&self.shard);
            }
        }
        if let Ok(result) = encoder.encode() {
            result.recovery_iter().for_each(&mut each);
        }
    }

    /// Restores the packets that are missing in `packets`, with their index; nothing if the shards do not
    /// suffice or a packet does not fit them. `repairs` come with their index from 0.
    pub fn restore<'a>(
        &mut self,
        shape: Shape,
        packets: impl Iterator<Item = (usize, &'a [u8])>,
        repairs: impl Iterator<Item = (usize, &'a [u8])>,
        length: usize,
    ) -> Vec<(usize, Vec<u8>)> {
        let (data, total) = (usize::from(shape.data), usize::from(shape.repairs));
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder.reset(data, total, length).ok().map(|()| decoder),
            none => ReedSolomonDecoder::new(data, total, length).ok().map(|decoder| none.insert(decoder)),
        };
        let Some(decoder) = decoder else { return Vec::new() };
        for (index, packet) in packets {
            if !fill(&mut self.shard, packet, length)
                || decoder.add_original_shard(index, &self.shard).is_err()
            {
                return Vec::new();
            }
        }
        for (index, shard) in repairs {
            if decoder.add_recovery_shard(index, shard).is_err() {
                return Vec::new();
            }
        }
        let Ok(result) = decoder.decode() else { return Vec::new() };
        let restored = result.restored_original_iter();
        restored.filter_map(|(index, shard)| Some((index, unpack(shard)?.to_vec()))).collect()
    }
}

/// Makes a packet a shard; false if it is too long for one.
fn fill(shard: &mut Vec<u8>, packet: &[u8], length: usize) -> bool {
    shard.clear();
    let Ok(prefix) = u16::try_from(packet.len()) else { return false };
    if PREFIX + packet.len() > length {
        return false;
    }
    shard.extend_from_slice(&prefix.to_be_bytes());
    shard.extend_from_slice(packet);
    shard.resize(length, 0);
    true
}

/// The packet in a shard; none if it says that it is longer than the shard, or empty, as no packet is.
fn unpack(shard: &[u8]) -> Option<&[u8]> {
    let (&prefix, rest) = shard.split_first_chunk::<PREFIX>()?;
    rest.get(..usize::from(u16::from_be_bytes(prefix))).filter(|packet| !packet.is_empty())
}
