//! The server programs of the lab, each with a configuration of its own inside the server host.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::LabError;
use crate::netns::Namespace;

/// A running server; dropping it ends the program and all its children.
#[derive(Debug)]
pub struct Server {
    program: &'static str,
    child: Child,
}

/// The folders a server shows to its clients.
#[derive(Clone, Debug)]
pub struct Shop {
    /// Configuration, logs and pid files.
    pub private: PathBuf,
    /// What clients see as "/".
    pub root: PathBuf,
    /// Where they may store files: `upload` below the root.
    pub upload: PathBuf,
}

impl Shop {
    /// Makes the folders inside `dir`.
    ///
    /// # Errors
    /// When they can't be made.
    pub fn new(dir: &Path) -> Result<Shop, LabError> {
        let root = dir.join("root");
        let shop = Shop { private: dir.join("server"), upload: root.join("upload"), root };
        for dir in [&shop.private, &shop.upload, &shop.private.join("empty")] {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o755);
            builder.create(dir).map_err(|e| LabError::io("make the folder", dir, e))?;
        }
        Ok(shop)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, LabError> {
        let path = self.private.join(name);
        fs::write(&path, text).map_err(|e| LabError::io("write", &path, e))?;
        Ok(path)
    }
}

impl Server {
    /// An FTP server for anonymous users, reading and writing.
    ///
    /// # Errors
    /// When vsftpd is missing or does not start to listen.
    pub fn vsftpd(host: &Namespace, address: SocketAddr, shop: &Shop) -> Result<Server, LabError> {
        let program = find("vsftpd", "vsftpd")?;
        let config = shop.write("vsftpd.conf", &vsftpd_config(address, shop, &program))?;
        // vsftpd has one process per session. In a process namespace of their own they all end with the first one.
        let mut command = host.command("unshare");
        command.args(["--pid", "--fork", "--kill-child=KILL"]).arg(program).arg(config);
        // It reports its errors on standard input, which it takes for the control connection.
        let report = shop.private.join("vsftpd.log");
        let log = fs::File::create(&report).map_err(|e| LabError::io("write", &report, e))?;
        command.stdin(log);
        Server::start("vsftpd", command, &report)?.until_it_listens(host, address, &report)
    }

    /// An HTTP server for the files below the root.
    ///
    /// # Errors
    /// When nginx is missing or does not start to listen.
    pub fn nginx(host: &Namespace, address: SocketAddr, shop: &Shop) -> Result<Server, LabError> {
        let program = find("nginx", "nginx")?;
        let config = shop.write("nginx.conf", &nginx_config(address, shop))?;
        let report = shop.private.join("nginx.log");
        let mut command = host.command(&program.to_string_lossy());
        command.arg("-p").arg(&shop.private).arg("-c").arg(config).stdin(Stdio::null());
        Server::start("nginx", command, &report)?.until_it_listens(host, address, &report)
    }

    /// The far end of iperf3.
    ///
    /// # Errors
    /// When iperf3 is missing or does not start to listen.
    pub fn iperf3(host: &Namespace, address: SocketAddr, shop: &Shop) -> Result<Server, LabError> {
        let program = find("iperf3", "iperf3")?;
        let report = shop.private.join("iperf3.log");
        let mut command = host.command(&program.to_string_lossy());
        command.args(["--server", "--port", &address.port().to_string()]).stdin(Stdio::null());
        Server::start("iperf3", command, &report)?.until_it_listens(host, address, &report)
    }

    fn start(program: &'static str, mut command: Command, report: &Path) -> Result<Server, LabError> {
        let open = || fs::File::options().create(true).append(true).open(report);
        let log = open().map_err(|e| LabError::io("write", report, e))?;
        let errors = open().map_err(|e| LabError::io("write", report, e))?;
        let child = command.stdout(log).stderr(errors).spawn().map_err(|e| LabError::start(program, e))?;
        Ok(Server { program, child })
    }

