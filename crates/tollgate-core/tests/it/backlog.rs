//! Backlogs: everything that falls due together is worked off in bounded steps, and a backlog changes nobody's answer.
//!
//! 100,000 leases that end at one moment, and one lease that ends with 100,000 locks. Nothing here measures time: the
//! tests count the ends and grants of each entry.

use crate::commands::{Replica, acquire, grant, lock, name};
use tollgate_core::{AcquireLock, Bug, Change, Command, Reply, Wait, WaitOutcome};
use tollgate_types::Limits;

const MANY: u64 = 100_000;
/// Distance between locks that have a waiter, whose lease lives on.
const WAITED: u64 = 100;
const DUE_MS: u64 = 10_000;
/// Number of a lease that lives on.
const HEIR: u64 = MANY + 1;

fn nth(i: u64) -> String {
    format!("n{i}")
}

/// `MANY` locks, the i-th held by lease `holder(i)`; all these leases are due at `DUE_MS`.
fn state(holder: fn(u64) -> u64, bug: Option<Bug>) -> Replica {
    let mut replica = Replica::new(&Limits::DEFAULT, bug);
    for i in 1..=MANY {
        if replica.state.lease(crate::commands::lease(holder(i))).is_none() {
            replica.at(0, grant(holder(i), DUE_MS));
        }
        replica.at(0, lock(holder(i), &nth(i)));
    }
    replica.at(0, grant(HEIR, 10 * DUE_MS));
    for i in (WAITED..=MANY).step_by(usize::try_from(WAITED).expect("small")) {
        replica.at(0, lock(HEIR, &nth(i)));
    }
    replica
}

/// Ticks from the moment at which all leases are due until nothing is due; returns the number of entries. No entry
/// makes more ends and grants than the limit.
fn ticks_to_work_off(replica: &mut Replica) -> u64 {
    assert!(replica.is_idle(), "nothing is due before its time");
    let reaps_max = Limits::DEFAULT.reaps_per_entry_max;
    for ticks in 1.. {
        let applied = replica.at(DUE_MS, Command::Tick);
        let events = replica.events_of(&applied);
        assert!(events.len() as u64 <= reaps_max, "{} ends and grants in one entry", events.len());
        for event in events {
            let Change::Lock(change) = event.change else { panic!("there are no registers") };
            assert!(change.end.is_some() || change.lease.get() == HEIR, "{change:?}");
        }
        assert!(applied.resolved.iter().all(|it| matches!(it.outcome, WaitOutcome::Granted { .. })));
        if replica.is_idle() {
            return ticks;
        }
    }
    unreachable!("the loop ends when nothing is due")
}

/// Number of entries that so many steps take, each an end, a grant or a lease to forget.
fn entries_for(steps: u64) -> u64 {
    steps.div_ceil(Limits::DEFAULT.reaps_per_entry_max)
}

/// Checks a name that is still to be reaped, and one with a waiter: to a command both are as they will be.
fn a_command_meets_no_backlog(replica: &mut Replica) -> Result<(), String> {
    let try_lock = |i| Command::AcquireLock(AcquireLock { wait: Wait::No, ..acquire(HEIR, &[&nth(i)]) });
    let (free, inherited) = (MANY - 1, MANY);
    if let Some(dead) = replica.state.lock(&name(&nth(free))) {
        return Err(format!("a read shows the dead: {dead:?}"));
    }
    let reply = replica.at(DUE_MS, try_lock(free)).reply;
    if !matches!(reply, Reply::Acquired { .. }) {
        return Err(format!("a name whose holder is dead: {reply:?}"));
    }
    let applied = replica.at(DUE_MS, try_lock(inherited));
    let granted = applied.resolved.iter().find_map(|resolution| match resolution.outcome {
        WaitOutcome::Granted { token, .. } if resolution.lease.get() == HEIR => Some(token),
        _ => None,
    });
    match (&applied.reply, granted) {
        (Reply::Acquired { token, .. }, Some(granted)) if *token >= granted => Ok(()),
        (reply, granted) => Err(format!("a name that passes on: {reply:?}, granted {granted:?}")),
    }
}

#[test]
fn a_hundred_thousand_leases_that_fall_due_together_are_reaped_a_thousand_steps_an_entry() {
    let mut replica = state(|i| i, None);
    // For each lease an end and the lease to forget, and the grants.
    let steps = 2 * MANY + MANY / WAITED;
    assert_eq!((entries_for(steps), ticks_to_work_off(&mut replica)), (201, 201));
    assert_eq!((replica.state.lease_count(), replica.state.lock_count()), (1, MANY / WAITED));
    replica.state.assert_invariants();
}

#[test]
fn a_lease_with_a_hundred_thousand_locks_is_taken_apart_a_thousand_an_entry() {
    let mut replica = state(|_| 1, None);
    let steps = MANY + 1 + MANY / WAITED;
    assert_eq!((entries_for(steps), ticks_to_work_off(&mut replica)), (102, 102));
    assert_eq!((replica.state.lease_count(), replica.state.lock_count()), (1, MANY / WAITED));
    replica.state.assert_invariants();
}

#[test]
fn ten_thousand_waiters_that_fall_due_with_their_holder_end_a_thousand_an_entry() {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    let waiters = Limits::DEFAULT.waiters_per_lock_max;
    for i in 0..=waiters {
        replica.at(0, grant(i + 1, DUE_MS));
        replica.at(0, lock(i + 1, "hot"));
    }
    let (mut ends, mut entries) = (0, 0);
    while !replica.is_idle() || entries == 0 {
        let applied = replica.at(DUE_MS, Command::Tick);
        let events = replica.events_of(&applied).len() as u64;
        assert!(events <= Limits::DEFAULT.reaps_per_entry_max, "{events} ends in one entry");
        (ends, entries) = (ends + events, entries + 1);
    }
    assert_eq!((ends, replica.state.lock_count()), (waiters + 1, 0));
    assert_eq!(entries, entries_for(2 * (waiters + 1)));
}

#[test]
fn a_command_sees_a_name_in_the_backlog_settled() {
    for holder in [|i| i, |_| 1] {
        let mut replica = state(holder, None);
        replica.at(DUE_MS, Command::Tick);
        assert!(!replica.is_idle(), "there is a backlog");
        assert_eq!(a_command_meets_no_backlog(&mut replica), Ok(()));
    }
    let mut replica = state(|_| 1, Some(Bug::DeadHolderStays));
    replica.at(DUE_MS, Command::Tick);
    assert!(a_command_meets_no_backlog(&mut replica).is_err(), "the check can fail");
}
