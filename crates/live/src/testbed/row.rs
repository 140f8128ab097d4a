//! One line of results: what every table, JSON array and CSV file of the lab consists of.

use serde::{Deserialize, Serialize};
use skyhaul_cc::units::{Bytes, Duration, Rate};

/// The result of one run. Field names, units and meaning are a contract for scripts: columns are added, never changed.
/// All rates are in bit/s, all times in seconds, all amounts in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Id of the scenario.
    pub scenario: String,
    /// The testbed: "hosts" for programs on the kernel's network stack and the emulated link, "cable" for the same
    /// without the link.
    pub on: String,
    /// As given to `--scheme`.
    pub scheme: String,
    /// As given to `--workload`.
    pub workload: String,
    /// The congestion control that decides about the satellite link.
    pub algorithm: String,
    /// Greatest socket buffers of client and server host.
    pub buffers: String,
    /// Size of the file or object; for iperf3 what arrived.
    pub bytes: u64,
    /// What had arrived when the clock was stopped.
    pub received_bytes: u64,
    /// False if the transfer was stopped at its time limit or failed. Goodput then counts the bytes that arrived.
    pub complete: bool,
    /// From opening the data connection at the client to the last byte at the receiving program, or to the stop.
    pub seconds: f64,
    /// `received_bytes` over `seconds`.
    pub goodput_bit_per_s: f64,
    /// What the link could do at most for this size: bytes / (travel time + bytes at the payload rate after loss).
    /// None without a link.
    pub limit_bit_per_s: Option<f64>,
    /// `goodput_bit_per_s` over `limit_bit_per_s`.
    pub fraction_of_limit: Option<f64>,
    /// Goodput in the second half of `seconds`, when start-up is over; none for short transfers.
    pub second_half_bit_per_s: Option<f64>,
    /// How long the whole file would have taken if the rest had come at the rate of the second half (of all the time,
    /// if that is short); only for stopped transfers that moved at all.
    pub extrapolated_seconds: Option<f64>,
    /// Whether the received file has the SHA-256 of the source, or is its beginning if the transfer was stopped. Empty
    /// for workloads without a file.
    pub integrity_ok: Option<bool>,
    /// False if the emulator could not keep up, twice; the figures then say little.
    pub valid: bool,
    /// Why `valid` is false.
    pub invalid_reason: Option<String>,
    /// Why the transfer failed.
    pub error: Option<String>,
    /// Seed of the link's random losses and of the file's content.
    pub seed: u64,
    /// Counts the repetitions of one command from 1.
    pub repetition: u32,
    /// From the start of the command to opening the data connection: connecting, login.
    pub setup_seconds: Option<f64>,
    /// The whole command, farewell included.
    pub command_seconds: f64,
    /// From the start of the request to the first byte of the answer, median; only for objects.
    pub first_byte_seconds: Option<f64>,
    /// How often an object was fetched; the times are medians over these.
    pub fetches: Option<u32>,
    /// Processor time of our program on the terminal's host during the run: `skyhaul terminal`, an end of a FEC tunnel or
    /// a splitter.
    pub terminal_cpu_seconds: Option<f64>,
    /// The same on the gateway's host.
    pub gateway_cpu_seconds: Option<f64>,
    /// Both, for each 10⁹ bytes that arrived.
    pub cpu_seconds_per_gb: Option<f64>,
    /// Greatest resident memory of our program on the terminal's host.
    pub terminal_peak_bytes: Option<u64>,
    /// Greatest resident memory of our program on the gateway's host.
    pub gateway_peak_bytes: Option<u64>,
    /// Packets the link lost in the direction of the payload, queue overflow not counted.
    pub link_lost_packets: u64,
    /// Packets that found the queue in front of the link full, in the direction of the payload.
    pub queue_dropped_packets: u64,
    /// What the paper behind the scenario reports for its own accelerator and this workload, where it does.
    pub published_bit_per_s: Option<f64>,
    /// How the paper puts it: "exactly", "about", "more than" or "less than".
    pub published_relation: Option<String>,
    /// Everything that was set on the hosts for this scheme.
    #[serde(default)]
    pub settings: Option<String>,
    /// Why the scheme could not be tried on this machine; the figures then mean nothing.
    #[serde(default)]
    pub unavailable: Option<String>,
    /// Name of this machine's processor.
    #[serde(default)]
    pub processor: Option<String>,
    /// How many processors the machine has.
    #[serde(default)]
    pub processors: Option<u32>,
    /// `terminal_cpu_seconds` over `seconds`: 1 is one processor busy all the time.
    #[serde(default)]
    pub terminal_cpu_share: Option<f64>,
    /// `gateway_cpu_seconds` over `seconds`.
    #[serde(default)]
    pub gateway_cpu_share: Option<f64>,
    /// Processor time of the whole machine during the run: client, server, kernel and emulator, and whatever else was
    /// running.
    #[serde(default)]
    pub machine_cpu_seconds: Option<f64>,
    /// The same for each 10⁹ bytes that arrived.
    #[serde(default)]
    pub machine_cpu_seconds_per_gb: Option<f64>,
    /// Packets of the sender on the link that were sent again: TCP's retransmitted segments, or the packets that the
    /// QUIC channel found lost.
    #[serde(default)]
    pub retransmitted_packets: Option<u64>,
    /// The same as a share of all packets the sender sent.
    #[serde(default)]
    pub retransmitted_share: Option<f64>,
    /// IP bytes offered to the link in the direction of the payload: payload, headers, repetitions and repairs.
    #[serde(default)]
    pub link_offered_bytes: Option<u64>,
}

