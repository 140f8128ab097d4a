//! Any message of stream repair is read or refused: what is read is within the limits, and written again
//! says the same.

use skyhaul_pep::repair::{Message, BLOCK_MAX, PARITY_MAX, SYMBOLS_MAX, SYMBOL_MAX};

/// One input.
pub fn run(bytes: &[u8]) {
    let Ok(message) = Message::decode(&bytes.to_vec().into()) else { return };
    assert!(message.length <= BLOCK_MAX && message.symbol <= SYMBOL_MAX);
    assert!(message.start.checked_add(message.length).is_some());
    if message.length > 0 {
        assert!(message.data_symbols() <= SYMBOLS_MAX);
        assert!(message.symbol << message.code_bits <= PARITY_MAX);
        assert!(message.first + message.count() <= 1 << message.code_bits);
        assert_eq!(message.count() * message.symbol, message.symbols.len() as u64);
    }
    let mut out = Vec::new();
    message.encode(&mut out);
    assert_eq!(Message::decode(&out.into()).as_ref(), Ok(&message));
}
