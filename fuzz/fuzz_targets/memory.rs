//! Any bytes of a store are refused or become a path and a record that are written back the same, are within the
//! bounds of links and can be learnt upon.
#![no_main]

use libfuzzer_sys::fuzz_target;
use skyhaul_pep::memory::{PathKey, Record, UnixTime};

fuzz_target!(|bytes: &[u8]| {
    // The first byte says how much of the rest is the key.
    let Some((&length, rest)) = bytes.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(length).min(rest.len()));
    let Ok(path) = PathKey::decode(key) else { return };
    assert_eq!(path.encode(), key);
    let Ok(record) = Record::decode(&path, value) else { return };
    assert_eq!(record.encode(&path), value);
    let recalled = record.recall(UnixTime(0), true);
    assert!(recalled.rate.as_bit() >= 1_000 && !recalled.min_rtt.is_zero() && recalled.loss.value() <= 0.5);
    let merged = record.merged(&recalled, UnixTime(1_750_000_000));
    assert_eq!(Record::decode(&path, &merged.encode(&path)), Ok(merged));
});