impl Row {
    /// Fills in what follows from the time and the limit.
    pub(super) fn measure(&mut self, time: Duration, limit: Option<Rate>) {
        let goodput = match time {
            Duration::ZERO => Rate::ZERO,
            time => Bytes(self.received_bytes).per(time),
        };
        self.seconds = time.as_secs_f64();
        self.goodput_bit_per_s = goodput.as_f64();
        self.limit_bit_per_s = limit.map(Rate::as_f64);
        self.fraction_of_limit =
            limit.filter(|limit| *limit > Rate::ZERO).map(|limit| goodput.as_f64() / limit.as_f64());
        let per_gb = |seconds: Option<f64>| {
            seconds
                .filter(|_| self.received_bytes > 0)
                .map(|seconds| seconds / (self.received_bytes as f64 / 1e9))
        };
        let ours = [self.terminal_cpu_seconds, self.gateway_cpu_seconds];
        let ours = ours.into_iter().flatten().reduce(|one, other| one + other);
        (self.cpu_seconds_per_gb, self.machine_cpu_seconds_per_gb) =
            (per_gb(ours), per_gb(self.machine_cpu_seconds));
        let share = |cpu: Option<f64>| cpu.filter(|_| self.seconds > 0.0).map(|cpu| cpu / self.seconds);
        (self.terminal_cpu_share, self.gateway_cpu_share) =
            (share(self.terminal_cpu_seconds), share(self.gateway_cpu_seconds));
    }

    /// How long the whole file takes: measured, or extrapolated for stopped transfers.
    pub fn whole_seconds(&self) -> Option<f64> {
        if self.complete {
            Some(self.seconds)
        } else {
            self.extrapolated_seconds
        }
    }

    /// Whether nothing went wrong: the bytes are right, the emulator kept up, the programs succeeded. Nothing goes wrong
    /// in what could not be tried.
    pub fn passed(&self) -> bool {
        self.valid && self.arrived()
    }

    /// The same but for the emulator: a machine that is too busy to be measured carries the bytes all the same.
    pub fn arrived(&self) -> bool {
        self.error.is_none() && self.integrity_ok != Some(false)
    }
}
