//! What tells series apart: colour, marker, dashes.

use std::collections::BTreeSet;

use plotters::style::RGBColor;

use crate::figure::{Series, Style};

/// How one series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Of line, marker and bar.
    pub colour: RGBColor,
    /// At each point, where there are few.
    pub marker: Marker,
    /// Only outlined: published values beside ours.
    pub hollow: bool,
    /// The line is dashed: colours have begun again.
    pub dashed: bool,
}

/// A shape at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Wedge,
}

/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Labels of ticks.
pub(super) const FAINT_INK: RGBColor = RGBColor(0x4a, 0x4a, 0x4a);
/// Lines behind the data.
pub(super) const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// What is physically possible.
pub(super) const LIMIT: RGBColor = RGBColor(0x80, 0x80, 0x80);

/// Okabe and Ito's colours, which people with any colour vision can tell apart (Color Universal Design,
/// 2008), without their yellow, which is too pale for a line on white, and with a brown at the end.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2), // blue
    RGBColor(0xd5, 0x5e, 0x00), // vermilion
    RGBColor(0x00, 0x9e, 0x73), // green
    RGBColor(0xcc, 0x79, 0xa7), // purple
    RGBColor(0x22, 0x22, 0x22), // black
    RGBColor(0xe6, 0x9f, 0x00), // orange
    RGBColor(0x56, 0xb4, 0xe9), // sky
    RGBColor(0x7f, 0x4f, 0x24), // brown
];

const MARKERS: [Marker; 5] =
    [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Wedge];

/// Controllers keep their colour from chart to chart, as far as a chart has not given it to another.
const USUAL: [(&str, usize); 17] = [
    ("boost", 0),
    ("boost-literal", 6),
    ("enhanced", 0),
    ("enhanced-literal", 6),
    ("hswa", 0),
    ("hybic", 0),
    ("skyhaul", 0),
    ("rate", 6),
    ("bbr", 1),
    ("bbr3", 7),
    ("cubic", 2),
    ("hybla", 3),
    ("newreno", 4),
    ("veno", 5),
    ("scps", 1),
    ("vegas", 1),
    ("westwood", 7),
];

/// A look for each series, in their order. Markers that stand alone share the colour of the line or bar
/// whose name begins like theirs: `boost, paper` that of `boost`.
pub(super) fn looks(series: &[Series]) -> Vec<Look> {
    let drawn = |series: &Series| !matches!(series.style, Style::Markers | Style::Limit);
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    let mut places: Vec<Option<usize>> = vec![None; series.len()];
    let (lines, markers): (Vec<usize>, Vec<usize>) =
        (0..series.len()).filter(|&i| series[i].style != Style::Limit).partition(|&i| drawn(&series[i]));
    // Several flows of one controller are numbered by colour, alike in every chart.
    let alone = |name: &str| {
        name == subject(name)
            || lines.iter().filter(|&&j| subject(&series[j].name) == subject(name)).count() == 1
    };
    for &i in lines.iter().filter(|&&i| alone(&series[i].name)) {
        places[i] = usual(subject(&series[i].name)).filter(|place| taken.insert(*place));
    }
    for &i in &lines {
        places[i] = places[i].or_else(|| Some(unused(&mut taken)));
    }
    for &i in &markers {
        let owner = lines.iter().find(|&&line| subject(&series[line].name) == subject(&series[i].name));
        places[i] = Some(owner.and_then(|&line| places[line]).unwrap_or_else(|| {
            usual(subject(&series[i].name))
                .filter(|place| !taken.contains(place))
                .unwrap_or_else(|| unused(&mut taken))
        }));
        taken.extend(places[i]);
    }
    let look = |(place, series): (Option<usize>, &Series)| match place {
        None => Look { colour: LIMIT, marker: Marker::Circle, hollow: false, dashed: true },
        Some(place) => Look {
            colour: COLOURS[place % COLOURS.len()],
            marker: MARKERS[place % MARKERS.len()],
            hollow: series.style == Style::Markers,
            dashed: place >= COLOURS.len(),
        },
    };
    places.into_iter().zip(series).map(look).collect()
}

fn unused(taken: &mut BTreeSet<usize>) -> usize {
    let place = (0..).find(|place| !taken.contains(place)).unwrap_or(0);
    taken.insert(place);
    place
}

fn usual(subject: &str) -> Option<usize> {
    USUAL.iter().find(|(name, _)| *name == subject).map(|(_, place)| *place)
}

/// The first word of a name.
fn subject(name: &str) -> &str {
    name.split([' ', ',', '(', ':']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[(&str, Style)]) -> Vec<Look> {
        let series = |(name, style): &(&str, Style)| Series::line(*name, []).styled(*style);
        looks(&names.iter().map(series).collect::<Vec<_>>())
    }

    #[test]
    fn lines_never_look_alike() {
        let names: Vec<String> = (0..16).map(|i| format!("boost flow {i}")).collect();
        let names: Vec<(&str, Style)> = names.iter().map(|name| (name.as_str(), Style::Line)).collect();
        let looks = of(&names);
        for (i, one) in looks.iter().enumerate() {
            assert!(looks[..i].iter().all(|other| other != one), "{i}: {one:?}");
        }
    }

    #[test]
    fn published_values_have_the_colour_of_ours_and_are_hollow() {
        let looks = of(&[
            ("scps, published", Style::Markers),
            ("limit", Style::Limit),
            ("hswa", Style::Line),
            ("scps", Style::Line),
        ]);
        assert_eq!(looks[0], Look { hollow: true, ..looks[3] });
        assert_ne!(looks[2].colour, looks[3].colour);
        assert_eq!(looks[1].colour, LIMIT);
    }

    #[test]
    fn flows_of_one_controller_are_numbered_by_colour() {
        let of_three = |name: &str| {
            let names: Vec<String> = (1..=3).map(|i| format!("{name} {i}")).collect();
            of(&names.iter().map(|name| (name.as_str(), Style::Line)).collect::<Vec<_>>())
        };
        assert_eq!(of_three("bbr"), of_three("cubic"));
    }

    #[test]
    fn a_variant_leaves_the_usual_colours_to_the_others() {
        let looks =
            of(&[("hybla, RTT0 75 ms", Style::Line), ("hybla", Style::Line), ("enhanced", Style::Line)]);
        assert_eq!(
            (looks[1], looks[2]),
            (of(&[("hybla", Style::Line)])[0], of(&[("enhanced", Style::Line)])[0])
        );
    }

    #[test]
    fn a_controller_keeps_its_colour_from_chart_to_chart() {
        let one = of(&[("cubic", Style::Line), ("bbr", Style::Line)]);
        let other = of(&[("boost", Style::Line), ("bbr", Style::Line), ("cubic", Style::Line)]);
        assert_eq!((one[0], one[1]), (other[2], other[1]));
    }
}
