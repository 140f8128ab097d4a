//! Schemes beside each other in Markdown: a table for `docs/schemes.md`, and Table 9 of paper 001 with our figures.

use std::fmt::Write;

use skyhaul_live::testbed::row::Row;
use skyhaul_live::testbed::scheme::Scheme;
use skyhaul_sim::scenario::Scenario;

use super::numbers::{mbit, percent};
use super::rows::{groups, mean, memory, notes, optional, shares, verdict};

/// All rows with what they cost, and the notes below.
pub fn markdown(rows: &[Row], scenario: &Scenario) -> String {
    let header = [
        "scheme",
        "control",
        "buffers",
        "Mbit/s",
        "2nd half",
        "% of limit",
        "resent %",
        "CPU s/GB",
        "% of a core",
        "machine s/GB",
        "memory MB",
        "file",
    ];
    let mut text = caption(rows, scenario);
    line(&mut text, header.map(str::to_owned));
    rule(&mut text, &header, 3);
    for group in groups(rows) {
        let first = group[0];
        let names = [format!("`{}`", first.scheme), first.algorithm.clone(), first.buffers.clone()];
        let figures = match first.unavailable {
            Some(_) => {
                std::array::from_fn(
                    |column| if column == 8 { "not available".to_owned() } else { String::new() },
                )
            }
            None => [
                goodput(&group),
                optional(&group, |row| row.second_half_bit_per_s, mbit),
                optional(&group, |row| row.fraction_of_limit, percent),
                resent(&group),
                optional(&group, |row| row.cpu_seconds_per_gb, |value| format!("{value:.1}")),
                shares(&group),
                optional(&group, |row| row.machine_cpu_seconds_per_gb, |value| format!("{value:.1}")),
                memory(&group),
                verdict(&group),
            ],
        };
        line(&mut text, names.into_iter().chain(figures));
    }
    remarks(&mut text, rows);
    text
}

/// The paper's schemes and what it says of them, our figures beside. The stored text of the paper lacks the table itself;
/// its sentences stand in sections 1 to 4 and 7.
pub fn table_9(rows: &[Row], scenario: &Scenario) -> String {
    let header = [
        "scheme",
        "technical route",
        "the paper's result",
        "ours",
        "Mbit/s",
        "% of limit",
        "resent %",
        "CPU s/GB",
    ];
    let mut text = format!("Table 9 of paper 001 with our figures. {}", caption(rows, scenario));
    line(&mut text, header.map(str::to_owned));
    rule(&mut text, &header, 4);
    let groups = groups(rows);
    let number = |group: &[&Row]| group[0].scheme.parse::<Scheme>().map_or(None, |scheme| scheme.in_paper());
    let slow = scenario.id.starts_with("p1.up");
    for entry in &ENTRIES {
        let said = if slow { entry.slow } else { entry.fast };
        let names =
            [entry.number.map_or("-".to_owned(), |n| n.to_string()), entry.route.to_owned(), said.to_owned()];
        let ours: Vec<_> = groups.iter().filter(|group| number(group) == entry.number).collect();
        if ours.is_empty() {
            line(&mut text, names.iter().cloned().chain(std::array::from_fn::<_, 5, _>(|_| String::new())));
        }
        for (index, group) in ours.into_iter().enumerate() {
            let names = names.iter().map(|name| if index == 0 { name.clone() } else { String::new() });
            let scheme = format!("`{}`", group[0].scheme);
            let figures = match group[0].unavailable {
                Some(_) => ["not available".to_owned(), String::new(), String::new(), String::new()],
                None => [
                    goodput(group),
                    optional(group, |row| row.fraction_of_limit, percent),
                    resent(group),
                    optional(group, |row| row.cpu_seconds_per_gb, |value| format!("{value:.1}")),
                ],
            };
            line(&mut text, names.chain([scheme]).chain(figures));
        }
    }
    remarks(&mut text, rows);
    text
}

fn goodput(group: &[&Row]) -> String {
    let value = |row: &Row| row.goodput_bit_per_s;
    let rates = group.iter().map(|row| value(row));
    match (rates.clone().reduce(f64::min), rates.reduce(f64::max)) {
        (Some(least), Some(most)) if group.len() > 1 => {
            format!("{} ({} to {})", mbit(mean(group, value)), mbit(least), mbit(most))
        }
        _ => mbit(mean(group, value)),
    }
}

fn resent(group: &[&Row]) -> String {
    optional(group, |row| row.retransmitted_share, |share| format!("{:.2}", share * 100.0))
}

