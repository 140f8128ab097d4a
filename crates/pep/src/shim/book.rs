//! The sending end: what was sent under which number, and what the far end says became of it.

use super::report::Report;
use super::PathStats;
use crate::frame::Malformed;
use skyhaul_cc::parts::Fates;
use skyhaul_cc::{Bytes, Duration, Share, Time};

/// Packets without a word of the far end after which it is not believed to report at all.
const UNTOLD_MOST: u64 = 1 << 20;

/// Numbers packets, hears reports, tells fates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    fates: Fates,
    /// Packets below this number have been told of by some report, or never will be.
    covered: u64,
    /// What to add to the receiver's clock, in nanoseconds.
    offset: Option<i128>,
    lost: u64,
    stats: PathStats,
}

impl Book {
    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.fates.next_number()
    }

    /// The next packet leaves.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: Bytes, train: Option<u32>) {
        self.fates.on_sent(now, bytes, train);
        if self.next_number() - self.covered > UNTOLD_MOST {
            // Only memory is at stake: QUIC's own acknowledgments go on.
            self.fates.on_unknown(self.covered);
            self.covered += 1;
        }
    }

    /// A report came. `rtt` is how long the first packet may have taken, there and back: clocks differ, and
    /// only differences of receive times mean anything.
    ///
    /// # Errors
    /// When it tells of packets that were never sent.
    pub(crate) fn hear(&mut self, report: &Report, rtt: Duration) -> Result<(), Malformed> {
        if report.end() > self.next_number() {
            return Err(Malformed("report: of packets that were not sent"));
        }
        for number in self.covered..report.first {
            self.fates.on_unknown(number);
        }
        for (number, at) in report.arrivals() {
            let Some(sent_at) = self.fates.sent_at(number) else { continue };
            let (sent, at) = (i128::from(sent_at.as_nanos()), i128::from(at.as_nanos()));
            let ahead = sent + rtt.as_nanos() as i128 - at;
            let offset = *self.offset.get_or_insert(ahead);
            // A path that became shorter by a round trip, or a clock that was set.
            if at + offset < sent {
                self.offset = Some(ahead);
            }
            let received = at + self.offset.unwrap_or(offset);
            self.fates.on_arrival(number, Time::from_nanos(u64::try_from(received).unwrap_or(u64::MAX)));
        }
        self.covered = self.covered.max(report.end());
        let totals = report.totals;
        let share = |part: u64| Share::new(part as f64 / totals.received.max(1) as f64).unwrap_or(Share::ONE);
        self.stats.reports += 1;
        self.stats.reordered = share(totals.reordered);
        self.stats.jitter = Duration::from_micros(totals.jitter_us.min(1 << 40));
        Ok(())
    }

    /// What became of the packets sent so far is nobody's business any more.
    pub(crate) fn forget(&mut self) {
        for number in self.covered..self.next_number() {
            self.fates.on_unknown(number);
        }
        self.covered = self.next_number();
        while self.fates.next(Time::ZERO).is_some() {}
    }

    /// What to tell the controller next.
    pub(crate) fn next(&mut self, now: Time) -> Option<skyhaul_cc::Report> {
        let told = self.fates.next(now)?;
        self.stats.told += 1;
        self.lost += u64::from(told.received_at.is_none());
        Some(told)
    }

    /// A report of so many bytes left towards the other end.
    pub(crate) fn count_report(&mut self, bytes: usize) {
        self.stats.report_bytes += bytes as u64;
    }

    /// A report made no sense.
    pub(crate) fn count_refused(&mut self) {
        self.stats.refused += 1;
    }

    pub(crate) fn stats(&self) -> PathStats {
        let loss = Share::new(self.lost as f64 / self.stats.told.max(1) as f64).unwrap_or(Share::ZERO);
        PathStats { loss, ..self.stats }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Run, Totals};
    use super::*;

    const RTT: Duration = Duration::from_millis(540);

    fn report(first: u64, runs: &[(u64, u64)]) -> Report {
        let runs = runs.iter().map(|&(missing, packets)| Run {
            missing,
            packets,
            after_us: 1_000,
            span_us: 100 * (packets - 1),
        });
        Report { first, at_us: 77_000_000, totals: Totals::default(), runs: runs.collect() }
    }

    fn sent(packets: u64) -> Book {
        let mut book = Book::default();
        (0..packets).for_each(|n| book.on_sent(Time::from_millis(n), Bytes(1500), None));
        book
    }

    fn told(book: &mut Book) -> Vec<bool> {
        std::iter::from_fn(|| book.next(Time::from_secs(2))).map(|fate| fate.received_at.is_some()).collect()
    }

    #[test]
    fn what_reports_tell_becomes_fates_in_order() {
        let mut book = sent(10);
        book.hear(&report(0, &[(0, 3), (1, 6)]), RTT).unwrap();
        assert_eq!(told(&mut book), [[true; 3].as_slice(), &[false], &[true; 6]].concat());
        assert_eq!(book.stats().loss.value(), 0.1);
    }

    #[test]
    fn receive_times_never_lie_before_send_times_whatever_the_clocks() {
        let mut book = sent(10);
        let mut early = report(0, &[(0, 10)]);
        (early.at_us, early.runs[0].span_us) = (5, 0);
        book.hear(&early, RTT).unwrap();
        while let Some(fate) = book.next(Time::from_secs(1)) {
            assert!(fate.received_at.unwrap() >= fate.sent_at);
        }
    }

    #[test]
    fn packets_of_lost_reports_count_as_arrived() {
        let mut book = sent(20);
        book.hear(&report(0, &[(0, 5)]), RTT).unwrap();
        book.hear(&report(12, &[(0, 8)]), RTT).unwrap();
        assert_eq!(told(&mut book), [true; 20]);
    }

    #[test]
    fn a_report_of_packets_never_sent_is_refused_and_changes_nothing() {
        let mut book = sent(5);
        assert!(book.hear(&report(0, &[(0, 6)]), RTT).is_err());
        assert!(book.hear(&report(u64::MAX - 3, &[(0, 6)]), RTT).is_err());
        assert_eq!(told(&mut book), []);
    }

    #[test]
    fn memory_stays_bounded_when_nobody_reports() {
        let mut book = Book::default();
        (0..UNTOLD_MOST + 10_000).for_each(|n| {
            book.on_sent(Time::from_nanos(n), Bytes(1500), None);
            while book.next(Time::ZERO).is_some() {}
        });
        assert_eq!(book.stats().told, 10_000);
    }
}
