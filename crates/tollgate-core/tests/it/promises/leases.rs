//! P5 and P6: a lease never ends before its TTL has passed since its last renewal, and ends at the first entry at or
//! past that. (Here the time at which the leader received a keepalive is the log time of the entry that carries it.)

use super::{ensure, lock_changes, must_fail, must_hold};
use crate::codec::Rng;
use crate::commands::{Replica, acquire, at, grant, grant_by, lease, lock, name, put, renew, txn};
use std::collections::BTreeMap;
use tollgate_core::{AcquireLock, Applied, Bug, Command, EndReason, Reply, Wait};
use tollgate_types::{LeaseId, Limits, Revision};

const LEASES: u64 = 6;
/// Steps per entry, so few that reaping a lease often takes several entries.
const REAPS: u64 = 1;

/// The deadline that each living lease must have, from the answers that clients got.
struct Run {
    rng: Rng,
    replica: Replica,
    now: u64,
    ttls: BTreeMap<LeaseId, u64>,
    deadlines: BTreeMap<LeaseId, u64>,
    /// Incarnation of each lease, which tells it from earlier leases with the same id that may not be fully reaped.
    incarnations: BTreeMap<LeaseId, Revision>,
}

impl Run {
    fn new(seed: u64, bug: Option<Bug>) -> Run {
        let limits = Limits { ttl_ms_min: 1, reaps_per_entry_max: REAPS, ..Limits::DEFAULT };
        let replica = Replica::new(&limits, bug);
        let ttls = (1..=LEASES).map(|id| (lease(id), 10)).collect();
        let (deadlines, incarnations) = (BTreeMap::new(), BTreeMap::new());
        Run { rng: Rng::new(seed), replica, now: 0, ttls, deadlines, incarnations }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.rng.next() % end
    }

    /// The id of one of a few leases, living or not.
    fn id(&mut self) -> u64 {
        1 + self.below(LEASES)
    }

    fn command(&mut self) -> Command {
        let id = self.id();
        match self.below(10) {
            0 => {
                let ttl = 1 + self.below(40);
                if !self.lives(id) {
                    self.ttls.insert(lease(id), ttl);
                }
                grant_by("worker", id, self.ttls[&lease(id)])
            }
            1 | 2 => renew([id, self.id()]),
            3..8 => {
                let text = format!("lock-{}", self.below(12));
                Command::AcquireLock(AcquireLock { wait: Wait::No, ..acquire(id, &[&text]) })
            }
            8 => txn(vec![put(&format!("key-{id}"), b"", Some(id))]),
            _ => Command::Tick,
        }
    }

    fn lives(&self, id: u64) -> bool {
        self.deadlines.get(&lease(id)).is_some_and(|deadline| self.now < *deadline)
    }

    /// Applies a command after some time, and notes the leases that it granted or renewed.
    fn step(&mut self) -> Applied {
        // Often the very millisecond at which something ends, or the one before.
        let next = self.replica.state.next_deadline().map_or(0, |next| next.ms().saturating_sub(self.now));
        self.now += match self.below(8) {
            0 => next,
            1 => next.saturating_sub(1),
            2..6 => 0,
            _ => self.below(8),
        };
        let command = self.command();
        let applied = self.replica.apply(&at(self.now, command));
        match &applied.reply {
            Reply::LeaseGranted { lease, incarnation, .. } => {
                self.incarnations.insert(*lease, *incarnation);
                self.renewed(*lease);
            }
            Reply::LeasesRenewed(renewed) => {
                for one in renewed.iter().filter(|one| one.result.is_some()) {
                    self.renewed(one.lease);
                }
            }
            _ => {}
        }
        applied
    }

    fn renewed(&mut self, id: LeaseId) {
        self.deadlines.insert(id, self.now + self.ttls[&id]);
    }
}

fn runs(bug: Option<Bug>, check: fn(&Run, &Applied) -> Result<(), String>) -> Result<(), String> {
    for seed in 0..40 {
        let mut run = Run::new(seed, bug);
        for _ in 0..250 {
            let applied = run.step();
            check(&run, &applied).map_err(|why| format!("seed {seed}, at {}: {why}", run.now))?;
        }
    }
    Ok(())
}

