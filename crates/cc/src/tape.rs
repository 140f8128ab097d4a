//! Event tapes: what a controller heard, as text, so that it can be recorded anywhere and replayed
//! anywhere.
//!
//! The first line is `skyhaul-tape 1`. Every other line is empty, a comment (`#`), or a time in
//! nanoseconds, a kind and its fields, in this order, all numbers whole:
//!
//! ```text
//! skyhaul-tape 1
//! 0 sent bytes=1500 in_flight=1500
//! 540000000 ack sent_at=0 acked=1500 in_flight=0 peer_window=- latest=540000000 smoothed=540000000 min=540000000 delivery_rate=22222 round_start=1 app_limited=0
//! 541000000 loss sent_at=1000 lost=1500 in_flight=0 latest=540000000 smoothed=540000000 min=540000000 signal=gap new_episode=1
//! ```
//!
//! Times and durations are nanoseconds, amounts bytes, rates bit/s, `-` is "absent", yes and no are 1
//! and 0, `signal` is `gap`, `timeout` or `ecn`. Times never decrease.
//!
//! A tape with reports of receive times begins with `skyhaul-tape 2` and knows two kinds more: what became
//! of a packet, and that a train began.
//!
//! ```text
//! skyhaul-tape 2
//! 0 train
//! 540000000 report sent_at=0 received_at=270000000 bytes=1500 train=1
//! ```
//!
//! A recording may also say who answered and what: a line with the controller's name and [`Setup`] before
//! the first event, and as the last field of every event the window after it.
//!
//! ```text
//! skyhaul-tape 1
//! controller name=cubic mss=1448 initial_window=14480 initial_ssthresh=- initial_rtt=333000000 link_rate=- reference_rtt=- ber=-
//! 0 sent bytes=1448 in_flight=1448 cwnd=14480
//! ```

use crate::controller::{Controller, Setup, Snapshot};
use crate::event::{Ack, Loss, Report, Rtt, Sent, Signal, Train};
use crate::units::{Ber, Bytes, Duration, Rate, Time};
use std::fmt::{self, Write as _};
use std::str::{FromStr, SplitAsciiWhitespace};

/// The first line of a tape.
const HEADER: &str = "skyhaul-tape 1";
/// The first line of a tape with reports.
const HEADER_WITH_REPORTS: &str = "skyhaul-tape 2";

/// One thing a controller heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet left.
    Sent(Sent),
    /// An acknowledgment arrived.
    Ack(Ack),
    /// Packets were declared lost.
    Loss(Loss),
    /// The far end reported what became of a packet.
    Report(Report),
    /// The controller was asked for a train and began one.
    Train(Time),
}

impl Event {
    /// When it happened.
    pub fn now(&self) -> Time {
        match self {
            Event::Sent(sent) => sent.now,
            Event::Ack(ack) => ack.now,
            Event::Loss(loss) => loss.now,
            Event::Report(report) => report.now,
            Event::Train(now) => *now,
        }
    }

    fn is_of_reports(&self) -> bool {
        matches!(self, Event::Report(_) | Event::Train(_))
    }

    /// Tells a controller.
    pub fn play(&self, controller: &mut dyn Controller) {
        match self {
            Event::Sent(sent) => controller.on_sent(sent),
            Event::Ack(ack) => controller.on_ack(ack),
            Event::Loss(loss) => controller.on_loss(loss),
            Event::Report(report) => controller.on_report(report),
            Event::Train(now) => {
                controller.poll_train(*now);
            }
        }
    }
}

/// Events in the order a controller heard them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tape {
    /// Who heard them, where that was written down.
    pub origin: Option<Origin>,
    /// The events; times do not decrease.
    pub events: Vec<Event>,
    /// The window after each event; empty where it was not written down.
    pub windows: Vec<Bytes>,
}

/// Who heard a tape: the same controller with the same set-up answers the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Name of the controller, without spaces.
    pub controller: String,
    /// What it was told before the first packet.
    pub setup: Setup,
}

