//! One file from one program to another: when its data connection opened, when its last byte arrived.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use skyhaul_cc::units::{Bytes, Rate};

use super::{LabError, Progress, Watch};

/// How a transfer opens the connection that carries the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opens {
    /// With its first and only connection.
    AtOnce,
    /// With a second connection, to the port in the answer to PASV or EPSV.
    AfterPassiveReply,
    /// By accepting the server's connection to the port that it offered with PORT or EPRT.
    ByAccepting,
}

/// A curl command that moves one file.
#[derive(Debug)]
pub struct Transfer<'a> {
    /// curl with all its arguments; `--verbose` is added here.
    pub client: Command,
    /// What in curl's report shows the data connection.
    pub opens: Opens,
    /// The file that grows at the receiving end.
    pub received: &'a Path,
    /// Size of the whole file.
    pub total: Bytes,
    /// The transfer is stopped this long after the data connection was opened.
    pub limit: Duration,
}

/// What became of a transfer. All times count from the start of the command, on this machine's monotonic clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When the data connection was opened, if it ever was.
    pub opened: Option<Duration>,
    /// When the receiving end had its last byte, or when the transfer was stopped or failed.
    pub last_byte: Duration,
    /// When the command ended.
    pub command: Duration,
    /// What had arrived at `last_byte`.
    pub received: Bytes,
    /// What arrived per second in the second half of the time from `opened` to `last_byte`, when start-up is over; none
    /// for transfers that are too short to tell.
    pub second_half: Option<Rate>,
    /// Why it ended.
    pub ending: Ending,
}

/// Why a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The whole file arrived.
    Complete,
    /// Its time was up.
    Stopped,
    /// The client gave up, for this reason.
    Failed(String),
}

impl Transfer<'_> {
    /// Runs the command to its end.
    ///
    /// # Errors
    /// When curl can't be started.
    pub fn run(mut self, watch: Watch<'_>) -> Result<Outcome, LabError> {
        let _ = std::fs::remove_file(self.received);
        self.client.arg("--verbose").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let start = Instant::now();
        let mut client = self.client.spawn().map_err(|e| LabError::start("curl", e))?;
        let mut report = Report::of(&mut client, self.opens);
        let outcome = self.follow(start, &mut client, &mut report, watch);
        let _ = client.kill();
        let _ = client.wait();
        Ok(outcome)
    }

    fn follow(&self, start: Instant, client: &mut Child, report: &mut Report, watch: Watch<'_>) -> Outcome {
        let mut next_watch = start;
        let mut history = Vec::new();
        let mut exit = None;
        let (ending, last_byte, received) = loop {
            report.listen();
            let size = std::fs::metadata(self.received).map_or(0, |meta| meta.len());
            let now = Instant::now();
            if size >= self.total.0 && report.opened.is_some() {
                break (Ending::Complete, now, Bytes(size));
            }
            if exit.is_none() {
                exit = client.try_wait().ok().flatten().map(|status| (status, now));
            }
            if let Some((status, when)) = exit {
                // What the network still holds may take a moment longer than a client that has handed all over.
                if !status.success() || now - when > SETTLE {
                    report.listen_to_the_end();
                    let reason = match &report.complaint {
                        Some(complaint) => complaint.clone(),
                        None if status.success() && report.opened.is_none() => {
                            "no line of curl's report shows the data connection; this version of curl is not \
                             understood"
                                .to_owned()
                        }
                        None => format!(
                            "the client ended ({status}) with {size} of {} bytes received",
                            self.total.0
                        ),
                    };
                    break (Ending::Failed(reason), now, Bytes(size));
                }
            }
            let stop = report.opened.map_or(start + self.limit + LOGIN, |opened| opened + self.limit);
            if now >= stop {
                let ending = match report.opened {
                    Some(_) => Ending::Stopped,
                    None => Ending::Failed("no data connection was opened in time".to_owned()),
                };
                break (ending, now, Bytes(size));
            }
            if now >= next_watch {
                next_watch = now + WATCH;
                history.push((now, Bytes(size)));
                watch(match report.opened {
                    None => Progress::SettingUp,
                    Some(opened) => Progress::Moving {
                        received: Bytes(size),
                        total: self.total,
                        elapsed: now.saturating_duration_since(opened),
                        limit: self.limit,
                    },
                });
            }
            thread::sleep(POLL);
        };
        if ending == Ending::Complete {
            wait_for(client, SETTLE + self.limit.min(GOODBYE));
        }
        Outcome {
            opened: report.opened.map(|opened| opened.saturating_duration_since(start)),
            last_byte: last_byte.saturating_duration_since(start),
            command: start.elapsed(),
            second_half: report
                .opened
                .and_then(|opened| second_half(opened, (last_byte, received), &history)),
            received,
            ending,
        }
    }
}

