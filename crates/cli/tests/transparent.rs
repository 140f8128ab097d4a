//! Real programs through a real terminal and gateway that they know nothing of: FTP in both modes, HTTP and SSH, from
//! either side, over IPv4 and IPv6. These tests need root and say so when they skip.

mod ends;

use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use ends::{connect, privileged, say, shouter, until, Site};
use skyhaul_live::netns::Namespace;
use skyhaul_live::testbed::servers::{Server, Shop};

/// 3 MB that do not repeat.
fn content() -> Vec<u8> {
    (0..750_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the program is installed, see `make setup`")
}

fn assert_success(output: &Output, what: &str) {
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An address as it stands in a URL.
fn bracketed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[test]
fn needs_namespaces_ftp_passes_in_active_and_passive_mode_from_both_sides() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    let (_terminal, _gateway) = site.both();
    let content = content();
    for (round, (client, server, ip)) in site.crossings().into_iter().enumerate() {
        let shop = Shop::new(&site.folder.path().join(format!("ftp{round}"))).expect("folders");
        fs::write(shop.root.join("file.bin"), &content).expect("a file");
        let _vsftpd = Server::vsftpd(server, SocketAddr::new(ip, 21), &shop).expect("vsftpd");
        let local = shop.private.join("local.bin");
        fs::write(&local, &content).expect("a file");
        let url = format!("ftp://{}", bracketed(ip));
        for (mode, arguments) in [("passive", &[][..]), ("active", &["--ftp-port", "-"])] {
            let fetched = shop.private.join(format!("{mode}.bin"));
            let mut get = client.command("curl");
            get.args(["-sS", "--max-time", "60", "-o"]).arg(&fetched).args(arguments);
            get.arg(format!("{url}/file.bin"));
            assert_success(&output(get), &format!("curl, {mode} download from {ip}"));
            assert!(
                fs::read(&fetched).expect("fetched") == content,
                "{mode} download from {ip} is another file"
            );

            let mut put = client.command("curl");
            put.args(["-sS", "--max-time", "60", "-T"]).arg(&local).args(arguments);
            put.arg(format!("{url}/upload/{mode}.bin"));
            assert_success(&output(put), &format!("curl, {mode} upload to {ip}"));
            let stored = fs::read(shop.upload.join(format!("{mode}.bin"))).expect("stored");
            assert!(stored == content, "{mode} upload to {ip} is another file");
        }
        for passive in ["yes", "no"] {
            let fetched = shop.private.join(format!("lftp-{passive}.bin"));
            let script = format!(
                "set net:max-retries 1; set net:timeout 20; set ftp:passive-mode {passive}; \
                 get {url}/file.bin -o {}",
                fetched.display()
            );
            let mut get = client.command("lftp");
            get.args(["-c", &script]).env("HOME", site.folder.path());
            assert_success(&output(get), &format!("lftp, passive {passive}, from {ip}"));
            assert!(fs::read(&fetched).expect("fetched") == content, "lftp, passive {passive}, from {ip}");
        }
    }
}

#[test]
fn needs_namespaces_http_passes_from_both_sides() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    let (_terminal, _gateway) = site.both();
    let content = content();
    for (round, (client, server, ip)) in site.crossings().into_iter().enumerate() {
        let shop = Shop::new(&site.folder.path().join(format!("http{round}"))).expect("folders");
        fs::write(shop.root.join("file.bin"), &content).expect("a file");
        let _nginx = Server::nginx(server, SocketAddr::new(ip, 80), &shop).expect("nginx");
        let mut get = client.command("curl");
        get.args(["-sS", "--max-time", "60"]).arg(format!("http://{}/file.bin", bracketed(ip)));
        let got = output(get);
        assert_success(&got, &format!("curl from {ip}"));
        assert!(got.stdout == content, "the file from {ip} is another");
    }
}

