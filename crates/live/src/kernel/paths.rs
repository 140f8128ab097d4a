//! What controllers have learnt of paths: one entry per destination network, in a map that lasts while any of them is
//! installed. It is written when a connection ends and read when the next to the same network begins.

use super::{load, KernelError};
use skyhaul_cc::units::{Duration, Rate, Share};
use std::net::{IpAddr, Ipv6Addr};

/// A path as `struct path` of bpf/paths.h describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learnt {
    /// The destination's network, host part zero.
    pub network: IpAddr,
    /// Rate at which payload was delivered.
    pub rate: Rate,
    /// Least round trip seen.
    pub min_rtt: Duration,
    /// Share of segments that were lost.
    pub loss: Share,
    /// Window at the end, in segments.
    pub cwnd: u32,
    /// Connections it was learnt from.
    pub uses: u32,
    /// When it was last written, by the clock since boot, without the time the host slept.
    pub updated: Duration,
}

impl Learnt {
    /// Bytes of a `struct path_key`.
    pub(super) const KEY: u32 = 16;
    /// Bytes of a `struct path`.
    pub(super) const VALUE: u32 = 32;

    /// Reads a pair of the map. Nothing if it has another size than bpf/paths.h says.
    pub(super) fn read(key: &[u8], value: &[u8]) -> Option<Learnt> {
        let address: [u8; 16] = key.try_into().ok()?;
        if value.len() != Learnt::VALUE as usize {
            return None;
        }
        let short = |at: usize| Some(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
        Some(Learnt {
            network: Ipv6Addr::from(address).to_canonical(),
            rate: Rate::from_bytes_per_second(long(0)?),
            updated: Duration::from_nanos(long(8)?),
            min_rtt: Duration::from_micros(u64::from(short(16)?)),
            loss: Share::new(f64::from(short(20)?) / 1e6)?,
            cwnd: short(24)?,
            uses: short(28)?,
        })
    }

    /// Time since it was last written.
    pub fn age(&self) -> Duration {
        let now =
            nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(std::time::Duration::from);
        let now = now.map_or(self.updated, Duration::from);
        now.saturating_sub(self.updated)
    }
}

/// All learnt paths in the order of their addresses.
///
/// # Errors
/// When no controller is installed or the map cannot be read.
pub fn read() -> Result<Vec<Learnt>, KernelError> {
    let mut paths = load::paths()?;
    paths.sort_by_key(|path| path.network);
    Ok(paths)
}

/// Forgets the path to a network, or all, and returns how many were known.
///
/// # Errors
/// As [`read`].
pub fn clear(network: Option<IpAddr>) -> Result<usize, KernelError> {
    load::clear(&|path| network.is_none_or(|network| path.network == network))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_as_the_controllers_write_it() {
        let mut key = [0; 16];
        key[10..].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 0]);
        let mut value = Vec::new();
        value.extend(18_750_000u64.to_ne_bytes());
        value.extend(5_000_000_000u64.to_ne_bytes());
        for word in [540_000u32, 12_000, 2_000, 3] {
            value.extend(word.to_ne_bytes());
        }
        let path = Learnt::read(&key, &value).unwrap();
        assert_eq!(path.network, IpAddr::from([192, 0, 2, 0]));
        assert_eq!(path.rate, Rate::mbit(150));
        assert_eq!(path.min_rtt, Duration::from_millis(540));
        assert_eq!((path.loss.value(), path.cwnd, path.uses), (0.012, 2_000, 3));
        assert_eq!(path.updated, Duration::from_secs(5));
        assert_eq!(Learnt::read(&key, &value[..31]), None);
        assert_eq!(Learnt::read(&key[1..], &value), None);
    }
}
