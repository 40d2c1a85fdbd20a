//! Each demo, run as a user would run it: its claims hold, it ends in time, and it leaves nothing behind.

use crate::cluster::{self, BINARY};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The time limit that the help promises.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Runs a demo, and returns its output.
fn play(name: &str) -> String {
    let dir = tempfile::TempDir::with_prefix("tollgate-it-demo-").unwrap();
    let began = Instant::now();
    let mut command = Command::new(BINARY);
    command.args(["demo", name]).env("TMPDIR", dir.path());
    // Settings for other servers: they must not reach those of the demo.
    command.env("TOLLGATE_NODE_ID", "77").env("TOLLGATE_ENDPOINTS", "http://127.0.0.1:1");
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (took, said) = (began.elapsed(), String::from_utf8(stdout).unwrap());
    let errors = String::from_utf8_lossy(&stderr).into_owned();
    println!("{name} took {took:?}");
    assert!(status.success(), "{name} ended with {status}:\n{said}\n{errors}");
    assert!(took < TIME_MAX, "{name} took {took:?}");
    assert!(!said.contains('\u{1b}'), "colours, and no terminal:\n{said}");
    assert!(!said.contains("NOT SEEN"), "{said}");
    assert!(said.lines().filter(|line| line.starts_with("seen  ")).count() >= 3, "{said}");
    for pid in pids(&said) {
        assert!(!runs(pid), "process {pid} is left:\n{said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{name} leaves files");
    said
}

/// Returns the process ids of the nodes.
fn pids(said: &str) -> Vec<u32> {
    let line = said.lines().find(|line| line.contains("ready: processes")).expect("it says when it is ready");
    let list = line.split_once("processes ").unwrap().1.split(';').next().unwrap();
    let pids: Vec<u32> = list.split(", ").map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3, "{line}");
    pids
}

/// True if a process runs, and is not merely a zombie that its parent has not reaped yet.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

#[test]
fn p9_contention_is_shown_and_checked() {
    let said = play("contention");
    assert!(said.contains("ann bob cid ann bob cid ann bob cid"), "{said}");
}

#[test]
fn p6_a_crash_is_shown_and_checked() {
    let said = play("crash");
    assert!(said.contains("kill -9"), "{said}");
}

#[test]
fn p3_split_brain_is_shown_with_and_without_fencing() {
    let said = play("split-brain");
    let (fenced, unfenced) = said.split_once("The same without").unwrap();
    assert!(fenced.contains("refuses it") && fenced.contains("the store has balance=150"), "{said}");
    assert!(unfenced.contains("the store has balance=90"), "{said}");
}

#[test]
fn p4_the_loss_of_a_leader_is_shown_and_checked() {
    let said = play("leader-loss");
    assert!(said.contains("still has all four"), "{said}");
}

#[test]
fn a_deadlock_is_shown_with_its_circle() {
    let said = play("deadlock");
    assert!(said.contains("bob waits for account/left, which ann holds"), "{said}");
    assert!(said.contains("ann waits for account/right, which bob holds"), "{said}");
}

#[test]
fn without_a_name_the_demos_are_listed_and_an_unknown_one_is_a_mistake() {
    let listed = Command::new(BINARY).arg("demo").output().unwrap();
    assert_eq!(listed.status.code(), Some(0));
    let listed = String::from_utf8(listed.stdout).unwrap();
    for name in ["contention", "crash", "split-brain", "leader-loss", "deadlock"] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{listed}");
    }
    let unknown = Command::new(BINARY).args(["demo", "sleight-of-hand"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("split-brain"), "it says which there are");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_that_is_killed_takes_its_nodes_with_it() {
    let dir = tempfile::TempDir::with_prefix("tollgate-it-demo-").unwrap();
    let mut command = Command::new(BINARY);
    command.args(["demo", "crash"]).env("TMPDIR", dir.path()).stdout(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find(|line| line.contains("ready: processes")).unwrap();
    let nodes = pids(&line);
    demo.kill().unwrap();
    demo.wait().unwrap();
    cluster::until("the nodes are gone", || {
        let left = nodes.iter().any(|pid| runs(*pid));
        async move { !left }
    })
    .await;
}
