//! The emulated machine: starts it, shows what it says, and takes out of that what counts.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The emulator.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// Longer than all tests take when every instruction is emulated.
const PATIENCE: Duration = Duration::from_secs(45 * 60);

/// How instructions are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accelerator {
    /// By software: slow, and works everywhere.
    #[default]
    Tcg,
    /// By the processor.
    Kvm,
}

impl FromStr for Accelerator {
    type Err = String;

    fn from_str(word: &str) -> Result<Accelerator, String> {
        match word {
            "tcg" => Ok(Accelerator::Tcg),
            "kvm" => Ok(Accelerator::Kvm),
            _ => Err(format!("--accel is tcg or kvm, not \"{word}\"")),
        }
    }
}

/// What was heard of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// What the kernel can do, as `skyhaul kernel probe` says.
    pub abilities: Vec<String>,
    /// How the tests ended; nothing if the machine stopped before.
    pub result: Option<String>,
    /// Their exit status.
    pub status: Option<i32>,
    /// Tests that skipped themselves, with their reason. Here that is a failure.
    pub skipped: Vec<String>,
}

impl Heard {
    /// Whether every test ran and passed.
    pub fn good(&self) -> bool {
        self.status == Some(0) && self.result.is_some() && self.skipped.is_empty()
    }

    /// Takes a line of what the machine says.
    fn take(&mut self, line: &str) {
        for what in ["TCP controllers from BPF", "replacing a running one"] {
            if let Some(answer) = line.trim().strip_prefix(what) {
                self.abilities.push(answer.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.result = Some(result.split("; 0 measured").next().unwrap_or(result).to_owned());
        }
        if let Some(status) = line.strip_prefix("the tests ended with status ") {
            self.status = status.trim().parse().ok();
        }
        if line.starts_with("skipped: ") {
            self.skipped.push(line.to_owned());
        }
    }
}

/// Runs a kernel with an archive as its memory's content until it stops.
///
/// # Errors
/// When the emulator cannot be run, or the machine does not stop within [`PATIENCE`].
pub fn run(kernel: &Path, archive: &Path, accelerator: Accelerator) -> Result<Heard, String> {
    let accelerator: &[&str] = match accelerator {
        Accelerator::Tcg => &["-accel", "tcg,thread=multi", "-cpu", "max"],
        Accelerator::Kvm => &["-accel", "kvm", "-cpu", "host"],
    };
    let mut child = Command::new(PROGRAM)
        .args(accelerator)
        .args(["-m", "1024", "-smp", "2", "-nographic", "-no-reboot", "-nic", "none"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(archive)
        .args(["-append", "console=ttyS0 panic=-1 quiet"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{PROGRAM}: {error}"))?;
    let output = child.stdout.take().expect("it is piped");
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            // Nobody wants the line once the receiver is gone.
            let _ = send.send(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
    });
    let (mut heard, start) = (Heard::default(), Instant::now());
    loop {
        match lines.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
            Ok(line) => {
                println!("  {line}");
                heard.take(&line);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                end(&mut child);
                return Err(format!("the machine did not stop within {} minutes", PATIENCE.as_secs() / 60));
            }
        }
    }
    end(&mut child);
    Ok(heard)
}

/// Ends the emulator, whatever it does.
fn end(child: &mut Child) {
    // It may have ended already; then there is nothing to do.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> Heard {
        let mut heard = Heard::default();
        text.lines().for_each(|line| heard.take(line));
        heard
    }

    #[test]
    fn what_the_machine_says_becomes_a_verdict() {
        let good = heard(
            "  TCP controllers from BPF     ok  taken; cong_control has 2 arguments\n\
             test result: ok. 9 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 3 s\n\
             the tests ended with status 0\n",
        );
        assert_eq!(good.abilities, ["ok taken; cong_control has 2 arguments"]);
        assert_eq!(good.result.as_deref(), Some("ok. 9 passed; 0 failed; 1 ignored"));
        assert!(good.good());
    }

    #[test]
    fn a_machine_that_stops_early_and_a_test_that_skipped_itself_are_failures() {
        assert!(!heard("test result: ok. 9 passed; 0 failed; 0 ignored").good());
        assert!(!heard("the tests ended with status 0").good());
        assert!(!heard(
            "skipped: no BTF\ntest result: ok. 9 passed; 0 failed\nthe tests ended with status 0"
        )
        .good());
    }
}
