//! The network namespaces of this host and the controller each of them gives to its connections: one that has ours as
//! its default keeps the code alive after removal, and goes on giving it to new connections.

use nix::sched::{setns, CloneFlags};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

/// Where each namespace keeps its default.
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// Where `ip netns` keeps names.
const NAMED: &str = "/run/netns";

/// A network namespace, held open.
#[derive(Debug)]
pub struct Found {
    /// Its number, as in `ls -l /proc/PID/ns/net`.
    pub number: u64,
    /// A file that leads to it.
    pub path: PathBuf,
    /// Who has it, for messages: a name or a process.
    pub holder: String,
    file: File,
}

impl Found {
    fn open(path: PathBuf, holder: String) -> io::Result<Found> {
        let file = File::open(&path)?;
        Ok(Found { number: file.metadata()?.ino(), path, holder, file })
    }

    /// Runs `work` on a thread inside. Fails when this process may not enter.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let inside = || {
            setns(&self.file, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        };
        match thread::scope(|scope| scope.spawn(inside).join()) {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// The controller of its connections, unless a route or program chooses another.
    pub fn default_controller(&self) -> io::Result<String> {
        Ok(self.run(|| fs::read_to_string(DEFAULT))??.trim().to_owned())
    }

    /// Changes that.
    pub fn set_default_controller(&self, name: &str) -> io::Result<()> {
        self.run(|| fs::write(DEFAULT, name))?
    }
}

/// The namespace of this process.
///
/// # Errors
/// When /proc is not there.
pub fn current() -> io::Result<Found> {
    Found::open("/proc/thread-self/ns/net".into(), "this one".to_owned())
}

/// All that this process can find: its own first, then those with names, with processes inside, and those that are
/// only held open by some process.
///
/// # Errors
/// When /proc is not there.
pub fn all() -> io::Result<Vec<Found>> {
    let current = current()?;
    let own = current.number;
    let mut found = BTreeMap::new();
    for path in entries(Path::new(NAMED)) {
        let holder = format!("{}", path.display());
        note(&mut found, own, &path, || holder.clone());
    }
    let processes = || {
        entries(Path::new("/proc")).into_iter().filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    let holder = |process: &Path| {
        let command = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let number = process.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("process {number} ({})", command.trim())
    };
    for process in processes() {
        note(&mut found, own, &process.join("ns/net"), || holder(&process));
    }
    for process in processes() {
        let held = entries(&process.join("fd")).into_iter().filter(|path| {
            fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("net:["))
        });
        for path in held {
            note(&mut found, own, &path, || holder(&process));
        }
    }
    Ok(std::iter::once(current).chain(found.into_values()).collect())
}

/// Adds the namespace behind `path` if it is a new one. What ends while we look is left out.
fn note(found: &mut BTreeMap<u64, Found>, own: u64, path: &Path, holder: impl Fn() -> String) {
    let Ok(number) = fs::metadata(path).map(|meta| meta.ino()) else { return };
    if number == own || found.contains_key(&number) {
        return;
    }
    if let Ok(namespace) = Found::open(path.to_owned(), holder()) {
        found.insert(number, namespace);
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}
