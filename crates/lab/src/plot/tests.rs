use super::*;
use crate::figure::Axis;

fn chart(x: Axis, y: Axis, series: Vec<Series>) -> Chart {
    Chart { title: "A chart".to_owned(), x, y, series }
}

/// Text between the tags, and a panic where tags do not match.
fn read(svg: &str) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut texts = Vec::new();
    for piece in svg.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("every tag ends");
        let name = tag.split([' ', '/', '\n']).next().unwrap_or_default();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{tag}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let bare = ["&lt;", "&gt;", "&amp;", "&quot;", "&apos;", "&#39;"];
        let rest = bare.iter().fold(piece.to_owned(), |rest, entity| rest.replace(entity, ""));
        assert!(!rest.contains('&'), "{piece}");
        texts.push(text.trim().to_owned());
    }
    assert!(open.is_empty(), "{open:?}");
    texts
}

#[test]
fn every_series_and_label_is_there_and_equal_charts_are_equal_text() {
    let chart = chart(
        Axis::log("bit error rate"),
        Axis::log("response time, s"),
        vec![
            Series::line("newreno", [(1e-9, 50.0), (1e-7, 500.0), (1e-5, 9000.0)]),
            Series::line("hybla & co <1>", [(1e-9, 40.0), (1e-7, 60.0), (1e-5, 300.0)]),
            Series::line("hybla, paper", [(1e-9, 45.0)]).styled(Style::Markers),
            Series::line("least possible", [(1e-9, 40.0), (1e-5, 41.0)]).styled(Style::Limit),
        ],
    );
    let picture = svg(&chart);
    assert_eq!(picture, svg(&chart));
    let texts = read(&picture);
    for text in ["A chart", "bit error rate", "response time, s", "newreno", "hybla &amp; co &lt;1&gt;"] {
        assert!(texts.iter().any(|found| found == text), "{text} in {texts:?}");
    }
    for text in ["hybla, paper", "least possible", "1e-9", "1e-5", "100", "1000"] {
        assert!(texts.iter().any(|found| found == text), "{text} in {texts:?}");
    }
}

#[test]
fn what_cannot_be_shown_is_left_out_without_a_panic() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, f64::MAX, f64::MIN_POSITIVE];
    for (x, y) in [(Axis::linear("x"), Axis::linear("y")), (Axis::log("x"), Axis::log("y"))] {
        for style in [Style::Line, Style::Markers, Style::Bars, Style::Limit] {
            let mut series: Vec<Series> =
                odd.iter().map(|&v| Series::line("one", [(v, v)]).styled(style)).collect();
            series.push(Series::line("all", odd.iter().map(|&v| (v, v))).styled(style));
            series.push(Series::line("none", []).styled(style));
            let mut wide = Series::line("wide", [(1.0, 2.0)]).styled(style);
            wide.points[0].interval = Some((f64::NEG_INFINITY, f64::INFINITY));
            series.push(wide);
            for one in &series {
                read(&svg(&chart(x.clone(), y.clone(), vec![one.clone()])));
            }
            read(&svg(&chart(x.clone(), y.clone(), series)));
        }
    }
}

#[test]
fn a_chart_of_nothing_says_so() {
    let nothing = [vec![], vec![Series::line("none", [])], vec![Series::line("zero", [(0.0, 0.0)])]];
    for series in nothing {
        let texts = read(&svg(&chart(Axis::log("x"), Axis::log("y"), series)));
        assert!(texts.iter().any(|text| text == "no data"), "{texts:?}");
    }
    let texts = read(&svg(&chart(Axis::names("x", ["a"; 0]), Axis::linear("y"), vec![])));
    assert!(texts.iter().any(|text| text == "no data"), "{texts:?}");
}

#[test]
fn bars_have_their_values_and_names() {
    let names = ["TCP as it is", "tuned on both sides", "a tunnel with error correction"];
    let chart = chart(
        Axis::names("scheme", names),
        Axis::linear("goodput, Mbit/s"),
        vec![
            Series::line("150 Mbit/s", [(0.0, 0.4), (1.0, 2.5), (2.0, 115.0)]).styled(Style::Bars),
            Series::line("10 Mbit/s", [(0.0, 0.3), (1.0, 1.0), (2.0, 9.3)]).styled(Style::Bars),
        ],
    );
    let texts = read(&svg(&chart));
    for text in ["115", "0.300", "9.30", "TCP as it is", "150 Mbit/s"] {
        assert!(texts.iter().any(|found| found == text), "{text} in {texts:?}");
    }
}

#[test]
fn dashes_are_on_and_off_along_the_whole_line() {
    let pieces = dashes(&[(0, 0), (100, 0), (100, 50)], 10.0, 10.0);
    assert_eq!(pieces.len(), 8);
    assert_eq!(pieces[0], [(0, 0), (10, 0)]);
    assert_eq!(pieces[5], [(100, 0), (100, 10)]);
    assert_eq!(pieces[7], [(100, 40), (100, 50)]);
}

#[test]
fn long_lines_are_thinned_and_keep_their_peaks() {
    let line: Vec<Pixel> = (0..100_000).map(|i| (i / 33, if i == 50_003 { 900 } else { i % 7 })).collect();
    let thin = thinned(&line);
    assert!(thin.len() < 5_000 && thin.contains(&(50_003 / 33, 900)), "{}", thin.len());
    assert_eq!((thin.first(), thin.last()), (line.first(), line.last()));
}
