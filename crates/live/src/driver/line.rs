//! TCP connections that carry a channel while UDP does not work: the gateway listens, the terminal connects.
//!
//! Each is a task of the driver's; what its bytes mean, [`Tunnel`](skyhaul_pep::Tunnel) knows.

use super::Shared;
use skyhaul_pep::PipeId;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tracing::debug;

/// What the driver tells a connection.
#[derive(Default)]
pub(super) struct Signals {
    /// There may be something to send.
    pub(super) kick: Notify,
    /// To be closed once everything has left.
    pub(super) over: Cell<bool>,
}

/// Small enough for any path that carries IPv6 (1,280 bytes), tunnels included: whatever swallows large packets does
/// not swallow these.
const SEGMENT: u32 = 1_100;
/// What the kernel keeps of bytes that it cannot send yet. More would hide the link's state from QUIC.
const UNSENT: libc::c_int = 128 * 1024;
/// As BBR fills a lossy satellite link and the kernel's usual choice does not.
const CONTROL: &[u8] = b"bbr";
/// Attempts to connect are given up after so long.
const CONNECT: Duration = Duration::from_secs(5);
/// Time to write what is left when a connection is closed.
const FAREWELL: Duration = Duration::from_secs(5);
/// Bytes read at once.
const READ: usize = 64 * 1024;

fn prepare(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_mss(SEGMENT)?;
    // Not every kernel has it or lets us; then its own choice has to do.
    let _ = socket.set_tcp_congestion(CONTROL);
    let size = std::mem::size_of_val(&UNSENT) as libc::socklen_t;
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open while `socket` lives, and the pointer and size describe one c_int.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            std::ptr::from_ref(&UNSENT).cast(),
            size,
        )
    };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Listens where the UDP socket does.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // Connections inherit all of it.
    prepare(&SockRef::from(&socket))?;
    socket.bind(&address.into())?;
    socket.listen(64)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

async fn connect(remote: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = match remote {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    prepare(&SockRef::from(&socket))?;
    if let Some(ip) = from.filter(|ip| !ip.is_unspecified() && ip.is_ipv4() == remote.is_ipv4()) {
        socket.bind(SocketAddr::new(ip, 0))?;
    }
    tokio::time::timeout(CONNECT, socket.connect(remote)).await?
}

/// Takes connections in; each becomes a task of `spawn`.
pub(super) async fn accept(shared: Rc<Shared>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let pipe = shared.tunnel.borrow_mut().pipe_accepted(shared.now());
                let Some(pipe) = pipe else {
                    debug!("{from} connected by TCP; nobody is expected there now");
                    crate::tcp::reset(stream);
                    continue;
                };
                shared.accepted.borrow_mut().push((pipe, stream));
                shared.work.notify_one();
            }
            // Out of descriptors, most likely: others will close.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Connects, and carries until either end has enough.
pub(super) async fn dial(
    shared: Rc<Shared>,
    pipe: PipeId,
    remote: SocketAddr,
    from: Option<IpAddr>,
    signals: Rc<Signals>,
) {
    match connect(remote, from).await {
        Ok(stream) => {
            shared.tunnel.borrow_mut().pipe_open(shared.now(), pipe);
            shared.work.notify_one();
            carry(shared, pipe, stream, signals).await;
        }
        Err(error) => {
            debug!("TCP to {remote}: {error}");
            let refused = error.kind() == io::ErrorKind::ConnectionRefused;
            shared.tunnel.borrow_mut().pipe_ended(shared.now(), pipe, refused);
            shared.work.notify_one();
        }
    }
}

/// Moves bytes between a connection and the tunnel until either end has enough.
pub(super) async fn carry(shared: Rc<Shared>, pipe: PipeId, stream: TcpStream, signals: Rc<Signals>) {
    let outcome = exchange(&shared, pipe, &stream, &signals).await;
    if let Err(error) = outcome {
        debug!("TCP connection that carries: {error}");
        crate::tcp::reset(stream);
        shared.tunnel.borrow_mut().pipe_ended(shared.now(), pipe, false);
        shared.work.notify_one();
    }
}

async fn exchange(
    shared: &Rc<Shared>,
    pipe: PipeId,
    stream: &TcpStream,
    signals: &Signals,
) -> io::Result<()> {
    let (mut out, mut at) = (Vec::with_capacity(2 * READ), 0);
    let mut buffer = vec![0; READ];
    loop {
        if signals.over.get() {
            return finish(stream, &out[at..]).await;
        }
        if at == out.len() {
            (at, _) = (0, out.clear());
            shared.tunnel.borrow_mut().pipe_output(shared.now(), pipe, &mut out);
            if !out.is_empty() {
                // Timers have changed, and there may be more.
                shared.work.notify_one();
            }
        }
        if at < out.len() {
            match stream.try_write(&out[at..]) {
                Ok(n) => at += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    shared.tunnel.borrow_mut().pipe_full(pipe);
                }
                Err(error) => return Err(error),
            }
            if at == out.len() {
                // Others get their turn.
                tokio::task::yield_now().await;
                continue;
            }
        }
        tokio::select! {
            ready = stream.readable() => {
                ready?;
                match stream.try_read(&mut buffer) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(n) => {
                        let fine = shared.tunnel.borrow_mut().pipe_input(shared.now(), pipe, &buffer[..n]);
                        shared.work.notify_one();
                        if !fine {
                            return Err(io::ErrorKind::InvalidData.into());
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            ready = stream.writable(), if at < out.len() => ready?,
            () = signals.kick.notified() => {}
        }
    }
}

/// The tunnel has done with the connection: what was given to it leaves, then it ends.
async fn finish(stream: &TcpStream, mut rest: &[u8]) -> io::Result<()> {
    let write = async {
        while !rest.is_empty() {
            stream.writable().await?;
            match stream.try_write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    // Whoever does not take it in this time has no use for it.
    tokio::time::timeout(FAREWELL, write).await.unwrap_or(Ok(()))
}
