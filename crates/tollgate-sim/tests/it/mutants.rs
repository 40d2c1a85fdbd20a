//! Plants each known bug in every node and runs seeds until a violation is found: proof that the world and the checker
//! can see the bug. `make mutants-sim` runs this test; it takes too long for every test run.

#![cfg(feature = "planted-bugs")]

use std::sync::atomic::{AtomicU64, Ordering};
use tollgate_sim::{Planted, Scenario, World};

/// Number of seeds after which a bug that has not shown counts as missed, unless `SEEDS` says otherwise.
const SEEDS_MAX: u64 = 5_000;

/// Upper bound for the median: half of the bugs must show within this many seeds, or the schedules are too harmless.
const MEDIAN_MAX: u64 = 200;

/// Bugs that no world shows, or hardly ever, with the reason. Tests of replica and core catch each of them.
const INVISIBLE: &[(&str, &str)] = &[
    ("LeadsInLostTerm", "one seed in many thousands; caught by the replica's own tests"),
    ("BlankVoterServed", "shows only if it votes twice in a term; caught by the replica's own tests"),
    (
        "BrokenConnectionAnswers",
        "an operator would have to come in the second after a crash; caught by the replica's own tests",
    ),
    (
        "ParkedWithoutRoom",
        "disks get room again before a client loses patience; caught by the replica's own tests",
    ),
    ("UnheardForgotten", "as above: who was told comes back; caught by the replica's own tests"),
    ("CommitNotTold", "heartbeats tell it too, a little later; caught by the replica's own tests"),
    (
        "HashKeptBack",
        "a comparison that does not take place breaks nothing; caught by the replica's own tests",
    ),
    ("SalvageTakesFirst", "worlds make no backups from disks; caught by the replica's own tests"),
    ("SalvageDropsTail", "as above"),
    ("ProposedTwice", "a second copy of a request with a seq has no effect: that is what seqs are for"),
    (
        "RulesNotInForce",
        "planted in every node: only beside others does it show; caught by the replica's own tests",
    ),
    ("LimitOneTooMany", "worlds never come near a limit"),
    ("WaitsJamTheirLease", "as above; caught by the core's own tests"),
    ("StaleProclaimAccepted", "values of holders are not in the workload; caught by the core's own tests"),
    ("ExpiryOneEarly", "within the grain of log time"),
    ("ExpiryOneLate", "within the slack"),
    ("DeadWaiterGranted", "who would notice has gone: the grant ends with the next entry"),
    ("DeadHolderStays", "only until the next entry"),
    ("RenewOfEndedLease", "clients do not renew what they no longer believe in"),
    ("UpgradeReturnsWeakGrant", "clients ask for more by converting"),
    ("TombstoneForgotten", "needs a cancel that overtakes its request by more than a retry"),
    ("LockDelayIgnored", "how long a lock stays closed is not judged"),
    ("LockDelayAfterRelease", "as above"),
    ("LockDelayFromReaping", "as above"),
    ("DeadlockIgnoresQueue", "a deadlock that is not found ends by a timeout"),
    ("RegisterOutlivesLease", "registers with leases are not in the workload"),
    ("EndedIdRevived", "clients do not grant an id twice"),
    ("NewerStubTakesOver", "as above"),
    ("StubEndIgnoresIncarnation", "as above"),
    ("StubConfirmedByOldAnswer", "needs a stub that is added again within one exchange of group messages"),
    ("UnackedEndsLostInSnapshot", "the audit of stubs makes up for it, nearly always in time"),
    (
        "FingerprintForgetsNames",
        "a program that uses a number again has an owner of its own; caught by the core's own tests",
    ),
    (
        "PartsFingerprintedApart",
        "requests over several groups are not in the workload; caught by the core's own tests",
    ),
    (
        "CancelTakesAnothersSeq",
        "clients that go by a seq mean their own request; caught by the core's own tests",
    ),
    ("NextSeqIsUsed", "a client counts for itself; caught by the core's own tests"),
    ("SeqsElsewhereForgotten", "as above"),
    ("EmptyClientIdsEqual", "every client says who it is; caught by the core's own tests"),
    ("LineageReplaced", "nobody proposes another; caught by the core's own tests"),
    ("StubEndForgetsWaiters", "a waiter asks again, and is told that its lease is gone"),
];

/// Returns the first seed that shows the bug, with the first violation. A seed that fails without the bug shows
/// nothing.
fn first_to_catch(planted: Planted, seeds_max: u64) -> Option<(u64, String)> {
    let (next, found) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let run = |seed, planted| World::new(Scenario { planted, ..Scenario::new(seed) }, false).run();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds_max.min(found.load(Ordering::Relaxed)) {
                        break;
                    }
                    if !run(seed, Some(planted)).is_clean() && run(seed, None).is_clean() {
                        found.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let seed = found.into_inner();
    (seed < seeds_max).then(|| (seed, run(seed, Some(planted)).findings()[0].clone()))
}

#[test]
#[ignore = "takes minutes: make mutants-sim"]
fn every_planted_bug_is_caught() {
    let only = std::env::var("BUG").ok();
    let seeds_max =
        std::env::var("SEEDS").map_or(SEEDS_MAX, |seeds| seeds.parse().expect("SEEDS is a number"));
    let wanted = |bug: &Planted| only.as_ref().is_none_or(|only| *only == bug.name());
    let (mut missed, mut seeds) = (Vec::new(), Vec::new());
    for planted in Planted::all().into_iter().filter(wanted) {
        let name = planted.name();
        if let Some((_, why)) = INVISIBLE.iter().find(|(invisible, _)| *invisible == name) {
            println!("{name:28} left out: {why}");
            continue;
        }
        if let Some((seed, says)) = first_to_catch(planted, seeds_max) {
            println!("{name:28} caught after {:>4} seeds: {says:.140}", seed + 1);
            seeds.push(seed + 1);
        } else {
            println!("{name:28} MISSED");
            missed.push(name);
        }
    }
    seeds.sort_unstable();
    let median = seeds.get(seeds.len() / 2).copied().unwrap_or_default();
    println!("{} caught, median after {median} seeds", seeds.len());
    assert!(median <= MEDIAN_MAX, "half of the bugs take more than {MEDIAN_MAX} seeds");
    assert!(missed.is_empty(), "not caught within {seeds_max} seeds: {missed:?}");
}
