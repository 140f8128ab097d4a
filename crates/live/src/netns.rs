//! Network namespaces without names: held by file descriptors and by the processes inside them, so the kernel
//! takes them down, with every device, route and rule in them, when the last of these ends, however it ends.
//!
//! [`ensure_privileged`] makes sure that the processes do end: it moves the program into a process id namespace
//! whose members the kernel kills together.

use nix::sched::{setns, unshare, CloneFlags};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

mod privilege;

pub use privilege::ensure_privileged;

/// A network namespace that lives as long as a clone of this handle or a process inside it.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
    file: Arc<OwnedFd>,
}

impl Namespace {
    /// A new namespace with nothing in it but `lo`, which is up. `name` appears in messages only.
    ///
    /// Fails without the rights of [`ensure_privileged`].
    pub fn new(name: &str) -> Result<Namespace, NetnsError> {
        let opened = thread::scope(|scope| {
            scope
                .spawn(|| {
                    unshare(CloneFlags::CLONE_NEWNET)?;
                    File::open("/proc/thread-self/ns/net")
                })
                .join()
                .expect("the thread only makes two system calls")
        });
        let file = opened.map_err(|source| NetnsError::Create { name: name.to_owned(), source })?;
        let namespace = Namespace { name: name.to_owned(), file: Arc::new(file.into()) };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The name given to [`Namespace::new`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run inside the namespace and be killed when the thread that starts it ends.
    ///
    /// The kernel ties the kill to the thread, not to the process (prctl(2), PR_SET_PDEATHSIG): start long-lived
    /// commands from a thread that lives as long.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let file = Arc::clone(&self.file);
        let parent = Pid::this();
        let enter = move || {
            setns(file.as_fd(), CloneFlags::CLONE_NEWNET)?;
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The parent may have ended between the fork and the line above; then no signal will come.
            if Pid::parent() != parent {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        };
        // SAFETY: the closure runs between fork and exec; it makes three system calls and neither allocates nor
        // takes a lock.
        unsafe { command.pre_exec(enter) };
        command
    }

    /// Runs `work` on a new thread inside the namespace and waits for it: sockets and devices it makes belong to
    /// the namespace for good. A panic inside `work` is passed on.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)
                .expect("the descriptor is a network namespace that this process made");
            work()
        };
        match thread::scope(|scope| scope.spawn(inside).join()) {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Runs `ip ARGS` inside, words separated by blanks. The error shows the command and what it printed.
    pub fn ip(&self, args: &str) -> Result<(), NetnsError> {
        let mut command = self.command("ip");
        command.args(args.split_whitespace());
        self.finish(command, &format!("ip {args}"))
    }

    /// Sets a value under /proc/sys inside, for example `net.ipv4.ip_forward` to `1`.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), NetnsError> {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        self.run(|| fs::write(&path, value)).map_err(|source| NetnsError::Command {
            name: self.name.clone(),
            command: format!("sysctl {key}={value}"),
            found: source.to_string(),
        })
    }

    /// Joins two namespaces by a cable: device `a_name` in `a`, `b_name` in `b`. Both are down at first.
    pub fn veth(a: &Namespace, a_name: &str, b: &Namespace, b_name: &str) -> Result<(), NetnsError> {
        let other = b.file.as_raw_fd();
        let words = format!("link add {a_name} type veth peer name {b_name} netns /proc/self/fd/{other}");
        let mut command = a.command("ip");
        command.args(words.split_whitespace());
        let keep = Arc::clone(&b.file);
        let inherit = move || {
            let none = nix::fcntl::FdFlag::empty();
            nix::fcntl::fcntl(keep.as_fd(), nix::fcntl::FcntlArg::F_SETFD(none))?;
            Ok(())
        };
        // SAFETY: one system call on a descriptor the closure keeps open.
        unsafe { command.pre_exec(inherit) };
        a.finish(command, &format!("ip {words}"))
    }

    fn finish(&self, mut command: Command, shown: &str) -> Result<(), NetnsError> {
        let failed =
            |found: String| NetnsError::Command { name: self.name.clone(), command: shown.to_owned(), found };
        let output = command.stdin(Stdio::null()).output().map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "; install the package iproute2",
                _ => "",
            };
            failed(format!("{error}{hint}"))
        })?;
        if output.status.success() {
            return Ok(());
        }
        let printed = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(failed(format!("{} ({printed})", output.status)))
    }
}

/// What can go wrong around namespaces.
#[derive(Debug)]
pub enum NetnsError {
    /// The process has not the rights and cannot get them; the text says what would do.
    Privilege(String),
    /// The kernel refused to make a namespace.
    Create {
        /// Name of the namespace.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A command inside a namespace failed.
    Command {
        /// Name of the namespace.
        name: String,
        /// The command line.
        command: String,
        /// Its exit status and what it printed.
        found: String,
    },
}

impl fmt::Display for NetnsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetnsError::Privilege(text) => out.write_str(text),
            NetnsError::Create { name, source } => {
                write!(out, "network namespace {name}: {source}; root rights would do")
            }
            NetnsError::Command { name, command, found } => {
                write!(out, "in namespace {name}: `{command}` failed: {found}")
            }
        }
    }
}

impl std::error::Error for NetnsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NetnsError::Create { source, .. } => Some(source),
            NetnsError::Privilege(_) | NetnsError::Command { .. } => None,
        }
    }
}
