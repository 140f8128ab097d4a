//! `skyhaul run` and `skyhaul list` from the outside: real programs behind a short emulated link.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// Short and clean enough for a megabyte to pass in a moment, lossy enough for retransmissions.
const LINK: &str = r#"
format = 1
id = "short"
title = "40 Mbit/s, 5 ms each way"
source = "tests"
assumed = []

[forward]
rate = "40 Mbit/s"
rate_base = "ip"
one_way = "5 ms"
loss = "0.1 %"
queue = "500 kB"

[back]
rate = "40 Mbit/s"
rate_base = "ip"
one_way = "5 ms"
loss = "0.1 %"
queue = "500 kB"

[workload]
kind = "ftp-upload"
bytes = "1 MB"
"#;

/// The keys that scripts may rely on.
const CONTRACT: [&str; 12] = [
    "scenario",
    "on",
    "scheme",
    "workload",
    "bytes",
    "seconds",
    "goodput_bit_per_s",
    "limit_bit_per_s",
    "fraction_of_limit",
    "integrity_ok",
    "valid",
    "seed",
];

struct Link {
    dir: tempfile::TempDir,
}

impl Link {
    /// `None`, with a message, where namespaces can't be made.
    fn new() -> Option<Link> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let link = Link { dir: tempfile::tempdir().unwrap() };
        std::fs::write(link.scenario(), LINK).unwrap();
        Some(link)
    }

    fn scenario(&self) -> PathBuf {
        self.dir.path().join("short.toml")
    }

    fn command(&self, schemes: &str, workload: &str) -> Command {
        let mut command = skyhaul(&["run"]);
        command.arg(self.scenario()).args(["--scheme", schemes, "--workload", workload, "--format", "json"]);
        command
    }

    /// The rows; `None`, with a message, if a program is not installed.
    fn rows(&self, schemes: &str, workload: &str, more: &[&str]) -> Option<Vec<Value>> {
        let output = self.command(schemes, workload).args(more).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(2) && errors.contains("is not installed") {
            eprintln!("skipped: {errors}");
            return None;
        }
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{errors}"));
        // A busy machine may make a run invalid, which the exit status must then say.
        let good = rows
            .iter()
            .all(|row| row["valid"] == true && row["integrity_ok"] != false && row["error"].is_null());
        assert_eq!(output.status.code(), Some(i32::from(!good)), "{rows:#?} {errors}");
        Some(rows)
    }
}

fn skyhaul(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skyhaul"));
    command.args(args);
    command
}

fn assert_whole_and_intact(rows: &[Value], schemes: &[&str]) {
    let found: Vec<&str> = rows.iter().filter_map(|row| row["scheme"].as_str()).collect();
    assert_eq!(found, schemes, "{rows:#?}");
    for row in rows {
        for key in CONTRACT {
            assert!(!row[key].is_null(), "{key}: {row:#?}");
        }
        assert_eq!(row["error"], Value::Null, "{row:#?}");
        assert_eq!((&row["complete"], &row["integrity_ok"]), (&true.into(), &true.into()), "{row:#?}");
        assert_eq!(row["received_bytes"], row["bytes"], "{row:#?}");
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row:#?}"));
        assert!(number("seconds") > 0.0 && number("goodput_bit_per_s") > 0.0, "{row:#?}");
        assert!(number("goodput_bit_per_s") <= number("limit_bit_per_s"), "faster than light: {row:#?}");
        assert!(
            number("seconds") <= number("command_seconds") || row["first_byte_seconds"].is_number(),
            "{row:#?}"
        );
    }
}

#[test]
fn needs_namespaces_a_file_crosses_by_ftp_both_ways_in_both_modes() {
    let Some(link) = Link::new() else { return };
    for workload in ["ftp-upload", "ftp-download", "ftp-upload-active", "ftp-download-active"] {
        let Some(rows) = link.rows("direct:cubic", workload, &[]) else { return };
        assert_whole_and_intact(&rows, &["direct:cubic"]);
        assert_eq!((&rows[0]["workload"], &rows[0]["bytes"]), (&workload.into(), &1_000_000.into()));
        assert_eq!(rows[0]["buffers"], "128 MiB");
        assert!(rows[0]["setup_seconds"].as_f64().unwrap() > 0.02, "login takes round trips: {rows:#?}");
    }
}

