//! What a tunnel refuses before it opens anything. Running tunnels are tested where there are hosts, by `skyhaul run`.

use super::*;

fn options() -> Options {
    let networks = vec!["10.77.2.0/24".parse().unwrap(), "fd77:2::/64".parse().unwrap()];
    Options::new("10.77.0.1:4434".parse().unwrap(), "10.77.0.2:4434".parse().unwrap(), networks)
}

#[test]
fn a_full_packet_with_its_repair_fills_the_path_and_no_more() {
    let options = options();
    assert_eq!(options.inner_mtu(), 1462);
    assert_eq!(usize::from(options.inner_mtu()) + ROOM + 28, 1500);
    let v6 = Options { peer: "[fd77::2]:4434".parse().unwrap(), ..options };
    assert_eq!(v6.inner_mtu(), 1442);
}

#[test]
fn what_cannot_work_is_refused_with_a_reason() {
    type Change = fn(&mut Options);
    let changes: [(Change, &str); 8] = [
        (|o| o.networks.clear(), "no network behind the peer"),
        (|o| o.peer = "[fd77::2]:4434".parse().unwrap(), "different families"),
        (|o| o.networks = vec!["10.77.0.0/16".parse().unwrap()], "lead into itself"),
        (|o| o.mtu = 500, "MTU of 500"),
        (|o| o.mtu = 9_001, "MTU of 9001"),
        (|o| o.device = "a b".to_owned(), "device name"),
        (|o| o.device = "sixteen-letters!".to_owned(), "device name"),
        (|o| o.rate = Some(Rate::bit(1)), "a rate below"),
    ];
    assert!(options().check().is_ok());
    for (change, reason) in changes {
        let mut options = options();
        change(&mut options);
        let error = options.check().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_block_takes_as_long_as_its_packets_on_the_link() {
    let ms = |time: Duration| time.as_millis();
    assert_eq!(ms(block_time(None, 64)), 10);
    assert_eq!(ms(block_time(Some(Rate::mbit(150)), 64)), 5);
    assert_eq!(ms(block_time(Some(Rate::mbit(1000)), 64)), 5, "a host's own delays are longer than 0.8 ms");
    assert_eq!(ms(block_time(Some(Rate::mbit(10)), 64)), 76);
    assert_eq!(ms(block_time(Some(Rate::kbit(64)), 64)), 500);
    assert_eq!(ms(hold(block_time(Some(Rate::mbit(10)), 64))), 126);
}
