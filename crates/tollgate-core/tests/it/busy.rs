//! Busy answers that a leader can give without an entry. The oracle checks before each entry of every sequence that
//! none is given wrongly (`properties`); these tests check that they are given at all.

use crate::commands::{Replica, acquire, at, confirm, grant, lock, owner, permits, request, stub};
use crate::properties;
use tollgate_core::{AcquireLock, Command, Reply, Wait};
use tollgate_types::{DurationMs, Limits, LogTime, Mode};

fn attempt(id: u64, text: &str) -> AcquireLock {
    AcquireLock { wait: Wait::No, ..acquire(id, &[text]) }
}

/// Lease 1 holds a, lease 2 waits for it; both end at 1,000. Lease 9 is a pending stub of a lease of another group.
fn held() -> Replica {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    replica.at(0, grant(1, 1_000));
    replica.at(0, grant(2, 1_000));
    replica.at(0, grant(3, 60_000));
    replica.at(0, lock(1, "a"));
    replica.at(0, lock(2, "a"));
    replica.at(0, stub(9, 5));
    replica
}

#[test]
fn a_held_lock_is_known_to_be_busy_until_something_is_due() {
    let replica = held();
    let busy = |acquire: &AcquireLock, ms| replica.state.would_be_busy(acquire, LogTime::from_ms(ms));
    assert!(busy(&attempt(3, "a"), 0));
    assert!(busy(&attempt(3, "a"), 999));
    assert!(!busy(&attempt(3, "a"), 1_000), "both leases have ended by then");
    assert!(busy(&AcquireLock { wait: Wait::For(DurationMs::ZERO), ..attempt(3, "a") }, 0));
    assert!(busy(&AcquireLock { names: acquire(3, &["a", "b"]).names, ..attempt(3, "a") }, 0));
    assert!(busy(&AcquireLock { request: request(1), ..attempt(3, "a") }, 0));
}

#[test]
fn what_is_not_certain_is_left_to_the_log() {
    let mut replica = held();
    replica.at(0, Command::AcquireLock(AcquireLock { request: request(1), ..attempt(3, "a") }));
    let busy = |acquire: &AcquireLock| replica.state.would_be_busy(acquire, LogTime::ZERO);
    assert!(!busy(&attempt(3, "b")), "free");
    assert!(!busy(&acquire(3, &["a"])), "would wait");
    assert!(!busy(&attempt(1, "a")), "held by the asker");
    assert!(!busy(&attempt(2, "a")), "awaited by the asker");
    assert!(busy(&AcquireLock { owner: owner("other"), ..attempt(1, "a") }), "of another owner");
    assert!(!busy(&attempt(7, "a")), "no such lease");
    assert!(!busy(&attempt(9, "a")), "a pending stub");
    assert!(!busy(&AcquireLock { request: request(1), ..attempt(3, "a") }), "a repeat");
    assert!(!busy(&AcquireLock { mode: permits(1, 2), ..attempt(3, "a") }), "of another kind");
    let lock_delay = DurationMs::from_secs(100_000);
    assert!(!busy(&AcquireLock { lock_delay, ..attempt(3, "a") }), "over a limit");
    assert!(busy(&AcquireLock { mode: Mode::Shared, ..attempt(3, "a") }));
}

#[test]
fn a_confirmed_stub_can_find_a_lock_busy() {
    let mut replica = held();
    replica.at(0, confirm(9, 5, replica.state.revision().get()));
    assert!(replica.state.would_be_busy(&attempt(9, "a"), LogTime::ZERO));
}

#[test]
fn most_busy_answers_are_foretold() {
    let (mut foretold, mut busy) = (0, 0);
    for seed in 0..200 {
        let (limits, entries) = properties::entries(seed, 100);
        let mut replica = Replica::new(&limits, None);
        for entry in &entries {
            let Command::AcquireLock(acquire) = &entry.command else {
                replica.apply(entry);
                continue;
            };
            let knew = replica.state.would_be_busy(acquire, entry.at);
            let is_busy =
                matches!(replica.apply(&at(entry.at.ms(), entry.command.clone())).reply, Reply::Busy { .. });
            assert!(is_busy || !knew, "{acquire:?}");
            busy += u64::from(is_busy);
            foretold += u64::from(knew);
        }
    }
    assert!(foretold * 2 > busy && busy > 100, "{foretold} of {busy}");
}