/// What was measured, with which size, time limit and processor.
fn caption(rows: &[Row], scenario: &Scenario) -> String {
    let Some(first) = rows.first() else { return format!("{}: no results\n\n", scenario.id) };
    let seeds: std::collections::BTreeSet<u64> = rows.iter().map(|row| row.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let machine = match (&first.processor, first.processors) {
        (Some(name), Some(count)) => format!("{count} x {name}"),
        (Some(name), None) => name.clone(),
        _ => "a processor that is not known".to_owned(),
    };
    let size = match first.workload.starts_with("iperf3") {
        true => String::new(),
        false => format!(" of {}", skyhaul_cc::units::Bytes(first.bytes)),
    };
    format!(
        "`{}`: {}; {}{size}, on {}, seed {}; {machine}\n\n",
        scenario.id,
        scenario.title,
        first.workload,
        first.on,
        seeds.join(", ")
    )
}

fn remarks(text: &mut String, rows: &[Row]) {
    text.push('\n');
    for note in notes(rows) {
        // A bar would end a cell, and a star begin emphasis.
        let _ = writeln!(text, "- {}", note.replace('|', "/").replace('*', "\\*"));
    }
}

fn line(text: &mut String, cells: impl IntoIterator<Item = String>) {
    text.push('|');
    for cell in cells {
        let _ = write!(text, " {} |", cell.replace('|', "/"));
    }
    text.push('\n');
}

/// The line below the header: words to the left, figures to the right.
fn rule(text: &mut String, header: &[&str], words: usize) {
    let last = header.len() - 1;
    let align = |index: usize| {
        if index < words || (index == last && header[last] == "file") {
            "---|"
        } else {
            "--:|"
        }
    };
    let rules: String = (0..header.len()).map(align).collect();
    let _ = writeln!(text, "|{rules}");
}

/// A line of the paper's summary.
struct Entry {
    number: Option<u8>,
    route: &'static str,
    /// In the direction of 100 or 150 Mbit/s.
    fast: &'static str,
    /// In the direction of 10 Mbit/s.
    slow: &'static str,
}

const ENTRIES: [Entry; 7] = [
    Entry {
        number: Some(0),
        route: "existing TCP",
        fast: "about 2 of 150 Mbit/s (section 1); at most 1.15 by \"more than 100 times\" (7)",
        slow: "no figure; at most 1.33 by \"more than 7 times\" (section 7)",
    },
    Entry {
        number: Some(1),
        route: "double-side TCP parameters (lightweight)",
        fast: "\"actual verification effect is poor\", no figure (2.1)",
        slow: "\"actual verification effect is poor\", no figure (2.1)",
    },
    Entry {
        number: Some(2),
        route: "double-side TCP kernel (heavyweight)",
        fast: "20 to 30 of 100 Mbit/s with BBR (2.2)",
        slow: "8 of 10 Mbit/s with BBR (2.2)",
    },
    Entry {
        number: Some(3),
        route: "ground-side TCP kernel (heavyweight)",
        fast: "\"limited\", no figure; better than scheme 4 (2.3, 2.4)",
        slow: "\"limited\", no figure; better than scheme 4 (2.3, 2.4)",
    },
    Entry {
        number: Some(4),
        route: "UDP/FEC tunnel (heavyweight)",
        fast: "0.301 of 100 Mbit/s (2.4)",
        slow: "0.214 of 10 Mbit/s (2.4)",
    },
    Entry {
        number: Some(5),
        route: "TCP-QUIC proxy (lightweight)",
        fast: "about 115 of 150 Mbit/s at 540 ms, over 44 at 800 ms (3)",
        slow: "about 9.3 of 10 Mbit/s (3)",
    },
    Entry {
        number: None,
        route: "split TCP at one end or both, without QUIC",
        fast: "not in the paper",
        slow: "not in the paper",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::rows::tests::row;

    fn rows() -> Vec<Row> {
        let missing = Row { unavailable: Some("no BTF".to_owned()), ..row("kernel-one:boost", 1.0) };
        vec![
            row("direct:cubic", 0.5e6),
            row("tuned", 0.6e6),
            missing,
            row("fec-tunnel:adaptive", 75e6),
            row("pep-split:bbr", 100e6),
            row("skyhaul:skyhaul", 120e6),
        ]
    }

    fn scenario(id: &str) -> Scenario {
        Scenario::find(id).unwrap()
    }

    /// Every line of a table has as many cells as its header.
    fn assert_is_a_table(text: &str) {
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        let cells = |line: &str| line.matches('|').count();
        assert!(lines.len() > 3 && lines.iter().all(|line| cells(line) == cells(lines[0])), "{text}");
    }

    #[test]
    fn markdown_has_a_line_for_each_scheme_and_names_the_processor() {
        let text = markdown(&rows(), &scenario("p1.down-270"));
        assert_is_a_table(&text);
        assert!(text.contains("| `skyhaul:skyhaul` | skyhaul | default | 120.0 |"), "{text}");
        assert!(text.contains("2 x Test 1.0 GHz") && text.contains("12 and 34"), "{text}");
        assert!(
            text.contains("not available") && text.contains("- kernel-one:boost is not available"),
            "{text}"
        );
    }

    #[test]
    fn table_9_has_each_scheme_of_the_paper_with_its_own_words_and_ours_beside() {
        let text = table_9(&rows(), &scenario("p1.down-270"));
        assert_is_a_table(&text);
        for words in
            ["0.301 of 100 Mbit/s (2.4) | `fec-tunnel:adaptive` | 75.0", "about 115", "| 2 | double-side"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(table_9(&rows(), &scenario("p1.up-270")).contains("0.214 of 10 Mbit/s"));
    }

    #[test]
    fn repetitions_share_a_line_with_their_spread() {
        let mut second = row("tuned", 0.8e6);
        (second.repetition, second.seed) = (2, 2);
        let text = markdown(&[row("tuned", 0.6e6), second], &scenario("p1.down-270"));
        assert!(text.contains("| 0.700 (0.600 to 0.800) |") && text.contains("seed 1, 2"), "{text}");
    }
}
