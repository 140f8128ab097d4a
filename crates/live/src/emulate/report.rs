//! What an emulated link did to the packets, and whether the emulator itself was good enough to be believed.

use super::lateness::Lateness;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use skyhaul_cc::units::Share;
use skyhaul_sim::link::{Cause, Counters};
use std::fmt;
use std::time::Duration;

/// One direction since the start or the last restart.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectionReport {
    /// What the link model decided.
    pub link: Counters,
    /// Packets that have come out at the far end.
    pub written: u64,
    /// Packets still on their way.
    pub under_way: u64,
    /// The emulator's own drops: the device's queue ran over before we read it. The link never saw these.
    pub overrun: u64,
    /// The emulator's own drops: too many packets under way at once.
    pub no_room: u64,
    /// The emulator's own drops: the device at the far end did not take them.
    pub refused: u64,
    /// How much later than planned packets came out.
    pub late: Lateness,
    /// The way's own one-way delay, of which a lateness is a share.
    pub one_way: Duration,
    /// Processor time the emulator used, which includes what the far host's network stack does with each packet.
    pub busy: Duration,
    /// The thread that carries the packets has ended by an error; the counts are lost.
    pub died: bool,
}

/// Both directions of an emulated link.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Report {
    /// From the terminal's side to the gateway's.
    pub forward: DirectionReport,
    /// From the gateway's side to the terminal's.
    pub back: DirectionReport,
    /// Processor time of this machine that the hypervisor gave to others.
    #[serde(rename = "stolen_share", serialize_with = "share")]
    pub stolen: Share,
}

/// A packet may be this late at the 99th percentile …
const LATENESS_ALLOWED: Duration = Duration::from_millis(1);
/// … or by one part in so many of the one-way delay: over a satellite 2.7 ms, which no rate there feels.
const LATENESS_PARTS: u32 = 100;

/// Percent of the processor time that the hypervisor may take.
const STOLEN_ALLOWED: f64 = 3.0;

impl DirectionReport {
    /// The report of a direction that cannot report.
    pub(super) fn dead() -> DirectionReport {
        DirectionReport { died: true, ..DirectionReport::default() }
    }

    /// Packets lost by the emulator's own fault.
    pub fn own_drops(&self) -> u64 {
        self.overrun + self.no_room + self.refused
    }

    /// How late packets may be at the 99th percentile.
    pub fn lateness_allowed(&self) -> Duration {
        LATENESS_ALLOWED.max(self.one_way / LATENESS_PARTS)
    }

    fn reasons<'a>(&self, name: &'a str) -> impl Iterator<Item = String> + 'a {
        let (own, late, allowed) = (self.own_drops(), self.late.p99, self.lateness_allowed());
        let died = self.died.then(|| format!("{name}: the emulator's thread ended"));
        let dropped = (own > 0).then(|| format!("{name}: the emulator itself dropped {own} packets"));
        let late = (late > allowed).then(|| {
            format!("{name}: packets up to {:.3} ms late at p99, allowed is {} ms", ms(late), ms(allowed))
        });
        [died, dropped, late].into_iter().flatten()
    }
}

impl Report {
    /// Why the run must not be believed; none if it may: no packet dropped by the emulator itself, lateness at the
    /// 99th percentile not above 1 ms or 1 % of the one-way delay, no more than 3 % of the processor time stolen by the hypervisor.
    pub fn invalid(&self) -> Option<String> {
        let stolen = (self.stolen.percent() > STOLEN_ALLOWED).then(|| {
            format!("{:.1} % of the CPU time stolen by the hypervisor, allowed is 3 %", self.stolen.percent())
        });
        let reasons: Vec<_> =
            self.forward.reasons(FORWARD).chain(self.back.reasons(BACK)).chain(stolen).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

const FORWARD: &str = "terminal to gateway";
const BACK: &str = "gateway to terminal";

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = [&self.forward, &self.back];
        writeln!(out, "{:<24}{FORWARD:>22}{BACK:>22}", "")?;
        let mut row = |name: &str, cell: &dyn Fn(&DirectionReport) -> String| {
            let [forward, back] = both.map(cell);
            writeln!(out, "{name:<24}{forward:>22}{back:>22}")
        };
        row("offered, packets", &|way| way.link.offered.packets.to_string())?;
        row("offered, MB", &|way| format!("{:.3}", way.link.offered.bytes.as_f64() / 1e6))?;
        row("delivered, packets", &|way| way.link.delivered.packets.to_string())?;
        for cause in Cause::ALL {
            row(&format!("lost, {cause}"), &|way| way.link.dropped(cause).packets.to_string())?;
        }
        row("lost on the air, %", &|way| format!("{:.3}", way.link.loss_on_air().percent()))?;
        row("still under way", &|way| way.under_way.to_string())?;
        row("emulator's own drops", &|way| way.own_drops().to_string())?;
        row("late, half, ms", &|way| format!("{:.3}", ms(way.late.p50)))?;
        row("late, p99, ms", &|way| format!("{:.3}", ms(way.late.p99)))?;
        row("late, max, ms", &|way| format!("{:.3}", ms(way.late.max)))?;
        row("CPU used, s", &|way| format!("{:.3}", way.busy.as_secs_f64()))?;
        writeln!(out, "{:<24}{:>22.3}", "CPU time stolen, %", self.stolen.percent())?;
        match self.invalid() {
            None => write!(out, "run valid"),
            Some(reasons) => write!(out, "run INVALID: {reasons}"),
        }
    }
}