    fn until_it_listens(
        mut self,
        host: &Namespace,
        address: SocketAddr,
        report: &Path,
    ) -> Result<Server, LabError> {
        let end = Instant::now() + PATIENCE;
        while !host.run(|| listens(address.port())) {
            if Instant::now() >= end || !matches!(self.child.try_wait(), Ok(None)) {
                let said = fs::read_to_string(report).unwrap_or_default();
                return Err(LabError::NotListening { program: self.program, address, said });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(self)
    }
}

/// Whether a socket of this thread's network namespace listens on the port, by the kernel's table. Asking it by a connection
/// would be a client to iperf3, which then resets whoever comes next.
fn listens(port: u16) -> bool {
    ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .any(|table| has_listener(&table, port))
}

/// The second column is the local address and port in hex, the fourth the state; 0A is LISTEN.
fn has_listener(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut columns = line.split_whitespace();
        columns.nth(1).is_some_and(|local| local.ends_with(&port)) && columns.nth(1) == Some("0A")
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of an installed program, or an error that names the Debian package it is in.
///
/// # Errors
/// When it is in none of the folders of PATH, /usr/sbin and /sbin.
pub fn find(program: &'static str, package: &'static str) -> Result<PathBuf, LabError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
        .ok_or(LabError::Missing { program, package })
}

/// Runs as the user that started it: inside a user namespace there is no other.
fn vsftpd_config(address: SocketAddr, shop: &Shop, program: &Path) -> String {
    let family = if address.is_ipv6() { "listen=NO\nlisten_ipv6=YES" } else { "listen=YES\nlisten_ipv6=NO" };
    let mut text = format!(
        "{family}\nbackground=NO\nlisten_port={port}\nanonymous_enable=YES\nlocal_enable=NO\nno_anon_password=YES\n\
         anon_root={root}\nwrite_enable=YES\nanon_upload_enable=YES\nanon_umask=022\nftp_username={user}\n\
         nopriv_user={user}\nsecure_chroot_dir={empty}\nrun_as_launching_user=YES\nisolate=NO\nisolate_network=NO\n\
         seccomp_sandbox=NO\nxferlog_enable=NO\nconnect_from_port_20=NO\naccept_timeout=600\nconnect_timeout=600\n\
         data_connection_timeout=3600\nidle_session_timeout=3600\n",
        port = address.port(),
        root = shop.root.display(),
        empty = shop.private.join("empty").display(),
        user = "root",
    );
    // From 3.0.5 on vsftpd looks clients up in the DNS, which the server host does not have, unless told not to; older
    // ones refuse the setting.
    let setting = b"reverse_lookup_enable";
    if fs::read(program).is_ok_and(|code| code.windows(setting.len()).any(|part| part == setting)) {
        text.push_str("reverse_lookup_enable=NO\n");
    }
    text
}

/// One process, so that ending it ends all of it.
fn nginx_config(address: SocketAddr, shop: &Shop) -> String {
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("  {kind}_temp_path {};\n", shop.private.join("empty").join(kind).display()))
        .collect();
    format!(
        "daemon off;\nmaster_process off;\nuser root root;\nerror_log stderr warn;\npid {pid};\n\
         events {{ worker_connections 1024; }}\nhttp {{\n{temp}  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  send_timeout 1h;\n  \
         server {{ listen {address}; root {root}; }}\n}}\n",
        pid = shop.private.join("nginx.pid").display(),
        root = shop.root.display(),
    )
}

const PAUSE: Duration = Duration::from_millis(20);
/// A server that does not listen by then will not.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_in_the_kernels_table_and_a_connection_is_none() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     0: 0100007F:1451 00000000:0000 0A 00000000:00000000\n\
                     1: 0100007F:0050 0100007F:C350 01 00000000:00000000\n";
        assert!(has_listener(table, 5201));
        assert!(!has_listener(table, 80) && !has_listener(table, 50_000) && !has_listener("", 80));
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = find("no-such-server", "no-such-package").unwrap_err().to_string();
        assert!(
            error.contains("no-such-server") && error.contains("apt-get install no-such-package"),
            "{error}"
        );
    }
}