/// A tape that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapeError {
    /// Line number, from 1.
    pub line: usize,
    /// What stands there.
    pub found: String,
    /// What would do.
    pub expected: String,
}

impl fmt::Display for TapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: found \"{}\", expected {}", self.line, self.found, self.expected)
    }
}

impl std::error::Error for TapeError {}

/// Plays a tape to a controller; the state after each event, with its time.
pub fn replay(tape: &Tape, controller: &mut dyn Controller) -> Vec<(Time, Snapshot)> {
    tape.events
        .iter()
        .map(|event| {
            event.play(controller);
            (event.now(), controller.snapshot())
        })
        .collect()
}

/// The number, from 0, of the first event after which a replay has another window than the recording;
/// nothing if all are the same or none were recorded.
pub fn first_difference(tape: &Tape, replayed: &[(Time, Snapshot)]) -> Option<usize> {
    tape.windows.iter().zip(replayed).position(|(recorded, (_, state))| *recorded != state.cwnd)
}

/// A controller that writes down what it hears and answers, and passes it on.
#[derive(Clone, Debug)]
pub struct Recorder {
    inner: Box<dyn Controller>,
    tape: Tape,
}

impl Recorder {
    /// Records what `inner` hears from now on, and its windows. The tape grows by about 160 bytes per
    /// event and is meant for tests and diagnosis.
    pub fn new(inner: Box<dyn Controller>) -> Self {
        Recorder { inner, tape: Tape::default() }
    }

    /// What was heard so far.
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// Ends the recording.
    pub fn into_tape(self) -> Tape {
        self.tape
    }

    fn hear(&mut self, event: Event) {
        event.play(&mut *self.inner);
        self.tape.push(event, self.inner.cwnd());
    }
}

impl Tape {
    /// Adds an event and the window after it.
    pub fn push(&mut self, event: Event, window: Bytes) {
        self.events.push(event);
        self.windows.push(window);
    }
}

impl Controller for Recorder {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn on_sent(&mut self, sent: &Sent) {
        self.hear(Event::Sent(*sent));
    }
    fn on_ack(&mut self, ack: &Ack) {
        self.hear(Event::Ack(*ack));
    }
    fn on_loss(&mut self, loss: &Loss) {
        self.hear(Event::Loss(*loss));
    }
    fn on_report(&mut self, report: &Report) {
        self.hear(Event::Report(*report));
    }
    fn poll_train(&mut self, now: Time) -> Option<Train> {
        let train = self.inner.poll_train(now);
        if train.is_some() {
            self.tape.push(Event::Train(now), self.inner.cwnd());
        }
        train
    }
    fn cwnd(&self) -> Bytes {
        self.inner.cwnd()
    }
    fn pacing_rate(&self) -> Option<Rate> {
        self.inner.pacing_rate()
    }
    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }
    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

