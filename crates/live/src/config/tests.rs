use std::path::Path;

use proptest::prelude::*;
use skyhaul_cc::units::{Bytes, Duration, Rate};

use super::*;
use skyhaul_pep::frame::{Class, Target};

const KEY: &str = "skyhaul-ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
const OTHER_KEY: &str = "skyhaul-ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fn terminal(rest: &str) -> Result<Config, ConfigError> {
    let text = format!(
        "[channel]\ngateway = \"10.77.0.2:4433\"\n[keys]\nsecret_file = \"t.key\"\npeer = \"{KEY}\"\n{rest}"
    );
    Config::parse(&text, Path::new("/etc/skyhaul/terminal.toml"), Role::Terminal)
}

fn gateway(rest: &str) -> Result<Config, ConfigError> {
    let text = format!(
        "[channel]\nlisten = \"0.0.0.0:4433\"\n[keys]\nsecret_file = \"/keys/g.key\"\n\
         [[peer]]\nname = \"ship\"\nkey = \"{KEY}\"\nnetworks = [\"10.77.1.0/24\", \"fd77:1::/64\"]\n{rest}"
    );
    Config::parse(&text, Path::new("gateway.toml"), Role::Gateway)
}

/// The error of a terminal's file whose line 6 is `line`.
fn complaint(line: &str) -> String {
    terminal(line).unwrap_err().to_string()
}

#[test]
fn a_short_file_is_enough_and_the_rest_has_defaults() {
    let config = terminal("").unwrap();
    assert_eq!(config.role(), Role::Terminal);
    assert_eq!(config.secret_file, Path::new("/etc/skyhaul/t.key"));
    assert_eq!(config.peers[0].key.to_string(), KEY);
    assert_eq!(config.link.controller, "skyhaul");
    assert_eq!((config.link.rtt, config.link.mtu), (DEFAULT_RTT, Bytes(1500)));
    assert_eq!(config.intercept, None);
    assert_eq!(config.memory, PathMemory::default());
    assert!(!config.is_transparent());
    assert_eq!(gateway("").unwrap().secret_file, Path::new("/keys/g.key"));
}

#[test]
fn every_key_is_read() {
    let config = gateway(
        "[[priority]]\nclass = \"interactive\"\nports = [22, \"5000-5100\"]\n\
         [[priority]]\nclass = \"background\"\nports = [22]\ndscp = [\"cs1\", \"LE\", 46]\n\
         [link]\ncontroller = \"rate\"\nsend_rate = \"150 Mbit/s\"\nrtt = \"540 ms\"\nmtu = 1400\n\
         policy = \"scavenge\"\n\
         [intercept]\ninterfaces = [\"lan\", \"eth0.5\"]\npreserve_source = true\nports = [21, \"5000-6000\"]\n\
         only = [\"10.77.1.0/24\"]\nexclude = [\"10.77.1.9\"]\n\
         [[socks5]]\nlisten = \"127.0.0.1:1080\"\npeer = \"ship\"\n\
         [[http_connect]]\nlisten = \"[::1]:8080\"\n\
         [[forward]]\nlisten = \"127.0.0.1:2222\"\nto = \"10.77.1.2:22\"\n\
         [egress]\nallow = [\"10.0.0.0/8\"]\ndeny = [\"10.1.0.0/16\"]\npreserve_source = true\nmark_dscp = true\n\
         [limits]\nmemory = \"64 MiB\"\nflows = 10\nconnect_timeout = \"3 s\"\nroute_mark = 77\n\
         [memory]\nfile = \"paths.redb\"\n",
    )
    .unwrap();
    let [first, second] = config.priorities.0.as_slice() else { panic!("{:?}", config.priorities) };
    assert_eq!((first.class, first.ports.len(), first.dscp.len()), (Class::Interactive, 2, 0));
    assert_eq!((second.class, second.dscp.len()), (Class::Background, 3));
    assert_eq!(config.link.policy, Policy::Scavenge);
    assert!(config.egress.mark_dscp);
    assert_eq!(config.link.send_rate, Some(Rate::mbit(150)));
    assert_eq!((config.link.rtt, config.link.mtu), (Duration::from_millis(540), Bytes(1400)));
    let intercept = config.intercept.as_ref().unwrap();
    assert_eq!(intercept.interfaces, ["lan", "eth0.5"]);
    assert_eq!(intercept.ports[1], Ports { first: 5000, last: 6000 });
    assert_eq!(config.socks5[0].peer.as_deref(), Some("ship"));
    assert_eq!(config.forward[0].to.to_string(), "10.77.1.2:22");
    assert!(config.egress.permits("10.2.0.1".parse().unwrap()));
    assert!(!config.egress.permits("10.1.0.1".parse().unwrap()), "denied counts more than allowed");
    assert!(!config.egress.permits("11.0.0.1".parse().unwrap()));
    assert_eq!(config.limits.route_mark, 77);
    assert_eq!(config.limits.connect_timeout, Duration::from_secs(3));
    assert_eq!(config.memory, PathMemory { enabled: true, file: Some("paths.redb".into()) });
    let off = terminal("[memory]\nenabled = false\nfile = \"paths.redb\"\n").unwrap().memory;
    assert_eq!(off, PathMemory { enabled: false, file: Some("/etc/skyhaul/paths.redb".into()) });
}

