//! The receiving end: which datagrams came when, and what to say about it.

use super::header::Header;
use super::report::{Report, Run, Totals};
use skyhaul_cc::{Duration, Time};
use std::collections::VecDeque;

/// A report is due after this share of a round trip: the controller decides many times per round trip …
const PERIOD_SHARE: u32 = 30;
/// … within these bounds.
const PERIOD: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(18));
/// A report that is due waits for company, an acknowledgment that leaves anyway, up to so many periods.
const PATIENCE: f64 = 2.0;
/// A train after so much silence is a flight that the sender knows nothing before: it is told of so many times sooner,
/// alone, and so is what follows for this part of a round trip.
const SILENCE: Duration = Duration::from_millis(50);
const SOONER: u32 = 4;
const SOONER_FOR: u32 = 4;
/// A receive time may be told wrong by this share of the round trip …
const TOLERANCE_SHARE: u32 = 5_000;
/// … within these bounds; those of trains hardly at all.
const TOLERANCE: (Duration, Duration) = (Duration::from_micros(5), Duration::from_micros(100));
const TOLERANCE_TRAIN_US: i64 = 1;
/// Arrivals that nobody asked about (reports of the other end) are told when there are so many.
const UNASKED_MOST: usize = 256;
/// Arrivals kept at most, should no report leave for long.
const KEPT_MOST: usize = 1 << 16;
/// A report that does not fit is made coarser so often by so much, then cut.
const COARSER: (u32, i64) = (3, 4);

#[derive(Clone, Copy, Debug)]
struct Arrival {
    number: u64,
    at_us: u64,
    train: bool,
}

/// Hears of every datagram with a number and says when what arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listener {
    /// In the order of sending: the part that was told once, then what is new.
    arrivals: VecDeque<Arrival>,
    /// Number from which on arrivals have not been told.
    new_from: u64,
    /// Number at which the last report began with what was new to it.
    before: u64,
    /// Highest number heard, plus one.
    expected: u64,
    totals: Totals,
    /// Sender's and receiver's microseconds of the datagram before.
    previous: Option<(u32, u64)>,
    /// In sixteenths of microseconds.
    jitter: u64,
    /// Since when something waits to be told that the sender wants to know.
    since: Option<Time>,
    /// New arrivals.
    unasked: usize,
    /// When the last one came, and the first of a flight.
    heard_at: Option<Time>,
    woken_at: Option<Time>,
}

impl Listener {
    /// The datagram under `header` came at `at` and QUIC accepted it. `asked`: it holds more than reports.
    pub(crate) fn on_arrival(&mut self, header: &Header, at: Time, asked: bool) {
        let number = header.number(self.expected);
        let arrival = Arrival { number, at_us: at.as_nanos() / 1_000, train: header.train };
        self.totals.received += 1;
        self.totals.reordered += u64::from(number < self.expected);
        self.expected = self.expected.max(number + 1);
        if let Some((sent, received)) = self.previous.replace((header.sent, arrival.at_us)) {
            let change =
                arrival.at_us as i64 - received as i64 - i64::from(header.sent.wrapping_sub(sent) as i32);
            self.jitter = self.jitter - self.jitter / 16 + change.unsigned_abs().min(1 << 32);
            self.totals.jitter_us = self.jitter / 16;
        }
        let before = self.heard_at.replace(at);
        if header.train && before.is_none_or(|before| at.since(before) >= SILENCE) {
            self.woken_at = Some(at);
        }
        let place = self.arrivals.iter().rposition(|earlier| earlier.number <= number).map_or(0, |i| i + 1);
        if place > 0 && self.arrivals[place - 1].number == number {
            return;
        }
        // What comes from before the part that is repeated comes too late to be told.
        if number < self.before {
            return;
        }
        self.arrivals.insert(place, arrival);
        self.new_from = self.new_from.min(number);
        if self.arrivals.len() > KEPT_MOST {
            self.arrivals.pop_front();
        }
        self.unasked += 1;
        if asked || self.unasked >= UNASKED_MOST {
            self.since.get_or_insert(at);
        }
    }

    fn period(rtt: Duration) -> Duration {
        (rtt / PERIOD_SHARE).clamp(PERIOD.0, PERIOD.1)
    }

    /// How long what has come at `since` waits: with company, and without.
    fn waits(since: Time, woken_at: Option<Time>, rtt: Duration) -> (Duration, Duration) {
        let period = Self::period(rtt);
        if woken_at.is_some_and(|at| since.since(at) < rtt / SOONER_FOR) {
            let soon = (period / SOONER).max(PERIOD.0);
            return (soon, soon);
        }
        (period, period.mul_f64(PATIENCE))
    }

    /// Whether a report should leave; sooner if something leaves anyway.
    pub(crate) fn is_due(&self, now: Time, rtt: Duration, with_company: bool) -> bool {
        self.since.is_some_and(|since| {
            let (with, without) = Self::waits(since, self.woken_at, rtt);
            now >= since + if with_company { with } else { without }
        })
    }

