//! Memory per held lock: the growth of a fresh process's resident set, so that nothing measured before is in it.

use crate::load;
use std::process::Command;
use tollgate_core::{Reply, State, Wait};
use tollgate_types::{LeaseId, Limits};

const LOCKS: u64 = 1_000_000;
const ASK: &str = "TOLLGATE_BENCH_MEMORY";

/// The measurement that the parent process asks of this child process, if this is one.
pub(crate) fn asked_of_child() -> Option<String> {
    std::env::var(ASK).ok()
}

pub(crate) fn report() {
    for (kind, target) in [("one shared lease", 600), ("a lease each", 900)] {
        let child = Command::new(std::env::current_exe().unwrap()).env(ASK, kind).output().unwrap();
        let bytes = String::from_utf8(child.stdout).unwrap();
        println!("memory per held lock, {kind}: {} bytes (target {target})", bytes.trim());
    }
}

pub(crate) fn report_child(kind: &str) {
    // The history that is kept is part of the cost, so the measurement includes all of it.
    let limits = Limits { claims_per_lease_max: 100_000_000, ..Limits::DEFAULT };
    let mut state = State::new(limits);
    let shared = kind == "one shared lease";
    let before = resident_bytes();
    for i in 0..LOCKS {
        let lease = LeaseId::new(if shared { 1 } else { i + 1 }).unwrap();
        if i == 0 || !shared {
            load::apply(&mut state, load::grant(lease));
        }
        let request = load::request(if shared { i } else { 0 });
        let reply = load::apply(&mut state, load::acquire(load::name(i), lease, i, Wait::No, request));
        assert!(matches!(reply, Reply::Acquired { .. }));
    }
    println!("{}", (resident_bytes() - before) / LOCKS);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1_024
}