#[test]
fn what_may_be_on_the_wire_is_all_unless_the_file_says_otherwise() {
    let channel = |keys: &str| {
        let text = format!(
            "[channel]\ngateway = \"a:1\"\n{keys}[keys]\nsecret_file = \"t.key\"\npeer = \"{KEY}\"\n"
        );
        Config::parse(&text, Path::new("t.toml"), Role::Terminal).map(|config| config.wire)
    };
    assert_eq!(channel("").unwrap(), Wire { shim: true, repair: true });
    assert_eq!(channel("shim = false\nrepair = true\n").unwrap(), Wire { shim: false, repair: true });
    let error = channel("repair = \"no\"\n").unwrap_err().to_string();
    assert!(error.contains("line 3: channel.repair: found \"no\", expected true or false"), "{error}");
}

#[test]
fn a_link_of_known_rate_is_taken_for_ones_own() {
    let policy = |keys: &str| terminal(&format!("[link]\n{keys}")).unwrap().link.policy;
    assert_eq!(policy(""), Policy::Share);
    assert_eq!(policy("send_rate = \"10 Mbit/s\""), Policy::Exclusive);
    assert_eq!(policy("send_rate = \"10 Mbit/s\"\npolicy = \"share\""), Policy::Share);
}

#[test]
fn the_first_priority_that_fits_counts_and_then_the_mark() {
    let config = terminal(
        "[[priority]]\nclass = \"bulk\"\nports = [22]\ndscp = [\"cs1\"]\n\
         [[priority]]\nclass = \"interactive\"\nports = [\"20-22\"]\n\
         [[priority]]\nclass = \"normal\"\ndscp = [\"ef\"]\n",
    )
    .unwrap();
    let class = |port, dscp: &str| config.priorities.class(port, dscp.parse().ok());
    assert_eq!(class(22, "cs1"), Class::Bulk);
    assert_eq!(class(22, "ef"), Class::Interactive);
    assert_eq!(class(20, "unknown"), Class::Interactive);
    assert_eq!(class(80, "ef"), Class::Normal);
    assert_eq!(class(80, "af41"), Class::Interactive);
    assert_eq!(class(80, "le"), Class::Background);
    assert_eq!(class(80, "unknown"), Class::Normal);
}

