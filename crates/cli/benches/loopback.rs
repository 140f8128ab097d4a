//! What carrying costs: 2 GB through a real terminal and a real gateway on loopback, no link emulated.
//!
//! `cargo bench -p skyhaul-cli --bench loopback` prints CPU seconds per GB of both processes together
//! (user and system, so the kernel's UDP and TCP work for them is in it), and the same bytes over one
//! plain TCP connection for comparison. Timings depend on the machine; the target is at most 6 CPU
//! seconds per GB.

#![allow(clippy::unwrap_used)] // a benchmark may panic

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

const BYTES: u64 = 2_000_000_000;
const PIECE: usize = 256 * 1024;
/// Paced, so that the bench measures cost and not how two cores are shared.
const RATES: [&str; 3] = ["150 Mbit/s", "500 Mbit/s", "1 Gbit/s"];

fn main() {
    println!("rate told     carried Gbit/s   CPU s/GB both ends   of plain TCP's CPU   peak memory MB");
    let plain = plain_tcp();
    for rate in RATES {
        // At 150 Mbit/s a tenth is enough.
        let bytes = if rate.starts_with("150") { BYTES / 10 } else { BYTES };
        let run = carried(rate, bytes);
        println!(
            "{rate:<13} {:>13.3} {:>20.2} {:>20.1} x {:>15.0}",
            run.gbit_per_s,
            run.cpu_per_gb,
            run.cpu_per_gb / plain.cpu_per_gb,
            run.peak_mb,
        );
    }
    println!("plain TCP     {:>13.3} {:>20.2}", plain.gbit_per_s, plain.cpu_per_gb);
}

struct Run {
    gbit_per_s: f64,
    cpu_per_gb: f64,
    peak_mb: f64,
}

impl Run {
    fn new(bytes: u64, took: Duration, cpu_s: f64, peak_kb: u64) -> Self {
        let gb = bytes as f64 / 1e9;
        let bits = skyhaul_cc::Bytes(bytes).bits() as f64;
        Run {
            gbit_per_s: bits / 1e9 / took.as_secs_f64(),
            cpu_per_gb: cpu_s / gb,
            peak_mb: peak_kb as f64 / 1e3,
        }
    }
}

/// A server that reads connections until one has brought something.
fn sink() -> (SocketAddr, thread::JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        let mut total = 0;
        while total == 0 {
            let (mut stream, _) = listener.accept().unwrap();
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                total += n as u64;
            }
        }
        total
    });
    (address, reader)
}

fn pour(to: SocketAddr, bytes: u64) {
    let mut stream = TcpStream::connect(to).unwrap();
    let piece = vec![7; PIECE];
    let mut left = bytes;
    while left > 0 {
        let n = left.min(PIECE as u64);
        stream.write_all(&piece[..n as usize]).unwrap();
        left -= n;
    }
}

fn plain_tcp() -> Run {
    let (address, reader) = sink();
    let (began, cpu) = (Instant::now(), cpu_seconds("self"));
    pour(address, BYTES);
    assert_eq!(reader.join().unwrap(), BYTES);
    Run::new(BYTES, began.elapsed(), cpu_seconds("self") - cpu, 0)
}

fn carried(rate: &str, bytes: u64) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let way_in = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let skyhaul = env!("CARGO_BIN_EXE_skyhaul");
    let pair = Command::new(skyhaul)
        .args(["pair", "--gateway", &udp.to_string(), "--no-socks5", "--controller", "rate"])
        .args(["--terminal-rate", rate, "--gateway-rate", rate, "--rtt", "10 ms", "--out"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(pair.status.success(), "{}", String::from_utf8_lossy(&pair.stderr));
    let (to, reader) = sink();
    append(
        &dir.path().join("terminal.toml"),
        &format!("[[forward]]\nlisten = \"{way_in}\"\nto = \"{to}\"\n"),
    );
    let gateway = dir.path().join("gateway.toml");
    let text = fs::read_to_string(&gateway).unwrap();
    fs::write(&gateway, text.replace("[egress]", "[egress]\nallow = [\"127.0.0.0/8\"]\ndeny = []")).unwrap();
    let start = |role: &str| {
        let config = dir.path().join(format!("{role}.toml"));
        Guard(
            Command::new(skyhaul)
                .arg(role)
                .arg("--config")
                .arg(config)
                .env("SKYHAUL_LOG", "error")
                .spawn()
                .unwrap(),
        )
    };
    let ends = [start("gateway"), start("terminal")];
    warm_up(way_in);
    let cpu = || ends.iter().map(|end| cpu_seconds(&end.0.id().to_string())).sum::<f64>();
    let (began, before) = (Instant::now(), cpu());
    pour(way_in, bytes);
    assert_eq!(reader.join().unwrap(), bytes);
    let (took, spent) = (began.elapsed(), cpu() - before);
    let peak = ends.iter().map(|end| peak_kb(end.0.id())).max().unwrap_or(0);
    Run::new(bytes, took, spent, peak)
}

/// Waits until the channel is up: before, connections are reset.
fn warm_up(way_in: SocketAddr) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < deadline, "the channel does not come up");
        if let Ok(mut stream) = TcpStream::connect(way_in) {
            stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            // Silence is good news here.
            if stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock) {
                return;
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn append(file: &std::path::Path, text: &str) {
    fs::OpenOptions::new().append(true).open(file).unwrap().write_all(text.as_bytes()).unwrap();
}

struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// User and system time of a process so far.
fn cpu_seconds(pid: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Fields 14 and 15 of proc(5), counted behind the name, which may hold spaces; ticks are 1/100 s.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn peak_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
