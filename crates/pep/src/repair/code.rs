//! The algebra, done by a library. Its high-rate form is asked for by name: which symbols it makes
//! depends only on the power of two above their number, so that the two ends need agree on no more.

use reed_solomon_simd::engine::DefaultEngine;
use reed_solomon_simd::rate::{HighRateDecoder, HighRateEncoder, RateDecoder, RateEncoder};

/// The code with its working memory, which is kept from block to block.
#[derive(Default)]
pub(crate) struct Code {
    encoder: Option<HighRateEncoder<DefaultEngine>>,
    decoder: Option<HighRateDecoder<DefaultEngine>>,
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Code")
    }
}

impl Code {
    /// The first `count` repair symbols of `block`, one behind the other. The block's length is a
    /// multiple of `symbol`. Nothing if the code cannot do it.
    pub(crate) fn encode(&mut self, block: &[u8], symbol: usize, count: usize) -> Option<Vec<u8>> {
        let data = block.len() / symbol;
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder.reset(data, count, symbol).ok().map(|()| encoder),
            none => {
                let engine = DefaultEngine::new();
                let encoder = HighRateEncoder::new(data, count, symbol, engine, None).ok()?;
                Some(none.insert(encoder))
            }
        }?;
        for shard in block.chunks_exact(symbol) {
            encoder.add_original_shard(shard).ok()?;
        }
        let result = encoder.encode().ok()?;
        let mut out = Vec::with_capacity(count * symbol);
        result.recovery_iter().for_each(|shard| out.extend_from_slice(shard));
        Some(out)
    }

    /// Fills in the symbols of `block` that are not `present`, from repair symbols with their index in a
    /// code of 2^`code_bits`. False if they do not suffice.
    pub(crate) fn decode<'a>(
        &mut self,
        block: &mut [u8],
        symbol: usize,
        present: &[bool],
        code_bits: u8,
        repairs: impl Iterator<Item = (usize, &'a [u8])>,
    ) -> bool {
        let (data, parity) = (block.len() / symbol, 1 << code_bits);
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder.reset(data, parity, symbol).ok().map(|()| decoder),
            none => {
                let engine = DefaultEngine::new();
                let decoder = HighRateDecoder::new(data, parity, symbol, engine, None).ok();
                decoder.map(|decoder| none.insert(decoder))
            }
        };
        let Some(decoder) = decoder else { return false };
        for (index, shard) in block.chunks_exact(symbol).enumerate() {
            if present[index] && decoder.add_original_shard(index, shard).is_err() {
                return false;
            }
        }
        for (index, shard) in repairs {
            if decoder.add_recovery_shard(index, shard).is_err() {
                return false;
            }
        }
        let Ok(result) = decoder.decode() else { return false };
        for (index, shard) in result.restored_original_iter() {
            block[index * symbol..][..symbol].copy_from_slice(shard);
        }
        true
    }
}
