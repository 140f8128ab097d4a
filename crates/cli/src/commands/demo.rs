//! `skyhaul demo`: the whole point in two minutes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use skyhaul_cc::units::Bytes;
use skyhaul_live::netns::ensure_privileged;
use skyhaul_live::testbed::lab::{Lab, On, Run};
use skyhaul_live::testbed::row::Row;
use skyhaul_live::testbed::scheme::{Kernel, Scheme};
use skyhaul_live::testbed::workload::Job;
use skyhaul_sim::scenario::Scenario;

use super::run::{one, size};
use crate::failure::Failure;
use crate::screen::numbers::{self, mbit, span};
use crate::screen::rows;

/// Show what Skyhaul is for: one file by FTP over the satellite downlink of a published experiment, by the kernel's
/// TCP and by Skyhaul.
///
/// 150 Mbit/s, 270 ms each way, 1.2 % of the packets lost. The results also go to target/demo/result.json.
#[derive(clap::Args)]
#[command(after_help = "Examples, as root:\n  skyhaul demo\n  skyhaul demo --bytes 512MiB")]
pub struct Args {
    /// Size of the file; 512MiB is the size in the paper.
    #[arg(long, value_name = "SIZE", env = "DEMO_SIZE", default_value = "64MiB", value_parser = size)]
    bytes: Bytes,
    /// Number that decides the luck of the packets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where the rows go as JSON.
    #[arg(long, value_name = "FILE", default_value = "target/demo/result.json")]
    out: PathBuf,
}

/// Carries the command out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let scenario = Scenario::find(SCENARIO).map_err(Failure::request)?;
    Lab::check(JOB).map_err(Failure::request)?;
    ensure_privileged()?;
    let mut lab = Lab::new(args.bytes).map_err(Failure::request)?;
    eprintln!("{}: {}", scenario.id, scenario.title);
    eprintln!("{} by FTP (curl to vsftpd) behind the emulated link, {} ways:", args.bytes, CONTENDERS.len());
    let mut results: Vec<Row> = Vec::new();
    for (name, limit, what) in CONTENDERS {
        let scheme: Scheme = name.parse().map_err(Failure::request)?;
        eprintln!("- {name}: {what} ...");
        let (bytes, seed) = (args.bytes, args.seed);
        let run = Run {
            on: On::Hosts,
            scenario: &scenario,
            scheme: &scheme,
            job: JOB,
            bytes,
            seed,
            repetition: 1,
            limit,
        };
        for row in one(&mut lab, &run)? {
            eprintln!("  {} Mbit/s, {}", mbit(row.goodput_bit_per_s), outcome(&row));
            results.push(row);
        }
    }
    save(&args.out, &rows::json(&results)?)?;
    print!("\n{}\n{}\n", rows::text(&results, &scenario), conclusion(&results));
    eprintln!("rows: {}", args.out.display());
    Ok(ExitCode::from(u8::from(!results.iter().all(Row::arrived))))
}

fn outcome(row: &Row) -> String {
    match (&row.error, row.complete) {
        (Some(error), _) => format!("failed: {error}"),
        (None, true) => format!("all of it in {}, checked by SHA-256", span(row.seconds)),
        (None, false) => {
            let whole = row.extrapolated_seconds.map_or("for ever".to_owned(), span);
            format!("stopped after {}; the whole file would take {whole}", span(row.seconds))
        }
    }
}

fn save(path: &PathBuf, text: &str) -> Result<(), Failure> {
    let write = || {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::write(path, text)
    };
    write().map_err(|error| Failure::request(format!("cannot write {}: {error}", path.display())))
}

