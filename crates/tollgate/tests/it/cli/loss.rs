//! A lock that is lost, or about to be: the command is gone before the lease can end on the server (P7), whatever
//! happens to `run` itself.

use super::{Cli, Running, lives, shared, until};
use crate::cluster::{self, Cluster};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};
use tollgate_proto::v1::LeaseTimeToLiveRequest;
use tollgate_types::LeaseId;

const TTL: Duration = Duration::from_secs(3);

/// A command that does not end when asked, with a child that does not either.
const STUBBORN: &str = "trap '' TERM HUP; sleep 1000 & echo child $!; echo pid $$; while :; do wait; done";
/// A command that ends when it is asked to.
const POLITE: &str = "trap 'echo asked; exit 0' TERM; echo pid $$; while :; do sleep 0.01; done";

fn start(cli: &Cli, name: &str, more: &[&str], script: &str) -> (Running, u32) {
    let mut arguments = vec!["run", name];
    if !more.contains(&"--ttl") {
        arguments.extend(["--ttl", "3s"]);
    }
    arguments.extend(more);
    arguments.extend(["--", "sh", "-c", script]);
    let running = cli.start(&arguments);
    let pid = running.until_tells("pid ").parse().unwrap();
    (running, pid)
}

fn until_gone(pid: u32) -> Instant {
    until(&format!("process {pid} is gone"), || !lives(pid));
    Instant::now()
}

fn release(cli: &Cli, name: &str) {
    let token = cli.token(name);
    cli.call(&["release", "--force", name, "--token", &token, "--reason", "for a test"]).with(0);
}

#[test]
fn a_command_whose_lock_is_taken_away_is_asked_to_end_and_run_ends_with_79() {
    let cli = shared();
    let (running, _) = start(&cli, "loss/polite", &[], POLITE);
    release(&cli, "loss/polite");
    let ended = running.end().with(79);
    assert!(ended.stdout.contains("asked"));
    assert!(ended.stderr.contains("for a test"), "the operator's reason is told: {}", ended.stderr);
}

#[test]
fn a_command_that_does_not_end_is_killed_after_the_grace_with_all_its_group() {
    let cli = shared();
    let (running, pid) = start(&cli, "loss/stubborn", &["--grace", "200ms"], STUBBORN);
    let child = running.until_tells("child ").parse().unwrap();
    release(&cli, "loss/stubborn");
    let ended = running.end().with(79);
    assert!(!lives(pid) && !lives(child));
    assert!(
        ended.stderr.contains("SIGKILL in 200ms") && ended.stderr.contains("killing"),
        "{}",
        ended.stderr
    );
}

/// Returns both ends of a pipe that is full.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer)
}

/// The kill comes long before the deadline, at which the guardian would kill.
#[test]
fn a_command_is_killed_after_the_grace_even_if_nobody_reads_what_is_said() {
    let cli = shared();
    let (name, pids) = ("loss/unread", tempfile::NamedTempFile::new().unwrap());
    let script = format!("trap '' TERM; echo $$ > {}; while :; do sleep 1000; done", pids.path().display());
    let (_unread, stderr) = full_pipe();
    let mut command =
        cli.command(&["run", name, "--ttl", "10m", "--grace", "200ms", "--", "sh", "-c", &script]);
    let mut run = command.stderr(stderr).spawn().unwrap();
    let pid = || std::fs::read_to_string(pids.path()).unwrap().trim().parse::<u32>().ok();
    until("the command has begun", || pid().is_some());
    release(&cli, name);
    until_gone(pid().unwrap());
    assert_eq!(run.wait().unwrap().code(), Some(79), "it ends too");
}

/// Starts a run without a terminal, as cron and services do, in whatever environment the tests run.
fn start_without_a_terminal(cli: &Cli, name: &str, script: &str) -> (Running, u32) {
    let plain = cli.command(&["run", name, "--ttl", "3s", "--", "sh", "-c", script]);
    let mut command = std::process::Command::new("setsid");
    command.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let running = Running::start(command);
    let pid = running.until_tells("pid ").parse().unwrap();
    (running, pid)
}

fn until_stopped(pid: u32) {
    until("it stands still", || {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default().contains(") T ")
    });
}