#[test]
fn needs_namespaces_http_files_and_objects_cross() {
    let Some(link) = Link::new() else { return };
    let Some(rows) = link.rows("direct:default,direct:reno", "http-download", &["--bytes", "300kB"]) else {
        return;
    };
    assert_whole_and_intact(&rows, &["direct:default", "direct:reno"]);
    assert_eq!(rows[0]["algorithm"], "cubic");

    let rows = link.rows("direct:cubic", "http-objects", &[]).unwrap();
    assert_whole_and_intact(&rows, &["direct:cubic"; 4]);
    let sizes: Vec<u64> = rows.iter().filter_map(|row| row["bytes"].as_u64()).collect();
    assert_eq!(sizes, [1_000, 10_000, 100_000, 1_000_000]);
    for row in rows {
        let (first, total) = (row["first_byte_seconds"].as_f64().unwrap(), row["seconds"].as_f64().unwrap());
        assert!(first >= 0.02 && total >= first, "connecting and asking take a round trip each: {row:#?}");
    }
}

#[test]
fn needs_namespaces_skyhaul_carries_files_both_ways_and_says_what_it_costs() {
    let Some(link) = Link::new() else { return };
    for workload in ["ftp-upload", "ftp-download", "ftp-upload-active", "http-download"] {
        let Some(rows) = link.rows("skyhaul:rate,skyhaul:bbr", workload, &[]) else { return };
        assert_whole_and_intact(&rows, &["skyhaul:rate", "skyhaul:bbr"]);
        for key in ["terminal_cpu_seconds", "gateway_cpu_seconds"] {
            assert!(rows[0][key].is_number(), "{key}: {rows:#?}");
        }
        for key in ["terminal_peak_bytes", "gateway_peak_bytes"] {
            assert!(rows[0][key].as_u64().unwrap() > 1_000_000, "{key}: {rows:#?}");
        }
    }
}

#[test]
fn needs_namespaces_a_cable_has_no_limit_and_loses_nothing() {
    let Some(link) = Link::new() else { return };
    let Some(rows) = link.rows("direct:cubic,skyhaul:bbr", "http-download", &["--on", "cable"]) else {
        return;
    };
    for row in rows {
        assert_eq!((&row["on"], &row["integrity_ok"]), (&"cable".into(), &true.into()), "{row:#?}");
        assert_eq!(
            (&row["limit_bit_per_s"], &row["link_lost_packets"]),
            (&Value::Null, &0.into()),
            "{row:#?}"
        );
    }
}

#[test]
fn needs_namespaces_a_transfer_that_takes_too_long_is_stopped_and_its_beginning_compared() {
    let Some(link) = Link::new() else { return };
    let more = ["--bytes", "64MB", "--max-seconds", "2"];
    let Some(rows) = link.rows("direct:bbr", "ftp-upload", &more) else { return };
    let row = &rows[0];
    assert_eq!((&row["complete"], &row["integrity_ok"]), (&false.into(), &true.into()), "{row:#?}");
    let received = row["received_bytes"].as_u64().unwrap();
    assert!(received > 0 && received < 64_000_000, "{row:#?}");
    assert!(row["extrapolated_seconds"].as_f64().unwrap() > 2.0, "{row:#?}");
}

#[test]
fn needs_namespaces_repetitions_have_seeds_of_their_own() {
    let Some(link) = Link::new() else { return };
    let more = ["--bytes", "50kB", "--repeat", "2", "--seed", "7"];
    let Some(rows) = link.rows("direct:cubic", "http-download", &more) else { return };
    let seeds: Vec<u64> = rows.iter().filter_map(|row| row["seed"].as_u64()).collect();
    assert_eq!(seeds, [7, 8]);
}

