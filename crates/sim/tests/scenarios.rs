//! The scenario files: what ships, what is refused and how it is said.

#![allow(clippy::unwrap_used)] // a test may panic

use skyhaul_cc::units::{Bytes, Duration, Rate, Time};
use skyhaul_sim::link::Fate;
use skyhaul_sim::play::{self, play, PlayError};
use skyhaul_sim::scenario::{catalogue, Dir, Figure, Relation, Scenario, TcpPlan, Threshold, WorkloadKind};
use skyhaul_sim::tcp::{Pacing, Recovery};

#[test]
fn every_file_of_the_folder_is_in_the_catalogue_and_reads() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
        .collect();
    files.sort();
    assert_eq!(files, catalogue().collect::<Vec<_>>());
    for id in files {
        let scenario = Scenario::find(&id).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenario.id, id);
        assert_eq!(Scenario::find(&format!("{folder}/{id}.toml")).unwrap(), scenario);
    }
}

#[test]
fn the_example_of_the_manual_reads() {
    let manual = include_str!("../../../docs/scenarios.md");
    let example = manual.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let scenario = Scenario::parse(example, "docs/scenarios.md").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(scenario.back.changes.len(), 2);
    let experiment = manual.split("```toml\n").nth(2).and_then(|rest| rest.split("```").next()).unwrap();
    let scenario = Scenario::parse(experiment, "docs/scenarios.md").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((scenario.cells().len(), scenario.flows.len()), (8, 2));
}

#[test]
fn the_manual_has_every_key_that_can_be_written() {
    let manual = include_str!("../../../docs/scenarios.md");
    // The reader's own list, as it answers an unknown key.
    for table in ["", "[forward]", "[tcp]", "[sweep]", "[[flows]]"] {
        let text = match table {
            "" => minimal().replacen("format = 1", "format = 1\nx = 1", 1),
            "[forward]" => minimal().replacen("[forward]", "[forward]\nx = 1", 1),
            other => format!("{}{other}\nx = 1\n", minimal()),
        };
        let error = Scenario::parse(&text, "test").unwrap_err().to_string();
        let (_, keys) =
            error.split_once("x: unknown key; expected one of ").unwrap_or_else(|| panic!("{error}"));
        for key in keys.split(", ").filter(|key| {
            !["forward", "back", "workload", "published", "tcp", "flows", "sweep"].contains(key)
        }) {
            assert!(manual.contains(&format!("| `{key}`")), "{table} {key}");
        }
    }
}

#[test]
fn the_papers_links_are_as_the_fact_sheet_says() {
    // Cells, flows, round trips and the queue in full packets of the first and the last cell.
    for (id, cells, flows, rtts, queues) in [
        ("p0.throughput-vs-loss", 20, 0, (20, 80), (1625, 6501)),
        ("p0.throughput-vs-delay", 8, 0, (5, 100), (1000, 8127)),
        ("p0.fairness-3-flows", 1, 3, (100, 100), (8127, 8127)),
        ("p0.preemption-c", 1, 3, (80, 80), (6501, 6501)),
        ("p2.random-loss", 5, 0, (550, 550), (4000, 4000)),
        ("p2.random-and-congestion", 5, 0, (550, 550), (25, 25)),
        ("p3.geo", 4, 1, (500, 500), (6250, 6250)),
        ("p3.delays", 12, 1, (500, 10), (6250, 125)),
        ("p4.packet", 1, 1, (2287, 2287), (952_916, 952_916)),
    ] {
        let scenario = Scenario::find(id).unwrap();
        let all = scenario.cells();
        assert_eq!((all.len(), scenario.flows.len()), (cells, flows), "{id}");
        let of = |cell: &skyhaul_sim::scenario::Cell| {
            let queue = cell.scenario.direction(scenario.data()).queue;
            (cell.rtt.as_millis(), queue.0 / scenario.tcp.packet().0)
        };
        let ends = [of(&all[0]), of(all.last().unwrap())];
        assert_eq!(ends, [(rtts.0, queues.0), (rtts.1, queues.1)], "{id}");
        // Paper 002 states the one of 25 packets, and nobody else states any.
        let stated = id == "p2.random-and-congestion";
        assert_eq!(scenario.assumed.iter().any(|text| text.starts_with("queue")), !stated, "{id}");
    }
    let close = |id: &str, mbit: f64| {
        let rate = Scenario::find(id).unwrap().payload_rate().as_mbit();
        assert!((rate / mbit - 1.0).abs() < 1e-3, "{id}: {rate}");
    };
    // The table of physical limits, nothing lost.
    for (id, mbit) in [("p0.fairness-3-flows", 941.5), ("p2.random-loss", 9.733), ("p3.geo", 96.0)] {
        close(id, mbit);
    }
    // And of one with errors: 1e-5 per bit of 1000 bytes leaves 88.62 Mbit/s.
    let cells = Scenario::find("p3.geo").unwrap().cells();
    let limit = cells[3].scenario.tcp_limit(Bytes(100_000_000_000)).as_mbit();
    assert!((limit / 88.62 - 1.0).abs() < 1e-3, "{limit}");
}