/// One sentence that follows from the rows.
fn conclusion(rows: &[Row]) -> String {
    let good = |prefix: &str| {
        let rows = rows.iter().filter(|row| row.scheme.starts_with(prefix) && row.arrived());
        rows.max_by(|a, b| a.goodput_bit_per_s.total_cmp(&b.goodput_bit_per_s))
    };
    let Some(ours) = good("skyhaul:") else {
        return "No Skyhaul transfer succeeded, so there is nothing to conclude.".to_owned();
    };
    let compare = |kernel: &Kernel| {
        let name = Scheme::Direct(*kernel).to_string();
        let plain = rows.iter().find(|row| row.scheme == name && row.arrived())?;
        let ratio = plain.whole_seconds()? / ours.whole_seconds()?;
        let guess = if plain.complete { "" } else { " (extrapolated)" };
        let how = if ratio >= 1.0 { "times as fast as" } else { "times the speed of" };
        Some(format!(
            "{} {how} the kernel's {} with {} buffers{guess}",
            numbers::ratio(ratio),
            plain.algorithm,
            plain.buffers
        ))
    };
    let compared: Vec<String> = [Kernel::Cubic, Kernel::Bbr].iter().filter_map(compare).collect();
    let compared = if compared.is_empty() { String::new() } else { format!(", {}", compared.join(" and ")) };
    let busy = if rows.iter().all(|row| row.valid) {
        ""
    } else {
        " The machine was too busy for all figures to count: run it again when it is not."
    };
    format!(
        "{} carried the file in {} at {} Mbit/s, {:.0} % of what the link allows{compared}.{busy}",
        ours.scheme,
        span(ours.seconds),
        mbit(ours.goodput_bit_per_s),
        ours.fraction_of_limit.unwrap_or(0.0) * 100.0
    )
}

const SCENARIO: &str = "p1.down-270";
const JOB: Job = Job::FtpUploadActive;
/// Scheme, time limit, and what it is. CUBIC would take the better part of an hour.
const CONTENDERS: [(&str, Duration, &str); 5] = [
    ("direct:cubic", Duration::from_secs(20), "the kernel's usual TCP, stopped after 20 s"),
    ("direct:bbr", Duration::from_secs(300), "the best TCP of the kernel"),
    ("skyhaul:skyhaul", Duration::from_secs(300), "Skyhaul on a link it has never seen"),
    ("skyhaul:skyhaul/warm", Duration::from_secs(300), "Skyhaul, the second file"),
    ("skyhaul:skyhaul/known", Duration::from_secs(300), "Skyhaul, told the rate of the link"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::rows::tests::row;

    #[test]
    fn the_conclusion_is_computed_from_the_rows() {
        let rows = [row("direct:cubic", 0.5e6), row("direct:bbr", 62.5e6), row("skyhaul:rate", 125e6)];
        let text = conclusion(&rows);
        assert!(text.starts_with("skyhaul:rate carried the file in 4.29 s at 125.0 Mbit/s"), "{text}");
        assert!(text.contains("250 times as fast as the kernel's cubic with 128 MiB buffers and"), "{text}");
        assert!(text.contains("and 2.0 times as fast as the kernel's bbr"), "{text}");
    }

    #[test]
    fn a_stopped_transfer_is_compared_by_its_extrapolated_time() {
        let mut cubic = row("direct:cubic", 0.5e6);
        (cubic.complete, cubic.extrapolated_seconds) = (false, Some(4290.0));
        let text = conclusion(&[cubic, row("skyhaul:rate", 125e6)]);
        assert!(text.contains("999 times as fast") && text.contains("(extrapolated)"), "{text}");
    }

    #[test]
    fn on_a_busy_machine_the_file_has_arrived_but_its_figures_do_not_count() {
        let mut ours = row("skyhaul:rate", 50e6);
        ours.valid = false;
        assert!(ours.arrived() && !ours.passed());
        let text = conclusion(&[row("direct:cubic", 0.5e6), ours]);
        assert!(
            text.contains("100 times as fast") && text.ends_with("run it again when it is not."),
            "{text}"
        );
    }

    #[test]
    fn a_failed_transfer_is_nothing_to_conclude_from() {
        let mut ours = row("skyhaul:rate", 125e6);
        ours.integrity_ok = Some(false);
        assert!(conclusion(&[row("direct:cubic", 0.5e6), ours]).contains("nothing to conclude"));
    }
}
