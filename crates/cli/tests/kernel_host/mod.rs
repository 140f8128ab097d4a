//! A host of its own for kernel controllers: a mount namespace with its own bpffs and /run, so that what is installed
//! here cannot be mixed up with what is installed on the machine, and goes when the test ends, however it ends.
//! Registered names are the kernel's and not a namespace's, so these tests run one after the other.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::{libc, setsockopt_impl, sockopt_impl};
use skyhaul_live::emulate::{self, Emulator, Hosts};
use skyhaul_live::kernel::Law;
use skyhaul_live::netns::Namespace;
use skyhaul_sim::scenario::Scenario;

/// Longer than anything here takes unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The host.
pub struct Host {
    anchor: Child,
    before: String,
    _turn: MutexGuard<'static, ()>,
}

impl Host {
    /// A host, or the reason why there can be none.
    pub fn new() -> Option<Host> {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(missing) = skyhaul_live::kernel::available() {
            eprintln!("skipped: {missing}");
            return None;
        }
        let before = available();
        if Law::ALL.iter().any(|law| before.split_whitespace().any(|name| name == law.algorithm())) {
            eprintln!("skipped: controllers are in use on this machine ({})", before.trim());
            return None;
        }
        let script = "mount --make-rprivate / && while umount /sys/fs/bpf 2>/dev/null; do :; done; \
            mount -t bpf bpf /sys/fs/bpf && mount -t tmpfs run /run && echo ready && exec cat";
        let mut anchor = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is part of util-linux");
        let mut line = String::new();
        BufReader::new(anchor.stdout.as_mut().expect("piped")).read_line(&mut line).expect("readable");
        assert_eq!(line, "ready\n", "root may mount");
        Some(Host { anchor, before, _turn: turn })
    }

