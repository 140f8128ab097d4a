//! The scenarios that ship with the program.

/// Id and text, sorted by id. A test compares this list with the folder.
const CATALOGUE: &[(&str, &str)] = &[
    ("geo.ber", include_str!("../../../../scenarios/geo.ber.toml")),
    ("geo.bursts", include_str!("../../../../scenarios/geo.bursts.toml")),
    ("geo.fade", include_str!("../../../../scenarios/geo.fade.toml")),
    ("lan.gigabit-20", include_str!("../../../../scenarios/lan.gigabit-20.toml")),
    ("leo.handover", include_str!("../../../../scenarios/leo.handover.toml")),
    ("p1.down-270", include_str!("../../../../scenarios/p1.down-270.toml")),
    ("p1.down-400", include_str!("../../../../scenarios/p1.down-400.toml")),
    ("p1.up-270", include_str!("../../../../scenarios/p1.up-270.toml")),
    ("p1.up-400", include_str!("../../../../scenarios/p1.up-400.toml")),
];

/// The ids of all scenarios that ship with the program, sorted.
pub fn catalogue() -> impl Iterator<Item = &'static str> {
    CATALOGUE.iter().map(|(id, _)| *id)
}

/// The file behind an id.
pub(super) fn text(id: &str) -> Option<&'static str> {
    CATALOGUE.iter().find(|(known, _)| *known == id).map(|(_, text)| *text)
}
