//! Firewall rules and routes that lead other hosts' TCP connections to our sockets, gone when we are gone.
//!
//! Both are held by one guard process, a shell whose standard input is a pipe from us: first `nft` reads the rules
//! from it and stays, as owner of its table, until the pipe closes; then the shell removes the route. So a clean
//! stop and a SIGKILL take the same way, and traffic flows directly again instead of into a hole.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use tracing::error;

pub use rules::{Forwarding, Rules};

mod rules;

/// Rules and routes in force. Dropping it removes them.
#[derive(Debug)]
pub struct Interception {
    guard: Child,
    stopping: Arc<AtomicBool>,
}

/// Why connections cannot be intercepted.
#[derive(Debug)]
pub enum InterceptError {
    /// Another process in this network namespace uses the same mark.
    Busy(u32),
    /// A program could not be started.
    Start(&'static str, io::Error),
    /// A program said no.
    Said(&'static str, String),
}

impl Interception {
    /// Puts the rules in force. What a killed predecessor may have left behind is removed first.
    ///
    /// # Errors
    /// When the rights or programs (`nft`, `ip`, `sh`) are missing, the kernel refuses a rule, or another process in
    /// this network namespace uses the same mark.
    pub fn start(rules: &Rules) -> Result<Interception, InterceptError> {
        let lock = take_lock(rules.mark)?;
        let families = families();
        remove_routes(rules.mark);
        let mut guard = guard(rules.mark, &lock).map_err(|error| InterceptError::Start("sh", error))?;
        // From here on the guard alone holds the lock, until it has cleaned up.
        drop(lock);
        let stopping = Arc::new(AtomicBool::new(false));
        let complaints = listen_to(&mut guard, Arc::clone(&stopping));
        let mut interception = Interception { guard, stopping };
        interception.feed(rules, &complaints)?;
        for family in families {
            let mark = rules.mark;
            ip(&format!("{family} route replace local default dev lo table {mark}"))?;
            ip(&format!("{family} rule add pref {mark} fwmark {mark} lookup {mark}"))?;
        }
        Ok(interception)
    }

    /// Writes the rules to nft and waits until the table is there. nft shows its complaints at once and nothing else.
    fn feed(&mut self, rules: &Rules, complaints: &Receiver<String>) -> Result<(), InterceptError> {
        let pipe = self.guard.stdin.as_mut().expect("the guard was made with a pipe");
        writeln!(pipe, "{rules}").map_err(|error| InterceptError::Start("nft", error))?;
        let started = Instant::now();
        loop {
            match complaints.recv_timeout(POLL) {
                Ok(first) => {
                    let mut lines = vec![first];
                    while let Ok(line) = complaints.recv_timeout(POLL) {
                        lines.push(line);
                    }
                    return Err(InterceptError::Said("nft", lines.join("; ")));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(InterceptError::Said("nft", "ended at once".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let list = Command::new("nft")
                .args(["list", "table", "inet", &rules.table()])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if list.map_err(|error| InterceptError::Start("nft", error))?.success() {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                return Err(InterceptError::Said("nft", format!("no table after {PATIENCE:?}")));
            }
        }
    }
}

impl Forwarding {
    /// What this host, or this network namespace, does now.
    pub fn here() -> Forwarding {
        let is_on = |file: &str| fs::read_to_string(file).is_ok_and(|text| text.trim() != "0");
        Forwarding {
            v4: is_on("/proc/sys/net/ipv4/ip_forward"),
            v6: is_on("/proc/sys/net/ipv6/conf/all/forwarding"),
        }
    }

    /// One line on what is missing and the command that changes it; `None` if nothing is.
    pub fn warning(self) -> Option<String> {
        let has_ipv6 = families().len() > 1;
        let missing = [
            ("IPv4", "net.ipv4.ip_forward=1", !self.v4),
            ("IPv6", "net.ipv6.conf.all.forwarding=1", !self.v6 && has_ipv6),
        ];
        let missing: Vec<_> = missing.into_iter().filter(|&(.., is_missing)| is_missing).collect();
        let all = |part: fn(&(&'static str, &'static str, bool)) -> &'static str, between: &str| {
            missing.iter().map(part).collect::<Vec<_>>().join(between)
        };
        (!missing.is_empty()).then(|| {
            format!(
                "this host does not forward {}: when this program ends, connections of its clients end with it \
                 instead of taking their usual way; `sysctl -w {}` changes that",
                all(|one| one.0, " and "),
                all(|one| one.1, " ")
            )
        })
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        drop(self.guard.stdin.take());
        // nft ends at the end of its input and three calls of ip follow.
        let _ = self.guard.wait();
    }
}

/// Starts the guard, with the lock in its hands, in a process group of its own: a Ctrl-C in our terminal is ours to
/// handle.
fn guard(mark: u32, lock: &UnixListener) -> io::Result<Child> {
    let script = format!("nft -i >/dev/null; {}", removal(mark).join(" 2>/dev/null; ") + " 2>/dev/null");
    let lock = lock.try_clone()?;
    let mut command = Command::new("sh");
    command.args(["-c", &script]).process_group(0);
    // nft keeps a history of what it was told in the home directory, which is none of the operator's.
    command.env("HOME", "/dev/null");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: the closure makes one system call on a descriptor that it owns, and neither allocates nor locks.
    unsafe {
        command.pre_exec(move || {
            fcntl(&lock, FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(())
        });
    }
    command.spawn()
}

/// Passes on what the guard prints, line by line, and says so when it ends before its time.
fn listen_to(guard: &mut Child, stopping: Arc<AtomicBool>) -> Receiver<String> {
    let (tell, complaints) = channel();
    let errors = guard.stderr.take().expect("the guard was made with a pipe");
    thread::spawn(move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            // Nobody listens once the rules are in force.
            let _ = tell.send(line.trim().to_owned());
        }
        if !stopping.load(Ordering::Relaxed) {
            error!("interception has ended: its nft process is gone; restart to intercept again");
        }
    });
    complaints
}

/// One process per mark and network namespace. An abstract socket's name is per namespace and leaves no file; the
/// guard inherits it, so a successor waits until the guard of a killed process has cleaned up.
fn take_lock(mark: u32) -> Result<UnixListener, InterceptError> {
    let started = Instant::now();
    loop {
        let name = UnixAddr::from_abstract_name(format!("skyhaul-route-mark-{mark}"));
        match name.and_then(|name| UnixListener::bind_addr(&name)) {
            Ok(lock) => return Ok(lock),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                return Err(InterceptError::Start("the lock", error));
            }
            Err(_) if started.elapsed() > PATIENCE => return Err(InterceptError::Busy(mark)),
            Err(_) => thread::sleep(POLL),
        }
    }
}

fn families() -> Vec<&'static str> {
    let has_ipv6 = Path::new("/proc/thread-self/net/if_inet6").exists();
    if has_ipv6 {
        vec!["-4", "-6"]
    } else {
        vec!["-4"]
    }
}

/// The commands that remove the routes of a mark.
fn removal(mark: u32) -> Vec<String> {
    ["-4", "-6"]
        .iter()
        .flat_map(|family| {
            [
                format!("ip {family} rule del pref {mark} fwmark {mark} lookup {mark}"),
                format!("ip {family} route flush table {mark}"),
            ]
        })
        .collect()
}

/// Removes what a predecessor left behind that died together with its guard.
fn remove_routes(mark: u32) {
    for line in removal(mark) {
        let mut words = line.split_whitespace();
        let Some(program) = words.next() else { continue };
        // Fails when there is nothing to remove, which is the usual case. A rule can be there more than once.
        let remove = || {
            let quiet = Command::new(program)
                .args(words.clone())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            quiet.is_ok_and(|status| status.success())
        };
        if line.contains("rule del") {
            (0..MAX_LEFTOVERS).take_while(|_| remove()).count();
        } else {
            remove();
        }
    }
}

fn ip(args: &str) -> Result<(), InterceptError> {
    let output = Command::new("ip")
        .args(args.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| InterceptError::Start("ip", error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(InterceptError::Said("ip", format!("`ip {args}`: {said}")))
}

impl fmt::Display for InterceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot intercept connections: ")?;
        match self {
            InterceptError::Busy(mark) => write!(
                f,
                "another skyhaul uses route mark {mark} here; give this one its own [limits] route_mark"
            ),
            InterceptError::Start(what, error) => write!(f, "{what}: {error}"),
            InterceptError::Said(what, text) => {
                write!(f, "{what} says: {text}")?;
                if text.contains("not found") {
                    f.write_str("; install the packages nftables and iproute2")
                } else if text.contains("not permitted") {
                    f.write_str("; root would do")
                } else {
                    Ok(())
                }
            }
        }
    }
}
impl std::error::Error for InterceptError {}

const POLL: Duration = Duration::from_millis(10);
/// For programs that take milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
const MAX_LEFTOVERS: usize = 16;