#[test]
fn needs_namespaces_ssh_passes_from_both_sides_and_sees_the_clients_own_address() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    let (_terminal, _gateway) = site.both();
    let content = content();
    let keys = site.folder.path().join("ssh");
    fs::create_dir(&keys).expect("a folder");
    for name in ["host", "user"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(keys.join(name));
        assert_success(&output(keygen), "ssh-keygen");
    }
    for (client, server, ip) in site.crossings() {
        let _sshd = sshd(server, ip, &keys);
        let mut ssh = client.command("ssh");
        ssh.args([
            "-F",
            "none",
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "ConnectTimeout=20",
        ]);
        ssh.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-i"]).arg(keys.join("user"));
        ssh.arg(format!("root@{ip}")).arg("echo $SSH_CONNECTION; exec cat");
        let mut child = ssh
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ssh starts");
        let mut input = child.stdin.take().expect("piped");
        let sent = content.clone();
        let writer = std::thread::spawn(move || input.write_all(&sent));
        let got = child.wait_with_output().expect("ssh ends");
        assert_success(&got, &format!("ssh to {ip}"));
        writer.join().expect("no panic").expect("ssh takes all");
        let end_of_line = got.stdout.iter().position(|&byte| byte == b'\n').expect("a first line");
        let (first, echoed) = got.stdout.split_at(end_of_line);
        assert!(&echoed[1..] == content.as_slice(), "what came back from {ip} differs");
        let first = String::from_utf8_lossy(first);
        let seen: IpAddr = first.split(' ').next().and_then(|word| word.parse().ok()).expect("an address");
        assert_eq!(seen, opposite(ip), "sshd sees the client itself");
    }
}

/// The client that talks to this server.
fn opposite(ip: IpAddr) -> IpAddr {
    let own = [ends::CLIENT, ends::SERVER].concat();
    let other = [ends::SERVER, ends::CLIENT].concat();
    let index = own.iter().position(|text| text.parse() == Ok(ip)).expect("one of the four");
    other[index].parse().expect("an address")
}

struct Sshd(Child);

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sshd(host: &Namespace, ip: IpAddr, keys: &Path) -> Sshd {
    let config = keys.join(format!("sshd-{}.conf", ip.is_ipv4()));
    let (host_key, user) = (keys.join("host"), keys.join("user.pub"));
    let text = format!(
        "ListenAddress {}:22\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n\
         PasswordAuthentication no\nPidFile none\nUseDNS no\nPrintMotd no\n",
        bracketed(ip),
        host_key.display(),
        user.display()
    );
    fs::write(&config, text).expect("a file");
    // sshd insists on /run/sshd, which a service manager would make; this one is seen by sshd alone.
    let script =
        "mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec \"$(command -v sshd)\" -D -e -f \"$0\"";
    let mut command = host.command("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(&config);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let log = fs::File::create(keys.join("sshd.log")).expect("a file");
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("unshare starts");
    let sshd = Sshd(child);
    let said = || fs::read_to_string(keys.join("sshd.log")).unwrap_or_default();
    until(
        || host.run(|| std::net::TcpStream::connect((ip, 22))).ok(),
        || format!("sshd on {ip}: {}", said()),
    );
    sshd
}

#[test]
fn needs_namespaces_half_close_passes_and_both_addresses_are_the_true_ones() {
    if !privileged() {
        return;
    }
    let site = Site::new();
    let (terminal, gateway) = site.both();
    for (client, server, ip) in site.crossings() {
        let (address, answer) = shouter(server, ip);
        let mut stream = connect(client, address).expect("accepted at once");
        let own = stream.local_addr().expect("connected");
        // The server answers only after the client has ended its side.
        assert_eq!(say(&mut stream, b"hello").expect("an answer"), b"HELLO");
        assert_eq!(answer.join().expect("no panic"), own, "address and port of the client");
    }
    assert!(terminal.end(nix::sys::signal::Signal::SIGTERM), "a clean end is a success");
    assert!(gateway.end(nix::sys::signal::Signal::SIGINT), "a clean end is a success");
}
