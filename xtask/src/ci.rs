//! Everything the server runs: format check, house rules, clippy, documentation, tests.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::tidy;

/// Lints come and go with the compiler, so one version judges: with another one, warnings are shown but do not
/// fail, and a new Rust never turns an unchanged tree red. Raise it when the tree is clean under the next one.
const JUDGE: &str = "1.95";

/// What the product has: kernel controllers. `make build` takes the same, so that nothing is compiled twice.
pub const FEATURES: [&str; 2] = ["--features", "bpf"];

/// How long to wait for more output once the tests have ended: a program they left behind may hold the pipe.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How much to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All steps.
    Everything,
    /// What needs no test to run.
    WithoutTests,
}

/// Runs the steps, all of them even when one fails, says how long each took and returns whether all passed. The
/// last line counts tests; a failed step that is no test counts as one failure. Fails when a step cannot start.
pub fn run(root: &Path, extent: Extent) -> Result<bool, String> {
    let mut failed = Vec::new();
    let mut step =
        |name: &'static str, work: &mut dyn FnMut() -> Result<bool, String>| -> Result<(), String> {
            println!("== {name}");
            let start = Instant::now();
            let passed = work()?;
            let verdict = if passed { "ok" } else { "FAILED" };
            println!("== {name}: {verdict}, {:.1} s\n", start.elapsed().as_secs_f64());
            if !passed {
                failed.push(name);
            }
            Ok(())
        };

    let strict = strict()?;
    step("format", &mut || cargo(root, &["fmt", "--check"], &[]))?;
    step("house rules", &mut || tidy::run(root))?;
    let mut clippy = vec!["clippy", "--release", "--workspace", "--all-targets", "--locked"];
    clippy.extend(FEATURES);
    if strict {
        clippy.extend(["--", "-D", "warnings"]);
    }
    step("clippy", &mut || cargo(root, &clippy, &[]))?;
    // Private items are documented too, so a public one may point to them.
    let doc_flags = if strict { "-D warnings -A rustdoc::private-intra-doc-links" } else { "" };
    let mut doc =
        vec!["doc", "--release", "--workspace", "--no-deps", "--document-private-items", "--locked"];
    doc.extend(FEATURES);
    step("documentation", &mut || cargo(root, &doc, &[("RUSTDOCFLAGS", doc_flags)]))?;

    let mut tally = Tally::default();
    if extent == Extent::Everything {
        step("tests", &mut || {
            let (status, counted) = tests(root, &["--no-fail-fast"], &[])?;
            tally = counted;
            Ok(status.success())
        })?;
    }

    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    if extent == Extent::Everything {
        // A test binary that crashed or did not compile has no count of its own.
        let in_tests = if failed.contains(&"tests") { tally.failed.max(1) } else { tally.failed };
        let other = failed.iter().filter(|name| **name != "tests").count() as u64;
        println!("{}", Tally { failed: in_tests + other, ..tally });
    }
    Ok(failed.is_empty())
}

/// Whether this compiler's warnings count; says so when they do not.
fn strict() -> Result<bool, String> {
    let output = Command::new("rustc")
        .arg("--version")
        .output()
        .map_err(|error| format!("cannot run rustc: {error}"))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let strict = version.starts_with(&format!("rustc {JUDGE}."));
    if !strict {
        println!("{version}: warnings are shown but do not fail, because lints are judged by Rust {JUDGE}\n");
    }
    Ok(strict)
}

fn cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<bool, String> {
    let mut command = cargo_command();
    command.args(arguments).envs(environment.iter().copied()).current_dir(root);
    Ok(command.status().map_err(|error| format!("cannot run cargo: {error}"))?.success())
}

/// The cargo that runs us, without what it tells us about our own package: build scripts that look at it (ring's) would
/// build all anew after each change between `cargo xtask` and cargo itself.
pub fn cargo_command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the tests that register controllers with the kernel, or, for `cost`, the one that measures what these cost.
/// The last line counts tests; returns whether all passed.
pub fn root_tests(root: &Path, cost: bool) -> Result<bool, String> {
    let how: &[&str] = if cost { &["--ignored", "--nocapture", "cost"] } else { &["--test-threads=1"] };
    let (status, tally) = tests(root, &["--test", "kernel"], how)?;
    println!("{tally}");
    Ok(status.success())
}

