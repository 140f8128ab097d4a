//! Any bytes of a peer are refused, waited for or become a frame that is written back the same.

use skyhaul_pep::frame::{Control, Open};

/// One input.
pub fn run(bytes: &[u8]) {
    if let Ok(Some((open, used))) = Open::decode(bytes) {
        assert!(used <= bytes.len());
        let again = open.encode().expect("what was read can be written");
        assert_eq!(Open::decode(&again), Ok(Some((open, again.len()))));
    }
    let mut rest = bytes;
    while let Ok(Some((frame, used))) = Control::decode(rest) {
        assert!(used > 0 && used <= rest.len());
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(Control::decode(&again), Ok(Some((frame, again.len()))));
        rest = &rest[used..];
    }
}
