//! Chores of the repository.
//!
//! `cargo xtask ci` runs everything the server runs; `make test` is the same after setting the machine up.

mod ci;
mod fuzz;
mod kernels;
mod ns3;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Chores of the repository.

  cargo xtask ci         format check, house rules, clippy, documentation, every test; the last line counts tests
  cargo xtask lint       the same without the tests
  cargo xtask tidy       the house rules only: what a compiler cannot check
  cargo xtask faults     breaks things under running transfers and says what became of them; as root, 11 minutes
                         (arguments go to `skyhaul faults`: --skip cut-10min takes 4)
  cargo xtask fuzz [--seconds N] [TARGET...]   readers of foreign bytes, each for N seconds (60), with cargo-fuzz;
                         says how far each came (fuzz/README.md)
  cargo xtask root-tests       controllers in the running kernel: register, use and remove each one; part of ci
  cargo xtask root-tests cost  what their hooks cost, and CPU time per GB beside the kernel's reno; wants a quiet machine
  cargo xtask kernels          the same tests on Debian's kernels 6.1 and 6.12, fetched with apt, in an emulated machine;
                         ten minutes each (docs/kernel.md)
  cargo xtask ns3        the simulator beside ns-3, which must be installed; some ten minutes (docs/ns3.md)
  cargo xtask ns3 ours   the same with the kept results of ns-3; a minute, and ns-3 is not needed
  cargo xtask ns3 show   the tables of the last such comparison

Exit status: 0 all is well, 1 something was found, 2 the request could not be carried out.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["ci"] => ci::run(&root(), ci::Extent::Everything),
        ["lint"] => ci::run(&root(), ci::Extent::WithoutTests),
        ["tidy"] => tidy::run(&root()),
        ["faults", ..] => faults(&words[1..]),
        ["fuzz", ..] => fuzz::run(&root(), &words[1..]),
        ["root-tests"] => ci::root_tests(&root(), false),
        ["root-tests", "cost"] => ci::root_tests(&root(), true),
        ["kernels", ..] => kernels::run(&root(), &words[1..]),
        ["ns3"] => ns3::run(&root()),
        ["ns3", "ours"] => ns3::run_ours(&root()),
        ["ns3", "show"] => ns3::show(&root()),
        ["--help" | "-h" | "help"] => {
            println!("{HELP}");
            Ok(true)
        }
        _ => Err(format!(
            "wants one of ci, lint, tidy, faults, fuzz, root-tests, kernels, ns3, ns3 ours, ns3 show, has \"{}\"\n\n{HELP}",
            words.join(" ")
        )),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

/// Builds the product and lets it break things.
fn faults(arguments: &[&str]) -> Result<bool, String> {
    let mut command = ci::cargo_command();
    command.args(["run", "--quiet", "--release", "--locked", "--package", "skyhaul-cli"]);
    command.args(ci::FEATURES).args(["--", "faults"]);
    let status = command.args(arguments).current_dir(root()).status();
    match status.map_err(|error| format!("cargo: {error}"))?.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => Err("skyhaul faults could not be carried out; its own message is above".to_owned()),
    }
}

/// The repository's root: xtask's own package lies right below it.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a package folder has a parent").to_path_buf()
}
