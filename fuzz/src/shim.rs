//! Any bytes are a header or a report that is written back the same, or refused; a report tells of no more than it may.

use skyhaul_pep::shim::{Header, Report, HEADER};

/// One input.
pub fn run(bytes: &[u8]) {
    if let Some(header) = Header::decode(bytes) {
        assert!(Header::is_there(bytes));
        assert_eq!(header.encode(), bytes[..HEADER]);
        for expected in [0, 1 << 23, 1 << 24, u64::MAX >> 2] {
            assert_eq!(header.number(expected) & 0xff_ffff, u64::from(header.sequence));
        }
    }
    if let Ok(report) = Report::decode(bytes) {
        let end = report.end();
        assert!(report.arrivals().count() <= 1 << 20);
        assert!(report.arrivals().all(|(number, _)| number < end));
        let mut again = Vec::new();
        report.encode(&mut again);
        assert_eq!(Report::decode(&again).as_ref(), Ok(&report));
    }
}
