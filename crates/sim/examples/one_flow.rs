//! One TCP flow over one bottleneck, a line of figures for a link and settings given on the command line:
//!
//! ```text
//! cargo run --release -p skyhaul-sim --example one_flow -- --controller=hybla --rtt-ms=550 --loss=1e-3
//! ```
//!
//! `cargo xtask ns3` compares it with ns-3 (`xtask/ns3/reference.cc` takes the same options and prints the same
//! line), hence the defaults: bursts, three duplicates, no timestamps, as ns-3 has them.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::str::FromStr;

use skyhaul_cc::controllers::Cubic;
use skyhaul_cc::units::{Bytes, Duration, Time};
use skyhaul_cc::{registry, Controller, Setup};
use skyhaul_sim::scenario::{Dir, Scenario};
use skyhaul_sim::tcp::{AckOptions, Pacing, Recovery, SackBlocks, TcpOptions};
use skyhaul_sim::world::{Flow, World};

/// Every option with its default; bytes count IP packets, the rate as well.
const OPTIONS: [(&str, &str); 19] = [
    ("controller", "newreno"),
    ("rate-mbit", "50"),
    ("rtt-ms", "100"),
    ("loss", "0"),
    ("queue", "625000"),
    ("seed", "1"),
    // The run ends after so many delivered segments or so many seconds, and is measured after `skip` segments.
    ("segments", "100000"),
    ("skip", "10000"),
    ("seconds", "100"),
    ("mss", "1460"),
    ("headers", "40"),
    ("ack-every", "2"),
    ("least-rto-ms", "400"),
    // First slow-start threshold in bytes, 0 for none.
    ("ssthresh", "0"),
    ("rtt0-ms", "25"),
    // dupack or rack; never, if-asked or always.
    ("recovery", "dupack"),
    ("pacing", "never"),
    // CUBIC's HyStart++: 0 or 1.
    ("hystart", "0"),
    ("sack-blocks", "4"),
];

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("one_flow: {message}");
            ExitCode::from(2)
        }
    }
}

/// Runs the flow and answers `goodput_bit_per_s,seconds,cuts,timeouts,window_segments`.
fn run(arguments: impl Iterator<Item = String>) -> Result<String, String> {
    let options = Options::parse(arguments)?;
    let mss = Bytes(options.get("mss")?);
    let mut world = world(&options, mss)?;

    let (skip, segments): (u64, u64) = (options.get("skip")?, options.get("segments")?);
    let until = Time::from_secs(options.get("seconds")?);
    let mut begin = None;
    loop {
        world.run(world.now() + STEP).map_err(|failure| failure.to_string())?;
        let sender = world.sender(0).expect("one flow was added");
        let (now, got, counters) = (world.now(), sender.acknowledged(), *sender.counters());
        if begin.is_none() && got >= mss * skip {
            begin = Some((now, got, counters));
            world.measure_windows();
        }
        if got >= mss * segments || now >= until {
            let (from, before, old) =
                begin.ok_or_else(|| format!("the flow did not deliver {skip} segments in time"))?;
            let counters = world.sender(0).expect("one flow was added").counters();
            let time = now.since(from);
            return Ok(format!(
                "{},{:.1},{},{},{:.2}",
                (got - before).per(time).as_bit(),
                time.as_secs_f64(),
                counters.episodes - old.episodes,
                counters.timeouts - old.timeouts,
                counters.mean_window().unwrap_or(0.0)
            ));
        }
    }
}

/// The link with its only flow.
fn world(options: &Options, mss: Bytes) -> Result<World, String> {
    let (rate, queue, rtt): (f64, u64, f64) =
        (options.get("rate-mbit")?, options.get("queue")?, options.get("rtt-ms")?);
    let (loss, one_way) = (options.get::<f64>("loss")?, rtt / 2.0);
    let text = format!(
        "format = 1\nid = \"one.flow\"\ntitle = \"one flow\"\nsource = \"the command line\"\n\
         [forward]\nrate = \"{rate} Mbit/s\"\none_way = \"{one_way} ms\"\nloss = {loss}\nqueue = \"{queue} B\"\n\
         [back]\nrate = \"{rate} Mbit/s\"\none_way = \"{one_way} ms\"\nqueue = \"{queue} B\"\n\
         [workload]\nkind = \"http-download\"\nbytes = \"1 MB\"\n"
    );
    let scenario = Scenario::parse(&text, "options").map_err(|error| error.to_string())?;
    let least_rto: f64 = options.get("least-rto-ms")?;
    let tcp = TcpOptions {
        mss,
        headers: Bytes(options.get("headers")?),
        recovery: options.choose("recovery", &[("dupack", Recovery::Dupack), ("rack", Recovery::Rack)])?,
        pacing: options.choose(
            "pacing",
            &[("never", Pacing::Never), ("if-asked", Pacing::IfAsked), ("always", Pacing::Always)],
        )?,
        rto_margin: Duration::ZERO,
        least_rto: Duration::from_secs_f64(least_rto / 1000.0),
        ..TcpOptions::default()
    };
    let acks = AckOptions {
        every: options.get("ack-every")?,
        sacks: SackBlocks::Most(options.get("sack-blocks")?),
        ..AckOptions::default()
    };
    let seed = options.get("seed")?;
    let mut world = World::on(&scenario, Dir::Forward, seed);
    // A flow with a window of a few segments may wait for several doubled timeouts.
    world.patience = Duration::from_secs(3000);
    world.add(Flow { tcp, acks, ..Flow::new(controller(options, mss)?) });
    Ok(world)
}

fn controller(options: &Options, mss: Bytes) -> Result<Box<dyn Controller>, String> {
    let ssthresh: u64 = options.get("ssthresh")?;
    let rtt0: u64 = options.get("rtt0-ms")?;
    let setup = Setup {
        initial_ssthresh: (ssthresh > 0).then_some(Bytes(ssthresh)),
        reference_rtt: Some(Duration::from_millis(rtt0)),
        ..Setup::new(mss)
    };
    let name: String = options.get("controller")?;
    if name == "cubic" && options.choose("hystart", &[("0", false), ("1", true)])? {
        return Ok(Box::new(Cubic::new(&setup).with_hystart()));
    }
    registry::build(&name, &setup).map_err(|error| error.to_string())
}

/// How often the flow is looked at.
const STEP: Duration = Duration::from_millis(100);

/// What the command line says, over the defaults.
struct Options(BTreeMap<String, String>);

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut values: BTreeMap<String, String> =
            OPTIONS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        for argument in arguments {
            let known = argument.strip_prefix("--").and_then(|rest| rest.split_once('='));
            let Some((key, value)) = known.filter(|(key, _)| values.contains_key(*key)) else {
                let keys: Vec<_> = OPTIONS.iter().map(|(key, value)| format!("--{key}={value}")).collect();
                return Err(format!("wants options as in {}, has \"{argument}\"", keys.join(" ")));
            };
            values.insert(key.to_owned(), value.to_owned());
        }
        Ok(Options(values))
    }

    fn get<T: FromStr>(&self, key: &str) -> Result<T, String> {
        let text = self.0.get(key).map_or("", String::as_str);
        let default = OPTIONS.iter().find(|(known, _)| *known == key).map_or("", |(_, value)| value);
        text.parse().map_err(|_| format!("--{key} wants a value like {default}, has \"{text}\""))
    }

    fn choose<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T, String> {
        let text: String = self.get(key)?;
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        found.ok_or_else(|| format!("--{key} wants one of {}, has \"{text}\"", names.join(", ")))
    }
}
