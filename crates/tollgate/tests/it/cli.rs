//! The command line, as people and scripts use it.
//!
//! A cluster costs a second, so tests that disturb nobody share one: the first test starts it, the last one stops it.
//! Each test uses names of its own. Invariant: processes that a test starts end with it; a `run` that is killed takes
//! its command along, which is itself tested here.

mod clocks;
mod denied;
mod dev;
mod documents;
mod exits;
mod family;
mod looking;
mod loss;
mod nesting;
mod order;
mod pipes;
mod running;
mod signals;
mod silence;
mod terminal;
mod wording;

use crate::cluster::{BINARY, Cluster, Making, PATIENCE};
use parking_lot::Mutex;
use running::Running;
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A cluster to try the command line on.
pub(crate) struct Cli {
    endpoints: String,
    /// `None` if somebody else owns the cluster.
    _cluster: Option<Arc<Cluster>>,
}

/// Returns one node, shared with the other tests that run now.
fn shared() -> Cli {
    static CLUSTER: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    let mut known = CLUSTER.lock();
    let cluster = known.upgrade().unwrap_or_else(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let cluster = Arc::new(runtime.block_on(Cluster::start(Making::nodes(1))));
        *known = Arc::downgrade(&cluster);
        cluster
    });
    Cli { endpoints: cluster.endpoints().join(","), _cluster: Some(cluster) }
}

/// Result of a command that has ended.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn of(output: &Output) -> Ended {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Checks the exit code.
    #[track_caller]
    fn with(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}:\n{}", self.stdout))
    }
}

impl Cli {
    fn at(endpoints: String) -> Cli {
        Cli { endpoints, _cluster: None }
    }

    /// Returns a call of the binary with the endpoints of its cluster, and without `TOLLGATE_*` variables of the tests.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
            command.env_remove(name);
        }
        command.env("TOLLGATE_ENDPOINTS", &self.endpoints).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    fn call(&self, arguments: &[&str]) -> Ended {
        Ended::of(&self.command(arguments).output().unwrap())
    }

    /// Starts a command, which is killed with the test.
    fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.command(arguments))
    }

    /// Returns the numbers of holders and of waiters of a lock.
    fn counts(&self, name: &str) -> (u64, u64) {
        let lock = self.call(&["get", name, "-o", "json"]).with(0).json();
        (lock["holder_count"].as_u64().unwrap(), lock["waiter_count"].as_u64().unwrap())
    }

    /// Returns the fencing token of the only holder.
    fn token(&self, name: &str) -> String {
        let lock = self.call(&["get", name, "-o", "json"]).with(0).json();
        lock["holders"][0]["fencing_token"].as_str().unwrap().to_owned()
    }

    fn until_counts(&self, name: &str, counts: (u64, u64)) {
        until(&format!("{name} has {counts:?} holders and waiters"), || self.counts(name) == counts);
    }
}

/// Waits until a condition holds; panics with `what` if it never does.
#[track_caller]
fn until(what: &str, holds: impl FnMut() -> bool) {
    until_or(what, holds, String::new);
}

/// Waits until a condition holds; panics with `what` and the output of `instead` if it never does.
#[track_caller]
fn until_or(what: &str, mut holds: impl FnMut() -> bool, instead: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not after {PATIENCE:?}: {what}\n{}", instead());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// True if a process exists and is no zombie.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Sends a signal by its name.
fn signal(name: &str, pid: u32) {
    let sent =
        Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
    assert!(sent.unwrap().success(), "the signal {name} was not sent to {pid}");
}
