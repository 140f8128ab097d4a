use super::*;
use proptest::prelude::*;

const NOW: UnixTime = UnixTime(1_750_000_000);

fn path(peer: u8, interface: &str, remote: &str) -> PathKey {
    let address = SocketAddr::new(remote.parse().unwrap(), 4433);
    PathKey::new(PublicKey::from_bytes([peer; 32]), Interface::new(interface).unwrap(), address)
}

fn geo() -> PathKey {
    path(1, "eth0", "192.0.2.7")
}

fn history(mbit: u64) -> PathHistory {
    PathHistory {
        loss: Share::new(0.012).unwrap(),
        ..PathHistory::of(Rate::mbit(mbit), Duration::from_millis(540))
    }
}

fn record(mbit: u64) -> Record {
    Record::first(&history(mbit), NOW).unwrap()
}

fn later(seconds: u64) -> UnixTime {
    UnixTime(NOW.0 + seconds)
}

#[test]
fn what_was_seen_a_moment_ago_on_this_path_is_trusted_and_nothing_else() {
    let record = record(150);
    let confidence = |at, same| record.recall(at, same).confidence.value();
    assert_eq!(record.recall(later(5), true), PathHistory { confidence: Share::ONE, ..history(150) });
    assert_eq!([confidence(later(600), true), confidence(later(601), true)], [1.0, 0.0]);
    assert_eq!(confidence(later(5), false), 0.0);
    // The clock was corrected by some seconds, or is wrong by years.
    assert_eq!([confidence(UnixTime(NOW.0 - 30), true), confidence(UnixTime(5), true)], [1.0, 0.0]);
}

#[test]
fn a_rate_that_changes_from_connection_to_connection_is_trusted_less() {
    let steady = (1..8).fold(record(150), |record, n| record.merged(&history(150), later(n)));
    let restless =
        (1..8).fold(record(150), |record, n| record.merged(&history(120 + 60 * (n % 2)), later(n)));
    let trust = |record: &Record| record.recall(later(10), true).confidence.value();
    assert_eq!(trust(&steady), 1.0);
    assert!(trust(&restless) < 0.7, "{}", trust(&restless));
    assert!((120.0..=180.0).contains(&restless.recall(later(10), true).rate.as_mbit()));
}

#[test]
fn the_second_connection_counts_half_and_the_hundredth_an_eighth() {
    assert_eq!(
        record(100).merged(&history(110), later(1)).recall(later(1), true).rate.as_mbit().round(),
        105.0
    );
    let settled = (0..100).fold(record(100), |record, n| record.merged(&history(100), later(n)));
    let merged = settled.merged(&history(108), later(100));
    assert_eq!((merged.recall(later(100), true).rate.as_mbit().round(), merged.observations()), (101.0, 102));
}

#[test]
fn a_jump_is_believed_at_once_and_a_drift_the_third_time() {
    let settled = (0..100).fold(record(100), |record, n| record.merged(&history(100), later(n)));
    let rate = |record: &Record| record.recall(later(200), true).rate.as_mbit();
    assert_eq!(rate(&settled.merged(&history(25), later(101))), 25.0);
    assert_eq!(rate(&settled.merged(&history(400), later(101))), 400.0);
    let mut drifting = settled;
    let mut rates = Vec::new();
    for n in 0..3 {
        drifting = drifting.merged(&history(90), later(101 + n));
        rates.push(rate(&drifting).round());
    }
    assert_eq!(rates, [99.0, 98.0, 90.0]);
    // Up and down is no drift.
    let wavering =
        (0..20).fold(settled, |record, n| record.merged(&history(95 + 10 * (n % 2)), later(101 + n)));
    assert!((97.0..103.0).contains(&rate(&wavering)), "{}", rate(&wavering));
}

#[test]
fn an_old_average_weighs_less_than_a_fresh_one() {
    let settled = (0..100).fold(record(100), |record, n| record.merged(&history(100), later(n)));
    let week = 7 * 86_400;
    let rate = settled.merged(&history(120), later(week)).recall(later(week), true).rate.as_mbit();
    assert!(rate > 119.0, "{rate}");
}

#[test]
fn another_length_is_another_path_and_the_least_of_one_length_stays() {
    let with = |ms| PathHistory { min_rtt: Duration::from_millis(ms), ..history(100) };
    let rtt = |ms| record(100).merged(&with(ms), later(1)).recall(later(1), true).min_rtt.as_millis();
    assert_eq!([rtt(550), rtt(535), rtt(600), rtt(270)], [540, 535, 600, 270]);
}

#[test]
fn what_cannot_be_is_not_learnt() {
    let good = history(100);
    let share = |value| Share::new(value).unwrap();
    for bad in [
        PathHistory { rate: Rate::ZERO, ..good },
        PathHistory { rate: Rate::MAX, ..good },
        PathHistory { min_rtt: Duration::ZERO, ..good },
        PathHistory { min_rtt: Duration::from_secs(7200), ..good },
        PathHistory { min_rtt: Duration::MAX, ..good },
        PathHistory { jitter: Duration::from_secs(7200), ..good },
        PathHistory { loss: share(0.6), ..good },
    ] {
        assert_eq!(Record::first(&bad, NOW), None, "{bad:?}");
        assert_eq!(record(100).merged(&bad, later(9)), record(100), "{bad:?}");
    }
}