/// The rate from the first entry in the second half of the time to the end.
fn second_half(opened: Instant, end: (Instant, Bytes), history: &[(Instant, Bytes)]) -> Option<Rate> {
    let half = opened + end.0.saturating_duration_since(opened) / 2;
    let &(when, size) = history.iter().find(|(when, _)| *when >= half)?;
    let time = end.0.saturating_duration_since(when);
    (time >= SHORTEST_HALF).then(|| end.1.saturating_sub(size).per(time))
}

/// Waits until the process has ended, at most `limit`.
fn wait_for(client: &mut Child, limit: Duration) {
    let end = Instant::now() + limit;
    while Instant::now() < end && matches!(client.try_wait(), Ok(None)) {
        thread::sleep(POLL);
    }
}

/// curl's report on standard error, each line stamped when it is written. curl's own `--trace-time` stamps come from a
/// clock that differs between its versions, so they are not used.
#[derive(Debug)]
struct Report {
    lines: Receiver<(Instant, String)>,
    opening: Opening,
    opened: Option<Instant>,
    complaint: Option<String>,
}

impl Report {
    fn of(client: &mut Child, opens: Opens) -> Report {
        let (sender, lines) = mpsc::channel();
        if let Some(stderr) = client.stderr.take() {
            thread::spawn(move || {
                for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if sender.send((Instant::now(), line)).is_err() {
                        break;
                    }
                }
            });
        }
        Report { lines, opening: Opening::new(opens), opened: None, complaint: None }
    }

    /// Takes the lines that are there.
    fn listen(&mut self) {
        while let Ok((when, line)) = self.lines.try_recv() {
            self.hear(when, &line);
        }
    }

    /// Takes all lines of a client that has ended.
    fn listen_to_the_end(&mut self) {
        while let Ok((when, line)) = self.lines.recv_timeout(SETTLE) {
            self.hear(when, &line);
        }
    }

    fn hear(&mut self, when: Instant, line: &str) {
        tracing::debug!(target: "skyhaul_live::testbed::curl", "{line}");
        if line.starts_with("curl: (") {
            self.complaint = Some(line.to_owned());
        }
        if self.opening.shown_by(line) && self.opened.is_none() {
            self.opened = Some(when);
        }
    }
}

/// Finds the line of `curl --verbose` that shows the data connection being opened. Understands curl 7.81 to 8.14.
#[derive(Debug)]
struct Opening {
    opens: Opens,
    invited: bool,
}

impl Opening {
    fn new(opens: Opens) -> Opening {
        Opening { opens, invited: opens == Opens::AtOnce }
    }

    fn shown_by(&mut self, line: &str) -> bool {
        let note = line.strip_prefix('*').map(str::trim_start);
        match self.opens {
            Opens::ByAccepting => {
                note.is_some_and(|note| note.starts_with("Connection accepted from server"))
            }
            Opens::AtOnce | Opens::AfterPassiveReply => {
                self.invited |= line.starts_with("< 229 ") || line.starts_with("< 227 ");
                self.invited
                    && note
                        .is_some_and(|note| note.starts_with("Trying ") || note.starts_with("Connecting to "))
            }
        }
    }
}

