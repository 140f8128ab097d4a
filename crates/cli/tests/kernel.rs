//! `skyhaul kernel` on the running kernel. These tests need root and a kernel with BTF, and say so when they skip.

mod kernel_host;

use kernel_host::{complaint, text, Cable, Host, FAR};
use serde_json::Value;
use skyhaul_live::kernel::{pins, Law};
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Enough for many rounds, little enough for a busy machine.
const BYTES: usize = 4 << 20;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn needs_root_every_controller_carries_connections_and_leaves_no_trace() {
    let Some(host) = Host::new() else { return };
    let cable = Cable::new();
    let routes = cable.routes();
    host.good(&["install"]);
    assert_eq!(Law::built(), Law::ALL, "an object is missing in bpf/");
    let list = json(&host.good(&["list", "--format", "json"]));
    for law in Law::ALL {
        let row = list.as_array().and_then(|rows| rows.iter().find(|row| row["name"] == law.name()));
        let row = row.unwrap_or_else(|| panic!("{law} is not in {list}"));
        assert_eq!(
            (&row["installed"], &row["registered"]),
            (&Value::Bool(true), &Value::Bool(true)),
            "{law}"
        );
        assert_eq!(row["for_everybody"], false, "{law}: nobody asked for that");

        for (family, makes) in [(0, true), (0, false), (1, true), (1, false)] {
            let printed = host.good_in(&cable.near, &["route", FAR[family], law.name(), "--initcwnd", "20"]);
            assert!(printed.contains(&format!("congctl {} initcwnd 20", law.algorithm())), "{printed}");
            cable.transfer(family, makes, BYTES, || {
                let connections = cable.connections();
                let named = connections.split_whitespace().any(|word| word == law.algorithm());
                assert!(named, "{law}, {}: {connections}", FAR[family]);
            });
        }
    }
    // A host within the cable's network got routes of its own; they go again, from another namespace too.
    assert_ne!(cable.routes(), routes);
    let removed = host.good(&["remove"]);
    for law in Law::built() {
        assert!(removed.contains(&format!("{law} ({}) removed", law.algorithm())), "{removed}");
    }
    assert_eq!(cable.routes(), routes);
    host.is_as_before();
    assert!(host.good(&["remove"]).contains("nothing is installed"));
}

#[test]
fn needs_root_a_running_connection_survives_an_upgrade_and_the_removal() {
    let Some(host) = Host::new() else { return };
    let cable = Cable::new();
    host.good(&["install", "hybla"]);
    host.good_in(&cable.near, &["route", FAR[0], "hybla"]);
    cable.transfer(0, true, BYTES, || {
        let again = host.good(&["install", "sky_hybla", "--allow-everybody"]);
        assert!(again.contains("hybla (sky_hybla): brought up to date"), "{again}");
        let list = json(&host.good(&["list", "--format", "json"]));
        assert_eq!(list[0]["for_everybody"], true, "{list}");
        assert!(cable.connections().contains("sky_hybla"));
    });
    cable.transfer(0, true, BYTES, || {
        host.good(&["remove", "hybla"]);
        assert!(cable.connections().contains("sky_hybla"), "to its end");
    });
    cable.transfer(0, true, BYTES, || assert!(!cable.connections().contains("sky_hybla")));
    host.is_as_before();
}