#[test]
fn the_papers_controllers_come_in_the_papers_order() {
    for (id, controllers) in [
        ("p0.throughput-vs-delay", &["newreno", "cubic", "bbr", "boost"][..]),
        ("p0.fairness-3-flows", &["bbr", "cubic", "boost"]),
        ("p2.random-and-congestion", &["newreno", "veno", "hybla", "enhanced"]),
        ("p3.geo", &["scps", "hswa"]),
        ("p4.packet", &["hybic", "hybla", "cubic", "newreno"]),
    ] {
        assert_eq!(Scenario::find(id).unwrap().controllers, controllers, "{id}");
    }
    for (id, own) in [("a", ["cubic", "bbr", "boost"]), ("b", ["bbr", "cubic", "boost"])] {
        let scenario = Scenario::find(&format!("p0.preemption-{id}")).unwrap();
        let flows = scenario.flows.iter().map(|flow| (flow.start.as_secs(), flow.controller.as_deref()));
        assert_eq!(flows.collect::<Vec<_>>(), [(0, Some(own[0])), (10, Some(own[1])), (20, Some(own[2]))]);
    }
}

#[test]
fn the_papers_of_bursts_leave_errors_and_thresholds_where_their_files_say() {
    let scenario = Scenario::find("p2.random-and-congestion").unwrap();
    assert_eq!((scenario.tcp.pacing, scenario.tcp.ack_every), (Pacing::Never, 1));
    assert_eq!(scenario.tcp.initial_ssthresh, Some(Threshold::Bdp(1.0)));
    for cell in scenario.cells() {
        assert_eq!((cell.scenario.back.ber, cell.scenario.forward.ber.value()), (cell.ber, 0.0));
    }
    let ratios = scenario.published.iter().filter_map(|row| match row.figure {
        Figure::Ratio(ratio) => Some((row.system.as_str(), ratio)),
        _ => None,
    });
    assert_eq!(
        ratios.collect::<Vec<_>>(),
        [("enhanced / newreno", 1.96), ("enhanced / veno", 1.88), ("enhanced / hybla", 5.09)]
    );
}

#[test]
fn the_paper_s_downlink_is_as_the_fact_sheet_says() {
    let scenario = Scenario::find("p1.down-270").unwrap();
    assert_eq!(scenario.forward.rate, Rate::mbit(150));
    assert_eq!(scenario.back.rate, Rate::mbit(10));
    assert_eq!(scenario.rtt(), Duration::from_millis(540));
    assert_eq!((scenario.forward.loss.value(), scenario.back.loss.value()), (0.012, 0.002));
    assert_eq!(scenario.workload.kind, WorkloadKind::FtpUpload);
    let proxy = &scenario.published[0];
    assert_eq!((&proxy.figure, proxy.relation), (&Figure::LinkRate(Rate::mbit(115)), Relation::About));
    assert_eq!(proxy.to_string(), "~115 Mbit/s");
}