impl fmt::Display for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_reports = self.events.iter().any(Event::is_of_reports);
        writeln!(f, "{}", if with_reports { HEADER_WITH_REPORTS } else { HEADER })?;
        if let Some(origin) = &self.origin {
            writeln!(f, "{origin}")?;
        }
        let mut windows = self.windows.iter();
        self.events.iter().try_for_each(|event| match windows.next() {
            Some(window) => writeln!(f, "{event} cwnd={}", window.0),
            None => writeln!(f, "{event}"),
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { mss, initial_window, initial_ssthresh, initial_rtt, link_rate, reference_rtt, ber } =
            self.setup;
        write!(f, "controller name={} mss={} initial_window={}", self.controller, mss.0, initial_window.0)?;
        write!(f, " initial_ssthresh={}", optional(initial_ssthresh.map(|bytes| bytes.0)))?;
        write!(f, " initial_rtt={}", initial_rtt.as_nanos())?;
        write!(f, " link_rate={}", optional(link_rate.map(Rate::as_bit)))?;
        write!(f, " reference_rtt={}", optional(reference_rtt.map(|rtt| rtt.as_nanos())))?;
        write!(f, " ber={}", optional(ber.map(Ber::value)))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.now().as_nanos())?;
        match self {
            Event::Sent(sent) => write!(f, " sent bytes={} in_flight={}", sent.bytes.0, sent.in_flight.0),
            Event::Ack(ack) => {
                write!(f, " ack sent_at={}", ack.sent_at.as_nanos())?;
                write!(f, " acked={} in_flight={}", ack.acked.0, ack.in_flight.0)?;
                write!(f, " peer_window={}", optional(ack.peer_window.map(|bytes| bytes.0)))?;
                write!(f, " {}", rtt_text(&ack.rtt))?;
                write!(f, " delivery_rate={}", optional(ack.delivery_rate.map(Rate::as_bit)))?;
                write!(
                    f,
                    " round_start={} app_limited={}",
                    u8::from(ack.round_start),
                    u8::from(ack.app_limited)
                )
            }
            Event::Loss(loss) => {
                let signal = match loss.signal {
                    Signal::Gap => "gap",
                    Signal::Timeout => "timeout",
                    Signal::Ecn => "ecn",
                };
                write!(f, " loss sent_at={}", loss.sent_at.as_nanos())?;
                write!(f, " lost={} in_flight={}", loss.lost.0, loss.in_flight.0)?;
                write!(
                    f,
                    " {} signal={signal} new_episode={}",
                    rtt_text(&loss.rtt),
                    u8::from(loss.new_episode)
                )
            }
            Event::Report(report) => {
                write!(f, " report sent_at={}", report.sent_at.as_nanos())?;
                write!(f, " received_at={}", optional(report.received_at.map(Time::as_nanos)))?;
                write!(f, " bytes={} train={}", report.bytes.0, optional(report.train.map(u64::from)))
            }
            Event::Train(_) => write!(f, " train"),
        }
    }
}

fn rtt_text(rtt: &Rtt) -> String {
    let mut text = String::new();
    let fields = [("latest", rtt.latest), (" smoothed", rtt.smoothed), (" min", rtt.min)];
    for (name, value) in fields {
        // Writing to a string cannot fail.
        let _ = write!(text, "{name}={}", value.as_nanos());
    }
    text
}

fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

impl FromStr for Tape {
    type Err = TapeError;

    /// Reads a tape.
    ///
    /// # Errors
    /// With the line number when the header, a kind, a field or a number is missing, unknown, out of
    /// order or too much, or when time goes backwards.
    fn from_str(text: &str) -> Result<Self, TapeError> {
        let mut lines = text.lines().enumerate();
        let first = lines.next().map_or("", |(_, line)| line);
        if first != HEADER && first != HEADER_WITH_REPORTS {
            return Err(error(1, first, format!("\"{HEADER}\" or \"{HEADER_WITH_REPORTS}\"")));
        }
        let mut tape = Tape::default();
        let mut last = Time::ZERO;
        for (index, line) in lines {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = Line { number: index + 1, words: line.split_ascii_whitespace() };
            if line.starts_with(ORIGIN) && tape.origin.is_none() && tape.events.is_empty() {
                tape.origin = Some(words.origin()?);
                continue;
            }
            let event = words.event()?;
            if event.is_of_reports() && first == HEADER {
                return Err(error(index + 1, line, format!("\"{HEADER_WITH_REPORTS}\" above such a line")));
            }
            let window = words.window(tape.events.is_empty(), !tape.windows.is_empty())?;
            if event.now() < last {
                let expected = format!("a time of at least {}", last.as_nanos());
                return Err(error(index + 1, &event.now().as_nanos().to_string(), expected));
            }
            last = event.now();
            tape.events.push(event);
            tape.windows.extend(window);
        }
        Ok(tape)
    }
}

/// How the line begins that says who made the recording.
const ORIGIN: &str = "controller ";

/// Longest piece of a bad line that an error repeats.
const SHOWN: usize = 60;

