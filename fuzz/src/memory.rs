//! Any bytes of a store are refused or become a path and a record that are written back the same, are within the
//! bounds of links and can be learnt upon.
//!
//! No fuzzer guesses a checksum, so what looks like a record is also tried with the right one.

use ring::digest::{digest, SHA256};
use skyhaul_pep::memory::{PathKey, Record, Refused, UnixTime};

/// One input.
pub fn run(bytes: &[u8]) {
    // The first byte says how much of the rest is the key.
    let Some((&length, rest)) = bytes.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(length).min(rest.len()));
    let Ok(path) = PathKey::decode(key) else { return };
    assert_eq!(path.encode(), key);
    if let Ok(record) = Record::decode(&path, value) {
        assert_eq!(record.encode(&path), value);
        survives(&path, &record);
    }
    if let Some(said) = value.len().checked_sub(CHECKSUM).and_then(|length| value.get(..length)) {
        let sum = digest(&SHA256, &[key, said].concat());
        let sealed = [said, &sum.as_ref()[..CHECKSUM]].concat();
        match Record::decode(&path, &sealed) {
            Ok(record) => survives(&path, &record),
            Err(why) => assert_ne!(why, Refused::Checksum),
        }
    }
}

/// Behind a record, see `skyhaul_pep::memory`.
const CHECKSUM: usize = 8;

fn survives(path: &PathKey, record: &Record) {
    assert_eq!(Record::decode(path, &record.encode(path)).as_ref(), Ok(record));
    let recalled = record.recall(UnixTime(0), true);
    assert!(recalled.rate.as_bit() >= 1_000 && !recalled.min_rtt.is_zero() && recalled.loss.value() <= 0.5);
    let mut merged = *record;
    // The same again and again: three times is a drift, and counts end somewhere.
    for times in 1..5 {
        merged = merged.merged(&recalled, UnixTime(1_750_000_000 * times));
        assert_eq!(Record::decode(path, &merged.encode(path)), Ok(merged));
    }
}
