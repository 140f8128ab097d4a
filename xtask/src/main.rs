//! Chores of the repository.
//!
//! `cargo xtask ci` runs everything the server runs; `make test` is the same after setting the machine up.

mod ci;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Chores of the repository.

  cargo xtask ci      format check, house rules, clippy, documentation, every test; the last line counts tests
  cargo xtask lint    the same without the tests
  cargo xtask tidy    the house rules only: what a compiler cannot check

Exit status: 0 all is well, 1 something was found, 2 the request could not be carried out.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["ci"] => ci::run(&root(), ci::Extent::Everything),
        ["lint"] => ci::run(&root(), ci::Extent::WithoutTests),
        ["tidy"] => tidy::run(&root()),
        ["--help" | "-h" | "help"] => {
            println!("{HELP}");
            Ok(true)
        }
        _ => Err(format!("wants one of ci, lint, tidy, has \"{}\"\n\n{HELP}", words.join(" "))),
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

/// The repository's root: xtask's own package lies right below it.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a package folder has a parent").to_path_buf()
}
