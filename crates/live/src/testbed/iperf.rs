//! A stream of bytes that nobody keeps: iperf3 on both hosts.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::Deserialize;
use skyhaul_cc::units::Bytes;
use skyhaul_sim::scenario::Dir;

use super::servers::{find, Server, Shop};
use super::{Ends, LabError, Progress, Watch};

/// What iperf3 measured at the receiving end.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Bytes that arrived.
    pub received: Bytes,
    /// In this time, as counted by the receiver.
    pub time: Duration,
    /// How long the whole command took.
    pub command: Duration,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Sends for `time`.
///
/// # Errors
/// When iperf3 is missing or can't be started.
pub fn stream(
    ends: &Ends<'_>,
    shop: &Shop,
    data: Dir,
    time: Duration,
    watch: Watch<'_>,
) -> Result<Stream, LabError> {
    let address = SocketAddr::new(ends.address, PORT);
    let _server = Server::iperf3(ends.server, address, shop)?;
    let mut client = ends.client.command(&find("iperf3", "iperf3")?.to_string_lossy());
    client.args(["--client", &address.ip().to_string(), "--port", &address.port().to_string()]);
    client.args(["--time", &time.as_secs().max(1).to_string(), "--json"]);
    if data == Dir::Back {
        client.arg("--reverse");
    }
    client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let client = client.spawn().map_err(|e| LabError::start("iperf3", e))?;
    // iperf3 waits for ever for a far end that has gone; nothing it does takes longer than this.
    let patience = time + GOODBYE;
    let pid = client.id();
    let output = std::thread::scope(|scope| {
        let waiting = scope.spawn(move || client.wait_with_output());
        while !waiting.is_finished() {
            watch(Progress::Streaming { elapsed: start.elapsed(), limit: time });
            if start.elapsed() > patience {
                kill(pid);
            }
            std::thread::sleep(PAUSE);
        }
        waiting.join()
    });
    let output = match output {
        Ok(output) => output.map_err(|e| LabError::start("iperf3", e))?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    let command = start.elapsed();
    Ok(match read(&String::from_utf8_lossy(&output.stdout)) {
        Ok((received, time)) => Stream { received, time, command, error: None },
        Err(error) => Stream { received: Bytes::ZERO, time: command, command, error: Some(error) },
    })
}

fn kill(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

#[derive(Deserialize)]
struct Report {
    error: Option<String>,
    end: Option<End>,
}

#[derive(Deserialize)]
struct End {
    sum_received: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    bytes: u64,
    seconds: f64,
}

/// Bytes and time at the receiver from the report of `iperf3 --json`, or its own complaint.
fn read(json: &str) -> Result<(Bytes, Duration), String> {
    let report: Report = serde_json::from_str(json).map_err(|e| format!("the report of iperf3: {e}"))?;
    if let Some(error) = report.error {
        return Err(error);
    }
    let sum = report.end.and_then(|end| end.sum_received).ok_or("iperf3 reports nothing received")?;
    let time = Duration::try_from_secs_f64(sum.seconds).map_err(|e| format!("the report of iperf3: {e}"))?;
    Ok((Bytes(sum.bytes), time))
}

const PORT: u16 = 5201;
const PAUSE: Duration = Duration::from_millis(100);
/// For set-up and for the exchange of results, many round trips on a lossy link.
const GOODBYE: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_counts_not_the_sender() {
        let json = r#"{"start":{},"intervals":[],"end":{
            "sum_sent":{"start":0,"end":10.0,"seconds":10.0,"bytes":900,"bits_per_second":720},
            "sum_received":{"start":0,"end":10.5,"seconds":10.5,"bytes":600,"bits_per_second":457}}}"#;
        assert_eq!(read(json), Ok((Bytes(600), Duration::from_millis(10_500))));
    }

    #[test]
    fn a_complaint_of_iperf3_is_passed_on() {
        let json = r#"{"start":{"connected":[]},"intervals":[],"end":{},
            "error":"unable to connect to server: Connection refused"}"#;
        assert_eq!(read(json), Err("unable to connect to server: Connection refused".to_owned()));
    }

    #[test]
    fn a_report_cut_short_is_an_error() {
        for json in ["", "{", r#"{"start":{}}"#, r#"{"end":{"sum_received":{"bytes":1,"seconds":-1}}}"#] {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
