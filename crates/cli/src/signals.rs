//! Signals: for a command that runs in front of us they are the command's, and we stay to report; a service ends by them.

use nix::sys::signal::{kill, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::future::Future;
use std::io;
use tokio::signal::unix::{signal, SignalKind};

/// Signals that would end us, held back from the whole process.
pub struct Held(SignalFd);

impl Held {
    /// Holds interrupts, terminations and hang-ups back. Call it before the first thread, which inherits that;
    /// commands started later do not.
    pub fn hold() -> io::Result<Held> {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP] {
            signals.add(signal);
        }
        signals.thread_block()?;
        Ok(Held(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?))
    }

    /// Passes them on to a process from now on. What comes from the keyboard the process has received already.
    pub fn pass_on(self, to: Pid) {
        std::thread::spawn(move || {
            while let Ok(Some(signal)) = self.0.read_signal() {
                if signal.ssi_code == nix::libc::SI_KERNEL {
                    continue;
                }
                if let Ok(signal) = Signal::try_from(signal.ssi_signo as i32) {
                    let _ = kill(to, signal);
                }
            }
        });
    }
}

/// Completes at the first Ctrl-C or SIGTERM from now on. Needs a tokio runtime.
pub fn until_told_to_stop() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
