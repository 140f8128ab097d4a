//! Tapes as text.

use super::{Event, Origin, Tape, HEADER, HEADER_WITH_REPORTS};
use crate::controller::{PathHistory, Policy, Setup};
use crate::event::{Rtt, Signal};
use crate::units::{Ber, Rate, Share, Time};
use std::fmt::{self, Write as _};

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
        let Setup { mss, initial_window, initial_ssthresh, initial_rtt, .. } = self.setup;
        let Setup { link_rate, reference_rtt, ber, history, policy, .. } = self.setup;
        write!(f, "controller name={} mss={} initial_window={}", self.controller, mss.0, initial_window.0)?;
        write!(f, " initial_ssthresh={}", optional(initial_ssthresh.map(|bytes| bytes.0)))?;
        write!(f, " initial_rtt={}", initial_rtt.as_nanos())?;
        write!(f, " link_rate={}", optional(link_rate.map(Rate::as_bit)))?;
        write!(f, " reference_rtt={}", optional(reference_rtt.map(|rtt| rtt.as_nanos())))?;
        write!(f, " ber={}", optional(ber.map(Ber::value)))?;
        if policy != Policy::default() {
            write!(f, " policy={}", policy.name())?;
        }
        history.map_or(Ok(()), |history| write_history(f, &history))
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

fn write_history(f: &mut fmt::Formatter<'_>, history: &PathHistory) -> fmt::Result {
    let PathHistory { rate, min_rtt, loss, jitter, reordered, rate_variation, confidence } = *history;
    write!(f, " history_rate={} history_min_rtt={}", rate.as_bit(), min_rtt.as_nanos())?;
    write!(f, " history_loss={} history_jitter={}", loss.value(), jitter.as_nanos())?;
    let shares = [("reordered", reordered), ("variation", rate_variation), ("confidence", confidence)];
    shares
        .into_iter()
        .try_for_each(|(name, share): (_, Share)| write!(f, " history_{name}={}", share.value()))
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
