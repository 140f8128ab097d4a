//! What happens in a run, line by line, for whoever wants to look closer.
//!
//! Each line is a JSON object: `at` is the virtual time in nanoseconds, `flow` the flow's number from 0,
//! `event` what happened, the rest depends on it:
//!
//! ```text
//! {"at":0,"flow":0,"event":"sent","seq":0,"payload":1448,"again":false,"dropped":null,"in_flight":1448}
//! {"at":50012000,"flow":0,"event":"arrived","seq":0,"in_order":1}
//! {"at":100017000,"flow":0,"event":"acked","next":1,"cwnd":15928,"ssthresh":null,"pacing_bit_per_s":null,"srtt_ns":100017000,"in_flight":0,"phase":"slow start"}
//! {"at":1100000000,"flow":0,"event":"timer","timeouts":1,"probes":0,"cwnd":2896}
//! {"at":200017000,"flow":0,"event":"done","bytes":1448}
//! ```
//!
//! Amounts are bytes of payload; `seq`, `next` and `in_order` count segments.

use crate::link::Cause;
use crate::tcp::Segment;
use skyhaul_cc::units::{Bytes, Duration, Time};
use skyhaul_cc::Snapshot;
use std::io::{self, Write};

/// Something that happened to a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Note {
    /// A segment left; it is dropped on its way if there is a cause.
    Sent {
        /// The segment.
        segment: Segment,
        /// Why it will not arrive.
        dropped: Option<Cause>,
        /// Bytes in flight with it.
        in_flight: Bytes,
    },
    /// A segment arrived.
    Arrived {
        /// Its number.
        seq: u64,
        /// The first segment still missing.
        in_order: u64,
    },
    /// An acknowledgment arrived.
    Acked {
        /// The first segment it says is missing.
        next: u64,
        /// The controller afterwards.
        state: Snapshot,
        /// Smoothed round trip.
        smoothed: Option<Duration>,
        /// Bytes in flight afterwards.
        in_flight: Bytes,
    },
    /// A timer of the sender ran out: probe, timeout or reordering window.
    Timer {
        /// Timeouts so far.
        timeouts: u64,
        /// Probes so far.
        probes: u64,
        /// The window afterwards.
        cwnd: Bytes,
    },
    /// All data has arrived.
    Done {
        /// How much.
        bytes: Bytes,
    },
}

/// Hears what happens in a run.
pub trait Observer {
    /// Something happened to a flow.
    fn note(&mut self, at: Time, flow: usize, note: &Note);
}

/// Writes each note as a line of JSON.
#[derive(Debug)]
pub struct JsonLines<W: Write> {
    out: W,
    error: Option<io::Error>,
}

impl<W: Write> JsonLines<W> {
    /// Writes to `out`, which wants to be buffered.
    pub fn new(out: W) -> Self {
        JsonLines { out, error: None }
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// The first one met when writing; nothing was written after it.
    pub fn finish(mut self) -> io::Result<W> {
        match self.error {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| self.out),
        }
    }

    fn write(&mut self, at: Time, flow: usize, note: &Note) -> io::Result<()> {
        let out = &mut self.out;
        write!(out, "{{\"at\":{},\"flow\":{flow},\"event\":", at.as_nanos())?;
        match note {
            Note::Sent { segment: Segment { seq, payload, again }, dropped, in_flight } => {
                write!(
                    out,
                    "\"sent\",\"seq\":{seq},\"payload\":{},\"again\":{again},\"dropped\":",
                    payload.0
                )?;
                match dropped {
                    Some(cause) => write!(out, "\"{cause}\"")?,
                    None => write!(out, "null")?,
                }
                write!(out, ",\"in_flight\":{}", in_flight.0)?;
            }
            Note::Arrived { seq, in_order } => {
                write!(out, "\"arrived\",\"seq\":{seq},\"in_order\":{in_order}")?;
            }
            Note::Acked { next, state, smoothed, in_flight } => {
                write!(out, "\"acked\",\"next\":{next},\"cwnd\":{}", state.cwnd.0)?;
                number(out, "ssthresh", state.ssthresh.map(|bytes| bytes.0.into()))?;
                number(out, "pacing_bit_per_s", state.pacing_rate.map(|rate| rate.as_bit().into()))?;
                number(out, "srtt_ns", smoothed.map(|rtt| rtt.as_nanos()))?;
                write!(out, ",\"in_flight\":{},\"phase\":\"{}\"", in_flight.0, state.phase)?;
            }
            Note::Timer { timeouts, probes, cwnd } => {
                write!(out, "\"timer\",\"timeouts\":{timeouts},\"probes\":{probes},\"cwnd\":{}", cwnd.0)?;
            }
            Note::Done { bytes } => write!(out, "\"done\",\"bytes\":{}", bytes.0)?,
        }
        writeln!(out, "}}")
    }
}

impl<W: Write> Observer for JsonLines<W> {
    fn note(&mut self, at: Time, flow: usize, note: &Note) {
        if self.error.is_none() {
            self.error = self.write(at, flow, note).err();
        }
    }
}

fn number(out: &mut impl Write, name: &str, value: Option<u128>) -> io::Result<()> {
    match value {
        Some(value) => write!(out, ",\"{name}\":{value}"),
        None => write!(out, ",\"{name}\":null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_manual() {
        let mut trace = JsonLines::new(Vec::new());
        let segment = Segment { seq: 7, payload: Bytes(1448), again: true };
        let dropped = Some(Cause::QueueFull);
        trace.note(Time::ZERO, 0, &Note::Sent { segment, dropped, in_flight: Bytes(2896) });
        trace.note(Time::from_micros(5), 1, &Note::Arrived { seq: 7, in_order: 3 });
        let state = Snapshot { cwnd: Bytes(14_480), ssthresh: None, pacing_rate: None, phase: "slow start" };
        let smoothed = Some(Duration::from_millis(1));
        trace.note(Time::ZERO, 0, &Note::Acked { next: 8, state, smoothed, in_flight: Bytes::ZERO });
        trace.note(Time::ZERO, 0, &Note::Done { bytes: Bytes(1448) });
        let text = String::from_utf8(trace.finish().unwrap()).unwrap();
        let expected = [
            r#"{"at":0,"flow":0,"event":"sent","seq":7,"payload":1448,"again":true,"dropped":"queue full","in_flight":2896}"#,
            r#"{"at":5000,"flow":1,"event":"arrived","seq":7,"in_order":3}"#,
            r#"{"at":0,"flow":0,"event":"acked","next":8,"cwnd":14480,"ssthresh":null,"pacing_bit_per_s":null,"srtt_ns":1000000,"in_flight":0,"phase":"slow start"}"#,
            r#"{"at":0,"flow":0,"event":"done","bytes":1448}"#,
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
