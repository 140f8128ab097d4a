//! A timer as fine as the kernel's: tokio's own rounds to milliseconds, which is twelve packets at
//! 150 Mbit/s.

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use skyhaul_cc::{Duration, Time};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;

/// tokio wants both traits.
struct Fd(TimerFd);

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Fires once at a set time.
pub(crate) struct Timer {
    fd: AsyncFd<Fd>,
    set_to: Option<Time>,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        // SAFETY: `Fd` owns its descriptor, always names the same one and closes it only when dropped.
        let fd = unsafe { AsyncFd::register_with_interest(Fd(fd), Interest::READABLE) }?;
        Ok(Timer { fd, set_to: None })
    }

    /// Sets the timer to fire at `at`, which may lie in the past, or never.
    pub(crate) fn set(&mut self, at: Option<Time>, now: Time) -> io::Result<()> {
        if at == self.set_to {
            return Ok(());
        }
        self.set_to = at;
        match at {
            Some(at) => {
                // Zero would disarm it.
                let wait = at.since(now).max(Duration::from_nanos(1));
                let once = Expiration::OneShot(TimeSpec::from_duration(wait));
                self.fd.get_ref().0.set(once, TimerSetTimeFlags::empty())?;
            }
            None => self.fd.get_ref().0.unset()?,
        }
        Ok(())
    }

    /// Waits until it fires.
    pub(crate) async fn fired(&mut self) -> io::Result<()> {
        loop {
            let mut guard = self.fd.readable().await?;
            // TFD_NONBLOCK: a read without an expiration answers "would block".
            match guard.try_io(|fd| fd.get_ref().0.wait().map_err(io::Error::from)) {
                Ok(result) => {
                    self.set_to = None;
                    return result;
                }
                Err(_would_block) => continue,
            }
        }
    }
}