#[test]
fn needs_root_routes_keep_their_attributes_and_come_back_as_they_were() {
    let Some(host) = Host::new() else { return };
    let cable = Cable::new();
    for route in [
        format!("route add default via {} mtu lock 1400 metric 7", FAR[0]),
        format!("-6 route add 2001:db8::/32 via {} metric 50 initcwnd 12", FAR[1]),
    ] {
        cable.near.ip(&route).expect("a good route");
    }
    let before = cable.routes();
    host.good(&["install", "hybla"]);

    let planned = host.good_in(&cable.near, &["route", "0.0.0.0/0", "hybla", "--dry-run"]);
    assert_eq!(cable.routes(), before, "a dry run changes nothing");
    assert_eq!(planned, host.good_in(&cable.near, &["route", "0.0.0.0/0", "hybla"]));
    let now = cable.routes();
    assert!(now.contains("dev cable metric 7 mtu lock 1400 congctl sky_hybla"), "{now}");
    host.good_in(&cable.near, &["route", "2001:db8::/32", "hybla", "--initcwnd", "40"]);
    host.good_in(&cable.near, &["route", "203.0.113.0/24", "hybla"]);
    // Twice is as good as once.
    host.good_in(&cable.near, &["route", "203.0.113.0/24", "hybla", "--initcwnd", "30"]);
    let now = cable.routes();
    for part in ["2001:db8::/32 via fd78::2 dev cable metric 50 initcwnd 40", "203.0.113.0/24 via 10.78.0.2"]
    {
        assert!(now.contains(part), "{part} in {now}");
    }
    assert!(!now.contains("initcwnd 12"), "{now}");
    let recorded = json(&host.good(&["route", "--format", "json"]));
    assert_eq!(recorded.as_array().map(Vec::len), Some(3), "{recorded}");

    // What somebody has changed since is theirs.
    cable.near.ip("route replace 203.0.113.0/24 via 10.78.0.2 mtu 1300").expect("a good route");
    let undone = host.good_in(&cable.near, &["route", "2001:db8::/32", "--undo"]);
    assert!(undone.contains("initcwnd 12"), "{undone}");
    let removed = host.good(&["remove"]);
    assert!(removed.contains("203.0.113.0/24: changed by somebody since"), "{removed}");
    assert!(removed.contains("route restored: ip -4 route replace default via 10.78.0.2"), "{removed}");
    cable.near.ip("route del 203.0.113.0/24").expect("it was left");
    assert_eq!(cable.routes(), before);
    host.is_as_before();
}

