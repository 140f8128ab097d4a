//! Fuzzing: every target for some time, one after the other, and a table of how far each came.
//!
//! Works with any compiler, because it asks for no sanitizer: coverage, assertions, overflow checks, time and memory
//! are what finds things in safe Rust. Inputs found on the way stay in `target/fuzz/`, so that the next run goes on
//! where this one ended; `fuzz/corpus/` is read and never written.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// For each target.
    seconds: u64,
    /// All if empty.
    targets: Vec<String>,
}

/// If nothing is said: enough to see that a target works and to find what lies on the surface.
const SECONDS: u64 = 60;
/// One input may take so long, in seconds: a thousandth of it is usual.
const PATIENCE: u64 = 10;
/// What a target may hold, in MB: the parsers here have bounds far below.
const MEMORY: u64 = 2048;
/// Last words of a target that has found something.
const LAST_WORDS: usize = 60;

/// Runs the targets; false if one has found something.
pub fn run(root: &Path, arguments: &[&str]) -> Result<bool, String> {
    let all = targets(root)?;
    let wanted = wanted(arguments, &all)?;
    let there = super::ci::cargo_command()
        .args(["fuzz", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return Err("cargo-fuzz is missing; `cargo install cargo-fuzz` installs it".to_owned());
    }
    // The versions that the product has, and libfuzzer-sys, which cargo adds.
    let lock = root.join("fuzz/Cargo.lock");
    fs::copy(root.join("Cargo.lock"), &lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    println!("{}", Row::HEAD);
    let (mut fine, mut found) = (true, Vec::new());
    for target in all.iter().filter(|name| wanted.targets.is_empty() || wanted.targets.contains(name)) {
        let row = one(root, target, wanted.seconds)?;
        println!("{}", row.line(target));
        if !row.whole {
            fine = false;
            found.push(target.as_str());
        }
    }
    if !fine {
        println!("\nfailed: {}; the inputs lie in fuzz/artifacts/", found.join(", "));
    }
    Ok(fine)
}

/// The names of all targets, in order.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let cannot = |error: io::Error| format!("{}: {error}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.extension().is_some_and(|end| end == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

fn wanted(arguments: &[&str], all: &[String]) -> Result<Wanted, String> {
    let mut wanted = Wanted { seconds: SECONDS, targets: Vec::new() };
    let mut rest = arguments.iter();
    while let Some(&word) = rest.next() {
        if word == "--seconds" {
            let value = rest.next().copied().unwrap_or_default();
            wanted.seconds =
                value.parse().ok().filter(|seconds| *seconds > 0).ok_or_else(|| {
                    format!("--seconds wants a number of seconds such as 180, has \"{value}\"")
                })?;
        } else if all.iter().any(|name| name == word) {
            wanted.targets.push(word.to_owned());
        } else {
            return Err(format!("no fuzz target is called \"{word}\"; there are {}", all.join(", ")));
        }
    }
    Ok(wanted)
}

/// What came of one target.
#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    executions: u64,
    per_second: u64,
    edges: u64,
    features: u64,
    inputs: u64,
    /// Nothing was found.
    whole: bool,
}

impl Row {
    const HEAD: &'static str = "target      executions  per second   edges  features  inputs  found";

    fn line(&self, target: &str) -> String {
        let Row { executions, per_second, edges, features, inputs, whole } = self;
        let found = if *whole { "nothing" } else { "SOMETHING" };
        format!("{target:<10}{executions:>12}{per_second:>12}{edges:>8}{features:>10}{inputs:>8}  {found}")
    }

    /// Takes what a line of libFuzzer says.
    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1)?.split('/').next()?.parse::<u64>().ok()
        };
        if line.starts_with('#') {
            self.edges = after("cov:").unwrap_or(self.edges);
            self.features = after("ft:").unwrap_or(self.features);
            self.inputs = after("corp:").unwrap_or(self.inputs);
        }
        self.executions = after("stat::number_of_executed_units:").unwrap_or(self.executions);
        self.per_second = after("stat::average_exec_per_sec:").unwrap_or(self.per_second);
    }
}

