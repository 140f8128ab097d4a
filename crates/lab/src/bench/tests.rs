use std::num::NonZeroUsize;

use skyhaul_cc::units::{Duration, Rate, Time};
use skyhaul_cc::StartMode;
use skyhaul_sim::scenario::Change;
use skyhaul_sim::world::Flow;

use super::path::{ms, Path, Told};
use super::watch::{jain, Arrivals};
use super::*;

fn effort(threads: usize) -> Effort<'static> {
    let threads = NonZeroUsize::new(threads).unwrap();
    Effort { seeds: 1, threads, ..Effort::quick() }
}

fn wanted(only: &str, contenders: &[&str], host: Host) -> Wanted {
    Wanted {
        only: vec![only.to_owned()],
        contenders: contenders.iter().map(|name| name.parse().unwrap()).collect(),
        host: Some(host),
    }
}

fn field(row: &Row, name: &str) -> Field {
    let fields = row.fields();
    let found = fields.into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("{name} is missing")).1
}

#[test]
fn a_file_stays_below_its_floor_and_the_verdict_follows_from_the_numbers() {
    let rows = Bench::Limits
        .run(
            &wanted("p1.up-270", &["skyhaul", "skyhaul/warm", "skyhaul/known", "cubic"], Host::Tcp),
            &effort(2),
        )
        .unwrap();
    let starts: Vec<_> = rows.iter().map(|row| row.start).collect();
    assert_eq!(starts, [StartMode::Cold, StartMode::Warm, StartMode::Known, StartMode::Cold]);
    for row in &rows {
        assert!(row.fraction() > 0.0 && row.fraction() < 1.0, "{row:?}");
        let (Field::Number(Some(goodput)), Field::Number(Some(goal)), Field::Truth(Some(pass))) =
            (field(row, "goodput_bit_per_s"), field(row, "goal_bit_per_s"), field(row, "pass"))
        else {
            panic!("{row:?}")
        };
        assert_eq!(pass, goodput >= goal, "{row:?}");
        assert_eq!(field(row, "fraction"), Field::Number(Some(goodput / row.floor)));
    }
    assert!(rows[0].goodput.mean > 2.0 * rows[3].goodput.mean, "{rows:?}");
    assert!(rows[0].behind_best.unwrap() < 0.0 && rows[3].behind_best.unwrap() > 0.5, "{rows:?}");
    assert_eq!(rows[3].passes(), Some(false));
}

#[test]
fn the_channel_carries_a_file_of_the_table() {
    let rows = Bench::Limits.run(&wanted("p1.up-270", &["skyhaul"], Host::Channel), &effort(1)).unwrap();
    assert_eq!((rows.len(), rows[0].host.as_str()), (1, "channel"));
    let tcp = Bench::Limits.run(&wanted("p1.up-270", &["skyhaul"], Host::Tcp), &effort(1)).unwrap();
    assert_eq!(rows[0].floor, tcp[0].floor);
    assert!(rows[0].fraction() > 0.5 && rows[0].fraction() < 1.0, "{rows:?}");
}

#[test]
fn threads_do_not_change_a_table() {
    let of = |threads| {
        Bench::Noise.run(&wanted("100-40-loss", &["skyhaul", "bbr"], Host::Tcp), &effort(threads)).unwrap()
    };
    let rows = of(1);
    assert_eq!(rows.len(), 4);
    assert_eq!(rows, of(2));
    for row in &rows {
        assert_eq!(field(row, "measure"), Field::Text("use".to_owned()));
        assert!(row.measures[0].value.unwrap().mean < 1.02, "{row:?}");
    }
}

#[test]
fn an_unknown_cell_is_answered_with_those_that_exist() {
    let error = Bench::Change.run(&wanted("leo-99", &[], Host::Tcp), &effort(1)).unwrap_err().to_string();
    assert!(error.contains("\"leo-99\"") && error.contains("leo-30-500"), "{error}");
}