fn error(line: usize, found: &str, expected: impl Into<String>) -> TapeError {
    TapeError { line, found: found.chars().take(SHOWN).collect(), expected: expected.into() }
}

struct Line<'a> {
    number: usize,
    words: SplitAsciiWhitespace<'a>,
}

impl<'a> Line<'a> {
    fn origin(&mut self) -> Result<Origin, TapeError> {
        self.words.next();
        let controller = self.field("name", "the controller's name")?.to_owned();
        let setup = Setup {
            mss: self.bytes("mss")?,
            initial_window: self.bytes("initial_window")?,
            initial_ssthresh: self.optional("initial_ssthresh")?.map(Bytes),
            initial_rtt: self.number("initial_rtt").map(Duration::from_nanos)?,
            link_rate: self.optional("link_rate")?.map(Rate::bit),
            reference_rtt: self.optional("reference_rtt")?.map(Duration::from_nanos),
            ber: self.ber()?,
        };
        if setup.mss == Bytes::ZERO {
            return Err(error(self.number, "0", "at least 1 for mss"));
        }
        match self.words.next() {
            None => Ok(Origin { controller, setup }),
            Some(word) => Err(error(self.number, word, "the end of the line")),
        }
    }

    fn event(&mut self) -> Result<Event, TapeError> {
        let word = self.words.next().unwrap_or("end of line");
        let now = word
            .parse()
            .map(Time::from_nanos)
            .map_err(|_| error(self.number, word, "a time in whole nanoseconds"))?;
        let kind = self.words.next().unwrap_or("end of line");
        let event = match kind {
            "sent" => {
                Event::Sent(Sent { now, bytes: self.bytes("bytes")?, in_flight: self.bytes("in_flight")? })
            }
            "ack" => Event::Ack(Ack {
                now,
                sent_at: Time::from_nanos(self.number("sent_at")?),
                acked: self.bytes("acked")?,
                in_flight: self.bytes("in_flight")?,
                peer_window: self.optional("peer_window")?.map(Bytes),
                rtt: self.rtt()?,
                delivery_rate: self.optional("delivery_rate")?.map(Rate::bit),
                round_start: self.flag("round_start")?,
                app_limited: self.flag("app_limited")?,
            }),
            "loss" => Event::Loss(Loss {
                now,
                sent_at: Time::from_nanos(self.number("sent_at")?),
                lost: self.bytes("lost")?,
                in_flight: self.bytes("in_flight")?,
                rtt: self.rtt()?,
                signal: self.signal()?,
                new_episode: self.flag("new_episode")?,
            }),
            "report" => Event::Report(Report {
                now,
                sent_at: Time::from_nanos(self.number("sent_at")?),
                received_at: self.optional("received_at")?.map(Time::from_nanos),
                bytes: self.bytes("bytes")?,
                train: self.train()?,
            }),
            "train" => Event::Train(now),
            _ => {
                let expected = "\"sent\", \"ack\", \"loss\", \"report\" or \"train\"";
                return Err(error(self.number, kind, expected));
            }
        };
        Ok(event)
    }

    /// The window at the end of the line, if there is one. All lines have one or none has.
    fn window(&mut self, first: bool, before: bool) -> Result<Option<Bytes>, TapeError> {
        let mut rest = self.words.clone();
        let window = match rest.next() {
            None if before => {
                return Err(error(self.number, "end of line", "\"cwnd=\" as in the lines before"))
            }
            Some(word) if word.starts_with("cwnd=") => {
                if !first && !before {
                    return Err(error(self.number, word, "the end of the line, as in the lines before"));
                }
                Some(self.bytes("cwnd")?)
            }
            _ => None,
        };
        match self.words.next() {
            None => Ok(window),
            Some(word) => Err(error(self.number, word, "the end of the line")),
        }
    }

