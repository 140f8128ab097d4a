//! Processor time and memory of the programs under test and of the whole machine, and what TCP repeated, from /proc.

use std::fs;
use std::time::Duration;

use crate::netns::Namespace;

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

/// Processor time of the whole machine: all programs, the emulator and the kernel's own work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// All processors together, idle and stolen time not counted.
    pub busy: Duration,
    /// How many there are.
    pub processors: u32,
}

impl Machine {
    /// Since it was started.
    pub fn now() -> Option<Machine> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        Machine::parse(&text)
    }

    /// First line of /proc/stat (proc(5)): user, nice, system, idle, iowait, irq and softirq in clock ticks.
    fn parse(text: &str) -> Option<Machine> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).take(7).collect();
        let &[user, nice, system, _idle, _iowait, irq, softirq] = ticks.as_slice() else { return None };
        let processors = text.lines().filter(|line| line.starts_with("cpu")).count().saturating_sub(1);
        Some(Machine {
            busy: Duration::from_millis((user + nice + system + irq + softirq) * 10),
            processors: processors as u32,
        })
    }

    /// What was used since `earlier`.
    pub fn since(self, earlier: Machine) -> Machine {
        Machine { busy: self.busy.saturating_sub(earlier.busy), ..self }
    }
}

/// What the machine's processor calls itself: the "model name" of /proc/cpuinfo, else its architecture.
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// TCP segments of a host, of all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// Sent, those that repeat old data not counted (RFC 4022 tcpOutSegs).
    pub sent: u64,
    /// Sent again (tcpRetransSegs).
    pub repeated: u64,
}

impl Segments {
    /// Of a host since it was made.
    pub fn of(host: &Namespace) -> Option<Segments> {
        let text = host.run(|| fs::read_to_string("/proc/thread-self/net/snmp")).ok()?;
        Segments::parse(&text)
    }

    /// Two lines that begin with "Tcp:", the names and the values.
    fn parse(text: &str) -> Option<Segments> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
        let (names, values) = (lines.next()?.split_whitespace(), lines.next()?.split_whitespace());
        let table: Vec<(&str, &str)> = names.zip(values).collect();
        let field = |name: &str| table.iter().find(|(known, _)| *known == name)?.1.parse().ok();
        Some(Segments { sent: field("OutSegs")?, repeated: field("RetransSegs")? })
    }

    /// What was sent since `earlier`.
    pub fn since(self, earlier: Segments) -> Segments {
        Segments {
            sent: self.sent.saturating_sub(earlier.sent),
            repeated: self.repeated.saturating_sub(earlier.repeated),
        }
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
    fn the_machines_time_leaves_idle_and_stolen_out() {
        let text = "cpu  100 10 50 9000 700 5 35 400 0 0\ncpu0 50 5 25 4500 350 2 18 200 0 0\n\
                    cpu1 50 5 25 4500 350 3 17 200 0 0\nintr 5\n";
        let machine = Machine::parse(text).unwrap();
        assert_eq!(machine, Machine { busy: Duration::from_secs(2), processors: 2 });
        assert_eq!(Machine::parse("cpu  1 2\n"), None);
        assert!(Machine::now().is_some_and(|now| now.processors > 0));
        assert!(!processor().is_empty());
    }

    #[test]
    fn repeated_segments_are_found_by_their_name() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm OutSegs RetransSegs InErrs\nTcp: 1 1000 12 0\n";
        assert_eq!(Segments::parse(text), Some(Segments { sent: 1000, repeated: 12 }));
        assert_eq!(Segments::parse("Tcp: OutSegs\nTcp: 5\n"), None);
        assert_eq!(Segments::parse(""), None);
    }

    #[test]
    fn this_process_has_used_some_memory() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.peak_bytes > 100_000, "{usage:?}");
        assert_eq!(Usage::of(u32::MAX), None);
    }
}
