//! Rules on Rust code: who may know the time, who may name a protocol, who may multiply by eight, how long a
//! file may be.

use super::source::{Allow, Source};
use super::{Finding, Weight};

/// Crates that decide and never act.
const PURE: [&str; 4] = ["crates/cc/", "crates/pep/", "crates/sim/", "crates/lab/"];

/// What a pure crate never names, and what it does instead.
const NOT_PURE: [(&[&str], &str); 5] = [
    (&["Instant::now", "SystemTime::now", "UNIX_EPOCH"], "time is an argument"),
    (
        &["thread::sleep", "thread::spawn", "thread::scope", "tokio"],
        "threads and waiting belong in skyhaul-live",
    ),
    (
        &["UdpSocket", "TcpStream", "TcpListener", "UnixStream", "UnixListener"],
        "sockets belong in skyhaul-live",
    ),
    (
        &["thread_rng", "rand::rng", "from_os_rng", "OsRng", "getrandom", "SystemRandom"],
        "chance comes from a seed",
    ),
    (&["HashMap", "HashSet"], "order must be fixed: BTreeMap, BTreeSet"),
];

const CONTROLLERS: &str = "crates/cc/src/controllers/";

/// Worlds a controller knows nothing of; their names may stand in comments only.
const FOREIGN_TO_CONTROLLERS: [&str; 3] = ["quic", "tcp", "linux"];

/// The one file that knows how many bits a byte has.
const UNITS: &str = "crates/cc/src/units.rs";

/// Longer files are probably two rooms in one.
const MANY_LINES: usize = 701;
const TOO_MANY_LINES: usize = 1001;

/// Names of the rules that a comment can lift.
const RULES: [&str; 3] = ["pure", "controllers", "eight"];

/// All findings in one file.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let source = Source::parse(text);
    let mut hits = Vec::new();
    if PURE.iter().any(|pure| path.starts_with(pure)) && !is_test_file(path) {
        hits.extend(impure(&source));
    }
    if path.starts_with(CONTROLLERS) {
        hits.extend(foreign(&source));
    }
    if path.starts_with("crates/") && path != UNITS && !is_test_file(path) {
        hits.extend(eights(&source));
    }
    let mut findings = weigh(path, &source, hits);
    findings.extend(length(path, text));
    findings
}

/// A rule broken on a line, before exceptions.
struct Hit {
    rule: &'static str,
    line: usize,
    message: String,
}

/// Tests may draw a key from the system; clippy keeps the clock and the network from them too.
fn impure(source: &Source) -> Vec<Hit> {
    let mut hits = Vec::new();
    for (line, code) in source.product_lines() {
        for (names, instead) in NOT_PURE {
            for name in names.iter().filter(|name| has_word(code, name)) {
                hits.push(Hit {
                    rule: "pure",
                    line,
                    message: format!("a pure crate names {name}; {instead}"),
                });
            }
        }
    }
    hits
}

fn foreign(source: &Source) -> Vec<Hit> {
    let mut hits = Vec::new();
    for (index, line) in source.code_and_strings.lines().enumerate() {
        let line = line.to_lowercase();
        for name in FOREIGN_TO_CONTROLLERS.iter().filter(|name| line.contains(**name)) {
            let message =
                format!("a controller names {name}; it knows windows and events, hosts know {name}");
            hits.push(Hit { rule: "controllers", line: index + 1, message });
        }
    }
    hits
}

fn eights(source: &Source) -> Vec<Hit> {
    let message = "multiplies or divides by eight; Bytes, Rate and Duration convert into each other";
    let guilty = source.product_lines().filter(|(_, code)| scales_by_eight(code));
    guilty.map(|(line, _)| Hit { rule: "eight", line, message: message.to_owned() }).collect()
}

/// Whether a line of code has `* 8`, `/ 8`, `8 *`, or a method such as `saturating_mul(8)`.
fn scales_by_eight(line: &str) -> bool {
    numbers(line).any(|(start, end)| {
        let (before, number, after) = (line[..start].trim_end(), &line[start..end], line[end..].trim_start());
        let method = before.strip_suffix('(').map(|before| {
            before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
        });
        is_eight(number)
            && (before.ends_with(['*', '/'])
                || before.ends_with("*=")
                || before.ends_with("/=")
                || after.starts_with('*')
                || method.is_some_and(|name| name.contains("mul") || name.contains("div")))
    })
}

/// Where the number literals of a line start and end.
fn numbers(line: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || loop {
        let start = from + line[from..].find(|c: char| c.is_ascii_digit())?;
        let rest = &line[start..];
        // A point belongs to the number only before a digit: `0..8` is two numbers, `8.max(1)` is one and a call.
        let part_of_number = |(at, c): (usize, char)| {
            c.is_alphanumeric()
                || c == '_'
                || (c == '.' && rest[at + 1..].starts_with(|next: char| next.is_ascii_digit()))
        };
        let length =
            rest.char_indices().find(|found| !part_of_number(*found)).map_or(rest.len(), |(at, _)| at);
        from = start + length;
        let in_a_name = line[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if !in_a_name {
            return Some((start, from));
        }
    })
}

/// Whether a literal is worth eight: `8`, `8.0`, `8_u64`, `8f64`.
fn is_eight(number: &str) -> bool {
    let value = number.split(['u', 'i', 'f']).next().unwrap_or_default().replace('_', "");
    value.parse::<f64>().is_ok_and(|value| value == 8.0)
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.contains("/benches/") || path.ends_with("/tests.rs")
}

