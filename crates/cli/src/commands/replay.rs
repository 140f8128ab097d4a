//! `skyhaul replay`: plays an event tape to a controller.

use std::fmt::Write;
use std::io::Read;
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;
use skyhaul_cc::tape::{first_difference, replay, Event, Origin, Tape};
use skyhaul_cc::units::{Bytes, Duration, Rate, Time};
use skyhaul_cc::{registry, Setup, Snapshot};

use crate::failure::Failure;
use crate::screen::numbers::{mbit, percent, seconds};
use crate::screen::rows::{self, Format};
use crate::screen::table::{Align, Table};

/// Play an event tape to a congestion controller and show its answers: window, pacing rate, phase.
///
/// A tape is what a controller heard, as text. `skyhaul run SCENARIO --on sim --cc NAME --tape FILE` writes one that
/// also says who heard it and with which windows; the replay of the same controller must give the same windows.
/// Exit status: 0 when it does or there is nothing to compare, 1 when it does not, 2 when the request could not be
/// carried out.
#[derive(clap::Args)]
#[command(after_help = "Examples, the first makes the tape of the others:\n  \
    skyhaul run p1.down-270 --on sim --cc cubic --bytes 8MiB --tape cubic.tape\n  \
    skyhaul replay cubic.tape\n  \
    skyhaul replay cubic.tape --cc hybla --each event --format csv")]
pub struct Args {
    /// File with the tape; - reads standard input.
    tape: String,
    /// Who hears it; the controller that the tape names if not given.
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// What gets a row.
    #[arg(long, value_enum, default_value_t = Each::Round)]
    each: Each,
    /// Bytes of a full packet; as the tape says if not given, or as its greatest packet.
    #[arg(long, value_name = "SIZE", value_parser = super::run::size)]
    mss: Option<Bytes>,
    /// Rate of the link, such as "150 Mbit/s", for controllers that want it; as the tape says if not given.
    #[arg(long, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// How to print the answers.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Each {
    /// The first acknowledgment of each round trip, the first loss of each episode, and the last event.
    Round,
    /// Everything the controller hears.
    Event,
}

/// The controller after an event.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    /// Number of the event on the tape, from 1.
    event: usize,
    seconds: f64,
    /// What was heard: `sent`, `ack`, `loss`, `report` or `train`.
    heard: &'static str,
    /// Round trips begun so far.
    round: u64,
    window_bytes: u64,
    ssthresh_bytes: Option<u64>,
    pacing_bit_per_s: Option<u64>,
    phase: &'static str,
    /// Losses, departures and acknowledgments tell it.
    in_flight_bytes: Option<u64>,
    /// The round trip as smoothed by the host; losses and acknowledgments tell it.
    smoothed_rtt_seconds: Option<f64>,
    recorded_window_bytes: Option<u64>,
    /// Whether the window is the recorded one.
    agrees: Option<bool>,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let name = if args.tape == "-" { "standard input" } else { args.tape.as_str() };
    let text = read(&args.tape).map_err(|why| Failure::request(format!("cannot read {name}: {why}")))?;
    let tape: Tape = text.parse().map_err(|error| Failure::request(format!("{name}: {error}")))?;
    let (controller, setup) = who(&args, &tape).map_err(|why| Failure::request(format!("{name}: {why}")))?;
    let mut listener = registry::build(&controller, &setup).map_err(Failure::request)?;
    let answers = replay(&tape, &mut *listener);
    let rows = select(&tape, &answers, args.each);
    let (agrees, comparison) = compare(&tape, &answers, &controller);
    match args.format {
        Format::Text => rows::show(&screen(&rows, &tape, &controller, &setup, &comparison))?,
        Format::Json => rows::show(&rows::json(&rows)?)?,
        Format::Csv => rows::show(&rows::csv(&rows)?)?,
    }
    if !agrees && args.format != Format::Text {
        eprintln!("skyhaul: {comparison}");
    }
    Ok(ExitCode::from(u8::from(!agrees)))
}

fn read(path: &str) -> Result<String, String> {
    let mut text = Vec::new();
    let read = match path {
        "-" => std::io::stdin().lock().take(LONGEST + 1).read_to_end(&mut text),
        _ => std::fs::File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut text)),
    };
    read.map_err(|error| error.to_string())?;
    if text.len() as u64 > LONGEST {
        return Err(format!("it is longer than {}, the most that is replayed", Bytes(LONGEST)));
    }
    String::from_utf8(text).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count();
        format!("line {line}: not text, expected a tape that begins with \"skyhaul-tape 1\"")
    })
}

