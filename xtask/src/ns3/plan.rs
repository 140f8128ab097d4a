//! What is run: cells, contenders, and one peculiarity of ns-3 taken away at a time.

use std::fmt;

/// Rate of the link, Mbit/s: small enough that ns-3, which walks through its window for each segment, is done in
/// minutes, and large enough that one bandwidth-delay product holds the windows that the losses allow.
pub const RATE_MBIT: u32 = 20;
/// Round trips, ms: a region, a continent, a geostationary satellite.
pub const ROUND_TRIPS: [u32; 3] = [20, 100, 550];
/// Losses of data packets at random, and how many segments are delivered: some 70, 180 and 360 losses over the seeds
/// of ns-3, which leaves 6, 4 and 3 % to chance.
pub const LOSSES: [(f64, u32); 4] = [(0.0, 60_000), (0.0003, 80_000), (0.002, 30_000), (0.01, 12_000)];
/// Runs of a cell in ns-3 where losses are random; without losses nothing is.
pub const SEEDS: u32 = 3;
/// Runs of a cell in our simulator, which is fast enough for more.
pub const OUR_SEEDS: u32 = 12;

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Cell {
    /// Round trip of the empty link, ms.
    pub rtt_ms: u32,
    /// Share of lost data packets.
    pub loss: f64,
}

impl Cell {
    /// Every cell, in the order of tables.
    pub fn all() -> impl Iterator<Item = Cell> {
        ROUND_TRIPS.into_iter().flat_map(|rtt_ms| LOSSES.map(|(loss, _)| Cell { rtt_ms, loss }))
    }

    /// The options of both programs for this cell. Queue: one bandwidth-delay product. Least timeout: 200 ms above
    /// the longest round trip, the one with a full queue.
    fn options(self, controller: &str) -> Vec<String> {
        let Cell { rtt_ms, loss } = self;
        let queue = u64::from(RATE_MBIT) * 125 * u64::from(rtt_ms);
        let segments = LOSSES.iter().find(|(known, _)| *known == loss).map_or(0, |(_, segments)| *segments);
        let mut options = vec![
            format!("--rate-mbit={RATE_MBIT}"),
            format!("--rtt-ms={rtt_ms}"),
            format!("--loss={loss}"),
            format!("--queue={queue}"),
            format!("--least-rto-ms={}", 200 + 2 * rtt_ms),
            format!("--segments={segments}"),
            format!("--skip={}", segments / if loss > 0.0 { 4 } else { 2 }),
            // The slowest cell takes less than this.
            "--seconds=100000".to_owned(),
        ];
        // Hybla's slow start is one ACK long at 550 ms: without a threshold its first window is a fault, not a law.
        if controller == "hybla" {
            options.push(format!("--ssthresh={queue}"));
        }
        options
    }
}

/// A controller that both have.
#[derive(Debug)]
pub struct Contender {
    /// Its name in ns-3.
    pub ns3: &'static str,
    /// Its name with us.
    pub ours: &'static str,
    /// ns-3 without its peculiarities: the options of one of `steps`.
    pub matched: &'static [&'static str],
    /// Peculiarities taken away one after the other, each with a word for the table.
    pub steps: &'static [(&'static str, &'static [&'static str])],
    /// Cells, as round trip in ms and loss, that lie apart even so for the reasons in docs/ns3.md.
    pub known: &'static [(u32, f64)],
}

