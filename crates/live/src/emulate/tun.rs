//! The device that joins a namespace to the emulator.

use super::EmulateError;
use crate::netns::Namespace;
use std::fs;
use std::sync::Arc;
use tun_rs::{DeviceBuilder, SyncDevice};

/// Name of the device in both namespaces.
pub const DEVICE: &str = "sat";

/// Largest IP packet, in bytes.
pub const MTU: u16 = 1500;

/// Packets the kernel keeps for us between two reads: 15 MB at full size, 0.12 s at 1 Gbit/s. Beyond, the kernel
/// drops, which makes the run invalid.
const DEVICE_QUEUE: u32 = 10_000;

/// One end of the link: a TUN device inside a namespace. It vanishes when the last clone is dropped.
#[derive(Clone)]
pub struct End {
    namespace: Namespace,
    device: Arc<SyncDevice>,
}

impl End {
    /// Makes the device; it is up and has no address.
    ///
    /// No offload is asked for, so the kernel cuts what TCP and UDP hand over in one piece (GSO) into packets of
    /// the MTU before we see it: every loss decision is about one real packet.
    pub fn open(namespace: &Namespace) -> Result<End, EmulateError> {
        let build = || {
            let device = DeviceBuilder::new().name(DEVICE).mtu(MTU).build_sync()?;
            device.set_nonblocking(true)?;
            Ok(device)
        };
        let device = namespace
            .run(build)
            .map_err(|source| EmulateError::Device { namespace: namespace.name().to_owned(), source })?;
        // Not by the crate: its ioctl is refused in a user namespace, the same over netlink is not.
        namespace.ip(&format!("link set {DEVICE} txqueuelen {DEVICE_QUEUE}"))?;
        Ok(End { namespace: namespace.clone(), device: Arc::new(device) })
    }

    /// The device, not blocking.
    pub fn device(&self) -> &SyncDevice {
        &self.device
    }

    /// Packets that the kernel dropped on the way to us because we did not read fast enough, since the device
    /// was made.
    pub fn overrun(&self) -> u64 {
        // The thread's own view; /proc/net would be the view of the process.
        let table = self.namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev"));
        table.ok().and_then(|table| transmit_drops(&table)).unwrap_or(0)
    }
}

/// Column "drop" of the transmit half for our device: proc(5), /proc/net/dev.
fn transmit_drops(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(DEVICE)?.strip_prefix(':'))?;
    line.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmit_drops_are_read_from_the_kernels_table() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
                     lo:     1       2    3    4    5     6          7         8        9       10   11   12   13    14      15         16\n   \
                     sat: 10 20 30 40 50 60 70 80 90 100 110 120 130 140 150 160\n";
        assert_eq!(transmit_drops(table), Some(120));
        assert_eq!(transmit_drops("sat: 1 2"), None);
    }
}