    /// When a report is due in any case.
    pub(crate) fn due_at(&self, rtt: Duration) -> Option<Time> {
        self.since.map(|since| since + Self::waits(since, self.woken_at, rtt).1)
    }

    /// A report of at most `room` bytes: what is new, and what was new to the report before, because that
    /// one may have been lost.
    pub(crate) fn report(&mut self, rtt: Duration, room: usize) -> Option<Vec<u8>> {
        let tolerance = (rtt / TOLERANCE_SHARE).clamp(TOLERANCE.0, TOLERANCE.1).as_micros() as i64;
        let mut kept = self.arrivals.len();
        let mut out = Vec::new();
        while kept > 0 {
            for coarser in 0..=COARSER.0 {
                out.clear();
                self.describe(kept, tolerance * COARSER.1.pow(coarser)).encode(&mut out);
                if out.len() <= room {
                    self.told(kept);
                    return Some(out);
                }
            }
            kept /= 2;
        }
        None
    }

    /// The first `kept` arrivals have been told.
    fn told(&mut self, kept: usize) {
        let end = self.arrivals.get(kept.saturating_sub(1)).map_or(self.new_from, |last| last.number + 1);
        if kept < self.arrivals.len() {
            // The rest goes with the next report, as soon as it may.
            self.unasked = self.arrivals.len() - kept;
        } else {
            self.since = None;
            self.unasked = 0;
        }
        self.before = self.new_from;
        self.new_from = end;
        while self.arrivals.front().is_some_and(|arrival| arrival.number < self.before) {
            self.arrivals.pop_front();
        }
    }

    fn describe(&self, kept: usize, tolerance: i64) -> Report {
        let first = self.arrivals.front();
        // From where this report speaks: what lies between it and the first arrival is missing.
        let from = first.map_or(self.before, |first| first.number.min(self.before));
        let at_us = first.map_or(0, |first| first.at_us);
        let mut runs: Vec<Run> = Vec::new();
        let mut line = Line::default();
        let (mut end, mut last_us) = (from, at_us);
        for arrival in self.arrivals.iter().take(kept) {
            let tolerance = if arrival.train { TOLERANCE_TRAIN_US } else { tolerance };
            let missing = arrival.number - end;
            match runs.last_mut() {
                Some(run) if missing == 0 && line.takes(run, arrival.at_us, tolerance) => {
                    run.packets += 1;
                    run.span_us = arrival.at_us - line.from;
                }
                _ => {
                    let after_us = arrival.at_us as i64 - last_us as i64;
                    runs.push(Run { missing, packets: 1, after_us, span_us: 0 });
                    line = Line::new(arrival.at_us);
                }
            }
            end = arrival.number + 1;
            last_us = arrival.at_us;
        }
        Report { first: from, at_us, totals: self.totals, runs }
    }
}

/// Slopes of the straight lines from the first packet of a run that pass all others near enough: a new
/// packet may end the run if the line to it is one of them.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    from: u64,
    least: f64,
    most: f64,
}

impl Line {
    fn new(from: u64) -> Self {
        Line { from, least: f64::NEG_INFINITY, most: f64::INFINITY }
    }

