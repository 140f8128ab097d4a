//! The scenarios that ship with the program.

/// Id and text, sorted by id. A test compares this list with the folder.
const CATALOGUE: &[(&str, &str)] = &[
    ("geo.ber", include_str!("../../../../scenarios/geo.ber.toml")),
    ("geo.bursts", include_str!("../../../../scenarios/geo.bursts.toml")),
    ("geo.fade", include_str!("../../../../scenarios/geo.fade.toml")),
    ("lan.gigabit-20", include_str!("../../../../scenarios/lan.gigabit-20.toml")),
    ("leo.handover", include_str!("../../../../scenarios/leo.handover.toml")),
    ("p0.fairness-3-flows", include_str!("../../../../scenarios/p0.fairness-3-flows.toml")),
    ("p0.preemption-a", include_str!("../../../../scenarios/p0.preemption-a.toml")),
    ("p0.preemption-b", include_str!("../../../../scenarios/p0.preemption-b.toml")),
    ("p0.preemption-c", include_str!("../../../../scenarios/p0.preemption-c.toml")),
    ("p0.throughput-vs-delay", include_str!("../../../../scenarios/p0.throughput-vs-delay.toml")),
    ("p0.throughput-vs-loss", include_str!("../../../../scenarios/p0.throughput-vs-loss.toml")),
    ("p1.down-270", include_str!("../../../../scenarios/p1.down-270.toml")),
    ("p1.down-400", include_str!("../../../../scenarios/p1.down-400.toml")),
    ("p1.five-schemes", include_str!("../../../../scenarios/p1.five-schemes.toml")),
    ("p1.rollback", include_str!("../../../../scenarios/p1.rollback.toml")),
    ("p1.up-270", include_str!("../../../../scenarios/p1.up-270.toml")),
    ("p1.up-400", include_str!("../../../../scenarios/p1.up-400.toml")),
    ("p2.random-and-congestion", include_str!("../../../../scenarios/p2.random-and-congestion.toml")),
    ("p2.random-loss", include_str!("../../../../scenarios/p2.random-loss.toml")),
    ("p3.delays", include_str!("../../../../scenarios/p3.delays.toml")),
    ("p3.geo", include_str!("../../../../scenarios/p3.geo.toml")),
    ("p4.packet", include_str!("../../../../scenarios/p4.packet.toml")),
];

/// The ids of all scenarios that ship with the program, sorted.
pub fn catalogue() -> impl Iterator<Item = &'static str> {
    CATALOGUE.iter().map(|(id, _)| *id)
}

/// The file behind an id.
pub(super) fn text(id: &str) -> Option<&'static str> {
    CATALOGUE.iter().find(|(known, _)| *known == id).map(|(_, text)| *text)
}