#[test]
fn roll_back_is_on_unless_the_file_says_otherwise() {
    let config = terminal("").unwrap();
    let (detect, hold) = (Duration::from_secs(3), Duration::from_secs(10));
    let give_up = Duration::from_secs(900);
    let expected = Rollback { enabled: true, detect, hold, carriage: true, give_up, congestion: None };
    assert_eq!(config.rollback, expected);
    assert_eq!(config.destinations, Destinations::default());
    let config = terminal(
        "[rollback]\nenabled = false\ndetect = \"500 ms\"\nhold = \"1 s\"\ncarriage = false\ngive_up = \"10 s\"\ncongestion = \"bbr\"\n",
    );
    let (detect, hold) = (Duration::from_millis(500), Duration::from_secs(1));
    let congestion = Some("bbr".to_owned());
    let give_up = Duration::from_secs(10);
    let expected = Rollback { enabled: false, detect, hold, carriage: false, give_up, congestion };
    assert_eq!(config.unwrap().rollback, expected);
}

#[test]
fn an_end_that_is_given_up_has_been_silent_first() {
    let give_up = |keys: &str| {
        terminal(&format!("[rollback]\n{keys}"))
            .map(|config| config.rollback.give_up)
            .map_err(|e| e.to_string())
    };
    assert_eq!(give_up("give_up = \"5 s\"\ndetect = \"2 s\""), Ok(Duration::from_secs(5)));
    assert_eq!(give_up("give_up = \"24 h\""), Ok(Duration::from_secs(86_400)));
    // Whoever is slow to notice is slow to give up.
    assert_eq!(give_up("detect = \"600 s\""), Ok(Duration::from_secs(1_200)));
    for keys in
        ["give_up = \"4 s\"", "give_up = \"25 h\"", "give_up = \"10 s\"\ndetect = \"6 s\"", "give_up = 10"]
    {
        let said = give_up(keys).unwrap_err();
        assert!(said.contains("rollback.give_up") && said.contains("twice detect"), "{keys}: {said}");
    }
}

#[test]
fn the_first_destination_that_fits_says_whether_the_channel_is_used() {
    let config = terminal(
        "[[destination]]\nto = [\"10.9.0.0/16\", \"Example.NET\"]\nports = [80]\nchannel = \"require\"\n\
         [[destination]]\nto = [\"10.9.0.0/16\", \"fd09::/16\"]\nchannel = \"never\"\n\
         [[destination]]\nports = [\"25-26\"]\nchannel = \"never\"\n",
    )
    .unwrap();
    let to = |text: &str| match text.parse() {
        Ok(address) => Target::Address(address),
        Err(_) => {
            let (host, port) = text.split_once(':').unwrap();
            Target::Name { host: host.to_owned(), port: port.parse().unwrap() }
        }
    };
    for (target, expected) in [
        ("10.9.1.1:80", Preference::Require),
        ("10.9.1.1:81", Preference::Never),
        ("[::ffff:10.9.1.1]:81", Preference::Never),
        ("[fd09::1]:81", Preference::Never),
        ("10.8.1.1:80", Preference::Prefer),
        ("10.8.1.1:26", Preference::Never),
        ("example.net:80", Preference::Require),
        ("WWW.Example.net.:80", Preference::Require),
        ("example.net:81", Preference::Prefer),
        ("notexample.net:80", Preference::Prefer),
        ("example.net.org:80", Preference::Prefer),
        ("mail.example.org:25", Preference::Never),
    ] {
        assert_eq!(config.destinations.preference(&to(target)), expected, "{target}");
    }
    let blocks: Vec<_> = config.destinations.0.iter().map(|one| one.blocks().unwrap().len()).collect();
    assert_eq!(blocks, [1, 2, 0]);
    let named = terminal("[[destination]]\nto = [\"example.net\"]\nchannel = \"never\"\n").unwrap();
    assert_eq!(named.destinations.0[0].blocks(), None, "an intercepted connection has no name");
}