#[test]
fn of_several_paths_the_very_one_goes_before_the_newest() {
    let old = record(10);
    let new = Record::first(&history(20), later(50)).unwrap();
    let others = [
        (path(1, "wlan0", "192.0.2.7"), old),
        (path(1, "eth0", "198.51.100.1"), new),
        (path(2, "eth0", "192.0.2.7"), record(999)),
    ];
    let of = |records: &[(PathKey, Record)]| {
        let history = recall(records.iter().map(|(key, record)| (key, record)), &geo(), later(60))?;
        Some((history.rate.as_mbit(), history.confidence.value()))
    };
    assert_eq!(of(&others), Some((20.0, 0.0)));
    assert_eq!(of(&[others.to_vec(), vec![(geo(), old)]].concat()), Some((10.0, 1.0)));
    assert_eq!(of(&others[2..]), None);
}

#[test]
fn a_network_is_the_neighbourhood_of_an_address() {
    for (address, network) in [
        ("192.0.2.7", "192.0.2.0/24"),
        ("::ffff:192.0.2.7", "192.0.2.0/24"),
        ("2001:db8:77:1::7", "2001:db8:77::/48"),
    ] {
        assert_eq!(Network::of(address.parse().unwrap()).to_string(), network);
    }
    assert_eq!(Interface::new("a-name-of-16-chr"), None);
    assert_eq!(Interface::new("two words"), None);
}

#[test]
fn a_record_is_written_when_it_says_something_new() {
    let written = record(100);
    let same = Record { seen: later(5), ..written };
    assert!(!same.is_news(&written));
    assert!(Record { rate: 103_000_000, ..same }.is_news(&written));
    assert!(Record { observations: 2, ..same }.is_news(&written));
    assert!(Record { seen: later(60), ..same }.is_news(&written));
    assert!(same.is_news(&Record { seen: later(100_000), ..written }), "that clock was wrong");
}

#[test]
fn a_record_of_one_path_is_no_record_of_another() {
    let bytes = record(150).encode(&geo());
    assert_eq!(Record::decode(&geo(), &bytes), Ok(record(150)));
    assert_eq!(Record::decode(&path(2, "eth0", "192.0.2.7"), &bytes), Err(Refused::Checksum));
    assert_eq!(Record::decode(&geo(), &bytes[1..]), Err(Refused::Version));
    assert_eq!(Record::decode(&geo(), &bytes[..bytes.len() - 1]), Err(Refused::Form));
    assert_eq!(Record::decode(&geo(), &[]), Err(Refused::Version));
}

#[test]
fn a_whole_record_that_cannot_be_true_is_refused() {
    let good = record(150);
    for bad in [
        Record { rate: 0, ..good },
        Record { min_rtt: 0, ..good },
        Record { min_rtt: 7_200_000_000_000, ..good },
        Record { loss: u32::MAX, ..good },
        Record { variation: u32::MAX, ..good },
        Record { observations: 0, ..good },
        Record { run: i8::MIN, ..good },
        Record { seen: UnixTime(u64::MAX), ..good },
    ] {
        assert_eq!(Record::decode(&geo(), &bad.encode(&geo())), Err(Refused::Range), "{bad:?}");
    }
}

fn paths() -> impl Strategy<Value = PathKey> {
    (any::<[u8; 32]>(), "[!-~]{0,15}", any::<IpAddr>()).prop_map(|(peer, name, address)| PathKey {
        peer: PublicKey::from_bytes(peer),
        interface: Interface::new(&name).unwrap(),
        network: Network::of(address),
    })
}

fn histories() -> impl Strategy<Value = PathHistory> {
    let share = || (0.0..=1.0f64).prop_filter_map("a share", Share::new);
    (any::<[u64; 2]>(), 0u64..100_000_000_000, [share(), share(), share()]).prop_map(
        |([rate, jitter], rtt, [loss, reordered, rate_variation])| PathHistory {
            loss,
            jitter: Duration::from_nanos(jitter >> 20),
            reordered,
            rate_variation,
            ..PathHistory::of(Rate::bit(rate >> 20), Duration::from_nanos(rtt))
        },
    )
}

proptest! {
    #[test]
    fn records_and_keys_are_read_as_they_were_written(
        path in paths(), histories in prop::collection::vec((histories(), any::<u32>()), 1..8)
    ) {
        prop_assert_eq!(PathKey::decode(&path.encode()), Ok(path.clone()));
        let mut kept: Option<Record> = None;
        for (history, at) in &histories {
            let at = UnixTime(u64::from(*at));
            kept = match kept {
                None => Record::first(history, at),
                Some(record) => Some(record.merged(history, at)),
            };
            if let Some(record) = &kept {
                prop_assert_eq!(Record::decode(&path, &record.encode(&path)), Ok(*record));
                let recalled = record.recall(at, true);
                prop_assert!(RATES.contains(&recalled.rate.as_bit()), "{:?}", recalled);
            }
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic_and_no_damage_goes_unseen(
        bytes in prop::collection::vec(any::<u8>(), 0..80), at in any::<prop::sample::Index>(), bit in 0u32..8
    ) {
        let _ = PathKey::decode(&bytes);
        prop_assert!(Record::decode(&geo(), &bytes).is_err());
        let mut damaged = record(150).encode(&geo());
        let at = at.index(damaged.len());
        damaged[at] ^= 1 << bit;
        prop_assert!(Record::decode(&geo(), &damaged).is_err());
    }
}