    fn takes(&mut self, run: &Run, at_us: u64, tolerance: i64) -> bool {
        let Some(span) = at_us.checked_sub(self.from) else { return false };
        let (gaps, span, tolerance) = (run.packets as f64, span as f64, tolerance as f64);
        let slope = span / gaps;
        if slope < self.least || slope > self.most {
            return false;
        }
        self.least = self.least.max((span - tolerance) / gaps);
        self.most = self.most.min((span + tolerance) / gaps);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::Kind;
    use super::*;

    const GEO: Duration = Duration::from_millis(540);
    const US: fn(u64) -> Time = |us| Time::ZERO.after(us);

    trait After {
        fn after(self, us: u64) -> Time;
    }
    impl After for Time {
        fn after(self, us: u64) -> Time {
            self + Duration::from_micros(us)
        }
    }

    fn hear(listener: &mut Listener, number: u64, at: Time, train: bool) {
        listener.on_arrival(&Header::new(Kind::Packet, train, number, Time::ZERO), at, true);
    }

    fn decoded(listener: &mut Listener) -> Report {
        Report::decode(&listener.report(GEO, 1_100).unwrap()).unwrap()
    }

    #[test]
    fn an_even_stream_takes_one_run_and_each_loss_one_more() {
        let mut listener = Listener::default();
        for number in (0..200).filter(|n| ![50, 51, 120].contains(n)) {
            hear(&mut listener, number, US(1_000 + number * 80), false);
        }
        let report = decoded(&mut listener);
        assert_eq!(report.runs.len(), 3);
        assert_eq!(report.runs[1].missing, 2);
        assert!(report.arrivals().all(|(number, at)| at == US(1_000 + number * 80)));
        assert_eq!(report.arrivals().count(), 197);
    }

    #[test]
    fn times_are_told_within_the_tolerance_and_those_of_trains_to_the_microsecond() {
        let mut listener = Listener::default();
        // Uneven by up to 150 us; numbers 100 to 131 are a train.
        let at = |n: u64| US(10_000 + n * 80 + n.wrapping_mul(2_654_435_761) % 150);
        for number in 0..300 {
            hear(&mut listener, number, at(number), (100..132).contains(&number));
        }
        let report = decoded(&mut listener);
        let off = |(n, told): (u64, Time)| {
            let error = told.as_nanos().abs_diff(at(n).as_nanos());
            let most = if (100..132).contains(&n) { 1_000 } else { 100_000 };
            error > most
        };
        assert_eq!(report.arrivals().filter(|&told| off(told)).count(), 0);
        assert!(report.runs.len() < 200, "{}", report.runs.len());
    }

    #[test]
    fn each_report_repeats_the_one_before_and_no_more() {
        let mut listener = Listener::default();
        (0..10).for_each(|n| hear(&mut listener, n, US(n), false));
        assert_eq!((decoded(&mut listener).first, listener.since), (0, None));
        (10..20).for_each(|n| hear(&mut listener, n, US(n), false));
        let second = decoded(&mut listener);
        assert_eq!((second.first, second.end()), (0, 20));
        (20..30).for_each(|n| hear(&mut listener, n, US(n), false));
        let third = decoded(&mut listener);
        assert_eq!((third.first, third.end()), (10, 30));
    }

    #[test]
    fn a_latecomer_is_told_and_counted_as_reordered_and_a_copy_is_not_told_twice() {
        let mut listener = Listener::default();
        for (number, at) in [(0, 0), (2, 20_000), (3, 30_000), (1, 35_000), (3, 40_000)] {
            hear(&mut listener, number, US(at), true);
        }
        let report = decoded(&mut listener);
        let told: Vec<_> = report.arrivals().collect();
        assert_eq!(told, [(0, US(0)), (1, US(35_000)), (2, US(20_000)), (3, US(30_000))]);
        assert_eq!(report.totals.reordered, 2);
    }

    #[test]
    fn a_report_that_does_not_fit_becomes_coarser_and_then_shorter() {
        let mut listener = Listener::default();
        let mut at = 0;
        for number in 0..4_000u64 {
            at += 20_000 + number.wrapping_mul(2_654_435_761) % 90_000;
            hear(&mut listener, number, US(at), false);
        }
        let mut told = 0;
        while listener.since.is_some() {
            let bytes = listener.report(GEO, 500).unwrap();
            assert!(bytes.len() <= 500);
            told = Report::decode(&bytes).unwrap().end();
        }
        assert_eq!(told, 4_000);
    }

    #[test]
    fn a_report_waits_for_company_but_not_for_long() {
        let mut listener = Listener::default();
        hear(&mut listener, 0, US(0), false);
        let period = Listener::period(GEO);
        let later = |periods: f64| Time::ZERO + period.mul_f64(periods);
        assert!(!listener.is_due(later(0.9), GEO, true));
        assert!(listener.is_due(later(1.0), GEO, true) && !listener.is_due(later(1.9), GEO, false));
        assert!(listener.is_due(later(2.0), GEO, false));
        assert_eq!(listener.due_at(GEO), Some(later(2.0)));
    }

    #[test]
    fn the_first_train_after_a_silence_is_told_at_once_and_later_ones_are_not() {
        let mut listener = Listener::default();
        let period = Listener::period(GEO);
        for (from, soon) in [(0, true), (20_000, true), (200_000, false), (400_000, true)] {
            // A round trip has more of them than one: what matters is that nothing came before.
            hear(&mut listener, from, US(from), from != 200_000);
            if from == 20_000 {
                (21_000..200_000).step_by(10_000).for_each(|at| hear(&mut listener, at, US(at), false));
            }
            let wait = if soon { period / SOONER } else { period.mul_f64(PATIENCE) };
            let since = listener.since.unwrap();
            assert_eq!(listener.due_at(GEO), Some(since + wait), "from {from} us");
            assert!(!listener.is_due(since + wait - US(1).since_start(), GEO, false));
            assert!(listener.is_due(since + wait, GEO, false));
            listener.report(GEO, 1_100).unwrap();
        }
    }

    #[test]
    fn reports_about_reports_alone_are_rare() {
        let mut listener = Listener::default();
        for number in 0..UNASKED_MOST as u64 {
            assert_eq!(listener.since, None);
            listener.on_arrival(&Header::new(Kind::Packet, false, number, Time::ZERO), US(number), false);
        }
        assert!(listener.since.is_some());
    }

    #[test]
    fn memory_stays_bounded_when_no_report_can_leave() {
        let mut listener = Listener::default();
        (0..KEPT_MOST as u64 + 1_000).for_each(|n| hear(&mut listener, n, US(n * 50), false));
        assert_eq!(listener.arrivals.len(), KEPT_MOST);
    }
}
