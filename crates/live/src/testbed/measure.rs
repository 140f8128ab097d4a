//! Processor time and memory of the programs under test, from /proc.

use std::fs;
use std::time::Duration;

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time, user and system, of all its threads.
    pub cpu: Duration,
    /// Greatest resident memory since it started, in bytes.
    pub peak_bytes: u64,
}

impl Usage {
    /// Of the process `pid`; `None` if there is none, or /proc can't be read or shows another process id
    /// namespace, where the number belongs to somebody else.
    pub fn of(pid: u32) -> Option<Usage> {
        let own = fs::read_link("/proc/self").ok()?;
        if own.to_str()?.parse() != Ok(std::process::id()) {
            return None;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(Usage { cpu: cpu(&stat)?, peak_bytes: field_kib(&status, "VmHWM:")? })
    }

    /// What was used since `earlier`; the peak stays a peak.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage { cpu: self.cpu.saturating_sub(earlier.cpu), peak_bytes: self.peak_bytes }
    }
}

/// Fields 14 and 15 of /proc/PID/stat (proc(5)): user and system time in clock ticks, of which there are 100 a second on
/// every Linux architecture Rust knows (`USER_HZ`).
fn cpu(stat: &str) -> Option<Duration> {
    // The name in field 2 may hold spaces and brackets; it ends at the last bracket.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 10))
}

/// The field `name` of a file such as /proc/PID/status or /proc/meminfo, printed in kB and returned in bytes.
pub(super) fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_a_name_with_spaces_and_brackets() {
        let stat = "4711 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 1 0 100";
        assert_eq!(cpu(stat), Some(Duration::from_millis(1750)));
        assert_eq!(cpu("4711 (x) S 1"), None);
    }

    #[test]
    fn kibibytes_become_bytes() {
        assert_eq!(field_kib("VmPeak:\t 9 kB\nVmHWM:\t  12 kB\n", "VmHWM:"), Some(12 * 1024));
        assert_eq!(field_kib("VmHWM: many\n", "VmHWM:"), None);
    }

    #[test]
    fn this_process_has_used_some_memory() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.peak_bytes > 100_000, "{usage:?}");
        assert_eq!(Usage::of(u32::MAX), None);
    }
}
