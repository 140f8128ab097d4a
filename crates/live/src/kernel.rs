//! Congestion controllers in the kernel's TCP: the same laws as in `skyhaul_cc`, in integer C (`bpf/`), compiled into
//! this program and registered through BPF struct_ops. The kernel's own code sends, repairs and undoes; ours only
//! sets the window and, where a law needs it, the pace.
//!
//! - [`probe`] says what this kernel can do and what is missing;
//! - [`Installed`] registers controllers for as long as it lives, for the lab;
//! - [`pins`] installs them until they are removed, through files on bpffs;
//! - [`route`] sends the connections to a prefix through one of them and remembers how to undo that;
//! - [`paths`] and [`watch`] show what controllers have learnt and what they do;
//! - [`undo`] takes everything back.
//!
//! Built without the feature `bpf` there are no controllers, and everything here says so.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

#[cfg(not(feature = "bpf"))]
#[path = "kernel/absent.rs"]
mod load;
#[cfg(feature = "bpf")]
mod load;
pub mod namespaces;
#[cfg(feature = "bpf")]
mod objects;
#[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "nothing is there to be read"))]
pub mod paths;
pub mod pins;
pub mod probe;
pub mod route;
mod state;
pub mod undo;
#[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "nothing is there to be read"))]
pub mod watch;

/// A controller for the kernel's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Law {
    /// TCP Hybla.
    Hybla,
    /// TCP Veno.
    Veno,
    /// The enhanced Hybla of paper 002.
    Enhanced,
    /// HSWA-TCP of paper 003.
    Hswa,
    /// HYBIC of paper 004.
    Hybic,
    /// BoostTCP.
    Boost,
    /// Our own controller in its plain form.
    Skyhaul,
}

impl Law {
    /// All of them.
    pub const ALL: [Law; 7] =
        [Law::Hybla, Law::Veno, Law::Enhanced, Law::Hswa, Law::Hybic, Law::Boost, Law::Skyhaul];

    /// Those that this program has; none without the feature `bpf`.
    pub fn built() -> Vec<Law> {
        Law::ALL.into_iter().filter(|law| load::is_built(*law)).collect()
    }

    /// As commands, schemes and files in `bpf/` call it.
    pub fn name(self) -> &'static str {
        match self {
            Law::Hybla => "hybla",
            Law::Veno => "veno",
            Law::Enhanced => "enhanced",
            Law::Hswa => "hswa",
            Law::Hybic => "hybic",
            Law::Boost => "boost",
            Law::Skyhaul => "skyhaul",
        }
    }

    /// The registered name, for TCP_CONGESTION and `ip route ... congctl`. No controller of the kernel's own is
    /// called so.
    pub fn algorithm(self) -> &'static str {
        match self {
            Law::Hybla => "sky_hybla",
            Law::Veno => "sky_veno",
            Law::Enhanced => "sky_enhanced",
            Law::Hswa => "sky_hswa",
            Law::Hybic => "sky_hybic",
            Law::Boost => "sky_boost",
            Law::Skyhaul => "skyhaul",
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for Law {
    type Err = KernelError;

    /// Takes both names. Fails with the list of controllers.
    fn from_str(text: &str) -> Result<Law, KernelError> {
        Law::ALL
            .into_iter()
            .find(|law| law.name() == text || law.algorithm() == text)
            .ok_or_else(|| KernelError::Unknown(text.to_owned()))
    }
}

/// What stands between this host and kernel controllers. Its text is one line: what is missing, why that matters and
/// the command that helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The program was built without them.
    Build,
    /// The kernel does not describe its types.
    Btf,
    /// The kernel knows no controllers from BPF.
    StructOps,
    /// The process is inside a user namespace, where no capability counts for this.
    UserNamespace,
    /// The process lacks a capability.
    Capability(&'static str),
    /// Nothing is mounted where pins go.
    Bpffs,
}

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Build => out.write_str(
                "this skyhaul was built without kernel controllers, which take clang to compile; \
                 build it with: make build (or cargo build --release --features bpf)",
            ),
            Missing::Btf => out.write_str(
                "the kernel has no BTF (/sys/kernel/btf/vmlinux), by which a controller finds the fields it reads; \
                 boot a kernel with CONFIG_DEBUG_INFO_BTF=y, as distributions build it: apt-get install linux-image-amd64",
            ),
            Missing::StructOps => out.write_str(
                "this kernel takes no TCP controllers from BPF (CONFIG_BPF_JIT, CONFIG_BPF_SYSCALL; Linux 6.1 or later); \
                 boot a newer one: apt-get install linux-image-amd64",
            ),
            Missing::UserNamespace => out.write_str(
                "inside a user namespace nobody may register a TCP controller, because it serves the whole host; \
                 run as the host's root: sudo skyhaul ...",
            ),
            Missing::Capability(name) => write!(
                out,
                "this process lacks {name}, without which the kernel registers no controller; \
                 run as root: sudo skyhaul ..."
            ),
            Missing::Bpffs => out.write_str(
                "no bpffs is mounted at /sys/fs/bpf, where installed controllers are kept; \
                 mount it: mount -t bpf bpf /sys/fs/bpf",
            ),
        }
    }
}

