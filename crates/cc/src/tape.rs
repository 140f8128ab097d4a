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
//!
//! A policy other than `share` and a [`PathHistory`] follow where they were given, and only then:
//!
//! ```text
//! policy=scavenge history_rate=144800000 history_min_rtt=540000000 history_loss=0.012 history_jitter=10000 history_reordered=0 history_variation=0.01 history_confidence=1
//! ```

use crate::controller::{Controller, Estimates, PathHistory, Setup, Snapshot};
use crate::controllers::boost::PathRecord;
use crate::event::{Ack, Judgement, Loss, Report, Sent, Train};
use crate::units::{Bytes, Rate, Time};
use std::fmt;

mod read;
#[cfg(test)]
mod tests;
mod write;

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
    fn judgement(&self) -> Option<Judgement> {
        self.inner.judgement()
    }
    fn path(&self) -> Option<PathRecord> {
        self.inner.path()
    }
    fn history(&self) -> Option<PathHistory> {
        self.inner.history()
    }
    fn estimates(&self) -> Option<Estimates> {
        self.inner.estimates()
    }
    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }
    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