#[test]
fn limits_match_the_fact_sheet() {
    // 512 MiB; floors in seconds and payload limits in Mbit/s from the table of physical limits.
    for (id, payload, floor) in [
        ("p1.down-270", 141.58, 30.606),
        ("p1.down-400", 141.58, 30.736),
        ("p1.up-270", 9.4387, 455.31),
        ("p1.up-400", 9.4387, 455.44),
    ] {
        let scenario = Scenario::find(id).unwrap();
        let rate = scenario.payload_limit(scenario.workload.kind.data(), Bytes(1433)).as_mbit();
        assert!((rate / payload - 1.0).abs() < 1e-4, "{id}: {rate}");
        let limit = scenario.limit(Bytes::mib(512));
        let seconds = Bytes::mib(512).bits() as f64 / limit.as_f64();
        assert!((seconds / floor - 1.0).abs() < 1e-4, "{id}: {seconds}");
    }
    let limit = Scenario::find("p1.down-270").unwrap().limit(Bytes::mib(512)).as_mbit();
    assert!((limit - 140.33).abs() < 0.01, "{limit}");
}

#[test]
fn a_limit_counts_what_changes_on_the_way() {
    let text = minimal().replace("[back]", "[[forward.changes]]\nat = \"10 s\"\nrate = \"1 Mbit/s\"\n[[forward.changes]]\nat = \"20 s\"\noutage = \"5 s\"\n[back]");
    let scenario = Scenario::parse(&text, "test").unwrap();
    let payload = 1433.0 / 1500.0;
    // 100 Mbit by 10 s, 10 Mbit by 20 s, a pause, 5 Mbit by 30 s.
    let bytes = Bytes::from_f64(115e6 * payload / 8.0);
    let seconds = bytes.bits() as f64 / scenario.limit(bytes).as_f64();
    assert!((seconds - 30.02).abs() < 1e-3, "{seconds}");
}

#[test]
fn the_two_directions_have_different_luck() {
    let scenario = Scenario::find("p1.down-270").unwrap();
    let lost = |dir: Dir| -> Vec<bool> {
        let mut link = skyhaul_sim::link::Link::clone(&scenario.link(dir, 1));
        (0..1000)
            .map(|_| matches!(link.offer(Default::default(), Bytes(40)), skyhaul_sim::link::Fate::Dropped(_)))
            .collect()
    };
    assert_ne!(lost(Dir::Forward), lost(Dir::Back));
}

/// A valid scenario with nothing optional.
fn minimal() -> String {
    [
        "format = 1",
        "id = \"my.link\"",
        "title = \"mine\"",
        "source = \"me\"",
        "[forward]",
        "rate = \"10 Mbit/s\"",
        "one_way = \"20 ms\"",
        "queue = \"50 kB\"",
        "[back]",
        "rate = \"10 Mbit/s\"",
        "one_way = \"20 ms\"",
        "queue = \"50 kB\"",
        "[workload]",
        "kind = \"ftp-upload\"",
        "bytes = \"1 MiB\"\n",
    ]
    .join("\n")
}

