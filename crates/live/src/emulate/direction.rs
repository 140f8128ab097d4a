//! One direction of the link in real time: a thread that reads packets at one end, asks the link model for
//! their fate, keeps the survivors until their time and writes them at the other end.

use super::disturb::{Disturbance, Disturber, Passage};
use super::lateness::Histogram;
use super::report::DirectionReport;
use super::store::Store;
use super::tun::{End, MTU};
use nix::errno::Errno;
use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::{TimeSpec, TimeValLike};
use skyhaul_cc::units::{Bytes, Time};
use skyhaul_sim::link::{Fate, Link};
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The handle on a running direction. Dropping it ends the thread; packets under way are forgotten.
pub struct Direction {
    orders: Sender<Order>,
    bell: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Restart(Sender<()>),
    Disturb(Disturbance, Sender<()>),
    Report(Sender<DirectionReport>),
}

impl Direction {
    /// Starts the thread; `link` is in its first moment, which is now. `name` is what the thread is called.
    pub fn start(name: &str, entry: End, exit: End, link: Link) -> io::Result<Direction> {
        let (orders, waiting) = channel();
        let (ear, bell) = io::pipe()?;
        let worker = Worker::new(entry, exit, link);
        let thread =
            thread::Builder::new().name(name.to_owned()).spawn(move || worker.run(&ear, &waiting))?;
        Ok(Direction { orders, bell: Some(bell), thread: Some(thread) })
    }

    /// Puts the link back to its first moment and all counters to zero. Packets under way arrive as planned.
    pub fn restart(&self) {
        let _ = self.ask(Order::Restart);
    }

    /// From now on the packets that come suffer this and nothing else.
    pub fn disturb(&self, what: Disturbance) {
        let _ = self.ask(|answer| Order::Disturb(what, answer));
    }

    /// What happened since the start; none if the thread has died.
    pub fn report(&self) -> Option<DirectionReport> {
        self.ask(Order::Report)
    }

    /// The thread answers between two packets, so counting needs no lock.
    fn ask<T>(&self, order: impl FnOnce(Sender<T>) -> Order) -> Option<T> {
        let (answer, wait) = channel();
        self.orders.send(order(answer)).ok()?;
        self.bell.as_ref()?.write_all(&[0]).ok()?;
        wait.recv().ok()
    }
}

