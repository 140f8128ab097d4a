//! Namespaces on the real kernel. These tests need root and say so when they skip.

use skyhaul_live::netns::Namespace;
use std::net::{TcpListener, TcpStream};

/// True when the test may make namespaces; otherwise says why it does nothing.
fn privileged() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: network namespaces need root");
    }
    root
}

#[test]
fn needs_namespaces_two_of_them_talk_over_a_cable_and_the_host_does_not_see_it() {
    if !privileged() {
        return;
    }
    let left = Namespace::new("left").unwrap();
    let right = Namespace::new("right").unwrap();
    Namespace::veth(&left, "cable", &right, "cable").unwrap();
    for (namespace, address) in [(&left, "192.0.2.1/24"), (&right, "192.0.2.2/24")] {
        namespace.ip(&format!("address add {address} dev cable")).unwrap();
        namespace.ip("link set cable up").unwrap();
    }
    let listener = right.run(|| TcpListener::bind("192.0.2.2:0")).unwrap();
    let to = listener.local_addr().unwrap();
    let peer = left.run(|| TcpStream::connect(to)).unwrap().local_addr().unwrap();
    assert_eq!(peer.ip().to_string(), "192.0.2.1");
    assert!(!std::fs::read_to_string("/proc/net/dev").unwrap().contains("cable"));
}

#[test]
fn needs_namespaces_a_value_under_proc_sys_is_the_namespaces_own() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new("alone").unwrap();
    let path = "/proc/sys/net/ipv4/ip_default_ttl";
    let outside = std::fs::read_to_string(path).unwrap();
    namespace.sysctl("net.ipv4.ip_default_ttl", "37").unwrap();
    assert_eq!(namespace.run(|| std::fs::read_to_string(path)).unwrap().trim(), "37");
    assert_eq!(std::fs::read_to_string(path).unwrap(), outside);
}

#[test]
fn needs_namespaces_a_failed_ip_command_shows_the_command_and_its_complaint() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new("alone").unwrap();
    let message = namespace.ip("link set nowhere up").unwrap_err().to_string();
    assert!(message.contains("namespace alone: `ip link set nowhere up`"), "{message}");
    assert!(message.contains("Cannot find device"), "{message}");
}