/// What comes out with this shell script as curl, for a file of 1 kB; `None`, with a message, if a program is missing.
fn with_false_curl(script: &str) -> Option<(Value, Option<i32>)> {
    use std::os::unix::fs::PermissionsExt;
    let link = Link::new()?;
    link.rows("direct:cubic", "http-download", &["--bytes", "1kB"])?;
    let curl = link.dir.path().join("curl");
    std::fs::write(&curl, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&curl, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", link.dir.path().display(), std::env::var("PATH").unwrap());
    let mut command = link.command("direct:cubic", "http-download");
    let output = command.args(["--bytes", "1kB"]).env("PATH", path).output().unwrap();
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    Some((rows[0].clone(), output.status.code()))
}

#[test]
fn needs_namespaces_a_client_that_fails_is_a_row_with_the_reason_and_exit_status_1() {
    let Some((row, status)) = with_false_curl("echo 'curl: (7) no luck today' >&2; exit 7") else { return };
    assert_eq!(row["error"], "curl: (7) no luck today");
    assert_eq!(status, Some(1));
}

#[test]
fn needs_namespaces_a_file_that_arrives_altered_is_found_out() {
    let script = "while [ \"$1\" != --output ]; do shift; done; echo '*   Trying 10.77.2.2:80...' >&2; head -c 1000 /dev/zero > \"$2\"";
    let Some((row, status)) = with_false_curl(script) else { return };
    assert_eq!((&row["complete"], &row["integrity_ok"]), (&true.into(), &false.into()), "{row:#?}");
    assert_eq!(status, Some(1));
}

/// The command must refuse before it needs any rights.
fn assert_refused(args: &[&str], because: &[&str]) {
    let Output { status, stdout, stderr } = skyhaul(args).output().unwrap();
    let errors = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(2), "{errors}");
    assert!(stdout.is_empty(), "{args:?}");
    for word in because {
        assert!(errors.contains(word), "{word}: {errors}");
    }
}

#[test]
fn what_is_not_there_is_refused_with_what_there_is() {
    assert_refused(
        &["run", "p1.down-270", "--scheme", "direct:vegas"],
        &["direct:vegas", "direct:cubic", "skyhaul:rate"],
    );
    assert_refused(&["run", "p9.nowhere", "--scheme", "direct:cubic"], &["p9.nowhere"]);
    assert_refused(
        &["run", "p1.down-270", "--scheme", "direct:cubic", "--workload", "mail"],
        &["mail", "ftp-upload"],
    );
    assert_refused(
        &["run", "p1.down-270", "--scheme", "direct:cubic", "--bytes", "many"],
        &["many", "64 MiB"],
    );
    assert_refused(&["run", "p1.down-270"], &["--scheme"]);
    assert_refused(&["demo", "--bytes", "0"], &["at least 1"]);
}

