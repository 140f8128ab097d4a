//! The rights that namespaces need, and a process id namespace around everything that is started.

use super::NetnsError;
use nix::errno::Errno;
use nix::mount::{mount, MsFlags};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sched::{unshare, CloneFlags};
use nix::sys::signal::{kill, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{fork, getegid, geteuid, ForkResult, Pid};
use std::fs;
use std::os::fd::AsFd;

/// Makes sure that this process may make namespaces and devices, and that nothing it starts outlives it.
///
/// Call it at the start of `main`, before the first thread. It returns in a child process:
///
/// - Without root rights the process first moves into a new user and network namespace, where it is uid 0.
/// - Then it forks twice: a small parent keeps the process id the shell knows, passes on signals and the exit
///   status; below it a first process of a new process id namespace collects orphans; below that this function
///   returns. When the outermost is killed, even by SIGKILL, the kernel ends the whole namespace, so daemons
///   and their children go too.
///
/// Fails with one sentence naming what is missing when user namespaces are switched off or /dev/net/tun cannot
/// be opened.
pub fn ensure_privileged() -> Result<(), NetnsError> {
    if !geteuid().is_root() {
        become_root_inside()?;
    }
    if let Err(error) = fs::File::options().read(true).write(true).open("/dev/net/tun") {
        let remedy = match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "run as root (sudo), or let users in: chmod 666 /dev/net/tun"
            }
            _ => "load the module tun as root (modprobe tun); a container wants --device /dev/net/tun",
        };
        return Err(NetnsError::Privilege(format!("/dev/net/tun cannot be opened ({error}); {remedy}")));
    }
    enclose().map_err(|error| {
        NetnsError::Privilege(format!(
            "a process id namespace cannot be made ({error}); run as root, in a container with --privileged"
        ))
    })
}

/// Moves the process into a user namespace where its user is uid 0.
fn become_root_inside() -> Result<(), NetnsError> {
    let (uid, gid) = (geteuid(), getegid());
    let refused = |step: &str, error: &dyn std::fmt::Display| {
        NetnsError::Privilege(format!(
            "not root, and {step} ({error}); run as root (sudo), or allow user namespaces: \
             sysctl user.max_user_namespaces and, where they exist, kernel.unprivileged_userns_clone=1 and \
             kernel.apparmor_restrict_unprivileged_userns=0"
        ))
    };
    // The network namespace comes along because /proc/sys/net is writable only in one that we own.
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .map_err(|error| refused("a user namespace cannot be made", &error))?;
    // setgroups must be denied before an unprivileged process may map its group: user_namespaces(7).
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {uid} 1")),
        ("gid_map", format!("0 {gid} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| refused(&format!("/proc/self/{file} cannot be written"), &error))?;
    }
    Ok(())
}

/// Forks into a new process id namespace; returns in the innermost process only.
fn enclose() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS)?;
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    let before = SigSet::thread_get_mask()?;
    signals.thread_block()?;
    // Only the outermost process will hold the second half.
    let (outermost, held) = std::io::pipe().map_err(|_| Errno::EMFILE)?;
    // SAFETY: documented to run before the first thread, so the child inherits no lock held by another.
    if let ForkResult::Parent { child } = unsafe { fork() }? {
        watch(child, &signals)
    }
    drop(held);
    // Each of the two dies with its parent; the rest of the namespace dies with the first.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // If the parent ended before the line above, no signal will come, but the pipe is closed.
    if poll(&mut [PollFd::new(outermost.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)? > 0 {
        std::process::exit(2);
    }
    show_own_processes();
    // SAFETY: as above.
    if let ForkResult::Parent { child } = unsafe { fork() }? {
        watch(child, &signals)
    }
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    before.thread_set_mask()
}

/// Gives the new namespace its own /proc, so that `ps` and `kill` inside agree with each other. Where the
/// kernel refuses (a container that masks parts of /proc) the old one works well enough.
fn show_own_processes() {
    let nothing: Option<&str> = None;
    if mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).is_ok() {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let _ = mount(Some("proc"), "/proc", Some("proc"), flags, nothing);
    }
}

/// Passes signals on to `child` and collects ended processes until `child` ends; then ends likewise.
fn watch(child: Pid, signals: &SigSet) -> ! {
    // A descriptor rather than handlers: it tells who sent the signal.
    let Ok(incoming) = SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC) else {
        let _ = kill(child, Signal::SIGKILL);
        std::process::exit(2)
    };
    loop {
        loop {
            match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == child => std::process::exit(code),
                // The shell's convention for a process that a signal ended.
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                    std::process::exit(128 + signal as i32)
                }
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => break,
                Ok(_) => {}
                Err(_) => std::process::exit(2),
            }
        }
        let Ok(Some(signal)) = incoming.read_signal() else {
            continue;
        };
        let from_keyboard = signal.ssi_code == libc::SI_KERNEL;
        match Signal::try_from(signal.ssi_signo as i32) {
            Ok(Signal::SIGCHLD) | Err(_) => {}
            // Ctrl-C reaches every process of the foreground group by itself.
            Ok(Signal::SIGINT | Signal::SIGQUIT) if from_keyboard => {}
            Ok(signal) => {
                let _ = kill(child, signal);
            }
        }
    }
}
