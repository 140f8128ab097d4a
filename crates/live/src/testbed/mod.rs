//! The lab on hosts: real client and server programs, the kernel's network stack, an emulated link in between.

pub mod faults;
pub mod files;
pub mod ftp;
pub mod http;
pub mod iperf;
pub mod lab;
pub mod measure;
pub mod pair;
pub mod row;
pub mod scheme;
pub mod servers;
pub mod settings;
pub mod transfer;
pub mod workload;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use skyhaul_cc::units::Bytes;

use crate::emulate::EmulateError;
use crate::kernel::KernelError;
use crate::netns::{Namespace, NetnsError};
use crate::split::NO_CONTROL;

/// Where client and server programs run.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// The host of the client programs.
    pub client: &'a Namespace,
    /// The host of the server programs.
    pub server: &'a Namespace,
    /// The server's address as the client knows it.
    pub address: IpAddr,
}

/// What a run is doing, for progress displays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// Starting hosts, link, programs; logging in.
    SettingUp,
    /// A file is on its way.
    Moving {
        /// What has arrived.
        received: Bytes,
        /// Size of the file.
        total: Bytes,
        /// Since the data connection was opened.
        elapsed: Duration,
        /// When it will be stopped, counted likewise.
        limit: Duration,
    },
    /// Objects of this size are being fetched.
    Object {
        /// Their size.
        bytes: Bytes,
    },
    /// iperf3 sends.
    Streaming {
        /// Since its start.
        elapsed: Duration,
        /// For how long it will send.
        limit: Duration,
    },
    /// The transfer is over and the received file is being compared with the source.
    Checking,
}

/// Is told what a run is doing, several times a second.
pub type Watch<'a> = &'a mut dyn FnMut(Progress);

/// Why a run could not be carried out.
#[derive(Debug)]
pub enum LabError {
    /// A program is not installed.
    Missing {
        /// Its name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program could not be started.
    Start {
        /// Its name.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// A server was started and does not listen.
    NotListening {
        /// Its name.
        program: &'static str,
        /// Where it should.
        address: SocketAddr,
        /// What it said.
        said: String,
    },
    /// The file that makes a warm start warm did not arrive.
    WarmUp {
        /// What happened to it.
        what: String,
    },
    /// Something could not be done with a file or folder.
    Io {
        /// "write the source file" or the like.
        action: &'static str,
        /// Of what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Namespaces or what is in them.
    Netns(NetnsError),
    /// The emulated link.
    Emulate(EmulateError),
    /// The kernel does not have a congestion control algorithm.
    NoAlgorithm {
        /// Its name.
        algorithm: String,
        /// What the system says.
        source: NetnsError,
    },
    /// Our own kernel controllers cannot be registered.
    NoLaw {
        /// Its name in the kernel.
        algorithm: &'static str,
        /// What is missing, and what would do.
        why: KernelError,
    },
    /// One of our programs did not start.
    Pair {
        /// "skyhaul terminal" or the like.
        end: &'static str,
        /// What happened.
        what: String,
        /// Its last words.
        said: String,
    },
}

impl LabError {
    fn io(action: &'static str, path: &Path, source: io::Error) -> LabError {
        LabError::Io { action, path: path.to_owned(), source }
    }

    /// Whether the scheme needs a congestion control that this machine does not have: others may still run.
    pub fn is_unavailable(&self) -> bool {
        match self {
            LabError::NoAlgorithm { .. } | LabError::NoLaw { .. } => true,
            // A splitter tries its control itself.
            LabError::Pair { end: "skyhaul split", said, .. } => said.contains(NO_CONTROL),
            _ => false,
        }
    }

    fn start(program: &str, source: io::Error) -> LabError {
        LabError::Start { program: program.to_owned(), source }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Missing { program, package } => {
                write!(f, "{program} is not installed; on Debian and Ubuntu: apt-get install {package}")
            }
            LabError::Start { program, source } => write!(f, "can't start {program}: {source}"),
            LabError::NotListening { program, address, said } => {
                write!(f, "{program} does not listen on {address}; it says: {}", said.trim())
            }
            LabError::Io { action, path, source } => {
                write!(f, "can't {action} {}: {source}", path.display())
            }
            LabError::Netns(error) => error.fmt(f),
            LabError::Emulate(error) => error.fmt(f),
            LabError::NoAlgorithm { algorithm, source } => write!(
                f,
                "this kernel has no TCP congestion control \"{algorithm}\" ({source}); try: modprobe tcp_{algorithm}"
            ),
            LabError::NoLaw { algorithm, why } => {
                write!(f, "the kernel controller \"{algorithm}\" cannot be registered: {why}")
            }
            LabError::WarmUp { what } => {
                write!(f, "the file before the one that counts did not arrive: {what}")
            }
            LabError::Pair { end, what, said } if said.is_empty() => write!(f, "{end} {what}"),
            LabError::Pair { end, what, said } => write!(f, "{end} {what}; it says:\n{said}"),
        }
    }
}

impl std::error::Error for LabError {}

impl From<NetnsError> for LabError {
    fn from(error: NetnsError) -> LabError {
        LabError::Netns(error)
    }
}

impl From<EmulateError> for LabError {
    fn from(error: EmulateError) -> LabError {
        LabError::Emulate(error)
    }
}