#[test]
fn list_shows_what_run_understands() {
    let output = skyhaul(&["list"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    for word in ["p1.down-270", "direct:default", "skyhaul:rate", "http-objects"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// Schemes that every Linux kernel can run: their controls are CUBIC and Reno.
const PAPERS: [&str; 9] = [
    "tuned",
    "kernel-both:reno",
    "kernel-one:cubic/stock",
    "kernel-one:feedback",
    "fec-tunnel:adaptive",
    "fec-tunnel:none",
    "pep-split:reno",
    "pep-split:cubic/stock",
    "pep-split:cubic/both",
];

#[test]
fn needs_namespaces_every_scheme_of_the_paper_moves_files_and_says_what_it_sets_and_costs() {
    let Some(link) = Link::new() else { return };
    for workload in ["ftp-upload-active", "http-download"] {
        let Some(rows) = link.rows(&PAPERS.join(","), workload, &[]) else { return };
        assert_whole_and_intact(&rows, &PAPERS);
        for row in &rows {
            let settings = row["settings"].as_str().unwrap_or_default();
            assert!(settings.contains("net.ipv4.tcp_rmem=") && settings.contains("congctl"), "{row:#?}");
            for key in ["processor", "machine_cpu_seconds", "retransmitted_share", "link_offered_bytes"] {
                assert!(!row[key].is_null(), "{key}: {row:#?}");
            }
            let offered = row["link_offered_bytes"].as_u64().unwrap();
            assert!(offered > 1_000_000 && offered < 3_000_000, "{row:#?}");
        }
        let program_on = |scheme: &str, host: &str| {
            let row = rows.iter().find(|row| row["scheme"] == scheme).unwrap();
            let cpu = !row[format!("{host}_cpu_seconds")].is_null();
            assert_eq!(cpu, !row[format!("{host}_peak_bytes")].is_null(), "{row:#?}");
            cpu
        };
        let sender = if workload == "http-download" { "gateway" } else { "terminal" };
        for host in ["terminal", "gateway"] {
            assert!(!program_on("tuned", host));
            assert!(program_on("fec-tunnel:adaptive", host) && program_on("pep-split:cubic/both", host));
            assert_eq!(program_on("pep-split:reno", host), host == sender, "{workload}: one box");
        }
    }
}

#[test]
fn needs_namespaces_results_are_saved_and_printed_again_as_tables() {
    let Some(link) = Link::new() else { return };
    let file = link.dir.path().join("results.json");
    let more = ["--bytes", "50kB", "--save", file.to_str().unwrap()];
    if link.rows("direct:cubic,tuned", "http-download", &more).is_none() {
        return;
    }
    let saved: Vec<Value> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    // A machine that stands still for a while makes a run invalid, and that is told again as well.
    let status = i32::from(!saved.iter().all(|row| row["valid"] == true));
    let again = |format: &str| {
        let mut command = skyhaul(&["run"]);
        command.arg(link.scenario()).args(["--format", format, "--from"]).arg(&file);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(again("table9").contains("| double-side TCP parameters (lightweight) |"));
    assert!(again("markdown").contains("| `tuned` | cubic | 128 MiB |"));
    assert!(again("text").contains("tuned sets client, server:"));
    let rows: Vec<Value> = serde_json::from_str(&again("json")).unwrap();
    assert_eq!(rows.len(), 2);
}

/// What a command that cannot be carried out says: exit status 2 and one line.
fn complaint(args: &[&str]) -> String {
    let output = skyhaul(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert!(output.stdout.is_empty(), "{args:?}");
    said
}

#[test]
fn tunnels_and_splitters_that_cannot_work_are_refused_with_one_line() {
    let tunnel = |more: &[&str]| {
        let basic = ["fec-tunnel", "--listen", "127.0.0.1:0", "--peer"];
        complaint(&[&basic[..], more].concat())
    };
    let loops = tunnel(&["10.77.0.2:4434", "--network", "10.0.0.0/8"]);
    assert!(loops.contains("the tunnel would lead into itself"), "{loops}");
    assert_eq!(loops.lines().count(), 1, "{loops}");
    let network = "--network=10.77.2.0/24";
    let family = tunnel(&["[fd77::2]:4434", network]);
    assert!(family.contains("different families"), "{family}");
    for (more, word) in [
        (&["10.77.0.2:4434", network, "--redundancy", "200%"][..], "expected \"adaptive\""),
        (&["10.77.0.2:4434", network, "--hold", "1 h"], "expected 1 ms to 10 s"),
        (&["10.77.0.2:4434", network, "--mtu", "100"], "576"),
        (&["10.77.0.2:4434", network, "--device", "a/b"], "device name"),
        (&["10.77.0.2:4434"], "--network"),
    ] {
        let said = tunnel(more);
        assert!(said.contains(word), "{more:?}: {said}");
    }
    let split = complaint(&["split", "--interface", "a b", "--network", "10.77.1.0/24"]);
    assert!(split.contains("device name"), "{split}");
}

#[test]
fn results_that_are_none_are_refused_with_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("broken.json");
    std::fs::write(&file, "[{\"scheme\": 5}]").unwrap();
    for file in [file, dir.path().join("missing.json")] {
        let said = complaint(&["run", "p1.down-270", "--from", file.to_str().unwrap(), "--format", "table9"]);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(".json: "), "{said}");
    }
    let place = dir.path().join("no-folder/results.json");
    let nowhere = ["--scheme", "tuned", "--workload", "iperf3", "--save", place.to_str().unwrap()];
    let said = complaint(&[&["run", "p1.down-270"][..], &nowhere].concat());
    assert!(said.contains("cannot write") || said.contains("is not installed"), "{said}");
    let both = complaint(&["run", "p1.down-270", "--from", "x.json", "--scheme", "tuned"]);
    assert!(both.contains("cannot be used with"), "{both}");
    let sim = complaint(&["run", "p1.down-270", "--on", "sim", "--cc", "cubic", "--format", "table9"]);
    assert!(sim.contains("for programs on hosts"), "{sim}");
}
