//! When datagrams arrived, in few bytes: a return link of 10 Mbit/s shall not notice.

use crate::frame::{put_varint, Malformed, Reader, Short};
use skyhaul_cc::{Duration, Time};

/// Runs of one report at most.
const RUNS_MOST: usize = 4096;
/// Packets of one report at most, missing ones counted.
const PACKETS_MOST: u64 = 1 << 20;

/// Counts since the channel began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Datagrams received.
    pub received: u64,
    /// Those that came after one with a higher number.
    pub reordered: u64,
    /// Smoothed variation of the one-way delay between neighbours, in microseconds (RFC 3550 §6.4.1).
    pub jitter_us: u64,
}

/// Neighbours that all arrived, evenly spaced within the tolerance of whoever reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Numbers before it that did not arrive.
    pub missing: u64,
    /// How many arrived, at least one.
    pub packets: u64,
    /// The first of them came so many microseconds after the last of the run before; for the first run,
    /// after [`Report::at_us`].
    pub after_us: i64,
    /// The last of them came so many microseconds after the first.
    pub span_us: u64,
}

/// What arrived, in the order of sending.
///
/// ```text
/// first, at, received, reordered, jitter      varints (RFC 9000 §16)
/// per run:  2 (packets - 1) + (missing > 0)   varint
///           missing                           varint, if there are any
///           after                             varint, sign in the lowest bit
///           span                              varint, if packets > 1
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Number of the first packet it tells of, arrived or not.
    pub first: u64,
    /// Receiver's clock in microseconds, from which the first run counts.
    pub at_us: u64,
    /// Counts.
    pub totals: Totals,
    /// Runs in the order of sending.
    pub runs: Vec<Run>,
}

impl Report {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Totals { received, reordered, jitter_us } = self.totals;
        for n in [self.first, self.at_us, received, reordered, jitter_us] {
            put_varint(out, n);
        }
        for run in &self.runs {
            put_varint(out, (run.packets - 1) << 1 | u64::from(run.missing > 0));
            if run.missing > 0 {
                put_varint(out, run.missing);
            }
            put_varint(out, (run.after_us.unsigned_abs() << 1) | u64::from(run.after_us < 0));
            if run.packets > 1 {
                put_varint(out, run.span_us);
            }
        }
    }

    /// Reads a report.
    ///
    /// # Errors
    /// When the bytes end too early or tell of more than a report may.
    pub fn decode(bytes: &[u8]) -> Result<Report, Malformed> {
        Self::read(&mut Reader(bytes)).unwrap_or(Err(Malformed("report: too short")))
    }

    fn read(reader: &mut Reader<'_>) -> Result<Result<Report, Malformed>, Short> {
        let (first, at_us) = (reader.varint()?, reader.varint()?);
        let totals =
            Totals { received: reader.varint()?, reordered: reader.varint()?, jitter_us: reader.varint()? };
        let mut runs = Vec::new();
        let mut told = 0u64;
        while !reader.0.is_empty() {
            let head = reader.varint()?;
            let packets = (head >> 1) + 1;
            let missing = if head & 1 == 1 { reader.varint()? } else { 0 };
            let after = reader.varint()?;
            let size = (after >> 1) as i64;
            let after_us = if after & 1 == 1 { -size } else { size };
            let span_us = if packets > 1 { reader.varint()? } else { 0 };
            told = told.saturating_add(packets).saturating_add(missing);
            if runs.len() >= RUNS_MOST || told > PACKETS_MOST {
                return Ok(Err(Malformed("report: tells of too much")));
            }
            runs.push(Run { missing, packets, after_us, span_us });
        }
        Ok(Ok(Report { first, at_us, totals, runs }))
    }

    /// The number behind the last one it tells of.
    pub fn end(&self) -> u64 {
        self.runs.iter().fold(self.first, |n, run| n.saturating_add(run.missing).saturating_add(run.packets))
    }

    /// Numbers and arrival times on the receiver's clock; those inside runs are interpolated.
    pub fn arrivals(&self) -> impl Iterator<Item = (u64, Time)> + '_ {
        let mut number = self.first;
        let mut at = self.at_us;
        self.runs.iter().flat_map(move |run| {
            number = number.saturating_add(run.missing);
            let (begin, from) = (number, at.saturating_add_signed(run.after_us));
            number = number.saturating_add(run.packets);
            at = from.saturating_add(run.span_us);
            let gaps = (run.packets - 1).max(1);
            (0..run.packets).map(move |i| {
                let nanos = u128::from(run.span_us) * 1_000 * u128::from(i) / u128::from(gaps);
                let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
                (begin + i, Time::ZERO + Duration::from_micros(from) + Duration::from_nanos(nanos))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_run() -> impl Strategy<Value = Run> {
        (0u64..50, 1u64..200, -5_000_000i64..5_000_000, 0u64..1_000_000).prop_map(
            |(missing, packets, after_us, span_us)| Run {
                missing,
                packets,
                after_us,
                span_us: if packets > 1 { span_us } else { 0 },
            },
        )
    }

    proptest! {
        #[test]
        fn a_report_survives_the_wire(
            first in 0u64..1 << 40,
            at_us in 0u64..1 << 50,
            received in 0u64..1 << 40,
            runs in proptest::collection::vec(any_run(), 0..100),
        ) {
            let totals = Totals { received, reordered: received / 7, jitter_us: 31 };
            let report = Report { first, at_us, totals, runs };
            let mut bytes = Vec::new();
            report.encode(&mut bytes);
            prop_assert_eq!(Report::decode(&bytes).unwrap(), report.clone());
            let told: Vec<_> = report.arrivals().map(|(number, _)| number).collect();
            prop_assert!(told.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(told.last().is_none_or(|&last| last + 1 == report.end()));
        }

        #[test]
        fn any_bytes_are_read_or_refused_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
            if let Ok(report) = Report::decode(&bytes) {
                prop_assert!(report.arrivals().count() as u64 <= PACKETS_MOST);
                let mut again = Vec::new();
                report.encode(&mut again);
                prop_assert_eq!(Report::decode(&again).unwrap(), report);
            }
        }
    }

    #[test]
    fn times_inside_a_run_are_evenly_spaced() {
        let runs = vec![
            Run { missing: 0, packets: 3, after_us: 0, span_us: 200 },
            Run { missing: 2, packets: 1, after_us: -50, span_us: 0 },
        ];
        let report = Report { first: 10, at_us: 1_000, totals: Totals::default(), runs };
        let us = |n| Time::ZERO + Duration::from_micros(n);
        let told: Vec<_> = report.arrivals().collect();
        assert_eq!(told, [(10, us(1_000)), (11, us(1_100)), (12, us(1_200)), (15, us(1_150))]);
        assert_eq!(report.end(), 16);
    }
}
