use super::*;
use crate::controller::Policy;
use crate::controllers::NewReno;
use crate::event::{Rtt, Signal};
use crate::testing::{ack, loss, MSS};
use crate::units::{Ber, Duration, Share};
use proptest::prelude::*;

fn rtts() -> impl Strategy<Value = Rtt> {
    any::<[u64; 3]>().prop_map(|[latest, smoothed, min]| Rtt {
        latest: Duration::from_nanos(latest),
        smoothed: Duration::from_nanos(smoothed),
        min: Duration::from_nanos(min),
    })
}

fn events() -> impl Strategy<Value = Event> {
    let signals = prop_oneof![Just(Signal::Gap), Just(Signal::Timeout), Just(Signal::Ecn)];
    prop_oneof![
        any::<[u64; 2]>().prop_map(|[bytes, in_flight]| Event::Sent(Sent {
            now: Time::ZERO,
            bytes: Bytes(bytes),
            in_flight: Bytes(in_flight)
        })),
        (any::<[u64; 3]>(), any::<[Option<u64>; 2]>(), rtts(), any::<[bool; 2]>()).prop_map(
            |([sent_at, acked, in_flight], [peer, rate], rtt, [round_start, app_limited])| Event::Ack(Ack {
                now: Time::ZERO,
                sent_at: Time::from_nanos(sent_at),
                acked: Bytes(acked),
                in_flight: Bytes(in_flight),
                peer_window: peer.map(Bytes),
                rtt,
                delivery_rate: rate.map(Rate::bit),
                round_start,
                app_limited,
            })
        ),
        (any::<[u64; 3]>(), rtts(), signals, any::<bool>()).prop_map(
            |([sent_at, lost, in_flight], rtt, signal, new_episode)| Event::Loss(Loss {
                now: Time::ZERO,
                sent_at: Time::from_nanos(sent_at),
                lost: Bytes(lost),
                in_flight: Bytes(in_flight),
                rtt,
                signal,
                new_episode,
            })
        ),
        (any::<[u64; 2]>(), prop::option::of(any::<u64>()), prop::option::of(any::<u32>())).prop_map(
            |([sent_at, bytes], received, train)| Event::Report(Report {
                now: Time::ZERO,
                sent_at: Time::from_nanos(sent_at),
                received_at: received.map(Time::from_nanos),
                bytes: Bytes(bytes),
                train,
            })
        ),
        Just(Event::Train(Time::ZERO)),
    ]
}

fn histories() -> impl Strategy<Value = PathHistory> {
    let share = || (0.0..=1.0f64).prop_filter_map("within its range", Share::new);
    (any::<[u64; 3]>(), [share(), share(), share(), share()]).prop_map(
        |([rate, rtt, jitter], [loss, reordered, rate_variation, confidence])| PathHistory {
            rate: Rate::bit(rate),
            min_rtt: Duration::from_nanos(rtt),
            loss,
            jitter: Duration::from_nanos(jitter),
            reordered,
            rate_variation,
            confidence,
        },
    )
}

fn origins() -> impl Strategy<Value = Origin> {
    let numbers = (1..u64::MAX, any::<[u64; 2]>(), any::<[Option<u64>; 3]>());
    let policies = prop::sample::select(Policy::ALL.to_vec());
    let known = (policies, prop::option::of(histories()));
    ("[a-z][a-z0-9-]{0,12}", numbers, prop::option::of(0.0..=1.0f64), known).prop_map(
        |(controller, (mss, [window, rtt], [ssthresh, rate, reference]), ber, (policy, history))| Origin {
            controller,
            setup: Setup {
                mss: Bytes(mss),
                initial_window: Bytes(window),
                initial_ssthresh: ssthresh.map(Bytes),
                initial_rtt: Duration::from_nanos(rtt),
                link_rate: rate.map(Rate::bit),
                reference_rtt: reference.map(Duration::from_nanos),
                ber: ber.and_then(Ber::new),
                history,
                policy,
            },
        },
    )
}

