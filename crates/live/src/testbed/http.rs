//! Files and objects by HTTP: curl on the client host, nginx on the server host.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use skyhaul_cc::units::Bytes;

use super::files::{self, Source};
use super::servers::{find, Server, Shop};
use super::transfer::{Opens, Outcome, Transfer};
use super::{Ends, LabError, Progress, Watch};

/// Fetches the source file, which lies in the root of the server, into a file of the client's.
///
/// # Errors
/// When a program is missing or can't be started.
pub fn download(
    ends: &Ends<'_>,
    shop: &Shop,
    source: &Source,
    limit: Duration,
    watch: Watch<'_>,
) -> Result<(Outcome, PathBuf), LabError> {
    let address = SocketAddr::new(ends.address, PORT);
    let _server = Server::nginx(ends.server, address, shop)?;
    let received = shop.private.join("received.bin");
    let name = source.path.file_name().unwrap_or_default().to_string_lossy();
    let mut client = ends.client.command(&find("curl", "curl")?.to_string_lossy());
    client.args(["--silent", "--show-error", "--fail", "--no-buffer", "--output"]).arg(&received);
    client.arg(format!("http://{address}/{name}"));
    let transfer = Transfer { client, opens: Opens::AtOnce, received: &received, total: source.bytes, limit };
    Ok((transfer.run(watch)?, received))
}

/// What fetching one object took, each time over a new connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its size.
    pub bytes: Bytes,
    /// Median time from the start of the request to the first byte of the answer.
    pub first_byte: Duration,
    /// Median time from the start of the request to the last byte.
    pub total: Duration,
    /// Time that all commands for this size took.
    pub command: Duration,
    /// How often it was fetched; the median is over these.
    pub fetched: u32,
    /// Whether each copy had the right SHA-256.
    pub intact: bool,
    /// Why a fetch failed, if one did.
    pub error: Option<String>,
}

/// Fetches each of the sizes of [`OBJECTS`] several times. A first object that is not counted warms the channel.
///
/// # Errors
/// When a program is missing or can't be started, or a file can't be written.
pub fn objects(
    ends: &Ends<'_>,
    shop: &Shop,
    seed: u64,
    limit: Duration,
    watch: Watch<'_>,
) -> Result<Vec<Object>, LabError> {
    let address = SocketAddr::new(ends.address, PORT);
    let _server = Server::nginx(ends.server, address, shop)?;
    let received = shop.private.join("object.bin");
    let mut done = Vec::new();
    for bytes in std::iter::once(WARM_UP).chain(OBJECTS) {
        watch(Progress::Object { bytes });
        let name = format!("object-{}.bin", bytes.0);
        let source = Source::create(shop.root.join(&name), bytes, seed)?;
        let url = format!("http://{address}/{name}");
        done.push(fetch_several(ends, &source, &url, &received, limit)?);
    }
    done.remove(0);
    Ok(done)
}

fn fetch_several(
    ends: &Ends<'_>,
    source: &Source,
    url: &str,
    received: &Path,
    limit: Duration,
) -> Result<Object, LabError> {
    let start = Instant::now();
    let (mut first_bytes, mut totals) = (Vec::new(), Vec::new());
    let (mut intact, mut error) = (true, None);
    for _ in 0..REPETITIONS {
        let _ = std::fs::remove_file(received);
        let mut client = ends.client.command(&find("curl", "curl")?.to_string_lossy());
        client.args(["--silent", "--show-error", "--fail", "--output"]).arg(received);
        client.args(["--max-time", &limit.as_secs_f64().to_string()]);
        client.args(["--write-out", "%{time_starttransfer} %{time_total}", url]);
        let output = client.stdin(Stdio::null()).output().map_err(|e| LabError::start("curl", e))?;
        match times(&String::from_utf8_lossy(&output.stdout)) {
            Some((first_byte, total)) if output.status.success() => {
                first_bytes.push(first_byte);
                totals.push(total);
                intact &= files::sha256(received)? == source.sha256;
            }
            _ => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                error.get_or_insert(said);
            }
        }
    }
    let fetched = u32::try_from(totals.len()).unwrap_or(u32::MAX);
    Ok(Object {
        bytes: source.bytes,
        first_byte: median(first_bytes),
        total: median(totals),
        command: start.elapsed(),
        fetched,
        intact: intact && fetched > 0,
        error,
    })
}

/// What `--write-out` printed: two numbers of seconds.
fn times(text: &str) -> Option<(Duration, Duration)> {
    let (first, total) = text.trim().split_once(' ')?;
    let seconds = |text: &str| Duration::try_from_secs_f64(text.parse().ok()?).ok();
    Some((seconds(first)?, seconds(total)?))
}

/// The middle one, or the mean of the two in the middle; zero if there are none.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    match times.len() {
        0 => Duration::ZERO,
        n if n % 2 == 1 => times[n / 2],
        n => (times[n / 2 - 1] + times[n / 2]) / 2,
    }
}

/// The object sizes every table shows: 1, 10 and 100 kB and 1 MB.
pub const OBJECTS: [Bytes; 4] = [Bytes(1_000), Bytes(10_000), Bytes(100_000), Bytes(1_000_000)];
/// Fetched first and not counted.
const WARM_UP: Bytes = Bytes(1_001);
/// Odd, so that the median is one of the measurements.
const REPETITIONS: u32 = 5;
const PORT: u16 = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_curl_are_read() {
        let expected = (Duration::from_micros(541_203), Duration::from_micros(541_877));
        assert_eq!(times("0.541203 0.541877"), Some(expected));
        assert_eq!(times(""), None);
        assert_eq!(times("0.5 -1"), None);
    }

    #[test]
    fn the_median_is_the_middle_one() {
        let ms = |list: &[u64]| list.iter().copied().map(Duration::from_millis).collect::<Vec<_>>();
        assert_eq!(median(ms(&[9, 1, 5])), Duration::from_millis(5));
        assert_eq!(median(ms(&[8, 2])), Duration::from_millis(5));
        assert_eq!(median(Vec::new()), Duration::ZERO);
    }
}