#[test]
fn every_mistake_is_named_with_file_line_key_found_and_expected() {
    assert_eq!(Scenario::parse(&minimal(), "test").map(|scenario| scenario.id), Ok("my.link".to_owned()));
    let forward = |line: &str| ("[forward]".to_owned(), format!("[forward]\n{line}"));
    let change = |line: &str| ("[back]".to_owned(), format!("[[forward.changes]]\n{line}\n[back]"));
    let swap = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let plan = |line: &str| ("format = 1".to_owned(), format!("format = 1\n{line}"));
    let after = |lines: &str| ("bytes = \"1 MiB\"\n".to_owned(), format!("bytes = \"1 MiB\"\n\n{lines}"));
    let cases = [
        (swap("10 Mbit/s", "10"), "line 6: forward.rate: found \"10\", expected a bit rate with its unit, such as \"150 Mbit/s\""),
        (swap("\"10 Mbit/s\"", "true"), "line 6: forward.rate: found true, expected a bit rate with its unit, such as \"150 Mbit/s\""),
        (swap("10 Mbit/s", "0 Mbit/s"), "line 6: forward.rate: found \"0 Mbit/s\", expected between 1 kbit/s and 100 Gbit/s"),
        (swap("50 kB", "1499 B"), "line 8: forward.queue: found \"1499 B\", expected at least one full packet, 1500 B, and at most 100 GB"),
        (swap("ftp-upload", "gopher"), "line 14: workload.kind: found \"gopher\", expected \"ftp-upload\" or \"ftp-download\""),
        (swap("1 MiB", "0 B"), "line 15: workload.bytes: found \"0 B\", expected between 1 B and 1000 TB"),
        (swap("format = 1", "format = 2"), "line 1: format: found 2, expected 1, the only format there is"),
        (swap("title = \"mine\"\n", ""), "title: missing; expected for example title = \"A link I know\""),
        (swap("[workload]", "[work]"), "workload: missing; expected a table [workload]"),
        (swap("my.link", "My Link"), "line 2: id: found \"My Link\", expected up to 64 lower-case letters, digits, dots and dashes"),
        (swap("queue = \"50 kB\"\n[back]", "[back]"), "line 5: forward.queue: missing; expected for example queue = \"5 MB\""),
        (forward("lossy = 0.1"), "line 6: forward.lossy: unknown key; expected one of one_way, rate, rate_base"),
        (forward("loss = \"120 %\""), "line 6: forward.loss: found \"120 %\", expected a share such as \"1.2 %\" or 0.012, between 0 and 1"),
        (forward("loss = -0.1"), "line 6: forward.loss: found \"-0.1\", expected a share such as \"1.2 %\" or 0.012, between 0 and 1"),
        (forward("ber = 2"), "line 6: forward.ber: found \"2\", expected a bit error rate"),
        (forward("reorder = \"yes\""), "line 6: forward.reorder: found \"yes\", expected true or false"),
        (forward("rate_base = \"tcp\""), "line 6: forward.rate_base: found \"tcp\", expected \"ip\" or \"l2\" or \"wire\""),
        (forward("jitter = { half_range = \"30 ms\" }"), "line 6: forward.jitter.half_range: found \"30 ms\", expected at most the shortest one_way of this direction, 20 ms"),
        (forward("burst = { mean_burst = 4 }"), "line 6: forward.burst: expected either mean_burst and average, or to_bad and to_good"),
        (forward("burst = { mean_burst = 4, average = \"90 %\" }"), "line 6: forward.burst.average: found \"90 %\", expected mean_burst of at least 1 packet"),
        (change("at = \"-5 s\"\nloss = 0"), "line 10: forward.changes[1].at: found \"-5 s\", expected a time with its unit, such as \"270 ms\""),
        (change("at = \"5 s\""), "line 9: forward.changes[1]: changes nothing; expected rate, one_way, loss or outage"),
        (change("at = \"5 s\"\noutage = \"2 s\"\nevery = \"2 s\""), "line 9: forward.changes[1].outage: as long as every or longer; expected a pause between outages"),
        (change("at = \"5 s\"\nloss = 0\nevery = \"1 ms\""), "line 12: forward.changes[1].every: found \"1 ms\", expected at least 10 ms"),
        (
            change("at = \"5 s\"\noutage = \"0 s\""),
            "line 11: forward.changes[1].outage: found \"0 s\", expected more than nothing",
        ),
        (forward("ber_unit = \"octet\""), "line 6: forward.ber_unit: found \"octet\", expected \"bit\" or \"byte\""),
        (swap("50 kB", "0 bdp"), "line 8: forward.queue: found \"0 bdp\", expected bandwidth-delay products such as \"1 bdp\", above 0 and at most 1000"),
        (swap("50 kB", "many bdp"), "line 8: forward.queue: found \"many bdp\", expected bandwidth-delay products"),
        (swap("50 kB", "0.01 bdp"), "line 8: forward.queue: found \"0.01 bdp\", expected between 1500 B, one full packet, and 100 GB, but it is 500 B at a round trip of 40 ms; queue_least sets a least size"),
        (forward("queue_least = \"2 kB\""), "line 6: forward.queue_least: only for a queue such as \"1 bdp\""),
        (plan("controllers = [\"cubic\", \"vegas\"]"), "line 2: controllers[2]: found \"vegas\", expected a controller: one of newreno, cubic, "),
        (plan("controllers = []"), "line 2: controllers: an empty list, expected controllers, or no such key"),
        (plan("duration = \"0 s\""), "line 2: duration: found \"0 s\", expected more than nothing"),
        (plan("repeats = 0"), "line 2: repeats: found 0, expected a whole number from 1 to 10000"),
        (plan("repeats = 1.5"), "line 2: repeats: found 1.5, expected a whole number from 1 to 10000"),
        (after("[tcp]\nmss = 0"), "line 18: tcp.mss: found 0, expected between 1 B and 65 kB"),
        (after("[tcp]\nmss = \"49.99 kB\""), "line 18: tcp.mss: found \"49.99 kB\", expected a segment that fits the queue with its headers, but together it is 50042 B"),
        (after("[tcp]\npacing = \"fq\""), "line 18: tcp.pacing: found \"fq\", expected \"always\" or \"if-asked\" or \"never\""),
        (after("[tcp]\nrecovery = \"luck\""), "line 18: tcp.recovery: found \"luck\", expected \"rack\" or \"dupack\""),
        (after("[tcp]\ninitial_rto = \"0 s\""), "line 18: tcp.initial_rto: found \"0 s\", expected between 1 ms and 60 s"),
        (after("[tcp]\ninitial_window = 1"), "line 18: tcp.initial_window: found 1, expected a whole number from 2 to 16777216 segments"),
        (after("[tcp]\ninitial_ssthresh = \"-1 bdp\""), "line 18: tcp.initial_ssthresh: found \"-1 bdp\", expected bandwidth-delay products"),
        (after("[tcp]\nreference_rtt = \"0 ms\""), "line 18: tcp.reference_rtt: found \"0 ms\", expected more than nothing"),
        (after("[tcp]\nsack = true"), "line 18: tcp.sack: unknown key; expected one of mss, headers, pacing"),
        (after("[[flows]]\nbytes = \"0 B\""), "line 18: flows[1].bytes: found \"0 B\", expected between 1 B and 1000 TB"),
        (after("[[flows]]\nstart = \"1 s\""), "line 17: flows[1].bytes: missing; expected bytes = \"500 MB\", or a duration for a flow without end"),
        (plan("flows = []"), "line 2: flows: 0 flows, expected between 1 and 1000"),
        (plan("duration = \"9 s\"\nflows = [{}, { start = \"9 s\" }]"), "line 3: flows[2].start: found \"9 s\", expected before the end of the scenario's duration: the flow never starts"),
        (after("[[flows]]\nbytes = \"1 MB\"\ncontroller = \"vegas\""), "line 19: flows[1].controller: found \"vegas\", expected a controller: one of newreno"),
        (after("[sweep]"), "line 17: sweep: sweeps over nothing; expected a list rtt, loss, ber or bytes"),
        (after("[sweep]\nrtt = []"), "line 18: sweep.rtt: an empty list, expected values to sweep over, or no such key"),
        (after("[sweep]\nrtt = \"20 ms\""), "line 18: sweep.rtt: found \"20 ms\", expected a list of values to sweep over"),
        (after("[sweep]\nloss = [0, 1.01]"), "line 18: sweep.loss[2]: found \"1.01\", expected a share"),
        (after("[sweep]\nber = [\"1e-6\", -1]"), "line 18: sweep.ber[2]: found \"-1\", expected a bit error rate"),
        (swap("[workload]\nkind = \"ftp-upload\"", "[sweep]\nbytes = [\"1 MB\"]\n[workload]\nkind = \"iperf3\""), "line 14: sweep.bytes: found a list, expected none, or a workload or flow that has a size"),
        (swap("[workload]", "[[forward.changes]]\nat = \"1 s\"\none_way = \"2 ms\"\n[sweep]\nrtt = [\"8 ms\"]\n[workload]"), "line 17: sweep.rtt: found a list, expected none, or no changes of one_way in [[forward.changes]]"),
        (swap("[workload]", "[back.jitter]\nhalf_range = \"5 ms\"\n[sweep]\nrtt = [\"8 ms\"]\n[workload]"), "line 16: sweep.rtt: found a list, expected at least twice the half_range of [back.jitter]"),
        (swap("[back]", "[back"), "line 9: not TOML: "),
        (swap("format = 1", "format = 1\nformat = 1"), "line 2: not TOML: duplicate key"),
    ];
    for ((from, to), expected) in cases {
        let text = minimal().replacen(&from, &to, 1);
        let error = Scenario::parse(&text, "dir/my.toml").unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("dir/my.toml: {expected}")),
            "\n   found {error}\nexpected {expected}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn an_unknown_scenario_is_answered_with_those_there_are() {
    let error = Scenario::find("p1.down").unwrap_err().to_string();
    assert!(
        error.starts_with("p1.down: no such scenario; expected") && error.contains("p1.down-270"),
        "{error}"
    );
    let error = Scenario::find("no/such/file.toml").unwrap_err().to_string();
    assert!(error.starts_with("no/such/file.toml: cannot be read: "), "{error}");
    for (path, problem) in [("/dev/zero", "longer than 1048576 bytes"), ("/", "cannot be read: ")] {
        let error = Scenario::find(path).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{path}: {problem}")), "{error}");
    }
}