/// Every contender.
pub const CONTENDERS: [Contender; 5] = [
    Contender {
        ns3: "newreno",
        ours: "newreno",
        matched: &["--with=segments,window-cut,freeze"],
        steps: &[
            ("growth counts segments", &["--with=segments"]),
            ("and a cut starts from the window", &["--with=segments,window-cut"]),
            ("and recovery is without growth", &["--with=segments,window-cut,freeze"]),
            ("and without rate reduction", &["--with=segments,window-cut,freeze", "--recovery=classic"]),
        ],
        known: &[],
    },
    Contender {
        ns3: "cubic",
        ours: "cubic",
        matched: &["--with=friendly,freeze"],
        steps: &[
            ("at least as fast as Reno", &["--with=friendly"]),
            ("and recovery is without growth", &["--with=friendly,freeze"]),
        ],
        known: &[],
    },
    Contender {
        ns3: "hybla",
        ours: "hybla",
        matched: &["--with=rho,window-cut,freeze"],
        steps: &[
            ("ρ from the least round trip", &["--with=rho"]),
            ("and a cut starts from the window", &["--with=rho,window-cut"]),
            ("and recovery is without growth", &["--with=rho,window-cut,freeze"]),
        ],
        known: &[(100, 0.01), (550, 0.002), (550, 0.01)],
    },
    Contender {
        ns3: "veno",
        ours: "veno",
        matched: &["--with=segments,window-cut,freeze,slow-half", "--latest-rtt=1"],
        steps: &[
            ("the latest round trip, not the smoothed one", &["--latest-rtt=1"]),
            ("and growth counts segments", &["--with=segments", "--latest-rtt=1"]),
            ("and a cut starts from the window", &["--with=segments,window-cut", "--latest-rtt=1"]),
            ("and recovery is without growth", &["--with=segments,window-cut,freeze", "--latest-rtt=1"]),
            (
                "and slower growth at a queue",
                &["--with=segments,window-cut,freeze,slow-half", "--latest-rtt=1"],
            ),
        ],
        known: &[(20, 0.01), (100, 0.002), (100, 0.01), (550, 0.0003), (550, 0.002)],
    },
    Contender {
        ns3: "vegas",
        ours: "scps",
        matched: &["--with=halve,freeze", "--latest-rtt=1"],
        steps: &[
            ("the latest round trip, not the smoothed one", &["--latest-rtt=1"]),
            ("and a loss halves the window", &["--with=halve", "--latest-rtt=1"]),
            ("and recovery is without growth", &["--with=halve,freeze", "--latest-rtt=1"]),
        ],
        known: &[(20, 0.0), (20, 0.01), (550, 0.0)],
    },
];

/// Cells in which the peculiarities are taken away one after the other.
pub const STEP_CELLS: [Cell; 2] = [Cell { rtt_ms: 100, loss: 0.002 }, Cell { rtt_ms: 100, loss: 0.01 }];

/// Who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Our simulator.
    Ours,
    /// ns-3 as it ships.
    Shipped,
    /// ns-3 without its peculiarities.
    Matched,
    /// ns-3 with the contender's steps up to this one taken.
    Step(usize),
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Ours => f.write_str("ours"),
            Form::Shipped => f.write_str("shipped"),
            Form::Matched => f.write_str("matched"),
            Form::Step(step) => write!(f, "step {step}"),
        }
    }
}

impl Form {
    /// What `Display` writes.
    pub fn parse(text: &str) -> Option<Form> {
        match text {
            "ours" => Some(Form::Ours),
            "shipped" => Some(Form::Shipped),
            "matched" => Some(Form::Matched),
            _ => text.strip_prefix("step ")?.parse().ok().map(Form::Step),
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Index into [`CONTENDERS`].
    pub contender: usize,
    /// Who runs.
    pub form: Form,
    /// Over which link.
    pub cell: Cell,
    /// Seed, from 1.
    pub seed: u32,
}

impl Job {
    /// The arguments of the program that runs it.
    pub fn arguments(&self) -> Vec<String> {
        let contender = &CONTENDERS[self.contender];
        let (name, further): (_, &[&str]) = match self.form {
            Form::Ours => (contender.ours, &[]),
            Form::Shipped => (contender.ns3, &[]),
            Form::Matched => (contender.ns3, contender.matched),
            Form::Step(step) => (contender.ns3, contender.steps.get(step).map_or(&[], |step| step.1)),
        };
        let mut arguments = vec![format!("--controller={name}"), format!("--seed={}", self.seed)];
        arguments.extend(self.cell.options(name));
        arguments.extend(further.iter().map(|further| (*further).to_owned()));
        arguments
    }
}

/// Every run, those that take longest first, so that the cores end together.
pub fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for (contender, plan) in CONTENDERS.iter().enumerate() {
        for cell in Cell::all() {
            let steps = 0..if STEP_CELLS.contains(&cell) { plan.steps.len() } else { 0 };
            let forms = [Form::Ours, Form::Shipped, Form::Matched].into_iter().chain(steps.map(Form::Step));
            for form in forms {
                let seeds = match form {
                    _ if cell.loss == 0.0 => 1,
                    Form::Ours => OUR_SEEDS,
                    _ => SEEDS,
                };
                jobs.extend((1..=seeds).map(|seed| Job { contender, form, cell, seed }));
            }
        }
    }
    jobs.sort_by(|a, b| a.cell.loss.total_cmp(&b.cell.loss));
    jobs
}