#[test]
fn what_would_lead_into_itself_is_refused() {
    for (lines, wanted) in [
        (
            "[[socks5]]\nlisten = \"10.77.1.1:1080\"\n[[forward]]\nlisten = \"127.0.0.1:22\"\nto = \"10.77.1.1:1080\"",
            "line 8: forward: found a forward to 10.77.1.1:1080, where this end itself listens, expected a",
        ),
        (
            "[[http_connect]]\nlisten = \"[::]:8080\"\n[[forward]]\nlisten = \"127.0.0.1:22\"\nto = \"127.0.0.1:8080\"",
            "line 8: forward: found a forward to 127.0.0.1:8080, where this end itself listens",
        ),
        (
            "[[forward]]\nlisten = \"[::1]:22\"\nto = \"[::1]:22\"",
            "line 6: forward: found a forward to [::1]:22, where this end itself listens",
        ),
        (
            "[[forward]]\nlisten = \"[::1]:22\"\nto = \"10.77.0.2:4433\"",
            "line 6: forward: found a forward to 10.77.0.2:4433, which is the channel's own port, expected a",
        ),
        (
            "[[socks5]]\nlisten = \"10.77.0.2:4433\"",
            "line 7: socks5.listen: found \"10.77.0.2:4433\", expected another address or port than the channel's",
        ),
    ] {
        let error = complaint(lines);
        assert!(error.contains(wanted), "for {lines:?}:\n found    {error}\n expected {wanted}");
    }
    let taken = gateway("[[socks5]]\nlisten = \"10.0.0.1:4433\"\n").unwrap_err().to_string();
    assert!(taken.contains("line 10: socks5.listen: found \"10.0.0.1:4433\", expected another"), "{taken}");
    gateway("[[socks5]]\nlisten = \"10.0.0.1:4433\"\n[rollback]\ncarriage = false\n").unwrap();
    terminal("[[forward]]\nlisten = \"127.0.0.1:22\"\nto = \"localhost:22\"\n").unwrap();
    terminal("[[forward]]\nlisten = \"127.0.0.1:2222\"\nto = \"127.0.0.1:22\"\n").unwrap();
}

#[test]
fn this_host_and_its_link_are_out_of_reach_by_default() {
    let egress = terminal("").unwrap().egress;
    for denied in
        ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1"]
    {
        assert!(!egress.permits(denied.parse().unwrap()), "{denied}");
    }
    for allowed in ["10.77.2.2", "192.0.2.1", "2001:db8::1"] {
        assert!(egress.permits(allowed.parse().unwrap()), "{allowed}");
    }
}