/// Runs tests of the workspace, as root where that is possible, shows what they say and counts. `which` is for cargo,
/// `how` for the test programs.
fn tests(root: &Path, which: &[&str], how: &[&str]) -> Result<(ExitStatus, Tally), String> {
    let cannot = |error: io::Error| format!("cannot run cargo test: {error}");
    // One pipe for both streams keeps the order of lines.
    let (reader, writer) = io::pipe().map_err(cannot)?;
    let mut command = cargo_command();
    command.args(["test", "--release", "--workspace", "--locked"]);
    command.args(FEATURES).args(which);
    // Everything is built as the user we are; only the finished test programs become root.
    command.args([
        "--config",
        &format!("target.'cfg(unix)'.runner = ['{}']", root.join("scripts/as-root").display()),
    ]);
    // What tests that pass have to say is kept back by default, and with it why they skipped.
    command.args(["--", "--show-output"]).args(how);
    command.current_dir(root).stdin(Stdio::inherit());
    command.stdout(writer.try_clone().map_err(cannot)?).stderr(writer);
    let mut child = command.spawn().map_err(cannot)?;
    // The command holds the pipe's writing ends; without them it ends with the last program that writes to it.
    drop(command);

    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            // The receiver is gone only after the last words; nobody wants the line then.
            let _ = send.send(line);
        }
    });
    let waiting = std::thread::spawn(move || child.wait());
    let mut reader = Reader::default();
    let mut show = |line: String| -> Result<(), String> {
        let Some(shown) = reader.read(&line) else { return Ok(()) };
        writeln!(io::stdout(), "{shown}").map_err(|error| format!("cannot write: {error}"))
    };
    while !waiting.is_finished() {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => show(line)?,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = waiting.join().map_err(|_| "lost cargo test")?.map_err(cannot)?;
    while let Ok(line) = lines.recv_timeout(LAST_WORDS) {
        show(line)?;
    }
    Ok((status, reader.tally))
}

/// Tests counted over many test programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// As the test programs say, those that skipped themselves included.
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Tests that found something missing, said "skipped: " and why, and returned.
    skipped_themselves: u64,
}

/// Reads what `cargo test` prints, line by line.
#[derive(Debug, Default)]
struct Reader {
    tally: Tally,
    /// The test whose output is being shown, while the output of tests that passed is.
    passed_test: Option<String>,
}

impl Reader {
    /// Counts one line and returns what to show of it. Of tests that passed only their reason for skipping is.
    fn read<'a>(&mut self, line: &'a str) -> Option<Cow<'a, str>> {
        if line == "successes:" {
            self.passed_test = Some(String::new());
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.passed_test = None;
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.tally.add(counts);
        }
        let Some(test) = &mut self.passed_test else { return Some(Cow::Borrowed(line)) };
        if let Some(name) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            *test = name.to_owned();
        }
        let reason = line.strip_prefix("skipped: ")?;
        self.tally.skipped_themselves += 1;
        Some(Cow::Owned(format!("skipped {test}: {reason}")))
    }
}

impl Tally {
    /// Adds a result line, as in `ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out`.
    fn add(&mut self, counts: &str) {
        for count in counts.split(['.', ';']) {
            let mut words = count.split_whitespace();
            match (words.next().and_then(|number| number.parse::<u64>().ok()), words.next()) {
                (Some(number), Some("passed")) => self.passed += number,
                (Some(number), Some("failed")) => self.failed += number,
                (Some(number), Some("ignored")) => self.ignored += number,
                _ => {}
            }
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let passed = self.passed.saturating_sub(self.skipped_themselves);
        write!(f, "{passed} passed, {} failed", self.failed)?;
        match self.ignored + self.skipped_themselves {
            0 => Ok(()),
            skipped => write!(f, ", {skipped} skipped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of `output`, and the count.
    fn read(output: &str) -> (Vec<String>, String) {
        let mut reader = Reader::default();
        let shown = output.lines().filter_map(|line| reader.read(line).map(Cow::into_owned)).collect();
        (shown, reader.tally.to_string())
    }

    #[test]
    fn results_of_test_programs_add_up() {
        let output = "test parses_a_line ... ok\n\
            test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s\n\
            test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s";
        let (shown, count) = read(output);
        assert_eq!(count, "10 passed, 2 failed, 1 skipped");
        assert_eq!(shown.join("\n"), output);
    }

    #[test]
    fn a_test_that_skipped_itself_has_not_passed() {
        let output = "successes:\n\n---- needs_root stdout ----\nskipped: needs root\n\n\
            ---- talks stdout ----\nhello\n\nsuccesses:\n    needs_root\n    talks\n\n\
            test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let (shown, count) = read(output);
        assert_eq!(count, "6 passed, 0 failed, 1 skipped");
        assert_eq!(shown.len(), 2, "{shown:?}");
        assert_eq!(shown[0], "skipped needs_root: needs root");
    }

    #[test]
    fn failures_are_shown_in_full() {
        let (shown, _) =
            read("successes:\n    a\n\nfailures:\n\n---- b stdout ----\nskipped: not counted here\n");
        assert_eq!(shown, ["failures:", "", "---- b stdout ----", "skipped: not counted here"]);
    }

    #[test]
    fn nothing_skipped_is_not_mentioned() {
        assert_eq!(Tally { passed: 2, ..Tally::default() }.to_string(), "2 passed, 0 failed");
    }
}
