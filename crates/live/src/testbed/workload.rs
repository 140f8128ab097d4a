//! What the client does in a run.

use std::fmt;
use std::str::FromStr;

use skyhaul_sim::scenario::{Dir, WorkloadKind};

/// A job for a real client program and a real server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    /// The client stores a file on the FTP server, data connection opened by the client.
    FtpUpload,
    /// The client fetches a file from the FTP server, data connection opened by the client.
    FtpDownload,
    /// As [`Job::FtpUpload`] with the data connection opened by the server.
    FtpUploadActive,
    /// As [`Job::FtpDownload`] with the data connection opened by the server.
    FtpDownloadActive,
    /// The client fetches a file from the HTTP server.
    HttpDownload,
    /// The client fetches objects of 1, 10 and 100 kB and 1 MB, one connection each, several times.
    HttpObjects,
    /// iperf3 sends from client to server for a while.
    Iperf3,
    /// iperf3 sends from server to client for a while.
    Iperf3Download,
}

/// Who opens FTP's data connection (RFC 959 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FtpMode {
    /// The client, with PASV or EPSV.
    Passive,
    /// The server, after PORT or EPRT.
    Active,
}

impl Job {
    /// In the order of listings.
    pub const ALL: [Job; 8] = [
        Job::FtpUpload,
        Job::FtpDownload,
        Job::FtpUploadActive,
        Job::FtpDownloadActive,
        Job::HttpDownload,
        Job::HttpObjects,
        Job::Iperf3,
        Job::Iperf3Download,
    ];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Job::FtpUpload => "ftp-upload",
            Job::FtpDownload => "ftp-download",
            Job::FtpUploadActive => "ftp-upload-active",
            Job::FtpDownloadActive => "ftp-download-active",
            Job::HttpDownload => "http-download",
            Job::HttpObjects => "http-objects",
            Job::Iperf3 => "iperf3",
            Job::Iperf3Download => "iperf3-download",
        }
    }

    /// One line for listings.
    pub fn title(self) -> &'static str {
        match self {
            Job::FtpUpload => "FTP upload, passive mode (curl, vsftpd)",
            Job::FtpDownload => "FTP download, passive mode (curl, vsftpd)",
            Job::FtpUploadActive => "FTP upload, active mode (curl, vsftpd)",
            Job::FtpDownloadActive => "FTP download, active mode (curl, vsftpd)",
            Job::HttpDownload => "HTTP download of one file (curl, nginx)",
            Job::HttpObjects => "HTTP objects of 1, 10, 100 kB and 1 MB, one connection each (curl, nginx)",
            Job::Iperf3 => "iperf3 from client to server, for --max-seconds or 30 s",
            Job::Iperf3Download => "iperf3 from server to client, for --max-seconds or 30 s",
        }
    }

    /// Which way the payload goes, the client being on the terminal's side.
    pub fn data(self) -> Dir {
        match self {
            Job::FtpUpload | Job::FtpUploadActive | Job::Iperf3 => Dir::Forward,
            Job::FtpDownload
            | Job::FtpDownloadActive
            | Job::HttpDownload
            | Job::HttpObjects
            | Job::Iperf3Download => Dir::Back,
        }
    }
}

impl From<WorkloadKind> for Job {
    /// FTP in active mode: the server opens the data connection when all questions are answered, and the file follows
    /// at once. In passive mode one or two more questions follow the opening, each a round trip of nothing.
    fn from(kind: WorkloadKind) -> Job {
        match kind {
            WorkloadKind::FtpUpload => Job::FtpUploadActive,
            WorkloadKind::FtpDownload => Job::FtpDownloadActive,
            WorkloadKind::HttpDownload => Job::HttpDownload,
            WorkloadKind::HttpObjects => Job::HttpObjects,
            WorkloadKind::Iperf3 => Job::Iperf3,
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Job {
    type Err = UnknownJob;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Job::ALL
            .into_iter()
            .find(|job| job.name() == text)
            .ok_or_else(|| UnknownJob { found: text.to_owned() })
    }
}

/// A workload that does not exist; the message lists those that do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownJob {
    found: String,
}

impl fmt::Display for UnknownJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Job::ALL.map(Job::name).join(", ");
        write!(f, "workload \"{}\" is unknown; known are {known}", self.found)
    }
}
impl std::error::Error for UnknownJob {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_read_back_from_its_own_name() {
        for job in Job::ALL {
            assert_eq!(job.name().parse(), Ok(job));
        }
    }

    #[test]
    fn the_workload_of_a_scenario_keeps_its_program_and_its_direction() {
        for kind in WorkloadKind::ALL {
            assert!(Job::from(kind).name().starts_with(kind.name()), "{kind:?}");
            assert_eq!(Job::from(kind).data(), kind.data());
        }
    }

    #[test]
    fn an_unknown_workload_is_named_together_with_the_known_ones() {
        let error = "ftp".parse::<Job>().unwrap_err().to_string();
        assert!(error.contains("\"ftp\"") && error.contains("http-objects"), "{error}");
    }
}
