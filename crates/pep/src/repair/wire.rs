//! The wire format of stream repair: one [`Message`] per QUIC DATAGRAM frame (RFC 9221).

use crate::frame::{put_varint, Malformed, Reader, Short};
use bytes::Bytes;

/// Most bytes of one block. Larger ones need fewer symbols in all, and take longer: this one is encoded in
/// half a millisecond and decoded in two, between which other flows wait.
pub const BLOCK_MAX: u64 = 5 << 17;
/// Most data symbols of one block.
pub const SYMBOLS_MAX: u64 = 8192;
/// Longest symbol in bytes.
pub const SYMBOL_MAX: u64 = 2048;
/// Most bytes of all the repair symbols that a block may have.
pub const PARITY_MAX: u64 = 2 << 20;
/// Offsets and stream numbers are QUIC varints.
const VARINT_MAX: u64 = (1 << 62) - 1;
/// The greatest code has 2¹² repair symbols.
pub(super) const CODE_BITS_MAX: u8 = 12;
/// In the byte of the code size: the stream ends where the block ends.
const FINAL: u8 = 0x80;

/// Repair symbols of one block of one stream.
///
/// ```text
/// stream v | start v | length v | final 1 bit, 0 0 0, code bits 4 | symbol v | first v | symbols
/// ```
///
/// `v` is a QUIC varint (RFC 9000 §16). A block is `length` stream bytes from offset `start` (the flow's
/// header is counted), cut into symbols of `symbol` bytes, the last padded with zeros. Its code is the
/// Reed-Solomon code of `reed-solomon-simd` in its high-rate form with 2^(code bits) repair symbols, of
/// which this message carries those from `first` on. A block of no bytes has no symbols and only says
/// where the stream ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// QUIC stream number.
    pub stream: u64,
    /// Stream offset of the block's first byte.
    pub start: u64,
    /// Bytes of the block, at most [`BLOCK_MAX`].
    pub length: u64,
    /// The stream ends with the block.
    pub ends: bool,
    /// The code has 2 to the power of this repair symbols.
    pub code_bits: u8,
    /// Bytes of a symbol: even, at most [`SYMBOL_MAX`].
    pub symbol: u64,
    /// Index of the first repair symbol here.
    pub first: u64,
    /// The repair symbols, one behind the other.
    pub symbols: Bytes,
}

/// Longest header: stream 8, start 8, length 4, code 1, symbol 2, first 2.
pub(super) const HEADER_MAX: usize = 25;

impl Message {
    /// Data symbols of the block.
    pub fn data_symbols(&self) -> u64 {
        self.length.div_ceil(self.symbol.max(1))
    }

    /// Repair symbols in this message.
    pub fn count(&self) -> u64 {
        self.symbols.len() as u64 / self.symbol.max(1)
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for n in [self.stream, self.start, self.length] {
            put_varint(out, n);
        }
        out.push(if self.ends { FINAL } else { 0 } | self.code_bits);
        if self.length > 0 {
            put_varint(out, self.symbol);
            put_varint(out, self.first);
            out.extend_from_slice(&self.symbols);
        }
    }

    /// Reads a message; its symbols stay where they are in memory.
    ///
    /// # Errors
    /// When it is cut short or goes beyond a limit.
    pub fn decode(bytes: &Bytes) -> Result<Message, Malformed> {
        let mut reader = Reader(bytes);
        let message = Self::read(&mut reader).map_err(|Short| Malformed("repair: too short"))?;
        let message = Message { symbols: bytes.slice_ref(reader.0), ..message };
        message.check().map(|()| message)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Message, Short> {
        let (stream, start, length) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let flags = reader.byte()?;
        let (symbol, first) = if length > 0 { (reader.varint()?, reader.varint()?) } else { (0, 0) };
        Ok(Message {
            stream,
            start,
            length,
            ends: flags & FINAL != 0,
            code_bits: flags & !FINAL,
            symbol,
            first,
            symbols: Bytes::new(),
        })
    }

    fn check(&self) -> Result<(), Malformed> {
        if self.length == 0 {
            let plain = self.ends && self.code_bits == 0 && self.symbols.is_empty();
            return if plain { Ok(()) } else { Err(Malformed("repair: empty block")) };
        }
        if self.length > BLOCK_MAX || self.start > VARINT_MAX - self.length {
            return Err(Malformed("repair: block too long"));
        }
        if self.symbol == 0 || !self.symbol.is_multiple_of(2) || self.symbol > SYMBOL_MAX {
            return Err(Malformed("repair: symbol size"));
        }
        if self.data_symbols() > SYMBOLS_MAX {
            return Err(Malformed("repair: too many symbols"));
        }
        if self.code_bits > CODE_BITS_MAX || self.symbol << self.code_bits > PARITY_MAX {
            return Err(Malformed("repair: code too large"));
        }
        if self.symbols.is_empty() || !(self.symbols.len() as u64).is_multiple_of(self.symbol) {
            return Err(Malformed("repair: symbols cut"));
        }
        if self.first.saturating_add(self.count()) > 1 << self.code_bits {
            return Err(Malformed("repair: symbol number"));
        }
        Ok(())
    }
}
