//! Results as a table, as JSON and as CSV.

use std::collections::BTreeSet;
use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;
use skyhaul_live::testbed::row::Row;
use skyhaul_sim::scenario::Scenario;

use super::numbers::{mbit, megabytes, percent, seconds, span};
use super::table::{Align, Table};
use crate::failure::Failure;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people.
    Text,
    /// One array of objects.
    Json,
    /// A header and one line for each row.
    Csv,
}

/// Prints results on standard output.
pub fn show(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough, as in `skyhaul run ... | head`.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| Failure::request(format!("cannot print the results: {error}"))),
    }
}

/// One array, one object for each row, ready for a file or a pipe.
pub fn json<R: Serialize>(rows: &[R]) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(rows);
    text.map(|text| text + "\n").map_err(|error| Failure::request(format!("cannot write JSON: {error}")))
}

/// A header and a line for each row.
pub fn csv<R: Serialize>(rows: &[R]) -> Result<String, Failure> {
    let failure = |error: &dyn std::fmt::Display| Failure::request(format!("cannot write CSV: {error}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(|error| failure(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| failure(&error))?;
    String::from_utf8(bytes).map_err(|error| failure(&error))
}

/// The table, and below it a sentence for everything that a number alone would hide.
pub fn text(rows: &[Row], scenario: &Scenario) -> String {
    let repeated = rows.iter().any(|row| row.repetition > 1);
    let mut table = Table::new(&[
        ("scheme", Align::Left),
        ("algorithm, buffers", Align::Left),
        ("object kB", Align::Point),
        (if repeated { "Mbit/s mean" } else { "Mbit/s" }, Align::Point),
        ("least to most", Align::Left),
        ("2nd half", Align::Point),
        ("% of limit", Align::Point),
        ("time s", Align::Point),
        ("first byte s", Align::Point),
        ("set-up s", Align::Point),
        ("command s", Align::Point),
        ("CPU s/GB", Align::Point),
        ("% of a core", Align::Left),
        ("machine s/GB", Align::Point),
        ("memory MB", Align::Point),
        ("resent %", Align::Point),
        ("file", Align::Left),
    ]);
    let groups = groups(rows);
    let best = best(&groups);
    for (index, group) in groups.iter().enumerate() {
        table.row(best.contains(&index), cells(group));
    }
    if let Some(published) = paper(rows, scenario) {
        table.row(false, published);
    }
    let mut text = format!("{}\n{table}", title(rows, scenario));
    text.push_str(if best.is_empty() { "" } else { "* best\n" });
    for note in notes(rows) {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

fn title(rows: &[Row], scenario: &Scenario) -> String {
    let Some(first) = rows.first() else { return format!("{}: no results", scenario.id) };
    let seeds: BTreeSet<u64> = rows.iter().map(|row| row.seed).collect();
    let (low, high) = (seeds.first().unwrap_or(&0), seeds.last().unwrap_or(&0));
    let seed = if low == high { format!("seed {low}") } else { format!("seeds {low} to {high}") };
    let size = match first.workload.as_str() {
        "http-objects" | "iperf3" | "iperf3-download" => String::new(),
        _ => format!(" of {}", skyhaul_cc::units::Bytes(first.bytes)),
    };
    let link = match first.on.as_str() {
        "cable" => "a cable instead of the link".to_owned(),
        _ => format!("{}: {}", scenario.id, scenario.title),
    };
    format!("{link}; {}{size}; {seed}", first.workload)
}

/// Rows that differ only in their repetition, in the order of their first.
pub(super) fn groups(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        // iperf3 moves what it can: its bytes do not tell two runs apart.
        let same = |first: &Row| {
            first.scheme == row.scheme
                && first.workload == row.workload
                && (first.bytes == row.bytes || first.first_byte_seconds.is_none())
        };
        match groups.iter_mut().find(|group| same(group[0])) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// The group with the greatest mean goodput, for each object size if there are several; none without a contest.
fn best(groups: &[Vec<&Row>]) -> Vec<usize> {
    let size = |group: &[&Row]| group[0].first_byte_seconds.map(|_| group[0].bytes);
    let sizes: BTreeSet<Option<u64>> = groups.iter().map(|group| size(group)).collect();
    let best_of = |wanted: &Option<u64>| {
        let mut contest: Vec<(usize, f64)> = groups
            .iter()
            .enumerate()
            .filter(|(_, group)| {
                size(group) == *wanted && group.iter().all(|row| row.passed() && row.unavailable.is_none())
            })
            .map(|(index, group)| (index, mean(group, |row| row.goodput_bit_per_s)))
            .collect();
        contest.sort_by(|a, b| b.1.total_cmp(&a.1));
        (contest.len() > 1).then(|| contest[0].0)
    };
    sizes.iter().filter_map(best_of).collect()
}

pub(super) fn mean(group: &[&Row], of: impl Fn(&Row) -> f64) -> f64 {
    group.iter().map(|row| of(row)).sum::<f64>() / group.len() as f64
}

/// The mean over the rows that have the value, as text; empty if none has.
pub(super) fn optional(
    group: &[&Row],
    of: impl Fn(&Row) -> Option<f64>,
    show: impl Fn(f64) -> String,
) -> String {
    let values: Vec<f64> = group.iter().filter_map(|row| of(row)).collect();
    if values.is_empty() {
        return String::new();
    }
    show(values.iter().sum::<f64>() / values.len() as f64)
}

fn cells(group: &[&Row]) -> Vec<String> {
    let first = group[0];
    let goodput = |row: &Row| row.goodput_bit_per_s;
    let least = group.iter().map(|row| goodput(row)).fold(f64::INFINITY, f64::min);
    let most = group.iter().map(|row| goodput(row)).fold(0.0, f64::max);
    if first.unavailable.is_some() {
        let mut cells = vec![String::new(); 16];
        (cells[0], cells[1]) =
            (first.scheme.clone(), format!("{}, {} buffers", first.algorithm, first.buffers));
        cells.push("not available".to_owned());
        return cells;
    }
    vec![
        first.scheme.clone(),
        format!("{}, {} buffers", first.algorithm, first.buffers),
        first.first_byte_seconds.map_or(String::new(), |_| format!("{}", first.bytes as f64 / 1e3)),
        mbit(mean(group, goodput)),
        if group.len() > 1 { format!("{} to {}", mbit(least), mbit(most)) } else { String::new() },
        optional(group, |row| row.second_half_bit_per_s, mbit),
        optional(group, |row| row.fraction_of_limit, percent),
        seconds(mean(group, |row| row.seconds)),
        optional(group, |row| row.first_byte_seconds, seconds),
        optional(group, |row| row.setup_seconds, seconds),
        seconds(mean(group, |row| row.command_seconds)),
        optional(group, |row| row.cpu_seconds_per_gb, |value| format!("{value:.1}")),
        shares(group),
        optional(group, |row| row.machine_cpu_seconds_per_gb, |value| format!("{value:.1}")),
        memory(group),
        optional(group, |row| row.retransmitted_share, |share| format!("{:.2}", share * 100.0)),
        verdict(group),
    ]
}

/// How busy our programs kept a core at terminal and gateway, in percent: `12 and 34`.
pub(super) fn shares(group: &[&Row]) -> String {
    let share = |of: fn(&Row) -> Option<f64>| optional(group, of, |share| format!("{:.0}", share * 100.0));
    let ends = [share(|row| row.terminal_cpu_share), share(|row| row.gateway_cpu_share)];
    ends.into_iter().filter(|end| !end.is_empty()).collect::<Vec<_>>().join(" and ")
}

/// The greatest memory of any of our programs, in MB.
pub(super) fn memory(group: &[&Row]) -> String {
    let most = group.iter().filter_map(|row| row.terminal_peak_bytes.max(row.gateway_peak_bytes)).max();
    most.map_or(String::new(), megabytes)
}

/// What became of the file, the worst of the repetitions.
pub(super) fn verdict(group: &[&Row]) -> String {
    let any = |of: &dyn Fn(&Row) -> bool| group.iter().any(|row| of(row));
    let verdict = if any(&|row| row.integrity_ok == Some(false)) {
        "DIFFERENT"
    } else if any(&|row| row.error.is_some()) {
        "failed"
    } else if any(&|row| row.integrity_ok.is_none()) {
        ""
    } else if any(&|row| !row.complete) {
        "part, identical"
    } else {
        "identical"
    };
    let invalid = if any(&|row| !row.valid) { "INVALID" } else { "" };
    [verdict, invalid].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")
}

/// A line for what the paper reports, if it does.
fn paper(rows: &[Row], scenario: &Scenario) -> Option<Vec<String>> {
    let row = rows.iter().find(|row| row.published_bit_per_s.is_some())?;
    let relation = match row.published_relation.as_deref() {
        Some("about") => "about ",
        Some("more than") => "over ",
        Some("less than") => "under ",
        _ => "",
    };
    let rate = mbit(row.published_bit_per_s?);
    let system = scenario.published.iter().find(|published| {
        use skyhaul_sim::scenario::Figure::{Goodput, LinkRate};
        matches!(published.figure, Goodput(_) | LinkRate(_))
    });
    let system = system.map_or(String::new(), |published| published.system.clone());
    Some(vec!["paper".to_owned(), system, String::new(), format!("{relation}{rate}")])
}

/// Sentences on what was stopped, failed, or measured under bad conditions.
pub(super) fn notes(rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    for row in rows {
        let name = if row.repetition > 1 || rows.iter().any(|other| other.repetition > 1) {
            format!("{} (seed {})", row.scheme, row.seed)
        } else {
            row.scheme.clone()
        };
        if let Some(reason) = &row.unavailable {
            notes.push(format!("{} is not available on this machine: {reason}", row.scheme));
        } else if let Some(error) = &row.error {
            notes.push(format!("{name} failed: {error}"));
        } else if !row.complete && row.integrity_ok.is_some() {
            let whole = row.extrapolated_seconds.map_or("for ever".to_owned(), span);
            notes.push(format!(
                "{name} was stopped after {} with {} of {} MB; at the rate of the second half of that time the whole \
                 file would take {whole}",
                span(row.seconds),
                megabytes(row.received_bytes),
                megabytes(row.bytes),
            ));
        }
        if row.integrity_ok == Some(false) {
            notes.push(format!("{name}: the received bytes DIFFER from those sent"));
        }
        if let Some(reason) = &row.invalid_reason {
            notes.push(format!(
                "{name} is invalid, twice: {reason}. Run it again as root, with other programs closed, or on a slower link"
            ));
        }
    }
    notes.extend(settings(rows));
    notes.dedup();
    notes
}

/// What the schemes set on the hosts, those with the same together. Plain TCP and the proxies' hosts are described by
/// their buffers.
pub(super) fn settings(rows: &[Row]) -> Vec<String> {
    let mut known: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows {
        let plain = row.scheme.starts_with("direct:") || row.scheme.starts_with("skyhaul:");
        let Some(settings) = row.settings.as_deref().filter(|_| !plain) else { continue };
        let scheme = row.scheme.as_str();
        match known.iter_mut().find(|(same, _)| *same == settings) {
            Some((_, schemes)) if schemes.contains(&scheme) => {}
            Some((_, schemes)) => schemes.push(scheme),
            None => known.push((settings, vec![scheme])),
        }
    }
    known.into_iter().map(|(settings, schemes)| format!("{} sets {settings}", schemes.join(", "))).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A run that went well, 64 MiB by FTP.
    pub fn row(scheme: &str, goodput: f64) -> Row {
        let parsed: Option<skyhaul_live::testbed::scheme::Scheme> = scheme.parse().ok();
        let bytes = 1 << 26;
        let cpu = scheme.starts_with("skyhaul").then_some(0.25);
        Row {
            scenario: "p1.down-270".to_owned(),
            on: "hosts".to_owned(),
            scheme: scheme.to_owned(),
            workload: "ftp-upload".to_owned(),
            algorithm: parsed.as_ref().map_or(String::new(), |scheme| scheme.algorithm().to_owned()),
            buffers: parsed.as_ref().map_or(String::new(), |scheme| scheme.buffers().to_owned()),
            bytes,
            received_bytes: bytes,
            complete: true,
            seconds: bytes as f64 * 8.0 / goodput,
            goodput_bit_per_s: goodput,
            limit_bit_per_s: Some(130e6),
            fraction_of_limit: Some(goodput / 130e6),
            second_half_bit_per_s: None,
            extrapolated_seconds: None,
            integrity_ok: Some(true),
            valid: true,
            invalid_reason: None,
            error: None,
            seed: 1,
            repetition: 1,
            setup_seconds: Some(5.4),
            command_seconds: 5.4 + bytes as f64 * 8.0 / goodput,
            first_byte_seconds: None,
            fetches: None,
            terminal_cpu_seconds: cpu,
            gateway_cpu_seconds: cpu,
            cpu_seconds_per_gb: cpu.map(|cpu| 2.0 * cpu / (bytes as f64 / 1e9)),
            terminal_peak_bytes: cpu.map(|_| 50_000_000),
            gateway_peak_bytes: cpu.map(|_| 60_000_000),
            link_lost_packets: 500,
            queue_dropped_packets: 0,
            published_bit_per_s: Some(115e6),
            published_relation: Some("about".to_owned()),
            settings: Some("client, server: default route congctl cubic".to_owned()),
            unavailable: None,
            processor: Some("Test 1.0 GHz".to_owned()),
            processors: Some(2),
            terminal_cpu_share: cpu.map(|_| 0.12),
            gateway_cpu_share: cpu.map(|_| 0.34),
            machine_cpu_seconds: Some(2.0),
            machine_cpu_seconds_per_gb: Some(2.0 / (bytes as f64 / 1e9)),
            retransmitted_packets: Some(520),
            retransmitted_share: Some(0.0112),
            link_offered_bytes: Some(bytes + bytes / 20),
        }
    }

    fn scenario() -> Scenario {
        Scenario::find("p1.down-270").unwrap()
    }

    fn stopped() -> Row {
        Row {
            complete: false,
            received_bytes: 1_200_000,
            seconds: 20.0,
            extrapolated_seconds: Some(1118.0),
            ..row("direct:cubic", 0.48e6)
        }
    }

    #[test]
    fn the_table_names_algorithm_and_buffers_marks_the_best_and_shows_the_paper() {
        let text = text(&[stopped(), row("direct:bbr", 62.5e6), row("skyhaul:rate", 125e6)], &scenario());
        let line = |word: &str| text.lines().find(|line| line.contains(word)).unwrap_or_default();
        assert!(line("direct:bbr").contains("bbr, 128 MiB buffers"), "{text}");
        assert!(line("skyhaul:rate  ").starts_with("* "), "{text}");
        assert!(line("paper").contains("about 115.0"), "{text}");
        let column =
            |word: &str, number: &str| line(word).find(number).map(|at| at + number.find('.').unwrap_or(0));
        assert_eq!(column("direct:bbr ", "62.5"), column("skyhaul:rate  ", "125.0"), "{text}");
        assert!(text.contains("direct:cubic was stopped after 20.0 s with 1.2 of 67.1 MB"), "{text}");
        assert!(text.contains("would take 19 min"), "{text}");
    }

    #[test]
    fn what_a_machine_lacks_is_noted_and_wins_nothing() {
        let missing = Row {
            unavailable: Some("no controller \"sky_boost\"".to_owned()),
            goodput_bit_per_s: 999e6,
            complete: false,
            integrity_ok: None,
            ..row("kernel-one:boost", 0.1)
        };
        assert!(missing.passed(), "nothing went wrong");
        let text = text(&[missing, row("tuned", 1e6), row("direct:bbr", 62.5e6)], &scenario());
        let line = |word: &str| text.lines().find(|line| line.contains(word)).unwrap_or_default();
        assert!(line("kernel-one:boost").trim_end().ends_with("not available"), "{text}");
        assert!(!line("kernel-one:boost").contains("999") && line("direct:bbr").starts_with("* "), "{text}");
        assert!(text.contains("kernel-one:boost is not available on this machine: no controller"), "{text}");
        assert!(text.contains("tuned sets client, server: default route"), "{text}");
    }

    #[test]
    fn a_wrong_file_and_an_invalid_run_can_not_be_overlooked() {
        let mut bad = row("skyhaul:rate", 125e6);
        bad.integrity_ok = Some(false);
        let mut late = row("direct:bbr", 62.5e6);
        (late.valid, late.invalid_reason) = (false, Some("forward: packets late".to_owned()));
        let text = text(&[bad, late], &scenario());
        assert!(text.contains("DIFFERENT") && text.contains("INVALID"), "{text}");
        assert!(text.contains("forward: packets late"), "{text}");
        assert!(!text.contains("* best"), "neither may win: {text}");
    }

    #[test]
    fn repetitions_become_one_line_with_their_spread() {
        let mut second = row("direct:bbr", 70e6);
        (second.repetition, second.seed) = (2, 2);
        let text = text(&[row("direct:bbr", 60e6), second], &scenario());
        assert_eq!(text.matches("direct:bbr").count(), 1, "{text}");
        assert!(
            text.contains("65.0") && text.contains("60.0 to 70.0") && text.contains("seeds 1 to 2"),
            "{text}"
        );
    }

    #[test]
    fn objects_have_a_line_and_a_winner_for_each_size() {
        let object = |scheme, bytes, goodput| Row {
            bytes,
            first_byte_seconds: Some(0.5),
            workload: "http-objects".to_owned(),
            ..row(scheme, goodput)
        };
        let rows = [
            object("direct:bbr", 1_000, 1e3),
            object("direct:bbr", 10_000, 1e4),
            object("skyhaul:bbr", 1_000, 2e3),
            object("skyhaul:bbr", 10_000, 2e4),
        ];
        let text = text(&rows, &scenario());
        assert_eq!(text.lines().filter(|line| line.starts_with("* skyhaul:bbr")).count(), 2, "{text}");
    }

    #[test]
    fn json_is_one_array_with_every_key_of_the_contract() {
        let text = json(&[stopped(), row("skyhaul:rate", 125e6)]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value.as_array().map(Vec::len), Some(2));
        for key in [
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
        ] {
            assert!(value[0].get(key).is_some_and(|value| !value.is_null()), "{key}");
        }
    }

    #[test]
    fn csv_has_the_keys_of_json_as_its_header() {
        let text = csv(&[row("skyhaul:rate", 125e6)]).unwrap();
        let header = text.lines().next().unwrap_or_default();
        let json: serde_json::Value =
            serde_json::from_str(&json(&[row("skyhaul:rate", 125e6)]).unwrap()).unwrap();
        let keys: BTreeSet<&str> = json[0].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(header.split(',').collect::<BTreeSet<_>>(), keys);
        assert_eq!(text.lines().count(), 2);
    }
}
