//! Doors with real sockets on loopback, joined to the exit as if the tunnel between them took no time.

use std::path::Path;
use std::rc::Rc;

use tokio::io::{copy_bidirectional, AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;

use super::*;
use crate::config::Role;
use crate::egress::Exit;

/// Runs `client` against a terminal's doors, each on a free port in the order of `sections`, that lead straight out.
async fn with_doors<F>(sections: &str, client: impl FnOnce(Vec<SocketAddr>) -> F)
where
    F: Future<Output = ()>,
{
    let key = "skyhaul-ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
    let text = format!(
        "[channel]\ngateway = \"a:1\"\n[keys]\nsecret_file = \"k\"\npeer = \"{key}\"\n\
         [egress]\ndeny = [\"127.0.0.9\"]\n{sections}"
    );
    let config = Config::parse(&text, Path::new("t.toml"), Role::Terminal).unwrap();
    let exit = Rc::new(Exit::new(&config));
    let ingress = Ingress::bind(&config).unwrap();
    let doors = ingress.doors.iter().map(|door| door.address).collect();
    let local = LocalSet::new();
    local.spawn_local(ingress.serve(move |arrival| straight_out(arrival, Rc::clone(&exit))));
    local.run_until(client(doors)).await;
}

async fn straight_out(mut arrival: Arrival, exit: Rc<Exit>) {
    match exit.connect(&arrival.open, &[]).await {
        Ok(mut server) => {
            arrival.client.write_all(arrival.dialect.accepted()).await.unwrap();
            if copy_bidirectional(&mut arrival.client, &mut server).await.is_ok() {
                tcp::close(arrival.client);
                tcp::close(server);
            }
        }
        Err(why) => arrival.dialect.refuse(arrival.client, why).await,
    }
}

/// A server that sends back what it gets, in capitals.
async fn shouter() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).await.unwrap();
                stream.write_all(&heard.to_ascii_uppercase()).await.unwrap();
            });
        }
    });
    address
}

async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// Sends `words`, ends the sending side, and returns all that comes back.
async fn say(door: SocketAddr, words: &[u8]) -> io::Result<Vec<u8>> {
    let mut client = TcpStream::connect(door).await?;
    client.write_all(words).await?;
    client.shutdown().await?;
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await?;
    Ok(heard)
}

fn socks5_request(to: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(to) = to else { panic!("an IPv4 address") };
    [&[5, 1, 0, 5, 1, 0, 1][..], &to.ip().octets(), &to.port().to_be_bytes()].concat()
}

#[tokio::test]
async fn a_forwarded_port_leads_to_its_destination_and_carries_half_close() {
    let server = shouter().await;
    with_doors(&format!("[[forward]]\nlisten = \"127.0.0.1:0\"\nto = \"{server}\""), |doors| async move {
        assert_eq!(say(doors[0], b"hello").await.unwrap(), b"HELLO");
    })
    .await;
}

#[tokio::test]
async fn socks5_carries_what_was_sent_together_with_the_request() {
    let server = shouter().await;
    with_doors("[[socks5]]\nlisten = \"127.0.0.1:0\"", |doors| async move {
        let words = [socks5_request(server), b"early".to_vec()].concat();
        let heard = say(doors[0], &words).await.unwrap();
        assert_eq!(heard, [&socks5::NO_PASSWORD[..], &socks5::ACCEPTED, b"EARLY"].concat());
    })
    .await;
}

#[tokio::test]
async fn http_connect_carries_what_was_sent_together_with_the_request() {
    let server = shouter().await;
    with_doors("[[http_connect]]\nlisten = \"127.0.0.1:0\"", |doors| async move {
        let padding = "x".repeat(3000);
        let words = format!("CONNECT {server} HTTP/1.1\r\nX-Padding: {padding}\r\n\r\nearly");
        let heard = say(doors[0], words.as_bytes()).await.unwrap();
        assert_eq!(heard, [http_connect::ACCEPTED, b"EARLY"].concat());
    })
    .await;
}

#[tokio::test]
async fn a_refused_destination_is_told_in_the_clients_own_protocol() {
    let nobody = free_address().await;
    let forbidden: SocketAddr = "127.0.0.9:9".parse().unwrap();
    let sections = format!(
        "[[socks5]]\nlisten = \"127.0.0.1:0\"\n[[http_connect]]\nlisten = \"127.0.0.1:0\"\n\
         [[forward]]\nlisten = \"127.0.0.1:0\"\nto = \"{nobody}\""
    );
    with_doors(&sections, |doors| async move {
        let connect = |to: SocketAddr| format!("CONNECT {to} HTTP/1.1\r\n\r\n").into_bytes();
        for (to, code, status) in [(nobody, 5, "HTTP/1.1 502"), (forbidden, 2, "HTTP/1.1 403")] {
            let socks5 = say(doors[0], &socks5_request(to)).await.unwrap();
            assert_eq!((socks5.len(), socks5[3]), (12, code), "{to}: {socks5:?}");
            let http = String::from_utf8(say(doors[1], &connect(to)).await.unwrap()).unwrap();
            assert!(http.starts_with(status), "{to}: {http}");
        }
        let error = say(doors[2], b"").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    })
    .await;
}

