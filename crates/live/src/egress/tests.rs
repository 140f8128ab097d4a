use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use skyhaul_pep::frame::Class;

use super::*;
use crate::config::Role;

fn exit(egress: &str) -> Exit {
    let key = "skyhaul-ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
    let text = format!(
        "[channel]\ngateway = \"a:1\"\n[keys]\nsecret_file = \"k\"\npeer = \"{key}\"\n\
         [limits]\nconnect_timeout = \"300 ms\"\n[egress]\n{egress}"
    );
    Exit::new(&Config::parse(&text, Path::new("t.toml"), Role::Terminal).unwrap())
}

fn to(target: &str) -> Open {
    let destination = match target.parse::<SocketAddr>() {
        Ok(address) => Target::Address(address),
        Err(_) => {
            let (host, port) = target.rsplit_once(':').unwrap();
            Target::Name { host: host.to_owned(), port: port.parse().unwrap() }
        }
    };
    Open { destination, source: None, class: Class::Normal }
}

#[tokio::test]
async fn a_listening_destination_is_reached_by_address_and_by_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let mut ours = exit("deny = []").connect(&to(&format!("{host}:{port}")), &[]).await.unwrap();
        let (mut theirs, _) = listener.accept().await.unwrap();
        ours.write_all(b"hello").await.unwrap();
        let mut got = [0; 5];
        theirs.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"hello", "{host}");
    }
}

#[tokio::test]
async fn each_failure_has_its_own_refusal() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for (target, egress, wanted) in [
        (free.to_string(), "deny = []", Refusal::Refused),
        (free.to_string(), "", Refusal::NotAllowed),
        (format!("localhost:{}", free.port()), "", Refusal::NotAllowed),
        (format!("[::ffff:127.0.0.1]:{}", free.port()), "", Refusal::NotAllowed),
        ("10.1.2.3:80".to_owned(), "allow = [\"10.2.0.0/16\"]", Refusal::NotAllowed),
        ("no-such-host.invalid:80".to_owned(), "", Refusal::NoSuchName),
    ] {
        let outcome = exit(egress).connect(&to(&target), &[]).await;
        assert_eq!(outcome.unwrap_err(), wanted, "{target} with {egress:?}");
    }
}

#[tokio::test]
async fn a_source_outside_the_peers_networks_is_not_impersonated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut open = to(&listener.local_addr().unwrap().to_string());
    open.source = Some("192.0.2.1:5000".parse().unwrap());
    let networks = ["10.77.1.0/24".parse().unwrap()];
    let outcome = exit("deny = []\npreserve_source = true").connect(&open, &networks).await;
    assert_eq!(outcome.unwrap_err(), Refusal::NotAllowed);
    let ignored = exit("deny = []").connect(&open, &networks).await.unwrap();
    assert_eq!(ignored.local_addr().unwrap().ip(), IpAddr::from([127, 0, 0, 1]), "not asked to preserve");
}

#[tokio::test]
async fn nobody_is_led_to_where_this_end_itself_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let exit = exit("deny = []").without(Rc::new(Loops::new(vec![address])));
    for host in ["127.0.0.1", "localhost"] {
        let outcome = exit.connect(&to(&format!("{host}:{}", address.port())), &[]).await;
        assert_eq!(outcome.unwrap_err(), Refusal::NotAllowed, "{host}");
    }
}

#[tokio::test]
async fn the_congestion_control_that_is_asked_for_sends_or_the_usual_one_if_it_is_not_there() {
    use nix::sys::socket::{getsockopt, sockopt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = to(&listener.local_addr().unwrap().to_string());
    let sender = |stream: &TcpStream| {
        let name = getsockopt(stream, sockopt::TcpCongestion).unwrap();
        name.to_string_lossy().trim_end_matches('\0').to_owned()
    };
    let usual = sender(&exit("deny = []").connect(&open, &[]).await.unwrap());
    // Every kernel has reno.
    for (name, expected) in [("reno", "reno"), ("no_such_thing", usual.as_str())] {
        let congestion = Congestion { name: name.to_owned(), is_missed: Rc::default() };
        let exit = Exit { congestion: Some(congestion.clone()), ..exit("deny = []") };
        assert_eq!(sender(&exit.connect(&open, &[]).await.unwrap()), expected, "{name}");
        assert_eq!(congestion.is_missed.get(), name != "reno");
    }
}

#[test]
fn kernel_errors_become_refusals() {
    for (code, wanted) in [
        (nix::libc::ECONNREFUSED, Refusal::Refused),
        (nix::libc::EHOSTUNREACH, Refusal::Unreachable),
        (nix::libc::ENETUNREACH, Refusal::Unreachable),
        (nix::libc::ETIMEDOUT, Refusal::TimedOut),
        (nix::libc::EACCES, Refusal::NotAllowed),
        (nix::libc::EMFILE, Refusal::Failed),
    ] {
        assert_eq!(refusal(&io::Error::from_raw_os_error(code)), wanted, "{code}");
    }
}

#[tokio::test]
async fn a_connection_is_marked_with_its_class_where_that_is_asked_for() {
    use nix::sys::socket::{getsockopt, sockopt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = Open { class: Class::Background, ..to(&listener.local_addr().unwrap().to_string()) };
    for (egress, byte) in [("deny = []\nmark_dscp = true", 1 << 2), ("deny = []", 0)] {
        let stream = exit(egress).connect(&open, &[]).await.unwrap();
        assert_eq!(getsockopt(&stream, sockopt::Ipv4Tos).unwrap(), byte, "{egress}");
    }
}
