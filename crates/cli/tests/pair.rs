//! The `pair` command as a user meets it.

use std::path::Path;
use std::process::{Command, Output};

fn pair(folder: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skyhaul"));
    command.args(["pair", "--gateway", "10.77.0.2:4433", "--out"]).arg(folder).args(more);
    command.output().expect("the binary under test runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn pair_writes_four_files_once_and_says_what_to_start() {
    let folder = tempfile::tempdir().unwrap();
    let first = pair(folder.path(), &["--terminal-lan", "lan", "--network", "10.77.1.0/24"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(text(&first.stdout).contains("skyhaul gateway --config"), "{}", text(&first.stdout));
    for file in ["terminal.toml", "terminal.key", "gateway.toml", "gateway.key"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
    let again = pair(folder.path(), &[]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("there already; --force"), "{}", text(&again.stderr));
    assert!(pair(folder.path(), &["--force"]).status.success());
}

#[test]
fn a_plan_without_the_rate_that_its_controller_needs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = pair(folder.path(), &["--controller", "rate", "--gateway-rate", "150 Mbit/s"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("terminal.toml: line ") && message.contains("send_rate"), "{message}");
}
