//! Cost of replication without disk and network: three hosts in one thread, lock and unlock by 1,024 proposers, beside
//! three bare Rafts that carry the same bytes and do nothing with them.
//!
//! One thread does the work of all nodes, so the time of an operation is the CPU time that the whole cluster spends on
//! it. Frames are encoded and decoded, entries are applied three times; writes are kept in memory and are durable at
//! once.

#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a benchmark prints figures")]

mod bare;
mod hosts;
#[path = "../../tests/it/memory.rs"]
mod memory;

use std::time::Instant;

const PROPOSERS: usize = 1_024;
const OPERATIONS: usize = 400_000;
const RUNS: usize = 7;

fn main() {
    println!(
        "three replicas in memory, {PROPOSERS} proposers, {OPERATIONS} operations a run, median of {RUNS} runs\n"
    );
    println!("{:<58} {:>10} {:>24}", "", "us per op", "operations per second");
    report("bare raft-rs, an entry each", || bare::run(OPERATIONS, PROPOSERS, 1));
    report("bare raft-rs, one entry a round", || bare::run(OPERATIONS, PROPOSERS, PROPOSERS));
    report("Tollgate, one group", || hosts::run(OPERATIONS, PROPOSERS, 1));
    report("Tollgate, 4 groups", || hosts::run(OPERATIONS, PROPOSERS, 4));
    report("Tollgate, one group, 64 proposers", || hosts::run(OPERATIONS / 4, 64, 1) * 4.0);
    report("Tollgate, one group, 1 proposer", || hosts::run(OPERATIONS / 40, 1, 1) * 40.0);
}

/// Runs a measurement several times; `run` returns the seconds for all operations.
fn report(what: &str, mut run: impl FnMut() -> f64) {
    run();
    let mut seconds: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    seconds.sort_by(f64::total_cmp);
    let us = |seconds: f64| seconds * 1e6 / OPERATIONS as f64;
    let (least, median, most) = (us(seconds[0]), us(seconds[RUNS / 2]), us(seconds[RUNS - 1]));
    println!("{what:<58} {median:>10.3} {:>14.0} [{least:.3} .. {most:.3}]", 1e6 / median);
}

/// Seconds of CPU time that `work` takes in this thread; of elapsed time, where the system does not count CPU time.
fn seconds(work: impl FnOnce()) -> f64 {
    let (begun, cpu_begun) = (Instant::now(), cpu_seconds());
    work();
    match (cpu_begun, cpu_seconds()) {
        (Some(before), Some(after)) => after - before,
        _ => begun.elapsed().as_secs_f64(),
    }
}

fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}