/// Before its deadline a lease exists, and nothing of it ends.
fn no_lease_ends_early(bug: Option<Bug>) -> Result<(), String> {
    runs(bug, |run, applied| {
        for (id, deadline) in &run.deadlines {
            let alive = run.replica.state.lease(*id).is_some();
            ensure!(alive || run.now >= *deadline, "{id} ended before {deadline}");
        }
        let events = run.replica.events_of(applied);
        for (_, change) in lock_changes(&events).flatten() {
            let (deadline, incarnation) = (run.deadlines[&change.lease], run.incarnations[&change.lease]);
            let its_own = change.create_revision > incarnation;
            let early = change.end == Some(EndReason::LeaseExpired) && its_own && run.now < deadline;
            ensure!(!early, "{} lost {} before {deadline}", change.lease, change.name);
        }
        Ok(())
    })
}

/// From its deadline on a lease is gone for reads and for commands, reaped or not.
fn no_lease_ends_late(bug: Option<Bug>) -> Result<(), String> {
    runs(bug, |run, applied| {
        for (id, deadline) in &run.deadlines {
            let alive = run.replica.state.lease(*id).is_some();
            ensure!(!alive || run.now < *deadline, "{id} lives on after {deadline}");
            for view in run.replica.state.snapshot().locks(b"", None, usize::MAX) {
                let held = view.holders.iter().any(|holder| holder.lease == *id);
                ensure!(!held || run.now < *deadline, "{id} holds {} after {deadline}", view.name);
            }
        }
        if let Reply::Busy { holders, .. } = &applied.reply {
            for holder in holders {
                let deadline = run.deadlines[&holder.lease];
                ensure!(run.now < deadline, "a command met {} after {deadline}", holder.key);
            }
        }
        Ok(())
    })
}

/// The locks of the dead are granted at the first entry at or past the deadline, though a thousand others wait to be
/// reaped.
fn the_next_in_line_does_not_wait_for_the_reaper(bug: Option<Bug>) -> Result<(), String> {
    let limits = Limits { reaps_per_entry_max: 1, ..Limits::DEFAULT };
    let mut replica = Replica::new(&limits, bug);
    for id in 1..=1_000 {
        replica.at(0, grant(id, 1_000));
        replica.at(0, lock(id, &format!("of-{id}")));
    }
    replica.at(0, grant(2_000, 5_000));
    let try_lock = |id: u64| {
        Command::AcquireLock(AcquireLock { wait: Wait::No, ..acquire(2_000, &[&format!("of-{id}")]) })
    };
    let early = replica.at(999, try_lock(900)).reply;
    ensure!(matches!(early, Reply::Busy { .. }), "a millisecond early: {early:?}");
    let reply = replica.at(1_000, try_lock(900)).reply;
    ensure!(matches!(reply, Reply::Acquired { .. }), "at the deadline: {reply:?}");
    let untouched = replica.state.lock(&name("of-901"));
    ensure!(untouched.is_none(), "nobody reads a dead holder: {untouched:?}");
    Ok(())
}

#[test]
fn p5_a_lease_never_ends_before_its_ttl_has_passed_since_its_last_renewal() {
    must_hold(no_lease_ends_early);
    must_fail(no_lease_ends_early, Bug::ExpiryOneEarly);
    must_fail(no_lease_ends_early, Bug::RenewOfEndedLease);
    must_fail(no_lease_ends_early, Bug::EndedIdRevived);
}

#[test]
fn p6_a_lease_ends_at_the_first_entry_at_or_past_its_deadline() {
    must_hold(no_lease_ends_late);
    must_fail(no_lease_ends_late, Bug::ExpiryOneLate);
    must_fail(no_lease_ends_late, Bug::RenewalExtendsDeadline);
    must_fail(no_lease_ends_late, Bug::DeadHolderStays);
}

#[test]
fn p6_a_backlog_delays_nobody() {
    must_hold(the_next_in_line_does_not_wait_for_the_reaper);
    must_fail(the_next_in_line_does_not_wait_for_the_reaper, Bug::DeadHolderStays);
    must_fail(the_next_in_line_does_not_wait_for_the_reaper, Bug::ExpiryOneLate);
}