impl Serialize for DirectionReport {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let counters = &self.link;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("offered_packets", &counters.offered.packets)?;
        map.serialize_entry("offered_bytes", &counters.offered.bytes.0)?;
        map.serialize_entry("delivered_packets", &counters.delivered.packets)?;
        map.serialize_entry("delivered_bytes", &counters.delivered.bytes.0)?;
        for cause in Cause::ALL {
            let name = format!("{}_packets", cause.to_string().replace(' ', "_"));
            map.serialize_entry(&name, &counters.dropped(cause).packets)?;
        }
        map.serialize_entry("written_packets", &self.written)?;
        map.serialize_entry("under_way_packets", &self.under_way)?;
        map.serialize_entry("own_overrun_packets", &self.overrun)?;
        map.serialize_entry("own_no_room_packets", &self.no_room)?;
        map.serialize_entry("own_refused_packets", &self.refused)?;
        map.serialize_entry("late_p50_us", &self.late.p50.as_micros())?;
        map.serialize_entry("late_p99_us", &self.late.p99.as_micros())?;
        map.serialize_entry("late_max_us", &self.late.max.as_micros())?;
        map.serialize_entry("cpu_seconds", &self.busy.as_secs_f64())?;
        map.end()
    }
}

fn share<S: Serializer>(share: &Share, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(share.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_run_is_valid_and_each_fault_alone_makes_it_invalid() {
        assert_eq!(Report::default().invalid(), None);
        let direction = |way: DirectionReport| Report { forward: way, ..Report::default() };
        let late = |us| Lateness { p99: Duration::from_micros(us), ..Lateness::default() };
        let cases = [
            (direction(DirectionReport { overrun: 1, ..Default::default() }), "dropped 1 packets"),
            (direction(DirectionReport { no_room: 1, ..Default::default() }), "dropped 1 packets"),
            (direction(DirectionReport { refused: 1, ..Default::default() }), "dropped 1 packets"),
            (direction(DirectionReport::dead()), "thread ended"),
            (direction(DirectionReport { late: late(1001), ..Default::default() }), "1.001 ms late at p99"),
            (Report { stolen: Share::new(0.031).unwrap(), ..Report::default() }, "3.1 % of the CPU time"),
        ];
        for (report, reason) in cases {
            let found = report.invalid().unwrap_or_default();
            assert!(found.contains(reason), "{reason}: {found}");
        }
        assert_eq!(direction(DirectionReport { late: late(1000), ..Default::default() }).invalid(), None);
        let far = |us| {
            let one_way = Duration::from_millis(270);
            direction(DirectionReport { late: late(us), one_way, ..Default::default() }).invalid()
        };
        assert_eq!(far(2700), None);
        assert!(far(2701).is_some_and(|reason| reason.contains("allowed is 2.7 ms")));
    }

    #[test]
    fn the_printed_table_lines_up_and_ends_with_the_verdict() {
        let text = Report::default().to_string();
        let (verdict, table) =
            text.lines().collect::<Vec<_>>().split_last().map(|(v, t)| (*v, t.to_vec())).unwrap();
        assert_eq!(verdict, "run valid");
        assert!(table[..table.len() - 1].iter().all(|line| line.len() == 24 + 2 * 22), "{text}");
    }

    #[test]
    fn the_machine_readable_form_names_the_units() {
        let value = serde_json::to_value(Report::default()).unwrap();
        for key in
            ["offered_bytes", "queue_full_packets", "outage_packets", "late_p99_us", "own_overrun_packets"]
        {
            assert!(value["forward"][key].is_number(), "{key}: {value}");
        }
        assert_eq!(value["stolen_share"], 0.0);
    }
}
