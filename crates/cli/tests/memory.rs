//! Path memory between real hosts: what a terminal has learnt of its link it knows when it starts again, however it ended,
//! and a damaged memory costs the warmth and nothing else. These tests need root and say so when they skip.
#![allow(clippy::unwrap_used)]

mod ends;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use ends::{connect, privileged, until, Process, Site, PATIENCE, SERVER};
use nix::sys::signal::Signal;

/// A second of the link: enough to learn its rate.
const FILE: usize = 12_000_000;

/// What is done to the bytes of a file.
type Damage<'a> = &'a dyn Fn(&mut [u8]);

/// What the log says of a path that is remembered.
const WARM: &str = "is known: ";

/// A site whose ends remember, each in a file of its own.
fn site() -> (Site, PathBuf) {
    let site = Site::new();
    let file = |end: &str| site.folder.path().join(format!("{end}.redb"));
    let remembering = |text: String, end: &str| {
        let on = format!("[memory]\nfile = \"{}\"\n", file(end).display());
        let changed = text.replace("[memory]\nenabled = false\n", &on);
        assert_ne!(changed, text, "the config says that nothing is remembered");
        changed
    };
    site.configure(|text| remembering(text, "terminal"), |text| remembering(text, "gateway"));
    let memory = file("terminal");
    (site, memory)
}

/// A file from client to server.
fn upload(site: &Site) {
    let ip: IpAddr = SERVER[0].parse().unwrap();
    let listener = site.hosts.server.run(|| TcpListener::bind((ip, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        stream.write_all(b"thanks").unwrap();
        heard
    });
    let content: Vec<u8> = (0..FILE).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut stream = connect(&site.hosts.client, address).unwrap();
    stream.write_all(&content).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"thanks");
    assert!(server.join().unwrap() == content, "the file arrives as it is");
}

/// A terminal with the channel up.
fn terminal(site: &Site) -> Process {
    let terminal = site.terminal();
    terminal.until_it_says("is up");
    terminal
}

/// `skyhaul paths` for the terminal.
fn paths(site: &Site, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skyhaul"));
    command.arg("paths").args(words).arg("--config").arg(&site.pair.terminal);
    command.output().unwrap()
}