    /// The value of the next field, which must have this name; `what` says what it should be.
    fn field(&mut self, name: &str, what: &str) -> Result<&'a str, TapeError> {
        let word = self.words.next().unwrap_or("end of line");
        word.strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('='))
            .ok_or_else(|| error(self.number, word, format!("\"{name}=\" and {what}")))
    }

    fn number(&mut self, name: &str) -> Result<u64, TapeError> {
        let what = "a whole number";
        let value = self.field(name, what)?;
        whole(value).ok_or_else(|| error(self.number, value, format!("{what} for {name}")))
    }

    fn optional(&mut self, name: &str) -> Result<Option<u64>, TapeError> {
        let what = "a whole number or \"-\"";
        match self.field(name, what)? {
            "-" => Ok(None),
            value => {
                whole(value).map(Some).ok_or_else(|| error(self.number, value, format!("{what} for {name}")))
            }
        }
    }

    /// Only as it would be written, so that one value has one text.
    fn ber(&mut self) -> Result<Option<Ber>, TapeError> {
        let what = "a number from 0 to 1, without exponent, or -";
        let text = self.field("ber", what)?;
        if text == "-" {
            return Ok(None);
        }
        let value: Option<f64> = text.parse().ok();
        value
            .filter(|value| value.to_string() == text)
            .and_then(Ber::new)
            .map(Some)
            .ok_or_else(|| error(self.number, text, format!("{what} for ber")))
    }

    fn flag(&mut self, name: &str) -> Result<bool, TapeError> {
        match self.field(name, "0 or 1")? {
            "0" => Ok(false),
            "1" => Ok(true),
            value => Err(error(self.number, value, format!("0 or 1 for {name}"))),
        }
    }

    fn signal(&mut self) -> Result<Signal, TapeError> {
        let what = "gap, timeout or ecn";
        match self.field("signal", what)? {
            "gap" => Ok(Signal::Gap),
            "timeout" => Ok(Signal::Timeout),
            "ecn" => Ok(Signal::Ecn),
            value => Err(error(self.number, value, format!("{what} for signal"))),
        }
    }

    fn train(&mut self) -> Result<Option<u32>, TapeError> {
        let value = self.optional("train")?;
        value
            .map(|number| {
                u32::try_from(number)
                    .map_err(|_| error(self.number, &number.to_string(), "a number of 32 bits for train"))
            })
            .transpose()
    }

    fn bytes(&mut self, name: &str) -> Result<Bytes, TapeError> {
        self.number(name).map(Bytes)
    }

    fn rtt(&mut self) -> Result<Rtt, TapeError> {
        let mut next = |name| self.number(name).map(Duration::from_nanos);
        Ok(Rtt { latest: next("latest")?, smoothed: next("smoothed")?, min: next("min")? })
    }
}