/// A stopped command would keep others from the lock for ever without doing any work.
#[test]
fn a_command_that_is_stopped_without_a_terminal_keeps_its_lock_for_its_ttl_and_no_longer() {
    let cli = shared();
    let (running, pid) = start_without_a_terminal(&cli, "loss/stopped", STUBBORN);
    running.signal("TSTP");
    until_stopped(pid);
    assert_eq!(cli.counts("loss/stopped"), (1, 0));
    let ended = running.end().with(79);
    assert!(!lives(pid));
    assert!(ended.stderr.contains("was stopped for longer than its TTL of 3s"), "{}", ended.stderr);
    assert_eq!(cli.counts("loss/stopped"), (0, 0));
}

#[test]
fn a_command_that_goes_on_in_time_keeps_its_lock() {
    let cli = shared();
    let script = "echo pid $$; read x; sleep 4; exit 6";
    let (mut running, pid) = start_without_a_terminal(&cli, "loss/continued", script);
    running.signal("TSTP");
    until_stopped(pid);
    // First through the command's own pid, then through that of `run`, which does not notice the first.
    super::signal("CONT", pid);
    running.signal("TSTP");
    until_stopped(pid);
    running.signal("CONT");
    running.write("go\n");
    running.end().with(6);
}

#[test]
fn with_on_lost_kill_it_is_not_asked() {
    let cli = shared();
    let (running, _) = start(&cli, "loss/kill", &["--on-lost", "kill"], POLITE);
    release(&cli, "loss/kill");
    let ended = running.end().with(79);
    assert!(!ended.stdout.contains("asked"));
}

#[test]
fn with_on_lost_notify_it_is_told_and_its_exit_code_counts() {
    let cli = shared();
    let script = "trap 'echo told; exit 8' USR1; echo pid $$; while :; do sleep 0.01; done";
    let (running, _) = start(&cli, "loss/notify", &["--on-lost", "notify"], script);
    release(&cli, "loss/notify");
    let ended = running.end().with(8);
    assert!(ended.stdout.contains("told") && ended.stderr.contains("SIGUSR1"), "{}", ended.stderr);
}

#[test]
fn a_lock_command_whose_lock_is_lost_ends_with_79() {
    let cli = shared();
    let holding = cli.start(&["lock", "loss/lock", "--ttl", "3s"]);
    cli.until_counts("loss/lock", (1, 0));
    release(&cli, "loss/lock");
    let ended = holding.end().with(79);
    assert!(ended.stderr.contains("for a test"), "{}", ended.stderr);
}

/// A loss is reported when it happens, and not only when the cluster has been told of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_is_told_at_once_and_a_signal_ends_what_is_left_to_do() {
    let cluster = Cluster::start(cluster::Making::nodes(1)).await;
    let cli = Cli::at(cluster.endpoints().join(","));
    let lock = cli.start(&["lock", "loss/told", "--ttl", "1s"]);
    let elect = cli.start(&["elect", "loss/told-leader", "--ttl", "1s"]);
    cli.until_counts("loss/told", (1, 0));
    cli.until_counts("loss/told-leader", (1, 0));
    cluster.nodes[0].signal("STOP");
    for (running, says) in [(lock, "error: lock lost:"), (elect, "error: leadership lost:")] {
        until(says, || running.stderr().contains(says));
        running.signal("TERM");
        running.end().with(79);
    }
    cluster.nodes[0].signal("CONT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_command_that_waits_for_a_cluster() {
    let cluster = Cluster::start(cluster::Making::nodes(1)).await;
    let cli = Cli::at(cluster.endpoints().join(","));
    cluster.nodes[0].signal("STOP");
    for arguments in [&["lock", "loss/x"][..], &["elect", "loss/x"], &["run", "loss/x", "--", "true"]] {
        let mut running = cli.start(arguments);
        // The process receives signals as soon as it listens for any.
        let status = format!("/proc/{}/status", running.pid());
        let listens = || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
            u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 14) != 0
        };
        until("it listens for SIGTERM", listens);
        assert!(!running.has_ended());
        running.signal("TERM");
        running.end().with(128 + 15);
    }
    cluster.nodes[0].signal("CONT");
}

/// The first signal ends the wait or the hold, the second one everything after it: seconds, while the cluster does not
/// answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once_what_has_no_command() {
    let cluster = Cluster::start(cluster::Making::nodes(1)).await;
    let cli = Cli::at(cluster.endpoints().join(","));
    let held = cli.start(&["lock", "loss/second"]);
    cli.until_counts("loss/second", (1, 0));
    let waiting = cli.start(&["run", "loss/second", "--", "true"]);
    cli.until_counts("loss/second", (1, 1));
    let standing = cli.start(&["elect", "loss/second", "--", "true"]);
    cli.until_counts("loss/second", (1, 2));
    let leading = cli.start(&["elect", "loss/second-leader"]);
    cli.until_counts("loss/second-leader", (1, 0));
    cluster.nodes[0].signal("STOP");
    for running in [held, waiting, standing, leading] {
        let began = Instant::now();
        running.signal("TERM");
        running.signal("INT");
        let ended = running.end();
        assert!(matches!(ended.code, Some(130 | 143)), "{:?}: {}", ended.code, ended.stderr);
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    }
    cluster.nodes[0].signal("CONT");
}