#[test]
fn mistakes_name_file_line_key_found_and_expected() {
    for (line, wanted) in [
        (
            "[link]\nsend_rate = \"150\"",
            "line 7: link.send_rate: found \"150\", expected a bit rate with its unit",
        ),
        ("[link]\nsend_rate = 150", "line 7: link.send_rate: found 150, expected a bit rate"),
        ("[link]\n\nmtu = 100", "line 8: link.mtu: found 100, expected a number of bytes from 1280"),
        ("[link]\nrtt = 0.5", "line 7: link.rtt: found 0.5, expected a time with its unit"),
        (
            "[link]\nrate = 1",
            "line 7: link.rate: found an unknown key, expected one of the keys controller, send_rate",
        ),
        (
            "[link]\ncontroller = \"vegas\"",
            "line 7: link.controller: found \"vegas\", expected one of newreno, cubic",
        ),
        ("[link]\ncontroller = \"rate\"", "line 7: link.controller: found \"rate\" without link.send_rate"),
        (
            "[link]\npolicy = \"greedy\"",
            "line 7: link.policy: found \"greedy\", expected \"exclusive\", \"share\" or \"scavenge\"",
        ),
        (
            "[[priority]]\nclass = \"urgent\"",
            "line 7: priority.class: found \"urgent\", expected \"interactive\", \"normal\", \"bulk\" or",
        ),
        ("[[priority]]\nports = [22]", "line 6: priority.class: found nothing, expected \"interactive\""),
        (
            "[[priority]]\nclass = \"bulk\"",
            "line 6: priority: found a priority for no ports and no marks, expected ports = [22]",
        ),
        (
            "[[priority]]\nclass = \"bulk\"\nports = [70000]",
            "line 8: priority.ports: found 70000, expected ports such as",
        ),
        (
            "[[priority]]\nclass = \"bulk\"\ndscp = [\"af11\", 64]",
            "line 8: priority.dscp: found 64, expected marks such as",
        ),
        (
            "[[priority]]\nclass = \"bulk\"\ndscp = \"ef\"",
            "line 8: priority.dscp: found \"ef\", expected a list",
        ),
        ("[egress]\nmark_dscp = 1", "line 7: egress.mark_dscp: found 1, expected true or false"),
        ("[lnk]", "line 6: lnk: found an unknown key, expected one of the keys channel, keys, link"),
        ("[[intercept]]", "line 6: intercept: found a list, expected a section opened by [intercept]"),
        (
            "[intercept]",
            "line 6: intercept.interfaces: found nothing, expected a list of one or more network",
        ),
        (
            "[intercept]\ninterfaces = []",
            "line 7: intercept.interfaces: found a list, expected a list of one or more",
        ),
        (
            "[intercept]\ninterfaces = [\"a b\"]",
            "line 7: intercept.interfaces: found \"a b\", expected a list",
        ),
        (
            "[intercept]\ninterfaces = [\"a\"]\nports = [0]",
            "line 8: intercept.ports: found 0, expected ports such as",
        ),
        (
            "[intercept]\ninterfaces = [\"a\"]\npreserve_source = 1",
            "line 8: intercept.preserve_source: found 1, expected true or false",
        ),
        (
            "[intercept]\ninterfaces = [\"a\"]\nexclude = [\"10.0.0.1/8\"]",
            "line 8: intercept.exclude: found \"10.0.0.1/8\", expected blocks",
        ),
        (
            "[socks5]\nlisten = \"1\"",
            "line 6: socks5: found a section, expected tables, each opened by [[socks5]]",
        ),
        (
            "[[socks5]]\nlisten = \"localhost\"",
            "line 7: socks5.listen: found \"localhost\", expected an address and port",
        ),
        (
            "[[socks5]]\nlisten = \"[::1]:1080\"\npeer = \"gateway\"",
            "line 8: socks5.peer: found an unknown key",
        ),
        ("[[forward]]\nlisten = \"[::1]:1080\"", "line 6: forward.to: found nothing, expected \"HOST:PORT\""),
        (
            "[limits]\nmemory = \"1 MiB\"",
            "line 7: limits.memory: found \"1 MiB\", expected an amount of data of at least 4 MiB",
        ),
        ("[limits]\nflows = -1", "line 7: limits.flows: found -1, expected a number of connections"),
        (
            "[limits]\nconnect_timeout = \"0 s\"",
            "line 7: limits.connect_timeout: found \"0 s\", expected a time",
        ),
        (
            "[rollback]\ndetect = \"1 ms\"",
            "line 7: rollback.detect: found \"1 ms\", expected a time from 200 ms",
        ),
        ("[rollback]\nhold = 10", "line 7: rollback.hold: found 10, expected a time from 200 ms to 600 s"),
        (
            "[rollback]\ncarriage = \"tcp\"",
            "line 7: rollback.carriage: found \"tcp\", expected true or false",
        ),
        (
            "[rollback]\ncongestion = \"b b r\"",
            "line 7: rollback.congestion: found \"b b r\", expected a congestion control of",
        ),
        (
            "[[destination]]",
            "line 6: destination.channel: found nothing, expected \"prefer\", \"require\" or",
        ),
        (
            "[[destination]]\nchannel = \"always\"",
            "line 7: destination.channel: found \"always\", expected \"prefer\"",
        ),
        (
            "[[destination]]\nchannel = \"never\"\nto = []",
            "line 8: destination.to: found a list, expected a list of blocks",
        ),
        (
            "[[destination]]\nchannel = \"never\"\nto = [\"10.0.0.1/8\"]",
            "line 8: destination.to: found \"10.0.0.1/8\", expected a list of blocks of addresses and names",
        ),
        (
            "[[destination]]\nchannel = \"never\"\nto = [\"10.0.0.300\"]",
            "line 8: destination.to: found \"10.0.0.300\", expected a list of blocks",
        ),
        ("[limits\n", "line 6: found `[limits` ("),
    ] {
        let error = complaint(line);
        assert!(error.starts_with("/etc/skyhaul/terminal.toml: "), "{error}");
        assert!(error.contains(wanted), "for {line:?}:\n found    {error}\n expected {wanted}");
    }
}

