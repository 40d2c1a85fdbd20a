//! P2 and P1 over a restore from a backup: no token is granted twice, and no lock is granted that a holder from after
//! the backup may still believe to hold.

use super::{ensure, histories, must_fail, must_hold};
use crate::commands::{Replica, acquire, grant, lock, name, unlock};
use std::collections::BTreeMap;
use tollgate_core::{AcquireLock, Bug, Command, Reply, SnapshotReader, State, Wait, WaitOutcome};
use tollgate_types::{DurationMs, LeaseId, Limits, LogTime, Mode, Token};

/// The state that a backup of this state loads as.
fn backup(state: &State, bug: Option<Bug>) -> Result<State, String> {
    let mut reader = SnapshotReader::new();
    for chunk in state.snapshot().chunks(4_096) {
        reader.push(&chunk).map_err(|error| error.to_string())?;
    }
    let mut state = reader.finish().map_err(|error| error.to_string())?;
    if let Some(bug) = bug {
        state.plant(bug);
    }
    Ok(state)
}

/// A cluster lives on after its backup, is lost, and is restored: again and again, each time from the latest backup.
fn tokens_increase_over_restores(bug: Option<Bug>) -> Result<(), String> {
    let mut replica = Replica::new(&Limits::DEFAULT, bug);
    let mut last: Option<Token> = None;
    let mut now = 0;
    let mut take = |replica: &mut Replica, now: u64| -> Result<(), String> {
        let reply = replica.at(now, lock(1, "jobs")).reply;
        let Reply::Acquired { token, .. } = reply else { return Err(format!("{reply:?}")) };
        ensure!(last < Some(token), "{token} after {last:?}");
        ensure!(token.get() < 1 << 53, "{token} is no exact double");
        last = Some(token);
        replica.at(now, unlock(1, "jobs"));
        Ok(())
    };
    for age_seconds in [0, 1, 3_600, 86_400 * 365] {
        replica.at(now, grant(1, 60_000));
        for _ in 0..3 {
            take(&mut replica, now)?;
        }
        let saved = backup(&replica.state, bug)?;
        for _ in 0..50 {
            take(&mut replica, now)?;
        }
        let above = saved.revision().get() + (1 << 32) + (age_seconds << 20);
        replica.state = saved;
        replica.state.resume(above, DurationMs::ZERO).map_err(|error| error.to_string())?;
        now = replica.state.now().ms() + 1;
    }
    replica.at(now, grant(1, 60_000));
    take(&mut replica, now)
}

/// Any state, backed up at any moment: nothing is granted before the grace is over, by no entry and to no one; then a
/// waiter for a free name is granted it.
fn nothing_is_granted_before_the_grace_is_over(bug: Option<Bug>) -> Result<(), String> {
    for history in histories() {
        let mut replica = Replica::new(&history.limits, bug);
        for entry in &history.entries {
            replica.apply(entry);
        }
        replica.state = backup(&replica.state, bug)?;
        let limits = Command::SetLimits(Box::new(Limits { ttl_ms_min: 1, ..Limits::DEFAULT }));
        replica.at(replica.state.now().ms(), limits);
        let start = replica.state.now();
        let above = replica.state.revision().get() + 1_000;
        replica.state.resume(above, DurationMs::from_secs(30)).map_err(|error| error.to_string())?;
        if history.seed % 2 == 0 {
            replica.restore(1_000)?;
        }
        let seed = history.seed;
        let tokens = waiters_after(&mut replica, start).map_err(|why| format!("seed {seed}: {why}"))?;
        ensure!(tokens.len() == 2, "seed {seed}: only {tokens:?} were granted in the end");
        ensure!(tokens.values().all(|token| token.get() > above), "seed {seed}: {tokens:?} above {above}");
    }
    Ok(())
}

/// Lets two leases wait, one for a name that the backup knows; returns the tokens with which they were granted once
/// that was possible.
fn waiters_after(replica: &mut Replica, start: LogTime) -> Result<BTreeMap<LeaseId, Token>, String> {
    let mut tokens = BTreeMap::new();
    let mut at = |replica: &mut Replica, ms: u64, command: Command| {
        let applied = replica.at(start.ms() + ms, command);
        for resolution in &applied.resolved {
            if let WaitOutcome::Granted { token, .. } = resolution.outcome {
                ensure!(ms >= 30_000, "{token} is granted {ms} ms after the restore");
                tokens.insert(resolution.lease, token);
            }
        }
        Ok(applied.reply)
    };
    for (lease, text) in [(91, "a"), (92, "never-seen")] {
        at(replica, 1, grant(lease, 600_000))?;
        let shared = AcquireLock { mode: Mode::Shared, wait: Wait::No, ..acquire(lease, &[text]) };
        let tried = at(replica, 1, Command::AcquireLock(shared))?;
        ensure!(!matches!(tried, Reply::Acquired { .. }), "{text} is given at once: {tried:?}");
        let queued = at(replica, 1, lock(lease, text))?;
        ensure!(matches!(queued, Reply::Queued { .. }), "{text} is not waited for: {queued:?}");
    }
    for ms in [1_000, 29_999, 30_000] {
        while replica.state.next_deadline().is_some_and(|next| next.ms() <= start.ms() + ms) {
            at(replica, ms, Command::Tick)?;
        }
        at(replica, ms, Command::Tick)?;
    }
    // A lock-delay of the backup may last longer.
    let late = replica.state.lock(&name("a")).and_then(|view| view.closed_until);
    if let Some(until) = late {
        let ms = start.until(until).ms();
        at(replica, ms, Command::Tick)?;
    }
    Ok(tokens)
}

#[test]
fn p2_tokens_increase_over_restores_from_a_backup() {
    must_hold(tokens_increase_over_restores);
    must_fail(tokens_increase_over_restores, Bug::ResumedTokensReused);
}

#[test]
fn p1_nothing_is_granted_before_the_grace_of_a_restore_is_over() {
    must_hold(nothing_is_granted_before_the_grace_is_over);
    must_fail(nothing_is_granted_before_the_grace_is_over, Bug::ResumedGrantsEarly);
    must_fail(nothing_is_granted_before_the_grace_is_over, Bug::ClosingLostInSnapshot);
}

/// A lock that a lease of the backup held was perhaps released since, and passed on.
#[test]
fn p2_no_lease_of_a_backup_gets_its_old_token_again() {
    let again = |bug| {
        let mut replica = Replica::new(&Limits::DEFAULT, bug);
        replica.at(0, grant(1, 60_000));
        replica.at(0, lock(1, "jobs"));
        replica.state = backup(&replica.state, bug)?;
        replica.state.resume(1_000, DurationMs::ZERO).map_err(|error| error.to_string())?;
        let reply = replica.at(1, lock(1, "jobs")).reply;
        ensure!(matches!(reply, Reply::Rejected(_)), "the lease of the backup gets {reply:?}");
        Ok(())
    };
    must_hold(again);
    must_fail(again, Bug::ResumedLeasesLive);
}

#[test]
fn a_state_goes_on_above_its_own_tokens_and_below_two_to_the_53() {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    replica.at(0, grant(1, 60_000));
    let before = replica.hash();
    for above in [0, (1 << 53) - 1, 1 << 53, u64::MAX] {
        assert!(replica.state.resume(above, DurationMs::ZERO).is_err(), "above {above}");
    }
    assert_eq!(replica.hash(), before, "what is refused changes nothing");
    replica.state.resume(1, DurationMs::ZERO).expect("its own revision is free");
}
