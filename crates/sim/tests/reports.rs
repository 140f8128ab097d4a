//! Receive times reported to the sender, as the channel's datagram shim will do it.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::tape::{Event, Tape};
use skyhaul_cc::{registry, Bytes, Duration, Setup, Share, Time};
use skyhaul_sim::scenario::{Dir, Scenario};
use skyhaul_sim::world::{Flow, Outcome, World};

fn run(reports: bool) -> (Outcome, u64) {
    let mut scenario = Scenario::find("p1.down-270").unwrap();
    // Every fifth ACK is lost: what it reported comes with the next one.
    scenario.back.loss = Share::new(0.2).unwrap();
    let setup = Setup::new(Bytes(1448));
    let mut world = World::on(&scenario, Dir::Forward, 7);
    world.add(Flow {
        reports,
        tape: true,
        bytes: Some(Bytes::mib(20)),
        ..Flow::new(registry::build("hybla", &setup).unwrap())
    });
    world.run(Time::from_secs(100)).unwrap();
    let lost = world.forward().counters().offered.packets - world.forward().counters().delivered.packets;
    (world.outcomes().remove(0), lost)
}

fn without_reports(tape: Tape) -> Vec<Event> {
    tape.events.into_iter().filter(|event| !matches!(event, Event::Report(_) | Event::Train(_))).collect()
}

#[test]
fn each_transmission_is_reported_once_in_order_with_its_receive_time() {
    let (outcome, lost_on_link) = run(true);
    let tape = outcome.tape.unwrap();
    let sent: Vec<_> =
        tape.events.iter().filter_map(|e| if let Event::Sent(s) = e { Some(s.now) } else { None }).collect();
    let reports: Vec<_> =
        tape.events.iter().filter_map(|e| if let Event::Report(r) = e { Some(*r) } else { None }).collect();
    // The last flight may have been acknowledged before three later packets told of its losses.
    assert!(
        reports.len() + 10_000 > sent.len() && reports.len() > 10_000,
        "{} of {}",
        reports.len(),
        sent.len()
    );
    let mut lost = 0;
    for (report, &sent_at) in reports.iter().zip(&sent) {
        assert_eq!(report.sent_at, sent_at);
        match report.received_at {
            Some(at) => assert!(at >= sent_at + Duration::from_millis(270) && at <= report.now, "{report:?}"),
            None => lost += 1,
        }
    }
    assert!(lost > 100 && lost <= lost_on_link, "{lost} of {lost_on_link}");
}

#[test]
fn a_controller_that_does_not_read_reports_does_the_same_with_and_without_them() {
    let (with, _) = run(true);
    let (without, _) = run(false);
    // The longer ACKs take a little longer on the return link, so times differ by less than that.
    let (with, without) = (without_reports(with.tape.unwrap()), without_reports(without.tape.unwrap()));
    for (a, b) in with.iter().zip(&without).take(5_000) {
        assert!(a.now().since(b.now()).max(b.now().since(a.now())) < Duration::from_millis(1), "{a:?} {b:?}");
    }
}
