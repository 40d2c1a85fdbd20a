//! Seeds that must be clean, and that must contain enough to mean anything.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use tollgate_sim::{FaultKind, Outcome, REGRESSIONS, Scenario, Stats, World, reduce};

/// Runs every seed, several at a time, and gives the outcomes to `look`.
fn run_all(seeds: &[u64], look: impl Fn(u64, Outcome) + Sync) {
    let next = AtomicUsize::new(0);
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    look(seed, World::new(Scenario::new(seed), false).run());
                }
            });
        }
    });
}

/// Returns the text to print for a seed that failed.
fn explain(seed: u64, outcome: &Outcome) -> String {
    let reduced = reduce(&outcome.scenario, 40);
    let faults: Vec<String> = reduced.faults.iter().map(ToString::to_string).collect();
    format!(
        "seed {seed}: {}\n  {}\nreplay: make sim SEED={seed}\nof {} faults these are enough:\n{}",
        outcome.scenario.describe(),
        outcome.findings().join("\n  "),
        reduced.faults_before,
        faults.join("\n")
    )
}

/// Checks all promises, over all faults that the world knows.
#[test]
fn a_hundred_and_twenty_seeds_keep_every_promise_and_every_fault_happens_among_them() {
    let seeds: Vec<u64> = (0..120).collect();
    let (total, failed, elections, expiries) = (
        Mutex::new(Stats::default()),
        Mutex::new(BTreeSet::new()),
        Mutex::new(Vec::new()),
        Mutex::new(Vec::new()),
    );
    run_all(&seeds, |seed, outcome| {
        total.lock().add(&outcome.stats);
        elections.lock().push(outcome.stats.elections);
        expiries.lock().push(outcome.stats.lease_expiries);
        if !outcome.is_clean() {
            println!("seed {seed}: {}", outcome.findings()[0]);
            failed.lock().insert(seed);
        }
    });
    let failed = failed.into_inner();
    if let Some(&seed) = failed.first() {
        let outcome = World::new(Scenario::new(seed), false).run();
        panic!("{} of {} seeds failed: {failed:?}\n{}", failed.len(), seeds.len(), explain(seed, &outcome));
    }
    let total = total.into_inner();
    for label in FaultKind::LABELS {
        assert!(total.faults.contains_key(label), "no seed has the fault {label}: {:?}", total.faults);
    }
    for (name, value) in total.rows() {
        println!("{name:22} {value}");
        // No bit flips on the way between nodes here, and a file that has rotted is not sent.
        assert!(value > 0 || name == "snapshots_damaged", "{name} is 0 over all seeds");
    }
    assert!(median(elections.into_inner()) >= 3, "too few elections to mean much");
    assert!(median(expiries.into_inner()) >= 5, "too few expiries to mean much");
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Checks P12 for the world itself: a seed that failed can be looked at again.
#[test]
fn the_same_seed_leaves_the_same_trace() {
    let seeds: Vec<u64> = (1_000..1_020).collect();
    run_all(&seeds, |seed, first| {
        let second = World::new(Scenario::new(seed), true).run();
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(first.history.events(), second.history.events(), "seed {seed}");
        assert_eq!(first.stats, second.stats, "seed {seed}");
    });
}

#[test]
fn different_seeds_leave_different_traces() {
    let hashes: BTreeSet<u64> =
        (2_000..2_005).map(|seed| World::new(Scenario::new(seed), false).run().trace_hash).collect();
    assert_eq!(hashes.len(), 5);
}

#[test]
fn seeds_that_once_failed_stay_clean() {
    let seeds: Vec<u64> = REGRESSIONS.iter().map(|(seed, _)| *seed).collect();
    run_all(&seeds, |seed, outcome| assert!(outcome.is_clean(), "{}", explain(seed, &outcome)));
}

/// Without faults nothing excuses a late answer: this is the baseline for all other seeds.
#[test]
fn a_world_without_faults_is_quiet() {
    for seed in 3_000..3_010 {
        let outcome = World::new(Scenario { faults: Vec::new(), ..Scenario::new(seed) }, false).run();
        assert!(outcome.is_clean(), "{}", explain(seed, &outcome));
    }
}