/// Who hears the tape, and what it is told first.
fn who(args: &Args, tape: &Tape) -> Result<(String, Setup), String> {
    let named = tape.origin.as_ref().map(|origin| origin.controller.clone());
    let Some(controller) = args.cc.clone().or(named) else {
        return Err("the tape names no controller; choose one with --cc, such as --cc cubic".to_owned());
    };
    let greatest = tape.events.iter().filter_map(|event| match event {
        Event::Sent(sent) => Some(sent.bytes),
        _ => None,
    });
    let setup = match &tape.origin {
        Some(Origin { setup, .. }) => *setup,
        None => Setup::new(greatest.max().filter(|bytes| *bytes > Bytes::ZERO).unwrap_or(ETHERNET)),
    };
    // The first window is given in segments, so it follows the segment's size.
    let setup = match args.mss {
        Some(mss) => Setup { mss, initial_window: Setup::new(mss).initial_window, ..setup },
        None => setup,
    };
    if setup.mss > GREATEST {
        return Err(format!("a full packet of {}, expected at most {GREATEST}; see --mss", setup.mss));
    }
    Ok((controller, Setup { link_rate: args.link_rate.or(setup.link_rate), ..setup }))
}

fn select(tape: &Tape, answers: &[(Time, Snapshot)], each: Each) -> Vec<Row> {
    let mut round = 0;
    let mut rows = Vec::new();
    for (index, (event, (now, state))) in tape.events.iter().zip(answers).enumerate() {
        let (heard, in_flight, rtt, worth) = match event {
            Event::Sent(sent) => ("sent", Some(sent.in_flight), None, false),
            Event::Ack(ack) => ("ack", Some(ack.in_flight), Some(ack.rtt.smoothed), ack.round_start),
            Event::Loss(loss) => ("loss", Some(loss.in_flight), Some(loss.rtt.smoothed), loss.new_episode),
            Event::Report(_) => ("report", None, None, false),
            Event::Train(_) => ("train", None, None, false),
        };
        round += u64::from(matches!(event, Event::Ack(ack) if ack.round_start));
        if !worth && each == Each::Round && index + 1 < answers.len() {
            continue;
        }
        let recorded = tape.windows.get(index);
        rows.push(Row {
            event: index + 1,
            seconds: now.as_secs_f64(),
            heard,
            round,
            window_bytes: state.cwnd.0,
            ssthresh_bytes: state.ssthresh.map(|bytes| bytes.0),
            pacing_bit_per_s: state.pacing_rate.map(Rate::as_bit),
            phase: state.phase,
            in_flight_bytes: in_flight.map(|bytes| bytes.0),
            smoothed_rtt_seconds: rtt.map(|rtt: Duration| rtt.as_secs_f64()),
            recorded_window_bytes: recorded.map(|bytes| bytes.0),
            agrees: recorded.map(|bytes| *bytes == state.cwnd),
        });
    }
    rows
}

/// Whether the replay is as recorded as far as it should be, and a sentence about it.
fn compare(tape: &Tape, answers: &[(Time, Snapshot)], controller: &str) -> (bool, String) {
    if tape.windows.is_empty() {
        return (true, "The tape holds no windows to compare with.".to_owned());
    }
    let Some(index) = first_difference(tape, answers) else {
        return (true, "All windows are as recorded.".to_owned());
    };
    match tape.origin.as_ref().filter(|origin| origin.controller != controller) {
        None => (false, difference(tape, answers, index)),
        Some(Origin { controller: recorded, .. }) => {
            let windows = tape.windows.iter().zip(answers);
            let same = windows.filter(|(recorded, (_, state))| **recorded == state.cwnd).count();
            let share = percent(same as f64 / answers.len().max(1) as f64);
            (true, format!("The recorded windows are those of {recorded}; {share} % are the same here."))
        }
    }
}

fn difference(tape: &Tape, answers: &[(Time, Snapshot)], index: usize) -> String {
    format!(
        "The windows differ from the recording, first after event {} at {} s: recorded {} bytes, here {}.",
        index + 1,
        seconds(answers[index].0.as_secs_f64()),
        tape.windows[index].0,
        answers[index].1.cwnd.0,
    )
}

fn screen(rows: &[Row], tape: &Tape, controller: &str, setup: &Setup, comparison: &str) -> String {
    let compared = !tape.windows.is_empty();
    let mut table = Table::new(&[
        ("event", Align::Point),
        ("time s", Align::Point),
        ("heard", Align::Left),
        ("round", Align::Point),
        ("window segments", Align::Point),
        (if compared { "recorded" } else { "" }, Align::Point),
        ("ssthresh", Align::Point),
        ("pacing Mbit/s", Align::Point),
        ("in flight", Align::Point),
        ("RTT ms", Align::Point),
        ("phase", Align::Left),
        ("", Align::Left),
    ]);
    let segments = |bytes: u64| format!("{:.1}", bytes as f64 / setup.mss.as_f64());
    let empty = String::new;
    for row in rows {
        table.row(
            false,
            vec![
                row.event.to_string(),
                format!("{:.3}", row.seconds),
                row.heard.to_owned(),
                row.round.to_string(),
                segments(row.window_bytes),
                row.recorded_window_bytes.map_or_else(empty, segments),
                row.ssthresh_bytes.map_or_else(empty, segments),
                row.pacing_bit_per_s.map_or_else(empty, |rate| mbit(rate as f64)),
                row.in_flight_bytes.map_or_else(empty, segments),
                row.smoothed_rtt_seconds.map_or_else(empty, |rtt| format!("{:.1}", rtt * 1e3)),
                row.phase.to_owned(),
                if row.agrees == Some(false) { "differs".to_owned() } else { empty() },
            ],
        );
    }
    let mut text = format!("{controller} heard {} events", tape.events.len());
    if let (Some(first), Some(last)) = (tape.events.first(), tape.events.last()) {
        let time = last.now().since(first.now());
        // Writing to a string cannot fail.
        let _ = write!(text, " in {} s", seconds(time.as_secs_f64()));
    }
    let _ = write!(text, "; a segment is {} bytes", setup.mss.0);
    format!("{text}\n{table}{comparison}\n")
}

