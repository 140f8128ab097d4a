//! Tapes from text.

use super::{Event, Origin, Tape, TapeError, HEADER, HEADER_WITH_REPORTS};
use crate::controller::{PathHistory, Policy, Setup};
use crate::event::{Ack, Loss, Report, Rtt, Sent, Signal};
use crate::units::{Ber, Bytes, Duration, Rate, Share, Time};
use std::str::{FromStr, SplitAsciiWhitespace};

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
        let mut setup = Setup {
            mss: self.bytes("mss")?,
            initial_window: self.bytes("initial_window")?,
            initial_ssthresh: self.optional("initial_ssthresh")?.map(Bytes),
            initial_rtt: self.number("initial_rtt").map(Duration::from_nanos)?,
            link_rate: self.optional("link_rate")?.map(Rate::bit),
            reference_rtt: self.optional("reference_rtt")?.map(Duration::from_nanos),
            ber: self.ber()?,
            history: None,
            policy: Policy::default(),
        };
        if self.comes("policy=") {
            setup.policy = self.policy()?;
        }
        if self.comes("history_rate=") {
            setup.history = Some(self.history()?);
        }
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

    /// Whether the next word begins so.
    fn comes(&self, with: &str) -> bool {
        self.words.clone().next().is_some_and(|word| word.starts_with(with))
    }

    /// A policy; the usual one is never written.
    fn policy(&mut self) -> Result<Policy, TapeError> {
        let what = "exclusive or scavenge";
        let value = self.field("policy", what)?;
        let unusual = |policy: &Policy| *policy != Policy::default() && policy.name() == value;
        Policy::ALL
            .into_iter()
            .find(unusual)
            .ok_or_else(|| error(self.number, value, format!("{what} for policy")))
    }

    fn history(&mut self) -> Result<PathHistory, TapeError> {
        Ok(PathHistory {
            rate: self.number("history_rate").map(Rate::bit)?,
            min_rtt: self.number("history_min_rtt").map(Duration::from_nanos)?,
            loss: self.share("history_loss")?,
            jitter: self.number("history_jitter").map(Duration::from_nanos)?,
            reordered: self.share("history_reordered")?,
            rate_variation: self.share("history_variation")?,
            confidence: self.share("history_confidence")?,
        })
    }

    fn share(&mut self, name: &str) -> Result<Share, TapeError> {
        let what = "a number from 0 to 1, without exponent";
        let text = self.field(name, what)?;
        fraction(text)
            .and_then(Share::new)
            .ok_or_else(|| error(self.number, text, format!("{what} for {name}")))
    }

    fn ber(&mut self) -> Result<Option<Ber>, TapeError> {
        let what = "a number from 0 to 1, without exponent, or -";
        let text = self.field("ber", what)?;
        if text == "-" {
            return Ok(None);
        }
        fraction(text)
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

/// Only as it would be written, so that one value has one text.
fn fraction(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.to_string() == text)
}