#[tokio::test]
async fn nonsense_gets_an_answer_and_the_door_stays_open() {
    let server = shouter().await;
    let sections = "[[socks5]]\nlisten = \"127.0.0.1:0\"\n[[http_connect]]\nlisten = \"127.0.0.1:0\"";
    with_doors(sections, |doors| async move {
        assert_eq!(say(doors[0], &[5, 1, 2]).await.unwrap(), [5, 0xff]);
        let get = say(doors[1], b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert!(get.starts_with(b"HTTP/1.1 405"), "{get:?}");
        let heard = say(doors[0], &[socks5_request(server), b"x".to_vec()].concat()).await.unwrap();
        assert!(heard.ends_with(b"X"), "{heard:?}");
    })
    .await;
}

#[tokio::test]
async fn beyond_the_limit_on_connections_new_ones_are_reset() {
    let server = shouter().await;
    let sections = format!("[limits]\nflows = 1\n[[forward]]\nlisten = \"127.0.0.1:0\"\nto = \"{server}\"");
    with_doors(&sections, |doors| async move {
        let mut first = TcpStream::connect(doors[0]).await.unwrap();
        first.write_all(b"first").await.unwrap();
        // The reset can be there before connect() has returned.
        let error = say(doors[0], b"").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        first.shutdown().await.unwrap();
        let mut heard = Vec::new();
        first.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"FIRST");
    })
    .await;
}

#[tokio::test]
async fn a_door_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let key = "skyhaul-ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
    let text = format!(
        "[channel]\ngateway = \"a:1\"\n[keys]\nsecret_file = \"k\"\npeer = \"{key}\"\n\
         [[socks5]]\nlisten = \"{address}\""
    );
    let config = Config::parse(&text, Path::new("t.toml"), Role::Terminal).unwrap();
    let error = Ingress::bind(&config).err().unwrap().to_string();
    assert!(error.contains(&format!("[socks5] cannot listen on {address}")), "{error}");
}

/// Accepts one client of a listener and says how the client's SYN was marked.
async fn mark_seen_by(
    listener: &TcpListener,
    marked: impl FnOnce(&tokio::net::TcpSocket),
) -> Option<crate::config::Dscp> {
    let to = listener.local_addr().unwrap();
    let socket =
        if to.is_ipv4() { tokio::net::TcpSocket::new_v4() } else { tokio::net::TcpSocket::new_v6() }.unwrap();
    marked(&socket);
    let (client, accepted) = tokio::join!(socket.connect(to), listener.accept());
    let _client = client.unwrap();
    syn::read(&accepted.unwrap().0).map(|syn| syn.dscp)
}

#[tokio::test]
async fn the_mark_of_a_clients_first_packet_is_seen() {
    use nix::sys::socket::{setsockopt, sockopt};
    let listener = listen_at("127.0.0.1:0".parse().unwrap()).unwrap();
    let seen =
        mark_seen_by(&listener, |socket| setsockopt(socket, sockopt::Ipv4Tos, &(46 << 2)).unwrap()).await;
    assert_eq!(seen, "ef".parse().ok());
    let seen = mark_seen_by(&listener, |_| ()).await;
    assert_eq!(seen, "df".parse().ok());
    // Hosts without IPv6 have nothing to see.
    let Ok(listener) = listen_at("[::1]:0".parse().unwrap()) else { return };
    let seen =
        mark_seen_by(&listener, |socket| setsockopt(socket, sockopt::Ipv6TClass, &(8 << 2)).unwrap()).await;
    assert_eq!(seen, "cs1".parse().ok());
}

#[tokio::test]
async fn a_connection_has_the_class_that_the_config_gives_its_port() {
    let server = shouter().await;
    let key = "skyhaul-ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
    let text = format!(
        "[channel]\ngateway = \"a:1\"\n[keys]\nsecret_file = \"k\"\npeer = \"{key}\"\n\
         [[priority]]\nclass = \"background\"\nports = [{}]\n\
         [[forward]]\nlisten = \"127.0.0.1:0\"\nto = \"{server}\"\n\
         [[forward]]\nlisten = \"127.0.0.1:0\"\nto = \"127.0.0.1:1\"\n",
        server.port()
    );
    let config = Config::parse(&text, Path::new("t.toml"), Role::Terminal).unwrap();
    let ingress = Ingress::bind(&config).unwrap();
    let doors: Vec<_> = ingress.doors.iter().map(|door| door.address).collect();
    let (heard, mut classes) = tokio::sync::mpsc::unbounded_channel();
    let local = LocalSet::new();
    local.spawn_local(ingress.serve(move |arrival| {
        let heard = heard.clone();
        async move { heard.send(arrival.open.class).unwrap() }
    }));
    local
        .run_until(async {
            for (door, class) in [(doors[0], Class::Background), (doors[1], Class::Normal)] {
                let _client = TcpStream::connect(door).await.unwrap();
                assert_eq!(classes.recv().await, Some(class));
            }
        })
        .await;
}