#[test]
fn a_leader_whose_leadership_was_lost_before_its_command_ended_is_79() {
    let cli = shared();
    let line = "echo up; read _; exit 0";
    let mut leader = cli.start(&["elect", "loss/leader", "--ttl", "3s", "--", "sh", "-c", line]);
    leader.until_says("up");
    // The process is stopped while that happens, and finds its command ended when it resumes.
    leader.signal("STOP");
    release(&cli, "loss/leader");
    let command = leader.pid();
    leader.write("go\n");
    until("the command has ended", || !children(command).iter().any(|child| lives(*child)));
    leader.signal("CONT");
    leader.end().with(79);
}

/// Returns the commands that a process runs: its children but for the guardian.
fn children(of: u32) -> Vec<u32> {
    let children = all_children(of).into_iter();
    children.filter(|(_, name)| name != "tg-guardian").map(|(pid, _)| pid).collect()
}

/// Returns the guardian of a `run`.
#[track_caller]
pub(super) fn guardian(of: u32) -> u32 {
    let guardian = || all_children(of).into_iter().find(|(_, name)| name == "tg-guardian");
    until("there is a guardian", || guardian().is_some());
    guardian().unwrap().0
}

fn all_children(of: u32) -> Vec<(u32, String)> {
    let processes = std::process::Command::new("ps").args(["-e", "-o", "pid=,ppid=,comm="]).output().unwrap();
    let lines = String::from_utf8_lossy(&processes.stdout).into_owned();
    let child = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [pid, parent, name, ..] = words[..] else { return None };
        (parent == of.to_string()).then(|| (pid.parse().unwrap(), name.to_owned()))
    };
    lines.lines().filter_map(child).collect()
}

/// Checks that the command is gone while the server still counts the lock as held, for one hindrance of `run`.
fn p7_gone_before_the_lease_ends_when(name: &str, hindrance: &str, script: &str) {
    let cli = shared();
    let (mut running, pid) = start(&cli, name, &[], script);
    let token = cli.token(name);
    running.signal(hindrance);
    until_gone(pid);
    assert_eq!(cli.token(name), token, "the lease had ended while the command ran");
    if hindrance == "STOP" {
        running.signal("CONT");
        running.end().with(79);
    } else {
        until("run is gone", || running.has_ended());
    }
}

#[test]
fn p7_kill_of_run_ends_a_polite_command_by_asking() {
    let cli = shared();
    let (running, pid) = start(&cli, "loss/run-killed-polite", &[], POLITE);
    running.signal("KILL");
    until_gone(pid);
    assert_eq!(cli.counts("loss/run-killed-polite"), (1, 0));
    assert!(running.stdout().contains("asked"));
}

/// Script that reports every signal at once, and goes on.
const TELLER: &str = "trap 'echo asked' TERM; trap 'echo told' USR1
(trap '' TERM; exec sleep 1000) &
echo pid $$; while :; do wait; done";

#[test]
fn a_command_is_asked_once_when_run_is_killed() {
    let cli = shared();
    let (running, pid) = start(&cli, "loss/asked-once", &["--ttl", "12s"], TELLER);
    running.signal("KILL");
    running.until_says("asked");
    // The command has seconds to end by itself.
    std::thread::sleep(Duration::from_millis(500));
    assert!(lives(pid), "too slow to tell");
    assert_eq!(running.stdout().matches("asked").count(), 1);
    until_gone(pid);
}

#[test]
fn with_on_lost_kill_it_is_not_asked_when_run_is_killed() {
    let cli = shared();
    let (running, pid) = start(&cli, "loss/run-killed-kill", &["--on-lost", "kill"], TELLER);
    running.signal("KILL");
    until_gone(pid);
    assert!(!running.stdout().contains("asked"));
    until("it is told what was done", || running.stderr().contains("run died"));
    assert!(running.stderr().contains("killing the command"), "{}", running.stderr());
}