fn one(root: &Path, target: &str, seconds: u64) -> Result<Row, String> {
    let corpus = root.join("target/fuzz").join(target);
    fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
    let mut command = super::ci::cargo_command();
    command.args(["fuzz", "run", "--sanitizer", "none", "--debug-assertions", target]).arg(&corpus);
    let kept: PathBuf = root.join("fuzz/corpus").join(target);
    if kept.is_dir() {
        command.arg(&kept);
    }
    command.arg("--").args([
        format!("-max_total_time={seconds}"),
        format!("-timeout={PATIENCE}"),
        format!("-rss_limit_mb={MEMORY}"),
        "-print_final_stats=1".to_owned(),
    ]);
    let words = root.join("fuzz/dictionaries").join(format!("{target}.dict"));
    if words.is_file() {
        command.arg(format!("-dict={}", words.display()));
    }
    command.current_dir(root).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let cannot = |error: io::Error| format!("cannot run cargo fuzz: {error}");
    let mut child = command.spawn().map_err(cannot)?;
    let said = child.stderr.take().ok_or("cargo fuzz says nothing")?;
    let (mut row, mut last) = (Row::default(), VecDeque::new());
    for line in BufReader::new(said).split(b'\n') {
        let line = String::from_utf8_lossy(&line.map_err(cannot)?).into_owned();
        row.hear(&line);
        if last.len() == LAST_WORDS {
            last.pop_front();
        }
        last.push_back(line);
    }
    row.whole = child.wait().map_err(cannot)?.success();
    if !row.whole {
        last.iter().for_each(|line| eprintln!("{line}"));
        // Without a single execution it is the build that failed, which finds nothing.
        if row.inputs == 0 && row.executions == 0 && row.edges == 0 {
            return Err(format!("fuzz target {target} could not be run; its own message is above"));
        }
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<String> {
        ["fec", "frame"].map(str::to_owned).to_vec()
    }

    #[test]
    fn all_targets_run_for_a_minute_unless_something_else_is_said() {
        assert_eq!(wanted(&[], &all()), Ok(Wanted { seconds: 60, targets: vec![] }));
        let some = wanted(&["--seconds", "180", "frame"], &all());
        assert_eq!(some, Ok(Wanted { seconds: 180, targets: vec!["frame".to_owned()] }));
    }

    #[test]
    fn a_wrong_word_is_named_with_what_there_is() {
        let told = wanted(&["farme"], &all()).expect_err("no such target");
        assert!(told.contains("\"farme\"") && told.contains("fec, frame"), "{told}");
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "soon"]] {
            assert!(wanted(wrong, &all()).expect_err("no time").contains("--seconds wants"));
        }
    }

    #[test]
    fn what_libfuzzer_says_becomes_a_row() {
        let mut row = Row::default();
        for line in [
            "INFO: seed corpus: files: 10 min: 1b max: 2b total: 3b rss: 40Mb",
            "#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 40Mb",
            "#70\tDONE   cov: 345 ft: 678 corp: 91/11Kb lim: 4096 exec/s: 35 rss: 45Mb",
            "stat::number_of_executed_units: 70",
            "stat::average_exec_per_sec:     35",
        ] {
            row.hear(line);
        }
        let heard =
            Row { executions: 70, per_second: 35, edges: 345, features: 678, inputs: 91, whole: false };
        assert_eq!(row, heard);
        assert_eq!(
            row.line("fec").find("70").map(|at| at + 2),
            Row::HEAD.find("executions").map(|at| at + 10)
        );
    }

    #[test]
    fn every_target_has_its_entry_its_line_in_the_readme_and_something_to_begin_with() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a package has a folder above");
        let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).expect("readable");
        let readme = fs::read_to_string(root.join("fuzz/README.md")).expect("readable");
        let all = targets(root).expect("readable");
        assert!(all.len() >= 12, "{all:?}");
        for target in all {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "{target}");
            assert!(readme.contains(&format!("| `{target}` |")), "{target}");
            let seeds = fs::read_dir(root.join("fuzz/corpus").join(&target)).map_or(0, Iterator::count);
            assert!(seeds > 0, "{target}");
        }
    }
}