/// The minimal scenario with lines at its end.
fn with(lines: &str) -> Scenario {
    Scenario::parse(&format!("{}{lines}", minimal()), "test").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn what_a_file_leaves_out_is_as_it_always_was() {
    let plain = with("");
    assert_eq!(plain.tcp, TcpPlan::default());
    assert_eq!(plain.tcp.sender(), Default::default());
    assert_eq!(plain.tcp.receiver(), Default::default());
    assert!(plain.flows.is_empty() && plain.sweep.is_empty() && plain.controllers.is_empty());
    let [flow] = &plain.flow_plans()[..] else { panic!("one flow") };
    assert_eq!((flow.start, flow.bytes), (Duration::ZERO, Some(Bytes::mib(1))));
    let [cell] = &plain.cells()[..] else { panic!("one cell") };
    assert_eq!((&cell.scenario, cell.name.as_str()), (&plain, ""));
    assert_eq!((cell.rtt, cell.bytes), (Duration::from_millis(40), Some(Bytes::mib(1))));
}

#[test]
fn tcp_s_settings_reach_the_sender_the_receiver_and_the_controller() {
    let scenario = with(
        "[tcp]\nmss = 1460\nheaders = \"40 B\"\npacing = \"never\"\nrecovery = \"dupack\"\ninitial_rto = \"6 s\"\n\
         initial_window = 4\ninitial_ssthresh = \"2 bdp\"\nreference_rtt = \"25 ms\"\nack_every = 1\nreceive_window = \"1 MB\"",
    );
    let sender = scenario.tcp.sender();
    assert_eq!(
        (sender.mss, sender.headers, sender.initial_rto),
        (Bytes(1460), Bytes(40), Duration::from_secs(6))
    );
    assert_eq!((sender.pacing, sender.recovery), (Pacing::Never, Recovery::Dupack));
    assert_eq!((scenario.tcp.receiver().every, scenario.tcp.receiver().window), (1, Some(Bytes(1_000_000))));
    let told = |contender: &str| play::setup(&scenario, &contender.parse().unwrap());
    let setup = told("cubic");
    assert_eq!((setup.initial_window, setup.reference_rtt), (Bytes(5840), Some(Duration::from_millis(25))));
    // 10 Mbit/s carry 1460 of 1500 bytes; twice 40 ms of that.
    let payload = Rate::bit(9_733_333);
    assert_eq!((setup.link_rate, setup.history), (None, None));
    for contender in ["rate", "skyhaul/known"] {
        assert_eq!(
            (told(contender).link_rate, told(contender).history),
            (Some(payload), None),
            "{contender}"
        );
    }
    let left = told("skyhaul/warm").history.unwrap();
    assert_eq!((left.rate, left.min_rtt, told("skyhaul/warm").link_rate), (payload, scenario.rtt(), None));
    let threshold = setup.initial_ssthresh.unwrap().as_f64();
    assert!((threshold / (2.0 * 50_000.0 * 1460.0 / 1500.0) - 1.0).abs() < 1e-4, "{threshold}");
    for (written, read) in [
        ("128", Threshold::Bytes(Bytes(128 * 1448))),
        ("\"64 KiB\"", Threshold::Bytes(Bytes::kib(64))),
        ("\"0.5 bdp\"", Threshold::Bdp(0.5)),
    ] {
        let scenario = with(&format!("[tcp]\ninitial_ssthresh = {written}"));
        assert_eq!(scenario.tcp.initial_ssthresh, Some(read), "{written}");
    }
}

#[test]
fn a_sweep_makes_a_cell_of_every_combination_and_queues_follow_the_round_trip() {
    let text = minimal().replacen("50 kB", "1 bdp\"\nqueue_least = \"30 kB", 1)
        + "[sweep]\nrtt = [\"8 ms\", \"80 ms\"]\nloss = [0, \"0.5 %\"]\nber = [\"1e-7\"]\nbytes = [\"2 MB\", \"3 MB\"]";
    let scenario = Scenario::parse(&text, "test").unwrap();
    assert_eq!(scenario.forward.queue, Bytes(50_000), "one product at 40 ms");
    let cells = scenario.cells();
    assert_eq!((cells.len(), scenario.sweep.len()), (8, 8));
    assert_eq!(cells[3].name, "rtt 8 ms, loss 0.5 %, ber 1e-7, 3 MB");
    assert_eq!((cells[3].bytes, cells[3].ber.value()), (Some(Bytes(3_000_000)), 1e-7));
    let queues: Vec<Bytes> = cells.iter().map(|cell| cell.scenario.forward.queue).collect();
    assert_eq!(queues, [[Bytes(30_000); 4], [Bytes(100_000); 4]].concat());
    for cell in &cells {
        let link = &cell.scenario;
        assert!(link.sweep.is_empty());
        assert_eq!((link.forward.loss, link.forward.ber, link.rtt()), (cell.loss, cell.ber, cell.rtt));
        assert_eq!((link.back.loss, link.back.queue), (scenario.back.loss, scenario.back.queue));
    }
}

#[test]
fn a_queue_in_products_counts_ip_bytes_whatever_the_rate_counts() {
    let text = minimal().replacen("queue = \"50 kB\"", "queue = \"1 bdp\"\nrate_base = \"wire\"", 1);
    let queue = Scenario::parse(&text, "test").unwrap().forward.queue;
    // As many full packets as the link sends in 40 ms.
    assert!((queue.as_f64() - 50_000.0 * 1500.0 / 1538.0).abs() < 1.0, "{queue}");
}

#[test]
fn flows_start_when_they_should_with_the_controller_they_should_have() {
    let flows = "[[flows]]\ncontroller = \"cubic\"\n[[flows]]\nstart = \"2 s\"\nbytes = \"100 kB\"\n";
    let text = minimal()
        .replace("format = 1", "format = 1\nduration = \"5 s\"\ncontrollers = [\"veno\", \"hybla\"]");
    let (before, _) = text.split_once("[workload]").unwrap();
    let scenario = Scenario::parse(&format!("{before}{flows}"), "test").unwrap();
    assert_eq!((scenario.workload.kind, scenario.data()), (WorkloadKind::Iperf3, Dir::Forward));
    let names = |controllers: &[&str]| -> Vec<&str> {
        let world = play(&scenario, controllers, 1).unwrap();
        assert_eq!(world.now(), Time::from_secs(5), "the first flow has no end");
        let outcomes = world.outcomes();
        assert_eq!((outcomes[1].start, outcomes[1].delivered), (Time::from_secs(2), Bytes(100_000)));
        outcomes.iter().map(|outcome| outcome.controller).collect()
    };
    assert_eq!(names(&[]), ["cubic", "veno"], "the flow's own, and the first of the scenario's");
    assert_eq!(names(&["bbr"]), ["bbr", "bbr"]);
    assert_eq!(names(&["scps", "hybla"]), ["scps", "hybla"]);
    assert_eq!(names(&["skyhaul/warm", "skyhaul/known"]), ["skyhaul", "skyhaul"]);
}

#[test]
fn a_run_that_can_not_be_is_refused_by_name() {
    let scenario = with("");
    let error = play(&scenario, &[], 1).err().unwrap();
    assert_eq!(error, PlayError::NoController { flow: 1 });
    assert!(error.to_string().starts_with("flow 1 has no controller; expected one of newreno, "), "{error}");
    let error = play(&scenario, &["vegas"], 1).err().unwrap().to_string();
    assert!(error.starts_with("no controller is called \"vegas\"; known are "), "{error}");
    let error = play(&scenario, &["cubic/warm"], 1).err().unwrap().to_string();
    assert!(error.contains("cubic makes nothing of a warm start"), "{error}");
}

#[test]
fn a_run_is_over_when_everything_is_there_or_its_time_is_up() {
    let done = play(&with(""), &["newreno"], 1).unwrap();
    assert!(done.now() < Time::from_secs(5) && done.outcomes()[0].finished.is_some());
    let text = minimal().replace("format = 1", "format = 1\nduration = \"200 ms\"");
    let stopped = play(&Scenario::parse(&text, "test").unwrap(), &["newreno"], 1).unwrap();
    assert_eq!((stopped.now(), stopped.outcomes()[0].finished), (Time::from_millis(200), None));
}

#[test]
fn errors_per_byte_lose_an_eighth_of_what_errors_per_bit_lose() {
    let lost = |unit: &str| {
        let text =
            minimal().replacen("[forward]", &format!("[forward]\nber = \"1e-5\"\nber_unit = \"{unit}\""), 1);
        let mut link = Scenario::parse(&text, "test").unwrap().link(Dir::Forward, 7);
        let count = (0..40_000u64)
            .filter(|n| matches!(link.offer(Time::from_millis(2 * n), Bytes(1000)), Fate::Dropped(_)))
            .count();
        count as f64 / 40_000.0
    };
    // 1-(1-1e-5)^8000 and 1-(1-1e-5)^1000, five standard deviations of 40 000 draws.
    for (unit, expected) in [("bit", 0.076_884f64), ("byte", 0.009_950)] {
        let found = lost(unit);
        let deviation = (expected * (1.0 - expected) / 40_000.0).sqrt();
        assert!((found - expected).abs() < 5.0 * deviation, "{unit}: {found}, not {expected}");
    }
}
