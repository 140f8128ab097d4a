//! A terminal and a gateway as real processes on the four hosts of the lab, joined by a fast emulated link.
//!
//! Forwarding is off at the terminal and the gateway, so whatever passes between client and server has passed
//! through both processes.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use skyhaul_live::emulate::{Emulator, Hosts};
use skyhaul_live::keys::Replace;
use skyhaul_live::netns::Namespace;
use skyhaul_live::pair::{Pair, Plan};
use skyhaul_sim::scenario::Scenario;

/// True when the test may make namespaces; otherwise says why it does nothing.
pub fn privileged() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: network namespaces need root");
    }
    root
}

/// The four hosts, the link and a pair's files.
pub struct Site {
    pub hosts: Hosts,
    pub folder: tempfile::TempDir,
    pub pair: Pair,
    _link: Emulator,
}

/// One end's process and what it has said.
pub struct Process {
    child: Child,
    log: PathBuf,
}

pub const SOCKS5: &str = "10.77.1.1:1080";
pub const HTTP_CONNECT: &str = "10.77.1.1:8080";
pub const CLIENT: [&str; 2] = ["10.77.1.2", "fd77:1::2"];
pub const SERVER: [&str; 2] = ["10.77.2.2", "fd77:2::2"];

/// Longer than anything here takes unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

const LINK: &str =
    "format = 1\nid = \"test.fast\"\ntitle = \"100 Mbit/s, 5 ms each way\"\nsource = \"our own\"\n\
    [forward]\nrate = \"100 Mbit/s\"\none_way = \"5 ms\"\nqueue = \"1 MB\"\n\
    [back]\nrate = \"100 Mbit/s\"\none_way = \"5 ms\"\nqueue = \"1 MB\"\n\
    [workload]\nkind = \"ftp-download\"\nbytes = \"1 MiB\"\n";

impl Site {
    pub fn new() -> Site {
        Site::on(LINK)
    }

    /// The same on another link.
    pub fn on(link: &str) -> Site {
        let hosts = Hosts::new().expect("root may make namespaces");
        let scenario = Scenario::parse(link, "test link").expect("the scenario is correct");
        let link = hosts.link(&scenario, 1).expect("root may make a TUN device");
        for host in [&hosts.terminal, &hosts.gateway] {
            forward(host, "0");
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pair = plan().write(folder.path(), Replace::Never).expect("the plan is correct");
        Site { hosts, folder, pair, _link: link }
    }

    /// Terminal and gateway pass on what is for others, as routers do.
    pub fn forward(&self) {
        for host in [&self.hosts.terminal, &self.hosts.gateway] {
            forward(host, "1");
        }
    }

    /// Changes the config files: `edit` gets and returns the text of each.
    pub fn configure(&self, terminal: impl Fn(String) -> String, gateway: impl Fn(String) -> String) {
        let change = |file: &Path, edit: &dyn Fn(String) -> String| {
            let text = fs::read_to_string(file).expect("a config");
            fs::write(file, edit(text)).expect("written");
        };
        change(&self.pair.terminal, &terminal);
        change(&self.pair.gateway, &gateway);
    }

    pub fn terminal(&self) -> Process {
        Process::start(&self.hosts.terminal, "terminal", &self.pair.terminal, self.folder.path())
    }

    pub fn gateway(&self) -> Process {
        Process::start(&self.hosts.gateway, "gateway", &self.pair.gateway, self.folder.path())
    }

    /// Both ends, with the channel up.
    pub fn both(&self) -> (Process, Process) {
        let gateway = self.gateway();
        let terminal = self.terminal();
        terminal.until_it_says("is up");
        gateway.until_it_says("is up");
        (terminal, gateway)
    }

    /// The four ways across: who connects, who serves, under which address.
    pub fn crossings(&self) -> Vec<(&Namespace, &Namespace, IpAddr)> {
        let ip = |text: &str| text.parse().expect("an address");
        let mut ways = Vec::new();
        for family in 0..2 {
            ways.push((&self.hosts.client, &self.hosts.server, ip(SERVER[family])));
            ways.push((&self.hosts.server, &self.hosts.client, ip(CLIENT[family])));
        }
        ways
    }
}

/// Switches forwarding at a host on (`"1"`) or off (`"0"`).
pub fn forward(host: &Namespace, on: &str) {
    host.sysctl("net.ipv4.ip_forward", on).expect("root may");
    host.sysctl("net.ipv6.conf.all.forwarding", on).expect("root may");
}

/// Transparent in both directions, with proxies for the client.
pub fn plan() -> Plan {
    Plan {
        name: "ship".to_owned(),
        networks: vec![prefix("10.77.1.0/24"), prefix("fd77:1::/64")],
        terminal_lan: Some("lan".to_owned()),
        gateway_lan: Some("lan".to_owned()),
        preserve_source: true,
        rtt: Duration::from_millis(20),
        socks5: Some(SOCKS5.parse().expect("an address")),
        http_connect: Some(HTTP_CONNECT.parse().expect("an address")),
        memory: skyhaul_live::config::PathMemory::OFF,
        ..Plan::new("10.77.0.2:4433".parse().expect("an address"))
    }
}

fn prefix(text: &str) -> skyhaul_live::config::Prefix {
    text.parse().expect("a block of addresses")
}

impl Process {
    pub fn start(host: &Namespace, role: &str, config: &Path, folder: &Path) -> Process {
        let config = config.to_str().expect("a plain name");
        Process::run(host, role, &[role, "--config", config], folder)
    }