#[test]
fn needs_root_a_namespace_that_has_one_as_its_default_is_not_left_with_it() {
    let Some(host) = Host::new() else { return };
    let cable = Cable::new();
    let default = "net.ipv4.tcp_congestion_control";
    let has = || {
        let path = "/proc/sys/net/ipv4/tcp_congestion_control";
        cable.near.run(|| std::fs::read_to_string(path)).expect("it has one").trim().to_owned()
    };
    let before = has();
    host.good(&["install", "hybla"]);
    assert!(cable.near.sysctl(default, "sky_hybla").is_err(), "not everybody may");
    // Of two controllers the one that is named.
    host.good(&["install", "hybla", "veno", "--allow-everybody=hybla"]);
    assert!(cable.near.sysctl(default, "sky_veno").is_err(), "not named");
    host.good(&["remove", "veno"]);
    cable.near.sysctl(default, "sky_hybla").expect("everybody may");

    let refused = host.refused(&["remove"]);
    for part in ["sky_hybla", "nothing was removed", "nsenter --net=", "--everywhere"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    assert!(host.good(&["list"]).contains("installed"));
    let removed = host.good(&["remove", "--everywhere"]);
    assert!(removed.contains("default sky_hybla replaced by"), "{removed}");
    assert_eq!(has(), before);
    host.is_as_before();
}

#[test]
fn needs_root_what_is_missing_is_one_line_with_its_remedy_and_nothing_is_half_installed() {
    let Some(host) = Host::new() else { return };
    for (words, parts) in [
        (&["install", "reno"][..], &["no kernel controller is called \"reno\"", "hybla, veno"][..]),
        (&["install", "hybla", "--allow-everybody=boost"], &["boost is not among", "which are hybla"]),
        (&["install", "--allow-everybody="], &["no kernel controller is called \"\""]),
        (&["route", "10.0.0.0/8", "hybla"], &["hybla is not installed", "skyhaul kernel install hybla"]),
        (&["remove", "hybla"], &["hybla is not installed", "none is"]),
        (&["paths"], &["no controller is installed", "skyhaul kernel install"]),
        (&["watch"], &["no controller is installed", "skyhaul kernel install"]),
        (&["route", "10.0.0.0/8", "--undo"], &["was not changed by skyhaul"]),
    ] {
        let said = host.refused(words);
        for part in parts {
            assert!(said.contains(part), "{words:?}: {part} in {said}");
        }
    }
    let skyhaul = env!("CARGO_BIN_EXE_skyhaul");
    for (why, command, parts) in [
        (
            "no bpffs",
            format!("umount /sys/fs/bpf; {skyhaul} kernel install"),
            ["no bpffs", "mount -t bpf bpf /sys/fs/bpf"],
        ),
        (
            "no BTF",
            format!("mount -t tmpfs none /sys/kernel; {skyhaul} kernel install"),
            ["no BTF", "CONFIG_DEBUG_INFO_BTF"],
        ),
        (
            "no capability",
            format!("setpriv --bounding-set=-cap_39,-sys_admin {skyhaul} kernel install"),
            ["CAP_BPF", "sudo"],
        ),
        (
            "a user namespace",
            format!("unshare --user --map-root-user {skyhaul} kernel install"),
            ["user namespace", "host's root"],
        ),
    ] {
        let mut shell = host.command("unshare");
        let output = shell.args(["--mount", "sh", "-c", &command]).output().expect("a shell");
        let said = complaint(&[why], &output);
        for part in parts {
            assert!(said.contains(part), "{why}: {part} in {said}");
        }
        host.is_as_before();
    }
    // A pin that cannot be made, for the last of two controllers.
    let obstacle = "mkdir -p /sys/fs/bpf/skyhaul/hybla/in-the-way";
    assert!(host.command("sh").args(["-c", obstacle]).status().expect("a shell").success());
    let files = host.files();
    host.refused(&["install", "hybla"]);
    assert_eq!(host.files(), files);
    assert!(host.good(&["list"]).contains("sky_hybla"));
    let list = json(&host.good(&["list", "--format", "json"]));
    assert!(list.as_array().expect("rows").iter().all(|row| row["registered"] == false), "{list}");
}

#[test]
fn needs_root_a_bpffs_that_was_mounted_on_request_is_unmounted_again() {
    let Some(host) = Host::new() else { return };
    let mounted = || {
        let output = host.command("grep").args(["-c", " /sys/fs/bpf bpf ", "/proc/mounts"]).output();
        text(&output.expect("grep").stdout).trim().to_owned()
    };
    assert!(host.command("umount").arg("/sys/fs/bpf").status().expect("umount").success());
    assert_eq!(mounted(), "0");
    assert_eq!(host.kernel(&["probe"]).status.code(), Some(1));
    host.good(&["install", "hybla", "--mount-bpffs"]);
    assert_eq!(mounted(), "1");
    let probe = json(&host.good(&["probe", "--format", "json"]));
    assert!(probe.as_array().expect("checks").iter().all(|check| check["good"] == true), "{probe}");
    assert!(host.good(&["remove"]).contains("bpffs unmounted"));
    assert_eq!(mounted(), "0");
    host.is_as_before();
}

#[test]
fn needs_root_learnt_paths_are_shown_and_forgotten() {
    let Some(host) = Host::new() else { return };
    let cable = Cable::with_a_delay();
    host.good(&["install", "skyhaul", "hybla"]);
    assert!(host.good(&["paths"]).contains("nothing learnt yet"));
    for (family, address) in cable.far_addresses().iter().enumerate() {
        host.good_in(&cable.near, &["route", address, "skyhaul"]);
        cable.transfer(family, true, 16 << 20, || {});
    }
    let paths = || json(&host.good(&["paths", "--format", "json"])).as_array().expect("rows").clone();
    let start = Instant::now();
    // The kernel lets the socket go a moment after the far end has closed.
    while paths().len() < 2 && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let learnt = paths();
    let networks: Vec<&str> = learnt.iter().filter_map(|path| path["network"].as_str()).collect();
    assert_eq!(networks, ["10.77.0.0", "fd77::"], "{learnt:?}");
    for path in &learnt {
        assert!(path["rate_bit_per_s"].as_u64() > Some(1_000_000), "{path}");
        assert!(path["cwnd_segments"].as_u64() > Some(1) && path["connections"] == 1, "{path}");
    }

    // An upgrade keeps what was learnt.
    host.good(&["install", "skyhaul"]);
    assert_eq!(paths().len(), 2);
    assert!(host.refused(&["paths", "clear", "192.0.2.0"]).contains("nothing is known of 192.0.2.0"));
    assert_eq!(host.good(&["paths", "clear", "fd77::"]), "1 path forgotten\n");
    host.good(&["remove", "skyhaul", "--keep-paths"]);
    assert_eq!(paths().len(), 1, "hybla is still installed");
    host.good(&["remove", "--keep-paths"]);
    assert!(host.files().contains("sky_paths"), "{}", host.files());
    host.good(&["install", "skyhaul"]);
    assert_eq!(paths().len(), 1);
    assert_eq!(host.good(&["paths", "clear"]), "1 path forgotten\n");
    host.good(&["remove"]);
    host.is_as_before();
}

#[test]
fn needs_root_on_a_noisy_path_the_send_buffer_holds_what_waits_behind_holes() {
    let Some(host) = Host::new() else { return };
    let cable = Cable::with_delay_and_noise();
    host.good(&["install", "skyhaul", "boost"]);
    for law in ["skyhaul", "boost"] {
        host.good_in(&cable.near, &["route", &cable.far_addresses()[0], law]);
        let mut seen = String::new();
        cable.transfer(0, true, 32 << 20, || seen = cable.connections());
        let figure = |name: &str| -> u64 {
            let number = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
            seen.match_indices(name).filter_map(|(at, _)| number(&seen[at + name.len()..])).max().unwrap_or(0)
        };
        println!("{law}: {} bytes for {} segments", figure(",tb"), figure(" cwnd:"));
        // The kernel alone gives two windows, of 2304 bytes per segment of 1448.
        assert!(figure(" cwnd:") > 50 && figure(",tb") > 3 * 2304 * figure(" cwnd:"), "{law}: {seen}");
    }
    host.good(&["remove"]);
    host.is_as_before();
}

#[test]
fn needs_root_a_watch_sees_connections_begin_go_on_and_end() {
    let Some(host) = Host::new() else { return };
    let cable = Cable::new();
    host.good(&["install"]);
    let transfers = || {
        for (family, law) in [(0, "veno"), (1, "veno"), (0, "hybla")] {
            host.good_in(&cable.near, &["route", FAR[family], law]);
            cable.transfer(family, true, BYTES, || {});
        }
    };
    // Long enough for this machine, which may be an emulated one.
    let start = Instant::now();
    transfers();
    let seconds = 4 + 3 * start.elapsed().as_secs();
    let mut watch = host.command(env!("CARGO_BIN_EXE_skyhaul"));
    let time = seconds.to_string();
    watch.args(["kernel", "watch", "--only", "veno", "--for", &time, "--format", "json"]);
    let watch =
        watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary under test runs");
    // It asks for events as soon as it runs; connections keep coming until it has had its time.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) {
        transfers();
    }
    let output = watch.wait_with_output().expect("it ends by itself");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let events: Vec<Value> = text(&output.stdout).lines().map(json).collect();
    for event in &events {
        assert_eq!(event["algorithm"], "sky_veno", "{event}");
    }
    for (remote, local) in [("10.78.0.2:", "10.78.0.1:"), ("[fd78::2]:", "[fd78::1]:")] {
        let of = |end: &Value, address: &str| end.as_str().is_some_and(|end| end.starts_with(address));
        let ours: Vec<&Value> = events.iter().filter(|event| of(&event["remote"], remote)).collect();
        assert!(ours.iter().all(|event| of(&event["local"], local)), "{ours:?}");
        for kind in ["start", "end"] {
            assert!(ours.iter().any(|event| event["event"] == kind), "{kind} {remote} in {events:?}");
        }
        let sent = ours
            .iter()
            .filter(|event| event["event"] == "end")
            .filter_map(|event| event["delivered_segments"].as_u64());
        assert!(sent.max() > Some(100), "{ours:?}");
        assert!(ours.iter().any(|event| event["pacing_bit_per_s"].as_u64() > Some(0)), "{ours:?}");
    }
    host.good(&["remove"]);
    assert_eq!(cable.routes().matches("sky_").count(), 0);
    host.is_as_before();
}

