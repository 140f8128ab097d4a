//! `skyhaul kernel watch`: what controllers do, a line per event.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use serde::Serialize;
use skyhaul_live::kernel::watch::{watch, Event};
use skyhaul_live::kernel::Law;

use crate::failure::Failure;
use crate::screen::rows::Format;

/// Command line of the watch.
#[derive(clap::Args)]
pub struct Args {
    /// Only connections of this controller.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Stop after this many seconds.
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<u64>,
    /// How to print events; json is one object per line.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// An event in a flat row.
#[derive(Serialize)]
struct Row {
    at_s: f64,
    event: &'static str,
    local: String,
    remote: String,
    algorithm: String,
    cwnd_segments: u32,
    ssthresh_segments: Option<u32>,
    in_flight_segments: u32,
    mss_bytes: u64,
    pacing_bit_per_s: Option<u64>,
    rtt_s: f64,
    min_rtt_s: f64,
    delivered_segments: u64,
    lost_segments: u32,
    network_namespace: u32,
}

impl Row {
    fn new(event: &Event) -> Row {
        Row {
            at_s: Duration::from_nanos(event.at_ns).as_secs_f64(),
            event: event.kind.name(),
            local: event.local.to_string(),
            remote: event.remote.to_string(),
            algorithm: event.law.clone(),
            cwnd_segments: event.cwnd,
            ssthresh_segments: event.ssthresh,
            in_flight_segments: event.in_flight,
            mss_bytes: event.mss.0,
            pacing_bit_per_s: event.pacing.map(|rate| rate.as_bit()),
            rtt_s: event.srtt.as_secs_f64(),
            min_rtt_s: event.min_rtt.as_secs_f64(),
            delivered_segments: event.delivered,
            lost_segments: event.lost,
            network_namespace: event.netns,
        }
    }
}

/// Carries the command out.
pub fn run(args: &Args) -> Result<(), Failure> {
    let only = args.only.as_deref().map(str::parse::<Law>).transpose()?;
    let end = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut csv = csv::Writer::from_writer(io::stdout());
    let mut outcome = Ok(());
    let is_over = || end.is_some_and(|end| Instant::now() >= end);
    let take = |event: Event| {
        if only.is_some_and(|law| law.algorithm() != event.law) {
            return ControlFlow::Continue(());
        }
        let row = || Row::new(&event);
        let written = match args.format {
            Format::Text => writeln!(io::stdout(), "{}", text(&event)),
            Format::Json => serde_json::to_string(&row())
                .map_err(io::Error::from)
                .and_then(|text| writeln!(io::stdout(), "{text}")),
            Format::Csv => csv.serialize(row()).map_err(io::Error::from).and_then(|()| csv.flush()),
        };
        match written {
            Ok(()) if !is_over() => ControlFlow::Continue(()),
            Ok(()) => ControlFlow::Break(()),
            // The reader has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ControlFlow::Break(()),
            Err(error) => {
                outcome = Err(Failure::request(format!("cannot print the events: {error}")));
                ControlFlow::Break(())
            }
        }
    };
    let idle = || if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    watch(take, idle)?;
    outcome
}

fn text(event: &Event) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let pace = event.pacing.map_or_else(|| "-".to_owned(), |rate| format!("{:.2} Mbit/s", rate.as_mbit()));
    let threshold = event.ssthresh.map_or_else(|| "-".to_owned(), |segments| segments.to_string());
    format!(
        "{:.3}  {:5}  {} > {}  {}  cwnd {} ssthresh {threshold}  flight {}  pace {pace}  rtt {:.1} ms (least {:.1})  \
         delivered {}  lost {}",
        Duration::from_nanos(event.at_ns).as_secs_f64(),
        event.kind.name(),
        event.local,
        event.remote,
        event.law,
        event.cwnd,
        event.in_flight,
        ms(event.srtt),
        ms(event.min_rtt),
        event.delivered,
        event.lost,
    )
}