/// Why something about kernel controllers could not be done.
#[derive(Debug)]
pub enum KernelError {
    /// Something is missing on this host.
    Missing(Missing),
    /// No controller has this name.
    Unknown(String),
    /// This build has no object of this controller.
    NotBuilt(Law),
    /// The kernel did not take a controller; the text is its reason.
    Refused {
        /// The controller.
        law: Law,
        /// What the kernel or libbpf said last.
        reason: String,
    },
    /// The controller's name is taken by other code.
    Taken {
        /// The controller.
        law: Law,
        /// Whether that code is installed; else a running program holds it.
        installed: bool,
    },
    /// A file could not be used.
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Something else; the text says what was found and what would do.
    Request(String),
}

impl KernelError {
    #[cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "nothing is registered"))]
    fn taken(law: Law) -> KernelError {
        KernelError::Taken { law, installed: pins::pin(law).is_file() }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelError::Missing(missing) => missing.fmt(out),
            KernelError::Unknown(text) => {
                let names = Law::ALL.map(Law::name).join(", ");
                write!(out, "no kernel controller is called \"{text}\"; expected one of {names}")
            }
            KernelError::NotBuilt(law) => write!(out, "this build has no kernel controller {law}"),
            KernelError::Refused { law, reason } => {
                write!(out, "the kernel refuses controller {law}: {reason}")
            }
            KernelError::Taken { law, installed: true } => write!(
                out,
                "a controller called {} with other code is installed; bring it up to date with: \
                 skyhaul kernel install {law}",
                law.algorithm()
            ),
            KernelError::Taken { law, installed: false } => write!(
                out,
                "a running program, such as a lab, has registered a controller called {} with other code; \
                 wait until it has ended",
                law.algorithm()
            ),
            KernelError::File { path, source } => write!(out, "{}: {source}", path.display()),
            KernelError::Request(text) => out.write_str(text),
        }
    }
}

impl std::error::Error for KernelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            KernelError::File { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Missing> for KernelError {
    fn from(missing: Missing) -> KernelError {
        KernelError::Missing(missing)
    }
}

/// Whether this process may register controllers here and now; if not, what is missing.
pub fn available() -> Result<(), Missing> {
    probe::Probe::take().missing().map_or(Ok(()), Err)
}

/// Controllers registered until this is dropped or the process ends, however it ends. Nothing is pinned.
///
/// Any network namespace may use them through `ip route ... congctl`, and root through TCP_CONGESTION. Connections that
/// use them when this is dropped keep them to their end.
pub struct Installed(#[allow(dead_code, reason = "held, not read")] Vec<load::Registration>);

impl Installed {
    /// Registers `laws`, all or none. One that another process of ours has registered, with the same code, is shared.
    ///
    /// # Errors
    /// When something is [`Missing`], this build has no such controller, the kernel refuses its code, or its name is
    /// taken by other code.
    pub fn temporarily(laws: &[Law]) -> Result<Installed, KernelError> {
        available()?;
        load::temporarily(laws).map(Installed)
    }
}

impl fmt::Debug for Installed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Installed").finish_non_exhaustive()
    }
}