/// A file that grows at 150 Mbit/s grows by 37 kB in this time, 0.04 % of a second's worth.
const POLL: Duration = Duration::from_millis(2);
/// Between two calls of the progress display.
const WATCH: Duration = Duration::from_millis(100);
/// Five samples.
const SHORTEST_HALF: Duration = Duration::from_millis(500);
/// For the last bytes after the client has ended, and for its last words.
const SETTLE: Duration = Duration::from_secs(2);
/// For the client to end after the last byte: FTP's closing reply takes a round trip, several when packets get lost.
const GOODBYE: Duration = Duration::from_secs(60);
/// For logging in when nothing ever answers.
const LOGIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    /// As printed by curl 7.88.1 against vsftpd 3.0.3.
    const PASSIVE: &str = "\
*   Trying 10.77.2.2:21...
* Connected to 10.77.2.2 (10.77.2.2) port 21 (#0)
< 220 (vsFTPd 3.0.3)
> USER anonymous
< 230 Login successful.
> PWD
< 257 \"/\" is the current directory
> EPSV
* Connect data stream passively
< 229 Entering Extended Passive Mode (|||46995|)
* Connecting to 10.77.2.2 (10.77.2.2) port 46995
*   Trying 10.77.2.2:46995...
* Connected to 10.77.2.2 (10.77.2.2) port 21 (#0)
> TYPE I
< 200 Switching to Binary mode.
> STOR a.bin
< 150 Ok to send data.";

    const ACTIVE: &str = "\
*   Trying 10.77.2.2:21...
* Connected to 10.77.2.2 (10.77.2.2) port 21 (#0)
< 257 \"/\" is the current directory
> EPRT |1|10.77.1.2|40173|
< 200 EPRT command successful. Consider using EPSV.
* Connect data stream actively
> RETR source.bin
< 150 Opening BINARY mode data connection for source.bin (1048576 bytes).
* Maxdownload = -1
* Getting file with size: 1048576
* Preparing for accepting server on data port
* Checking for server connect
* Ready to accept data connection from server
* Connection accepted from server
* Remembering we are in dir \"\"";

    fn first(opens: Opens, transcript: &str) -> Option<&str> {
        let mut opening = Opening::new(opens);
        transcript.lines().find(|line| opening.shown_by(line))
    }

    #[test]
    fn the_passive_data_connection_is_the_one_after_the_invitation() {
        let found = first(Opens::AfterPassiveReply, PASSIVE);
        assert_eq!(found, Some("* Connecting to 10.77.2.2 (10.77.2.2) port 46995"));
    }

    #[test]
    fn the_active_data_connection_is_open_when_the_server_has_connected() {
        assert_eq!(first(Opens::ByAccepting, ACTIVE), Some("* Connection accepted from server"));
    }

    #[test]
    fn http_has_one_connection_and_that_is_it() {
        assert_eq!(first(Opens::AtOnce, PASSIVE), Some("*   Trying 10.77.2.2:21..."));
    }

    #[test]
    fn the_second_half_forgets_the_start() {
        let zero = Instant::now();
        let at = |seconds| zero + Duration::from_secs(seconds);
        // 9 MB in the first two seconds, then 1 MB/s.
        let history: Vec<_> =
            (2..10).map(|second| (at(second), Bytes(7_000_000 + second * 1_000_000))).collect();
        assert_eq!(second_half(zero, (at(10), Bytes(17_000_000)), &history), Some(Rate::mbit(8)));
        assert_eq!(second_half(zero, (at(10), Bytes(17_000_000)), &[]), None);
        assert_eq!(second_half(at(8), (at(9), Bytes(16_000_000)), &history), None, "no sample in time");
    }

    #[test]
    fn a_login_that_fails_opens_no_data_connection() {
        let refused = "*   Trying 10.77.2.2:21...\n< 220 (vsFTPd 3.0.3)\n< 530 Login incorrect.";
        assert_eq!(first(Opens::AfterPassiveReply, refused), None);
        assert_eq!(first(Opens::ByAccepting, refused), None);
    }
}