impl Drop for Direction {
    fn drop(&mut self) {
        // The thread notices that the pipe is closed.
        self.bell = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Packets read, and packets written, before the other kind gets its turn.
const BATCH: usize = 64;

/// A link whose full packets follow each other faster than this is served in bunches; on a slower one every
/// packet leaves at its own moment. 240 Mbit/s: the links of the papers are slower.
const CLOSE: Duration = Duration::from_micros(50);

/// How long bunches are collected: a fifth of the lateness that makes a run invalid. Serving each packet of a
/// 1 Gbit/s link by itself took 94 % of a processor, bunches take 36 %.
const REST: Duration = Duration::from_micros(200);

/// What a turn of reading and writing did.
#[derive(Clone, Copy, Default)]
struct Pass {
    moved: bool,
    /// There may be more to do at once.
    more: bool,
}

struct Worker {
    entry: End,
    exit: End,
    /// A copy of the link before its first packet, for a restart.
    fresh: Link,
    link: Link,
    disturber: Option<Disturber>,
    /// The store's time 0.
    epoch: Instant,
    /// The link's time 0, after the epoch.
    started: Duration,
    store: Store,
    late: Histogram,
    written: u64,
    no_room: u64,
    refused: u64,
    overrun_before: u64,
    busy_before: Duration,
    /// Pause after a turn that moved packets, ns.
    rest: u64,
    buffer: Box<[u8; 65536]>,
}

impl Worker {
    fn new(entry: End, exit: End, link: Link) -> Worker {
        let spacing = link.rate(Time::ZERO).time_for(Bytes(u64::from(MTU)));
        let rest = if spacing < CLOSE { REST } else { Duration::ZERO };
        Worker {
            rest: rest.as_nanos() as u64,
            overrun_before: entry.overrun(),
            busy_before: Duration::ZERO,
            entry,
            exit,
            fresh: link.clone(),
            link,
            disturber: None,
            epoch: Instant::now(),
            started: Duration::ZERO,
            store: Store::new(),
            late: Histogram::new(),
            written: 0,
            no_room: 0,
            refused: 0,
            buffer: Box::new([0; 65536]),
        }
    }

    fn run(mut self, ear: &PipeReader, orders: &Receiver<Order>) {
        hurry(URGENCY);
        let mut last = Pass::default();
        loop {
            let turn = self.wait(ear.as_fd(), last).map_err(io::Error::from).and_then(|heard| {
                if heard && !self.obey(ear, orders) {
                    return Ok(None);
                }
                let (read, written) = (self.read_batch()?, self.write_batch());
                Ok(Some(Pass { moved: read.moved || written.moved, more: read.more || written.more }))
            });
            last = match turn {
                Ok(Some(pass)) => pass,
                Ok(None) => return,
                Err(error) => {
                    tracing::error!("the emulated link's device at the entry is gone: {error}");
                    return;
                }
            }
        }
    }

    /// Sleeps until a packet comes, one is due or the bell rings; true for the bell.
    fn wait(&self, ear: BorrowedFd<'_>, last: Pass) -> nix::Result<bool> {
        let device = self.entry.device();
        let files =
            &mut [PollFd::new(ear, PollFlags::POLLIN), PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        let until_due = self.store.next_due().map(|due| due.saturating_sub(self.now()));
        let (files, timeout) = match last {
            Pass { more: true, .. } => (&mut files[..1], Some(0)),
            Pass { moved: true, .. } if self.rest > 0 => (&mut files[..1], Some(self.rest)),
            _ => (&mut files[..], until_due),
        };
        match ppoll(files, timeout.map(|ns| TimeSpec::nanoseconds(ns as i64)), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(files[0].any().unwrap_or(true)),
            Err(error) => Err(error),
        }
    }

    /// Carries out what is asked; false when the handle is gone.
    fn obey(&mut self, mut ear: &PipeReader, orders: &Receiver<Order>) -> bool {
        if !matches!(ear.read(&mut [0; 64]), Ok(rings) if rings > 0) {
            return false;
        }
        for order in orders.try_iter() {
            // Whoever asked may have stopped listening; that is fine.
            match order {
                Order::Restart(answer) => {
                    self.restart();
                    let _ = answer.send(());
                }
                Order::Disturb(what, answer) => {
                    self.disturber =
                        (what != Disturbance::NONE).then(|| Disturber::new(what, self.epoch.elapsed()));
                    let _ = answer.send(());
                }
                Order::Report(answer) => {
                    let _ = answer.send(self.report());
                }
            }
        }
        true
    }

    fn restart(&mut self) {
        self.link = self.fresh.clone();
        self.started = self.epoch.elapsed();
        self.late = Histogram::new();
        self.store.begin_again();
        (self.written, self.no_room, self.refused) = (0, 0, 0);
        self.overrun_before = self.entry.overrun();
        self.busy_before = processor_time();
    }

    fn report(&self) -> DirectionReport {
        DirectionReport {
            link: *self.link.counters(),
            written: self.written,
            under_way: self.store.counted(),
            overrun: self.entry.overrun().saturating_sub(self.overrun_before),
            no_room: self.no_room,
            refused: self.refused,
            late: self.late.summary(),
            one_way: self.link.one_way(Time::ZERO),
            busy: processor_time().saturating_sub(self.busy_before),
            died: false,
        }
    }

    /// Takes what has arrived, up to a batch. Fails when somebody has removed the device.
    fn read_batch(&mut self) -> io::Result<Pass> {
        for read in 0..BATCH {
            match self.entry.device().recv(&mut self.buffer[..]) {
                Ok(size) => self.offer(size),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Pass { moved: read > 0, more: false })
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Pass { moved: true, more: true })
    }

    /// One packet at the entry of the link.
    fn offer(&mut self, size: usize) {
        let Some(passage) = self.disturbed(size) else { return };
        let now = self.epoch.elapsed() - self.started;
        let Fate::Delivered { at } =
            self.link.offer(Time::from_nanos(now.as_nanos() as u64), Bytes(size as u64))
        else {
            return;
        };
        let due = (at.since_start() + self.started + passage.later).as_nanos() as u64;
        for _ in 0..=u8::from(passage.twice) {
            if !self.store.keep(due, &self.buffer[..size]) {
                self.no_room += 1;
            }
        }
    }

    /// What the disturbance, if there is one, does to the packet in the buffer; none if it takes it away.
    fn disturbed(&mut self, size: usize) -> Option<Passage> {
        match &mut self.disturber {
            None => Some(Passage::default()),
            Some(disturber) => disturber.meet(self.epoch.elapsed(), &mut self.buffer[..size]),
        }
    }

    /// Gives out what is due, up to a batch.
    fn write_batch(&mut self) -> Pass {
        for written in 0..BATCH {
            let now = self.now();
            let due = self.store.next_due().filter(|due| *due <= now);
            let taken = due.and_then(|_| self.store.take(|packet| self.exit.device().send(packet)));
            let (Some(due), Some((result, counts))) = (due, taken) else {
                return Pass { moved: written > 0, more: false };
            };
            if !counts {
                continue;
            }
            self.late.record(Duration::from_nanos(now - due));
            match result {
                Ok(_) => self.written += 1,
                Err(error) => {
                    if self.refused == 0 {
                        tracing::warn!("the far device refuses packets: {error}");
                    }
                    self.refused += 1;
                }
            }
        }
        Pass { moved: true, more: true }
    }

    /// Nanoseconds since the epoch.
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

/// Asks the kernel to run this thread when its time has come, whatever else the machine does: a link does not
/// slow down because the hosts at its ends are busy. Needs a right that not everybody has; without it the
/// lateness will tell. Of two such threads the one with the greater `urgency`, 1 to 99, goes first.
pub(crate) fn hurry(urgency: i32) {
    // 1 ns: wake up when asked to, not with other timers a little later.
    let _ = nix::sys::prctl::set_timerslack(1);
    let wanted = libc::sched_param { sched_priority: urgency };
    // SAFETY: a plain system call on the calling thread (0) with a pointer to a live structure.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &wanted) } != 0 {
        tracing::debug!("no real-time priority: {}", io::Error::last_os_error());
    }
}

/// Before the programs that use the link, should they ask for real-time priority.
const URGENCY: i32 = 2;

/// Processor time this thread has used.
fn processor_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Duration::ZERO };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros.unsigned_abs())
}