/// As much as a simulated minute at several hundred Mbit/s.
const LONGEST: u64 = 1 << 30;
/// Full packets of nearly all links.
const ETHERNET: Bytes = Bytes(1500);
/// No IP packet is longer.
const GREATEST: Bytes = Bytes(65_535);

#[cfg(test)]
mod tests {
    use super::*;
    use skyhaul_cc::tape::Recorder;
    use skyhaul_cc::{Ack, Controller, Loss, Rtt, Sent, Signal};

    fn recording() -> Tape {
        let setup = Setup::new(Bytes(1000));
        let mut recorder = Recorder::new(registry::build("newreno", &setup).unwrap());
        let rtt = Duration::from_millis(100);
        let rtt = Rtt { latest: rtt, smoothed: rtt, min: rtt };
        for i in 0..20u64 {
            let now = Time::from_millis(100 + i * 10);
            recorder.on_sent(&Sent { now, bytes: Bytes(1000), in_flight: Bytes(10_000) });
            if i == 9 {
                let sent_at = Time::from_millis(i * 10);
                let (lost, in_flight) = (Bytes(1000), Bytes(9000));
                let signal = Signal::Gap;
                recorder.on_loss(&Loss { now, sent_at, lost, in_flight, rtt, signal, new_episode: true });
                continue;
            }
            recorder.on_ack(&Ack {
                now,
                sent_at: Time::from_millis(i * 10),
                acked: Bytes(1000),
                in_flight: Bytes(10_000),
                peer_window: None,
                rtt,
                delivery_rate: None,
                round_start: i % 5 == 0,
                app_limited: false,
            });
        }
        let origin = Some(Origin { controller: "newreno".to_owned(), setup });
        Tape { origin, ..recorder.into_tape() }
    }

    fn played(tape: &Tape, controller: &str) -> Vec<(Time, Snapshot)> {
        let setup = tape.origin.as_ref().unwrap().setup;
        replay(tape, &mut *registry::build(controller, &setup).unwrap())
    }

    #[test]
    fn rows_are_rounds_cuts_and_the_last_event_or_everything() {
        let tape = recording();
        let answers = played(&tape, "newreno");
        assert_eq!(select(&tape, &answers, Each::Event).len(), 40);
        let rows = select(&tape, &answers, Each::Round);
        let heard: Vec<&str> = rows.iter().map(|row| row.heard).collect();
        assert_eq!(heard, ["ack", "ack", "loss", "ack", "ack", "ack"]);
        assert_eq!(rows.iter().map(|row| row.round).collect::<Vec<_>>(), [1, 2, 2, 3, 4, 4]);
        assert!(rows.iter().all(|row| row.agrees == Some(true)));
        // Three more were acknowledged before the cut to a half.
        assert_eq!((rows[2].event, rows[2].window_bytes), (20, (rows[1].window_bytes + 3000) / 2));
    }

    #[test]
    fn the_same_controller_must_answer_as_recorded_and_others_need_not() {
        let mut tape = recording();
        assert!(compare(&tape, &played(&tape, "newreno"), "newreno").0);
        let (agrees, sentence) = compare(&tape, &played(&tape, "cubic"), "cubic");
        assert!(agrees && sentence.contains("those of newreno"), "{sentence}");
        tape.windows[3] = Bytes(5);
        let (agrees, sentence) = compare(&tape, &played(&tape, "newreno"), "newreno");
        assert!(!agrees && sentence.contains("event 4") && sentence.contains("recorded 5"), "{sentence}");
        tape.windows.clear();
        let (agrees, sentence) = compare(&tape, &played(&tape, "newreno"), "newreno");
        assert!(agrees && sentence.contains("no windows"), "{sentence}");
    }

    #[test]
    fn the_screen_shows_who_heard_what() {
        let tape = recording();
        let answers = played(&tape, "newreno");
        let setup = tape.origin.as_ref().unwrap().setup;
        let rows = select(&tape, &answers, Each::Round);
        let text = screen(&rows, &tape, "newreno", &setup, "All windows are as recorded.");
        assert!(text.starts_with("newreno heard 40 events in 0.190 s; a segment is 1000 bytes\n"), "{text}");
        assert!(text.contains("slow start") && text.ends_with("as recorded.\n"), "{text}");
    }
}