/// What it says, having been able to.
fn shown(site: &Site, words: &[&str]) -> String {
    let output = paths(site, words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{words:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The one path, once it is written.
fn row(site: &Site) -> serde_json::Value {
    let rows = || serde_json::from_str::<serde_json::Value>(&shown(site, &["--format", "json"])).unwrap();
    let one = || rows().as_array().filter(|rows| rows.len() == 1).map(|rows| rows[0].clone());
    until(one, || format!("one path in {}", rows()))
}

/// All that is said about the file of path memory, which has no reason to be mentioned, and about panics.
fn complaints(said: &str) -> Vec<&str> {
    said.lines()
        .filter(|line| ["redb", "path memory", "panicked"].iter().any(|part| line.contains(part)))
        .collect()
}

#[test]
fn needs_namespaces_a_terminal_that_starts_again_knows_its_path_however_it_ended() {
    if !privileged() {
        return;
    }
    let (site, memory) = site();
    let _gateway = site.gateway();
    for (start, ending) in (1..).zip([Signal::SIGTERM, Signal::SIGKILL, Signal::SIGTERM]) {
        let terminal = terminal(&site);
        assert_eq!(terminal.said().contains(WARM), start > 1, "start {start}\n{}", terminal.said());
        upload(&site);
        if ending == Signal::SIGKILL {
            // What is not written cannot survive: it is within five seconds, and then nothing more is asked of the end.
            until(
                || (row(&site)["connections"] == start).then_some(()),
                || format!("connection {start} in {}", row(&site)),
            );
        }
        let said = terminal.said();
        terminal.end(ending);
        let path = row(&site);
        assert_eq!(complaints(&said), Vec::<&str>::new(), "{said}");
        assert_eq!(path["connections"], start, "{path}");
        assert_eq!((&path["name"], &path["interface"]), (&"gateway".into(), &"sat".into()), "{path}");
        assert_eq!(path["network"], "10.77.0.0/24");
        // 100 Mbit/s, whatever a machine with other work to do makes of it.
        let rate = path["rate_bit_per_s"].as_f64().unwrap() / 1e6;
        assert!((5.0..=130.0).contains(&rate), "{path}");
        assert!(path["min_rtt_s"].as_f64().unwrap() >= 0.0099, "{path}");
    }
    let table = shown(&site, &[]);
    assert!(table.contains("gateway") && table.contains("sat") && table.contains("10.77.0.0/24"), "{table}");

    assert!(shown(&site, &["clear", "gateway"]).ends_with("1 path forgotten\n"));
    assert!(shown(&site, &[]).ends_with("no paths\n"));
    let said = terminal(&site).finish();
    assert!(memory.is_file() && !said.contains(WARM), "{said}");
}

#[test]
fn needs_namespaces_a_damaged_memory_is_told_once_and_costs_the_warmth_alone() {
    if !privileged() {
        return;
    }
    let (site, memory) = site();
    let _gateway = site.gateway();
    let learn = || {
        let terminal = terminal(&site);
        upload(&site);
        terminal.finish()
    };
    learn();
    row(&site);
    let good = fs::read(&memory).unwrap();
    let aside = PathBuf::from(format!("{}.damaged", memory.display()));
    // Everywhere in the key of the path, which the file has in full: first come version and the peer's key.
    let peer = fs::read_to_string(&site.pair.terminal).unwrap();
    let peer = peer.lines().find_map(|line| line.strip_prefix("peer = ")).unwrap().trim_matches('"');
    let key: skyhaul_pep::auth::PublicKey = peer.parse().unwrap();
    let places: Vec<usize> =
        (0..good.len() - 32).filter(|&at| good[at..at + 32] == key.as_bytes()[..]).collect();
    assert!(!places.is_empty(), "{} bytes without the peer's key", good.len());
    let in_records = |bytes: &mut [u8]| {
        for &at in &places {
            // Behind peer, network and interface: the record, or the next key.
            bytes[at + 32 + 4 + 3 + 5] ^= 0x10;
        }
    };
    let damages: [(&str, Damage<'_>); 4] = [
        ("the record", &in_records),
        ("the first bytes", &|bytes| bytes[..4].fill(b'x')),
        ("every hundredth byte", &|bytes| bytes.iter_mut().step_by(100).for_each(|byte| *byte ^= 0xff)),
        ("everything", &|bytes| bytes.fill(0x5a)),
    ];
    for (what, damage) in damages {
        let mut bytes = good.clone();
        damage(&mut bytes);
        let _ = fs::remove_file(&aside);
        fs::write(&memory, &bytes).unwrap();
        let said = learn();
        assert!(!said.contains(WARM), "{what}\n{said}");
        let complaints = complaints(&said);
        assert!(complaints.len() == 1 && complaints[0].contains("terminal.redb"), "{what}: {complaints:#?}");
        assert_eq!(aside.is_file(), what != "the record", "{what}: {complaints:#?}");
        // And what this start has learnt the next one knows.
        assert_eq!(row(&site)["connections"], 1, "{what}");
        let again = terminal(&site).finish();
        assert!(again.contains(WARM), "{what}\n{again}");
        assert_eq!(self::complaints(&again), Vec::<&str>::new(), "{what}");
    }
}

#[test]
fn needs_namespaces_a_memory_that_cannot_be_written_is_told_once_and_stops_nothing() {
    if !privileged() {
        return;
    }
    let (site, memory) = site();
    // Not even root can make a file below a file.
    fs::write(&memory, "").unwrap();
    let below = memory.join("paths.redb");
    let change = |from: &Path, to: &Path| (from.display().to_string(), to.display().to_string());
    let (from, to) = change(&memory, &below);
    site.configure(|text| text.replace(&from, &to), |text| text);
    let _gateway = site.gateway();
    let terminal = terminal(&site);
    upload(&site);
    upload(&site);
    let said = terminal.finish();
    let complaints = complaints(&said);
    assert!(complaints.len() == 1 && complaints[0].contains("is not kept"), "{complaints:#?}");
}