#[test]
fn every_table_has_cells_of_different_names_and_floors_that_are_not_zero() {
    for bench in Bench::ALL {
        for quick in [false, true] {
            let cells = bench.all(quick);
            let ids: std::collections::BTreeSet<&str> = cells.iter().map(|cell| cell.id()).collect();
            assert_eq!(ids.len(), cells.len(), "{bench:?}");
            for cell in &cells {
                assert!(cell.floor(Host::Tcp) > Rate::mbit(1), "{}", cell.id());
                for contender in bench.contenders() {
                    assert!(cell.asks(&contender).iter().any(|ask| ask.goal.is_some()), "{}", cell.id());
                }
            }
        }
    }
}

#[test]
fn goals_of_a_file_on_hosts_are_those_of_the_whole_and_less_for_a_shorter_one() {
    for cell in on_hosts() {
        let of = |start, bytes| match cell.goal(start, bytes).unwrap() {
            Goal::AtLeast(goal) => goal,
            goal => panic!("{goal:?}"),
        };
        let whole = of(StartMode::Cold, cell.bytes);
        let short = of(StartMode::Cold, skyhaul_cc::Bytes(cell.bytes.0 / 8));
        assert!(short < whole && short > 0.5 * whole, "{cell:?}: {short} {whole}");
        assert!(of(StartMode::Warm, cell.bytes) > whole);
    }
}

#[test]
fn jains_index_is_one_for_equals_and_one_of_n_for_a_winner() {
    assert_eq!(jain(&[5.0, 5.0, 5.0]), 1.0);
    assert!((jain(&[9.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-12);
    assert_eq!(jain(&[]), 1.0);
}

#[test]
fn what_a_link_offers_counts_its_changes_and_outages() {
    let mut path = Path::with_queue(100, ms(40), 0.0, 1.0).unwrap();
    let rate = path.payload_rate().as_f64();
    let at = Duration::from_secs;
    path.forward_mut().changes = vec![
        Change { at: at(2), rate: Some(Rate::mbit(25)), ..Change::default() },
        Change { at: at(3), outage: Some(at(1)), ..Change::default() },
    ];
    let offered = path.offered(Time::from_secs(1), Time::from_secs(5));
    assert!((offered / rate - 1.5).abs() < 0.01, "{}", offered / rate);
}

#[test]
fn arrivals_count_each_segment_once_and_never_more_than_the_link_carries() {
    let path = Path::with_queue(100, ms(40), 0.02, 1.0).unwrap();
    let mut world = path.world(3);
    let who = "bbr".parse().unwrap();
    world.add(
        path.flow(Host::Tcp, &who, &Told::default(), None).map(|flow| Flow { tape: false, ..flow }).unwrap(),
    );
    let (arrivals, seen) = Arrivals::new(ms(100), path.mss);
    world.observe(arrivals);
    let (from, to) = (Time::from_secs(2), Time::from_secs(6));
    world.run(to).unwrap();
    let used = seen.bits(0, from, to) / path.offered(from, to);
    assert!(used > 0.5 && used < 1.01, "{used}");
    let delivered = world.outcomes()[0].delivered.bits() as f64;
    let arrived = seen.bits(0, Time::ZERO, to);
    assert!(arrived >= delivered && arrived < 1.3 * delivered, "{arrived} {delivered}");
}

#[test]
fn each_figure_of_the_report_shows_rate_queue_window_and_estimates() {
    let figures = traces::CHAPTER.make(None, &effort(2)).unwrap();
    assert_eq!(figures.len(), traces::CHAPTER.figures().count());
    for figure in &figures {
        assert!(!figure.notes.is_empty() && figure.charts.len() >= 3, "{}", figure.id);
        let estimates = figure.charts.iter().flat_map(|chart| &chart.series);
        let estimates = estimates.filter(|series| {
            series.name.starts_with("capacity")
                || series.name.starts_with("available")
                || series.name.starts_with("flow")
        });
        assert!(estimates.clone().count() > 0, "{}", figure.id);
        for series in estimates {
            assert!(series.points.iter().any(|point| point.y > 0.0), "{}: {}", figure.id, series.name);
        }
    }
}
