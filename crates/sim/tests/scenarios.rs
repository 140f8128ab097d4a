//! The scenario files: what ships, what is refused and how it is said.

use skyhaul_cc::units::{Bytes, Duration, Rate};
use skyhaul_sim::scenario::{catalogue, Dir, Figure, Relation, Scenario, WorkloadKind};

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