#[test]
fn a_message_stays_on_one_line_whatever_the_file_holds() {
    let long = "x".repeat(1000);
    for line in [
        "[link]\ncontroller = \"\"\"a\nb\"\"\"".to_owned(),
        "[link]\n\"a\\nb\" = 1".to_owned(),
        format!("[link]\ncontroller = \"{long}\""),
        format!("[link]\n{long}"),
        format!("[link]\n{long} = 1"),
    ] {
        let error = complaint(&line);
        assert!(!error.contains('\n') && error.len() < 400, "{error}");
    }
}

#[test]
fn a_gateway_needs_peers_that_differ() {
    let text = "[channel]\nlisten = \"0.0.0.0:4433\"\n[keys]\nsecret_file = \"g.key\"\n";
    let error = Config::parse(text, Path::new("g.toml"), Role::Gateway).unwrap_err().to_string();
    assert!(error.contains("found no [[peer]], expected one [[peer]] for every terminal"), "{error}");
    let same_name = gateway(&format!("[[peer]]\nname = \"ship\"\nkey = \"{OTHER_KEY}\"\n")).unwrap_err();
    assert!(same_name.to_string().contains("line 9: peer: found a second peer \"ship\""), "{same_name}");
    let same_key = gateway(&format!("[[peer]]\nname = \"boat\"\nkey = \"{KEY}\"\n")).unwrap_err();
    assert!(same_key.to_string().contains("found the key of another peer"), "{same_key}");
}

#[test]
fn a_gateway_knows_which_terminal_an_address_lies_behind() {
    let ship = gateway("").unwrap();
    assert_eq!(ship.peer_around("192.0.2.1".parse().unwrap()), None);
    assert_eq!(ship.only_peer().unwrap().name, "ship");
    let fleet = gateway(&format!(
        "[[peer]]\nname = \"boat\"\nkey = \"{OTHER_KEY}\"\nnetworks = [\"10.77.0.0/16\"]\n"
    ))
    .unwrap();
    let behind = |address: &str| fleet.peer_around(address.parse().unwrap()).map(|peer| peer.name.as_str());
    assert_eq!(behind("10.77.1.2"), Some("ship"), "the smaller block knows better");
    assert_eq!(behind("10.77.9.2"), Some("boat"));
    assert_eq!(behind("192.0.2.1"), None);
    let forward = gateway(&format!(
        "[[peer]]\nname = \"boat\"\nkey = \"{OTHER_KEY}\"\n[[forward]]\nlisten = \"[::1]:1\"\nto = \"host:22\"\n"
    ));
    let error = forward.unwrap_err().to_string();
    assert!(
        error.contains("line 12: forward: found a forward to host:22, which lies in no peer's"),
        "{error}"
    );
}

#[test]
fn a_terminals_file_does_not_do_for_a_gateway() {
    let text = format!("[channel]\ngateway = \"a:1\"\n[keys]\nsecret_file = \"t\"\npeer = \"{KEY}\"\n");
    let error = Config::parse(&text, Path::new("t.toml"), Role::Gateway).unwrap_err().to_string();
    assert!(error.contains("line 1: channel.listen: found nothing, expected an address and port"), "{error}");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in "[\\[\\]a-z_=\"0-9. \n#{},]{0,200}") {
        for outcome in [terminal(&text), gateway(&text)] {
            if let Err(error) = outcome {
                prop_assert!(!error.to_string().contains('\n'), "{:?}", error);
            }
        }
    }
}