#[test]
#[ignore = "measures for some minutes and wants a quiet machine: cargo xtask root-tests cost"]
fn needs_root_cost_of_every_controller() {
    let Some(host) = Host::new() else { return };
    host.good(&["install"]);
    println!("  time of a hook, the kernel's counting included: least and median of {RUNS} transfers");
    let link = Cable::with_a_delay();
    let counting = pins::Counting::begin().expect("root may");
    for law in Law::built() {
        host.good_in(&link.near, &["route", &link.far_addresses()[0], law.name()]);
        print_hooks(law, &link);
    }
    drop((counting, link));

    for (how, segments, bytes) in
        [("with segmentation offload", None, 512 << 20), ("segment by segment", Some(1), 64 << 20)]
    {
        let cable = Cable::new();
        if let Some(segments) = segments {
            cable.near.ip(&format!("link set cable gso_max_segs {segments}")).expect("it is there");
        }
        println!(
            "\n  CPU time of both ends over that with the kernel's reno, {how}: median and quartiles of {PAIRS} pairs"
        );
        println!("  controller  as it is               reno paced as ours are");
        let laws = Law::built().into_iter().map(Law::algorithm);
        for algorithm in ["reno", "cubic"].into_iter().chain(laws) {
            let own = cable.ratios(algorithm, false, bytes);
            let paced = cable.ratios(algorithm, true, bytes);
            println!("  {algorithm:12}  {own}  {paced}");
        }
    }
}

