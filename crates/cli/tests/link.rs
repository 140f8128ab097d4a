//! `skyhaul link` on the real kernel. These tests need namespaces and real time; without root rights they say so
//! and do nothing. Machines stall now and then, so nothing here depends on how long something took at most: the
//! round trip is judged by its minimum, the rest by counting.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]

use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The built command, ready for `link` and its arguments.
fn skyhaul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skyhaul"));
    command.arg("link").env("SKYHAUL_LOG", "warn").stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    skyhaul().args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// True when namespaces and TUN devices can be made and the programs are there; otherwise says what is missing.
fn possible(programs: &[&str]) -> bool {
    let root = nix::unistd::geteuid().is_root();
    let missing = programs.iter().find(|program| Command::new(program).arg("--version").output().is_err());
    match (root, missing) {
        (false, _) => eprintln!("skipped: namespaces and TUN devices need root"),
        (true, Some(program)) => eprintln!("skipped: {program} is not installed"),
        (true, None) => return true,
    }
    false
}

/// A scenario file with the given lines for both directions.
fn scenario(folder: &tempfile::TempDir, both: &str) -> PathBuf {
    let path = folder.path().join("test.link.toml");
    let text = format!(
        "format = 1\nid = \"test.link\"\ntitle = \"for a test\"\nsource = \"a test\"\n\n\
         [forward]\n{both}\n[back]\n{both}\n[workload]\nkind = \"iperf3\"\nbytes = \"1 MiB\"\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// One number of the report: a row's name and the column, 0 forward, 1 back.
fn count(report: &str, row: &str, column: usize) -> u64 {
    let line = report.lines().find_map(|line| line.strip_prefix(row)).expect(row);
    line.split_whitespace().nth(column).expect(row).parse().expect(row)
}

/// Every packet offered is accounted for, in both directions.
fn assert_complete(report: &str) {
    for column in [0, 1] {
        let offered = count(report, "offered, packets", column);
        let fates = ["delivered, packets", "lost, queue full", "lost, random loss", "lost, bit error"];
        let fates = fates.iter().chain(&["lost, burst", "lost, outage"]);
        let sum: u64 = fates.map(|row| count(report, row, column)).sum();
        assert_eq!(offered, sum, "column {column} of\n{report}");
    }
}

#[test]
fn needs_namespaces_ping_over_the_geo_link_takes_540_ms_and_little_more() {
    if !possible(&["ping"]) {
        return;
    }
    for far in ["10.77.0.2", "fd77::2"] {
        let output = run(&["p1.down-270", "--", "ping", "-c", "8", "-i", "0.1", far]);
        let printed = text(&output.stdout);
        let rtt = printed.lines().find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "));
        let least: f64 = rtt.and_then(|rtt| rtt.split('/').next()).expect(&printed).parse().unwrap();
        // Never less; more where the machine stands still for a while.
        assert!((540.0..560.0).contains(&least), "{far}: least round trip {least} ms\n{printed}");
    }
}

#[test]
fn needs_namespaces_two_thousand_probes_lose_what_the_scenario_says() {
    if !possible(&["ping"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file =
        scenario(&folder, "rate = \"100 Mbit/s\"\none_way = \"1 ms\"\nloss = \"2 %\"\nqueue = \"1 MB\"\n");
    let ping = ["--", "ping", "-q", "-c", "2000", "-i", "0.001", "-W", "1", "10.77.0.2"];
    let output = skyhaul().arg(&file).args(ping).output().unwrap();
    let (printed, report) = (text(&output.stdout), text(&output.stderr));
    assert_complete(&report);
    let received = printed.lines().find(|line| line.contains("packets transmitted")).expect(&printed);
    let received: u64 = received.split(", ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    // A probe comes back with probability 0.98²: 79 of 2,000 are lost on average, 8.7 is the standard deviation,
    // and 3.29 deviations hold 99.9 % of all runs.
    let lost = 2000 - received;
    assert!((79.2 - 28.7..=79.2 + 28.7).contains(&(lost as f64)), "{lost} of 2000 lost\n{printed}\n{report}");
    // The link's own count agrees with what ping saw; nothing else was lost on the way.
    let counted = count(&report, "lost, random loss", 0) + count(&report, "lost, random loss", 1);
    assert!(counted.abs_diff(lost) <= 1, "ping misses {lost}, the link lost {counted}\n{report}");
}

#[test]
fn needs_namespaces_tcp_runs_over_both_families_and_every_packet_is_accounted_for() {
    if !possible(&["iperf3"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file =
        scenario(&folder, "rate = \"100 Mbit/s\"\none_way = \"5 ms\"\nqueue = \"60 kB\"\nloss = \"0.1 %\"\n");
    for (side, far) in [("terminal", "SKYHAUL_FAR"), ("client", "SKYHAUL_FAR6")] {
        let transfer = format!("iperf3 -c ${far} -n 16M -J");
        let output = skyhaul()
            .arg(&file)
            .args(["--from", side, "--far", "iperf3 -s >/dev/null", "--", "sh", "-c", &transfer])
            .output()
            .unwrap();
        let (printed, report) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{printed}\n{report}");
        let result: serde_json::Value = serde_json::from_str(&printed).expect(&printed);
        let received = result["end"]["sum_received"]["bytes"].as_u64().unwrap_or(0);
        // iperf3 ends when it has handed everything to its kernel, which may still hold 4 MB.
        assert!(received >= 8 << 20, "{received} bytes arrived over {far}\n{printed}");
        assert_complete(&report);
        let delivered = count(&report, "delivered, packets", 0);
        assert!(delivered >= received / 1448, "larger than the MTU? {delivered} packets\n{report}");
    }
}

#[test]
fn needs_namespaces_the_exit_status_is_the_commands_own() {
    if !possible(&["sh"]) {
        return;
    }
    let status = |script| run(&["lan.gigabit-20", "--", "sh", "-c", script]).status.code();
    assert_eq!(status("exit 0"), Some(0));
    assert_eq!(status("exit 7"), Some(7));
    assert_eq!(status("kill -9 $$"), Some(128 + 9));
    let missing = run(&["lan.gigabit-20", "--", "no-such-program"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("no-such-program"), "{}", text(&missing.stderr));
}

#[test]
fn needs_namespaces_a_signal_reaches_the_command_and_the_report_still_comes() {
    if !possible(&["sh"]) {
        return;
    }
    for (signal, code) in [(Signal::SIGINT, 5), (Signal::SIGTERM, 6)] {
        let script = "trap 'exit 5' INT; trap 'exit 6' TERM; echo ready; while :; do sleep 0.01; done";
        // A test run in the background of a shell inherits an ignored SIGINT, which no trap can catch.
        let mut child = Command::new("env")
            .args(["--default-signal=INT,TERM", env!("CARGO_BIN_EXE_skyhaul"), "link"])
            .args(["lan.gigabit-20", "--", "sh", "-c", script])
            .env("SKYHAUL_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        send(child.id(), signal);
        let output = child.wait_with_output().unwrap();
        let report = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{signal}: {report}");
        assert_complete(&report);
    }
}

#[test]
fn needs_namespaces_a_removed_device_makes_the_run_invalid() {
    if !possible(&["ip"]) {
        return;
    }
    let output = run(&["lan.gigabit-20", "--", "ip", "link", "delete", "sat"]);
    let report = text(&output.stderr);
    assert!(report.contains("run INVALID: terminal to gateway: the emulator's thread ended"), "{report}");
}

#[test]
fn needs_namespaces_nothing_is_left_behind_after_sigkill() {
    if !possible(&["sh"]) {
        return;
    }
    // A grandchild in a session of its own, as daemons are: no signal of a shell or terminal would reach it.
    let sleeper = "setsid sleep 4242 & echo started; wait";
    for victim in [Victim::Outermost, Victim::Innermost] {
        let mut child = skyhaul()
            .args(["lan.gigabit-20", "--far", "sleep 4242", "--", "sh", "-c", sleeper])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "started\n");
        let family = descendants(child.id());
        assert!(family.len() >= 5, "two processes of our own, a shell and two sleepers: {family:?}");
        match victim {
            Victim::Outermost => child.kill().unwrap(),
            Victim::Innermost => send(family[2], Signal::SIGKILL),
        }
        child.wait().unwrap();
        let patience = Instant::now() + Duration::from_secs(20);
        while family.iter().any(|process| alive(*process)) {
            assert!(Instant::now() < patience, "still there after {victim:?} was killed: {family:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        // Namespaces without a process, a name or a descriptor are gone; so are the devices in them.
        assert!(
            !text(&Command::new("ip").args(["netns", "list"]).output().unwrap().stdout).contains("terminal")
        );
        assert!(!std::fs::read_to_string("/proc/net/dev").unwrap().contains("sat:"));
    }
}

/// Runs a shell script in a mount namespace whose /dev/net is empty; `skyhaul` is copied to where any user may
/// run it, and `$SKYHAUL` names it.
fn with_empty_dev_net(script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everybody).unwrap();
    let binary = folder.path().join("skyhaul");
    std::fs::copy(env!("CARGO_BIN_EXE_skyhaul"), &binary).unwrap();
    let script = format!("mount -t tmpfs none /dev/net && {script}");
    Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .env("SKYHAUL", binary)
        .current_dir("/")
        .output()
        .unwrap()
}

#[test]
fn needs_namespaces_a_missing_tun_device_is_one_line_that_says_what_would_do() {
    if !possible(&["unshare"]) {
        return;
    }
    let output = with_empty_dev_net("$SKYHAUL link p1.down-270 -- true");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("/dev/net/tun") && message.contains("modprobe tun"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn needs_namespaces_without_root_rights_a_user_namespace_does_or_the_message_says_why_not() {
    if !possible(&["unshare", "setpriv", "ping"]) {
        return;
    }
    let output = with_empty_dev_net(
        "mknod -m 666 /dev/net/tun c 10 200 && exec setpriv --reuid 65534 --regid 65534 --clear-groups \
         $SKYHAUL link lan.gigabit-20 -- ping -q -c 3 -i 0.2 10.77.0.2",
    );
    let (printed, message) = (text(&output.stdout), text(&output.stderr));
    match output.status.code() {
        Some(0) => assert!(printed.contains("3 received"), "{printed}\n{message}"),
        Some(2) => assert!(message.contains("run as root") && message.lines().count() == 1, "{message}"),
        other => panic!("status {other:?}\n{printed}\n{message}"),
    }
}

#[derive(Debug, Clone, Copy)]
enum Victim {
    Outermost,
    /// The process that made the namespaces.
    Innermost,
}

/// The process and everything below it, parents first.
fn descendants(process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut next = 0;
    while next < found.len() {
        let tasks = format!("/proc/{}/task", found[next]);
        for task in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().map(|child| child.parse::<u32>().unwrap()));
        }
        next += 1;
    }
    found
}

fn alive(process: u32) -> bool {
    // A zombie has ended; whoever adopts it will collect it.
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z') && !line.contains('X'))
}

fn send(process: u32, signal: Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process as i32), signal).unwrap();
}

#[test]
fn needs_namespaces_the_scenarios_clock_starts_with_the_command() {
    if !possible(&["ping"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(
        &folder,
        "rate = \"10 Mbit/s\"\none_way = \"1 ms\"\nqueue = \"1 MB\"\n\
         changes = [{ at = \"3 s\", one_way = \"400 ms\" }]\n",
    );
    let pings = "ping -q -c 3 -i 0.1 10.77.0.2 && sleep 3 && ping -q -c 1 10.77.0.2";
    // The far side's command is given up to two seconds to listen; this one never does.
    let output = skyhaul().arg(&file).args(["--far", "sleep 60", "--", "sh", "-c", pings]).output().unwrap();
    let printed = text(&output.stdout);
    let times: Vec<f64> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("rtt min/avg/max/mdev = ")?.split('/').next()?.parse().ok())
        .collect();
    assert!(times.len() == 2 && times[0] < 800.0 && times[1] >= 800.0, "{printed}");
}

#[test]
fn a_wrong_scenario_names_file_line_and_key_and_ends_with_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(&folder, "rate = \"100\"\none_way = \"5 ms\"\nqueue = \"60 kB\"\n");
    let output = skyhaul().arg(&file).args(["--", "true"]).output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    for part in [file.to_str().unwrap(), "line 7", "rate", "\"100\"", "Mbit/s"] {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
    let unknown = run(&["p1.dwn-270", "--", "true"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("p1.dwn-270"), "{}", text(&unknown.stderr));
}