/// Digits only: no sign, no spaces, nothing that overflows.
fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::NewReno;
    use crate::testing::{ack, loss, MSS};
    use crate::Setup;
    use proptest::prelude::*;

    fn rtts() -> impl Strategy<Value = Rtt> {
        any::<[u64; 3]>().prop_map(|[latest, smoothed, min]| Rtt {
            latest: Duration::from_nanos(latest),
            smoothed: Duration::from_nanos(smoothed),
            min: Duration::from_nanos(min),
        })
    }

    fn events() -> impl Strategy<Value = Event> {
        let signals = prop_oneof![Just(Signal::Gap), Just(Signal::Timeout), Just(Signal::Ecn)];
        prop_oneof![
            any::<[u64; 2]>().prop_map(|[bytes, in_flight]| Event::Sent(Sent {
                now: Time::ZERO,
                bytes: Bytes(bytes),
                in_flight: Bytes(in_flight)
            })),
            (any::<[u64; 3]>(), any::<[Option<u64>; 2]>(), rtts(), any::<[bool; 2]>()).prop_map(
                |([sent_at, acked, in_flight], [peer, rate], rtt, [round_start, app_limited])| Event::Ack(
                    Ack {
                        now: Time::ZERO,
                        sent_at: Time::from_nanos(sent_at),
                        acked: Bytes(acked),
                        in_flight: Bytes(in_flight),
                        peer_window: peer.map(Bytes),
                        rtt,
                        delivery_rate: rate.map(Rate::bit),
                        round_start,
                        app_limited,
                    }
                )
            ),
            (any::<[u64; 3]>(), rtts(), signals, any::<bool>()).prop_map(
                |([sent_at, lost, in_flight], rtt, signal, new_episode)| Event::Loss(Loss {
                    now: Time::ZERO,
                    sent_at: Time::from_nanos(sent_at),
                    lost: Bytes(lost),
                    in_flight: Bytes(in_flight),
                    rtt,
                    signal,
                    new_episode,
                })
            ),
            (any::<[u64; 2]>(), prop::option::of(any::<u64>()), prop::option::of(any::<u32>())).prop_map(
                |([sent_at, bytes], received, train)| Event::Report(Report {
                    now: Time::ZERO,
                    sent_at: Time::from_nanos(sent_at),
                    received_at: received.map(Time::from_nanos),
                    bytes: Bytes(bytes),
                    train,
                })
            ),
            Just(Event::Train(Time::ZERO)),
        ]
    }

    fn origins() -> impl Strategy<Value = Origin> {
        let numbers = (1..u64::MAX, any::<[u64; 2]>(), any::<[Option<u64>; 3]>());
        ("[a-z][a-z0-9-]{0,12}", numbers, prop::option::of(0.0..=1.0f64)).prop_map(
            |(controller, (mss, [window, rtt], [ssthresh, rate, reference]), ber)| Origin {
                controller,
                setup: Setup {
                    mss: Bytes(mss),
                    initial_window: Bytes(window),
                    initial_ssthresh: ssthresh.map(Bytes),
                    initial_rtt: Duration::from_nanos(rtt),
                    link_rate: rate.map(Rate::bit),
                    reference_rtt: reference.map(Duration::from_nanos),
                    ber: ber.and_then(Ber::new),
                },
            },
        )
    }

    fn tapes() -> impl Strategy<Value = Tape> {
        let steps = prop::collection::vec((any::<u32>(), events(), any::<u64>()), 0..30);
        (prop::option::of(origins()), steps, any::<bool>()).prop_map(|(origin, steps, with_windows)| {
            let mut now = 0u64;
            let windows = steps.iter().filter(|_| with_windows).map(|step| Bytes(step.2)).collect();
            let events = steps
                .into_iter()
                .map(|(ahead, mut event, _)| {
                    now += u64::from(ahead);
                    match &mut event {
                        Event::Sent(sent) => sent.now = Time::from_nanos(now),
                        Event::Ack(ack) => ack.now = Time::from_nanos(now),
                        Event::Loss(loss) => loss.now = Time::from_nanos(now),
                        Event::Report(report) => report.now = Time::from_nanos(now),
                        Event::Train(at) => *at = Time::from_nanos(now),
                    }
                    event
                })
                .collect();
            Tape { origin, events, windows }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_the_same(tape in tapes()) {
            prop_assert_eq!(tape.to_string().parse::<Tape>(), Ok(tape));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "(skyhaul-tape [12]\n)?[0-9a-z_=\\- \n]{0,200}") {
            let _ = text.parse::<Tape>();
        }

        #[test]
        fn a_damaged_tape_is_refused_or_means_something_else(
            tape in tapes(), at in any::<prop::sample::Index>(), byte in 32u8..127
        ) {
            let text = tape.to_string();
            let mut bytes = text.clone().into_bytes();
            let at = at.index(bytes.len());
            prop_assume!(bytes[at] != byte && bytes[at] != b'\n');
            // The version says only which kinds of lines may follow.
            prop_assume!(at != HEADER.len() - 1);
            bytes[at] = byte;
            let here = text[..at].matches('\n').count() + 1;
            match String::from_utf8(bytes).unwrap().parse::<Tape>() {
                // A time that grew is noticed at the next line, which seems to go back.
                Err(error) => prop_assert!(error.line == here || error.line == here + 1, "{}", error),
                Ok(other) => prop_assert_ne!(other, tape),
            }
        }
    }

    #[test]
    fn errors_name_the_line_what_stands_there_and_what_would_do() {
        let sent = "0 sent bytes=1 in_flight=1";
        for (text, message) in [
            ("", "line 1: found \"\", expected \"skyhaul-tape 1\" or \"skyhaul-tape 2\""),
            (
                "0 seen",
                "line 2: found \"seen\", expected \"sent\", \"ack\", \"loss\", \"report\" or \"train\"",
            ),
            ("0 train", "line 2: found \"0 train\", expected \"skyhaul-tape 2\" above such a line"),
            ("soon sent", "line 2: found \"soon\", expected a time in whole nanoseconds"),
            ("0 sent bytes=many", "line 2: found \"many\", expected a whole number for bytes"),
            ("0 sent bytes=+1", "line 2: found \"+1\", expected a whole number for bytes"),
            ("0 sent in_flight=1", "line 2: found \"in_flight=1\", expected \"bytes=\" and a whole number"),
            ("0 sent bytes=1", "line 2: found \"end of line\", expected \"in_flight=\" and a whole number"),
            ("0 sent bytes=1 in_flight=1 x=2", "line 2: found \"x=2\", expected the end of the line"),
            ("controller", "line 2: found \"controller\", expected a time in whole nanoseconds"),
            ("controller bbr", "line 2: found \"bbr\", expected \"name=\" and the controller's name"),
            (
                "controller name=bbr mss=0 initial_window=1 initial_ssthresh=- initial_rtt=1 link_rate=- \
              reference_rtt=- ber=-",
                "line 2: found \"0\", expected at least 1 for mss",
            ),
            (
                "controller name=bbr mss=1 initial_window=1 initial_ssthresh=- initial_rtt=1 link_rate=- \
              reference_rtt=- ber=2",
                "line 2: found \"2\", expected a number from 0 to 1, without exponent, \
              or - for ber",
            ),
            (
                "0 sent bytes=1 in_flight=1 cwnd=5\n0 sent bytes=1 in_flight=1",
                "line 3: found \"end of line\", expected \"cwnd=\" as in the lines before",
            ),
            (
                "0 sent bytes=1 in_flight=1\n0 sent bytes=1 in_flight=1 cwnd=5",
                "line 3: found \"cwnd=5\", expected the end of the line, as in the lines before",
            ),
        ] {
            let text = if text.is_empty() { String::new() } else { format!("{HEADER}\n{text}\n") };
            assert_eq!(text.parse::<Tape>().unwrap_err().to_string(), message);
        }
        let back = format!("{HEADER}\n# a comment\n\n5 {}\n4 {}\n", &sent[2..], &sent[2..]);
        let error = back.parse::<Tape>().unwrap_err();
        assert_eq!((error.line, error.found.as_str()), (5, "4"));
    }

    #[test]
    fn a_recording_replays_to_the_same_windows() {
        let setup = Setup::new(MSS);
        let mut recorder = Recorder::new(Box::new(NewReno::new(&setup)));
        let mut windows = Vec::new();
        for i in 0..50 {
            if i == 20 {
                recorder.on_loss(&loss(540 + i, 500, Signal::Gap, true));
            } else {
                recorder.on_ack(&ack(540 + i, i * 40, 3));
            }
            windows.push(recorder.cwnd());
        }
        let mut tape: Tape = recorder.into_tape().to_string().parse().unwrap();
        assert_eq!(tape.windows, windows);
        let replayed = replay(&tape, &mut NewReno::new(&setup));
        assert_eq!(replayed.iter().map(|(_, state)| state.cwnd).collect::<Vec<_>>(), windows);
        assert_eq!(first_difference(&tape, &replayed), None);
        tape.windows[30] = Bytes(1);
        assert_eq!(first_difference(&tape, &replayed), Some(30));
    }
}