/// Applies the exceptions, and finds fault with those that have no rule, no reason or no use.
fn weigh(path: &str, source: &Source, hits: Vec<Hit>) -> Vec<Finding> {
    let covers = |allow: &Allow, hit: &Hit| {
        allow.rule == hit.rule && (allow.line == hit.line || source.next_code_line(allow.line) == hit.line)
    };
    let complain = |allow: &Allow| {
        let message = if !RULES.contains(&allow.rule.as_str()) {
            format!("no rule is called \"{}\"; there are {}", allow.rule, RULES.join(", "))
        } else if allow.reason.is_empty() {
            format!("an exception wants a reason: // tidy: allow({}): REASON", allow.rule)
        } else if !hits.iter().any(|hit| covers(allow, hit)) {
            format!("nothing here breaks the rule \"{}\"; the exception can go", allow.rule)
        } else {
            return None;
        };
        Some(Finding::error(path, allow.line, message))
    };
    let mut findings: Vec<Finding> = source.allows.iter().filter_map(complain).collect();
    let bare = hits.iter().filter(|hit| !source.allows.iter().any(|allow| covers(allow, hit)));
    findings.extend(bare.map(|hit| {
        let way_out = format!("(or say why not: // tidy: allow({}): REASON)", hit.rule);
        Finding::error(path, hit.line, format!("{} {way_out}", hit.message))
    }));
    findings
}

fn length(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    let weight = match lines {
        TOO_MANY_LINES.. => Weight::Error,
        MANY_LINES.. => Weight::Warning,
        _ => return None,
    };
    let message =
        format!("{lines} lines; a file of {MANY_LINES} is probably two rooms in one, {TOO_MANY_LINES} fail");
    Some(Finding { path: path.to_owned(), line: lines, weight, message })
}

/// Whether `line` has `word` with no letter, digit or underscore on either side.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let alone = |at: usize| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part);
    line.match_indices(word).any(|(at, _)| alone(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(path, text).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_pure_crate_must_not_read_the_clock() {
        let text = "// Instant::now is fine here\nlet a = \"Instant::now\";\nlet b = Instant::now();\n";
        let found = messages("crates/sim/src/clock.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("crates/sim/src/clock.rs:3: a pure crate names Instant::now"),
            "{found:?}"
        );
        assert_eq!(messages("crates/live/src/clock.rs", text), [""; 0]);
        assert_eq!(messages("crates/sim/tests/clock.rs", text), [""; 0]);
    }

    #[test]
    fn words_are_matched_whole() {
        assert!(has_word("use tokio::net;", "tokio"));
        assert!(!has_word("let tokios = 1;", "tokio"));
        assert!(!has_word("operand::rng", "rand::rng"));
        assert!(!has_word("MyHashMap", "HashMap"));
    }

    #[test]
    fn a_controller_may_cite_but_not_name_a_protocol() {
        let path = "crates/cc/src/controllers/hybla.rs";
        assert_eq!(messages(path, "//! As TCP does.\nfn f() {} // Linux too\n"), [""; 0]);
        let found = messages(path, "let tcpInfo = 1;\nlet name = \"QUIC\";\n");
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn scaling_by_eight_is_seen_in_every_spelling() {
        for line in [
            "a * 8",
            "a*8;",
            "a / 8.0",
            "8 * a",
            "a *= 8",
            "a /= 8_u64",
            "a.saturating_mul(8)",
            "a.div_ceil(8)",
        ] {
            assert!(scales_by_eight(line), "{line}");
        }
        for line in [
            "a * 80", "a + 8", "a[8]", "0..8", "b8 * 2", "a * 1.8", "f(8)", "a * 8.5", "1 / x8", "a >> 8",
            "64 / a",
        ] {
            assert!(!scales_by_eight(line), "{line}");
        }
    }

    #[test]
    fn only_units_and_tests_scale_by_eight() {
        let text = "let a = b * 8;\n";
        assert_eq!(messages("crates/live/src/a.rs", text).len(), 1);
        assert_eq!(messages("crates/cc/src/units.rs", text), [""; 0]);
        assert_eq!(messages("crates/live/tests/a.rs", text), [""; 0]);
        assert_eq!(
            messages("crates/live/src/a.rs", "#[cfg(test)]\nmod tests {\n    let a = b * 8;\n}\n"),
            [""; 0]
        );
    }

    #[test]
    fn an_exception_lifts_a_rule_for_one_line() {
        let path = "crates/cc/src/parts/rtt.rs";
        let above = "// tidy: allow(eight): RFC 6298 §2\nlet a = b / 8;\n";
        assert_eq!(messages(path, above), [""; 0]);
        assert_eq!(messages(path, "let a = b / 8; // tidy: allow(eight): RFC 6298 §2\n"), [""; 0]);
        let twice = format!("{above}let c = d / 8;\n");
        assert_eq!(messages(path, &twice).len(), 1);
    }

    #[test]
    fn an_exception_needs_a_known_rule_a_reason_and_a_use() {
        let path = "crates/cc/src/parts/rtt.rs";
        let cases = [
            ("let a = b / 8; // tidy: allow(eight)\n", "wants a reason"),
            ("let a = b; // tidy: allow(nine): why\n", "no rule is called"),
            ("let a = b; // tidy: allow(eight): why\n", "can go"),
        ];
        for (text, wanted) in cases {
            let found = messages(path, text);
            assert!(found.len() == 1 && found[0].contains(wanted), "{text:?} gives {found:?}");
        }
    }

    #[test]
    fn long_files_are_named_and_very_long_ones_fail() {
        let weight = |lines: usize| length("a.rs", &"\n".repeat(lines)).map(|found| found.weight);
        assert_eq!(weight(700), None);
        assert_eq!(weight(701), Some(Weight::Warning));
        assert_eq!(weight(1001), Some(Weight::Error));
    }
}
