//! `skyhaul bench`: what our own controller has to reach, measured beside the others.

mod hosts;

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::ValueEnum;
use skyhaul_cc::registry::{Contender, UnknownController};
use skyhaul_cc::units::Bytes;
use skyhaul_lab::bench::{Bench, Host, Row, Wanted};
use skyhaul_lab::experiment::Effort;
use skyhaul_live::testbed::scheme::Scheme;

use super::run::size;
use crate::failure::Failure;
use crate::screen::progress::Jobs;
use crate::screen::{bench, rows};

/// Measure controllers against goals: whole files, fairness, change, others on the link, noise.
///
/// In virtual time the same seeds give the same result to the last digit, on any number of cores. Exit status: 0 when
/// every run could be carried out, whatever the goals say (column `pass`); 1 when one could not; 2 when the request
/// could not be carried out.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    skyhaul bench limits --quick\n  \
    skyhaul bench limits --only gigabit-100,p1.down --controllers skyhaul,skyhaul/warm,bbr --format json\n  \
    skyhaul bench noise --only 100-40 --seeds 1\n\
    As root, with real programs on an emulated link:\n  \
    skyhaul bench limits --on hosts --only p1.down-270\n\
    docs/bench.md explains the tables.")]
pub struct Args {
    /// Which table.
    #[arg(value_enum)]
    table: Table,
    /// Testbed.
    #[arg(long, value_enum, default_value_t = Testbed::Sim)]
    on: Testbed,
    /// Only cells whose names contain one of these, separated by commas.
    #[arg(long, value_name = "CELLS", value_delimiter = ',')]
    only: Vec<String>,
    /// Controllers, separated by commas: skyhaul, skyhaul/warm, skyhaul/known, bbr and so on; the table's own choice
    /// if not given.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = contender)]
    controllers: Vec<Contender>,
    /// With `--on sim`: only what this carries; `plain` is TCP without receive times and repair for everybody.
    #[arg(long, value_enum, value_name = "HOST")]
    host: Option<Carries>,
    /// With `--on sim`: runs per row, with seeds SEED, SEED+1 and so on [default: 5, with --quick 1].
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    seeds: Option<u32>,
    /// Number that decides the luck of the packets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A look instead of a measurement: one seed, shorter files and runs, fewer cells.
    #[arg(long)]
    quick: bool,
    /// With `--on sim`: threads; all cores if not given.
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// With `--on hosts`: schemes, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    scheme: Vec<Scheme>,
    /// With `--on hosts`: how often each scheme runs; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// With `--on hosts`: size of the file, such as 16MiB, in place of each cell's own.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bytes: Option<Bytes>,
    /// How to print the results.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// Whole files against the physical limit.
    Limits,
    /// Three flows of one kind.
    Fairness,
    /// Links that fade, change their length or go away.
    Change,
    /// Beside CUBIC and BBR.
    Coexist,
    /// Noisy links, steady state.
    Noise,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Testbed {
    /// Virtual time: TCP and, where the cell has it, the real channel.
    Sim,
    /// Real programs, the kernel's network stack, an emulated link.
    Hosts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Carries {
    /// The simulator's TCP; our own controller with receive times and repair of the tail.
    Tcp,
    /// The simulator's TCP without them.
    Plain,
    /// The real channel in virtual time.
    Channel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people.
    Text,
    /// A table for a page of documentation.
    Markdown,
    /// One array of objects.
    Json,
    /// A header and one line for each row.
    Csv,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let bench = args.table.bench();
    let rows = match args.on {
        Testbed::Sim => simulated(bench, &args)?,
        Testbed::Hosts => hosts::run(bench, &args)?,
    };
    rows::show(&match args.format {
        Format::Text => bench::text(bench, &rows),
        Format::Markdown => bench::markdown(bench, &rows),
        Format::Json => bench::json(&rows)?,
        Format::Csv => bench::csv(&rows)?,
    })?;
    Ok(ExitCode::from(u8::from(rows.iter().any(|row| row.failure.is_some()))))
}

fn simulated(bench: Bench, args: &Args) -> Result<Vec<Row>, Failure> {
    if !args.scheme.is_empty() || args.bytes.is_some() {
        return Err(Failure::request("--scheme and --bytes are for --on hosts; --on sim has --controllers"));
    }
    let full = if args.quick { Effort { seeds: 1, ..Effort::quick() } } else { Effort::full() };
    let line = Jobs::new(&format!("bench {}", bench.name()), 1);
    let effort = Effort {
        seeds: args.seeds.unwrap_or(full.seeds),
        first_seed: args.seed,
        threads: args.threads.unwrap_or(full.threads),
        progress: Some(&line),
        ..full
    };
    let host = args.host.map(|host| match host {
        Carries::Tcp => Host::Tcp,
        Carries::Plain => Host::Plain,
        Carries::Channel => Host::Channel,
    });
    let wanted = Wanted { only: args.only.clone(), contenders: args.controllers.clone(), host };
    let rows = bench.run(&wanted, &effort).map_err(Failure::request);
    line.finish();
    match rows {
        Ok(rows) if rows.is_empty() => {
            Err(Failure::request(format!("bench {}: no such cell has that host", bench.name())))
        }
        rows => rows,
    }
}

fn contender(text: &str) -> Result<Contender, String> {
    text.trim().parse().map_err(|error: UnknownController| error.to_string())
}

impl Table {
    fn bench(self) -> Bench {
        match self {
            Table::Limits => Bench::Limits,
            Table::Fairness => Bench::Fairness,
            Table::Change => Bench::Change,
            Table::Coexist => Bench::Coexist,
            Table::Noise => Bench::Noise,
        }
    }
}