    /// Starts any command of ours; `name` is for its log.
    pub fn run(host: &Namespace, name: &str, args: &[&str], folder: &Path) -> Process {
        let log = folder.join(format!("{name}.log"));
        let errors = File::create(&log).expect("a log file");
        let mut command = host.command(env!("CARGO_BIN_EXE_skyhaul"));
        command.args(args).env_remove("SKYHAUL_LOG").env("HOME", folder);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn();
        Process { child: child.expect("the binary under test starts"), log }
    }

    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).expect("the log file is there")
    }

    /// Waits for a text in the log and returns all of it.
    pub fn until_it_says(&self, text: &str) -> String {
        until(
            || self.said().contains(text).then(|| self.said()),
            || format!("\"{text}\" in\n{}", self.said()),
        )
    }

    /// The most memory the process has used so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// A figure of proc_pid_status(5), in bytes.
    pub fn memory(&self, what: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with(what)).expect("proc(5) has it");
        let kilobytes: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
        kilobytes * 1024
    }

    pub fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("the process is there");
    }

    /// Ends the process by SIGTERM and returns all it has said, with its counts in the last line.
    pub fn finish(mut self) -> String {
        self.send(Signal::SIGTERM);
        self.child.wait().expect("it is our child");
        self.said()
    }

    /// Ends the process by a signal and waits for it; true if it ended by itself and well.
    pub fn end(mut self, signal: Signal) -> bool {
        self.send(signal);
        self.child.wait().expect("it is our child").success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tries until it succeeds.
pub fn until<T>(mut attempt: impl FnMut() -> Option<T>, wanted: impl Fn() -> String) -> T {
    let started = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain for {}", wanted());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Serves one connection: hears all, answers in capitals, tells who it was.
pub fn shouter(host: &Namespace, ip: IpAddr) -> (SocketAddr, JoinHandle<SocketAddr>) {
    let listener = host.run(|| TcpListener::bind((ip, 0))).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let thread = thread::spawn(move || {
        let (mut stream, from) = listener.accept().expect("a client comes");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).expect("the client finishes");
        stream.write_all(&heard.to_ascii_uppercase()).expect("the client listens");
        from
    });
    (address, thread)
}

pub fn connect(host: &Namespace, to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = host.run(|| TcpStream::connect_timeout(&to, PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends, ends the sending side, hears the answer.
pub fn say(stream: &mut TcpStream, words: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(words)?;
    stream.shutdown(Shutdown::Write)?;
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard)?;
    Ok(heard)
}

/// Firewall, routing rules and the routes of ours, as text.
pub fn rules_and_routes(host: &Namespace) -> String {
    let print = |line: &str| {
        let mut words = line.split(' ');
        let program = words.next().expect("a program");
        let output = host.command(program).args(words).stderr(Stdio::null()).output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    [
        "nft list ruleset",
        "ip -4 rule",
        "ip -6 rule",
        "ip -4 route show table 21320",
        "ip -6 route show table 21320",
    ]
    .map(print)
    .concat()
}
