//! Moves bytes between a TCP connection and a flow of the tunnel, with the back-pressure of both.

use crate::driver::TunnelHandle;
use crate::tcp::{self, watch::Made, watch::Watch};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use skyhaul_pep::auth::PublicKey;
use skyhaul_pep::frame::{Open, Refusal};
use skyhaul_pep::{FlowId, PeerId, Read};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io::{self, IoSlice};
use std::rc::Rc;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// What the driver tells one flow.
#[derive(Default)]
struct Signals {
    readable: Notify,
    writable: Notify,
    verdict: Cell<Option<Result<(), Refusal>>>,
    judged: Notify,
    is_reset: Cell<bool>,
    was_reset: Notify,
}

/// The flows that somebody listens for.
#[derive(Default)]
pub(crate) struct Flows(BTreeMap<FlowId, Rc<Signals>>);

impl Flows {
    pub(crate) fn add(&mut self, flow: FlowId) {
        self.0.insert(flow, Rc::default());
    }
    pub(crate) fn verdict(&mut self, flow: FlowId, verdict: Result<(), Refusal>) {
        if let Some(signals) = self.0.get(&flow) {
            signals.verdict.set(Some(verdict));
            signals.judged.notify_one();
        }
    }
    pub(crate) fn readable(&mut self, flow: FlowId) {
        if let Some(signals) = self.0.get(&flow) {
            signals.readable.notify_one();
        }
    }
    pub(crate) fn writable(&mut self, flow: FlowId) {
        if let Some(signals) = self.0.get(&flow) {
            signals.writable.notify_one();
        }
    }
    pub(crate) fn reset(&mut self, flow: FlowId) {
        if let Some(signals) = self.0.get(&flow) {
            signals.is_reset.set(true);
            signals.was_reset.notify_one();
        }
    }
}

/// A flow with the right to use it; dropped, it is reset.
struct Held {
    tunnel: TunnelHandle,
    flow: FlowId,
    signals: Rc<Signals>,
    over: Cell<bool>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.tunnel.0.flows.borrow_mut().0.remove(&self.flow);
        if !self.over.get() {
            self.tunnel.0.tunnel.borrow_mut().reset(self.flow);
            self.tunnel.0.work.notify_one();
        }
    }
}

/// A flow the other end has opened, waiting for its destination.
pub struct Incoming {
    /// Where it wants to go.
    pub open: Open,
    /// Who opened it.
    pub peer: PublicKey,
    held: Held,
}

impl Incoming {
    pub(crate) fn new(tunnel: TunnelHandle, flow: FlowId, open: Open, peer: PublicKey) -> Self {
        let signals = tunnel.0.flows.borrow().0.get(&flow).cloned().unwrap_or_default();
        Incoming { open, peer, held: Held { tunnel, flow, signals, over: Cell::new(false) } }
    }

    /// The destination is connected: carries until both directions have ended.
    pub async fn accept(self, server: TcpStream) {
        self.held.tunnel.0.tunnel.borrow_mut().accept(self.held.flow);
        self.held.tunnel.0.work.notify_one();
        self.held.pump(server, Made::Here).await;
    }

    /// The destination cannot be reached.
    pub fn refuse(self, why: Refusal) {
        self.held.over.set(true);
        self.held.tunnel.0.tunnel.borrow_mut().refuse(self.held.flow, why);
        self.held.tunnel.0.work.notify_one();
    }

    /// Completes when the other end has given the flow up.
    pub async fn given_up(&self) {
        self.held.given_up().await;
    }
}

impl TunnelHandle {
    /// The next flow that the other end opens.
    pub async fn next_incoming(&self) -> Incoming {
        loop {
            let ready = self.0.incoming_ready.notified();
            if let Some(incoming) = self.0.incoming.borrow_mut().pop_front() {
                return incoming;
            }
            ready.await;
        }
    }

    /// Carries a client's connection to `open.destination` behind `peer`, until both directions have
    /// ended. With a `greeting`, waits for the destination first and then says it to the client;
    /// without, the client's bytes go out at once and bad news resets the client.
    ///
    /// # Errors
    /// Hands the client back when its destination cannot be reached and nothing was said to it yet.
    pub async fn carry(
        &self,
        peer: PeerId,
        open: &Open,
        client: TcpStream,
        greeting: Option<&[u8]>,
    ) -> Result<(), (TcpStream, Refusal)> {
        self.carry_unless(peer, open, client, greeting, std::future::pending()).await
    }

    /// As [`carry`](Self::carry); the wait for the destination ends when `leave` completes, and the flow is given up.
    ///
    /// # Errors
    /// Hands the client back when its destination cannot be reached, or not in time, and nothing was said to it yet.
    pub async fn carry_unless(
        &self,
        peer: PeerId,
        open: &Open,
        client: TcpStream,
        greeting: Option<&[u8]>,
        leave: impl Future<Output = ()>,
    ) -> Result<(), (TcpStream, Refusal)> {
        let opened = self.0.tunnel.borrow_mut().open(peer, open);
        let flow = match opened {
            Ok(flow) => flow,
            Err(why) => return Err((client, why)),
        };
        self.0.flows.borrow_mut().add(flow);
        let signals = self.0.flows.borrow().0.get(&flow).cloned().unwrap_or_default();
        let held = Held { tunnel: self.clone(), flow, signals, over: Cell::new(false) };
        self.0.work.notify_one();
        if let Some(greeting) = greeting {
            let verdict = tokio::select! {
                verdict = held.verdict() => verdict,
                _ = error_on(&client) => return Ok(()),
                () = leave => Err(Refusal::Unreachable),
            };
            if let Err(why) = verdict {
                return Err((client, why));
            }
            if write_all(&client, &mut VecDeque::from([Bytes::copy_from_slice(greeting)])).await.is_err() {
                return Ok(());
            }
        }
        held.pump(client, Made::There).await;
        Ok(())
    }
}