    /// A command on this host, in the network namespace of the machine.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(self.mounts()).arg(program);
        command
    }

    /// A command on this host, in a network namespace.
    pub fn command_in(&self, network: &Namespace, program: &str) -> Command {
        let mut command = network.command("nsenter");
        command.arg(self.mounts()).arg(program);
        command
    }

    fn mounts(&self) -> String {
        format!("--mount=/proc/{}/ns/mnt", self.anchor.id())
    }

    /// `skyhaul kernel WORDS`.
    pub fn kernel(&self, words: &[&str]) -> Output {
        let mut command = self.command(env!("CARGO_BIN_EXE_skyhaul"));
        command.arg("kernel").args(words).output().expect("the binary under test runs")
    }

    /// The same in a network namespace.
    pub fn kernel_in(&self, network: &Namespace, words: &[&str]) -> Output {
        let mut command = self.command_in(network, env!("CARGO_BIN_EXE_skyhaul"));
        command.arg("kernel").args(words).output().expect("the binary under test runs")
    }

    /// What the command said, which has to be content.
    pub fn good(&self, words: &[&str]) -> String {
        content(words, self.kernel(words))
    }

    /// The same in a network namespace.
    pub fn good_in(&self, network: &Namespace, words: &[&str]) -> String {
        content(words, self.kernel_in(network, words))
    }

    /// The only line of complaint, with exit status 2.
    pub fn refused(&self, words: &[&str]) -> String {
        complaint(words, &self.kernel(words))
    }

    /// What is ours below /sys/fs/bpf and /run.
    pub fn files(&self) -> String {
        let output = self.command("find").args(["/sys/fs/bpf", "/run", "-path", "*/skyhaul*"]).output();
        text(&output.expect("find is there").stdout)
    }

    /// Nothing of ours is left: not in the kernel's list, not on bpffs, not in /run.
    pub fn is_as_before(&self) {
        assert_eq!(available(), self.before, "the kernel's list");
        assert_eq!(self.files(), "", "files");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // bpffs goes with the namespace, and with the pins what they hold.
        drop(self.anchor.stdin.take());
        let _ = self.anchor.wait();
        for _ in 0..100 {
            if available() == self.before {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn content(words: &[&str], output: Output) -> String {
    assert!(output.status.success(), "kernel {words:?}: {} {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

pub fn complaint(words: &[&str], output: &Output) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "kernel {words:?}: {said} {}", text(&output.stdout));
    assert_eq!(said.lines().count(), 1, "kernel {words:?}: {said}");
    said
}

fn available() -> String {
    fs::read_to_string(AVAILABLE).expect("every Linux has it")
}

/// Two namespaces joined by a cable, or by a link that takes its time.
pub struct Cable {
    pub near: Namespace,
    pub far: Namespace,
    near_addresses: [IpAddr; 2],
    far_addresses: [IpAddr; 2],
    _link: Option<(Hosts, Emulator)>,
}

pub const NEAR: [&str; 2] = ["10.78.0.1", "fd78::1"];
pub const FAR: [&str; 2] = ["10.78.0.2", "fd78::2"];

const LINK: &str =
    "format = 1\nid = \"test.kernel\"\ntitle = \"100 Mbit/s, 10 ms each way\"\nsource = \"our own\"\n\
    [forward]\nrate = \"100 Mbit/s\"\none_way = \"10 ms\"\nqueue = \"500 kB\"\n\
    [back]\nrate = \"100 Mbit/s\"\none_way = \"10 ms\"\nqueue = \"500 kB\"\n\
    [workload]\nkind = \"ftp-download\"\nbytes = \"1 MiB\"\n";

impl Cable {
    pub fn new() -> Cable {
        let near = Namespace::new("near").expect("root may make namespaces");
        let far = Namespace::new("far").expect("root may make namespaces");
        Namespace::veth(&near, "cable", &far, "cable").expect("root may make devices");
        for (end, addresses) in [(&near, NEAR), (&far, FAR)] {
            // No address that would only come after a while, and a route with it.
            end.ip("link set cable addrgenmode none up").expect("it is there");
            end.ip(&format!("address add {}/24 dev cable", addresses[0])).expect("a good address");
            end.ip(&format!("-6 address add {}/64 nodad dev cable", addresses[1])).expect("a good address");
        }
        let [near_addresses, far_addresses] =
            [NEAR, FAR].map(|both| both.map(|address| address.parse().expect("an address")));
        let cable = Cable { near, far, near_addresses, far_addresses, _link: None };
        let start = Instant::now();
        while cable.routes().contains("linkdown") && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
        cable
    }

    /// A link on which connections live long enough to learn something, between the terminal and the gateway of the
    /// lab.
    pub fn with_a_delay() -> Cable {
        Cable::over(LINK)
    }

    /// The same, losing one packet in fifty on the way from near to far.
    pub fn with_delay_and_noise() -> Cable {
        Cable::over(&LINK.replace("[back]", "loss = \"2 %\"\n[back]"))
    }

    fn over(link: &str) -> Cable {
        let hosts = Hosts::new().expect("root may make namespaces");
        let scenario = Scenario::parse(link, "test link").expect("the scenario is correct");
        let link = hosts.link(&scenario, 1).expect("root may make a TUN device");
        let [near_addresses, far_addresses] =
            [emulate::TERMINAL, emulate::GATEWAY].map(|(v4, v6)| [IpAddr::from(v4), IpAddr::from(v6)]);
        let (near, far) = (hosts.terminal.clone(), hosts.gateway.clone());
        Cable { near, far, near_addresses, far_addresses, _link: Some((hosts, link)) }
    }

    /// The far end's addresses, IPv4 and IPv6.
    pub fn far_addresses(&self) -> [String; 2] {
        self.far_addresses.map(|address| address.to_string())
    }

    /// The routes of the near end.
    pub fn routes(&self) -> String {
        let show = |family: &str| {
            let output = self.near.command("ip").args([family, "route", "show", "table", "all"]).output();
            text(&output.expect("ip is there").stdout)
        };
        show("-4") + &show("-6")
    }

    /// Sends `bytes` from near to far, over a connection that near makes or accepts, with `during` in the middle of
    /// it, and checks every byte.
    pub fn transfer(&self, family: usize, makes: bool, bytes: usize, during: impl FnOnce()) {
        let (server, client, ip) = match makes {
            true => (&self.far, &self.near, self.far_addresses[family]),
            false => (&self.near, &self.far, self.near_addresses[family]),
        };
        let listener = server.run(|| TcpListener::bind((ip, 0))).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let made = client
            .run(|| TcpStream::connect_timeout(&SocketAddr::from((ip, port)), PATIENCE))
            .expect("it listens");
        let (accepted, _) = listener.accept().expect("it has connected");
        let (mut sender, receiver) = if makes { (made, accepted) } else { (accepted, made) };
        for stream in [&sender, &receiver] {
            stream.set_read_timeout(Some(PATIENCE)).expect("a good time");
            stream.set_write_timeout(Some(PATIENCE)).expect("a good time");
        }
        let data: Vec<u8> =
            (0..bytes as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let (first, second) = data.split_at(bytes / 2);
        let received = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut received = Vec::new();
                (&receiver).read_to_end(&mut received).expect("all of it comes");
                received
            });
            sender.write_all(first).expect("it is read");
            during();
            sender.write_all(second).expect("it is read");
            sender.shutdown(std::net::Shutdown::Write).expect("it is up");
            reader.join().expect("no panic")
        });
        assert!(received == data, "{} of {bytes} bytes, or other ones", received.len());
    }

    /// CPU time of transfers with `algorithm` over that of transfers with reno: as the kernel has it, or paced. Median
    /// and quartiles of [`PAIRS`](crate::PAIRS) pairs.
    pub fn ratios(&self, algorithm: &str, paced: bool, bytes: usize) -> String {
        let mut ratios: Vec<f64> = (0..crate::PAIRS)
            .map(|pair| {
                // Alternating: whatever warms up or slows down hits both alike.
                let (ours, theirs) = match pair % 2 {
                    0 => (self.cost(algorithm, false, bytes), self.cost("reno", paced, bytes)),
                    _ => {
                        let theirs = self.cost("reno", paced, bytes);
                        (self.cost(algorithm, false, bytes), theirs)
                    }
                };
                ours / theirs
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        let at = |share: usize| ratios[ratios.len() * share / 4];
        format!("{:.3} ({:.3} to {:.3})", at(2), at(1), at(3))
    }

    /// CPU seconds of both ends of one transfer, which this process does all of.
    fn cost(&self, algorithm: &str, paced: bool, bytes: usize) -> f64 {
        let route = format!("route replace {}/32 dev cable congctl {algorithm}", FAR[0]);
        self.near.ip(&route).expect("it is registered");
        let listener = self.far.run(|| TcpListener::bind((self.far_addresses[0], 0))).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut sender =
            self.near.run(|| TcpStream::connect_timeout(&address, PATIENCE)).expect("it listens");
        let (mut receiver, _) = listener.accept().expect("it has connected");
        if paced {
            // Far above what this machine can send.
            nix::sys::socket::setsockopt(&sender, MaxPacingRate, &(1 << 40)).expect("every Linux paces");
        }
        for stream in [&sender, &receiver] {
            stream.set_read_timeout(Some(PATIENCE)).expect("a good time");
            stream.set_write_timeout(Some(PATIENCE)).expect("a good time");
        }
        let block = vec![0x5a; 256 << 10];
        let before = cpu_seconds();
        let received = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut space, mut received) = (vec![0; 256 << 10], 0);
                loop {
                    match receiver.read(&mut space).expect("all of it comes") {
                        0 => return received,
                        some => received += some,
                    }
                }
            });
            (0..bytes / block.len()).for_each(|_| sender.write_all(&block).expect("it is read"));
            sender.shutdown(std::net::Shutdown::Write).expect("it is up");
            reader.join().expect("no panic")
        });
        assert_eq!(received, bytes);
        cpu_seconds() - before
    }

    /// What `ss` says of the near end's connections.
    pub fn connections(&self) -> String {
        let output = self.near.command("ss").args(["-timnH"]).output();
        text(&output.expect("ss is part of iproute2").stdout)
    }
}

sockopt_impl!(
    /// The greatest rate at which the kernel may send, in bytes per second; setting one has it pace.
    MaxPacingRate,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u64
);

/// CPU time of this process: user, system and the interrupts on it.
fn cpu_seconds() -> f64 {
    let usage =
        nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).expect("it always answers");
    [usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
        .iter()
        .sum()
}