fn tapes() -> impl Strategy<Value = Tape> {
    let steps = prop::collection::vec((any::<u32>(), events(), any::<u64>()), 0..30);
    (prop::option::of(origins()), steps, any::<bool>()).prop_map(|(origin, steps, with_windows)| {
        let mut now = 0u64;
        let windows = steps.iter().filter(|_| with_windows).map(|step| Bytes(step.2)).collect();
        let events = steps
            .into_iter()
            .map(|(ahead, mut event, _)| {
                now += u64::from(ahead);
                match &mut event {
                    Event::Sent(sent) => sent.now = Time::from_nanos(now),
                    Event::Ack(ack) => ack.now = Time::from_nanos(now),
                    Event::Loss(loss) => loss.now = Time::from_nanos(now),
                    Event::Report(report) => report.now = Time::from_nanos(now),
                    Event::Train(at) => *at = Time::from_nanos(now),
                }
                event
            })
            .collect();
        Tape { origin, events, windows }
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_the_same(tape in tapes()) {
        prop_assert_eq!(tape.to_string().parse::<Tape>(), Ok(tape));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "(skyhaul-tape [12]\n)?[0-9a-z_=\\- \n]{0,200}") {
        let _ = text.parse::<Tape>();
    }

    #[test]
    fn a_damaged_tape_is_refused_or_means_something_else(
        tape in tapes(), at in any::<prop::sample::Index>(), byte in 32u8..127
    ) {
        let text = tape.to_string();
        let mut bytes = text.clone().into_bytes();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != byte && bytes[at] != b'\n');
        // The version says only which kinds of lines may follow.
        prop_assume!(at != HEADER.len() - 1);
        bytes[at] = byte;
        let here = text[..at].matches('\n').count() + 1;
        match String::from_utf8(bytes).unwrap().parse::<Tape>() {
            // A time that grew is noticed at the next line, which seems to go back.
            Err(error) => prop_assert!(error.line == here || error.line == here + 1, "{}", error),
            Ok(other) => prop_assert_ne!(other, tape),
        }
    }
}

#[test]
fn errors_name_the_line_what_stands_there_and_what_would_do() {
    let sent = "0 sent bytes=1 in_flight=1";
    for (text, message) in [
        ("", "line 1: found \"\", expected \"skyhaul-tape 1\" or \"skyhaul-tape 2\""),
        ("0 seen", "line 2: found \"seen\", expected \"sent\", \"ack\", \"loss\", \"report\" or \"train\""),
        ("0 train", "line 2: found \"0 train\", expected \"skyhaul-tape 2\" above such a line"),
        ("soon sent", "line 2: found \"soon\", expected a time in whole nanoseconds"),
        ("0 sent bytes=many", "line 2: found \"many\", expected a whole number for bytes"),
        ("0 sent bytes=+1", "line 2: found \"+1\", expected a whole number for bytes"),
        ("0 sent in_flight=1", "line 2: found \"in_flight=1\", expected \"bytes=\" and a whole number"),
        ("0 sent bytes=1", "line 2: found \"end of line\", expected \"in_flight=\" and a whole number"),
        ("0 sent bytes=1 in_flight=1 x=2", "line 2: found \"x=2\", expected the end of the line"),
        ("controller", "line 2: found \"controller\", expected a time in whole nanoseconds"),
        ("controller bbr", "line 2: found \"bbr\", expected \"name=\" and the controller's name"),
        (
            "controller name=bbr mss=0 initial_window=1 initial_ssthresh=- initial_rtt=1 link_rate=- \
          reference_rtt=- ber=-",
            "line 2: found \"0\", expected at least 1 for mss",
        ),
        (
            "controller name=bbr mss=1 initial_window=1 initial_ssthresh=- initial_rtt=1 link_rate=- \
          reference_rtt=- ber=2",
            "line 2: found \"2\", expected a number from 0 to 1, without exponent, \
          or - for ber",
        ),
        (
            "0 sent bytes=1 in_flight=1 cwnd=5\n0 sent bytes=1 in_flight=1",
            "line 3: found \"end of line\", expected \"cwnd=\" as in the lines before",
        ),
        (
            "0 sent bytes=1 in_flight=1\n0 sent bytes=1 in_flight=1 cwnd=5",
            "line 3: found \"cwnd=5\", expected the end of the line, as in the lines before",
        ),
    ] {
        let text = if text.is_empty() { String::new() } else { format!("{HEADER}\n{text}\n") };
        assert_eq!(text.parse::<Tape>().unwrap_err().to_string(), message);
    }
    let back = format!("{HEADER}\n# a comment\n\n5 {}\n4 {}\n", &sent[2..], &sent[2..]);
    let error = back.parse::<Tape>().unwrap_err();
    assert_eq!((error.line, error.found.as_str()), (5, "4"));
}

#[test]
fn headers_without_policy_and_history_are_those_of_old_tapes() {
    let old = "skyhaul-tape 1\ncontroller name=cubic mss=1448 initial_window=14480 initial_ssthresh=- \
        initial_rtt=333000000 link_rate=- reference_rtt=- ber=-\n";
    let mut tape: Tape = old.parse().unwrap();
    let origin = tape.origin.clone().unwrap();
    assert_eq!((origin.setup.policy, origin.setup.history), (Policy::Share, None));
    assert_eq!(tape.to_string(), old);
    let history = PathHistory::of(Rate::mbit(150), Duration::from_millis(540));
    let setup = Setup { policy: Policy::Scavenge, history: Some(history), ..origin.setup };
    tape.origin = Some(Origin { setup, ..origin });
    assert!(tape.to_string().contains("ber=- policy=scavenge history_rate=150000000 history_min_rtt="));
    assert_eq!(tape.to_string().parse::<Tape>(), Ok(tape));
    let usual = old.replace("ber=-", "ber=- policy=share");
    let error = usual.parse::<Tape>().unwrap_err();
    assert_eq!(error.to_string(), "line 2: found \"share\", expected exclusive or scavenge for policy");
}

#[test]
fn a_recording_replays_to_the_same_windows() {
    let setup = Setup::new(MSS);
    let mut recorder = Recorder::new(Box::new(NewReno::new(&setup)));
    let mut windows = Vec::new();
    for i in 0..50 {
        if i == 20 {
            recorder.on_loss(&loss(540 + i, 500, Signal::Gap, true));
        } else {
            recorder.on_ack(&ack(540 + i, i * 40, 3));
        }
        windows.push(recorder.cwnd());
    }
    let mut tape: Tape = recorder.into_tape().to_string().parse().unwrap();
    assert_eq!(tape.windows, windows);
    let replayed = replay(&tape, &mut NewReno::new(&setup));
    assert_eq!(replayed.iter().map(|(_, state)| state.cwnd).collect::<Vec<_>>(), windows);
    assert_eq!(first_difference(&tape, &replayed), None);
    tape.windows[30] = Bytes(1);
    assert_eq!(first_difference(&tape, &replayed), Some(30));
}
