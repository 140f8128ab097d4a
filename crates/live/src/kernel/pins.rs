//! Controllers that stay: each is held by a file on bpffs until that is removed or the host restarts.

use super::probe::BPFFS;
use super::{load, KernelError, Law, Missing};
use serde::Serialize;
use std::fs;
use std::time::Duration;

/// Where the pins are: one for each controller, called after it, and one for each map they share. A name on bpffs has
/// no dot.
pub const FOLDER: &str = "/sys/fs/bpf/skyhaul";

/// What installing did to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It was not there.
    New,
    /// Its code was replaced; connections keep what they began with, new ones get the new code.
    Replaced,
}

/// A controller as it stands on this host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// Which.
    #[serde(serialize_with = "name")]
    pub law: Law,
    /// Whether connections can choose it.
    pub registered: bool,
    /// Whether it stays when the programs that use it end.
    pub installed: bool,
    /// Whether every user and namespace may choose it.
    pub for_everybody: bool,
    /// How long ago its code was loaded.
    #[serde(rename = "age_s", serialize_with = "seconds")]
    pub age: Option<Duration>,
    /// What its hooks cost, where the kernel counts that (kernel.bpf_stats_enabled).
    pub hooks: Vec<Hook>,
}

/// How often the kernel has called a hook, and how long it took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hook {
    /// The program's name.
    pub name: String,
    /// Calls that were counted.
    pub calls: u64,
    /// Their time together, in nanoseconds, the counting itself included.
    pub time_ns: u64,
}

impl Hook {
    /// Mean time of a call in nanoseconds.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.time_ns as f64 / self.calls as f64)
    }
}

fn name<S: serde::Serializer>(law: &Law, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(law.name())
}

fn seconds<S: serde::Serializer>(age: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    age.map(|age| age.as_secs()).serialize(serializer)
}

/// How to install.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner<'a> {
    /// Of the controllers, those that every user may choose and every network namespace have as its default. The others
    /// only processes with CAP_NET_ADMIN may choose, and routes; also where it was otherwise before.
    pub for_everybody: &'a [Law],
    /// Mount bpffs where it is missing, until the last controller is removed.
    pub mount: bool,
}

/// Installs controllers or brings them up to date: all of them or none.
///
/// # Errors
/// As [`super::Installed::temporarily`], and when there is no bpffs. What was there before is then in force again.
pub fn install(laws: &[Law], manner: Manner<'_>) -> Result<Vec<(Law, Change)>, KernelError> {
    let missing = super::probe::Probe::take().missing_to_install();
    let mounted = match missing {
        Some(Missing::Bpffs) if manner.mount => {
            mount()?;
            true
        }
        Some(missing) => return Err(missing.into()),
        None => false,
    };
    let done = super::undo::remember(mounted).and_then(|()| load::install(laws, manner.for_everybody));
    if done.is_err() && installed().is_empty() {
        // Nothing that was not there before may stay; the first error is the one to show.
        let _ = super::undo::forget();
        if mounted {
            let _ = nix::mount::umount(BPFFS);
        }
    }
    done
}

fn mount() -> Result<(), KernelError> {
    let (kind, none) = (Some("bpf"), None::<&str>);
    nix::mount::mount(kind, BPFFS, kind, nix::mount::MsFlags::empty(), none)
        .map_err(|error| KernelError::File { path: BPFFS.into(), source: error.into() })
}

/// Removes the pins of `laws`, and with the last of them those of the shared maps, except for the learnt paths if
/// `keep_paths`. Returns controllers that connections can choose all the same, because another program holds them.
///
/// Namespaces that have one as their default keep it, and give it to new connections: reset them before.
///
/// # Errors
/// When a pin cannot be removed.
pub fn remove(laws: &[Law], keep_paths: bool) -> Result<Vec<Law>, KernelError> {
    load::remove(laws, keep_paths)?;
    Ok(laws.iter().copied().filter(|&law| !gone(law)).collect())
}

/// Waits until a controller that was let go has left the kernel's list, which it does a moment later.
fn gone(law: Law) -> bool {
    for _ in 0..100 {
        if !listed("available", law) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// The controllers that are installed.
pub fn installed() -> Vec<Law> {
    Law::ALL.into_iter().filter(|law| pin(*law).is_file()).collect()
}

/// All controllers as they stand.
pub fn list() -> Vec<Standing> {
    let standing = |law: Law| {
        let registered = listed("available", law);
        let (age, hooks) = load::running(law).unwrap_or_default();
        Standing {
            law,
            registered,
            installed: pin(law).is_file(),
            for_everybody: listed("allowed", law),
            age,
            hooks,
        }
    };
    Law::ALL.into_iter().map(standing).collect()
}

/// Has the kernel count calls and run time of hooks for as long as this lives; see [`Standing::hooks`].
pub struct Counting(#[allow(dead_code, reason = "held, not read")] std::os::fd::OwnedFd);

impl Counting {
    /// Begins.
    ///
    /// # Errors
    /// When the kernel or a missing right forbids it.
    pub fn begin() -> Result<Counting, KernelError> {
        load::count_run_time().map(Counting)
    }
}

/// The pin of a controller.
pub(super) fn pin(law: Law) -> std::path::PathBuf {
    std::path::Path::new(FOLDER).join(law.name())
}

/// Whether the kernel's list of `available` or `allowed` controllers has this one.
fn listed(which: &str, law: Law) -> bool {
    let list = fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control"));
    list.is_ok_and(|list| list.split_whitespace().any(|name| name == law.algorithm()))
}
