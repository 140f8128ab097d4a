//! A law of `bpf/`, compiled for this host with its sanitizer, as a program that answers events with windows.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Where the laws are.
pub fn bpf() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf")
}

/// One answer: whole segments, 2^-16 segments beyond them, threshold in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub cwnd: u64,
    pub frac: u32,
    pub ssthresh: u64,
}

impl Answer {
    pub fn segments(&self) -> f64 {
        self.cwnd as f64 + f64::from(self.frac) / 65536.0
    }
}

/// A compiled law.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

impl Program {
    /// The law of this name, compiled once per test run.
    pub fn of(law: &str) -> Program {
        static BUILT: Mutex<BTreeMap<String, Program>> = Mutex::new(BTreeMap::new());
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        built.entry(law.to_owned()).or_insert_with(|| Program::compile(law, &bpf(), law)).clone()
    }

    /// The law with a piece of its header replaced, which must be there.
    pub fn altered(law: &str, from: &str, to: &str) -> Program {
        let name = format!("{law}-altered");
        let folder = scratch().join(&name);
        std::fs::create_dir_all(&folder).expect("the scratch folder takes folders");
        for header in ["fix.h", "law.h", &format!("law_{law}.h")] {
            let text = std::fs::read_to_string(bpf().join(header)).expect("the header is there");
            let text = if header == format!("law_{law}.h") {
                assert!(text.contains(from), "{header} does not contain {from:?}");
                text.replace(from, to)
            } else {
                text
            };
            std::fs::write(folder.join(header), text).expect("the scratch folder takes files");
        }
        Program::compile(law, &folder, &name)
    }

    /// What law and host have in common with the kernel is the text; the compiler finds what is undefined in C.
    fn compile(law: &str, headers: &Path, name: &str) -> Program {
        let program = scratch().join(format!("twin-{name}-{}", std::process::id()));
        let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/twin/driver.c");
        let output = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"])
            .args(["-fsanitize=undefined", "-fno-sanitize-recover=all"])
            .arg(format!("-DLAW={law}"))
            .arg("-include")
            .arg(headers.join(format!("law_{law}.h")))
            .arg(driver)
            .arg("-o")
            .arg(&program)
            .output()
            .expect("cc, which Rust needs for linking too, runs");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "law_{law}.h on this host:\n{complaints}");
        Program(program)
    }

    /// The answers to events, one per line.
    pub fn answer(&self, events: &str) -> Vec<Answer> {
        let mut child = Command::new(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("what was compiled starts");
        let mut input = child.stdin.take().expect("it is piped");
        let output = std::thread::scope(|scope| {
            // A law that was stopped reads no further: its complaint says more than the broken pipe.
            scope.spawn(move || input.write_all(events.as_bytes()).is_ok());
            child.wait_with_output().expect("it ends")
        });
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {complaints}", self.0.display());
        String::from_utf8_lossy(&output.stdout).lines().map(parse).collect()
    }

    /// The answer of one of the functions of fix.h.
    pub fn number(&self, what: char, of: u64) -> u64 {
        self.answer(&format!("{what} {of}\n"))[0].cwnd
    }
}

fn parse(line: &str) -> Answer {
    let numbers: Vec<u64> =
        line.split(' ').map(|word| word.parse().expect("the driver prints numbers")).collect();
    let [cwnd, frac, ssthresh] = numbers[..] else { panic!("{line:?} is not three numbers") };
    Answer { cwnd, frac: u32::try_from(frac).expect("below one segment"), ssthresh }
}

fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}