/// Pieces joined in one write to the TCP connection.
const PIECES: usize = 64;
/// Bytes read from the TCP connection at once.
pub(crate) const READ: usize = 64 * 1024;

thread_local! {
    /// One buffer for the reads of a thread.
    static SCRATCH: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// Reads up to `room` bytes; none at the end of the stream.
pub(crate) fn try_read(stream: &TcpStream, room: usize) -> io::Result<Bytes> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        scratch.reserve(READ);
        let n = stream.try_read_buf(&mut (&mut *scratch).limit(room.min(READ)))?;
        // What was read lives until it is acknowledged: a short read must not keep a long buffer alive.
        Ok(if n * 2 < READ { Bytes::copy_from_slice(scratch) } else { scratch.split().freeze() })
    })
}

impl Held {
    async fn given_up(&self) {
        while !self.signals.is_reset.get() {
            self.signals.was_reset.notified().await;
        }
    }

    async fn verdict(&self) -> Result<(), Refusal> {
        loop {
            if let Some(verdict) = self.signals.verdict.get() {
                return verdict;
            }
            tokio::select! {
                () = self.signals.judged.notified() => {}
                () = self.given_up() => return Err(Refusal::Failed),
            }
        }
    }

    /// Carries both directions. A clean end of both closes the TCP connection in good order; anything
    /// else drops it, and a dropped socket of ours resets (see [`tcp::prepare`]).
    async fn pump(self, stream: TcpStream, made: Made) {
        let watch = RefCell::new(Watch::begin(&stream, made, &self.tunnel.0.exceptions));
        let carried =
            async { tokio::try_join!(self.upload(&stream, &watch), self.download(&stream, &watch)) };
        let clean = tokio::select! {
            carried = carried => carried.is_ok(),
            () = self.given_up() => false,
            () = self.refused() => false,
            _ = error_on(&stream) => false,
        };
        if clean {
            self.over.set(true);
            tcp::close(stream);
        }
    }

    async fn refused(&self) {
        loop {
            if let Some(Err(_)) = self.signals.verdict.get() {
                return;
            }
            self.signals.judged.notified().await;
        }
    }

    /// Looks after the TCP connection now and then, while something moves.
    fn look(&self, stream: &TcpStream, watch: &RefCell<Watch>) {
        if watch.borrow().is_due() {
            let queued = self.tunnel.0.tunnel.borrow().queued(self.flow);
            watch.borrow_mut().look(stream, queued);
        }
    }

    /// TCP to tunnel.
    async fn upload(&self, stream: &TcpStream, watch: &RefCell<Watch>) -> io::Result<()> {
        loop {
            self.look(stream, watch);
            stream.readable().await?;
            // Asked when there is something to read, not before: others have taken room in between.
            let room = loop {
                let room = self.tunnel.0.tunnel.borrow_mut().writable(self.flow);
                if room > 0 {
                    break room;
                }
                self.signals.writable.notified().await;
            };
            let read = try_read(stream, room);
            let mut tunnel = self.tunnel.0.tunnel.borrow_mut();
            match read {
                Ok(bytes) if bytes.is_empty() => {
                    tunnel.finish(self.flow);
                    self.tunnel.0.work.notify_one();
                    return Ok(());
                }
                Ok(bytes) => {
                    watch.borrow_mut().read(bytes.len());
                    if !tunnel.write(self.flow, bytes) {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                    self.tunnel.0.work.notify_one();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Tunnel to TCP.
    async fn download(&self, stream: &TcpStream, watch: &RefCell<Watch>) -> io::Result<()> {
        let mut pieces = VecDeque::with_capacity(PIECES);
        loop {
            self.look(stream, watch);
            let mut end = false;
            {
                let mut tunnel = self.tunnel.0.tunnel.borrow_mut();
                while pieces.len() < PIECES {
                    match tunnel.read(self.flow) {
                        Read::Data(bytes) => pieces.push_back(bytes),
                        Read::End => {
                            end = true;
                            break;
                        }
                        Read::Pending => break,
                        Read::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
                    }
                }
            }
            let total: usize = pieces.iter().map(Bytes::len).sum();
            if total > 0 {
                write_all(stream, &mut pieces).await?;
                self.tunnel.0.tunnel.borrow_mut().consumed(self.flow, total);
                self.tunnel.0.work.notify_one();
            }
            if end {
                socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write)?;
                self.tunnel.0.tunnel.borrow_mut().end_consumed(self.flow);
                self.tunnel.0.work.notify_one();
                return Ok(());
            }
            if total == 0 {
                self.signals.readable.notified().await;
            }
        }
    }
}

/// Completes when the connection has failed: reset by the client, or timed out.
pub(crate) async fn error_on(stream: &TcpStream) -> io::Error {
    loop {
        match stream.ready(Interest::ERROR).await {
            Ok(ready) if ready.is_error() => match stream.take_error() {
                Ok(Some(error)) | Err(error) => return error,
                Ok(None) => std::future::pending().await,
            },
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

/// Writes all pieces, several per system call.
pub(crate) async fn write_all(stream: &TcpStream, pieces: &mut VecDeque<Bytes>) -> io::Result<()> {
    while !pieces.is_empty() {
        let written = {
            let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            stream.try_write_vectored(&slices)
        };
        match written {
            Ok(mut n) => {
                while let Some(first) = pieces.front_mut() {
                    if first.len() > n {
                        first.advance(n);
                        break;
                    }
                    n -= first.len();
                    pieces.pop_front();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
