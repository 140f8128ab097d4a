//! Many connections at once through real processes over a link that loses packets, and readers that stop.

mod ends;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use ends::{connect, privileged, Site, CLIENT, PATIENCE, SERVER};
use skyhaul_live::netns::Namespace;

/// Fast enough for a short test, and with the loss of paper 001.
const LOSSY: &str = "format = 1\nid = \"test.lossy\"\ntitle = \"100 Mbit/s, 25 ms each way, 1.2 %\"\n\
    source = \"our own\"\n\
    [forward]\nrate = \"100 Mbit/s\"\none_way = \"25 ms\"\nloss = \"1.2 %\"\nqueue = \"1 MB\"\n\
    [back]\nrate = \"100 Mbit/s\"\none_way = \"25 ms\"\nloss = \"1.2 %\"\nqueue = \"1 MB\"\n\
    [workload]\nkind = \"ftp-download\"\nbytes = \"1 MiB\"\n";

const CROWD: usize = 200;
/// The product's promise for each end.
const MEMORY: u64 = 150_000_000;

/// Bytes that no other connection has.
fn content(connection: usize) -> Vec<u8> {
    let length = [0, 1, 1_500, 40_000, 400_000][connection % 5] + connection;
    (0..length).map(|i| ((i + connection * 1_013).wrapping_mul(2_654_435_761) >> 15) as u8).collect()
}

fn digest(bytes: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().to_vec()
}

/// Answers every connection with the digest of what it heard and then with all of it.
fn notary(host: &Namespace, ip: &str) -> SocketAddr {
    let ip: std::net::IpAddr = ip.parse().expect("an address");
    let listener = host.run(|| TcpListener::bind((ip, 0))).expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || -> std::io::Result<()> {
                stream.set_read_timeout(Some(PATIENCE))?;
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard)?;
                stream.write_all(&digest(&heard))?;
                stream.write_all(&heard)
            });
        }
    });
    address
}

fn visit(mut stream: TcpStream, connection: usize) -> Result<(), String> {
    let said = content(connection);
    let io = |error: std::io::Error| format!("connection {connection}: {error}");
    stream.write_all(&said).map_err(io)?;
    stream.shutdown(Shutdown::Write).map_err(io)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(io)?;
    let wanted = digest(&said);
    if answer.len() < wanted.len() || answer[..wanted.len()] != wanted {
        return Err(format!("connection {connection}: what arrived has another hash"));
    }
    if answer[wanted.len()..] != said {
        return Err(format!("connection {connection}: what came back is something else"));
    }
    Ok(())
}

#[test]
fn needs_namespaces_two_hundred_mixed_connections_arrive_unharmed_beside_stopped_readers() {
    if !privileged() {
        return;
    }
    let site = Site::on(LOSSY);
    let (terminal, gateway) = site.both();

    // Four servers that accept and never read, each with a client that writes as much as it can.
    let lazy = site.hosts.server.run(|| TcpListener::bind((SERVER[0], 0))).expect("a free port");
    let lazy_address = lazy.local_addr().expect("bound");
    let mut stopped = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(&site.hosts.client, lazy_address).expect("accepted at once");
        stream.set_write_timeout(Some(Duration::from_secs(3))).expect("set");
        stopped.push(lazy.accept().expect("the flow arrives").0);
        thread::spawn(move || {
            let piece = vec![0; 1 << 20];
            let mut total = 0u64;
            while stream.write_all(&piece).is_ok() {
                total += piece.len() as u64;
            }
            (stream, total)
        });
    }

    let ways = [
        (&site.hosts.client, notary(&site.hosts.server, SERVER[0])),
        (&site.hosts.server, notary(&site.hosts.client, CLIENT[0])),
        (&site.hosts.client, notary(&site.hosts.server, SERVER[1])),
        (&site.hosts.server, notary(&site.hosts.client, CLIENT[1])),
    ];
    let visits: Vec<_> = (0..CROWD)
        .map(|n| {
            let (host, address) = ways[n % ways.len()];
            let stream = connect(host, address).expect("accepted at once");
            thread::spawn(move || visit(stream, n))
        })
        .collect();
    let failures: Vec<String> =
        visits.into_iter().filter_map(|visit| visit.join().expect("no panic").err()).collect();
    assert!(failures.is_empty(), "{} of {CROWD} failed, such as {}", failures.len(), failures[0]);
    for (name, process) in [("terminal", &terminal), ("gateway", &gateway)] {
        let peak = process.peak_memory();
        assert!(peak < MEMORY, "{name}: {peak} bytes\n{}", process.said());
    }
}