/// Transfers over which the time of a hook is measured: other work on the machine can only make it longer.
const RUNS: usize = 5;
/// Pairs of transfers, one with each controller, in alternating order.
const PAIRS: usize = 15;

/// Hooks that an acknowledgment or a new burst calls; of a program's name the kernel keeps 15 characters.
const HOOKS: [&str; 4] = ["pkts_acked", "cong_avoid", "cong_control", "cwnd_event"];

/// What each hook of `law` takes while it carries transfers over `link`.
fn print_hooks(law: Law, link: &Cable) {
    let hooks = || {
        let standing = pins::list().into_iter().find(|standing| standing.law == law);
        standing.expect("it is listed").hooks
    };
    let mut means: BTreeMap<String, (u64, Vec<f64>)> = BTreeMap::new();
    for _ in 0..RUNS {
        let before = hooks();
        link.transfer(0, true, 16 << 20, || {});
        for (before, after) in before.iter().zip(hooks()) {
            let (calls, time) = (after.calls - before.calls, after.time_ns - before.time_ns);
            let of = means.entry(after.name).or_default();
            of.0 += calls;
            of.1.extend((calls > 100).then(|| time as f64 / calls as f64));
        }
    }
    assert!(means.values().any(|(calls, _)| *calls > 1_000), "{law} was not used: {means:?}");
    for (name, (calls, mut each)) in means {
        each.sort_by(f64::total_cmp);
        if let (Some(least), Some(median)) = (each.first(), each.get(each.len() / 2)) {
            let hook = HOOKS.into_iter().find(|hook| format!("{law}_{hook}").starts_with(&name));
            let hook = hook.unwrap_or(&name);
            println!("  {law:10}  {hook:16} {calls:8} calls  {least:6.0}  {median:6.0} ns");
        }
    }
}