#[test]
fn with_on_lost_notify_it_is_told_once_when_run_is_killed_and_runs_on() {
    let cli = shared();
    let (running, pid) = start(&cli, "loss/run-killed-notify", &["--on-lost", "notify"], TELLER);
    running.signal("KILL");
    running.until_says("told");
    until("it is told what was done", || running.stderr().contains("and runs on"));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(running.stdout().matches("told").count(), 1);
    assert!(lives(pid) && !running.stdout().contains("asked"), "it was to run on");
    let group = format!("-{pid}");
    assert!(std::process::Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
}

#[test]
fn a_guardian_that_stands_still_keeps_no_lock() {
    let cli = shared();
    let mut running = cli.start(&["run", "loss/guardian", "--", "sh", "-c", "echo up; read _; exit 5"]);
    running.until_says("up");
    super::signal("STOP", guardian(running.pid()));
    running.write("go\n");
    until("run has ended", || running.has_ended());
    assert_eq!(cli.counts("loss/guardian"), (0, 0));
    let ended = running.end().with(5);
    assert!(ended.stderr.contains("stands still"), "{}", ended.stderr);
}

#[test]
fn p7_kill_of_run_ends_a_stubborn_command_before_its_lease_ends() {
    p7_gone_before_the_lease_ends_when("loss/run-killed", "KILL", STUBBORN);
}

#[test]
fn p7_stop_of_run_ends_its_command_before_its_lease_ends() {
    p7_gone_before_the_lease_ends_when("loss/run-stopped", "STOP", STUBBORN);
}

/// The guardian has left the group before there is a command.
#[test]
fn p7_kill_of_run_and_its_group_by_the_first_word_of_the_command_ends_that_too() {
    let cli = shared();
    let script = "trap '' TERM; echo pid $$; kill -s KILL -- -$PPID; while :; do sleep 1000; done";
    let mut command = cli.command(&["run", "loss/group-killed", "--ttl", "3s", "--", "sh", "-c", script]);
    command.process_group(0);
    let running = Running::start(command);
    until_gone(running.until_tells("pid ").parse().unwrap());
}

/// Waits until the lease is renewed; returns a time before the renewal arrived.
async fn renewed(cluster: &Cluster, lease: u64) -> Instant {
    let mut leader = cluster.nodes[cluster.leader().await].locks();
    let mut before: Option<(Instant, i64)> = None;
    loop {
        let asked = Instant::now();
        let request = LeaseTimeToLiveRequest { id: lease, keys: false };
        let left = leader.lease_time_to_live(request).await.unwrap().into_inner().lease.unwrap().remaining_ms;
        match before {
            Some((earlier, then)) if left > then => return earlier,
            _ => before = Some((asked, left)),
        }
        assert!(asked.elapsed() < TTL, "it was not renewed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p7_sigstop_of_all_nodes_the_command_is_gone_before_the_lease_can_end_on_the_server() {
    let cluster = cluster::three().await;
    let cli = Cli::at(cluster.endpoints().join(","));
    let (running, pid) = start(&cli, "loss/nodes-stopped", &[], STUBBORN);
    let child: u32 = running.until_tells("child ").parse().unwrap();
    let lock = cli.call(&["get", "loss/nodes-stopped", "-o", "json"]).with(0).json();
    let lease = lock["holders"][0]["lease_id"].as_str().unwrap().parse::<LeaseId>().unwrap().get();

    let renewal = renewed(&cluster, lease).await;
    for node in &cluster.nodes {
        node.signal("STOP");
    }
    let gone = until_gone(pid).max(until_gone(child));
    let took = gone - renewal;
    println!("gone {took:?} after the last renewal, of a lease of {TTL:?}");
    assert!(took < TTL, "the lease could have ended: {took:?} after its last renewal");
    assert!(took > TTL / 2, "so soon that a short outage would cost commands: {took:?}");
    for node in &cluster.nodes {
        node.signal("CONT");
    }
    running.end().with(79);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_costs_no_command() {
    let mut cluster = cluster::three().await;
    let cli = Cli::at(cluster.endpoints().join(","));
    let mut running =
        cli.start(&["run", "loss/failover", "--ttl", "6s", "--", "sh", "-c", "echo up; read _; exit 7"]);
    running.until_says("up");
    let leader = cluster.leader().await;
    cluster.nodes[leader].kill();
    cluster.leader_but(Some(leader)).await;
    // Past the time at which the lease would have ended without the new leader.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(cli.counts("loss/failover"), (1, 0));
    running.write("go\n");
    running.end().with(7);
}
